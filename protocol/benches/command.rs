//! Frames, both header encodings, the typed header of a V2 send, and answers. Run: `cargo bench -p minimq-protocol`.

use bytes::{Bytes, BytesMut};
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use minimq_protocol::code::{request, response};
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::header::{
    PullMessageRequest, PullMessageResponse, SendMessageRequest, SendMessageRequestV2,
    SendMessageResponse,
};
use minimq_protocol::{Command, SerializeType, encode_answer_head};

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

const ENCODINGS: [SerializeType; 2] = [SerializeType::Json, SerializeType::Rocketmq];

fn main() {
    divan::main();
}

/// What the Java client sends for a message of 128 bytes with a tag and a key.
fn send(serialize: SerializeType) -> Command {
    let properties = "KEYS\u{1}order-1\u{2}UNIQ_KEY\u{1}7F0000010A2B18B4AAC2000000000001\u{2}\
        WAIT\u{1}true\u{2}TAGS\u{1}TagA";
    let header = SendMessageRequestV2(SendMessageRequest {
        producer_group: "please_rename_unique_group_name",
        topic: "TopicTest",
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 3,
        born_timestamp: 1_795_995_315_131,
        properties: Some(properties),
        reconsume_times: Some(0),
        bname: Some("broker-a"),
        ..SendMessageRequest::default()
    });
    Command::request_with(request::SEND_MESSAGE_V2, &header)
        .with_serialize(serialize)
        .with_body(vec![b'x'; 128])
}

fn pull(serialize: SerializeType) -> Command {
    let header = PullMessageRequest {
        consumer_group: "please_rename_unique_group_name",
        topic: "TopicTest",
        queue_id: 3,
        queue_offset: 123_456,
        max_msg_nums: 32,
        sys_flag: 3,
        suspend_timeout_millis: 15_000,
        subscription: Some("*"),
        sub_version: 1_795_995_315_131,
        expression_type: Some("TAG"),
        bname: Some("broker-a"),
        ..PullMessageRequest::default()
    };
    Command::request_with(request::PULL_MESSAGE, &header).with_serialize(serialize)
}

/// A frame as the transport has it: its reference count exists already.
fn shared(frame: &Command) -> Bytes {
    let frame = frame.to_frame();
    drop(frame.clone());
    frame
}

fn send_answer() -> SendMessageResponse<'static> {
    SendMessageResponse {
        msg_id: black_box("7F00000100002A9F0000000000000000"),
        queue_id: 3,
        queue_offset: black_box(123_456),
        transaction_id: None,
        msg_region: Some("DefaultRegion"),
        trace_on: Some(true),
    }
}

fn check_and_parse(bencher: Bencher<'_, '_>, command: &Command) {
    let frame = shared(command);
    bencher
        .counter(ItemsCount::new(1_u32))
        .counter(BytesCount::new(frame.len()))
        .bench(|| match frame::check(black_box(&frame), MAX_FRAME_LEN) {
            Ok(Check::Whole { .. }) => black_box(frame::parse(frame.clone())).is_ok(),
            other => panic!("{other:?}"),
        });
}

#[divan::bench(args = ENCODINGS)]
fn check_and_parse_v2_send(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    check_and_parse(bencher, &send(serialize));
}

#[divan::bench(args = ENCODINGS)]
fn check_and_parse_pull(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    check_and_parse(bencher, &pull(serialize));
}

#[divan::bench(args = ENCODINGS)]
fn decode_v2_send_header(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let command = frame::parse(shared(&send(serialize))).expect("a good frame");
    bencher
        .counter(ItemsCount::new(1_u32))
        .bench(|| black_box(SendMessageRequest::decode_v2(black_box(&command.ext))).is_ok());
}

#[divan::bench(args = ENCODINGS)]
fn decode_pull_header(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let command = frame::parse(shared(&pull(serialize))).expect("a good frame");
    bencher
        .counter(ItemsCount::new(1_u32))
        .bench(|| black_box(black_box(&command).header::<PullMessageRequest<'_>>()).is_ok());
}

#[divan::bench(args = ENCODINGS)]
fn encode_send_answer(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let mut out = BytesMut::with_capacity(1024);
    let opaque = black_box(77);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        out.clear();
        let answer = send_answer();
        encode_answer_head(
            &mut out,
            serialize,
            opaque,
            response::SUCCESS,
            None,
            Some(&answer),
            0,
        );
        out.len()
    });
}

#[divan::bench(args = ENCODINGS)]
fn encode_pull_answer(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let mut out = BytesMut::with_capacity(1024);
    let opaque = black_box(77);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        out.clear();
        let answer = PullMessageResponse {
            suggest_which_broker_id: 0,
            next_begin_offset: black_box(123_488),
            min_offset: 0,
            max_offset: 200_000,
        };
        let remark = Some("FOUND");
        let code = response::SUCCESS;
        encode_answer_head(
            &mut out,
            serialize,
            opaque,
            code,
            remark,
            Some(&answer),
            65_536,
        );
        out.len()
    });
}

/// A client's side: header to ext fields to frame, body copied.
#[divan::bench(args = ENCODINGS)]
fn build_and_encode_v2_send(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let mut out = BytesMut::with_capacity(4096);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        out.clear();
        send(serialize).encode(&mut out);
        out.len()
    });
}

/// All that a broker does for a message, the store aside.
#[divan::bench(args = ENCODINGS)]
fn whole_send(bencher: Bencher<'_, '_>, serialize: SerializeType) {
    let frame = shared(&send(serialize));
    let mut out = BytesMut::with_capacity(1024);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        out.clear();
        let whole = frame::check(black_box(&frame), MAX_FRAME_LEN);
        assert!(matches!(whole, Ok(Check::Whole { .. })));
        let command = frame::parse(frame.clone()).expect("a good frame");
        let header = SendMessageRequest::decode_for(command.code, &command.ext).expect("whole");
        let answer = SendMessageResponse {
            queue_id: header.queue_id,
            ..send_answer()
        };
        let code = response::SUCCESS;
        encode_answer_head(
            &mut out,
            command.serialize,
            command.opaque,
            code,
            None,
            Some(&answer),
            0,
        );
        out.len()
    });
}
