//! Frames made once and stamped for each use, and answers read only as far as needed.

use anyhow::{Context, bail};
use memchr::memmem;
use minimq_protocol::batch::BatchRecord;
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CreateTopicRequest, PullMessageRequest, PullMessageResponse, SendMessageRequest,
    SendMessageRequestV2, SendMessageResponse,
};
use minimq_protocol::message::RecordFields;
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_protocol::{Command, RequestId, SerializeType};

/// Opaques begin here: all have ten digits, so that they can be written over in JSON.
pub const FIRST_OPAQUE: i32 = 1_000_000_000;

/// Offset of the opaque in a frame with a binary header: lengths, code, language, version.
const BINARY_OPAQUE_AT: usize = 13;

/// A frame that differs from use to use in its opaque.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    opaque_at: usize,
    serialize: SerializeType,
    /// Length of its body.
    body_len: usize,
}

impl Template {
    /// From a command; its own opaque does not matter.
    pub fn new(mut command: Command) -> anyhow::Result<Self> {
        command.opaque = FIRST_OPAQUE;
        let bytes = command.to_frame().to_vec();
        let opaque_at = match command.serialize {
            SerializeType::Rocketmq => BINARY_OPAQUE_AT,
            SerializeType::Json => {
                let key = format!("\"opaque\":{FIRST_OPAQUE}");
                let at = memmem::find(&bytes, key.as_bytes()).context("no opaque in the frame")?;
                at + key.len() - 10
            }
        };
        Ok(Self {
            bytes,
            opaque_at,
            serialize: command.serialize,
            body_len: command.body.len(),
        })
    }

    /// Appends the frame with this number as its opaque (the first has number 0).
    pub fn put(&self, number: u32, out: &mut Vec<u8>) {
        let opaque = FIRST_OPAQUE as u32 + number;
        self.put_with(opaque, out);
    }

    /// Appends the frame with an opaque as a request had it.
    pub fn put_with(&self, opaque: u32, out: &mut Vec<u8>) {
        let at = out.len() + self.opaque_at;
        out.extend_from_slice(&self.bytes);
        match self.serialize {
            SerializeType::Rocketmq => {
                if let Some(place) = out.get_mut(at..at + 4) {
                    place.copy_from_slice(&opaque.to_be_bytes());
                }
            }
            SerializeType::Json => {
                let mut left = opaque;
                for digit in out.get_mut(at..at + 10).into_iter().flatten().rev() {
                    *digit = b'0' + (left % 10) as u8;
                    left /= 10;
                }
            }
        }
    }

    /// As [`put`](Self::put), with eight bytes at the body's begin.
    pub fn put_stamped(&self, number: u32, stamp: u64, out: &mut Vec<u8>) {
        self.put(number, out);
        let body = out.len() - self.body_len;
        if let Some(place) = out.get_mut(body..body + 8) {
            place.copy_from_slice(&stamp.to_be_bytes());
        }
    }

    /// Length of a frame.
    pub fn frame_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Makes the requests of a run.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    /// How headers are written.
    pub serialize: SerializeType,
    /// Queues of a topic.
    pub queues: u16,
    /// Bytes of a body.
    pub size: usize,
}

impl Requests {
    /// Sends one message, or a batch of several.
    pub fn send(&self, topic: &str, queue_id: i32, batch: u32) -> anyhow::Result<Command> {
        let body = vec![b'x'; self.size];
        let header = SendMessageRequest {
            producer_group: "BenchProducer",
            topic,
            default_topic: "TBW102",
            default_topic_queue_nums: i32::from(self.queues),
            queue_id,
            born_timestamp: 1_700_000_000_000,
            properties: Some("UNIQ_KEY\u{1}7F0000010A2B00000000000000000000\u{2}WAIT\u{1}true"),
            reconsume_times: Some(0),
            batch: batch > 1,
            ..SendMessageRequest::default()
        };
        let (code, body) = if batch > 1 {
            let record = BatchRecord {
                flag: 0,
                body: &body,
                properties: b"UNIQ_KEY\x017F0000010A2B00000000000000000000",
            };
            let mut all = Vec::new();
            for _ in 0..batch {
                record.encode(&mut all)?;
            }
            (request::SEND_BATCH_MESSAGE, all)
        } else {
            (request::SEND_MESSAGE_V2, body)
        };
        let header = SendMessageRequestV2(header);
        Ok(Command::request_with(code, &header)
            .with_body(body)
            .with_serialize(self.serialize))
    }

    /// Pulls from an offset on; `suspend_ms` lets it wait for messages.
    pub fn pull(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        max: u16,
        suspend_ms: Option<i64>,
    ) -> Command {
        let suspend = suspend_ms.map_or(0, |_| pull_flag::SUSPEND);
        let header = PullMessageRequest {
            consumer_group: "BenchConsumer",
            topic,
            queue_id,
            queue_offset: offset,
            max_msg_nums: i32::from(max),
            sys_flag: pull_flag::SUBSCRIPTION | suspend,
            suspend_timeout_millis: suspend_ms.unwrap_or(0),
            subscription: Some("*"),
            ..PullMessageRequest::default()
        };
        Command::request_with(request::PULL_MESSAGE, &header).with_serialize(self.serialize)
    }

    /// Creates a topic.
    pub fn create_topic(&self, topic: &str) -> Command {
        let queues = i32::from(self.queues);
        let header = CreateTopicRequest {
            topic,
            default_topic: "TBW102",
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            topic_filter_type: "SINGLE_TAG",
            ..CreateTopicRequest::default()
        };
        Command::request_with(request::UPDATE_AND_CREATE_TOPIC, &header)
            .with_serialize(self.serialize)
    }
}

/// What the yardstick answers sends with.
pub fn send_answer(serialize: SerializeType) -> anyhow::Result<Template> {
    let header = SendMessageResponse {
        msg_id: "7F00000100002A9F0000000000000000",
        queue_id: 0,
        queue_offset: 123_456,
        transaction_id: None,
        msg_region: Some("DefaultRegion"),
        trace_on: Some(true),
    };
    Template::new(answer(serialize).with_header(&header))
}

/// What the yardstick answers pulls with: 32 messages of that body length.
pub fn pull_answer(serialize: SerializeType, body_len: usize) -> anyhow::Result<Template> {
    let header = PullMessageResponse {
        suggest_which_broker_id: 0,
        next_begin_offset: 32,
        min_offset: 0,
        max_offset: 1_000_000,
    };
    let body = vec![b'x'; body_len];
    let host = std::net::SocketAddr::from(([127, 0, 0, 1], 10911));
    let record = RecordFields {
        topic: "Bench",
        queue_id: 0,
        flag: 0,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: 0,
        born_timestamp: 0,
        born_host: host,
        store_timestamp: 0,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: 0,
        body: &body,
        properties: b"UNIQ_KEY\x017F0000010A2B00000000000000000000\x02CLUSTER\x01C1\x02",
        appended_properties: b"",
    };
    let mut one = vec![0; record.encoded_len()];
    record.encode_into(&mut one)?;
    Template::new(
        answer(serialize)
            .with_header(&header)
            .with_body(one.repeat(32)),
    )
}

fn answer(serialize: SerializeType) -> Command {
    let id = RequestId {
        opaque: FIRST_OPAQUE,
        serialize,
        oneway: false,
    };
    Command::response(id, 0)
}

/// What is looked at of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance<'f> {
    /// Request or response code.
    pub code: i32,
    /// The opaque.
    pub opaque: u32,
    /// How its header is written.
    pub serialize: SerializeType,
    /// The body.
    pub body: &'f [u8],
}

/// Code, opaque and body of a whole frame, found without reading the rest.
pub fn glance(frame: &[u8]) -> anyhow::Result<Glance<'_>> {
    let [_, _, _, _, kind, a, b, c, rest @ ..] = frame else {
        bail!("a frame of {} bytes", frame.len());
    };
    let header_len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    let (Some(header), Some(body)) = (rest.get(..header_len), rest.get(header_len..)) else {
        bail!("a header longer than its frame");
    };
    let serialize = SerializeType::from_byte(*kind).context("a header of unknown kind")?;
    let (code, opaque) = match serialize {
        SerializeType::Rocketmq => {
            let [c0, c1, _, _, _, o0, o1, o2, o3, ..] = header else {
                bail!("a binary header of {header_len} bytes");
            };
            let code = i32::from(i16::from_be_bytes([*c0, *c1]));
            (code, u32::from_be_bytes([*o0, *o1, *o2, *o3]))
        }
        SerializeType::Json => {
            let code = number_behind(header, b"\"code\":").context("no code in a header")?;
            let opaque = number_behind(header, b"\"opaque\":").context("no opaque in a header")?;
            (code as i32, opaque as u32)
        }
    };
    Ok(Glance {
        code,
        opaque,
        serialize,
        body,
    })
}

fn number_behind(text: &[u8], key: &[u8]) -> Option<i64> {
    let at = memmem::find(text, key)? + key.len();
    let rest = text.get(at..)?;
    let (negative, digits) = match rest.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, rest),
    };
    let mut number = 0_i64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        number = number
            .checked_mul(10)?
            .checked_add(i64::from(digit - b'0'))?;
    }
    Some(if negative { -number } else { number })
}

/// Messages of a pull's body: the records say their sizes.
pub fn count_records(mut body: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(size) = body.first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        match body.get(size.max(4)..) {
            Some(rest) => body = rest,
            None => break,
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use minimq_protocol::frame;
    use minimq_protocol::message::split_records;

    const BOTH: [SerializeType; 2] = [SerializeType::Json, SerializeType::Rocketmq];

    fn requests(serialize: SerializeType) -> Requests {
        Requests {
            serialize,
            queues: 4,
            size: 100,
        }
    }

    #[test]
    fn stamped_frames_are_frames_with_that_opaque() {
        for serialize in BOTH {
            let requests = requests(serialize);
            let send = requests.send("T", 3, 1).unwrap();
            let template = Template::new(send.clone()).unwrap();
            let mut out = b"before".to_vec();
            template.put_stamped(77, 0x0102_0304_0506_0708, &mut out);
            let parsed = frame::parse(Bytes::copy_from_slice(&out[6..])).unwrap();
            assert_eq!(parsed.opaque, FIRST_OPAQUE + 77);
            assert_eq!(parsed.code, send.code);
            assert!(parsed.ext.iter().eq(send.ext.iter()));
            assert_eq!(parsed.body[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(parsed.body[8..], send.body[8..]);
            let glance = glance(&out[6..]).unwrap();
            assert_eq!(glance.opaque, parsed.opaque as u32);
            assert_eq!((glance.code, glance.serialize), (send.code, serialize));
            assert_eq!(glance.body, &parsed.body[..]);
        }
    }

    #[test]
    fn a_batch_holds_its_messages() {
        let send = requests(SerializeType::Json).send("T", 0, 5).unwrap();
        assert_eq!(send.code, request::SEND_BATCH_MESSAGE);
        let records = minimq_protocol::batch::records(&send.body);
        assert_eq!(
            records
                .filter(|r| r.as_ref().unwrap().body.len() == 100)
                .count(),
            5
        );
    }

    #[test]
    fn the_yardsticks_answers_are_answers() {
        for serialize in BOTH {
            let mut out = Vec::new();
            send_answer(serialize)
                .unwrap()
                .put_with(FIRST_OPAQUE as u32 + 5, &mut out);
            let sent = frame::parse(Bytes::copy_from_slice(&out)).unwrap();
            assert!(sent.is_response() && sent.header::<SendMessageResponse<'_>>().is_ok());
            out.clear();
            pull_answer(serialize, 1024)
                .unwrap()
                .put_with(FIRST_OPAQUE as u32 + 5, &mut out);
            assert_eq!(count_records(glance(&out).unwrap().body), 32);
            let pulled = frame::parse(Bytes::from(out)).unwrap();
            assert_eq!(pulled.opaque, FIRST_OPAQUE + 5);
            let bodies = split_records(pulled.body).map(|r| r.unwrap().body().len());
            assert!(bodies.eq(std::iter::repeat_n(1024, 32)));
        }
    }

    #[test]
    fn damaged_frames_are_errors_and_counts_end() {
        for bytes in [
            &b""[..],
            b"\0\0\0\x08\0\0\0\x09",
            b"\0\0\0\x04\x01\0\0\0",
            b"\0\0\0\x06\0\0\0\x02{}",
        ] {
            assert!(glance(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(count_records(&[0, 0, 0, 0, 0, 0, 0, 9]), 1);
        assert_eq!(count_records(&[0, 0]), 0);
    }
}
