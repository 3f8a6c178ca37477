//! Every recorded SQL92 expression evaluates here as in RocketMQ 4.9.8.

use std::collections::BTreeMap;

use minimq_broker::filter::sql::Selector;

#[test]
fn every_recorded_expression_has_the_recorded_result() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/sql92.tsv");
    let table = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut wrong = Vec::new();
    let mut rows = 0;
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let text: String = serde_json::from_str(columns[0]).unwrap();
        let properties: BTreeMap<String, String> = serde_json::from_str(columns[1]).unwrap();
        let lookup = |name: &str| properties.get(name).map(String::as_str);
        let result = match Selector::parse(&text) {
            Err(_) => "error compile".to_owned(),
            Ok(selector) => match selector.evaluate(lookup) {
                Ok(Some(value)) => format!("{value} "),
                Ok(None) => "null ".to_owned(),
                Err(_) => "error evaluate".to_owned(),
            },
        };
        let stage = columns[3].split(':').next().unwrap_or("");
        let expected = format!("{} {stage}", columns[2]);
        rows += 1;
        if result != expected {
            wrong.push(format!("{line}\n    here: {result}"));
        }
    }
    assert!(rows > 3000, "only {rows} rows");
    assert!(
        wrong.is_empty(),
        "{} of {rows} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
