//! What these tests and those of the program (`tests/filtersrv` of the whole) have in common: filters, and a relay whose
//! connections can be cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The example that keeps every third `SequenceId` above ten.
pub(crate) const SEQUENCE_ID: &str = include_str!("../../examples/sequence_id.wat");

/// Keeps messages whose `SequenceId` divided by `by` leaves `rest`.
pub(crate) fn modulo(by: u32, rest: u32) -> String {
    format!(
        r#"(module (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
          (memory (export "memory") 1) (data (i32.const 0) "SequenceId")
          (func (export "minimq_filter_abi_1"))
          (func (export "filter") (result i32)
            (drop (call $i64 (i32.const 0) (i32.const 10) (i32.const 16)))
            (i64.eq (i64.rem_s (i64.load (i32.const 16)) (i64.const {by})) (i64.const {rest}))))"#
    )
}

/// Passes connections on; all of them can be cut.
pub(crate) struct Relay {
    accepting: JoinHandle<()>,
    carried: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    /// The relay and where it listens, which is `from` unless that has port 0.
    pub(crate) async fn start(from: SocketAddr, to: SocketAddr) -> (Self, SocketAddr) {
        let listener = TcpListener::bind(from).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let carried: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let carrying = carried.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                // Listed before it carries anything.
                let mut carrying = carrying.lock().unwrap();
                carrying.push(tokio::spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(to).await {
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                }));
            }
        });
        (Self { accepting, carried }, addr)
    }

    /// Cuts every connection; how many there were.
    pub(crate) fn cut(&self) -> usize {
        let mut carried = self.carried.lock().unwrap();
        let open = carried.iter().filter(|carry| !carry.is_finished()).count();
        for carry in carried.drain(..) {
            carry.abort();
        }
        open
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}
