//! A file system of 64 MiB filled to its end: refused with path and reason, nothing acknowledged lost, no signal, and
//! messages are taken again once there is room.
//!
//! As root on a real one (tmpfs, and ext4 in a file where the tools are there), else on the simulated disk.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_protocol::message::MessageView;
use minimq_store::io::{Disk, RealDisk, SimulatedDisk};
use minimq_store::{AppendError, AppendResult, LogRead, Store, StoreClock, StoreConfig};
use support::{message, small_config};

const MIB: u64 = 1 << 20;

/// A mounted file system; unmounted when dropped.
struct Mount(tempfile::TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

impl Mount {
    fn new(arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(arguments)
            .arg(folder.path())
            .output()
            .ok()?;
        mount.status.success().then(|| Self(folder))
    }

    fn tmpfs() -> Option<Self> {
        Self::new(&["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
    }

    /// ext4 in a file of `image`, which must outlive the mount.
    fn ext4(image: &Path) -> Option<Self> {
        std::fs::File::create(image)
            .unwrap()
            .set_len(64 * MIB)
            .unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(image)
            .output()
            .ok()?;
        if !made.status.success() {
            return None;
        }
        Self::new(&["-o", "loop", image.to_str()?])
    }
}

fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: 8 * MIB,
        mapped_file_size_consume_queue: 600_000,
        max_message_size: 1 << 20,
        // Nothing is deleted behind the test's back, and the disk is really filled.
        clean_resource_interval_ms: 3_600_000,
        // The watermark of 90 % would keep the test from ever reaching the end.
        disk_space_warning_level_ratio: 100,
        max_hash_slot_num: 1000,
        max_index_num: 50_000,
        ..small_config(root)
    }
}

/// Appends until a message is refused.
fn fill(store: &Store, stored: &mut Vec<AppendResult>, body: &[u8]) -> AppendError {
    loop {
        let mut outcomes = Vec::new();
        store.append_blocking(&[message("T", 0, body, "KEYS\u{1}k")], &mut outcomes);
        match outcomes.remove(0) {
            Ok(result) => stored.push(result),
            Err(error) => return error,
        }
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn check(store: &Store, stored: &[AppendResult], body: &[u8]) {
    let min = store.log().min_offset();
    for result in stored.iter().filter(|result| result.physical_offset >= min) {
        let read = store
            .log()
            .read(result.physical_offset, result.size as usize, true)
            .unwrap();
        let LogRead::Found(bytes) = read else {
            panic!("{result:?} is gone")
        };
        let record = MessageView::parse(bytes).unwrap();
        assert_eq!(
            (record.body(), record.queue_offset()),
            (body, result.queue_offset.get())
        );
    }
}

/// `root`: on the file system of 64 MiB. `ballast`: takes and gives back space there.
fn fill_it(disk: &Arc<dyn Disk>, root: &Path, mut ballast: impl FnMut(bool)) {
    let body = vec![0x5A; 5000];
    let mut stored = Vec::new();
    ballast(true);
    let store =
        Store::open_on(&config(root), Arc::clone(disk), StoreClock::System, |_| {}).unwrap();
    let refusal = match fill(&store, &mut stored, &body) {
        AppendError::NoNextFile(refusal) | AppendError::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert!(refusal.path.starts_with(root), "{refusal}");
    assert!(!refusal.until_restart, "{refusal}");
    assert!(stored.len() > 4000, "{} messages in 64 MiB", stored.len());
    store.log_store().flush().unwrap();
    check(&store, &stored, &body);

    // Room from outside: messages are taken again by themselves.
    ballast(false);
    let before = stored.len();
    eventually("messages are taken again", || {
        let _ = fill(&store, &mut stored, &body);
        stored.len() > before
    });
    check(&store, &stored, &body);

    // Room by deleting the oldest file.
    let before = stored.len();
    let (deleted, _) = store.log().delete_oldest_file().unwrap().unwrap();
    assert!(!disk.exists(&deleted));
    eventually("messages are taken again", || {
        let _ = fill(&store, &mut stored, &body);
        stored.len() > before
    });
    assert!(
        store
            .dispatcher()
            .wait_for(store.log().max_offset(), Duration::from_secs(60))
    );
    check(&store, &stored, &body);
    drop(store);

    // What a crash of the full store leaves is opened, and is all there.
    let store =
        Store::open_on(&config(root), Arc::clone(disk), StoreClock::System, |_| {}).unwrap();
    check(&store, &stored, &body);
    assert_eq!(store.reader().max_offset("T", 0).get(), stored.len() as i64);
    assert!(store.log().delete_oldest_file().unwrap().is_some());
    eventually("a message is taken", || {
        let mut outcomes = Vec::new();
        store.append_blocking(&[message("T", 0, &body, "")], &mut outcomes);
        outcomes.remove(0).is_ok()
    });
    store.close().unwrap();
}

fn fill_mount(mount: &Mount) {
    let ballast = mount.0.path().join("ballast");
    fill_it(
        &(Arc::new(RealDisk) as Arc<dyn Disk>),
        &mount.0.path().join("store"),
        |take| {
            if take {
                std::fs::write(&ballast, vec![1; 10 * MIB as usize]).unwrap();
            } else {
                std::fs::remove_file(&ballast).unwrap();
            }
        },
    );
}

#[test]
fn a_full_file_system_refuses_loses_nothing_and_recovers() {
    if let Some(mount) = Mount::tmpfs() {
        return fill_mount(&mount);
    }
    let disk = SimulatedDisk::new();
    let handle = disk.clone();
    fill_it(
        &(Arc::new(disk) as Arc<dyn Disk>),
        Path::new("/s"),
        move |take| {
            handle.set_capacity(Some(if take { 54 } else { 64 } * MIB));
        },
    );
}

#[test]
fn so_does_a_full_ext4() {
    let folder = tempfile::tempdir().unwrap();
    match Mount::ext4(&folder.path().join("image")) {
        Some(mount) => fill_mount(&mount),
        None => println!("not root, or no mkfs.ext4: not tried"),
    }
}
