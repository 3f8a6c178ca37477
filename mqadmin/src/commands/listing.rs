//! Lists that the stock tool has not: keys of a namespace, groups of brokers, accounts.

use minimq_protocol::json::Flavour;
use serde_json::json;

use super::internals::{chosen, is_foreign};
use super::shape::value_of;
use crate::command::{CommandSpec, Opt, Outcome, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

const BROKER: Opt = optional(
    'b',
    "brokerAddr",
    "The broker, name or host:port; without -b and -c: all",
);
const CLUSTER: Opt = optional('c', "clusterName", "All masters of this cluster");

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "kvList",
        about: "Keys and values of a namespace of the name servers",
        example: "kvList -s ORDER_TOPIC_CONFIG",
        options: &[required('s', "namespace", "The namespace")],
        danger: None,
        run: |given| Box::pin(keys(given)),
    },
    CommandSpec {
        name: "groupList",
        about: "Consumer groups of brokers with their settings",
        example: "groupList -c DefaultCluster",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(groups(given)),
    },
    CommandSpec {
        name: "aclList",
        about: "Accounts of brokers with their permissions, without secrets",
        example: "aclList -b broker-a",
        options: &[BROKER, CLUSTER],
        danger: None,
        run: |given| Box::pin(accounts(given)),
    },
];

async fn keys(given: &Given) -> Outcome {
    let table = given.admin.list_kv(given.text("namespace")?).await?;
    let rows = table
        .iter()
        .map(|(key, value)| vec![key.clone(), value.clone()]);
    Ok(Report::new(json!(table)).table(&["#Key", "#Value"], rows))
}

async fn groups(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.groups(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, found) in done {
        for group in found.subscription_group_table.into_values() {
            json.push(
                json!({ "addr": addr, "config": value_of(&group.to_json(Flavour::Standard)) }),
            );
            rows.push(vec![
                addr.to_owned(),
                group.group_name,
                group.consume_enable.to_string(),
                group.consume_broadcast_enable.to_string(),
                group.retry_queue_nums.to_string(),
                group.retry_max_times.to_string(),
                group.broker_id.to_string(),
            ]);
        }
    }
    let headings = [
        "#Addr",
        "#Group",
        "#Enabled",
        "#Broadcast",
        "#Retry Queues",
        "#Retries",
        "#Broker Id",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}

async fn accounts(given: &Given) -> Outcome {
    let brokers = chosen(given).await?;
    let asked = given
        .each(&brokers, |addr| given.admin.access_rules(addr))
        .await;
    let (done, missing) = match asked {
        Err(Failure::Client(error)) if is_foreign(&error) => {
            return Err(Failure::Refused(format!(
                "{}: only RocketMQ brokers of 4.6.0 to 4.9.7 give their accounts away; others keep them to their file (`mqadmin clusterAclConfigVersion` shows where)",
                Failure::from(error).describe()
            )));
        }
        other => other?,
    };
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (addr, rules) in done {
        let white = rules.global_white_addrs.unwrap_or_default();
        let mut accounts = Vec::new();
        for account in rules.plain_access_configs.unwrap_or_default() {
            let list = |values: &Option<Vec<String>>| values.clone().unwrap_or_default().join(",");
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            accounts.push(json!({
                "accessKey": account.access_key, "admin": account.admin, "whiteRemoteAddress": account.white_remote_address,
                "defaultTopicPerm": account.default_topic_perm, "defaultGroupPerm": account.default_group_perm,
                "topicPerms": account.topic_perms, "groupPerms": account.group_perms,
            }));
            rows.push(vec![
                addr.to_owned(),
                text(&account.access_key),
                account.admin.to_string(),
                text(&account.white_remote_address),
                text(&account.default_topic_perm),
                text(&account.default_group_perm),
                list(&account.topic_perms),
                list(&account.group_perms),
            ]);
        }
        json.push(json!({ "addr": addr, "globalWhiteAddrs": white, "accounts": accounts }));
    }
    let headings = [
        "#Addr",
        "#Account",
        "#Admin",
        "#White Address",
        "#Topics",
        "#Groups",
        "#Topic Perms",
        "#Group Perms",
    ];
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .missing(missing))
}
