// SPDX-License-Identifier: Apache-2.0
import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** Redefines class MadeAsOne again and again while it works, with the code of MadeAsTwo and with its own: other lines, and
 *  caller() calls another method. It is its own agent (-javaagent). */
public class Redefined {
    static Instrumentation instrumentation;
    static volatile long total;

    public static void premain(String arguments, Instrumentation given) {
        instrumentation = given;
    }

    static byte[] code(String name) throws Exception {
        return Files.readAllBytes(Paths.get(Redefined.class.getResource(name + ".class").toURI()));
    }

    public static void main(String[] arguments) throws Exception {
        String two = new String(code("MadeAsTwo"), StandardCharsets.ISO_8859_1).replace("MadeAsTwo", "MadeAsOne");
        byte[][] codes = { code("MadeAsOne"), two.getBytes(StandardCharsets.ISO_8859_1) };
        Thread worker = new Thread(() -> {
            while (true)
                total += MadeAsOne.caller(300);
        });
        worker.setDaemon(true);
        worker.start();
        System.out.println("ready");
        for (int i = 1;; i++) {
            Thread.sleep(20);
            instrumentation.redefineClasses(new ClassDefinition(MadeAsOne.class, codes[i % 2]));
            if (i % 8 == 0)
                System.gc();
        }
    }
}

class MadeAsOne {
    static long caller(int rounds) {
        long sum = 0;
        for (int i = 0; i < rounds; i++)
            sum += one(i);
        return sum;
    }

    static long one(int seed) {
        long sum = seed;
        for (int i = 0; i < 400; i++)
            sum += sum * i % 7;
        return sum;
    }

    static long two(int seed) {
        return seed;
    }
}

class MadeAsTwo {
    static long two(int seed) {
        long sum = seed;
        for (int i = 0; i < 400; i++)
            sum -= sum * i % 5;
        return sum;
    }

    static long one(int seed) {
        return seed;
    }

    static long caller(int rounds) {
        long before = rounds, sum = 0;
        for (long i = rounds; i > 0; i--)
            sum += two((int) i) - before;
        return sum;
    }
}
