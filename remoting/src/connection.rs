//! [`Connection`]: the handle by which the rest of a role knows a connection. It queues frames in the outbox,
//! makes calls to the peer, and closes. Only the connection's own task touches the socket (`task.rs`).

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use minimq_protocol::{Command, Header, SerializeType};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::Budgets;
use crate::calls::{Calls, Refused};
use crate::error::{CallError, CloseReason, SendError};
use crate::frame_buffer::FrameBuffer;
use crate::limits::Limits;

/// Signs each request before it is sent (access control). Called on the caller's task; must not block.
pub trait RequestSigner: Send + Sync + 'static {
    /// Adds what the peer wants to see: ext fields with account and signature.
    fn sign(&self, request: &mut Command);
}

/// Which encoding requests to a peer have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestSerialize {
    /// As each says itself.
    AsIs,
    /// Always this one.
    Always(SerializeType),
    /// That of the peer's last request: some clients understand no other (wire spec 2.7).
    AsPeer,
}

/// What is known of a connection before its task runs.
pub(crate) struct Origin {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) listener: usize,
    pub(crate) limits: Arc<Limits>,
    pub(crate) budgets: Arc<Budgets>,
    /// Encoding of requests to the peer.
    pub(crate) serialize: RequestSerialize,
    pub(crate) signer: Option<Arc<dyn RequestSigner>>,
}

/// One connection, server or client side. A cheap clone; holding one keeps no socket open.
#[derive(Clone)]
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
}

/// What a connection's task and the holders of its handle share.
pub(crate) struct Shared {
    origin: Origin,
    /// Frames queued by others than the connection's task. Locked before `close_reason`, never with `calls`.
    outbox: Mutex<FrameBuffer>,
    /// Bytes the task itself still has to write.
    pub(crate) unwritten: AtomicUsize,
    /// The task waits here; `notified` says that it has something to look at.
    pub(crate) waker: AtomicWaker,
    pub(crate) notified: AtomicBool,
    /// Requests of the peer that wait for an answer.
    in_flight: AtomicUsize,
    /// Read no more requests; end when nothing is in flight and all is written.
    pub(crate) draining: AtomicBool,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    /// Whole frames received.
    pub(crate) frames: AtomicU64,
    /// A frame has begun and is not whole.
    pub(crate) begun: AtomicBool,
    pub(crate) secure: AtomicBool,
    /// Encoding of the peer's last request; requests to it use the same.
    peer_serialize: AtomicU8,
    pub(crate) calls: Calls,
    closing: AtomicBool,
    close_reason: Mutex<Option<CloseReason>>,
    ended: AtomicBool,
    end: Notify,
}

impl Connection {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            shared: Arc::new(Shared {
                origin,
                outbox: Mutex::default(),
                unwritten: AtomicUsize::new(0),
                waker: AtomicWaker::new(),
                notified: AtomicBool::new(false),
                in_flight: AtomicUsize::new(0),
                draining: AtomicBool::new(false),
                received: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                frames: AtomicU64::new(0),
                begun: AtomicBool::new(false),
                secure: AtomicBool::new(false),
                peer_serialize: AtomicU8::new(SerializeType::Json.byte()),
                calls: Calls::new(),
                closing: AtomicBool::new(false),
                close_reason: Mutex::new(None),
                ended: AtomicBool::new(false),
                end: Notify::new(),
            }),
        }
    }

    /// Number of the connection, never used twice in one server or client.
    pub fn id(&self) -> u64 {
        self.shared.origin.id
    }

    /// Address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.shared.origin.peer
    }

    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.shared.origin.local
    }

    /// Which of the server's addresses the peer connected to, counted from 0; 0 on the client side.
    pub fn listener(&self) -> usize {
        self.shared.origin.listener
    }

    /// Is it encrypted?
    pub fn is_secure(&self) -> bool {
        self.shared.secure.load(Ordering::Relaxed)
    }

    /// Requests of the peer that wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Our requests that wait for the peer's answer.
    pub fn calls(&self) -> usize {
        self.shared.calls.len()
    }

    /// Bytes that wait for the peer to take them.
    pub fn queued_bytes(&self) -> usize {
        self.shared.outbox.lock().len() + self.shared.unwritten.load(Ordering::Relaxed)
    }

    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Bytes sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Queues frames; `frames` is empty afterwards if they were taken. They leave with whatever else waits, in
    /// one write; the connection's task is woken once however many calls happen before it looks.
    pub fn send(&self, frames: &mut FrameBuffer) -> Result<(), SendError> {
        if frames.is_empty() {
            return Ok(());
        }
        self.queue(frames, self.shared.origin.limits.outbox_bytes, false)
    }

    /// `urgent`: whatever waits for the others.
    pub(crate) fn queue(
        &self,
        frames: &mut FrameBuffer,
        limit: usize,
        urgent: bool,
    ) -> Result<(), SendError> {
        {
            let mut outbox = self.shared.outbox.lock();
            self.allowed(outbox.len(), frames.len(), limit, urgent)?;
            self.budgets().queued.add(frames.len());
            outbox.append(frames);
        }
        self.notify();
        Ok(())
    }

    /// May `more` bytes be put behind the `waiting` ones of the outbox? Asked under its lock: the task sets "closed"
    /// before it empties the outbox for the last time.
    fn allowed(
        &self,
        waiting: usize,
        more: usize,
        limit: usize,
        urgent: bool,
    ) -> Result<(), SendError> {
        if self.is_closed() {
            return Err(self.closed_error());
        }
        let queued = waiting + self.shared.unwritten.load(Ordering::Relaxed);
        if queued > 0 && queued + more > limit {
            return Err(SendError::OutboxFull {
                peer: self.peer(),
                queued,
                limit,
            });
        }
        let all = &self.budgets().queued;
        if all.is_full() && queued > 0 && !urgent {
            return Err(SendError::AllFull {
                peer: self.peer(),
                queued: all.used(),
                limit: all.limit(),
            });
        }
        Ok(())
    }

    fn too_long(&self, len: usize) -> SendError {
        SendError::TooLong {
            peer: self.peer(),
            len,
            limit: self.limits().max_frame_len,
        }
    }

    /// A request without an answer.
    pub fn oneway(&self, mut request: Command) -> Result<(), SendError> {
        request.mark_oneway();
        request.opaque = self.shared.calls.opaque();
        self.push_request(&mut request)
    }

    /// A request; the answer of the peer, whatever its code.
    pub async fn call(&self, request: Command, timeout: Duration) -> Result<Command, CallError> {
        Ok(*self.start_call(request, timeout)?.await?)
    }

    /// Queues a request at once; the answer is awaited apart from it.
    pub fn start_call(
        &self,
        mut request: Command,
        timeout: Duration,
    ) -> Result<PendingCall, CallError> {
        let pending = self.begin_call(request.code, timeout, None, Instant::now())?;
        request.opaque = pending.opaque;
        request.flag = 0;
        self.push_request(&mut request)?;
        Ok(pending)
    }

    /// As [`start_call`](Self::start_call) without building a command: header and body are encoded where they wait to
    /// be written. The time begins at `now`. Whoever `cx` wakes is woken when there is an outcome, without having asked before.
    pub fn start_call_with<'h>(
        &self,
        code: i32,
        header: &impl Header<'h>,
        body: &Bytes,
        timeout: Duration,
        now: Instant,
        cx: &Context<'_>,
    ) -> Result<PendingCall, CallError> {
        let origin = &self.shared.origin;
        let pending = self.begin_call(code, timeout, Some(cx.waker().clone()), now)?;
        if origin.signer.is_some() {
            // A signature is over the fields as the peer will see them.
            let mut request = Command::request_with(code, header).with_body(body.clone());
            request.opaque = pending.opaque;
            self.push_request(&mut request)?;
            return Ok(pending);
        }
        let serialize = self.serialize_of_requests().unwrap_or_default();
        let limits = &origin.limits;
        {
            let mut outbox = self.shared.outbox.lock();
            let before = outbox.len();
            let len = outbox.push_request(serialize, code, pending.opaque, header, body);
            let allowed = if len > limits.max_frame_len {
                Err(self.too_long(len))
            } else {
                self.allowed(before, len, limits.outbox_bytes, false)
            };
            if let Err(error) = allowed {
                outbox.truncate(before);
                return Err(error.into());
            }
            self.budgets().queued.add(len);
        }
        self.notify();
        Ok(pending)
    }

    fn begin_call(
        &self,
        code: i32,
        timeout: Duration,
        waker: Option<Waker>,
        now: Instant,
    ) -> Result<PendingCall, CallError> {
        let shared = &self.shared;
        let received = shared.received.load(Ordering::Relaxed);
        let limit = shared.origin.limits.calls;
        let begun = shared
            .calls
            .begin(code, timeout, received, limit, waker, now);
        let opaque = begun.map_err(|refused| match refused {
            Refused::TooMany => CallError::TooMany {
                peer: self.peer(),
                limit,
            },
            Refused::Ended(reason) => SendError::Closed {
                peer: self.peer(),
                reason,
            }
            .into(),
        })?;
        // From here on, dropping it takes the call out of the table.
        Ok(PendingCall {
            connection: self.clone(),
            opaque,
            done: false,
        })
    }

    /// Encoding of our requests, unless each says that itself.
    fn serialize_of_requests(&self) -> Option<SerializeType> {
        match self.shared.origin.serialize {
            RequestSerialize::AsIs => None,
            RequestSerialize::Always(serialize) => Some(serialize),
            RequestSerialize::AsPeer => Some(self.peer_serialize()),
        }
    }

    fn push_request(&self, request: &mut Command) -> Result<(), SendError> {
        let origin = &self.shared.origin;
        if let Some(serialize) = self.serialize_of_requests() {
            request.serialize = serialize;
        }
        if let Some(signer) = &origin.signer {
            signer.sign(request);
        }
        let mut frames = FrameBuffer::new();
        let len = frames.push(request);
        let sent = if len > origin.limits.max_frame_len {
            Err(self.too_long(len))
        } else {
            self.send(&mut frames)
        };
        frames.clear();
        sent
    }

    /// Encoding of the peer's last request; a server's requests to it use the same.
    pub fn peer_serialize(&self) -> SerializeType {
        SerializeType::from_byte(self.shared.peer_serialize.load(Ordering::Relaxed))
            .unwrap_or_default()
    }

    pub(crate) fn set_peer_serialize(&self, serialize: SerializeType) {
        let last = &self.shared.peer_serialize;
        if last.load(Ordering::Relaxed) != serialize.byte() {
            last.store(serialize.byte(), Ordering::Relaxed);
        }
    }

    /// Ends the connection soon. What waits to be written is offered to the socket once; the first reason counts.
    pub fn close(&self, reason: CloseReason) {
        self.shared.close_reason.lock().get_or_insert(reason);
        self.shared.closing.store(true, Ordering::Release);
        self.shared.notified.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    /// Has it ended, or is it about to?
    pub fn is_closed(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    /// Why it ended, if it has.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.shared.close_reason.lock().clone()
    }

    /// Waits until its task has ended and the socket is closed.
    pub async fn closed(&self) {
        loop {
            let end = self.shared.end.notified();
            if self.shared.ended.load(Ordering::Acquire) {
                return;
            }
            end.await;
        }
    }

    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.shared.origin.budgets
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.origin.limits
    }

    /// Waits, before its task runs, until it is to be closed.
    pub(crate) async fn close_asked(&self) -> CloseReason {
        poll_fn(|cx| {
            self.shared.waker.register(cx.waker());
            let draining = self.shared.draining.load(Ordering::Acquire);
            if self.is_closed() || draining {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        self.close_reason().unwrap_or(CloseReason::Shutdown)
    }

    /// Lets the peer finish: no more requests are read, and the connection ends once all is answered.
    pub(crate) fn drain(&self) {
        self.shared.draining.store(true, Ordering::Release);
        self.shared.notified.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    pub(crate) fn begin_in_flight(&self, requests: usize) {
        self.shared.in_flight.fetch_add(requests, Ordering::Relaxed);
    }

    pub(crate) fn end_in_flight(&self, requests: usize) {
        let before = self.shared.in_flight.fetch_sub(requests, Ordering::AcqRel);
        if before == requests && self.shared.draining.load(Ordering::Acquire) {
            self.notify();
        }
    }

    /// Moves what others queued into `writing`; says how many bytes.
    pub(crate) fn take_outbox(&self, writing: &mut FrameBuffer) -> usize {
        let mut outbox = self.shared.outbox.lock();
        let bytes = outbox.len();
        writing.append(&mut outbox);
        self.shared
            .unwritten
            .store(writing.len(), Ordering::Relaxed);
        bytes
    }

    /// The task has ended: nothing can be queued or called any more.
    pub(crate) fn end(&self, reason: &CloseReason) {
        self.shared
            .close_reason
            .lock()
            .get_or_insert_with(|| reason.clone());
        self.shared.closing.store(true, Ordering::Release);
        {
            let mut outbox = self.shared.outbox.lock();
            self.budgets().queued.give(outbox.len());
            outbox.clear();
        }
        self.shared.unwritten.store(0, Ordering::Relaxed);
        self.shared
            .calls
            .end_all(reason, || self.closed_error().into());
    }

    /// After [`end`](Self::end) and after the role was told.
    pub(crate) fn set_ended(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.end.notify_waiters();
    }

    pub(crate) fn notify(&self) {
        if !self.shared.notified.swap(true, Ordering::AcqRel) {
            self.shared.waker.wake();
        }
    }

    fn closed_error(&self) -> SendError {
        let reason = self.close_reason().unwrap_or(CloseReason::Shutdown);
        SendError::Closed {
            peer: self.peer(),
            reason,
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {} with {}", self.id(), self.peer())
    }
}

/// A request that has been queued; resolves to its answer. Dropped, the answer is ignored when it comes.
#[must_use = "the answer is lost unless this is awaited"]
pub struct PendingCall {
    connection: Connection,
    opaque: i32,
    done: bool,
}

impl PendingCall {
    /// The connection it went to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Future for PendingCall {
    type Output = Result<Box<Command>, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(self.connection.shared.calls.poll(self.opaque, cx));
        self.done = true;
        Poll::Ready(outcome.unwrap_or_else(|| Err(self.connection.closed_error().into())))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.done {
            self.connection.shared.calls.forget(self.opaque);
        }
    }
}
