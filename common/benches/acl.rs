//! Cost of an access-control check of a V2 send, by body size.

use std::net::IpAddr;

use minimq_common::acl::{AccessControl, AclSettings, BROKER_ADMIN_CODES, Request, needs_of};
use minimq_common::clock::Clock;
use minimq_protocol::acl_signature::SigningKey;

fn main() {
    divan::main();
}

const FIELDS: [(&str, &str); 14] = [
    ("a", "producers"),
    ("b", "orders"),
    ("c", "TBW102"),
    ("d", "8"),
    ("e", "1"),
    ("f", "0"),
    ("g", "1700000000000"),
    ("h", "0"),
    (
        "i",
        "UNIQ_KEY\u{1}0A000001000018B4AAC2130E4A7B0000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA",
    ),
    ("j", "0"),
    ("k", "false"),
    ("m", "false"),
    ("n", "broker-a"),
    ("AccessKey", "orderUser"),
];

#[divan::bench(args = [0, 100, 1024, 4096])]
fn signed_send(bencher: divan::Bencher<'_, '_>, body_len: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let default_file = folder.path().join("plain_acl.yml");
    let text = "globalWhiteRemoteAddresses: [10.1.2.*, 10.1.3.4]\naccounts:\n- {accessKey: orderUser, secretKey: orderSecret, topicPerms: [orders=PUB]}\n";
    std::fs::write(&default_file, text).expect("the file can be written");
    let admin_codes = BROKER_ADMIN_CODES.to_vec();
    let settings = AclSettings {
        default_file,
        folder: None,
        admin_codes,
        grants: Vec::new(),
    };
    let control = AccessControl::open(settings, Clock::system()).expect("the file is right");

    let body = vec![7; body_len];
    let signature = SigningKey::new("orderSecret").sign(FIELDS, &body);
    let mut fields = FIELDS.to_vec();
    fields.push(("Signature", &signature));
    let field = |name: &str| {
        fields
            .iter()
            .rev()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let request = Request {
        code: 310,
        fields: || fields.iter().copied(),
        body: &body,
        peer: IpAddr::from([192, 168, 0, 1]),
    };
    bencher.bench(|| {
        control
            .check(&request, needs_of(310, field).unwrap_or_default())
            .expect("it is signed")
    });
}
