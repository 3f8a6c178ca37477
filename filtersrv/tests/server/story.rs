//! The story the project began with, and what happens when parts of it go away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_common::clock::Clock;
use minimq_common::config::{Config, Sources};
use minimq_filtersrv::FilterServer;
use minimq_namesrv::{NameServer, NamesrvConfig};
use minimq_protocol::Command;
use minimq_protocol::body::TopicRouteData;
use minimq_protocol::code::request;
use minimq_protocol::header::{
    GetRouteInfoRequest, QueryConsumerOffsetRequest, QueryConsumerOffsetResponse,
    RegisterFilterServerRequest,
};
use minimq_protocol::sys_flag::pull as pull_flag;
use parking_lot::Mutex;

use crate::support::*;

fn every_third() -> Vec<u32> {
    (12..100).step_by(3).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_messages_exactly_every_third_above_ten_arrives() {
    let mut s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 100).await;
    let member = s.member("CG", "TopicA");
    member.uploaded(SEQUENCE_ID).await;
    let records = member.consume(0, 100).await;
    assert_eq!(
        records.iter().map(sequence_id).collect::<Vec<_>>(),
        every_third()
    );
    // Byte for byte what the broker has.
    let direct = Member {
        server: s.broker_addr.to_string(),
        ..member.clone()
    };
    let mut header = direct.pull_header(12, Duration::ZERO);
    header.sys_flag = pull_flag::build(false, false, true, false, false);
    header.subscription = Some("*");
    let unfiltered = direct.pull_with(&header).await;
    assert_eq!(unfiltered.records[0].raw(), records[0].raw());

    let figures = member.figures().await;
    let filter = &figures.filters[0];
    assert_eq!(
        (
            filter.received,
            filter.matched,
            filter.dropped,
            filter.failed
        ),
        (100, 30, 70, 0)
    );
    assert_eq!(
        (filter.users, filter.state.as_str(), filter.topic.as_str()),
        (1, "active", "TopicA")
    );
    assert!(
        filter.p50_nanos > 0 && filter.p99_nanos >= filter.p50_nanos,
        "{filter:?}"
    );
    assert_eq!(
        (filter.memory, filter.hash.len(), figures.instances),
        (65_536, 64, 1)
    );
    assert_eq!(s.server.stop(Duration::ZERO).await, 0);
    s.broker.take().unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_one_group_get_each_what_their_own_filter_wants() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 100).await;
    let (even, odd) = (s.member("CG", "TopicA"), s.member("CG", "TopicA"));
    for _ in 0..3 {
        even.uploaded(modulo(2, 0)).await;
        odd.uploaded(modulo(2, 1)).await;
        let (a, b) = tokio::join!(even.consume(0, 100), odd.consume(0, 100));
        let ids = |records: Vec<_>| records.iter().map(sequence_id).collect::<Vec<_>>();
        assert_eq!(ids(a), (0..100).step_by(2).collect::<Vec<_>>());
        assert_eq!(ids(b), (1..100).step_by(2).collect::<Vec<_>>());
    }
    let figures = even.figures().await;
    let figures: Vec<_> = figures
        .filters
        .iter()
        .map(|f| (f.received, f.matched, f.users))
        .collect();
    assert_eq!(
        figures,
        [(300, 150, 1), (300, 150, 1)],
        "uploaded again, not compiled again"
    );

    // A member whose connection was cut has to say again which filter it means; nothing is lost or mixed up.
    even.client.close(&even.server);
    let refused = even.pull(0).await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.remark.contains("upload first"),
        "{}",
        refused.remark
    );
    even.uploaded(modulo(2, 0)).await;
    assert_eq!(even.pull(0).await.sequence()[..3], [0, 2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_waits_a_moment_for_the_upload() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 20).await;
    let member = s.member("CG", "TopicA");
    let pulling = tokio::spawn({
        let member = member.clone();
        async move { member.pull(0).await }
    });
    until("the pull is under way", || s.server.figures().pulls == 1).await;
    member.uploaded(SEQUENCE_ID).await;
    assert_eq!(pulling.await.unwrap().sequence(), [12, 15, 18]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_gets_a_message_as_it_comes_and_only_if_it_matches() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 1).await;
    let member = s.member("CG", "TopicA");
    member.uploaded(modulo(2, 1)).await;
    let header = member.pull_header(1, Duration::from_secs(15));
    let (pulled, ()) = tokio::join!(member.pull_with(&header), async {
        until("the pull is under way", || s.server.figures().pulls == 1).await;
        s.send("TopicA", &[("SequenceId", "2")], b"").await;
        s.send("TopicA", &[("SequenceId", "3")], b"").await;
    });
    // The one that does not match may have been answered on its own.
    let pulled = if pulled.code == 20 {
        member.pull(pulled.next()).await
    } else {
        pulled
    };
    assert_eq!((pulled.sequence(), pulled.next()), (vec![3], 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_offset_of_the_group_is_stored_at_the_broker() {
    let s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 20).await;
    let member = s.member("CG", "TopicA");
    member.uploaded(SEQUENCE_ID).await;
    let mut header = member.pull_header(0, Duration::ZERO);
    header.sys_flag |= pull_flag::COMMIT_OFFSET;
    header.commit_offset = 7;
    assert_eq!(member.pull_with(&header).await.code, 0);
    let query = QueryConsumerOffsetRequest {
        consumer_group: "CG",
        topic: "TopicA",
        queue_id: 0,
        ..QueryConsumerOffsetRequest::default()
    };
    let command = Command::request_with(request::QUERY_CONSUMER_OFFSET, &query);
    let answer = member
        .client
        .call(&s.broker_addr.to_string(), command, TIMEOUT)
        .await
        .unwrap();
    assert_eq!(
        answer
            .header::<QueryConsumerOffsetResponse>()
            .unwrap()
            .offset,
        7
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_server_that_goes_while_pulled_from_loses_nothing() {
    let s = Setting::start(&[]).await;
    let second = filter_server(&s.broker_addr.to_string(), &[]).await;
    s.send_sequence("TopicA", 1000).await;
    let broker = s.broker.as_ref().unwrap();
    let listed = |n: usize| move || broker.filter_servers().len() == n;
    assert!(listed(2)());
    let members = [
        s.member("CG", "TopicA"),
        Member::new(second.local_addr(), "CG", "TopicA"),
    ];
    for member in &members {
        member.uploaded(SEQUENCE_ID).await;
    }
    let (mut offset, mut got, mut at, mut round) = (0, Vec::new(), 0, 0);
    let mut second = Some(second);
    while offset < 1000 {
        let member = &members[at];
        let command = Command::request_with(
            request::PULL_MESSAGE,
            &member.pull_header(offset, Duration::ZERO),
        );
        match member
            .client
            .call(&member.server, command, TIMEOUT)
            .await
            .map(pulled)
        {
            Ok(pulled) if [0, 20].contains(&pulled.code) => {
                offset = pulled.next();
                got.extend(pulled.sequence());
            }
            // Gone: the other one at once, at the same offset.
            _ => at = 1 - at,
        }
        round += 1;
        if round == 3 {
            at = 1;
        }
        if round == 6 {
            second.take().unwrap().stop(Duration::ZERO).await;
        }
    }
    assert_eq!(got, (12..1000).step_by(3).collect::<Vec<_>>());
    assert!(round > 6);
    until("the broker forgets it", listed(1)).await;
}

/// The fault case filter-04.
#[tokio::test(flavor = "multi_thread")]
async fn filter_04_after_a_restart_of_the_broker_the_filter_server_is_listed_again_and_serves() {
    let mut s = Setting::start(&[]).await;
    s.send_sequence("TopicA", 50).await;
    let member = s.member("CG", "TopicA");
    member.uploaded(SEQUENCE_ID).await;
    s.broker.take().unwrap().stop().await;
    let away = member.pull(0).await;
    assert_eq!(away.code, 1);
    assert!(
        away.remark.starts_with("Pull Callback Exception, "),
        "{}",
        away.remark
    );
    assert!(away.records.is_empty());

    let broker = broker(s.folder.path(), s.broker_addr.port(), &[]).await;
    let own = s.server.advertised().to_owned();
    until("it registers again", || {
        broker.filter_servers() == [own.clone()]
    })
    .await;
    // No new upload is needed: the filter server has kept the filter.
    let ids: Vec<_> = member
        .consume(0, 50)
        .await
        .iter()
        .map(sequence_id)
        .collect();
    assert_eq!(ids, (12..50).step_by(3).collect::<Vec<_>>());
}

/// Filter server spec 19, T1: a connection stands for one filter server, and for no longer than it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_address_on_the_connection_of_a_filter_server_is_ignored() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let broker = broker(folder.path(), 0, &[]).await;
    let (client, addr) = (client(), broker.local_addr().to_string());
    for address in ["127.0.0.1:7001", "127.0.0.1:7002"] {
        let header = RegisterFilterServerRequest {
            filter_server_addr: address,
        };
        let command = Command::request_with(request::REGISTER_FILTER_SERVER, &header);
        let answer = client.call(&addr, command, TIMEOUT).await.unwrap();
        assert_eq!(answer.code, 0, "{}", answer.remark());
        assert_eq!(broker.filter_servers(), ["127.0.0.1:7001"]);
    }
    client.close(&addr);
    until("it is forgotten with its connection", || {
        broker.filter_servers().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_is_tried_again_after_growing_pauses() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let log = attempts.clone();
    let broker = FakeBroker::start_refusing(2, move |command| {
        if command.code == request::REGISTER_FILTER_SERVER {
            log.lock().push(Instant::now());
        }
    });
    let server = FilterServer::start(&config(&broker.addr(), &[])).unwrap();
    tokio::time::timeout(TIMEOUT, server.registered())
        .await
        .expect("it does not give up");
    let attempts = attempts.lock().clone();
    let pauses: Vec<Duration> = attempts.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses.len(), 2);
    assert!(
        pauses[0] >= Duration::from_millis(990) && pauses[1] >= Duration::from_millis(1990),
        "{pauses:?}"
    );
}

/// The connection is lost, not the broker: there is no pause before the next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_made_again_at_once() {
    let (seen, mut registrations) = tokio::sync::mpsc::unbounded_channel();
    let broker = FakeBroker::start_raw(move |command| {
        if command.code == request::REGISTER_FILTER_SERVER {
            let _ = seen.send(Instant::now());
        }
    });
    let near = "127.0.0.1:0".parse().unwrap();
    let (relay, near) = Relay::start(near, broker.server.local_addr()).await;
    let server = filter_server(&near.to_string(), &["registerInterval=25000"]).await;
    assert!(registrations.recv().await.is_some());
    relay.cut();
    let again = tokio::time::timeout(Duration::from_secs(20), registrations.recv());
    assert!(again.await.expect("before the next regular one").is_some());
    drop(server);
}

async fn route(name_server: SocketAddr, topic: &str) -> Option<TopicRouteData> {
    let header = GetRouteInfoRequest {
        topic,
        ..GetRouteInfoRequest::default()
    };
    let command = Command::request_with(request::GET_ROUTEINFO_BY_TOPIC, &header);
    let answer = client()
        .call(&name_server.to_string(), command, TIMEOUT)
        .await
        .unwrap();
    TopicRouteData::from_json(&answer.body)
        .ok()
        .filter(|_| answer.code == 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_list_filter_servers_while_they_are_there() {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let mut sources = Sources::default();
    sources.set("listenPort=0").unwrap();
    sources.set("bindAddress=127.0.0.1").unwrap();
    sources.set_key(
        "kvConfigPath",
        &folder.path().join("kv.json").display().to_string(),
    );
    let keys = Config::load_with(&sources, NamesrvConfig::finish, Clock::system()).unwrap();
    let names = NameServer::start(Arc::new(keys)).unwrap();
    let sets = [format!("namesrvAddr={}", names.local_addr())];
    let broker = broker(&folder.path().join("store"), 0, &sets).await;
    let addr = broker.local_addr();
    send(&client(), addr, "TopicA", &[], b"x").await;
    let first = filter_server(&addr.to_string(), &[]).await;
    let second = filter_server(&addr.to_string(), &[]).await;
    let listed = |wanted: Vec<String>| {
        let names = names.local_addr();
        until_some("the route lists them", move || {
            let mut wanted = wanted.clone();
            wanted.sort();
            async move {
                let mut table = route(names, "TopicA").await?.filter_server_table;
                let mut list = table.remove(&addr.to_string()).unwrap_or_default();
                list.sort();
                (list == wanted).then_some(())
            }
        })
    };
    listed(vec![
        first.advertised().to_owned(),
        second.advertised().to_owned(),
    ])
    .await;
    // One that stops takes itself off the list first, and serves on for those who have not seen it yet.
    let member = Member::new(second.local_addr(), "CG", "TopicA");
    member.uploaded(SEQUENCE_ID).await;
    let stopping = tokio::spawn(second.stop(Duration::from_secs(60)));
    listed(vec![first.advertised().to_owned()]).await;
    assert_eq!(member.pull(0).await.code, 20);
    member.client.close(&member.server);
    tokio::time::timeout(TIMEOUT, stopping)
        .await
        .expect("ends when nobody is connected")
        .unwrap();
    first.stop(Duration::ZERO).await;
    listed(Vec::new()).await;
}
