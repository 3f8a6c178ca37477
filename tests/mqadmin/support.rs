//! A cluster that the tests of this program share while any of them runs, and the tool run against it.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use minimq::Cluster;
use serde_json::Value;

use crate::shapes::{Seen, Shapes};

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run of the tool left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A cluster of two brokers with a filter server each.
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
}

static SHARED: Mutex<Weak<Lab>> = Mutex::new(Weak::new());

/// The tool with nothing of the caller's environment that it looks at.
pub(crate) fn tool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mqadmin"));
    for name in [
        "NAMESRV_ADDR",
        "ROCKETMQ_HOME",
        "MINIMQ_ACCESS_KEY",
        "MINIMQ_SECRET_KEY",
        "MINIMQ_SECURITY_TOKEN",
    ] {
        command.env_remove(name);
    }
    command.env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs to the end.
pub(crate) fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the tool with these words alone.
pub(crate) fn bare(line: &str) -> Run {
    finish(tool().args(line.split_whitespace()))
}

/// Waits until it gives something.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    attempt(look).unwrap_or_else(|| panic!("not in time: {what}"))
}

/// The same; nothing if it gave nothing in time.
pub(crate) fn attempt<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begin.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A runtime for the clients of a test.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

impl Lab {
    /// The cluster in use, or a new one.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(lab) = shared.upgrade() {
            return lab;
        }
        let lab = Arc::new(Self::start(&[("enablePropertyFilter", "true")], 2));
        *shared = Arc::downgrade(&lab);
        lab
    }

    /// A cluster of its own with these broker keys.
    pub(crate) fn start(settings: &[(&str, &str)], brokers: usize) -> Self {
        let mut builder = Cluster::builder().brokers(brokers);
        for (key, value) in settings {
            builder = builder.set(key, value);
        }
        let cluster = runtime().block_on(builder.start()).unwrap();
        Self { cluster }
    }

    pub(crate) fn name_server(&self) -> &str {
        self.cluster.name_server()
    }

    pub(crate) fn broker(&self, index: usize) -> &str {
        self.cluster.brokers().get(index).unwrap()
    }

    /// Runs the tool with these words and this cluster's name server.
    pub(crate) fn run(&self, words: &[&str]) -> Run {
        finish(tool().args(words).args(["-n", self.name_server()]))
    }

    /// The same for a line without quotes.
    pub(crate) fn line(&self, line: &str) -> Run {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// It must be done; its text.
    pub(crate) fn ok(&self, line: &str) -> String {
        let run = self.line(line);
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{line}: {run:?}");
        assert!(
            run.out.is_empty() || run.out.ends_with('\n'),
            "{line}: {run:?}"
        );
        run.out
    }

    /// It must be done; its JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        let words: Vec<&str> = line
            .split_whitespace()
            .chain(["--output", "json"])
            .collect();
        let run = self.run(&words);
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{line}: {run:?}");
        Shapes::documented().check(words[0], &run.out, &mut Seen::new());
        serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{line}: {error}: {run:?}"))
    }

    /// It must fail with that status; what it says then. Nothing is printed as if it had been done.
    pub(crate) fn fails(&self, line: &str, status: i32) -> String {
        let run = self.line(line);
        assert_eq!(run.status, status, "{line}: {run:?}");
        assert_eq!(run.out, "", "{line}: {run:?}");
        for trace in ["panicked", "RUST_BACKTRACE", "\tat "] {
            assert!(!run.err.contains(trace), "{line}: {run:?}");
        }
        run.err
    }

    /// A topic at both brokers, known to the name server.
    pub(crate) fn topic(&self, name: &str, queues: u32) {
        self.ok(&format!(
            "updateTopic -c DefaultCluster -t {name} -r {queues} -w {queues}"
        ));
        until("the route of a new topic", || {
            let run = self.line(&format!("topicRoute -t {name} --output json"));
            let route: Value = serde_json::from_str(&run.out).ok()?;
            (route["queueDatas"].as_array()?.len() == self.cluster.brokers().len()).then_some(())
        });
    }

    /// Sends one message to a queue of a broker; its unique id.
    pub(crate) fn send(&self, topic: &str, body: &str, rest: &str) -> String {
        let sent = self.json(&format!("sendMessage -t {topic} -p {body} {rest}"));
        assert_eq!(sent["status"], "SEND_OK");
        sent["id"].as_str().unwrap().to_owned()
    }
}

impl Lab {
    /// Waits until so many messages of a topic are in its queues.
    pub(crate) fn stored(&self, topic: &str, count: i64) {
        until("the messages in their queues", || {
            let run = self.line(&format!("topicStatus -t {topic} --output json"));
            let queues: Value = serde_json::from_str(&run.out).ok()?;
            let ends = queues
                .as_array()?
                .iter()
                .map(|queue| queue["maxOffset"].as_i64());
            (ends.sum::<Option<i64>>()? == count).then_some(())
        });
    }
}

/// The table's rows as words, without headings.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// Registers a broker that is not there.
pub(crate) fn register_ghost(lab: &Lab, name: &str, addr: &str) {
    use minimq_protocol::body::RegisterBrokerBody;
    use minimq_protocol::code::{request, response};
    use minimq_protocol::header::RegisterBrokerRequest;
    let header = RegisterBrokerRequest {
        broker_name: name,
        broker_addr: addr,
        cluster_name: "DefaultCluster",
        ..RegisterBrokerRequest::default()
    };
    let request = minimq_protocol::Command::request_with(request::REGISTER_BROKER, &header)
        .with_body(RegisterBrokerBody::default().to_wire());
    let runtime = runtime();
    let answer = runtime.block_on(async {
        let client =
            minimq_remoting::Client::new(minimq_remoting::ClientConfig::default()).unwrap();
        let answer = client
            .call(lab.name_server(), request, Duration::from_secs(5))
            .await
            .unwrap();
        // The registration lives as long as its connection: to the end of the process.
        std::mem::forget(client);
        answer
    });
    std::mem::forget(runtime);
    assert_eq!(answer.code, response::SUCCESS, "{}", answer.remark());
}

/// Stores an offset of a group in queue 0 of `broker-a`.
pub(crate) fn commit(lab: &Lab, group: &str, topic: &str, offset: i64) {
    runtime().block_on(async {
        let client = minimq_client::Client::connect(lab.name_server())
            .await
            .unwrap();
        let queue = minimq_client::MessageQueue::new(topic, "broker-a", 0);
        client
            .admin()
            .set_consumer_offset(lab.broker(0), group, &queue, offset)
            .await
            .unwrap();
        client.shutdown().await;
    });
}
