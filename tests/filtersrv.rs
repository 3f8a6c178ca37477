//! The program `mqfiltersrv` beside a cluster: it starts from the supplied file, says when it serves, and takes itself
//! off the broker's list when it is told to end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use minimq::Cluster;
use minimq_protocol::Command;
use minimq_protocol::body::{FilterServerStats, TopicRouteData};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    GetRouteInfoRequest, PullMessageRequest, PullMessageResponse,
    RegisterMessageFilterClassRequest, SendMessageRequest,
};
use minimq_protocol::message::split_records;
use minimq_remoting::{Client, ClientConfig};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The program; ends with the test.
struct FilterServer {
    process: Child,
    address: String,
}

impl FilterServer {
    fn start(broker: &str) -> Self {
        let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/filtersrv.conf");
        let mut process = Process::new(env!("CARGO_BIN_EXE_mqfiltersrv"))
            .args(["-c", conf, "--broker", broker, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = lines
            .map(Result::unwrap)
            .find(|line| line.starts_with("The Filter Server boot success, "))
            .expect("it ended before it was ready");
        let address = ready.split([',', '(']).nth(1).unwrap().trim().to_owned();
        Self { process, address }
    }

    fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap()
    }
}

impl Drop for FilterServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn call(client: &Client, address: &str, command: Command) -> Command {
    client.call(address, command, TIMEOUT).await.unwrap()
}

async fn wait_for_route(client: &Client, name_server: &str, wanted: &[&str]) {
    let header = GetRouteInfoRequest {
        topic: "TopicA",
        accept_standard_json_only: None,
    };
    let begin = Instant::now();
    loop {
        let command = Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header);
        let answer = call(client, name_server, command).await;
        assert_eq!(answer.code, 0, "{}", answer.remark());
        let route = TopicRouteData::from_json(&answer.body).unwrap();
        let listed: Vec<String> = route.filter_server_table.into_values().flatten().collect();
        if listed == wanted {
            return;
        }
        assert!(
            begin.elapsed() < TIMEOUT,
            "the route lists {listed:?} instead of {wanted:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_filters_a_hundred_messages_and_leaves_in_order() {
    let cluster = Cluster::builder().filter_servers(0).start().await.unwrap();
    let broker = cluster.brokers()[0].clone();
    let client = Client::new(ClientConfig::default()).unwrap();
    for n in 0..100 {
        let properties = format!("SequenceId\u{1}{n}\u{2}");
        let header = SendMessageRequest {
            producer_group: "PG",
            topic: "TopicA",
            default_topic: "TBW102",
            default_topic_queue_nums: 1,
            born_timestamp: 1_700_000_000_000,
            properties: Some(&properties),
            ..SendMessageRequest::default()
        };
        let command = Command::request_with(request::SEND_MESSAGE, &header).with_body("x");
        assert_eq!(call(&client, &broker, command).await.code, 0);
    }
    let starting = broker.clone();
    let mut server = tokio::task::spawn_blocking(move || FilterServer::start(&starting))
        .await
        .unwrap();
    wait_for_route(&client, cluster.name_server(), &[&server.address]).await;

    let header = RegisterMessageFilterClassRequest {
        consumer_group: "CG",
        topic: "TopicA",
        class_name: "org.example.EveryThird",
        class_crc: 0,
    };
    let module = include_str!("../filtersrv/examples/sequence_id.wat");
    let command =
        Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header).with_body(module);
    let answer = call(&client, &server.address, command).await;
    assert_eq!(answer.code, 0, "{}", answer.remark());
    let (mut offset, mut got) = (0, Vec::new());
    while offset < 100 {
        let header = PullMessageRequest {
            consumer_group: "CG",
            topic: "TopicA",
            queue_offset: offset,
            max_msg_nums: 32,
            ..PullMessageRequest::default()
        };
        let command = Command::request_with(request::PULL_MESSAGE, &header);
        let answer = call(&client, &server.address, command).await;
        offset = answer
            .header::<PullMessageResponse>()
            .unwrap()
            .next_begin_offset;
        for record in split_records(answer.body) {
            got.push(
                record
                    .unwrap()
                    .properties()
                    .get("SequenceId")
                    .unwrap()
                    .parse::<u32>()
                    .unwrap(),
            );
        }
    }
    assert_eq!(got, (12..100).step_by(3).collect::<Vec<_>>());
    let figures = call(
        &client,
        &server.address,
        Command::request(request::GET_FILTER_STATS),
    )
    .await;
    let figures = FilterServerStats::from_json(&figures.body).unwrap();
    assert_eq!(
        (figures.filters[0].received, figures.filters[0].matched),
        (100, 30)
    );

    client.close(&server.address);
    let status = tokio::task::spawn_blocking(move || server.terminate())
        .await
        .unwrap();
    assert!(status.success(), "{status}");
    wait_for_route(&client, cluster.name_server(), &[]).await;
}
