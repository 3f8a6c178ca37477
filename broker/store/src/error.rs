//! Why the store did not open, and why a message was refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of the store as a whole. Each names the file and what was tried.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("{path}: {operation} failed: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        operation: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Another process (or this one) has the store open.
    #[error(
        "{path} is locked: another broker has this store open; stop it or set another storePathRootDir"
    )]
    Locked {
        /// The `lock` file.
        path: PathBuf,
    },
    /// A setting that cannot work.
    #[error("{key}={value}: {reason}")]
    Config {
        /// RocketMQ key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The files on disk were made with another size setting.
    #[error(
        "{path}: {len} bytes long, but {key} is {expected}; set {key} to the size the store was made with"
    )]
    FileSize {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
        /// What the setting says.
        expected: u64,
        /// The key of the setting.
        key: &'static str,
    },
    /// A file that has no business in a folder of the store.
    #[error("{path}: not a file of the store ({reason}); move it away")]
    StrayFile {
        /// The file or folder.
        path: PathBuf,
        /// Why it is none.
        reason: &'static str,
    },
    /// The store refuses writes since an earlier failure.
    #[error("{0}")]
    Refused(Arc<Refusal>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// An [`StoreError::Io`].
    pub fn io(path: impl AsRef<Path>, operation: &'static str, source: io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            operation,
            source,
        }
    }
}

/// Why the store takes no more messages: said to every sender until the reason is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Refusal {
    /// File or folder it happened at.
    pub path: PathBuf,
    /// What happened, with the system's words.
    pub reason: String,
    /// `true`: only a restart helps (a failed write or fsync: what is on disk is no longer known).
    pub until_restart: bool,
}

/// Why one message was not appended. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// MESSAGE_ILLEGAL: the body is longer than `maxMessageSize`.
    #[error("body of {len} bytes is longer than maxMessageSize {max}")]
    BodyTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// MESSAGE_ILLEGAL: the topic is empty, longer than 127 bytes, or not storable.
    #[error("topic of {len} bytes: must have 1 to 127 bytes and no zero byte")]
    TopicIllegal {
        /// Its length.
        len: usize,
    },
    /// PROPERTIES_SIZE_EXCEEDED: longer than 32767 bytes.
    #[error("properties of {len} bytes are longer than 32767")]
    PropertiesTooLong {
        /// Their length.
        len: usize,
    },
    /// MESSAGE_ILLEGAL: the properties could not be told from torn ones after a crash.
    #[error("properties are not storable: {reason}")]
    PropertiesIllegal {
        /// What is wrong.
        reason: &'static str,
    },
    /// MESSAGE_ILLEGAL: the record (or the batch as a whole) fits into no commit-log file.
    #[error(
        "{len} bytes (with 8 bytes of end mark) do not fit into a commit-log file of {file_size}"
    )]
    LargerThanFile {
        /// Length of the record or of the batch's records.
        len: u64,
        /// `mappedFileSizeCommitLog`.
        file_size: u64,
    },
    /// MESSAGE_ILLEGAL: another message of the same batch was refused, so this one is too.
    #[error("another message of the batch was refused")]
    BatchRefused,
    /// SERVICE_NOT_AVAILABLE: see the refusal.
    #[error("the store takes no messages: {0}")]
    Refused(Arc<Refusal>),
    /// CREATE_MAPEDFILE_FAILED: the next commit-log file could not be made in time.
    #[error("no next commit-log file: {0}")]
    NoNextFile(Arc<Refusal>),
    /// SERVICE_NOT_AVAILABLE: the store is closing or closed.
    #[error("the store is closed")]
    Closed,
}
