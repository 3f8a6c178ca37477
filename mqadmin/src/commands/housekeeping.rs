//! Clean-ups that a broker does by itself in time, done now.

use serde_json::json;

use crate::command::{CommandSpec, Outcome, optional};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "cleanExpiredCQ",
        about: "Clean expired ConsumeQueue on broker.",
        example: "cleanExpiredCQ -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional(
                'c',
                "cluster",
                "All brokers of this cluster; without -b and -c: all clusters",
            ),
        ],
        danger: None,
        run: |given| Box::pin(clean(given, Clean::ExpiredQueues)),
    },
    CommandSpec {
        name: "cleanUnusedTopic",
        about: "Clean unused topic on broker.",
        example: "cleanUnusedTopic -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional(
                'c',
                "cluster",
                "All brokers of this cluster; without -b and -c: all clusters",
            ),
        ],
        danger: Some("deletes the queues of topics that no broker has any more"),
        run: |given| Box::pin(clean(given, Clean::UnusedTopics)),
    },
    CommandSpec {
        name: "deleteExpiredCommitLog",
        about: "Delete expired CommitLog files",
        example: "deleteExpiredCommitLog -b 127.0.0.1:10911",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional(
                'c',
                "cluster",
                "All brokers of this cluster; without -b and -c: all clusters",
            ),
        ],
        danger: Some("deletes commit-log files older than fileReservedTime now"),
        run: |given| Box::pin(clean(given, Clean::ExpiredLog)),
    },
];

#[derive(Clone, Copy)]
enum Clean {
    ExpiredQueues,
    UnusedTopics,
    ExpiredLog,
}

async fn clean(given: &Given, what: Clean) -> Outcome {
    let everywhere = given.optional("brokerAddr").is_none() && given.optional("cluster").is_none();
    let brokers = if everywhere {
        let places = given.places(None).await?.into_iter();
        places.map(|place| place.addr).collect()
    } else {
        given.brokers_and_slaves().await?
    };
    if brokers.is_empty() {
        return Err(Failure::NotFound("no broker is registered".to_owned()));
    }
    let (done, missing) = given
        .each(&brokers, |addr| async move {
            match what {
                Clean::ExpiredQueues => given.admin.clean_expired_queues(addr).await,
                Clean::UnusedTopics => given.admin.clean_unused_topics(addr).await,
                Clean::ExpiredLog => given.admin.delete_expired_commit_log(addr).await,
            }
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let lines = addrs.iter().map(|addr| format!("success {addr}"));
    Ok(Report::new(json!({ "brokers": addrs }))
        .lines(lines)
        .line(if missing.is_empty() {
            "success"
        } else {
            "false"
        })
        .missing(missing))
}
