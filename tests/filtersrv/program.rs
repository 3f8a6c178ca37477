//! The program itself: it starts from the supplied file, says when it serves, tells of its filters, takes itself off
//! the broker's list before it ends, and says when its account may not do its work.

use std::time::Duration;

use minimq::Cluster;
use minimq_protocol::Command;
use minimq_protocol::body::FilterServerStats;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    PullMessageRequest, PullMessageResponse, RegisterMessageFilterClassRequest,
};
use minimq_protocol::message::split_records;
use minimq_remoting::ClientConfig;
use rustix::process::Signal;

use crate::harness::*;

async fn call(client: &minimq_remoting::Client, address: &str, command: Command) -> Command {
    client.call(address, command, TIMEOUT).await.unwrap()
}

fn pull(offset: i64) -> Command {
    let header = PullMessageRequest {
        consumer_group: "CG",
        topic: "TopicA",
        queue_offset: offset,
        max_msg_nums: 32,
        ..PullMessageRequest::default()
    };
    Command::request_with(request::PULL_MESSAGE, &header)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_filters_a_hundred_messages_and_leaves_in_order() {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    let client = client(&cluster).await;
    topic(&client, &cluster, "TopicA", 1).await;
    send(&client, "TopicA", 0..100).await;
    let server = FilterServer::start(&cluster.brokers()[0], &[]).await;
    wait_for_route(&client, "TopicA", &[&server.address]).await;

    let raw = minimq_remoting::Client::new(ClientConfig::default()).unwrap();
    let header = RegisterMessageFilterClassRequest {
        consumer_group: "CG",
        topic: "TopicA",
        class_name: "org.example.EveryThird",
        class_crc: 0,
    };
    let upload = Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
        .with_body(SEQUENCE_ID);
    let answer = call(&raw, &server.address, upload).await;
    assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
    let (mut offset, mut got) = (0, Vec::<u32>::new());
    while offset < 100 {
        let answer = call(&raw, &server.address, pull(offset)).await;
        offset = answer
            .header::<PullMessageResponse>()
            .unwrap()
            .next_begin_offset;
        for record in split_records(answer.body) {
            let record = record.unwrap();
            got.push(
                record
                    .properties()
                    .get("SequenceId")
                    .unwrap()
                    .parse()
                    .unwrap(),
            );
        }
    }
    assert_eq!(got, (12..100).step_by(3).collect::<Vec<u32>>());
    let figures = Command::request(request::GET_FILTER_STATS);
    let figures = call(&raw, &server.address, figures).await;
    let figures = FilterServerStats::from_json(&figures.body).unwrap();
    assert_eq!(
        (figures.filters[0].received, figures.filters[0].matched),
        (100, 30)
    );

    // Told to end, it is off the list first and serves those who have not seen that yet.
    server.signal(Signal::TERM);
    wait_for_route(&client, "TopicA", &[]).await;
    let answer = call(&raw, &server.address, pull(90)).await;
    assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
    raw.close(&server.address);
    let status = server.ended().await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_when_its_account_may_not_subscribe() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = folder.path().join("plain_acl.yml");
    let text = "accounts:
  - accessKey: server1
    secretKey: 12345678
    admin: true
  - accessKey: filters
    secretKey: 12345678
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
";
    std::fs::write(&accounts, text).unwrap();
    let cluster = Cluster::builder()
        .filter_servers(0)
        .set("aclEnable", "true")
        .set("aclFile", &accounts.display().to_string())
        .set("filterServerAccessKey", "filters")
        .start()
        .await
        .unwrap();
    let broker = &cluster.brokers()[0];
    let may_not = "may not subscribe at the broker: give it SUB";
    let denied = FilterServer::start(broker, &["accessKey=filters", "secretKey=12345678"]).await;
    until("the log says so", async || denied.log().contains(may_not)).await;
    let allowed = FilterServer::start(broker, &["accessKey=server1", "secretKey=12345678"]).await;
    until("it is registered", async || {
        allowed.log().contains("registered")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!allowed.log().contains(may_not), "{}", allowed.log());
}
