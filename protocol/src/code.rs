//! Request codes (wire spec 4.0, 4.10) and result codes (wire spec 5), one table each.

macro_rules! codes {
    ($(#[$attribute:meta])* $module:ident { $($name:ident = $code:literal, $doc:literal;)* }) => {
        $(#[$attribute])*
        pub mod $module {
            $( #[doc = $doc] pub const $name: i32 = $code; )*

            /// All of them with their names, by number.
            pub const ALL: &[(i32, &str)] = &[$( ($code, stringify!($name)), )*];

            /// The name of a code.
            pub fn name(code: i32) -> Option<&'static str> {
                let at = ALL.binary_search_by_key(&code, |(code, _)| *code).ok()?;
                ALL.get(at).map(|(_, name)| *name)
            }
        }
    };
}

codes! {
    /// Request codes. Who serves them is the first word: B broker, N name server, F filter server, C client, – nobody.
    request {
        SEND_MESSAGE = 10, "B: one message or a batch, long header names.";
        PULL_MESSAGE = 11, "B, F: messages of a queue.";
        QUERY_MESSAGE = 12, "B: messages by key.";
        QUERY_BROKER_OFFSET = 13, "–";
        QUERY_CONSUMER_OFFSET = 14, "B: offset of a group in a queue.";
        UPDATE_CONSUMER_OFFSET = 15, "B: stores such an offset.";
        UPDATE_AND_CREATE_TOPIC = 17, "B: creates or changes a topic.";
        GET_ALL_TOPIC_CONFIG = 21, "B: all topics, for slaves and tools.";
        GET_TOPIC_CONFIG_LIST = 22, "–";
        GET_TOPIC_NAME_LIST = 23, "–";
        UPDATE_BROKER_CONFIG = 25, "B: changes settings at run time.";
        GET_BROKER_CONFIG = 26, "B: all settings.";
        TRIGGER_DELETE_FILES = 27, "–";
        GET_BROKER_RUNTIME_INFO = 28, "B: figures about the broker.";
        SEARCH_OFFSET_BY_TIMESTAMP = 29, "B: queue offset at a time.";
        GET_MAX_OFFSET = 30, "B: one behind the last offset of a queue.";
        GET_MIN_OFFSET = 31, "B: first offset of a queue.";
        GET_EARLIEST_MSG_STORETIME = 32, "B: time of the first message of a queue.";
        VIEW_MESSAGE_BY_ID = 33, "B: the message at a commit-log offset.";
        HEART_BEAT = 34, "B: what a client produces and consumes.";
        UNREGISTER_CLIENT = 35, "B: takes a client out of its groups.";
        CONSUMER_SEND_MSG_BACK = 36, "B: consume it again later.";
        END_TRANSACTION = 37, "B: commit or roll back a half message.";
        GET_CONSUMER_LIST_BY_GROUP = 38, "B: clients of a group.";
        CHECK_TRANSACTION_STATE = 39, "C: what became of that transaction?";
        NOTIFY_CONSUMER_IDS_CHANGED = 40, "C: rebalance now.";
        LOCK_BATCH_MQ = 41, "B: locks queues for ordered consumption.";
        UNLOCK_BATCH_MQ = 42, "B: gives such locks back.";
        GET_ALL_CONSUMER_OFFSET = 43, "B: all group offsets, for slaves.";
        GET_ALL_DELAY_OFFSET = 45, "B: delay offsets, for slaves.";
        CHECK_CLIENT_CONFIG = 46, "B: does that expression compile?";
        UPDATE_AND_CREATE_ACL_CONFIG = 50, "B: adds or changes an account.";
        DELETE_ACL_CONFIG = 51, "B: deletes an account.";
        GET_BROKER_CLUSTER_ACL_INFO = 52, "B: version of the access rules.";
        UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53, "B: sets the global white list.";
        GET_BROKER_CLUSTER_ACL_CONFIG = 54, "B: the access rules (4.6.0 to 4.9.7).";
        PUT_KV_CONFIG = 100, "N: sets a key.";
        GET_KV_CONFIG = 101, "N: reads a key.";
        DELETE_KV_CONFIG = 102, "N: deletes a key.";
        REGISTER_BROKER = 103, "N: a broker with its topics.";
        UNREGISTER_BROKER = 104, "N: that broker goes.";
        GET_ROUTEINFO_BY_TOPIC = 105, "N: brokers and queues of a topic.";
        GET_BROKER_CLUSTER_INFO = 106, "N: clusters and brokers.";
        UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200, "B: creates or changes a group.";
        GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201, "B: all groups, for slaves and tools.";
        GET_TOPIC_STATS_INFO = 202, "B: offsets of a topic's queues.";
        GET_CONSUMER_CONNECTION_LIST = 203, "B: connections of a consumer group.";
        GET_PRODUCER_CONNECTION_LIST = 204, "B: connections of a producer group.";
        WIPE_WRITE_PERM_OF_BROKER = 205, "N: no more writes to a broker.";
        GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206, "N: all topics.";
        DELETE_SUBSCRIPTIONGROUP = 207, "B: deletes a group.";
        GET_CONSUME_STATS = 208, "B: progress of a group.";
        SUSPEND_CONSUMER = 209, "–";
        RESUME_CONSUMER = 210, "–";
        RESET_CONSUMER_OFFSET_IN_CONSUMER = 211, "–";
        RESET_CONSUMER_OFFSET_IN_BROKER = 212, "–";
        ADJUST_CONSUMER_THREAD_POOL = 213, "–";
        WHO_CONSUME_THE_MESSAGE = 214, "–";
        DELETE_TOPIC_IN_BROKER = 215, "B: deletes a topic.";
        DELETE_TOPIC_IN_NAMESRV = 216, "N: deletes a topic.";
        GET_KVLIST_BY_NAMESPACE = 219, "N: all keys of a namespace.";
        RESET_CONSUMER_CLIENT_OFFSET = 220, "C: go on at these offsets.";
        GET_CONSUMER_STATUS_FROM_CLIENT = 221, "C: at which offsets are you?";
        INVOKE_BROKER_TO_RESET_OFFSET = 222, "B: sends 220 to a group.";
        INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223, "B: sends 221 to a group.";
        GET_TOPICS_BY_CLUSTER = 224, "N: topics of a cluster.";
        QUERY_TOPIC_CONSUME_BY_WHO = 300, "B: groups that consume a topic.";
        REGISTER_FILTER_SERVER = 301, "B: \"I filter for you\".";
        REGISTER_MESSAGE_FILTER_CLASS = 302, "F: uploads a filter.";
        QUERY_CONSUME_TIME_SPAN = 303, "B: times of a group's progress.";
        GET_SYSTEM_TOPIC_LIST_FROM_NS = 304, "N: names that are no user topics.";
        GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305, "B: the broker's own topics.";
        CLEAN_EXPIRED_CONSUMEQUEUE = 306, "B: deletes old consume queues.";
        GET_CONSUMER_RUNNING_INFO = 307, "B relays to C: state of a consumer.";
        QUERY_CORRECTION_OFFSET = 308, "B: least offsets of groups.";
        CONSUME_MESSAGE_DIRECTLY = 309, "B relays to C: consume this message.";
        SEND_MESSAGE_V2 = 310, "B: as 10, one-letter header names.";
        GET_UNIT_TOPIC_LIST = 311, "N: unit topics.";
        GET_HAS_UNIT_SUB_TOPIC_LIST = 312, "N: topics with a unit subscription.";
        GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313, "N: of those, the ones that are no unit topics.";
        CLONE_GROUP_OFFSET = 314, "B: copies a group's offsets.";
        VIEW_BROKER_STATS_DATA = 315, "B: one statistics item.";
        CLEAN_UNUSED_TOPIC = 316, "B: deletes queues of unknown topics.";
        GET_BROKER_CONSUME_STATS = 317, "B: progress of all groups.";
        UPDATE_NAMESRV_CONFIG = 318, "N: changes settings at run time.";
        GET_NAMESRV_CONFIG = 319, "N: all settings.";
        SEND_BATCH_MESSAGE = 320, "B: a batch, one-letter header names.";
        QUERY_CONSUME_QUEUE = 321, "B: entries of a consume queue.";
        QUERY_DATA_VERSION = 322, "N: is my registration up to date?";
        RESUME_CHECK_HALF_MESSAGE = 323, "B: check a given-up half message again.";
        SEND_REPLY_MESSAGE = 324, "B: reply of a request-reply call.";
        SEND_REPLY_MESSAGE_V2 = 325, "B: the same, one-letter header names.";
        PUSH_REPLY_MESSAGE_TO_CLIENT = 326, "C: the reply.";
        ADD_WRITE_PERM_OF_BROKER = 327, "N: undoes 205.";
        GET_ALL_PRODUCER_INFO = 328, "B: all producers.";
        DELETE_EXPIRED_COMMITLOG = 329, "B: deletes old commit-log files.";
        LITE_PULL_MESSAGE = 361, "B: as 11, from 5.x lite pull consumers.";
        GET_DAMAGED_RECORDS = 31000, "B, our own: parts of the log that are never served.";
        GET_MIXED_SUBSCRIPTIONS = 31001, "B, our own: members that subscribe otherwise than their group.";
        GET_HELD_PULLS = 31002, "B, our own: pulls that wait, by queue.";
        GET_QUEUE_LOCKS = 31003, "B, our own: locks on queues.";
        GET_FILTER_STATS = 31010, "F, our own: figures of every filter.";
    }
}

codes! {
    /// Result codes.
    response {
        SUCCESS = 0, "Done.";
        SYSTEM_ERROR = 1, "Failed; the remark says why.";
        SYSTEM_BUSY = 2, "Flow control.";
        REQUEST_CODE_NOT_SUPPORTED = 3, "Unknown request code.";
        TRANSACTION_FAILED = 4, "Never sent.";
        FLUSH_DISK_TIMEOUT = 10, "Stored; the disk did not confirm in time. Counts as sent.";
        SLAVE_NOT_AVAILABLE = 11, "Stored; no slave in reach. Counts as sent. Also 37 sent to a slave.";
        FLUSH_SLAVE_TIMEOUT = 12, "Stored; no slave confirmed in time. Counts as sent.";
        MESSAGE_ILLEGAL = 13, "Body or properties too large or malformed.";
        SERVICE_NOT_AVAILABLE = 14, "The store takes no writes.";
        VERSION_NOT_SUPPORTED = 15, "Never sent.";
        NO_PERMISSION = 16, "Broker, topic, group or key does not allow it.";
        TOPIC_NOT_EXIST = 17, "No route, or no such topic.";
        TOPIC_EXIST_ALREADY = 18, "Never sent.";
        PULL_NOT_FOUND = 19, "Nothing new.";
        PULL_RETRY_IMMEDIATELY = 20, "Pull again at the offset given.";
        PULL_OFFSET_MOVED = 21, "Illegal offset; go on at the one given.";
        QUERY_NOT_FOUND = 22, "No such key, offset or message.";
        SUBSCRIPTION_PARSE_FAILED = 23, "Bad expression.";
        SUBSCRIPTION_NOT_EXIST = 24, "The broker knows no such subscription; send a heartbeat.";
        SUBSCRIPTION_NOT_LATEST = 25, "The broker's subscription is older; send a heartbeat.";
        SUBSCRIPTION_GROUP_NOT_EXIST = 26, "Unknown group.";
        FILTER_DATA_NOT_EXIST = 27, "No compiled filter.";
        FILTER_DATA_NOT_LATEST = 28, "The compiled filter is older.";
        TRANSACTION_SHOULD_COMMIT = 200, "Never sent.";
        TRANSACTION_SHOULD_ROLLBACK = 201, "Never sent.";
        TRANSACTION_STATE_UNKNOW = 202, "Never sent.";
        TRANSACTION_STATE_GROUP_WRONG = 203, "Never sent.";
        NO_BUYER_ID = 204, "Never sent; producers retry on it.";
        NOT_IN_CURRENT_UNIT = 205, "Never sent; producers retry on it.";
        CONSUMER_NOT_ONLINE = 206, "No member of the group is connected.";
        CONSUME_MSG_TIMEOUT = 207, "The client did not answer a relayed request in 10 s.";
        NO_MESSAGE = 208, "Only inside clients.";
        UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209, "Answer to 50.";
        DELETE_ACL_CONFIG_FAILED = 210, "Answer to 51.";
        UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211, "Answer to 53.";
        FLOW_CONTROL = 215, "Consumers back off (4.9.5+).";
    }
}
