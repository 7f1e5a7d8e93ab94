// SPDX-License-Identifier: Apache-2.0
// Threads that wait at known places, again and again, under methods that get compiled and inlined. Says "ready" when
// each has waited often.
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;

public class Waits {
    interface Step {
        int go(int n) throws Exception;
    }

    static class Direct implements Step {
        public int go(int n) throws Exception {
            Thread.sleep(0, 200000);
            return n + 1;
        }
    }

    static final Object LOCK = new Object();
    static final CountDownLatch WARM = new CountDownLatch(4);
    static volatile int sink;

    static int inlined(Step step, int n) throws Exception {
        int before = n * 3;
        return step.go(before) - before;
    }

    static int recursive(Step step, int depth) throws Exception {
        if (depth == 0)
            return inlined(step, depth);
        return recursive(step, depth - 1) + 1;
    }

    static int parked(int n) {
        IntUnaryOperator park = x -> {
            LockSupport.parkNanos(200000);
            return x + 1;
        };
        return park.applyAsInt(n);
    }

    static int waited(int n) throws Exception {
        synchronized (LOCK) {
            LOCK.wait(1);
        }
        return n;
    }

    static int timed(int n) throws Exception {
        return new CountDownLatch(1).await(200000, TimeUnit.NANOSECONDS) ? n : n + 1;
    }

    static void repeat(Step step) {
        try {
            for (int i = 0; ; i++) {
                sink += step.go(i);
                if (i == 300)
                    WARM.countDown();
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Step direct = new Direct();
        Step[] steps = { n -> recursive(direct, 12), Waits::parked, Waits::waited, Waits::timed };
        for (int i = 0; i < steps.length; i++) {
            Step step = steps[i];
            Thread thread = new Thread(() -> repeat(step), "wait-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        WARM.await();
        System.out.println("ready");
        System.in.read();
    }
}
