//! Every member of a group gets every message.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minimq_client::{Client, Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let topic = common::own("news");
    let group = common::own("news-consumer");
    let folder = std::env::temp_dir().join(common::own("minimq-broadcast"));
    let received = Arc::new(AtomicUsize::new(0));
    let producing = common::client().await?;
    let producer = producing.producer("news-producer").build().await?;
    producer.send(Message::new(&topic, "first")).await?;

    let mut members = Vec::new();
    for member in 1..=3 {
        // One machine would have one folder; three members in one process need one each.
        let names = producing.name_servers().join(";");
        let client = Client::builder()
            .name_servers(names)
            .offset_dir(folder.join(member.to_string()))
            .build()
            .await?;
        let counter = received.clone();
        let consumer = client
            .push_consumer(&group)
            .subscribe(&topic, Filter::all())
            .broadcast(true)
            .start_from(common::START);
        let consumer = consumer
            .run(move |message| {
                println!("member {member}: {:?}", message.body());
                counter.fetch_add(1, Ordering::Relaxed);
                async {}
            })
            .await?;
        members.push((client, consumer));
    }
    producer.send(Message::new(&topic, "second")).await?;
    common::wait_for("all three get both", || {
        received.load(Ordering::Relaxed) == 6
    })
    .await?;
    for (client, consumer) in members {
        consumer.shutdown().await;
        client.shutdown().await;
    }
    producing.shutdown().await;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
