// SPDX-License-Identifier: Apache-2.0
// Parks its threads below chains of calls that differ each time, one round for each line of its input. Answers with the
// stacks that the virtual machine itself reported at each stop. Usage: Stops THREADS STOPS
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

public class Stops {
    static final int DEPTH = 14;
    static final int RUNS = 200; // between two stops, without one: the code is compiled meanwhile
    static final long PARK_NS = 20_000_000;

    interface Way {
        int go(int path, int depth, List<String> stops);
    }

    static class Left implements Way {
        public int go(int path, int depth, List<String> stops) {
            return step(path, depth, stops) + 1;
        }
    }

    static class Right implements Way {
        public int go(int path, int depth, List<String> stops) {
            int sum = depth;
            for (int i = 0; i < 1; i++)
                sum += step(path, depth, stops);
            return sum;
        }
    }

    static final Way[] WAYS = { new Left(), new Right(), Stops::referred };

    static int referred(int path, int depth, List<String> stops) {
        return step(path, depth, stops) + 3;
    }

    static int small(int path, int depth, List<String> stops) {
        return smaller(path, depth, stops);
    }

    static int smaller(int path, int depth, List<String> stops) {
        return step(path, depth, stops);
    }

    static int large(int path, int depth, List<String> stops) {
        int sum = 0;
        try {
            for (int i = 0; i < path % 8; i++)
                sum += i * path + (sum >>> 3) - (i ^ depth) * 31 + Integer.bitCount(sum) + Math.max(i, sum % 7);
            sum += step(path, depth, stops);
        } finally {
            sum = sum * 31 + depth;
        }
        return sum;
    }

    static synchronized int locked(int path) {
        return path * 31;
    }

    static int step(int path, int depth, List<String> stops) {
        if (depth == 0)
            return stops == null ? locked(path) : stop(path, stops);
        int rest = path >>> 2 | path << 30;
        Way made = (p, d, s) -> step(p, d, s) - rest;
        switch (path & 3) {
        case 0:
            return small(rest, depth - 1, stops);
        case 1:
            return WAYS[Math.floorMod(depth + rest, 3)].go(rest & 0x3fffffff, depth - 1, stops);
        case 2:
            return made.go(rest & 0x3fffffff, depth - 1, stops);
        default:
            return large(rest & 0x3fffffff, depth - 1, stops);
        }
    }

    static int stop(int path, List<String> stops) {
        stops.add(describe(new Throwable().getStackTrace())); LockSupport.parkNanos(PARK_NS); return path;
    }

    static String describe(StackTraceElement[] frames) {
        StringBuilder text = new StringBuilder();
        for (StackTraceElement frame : frames)
            text.append(frame.getClassName()).append('.').append(frame.getMethodName()).append(':')
                .append(frame.getLineNumber()).append(';');
        return text.toString();
    }

    static int work(Random random, int count, List<String> stops) {
        int sum = 0;
        for (int i = 0; i < count; i++) {
            for (int run = 0; run < RUNS; run++)
                sum += step(random.nextInt() & 0x3fffffff, DEPTH, null);
            sum += step(random.nextInt() & 0x3fffffff, DEPTH, stops);
        }
        return sum;
    }

    static String round(int first, int threads, int count) throws InterruptedException {
        List<Thread> workers = new ArrayList<>();
        List<List<String>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            List<String> stops = new ArrayList<>();
            Random random = new Random(first + i);
            workers.add(new Thread(() -> work(random, count, stops)));
            all.add(stops);
            workers.get(i).start();
        }
        for (Thread worker : workers)
            worker.join();
        StringBuilder text = new StringBuilder("[");
        for (List<String> stops : all)
            for (String stop : stops)
                text.append(text.length() == 1 ? "\"" : ", \"").append(stop).append('"');
        return text.append("]").toString();
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]), count = Integer.parseInt(arguments[1]) / threads;
        System.out.println("ready");
        for (int first = 0; System.in.read() >= 0; first += threads)
            System.out.println(round(first, threads, count));
    }
}
