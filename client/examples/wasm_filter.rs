//! A filter of our own as WebAssembly: it keeps messages with a body of even length. It runs on the filter servers beside the
//! brokers, of which there must be one (`mqfiltersrv`).

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minimq_client::{Filter, Message};

/// `number(8, out)` writes the length of the plain body.
const EVEN_LENGTH: &str = r#"(module
  (import "minimq" "number" (func $number (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (drop (call $number (i32.const 8) (i32.const 0)))
    (i32.xor (i32.and (i32.wrap_i64 (i64.load (i32.const 0))) (i32.const 1)) (i32.const 1))))"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = common::client().await?;
    let topic = common::own("lengths");
    let producer = client.producer("lengths-producer").build().await?;
    for length in 1..=10 {
        producer
            .send(Message::new(&topic, "x".repeat(length)))
            .await?;
    }
    let (even, odd) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (even.clone(), odd.clone());
    let consumer = client
        .push_consumer(common::own("lengths-consumer"))
        .subscribe(&topic, Filter::wasm(EVEN_LENGTH))
        .start_from(common::START);
    let consumer = consumer
        .run(move |message| {
            println!("length {}", message.body().len());
            let counter = if message.body().len().is_multiple_of(2) {
                &counters.0
            } else {
                &counters.1
            };
            counter.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .await?;
    common::wait_for(
        "five messages pass the filter (is a filter server running?)",
        || even.load(Ordering::Relaxed) == 5,
    )
    .await?;
    anyhow::ensure!(
        odd.load(Ordering::Relaxed) == 0,
        "the filter let odd lengths through"
    );
    consumer.shutdown().await;
    client.shutdown().await;
    Ok(())
}
