//! What name servers are told of the broker: at its start, at once on a change, and when it goes. The VIP port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::body::{DataVersion, RegisterBrokerBody};
use minimq_protocol::code::request;
use minimq_protocol::header::{
    QueryDataVersionRequest, RegisterBrokerRequest, RegisterFilterServerRequest,
    UnRegisterBrokerRequest,
};
use minimq_remoting::{Answers, Connection, Server, ServerConfig, ServerHandle, Service};

use crate::support::{Harness, TIMEOUT, new_client, pull_request, send_request, until};

/// A name server that takes everything and remembers it.
#[derive(Clone, Default)]
struct NameServer(Arc<Mutex<Vec<Command>>>, Arc<AtomicBool>);

impl Service for NameServer {
    type Session = ();

    fn open(&self, _connection: &Connection) {}

    fn request(&self, _session: &mut (), request: Command, answers: &mut Answers<'_>) {
        let changed = self.1.load(Ordering::Relaxed);
        let answer = match request.code {
            request::QUERY_DATA_VERSION => {
                Command::response_to(&request, 0).with_ext("changed", &changed.to_string())
            }
            _ => Command::response_to(&request, 0),
        };
        answers.answer(request.id(), answer);
        self.0.lock().unwrap().push(request);
    }
}

impl NameServer {
    fn start(&self) -> ServerHandle {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        Server::bind(config, Arc::new(self.clone()))
            .unwrap()
            .spawn()
    }

    /// From now on it says that it does not know the broker as it is.
    fn forget(&self) {
        self.1.store(true, Ordering::Relaxed);
    }

    fn codes(&self) -> Vec<i32> {
        self.0.lock().unwrap().iter().map(|r| r.code).collect()
    }

    /// The newest registration.
    fn registered(&self) -> RegisterBrokerBody {
        let all = self.0.lock().unwrap();
        let last = all
            .iter()
            .rfind(|request| request.code == request::REGISTER_BROKER)
            .expect("a registration");
        let header: RegisterBrokerRequest<'_> = last.header().unwrap();
        RegisterBrokerBody::from_registration(&last.body, header.compressed, last.version).unwrap()
    }

    fn filter_servers(&self) -> Vec<String> {
        self.registered().filter_server_list.unwrap_or_default()
    }

    fn permission(&self, topic: &str) -> Option<i32> {
        let topics = self.registered().topic_config_serialize_wrapper;
        Some(topics.topic_config_table.get(topic)?.perm)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_servers_hear_of_a_start_of_changes_and_of_the_end() {
    let servers = [NameServer::default(), NameServer::default()];
    let handles: Vec<ServerHandle> = servers.iter().map(NameServer::start).collect();
    // One takes connections and never answers, one is not there: the others are told all the same.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let list = format!(
        "namesrvAddr={};{};{};{}",
        handles[0].local_addr(),
        hangs.local_addr().unwrap(),
        gone.local_addr().unwrap(),
        handles[1].local_addr()
    );
    drop(gone);
    let broker = Harness::start(&[&list, "haListenPort=1"]).await;
    for server in &servers {
        let codes = server.codes();
        assert_eq!(
            codes,
            [request::REGISTER_BROKER],
            "once, before it is ready"
        );
        let first = server.0.lock().unwrap()[0].clone();
        let header: RegisterBrokerRequest<'_> = first.header().unwrap();
        assert_eq!(
            (header.broker_name, header.cluster_name, header.broker_id),
            ("b0", "C1", 0)
        );
        assert_eq!(header.broker_addr, broker.addr);
        let port: u16 = broker.addr.rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!(header.ha_server_addr, format!("127.0.0.1:{}", port + 1));
        assert_eq!(
            header.body_crc32,
            minimq_protocol::crc::body_crc(&first.body)
        );
        assert_eq!(server.permission("TBW102"), Some(7));
        assert!(server.filter_servers().is_empty());
    }

    // A new topic is told before its maker hears that it is there: made by a tool, by a send, for a group's retries.
    broker.create_topic("NEW", 1).await;
    broker.send("BY_SEND", &[], "x").await;
    let heartbeat =
        r#"{"clientID":"c","consumerDataSet":[{"groupName":"G"}],"producerDataSet":[]}"#;
    let heartbeat = Command::request(request::HEART_BEAT).with_body(heartbeat);
    assert_eq!(broker.call(heartbeat).await.code, 0);
    for server in &servers {
        for topic in ["NEW", "BY_SEND", "%RETRY%G"] {
            assert_eq!(server.permission(topic), Some(6), "{topic}");
        }
    }
    // A filter server that comes, and one that goes: soon.
    let (filter_server, _) = new_client();
    let header = RegisterFilterServerRequest {
        filter_server_addr: "127.0.0.1:7777",
    };
    let register = Command::request_with(request::REGISTER_FILTER_SERVER, &header);
    let answer = filter_server.call(&broker.addr, register, TIMEOUT).await;
    assert_eq!(answer.unwrap().code, 0);
    until("the news of it", async || {
        servers
            .iter()
            .all(|server| server.filter_servers() == ["127.0.0.1:7777"])
    })
    .await;
    filter_server.close_all();
    until("the filter server's end to be told", async || {
        servers
            .iter()
            .all(|server| server.filter_servers().is_empty())
    })
    .await;

    // A broker that lacks a permission passes none of it on.
    let update = Command::request(request::UPDATE_BROKER_CONFIG).with_body("brokerPermission=4");
    assert_eq!(broker.call(update).await.code, 0);
    until("the permission", async || {
        servers
            .iter()
            .all(|server| server.permission("NEW") == Some(4))
    })
    .await;
    assert_eq!(broker.broker.topics.get("NEW").unwrap().perm, 6);

    let addr = broker.addr.clone();
    broker.stop().await;
    for server in &servers {
        let last = server.0.lock().unwrap().pop().unwrap();
        assert_eq!(last.code, request::UNREGISTER_BROKER);
        let header: UnRegisterBrokerRequest<'_> = last.header().unwrap();
        assert_eq!((header.broker_name, header.broker_addr), ("b0", &*addr));
        assert!(
            !server.codes().contains(&request::UNREGISTER_BROKER),
            "once"
        );
    }
    for handle in handles {
        handle.shutdown(Duration::ZERO).await;
    }
}

/// A start does not wait for a name server that hangs as long as a registration may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_hangs_does_not_keep_the_broker_from_starting() {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let list = format!("namesrvAddr={}", hangs.local_addr().unwrap());
    let settings = [list.as_str(), "registerBrokerTimeoutMills=600000"];
    let started = tokio::time::timeout(TIMEOUT, Harness::start(&settings)).await;
    let broker = started.expect("it starts all the same");
    broker.create_topic("NEW", 1).await;
    broker.stop().await;
}

/// With `forceRegister=false` the name servers are asked first, and told only if one does not know the topics as they
/// are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_servers_that_know_everything_are_not_told_again_unless_forced() {
    let servers = [NameServer::default(), NameServer::default()];
    let handles: Vec<ServerHandle> = servers.iter().map(NameServer::start).collect();
    let list = format!(
        "namesrvAddr={};{}",
        handles[0].local_addr(),
        handles[1].local_addr()
    );
    let period = "registerNameServerPeriod=10000";
    let broker = Harness::start(&[&list, period, "forceRegister=false"]).await;
    let counts = |code: i32| {
        servers
            .each_ref()
            .map(|server| server.codes().iter().filter(|c| **c == code).count())
    };
    until("they are asked", async || {
        counts(request::QUERY_DATA_VERSION) == [1, 1]
    })
    .await;
    let query = servers[0].0.lock().unwrap().last().unwrap().clone();
    let header: QueryDataVersionRequest<'_> = query.header().unwrap();
    assert_eq!(
        (header.broker_name, header.broker_addr, header.broker_id),
        ("b0", &*broker.addr, 0)
    );
    let version = DataVersion::from_json(&query.body).unwrap();
    assert_eq!(version, broker.broker.topics.version());
    assert_eq!(counts(request::REGISTER_BROKER), [1, 1], "at the start");

    servers[1].forget();
    until("they are told", async || {
        counts(request::REGISTER_BROKER) == [2, 2]
    })
    .await;
    assert_eq!(counts(request::QUERY_DATA_VERSION), [2, 2]);
    // A change is told unasked.
    broker.create_topic("NEW", 1).await;
    assert_eq!(counts(request::REGISTER_BROKER), [3, 3]);
    assert_eq!(counts(request::QUERY_DATA_VERSION), [2, 2]);
    broker.stop().await;
    for handle in handles {
        handle.shutdown(Duration::ZERO).await;
    }
}

/// A free port whose neighbour two below is free as well.
fn two_ports() -> u16 {
    for _ in 0..1000 {
        let main = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = main.local_addr().unwrap().port();
        if port > 1026 && TcpListener::bind(("127.0.0.1", port - 2)).is_ok() {
            return port;
        }
    }
    panic!("no two free ports");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vip_port_serves_everything_but_pulls() {
    let port = two_ports();
    let broker = Harness::start(&[&format!("listenPort={port}")]).await;
    let vip = format!("127.0.0.1:{}", port - 2);
    let call = async |command| broker.client.call(&vip, command, TIMEOUT).await.unwrap();
    assert_eq!(
        call(send_request("T", &[], "by the VIP port")).await.code,
        0
    );
    until("the message", async || {
        broker.messages("T", 0).await.len() == 1
    })
    .await;
    assert_eq!(
        call(Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await
            .code,
        0
    );
    let answer = call(pull_request("G", "T", 0, ("TAG", "*"))).await;
    assert_eq!(
        (answer.code, answer.remark()),
        (3, " request type 11 not supported")
    );
    broker.stop().await;
}
