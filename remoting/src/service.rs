//! What a role implements to be spoken to: [`Service`] on the server side, [`ServerRequests`] on the client side.

use std::sync::Arc;

use minimq_protocol::Command;

use crate::answers::Answers;
use crate::connection::Connection;
use crate::error::CloseReason;

/// A role behind a server. All requests of a connection are handled on that connection's task, in order: no
/// task, channel or allocation per request.
pub trait Service: Send + Sync + 'static {
    /// What the role keeps for each connection; requests of one connection have it to themselves.
    type Session: Send;

    /// A connection is ready for frames.
    fn open(&self, connection: &Connection) -> Self::Session;

    /// The whole frames of one read are about to be handed over.
    fn begin_of_read(&self, _session: &mut Self::Session) {}

    /// One request. Must not block. It is answered through `answers`: now, in [`end_of_read`](Self::end_of_read),
    /// or later through [`Answers::later`] or [`Answers::deferred`].
    ///
    /// `request` and its parts are slices of the read buffer (8 to 256 KiB): what is kept longer than to the end of
    /// the read keeps the whole buffer alive, so copy what a held request needs.
    fn request(&self, session: &mut Self::Session, request: Command, answers: &mut Answers<'_>);

    /// All whole frames of one read have been handed over: the place to do at once what was collected. May wait;
    /// this connection is not read meanwhile, the others are.
    fn end_of_read(
        &self,
        _session: &mut Self::Session,
        _answers: &mut Answers<'_>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The answers of a read have been offered to the socket: the place for what the peer need not wait for, such as
    /// waking threads. Called more often than there are reads; not called when writing fails or the service panics, so
    /// what must not be left undone is to be done in [`closed`](Self::closed) too, or when the session is dropped.
    fn answers_written(&self, _session: &mut Self::Session) {}

    /// The connection has ended; nothing can be sent on it any more.
    fn closed(&self, _session: Self::Session, _connection: &Connection, _reason: &CloseReason) {}
}

/// What a client does with requests that servers send to it, and what it wants to know of its connections.
pub trait ServerRequests: Send + Sync + 'static {
    /// One request of a server; as [`Service::request`].
    fn request(&self, request: Command, answers: &mut Answers<'_>);

    /// A connection has been made.
    fn opened(&self, _connection: &Connection) {}

    /// A connection has ended.
    fn closed(&self, _connection: &Connection, _reason: &CloseReason) {}
}

/// A client that serves nothing: every request is answered 3.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoServerRequests;

impl ServerRequests for NoServerRequests {
    fn request(&self, request: Command, answers: &mut Answers<'_>) {
        answers.unknown_code(&request);
    }
}

/// A client's side of a connection, as a service.
pub(crate) struct ClientSide(pub(crate) Arc<dyn ServerRequests>);

impl Service for ClientSide {
    type Session = ();

    fn open(&self, connection: &Connection) {
        self.0.opened(connection);
    }

    fn request(&self, _session: &mut (), request: Command, answers: &mut Answers<'_>) {
        self.0.request(request, answers);
    }

    fn closed(&self, _session: (), connection: &Connection, reason: &CloseReason) {
        self.0.closed(connection, reason);
    }
}
