//! Access control: acl-01 to acl-03, and the requests that change accounts.

use minimq_protocol::Command;
use minimq_protocol::code::request;
use minimq_protocol::header::{
    CreateAccessConfigRequest, DeleteAccessConfigRequest, DeleteSubscriptionGroupRequest,
    DeleteTopicRequest, GetBrokerAclConfigResponse, QueryMessageRequest,
    RegisterFilterServerRequest, UpdateGlobalWhiteAddrsConfigRequest,
};

use crate::support::{
    Harness, consumer, pull_request, send_request, send_request_with, signed, until,
};

const ACCOUNTS: &str = "
accounts:
  - accessKey: plain-user
    secretKey: plain-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - TPUB=PUB
      - TSUB=SUB
      - TBOTH=PUB|SUB
    groupPerms:
      - GDENY=DENY
  - accessKey: admin-user
    secretKey: admin-secret
    admin: true
  - accessKey: filter-user
    secretKey: filter-secret
";

/// Codes for admin accounts only. None of our own changes anything.
const ADMINS_ONLY: [i32; 15] = [
    17, 25, 50, 51, 53, 200, 207, 215, 222, 301, 306, 314, 316, 323, 329,
];

async fn start(rules: &str) -> Harness {
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    std::fs::create_dir(folder.path().join("conf")).unwrap();
    std::fs::write(folder.path().join("conf/plain_acl.yml"), rules).unwrap();
    let settings = ["aclEnable=true", "filterServerAccessKey=filter-user"];
    Harness::start_in(folder, &settings).await
}

fn user(command: Command) -> Command {
    signed(command, "plain-user", "plain-secret")
}

fn admin(command: Command) -> Command {
    signed(command, "admin-user", "admin-secret")
}

fn refused(answer: &Command, message: &str) {
    assert_eq!(answer.code, 1, "{}", answer.remark());
    let prefix = format!("org.apache.rocketmq.acl.common.AclException: {message}");
    assert!(answer.remark().starts_with(&prefix), "{}", answer.remark());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_01_requests_without_fields_are_refused_unless_their_address_is_listed() {
    let broker = start(ACCOUNTS).await;
    for code in [10, 17, 25, 26, 34, 105, 9999] {
        let bare = Command::request(code).with_body("brokerPermission=0");
        refused(&broker.call(bare).await, "No accessKey is configured");
    }
    let oneway = Command::request(request::UPDATE_BROKER_CONFIG).with_body("brokerPermission=0");
    broker.client.oneway(&broker.addr, oneway).await.unwrap();
    refused(
        &broker.call(Command::request(26)).await,
        "No accessKey is configured",
    );
    assert_eq!(broker.broker.config.get().broker.broker_permission, 6);
    broker.stop().await;

    let broker = start("globalWhiteRemoteAddresses:\n  - 127.0.0.*\n").await;
    broker.send("T", &[], "x").await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_02_a_signature_covers_account_fields_and_body() {
    let broker = start(ACCOUNTS).await;
    let send = || send_request("TBOTH", &[], "body");
    refused(
        &broker.call(signed(send(), "nobody-here", "x")).await,
        "No acl config for nobody-here",
    );
    refused(
        &broker
            .call(signed(send(), "plain-user", "admin-secret"))
            .await,
        "Check signature failed for accessKey=plain-user",
    );
    let changed_body = user(send()).with_body("bodY");
    refused(&broker.call(changed_body).await, "Check signature failed");
    let added = user(send()).with_ext("extra", "1");
    refused(&broker.call(added).await, "Check signature failed");
    assert_eq!(broker.call(user(send())).await.code, 0);

    let query = QueryMessageRequest {
        topic: "TSUB",
        key: "k",
        max_num: 1,
        begin_timestamp: 0,
        end_timestamp: 1,
        unique_key_query: None,
    };
    let query = user(Command::request_with(request::QUERY_MESSAGE, &query));
    let answer = broker
        .call(query.with_ext("_UNIQUE_KEY_QUERY", "true"))
        .await;
    assert_eq!(answer.code, 22, "{}", answer.remark());
    let trace = broker
        .call(user(send_request("RMQ_SYS_TRACE_TOPIC", &[], "trace")))
        .await;
    assert_eq!(trace.code, 0, "every account may trace: {}", trace.remark());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_03_rights_are_those_of_topic_and_group_with_defaults() {
    let broker = start(ACCOUNTS).await;
    for topic in ["TPUB", "TSUB", "TBOTH", "TDENY"] {
        assert_eq!(
            broker.call(admin(send_request(topic, &[], "x"))).await.code,
            0
        );
    }
    for code in [request::SEND_MESSAGE, request::SEND_MESSAGE_V2] {
        for (topic, expected) in [
            ("TPUB", 0),
            ("TBOTH", 0),
            ("TSUB", 1),
            ("TDENY", 1),
            ("new", 1),
        ] {
            let answer = broker
                .call(user(send_request_with(code, topic, &[], "x")))
                .await;
            assert_eq!(answer.code, expected, "{code} {topic}: {}", answer.remark());
        }
    }
    for code in [
        request::SEND_BATCH_MESSAGE,
        request::SEND_REPLY_MESSAGE,
        request::SEND_REPLY_MESSAGE_V2,
    ] {
        let answer = broker
            .call(user(send_request_with(code, "TSUB", &[], "x")))
            .await;
        refused(&answer, "No default permission for topic:TSUB");
        let mut oneway = user(send_request_with(code, "TSUB", &[], "x"));
        oneway.mark_oneway();
        broker.client.oneway(&broker.addr, oneway).await.unwrap();
    }
    // Answered after the one-way ones: none of them has left anything.
    broker.call(user(send_request("TSUB", &[], "x"))).await;
    let max = broker.broker.store.log_store().next_queue_offset("TSUB", 0);
    assert_eq!(max.get(), 1, "the admin's alone");
    for (group, topic, expected) in [
        ("G1", "TBOTH", true),
        ("GDENY", "TBOTH", false),
        ("G1", "TPUB", false),
        ("G1", "TSUB", true),
    ] {
        for code in [request::PULL_MESSAGE, request::LITE_PULL_MESSAGE] {
            let mut pull = pull_request(group, topic, 0, ("TAG", "*"));
            pull.code = code;
            let answer = broker.call(user(pull)).await;
            assert_eq!(
                answer.code != 1,
                expected,
                "{code} {group} {topic}: {}",
                answer.remark()
            );
        }
    }
    let beat = |group: &str, topic: &str| {
        let body = consumer(group, topic, ("TAG", "*"), 1).to_wire();
        user(Command::request(request::HEART_BEAT).with_body(body))
    };
    assert_eq!(broker.call(beat("G1", "TSUB")).await.code, 0);
    refused(
        &broker.call(beat("GDENY", "TSUB")).await,
        "No default permission for group:GDENY",
    );
    refused(
        &broker.call(beat("G1", "TPUB")).await,
        "No default permission for topic:TPUB",
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_03_what_changes_all_clients_needs_an_admin() {
    let broker = start(ACCOUNTS).await;
    let topic = DeleteTopicRequest { topic: "T" };
    let group = DeleteSubscriptionGroupRequest {
        group_name: "G",
        remove_offset: false,
        clean_offset: None,
    };
    let requests = || {
        [
            Command::request_with(request::DELETE_TOPIC_IN_BROKER, &topic),
            Command::request_with(request::DELETE_SUBSCRIPTIONGROUP, &group),
            Command::request(request::UPDATE_BROKER_CONFIG).with_body("traceOn=true"),
            Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
                .with_body(r#"{"groupName":"G"}"#),
            Command::request(request::CLEAN_UNUSED_TOPIC),
        ]
    };
    for command in requests() {
        let message = format!(
            "Need admin permission for request code={}, but accessKey=plain-user is not",
            command.code
        );
        refused(&broker.call(user(command)).await, &message);
    }
    for command in requests() {
        let code = command.code;
        let answer = broker.call(admin(command)).await;
        assert_eq!(answer.code, 0, "{code}: {}", answer.remark());
    }
    // Every code there is: by a plain account the admins' ones are refused, the others for other reasons only.
    let codes = crate::answers::SERVED.iter().map(|(code, _)| *code);
    for code in codes.chain([request::END_TRANSACTION]) {
        let answer = broker.call(user(Command::request(code))).await;
        let refused = answer.remark().contains("Need admin permission");
        assert_eq!(refused, ADMINS_ONLY.contains(&code), "{code}");
    }
    let filter_server = RegisterFilterServerRequest {
        filter_server_addr: "127.0.0.1:9999",
    };
    let register = || Command::request_with(request::REGISTER_FILTER_SERVER, &filter_server);
    refused(
        &broker.call(user(register())).await,
        "Need admin permission",
    );
    let own = signed(register(), "filter-user", "filter-secret");
    assert_eq!(broker.call(own).await.code, 0);
    broker.stop().await;
}

fn account(
    access_key: &'static str,
    secret: Option<&'static str>,
) -> CreateAccessConfigRequest<'static> {
    CreateAccessConfigRequest {
        access_key,
        secret_key: secret,
        white_remote_address: None,
        admin: false,
        default_topic_perm: Some("PUB"),
        default_group_perm: None,
        topic_perms: Some("TA=PUB|SUB, TB=DENY"),
        group_perms: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_change_by_request_and_by_file_and_secrets_stay_inside() {
    let broker = start(ACCOUNTS).await;
    let put = |header| Command::request_with(request::UPDATE_AND_CREATE_ACL_CONFIG, &header);
    refused(
        &broker.call(user(put(account("new-account", None)))).await,
        "Need admin permission",
    );
    let answer = broker
        .call(admin(put(account("new-account", Some("new-secret")))))
        .await;
    assert_eq!(answer.code, 0, "{}", answer.remark());
    let as_new = |command| signed(command, "new-account", "new-secret");
    assert_eq!(
        broker.call(as_new(send_request("TA", &[], "x"))).await.code,
        0
    );
    refused(
        &broker.call(as_new(send_request("TB", &[], "x"))).await,
        "No default permission for topic:TB",
    );
    for (bad, code) in [
        (account("short", Some("new-secret")), 209),
        (account("another-account", Some("short")), 209),
        (account("another-account", None), 209),
    ] {
        let answer = broker.call(admin(put(bad))).await;
        assert_eq!(answer.code, code);
        assert!(!answer.remark().is_empty() && !answer.remark().contains("new-secret"));
    }

    let info = broker
        .call(admin(Command::request(
            request::GET_BROKER_CLUSTER_ACL_INFO,
        )))
        .await;
    let header: GetBrokerAclConfigResponse<'_> = info.header().unwrap();
    assert!(
        header.version.contains("\"counter\":1"),
        "{}",
        header.version
    );
    assert!(
        header
            .all_acl_file_version
            .unwrap()
            .contains("plain_acl.yml")
    );
    assert_eq!((header.broker_name, header.cluster_name), ("b0", "C1"));
    let listing = broker
        .call(admin(Command::request(
            request::GET_BROKER_CLUSTER_ACL_CONFIG,
        )))
        .await;
    assert_eq!((listing.code, listing.body.len()), (3, 0));

    let delete = |access_key| {
        Command::request_with(
            request::DELETE_ACL_CONFIG,
            &DeleteAccessConfigRequest { access_key },
        )
    };
    assert_eq!(broker.call(admin(delete("new-account"))).await.code, 0);
    let answer = broker.call(admin(delete("new-account"))).await;
    assert_eq!(answer.code, 210);
    assert!(answer.remark().starts_with(
        "The accesskey[new-account] corresponding to accessConfig has been deleted failed."
    ));
    refused(
        &broker.call(as_new(send_request("TA", &[], "x"))).await,
        "No acl config for new-account",
    );

    let white = |addresses| UpdateGlobalWhiteAddrsConfigRequest {
        global_white_addrs: addresses,
        acl_file_full_path: None,
    };
    let set = |header| Command::request_with(request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, &header);
    assert_eq!(
        broker.call(admin(set(white("not an address")))).await.code,
        211
    );
    let outside = UpdateGlobalWhiteAddrsConfigRequest {
        global_white_addrs: "127.0.0.1",
        acl_file_full_path: Some("/etc/passwd"),
    };
    assert_eq!(broker.call(admin(set(outside))).await.code, 211);
    assert_eq!(broker.call(admin(set(white("127.0.0.1")))).await.code, 0);
    assert_eq!(
        broker
            .call(Command::request(request::GET_BROKER_CONFIG))
            .await
            .code,
        0
    );

    // Edited by hand: in force within the watch's time.
    let file = broker.folder.path().join("conf/plain_acl.yml");
    std::fs::write(&file, ACCOUNTS).unwrap();
    until("the file to be read", async || {
        broker
            .call(Command::request(request::GET_BROKER_CONFIG))
            .await
            .code
            == 1
    })
    .await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_access_control_its_requests_say_so() {
    let broker = Harness::start(&[]).await;
    let put = Command::request_with(
        request::UPDATE_AND_CREATE_ACL_CONFIG,
        &account("new-account", Some("new-secret")),
    );
    for (command, code) in [
        (put, 209),
        (Command::request(request::GET_BROKER_CLUSTER_ACL_INFO), 1),
        (Command::request(request::GET_BROKER_CLUSTER_ACL_CONFIG), 3),
    ] {
        let answer = broker.call(command).await;
        assert_eq!(answer.code, code);
        assert!(!answer.remark().is_empty());
    }
    broker.stop().await;
}
