//! What must hold for any message, over generated ones. The corpora of the fuzz targets are run by `fuzz_corpus`.

#[path = "../../fuzz/entry/message.rs"]
mod property;

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use jiff::tz::TimeZone;
use minimq_protocol::acl_signature::SigningKey;
use minimq_protocol::batch::{self, BatchRecord};
use minimq_protocol::compression::CompressionType;
use minimq_protocol::crc::body_crc;
use minimq_protocol::message::{
    EncodeError, MessageView, RecordFields, Verdict, VerifyBody, check,
};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::name;
use minimq_protocol::properties::{
    Properties, PropertiesBuf, UserPropertyError, check_user_property,
};
use minimq_protocol::unique_key::{UniqueKey, UniqueKeyGenerator};
use proptest::collection::vec;
use proptest::prelude::*;

fn host() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

/// Texts that are likely to hold separators.
fn property_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![3 => Just(1_u8), 3 => Just(2_u8), 5 => any::<u8>(), 9 => b'a'..=b'd'],
        0..60,
    )
}

#[derive(Debug, Clone)]
struct Owned {
    topic: String,
    ints: [i32; 5],
    longs: [i64; 5],
    hosts: (SocketAddr, SocketAddr),
    body: Vec<u8>,
    properties: (Vec<u8>, Vec<u8>),
}

impl Owned {
    fn fields(&self) -> RecordFields<'_> {
        RecordFields {
            topic: &self.topic,
            queue_id: self.ints[0],
            flag: self.ints[1],
            sys_flag: self.ints[2],
            reconsume_times: self.ints[3],
            queue_offset: self.longs[0],
            physical_offset: self.longs[1],
            born_timestamp: self.longs[2],
            store_timestamp: self.longs[3],
            prepared_transaction_offset: self.longs[4],
            born_host: self.hosts.0,
            store_host: self.hosts.1,
            body_crc: body_crc(&self.body),
            body: &self.body,
            properties: &self.properties.0,
            appended_properties: &self.properties.1,
        }
    }
}

fn message() -> impl Strategy<Value = Owned> {
    (
        "[%|a-zA-Z0-9_-]{0,127}|\\PC{0,30}",
        any::<[i32; 5]>(),
        any::<[i64; 5]>(),
        (host(), host()),
        vec(any::<u8>(), 0..300),
        (property_bytes(), property_bytes()),
    )
        .prop_map(|(topic, ints, longs, hosts, body, properties)| Owned {
            topic,
            ints,
            longs,
            hosts,
            body,
            properties,
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in message()) {
        let fields = message.fields();
        let encoded = match fields.encode() {
            Ok(encoded) => encoded,
            Err(error) => {
                assert!(matches!(error, EncodeError::TopicTooLong { len } if len > 127));
                return Ok(());
            }
        };
        prop_assert_eq!(encoded.len(), fields.encoded_len());
        let view = MessageView::parse(encoded.clone()).unwrap();
        let joined = view.properties().as_bytes().to_vec();
        let read = RecordFields {
            sys_flag: fields.written_sys_flag(),
            properties: &joined,
            appended_properties: &[],
            ..fields
        };
        prop_assert_eq!(view.fields(), read);
        let pairs = |text| Properties::from_bytes(text).iter_bytes().map(|(n, v)| (n.to_vec(), v.to_vec())).collect::<Vec<_>>();
        let (first, second) = &message.properties;
        prop_assert_eq!(pairs(&joined), [pairs(first), pairs(second)].concat());
        property::records_are_read_or_refused(&encoded);
    }

    #[test]
    fn a_cut_record_is_never_taken_for_a_record(message in message(), cut in any::<prop::sample::Index>()) {
        let Ok(encoded) = message.fields().encode() else { return Ok(()) };
        let cut = cut.index(encoded.len());
        prop_assert!(matches!(check(&encoded[..cut], VerifyBody::Crc), Verdict::NotARecord(_)));
    }

    #[test]
    fn a_changed_byte_is_read_within_bounds_or_refused(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let Ok(encoded) = message.fields().encode() else { return Ok(()) };
        let mut encoded = encoded.to_vec();
        let at = at.index(encoded.len());
        encoded[at] = byte;
        property::records_are_read_or_refused(&encoded);
    }

    #[test]
    fn a_flipped_bit_in_a_body_is_damage(message in message(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let Ok(encoded) = message.fields().encode() else { return Ok(()) };
        prop_assume!(!message.body.is_empty());
        let mut encoded = encoded.to_vec();
        let view = MessageView::parse(Bytes::from(encoded.clone())).unwrap();
        let body_at = minimq_protocol::message::body_at(view.sys_flag());
        encoded[body_at + at.index(message.body.len())] ^= 1_u8 << bit;
        let Verdict::Damaged { size, .. } = check(&encoded, VerifyBody::Crc) else { panic!("not seen") };
        prop_assert_eq!(size, encoded.len());
    }

    #[test]
    fn any_bytes_are_records_or_not(data in vec(any::<u8>(), 0..200)) {
        property::records_are_read_or_refused(&data);
    }

    #[test]
    fn any_bytes_are_a_batch_or_not(data in vec(prop_oneof![Just(0_u8), any::<u8>()], 0..200)) {
        property::batches_are_read_or_refused(&data);
    }

    #[test]
    fn any_bytes_are_properties(data in property_bytes()) {
        property::properties_are_read_as_java_reads_them(&data);
    }

    #[test]
    fn batches_are_read_as_written(records in vec((any::<i32>(), vec(any::<u8>(), 0..50), property_bytes()), 0..6)) {
        let records: Vec<BatchRecord<'_>> = records
            .iter()
            .map(|(flag, body, properties)| BatchRecord { flag: *flag, body, properties })
            .collect();
        let mut encoded = Vec::new();
        for record in &records {
            record.encode(&mut encoded).unwrap();
        }
        prop_assert_eq!(batch::records(&encoded).collect::<Result<Vec<_>, _>>().unwrap(), records);
        property::batches_are_read_or_refused(&encoded);
    }

    #[test]
    fn properties_of_users_come_back(pairs in vec(("\\PC{1,8}", "\\PC{1,8}"), 0..6)) {
        let mut text = PropertiesBuf::new();
        let mut pushed = Vec::new();
        for (name, value) in &pairs {
            match check_user_property(name, value) {
                Ok(()) => {
                    text.push(name, value);
                    pushed.push((name.as_str(), value.as_str()));
                }
                Err(error) => assert!(matches!(error, UserPropertyError::Blank { .. })),
            }
        }
        prop_assert_eq!(text.properties().iter().collect::<Vec<_>>(), pushed);
    }

    #[test]
    fn offset_ids_come_back(host in host(), physical_offset in any::<i64>()) {
        let id = OffsetId { host, physical_offset };
        prop_assert_eq!(id.to_string().parse::<OffsetId>(), Ok(id));
    }

    #[test]
    fn any_text_is_an_id_or_not(text in "[0-9A-Fa-f]{28,60}|\\PC{0,60}") {
        let _ = (text.parse::<OffsetId>().is_ok(), UniqueKey::parse(&text).is_some());
    }

    #[test]
    fn the_time_in_a_unique_key_comes_back(now in 1_500_000_000_000_i64..2_500_000_000_000, later in 1..86_400_000_i64) {
        let key = UniqueKeyGenerator::new(IpAddr::from([10, 0, 0, 9]), 1, 2, TimeZone::UTC).next(now);
        prop_assert_eq!(UniqueKey::parse(&key).unwrap().near_time(now + later, &TimeZone::UTC), Some(now));
    }

    #[test]
    fn bodies_come_back_from_every_compression(body in vec(prop_oneof![Just(b'a'), any::<u8>()], 0..2000), level in 1..10) {
        for kind in [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd] {
            let compressed = kind.compress(&body, level).unwrap();
            prop_assert_eq!(&kind.decompress(&compressed, body.len()).unwrap(), &body);
        }
    }

    #[test]
    fn garbage_is_no_compressed_body(body in vec(any::<u8>(), 0..200)) {
        for kind in [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd] {
            if let Ok(plain) = kind.decompress(&body, 1 << 16) {
                prop_assert!(plain.len() <= 1 << 16);
            }
        }
    }

    #[test]
    fn a_signature_covers_every_value_and_the_body(
        fields in vec(("[a-z]{1,4}", "\\PC{0,6}"), 1..6),
        body in vec(any::<u8>(), 0..20),
    ) {
        let key = SigningKey::new("a secret");
        let pairs = || fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let signature = key.sign(pairs(), &body);
        prop_assert!(key.verify(pairs().rev().collect::<Vec<_>>().into_iter().rev(), &body, &signature));
        let mut changed = body.clone();
        changed.push(0);
        prop_assert!(!key.verify(pairs(), &changed, &signature));
        prop_assert!(!key.verify(pairs().chain([("zzzzz", "x")]), &body, &signature));
    }

    #[test]
    fn namespaces_come_off_again(group in "[a-zA-Z0-9_-]{1,10}", namespace in "[a-zA-Z0-9_-]{1,10}") {
        for resource in [group.clone(), name::retry_topic(&group), name::dlq_topic(&group)] {
            let wrapped = name::with_namespace(&resource, &namespace).into_owned();
            prop_assert_eq!(name::with_namespace(&wrapped, &namespace), wrapped.as_str());
            prop_assert_eq!(name::namespace_of(&wrapped), &namespace);
            prop_assert_eq!(name::without_namespace(&wrapped, &namespace), resource.as_str());
            prop_assert_eq!(name::without_any_namespace(&wrapped), resource.as_str());
        }
    }
}
