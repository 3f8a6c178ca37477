//! Any bytes as a record of a stored message, as a properties text and as the body of a batch send.
#![allow(dead_code)] // each user takes its part

use minimq_protocol::batch::{self, BatchError, BatchRecord};
use minimq_protocol::message::{
    MAGIC_V1, MessageView, RecordRef, Verdict, VerifyBody, check, patch, split_records,
};
use minimq_protocol::message_id::OffsetId;
use minimq_protocol::properties::{Properties, PropertiesBuf, joined_len, needs_separator};

/// Bytes taken as records are read within their bounds or refused, and what is read writes the same bytes again.
pub(crate) fn records_are_read_or_refused(data: &[u8]) {
    let parsed = RecordRef::parse_slice(data);
    for verify in [VerifyBody::Skip, VerifyBody::Crc] {
        match check(data, verify) {
            Verdict::Whole(record) => {
                assert!(verify == VerifyBody::Skip || record.body_crc_holds());
                assert_eq!(record.raw(), parsed.as_ref().unwrap().raw());
            }
            Verdict::Damaged { size, record, .. } => {
                assert!(size <= data.len());
                assert_eq!(record.is_some(), parsed.is_ok());
            }
            Verdict::Blank { .. } | Verdict::NotARecord(_) => assert!(parsed.is_err()),
        }
    }

    let mut total = 0;
    for result in split_records(data.to_vec().into()) {
        let Ok(view) = result else { continue };
        total += view.size();
        look_at(&view);
        let owned = view.into_raw();
        let view = MessageView::parse(owned.clone()).unwrap();
        assert_eq!(view.body_bytes(), view.body());
        if view.magic() == MAGIC_V1 {
            assert_eq!(view.fields().encode().unwrap(), owned);
        }
        let mut patched = owned.to_vec();
        patch(&mut patched, 1, 2, 3);
        let patched = RecordRef::parse_slice(&patched).unwrap();
        assert_eq!(
            (
                patched.queue_offset(),
                patched.physical_offset(),
                patched.store_timestamp()
            ),
            (1, 2, 3)
        );
        assert_eq!(patched.store_host(), view.store_host());
    }
    assert!(total <= data.len());
    patch(&mut data.to_vec(), 1, 2, 3);
}

fn look_at(view: &MessageView) {
    assert_eq!(view.size(), view.raw().len());
    let id = view.message_id();
    assert_eq!(id.to_string().parse::<OffsetId>(), Ok(id));
    properties_are_read_as_java_reads_them(view.properties().as_bytes());
    let _ = (
        view.topic(),
        view.born_host(),
        view.tags(),
        view.keys(),
        view.unique_key(),
        format!("{view:?}"),
    );
    if let Ok(body) = view.plain_body(1 << 16) {
        assert!(body.len() <= 1 << 16 || body.len() == view.body().len());
    }
}

/// A properties text gives the pairs that Java's reading gives, and adding to it takes nothing away.
pub(crate) fn properties_are_read_as_java_reads_them(data: &[u8]) {
    let properties = Properties::from_bytes(data);
    let pairs: Vec<(&[u8], &[u8])> = properties.iter_bytes().collect();
    assert_eq!(pairs, java_pairs(data));
    for (name, _) in &pairs {
        let last = pairs.iter().rfind(|(other, _)| other == name).unwrap().1;
        if let Ok(name) = std::str::from_utf8(name) {
            assert_eq!(properties.get_bytes(name), Some(last));
            assert_eq!(properties.get(name), std::str::from_utf8(last).ok());
        }
    }
    let _ = properties.soundness();
    assert_eq!(properties.iter_lossy().count(), pairs.len());

    let more = b"CLUSTER\x01C1";
    let mut joined = data.to_vec();
    if needs_separator(data, more) {
        joined.push(2);
    }
    joined.extend_from_slice(more);
    assert_eq!(joined.len(), joined_len(data, more));
    let with_cluster = Properties::from_bytes(&joined);
    assert_eq!(with_cluster.get("CLUSTER"), Some("C1"));
    assert_eq!(with_cluster.iter_bytes().count(), pairs.len() + 1);

    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut copy = PropertiesBuf::new();
    copy.extend(properties, |_| true);
    assert_eq!(copy.properties().iter_bytes().collect::<Vec<_>>(), pairs);
    let mut appended = PropertiesBuf::new();
    appended.push_text(text).push("CLUSTER", "C1");
    assert_eq!(appended.as_str().as_bytes(), joined);
}

/// Java's reading written down as the specification says it: split at 0x02, then at the first 0x01.
fn java_pairs(data: &[u8]) -> Vec<(&[u8], &[u8])> {
    data.split(|byte| *byte == 2)
        .filter_map(|piece| {
            let at = piece.iter().position(|byte| *byte == 1)?;
            let (name, value) = (&piece[..at], &piece[at + 1..]);
            (!name.is_empty() && !value.is_empty()).then_some((name, value))
        })
        .collect()
}

/// Bytes taken as a batch are read within their bounds or refused, and what is read writes an equal batch again.
pub(crate) fn batches_are_read_or_refused(data: &[u8]) {
    let results: Vec<Result<BatchRecord<'_>, BatchError>> = batch::records(data).collect();
    assert!(
        results.iter().rev().skip(1).all(Result::is_ok),
        "went on after an error"
    );
    let records: Vec<BatchRecord<'_>> = results
        .iter()
        .filter_map(|result| result.as_ref().ok().copied())
        .collect();
    let mut again = Vec::new();
    for record in &records {
        record.encode(&mut again).unwrap();
    }
    assert_eq!(
        again.len(),
        records.iter().map(BatchRecord::encoded_len).sum::<usize>()
    );
    assert!(again.len() <= data.len());
    if records.len() == results.len() {
        assert_eq!(again.len(), data.len());
    }
    assert_eq!(
        batch::records(&again)
            .collect::<Result<Vec<_>, _>>()
            .unwrap(),
        records
    );
}
