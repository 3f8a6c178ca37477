//! A small application, and a test of it on a cluster of its own: `cargo test --example orders`.
//! Run against a real one: `cargo run --example orders -- 127.0.0.1:9876`.

use std::time::Duration;

use minimq_client::{Client, Filter, Message, Result, StartFrom};

/// The application: sends orders and adds up the amounts that it receives, until `count` are there.
async fn total(name_server: &str, orders: &[u64]) -> Result<u64> {
    let client = Client::connect(name_server).await?;
    let producer = client.producer("orders-producer").build().await?;
    for amount in orders {
        let order = Message::new("orders", amount.to_string()).tag("new");
        producer.send(order).await?;
    }
    let consumer = client
        .pull_consumer("orders-totals")
        .subscribe("orders", Filter::tags("new"))
        .start_from(StartFrom::Beginning)
        .start()
        .await?;
    let (mut count, mut total) = (0, 0);
    while count < orders.len() {
        for order in consumer.poll(Duration::from_secs(5)).await? {
            let amount = String::from_utf8_lossy(order.body());
            total += amount.parse::<u64>().unwrap_or(0);
            count += 1;
        }
    }
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(total)
}

#[tokio::main]
async fn main() -> Result<()> {
    let name_server = std::env::args().nth(1);
    let name_server = name_server.unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    println!("total: {}", total(&name_server, &[5, 10, 27]).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_orders_add_up() {
        // Free ports, a temporary folder; gone at the end of the test.
        let cluster = minimq::Cluster::builder().start().await.unwrap();
        assert_eq!(total(cluster.name_server(), &[1, 2, 3]).await.unwrap(), 6);
    }
}
