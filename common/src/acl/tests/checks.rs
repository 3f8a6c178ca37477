//! What a request may do.

use super::*;

#[test]
fn permissions_are_as_recorded() {
    for row in golden("acl-permission.tsv") {
        let permission = Permission::parse(text(&row[0])).unwrap_or(Permission::DENY);
        assert_eq!(permission.byte().to_string(), row[1], "{row:?}");
    }
    for row in golden("acl-permission-check.tsv") {
        let [needed, owned] =
            [&row[0], &row[1]].map(|cell| Permission::from_byte(cell.parse().unwrap()));
        assert_eq!(owned.allows(needed).to_string(), row[2], "{row:?}");
    }
    for text in ["DENY", "PUB", "SUB", "PUB|SUB"] {
        assert_eq!(Permission::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn requests_without_key_are_refused_whatever_they_want() {
    let acl = acl(FILE);
    for code in [10, 17, 25, 26, 34, 105, 310] {
        assert_eq!(
            acl.send("192.168.7.7", code, &[], b""),
            Err(AclError::NoAccessKey),
            "{code}"
        );
        let blank = [("AccessKey", " "), ("Signature", ""), ("OnsChannel", "")];
        assert_eq!(
            acl.send("192.168.7.7", code, &blank, b""),
            Err(AclError::NoAccessKey),
            "{code}"
        );
        assert_eq!(
            acl.send("10.1.2.200", code, &[], b""),
            Ok(Pass::GlobalWhiteList),
            "{code}"
        );
        assert_eq!(
            acl.send("::ffff:10.1.3.4", code, &[], b""),
            Ok(Pass::GlobalWhiteList),
            "{code}"
        );
    }
    let error = AclError::NoAccessKey;
    assert_eq!(
        error.remark(),
        "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    );
    assert_eq!(AclError::CODE, 1);
}

#[test]
fn wrong_key_secret_body_or_field_is_refused() {
    let acl = acl(FILE);
    let topic = [("topic", "TPUB")];
    assert_eq!(acl.user(10, &topic), Ok(Pass::Signed));
    assert_eq!(
        acl.ask("nobodyKey", "exampleSecret", 10, &topic),
        Err(AclError::UnknownAccount("nobodyKey".into()))
    );
    let wrong = Err(AclError::WrongSignature("exampleUser".into()));
    assert_eq!(acl.ask("exampleUser", "otherSecret", 10, &topic), wrong);
    assert_eq!(acl.ask("exampleUser", "", 10, &topic), wrong);

    let mut fields = vec![("topic", "TPUB"), ("AccessKey", "exampleUser")];
    let signature = acl_signature::sign("exampleSecret", fields.iter().copied(), b"body");
    fields.push(("Signature", &signature));
    assert_eq!(
        acl.send("192.168.7.7", 10, &fields, b"body"),
        Ok(Pass::Signed)
    );
    assert_eq!(acl.send("192.168.7.7", 10, &fields, b"Body"), wrong);
    let with = |name, value| [fields.as_slice(), &[(name, value)]].concat();
    assert_eq!(
        acl.send("192.168.7.7", 10, &with("bname", "x"), b"body"),
        wrong
    );
    assert_eq!(
        acl.send(
            "192.168.7.7",
            12,
            &with("_UNIQUE_KEY_QUERY", "true"),
            b"body"
        ),
        Err(AclError::NoTopicPermission("TPUB".into())),
        "excluded from the signature"
    );
    assert_eq!(
        acl.send("192.168.7.7", 10, &with("Signature", "AAAA"), b"body"),
        wrong,
        "the last field counts"
    );
    assert_eq!(
        acl.send("192.168.7.7", 10, &with("topic", "TBOTH"), b"body"),
        wrong
    );
    assert_eq!(
        acl.send("192.168.7.7", 10, &fields[..2], b"body"),
        wrong,
        "no signature"
    );
    let message = AclError::WrongSignature("exampleUser".into()).remark();
    assert_eq!(
        message,
        "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=exampleUser"
    );
}

#[test]
fn an_account_s_own_white_list_passes_without_signature() {
    let acl = acl(FILE);
    let fields = [("topic", "TDENY"), ("AccessKey", "exampleUser")];
    assert_eq!(
        acl.send("10.9.0.20", 10, &fields, b""),
        Ok(Pass::AccountWhiteList)
    );
    assert_eq!(
        acl.send("10.9.0.21", 10, &fields, b""),
        Err(AclError::WrongSignature("exampleUser".into()))
    );
}

#[test]
fn topic_permissions_decide_over_sends_and_pulls() {
    let acl = acl(FILE);
    for code in [10, 310, 320, 324, 325] {
        let name = if code == 10 || code == 324 {
            "topic"
        } else {
            "b"
        };
        for topic in ["TPUB", "TBOTH"] {
            assert_eq!(
                acl.user(code, &[(name, topic)]),
                Ok(Pass::Signed),
                "{code} {topic}"
            );
        }
        for topic in ["TSUB", "TDENY", "other"] {
            let refused = Err(AclError::NoTopicPermission(topic.into()));
            assert_eq!(acl.user(code, &[(name, topic)]), refused, "{code} {topic}");
            assert_eq!(
                acl.user(code, &[("b", topic), ("topic", topic)]),
                refused,
                "{code} {topic}"
            );
        }
    }
    let pull = |topic, group| acl.user(11, &[("topic", topic), ("consumerGroup", group)]);
    assert_eq!(pull("TBOTH", "anyGroup"), Ok(Pass::Signed));
    assert_eq!(
        pull("TBOTH", "GDENY"),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    assert_eq!(
        pull("TPUB", "anyGroup"),
        Err(AclError::NoTopicPermission("TPUB".into()))
    );
    assert_eq!(acl.user(12, &[("topic", "TSUB")]), Ok(Pass::Signed));
    assert_eq!(
        acl.user(12, &[("topic", "TPUB")]),
        Err(AclError::NoTopicPermission("TPUB".into()))
    );
    for code in [35, 38] {
        assert_eq!(
            acl.user(code, &[("consumerGroup", "GDENY")]),
            Err(AclError::NoGroupPermission("GDENY".into()))
        );
        assert_eq!(
            acl.user(code, &[("consumerGroup", "other")]),
            Ok(Pass::Signed)
        );
        assert_eq!(acl.user(code, &[]), Ok(Pass::Signed));
    }
    assert_eq!(
        acl.user(36, &[("group", "GDENY")]),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    let both = [("topic", "TPUB"), ("consumerGroup", "x")];
    for code in [15, 302] {
        assert_eq!(
            acl.user(code, &both),
            Err(AclError::NoTopicPermission("TPUB".into()))
        );
    }
    for code in [14, 33, 37] {
        assert_eq!(
            acl.user(code, &both),
            Ok(Pass::Signed),
            "a signature is enough"
        );
    }
    assert_eq!(needs_of(34, |_| None), None);
}

#[test]
fn heartbeats_pass_their_needs_from_the_body() {
    let acl = acl(FILE);
    let beat = |needs: Vec<Need<'static>>| {
        let fields = [("AccessKey", "exampleUser")];
        let signature = acl_signature::sign("exampleSecret", fields, b"{}");
        let fields = [fields[0], ("Signature", signature.as_str())];
        let peer = "192.168.7.7".parse().unwrap();
        acl.control.check(
            &Request {
                code: 34,
                fields: || fields,
                body: b"{}",
                peer,
            },
            needs,
        )
    };
    assert_eq!(
        beat(vec![
            Need::consume_as("g"),
            Need::subscribe("TSUB"),
            Need::subscribe("%RETRY%g")
        ]),
        Ok(Pass::Signed)
    );
    assert_eq!(
        beat(vec![Need::consume_as("GDENY")]),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    assert_eq!(
        beat(vec![Need::subscribe("%RETRY%GDENY")]),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    assert_eq!(
        beat(vec![Need::subscribe("TPUB")]),
        Err(AclError::NoTopicPermission("TPUB".into()))
    );
}

#[test]
fn retry_and_dead_letter_topics_follow_their_group() {
    let acl = acl(&FILE.replace("- TDENY=DENY", "- '%DLQ%GDENY=SUB'"));
    for code in [10, 310] {
        let name = if code == 10 { "topic" } else { "b" };
        for prefix in ["%RETRY%", "%DLQ%"] {
            assert_eq!(
                acl.user(code, &[(name, &format!("{prefix}billing"))]),
                Ok(Pass::Signed)
            );
        }
        let refused = Err(AclError::NoGroupPermission("GDENY".into()));
        assert_eq!(acl.user(code, &[(name, "%RETRY%GDENY")]), refused);
    }
    let pull = |topic| acl.user(12, &[("topic", topic)]);
    assert_eq!(pull("%DLQ%GDENY"), Ok(Pass::Signed), "listed by itself");
    assert_eq!(
        pull("%RETRY%GDENY"),
        Err(AclError::NoGroupPermission("GDENY".into()))
    );
    assert_eq!(
        acl.user(10, &[("topic", "%DLQ%GDENY")]),
        Err(AclError::NoTopicPermission("%DLQ%GDENY".into()))
    );
}

#[test]
fn every_account_may_publish_traces_and_nothing_else_there() {
    let acl = acl(FILE);
    assert_eq!(acl.user(310, &[("b", TRACE_TOPIC)]), Ok(Pass::Signed));
    let pull = acl.user(11, &[("topic", TRACE_TOPIC), ("consumerGroup", "g")]);
    assert_eq!(pull, Err(AclError::NoTopicPermission(TRACE_TOPIC.into())));
    let two = acl.user(310, &[("b", TRACE_TOPIC), ("topic", "TSUB")]);
    assert_eq!(
        two,
        Err(AclError::NoTopicPermission("TSUB".into())),
        "no way around by a second field"
    );
}

#[test]
fn admin_codes_need_an_admin() {
    let acl = acl(FILE);
    for code in [
        17, 25, 50, 51, 53, 200, 207, 215, 222, 306, 314, 316, 323, 329,
    ] {
        let refused = AclError::NeedsAdmin {
            code,
            access_key: "exampleUser".into(),
        };
        assert_eq!(
            refused.to_string(),
            format!(
                "Need admin permission for request code={code}, but accessKey=exampleUser is not"
            )
        );
        assert_eq!(acl.user(code, &[]), Err(refused));
        assert_eq!(
            acl.ask("exampleAdmin", "12345678", code, &[]),
            Ok(Pass::Signed)
        );
    }
    assert_eq!(
        acl.user(301, &[]),
        Ok(Pass::Signed),
        "granted to the filter server's account"
    );
    assert_eq!(
        acl.ask("boundAdmin", "boundSecret", 301, &[]),
        Ok(Pass::Signed)
    );
}

#[test]
fn an_admin_with_lists_is_bound_by_them() {
    let acl = acl(FILE);
    let bound = |topic| acl.ask("boundAdmin", "boundSecret", 10, &[("topic", topic)]);
    assert_eq!(bound("TPUB"), Ok(Pass::Signed));
    assert_eq!(
        bound("other"),
        Err(AclError::NoTopicPermission("other".into()))
    );
    assert_eq!(
        acl.ask("exampleAdmin", "12345678", 10, &[("topic", "other")]),
        Ok(Pass::Signed)
    );
}
