//! The example filters: the text forms, and those built from source by `filtersrv/examples/build.sh`.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use minimq_filter_engine::{Engine, EngineConfig, Failure, FilterContext, Instance};
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::PropertiesBuf;

fn message(properties: &[(&str, &str)], body: &[u8]) -> MessageView<Bytes> {
    let mut text = PropertiesBuf::new();
    for (name, value) in properties {
        text.push(name, value);
    }
    let record = RecordFields {
        topic: "T",
        queue_id: 0,
        flag: 0,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_timestamp: 2,
        store_host: "127.0.0.1:2".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: minimq_protocol::crc::body_crc(body),
        body,
        properties: text.as_str().as_bytes(),
        appended_properties: &[],
    };
    MessageView::parse(record.encode().unwrap()).unwrap()
}

fn load(path: &Path) -> Instance {
    let module = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let engine = Engine::new(EngineConfig::default()).unwrap();
    engine
        .compile(&module)
        .unwrap()
        .instantiate(FilterContext::default())
        .unwrap()
}

fn keeps_every_third_above_ten(path: &Path) {
    let mut instance = load(path);
    let mut batch = instance.batch();
    let mut run = |n: &str| batch.run(&message(&[("SequenceId", n)], b""));
    let kept: Vec<u32> = (0..100).filter(|n| run(&n.to_string()).unwrap()).collect();
    assert_eq!(kept, (12..100).step_by(3).collect::<Vec<_>>());
    assert!(matches!(run("twelve"), Err(Failure::Guest(_))));
    assert_eq!(batch.run(&message(&[], b"")), Ok(false));
}

fn keeps_what_is_affordable(path: &Path) {
    let mut instance = load(path);
    let mut batch = instance.batch();
    for (price, kept) in [
        ("99.9", true),
        ("1e2", true),
        ("100.01", false),
        ("cheap", false),
    ] {
        assert_eq!(
            batch.run(&message(&[("price", price)], b"")),
            Ok(kept),
            "{price}"
        );
    }
    assert_eq!(batch.run(&message(&[], b"")), Ok(false));
}

fn keeps_orders_from_new_zealand(path: &Path) {
    let mut instance = load(path);
    let mut batch = instance.batch();
    for (body, kept) in [
        (
            r#"{"items":[1,2,{"n":null}],"customer":{"country":"NZ"}}"#,
            true,
        ),
        (r#"{"customer":{"country":"\u004eZ"}}"#, true),
        (r#"{"customer":{"country":"IS"}}"#, false),
        ("not json", false),
        ("", false),
    ] {
        assert_eq!(
            batch.run(&message(&[], body.as_bytes())),
            Ok(kept),
            "{body}"
        );
    }
    // Many, one after the other: what the guest allocates it frees.
    let order = message(
        &[],
        format!(
            r#"{{"customer":{{"country":"NZ"}},"x":"{}"}}"#,
            "y".repeat(100_000)
        )
        .as_bytes(),
    );
    for _ in 0..200 {
        assert_eq!(batch.run(&order), Ok(true));
    }
    drop(batch);
    assert!(instance.memory() < 4 << 20, "{}", instance.memory());
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// The code of a file, without comments and however its lines are broken.
fn code(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        let line = line.trim();
        let comment = ["//", "/*", "* "].iter().any(|mark| line.starts_with(mark));
        if !comment || line.starts_with("// @ts-ignore") {
            kept.extend(line.split_whitespace());
        }
    }
    kept
}

#[test]
fn the_c_and_typescript_of_the_readme_are_the_example_files() {
    let readme = std::fs::read_to_string(examples().join("../README.md")).unwrap();
    for (language, file) in [
        ("c", "c/sequence_id.c"),
        ("ts", "assemblyscript/sequence_id.ts"),
    ] {
        let (_, after) = readme.split_once(&format!("```{language}\n")).unwrap();
        let (block, _) = after.split_once("```").unwrap();
        let file = std::fs::read_to_string(examples().join(file)).unwrap();
        assert_eq!(code(block), code(&file), "{language}");
    }
}

#[test]
fn the_text_forms_do_what_they_say() {
    keeps_every_third_above_ten(&examples().join("sequence_id.wat"));
    keeps_what_is_affordable(&examples().join("price.wat"));
}

#[test]
#[ignore = "needs Rust for wasm32-unknown-unknown, clang and lld; the continuous integration runs it"]
fn the_examples_built_from_source_do_what_they_say() {
    let build = Command::new(examples().join("build.sh")).output().unwrap();
    assert!(
        build.status.success(),
        "{}",
        String::from_utf8_lossy(&build.stderr)
    );
    let built = String::from_utf8(build.stdout).unwrap();
    let left_out = String::from_utf8(build.stderr).unwrap();
    let find = |name: &str| {
        let line = built
            .lines()
            .find(|line| line.ends_with(name))
            .unwrap_or_else(|| panic!("no {name} in {built}\n{left_out}"));
        examples().join(line)
    };
    keeps_every_third_above_ten(&find("sequence_id.wasm"));
    keeps_every_third_above_ten(&find("sequence_id_c.wasm"));
    // Its compiler comes from npm, which not every machine has.
    if left_out.contains("left out: AssemblyScript") {
        eprintln!("{left_out}");
    } else {
        keeps_every_third_above_ten(&find("sequence_id_assemblyscript.wasm"));
    }
    keeps_what_is_affordable(&find("price.wasm"));
    keeps_orders_from_new_zealand(&find("json_body.wasm"));
}
