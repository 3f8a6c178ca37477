//! [`MessageStream`]: the messages of a [`PullConsumer`] one by one, each to be acknowledged.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;

use super::polled::PullConsumer;
use super::queue::AssignedQueue;
use crate::Delivery;

/// A message of a stream. Until it is acknowledged the committed offset stays before it; dropped unacknowledged, it is delivered
/// again to whoever has the queue next.
#[derive(Clone)]
pub struct Received {
    delivery: Delivery,
    queue: Arc<AssignedQueue>,
    offset: i64,
}

impl Received {
    /// It is done.
    pub fn ack(self) {
        self.queue.finish(self.offset);
    }

    /// The message alone.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}

impl Deref for Received {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.delivery.fmt(f)
    }
}

/// The messages of a [`PullConsumer`] as a stream; it ends when the consumer is shut down.
pub struct MessageStream {
    consumer: PullConsumer,
    next: Option<BoxFuture<'static, Option<Received>>>,
}

impl MessageStream {
    pub(super) fn new(consumer: PullConsumer) -> Self {
        Self {
            consumer,
            next: None,
        }
    }

    /// The next message; `None` when the consumer was shut down.
    pub async fn next(&mut self) -> Option<Received> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for MessageStream {
    type Item = Received;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        let consumer = self.consumer.clone();
        let next = self
            .next
            .get_or_insert_with(|| Box::pin(next_message(consumer)));
        let result = next.as_mut().poll(cx);
        if result.is_ready() {
            self.next = None;
        }
        result
    }
}

async fn next_message(consumer: PullConsumer) -> Option<Received> {
    loop {
        match consumer.next_within(1, Duration::from_secs(60)).await {
            Ok(Some((queue, taken))) => {
                if let Some((offset, delivery)) = taken.into_iter().next() {
                    return Some(Received {
                        delivery,
                        queue,
                        offset,
                    });
                }
            }
            Ok(None) => {}
            Err(_) => return None,
        }
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream")
            .field("group", &self.consumer.group())
            .finish_non_exhaustive()
    }
}
