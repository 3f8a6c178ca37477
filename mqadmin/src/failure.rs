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
    /// Looked at and found wrong.
    #[error("{0}")]
    Refused(String),
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
    /// Whoever read the output has gone.
    #[error("nobody reads the output any more")]
    ReaderGone,
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
            Self::ReaderGone => 0,
            Self::Usage(_) | Self::Declined(_) => 1,
            Self::NotFound(_) => 5,
            Self::Refused(_) => 3,
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 5,
            Self::Io { .. } => 3,
            Self::Client(error) => status(error),
        }
    }

    /// What to try, if something can be said.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Client(error) => advice(error),
            Self::NotFound(text) if text.contains("clusterName exists") => {
                Some("`mqadmin clusterList` shows the clusters")
            }
            _ => None,
        }
    }

    /// The text with the result code, as scripts look for it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Client(error) => describe(error),
            other => other.to_string(),
        }
    }

    /// The same with the server's address, where the text does not hold it already.
    pub(crate) fn describe_at(&self, addr: &str) -> String {
        with_addr(self.describe(), addr)
    }

    /// The same for an error that is no failure of the whole command.
    pub(crate) fn describe_error_at(addr: &str, error: &Error) -> String {
        with_addr(describe(error), addr)
    }
}

/// An error with its code.
fn describe(error: &Error) -> String {
    match error.code() {
        Some(code) => format!("{error} (CODE: {code})"),
        None => error.to_string(),
    }
}

fn with_addr(text: String, addr: &str) -> String {
    if text.contains(addr) {
        text
    } else {
        format!("{addr}: {text}")
    }
}

fn status(error: &Error) -> u8 {
    match error {
        Error::NoNameServer | Error::Invalid { .. } | Error::Name(_) | Error::Message { .. } => 1,
        Error::NameServers { .. } | Error::Call(_) | Error::Timeout { .. } => 2,
        Error::SendFailed { source, .. } => status(source),
        Error::TopicNotFound { .. }
        | Error::GroupNotFound { .. }
        | Error::BrokerNotFound { .. }
        | Error::NoQueue { .. }
        | Error::NoFilterServer { .. }
        | Error::Refused {
            code:
                response::TOPIC_NOT_EXIST
                | response::QUERY_NOT_FOUND
                | response::SUBSCRIPTION_GROUP_NOT_EXIST
                | response::CONSUMER_NOT_ONLINE
                | response::NO_MESSAGE,
            ..
        } => 5,
        Error::Refused { remark, .. } if is_missing(remark) => 5,
        _ => 3,
    }
}

/// How brokers say with code 1 that they have no such group, topic, queue or client.
fn is_missing(remark: &str) -> bool {
    let remark = remark.trim_end_matches('!');
    remark.ends_with("not exist") || remark.ends_with("not online")
}

fn advice(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::NameServers { .. } | Error::NoNameServer => {
            "give the name server's address with -n host:port or NAMESRV_ADDR, and see that mqnamesrv runs"
        }
        Error::TopicNotFound { .. } => {
            "`mqadmin topicList` lists the topics, `mqadmin updateTopic` makes one"
        }
        Error::GroupNotFound { .. } => {
            "`mqadmin groupList` lists the groups of all brokers, `mqadmin consumerProgress` those that consume"
        }
        Error::BrokerNotFound { .. } => "`mqadmin clusterList` shows the brokers",
        Error::Invalid {
            what: "message id", ..
        } => {
            "an id of a broker is the #OffsetID of a message; by the client's id it is found with `mqadmin queryMsgByUniqueKey`"
        }
        Error::Call(_) => {
            "see that the broker runs and that its brokerIP1 is an address reached from here"
        }
        Error::NoFilterServer { .. } => "start mqfiltersrv beside the broker",
        Error::SendFailed { source, .. } => return advice(source),
        Error::Refused { code, remark, .. } => match *code {
            _ if remark.contains("access control is off") => {
                "set aclEnable=true in the broker's file and start it again"
            }
            response::NO_PERMISSION
                if remark.contains("black list")
                    || remark.contains("cannot be changed at run time")
                        && !remark.contains("no effect") =>
            {
                "such keys are changed in the file only, with a restart"
            }
            response::NO_PERMISSION => {
                "see the permission of topic and broker (`mqadmin topicRoute -l`)"
            }
            response::SYSTEM_ERROR
                if remark.contains("AclException") || remark.contains("accessKey") =>
            {
                "give an account with --access-key and MINIMQ_SECRET_KEY, or in conf/tools.yml"
            }
            response::SYSTEM_ERROR if remark.contains("there is no key") => {
                "`mqadmin getBrokerConfig -b` shows the keys"
            }
            response::SYSTEM_ERROR
                if remark.contains("queueId")
                    || remark.trim_end_matches('!').ends_with("is not exist") =>
            {
                "`mqadmin topicStatus -t` shows the queues"
            }
            response::SYSTEM_ERROR if remark.contains("onsumer group") && is_missing(remark) => {
                "it has no offset in a queue of that topic: `mqadmin consumerProgress -g` shows its offsets, `mqadmin groupList` the groups"
            }
            response::SYSTEM_ERROR if remark.contains("producer group") && is_missing(remark) => {
                "`mqadmin producer -b` lists the producers of a broker"
            }
            response::SYSTEM_ERROR if is_missing(remark) && remark.ends_with("online") => {
                "`mqadmin consumerConnection -g` lists the members of a group"
            }
            response::REQUEST_CODE_NOT_SUPPORTED => {
                "the server does not know this request: it is of another kind or an older version"
            }
            response::CONSUMER_NOT_ONLINE => {
                "`mqadmin consumerProgress` lists the groups and how many members are connected"
            }
            response::SYSTEM_BUSY => "try again: the broker has too much to do",
            response::SERVICE_NOT_AVAILABLE => {
                "see `mqadmin status`: the broker's disk may be full or its store broken"
            }
            _ => return None,
        },
        _ => return None,
    })
}
