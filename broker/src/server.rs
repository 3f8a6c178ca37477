//! From a request code to its handler. The session holds what one connection collects between reads.

use std::sync::Arc;

use minimq_common::config::{Config, Section};
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_remoting::{Answers, CloseReason, Connection, ServerTls, Service};

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::request::RequestContext;
use crate::{
    client_registry, filter_server_registry, offset, pull, queue_lock, send, subscription_group,
    topic,
};

/// Which listener a connection came by.
const VIP_LISTENER: usize = 1;

/// What is kept for one connection.
#[derive(Debug)]
pub struct Session {
    /// Sends of this read, appended together at its end.
    pub sends: send::Collected,
    /// Came by the VIP port, which serves no pulls.
    pub vip: bool,
}

/// The broker as a service.
pub struct BrokerService {
    broker: Arc<Broker>,
}

impl BrokerService {
    /// Serves this broker.
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }
}

impl Service for BrokerService {
    type Session = Session;

    fn open(&self, connection: &Connection) -> Session {
        Session {
            sends: send::Collected::default(),
            vip: connection.listener() == VIP_LISTENER,
        }
    }

    fn request(&self, session: &mut Session, command: Command, answers: &mut Answers<'_>) {
        let mut cx = RequestContext {
            broker: &self.broker,
            session,
            answers,
        };
        dispatch(&mut cx, command);
    }

    async fn end_of_read(&self, session: &mut Session, answers: &mut Answers<'_>) {
        if !session.sends.is_empty() {
            send::append_collected(&self.broker, &mut session.sends, answers).await;
        }
    }

    fn closed(&self, _session: Session, connection: &Connection, _reason: &CloseReason) {
        self.broker.filter_server_connection_closed(connection);
        self.broker.held_connection_closed(connection);
        for group in self.broker.clients.connection_closed(connection) {
            self.broker.notices.add(&group);
        }
    }
}

/// One arm a code, by families in the order of the codes' table.
fn dispatch(cx: &mut RequestContext<'_, '_>, command: Command) {
    match command.code {
        request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
            cx.session.sends.push(command);
        }
        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE if !cx.session.vip => {
            pull::pull(cx, command)
        }
        request::QUERY_CONSUMER_OFFSET => offset::query(cx, command),
        request::UPDATE_CONSUMER_OFFSET => offset::update(cx, &command),
        request::GET_MAX_OFFSET => offset::max(cx, &command),
        request::GET_MIN_OFFSET => offset::min(cx, &command),
        request::SEARCH_OFFSET_BY_TIMESTAMP => cx.slow(command, offset::search),
        request::GET_EARLIEST_MSG_STORETIME => cx.slow(command, offset::earliest_store_time),
        request::INVOKE_BROKER_TO_RESET_OFFSET => cx.slow(command, offset::reset),
        request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => cx.slow(command, offset::consumer_status),
        request::CLONE_GROUP_OFFSET => cx.slow(command, offset::clone_group),
        request::HEART_BEAT => client_registry::heartbeat(cx, &command),
        request::UNREGISTER_CLIENT => client_registry::unregister(cx, &command),
        request::CHECK_CLIENT_CONFIG => cx.slow(command, client_registry::check_client),
        request::GET_CONSUMER_LIST_BY_GROUP => cx.slow(command, client_registry::consumer_ids),
        request::GET_CONSUMER_CONNECTION_LIST => {
            cx.slow(command, client_registry::consumer_connections)
        }
        request::GET_PRODUCER_CONNECTION_LIST => {
            cx.slow(command, client_registry::producer_connections)
        }
        request::GET_ALL_PRODUCER_INFO => cx.slow(command, client_registry::all_producers),
        request::QUERY_TOPIC_CONSUME_BY_WHO => cx.slow(command, client_registry::topic_consumed_by),
        request::LOCK_BATCH_MQ => cx.slow(command, queue_lock::lock),
        request::UNLOCK_BATCH_MQ => cx.slow(command, queue_lock::unlock),
        request::CONSUMER_SEND_MSG_BACK => cx.slow(command, send::send_back),
        request::UPDATE_AND_CREATE_TOPIC => cx.slow(command, topic::update_and_create),
        request::DELETE_TOPIC_IN_BROKER => cx.slow(command, topic::delete),
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => {
            cx.slow(command, subscription_group::update_and_create);
        }
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => cx.slow(command, subscription_group::get_all),
        request::DELETE_SUBSCRIPTIONGROUP => cx.slow(command, subscription_group::delete),
        request::REGISTER_FILTER_SERVER => filter_server_registry::register(cx, &command),
        _ => not_supported(cx, &command),
    }
}

fn not_supported(cx: &mut RequestContext<'_, '_>, command: &Command) {
    let remark = format!(" request type {} not supported", command.code);
    cx.answers.refuse(
        command.id(),
        minimq_protocol::code::response::REQUEST_CODE_NOT_SUPPORTED,
        &remark,
    );
}

/// The port's TLS by the keys `tls.*`.
pub(crate) fn tls(config: &Config<BrokerConfig>) -> ServerTls {
    let mut values = std::collections::HashMap::new();
    config.to_arc().show(&mut |key, value| {
        if let (true, Some(value)) = (key.name.starts_with("tls."), value) {
            values.insert(key.name, value);
        }
    });
    ServerTls::from_keys(|key| values.get(key).cloned())
}
