# SPDX-License-Identifier: Apache-2.0
"""Java and JavaScript programs that nobody here wrote: javac, Jetty, Tomcat and Lucene; TypeScript, webpack and Express. At
least 99 % of their stacks are complete, and at least 99 % of the time in their frames has names with lines. real_scripts.py
[java|node]..."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))

# pylint: disable=wrong-import-position
from harness import FAMILY_A, Daemon, check, cpu_ns, free_port, main, wait_until  # noqa: E402
from programs import load, started  # noqa: E402
from registry import maven, npm  # noqa: E402
from test_python_truth import pprof_stacks  # noqa: E402

CPU_SECONDS, LEAST = 20, 0.99
UNNAMED = {"java": "[java]", "node": "[js]"}
SOURCES = {"java": ".java", "node": (".js", ".mjs", ".cjs")}
LIBRARIES = ("org.eclipse.jetty:jetty-server:12.0.16", "org.apache.tomcat.embed:tomcat-embed-core:10.1.34",
             "org.apache.lucene:lucene-core:9.12.3")
ORDERS = """
import java.util.*;
import java.util.stream.*;

class Orders {
    static String list(String path) {
        List<Map<String, Object>> orders = new ArrayList<>();
        for (int i = 0; i < 60; i++)
            orders.add(new TreeMap<>(Map.of("id", i * 7919 % 61, "name", path, "price", String.format("%.2f", i * 1.5))));
        orders.sort(Comparator.comparing(order -> (Integer) order.get("id")));
        return orders.stream().map(Object::toString).filter(text -> text.matches(".*[0-9]+.*")).collect(Collectors.joining(","));
    }
}
"""
JETTY = """
import java.net.InetSocketAddress;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.*;
import org.eclipse.jetty.util.Callback;

class Jetty {
    public static void main(String[] arguments) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(new Handler.Abstract() {
            public boolean handle(Request request, Response response, Callback callback) {
                Content.Sink.write(response, true, Orders.list(request.getHttpURI().getPath()), callback);
                return true;
            }
        });
        server.start();
    }
}
"""
TOMCAT = """
import jakarta.servlet.http.*;
import java.io.IOException;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

class Cat {
    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(arguments[1]);
        tomcat.setPort(Integer.parseInt(arguments[0]));
        Context context = tomcat.addContext("", arguments[1]);
        Tomcat.addServlet(context, "orders", new HttpServlet() {
            protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
                response.getWriter().print(Orders.list(request.getRequestURI()));
            }
        });
        context.addServletMappingDecoded("/*", "orders");
        tomcat.getConnector();
        tomcat.start();
    }
}
"""
LUCENE = """
import java.util.Random;
import org.apache.lucene.document.*;
import org.apache.lucene.index.*;
import org.apache.lucene.search.*;
import org.apache.lucene.store.ByteBuffersDirectory;

class Search {
    public static void main(String[] arguments) throws Exception {
        Random random = new Random(1);
        System.out.println("ready");
        while (true) {
            ByteBuffersDirectory directory = new ByteBuffersDirectory();
            try (IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig())) {
                for (int i = 0; i < 20000; i++) {
                    Document document = new Document();
                    document.add(new StringField("customer", "customer " + random.nextInt(500), Field.Store.YES));
                    document.add(new IntPoint("price", random.nextInt(1000)));
                    document.add(new NumericDocValuesField("price", random.nextInt(1000)));
                    writer.addDocument(document);
                }
            }
            try (DirectoryReader reader = DirectoryReader.open(directory)) {
                IndexSearcher searcher = new IndexSearcher(reader);
                for (int i = 0; i < 3000; i++) {
                    Query query = new BooleanQuery.Builder()
                            .add(new TermQuery(new Term("customer", "customer " + i % 500)), BooleanClause.Occur.SHOULD)
                            .add(IntPoint.newRangeQuery("price", i % 900, i % 900 + 50), BooleanClause.Occur.SHOULD).build();
                    searcher.search(query, 20, new Sort(new SortField("price", SortField.Type.INT)));
                }
            }
        }
    }
}
"""
EXPRESS = """
const app = require("express")();
app.get("/orders", (request, response) => {
  const orders = Array.from({ length: 60 }, (_, i) => ({ id: (i * 7919) % 61, name: request.path, price: (i * 1.5).toFixed(2) }));
  orders.sort((a, b) => a.id - b.id);
  response.json(orders.filter((order) => /[0-9]+/.test(JSON.stringify(order))).map((order) => ({ ...order, tax: order.price * 0.19 })));
});
app.listen(Number(process.argv[2]), "127.0.0.1");
"""


# ---- the judge --------------------------------------------------------------------------------------


def has_no_line(names, path):
    """The methods of Java among @names that are native: they have no bytecode, and no line."""
    classes = {name.rpartition(".")[0] for name in names}
    natives, current = set(), None
    told = subprocess.run(["javap", "-p", "-cp", path, *sorted(classes)], capture_output=True, text=True, check=False).stdout
    for line in told.splitlines():
        if found := re.match(r"(?:\S.* )?(?:class|interface) ([\w.$]+)", line):
            current = found.group(1)
        elif found := re.match(r"  .*\bnative\b.* (\S+)\(", line):
            natives.add(f"{current}.{found.group(1)}")
    return natives & names


def judge(what, runtime, process, path=""):
    """Profiles the process while it uses CPU_SECONDS. @path: the class path of a program of Java."""
    with Daemon() as daemon:
        session = daemon.start_profile(f"pid:{process.pid}", 600, rate=499)
        begin = cpu_ns(process.pid)
        wait_until(lambda: process.poll() is not None or cpu_ns(process.pid) > begin + CPU_SECONDS * 1e9, 300, "the program to work")
        check(process.poll() is None, f"{what} ended: {process.returncode}")
        quality = daemon.stop_profile(session)["quality"]
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    scripts = unnamed = without_line = 0
    without = {name for stack, _ in stacks for name, file, line in stack if file.endswith(SOURCES[runtime]) and not line}
    without -= has_no_line(without, path) if runtime == "java" and without else set()
    for stack, value in stacks:
        for name, file, line in stack:
            is_named = file.endswith(SOURCES[runtime])
            scripts += value if is_named or name == UNNAMED[runtime] else 0
            unnamed += value if name == UNNAMED[runtime] else 0
            without_line += value if is_named and not line and name in without else 0
    broken = sum(quality.get("unwindErrors", {}).values())
    print(f"# {what}: {quality['samples']} samples, {100 - 100 * broken / quality['samples']:.2f} % complete "
          f"({quality.get('unwindErrors', {})}), {100 * unnamed / scripts:.2f} % of script frames without a name, "
          f"{100 * without_line / scripts:.2f} % without a line ({', '.join(sorted(without)[:5])})")
    check(scripts > 5 * CPU_SECONDS * 1e9, f"{what}: {scripts / 1e9:.1f} s in script frames")
    check(broken <= (1 - LEAST) * quality["samples"], f"{what}: {broken} of {quality['samples']} stacks: {quality['unwindErrors']}")
    check(unnamed + without_line <= (1 - LEAST) * scripts, f"{what}: {unnamed / 1e9:.2f} s unnamed, {without_line / 1e9:.2f} s "
          f"without a line of {scripts / 1e9:.1f} s")


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def judge_server(what, runtime, *command, path=""):
    port = free_port()
    with started([part if part != "PORT" else str(port) for part in command], port) as process, \
            load("wrk", "-t", "1", "-c", "4", "-d", "36000", f"http://127.0.0.1:{port}/orders"):
        judge(what, runtime, process, path)


# ---- Java -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def compiled(name, text):
    """The class path of the program and what it uses."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-d", folder, "-cp", maven(*LIBRARIES), written(folder, "Orders.java", ORDERS),
                        written(folder, name + ".java", text)], check=True)
        yield f"{folder}:{maven(*LIBRARIES)}", folder


def java_jetty():
    with compiled("Jetty", JETTY) as (path, _):
        judge_server("Jetty", "java", "java", "-cp", path, "Jetty", "PORT", path=path)


def java_tomcat():
    with compiled("Cat", TOMCAT) as (path, folder):
        judge_server("Tomcat", "java", "java", "-cp", path, "Cat", "PORT", folder, path=path)


def java_lucene():
    with compiled("Search", LUCENE) as (path, _), started(["java", "-cp", path, "Search"]) as process:
        judge("Lucene", "java", process, path)


COMPILER = """
import java.util.*;
import javax.tools.ToolProvider;

class Compiler {
    public static void main(String[] arguments) {
        System.out.println("ready");
        while (ToolProvider.getSystemJavaCompiler().run(null, null, null, arguments) == 0)
            ;
    }
}
"""


def java_javac():
    """The compiler in a loop, of 2,000 files."""
    with compiled("Compiler", COMPILER) as (path, folder):
        sources = [written(folder, f"C{i}.java",
                           f"import java.util.*; import java.util.function.*; class C{i} implements Comparable<C{i}> {{ int n = {i};\n"
                           f" Map<String, List<C{i}>> all = new HashMap<>();\n public int compareTo(C{i} o) {{ return n - o.n; }}\n"
                           f" int sum(List<? extends C{i}> l) {{ return l.stream().mapToInt(c -> c.n + new C{i // 2}().n).sum(); }}\n"
                           " Supplier<String> name() { return () -> switch (n % 3) { case 0 -> \"a\"; case 1 -> \"b\" + n; default -> \"c\"; }; } }\n")
                   for i in range(2000)]
        with started(["java", "-cp", path, "Compiler", "-d", folder, *sources]) as process:
            judge("javac", "java", process, path)


# ---- JavaScript -------------------------------------------------------------------------------------


def judge_alone(what, *command, **kwargs):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **kwargs)
    try:
        judge(what, "node", process)
    finally:
        process.kill()
        process.wait()


def node_express():
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(npm("express@4.21.2"), "node_modules"), os.path.join(folder, "node_modules"))
        judge_server("Express", "node", "node", written(folder, "shop.js", EXPRESS), "PORT")


# The compilers' own interfaces, in a loop: one life lasts as long as the profile.
TYPESCRIPT = """
const ts = require("typescript"), own = require.resolve("typescript");
for (;;) {
  const program = ts.createProgram([own], { allowJs: true, checkJs: true, noEmit: false, outDir: "/nowhere", skipLibCheck: false });
  ts.getPreEmitDiagnostics(program);
  program.emit(undefined, () => {});
}
"""
WEBPACK = """
const webpack = require("webpack"), path = require("path");
const build = () => webpack({ mode: "production", entry: require.resolve("lodash"), cache: false, optimization: { minimize: false },
  output: { path: path.join(__dirname, "out") } }, (error, stats) => {
  if (error || stats.hasErrors()) throw error || new Error(stats.toString());
  build();
});
build();
"""


def node_typescript():
    """It compiles itself."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(npm("typescript@5.7.3"), "node_modules"), os.path.join(folder, "node_modules"))
        judge_alone("TypeScript", "node", "--max-old-space-size=3000", written(folder, "compile.js", TYPESCRIPT), cwd=folder)


def node_webpack():
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(npm("webpack@5.97.1", "lodash@4.17.21"), "node_modules"), os.path.join(folder, "node_modules"))
        judge_alone("webpack", "node", written(folder, "pack.js", WEBPACK), cwd=folder)


if __name__ == "__main__":
    ALL = {"java": (java_javac, java_jetty, java_tomcat, java_lucene), "node": (node_typescript, node_webpack, node_express)}
    CHOSEN = [name for name in sys.argv[1:] if name in ALL] or list(ALL)
    sys.argv = [word for word in sys.argv if word not in ALL]
    main(*(test for name in CHOSEN for test in ALL[name]))
