//! What a server does at its limits: a named error or a closed connection, and the others never notice.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::*;
use minimq_protocol::{Command, SerializeType, code::response};
use minimq_remoting::{Client, ClientConfig, CloseReason, FrameBuffer, Limits, SendError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn past_the_in_flight_limit_requests_are_answered_busy() {
    let (probe, server) = serve(Limits {
        in_flight: 3,
        ..Default::default()
    });
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut bytes = BytesMut::new();
    for opaque in 0..3 {
        request(HOLD, opaque, b"").encode(&mut bytes);
    }
    request(ECHO, 3, b"")
        .with_serialize(SerializeType::Rocketmq)
        .encode(&mut bytes);
    raw.write(&bytes).await;
    let busy = raw.next().await.unwrap();
    is_answer(&busy, response::SYSTEM_BUSY, SerializeType::Rocketmq);
    assert!(
        busy.opaque == 3 && busy.remark().contains("3 requests of this connection"),
        "{}",
        busy.remark()
    );
    // Another connection has its own limit; an answer makes room for the next request.
    let mut other = Raw::connect(server.local_addr()).await;
    other.call(&request(ECHO, 1, b"served")).await;
    let first = probe.held.lock().remove(0);
    first.refuse(7, "done");
    assert_eq!(raw.next().await.unwrap().code, 7);
    is_answer(
        &raw.call(&request(ECHO, 4, b"")).await,
        response::SUCCESS,
        SerializeType::Json,
    );
}

#[tokio::test]
async fn what_does_not_fit_the_outbox_is_refused_and_answered_busy() {
    let limits = Limits {
        outbox_bytes: 4 << 20,
        pause_bytes: 1 << 20,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    for opaque in 0..40 {
        raw.send(&request(HOLD, opaque, b"")).await;
    }
    until("forty requests are held", || probe.held.lock().len() == 40).await;
    // The peer reads nothing: the kernel takes some, the outbox 4 MiB, the rest is refused.
    let body = Bytes::from(vec![1; 1 << 20]);
    for held in probe.held.lock().drain(..) {
        let answer = Command::response(held.request(), response::SUCCESS);
        held.respond_with_slices(answer, std::slice::from_ref(&body));
    }
    let connection = probe.opened.lock()[0].clone();
    let mut frames = FrameBuffer::new();
    frames.push(&Command::request(40).with_body(body));
    let refused = connection.send(&mut frames).unwrap_err();
    assert!(
        matches!(
            refused,
            SendError::OutboxFull {
                limit: 4_194_304,
                ..
            }
        ),
        "{refused}"
    );
    assert!(!frames.is_empty(), "refused frames stay with the sender");
    assert!(connection.queued_bytes() <= 5 << 20);

    let mut codes = [0; 3];
    for _ in 0..40 {
        let answer = raw.next().await.unwrap();
        codes[answer.code as usize] += 1;
        if answer.code == response::SYSTEM_BUSY {
            assert!(answer.remark().contains("4194304"), "{}", answer.remark());
        }
    }
    assert!(
        codes[0] >= 3 && codes[2] >= 10 && codes[0] + codes[2] == 40,
        "{codes:?}"
    );
    raw.call(&request(ECHO, 50, b"goes on")).await;
}

#[tokio::test]
async fn a_peer_that_asks_and_does_not_read_is_read_no_further() {
    let limits = Limits {
        pause_bytes: 1 << 20,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut asks = BytesMut::new();
    for opaque in 0..400 {
        request(LARGE, opaque, b"").encode(&mut asks);
    }
    raw.write(&asks).await;
    until("the server has begun", || {
        probe
            .opened
            .lock()
            .first()
            .is_some_and(|c| c.sent_bytes() > 0)
    })
    .await;
    let connection = probe.opened.lock()[0].clone();
    // Nothing moves any more once the kernel's buffers are full.
    let mut sent = u64::MAX;
    while sent != connection.sent_bytes() {
        sent = connection.sent_bytes();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        connection.queued_bytes() <= 3 << 20,
        "{} bytes queued",
        connection.queued_bytes()
    );
    assert!(
        probe.requests.lock().len() < 100,
        "{} requests taken",
        probe.requests.lock().len()
    );
    // Frames from elsewhere still find their place, and everything comes in the end.
    connection.oneway(Command::request(40)).unwrap();
    let (mut answers, mut notices) = (0, 0);
    while answers < 400 || notices < 1 {
        let command = raw.next().await.unwrap();
        if command.is_response() {
            assert_eq!((command.opaque, command.body.len()), (answers, 1 << 20));
            answers += 1;
        } else {
            notices += 1;
        }
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_closed_and_its_memory_freed() {
    let limits = Limits {
        write_stall: SHORT,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut asks = BytesMut::new();
    for opaque in 0..100 {
        request(LARGE, opaque, b"").encode(&mut asks);
    }
    raw.write(&asks).await;
    until("it is closed", || probe.closed.lock().len() == 1).await;
    let (_, reason) = probe.closed.lock()[0].clone();
    assert!(
        matches!(reason, CloseReason::WriteStall { waiting: 1.., .. }),
        "{reason}"
    );
    let connection = probe.opened.lock()[0].clone();
    connection.closed().await;
    assert_eq!(connection.queued_bytes(), 0);
    let mut frames = FrameBuffer::new();
    frames.push(&Command::request(40));
    assert!(matches!(
        connection.send(&mut frames),
        Err(SendError::Closed { .. })
    ));
}

#[tokio::test]
async fn a_slow_reader_that_takes_something_is_not_closed() {
    // Long enough for a machine that gives this test its turn late.
    let stall = Duration::from_secs(2);
    let limits = Limits {
        write_stall: stall,
        pause_bytes: 1 << 20,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut asks = BytesMut::new();
    for opaque in 0..32 {
        request(LARGE, opaque, b"").encode(&mut asks);
    }
    raw.write(&asks).await;
    let start = std::time::Instant::now();
    let mut taken = 0;
    let mut part = vec![0; 512 << 10];
    while start.elapsed() < 2 * stall {
        taken += raw.stream.read_exact(&mut part).await.unwrap();
        tokio::time::sleep(stall / 10).await;
    }
    assert!(taken < 32 << 20, "it was slow");
    assert!(probe.closed.lock().is_empty());
}

#[tokio::test]
async fn quiet_connections_are_closed_and_busy_ones_not() {
    let (probe, server) = serve(Limits {
        idle: SHORT,
        ..Default::default()
    });
    let mut silent = Raw::connect(server.local_addr()).await;
    let mut quiet = Raw::connect(server.local_addr()).await;
    quiet.call(&request(ECHO, 1, b"")).await;
    let mut busy = Raw::connect(server.local_addr()).await;
    let start = std::time::Instant::now();
    let mut opaque = 0;
    while start.elapsed() < 5 * SHORT {
        opaque += 1;
        busy.call(&request(ECHO, opaque, b"")).await;
        tokio::time::sleep(SHORT / 5).await;
    }
    assert_eq!((silent.rest().await, quiet.rest().await), (0, 0));
    let closed = probe.closed.lock().clone();
    assert!(
        matches!(closed[..], [(_, CloseReason::Idle { .. })]),
        "{closed:?}"
    );
    busy.call(&request(ECHO, 0, b"still there")).await;
}

#[tokio::test]
async fn a_client_closes_its_own_idle_connections() {
    let (probe, server) = serve(Limits::default());
    let limits = Limits {
        idle: SHORT,
        ..Default::default()
    };
    let client = Client::new(ClientConfig {
        limits,
        ..Default::default()
    })
    .unwrap();
    let addr = server.local_addr().to_string();
    client
        .call(&addr, Command::request(ECHO), Duration::from_secs(5))
        .await
        .unwrap();
    until("the server sees it go", || probe.closed.lock().len() == 1).await;
    until("the client knows", || client.connection(&addr).is_none()).await;
}

#[tokio::test]
async fn a_frame_that_is_never_finished_ends_its_connection() {
    let limits = Limits {
        frame_time: SHORT,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut rest = Raw::connect(server.local_addr()).await;
    rest.call(&request(ECHO, 1, b"no frame begun")).await;
    let frame = request(ECHO, 1, b"never whole, but something comes all the time").to_frame();
    let mut bytes = frame[..frame.len() - 1].iter();
    // A byte now and then is no excuse.
    while let Some(byte) = bytes.next()
        && raw.stream.write_all(&[*byte]).await.is_ok()
        && probe.closed.lock().is_empty()
    {
        tokio::time::sleep(SHORT / 30).await;
    }
    until("it is closed", || probe.closed.lock().len() == 1).await;
    assert!(matches!(
        probe.closed.lock()[0].1,
        CloseReason::SlowFrame { .. }
    ));
    rest.call(&request(ECHO, 2, b"no frame begun")).await;
}

#[tokio::test]
async fn begun_large_frames_share_a_budget() {
    let limits = Limits {
        begun_bytes_all: 8 << 20,
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut frame = Command::request(ECHO)
        .with_body(vec![3; 6 << 20])
        .to_frame()
        .to_vec();
    let last = frame.split_off(frame.len() - 1);
    let mut first = Raw::connect(server.local_addr()).await;
    let mut second = Raw::connect(server.local_addr()).await;
    first.write(&frame).await;
    until("the first is nearly whole", || {
        server
            .connections()
            .iter()
            .any(|c| c.received_bytes() == frame.len() as u64)
    })
    .await;
    // There is no room for a second one of that size.
    let _ = second.stream.write_all(&frame).await;
    assert_eq!(second.rest().await, 0);
    let (_, reason) = probe.closed.lock()[0].clone();
    assert!(
        matches!(
            reason,
            CloseReason::NoRoom {
                limit: 8_388_608,
                ..
            }
        ),
        "{reason}"
    );
    // The first is served, and its room is free again.
    first.write(&last).await;
    assert_eq!(first.next().await.unwrap().body.len(), 6 << 20);
    let mut third = Raw::connect(server.local_addr()).await;
    third.write(&frame).await;
    third.write(&last).await;
    assert_eq!(third.next().await.unwrap().body.len(), 6 << 20);
}

#[tokio::test]
async fn what_waits_for_all_peers_together_is_bounded() {
    let limits = Limits {
        outbox_bytes_all: 16 << 20,
        write_stall: Duration::from_secs(30),
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut lazy = Vec::new();
    for index in 0..10 {
        let mut raw = Raw::connect(server.local_addr()).await;
        raw.call(&request(ECHO, 1, b"")).await;
        let connection = probe.opened.lock()[index].clone();
        lazy.push((raw, connection));
    }
    // Ten peers read nothing; each may have 64 MiB, all together 16.
    let body = Bytes::from(vec![1; 1 << 20]);
    let mut refused = None;
    for _ in 0..20 {
        for (_, connection) in &lazy {
            refused = connection
                .oneway(Command::request(40).with_body(body.clone()))
                .err()
                .or(refused);
        }
        tokio::task::yield_now().await;
    }
    let refused = refused.expect("some were refused");
    assert!(
        matches!(
            refused,
            SendError::AllFull {
                limit: 16_777_216,
                ..
            }
        ),
        "{refused}"
    );
    let queued: usize = lazy
        .iter()
        .map(|(_, connection)| connection.queued_bytes())
        .sum();
    assert!(queued <= (16 + 10) << 20, "{queued} bytes queued");
    // One for which nothing waits is served as ever.
    let mut other = Raw::connect(server.local_addr()).await;
    for opaque in 0..10 {
        other.call(&request(LARGE, opaque, b"")).await;
    }
    // The room is there again when the peers have gone.
    lazy.clear();
    until("they are gone", || server.connection_count() == 1).await;
    let connection = probe.opened.lock()[10].clone();
    for _ in 0..15 {
        connection
            .oneway(Command::request(40).with_body(body.clone()))
            .unwrap();
    }
}

#[tokio::test]
async fn connections_past_the_limit_are_closed_as_they_come() {
    let (probe, server) = serve(Limits {
        connections: 2,
        ..Default::default()
    });
    let mut first = Raw::connect(server.local_addr()).await;
    let mut second = Raw::connect(server.local_addr()).await;
    first.call(&request(ECHO, 1, b"")).await;
    second.call(&request(ECHO, 1, b"")).await;
    let mut third = Raw::connect(server.local_addr()).await;
    assert_eq!(third.rest().await, 0);
    assert_eq!(
        (
            server.refused(),
            server.accepted(),
            probe.opened.lock().len()
        ),
        (1, 2, 2)
    );
    first.call(&request(ECHO, 2, b"")).await;
    drop(first);
    until("one has gone", || server.connection_count() == 1).await;
    let mut fourth = Raw::connect(server.local_addr()).await;
    fourth.call(&request(ECHO, 1, b"")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_waits_holds_up_its_own_connection_only() {
    let (probe, server) = serve(Limits::default());
    let mut waiting = Raw::connect(server.local_addr()).await;
    let mut other = Raw::connect(server.local_addr()).await;
    waiting.send(&request(BLOCK, 1, b"")).await;
    until("it waits", || !probe.requests.lock().is_empty()).await;
    for opaque in 0..100 {
        other.call(&request(ECHO, opaque, b"")).await;
    }
    waiting.send(&request(ECHO, 2, b"after it")).await;
    probe.unblock.notify_one();
    assert_eq!(waiting.next().await.unwrap().body, "after it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_from_many_threads_all_arrive_once() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut bytes = BytesMut::new();
    for opaque in 0..4000 {
        request(if opaque % 4 == 0 { ECHO } else { HOLD }, opaque, b"x").encode(&mut bytes);
    }
    let answering = Arc::clone(&probe);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let probe = answering.clone();
            std::thread::spawn(move || {
                let mut answered = 0;
                while answered < 1000 {
                    let Some(held) = probe.held.lock().pop() else {
                        continue;
                    };
                    let body = vec![answered as u8; if answered % 10 == 0 { 5000 } else { 10 }];
                    let answer = Command::response(held.request(), 0).with_body(body);
                    held.respond(answer);
                    answered += 1;
                }
            })
        })
        .collect();
    raw.write(&bytes).await;
    let mut seen = vec![false; 4000];
    for _ in 0..4000 {
        let answer = raw.next().await.unwrap();
        assert!(!std::mem::replace(&mut seen[answer.opaque as usize], true));
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}
