//! Many messages with few requests: batches made by hand, and batches made by size and time.

mod common;

use std::time::Duration;

use minimq_client::{Batching, Filter, Message, split_batch};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("batch");
    let batching = Batching {
        linger: Duration::from_millis(10),
        ..Batching::default()
    };
    let producer = client
        .producer("batch-producer")
        .batching(batching)
        .build()
        .await?;

    let messages = (0..500)
        .map(|n| Message::new(&topic, format!("by hand {n}")))
        .collect();
    let batches = split_batch(messages, 16 * 1024);
    println!("500 messages in {} batches", batches.len());
    for batch in batches {
        producer.send_batch(batch).await?;
    }

    let sends: Vec<_> = (0..500)
        .map(|n| {
            let (producer, message) = (
                producer.clone(),
                Message::new(&topic, format!("by itself {n}")),
            );
            tokio::spawn(async move { producer.send_batched(message).await })
        })
        .collect();
    for send in sends {
        send.await??;
    }

    let consumer = client
        .pull_consumer(common::own("batch-consumer"))
        .subscribe(&topic, Filter::all());
    let consumer = consumer.start_from(common::START).start().await?;
    let mut bodies = std::collections::BTreeSet::new();
    while bodies.len() < 1000 {
        let polled = consumer.poll(Duration::from_secs(20)).await?;
        anyhow::ensure!(!polled.is_empty(), "only {} messages came", bodies.len());
        bodies.extend(polled.iter().map(|message| message.body().clone()));
    }
    println!("all {} came", bodies.len());
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
