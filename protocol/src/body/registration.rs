//! REGISTER_BROKER (103): the plain and the compressed body (wire spec 6.4, name server spec 5.1).

use super::{
    BodyError, DataVersion, Flavour, TopicConfig, TopicConfigWrapper, TopicFilterType, body,
};
use crate::json;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// What a compressed registration may inflate to, bytes.
pub const MAX_INFLATED_REGISTRATION: usize = 16 * 1024 * 1024;

body! {
    /// The topics and filter servers of a broker, plain form.
    #[derive(Eq)]
    pub struct RegisterBrokerBody: Fastjson, large {
        /// Addresses of the broker's filter servers. `None` only for an explicit null: not sent.
        filter_server_list: Option<Vec<String>> = "filterServerList", default Some(Vec::new());
        /// The topics: all of them, or those that changed.
        topic_config_serialize_wrapper: TopicConfigWrapper = "topicConfigSerializeWrapper";
    }
}

impl RegisterBrokerBody {
    /// Reads the body of a registration by what its header says: `compressed`, and `version` (below 37, that is before
    /// 3.0.11, the body is the topic table alone). No body at all is an empty table.
    pub fn from_registration(
        body: &[u8],
        compressed: bool,
        version: i32,
    ) -> Result<Self, BodyError> {
        let old = version < 37;
        if body.is_empty() {
            let filter_server_list = if old { None } else { Some(Vec::new()) };
            return Ok(RegisterBrokerBody {
                filter_server_list,
                ..RegisterBrokerBody::default()
            });
        }
        if old {
            let topic_config_serialize_wrapper = TopicConfigWrapper::from_json(body)?;
            return Ok(RegisterBrokerBody {
                filter_server_list: None,
                topic_config_serialize_wrapper,
            });
        }
        if compressed {
            Self::from_compressed(body, MAX_INFLATED_REGISTRATION)
        } else {
            Self::from_json(body)
        }
    }

    /// Reads the compressed form. Topic texts may have more than five parts and data may follow (5.x writes both); a
    /// broken filter server list counts as empty, as in the original. Inflates at most `most` bytes.
    pub fn from_compressed(body: &[u8], most: usize) -> Result<Self, BodyError> {
        let mut plain = Vec::new();
        let read = ZlibDecoder::new(body)
            .take(most as u64 + 1)
            .read_to_end(&mut plain);
        read.map_err(|error| BodyError::Registration(format!("zlib: {error}")))?;
        if plain.len() > most {
            return Err(BodyError::Registration(format!(
                "inflates to more than {most} bytes"
            )));
        }
        Self::from_inflated(&plain)
    }

    fn from_inflated(plain: &[u8]) -> Result<Self, BodyError> {
        let mut parts = Parts { rest: plain };
        let data_version = DataVersion::from_json(parts.block("data version")?)?;
        let topics = parts.number("topic count")?;
        let mut wrapper = TopicConfigWrapper {
            data_version,
            ..TopicConfigWrapper::default()
        };
        for _ in 0..topics {
            let topic = topic_from_text(parts.block("topic")?)?;
            wrapper
                .topic_config_table
                .insert(topic.topic_name.clone(), topic);
        }
        let list = parts.block("filter server list")?;
        let list = json::decode::<Vec<String>>(list).unwrap_or_default();
        Ok(RegisterBrokerBody {
            filter_server_list: Some(list),
            topic_config_serialize_wrapper: wrapper,
        })
    }

    /// Writes the compressed form, level 9 as Java. `topicSysFlag` and `order` of the topics are not carried. The
    /// request's `bodyCrc32` covers these bytes.
    pub fn to_compressed(&self) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let _ = encoder.write_all(&self.to_inflated());
        encoder.finish().unwrap_or_default()
    }

    /// The content of the compressed form before it is compressed.
    pub fn to_inflated(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let wrapper = &self.topic_config_serialize_wrapper;
        put_block(&mut out, &wrapper.data_version.to_json(Flavour::Fastjson));
        out.extend_from_slice(&(wrapper.topic_config_table.len() as u32).to_be_bytes());
        for topic in wrapper.topic_config_table.values() {
            put_block(&mut out, topic_text(topic).as_bytes());
        }
        let none = Vec::new();
        let list = self.filter_server_list.as_ref().unwrap_or(&none);
        put_block(&mut out, &json::encode(list, Flavour::Fastjson));
        out
    }
}

fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.extend_from_slice(&(block.len() as u32).to_be_bytes());
    out.extend_from_slice(block);
}

/// `name readQueueNums writeQueueNums perm filterType`.
fn topic_text(topic: &TopicConfig) -> String {
    let TopicConfig {
        topic_name,
        read_queue_nums,
        write_queue_nums,
        perm,
        topic_filter_type,
        ..
    } = topic;
    format!("{topic_name} {read_queue_nums} {write_queue_nums} {perm} {topic_filter_type}")
}

fn topic_from_text(block: &[u8]) -> Result<TopicConfig, BodyError> {
    let text = String::from_utf8_lossy(block);
    let wrong = |what: &str| BodyError::Registration(format!("{what} in the topic text `{text}`"));
    let mut parts = text.split(' ');
    let mut part = |name: &str| parts.next().ok_or_else(|| wrong(&format!("no {name}")));
    let (name, read, write, perm, filter) = (
        part("name")?,
        part("read queues")?,
        part("write queues")?,
        part("perm")?,
        part("filter type")?,
    );
    let number = |text: &str| {
        text.parse()
            .map_err(|_| wrong(&format!("`{text}` is no number")))
    };
    Ok(TopicConfig {
        topic_name: name.to_owned(),
        read_queue_nums: number(read)?,
        write_queue_nums: number(write)?,
        perm: number(perm)?,
        topic_filter_type: TopicFilterType::from_name(filter)
            .ok_or_else(|| wrong("unknown filter type"))?,
        ..TopicConfig::default()
    })
}

/// The parts of the inflated content, front to back.
struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn number(&mut self, what: &str) -> Result<u32, BodyError> {
        let (number, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| ends_before(what))?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*number))
    }

    fn block(&mut self, what: &str) -> Result<&'a [u8], BodyError> {
        let length = self.number(what)? as usize;
        let (block, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| ends_before(what))?;
        self.rest = rest;
        Ok(block)
    }
}

fn ends_before(what: &str) -> BodyError {
    BodyError::Registration(format!("the content ends before the end of the {what}"))
}
