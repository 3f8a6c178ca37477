//! A cluster of one plain, blocking socket: enough of name server and broker for one consumer of one queue. It holds
//! pulls and says when it answers them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use minimq_protocol::body::{
    BrokerData, ConsumerIdList, LockBatchBody, LockBatchResponseBody, QueueData, TopicRouteData,
};
use minimq_protocol::code::request;
use minimq_protocol::frame::{self, Check};
use minimq_protocol::header::{
    GetMaxOffsetResponse, GetRouteInfoRequest, PullMessageResponse, QueryConsumerOffsetResponse,
};
use minimq_protocol::json::Flavour;
use minimq_protocol::message::RecordFields;
use minimq_protocol::{Command, crc};
use parking_lot::Mutex;

/// The topic it has, with one queue.
pub(crate) const TOPIC: &str = "stub";
const LONGEST: usize = 1 << 20;

/// A pull that waits, and where its answer is written to.
type Held = Arc<Mutex<Option<(Command, TcpStream)>>>;

pub(crate) struct Stub {
    pub(crate) addr: SocketAddr,
    members: Arc<Mutex<Vec<String>>>,
    held: Held,
}

impl Stub {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stub = Self {
            addr: listener.local_addr()?,
            members: Arc::default(),
            held: Arc::default(),
        };
        let (addr, members, held) = (stub.addr, stub.members.clone(), stub.held.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (members, held) = (members.clone(), held.clone());
                std::thread::spawn(move || serve(stream, addr, &members, &held));
            }
        });
        Ok(stub)
    }

    /// Who is the member of every group.
    pub(crate) fn member(&self, client_id: &str) {
        *self.members.lock() = vec![client_id.to_owned()];
    }

    /// Answers the pull that waits with one message; when that was written. None while no pull waits.
    pub(crate) fn deliver(&self) -> Result<Option<Instant>> {
        let Some((pull, mut stream)) = self.held.lock().take() else {
            return Ok(None);
        };
        let offset: i64 = pull.ext.get("queueOffset").context("an offset")?.parse()?;
        let header = PullMessageResponse {
            suggest_which_broker_id: 0,
            next_begin_offset: offset + 1,
            min_offset: 0,
            max_offset: offset + 1,
        };
        let answer = Command::response_to(&pull, 0).with_header(&header);
        let frame = answer.with_body(record(offset)?).to_frame();
        let now = Instant::now();
        stream.write_all(&frame)?;
        Ok(Some(now))
    }
}

fn record(offset: i64) -> Result<Bytes> {
    let host = SocketAddr::from(([127, 0, 0, 1], 1));
    let body = [b'x'; 1024];
    let fields = RecordFields {
        topic: TOPIC,
        queue_id: 0,
        flag: 0,
        queue_offset: offset,
        physical_offset: offset * 2000,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 1,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: crc::body_crc(&body),
        body: &body,
        properties: b"",
        appended_properties: &[],
    };
    Ok(fields.encode()?)
}

/// Answers what comes on one connection until it ends.
fn serve(mut stream: TcpStream, addr: SocketAddr, members: &Mutex<Vec<String>>, held: &Held) {
    let _ = stream.set_nodelay(true);
    let (mut buffer, mut some) = (BytesMut::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut some) {
        buffer.extend_from_slice(some.get(..read).unwrap_or_default());
        while let Ok(Check::Whole { len }) = frame::check(&buffer, LONGEST) {
            let Ok(command) = frame::parse(buffer.split_to(len).freeze()) else {
                return;
            };
            if command.code == request::PULL_MESSAGE && command.ext.get("topic") == Some(TOPIC) {
                let Ok(writing) = stream.try_clone() else {
                    return;
                };
                *held.lock() = Some((command, writing));
            } else if !command.is_oneway()
                && let Some(answer) = answer(&command, addr, members)
                && stream.write_all(&answer.to_frame()).is_err()
            {
                return;
            }
        }
    }
}

fn answer(command: &Command, addr: SocketAddr, members: &Mutex<Vec<String>>) -> Option<Command> {
    let done = Command::response_to(command, 0);
    Some(match command.code {
        request::GET_ROUTEINFO_BY_TOPIC => {
            let asked: GetRouteInfoRequest = command.header().ok()?;
            if asked.topic != TOPIC {
                return Some(Command::response_to(command, 17).with_remark("no such topic"));
            }
            let queues = QueueData {
                broker_name: "stub".to_owned(),
                perm: 6,
                read_queue_nums: 1,
                write_queue_nums: 1,
                ..QueueData::default()
            };
            let broker = BrokerData {
                broker_name: "stub".to_owned(),
                broker_addrs: BTreeMap::from([(0, addr.to_string())]),
                cluster: None,
            };
            let route = TopicRouteData {
                queue_datas: vec![queues],
                broker_datas: vec![broker],
                ..TopicRouteData::default()
            };
            done.with_body(route.to_json(Flavour::Standard))
        }
        request::GET_CONSUMER_LIST_BY_GROUP => {
            let consumer_id_list = members.lock().clone();
            done.with_body(ConsumerIdList { consumer_id_list }.to_wire())
        }
        request::QUERY_CONSUMER_OFFSET => {
            done.with_header(&QueryConsumerOffsetResponse { offset: 0 })
        }
        request::GET_MAX_OFFSET => done.with_header(&GetMaxOffsetResponse { offset: 0 }),
        request::LOCK_BATCH_MQ => {
            let asked = LockBatchBody::from_json(&command.body).ok()?;
            let lock_ok_mq_set = asked.mq_set;
            done.with_body(LockBatchResponseBody { lock_ok_mq_set }.to_wire())
        }
        request::PULL_MESSAGE => return None,
        _ => done,
    })
}
