# SPDX-License-Identifier: Apache-2.0
"""The time of threads in programs that are not ours: a database, a cache, a web server, a virtual machine, a Go
server. Each thread's time is explained: on a CPU, waiting for one, or blocked for a reason that has a name."""

import collections
import contextlib
import glob
import os
import shutil
import subprocess
import tempfile
import time

from harness import FAMILY_A, Daemon, Failure, check, free_port, lasted_ns, main, wait_until
from programs import build_go_source, load, postgres, started

SECONDS = 4
JAVA = """
import java.util.concurrent.*;
public class OffcpuJava {
    static final Object lock = new Object();
    static volatile long sum;
    static void work() throws Exception { synchronized (lock) { for (int i = 0; i < 100000; i++) sum += i; Thread.sleep(2); } }
    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 4; i++)
            new Thread(() -> { try { for (;;) work(); } catch (Exception e) { } }, "worker-" + i).start();
        BlockingQueue<Integer> queue = new ArrayBlockingQueue<>(10);
        new Thread(() -> { try { for (;;) { queue.put(1); Thread.sleep(5); } } catch (Exception e) { } }, "putter").start();
        System.out.println("ready");
        for (;;) queue.take();
    }
}
"""
GO = """
package main

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

func main() {
	var lock sync.Mutex
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		time.Sleep(time.Millisecond)
		lock.Unlock()
		fmt.Fprintln(w, "hello")
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
"""


def service_of(daemon, pid):
    def find():
        for item in daemon.get("/api/v1/observability/services").json()["items"]:
            if any(p["pid"] == pid for p in item["processes"]):
                return item["name"]
        return None

    return wait_until(find, 60, f"the service of {pid}")


def family(pid):
    """@pid and its children."""
    found = {pid}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as f:
            text = f.read()
            if int(text.rsplit(")", 1)[1].split()[1]) == pid:
                found.add(int(path.split("/")[2]))
    return found


def every_thread_is_explained(daemon, pid):
    daemon.profile(service_of(daemon, pid), 1, "offcpu")  # tables and names are there
    session = daemon.start_profile(service_of(daemon, pid), 600, "wall", 99)
    pids = family(pid)
    time.sleep(SECONDS)
    result = daemon.stop_profile(session)
    threads = [t for t in daemon.get(f"{FAMILY_A}/{session}/ledger").json()["threads"] if t["pid"] in pids]
    check(threads, f"no threads of {pids}")
    whole = [t for t in threads if t["elapsedNs"] >= 0.99 * lasted_ns(result)]
    check(whole, f"no thread lived all the time: {threads}")
    for t in threads:
        named = sum(ns for wait, ns in t["blockedNs"].items() if wait not in ("", "other", "unsampled"))
        explained = named + t["userNs"] + t["kernelNs"] + t["runqueueNs"] + t["preemptedNs"]
        if t["elapsedNs"] >= 2e8 and explained < 0.95 * t["elapsedNs"]:
            rest = [daemon.folded(session, f"&where=tid:{t['tid']}&where=wait:{w}") for w in ("other", "unsampled")]
            raise Failure(f"{t['thread']}: {100 * explained / t['elapsedNs']:.1f} % explained: {t}: {rest}: "
                          f"{result['quality']}")
        check(t["elapsedNs"] <= 1.01 * lasted_ns(result), f"{t['thread']}: {t['elapsedNs'] / 1e9:.2f} s")
    due = sum(t["elapsedNs"] for t in threads)
    stacks = [(s, v) for p in pids for s, v in daemon.folded(session, f"&where=pid:{p}")]
    without = sum(v for s, v in stacks if len(s) - ("[blocked, not sampled]" in s) <= 1 and s != ["[stolen]"])
    check(without <= 0.05 * due, f"{100 * without / due:.1f} % of the time has no stack")
    return session, threads


def postgres_under_pgbench(daemon):
    with tempfile.TemporaryDirectory() as folder, \
            postgres(folder, free_port()) as (process, where, tools):
        subprocess.run([tools + "/pgbench", *where, "-i", "-q", "postgres"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        # everybody waits for the one row that a slow transaction has changed
        script = os.path.join(folder, "convoy.sql")
        with open(script, "w") as f:
            f.write("begin; update pgbench_accounts set abalance = abalance + 1 where aid = 1;\n"
                    "select pg_sleep(0.01); end;\n")
        with load(tools + "/pgbench", *where, "-n", "-c", "6", "-T", "600", "-f", script, "postgres"):
            every_thread_is_explained(daemon, process.pid)
            session = daemon.start_profile(service_of(daemon, process.pid), 600, "block", 200)
            pids = family(process.pid)
            time.sleep(SECONDS)
            daemon.stop_profile(session)
            stacks = [(s, v) for p in pids for s, v in daemon.folded(session, f"&where=pid:{p}")]
        # who waits for the lock, by the outermost function that says so: the convoy is the first line
        lines = collections.Counter()
        for stack, value in stacks:
            lines[next((f for f in stack if f in ("XactLockTableWait", "heap_acquire_tuplock", "LockTuple")), stack[-1]
                       if len(stack) < 8 else " < ".join(stack[4:8]))] += value
        convoy = sum(lines[f] for f in ("XactLockTableWait", "heap_acquire_tuplock", "LockTuple"))
        rest = max(v for f, v in lines.items() if f not in ("XactLockTableWait", "heap_acquire_tuplock", "LockTuple"))
        check(convoy > rest and convoy > 2e9 * SECONDS, f"{lines.most_common(6)}")


def redis_under_its_benchmark(daemon):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, \
            started(["redis-server", "--port", str(port), "--dir", folder, "--appendonly", "yes"], port) as process, \
            load("redis-benchmark", "-p", str(port), "-q", "-l", "-t", "set,get", "-c", "10"):
        every_thread_is_explained(daemon, process.pid)


def nginx_under_wrk(daemon):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "index.html"), "w") as f:
            f.write("hello\n" * 1000)
        config = os.path.join(folder, "nginx.conf")
        with open(config, "w") as f:
            f.write(f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error;\nevents {{}}\n"
                    f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n")
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        with started([nginx, "-p", folder, "-c", config], port) as process, \
                load("wrk", "-t", "1", "-c", "8", "-d", "600", f"http://127.0.0.1:{port}/index.html"):
            every_thread_is_explained(daemon, process.pid)


def java_virtual_machine(daemon):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "OffcpuJava.java")
        with open(source, "w") as f:
            f.write(JAVA)
        with started(["java", "-Xmx256m", "-XX:-UsePerfData", source]) as process:
            every_thread_is_explained(daemon, process.pid)


def go_server_under_wrk(daemon):
    port = free_port()
    program = build_go_source("offcpu_go", GO)
    with started([program, str(port)], port) as process, \
            load("wrk", "-t", "1", "-c", "8", "-d", "600", f"http://127.0.0.1:{port}/"):
        every_thread_is_explained(daemon, process.pid)
        # all of its handlers queue for one lock
        result = daemon.profile(service_of(daemon, process.pid), 2, "mutex")
        stacks = daemon.folded(result["id"])
        longest = max(stacks, key=lambda line: line[1])
        check("main.main.func1" in longest[0] and longest[1] > 0.9 * sum(v for _, v in stacks), f"{stacks}")


def real_programs():
    with Daemon() as daemon:
        for program in (postgres_under_pgbench, redis_under_its_benchmark, nginx_under_wrk, java_virtual_machine,
                        go_server_under_wrk):
            program(daemon)


if __name__ == "__main__":
    main(real_programs)
