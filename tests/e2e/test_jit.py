# SPDX-License-Identifier: Apache-2.0
"""Code that was compiled at run time is named from what its runtime writes, and is `[jit]` without that."""

import contextlib
import os
import shutil
import tempfile

from harness import Daemon, Skip, band, check, compile_workload, cpu_ns, main, running, wait_until

NODE = """
function hotInner(n) { let x = n; for (let i = 0; i < 3000; i++) x = (x * 31 + i) | 0; return x; }
function hotThree(n) { let s = 0; for (let i = 0; i < 3; i++) s += hotInner(n + i); return s; }
function coldOne(n) { let x = n; for (let i = 0; i < 3000; i++) x = (x * 31 + i) | 0; return x; }
console.log('ready');
let sum = 0;
for (let i = 0; ; i++) { sum += hotThree(i); sum ^= coldOne(i); }
"""


def profile(command, service, cpu_seconds=3, cwd=None):
    """(stacks, samples) of @command once it has used @cpu_seconds."""
    before = os.getcwd()
    with Daemon() as daemon:
        if cwd:
            os.chdir(cwd)
        try:
            with running(*command) as process:
                os.chdir(before)
                session = daemon.start_profile(service or f"pid:{process.pid}", 300, rate=199)
                start = cpu_ns(process.pid)
                wait_until(lambda: cpu_ns(process.pid) - start > cpu_seconds * 1e9, 120, "the program to run")
                result = daemon.stop_profile(session)
                with contextlib.suppress(OSError):
                    os.unlink(f"/tmp/perf-{process.pid}.map")
        finally:
            os.chdir(before)
        return daemon.folded(result["id"]), result["sampleCount"]


def share(stacks, *names):
    """Of all samples, in those of which one frame contains one of the names."""
    return sum(v for s, v in stacks if any(n in f for f in s for n in names)) / sum(v for _, v in stacks)


def check_share(stacks, samples, due, *names):
    got = share(stacks, *names)
    check(abs(got - due) * 100 <= 3 + band(due, samples), f"{names}: {100 * got:.1f} %, should be {100 * due:.1f} %")


def check_own(stacks, samples):
    check_share(stacks, samples, 2 / 3, "jitted heavy")
    check_share(stacks, samples, 1 / 3, "jitted light")
    under = sum(v for s, v in stacks if s[-1].startswith("jitted") and "run_jitted" in s and "main" in s)
    check(under > 0.97 * sum(v for _, v in stacks), "jitted code is not under the frame that called it")


def own_perf_map():
    check_own(*profile([compile_workload("jit.c", "-O2"), "300", "now"], "jit"))


def own_jitdump():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        check_own(*profile([compile_workload("jit.c", "-O2"), "300", "jitdump"], "jit", cwd=folder))


def map_written_later():
    """Found within ten seconds, and then what was sampled before is named as well."""
    check_own(*profile([compile_workload("jit.c", "-O2"), "300", "late"], "jit", cpu_seconds=14))


def without_map():
    stacks, samples = profile([compile_workload("jit.c", "-O2"), "300", "none"], "jit")
    check_share(stacks, samples, 1, "[jit]")


def need_node():
    if not shutil.which("node"):
        raise Skip("node is not installed")


def write_script(folder):
    path = os.path.join(folder, "hot.js")
    with open(path, "w") as f:
        f.write(NODE)
    return path


def node_with_map():
    need_node()
    with tempfile.TemporaryDirectory() as folder:
        stacks, samples = profile(["node", "--perf-basic-prof", "--no-turbo-inlining", "--no-maglev-inlining",
                                   write_script(folder)], None)
    check_share(stacks, samples, 0.75, "hotInner")
    check_share(stacks, samples, 0.25, "coldOne")
    inside = sum(v for s, v in stacks if any("hotInner" in f for f in s) and any("hotThree" in f for f in s))
    hot = sum(v for s, v in stacks if any("hotInner" in f for f in s))
    check(inside > 0.95 * hot, "hotInner is not under hotThree")
    check(any(f == "hotInner" for s, _ in stacks for f in s), "names still carry their tier")
    check(share(stacks, "[jit]") < 0.03, f"{100 * share(stacks, '[jit]'):.1f} % pass code without a name")


def node_without_map():
    need_node()
    with tempfile.TemporaryDirectory() as folder:
        stacks, _ = profile(["node", write_script(folder)], None)
    check(share(stacks, "[jit]") > 0.9, f"only {100 * share(stacks, '[jit]'):.1f} % [jit]")


if __name__ == "__main__":
    main(own_perf_map, own_jitdump, map_written_later, without_map, node_with_map, node_without_map)
