//! Sends: so many requests under way on each connection, each answer followed by the next request; or a fixed rate,
//! with latencies from the time a request was meant to go.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use minimq_protocol::code::response;

use crate::frames::{FIRST_OPAQUE, Requests, Template, glance};
use crate::measure::{Meter, Report};
use crate::options::{Common, SendOptions};
use crate::peer::{Peer, Poller, call_once};

/// Without an answer for so long the run is given up.
const SILENCE: Duration = Duration::from_secs(30);

/// One connection and its requests under way: number of the request → when it was meant to go.
#[derive(Debug)]
struct Sender {
    peer: Peer,
    began: Vec<Instant>,
    /// Numbers that are not under way.
    free: Vec<u32>,
}

/// All connections of a run.
#[derive(Debug)]
pub struct Senders {
    senders: Vec<Sender>,
    templates: Vec<Template>,
    /// Template of the next request: queues and topics take turns.
    turn: usize,
    batch: u64,
}

impl Senders {
    /// Creates the topics and connects.
    pub fn connect(load: &SendOptions) -> anyhow::Result<Self> {
        let common = &load.common;
        let requests = Requests {
            serialize: common.headers.into(),
            queues: common.queues,
            size: common.size,
        };
        let mut templates = Vec::new();
        for number in 0..load.topics {
            let topic = match load.topics {
                1 => common.topic.clone(),
                _ => format!("{}{number}", common.topic),
            };
            call_once(common.addr, &requests.create_topic(&topic))
                .with_context(|| format!("cannot create topic {topic}"))?;
            for queue in 0..i32::from(common.queues) {
                let command = requests.send(&topic, queue, load.batch)?;
                templates.push(Template::new(command)?);
            }
        }
        let senders = (0..common.connections)
            .map(|_| {
                Ok(Sender {
                    peer: Peer::connect(common.addr)?,
                    began: vec![Instant::now(); load.in_flight as usize],
                    free: (0..load.in_flight).rev().collect(),
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            senders,
            templates,
            turn: 0,
            batch: u64::from(load.batch),
        })
    }

    /// Watches them; connection `n` is number `first + n`.
    pub fn watch(&self, poller: &Poller, first: usize) -> anyhow::Result<()> {
        for (number, sender) in self.senders.iter().enumerate() {
            poller.add_peer(&sender.peer, first + number)?;
        }
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Puts a request into the output of a connection, if another may be under way there. With a stamp, its body
    /// begins with it.
    pub fn put(&mut self, number: usize, meant: Instant, stamp: Option<u64>) -> bool {
        let turn = self.turn;
        let (Some(sender), Some(template)) =
            (self.senders.get_mut(number), self.templates.get(turn))
        else {
            return false;
        };
        let Some(request) = sender.free.pop() else {
            return false;
        };
        if let Some(began) = sender.began.get_mut(request as usize) {
            *began = meant;
        }
        match stamp {
            Some(stamp) => template.put_stamped(request, stamp, &mut sender.peer.output),
            None => template.put(request, &mut sender.peer.output),
        }
        self.turn = (turn + 1) % self.templates.len();
        true
    }

    /// Fills a connection with as many requests as may be under way.
    fn fill(&mut self, number: usize) {
        let now = Instant::now();
        while self.put(number, now, None) {}
    }

    /// Takes the answers that came on a connection; gives how many messages they are for.
    pub fn take_answers(&mut self, number: usize, meter: &mut Meter) -> anyhow::Result<u64> {
        let Some(Sender { peer, began, free }) = self.senders.get_mut(number) else {
            return Ok(0);
        };
        let now = Instant::now();
        let mut answered = 0;
        let batch = self.batch;
        let open = peer.read_frames(|frame, _| {
            let answer = glance(frame)?;
            let request = answer.opaque.wrapping_sub(FIRST_OPAQUE as u32);
            let Some(began) = began.get(request as usize) else {
                bail!("an answer to no request: opaque {}", answer.opaque);
            };
            meter.took(now.saturating_duration_since(*began));
            free.push(request);
            match answer.code {
                response::SUCCESS => answered += batch,
                code => meter.failed(|| {
                    format!(
                        "code {code}, {}",
                        String::from_utf8_lossy(frame).escape_debug()
                    )
                }),
            }
            Ok(())
        })?;
        if !open {
            bail!("the server closed a connection");
        }
        meter.messages += answered;
        Ok(answered)
    }

    /// Writes what waits on a connection.
    pub fn flush(&mut self, number: usize) -> anyhow::Result<()> {
        match self.senders.get_mut(number) {
            Some(sender) => sender.peer.flush(),
            None => Ok(()),
        }
    }
}

/// Runs the load.
pub fn run(load: &SendOptions) -> anyhow::Result<Report> {
    let mut senders = Senders::connect(load)?;
    match load.rate {
        Some(rate) => at_rate(&mut senders, load, rate),
        None => {
            let mut meter = Meter::new(load.common.pid)?;
            let mut phases = Phases::new(&load.common);
            closed_loop(&mut senders, &mut meter, |now, meter| {
                phases.goes_on(now, meter)
            })?;
            meter.report("send")
        }
    }
}

/// The warm-up and the measured part of a run.
#[derive(Debug)]
pub struct Phases {
    warm: Instant,
    seconds: Duration,
    end: Option<Instant>,
}

impl Phases {
    /// Begins now.
    pub fn new(common: &Common) -> Self {
        Self {
            warm: Instant::now() + common.warmup,
            seconds: common.seconds,
            end: None,
        }
    }

    /// Whether the run goes on; starts the meter anew when the warm-up is over. The measured part is never cut short
    /// by a warm-up that took longer.
    pub fn goes_on(&mut self, now: Instant, meter: &mut Meter) -> anyhow::Result<bool> {
        match self.end {
            Some(end) => Ok(now < end),
            None => {
                if now >= self.warm {
                    meter.restart()?;
                    self.end = Some(now + self.seconds);
                }
                Ok(true)
            }
        }
    }
}

/// Sends so many messages, for what comes after; gives how many were stored.
pub fn fill(load: &SendOptions, count: u64) -> anyhow::Result<u64> {
    let mut senders = Senders::connect(load)?;
    let mut meter = Meter::new(None)?;
    closed_loop(&mut senders, &mut meter, |_, meter| {
        Ok(meter.messages < count)
    })?;
    if meter.failures > 0 {
        bail!(
            "filling failed: {}",
            meter.first_failure.unwrap_or_default()
        );
    }
    Ok(meter.messages)
}

/// Keeps all connections full as long as `goes_on` says.
fn closed_loop(
    senders: &mut Senders,
    meter: &mut Meter,
    mut goes_on: impl FnMut(Instant, &mut Meter) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut poller = Poller::new()?;
    senders.watch(&poller, 0)?;
    for number in 0..senders.len() {
        senders.fill(number);
        senders.flush(number)?;
    }
    let mut ready = Vec::new();
    let mut last_answer = Instant::now();
    loop {
        let now = Instant::now();
        if !goes_on(now, meter)? {
            return Ok(());
        }
        if now.duration_since(last_answer) > SILENCE {
            bail!("no answer for {} s", SILENCE.as_secs());
        }
        ready.clear();
        ready.extend(poller.wait(Duration::from_millis(100))?);
        for number in &ready {
            if senders.take_answers(*number, meter)? > 0 {
                last_answer = now;
            }
            senders.fill(*number);
            senders.flush(*number)?;
        }
    }
}

/// When requests are meant to go: evenly, from a begin.
#[derive(Debug)]
pub struct Schedule {
    begin: Instant,
    every: Duration,
    next: u32,
    /// Meant to have gone, and no connection had room.
    late: VecDeque<Instant>,
}

impl Schedule {
    /// So many a second from now on.
    pub fn new(rate: u32) -> Self {
        Self {
            begin: Instant::now(),
            every: Duration::from_secs(1) / rate,
            next: 0,
            late: VecDeque::new(),
        }
    }

    fn next_time(&self) -> Instant {
        self.begin + self.every * self.next
    }

    /// The time of the next request that should have gone by now.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        if let Some(late) = self.late.pop_front() {
            return Some(late);
        }
        let time = self.next_time();
        (time <= now).then(|| {
            self.next += 1;
            time
        })
    }

    /// There was no room for a request: it is the next one again.
    pub fn put_back(&mut self, time: Instant) {
        self.late.push_front(time);
    }

    /// How long to sleep before the next request. Not at all if it is near: timers of a virtual machine are up to some
    /// tenths of a millisecond late, which is not the server's latency.
    pub fn left(&self, now: Instant) -> Duration {
        match self.late.is_empty() {
            true => self
                .next_time()
                .saturating_duration_since(now)
                .saturating_sub(NEAR),
            // An answer makes room.
            false => Duration::from_millis(100),
        }
    }
}

/// From here on the next request's time is waited for awake.
const NEAR: Duration = Duration::from_micros(60);

fn at_rate(senders: &mut Senders, load: &SendOptions, rate: u32) -> anyhow::Result<Report> {
    let mut meter = Meter::new(load.common.pid)?;
    let mut poller = Poller::new()?;
    senders.watch(&poller, 0)?;
    let mut schedule = Schedule::new(rate);
    let mut phases = Phases::new(&load.common);
    let mut connection = 0;
    let mut ready = Vec::new();
    loop {
        let now = Instant::now();
        if !phases.goes_on(now, &mut meter)? {
            return meter.report("send at a fixed rate");
        }
        while let Some(meant) = schedule.due(now) {
            connection = (connection + 1) % senders.len();
            if !senders.put(connection, meant, None) {
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
            senders.take_answers(*number, &mut meter)?;
            senders.flush(*number)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_even_and_forgets_nothing() {
        let mut schedule = Schedule::new(1000);
        let begin = schedule.begin;
        let later = begin + Duration::from_micros(3_500);
        let first = schedule.due(later).unwrap();
        assert_eq!(first, begin);
        schedule.put_back(first);
        let ms = |n| begin + Duration::from_millis(n);
        let due: Vec<_> = std::iter::from_fn(|| schedule.due(later)).collect();
        assert_eq!(due, [ms(0), ms(1), ms(2), ms(3)]);
        assert_eq!(schedule.left(later), Duration::from_micros(500) - NEAR);
        assert_eq!(schedule.left(ms(4) - NEAR / 2), Duration::ZERO);
    }
}
