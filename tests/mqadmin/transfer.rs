//! Messages by files and pipes: send, consume, tail.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Lab, Run, finish, rows, tool, until};

/// Runs the tool with this on standard input.
fn with_input(lab: &Lab, line: &str, input: &str) -> Run {
    let mut child = tool()
        .args(line.split_whitespace())
        .args(["-n", lab.name_server()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn bodies(lines: &str) -> Vec<String> {
    let bodies = lines.lines().map(|line| {
        let json: Value = serde_json::from_str(line).unwrap();
        json["body"].as_str().unwrap().to_owned()
    });
    bodies.collect()
}

#[test]
fn messages_go_in_by_lines_files_and_json_and_come_out_again() {
    let lab = Lab::shared();
    lab.topic("Piped", 1);
    let run = with_input(
        &lab,
        "send Piped -b broker-a -c TagA --property price=7",
        "one\n\ntwo\nthrée\n",
    );
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    assert!(
        run.out.starts_with("3 messages sent to Piped in "),
        "{run:?}"
    );
    lab.stored("Piped", 3);
    let out = lab.ok("consume Piped --each json");
    assert_eq!(bodies(&out), ["one", "two", "thrée"]);
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["tags"], &first["properties"]["price"]),
        (&json!("TagA"), &json!("7"))
    );
    assert_eq!(lab.ok("consume Piped --each body"), "one\ntwo\nthrée\n");
    assert_eq!(lab.ok("consume Piped --each body -c 2"), "one\ntwo\n");
    assert_eq!(lab.ok("consume Piped -s NoSuchTag"), "");

    // What consume writes, send reads: to another topic.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("piped.jsonl");
    let file = file.display();
    let report = lab.json(&format!("consume Piped --each json -f {file}"));
    assert_eq!(report["messages"], 3);
    lab.topic("PipedCopy", 1);
    let report = lab.json(&format!("send PipedCopy --each json -f {file} -b broker-b"));
    assert_eq!((&report["sent"], &report["failed"]), (&json!(3), &json!(0)));
    lab.stored("PipedCopy", 3);
    let copy = lab.ok("consume PipedCopy --each json");
    assert_eq!(bodies(&copy), ["one", "two", "thrée"]);
    let first: Value = serde_json::from_str(copy.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["tags"], &first["properties"]["price"]),
        (&json!("TagA"), &json!("7"))
    );

    lab.topic("Whole", 1);
    assert_eq!(
        lab.json(&format!("send Whole --each file -f {file}"))["sent"],
        1
    );
    assert_eq!(lab.json("send Whole -p single -k k1")["sent"], 1);
    assert_eq!(lab.json("send Whole -p never --dry-run")["messages"], 1);

    let run = with_input(
        &lab,
        "send Whole --each json",
        "{\"body\":\"good\"}\nnonsense\n",
    );
    assert_eq!(run.status, 4, "{run:?}");
    assert!(run.err.contains("line 2: no JSON"), "{run:?}");
    let run = with_input(&lab, "send Whole --each json", "nonsense\n");
    assert_eq!(run.status, 1, "{run:?}");
    assert_eq!(lab.line("send Whole -f /no/such/file").status, 5);
    lab.fails("send Whole -p x -i 0", 1);
    lab.fails("send Whole -p x --each word", 1);
    lab.fails("consume NoSuchTopic", 5);
    lab.fails("consume Whole --each word", 1);
}

#[test]
fn a_group_consumes_and_its_offsets_are_stored() {
    let lab = Lab::shared();
    lab.topic("Grouped", 1);
    with_input(&lab, "send Grouped -b broker-a", "one\ntwo\nthree\n");
    let out = lab.ok("consume Grouped -g GroupedCG --each body -c 2 --idle 60");
    assert_eq!(out, "one\ntwo\n");
    let out = lab.ok("consume Grouped -g GroupedCG --each body -c 1 --idle 60");
    assert_eq!(out, "three\n");
}

/// A tool that goes on, ended when dropped.
struct Going(std::process::Child);

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tail_shows_new_messages_that_match() {
    let lab = Lab::shared();
    lab.topic("Tailed", 1);
    lab.send("Tailed", "old", "-b broker-a -i 0 -c TagA");
    let mut child = Going(
        tool()
            .args([
                "tail",
                "Tailed",
                "-s",
                "TagB",
                "-o",
                "json",
                "-n",
                lab.name_server(),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // Its pulls wait at the broker.
    until("the held pulls", || {
        let pulls = lab.json("heldPulls");
        let own = pulls
            .as_array()?
            .iter()
            .filter(|one| one["queue"]["topic"] == "Tailed")
            .count();
        (own == 2).then_some(())
    });
    lab.send("Tailed", "unwanted", "-b broker-a -i 0 -c TagA");
    lab.send("Tailed", "wanted", "-b broker-b -i 0 -c TagB");
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&line["body"], &line["tags"]),
        (&json!("wanted"), &json!("TagB"))
    );
    drop(child);

    // The last ones of each queue, and then an end.
    lab.stored("Tailed", 3);
    let mut all: Vec<String> = bodies(&lab.ok("tail Tailed --last 10 --max 3 -o json"));
    all.sort();
    assert_eq!(all, ["old", "unwanted", "wanted"]);
    lab.fails("tail NoSuchTopic", 5);
}

#[test]
fn tail_filters_by_an_expression_or_a_module() {
    let lab = Lab::shared();
    lab.topic("Priced", 1);
    let run = with_input(
        &lab,
        "send Priced --each json -b broker-a",
        "{\"body\":\"cheap\",\"properties\":{\"SequenceId\":\"3\"}}\n{\"body\":\"dear\",\"properties\":{\"SequenceId\":\"30\"}}\n",
    );
    assert_eq!(run.status, 0, "{run:?}");
    lab.stored("Priced", 2);
    let run = finish(tool().args([
        "tail",
        "Priced",
        "--sql",
        "SequenceId > 10",
        "--last",
        "9",
        "--max",
        "1",
        "-o",
        "json",
        "-n",
        lab.name_server(),
    ]));
    assert_eq!(
        (run.status, bodies(&run.out)),
        (0, vec!["dear".to_owned()]),
        "{}",
        run.err
    );
    let run = finish(tool().args([
        "tail",
        "Priced",
        "--sql",
        "SequenceId >",
        "--last",
        "9",
        "-n",
        lab.name_server(),
    ]));
    assert_ne!(run.status, 0, "{run:?}");
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("odd.wat");
    std::fs::write(&module, crate::filters::modulo(2, 1)).unwrap();
    let out = lab.ok(&format!(
        "tail Priced --wasm {} --last 9 --max 1 -o json",
        module.display()
    ));
    assert_eq!(bodies(&out), ["cheap"]);
    assert!(rows(&lab.ok("printMsg -t Priced")).len() > 2);
}
