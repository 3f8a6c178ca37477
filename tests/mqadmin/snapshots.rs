//! Every command on one cluster: its text as kept in `snapshots/COMMAND.txt`, the names and types of its JSON as
//! documented in `mqadmin/JSON.md`. What changes from run to run is masked. To keep what is printed now:
//! `MQADMIN_SNAPSHOTS=write cargo test -p minimq --test mqadmin snapshots`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use minimq::{Cluster, Data};
use minimq_client::{Client, Filter, Message, OrderedOutcome, StartFrom};

use crate::masks::Masks;
use crate::offline::turn_byte;
use crate::shapes::{Seen, Shapes};
use crate::support::{Lab, Run, bare, commit, finish, runtime, tool, until};

/// What was printed, by command.
#[derive(Default)]
struct Book {
    masks: Masks,
    name_server: String,
    account: Option<(&'static str, &'static str)>,
    pages: BTreeMap<String, String>,
    seen: Seen,
}

/// Printed in other tests (whose JSON is compared too), or only of brokers and clients of another kind.
const ELSEWHERE: &[&str] = &[
    "aclList/",
    "consumed/0: .remark",
    "filterList/0: [].filters[].lastError",
];

/// How an output is made comparable.
#[derive(Clone, Copy)]
enum Kept<'k> {
    /// But for ids, addresses and times, as it is.
    Steady,
    /// Without figures.
    Loose,
    /// Only the lines that begin with one of these, as they are.
    Only(&'k [&'k str]),
    /// The same without figures.
    OnlyLoose(&'k [&'k str]),
}

impl Book {
    /// Goes on with this cluster.
    fn know(&mut self, lab: &Lab) {
        self.name_server = lab.name_server().to_owned();
        self.masks.hide_address(lab.name_server(), "name srv");
        let brokers = lab.cluster.brokers().iter().zip(["broker-a", "broker-b"]);
        for (addr, name) in brokers {
            self.masks.hide_address(addr, name);
        }
        // Their order is that of their ports.
        for addr in lab.cluster.filter_servers() {
            self.masks.hide_address(addr, "filter srv");
        }
    }

    fn run(&self, words: &[&str]) -> Run {
        let mut command = tool();
        command.args(words).args(["-n", &self.name_server]);
        if let Some((key, secret)) = self.account {
            command
                .env("MINIMQ_ACCESS_KEY", key)
                .env("MINIMQ_SECRET_KEY", secret);
        }
        finish(&mut command)
    }

    fn keep(&mut self, line: &str, text: &str, kept: Kept) {
        let shown = match kept {
            Kept::Steady => self.masks.steady(text),
            Kept::Loose => self.masks.loose(text),
            Kept::Only(beginnings) => lines_of(&self.masks.steady(text), beginnings),
            Kept::OnlyLoose(beginnings) => lines_of(&self.masks.loose(text), beginnings),
        };
        let command = line.split_whitespace().next().unwrap_or_default();
        let page = self.pages.entry(command.to_owned()).or_default();
        if !page.is_empty() {
            page.push('\n');
        }
        let line = self.masks.steady(line);
        page.push_str(&format!("$ mqadmin {line}\n{shown}"));
    }

    /// It must be done; as text and as JSON.
    fn take(&mut self, kept: Kept, lines: &[&str]) {
        for line in lines {
            self.text(kept, line);
            self.json(&line.split_whitespace().collect::<Vec<_>>());
        }
    }

    fn text(&mut self, kept: Kept, line: &str) {
        let run = self.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{line}: {run:?}");
        self.keep(line, &run.out, kept);
    }

    fn json(&mut self, words: &[&str]) {
        let words: Vec<&str> = words.iter().copied().chain(["--output", "json"]).collect();
        let run = self.run(&words);
        assert!([0, 4].contains(&run.status), "{words:?}: {run:?}");
        let shapes = Shapes::documented();
        shapes.check(words[0], &run.out, &mut self.seen);
    }

    /// It is not done; what it says then, and its status.
    fn refused(&mut self, line: &str) {
        self.not_done(Kept::Steady, line);
    }

    fn not_done(&mut self, kept: Kept, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let run = self.run(&words);
        assert_ne!(run.status, 0, "{line}: {run:?}");
        let text = format!("{}{}[status {}]\n", run.out, run.err, run.status);
        self.keep(line, &text, kept);
    }

    /// Compares with what was kept, or keeps it.
    fn close(self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mqadmin/snapshots");
        if std::env::var("MQADMIN_SNAPSHOTS").is_ok_and(|value| value == "write") {
            for (command, page) in &self.pages {
                std::fs::write(folder.join(format!("{command}.txt")), page).unwrap();
            }
        }
        let mut differing = Vec::new();
        for (command, page) in &self.pages {
            let file = folder.join(format!("{command}.txt"));
            let before = std::fs::read_to_string(&file).unwrap_or_default();
            if before != *page {
                differing.push(format!("== {command} was\n{before}\n== and is\n{page}"));
            }
        }
        assert!(differing.is_empty(), "{}", differing.join("\n"));
        // Every command, and no page of one that is gone.
        let commands: BTreeSet<String> = commands().into_iter().collect();
        assert_eq!(
            self.pages.keys().cloned().collect::<BTreeSet<_>>(),
            commands
        );
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            path.file_stem().unwrap().to_str().unwrap().to_owned()
        });
        assert_eq!(files.collect::<BTreeSet<_>>(), commands);
        // Every field that is documented has been printed.
        let missing: Vec<String> = Shapes::documented()
            .all_fields()
            .difference(&self.seen)
            .filter(|field| !ELSEWHERE.iter().any(|other| field.starts_with(other)))
            .cloned()
            .collect();
        assert!(missing.is_empty(), "never printed: {missing:#?}");
    }
}

fn lines_of(text: &str, beginnings: &[&str]) -> String {
    let lines = text
        .lines()
        .filter(|line| beginnings.iter().any(|b| line.starts_with(b)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The commands of the list.
fn commands() -> Vec<String> {
    let list = bare("").out;
    let lines = list.lines().filter_map(|line| line.strip_prefix("   "));
    lines
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect()
}

#[test]
fn every_command_has_its_json_documented() {
    for command in commands() {
        assert!(Shapes::documented().has(&command), "{command}");
    }
}

#[test]
fn every_command_prints_what_was_kept_and_json_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let data = path("data");
    let lab = start(&data);
    let mut book = Book::default();
    book.know(&lab);
    book.masks
        .hide(&folder.path().display().to_string(), "folder");
    topics(&lab, &mut book);
    let first = messages(&lab, &mut book);
    brokers(&lab, &mut book);
    groups(&lab, &mut book, &first);
    filters(&lab, &mut book, folder.path());
    files(&mut book, folder.path());
    deletions(&mut book);
    drop(lab);
    stores(&mut book, &data.join("broker-a"));
    damage(&mut book, &data);
    accounts(&mut book);
    book.close();
}

/// Two brokers whose addresses are in the order of their names, as are their filter servers: what is sorted by address
/// stands in one order then.
fn start(data: &Path) -> Lab {
    loop {
        let builder = Cluster::builder()
            .brokers(2)
            .data(Data::Folder(data.to_owned()))
            .set("enablePropertyFilter", "true")
            .set("traceTopicEnable", "true");
        let cluster = runtime().block_on(builder.start()).unwrap();
        if cluster.brokers().is_sorted() && cluster.filter_servers().is_sorted() {
            return Lab { cluster };
        }
    }
}

fn topics(lab: &Lab, book: &mut Book) {
    book.take(
        Kept::Steady,
        &[
            "updateTopic -c DefaultCluster -t Snap -r 2 -w 2",
            "updateTopic -b broker-b -t SnapB -r 1 -w 1",
        ],
    );
    // Both brokers are in its route.
    lab.topic("Snap", 2);
    until("the filter servers in the route", || {
        let route = lab.json("topicRoute -t Snap");
        (route["filterServerTable"].as_object()?.len() == 2).then_some(())
    });
    book.take(
        Kept::Steady,
        &[
            "topicRoute -t Snap",
            "topicRoute -t Snap -l",
            "topicStatus -t Snap",
            "topicClusterList -t Snap",
            "topicList",
            "topicList -c",
            "updateOrderConf -t Snap -m put -v broker-a:2;broker-b:2",
            "updateOrderConf -t Snap -m get",
            "updateOrderConf -t Snap -m delete",
            "allocateMQ -t Snap -i 10.0.0.1,10.0.0.2,10.0.0.3",
            "updateTopicPerm -c DefaultCluster -t Snap -p 4 --dry-run",
            "deleteTopic -c DefaultCluster -t Snap --dry-run",
        ],
    );
    let line = "updateTopicPerm -c DefaultCluster -t Snap -p 4";
    book.take(
        Kept::Steady,
        &[line, "updateTopicPerm -c DefaultCluster -t Snap -p 6"],
    );
    for line in [
        "topicRoute -t NoSuchTopic",
        "updateTopic -t Snap",
        "updateTopic -c NoCluster -t Snap",
        "updateTopic -c DefaultCluster -t Snap -r abc",
        "updateTopic -c DefaultCluster -t Snap -p 5",
        "updateOrderConf -t Snap -m get",
    ] {
        book.refused(line);
    }
}

/// The id of the first message.
fn messages(lab: &Lab, book: &mut Book) -> String {
    // Each is sent twice: as text and as JSON.
    book.take(
        Kept::Steady,
        &["sendMessage -t Snap -p hello -k order-1 -c TagA -b broker-a -i 0"],
    );
    lab.stored("Snap", 2);
    let found = lab.json("queryMsgByOffset -t Snap -b broker-a -i 0 -o 0");
    let text = |name: &str| found[name].as_str().unwrap().to_owned();
    let (id, offset_id) = (text("id"), text("offsetId"));
    book.take(
        Kept::Steady,
        &[
            "queryMsgByOffset -t Snap -b broker-a -i 0 -o 0",
            &format!("queryMsgById -i {offset_id}"),
            &format!("queryMsgByUniqueKey -t Snap -i {id}"),
            &format!("queryMsgByUniqueKey -t Snap -i {id} -a"),
            "queryMsgByKey -t Snap -k order-1",
            "printMsg -t Snap",
            "printMsgByQueue -t Snap -a broker-a -i 0 -p true -d true -f true",
            "consumeMessage -t Snap -c 1",
            "queryCq -t Snap -q 0 -i 0 -c 1 -b broker-a",
            "queryCq -t Snap -q 0 -i 0 -c 1 -b broker-a -g SnapCG",
            "tail Snap --last 1 --max 1",
            "consume Snap --max 1",
        ],
    );
    for line in [
        "queryMsgById -i xyz",
        "queryMsgByKey -t Snap -k no-such-key",
        "queryMsgByOffset -t Snap -b broker-a -i 0 -o 99",
        "queryMsgByOffset -t Snap -b broker-x -i 0 -o 0",
        "printMsg -t Snap -b tomorrow",
        "printMsgByQueue -t Snap -a broker-a -i 9",
        "sendMessage -t Snap -p x -b broker-a -i 77",
        "sendMessage -t Snap -p x -i 0",
    ] {
        book.refused(line);
    }
    // What was traced is in the index a moment later.
    let sent = lab.json("sendMessage -t Snap -p traced -m true -b broker-b -i 0");
    let traced = sent["id"].as_str().unwrap().to_owned();
    until("the trace", || {
        (lab.line(&format!("queryMsgTraceById -i {traced}")).status == 0).then_some(())
    });
    book.take(Kept::Loose, &[&format!("queryMsgTraceById -i {traced}")]);
    book.refused("queryMsgTraceById -i no-such-id");
    book.take(
        Kept::Loose,
        &[
            "send Snap one two -b broker-b -i 1",
            "send Snap one two --dry-run",
            "sendMsgStatus -b broker-b -c 2",
            "checkMsgSendRT -t SnapB -a 2",
            "clusterRT -a 1 -i 0 --times 1",
        ],
    );
    id
}

fn brokers(lab: &Lab, book: &mut Book) {
    until("the messages in the figures", || {
        let text = lab.ok("statsAll -t Snap");
        text.lines()
            .any(|line| line.starts_with("Snap "))
            .then_some(())
    });
    book.take(
        Kept::Loose,
        &[
            "clusterList",
            "clusterList -m",
            "clusterList -i 0 --times 2",
            "statsAll -t Snap",
            "startMonitoring --times 1",
            "top --once",
        ],
    );
    let figures = [
        "brokerVersionDesc",
        "commitLogM",
        "msgPut",
        "putTps",
        "runtime",
    ];
    book.take(Kept::OnlyLoose(&figures), &["brokerStatus -b broker-a"]);
    let titles = ["====", "brokerName ", "flushDiskType ", "maxMessageSize "];
    book.take(Kept::Only(&titles), &["getBrokerConfig -c DefaultCluster"]);
    book.take(
        Kept::Only(&["====", "kvConfigPath ", "orderMessageEnable "]),
        &["getNamesrvConfig"],
    );
    let groups = ["#", "<broker-a>.....  TOOLS_CONSUMER"];
    book.take(Kept::Only(&groups), &["groupList -b broker-a"]);
    book.take(
        Kept::Steady,
        &[
            "updateBrokerConfig -b broker-a -k maxMessageSize -v 1048576",
            "updateBrokerConfig -b broker-a -k maxMessageSize -v 2097152 --dry-run",
            "updateNamesrvConfig -k orderMessageEnable -v true",
            "updateKvConfig -s SNAP_NS -k k -v v",
            "kvList -s SNAP_NS",
            "deleteKvConfig -s SNAP_NS -k k",
            "wipeWritePerm -b broker-b",
            "addWritePerm -b broker-b",
            "cleanExpiredCQ",
            "cleanUnusedTopic -b broker-a",
            "deleteExpiredCommitLog -c DefaultCluster",
            "damagedRecords",
            "completion fish --dry-run",
            "configCheck -c DefaultCluster",
        ],
    );
    // Of a script that long only the first line is kept.
    let page = book.pages.get_mut("completion").unwrap();
    *page = page
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect();
    for line in [
        "updateBrokerConfig -b broker-a -k noSuchKey -v 1",
        "updateBrokerConfig -b broker-a -k storePathRootDir -v /x",
        "updateBrokerConfig -b broker-a -k maxMessageSize -v abc",
        "updateNamesrvConfig -k noSuchKey -v 1",
        "updateNamesrvConfig -k kvConfigPath -v /x",
        "wipeWritePerm -b broker-x",
        "brokerStatus",
        "brokerStatus -b broker-x",
        "cleanExpiredCQ -c NoCluster",
        "clusterAclConfigVersion -b broker-a",
        "completion tcsh",
        "clusterList --timeout soon",
    ] {
        book.refused(line);
    }
}

fn groups(lab: &Lab, book: &mut Book, first: &str) {
    book.take(
        Kept::Steady,
        &[
            "updateSubGroup -c DefaultCluster -g SnapCG -r 3",
            "getConsumerConfig -g SnapCG",
        ],
    );
    for command in [
        "consumerProgress",
        "consumerConnection",
        "consumerStatus",
        "getConsumerConfig",
    ] {
        book.refused(&format!("{command} -g NoSuchCG"));
    }
    // Offsets of a group without members.
    lab.ok("updateTopic -c DefaultCluster -t %RETRY%SnapCG -r 1 -w 1");
    until("the route of the retry topic", || {
        (lab.line("topicRoute -t %RETRY%SnapCG").status == 0).then_some(())
    });
    lab.topic("SnapR", 1);
    lab.send("SnapR", "one", "-b broker-a -i 0");
    lab.stored("SnapR", 1);
    commit(lab, "SnapCG", "SnapR", 0);
    book.take(
        Kept::Steady,
        &[
            "resetOffsetByTime -g SnapCG -t SnapR -s 1000",
            "startMonitoring --times 1 --behind 1",
            "skipAccumulatedMessage -g SnapCG -t SnapR",
            "skipAccumulatedMessage -g SnapCG -t SnapR --dry-run",
            "cloneGroupOffset -s SnapCG -d SnapCopyCG -t SnapR -o true",
        ],
    );
    book.take(Kept::Loose, &["brokerConsumeStats -b broker-a"]);
    book.refused("resetOffsetByTime -g NoSuchCG -t SnapR -s now");
    book.refused("resetOffsetByTime -g SnapCG -t Snap -s yesterday");
    book.refused("cloneGroupOffset -s NoSuchCG -d X -t Snap");
    members(lab, book, first);
}

/// With a member, a producer, and members that disagree.
fn members(lab: &Lab, book: &mut Book, first: &str) {
    let runtime = runtime();
    let (clients, _running) = runtime.block_on(async {
        let client = Client::connect(lab.name_server()).await.unwrap();
        let producer = client.producer("SnapPG").build().await.unwrap();
        producer
            .send(Message::new("SnapB", "by the producer").tag("TagA"))
            .await
            .unwrap();
        let consumer = client
            .push_consumer("SnapCG")
            .trace(true)
            .start_from(StartFrom::Beginning)
            .subscribe("Snap", Filter::tags("TagA"))
            .run_ordered(|_| async { OrderedOutcome::Done })
            .await
            .unwrap();
        let mut clients = vec![client];
        let mut mixed = Vec::new();
        for tags in ["TagA", "TagB"] {
            let client = Client::connect(lab.name_server()).await.unwrap();
            let consumer = client
                .push_consumer("SnapMixCG")
                .subscribe("SnapB", Filter::tags(tags))
                .run(|_| async {})
                .await
                .unwrap();
            clients.push(client);
            mixed.push(consumer);
        }
        (clients, (producer, consumer, mixed))
    });
    let id = clients[0].client_id().to_owned();
    book.masks.hide(&id, "client");
    for client in &clients[1..] {
        book.masks.hide(client.client_id(), "mixed");
    }
    until("everything consumed", || {
        let run = lab.line("consumerProgress -g SnapCG -o json");
        let progress: serde_json::Value = serde_json::from_str(&run.out).ok()?;
        let queues = progress["queues"].as_array()?.iter();
        let own = queues.filter(|queue| queue["topic"] == "Snap").count();
        (own == 4 && progress["diffTotal"] == 0).then_some(())
    });
    until(
        "the locks, the held pulls and the mixed subscriptions",
        || {
            let locks = lab.json("queueLocks");
            let pulls = lab.json("heldPulls");
            let mixed = lab.json("mixedSubscriptions");
            let own = |list: &serde_json::Value| {
                let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
                list.iter()
                    .filter(|one| one["queue"]["topic"] == "Snap")
                    .count()
            };
            let all = own(&locks) == 4 && own(&pulls) == 4 && !mixed.as_array()?.is_empty();
            all.then_some(())
        },
    );
    book.take(
        Kept::Loose,
        &[
            "consumerConnection -g SnapCG",
            "consumerProgress -g SnapCG -s true",
            "producerConnection -g SnapPG -t SnapB",
            "queryCq -t Snap -q 0 -i 0 -c 1 -b broker-a -g SnapCG",
        ],
    );
    book.take(
        Kept::OnlyLoose(&["producer group (SnapPG)"]),
        &["producer -b broker-b"],
    );
    book.take(
        Kept::OnlyLoose(&["#Addr", "<broker-a>.....  Snap"]),
        &["queueLocks"],
    );
    let trace = format!("queryMsgTraceById -i {first}");
    until("the trace of its consumption", || {
        let run = lab.line(&format!("{trace} -o json"));
        let told: serde_json::Value = serde_json::from_str(&run.out).ok()?;
        (told["consumptions"][0]["success"] == true).then_some(())
    });
    book.take(Kept::Loose, &[&trace]);
    let offset_id = lab.json("queryMsgByOffset -t Snap -b broker-a -i 0 -o 0");
    let offset_id = offset_id["offsetId"].as_str().unwrap();
    book.take(
        Kept::Loose,
        &[
            &format!("queryMsgByUniqueKey -t Snap -i {first}"),
            &format!("queryMsgByUniqueKey -t Snap -i {first} -g SnapCG -d {id}"),
            &format!("queryMsgById -i {offset_id} -g SnapCG -d {id}"),
        ],
    );
    let sections = ["#Index", "Same", "Rebalance", "#Consumer"];
    book.take(
        Kept::OnlyLoose(&sections),
        &[
            "consumerStatus -g SnapCG",
            &format!("consumerStatus -g SnapCG -i {id} -s"),
        ],
    );
    book.refused("consumerStatus -g SnapCG -i nobody");
    book.refused("producerConnection -g NoSuchPG -t Snap");
    // What they hold and disagree on changes from moment to moment.
    book.take(
        Kept::OnlyLoose(&["#Addr"]),
        &["heldPulls", "mixedSubscriptions"],
    );
    book.take(
        Kept::Only(&["#Topic", "Snap", "Diff"]),
        &["consumerProgress -g SnapCG"],
    );
    book.take(
        Kept::OnlyLoose(&["#Group", "SnapCG"]),
        &["consumerProgress"],
    );
    book.take(Kept::OnlyLoose(&["#"]), &["status", "statsAll"]);
    let mixed = [
        "ERROR mixed subscriptions: group SnapMixCG",
        "  why:    the broker filters",
    ];
    book.take(Kept::Only(&mixed), &["clusterDiagnose"]);
    let line = "resetOffsetByTime -g SnapCG -t Snap -s now";
    until("an offset in every queue", || {
        (lab.line(line).status == 0).then_some(())
    });
    let skip = "skipAccumulatedMessage -g SnapCG -t Snap";
    book.take(Kept::Loose, &[line, skip]);
    // Last, for which queue it goes to is not known.
    book.json(&["queryMsgById", "-i", offset_id, "-s", "true"]);
    runtime.block_on(async {
        for client in clients {
            client.shutdown().await;
        }
    });
}

fn filters(lab: &Lab, book: &mut Book, folder: &Path) {
    let module = folder.join("odd.wat");
    std::fs::write(&module, crate::filters::modulo(2, 1)).unwrap();
    let failing = folder.join("failing.wat");
    std::fs::write(&failing, crate::filters::FAILING).unwrap();
    let messages = folder.join("messages.jsonl");
    let lines =
        (0..4).map(|id| format!("{{\"body\":\"m{id}\",\"properties\":{{\"SequenceId\":{id}}}}}\n"));
    std::fs::write(&messages, lines.collect::<String>()).unwrap();
    let (module, failing, messages) = (module.display(), failing.display(), messages.display());
    book.take(
        Kept::Loose,
        &[
            "filterList",
            &format!("filterPush {module} -t Snap -g SnapFilterCG --name odd"),
            &format!("filterTest {module} -f {messages} --print"),
        ],
    );
    book.json(&[
        "filterTest",
        &failing.to_string(),
        "-f",
        &messages.to_string(),
    ]);
    until("the filter in the list", || {
        let text = lab.ok("filterList");
        (text.matches("Snap@SnapFilterCG").count() == 2).then_some(())
    });
    book.take(Kept::Loose, &["filterList"]);
    book.refused(&format!("filterTest {messages} -t Snap"));
    book.refused("filterTest /no/such/module -t Snap");
    book.refused(&format!("filterPush {module} -t NoSuchTopic -g G"));
}

fn files(book: &mut Book, folder: &Path) {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    let export = path("export");
    let export = export.display();
    let out = path("out.jsonl");
    let conf = path("broker.conf");
    std::fs::write(&conf, "brokerName=broker-a\nlistenPort=0\nnoSuchKey=1\n").unwrap();
    let wrong = path("wrong.conf");
    std::fs::write(&wrong, "brokerName=broker-a\nlistenPort=abc\n").unwrap();
    book.take(
        Kept::Loose,
        &[
            &format!("exportMetadata -c DefaultCluster -f {export}"),
            &format!("exportConfigs -c DefaultCluster -f {export}"),
            &format!("exportMetrics -c DefaultCluster -f {export}"),
            &format!("consume Snap --max 1 --each json --file {}", out.display()),
            &format!("configCheck {}", conf.display()),
        ],
    );
    book.refused(&format!("configCheck {}", wrong.display()));
    book.refused("exportConfigs -c DefaultCluster -f /proc/no-such-folder");
}

fn deletions(book: &mut Book) {
    book.take(
        Kept::Steady,
        &[
            "deleteSubGroup -b broker-a -g SnapCopyCG",
            "deleteSubGroup -c DefaultCluster -g SnapCG",
            "deleteTopic -c DefaultCluster -t SnapB",
        ],
    );
    book.refused("deleteTopic -c NoCluster -t Snap");
    book.refused("deleteTopic -t Snap");
}

fn stores(book: &mut Book, store: &Path) {
    let store = store.display();
    book.take(
        Kept::Loose,
        &[
            &format!("storeVerify {store}"),
            &format!("storeDump {store} -t Snap --max 1"),
        ],
    );
    book.refused("storeVerify /no/such/folder");
    book.refused("topicList");
}

/// One byte of a stored message is turned while its broker is away.
fn damage(book: &mut Book, data: &Path) {
    let store = data.join("broker-a");
    turn_byte(&store, b"hello");
    book.not_done(Kept::Loose, &format!("storeVerify {}", store.display()));
    let lab = start(data);
    book.know(&lab);
    lab.topic("Snap", 2);
    let found = lab.json("damagedRecords");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (
            &found[0]["addr"],
            &found[0]["from"],
            &found[0]["queueOffset"]
        ),
        (&lab.broker(0).into(), &0.into(), &0.into())
    );
    assert_eq!(found[0]["queue"]["topic"], "Snap", "{found}");
    book.take(Kept::Loose, &["damagedRecords"]);
    let told = [
        "ERROR damaged",
        "  why:    they are never served",
        "  remedy: `mqadmin damagedRecords`",
    ];
    book.take(Kept::Only(&told), &["clusterDiagnose"]);
    book.not_done(
        Kept::Loose,
        "queryMsgByOffset -t Snap -b broker-a -i 0 -o 0",
    );
    // What follows it is served.
    book.take(
        Kept::Loose,
        &["queryMsgByOffset -t Snap -b broker-a -i 0 -o 1"],
    );
}

fn accounts(book: &mut Book) {
    let (lab, folder) = crate::access::guarded();
    book.know(&lab);
    book.account = Some(("adminkey", "admin-secret-1"));
    book.masks
        .hide(&folder.path().display().to_string(), "rules");
    let made = "updateAclConfig -b broker-a -a AdmUserAK -s admsecret123 -i DENY -u SUB -t topicA=DENY,topicD=SUB";
    book.take(
        Kept::Loose,
        &[
            made,
            "clusterAclConfigVersion -c DefaultCluster",
            "clusterAclConfigVersion -b broker-a",
            "updateGlobalWhiteAddr -b broker-a -g 10.10.10.1",
        ],
    );
    // An account is deleted once.
    let deleted = "deleteAclConfig -b broker-a -a AdmUserAK";
    book.json(&deleted.split_whitespace().collect::<Vec<_>>());
    book.json(&made.split_whitespace().collect::<Vec<_>>());
    book.text(Kept::Steady, deleted);
    book.refused(deleted);
    book.refused("aclList");
    book.refused("updateAclConfig -b broker-a -a x -s y");
    book.account = Some(("adminkey", "wrong-secret"));
    book.refused("brokerStatus -b broker-a");
}
