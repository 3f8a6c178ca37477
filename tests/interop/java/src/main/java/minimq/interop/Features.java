package minimq.interop;

import static minimq.interop.Checks.*;

import static minimq.interop.Basic.texts;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.*;

/** Transactions, SQL filters, request-reply, queries, trace, uploaded filters. */
final class Features {
    private final Checks c;

    Features(Checks checks) {
        c = checks;
    }

    /** Decides by the message's property `plan`: what the local transaction says, then what each check-back says. */
    static final class Plan implements TransactionListener {
        final Map<String, List<MessageExt>> checks = new ConcurrentHashMap<>();
        final List<Message> halves = new CopyOnWriteArrayList<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
            halves.add(m);
            return state(m, 0);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            List<MessageExt> seen = checks.computeIfAbsent(text(m), k -> new CopyOnWriteArrayList<>());
            seen.add(m);
            return state(m, seen.size());
        }

        private static LocalTransactionState state(Message m, int step) {
            String[] plan = m.getUserProperty("plan").split(",");
            String word = plan[Math.min(step, plan.length - 1)];
            if (word.equals("throw")) throw new IllegalStateException("asked for by the test");
            return word.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE : word.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    static TransactionMQProducer transactional(Checks c, String group, Plan plan) throws Exception {
        TransactionMQProducer producer = c.open(c.configured(new TransactionMQProducer(group, c.hook)), TransactionMQProducer::shutdown);
        producer.setTransactionListener(plan);
        producer.start();
        return producer;
    }

    static TransactionSendResult sendHalf(TransactionMQProducer producer, String topic, String body, String plan) throws Exception {
        Message m = message(topic, "T", body);
        m.setKeys("key");
        m.putUserProperty("plan", plan);
        return producer.sendMessageInTransaction(m, null);
    }

    void transaction() {
        c.check("transaction-commit-and-rollback", () -> {
            String topic = c.topic("Transaction", 1);
            Inbox inbox = c.push(c.name("GTransaction"), topic, "*");
            Plan plan = new Plan();
            TransactionMQProducer producer = transactional(c, c.name("PTransaction"), plan);
            equal(LocalTransactionState.ROLLBACK_MESSAGE, sendHalf(producer, topic, "rolled back", "rollback").getLocalTransactionState(), "state");
            TransactionSendResult result = sendHalf(producer, topic, "committed", "commit");
            equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            equal(LocalTransactionState.COMMIT_MESSAGE, result.getLocalTransactionState(), "state");
            inbox.awaitExactly(List.of("committed"));
            MessageExt m = inbox.messages.get(0);
            equal(List.of(topic, "T", "key", result.getMsgId(), 0L), List.of(m.getTopic(), m.getTags(), m.getKeys(), m.getMsgId(), m.getQueueOffset()), "committed message");
            equal(1, c.readAll(topic).size(), "messages in the topic");
        });

        c.check("transaction-check-back", () -> {
            String topic = c.topic("TransactionCheck", 1);
            Inbox inbox = c.push(c.name("GTransactionCheck"), topic, "*");
            Plan plan = new Plan();
            TransactionMQProducer producer = transactional(c, c.name("PTransactionCheck"), plan);
            sendHalf(producer, topic, "commit at first check", "unknown,commit");
            sendHalf(producer, topic, "rollback at first check", "unknown,rollback");
            sendHalf(producer, topic, "commit at second check", "unknown,unknown,commit");
            sendHalf(producer, topic, "commit after exception", "throw,commit");
            // Half a minute and more with the default check interval of a broker.
            await("all settled", 150, () -> inbox.messages.size() >= 3 && plan.checks.size() == 4 && plan.checks.get("commit at second check").size() >= 2);
            equal(Set.of("commit at first check", "commit at second check", "commit after exception"), new HashSet<>(inbox.bodies()), "delivered");
            MessageExt checked = plan.checks.get("rollback at first check").get(0);
            Message half = plan.halves.get(1);
            equal(List.of(topic, "T", "key", half.getTransactionId(), "unknown,rollback"),
                List.of(checked.getTopic(), checked.getTags(), checked.getKeys(), checked.getTransactionId(), checked.getUserProperty("plan")), "checked message");
        });

        c.check("transaction-immunity", () -> {
            String topic = c.topic("TransactionImmune", 1);
            Inbox inbox = c.push(c.name("GTransactionImmune"), topic, "*");
            Plan plan = new Plan();
            TransactionMQProducer producer = transactional(c, c.name("PTransactionImmune"), plan);
            Message m = message(topic, null, "immune");
            m.putUserProperty("plan", "unknown,commit");
            m.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "4");
            long start = System.currentTimeMillis();
            producer.sendMessageInTransaction(m, null);
            await("checked", 150, () -> plan.checks.containsKey("immune"));
            that(System.currentTimeMillis() - start > 3_900, "checked after " + (System.currentTimeMillis() - start) + " ms");
            inbox.awaitAll(List.of("immune"));
        });
    }

    void sql() {
        c.check("sql-expressions", () -> {
            String topic = c.topic("Sql", 1);
            for (int i = 0; i < 12; i++) {
                Message m = message(topic, i % 2 == 0 ? "even" : "odd", "m" + i);
                m.putUserProperty("a", "" + i);
                m.putUserProperty("f", "" + i / 4.0);
                if (i % 3 != 0) m.putUserProperty("b", i % 3 == 1 ? "x" : "y");
                c.producer().send(m);
            }
            c.readAll(topic, 12);
            MessageQueue queue = new MessageQueue(topic, c.brokerName(), 0);
            await("the version of the broker, by a heartbeat", () -> {
                try {
                    return c.reader().pull(queue, MessageSelector.bySql("a = 0"), 0, 1) != null;
                } catch (MQClientException e) {
                    return false;
                }
            });
            String[][] rows = {
                {"a > 8", "9 10 11"}, {"a BETWEEN 2 AND 4", "2 3 4"}, {"a NOT BETWEEN 1 AND 10", "0 11"}, {"b = 'x'", "1 4 7 10"}, {"b <> 'x'", "2 5 8 11"},
                {"b IN ('x', 'y') AND a < 3", "1 2"}, {"b NOT IN ('x')", "2 5 8 11"}, {"b IS NULL", "0 3 6 9"}, {"b IS NOT NULL AND a >= 10", "10 11"},
                {"NOT (a < 10)", "10 11"}, {"f > 2.5", "11"}, {"a = 3 OR b = 'y' AND a > 9", "3 11"}, {"TAGS = 'odd' AND a <= 3", "1 3"}, {"missing = 1", ""}, {"TRUE AND a = 1", "1"},
            };
            for (String[] row : rows) {
                List<String> got = new ArrayList<>();
                for (long offset = 0; offset < 12;) {
                    PullResult result = c.reader().pull(queue, MessageSelector.bySql(row[0]), offset, 32);
                    if (result.getPullStatus() == PullStatus.FOUND) got.addAll(texts(result.getMsgFoundList()));
                    that(result.getNextBeginOffset() > offset, row[0] + ": " + result);
                    offset = result.getNextBeginOffset();
                }
                List<String> want = new ArrayList<>();
                for (String n : row[1].split(" ")) if (!n.isEmpty()) want.add("m" + n);
                equal(want, got, row[0]);
            }
        });

        c.check("sql-push", () -> {
            String topic = c.topic("SqlPush", 4);
            DefaultMQPushConsumer consumer = c.consumer(c.name("GSqlPush"));
            consumer.subscribe(topic, MessageSelector.bySql("(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)"));
            Inbox inbox = c.push(consumer);
            for (int i = 0; i < 12; i++) {
                Message m = message(topic, "Tag" + "ABC".charAt(i % 3), "m" + i);
                m.putUserProperty("a", "" + i / 2);
                c.producer().send(m);
            }
            inbox.awaitExactly(List.of("m0", "m1", "m3", "m4", "m6", "m7"));
        });

        c.check("sql-refused", () -> {
            String topic = c.topic("SqlRefused", 1);
            for (String bad : List.of("a > ", "a ** 2", "a in (1, 2)", "b not like 'x%'", "a = null", "a > '5'")) {
                DefaultMQPushConsumer consumer = c.consumer(c.name("GSqlRefused"));
                consumer.subscribe(topic, MessageSelector.bySql(bad));
                refused(23, bad, () -> c.push(consumer));
            }
        });
    }

    void requestReply() {
        c.check("request-reply", () -> {
            String topic = replier();
            for (String body : List.of("one", "two", "three")) equal("re: " + body, text(c.producer().request(message(topic, null, body), 10_000)), "reply");
        });

        c.check("request-reply-async", () -> {
            String topic = replier();
            CompletableFuture<Message> reply = new CompletableFuture<>();
            c.producer().request(message(topic, null, "async"), new RequestCallback() {
                @Override public void onSuccess(Message m) { if (m != null) reply.complete(m); } // null: the request was sent (4.9.8)
                @Override public void onException(Throwable e) { reply.completeExceptionally(e); }
            }, 10_000);
            equal("re: async", text(reply.get(15, TimeUnit.SECONDS)), "reply");
        });

        c.check("request-reply-timeout", () -> {
            String topic = c.topic("RequestTimeout", 1);
            try {
                c.producer().request(message(topic, null, "nobody listens"), 800);
                throw new AssertionError("a reply from nobody");
            } catch (RequestTimeoutException e) {
                // as it should be
            }
        });
    }

    private String replier() throws Exception {
        String topic = c.topic("Request" + System.nanoTime() % 1000, 1);
        DefaultMQPushConsumer consumer = c.consumer(c.name("GReply"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt m : batch) {
                try {
                    c.producer().send(MessageUtil.createReplyMessage(m, ("re: " + text(m)).getBytes()), 5_000);
                } catch (Exception e) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return topic;
    }

    void query() {
        c.check("query-by-key", () -> {
            String topic = c.topic("Query", 4);
            for (int i = 0; i < 20; i++) {
                Message m = message(topic, null, "m" + i);
                m.setKeys(List.of("all", "key" + i));
                c.producer().send(m);
            }
            long now = System.currentTimeMillis();
            await("twenty by the common key", () -> find(topic, "all", 64, now - 60_000, now + 60_000).size() == 20);
            equal(List.of("m7"), find(topic, "key7", 32, now - 60_000, now + 60_000), "by a key of one");
            equal(5, find(topic, "all", 5, now - 60_000, now + 60_000).size(), "at most five");
            equal(List.of(), find(topic, "no such key", 32, now - 60_000, now + 60_000), "by no key");
            equal(List.of(), find(topic, "all", 32, now - 120_000, now - 60_000), "before the first");
        });

        c.check("query-by-id", () -> {
            String topic = c.topic("QueryId", 1);
            List<SendResult> results = new ArrayList<>();
            for (int i = 0; i < 3; i++) results.add(c.producer().send(message(topic, "T", "m" + i)));
            for (int i = 0; i < 3; i++) {
                SendResult r = results.get(i);
                MessageExt byOffset = c.producer().viewMessage(topic, r.getOffsetMsgId());
                equal(List.of("m" + i, "T", topic, (long) i), List.of(text(byOffset), byOffset.getTags(), byOffset.getTopic(), byOffset.getQueueOffset()), "by offset id");
                await("indexed", () -> {
                    try {
                        return c.producer().viewMessage(topic, r.getMsgId()) != null;
                    } catch (MQClientException e) {
                        return false;
                    }
                });
                equal("m" + i, text(c.producer().viewMessage(topic, r.getMsgId())), "by unique key");
            }
        });
    }

    private List<String> find(String topic, String key, int max, long begin, long end) throws Exception {
        try {
            QueryResult result = c.producer().queryMessage(topic, key, max, begin, end);
            List<String> bodies = texts(result.getMessageList());
            Collections.sort(bodies);
            return bodies;
        } catch (MQClientException e) {
            equal(208, e.getResponseCode(), "code when there is none");
            return List.of();
        }
    }

    void trace() {
        c.check("trace", () -> {
            String topic = c.topic("Trace", 1), group = c.name("GTrace"), producerGroup = c.name("PTrace");
            DefaultMQPushConsumer consumer = c.consumer(new DefaultMQPushConsumer(group, c.hook, new AllocateMessageQueueAveragely(), true, null));
            consumer.subscribe(topic, "*");
            Inbox inbox = c.push(consumer);
            DefaultMQProducer producer = c.open(c.configured(new DefaultMQProducer(producerGroup, c.hook, true, null)), DefaultMQProducer::shutdown);
            producer.start();
            Message m = message(topic, "T", "traced");
            m.setKeys("traced-key");
            String id = producer.send(m).getMsgId();
            inbox.awaitExactly(List.of("traced"));
            Set<String> kinds = new TreeSet<>();
            await("records of sending and consuming", () -> {
                try {

                    for (MessageExt record : c.producer().queryMessage("RMQ_SYS_TRACE_TOPIC", id, 32, 0, Long.MAX_VALUE).getMessageList()) {
                        for (String context : text(record).split("\u0002")) {
                            String[] fields = context.split("\u0001");
                            if (context.contains(id)) kinds.add(fields[0]);
                            if (fields[0].equals("Pub") && context.contains(id)) that(context.contains(producerGroup) && context.contains(topic), "Pub record: " + context);
                        }
                    }
                } catch (MQClientException e) {
                    equal(208, e.getResponseCode(), "code when there is none");
                }
                // The 5.x consumer traces only messages with a property MSG_REGION, which a 4.9.8 broker without hooks does not store.
                return kinds.containsAll(CLIENT_4 ? Set.of("Pub", "SubBefore", "SubAfter") : Set.of("Pub"));
            });
        });
    }

    /**
     * Options: `filter`, a file whose text is uploaded, and `class`, the name it goes by. The filter has to keep what has a property
     * `SequenceId` above 10 that three divides.
     */
    void filter() {
        c.check("filter-uploaded", () -> {
            String source = Files.readString(Path.of(c.options.get("filter"))), name = c.options.getOrDefault("class", "SequenceId");
            String topic = c.topic("Filter", 4);
            await("a filter server in the route", 60, () -> !c.admin().examineTopicRouteInfo(topic).getFilterServerTable().isEmpty());
            DefaultMQPushConsumer consumer = c.consumer(c.name("GFilter"));
            consumer.subscribe(topic, name, source);
            Inbox inbox = c.push(consumer);
            List<String> want = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                Message m = message(topic, null, "m" + i);
                m.putUserProperty("SequenceId", "" + i);
                c.producer().send(m);
                if (i > 10 && i % 3 == 0) want.add("m" + i);
            }
            c.producer().send(message(topic, null, "no SequenceId"));
            inbox.awaitExactly(want);

            Inbox unfiltered = c.push(c.name("GFilterNone"), topic, "*");
            await("all of them without a filter", () -> unfiltered.messages.size() == 101);
        });

        c.check("filter-bodies", () -> {
            String topic = c.topic("FilterBodies", 1), name = c.options.getOrDefault("class", "SequenceId");
            await("a filter server in the route", 60, () -> !c.admin().examineTopicRouteInfo(topic).getFilterServerTable().isEmpty());
            DefaultMQProducer plain = c.open(c.configured(new DefaultMQProducer(c.name("PFilterBodies"), c.hook)), DefaultMQProducer::shutdown);
            plain.setCompressMsgBodyOverHowmuch(1 << 20);
            plain.start();
            List<String> want = new ArrayList<>();
            for (int size = 8191; size <= 8193; size++) {
                // Of the shared producer's every body from 4 KiB on is compressed.
                for (DefaultMQProducer producer : List.of(plain, c.producer())) {
                    String body = ("0123456789" + size + producer.getProducerGroup()).repeat(1000).substring(0, size);
                    Message m = message(topic, null, body);
                    m.putUserProperty("SequenceId", "12");
                    producer.send(m);
                    want.add(body);
                }
            }
            List<Integer> stored = c.readAll(topic).stream().map(MessageExt::getStoreSize).toList();
            that(stored.stream().filter(size -> size < 1000).count() == 3 && stored.stream().filter(size -> size > 8191).count() == 3,
                "three are stored compressed, three are not: " + stored);
            DefaultMQPushConsumer consumer = c.consumer(c.name("GFilterBodies"));
            consumer.subscribe(topic, name, Files.readString(Path.of(c.options.get("filter"))));
            c.push(consumer).awaitExactly(want);
        });

        c.check("filter-retry", () -> {
            String topic = c.topic("FilterRetry", 1), name = c.options.getOrDefault("class", "SequenceId");
            await("a filter server in the route", 60, () -> !c.admin().examineTopicRouteInfo(topic).getFilterServerTable().isEmpty());
            DefaultMQPushConsumer consumer = c.consumer(c.name("GFilterRetry"));
            consumer.subscribe(topic, name, Files.readString(Path.of(c.options.get("filter"))));
            List<MessageExt> seen = new CopyOnWriteArrayList<>();
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                seen.addAll(batch);
                context.setDelayLevelWhenNextConsume(1);
                return seen.size() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            Message m = message(topic, null, "again");
            m.putUserProperty("SequenceId", "12");
            c.producer().send(m);
            await("second attempt, by the retry topic", () -> seen.size() == 2);
            equal(1, seen.get(1).getReconsumeTimes(), "reconsume times");
        });
    }
}
