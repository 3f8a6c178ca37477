//! The tables of producers and consumers. A pure state: time and connections are handed in, what others must be
//! told is handed out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use minimq_protocol::Language;
use minimq_protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel};
use minimq_remoting::Connection;
use parking_lot::RwLock;

use super::subscription::Subscription;

/// An entry without a heartbeat for so long is gone, ms.
const EXPIRY_MS: i64 = 120_000;

/// One client's connection in a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its connection.
    pub connection: Connection,
    /// Client id.
    pub client_id: Arc<str>,
    /// Language of the heartbeat.
    pub language: Language,
    /// Version of the heartbeat.
    pub version: i32,
    /// Time of the last heartbeat, ms since 1970.
    pub seen_ms: i64,
}

#[derive(Debug, Default)]
struct ConsumerGroup {
    consume_type: Option<ConsumeType>,
    model: Option<MessageModel>,
    from_where: Option<ConsumeFromWhere>,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    members: HashMap<u64, Member>,
    /// Members whose subscriptions differ from the group's, noticed at their last heartbeat.
    mixed: HashMap<u64, Vec<String>>,
}

/// A consumer group as it is now.
#[derive(Debug, Clone)]
pub struct GroupView {
    /// Push or pull.
    pub consume_type: Option<ConsumeType>,
    /// Clustering or broadcasting.
    pub model: Option<MessageModel>,
    /// Where a new group begins.
    pub from_where: Option<ConsumeFromWhere>,
    /// Topic → subscription.
    pub subscriptions: BTreeMap<String, Arc<Subscription>>,
    /// All members.
    pub members: Vec<Member>,
}

#[derive(Debug, Default)]
struct Tables {
    consumers: HashMap<String, ConsumerGroup>,
    producers: HashMap<String, HashMap<u64, Member>>,
    /// Client id → connection, of producers.
    producer_clients: HashMap<Arc<str>, Connection>,
    /// Connection → its groups.
    groups_of: HashMap<u64, HashSet<String>>,
}

/// What a registration has changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Members or topics changed: tell the group.
    pub membership: bool,
    /// The group's members disagree about their subscriptions since now.
    pub mixed: bool,
    /// The same client id is alive on another address.
    pub duplicate_id: bool,
}

/// All clients.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    tables: RwLock<Tables>,
}

impl ClientRegistry {
    /// One consumer group of a heartbeat.
    pub fn register_consumer(&self, data: &ConsumerData, member: Member) -> Changed {
        let mut tables = self.tables.write();
        let id = member.connection.id();
        tables
            .groups_of
            .entry(id)
            .or_default()
            .insert(data.group_name.clone());
        let group = tables.consumers.entry(data.group_name.clone()).or_default();
        let mut changed = Changed::default();
        group.consume_type = data.consume_type;
        group.model = data.message_model;
        group.from_where = data.consume_from_where;
        changed.duplicate_id = !group.members.contains_key(&id)
            && group.members.values().any(|other| {
                other.client_id == member.client_id
                    && other.connection.peer().ip() != member.connection.peer().ip()
            });
        changed.membership = group.members.insert(id, member).is_none();

        let differs = differing_topics(group, data);
        if differs.is_empty() {
            group.mixed.remove(&id);
        } else if group.members.len() > 1 {
            changed.mixed = group.mixed.insert(id, differs).is_none();
        }
        for wanted in &data.subscription_data_set {
            match group.subscriptions.get(&wanted.topic) {
                Some(known) if known.data.sub_version >= wanted.sub_version => {}
                known => {
                    changed.membership |= known.is_none();
                    let subscription = Arc::new(Subscription::new(wanted.clone()));
                    group
                        .subscriptions
                        .insert(wanted.topic.clone(), subscription);
                }
            }
        }
        let before = group.subscriptions.len();
        group
            .subscriptions
            .retain(|topic, _| data.subscription_data_set.iter().any(|s| s.topic == *topic));
        changed.membership |= group.subscriptions.len() != before;
        changed
    }

    /// One producer group of a heartbeat.
    pub fn register_producer(&self, group: &str, member: Member) {
        let mut tables = self.tables.write();
        let id = member.connection.id();
        let (client, connection) = (member.client_id.clone(), member.connection.clone());
        let members = tables.producers.entry(group.to_owned()).or_default();
        if members.insert(id, member).is_none() {
            tables.producer_clients.insert(client, connection);
        }
        tables
            .groups_of
            .entry(id)
            .or_default()
            .insert(group.to_owned());
    }

    /// Takes a connection out of a producer group.
    pub fn unregister_producer(&self, group: &str, connection: &Connection) {
        self.tables.write().remove_producer(group, connection.id());
    }

    /// Takes a connection out of a consumer group; whether it was in it.
    pub fn unregister_consumer(&self, group: &str, connection: &Connection) -> bool {
        self.tables.write().remove_consumer(group, connection.id())
    }

    /// Takes a closed connection out of all groups; gives the consumer groups it was in.
    pub fn connection_closed(&self, connection: &Connection) -> Vec<String> {
        let mut tables = self.tables.write();
        let groups = tables
            .groups_of
            .remove(&connection.id())
            .unwrap_or_default();
        let id = connection.id();
        groups
            .into_iter()
            .filter(|group| {
                tables.remove_producer(group, id);
                tables.remove_consumer(group, id)
            })
            .collect()
    }

    /// Takes out all without a heartbeat since `EXPIRY_MS`; gives their connections, to be closed.
    pub fn expire(&self, now_ms: i64) -> Vec<Connection> {
        let mut tables = self.tables.write();
        let mut silent: Vec<(String, Connection)> = Vec::new();
        let old = |member: &Member| now_ms - member.seen_ms > EXPIRY_MS;
        for (group, members) in &tables.producers {
            silent.extend(
                members
                    .values()
                    .filter(|m| old(m))
                    .map(|m| (group.clone(), m.connection.clone())),
            );
        }
        for (group, entry) in &tables.consumers {
            silent.extend(
                entry
                    .members
                    .values()
                    .filter(|m| old(m))
                    .map(|m| (group.clone(), m.connection.clone())),
            );
        }
        for (group, connection) in &silent {
            tables.remove_producer(group, connection.id());
            tables.remove_consumer(group, connection.id());
        }
        silent
            .into_iter()
            .map(|(_, connection)| connection)
            .collect()
    }

    /// A consumer group that is online.
    pub fn group(&self, group: &str) -> Option<GroupView> {
        let tables = self.tables.read();
        tables.consumers.get(group).map(|group| GroupView {
            consume_type: group.consume_type,
            model: group.model,
            from_where: group.from_where,
            subscriptions: group.subscriptions.clone(),
            members: group.members.values().cloned().collect(),
        })
    }

    /// Model and subscription of a topic, of a group that is online.
    pub fn subscription(
        &self,
        group: &str,
        topic: &str,
    ) -> Option<(Option<MessageModel>, Option<Arc<Subscription>>)> {
        let tables = self.tables.read();
        let group = tables.consumers.get(group)?;
        Some((group.model, group.subscriptions.get(topic).cloned()))
    }

    /// Whether a group that is online and has subscriptions has one for the topic.
    pub fn subscribes(&self, group: &str, topic: &str) -> Option<bool> {
        let tables = self.tables.read();
        let group = tables
            .consumers
            .get(group)
            .filter(|group| !group.subscriptions.is_empty())?;
        Some(group.subscriptions.contains_key(topic))
    }

    /// Members of a consumer group.
    pub fn members_of(&self, group: &str) -> Vec<Member> {
        let tables = self.tables.read();
        tables
            .consumers
            .get(group)
            .map(|group| group.members.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Members of a producer group.
    pub fn producers_of(&self, group: &str) -> Option<Vec<Member>> {
        self.tables
            .read()
            .producers
            .get(group)
            .map(|members| members.values().cloned().collect())
    }

    /// All producer groups.
    pub fn all_producers(&self) -> BTreeMap<String, Vec<Member>> {
        let tables = self.tables.read();
        tables
            .producers
            .iter()
            .map(|(group, members)| (group.clone(), members.values().cloned().collect()))
            .collect()
    }

    /// The connection of a producer, by client id.
    pub fn producer_client(&self, client_id: &str) -> Option<Connection> {
        self.tables.read().producer_clients.get(client_id).cloned()
    }

    /// Consumer groups online that subscribe a topic.
    pub fn groups_subscribing(&self, topic: &str) -> Vec<String> {
        let tables = self.tables.read();
        let subscribing = tables
            .consumers
            .iter()
            .filter(|(_, group)| group.subscriptions.contains_key(topic));
        subscribing.map(|(name, _)| name.clone()).collect()
    }

    /// Consumer groups online.
    pub fn consumer_groups(&self) -> Vec<String> {
        self.tables.read().consumers.keys().cloned().collect()
    }

    /// Groups whose members differ in their subscriptions: group → (client id, topics that differ).
    pub fn mixed(&self) -> BTreeMap<String, Vec<(String, Vec<String>)>> {
        let tables = self.tables.read();
        let mut mixed = BTreeMap::new();
        for (name, group) in tables
            .consumers
            .iter()
            .filter(|(_, group)| !group.mixed.is_empty())
        {
            let members = group.mixed.iter().filter_map(|(id, topics)| {
                Some((group.members.get(id)?.client_id.to_string(), topics.clone()))
            });
            mixed.insert(name.clone(), members.collect());
        }
        mixed
    }
}

/// Topics of a heartbeat that the group subscribes otherwise.
fn differing_topics(group: &ConsumerGroup, data: &ConsumerData) -> Vec<String> {
    if group.subscriptions.is_empty() {
        return Vec::new();
    }
    let wanted = &data.subscription_data_set;
    let mut differs: Vec<String> = wanted
        .iter()
        .filter(|s| {
            group
                .subscriptions
                .get(&s.topic)
                .is_none_or(|known| known.data.sub_string != s.sub_string)
        })
        .map(|s| s.topic.clone())
        .collect();
    differs.extend(
        group
            .subscriptions
            .keys()
            .filter(|topic| wanted.iter().all(|s| s.topic != **topic))
            .cloned(),
    );
    differs
}

impl Tables {
    fn remove_producer(&mut self, group: &str, id: u64) -> bool {
        let Some(members) = self.producers.get_mut(group) else {
            return false;
        };
        let Some(member) = members.remove(&id) else {
            return false;
        };
        if members.is_empty() {
            self.producers.remove(group);
        }
        if self
            .producer_clients
            .get(&member.client_id)
            .is_some_and(|c| c.id() == id)
        {
            self.producer_clients.remove(&member.client_id);
        }
        true
    }

    fn remove_consumer(&mut self, group: &str, id: u64) -> bool {
        let Some(entry) = self.consumers.get_mut(group) else {
            return false;
        };
        let removed = entry.members.remove(&id).is_some();
        entry.mixed.remove(&id);
        if entry.members.is_empty() {
            self.consumers.remove(group);
        }
        removed
    }
}
