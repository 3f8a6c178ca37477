//! Filters: WebAssembly at the filter servers, in clustering and in broadcasting, and SQL at the broker.

use minimq_client::{Client, Filter, PushConsumer, StartFrom};

use super::seen::{Seen, sequence_id};
use super::{MESSAGES, TOPIC, Told, Tour, check, text};

/// The module of `filtersrv/examples` that keeps every third `SequenceId` above ten.
pub(super) const EVERY_THIRD: &str = include_str!("../../filtersrv/examples/sequence_id.wat");
/// The one that keeps a `price` of at most 100.
const AFFORDABLE: &str = include_str!("../../filtersrv/examples/price.wat");
/// The group with the filter.
pub(super) const FILTERED: &str = "demo-every-third";

fn every_third() -> Vec<i64> {
    (12..i64::from(MESSAGES)).step_by(3).collect()
}

/// A consumer that writes down the numbers it gets.
async fn numbers(
    client: &Client,
    group: &str,
    filter: Filter,
    broadcast: bool,
) -> Result<(PushConsumer, Seen<i64>), String> {
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = client
        .push_consumer(group)
        .subscribe(TOPIC, filter)
        .broadcast(broadcast)
        .start_from(StartFrom::Beginning);
    let consumer = consumer.run(move |message| {
        log.add(sequence_id(&message));
        async {}
    });
    Ok((consumer.await.map_err(text)?, seen))
}

/// Exactly these came.
fn exactly(seen: &Seen<i64>, wanted: &[i64]) -> Result<(), String> {
    check(seen.sorted() == wanted, || {
        format!("SequenceId {:?} came instead of {wanted:?}", seen.sorted())
    })
}

impl Tour {
    pub(super) async fn wasm_filter(&self) -> Told {
        let filter = Filter::wasm(EVERY_THIRD);
        let (consumer, seen) = numbers(&self.client, FILTERED, filter, false).await?;
        let wanted = every_third();
        seen.wait(wanted.len()).await?;
        self.passed(FILTERED, &consumer).await?;
        consumer.shutdown().await;
        exactly(&seen, &wanted)?;
        Ok(format!(
            "{} of {MESSAGES} messages came, SequenceId 12, 15, … 99; the other {} never left the broker's machine",
            wanted.len(),
            MESSAGES as usize - wanted.len()
        ))
    }

    pub(super) async fn two_filters(&self) -> Told {
        let affordable: Vec<i64> = (0..=50).collect();
        let members = [(EVERY_THIRD, every_third()), (AFFORDABLE, affordable)];
        let mut running = Vec::new();
        for (n, (module, wanted)) in members.into_iter().enumerate() {
            // Members of one process need a place of their own each for their offsets.
            let client = Client::builder()
                .name_servers(self.cluster.name_server())
                .offset_dir(self.cluster.data().join(format!("member-{n}")))
                .build()
                .await
                .map_err(text)?;
            let filter = Filter::wasm(module);
            let (consumer, seen) = numbers(&client, "demo-members", filter, true).await?;
            running.push((client, consumer, seen, wanted));
        }
        let mut came = Vec::new();
        for (client, consumer, seen, wanted) in running {
            seen.wait(wanted.len()).await?;
            consumer.shutdown().await;
            client.shutdown().await;
            exactly(&seen, &wanted)?;
            came.push(seen.len());
        }
        Ok(format!(
            "two members of one group with a filter each: one got {} messages (every third), the other {} (price at most 100)",
            came.first().unwrap_or(&0),
            came.last().unwrap_or(&0)
        ))
    }

    pub(super) async fn sql_filter(&self) -> Told {
        let filter = Filter::sql("SequenceId BETWEEN 40 AND 44");
        let (consumer, seen) = numbers(&self.client, "demo-sql", filter, false).await?;
        seen.wait(5).await?;
        consumer.shutdown().await;
        exactly(&seen, &[40, 41, 42, 43, 44])?;
        Ok("the broker itself picked SequenceId 40 … 44".to_owned())
    }
}
