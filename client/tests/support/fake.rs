//! A server that is name server, broker and filter server at once, answers as a test needs, and keeps every request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::body::{
    BrokerData, ConsumerIdList, LockBatchBody, LockBatchResponseBody, QueueData, TopicRouteData,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetMaxOffsetResponse, GetRouteInfoRequest, QueryConsumerOffsetResponse, SendMessageResponse,
};
use minimq_protocol::json::Flavour;
use minimq_remoting::{
    Answers, Connection, Responder, Server, ServerConfig, ServerHandle, Service,
};
use parking_lot::Mutex;

#[derive(Clone)]
pub struct Fake {
    pub addr: SocketAddr,
    state: Arc<State>,
    _server: Arc<ServerHandle>,
}

struct State {
    broker: String,
    own: Mutex<String>,
    /// Whether it says that it is a filter server.
    filters: Mutex<bool>,
    client: Mutex<String>,
    requests: Mutex<Vec<Command>>,
    /// Pulls are held until the end.
    held: Mutex<Vec<Responder>>,
}

impl Fake {
    /// A broker of that name, four queues a topic.
    pub async fn start(broker: &str) -> Self {
        let state = Arc::new(State {
            broker: broker.to_owned(),
            own: Mutex::default(),
            filters: Mutex::new(true),
            client: Mutex::default(),
            requests: Mutex::default(),
            held: Mutex::default(),
        });
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Serving(state.clone())))
            .unwrap()
            .spawn();
        let addr = server.local_addr();
        *state.own.lock() = addr.to_string();
        Self {
            addr,
            state,
            _server: Arc::new(server),
        }
    }

    /// Who is a member of every group.
    pub fn member(&self, client_id: &str) {
        *self.state.client.lock() = client_id.to_owned();
    }

    pub fn filters(&self, on: bool) {
        *self.state.filters.lock() = on;
    }

    /// The requests of a code so far.
    pub fn requests(&self, code: i32) -> Vec<Command> {
        let all = self.state.requests.lock();
        all.iter().filter(|one| one.code == code).cloned().collect()
    }
}

struct Serving(Arc<State>);

impl Service for Serving {
    type Session = ();

    fn open(&self, _: &Connection) {}

    fn request(&self, (): &mut (), command: Command, answers: &mut Answers<'_>) {
        let state = &self.0;
        let id = command.id();
        let done = Command::response(id, response::SUCCESS);
        state.requests.lock().push(command.clone());
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => {
                let wanted: GetRouteInfoRequest = command.header().unwrap();
                done.with_body(state.route(wanted.topic).to_json(Flavour::Standard))
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let body = ConsumerIdList {
                    consumer_id_list: vec![state.client.lock().clone()],
                };
                done.with_body(body.to_wire())
            }
            request::QUERY_CONSUMER_OFFSET => {
                done.with_header(&QueryConsumerOffsetResponse { offset: 0 })
            }
            request::GET_MAX_OFFSET => done.with_header(&GetMaxOffsetResponse { offset: 0 }),
            request::LOCK_BATCH_MQ => {
                let asked = LockBatchBody::from_json(&command.body).unwrap();
                let body = LockBatchResponseBody {
                    lock_ok_mq_set: asked.mq_set,
                };
                done.with_body(body.to_wire())
            }
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                done.with_header(&SendMessageResponse {
                    msg_id: "7F00000100002A9F0000000000000000",
                    queue_id: 0,
                    queue_offset: 0,
                    ..SendMessageResponse::default()
                })
            }
            request::PULL_MESSAGE => {
                state.held.lock().push(answers.later(id));
                return;
            }
            _ => done,
        };
        answers.answer(id, answer);
    }
}

impl State {
    fn route(&self, topic: &str) -> TopicRouteData {
        let own = self.own.lock().clone();
        let queues = if topic.starts_with('%') { 1 } else { 4 };
        let servers = if *self.filters.lock() {
            BTreeMap::from([(own.clone(), vec![own.clone()])])
        } else {
            BTreeMap::new()
        };
        TopicRouteData {
            queue_datas: vec![QueueData {
                broker_name: self.broker.clone(),
                perm: 6,
                read_queue_nums: queues,
                write_queue_nums: queues,
                ..QueueData::default()
            }],
            broker_datas: vec![BrokerData {
                broker_name: self.broker.clone(),
                broker_addrs: BTreeMap::from([(0, own)]),
                cluster: None,
            }],
            filter_server_table: servers,
            ..TopicRouteData::default()
        }
    }
}
