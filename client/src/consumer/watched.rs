//! A run of a handler that hooks watch.

use tokio::time::Instant;

use super::engine::Engine;
use super::queue::AssignedQueue;
use crate::Delivery;
use crate::core::now_ms;
use crate::hooks::{Consuming, HandlerEnd};

/// From the moment before the handler runs; nothing if there are no hooks.
pub(super) struct Watched<'a>(Option<Run<'a>>);

struct Run<'a> {
    engine: &'a Engine,
    queue: &'a AssignedQueue,
    deliveries: Vec<Delivery>,
    id: String,
    begun: Instant,
}

impl<'a> Watched<'a> {
    /// Tells the hooks that the handler is about to run.
    pub(super) fn begin(
        engine: &'a Engine,
        queue: &'a AssignedQueue,
        deliveries: &[Delivery],
    ) -> Self {
        if engine.settings.hooks.is_empty() {
            return Self(None);
        }
        let run = Run {
            engine,
            queue,
            deliveries: deliveries.to_vec(),
            id: engine.core.unique_keys.next(now_ms()),
            begun: Instant::now(),
        };
        for hook in &engine.settings.hooks {
            hook.before(&run.consuming());
        }
        Self(Some(run))
    }

    /// Tells them how it ended.
    pub(super) fn end(self, end: HandlerEnd) {
        let Some(run) = self.0 else { return };
        let elapsed = run.begun.elapsed();
        for hook in &run.engine.settings.hooks {
            hook.after(&run.consuming(), end, elapsed);
        }
    }
}

impl Run<'_> {
    fn consuming(&self) -> Consuming<'_> {
        Consuming {
            group: &self.engine.group,
            queue: &self.queue.queue,
            id: &self.id,
            deliveries: &self.deliveries,
        }
    }
}
