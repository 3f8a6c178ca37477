package minimq.interop;

import static minimq.interop.Checks.*;


import java.util.*;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.RPCHook;

/** Access control, against a broker that runs with ../plain_acl.yml; TLS in the mode that the option `mode` names. */
final class Security {
    private static final String TOPIC = "InteropAclTopic", READ_ONLY = "InteropAclReadOnly", GROUP = "InteropAclGroup";
    private final Checks c;

    Security(Checks checks) {
        c = checks;
    }

    private static RPCHook account(String accessKey, String secretKey) {
        return new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    static void as(Checks c, String accessKey, String secretKey, Body body) throws Exception {
        c.as(account(accessKey, secretKey), body);
    }

    void acl() {
        // 4.9.8 reads an empty value of a binary header as null and so computes another signature; the 5.x client sends one when it creates a topic.
        if (!CLIENT_4 && "ROCKETMQ".equals(System.getProperty("rocketmq.serialize.type")) && c.leftOut("acl")) return;
        RPCHook admin = account("InteropAdmin", "interop-admin-secret"), user = account("InteropUser", "interop-user-secret");
        String[] closed = new String[1];
        c.check("acl-admin", () -> c.as(admin, () -> {
            for (String topic : List.of(TOPIC, READ_ONLY)) c.topic(topic, 1, 6);
            closed[0] = c.topic("AclClosed", 1);
            c.sendAll(closed[0], List.of("by the admin"));
            c.sendAll(READ_ONLY, List.of(c.name("by the admin")));
            c.push(c.name("GAclAdmin"), closed[0], "*").awaitExactly(List.of("by the admin"));
        }));

        c.check("acl-user-within-rights", () -> c.as(user, () -> {
            Inbox inbox = c.push(GROUP, TOPIC, "*");
            List<String> bodies = numbered(c.name("m") + "-", 0, 8);
            c.sendAll(TOPIC, bodies);
            List<Message> batch = new ArrayList<>();
            for (String body : numbered(c.name("b") + "-", 0, 8)) batch.add(message(TOPIC, null, body));
            c.producer().send(batch);
            c.producer().sendOneway(message(TOPIC, null, c.name("one-way")));
            bodies.addAll(numbered(c.name("b") + "-", 0, 8));
            bodies.add(c.name("one-way"));
            // Topic and group are the same in every run, so earlier messages may come along.
            await("own messages", () -> inbox.bodies().containsAll(bodies));
        }));

        c.check("acl-user-beyond-rights", () -> {
            String broker = broker(admin);
            c.as(user, () -> {
                for (String topic : List.of(READ_ONLY, closed[0])) denied("send to " + topic, () -> c.producer().send(message(topic, null, "x"), new MessageQueue(topic, broker, 0)));
                denied("pull for a group without rights", () -> c.reader().pull(new MessageQueue(READ_ONLY, broker, 0), "*", 0, 1));
                denied("create a topic", () -> c.admin().createAndUpdateTopicConfig(c.brokerAddress(), new TopicConfig(c.name("AclNew"), 1, 1, 6)));
                denied("delete a topic", () -> c.admin().deleteTopicInBroker(Set.of(c.brokerAddress()), TOPIC));
            });
            c.as(admin, () -> equal(List.of("by the admin"), Basic.texts(c.readAll(closed[0])), "messages in the closed topic"));
        });

        c.checkBeyondReference("acl-batch-beyond-rights", () -> {
            String broker = broker(admin);
            c.as(user, () -> denied("batch", () -> c.producer().send(List.of(message(closed[0], null, "x")), new MessageQueue(closed[0], broker, 0))));
        });

        for (var e : new TreeMap<>(Map.of("wrong-secret", "InteropUser", "unknown-key", "Nobody")).entrySet()) c.check("acl-" + e.getKey(), () -> {
            String broker = broker(admin);
            c.as(account(e.getValue(), "not-the-secret"), () -> unsigned(broker));
        });

        c.check("acl-no-keys", () -> {
            String broker = broker(admin);
            c.as(null, () -> unsigned(broker));
        });

        if (!CLIENT_4) return; // the tool of 5.x manages accounts another way
        try {
            String[] where = new String[2];
            c.as(admin, () -> {
                where[0] = c.brokerAddress();
                where[1] = c.clusterName();
            });
            new Mqadmin(c).accounts(where[0], where[1]);
        } catch (Exception e) {
            c.check("acl-accounts", () -> { throw e; });
        }
    }

    private String broker(RPCHook admin) throws Exception {
        String[] name = new String[1];
        c.as(admin, () -> name[0] = c.brokerName());
        return name[0];
    }

    private void unsigned(String broker) throws Exception {
        denied("send", () -> c.producer().send(message(TOPIC, null, "x"), new MessageQueue(TOPIC, broker, 0)));
        denied("pull", () -> c.reader().pull(new MessageQueue(TOPIC, broker, 0), "*", 0, 1));
        denied("create a topic", () -> c.admin().createAndUpdateTopicConfig(c.brokerAddress(), new TopicConfig(c.name("AclNew"), 1, 1, 6)));
    }

    /** 4.9.8 answers code 1 and an exception's text where access is denied. */
    private static void denied(String what, Body body) throws Exception {
        refused(1, what, body);
    }

    void tls() {
        String mode = c.options.getOrDefault("mode", "permissive");
        for (boolean tls : new boolean[] {true, false}) {
            boolean works = mode.equals("permissive") || tls == mode.equals("enforcing");
            c.check("tls-" + mode + (tls ? "-with-tls" : "-without-tls") + (works ? "" : "-fails"), () -> {
                c.tls = works == tls; // the way that works, to prepare
                String topic = c.topic("Tls" + tls, 1), big = "large ".repeat(100_000);
                c.closeShared();
                c.tls = tls;
                if (works) {
                    Inbox inbox = c.push(c.name("GTls" + tls), topic, "*");
                    c.sendAll(topic, numbered("m", 0, 20));
                    c.sendAll(topic, List.of(big));
                    inbox.awaitAll(numbered("m", 0, 20));
                    await("large message", () -> inbox.bodies().contains(big));
                } else {
                    DefaultMQProducer producer = c.open(c.configured(new DefaultMQProducer(c.name("PTls"))), DefaultMQProducer::shutdown);
                    producer.setRetryTimesWhenSendFailed(0);
                    producer.start();
                    boolean sent;
                    try {
                        producer.send(message(topic, null, "x"));
                        sent = true;
                    } catch (Exception e) {
                        sent = false;
                    }
                    that(!sent, "sent all the same");
                }
                c.closeShared();
            });
        }
    }
}
