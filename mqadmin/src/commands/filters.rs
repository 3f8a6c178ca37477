//! Filters: what filter servers run, trying a module here, giving one to filter servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_client::admin::Expression;
use minimq_filter_engine::{
    CompileError, Engine, EngineConfig, Failure as FilterFailure, Filter, FilterContext, Instance,
};
use minimq_protocol::crc::body_crc;
use minimq_protocol::json::Flavour;
use minimq_protocol::message::MessageView;
use minimq_protocol::name::TOOLS_CONSUMER_GROUP;
use serde_json::json;

use super::message_files::{Described, next_line, open};
use super::printing::{Walk, span};
use super::shape::{message_json, message_line, value_of};
use crate::command::{CommandSpec, Kind, Outcome, long, optional, required, word};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Colour, Report, Row};
use crate::text;

/// Largest module, bytes: more than any filter server takes.
const MAX_MODULE: u64 = 16 << 20;
/// Failures of a test told by name.
const TOLD: usize = 20;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "filterList",
        about: "Filters that filter servers run, with their figures",
        example: "filterList",
        options: &[optional(
            'a',
            "addr",
            "Only this filter server, host:port; without it all",
        )],
        danger: None,
        run: |given| Box::pin(list(given)),
    },
    CommandSpec {
        name: "filterTest",
        about: "Run a filter module here, over a file or the messages of a topic",
        example: "filterTest big-orders.wasm -t Orders --max 1000",
        options: &[
            word("MODULE", "The module: binary, text or base64"),
            optional('t', "topic", "Over the messages of this topic"),
            optional(
                'f',
                "file",
                "Over the messages of this file, a JSON object a line; -: standard input",
            ),
            optional('g', "consumerGroup", "The group that the module is told"),
            long(
                "beginTimestamp",
                Kind::Optional,
                "Stored not before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS",
            ),
            long("endTimestamp", Kind::Optional, "Stored before"),
            long("max", Kind::Default("10000"), "Messages at most"),
            long("print", Kind::Flag, "Prints the messages it keeps"),
        ],
        danger: None,
        run: |given| Box::pin(test(given)),
    },
    CommandSpec {
        name: "filterPush",
        about: "Give a filter module to the filter servers of a topic",
        example: "filterPush big-orders.wasm -t Orders -g billing",
        options: &[
            word("MODULE", "The module: binary, text or base64"),
            required('t', "topic", "The topic"),
            required('g', "consumerGroup", "The group it filters for"),
            long(
                "name",
                Kind::Optional,
                "Class name of the subscription; without it one made from the content",
            ),
        ],
        danger: None,
        run: |given| Box::pin(push(given)),
    },
];

/// A module that runs in this process.
pub(super) struct LocalFilter {
    filter: Arc<Filter>,
    context: FilterContext,
    instance: Option<Instance>,
}

fn read_module(path: &str) -> Result<Bytes, Failure> {
    let read = |error| Failure::io(format!("cannot read {path}"), error);
    let length = std::fs::metadata(path).map_err(read)?.len();
    if length > MAX_MODULE {
        return Err(Failure::Usage(format!(
            "{path} has {length} bytes, a module has at most {MAX_MODULE}"
        )));
    }
    Ok(std::fs::read(path).map_err(read)?.into())
}

fn compile(path: &str, module: &[u8]) -> Result<Arc<Filter>, Failure> {
    let refused = |error: CompileError| Failure::Refused(format!("{path}: {error}"));
    Engine::new(EngineConfig::default())
        .and_then(|engine| engine.compile(module))
        .map_err(refused)
}

impl LocalFilter {
    /// From a file, for a topic.
    pub(super) fn load(path: &str, topic: &str) -> Result<Self, Failure> {
        let filter = compile(path, &read_module(path)?)?;
        let context = FilterContext {
            topic: topic.into(),
            group: TOOLS_CONSUMER_GROUP.into(),
            class_name: path.into(),
        };
        Ok(Self {
            filter,
            context,
            instance: None,
        })
    }

    fn for_group(mut self, group: &str) -> Self {
        self.context.group = group.into();
        self
    }

    /// Whether it keeps the message.
    pub(super) fn keeps(&mut self, message: &MessageView) -> Result<bool, FilterFailure> {
        let instance = match self.instance.take().filter(|instance| !instance.is_spent()) {
            Some(instance) => instance,
            None => self
                .filter
                .instantiate(self.context.clone())
                .map_err(|error| FilterFailure::Trapped(error.to_string()))?,
        };
        let instance = self.instance.insert(instance);
        instance.batch().run(message)
    }
}

/// What came of a test.
#[derive(Default)]
struct Tally {
    kept: u64,
    dropped: u64,
    failed: u64,
    failures: Vec<(String, String)>,
    times: Vec<Duration>,
}

impl Tally {
    fn total(&self) -> u64 {
        self.kept + self.dropped + self.failed
    }

    /// Runs one message; whether it is kept.
    fn run(
        &mut self,
        filter: &mut LocalFilter,
        name: impl Fn() -> String,
        record: &MessageView,
    ) -> bool {
        let begin = Instant::now();
        let verdict = filter.keeps(record);
        self.times.push(begin.elapsed());
        match &verdict {
            Ok(true) => self.kept += 1,
            Ok(false) => self.dropped += 1,
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < TOLD {
                    self.failures.push((name(), error.to_string()));
                }
            }
        }
        verdict.unwrap_or(false)
    }

    fn micros(&mut self, share: f64) -> f64 {
        self.times.sort_unstable();
        let at = (self.times.len() as f64 * share) as usize;
        let time = self.times.get(at.min(self.times.len().saturating_sub(1)));
        time.map_or(0.0, |time| time.as_secs_f64() * 1e6)
    }
}

async fn test(given: &Given) -> Outcome {
    let path = given.text("MODULE")?;
    let most = given.number_in("max", 1..=10_000_000u64)?;
    let (topic, file) = (given.optional("topic"), given.optional("file"));
    let mut filter = LocalFilter::load(path, topic.unwrap_or_default())?.for_group(
        given
            .optional("consumerGroup")
            .unwrap_or(TOOLS_CONSUMER_GROUP),
    );
    let mut tally = Tally::default();
    let (mut json, mut lines) = (Vec::new(), Vec::new());
    let prints = given.flag("print");
    match (topic, file) {
        (_, Some(file)) => {
            let mut source = open(file)?;
            let mut number = 0;
            while tally.total() < most
                && let Some(line) = next_line(source.as_mut())?
            {
                number += 1;
                if line.is_empty() {
                    continue;
                }
                let wrong = |why: String| Failure::Usage(format!("{file} line {number}: {why}"));
                let record = Described::read(&line)
                    .and_then(|described| described.record(topic.unwrap_or_default()))
                    .map_err(wrong)?;
                let kept = tally.run(&mut filter, || format!("line {number}"), &record);
                if kept && prints {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    json.push(value_of(&line));
                    lines.push(text);
                }
            }
        }
        (Some(topic), None) => {
            let route = given.admin.topic_route(topic).await?;
            for queue in route.readable.iter() {
                let span = span(given, queue).await?;
                let walk = Walk {
                    queue,
                    expression: Expression::Tags("*"),
                    group: TOOLS_CONSUMER_GROUP,
                    span,
                };
                walk.run(given, |message| {
                    if tally.total() >= most {
                        return Ok(false);
                    }
                    let kept = tally.run(&mut filter, || message.id(), message.record());
                    if kept && prints {
                        json.push(message_json(&message));
                        lines.push(message_line(&message, true));
                    }
                    Ok(true)
                })
                .await?;
            }
        }
        (None, None) => {
            return Err(Failure::Usage(
                "give messages with -t TOPIC or -f FILE (one JSON object a line, as `mqadmin consume --each json` writes)".to_owned(),
            ));
        }
    }
    let (p50, p99) = (tally.micros(0.5), tally.micros(0.99));
    let failures: Vec<_> = tally
        .failures
        .iter()
        .map(|(message, error)| json!({ "message": message, "error": error }))
        .collect();
    let mut report = Report::new(json!({
        "module": path, "hash": filter.filter.hash().to_string(), "size": filter.filter.size(),
        "messages": tally.total(), "kept": tally.kept, "dropped": tally.dropped, "failed": tally.failed,
        "p50Micros": p50, "p99Micros": p99, "failures": failures, "keptMessages": json,
    }))
    .lines(lines)
    .line(format!(
        "{} messages: {} kept, {} dropped, {} failed; {p50:.1} us median, {p99:.1} us at 99 %",
        tally.total(),
        tally.kept,
        tally.dropped,
        tally.failed
    ));
    for (message, error) in &tally.failures {
        report = report.painted(Colour::Red, format!("  {message}: {error}"));
    }
    if tally.failed > 0 {
        report = report.partly(format!("the filter failed on {} messages", tally.failed));
    }
    Ok(report)
}

async fn push(given: &Given) -> Outcome {
    let path = given.text("MODULE")?;
    let (topic, group) = (given.text("topic")?, given.text("consumerGroup")?);
    let module = read_module(path)?;
    // What is refused here would be refused there.
    let filter = compile(path, &module)?;
    let name = match given.optional("name") {
        Some(name) => name.to_owned(),
        None => format!("minimq.wasm.x{:08x}x{}", body_crc(&module), module.len()),
    };
    let outcomes = given
        .admin
        .push_filter(topic, group, &name, &module)
        .await?;
    let (mut done, mut missing, mut first) = (Vec::new(), Vec::new(), None);
    for (addr, outcome) in outcomes {
        match outcome {
            Ok(()) => done.push(addr),
            Err(error) => {
                let failure = Failure::from(error);
                missing.push(failure.describe_at(&addr));
                first.get_or_insert(failure);
            }
        }
    }
    if let (true, Some(failure)) = (done.is_empty(), first) {
        return Err(failure);
    }
    let lines = done
        .iter()
        .map(|addr| format!("filter {name} given to {addr} for {topic}@{group}"))
        .collect::<Vec<_>>();
    Ok(Report::new(json!({
        "name": name, "hash": filter.hash().to_string(), "size": filter.size(), "topic": topic, "group": group,
        "filterServers": done,
    }))
    .lines(lines)
    .missing(missing))
}

async fn list(given: &Given) -> Outcome {
    let servers: Vec<String> = match given.optional("addr") {
        Some(addr) => vec![addr.to_owned()],
        None => {
            let found = given.admin.filter_servers().await?;
            let mut all: Vec<String> = found.into_values().flatten().collect();
            all.sort();
            all.dedup();
            all
        }
    };
    let (done, missing) = given
        .each(&servers, |addr| given.admin.filter_stats(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, stats) in done {
        let mut value = value_of(&stats.to_json(Flavour::Standard));
        value["addr"] = addr.into();
        json.push(value);
        let broker = stats
            .broker_name
            .clone()
            .unwrap_or(stats.broker_addr.clone());
        if stats.filters.is_empty() {
            rows.push(Row::from(vec![
                addr.to_owned(),
                broker.clone(),
                "(no filter)".to_owned(),
            ]));
        }
        for one in &stats.filters {
            rows.push(Row {
                cells: vec![
                    addr.to_owned(),
                    broker.clone(),
                    format!("{}@{}", one.topic, one.consumer_group),
                    one.class_name.clone(),
                    one.hash.chars().take(12).collect(),
                    one.state.clone(),
                    one.received.to_string(),
                    one.matched.to_string(),
                    one.failed.to_string(),
                    format!("{:.1}", one.p50_nanos as f64 / 1000.0),
                    format!("{:.1}", one.p99_nanos as f64 / 1000.0),
                    text::size(u64::try_from(one.memory).unwrap_or(0)),
                ],
                colour: (one.state != "active").then_some(Colour::Yellow),
            });
        }
    }
    let headings = [
        "#Filter Server",
        "#Broker",
        "#Topic@Group",
        "#Class",
        "#Hash",
        "#State",
        "#Received",
        "#Matched",
        "#Failed",
        "#P50(us)",
        "#P99(us)",
        "#Memory",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}
