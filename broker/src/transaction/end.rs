//! A producer ends its transactions: code 37 (broker spec 8.2). All of one read are done together: their messages
//! are stored under one hold of the append lock, then the op messages of those that were.

use std::sync::Arc;

use minimq_protocol::code::response;
use minimq_protocol::header::{EndTransactionRequest, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};
use minimq_protocol::message::MessageView;
use minimq_protocol::properties::name as property;
use minimq_protocol::sys_flag::message as message_flag;
use minimq_protocol::{Command, NoHeader, name};
use minimq_remoting::Answers;
use minimq_store::{AppendError, AppendMessage, Blocking, PhysicalOffset, ReadError};

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::request::Refusal;

use super::half;

/// Ends of transactions of one read.
#[derive(Debug, Default)]
pub struct Ends {
    commands: Vec<Command>,
}

impl Ends {
    /// Keeps one for the end of the read.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Whether the read held none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// A half message that is to be ended.
struct End {
    half: MessageView,
    commit: bool,
    /// Texts of the message to be stored, if it is a commit.
    properties: Vec<u8>,
    /// Where it goes: its own topic, or that of delayed messages.
    topic: String,
    queue_id: i32,
}

/// Does and answers what was collected. Waits for room on this thread, as sends of the broker's own do.
pub fn end_collected(broker: &Arc<Broker>, ends: &mut Ends, answers: &mut Answers<'_>) {
    let commands = std::mem::take(&mut ends.commands);
    let config = broker.config.to_arc();
    let mut planned: Vec<(&Command, End)> = Vec::with_capacity(commands.len());
    for command in &commands {
        match plan(broker, &config, command) {
            Ok(Some(end)) => planned.push((command, end)),
            // Not decided: there is nothing to do and nothing to answer.
            Ok(None) => {}
            Err(refusal) => answers.refuse(command.id(), refusal.code, &refusal.remark),
        }
    }
    if planned.is_empty() {
        return;
    }
    let refused = store(broker, &config, &planned);
    for ((command, end), refused) in planned.iter().zip(refused) {
        match refused {
            Some(refusal) => answers.refuse(command.id(), refusal.code, &refusal.remark),
            None => {
                let remark = (!end.commit).then_some("not set any response code");
                let id = command.id();
                answers.answer_head(id, response::SUCCESS, remark, None::<&NoHeader>, &[]);
            }
        }
    }
}

fn plan(broker: &Broker, config: &BrokerConfig, command: &Command) -> Result<Option<End>, Refusal> {
    let header: EndTransactionRequest<'_> = command.header()?;
    if config.is_slave() {
        let remark = "Message store is slave mode, so end transaction is forbidden. ";
        return Err(Refusal::new(response::SLAVE_NOT_AVAILABLE, remark));
    }
    let commit = match header.commit_or_rollback {
        TRANSACTION_COMMIT => true,
        TRANSACTION_ROLLBACK => false,
        _ => return Ok(None),
    };
    let half = read(broker, header.commit_log_offset)?;
    let properties = half.properties();
    if properties.get(property::PGROUP).unwrap_or_default() != header.producer_group {
        return Err(Refusal::error("The producer group wrong"));
    }
    if half.queue_offset() != header.tran_state_table_offset {
        return Err(Refusal::error("The transaction state table offset wrong"));
    }
    if half.physical_offset() != header.commit_log_offset {
        return Err(Refusal::error("The commit log offset wrong"));
    }
    let mut end = End {
        commit,
        properties: Vec::new(),
        topic: String::new(),
        queue_id: 0,
        half,
    };
    if commit {
        end.plan_commit(broker)?;
    }
    Ok(Some(end))
}

/// The half message at a place of the log. One that lies elsewhere than among half messages is none.
fn read(broker: &Broker, at: i64) -> Result<MessageView, Refusal> {
    let missing = || Refusal::error("Find prepared transaction message failed");
    let reader = broker.store.reader();
    let record = match reader.record(PhysicalOffset(at), Blocking::Refused) {
        Err(ReadError::WouldBlock) => {
            tokio::task::block_in_place(|| reader.record(PhysicalOffset(at), Blocking::Allowed))
        }
        read => read,
    };
    let record = record.map_err(|error| {
        Refusal::error(format!("Find prepared transaction message failed: {error}"))
    })?;
    let half = MessageView::parse(record.ok_or_else(missing)?).map_err(|_| missing())?;
    if half.topic() != name::TRANS_HALF_TOPIC {
        return Err(missing());
    }
    Ok(half)
}

impl End {
    /// The message is stored under its own topic; a delay level counts from now on.
    fn plan_commit(&mut self, broker: &Broker) -> Result<(), Refusal> {
        let properties = self.half.properties();
        let (topic, queue_id) = half::real_queue(properties).ok_or_else(|| {
            Refusal::error("the half message names no topic and queue it is meant for")
        })?;
        let level = half::number(properties, property::DELAY).unwrap_or(0);
        (self.topic, self.queue_id) = (topic.to_owned(), queue_id);
        if level <= 0 {
            self.properties = properties.as_bytes().to_vec();
            return Ok(());
        }
        let level = i32::try_from(level)
            .unwrap_or(i32::MAX)
            .min(broker.delay_levels.max_level());
        let text = level.to_string();
        let delayed = half::with(properties, &[(property::DELAY, &text)]);
        self.properties = delayed.into_string().into_bytes();
        (self.topic, self.queue_id) = (name::SCHEDULE_TOPIC.to_owned(), level - 1);
        Ok(())
    }

    fn message(&self) -> AppendMessage<'_> {
        AppendMessage {
            sys_flag: message_flag::with_transaction(
                self.half.sys_flag(),
                message_flag::TRANSACTION_COMMIT,
            ),
            prepared_transaction_offset: self.half.physical_offset(),
            ..half::copy(&self.half, &self.topic, self.queue_id, &self.properties)
        }
    }
}

/// Stores the commits, then the op messages of all that succeeded. Gives the refusal of each that did not.
fn store(
    broker: &Arc<Broker>,
    config: &BrokerConfig,
    planned: &[(&Command, End)],
) -> Vec<Option<Refusal>> {
    let commits: Vec<AppendMessage<'_>> = planned
        .iter()
        .filter(|(_, end)| end.commit)
        .map(|(_, end)| end.message())
        .collect();
    let mut outcomes = Vec::with_capacity(commits.len());
    broker.append_here(&commits, &mut outcomes);
    broker.stats.stored_by_broker(&commits, &outcomes);
    let mut outcomes = outcomes.into_iter();
    let refused: Vec<Option<Refusal>> = planned
        .iter()
        .map(|(_, end)| {
            if !end.commit {
                return None;
            }
            let outcome = outcomes.next().unwrap_or(Err(AppendError::Closed));
            outcome
                .err()
                .map(|error| broker.append_refusal(config, &error))
        })
        .collect();

    let properties = half::op_properties();
    let now_ms = broker.clock.now_ms();
    let done: Vec<(String, i32)> = planned
        .iter()
        .zip(&refused)
        .filter(|(_, refused)| refused.is_none())
        .map(|((_, end), _)| (end.half.queue_offset().to_string(), end.half.queue_id()))
        .collect();
    let ops: Vec<AppendMessage<'_>> = done
        .iter()
        .map(|(body, queue_id)| {
            half::op(
                body,
                *queue_id,
                now_ms,
                broker.identity.store_host,
                &properties,
            )
        })
        .collect();
    let mut outcomes = Vec::with_capacity(ops.len());
    broker.append_here(&ops, &mut outcomes);
    for ((body, _), error) in done
        .iter()
        .zip(outcomes)
        .filter_map(|(d, o)| Some((d, o.err()?)))
    {
        tracing::error!(
            half = body.as_str(), %error,
            "an ended transaction could not be marked as such: its producer will be asked again"
        );
    }
    refused
}
