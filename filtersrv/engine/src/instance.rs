//! One sandbox of one filter, and messages run through it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minimq_protocol::message::MessageView;
use wasmtime::{AsContextMut, Store, Trap, TypedFunc, UpdateDeadline};

use crate::abi;
use crate::budget::Share;
use crate::engine::Filter;
use crate::host::{Aborted, Host};
use crate::ticker::Running;
use crate::time_limit::TimeLimit;

/// For whom a filter runs; a module can ask for each part.
#[derive(Debug, Clone, Default)]
pub struct FilterContext {
    /// Topic of the subscription (the guest is told the message's own).
    pub topic: Arc<str>,
    /// Consumer group.
    pub group: Arc<str>,
    /// Class name of the subscription.
    pub class_name: Arc<str>,
}

/// Why no instance could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// As many as may be are alive.
    #[error("{0} filter instances run already, that is the limit")]
    TooMany(usize),
    /// The start function or `init` failed, or the memory does not fit.
    #[error("{0}")]
    Start(Failure),
}

/// Why a filter gave no verdict on a message. The instance must be thrown away unless
/// it is [`Failure::Guest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The guest answered with its own error.
    #[error("the filter answered its own error {0}")]
    Guest(i32),
    /// The time for a message, or for starting, is used up.
    #[error("the filter took longer than {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The guest called `abort`, with its text.
    #[error("the filter aborted: {0}")]
    Aborted(String),
    /// The guest trapped.
    #[error("the filter trapped: {0}")]
    Trapped(String),
}

/// One sandbox. Runs one message at a time.
pub struct Instance {
    store: Store<Host>,
    filter: TypedFunc<(), i32>,
    origin: Arc<Filter>,
    spent: bool,
}

impl Instance {
    pub(crate) fn start(
        origin: &Arc<Filter>,
        context: FilterContext,
    ) -> Result<Self, InstanceError> {
        let engine = &origin.engine;
        let share = Share::take(&engine.budget)
            .ok_or_else(|| InstanceError::TooMany(engine.budget.max_instances()))?;
        let limit = engine.config.start_timeout;
        let failed = |error: wasmtime::Error| InstanceError::Start(failure(&error, limit));
        let host = Host::new(context, origin.log_limit.clone(), share, &engine.config);
        let mut store = Store::new(&engine.wasm, host);
        store.limiter(|host| &mut host.limits);
        store.epoch_deadline_callback(|mut store| {
            let more = store.data_mut().time.look();
            Ok(more.map_or(UpdateDeadline::Interrupt, UpdateDeadline::Continue))
        });
        let ticks = store.data_mut().time.begin_call();
        store.set_epoch_deadline(ticks);
        let _running = engine.ticker.run();
        let instance = origin.prepared.instantiate(&mut store).map_err(failed)?;
        store.data_mut().memory = instance.get_memory(&mut store, abi::MEMORY);
        let filter = instance
            .get_typed_func::<(), i32>(&mut store, abi::FILTER)
            .map_err(failed)?;
        if let Some(init) = instance.get_func(&mut store, abi::INIT) {
            let init = init.typed::<(), i32>(&store).map_err(failed)?;
            let answer = init.call(&mut store, ()).map_err(failed)?;
            if answer < 0 {
                return Err(InstanceError::Start(Failure::Guest(answer)));
            }
        }
        Ok(Self {
            store,
            filter,
            origin: origin.clone(),
            spent: false,
        })
    }

    /// The filter it runs.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.origin
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> usize {
        self.store.data().limits.share.memory()
    }

    /// Whether it must be replaced before the next message: it failed, or its memory has
    /// grown past half the limit.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Begins a run of messages; the clock for their time limits goes while it lives.
    pub fn batch(&mut self) -> Batch<'_> {
        let limit = self.origin.engine.config.message_timeout;
        self.batch_within(limit)
    }

    /// As [`Instance::batch`], with another time limit for each message.
    pub fn batch_within(&mut self, limit: Duration) -> Batch<'_> {
        let running = self.origin.engine.ticker.run();
        self.store.data_mut().time = TimeLimit::begin(limit);
        Batch {
            instance: self,
            limit,
            _running: running,
            _thread: PhantomData,
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("filter", &self.origin)
            .field("memory", &self.memory())
            .field("spent", &self.spent)
            .finish()
    }
}

/// A run of messages through one instance.
#[derive(Debug)]
pub struct Batch<'i> {
    instance: &'i mut Instance,
    limit: Duration,
    _running: Running,
    /// Its time is that of the thread it began on.
    _thread: PhantomData<*const ()>,
}

impl Batch<'_> {
    /// Whether the message is kept. Check [`Batch::is_spent`] before the next one.
    pub fn run(&mut self, message: &MessageView<Bytes>) -> Result<bool, Failure> {
        let instance = &mut *self.instance;
        let config = &instance.origin.engine.config;
        let ticks = instance.store.data_mut().time.begin_call();
        instance.store.set_epoch_deadline(ticks);
        instance.store.data_mut().begin(message);
        let answer = instance.filter.call(instance.store.as_context_mut(), ());
        let host = instance.store.data_mut();
        host.end();
        match answer {
            Ok(answer) => {
                instance.spent |= host.limits.share.memory() > config.max_memory / 2;
                match answer {
                    0 => Ok(false),
                    1.. => Ok(true),
                    own => Err(Failure::Guest(own)),
                }
            }
            Err(error) => {
                instance.spent = true;
                Err(failure(&error, self.limit))
            }
        }
    }

    /// As [`Instance::is_spent`].
    pub fn is_spent(&self) -> bool {
        self.instance.spent
    }
}

fn failure(error: &wasmtime::Error, limit: Duration) -> Failure {
    if let Some(Aborted(text)) = error.downcast_ref::<Aborted>() {
        return Failure::Aborted(text.clone());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Failure::TimedOut(limit),
        Some(trap) => Failure::Trapped(trap.to_string()),
        None => Failure::Trapped(format!("{error:#}")),
    }
}
