//! `minimq demo`: a tour of a cluster of its own, on free ports and in a temporary folder. Each step does something,
//! checks what came of it, says so in one line, and shows in a second one how to do it oneself. The steps are in
//! `basics` (topic to statistics), `filters`, and `delivery` (order, delay, transactions).

mod basics;
mod delivery;
mod filters;
mod seen;

use std::fmt::Display;
use std::time::{Duration, Instant};

use minimq_client::Client;

use crate::Cluster;

/// The topic of most steps.
const TOPIC: &str = "Demo";
/// Messages in it, before the step about lag.
const MESSAGES: u32 = 100;
/// No step waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a step came to: what happened, or what is wrong.
type Told = Result<String, String>;

/// What all steps work on.
struct Tour {
    cluster: Cluster,
    client: Client,
}

/// Counts steps and prints them.
#[derive(Debug, Default)]
struct Report {
    steps: usize,
    wrong: usize,
}

impl Report {
    fn tell(&mut self, name: &str, told: &Told, yourself: &str) {
        self.steps += 1;
        let said = match told {
            Ok(happened) => happened.clone(),
            Err(reason) => {
                self.wrong += 1;
                format!("WRONG: {reason}")
            }
        };
        println!(
            "{:>2} {name:<13} {said}\n   {:<13} > {yourself}",
            self.steps, ""
        );
    }
}

/// Runs the tour; whether all was right.
///
/// # Errors
/// No cluster to tour.
pub(crate) async fn run() -> Result<bool, String> {
    let begin = Instant::now();
    let cluster = Cluster::builder()
        .filter_servers(2)
        .set("transactionTimeOut", "300")
        .set("transactionCheckInterval", "200")
        .start()
        .await
        .map_err(text)?;
    let ready = begin.elapsed();
    let client = Client::connect(cluster.name_server()).await.map_err(text)?;
    let tour = Tour { cluster, client };
    let mut report = Report::default();
    report.tell(
        "cluster",
        &Ok(tour.parts(ready)),
        "minimq --filter-servers 2",
    );
    report.tell(
        "topic",
        &tour.topic().await,
        "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Demo -r 4 -w 4",
    );
    report.tell(
        "send",
        &tour.send().await,
        r#"producer.send(Message::new("Demo", "hello").property("SequenceId", "12")).await?"#,
    );
    report.tell(
        "route",
        &tour.route().await,
        "mqadmin topicRoute -n 127.0.0.1:9876 -t Demo",
    );
    report.tell(
        "WASM filter",
        &tour.wasm_filter().await,
        r#"consumer.subscribe("Demo", Filter::wasm_file("filtersrv/examples/sequence_id.wat")?)"#,
    );
    report.tell(
        "broadcasting",
        &tour.two_filters().await,
        r#"consumer.broadcast(true).subscribe("Demo", Filter::wasm_file("filtersrv/examples/price.wat")?)"#,
    );
    report.tell(
        "SQL filter",
        &tour.sql_filter().await,
        r#"consumer.subscribe("Demo", Filter::sql("SequenceId BETWEEN 40 AND 44"))"#,
    );
    report.tell(
        "ordered",
        &tour.ordered().await,
        r#"producer.send_keyed("order-1", message).await?; consumer.run_ordered(handler).await?"#,
    );
    report.tell(
        "delay",
        &tour.delay().await,
        r#"producer.send(Message::new("DemoDelay", "later").delay_level(1)).await?"#,
    );
    report.tell(
        "transaction",
        &tour.transaction().await,
        r#"let transaction = producer.begin(message).await?; transaction.commit().await?"#,
    );
    report.tell(
        "lag",
        &tour.lag().await,
        "mqadmin consumerProgress -n 127.0.0.1:9876 -g demo-every-third",
    );
    report.tell(
        "statistics",
        &tour.statistics().await,
        "mqadmin topicStatus -n 127.0.0.1:9876 -t Demo",
    );
    tour.client.shutdown().await;
    tour.cluster.stop().await;
    let seconds = begin.elapsed().as_secs_f64();
    match report.wrong {
        0 => println!("All {} steps were right, in {seconds:.1} s.", report.steps),
        wrong => println!(
            "{wrong} of {} steps went wrong, in {seconds:.1} s.",
            report.steps
        ),
    }
    Ok(report.wrong == 0)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// `Ok` if `right`.
fn check(right: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(wrong()) }
}

/// Asks again and again until there is something, at most [`PATIENCE`].
async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt().await {
            return Ok(value);
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("not within {} s: {what}", PATIENCE.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
