//! Compiles uploads on one background thread, each module once however many wait for it. Compiling cannot be
//! interrupted, so it never happens on a network thread, and what waits for it is bounded.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use minimq_filter_engine::{CompileError, Engine, Filter, FilterHash};
use parking_lot::Mutex;
use tokio::sync::watch;

/// What became of a compilation.
pub(crate) type Compiled = Result<Arc<Filter>, CompileError>;

type Flights = Arc<Mutex<HashMap<FilterHash, watch::Receiver<Option<Compiled>>>>>;

struct Job {
    hash: FilterHash,
    upload: Bytes,
    done: watch::Sender<Option<Compiled>>,
}

/// A compilation, perhaps under way.
#[derive(Debug)]
pub(crate) enum Flight {
    /// The module is compiled already.
    Landed(Arc<Filter>),
    /// It waits for its turn or is being compiled.
    Waiting(watch::Receiver<Option<Compiled>>),
}

/// As many modules wait as may wait.
#[derive(Debug, thiserror::Error)]
#[error(
    "[OVERLOAD]system busy: {0} modules wait to be compiled, that is the limit; upload again later"
)]
pub(crate) struct CompilerBusy(usize);

/// The thread's front side. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Compiler {
    engine: Engine,
    flights: Flights,
    jobs: mpsc::Sender<Job>,
    limit: usize,
}

impl Compiler {
    /// Starts the thread.
    pub(crate) fn start(engine: Engine, limit: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let flights = Flights::default();
        let (compiling, landing) = (engine.clone(), flights.clone());
        std::thread::Builder::new()
            .name("filter-compiler".to_owned())
            .spawn(move || {
                while let Ok(job) = waiting.recv() {
                    work(&compiling, &landing, job);
                }
            })?;
        Ok(Self {
            engine,
            flights,
            jobs,
            limit,
        })
    }

    /// Has an upload compiled, unless it is or is about to be.
    pub(crate) fn compile(&self, hash: FilterHash, upload: Bytes) -> Result<Flight, CompilerBusy> {
        if let Some(filter) = self.engine.find(&hash) {
            return Ok(Flight::Landed(filter));
        }
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&hash) {
            return Ok(Flight::Waiting(flight.clone()));
        }
        if flights.len() >= self.limit {
            return Err(CompilerBusy(flights.len()));
        }
        let (done, flight) = watch::channel(None);
        flights.insert(hash, flight.clone());
        // The thread ends only with this sender.
        let _ = self.jobs.send(Job { hash, upload, done });
        Ok(Flight::Waiting(flight))
    }
}

fn work(engine: &Engine, flights: &Flights, job: Job) {
    // A fault of the compiler is the end of this module, not of all later ones.
    let compiled = std::panic::catch_unwind(AssertUnwindSafe(|| engine.compile(&job.upload)));
    let compiled = compiled.unwrap_or_else(|_| {
        tracing::error!(hash = %job.hash, "the compiler panicked");
        Err(CompileError::Compiler(
            "the compiler failed on it".to_owned(),
        ))
    });
    flights.lock().remove(&job.hash);
    job.done.send_replace(Some(compiled));
}

impl Flight {
    /// Waits for the end.
    pub(crate) async fn land(&mut self) -> Compiled {
        match self {
            Self::Landed(filter) => Ok(filter.clone()),
            Self::Waiting(flight) => match flight.wait_for(Option::is_some).await {
                Ok(compiled) => match &*compiled {
                    Some(compiled) => compiled.clone(),
                    None => Err(gone()),
                },
                Err(_) => Err(gone()),
            },
        }
    }
}

fn gone() -> CompileError {
    CompileError::Compiler("the filter server is stopping".to_owned())
}
