//! Batches made by size, number and time: each message is encoded straight into the open batch of its topic, and its sender
//! waits for what the whole batch comes to.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use minimq_protocol::batch::{BATCH_RECORD_OVERHEAD, BatchRecord};
use minimq_protocol::message_id::MAX_ID_LEN;
use minimq_protocol::name;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, TryAcquireError};
use tokio::time::Instant;

use super::batch::Batching;
use super::send::{Outgoing, Target, acquire};
use super::usual::{Key, PROPERTIES, UsualSend};
use super::{SendReceipt, Shared};
use crate::core::now_ms;
use crate::error::{Error, Result};
use crate::message::Message;

/// So many buffers are kept at most.
const SPARE: usize = 64;

/// The open batches of a producer.
pub(super) struct Batcher {
    batching: Batching,
    open: Mutex<Open>,
    /// How many more messages may wait in batches that are not in flight.
    room: Semaphore,
    /// A batch has been opened while none was.
    opened: Notify,
    /// Buffers of batches that are stored, for the next ones.
    spare: Mutex<Vec<BytesMut>>,
}

#[derive(Default)]
struct Open {
    topics: HashMap<String, Topic>,
    /// The task that looks for batches whose time has come sleeps no longer than to the end of the first one's.
    watched: bool,
    closed: bool,
}

/// What is collected for a topic.
struct Topic {
    /// With the client's namespace.
    name: String,
    /// Of messages that do not wait for flush and replication, and of those that do.
    batches: [Option<Batch>; 2],
    /// Messages of the batch before.
    usual: [usize; 2],
}

/// An open batch.
struct Batch {
    due: Instant,
    /// The only message so far: alone it goes as it is.
    alone: Option<(Message, Key)>,
    records: BytesMut,
    /// Unique keys joined by `,`.
    keys: String,
    count: usize,
    bytes: usize,
    end: Arc<End>,
}

/// A batch that takes no more messages.
struct Full {
    topic: String,
    waits: bool,
    batch: Batch,
}

/// What a batch comes to, and who waits for that.
struct End {
    result: OnceLock<Result<Parts>>,
    /// By place in the batch.
    waiting: Mutex<Vec<Option<Waker>>>,
}

/// A receipt for several messages.
struct Parts {
    all: SendReceipt,
    /// Where each id ends in the joined ones.
    ids: Vec<usize>,
    offset_ids: Vec<usize>,
}

/// The place of a message in a batch.
struct Place {
    end: Arc<End>,
    index: usize,
}

/// Starts the task that looks for batches whose time has come; it ends with the producer.
pub(super) fn start(shared: &Arc<Shared>) {
    if shared.batcher.is_some() {
        let watching = shared.ending.clone();
        let watching = watching.run_until_cancelled_owned(watch(shared.clone()));
        shared.batching.spawn(async move {
            watching.await;
        });
    }
}

/// Sends what is collected; nothing more is taken.
pub(super) fn end(shared: &Arc<Shared>) {
    shared.ending.cancel();
    if let Some(batcher) = &shared.batcher {
        let full = {
            let mut open = batcher.open.lock();
            open.closed = true;
            open.take(|_| true)
        };
        batcher.room.close();
        full.into_iter().for_each(|full| dispatch(shared, full));
    }
}

/// Puts a message into the open batch of its topic and waits for its receipt; does nothing before it is polled.
pub(super) struct BatchedSend<'p> {
    shared: &'p Arc<Shared>,
    state: State<'p>,
}

enum State<'p> {
    Begin(Message),
    /// Too many messages wait for their batches.
    Crowded(Message, BoxFuture<'p, Result<()>>),
    Waiting(Place),
    /// Without a batch.
    Alone(Box<UsualSend<'p>>),
    Failed(Box<Error>),
    Over,
}

impl<'p> BatchedSend<'p> {
    pub(super) fn new(shared: &'p Arc<Shared>, message: Message) -> Self {
        Self {
            shared,
            state: State::Begin(message),
        }
    }

    fn begin(&self, message: Message) -> State<'p> {
        let shared = self.shared;
        let batcher = match &shared.batcher {
            Some(batcher) if message.may_be_batched() => batcher,
            _ => return State::Alone(Box::new(UsualSend::new(shared, message))),
        };
        match batcher.room.try_acquire() {
            Ok(room) => {
                room.forget();
                self.put(message)
            }
            Err(TryAcquireError::Closed) => State::Failed(Box::new(Error::Closed)),
            Err(TryAcquireError::NoPermits) => {
                State::Crowded(message, Box::pin(batcher.wait_for_room(shared)))
            }
        }
    }

    /// There is room.
    fn put(&self, message: Message) -> State<'p> {
        let Some(batcher) = &self.shared.batcher else {
            return State::Failed(Box::new(Error::Closed));
        };
        match batcher.put(self.shared, message) {
            Ok(place) => State::Waiting(place),
            Err(error) => {
                batcher.room.add_permits(1);
                State::Failed(Box::new(error))
            }
        }
    }
}

impl Future for BatchedSend<'_> {
    type Output = Result<SendReceipt>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let room = match &mut self.state {
                State::Begin(_) => Ok(()),
                State::Crowded(_, waiting) => ready!(waiting.as_mut().poll(cx)),
                State::Waiting(place) => return place.poll(cx),
                State::Alone(send) => return Pin::new(send).poll(cx),
                State::Failed(_) => Ok(()),
                // Polled again after its end.
                State::Over => return Poll::Pending,
            };
            self.state = match (std::mem::replace(&mut self.state, State::Over), room) {
                (State::Failed(error), _) => return Poll::Ready(Err(*error)),
                (_, Err(error)) => return Poll::Ready(Err(error)),
                (State::Begin(message), _) => self.begin(message),
                (State::Crowded(message, _), _) => self.put(message),
                (other, _) => other,
            };
        }
    }
}

impl Batcher {
    /// `most`: sends in flight. As many messages wait at most, or two batches.
    pub(super) fn new(batching: Batching, most: usize) -> Self {
        let room = batching.max_messages.saturating_mul(2).max(most);
        Self {
            batching,
            open: Mutex::default(),
            room: Semaphore::new(room.min(Semaphore::MAX_PERMITS)),
            opened: Notify::new(),
            spare: Mutex::default(),
        }
    }

    /// The buffer of a batch that nobody reads any more.
    fn give_back(&self, records: Bytes) {
        if let Ok(mut records) = records.try_into_mut() {
            records.clear();
            let mut spare = self.spare.lock();
            if spare.len() < SPARE {
                spare.push(records);
            }
        }
    }

    async fn wait_for_room(&self, shared: &Arc<Shared>) -> Result<()> {
        // Nobody can join the open batches.
        let full = self.open.lock().take(|_| true);
        full.into_iter().for_each(|full| dispatch(shared, full));
        let what = || "no batch left that made room for another message".to_owned();
        let room = acquire(&self.room, shared.settings.timeout, what).await?;
        room.forget();
        Ok(())
    }

    /// Puts a message into its batch; what is full by that is sent.
    fn put(&self, shared: &Arc<Shared>, mut message: Message) -> Result<Place> {
        // What is wrong with one message must not fail the others of its batch.
        message.check_content(shared.settings.max_message_size)?;
        shared.reserve_instance(&mut message);
        let key = Key::new(shared, now_ms());
        PROPERTIES.with_borrow_mut(|properties| {
            properties.clear();
            message.put_properties(properties, key.as_str())?;
            let mut full = [None, None];
            let place = self.put_with(shared, message, key, properties.as_str(), &mut full);
            let full = full.into_iter().flatten();
            full.for_each(|full| dispatch(shared, full));
            place
        })
    }

    /// As [`put`](Self::put), with its properties text; `full` gets what is full because of it.
    fn put_with(
        &self,
        shared: &Shared,
        message: Message,
        key: Key,
        properties: &str,
        full: &mut [Option<Full>; 2],
    ) -> Result<Place> {
        let Batching {
            max_bytes,
            max_messages,
            linger,
        } = self.batching;
        let len = BATCH_RECORD_OVERHEAD + message.body.len() + properties.len();
        let waits = message.waits();
        let mut open = self.open.lock();
        if open.closed {
            return Err(Error::Closed);
        }
        let [before, after] = full;
        let topic = open.topic(shared, &message.topic)?;
        if topic
            .batch(waits)
            .is_some_and(|batch| batch.bytes + len > max_bytes)
        {
            *before = topic.take(waits);
        }
        let batch = &mut topic.batches[usize::from(waits)];
        let batch = batch.get_or_insert_with(|| {
            let records = self.spare.lock().pop().unwrap_or_default();
            Batch::new(linger, records, topic.usual[usize::from(waits)])
        });
        let place = batch.put(message, key, properties, len, max_bytes)?;
        if batch.count >= max_messages || batch.bytes >= max_bytes {
            *after = topic.take(waits);
        } else if !open.watched {
            open.watched = true;
            self.opened.notify_one();
        }
        Ok(place)
    }
}

impl Open {
    fn topic(&mut self, shared: &Shared, name: &str) -> Result<&mut Topic> {
        if !self.topics.contains_key(name) {
            let topic = Topic::new(shared, name)?;
            self.topics.insert(name.to_owned(), topic);
        }
        self.topics.get_mut(name).ok_or(Error::Closed)
    }

    /// Closes the batches of which `which` holds.
    fn take(&mut self, which: impl Fn(&Batch) -> bool) -> Vec<Full> {
        let mut full = Vec::new();
        for topic in self.topics.values_mut() {
            for waits in [false, true] {
                if topic.batch(waits).is_some_and(&which) {
                    full.extend(topic.take(waits));
                }
            }
        }
        full
    }

    /// When the first of the batches is due.
    fn due(&self) -> Option<Instant> {
        let batches = self
            .topics
            .values()
            .flat_map(|topic| topic.batches.iter().flatten());
        batches.map(|batch| batch.due).min()
    }
}

impl Topic {
    fn new(shared: &Shared, topic: &str) -> Result<Self> {
        name::check_topic(topic)?;
        let name = shared.core.wrap(topic);
        name::check_send_allowed(&name)?;
        Ok(Self {
            name,
            batches: [None, None],
            usual: [0; 2],
        })
    }

    fn batch(&self, waits: bool) -> Option<&Batch> {
        self.batches[usize::from(waits)].as_ref()
    }

    /// The open batch takes no more.
    fn take(&mut self, waits: bool) -> Option<Full> {
        // Empty if its first message could not be encoded.
        let batch = self.batches[usize::from(waits)].take();
        let batch = batch.filter(|batch| batch.count > 0)?;
        self.usual[usize::from(waits)] = batch.count;
        Some(Full {
            topic: self.name.clone(),
            waits,
            batch,
        })
    }
}

impl Batch {
    /// `usual`: as many messages as are likely to come.
    fn new(linger: Duration, records: BytesMut, usual: usize) -> Self {
        let now = Instant::now();
        Self {
            // As good as never.
            due: now
                .checked_add(linger)
                .unwrap_or(now + Duration::from_secs(1 << 30)),
            alone: None,
            records,
            keys: String::with_capacity(usual * (MAX_ID_LEN + 1)),
            count: 0,
            bytes: 0,
            end: Arc::new(End {
                result: OnceLock::new(),
                waiting: Mutex::new(Vec::with_capacity(usual)),
            }),
        }
    }

    /// Puts in a message of so many bytes as a record.
    fn put(
        &mut self,
        message: Message,
        key: Key,
        properties: &str,
        len: usize,
        max_bytes: usize,
    ) -> Result<Place> {
        // One that fills the batch goes alone, and needs no record.
        if len < max_bytes {
            let record = BatchRecord {
                flag: message.flag,
                body: &message.body,
                properties: properties.as_bytes(),
            };
            record
                .encode(&mut self.records)
                .map_err(|error| Error::Message {
                    topic: message.topic.clone(),
                    reason: error.to_string(),
                })?;
            if self.count > 0 {
                self.keys.push(',');
            }
            self.keys.push_str(key.as_str());
        }
        self.alone = (self.count == 0).then_some((message, key));
        self.count += 1;
        self.bytes += len;
        Ok(Place {
            end: self.end.clone(),
            index: self.count - 1,
        })
    }
}

/// Sends batches whose time has come.
async fn watch(shared: Arc<Shared>) {
    let Some(batcher) = &shared.batcher else {
        return;
    };
    loop {
        let (full, next) = {
            let mut open = batcher.open.lock();
            let now = Instant::now();
            let full = open.take(|batch| batch.due <= now);
            let next = open.due();
            open.watched = next.is_some();
            (full, next)
        };
        full.into_iter().for_each(|full| dispatch(&shared, full));
        match next {
            Some(due) => tokio::time::sleep_until(due).await,
            None => {
                batcher.spare.lock().clear();
                batcher.opened.notified().await;
            }
        }
    }
}

/// Sends a batch, in the background: whoever gave up waiting for a receipt does not stop the message.
fn dispatch(shared: &Arc<Shared>, full: Full) {
    let sending = send_full(shared.clone(), full);
    shared.batching.spawn_on(sending, &shared.core.runtime);
}

async fn send_full(shared: Arc<Shared>, full: Full) {
    let Full {
        topic,
        waits,
        batch,
    } = full;
    // Told even if a hook panics or the runtime ends.
    let ending = Ending(batch.end);
    let (begun, timeout) = (Instant::now(), shared.settings.timeout);
    let permit = shared.permit(timeout).await;
    if let Some(batcher) = &shared.batcher {
        batcher.room.add_permits(batch.count);
    }
    let outgoing = permit.and_then(|permit| {
        let outgoing = match batch.alone {
            Some((message, key)) => Outgoing::with_key(&shared, message, key.as_str().to_owned())?,
            None => Outgoing::records(topic, waits, batch.records.freeze(), batch.keys),
        };
        Ok((permit, outgoing))
    });
    let result = match outgoing {
        Ok((_permit, outgoing)) => {
            let sending = shared.send_begun(&outgoing, Target::Any, begun, timeout);
            let result = sending.await;
            if let (Some(batcher), true) = (&shared.batcher, outgoing.batch) {
                batcher.give_back(outgoing.body);
            }
            result
        }
        Err(error) => Err(error),
    };
    ending.tell(result.map(|all| Parts::new(all, batch.count)));
}

impl Parts {
    fn new(all: SendReceipt, count: usize) -> Self {
        let ends = |joined: &str| {
            let mut ends: Vec<_> = joined.match_indices(',').map(|(at, _)| at).collect();
            ends.push(joined.len());
            ends
        };
        match count {
            1 => Self {
                all,
                ids: Vec::new(),
                offset_ids: Vec::new(),
            },
            _ => Self {
                ids: ends(&all.id),
                offset_ids: ends(&all.offset_id),
                all,
            },
        }
    }

    /// The receipt of one of the messages.
    fn receipt(&self, index: usize) -> SendReceipt {
        if self.ids.is_empty() {
            return self.all.clone();
        }
        SendReceipt {
            status: self.all.status,
            id: part(&self.all.id, &self.ids, index).to_owned(),
            offset_id: part(&self.all.offset_id, &self.offset_ids, index).to_owned(),
            queue: self.all.queue.clone(),
            queue_offset: self
                .all
                .queue_offset
                .saturating_add(i64::try_from(index).unwrap_or(i64::MAX)),
            transaction_id: self.all.transaction_id.clone(),
        }
    }
}

/// Part number `index` of a joined text whose parts end at `ends`; empty if there are not so many.
fn part<'a>(joined: &'a str, ends: &[usize], index: usize) -> &'a str {
    let begin = match index.checked_sub(1) {
        Some(before) => ends.get(before).map(|end| end + 1),
        None => Some(0),
    };
    let part = begin
        .zip(ends.get(index))
        .and_then(|(begin, end)| joined.get(begin..*end));
    part.unwrap_or_default()
}

impl Place {
    fn receipt(&self) -> Option<Result<SendReceipt>> {
        match self.end.result.get()? {
            Ok(parts) => Some(Ok(parts.receipt(self.index))),
            Err(error) => Some(Err(error.clone())),
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<SendReceipt>> {
        if let Some(receipt) = self.receipt() {
            return Poll::Ready(receipt);
        }
        let mut waiting = self.end.waiting.lock();
        // It may have come before the lock.
        if let Some(receipt) = self.receipt() {
            return Poll::Ready(receipt);
        }
        if waiting.len() <= self.index {
            waiting.resize(self.index + 1, None);
        }
        if let Some(waker) = waiting.get_mut(self.index) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Tells those who wait for a batch what it came to.
struct Ending(Arc<End>);

impl Ending {
    fn tell(&self, result: Result<Parts>) {
        if self.0.result.set(result).is_err() {
            return;
        }
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.result.get().is_none() {
            self.tell(Err(Error::Closed));
        }
    }
}
