//! Broker registrations: plain, compressed, of old versions, and broken ones.

use minimq_protocol::body::*;
use proptest::prelude::*;

#[test]
fn registrations_are_read_by_version_and_compression() {
    let topics = br#"{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":{"T1":{"topicName":"T1"}}}"#;
    let old = RegisterBrokerBody::from_registration(topics, true, 36).unwrap();
    assert_eq!(old.filter_server_list, None);
    assert_eq!(
        old.topic_config_serialize_wrapper.topic_config_table["T1"],
        TopicConfig::new("T1")
    );

    let new = [
        b"{\"topicConfigSerializeWrapper\":".as_slice(),
        topics,
        b"}",
    ]
    .concat();
    let new = RegisterBrokerBody::from_registration(&new, false, 37).unwrap();
    assert_eq!(new.filter_server_list, Some(Vec::new()));
    assert_eq!(
        new.topic_config_serialize_wrapper,
        old.topic_config_serialize_wrapper
    );

    let none = RegisterBrokerBody::from_registration(b"", true, 409).unwrap();
    assert_eq!(
        (none.filter_server_list, none.topic_config_serialize_wrapper),
        (Some(vec![]), Default::default())
    );
    assert_eq!(
        RegisterBrokerBody::from_registration(b"", false, 0)
            .unwrap()
            .filter_server_list,
        None
    );
}

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_compressed_registration_of_the_test_vectors_is_read_and_written() {
    let compressed = unhex(
        "78da63606050af564ace2fcd2b492d52b232d7512ac9cc4d2d2e49cc2d50b232343740805a0606064620160e31543001423385604f3f771fd7f8104777a03053742c00d5091139",
    );
    let inflated = unhex(
        "000000277b22636f756e746572223a372c2274696d657374616d70223a313730303030303030303030307d000000010000001354312034203420362053494e474c455f544147000000025b5d",
    );
    assert_eq!(crc32fast::hash(&compressed) & 0x7fff_ffff, 1_395_831_088);
    let body = RegisterBrokerBody::from_registration(&compressed, true, 409).unwrap();
    let topic = TopicConfig {
        read_queue_nums: 4,
        write_queue_nums: 4,
        ..TopicConfig::new("T1")
    };
    assert_eq!(
        body.topic_config_serialize_wrapper.topic_config_table["T1"],
        topic
    );
    assert_eq!(body.to_inflated(), inflated);
    assert_eq!(
        RegisterBrokerBody::from_compressed(&body.to_compressed(), 1000).as_ref(),
        Ok(&body)
    );
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn block(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

#[test]
fn compressed_registrations_with_more_parts_and_trailing_data_are_read() {
    let version = block(r#"{"counter":7,"timestamp":9,"stateVersion":1}"#);
    let topic = block(r#"T1 4 5 6 MULTI_TAG {"+a":"b c"}"#);
    let (one, trailing) = (
        1u32.to_be_bytes(),
        [1u32.to_be_bytes().to_vec(), block("{}")].concat(),
    );
    let plain = [
        version.clone(),
        one.to_vec(),
        topic,
        block(r#"["10.0.0.1:4000"]"#),
        trailing,
    ]
    .concat();
    let body = RegisterBrokerBody::from_registration(&deflate(&plain), true, 413).unwrap();
    assert_eq!(
        body.filter_server_list,
        Some(vec!["10.0.0.1:4000".to_owned()])
    );
    let topic = &body.topic_config_serialize_wrapper.topic_config_table["T1"];
    assert_eq!(
        (topic.read_queue_nums, topic.write_queue_nums, topic.perm),
        (4, 5, 6)
    );
    assert_eq!(topic.topic_filter_type, TopicFilterType::MultiTag);

    let broken_list = [version, 0u32.to_be_bytes().to_vec(), block("[oh")].concat();
    let body = RegisterBrokerBody::from_registration(&deflate(&broken_list), true, 409).unwrap();
    assert_eq!(body.filter_server_list, Some(Vec::new()));
}

#[test]
fn broken_compressed_registrations_are_refused_with_the_reason() {
    let read = |plain: &[u8]| {
        RegisterBrokerBody::from_compressed(&deflate(plain), 1 << 20)
            .unwrap_err()
            .to_string()
    };
    let version = block("{}");
    let topic = |text: &str| {
        [
            version.clone(),
            1u32.to_be_bytes().to_vec(),
            block(text),
            block("[]"),
        ]
        .concat()
    };
    let ends = "compressed registration: the content ends before the end of the";
    assert_eq!(read(b""), format!("{ends} data version"));
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, b'{']),
        format!("{ends} data version")
    );
    assert_eq!(read(&version), format!("{ends} topic count"));
    assert_eq!(
        read(&[version.clone(), vec![0xff; 4]].concat()),
        format!("{ends} topic")
    );
    assert_eq!(
        read(&[version.clone(), vec![0; 4]].concat()),
        format!("{ends} filter server list")
    );
    let in_text = "compressed registration: no filter type in the topic text `T1 4 4 6`";
    assert_eq!(read(&topic("T1 4 4 6")), in_text);
    assert!(read(&topic("T1 4 four 6 SINGLE_TAG")).contains("`four` is no number"));
    assert!(read(&topic("T1 4 4 6 NO_TAG")).contains("unknown filter type"));

    let small = deflate(&vec![0; 1 << 20]);
    let bomb = RegisterBrokerBody::from_compressed(&small, (1 << 20) - 1).unwrap_err();
    assert_eq!(
        bomb.to_string(),
        "compressed registration: inflates to more than 1048575 bytes"
    );
    assert!(
        RegisterBrokerBody::from_compressed(b"no zlib", 100)
            .unwrap_err()
            .to_string()
            .contains("zlib")
    );
    let cut = deflate(&topic("T1 4 4 6 SINGLE_TAG"));
    assert!(RegisterBrokerBody::from_compressed(&cut[..cut.len() / 2], 1 << 20).is_err());
}

#[test]
fn a_hundred_thousand_topics_are_within_the_limits() {
    let mut wrapper = TopicConfigWrapper::default();
    for number in 0..100_000 {
        let topic = TopicConfig::new(format!("topic-{number}"));
        wrapper
            .topic_config_table
            .insert(topic.topic_name.clone(), topic);
    }
    let body = RegisterBrokerBody {
        topic_config_serialize_wrapper: wrapper,
        ..RegisterBrokerBody::default()
    };
    let read = RegisterBrokerBody::from_registration(&body.to_compressed(), true, 409).unwrap();
    assert_eq!(read, body);
    assert_eq!(
        RegisterBrokerBody::from_json(&body.to_wire()).unwrap(),
        body
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_as_a_registration(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RegisterBrokerBody::from_registration(&bytes, true, 409);
        let _ = RegisterBrokerBody::from_registration(&deflate(&bytes), true, 409);
    }
}
