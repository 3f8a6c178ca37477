//! Where a role puts its answers: at once ([`Answers`]), later one by one ([`Responder`]), or later all that
//! belong together ([`DeferredAnswers`]: the sends of one read that wait for the same flush).

use bytes::Bytes;
use minimq_protocol::code::response;
use minimq_protocol::{Command, Header, NoHeader, RequestId};
use smallvec::SmallVec;

use crate::connection::Connection;
use crate::error::{CloseReason, SendError};
use crate::frame_buffer::FrameBuffer;

/// A full outbox still takes so many bytes of "system busy" answers.
const BUSY_SLACK: usize = 1 << 20;

/// Answers of one read of one connection. All of them leave in one write after
/// [`end_of_read`](crate::Service::end_of_read).
pub struct Answers<'a> {
    frames: &'a mut FrameBuffer,
    connection: &'a Connection,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(frames: &'a mut FrameBuffer, connection: &'a Connection) -> Self {
        Self { frames, connection }
    }

    /// The connection the requests came on.
    pub fn connection(&self) -> &Connection {
        self.connection
    }

    /// Answers a request. Opaque, encoding and flag are set here. Nothing is sent for a one-way request.
    pub fn answer(&mut self, to: RequestId, answer: Command) {
        push_command(self.frames, self.connection, to, answer, &[]);
    }

    /// Answers without building a command: code, remark, typed header and body slices, which are not copied
    /// unless short. Nothing is sent for a one-way request.
    pub fn answer_head<'h>(
        &mut self,
        to: RequestId,
        code: i32,
        remark: Option<&str>,
        header: Option<&impl Header<'h>>,
        body: &[Bytes],
    ) {
        push_head(self.frames, self.connection, to, code, remark, header, body);
    }

    /// Answers with a code and a remark only: refusals.
    pub fn refuse(&mut self, to: RequestId, code: i32, remark: &str) {
        self.answer_head(to, code, Some(remark), None::<&NoHeader>, &[]);
    }

    /// Answers a request whose code this role does not know (3).
    pub fn unknown_code(&mut self, request: &Command) {
        let remark = format!("request code {} is not supported", request.code);
        self.refuse(request.id(), response::REQUEST_CODE_NOT_SUPPORTED, &remark);
    }

    /// Promises an answer for later.
    pub fn later(&mut self, to: RequestId) -> Responder {
        self.connection.begin_in_flight(1);
        Responder {
            connection: self.connection.clone(),
            to,
            answered: false,
        }
    }

    /// Promises answers that will all be sent together.
    pub fn deferred(&mut self) -> DeferredAnswers {
        DeferredAnswers {
            connection: self.connection.clone(),
            requests: SmallVec::new(),
            frames: FrameBuffer::new(),
        }
    }
}

/// The answer to one request, owed. Dropped without an answer, code 1 is answered.
#[must_use = "dropping it answers code 1"]
pub struct Responder {
    connection: Connection,
    to: RequestId,
    answered: bool,
}

impl Responder {
    /// The connection the request came on.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the answer echoes.
    pub fn request(&self) -> RequestId {
        self.to
    }

    /// Sends the answer.
    pub fn respond(self, answer: Command) {
        self.respond_with_slices(answer, &[]);
    }

    /// Sends the answer with a body in slices, which are not copied unless short; `answer` has no body.
    pub fn respond_with_slices(mut self, answer: Command, body: &[Bytes]) {
        let mut frames = FrameBuffer::new();
        push_command(&mut frames, &self.connection, self.to, answer, body);
        self.send(&mut frames);
    }

    /// Sends an answer without building a command, as [`Answers::answer_head`].
    pub fn respond_head<'h>(
        mut self,
        code: i32,
        remark: Option<&str>,
        header: Option<&impl Header<'h>>,
        body: &[Bytes],
    ) {
        let mut frames = FrameBuffer::new();
        push_head(
            &mut frames,
            &self.connection,
            self.to,
            code,
            remark,
            header,
            body,
        );
        self.send(&mut frames);
    }

    /// Sends an answer that has a code and a remark only.
    pub fn refuse(self, code: i32, remark: &str) {
        self.respond_head(code, Some(remark), None::<&NoHeader>, &[]);
    }

    fn send(&mut self, frames: &mut FrameBuffer) {
        self.answered = true;
        send_or_busy(&self.connection, frames, &[self.to]);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let mut frames = FrameBuffer::new();
            push_dropped(&mut frames, &self.connection, self.to);
            self.send(&mut frames);
        }
        self.connection.end_in_flight(1);
    }
}

/// Answers that are ready but may not be sent yet, and that may still turn into refusals. Dropped unsent, each
/// request is answered code 1.
#[must_use = "dropping it answers code 1 to each request"]
pub struct DeferredAnswers {
    connection: Connection,
    requests: SmallVec<[RequestId; 4]>,
    frames: FrameBuffer,
}

impl DeferredAnswers {
    /// The connection the requests came on.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Requests answered so far.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Has nothing been answered yet?
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Prepares an answer, as [`Answers::answer_head`].
    pub fn answer_head<'h>(
        &mut self,
        to: RequestId,
        code: i32,
        remark: Option<&str>,
        header: Option<&impl Header<'h>>,
        body: &[Bytes],
    ) {
        self.begin(to);
        push_head(
            &mut self.frames,
            &self.connection,
            to,
            code,
            remark,
            header,
            body,
        );
    }

    /// Prepares an answer, as [`Answers::answer`].
    pub fn answer(&mut self, to: RequestId, answer: Command) {
        self.begin(to);
        push_command(&mut self.frames, &self.connection, to, answer, &[]);
    }

    fn begin(&mut self, to: RequestId) {
        self.connection.begin_in_flight(1);
        self.requests.push(to);
    }

    /// Sends what was prepared: one move into the outbox, one wake.
    pub fn send(mut self) {
        self.finish();
    }

    /// Sends this instead of what was prepared, to each request.
    pub fn refuse(mut self, code: i32, remark: &str) {
        self.frames.clear();
        for to in &self.requests {
            push_head(
                &mut self.frames,
                &self.connection,
                *to,
                code,
                Some(remark),
                None::<&NoHeader>,
                &[],
            );
        }
        self.finish();
    }

    fn finish(&mut self) {
        send_or_busy(&self.connection, &mut self.frames, &self.requests);
        self.connection.end_in_flight(self.requests.len());
        self.requests.clear();
    }
}

impl Drop for DeferredAnswers {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            self.frames.clear();
            for to in &self.requests {
                push_dropped(&mut self.frames, &self.connection, *to);
            }
            self.finish();
        }
    }
}

fn push_command(
    frames: &mut FrameBuffer,
    connection: &Connection,
    to: RequestId,
    mut answer: Command,
    body: &[Bytes],
) {
    if to.oneway {
        return;
    }
    answer.opaque = to.opaque;
    answer.serialize = to.serialize;
    answer.flag = minimq_protocol::command::FLAG_RESPONSE;
    let limit = connection.limits().max_frame_len;
    let before = frames.len();
    let len = frames.push_with_slices(&answer, body);
    if len > limit {
        frames.truncate(before);
        push_too_long(frames, to, len, limit);
    }
}

fn push_head<'h>(
    frames: &mut FrameBuffer,
    connection: &Connection,
    to: RequestId,
    code: i32,
    remark: Option<&str>,
    header: Option<&impl Header<'h>>,
    body: &[Bytes],
) {
    if to.oneway {
        return;
    }
    let limit = connection.limits().max_frame_len;
    let before = frames.len();
    let len = frames.push_answer(to, code, remark, header, body);
    if len > limit {
        frames.truncate(before);
        push_too_long(frames, to, len, limit);
    }
}

fn push_too_long(frames: &mut FrameBuffer, to: RequestId, len: usize, limit: usize) {
    let remark = format!(
        "the answer of {len} bytes is longer than the {limit} a frame may have; ask for less"
    );
    frames.push_answer(
        to,
        response::SYSTEM_ERROR,
        Some(&remark),
        None::<&NoHeader>,
        &[],
    );
}

fn push_dropped(frames: &mut FrameBuffer, connection: &Connection, to: RequestId) {
    let remark = "the request was given up before it was answered";
    push_head(
        frames,
        connection,
        to,
        response::SYSTEM_ERROR,
        Some(remark),
        None::<&NoHeader>,
        &[],
    );
}

/// Queues answers. When the outbox has no room for them, "system busy" (2) is answered instead; when it has no
/// room for that either, the peer does not read and the connection is closed.
fn send_or_busy(connection: &Connection, frames: &mut FrameBuffer, to: &[RequestId]) {
    let Err(error) = connection.send(frames) else {
        return;
    };
    frames.clear();
    let (queued, limit) = match error {
        SendError::OutboxFull { queued, limit, .. } | SendError::AllFull { queued, limit, .. } => {
            (queued, limit)
        }
        SendError::Closed { .. } | SendError::TooLong { .. } => return,
    };
    let remark = format!("[OVERLOAD]system busy: {error}");
    for to in to {
        push_head(
            frames,
            connection,
            *to,
            response::SYSTEM_BUSY,
            Some(&remark),
            None::<&NoHeader>,
            &[],
        );
    }
    let own_limit = connection.limits().outbox_bytes;
    if connection
        .queue(frames, own_limit + BUSY_SLACK, true)
        .is_err()
    {
        connection.close(CloseReason::OutboxFull { queued, limit });
    }
    frames.clear();
}
