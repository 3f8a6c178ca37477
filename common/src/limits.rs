//! Limits the operating system sets a process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open-file limits around [`raise_open_files`]; `None` is "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit before.
    pub before: Option<u64>,
    /// The limit in force now.
    pub now: Option<u64>,
    /// The highest limit this process may give itself.
    pub hard: Option<u64>,
}

/// Raises the limit of open files (RLIMIT_NOFILE) to the hard limit. Call at start: connections and
/// mapped files each take a descriptor.
///
/// # Errors
/// The system's refusal; the old limit is in force then.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let before = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: before.maximum,
            maximum: before.maximum,
        },
    )?;
    Ok(OpenFiles {
        before: before.current,
        now: getrlimit(Resource::Nofile).current,
        hard: before.maximum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_limit_afterwards() {
        let files = raise_open_files().unwrap();
        assert_eq!(files.now, files.hard);
        assert_eq!(getrlimit(Resource::Nofile).current, files.hard);
        assert_eq!(raise_open_files().unwrap().before, files.hard);
    }
}
