//! Producers, consumers and administration of a mini-MQ or RocketMQ 4.x cluster.
//!
//! A [`Client`] holds connections, routes and heartbeats; producers and consumers are made from it and share them. Send:
//!
//! ```no_run
//! # async fn send() -> minimq_client::Result<()> {
//! use minimq_client::{Client, Message};
//!
//! let client = Client::connect("127.0.0.1:9876").await?;
//! let producer = client.producer("orders-producer").build().await?;
//! let receipt = producer.send(Message::new("orders", "hello").tag("new")).await?;
//! println!("stored as {}", receipt.id);
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Consume; the same message may come again, see [`PushConsumer`]:
//!
//! ```no_run
//! # async fn consume() -> minimq_client::Result<()> {
//! use minimq_client::{Client, Filter};
//!
//! let client = Client::connect("127.0.0.1:9876").await?;
//! let consumer = client.push_consumer("orders-consumer").subscribe("orders", Filter::tags("new || paid"));
//! let consumer = consumer
//!     .run(|message| async move { println!("{}: {:?}", message.id(), message.body()) })
//!     .await?;
//! consumer.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! To read it, begin with [`client`](Client) (what is shared), go on to `core` (calls, groups, heartbeats) and [`route`], then
//! `producer/` and `consumer/` ([`rebalance`] and `process_queue` are its pure parts); [`admin`] is on its own.
#![forbid(unsafe_code)]

mod address;
pub mod admin;
mod client;
mod consumer;
mod core;
mod delivery;
mod error;
#[cfg(doc)]
pub mod examples;
mod filter;
pub mod hooks;
mod message;
mod name_servers;
mod process_queue;
mod producer;
mod queue_offsets;
mod random;
pub mod rebalance;
mod requests;
pub mod route;
mod trace;

pub use admin::Admin;
pub use client::{Client, ClientBuilder, Credentials};
pub use consumer::{
    MessageStream, OrderedOutcome, Outcome, Outcomes, PullConsumer, PullConsumerBuilder,
    PushConsumer, PushConsumerBuilder, Received, StartFrom,
};
pub use delivery::Delivery;
pub use error::{Error, Result};
pub use filter::Filter;
pub use message::Message;
pub use minimq_protocol::SerializeType;
pub use minimq_protocol::body::MessageQueue;
pub use minimq_protocol::compression::CompressionType;
pub use minimq_remoting::ClientTls;
pub use producer::{
    Batching, Producer, ProducerBuilder, SendReceipt, SendStatus, Transaction, TransactionState,
    split_batch,
};
