//! From a producer to a consumer that waits: messages go at a fixed rate and carry the time they were meant to go, each
//! queue is pulled by a pull that the broker holds until there is something.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use minimq_protocol::code::response;
use minimq_protocol::frame;
use minimq_protocol::header::PullMessageResponse;
use minimq_protocol::message::split_records;

use crate::frames::{FIRST_OPAQUE, Requests};
use crate::measure::{Meter, Report};
use crate::options::{Common, E2eOptions, SendOptions};
use crate::peer::{Peer, Poller};
use crate::send::{Phases, Schedule, Senders};

/// Longest time a pull is held.
const SUSPEND_MS: i64 = 15_000;
/// Messages of a pull at most.
const MAX: u16 = 32;
/// Bytes of a body that carry the time.
const STAMP: usize = 8;

/// Runs the load.
pub fn run(load: &E2eOptions) -> anyhow::Result<Report> {
    let common = &load.common;
    if common.size < STAMP {
        bail!(
            "--size is {}, at least {STAMP} bytes carry the time",
            common.size
        );
    }
    let mut senders = Senders::connect(&sending(common))?;
    let requests = Requests {
        serialize: common.headers.into(),
        queues: common.queues,
        size: common.size,
    };
    let mut poller = Poller::new()?;
    let mut consumers = Vec::new();
    for id in 0..i32::from(common.queues) {
        let mut peer = Peer::connect(common.addr)?;
        poller.add_peer(&peer, consumers.len())?;
        // Begins behind what is there: beyond the end the broker says where the end is.
        put_pull(&requests, common, id, i64::MAX / 2, &mut peer.output);
        peer.flush()?;
        consumers.push(peer);
    }
    senders.watch(&poller, consumers.len())?;

    let origin = Instant::now();
    let mut sent = Meter::new(None)?;
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
            let stamp = meant.saturating_duration_since(origin).as_nanos() as u64;
            if !senders.put(connection, meant, Some(stamp)) {
                schedule.put_back(meant);
                break;
            }
            senders.flush(connection)?;
        }
        ready.clear();
        ready.extend(
            poller.wait(
                schedule
                    .left(Instant::now())
                    .min(Duration::from_millis(100)),
            )?,
        );
        for number in &ready {
            let Some(peer) = consumers.get_mut(*number) else {
                let number = number - consumers.len();
                senders.take_answers(number, &mut sent)?;
                senders.flush(number)?;
                continue;
            };
            let open = peer.read_frames(|frame, out| {
                let id = receive(frame, origin, &mut meter)?;
                put_pull(&requests, common, id.0, id.1, out);
                Ok(())
            })?;
            if !open {
                bail!("the server closed a connection");
            }
            peer.flush()?;
        }
    }
    meter.failures += sent.failures;
    meter.first_failure = meter.first_failure.or(sent.first_failure);
    meter.report("end to end")
}

/// Takes a pull's answer; gives its queue and the offset to go on from.
fn receive(frame: &[u8], origin: Instant, meter: &mut Meter) -> anyhow::Result<(i32, i64)> {
    let answer = frame::parse(Bytes::copy_from_slice(frame))?;
    let now = origin.elapsed();
    match answer.code {
        response::SUCCESS => {
            for record in split_records(answer.body.clone()) {
                let record = record?;
                let stamp = record
                    .body()
                    .first_chunk()
                    .context("a body without a time")?;
                let meant = Duration::from_nanos(u64::from_be_bytes(*stamp));
                meter.took(now.saturating_sub(meant));
                meter.messages += 1;
            }
        }
        response::PULL_NOT_FOUND
        | response::PULL_RETRY_IMMEDIATELY
        | response::PULL_OFFSET_MOVED => {}
        code => bail!("a pull was answered {code}: {}", answer.remark()),
    }
    let header: PullMessageResponse = answer.header()?;
    Ok((
        answer.opaque.wrapping_sub(FIRST_OPAQUE),
        header.next_begin_offset,
    ))
}

fn put_pull(requests: &Requests, common: &Common, id: i32, offset: i64, out: &mut Vec<u8>) {
    let mut command = requests.pull(&common.topic, id, offset, MAX, Some(SUSPEND_MS));
    command.opaque = FIRST_OPAQUE + id;
    out.extend_from_slice(&command.to_frame());
}

fn sending(common: &Common) -> SendOptions {
    SendOptions {
        common: Common {
            topic: common.topic.clone(),
            ..*common
        },
        in_flight: 1024,
        batch: 1,
        topics: 1,
        rate: None,
    }
}
