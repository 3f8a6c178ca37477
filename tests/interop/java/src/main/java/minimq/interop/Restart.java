package minimq.interop;

import static minimq.interop.Checks.*;


import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.*;

/**
 * What has to outlive a restart of the broker. Between its two halves the suite runs the shell command of the option `restart`, which has to
 * return when the broker serves again; without the option it prints `RESTART` and waits for a line on standard input.
 */
final class Restart {
    private final Checks c;
    private final List<Inbox> inboxes = new ArrayList<>();

    Restart(Checks checks) {
        c = checks;
    }

    void run() {
        c.check("restart", () -> {
            // Clients that live through it.
            String live = c.topic("RestartLive", 4);
            Inbox through = c.push(c.name("GRestartLive"), live, "*");
            Features.Plan plan = new Features.Plan();
            TransactionMQProducer transactions = Features.transactional(c, c.name("PRestart"), plan);
            AtomicBoolean stop = c.open(new AtomicBoolean(), s -> s.set(true));
            List<String> acked = new CopyOnWriteArrayList<>();
            Thread sender = new Thread(() -> send(live, stop, acked));
            sender.start();

            // A group that had consumed everything, one that had not, a topic of its own shape.
            String topic = c.topic("RestartOffsets", 3), group = c.name("GRestartOffsets");
            c.sendAll(topic, numbered("old", 0, 30));
            Inbox before = c.push(group, topic, "*");
            before.awaitExactly(numbered("old", 0, 30));
            c.stopAt(before, topic, 30);
            c.sendAll(topic, numbered("new", 0, 20));

            // Things that fall due afterwards.
            String later = c.topic("RestartLater", 1);
            Inbox due = c.push(c.name("GRestartLater"), later, "*");
            Message delayed = message(later, null, "delayed");
            delayed.setDelayTimeLevel(3);
            c.producer().send(delayed);
            Features.sendHalf(transactions, later, "half", "unknown,commit");
            Features.sendHalf(transactions, later, "rolled back", "rollback");
            Message keyed = message(topic, null, "keyed");
            keyed.setKeys("restart-key");
            String offsetId = c.producer().send(keyed).getOffsetMsgId();
            await("some sent", () -> acked.size() > 100);

            restart();

            int sent = acked.size();
            await("sending goes on", 60, () -> acked.size() > sent + 100);
            stop.set(true);
            sender.join();
            through.awaitAll(acked);
            await("delayed and committed", 150, () -> due.bodies().containsAll(List.of("delayed", "half")));
            that(!due.bodies().contains("rolled back"), "rolled back but delivered");
            equal(3, c.admin().examineTopicRouteInfo(topic).getQueueDatas().get(0).getReadQueueNums(), "queues of the topic");
            Inbox after = c.push(group, topic, "*");
            List<String> rest = new ArrayList<>(numbered("new", 0, 20));
            rest.add("keyed");
            after.awaitExactly(rest);
            equal("keyed", text(c.producer().viewMessage(topic, offsetId)), "by the offset id from before");
            equal(1, c.producer().queryMessage(topic, "restart-key", 32, 0, Long.MAX_VALUE).getMessageList().size(), "found by key");
            equal(51, c.readAll(topic).size(), "stored");
        });
    }

    private void send(String topic, AtomicBoolean stop, List<String> acked) {
        for (int i = 0; !stop.get(); i++) {
            try {
                c.producer().send(message(topic, null, "m" + i));
                acked.add("m" + i);
                Thread.sleep(2);
            } catch (Exception e) {
                // The broker is away; the next attempt has a body of its own.
                try {
                    Thread.sleep(100);
                } catch (InterruptedException again) {
                    return;
                }
            }
        }
    }

    private void restart() throws Exception {
        String command = c.options.get("restart");
        if (command == null) {
            System.out.println("RESTART");
            that(new BufferedReader(new InputStreamReader(System.in)).readLine() != null, "standard input ended instead of a restart");
        } else {
            equal(0, new ProcessBuilder("sh", "-c", command).inheritIO().start().waitFor(), "exit status of " + command);
        }
    }
}
