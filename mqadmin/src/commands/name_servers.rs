//! Name servers: KV configuration and settings.

use std::collections::BTreeMap;

use serde_json::json;

use crate::command::{CommandSpec, Given, Outcome, required};
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
    let (mut json, mut report) = (serde_json::Map::new(), Report::default());
    for server in given.admin.name_servers() {
        let table = pairs(&given.admin.name_server_config(&server).await?);
        report = report.line(format!("============{server}============"));
        report = table.iter().fold(report, |report, (key, value)| {
            report.line(format!("{key:<50}=  {value}"))
        });
        json.insert(server, json!(table));
    }
    let text = report.to_text();
    Ok(Report::new(json.into()).line(text.trim_end()))
}

async fn update_config(given: &Given) -> Outcome {
    let (key, value) = (given.text("key")?, given.text("value")?);
    let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let servers = given.admin.name_servers();
    for server in &servers {
        given
            .admin
            .update_name_server_config(server, &settings)
            .await?;
    }
    Ok(
        Report::new(json!({ "key": key, "value": value, "nameServers": servers }))
            .line(format!("update name server config success!{servers:?}"))
            .line(format!("{key} : {value}")),
    )
}
