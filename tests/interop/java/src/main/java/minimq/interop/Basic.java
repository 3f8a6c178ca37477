package minimq.interop;

import static minimq.interop.Checks.*;

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/** What an ordinary application does: send, push and pull consumers, tags, retries, delays, offsets, rebalance. */
final class Basic {
    private final Checks c;

    Basic(Checks checks) {
        c = checks;
    }

    void run() {
        sending();
        pushing();
        retrying();
        pulling();
        if (CLIENT_4) litePulling(c::check);
        else litePulling(c::checkBeyondReference); // request 361, unknown to a 4.9.8 broker
        offsets();
    }

    private void sending() {
        c.check("send-sync", () -> {
            String topic = c.topic("SendSync", 4);
            Set<String> offsets = new TreeSet<>();
            for (int i = 0; i < 8; i++) {
                SendResult result = c.producer().send(message(topic, "T", "body-" + i));
                equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
                that(result.getMsgId().matches("[0-9A-F]{32}([0-9A-F]{24})?"), "unique key (longer where the host has IPv6 only): " + result.getMsgId());
                String broker = MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getAddress().toString();
                that(broker.endsWith(c.brokerAddress()), "broker in the offset id: " + broker);
                offsets.add(result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset());
            }
            equal("[0:0, 0:1, 1:0, 1:1, 2:0, 2:1, 3:0, 3:1]", offsets.toString(), "queue:offset of eight messages on four queues");
            equal(new TreeSet<>(numbered("body-", 0, 8)), new TreeSet<>(texts(c.readAll(topic, 8))), "stored");
        });

        c.check("readme", () -> {
            DefaultMQProducer producer = new DefaultMQProducer("my-producers");
            producer.setNamesrvAddr(c.namesrv);
            producer.start();
            producer.send(new Message("Orders", "TagA", "hello".getBytes()));
            producer.shutdown();
            await("stored", () -> {
                try {
                    return texts(c.readAll("Orders")).contains("hello");
                } catch (MQClientException e) {
                    return false; // no route of the new topic yet
                }
            });
        });

        c.check("send-async", () -> {
            String topic = c.topic("SendAsync", 4);
            CountDownLatch done = new CountDownLatch(100);
            List<Object> bad = new CopyOnWriteArrayList<>();
            for (int i = 0; i < 100; i++) {
                c.producer().send(message(topic, null, "a" + i), new SendCallback() {
                    @Override public void onSuccess(SendResult result) {
                        if (result.getSendStatus() != SendStatus.SEND_OK) bad.add(result);
                        done.countDown();
                    }
                    @Override public void onException(Throwable e) {
                        bad.add(e);
                        done.countDown();
                    }
                });
            }
            that(done.await(20, TimeUnit.SECONDS), "callbacks missing: " + done.getCount());
            equal(List.of(), bad, "failures");
            equal(new TreeSet<>(numbered("a", 0, 100)), new TreeSet<>(texts(c.readAll(topic, 100))), "stored");
        });

        c.check("send-one-way", () -> {
            String topic = c.topic("SendOneway", 4);
            for (String body : numbered("o", 0, 20)) c.producer().sendOneway(message(topic, null, body));
            await("all stored", () -> new TreeSet<>(texts(c.readAll(topic))).equals(new TreeSet<>(numbered("o", 0, 20))));
        });

        c.check("send-batch", () -> {
            String topic = c.topic("SendBatch", 4);
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 32; i++) {
                Message m = message(topic, "tag" + i % 2, "b" + i);
                m.setKeys("key" + i);
                m.putUserProperty("n", "" + i);
                batch.add(m);
            }
            SendResult result = c.producer().send(batch);
            equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            equal(32, result.getMsgId().split(",").length, "unique keys in the result");
            equal(32, result.getOffsetMsgId().split(",").length, "offset ids in the result");
            equal(0L, result.getQueueOffset(), "queue offset of the first");
            List<MessageExt> stored = c.readAll(topic, 32);
            equal(numbered("b", 0, 32), texts(stored), "stored in order");
            for (int i = 0; i < 32; i++) {
                MessageExt m = stored.get(i);
                equal(List.of((long) i, "tag" + i % 2, "key" + i, "" + i, result.getMessageQueue().getQueueId()),
                    List.of(m.getQueueOffset(), m.getTags(), m.getKeys(), m.getUserProperty("n"), m.getQueueId()), "message " + i);
                // The 5.x client gives the batch a key of its own, and 4.9.8 stores the batch's properties behind those of each message.
                if (Checks.CLIENT_4) that(result.getMsgId().contains(m.getMsgId()), "unique key of message " + i + ": " + m.getMsgId() + " in " + result.getMsgId());
            }
        });

        c.check("send-3mb", () -> {
            String topic = c.topic("Send3MB", 1);
            byte[] body = new byte[3 << 20];
            new Random(1).nextBytes(body);
            equal(SendStatus.SEND_OK, c.producer().send(new Message(topic, body)).getSendStatus(), "status");
            that(Arrays.equals(body, c.readAll(topic, 1).get(0).getBody()), "body differs");
            Inbox inbox = c.push(c.name("G3MB"), topic, "*");
            await("pushed", () -> inbox.messages.size() == 1);
            that(Arrays.equals(body, inbox.messages.get(0).getBody()), "pushed body differs");
        });

        c.check("send-compressed", () -> {
            String topic = c.topic("SendCompressed", 1);
            String body = "compress me, ".repeat(10_000);
            c.producer().send(message(topic, null, body));
            c.producer().send(message(topic, null, "small"));
            List<MessageExt> stored = c.readAll(topic, 2);
            equal(List.of(body, "small"), texts(stored), "bodies");
            that(stored.get(0).getStoreSize() < body.length() / 10, "stored compressed: " + stored.get(0).getStoreSize());
        });

        c.check("send-unicode", () -> {
            String topic = c.topic("SendUnicode", 1), body = "Grüße, 你好, 🦀\u0000\n", tag = "Märkte🚀", key = "ключ";
            Message m = message(topic, tag, body);
            m.setKeys(key);
            m.putUserProperty("名前", "値 with blanks = & : ; , \" \\ 🦀");
            c.producer().send(m);
            MessageExt got = c.readAll(topic, 1).get(0);
            equal(List.of(body, tag, key, "値 with blanks = & : ; , \" \\ 🦀"), List.of(text(got), got.getTags(), got.getKeys(), got.getUserProperty("名前")), "message");
            Inbox inbox = c.push(c.name("GUnicode"), topic, tag);
            await("pushed by its tag", () -> inbox.bodies().equals(List.of(body)));
        });

        c.check("send-fields", () -> {
            String topic = c.topic("SendFields", 2);
            Message m = new Message(topic, "T", "k1 k2", 0x1234, "x".getBytes(), true);
            m.setBuyerId("buyer");
            for (int i = 0; i < 200; i++) m.putUserProperty("p" + i, "v".repeat(i + 1));
            long before = System.currentTimeMillis();
            MessageQueue queue = new MessageQueue(topic, c.brokerName(), 1);
            SendResult result = c.producer().send(m, queue);
            equal(queue, result.getMessageQueue(), "queue");
            MessageExt got = c.readAll(topic, 1).get(0);
            equal(List.of(0x1234, "k1 k2", "buyer", 1, 0, 0L, result.getOffsetMsgId()),
                List.of(got.getFlag(), got.getKeys(), got.getBuyerId(), got.getQueueId(), got.getReconsumeTimes(), got.getQueueOffset(), offsetId(got)), "fields");
            for (int i = 0; i < 200; i++) equal("v".repeat(i + 1), got.getUserProperty("p" + i), "property p" + i);
            that(Math.abs(got.getBornTimestamp() - before) < 60_000 && Math.abs(got.getStoreTimestamp() - before) < 60_000, "timestamps");
            that(c.brokerAddress().endsWith(":" + ((java.net.InetSocketAddress) got.getStoreHost()).getPort()), "store host " + got.getStoreHost());
            that(((java.net.InetSocketAddress) got.getBornHost()).getAddress().isLoopbackAddress() || !c.brokerAddress().startsWith("127."), "born host");
            equal("0", got.getProperty("MIN_OFFSET"), "MIN_OFFSET");
            equal("1", got.getProperty("MAX_OFFSET"), "MAX_OFFSET");
        });

        c.check("send-selector", () -> {
            String topic = c.topic("SendSelector", 4);
            for (int i = 0; i < 12; i++) {
                int want = i % 3;
                SendResult r = c.producer().send(message(topic, null, "s" + i), (queues, m, arg) -> queues.get((Integer) arg), want);
                equal(want, r.getMessageQueue().getQueueId(), "queue");
                equal((long) i / 3, r.getQueueOffset(), "offset");
            }
        });

        c.check("send-vip-channel", () -> {
            String topic = c.topic("SendVip", 1);
            DefaultMQProducer vip = newProducer();
            vip.setVipChannelEnabled(true);
            vip.start();
            equal(SendStatus.SEND_OK, vip.send(message(topic, null, "vip")).getSendStatus(), "status");
            equal(List.of("vip"), texts(c.readAll(topic, 1)), "stored");
        });

        c.check("send-creates-topic", () -> {
            String topic = c.name("AutoCreated");
            SendResult result = c.producer().send(message(topic, null, "first"));
            equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            await("route", () -> {
                try {
                    return c.admin().examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums() == 4;
                } catch (MQClientException e) {
                    return false;
                }
            });
            equal(List.of("first"), texts(c.readAll(topic, 1)), "stored");
        });

        c.check("send-refused", () -> {
            String topic = c.topic("SendRefused", 1);
            MessageQueue queue = new MessageQueue(topic, c.brokerName(), 0);
            DefaultMQProducer big = newProducer();
            big.setMaxMessageSize(16 << 20);
            big.setCompressMsgBodyOverHowmuch(1 << 30);
            big.start();
            refused(13, "a body over 4 MiB", () -> big.send(new Message(topic, new byte[5 << 20]), queue));
            Message properties = message(topic, null, "x");
            properties.putUserProperty("long", "v".repeat(40_000));
            refused(13, "40 kB of properties", () -> big.send(properties, queue));
            equal(SendStatus.SEND_OK, big.send(message(topic, null, "still works"), queue).getSendStatus(), "status");
            String writeOnly = c.topic(c.name("WriteOnly"), 1, 2);
            refused(16, "a topic that cannot be read", () -> c.reader().pull(new MessageQueue(writeOnly, c.brokerName(), 0), "*", 0, 1));
            MessageQueue noQueue = new MessageQueue(topic, c.brokerName(), 99);
            refused(1, "a queue that does not exist", () -> big.send(message(topic, null, "x"), noQueue));
        });
    }

    private void pushing() {
        c.check("push-concurrently", () -> {
            String topic = c.topic("Push", 4);
            Inbox inbox = c.push(c.name("GPush"), topic, "*"), second = c.push(c.name("GPush2"), topic, "*");
            c.sendAll(topic, numbered("m", 0, 200));
            inbox.awaitExactly(numbered("m", 0, 200));
            second.awaitExactly(numbered("m", 0, 200));
            for (MessageExt m : inbox.messages) equal(0, m.getReconsumeTimes(), "reconsume times");
        });

        c.check("push-in-batches", () -> {
            String topic = c.topic("PushBatches", 1);
            c.sendAll(topic, numbered("m", 0, 64));
            DefaultMQPushConsumer consumer = c.consumer(c.name("GPushBatches"));
            consumer.setConsumeMessageBatchMaxSize(16);
            consumer.subscribe(topic, "*");
            List<Integer> sizes = new CopyOnWriteArrayList<>();
            List<String> bodies = new CopyOnWriteArrayList<>();
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                sizes.add(batch.size());
                batch.forEach(m -> bodies.add(text(m)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            await("all", () -> bodies.size() == 64);
            equal(new TreeSet<>(numbered("m", 0, 64)), new TreeSet<>(bodies), "received");
            that(Collections.max(sizes) == 16, "batch sizes " + sizes);
        });

        c.check("push-wakes-at-once", () -> {
            String topic = c.topic("PushWake", 1);
            DefaultMQPushConsumer consumer = c.consumer(c.name("GPushWake"));
            consumer.subscribe(topic, "*");
            Inbox inbox = c.push(consumer);
            for (int i = 0; i < 5; i++) {
                String body = "m" + i;
                c.producer().send(message(topic, null, body));
                // The pull is held for 15 s; one not woken by the message is answered only then.
                await("pushed while the pull is held", 4, () -> inbox.bodies().contains(body));
            }
        });

        c.check("push-orderly", () -> {
            String topic = c.topic("PushOrderly", 4), group = c.name("GPushOrderly");
            Map<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
            AtomicInteger count = new AtomicInteger();
            for (int member = 0; member < 2; member++) orderly(group, topic, (m, context) -> {
                seen.computeIfAbsent(m.getQueueId(), q -> new CopyOnWriteArrayList<>()).add(Integer.parseInt(text(m)));
                count.incrementAndGet();
                return ConsumeOrderlyStatus.SUCCESS;
            });
            for (int i = 0; i < 200; i++) c.producer().send(message(topic, null, "" + i), (queues, m, arg) -> queues.get((Integer) arg % queues.size()), i);
            await("200 messages", () -> seen.values().stream().flatMap(List::stream).distinct().count() == 200);
            for (var e : seen.entrySet()) {
                List<Integer> order = e.getValue().stream().distinct().collect(Collectors.toList());
                equal(new ArrayList<>(new TreeSet<>(order)), order, "order in queue " + e.getKey());
            }
        });

        c.check("push-orderly-suspend", () -> {
            String topic = c.topic("PushSuspend", 1);
            List<String> seen = new CopyOnWriteArrayList<>();
            orderly(c.name("GPushSuspend"), topic, (m, context) -> {
                String body = text(m);
                seen.add(body);
                context.setSuspendCurrentQueueTimeMillis(50);
                return body.equals("m2") && Collections.frequency(seen, "m2") < 3 ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
            c.sendAll(topic, numbered("m", 0, 5));
            await("the last", () -> seen.contains("m4"));
            equal(List.of("m0", "m1", "m2", "m2", "m2", "m3", "m4"), seen, "order with m2 put off twice");
        });

        c.check("push-broadcasting", () -> {
            String topic = c.topic("Broadcast", 4), group = c.name("GBroadcast");
            List<Inbox> inboxes = new ArrayList<>();
            for (int i = 0; i < 2; i++) inboxes.add(c.push(broadcaster(group, topic, "member" + i)));
            c.sendAll(topic, numbered("m", 0, 40));
            for (Inbox inbox : inboxes) inbox.awaitExactly(numbered("m", 0, 40));
            // Offsets of a broadcasting consumer are its own, kept in a local file.
            inboxes.get(0).consumer.shutdown();
            c.sendAll(topic, numbered("n", 0, 10));
            Inbox again = c.push(broadcaster(group, topic, "member0"));
            again.awaitExactly(numbered("n", 0, 10));
        });

        c.check("tags", () -> {
            String topic = c.topic("Tags", 1);
            // "Aa" and "BB" have one hash code: the broker lets both through, the client drops the wrong one.
            Inbox two = single(c.name("GTags"), topic, "TagA || TagC"), hash = single(c.name("GTagHash"), topic, "Aa"), all = single(c.name("GTagAll"), topic, "*");
            for (int round = 0; round < 5; round++) for (String tag : List.of("TagA", "TagB", "TagC", "Aa", "BB")) c.producer().send(message(topic, tag, tag + round));
            c.producer().send(message(topic, null, "untagged"));
            for (String tag : List.of("TagC", "Aa")) c.producer().send(message(topic, tag, "last"));
            await("last of TagA || TagC", () -> two.bodies().contains("last"));
            equal(List.of("TagA0", "TagC0", "TagA1", "TagC1", "TagA2", "TagC2", "TagA3", "TagC3", "TagA4", "TagC4", "last"), two.bodies(), "TagA || TagC");
            await("last of Aa", () -> hash.bodies().contains("last"));
            equal(List.of("Aa0", "Aa1", "Aa2", "Aa3", "Aa4", "last"), hash.bodies(), "Aa");
            await("all", () -> all.messages.size() == 28);
        });

        c.check("tags-differ-in-topics", () -> {
            String one = c.topic("TagsOne", 1), other = c.topic("TagsOther", 1);
            DefaultMQPushConsumer consumer = c.consumer(c.name("GTagTopics"));
            consumer.subscribe(one, "A");
            consumer.subscribe(other, "B");
            Inbox inbox = c.push(consumer);
            for (String topic : List.of(one, other)) for (String tag : List.of("A", "B")) c.producer().send(message(topic, tag, topic + tag));
            inbox.awaitExactly(List.of(one + "A", other + "B"));
        });
    }

    private void retrying() {
        c.check("retry", () -> {
            String topic = c.topic("Retry", 1), group = c.name("GRetry");
            List<MessageExt> seen = new CopyOnWriteArrayList<>();
            List<Long> times = new CopyOnWriteArrayList<>();
            failing(group, topic, 16, 2, seen, times);
            Message sent = message(topic, "T", "again");
            sent.setKeys("key");
            sent.putUserProperty("p", "v");
            String id = c.producer().send(sent).getMsgId();
            await("third attempt", () -> seen.size() == 3);
            for (int i = 0; i < 3; i++) {
                MessageExt m = seen.get(i);
                equal(List.of("again", topic, "T", "key", "v", id, i), List.of(text(m), m.getTopic(), m.getTags(), m.getKeys(), m.getUserProperty("p"), m.getMsgId(), m.getReconsumeTimes()), "attempt " + i);
            }
            that(seen.get(1).getProperty("ORIGIN_MESSAGE_ID") != null, "ORIGIN_MESSAGE_ID");
            that(times.get(1) - times.get(0) > 800, "level 1 waits a second, was " + (times.get(1) - times.get(0)));
        });

        c.check("dead-letter", () -> {
            String topic = c.topic("Dead", 1), group = c.name("GDead");
            List<MessageExt> seen = new CopyOnWriteArrayList<>();
            failing(group, topic, 1, 99, seen, new CopyOnWriteArrayList<>());
            String id = c.producer().send(message(topic, "T", "lost cause")).getMsgId(), dead = "%DLQ%" + group;
            await("route of the dead-letter topic", () -> {
                try {
                    return c.admin().examineTopicRouteInfo(dead) != null;
                } catch (MQClientException e) {
                    return false;
                }
            });
            equal(2, seen.size(), "attempts");
            c.topic(dead, 1, 6); // dead-letter topics are write-only until an operator opens them
            MessageExt m = c.readAll(dead, 1).get(0);
            equal(List.of("lost cause", "T", id, topic), List.of(text(m), m.getTags(), m.getMsgId(), m.getProperty("RETRY_TOPIC")), "dead letter");
        });

        c.check("send-back", () -> {
            String topic = c.topic("SendBack", 1), group = c.name("GSendBack");
            DefaultMQPushConsumer consumer = c.consumer(group);
            consumer.subscribe(topic, "*");
            Inbox inbox = c.push(consumer);
            c.producer().send(message(topic, null, "m"));
            await("first time", () -> inbox.messages.size() == 1);
            consumer.sendMessageBack(inbox.messages.get(0), 1);
            await("second time", () -> inbox.messages.size() == 2);
            equal(1, inbox.messages.get(1).getReconsumeTimes(), "reconsume times");
        });

        c.check("delay", () -> {
            String topic = c.topic("Delay", 1);
            Inbox inbox = c.push(c.name("GDelay"), topic, "*");
            long start = System.currentTimeMillis();
            for (int level : new int[] {2, 1, 0}) {
                Message m = message(topic, "T", "level" + level);
                m.setDelayTimeLevel(level);
                equal(SendStatus.SEND_OK, c.producer().send(m).getSendStatus(), "status");
            }
            inbox.awaitExactly(List.of("level0", "level1", "level2"));
            for (MessageExt m : inbox.messages) {
                equal(topic, m.getTopic(), "topic");
                equal("T", m.getTags(), "tag");
                // Level 2 is 5 s in the default table; a test cluster may have all levels at 1 s.
                if (!text(m).equals("level0")) that(m.getStoreTimestamp() - start >= 950, text(m) + " due after " + (m.getStoreTimestamp() - start) + " ms");
            }
        });
    }

    private void pulling() {
        c.check("pull", () -> {
            String topic = c.topic("Pull", 1);
            long before = System.currentTimeMillis();
            for (int i = 0; i < 50; i++) c.producer().send(message(topic, i % 2 == 0 ? "even" : "odd", "p" + i));
            c.readAll(topic, 50);
            MessageQueue queue = new MessageQueue(topic, c.brokerName(), 0);
            DefaultMQPullConsumer r = c.reader();
            equal(Set.of(queue), r.fetchSubscribeMessageQueues(topic), "queues");
            PullResult found = r.pull(queue, "*", 10, 5);
            equal(List.of(PullStatus.FOUND, 15L, 0L, 50L), List.of(found.getPullStatus(), found.getNextBeginOffset(), found.getMinOffset(), found.getMaxOffset()), "pull of five at ten");
            equal(numbered("p", 10, 15), texts(found.getMsgFoundList()), "bodies");
            PullResult odd = r.pull(queue, "odd", 0, 4);
            equal(List.of("p1", "p3", "p5", "p7"), texts(odd.getMsgFoundList()), "by tag");
            PullResult none = r.pull(queue, "neither", 0, 32);
            equal(PullStatus.NO_MATCHED_MSG, none.getPullStatus(), "no such tag");
            that(none.getNextBeginOffset() > 0, "moves on: " + none);
            equal(PullStatus.NO_NEW_MSG, r.pull(queue, "*", 50, 5).getPullStatus(), "at the end");
            equal(List.of(PullStatus.OFFSET_ILLEGAL, 50L), List.of(r.pull(queue, "*", 500, 5).getPullStatus(), r.pull(queue, "*", 500, 5).getNextBeginOffset()), "past the end");
            equal(List.of(0L, 50L, 0L, 49L), List.of(r.minOffset(queue), r.maxOffset(queue), r.searchOffset(queue, before - 60_000), r.searchOffset(queue, System.currentTimeMillis() + 60_000)), "offsets");
            r.updateConsumeOffset(queue, 20);
            r.getOffsetStore().persist(queue);
            r.getOffsetStore().persistAll(Set.of(queue));
            await("offset kept by the broker", () -> r.fetchConsumeOffset(queue, true) == 20);

            FutureTask<PullResult> held = new FutureTask<>(() -> r.pullBlockIfNotFound(queue, "*", 50, 5));
            new Thread(held).start();
            c.producer().send(message(topic, null, "p50"));
            equal(List.of("p50"), texts(held.get(15, TimeUnit.SECONDS).getMsgFoundList()), "held pull");
            refused(17, "an unknown topic", () -> r.pull(new MessageQueue(c.name("NoSuch"), c.brokerName(), 0), "*", 0, 1));
        });

    }

    private void litePulling(java.util.function.BiConsumer<String, Body> check) {
        check.accept("lite-pull-subscribe", () -> {
            String topic = c.topic("LiteSubscribe", 4), group = c.name("GLite");
            c.sendAll(topic, numbered("m", 0, 100));
            DefaultLitePullConsumer first = c.litePull(group);
            first.subscribe(topic, "*");
            first.setAutoCommit(false);
            first.start();
            List<String> got = poll(first, 100);
            equal(new TreeSet<>(numbered("m", 0, 100)), new TreeSet<>(got), "polled");
            first.commitSync();
            first.shutdown(); // persists what was committed
            c.sendAll(topic, numbered("n", 0, 20));
            DefaultLitePullConsumer second = c.litePull(group);
            second.subscribe(topic, "*");
            second.start();
            List<String> rest = poll(second, 20);
            equal(new TreeSet<>(numbered("n", 0, 20)), new TreeSet<>(rest), "polled after the restart");
            equal(20, rest.size(), "number polled after the restart");
        });

        check.accept("lite-pull-assign", () -> {
            String topic = c.topic("LiteAssign", 2);
            MessageQueue zero = new MessageQueue(topic, c.brokerName(), 0), one = new MessageQueue(topic, c.brokerName(), 1);
            for (int i = 0; i < 20; i++) c.producer().send(message(topic, null, "z" + i), zero);
            c.producer().send(message(topic, null, "other queue"), one);
            DefaultLitePullConsumer consumer = c.litePull(c.name("GLiteAssign"));
            consumer.setAutoCommit(false);
            consumer.start();
            equal(Set.of(zero, one), new HashSet<>(consumer.fetchMessageQueues(topic)), "queues");
            consumer.assign(List.of(zero));
            // The first pull is over before the seek: the client may still hand over what a pull under way brings after it.
            equal(numbered("z", 0, 20), poll(consumer, 20), "assigned");
            consumer.seek(zero, 5);
            equal(numbered("z", 5, 20), poll(consumer, 15), "from 5");
            consumer.seekToBegin(zero);
            equal(numbered("z", 0, 20), poll(consumer, 20), "from the beginning");
            consumer.seekToEnd(zero);
            c.producer().send(message(topic, null, "z20"), zero);
            equal(List.of("z20"), poll(consumer, 1), "from the end");
            equal(0L, consumer.offsetForTimestamp(zero, 0L), "offset for a time before all");
            consumer.commitSync();
            await("committed", () -> {
                consumer.commitSync();
                return consumer.committed(zero) == 21;
            });
        });
    }

    private void offsets() {
        c.check("offsets-across-restart", () -> {
            String topic = c.topic("Offsets", 4), group = c.name("GOffsets");
            c.sendAll(topic, numbered("m", 0, 60));
            Inbox first = c.push(group, topic, "*");
            first.awaitExactly(numbered("m", 0, 60));
            c.stopAt(first, topic, 60);
            c.sendAll(topic, numbered("n", 0, 20));
            Inbox second = c.push(group, topic, "*");
            second.awaitExactly(numbered("n", 0, 20));
        });

        c.check("new-group-from-the-end", () -> {
            // While a queue still begins at 0 in memory, even CONSUME_FROM_LAST_OFFSET starts a new group at 0.
            String topic = c.topic("FromLast", 1);
            c.sendAll(topic, numbered("m", 0, 10));
            DefaultMQPushConsumer consumer = c.consumer(c.name("GFromLast"));
            consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            consumer.subscribe(topic, "*");
            c.push(consumer).awaitExactly(numbered("m", 0, 10));
        });

        c.check("rebalance", () -> {
            String topic = c.topic("Rebalance", 8), group = c.name("GRebalance");
            AtomicBoolean stop = new AtomicBoolean();
            List<String> acked = new CopyOnWriteArrayList<>();
            Thread sender = new Thread(() -> {
                for (int i = 0; !stop.get(); i++) {
                    try {
                        c.producer().send(message(topic, null, "m" + i));
                        acked.add("m" + i);
                        Thread.sleep(5);
                    } catch (Exception e) {
                        stop.set(true);
                    }
                }
            });
            sender.start();
            c.open(stop, s -> s.set(true));
            List<Inbox> members = new ArrayList<>(), all = new ArrayList<>();
            for (int[] step : new int[][] {{1, 8}, {2, 4}, {3, 3}, {2, 4}, {1, 8}}) {
                while (members.size() < step[0]) {
                    members.add(c.push(group, topic, "*"));
                    all.add(members.get(members.size() - 1));
                }
                while (members.size() > step[0]) members.remove(0).consumer.shutdown();
                await(step[0] + " members share eight queues", () -> {
                    List<MessageQueue> owned = new ArrayList<>();
                    for (Inbox m : members) owned.addAll(queues(m.consumer, topic));
                    return owned.size() == 8 && new HashSet<>(owned).size() == 8 && members.stream().allMatch(m -> queues(m.consumer, topic).size() <= step[1]);
                });
            }
            stop.set(true);
            sender.join();
            await("every acknowledged message at a member", () -> {
                Set<String> got = new HashSet<>();
                for (Inbox m : all) got.addAll(m.bodies());
                return got.containsAll(acked);
            });
            that(acked.size() > 10, "sent meanwhile: " + acked.size());
            int received = all.stream().mapToInt(m -> m.messages.size()).sum();
            that(received < acked.size() * 3 / 2, received + " deliveries of " + acked.size());
        });
    }

    // ---- parts

    private DefaultMQProducer newProducer() {
        DefaultMQProducer producer = c.open(c.configured(new DefaultMQProducer(c.name("P2"), c.hook)), DefaultMQProducer::shutdown);
        producer.setSendMsgTimeout(10_000);
        return producer;
    }

    private static String offsetId(MessageExt m) {
        return m instanceof MessageClientExt ? ((MessageClientExt) m).getOffsetMsgId() : m.getMsgId();
    }

    static List<String> texts(List<MessageExt> messages) {
        return messages.stream().map(Checks::text).collect(Collectors.toList());
    }

    /** One consuming thread, so that one queue's messages arrive in order. */
    private Inbox single(String group, String topic, String expression) throws Exception {
        DefaultMQPushConsumer consumer = c.consumer(group);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, expression);
        return c.push(consumer);
    }

    private interface Orderly { ConsumeOrderlyStatus consume(MessageExt message, ConsumeOrderlyContext context); }

    private void orderly(String group, String topic, Orderly listener) throws Exception {
        DefaultMQPushConsumer consumer = c.consumer(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> listener.consume(batch.get(0), context));
        consumer.start();
    }

    private DefaultMQPushConsumer broadcaster(String group, String topic, String instance) throws Exception {
        DefaultMQPushConsumer consumer = c.consumer(group);
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        consumer.setInstanceName(c.name(instance));
        consumer.subscribe(topic, "*");
        return consumer;
    }

    /** A consumer that fails the first `failures` attempts at a message. */
    private void failing(String group, String topic, int maxReconsume, int failures, List<MessageExt> seen, List<Long> times) throws Exception {
        DefaultMQPushConsumer consumer = c.consumer(group);
        consumer.setMaxReconsumeTimes(maxReconsume);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            seen.addAll(batch);
            times.add(System.currentTimeMillis());
            context.setDelayLevelWhenNextConsume(1);
            return seen.size() <= failures ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        await("polled " + count, () -> {
            bodies.addAll(texts(consumer.poll(200)));
            return bodies.size() >= count;
        });
        return bodies;
    }

    private static Set<MessageQueue> queues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(q -> q.getTopic().equals(topic)).collect(Collectors.toSet());
    }
}
