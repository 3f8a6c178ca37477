//! Sends at a fixed rate, alone or beside a consumer that reads old messages from the start of the log over and over:
//! what reading from the disk costs those who send.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use minimq_protocol::code::response;
use minimq_protocol::header::PullMessageResponse;
use rustix::fs::{Advice, fadvise};

use crate::frames::{FIRST_OPAQUE, Requests, count_records};
use crate::measure::{Meter, Report};
use crate::options::{ColdOptions, Common, SendOptions};
use crate::peer::{Peer, Poller};
use crate::pull::head_and_body;
use crate::send::{self, Phases, Schedule, Senders};

/// Messages of a pull at most.
const MAX: u16 = 32;

/// What came of it.
#[derive(Debug)]
pub struct Cold {
    /// The sends.
    pub report: Report,
    /// Old messages read meanwhile.
    pub read: u64,
}

/// The consumer of old messages: one connection, each queue is pulled to its end and then from the start again.
#[derive(Debug)]
struct Reader<'l> {
    load: &'l ColdOptions,
    requests: Requests,
    topic: String,
    peer: Peer,
    read: u64,
    /// Queues whose end was reached since pages were dropped last.
    ended: u16,
}

impl<'l> Reader<'l> {
    fn connect(load: &'l ColdOptions, topic: String) -> anyhow::Result<Self> {
        let common = &load.common;
        Ok(Self {
            load,
            requests: Requests {
                serialize: common.headers.into(),
                queues: common.queues,
                size: common.size,
            },
            topic,
            peer: Peer::connect(common.addr)?,
            read: 0,
            ended: 0,
        })
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        for id in 0..i32::from(self.load.common.queues) {
            put_pull(&self.requests, &self.topic, (id, 0), &mut self.peer.output);
        }
        self.peer.flush()
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        let Self {
            requests,
            topic,
            peer,
            read,
            ended,
            ..
        } = self;
        let open = peer.read_frames(|frame, out| {
            let (answer, body) = head_and_body(frame)?;
            let id = answer.opaque.wrapping_sub(FIRST_OPAQUE);
            let header = answer.header::<PullMessageResponse>();
            let offset = match answer.code {
                response::SUCCESS => {
                    *read += count_records(body);
                    header?.next_begin_offset
                }
                response::PULL_NOT_FOUND => {
                    *ended += 1;
                    0
                }
                response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                    header?.next_begin_offset
                }
                code => bail!("a pull was answered {code}: {}", answer.remark()),
            };
            put_pull(requests, topic, (id, offset), out);
            Ok(())
        })?;
        if !open {
            bail!("the server closed a connection");
        }
        if self.ended >= self.load.common.queues {
            self.ended = 0;
            self.load.store.as_deref().map_or(Ok(()), drop_pages)?;
        }
        self.peer.flush()
    }
}

fn put_pull(requests: &Requests, topic: &str, (id, offset): (i32, i64), out: &mut Vec<u8>) {
    let mut command = requests.pull(topic, id, offset, MAX, None);
    command.opaque = FIRST_OPAQUE + id;
    out.extend_from_slice(&command.to_frame());
}

/// Has the kernel forget what it keeps of a store's log and queues, so that reading them goes to the disk.
fn drop_pages(store: &Path) -> anyhow::Result<()> {
    for folder in ["commitlog", "consumequeue"] {
        drop_pages_under(&store.join(folder))?;
    }
    Ok(())
}

fn drop_pages_under(path: &Path) -> anyhow::Result<()> {
    let describe = || path.display().to_string();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).with_context(describe)? {
            drop_pages_under(&entry.with_context(describe)?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path).with_context(describe)?;
    // Only what is on the disk can be dropped.
    file.sync_data().with_context(describe)?;
    fadvise(&file, 0, None, Advice::DontNeed).with_context(describe)
}

/// Runs the load: fills queues, then sends.
pub fn run(load: &ColdOptions) -> anyhow::Result<Cold> {
    let common = &load.common;
    let topic = format!("{}Cold", common.topic);
    if load.prefill > 0 {
        send::fill(&sending(common, &topic), load.prefill)?;
    }
    load.store.as_deref().map_or(Ok(()), drop_pages)?;

    let mut senders = Senders::connect(&sending(common, &common.topic))?;
    let mut poller = Poller::new()?;
    senders.watch(&poller, 0)?;
    let mut reader = match load.alone {
        true => None,
        false => Some(Reader::connect(load, topic)?),
    };
    if let Some(reader) = &mut reader {
        poller.add_peer(&reader.peer, senders.len())?;
        reader.begin()?;
    }
    let mut meter = Meter::new(common.pid)?;
    let mut schedule = Schedule::new(load.rate);
    let mut phases = Phases::new(common);
    let mut connection = 0;
    let mut ready = Vec::new();
    loop {
        let now = Instant::now();
        if !phases.goes_on(now, &mut meter)? {
            break;
        }
        while let Some(meant) = schedule.due(now) {
            connection = (connection + 1) % senders.len();
            if !senders.put(connection, meant, None) {
                schedule.put_back(meant);
                break;
            }
            senders.flush(connection)?;
        }
        let left = schedule.left(Instant::now());
        ready.clear();
        ready.extend(poller.wait(left.min(Duration::from_millis(100)))?);
        // Answers first: what the reader takes of this thread is no part of their time.
        let connections = senders.len();
        for number in ready.iter().filter(|number| **number < connections) {
            senders.take_answers(*number, &mut meter)?;
            senders.flush(*number)?;
        }
        if let Some(reader) = &mut reader
            && ready.contains(&connections)
        {
            reader.go_on()?;
        }
    }
    let read = reader.as_ref().map_or(0, |reader| reader.read);
    if reader.is_some() && read == 0 {
        bail!("the consumer got no message");
    }
    let what = match load.alone {
        true => "send at a fixed rate, alone",
        false => "send at a fixed rate, beside a consumer of old messages",
    };
    Ok(Cold {
        report: meter.report(what)?,
        read,
    })
}

fn sending(common: &Common, topic: &str) -> SendOptions {
    SendOptions {
        common: Common {
            topic: topic.to_owned(),
            ..*common
        },
        in_flight: 256,
        batch: 1,
        topics: 1,
        rate: None,
    }
}
