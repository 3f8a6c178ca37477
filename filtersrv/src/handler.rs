//! From a request to its function: access control, then the code. A connection's session says when it has ended.

use std::sync::Arc;

use minimq_common::acl::{AclError, Needs, Request, needs_of};
use minimq_protocol::Command;
use minimq_protocol::code::{request, response};
use minimq_remoting::{Answers, CloseReason, Connection, Service};
use tokio_util::sync::CancellationToken;

use crate::server::State;
use crate::{pull, upload};

/// The filter server as a service.
pub(crate) struct Handler(pub(crate) Arc<State>);

impl Service for Handler {
    type Session = CancellationToken;

    fn open(&self, _connection: &Connection) -> CancellationToken {
        CancellationToken::new()
    }

    fn request(&self, gone: &mut CancellationToken, command: Command, answers: &mut Answers<'_>) {
        let state = &self.0;
        if let Err(error) = check_access(state, &command, answers.connection()) {
            return answers.refuse(command.id(), AclError::CODE, &error.remark());
        }
        match command.code {
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
                pull::pull(state, gone, &command, answers)
            }
            request::REGISTER_MESSAGE_FILTER_CLASS => upload::upload(state, &command, answers),
            request::GET_FILTER_STATS => {
                let figures = state.figures().to_wire();
                answers.answer(
                    command.id(),
                    Command::response_to(&command, response::SUCCESS).with_body(figures),
                );
            }
            code => {
                let remark = format!(" request type {code} not supported");
                answers.refuse(command.id(), response::REQUEST_CODE_NOT_SUPPORTED, &remark);
            }
        }
    }

    fn closed(&self, gone: CancellationToken, connection: &Connection, _reason: &CloseReason) {
        gone.cancel();
        self.0.registry.lock().connection_closed(connection.id());
    }
}

/// Uploads and pulls need the right to consume the topic as the group; figures need any account.
fn check_access(state: &State, command: &Command, connection: &Connection) -> Result<(), AclError> {
    let Some(access) = &state.access else {
        return Ok(());
    };
    // 361 is 11 by another name.
    let code = if command.code == request::LITE_PULL_MESSAGE {
        request::PULL_MESSAGE
    } else {
        command.code
    };
    let needs: Needs<'_> = needs_of(code, |name| command.ext.get(name)).unwrap_or_default();
    let checked = Request {
        code,
        fields: || command.ext.iter(),
        body: &command.body,
        peer: connection.peer().ip(),
    };
    access.check(&checked, needs).map(|_| ()).inspect_err(|error| {
        tracing::warn!(peer = %connection.peer(), code = command.code, %error, "request refused");
    })
}
