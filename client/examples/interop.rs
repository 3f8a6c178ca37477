//! One end of a pair with a stock client: `interop NAMESRV pair-send|pair-receive... topic=NAME`. `tests/interop` runs it.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use minimq_client::{Client, Delivery, Filter, Message, PushConsumer};

const COUNT: usize = 20;

/// Every fifth one is long, and so compressed.
fn body(n: usize) -> String {
    match n % 5 {
        0 => format!("press {n}, ").repeat(2_000),
        _ => format!("Grüße, 你好, 🦀 {n}"),
    }
}

async fn send(client: &Client, topic: &str) -> Result<()> {
    let producer = client.producer(common::own("P")).build().await?;
    for n in 0..COUNT {
        let message = Message::new(topic, body(n))
            .tag(format!("T{}", n % 3))
            .key(format!("key-{n}"))
            .key("all")
            .property("n", n.to_string())
            .property("名前", format!("値 & = {n}"));
        producer.send(message).await?;
    }
    Ok(())
}

/// What came, by the property `n`.
type Inbox = Arc<Mutex<BTreeMap<usize, Vec<Delivery>>>>;

async fn consume(client: &Client, topic: &str, tags: &str) -> Result<(PushConsumer, Inbox)> {
    let inbox = Inbox::default();
    let log = inbox.clone();
    let consumer = client
        .push_consumer(common::own("GPair"))
        .subscribe(topic, Filter::tags(tags))
        .start_from(common::START);
    let consumer = consumer
        .run(move |message: Delivery| {
            let n = message.property("n").and_then(|n| n.parse().ok());
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.entry(n.unwrap_or(usize::MAX))
                .or_default()
                .push(message);
            async {}
        })
        .await?;
    Ok((consumer, inbox))
}

fn arrived(inbox: &Inbox) -> usize {
    inbox.lock().unwrap_or_else(PoisonError::into_inner).len()
}

async fn receive(client: &Client, topic: &str) -> Result<()> {
    let (everything, all) = consume(client, topic, "*").await?;
    let (tagged, some) = consume(client, topic, "T1 || T2").await?;
    let wanted = (0..COUNT).filter(|n| n % 3 != 0).count();
    common::wait_for("all messages", || {
        arrived(&all) == COUNT && arrived(&some) == wanted
    })
    .await?;
    everything.shutdown().await;
    tagged.shutdown().await;
    let (all, some) = (
        all.lock().unwrap_or_else(PoisonError::into_inner),
        some.lock().unwrap_or_else(PoisonError::into_inner),
    );
    for n in 0..COUNT {
        let [message] = &all[&n][..] else {
            bail!("message {n} came {} times", all[&n].len());
        };
        ensure!(message.body() == body(n).as_bytes(), "body of message {n}");
        let tag = format!("T{}", n % 3);
        ensure!(message.tag() == Some(&*tag), "tag of message {n}");
        let keys: Vec<&str> = message.keys().collect();
        ensure!(
            keys == [&*format!("key-{n}"), "all"],
            "keys of message {n}: {keys:?}"
        );
        let property = format!("値 & = {n}");
        ensure!(
            message.property("名前") == Some(&*property),
            "property of message {n}"
        );
        let passes = some.get(&n).map_or(0, Vec::len);
        ensure!(
            passes == usize::from(n % 3 != 0),
            "message {n} passed {passes} times"
        );
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let namesrv = words
        .next()
        .context("usage: interop NAMESRV SUITE... topic=NAME")?;
    let (options, suites): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
    let topic = options
        .iter()
        .find_map(|option| option.strip_prefix("topic="));
    let topic = topic.context("the option topic is missing")?;
    let client = Client::connect(namesrv).await?;
    let (mut passed, mut failed) = (0, 0);
    for suite in &suites {
        let work = async {
            match suite.as_str() {
                "pair-send" => send(&client, topic).await,
                "pair-receive" => receive(&client, topic).await,
                _ => bail!("no such suite"),
            }
        };
        match tokio::time::timeout(Duration::from_secs(60), work).await {
            Ok(Ok(())) => {
                passed += 1;
                println!("ok {suite}");
            }
            ended => {
                failed += 1;
                println!("FAILED {suite}: {ended:?}");
            }
        }
    }
    client.shutdown().await;
    println!("{passed} passed, {failed} failed");
    std::process::exit(i32::from(failed > 0 || passed == 0));
}
