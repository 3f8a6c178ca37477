//! A name server process and raw sockets to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::body::{
    DataVersion, Flavour, RegisterBrokerBody, TopicConfig, TopicConfigWrapper, TopicRouteData,
};
use minimq_protocol::code::request;
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::{GetRouteInfoRequest, RegisterBrokerRequest};
use minimq_protocol::{Command, frame};
use tempfile::TempDir;

/// Nothing here takes longer unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path)
}

/// The program with these arguments, apart from the machine's environment; its home is `folder`.
pub(crate) fn program(folder: &Path, arguments: &[&str]) -> Process {
    let mut process = Process::new(env!("CARGO_BIN_EXE_mqnamesrv"));
    process.args(arguments).env_clear().env("HOME", folder);
    process
}

/// A running `mqnamesrv`, killed when dropped.
pub(crate) struct NameServer {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) folder: TempDir,
}

impl NameServer {
    /// On a free port, with these settings.
    pub(crate) fn start(sets: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), sets, &[])
    }

    pub(crate) fn start_in(folder: TempDir, sets: &[&str], more: &[&str]) -> Self {
        let mut arguments = Vec::new();
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        sets.iter().for_each(|set| arguments.extend(["--set", set]));
        arguments.extend(more);
        let log = File::create(folder.path().join("stderr.log")).unwrap();
        let mut child = program(folder.path(), &arguments)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        for line in output.lines() {
            let line = line.unwrap();
            if line.starts_with("The Name Server boot success") {
                let addr = line.rsplit(' ').next().unwrap().parse().unwrap();
                return Self {
                    child,
                    addr,
                    folder,
                };
            }
            said += &line;
        }
        let status = child.wait().unwrap();
        let log = std::fs::read_to_string(folder.path().join("stderr.log")).unwrap();
        panic!("the name server did not start ({status}): {said}{log}");
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::connect(self.addr)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr.log")).unwrap()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the name server to end", || self.child.try_wait().unwrap())
    }

    /// Ends it, and gives its folder to the next one.
    pub(crate) fn stop(mut self) -> TempDir {
        self.terminate();
        assert!(self.wait().success());
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until there is something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection to it.
pub(crate) struct Peer {
    stream: TcpStream,
    opaque: i32,
}

impl Peer {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, opaque: 0 }
    }

    /// A request and its answer.
    pub(crate) fn call(&mut self, mut request: Command) -> Command {
        self.opaque += 1;
        request.opaque = self.opaque;
        self.send(&request.to_frame());
        let answer = self.answer();
        assert_eq!(answer.opaque, request.opaque);
        assert_eq!(answer.serialize, request.serialize);
        answer
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Command {
        let answer = self
            .try_answer()
            .expect("an answer, not the end of the connection");
        assert!(answer.is_response());
        answer
    }

    /// The next answer, or `None` when the connection has ended.
    pub(crate) fn try_answer(&mut self) -> Option<Command> {
        let mut frame = vec![0; 4];
        self.stream.read_exact(&mut frame).ok()?;
        let len = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        assert!(len < 1 << 25, "an answer of {len} bytes");
        frame.resize(4 + len, 0);
        self.stream.read_exact(&mut frame[4..]).ok()?;
        Some(frame::parse(Bytes::from(frame)).unwrap())
    }

    pub(crate) fn register(&mut self, broker: &Broker) -> Command {
        self.call(broker.request())
    }

    /// The answer to a route request.
    pub(crate) fn route_answer(&mut self, topic: &str) -> Command {
        let header = GetRouteInfoRequest {
            topic,
            accept_standard_json_only: None,
        };
        self.call(Command::request_with(
            request::GET_ROUTEINFO_BY_TOPIC,
            &header,
        ))
    }

    /// The route of a topic; `None` when there is none (17).
    pub(crate) fn route(&mut self, topic: &str) -> Option<TopicRouteData> {
        let answer = self.route_answer(topic);
        match answer.code {
            0 => Some(TopicRouteData::from_json(&answer.body).unwrap()),
            17 => None,
            code => panic!("code {code}: {}", answer.remark()),
        }
    }
}

/// What a broker says when it registers.
#[derive(Debug, Clone)]
pub(crate) struct Broker {
    pub(crate) cluster: String,
    pub(crate) name: String,
    pub(crate) addr: String,
    pub(crate) ha: String,
    pub(crate) id: i64,
    pub(crate) version: DataVersion,
    pub(crate) topics: BTreeMap<String, TopicConfig>,
    pub(crate) filter_servers: Vec<String>,
    pub(crate) compressed: bool,
}

impl Broker {
    pub(crate) fn new(name: &str, addr: &str, id: i64) -> Self {
        Self {
            cluster: "DefaultCluster".into(),
            name: name.into(),
            addr: addr.into(),
            ha: format!("{addr}9"),
            id,
            version: DataVersion {
                counter: 1,
                timestamp: 1,
            },
            topics: BTreeMap::new(),
            filter_servers: Vec::new(),
            compressed: false,
        }
    }

    pub(crate) fn topic(self, name: &str, read: i32, write: i32) -> Self {
        self.config(TopicConfig {
            read_queue_nums: read,
            write_queue_nums: write,
            ..TopicConfig::new(name)
        })
    }

    pub(crate) fn config(mut self, topic: TopicConfig) -> Self {
        self.topics.insert(topic.topic_name.clone(), topic);
        self
    }

    pub(crate) fn version(mut self, timestamp: i64, counter: i64) -> Self {
        self.version = DataVersion { counter, timestamp };
        self
    }

    pub(crate) fn request(&self) -> Command {
        let body = RegisterBrokerBody {
            filter_server_list: Some(self.filter_servers.clone()),
            topic_config_serialize_wrapper: TopicConfigWrapper {
                data_version: self.version,
                topic_config_table: self.topics.clone(),
            },
        };
        let body = if self.compressed {
            body.to_compressed()
        } else {
            body.to_json(Flavour::Fastjson)
        };
        let header = RegisterBrokerRequest {
            broker_name: &self.name,
            broker_addr: &self.addr,
            cluster_name: &self.cluster,
            ha_server_addr: &self.ha,
            broker_id: self.id,
            compressed: self.compressed,
            body_crc32: body_crc(&body),
        };
        Command::request_with(request::REGISTER_BROKER, &header).with_body(body)
    }
}

/// A request with these ext fields.
pub(crate) fn with_fields(code: i32, fields: &[(&str, &str)]) -> Command {
    let request = Command::request(code);
    fields.iter().fold(request, |request, (key, value)| {
        request.with_ext(key, value)
    })
}
