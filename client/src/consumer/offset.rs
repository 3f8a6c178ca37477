//! Offsets of a consumer: where to begin (client spec 4.8), and where they are kept: at the broker, or of broadcast consumers
//! in a file (client spec 4.15).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minimq_protocol::body::{LocalOffsetTable, MessageQueue};
use minimq_protocol::name;
use parking_lot::Mutex;

use super::settings::StartFrom;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::queue_offsets::store_offset;

/// Time for a request about offsets.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Where offsets are kept.
#[derive(Debug)]
pub(crate) enum OffsetStore {
    Broker,
    File(FileOffsets),
}

impl OffsetStore {
    /// The stored offset; `None` only if it is certain that there is none.
    pub(crate) async fn read(
        &self,
        core: &Core,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<Option<i64>> {
        match self {
            Self::Broker => {
                let addr = core
                    .master_or_slave(&queue.topic, &queue.broker_name)
                    .await?;
                core.stored_offset(&addr, group, queue, TIMEOUT).await
            }
            Self::File(file) => Ok(file.read(queue)),
        }
    }

    /// Stores an offset. `answered`: waits for the broker to confirm it.
    pub(crate) async fn commit(
        &self,
        core: &Core,
        group: &str,
        queue: &MessageQueue,
        offset: i64,
        answered: bool,
    ) -> Result<()> {
        match self {
            Self::Broker => {
                let addr = core
                    .master_or_slave(&queue.topic, &queue.broker_name)
                    .await?;
                let request = store_offset(group, queue, offset);
                match answered {
                    true => core.call(&addr, request, TIMEOUT).await.map(drop),
                    false => Ok(core.remoting.oneway(&addr, request).await?),
                }
            }
            Self::File(file) => {
                file.set(queue, offset);
                Ok(())
            }
        }
    }

    /// Writes what is only in memory.
    pub(crate) async fn flush(&self) -> Result<()> {
        match self {
            Self::Broker => Ok(()),
            Self::File(file) => file.flush().await,
        }
    }
}

/// Where a consumer begins in a queue.
pub(crate) async fn start_offset(
    core: &Core,
    store: &OffsetStore,
    group: &str,
    queue: &MessageQueue,
    from: StartFrom,
) -> Result<i64> {
    if let Some(stored) = store.read(core, group, queue).await?
        && stored >= 0
    {
        return Ok(stored);
    }
    let retry = queue.topic.starts_with(name::RETRY_PREFIX);
    match from {
        StartFrom::Beginning => Ok(0),
        // What failed before must be tried again, wherever the group begins in its topics.
        StartFrom::End | StartFrom::Time(_) if retry => Ok(0),
        StartFrom::End => core.max_offset(queue, TIMEOUT).await,
        StartFrom::Time(timestamp) => core.offset_at(queue, timestamp, TIMEOUT).await,
    }
}

/// The file `offsets.json` of one group. Its folder does not depend on the client's address, so that offsets outlive a move.
#[derive(Debug)]
pub(crate) struct FileOffsets {
    path: PathBuf,
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    offsets: BTreeMap<MessageQueue, i64>,
    changed: bool,
}

impl FileOffsets {
    /// Reads `<dir>/<group>/offsets.json`, or its backup if that is missing or broken.
    pub(crate) async fn open(dir: &Path, group: &str) -> Result<Self> {
        let path = dir.join(group).join("offsets.json");
        let read_path = path.clone();
        let read = tokio::task::spawn_blocking(move || read_file(&read_path));
        let offsets = read
            .await
            .map_err(io::Error::other)
            .and_then(|read| read)
            .map_err(|source| Error::io(format!("reading {}", path.display()), source))?;
        Ok(Self {
            path,
            state: Mutex::new(FileState {
                offsets,
                changed: false,
            }),
        })
    }

    fn read(&self, queue: &MessageQueue) -> Option<i64> {
        self.state.lock().offsets.get(queue).copied()
    }

    fn set(&self, queue: &MessageQueue, offset: i64) {
        let mut state = self.state.lock();
        if state.offsets.insert(queue.clone(), offset) != Some(offset) {
            state.changed = true;
        }
    }

    async fn flush(&self) -> Result<()> {
        let table = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.changed) {
                return Ok(());
            }
            LocalOffsetTable {
                offset_table: state.offsets.clone(),
            }
        };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || {
            write_file(&path, &table.to_json_pretty(LocalOffsetTable::WIRE))
        });
        let written = written
            .await
            .map_err(io::Error::other)
            .and_then(|written| written);
        written.map_err(|source| {
            self.state.lock().changed = true;
            Error::io(format!("writing {}", self.path.display()), source)
        })
    }
}

fn backup(path: &Path) -> PathBuf {
    path.with_extension("json.bak")
}

fn read_file(path: &Path) -> io::Result<BTreeMap<MessageQueue, i64>> {
    let mut broken = None;
    for path in [path.to_owned(), backup(path)] {
        match std::fs::read(&path) {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => match LocalOffsetTable::from_json(&bytes) {
                Ok(table) => return Ok(table.offset_table),
                Err(error) => broken = Some(io::Error::other(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => broken = Some(error),
        }
    }
    match broken {
        Some(error) => Err(error),
        None => Ok(BTreeMap::new()),
    }
}

/// Writes a new file, keeps the old one as backup; the file is whole at every moment.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let temporary = path.with_extension("json.tmp");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    if path.exists() {
        std::fs::copy(path, backup(path))?;
    }
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn offsets_outlive_their_process_and_a_broken_file() {
        let dir = tempfile::tempdir().unwrap();
        let queue = MessageQueue::new("t", "b", 3);
        let file = FileOffsets::open(dir.path(), "g").await.unwrap();
        assert_eq!(file.read(&queue), None);
        for offset in [7, 8] {
            file.set(&queue, offset);
            file.flush().await.unwrap();
        }
        assert_eq!(
            FileOffsets::open(dir.path(), "g")
                .await
                .unwrap()
                .read(&queue),
            Some(8)
        );
        std::fs::write(dir.path().join("g/offsets.json"), "{").unwrap();
        assert_eq!(
            FileOffsets::open(dir.path(), "g")
                .await
                .unwrap()
                .read(&queue),
            Some(7)
        );
        std::fs::write(dir.path().join("g/offsets.json.bak"), "{").unwrap();
        assert!(FileOffsets::open(dir.path(), "g").await.is_err());
    }
}
