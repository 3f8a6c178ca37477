//! Decoding a V2 send and encoding its answer allocates nothing per message: the frame is given as a slice of the read
//! buffer, the answer goes into a buffer that is used again.

use bytes::{Bytes, BytesMut};
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{SendMessageRequest, SendMessageRequestV2, SendMessageResponse};
use minimq_protocol::{Command, SerializeType, encode_answer_head};

const MESSAGES: usize = 1_000;

/// As a Java client sends it: properties with separators, which JSON has to escape; signed.
fn sends(serialize: SerializeType) -> Bytes {
    let mut buffer = BytesMut::new();
    for number in 0..MESSAGES {
        let properties = format!(
            "KEYS\u{1}order-{number}\u{2}UNIQ_KEY\u{1}7F0000010A2B18B4AAC200000000{number:04X}\u{2}\
             CLUSTER\u{1}DefaultCluster\u{2}TAGS\u{1}TagA\u{2}path\u{1}C:\\temp \"x\" Käse"
        );
        let header = SendMessageRequestV2(SendMessageRequest {
            producer_group: "please_rename_unique_group_name",
            topic: "TopicTest",
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: (number % 4) as i32,
            born_timestamp: 1_795_995_315_131,
            properties: Some(&properties),
            reconsume_times: Some(0),
            bname: Some("broker-a"),
            ..SendMessageRequest::default()
        });
        let mut command = Command::request_with(request::SEND_MESSAGE_V2, &header)
            .with_ext("AccessKey", "GoldUserAK")
            .with_ext("Signature", "kEDxR0ECu3H2C7uAx3A6spO+Bqo=")
            .with_serialize(serialize)
            .with_body(vec![b'x'; 128]);
        command.opaque = number as i32;
        command.encode(&mut buffer);
    }
    buffer.freeze()
}

/// What a broker does with each frame of a read, without the store. Returns the bytes of all answers.
fn serve(mut read: Bytes, answers: &mut BytesMut) -> usize {
    let mut written = 0;
    while let Check::Whole { len } = frame::check(&read, MAX_FRAME_LEN).expect("good frames") {
        let command = frame::parse(read.split_to(len)).expect("a good frame");
        let header =
            SendMessageRequest::decode_for(command.code, &command.ext).expect("a whole header");
        assert!(
            header
                .properties
                .is_some_and(|text| text.contains("\u{1}C:\\temp \"x\" Käse"))
        );
        assert_eq!(command.body.len(), 128);
        answers.clear();
        let answer = SendMessageResponse {
            msg_id: "7F00000100002A9F0000000000000000",
            queue_id: header.queue_id,
            queue_offset: i64::from(command.opaque),
            transaction_id: None,
            msg_region: Some("DefaultRegion"),
            trace_on: Some(true),
        };
        encode_answer_head(
            answers,
            command.serialize,
            command.opaque,
            response::SUCCESS,
            None,
            Some(&answer),
            0,
        );
        written += answers.len();
    }
    assert!(read.is_empty());
    written
}

#[test]
fn decoding_a_v2_send_and_encoding_its_answer_allocates_nothing() {
    for serialize in [SerializeType::Json, SerializeType::Rocketmq] {
        let read = sends(serialize);
        // A slice of a read buffer: its reference count exists.
        let _held = read.clone();
        let mut answers = BytesMut::with_capacity(1024);
        // The thread's spare buffer for escaped text grows to what it needs.
        serve(read.clone(), &mut answers);

        let mut written = 0;
        let counted = allocation_counter::measure(|| written = serve(read, &mut answers));
        assert_eq!(
            counted.count_total,
            0,
            "{} allocated for {MESSAGES} messages: {counted:?}",
            serialize.name()
        );
        assert!(written > MESSAGES * 100, "{written} bytes of answers");
    }
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 10])));
    assert_eq!(counted.count_total, 1);
}
