//! From a request code to its handler. The session holds what one connection collects between reads.

use std::sync::Arc;

use minimq_common::acl::AclError;
use minimq_common::config::{Config, Section};
use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_remoting::{Answers, CloseReason, Connection, ServerTls, Service};

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::request::RequestContext;
use crate::{
    access, admin, client_registry, filter_server_registry, offset, pull, query, queue_lock, send,
    stats, subscription_group, topic, transaction,
};

/// Which listener a connection came by.
const VIP_LISTENER: usize = 1;

/// What is kept for one connection.
#[derive(Debug)]
pub struct Session {
    /// Sends of this read, appended together at its end.
    pub sends: send::Collected,
    /// Ends of transactions of this read.
    pub ends: transaction::Ends,
    /// What this connection's pulls count to.
    pub gets: stats::GetCache,
    /// Where the time of its sends goes.
    pub timer: stats::ReadTimer,
    /// Came by the VIP port, which serves no pulls.
    pub vip: bool,
}

/// The broker as a service.
pub struct BrokerService {
    broker: Arc<Broker>,
}

impl BrokerService {
    /// Serves this broker.
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }
}

impl Service for BrokerService {
    type Session = Session;

    fn open(&self, connection: &Connection) -> Session {
        Session {
            sends: send::Collected::new(self.broker.store.clone()),
            ends: transaction::Ends::default(),
            gets: stats::GetCache::default(),
            timer: stats::ReadTimer::default(),
            vip: connection.listener() == VIP_LISTENER,
        }
    }

    fn begin_of_read(&self, session: &mut Session) {
        session.timer.begin();
    }

    fn request(&self, session: &mut Session, command: Command, answers: &mut Answers<'_>) {
        if let Some(control) = &self.broker.access
            && let Err(refused) = access::check(control, answers.connection(), &command)
        {
            return answers.refuse(command.id(), AclError::CODE, &refused.remark());
        }
        let mut cx = RequestContext {
            broker: &self.broker,
            session,
            answers,
        };
        dispatch(&mut cx, command);
    }

    async fn end_of_read(&self, session: &mut Session, answers: &mut Answers<'_>) {
        if !session.sends.is_empty() {
            let Session { sends, timer, .. } = session;
            send::append_collected(&self.broker, sends, timer, answers).await;
        }
        if !session.ends.is_empty() {
            transaction::end_collected(&self.broker, &mut session.ends, answers);
        }
    }

    fn answers_written(&self, session: &mut Session) {
        session.timer.written(&self.broker.stats.send);
        session.sends.tell_followers();
    }

    fn closed(&self, _session: Session, connection: &Connection, _reason: &CloseReason) {
        self.broker.filter_server_connection_closed(connection);
        self.broker.held_connection_closed(connection);
        for group in self.broker.clients.connection_closed(connection) {
            self.broker.consumer_group_left(&group);
            self.broker.notices.add(&group);
        }
    }
}

/// One arm a code, by families in the order of the codes' table.
fn dispatch(cx: &mut RequestContext<'_, '_>, command: Command) {
    match command.code {
        request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
            cx.session.sends.push(command);
        }
        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE if !cx.session.vip => {
            pull::pull(cx, command)
        }
        request::QUERY_CONSUMER_OFFSET => offset::query(cx, command),
        request::UPDATE_CONSUMER_OFFSET => offset::update(cx, &command),
        request::GET_MAX_OFFSET => offset::max(cx, &command),
        request::GET_MIN_OFFSET => offset::min(cx, &command),
        request::SEARCH_OFFSET_BY_TIMESTAMP => cx.slow(command, offset::search),
        request::GET_EARLIEST_MSG_STORETIME => cx.slow(command, offset::earliest_store_time),
        request::INVOKE_BROKER_TO_RESET_OFFSET => cx.slow(command, offset::reset),
        request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => cx.slow(command, offset::consumer_status),
        request::CLONE_GROUP_OFFSET => cx.slow(command, offset::clone_group),
        request::HEART_BEAT => client_registry::heartbeat(cx, &command),
        request::UNREGISTER_CLIENT => client_registry::unregister(cx, &command),
        request::CHECK_CLIENT_CONFIG => cx.slow(command, client_registry::check_client),
        request::GET_CONSUMER_LIST_BY_GROUP => cx.slow(command, client_registry::consumer_ids),
        request::GET_CONSUMER_CONNECTION_LIST => {
            cx.slow(command, client_registry::consumer_connections)
        }
        request::GET_PRODUCER_CONNECTION_LIST => {
            cx.slow(command, client_registry::producer_connections)
        }
        request::GET_ALL_PRODUCER_INFO => cx.slow(command, client_registry::all_producers),
        request::QUERY_TOPIC_CONSUME_BY_WHO => cx.slow(command, client_registry::topic_consumed_by),
        request::LOCK_BATCH_MQ => queue_lock::lock(cx, &command),
        request::UNLOCK_BATCH_MQ => queue_lock::unlock(cx, &command),
        request::CONSUMER_SEND_MSG_BACK => cx.slow(command, send::send_back),
        request::UPDATE_AND_CREATE_TOPIC => cx.slow(command, topic::update_and_create),
        request::DELETE_TOPIC_IN_BROKER => cx.slow(command, topic::delete),
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => {
            cx.slow(command, subscription_group::update_and_create);
        }
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => cx.slow(command, subscription_group::get_all),
        request::DELETE_SUBSCRIPTIONGROUP => cx.slow(command, subscription_group::delete),
        request::SEND_REPLY_MESSAGE | request::SEND_REPLY_MESSAGE_V2 => send::reply(cx, command),
        request::END_TRANSACTION => cx.session.ends.push(command),
        request::RESUME_CHECK_HALF_MESSAGE => cx.slow(command, transaction::resume),
        request::QUERY_MESSAGE => cx.slow(command, query::by_key),
        request::VIEW_MESSAGE_BY_ID => cx.slow(command, query::view),
        request::QUERY_CONSUME_QUEUE => cx.slow(command, query::consume_queue),
        request::GET_ALL_TOPIC_CONFIG => cx.slow(command, admin::all_topics),
        request::GET_ALL_CONSUMER_OFFSET => cx.slow(command, admin::all_offsets),
        request::GET_ALL_DELAY_OFFSET => cx.slow(command, admin::all_delay_offsets),
        request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER => cx.slow(command, admin::system_topics),
        request::UPDATE_BROKER_CONFIG => cx.slow(command, admin::update_config),
        request::GET_BROKER_CONFIG => cx.slow(command, admin::get_config),
        request::GET_BROKER_RUNTIME_INFO => cx.slow(command, admin::runtime_info),
        request::VIEW_BROKER_STATS_DATA => cx.slow(command, stats::view),
        request::GET_TOPIC_STATS_INFO => cx.slow(command, admin::topic_stats),
        request::GET_CONSUME_STATS => cx.slow(command, admin::consume_stats),
        request::GET_BROKER_CONSUME_STATS => cx.slow(command, admin::stats_of_all_groups),
        request::QUERY_CONSUME_TIME_SPAN => cx.slow(command, admin::time_span),
        request::QUERY_CORRECTION_OFFSET => cx.slow(command, admin::correction_offsets),
        request::CLEAN_EXPIRED_CONSUMEQUEUE => cx.slow(command, admin::expired_queues),
        request::CLEAN_UNUSED_TOPIC => cx.slow(command, admin::unused_topics),
        request::DELETE_EXPIRED_COMMITLOG => cx.slow(command, admin::expired_log),
        request::GET_CONSUMER_RUNNING_INFO => admin::running_info(cx, command),
        request::CONSUME_MESSAGE_DIRECTLY => admin::consume_directly(cx, command),
        request::UPDATE_AND_CREATE_ACL_CONFIG => cx.slow(command, access::update_account),
        request::DELETE_ACL_CONFIG => cx.slow(command, access::delete_account),
        request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG => cx.slow(command, access::update_white_list),
        request::GET_BROKER_CLUSTER_ACL_INFO => cx.slow(command, access::info),
        request::GET_DAMAGED_RECORDS => cx.slow(command, admin::damaged_records),
        request::GET_MIXED_SUBSCRIPTIONS => cx.slow(command, admin::mixed_subscriptions),
        request::GET_HELD_PULLS => cx.slow(command, admin::held_pulls),
        request::GET_QUEUE_LOCKS => cx.slow(command, admin::queue_locks),
        request::REGISTER_FILTER_SERVER => filter_server_registry::register(cx, &command),
        _ => not_supported(cx, &command),
    }
}

fn not_supported(cx: &mut RequestContext<'_, '_>, command: &Command) {
    let remark = format!(" request type {} not supported", command.code);
    cx.answers.refuse(
        command.id(),
        minimq_protocol::code::response::REQUEST_CODE_NOT_SUPPORTED,
        &remark,
    );
}

/// The port's TLS by the keys `tls.*`.
pub(crate) fn tls(config: &Config<BrokerConfig>) -> ServerTls {
    let mut values = std::collections::HashMap::new();
    config.to_arc().show(&mut |key, value| {
        if let (true, Some(value)) = (key.name.starts_with("tls."), value) {
            values.insert(key.name, value);
        }
    });
    ServerTls::from_keys(|key| values.get(key).cloned())
}
