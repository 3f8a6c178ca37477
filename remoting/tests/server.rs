//! What a server does with the bytes of ordinary clients.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use minimq_protocol::SerializeType::{Json, Rocketmq};
use minimq_protocol::{Command, code::response};
use minimq_remoting::{Answers, Connection, Limits, Server, ServerConfig, Service};

/// wire-03
#[tokio::test]
async fn each_answer_has_the_encoding_and_opaque_of_its_request() {
    let (_, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    for opaque in 0..100 {
        let serialize = if opaque % 2 == 0 { Json } else { Rocketmq };
        let answer = raw
            .call(&request(ECHO, opaque - 50, b"text").with_serialize(serialize))
            .await;
        is_answer(&answer, response::SUCCESS, serialize);
        assert_eq!(&answer.body[..], b"text");
    }
}

/// wire-04
#[tokio::test]
async fn a_frame_that_comes_byte_by_byte_is_answered_once() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    for byte in request(ECHO, 9, b"slowly").to_frame().iter() {
        raw.write(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(&raw.next().await.unwrap().body[..], b"slowly");
    raw.call(&request(ECHO, 10, b"")).await;
    assert_eq!(probe.requests.lock().len(), 2);
}

/// wire-04
#[tokio::test]
async fn frames_cut_anywhere_come_out_whole() {
    let (_, server) = serve(Limits::default());
    let two = [
        request(ECHO, 1, b"one").to_frame(),
        request(ECHO, 2, b"two").with_serialize(Rocketmq).to_frame(),
    ]
    .concat();
    for cut in 1..two.len() {
        let mut raw = Raw::connect(server.local_addr()).await;
        raw.write(&two[..cut]).await;
        if cut % 16 == 0 {
            // Long enough for the server to see the first part alone now and then; nothing depends on it.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        raw.write(&two[cut..]).await;
        assert_eq!(&raw.next().await.unwrap().body[..], b"one");
        assert_eq!(&raw.next().await.unwrap().body[..], b"two");
    }
}

/// wire-04
#[tokio::test]
async fn a_thousand_requests_in_one_buffer_have_a_thousand_answers() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut bytes = BytesMut::new();
    for opaque in 0..1000 {
        let code = if opaque % 3 == 0 { BATCH } else { ECHO };
        request(code, opaque, b"body").encode(&mut bytes);
    }
    raw.write(&bytes).await;
    let mut seen = vec![false; 1000];
    for _ in 0..1000 {
        let answer = raw.next().await.unwrap();
        is_answer(&answer, response::SUCCESS, Json);
        assert!(!std::mem::replace(&mut seen[answer.opaque as usize], true));
    }
    assert!(
        probe.reads.lock().len() < 500,
        "requests of one read are handed over together"
    );
}

#[tokio::test]
async fn a_body_of_four_mebibytes_passes_both_ways() {
    let (_, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let body: Vec<u8> = (0..4 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for opaque in 0..3 {
        let mut large = Command::request(ECHO).with_body(body.clone());
        large.opaque = opaque;
        let mut both = large.to_frame().to_vec();
        both.extend_from_slice(&request(ECHO, 100, b"behind it").to_frame());
        let (mut reading, mut writing) = raw.stream.split();
        let write = tokio::io::AsyncWriteExt::write_all(&mut writing, &both);
        let mut answer = vec![0; both.len()];
        let read = tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer[..4]);
        let (written, read) = tokio::join!(write, read);
        written.unwrap();
        read.unwrap();
        let len = u32::from_be_bytes(answer[..4].try_into().unwrap()) as usize;
        tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer[4..4 + len])
            .await
            .unwrap();
        assert!(answer[4..4 + len].ends_with(&body));
        assert_eq!(&raw.next().await.unwrap().body[..], b"behind it");
    }
}

/// wire-01 a: the largest frame is read whole.
#[tokio::test]
async fn the_largest_frame_is_answered() {
    let (_, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let head = request(9999, 5, b"").to_frame().len();
    let mut largest = Command::request(9999).with_body(vec![0; 16_777_216 - head]);
    largest.opaque = 5;
    let frame = largest.to_frame();
    assert_eq!(frame[..4], 16_777_212_u32.to_be_bytes());
    raw.write(&frame).await;
    let answer = raw.next().await.unwrap();
    is_answer(&answer, response::REQUEST_CODE_NOT_SUPPORTED, Json);
}

/// wire-05
#[tokio::test]
async fn an_unknown_code_is_answered_3_and_a_one_way_request_not_at_all() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let answer = raw.call(&request(9999, 77, b"")).await;
    is_answer(&answer, response::REQUEST_CODE_NOT_SUPPORTED, Json);
    assert!(answer.remark().contains("9999"));

    for code in [9999, ECHO, BATCH, FORGET, DEFER, HOLD] {
        let mut oneway = request(code, 78, b"nothing");
        oneway.mark_oneway();
        raw.send(&oneway).await;
    }
    until("the held request arrived", || !probe.held.lock().is_empty()).await;
    let held = probe.held.lock().pop().unwrap();
    held.refuse(1, "nobody hears this");
    // Whatever the one-way requests had caused would be here before this answer.
    until("nothing is in flight", || {
        server.connections()[0].in_flight() == 0
    })
    .await;
    assert_eq!(raw.call(&request(ECHO, 79, b"call")).await.body, "call");
    assert_eq!(raw.call(&request(ECHO, 80, b"call")).await.body, "call");
}

#[tokio::test]
async fn answers_may_come_in_any_order_and_from_any_thread() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    for opaque in 0..10 {
        raw.send(&request(HOLD, opaque, b"")).await;
    }
    assert_eq!(
        raw.call(&request(ECHO, 10, b"not held up")).await.body,
        "not held up"
    );
    until("ten requests are held", || probe.held.lock().len() == 10).await;
    let held: Vec<_> = probe.held.lock().drain(..).rev().collect();
    let answering = std::thread::spawn(move || {
        for responder in held {
            let answer = Command::response(responder.request(), response::SUCCESS);
            responder.respond_with_slices(answer, &[vec![1; 2000].into(), vec![2; 10].into()]);
        }
    });
    for opaque in (0..10).rev() {
        let answer = raw.next().await.unwrap();
        assert_eq!(answer.opaque, opaque);
        assert_eq!(answer.body, [vec![1; 2000], vec![2; 10]].concat());
    }
    answering.join().unwrap();
}

#[tokio::test]
async fn deferred_answers_of_a_read_come_together_later() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut bytes = BytesMut::new();
    for opaque in 0..100 {
        request(DEFER, opaque, b"later").encode(&mut bytes);
    }
    raw.write(&bytes).await;
    for opaque in 0..100 {
        let answer = raw.next().await.unwrap();
        assert_eq!((answer.opaque, &answer.body[..]), (opaque, &b"later"[..]));
    }
    until("nothing is in flight", || {
        probe.opened.lock()[0].in_flight() == 0
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_given_up_is_answered_1() {
    let (_, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let answer = raw
        .call(&request(FORGET, 4, b"").with_serialize(Rocketmq))
        .await;
    is_answer(&answer, response::SYSTEM_ERROR, Rocketmq);
    assert!(answer.remark().contains("given up"));
}

#[tokio::test]
async fn an_answer_too_long_for_a_frame_is_replaced_by_an_error() {
    let (_, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.send(&request(ECHO, 1, b"before")).await;
    raw.send(&request(TOO_LONG, 2, b"")).await;
    raw.send(&request(ECHO, 3, b"behind")).await;
    assert_eq!(raw.next().await.unwrap().body, "before");
    let answer = raw.next().await.unwrap();
    is_answer(&answer, response::SYSTEM_ERROR, Json);
    assert!(answer.remark().contains("16777216"), "{}", answer.remark());
    assert_eq!(raw.next().await.unwrap().body, "behind");
}

#[tokio::test]
async fn the_server_calls_the_client_on_the_same_connection() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.call(&request(ECHO, 1, b"").with_serialize(Rocketmq))
        .await;
    let connection = probe.opened.lock()[0].clone();
    let call = tokio::spawn({
        let connection = connection.clone();
        async move {
            connection
                .call(Command::request(220).with_body("?"), Duration::from_secs(5))
                .await
        }
    });
    let asked = raw.next().await.unwrap();
    assert_eq!(
        (asked.code, asked.is_response(), &asked.body[..]),
        (220, false, &b"?"[..])
    );
    assert_eq!(asked.serialize, Rocketmq, "the peer's own encoding");
    // An answer that nobody waits for, a request with the same opaque, then the answer.
    raw.send(&Command::response(
        request(0, asked.opaque + 1, b"").id(),
        0,
    ))
    .await;
    raw.call(&request(ECHO, asked.opaque, b"own table")).await;
    raw.send(&Command::response(asked.id(), 206).with_body("!"))
        .await;
    let answer = call.await.unwrap().unwrap();
    assert_eq!((answer.code, &answer.body[..]), (206, &b"!"[..]));

    connection.oneway(Command::request(40)).unwrap();
    let notice = raw.next().await.unwrap();
    assert!(notice.is_oneway() && notice.code == 40);
}

#[tokio::test]
async fn listeners_share_one_service_and_connections_know_theirs() {
    let addr = "127.0.0.1:0".parse().unwrap();
    let (probe, server) = serve_with(ServerConfig {
        addrs: vec![addr, addr],
        ..local()
    });
    for (index, addr) in server.local_addrs().iter().enumerate() {
        let mut raw = Raw::connect(*addr).await;
        raw.call(&request(ECHO, 1, b"")).await;
        let opened = probe.opened.lock();
        let connection = opened.last().unwrap();
        assert_eq!(connection.listener(), index);
        assert_eq!(
            (connection.local(), connection.peer()),
            (*addr, raw.stream.local_addr().unwrap())
        );
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let (_, server) = serve(Limits::default());
    let taken = server.local_addr();
    let error = minimq_remoting::Server::bind(
        ServerConfig::new(taken),
        std::sync::Arc::new(Probe::default()),
    )
    .err()
    .expect("the port is taken");
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
}

#[tokio::test]
async fn shutting_down_lets_what_is_in_flight_finish() {
    let (probe, server) = serve(Limits::default());
    let mut busy = Raw::connect(server.local_addr()).await;
    let mut idle = Raw::connect(server.local_addr()).await;
    idle.call(&request(ECHO, 1, b"")).await;
    busy.send(&request(HOLD, 2, b"")).await;
    until("the request is held", || !probe.held.lock().is_empty()).await;
    let server = std::sync::Arc::new(server);
    let shutdown = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown(Duration::from_secs(20)).await }
    });
    assert!(
        idle.next().await.is_none(),
        "an idle connection is closed at once"
    );
    assert!(
        tokio::net::TcpStream::connect(server.local_addr())
            .await
            .is_err()
    );
    assert!(!shutdown.is_finished());
    let held = probe.held.lock().pop().unwrap();
    let answer = Command::response(held.request(), 0).with_body("done");
    held.respond(answer);
    assert_eq!(busy.next().await.unwrap().body, "done");
    assert!(busy.next().await.is_none());
    assert_eq!(shutdown.await.unwrap(), 0);
    assert_eq!(probe.closed.lock().len(), 2);
    assert_eq!(server.connection_count(), 0);
}

#[tokio::test]
async fn shutting_down_ends_a_connection_as_soon_as_its_read_is_answered() {
    let (probe, server) = serve(Limits::default());
    let addr = server.local_addr();
    let mut raw = Raw::connect(addr).await;
    let frames = [
        request(ECHO, 1, b"").to_frame(),
        request(BLOCK, 2, b"").to_frame(),
    ];
    raw.write(&frames.concat()).await;
    until("both have come", || probe.requests.lock().len() == 2).await;
    let shutdown = tokio::spawn(async move { server.shutdown(Duration::from_secs(20)).await });
    while tokio::net::TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    probe.unblock.notify_one();
    assert_eq!(raw.next().await.unwrap().opaque, 1);
    assert_eq!(shutdown.await.unwrap(), 0, "it was not cut off");
}

#[tokio::test]
async fn shutting_down_waits_for_the_answers_of_the_peer_too() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.call(&request(ECHO, 1, b"")).await;
    let connection = probe.opened.lock()[0].clone();
    let call = connection
        .start_call(Command::request(221), Duration::from_secs(20))
        .unwrap();
    let asked = raw.next().await.unwrap();
    let shutdown = tokio::spawn(async move { server.shutdown(Duration::from_secs(20)).await });
    tokio::task::yield_now().await;
    raw.send(&Command::response(asked.id(), 0)).await;
    assert_eq!(call.await.unwrap().code, 0);
    assert_eq!(shutdown.await.unwrap(), 0);
}

#[tokio::test]
async fn answers_are_not_lost_to_requests_that_come_too_late() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.send(&request(HOLD, 1, b"")).await;
    until("the request is held", || !probe.held.lock().is_empty()).await;
    let shutdown = tokio::spawn(async move { server.shutdown(Duration::from_secs(20)).await });
    let connection = probe.opened.lock()[0].clone();
    tokio::task::yield_now().await;
    // Comes when the server reads no more requests; must not reset the connection under the answer.
    raw.write(&request(ECHO, 2, b"too late").to_frame().repeat(100))
        .await;
    let held = probe.held.lock().pop().unwrap();
    let answer = Command::response(held.request(), 0).with_body(vec![5; 100_000]);
    held.respond(answer);
    connection.closed().await;
    assert_eq!(raw.next().await.unwrap().body.len(), 100_000);
    assert!(raw.next().await.is_none());
    assert_eq!(shutdown.await.unwrap(), 0);
}

#[tokio::test]
async fn a_service_that_panics_costs_one_connection() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    let mut other = Raw::connect(server.local_addr()).await;
    other.call(&request(ECHO, 1, b"")).await;
    raw.send(&request(ECHO, 1, b"before")).await;
    raw.send(&request(PANIC, 2, b"")).await;
    assert_eq!(raw.next().await.unwrap().body, "before");
    assert!(raw.next().await.is_none());
    let (_, reason) = probe.closed.lock()[0].clone();
    assert_eq!(reason.to_string(), "the service panicked: asked to");
    until("it is forgotten", || server.connection_count() == 1).await;
    other.call(&request(ECHO, 2, b"")).await;
}

#[tokio::test]
async fn shutting_down_cuts_off_what_does_not_finish_in_time() {
    let (probe, server) = serve(Limits::default());
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.send(&request(HOLD, 2, b"")).await;
    until("the request is held", || !probe.held.lock().is_empty()).await;
    assert_eq!(server.shutdown(Duration::from_millis(50)).await, 1);
    assert!(raw.next().await.is_none());
    // Answering afterwards does no harm.
    probe.held.lock().pop().unwrap().refuse(1, "too late");
}

/// Answers, and then does not go on until its peer has the answer.
struct GoesOnLater(parking_lot::Mutex<std::sync::mpsc::Receiver<()>>);

impl Service for GoesOnLater {
    type Session = bool;

    fn open(&self, _: &Connection) -> bool {
        false
    }

    fn request(&self, owed: &mut bool, request: Command, answers: &mut Answers<'_>) {
        *owed = true;
        answers.refuse(request.id(), response::SYSTEM_BUSY, "later");
    }

    fn answers_written(&self, owed: &mut bool) {
        if std::mem::take(owed) {
            let answered = self.0.lock();
            let wait = || answered.recv_timeout(Duration::from_secs(20));
            tokio::task::block_in_place(wait).expect("the answer left before this was called");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_leave_before_the_service_does_what_can_wait_for_them() {
    let (answered, is_answered) = std::sync::mpsc::channel();
    let service = Arc::new(GoesOnLater(parking_lot::Mutex::new(is_answered)));
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), service)
        .unwrap()
        .spawn();
    let mut raw = Raw::connect(server.local_addr()).await;
    for opaque in 0..100 {
        raw.call(&request(ECHO, opaque, b"")).await;
        answered.send(()).unwrap();
    }
}
