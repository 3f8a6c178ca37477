//! The whole cluster: status, top, what is wrong with it, its settings; lists and what only our brokers tell.

use serde_json::{Value, json};

use crate::support::{Lab, attempt, bare, commit, finish, rows, runtime, tool, until};

#[test]
fn status_shows_name_servers_brokers_filter_servers_and_groups_on_one_screen() {
    let lab = Lab::start(&[], 2);
    lab.topic("Screen", 1);
    lab.send("Screen", "hello", "-b broker-a -i 0");
    lab.stored("Screen", 1);
    lab.ok("updateSubGroup -c DefaultCluster -g ScreenCG");
    commit(&lab, "ScreenCG", "Screen", 0);
    let text = until("the filter servers in the routes", || {
        let run = lab.line("status");
        let all = lab
            .cluster
            .filter_servers()
            .iter()
            .all(|addr| run.out.contains(addr));
        all.then_some(run.out)
    });
    for part in [
        "#Name Server",
        "#Role",
        "#Health",
        "#Version",
        "#In/s",
        "#Disk",
        "#Filter Server",
        "#Group",
        "#Behind",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let row = rows(&text)
        .into_iter()
        .find(|row| row.get(1) == Some(&"broker-a"))
        .unwrap();
    assert_eq!(
        row[..4],
        ["DefaultCluster", "broker-a", "master", lab.broker(0)],
        "{text}"
    );
    assert!(row.contains(&"V4_9_8") || row.len() >= 9, "{text}");
    let json = lab.json("status");
    assert_eq!(
        json["nameServers"],
        json!([{ "addr": lab.name_server(), "reached": true }])
    );
    assert_eq!(
        (&json["brokers"][1]["broker"], &json["brokers"][1]["role"]),
        (&json!("broker-b"), &json!("master"))
    );
    let group = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["group"] == "ScreenCG")
        .unwrap();
    assert_eq!(
        (&group["diffTotal"], &group["members"]),
        (&json!(1), &json!(0))
    );
    assert!(
        json["filterServers"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["reached"] == true)
    );

    let text = lab.ok("top --once");
    assert!(
        text.contains("  in ") && text.contains("#Broker") && text.contains("ScreenCG"),
        "{text}"
    );
    let run = lab.line("top --interval 0 --times 2 --output json");
    assert_eq!(run.status, 0, "{run:?}");
    let rounds: Vec<Value> = run
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rounds.len(), 2);
    assert!(rounds[0]["inTps"].is_number() && rounds[0]["brokers"].as_array().unwrap().len() == 2);
}

fn kinds(lab: &Lab) -> Vec<(String, String)> {
    let run = lab.line("clusterDiagnose --timeout 2 --output json");
    // A member that comes or goes meanwhile is told as something not done.
    assert!([0, 4].contains(&run.status), "{run:?}");
    let json: Value = serde_json::from_str(&run.out).unwrap();
    json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            assert!(
                !one["reason"].as_str().unwrap().is_empty()
                    && !one["remedy"].as_str().unwrap().is_empty(),
                "{one}"
            );
            (
                one["kind"].as_str().unwrap().to_owned(),
                one["what"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[test]
fn what_is_wrong_with_a_cluster_is_told_with_reason_and_remedy() {
    use minimq_client::{Client, Filter};
    let lab = Lab::start(&[], 1);
    lab.topic("Sick", 2);
    let mut found = Vec::new();
    let sound = attempt(|| {
        found = kinds(&lab);
        found.is_empty().then_some(())
    });
    assert!(sound.is_some(), "in a sound cluster: {found:?}");
    assert!(lab.ok("clusterDiagnose").contains("nothing found"));

    // A group behind that nobody consumes.
    lab.send("Sick", "hello", "-b broker-a -i 0");
    lab.ok("updateSubGroup -c DefaultCluster -g LeftCG");
    commit(&lab, "LeftCG", "Sick", 0);
    // Two members that subscribe differently.
    let runtime = runtime();
    let _members = runtime.block_on(async {
        let mut members = Vec::new();
        for tags in ["TagA", "TagB"] {
            let client = Client::connect(lab.name_server()).await.unwrap();
            let consumer = client
                .push_consumer("SplitCG")
                .subscribe("Sick", Filter::tags(tags))
                .run(|_| async {})
                .await
                .unwrap();
            members.push((client, consumer));
        }
        members
    });
    // A broker that is registered and not there.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    crate::support::register_ghost(&lab, "broker-z", &free.to_string());
    let found = until("all findings", || {
        let found = kinds(&lab);
        let has = |kind: &str, part: &str| {
            found
                .iter()
                .any(|(k, what)| k == kind && what.contains(part))
        };
        (has("address not reached", &free.to_string())
            && has("group without consumers", "LeftCG: 1 messages")
            && has("mixed subscriptions", "SplitCG"))
        .then_some(found)
    });
    assert!(
        !found.iter().any(|(kind, _)| kind == "clocks apart"),
        "{found:?}"
    );
    until("the same as text", || {
        let text = lab.line("clusterDiagnose --timeout 2").out;
        let told = text.contains("ERROR mixed subscriptions: group SplitCG");
        (told && text.contains("\n  remedy: ")).then_some(())
    });
    until("the members", || {
        let mixed = lab.line("mixedSubscriptions -b broker-a --output json");
        mixed.out.contains("SplitCG").then_some(())
    });
}

#[test]
fn a_name_server_that_is_away_is_told() {
    let lab = Lab::shared();
    let servers = format!("{};127.0.0.1:1", lab.name_server());
    let run = finish(tool().args(["clusterDiagnose", "-n", &servers, "--output", "json"]));
    assert_eq!(run.status, 0, "{run:?}");
    assert!(
        run.out.contains("name server away") && run.out.contains("127.0.0.1:1"),
        "{run:?}"
    );
    let run = finish(tool().args(["status", "-n", &servers]));
    assert_eq!(run.status, 4, "{run:?}");
    assert!(
        run.out.contains("AWAY") && run.err.contains("127.0.0.1:1"),
        "{run:?}"
    );
}

#[test]
fn settings_of_a_file_and_of_a_running_cluster_are_checked() {
    let lab = Lab::start(&[], 2);
    assert!(
        lab.ok("configCheck")
            .contains("2 brokers looked at, nothing found")
    );
    lab.ok("updateBrokerConfig -b broker-a -k maxMessageSize -v 1048576");
    let json = lab.json("configCheck -c DefaultCluster");
    let what = json["findings"][0]["what"].as_str().unwrap();
    assert!(
        what.starts_with("maxMessageSize differs in DefaultCluster: \"1048576\" at "),
        "{json}"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    let shown = file.display();
    std::fs::write(&file, "brokerName=broker-a\nlistenPort=abc\n").unwrap();
    let run = bare(&format!("configCheck {shown}"));
    assert_eq!(run.status, 3, "{run:?}");
    assert!(
        run.err.contains("listenPort") && run.err.contains("abc") && run.err.contains("2"),
        "{run:?}"
    );
    std::fs::write(&file, "brokerName=broker-a\nlistenPort=0\nnoSuchKey=1\n").unwrap();
    let run = bare(&format!("configCheck {shown}"));
    assert_eq!(run.status, 0, "{run:?}");
    assert!(
        run.out.contains("noSuchKey") && run.out.ends_with("the configuration is good\n"),
        "{run:?}"
    );
    std::fs::write(&file, "kvConfigPath=/tmp/x\nlistenPort=xyz\n").unwrap();
    let run = bare(&format!("configCheck {shown} --role namesrv"));
    assert_eq!(run.status, 3, "{run:?}");
    assert!(
        run.err.contains("mqnamesrv") && run.err.contains("xyz"),
        "{run:?}"
    );
    assert_eq!(bare("configCheck /no/such/file").status, 5);
    assert_eq!(
        bare(&format!("configCheck {shown} --role nobody")).status,
        1
    );
}

#[test]
fn keys_groups_and_accounts_are_listed() {
    let lab = Lab::shared();
    lab.ok("updateKvConfig -s LISTED_NS -k k1 -v v1");
    assert_eq!(rows(&lab.ok("kvList -s LISTED_NS")), [["k1", "v1"]]);
    assert_eq!(lab.json("kvList -s LISTED_NS"), json!({ "k1": "v1" }));
    assert_eq!(lab.json("kvList -s NO_SUCH_NS"), json!({}));
    lab.ok("updateSubGroup -b broker-a -g ListedCG -r 7");
    let text = lab.ok("groupList -b broker-a");
    let row = rows(&text)
        .into_iter()
        .find(|row| row[1] == "ListedCG")
        .unwrap();
    assert_eq!((row[0], row[5]), (lab.broker(0), "7"), "{text}");
    let all = lab.json("groupList");
    let own: Vec<&Value> = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["config"]["groupName"] == "ListedCG")
        .collect();
    assert_eq!(own.len(), 1);
    for command in ["damagedRecords", "heldPulls", "queueLocks"] {
        assert!(
            lab.ok(&format!("{command} -b broker-a"))
                .starts_with("#Addr")
        );
        assert!(lab.json(command).is_array());
    }
}

#[test]
fn locks_and_held_pulls_of_an_ordered_consumer_are_shown() {
    use minimq_client::{Client, Filter};
    let lab = Lab::shared();
    lab.topic("LockedT", 1);
    let runtime = runtime();
    let (client, _consumer) = runtime.block_on(async {
        let client = Client::connect(lab.name_server()).await.unwrap();
        let consumer = client
            .push_consumer("LockedCG")
            .subscribe("LockedT", Filter::all())
            .run_ordered(|_| async { minimq_client::OrderedOutcome::Done })
            .await
            .unwrap();
        (client, consumer)
    });
    let lock = until("the lock", || {
        let locks = lab.json("queueLocks -b broker-a");
        locks
            .as_array()?
            .iter()
            .find(|one| one["group"] == "LockedCG" && one["queue"]["topic"] == "LockedT")
            .cloned()
    });
    assert_eq!(lock["clientId"], client.client_id());
    until("the held pull", || {
        let pulls = lab.json("heldPulls -b broker-a");
        pulls
            .as_array()?
            .iter()
            .find(|one| one["queue"]["topic"] == "LockedT")
            .map(|_| ())
    });
}

#[test]
fn shells_get_their_completion() {
    for (shell, mark) in [
        ("bash", "complete -F _mqadmin"),
        ("zsh", "#compdef mqadmin"),
        ("fish", "complete -c mqadmin"),
    ] {
        let run = bare(&format!("completion {shell}"));
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
        for part in [mark, "updateTopic", "readQueueNums"] {
            assert!(run.out.contains(part), "{shell}: {part}");
        }
    }
    let run = bare("completion tcsh");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("bash, zsh and fish"), "{run:?}");
}
