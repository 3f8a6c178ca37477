//! The check on whole commands: the signed requests recorded from Java clients pass, and a check
//! allocates nothing.

use std::fs;
use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use minimq_common::acl::{
    AccessControl, AclError, AclSettings, BROKER_ADMIN_CODES, Pass, Request, needs_of,
};
use minimq_common::clock::Clock;
use minimq_protocol::acl_signature::SigningKey;
use minimq_protocol::{Command, SerializeType, frame};

const ACCOUNTS: &str = "
accounts:
- accessKey: GoldAdminAK
  secretKey: goldadminsecret12
  admin: true
- accessKey: GoldUserAK
  secretKey: golduser12345678
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
";

fn control() -> (tempfile::TempDir, AccessControl) {
    let folder = tempfile::tempdir().unwrap();
    let default_file = folder.path().join("plain_acl.yml");
    fs::write(&default_file, ACCOUNTS).unwrap();
    let admin_codes = BROKER_ADMIN_CODES.to_vec();
    let settings = AclSettings {
        default_file,
        folder: None,
        admin_codes,
        grants: Vec::new(),
    };
    (
        folder,
        AccessControl::open(settings, Clock::system()).unwrap(),
    )
}

fn check(control: &AccessControl, command: &Command) -> Result<Pass, AclError> {
    let needs = needs_of(command.code, |name| command.ext.get(name)).unwrap_or_default();
    let peer = IpAddr::from([127, 0, 0, 1]);
    let request = Request {
        code: command.code,
        fields: || command.ext.iter(),
        body: &command.body,
        peer,
    };
    control.check(&request, needs)
}

/// Sent by one recorded client (instance `aclq`) that had a wrong secret.
const WRONG_SECRET: [&str; 6] = [
    "035-unregister-client.json.request.java.6.bin",
    "035-unregister-client.rocketmq.request.java.6.bin",
    "105-get-routeinfo-by-topic.json.request.java.5.bin",
    "105-get-routeinfo-by-topic.rocketmq.request.java.5.bin",
    "310-send-message-v2.json.request.java.10.bin",
    "310-send-message-v2.rocketmq.request.java.10.bin",
];

#[test]
fn signed_requests_recorded_from_java_pass_and_altered_ones_do_not() {
    let (_folder, control) = control();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/frames");
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.contains(".request.") {
            continue;
        }
        let mut command = frame::parse(Bytes::from(fs::read(&path).unwrap())).unwrap();
        let Some(key) = command.ext.get("AccessKey").map(str::to_owned) else {
            continue;
        };
        match check(&control, &command) {
            Ok(Pass::Signed) => {}
            Err(AclError::NeedsAdmin { .. }) => assert_eq!(key, "GoldUserAK", "{name}"),
            Err(AclError::WrongSignature(_)) => {
                wrong.push(name.to_owned());
                continue;
            }
            other => panic!("{name}: {other:?}"),
        }
        command.body = Bytes::from([&command.body[..], b"!"].concat());
        assert_eq!(
            check(&control, &command),
            Err(AclError::WrongSignature(key)),
            "{name}"
        );
        checked += 1;
    }
    wrong.sort();
    assert_eq!(wrong, WRONG_SECRET);
    assert!(checked >= 20, "only {checked} signed requests were found");
}

#[test]
fn a_check_allocates_nothing() {
    let (_folder, control) = control();
    let mut command = Command::request(310).with_body(vec![7; 1024]);
    command.serialize = SerializeType::Rocketmq;
    for (name, value) in [
        ("a", "producers"),
        ("b", "orders"),
        ("c", "TBW102"),
        ("d", "8"),
        ("e", "1"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "WAIT\u{1}true"),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
        ("n", "broker-a"),
        ("AccessKey", "GoldUserAK"),
    ] {
        command.ext.push(name, value);
    }
    let signature = SigningKey::new("golduser12345678").sign(command.ext.iter(), &command.body);
    command.ext.push("Signature", &signature);
    let mut bytes = BytesMut::new();
    command.encode(&mut bytes);
    let command = frame::parse(bytes.freeze()).unwrap();

    assert_eq!(check(&control, &command), Ok(Pass::Signed));
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            let passed = check(&control, &command);
            assert!(passed.is_ok());
        }
    });
    assert_eq!(counted.count_total, 0);
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 10])));
    assert_eq!(counted.count_total, 1, "the counter works");
}
