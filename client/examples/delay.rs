//! A message that is delivered a second later than one sent after it.

mod common;

use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("delay");
    let producer = client.producer("delay-producer").build().await?;
    producer.send(Message::new(&topic, "at once")).await?;
    producer
        .send(Message::new(&topic, "a second later").delay_level(1))
        .await?;

    let consumer = client
        .pull_consumer(common::own("delay-consumer"))
        .subscribe(&topic, Filter::all());
    let consumer = consumer.start_from(common::START).start().await?;
    let mut messages = consumer.messages();
    for expected in ["at once", "a second later"] {
        let Some(message) = messages.next().await else {
            anyhow::bail!("the consumer ended")
        };
        println!(
            "{:?} after {} ms",
            message.body(),
            message.stored_ms() - message.born_ms()
        );
        anyhow::ensure!(message.body() == expected, "expected {expected:?}");
        message.ack();
    }
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
