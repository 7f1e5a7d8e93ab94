// SPDX-License-Identifier: Apache-2.0
// Works in chains of calls that are known, and says how much CPU time each branch has had. Usage: Chains THREADS
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

public class Chains {
    interface Shape {
        int area(int n);
    }

    static class Square implements Shape {
        public int area(int n) {
            return burn(n);
        }
    }

    static class Circle implements Shape {
        public int area(int n) {
            return burn(n) + 1;
        }
    }

    static class Triangle implements Shape {
        public int area(int n) {
            return burn(n) + 2;
        }
    }

    static final int COUNT = Integer.getInteger("count", 20000);
    static final Shape[] SHAPES = { new Square(), new Circle(), new Triangle() };
    static final Integer[] NUMBERS = { 7, 3, 9, 1, 8, 2 };
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final ConcurrentHashMap<String, AtomicLong> TIMES = new ConcurrentHashMap<>();
    static final Method REFLECTED = reflected();
    static volatile boolean ended;
    static volatile int sink;

    static Method reflected() {
        try {
            return Chains.class.getDeclaredMethod("target", int.class);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static int burn(int n) {
        int x = n;
        for (int i = 0; i < n; i++)
            x = x * 31 + (x >>> 7) + i;
        return x;
    }

    static int byVirtual() {
        int sum = 0;
        for (Shape shape : SHAPES)
            sum += shape.area(3 * COUNT);
        return sum;
    }

    static int byLambda() {
        return IntStream.range(0, 5).map(i -> burn(COUNT + i)).sum();
    }

    static int bySort() {
        Integer[] numbers = NUMBERS.clone();
        Arrays.sort(numbers, (a, b) -> a - b + 0 * burn(COUNT));
        return numbers[0];
    }

    static int recurse(int depth) {
        if (depth == 0)
            return burn(4 * COUNT);
        return recurse(depth - 1) + 1;
    }

    static int byRecursion() {
        return recurse(40);
    }

    static int thrower(int depth) {
        if (depth == 0)
            throw new IllegalStateException();
        return thrower(depth - 1) + 1;
    }

    static int byException() {
        try {
            return thrower(5);
        } catch (IllegalStateException e) {
            return burn(6 * COUNT);
        }
    }

    static int target(int n) {
        return burn(n);
    }

    static int byReflection() {
        try {
            return (Integer) REFLECTED.invoke(null, 8 * COUNT);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static int byLoop() {
        int x = 1;
        for (int i = 0; i < 9 * COUNT; i++)
            x = x * 31 + (x >>> 5) + i;
        return x;
    }

    static int choose(int which) {
        switch (which) {
        case 0:
            return byVirtual();
        case 1:
            return byLambda();
        case 2:
            return bySort();
        case 3:
            return byRecursion();
        case 4:
            return byException();
        case 5:
            return byReflection();
        default:
            return byLoop();
        }
    }

    static final String[] NAMES = { "byVirtual", "byLambda", "bySort", "byRecursion", "byException", "byReflection",
                                    "byLoop" };

    static void branch(int which) {
        long before = THREADS.getCurrentThreadCpuTime();
        for (int i = 0; i < 10; i++)
            sink += choose(which);
        TIMES.computeIfAbsent(NAMES[which], name -> new AtomicLong())
            .addAndGet(THREADS.getCurrentThreadCpuTime() - before);
    }

    static void work() {
        while (!ended)
            for (int i = 0; i < NAMES.length; i++)
                branch(i);
    }

    public static void main(String[] arguments) throws Exception {
        Thread[] threads = new Thread[Integer.parseInt(arguments[0])];
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(Chains::work, "worker-" + i);
            threads[i].start();
        }
        System.out.println("ready");
        System.in.read();
        ended = true;
        for (Thread thread : threads)
            thread.join();
        for (String name : NAMES)
            text.append(text.length() == 0 ? "{" : ", ").append('"').append(name).append("\": ").append(TIMES.get(name));
        System.out.println(text.append("}"));
    }
}
