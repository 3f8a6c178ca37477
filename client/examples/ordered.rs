//! Messages of one order keep their order, however often a handler fails.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minimq_client::{Filter, Message, OrderedOutcome};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("ordered");
    let producer = client.producer("ordered-producer").build().await?;
    for step in ["created", "paid", "shipped"] {
        for order in 1..=4 {
            let key = format!("order-{order}");
            producer
                .send_keyed(&key, Message::new(&topic, step).key(&key))
                .await?;
        }
    }

    let seen: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let log = seen.clone();
    let consumer = client
        .push_consumer(common::own("ordered-consumer"))
        .subscribe(&topic, Filter::all())
        .start_from(common::START);
    let consumer = consumer
        .run_ordered(move |message| {
            let log = log.clone();
            async move {
                let order = message.keys().next().unwrap_or_default().to_owned();
                if order == "order-2" && message.attempts() == 0 {
                    return OrderedOutcome::SuspendFor(Duration::from_millis(20));
                }
                let step = String::from_utf8_lossy(message.body()).into_owned();
                println!("{order}: {step}");
                log.lock()
                    .expect("no handler panics")
                    .entry(order)
                    .or_default()
                    .push(step);
                OrderedOutcome::Done
            }
        })
        .await?;
    let count = || {
        seen.lock()
            .expect("no handler panics")
            .values()
            .map(Vec::len)
            .sum::<usize>()
    };
    common::wait_for("all steps are seen", || count() == 12).await?;
    consumer.shutdown().await;
    client.shutdown().await;
    let seen = seen.lock().expect("no handler panics");
    anyhow::ensure!(
        seen.values()
            .all(|steps| steps == &["created", "paid", "shipped"]),
        "out of order: {seen:?}"
    );
    Ok(())
}
