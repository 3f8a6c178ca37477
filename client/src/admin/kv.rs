//! The name servers' key-value store, and order configurations in it.

use std::collections::BTreeMap;

use minimq_protocol::Command;
use minimq_protocol::body::KvTable;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    DeleteKVConfigRequest, GetKVConfigRequest, GetKVConfigResponse, GetKVListByNamespaceRequest,
    PutKVConfigRequest,
};

use super::{Admin, header};
use crate::error::{Error, Result};

/// Namespace of order configurations.
const ORDER: &str = "ORDER_TOPIC_CONFIG";

impl Admin {
    /// Sets a key at every name server (100).
    pub async fn put_kv(&self, namespace: &str, key: &str, value: &str) -> Result<()> {
        let header = PutKVConfigRequest {
            namespace,
            key,
            value,
        };
        self.every_name_server(Command::request_with(request::PUT_KV_CONFIG, &header))
            .await
    }

    /// Reads a key (101).
    pub async fn get_kv(&self, namespace: &str, key: &str) -> Result<Option<String>> {
        let request = Command::request_with(
            request::GET_KV_CONFIG,
            &GetKVConfigRequest { namespace, key },
        );
        match self.core.call_name_server(request).await {
            Ok((addr, answer)) => Ok(header::<GetKVConfigResponse>(&addr, &answer)?
                .value
                .map(str::to_owned)),
            Err(Error::Refused {
                code: response::QUERY_NOT_FOUND,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a key at every name server (102).
    pub async fn delete_kv(&self, namespace: &str, key: &str) -> Result<()> {
        let request = Command::request_with(
            request::DELETE_KV_CONFIG,
            &DeleteKVConfigRequest { namespace, key },
        );
        self.every_name_server(request).await
    }

    /// All keys of a namespace (219); empty if there is no such namespace.
    pub async fn list_kv(&self, namespace: &str) -> Result<BTreeMap<String, String>> {
        let request = Command::request_with(
            request::GET_KVLIST_BY_NAMESPACE,
            &GetKVListByNamespaceRequest { namespace },
        );
        match self.name_server(request, KvTable::from_json).await {
            Err(Error::Refused {
                code: response::QUERY_NOT_FOUND,
                ..
            }) => Ok(BTreeMap::new()),
            other => Ok(other?.table),
        }
    }

    /// A topic's order configuration, `broker:queues;…`.
    pub async fn order_config(&self, topic: &str) -> Result<Option<String>> {
        self.get_kv(ORDER, topic).await
    }

    /// Sets a topic's order configuration. `whole` replaces it, else the brokers named are merged into it.
    pub async fn set_order_config(&self, topic: &str, value: &str, whole: bool) -> Result<()> {
        if whole {
            return self.put_kv(ORDER, topic, value).await;
        }
        let old = self.order_config(topic).await?.unwrap_or_default();
        self.put_kv(ORDER, topic, &merge_order(&old, value)).await
    }

    /// Removes a topic's order configuration.
    pub async fn delete_order_config(&self, topic: &str) -> Result<()> {
        self.delete_kv(ORDER, topic).await
    }
}

fn merge_order(old: &str, new: &str) -> String {
    let items = old.split(';').chain(new.split(';'));
    let brokers: BTreeMap<&str, &str> = items
        .filter_map(|item| Some((item.split_once(':')?.0, item)))
        .collect();
    brokers.into_values().collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_merged_order_configuration_names_each_broker_once() {
        assert_eq!(super::merge_order("a:1;b:2", "b:4;c:8"), "a:1;b:4;c:8");
        assert_eq!(super::merge_order("", "a:1"), "a:1");
    }
}
