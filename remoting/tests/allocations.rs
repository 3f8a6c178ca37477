//! Nothing is allocated for each message: requests are slices of the read buffer, answers are written into a pooled
//! one. One test, so that the allocations counted are its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minimq_protocol::{Command, NoHeader, RequestId, SerializeType};
use minimq_remoting::{Answers, Connection, Server, ServerConfig, Service};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers half of the requests at once and half at the end of the read.
struct Half;

impl Service for Half {
    type Session = Vec<RequestId>;

    fn open(&self, _: &Connection) -> Self::Session {
        Vec::new()
    }

    fn request(&self, session: &mut Self::Session, request: Command, answers: &mut Answers<'_>) {
        if request.ext.get("e") == Some("1") {
            session.push(request.id());
        } else {
            answers.answer_head(
                request.id(),
                0,
                None,
                None::<&NoHeader>,
                std::slice::from_ref(&request.body),
            );
        }
    }

    async fn end_of_read(&self, session: &mut Self::Session, answers: &mut Answers<'_>) {
        for id in session.drain(..) {
            answers.answer_head(id, 0, Some("done"), None::<&NoHeader>, &[]);
        }
    }
}

#[test]
fn a_request_and_its_answer_allocate_nothing() {
    const AT_ONCE: usize = 500;
    const ROUNDS: usize = 100;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(async {
        Server::bind(
            ServerConfig::new("127.0.0.1:0".parse().unwrap()),
            Arc::new(Half),
        )
        .unwrap()
        .spawn()
    });
    let mut stream = std::net::TcpStream::connect(server.local_addr()).unwrap();
    let (mut requests, mut answers_len) = (Vec::new(), 0);
    for opaque in 0..AT_ONCE {
        let half = if opaque % 2 == 0 { "0" } else { "1" };
        let mut request = Command::request(310)
            .with_serialize(SerializeType::Rocketmq)
            .with_ext("a", "producer-group")
            .with_ext("b", "SomeTopic")
            .with_ext("e", half)
            .with_ext("i", "WAIT\u{1}true")
            .with_body(vec![7; if half == "0" { 100 } else { 5000 }]);
        request.opaque = opaque as i32;
        requests.extend_from_slice(&request.to_frame());
        let answer = match half {
            "0" => Command::response(request.id(), 0).with_body(request.body),
            _ => Command::response(request.id(), 0).with_remark("done"),
        };
        answers_len += answer.to_frame().len();
    }
    let mut answers = vec![0; answers_len];
    let mut round = || {
        stream.write_all(&requests).unwrap();
        stream.read_exact(&mut answers).unwrap();
    };
    (0..10).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| round());
    let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let requests = (AT_ONCE * ROUNDS) as u64;
    eprintln!("{count} allocations for {requests} requests");
    assert!(
        count < requests / 50,
        "{count} allocations for {requests} requests"
    );
}
