package minimq.interop;

import static minimq.interop.Checks.*;

import java.util.*;

/** One end of a pair: what one client sends (`pair-send`) every other one receives whole (`pair-receive`). Option `topic`. */
final class Pair {
    private static final int COUNT = 20;
    private final Checks c;

    Pair(Checks checks) {
        c = checks;
    }

    private String topic() {
        that(c.options.containsKey("topic"), "the option topic is missing");
        return c.options.get("topic");
    }

    /** Every fifth one is long, and so compressed. */
    private static String body(int n) {
        return n % 5 == 0 ? ("press " + n + ", ").repeat(2_000) : "Grüße, 你好, 🦀 " + n;
    }

    void send() {
        c.check("pair-send", () -> {
            for (int n = 0; n < COUNT; n++) {
                var message = message(topic(), "T" + n % 3, body(n));
                message.setKeys("key-" + n + " all");
                message.putUserProperty("n", "" + n);
                message.putUserProperty("名前", "値 & = " + n);
                c.producer().send(message);
            }
        });
    }

    void receive() {
        c.check("pair-receive", () -> {
            Inbox all = c.push(c.name("GPairAll"), topic(), "*"), some = c.push(c.name("GPairSome"), topic(), "T1 || T2");
            List<String> everything = new ArrayList<>(), tagged = new ArrayList<>();
            for (int n = 0; n < COUNT; n++) {
                everything.add(body(n));
                if (n % 3 != 0) tagged.add(body(n));
            }
            all.awaitExactly(everything);
            some.awaitExactly(tagged);
            for (var message : all.messages) {
                int n = Integer.parseInt(message.getUserProperty("n"));
                equal(List.of(body(n), "T" + n % 3, "key-" + n + " all", "値 & = " + n),
                    List.of(text(message), message.getTags(), message.getKeys(), message.getUserProperty("名前")), "message " + n);
            }
        });
    }
}
