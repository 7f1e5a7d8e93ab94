# SPDX-License-Identifier: Apache-2.0
"""Cost of profd against perf on the same load in the same run. CPU time is read from the kernel's accounting:
user + system time of every process of a tool, plus, for profd, the run time of its BPF programs
(kernel.bpf_stats_enabled, less the 57 ns per run that the measuring itself costs here), which the kernel
charges to whoever was interrupted. Ratios travel between machines; absolute figures do not."""

import argparse
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import allocations_bench
import completeness_bench
import coverage_bench
import fleet_bench
import goroutines_bench
import grafana_bench
import history_bench
import http_bench
import intervals_bench
import leaks_bench
import names_bench
import rivals_bench
import scripts_bench
import stacks_bench
import verdict_bench
import viewers_bench
import waits_bench
from costs import bpf_run, bpf_stats, cpu_s, processes, running_rival
from harness import FAMILY_A, Daemon, build_truth, check, compile_workload, running

CPUS = os.cpu_count()
rows = []
folders = {}  # of rivals' sources, as given


def row(name, ours, base, must, text=""):
    ratio = ours / base if base else float("nan")
    verdict = "" if must is None else "met" if ratio <= must else "MISSED"
    rows.append((name, f"{ours:.4g}", f"{base:.4g}", f"{ratio:.3f}", "" if must is None else f"<= {must}", verdict, text))


def absolute(name, ours, must, text="", smaller=True, base=None):
    """@must bounds the figure itself; @base, a rival's, is shown beside it."""
    good = ours <= must if smaller else ours >= must
    rows.append((name, f"{ours:.4g}", f"{base:.4g}" if base else "", f"{ours / base:.2g}" if base else "",
                 f"{'<=' if smaller else '>='} {must}", "met" if good else "MISSED", text))


def bpf_programs(daemon):
    """(run time in s less the floor, runs) of the programs of the collector."""
    ns, runs = bpf_run([daemon.children()["profd-collect"]])
    return ns / 1e9, runs


def map_bytes(daemon):
    """Bytes that the kernel charges for the collector's maps, including the inner maps of its
    unwind tables."""
    collector = daemon.children()["profd-collect"]
    total = 0
    for fd in os.listdir(f"/proc/{collector}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{collector}/fdinfo/{fd}") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("memlock:"))
    tables = [line for line in daemon.get("/metrics").body.decode().splitlines()
              if line.startswith("profd_bpf_map_bytes ")]
    return max(total, int(float(tables[0].split()[1])) if tables else 0)


def split(daemon, before):
    """CPU s of each process since @before {comm: s}."""
    now = {comm: cpu_s([pid]) for comm, pid in daemon.children().items()}
    return ", ".join(f"{comm[6:]} {now[comm] - before.get(comm, 0):.2f}" for comm in sorted(now))


def pids_of(daemon):
    return [daemon.process.pid, *daemon.children().values()]


def install(package):
    """A rival that is measured beside us."""
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], check=True,
                   stdout=subprocess.DEVNULL)


def profd_cost(service, rate, seconds, settle=8.0):
    """Agent CPU s (BPF included), BPF s, samples and the result of one session over a steady load."""
    with Daemon() as daemon, bpf_stats():
        time.sleep(settle)
        pids = pids_of(daemon)
        each = {comm: cpu_s([pid]) for comm, pid in daemon.children().items()}
        before, bpf_before = cpu_s(pids), bpf_programs(daemon)
        session = daemon.start_profile(service, seconds, rate=rate)
        time.sleep(seconds + 1)  # asking for partial results meanwhile would be a cost of its own
        result = daemon.finish_profile(session, 60)
        bpf_after = bpf_programs(daemon)
        bpf = bpf_after[0] - bpf_before[0]
        result["split"] = split(daemon, each)
        return cpu_s(pids) - before + bpf, bpf, result


def child_cpu_s(command, **kwargs):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kwargs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def perf_cost(call_graph, rate, seconds):
    """CPU s of perf record over the whole host and of perf script over what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        record = child_cpu_s(["perf", "record", "-q", "-e", "cpu-clock", "-a", "-F", str(rate), "--call-graph",
                              call_graph, "-o", data, "--", "sleep", str(seconds)])
        script = child_cpu_s(["perf", "script", "--no-inline", "-i", data])
        return record + script, os.path.getsize(data)


def busy(seconds):
    """Both cores busy without frame pointers: profd against perf record --call-graph dwarf + perf script."""
    program = build_truth()
    with running(program, "100000", str(CPUS)):
        ours, bpf, result = profd_cost("*", 99, seconds)
        base, _ = perf_cost("dwarf", 99, seconds)
    samples = result["sampleCount"]
    row("agent CPU s, 99 Hz, no frame pointers / perf dwarf + script", ours, base, 1.0,
        f"{1e6 * ours / samples:.1f} us a sample, of it BPF {1e6 * bpf / samples:.1f}; s: {result['split']}")


def busy_fp(seconds):
    """The same with frame pointers: against perf record -g + perf script."""
    program = build_truth(frame_pointers=True)
    with running(program, "100000", str(CPUS)):
        ours, bpf, result = profd_cost("*", 99, seconds)
        base, _ = perf_cost("fp", 99, seconds)
    samples = result["sampleCount"]
    row("agent CPU s, 99 Hz, frame pointers / perf -g + script", ours, base, 1.5,
        f"{1e6 * ours / samples:.1f} us a sample, of it BPF {1e6 * bpf / samples:.1f}; s: {result['split']}")


def idle(seconds):
    """An idle host with a 19 Hz session open: share of one CPU."""
    ours, bpf, result = profd_cost("*", 19, seconds)
    absolute("idle host, 19 Hz session, % of one CPU", 100 * ours / seconds, 0.2, f"of it BPF {100 * bpf / seconds:.3f}; s: {result['split']}")


def switches(_):
    """CPU time of a context switch with offcpu on for the whole host: a byte to and fro between two processes of one
    CPU, beside libbpf-tools offcputime, each in its turn, the least of seven rounds."""
    if not (shutil.which("offcputime") or os.path.exists("/usr/sbin/offcputime")):
        install("libbpf-tools")
    game = compile_workload("ping_pong.c", "-O2")
    least = {"bare": [], "ours": [], "rival": [], "after": []}
    with subprocess.Popen([game, "100000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as player:
        def play(name):
            player.stdin.write("\n")
            player.stdin.flush()
            least[name].append(float(player.stdout.readline()))

        check(player.stdout.readline() == "ready\n", "the game is not ready")
        with Daemon() as daemon:
            time.sleep(8)
            for _round in range(7):
                play("bare")
                session = daemon.start_profile("*", 600, "offcpu", 99)
                play("ours")
                daemon.stop_profile(session)
                play("after")
                with running_rival(shutil.which("offcputime") or "/usr/sbin/offcputime", "36000"):
                    play("rival")
        player.stdin.close()
    bare, ours, rival, after = (min(least[name]) for name in ("bare", "ours", "rival", "after"))
    text = f"ns of CPU a switch: bare {bare:.0f}, ours {ours:.0f}, rival {rival:.0f}, after a session {after:.0f}"
    absolute("throughput with offcpu of the host", bare / ours, 0.85, text, smaller=False)
    row("extra CPU per switch, offcputime of libbpf-tools", ours - bare, rival - bare, 0.12)
    row("CPU per switch after a session, before one", after, bare, 1.05)


def memory(_):
    """PSS of all processes plus what the kernel charges for BPF maps, with 200 processes mapped."""
    with contextlib.ExitStack() as stack:
        for _i in range(200):
            stack.enter_context(running("python3", "-c", "import json,ssl,time;print('ready',flush=True);time.sleep(600)"))
        with Daemon() as daemon:
            daemon.profile("*", 10, rate=99)
            pss = pss_kb(*pids_of(daemon))
            maps = map_bytes(daemon)
            absolute("memory with 200 processes, MB", pss / 1024 + maps / 1048576, 100,
                     f"PSS {pss / 1024:.0f}, BPF maps {maps / 1048576:.0f}")


def services(seconds):
    """200 services on one host, all of them profiled continuously at 19 Hz: CPU, memory and disk."""
    program = "import time; print('ready', flush=True)\nwhile True: sum(range(20000)); time.sleep(0.2)"
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    with contextlib.ExitStack() as stack:
        for i in range(200):
            stack.enter_context(running("python3", "-c", program, env={"OTEL_SERVICE_NAME": f"service-{i}"}))
        with Daemon(data_dir=folder) as daemon, bpf_stats():
            answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*", "sampleRate": 19})
            check(answer.status == 200, answer)
            time.sleep(15)
            pids = pids_of(daemon)
            before, bpf_before = cpu_s(pids), bpf_programs(daemon)
            time.sleep(max(seconds, 60))
            bpf = bpf_programs(daemon)[0] - bpf_before[0]
            ours = cpu_s(pids) - before + bpf
            absolute("200 services at 19 Hz, % of the host's CPU", 100 * ours / max(seconds, 60) / CPUS, 1, f"of it BPF {bpf:.2f} s")
            absolute("200 services at 19 Hz, memory, MB", pss_kb(*pids) / 1024 + map_bytes(daemon) / 1048576, 100)
            items = daemon.get(f"{FAMILY_A}/history?limit=100&top=0").json()
            check(items["total"] >= 200, items["total"])
    history_bench.days_like(absolute, "200 services at 19 Hz", folder, 4, 2048 / 7)
    shutil.rmtree(folder)


def pss_kb(*pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total


def memory_after(_):
    """PSS and maps, steady, after clang, node, a JVM, chromium and 200 small programs have run and been named."""
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        files = {"x.cc": "#include <regex>\nint main() { return std::regex_match(\"aab\", std::regex(\"a+b\")); }\n",
                 "x.js": "let s = 0; for (let i = 0; i < 3e8; i++) s = (s * 31 + i) | 0; console.log(s)",
                 "X.java": "public class X { public static void main(String[] a) { } }"}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        session = daemon.start_profile("*", 600, rate=99)
        for command in (["clang++-14", "-O2", "-c", "-o", "x.o", "x.cc"], ["node", "--perf-basic-prof", "x.js"], ["javac", "X.java"],
                        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "data:text/html,<p>x</p>"],
                        *[["true"]] * 200):
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        daemon.stop_profile(session)
        daemon.folded(session)
        time.sleep(20)
        absolute("PSS after clang, node, a JVM, chromium and 200 small programs, MB", pss_kb(*pids_of(daemon)) / 1024, 60,
                 ", ".join(f"{comm[6:]} {pss_kb(pid) / 1024:.0f}" for comm, pid in sorted(daemon.children().items())))
        absolute("BPF maps then, MB", map_bytes(daemon) / 1048576, 40)


def loss(seconds):
    """999 Hz on all cores: lost samples, and samples against what was due."""
    program = build_truth()
    with running(program, "100000", str(CPUS)):
        _, _, result = profd_cost("*", 999, seconds)
    absolute("lost samples at 999 Hz", result["quality"]["lost"], 0)
    absolute("share of due samples at 999 Hz", result["sampleCount"] / (999.0 * seconds * CPUS), 0.98, smaller=False)


def restart(_):
    """kill -9 of the whole daemon under load, ten times: until it is ready again."""
    waits = []
    with tempfile.TemporaryDirectory() as folder, running(build_truth(), "100000", str(CPUS)):
        for _round in range(11):
            begin = time.monotonic()
            daemon = Daemon(data_dir=folder).start()
            daemon.get("/readyz")
            waits.append(time.monotonic() - begin)
            daemon.start_profile("*", 3600, rate=99)
            time.sleep(1)
            daemon.stop(signal.SIGKILL)
    absolute("kill -9 of the daemon under load: ready again, s, worst of 10", max(waits[1:]), 2)


def startup(_):
    """A start with 100 processes running: CPU time of all of ours, and how soon there is a stack."""
    used, parts = [], []
    with processes(100):
        for _round in range(5):
            with Daemon() as daemon:
                time.sleep(2)
                used.append(cpu_s(pids_of(daemon)))
                parts.append(split(daemon, {}) + f", profd {cpu_s([daemon.process.pid]):.2f}")
        median = sorted(used)[2]
        absolute("start-up CPU, 100 processes, s, median of 5", median, 0.3, f"worst {max(used):.2f}; s: {parts[used.index(median)]}")
    stacks_bench.first_stack(row, install, child_cpu_s, lambda daemon: cpu_s(pids_of(daemon)))


def rival(name):
    """The folder of a rival's source; None: it was not given."""
    if not folders[name]:
        print(f"  left out: --{name}-dir was not given", file=sys.stderr)
    return folders[name]


def otel(seconds):
    """The OpenTelemetry eBPF profiler beside us, busy at 99 and 20 Hz, and when it starts (--otel-dir)."""
    if rival("otel"):
        rivals_bench.otel_busy(row, folders["otel"], seconds)


def otel_mixed(seconds):
    """The same over a mix of C++, Go, Python and Java."""
    if rival("otel"):
        rivals_bench.otel_mixed(row, folders["otel"], seconds)


def scripts(seconds):
    """Programs of Python, Java and Node, cost and truth beside the OpenTelemetry eBPF profiler (--otel-dir)."""
    if rival("otel"):
        scripts_bench.beside_otel(row, folders["otel"], seconds)


def python(seconds):
    """A sample of Python beside one of native code, and one Python program beside py-spy."""
    scripts_bench.python(row, seconds)


def libbpf(seconds):
    """profile of libbpf-tools beside us, 64 frames with frame pointers, and memleak (--bcc-dir)."""
    if rival("bcc"):
        rivals_bench.libbpf(row, folders["bcc"], seconds)
        allocations_bench.beside_memleak(row, rivals_bench.build_libbpf(folders["bcc"], "memleak"))


def sampled(_):
    """The cost of a sample for the sampled program, beside perf record -g."""
    rivals_bench.sampled(row)


def api(_):
    """The HTTP API under load, and the calls of Grafana."""
    http_bench.run(absolute)
    grafana_bench.run(absolute)


def fleet(_):
    """1,000 hosts in one ClickHouse: what a viewer waits for, and what an agent costs the server. Half an hour, 20 GB of disk."""
    fleet_bench.run(absolute)


def names(_):
    """Names and unwind tables of large files, beside LLVM's and binutils' tools."""
    names_bench.run(row, absolute, child_cpu_s)


def goroutines(_):
    """Goroutines of a Go program: CPU of the reader, and what it costs the program."""
    goroutines_bench.run(row, absolute)


def allocations(_):
    """Allocations of native programs: what observing them costs."""
    allocations_bench.run(row)


def coverage(_):
    """How true what is said of allocations is: 20 runs, some 15 minutes."""
    coverage_bench.run(absolute)


def intervals(_):
    """The same for 40 programs that are drawn by chance, and whether all sites of a session are off by one factor."""
    intervals_bench.run(absolute)


def leaks(_):
    """How soon a leak of 1 MB/s is named, and that nothing else is."""
    leaks_bench.run(absolute, 1_000_000, 60)


def slow_leaks(_):
    """The same of 10 KB/s: two and a half minutes."""
    leaks_bench.run(absolute, 10_000, 120)


def unseen(_):
    """Programs that profd has never seen: from their start to their first whole stack."""
    stacks_bench.unseen(absolute)


def storm(_):
    """200 programs a second of 3 ms each: what is kept of their time, and how whole their stacks are."""
    stacks_bench.storm(absolute)


def throughput(_):
    """System calls and a pipe's ping-pong while the host is sampled, beside the same without."""
    stacks_bench.throughput(absolute, child_cpu_s)


def high_rate(_):
    """Others' system calls while one small service is sampled at 999 Hz, beside the same without."""
    stacks_bench.high_rate(absolute, child_cpu_s)


def ready(_):
    """From the start to the unwind tables of 200 processes that run already."""
    stacks_bench.ready(absolute, lambda daemon: cpu_s(pids_of(daemon)))


def complete(_):
    """Stacks that are whole, of known programs of many builds and of clang, node and postgres, beside perf."""
    completeness_bench.known(absolute)
    completeness_bench.others(absolute)


def tables(_):
    """Unwind tables in the kernel beside the .eh_frame they were made from."""
    stacks_bench.tables(row)


def history(seconds):
    """Bytes of a sample, merges, pages, comparisons."""
    history_bench.run(row, absolute, seconds)


def verdicts(_):
    """The null and power tables of the comparison, in full: about half an hour."""
    history_bench.tables(absolute)


def lives(seconds):
    """Lives of real programs, all at once: eight of each, 140 pairs; and of one with a planted change: 10 minutes."""
    verdict_bench.run(absolute, seconds)


def waits(seconds):
    """The ledger against the kernel's counters, and a storm of switches."""
    waits_bench.exactness(absolute, seconds)
    waits_bench.storm(absolute, seconds)


def calls(seconds):
    """Every call that moves bytes recorded, beside the same program without a session."""
    waits_bench.calls(row, lambda daemon, pid: cpu_s([pid, *pids_of(daemon)]), seconds)


def viewers(_):
    """The flame graph page beside speedscope, d3-flame-graph and Grafana's component."""
    viewers_bench.run(row, absolute)


BENCHES = [names, goroutines, allocations, coverage, intervals, leaks, slow_leaks, busy, busy_fp, idle, switches, waits, calls, memory, memory_after, services, loss, startup, restart, otel, otel_mixed, scripts, python, libbpf, sampled, unseen, storm, throughput, high_rate, ready, complete, tables, history, verdicts, api, fleet, viewers, lives]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="length of each timed span")
    parser.add_argument("name", nargs="*", help="benches to run: " + " ".join(b.__name__ for b in BENCHES))
    parser.add_argument("--otel-dir", help="source of the OpenTelemetry eBPF profiler, to be built and measured beside us")
    parser.add_argument("--bcc-dir", help="source of bcc, the same with profile and memleak of its libbpf-tools")
    arguments = parser.parse_args()
    folders.update(otel=arguments.otel_dir, bcc=arguments.bcc_dir)
    check(os.geteuid() == 0, "the benches need root")
    for bench in BENCHES:
        if not arguments.name or bench.__name__ in arguments.name:
            print(f"{bench.__name__}: {bench.__doc__}", file=sys.stderr)
            bench(arguments.seconds)
    print("| measure | profd | rival | ratio | must | verdict | |\n|---|---|---|---|---|---|---|")
    for cells in rows:
        print("| " + " | ".join(cells) + " |")
    sys.exit(any(cells[5] == "MISSED" for cells in rows))


if __name__ == "__main__":
    main()
