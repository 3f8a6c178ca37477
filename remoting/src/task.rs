//! The task of one connection, server or client side: the only one that touches the socket. It reads, cuts whole
//! frames out of what it read, hands requests to the service and answers to their callers, and then writes
//! everything that came together in one call.

use std::any::Any;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use futures_util::FutureExt;
use minimq_protocol::code::response;
use minimq_protocol::{Command, frame};
use tokio::io::AsyncWrite;
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

use crate::answers::Answers;
use crate::buffer_pool;
use crate::connection::Connection;
use crate::error::{CallError, CloseReason};
use crate::frame_buffer::{FrameBuffer, MAX_SLICES};
use crate::reader::{NoRoom, Reader};
use crate::service::Service;
use crate::stream::Stream;

/// So many bytes read without waiting in between, then the other tasks of the thread have their turn.
const BYTES_IN_A_ROW: usize = 512 << 10;
/// A connection that ends takes so many bytes more from its socket, unread.
const MAX_UNREAD: usize = 1 << 20;

/// One connection at work.
pub(crate) struct Task<S: Service> {
    pub(crate) connection: Connection,
    service: Arc<S>,
    io: Io,
}

/// The socket and what lies before and behind it.
struct Io {
    stream: Stream,
    reader: Reader,
    writing: FrameBuffer,
    /// Answers of one read on their way to their callers, and these; empty between reads.
    #[expect(clippy::vec_box, reason = "each box goes on to its caller as it is")]
    answers: Vec<Box<Command>>,
    wakers: Vec<Waker>,
    /// Set to the earliest deadline of a call; made when the first call is.
    timer: Option<Pin<Box<Sleep>>>,
    /// What of `writing` is accounted for in the budget.
    accounted: usize,
    /// The stream may hold written bytes back until it is flushed.
    unflushed: bool,
    /// Bytes read since the last time there was nothing to do.
    bytes_in_a_row: usize,
    /// The other callers have had their turn since the outbox was last taken.
    gathered: bool,
}

/// How handing frames over ended.
enum Handed {
    All,
    /// Too much waits to be written: the rest is handed over when the peer has taken it.
    Paused,
    Bad(CloseReason),
}

impl<S: Service> Task<S> {
    pub(crate) fn new(connection: Connection, service: Arc<S>, stream: Stream) -> Self {
        let io = Io {
            reader: Reader::new(
                connection.limits().max_frame_len,
                connection.budgets().clone(),
            ),
            stream,
            writing: FrameBuffer::new(),
            answers: Vec::new(),
            wakers: Vec::new(),
            timer: None,
            accounted: 0,
            unflushed: false,
            bytes_in_a_row: 0,
            gathered: false,
        };
        Self {
            connection,
            service,
            io,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn run(mut self) {
        let mut session = self.service.open(&self.connection);
        // A service that panics costs its connection, and is still told that it has ended.
        let serving = AssertUnwindSafe(self.serve(&mut session)).catch_unwind();
        let reason = serving
            .await
            .unwrap_or_else(|panic| panicked(&self.connection, &*panic));
        let connection = self.connection;
        self.io.farewell(&connection).await;
        connection.end(&reason);
        drop(self.io);
        self.service.closed(session, &connection, &reason);
    }

    async fn serve(&mut self, session: &mut S::Session) -> CloseReason {
        loop {
            let mut written = || self.service.answers_written(session);
            let polled = poll_fn(|cx| self.io.poll(&self.connection, cx, &mut written));
            if let Err(reason) = polled.await {
                return reason;
            }
            loop {
                self.service.begin_of_read(session);
                let handed = self.hand_over(session);
                let mut answers = Answers::new(&mut self.io.writing, &self.connection);
                self.service.end_of_read(session, &mut answers).await;
                match handed {
                    Handed::All => break,
                    Handed::Paused => {
                        let mut written = || self.service.answers_written(session);
                        let polled =
                            poll_fn(|cx| self.io.poll_written(&self.connection, cx, &mut written));
                        if let Err(reason) = polled.await {
                            return reason;
                        }
                    }
                    Handed::Bad(reason) => return reason,
                }
            }
            if self.io.bytes_in_a_row >= BYTES_IN_A_ROW {
                self.io.bytes_in_a_row = 0;
                // The others' turn may be long: what is answered leaves before.
                let offered =
                    poll_fn(|cx| Poll::Ready(self.io.poll_write(&self.connection, cx))).await;
                self.io.account(&self.connection);
                if let Poll::Ready(Err(error)) = offered {
                    return failed(error);
                }
                self.service.answers_written(session);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hands over the whole frames that have been read.
    fn hand_over(&mut self, session: &mut S::Session) -> Handed {
        let Self {
            connection,
            service,
            io,
        } = self;
        let limits = connection.limits();
        let mut frames = 0;
        let handed = loop {
            if io.writing.len() >= limits.pause_bytes {
                break Handed::Paused;
            }
            let command = match io.reader.next_frame() {
                Ok(None) => break Handed::All,
                Ok(Some(bytes)) => frame::parse(bytes),
                Err(error) => Err(error),
            };
            let command = match command {
                Ok(command) => command,
                Err(error) => break Handed::Bad(CloseReason::BadFrame(error)),
            };
            frames += 1;
            if command.is_response() {
                io.answers.push(Box::new(command));
                continue;
            }
            connection.set_peer_serialize(command.serialize);
            let mut answers = Answers::new(&mut io.writing, connection);
            if connection.in_flight() >= limits.in_flight {
                busy(&command, limits.in_flight, &mut answers);
            } else {
                service.request(session, command, &mut answers);
            }
        };
        let shared = &connection.shared;
        if !io.answers.is_empty() {
            let stray = |answer: &Command| dropped(connection, answer);
            shared
                .calls
                .answered(&mut io.answers, &mut io.wakers, stray);
        }
        shared.frames.fetch_add(frames, Ordering::Relaxed);
        shared.begun.store(io.reader.has_rest(), Ordering::Relaxed);
        handed
    }
}

/// An answer that nobody waits for (any more).
fn dropped(connection: &Connection, answer: &Command) {
    tracing::debug!(
        peer = %connection.peer(),
        opaque = answer.opaque,
        "an answer that no request waits for; dropped"
    );
}

fn panicked(connection: &Connection, panic: &(dyn Any + Send)) -> CloseReason {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no text");
    tracing::error!(peer = %connection.peer(), panic = text, "the service panicked; its connection is closed");
    CloseReason::Panic(text.into())
}

fn busy(request: &Command, limit: usize, answers: &mut Answers<'_>) {
    let remark = format!(
        "[OVERLOAD]system busy: {limit} requests of this connection wait for their answers, no more are allowed"
    );
    answers.refuse(request.id(), response::SYSTEM_BUSY, &remark);
}

impl Io {
    /// Writes what there is and waits until something has been read. `written` is called whenever writing was tried.
    fn poll(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
        written: &mut impl FnMut(),
    ) -> Poll<Result<(), CloseReason>> {
        let shared = &connection.shared;
        shared.waker.register(cx.waker());
        loop {
            if self.gather(connection) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let notified = shared.notified.swap(false, Ordering::AcqRel);
            if notified {
                if connection.is_closed() {
                    return Poll::Ready(Err(closed(connection)));
                }
                self.take_outbox(connection);
            }
            self.poll_due(connection, cx)?;
            if let Poll::Ready(Err(error)) = self.poll_write(connection, cx) {
                return Poll::Ready(Err(failed(error)));
            }
            written();
            self.account(connection);
            if shared.draining.load(Ordering::Acquire) && self.is_done(connection) {
                return Poll::Ready(Err(CloseReason::Shutdown));
            }
            if self.may_read(connection) {
                match self.poll_read(connection, cx) {
                    Poll::Ready(result) => return Poll::Ready(result),
                    Poll::Pending => self
                        .reader
                        .rest()
                        .map_err(|room| no_room(connection, &room))?,
                }
            }
            // Notified by this very task (a service that sent on its own connection): look again.
            if !shared.notified.load(Ordering::Acquire) {
                self.bytes_in_a_row = 0;
                return Poll::Pending;
            }
        }
    }

    /// Should other callers that are about to send have their turn before the socket is written to? Many requests
    /// then leave in one write; a single caller never waits for that.
    fn gather(&mut self, connection: &Connection) -> bool {
        let shared = &connection.shared;
        let several = shared.calls.len() > 1 && shared.notified.load(Ordering::Acquire);
        self.gathered = several && !self.gathered;
        self.gathered
    }

    /// Waits until most of what waits to be written is. `written` as for [`Io::poll`].
    fn poll_written(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
        written: &mut impl FnMut(),
    ) -> Poll<Result<(), CloseReason>> {
        let shared = &connection.shared;
        shared.waker.register(cx.waker());
        if connection.is_closed() {
            return Poll::Ready(Err(closed(connection)));
        }
        self.poll_due(connection, cx)?;
        let wrote = self.poll_write(connection, cx);
        written();
        self.account(connection);
        match wrote {
            Poll::Ready(Err(error)) => Poll::Ready(Err(failed(error))),
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Pending if self.writing.len() < connection.limits().pause_bytes / 2 => {
                Poll::Ready(Ok(()))
            }
            // Others' frames stay in the outbox meanwhile, unannounced; a close wakes in any case.
            Poll::Pending => Poll::Pending,
        }
    }

    /// Is everything answered and written, and every call of ours answered?
    fn is_done(&self, connection: &Connection) -> bool {
        self.writing.is_empty()
            && connection.in_flight() == 0
            && connection.calls() == 0
            && connection.queued_bytes() == 0
    }

    /// Not while too much waits to be written, for this peer or for all together; draining, only for answers.
    fn may_read(&self, connection: &Connection) -> bool {
        if connection.shared.draining.load(Ordering::Acquire) && connection.calls() == 0 {
            return false;
        }
        self.writing.is_empty()
            || self.writing.len() < connection.limits().pause_bytes
                && !connection.budgets().queued.is_full()
    }

    /// Tells the others how much waits here to be written. Nothing does, most of the time.
    fn account(&mut self, connection: &Connection) {
        let now = self.writing.len();
        // Taking the outbox has set it too, so it may differ even where the account does not.
        connection.shared.unwritten.store(now, Ordering::Relaxed);
        if now == self.accounted {
            return;
        }
        let queued = &connection.budgets().queued;
        if now > self.accounted {
            queued.add(now - self.accounted);
        } else {
            queued.give(self.accounted - now);
        }
        self.accounted = now;
    }

    fn poll_read(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        let buffer = self
            .reader
            .room()
            .map_err(|room| no_room(connection, &room))?;
        let room = buffer.capacity() - buffer.len();
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, buffer)) {
            Ok(0) => Poll::Ready(Err(CloseReason::Peer)),
            Ok(read) => {
                self.reader.filled(read, room);
                self.bytes_in_a_row += read;
                connection
                    .shared
                    .received
                    .fetch_add(read as u64, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(failed(error))),
        }
    }

    /// Writes until all is written or the socket takes no more.
    fn poll_write(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.writing.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = self.writing.slices(&mut slices);
            let written = match slices.get(..used) {
                Some([one]) => Pin::new(&mut self.stream).poll_write(cx, one),
                Some(many) => Pin::new(&mut self.stream).poll_write_vectored(cx, many),
                None => return Poll::Ready(Ok(())),
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.writing.advance(written);
            self.unflushed = true;
            connection
                .shared
                .sent
                .fetch_add(written as u64, Ordering::Relaxed);
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn take_outbox(&mut self, connection: &Connection) {
        // What the outbox held is accounted for already.
        self.accounted += connection.take_outbox(&mut self.writing);
    }

    /// Offers what still waits to the socket once, without waiting for it, and takes what has come meanwhile: bytes
    /// that nobody reads would make the kernel reset the connection, and the last answers might be lost with it.
    async fn farewell(&mut self, connection: &Connection) {
        self.take_outbox(connection);
        poll_fn(|cx| {
            let written = self.poll_write(connection, cx);
            if let (Poll::Ready(Ok(())), Stream::Tls(_)) = (written, &self.stream) {
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
            }
            let mut unread = buffer_pool::take(buffer_pool::SMALLEST);
            for _ in 0..MAX_UNREAD / unread.capacity().max(1) {
                unread.clear();
                match poll_read_buf(Pin::new(&mut self.stream), cx, &mut unread) {
                    Poll::Ready(Ok(1..)) => {}
                    _ => break,
                }
            }
            buffer_pool::give(unread);
            Poll::Ready(())
        })
        .await;
        self.writing.clear();
        self.account(connection);
    }

    /// Ends the calls whose time is over and sets the timer for the next.
    fn poll_due(
        &mut self,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        while let Some(deadline) = connection.shared.calls.next_deadline() {
            let timer = match &mut self.timer {
                Some(timer) => {
                    if timer.deadline() != deadline {
                        timer.as_mut().reset(deadline);
                    }
                    timer
                }
                empty => empty.insert(Box::pin(tokio::time::sleep_until(deadline))),
            };
            if timer.as_mut().poll(cx).is_pending() {
                break;
            }
            let mut silent = None;
            let received = connection.shared.received.load(Ordering::Relaxed);
            connection.shared.calls.end_due(|due| {
                if due.received_before == received {
                    silent = Some(CloseReason::Silent { after: due.timeout });
                }
                CallError::Timeout {
                    peer: connection.peer().to_string().into(),
                    code: due.code,
                    timeout: due.timeout,
                }
            });
            // Not a byte for the whole time of a call: the connection is dead though nobody has said so.
            if let Some(reason) = silent {
                return Err(reason);
            }
        }
        Ok(())
    }
}

fn no_room(connection: &Connection, room: &NoRoom) -> CloseReason {
    CloseReason::NoRoom {
        frame_len: room.frame_len,
        limit: connection.budgets().begun.limit(),
    }
}

fn closed(connection: &Connection) -> CloseReason {
    connection.close_reason().unwrap_or(CloseReason::Shutdown)
}

fn failed(error: io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe => CloseReason::Peer,
        _ => CloseReason::Io(Arc::new(error)),
    }
}
