# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Programs that are not ours, beside `perf record --call-graph dwarf` on the same run: stacks are complete as
often, the functions at the top agree."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import WORKLOADS, Daemon, Skip, await_perf, band, check, cpu_ns, main, running, wait_until

ROOTS = ("_start", "main", "__libc_start_main", "__libc_start_call_main", "clone3", "__clone3", "__GI___clone3",
         "start_thread", "ret_from_fork", "ret_from_fork_asm")
KERNEL_ENTRIES = ("entry_SYSCALL", "asm_")
CPU_SECONDS = 4


def plain(name):
    """A function's name without parameters, template arguments and clone suffixes, as both tools may differ there."""
    name = re.sub(r"\((anonymous namespace)\)", r"\1", name)
    out, depth = [], 0
    for c in name.split(" [clone")[0]:
        if c == "<":
            depth += 1
        elif c == ">" and depth:
            depth -= 1
        elif c == "(" and depth == 0:
            break
        elif depth == 0:
            out.append(c)
    text = "".join(out).strip()
    return re.sub(r"\.(constprop|isra|part|cold|lto_priv)\.?\d*", "", text).split(" ")[-1].split("@")[0]


def is_complete(stack):
    """@stack root first."""
    return any(plain(f) in ROOTS for f in stack[:4])


def perf_stacks(pid, data):
    """Records until the process has used CPU_SECONDS: a busy machine only makes that last longer."""
    perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "99", "--call-graph", "dwarf,32768", "-p",
                             str(pid), "-o", data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_perf(perf, data)
    start = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) - start > CPU_SECONDS * 1e9, 300, "the program to run")
    perf.send_signal(signal.SIGINT)
    perf.wait(120)
    text = subprocess.run(["perf", "script", "--no-inline", "-i", data, "-F", "comm,tid,ip,sym,dso"], capture_output=True,
                          text=True, check=True).stdout
    stacks, frames = [], []
    for line in text.splitlines() + [""]:
        found = re.match(r"\s+[0-9a-f]+ (.*) \(.*\)$", line)
        if found:
            frames.append(found.group(1))
        elif not line.strip() and frames:
            stacks.append(frames[::-1])
            frames = []
    return stacks


def of_both(pid):
    """User stacks of the process, which runs long enough, in one span: ([(stack, ns)], stacks of perf), root first."""
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        session = daemon.start_profile(f"pid:{pid}", 600, rate=99)
        theirs = perf_stacks(pid, os.path.join(folder, "perf.data"))
        result = daemon.stop_profile(session)
        # The names of a C library with its debug file may take their time on a busy host.
        wait_until(lambda: any(is_complete(s) for s, _ in daemon.folded(result["id"])), 60, "names of the outermost functions")
        # what was interrupted in user mode, as perf was asked for
        ours = [(s, v) for s, v in daemon.folded(result["id"]) if not any(f.startswith(KERNEL_ENTRIES) for f in s)]
    check(len(theirs) > 100, f"perf took {len(theirs)} samples")
    return ours, theirs


def complete_shares(ours, theirs):
    """The shares of stacks that reach the entry of the program or thread: profd's and perf's."""
    return (sum(v for s, v in ours if is_complete(s)) / sum(v for _, v in ours),
            sum(is_complete(s) for s in theirs) / len(theirs))


def compare(*command):
    if not shutil.which("perf"):
        raise Skip("perf is not installed")
    with running(*command, ready=False) as process:
        ours, theirs = of_both(process.pid)
    total = sum(v for _, v in ours)
    samples = round(total * 99 / 1e9)
    check(samples > 100, f"profd took {samples} samples")
    complete, reference = complete_shares(ours, theirs)
    both = (complete + reference) / 2  # if the two are alike
    allowed = (band(both, len(theirs)) + band(both, samples)) / 100
    print(f"  {command[0]}: complete {100 * complete:.1f} %, perf {100 * reference:.1f} %")
    check(complete >= reference - allowed, f"{100 * complete:.1f} % complete, perf dwarf {100 * reference:.1f} %")

    tops = collections.Counter(plain(s[-1]) for s in theirs)
    mine = collections.Counter()
    for stack, value in ours:
        mine[plain(stack[-1])] += value
    for name, count in tops.most_common(10):
        if name.startswith("[") or count < 10:
            continue
        share = count / len(theirs)
        got = mine[name] / total
        limit = 3 + band(share, len(theirs)) + band(share, samples)
        check(abs(share - got) * 100 <= limit,
              f"{name}: {100 * got:.1f} % here, {100 * share:.1f} % in perf; ours: {mine.most_common(12)}")


def clang_command():
    """It compiles for minutes."""
    os.makedirs(WORKLOADS, exist_ok=True)
    source = os.path.join(WORKLOADS, "large.cpp")
    with open(source, "w") as f:
        f.write("#include <regex>\n#include <map>\n#include <iostream>\n#include <algorithm>\n#include <functional>\n")
        for i in range(1500):
            f.write(f"template <int N> struct s{i} {{ std::map<int, std::vector<std::string>> m; std::regex r; }};\n"
                    f"int f{i}(const std::string &x) {{ s{i}<{i}> v; std::sort(v.m[1].begin(), v.m[1].end());"
                    f" return std::regex_match(x, std::regex(\"a+{i}\")) + (int)v.m.size(); }}\n")
    return ["clang++-14" if shutil.which("clang++-14") else "clang-14", "-x", "c++", "-O2", "-c", source, "-o", "/dev/null"]


def clang_compiling():
    compare(*clang_command())


def python():
    code = ("import json,re\nd={str(i):list(range(50)) for i in range(200)}\n"
            "while True:\n s=json.dumps(d); json.loads(s); re.findall(r'[0-9]+5', s); sorted(s)\n")
    compare("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable, "-c", code)


def sqlite():
    compare("sqlite3", ":memory:", "with recursive c(x) as (select 1 union all select x+1 from c where x<100000000) "
            "select sum(x*x%7), max(printf('%d-%s', x, hex(x))) from c group by x%1000;")


def perf_bench():
    compare("perf", "bench", "-f", "simple", "mem", "memcpy", "-l", "500000", "-s", "4MB")


if __name__ == "__main__":
    main(clang_compiling, python, sqlite, perf_bench)
