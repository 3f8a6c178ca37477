//! The configuration of `mqbroker` as its user meets it: `-t` with good and bad files, `-p` and `-m`, and every key of
//! RocketMQ 4.9.8 (broker spec 17) known, with its default; those without a meaning here are accepted, and it is said.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// Key, default (`?`: depends on the machine, or none), whether it is important, whether it has a meaning here.
/// `enablePropertyFilter` is on by default, unlike 4.9.8.
const KEYS: &str = include_str!("broker_keys.tsv");

struct Key {
    name: &'static str,
    default: Option<&'static str>,
    important: bool,
    ignored: bool,
}

fn keys() -> Vec<Key> {
    let rows = KEYS.lines().skip(1);
    rows.map(|row| match row.split('\t').collect::<Vec<_>>()[..] {
        [name, default, important, here] => Key {
            name,
            default: (default != "?").then_some(default),
            important: important == "I",
            ignored: here == "ignored",
        },
        _ => panic!("{row}"),
    })
    .collect()
}

fn mqbroker(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mqbroker"))
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// `-t` on a file with this text: whether it is good, and what was said.
fn check(home: &Path, file: &str) -> (bool, String) {
    let path = home.join("broker.conf");
    std::fs::write(&path, file).unwrap();
    let output = mqbroker(home, &["-t", "-c", path.to_str().unwrap()]);
    let good = text(&output.stdout).contains("the configuration is good");
    assert_eq!(good, output.status.success(), "{output:?}");
    (good, text(&output.stderr).to_owned())
}

fn printed(output: &Output) -> BTreeMap<&str, &str> {
    assert!(output.status.success(), "{output:?}");
    let lines = text(&output.stdout).lines();
    lines.filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn every_key_is_known_and_those_without_a_meaning_are_said_to_be_ignored() {
    let home = tempfile::tempdir().unwrap();
    let keys = keys();
    assert_eq!(keys.len(), 185);
    let file: String = keys
        .iter()
        .filter_map(|key| Some(format!("{}={}\n", key.name, key.default?)))
        .collect();
    let (good, said) = check(home.path(), &file);
    assert!(good, "{said}");
    let lines: Vec<&str> = file.lines().collect();
    for (line, pair) in lines.iter().enumerate() {
        let name = pair.split('=').next().unwrap();
        let key = keys.iter().find(|key| key.name == name).unwrap();
        let place = format!("broker.conf:{}: ", line + 1);
        let warning = said.lines().find(|warning| warning.contains(&place));
        assert_eq!(warning.is_some(), key.ignored, "{pair}: {warning:?}");
        assert!(warning.is_none_or(|warning| warning.contains(name)));
    }
}

#[test]
fn printing_shows_every_key_with_its_default() {
    let home = tempfile::tempdir().unwrap();
    let (all, important) = (
        mqbroker(home.path(), &["-p"]),
        mqbroker(home.path(), &["-m"]),
    );
    let (all, important) = (printed(&all), printed(&important));
    for key in keys() {
        let shown = all.get(key.name).copied();
        assert!(shown.is_some(), "{}", key.name);
        if let Some(default) = key.default {
            assert_eq!(shown, Some(default), "{}", key.name);
        }
        assert_eq!(
            important.contains_key(key.name),
            key.important,
            "{}",
            key.name
        );
    }
    let root = home.path().join("store");
    assert_eq!(all["storePathRootDir"], root.to_str().unwrap());
    assert_eq!(
        all["storePathCommitLog"],
        root.join("commitlog").to_str().unwrap()
    );
    assert!(!root.exists(), "nothing was started");
}

#[test]
fn a_bad_file_is_refused_by_key_value_and_line() {
    let home = tempfile::tempdir().unwrap();
    for (file, said) in [
        (
            "brokerName=b0\nlistenPort=many\n",
            &["broker.conf:2", "listenPort", "many"][..],
        ),
        (
            "longPollingEnable=yes\n",
            &["broker.conf:1", "longPollingEnable", "yes"],
        ),
        (
            "brokerRole=LEADER\n",
            &["broker.conf:1", "brokerRole", "LEADER", "SYNC_MASTER"],
        ),
        (
            "\n\ndiskMaxUsedSpaceRatio=99\n",
            &["broker.conf:3", "diskMaxUsedSpaceRatio", "99", "95"],
        ),
        ("namesrvAddr=nowhere\n", &["namesrvAddr", "nowhere"]),
        ("brokerRole=SLAVE\n", &["brokerRole=SLAVE", "brokerId"]),
        ("messageDelayLevel=1s 5x\n", &["messageDelayLevel", "5x"]),
        (
            "mappedFileSizeCommitLog=1\n",
            &["mappedFileSizeCommitLog", "1", "512"],
        ),
        // Both faults of a file at once.
        (
            "listenPort=a\nbrokerId=b\n",
            &["listenPort", "broker.conf:1", "brokerId", "broker.conf:2"],
        ),
    ] {
        let (good, stderr) = check(home.path(), file);
        assert!(!good, "{file}");
        for part in said {
            assert!(stderr.contains(part), "{file}: {part} is not in: {stderr}");
        }
    }
    let output = mqbroker(home.path(), &["-t", "-c", "/nowhere/broker.conf"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/broker.conf"));
}

#[test]
fn access_control_that_cannot_be_read_is_found_before_the_start() {
    let home = tempfile::tempdir().unwrap();
    let rules = home.path().join("plain_acl.yml");
    let file = format!("aclEnable=true\naclFile={}\n", rules.display());
    std::fs::write(&rules, "accounts: 7\n").unwrap();
    let (good, said) = check(home.path(), &file);
    assert!(!good && said.contains("plain_acl.yml"), "{said}");
    std::fs::write(
        &rules,
        "accounts:\n- accessKey: somebody\n  secretKey: a-secret\n",
    )
    .unwrap();
    let (good, said) = check(home.path(), &file);
    assert!(good, "{said}");
}

#[test]
fn an_unknown_key_is_no_error_and_the_one_that_was_meant_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (good, said) = check(home.path(), "brokerName=b0\nbrokerClusterNam=C1\n");
    assert!(good);
    for part in ["broker.conf:2", "brokerClusterNam", "brokerClusterName"] {
        assert!(said.contains(part), "{said}");
    }
}
