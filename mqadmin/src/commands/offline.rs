//! Stores on disk, read without a broker: every record checked, records shown.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minimq_protocol::message::RecordRef;
use minimq_store::verify::{ReaderOptions, StoreReader};
use minimq_store::{RecoveryProgress, StoreError};
use serde_json::{Value, json};

use crate::command::{CommandSpec, Kind, Opt, Outcome, long, optional, word};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Colour, Form, Report, print};
use crate::text;

/// Findings told one by one at most.
const TOLD: usize = 1000;
const DIR: Opt = word("DIR", "The store: the broker's storePathRootDir");
const RUNNING: Opt = long(
    "while-running",
    Kind::Flag,
    "Reads although a broker has it open; its end moves meanwhile and may look torn",
);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "storeVerify",
        about: "Check every record, queue and index of a store on disk; nothing is changed",
        example: "storeVerify /var/lib/minimq/store",
        options: &[DIR, RUNNING],
        danger: None,
        run: |given| Box::pin(async move { verify(given) }),
    },
    CommandSpec {
        name: "storeDump",
        about: "Show the records of a store on disk in log order",
        example: "storeDump /var/lib/minimq/store -t Orders --max 100",
        options: &[
            DIR,
            optional('t', "topic", "Only this topic"),
            optional('i', "queueId", "Only this queue"),
            long(
                "from",
                Kind::Optional,
                "Only from this commit-log offset on",
            ),
            long("max", Kind::Optional, "Records at most"),
            RUNNING,
        ],
        danger: None,
        run: |given| Box::pin(async move { dump(given) }),
    },
];

fn failed(error: StoreError) -> Failure {
    match error {
        StoreError::Locked { .. } => {
            Failure::Refused(format!("{error}; stop it, or give --while-running"))
        }
        other => Failure::Refused(other.to_string()),
    }
}

fn open(given: &Given) -> Result<StoreReader, Failure> {
    let path = Path::new(given.text("DIR")?);
    if !path.is_dir() {
        return Err(Failure::NotFound(format!("no folder {}", path.display())));
    }
    if !path.join("commitlog").is_dir() {
        return Err(Failure::NotFound(format!(
            "{} is no store: it has no folder commitlog",
            path.display()
        )));
    }
    let options = ReaderOptions {
        while_running: given.flag("while-running"),
        most_findings: TOLD,
        ..ReaderOptions::default()
    };
    StoreReader::open(path, &options).map_err(failed)
}

/// A bar on a terminal, nothing elsewhere.
fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = "{bar:40} {percent}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
    bar
}

fn advance(bar: &ProgressBar, progress: RecoveryProgress) {
    bar.set_length(progress.total);
    bar.set_position(progress.scanned);
}

fn verify(given: &Given) -> Outcome {
    let reader = open(given)?;
    let bar = bar();
    let report = reader
        .verify(&mut |progress| advance(&bar, progress))
        .map_err(failed)?;
    bar.finish_and_clear();
    let end = report.log.end.get();
    let findings: Vec<String> = report
        .findings
        .list
        .iter()
        .map(ToString::to_string)
        .collect();
    let json = json!({
        "sound": report.is_sound(), "clean": report.clean, "from": report.log_min.get(), "end": end,
        "records": report.log.records, "damaged": report.log.damaged.len(),
        "cutAt": report.log.cut.as_ref().map(|cut| cut.at.get()),
        "queues": {
            "count": report.queues.queues, "matched": report.queues.matched,
            "behind": report.queues.behind, "superseded": report.queues.superseded,
        },
        "index": { "files": report.index.files, "matched": report.index.matched, "behind": report.index.behind },
        "findings": findings, "findingsTotal": report.findings.total,
    });
    let length = u64::try_from(end - report.log_min.get()).unwrap_or(0);
    let mut out = Report::new(json)
        .line(format!(
            "log:    {} records in {} from {} to {end}; the last stop was {}",
            report.log.records,
            text::size(length),
            report.log_min.get(),
            if report.clean { "clean" } else { "not clean" }
        ))
        .line(format!(
            "queues: {} with {} entries that match, {} to be made again at the next start, {} left over",
            report.queues.queues, report.queues.matched, report.queues.behind, report.queues.superseded
        ))
        .line(format!(
            "index:  {} files with {} entries that match, {} to be made again at the next start",
            report.index.files, report.index.matched, report.index.behind
        ));
    if report.is_sound() {
        return Ok(out.painted(Colour::Green, "the store is sound"));
    }
    for finding in &findings {
        out = out.painted(Colour::Red, finding.as_str());
    }
    let more = report.findings.total.saturating_sub(findings.len() as u64);
    if more > 0 {
        out = out.line(format!("and {more} more"));
    }
    Ok(out.partly(format!("{} findings", report.findings.total)))
}

fn record_json(record: &RecordRef<'_>) -> Value {
    let properties: serde_json::Map<String, Value> = record
        .properties()
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    json!({
        "commitLogOffset": record.physical_offset(), "size": record.size(), "topic": record.topic(),
        "queueId": record.queue_id(), "queueOffset": record.queue_offset(), "stored": record.store_timestamp(),
        "born": record.born_timestamp(), "bornHost": record.born_host().to_string(), "sysFlag": record.sys_flag(),
        "flag": record.flag(), "reconsumeTimes": record.reconsume_times(), "tags": record.tags(),
        "keys": record.keys(), "properties": properties, "bodyLength": record.body().len(),
        "body": String::from_utf8_lossy(record.body()),
    })
}

fn record_line(record: &RecordRef<'_>) -> String {
    format!(
        "{} {} queueId={} queueOffset={} size={} stored={} tags={} keys={} BODY: {}",
        record.physical_offset(),
        record.topic(),
        record.queue_id(),
        record.queue_offset(),
        record.size(),
        text::time(record.store_timestamp()),
        record.tags().unwrap_or("null"),
        record.keys().unwrap_or("null"),
        String::from_utf8_lossy(record.body())
    )
}

fn dump(given: &Given) -> Outcome {
    let topic = given.optional("topic");
    let queue_id: Option<i32> = given.optional_number("queueId")?;
    let from: i64 = given.optional_number("from")?.unwrap_or(i64::MIN);
    let most: u64 = given.optional_number("max")?.unwrap_or(u64::MAX);
    let reader = open(given)?;
    let bar = bar();
    let (mut shown, mut stopped) = (0, None);
    let report = reader
        .for_each_record(
            |record| {
                if shown >= most {
                    return ControlFlow::Break(());
                }
                let wanted = record.physical_offset() >= from
                    && topic.is_none_or(|topic| record.topic() == topic)
                    && queue_id.is_none_or(|id| record.queue_id() == id);
                if !wanted {
                    return ControlFlow::Continue(());
                }
                shown += 1;
                let line = match given.form {
                    Form::Json => record_json(record).to_string(),
                    Form::Text => record_line(record),
                };
                match print(&format!("{line}\n")) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(failure) => {
                        stopped = Some(failure);
                        ControlFlow::Break(())
                    }
                }
            },
            &mut |progress| advance(&bar, progress),
        )
        .map_err(failed)?;
    bar.finish_and_clear();
    if let Some(failure) = stopped {
        return Err(failure);
    }
    let mut out = Report::shown();
    if let Some(report) = report {
        for range in &report.damaged {
            out = out.partly(format!(
                "damaged from {} to {}: {}",
                range.from.get(),
                range.to.get(),
                range.reason
            ));
        }
        if let Some(cut) = &report.cut {
            out = out.partly(format!("torn at {}: {}", cut.at.get(), cut.reason));
        }
    }
    Ok(out)
}
