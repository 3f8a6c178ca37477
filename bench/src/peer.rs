//! A socket of the one thread: what came and is not yet a whole frame, what waits to go; and the wait for all of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use minimq_protocol::frame::{self, Check, MAX_FRAME_LEN};
use minimq_protocol::{Command, code::response};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Room that is always there for the next read.
const READ_ROOM: usize = 256 * 1024;

/// One connection.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` that came and belong to no frame yet.
    filled: usize,
    /// Frames that wait to go.
    pub output: Vec<u8>,
    written: usize,
}

impl Peer {
    /// Takes over a socket.
    pub fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: vec![0; READ_ROOM],
            filled: 0,
            output: Vec::new(),
            written: 0,
        })
    }

    /// Connects.
    pub fn connect(addr: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(addr).with_context(|| format!("cannot connect to {addr}"))?;
        Self::new(stream)
    }

    /// Reads what has come and hands over each whole frame, with the output for what it is answered with. `false`: the
    /// other side has closed.
    pub fn read_frames(
        &mut self,
        mut on_frame: impl FnMut(&[u8], &mut Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        self.read_batches(|mut frames, output| frames.try_for_each(|frame| on_frame(frame, output)))
    }

    /// As [`read_frames`](Self::read_frames), with all whole frames of a read at once.
    pub fn read_batches(
        &mut self,
        mut on_frames: impl FnMut(Frames<'_>, &mut Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        loop {
            let Some(room) = self.input.get_mut(self.filled..) else {
                bail!("more was read than there is room for");
            };
            let (wanted, read) = match self.stream.read(room) {
                Ok(0) => return Ok(false),
                Ok(read) => (room.len(), read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read"),
            };
            self.filled += read;
            let (whole, need) = self.whole_frames()?;
            let frames = Frames(self.input.get(..whole).unwrap_or_default());
            on_frames(frames, &mut self.output)?;
            self.input.copy_within(whole..self.filled, 0);
            self.filled -= whole;
            if self.input.len() < need + READ_ROOM {
                self.input.resize(need + READ_ROOM, 0);
            }
            // A read that leaves room has taken everything; the next arrival is told of.
            if read < wanted {
                return Ok(true);
            }
        }
    }

    /// Bytes of whole frames at the input's begin, and how long the one behind them will be.
    fn whole_frames(&self) -> anyhow::Result<(usize, usize)> {
        let mut at = 0;
        loop {
            let rest = self.input.get(at..self.filled).unwrap_or_default();
            match frame::check(rest, MAX_FRAME_LEN)? {
                Check::Whole { len } => at += len,
                Check::Incomplete { need } => return Ok((at, need)),
            }
        }
    }

    /// Writes as much as is taken; the rest goes when the socket is told to be writable.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        while let Some(rest) = self
            .output
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match self.stream.write(rest) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot write"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}

/// Whole frames, one behind the other.
#[derive(Debug, Clone)]
pub struct Frames<'f>(&'f [u8]);

impl<'f> Iterator for Frames<'f> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<&'f [u8]> {
        let word = self.0.first_chunk::<4>()?;
        let (frame, rest) = self
            .0
            .split_at_checked(u32::from_be_bytes(*word) as usize + 4)?;
        self.0 = rest;
        Some(frame)
    }
}

/// One request and its answer on a connection of its own, for setting up; refuses answers other than 0.
pub fn call_once(addr: SocketAddr, command: &Command) -> anyhow::Result<Command> {
    let mut stream =
        TcpStream::connect(addr).with_context(|| format!("cannot connect to {addr}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&command.to_frame())?;
    let mut input = Vec::new();
    let mut part = [0; 4096];
    loop {
        if let Check::Whole { len } = frame::check(&input, MAX_FRAME_LEN)? {
            input.truncate(len);
            let answer = frame::parse(Bytes::from(input))?;
            if answer.code != response::SUCCESS {
                bail!("code {}: {}", answer.code, answer.remark());
            }
            return Ok(answer);
        }
        match stream.read(&mut part)? {
            0 => bail!("{addr} closed the connection"),
            read => input.extend_from_slice(part.get(..read).unwrap_or_default()),
        }
    }
}

/// Waits for sockets. All are watched for both directions and told of once for each change.
pub struct Poller {
    epoll: OwnedFd,
    /// For waits that end between the milliseconds in which epoll counts.
    timer: OwnedFd,
    events: Vec<epoll::Event>,
}

/// Number of the poller's own timer.
const TIMER: u64 = u64::MAX;

impl Poller {
    /// Watches nothing yet.
    pub fn new() -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let data = epoll::EventData::new_u64(TIMER);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, data, flags)?;
        Ok(Self {
            epoll,
            timer,
            events: Vec::with_capacity(1024),
        })
    }

    /// Watches a socket under this number.
    pub fn add(&self, source: impl AsFd, number: usize) -> anyhow::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(&self.epoll, source, data, flags)?)
    }

    /// Watches a connection under this number.
    pub fn add_peer(&self, peer: &Peer, number: usize) -> anyhow::Result<()> {
        self.add(&peer.stream, number)
    }

    /// Waits at most so long; gives the numbers of those with something to do.
    pub fn wait(&mut self, limit: Duration) -> anyhow::Result<impl Iterator<Item = usize>> {
        // Epoll rounds up to whole milliseconds: the timer comes before. Waits that are whole cost no further call.
        if !limit.subsec_nanos().is_multiple_of(1_000_000) {
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec::try_from(limit)?,
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        }
        let limit = Timespec::try_from(limit)?;
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, room, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for sockets"),
        }
        Ok(self
            .events
            .iter()
            .map(|event| event.data.u64())
            .filter(|number| *number != TIMER)
            .map(|number| number as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_of_a_part_of_a_millisecond_is_not_rounded_up_to_one() {
        let mut poller = Poller::new().unwrap();
        let limit = Duration::from_micros(100);
        let waits = (0..50).map(|_| {
            let begun = Instant::now();
            assert_eq!(poller.wait(limit).unwrap().count(), 0);
            begun.elapsed()
        });
        let shortest = waits.min().unwrap();
        assert!(shortest < Duration::from_micros(900), "{shortest:?}");
    }
}
