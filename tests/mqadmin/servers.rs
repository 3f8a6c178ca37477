//! How servers are asked: one connection each, several at once with a limit, and not for ever.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::Command;
use minimq_protocol::code::response;

use crate::support::{Lab, finish, register_ghost, tool};

/// What a server of these tests has seen.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    connections: usize,
    requests: usize,
}

/// Reads one frame; nothing at the end of the connection.
fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = length.to_vec();
    frame.resize(4 + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// Passes everything on to a server and counts; its address.
fn counting_proxy(target: &str) -> (String, Arc<Mutex<Counts>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let counts: Arc<Mutex<Counts>> = Arc::default();
    let (seen, target) = (counts.clone(), target.to_owned());
    thread::spawn(move || {
        for stream in listener.incoming() {
            seen.lock().unwrap().connections += 1;
            let (mut from, mut to) = (stream.unwrap(), TcpStream::connect(&target).unwrap());
            let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            let seen = seen.clone();
            thread::spawn(move || {
                while let Some(frame) = frame(&mut from) {
                    seen.lock().unwrap().requests += 1;
                    if to.write_all(&frame).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
            thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        }
    });
    (addr, counts)
}

#[test]
fn a_command_has_one_connection_to_each_server() {
    let lab = Lab::start(&[], 1);
    lab.topic("OneLine", 4);
    for group in 0..20 {
        lab.ok(&format!("updateSubGroup -b broker-a -g OneLineCG{group}"));
    }
    let (name_server, name_counts) = counting_proxy(lab.name_server());
    let (broker, broker_counts) = counting_proxy(lab.broker(0));
    register_ghost(&lab, "broker-p", &broker);
    for (line, requests) in [
        ("consumerProgress", 40),
        ("clusterDiagnose", 40),
        ("status", 40),
    ] {
        *name_counts.lock().unwrap() = Counts::default();
        *broker_counts.lock().unwrap() = Counts::default();
        let run = finish(tool().args([line, "-n", &name_server]));
        assert!([0, 4].contains(&run.status), "{line}: {run:?}");
        let (names, broker) = (*name_counts.lock().unwrap(), *broker_counts.lock().unwrap());
        assert_eq!((names.connections, broker.connections), (1, 1), "{line}");
        assert!(broker.requests >= requests, "{line}: {broker:?}");
    }
}

/// Requests that wait for their answers at servers of these tests.
#[derive(Default)]
struct Waiting {
    now: Mutex<(usize, usize)>,
    changed: Condvar,
}

/// A broker that answers, with a refusal, only once so many wait for an answer at all such brokers; or at once, if it is let go.
fn together(waiting: &Arc<Waiting>, wanted: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let waiting = waiting.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, waiting) = (stream.unwrap(), waiting.clone());
            thread::spawn(move || {
                while let Some(frame) = frame(&mut stream) {
                    let request = minimq_protocol::frame::parse(Bytes::from(frame)).unwrap();
                    let mut now = waiting.now.lock().unwrap();
                    now.0 += 1;
                    now.1 = now.1.max(now.0);
                    waiting.changed.notify_all();
                    while now.1 < wanted {
                        now = waiting.changed.wait(now).unwrap();
                    }
                    drop(now);
                    // One more than allowed would be seen in this time.
                    thread::sleep(Duration::from_millis(100));
                    waiting.now.lock().unwrap().0 -= 1;
                    let answer = Command::response_to(&request, response::SYSTEM_ERROR)
                        .with_remark("not here");
                    if stream.write_all(&answer.to_frame()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

#[test]
fn brokers_are_asked_at_once_but_no_more_than_allowed() {
    for allowed in [1, 3] {
        let lab = Lab::start(&[], 1);
        let waiting: Arc<Waiting> = Arc::default();
        for index in 0..6 {
            let addr = together(&waiting, allowed);
            register_ghost(&lab, &format!("ghost-{index}"), &addr);
        }
        // If it asked fewer at once than that, nobody would answer, and it would tell of a time-out.
        let run = lab.line(&format!("clusterList --parallel {allowed} --timeout 60"));
        assert_eq!(run.status, 4, "{run:?}");
        assert_eq!(run.err.matches("not here").count(), 6, "{run:?}");
        assert_eq!(waiting.now.lock().unwrap().1, allowed);
    }
}

#[test]
fn a_server_that_never_answers_is_given_up_after_the_time_asked_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let begin = Instant::now();
    let run = finish(tool().args(["brokerStatus", "-b", &addr, "--timeout", "0.2"]));
    assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
    assert!(
        run.err.contains(&addr) && run.err.contains(" within "),
        "{run:?}"
    );
    // Not after the 5 s that it takes else; a name server is tried no longer.
    let run = finish(tool().args(["topicList", "-n", &addr, "--timeout", "0.2"]));
    assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
    assert!(run.err.contains(&addr), "{run:?}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn times_are_shown_in_the_zone_asked_for() {
    let lab = Lab::shared();
    lab.topic("Zoned", 1);
    lab.send("Zoned", "hello", "-b broker-a -i 0");
    lab.stored("Zoned", 1);
    let line = [
        "queryMsgByOffset",
        "-t",
        "Zoned",
        "-b",
        "broker-a",
        "-i",
        "0",
        "-o",
        "0",
    ];
    let hour = |zone: &str| {
        let run = finish(
            tool()
                .args(line)
                .args(["-n", lab.name_server()])
                .env("TZ", zone),
        );
        let stored = run
            .out
            .lines()
            .find_map(|line| line.strip_prefix("Store Timestamp:"));
        let time = stored.unwrap().trim().split(' ').nth(1).unwrap().to_owned();
        time[..2].parse::<i32>().unwrap()
    };
    assert_eq!((hour("CST-8") - hour("UTC")).rem_euclid(24), 8);
}
