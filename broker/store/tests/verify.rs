//! Tools read a store without changing it: sizes are found out, every record is given, queues and index are compared with
//! the log, and what is torn or damaged is told as a start of a broker would find it.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minimq_store::verify::{Finding, ReaderOptions, StoreReader, VerifyReport};
use minimq_store::{Store, StoreConfig, StoreError};
use support::store::LONG;
use support::{golden, golden_config, manifest, message, open, real, small_config};

const STORES: [&str; 8] = [
    "clean",
    "cqext",
    "killed",
    "torn-cut",
    "torn-props",
    "torn-short",
    "torn-bitflip",
    "torn-bitflip-early",
];

/// Content and time of every file.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
                files.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
            }
        }
    }
    files
}

fn reader(root: &Path) -> StoreReader {
    StoreReader::open(root, &ReaderOptions::default()).unwrap()
}

fn verify(root: &Path) -> VerifyReport {
    reader(root).verify(&mut |_| {}).unwrap()
}

#[test]
fn recorded_stores_are_read_as_a_start_finds_them_and_no_byte_changes() {
    for name in STORES {
        let folder = tempfile::tempdir().unwrap();
        let root = golden(name, folder.path());
        let before = snapshot(&root);
        let reader = reader(&root);
        let (sizes, expected) = (*reader.sizes(), golden_config(&root));
        assert_eq!(
            sizes.commit_log_file,
            Some(expected.mapped_file_size_commit_log),
            "{name}"
        );
        assert_eq!(
            sizes.queue_file,
            Some(expected.mapped_file_size_consume_queue),
            "{name}"
        );
        assert_eq!(
            sizes.index,
            Some((expected.max_hash_slot_num, expected.max_index_num)),
            "{name}"
        );
        let mut told = 0;
        let report = reader.verify(&mut |_| told += 1).unwrap();
        let mut places = Vec::new();
        reader
            .for_each_record(
                |record| {
                    places.push(record.physical_offset());
                    ControlFlow::Continue(())
                },
                &mut |_| {},
            )
            .unwrap()
            .unwrap();
        assert!(snapshot(&root) == before, "{name}: files changed");

        let (log, queues) = open(&golden_config(&root), &real());
        let found = log.report();
        assert_eq!(report.log.end, found.end, "{name}");
        assert_eq!(report.log.damaged, found.damaged, "{name}");
        assert_eq!(report.log.cut, found.cut, "{name}");
        let kept: Vec<_> = queues
            .records
            .iter()
            .filter(|r| !r.damaged)
            .map(|r| r.at)
            .collect();
        for at in &kept {
            assert!(places.contains(at), "{name}: the record at {at}");
        }
        assert_eq!(places.len() as u64, report.log.records, "{name}");
        if matches!(name, "clean" | "cqext") {
            assert_eq!(report.findings.list, [], "{name}");
            assert!(report.is_sound() && report.clean, "{name}");
            assert_eq!(
                (report.queues.behind, report.index.behind),
                (0, 0),
                "{name}"
            );
        }
        if name.starts_with("torn") {
            assert!(!report.is_sound(), "{name}");
            let log_findings = |finding: &&Finding| {
                matches!(
                    finding,
                    Finding::Damaged(_) | Finding::Cut(_) | Finding::ShortFile { .. }
                )
            };
            assert!(
                report.findings.list.iter().any(|f| log_findings(&f)),
                "{name}: {report:#?}"
            );
        }
        assert!(
            report.queues.matched > 0 && report.index.matched > 0,
            "{name}"
        );
        assert!(!manifest(name).is_null());
    }
}

/// A store of ours with two topics, stopped cleanly.
fn our_store(root: &Path) -> StoreConfig {
    let config = small_config(root);
    let store = Store::open(&config, |_| {}).unwrap();
    let mut outcomes = Vec::new();
    for number in 0..120 {
        let keys = format!("TAGS\u{1}a\u{2}KEYS\u{1}key{number} other");
        let topic = ["one", "two"][number % 2];
        store.append_blocking(&[message(topic, 0, &[7; 300], &keys)], &mut outcomes);
    }
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    store.close().unwrap();
    config
}

fn change(path: &Path, at: usize, to: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] = to;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_store_of_ours_is_sound_and_one_wrong_byte_anywhere_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    our_store(root);
    let report = verify(root);
    assert_eq!(report.findings.list, []);
    assert_eq!(
        (
            report.log.records,
            report.queues.matched,
            report.index.matched
        ),
        (120, 120, 240)
    );
    assert_eq!((report.queues.behind, report.index.behind), (0, 0));

    let queue = root.join(format!("consumequeue/one/0/{:020}", 400));
    let index = {
        let mut paths: Vec<_> = std::fs::read_dir(root.join("index"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        paths.sort();
        paths.remove(1)
    };
    let log = root.join(format!("commitlog/{:020}", 16_384));
    // The place in the queue's third entry of that file; the hash of an index entry; a body.
    for (path, at, what) in [
        (&queue, 2 * 20 + 7, "queue"),
        (&queue, 2 * 20 + 19, "queue"),
        (&index, 40 + 4 * 10 + 20 * 3 + 3, "index"),
        (&log, 200, "damaged"),
    ] {
        let was = std::fs::read(path).unwrap();
        change(path, at, was[at] ^ 0x55);
        let report = verify(root);
        assert!(!report.is_sound(), "{what} {at}");
        assert!(
            report
                .findings
                .list
                .iter()
                .any(|f| f.to_string().starts_with(what)),
            "{what} {at}: {:#?}",
            report.findings.list
        );
        std::fs::write(path, was).unwrap();
    }
    assert!(verify(root).is_sound());

    // A file of a queue is gone; all of another's are.
    let bytes = std::fs::read(&queue).unwrap();
    std::fs::remove_file(&queue).unwrap();
    std::fs::rename(root.join("consumequeue/two"), root.join("aside")).unwrap();
    let list = verify(root).findings.list;
    assert!(
        list.iter().any(|f| matches!(
            f,
            Finding::QueueGap {
                from: 20,
                to: 40,
                ..
            }
        )),
        "{list:#?}"
    );
    assert!(
        list.contains(&Finding::NoQueue {
            queue: ("two".into(), 0),
            records: 60
        }),
        "{list:#?}"
    );
    std::fs::write(&queue, bytes).unwrap();
    std::fs::rename(root.join("aside"), root.join("consumequeue/two")).unwrap();
    assert!(verify(root).is_sound());
}

#[test]
fn a_store_that_is_open_is_refused_unless_asked_and_a_walk_can_be_broken_off() {
    let folder = tempfile::tempdir().unwrap();
    let config = our_store(folder.path());
    let store = Store::open(&config, |_| {}).unwrap();
    let refused = StoreReader::open(folder.path(), &ReaderOptions::default());
    assert!(matches!(refused, Err(StoreError::Locked { .. })));
    let options = ReaderOptions {
        while_running: true,
        ..ReaderOptions::default()
    };
    let reader = StoreReader::open(folder.path(), &options).unwrap();
    let mut seen = 0;
    let report = reader
        .for_each_record(
            |_| {
                seen += 1;
                if seen < 10 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
            &mut |_| {},
        )
        .unwrap();
    assert!(report.is_none());
    assert_eq!(seen, 10);
    assert_eq!(reader.verify(&mut |_| {}).unwrap().log.records, 120);
    // The lock of the open store is still held.
    assert!(matches!(
        Store::open(&config, |_| {}),
        Err(StoreError::Locked { .. })
    ));
    store.close().unwrap();
    assert!(verify(folder.path()).is_sound());
}

#[test]
fn what_is_no_store_is_refused_and_an_empty_one_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let missing = StoreReader::open(&folder.path().join("none"), &ReaderOptions::default());
    assert!(missing.is_err());
    let report = verify(folder.path());
    assert!(report.is_sound());
    assert_eq!((report.log.records, report.queues.queues), (0, 0));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing was made"
    );
}

#[test]
fn a_deleted_topic_is_no_finding_and_what_a_deletion_left_of_it_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let config = our_store(root);
    let (queue, aside) = (root.join("consumequeue/two"), root.join("aside"));
    std::fs::create_dir_all(aside.join("0")).unwrap();
    for file in std::fs::read_dir(queue.join("0")).unwrap() {
        let path = file.unwrap().path();
        std::fs::copy(&path, aside.join("0").join(path.file_name().unwrap())).unwrap();
    }
    let store = Store::open(&config, |_| {}).unwrap();
    store.delete_topic("two").unwrap();
    let mut outcomes = Vec::new();
    store.append_blocking(&[message("two", 1, b"new", "")], &mut outcomes);
    assert!(store.dispatcher().wait_for(store.log().max_offset(), LONG));
    store.close().unwrap();
    drop(store);
    let report = verify(root);
    assert_eq!(report.findings.list, []);
    assert_eq!((report.queues.matched, report.queues.superseded), (61, 60));
    assert_eq!(report.index.matched, 240);

    // As if a stop had come before the files went.
    std::fs::rename(aside.join("0"), queue.join("0")).unwrap();
    let left = Finding::DeletedTopic {
        queue: ("two".into(), 0),
        entries: 60,
    };
    assert_eq!(verify(root).findings.list, std::slice::from_ref(&left));
    // Or before it was known where the new messages begin.
    let list = root.join("queues");
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, text.replace("deleted", "deleting")).unwrap();
    assert_eq!(verify(root).findings.list, [left]);
    let store = Store::open(&config, |_| {}).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(verify(root).findings.list, []);

    // The list counts for nothing after another broker was at work: then the queue was lost.
    std::fs::remove_dir_all(&queue).unwrap();
    let checkpoint = root.join("checkpoint");
    let was = std::fs::read(&checkpoint).unwrap();
    change(&checkpoint, 7, was[7] ^ 1);
    let lost = |id, records| Finding::NoQueue {
        queue: ("two".to_owned(), id),
        records,
    };
    assert_eq!(verify(root).findings.list, [lost(0, 60), lost(1, 1)]);
    // Unless it left an empty folder, and all had reached their queues.
    std::fs::create_dir(&queue).unwrap();
    let list = verify(root).findings.list;
    let behind = [lost(0, 1), lost(1, 1)];
    assert_eq!(list, behind, "these lie behind all that other queues have");
}
