//! Topic, messages, route, lag, statistics.

use std::time::Duration;

use minimq_client::{Filter, Message, StartFrom};
use minimq_protocol::Command;
use minimq_protocol::body::{FilterServerStats, FilterStats, TopicConfig};
use minimq_protocol::code::request;

use super::filters::{EVERY_THIRD, FILTERED};
use super::seen::{Seen, sequence_id};
use super::{MESSAGES, TOPIC, Told, Tour, check, text, until};

/// Messages that are sent while a group is away.
const MORE: u32 = 20;

impl Tour {
    pub(super) fn parts(&self, ready: Duration) -> String {
        let cluster = &self.cluster;
        format!(
            "name server {}, broker {}, filter servers {}: ready in {} ms",
            cluster.name_server(),
            cluster.brokers().join(", "),
            cluster.filter_servers().join(", "),
            ready.as_millis()
        )
    }

    pub(super) async fn topic(&self) -> Told {
        let admin = self.client.admin();
        let config = TopicConfig {
            read_queue_nums: 4,
            write_queue_nums: 4,
            ..TopicConfig::new(TOPIC)
        };
        let brokers = admin
            .create_topic_in_cluster("DefaultCluster", &config)
            .await
            .map_err(text)?;
        until("the name server knows the topic", async || {
            self.client.route(TOPIC).await.ok()
        })
        .await?;
        Ok(format!("{TOPIC} has 4 queues at {}", brokers.join(", ")))
    }

    pub(super) async fn send(&self) -> Told {
        self.send_numbered(0..MESSAGES).await?;
        Ok(format!(
            "{MESSAGES} messages with the properties SequenceId 0 … 99 and price, twice that"
        ))
    }

    async fn send_numbered(&self, numbers: std::ops::Range<u32>) -> Result<(), String> {
        let producer = self.client.producer("demo-producer").build().await;
        let producer = producer.map_err(text)?;
        for n in numbers {
            let message = Message::new(TOPIC, format!("message {n}"))
                .property("SequenceId", n.to_string())
                .property("price", (2 * n).to_string());
            producer.send(message).await.map_err(text)?;
        }
        producer.shutdown().await;
        Ok(())
    }

    pub(super) async fn route(&self) -> Told {
        let admin = self.client.admin();
        let mut wanted = self.cluster.filter_servers().to_vec();
        wanted.sort();
        let route = until("the route names both filter servers", async || {
            let route = admin.topic_route(TOPIC).await.ok()?;
            let mut listed: Vec<String> = route
                .data
                .filter_server_table
                .values()
                .flatten()
                .cloned()
                .collect();
            listed.sort();
            (listed == wanted).then_some(route)
        })
        .await?;
        check(route.readable.len() == 4, || {
            format!("{} queues instead of 4", route.readable.len())
        })?;
        Ok(format!(
            "{TOPIC} is read from 4 queues of broker-a, filtered at {}",
            wanted.join(" or ")
        ))
    }

    /// How many messages of the topic a group has not passed.
    async fn lag_of(&self, group: &str) -> Result<i64, String> {
        let stats = self.client.admin().consume_stats(group, Some(TOPIC)).await;
        let queues = stats.map_err(text)?.offset_table.into_values();
        Ok(queues
            .map(|queue| queue.broker_offset - queue.consumer_offset)
            .sum())
    }

    pub(super) async fn lag(&self) -> Told {
        self.send_numbered(MESSAGES..MESSAGES + MORE).await?;
        // The broker tells of a message a moment after it has taken it.
        let more = i64::from(MORE);
        until("the group lags by what was sent", async || {
            self.lag_of(FILTERED).await.ok().filter(|lag| *lag == more)
        })
        .await?;
        let seen = Seen::default();
        let log = seen.clone();
        let consumer = self
            .client
            .push_consumer(FILTERED)
            .subscribe(TOPIC, Filter::wasm(EVERY_THIRD))
            .start_from(StartFrom::Beginning);
        let consumer = consumer
            .run(move |message| {
                log.add(sequence_id(&message));
                async {}
            })
            .await
            .map_err(text)?;
        until("the lag is gone", async || {
            consumer.commit().await;
            self.lag_of(FILTERED).await.ok().filter(|lag| *lag == 0)
        })
        .await?;
        consumer.shutdown().await;
        let wanted = [102, 105, 108, 111, 114, 117];
        check(seen.sorted() == wanted, || {
            format!("{FILTERED} got {:?} instead of {wanted:?}", seen.sorted())
        })?;
        Ok(format!(
            "{MORE} more messages while {FILTERED} was away: lag {MORE}; it came back, took the {} it wants: lag 0",
            wanted.len()
        ))
    }

    /// The figures of a group's filter at all filter servers.
    async fn figures(&self, group: &str) -> Result<Vec<FilterStats>, String> {
        let admin = self.client.admin();
        let mut all = Vec::new();
        for addr in self.cluster.filter_servers() {
            let answer = admin.raw(addr, Command::request(request::GET_FILTER_STATS));
            let answer = answer.await.map_err(text)?;
            let figures = FilterServerStats::from_json(&answer.body).map_err(text)?;
            all.extend(figures.filters);
        }
        all.retain(|filter| filter.consumer_group == group);
        Ok(all)
    }

    pub(super) async fn statistics(&self) -> Told {
        let figures = self.figures(FILTERED).await?;
        let sum = |of: fn(&FilterStats) -> i64| figures.iter().map(of).sum::<i64>();
        let (received, matched) = (sum(|one| one.received), sum(|one| one.matched));
        // Pulls that were held when the group left have looked at some of the messages too.
        check(
            received >= i64::from(MESSAGES + MORE) && matched >= 36 && sum(|one| one.failed) == 0,
            || format!("the filter servers count {received} messages and {matched} matches"),
        )?;
        let median = figures.iter().map(|one| one.p50_nanos).max().unwrap_or(0);
        let stats = self.client.admin().topic_stats(TOPIC).await;
        let queues = stats.map_err(text)?.offset_table;
        let stored: i64 = queues
            .values()
            .map(|queue| queue.max_offset - queue.min_offset)
            .sum();
        check(stored == i64::from(MESSAGES + MORE), || {
            format!("the broker counts {stored} messages")
        })?;
        Ok(format!(
            "{stored} messages stored in {TOPIC}; for {FILTERED} the filter servers looked at {received} and let {matched} through, {:.1} µs each",
            median as f64 / 1000.0
        ))
    }

    /// Waits until a group has passed everything in the topic.
    pub(super) async fn passed(
        &self,
        group: &str,
        consumer: &minimq_client::PushConsumer,
    ) -> Result<(), String> {
        until("the group has passed all messages", async || {
            consumer.commit().await;
            self.lag_of(group).await.ok().filter(|lag| *lag == 0)
        })
        .await
        .map(drop)
    }
}
