//! The one-process cluster, as a library and through its program: what it serves, and the sentence each mistake gets.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use minimq::{Cluster, Data};
use minimq_protocol::body::TopicRouteData;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetRouteInfoRequest, PullMessageRequest, PullMessageResponse, SendMessageRequest,
    SendMessageRequestV2,
};
use minimq_protocol::message::split_records;
use minimq_protocol::{Command, sys_flag};
use minimq_remoting::{Client, ClientConfig};

const SECOND: Duration = Duration::from_secs(1);

async fn call(client: &Client, address: &str, command: Command) -> Command {
    client.call(address, command, 5 * SECOND).await.unwrap()
}

/// Sends one message to queue 0 and pulls it back; gives the body.
async fn send_and_pull(client: &Client, broker: &str, topic: &str) -> Vec<u8> {
    let send = SendMessageRequestV2(SendMessageRequest {
        producer_group: "PG",
        topic,
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        born_timestamp: 1_700_000_000_000,
        ..SendMessageRequest::default()
    });
    let send = Command::request_with(request::SEND_MESSAGE_V2, &send).with_body("hello");
    let sent = call(client, broker, send).await;
    assert_eq!(sent.code, response::SUCCESS, "{}", sent.remark());
    let pull = PullMessageRequest {
        consumer_group: "CG",
        topic,
        max_msg_nums: 32,
        sys_flag: sys_flag::pull::SUSPEND | sys_flag::pull::SUBSCRIPTION,
        suspend_timeout_millis: 5000,
        subscription: Some("*"),
        ..PullMessageRequest::default()
    };
    let pulled = call(
        client,
        broker,
        Command::request_with(request::PULL_MESSAGE, &pull),
    )
    .await;
    assert_eq!(pulled.code, response::SUCCESS, "{}", pulled.remark());
    assert_eq!(
        pulled.header::<PullMessageResponse>().unwrap().max_offset,
        1
    );
    split_records(pulled.body)
        .next()
        .unwrap()
        .unwrap()
        .body()
        .to_vec()
}

#[tokio::test]
async fn a_cluster_serves_and_is_gone_when_dropped() {
    let cluster = Cluster::builder().brokers(2).start().await.unwrap();
    let client = Client::new(ClientConfig::default()).unwrap();
    let brokers = cluster.brokers().to_vec();
    assert_eq!(brokers.len(), 2);
    for broker in &brokers {
        assert_eq!(send_and_pull(&client, broker, "TopicOne").await, b"hello");
    }
    // Both brokers tell the name server of the new topic at once.
    let header = GetRouteInfoRequest {
        topic: "TopicOne",
        accept_standard_json_only: None,
    };
    let route = loop {
        let command = Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header);
        let answer = call(&client, cluster.name_server(), command).await;
        if answer.code == response::SUCCESS {
            let route = TopicRouteData::from_json(&answer.body).unwrap();
            if route.broker_datas.len() == 2 {
                break route;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(route.queue_datas.len(), 2);
    assert_eq!(cluster.filter_servers().len(), 2);
    let (folder, name_server) = (cluster.data().to_owned(), cluster.name_server().to_owned());
    assert!(folder.exists());
    tokio::task::spawn_blocking(move || drop(cluster))
        .await
        .unwrap();
    assert!(!folder.exists());
    assert!(tokio::net::TcpStream::connect(&name_server).await.is_err());
}

#[tokio::test]
async fn messages_survive_a_restart_on_the_same_folder() {
    let outer = tempfile::tempdir().unwrap();
    let data = Data::Folder(outer.path().join("data"));
    let client = Client::new(ClientConfig::default()).unwrap();
    let cluster = Cluster::builder().data(data.clone()).start().await.unwrap();
    send_and_pull(&client, &cluster.brokers()[0], "TopicOne").await;
    cluster.stop().await;
    let cluster = Cluster::builder().data(data).start().await.unwrap();
    let pull = PullMessageRequest {
        consumer_group: "CG",
        topic: "TopicOne",
        max_msg_nums: 32,
        sys_flag: sys_flag::pull::SUBSCRIPTION,
        subscription: Some("*"),
        ..PullMessageRequest::default()
    };
    let broker = &cluster.brokers()[0];
    let pulled = call(
        &client,
        broker,
        Command::request_with(request::PULL_MESSAGE, &pull),
    )
    .await;
    assert_eq!(pulled.code, response::SUCCESS, "{}", pulled.remark());
}

struct Program(Child);

impl Program {
    fn start(arguments: &[&str]) -> (Self, String) {
        let mut child = Process::new(env!("CARGO_BIN_EXE_minimq"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut text = String::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            text.push_str(&line);
            text.push('\n');
            if line.starts_with("Stop it") {
                break;
            }
        }
        (Self(child), text)
    }

    fn end(mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs to the end: status and what it said on standard error.
fn fails(arguments: &[&str]) -> String {
    let mut child = Process::new(env!("CARGO_BIN_EXE_minimq"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{text}");
    text
}

#[test]
fn the_program_says_where_it_listens_and_stops_on_ctrl_c() {
    let (program, text) = Program::start(&["--memory", "--port", "0"]);
    assert!(text.contains("name server  127.0.0.1:"), "{text}");
    assert!(program.end(rustix::process::Signal::INT).success());
}

#[test]
fn each_mistake_gets_one_sentence_and_status_1() {
    let outer = tempfile::tempdir().unwrap();
    let data = outer.path().join("data").display().to_string();
    let (program, text) = Program::start(&["--data", &data, "--port", "0"]);
    let locked = fails(&["--data", &data, "--port", "0"]);
    assert!(
        locked.contains("another broker has this store open"),
        "{locked}"
    );
    let port = text
        .split("127.0.0.1:")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let in_use = fails(&["--memory", "--port-base", port]);
    assert!(
        in_use.contains(&format!("127.0.0.1:{port}")) && in_use.contains("in use"),
        "{in_use}"
    );
    assert!(program.end(rustix::process::Signal::TERM).success());

    std::fs::write(outer.path().join("something"), "x").unwrap();
    let foreign = fails(&["--data", &outer.path().display().to_string(), "--port", "0"]);
    assert!(foreign.contains("holds no mini-MQ data"), "{foreign}");
    let wrong = fails(&["--memory", "--port", "0", "--set", "listenPort=abc"]);
    assert!(wrong.contains("listenPort=abc is wrong"), "{wrong}");
    let missing = fails(&["--memory", "--port", "0", "--config", "/no/such/file"]);
    assert!(missing.contains("/no/such/file"), "{missing}");
    for text in [locked, in_use, foreign, wrong, missing] {
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}
