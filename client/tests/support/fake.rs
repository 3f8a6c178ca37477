//! A server that is name server, broker and filter server at once, answers as a test needs, and keeps every request.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use minimq_client::{Client, ClientBuilder, SerializeType};
use minimq_protocol::body::{
    BrokerData, ConsumerIdList, LockBatchBody, LockBatchResponseBody, QueueData, TopicRouteData,
};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    GetMaxOffsetResponse, GetRouteInfoRequest, PullMessageResponse, QueryConsumerOffsetResponse,
    SendMessageResponse,
};
use minimq_protocol::json::Flavour;
use minimq_protocol::message::RecordFields;
use minimq_protocol::{Command, crc};
use minimq_remoting::{
    Answers, Connection, Responder, Server, ServerConfig, ServerHandle, ServerTls, Service,
};
use parking_lot::Mutex;

use super::eventually;

/// What a test wants done with a request.
pub enum Reply {
    /// What the fake does anyway.
    Usual,
    /// That code with a remark.
    Refusal(i32, &'static str),
    /// A success with what this adds.
    With(Box<dyn FnOnce(Command) -> Command>),
    /// The usual answer under another code.
    Code(i32),
    /// None until [`Fake::answer_one`].
    Wait,
}

type Script = Box<dyn FnMut(&Command) -> Reply + Send>;

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
    members: Mutex<Vec<String>>,
    /// Uploads that are to be refused as still compiling; pulls with a filter want an upload first then.
    refused_uploads: Mutex<usize>,
    wants_upload: Mutex<bool>,
    requests: Mutex<Vec<Command>>,
    scripts: Mutex<BTreeMap<i32, Script>>,
    /// Brokers that its routes name as well: name and address.
    beside: Mutex<Vec<(String, String)>>,
    /// Requests that a script has wait, in their order.
    waiting: Mutex<VecDeque<(Command, Responder)>>,
    /// Pulls are held until a test delivers, or to the end.
    held: Mutex<Vec<(Command, Responder)>>,
}

impl Fake {
    /// A broker of that name, four queues a topic.
    pub async fn start(broker: &str) -> Self {
        Self::start_with(broker, ServerTls::default()).await
    }

    /// The same with TLS of its own.
    pub async fn start_with(broker: &str, tls: ServerTls) -> Self {
        let state = Arc::new(State {
            broker: broker.to_owned(),
            own: Mutex::default(),
            filters: Mutex::new(true),
            members: Mutex::default(),
            refused_uploads: Mutex::default(),
            wants_upload: Mutex::default(),
            requests: Mutex::default(),
            scripts: Mutex::default(),
            beside: Mutex::default(),
            waiting: Mutex::default(),
            held: Mutex::default(),
        });
        let config = ServerConfig {
            tls,
            ..ServerConfig::new("127.0.0.1:0".parse().unwrap())
        };
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

    /// Who is the member of every group.
    pub fn member(&self, client_id: &str) {
        self.members(&[client_id]);
    }

    pub fn members(&self, client_ids: &[&str]) {
        *self.state.members.lock() = client_ids.iter().map(|id| (*id).to_owned()).collect();
    }

    pub fn filters(&self, on: bool) {
        *self.state.filters.lock() = on;
    }

    /// Refuses so many uploads as a filter server that still compiles.
    pub fn refuse_uploads(&self, count: usize) {
        *self.state.refused_uploads.lock() = count;
        *self.state.wants_upload.lock() = true;
    }

    /// A client that has this one as its name server.
    pub fn client_builder(&self) -> ClientBuilder {
        Client::builder().name_servers(self.addr.to_string())
    }

    /// That client, from now on the member of every group.
    pub async fn client_of(&self, builder: ClientBuilder) -> Client {
        let client = builder.build().await.unwrap();
        self.member(client.client_id());
        client
    }

    /// A member whose requests have binary headers.
    pub async fn client(&self) -> Client {
        let builder = self.client_builder();
        self.client_of(builder.header_encoding(SerializeType::Rocketmq))
            .await
    }

    /// Has requests of a code answered by `script`.
    pub fn script(&self, code: i32, script: impl FnMut(&Command) -> Reply + Send + 'static) {
        self.state.scripts.lock().insert(code, Box::new(script));
    }

    /// Has the routes name another one as a broker too.
    pub fn beside(&self, other: &Fake) {
        let broker = (other.state.broker.clone(), other.addr.to_string());
        self.state.beside.lock().push(broker);
    }

    /// Waits for a request of a code that is `wanted`.
    pub async fn first(&self, what: &str, code: i32, wanted: impl Fn(&Command) -> bool) -> Command {
        let find = || self.requests(code).into_iter().find(&wanted);
        eventually(what, async || find().is_some()).await;
        find().unwrap()
    }

    /// Pulls that wait for messages.
    pub fn held(&self) -> usize {
        self.state.held.lock().len()
    }

    /// Answers a pull of queue 0 of a topic that waits, or that comes, with messages of these bodies from its offset on.
    pub async fn deliver(&self, topic: &str, bodies: &[&str]) {
        let own = |(pull, _): &(Command, Responder)| {
            pull.ext.get("topic") == Some(topic) && pull.ext.get("queueId") == Some("0")
        };
        let find = || self.state.held.lock().iter().position(own);
        eventually("the queue is pulled", async || find().is_some()).await;
        let at = find().unwrap();
        let (pull, responder) = self.state.held.lock().swap_remove(at);
        let offset: i64 = pull.ext.get("queueOffset").unwrap().parse().unwrap();
        let records: Vec<u8> = (offset..)
            .zip(bodies)
            .flat_map(|(offset, body)| record(topic, offset, body))
            .collect();
        let next = offset + i64::try_from(bodies.len()).unwrap();
        let answer =
            Command::response_to(&pull, response::SUCCESS).with_header(&PullMessageResponse {
                suggest_which_broker_id: 0,
                next_begin_offset: next,
                min_offset: 0,
                max_offset: next,
            });
        responder.respond(answer.with_body(records));
    }

    /// Requests that wait because of their script.
    pub fn waiting(&self) -> usize {
        self.state.waiting.lock().len()
    }

    /// Answers the one that waits longest as usual.
    pub fn answer_one(&self) {
        let (command, responder) = self.state.waiting.lock().pop_front().unwrap();
        let answer = self.state.usual(&command);
        responder.respond(answer.expect("it has a usual answer"));
    }

    /// The requests of a code so far.
    pub fn requests(&self, code: i32) -> Vec<Command> {
        let all = self.state.requests.lock();
        all.iter().filter(|one| one.code == code).cloned().collect()
    }
}

fn record(topic: &str, offset: i64, body: &str) -> Vec<u8> {
    let host = SocketAddr::from(([127, 0, 0, 1], 1));
    let fields = RecordFields {
        topic,
        queue_id: 0,
        flag: 0,
        queue_offset: offset,
        physical_offset: offset * 100,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host,
        store_timestamp: 1_700_000_000_001,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: crc::body_crc(body.as_bytes()),
        body: body.as_bytes(),
        properties: b"",
        appended_properties: &[],
    };
    fields.encode().unwrap().to_vec()
}

struct Serving(Arc<State>);

impl Service for Serving {
    type Session = ();

    fn open(&self, _: &Connection) {}

    fn request(&self, (): &mut (), command: Command, answers: &mut Answers<'_>) {
        let state = &self.0;
        let id = command.id();
        state.requests.lock().push(command.clone());
        let reply = match state.scripts.lock().get_mut(&command.code) {
            Some(script) => script(&command),
            None => Reply::Usual,
        };
        let code = match reply {
            Reply::Usual => None,
            Reply::Code(code) => Some(code),
            Reply::Refusal(code, remark) => return answers.refuse(id, code, remark),
            Reply::With(add) => {
                let done = Command::response(id, response::SUCCESS);
                return answers.answer(id, add(done));
            }
            Reply::Wait => {
                let later = (command, answers.later(id));
                return state.waiting.lock().push_back(later);
            }
        };
        if command.code == request::UNREGISTER_CLIENT {
            // Nobody takes the answers to the pulls of a consumer that left.
            let group = command.ext.get("consumerGroup");
            let left = |pull: &Command| pull.ext.get("consumerGroup") == group;
            state.held.lock().retain(|(pull, _)| !left(pull));
        }
        match state.usual(&command) {
            Some(mut answer) => {
                answer.code = code.unwrap_or(answer.code);
                answers.answer(id, answer);
            }
            None => {
                let later = answers.later(id);
                state.held.lock().push((command, later));
            }
        }
    }
}

impl State {
    /// The answer of a server without special wishes; none to a pull, which waits.
    fn usual(&self, command: &Command) -> Option<Command> {
        let refusal = |remark: &str| {
            Some(Command::response_to(command, response::SYSTEM_ERROR).with_remark(remark))
        };
        let done = Command::response_to(command, response::SUCCESS);
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => {
                let wanted: GetRouteInfoRequest = command.header().unwrap();
                done.with_body(self.route(wanted.topic).to_json(Flavour::Standard))
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let body = ConsumerIdList {
                    consumer_id_list: self.members.lock().clone(),
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
            request::REGISTER_MESSAGE_FILTER_CLASS => {
                let mut refused = self.refused_uploads.lock();
                if *refused > 0 {
                    *refused -= 1;
                    return refusal("compiling, upload again: not compiled after 4 s");
                }
                *self.wants_upload.lock() = false;
                done
            }
            request::PULL_MESSAGE => {
                let topic = command.ext.get("topic");
                let retries = topic.is_some_and(|topic| topic.starts_with('%'));
                if *self.wants_upload.lock() && !retries {
                    return refusal("Find Filter class failed, not registered, upload first, t@g");
                }
                return None;
            }
            _ => done,
        };
        Some(answer)
    }

    fn route(&self, topic: &str) -> TopicRouteData {
        let own = self.own.lock().clone();
        let queues = if topic.starts_with('%') { 1 } else { 4 };
        let servers = if *self.filters.lock() {
            BTreeMap::from([(own.clone(), vec![own.clone()])])
        } else {
            BTreeMap::new()
        };
        let mut brokers = vec![(self.broker.clone(), own)];
        brokers.extend(self.beside.lock().iter().cloned());
        let queue_data = |(name, _): &(String, String)| QueueData {
            broker_name: name.clone(),
            perm: 6,
            read_queue_nums: queues,
            write_queue_nums: queues,
            ..QueueData::default()
        };
        let broker_data = |(name, addr): &(String, String)| BrokerData {
            broker_name: name.clone(),
            broker_addrs: BTreeMap::from([(0, addr.clone())]),
            cluster: None,
        };
        TopicRouteData {
            queue_datas: brokers.iter().map(queue_data).collect(),
            broker_datas: brokers.iter().map(broker_data).collect(),
            filter_server_table: servers,
            ..TopicRouteData::default()
        }
    }
}
