//! A consumer that wants two of three tags.

mod common;

use std::time::Duration;

use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("tags");
    let producer = client.producer("tags-producer").build().await?;
    for n in 0..9 {
        let tag = ["red", "green", "blue"][n % 3];
        producer
            .send(Message::new(&topic, format!("{n}")).tag(tag))
            .await?;
    }
    let consumer = client
        .pull_consumer(common::own("tags-consumer"))
        .subscribe(&topic, Filter::tags("red || blue"));
    let consumer = consumer.start_from(common::START).start().await?;
    let mut count = 0;
    while count < 6 {
        let polled = consumer.poll(Duration::from_secs(20)).await?;
        anyhow::ensure!(!polled.is_empty(), "only {count} messages came");
        for message in polled {
            println!("{:?} {:?}", message.tag(), message.body());
            anyhow::ensure!(message.tag() != Some("green"));
            count += 1;
        }
    }
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
