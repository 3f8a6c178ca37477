//! Any bytes as a JSON text and as every body: read or refused; what is read is written in a form that reads the same.

use minimq_protocol::body::*;
use minimq_protocol::json::{self, Flavour, FromValue, Limits, ToJson};
use std::fmt::Debug;

pub(crate) fn run(bytes: &[u8]) {
    let _ = RegisterBrokerBody::from_compressed(bytes, 100_000);
    let text = String::from_utf8_lossy(bytes);
    let _ = json::read_with(
        &text,
        Limits {
            depth: 4,
            nodes: 50,
        },
    );
    let Ok(value) = json::read(&text) else { return };

    // What a reference stands for depends on the place it is at, so it need not survive writing.
    let has_references = text.contains("ref");
    let written = json::encode(&value, Flavour::Fastjson);
    let again = json::read(std::str::from_utf8(&written).expect("UTF-8"));
    let again = again.expect("what is written is read");
    assert!(has_references || json::encode(&again, Flavour::Fastjson) == written);
    assert!(json::encode(&value, Flavour::Standard).is_ascii());
    let indented = json::encode_pretty(&value, Flavour::Fastjson);
    assert!(json::read(std::str::from_utf8(&indented).expect("UTF-8")).is_ok());

    macro_rules! bodies {
        ($($body:ident)*) => { $( body::<$body>(bytes, has_references); )* };
    }
    bodies! {
        AclConfig AclFileVersions BrokerStatsData CheckClientRequestBody ClusterInfo ConsumeByWho
        ConsumeMessageDirectlyResult ConsumeStats ConsumeStatsList ConsumerConnection ConsumerFilterTable
        ConsumerIdList ConsumerOffsetWrapper ConsumerRunningInfo DataVersion DelayOffsetWrapper
        GetConsumerStatusBody GroupList HeartbeatData KvConfigTable KvTable LocalOffsetTable LockBatchBody
        LockBatchResponseBody OffsetMovedEvent ProducerConnection ProducerTableInfo QueryConsumeQueueResponseBody
        QueryConsumeTimeSpanBody QueryCorrectionOffsetBody RegisterBrokerBody ResetOffsetBody ResetOffsetBodyForC
        SubscriptionGroupConfig SubscriptionGroupWrapper TopicConfig TopicConfigWrapper TopicList TopicRouteData
        TopicStatsTable
    }
}

/// A body that is read comes back from both flavours.
fn body<T: FromValue + ToJson + PartialEq + Debug>(bytes: &[u8], has_references: bool) {
    let Ok(read) = json::decode::<T>(bytes) else {
        return;
    };
    for flavour in [Flavour::Standard, Flavour::Fastjson] {
        let again = json::decode::<T>(&json::encode(&read, flavour));
        assert!(
            has_references || again.as_ref() == Ok(&read),
            "{read:?} came back as {again:?}"
        );
    }
}
