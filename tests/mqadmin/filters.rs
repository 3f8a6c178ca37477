//! Filters: what filter servers run, modules tried here and given to them.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Lab, bare, rows, until};

/// Keeps messages whose property `SequenceId` divided by `by` leaves `rest`.
pub(crate) fn modulo(by: u32, rest: u32) -> String {
    format!(
        r#"(module (import "minimq" "property_i64" (func $i64 (param i32 i32 i32) (result i32)))
          (memory (export "memory") 1) (data (i32.const 0) "SequenceId")
          (func (export "minimq_filter_abi_1"))
          (func (export "filter") (result i32)
            (drop (call $i64 (i32.const 0) (i32.const 10) (i32.const 16)))
            (i64.eq (i64.rem_s (i64.load (i32.const 16)) (i64.const {by})) (i64.const {rest}))))"#
    )
}

/// A module that answers its own error.
pub(crate) const FAILING: &str = "(module (memory (export \"memory\") 1) (func (export \"minimq_filter_abi_1\")) (func (export \"filter\") (result i32) i32.const -7))";

#[test]
fn a_module_is_tried_on_a_file_and_on_a_topic() {
    let lab = Lab::shared();
    lab.topic("Tried", 1);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("third.wat"), modulo(3, 0)).unwrap();
    let mut messages = std::fs::File::create(path("messages.jsonl")).unwrap();
    for id in 0..10 {
        writeln!(
            messages,
            "{{\"body\":\"m{id}\",\"properties\":{{\"SequenceId\":{id}}}}}"
        )
        .unwrap();
    }
    let (module, file) = (path("third.wat"), path("messages.jsonl"));
    let run = bare(&format!("filterTest {module} -f {file} -o json --print"));
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(
        (
            &json["messages"],
            &json["kept"],
            &json["dropped"],
            &json["failed"]
        ),
        (&json!(10), &json!(4), &json!(6), &json!(0))
    );
    assert_eq!(json["keptMessages"][1]["body"], "m3");
    assert_eq!(json["hash"].as_str().unwrap().len(), 64);
    assert_eq!(
        lab.json(&format!("send Tried --each json -f {file}"))["sent"],
        10
    );
    lab.stored("Tried", 10);
    let json = lab.json(&format!("filterTest {module} -t Tried"));
    assert_eq!((&json["messages"], &json["kept"]), (&json!(10), &json!(4)));
    assert_eq!(
        lab.json(&format!("filterTest {module} -t Tried --max 5"))["messages"],
        5
    );
    assert!(
        lab.ok(&format!("filterTest {module} -t Tried"))
            .starts_with("10 messages: 4 kept, 6 dropped, 0 failed; ")
    );

    std::fs::write(path("failing.wat"), FAILING).unwrap();
    let run = bare(&format!("filterTest {} -f {file}", path("failing.wat")));
    assert_eq!(run.status, 4, "{run:?}");
    assert!(
        run.out.contains("10 failed")
            && run
                .out
                .contains("line 1: the filter answered its own error -7"),
        "{run:?}"
    );
    std::fs::write(path("wrong.wat"), "(module (import \"wasi\" \"x\" (func)))").unwrap();
    let run = bare(&format!("filterTest {} -f {file}", path("wrong.wat")));
    assert_eq!(run.status, 3, "{run:?}");
    assert!(run.err.contains("wrong.wat"), "{run:?}");
    assert_eq!(bare(&format!("filterTest {module}")).status, 1);
    assert_eq!(bare("filterTest /no/such/module -f x").status, 5);
}

#[test]
fn a_module_is_given_to_the_filter_servers_and_listed() {
    let lab = Lab::shared();
    lab.topic("Pushed", 1);
    until("the filter servers in the route", || {
        let route = lab.json("topicRoute -t Pushed");
        (route["filterServerTable"].as_object()?.len() == 2).then_some(())
    });
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("odd.wat");
    std::fs::write(&module, modulo(2, 1)).unwrap();
    let module = module.display();
    let json = lab.json(&format!(
        "filterPush {module} -t Pushed -g PushedCG --name odd"
    ));
    let mut servers = lab.cluster.filter_servers().to_vec();
    servers.sort();
    assert_eq!(
        (&json["name"], &json["filterServers"]),
        (&json!("odd"), &json!(servers))
    );
    let all = lab.json("filterList");
    let found: Vec<&Value> = all
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|server| server["filters"].as_array().unwrap())
        .filter(|filter| filter["consumerGroup"] == "PushedCG")
        .collect();
    assert_eq!(found.len(), 2, "{all}");
    assert_eq!(
        (
            &found[0]["topic"],
            &found[0]["className"],
            &found[0]["hash"]
        ),
        (&json!("Pushed"), &json!("odd"), &json["hash"])
    );
    let text = lab.ok(&format!("filterList -a {}", servers[0]));
    let row = rows(&text)
        .into_iter()
        .find(|row| row[2] == "Pushed@PushedCG")
        .unwrap();
    assert_eq!(
        (row[0], row[3], row[5]),
        (servers[0].as_str(), "odd", "active"),
        "{text}"
    );
    let shown = lab.ok(&format!(
        "filterPush {module} -t Pushed -g OtherCG --dry-run"
    ));
    assert_eq!(
        shown.matches("REGISTER_MESSAGE_FILTER_CLASS").count(),
        2,
        "{shown}"
    );
    let err = lab.fails("filterList -a 127.0.0.1:1", 2);
    assert!(err.contains("127.0.0.1:1"), "{err}");
    // A broker is no filter server.
    let err = lab.fails(&format!("filterList -a {}", lab.broker(0)), 3);
    assert!(err.contains("CODE: 3"), "{err}");
    lab.fails(&format!("filterPush {module} -t NoSuchTopic -g G"), 5);
}
