//! Sending: codes 10, 310, 320, 324, 325, 36 (wire spec 4.2).

use super::{EncodedFields, FieldSink, Header, HeaderError, header, header_fields};
use crate::code::request;
use crate::ext_fields::ExtFields;

header! {
    /// Codes 10 and 324 with these names; 310, 320 and 325 with one-letter names
    /// ([`SendMessageRequestV2`], [`SendMessageRequest::decode_for`]).
    pub struct SendMessageRequest<'a> {
        /// Producer group.
        producer_group: &'a str = b"producerGroup",
        /// Topic.
        topic: &'a str = b"topic",
        /// Template for creating the topic, normally `TBW102`.
        default_topic: &'a str = b"defaultTopic",
        /// Queues wanted when the topic is created.
        default_topic_queue_nums: i32 = b"defaultTopicQueueNums",
        /// Negative: the broker picks a write queue.
        queue_id: i32 = b"queueId",
        /// Bits of the message (wire spec 7.5).
        sys_flag: i32 = b"sysFlag",
        /// The sender's clock, ms.
        born_timestamp: i64 = b"bornTimestamp",
        /// The application's flag.
        flag: i32 = b"flag",
        /// Properties text (wire spec 7.3).
        properties: Option<&'a str> = b"properties",
        /// Times consumed before; none is 0.
        reconsume_times: Option<i32> = b"reconsumeTimes",
        /// Unit mode.
        unit_mode: bool = b"unitMode" or false,
        /// Overrides the group's limit on `%RETRY%` topics.
        max_reconsume_times: Option<i32> = b"maxReconsumeTimes",
        /// Whether the body is a batch (wire spec 7.2): this decides, not the code.
        batch: bool = b"batch" or false,
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }

    /// What was stored. On codes 0, 10, 11 and 12; refusals carry [`SendMessageRefusal`].
    pub struct SendMessageResponse<'a> {
        /// Offset message id; those of a batch joined by `,`.
        msg_id: &'a str = b"msgId",
        /// Queue the broker chose or was told.
        queue_id: i32 = b"queueId",
        /// Offset in that queue, of the first message of a batch.
        queue_offset: i64 = b"queueOffset",
        /// Unset by brokers of 4.9.8.
        transaction_id: Option<&'a str> = b"transactionId",
        /// The broker's region, `DefaultRegion`.
        msg_region: Option<&'a str> = b"MSG_REGION",
        /// Whether clients may trace.
        trace_on: Option<bool> = b"TRACE_ON",
    }

    /// The loose fields that an answer to a send carries even when nothing was stored.
    pub struct SendMessageRefusal<'a> {
        /// The broker's region, `DefaultRegion`.
        msg_region: Option<&'a str> = b"MSG_REGION",
        /// Whether clients may trace.
        trace_on: Option<bool> = b"TRACE_ON",
    }

    /// Code 36.
    pub struct ConsumerSendMsgBackRequest<'a> {
        /// Commit-log offset of the message.
        offset: i64 = b"offset",
        /// Consumer group.
        group: &'a str = b"group",
        /// Negative: dead letter; 0: by the times consumed; else that level.
        delay_level: i32 = b"delayLevel",
        /// Id of the first copy of the message.
        origin_msg_id: Option<&'a str> = b"originMsgId",
        /// Topic it was sent to.
        origin_topic: Option<&'a str> = b"originTopic",
        /// Unit mode.
        unit_mode: bool = b"unitMode" or false,
        /// Overrides the group's limit for versions from V3_4_9 on.
        max_reconsume_times: Option<i32> = b"maxReconsumeTimes",
        /// Broker name.
        bname: Option<&'a str> = b"bname",
    }
}

impl<'a> SendMessageRequest<'a> {
    /// From one-letter names (codes 310, 320, 325).
    pub fn decode_v2(ext: &'a ExtFields) -> Result<Self, HeaderError> {
        SendMessageRequestV2::decode(ext).map(|header| header.0)
    }

    /// With the names that `code` uses.
    pub fn decode_for(code: i32, ext: &'a ExtFields) -> Result<Self, HeaderError> {
        match code {
            request::SEND_MESSAGE_V2
            | request::SEND_BATCH_MESSAGE
            | request::SEND_REPLY_MESSAGE_V2 => Self::decode_v2(ext),
            _ => Self::decode(ext),
        }
    }
}

/// [`SendMessageRequest`] under one-letter names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendMessageRequestV2<'a>(pub SendMessageRequest<'a>);

impl<'a> Header<'a> for SendMessageRequestV2<'a> {
    fn decode(ext: &'a ExtFields) -> Result<Self, HeaderError> {
        Ok(Self(header_fields!(@decode ext, SendMessageRequest,
            producer_group: &str = b"a",
            topic: &str = b"b",
            default_topic: &str = b"c",
            default_topic_queue_nums: i32 = b"d",
            queue_id: i32 = b"e",
            sys_flag: i32 = b"f",
            born_timestamp: i64 = b"g",
            flag: i32 = b"h",
            properties: Option<&str> = b"i",
            reconsume_times: Option<i32> = b"j",
            unit_mode: bool = b"k" or false,
            max_reconsume_times: Option<i32> = b"l",
            batch: bool = b"m" or false,
            bname: Option<&str> = b"n",
        )))
    }

    fn write(&self, sink: &mut impl FieldSink) {
        write_before(&self.0, sink);
        header_fields!(@write self.0, sink, born_timestamp = b"g", flag = b"h", properties = b"i",);
        write_after(&self.0, sink);
    }
}

/// The fields before those that each message has of its own.
fn write_before(request: &SendMessageRequest<'_>, sink: &mut impl FieldSink) {
    header_fields!(@write request, sink,
        producer_group = b"a",
        topic = b"b",
        default_topic = b"c",
        default_topic_queue_nums = b"d",
        queue_id = b"e",
        sys_flag = b"f",
    );
}

/// The fields behind them.
fn write_after(request: &SendMessageRequest<'_>, sink: &mut impl FieldSink) {
    header_fields!(@write request, sink,
        reconsume_times = b"j",
        unit_mode = b"k",
        max_reconsume_times = b"l",
        batch = b"m",
        bname = b"n",
    );
}

/// What the sends to one queue have in common, encoded once.
#[derive(Clone, Debug)]
pub struct SendMessageTemplate {
    before: EncodedFields,
    after: EncodedFields,
}

impl SendMessageTemplate {
    /// All fields of `request` but time, flag and properties.
    pub fn new(request: &SendMessageRequest<'_>) -> Self {
        let (mut before, mut after) = (EncodedFields::default(), EncodedFields::default());
        write_before(request, &mut before);
        write_after(request, &mut after);
        Self { before, after }
    }
}

/// A header to write: a template and what it leaves out, together [`SendMessageRequestV2`].
#[derive(Clone, Debug)]
pub struct SendMessageFilled<'a> {
    /// The common part.
    pub template: &'a SendMessageTemplate,
    /// The sender's clock, ms.
    pub born_timestamp: i64,
    /// The application's flag.
    pub flag: i32,
    /// Properties text.
    pub properties: &'a str,
}

impl<'a> Header<'a> for SendMessageFilled<'a> {
    /// It cannot be read: what is common would have to be known.
    fn decode(_: &'a ExtFields) -> Result<Self, HeaderError> {
        Err(HeaderError::Missing { field: "template" })
    }

    fn write(&self, sink: &mut impl FieldSink) {
        sink.put_encoded(&self.template.before);
        header_fields!(@write self, sink, born_timestamp = b"g", flag = b"h", properties = b"i",);
        sink.put_encoded(&self.template.after);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::{SerializeType, encode_request_head};

    #[test]
    fn a_filled_template_is_written_as_the_whole_header() {
        let request = SendMessageRequest {
            producer_group: "gr\"oup",
            topic: "topic",
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: 3,
            sys_flag: 1,
            born_timestamp: 1_700_000_000_000,
            flag: -7,
            properties: Some("WAIT\u{1}true\u{2}a\u{1}\\b\u{2}"),
            reconsume_times: Some(0),
            unit_mode: false,
            max_reconsume_times: Some(5),
            batch: true,
            bname: Some("broker\n"),
        };
        let template = SendMessageTemplate::new(&request);
        let filled = SendMessageFilled {
            template: &template,
            born_timestamp: request.born_timestamp,
            flag: request.flag,
            properties: request.properties.unwrap(),
        };
        let mut fields = ExtFields::new();
        filled.write(&mut fields);
        assert_eq!(
            SendMessageRequest::decode_v2(&fields).as_ref(),
            Ok(&request)
        );
        let whole = SendMessageRequestV2(request);
        for serialize in [SerializeType::Json, SerializeType::Rocketmq] {
            let (mut one, mut other) = (BytesMut::new(), BytesMut::new());
            encode_request_head(&mut one, serialize, 310, 9, &whole, 100);
            encode_request_head(&mut other, serialize, 310, 9, &filled, 100);
            assert_eq!(one, other);
        }
    }
}
