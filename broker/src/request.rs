//! What every handler of a request works with: the broker, the connection's session, the answers; and how it refuses.

use std::borrow::Cow;
use std::sync::Arc;

use minimq_protocol::code::response;
use minimq_protocol::{Command, Header, HeaderError, NoHeader, RequestId};
use minimq_remoting::{Answers, Connection};

use crate::broker::Broker;
use crate::server::Session;

/// One request's surroundings.
pub struct RequestContext<'r, 'a> {
    /// The broker.
    pub broker: &'r Arc<Broker>,
    /// What is kept for the connection.
    pub session: &'r mut Session,
    /// Where answers go.
    pub answers: &'r mut Answers<'a>,
}

/// A request that is not done: answered with this code and remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Response code.
    pub code: i32,
    /// The reason.
    pub remark: Cow<'static, str>,
}

impl Refusal {
    /// With any code.
    pub fn new(code: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            remark: remark.into(),
        }
    }

    /// With code 1, SYSTEM_ERROR.
    pub fn error(remark: impl Into<Cow<'static, str>>) -> Self {
        Self::new(response::SYSTEM_ERROR, remark)
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::error(error.to_string())
    }
}

/// The answer of a handler that answers at once.
pub type Handled = Result<Command, Refusal>;

/// Success without fields, body or remark.
pub fn success(request: &Command) -> Command {
    Command::response_to(request, response::SUCCESS)
}

/// Success with the remark Java leaves where a handler sets only the code (broker spec 0.1).
pub fn success_default_remark(request: &Command) -> Command {
    success(request).with_remark("not set any response code")
}

impl RequestContext<'_, '_> {
    /// The connection the request came on.
    pub fn connection(&self) -> &Connection {
        self.answers.connection()
    }

    /// Answers with what a handler made of the request.
    pub fn reply(&mut self, id: RequestId, handled: Handled) {
        match handled {
            Ok(answer) => self.answers.answer(id, answer),
            Err(refusal) => self.answers.refuse(id, refusal.code, &refusal.remark),
        }
    }

    /// Runs `work` on the blocking pool, within the limit on administration, and answers when it is done. For
    /// whatever reads files, walks tables or waits.
    pub fn slow(
        &mut self,
        request: Command,
        work: impl FnOnce(&Arc<Broker>, &Command) -> Handled + Send + 'static,
    ) {
        let responder = self.answers.later(request.id());
        let broker = self.broker.clone();
        let id = request.id();
        tokio::spawn(async move {
            let Ok(_permit) = broker.admin_permits.clone().acquire_owned().await else {
                return;
            };
            // The read buffer is not kept alive by a request that waits.
            let done = tokio::task::spawn_blocking(move || work(&broker, &request)).await;
            match done {
                Ok(Ok(answer)) => responder.respond(answer),
                Ok(Err(refusal)) => responder.refuse(refusal.code, &refusal.remark),
                Err(error) => {
                    tracing::error!(opaque = id.opaque, %error, "a request's work failed");
                    responder.refuse(
                        response::SYSTEM_ERROR,
                        "the request's work failed, see the broker's log",
                    );
                }
            }
        });
    }

    /// Success with a header.
    pub fn ok_with<'h>(&mut self, id: RequestId, header: &impl Header<'h>) {
        self.answers
            .answer_head(id, response::SUCCESS, None, Some(header), &[]);
    }

    /// Success with nothing else.
    pub fn ok(&mut self, id: RequestId) {
        self.answers
            .answer_head(id, response::SUCCESS, None, None::<&NoHeader>, &[]);
    }
}
