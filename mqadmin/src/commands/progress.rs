//! How far consumer groups have come: one group queue by queue, or all groups.

use std::collections::{BTreeMap, BTreeSet};

use minimq_client::Error;
use minimq_protocol::body::{
    ConsumeStats, ConsumeType, ConsumerConnection, MessageModel, MessageQueue,
};
use minimq_protocol::code::response;
use minimq_protocol::{name, version};
use serde_json::json;

use crate::command::{CommandSpec, Outcome, default, optional};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;
use crate::text;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "consumerProgress",
    about: "Query consumers's progress, speed",
    example: "consumerProgress -g billing",
    options: &[
        optional(
            'g',
            "groupName",
            "One group, queue by queue; without it all groups",
        ),
        default(
            's',
            "showClientIP",
            "false",
            "With the client of each queue",
        ),
    ],
    danger: None,
    run: |given| Box::pin(progress(given)),
}];

/// Which client has which queue, of the members that tell.
async fn owners(given: &Given, group: &str) -> BTreeMap<MessageQueue, String> {
    let ids = given.admin.consumer_ids(group, None).await;
    let ids = ids.unwrap_or_default();
    let told = given
        .all(&ids, |id| given.admin.running_info(group, id, false))
        .await;
    let mut owners = BTreeMap::new();
    for (id, info) in ids.iter().zip(told) {
        if let Ok(info) = info {
            owners.extend(info.mq_table.into_keys().map(|queue| (queue, id.clone())));
        }
    }
    owners
}

async fn progress(given: &Given) -> Outcome {
    let shows_clients = given.boolean("showClientIP")?;
    let Some(group) = given.optional("groupName") else {
        return progress_of_all(given).await;
    };
    let stats = given.admin.consume_stats(group, None).await?;
    let owners = if shows_clients {
        owners(given, group).await
    } else {
        BTreeMap::new()
    };
    let mut total = 0;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (queue, offsets) in &stats.offset_table {
        let diff = offsets.broker_offset - offsets.consumer_offset;
        total += diff;
        let owner = owners.get(queue);
        json.push(json!({
            "topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id,
            "brokerOffset": offsets.broker_offset, "consumerOffset": offsets.consumer_offset, "diff": diff,
            "lastTime": offsets.last_timestamp, "client": owner,
        }));
        let mut row = vec![
            queue.topic.clone(),
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            offsets.broker_offset.to_string(),
            offsets.consumer_offset.to_string(),
        ];
        if shows_clients {
            // The part of the client id before @ is its address.
            let ip = owner.map(|id| id.split('@').next().unwrap_or(id).to_owned());
            row.push(ip.unwrap_or_else(|| "N/A".to_owned()));
        }
        row.push(diff.to_string());
        row.push(text::time_or_na(offsets.last_timestamp));
        rows.push(row);
    }
    let mut headings = vec![
        "#Topic",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        "#Diff",
        "#LastTime",
    ];
    if shows_clients {
        headings.insert(5, "#Client IP");
    }
    let tps = stats.consume_tps;
    Ok(Report::new(
        json!({ "group": group, "queues": json, "diffTotal": total, "consumeTps": tps }),
    )
    .table(&headings, rows)
    .line("")
    .line(format!("Consume TPS: {tps:.2}"))
    .line(format!("Diff Total: {total}")))
}

/// Groups that every broker has.
fn is_shown(group: &str) -> bool {
    !name::is_system_group(group)
        && !["TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"].contains(&group)
        && !group.starts_with("CID_ONS")
}

/// What one broker says of one group.
struct Part {
    stats: Result<ConsumeStats, Error>,
    members: Result<ConsumerConnection, Error>,
}

/// A group, all brokers put together.
#[derive(Default)]
pub(super) struct GroupProgress {
    pub(super) group: String,
    pub(super) clients: BTreeSet<String>,
    pub(super) newest: Option<i32>,
    pub(super) consume_type: Option<ConsumeType>,
    pub(super) model: Option<MessageModel>,
    pub(super) tps: f64,
    pub(super) diff: i64,
    pub(super) queues: usize,
    pub(super) topics: BTreeSet<String>,
}

/// All groups of all masters: each master is asked for the groups it has itself, so that no route is looked up. Besides, what
/// was not told.
pub(super) async fn all_groups(
    given: &Given,
) -> Result<(Vec<GroupProgress>, Vec<String>), Failure> {
    let masters: Vec<String> = given
        .places(None)
        .await?
        .into_iter()
        .filter(|place| place.id == 0)
        .map(|place| place.addr)
        .collect();
    let (known, mut missing) = given
        .each(&masters, |addr| given.admin.groups(addr))
        .await?;
    let mut asked = Vec::new();
    for (addr, groups) in known {
        let names = groups.subscription_group_table.into_keys();
        asked.extend(
            names
                .filter(|group| is_shown(group))
                .map(|group| (addr, group)),
        );
    }
    let parts = given
        .all(&asked, |(addr, group)| async move {
            Part {
                stats: given.admin.consume_stats_at(addr, group, None).await,
                members: given.admin.consumer_connections(group, Some(addr)).await,
            }
        })
        .await;
    let mut groups: BTreeMap<&str, GroupProgress> = BTreeMap::new();
    for ((addr, group), part) in asked.iter().zip(parts) {
        let one = groups.entry(group).or_default();
        match part.stats {
            Ok(stats) => {
                one.tps += stats.consume_tps;
                one.queues += stats.offset_table.len();
                for (queue, offsets) in stats.offset_table {
                    one.diff += offsets.broker_offset - offsets.consumer_offset;
                    one.topics.insert(queue.topic);
                }
            }
            Err(error) => missing.push(format!("{group} at {addr}: {error}")),
        }
        match part.members {
            Ok(members) => {
                for member in members.connection_set {
                    one.newest = one.newest.max(Some(member.version));
                    one.clients.insert(member.client_id);
                }
                one.consume_type = one.consume_type.or(members.consume_type);
                one.model = one.model.or(members.message_model);
            }
            // Nobody is connected there.
            Err(error) if error.code() == Some(response::CONSUMER_NOT_ONLINE) => {}
            Err(error) => missing.push(format!("{group} at {addr}: {error}")),
        }
    }
    let groups = groups.into_iter().map(|(group, one)| GroupProgress {
        group: group.to_owned(),
        ..one
    });
    Ok((groups.collect(), missing))
}

async fn progress_of_all(given: &Given) -> Outcome {
    let (groups, missing) = all_groups(given).await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for one in groups {
        let version = one
            .newest
            .map_or("OFFLINE".to_owned(), |v| version::name(v).into_owned());
        let kind = match one.consume_type {
            Some(ConsumeType::ConsumeActively) => "PULL",
            Some(_) => "PUSH",
            None => "",
        };
        // Only pushed messages have a model of their own.
        let model = one.model.filter(|_| kind == "PUSH").map(|m| m.to_string());
        json.push(json!({
            "group": one.group, "count": one.clients.len(), "version": version, "type": kind,
            "model": model, "tps": one.tps, "diffTotal": one.diff,
        }));
        rows.push(vec![
            one.group,
            one.clients.len().to_string(),
            version,
            kind.to_owned(),
            model.unwrap_or_default(),
            format!("{:.0}", one.tps),
            one.diff.to_string(),
        ]);
    }
    let headings = [
        "#Group",
        "#Count",
        "#Version",
        "#Type",
        "#Model",
        "#TPS",
        "#Diff Total",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}
