//! Requests that only our own servers know (31000 and up): what is damaged, mixed, held or locked at a broker, and the
//! figures of a filter server.

use minimq_protocol::Command;
use minimq_protocol::body::{
    DamagedRecordList, FilterServerStats, HeldPullList, MixedSubscriptions, QueueLockList,
};
use minimq_protocol::code::request;

use super::{Admin, body};
use crate::error::Result;

impl Admin {
    /// Parts of a broker's log that are never served (31000).
    pub async fn damaged_records(&self, addr: &str) -> Result<DamagedRecordList> {
        let answer = self
            .call_long(addr, Command::request(request::GET_DAMAGED_RECORDS))
            .await?;
        body(addr, &answer, DamagedRecordList::from_json)
    }

    /// Members that subscribe otherwise than their group, at a broker (31001).
    pub async fn mixed_subscriptions(&self, addr: &str) -> Result<MixedSubscriptions> {
        let answer = self
            .call_long(addr, Command::request(request::GET_MIXED_SUBSCRIPTIONS))
            .await?;
        body(addr, &answer, MixedSubscriptions::from_json)
    }

    /// Pulls that wait at a broker (31002).
    pub async fn held_pulls(&self, addr: &str) -> Result<HeldPullList> {
        let answer = self
            .call_long(addr, Command::request(request::GET_HELD_PULLS))
            .await?;
        body(addr, &answer, HeldPullList::from_json)
    }

    /// Locks on queues at a broker (31003).
    pub async fn queue_locks(&self, addr: &str) -> Result<QueueLockList> {
        let answer = self
            .call_long(addr, Command::request(request::GET_QUEUE_LOCKS))
            .await?;
        body(addr, &answer, QueueLockList::from_json)
    }

    /// Figures of a filter server and of every filter in it (31010).
    pub async fn filter_stats(&self, addr: &str) -> Result<FilterServerStats> {
        let answer = self
            .call(addr, Command::request(request::GET_FILTER_STATS))
            .await?;
        body(addr, &answer, FilterServerStats::from_json)
    }
}
