//! Messages in and out of a topic by files and pipes: `send` and `consume`.

use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

use minimq_client::admin::Expression;
use minimq_client::{Delivery, Filter, Message, MessageQueue, Producer, SendReceipt, StartFrom};
use minimq_protocol::name::TOOLS_CONSUMER_GROUP;
use serde_json::json;

use super::message_files::{Described, next_line, open};
use super::printing::{Span, Walk};
use super::sending::PRODUCER_GROUP;
use super::shape::{message_json, message_line};
use crate::command::{CommandSpec, Kind, Opt, Outcome, default, long, optional, word};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::{Form, Report, print};

/// Messages in flight at once, and those told of by name in the report.
const CHUNK: usize = 256;
const TOLD: usize = 1000;
/// Largest message read from a file as a whole, bytes.
const MAX_BODY: u64 = 64 << 20;
const TOPIC: Opt = word("TOPIC", "The topic");

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "send",
        about: "Send messages from words, files or standard input",
        example: "send Orders first second\n  mqadmin send Orders --file orders.jsonl --each json",
        options: &[
            TOPIC,
            optional('p', "body", "One message with this body"),
            optional(
                'f',
                "file",
                "From this file; - or nothing, and no words behind the topic (each is a message): standard input",
            ),
            long(
                "each",
                Kind::Default("line"),
                "What a message is: line, json (as consume writes), or file",
            ),
            optional('k', "key", "Key of every message"),
            optional('c', "tags", "Tag of every message"),
            long(
                "property",
                Kind::Optional,
                "Properties of every message, name=value, several with ,",
            ),
            long(
                "delay",
                Kind::Optional,
                "Delay level of every message, 1 to 18",
            ),
            optional('b', "broker", "The broker's name, in file order"),
            optional('i', "qid", "The queue, with -b"),
        ],
        danger: None,
        run: |given| Box::pin(send(given)),
    },
    CommandSpec {
        name: "consume",
        about: "Read messages of a topic to standard output or a file",
        example: "consume Orders --each json --file orders.jsonl",
        options: &[
            TOPIC,
            optional(
                'g',
                "group",
                "Consumes as this group and stores its offsets; without it nothing is stored",
            ),
            default('s', "subExpression", "*", "Tags, as TagA || TagB"),
            optional('f', "file", "To this file instead of standard output"),
            long(
                "each",
                Kind::Default("text"),
                "How a message is written: text, body (and a line end), or json",
            ),
            default('c', "max", "0", "Messages at most; 0: no limit"),
            long(
                "idle",
                Kind::Default("2"),
                "With -g: ends after so many seconds without a message; 0: never",
            ),
        ],
        danger: None,
        run: |given| Box::pin(consume(given)),
    },
];

/// What every message of a `send` gets.
struct Common<'g> {
    topic: &'g str,
    key: Option<&'g str>,
    tag: Option<&'g str>,
    properties: Vec<(&'g str, &'g str)>,
    delay: Option<i32>,
}

impl<'g> Common<'g> {
    fn of(given: &'g Given) -> Result<Self, Failure> {
        let pairs = given.optional("property").unwrap_or_default();
        let pairs = pairs.split(',').filter(|pair| !pair.is_empty());
        let properties: Result<Vec<_>, Failure> = pairs
            .map(|pair| {
                pair.split_once('=').ok_or_else(|| {
                    Failure::Usage(format!(
                        "--property holds \"{pair}\", it must be name=value"
                    ))
                })
            })
            .collect();
        let delay = match given.optional("delay") {
            Some(_) => Some(given.number_in("delay", 1..=64)?),
            None => None,
        };
        Ok(Self {
            topic: given.text("TOPIC")?,
            key: given.optional("key"),
            tag: given.optional("tags"),
            properties: properties?,
            delay,
        })
    }

    fn add(&self, mut message: Message) -> Message {
        if let Some(key) = self.key {
            message = message.key(key);
        }
        if let Some(tag) = self.tag {
            message = message.tag(tag);
        }
        for (name, value) in &self.properties {
            message = message.property(*name, *value);
        }
        match self.delay {
            Some(level) => message.delay_level(level),
            None => message,
        }
    }
}

/// Gives the messages of the input one after the other.
struct Input<'g> {
    common: Common<'g>,
    each: &'g str,
    source: Option<Box<dyn BufRead>>,
    /// Messages given on the command line.
    words: std::vec::IntoIter<&'g str>,
    line: u64,
}

impl<'g> Input<'g> {
    fn of(given: &'g Given) -> Result<Self, Failure> {
        let each = given.text("each")?;
        if !["line", "json", "file"].contains(&each) {
            return Err(Failure::Usage(format!(
                "--each is \"{each}\", it must be line, json or file"
            )));
        }
        let words: Vec<&str> = given
            .verbatim("body")
            .into_iter()
            .chain(given.words())
            .collect();
        let source = match given.optional("file") {
            Some(_) if !words.is_empty() => {
                return Err(Failure::Usage(
                    "give messages as words or with --file, not both".to_owned(),
                ));
            }
            None if !words.is_empty() => None,
            file => Some(open(file.unwrap_or("-"))?),
        };
        Ok(Self {
            common: Common::of(given)?,
            each,
            source,
            words: words.into_iter(),
            line: 0,
        })
    }

    fn next(&mut self) -> Result<Option<Message>, Failure> {
        let topic = self.common.topic;
        if let Some(body) = self.words.next() {
            return Ok(Some(self.common.add(Message::new(topic, body.to_owned()))));
        }
        let Some(source) = self.source.as_mut() else {
            return Ok(None);
        };
        if self.each == "file" {
            let mut body = Vec::new();
            source
                .take(MAX_BODY)
                .read_to_end(&mut body)
                .map_err(|error| Failure::io("cannot read the message", error))?;
            self.source = None;
            return Ok(Some(self.common.add(Message::new(topic, body))));
        }
        loop {
            let Some(line) = next_line(source.as_mut())? else {
                return Ok(None);
            };
            self.line += 1;
            // An empty line is no message: the broker refuses empty bodies.
            if line.is_empty() {
                continue;
            }
            let message = match self.each {
                "json" => Described::read(&line)
                    .map_err(|why| Failure::Usage(format!("line {}: {why}", self.line)))?
                    .message(topic),
                _ => Message::new(topic, line),
            };
            return Ok(Some(self.common.add(message)));
        }
    }
}

async fn send(given: &Given) -> Outcome {
    let mut input = Input::of(given)?;
    let topic = input.common.topic;
    let queue_id: Option<i32> = given.optional_number("qid")?;
    let queue = match (given.optional("broker"), queue_id) {
        (Some(broker), id) => Some(MessageQueue::new(topic, broker, id.unwrap_or(0))),
        (None, Some(_)) => {
            return Err(Failure::Usage(
                "Broker name must be set if the queue is chosen!".to_owned(),
            ));
        }
        (None, None) => None,
    };
    if given.dry_run {
        let (mut count, mut bytes) = (0u64, 0);
        while let Some(message) = input.next()? {
            count += 1;
            bytes += message.body().len();
        }
        return Ok(
            Report::new(json!({ "dryRun": true, "messages": count, "bytes": bytes })).line(
                format!("would send {count} messages of {bytes} bytes to {topic}"),
            ),
        );
    }
    let producer = given.client.producer(PRODUCER_GROUP).build().await?;
    let begin = Instant::now();
    let (mut sent, mut ids, mut failed) = (0u64, Vec::new(), Vec::new());
    let mut wrong = None;
    loop {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            match input.next() {
                Ok(Some(message)) => chunk.push(message),
                Ok(None) => break,
                // What was read before is sent.
                Err(failure) => {
                    wrong = Some(failure);
                    break;
                }
            }
        }
        if chunk.is_empty() {
            break;
        }
        for outcome in send_all(given, &producer, queue.as_ref(), chunk).await {
            match outcome {
                Ok(receipt) => {
                    sent += 1;
                    if ids.len() < TOLD {
                        ids.push(receipt.id);
                    }
                }
                Err(error) => failed.push(error),
            }
        }
        if wrong.is_some() {
            break;
        }
    }
    producer.shutdown().await;
    match (wrong, failed.pop()) {
        (Some(failure), _) if sent == 0 => Err(failure),
        (_, Some(error)) if sent == 0 => Err(error.into()),
        (wrong, last) => {
            let ms = begin.elapsed().as_millis() as u64;
            let count = failed.len() + usize::from(last.is_some());
            let mut report = Report::new(json!({
                "topic": topic, "sent": sent, "failed": count, "ms": ms, "ids": ids,
            }))
            .line(format!("{sent} messages sent to {topic} in {ms} ms"));
            if let Some(error) = last {
                report =
                    report.partly(format!("{count} messages were not sent, the last: {error}"));
            }
            if let Some(failure) = wrong {
                report = report.partly(format!("stopped there: {}", failure.describe()));
            }
            Ok(report)
        }
    }
}

/// To a queue one after the other, else many at once.
async fn send_all(
    given: &Given,
    producer: &Producer,
    queue: Option<&MessageQueue>,
    messages: Vec<Message>,
) -> Vec<Result<SendReceipt, minimq_client::Error>> {
    match queue {
        Some(queue) => {
            let mut outcomes = Vec::new();
            for message in messages {
                outcomes.push(producer.send_to(queue, message).await);
            }
            outcomes
        }
        None => {
            given
                .all(&messages, |message| producer.send(message.clone()))
                .await
        }
    }
}

/// Where consumed messages go.
struct Output<'g> {
    file: Option<std::io::BufWriter<std::fs::File>>,
    each: &'g str,
    written: u64,
    most: u64,
}

impl<'g> Output<'g> {
    fn of(given: &'g Given) -> Result<Self, Failure> {
        let each = match (given.text("each")?, given.form) {
            ("text", Form::Json) => "json",
            (each @ ("text" | "body" | "json"), _) => each,
            (each, _) => {
                return Err(Failure::Usage(format!(
                    "--each is \"{each}\", it must be text, body or json"
                )));
            }
        };
        let file = match given.optional("file").filter(|path| *path != "-") {
            Some(path) => Some(std::io::BufWriter::new(
                std::fs::File::create(path)
                    .map_err(|error| Failure::io(format!("cannot write {path}"), error))?,
            )),
            None => None,
        };
        Ok(Self {
            file,
            each,
            written: 0,
            most: match given.number("max")? {
                0 => u64::MAX,
                most => most,
            },
        })
    }

    fn is_full(&self) -> bool {
        self.written >= self.most
    }

    fn write(&mut self, message: &Delivery) -> Result<(), Failure> {
        let mut bytes = match self.each {
            "body" => message.body().to_vec(),
            "json" => message_json(message).to_string().into_bytes(),
            _ => message_line(message, true).into_bytes(),
        };
        bytes.push(b'\n');
        self.written += 1;
        match &mut self.file {
            Some(file) => file
                .write_all(&bytes)
                .map_err(|error| Failure::io("cannot write the message", error)),
            None if self.each == "body" => std::io::stdout()
                .lock()
                .write_all(&bytes)
                .map_err(|_| Failure::ReaderGone),
            None => print(&String::from_utf8_lossy(&bytes)),
        }
    }

    fn finish(mut self, given: &Given) -> Outcome {
        let Some(file) = &mut self.file else {
            return Ok(Report::shown());
        };
        file.flush()
            .map_err(|error| Failure::io("cannot write the last messages", error))?;
        let path = given.text("file")?;
        Ok(
            Report::new(json!({ "file": path, "messages": self.written }))
                .line(format!("{} messages written to {path}", self.written)),
        )
    }
}

async fn consume(given: &Given) -> Outcome {
    let topic = given.text("TOPIC")?;
    let tags = given.text("subExpression")?;
    let idle: f64 = given.number("idle")?;
    if !(0.0..=86_400.0).contains(&idle) {
        return Err(Failure::Usage(format!(
            "--idle is {idle}, it must be from 0 to 86400 seconds"
        )));
    }
    let route = given.admin.topic_route(topic).await?;
    let mut output = Output::of(given)?;
    let Some(group) = given.optional("group") else {
        for queue in route.readable.iter() {
            let (min, max) = (
                given.admin.min_offset(queue).await?,
                given.admin.max_offset(queue).await?,
            );
            let walk = Walk {
                queue,
                expression: Expression::Tags(tags),
                group: TOOLS_CONSUMER_GROUP,
                span: Span::all(min, max),
            };
            walk.run(given, |message| {
                if output.is_full() {
                    return Ok(false);
                }
                output.write(&message)?;
                Ok(!output.is_full())
            })
            .await?;
        }
        return output.finish(given);
    };
    if given.dry_run {
        return Ok(Report::done(format!(
            "would consume {topic} as group {group}"
        )));
    }
    let consumer = given
        .client
        .pull_consumer(group)
        .start_from(StartFrom::Beginning)
        .subscribe(topic, Filter::tags(tags))
        .auto_commit(false)
        .max_polled(1)
        .start()
        .await?;
    let idle = match idle {
        0.0 => Duration::MAX,
        seconds => Duration::from_secs_f64(seconds),
    };
    let mut last = Instant::now();
    while !output.is_full() && last.elapsed() < idle {
        for message in consumer.poll(Duration::from_millis(200)).await? {
            output.write(&message)?;
            last = Instant::now();
        }
        // Only what was written is finished.
        consumer.commit().await?;
    }
    consumer.shutdown().await;
    output.finish(given)
}
