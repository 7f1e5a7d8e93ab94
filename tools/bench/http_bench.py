# SPDX-License-Identifier: Apache-2.0
"""Answers of the API at a hundred requests a second, the server on one core: times from when a request was due, and CPU
time of the server for each."""

import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time

import test_crowd
from harness import BUILD, FAMILY_A, Daemon, check, compile_workload, cpu_ns, own_name, running, wait_until

RATE, SECONDS, CLIENTS = 100, 10, 16
NODES = 100_000


def large_session(daemon, service):
    """A session whose flame graph has 100,000 nodes."""
    session = daemon.start_profile(service, 600, rate=999)
    wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}?top=1").json()["sampleCount"] > 3000, 120, "enough samples")
    daemon.stop_profile(session)
    graph = json.loads(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=flame&maxNodes={NODES}").body)
    nodes = len(graph["node"]["fn"])
    check(nodes > 0.9 * NODES, f"only {nodes} nodes")
    return session


def load(daemon, server, path, headers):
    """(sorted seconds, CPU seconds a request, bytes of an answer)"""
    times, sizes, failures = [], [], []
    begin = time.monotonic() + 0.2
    cpu = cpu_ns(server)

    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        for i in range(number, RATE * SECONDS, CLIENTS):
            due = begin + i / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            sizes.append(len(answer.read()))
            times.append(time.monotonic() - due)
            if answer.status not in (200, 304):
                failures.append(answer.status)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, f"{path}: {failures[:5]}")
    return sorted(times), (cpu_ns(server) - cpu) / 1e9 / len(times), sizes[0]


def p99_ms(times):
    return 1e3 * sorted(times)[int(len(times) * 0.99)]


def crowds(absolute):
    """A good client's times beside bad ones."""
    with Daemon("--no-collect", "--set", "limits.requests_per_second=1000000", "--set", "limits.request_burst=1000000") as daemon:
        before = test_crowd.memory_mb(daemon)
        with test_crowd.Good(daemon) as good:
            wait_until(lambda: good.failure or len(good.times) > 300, 120, "a client alone")
        good.report("alone")
        absolute("GET of a page, one client alone, p99 ms", p99_ms(good.times), 100)
        for count, drips in ((250, True), (300, False)):
            socks = [socket.create_connection(("127.0.0.1", daemon.port), timeout=60) for _ in range(count)]
            until = threading.Event()
            thread = threading.Thread(target=test_crowd.drip, args=(socks, until), daemon=True)
            if drips:
                thread.start()
            with test_crowd.Good(daemon) as good:
                wait_until(lambda g=good: g.failure or len(g.times) > 300, 120, "a client beside others")
            until.set()
            if drips:
                thread.join()
            for sock in socks:
                sock.close()
            good.report("beside slow ones")
            absolute(f"GET of a page beside {count} {'dripping' if drips else 'silent'} clients, p99 ms", p99_ms(good.times), 100)
        with test_crowd.Good(daemon) as good:
            for i in range(10000):
                test_crowd.answer_of(daemon.port, test_crowd.HOSTILE[i % len(test_crowd.HOSTILE)][1])
        good.report("beside hostile ones")
        absolute("GET of a page beside 10,000 hostile connections in turn, p99 ms", p99_ms(good.times), 100,
                 f"memory {test_crowd.memory_mb(daemon) - before:+.0f} MB")


def rendering(absolute):
    """Memory that writing a million stacks takes, beside the profile itself."""
    for line in subprocess.run([f"{BUILD}/tools/bench/render"], capture_output=True, text=True, check=True).stdout.splitlines():
        name, held, written, more, cpu = line.split()
        absolute(f"a million stacks as {name}: MiB of memory more than the profile's {float(held):.0f}", float(more), float(held),
                 f"{written} MiB written, {cpu} s of CPU")


def large_file(daemon, server, session, absolute):
    """A file of many MB, to a client that takes no gzip."""
    def memory_mb(name):
        with open(f"/proc/{server}/status") as f:
            return int(re.search(rf"{name}:\s+(\d+)", f.read()).group(1)) / 1024

    with open(f"/proc/{server}/clear_refs", "w") as f:
        f.write("5")
    before = memory_mb("VmRSS")
    size = len(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=perfscript").body) / 2**20
    absolute(f"perf script text of {size:.0f} MiB: MiB of the server's memory at the most", memory_mb("VmHWM") - before, size / 2)


def run(absolute):
    rendering(absolute)
    crowds(absolute)
    graphs(absolute)


def graphs(absolute):
    program = compile_workload("many_stacks.c", "-O1", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer")
    with own_name(program) as copy, Daemon() as daemon:
        with running(copy, ready=False):
            session = large_session(daemon, os.path.basename(copy))
            server = daemon.children()["profd-server"]
            large_file(daemon, server, session, absolute)
            for _ in range(20):
                daemon.profile(os.path.basename(copy), 1)
        page = f"{FAMILY_A}/history?limit=20"
        check(len(daemon.get(page).json()["items"]) == 20, "the page is not full")
        for task in os.listdir(f"/proc/{server}/task"):
            os.sched_setaffinity(int(task), {0})
        packed = {"Accept-Encoding": "gzip"}
        begin = cpu_ns(server)
        etag = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=flame", headers=packed).headers["ETag"]
        first_ms = (cpu_ns(server) - begin) / 1e6
        for name, path, headers in (
                ("GET of a session", f"{FAMILY_A}/{session}", packed),
                ("GET of a page of 20 sessions", page, packed),
                ("GET of a flame graph of 100,000 nodes, seen before", f"{FAMILY_A}/{session}/flamegraph?format=flame",
                 {**packed, "If-None-Match": etag}),
                ("GET of a flame graph of 100,000 nodes", f"{FAMILY_A}/{session}/flamegraph?format=flame", packed)):
            times, cpu, size = load(daemon, server, path, headers)
            absolute(f"{name}, p99 ms at {RATE}/s on one core", 1e3 * times[int(len(times) * 0.99)], 100,
                     f"p50 {1e3 * times[len(times) // 2]:.2f}, CPU {1e6 * cpu:.0f} us a request, {size} bytes"
                     + (f"; made the first time in {first_ms:.0f} ms of CPU" if "flame" in name else ""))
