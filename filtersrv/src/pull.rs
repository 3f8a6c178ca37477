//! PULL_MESSAGE (filter server spec 11): the pull goes on to the broker as the consumer's own group, what comes runs
//! through the filter, and what the filter wants goes to the consumer. While nothing does, the server pulls on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{PullMessageRequest, PullMessageResponse};
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_protocol::{Command, SerializeType};
use minimq_remoting::{Answers, Responder};
use tokio_util::sync::CancellationToken;

use crate::active_filter::{ActiveFilter, Key};
use crate::batch::End;
use crate::filter_registry::Choice;
use crate::flow::Permit;
use crate::server::State;

/// The broker holds a pull for at most this time.
const LONGEST_SUSPEND: Duration = Duration::from_secs(19);
/// While nothing matches the server pulls on, for so many batches and so long.
const LOOP_BATCHES: usize = 16;
const LOOP_TIME: Duration = Duration::from_millis(500);
/// The broker's answer is awaited so long beyond the time that it may hold the pull.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// A pull without a filter waits so long for an upload.
const UPLOAD_WAIT: Duration = Duration::from_secs(1);
/// The original's group, for pullAsOwnGroup=false.
const SERVER_GROUP: &str = "FILTERSRV_CONSUMER";

/// A pull, apart from the buffer it came in.
#[derive(Debug)]
struct Pull {
    key: Key,
    connection: u64,
    queue_id: i32,
    offset: i64,
    count: i32,
    suspend: Duration,
    /// Offset to be stored for the group.
    commit: Option<i64>,
    sub_version: i64,
}

/// What is answered.
#[derive(Debug)]
struct Answer {
    code: i32,
    remark: Option<String>,
    header: Option<PullMessageResponse>,
    records: Vec<Bytes>,
}

impl Answer {
    fn refusal(code: i32, remark: String) -> Self {
        Self {
            code,
            remark: Some(remark),
            header: None,
            records: Vec::new(),
        }
    }

    fn error(remark: String) -> Self {
        Self::refusal(response::SYSTEM_ERROR, remark)
    }
}

/// Offsets told so far in a pull.
#[derive(Debug)]
struct Offsets {
    begin: i64,
    next: i64,
    min: i64,
    max: i64,
}

impl Offsets {
    fn progressed(&self) -> bool {
        self.next > self.begin
    }

    fn answer(&self, code: i32, records: Vec<Bytes>) -> Answer {
        let header = PullMessageResponse {
            suggest_which_broker_id: 0,
            next_begin_offset: self.next,
            min_offset: self.min,
            max_offset: self.max,
        };
        Answer {
            code,
            remark: None,
            header: Some(header),
            records,
        }
    }

    /// Nothing for the consumer up to here, and there may be more.
    fn nothing_yet(&self) -> Answer {
        self.answer(response::PULL_RETRY_IMMEDIATELY, Vec::new())
    }

    /// What was passed over counts, even if the rest failed.
    fn or_progress(&self, failed: Answer) -> Answer {
        if self.progressed() {
            self.nothing_yet()
        } else {
            failed
        }
    }
}

/// Code 11. `gone` fires when the connection ends.
pub(crate) fn pull(
    state: &Arc<State>,
    gone: &CancellationToken,
    command: &Command,
    answers: &mut Answers<'_>,
) {
    let id = command.id();
    let connection = answers.connection().id();
    let pull = match parse(command, connection) {
        Ok(pull) => pull,
        Err(remark) => return answers.refuse(id, response::SYSTEM_ERROR, &remark),
    };
    let permit = match state.flow.begin(&pull.key.group) {
        Ok(permit) => permit,
        Err(remark) => return answers.refuse(id, response::SYSTEM_BUSY, &remark),
    };
    let responder = answers.later(id);
    let (state, gone) = (state.clone(), gone.clone());
    tokio::spawn(async move {
        let serving = serve(&state, pull, permit);
        if let Some((answer, permit)) = gone.run_until_cancelled(serving).await {
            respond(responder, answer, permit);
        }
    });
}

fn parse(command: &Command, connection: u64) -> Result<Pull, String> {
    let header: PullMessageRequest<'_> = command.header().map_err(|error| error.to_string())?;
    if header.queue_offset < 0 {
        return Err(format!(
            "queueOffset is {}, it must not be negative",
            header.queue_offset
        ));
    }
    if header.max_msg_nums <= 0 {
        return Err(format!(
            "maxMsgNums is {}, it must be positive",
            header.max_msg_nums
        ));
    }
    let has = |bit| pull_flag::has(header.sys_flag, bit);
    let suspend = if has(pull_flag::SUSPEND) {
        header.suspend_timeout_millis.max(0) as u64
    } else {
        0
    };
    Ok(Pull {
        key: Key {
            topic: header.topic.into(),
            group: header.consumer_group.into(),
        },
        connection,
        queue_id: header.queue_id,
        offset: header.queue_offset,
        count: header.max_msg_nums,
        suspend: Duration::from_millis(suspend).min(LONGEST_SUSPEND),
        commit: has(pull_flag::COMMIT_OFFSET).then_some(header.commit_offset),
        sub_version: header.sub_version,
    })
}

fn respond(responder: Responder, mut answer: Answer, permit: Permit) {
    // All records are parts of one buffer, which lives as long as one of them waits to be written.
    if let Some(largest) = answer.records.iter_mut().max_by_key(|part| part.len()) {
        *largest = permit.until_taken(std::mem::take(largest));
    }
    responder.respond_head(
        answer.code,
        answer.remark.as_deref(),
        answer.header.as_ref(),
        &answer.records,
    );
}

async fn serve(state: &State, pull: Pull, mut permit: Permit) -> (Answer, Permit) {
    let answer = match filter_for(state, &pull).await {
        Ok(filter) => pull_on(state, &pull, &filter, &mut permit).await,
        Err(answer) => answer,
    };
    (answer, permit)
}

/// The filter of this pull; waits a moment for an upload if there is none.
async fn filter_for(state: &State, pull: &Pull) -> Result<Arc<ActiveFilter>, Answer> {
    if state.stop.is_cancelled() {
        return Err(Answer::error(
            "the filter server is stopping; pull from another one".to_owned(),
        ));
    }
    if state.registration.broker().is_none() {
        return Err(Answer::error(format!(
            "the filter server is not registered with its broker {} yet; pull again later",
            state.config.connect_which_broker
        )));
    }
    let deadline = tokio::time::Instant::now() + UPLOAD_WAIT;
    let filter = loop {
        let uploaded = state.uploaded.notified();
        tokio::pin!(uploaded);
        uploaded.as_mut().enable();
        let choice = state
            .registry
            .lock()
            .choose(pull.connection, &pull.key, Instant::now());
        if let Choice::Filter(filter) = choice {
            break filter;
        }
        if tokio::time::timeout_at(deadline, uploaded).await.is_err() {
            return Err(Answer::error(why_none(&choice, &pull.key)));
        }
    };
    match filter.backs_off(Instant::now()) {
        None => Ok(filter),
        Some(wait) => Err(Answer::error(format!(
            "do Message Filter Exception, {} the filter is not run for another {} ms, since it failed: {}",
            pull.key,
            wait.as_millis().max(1),
            filter.last_error().unwrap_or_default()
        ))),
    }
}

fn why_none(choice: &Choice, key: &Key) -> String {
    match choice {
        Choice::NoClass(why) => {
            let why = why
                .as_deref()
                .unwrap_or("the repository has not been asked yet");
            format!("Find Filter class failed, registered but no class: {why}, {key}")
        }
        Choice::None(Some(why)) => {
            format!(
                "Find Filter class failed, not registered: the upload was refused: {why}, {key}"
            )
        }
        Choice::Ambiguous => format!(
            "Find Filter class failed, upload first: members of the group use different filters and this connection has uploaded none, {key}"
        ),
        Choice::None(None) | Choice::Filter(_) => {
            format!("Find Filter class failed, not registered, upload first, {key}")
        }
    }
}

async fn pull_on(
    state: &State,
    pull: &Pull,
    filter: &Arc<ActiveFilter>,
    permit: &mut Permit,
) -> Answer {
    let begin = Instant::now();
    let mut offsets = Offsets {
        begin: pull.offset,
        next: pull.offset,
        min: 0,
        max: 0,
    };
    for round in 0..LOOP_BATCHES {
        let elapsed = begin.elapsed();
        if round > 0 && elapsed >= LOOP_TIME {
            break;
        }
        let suspend = if round == 0 {
            pull.suspend
        } else {
            pull.suspend.min(LOOP_TIME).saturating_sub(elapsed)
        };
        let request = forward(state, pull, offsets.next, suspend, round == 0);
        let broker = &state.config.connect_which_broker;
        let call = state.client.call(broker, request, suspend + ANSWER_TIME);
        let answered = tokio::select! {
            answered = call => answered,
            () = state.stop.cancelled() => return offsets.nothing_yet(),
        };
        let command = match answered {
            Ok(command) => command,
            Err(error) => {
                return offsets
                    .or_progress(Answer::error(format!("Pull Callback Exception, {error}")));
            }
        };
        match after_answer(state, filter, &command, &mut offsets, permit).await {
            Step::On => {}
            Step::Answer(answer) => return answer,
        }
    }
    offsets.nothing_yet()
}

/// What follows from one answer of the broker.
enum Step {
    /// Nothing for the consumer: pull on.
    On,
    /// This is the answer.
    Answer(Answer),
}

async fn after_answer(
    state: &State,
    filter: &Arc<ActiveFilter>,
    command: &Command,
    offsets: &mut Offsets,
    permit: &mut Permit,
) -> Step {
    let code = command.code;
    let known = [
        response::SUCCESS,
        response::PULL_NOT_FOUND,
        response::PULL_RETRY_IMMEDIATELY,
        response::PULL_OFFSET_MOVED,
    ];
    if !known.contains(&code) {
        let failed = Answer::error(format!(
            "Pull Callback Exception, CODE: {code} DESC: {}",
            command.remark()
        ));
        return Step::Answer(offsets.or_progress(failed));
    }
    let header: PullMessageResponse = match command.header() {
        Ok(header) => header,
        Err(error) => {
            let failed = Answer::error(format!(
                "Pull Callback Exception, the broker's answer {code}: {error}"
            ));
            return Step::Answer(offsets.or_progress(failed));
        }
    };
    (offsets.min, offsets.max) = (header.min_offset, header.max_offset);
    if code != response::SUCCESS {
        // What was passed over goes first; the consumer's next pull meets the same answer again.
        return Step::Answer(if offsets.progressed() {
            offsets.nothing_yet()
        } else {
            offsets.next = header.next_begin_offset;
            offsets.answer(code, Vec::new())
        });
    }
    if let Err(overload) = permit.hold(command.body.len()) {
        return Step::Answer(offsets.or_progress(Answer::refusal(response::SYSTEM_BUSY, overload)));
    }
    let batch = match state.batches.run(filter, command.body.clone()).await {
        Ok(batch) => batch,
        Err(reason) => {
            return Step::Answer(offsets.or_progress(failure(offsets, &filter.key, &reason)));
        }
    };
    let failed = match batch.end {
        End::All => {
            offsets.next = header.next_begin_offset;
            None
        }
        End::Undecided(next) => {
            offsets.next = next;
            None
        }
        End::Failed { offset, reason } => {
            offsets.next = offset;
            Some(failure(
                offsets,
                &filter.key,
                &format!("queue offset {offset}: {reason}"),
            ))
        }
        End::Damaged { behind, reason } => {
            offsets.next = behind.unwrap_or(offsets.next);
            Some(Answer::error(format!(
                "Pull Callback Exception, the broker's answer is damaged: {reason}"
            )))
        }
    };
    match failed {
        _ if !batch.kept.is_empty() => Step::Answer(offsets.answer(response::SUCCESS, batch.kept)),
        Some(failed) => Step::Answer(offsets.or_progress(failed)),
        None => Step::On,
    }
}

fn failure(offsets: &Offsets, key: &Key, reason: &str) -> Answer {
    Answer {
        remark: Some(format!("do Message Filter Exception, {key} {reason}")),
        ..offsets.answer(response::SYSTEM_ERROR, Vec::new())
    }
}

/// The pull that goes to the broker.
fn forward(state: &State, pull: &Pull, offset: i64, suspend: Duration, first: bool) -> Command {
    let own = state.config.pull_as_own_group;
    let commit = pull.commit.filter(|_| first && own);
    let header = PullMessageRequest {
        consumer_group: if own { &pull.key.group } else { SERVER_GROUP },
        topic: &pull.key.topic,
        queue_id: pull.queue_id,
        queue_offset: offset,
        max_msg_nums: pull.count,
        sys_flag: pull_flag::build(commit.is_some(), !suspend.is_zero(), true, false, false),
        commit_offset: commit.unwrap_or(0),
        suspend_timeout_millis: suspend.as_millis() as i64,
        subscription: Some("*"),
        sub_version: pull.sub_version,
        expression_type: Some("TAG"),
        max_msg_bytes: None,
        bname: None,
    };
    // The binary form of headers, which brokers answer in kind: text costs both sides more than the rest of the pull's head.
    Command::request_with(request::PULL_MESSAGE, &header).with_serialize(SerializeType::Rocketmq)
}
