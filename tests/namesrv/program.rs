//! The program: options, files, start, end.

use std::time::Instant;

use minimq_common::memory::Memory;
use minimq_protocol::Command;

use crate::harness::{Broker, NameServer, program, wait_for, with_fields};

/// Exit status, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn conf() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/namesrv.conf");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn it_starts_from_the_supplied_file_and_keeps_changes_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("namesrv.conf");
    std::fs::write(&file, conf()).unwrap();
    let path = file.to_str().unwrap();
    let server = NameServer::start_in(folder, &[], &["-c", path]);
    let mut peer = server.peer();
    let update = Command::request(318).with_body("orderMessageEnable=true");
    assert_eq!(peer.call(update).code, 0);
    let changed = std::fs::read_to_string(&file).unwrap();
    assert_eq!(changed, conf() + "orderMessageEnable=true\n");
    let log = server.log();
    assert!(
        !log.contains("there is no key") && !log.contains("no effect"),
        "{log}"
    );
}

/// Every key that the file shows as a comment exists and takes the value shown.
#[test]
fn the_supplied_file_shows_keys_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("namesrv.conf");
    let is_key =
        |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.contains('=');
    let shown: Vec<String> = conf()
        .lines()
        .filter(is_key)
        .map(|line| line[1..].to_owned())
        .collect();
    assert!(shown.len() > 15, "{shown:?}");
    std::fs::write(&file, shown.join("\n")).unwrap();
    let arguments = ["-c", file.to_str().unwrap(), "-p"];
    let (status, printed, error) = run(&arguments);
    assert_eq!(status, 0, "{error}");
    for line in shown {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line} in\n{printed}"
        );
    }
    let server = NameServer::start_in(
        folder,
        &["kvConfigPath=kv.json", "logDir="],
        &arguments[..2],
    );
    let log = server.log();
    assert!(!log.contains("there is no key"), "{log}");
}

#[test]
fn it_lists_its_keys_and_ends() {
    let (status, all, _) = run(&[
        "-p",
        "--set",
        "orderMessageEnable=true",
        "--listen",
        "[::1]:77",
    ]);
    assert_eq!(status, 0);
    for line in [
        "orderMessageEnable=true",
        "listenPort=77",
        "bindAddress=::1",
        "logLevel=info",
    ] {
        assert!(
            all.lines().any(|printed| printed == line),
            "{line} in\n{all}"
        );
    }
    let (status, important, _) = run(&["-m"]);
    assert_eq!(status, 0);
    assert!(
        important.contains("listenPort=9876\n") && !important.contains("maxTopics"),
        "{important}"
    );
    let (status, help, _) = run(&["-h"]);
    assert!(
        status == 0 && help.contains("--listen") && help.contains("Example"),
        "{help}"
    );
}

#[test]
fn a_wrong_start_ends_with_one_clear_sentence() {
    let server = NameServer::start(&[]);
    let taken = server.addr.to_string();
    for (arguments, words) in [
        (
            &["--listen", &taken][..],
            &[taken.as_str(), "another process", "--listen"][..],
        ),
        (
            &["--listen", "nowhere"],
            &["--listen nowhere", "127.0.0.1:9876"],
        ),
        (&["--set", "listenPort=x"], &["listenPort", "command line"]),
        (&["--set", "listenPort"], &["key=value"]),
        (&["-c", "/nonexistent/file"], &["/nonexistent/file"]),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--set",
                "aclEnable=true",
                "--set",
                "aclFile=/proc/nothing/x",
            ],
            &["aclFile", "/proc/nothing/x"],
        ),
        (&["--frobnicate"], &["--frobnicate"]),
    ] {
        let (status, output, error) = run(arguments);
        assert_eq!(status, 1, "{arguments:?}: {output}{error}");
        for word in words {
            assert!(error.contains(word), "{arguments:?}: {error}");
        }
        assert!(!error.contains("panicked"), "{error}");
        assert!(!output.contains("boot success"), "{output}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("namesrv")).unwrap();
    std::fs::write(folder.path().join("namesrv/kvConfig.json"), "{broken").unwrap();
    let output = program(folder.path(), &["--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && error.contains("kvConfig.json"),
        "{error}"
    );
}

#[test]
fn the_signal_ends_it_after_open_requests_are_answered() {
    let mut server = NameServer::start(&[]);
    let mut peer = server.peer();
    let mut broker = Broker::new("bx", "127.0.0.1:1001", 0);
    for topic in 0..20_000 {
        broker = broker.topic(&format!("Topic{topic}"), 4, 4);
    }
    let mut idle = server.peer();
    assert_eq!(idle.call(Command::request(106)).code, 0);
    peer.send(&broker.request().to_frame());
    // It is at work on it once others see its first topic.
    wait_for("the registration to begin", || {
        idle.route("Topic0").map(|_| ())
    });
    server.terminate();
    assert_eq!(peer.answer().code, 0);
    let start = Instant::now();
    assert!(server.wait().success());
    assert!(idle.try_answer().is_none());
    println!("ended {:?} after the last answer", start.elapsed());
}

#[test]
fn idle_memory_is_small() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    peer.call(with_fields(105, &[("topic", "none")]));
    let memory = Memory::of(server.pid()).unwrap();
    println!(
        "idle: RssAnon {} KiB, RssFile {} KiB, high water {} KiB",
        memory.rss_anon >> 10,
        memory.rss_file >> 10,
        memory.high_water >> 10
    );
    assert!(memory.rss_anon < 16 << 20, "{memory:?}");
}
