//! Messages as a stream, each acknowledged when it is done.

mod common;

use futures_util::StreamExt;
use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("stream");
    let producer = client.producer("stream-producer").build().await?;
    for n in 0..20 {
        producer.send(Message::new(&topic, format!("{n}"))).await?;
    }
    let consumer = client
        .pull_consumer(common::own("stream-consumer"))
        .subscribe(&topic, Filter::all());
    let consumer = consumer.start_from(common::START).start().await?;
    let mut bodies: Vec<String> = consumer
        .messages()
        .take(20)
        .map(|message| {
            let body = String::from_utf8_lossy(message.body()).into_owned();
            message.ack();
            body
        })
        .collect()
        .await;
    bodies.sort();
    bodies.dedup();
    println!("{} messages", bodies.len());
    anyhow::ensure!(bodies.len() == 20);
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
