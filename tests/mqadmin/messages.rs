//! Messages: sent, found, printed, consumed, traced.

use serde_json::{Value, json};

use crate::support::{Lab, rows, until};

#[test]
fn a_message_is_sent_and_found_by_each_of_its_names() {
    let lab = Lab::shared();
    lab.topic("Found", 2);
    let text = lab.run(&[
        "sendMessage",
        "-t",
        "Found",
        "-p",
        "hello wörld",
        "-k",
        "key-1",
        "-c",
        "TagA",
        "-b",
        "broker-a",
        "-i",
        "1",
    ]);
    assert_eq!(text.status, 0, "{text:?}");
    assert!(text.out.starts_with("#Broker Name"), "{text:?}");
    let row = rows(&text.out).remove(0);
    assert_eq!(row[..3], ["broker-a", "1", "SEND_OK"]);
    let id = row[3].to_owned();

    let by_key = until("the index", || {
        let run = lab.line("queryMsgByKey -t Found -k key-1");
        (run.status == 0).then_some(run.out)
    });
    assert!(by_key.starts_with("#Message ID"), "{by_key}");
    assert_eq!(rows(&by_key), [[id.as_str(), "1", "0"]]);
    assert!(
        lab.fails("queryMsgByKey -t Found -k no-such-key", 5)
            .contains("CODE: 208")
    );

    let message = lab.json(&format!("queryMsgByUniqueKey -t Found -i {id}"));
    let expected = [
        ("id", json!(id)),
        ("topic", json!("Found")),
        ("queueId", json!(1)),
        ("queueOffset", json!(0)),
        ("tags", json!("TagA")),
        ("keys", json!(["key-1"])),
        ("body", json!("hello wörld")),
        ("reconsumeTimes", json!(0)),
        ("storeHost", json!(lab.broker(0))),
        ("tracks", json!([])),
    ];
    for (field, value) in expected {
        assert_eq!(message[field], value, "{field}");
    }
    assert!(message["stored"].as_i64().unwrap() >= message["born"].as_i64().unwrap());
    let offset_id = message["offsetId"].as_str().unwrap();

    let text = lab.ok(&format!("queryMsgById -i {offset_id}"));
    for line in [
        format!("OffsetID:            {offset_id}\n"),
        "Topic:               Found\n".to_owned(),
        "Tags:                [TagA]\n".to_owned(),
        "Keys:                [key-1]\n".to_owned(),
        "Queue ID:            1\n".to_owned(),
        "Queue Offset:        0\n".to_owned(),
        format!("Store Host:          {}\n", lab.broker(0)),
        "Message Body:        hello wörld\n".to_owned(),
        "WARN: No Consumer\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}{text}");
    }
    lab.stored("Found", 1);
    let same = lab.json("queryMsgByOffset -t Found -b broker-a -i 1 -o 0");
    assert_eq!(same["id"], id.as_str());
    let err = lab.fails("queryMsgByOffset -t Found -b broker-a -i 1 -o 7", 5);
    assert!(err.contains("ends before 1"), "{err}");
    let err = lab.fails("queryMsgById -i nonsense", 1);
    assert!(err.contains("queryMsgByUniqueKey"), "{err}");
    assert!(
        lab.fails("queryMsgByUniqueKey -t Found -i NOSUCH", 5)
            .contains("CODE: 208")
    );

    // Sent again it is a second message with the same key.
    let again = lab.json(&format!("queryMsgById -i {offset_id} -s true"));
    assert_eq!(
        (&again["original"], &again["sent"]["status"]),
        (&json!(id), &json!("SEND_OK"))
    );
    until("both indexed", || {
        let run = lab.line("queryMsgByKey -t Found -k key-1 --output json");
        let found: Value = serde_json::from_str(&run.out).ok()?;
        (found.as_array()?.len() == 2).then_some(())
    });
}

/// Case index-02: a broker finds by hash alone, in one topic and across topics.
#[test]
fn keys_of_one_hash_are_told_apart() {
    let lab = Lab::shared();
    for topic in ["AaAaT", "BBBBT"] {
        lab.topic(topic, 1);
        for key in ["AaAa", "BBBB"] {
            let body = format!("{topic}-{key}");
            lab.send(topic, &body, &format!("-k {key} -b broker-a -i 0"));
        }
    }
    for topic in ["AaAaT", "BBBBT"] {
        for key in ["AaAa", "BBBB"] {
            let line = format!("queryMsgByKey -t {topic} -k {key} --output json");
            let found: Value = until("the message in the index", || {
                let found: Value = serde_json::from_str(&lab.line(&line).out).ok()?;
                Some(found)
            });
            let bodies: Vec<_> = found
                .as_array()
                .unwrap()
                .iter()
                .map(|m| &m["body"])
                .collect();
            assert_eq!(bodies, [&json!(format!("{topic}-{key}"))], "{found}");
        }
    }
}

#[test]
fn messages_are_printed_by_topic_queue_tag_and_time() {
    let lab = Lab::shared();
    lab.topic("Printed", 1);
    for (body, tag, broker) in [
        ("one", "TagA", "broker-a"),
        ("two", "TagB", "broker-a"),
        ("three", "TagA", "broker-b"),
    ] {
        lab.send("Printed", body, &format!("-c {tag} -b {broker} -i 0"));
    }
    lab.stored("Printed", 3);
    let text = lab.ok("printMsg -t Printed");
    assert!(text.contains("minOffset=0, maxOffset=2, MessageQueue [topic=Printed, brokerName=broker-a, queueId=0]\n"), "{text}");
    for body in ["one", "two", "three"] {
        assert!(text.contains(&format!(" BODY: {body}\n")), "{text}");
    }
    assert_eq!(text.matches("MSGID: ").count(), 3, "{text}");
    let bodies = |line: &str| -> Vec<String> {
        let all = lab.json(line);
        let all = all.as_array().unwrap().iter();
        all.map(|message| message["body"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(bodies("printMsg -t Printed -s TagA"), ["one", "three"]);
    assert_eq!(bodies("printMsg -t Printed --max 2"), ["one", "two"]);
    assert!(bodies("printMsg -t Printed -b 4000000000000").is_empty());
    assert!(bodies("printMsg -t Printed -e 1000").is_empty());
    assert_eq!(
        bodies("printMsg -t Printed -b 2020-01-01#00:00:00:000").len(),
        3
    );
    let hidden = lab.ok("printMsg -t Printed -d false");
    assert!(
        hidden.contains("BODY: NOT PRINT BODY") && !hidden.contains("three"),
        "{hidden}"
    );
    assert!(
        lab.ok("printMsg -t Printed -c hex -s TagB")
            .contains("BODY: 74776f\n")
    );

    assert_eq!(lab.ok("printMsgByQueue -t Printed -a broker-a -i 0"), "");
    let counted = lab.ok("printMsgByQueue -t Printed -a broker-a -i 0 -f true");
    assert_eq!(
        counted,
        format!(
            "Tag: {:<30} Count: 1\nTag: {:<30} Count: 1\n",
            "TagA", "TagB"
        )
    );
    let json = lab.json("printMsgByQueue -t Printed -a broker-a -i 0 -p true -s TagB");
    assert_eq!(
        (&json["count"], &json["messages"][0]["body"]),
        (&json!(1), &json!("two"))
    );
    assert_eq!(json["tags"], json!({ "TagB": 1 }));

    let text = lab.ok("consumeMessage -t Printed");
    assert!(text.starts_with("Consume ok\n"), "{text}");
    assert_eq!(bodies("consumeMessage -t Printed").len(), 3);
    assert_eq!(bodies("consumeMessage -t Printed -c 1"), ["one"]);
    assert_eq!(
        bodies("consumeMessage -t Printed -b broker-a -i 0 -o 1"),
        ["two"]
    );
    assert_eq!(bodies("consumeMessage -t Printed -b broker-b"), ["three"]);
    lab.fails("consumeMessage -t Printed -b broker-a -i 9", 5);
    // Nothing was committed.
    lab.fails("consumerProgress -g TOOLS_CONSUMER", 5);

    let text = lab.ok("queryCq -t Printed -q 0 -i 0 -b broker-a");
    assert!(text.starts_with("Queue data: \nmax: 2, min: 0\n"), "{text}");
    assert_eq!(
        text.matches("ConsumeQueueData{physicOffset=").count(),
        2,
        "{text}"
    );
    let json = lab.json("queryCq -t Printed -q 0 -i 1 -c 1");
    assert_eq!(
        (
            &json["maxQueueIndex"],
            json["queueData"].as_array().unwrap().len()
        ),
        (&json!(2), 1)
    );
}

#[test]
fn the_trace_of_a_message_is_shown() {
    let lab = Lab::shared();
    lab.topic("Traced", 1);
    let id = lab.send("Traced", "hello", "-k traced-key -c TagT -m true");
    let text = until("the trace", || {
        let run = lab.line(&format!("queryMsgTraceById -i {id}"));
        (run.status == 0).then_some(run.out)
    });
    assert!(text.starts_with("#Type"), "{text}");
    let row = rows(&text).remove(0);
    assert_eq!(
        (row[0], row[1], row.last()),
        ("Pub", "MQADMIN_PRODUCER", Some(&"success")),
        "{text}"
    );
    let trace = lab.json(&format!("QueryMsgTraceById -i {id}"));
    let send = &trace["sends"][0];
    assert_eq!(
        (&send["topic"], &send["tags"], &send["keys"]),
        (&json!("Traced"), &json!("TagT"), &json!("traced-key"))
    );
    assert_eq!(trace["consumptions"], json!([]));
    assert!(
        lab.fails("queryMsgTraceById -i NOSUCH", 5)
            .contains("CODE: 208")
    );
}
