//! From a request to its answer (name server spec 3.2, 4): the connection's side ([`Handler`]) and the choice of the
//! code's function. What the codes do is in `brokers`, `topics`, `kv` and `configuration`.
//!
//! Routes are answered at once, from the view. What may take long (large registrations, lists of many topics,
//! changes of files), or would wait for the registry, is put aside and done off the connection's task at the end of
//! the read, in order with everything that came behind it.

mod access;
mod brokers;
mod configuration;
mod kv;
mod topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dashmap::DashMap;
use minimq_common::acl::AccessControl;
use minimq_common::config::{Config, Update};
use minimq_protocol::code::{request, response};
use minimq_protocol::{Command, HeaderError, NoHeader};
use minimq_remoting::{Answers, CloseReason, Connection, Service};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

pub(crate) use access::settings as access_settings;

use crate::config::NamesrvConfig;
use crate::kv_config::KvConfig;
use crate::registry::{Change, Registry, View};

/// A registration with a longer body is decoded off the connection's task.
const LARGE_BODY: usize = 8 * 1024;
/// With more topics, whatever walks all of them is done off the connection's task.
const MANY_TOPICS: usize = 500;
/// Answers put aside in one read may have so many bytes together; further ones are "system busy".
const PUT_ASIDE_BYTES: usize = 16 << 20;

/// Remark of "system busy" (2), as clients know it.
const OVERLOAD: &str = "[OVERLOAD]system busy, start flow control for a while";

/// Called with each change of the configuration that a request made.
pub type OnUpdate = Box<dyn Fn(&Update, &NamesrvConfig) + Send + Sync>;

/// Everything a name server knows.
pub(crate) struct State {
    pub(crate) view: Arc<View>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) kv: KvConfig,
    pub(crate) config: Arc<Config<NamesrvConfig>>,
    pub(crate) access: Option<Arc<AccessControl>>,
    /// Connections on which brokers registered.
    pub(crate) registered: DashMap<u64, Connection>,
    /// Turns for what is done off the connections' tasks.
    pub(crate) slow: Semaphore,
    /// Connections that have one or wait for one.
    pub(crate) waiting: AtomicUsize,
    pub(crate) started: Instant,
    pub(crate) stopping: AtomicBool,
    pub(crate) on_update: OnUpdate,
}

/// Whether a request may wait for the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// On a connection's task: no.
    None,
    /// On a thread for slow requests.
    Endless,
}

/// Why there is no good answer (yet).
enum Refusal {
    /// Answer this code and remark.
    With(i32, String),
    /// It would have to wait for the registry.
    WouldWait,
}

type Answered = Result<Command, Refusal>;

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::With(response::SYSTEM_ERROR, error.to_string())
    }
}

impl Refusal {
    fn error(reason: impl ToString) -> Self {
        Self::With(response::SYSTEM_ERROR, reason.to_string())
    }
}

/// Code 0 without anything.
fn done(request: &Command) -> Command {
    Command::response_to(request, response::SUCCESS)
}

impl State {
    /// Time for the registry: never goes back and does not jump with the wall clock, so that setting the clock
    /// takes no broker away.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn registry(&self, patience: Patience) -> Result<MutexGuard<'_, Registry>, Refusal> {
        match patience {
            Patience::None => self.registry.try_lock().ok_or(Refusal::WouldWait),
            Patience::Endless => Ok(self.registry.lock()),
        }
    }

    /// The brokers that registered on this connection last are gone. Waits for the registry.
    fn connection_closed(&self, connection: u64) {
        let changes = self.registry.lock().connection_closed(connection);
        log(&changes);
    }

    /// Takes silent brokers out. Waits for the registry.
    pub(crate) fn scan(&self) {
        let changes = self.registry.lock().scan(self.now_ms());
        for change in &changes {
            if let Change::Expired { connection, .. } = change
                && let Some((_, connection)) = self.registered.remove(connection)
            {
                connection.close(CloseReason::Requested("its broker was silent for too long"));
            }
        }
        log(&changes);
    }

    /// Whether the request is to be done off the connection's task.
    fn is_slow(&self, request: &Command) -> bool {
        match request.code {
            request::PUT_KV_CONFIG
            | request::DELETE_KV_CONFIG
            | kv::DELETE_KV_CONFIG_BY_VALUE
            | request::UPDATE_NAMESRV_CONFIG => true,
            request::REGISTER_BROKER => {
                request.body.len() > LARGE_BODY
                    || request
                        .ext
                        .get("compressed")
                        .is_some_and(|word| word.eq_ignore_ascii_case("true"))
            }
            request::UNREGISTER_BROKER
            | request::WIPE_WRITE_PERM_OF_BROKER
            | request::ADD_WRITE_PERM_OF_BROKER
            | request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | request::GET_TOPICS_BY_CLUSTER
            | request::GET_UNIT_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => self.view.topic_count() > MANY_TOPICS,
            request::GET_BROKER_CLUSTER_INFO | request::GET_SYSTEM_TOPIC_LIST_FROM_NS => {
                self.view.directory().brokers.len() > MANY_TOPICS
            }
            _ => false,
        }
    }

    /// The answer, or `None` if it would have to wait.
    fn answer(
        &self,
        request: &Command,
        connection: &Connection,
        patience: Patience,
    ) -> Option<Command> {
        match self.handle(request, connection, patience) {
            Ok(answer) => Some(answer),
            Err(Refusal::WouldWait) => None,
            Err(Refusal::With(code, remark)) => {
                Some(Command::response_to(request, code).with_remark(remark))
            }
        }
    }

    fn handle(&self, request: &Command, connection: &Connection, patience: Patience) -> Answered {
        self.check_access(request, connection)?;
        match request.code {
            request::GET_ROUTEINFO_BY_TOPIC => Ok(done(request).with_body(self.route(request)?)),
            request::REGISTER_BROKER => self.register(request, connection, patience),
            request::UNREGISTER_BROKER => self.unregister(request, connection, patience),
            request::QUERY_DATA_VERSION => self.query_data_version(request, patience),
            request::GET_BROKER_CLUSTER_INFO => Ok(self.cluster_info(request)),
            request::WIPE_WRITE_PERM_OF_BROKER => self.wipe_write_permission(request, patience),
            request::ADD_WRITE_PERM_OF_BROKER => self.add_write_permission(request, patience),
            request::DELETE_TOPIC_IN_NAMESRV => self.delete_topic(request, patience),
            request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | request::GET_TOPICS_BY_CLUSTER
            | request::GET_SYSTEM_TOPIC_LIST_FROM_NS
            | request::GET_UNIT_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_TOPIC_LIST
            | request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => self.topic_list(request),
            request::PUT_KV_CONFIG => self.put_kv(request),
            request::GET_KV_CONFIG => self.get_kv(request),
            request::DELETE_KV_CONFIG => self.delete_kv(request),
            request::GET_KVLIST_BY_NAMESPACE => self.list_kv(request),
            // 5.x gives these two codes other meanings, without a namespace.
            kv::GET_KV_CONFIG_BY_VALUE if kv::is_by_value(request) => self.get_kv_by_value(request),
            kv::DELETE_KV_CONFIG_BY_VALUE if kv::is_by_value(request) => {
                self.delete_kv_by_value(request)
            }
            request::UPDATE_NAMESRV_CONFIG => self.update_config(request, connection),
            request::GET_NAMESRV_CONFIG => Ok(self.show_config(request)),
            code => Err(Refusal::With(
                response::REQUEST_CODE_NOT_SUPPORTED,
                format!(" request type {code} not supported"),
            )),
        }
    }
}

/// The right to do something off the connection's task.
struct Turn<'a> {
    _permit: SemaphorePermit<'a>,
    _waiting: Waiting<'a>,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    /// Waits for a turn. `None` at once when too many wait already: while it waits, a connection is not read, so
    /// that it is not even noticed that its peer has gone, and what it sent takes memory.
    async fn turn(&self) -> Option<Turn<'_>> {
        let limit = self.config.get().max_waiting_requests;
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= limit {
            return None;
        }
        // The semaphore is never closed.
        let permit = self.slow.acquire().await.ok()?;
        Some(Turn {
            _permit: permit,
            _waiting: waiting,
        })
    }
}

/// The name server as a service.
pub(crate) struct Handler(pub(crate) Arc<State>);

/// Requests put aside in this read.
#[derive(Debug, Default)]
pub(crate) struct Session(Vec<Command>);

impl Service for Handler {
    type Session = Session;

    fn open(&self, connection: &Connection) -> Session {
        tracing::debug!(peer = %connection.peer(), "connected");
        Session::default()
    }

    fn request(&self, session: &mut Session, request: Command, answers: &mut Answers<'_>) {
        let state = &self.0;
        if !session.0.is_empty() || state.is_slow(&request) {
            session.0.push(request);
            return;
        }
        let to = request.id();
        if request.code == request::GET_ROUTEINFO_BY_TOPIC {
            // The hot path: no command is built, the body is shared.
            return match state.route(&request) {
                Ok(body) => {
                    answers.answer_head(to, response::SUCCESS, None, None::<&NoHeader>, &[body]);
                }
                Err(Refusal::With(code, remark)) => answers.refuse(to, code, &remark),
                Err(Refusal::WouldWait) => session.0.push(request),
            };
        }
        match state.answer(&request, answers.connection(), Patience::None) {
            Some(answer) => answers.answer(to, answer),
            None => session.0.push(request),
        }
    }

    async fn end_of_read(&self, session: &mut Session, answers: &mut Answers<'_>) {
        if session.0.is_empty() {
            return;
        }
        let requests = std::mem::take(&mut session.0);
        let ids: Vec<_> = requests.iter().map(Command::id).collect();
        let connection = answers.connection().clone();
        let state = self.0.clone();
        let Some(_turn) = self.0.turn().await else {
            for to in ids {
                answers.refuse(to, response::SYSTEM_BUSY, OVERLOAD);
            }
            return;
        };
        let work = move || answer_all(&state, &requests, &connection);
        match tokio::task::spawn_blocking(work).await {
            Ok(made) => {
                for (to, answer) in ids.into_iter().zip(made) {
                    answers.answer(to, answer);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a request failed");
                for to in ids {
                    let remark = "the request failed inside the name server; its log says more";
                    answers.refuse(to, response::SYSTEM_ERROR, remark);
                }
            }
        }
    }

    fn closed(&self, _session: Session, connection: &Connection, reason: &CloseReason) {
        tracing::debug!(peer = %connection.peer(), %reason, "disconnected");
        let state = &self.0;
        let id = connection.id();
        if state.registered.remove(&id).is_none() || state.stopping.load(Ordering::Relaxed) {
            return;
        }
        tracing::info!(peer = %connection.peer(), %reason, "the connection of a broker has ended");
        let state = state.clone();
        tokio::task::spawn_blocking(move || state.connection_closed(id));
    }
}

fn answer_all(state: &State, requests: &[Command], connection: &Connection) -> Vec<Command> {
    let mut bytes = 0;
    let answer = |request: &Command| {
        if bytes > PUT_ASIDE_BYTES {
            let remark =
                "[OVERLOAD]system busy: the answers before this one are large; wait for them";
            return Command::response_to(request, response::SYSTEM_BUSY).with_remark(remark);
        }
        let answer = state.answer(request, connection, Patience::Endless);
        let answer = answer.unwrap_or_else(|| Command::response_to(request, response::SYSTEM_BUSY));
        bytes += answer.body.len();
        answer
    };
    requests.iter().map(answer).collect()
}

/// Tells operators what happened.
pub(crate) fn log(changes: &[Change]) {
    for change in changes {
        match change {
            Change::Expired { .. }
            | Change::LateUnregistration { .. }
            | Change::BrokerDown { .. } => {
                tracing::warn!("{change}");
            }
            _ => tracing::info!("{change}"),
        }
    }
}
