//! What brokers ask of this client: codes 39, 40, 220, 221, 307, 309, 326 (client spec 4.16, 3.12, 3.13).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use minimq_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    ConsumeMessageDirectlyResultRequest, GetConsumerRunningInfoRequest, GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest, ReplyMessageRequest, ResetOffsetRequest,
};
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::{Properties, PropertiesBuf, name};
use minimq_protocol::{Command, crc};
use minimq_remoting::{Answers, CloseReason, Connection, ServerRequests};

use crate::core::{Core, now_ms};
use crate::delivery::Delivery;

/// Answers brokers as long as the core lives.
#[derive(Default)]
pub(crate) struct BrokerRequests {
    core: OnceLock<Weak<Core>>,
}

impl BrokerRequests {
    pub(crate) fn serve(&self, core: &Arc<Core>) {
        // Set once, right after the core was made.
        let _ = self.core.set(Arc::downgrade(core));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get()?.upgrade()
    }
}

impl ServerRequests for BrokerRequests {
    fn request(&self, command: Command, answers: &mut Answers<'_>) {
        let Some(core) = self.core() else {
            answers.refuse(
                command.id(),
                response::SYSTEM_ERROR,
                "the client is shutting down",
            );
            return;
        };
        if let Err(reason) = handle(&core, &command, answers) {
            answers.refuse(command.id(), response::SYSTEM_ERROR, &reason);
        }
    }

    /// A broker forgets its clients with their connection: a new one has to hear who we are.
    fn opened(&self, _connection: &Connection) {
        if let Some(core) = self.core()
            && !(core.consumers.is_empty() && core.producers.is_empty())
        {
            core.want_heartbeat();
        }
    }

    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        tracing::debug!(peer = %connection.peer(), %reason, "connection ended");
    }
}

fn handle(core: &Arc<Core>, command: &Command, answers: &mut Answers<'_>) -> Result<(), String> {
    match command.code {
        request::NOTIFY_CONSUMER_IDS_CHANGED => {
            let header: NotifyConsumerIdsChangedRequest = header(command)?;
            if let Some(consumer) = core.consumers.get(header.consumer_group) {
                consumer.wake();
            }
            answers.answer(
                command.id(),
                Command::response_to(command, response::SUCCESS),
            );
        }
        request::CHECK_TRANSACTION_STATE => {
            check_transaction(core, command, answers.connection().peer())
        }
        request::RESET_CONSUMER_CLIENT_OFFSET => {
            let header: ResetOffsetRequest = header(command)?;
            let body =
                ResetOffsetBody::from_json(&command.body).map_err(|error| error.to_string())?;
            let consumer = core
                .consumers
                .get(header.group)
                .map(|one| one.value().clone());
            if let Some(consumer) = consumer {
                tokio::spawn(consumer.reset_offsets(header.topic.to_owned(), body.offset_table));
            }
            answers.answer(
                command.id(),
                Command::response_to(command, response::SUCCESS),
            );
        }
        request::GET_CONSUMER_STATUS_FROM_CLIENT => {
            let header: GetConsumerStatusRequest = header(command)?;
            let body = GetConsumerStatusBody {
                message_queue_table: core
                    .consumers
                    .get(header.group)
                    .map(|consumer| consumer.offsets(header.topic))
                    .unwrap_or_default(),
                consumer_table: BTreeMap::new(),
            };
            answer_body(command, body.to_wire(), answers);
        }
        request::GET_CONSUMER_RUNNING_INFO => {
            let header: GetConsumerRunningInfoRequest = header(command)?;
            let consumer = core
                .consumers
                .get(header.consumer_group)
                .ok_or_else(|| no_such_group(header.consumer_group))?;
            let mut info = consumer.running_info();
            if header.jstack_enable {
                info.jstack =
                    Some("this client runs tasks, not threads: it has no thread stacks".to_owned());
            }
            answer_body(command, info.to_wire(), answers);
        }
        request::CONSUME_MESSAGE_DIRECTLY => consume_directly(core, command, answers)?,
        request::PUSH_REPLY_MESSAGE_TO_CLIENT => {
            reply_arrived(core, command)?;
            answers.answer(
                command.id(),
                Command::response_to(command, response::SUCCESS),
            );
        }
        _ => answers.unknown_code(command),
    }
    Ok(())
}

fn header<'a, H: minimq_protocol::Header<'a>>(command: &'a Command) -> Result<H, String> {
    command.header().map_err(|error| error.to_string())
}

fn no_such_group(group: &str) -> String {
    format!("The Consumer Group <{group}> not exist in the consumer")
}

fn answer_body(command: &Command, body: Vec<u8>, answers: &mut Answers<'_>) {
    let answer = Command::response_to(command, response::SUCCESS).with_body(body);
    answers.answer(command.id(), answer);
}

fn check_transaction(core: &Arc<Core>, command: &Command, peer: SocketAddr) {
    let message = match MessageView::parse(command.body.clone()) {
        Ok(message) => message,
        Err(error) => {
            tracing::warn!(%peer, %error, "a transaction check carries no message");
            return;
        }
    };
    let properties = message.properties();
    let group = properties.get(name::PGROUP).unwrap_or_default();
    match core.producers.get(group).map(|one| one.value().clone()) {
        Some(producer) => producer.check_transaction(peer.to_string(), command.clone()),
        None => {
            tracing::warn!(%peer, %group, "a transaction check is for a producer group that is not here")
        }
    }
}

fn consume_directly(
    core: &Arc<Core>,
    command: &Command,
    answers: &mut Answers<'_>,
) -> Result<(), String> {
    let header: ConsumeMessageDirectlyResultRequest = header(command)?;
    let message = MessageView::parse(command.body.clone()).map_err(|error| error.to_string())?;
    let consumer = core
        .consumers
        .get(header.consumer_group)
        .map(|one| one.value().clone())
        .ok_or_else(|| no_such_group(header.consumer_group))?;
    let running = consumer.consume_directly(message, header.broker_name.map(str::to_owned));
    let id = command.id();
    let responder = answers.later(id);
    tokio::spawn(async move {
        match running.await {
            Some(result) => {
                responder
                    .respond(Command::response(id, response::SUCCESS).with_body(result.to_wire()));
            }
            None => responder.refuse(
                response::SYSTEM_ERROR,
                "this consumer has no handler: it is polled",
            ),
        }
    });
    Ok(())
}

/// A reply that a broker hands on: rebuilt as a message and given to whoever waits for it.
fn reply_arrived(core: &Arc<Core>, command: &Command) -> Result<(), String> {
    let header: ReplyMessageRequest = header(command)?;
    let mut properties = PropertiesBuf::new();
    properties.push_text(header.properties.unwrap_or_default());
    properties.push(name::ARRIVE_TIME, &now_ms().to_string());
    let Some(correlation) = Properties::new(properties.as_str())
        .get(name::CORRELATION_ID)
        .map(str::to_owned)
    else {
        return Err(format!(
            "a reply without the property {}",
            name::CORRELATION_ID
        ));
    };
    let Some((_, waiting)) = core.replies.remove(&correlation) else {
        tracing::debug!(%correlation, "nobody waits for this reply any more");
        return Ok(());
    };
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    let host = |text: &str| text.trim_start_matches('/').parse().unwrap_or(unspecified);
    let record = RecordFields {
        topic: header.topic,
        queue_id: header.queue_id,
        flag: header.flag,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        born_host: host(header.born_host),
        store_timestamp: header.store_timestamp,
        store_host: host(header.store_host),
        reconsume_times: header.reconsume_times.unwrap_or(0),
        prepared_transaction_offset: 0,
        body_crc: crc::body_crc(&command.body),
        body: &command.body,
        properties: properties.as_str().as_bytes(),
        appended_properties: &[],
    };
    let record: Bytes = record.encode().map_err(|error| error.to_string())?;
    let view = MessageView::parse(record).map_err(|error| error.to_string())?;
    let delivery = Delivery::new(core, view, None, 0, 0).map_err(|error| error.to_string())?;
    // The one who asked may have given up meanwhile.
    let _ = waiting.send(delivery);
    Ok(())
}
