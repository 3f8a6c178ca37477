//! All sends of one read: stored under one hold of the append lock, answered together.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use minimq_protocol::code::response;
use minimq_protocol::header::{SendMessageRefusal, SendMessageResponse};
use minimq_protocol::message_id::{MAX_ID_LEN, OffsetId};
use minimq_protocol::{Command, RequestId};
use minimq_remoting::{Answers, DeferredAnswers};
use minimq_store::{
    AppendError, AppendMessage, AppendOutcome, AppendResult, Appended, FlushOutcome, RoomTicket,
    Store,
};

use crate::broker::Broker;
use crate::config::{BrokerConfig, BrokerRole, FlushDiskType};
use crate::request::Refusal;
use crate::stats::{PutCache, ReadTimer, Stored as Counted};

use super::plan::{Plan, Planner};

/// How long a read waits for room in the commit log before its sends are refused.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// Sends of one read, and buffers used again for the next.
#[derive(Debug)]
pub struct Collected {
    commands: Vec<Command>,
    /// Empty between reads, as are `messages`: kept for their memory.
    plans: Vec<Plan<'static>>,
    messages: Vec<AppendMessage<'static>>,
    scratch: Vec<u8>,
    outcomes: Vec<AppendOutcome>,
    counted: PutCache,
    untold: Untold,
}

/// Messages whose dispatch waits until their answers are written; few are then dispatched right here, without another
/// thread. Dropped, it wakes that thread: a connection that ends between storing and answering leaves nothing undispatched.
#[derive(Debug)]
struct Untold {
    store: Arc<Store>,
    any: bool,
}

impl Untold {
    fn tell(&mut self) {
        if std::mem::take(&mut self.any) {
            self.store.dispatch_appended();
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if self.any {
            self.store.log_store().tell_followers();
        }
    }
}

/// Buffers larger than this are not kept.
const KEPT_SCRATCH: usize = 256 * 1024;
/// Lists with room for more messages are not kept.
const KEPT_MESSAGES: usize = 1024;

/// The list's memory for items that borrow from something else: nothing is copied, and nothing allocated.
fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().filter_map(|_| None).collect()
}

impl Collected {
    /// Nothing yet.
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            commands: Vec::new(),
            plans: Vec::new(),
            messages: Vec::new(),
            scratch: Vec::new(),
            outcomes: Vec::new(),
            counted: PutCache::default(),
            untold: Untold { store, any: false },
        }
    }

    /// What was stored is dispatched now, if it was not yet.
    pub fn tell_followers(&mut self) {
        self.untold.tell();
    }

    /// Keeps a send for the end of the read.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Whether the read held no send.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// What a stored send is answered with.
#[derive(Debug)]
struct Stored {
    id: RequestId,
    queue_id: i32,
    queue_offset: i64,
    message_ids: MessageIds,
}

#[derive(Debug)]
enum MessageIds {
    One(OffsetId),
    Many(String),
}

/// Stores and answers what was collected.
pub async fn append_collected(
    broker: &Arc<Broker>,
    collected: &mut Collected,
    timer: &mut ReadTimer,
    answers: &mut Answers<'_>,
) {
    let mut commands = std::mem::take(&mut collected.commands);
    let config = broker.config.to_arc();
    let replying = Replying { config: &config };
    if let Some(refusal) = broker.busy(&config) {
        for command in &commands {
            replying.refuse(answers, command.id(), &refusal);
        }
        return;
    }
    let mut scratch = std::mem::take(&mut collected.scratch);
    let mut outcomes = std::mem::take(&mut collected.outcomes);
    let mut planner = Planner {
        broker,
        config: &config,
        peer: answers.connection().peer(),
        now_ms: broker.clock.now_ms(),
        last_topic: None,
    };
    let changes = broker.registration.changes();
    let mut plans = emptied(std::mem::take(&mut collected.plans));
    for command in &commands {
        match planner.plan(command, &mut scratch) {
            Ok(plan) => plans.push(plan),
            Err(refusal) => replying.refuse(answers, command.id(), &refusal),
        }
    }
    let mut messages = emptied(std::mem::take(&mut collected.messages));
    for plan in &plans {
        planner.messages(plan, &scratch, &mut messages);
    }
    timer.messages(messages.len());
    timer.stage();
    let begun = Instant::now();
    collected.untold.any = true;
    append_all(broker, &messages, &mut outcomes).await;
    let stats = &broker.stats;
    stats.store.put_took(messages.len() as u64, begun.elapsed());
    timer.stage();
    if messages.capacity() <= KEPT_MESSAGES {
        collected.messages = emptied(messages);
    }
    broker.topics.save_what_is_being_made();
    if broker.registration.changes() != changes {
        timer.give_up();
        collected.untold.tell();
        // Who sent the first message of a topic finds the topic in the next route.
        broker.name_servers_told().await;
    }
    count(broker, &mut collected.counted, &plans, &outcomes);

    let waits_for_disk = config.store.flush_disk_type == FlushDiskType::SyncFlush;
    let no_slave = config.store.broker_role == BrokerRole::SyncMaster;
    let mut waiting: Option<Waiting> = None;
    let mut rest = outcomes.as_slice();
    for plan in &plans {
        let (own, behind) = rest.split_at(plan.count.min(rest.len()));
        rest = behind;
        let (stored, end) = match stored(broker, plan.id, plan.answered_queue_id, own) {
            Ok(stored) => stored,
            Err(error) => {
                replying.refuse(answers, plan.id, &broker.append_refusal(&config, &error));
                continue;
            }
        };
        let code = if no_slave && plan.waits {
            response::SLAVE_NOT_AVAILABLE
        } else {
            response::SUCCESS
        };
        if waits_for_disk && plan.waits {
            let waiting = waiting.get_or_insert_with(|| Waiting {
                deferred: answers.deferred(),
                all: Vec::new(),
                end: 0,
            });
            waiting.all.push((code, stored));
            waiting.end = end.max(waiting.end);
        } else {
            replying.stored(&stored, code, |id, code, header| {
                answers.answer_head(id, code, None, Some(header), &[]);
            });
        }
    }
    if let Some(waiting) = waiting {
        waiting.for_disk(broker);
    }
    if plans.capacity() <= KEPT_MESSAGES {
        collected.plans = emptied(plans);
    }
    commands.clear();
    outcomes.clear();
    scratch.clear();
    if commands.capacity() <= KEPT_MESSAGES {
        collected.commands = commands;
    }
    if outcomes.capacity() <= KEPT_MESSAGES {
        collected.outcomes = outcomes;
    }
    if scratch.capacity() <= KEPT_SCRATCH {
        collected.scratch = scratch;
    }
    timer.stage();
}

/// Counts what was stored: sends one after the other to the same queue together.
fn count(broker: &Broker, counted: &mut PutCache, plans: &[Plan<'_>], outcomes: &[AppendOutcome]) {
    let mut run: Option<Counted<'_>> = None;
    let mut rest = outcomes;
    for plan in plans {
        let (own, behind) = rest.split_at(plan.count.min(rest.len()));
        rest = behind;
        let stored = own.iter().flatten();
        let bytes: i64 = stored.clone().map(|result| i64::from(result.size)).sum();
        let messages = stored.count() as i64;
        if messages == 0 {
            continue;
        }
        match &mut run {
            Some(run) if run.topic == plan.topic && run.queue_id == plan.queue_id => {
                run.count += messages;
                run.calls += 1;
                run.bytes += bytes;
            }
            other => {
                let next = Counted {
                    topic: &plan.topic,
                    queue_id: plan.queue_id,
                    count: messages,
                    calls: 1,
                    bytes,
                };
                if let Some(done) = other.replace(next) {
                    counted.count(&broker.stats, &done);
                }
            }
        }
    }
    if let Some(done) = run {
        counted.count(&broker.stats, &done);
    }
}

async fn append_all(
    broker: &Arc<Broker>,
    messages: &[AppendMessage<'_>],
    outcomes: &mut Vec<AppendOutcome>,
) {
    loop {
        let rest = messages.get(outcomes.len()..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        let Appended::Waiting(ticket) = broker.store.log_store().append_untold(rest, outcomes)
        else {
            return;
        };
        if tokio::time::timeout(ROOM_WAIT, room(broker, ticket))
            .await
            .is_err()
        {
            // The store gives up on the same terms, with the path and the reason.
            let rest = messages.get(outcomes.len()..).unwrap_or_default();
            tokio::task::block_in_place(|| broker.store.append_blocking(rest, outcomes));
            return;
        }
    }
}

async fn room(broker: &Arc<Broker>, ticket: RoomTicket) {
    std::future::poll_fn(|cx| {
        if broker.store.log_store().poll_room(ticket, cx.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// The answer to a send all of whose messages are stored, and the end of the last of them in the log.
fn stored(
    broker: &Broker,
    id: RequestId,
    queue_id: i32,
    outcomes: &[AppendOutcome],
) -> Result<(Stored, i64), AppendError> {
    let host = broker.identity.store_host;
    let id_of = |result: &AppendResult| OffsetId {
        host,
        physical_offset: result.physical_offset.get(),
    };
    let mut results = outcomes.iter();
    let first = match results.next() {
        Some(Ok(result)) => result,
        Some(Err(error)) => return Err(error.clone()),
        None => return Err(AppendError::Closed),
    };
    let mut end = first.end();
    let message_ids = if outcomes.len() == 1 {
        MessageIds::One(id_of(first))
    } else {
        let mut text = String::with_capacity(outcomes.len() * (MAX_ID_LEN + 1));
        let mut buffer = [0; MAX_ID_LEN];
        text.push_str(id_of(first).write(&mut buffer));
        for outcome in results {
            let result = outcome.as_ref().map_err(Clone::clone)?;
            end = result.end();
            text.push(',');
            text.push_str(id_of(result).write(&mut buffer));
        }
        MessageIds::Many(text)
    };
    Ok((
        Stored {
            id,
            queue_id,
            queue_offset: first.queue_offset.get(),
            message_ids,
        },
        end.get(),
    ))
}

/// How sends of this broker are answered.
struct Replying<'r> {
    config: &'r BrokerConfig,
}

impl Replying<'_> {
    fn stored(
        &self,
        stored: &Stored,
        code: i32,
        answer: impl FnOnce(RequestId, i32, &SendMessageResponse<'_>),
    ) {
        let mut buffer = [0; MAX_ID_LEN];
        let msg_id = match &stored.message_ids {
            MessageIds::One(id) => id.write(&mut buffer),
            MessageIds::Many(text) => text,
        };
        let header = SendMessageResponse {
            msg_id,
            queue_id: stored.queue_id,
            queue_offset: stored.queue_offset,
            transaction_id: None,
            msg_region: Some(&self.config.broker.region_id),
            trace_on: Some(self.config.broker.trace_on),
        };
        answer(stored.id, code, &header);
    }

    fn refusal_header(&self) -> SendMessageRefusal<'_> {
        SendMessageRefusal {
            msg_region: Some(&self.config.broker.region_id),
            trace_on: Some(self.config.broker.trace_on),
        }
    }

    fn refuse(&self, answers: &mut Answers<'_>, id: RequestId, refusal: &Refusal) {
        let header = self.refusal_header();
        answers.answer_head(id, refusal.code, Some(&refusal.remark), Some(&header), &[]);
    }
}

/// A read's sends that are stored and answered when they are on disk: one waiter, one wake of the connection.
struct Waiting {
    deferred: DeferredAnswers,
    /// Each with its code if the flush is done in time.
    all: Vec<(i32, Stored)>,
    /// End of the last of them in the log.
    end: i64,
}

impl Waiting {
    fn for_disk(self, broker: &Arc<Broker>) {
        let end = minimq_store::PhysicalOffset(self.end);
        let waiter_broker = broker.clone();
        let waiter = move |outcome: FlushOutcome| self.answer(&waiter_broker, &outcome);
        broker.store.wait_flushed(end, Box::new(waiter));
    }

    fn answer(self, broker: &Broker, outcome: &FlushOutcome) {
        let Self {
            mut deferred, all, ..
        } = self;
        let config = broker.config.to_arc();
        let replying = Replying { config: &config };
        for (code, stored) in &all {
            let code = match outcome {
                FlushOutcome::Failed(cause) => {
                    let error = AppendError::Refused(cause.clone());
                    let refusal = broker.append_refusal(&config, &error);
                    let header = replying.refusal_header();
                    let remark = Some(&*refusal.remark);
                    deferred.answer_head(stored.id, refusal.code, remark, Some(&header), &[]);
                    continue;
                }
                // The replica's status wins over the flush's.
                FlushOutcome::TimedOut if *code == response::SUCCESS => {
                    response::FLUSH_DISK_TIMEOUT
                }
                FlushOutcome::TimedOut | FlushOutcome::Flushed => *code,
            };
            replying.stored(stored, code, |id, code, header| {
                deferred.answer_head(id, code, None, Some(header), &[]);
            });
        }
        deferred.send();
    }
}

/// What became of a message the broker stores of itself.
pub(crate) type StoreOutcome = Result<AppendResult, AppendError>;

/// Stores one message, waiting on this thread for room; not for the disk.
pub(crate) fn store_one(broker: &Broker, message: AppendMessage<'_>) -> StoreOutcome {
    let mut outcomes = Vec::with_capacity(1);
    broker.store.append_blocking(&[message], &mut outcomes);
    outcomes.pop().unwrap_or(Err(AppendError::Closed))
}

impl Broker {
    /// Stores messages of the broker's own on a connection's task, which waits for room if it must; not for the disk.
    pub(crate) fn append_here(
        &self,
        messages: &[AppendMessage<'_>],
        outcomes: &mut Vec<AppendOutcome>,
    ) {
        if messages.is_empty() {
            return;
        }
        if let Appended::Waiting(_) = self.store.append(messages, outcomes) {
            let rest = messages.get(outcomes.len()..).unwrap_or_default();
            tokio::task::block_in_place(|| self.store.append_blocking(rest, outcomes));
        }
    }

    /// The refusal of all sends while the append lock is held too long.
    fn busy(&self, config: &BrokerConfig) -> Option<Refusal> {
        let held = self.store.log_store().append_lock_held_ms();
        let busy = held > config.store.os_page_cache_busy_time_out_mills && held < 10_000_000;
        busy.then(|| {
            let remark = format!(
                "[REJECTREQUEST]system busy, start flow control for a while: an append has been running for {held} ms"
            );
            Refusal::new(response::SYSTEM_BUSY, remark)
        })
    }

    /// Code 13 as Java says it.
    pub(crate) fn illegal_message(&self, config: &BrokerConfig) -> Refusal {
        let remark = format!(
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit {}B, msg properties length limit 32KB.",
            config.store.max_message_size
        );
        Refusal::new(response::MESSAGE_ILLEGAL, remark)
    }

    /// Code and remark for a message that was not stored (broker spec 3.6), with the true cause behind.
    pub(crate) fn append_refusal(&self, config: &BrokerConfig, error: &AppendError) -> Refusal {
        match error {
            AppendError::BodyTooLong { .. }
            | AppendError::TopicIllegal { .. }
            | AppendError::PropertiesTooLong { .. }
            | AppendError::PropertiesIllegal { .. }
            | AppendError::LargerThanFile { .. }
            | AppendError::BatchRefused => {
                let Refusal { code, remark } = self.illegal_message(config);
                Refusal::new(code, format!("{remark} ({error})"))
            }
            AppendError::NoNextFile(_) => Refusal::error(format!(
                "create mapped file failed, server is busy or broken. ({error})"
            )),
            AppendError::Refused(_) | AppendError::Closed => Refusal::new(
                response::SERVICE_NOT_AVAILABLE,
                format!("service not available now. {error}"),
            ),
        }
    }
}
