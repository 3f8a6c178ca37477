//! Filters of a subscription, and how WASM filters get to the filter servers (client spec 4.3, 6).

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use minimq_protocol::Command;
use minimq_protocol::body::SubscriptionData;
use minimq_protocol::code::request;
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::RegisterMessageFilterClassRequest;
use minimq_protocol::subscription::TagExpression;
use std::time::Duration;

use crate::core::{Core, now_ms};
use crate::error::{Error, Result};

/// Time for one upload: the server compiles meanwhile.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Which messages of a topic a consumer wants. All members of a group must want the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Tags(String),
    Sql(String),
    Wasm { name: String, module: Bytes },
}

impl Filter {
    /// Every message.
    pub fn all() -> Self {
        Self::tags("*")
    }

    /// Messages with one of the tags, `a || b`.
    pub fn tags(expression: impl Into<String>) -> Self {
        Self {
            kind: Kind::Tags(expression.into()),
        }
    }

    /// Messages whose properties satisfy an SQL92 expression, as `price > 10 AND region = 'eu'`. The broker evaluates it and
    /// must be configured to.
    pub fn sql(expression: impl Into<String>) -> Self {
        Self {
            kind: Kind::Sql(expression.into()),
        }
    }

    /// Messages that a WebAssembly module keeps; it runs on the filter servers beside the brokers.
    pub fn wasm(module: impl Into<Bytes>) -> Self {
        let module = module.into();
        let name = format!("minimq.wasm.x{:08x}x{}", body_crc(&module), module.len());
        Self {
            kind: Kind::Wasm { name, module },
        }
    }

    /// As [`wasm`](Self::wasm), from a file in binary or text form.
    pub fn wasm_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let module = std::fs::read(path).map_err(|source| {
            Error::io(format!("reading the filter {}", path.display()), source)
        })?;
        Ok(Self::wasm(module))
    }

    /// Gives a WASM filter another name than that made from its content. The module can ask for it.
    pub fn named(mut self, class_name: impl Into<String>) -> Self {
        if let Kind::Wasm { name, .. } = &mut self.kind {
            *name = class_name.into();
        }
        self
    }
}

impl From<&str> for Filter {
    /// A tag expression.
    fn from(expression: &str) -> Self {
        Self::tags(expression)
    }
}

/// A topic and what is wanted of it.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: String,
    filter: Filter,
    tags: TagExpression,
    version: AtomicI64,
}

impl Subscription {
    pub(crate) fn new(topic: String, filter: Filter) -> Result<Self> {
        let text = match &filter.kind {
            Kind::Tags(text) => Some(text.as_str()),
            _ => None,
        };
        let tags = TagExpression::parse(text)
            .map_err(|error| Error::invalid("tag expression", error.to_string()))?;
        match &filter.kind {
            Kind::Sql(text) if text.trim().is_empty() => {
                return Err(Error::invalid("SQL expression", "it is empty"));
            }
            Kind::Wasm { module, .. } if module.is_empty() => {
                return Err(Error::invalid("WASM filter", "the module is empty"));
            }
            Kind::Wasm { name, .. } if name.trim().is_empty() => {
                return Err(Error::invalid("WASM filter", "the name is empty"));
            }
            _ => {}
        }
        Ok(Self {
            topic,
            filter,
            tags,
            version: AtomicI64::new(now_ms()),
        })
    }

    /// The queues of the topic changed hands: brokers are to notice.
    pub(crate) fn bump(&self) {
        self.version.fetch_max(now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn version(&self) -> i64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn is_class_filter(&self) -> bool {
        matches!(self.filter.kind, Kind::Wasm { .. })
    }

    pub(crate) fn is_sql(&self) -> bool {
        matches!(self.filter.kind, Kind::Sql(_))
    }

    /// `TAG` or `SQL92`.
    pub(crate) fn expression_type(&self) -> &'static str {
        if self.is_sql() { "SQL92" } else { "TAG" }
    }

    /// The expression, or the class name.
    pub(crate) fn expression(&self) -> &str {
        match &self.filter.kind {
            Kind::Tags(_) => &self.tags.text,
            Kind::Sql(text) => text,
            Kind::Wasm { name, .. } => name,
        }
    }

    /// The consumer's own test: brokers compare only hashes of tags.
    pub(crate) fn takes(&self, tag: Option<&str>) -> bool {
        self.tags.matches(tag)
    }

    pub(crate) fn data(&self) -> SubscriptionData {
        SubscriptionData {
            class_filter_mode: self.is_class_filter(),
            code_set: self.tags.codes.clone(),
            expression_type: self.expression_type().to_owned(),
            sub_string: self.expression().to_owned(),
            sub_version: self.version(),
            tags_set: self.tags.tags.clone(),
            topic: self.topic.clone(),
        }
    }

    pub(crate) fn upload(&self, group: &str) -> Option<Upload> {
        match &self.filter.kind {
            Kind::Wasm { name, module } => Some(Upload {
                group: group.to_owned(),
                topic: self.topic.clone(),
                name: name.clone(),
                module: module.clone(),
            }),
            _ => None,
        }
    }
}

/// A filter on its way to filter servers.
#[derive(Debug, Clone)]
pub(crate) struct Upload {
    group: String,
    topic: String,
    name: String,
    module: Bytes,
}

impl Upload {
    /// To every filter server of the topic's route. Failures are logged; the next heartbeat tries again.
    pub(crate) async fn to_all(&self, core: &Core) {
        let Some(route) = core.routes.get(&self.topic) else {
            return;
        };
        let mut servers: Vec<&String> = route.data.filter_server_table.values().flatten().collect();
        servers.sort_unstable();
        servers.dedup();
        join_all(servers.into_iter().map(|addr| async move {
            if let Err(error) = self.to(core, addr).await {
                tracing::warn!(%addr, topic = self.topic, filter = self.name, %error, "the filter was not taken");
            }
        }))
        .await;
    }

    /// To one filter server.
    pub(crate) async fn to(&self, core: &Core, addr: &str) -> Result<()> {
        core.call(addr, self.request(), UPLOAD_TIMEOUT)
            .await
            .map(drop)
    }

    fn request(&self) -> Command {
        let header = RegisterMessageFilterClassRequest {
            consumer_group: &self.group,
            topic: &self.topic,
            class_name: &self.name,
            class_crc: body_crc(&self.module),
        };
        Command::request_with(request::REGISTER_MESSAGE_FILTER_CLASS, &header)
            .with_body(self.module.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_sent_with_their_hashes() {
        let data = Subscription::new("t".into(), Filter::tags("a || b ||a"))
            .unwrap()
            .data();
        assert_eq!(
            (data.sub_string.as_str(), data.tags_set),
            ("a || b ||a", vec!["a".into(), "b".into()])
        );
        assert_eq!(data.code_set, [97, 98]);
        assert!(!data.class_filter_mode);
        assert!(Subscription::new("t".into(), Filter::tags("||")).is_err());
    }

    #[test]
    fn sql_and_wasm_carry_no_tags() {
        let sql = Subscription::new("t".into(), Filter::sql("a > 1")).unwrap();
        assert_eq!(
            (sql.expression_type(), sql.expression()),
            ("SQL92", "a > 1")
        );
        assert!(sql.takes(None));
        let wasm = Subscription::new("t".into(), Filter::wasm("(module)").named("a.B")).unwrap();
        let data = wasm.data();
        assert!(data.class_filter_mode && data.tags_set.is_empty());
        assert_eq!(
            (data.sub_string.as_str(), data.expression_type.as_str()),
            ("a.B", "TAG")
        );
        assert!(Subscription::new("t".into(), Filter::wasm("")).is_err());
    }

    #[test]
    fn an_upload_names_group_topic_class_and_checksum() {
        let wasm = Subscription::new("t".into(), Filter::wasm("(module)").named("a.B")).unwrap();
        let request = wasm.upload("g").unwrap().request();
        let get = |key| request.ext.get(key).unwrap();
        assert_eq!(
            (get("consumerGroup"), get("topic"), get("className")),
            ("g", "t", "a.B")
        );
        assert_eq!(get("classCRC"), body_crc(b"(module)").to_string());
        assert_eq!(&*request.body, b"(module)");
    }
}
