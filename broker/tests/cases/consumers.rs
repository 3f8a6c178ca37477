//! Groups, their members, and the locks of ordered consumption.

use minimq_protocol::Command;
use minimq_protocol::code::{request, response};

use crate::support::*;

fn subscribed<'a>(topics: &'a [(&'a str, &'a str)]) -> Consumer<'a> {
    Consumer {
        group: "CG1",
        broadcasting: false,
        topics,
    }
}

/// group-01: members that subscribe differently replace each other's subscription; both stay members.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_heartbeat_decides_what_a_group_subscribes_to() {
    let broker = TestBroker::start().await;
    let (mut a, mut b) = (broker.connect().await, broker.connect().await);
    for topic in ["G1", "G2"] {
        ok(&a.create_topic(topic, 4, 4, 6).await);
    }
    let pull = |topic| Pull {
        group: "CG1",
        subscription: None,
        ..Pull::new(topic, 0, 0)
    };
    let (one, two) = ([("G1", "*")], [("G2", "*")]);
    ok(&a.heartbeat("a", &subscribed(&one)).await);
    ok(&b.heartbeat("b", &subscribed(&two)).await);
    for first_heard in [false, true] {
        if first_heard {
            ok(&a.heartbeat("a", &subscribed(&one)).await);
        }
        let (known, unknown) = if first_heard {
            ("G1", "G2")
        } else {
            ("G2", "G1")
        };
        let refused = b.pull(&pull(unknown)).await;
        assert_eq!(refused.code, response::SUBSCRIPTION_NOT_EXIST);
        assert_eq!(a.pull(&pull(known)).await.code, response::PULL_NOT_FOUND);
    }
    let members = a.consumers("CG1").await;
    let body = String::from_utf8_lossy(&members.body).into_owned();
    assert!(body.contains("\"a\"") && body.contains("\"b\""), "{body}");
}

/// Members are told of changes, once for both that come together; a closed connection is a change too.
#[tokio::test(flavor = "multi_thread")]
async fn members_hear_of_those_who_come_and_go() {
    let broker = TestBroker::start().await;
    let (mut a, mut b) = (broker.connect().await, broker.connect().await);
    let topics = [("G1", "*")];
    ok(&a.heartbeat("a", &subscribed(&topics)).await);
    ok(&b.heartbeat("b", &subscribed(&topics)).await);
    let notice = async |wire: &mut Wire| loop {
        let command = wire.next().await.expect("a notice");
        if command.code == request::NOTIFY_CONSUMER_IDS_CHANGED && !command.is_response() {
            assert!(command.is_oneway());
            return command.ext.get("consumerGroup").map(str::to_owned);
        }
    };
    assert_eq!(notice(&mut a).await.as_deref(), Some("CG1"));
    drop(b);
    until("the member that left is gone", || {
        broker.state().clients.members_of("CG1").len() == 1
    })
    .await;
    assert_eq!(notice(&mut a).await.as_deref(), Some("CG1"));
}

fn queues(code: i32, client: &str, group: &str) -> Command {
    let queues: Vec<_> = (0..2)
        .map(|id| serde_json::json!({"brokerName": "b0", "queueId": id, "topic": "O"}))
        .collect();
    let body = serde_json::json!({"clientId": client, "consumerGroup": group, "mqSet": queues});
    Command::request(code).with_body(body.to_string())
}

async fn locked(wire: &mut Wire, client: &str, group: &str) -> usize {
    let answer = wire
        .call(&queues(request::LOCK_BATCH_MQ, client, group))
        .await;
    ok(&answer);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    body["lockOKMQSet"].as_array().unwrap().len()
}

/// order-01: a queue has one owner in a group, and only the owner gives it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_lock_has_one_owner_a_group() {
    let broker = TestBroker::start().await;
    let mut wire = broker.connect().await;
    assert_eq!(locked(&mut wire, "c1", "G").await, 2);
    assert_eq!(locked(&mut wire, "c2", "G").await, 0);
    assert_eq!(locked(&mut wire, "c2", "Other").await, 2);
    ok(&wire
        .call(&queues(request::UNLOCK_BATCH_MQ, "c2", "G"))
        .await);
    assert_eq!(locked(&mut wire, "c2", "G").await, 0);
    assert_eq!(locked(&mut wire, "c1", "G").await, 2);
    ok(&wire
        .call(&queues(request::UNLOCK_BATCH_MQ, "c1", "G"))
        .await);
    assert_eq!(locked(&mut wire, "c2", "G").await, 2);
    for code in [request::LOCK_BATCH_MQ, request::UNLOCK_BATCH_MQ] {
        let answer = wire.call(&Command::request(code)).await;
        assert_ne!(answer.code, response::SUCCESS);
    }
}

/// Requests of one connection take effect in the order they were written, without waiting for each other's answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lock_and_its_release_keep_their_order() {
    let broker = TestBroker::start().await;
    let mut owner = broker.connect().await;
    let mut next = broker.connect().await;
    for round in 0..200 {
        let lock = owner
            .write(&queues(request::LOCK_BATCH_MQ, "c1", "G"))
            .await;
        let unlock = owner
            .write(&queues(request::UNLOCK_BATCH_MQ, "c1", "G"))
            .await;
        ok(&owner.answer(lock).await);
        ok(&owner.answer(unlock).await);
        assert_eq!(broker.state().locks.snapshot(), [], "round {round}");
        assert_eq!(locked(&mut next, "c2", "G").await, 2, "round {round}");
        ok(&next
            .call(&queues(request::UNLOCK_BATCH_MQ, "c2", "G"))
            .await);
    }
}
