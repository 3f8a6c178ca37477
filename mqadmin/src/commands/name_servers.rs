//! Name servers: KV configuration and settings.

use std::collections::BTreeMap;

use serde_json::json;

use crate::command::{CommandSpec, Outcome, required};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

use super::pairs;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "updateKvConfig",
        about: "Create or update KV config.",
        example: "updateKvConfig -s ORDER_TOPIC_CONFIG -k Orders -v broker-a:4",
        options: &[
            required('s', "namespace", "The namespace"),
            required('k', "key", "The key"),
            required('v', "value", "The value"),
        ],
        danger: None,
        run: |given| Box::pin(put(given)),
    },
    CommandSpec {
        name: "deleteKvConfig",
        about: "Delete KV config.",
        example: "deleteKvConfig -s ORDER_TOPIC_CONFIG -k Orders",
        options: &[
            required('s', "namespace", "The namespace"),
            required('k', "key", "The key"),
        ],
        danger: None,
        run: |given| Box::pin(delete(given)),
    },
    CommandSpec {
        name: "getNamesrvConfig",
        about: "Get configs of name server.",
        example: "getNamesrvConfig -n 127.0.0.1:9876",
        options: &[],
        danger: None,
        run: |given| Box::pin(get_config(given)),
    },
    CommandSpec {
        name: "updateNamesrvConfig",
        about: "Update configs of name server.",
        example: "updateNamesrvConfig -k orderMessageEnable -v true",
        options: &[
            required('k', "key", "The key"),
            required('v', "value", "Its new value"),
        ],
        danger: None,
        run: |given| Box::pin(update_config(given)),
    },
];

async fn put(given: &Given) -> Outcome {
    given
        .admin
        .put_kv(
            given.text("namespace")?,
            given.text("key")?,
            given.text("value")?,
        )
        .await?;
    Ok(Report::done(
        "create or update kv config to namespace success.",
    ))
}

async fn delete(given: &Given) -> Outcome {
    given
        .admin
        .delete_kv(given.text("namespace")?, given.text("key")?)
        .await?;
    Ok(Report::done("delete kv config from namespace success."))
}

async fn get_config(given: &Given) -> Outcome {
    let servers = given.admin.name_servers();
    let (done, missing) = given
        .each(&servers, |server| given.admin.name_server_config(server))
        .await?;
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    for (server, text) in done {
        let table = pairs(&text);
        report = report
            .line(format!("============{server}============"))
            .lines(
                table
                    .iter()
                    .map(|(key, value)| format!("{key:<50}=  {value}")),
            );
        json.insert(server.to_owned(), json!(table));
    }
    Ok(report.with_json(json.into()).missing(missing))
}

async fn update_config(given: &Given) -> Outcome {
    let (key, value) = (given.text("key")?, given.text("value")?);
    let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let servers = given.admin.name_servers();
    let (done, missing) = given
        .each(&servers, |server| async {
            // A key that it does not have is taken without a word.
            let known = pairs(&given.admin.name_server_config(server).await?).contains_key(key);
            if known {
                given
                    .admin
                    .update_name_server_config(server, &settings)
                    .await?;
            }
            Ok(known)
        })
        .await?;
    let (done, unknown): (Vec<_>, Vec<_>) = done.into_iter().partition(|(_, known)| *known);
    if done.is_empty() {
        return Err(Failure::NotFound(format!(
            "the name servers have no key {key}; `mqadmin getNamesrvConfig` shows those they have"
        )));
    }
    let missing = missing.into_iter().chain(
        unknown
            .iter()
            .map(|(server, _)| format!("{server}: has no key {key}")),
    );
    let servers: Vec<&str> = done.iter().map(|(server, _)| *server).collect();
    Ok(
        Report::new(json!({ "key": key, "value": value, "nameServers": servers }))
            .line(format!(
                "update name server config success![{}]",
                servers.join(", ")
            ))
            .line(format!("{key} : {value}"))
            .missing(missing),
    )
}
