//! Typed headers: what a recorded frame carries is what its header reads and writes again; every code is either typed,
//! or has no fields, or nobody serves it.

mod support;

use std::collections::BTreeSet;

use minimq_protocol::code::request;
use minimq_protocol::header::*;
use minimq_protocol::{Command, ExtFields, Header, HeaderError};
use support::frames::golden_frames;

macro_rules! typed {
    (
        requests { $($code:literal => $request:ident,)* }
        responses { $($answered:literal: $($result:literal)|* => $response:ident,)* }
    ) => {
        const TYPED: &[i32] = &[$($code),*];

        fn rewrite_request(code: i32, command: &Command) -> Option<Result<ExtFields, HeaderError>> {
            match code {
                $($code => Some(command.header::<$request>().map(|header| fields(&header))),)*
                _ => None,
            }
        }

        fn rewrite_response(code: i32, command: &Command) -> Option<Result<ExtFields, HeaderError>> {
            match (code, command.code) {
                $(($answered, $($result)|*) => Some(command.header::<$response>().map(|header| fields(&header))),)*
                _ => None,
            }
        }
    };
}

typed! {
    requests {
        10 => SendMessageRequest,
        11 => PullMessageRequest,
        12 => QueryMessageRequest,
        14 => QueryConsumerOffsetRequest,
        15 => UpdateConsumerOffsetRequest,
        17 => CreateTopicRequest,
        29 => SearchOffsetRequest,
        30 => GetMaxOffsetRequest,
        31 => GetMinOffsetRequest,
        32 => GetEarliestMsgStoretimeRequest,
        33 => ViewMessageRequest,
        35 => UnregisterClientRequest,
        36 => ConsumerSendMsgBackRequest,
        37 => EndTransactionRequest,
        38 => GetConsumerListByGroupRequest,
        39 => CheckTransactionStateRequest,
        40 => NotifyConsumerIdsChangedRequest,
        50 => CreateAccessConfigRequest,
        51 => DeleteAccessConfigRequest,
        53 => UpdateGlobalWhiteAddrsConfigRequest,
        100 => PutKVConfigRequest,
        101 => GetKVConfigRequest,
        102 => DeleteKVConfigRequest,
        103 => RegisterBrokerRequest,
        104 => UnRegisterBrokerRequest,
        105 => GetRouteInfoRequest,
        202 => GetTopicStatsInfoRequest,
        203 => GetConsumerConnectionListRequest,
        204 => GetProducerConnectionListRequest,
        205 => WipeWritePermOfBrokerRequest,
        207 => DeleteSubscriptionGroupRequest,
        208 => GetConsumeStatsRequest,
        215 => DeleteTopicRequest,
        216 => DeleteTopicFromNamesrvRequest,
        219 => GetKVListByNamespaceRequest,
        220 => ResetOffsetRequest,
        221 => GetConsumerStatusRequest,
        222 => ResetOffsetRequest,
        223 => GetConsumerStatusRequest,
        224 => GetTopicsByClusterRequest,
        300 => QueryTopicConsumeByWhoRequest,
        301 => RegisterFilterServerRequest,
        302 => RegisterMessageFilterClassRequest,
        303 => QueryConsumeTimeSpanRequest,
        307 => GetConsumerRunningInfoRequest,
        308 => QueryCorrectionOffsetRequest,
        309 => ConsumeMessageDirectlyResultRequest,
        310 => SendMessageRequestV2,
        314 => CloneGroupOffsetRequest,
        315 => ViewBrokerStatsDataRequest,
        317 => GetConsumeStatsInBroker,
        320 => SendMessageRequestV2,
        321 => QueryConsumeQueueRequest,
        322 => QueryDataVersionRequest,
        323 => ResumeCheckHalfMessageRequest,
        324 => SendMessageRequest,
        325 => SendMessageRequestV2,
        326 => ReplyMessageRequest,
        327 => AddWritePermOfBrokerRequest,
        361 => PullMessageRequest,
    }
    responses {
        10: 0 | 10 | 11 | 12 => SendMessageResponse,
        10: 1 | 14 => SendMessageRefusal,
        310: 0 | 10 | 11 | 12 => SendMessageResponse,
        310: 1 | 14 => SendMessageRefusal,
        320: 0 => SendMessageResponse,
        324: 0 | 1 => SendMessageResponse,
        325: 0 => SendMessageResponse,
        11: 0 | 19 | 20 | 21 => PullMessageResponse,
        12: 0 | 22 => QueryMessageResponse,
        14: 0 => QueryConsumerOffsetResponse,
        26: 0 => GetBrokerConfigResponse,
        29: 0 => SearchOffsetResponse,
        30: 0 => GetMaxOffsetResponse,
        31: 0 => GetMinOffsetResponse,
        32: 0 => GetEarliestMsgStoretimeResponse,
        52: 0 => GetBrokerAclConfigResponse,
        101: 0 => GetKVConfigResponse,
        103: 0 => RegisterBrokerResponse,
        205: 0 => WipeWritePermOfBrokerResponse,
        301: 0 => RegisterFilterServerResponse,
        322: 0 => QueryDataVersionResponse,
        327: 0 => AddWritePermOfBrokerResponse,
    }
}

/// Requests without header fields.
const WITHOUT_FIELDS: &[i32] = &[
    21, 25, 26, 28, 34, 41, 42, 43, 45, 46, 52, 54, 106, 200, 201, 206, 304, 305, 306, 311, 312,
    313, 316, 318, 319, 328, 329, 31000, 31001, 31002, 31003, 31010,
];

/// Requests that nobody serves (wire spec 4.10).
const UNSERVED: &[i32] = &[13, 22, 23, 27, 209, 210, 211, 212, 213, 214];

/// Fields of other layers.
const LOOSE: &[&str] = &[ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, REQUEST_TYPE];

/// Frames sent on purpose without the fields their code demands.
const BROKEN_ON_PURPOSE: &[i32] = &[11, 30, 105];

fn fields<'a>(header: &impl Header<'a>) -> ExtFields {
    let mut ext = ExtFields::new();
    header.write(&mut ext);
    ext
}

fn set(ext: &ExtFields) -> BTreeSet<(&str, &str)> {
    ext.iter()
        .filter(|(key, _)| !LOOSE.contains(key))
        .filter_map(|(key, _)| Some((key, ext.get(key)?)))
        .collect()
}

#[test]
fn a_typed_header_reads_and_writes_all_fields_of_its_frames() {
    let mut checked = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for golden in golden_frames() {
        let command = golden.command();
        let code = golden.request_code();
        let rewritten = if command.is_response() {
            rewrite_response(code, &command)
        } else {
            rewrite_request(code, &command)
        };
        match rewritten {
            Some(Ok(ext)) if !command.ext.is_empty() => {
                let expected = set(&command.ext);
                let mut written = set(&ext);
                // Boolean and number defaults are always written, by releases that know them.
                let new_default = |(key, value): &(&str, &str)| {
                    matches!(*value, "false" | "0") && command.ext.get(key).is_none()
                };
                written.retain(|field| !new_default(field));
                assert_eq!(written, expected, "{}", golden.name);
                checked.insert((code, command.is_response()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert!(command.ext.is_empty(), "{}: {error}", golden.name);
                refused.insert((code, command.is_response()));
            }
            None => {
                let fields = set(&command.ext);
                assert!(
                    fields.is_empty(),
                    "{}: {fields:?} of code {code} are not typed",
                    golden.name
                );
            }
        }
    }
    assert!(
        checked.len() > 70,
        "{} kinds of frames had fields",
        checked.len()
    );
    let broken = BROKEN_ON_PURPOSE
        .iter()
        .map(|code| (*code, false))
        .collect();
    assert_eq!(refused, broken, "requests without their mandatory fields");
}

#[test]
fn every_request_code_is_typed_or_has_no_fields_or_nobody_serves_it() {
    let known = |code: &i32| {
        [TYPED, WITHOUT_FIELDS, UNSERVED]
            .iter()
            .any(|list| list.contains(code))
    };
    let untyped: Vec<_> = request::ALL
        .iter()
        .filter(|(code, _)| !known(code))
        .collect();
    assert!(untyped.is_empty(), "codes not typed yet: {untyped:?}");
    for code in [TYPED, WITHOUT_FIELDS, UNSERVED].concat() {
        assert!(request::name(code).is_some(), "{code} is in no table");
    }
}

#[test]
fn the_v2_names_carry_the_same_header() {
    let mut seen = 0;
    for golden in golden_frames() {
        let command = golden.command();
        let code = golden.request_code();
        if command.is_response()
            || command.ext.is_empty()
            || ![10, 310, 320, 324, 325].contains(&code)
        {
            continue;
        }
        let header = SendMessageRequest::decode_for(code, &command.ext).expect("golden header");
        let long = fields(&header);
        let short = fields(&SendMessageRequestV2(header.clone()));
        assert_eq!(SendMessageRequest::decode(&long), Ok(header.clone()));
        assert_eq!(SendMessageRequest::decode_v2(&short), Ok(header));
        assert_eq!(long.len(), short.len());
        assert!(short.iter().all(|(key, _)| key.len() == 1));
        seen += 1;
    }
    assert!(seen > 20, "{seen} send frames");
}
