//! [`Message`]: what a producer sends.

use std::borrow::Cow;

use bytes::Bytes;
use minimq_protocol::name as names;
use minimq_protocol::properties::{MAX_PROPERTIES_LEN, PropertiesBuf, check_user_property, name};

use crate::error::{Error, Result};

/// A message to be sent. It is given by value and never changed by sending.
///
/// ```
/// use minimq_client::Message;
/// let message = Message::new("orders", "hello").tag("new").key("order-17").property("price", "12");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub(crate) topic: String,
    pub(crate) body: Bytes,
    pub(crate) flag: i32,
    tag: Option<String>,
    keys: String,
    delay_level: i32,
    no_wait: bool,
    user: Vec<(String, String)>,
    /// Reserved names, set by this library.
    pub(crate) reserved: Vec<(&'static str, String)>,
}

impl Message {
    /// A message to `topic`. The body must not be empty.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            body: body.into(),
            ..Self::default()
        }
    }

    /// Sets the tag, by which consumers can filter.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a key, by which the message can be looked up. It must not hold blanks, which separate keys.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        if !self.keys.is_empty() {
            self.keys.push(' ');
        }
        self.keys.push_str(key.as_ref());
        self
    }

    /// Sets a property of the application's own. Reserved names are refused when the message is sent.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.user.retain(|(known, _)| *known != name);
        self.user.push((name, value.into()));
        self
    }

    /// Delivers it later: levels 1 to 18 are by default 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h; 0 is at once.
    pub fn delay_level(mut self, level: i32) -> Self {
        self.delay_level = level;
        self
    }

    /// A number for the application.
    pub fn flag(mut self, flag: i32) -> Self {
        self.flag = flag;
        self
    }

    /// Does not wait for flush and replication, even if the broker is configured to.
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.delay_level > 0
    }

    /// Delayed ones and those to retry topics go alone.
    pub(crate) fn may_be_batched(&self) -> bool {
        !self.is_delayed() && !self.topic.starts_with(names::RETRY_PREFIX)
    }

    pub(crate) fn waits(&self) -> bool {
        !self.no_wait
    }

    pub(crate) fn without_delay(mut self) -> Self {
        self.delay_level = 0;
        self
    }

    pub(crate) fn reserve(&mut self, name: &'static str, value: impl Into<String>) {
        self.reserved.retain(|(known, _)| *known != name);
        self.reserved.push((name, value.into()));
    }

    /// Is it what most are: nothing but what the application itself has put into it?
    pub(crate) fn is_usual(&self) -> bool {
        self.reserved.is_empty()
    }

    pub(crate) fn reserved(&self, name: &str) -> Option<&str> {
        let found = self.reserved.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Checks it against the rules of the wire (client spec 3.2).
    pub(crate) fn check(&self, max_size: usize) -> Result<()> {
        names::check_topic(&self.topic)?;
        self.check_content(max_size)
    }

    /// As [`check`](Self::check), all but the topic.
    pub(crate) fn check_content(&self, max_size: usize) -> Result<()> {
        let refuse = |reason: Cow<'static, str>| {
            Err(Error::Message {
                topic: self.topic.clone(),
                reason: reason.into_owned(),
            })
        };
        if self.body.is_empty() {
            return refuse("the body is empty".into());
        }
        if self.body.len() > max_size {
            return refuse(
                format!(
                    "the body has {} bytes, at most {max_size} are allowed",
                    self.body.len()
                )
                .into(),
            );
        }
        for (name, value) in &self.user {
            if let Err(error) = check_user_property(name, value) {
                return refuse(error.to_string().into());
            }
        }
        let tag = self.tag.as_deref().unwrap_or_default();
        if [tag, &self.keys]
            .iter()
            .any(|text| text.contains(['\u{1}', '\u{2}']))
        {
            return refuse("tag and keys must not hold the characters 1 and 2".into());
        }
        Ok(())
    }

    /// Gives each of its properties but the unique key to `visit`, in their order.
    fn each_property(&self, mut visit: impl FnMut(&str, &str)) {
        for (name, value) in &self.user {
            visit(name, value);
        }
        if let Some(tag) = self.tag.as_deref().filter(|tag| !tag.is_empty()) {
            visit(name::TAGS, tag);
        }
        if !self.keys.is_empty() {
            visit(name::KEYS, &self.keys);
        }
        if self.delay_level > 0 {
            visit(name::DELAY, &self.delay_level.to_string());
        }
        for (name, value) in &self.reserved {
            visit(name, value);
        }
        visit(name::WAIT, if self.no_wait { "false" } else { "true" });
    }

    /// Length of its properties text with an empty unique key; the text itself is not made.
    pub(crate) fn properties_len(&self) -> usize {
        let mut len = name::UNIQ_KEY.len() + 2;
        self.each_property(|name, value| len += name.len() + value.len() + 2);
        len
    }

    /// Its properties text, with the unique key. Fails if the text is longer than a record can hold.
    pub(crate) fn properties(&self, unique_key: &str) -> Result<PropertiesBuf> {
        let mut text = PropertiesBuf::new();
        self.put_properties(&mut text, unique_key)?;
        Ok(text)
    }

    /// As [`properties`](Self::properties), into `text`.
    pub(crate) fn put_properties(&self, text: &mut PropertiesBuf, unique_key: &str) -> Result<()> {
        self.each_property(|name, value| {
            text.push(name, value);
        });
        text.push(name::UNIQ_KEY, unique_key);
        let len = text.as_str().len();
        if len > MAX_PROPERTIES_LEN {
            return Err(Error::Message {
                topic: self.topic.clone(),
                reason: format!(
                    "its properties have {len} bytes, at most {MAX_PROPERTIES_LEN} are allowed"
                ),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_messages_are_refused_before_they_are_sent() {
        let refused = |message: Message| message.check(10).is_err();
        assert!(refused(Message::new("t", "")));
        assert!(refused(Message::new("t", vec![0; 11])));
        assert!(refused(Message::new("", "x")));
        assert!(refused(Message::new("a b", "x")));
        assert!(refused(Message::new("t", "x").property("TAGS", "x")));
        assert!(refused(Message::new("t", "x").property("a", "\u{1}")));
        assert!(refused(Message::new("t", "x").tag("\u{2}")));
        assert!(!refused(
            Message::new("t", "x").tag("a").key("k").property("a", "b")
        ));
    }

    #[test]
    fn properties_hold_everything_once() {
        let text = Message::new("t", "x")
            .tag("a")
            .key("k1")
            .key("k2")
            .property("p", "1")
            .property("p", "2")
            .delay_level(3);
        let text = text.properties("ID").unwrap();
        let text = text.properties();
        assert_eq!(text.get("KEYS"), Some("k1 k2"));
        assert_eq!(text.iter().filter(|(name, _)| *name == "p").count(), 1);
        assert_eq!(text.get("p"), Some("2"));
        assert_eq!(text.get("DELAY"), Some("3"));
        assert_eq!(
            (text.get("WAIT"), text.get("UNIQ_KEY")),
            (Some("true"), Some("ID"))
        );
        let long = Message::new("t", "x").property("p", "v".repeat(40_000));
        assert!(long.properties("ID").is_err());
    }
}
