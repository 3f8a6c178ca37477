//! Access control: who may upload and pull, and the filter server's own account at a broker.

use std::sync::Arc;

use minimq_protocol::Command;
use minimq_protocol::acl_signature::{ACCESS_KEY, SIGNATURE, SigningKey};
use minimq_protocol::code::request;
use minimq_remoting::{Client, ClientConfig, RequestSigner};

use crate::support::*;

struct Account(&'static str, &'static str);

impl RequestSigner for Account {
    fn sign(&self, request: &mut Command) {
        request.ext.push(ACCESS_KEY, self.0);
        let signature = SigningKey::new(self.1).sign(request.ext.iter(), &request.body);
        request.ext.push(SIGNATURE, &signature);
    }
}

const ACCOUNTS: &str = "accounts:
  - accessKey: reader1
    secretKey: 12345678
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [T=SUB]
    groupPerms: [CG=SUB]
";

#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_pulls_need_the_right_to_consume_the_topic_as_the_group() {
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Vec::new())));
    let folder = minimq_common::temporary::TemporaryFolder::new().unwrap();
    let file = folder.path().join("plain_acl.yml");
    std::fs::write(&file, ACCOUNTS).unwrap();
    let server = filter_server(
        &broker.addr(),
        &["aclEnable=true", &format!("aclFile={}", file.display())],
    )
    .await;
    let member = |group, topic, account: Option<Account>| {
        let signer = account.map(|account| Arc::new(account) as Arc<dyn RequestSigner>);
        let client = Client::new(ClientConfig {
            signer,
            ..ClientConfig::default()
        })
        .unwrap();
        Member {
            client,
            ..Member::new(server.local_addr(), group, topic)
        }
    };
    let reader = || Some(Account("reader1", "12345678"));
    let allowed = member("CG", "T", reader());
    allowed.uploaded(SEQUENCE_ID).await;
    assert_eq!(allowed.pull(0).await.code, 19);
    assert_eq!(allowed.figures().await.filters.len(), 1);
    for (name, refused) in [
        ("unsigned", member("CG", "T", None)),
        ("another group", member("Other", "T", reader())),
        ("another topic", member("CG", "Secret", reader())),
        (
            "wrong secret",
            member("CG", "T", Some(Account("reader1", "87654321"))),
        ),
        (
            "unknown account",
            member("CG", "T", Some(Account("nobody1", "12345678"))),
        ),
    ] {
        let (code, remark) = refused.upload(SEQUENCE_ID).await;
        assert_eq!(
            (code, remark.contains("AclException")),
            (1, true),
            "{name}: {remark}"
        );
        let pulled = refused.pull(0).await;
        assert_eq!(
            (pulled.code, pulled.remark.contains("AclException")),
            (1, true),
            "{name}: {}",
            pulled.remark
        );
    }
    let unsigned = member("CG", "T", None)
        .call(Command::request(request::GET_FILTER_STATS))
        .await;
    assert_eq!(unsigned.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_server_signs_with_its_own_account() {
    let signed = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = signed.clone();
    let key = SigningKey::new("87654321");
    let broker = FakeBroker::start_raw(move |command| {
        let signature = command.ext.get(SIGNATURE).unwrap_or_default();
        seen.lock()
            .push(key.verify(command.ext.iter(), &command.body, signature));
    });
    let server = filter_server(&broker.addr(), &["accessKey=filters", "secretKey=87654321"]).await;
    let member = Member::new(server.local_addr(), "CG", "T");
    member.uploaded(SEQUENCE_ID).await;
    assert_eq!(member.pull(0).await.code, 19);
    let signed = signed.lock();
    assert!(signed.len() >= 3, "registration, test of its rights, pull");
    assert!(signed.iter().all(|holds| *holds));
}
