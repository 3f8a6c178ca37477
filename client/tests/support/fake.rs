//! A server that is name server, broker and filter server at once, answers as a test needs, and keeps every request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use minimq_client::{Client, ClientBuilder, SerializeType};
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

use super::eventually;

/// What a test wants done with a request.
pub enum Reply {
    /// What the fake does anyway.
    Usual,
    /// That code with a remark.
    Refusal(i32, &'static str),
    /// Success with that body.
    Body(Vec<u8>),
    /// The usual answer under another code.
    Code(i32),
    /// Nothing; the connection stays open.
    Silence,
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
    client: Mutex<String>,
    /// Uploads that are to be refused as still compiling; pulls with a filter want an upload first then.
    refused_uploads: Mutex<usize>,
    wants_upload: Mutex<bool>,
    requests: Mutex<Vec<Command>>,
    scripts: Mutex<BTreeMap<i32, Script>>,
    /// Brokers that its routes name as well: name and address.
    beside: Mutex<Vec<(String, String)>>,
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
            refused_uploads: Mutex::default(),
            wants_upload: Mutex::default(),
            requests: Mutex::default(),
            scripts: Mutex::default(),
            beside: Mutex::default(),
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
        let reply = match state.scripts.lock().get_mut(&command.code) {
            Some(script) => script(&command),
            None => Reply::Usual,
        };
        let mut code = None;
        match reply {
            Reply::Usual => {}
            Reply::Refusal(code, remark) => return answers.refuse(id, code, remark),
            Reply::Body(body) => return answers.answer(id, done.with_body(body)),
            Reply::Code(other) => code = Some(other),
            Reply::Silence => {
                state.held.lock().push(answers.later(id));
                return;
            }
        }
        let mut answer = match command.code {
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
            request::REGISTER_MESSAGE_FILTER_CLASS => {
                let mut refused = state.refused_uploads.lock();
                if *refused > 0 {
                    *refused -= 1;
                    let remark = "compiling, upload again: not compiled after 4 s";
                    return answers.refuse(id, response::SYSTEM_ERROR, remark);
                }
                *state.wants_upload.lock() = false;
                done
            }
            request::PULL_MESSAGE => {
                let retries = command
                    .ext
                    .get("topic")
                    .is_some_and(|topic| topic.starts_with('%'));
                if *state.wants_upload.lock() && !retries {
                    let remark = "Find Filter class failed, not registered, upload first, t@g";
                    return answers.refuse(id, response::SYSTEM_ERROR, remark);
                }
                state.held.lock().push(answers.later(id));
                return;
            }
            _ => done,
        };
        answer.code = code.unwrap_or(answer.code);
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
