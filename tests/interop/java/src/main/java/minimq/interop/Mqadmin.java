package minimq.interop;

import static minimq.interop.Checks.*;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The stock tool's commands (4.9.8 only), run in this process: what they print, and what they changed. */
final class Mqadmin {
    private final Checks c;
    private final Path home;

    Mqadmin(Checks checks) {
        c = checks;
        try {
            home = Files.createTempDirectory("mqadmin");
            Files.createDirectories(home.resolve("conf"));
            Files.writeString(home.resolve("conf/logback_tools.xml"), "<configuration><root level=\"OFF\"/></configuration>");
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
        System.setProperty("rocketmq.home.dir", home.toString()); // read once, when the tool's class is loaded
    }

    /** Runs `mqadmin words... -n NAMESRV` and returns what it printed; a stack trace on standard error is a failure. */
    String tool(String... words) throws Exception {
        PrintStream out = System.out, err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream(), complaints = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
        try {
            // The tool keeps its command objects, and some of those cannot run twice.
            var commands = MQAdminStartup.class.getDeclaredField("subCommandList");
            commands.setAccessible(true);
            ((List<?>) commands.get(null)).clear();
            MQAdminStartup.main0(Stream.concat(Stream.of(words), Stream.of("-n", c.namesrv)).toArray(String[]::new), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        if (complaints.size() > 0) throw new AssertionError(complaints.toString(StandardCharsets.UTF_8));
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** Demands each of `wanted` (regular expressions, `.` matches line ends not) in a command's output. */
    String has(String printed, String... wanted) {
        for (String w : wanted) if (!Pattern.compile(w).matcher(printed).find()) throw new AssertionError("no `" + w + "` in:\n" + printed);
        return printed;
    }

    /** A check named by the command it runs and that one's options. */
    private void command(String words, String... wanted) {
        c.check("mqadmin-" + words.replaceAll(" [^ -]\\S*", "").replace(" ", ""), () -> has(tool(words.split(" ")), wanted));
    }

    void run() {
        try {
            all();
        } catch (Exception e) {
            c.check("mqadmin-preparation", () -> { throw e; });
        }
    }

    private void all() throws Exception {
        String broker = c.brokerAddress(), name = c.brokerName(), cluster = c.clusterName();
        String b = Pattern.quote(broker), topic = c.topic("Admin", 4), group = c.name("GAdmin");
        // What the commands look at: a consumer that has consumed, a producer, a group without members, a message whose ids are known.
        DefaultMQPushConsumer consumer = c.configured(new DefaultMQPushConsumer(group));
        consumer.subscribe(topic, "*");
        Inbox inbox = new Inbox();
        consumer.registerMessageListener(inbox);
        consumer.start();
        DefaultMQProducer producer = c.configured(new DefaultMQProducer(c.name("PAdmin"), c.hook, true, null));
        producer.start();
        Message m = message(topic, "TagAdmin", "body-of-admin");
        m.setKeys(c.name("key"));
        SendResult sent = producer.send(m, new MessageQueue(topic, name, 1));
        for (String body : numbered("m", 0, 20)) producer.send(message(topic, "TagAdmin", body));
        await("consumed", () -> inbox.messages.size() == 21);
        String client = consumer.buildMQClientId(), id = sent.getMsgId();
        String offline = c.name("GAdminOffline");
        DefaultMQPushConsumer once = c.configured(new DefaultMQPushConsumer(offline));
        once.subscribe(topic, "*");
        Inbox seen = new Inbox();
        once.registerMessageListener(seen);
        once.start();
        await("consumed by the second group", () -> seen.messages.size() == 21);
        once.shutdown();
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();

        topics(topic, broker, b, name, cluster);
        messages(topic, group, name, b, sent, client, m.getKeys());
        groups(topic, group, offline, client, name, cluster, broker, b);
        servers(topic, name, cluster, broker, b);

        c.check("mqadmin-producerConnection", () -> has(tool("producerConnection", "-g", producer.getProducerGroup(), "-t", topic), "0001 .*JAVA\\s+V4_9_8"));
        c.check("mqadmin-producer", () -> has(tool("producer", "-b", broker), "producer group \\(" + producer.getProducerGroup() + "\\) instance : clientId=.*language=JAVA, version="));
        c.check("mqadmin-queryMsgTraceById", () -> await("trace found", () -> {
            try {
                has(tool("queryMsgTraceById", "-i", id), "#Type +#ProducerGroup", "Pub +" + producer.getProducerGroup().substring(0, 8) + ".*success");
                return true;
            } catch (AssertionError e) {
                if (!e.getMessage().contains("CODE: 208")) throw e; // not indexed yet
                return false;
            }
        }));
        consumer.shutdown();
        producer.shutdown();
        forEver(cluster, name);
    }

    private void topics(String topic, String broker, String b, String name, String cluster) {
        String fresh = c.name("AdminFresh"), ordered = c.name("AdminOrdered");
        command("updateTopic -b " + broker + " -t " + fresh + " -r 4 -w 4", "create topic to " + b + " success\\.", "TopicConfig \\[topicName=" + fresh + ", readQueueNums=4, writeQueueNums=4, perm=RW-");
        command("updateTopic -c " + cluster + " -t " + ordered + " -r 2 -w 2 -o true", "create topic to " + b + " success\\.", "set cluster orderConf. isOrder=true, orderConf=\\[.*" + name + ":2", "order=true");
        command("updateOrderConf -m put -t " + ordered + " -v " + name + ":4", "update orderConf success. topic=\\[" + ordered + "\\], orderConf=\\[" + name + ":4\\]");
        command("updateOrderConf -m get -t " + ordered, "orderConf=\\[" + name + ":4\\]");
        command("updateOrderConf -m delete -t " + ordered, "delete orderConf success. topic=\\[" + ordered + "\\]");
        command("updateTopicPerm -b " + broker + " -t " + fresh + " -p 4", "update topic perm from 6 to 4 in " + b + " success\\.");
        command("updateTopicPerm -c " + cluster + " -t " + fresh + " -p 6", "update topic perm from 4 to 6 in " + b + " success\\.");
        command("topicList", "(?m)^" + topic + "$", "(?m)^" + fresh + "$", "TBW102");
        command("topicList -c", "#Cluster Name", cluster + " +" + topic + " +GAdmin");
        command("topicRoute -t " + fresh, "\"brokerName\":\"" + name + "\"", "\"filterServerTable\":\\{", "\"perm\":6", "\"readQueueNums\":4", "0:\"" + b + "\"");
        command("topicRoute -l -t " + fresh, cluster + " +" + name + " +\\{0=" + b + "\\} +4 +4 +6", "Total:");
        command("topicStatus -t " + topic, "#Broker Name +#QID +#Min Offset +#Max Offset +#Last Updated", name + " +1 +0 +[1-9]\\d* +20\\d\\d-");
        command("topicClusterList -t " + topic, "(?m)^" + cluster + "$");
        command("allocateMQ -t " + topic + " -i 10.0.0.1,10.0.0.2", "\"10.0.0.2\":\\[\\{\"brokerName\":\"" + name + "\",\"queueId\":\\d,\"topic\":\"" + topic + "\"");
        command("statsAll -t " + topic, topic + " +GAdmin\\S* +\\d+ ");
        command("statsAll -a", "#Topic +#Consumer Group");
        command("deleteTopic -c " + cluster + " -t " + fresh, "delete topic \\[" + fresh + "\\] from cluster \\[" + cluster + "\\] success\\.", "delete topic \\[" + fresh + "\\] from NameServer success\\.");
        c.check("mqadmin-deleteTopic-no-route", () -> await("no route", () -> {
            try {
                return c.admin().examineTopicRouteInfo(fresh) == null;
            } catch (MQClientException e) {
                return e.getResponseCode() == 17;
            }
        }));
    }

    private void messages(String topic, String group, String name, String b, SendResult sent, String client, String key) {
        String id = sent.getMsgId();
        String[] detail = {"Topic: +" + topic, "Tags: +\\[TagAdmin\\]", "Keys: +\\[" + key + "\\]", "Queue ID: +1", "Queue Offset: +0", "Reconsume Times: +0", "Store Host: +" + b,
            "Properties: +\\{.*UNIQ_KEY=" + id, "MessageTrack \\[consumerGroup=" + group + ", trackType=CONSUMED, exceptionDesc=null\\]"};
        command("queryMsgById -i " + sent.getOffsetMsgId(), detail);
        command("queryMsgById -s true -i " + sent.getOffsetMsgId(), "prepare resend msg. originalMsgId=" + sent.getOffsetMsgId() + ".*SEND_OK");
        command("queryMsgById -g " + group + " -d " + client + " -i " + sent.getOffsetMsgId(), "ConsumeMessageDirectlyResult \\[order=false, autoCommit=true, consumeResult=CR_SUCCESS");
        command("queryMsgByUniqueKey -t " + topic + " -i " + id, detail);
        command("queryMsgByUniqueKey -t " + topic + " -g " + group + " -d " + client + " -i " + id, "consumeResult=CR_SUCCESS");
        command("queryMsgByOffset -t " + topic + " -b " + name + " -i 1 -o 0", detail);
        command("queryMsgByKey -t " + topic + " -k " + key, id + " +1 +0");
        command("printMsg -t " + topic, "minOffset=0, maxOffset=\\d+, MessageQueue \\[topic=" + topic + ", brokerName=" + name + ", queueId=1\\]", "MSGID: " + id + " MessageExt \\[.* BODY: body-of-admin");
        command("printMsg -d false -s TagNone -t " + topic, "no matched msg. status=NO_MATCHED_MSG");
        command("printMsgByQueue -t " + topic + " -a " + name + " -i 1 -p true -d true -f true", "MSGID: " + id + ".* BODY: body-of-admin", "Tag: TagAdmin +Count: \\d+");
        command("consumeMessage -t " + topic + " -c 4", "Consume ok", "BODY: ");
        command("consumeMessage -t " + topic + " -b " + name + " -i 1 -o 0 -c 1", "Consume ok", "MSGID: " + id + ".* BODY: body-of-admin");
        command("sendMessage -t " + topic + " -p hello -k k -c TagSent", "#Broker Name +#QID +#Send Result +#MsgId", name + " +\\d +SEND_OK +[0-9A-F]{32}");
        command("sendMessage -t " + topic + " -p hello -b " + name + " -i 3", name + " +3 +SEND_OK");
        command("sendMsgStatus -b " + name + " -s 32 -c 3", "rt=\\d+ms, SendResult=SendResult \\[sendStatus=SEND_OK, msgId=");
        command("checkMsgSendRT -t " + topic + " -a 3 -s 16", name + " +\\d +true +\\d+", "Avg RT: \\d");
        command("queryCq -t " + topic + " -q 1 -i 0 -c 2", "max: \\d+, min: 0", "idx: 0\\s+ConsumeQueueData\\{physicOffset=\\d+, physicSize=\\d+, tagsCode=" + "TagAdmin".hashCode());
        command("queryCq -t " + topic + " -q 1 -i 0 -b " + b.replace("\\Q", "").replace("\\E", "") + " -g " + group, "Subscription data: ", "idx: 0");
    }

    private void groups(String topic, String group, String offline, String client, String name, String cluster, String broker, String b) {
        String fresh = c.name("GAdminFresh"), clone = c.name("GAdminClone");
        command("updateSubGroup -b " + broker + " -g " + fresh + " -r 3", "create subscription group to " + b + " success\\.", "SubscriptionGroupConfig \\[groupName=" + fresh + ",.*retryMaxTimes=3");
        command("updateSubGroup -c " + cluster + " -g " + clone, "create subscription group to " + b + " success\\.");
        command("getConsumerConfig -g " + fresh, "=+" + cluster + ":" + name + "=+", "groupName +=  " + fresh, "retryMaxTimes +=  3");
        command("deleteSubGroup -b " + broker + " -r true -g " + fresh, "delete subscription group \\[" + fresh + "\\] from broker \\[" + b + "\\] success\\.");
        command("deleteSubGroup -c " + cluster + " -g " + fresh, "delete subscription group \\[" + fresh + "\\] from broker \\[" + b + "\\] in cluster \\[" + cluster + "\\] success\\.");
        command("consumerConnection -g " + group, client + " +\\S+:\\d+ +JAVA +V4_9_8", topic + " +\\*", "ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING");
        command("consumerConnection -b " + broker + " -g " + group, client);
        command("consumerProgress", "#Group +#Count", group + " +1 +V4_9_8 +PUSH +CLUSTERING", offline + " +0 +OFFLINE");
        command("consumerProgress -g " + group, topic + " +" + name + " +1 +\\d+ +\\d+ +\\d+ +20\\d\\d", "Consume TPS: ", "Diff Total: \\d+");
        command("consumerProgress -s true -g " + group, "#Client IP", client.split("@")[0]);
        command("consumerStatus -g " + group, "1 +" + client + " +V4_9_8", "Same subscription in the same group of consumer", "Rebalance OK");
        command("consumerStatus -s -i " + client + " -g " + group, "#Consumer Properties#", "#Consumer Offset#", "#Consumer jstack#");
        command("brokerConsumeStats -b " + broker, topic + " +" + group + " +" + name + " +1 +\\d+ +\\d+ +\\d+ +20\\d\\d", "Diff Total: ");
        command("cloneGroupOffset -s " + offline + " -d " + clone + " -t " + topic, "clone group offset success. srcGroup\\[" + offline + "\\], destGroup=\\[" + clone + "\\], topic\\[" + topic + "\\]");
        c.check("mqadmin-cloneGroupOffset-offsets", () -> {
            DefaultMQPullConsumer cloned = c.open(c.configured(new DefaultMQPullConsumer(clone)), DefaultMQPullConsumer::shutdown);
            cloned.start();
            for (var e : offsets(offline).entrySet())
                if (e.getKey().getTopic().equals(topic)) equal(e.getValue(), cloned.fetchConsumeOffset(e.getKey(), true), "offset of the clone in " + e.getKey());
        });
        command("resetOffsetByTime -s now -g " + group + " -t " + topic, "rollback consumer offset by specified group\\[" + group + "\\], topic\\[" + topic + "\\], force\\[true\\], timestamp\\(string\\)\\[now\\], timestamp\\(long\\)\\[-1\\]", name + " +1 +\\d+");
        command("skipAccumulatedMessage -g " + group + " -t " + topic, "#brokerName +#queueId +#offset", name + " +1 +\\d+");
        c.check("mqadmin-resetOffsetByTime-offline", () -> {
            has(tool("resetOffsetByTime", "-g", offline, "-t", topic, "-s", "1000"), "#brokerName +#queueId +#brokerOffset +#consumerOffset +#timestampOffset +#rollbackOffset", name + " +1 +\\d+ +\\d+ +0 +0");
            equal(0L, offsets(offline).get(new MessageQueue(topic, name, 1)), "offset after the reset");
        });
    }

    private Map<MessageQueue, Long> offsets(String group) throws Exception {
        Map<MessageQueue, Long> offsets = new HashMap<>();
        for (var e : c.admin().examineConsumeStats(group).getOffsetTable().entrySet()) offsets.put(e.getKey(), e.getValue().getConsumerOffset());
        return offsets;
    }

    private void servers(String topic, String name, String cluster, String broker, String b) {
        String space = c.name("NS"), ns = "\\[.*" + Pattern.quote(c.namesrv.split(";")[0]) + ".*\\]";
        command("clusterList", "#Cluster Name +#Broker Name +#BID", cluster + " +" + name + " +0 +" + b + " +V4_9_8 +\\d+\\.\\d\\d\\(\\d+,\\d+ms\\) +\\d+\\.\\d\\d\\(\\d+,\\d+ms\\)");
        command("clusterList -m", cluster + " +" + name + " +\\d+ +\\d+ +\\d+ +\\d+");
        command("brokerStatus -b " + broker, "bootTimestamp +: \\d{13}", "brokerVersionDesc +: V4_9_8", "putTps +: \\d", "commitLogMaxOffset +: \\d", "getTotalTps", "msgPutTotalTodayNow +: [1-9]", "runtime ", "sendThreadPoolQueueSize +: \\d", "dispatchBehindBytes +: \\d");
        command("brokerStatus -c " + cluster, b + " +bootTimestamp");
        command("getBrokerConfig -b " + broker, "=+" + b + "=+", "brokerName +=  " + name, "flushDiskType +=  A?SYNC", "listenPort +=  " + broker.split(":")[1]);
        command("getBrokerConfig -c " + cluster, "=+Master: " + b + "=+");
        command("updateBrokerConfig -b " + broker + " -k flushDelayOffsetInterval -v 9500", "update broker config success, " + b);
        command("getBrokerConfig -b " + broker, "flushDelayOffsetInterval +=  9500");
        command("updateBrokerConfig -c " + cluster + " -k flushDelayOffsetInterval -v 10000", "update broker config success, " + b);
        command("getNamesrvConfig", "=+" + Pattern.quote(c.namesrv.split(";")[0]) + "=+", "listenPort +=  \\d+", "kvConfigPath +=  ");
        command("updateNamesrvConfig -k clusterTest -v false", "update name server config success!" + ns, "clusterTest : false");
        command("updateKvConfig -s " + space + " -k k -v v1", "create or update kv config to namespace success\\.");
        c.check("mqadmin-updateKvConfig-value", () -> equal("v1", c.admin().getKVConfig(space, "k"), "value"));
        command("deleteKvConfig -s " + space + " -k k", "delete kv config from namespace success\\.");
        c.check("mqadmin-wipeWritePerm", () -> {
            has(tool("wipeWritePerm", "-b", name), "wipe write perm of broker\\[" + name + "\\] in name server" + ns + " OK, [1-9]\\d*");
            equal(4, c.admin().examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm(), "permission in the route");
        });
        c.check("mqadmin-addWritePerm", () -> {
            has(tool("addWritePerm", "-b", name), "add write perm of broker\\[" + name + "\\] in name server" + ns + " OK, [1-9]\\d*");
            equal(6, c.admin().examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm(), "permission in the route");
        });
        for (String clean : List.of("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog")) command(clean + " -b " + broker, "^success$");
        for (String clean : List.of("cleanExpiredCQ", "cleanUnusedTopic")) command(clean + " -c " + cluster, "^success$");
        command("exportMetadata -c " + cluster + " -f " + home, "export " + home + "/metadata.json success");
        command("exportMetadata -t -b " + broker + " -f " + home, "export " + home + "/topic.json success");
        command("exportMetadata -g -s -b " + broker + " -f " + home, "export " + home + "/subscriptionGroup.json success");
        command("exportConfigs -c " + cluster + " -f " + home, "export " + home + "/configs.json success");
        command("exportMetrics -c " + cluster + " -f " + home, "export " + home + "/metrics.json success");
        c.check("mqadmin-exported-files", () -> {
            has(Files.readString(home.resolve("metadata.json")), "\"topicConfigTable\":", "\"" + topic + "\"", "\"subscriptionGroupTable\":", "\"GAdmin");
            has(Files.readString(home.resolve("configs.json")), "\"" + name + "\":", "\"brokerName\":\"" + name + "\"", "\"namesrvSize\":\"?\\d", "\"messageDelayLevel\":");
            has(Files.readString(home.resolve("metrics.json")), "\"evaluateReport\":", "\"rocketmqVersion\":\"V4_9_8\"", "\"totalTps\":");
        });
    }

    /** The commands that never end: the first lines count. They go on in this process, so they come last. */
    private void forEver(String cluster, String name) {
        c.check("mqadmin-clusterRT", () -> {
            PrintStream out = System.out;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            Thread thread = new Thread(() -> MQAdminStartup.main0(new String[] {"clusterRT", "-a", "2", "-s", "16", "-c", cluster, "-i", "3600", "-n", c.namesrv}, null));
            thread.setDaemon(true);
            thread.start();
            await("a row", () -> Pattern.compile(cluster + " +" + name + " +\\d+\\.\\d\\d +2 +0").matcher(printed.toString()).find());
            System.setOut(out);
        });
        command("startMonitoring");
    }

    /** The commands for accounts, signed by the administrator of ../plain_acl.yml. */
    void accounts(String broker, String cluster) throws Exception {
        Files.writeString(home.resolve("conf/tools.yml"), "accessKey: InteropAdmin\nsecretKey: interop-admin-secret\n");
        String b = Pattern.quote(broker), key = "Added" + System.currentTimeMillis() % 1_000_000;
        command("updateAclConfig -b " + broker + " -a " + key + " -s added-secret -i DENY -u DENY -t InteropAclTopic=PUB|SUB -g InteropAclGroup=SUB -m false", "create or update plain access config to " + b + " success\\.");
        command("clusterAclConfigVersion -b " + broker, b + " .*plain_acl\\.yml +\\d+ +20\\d\\d", "get broker's plain access config version success\\.");
        command("clusterAclConfigVersion -c " + cluster, "#Cluster Name .*#AclLastUpdateTime", b, "get cluster's plain access config version success\\.");
        command("updateGlobalWhiteAddr -b " + broker + " -g 10.10.154.1,10.10.154.2", "update global white remote addresses to " + b + " success\\.");
        c.check("acl-added-account", () -> Security.as(c, key, "added-secret", () -> await("the account works", () -> {
            try {
                c.producer().send(message("InteropAclTopic", null, "by the added account"), new MessageQueue("InteropAclTopic", c.brokerName(), 0));
                return true;
            } catch (org.apache.rocketmq.client.exception.MQBrokerException e) {
                return false;
            }
        })));
        command("deleteAclConfig -b " + broker + " -a " + key, "delete plain access config account from " + b + " success\\.", "account's accesskey is:" + key);
        c.check("acl-deleted-account", () -> Security.as(c, key, "added-secret", () -> await("the account is gone", () -> {
            try {
                c.producer().send(message("InteropAclTopic", null, "x"), new MessageQueue("InteropAclTopic", c.brokerName(), 0));
                return false;
            } catch (org.apache.rocketmq.client.exception.MQBrokerException e) {
                return true;
            }
        })));
    }
}
