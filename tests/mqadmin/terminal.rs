//! On a terminal: colour, and questions before something is destroyed.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Lab, tool, until};

/// Runs the tool on a terminal, types the answer; its status and all that the terminal showed.
fn on_terminal(lab: &Lab, line: &str, answer: &str, no_colour: bool) -> (i32, String) {
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
        .args(["-n", lab.name_server()])
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
        let (status, shown) = on_terminal(&lab, line, answer, false);
        assert_eq!(status, 1, "{shown}");
        assert!(
            shown.contains("This deletes the topic and all its queues (clusterName=DefaultCluster, topic=Asked). Go on? [y/N]"),
            "{shown}"
        );
        assert!(exists());
    }
    // A dry run asks nothing, and neither does a pipe.
    let (status, shown) = on_terminal(&lab, &format!("{line} --dry-run"), "", false);
    assert!(
        status == 0 && shown.contains("Nothing was changed."),
        "{shown}"
    );
    let (status, shown) = on_terminal(&lab, line, "y\n", false);
    assert_eq!(status, 0, "{shown}");
    until("the topic gone", || (!exists()).then_some(()));
    let (status, shown) = on_terminal(&lab, &format!("{line} --yes"), "", false);
    assert!(status == 0 && !shown.contains("Go on?"), "{shown}");
}

#[test]
fn colour_is_there_on_a_terminal_unless_it_is_not_wanted() {
    let lab = Lab::shared();
    let (status, shown) = on_terminal(&lab, "clusterList", "", false);
    assert!(
        status == 0 && shown.contains("\x1b[1m#Cluster Name"),
        "{shown}"
    );
    let (status, shown) = on_terminal(&lab, "clusterList", "", true);
    assert!(status == 0 && !shown.contains('\x1b'), "{shown}");
}
