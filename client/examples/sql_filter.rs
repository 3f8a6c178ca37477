//! A consumer that wants messages by their properties. The broker has to allow it (`enablePropertyFilter=true`).

mod common;

use std::time::Duration;

use minimq_client::{Filter, Message};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("prices");
    let producer = client.producer("prices-producer").build().await?;
    for price in 1..=20 {
        producer
            .send(Message::new(&topic, format!("{price}")).property("price", price.to_string()))
            .await?;
    }
    let consumer = client
        .pull_consumer(common::own("prices-consumer"))
        .subscribe(&topic, Filter::sql("price > 15"));
    let consumer = consumer.start_from(common::START).start().await?;
    let mut count = 0;
    while count < 5 {
        let polled = consumer.poll(Duration::from_secs(20)).await?;
        anyhow::ensure!(!polled.is_empty(), "only {count} messages came");
        for message in polled {
            let price: i32 = message.property("price").unwrap_or_default().parse()?;
            println!("price {price}");
            anyhow::ensure!(price > 15);
            count += 1;
        }
    }
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
