//! Concurrent consumption: many handlers at a time, messages that failed go back to the broker (client spec 4.11).

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use minimq_protocol::body::{ConsumeMessageDirectlyResult, ConsumeMessageResult};
use tokio::time::Instant;

use super::engine::{Engine, Handler};
use super::outcome::{Outcome, Outcomes};
use super::queue::AssignedQueue;
use super::watched::Watched;
use crate::Delivery;
use crate::core::now_ms;
use crate::hooks::HandlerEnd;

/// A message that could not be sent back is handed to the handler again after so long.
const RETRY_HERE: Duration = Duration::from_secs(5);

/// Runs of a handler for which messages are taken at a time.
const AT_ONCE: usize = 32;
/// A handler that holds its thread up for longer has a task for each run, so that runs are spread over the threads; after
/// `SPREAD` it is looked at again.
const QUICK: Duration = Duration::from_micros(100);
const SPREAD: Duration = Duration::from_millis(100);

/// Hands messages of a queue to handlers until the queue is dropped; handlers that run then finish.
pub(super) async fn work(engine: Arc<Engine>, queue: Arc<AssignedQueue>, handler: Handler) {
    let dispatching = dispatch(&engine, &queue, &handler);
    queue.dropped.run_until_cancelled(dispatching).await;
}

/// Begins each run of the handler here; one that has to wait for something goes on in a task of its own.
async fn dispatch(engine: &Arc<Engine>, queue: &Arc<AssignedQueue>, handler: &Handler) {
    let size = engine.settings.handler_batch;
    let mut spread_until: Option<Instant> = None;
    let mut finished = Finished::default();
    loop {
        let taken = queue.messages.lock().take(size.saturating_mul(AT_ONCE));
        if taken.is_empty() {
            queue.arrived.notified().await;
            continue;
        }
        let mut taken = taken.into_iter();
        loop {
            let batch: Vec<_> = taken.by_ref().take(size).collect();
            if batch.is_empty() {
                break;
            }
            let permit = match engine.permits.clone().try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    finished.tell(engine, queue);
                    // The semaphore is never closed.
                    match engine.permits.clone().acquire_owned().await {
                        Ok(permit) => permit,
                        Err(_) => return,
                    }
                }
            };
            let run = Run {
                engine: engine.clone(),
                queue: queue.clone(),
                handler: handler.clone(),
            };
            let mut consuming = Box::pin(run.consume(batch));
            let begun = Instant::now();
            if spread_until.is_none_or(|until| until <= begun) {
                let ended = poll_fn(|cx| Poll::Ready(consuming.as_mut().poll(cx))).await;
                spread_until = (begun.elapsed() > QUICK).then(|| begun + SPREAD);
                match ended {
                    Poll::Ready(None) => continue,
                    Poll::Ready(Some(ended)) => {
                        finished.add(ended);
                        continue;
                    }
                    Poll::Pending => {}
                }
            }
            let (engine, queue) = (engine.clone(), queue.clone());
            queue.clone().spawn(async move {
                if let Some(ended) = consuming.await {
                    let mut finished = Finished::default();
                    finished.add(ended);
                    finished.tell(&engine, &queue);
                }
                drop(permit);
            });
        }
        finished.tell(engine, queue);
        tokio::task::yield_now().await;
    }
}

/// Messages that need nothing more but to be counted and committed past.
#[derive(Default)]
struct Finished {
    offsets: Vec<i64>,
    took: Duration,
}

impl Finished {
    fn add(&mut self, ended: Ended) {
        self.took += ended.took * u32::try_from(ended.batch.len()).unwrap_or(u32::MAX);
        self.offsets
            .extend(ended.batch.iter().map(|(offset, _)| offset));
    }

    fn tell(&mut self, engine: &Engine, queue: &AssignedQueue) {
        if self.offsets.is_empty() {
            return;
        }
        let took = std::mem::take(&mut self.took);
        engine
            .stats
            .consumed(&queue.queue.topic, [self.offsets.len(), 0], took);
        queue.finish_all(self.offsets.drain(..));
    }
}

/// A handler ran and has done all its messages.
struct Ended {
    batch: Vec<(i64, Delivery)>,
    took: Duration,
}

/// A run of the handler.
struct Run {
    engine: Arc<Engine>,
    queue: Arc<AssignedQueue>,
    handler: Handler,
}

impl Run {
    /// Runs the handler; if not all messages are done they are settled here.
    async fn consume(self, batch: Vec<(i64, Delivery)>) -> Option<Ended> {
        let Self {
            engine,
            queue,
            handler,
        } = &self;
        if queue.dropped.is_cancelled() {
            return None;
        }
        queue.last_consume_ms.store(now_ms(), Ordering::Relaxed);
        let begun = Instant::now();
        let deliveries: Vec<Delivery> = batch.iter().map(|(_, one)| one.clone()).collect();
        let watched = Watched::begin(engine, queue, &deliveries);
        let time = engine.settings.handler_timeout;
        let (outcomes, end) = match tokio::time::timeout(time, run(handler, deliveries)).await {
            Ok(Ok(outcomes)) => {
                let done = (0..batch.len()).all(|index| outcomes.of(index) == Outcome::Done);
                let end = if done {
                    HandlerEnd::Done
                } else {
                    HandlerEnd::Failed
                };
                (outcomes, end)
            }
            Ok(Err(panic)) => {
                tracing::error!(queue = %queue.queue, group = engine.group, %panic, "the handler panicked; the message is delivered again");
                (Outcomes::All(Outcome::Retry), HandlerEnd::Panicked)
            }
            Err(_) => {
                tracing::warn!(queue = %queue.queue, group = engine.group, "the handler took longer than {time:?} and was stopped; the message is delivered again");
                (Outcomes::All(Outcome::Retry), HandlerEnd::TimedOut)
            }
        };
        watched.end(end);
        let took = begun.elapsed();
        if end == HandlerEnd::Done {
            return Some(Ended { batch, took });
        }
        settle(engine, queue, batch, &outcomes, took).await;
        None
    }
}

/// Runs a handler; a panic becomes its text.
async fn run(handler: &Handler, deliveries: Vec<Delivery>) -> Result<Outcomes, String> {
    // Called inside, so that a panic before the first await is caught too.
    let running = AssertUnwindSafe(async { handler(deliveries).await });
    running
        .catch_unwind()
        .await
        .map_err(|panic| panic_text(&*panic))
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned())
}

/// Finishes what is done, sends back what is not.
async fn settle(
    engine: &Arc<Engine>,
    queue: &Arc<AssignedQueue>,
    batch: Vec<(i64, Delivery)>,
    outcomes: &Outcomes,
    took: Duration,
) {
    let topic = &queue.queue.topic;
    for (index, (offset, mut delivery)) in batch.into_iter().enumerate() {
        let outcome = outcomes.of(index);
        let done = outcome == Outcome::Done;
        engine
            .stats
            .consumed(topic, [usize::from(done), usize::from(!done)], took);
        // Given up meanwhile: whoever has the queue now gets the message again.
        if queue.dropped.is_cancelled() && !done {
            continue;
        }
        let Some(level) = outcome.level() else {
            queue.finish(offset);
            continue;
        };
        if engine.settings.broadcast {
            tracing::warn!(
                id = delivery.id(),
                "a broadcast message that failed is not delivered again"
            );
            queue.finish(offset);
            continue;
        }
        match engine.send_back(&delivery, level).await {
            Ok(()) => queue.finish(offset),
            Err(error) => {
                tracing::warn!(id = delivery.id(), %error, "a message cannot be sent back; it is tried again here in {RETRY_HERE:?}");
                delivery.local_retries += 1;
                let state = queue.clone();
                let dropped = queue.dropped.clone();
                queue.spawn(async move {
                    let later = async {
                        tokio::time::sleep(RETRY_HERE).await;
                        state.messages.lock().put_back(vec![(offset, delivery)]);
                        state.arrived.notify_one();
                    };
                    dropped.run_until_cancelled(later).await;
                });
            }
        }
    }
}

/// Runs the handler for one message outside of its queue, for a tool.
pub(super) async fn once(handler: &Handler, delivery: Delivery) -> ConsumeMessageDirectlyResult {
    let begun = Instant::now();
    let (result, remark) = match run(handler, vec![delivery]).await {
        Ok(outcomes) if outcomes.of(0) == Outcome::Done => (ConsumeMessageResult::Success, None),
        Ok(_) => (ConsumeMessageResult::Later, None),
        Err(panic) => (ConsumeMessageResult::ThrowException, Some(panic)),
    };
    ConsumeMessageDirectlyResult {
        auto_commit: true,
        consume_result: Some(result),
        order: false,
        remark,
        spent_time_mills: i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX),
    }
}
