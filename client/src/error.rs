//! What can go wrong, and whether trying again makes sense.

use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::code::response;
use minimq_protocol::name::ClientNameError;
use minimq_remoting::{CallError, TlsError};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of this library failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No name server was given, neither to the builder nor in `NAMESRV_ADDR`.
    #[error("no name server address: give one to the builder or set NAMESRV_ADDR")]
    NoNameServer,
    /// None of the name servers answered.
    #[error("no name server answers, tried {tried}: {source}")]
    NameServers {
        /// The addresses tried, joined by `;`.
        tried: String,
        /// What failed last.
        source: CallError,
    },
    /// The name servers know no such topic, and no broker creates topics on demand.
    #[error("no name server knows topic {topic}: {remark}")]
    TopicNotFound {
        /// The topic.
        topic: String,
        /// What the name server said.
        remark: String,
    },
    /// The name servers know no such group: no member of it has ever connected, so it has no retry topic.
    #[error(
        "no name server knows group {group}: no member of it has ever connected, or it has another name (there is no topic {})",
        minimq_protocol::name::retry_topic(.group)
    )]
    GroupNotFound {
        /// The group.
        group: String,
    },
    /// The topic exists, but none of its queues can be used.
    #[error("topic {topic} has no queue to {wanted}")]
    NoQueue {
        /// The topic.
        topic: String,
        /// `send to` or `consume from`.
        wanted: &'static str,
    },
    /// The route names a broker without a usable address.
    #[error("no address known of broker {broker_name}")]
    BrokerNotFound {
        /// The broker's name.
        broker_name: String,
    },
    /// No filter server is registered for the broker of a topic with a WASM filter.
    #[error("no filter server known for broker {broker_addr} and topic {topic}")]
    NoFilterServer {
        /// The topic.
        topic: String,
        /// The broker's address.
        broker_addr: String,
    },
    /// A request got no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A broker, name server or filter server refused a request.
    #[error("{addr} answered code {code} ({}): {remark}", response::name(*.code).unwrap_or("unknown"))]
    Refused {
        /// Who refused.
        addr: String,
        /// Result code.
        code: i32,
        /// Its reason.
        remark: String,
    },
    /// An answer that cannot be read.
    #[error("{addr} sent an answer that cannot be read: {reason}")]
    BadAnswer {
        /// Who sent it.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// All attempts to send failed.
    #[error("sending to topic {topic} failed after {attempts} attempts in {} ms, brokers tried: {}: {source}", .elapsed.as_millis(), if .brokers.is_empty() { "none" } else { .brokers })]
    SendFailed {
        /// The topic.
        topic: String,
        /// Attempts made.
        attempts: u32,
        /// Time taken.
        elapsed: Duration,
        /// Brokers tried, joined by `,`.
        brokers: String,
        /// What failed last.
        source: Box<Error>,
    },
    /// Something did not happen in time.
    #[error("{what} within {} ms", .after.as_millis())]
    Timeout {
        /// What did not happen.
        what: String,
        /// The time it had.
        after: Duration,
    },
    /// A topic or group name is not allowed.
    #[error(transparent)]
    Name(#[from] ClientNameError),
    /// A message cannot be sent as it is.
    #[error("message to topic {topic} cannot be sent: {reason}")]
    Message {
        /// The topic.
        topic: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A hook forbade a send.
    #[error("a hook forbids sending to topic {topic}: {reason}")]
    Forbidden {
        /// The topic.
        topic: String,
        /// The hook's reason.
        reason: String,
    },
    /// A setting or argument is wrong.
    #[error("{what}: {reason}")]
    Invalid {
        /// Setting or argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The client already has a producer or consumer of that group.
    #[error(
        "this client already has a {kind} of group {group}; use another client for a second one"
    )]
    GroupTaken {
        /// `producer` or `consumer`.
        kind: &'static str,
        /// The group.
        group: String,
    },
    /// The client, producer or consumer has been shut down.
    #[error("already shut down")]
    Closed,
    /// TLS settings.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// A file or socket of this process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// A broker that has not heard yet of a subscription as it is now: the next heartbeat mends it.
    pub(crate) fn is_early(&self) -> bool {
        use minimq_protocol::code::response;
        let codes = [
            response::SUBSCRIPTION_NOT_EXIST,
            response::SUBSCRIPTION_NOT_LATEST,
        ];
        matches!(self, Self::Refused { code, .. } if codes.contains(code))
    }

    /// Whether the same call may succeed later without any change by the caller. A send that is repeated may be stored
    /// twice unless [`never_sent`](Self::never_sent).
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::NameServers { .. }
            | Error::TopicNotFound { .. }
            | Error::GroupNotFound { .. }
            | Error::NoQueue { .. }
            | Error::BrokerNotFound { .. }
            | Error::NoFilterServer { .. }
            | Error::Call(_)
            | Error::Timeout { .. } => true,
            Error::Refused { code, .. } => matches!(
                *code,
                response::SYSTEM_ERROR
                    | response::SYSTEM_BUSY
                    | response::SERVICE_NOT_AVAILABLE
                    | response::NO_PERMISSION
                    | response::TOPIC_NOT_EXIST
                    | response::SUBSCRIPTION_NOT_EXIST
                    | response::SUBSCRIPTION_NOT_LATEST
                    | response::NO_BUYER_ID
                    | response::NOT_IN_CURRENT_UNIT
                    | response::CONSUMER_NOT_ONLINE
                    | response::FLOW_CONTROL
            ),
            Error::SendFailed { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    /// Whether it is certain that no server saw the request, so that repeating it duplicates nothing.
    pub fn never_sent(&self) -> bool {
        match self {
            Error::Call(error) => error.never_sent(),
            Error::Refused { .. }
            | Error::BadAnswer { .. }
            | Error::Timeout { .. }
            | Error::SendFailed { .. } => false,
            _ => true,
        }
    }

    /// The result code, if a server refused.
    pub fn code(&self) -> Option<i32> {
        match self {
            Error::Refused { code, .. } => Some(*code),
            Error::TopicNotFound { .. } | Error::GroupNotFound { .. } => {
                Some(response::TOPIC_NOT_EXIST)
            }
            Error::SendFailed { source, .. } => source.code(),
            _ => None,
        }
    }

    /// For what failed in the way of files or sockets.
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Error::Io {
            what: what.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Error::Invalid {
            what,
            reason: reason.into(),
        }
    }

    pub(crate) fn bad_answer(addr: &str, reason: impl ToString) -> Self {
        Error::BadAnswer {
            addr: addr.to_owned(),
            reason: reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i32) -> Error {
        Error::Refused {
            addr: "a:1".to_owned(),
            code,
            remark: "no".to_owned(),
        }
    }

    fn send_failed(source: Error) -> Error {
        Error::SendFailed {
            topic: "t".to_owned(),
            attempts: 3,
            elapsed: Duration::from_millis(7),
            brokers: "a,b".to_owned(),
            source: Box::new(source),
        }
    }

    fn not_connected() -> CallError {
        CallError::Connect {
            addr: "a:1".into(),
            reason: "refused".into(),
        }
    }

    /// With whether it is certain that nobody saw the request.
    fn may_succeed_later() -> Vec<(Error, bool)> {
        let text = || "t".to_owned();
        let timed_out = CallError::Timeout {
            peer: "a:1".into(),
            code: 10,
            timeout: Duration::from_secs(3),
        };
        vec![
            (Error::Call(timed_out), false),
            (Error::Call(not_connected()), true),
            (refused(response::SYSTEM_BUSY), false),
            (refused(response::SERVICE_NOT_AVAILABLE), false),
            (refused(response::FLOW_CONTROL), false),
            (send_failed(Error::Call(not_connected())), false),
            (
                Error::NameServers {
                    tried: text(),
                    source: not_connected(),
                },
                true,
            ),
            (
                Error::TopicNotFound {
                    topic: text(),
                    remark: text(),
                },
                true,
            ),
            (
                Error::NoQueue {
                    topic: text(),
                    wanted: "send to",
                },
                true,
            ),
            (
                Error::BrokerNotFound {
                    broker_name: text(),
                },
                true,
            ),
            (
                Error::NoFilterServer {
                    topic: text(),
                    broker_addr: text(),
                },
                true,
            ),
            (
                Error::Timeout {
                    what: text(),
                    after: Duration::ZERO,
                },
                false,
            ),
        ]
    }

    #[test]
    fn every_error_says_whether_a_retry_makes_sense() {
        for (error, never_sent) in may_succeed_later() {
            assert!(error.is_retryable(), "{error}");
            assert_eq!(error.never_sent(), never_sent, "{error}");
        }
        let text = || "t".to_owned();
        let never = [
            Error::NoNameServer,
            refused(response::MESSAGE_ILLEGAL),
            refused(response::REQUEST_CODE_NOT_SUPPORTED),
            send_failed(refused(response::MESSAGE_ILLEGAL)),
            Error::bad_answer("a:1", "x"),
            Error::Message {
                topic: text(),
                reason: text(),
            },
            Error::Forbidden {
                topic: text(),
                reason: text(),
            },
            Error::invalid("what", "why"),
            Error::GroupTaken {
                kind: "producer",
                group: text(),
            },
            Error::Closed,
            Error::Io {
                what: text(),
                source: std::io::Error::other("x").into(),
            },
        ];
        for error in never {
            assert!(!error.is_retryable(), "{error}");
        }
    }

    #[test]
    fn an_error_tells_who_what_and_why() {
        let error = send_failed(refused(response::SYSTEM_BUSY));
        assert_eq!(error.code(), Some(response::SYSTEM_BUSY));
        assert_eq!(Error::Closed.code(), None);
        let text = error.to_string();
        for part in ["topic t", "3 attempts", "7 ms", "a,b", "code 2", "no"] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
}
