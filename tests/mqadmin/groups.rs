//! Consumer and producer groups: settings, members, progress.

use minimq_client::{Client, Filter, Message, StartFrom};
use serde_json::{Value, json};

use crate::support::{Lab, rows, runtime, until};

#[test]
fn a_group_is_made_changed_shown_and_deleted() {
    let lab = Lab::shared();
    let a = lab.broker(0);
    let made = lab.ok("updateSubGroup -b broker-a -g Made -r 3 -q 2 -d false -a false");
    assert!(
        made.starts_with(&format!("create subscription group to {a} success.\n")),
        "{made}"
    );
    assert!(
        made.ends_with("SubscriptionGroupConfig [groupName=Made, consumeEnable=true, consumeFromMinEnable=true, consumeBroadcastEnable=false, retryQueueNums=2, retryMaxTimes=3, brokerId=0, whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=false]\n"),
        "{made}"
    );
    let patched = lab.ok("updateSubGroup -b broker-a -g Made -r 5 --patch");
    assert!(
        patched.contains("retryQueueNums=2, retryMaxTimes=5"),
        "{patched}"
    );
    let text = lab.ok("getConsumerConfig -g Made");
    let rule = "=".repeat(29);
    assert!(
        text.starts_with(&format!("{rule}DefaultCluster:broker-a{rule}\n")),
        "{text}"
    );
    assert!(
        text.contains("retryMaxTimes                           =  5\n"),
        "{text}"
    );
    let config = lab.json("getConsumerConfig -g Made");
    assert_eq!(config.as_array().unwrap().len(), 1);
    assert_eq!(config[0]["broker"], "broker-a");
    assert_eq!(config[0]["config"]["consumeBroadcastEnable"], false);
    assert_eq!(
        lab.ok("deleteSubGroup -b broker-a -g Made"),
        format!("delete subscription group [Made] from broker [{a}] success.\n")
    );
    lab.fails("getConsumerConfig -g Made", 5);
    lab.ok("updateSubGroup -c DefaultCluster -g Made");
    let gone = lab.ok("deleteSubGroup -c DefaultCluster -g Made -r true");
    assert!(
        gone.contains(&format!("delete subscription group [Made] from broker [{a}] in cluster [DefaultCluster] success.\n")),
        "{gone}"
    );
    assert!(
        gone.ends_with("delete topic [%DLQ%Made] from NameServer success.\n"),
        "{gone}"
    );
}

#[test]
fn members_and_progress_are_shown() {
    let lab = Lab::shared();
    lab.topic("Progress", 2);
    let runtime = runtime();
    let client = runtime.block_on(async {
        let client = Client::connect(lab.name_server()).await.unwrap();
        let producer = client.producer("ProgressPG").build().await.unwrap();
        for count in 0..8 {
            let queue = minimq_client::MessageQueue::new(
                "Progress",
                if count % 2 == 0 {
                    "broker-a"
                } else {
                    "broker-b"
                },
                count / 4,
            );
            producer
                .send_to(&queue, Message::new("Progress", "x").tag("TagA"))
                .await
                .unwrap();
        }
        let consumer = client
            .push_consumer("ProgressCG")
            .start_from(StartFrom::Beginning)
            .subscribe("Progress", Filter::tags("TagA || TagB"))
            .run(|_| async {})
            .await
            .unwrap();
        // They live until the runtime is dropped.
        std::mem::forget((producer, consumer));
        client
    });
    let id = client.client_id().to_owned();

    let progress = until("everything consumed", || {
        let run = lab.line("consumerProgress -g ProgressCG --output json");
        let json: Value = serde_json::from_str(&run.out).ok()?;
        let done = json["queues"]
            .as_array()?
            .iter()
            .filter(|q| q["topic"] == "Progress");
        let done: i64 = done
            .filter_map(|queue| queue["consumerOffset"].as_i64())
            .sum();
        (done == 8).then_some(json)
    });
    assert_eq!(
        (&progress["group"], &progress["diffTotal"]),
        (&json!("ProgressCG"), &json!(0))
    );
    let text = lab.ok("consumerProgress -g ProgressCG -s true");
    assert!(
        text.starts_with("#Topic") && text.contains("#Client IP"),
        "{text}"
    );
    assert!(
        text.contains("\n\nConsume TPS: ") && text.ends_with("Diff Total: 0\n"),
        "{text}"
    );
    let host = id.split('@').next().unwrap();
    let queues: Vec<_> = rows(&text)
        .into_iter()
        .filter(|row| row[0] == "Progress")
        .collect();
    assert_eq!(queues.len(), 4, "{text}");
    for row in queues {
        assert_eq!(row[3..7], ["2", "2", host, "0"], "{text}");
    }
    let retry: Vec<_> = rows(&text)
        .into_iter()
        .filter(|row| row[0] == "%RETRY%ProgressCG")
        .collect();
    assert!(retry.iter().all(|row| row.last() == Some(&"N/A")), "{text}");

    let all = lab.ok("consumerProgress");
    assert!(all.starts_with("#Group"), "{all}");
    let row = rows(&all)
        .into_iter()
        .find(|row| row[0] == "ProgressCG")
        .unwrap();
    assert_eq!(
        (row[1], row[3], row[4], row[6]),
        ("1", "PUSH", "CLUSTERING", "0"),
        "{all}"
    );
    let all = lab.json("consumerProgress");
    let one = all
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["group"] == "ProgressCG")
        .unwrap();
    assert_eq!(
        (&one["count"], &one["type"], &one["diffTotal"]),
        (&json!(1), &json!("PUSH"), &json!(0))
    );

    let text = lab.ok("consumerConnection -g ProgressCG");
    assert!(text.contains(&id), "{text}");
    for part in [
        "\nBelow is subscription:\n",
        "TagA || TagB",
        "\nConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\nConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let connection = lab.json("consumerConnection -g ProgressCG -b broker-b");
    assert_eq!(connection["connectionSet"][0]["clientId"], id.as_str());
    assert_eq!(
        connection["subscriptionTable"]["Progress"]["subString"],
        "TagA || TagB"
    );

    let text = lab.ok("producerConnection -g ProgressPG -t Progress");
    assert!(text.starts_with("0001  ") && text.contains(&id), "{text}");
    let text = lab.ok("producer -b broker-a");
    assert!(
        text.contains(&format!(
            "producer group (ProgressPG) instance : clientId={id},remoteIP="
        )),
        "{text}"
    );
    assert_eq!(
        lab.json("producer -b broker-a")["data"]["ProgressPG"][0]["clientId"],
        id.as_str()
    );

    let text = lab.ok("consumerStatus -g ProgressCG");
    for part in [
        "#Index",
        "Same subscription in the same group of consumer",
        "Rebalance OK",
        "#Consumer MQ Detail#",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let status = lab.json(&format!("consumerStatus -g ProgressCG -i {id}"));
    assert_eq!(status["clients"][0]["clientId"], id.as_str());
    assert_eq!(status["problems"], json!([]));
    assert_eq!(
        status["clients"][0]["info"]["properties"]["PROP_CONSUME_TYPE"],
        "CONSUME_PASSIVELY"
    );
    let err = lab.fails("consumerStatus -g ProgressCG -i nobody", 5);
    assert!(
        err.contains("<nobody> not online") && err.contains("CODE: 1"),
        "{err}"
    );
    let err = lab.fails("producerConnection -g NoGroup -t Progress", 5);
    assert!(err.contains("NoGroup"), "{err}");
    runtime.block_on(client.shutdown());
}
