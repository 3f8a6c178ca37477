//! Name servers: KV configuration and settings.

use serde_json::json;

use crate::support::Lab;

#[test]
fn keys_are_set_and_deleted() {
    let lab = Lab::shared();
    assert_eq!(
        lab.ok("updateKvConfig -s ADM_NS -k k1 -v v1"),
        "create or update kv config to namespace success.\n"
    );
    assert_eq!(
        lab.ok("deleteKvConfig -s ADM_NS -k k1"),
        "delete kv config from namespace success.\n"
    );
    // What is not there is deleted all the same.
    assert!(lab.json("deleteKvConfig -s NONE -k none")["done"].is_string());
}

#[test]
fn settings_are_shown_and_changed() {
    let lab = Lab::shared();
    let server = lab.name_server();
    let text = lab.ok("getNamesrvConfig");
    assert!(
        text.starts_with(&format!("============{server}============\n")),
        "{text}"
    );
    assert!(
        text.contains(&format!("{:<50}=  ", "orderMessageEnable")),
        "{text}"
    );
    assert_eq!(
        lab.ok("updateNamesrvConfig -k clusterTest -v false"),
        format!("update name server config success![{server}]\nclusterTest : false\n")
    );
    let json = lab.json("updateNamesrvConfig -k clusterTest -v false");
    assert_eq!(
        json,
        json!({ "key": "clusterTest", "value": "false", "nameServers": [server] })
    );
    assert_eq!(lab.json("getNamesrvConfig")[server]["clusterTest"], "false");
    let err = lab.fails("updateNamesrvConfig -k kvConfigPath -v x", 3);
    assert!(err.contains("CODE: 16") && err.contains(server), "{err}");
}
