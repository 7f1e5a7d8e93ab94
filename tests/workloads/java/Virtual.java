// SPDX-License-Identifier: Apache-2.0
/** Virtual threads that work and yield, so that they are mounted again and again: work() calls step() calls burn(). */
public class Virtual {
    static volatile long total;

    static long burn(int count) {
        long sum = 0;
        for (int i = 0; i < count; i++)
            sum += (long) i * i % 7;
        return sum;
    }

    static long step(int depth) {
        return depth == 0 ? burn(2000) : step(depth - 1) + 1;
    }

    static void work() {
        for (;;) {
            total += step(3);
            Thread.yield();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 4; i++)
            Thread.ofVirtual().start(Virtual::work);
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}
