//! Routes and the cluster table, as the name server answers them (wire spec 6.2, 6.3).

use super::body;
use std::collections::BTreeMap;

body! {
    /// The queues of a topic at one broker.
    #[derive(Eq, Hash)]
    pub struct QueueData: Standard {
        /// Name of the broker.
        broker_name: String = "brokerName";
        /// Permission bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm";
        /// Queues that can be read.
        read_queue_nums: i32 = "readQueueNums";
        /// Bits: 1 unit topic, 2 has unit subscription. Spelled `topicSynFlag` up to 4.8.0 and in Go.
        topic_sys_flag: i32 = "topicSysFlag" | "topicSynFlag";
        /// Queues that can be written.
        write_queue_nums: i32 = "writeQueueNums";
    }
}

body! {
    /// One broker: a master and its slaves.
    #[derive(Eq, Hash)]
    pub struct BrokerData: Standard {
        /// Broker id (0 = master) → `ip:port`.
        broker_addrs: BTreeMap<i64, String> = "brokerAddrs";
        /// Name of the broker.
        broker_name: String = "brokerName";
        /// Its cluster. Absent in 3.x.
        cluster: Option<String> = "cluster";
    }
}

body! {
    /// Answer to GET_ROUTEINFO_BY_TOPIC (105).
    ///
    /// Old clients without `acceptStandardJsonOnly` get [`Flavour::Fastjson`](super::Flavour::Fastjson) from Java, but
    /// all read the standard form.
    #[derive(Eq)]
    pub struct TopicRouteData: Standard {
        /// The brokers that hold the topic.
        broker_datas: Vec<BrokerData> = "brokerDatas";
        /// Broker address → addresses of its filter servers; always written.
        filter_server_table: BTreeMap<String, Vec<String>> = "filterServerTable";
        /// `brokerName:queueNum;…` of an order topic.
        order_topic_conf: Option<String> = "orderTopicConf";
        /// The queues of the topic, one entry a broker.
        queue_datas: Vec<QueueData> = "queueDatas";
    }
}

body! {
    /// Answer to GET_BROKER_CLUSTER_INFO (106).
    #[derive(Eq)]
    pub struct ClusterInfo: Standard {
        /// Broker name → broker.
        broker_addr_table: BTreeMap<String, BrokerData> = "brokerAddrTable";
        /// Cluster → broker names.
        cluster_addr_table: BTreeMap<String, Vec<String>> = "clusterAddrTable";
    }
}
