//! How many requests a second go through the transport, and at what cost in processor time: a server that answers
//! each request with its own small frame, and either our [`Client`] or a bare generator on blocking sockets.
//!
//! ```text
//! cargo run --release -p minimq-remoting --example echo_rate -- client|bare [connections] [in flight] [body bytes] [seconds]
//! ```

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::{Command, NoHeader, RequestId, SerializeType};
use minimq_remoting::{Answers, Client, ClientConfig, Connection, Server, ServerConfig, Service};

struct Echo {
    batch: bool,
}

impl Service for Echo {
    type Session = Vec<RequestId>;

    fn open(&self, _: &Connection) -> Self::Session {
        Vec::new()
    }

    fn request(&self, session: &mut Self::Session, request: Command, answers: &mut Answers<'_>) {
        if self.batch {
            session.push(request.id());
        } else {
            answers.answer_head(request.id(), 0, None, None::<&NoHeader>, &[]);
        }
    }

    async fn end_of_read(&self, session: &mut Self::Session, answers: &mut Answers<'_>) {
        for id in session.drain(..) {
            answers.answer_head(id, 0, None, None::<&NoHeader>, &[]);
        }
    }
}

fn request(body: usize) -> Command {
    Command::request(310)
        .with_serialize(SerializeType::Rocketmq)
        .with_ext("a", "producer-group")
        .with_ext("b", "SomeTopic")
        .with_ext("e", "3")
        .with_ext("g", "1700000000000")
        .with_ext(
            "i",
            "UNIQ_KEY\u{1}0A00000100002A9F00000000000003E8\u{2}WAIT\u{1}true",
        )
        .with_body(vec![b'x'; body])
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        args.get(index)
            .map_or(default, |arg| arg.parse().expect("a number"))
    };
    let who = args.first().map_or("client", String::as_str);
    let (connections, in_flight) = (number(1, 1), number(2, 256));
    let (body, seconds) = (number(3, 128), number(4, 5));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let server = runtime.block_on(async {
        let config = ServerConfig::new("127.0.0.1:0".parse().expect("address"));
        Server::bind(config, Arc::new(Echo { batch: true }))
            .expect("a free port")
            .spawn()
    });
    let addr = server.local_addr();
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..connections {
        match who {
            "client" => spawn_client(&runtime, addr, in_flight, body, &done),
            "bare" => spawn_bare(addr, in_flight, body, done.clone()),
            other => panic!("{other}: client or bare"),
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let (start, before, cpu) = (Instant::now(), done.load(Ordering::Relaxed), cpu());
    std::thread::sleep(Duration::from_secs(seconds as u64));
    let (time, count) = (start.elapsed(), done.load(Ordering::Relaxed) - before);
    let now = self::cpu();
    let million = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{who} {connections} x {in_flight}, body {body}: {:.0}/s; CPU s a million: {:.2}, of that in the runtime {:.2}",
        count as f64 / time.as_secs_f64(),
        million(now.0 - cpu.0),
        million(now.1 - cpu.1),
    );
    std::process::exit(0);
}

/// One client with one connection and `in_flight` callers.
fn spawn_client(
    runtime: &tokio::runtime::Runtime,
    addr: SocketAddr,
    in_flight: usize,
    body: usize,
    done: &Arc<AtomicU64>,
) {
    let _guard = runtime.enter();
    let client = Client::new(ClientConfig::default()).expect("no TLS");
    for _ in 0..in_flight {
        let (client, done, addr) = (client.clone(), done.clone(), addr.to_string());
        tokio::spawn(async move {
            let request = request(body);
            loop {
                client
                    .call(&addr, request.clone(), Duration::from_secs(3))
                    .await
                    .expect("an answer");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// A thread that keeps `in_flight` requests on their way with as little work as possible.
fn spawn_bare(addr: SocketAddr, in_flight: usize, body: usize, done: Arc<AtomicU64>) {
    let frame: Bytes = request(body).to_frame();
    let mut answer = bytes::BytesMut::new();
    minimq_protocol::encode_answer_head(
        &mut answer,
        SerializeType::Rocketmq,
        0,
        0,
        None,
        None::<&NoHeader>,
        0,
    );
    let answer_len = answer.len();
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(addr).expect("connected");
        stream.set_nodelay(true).expect("no delay");
        let frames = frame.repeat(in_flight);
        let mut answers = vec![0; 256 << 10];
        let (mut may_send, mut received) = (in_flight, 0);
        loop {
            stream
                .write_all(&frames[..may_send * frame.len()])
                .expect("written");
            received += stream.read(&mut answers).expect("answers");
            may_send = received / answer_len;
            received %= answer_len;
            done.fetch_add(may_send as u64, Ordering::Relaxed);
        }
    });
}

/// Processor time of this process so far: of all threads, and of the runtime's alone.
fn cpu() -> (Duration, Duration) {
    let (mut all, mut runtime) = (Duration::ZERO, Duration::ZERO);
    for thread in std::fs::read_dir("/proc/self/task").expect("threads") {
        let path = thread.expect("a thread").path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let nanos = read("schedstat")
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .unwrap_or_default();
        all += Duration::from_nanos(nanos);
        if read("comm").starts_with("tokio") {
            runtime += Duration::from_nanos(nanos);
        }
    }
    (all, runtime)
}
