//! What the client itself costs, measured against a cluster that is up (`NAMESRV_ADDR`, or 127.0.0.1:9876):
//!
//! `cargo bench -p minimq-client -- send|batched|consume|idle|latency|wake [SECONDS]`
//!
//! `send`: 1 KiB messages, 512 under way, on one connection: rate and processor time (`HEADERS=ROCKETMQ`: binary ones).
//! `batched`: the same, 4096 under way, put together by size and time. `consume`: what was sent in so many seconds, by a
//! handler that is ready at once. `wake`: a plain socket plays the whole cluster;
//! from its answer to a pull it held, to the handler. `idle`: a consumer of 100 queues that
//! gets nothing. `latency`: one message at a time, from the send to the handler.

mod stub;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::stream::{FuturesUnordered, StreamExt};
use minimq_client::{
    Batching, Client, Delivery, Filter, Message, Producer, SendReceipt, SerializeType, StartFrom,
};
use minimq_protocol::body::TopicConfig;
use parking_lot::Mutex;

const UNDER_WAY: u32 = 512;
const TASKS: u32 = 4;

/// Processor time of this process so far, seconds.
fn cpu() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn threads() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("Threads:"));
    Ok(line.context("no line Threads")?.to_owned())
}

/// A topic of this run's own.
async fn topic(client: &Client, queues: i32) -> Result<String> {
    let topic = format!("client-bench-{}-{queues}", std::process::id());
    let admin = client.admin();
    let config = TopicConfig {
        read_queue_nums: queues,
        write_queue_nums: queues,
        ..TopicConfig::new(&topic)
    };
    for (_, addr) in admin.brokers_of("TBW102").await? {
        admin.create_topic(&addr, &config).await?;
    }
    for _ in 0..1000 {
        if client.route(&topic).await.is_ok() {
            return Ok(topic);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("no route of {topic}")
}

/// Sends, so many under way, until `end`; how many messages that were.
async fn many<F>(send: impl Fn() -> F, under_way: usize, end: Instant) -> minimq_client::Result<u64>
where
    F: Future<Output = minimq_client::Result<SendReceipt>>,
{
    let mut answers = FuturesUnordered::new();
    let mut count = 0;
    loop {
        let open = Instant::now() < end;
        while open && answers.len() < under_way {
            answers.push(send());
        }
        match answers.next().await {
            Some(sent) => sent?,
            None => return Ok(count),
        };
        count += 1;
    }
}

async fn send(client: &Client, seconds: Duration, batched: bool) -> Result<()> {
    let topic = topic(client, 8).await?;
    let under_way = if batched { 8 * UNDER_WAY } else { UNDER_WAY };
    let mut producer = client.producer("client-bench").max_in_flight(under_way);
    if batched {
        producer = producer.batching(Batching::default());
    }
    let producer = producer.build().await?;
    let body = bytes::Bytes::from(vec![b'x'; 1024]);
    let run = async |time: Duration| {
        let end = Instant::now() + time;
        let tasks = (0..TASKS).map(|_| {
            let (producer, topic, body) = (producer.clone(), topic.clone(), body.clone());
            tokio::spawn(async move {
                let under_way = usize::try_from(under_way / TASKS).unwrap_or(1);
                let message = || Message::new(&*topic, body.clone());
                if batched {
                    many(|| producer.send_batched(message()), under_way, end).await
                } else {
                    many(|| producer.send(message()), under_way, end).await
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let mut count = 0;
        for task in tasks {
            count += task.await??;
        }
        Ok::<u64, anyhow::Error>(count)
    };
    run(Duration::from_secs(1)).await?;
    let (begun, before) = (Instant::now(), cpu()?);
    let count = run(seconds).await? as f64;
    let (time, used) = (begun.elapsed().as_secs_f64(), cpu()? - before);
    println!(
        "send 1 KiB, one connection, {under_way} under way{}: {:.0} messages/s, {:.0} % of a core, {:.2} CPU seconds a million",
        if batched { ", in batches" } else { "" },
        count / time,
        100.0 * used / time,
        1e6 * used / count
    );
    println!("{}", threads()?);
    Ok(())
}

async fn consume(client: &Client, seconds: Duration) -> Result<()> {
    let topic = topic(client, 8).await?;
    let producer = client
        .producer("client-bench")
        .batching(Batching::default());
    let producer = producer.build().await?;
    let (body, end) = (
        bytes::Bytes::from(vec![b'x'; 1024]),
        Instant::now() + seconds,
    );
    let message = || Message::new(&*topic, body.clone());
    let count = many(|| producer.send_batched(message()), 4096, end).await?;
    let arrived = Arc::new(AtomicU64::new(0));
    let handled = arrived.clone();
    let (begun, before) = (Instant::now(), cpu()?);
    let consumer = client
        .push_consumer("client-bench-consume")
        .subscribe(&topic, Filter::all())
        .start_from(StartFrom::Beginning)
        .run(move |_| {
            handled.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .await?;
    while arrived.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (time, used) = (begun.elapsed().as_secs_f64(), cpu()? - before);
    println!(
        "consume 1 KiB, {count} messages of 8 queues: {:.0} messages/s, {:.0} % of a core, {:.2} CPU seconds a million",
        count as f64 / time,
        100.0 * used / time,
        1e6 * used / count as f64
    );
    consumer.shutdown().await;
    Ok(())
}

async fn idle(client: &Client, seconds: Duration) -> Result<()> {
    let topic = topic(client, 100).await?;
    let consumer = client
        .push_consumer("client-bench-idle")
        .subscribe(&topic, Filter::all())
        .run(|_| async {})
        .await?;
    while consumer.assignment().len() < 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (begun, before) = (Instant::now(), cpu()?);
    tokio::time::sleep(seconds.max(Duration::from_secs(30))).await;
    let (time, used) = (begun.elapsed().as_secs_f64(), cpu()? - before);
    println!(
        "idle consumer of 100 queues for {time:.0} s: {:.2} % of a core",
        100.0 * used / time
    );
    println!("{}", threads()?);
    consumer.shutdown().await;
    Ok(())
}

async fn one_way_trip(producer: &Producer, topic: &str, arrived: &AtomicU64, n: u64) -> Result<()> {
    producer.send(Message::new(topic, n.to_string())).await?;
    while arrived.load(Ordering::Acquire) < n {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Ok(())
}

async fn latency(client: &Client, seconds: Duration) -> Result<()> {
    let topic = topic(client, 1).await?;
    let arrived = Arc::new(AtomicU64::new(0));
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (last, log) = (arrived.clone(), times.clone());
    let consumer = client
        .push_consumer("client-bench-latency")
        .subscribe(&topic, Filter::all())
        .start_from(StartFrom::Beginning)
        .run(move |message: Delivery| {
            log.lock().push(Instant::now());
            let n = std::str::from_utf8(message.body()).ok();
            last.store(
                n.and_then(|n| n.parse().ok()).unwrap_or(0),
                Ordering::Release,
            );
            async {}
        })
        .await?;
    let producer = client.producer("client-bench-latency").build().await?;
    one_way_trip(&producer, &topic, &arrived, 1).await?;
    times.lock().clear();
    let (mut took, end) = (Vec::new(), Instant::now() + seconds);
    let mut n = 1;
    while Instant::now() < end {
        n += 1;
        // The pull is held again by then: what is measured is the wake-up.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let begun = Instant::now();
        one_way_trip(&producer, &topic, &arrived, n).await?;
        let handled = times.lock().last().copied().context("a handler ran")?;
        took.push(handled.saturating_duration_since(begun));
    }
    println!(
        "from the send to the handler, {} messages: {} (send, store, wake-up and pull answer together)",
        took.len(),
        percentiles(&mut took)
    );
    consumer.shutdown().await;
    Ok(())
}

async fn wake(seconds: Duration) -> Result<()> {
    let stub = stub::Stub::start()?;
    let client = Client::connect(stub.addr.to_string()).await?;
    stub.member(client.client_id());
    let (handled, mut handles) = tokio::sync::mpsc::unbounded_channel();
    let consumer = client
        .push_consumer("client-bench-wake")
        .subscribe(stub::TOPIC, Filter::all())
        .start_from(StartFrom::Beginning)
        .run(move |_| {
            let _ = handled.send(Instant::now());
            async {}
        })
        .await?;
    let (mut took, end) = (Vec::new(), Instant::now() + seconds);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let Some(written) = stub.deliver()? else {
            continue;
        };
        let handled = handles.recv().await.context("a handler ran")?;
        took.push(handled.saturating_duration_since(written));
    }
    println!(
        "from the broker's answer to the handler, {} messages: {}",
        took.len(),
        percentiles(&mut took)
    );
    consumer.shutdown().await;
    Ok(())
}

fn percentiles(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |part: usize| {
        let at = took.get(took.len() * part / 100);
        at.copied().unwrap_or_default()
    };
    format!("p50 {:?}, p99 {:?}", at(50), at(99))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    words.retain(|word| word != "--bench");
    let mode = words.first().map_or("", String::as_str);
    let seconds = words.get(1).map_or(Ok(5), |word| word.parse())?;
    let seconds = Duration::from_secs(seconds);
    let addr = std::env::var("NAMESRV_ADDR").unwrap_or_else(|_| "127.0.0.1:9876".to_owned());
    if mode == "wake" {
        return wake(seconds).await;
    }
    let mut client = Client::builder().name_servers(addr);
    if std::env::var("HEADERS").is_ok_and(|name| name == "ROCKETMQ") {
        client = client.header_encoding(SerializeType::Rocketmq);
    }
    let client = client.build().await?;
    match mode {
        "send" => send(&client, seconds, false).await?,
        "batched" => send(&client, seconds, true).await?,
        "consume" => consume(&client, seconds).await?,
        "idle" => idle(&client, seconds).await?,
        "latency" => latency(&client, seconds).await?,
        _ => println!(
            "usage: cargo bench -p minimq-client -- send|batched|consume|idle|latency|wake [SECONDS]"
        ),
    }
    client.shutdown().await;
    Ok(())
}
