// SPDX-License-Identifier: Apache-2.0
/** Keeps the collector busy: a window of lists that live for a while, and much that does not. */
public class Garbage {
    private static final Object[] KEPT = new Object[4096];

    public static void main(String[] arguments) {
        for (long i = 0;; i++) {
            byte[][] list = new byte[64][];
            for (int k = 0; k < list.length; k++)
                list[k] = new byte[256];
            KEPT[(int) (i * 31 % KEPT.length)] = list;
        }
    }
}
