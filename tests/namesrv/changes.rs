//! What is kept on disk and who may change it: settings, KV configuration, access control.

use minimq_protocol::Command;
use minimq_protocol::acl_signature::{ACCESS_KEY, SIGNATURE, SigningKey};
use minimq_protocol::body::KvTable;

use crate::harness::{Broker, NameServer, Peer, wait_for, with_fields};

fn text(body: &[u8]) -> String {
    String::from_utf8(body.to_vec()).unwrap()
}

/// security-02, and security-01 as far as it goes for a name server
#[test]
fn security_02_paths_cannot_be_changed_by_request() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let target = server.folder.path().join("planted");
    let dump = |peer: &mut Peer| text(&peer.call(Command::request(319)).body);
    let before = dump(&mut peer);
    let path = target.display();
    for body in [
        format!("kvConfigPath={path}"),
        format!("configStorePath={path}"),
        format!("rocketmqHome={path}"),
        "configBlackList=x".to_owned(),
        format!("aclFile={path}"),
        "aclEnable=false".to_owned(),
        format!("logDir={path}"),
        format!("tls.server.keyPath={path}"),
        format!("orderMessageEnable=true\nkvConfigPath={path}"),
        format!("kvConfigPath={path}\norderMessageEnable=true"),
        format!("   kvConfigPath \t = {path}"),
        format!("kvConfig\\u0050ath={path}"),
        format!("kvConfig\\\n   Path={path}"),
        format!("\\ kvConfigPath\\ ={path}"),
    ] {
        let answer = peer.call(Command::request(318).with_body(body.clone()));
        assert_eq!(answer.code, 16, "{body}: {}", answer.remark());
        assert_eq!(answer.remark(), "Can not update config in black list.");
        assert_eq!(dump(&mut peer), before, "{body}");
    }
    peer.call(with_fields(
        100,
        &[("namespace", "N"), ("key", "k"), ("value", "v")],
    ));
    assert!(!target.exists());
    assert!(
        !server
            .folder
            .path()
            .join("namesrv/namesrv.properties")
            .exists()
    );
}

/// security-02
#[test]
fn security_02_settings_are_changed_by_request_and_nonsense_does_no_harm() {
    let mut server = NameServer::start(&[]);
    let mut peer = server.peer();
    let mut update = |body: &[u8]| {
        let answer = peer.call(Command::request(318).with_body(body.to_vec()));
        let dump = text(&peer.call(Command::request(319)).body);
        (answer.code, answer.remark().to_owned(), dump)
    };
    assert_eq!(update(b"").0, 0);
    let (code, _, dump) = update(b"orderMessageEnable=true");
    assert!(
        code == 0 && dump.contains("orderMessageEnable=true\n"),
        "{dump}"
    );
    let (code, _, dump) = update(b"orderMessageEnable=notabool");
    assert!(
        code == 0 && dump.contains("orderMessageEnable=false\n"),
        "{dump}"
    );
    let (code, remark, _) = update(b"listenPort=1");
    assert!(code == 1 && remark.contains("listenPort"), "{remark}");
    assert_eq!(update(b"noSuchKey=1\norderMessageEnable=true").0, 0);
    let (code, remark, _) = update(b"a=\\uXYZ1");
    assert_eq!((code, remark.as_str()), (1, "string2Properties error"));
    let binary: Vec<u8> = (0..=255).cycle().take(5000).collect();
    assert!([0, 1].contains(&update(&binary).0));
    let (code, remark, _) = update(b"logLevel=loud");
    assert!(code == 1 && remark.contains("logLevel"), "{remark}");
    assert_eq!(update(b"logLevel=debug").0, 0);
    assert!(server.is_alive());
}

#[test]
fn kv_values_survive_a_restart_and_order_topics_reach_brokers_and_routes() {
    let server = NameServer::start(&[]);
    let mut peer = server.peer();
    let put = |peer: &mut Peer, namespace, key, value| {
        let fields = [("namespace", namespace), ("key", key), ("value", value)];
        assert_eq!(peer.call(with_fields(100, &fields)).code, 0);
    };
    put(&mut peer, "ORDER_TOPIC_CONFIG", "TX", "bx:4");
    put(&mut peer, "PROJECT_CONFIG", "10.0.0.1", "p1");
    put(&mut peer, "PROJECT_CONFIG", "10.0.0.2", "p1");
    drop(peer);
    let server = NameServer::start_in(server.stop(), &[], &[]);
    let mut peer = server.peer();
    let broker = Broker::new("bx", "127.0.0.1:1001", 0)
        .topic("TX", 4, 4)
        .topic("TY", 4, 4);
    let answer = peer.register(&broker);
    assert_eq!(
        KvTable::from_json(&answer.body).unwrap().table["TX"],
        "bx:4"
    );
    assert_eq!(peer.route("TX").unwrap().order_topic_conf, None);
    peer.call(Command::request(318).with_body("orderMessageEnable=true"));
    assert_eq!(
        peer.route("TX").unwrap().order_topic_conf.as_deref(),
        Some("bx:4")
    );
    assert_eq!(peer.route("TY").unwrap().order_topic_conf, None);
    // By value, as 3.x; without a namespace the code means something else.
    let by_value = [("namespace", "PROJECT_CONFIG"), ("key", "p1")];
    let answer = peer.call(with_fields(217, &by_value));
    assert_eq!(answer.ext.get("value"), Some("10.0.0.1;10.0.0.2"));
    assert_eq!(peer.call(with_fields(217, &[("topic", "TX")])).code, 3);
    assert_eq!(peer.call(with_fields(218, &by_value)).code, 0);
    let answer = peer.call(with_fields(219, &[("namespace", "PROJECT_CONFIG")]));
    assert_eq!(text(&answer.body), r#"{"table":{}}"#);
    let answer = peer.call(with_fields(217, &[("namespace", "NONE"), ("key", "p1")]));
    assert_eq!(answer.code, 22);
    assert_eq!(answer.remark(), "No config item, Namespace: NONE Key: p1");
    let stored = std::fs::read_to_string(server.folder.path().join("namesrv/kvConfig.json"));
    assert_eq!(
        stored.unwrap(),
        r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"TX":"bx:4"},"PROJECT_CONFIG":{}}}"#
    );
    let folder = server.stop();
    let server = NameServer::start_in(folder, &["returnOrderTopicConfigToBroker=false"], &[]);
    let mut peer = server.peer();
    // The change of settings was stored too.
    assert!(
        text(&peer.call(Command::request(319)).body)
            .contains("returnOrderTopicConfigToBroker=false\n")
    );
    assert!(peer.register(&broker).body.is_empty());
}

#[test]
fn a_change_that_cannot_be_stored_is_answered_with_the_reason() {
    let server = NameServer::start(&[]);
    std::fs::write(server.folder.path().join("namesrv"), "a file in the way").unwrap();
    let mut peer = server.peer();
    let answer = peer.call(with_fields(
        100,
        &[("namespace", "N"), ("key", "k"), ("value", "v")],
    ));
    assert!(
        answer.code == 1 && answer.remark().contains("namesrv"),
        "{}",
        answer.remark()
    );
    assert_eq!(
        peer.call(with_fields(101, &[("namespace", "N"), ("key", "k")]))
            .code,
        22
    );
}

#[test]
fn with_access_control_only_signed_requests_change_anything() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = folder.path().join("plain_acl.yml");
    std::fs::write(
        &accounts,
        "accounts:\n  - accessKey: AdminAccount\n    secretKey: admin-secret\n    admin: true\n  - accessKey: BrokerAccount\n    secretKey: broker-secret\n    admin: false\n  - accessKey: UserAccount\n    secretKey: user-secret\n    admin: false\n",
    )
    .unwrap();
    let file = format!("aclFile={}", accounts.display());
    let server = NameServer::start(&["aclEnable=true", &file, "brokerAccessKeys=BrokerAccount"]);
    let mut peer = server.peer();
    let signed = |request: &Command, account: &str, secret: &str| {
        let mut request = request.clone().with_ext(ACCESS_KEY, account);
        let signature = SigningKey::new(secret).sign(request.ext.iter(), &request.body);
        request.ext.push(SIGNATURE, &signature);
        request
    };
    let registration = Broker::new("bx", "127.0.0.1:1001", 0)
        .topic("TX", 4, 4)
        .request();
    let put = with_fields(100, &[("namespace", "N"), ("key", "k"), ("value", "v")]);
    let name = [("brokerName", "bx")];
    let changes = [
        registration.clone(),
        put.clone(),
        with_fields(102, &[("namespace", "N"), ("key", "k")]),
        with_fields(
            104,
            &[
                ("brokerName", "bx"),
                ("brokerAddr", "a"),
                ("clusterName", "c"),
                ("brokerId", "0"),
            ],
        ),
        with_fields(205, &name),
        with_fields(216, &[("topic", "TX")]),
        with_fields(218, &[("namespace", "N"), ("key", "k")]),
        Command::request(318).with_body("orderMessageEnable=true"),
        with_fields(
            322,
            &[
                ("brokerName", "bx"),
                ("brokerAddr", "a"),
                ("clusterName", "c"),
                ("brokerId", "0"),
            ],
        ),
        with_fields(327, &name),
    ];
    for change in &changes {
        let code = change.code;
        for refused in [
            change.clone(),
            signed(change, "AdminAccount", "wrong-secret"),
            signed(change, "UserAccount", "user-secret"),
            signed(change, "NobodyAtAll", "x"),
        ] {
            let answer = peer.call(refused);
            assert_eq!(answer.code, 1, "{code}");
            assert!(
                answer.remark().contains("AclException"),
                "{code}: {}",
                answer.remark()
            );
        }
    }
    assert_eq!(
        peer.call(signed(&put, "BrokerAccount", "broker-secret"))
            .code,
        1
    );
    assert_eq!(
        peer.call(signed(&put, "AdminAccount", "admin-secret")).code,
        0
    );
    assert_eq!(
        peer.call(signed(&registration, "BrokerAccount", "broker-secret"))
            .code,
        0
    );
    // Reading needs no signature.
    assert!(peer.route("TX").is_some());
    assert_eq!(peer.call(Command::request(106)).code, 0);
}

#[test]
fn an_open_server_warns_once() {
    let server = NameServer::start(&["bindAddress=0.0.0.0"]);
    assert!(
        !server.log().contains("aclEnable=false"),
        "--listen 127.0.0.1 counts"
    );
    let folder = tempfile::tempdir().unwrap();
    let server = NameServer::start_in(folder, &[], &["--listen", "0.0.0.0:0"]);
    wait_for("the warning", || {
        (server.log().matches("aclEnable=false").count() == 1).then_some(())
    });
}
