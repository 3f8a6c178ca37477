//! What a client does: sharing, matching, time-outs, reconnecting, the server's requests.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use minimq_protocol::{Command, SerializeType, code::response};
use minimq_remoting::{
    Answers, CallError, Client, ClientConfig, CloseReason, Connection, Limits, RequestSigner,
    SendError, ServerRequests,
};
use parking_lot::Mutex;

const TIMEOUT: Duration = Duration::from_secs(10);

fn echo(body: &'static str) -> Command {
    Command::request(ECHO).with_body(body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_one_connection_and_each_has_its_own_answer() {
    let (_, server) = serve(Limits::default());
    let addr = server.local_addr().to_string();
    let client = Client::new(ClientConfig::default()).unwrap();
    let mut callers = Vec::new();
    for caller in 0..64 {
        let (client, addr) = (client.clone(), addr.clone());
        callers.push(tokio::spawn(async move {
            for call in 0..50 {
                let text = format!("{caller}/{call}");
                let answer = client
                    .call(
                        &addr,
                        Command::request(ECHO).with_body(text.clone()),
                        TIMEOUT,
                    )
                    .await
                    .unwrap();
                assert_eq!(answer.body, text);
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(server.accepted(), 1);
    assert_eq!(client.connection(&addr).unwrap().calls(), 0);
}

#[tokio::test]
async fn the_configured_encoding_is_used_for_every_request() {
    let (probe, server) = serve(Limits::default());
    let addr = server.local_addr().to_string();
    for serialize in [SerializeType::Json, SerializeType::Rocketmq] {
        let client = Client::new(ClientConfig {
            serialize: Some(serialize),
            ..Default::default()
        })
        .unwrap();
        is_answer(
            &client.call(&addr, echo("x"), TIMEOUT).await.unwrap(),
            response::SUCCESS,
            serialize,
        );
        client.oneway(&addr, echo("y")).await.unwrap();
        until("the one-way request came", || {
            probe.requests.lock().last().is_some_and(|r| r.body == "y")
        })
        .await;
        let request = probe.requests.lock().pop().unwrap();
        assert!(request.is_oneway());
        assert_eq!(request.serialize, serialize);
    }
}

#[tokio::test]
async fn answers_out_of_order_find_their_callers() {
    let (probe, server) = serve(Limits::default());
    let client = Client::new(ClientConfig::default()).unwrap();
    let connection = client
        .connect(&server.local_addr().to_string())
        .await
        .unwrap();
    let mut pending = Vec::new();
    for _ in 0..20 {
        pending.push(
            connection
                .start_call(Command::request(HOLD), TIMEOUT)
                .unwrap(),
        );
    }
    until("all are held", || probe.held.lock().len() == 20).await;
    for (index, held) in probe
        .held
        .lock()
        .drain(..)
        .enumerate()
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        let answer = Command::response(held.request(), 0).with_body(index.to_string());
        held.respond(answer);
    }
    for (index, call) in pending.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().body, index.to_string());
    }
}

#[tokio::test]
async fn each_call_ends_at_its_own_deadline_while_others_go_on() {
    let (probe, server) = serve(Limits::default());
    let client = Client::new(ClientConfig::default()).unwrap();
    let connection = client
        .connect(&server.local_addr().to_string())
        .await
        .unwrap();
    let start = Instant::now();
    let timed = |ms| {
        let call = connection
            .start_call(Command::request(HOLD), Duration::from_millis(ms))
            .unwrap();
        async move { (call.await, start.elapsed()) }
    };
    let (long, short, middle) = (timed(20_000), timed(60), timed(120));
    // Traffic meanwhile: the peer is not silent.
    let traffic = async {
        while start.elapsed() < Duration::from_millis(140) {
            connection.call(echo("alive"), TIMEOUT).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (short, middle, ()) = tokio::join!(short, middle, traffic);
    for ((outcome, elapsed), ms) in [(short, 60), (middle, 120)] {
        assert!(
            matches!(outcome, Err(CallError::Timeout { code: HOLD, .. })),
            "{outcome:?}"
        );
        assert!(elapsed >= Duration::from_millis(ms - 2), "{elapsed:?}");
    }
    // The late answers of the two are dropped, the third's arrives.
    for held in probe.held.lock().drain(..) {
        held.refuse(42, "late");
    }
    assert_eq!(long.await.0.unwrap().code, 42);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_peer_silent_for_a_whole_call_loses_its_connection() {
    let (_, server) = serve(Limits::default());
    let addr = server.local_addr().to_string();
    let client = Client::new(ClientConfig::default()).unwrap();
    let outcome = client
        .call(&addr, Command::request(HOLD), Duration::from_millis(50))
        .await;
    assert!(
        matches!(outcome, Err(CallError::Timeout { .. })),
        "{outcome:?}"
    );
    until("the connection is closed", || {
        client.connections().is_empty()
    })
    .await;
    assert_eq!(
        client
            .call(&addr, echo("anew"), TIMEOUT)
            .await
            .unwrap()
            .body,
        "anew"
    );
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn closing_fails_all_waiting_calls_at_once() {
    let (probe, server) = serve(Limits::default());
    let addr = server.local_addr().to_string();
    let client = Client::new(ClientConfig::default()).unwrap();
    let connection = client.connect(&addr).await.unwrap();
    for close in [true, false] {
        let calls: Vec<_> = (0..5)
            .map(|_| client.connection(&addr).unwrap_or(connection.clone()))
            .map(|connection| {
                connection
                    .start_call(Command::request(HOLD), TIMEOUT)
                    .unwrap()
            })
            .collect();
        until("all are held", || probe.held.lock().len() == 5).await;
        probe.held.lock().clear_without_answer();
        if close {
            client.close(&addr);
        } else {
            server
                .connections()
                .iter()
                .for_each(|c| c.close(CloseReason::Requested("test")));
        }
        for call in calls {
            let outcome = tokio::time::timeout(Duration::from_secs(5), call)
                .await
                .expect("at once");
            assert!(
                matches!(outcome, Err(CallError::Send(SendError::Closed { .. }))),
                "{outcome:?}"
            );
        }
        if close {
            client.connect(&addr).await.unwrap();
        }
    }
}

trait ClearWithoutAnswer {
    fn clear_without_answer(&mut self);
}

impl ClearWithoutAnswer for Vec<minimq_remoting::Responder> {
    /// Dropping would answer: these stay unanswered as long as the test runs.
    fn clear_without_answer(&mut self) {
        self.drain(..).for_each(std::mem::forget);
    }
}

#[tokio::test]
async fn a_dead_address_fails_at_once_and_then_waits_longer_and_longer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    drop(listener);
    let config = ClientConfig {
        backoff_min: Duration::from_secs(100),
        backoff_max: Duration::from_secs(150),
        ..Default::default()
    };
    let client = Client::new(config).unwrap();
    let first = client.call(&addr, echo("x"), TIMEOUT).await.unwrap_err();
    assert!(matches!(&first, CallError::Connect { .. }), "{first}");
    assert!(
        first.to_string().contains(&addr) && first.to_string().contains("refused"),
        "{first}"
    );
    let second = client.call(&addr, echo("x"), TIMEOUT).await.unwrap_err();
    assert!(
        matches!(&second, CallError::BackingOff { wait, .. } if *wait > Duration::from_secs(50)),
        "{second}"
    );
    assert!(second.to_string().contains("refused"), "{second}");
    assert!(first.never_sent() && second.never_sent());
}

#[tokio::test]
async fn a_restarted_server_is_connected_to_again() {
    let (_, server) = serve(Limits::default());
    let addr = server.local_addr();
    let client = Client::new(ClientConfig::default()).unwrap();
    client
        .call(&addr.to_string(), echo("1"), TIMEOUT)
        .await
        .unwrap();
    server.shutdown(Duration::from_secs(1)).await;
    until("the client has noticed", || client.connections().is_empty()).await;
    let down = client
        .call(&addr.to_string(), echo("2"), TIMEOUT)
        .await
        .unwrap_err();
    assert!(matches!(down, CallError::Connect { .. }), "{down}");
    let (_probe, _server) = serve_with(minimq_remoting::ServerConfig::new(addr));
    let start = Instant::now();
    while client
        .call(&addr.to_string(), echo("3"), TIMEOUT)
        .await
        .is_err()
    {
        assert!(start.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_address_that_does_not_answer_times_out() {
    // A listener whose backlog is full leaves the next connection hanging.
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener
        .bind(
            &"127.0.0.1:0"
                .parse::<std::net::SocketAddr>()
                .unwrap()
                .into(),
        )
        .unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    let fill: Vec<_> = (0..4)
        .map(|_| std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(200)))
        .collect();
    assert!(fill.iter().any(Result::is_err), "the backlog is full");
    let client = Client::new(ClientConfig {
        connect_timeout: Duration::from_millis(100),
        ..Default::default()
    })
    .unwrap();
    let error = client
        .call(&addr.to_string(), echo("x"), Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let error = client
        .call(&addr.to_string(), echo("x"), TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("no connection within 100 ms"),
        "{error}"
    );
}

#[tokio::test]
async fn more_calls_than_may_wait_are_refused() {
    let (_, server) = serve(Limits::default());
    let limits = Limits {
        calls: 3,
        ..Default::default()
    };
    let client = Client::new(ClientConfig {
        limits,
        ..Default::default()
    })
    .unwrap();
    let connection = client
        .connect(&server.local_addr().to_string())
        .await
        .unwrap();
    let mut held: Vec<_> = (0..3)
        .map(|_| {
            connection
                .start_call(Command::request(HOLD), TIMEOUT)
                .unwrap()
        })
        .collect();
    assert!(matches!(
        connection.call(echo("x"), TIMEOUT).await,
        Err(CallError::TooMany { limit: 3, .. })
    ));
    // A call that is given up makes room.
    held.pop();
    assert_eq!(connection.call(echo("x"), TIMEOUT).await.unwrap().body, "x");
}

#[tokio::test]
async fn a_request_too_long_for_a_frame_is_not_sent() {
    let (_, server) = serve(Limits::default());
    let client = Client::new(ClientConfig::default()).unwrap();
    let addr = server.local_addr().to_string();
    let long = Command::request(ECHO).with_body(vec![0; 16 << 20]);
    let error = client.call(&addr, long, TIMEOUT).await.unwrap_err();
    assert!(
        matches!(error, CallError::Send(SendError::TooLong { .. })),
        "{error}"
    );
    assert_eq!(
        client
            .call(&addr, echo("short"), TIMEOUT)
            .await
            .unwrap()
            .body,
        "short"
    );
}

#[derive(Default)]
struct Listening {
    requests: Mutex<Vec<i32>>,
    events: Mutex<Vec<String>>,
}

impl ServerRequests for Listening {
    fn request(&self, request: Command, answers: &mut Answers<'_>) {
        self.requests.lock().push(request.code);
        answers.answer(
            request.id(),
            Command::response(request.id(), 0).with_body(request.body.clone()),
        );
    }
    fn opened(&self, _: &Connection) {
        self.events.lock().push("opened".into());
    }
    fn closed(&self, _: &Connection, reason: &CloseReason) {
        self.events.lock().push(reason.to_string());
    }
}

#[tokio::test]
async fn requests_of_the_server_are_handed_to_the_client() {
    let (probe, server) = serve(Limits::default());
    let listening = Arc::new(Listening::default());
    let client = Client::with_requests(ClientConfig::default(), listening.clone()).unwrap();
    client
        .call(&server.local_addr().to_string(), echo("x"), TIMEOUT)
        .await
        .unwrap();
    let connection = probe.opened.lock()[0].clone();
    let answer = connection
        .call(Command::request(221).with_body("state?"), TIMEOUT)
        .await
        .unwrap();
    assert_eq!(answer.body, "state?");
    connection.oneway(Command::request(40)).unwrap();
    until("the notice came", || {
        *listening.requests.lock() == [221, 40]
    })
    .await;
    drop(client);
    until("the connection ended", || {
        listening.events.lock().len() == 2
    })
    .await;
    assert_eq!(
        *listening.events.lock(),
        ["opened", "the client was closed"]
    );

    let client = Client::new(ClientConfig::default()).unwrap();
    client
        .call(&server.local_addr().to_string(), echo("x"), TIMEOUT)
        .await
        .unwrap();
    let connection = probe.opened.lock()[1].clone();
    assert_eq!(
        connection
            .call(Command::request(221), TIMEOUT)
            .await
            .unwrap()
            .code,
        3
    );
}

#[tokio::test]
async fn every_request_is_signed() {
    struct Sign;
    impl RequestSigner for Sign {
        fn sign(&self, request: &mut Command) {
            let signature = format!(
                "{}+{}",
                request.ext.get("a").unwrap_or(""),
                request.body.len()
            );
            request.ext.push("Signature", &signature);
        }
    }
    let (probe, server) = serve(Limits::default());
    let client = Client::new(ClientConfig {
        signer: Some(Arc::new(Sign)),
        ..Default::default()
    })
    .unwrap();
    let addr = server.local_addr().to_string();
    client
        .oneway(&addr, echo("four").with_ext("a", "1"))
        .await
        .unwrap();
    client
        .call(&addr, echo("six").with_ext("a", "2"), TIMEOUT)
        .await
        .unwrap();
    let requests = probe.requests.lock();
    assert_eq!(requests[0].ext.get("Signature"), Some("1+4"));
    assert_eq!(requests[1].ext.get("Signature"), Some("2+3"));
}
