//! Commit logs written by the 4.9.8 broker, whole and damaged: what is kept, what is reported, and that the log goes on.

mod support;

use std::path::Path;

use minimq_store::{LogRead, PhysicalOffset};
use support::{
    NotedQueues, append_one, golden, golden_config, manifest, message, open, open_with, real,
};

/// Offsets of all records a manifest lists, `[offset, size, topic, queue, queue offset]`.
fn rows(manifest: &serde_json::Value) -> Vec<(i64, i64, String, i64, i64)> {
    let whole = |row: &serde_json::Value| {
        let field = |name: &str, at: usize| row.get(name).or_else(|| row.get(at)).cloned();
        let number = |name: &str, at: usize| field(name, at).and_then(|value| value.as_i64());
        if row.get("filler").is_some() {
            return None;
        }
        let topic = field("topic", 2)?.as_str()?.to_owned();
        Some((
            number("physicalOffset", 0)?,
            number("size", 1)?,
            topic,
            number("queueId", 3)?,
            number("queueOffset", 4)?,
        ))
    };
    manifest["commitLog"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(whole)
        .collect()
}

fn found(queues: &NotedQueues) -> Vec<(i64, i64, String, i64, i64)> {
    let row = |noted: &support::Noted| {
        (
            noted.at,
            noted.size.into(),
            noted.topic.clone(),
            noted.queue_id.into(),
            noted.queue_offset,
        )
    };
    queues
        .records
        .iter()
        .filter(|noted| !noted.damaged)
        .map(row)
        .collect()
}

/// Opens a damaged golden store; gives it with what queues were given.
fn open_golden(name: &str, folder: &Path) -> (minimq_store::LogStore, NotedQueues) {
    let root = golden(name, folder);
    open(&golden_config(&root), &real())
}

/// After recovery: append, close, open again, all is there.
fn goes_on(log: minimq_store::LogStore, folder: &Path, records: usize) {
    let end = log.log().max_offset();
    let result = append_one(
        &log,
        message("StoreA", 1, b"after recovery", "TAGS\u{1}TagL"),
    )
    .unwrap();
    assert_eq!(result.physical_offset, end);
    log.close().unwrap();
    drop(log);
    let (log, queues) = open(&golden_config(&folder.join("store")), &real());
    assert_eq!(
        queues.records.iter().filter(|noted| !noted.damaged).count(),
        records + 1
    );
    assert!(log.report().clean);
    assert_eq!(log.report().cut, None);
    let LogRead::Found(bytes) = log
        .log()
        .read(result.physical_offset, result.size as usize, true)
        .unwrap()
    else {
        panic!("the new record is gone")
    };
    let view = minimq_protocol::message::MessageView::parse(bytes).unwrap();
    assert_eq!(
        (view.body(), view.queue_offset()),
        (&b"after recovery"[..], result.queue_offset.get())
    );
    log.close().unwrap();
}

#[test]
fn every_record_of_a_clean_store_is_found_and_its_end_is_javas() {
    for name in ["clean", "cqext"] {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(name);
        let (log, queues) = open_golden(name, folder.path());
        assert_eq!(found(&queues), rows(&manifest), "{name}");
        assert_eq!(
            log.log().max_offset().get(),
            manifest["maxPhyOffset"].as_i64().unwrap()
        );
        assert_eq!(log.log().min_offset(), PhysicalOffset(0));
        assert_eq!((log.report().damaged.len(), &log.report().cut), (0, &None));
        goes_on(log, folder.path(), rows(&manifest).len());
    }
}

#[test]
fn every_record_of_a_killed_store_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = manifest("killed");
    let (log, queues) = open_golden("killed", folder.path());
    assert!(!log.report().clean);
    assert_eq!(found(&queues), rows(&manifest));
    assert_eq!(
        log.log().max_offset().get(),
        manifest["maxPhyOffset"].as_i64().unwrap()
    );
    goes_on(log, folder.path(), 666);
}

#[test]
fn stored_bytes_are_the_recorded_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open_golden("clean", folder.path());
    for row in manifest("clean")["commitLog"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row.get("filler").is_none())
    {
        let (at, size) = (
            row["physicalOffset"].as_i64().unwrap(),
            row["size"].as_u64().unwrap() as usize,
        );
        let LogRead::Found(bytes) = log.log().read(PhysicalOffset(at), size, true).unwrap() else {
            panic!("{at}")
        };
        let view = minimq_protocol::message::MessageView::parse(bytes).unwrap();
        assert_eq!(i64::from(view.body_crc()), row["bodyCRC"].as_i64().unwrap());
        assert_eq!(
            view.store_timestamp(),
            row["storeTimestamp"].as_i64().unwrap()
        );
        assert_eq!(
            view.body().len() as u64,
            row["storedBodyLength"].as_u64().unwrap()
        );
        assert_eq!(
            view.message_id().to_string(),
            row["offsetMsgId"].as_str().unwrap()
        );
    }
    log.close().unwrap();
}

#[test]
fn a_record_torn_at_the_end_is_cut_and_reported_and_its_number_is_given_again() {
    for (name, lost) in [("torn-cut", 321_662), ("torn-props", 321_662)] {
        let folder = tempfile::tempdir().unwrap();
        let (log, queues) = open_golden(name, folder.path());
        let expected: Vec<_> = rows(&manifest("killed"))
            .into_iter()
            .filter(|row| row.0 != lost)
            .collect();
        assert_eq!(found(&queues), expected, "{name}");
        assert_eq!(log.log().max_offset().get(), lost);
        let cut = log.report().cut.clone().unwrap();
        assert_eq!(cut.at.get(), lost, "{cut:?}");
        assert_eq!(log.next_queue_offset("StoreA", 1).get(), 100);
        goes_on(log, folder.path(), 665);
    }
}

#[test]
fn a_flipped_bit_costs_one_record_and_it_keeps_its_number() {
    for name in ["torn-bitflip", "torn-bitflip-early"] {
        let damage = &manifest(name)["damage"];
        let at = damage["physicalOffset"].as_i64().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (log, queues) = open_golden(name, folder.path());
        let expected: Vec<_> = rows(&manifest("killed"))
            .into_iter()
            .filter(|row| row.0 != at)
            .collect();
        assert_eq!(found(&queues), expected, "{name}");
        let [range] = log.report().damaged.as_slice() else {
            panic!("{:?}", log.report().damaged)
        };
        assert_eq!(
            (range.from.get(), range.to.get() - at),
            (at, damage["size"].as_i64().unwrap())
        );
        let record = range.record.as_ref().unwrap();
        assert_eq!(record.topic, damage["topic"].as_str().unwrap());
        assert_eq!(
            record.queue_offset.get(),
            damage["queueOffset"].as_i64().unwrap()
        );
        assert!(log.damage().contains(PhysicalOffset(at)));
        let noted: Vec<_> = queues
            .records
            .iter()
            .filter(|noted| noted.damaged)
            .map(|noted| noted.queue_offset)
            .collect();
        assert_eq!(noted, [record.queue_offset.get()]);
        goes_on(log, folder.path(), 665);
        assert!(folder.path().join("store/damaged").exists());
    }
}

#[test]
fn a_log_file_cut_short_is_extended_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (log, queues) = open_golden("torn-short", folder.path());
    assert_eq!(found(&queues), rows(&manifest("killed")));
    assert_eq!(log.report().extended.len(), 1);
    goes_on(log, folder.path(), 666);
}

#[test]
fn a_broken_head_in_the_middle_costs_what_lies_before_the_next_record_a_queue_knows() {
    let folder = tempfile::tempdir().unwrap();
    let root = golden("killed", folder.path());
    // The head of a record in the middle of a file: nothing says any more where the next one begins, but a queue.
    let rows = rows(&manifest("killed"));
    let (index, victim) = rows
        .iter()
        .enumerate()
        .find(|(_, row)| row.0 > 70_000)
        .unwrap();
    let path = root.join("commitlog/00000000000000065536");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(victim.0 - 65_536) as usize..][..40].fill(0);
    std::fs::write(&path, bytes).unwrap();

    let place = |row: &(i64, i64, String, i64, i64)| minimq_store::recovery::RecordPlace {
        at: PhysicalOffset(row.0),
        size: row.1 as i32,
    };
    let mut queues = NotedQueues {
        places: rows.iter().map(place).collect(),
        ..NotedQueues::default()
    };
    let log = open_with(&golden_config(&root), &real(), &mut queues);
    let expected: Vec<_> = rows
        .iter()
        .filter(|row| row.0 != victim.0)
        .cloned()
        .collect();
    assert_eq!(found(&queues), expected);
    let [range] = log.report().damaged.as_slice() else {
        panic!("{:?}", log.report().damaged)
    };
    assert_eq!(
        (range.from.get(), range.to.get()),
        (victim.0, rows[index + 1].0)
    );
    log.close().unwrap();
    drop(log);

    // What was found once is remembered, also without queues.
    let mut queues = NotedQueues::default();
    std::fs::write(root.join("abort"), b"").unwrap();
    let log = open_with(&golden_config(&root), &real(), &mut queues);
    assert_eq!(found(&queues), expected);
    assert_eq!(log.report().damaged[0].to.get(), rows[index + 1].0);
    drop(log);

    // Without both the next place where a record is known to begin is the next file.
    std::fs::remove_file(root.join("damaged")).unwrap();
    let mut queues = NotedQueues::default();
    std::fs::write(root.join("abort"), b"").unwrap();
    let log = open_with(&golden_config(&root), &real(), &mut queues);
    let lost = |row: &&(i64, i64, String, i64, i64)| row.0 < victim.0 || row.0 >= 131_072;
    assert_eq!(
        found(&queues),
        rows.iter().filter(lost).cloned().collect::<Vec<_>>()
    );
    assert_eq!(log.report().damaged[0].to.get(), 131_072);
}

/// A recorded message, to be appended again.
struct Again {
    fields: minimq_protocol::message::RecordFields<'static>,
    at: i64,
}

#[test]
fn the_recorded_messages_appended_again_at_their_times_give_the_recorded_bytes() {
    for name in ["clean", "cqext", "killed"] {
        let folder = tempfile::tempdir().unwrap();
        let root = golden(name, folder.path());
        let manifest = manifest(name);
        let recorded: Vec<Vec<u8>> = {
            let mut paths: Vec<_> = std::fs::read_dir(root.join("commitlog"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            paths.sort();
            paths
                .into_iter()
                .map(|path| std::fs::read(path).unwrap())
                .collect()
        };
        let log_of = |files: &[Vec<u8>]| files.concat();
        let bytes: &'static [u8] = Box::leak(log_of(&recorded).into_boxed_slice());
        let again: Vec<Again> = rows(&manifest)
            .into_iter()
            .map(|(at, ..)| {
                let record =
                    minimq_protocol::message::RecordRef::parse_slice(&bytes[at as usize..])
                        .unwrap();
                let record: &'static _ = Box::leak(Box::new(record));
                Again {
                    fields: record.fields(),
                    at,
                }
            })
            .collect();

        let new_root = folder.path().join("again");
        let (clock, time) = minimq_store::StoreClock::manual(0);
        let config = golden_config(&new_root);
        let log = minimq_store::LogStore::open(
            &config,
            real(),
            clock,
            &mut NotedQueues::default(),
            |_| {},
        )
        .unwrap();
        for Again { fields, at } in &again {
            time.store(fields.store_timestamp, std::sync::atomic::Ordering::Release);
            let message = minimq_store::AppendMessage {
                topic: fields.topic,
                queue_id: fields.queue_id,
                flag: fields.flag,
                sys_flag: fields.sys_flag,
                born_timestamp: fields.born_timestamp,
                born_host: fields.born_host,
                store_host: fields.store_host,
                reconsume_times: fields.reconsume_times,
                prepared_transaction_offset: fields.prepared_transaction_offset,
                body: fields.body,
                properties: fields.properties,
                appended_properties: b"",
                joins_previous: false,
            };
            let result = append_one(&log, message).unwrap();
            assert_eq!(
                (result.physical_offset.get(), result.queue_offset.get()),
                (*at, fields.queue_offset),
                "{name}"
            );
        }
        let end = log.log().max_offset().get() as usize;
        log.close().unwrap();
        let written: Vec<Vec<u8>> = (0..end.div_ceil(65_536))
            .map(|number| {
                std::fs::read(new_root.join(format!("commitlog/{:020}", number * 65_536))).unwrap()
            })
            .collect();
        assert!(
            log_of(&written)[..end] == bytes[..end],
            "{name}: the bytes differ"
        );
        assert_eq!(end as i64, manifest["maxPhyOffset"].as_i64().unwrap());
    }
}
