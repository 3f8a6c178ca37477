//! Messages when we want them: poll, commit, seek, pause.

mod common;

use std::time::Duration;

use minimq_client::Message;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("polled");
    let producer = client.producer("polled-producer").build().await?;
    let queue = producer.send(Message::new(&topic, "0")).await?.queue;
    for n in 1..10 {
        producer
            .send_to(&queue, Message::new(&topic, format!("{n}")))
            .await?;
    }
    let consumer = client
        .pull_consumer(common::own("polled-consumer"))
        .assign([queue.clone()])
        .start_from(common::START);
    let consumer = consumer.auto_commit(false).max_polled(4).start().await?;

    let first = consumer.poll(Duration::from_secs(20)).await?;
    println!("polled {}", first.len());
    anyhow::ensure!(
        first
            .first()
            .is_some_and(|message| message.queue_offset() == 0),
        "it begins at the beginning"
    );
    consumer.commit().await?;
    let committed = consumer.committed(&queue).await?;
    println!("committed {committed:?}");
    anyhow::ensure!(committed == Some(first.len() as i64));

    consumer.seek(&queue, 8).await?;
    let next = consumer.poll(Duration::from_secs(20)).await?;
    anyhow::ensure!(
        next.first()
            .is_some_and(|message| message.queue_offset() == 8),
        "it goes on at 8"
    );
    consumer.pause(std::slice::from_ref(&queue))?;
    consumer.resume(std::slice::from_ref(&queue))?;
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
