//! Stores on disk: checked and shown without a broker.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use minimq::{Cluster, Data};
use serde_json::{Value, json};

use crate::support::{Lab, bare, runtime};

/// Turns the first byte of a body that is stored in the first file of a log.
pub(crate) fn turn_byte(store: &Path, body: &[u8]) {
    let file = store.join("commitlog").join(format!("{:020}", 0));
    let bytes = std::fs::read(&file).unwrap();
    let place = bytes.windows(body.len()).position(|part| part == body);
    let mut file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    let at = SeekFrom::Start(place.unwrap() as u64);
    file.seek(at).unwrap();
    file.write_all(b"X").unwrap();
}

#[test]
fn a_store_is_checked_and_shown_and_what_is_torn_is_told_with_its_place() {
    let outer = tempfile::tempdir().unwrap();
    let data = outer.path().join("data");
    let cluster = runtime()
        .block_on(Cluster::builder().data(Data::Folder(data.clone())).start())
        .unwrap();
    let lab = Lab { cluster };
    lab.topic("Stored", 1);
    for body in ["first-body", "second-body", "third-body"] {
        lab.send("Stored", body, "-b broker-a -i 0 -c TagA");
    }
    let store = data.join("broker-a");
    let dir = store.display().to_string();
    // A broker has it open.
    let run = bare(&format!("storeVerify {dir}"));
    assert_eq!(run.status, 3, "{run:?}");
    assert!(run.err.contains("--while-running"), "{run:?}");
    drop(lab);

    let run = bare(&format!("storeVerify {dir}"));
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    assert!(run.out.ends_with("the store is sound\n"), "{run:?}");
    let json: Value =
        serde_json::from_str(&bare(&format!("storeVerify {dir} -o json")).out).unwrap();
    assert_eq!(
        (&json["sound"], &json["clean"], &json["findings"]),
        (&json!(true), &json!(true), &json!([]))
    );
    assert!(json["records"].as_u64().unwrap() >= 3, "{json}");

    let run = bare(&format!("storeDump {dir} -t Stored -o json"));
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    let records: Vec<Value> = run
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let bodies: Vec<&str> = records
        .iter()
        .map(|record| record["body"].as_str().unwrap())
        .collect();
    assert_eq!(bodies, ["first-body", "second-body", "third-body"]);
    assert_eq!(
        (&records[1]["tags"], &records[1]["queueOffset"]),
        (&json!("TagA"), &json!(1))
    );
    let run = bare(&format!("storeDump {dir} -t Stored --max 1"));
    assert!(
        run.out.contains("BODY: first-body") && run.out.lines().count() == 1,
        "{run:?}"
    );

    // One byte of the second body is turned.
    let place = records[1]["commitLogOffset"].as_u64().unwrap();
    turn_byte(&store, b"second-body");
    let run = bare(&format!("storeVerify {dir}"));
    assert_eq!(run.status, 4, "{run:?}");
    assert!(
        run.out.contains("damaged: ") && run.out.contains(&place.to_string()),
        "{run:?}"
    );
    let run = bare(&format!("storeDump {dir} -t Stored"));
    assert_eq!(run.status, 4, "{run:?}");
    assert!(
        !run.out.contains("Xecond-body") && run.out.contains("third-body"),
        "{run:?}"
    );
    assert!(
        run.err.contains(&format!("damaged from {place} ")),
        "{run:?}"
    );

    assert_eq!(bare("storeVerify /no/such/dir").status, 5);
    assert_eq!(
        bare(&format!("storeVerify {}", outer.path().display())).status,
        5
    );
}
