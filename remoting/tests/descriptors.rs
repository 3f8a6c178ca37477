//! A server that has run out of file descriptors. One test, because the limit is the whole process's.

mod common;

use std::time::Duration;

use common::*;
use minimq_remoting::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_goes_on_when_there_are_descriptors_again() {
    let (_, server) = serve(Limits::default());
    let mut open = Raw::connect(server.local_addr()).await;
    open.call(&request(ECHO, 1, b"")).await;

    let before = getrlimit(Resource::Nofile);
    // Descriptors are given out from the lowest: one for the client's end, none for the server's.
    let lowest = std::fs::File::open("/dev/null").unwrap();
    let next = std::os::fd::AsRawFd::as_raw_fd(&lowest) as u64;
    drop(lowest);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(next + 1),
            ..before
        },
    )
    .unwrap();
    let mut waiting = Raw::connect(server.local_addr()).await;
    waiting.send(&request(ECHO, 2, b"waits")).await;
    for opaque in 0..50 {
        open.call(&request(ECHO, opaque, b"served meanwhile")).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(server.accepted(), 1);
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(waiting.next().await.unwrap().body, "waits");
}
