//! Ordered consumption: one message of a queue at a time, the next one only after it is done (client spec 4.14).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use minimq_protocol::body::{ConsumeMessageDirectlyResult, ConsumeMessageResult};
use tokio::time::Instant;

use super::concurrent::panic_text;
use super::engine::{Engine, OrderedHandler};
use super::outcome::OrderedOutcome;
use super::queue::AssignedQueue;
use super::watched::Watched;
use crate::Delivery;
use crate::core::now_ms;
use crate::hooks::HandlerEnd;

/// How soon a queue whose lock ran out is looked at again.
const WAIT_FOR_LOCK: Duration = Duration::from_millis(100);
/// Bounds of the time a queue rests.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(30));

/// Consumes a queue until it is dropped; a handler that runs then finishes.
pub(super) async fn work(engine: Arc<Engine>, queue: Arc<AssignedQueue>, handler: OrderedHandler) {
    while let Some((offset, delivery)) = next(&engine, &queue).await {
        queue.last_consume_ms.store(now_ms(), Ordering::Relaxed);
        let begun = Instant::now();
        let watched = Watched::begin(&engine, &queue, std::slice::from_ref(&delivery));
        let (outcome, end) = match run(&handler, delivery.clone()).await {
            Ok(OrderedOutcome::Done) => (OrderedOutcome::Done, HandlerEnd::Done),
            Ok(outcome) => (outcome, HandlerEnd::Failed),
            Err(panic) => {
                tracing::error!(queue = %queue.queue, group = engine.group, %panic, "the handler panicked; the queue rests");
                (OrderedOutcome::Suspend, HandlerEnd::Panicked)
            }
        };
        watched.end(end);
        let done = usize::from(outcome == OrderedOutcome::Done);
        engine
            .stats
            .consumed(&queue.queue.topic, [done, 1 - done], begun.elapsed());
        let rest = match outcome {
            OrderedOutcome::Done => {
                queue.finish(offset);
                continue;
            }
            OrderedOutcome::Suspend => engine.settings.suspend,
            OrderedOutcome::SuspendFor(rest) => rest,
        };
        if again(&engine, &queue, offset, delivery).await {
            let rest = rest.clamp(REST.0, REST.1);
            queue
                .dropped
                .run_until_cancelled(tokio::time::sleep(rest))
                .await;
        }
    }
}

/// The next message, once the queue is locked and a handler may run; `None` when the queue is dropped.
async fn next(engine: &Engine, queue: &AssignedQueue) -> Option<(i64, Delivery)> {
    let waiting = async {
        loop {
            if !engine.settings.broadcast && !queue.is_locked() {
                tokio::time::sleep(WAIT_FOR_LOCK).await;
                continue;
            }
            if queue.messages.lock().waiting() == 0 {
                queue.arrived.notified().await;
                continue;
            }
            let taken = queue.messages.lock().take(1).into_iter().next();
            if taken.is_some() {
                return taken;
            }
        }
    };
    queue.dropped.run_until_cancelled(waiting).await.flatten()
}

async fn run(handler: &OrderedHandler, delivery: Delivery) -> Result<OrderedOutcome, String> {
    let running = AssertUnwindSafe(async { handler(delivery).await });
    running
        .catch_unwind()
        .await
        .map_err(|panic| panic_text(&*panic))
}

/// Puts a message back to the front, or, tried often enough, into the dead-letter topic. Whether the queue is to rest.
async fn again(
    engine: &Engine,
    queue: &AssignedQueue,
    offset: i64,
    mut delivery: Delivery,
) -> bool {
    if let Some(most) = engine.settings.max_retries
        && delivery.attempts() >= most
        && !engine.settings.broadcast
    {
        match engine
            .send_to_retry_topic(&delivery, delivery.attempts(), None)
            .await
        {
            Ok(()) => {
                queue.finish(offset);
                return false;
            }
            Err(error) => {
                tracing::warn!(id = delivery.id(), %error, "a message cannot be put into the dead-letter topic")
            }
        }
    }
    delivery.local_retries += 1;
    queue.messages.lock().put_back(vec![(offset, delivery)]);
    queue.arrived.notify_one();
    true
}

/// Runs the handler for one message outside of its queue, for a tool.
pub(super) async fn once(
    handler: &OrderedHandler,
    delivery: Delivery,
) -> ConsumeMessageDirectlyResult {
    let begun = Instant::now();
    let (result, remark) = match run(handler, delivery).await {
        Ok(OrderedOutcome::Done) => (ConsumeMessageResult::Success, None),
        Ok(_) => (ConsumeMessageResult::Later, None),
        Err(panic) => (ConsumeMessageResult::ThrowException, Some(panic)),
    };
    ConsumeMessageDirectlyResult {
        auto_commit: true,
        consume_result: Some(result),
        order: true,
        remark,
        spent_time_mills: i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX),
    }
}
