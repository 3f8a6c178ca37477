//! Ordered shutdown: SIGTERM, SIGINT or a call asks for it once; the role then runs its stages one
//! after the other, each with a time limit. A second signal ends the process at once, as a crash
//! would.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The wish to stop, shared by all parts of a role. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    token: CancellationToken,
    reason: OnceLock<String>,
}

impl Shutdown {
    /// Nobody wishes to stop yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the shutdown; only the first reason counts.
    pub fn request(&self, reason: impl Into<String>) {
        self.0.reason.get_or_init(|| reason.into());
        self.0.token.cancel();
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Waits until it is asked for; returns why.
    pub async fn requested(&self) -> &str {
        self.0.token.cancelled().await;
        self.0.reason.get().map_or("", String::as_str)
    }

    /// A token that is cancelled by the request, for `select!` and child tasks.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.token.clone()
    }

    /// From now on SIGTERM and SIGINT ask for the shutdown; the next of them ends the process with
    /// status 128 + its number. Call within the runtime.
    ///
    /// # Errors
    /// The system's refusal to install a handler.
    pub fn on_signals(&self) -> io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            let (name, _) = next(&mut terminate, &mut interrupt).await;
            shutdown.request(name);
            let (name, number) = next(&mut terminate, &mut interrupt).await;
            tracing::warn!("{name} during the shutdown: stopping at once");
            std::process::exit(128 + number);
        });
        Ok(())
    }
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}

/// What a stage's future may give: nothing, or a result whose error is reported.
pub trait StageOutput {
    /// The error's text, if it failed.
    fn failure(self) -> Option<String>;
}

impl StageOutput for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> StageOutput for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageEnd {
    /// In time and without error.
    Done,
    /// With this error.
    Failed(String),
    /// Abandoned at its time limit.
    TimedOut,
}

/// One stage of a finished shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageReport {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub end: StageEnd,
    /// How long it took.
    pub took: Duration,
}

/// The stages of a shutdown, in order.
#[derive(Default)]
#[must_use = "stages do nothing unless they are run"]
pub struct Stages<'a>(Vec<Stage<'a>>);

struct Stage<'a> {
    name: &'static str,
    limit: Duration,
    work: Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>,
}

impl<'a> Stages<'a> {
    /// No stages yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stage. It must await, not block: blocking work belongs on `spawn_blocking`, else its
    /// limit cannot be kept.
    pub fn stage<F>(mut self, name: &'static str, limit: Duration, work: F) -> Self
    where
        F: Future<Output: StageOutput> + Send + 'a,
    {
        let work = Box::pin(async move { work.await.failure() });
        self.0.push(Stage { name, limit, work });
        self
    }

    /// Runs all stages; one that fails or is late is logged, and the next one runs all the same,
    /// since flushing must not depend on every client leaving in time.
    pub async fn run(self) -> Vec<StageReport> {
        let mut reports = Vec::with_capacity(self.0.len());
        for Stage { name, limit, work } in self.0 {
            let start = Instant::now();
            let end = match tokio::time::timeout(limit, work).await {
                Ok(None) => StageEnd::Done,
                Ok(Some(error)) => StageEnd::Failed(error),
                Err(_) => StageEnd::TimedOut,
            };
            let took = start.elapsed();
            match &end {
                StageEnd::Done => tracing::info!(?took, "shutdown: {name} done"),
                StageEnd::Failed(error) => {
                    tracing::error!(?took, "shutdown: {name} failed: {error}")
                }
                StageEnd::TimedOut => {
                    tracing::error!("shutdown: {name} was not done after {limit:?}, going on")
                }
            }
            reports.push(StageReport { name, end, took });
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, getpid, kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_request_reaches_every_clone_with_the_first_reason() {
        let shutdown = Shutdown::new();
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await.to_owned() }
        });
        assert!(!shutdown.is_requested());
        shutdown.request("disk is full");
        shutdown.request("again");
        assert_eq!(waiter.await.unwrap(), "disk is full");
        assert_eq!(shutdown.requested().await, "disk is full");
        assert!(shutdown.is_requested() && shutdown.token().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn stages_run_in_order_and_none_stops_the_next() {
        let order = Mutex::new(Vec::new());
        let note = |name: &'static str| order.lock().unwrap().push(name);
        let limit = Duration::from_secs(5);
        let reports = Stages::new()
            .stage("unregister", limit, async { note("unregister") })
            .stage("drain", limit, async {
                note("drain");
                std::future::pending::<()>().await;
            })
            .stage("flush", limit, async {
                note("flush");
                Err::<(), _>(io::Error::other("no space"))
            })
            .stage("remove abort", limit, async {
                note("remove abort");
                Ok::<(), io::Error>(())
            })
            .run()
            .await;
        assert_eq!(
            *order.lock().unwrap(),
            ["unregister", "drain", "flush", "remove abort"]
        );
        let ends: Vec<StageEnd> = reports.into_iter().map(|report| report.end).collect();
        assert_eq!(
            ends,
            [
                StageEnd::Done,
                StageEnd::TimedOut,
                StageEnd::Failed("no space".into()),
                StageEnd::Done
            ]
        );
    }

    /// The body of the child process of the next test; does nothing in a normal run.
    #[tokio::test]
    async fn child_that_waits_for_signals() {
        if std::env::var_os("MINIMQ_TEST_SIGNAL_CHILD").is_none() {
            return;
        }
        let shutdown = Shutdown::new();
        shutdown.on_signals().unwrap();
        eprintln!("ready");
        eprintln!("asked by {}", shutdown.requested().await);
        std::future::pending::<()>().await;
    }

    #[test]
    fn the_first_signal_asks_and_the_second_ends_the_process() {
        for (signal, name, status) in [(Signal::TERM, "SIGTERM", 143), (Signal::INT, "SIGINT", 130)]
        {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "shutdown::tests::child_that_waits_for_signals",
                    "--nocapture",
                ])
                .env("MINIMQ_TEST_SIGNAL_CHILD", "1")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&child);
            assert_ne!(pid, getpid());
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let mut wait_for = |wanted: &str| {
                assert!(
                    lines.any(|line| line.unwrap() == wanted),
                    "no line {wanted}"
                )
            };
            wait_for("ready");
            kill_process(pid, signal).unwrap();
            wait_for(&format!("asked by {name}"));
            kill_process(pid, signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(status));
        }
    }
}
