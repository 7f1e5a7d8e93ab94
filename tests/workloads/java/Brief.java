// SPDX-License-Identifier: Apache-2.0
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/** Works in methods of its own for 0.2 s of CPU time, and ends. */
public class Brief {
    static long burn(int count) {
        long total = 0;
        for (int i = 0; i < count; i++)
            total += (long) i * i % 7;
        return total;
    }

    static long squares(int count) {
        long total = 0;
        for (int i = 0; i < count; i++)
            total += burn(100);
        return total;
    }

    static long work(long ns) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long begin = threads.getCurrentThreadCpuTime(), total = 0;
        while (threads.getCurrentThreadCpuTime() - begin < ns)
            total += squares(20) + burn(3000);
        return total;
    }

    public static void main(String[] arguments) {
        if (work(200_000_000L) == 1)
            System.out.println("never");
    }
}
