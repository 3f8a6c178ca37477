//! Sends at a fixed rate, alone or beside a consumer that reads old messages from the start of the log over and over:
//! what reading from the disk costs those who send.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use minimq_protocol::code::response;
use minimq_protocol::header::PullMessageResponse;
use rustix::fs::{Advice, fadvise};

use crate::frames::{FIRST_OPAQUE, Requests, count_records};
use crate::measure::Report;
use crate::options::{ColdOptions, Common, SendOptions};
use crate::peer::{Peer, Poller};
use crate::pull::head_and_body;
use crate::send;

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
            if let Some(store) = &self.load.store {
                drop_pages(store, &self.topic)?;
            }
        }
        self.peer.flush()
    }
}

fn put_pull(requests: &Requests, topic: &str, (id, offset): (i32, i64), out: &mut Vec<u8>) {
    let mut command = requests.pull(topic, id, offset, MAX, None);
    command.opaque = FIRST_OPAQUE + id;
    out.extend_from_slice(&command.to_frame());
}

/// Has the kernel forget what it keeps of a store's log and of a topic's queues, so that reading them goes to the disk.
fn drop_pages(store: &Path, topic: &str) -> anyhow::Result<()> {
    for_each_file(store, topic, &|file| {
        Ok(fadvise(file, 0, None, Advice::DontNeed)?)
    })
}

/// Opens each file of the log and of a topic's queues.
fn for_each_file(
    store: &Path,
    topic: &str,
    act: &dyn Fn(&File) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    for_each_file_under(&store.join("commitlog"), act)?;
    for_each_file_under(&store.join("consumequeue").join(topic), act)
}

fn for_each_file_under(
    path: &Path,
    act: &dyn Fn(&File) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let describe = || path.display().to_string();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).with_context(describe)? {
            for_each_file_under(&entry.with_context(describe)?.path(), act)?;
        }
        return Ok(());
    }
    File::open(path)
        .and_then(|file| act(&file))
        .with_context(describe)
}

/// Runs the load: fills queues, then sends.
pub fn run(load: &ColdOptions) -> anyhow::Result<Cold> {
    let common = &load.common;
    let topic = format!("{}Cold", common.topic);
    if load.prefill > 0 {
        send::fill(&sending(common, &topic, None), load.prefill)?;
    }
    if let Some(store) = &load.store {
        // Only what is on the disk can be dropped.
        for_each_file(store, &topic, &|file| file.sync_data())?;
        drop_pages(store, &topic)?;
    }

    // A thread of its own: what the reader takes is no part of the senders' time.
    let stop = AtomicBool::new(false);
    let (report, read) = std::thread::scope(|scope| {
        let reader = (!load.alone).then(|| scope.spawn(|| read_until(load, topic, &stop)));
        let report = send::run(&sending(common, &common.topic, Some(load.rate)));
        stop.store(true, Ordering::Relaxed);
        let read = match reader.map(std::thread::ScopedJoinHandle::join) {
            None => Ok(0),
            Some(Ok(read)) => read,
            Some(Err(_)) => Err(anyhow!("the consumer of old messages panicked")),
        };
        (report, read)
    });
    let (mut report, read) = (report?, read?);
    if !load.alone {
        if read == 0 {
            bail!("the consumer got no message");
        }
        report.what = "send at a fixed rate, beside a consumer of old messages";
    }
    Ok(Cold { report, read })
}

/// Reads old messages until told to stop; gives how many.
fn read_until(load: &ColdOptions, topic: String, stop: &AtomicBool) -> anyhow::Result<u64> {
    let mut reader = Reader::connect(load, topic)?;
    let mut poller = Poller::new()?;
    poller.add_peer(&reader.peer, 0)?;
    reader.begin()?;
    while !stop.load(Ordering::Relaxed) {
        if poller.wait(Duration::from_millis(100))?.next().is_some() {
            reader.go_on()?;
        }
    }
    Ok(reader.read)
}

fn sending(common: &Common, topic: &str, rate: Option<u32>) -> SendOptions {
    SendOptions {
        common: Common {
            topic: topic.to_owned(),
            ..*common
        },
        in_flight: 256,
        batch: 1,
        topics: 1,
        rate,
    }
}
