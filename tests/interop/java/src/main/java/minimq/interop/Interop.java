package minimq.interop;

import java.util.*;

/** `Interop NAMESRV SUITE... [name=value...]`: runs the suites against a cluster; see ../README.md for suites and options. */
public final class Interop {
    public static void main(String[] args) {
        if (args.length < 2) {
            System.err.println("usage: Interop NAMESRV SUITE... [name=value...]");
            System.exit(2);
        }
        // Instead of 20 s: the route of a new retry topic, and a queue's lock that was still another's, are met by timers only.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        System.setProperty("rocketmq.client.rebalance.lockInterval", "1000");
        Map<String, String> options = new HashMap<>();
        List<String> suites = new ArrayList<>();
        for (String arg : Arrays.asList(args).subList(1, args.length)) {
            int at = arg.indexOf('=');
            if (at < 0) suites.add(arg);
            else options.put(arg.substring(0, at), arg.substring(at + 1));
        }
        Checks checks = new Checks(args[0], options);
        for (String suite : suites) {
            run(suite, checks);
            checks.closeShared();
        }
        System.out.printf("%d passed, %d failed%n", checks.passed, checks.failed);
        System.exit(checks.failed == 0 && checks.passed > 0 ? 0 : 1);
    }

    private static void run(String suite, Checks checks) {
        switch (suite) {
            case "basic": new Basic(checks).run(); break;
            case "restart": new Restart(checks).run(); break;
            case "transaction": new Features(checks).transaction(); break;
            case "sql": new Features(checks).sql(); break;
            case "request-reply": new Features(checks).requestReply(); break;
            case "query": new Features(checks).query(); break;
            case "trace": new Features(checks).trace(); break;
            case "filter": new Features(checks).filter(); break;
            case "acl": new Security(checks).acl(); break;
            case "tls": new Security(checks).tls(); break;
            case "pair-send": new Pair(checks).send(); break;
            case "pair-receive": new Pair(checks).receive(); break;
            case "mqadmin": new Mqadmin(checks).run(); break;
            case "speed": new Speed(checks).run(); break;
            default:
                System.err.println("no such suite: " + suite);
                System.exit(2);
        }
    }
}
