//! SQL92 filters by pull and by check of a client's configuration: sql-01 to sql-06; registered filters.

use minimq_protocol::Command;
use minimq_protocol::body::{CheckClientRequestBody, SubscriptionData};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::PullMessageResponse;

use crate::support::{Harness, records, until};

/// A broker with one message of these properties in topic `T`.
async fn with_message(properties: &[(&str, &str)]) -> Harness {
    let broker = Harness::start(&[]).await;
    broker.send("T", properties, "x").await;
    until("the message", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 1
    })
    .await;
    broker
}

async fn expect(broker: &Harness, expressions: &[&str], code: i32) {
    for expression in expressions {
        let answer = broker.pull("T", 0, ("SQL92", expression)).await;
        assert_eq!(answer.code, code, "{expression}: {}", answer.remark());
        if code == response::PULL_RETRY_IMMEDIATELY {
            let header: PullMessageResponse = answer.header().unwrap();
            assert_eq!(header.next_begin_offset, 1, "{expression}");
        }
    }
}

async fn matching(broker: &Harness, expressions: &[&str]) {
    expect(broker, expressions, response::SUCCESS).await;
}

async fn not_matching(broker: &Harness, expressions: &[&str]) {
    expect(broker, expressions, response::PULL_RETRY_IMMEDIATELY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_01_unknown_is_neither_true_nor_false() {
    let broker = with_message(&[("a", "5")]).await;
    matching(
        &broker,
        &[
            "zz IS NULL",
            "zz='x' OR a=5",
            "a IS NOT NULL",
            "NULL IS NULL",
        ],
    )
    .await;
    not_matching(
        &broker,
        &[
            "zz <> 'x'",
            "NOT (zz = 'x')",
            "zz NOT IN ('a')",
            "NOT (zz='x' OR a=6)",
            "zz BETWEEN 1 AND 5",
        ],
    )
    .await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_02_numbers_are_read_as_the_literal_beside_them() {
    let broker = with_message(&[
        ("a", "5"),
        ("c", "3000000000"),
        ("d", "5.5"),
        ("n1", "10"),
        ("n2", "9"),
        ("dbl", "1e3"),
        ("sp", " 5"),
    ])
    .await;
    matching(
        &broker,
        &[
            "a=5",
            "a='5'",
            "a=5.0",
            "a>4.5",
            "c>5.0",
            "c>2147483648",
            "c=3000000000L",
            "d>5.0",
            "n1>n2",
            "dbl=1000.0",
            "a=+5",
            "5=a",
        ],
    )
    .await;
    not_matching(&broker, &["c>5", "d>5", "dbl=1000", "sp=5"]).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_04_strings_names_and_comments_are_javas() {
    let broker = with_message(&[
        ("g", "it's"),
        ("u", "中文"),
        ("a", "5"),
        ("TAGS", "TagA"),
        ("e", "true"),
    ])
    .await;
    matching(
        &broker,
        &[
            "g = 'it''s'",
            "u = '中文'",
            "a = 5 -- note\n",
            "/* x */ a = 5",
            "TAGS in ('TagA','TagB') and a between 0 and 6",
            "$x IS NULL",
            "_x is null",
            "e = TRUE",
            "A IS NULL",
        ],
    )
    .await;
    not_matching(&broker, &["e", "A = 5"]).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_05_an_error_is_no_match_and_the_queue_goes_on() {
    let broker = with_message(&[("b", "abc"), ("a", "5")]).await;
    broker.send("T", &[("b", "6")], "second").await;
    not_matching_first(&broker, &["b > 5 OR a = 7", "NOT (b > 7)", "a > b"]).await;
    let answer = broker.pull("T", 0, ("SQL92", "a = 5 OR b > 5")).await;
    assert_eq!(
        records(&answer).len(),
        2,
        "the first by short circuit, the second by itself"
    );
    let answer = broker.pull("T", 0, ("SQL92", "b > 5")).await;
    let found = records(&answer);
    assert_eq!((found.len(), found[0].body()), (1, &b"second"[..]));
    broker.stop().await;
}

async fn not_matching_first(broker: &Harness, expressions: &[&str]) {
    until("both", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 2
    })
    .await;
    for expression in expressions {
        let answer = broker.pull("T", 0, ("SQL92", expression)).await;
        assert!(
            records(&answer)
                .iter()
                .all(|message| message.body() != b"x"),
            "{expression}"
        );
        assert_eq!(
            answer
                .header::<PullMessageResponse>()
                .unwrap()
                .next_begin_offset,
            2
        );
    }
}

async fn check(broker: &Harness, expression: &str) -> Command {
    let body = CheckClientRequestBody {
        client_id: "c".into(),
        group: "G".into(),
        subscription_data: Some(SubscriptionData {
            topic: "T".into(),
            expression_type: "SQL92".into(),
            sub_string: expression.into(),
            ..Default::default()
        }),
    };
    let request = Command::request(request::CHECK_CLIENT_CONFIG).with_body(body.to_wire());
    broker.call(request).await
}

async fn refused_everywhere(broker: &Harness, expressions: &[&str]) {
    let code = response::SUBSCRIPTION_PARSE_FAILED;
    for bad in expressions {
        assert_eq!(check(broker, bad).await.code, code, "46: {bad}");
        let answer = broker.pull("T", 0, ("SQL92", bad)).await;
        assert_eq!(answer.code, code, "11: {bad}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_03_literals_have_limits() {
    let broker = with_message(&[("a", "5")]).await;
    for good in [
        "a > 9223372036854775807",
        "a >= -9223372036854775807",
        "a > .5",
        "a > 1e0",
        "a > 0",
    ] {
        assert_eq!(check(&broker, good).await.code, 0, "{good}");
    }
    let bad = [
        "a < 9223372036854775808",
        "n = -9223372036854775808",
        "a > 0.0",
        "z = 0.0",
    ];
    refused_everywhere(&broker, &bad).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_06_what_does_not_compile_is_refused_everywhere() {
    let broker = with_message(&[("a", "5")]).await;
    let bad = [
        "",
        "  ",
        "a == 5",
        "a != 5",
        "b = \"abc\"",
        "a > '4'",
        "a IN (5)",
        "b IN ()",
        "a = NULL",
        "a BETWEEN 5 AND 1",
        "a=5 AND",
        "a > -",
    ];
    refused_everywhere(&broker, &bad).await;
    // In a heartbeat: the pulls by that subscription are refused.
    broker
        .register_consumer("G", "T", ("SQL92", "a =="), 1)
        .await;
    let mut by_heartbeat = crate::support::pull_request("G", "T", 0, ("SQL92", ""));
    by_heartbeat.ext.set("sysFlag", "0");
    let answer = broker.call(by_heartbeat).await;
    assert_eq!(answer.code, response::FILTER_DATA_NOT_EXIST);
    let answer = broker.pull("T", 0, ("OTHER", "a = 1")).await;
    assert_eq!(
        answer.code,
        response::SUBSCRIPTION_PARSE_FAILED,
        "an unknown type"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_nested_too_deep_or_too_long_is_refused_everywhere_with_the_limit() {
    use minimq_broker::filter::sql::{MAX_DEPTH, MAX_LENGTH};
    let broker = with_message(&[("a", "5")]).await;
    let nested = |levels: usize| format!("{}a = 5{}", "(".repeat(levels), ")".repeat(levels));
    let long = |length: usize| {
        let padding = length - "a = ''".len();
        format!("a = '{}'", "x".repeat(padding))
    };
    let (deep, too_long) = (nested(MAX_DEPTH + 1), long(MAX_LENGTH + 1));
    refused_everywhere(&broker, &[&deep, &too_long]).await;
    for (bad, limit) in [
        (&deep, format!("nested deeper than {MAX_DEPTH} levels")),
        (&too_long, format!("at most {MAX_LENGTH} are accepted")),
    ] {
        let by_check = check(&broker, bad).await;
        let by_pull = broker.pull("T", 0, ("SQL92", bad)).await;
        for answer in [by_check, by_pull] {
            assert!(answer.remark().contains(&limit), "{}", answer.remark());
        }
    }
    // Up to the limits they are as any other; what is refused takes no other expression along.
    matching(&broker, &[&nested(MAX_DEPTH / 2), "a = 5"]).await;
    let longest = long(MAX_LENGTH);
    assert_eq!(check(&broker, &longest).await.code, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_06_switched_off_filters_are_refused_by_the_name_of_their_key() {
    let broker = Harness::start(&["enablePropertyFilter=false"]).await;
    broker.send("T", &[], "x").await;
    for answer in [
        check(&broker, "a = 5").await,
        broker.pull("T", 0, ("SQL92", "a = 5")).await,
    ] {
        assert_eq!(answer.code, 1);
        assert!(
            answer
                .remark()
                .starts_with("The broker does not support consumer to filter message by SQL92")
                && answer.remark().contains("enablePropertyFilter"),
            "{}",
            answer.remark()
        );
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registered_filters_are_kept_and_their_bits_stored() {
    let broker =
        Harness::start(&["enableCalcFilterBitMap=true", "enableConsumeQueueExt=true"]).await;
    broker.create_topic("T", 1).await;
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
        .await;
    for a in ["1", "2"] {
        broker.send("T", &[("a", a)], "x").await;
    }
    until("both", async || {
        broker.broker.store.reader().max_offset("T", 0).get() == 2
    })
    .await;
    let queue = broker.broker.store.queues().get("T", 0).unwrap();
    let bits = |number| {
        let code = queue.entry(number).unwrap().unwrap().tags_code;
        let unit = queue
            .ext_unit(code, minimq_store::Blocking::Allowed)
            .unwrap()
            .unwrap();
        unit.bit_map
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>()
    };
    assert_eq!((bits(0), bits(1)), (0, 3));
    let broker = broker.restart().await;
    let data = broker.broker.registered_filters.get("T", "G").unwrap();
    assert_eq!(data.expression.as_deref(), Some("a > 1"));
    assert!(data.is_dead(), "nobody has come back yet");
    broker
        .register_consumer("G", "T", ("SQL92", "a > 1"), 5)
        .await;
    assert!(
        !broker
            .broker
            .registered_filters
            .get("T", "G")
            .unwrap()
            .is_dead()
    );
    broker.stop().await;
}
