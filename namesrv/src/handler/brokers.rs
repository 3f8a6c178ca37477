//! Brokers come, live and go: 103, 104, 322, 106, 205, 327 (name server spec 5, 6, 8).

use minimq_protocol::Command;
use minimq_protocol::body::{DataVersion, Flavour, RegisterBrokerBody};
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{
    AddWritePermOfBrokerRequest, AddWritePermOfBrokerResponse, QueryDataVersionRequest,
    QueryDataVersionResponse, RegisterBrokerRequest, RegisterBrokerResponse,
    UnRegisterBrokerRequest, WipeWritePermOfBrokerRequest, WipeWritePermOfBrokerResponse,
};
use minimq_remoting::Connection;

use super::{Answered, Patience, Refusal, State, done, log};
use crate::registry::{Registration, Unregistration};

impl State {
    pub(super) fn register(
        &self,
        request: &Command,
        connection: &Connection,
        patience: Patience,
    ) -> Answered {
        let header: RegisterBrokerRequest<'_> = request.header()?;
        let version = request.version;
        if version < 0 {
            return Err(Refusal::error(format!(
                "version {version} is not one of a broker"
            )));
        }
        if header.body_crc32 != 0 && body_crc(&request.body) != header.body_crc32 {
            return Err(Refusal::error("crc32 not match"));
        }
        let body = RegisterBrokerBody::from_registration(&request.body, header.compressed, version)
            .map_err(|error| {
                Refusal::error(format!("Failed to decode RegisterBrokerBody: {error}"))
            })?;
        let table = &body.topic_config_serialize_wrapper;
        let registration = Registration {
            cluster: header.cluster_name,
            broker: header.broker_name,
            addr: header.broker_addr,
            ha_server_addr: header.ha_server_addr,
            id: header.broker_id,
            version: table.data_version,
            topics: &table.topic_config_table,
            filter_servers: body.filter_server_list.as_deref(),
            connection: connection.id(),
        };
        let registered = self
            .registry(patience)?
            .register(&registration, self.now_ms())
            .map_err(|refused| {
                let (broker, addr) = (header.broker_name, header.broker_addr);
                tracing::warn!("registration of {broker} at {addr} refused: {refused}");
                Refusal::error(refused)
            })?;
        log(&registered.changes);
        self.registered.insert(connection.id(), connection.clone());
        if connection.is_closed() {
            // It may have ended before it was noted down, and nobody would take the broker out then.
            self.registered.remove(&connection.id());
            self.connection_closed(connection.id());
        }
        let mut answer = done(request).with_header(&RegisterBrokerResponse {
            ha_server_addr: registered.ha_server_addr.as_deref(),
            master_addr: registered.master_addr.as_deref(),
        });
        if self.config.get().return_order_topic_config_to_broker
            && let Some(body) = self.kv.order_topics()
        {
            answer.body = body;
        }
        Ok(answer)
    }

    pub(super) fn unregister(
        &self,
        request: &Command,
        connection: &Connection,
        patience: Patience,
    ) -> Answered {
        let header: UnRegisterBrokerRequest<'_> = request.header()?;
        let changes = self.registry(patience)?.unregister(&Unregistration {
            addr: header.broker_addr,
            connection: connection.id(),
        });
        tracing::info!(
            "broker {} at {} unregisters{}",
            header.broker_name,
            header.broker_addr,
            if changes.is_empty() {
                ", it was not registered"
            } else {
                ""
            }
        );
        log(&changes);
        Ok(done(request))
    }

    pub(super) fn query_data_version(&self, request: &Command, patience: Patience) -> Answered {
        let header: QueryDataVersionRequest<'_> = request.header()?;
        let version = DataVersion::from_json(&request.body)
            .map_err(|error| Refusal::error(format!("the body is no data version: {error}")))?;
        let now_ms = self.now_ms();
        let (changed, stored) =
            self.registry(patience)?
                .query_data_version(header.broker_addr, version, now_ms);
        let answer = done(request).with_header(&QueryDataVersionResponse { changed });
        Ok(match stored {
            Some(stored) => answer.with_body(stored.to_wire()),
            None => answer,
        })
    }

    pub(super) fn cluster_info(&self, request: &Command) -> Command {
        // Whatever the client's version, as the original.
        let flavour = if self.config.get().standard_json_for_all {
            Flavour::Standard
        } else {
            Flavour::Fastjson
        };
        done(request).with_body(self.view.cluster_info().to_json(flavour))
    }

    pub(super) fn wipe_write_permission(&self, request: &Command, patience: Patience) -> Answered {
        let header: WipeWritePermOfBrokerRequest<'_> = request.header()?;
        let (topics, changes) = self
            .registry(patience)?
            .wipe_write_permission(header.broker_name);
        log(&changes);
        Ok(done(request).with_header(&WipeWritePermOfBrokerResponse {
            wipe_topic_count: count(topics),
        }))
    }

    pub(super) fn add_write_permission(&self, request: &Command, patience: Patience) -> Answered {
        let header: AddWritePermOfBrokerRequest<'_> = request.header()?;
        let (topics, changes) = self
            .registry(patience)?
            .add_write_permission(header.broker_name);
        log(&changes);
        Ok(done(request).with_header(&AddWritePermOfBrokerResponse {
            add_topic_count: count(topics),
        }))
    }
}

fn count(topics: usize) -> i32 {
    i32::try_from(topics).unwrap_or(i32::MAX)
}
