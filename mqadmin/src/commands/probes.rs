//! Probes: messages sent to measure how long that takes.

use std::time::{Duration, Instant};

use minimq_client::{Message, MessageQueue, Producer, SendReceipt};
use serde_json::json;

use super::sending::status_name;
use crate::command::{CommandSpec, Kind, Outcome, default, long, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

/// Largest body of a probe, bytes.
const MAX_SIZE: usize = 4 << 20;
/// Most messages of one probe.
const MAX_COUNT: usize = 1_000_000;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "sendMsgStatus",
        about: "send msg to broker.",
        example: "sendMsgStatus -b broker-a -c 10",
        options: &[
            required(
                'b',
                "brokerName",
                "The broker's name; its own topic is used",
            ),
            default('s', "messageSize", "128", "Bytes of a message"),
            default('c', "count", "50", "Messages"),
        ],
        danger: None,
        run: |given| Box::pin(send_status(given)),
    },
    CommandSpec {
        name: "checkMsgSendRT",
        about: "check message send response time",
        example: "checkMsgSendRT -t Orders -a 10",
        options: &[
            required('t', "topic", "The topic; the messages stay in it"),
            default('a', "amount", "100", "Messages"),
            default('s', "size", "128", "Bytes of a message"),
        ],
        danger: None,
        run: |given| Box::pin(check_times(given)),
    },
    CommandSpec {
        name: "clusterRT",
        about: "List All clusters Message Send RT",
        example: "clusterRT -c DefaultCluster -a 10 --times 1",
        options: &[
            default('a', "amount", "100", "Messages to each broker in a round"),
            default('s', "size", "128", "Bytes of a message"),
            optional('c', "cluster", "Only this cluster"),
            default(
                'p',
                "print-log",
                "false",
                "As lines for a log: time|room|cluster|broker|ms",
            ),
            default('m', "machine-room", "noname", "The room that -p prints"),
            default('i', "interval", "10", "Seconds between rounds"),
            long("times", Kind::Optional, "So many rounds, then end"),
        ],
        danger: None,
        run: |given| Box::pin(super::repeat(given, "interval", move || round(given))),
    },
];

fn body(size: usize) -> Vec<u8> {
    vec![b'a'; size]
}

async fn producer(given: &Given) -> Result<Producer, Failure> {
    if given.dry_run {
        return Err(Failure::Usage(
            "a probe sends messages, so it has no dry run".to_owned(),
        ));
    }
    Ok(given
        .client
        .producer("MQADMIN_PROBE")
        .retries(0)
        .build()
        .await?)
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// A queue of a broker's own topic; its name serves where no broker has that name, as the stock tool does.
async fn own_queues(producer: &Producer, broker: &str) -> Result<Vec<MessageQueue>, Failure> {
    let mut queues = producer.queues(broker).await?;
    queues.retain(|queue| queue.broker_name == broker);
    Ok(queues)
}

async fn send_status(given: &Given) -> Outcome {
    let broker = given.text("brokerName")?;
    let size = given.number_in("messageSize", 0..=MAX_SIZE)?;
    let count = given.number_in("count", 1..=MAX_COUNT)?;
    let known = given.places(None).await?;
    if !known.iter().any(|place| place.broker == broker) {
        let mut names: Vec<&str> = known.iter().map(|place| place.broker.as_str()).collect();
        names.dedup();
        return Err(Failure::NotFound(format!(
            "no broker {broker}; known: {}",
            names.join(", ")
        )));
    }
    let producer = producer(given).await?;
    let queues = own_queues(&producer, broker).await?;
    let queue = queues
        .first()
        .ok_or_else(|| Failure::NotFound(format!("topic {broker} has no queue at {broker}")))?;
    // The first send makes the connection.
    producer
        .send_to(queue, Message::new(broker, body(size)))
        .await?;
    let (mut json, mut report) = (Vec::new(), Report::default());
    for _ in 0..count {
        let begin = Instant::now();
        match producer
            .send_to(queue, Message::new(broker, body(size)))
            .await
        {
            Ok(receipt) => {
                let rt = ms(begin.elapsed());
                json.push(json!({
                    "rtMs": rt, "status": status_name(receipt.status), "id": receipt.id,
                    "offsetId": receipt.offset_id, "queueId": receipt.queue.queue_id, "queueOffset": receipt.queue_offset,
                }));
                report = report.line(format!("rt={rt:.0}ms, SendResult={}", describe(&receipt)));
            }
            Err(error) => report = report.partly(error.to_string()),
        }
    }
    producer.shutdown().await;
    Ok(report.with_json(json.into()))
}

fn describe(receipt: &SendReceipt) -> String {
    format!(
        "SendResult [sendStatus={}, msgId={}, offsetMsgId={}, messageQueue={}, queueOffset={}]",
        status_name(receipt.status),
        receipt.id,
        receipt.offset_id,
        receipt.queue,
        receipt.queue_offset
    )
}

async fn check_times(given: &Given) -> Outcome {
    let topic = given.text("topic")?;
    let size = given.number_in("size", 0..=MAX_SIZE)?;
    let amount = given.number_in("amount", 1..=MAX_COUNT)?;
    let producer = producer(given).await?;
    let queues = producer.queues(topic).await?;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sum, mut counted) = (0.0, 0u32);
    for (at, queue) in queues.iter().cycle().take(amount).enumerate() {
        let begin = Instant::now();
        let sent = producer
            .send_to(queue, Message::new(topic, body(size)))
            .await;
        let rt = ms(begin.elapsed());
        let done = sent.is_ok();
        if let Err(error) = sent {
            missing.push(error.to_string());
        }
        // The first one makes the connection.
        if at > 0 {
            sum += rt;
            counted += 1;
        }
        json.push(json!({ "broker": queue.broker_name, "queueId": queue.queue_id, "sent": done, "rtMs": rt }));
        rows.push(vec![
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            done.to_string(),
            format!("{rt:.0}"),
        ]);
    }
    producer.shutdown().await;
    let average = (counted > 0).then(|| sum / f64::from(counted));
    let shown = average.map_or("NaN".to_owned(), |average| format!("{average:.2}"));
    Ok(Report::new(json!({ "sends": json, "averageMs": average }))
        .table(&["#Broker Name", "#QID", "#Send Result", "#RT"], rows)
        .line(format!("Avg RT: {shown}"))
        .missing(missing))
}

/// One round over all brokers.
async fn round(given: &Given) -> Outcome {
    let size = given.number_in("size", 0..=MAX_SIZE)?;
    let amount = given.number_in("amount", 1..=MAX_COUNT)?;
    let as_log = given.boolean("print-log")?;
    let room = given.text("machine-room")?;
    let mut places = given.places(given.optional("cluster")).await?;
    places.retain(|place| place.id == 0);
    let producer = producer(given).await?;
    let (mut rows, mut json, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for place in &places {
        let queues = own_queues(&producer, &place.broker).await;
        let (mut done, mut failed, mut sum) = (0u32, 0u32, 0.0);
        match queues {
            Ok(queues) => {
                for (at, queue) in queues.iter().cycle().take(amount).enumerate() {
                    let begin = Instant::now();
                    match producer
                        .send_to(queue, Message::new(&queue.topic, body(size)))
                        .await
                    {
                        Ok(_) => done += 1,
                        Err(error) => {
                            if failed == 0 {
                                missing.push(format!("{}: {error}", place.broker));
                            }
                            failed += 1;
                        }
                    }
                    if at > 0 || amount == 1 {
                        sum += ms(begin.elapsed());
                    }
                }
            }
            Err(failure) => missing.push(format!("{}: {}", place.broker, failure.describe())),
        }
        let counted = (amount as f64 - 1.0).max(1.0);
        let rt = sum / counted;
        json.push(json!({
            "cluster": place.cluster, "broker": place.broker, "rtMs": rt, "sent": done, "failed": failed,
        }));
        rows.push(if as_log {
            let now = crate::text::time_or_na(crate::text::now_ms());
            vec![format!(
                "{now}|{room}|{}|{}|{rt:.0}",
                place.cluster, place.broker
            )]
        } else {
            vec![
                place.cluster.clone(),
                place.broker.clone(),
                format!("{rt:.2}"),
                done.to_string(),
                failed.to_string(),
            ]
        });
    }
    producer.shutdown().await;
    let report = Report::new(json.into()).missing(missing);
    Ok(if as_log {
        report.lines(rows.into_iter().flatten())
    } else {
        let headings = [
            "#Cluster Name",
            "#Broker Name",
            "#RT",
            "#successCount",
            "#failCount",
        ];
        report.table(&headings, rows)
    })
}
