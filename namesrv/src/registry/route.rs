//! [`Route`]: the queues of a topic at its brokers, and the answer made of them. Topics with the same queues at the
//! same brokers share one route and so one answer ([`Routes`]).

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use minimq_protocol::body::{Flavour, QueueData, TopicConfig, TopicRouteData};
use smallvec::SmallVec;

use super::broker::Broker;

/// The queues of a topic at one broker.
#[derive(Debug, Clone)]
pub struct TopicQueue {
    /// The broker.
    pub broker: Arc<Broker>,
    /// Queues that can be read.
    pub read_queue_nums: i32,
    /// Queues that can be written.
    pub write_queue_nums: i32,
    /// Permission bits ([`minimq_protocol::perm`]).
    pub perm: i32,
    /// Unit bits.
    pub topic_sys_flag: i32,
}

impl TopicQueue {
    pub(super) fn new(broker: &Arc<Broker>, topic: &TopicConfig) -> Self {
        Self {
            broker: broker.clone(),
            read_queue_nums: topic.read_queue_nums,
            write_queue_nums: topic.write_queue_nums,
            perm: topic.perm,
            topic_sys_flag: topic.topic_sys_flag,
        }
    }

    fn numbers(&self) -> [i32; 4] {
        [
            self.read_queue_nums,
            self.write_queue_nums,
            self.perm,
            self.topic_sys_flag,
        ]
    }

    fn data(&self) -> QueueData {
        QueueData {
            broker_name: self.broker.name().to_string(),
            perm: self.perm,
            read_queue_nums: self.read_queue_nums,
            topic_sys_flag: self.topic_sys_flag,
            write_queue_nums: self.write_queue_nums,
        }
    }
}

/// The same broker, not one of the same name: a broker that went and came back is another one.
impl PartialEq for TopicQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.broker, &other.broker) && self.numbers() == other.numbers()
    }
}

impl Eq for TopicQueue {}

impl Hash for TopicQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.broker).hash(state);
        self.numbers().hash(state);
    }
}

/// The queues of a topic while they are put together.
pub(super) type Queues = SmallVec<[TopicQueue; 4]>;

/// The queues of a topic, at least one entry, one for each broker, in the order of their names.
#[derive(Debug)]
pub struct Route {
    queues: Box<[TopicQueue]>,
    /// The answers, by flavour, with the generation they were made of.
    standard: ArcSwapOption<Made>,
    fastjson: ArcSwapOption<Made>,
}

#[derive(Debug)]
struct Made {
    generation: u64,
    body: Option<Bytes>,
}

impl Route {
    fn new(queues: &[TopicQueue]) -> Self {
        Self {
            queues: queues.into(),
            standard: ArcSwapOption::empty(),
            fastjson: ArcSwapOption::empty(),
        }
    }

    /// The queues.
    pub fn queues(&self) -> &[TopicQueue] {
        &self.queues
    }

    /// The entry of this broker name.
    pub fn queue_of(&self, broker: &str) -> Option<&TopicQueue> {
        self.queues
            .iter()
            .find(|queue| &**queue.broker.name() == broker)
    }

    /// Body of answer 105 without order configuration, made at most once until a broker changes. `None` if no
    /// broker has an address: "no route".
    pub fn body(&self, flavour: Flavour) -> Option<Bytes> {
        let place = match flavour {
            Flavour::Standard => &self.standard,
            Flavour::Fastjson => &self.fastjson,
        };
        // Taken before the members are read: a change in between makes the answer newer than its number, and it is
        // made again. Each number only grows, so equal sums are equal numbers.
        let generation = self.generation();
        if let Some(made) = &*place.load()
            && made.generation == generation
        {
            return made.body.clone();
        }
        let body = self
            .data(None)
            .map(|data| Bytes::from(data.to_json(flavour)));
        place.store(Some(Arc::new(Made {
            generation,
            body: body.clone(),
        })));
        body
    }

    /// The route as answer 105 holds it, `None` as for [`body`](Self::body).
    pub fn data(&self, order_topic_conf: Option<String>) -> Option<TopicRouteData> {
        let mut data = TopicRouteData {
            order_topic_conf,
            ..TopicRouteData::default()
        };
        for queue in &self.queues {
            data.queue_datas.push(queue.data());
            let members = queue.broker.members();
            if members.addrs.is_empty() {
                continue;
            }
            data.broker_datas.push(queue.broker.data_of(&members));
            for (addr, servers) in &members.filter_servers {
                data.filter_server_table
                    .insert(addr.to_string(), servers.to_vec());
            }
        }
        (!data.broker_datas.is_empty()).then_some(data)
    }

    fn generation(&self) -> u64 {
        let numbers = self.queues.iter().map(|queue| queue.broker.generation());
        numbers.fold(0, u64::wrapping_add)
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.queues == other.queues
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.queues.hash(state);
    }
}

/// An `Arc<Route>` that is found by its queues.
#[derive(Debug, PartialEq, Eq)]
struct Shared(Arc<Route>);

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.queues.hash(state);
    }
}

impl Borrow<[TopicQueue]> for Shared {
    fn borrow(&self) -> &[TopicQueue] {
        &self.0.queues
    }
}

/// All different routes.
#[derive(Debug, Default)]
pub(super) struct Routes {
    all: HashSet<Shared>,
    /// How many were left by the last sweep, and how many have come since.
    kept: usize,
    new: usize,
}

/// Routes that may be new before it is looked for unused ones, however few are in use.
const NEW_ROUTES: usize = 1024;

impl Routes {
    /// The one route with these queues, which are in the order of the brokers' names and not none.
    pub(super) fn get(&mut self, queues: &[TopicQueue]) -> Arc<Route> {
        if let Some(known) = self.all.get(queues) {
            return known.0.clone();
        }
        let route = Arc::new(Route::new(queues));
        self.all.insert(Shared(route.clone()));
        self.new += 1;
        // Each change of a topic leaves a route behind: never more than there are in use.
        if self.new > self.kept + NEW_ROUTES {
            self.sweep();
        }
        route
    }

    /// Forgets the routes of no topic. Others may still be reading one for a moment; it goes the next time.
    pub(super) fn sweep(&mut self) {
        self.all.retain(|route| Arc::strong_count(&route.0) > 1);
        self.all.shrink_to(self.all.len() * 2);
        (self.kept, self.new) = (self.all.len(), 0);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
