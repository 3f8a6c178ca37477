package minimq.interop;

import static minimq.interop.Checks.*;

import java.lang.management.ManagementFactory;
import java.util.*;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.Message;

/**
 * What sending costs this client, for comparison with `cargo bench -p minimq-client -- send`: asynchronous sends by one producer, so many under way.
 * Options `seconds=10`, `under-way=512`, `bytes=1024`, `threads=4` (that send), `warm-up=10` (seconds before the measure, for the compiler).
 */
final class Speed {
    private final Checks c;

    Speed(Checks checks) {
        c = checks;
    }

    private int option(String name, int otherwise) {
        return Integer.parseInt(c.options.getOrDefault(name, "" + otherwise));
    }

    void run() {
        c.check("speed", () -> {
            int underWay = option("under-way", 512), threads = option("threads", 4), bytes = option("bytes", 1024);
            String topic = c.topic("Speed", 8);
            DefaultMQProducer producer = c.producer();
            round(producer, topic, underWay, threads, bytes, option("warm-up", 10));
            var process = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            long cpu = process.getProcessCpuTime(), begun = System.nanoTime();
            long count = round(producer, topic, underWay, threads, bytes, option("seconds", 10));
            double time = (System.nanoTime() - begun) / 1e9, used = (process.getProcessCpuTime() - cpu) / 1e9;
            System.out.printf(Locale.ROOT, "send %d bytes, one client, %d under way: %.0f messages/s, %.0f %% of a core, %.2f CPU seconds a million%n",
                bytes, underWay, count / time, 100 * used / time, 1e6 * used / count);
        });
    }

    /** Sends for so many seconds; how many were stored. */
    private static long round(DefaultMQProducer producer, String topic, int underWay, int threads, int bytes, int seconds) throws Exception {
        Semaphore places = new Semaphore(underWay);
        AtomicLong stored = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override public void onSuccess(SendResult result) {
                stored.incrementAndGet();
                places.release();
            }

            @Override public void onException(Throwable e) {
                failure.compareAndSet(null, e);
                places.release();
            }
        };
        byte[] body = new byte[bytes];
        Arrays.fill(body, (byte) 'x');
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        Runnable sending = () -> {
            try {
                while (System.nanoTime() < end && failure.get() == null) {
                    places.acquire();
                    producer.send(new Message(topic, body), callback);
                }
            } catch (Exception e) {
                failure.compareAndSet(null, e);
            }
        };
        List<Thread> senders = new ArrayList<>();
        for (int n = 0; n < threads; n++) {
            senders.add(new Thread(sending));
            senders.get(n).start();
        }
        for (Thread sender : senders) sender.join();
        // All answers.
        that(places.tryAcquire(underWay, 30, java.util.concurrent.TimeUnit.SECONDS) || failure.get() != null, "sends are not answered");
        if (failure.get() != null) throw new Exception(failure.get());
        return stored.get();
    }
}
