//! Order, delay and transactions.

use std::time::{Duration, Instant};

use minimq_client::{Filter, Message, OrderedOutcome, StartFrom, TransactionState};

use super::seen::Seen;
use super::{Told, Tour, check, text};

/// The shortest delay.
const DELAY: Duration = Duration::from_secs(1);

fn body(message: &minimq_client::Delivery) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

impl Tour {
    pub(super) async fn ordered(&self) -> Told {
        let steps = ["created", "paid", "shipped"];
        let producer = self.client.producer("demo-orders-producer").build().await;
        let producer = producer.map_err(text)?;
        for step in steps {
            for order in ["order-1", "order-2"] {
                let message = Message::new("DemoOrders", step).key(order);
                producer.send_keyed(order, message).await.map_err(text)?;
            }
        }
        let seen = Seen::default();
        let log = seen.clone();
        let consumer = self
            .client
            .push_consumer("demo-orders")
            .subscribe("DemoOrders", Filter::all())
            .start_from(StartFrom::Beginning);
        let consumer = consumer
            .run_ordered(move |message| {
                let order = message.keys().next().unwrap_or_default().to_owned();
                let outcome = if order == "order-2" && message.attempts() == 0 {
                    OrderedOutcome::SuspendFor(Duration::from_millis(20))
                } else {
                    log.add((order, body(&message)));
                    OrderedOutcome::Done
                };
                async move { outcome }
            })
            .await
            .map_err(text)?;
        seen.wait(6).await?;
        consumer.shutdown().await;
        producer.shutdown().await;
        let all = seen.all();
        for order in ["order-1", "order-2"] {
            let its: Vec<&str> = all
                .iter()
                .filter(|(of, _)| of == order)
                .map(|(_, step)| step.as_str())
                .collect();
            check(its == steps, || format!("{order} came as {its:?}"))?;
        }
        Ok(
            "two orders were created, paid and shipped in that order, though each message of the second one failed once"
                .to_owned(),
        )
    }

    pub(super) async fn delay(&self) -> Told {
        let producer = self.client.producer("demo-delay-producer").build().await;
        let producer = producer.map_err(text)?;
        // The consumer is there before the messages.
        let first = producer.send(Message::new("DemoDelay", "first")).await;
        first.map_err(text)?;
        let seen = Seen::default();
        let log = seen.clone();
        let begin = Instant::now();
        let consumer = self
            .client
            .push_consumer("demo-delay")
            .subscribe("DemoDelay", Filter::all())
            .start_from(StartFrom::Beginning);
        let consumer = consumer
            .run(move |message| {
                log.add((begin.elapsed(), body(&message)));
                async {}
            })
            .await
            .map_err(text)?;
        seen.wait(1).await?;
        let sent = begin.elapsed();
        for message in [
            Message::new("DemoDelay", "later").delay_level(1),
            Message::new("DemoDelay", "now"),
        ] {
            producer.send(message).await.map_err(text)?;
        }
        seen.wait(3).await?;
        consumer.shutdown().await;
        producer.shutdown().await;
        let all = seen.all();
        let came: Vec<&str> = all.iter().map(|(_, body)| body.as_str()).collect();
        check(came == ["first", "now", "later"], || {
            format!("they came as {came:?}")
        })?;
        let after = all
            .last()
            .map_or(Duration::ZERO, |(at, _)| at.saturating_sub(sent));
        // The broker's clock has whole milliseconds.
        check(after + Duration::from_millis(10) >= DELAY, || {
            format!("a delay of 1 s took {} ms", after.as_millis())
        })?;
        Ok(format!(
            "a message with delay level 1 came after {} ms, behind one that was sent after it",
            after.as_millis()
        ))
    }

    pub(super) async fn transaction(&self) -> Told {
        let asked = Seen::default();
        let log = asked.clone();
        let producer = self
            .client
            .producer("demo-transactions-producer")
            .transaction_checker(move |message| {
                log.add(body(&message));
                async { TransactionState::Commit }
            })
            .build()
            .await
            .map_err(text)?;
        let topic = "DemoTransactions";
        for (what, state) in [
            ("committed", TransactionState::Commit),
            ("rolled back", TransactionState::Rollback),
            ("left open", TransactionState::Unknown),
        ] {
            let transaction = producer.begin(Message::new(topic, what)).await;
            let transaction = transaction.map_err(text)?;
            transaction.end(state).await.map_err(text)?;
        }
        let seen = Seen::default();
        let log = seen.clone();
        let consumer = self
            .client
            .push_consumer("demo-transactions")
            .subscribe(topic, Filter::all())
            .start_from(StartFrom::Beginning);
        let consumer = consumer
            .run(move |message| {
                log.add(body(&message));
                async {}
            })
            .await
            .map_err(text)?;
        seen.wait(2).await?;
        consumer.shutdown().await;
        producer.shutdown().await;
        check(seen.sorted() == ["committed", "left open"], || {
            format!("{:?} were delivered", seen.sorted())
        })?;
        check(asked.all().contains(&"left open".to_owned()), || {
            "the broker never asked about the open one".to_owned()
        })?;
        Ok("one committed and delivered, one rolled back and not; the broker asked about a third left open, then delivered it".to_owned())
    }
}
