//! Access control: accounts and white addresses of brokers.

use minimq_protocol::body::PlainAccessConfig;
use serde_json::json;

use crate::command::{CommandSpec, Given, Outcome, optional, required};
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateAclConfig",
        about: "Update acl config yaml file in broker",
        example: "updateAclConfig -c DefaultCluster -a billing -s secret123 -t Orders=SUB",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('a', "accessKey", "The account"),
            required('s', "secretKey", "Its secret, at least 7 characters"),
            optional(
                'w',
                "whiteRemoteAddress",
                "Addresses from which it needs no signature",
            ),
            optional('i', "defaultTopicPerm", "DENY, PUB, SUB or PUB|SUB"),
            optional('u', "defaultGroupPerm", "DENY, PUB, SUB or PUB|SUB"),
            optional('t', "topicPerms", "topicA=DENY,topicB=SUB"),
            optional('g', "groupPerms", "groupA=DENY,groupB=SUB"),
            optional('m', "admin", "true or false"),
        ],
        danger: None,
        run: |given| Box::pin(update(given)),
    },
    CommandSpec {
        name: "deleteAclConfig",
        about: "Delete Acl Config Account in broker",
        example: "deleteAclConfig -c DefaultCluster -a billing",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('a', "accessKey", "The account"),
        ],
        danger: Some("deletes the account"),
        run: |given| Box::pin(delete(given)),
    },
    CommandSpec {
        name: "clusterAclConfigVersion",
        about: "List all of acl config version information in cluster",
        example: "clusterAclConfigVersion -c DefaultCluster",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
        ],
        danger: None,
        run: |given| Box::pin(versions(given)),
    },
    CommandSpec {
        name: "updateGlobalWhiteAddr",
        about: "Update global white address for acl Config File in broker",
        example: "updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.*,127.0.0.1",
        options: &[
            optional('b', "brokerAddr", "The broker, host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required(
                'g',
                "globalWhiteRemoteAddresses",
                "Addresses, separated by ,",
            ),
            optional('p', "aclFileFullPath", "The rules file they are written to"),
        ],
        danger: None,
        run: |given| Box::pin(white_addresses(given)),
    },
];

fn list(given: &Given, long: &str) -> Option<Vec<String>> {
    given
        .optional(long)
        .map(|text| text.split(',').map(|item| item.trim().to_owned()).collect())
}

async fn update(given: &Given) -> Outcome {
    let account = PlainAccessConfig {
        access_key: Some(given.text("accessKey")?.to_owned()),
        secret_key: Some(given.text("secretKey")?.to_owned()),
        white_remote_address: given.optional("whiteRemoteAddress").map(str::to_owned),
        default_topic_perm: given.optional("defaultTopicPerm").map(str::to_owned),
        default_group_perm: given.optional("defaultGroupPerm").map(str::to_owned),
        topic_perms: list(given, "topicPerms"),
        group_perms: list(given, "groupPerms"),
        admin: given
            .optional("admin")
            .is_some_and(|value| value.eq_ignore_ascii_case("true")),
    };
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "accessKey": account.access_key, "brokers": brokers }));
    for addr in &brokers {
        given.admin.set_account(addr, &account).await?;
        report = report.line(format!(
            "create or update plain access config to {addr} success."
        ));
    }
    Ok(report)
}

async fn delete(given: &Given) -> Outcome {
    let key = given.text("accessKey")?;
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "accessKey": key, "brokers": brokers }));
    for addr in &brokers {
        given.admin.delete_account(addr, key).await?;
        report = report.line(format!(
            "delete plain access config account from {addr} success."
        ));
    }
    Ok(report)
}

async fn versions(given: &Given) -> Outcome {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for addr in given.brokers().await? {
        let found = given.admin.access_version(&addr).await?;
        json.push(json!({
            "cluster": found.cluster, "broker": found.broker_name, "addr": found.broker_addr,
            "timestamp": found.version.timestamp, "counter": found.version.counter,
        }));
        rows.push(vec![
            found.cluster,
            found.broker_name,
            found.broker_addr,
            found.version.counter.to_string(),
            crate::text::time(found.version.timestamp),
        ]);
    }
    let headings = [
        "#Cluster Name",
        "#Broker Name",
        "#Broker Addr",
        "#AclConfigVersionNum",
        "#AclLastUpdateTime",
    ];
    Ok(Report::new(json.into()).table(&headings, rows))
}

async fn white_addresses(given: &Given) -> Outcome {
    let addresses = given.text("globalWhiteRemoteAddresses")?;
    let brokers = given.brokers().await?;
    let mut report = Report::new(json!({ "addresses": addresses, "brokers": brokers }));
    for addr in &brokers {
        given
            .admin
            .set_global_white_addrs(addr, addresses, given.optional("aclFileFullPath"))
            .await?;
        report = report.line(format!(
            "update global white remote addresses to {addr} success."
        ));
    }
    Ok(report)
}
