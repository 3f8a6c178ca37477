//! The producer's unique key of a message, property `UNIQ_KEY` (wire spec 7.6, client spec 3.3).
//!
//! Servers treat it as an opaque text; tools read the time from it to know where to search.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU16, Ordering};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::hex;
use crate::message_id::MAX_ID_LEN;

/// Bytes of a key behind the address: process, salt, time, counter.
const TAIL_LEN: usize = 12;

/// How far the clock may step back over the start of the month and still count as the start of it.
const CLOCK_STEP_MS: i64 = 1_000_000;

/// Makes unique keys; one a process.
#[derive(Debug)]
pub struct UniqueKeyGenerator {
    ip: IpAddr,
    pid: u16,
    salt: u32,
    zone: TimeZone,
    month: RwLock<Month>,
    counter: AtomicU16,
}

/// A month in ms since 1970: its first moment and that of the next one.
#[derive(Clone, Copy, Debug)]
struct Month {
    start: i64,
    end: i64,
}

impl UniqueKeyGenerator {
    /// `salt` is any number that differs between processes; `zone` should be the system's, in which tools read the time.
    #[must_use]
    pub fn new(ip: IpAddr, pid: u32, salt: u32, zone: TimeZone) -> Self {
        // The low 16 bits on purpose. An empty month makes the first key compute it.
        let month = RwLock::new(Month {
            start: 0,
            end: i64::MIN,
        });
        Self {
            ip,
            pid: pid as u16,
            salt,
            zone,
            month,
            counter: AtomicU16::new(0),
        }
    }

    /// A new key at `now` (ms since 1970), 32 characters for IPv4 and 56 for IPv6.
    #[must_use]
    pub fn next(&self, now: i64) -> String {
        self.write(now, &mut [0; MAX_ID_LEN]).to_owned()
    }

    /// As [`next`](Self::next), into a buffer, without allocating.
    pub fn write<'a>(&self, now: i64, buffer: &'a mut [u8; MAX_ID_LEN]) -> &'a str {
        let since = match now.saturating_sub(self.month_start(now)) {
            since @ 0.. => since,
            since if since > -CLOCK_STEP_MS => 0,
            since => since,
        };
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut key = [0; MAX_ID_LEN / 2];
        let (address, tail) = match self.ip {
            IpAddr::V4(ip) => {
                let (address, tail) = key.split_at_mut(4);
                address.copy_from_slice(&ip.octets());
                (4, tail)
            }
            IpAddr::V6(ip) => {
                let (address, tail) = key.split_at_mut(16);
                address.copy_from_slice(&ip.octets());
                (16, tail)
            }
        };
        tail[..2].copy_from_slice(&self.pid.to_be_bytes());
        tail[2..6].copy_from_slice(&self.salt.to_be_bytes());
        // The low 32 bits: a month has at most 2,678,400,000 ms.
        tail[6..10].copy_from_slice(&(since as u32).to_be_bytes());
        tail[10..TAIL_LEN].copy_from_slice(&counter.to_be_bytes());
        hex::write(&key[..address + TAIL_LEN], buffer).unwrap_or_default()
    }

    fn month_start(&self, now: i64) -> i64 {
        let month = *self
            .month
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if now < month.end {
            return month.start;
        }
        // A time that no calendar knows counts from itself.
        let month = month_of(now, &self.zone).unwrap_or(Month {
            start: now,
            end: now,
        });
        *self
            .month
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = month;
        month.start
    }
}

/// What a unique key says, if it is one of RocketMQ's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    /// Address of the producer, or a made-up one.
    pub ip: IpAddr,
    /// Low 16 bits of its process id.
    pub pid: u16,
    /// A number that differs between processes; 0 from Go.
    pub salt: u32,
    /// Milliseconds from the start of the month, in the producer's time zone.
    pub since_month_start_ms: u32,
    /// Count of keys in the process, low 16 bits.
    pub counter: u16,
}

impl UniqueKey {
    /// Reads a key; `None` for any other text, which may well be somebody's key.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        let mut bytes = [0; MAX_ID_LEN / 2];
        let bytes = bytes.get_mut(..key.len() / 2)?;
        hex::decode_into(key, bytes)?;
        let (ip, tail): (IpAddr, &[u8; TAIL_LEN]) = match bytes.len() {
            16 => (
                Ipv4Addr::from(*bytes.first_chunk::<4>()?).into(),
                bytes.last_chunk()?,
            ),
            28 => (
                IpAddr::from(*bytes.first_chunk::<16>()?),
                bytes.last_chunk()?,
            ),
            _ => return None,
        };
        let [p0, p1, s0, s1, s2, s3, t0, t1, t2, t3, c0, c1] = *tail;
        Some(Self {
            ip,
            pid: u16::from_be_bytes([p0, p1]),
            salt: u32::from_be_bytes([s0, s1, s2, s3]),
            since_month_start_ms: u32::from_be_bytes([t0, t1, t2, t3]),
            counter: u16::from_be_bytes([c0, c1]),
        })
    }

    /// When the key was made, in ms since 1970: in the month of `now`, or in the one before if that were in the future.
    ///
    /// A key that is older than that cannot be told from a young one.
    #[must_use]
    pub fn near_time(&self, now: i64, zone: &TimeZone) -> Option<i64> {
        let since = i64::from(self.since_month_start_ms);
        let this = month_of(now, zone)?.start;
        if this + since < now {
            return Some(this + since);
        }
        Some(month_of(this - 1, zone)?.start + since)
    }
}

fn month_of(now: i64, zone: &TimeZone) -> Option<Month> {
    let now: Zoned = Timestamp::from_millisecond(now)
        .ok()?
        .to_zoned(zone.clone());
    let start = now.first_of_month().ok()?.start_of_day().ok()?;
    let end = start.checked_add(1.month()).ok()?.start_of_day().ok()?;
    Some(Month {
        start: start.timestamp().as_millisecond(),
        end: end.timestamp().as_millisecond(),
    })
}
