//! Three transactions: one commits, one rolls back, one leaves it to the checker. Consumers see the committed ones only.

mod common;

use std::sync::{Arc, Mutex};

use minimq_client::{Filter, Message, TransactionState};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("transaction");
    let producer = client.producer(common::own("transaction-producer"));
    let producer = producer
        .transaction_checker(|message| async move {
            // A real checker looks into the database in which the transaction was made.
            println!("the broker asks about {:?}", message.body());
            TransactionState::Commit
        })
        .build()
        .await?;

    for (body, state) in [
        ("committed", TransactionState::Commit),
        ("rolled back", TransactionState::Rollback),
    ] {
        let (_, ended) = producer
            .send_in_transaction(Message::new(&topic, body), |_| async move { state })
            .await?;
        println!("{body}: {ended:?}");
    }
    let transaction = producer
        .begin(Message::new(&topic, "also committed"))
        .await?;
    transaction.commit().await?;

    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let consumer = client
        .push_consumer(common::own("transaction-consumer"))
        .subscribe(&topic, Filter::all())
        .start_from(common::START);
    let consumer = consumer
        .run(move |message| {
            log.lock()
                .expect("no handler panics")
                .push(String::from_utf8_lossy(message.body()).into_owned());
            async {}
        })
        .await?;
    common::wait_for("both arrive", || {
        seen.lock().expect("no handler panics").len() >= 2
    })
    .await?;
    consumer.shutdown().await;
    let mut seen = seen.lock().expect("no handler panics").clone();
    seen.sort();
    anyhow::ensure!(
        seen == ["also committed", "committed"],
        "consumed: {seen:?}"
    );
    client.shutdown().await;
    Ok(())
}
