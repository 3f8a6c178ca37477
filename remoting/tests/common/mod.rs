//! A service that shows what the transport did, and raw sockets to talk to it.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use minimq_protocol::code::response;
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::{Command, NoHeader, RequestId, SerializeType};
use minimq_remoting::{
    Answers, CloseReason, Connection, Limits, Responder, Server, ServerConfig, ServerHandle,
    Service,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Answers at once with the request's body.
pub const ECHO: i32 = 1;
/// Held until the test answers.
pub const HOLD: i32 = 2;
/// Collected and answered in `end_of_read`; the answer's body is the number collected.
pub const BATCH: i32 = 3;
/// Answers with 1 MiB, as a shared slice.
pub const LARGE: i32 = 4;
/// Answered from another thread, later, all of one read together.
pub const DEFER: i32 = 5;
/// Promised and given up.
pub const FORGET: i32 = 6;
/// Answered with a body that makes the frame too long.
pub const TOO_LONG: i32 = 7;
/// Panics.
pub const PANIC: i32 = 9;
/// `end_of_read` waits for the test.
pub const BLOCK: i32 = 8;

#[derive(Default)]
pub struct Probe {
    pub held: Mutex<Vec<Responder>>,
    pub requests: Mutex<Vec<Command>>,
    pub opened: Mutex<Vec<Connection>>,
    pub closed: Mutex<Vec<(u64, CloseReason)>>,
    pub reads: Mutex<Vec<usize>>,
    pub unblock: tokio::sync::Notify,
    /// Keep nothing of what comes (commands pin their read buffers).
    pub forgetful: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
pub struct Session {
    batch: Vec<RequestId>,
    deferred: Option<minimq_remoting::DeferredAnswers>,
    requests: usize,
    block: bool,
}

impl Probe {
    fn is_forgetful(&self) -> bool {
        self.forgetful.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Service for Probe {
    type Session = Session;

    fn open(&self, connection: &Connection) -> Session {
        if !self.is_forgetful() {
            self.opened.lock().push(connection.clone());
        }
        Session::default()
    }

    fn request(&self, session: &mut Session, request: Command, answers: &mut Answers<'_>) {
        session.requests += 1;
        let id = request.id();
        match request.code {
            ECHO => {
                answers.answer_head(
                    id,
                    response::SUCCESS,
                    None,
                    None::<&NoHeader>,
                    std::slice::from_ref(&request.body),
                );
            }
            HOLD => self.held.lock().push(answers.later(id)),
            BATCH => session.batch.push(id),
            LARGE => {
                let body = Bytes::from_static(&[7; 1 << 20]);
                answers.answer_head(id, response::SUCCESS, None, None::<&NoHeader>, &[body]);
            }
            DEFER => {
                let deferred = session.deferred.get_or_insert_with(|| answers.deferred());
                deferred.answer_head(
                    id,
                    response::SUCCESS,
                    None,
                    None::<&NoHeader>,
                    std::slice::from_ref(&request.body),
                );
            }
            FORGET => drop(answers.later(id)),
            TOO_LONG => {
                let body = vec![Bytes::from_static(&[7; 1 << 20]); 17];
                answers.answer_head(id, response::SUCCESS, None, None::<&NoHeader>, &body);
            }
            BLOCK => session.block = true,
            PANIC => panic!("asked to"),
            _ => answers.unknown_code(&request),
        }
        if !self.is_forgetful() {
            self.requests.lock().push(request);
        }
    }

    async fn end_of_read(&self, session: &mut Session, answers: &mut Answers<'_>) {
        let collected = session.batch.len().to_string();
        for id in session.batch.drain(..) {
            answers.answer(
                id,
                Command::response(id, response::SUCCESS).with_body(collected.clone()),
            );
        }
        if let Some(deferred) = session.deferred.take() {
            std::thread::spawn(|| deferred.send());
        }
        if std::mem::take(&mut session.block) {
            self.unblock.notified().await;
        }
        self.reads
            .lock()
            .push(std::mem::take(&mut session.requests));
    }

    fn closed(&self, _session: Session, connection: &Connection, reason: &CloseReason) {
        self.closed.lock().push((connection.id(), reason.clone()));
    }
}

/// A served probe on a free port.
pub fn serve(limits: Limits) -> (Arc<Probe>, ServerHandle) {
    serve_with(ServerConfig { limits, ..local() })
}

pub fn serve_with(config: ServerConfig) -> (Arc<Probe>, ServerHandle) {
    let probe = Arc::new(Probe::default());
    let server = Server::bind(config, probe.clone()).unwrap().spawn();
    (probe, server)
}

pub fn local() -> ServerConfig {
    ServerConfig::new("127.0.0.1:0".parse().unwrap())
}

/// A request with that opaque.
pub fn request(code: i32, opaque: i32, body: &'static [u8]) -> Command {
    let mut request = Command::request(code).with_body(body);
    request.opaque = opaque;
    request
}

/// A socket that speaks frames and nothing else.
pub struct Raw {
    pub stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn send(&mut self, command: &Command) {
        self.write(&command.to_frame()).await;
    }

    /// The next command; `None` when the peer has closed.
    pub async fn next(&mut self) -> Option<Command> {
        let next = async {
            loop {
                if let Check::Whole { len } = frame::check(&self.buffer, MAX_FRAME_LEN).unwrap() {
                    return Some(frame::parse(self.buffer.split_to(len).freeze()).unwrap());
                }
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), next)
            .await
            .expect("an answer or the end within 20 s")
    }

    pub async fn call(&mut self, command: &Command) -> Command {
        self.send(command).await;
        let answer = self.next().await.expect("an answer");
        assert_eq!(answer.opaque, command.opaque);
        answer
    }

    /// Bytes that still come until the peer closes.
    pub async fn rest(&mut self) -> usize {
        let mut rest = self.buffer.len();
        loop {
            let read = tokio::time::timeout(
                Duration::from_secs(20),
                self.stream.read_buf(&mut self.buffer),
            );
            match read.await.expect("closed within 20 s") {
                Ok(0) | Err(_) => return rest,
                Ok(n) => rest += n,
            }
        }
    }
}

/// Waits until `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still not so after 20 s: {what}");
}

pub fn is_answer(answer: &Command, code: i32, serialize: SerializeType) {
    assert!(answer.is_response());
    assert_eq!(
        (answer.code, answer.serialize),
        (code, serialize),
        "{:?}",
        answer.remark
    );
}
