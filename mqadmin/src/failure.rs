//! Why a command was not done, and the exit status that says so.

use minimq_client::Error;
use minimq_protocol::code::response;

/// A command that was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The options do not fit together.
    #[error("{0}")]
    Usage(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// A cluster, name server or broker did not do it.
    #[error(transparent)]
    Client(#[from] Error),
    /// A file or the terminal.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not confirmed.
    #[error("not done: {0}")]
    Declined(String),
}

impl Failure {
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }

    /// 1 wrong use, 2 nothing reached, 3 refused, 5 not found.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Declined(_) => 1,
            Self::NotFound(_) => 5,
            Self::Io { .. } => 3,
            Self::Client(error) => match error {
                Error::NoNameServer
                | Error::Invalid { .. }
                | Error::Name(_)
                | Error::Message { .. } => 1,
                Error::NameServers { .. } | Error::Call(_) | Error::Timeout { .. } => 2,
                Error::TopicNotFound { .. }
                | Error::BrokerNotFound { .. }
                | Error::NoQueue { .. } => 5,
                Error::Refused {
                    code:
                        response::TOPIC_NOT_EXIST
                        | response::QUERY_NOT_FOUND
                        | response::SUBSCRIPTION_GROUP_NOT_EXIST
                        | response::CONSUMER_NOT_ONLINE,
                    ..
                } => 5,
                _ => 3,
            },
        }
    }

    /// What to try, if something can be said.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        let Self::Client(error) = self else {
            return None;
        };
        Some(match error {
            Error::NameServers { .. } | Error::NoNameServer => {
                "give the name server's address with -n host:port or NAMESRV_ADDR, and see that mqnamesrv runs"
            }
            Error::TopicNotFound { .. } => {
                "`mqadmin topicList` lists the topics, `mqadmin updateTopic` makes one"
            }
            Error::Call(_) => {
                "see that the broker runs and that its brokerIP1 is an address reached from here"
            }
            Error::Refused {
                code: response::NO_PERMISSION,
                ..
            } => "see the broker's permission and access control",
            _ => return None,
        })
    }

    /// The text with the result code, as scripts look for it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Client(error) => match error.code() {
                Some(code) => format!("{error} (CODE: {code})"),
                None => error.to_string(),
            },
            other => other.to_string(),
        }
    }
}
