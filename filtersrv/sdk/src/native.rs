//! Messages that a unit test makes up, off the WebAssembly target.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::{
    BORN_HOST, CLASS_NAME, Error, GROUP, KEYS, Level, MESSAGE_ID, OFFSET_MESSAGE_ID, STORE_HOST,
    TAGS, TOPIC,
};

/// A message for a unit test: begin with [`Message::new`], add what the filter looks at.
#[derive(Debug, Default)]
pub struct Message {
    topic: String,
    group: String,
    class_name: String,
    properties: Vec<(String, String)>,
    body: Vec<u8>,
    numbers: [i64; 13],
    logged: RefCell<Vec<(Level, String)>>,
}

impl Message {
    /// A message of a topic, without properties and body.
    pub fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_string(),
            ..Self::default()
        }
    }

    /// Adds a property; `TAGS`, `KEYS` and `UNIQ_KEY` are those of RocketMQ.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_string(), value.to_string()));
        self
    }

    /// Sets the body, as if stored uncompressed.
    #[must_use]
    pub fn with_body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Sets the consumer group.
    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        self.group = group.to_string();
        self
    }

    /// Sets the class name of the subscription.
    #[must_use]
    pub fn with_class_name(mut self, name: &str) -> Self {
        self.class_name = name.to_string();
        self
    }

    /// Sets a number by its selector of ABI 1 (0 queue id, 1 queue offset, 2 physical offset, 3 born ms,
    /// 4 stored ms, 5 flag, 6 sys flag, 7 reconsume times, 10 body CRC, 11 prepared offset, 12 record size).
    ///
    /// # Panics
    /// When the selector is not one of these.
    #[must_use]
    pub fn with_number(mut self, which: usize, value: i64) -> Self {
        self.numbers[which] = value;
        self
    }

    /// The lines the filter has logged.
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.logged.borrow().clone()
    }

    /// A property's text; the last of several wins.
    pub fn property(&self, name: &str) -> Option<String> {
        self.properties
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    }

    /// A property as a whole number.
    pub fn property_i64(&self, name: &str) -> Result<i64, Error> {
        self.parsed(name)
    }

    /// A property as a number.
    pub fn property_f64(&self, name: &str) -> Result<f64, Error> {
        self.parsed(name)
    }

    fn parsed<T: core::str::FromStr>(&self, name: &str) -> Result<T, Error> {
        let text = self.property(name).ok_or(Error::Absent)?;
        text.trim().parse().map_err(|_| Error::NotANumber)
    }

    pub(crate) fn property_name(&self, index: i32) -> Option<String> {
        self.properties
            .get(index as usize)
            .map(|(name, _)| name.clone())
    }

    pub(crate) fn text(&self, which: i32) -> Result<String, Error> {
        let offset_id = || {
            Ok(format!(
                "{:0>16}{:016X}",
                "7F00000100002A9F", self.numbers[2]
            ))
        };
        match which {
            TOPIC => Ok(self.topic.clone()),
            GROUP => Ok(self.group.clone()),
            CLASS_NAME => Ok(self.class_name.clone()),
            TAGS => self.property("TAGS").ok_or(Error::Absent),
            KEYS => self.property("KEYS").ok_or(Error::Absent),
            MESSAGE_ID => self.property("UNIQ_KEY").map_or_else(offset_id, Ok),
            OFFSET_MESSAGE_ID => offset_id(),
            BORN_HOST | STORE_HOST => Ok("127.0.0.1:10911".to_string()),
            _ => Err(Error::Unsupported),
        }
    }

    pub(crate) fn number(&self, which: i32) -> Result<i64, Error> {
        match which {
            8 | 9 => Ok(self.body.len() as i64),
            _ => self
                .numbers
                .get(which as usize)
                .copied()
                .ok_or(Error::Unsupported),
        }
    }

    /// Copies the body from byte `from` on into `out`; gives the bytes copied.
    pub fn read_body(&self, from: usize, out: &mut [u8]) -> Result<usize, Error> {
        let rest = self.body.get(from..).unwrap_or_default();
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    /// Keeps the line for [`Message::logged`].
    pub fn log(&self, level: Level, line: &str) {
        self.logged.borrow_mut().push((level, line.to_string()));
    }
}
