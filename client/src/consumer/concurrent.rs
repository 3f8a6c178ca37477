//! Concurrent consumption: many handlers at a time, messages that failed go back to the broker (client spec 4.11).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// Hands messages of a queue to handlers until the queue is dropped; handlers that run then finish.
pub(super) async fn work(engine: Arc<Engine>, queue: Arc<AssignedQueue>, handler: Handler) {
    let dispatching = async {
        loop {
            let batch = queue.messages.lock().take(engine.settings.handler_batch);
            if batch.is_empty() {
                queue.arrived.notified().await;
                continue;
            }
            // The semaphore is never closed.
            let Ok(permit) = engine.permits.clone().acquire_owned().await else {
                return;
            };
            let (engine, state, handler) = (engine.clone(), queue.clone(), handler.clone());
            queue.spawn(async move {
                consume(&engine, &state, &handler, batch).await;
                drop(permit);
            });
        }
    };
    queue.dropped.run_until_cancelled(dispatching).await;
}

async fn consume(
    engine: &Arc<Engine>,
    queue: &Arc<AssignedQueue>,
    handler: &Handler,
    batch: Vec<(i64, Delivery)>,
) {
    if queue.dropped.is_cancelled() {
        return;
    }
    queue.last_consume_ms.store(now_ms(), Ordering::Relaxed);
    let begun = Instant::now();
    let deliveries: Vec<Delivery> = batch.iter().map(|(_, delivery)| delivery.clone()).collect();
    let watched = Watched::begin(engine, queue, &deliveries);
    let (outcomes, end) = match tokio::time::timeout(
        engine.settings.handler_timeout,
        run(handler, deliveries),
    )
    .await
    {
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
            tracing::warn!(queue = %queue.queue, group = engine.group, "the handler took longer than {:?} and was stopped; the message is delivered again", engine.settings.handler_timeout);
            (Outcomes::All(Outcome::Retry), HandlerEnd::TimedOut)
        }
    };
    watched.end(end);
    settle(engine, queue, batch, &outcomes, begun).await;
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
    begun: Instant,
) {
    let topic = &queue.queue.topic;
    for (index, (offset, mut delivery)) in batch.into_iter().enumerate() {
        let outcome = outcomes.of(index);
        engine
            .stats
            .consumed(topic, outcome == Outcome::Done, begun.elapsed());
        // Given up meanwhile: whoever has the queue now gets the message again.
        if queue.dropped.is_cancelled() && outcome != Outcome::Done {
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
