package minimq.interop;

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Runs named checks: a line each, what a check opened is closed at its end. Also the few things every suite needs: clients of the cluster
 * under test, names that no other run uses, waiting for a condition, reading a topic whole.
 *
 * Types whose package differs between the 4.x and 5.x clients are only met through `var`.
 */
final class Checks {
    interface Body { void run() throws Exception; }

    static final boolean CLIENT_4 = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).startsWith("V4");

    final String namesrv;
    final Map<String, String> options;
    /** Signs every request when set. */
    RPCHook hook;
    /** Whether connections use TLS. */
    boolean tls;
    int passed, failed;

    /** Where results go, also while a suite captures System.out. */
    private final java.io.PrintStream out = System.out;
    private final String run = Long.toString(System.currentTimeMillis() % 10_000_000_000L, 36);
    private final Deque<AutoCloseable> opened = new ArrayDeque<>();
    private final List<AutoCloseable> shared = new ArrayList<>();
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer reader;
    private DefaultMQAdminExt admin;

    Checks(String namesrv, Map<String, String> options) {
        this.namesrv = namesrv;
        this.options = options;
    }

    /** A check that 4.9.8 itself does not pass: left out with the option `reference=4.9.8`. */
    void checkBeyondReference(String name, Body body) {
        if (!leftOut(name)) check(name, body);
    }

    boolean leftOut(String name) {
        if (options.containsKey("reference")) out.println("left out " + name + ": 4.9.8 fails it");
        return options.containsKey("reference");
    }

    void check(String name, Body body) {
        if (!name.matches(options.getOrDefault("only", ".*"))) return;
        long start = System.nanoTime();
        String line;
        try {
            body.run();
            passed++;
            line = "ok " + name;
        } catch (Throwable e) {
            failed++;
            line = "FAILED " + name + ": " + String.valueOf(e).replaceAll("\\s*\\n\\s*", " ");
            if (options.containsKey("verbose")) e.printStackTrace(out);
        }
        while (!opened.isEmpty()) close(opened.pop());
        out.printf(Locale.ROOT, "%s (%.2f s)%n", line, (System.nanoTime() - start) / 1e9);
    }

    /** Has `resource` closed at the end of the running check. */
    <T> T open(T resource, Consumer<T> close) {
        opened.push(() -> close.accept(resource));
        return resource;
    }

    void closeShared() {
        shared.forEach(Checks::close);
        shared.clear();
        producer = null;
        reader = null;
        admin = null;
    }

    /** Runs `body` with every new client signed by `account`. */
    void as(RPCHook account, Body body) throws Exception {
        RPCHook before = hook;
        closeShared();
        hook = account;
        try {
            body.run();
        } finally {
            closeShared();
            hook = before;
        }
    }

    private static void close(AutoCloseable resource) {
        try {
            resource.close();
        } catch (Exception e) {
            System.err.println("closing: " + e);
        }
    }

    // ---- assertions

    static void that(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static void equal(Object expected, Object actual, String what) {
        if (!Objects.equals(expected, actual)) throw new AssertionError(what + ": expected " + cut(expected) + ", got " + cut(actual));
    }

    private static String cut(Object value) {
        String text = String.valueOf(value);
        return text.length() > 400 ? text.substring(0, 400) + "…" : text;
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        await(what, 40, condition);
    }

    static void await(String what, int seconds, Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > end) throw new AssertionError("not within " + seconds + " s: " + what);
            Thread.sleep(20);
        }
    }

    /** Demands that a server refuses what `body` asks for with this response code. */
    static void refused(int code, String what, Body body) throws Exception {
        int got;
        try {
            body.run();
            throw new AssertionError(what + ": not refused");
        } catch (MQBrokerException e) {
            got = e.getResponseCode();
        } catch (MQClientException e) {
            got = e.getCause() instanceof MQBrokerException ? ((MQBrokerException) e.getCause()).getResponseCode() : e.getResponseCode();
        }
        equal(code, got, "response code for " + what);
    }

    // ---- names, messages

    /** `base` with a suffix that no other run uses. */
    String name(String base) {
        return base + "-" + run;
    }

    /** Creates a topic under a fresh name on the first broker and waits for its route. */
    String topic(String base, int queues) throws Exception {
        return topic(name(base), queues, 6);
    }

    String topic(String topic, int queues, int perm) throws Exception {
        admin().createAndUpdateTopicConfig(brokerAddress(), new TopicConfig(topic, queues, queues, perm));
        await("route of " + topic, () -> {
            try {
                return admin().examineTopicRouteInfo(topic).getQueueDatas().stream()
                    .allMatch(q -> q.getWriteQueueNums() == queues && q.getPerm() == perm);
            } catch (MQClientException e) {
                return false;
            }
        });
        return topic;
    }

    static Message message(String topic, String tag, String body) {
        return new Message(topic, tag, body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static List<String> numbered(String prefix, int from, int to) {
        List<String> list = new ArrayList<>();
        for (int i = from; i < to; i++) list.add(prefix + i);
        return list;
    }

    void sendAll(String topic, List<String> bodies) throws Exception {
        for (String body : bodies) equal(SendStatus.SEND_OK, producer().send(message(topic, null, body)).getSendStatus(), "status of " + body);
    }

    // ---- clients

    /** Points a client at the cluster under test. */
    <T extends ClientConfig> T configured(T client) {
        client.setNamesrvAddr(namesrv);
        client.setUseTLS(tls);
        // The route of a new retry topic is met on the first timer only, a broker's version (SQL filters ask for it) on the second.
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(1_000);
        return client;
    }

    /** A producer that lives as long as the suite. */
    DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = configured(new DefaultMQProducer(name("P"), hook));
            producer.setSendMsgTimeout(10_000);
            producer.start();
            shared.add(producer::shutdown);
        }
        return producer;
    }

    /** A plain pull consumer that lives as long as the suite. */
    DefaultMQPullConsumer reader() throws Exception {
        if (reader == null) {
            reader = configured(new DefaultMQPullConsumer(name("READER"), hook));
            reader.start();
            shared.add(reader::shutdown);
        }
        return reader;
    }

    DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = configured(new DefaultMQAdminExt(hook, 10_000));
            admin.start();
            shared.add(admin::shutdown);
        }
        return admin;
    }

    /** The master whose name sorts first. */
    String brokerAddress() throws Exception {
        var table = admin().examineBrokerClusterInfo().getBrokerAddrTable();
        return table.get(brokerName()).getBrokerAddrs().get(0L);
    }

    String brokerName() throws Exception {
        await("a broker known to the name server", () -> !admin().examineBrokerClusterInfo().getBrokerAddrTable().isEmpty());
        return new TreeSet<>(admin().examineBrokerClusterInfo().getBrokerAddrTable().keySet()).first();
    }

    String clusterName() throws Exception {
        return admin().examineBrokerClusterInfo().getBrokerAddrTable().get(brokerName()).getCluster();
    }

    DefaultMQPushConsumer consumer(String group) {
        return consumer(new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely()));
    }

    DefaultMQPushConsumer consumer(DefaultMQPushConsumer consumer) {
        configured(consumer).setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // so that what was consumed is also noted
        return open(consumer, DefaultMQPushConsumer::shutdown);
    }

    /** Starts a concurrent push consumer whose messages land in the returned inbox. */
    Inbox push(String group, String topic, String expression) throws Exception {
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, expression);
        return push(consumer);
    }

    Inbox push(DefaultMQPushConsumer consumer) throws Exception {
        Inbox inbox = new Inbox();
        inbox.consumer = consumer;
        consumer.registerMessageListener(inbox);
        consumer.start();
        return inbox;
    }

    /**
     * Shuts a consumer down once its group's offsets add up. 4.9.8 takes pulls and offsets in different threads, so that the older offset of a
     * pull sent before may come last: ask the broker. The 5.x tool cannot (it needs request 351), so there the client's own table counts.
     */
    void stopAt(Inbox inbox, String topic, long consumed) throws Exception {
        var consumer = inbox.consumer.getDefaultMQPushConsumerImpl();
        await(consumed + " committed", () -> {
            consumer.persistConsumerOffset();
            long sum = 0;
            if (CLIENT_4) {
                for (var e : admin().examineConsumeStats(inbox.consumer.getConsumerGroup()).getOffsetTable().entrySet())
                    if (e.getKey().getTopic().equals(topic)) sum += e.getValue().getConsumerOffset();
            } else {
                for (long offset : consumer.getOffsetStore().cloneOffsetTable(topic).values()) sum += offset;
            }
            return sum == consumed;
        });
        inbox.consumer.shutdown();
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(group, hook));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return open(consumer, DefaultLitePullConsumer::shutdown);
    }

    /** The first `count` messages of a topic once they are there: dispatch to queues follows the answer to the sender. */
    List<MessageExt> readAll(String topic, int count) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        await(count + " messages in " + topic, () -> {
            all.clear();
            all.addAll(readAll(topic));
            return all.size() >= count;
        });
        return all;
    }

    /** Every message of a topic, read with plain pulls, queue after queue. */
    List<MessageExt> readAll(String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(reader().fetchSubscribeMessageQueues(topic));
        Collections.sort(queues);
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue queue : queues) {
            long offset = reader().minOffset(queue), max = reader().maxOffset(queue);
            while (offset < max) {
                PullResult result = reader().pull(queue, "*", offset, 32);
                that(result.getNextBeginOffset() > offset, "pull makes progress: " + result);
                if (result.getPullStatus() == PullStatus.FOUND) all.addAll(result.getMsgFoundList());
                offset = result.getNextBeginOffset();
            }
        }
        return all;
    }

    /** A listener that keeps what it gets. */
    static final class Inbox implements MessageListenerConcurrently {
        final List<MessageExt> messages = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer;

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> batch, ConsumeConcurrentlyContext context) {
            messages.addAll(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        List<String> bodies() {
            List<String> list = new ArrayList<>();
            for (MessageExt m : messages) list.add(text(m));
            return list;
        }

        /** Waits until each of `bodies` was received, and demands that nothing came twice and nothing else came. */
        void awaitExactly(Collection<String> bodies) throws Exception {
            awaitAll(bodies);
            equal(new TreeSet<>(bodies), new TreeSet<>(bodies()), "received");
            equal(bodies.size(), messages.size(), "number received");
        }

        void awaitAll(Collection<String> bodies) throws Exception {
            try {
                await("", () -> messages.size() >= bodies.size() && new HashSet<>(bodies()).containsAll(bodies));
            } catch (AssertionError e) {
                Set<String> missing = new TreeSet<>(bodies);
                missing.removeAll(bodies());
                throw new AssertionError("within 40 s " + messages.size() + " received of " + bodies.size() + ", missing " + cut(missing));
            }
        }
    }
}
