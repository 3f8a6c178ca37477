//! Access control: accounts and white addresses of brokers.

use minimq_protocol::body::PlainAccessConfig;
use serde_json::json;

use crate::command::{CommandSpec, Outcome, optional, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateAclConfig",
        about: "Update acl config yaml file in broker",
        example: "updateAclConfig -c DefaultCluster -a billing -s secret123 -t Orders=SUB",
        options: &[
            optional('b', "brokerAddr", "The broker, name or host:port"),
            optional('c', "clusterName", "All masters of this cluster"),
            required('a', "accessKey", "The account"),
            required(
                's',
                "secretKey",
                "Its secret, at least 7 characters; - reads it from standard input",
            ),
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
            optional('b', "brokerAddr", "The broker, name or host:port"),
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
            optional('b', "brokerAddr", "The broker, name or host:port"),
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
            optional('b', "brokerAddr", "The broker, name or host:port"),
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

/// The secret; `-` reads one line of standard input, so that no list of processes shows it.
fn secret(given: &Given) -> Result<String, Failure> {
    let text = given.text("secretKey")?;
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::io("cannot read the secret", error))?;
    match line.trim() {
        "" => Err(Failure::Usage("standard input holds no secret".to_owned())),
        secret => Ok(secret.to_owned()),
    }
}

/// An account without its secret.
fn describe(account: &PlainAccessConfig) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let list = |values: &Option<Vec<String>>| values.clone().unwrap_or_default().join(",");
    format!(
        "PlainAccessConfig [accessKey={}, whiteRemoteAddress={}, defaultTopicPerm={}, defaultGroupPerm={}, topicPerms=[{}], groupPerms=[{}], admin={}]",
        text(&account.access_key),
        text(&account.white_remote_address),
        text(&account.default_topic_perm),
        text(&account.default_group_perm),
        list(&account.topic_perms),
        list(&account.group_perms),
        account.admin
    )
}

async fn update(given: &Given) -> Outcome {
    let account = PlainAccessConfig {
        access_key: Some(given.text("accessKey")?.to_owned()),
        secret_key: Some(secret(given)?),
        white_remote_address: given.optional("whiteRemoteAddress").map(str::to_owned),
        default_topic_perm: given.optional("defaultTopicPerm").map(str::to_owned),
        default_group_perm: given.optional("defaultGroupPerm").map(str::to_owned),
        topic_perms: list(given, "topicPerms"),
        group_perms: list(given, "groupPerms"),
        admin: match given.optional("admin") {
            Some(_) => given.boolean("admin")?,
            None => false,
        },
    };
    let brokers = given.brokers_and_slaves().await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.set_account(addr, &account))
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let lines = addrs
        .iter()
        .map(|addr| format!("create or update plain access config to {addr} success."));
    Ok(
        Report::new(json!({ "accessKey": account.access_key, "brokers": addrs }))
            .lines(lines)
            .line(describe(&account))
            .missing(missing),
    )
}

async fn delete(given: &Given) -> Outcome {
    let key = given.text("accessKey")?;
    let brokers = given.brokers_and_slaves().await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.delete_account(addr, key))
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let lines = addrs
        .iter()
        .map(|addr| format!("delete plain access config account from {addr} success."));
    Ok(Report::new(json!({ "accessKey": key, "brokers": addrs }))
        .lines(lines)
        .line(format!("account's accesskey is:{key}"))
        .missing(missing))
}

async fn versions(given: &Given) -> Outcome {
    let brokers = given.brokers().await?;
    let (done, missing) = given
        .each(&brokers, |addr| given.admin.access_version(addr))
        .await?;
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (_, found) in done {
        let mut files: Vec<(String, i64, i64)> = found
            .files
            .0
            .iter()
            .map(|(file, version)| (file.clone(), version.counter, version.timestamp))
            .collect();
        if files.is_empty() {
            files.push((
                String::new(),
                found.version.counter,
                found.version.timestamp,
            ));
        }
        for (file, counter, timestamp) in files {
            json.push(json!({
                "cluster": found.cluster, "broker": found.broker_name, "addr": found.broker_addr,
                "file": file, "timestamp": timestamp, "counter": counter,
            }));
            rows.push(vec![
                found.cluster.clone(),
                found.broker_name.clone(),
                found.broker_addr.clone(),
                file,
                counter.to_string(),
                crate::text::time_or_na(timestamp),
            ]);
        }
    }
    let headings = [
        "#Cluster Name",
        "#Broker Name",
        "#Broker Addr",
        "#AclFilePath",
        "#AclConfigVersionNum",
        "#AclLastUpdateTime",
    ];
    let scope = match given.optional("brokerAddr") {
        Some(_) => "broker",
        None => "cluster",
    };
    Ok(Report::new(json.into())
        .table(&headings, rows)
        .line(format!(
            "get {scope}'s plain access config version success."
        ))
        .missing(missing))
}

async fn white_addresses(given: &Given) -> Outcome {
    let addresses = given.text("globalWhiteRemoteAddresses")?;
    let file = given.optional("aclFileFullPath");
    let brokers = given.brokers_and_slaves().await?;
    let (done, missing) = given
        .each(&brokers, |addr| {
            given.admin.set_global_white_addrs(addr, addresses, file)
        })
        .await?;
    let addrs: Vec<&str> = done.iter().map(|(addr, ())| *addr).collect();
    let lines = addrs
        .iter()
        .map(|addr| format!("update global white remote addresses to {addr} success."));
    Ok(
        Report::new(json!({ "addresses": addresses, "brokers": addrs }))
            .lines(lines)
            .missing(missing),
    )
}
