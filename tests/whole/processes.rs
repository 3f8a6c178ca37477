//! The programs as child processes: started on free ports, started again on the same ones, stopped or killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// One running program; killed when dropped.
struct Program {
    child: Child,
    /// What its ready line names.
    address: String,
}

impl Program {
    /// Starts it and waits for the line that says it serves; the address is what stands between `before` and the next
    /// of `]`, ` ` or the line's end.
    fn start(binary: &str, sets: &[(&str, String)], arguments: &[&str], before: &str) -> Self {
        let mut command = Command::new(binary);
        command.args(arguments).env_remove("MINIMQ_NAMESRV_ADDR");
        for (key, value) in sets {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{binary}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("{binary} ended before it served"))
                .unwrap();
            if let Some((_, rest)) = line.split_once(before) {
                break rest.split([']', ' ']).next().unwrap().to_owned();
            }
        };
        // Its output is read on, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn end(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a role ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// SIGTERM: it drains.
    Stopped,
    /// SIGKILL.
    Killed,
}

impl End {
    fn signal(self) -> Signal {
        match self {
            Self::Stopped => Signal::TERM,
            Self::Killed => Signal::KILL,
        }
    }
}

/// A role that can be started again as it was.
pub(crate) struct Role {
    start: Box<dyn Fn(&str) -> Program + Send>,
    running: Option<Program>,
    address: String,
}

impl Role {
    fn new(start: impl Fn(&str) -> Program + Send + 'static) -> Self {
        let running = start("127.0.0.1:0");
        Self {
            address: running.address.clone(),
            start: Box::new(start),
            running: Some(running),
        }
    }

    /// Where it listens, or listened last.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").child.id()
    }

    pub(crate) fn end(&mut self, how: End) {
        self.running.take().expect("it runs").end(how.signal());
    }

    /// Starts it where it was.
    pub(crate) fn start(&mut self) {
        self.running = Some((self.start)(&self.address));
    }

    /// Starts it on another free port.
    pub(crate) fn start_elsewhere(&mut self) {
        let running = (self.start)("127.0.0.1:0");
        assert_ne!(running.address, self.address);
        self.address.clone_from(&running.address);
        self.running = Some(running);
    }
}

/// Name server, brokers and a filter server beside each, in a temporary folder.
pub(crate) struct Cluster {
    // In this order they end when dropped.
    pub(crate) filter_servers: Vec<Role>,
    pub(crate) brokers: Vec<Role>,
    pub(crate) name_server: Role,
    _folder: tempfile::TempDir,
}

fn port(address: &str) -> String {
    address.rsplit(':').next().unwrap().to_owned()
}

fn broker(folder: PathBuf, name: String, name_server: String) -> Role {
    Role::new(move |address| {
        let sets = [
            ("bindAddress", "127.0.0.1".to_owned()),
            ("brokerIP1", "127.0.0.1".to_owned()),
            ("listenPort", port(address)),
            ("brokerName", name.clone()),
            ("namesrvAddr", name_server.clone()),
            ("registerNameServerPeriod", "10000".to_owned()),
            ("storePathRootDir", folder.display().to_string()),
            ("mappedFileSizeCommitLog", "4194304".to_owned()),
            ("mappedFileSizeConsumeQueue", "60000".to_owned()),
            ("maxHashSlotNum", "50000".to_owned()),
            ("maxIndexNum", "200000".to_owned()),
            ("diskSpaceWarningLevelRatio", "100".to_owned()),
            ("diskSpaceCleanForciblyRatio", "100".to_owned()),
            ("transactionTimeOut", "1000".to_owned()),
            ("transactionCheckInterval", "1000".to_owned()),
            // At one a second the usual 15 checks would be over before a producer is back.
            ("transactionCheckMax", "1000".to_owned()),
        ];
        let before = format!("The broker[{name}, ");
        Program::start(env!("CARGO_BIN_EXE_mqbroker"), &sets, &[], &before)
    })
}

fn filter_server(beside: String) -> Role {
    Role::new(move |address| {
        let arguments = ["--broker", &beside, "--listen", address];
        let before = "The Filter Server boot success, ";
        Program::start(env!("CARGO_BIN_EXE_mqfiltersrv"), &[], &arguments, before)
    })
}

impl Cluster {
    /// Another filter server beside the first broker, where that is now.
    pub(crate) fn start_filter_server(&mut self) {
        self.filter_servers
            .push(filter_server(self.brokers[0].address().to_owned()));
    }

    pub(crate) fn start(brokers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files: [(&str, PathBuf); 2] = [
            ("kvConfigPath", at("kvConfig.json")),
            ("configStorePath", at("namesrv.properties")),
        ];
        let name_server = Role::new(move |address| {
            let sets = files.clone();
            let sets = sets.map(|(key, path): (&str, PathBuf)| (key, text(&path)));
            let arguments = ["--listen", address];
            let before = "serializeType=JSON, address ";
            Program::start(env!("CARGO_BIN_EXE_mqnamesrv"), &sets, &arguments, before)
        });
        let brokers: Vec<Role> = (0..brokers)
            .map(|n| {
                let name = format!("broker-{n}");
                broker(at(&name), name, name_server.address().to_owned())
            })
            .collect();
        let filter_servers = brokers
            .iter()
            .map(|broker| filter_server(broker.address().to_owned()))
            .collect();
        Self {
            filter_servers,
            brokers,
            name_server,
            _folder: folder,
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
