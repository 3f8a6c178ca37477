//! Producers and consumers as most tests begin them.

use std::time::Duration;

use minimq_client::{
    Client, Delivery, Filter, Producer, PushConsumer, PushConsumerBuilder, StartFrom,
};

use super::Seen;

/// A producer that does not give up while a busy machine or a restart makes it wait.
pub async fn producer(client: &Client, group: &str) -> Producer {
    client
        .producer(group)
        .timeout(Duration::from_secs(20))
        .build()
        .await
        .unwrap()
}

/// A consumer of all messages that there are.
pub fn reading(client: &Client, group: &str, topic: &str) -> PushConsumerBuilder {
    client
        .push_consumer(group)
        .subscribe(topic, Filter::all())
        .start_from(StartFrom::Beginning)
}

/// A handler that writes down what it gets.
pub fn writing(seen: &Seen) -> impl Fn(Delivery) -> std::future::Ready<()> + Send + Sync + 'static {
    let seen = seen.clone();
    move |message| {
        seen.add(&message);
        std::future::ready(())
    }
}

/// A consumer that writes down what passes its filter.
pub async fn counting(
    client: &Client,
    group: &str,
    topic: &str,
    filter: Filter,
    seen: &Seen,
) -> PushConsumer {
    reading(client, group, topic)
        .subscribe(topic, filter)
        .run(writing(seen))
        .await
        .unwrap()
}
