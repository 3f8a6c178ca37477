//! Sends a message and consumes it. `cargo run -p minimq-client --example quickstart`

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("quickstart");

    let producer = client.producer("quickstart-producer").build().await?;
    let receipt = producer
        .send(Message::new(&topic, "hello").tag("greeting").key("first"))
        .await?;
    println!(
        "stored {} in {} at offset {}",
        receipt.id, receipt.queue, receipt.queue_offset
    );

    let received = Arc::new(AtomicUsize::new(0));
    let counter = received.clone();
    let consumer = client
        .push_consumer(common::own("quickstart-consumer"))
        .subscribe(&topic, Filter::all())
        .start_from(common::START);
    let consumer = consumer
        .run(move |message| {
            println!(
                "received {}: {:?}, tag {:?}",
                message.id(),
                message.body(),
                message.tag()
            );
            counter.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .await?;
    common::wait_for("the message arrives", || {
        received.load(Ordering::Relaxed) == 1
    })
    .await?;
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
