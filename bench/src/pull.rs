//! Pulls queues empty: each queue is pulled on one connection, the next pull follows its answer.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use minimq_protocol::code::response;
use minimq_protocol::header::PullMessageResponse;
use minimq_protocol::{Command, frame};

use crate::frames::{FIRST_OPAQUE, Requests, count_records};
use crate::measure::{Meter, Report};
use crate::options::{Common, PullOptions, SendOptions};
use crate::peer::{Peer, Poller};
use crate::send;

/// One queue and where it is pulled next. Its number is the opaque of its pulls.
#[derive(Debug)]
struct Queue {
    id: i32,
    began: Instant,
    ended: bool,
}

fn put_pull(
    requests: &Requests,
    load: &PullOptions,
    queue: &mut Queue,
    offset: i64,
    out: &mut Vec<u8>,
) {
    queue.began = Instant::now();
    let mut command = requests.pull(&load.common.topic, queue.id, offset, load.max, None);
    command.opaque = FIRST_OPAQUE + queue.id;
    out.extend_from_slice(&command.to_frame());
}

/// Runs the load: fills the queues, then empties them.
pub fn run(load: &PullOptions) -> anyhow::Result<Report> {
    let common = &load.common;
    if load.prefill > 0 {
        send::fill(&filling(common), load.prefill)?;
    }
    let requests = Requests {
        serialize: common.headers.into(),
        queues: common.queues,
        size: common.size,
    };
    let connections = usize::from(common.connections.min(common.queues));
    let mut poller = Poller::new()?;
    let mut peers = Vec::new();
    for number in 0..connections {
        let peer = Peer::connect(common.addr)?;
        poller.add_peer(&peer, number)?;
        peers.push(peer);
    }
    let mut queues: Vec<Queue> = (0..i32::from(common.queues))
        .map(|id| Queue {
            id,
            began: Instant::now(),
            ended: false,
        })
        .collect();
    let mut meter = Meter::new(common.pid)?;
    for (number, queue) in queues.iter_mut().enumerate() {
        let peer = number % connections;
        if let Some(peer) = peers.get_mut(peer) {
            put_pull(&requests, load, queue, 0, &mut peer.output);
            peer.flush()?;
        }
    }
    let end = Instant::now() + common.seconds;
    let mut ready = Vec::new();
    while queues.iter().any(|queue| !queue.ended) && Instant::now() < end {
        ready.clear();
        ready.extend(poller.wait(Duration::from_millis(100))?);
        for number in &ready {
            let Some(peer) = peers.get_mut(*number) else {
                continue;
            };
            let open = peer.read_frames(|frame, out| {
                let (answer, body) = head_and_body(frame)?;
                let queue = usize::try_from(answer.opaque.wrapping_sub(FIRST_OPAQUE)).ok();
                let queue = queue
                    .and_then(|queue| queues.get_mut(queue))
                    .context("an answer to no request")?;
                meter.took(queue.began.elapsed());
                let header = answer.header::<PullMessageResponse>();
                match answer.code {
                    response::SUCCESS => {
                        meter.messages += count_records(body);
                        put_pull(&requests, load, queue, header?.next_begin_offset, out);
                    }
                    response::PULL_NOT_FOUND => queue.ended = true,
                    response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                        put_pull(&requests, load, queue, header?.next_begin_offset, out);
                    }
                    code => {
                        queue.ended = true;
                        meter.failed(|| format!("code {code}: {}", answer.remark()));
                    }
                }
                Ok(())
            })?;
            if !open {
                bail!("the server closed a connection");
            }
            peer.flush()?;
        }
    }
    meter.report("pull")
}

/// A frame's command without its body, which stays where it is.
pub(crate) fn head_and_body(frame: &[u8]) -> anyhow::Result<(Command, &[u8])> {
    let header_len = match frame {
        [_, _, _, _, _, a, b, c, ..] => u32::from_be_bytes([0, *a, *b, *c]) as usize,
        _ => bail!("a frame of {} bytes", frame.len()),
    };
    let (head, body) = frame
        .split_at_checked(8 + header_len)
        .context("a header longer than its frame")?;
    let mut own = head.to_vec();
    if let Some(length) = own.first_chunk_mut() {
        *length = (header_len as u32 + 4).to_be_bytes();
    }
    Ok((frame::parse(Bytes::from(own))?, body))
}

/// The sends that fill the queues.
fn filling(common: &Common) -> SendOptions {
    SendOptions {
        common: Common {
            topic: common.topic.clone(),
            ..*common
        },
        in_flight: 64,
        batch: 1,
        topics: 1,
        rate: None,
    }
}
