//! On a terminal: colour, and questions before something is destroyed.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use minimq::{Cluster, Data};

use crate::support::{Lab, bare, runtime, tool, until};

/// Runs the tool on a terminal, types the answer; its status and all that the terminal showed.
fn on_terminal(name_server: &str, line: &str, answer: &str, no_colour: bool) -> (i32, String) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let side = || {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        std::fs::File::from(rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap())
    };
    let mut command = tool();
    command
        .args(line.split_whitespace())
        .args(["-n", name_server])
        .stdin(Stdio::from(side()))
        .stdout(Stdio::from(side()))
        .stderr(Stdio::from(side()))
        .env_remove("NO_COLOR");
    if no_colour {
        command.env("NO_COLOR", "1");
    }
    let mut child = command.spawn().unwrap();
    // This process keeps no end of the terminal's other side.
    drop(command);
    let mut terminal = std::fs::File::from(controller);
    let mut answer = Some(answer);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    // The end is an error once the last program has gone.
    while let Ok(count) = terminal.read(&mut buffer) {
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&buffer[..count]);
        // Typed when it is asked for, so that its echo does not come in between.
        let asked = shown.windows(5).any(|part| part == b"[y/N]");
        if let Some(answer) = answer.take_if(|_| asked) {
            terminal.write_all(answer.as_bytes()).unwrap();
        }
    }
    let status = child.wait().unwrap().code().unwrap_or(-1);
    (status, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_dangerous_command_says_what_it_will_do_and_asks() {
    let lab = Lab::shared();
    lab.topic("Asked", 1);
    let exists = || lab.line("topicRoute -t Asked").status == 0;
    let line = "deleteTopic -c DefaultCluster -t Asked";
    for answer in ["n\n", "\n", "nonsense\n"] {
        let (status, shown) = on_terminal(lab.name_server(), line, answer, false);
        assert_eq!(status, 1, "{shown}");
        assert!(
            shown.contains("This deletes the topic and all its queues (clusterName=DefaultCluster, topic=Asked). Go on? [y/N]"),
            "{shown}"
        );
        assert!(exists());
    }
    // A dry run asks nothing, and neither does a pipe.
    let (status, shown) = on_terminal(lab.name_server(), &format!("{line} --dry-run"), "", false);
    assert!(
        status == 0 && shown.contains("Nothing was changed."),
        "{shown}"
    );
    let (status, shown) = on_terminal(lab.name_server(), line, "y\n", false);
    assert_eq!(status, 0, "{shown}");
    until("the topic gone", || (!exists()).then_some(()));
    let (status, shown) = on_terminal(lab.name_server(), &format!("{line} --yes"), "", false);
    assert!(status == 0 && !shown.contains("Go on?"), "{shown}");
}

#[test]
fn every_command_that_destroys_something_asks_and_does_nothing_if_the_answer_is_no() {
    let lab = Lab::shared();
    for line in [
        "deleteTopic -c DefaultCluster -t AskedT",
        "deleteSubGroup -c DefaultCluster -g AskedCG",
        "resetOffsetByTime -g AskedCG -t AskedT -s now",
        "skipAccumulatedMessage -g AskedCG -t AskedT",
        "cloneGroupOffset -s AskedCG -d OtherCG -t AskedT",
        "cleanUnusedTopic -c DefaultCluster",
        "deleteExpiredCommitLog -c DefaultCluster",
        "wipeWritePerm -b broker-a",
        "deleteAclConfig -b broker-a -a AskedAK",
    ] {
        // No name server: it is asked before anybody is called.
        let (status, shown) = on_terminal("127.0.0.1:1", line, "n\n", false);
        assert_eq!(status, 1, "{line}: {shown}");
        for part in ["This ", "Go on? [y/N]", "not done: ", "--yes", "--dry-run"] {
            assert!(shown.contains(part), "{line}: {part}: {shown}");
        }
        // Answered with yes it goes on, to find nobody there.
        let (status, shown) = on_terminal("127.0.0.1:1", line, "y\n", false);
        assert_eq!(status, 2, "{line}: {shown}");
        let run = lab.line(&format!("{line} --dry-run"));
        assert!([0, 5].contains(&run.status), "{line}: {run:?}");
        assert!(!run.out.contains("success"), "{line}: {run:?}");
    }
    // Nothing was wiped by a dry run.
    let routes = lab.json("topicRoute -t TBW102");
    let queues = routes["queueDatas"].as_array().unwrap();
    assert!(
        queues
            .iter()
            .all(|queue| queue["perm"].as_i64().unwrap() & 2 != 0),
        "{routes}"
    );
}

#[test]
fn a_bar_shows_how_far_the_check_of_a_store_is() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cluster::builder().data(Data::Folder(folder.path().to_owned()));
    let cluster = runtime().block_on(builder.start()).unwrap();
    let lab = Lab { cluster };
    lab.topic("Barred", 1);
    lab.send("Barred", "hello", "-b broker-a -i 0");
    lab.stored("Barred", 1);
    drop(lab);
    let store = folder.path().join("broker-a");
    for command in ["storeVerify", "storeDump"] {
        let line = format!("{command} {}", store.display());
        let (status, shown) = on_terminal("127.0.0.1:1", &line, "", false);
        assert_eq!(status, 0, "{shown}");
        assert!(
            shown.contains("% ") && shown.contains(" left"),
            "{command}: {shown:?}"
        );
        // It is wiped away at the end, and is not there for a pipe.
        let run = bare(&line);
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
        assert!(!run.out.contains(" left\r"), "{run:?}");
    }
}

#[test]
fn colour_is_there_on_a_terminal_unless_it_is_not_wanted() {
    let lab = Lab::shared();
    let (status, shown) = on_terminal(lab.name_server(), "clusterList", "", false);
    assert!(
        status == 0 && shown.contains("\x1b[1m#Cluster Name"),
        "{shown}"
    );
    let (status, shown) = on_terminal(lab.name_server(), "clusterList", "", true);
    assert!(status == 0 && !shown.contains('\x1b'), "{shown}");
}
