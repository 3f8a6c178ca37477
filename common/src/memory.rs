//! Memory of a process as the kernel counts it, for runtime statistics, benchmarks and tests.
//! Anonymous pages (heap, stacks) are what memory goals are about; mapped files are reported apart.

use std::fmt::Display;
use std::io;

/// Resident memory in bytes, from `/proc/PID/status`. A line the kernel does not print counts 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous pages (`RssAnon`).
    pub rss_anon: u64,
    /// Pages of mapped files (`RssFile`).
    pub rss_file: u64,
    /// Shared memory, tmpfs mappings included (`RssShmem`).
    pub rss_shmem: u64,
    /// All resident pages (`VmRSS`).
    pub rss: u64,
    /// The most that was ever resident (`VmHWM`).
    pub high_water: u64,
    /// Swapped-out anonymous pages (`VmSwap`).
    pub swapped: u64,
}

impl Memory {
    /// Memory of this process.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn of_self() -> io::Result<Self> {
        Self::read("self")
    }

    /// Memory of the process with this id.
    ///
    /// # Errors
    /// There is no such process, or `/proc` is not mounted.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(pid)
    }

    fn read(process: impl Display) -> io::Result<Self> {
        let path = format!("/proc/{process}/status");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot read {path}: {error}"))
        })?;
        Ok(Self::parse(&text))
    }

    fn parse(status: &str) -> Self {
        let mut memory = Self::default();
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let place = match name {
                "RssAnon" => &mut memory.rss_anon,
                "RssFile" => &mut memory.rss_file,
                "RssShmem" => &mut memory.rss_shmem,
                "VmRSS" => &mut memory.rss,
                "VmHWM" => &mut memory.high_water,
                "VmSwap" => &mut memory.swapped,
                _ => continue,
            };
            let kib: Option<u64> = value
                .trim()
                .strip_suffix("kB")
                .and_then(|n| n.trim().parse().ok());
            *place = kib.unwrap_or(0).saturating_mul(1024);
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_are_read_in_kib() {
        let text = "Name:\tx\nVmHWM:\t    9 kB\nVmRSS:\t 8 kB\nRssAnon:\t 5 kB\nRssFile:\t 2 kB\nRssShmem:\t1 kB\n";
        let expected = Memory {
            rss_anon: 5120,
            rss_file: 2048,
            rss_shmem: 1024,
            rss: 8192,
            high_water: 9216,
            swapped: 0,
        };
        assert_eq!(Memory::parse(text), expected);
    }

    #[test]
    fn memory_that_is_used_is_seen() {
        let before = Memory::of_self().unwrap();
        let block = vec![1u8; 32 << 20];
        let after = Memory::of(std::process::id()).unwrap();
        assert!(
            after.rss_anon >= before.rss_anon + (30 << 20),
            "{before:?} {after:?}"
        );
        assert!(after.high_water >= after.rss_anon);
        assert_eq!(block[block.len() - 1], 1);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_with_its_path() {
        let error = Memory::of(u32::MAX).unwrap_err();
        assert!(
            error.to_string().contains("/proc/4294967295/status"),
            "{error}"
        );
    }
}
