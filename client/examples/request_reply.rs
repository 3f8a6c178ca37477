//! A question by message, and its answer.

mod common;

use std::time::Duration;

use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Two programs in one: who answers, and who asks.
    let (answering, asking) = (common::client().await?, common::client().await?);
    let topic = common::own("questions");
    let producer = answering.producer("answers-producer").build().await?;
    let consumer = answering
        .push_consumer(common::own("questions-consumer"))
        .subscribe(&topic, Filter::all())
        .start_from(common::START);
    let consumer = consumer
        .run(move |question| {
            let producer = producer.clone();
            async move {
                let answer = String::from_utf8_lossy(question.body()).to_uppercase();
                producer.reply(&question, answer).await.map(drop)
            }
        })
        .await?;

    let producer = asking.producer("questions-producer").build().await?;
    let reply = producer
        .request(
            Message::new(&topic, "how are you?"),
            Duration::from_secs(20),
        )
        .await?;
    println!("answer: {:?}", reply.body());
    anyhow::ensure!(reply.body() == "HOW ARE YOU?");
    consumer.shutdown().await;
    asking.shutdown().await;
    answering.shutdown().await;
    Ok(())
}
