//! What is told of a run: rate, latencies, and what the server's process used for it.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::json;

/// Clock ticks a second in `/proc/PID/stat`: fixed in the kernel's interface.
const TICKS: f64 = 100.0;

/// Processor time of a process, seconds.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name in brackets may hold blanks.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = fields.split_whitespace().skip(11);
    let mut next = || ticks.next().and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (next().context(path.clone())?, next().context(path)?);
    Ok((user + system) / TICKS)
}

/// A line of `/proc/PID/status` in KiB.
fn status_kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':')
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Memory of a process, KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its own memory that is resident.
    pub rss_anon: u64,
    /// Resident pages of files.
    pub rss_file: u64,
    /// Most that was ever resident, of both.
    pub peak: u64,
}

impl Memory {
    /// Of a process now.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).context(path)?;
        let line = |name| status_kib(&status, name).unwrap_or(0);
        Ok(Self {
            rss_anon: line("RssAnon"),
            rss_file: line("RssFile"),
            peak: line("VmHWM"),
        })
    }
}

/// Counts of a run under way; begins anew when the warm-up is over.
#[derive(Debug)]
pub struct Meter {
    pid: Option<u32>,
    begin: Instant,
    cpu_begin: f64,
    own_cpu_begin: f64,
    /// Messages answered or received.
    pub messages: u64,
    /// Requests answered with anything but success.
    pub failures: u64,
    /// The first such answer.
    pub first_failure: Option<String>,
    latencies: Histogram<u64>,
}

impl Meter {
    /// Measures from now on.
    pub fn new(pid: Option<u32>) -> anyhow::Result<Self> {
        Ok(Self {
            pid,
            begin: Instant::now(),
            cpu_begin: pid.map_or(Ok(0.0), cpu_seconds)?,
            own_cpu_begin: cpu_seconds(std::process::id())?,
            messages: 0,
            failures: 0,
            first_failure: None,
            // 1 ns to 100 s, three digits.
            latencies: Histogram::new_with_bounds(1, 100_000_000_000, 3)?,
        })
    }

    /// Forgets the warm-up, but not its failures.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let (failures, first) = (self.failures, self.first_failure.take());
        *self = Self {
            failures,
            first_failure: first,
            ..Self::new(self.pid)?
        };
        Ok(())
    }

    /// One answer that took so long.
    pub fn took(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(nanos.max(1));
    }

    /// One answer that says no.
    pub fn failed(&mut self, describe: impl FnOnce() -> String) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(describe);
    }

    /// The result.
    pub fn report(self, what: &'static str) -> anyhow::Result<Report> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let per_million = |cpu: f64| cpu * 1e6 / (self.messages.max(1)) as f64;
        let own = cpu_seconds(std::process::id())? - self.own_cpu_begin;
        let server = match self.pid {
            Some(pid) => Some(Server {
                cpu_per_million: per_million(cpu_seconds(pid)? - self.cpu_begin),
                memory: Memory::of(pid)?,
            }),
            None => None,
        };
        Ok(Report {
            what,
            messages: self.messages,
            seconds,
            failures: self.failures,
            first_failure: self.first_failure,
            latencies: self.latencies,
            generator_cpu_per_million: per_million(own),
            server,
        })
    }
}

/// What the server's process used.
#[derive(Debug, Clone, Copy)]
pub struct Server {
    /// Seconds of processor time for a million messages.
    pub cpu_per_million: f64,
    /// Memory at the end.
    pub memory: Memory,
}

/// A run's result.
#[derive(Debug)]
pub struct Report {
    /// Which load.
    pub what: &'static str,
    /// Messages counted.
    pub messages: u64,
    /// Time it took.
    pub seconds: f64,
    /// Requests answered with anything but success.
    pub failures: u64,
    /// The first such answer.
    pub first_failure: Option<String>,
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Seconds of the generator's own processor time for a million messages.
    pub generator_cpu_per_million: f64,
    /// The server's process, if one was named.
    pub server: Option<Server>,
}

/// Percentiles that are told.
const PERCENTILES: [(&str, f64); 5] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("max", 100.0),
];

impl Report {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    /// A latency in microseconds.
    pub fn micros(&self, percentile: f64) -> f64 {
        self.latencies.value_at_percentile(percentile) as f64 / 1e3
    }

    /// One JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        let latencies: serde_json::Map<_, _> = PERCENTILES
            .iter()
            .map(|(name, p)| (format!("{name}_us"), json!(self.micros(*p))))
            .collect();
        json!({
            "what": self.what,
            "messages": self.messages,
            "seconds": self.seconds,
            "rate": self.rate(),
            "failures": self.failures,
            "first_failure": self.first_failure,
            "latency": latencies,
            "generator_cpu_s_per_million": self.generator_cpu_per_million,
            "server": self.server.map(|server| json!({
                "cpu_s_per_million": server.cpu_per_million,
                "rss_anon_kib": server.memory.rss_anon,
                "rss_file_kib": server.memory.rss_file,
                "peak_kib": server.memory.peak,
            })),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} messages in {:.2} s, {:.0} a second",
            self.what,
            self.messages,
            self.seconds,
            self.rate()
        )?;
        if !self.latencies.is_empty() {
            write!(f, "\nlatency in µs:")?;
            for (name, percentile) in PERCENTILES {
                write!(f, " {name} {:.0}", self.micros(percentile))?;
            }
        }
        write!(
            f,
            "\ngenerator: {:.2} CPU s a million",
            self.generator_cpu_per_million
        )?;
        if let Some(server) = &self.server {
            let mib = |kib: u64| kib as f64 / 1024.0;
            write!(
                f,
                "\nserver: {:.2} CPU s a million, RssAnon {:.1} MiB, RssFile {:.1} MiB, peak {:.1} MiB",
                server.cpu_per_million,
                mib(server.memory.rss_anon),
                mib(server.memory.rss_file),
                mib(server.memory.peak)
            )?;
        }
        if self.failures > 0 {
            let first = self.first_failure.as_deref().unwrap_or_default();
            write!(
                f,
                "\nFAILED: {} requests, the first: {first}",
                self.failures
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read() {
        let me = std::process::id();
        let begin = cpu_seconds(me).unwrap();
        let mut x = 1_u64;
        while cpu_seconds(me).unwrap() < begin + 0.02 {
            x = x.wrapping_mul(3);
        }
        let memory = Memory::of(me).unwrap();
        assert!(memory.rss_anon > 0 && memory.peak >= memory.rss_anon, "{x}");
        assert!(cpu_seconds(u32::MAX).is_err());
    }

    #[test]
    fn a_report_tells_rates_and_latencies() {
        let mut meter = Meter::new(Some(std::process::id())).unwrap();
        meter.failed(|| "before".into());
        meter.restart().unwrap();
        for ms in 1..=1000 {
            meter.took(Duration::from_millis(ms));
            meter.messages += 2;
        }
        let report = meter.report("test").unwrap();
        assert_eq!((report.messages, report.failures), (2000, 1));
        assert!((report.micros(50.0) - 500_000.0).abs() < 1_000.0);
        let json = report.to_json();
        assert_eq!(json["messages"], 2000);
        assert!(json["server"]["rss_anon_kib"].as_u64().unwrap() > 0);
        let text = report.to_string();
        assert!(text.contains("p99.9") && text.contains("FAILED: 1 requests, the first: before"));
    }
}
