//! Messages of a topic, printed: all, of one queue, of a time.

use std::collections::BTreeMap;

use minimq_client::admin::{Expression, PullRequest, PullStatus};
use minimq_client::{Delivery, MessageQueue};
use minimq_protocol::name::TOOLS_CONSUMER_GROUP;
use serde_json::json;

use super::shape::{message_json, message_line};
use crate::command::{CommandSpec, Kind, Opt, Outcome, default, long, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

/// Messages of one pull.
const BATCH: i32 = 32;
const SINCE: &str = "Stored not before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS";
const TOPIC: Opt = required('t', "topic", "The topic");
const TAGS: Opt = default('s', "subExpression", "*", "Tags, as TagA || TagB");
const CHARSET: Opt = default(
    'c',
    "charsetName",
    "UTF-8",
    "UTF-8, ISO-8859-1, or hex to see bytes",
);
const BEGIN: Opt = optional('b', "beginTimestamp", SINCE);
const END: Opt = optional('e', "endTimestamp", "Stored before");
const MAX: Opt = long("max", Kind::Optional, "Messages at most");

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "printMsg",
        about: "Print Message Detail",
        example: "printMsg -t Orders -s TagA",
        options: &[
            TOPIC,
            CHARSET,
            TAGS,
            BEGIN,
            END,
            default('d', "printBody", "true", "With the bodies"),
            MAX,
        ],
        danger: None,
        run: |given| Box::pin(print(given)),
    },
    CommandSpec {
        name: "printMsgByQueue",
        about: "Print Message Detail",
        example: "printMsgByQueue -t Orders -a broker-a -i 0 -p true -d true",
        options: &[
            TOPIC,
            required('a', "brokerName", "The broker's name"),
            required('i', "queueId", "The queue"),
            CHARSET,
            TAGS,
            BEGIN,
            END,
            default('p', "print-msg", "false", "Prints the messages"),
            default('d', "printBody", "false", "With the bodies"),
            default('f', "calculate", "false", "Counts the messages by tag"),
            MAX,
        ],
        danger: None,
        run: |given| Box::pin(print_queue(given)),
    },
    CommandSpec {
        name: "consumeMessage",
        about: "Consume message",
        example: "consumeMessage -t Orders -b broker-a -i 0 -c 10",
        options: &[
            TOPIC,
            optional('b', "brokerName", "Only this broker"),
            optional('i', "queueId", "Only this queue, with -b"),
            optional('o', "offset", "From here on, with -i"),
            default(
                'g',
                "consumerGroup",
                TOOLS_CONSUMER_GROUP,
                "The group in whose name it is read; no offset is stored",
            ),
            optional('s', "beginTimestamp", SINCE),
            optional('e', "endTimestamp", "Stored before"),
            default('c', "MessageNumber", "128", "Messages at most"),
        ],
        danger: None,
        run: |given| Box::pin(consume(given)),
    },
];

/// A stretch of a queue and what is wanted of it.
pub(super) struct Walk<'w> {
    pub(super) queue: &'w MessageQueue,
    pub(super) expression: Expression<'w>,
    pub(super) group: &'w str,
    pub(super) span: Span,
}

/// Offsets from the first to before the second, and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
    /// Stored not before, ms.
    pub(super) since_ms: i64,
    /// Stored before, ms.
    pub(super) until_ms: i64,
}

impl Span {
    /// All of those offsets.
    pub(super) fn all(from: i64, to: i64) -> Self {
        Self {
            from,
            to,
            since_ms: i64::MIN,
            until_ms: i64::MAX,
        }
    }
}

impl Walk<'_> {
    /// Goes through it until `each` has enough (`Ok(false)`).
    pub(super) async fn run(
        &self,
        given: &Given,
        mut each: impl FnMut(Delivery) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let span = self.span;
        let mut offset = span.from;
        while offset < span.to {
            let pulled = given
                .admin
                .pull_as(PullRequest {
                    queue: self.queue,
                    expression: self.expression,
                    offset,
                    max: BATCH,
                    hold: std::time::Duration::ZERO,
                    group: self.group,
                })
                .await?;
            for message in pulled.messages {
                // Beyond the last message a search by time gives that message.
                if message.stored_ms() < span.since_ms {
                    continue;
                }
                let past =
                    message.queue_offset() >= span.to || message.stored_ms() >= span.until_ms;
                if past || !each(message)? {
                    return Ok(());
                }
            }
            if pulled.status == PullStatus::NothingNew || pulled.next_offset <= offset {
                return Ok(());
            }
            offset = pulled.next_offset;
        }
        Ok(())
    }
}

/// The stretch of a queue between two times, else all of it.
pub(super) async fn span(given: &Given, queue: &MessageQueue) -> Result<Span, Failure> {
    let (begin, end) = (given.time("beginTimestamp")?, given.time("endTimestamp")?);
    let (min, max) = (
        given.admin.min_offset(queue).await?,
        given.admin.max_offset(queue).await?,
    );
    let mut span = Span::all(min, max);
    if let Some(when) = begin.filter(|when| *when >= 0) {
        span.from = given.admin.search_offset(queue, when).await?.max(min);
        span.since_ms = when;
    }
    if let Some(when) = end.filter(|when| *when >= 0) {
        span.until_ms = when;
    }
    Ok(span)
}

/// How bytes of bodies become text.
#[derive(Clone, Copy)]
enum Charset {
    Utf8,
    Latin1,
    Hex,
}

impl Charset {
    fn of(given: &Given) -> Result<Self, Failure> {
        let name = given.text("charsetName")?;
        match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" | "us-ascii" | "ascii" => Ok(Self::Utf8),
            "iso-8859-1" | "latin1" => Ok(Self::Latin1),
            "hex" => Ok(Self::Hex),
            _ => Err(Failure::Usage(format!(
                "--charsetName is \"{name}\", it must be UTF-8, ISO-8859-1 or hex"
            ))),
        }
    }

    fn line(self, message: &Delivery, body: bool) -> String {
        let other = match self {
            Self::Utf8 => return message_line(message, body),
            _ if !body => return message_line(message, false),
            Self::Latin1 => message.body().iter().map(|b| char::from(*b)).collect(),
            Self::Hex => message
                .body()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
        };
        message_line(message, false).replace("NOT PRINT BODY", &other)
    }
}

fn limit(given: &Given) -> Result<usize, Failure> {
    Ok(given.optional_number("max")?.unwrap_or(usize::MAX))
}

async fn print(given: &Given) -> Outcome {
    let (topic, tags) = (given.text("topic")?, given.text("subExpression")?);
    let (bodies, charset, most) = (
        given.boolean("printBody")?,
        Charset::of(given)?,
        limit(given)?,
    );
    // A wrong time is told before anything is asked.
    given.time("beginTimestamp")?;
    given.time("endTimestamp")?;
    let route = given.admin.topic_route(topic).await?;
    let (mut json, mut lines) = (Vec::new(), Vec::new());
    for queue in route.readable.iter() {
        let span = span(given, queue).await?;
        lines.push(format!(
            "minOffset={}, maxOffset={}, {queue}",
            span.from, span.to
        ));
        let walk = Walk {
            queue,
            expression: Expression::Tags(tags),
            group: TOOLS_CONSUMER_GROUP,
            span,
        };
        walk.run(given, |message| {
            if json.len() >= most {
                return Ok(false);
            }
            lines.push(charset.line(&message, bodies));
            json.push(message_json(&message));
            Ok(true)
        })
        .await?;
        lines.push("-".repeat(56));
    }
    Ok(Report::new(json.into()).lines(lines))
}

async fn print_queue(given: &Given) -> Outcome {
    let queue = MessageQueue::new(
        given.text("topic")?,
        given.text("brokerName")?,
        given.number("queueId")?,
    );
    let (prints, bodies, counts) = (
        given.boolean("print-msg")?,
        given.boolean("printBody")?,
        given.boolean("calculate")?,
    );
    let (charset, most) = (Charset::of(given)?, limit(given)?);
    let route = given.admin.topic_route(&queue.topic).await?;
    // A broker answers for a queue it does not have as for an empty one.
    if !route.readable.contains(&queue) {
        return Err(no_such_queue(&queue.topic));
    }
    let span = span(given, &queue).await?;
    let mut by_tag: BTreeMap<String, u64> = BTreeMap::new();
    let (mut json, mut lines, mut count) = (Vec::new(), Vec::new(), 0);
    let walk = Walk {
        queue: &queue,
        expression: Expression::Tags(given.text("subExpression")?),
        group: TOOLS_CONSUMER_GROUP,
        span,
    };
    walk.run(given, |message| {
        if count >= most {
            return Ok(false);
        }
        count += 1;
        *by_tag
            .entry(message.tag().unwrap_or_default().to_owned())
            .or_default() += 1;
        if prints {
            lines.push(charset.line(&message, bodies));
            json.push(message_json(&message));
        }
        Ok(true)
    })
    .await?;
    let mut tags: Vec<(String, u64)> = by_tag.into_iter().collect();
    tags.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let counted: BTreeMap<&str, u64> = tags.iter().map(|(tag, n)| (tag.as_str(), *n)).collect();
    let report = Report::new(json!({
        "from": span.from, "to": span.to, "count": count, "tags": counted, "messages": json,
    }))
    .lines(lines);
    Ok(if counts {
        report.lines(
            tags.iter()
                .map(|(tag, count)| format!("Tag: {tag:<30} Count: {count}")),
        )
    } else {
        report
    })
}

fn no_such_queue(topic: &str) -> Failure {
    Failure::NotFound(format!(
        "topic {topic} has no such queue; `mqadmin topicStatus -t {topic}` shows them"
    ))
}

/// The stock tool's refusals, in its words.
fn check_consume(given: &Given) -> Result<(), Failure> {
    let refuse = |text: &str| Err(Failure::Usage(text.to_owned()));
    if given.number::<i64>("MessageNumber")? <= 0 {
        return refuse("Please input a positive messageNumber!");
    }
    let has = |long| given.optional(long).is_some();
    if has("queueId") && !has("brokerName") {
        return refuse("Please set the brokerName before queueId!");
    }
    if has("offset") && !has("queueId") {
        return refuse("Please set queueId before offset!");
    }
    let (begin, end) = (given.time("beginTimestamp")?, given.time("endTimestamp")?);
    let now = text::now_ms();
    if begin.is_some_and(|begin| begin > now) {
        return refuse("Please set the beginTimestamp before now!");
    }
    if end.is_some_and(|end| end > now) {
        return refuse("Please set the endTimestamp before now!");
    }
    if let (Some(begin), Some(end)) = (begin, end)
        && begin > end
        && end >= 0
    {
        return refuse(
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        );
    }
    Ok(())
}

async fn consume(given: &Given) -> Outcome {
    check_consume(given)?;
    let (topic, broker) = (given.text("topic")?, given.optional("brokerName"));
    let most: usize = given.number("MessageNumber")?;
    let queue_id: Option<i32> = given.optional_number("queueId")?;
    let offset: Option<i64> = given.optional_number("offset")?;
    let group = given.text("consumerGroup")?;
    let route = given.admin.topic_route(topic).await?;
    let wanted = |queue: &&MessageQueue| {
        broker.is_none_or(|name| queue.broker_name == name)
            && queue_id.is_none_or(|id| queue.queue_id == id)
    };
    let queues: Vec<&MessageQueue> = route.readable.iter().filter(wanted).collect();
    if queues.is_empty() {
        return Err(no_such_queue(topic));
    }
    let (mut json, mut lines) = (Vec::new(), vec!["Consume ok".to_owned()]);
    for queue in queues {
        if json.len() >= most {
            break;
        }
        let mut span = span(given, queue).await?;
        if let Some(offset) = offset {
            span.from = offset;
        }
        let walk = Walk {
            queue,
            expression: Expression::Tags("*"),
            group,
            span,
        };
        walk.run(given, |message| {
            lines.push(message_line(&message, true));
            json.push(message_json(&message));
            Ok(json.len() < most)
        })
        .await?;
    }
    Ok(Report::new(json.into()).lines(lines))
}
