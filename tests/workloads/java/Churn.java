// SPDX-License-Identifier: Apache-2.0
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Locale;

/** Loads class Churn.Made again and again, each time with other names for its methods (caller_N calls callee_N), works in it
 *  until it is compiled, and lets it be unloaded. */
public class Churn {
    public static class Made {
        public static long caller_0000(int rounds) {
            long sum = 0;
            for (int i = 0; i < rounds; i++)
                sum += callee_0000(i);
            return sum;
        }

        static long callee_0000(int seed) {
            long sum = seed;
            for (int i = 0; i < 400; i++)
                sum += sum * i % 7;
            return sum;
        }
    }

    static class Loader extends ClassLoader {
        Class<?> make(byte[] bytes) {
            return defineClass("Churn$Made", bytes, 0, bytes.length);
        }
    }

    static byte[] numbered(byte[] template, String number) {
        String text = new String(template, StandardCharsets.ISO_8859_1);
        return text.replace("er_0000", "er_" + number).replace("ee_0000", "ee_" + number).getBytes(StandardCharsets.ISO_8859_1);
    }

    public static void main(String[] arguments) throws Exception {
        byte[] template = Files.readAllBytes(Paths.get(Churn.class.getResource("Churn$Made.class").toURI()));
        ThreadMXBean cpu = ManagementFactory.getThreadMXBean();
        System.out.println("ready");
        long total = 0;
        for (int i = 1;; i++) {
            String number = String.format(Locale.ROOT, "%04d", i % 10000);
            Method caller = new Loader().make(numbered(template, number)).getMethod("caller_" + number, int.class);
            long begin = cpu.getCurrentThreadCpuTime();
            while (cpu.getCurrentThreadCpuTime() - begin < 20_000_000)
                total += (Long) caller.invoke(null, 300);
            if (i % 8 == 0)
                System.gc();
        }
    }
}
