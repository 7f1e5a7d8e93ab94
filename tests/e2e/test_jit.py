# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Code that was compiled at run time is named from what its runtime writes, and is `[jit]` without that."""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import tempfile
import time

from harness import Daemon, Skip, band, check, compile_workload, cpu_ns, main, running, wait_until

NODE = """
function hotInner(n) { let x = n; for (let i = 0; i < 3000; i++) x = (x * 31 + i) | 0; return x; }
function hotThree(n) { let s = 0; for (let i = 0; i < 3; i++) s += hotInner(n + i); return s; }
function coldOne(n) { let x = n; for (let i = 0; i < 3000; i++) x = (x * 31 + i) | 0; return x; }
console.log('ready');
let sum = 0;
for (let i = 0; ; i++) { sum += hotThree(i); sum ^= coldOne(i); }
"""


JAVA = """
public class HotLoops {
    static int inner(int n) { int x = n; for (int i = 0; i < 3000; i++) x = x * 31 + i; return x; }
    static int three(int n) { int s = 0; for (int i = 0; i < 3; i++) s += inner(n + i); return s; }
    static int cold(int n) { int x = n; for (int i = 0; i < 3000; i++) x = x * 31 + i; return x; }
    public static void main(String[] arguments) {
        System.out.println("ready");
        int sum = 0;
        for (int i = 0; ; i++) { sum += three(i); sum ^= cold(i); if (sum == 42) System.out.print(""); }
    }
}
"""

PYTHON = """
def inner(n):
    x = n
    for i in range(3000):
        x = (x * 31 + i) & 0xffffffff
    return x
def three(n):
    return inner(n) + inner(n + 1) + inner(n + 2)
def cold(n):
    x = n
    for i in range(3000):
        x = (x * 31 + i) & 0xffffffff
    return x
print("ready", flush=True)
i = 0
while True:
    three(i)
    cold(i)
    i += 1
"""


def profile(command, service, name=None, cpu_seconds=3, cwd=None, before_start=None):
    """(stacks, samples) of @command once it has used @cpu_seconds and its code has @name: a session is stored with the
    names of its time, if they are known by then."""
    before = os.getcwd()
    with Daemon() as daemon:
        if cwd:
            os.chdir(cwd)
        try:
            with running(*command) as process:
                os.chdir(before)
                if before_start:
                    before_start(process)
                session = daemon.start_profile(service or f"pid:{process.pid}", 300, rate=199)
                start = cpu_ns(process.pid)
                wait_until(lambda: cpu_ns(process.pid) - start > cpu_seconds * 1e9, 120, "the program to run")
                wait_until(lambda: not name or share(daemon.folded(session), name) > 0.2, 60, f"the name {name}")
                result = daemon.stop_profile(session)
                with contextlib.suppress(OSError):
                    os.unlink(f"/tmp/perf-{process.pid}.map")
        finally:
            os.chdir(before)
        return daemon.folded(result["id"]), result["sampleCount"]


def share(stacks, *names):
    """The share of samples with a frame that contains one of the names."""
    return sum(v for s, v in stacks if any(n in f for f in s for n in names)) / sum(v for _, v in stacks)


def check_share(stacks, samples, due, *names):
    got = share(stacks, *names)
    check(abs(got - due) * 100 <= 3 + band(due, samples), f"{names}: {100 * got:.1f} %, should be {100 * due:.1f} % of {stacks}")


def check_own(stacks, samples, heavy="jitted heavy", light="jitted light"):
    check_share(stacks, samples, 2 / 3, heavy)
    check_share(stacks, samples, 1 / 3, light)
    jitted = [(s, v) for s, v in stacks if heavy in s or light in s]
    under = sum(v for s, v in jitted if "run_jitted" in s and "main" in s)
    check(under > 0.97 * sum(v for _, v in jitted), f"jitted code is not under the frame that called it: {jitted}")


def like_dotnet():
    """Its map's names have spaces, brackets and the tier of the code, its code lies in a memfd."""
    heavy = "void [app] Shop.Cart`1[System.__Canon]::Heavy(!0, int32)"
    check_own(*profile([compile_workload("jit.c", "-O2"), "300", "dotnet"], "jit", heavy), heavy, "int32 [app] Shop.Cart::Light(int32[])")


def own_jitdump():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        check_own(*profile([compile_workload("jit.c", "-O2"), "300", "jitdump"], "jit", "jitted heavy", cwd=folder))


def map_written_later():
    """Found within ten seconds, and then what was sampled before is named as well."""
    check_own(*profile([compile_workload("jit.c", "-O2"), "300", "late"], "jit", "jitted heavy", cpu_seconds=14))


def without_map():
    stacks, samples = profile([compile_workload("jit.c", "-O2"), "300", "none"], "jit")
    check_share(stacks, samples, 1, "[jit]")


def address_reused():
    """Other code at the same addresses: each session has the names of its own time."""
    with Daemon() as daemon, running(compile_workload("jit.c", "-O2"), "300", "now") as process:
        path = f"/tmp/perf-{process.pid}.map"
        try:
            first = of_jit(daemon, process)
            with open(path, "r+") as f:
                f.write(f.read().replace("jitted", "second"))
            second = of_jit(daemon, process)
            time.sleep(10)  # names that may change are asked for again after this
            for session, word in ((first, "jitted"), (second, "second"), (first, "jitted")):
                stacks = daemon.folded(session["id"])
                check_share(stacks, session["sampleCount"], 2 / 3, word + " heavy")
                check_share(stacks, session["sampleCount"], 1 / 3, word + " light")
        finally:
            os.unlink(path)


def of_jit(daemon, process):
    session = daemon.start_profile(f"pid:{process.pid}", 300, rate=199)
    start = cpu_ns(process.pid)
    wait_until(lambda: cpu_ns(process.pid) - start > 1.5e9, 120, "the program to run")
    # a session is stored with the names of its time, if they are known by then
    wait_until(lambda: share(daemon.folded(session), "heavy") > 0.5, 60, "the names of its code")
    return daemon.stop_profile(session)


def java_with_map():
    """The JVM writes its map when it is told to; its frames are walked all the same, and nothing is named twice."""
    if not shutil.which("javac") or not shutil.which("jcmd"):
        raise Skip("no JDK is installed")

    def dump(process):
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > 2e9, 120, "the program to be compiled")
        subprocess.run(["jcmd", str(process.pid), "Compiler.perfmap"], check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "HotLoops.java"), "w") as f:
            f.write(JAVA)
        subprocess.run(["javac", "HotLoops.java"], check=True, cwd=folder)
        stacks, samples = profile(["java", "-XX:+PreserveFramePointer", "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,HotLoops::*",
                                   "-cp", folder, "HotLoops"], None, "HotLoops.inner", before_start=dump)
    check_share(stacks, samples, 0.75, "HotLoops.inner")
    check_share(stacks, samples, 0.25, "HotLoops.cold")
    # The map's names have parameters. They stand in where a walk was refused, which is rare.
    mapped = [(stack, value) for stack, value in stacks if any("(int)" in frame for frame in stack)]
    check(sum(value for _, value in mapped) <= 0.02 * sum(value for _, value in stacks), f"the map names {mapped}")
    twice = [stack for stack, _ in mapped if any(f.startswith("HotLoops.") and "(int)" not in f for f in stack)]
    check(not twice, f"named by the walk and by the map: {twice}")
    check(all(s.count("HotLoops.inner") <= 1 for s, _ in stacks), "one frame is there twice")
    hot = [(s, v) for s, v in stacks if any("HotLoops.inner" in f for f in s)]
    inside = sum(v for s, v in hot if any("HotLoops.three" in f for f in s) and "JavaMain" in s)
    check(inside > 0.95 * sum(v for _, v in hot), "inner is not under three and the thread's beginning")


def find_python():
    """An interpreter that can write a perf map: CPython 3.12 and later."""
    names = [shutil.which(f"python3.{minor}") for minor in range(12, 16)]
    names += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[2-9]*/bin/python3.1[2-9]")))
    names += sorted(glob.glob("/usr/local/bin/python3.1[2-9]"))
    for name in filter(None, names):
        if subprocess.run([name, "-X", "perf", "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return name
    raise Skip("no CPython 3.12 or later is installed")


def python_with_map():
    python = find_python()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "hot_loops.py")
        with open(path, "w") as f:
            f.write(PYTHON)
        stacks, samples = profile([python, "-X", "perf", path], None, "inner")
    check_share(stacks, samples, 0.75, "inner")
    check_share(stacks, samples, 0.25, "cold")
    hot = [(s, v) for s, v in stacks if "inner" in s]
    inside = sum(v for s, v in hot if re.search(r"(^|;)<module>;(.*;)?three;(.*;)?inner(;|$)", ";".join(s)) and "Py_BytesMain" in s)
    check(inside > 0.97 * sum(v for _, v in hot), "inner is not under three, the module and the program's beginning")


def hints():
    """A service of such a runtime says how its frames get names."""
    need_node()
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon, running("node", write_script(folder)) as process:
        def mine():
            items = daemon.get("/api/v1/observability/services").json()["items"]
            found = [i for i in items if any(p["pid"] == process.pid for p in i["processes"])]
            return found[0] if found and found[0]["runtime"] == "node" else None

        types = {t["type"]: t for t in wait_until(mine, 60, "the service")["profileTypes"]}
        check("need no flag" in (types["cpu"]["hint"] or ""), f"no hint: {types['cpu']}")
        check(types["goroutine"]["hint"] is None, "a hint where no stacks are sampled")


def need_node():
    if not shutil.which("node"):
        raise Skip("node is not installed")


def write_script(folder):
    path = os.path.join(folder, "hot.js")
    with open(path, "w") as f:
        f.write(NODE)
    return path


def check_node(*options):
    need_node()
    known = subprocess.run(["node", "--v8-options"], capture_output=True, text=True, check=True).stdout
    # of the compilers that this release has
    plain = [f"--no-{name}" for name in ("turbo-inlining", "maglev-inlining") if f"--{name} " in known]
    with tempfile.TemporaryDirectory() as folder:
        stacks, samples = profile(["node", *options, *plain, write_script(folder)], None, "hotInner")
    check_share(stacks, samples, 0.75, "hotInner")
    check_share(stacks, samples, 0.25, "coldOne")
    inside = sum(v for s, v in stacks if any("hotInner" in f for f in s) and any("hotThree" in f for f in s))
    hot = sum(v for s, v in stacks if any("hotInner" in f for f in s))
    check(inside > 0.95 * hot, "hotInner is not under hotThree")
    check(any(f == "hotInner" for s, _ in stacks for f in s), "names still carry their tier")
    check(not any(s.count("hotInner") > 1 for s, _ in stacks), "a frame is named twice")
    check(share(stacks, "[jit]") < 0.03, f"{100 * share(stacks, '[jit]'):.1f} % pass code without a name")


def node_with_map():
    check_node("--perf-basic-prof")


def node_without_map():
    check_node()


if __name__ == "__main__":
    main(like_dotnet, own_jitdump, map_written_later, without_map, address_reused, node_with_map, node_without_map, java_with_map,
         python_with_map, hints)
