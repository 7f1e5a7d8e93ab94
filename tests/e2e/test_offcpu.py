# SPDX-License-Identifier: Apache-2.0
"""Time off the CPU against a program that measures its own waits (tests/workloads/off_waits.c): how long, in which
function, why, for which lock."""

import collections
import contextlib
import json
import math
import os
import subprocess
import time

from harness import FAMILY_A, WORKLOADS, Daemon, check, compile_workload, lasted_ns, main, own_name, running, wait_until

SECONDS = 5
# function: the wait kind of its blocked time, the smallest part that has it
WAITS = {"wait_sleep": "sleep", "wait_lock": "futex", "wait_condition": "futex", "wait_pipe": "pipe",
         "wait_socket": "socket", "wait_epoll": "epoll", "wait_sync": "disk", "wait_child": "child"}
HOGS = ("hog_a", "hog_b")
# libc's function that a whole stack must pass
LIBC = {"wait_sleep": "nanosleep", "wait_lock": "pthread_mutex_lock", "wait_condition": "pthread_cond_wait",
        "wait_pipe": "read", "wait_socket": "recv", "wait_epoll": "epoll_wait", "wait_sync": "fsync"}


class Waits:
    """The running program; counters() asks it for {function: [ns off the CPU, calls]} and its time."""

    def __init__(self):
        program = compile_workload("off_waits.c", "-O2", "-fomit-frame-pointer",
                                   "-fno-optimize-sibling-calls", "-lpthread")
        self.process = subprocess.Popen([program, WORKLOADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        check(self.process.stdout.readline() == "ready\n", "the program is not ready")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def counters(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def profiled(daemon, waits, kind, seconds=SECONDS, rate=1000):
    """Yields the result of a session of @kind and what the program counted meanwhile, as (at least, at most): the
    session begins and ends while its requests are being answered, and waits do not come at an even pace."""
    outer = [waits.counters()]
    session = daemon.start_profile("off_waits", 600, kind, rate)
    inner = [waits.counters()]
    time.sleep(seconds)
    inner.append(waits.counters())
    result = daemon.stop_profile(session)
    outer.append(waits.counters())
    result["of"] = f"&where=pid:{waits.process.pid}"  # its children's waits are their own
    yield result, {name: [tuple(after[name][i] - before[name][i] for before, after in (inner, outer)) for i in (0, 1)]
                   for name in inner[0] if name != "time"}


def values(stacks, function):
    return sum(value for stack, value in stacks if function in stack)


def near(what, got, due, percent, samples):
    """@got is @due, or between its two values, but for @percent and four standard deviations of so many samples."""
    low, high = due if isinstance(due, tuple) else (due, due)
    allowed = percent / 100 + 4 / math.sqrt(max(samples, 1)) * 0.1
    check(low * (1 - allowed) <= got <= high * (1 + allowed),
          f"{what}: {got / 1e6:.1f}, should be {low / 1e6:.1f} to {high / 1e6:.1f} but for {100 * allowed:.1f} %")


def tables_are_there(daemon):
    """A daemon that has just begun on a busy machine does not know every library at once."""
    def whole():
        errors = daemon.profile("off_waits", 1, "offcpu", 1000)["quality"]["unwindErrors"]
        return not {"no_rows", "no_mapping"} & set(errors)

    wait_until(whole, 60, "unwind tables")


def offcpu_of_every_function():
    with Daemon() as daemon, Waits() as waits, contextlib.ExitStack() as stack:
        tables_are_there(daemon)
        result, truth = stack.enter_context(profiled(daemon, waits, "offcpu"))
        def named():  # names may come some seconds after the session on a busy machine
            found = daemon.folded(result["id"], result["of"])
            return found if not any("[unknown] libc" in f for s, _ in found for f in s) else None

        stacks = wait_until(named, 30, "libc's names")
        states = daemon.folded(result["id"], "&groupBy=state" + result["of"])
        kinds = daemon.folded(result["id"], "&groupBy=wait" + result["of"])
        for name in (*WAITS, *HOGS):
            near(name, values(stacks, name), truth[name][0], 3, result["sampleCount"] / 10)
        for name, kind in WAITS.items():
            blocked = sum(v for s, v in states if name in s and s[0] == "blocked")
            right = sum(v for s, v in kinds if name in s and s[0] == kind)
            check(right >= 0.97 * blocked, f"{name}: {100 * right / blocked:.1f} % of it waits for {kind}")
            if name in LIBC:
                through = sum(v for s, v in stacks if name in s and any(LIBC[name] in f for f in s))
                check(through >= 0.97 * values(stacks, name), f"{name}: not through {LIBC[name]}: "
                      f"{[s for s, _ in stacks if name in s][:2]}")
        for name in HOGS:
            waiting = sum(v for s, v in states if name in s and s[0] in ("runqueue", "preempted"))
            check(waiting >= 0.97 * values(stacks, name), f"{name}: {waiting / 1e6:.0f} ms on run queues")
        whole = sum(v for s, v in stacks if any(f in s for f in ("main", "start_thread", "clone3", "__clone3")))
        ended = sum(v for s, v in stacks if "[blocked, not sampled]" not in s)
        check(whole >= 0.97 * ended, f"{100 * whole / ended:.1f} % of the stacks are whole")


def waits_across_both_ends():
    """A thread that was blocked before and still is afterwards counts with what fell inside."""
    with Daemon() as daemon, Waits() as waits:
        for _ in range(2):  # the second begins while nothing else is followed any more
            with profiled(daemon, waits, "offcpu", 2) as (result, _):
                stacks = daemon.folded(result["id"], result["of"] + "&groupBy=thread")
                due = lasted_ns(result)
                for thread in ("forever", "off_waits"):
                    got = sum(v for s, v in stacks if s[0] == thread)
                    near(thread, got, due, 1, 1e6)
                check(any("[blocked, not sampled]" in s for s, _ in stacks if s[0] == "forever"), f"{stacks[:3]}")
                kinds = daemon.folded(result["id"], result["of"] + "&groupBy=wait&where=thread:forever")
                check({s[0] for s, _ in kinds} == {"futex"}, f"{kinds}")


def wall_is_all_of_every_thread():
    with Daemon() as daemon, Waits() as waits, profiled(daemon, waits, "wall", 3) as (result, _):
        threads = daemon.get(f"{FAMILY_A}/{result['id']}/ledger").json()["threads"]
        mine = {t["thread"]: t for t in threads if t["pid"] == waits.process.pid}
        for name in (*WAITS, *HOGS, "owner", "feeder", "forever", "off_waits"):
            near(name, mine[name]["elapsedNs"], lasted_ns(result), 1, 1e12)
            parts = (mine[name]["userNs"] + mine[name]["kernelNs"] + mine[name]["runqueueNs"] +
                     mine[name]["preemptedNs"] + sum(mine[name]["blockedNs"].values()))
            near(f"parts of {name}", parts, mine[name]["elapsedNs"], 1, 1e12)


def schedstats(pid):
    """{tid: [clock, ns on a CPU, ns on run queues]}"""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            cpu, waits = map(int, f.read().split()[:2])
        found[int(tid)] = [time.monotonic_ns(), cpu, waits]
    return found


def blocked_time_is_what_the_kernel_leaves():
    """The ledger lies between what the kernel counted just inside of the session and just outside."""
    with Daemon() as daemon, Waits() as waits:
        outer = schedstats(waits.process.pid)
        session = daemon.start_profile("off_waits", 600, "wall", 99)
        inner = schedstats(waits.process.pid)
        time.sleep(SECONDS)
        inner_end = schedstats(waits.process.pid)
        result = daemon.stop_profile(session)
        outer_end = schedstats(waits.process.pid)
        threads = daemon.get(f"{FAMILY_A}/{session}/ledger").json()["threads"]
        mine = {t["tid"]: t for t in threads if t["pid"] == waits.process.pid}
        check(set(inner) == set(mine), f"{len(mine)} threads of {len(inner)}")

        def parts(first, last):
            elapsed, cpu, queued = (b - a for a, b in zip(first, last))
            return {"on CPU": cpu, "waiting for a CPU": queued, "blocked": elapsed - cpu - queued}

        for tid, t in mine.items():
            least, most = parts(inner[tid], inner_end[tid]), parts(outer[tid], outer_end[tid])
            got = {"on CPU": t["userNs"] + t["kernelNs"],
                   "waiting for a CPU": t["runqueueNs"] + t["preemptedNs"],
                   "blocked": sum(t["blockedNs"].values())}
            slack = 0.03 * t["elapsedNs"]  # the last reading comes late on a busy machine
            for what, value in got.items():
                check(least[what] - slack <= value <= most[what] + slack,
                      f"{t['thread']} {what}: {value / 1e6:.0f} ms, {least[what] / 1e6:.0f} to "
                      f"{most[what] / 1e6:.0f} are due: {t}")
        total = sum(t["elapsedNs"] for t in threads)
        check(abs(total / result["totalValue"] - 1) < 0.01, f"{total} of {result['totalValue']}")


def mutex_names_lock_and_waiter():
    with Daemon() as daemon, Waits() as waits, profiled(daemon, waits, "mutex") as (result, truth):
        stacks = daemon.folded(result["id"], result["of"])
        total = sum(v for _, v in stacks)
        near("wait_lock", values(stacks, "wait_lock"), truth["wait_lock"][0], 5, result["sampleCount"] / 10)
        known = values(stacks, "wait_lock") + sum(
            v for s, v in stacks if any(f in s for f in ("own", "wait_condition", "feed", "[blocked, not sampled]")))
        check(known >= 0.99 * total, f"other waits: {[s for s, _ in stacks if 'wait_lock' not in s][:3]}")
        locks = result["breakdown"]["lock"]
        check(any(lock.startswith("futex 0x") and lock.endswith(" in wait_lock") for lock in locks), f"{locks}")


def mutex_names_every_holder():
    """Also of locks that do not say who holds them, and although the holders never wait for a lock."""
    program = compile_workload("off_locks.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    with Daemon() as daemon, own_name(program) as name, running(name):
        session = daemon.start_profile(os.path.basename(name), 600, "mutex", 1000)
        time.sleep(3)
        result = daemon.stop_profile(session)
        stacks = daemon.folded(session, "&groupBy=holder")
        for kind in ("plain", "timed", "robust", "pi", "reader", "writer", "word", "vector"):
            of = collections.Counter()
            for stack, value in stacks:
                if f"wait_{kind}" in stack:
                    of[stack[0].split(" ")[0]] += value
            check(sum(of.values()) > 0.3 * lasted_ns(result), f"{kind}: {sum(of.values()) / 1e6:.0f} ms of waiting")
            check(of[f"h_{kind}"] >= 0.9 * sum(of.values()), f"{kind}: held by {of}")
            locks = [lock for lock in result["breakdown"]["lock"] if lock.endswith(f" in wait_{kind}")]
            check(locks, f"{kind}: {result['breakdown']['lock']}")


def block_counts_contentions():
    with Daemon() as daemon, Waits() as waits, profiled(daemon, waits, "block") as (result, truth):
        stacks = daemon.folded(result["id"], result["of"])
        for name in ("wait_lock", "wait_condition", "wait_pipe", "wait_epoll", "wait_child"):
            # forking waits for CPUs too, which does not count here
            near(name, values(stacks, name), truth[name][0], 15 if name == "wait_child" else 5,
                 result["sampleCount"] / 10)
        check(values(stacks, "wait_sleep") == 0, "sleeping is no synchronization")
        check(values(stacks, "hog_a") == 0, "nor is waiting for a CPU")


def io_by_kind():
    with Daemon() as daemon, Waits() as waits, profiled(daemon, waits, "io") as (result, truth):
        stacks = daemon.folded(result["id"], "&groupBy=kind" + result["of"])
        for name, kind in (("wait_pipe", "pipe"), ("wait_socket", "socket"), ("wait_sync", "sync")):
            mine = sum(v for s, v in stacks if name in s and s[0] == kind)
            near(name, mine, truth[name][0], 6, result["sampleCount"] / 10)
        check(values(stacks, "wait_lock") == 0, "locks are not I/O")
        check(any("bytes" in note for note in result["quality"]["notes"]), f"{result['quality']}")


def io_counts_bytes():
    """Also of calls that never wait; what is sampled is right in the mean."""
    program = compile_workload("off_io.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    kinds = {"read_file": "file", "write_file": "file", "write_pipe": "pipe", "send_socket": "socket"}
    with Daemon() as daemon, own_name(program) as name, subprocess.Popen(
            [name, WORKLOADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            def counters():
                process.stdin.write("\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            check(process.stdout.readline() == "ready\n", "the program is not ready")
            daemon.profile(os.path.basename(name), 1, "io", 1000)  # unwind tables are there
            outer = [counters()]
            session = daemon.start_profile(os.path.basename(name), 600, "io", 1000)
            inner = [counters()]
            time.sleep(4)
            inner.append(counters())
            result = daemon.stop_profile(session)
            outer.append(counters())
            moved = daemon.folded(session, "&groupBy=kind&value=bytes")
            calls = daemon.folded(session, "&groupBy=kind&value=operations")
        finally:
            process.kill()
        for function, kind in kinds.items():
            # a tenth of some thousand samples at least: four standard deviations are 20 %
            for which, stacks in enumerate((moved, calls)):
                due = tuple(last[function][which] - first[function][which] for first, last in (inner, outer))
                near(f"{function} {which}", 1e6 * values(stacks, function), tuple(1e6 * d for d in due), 30, 1e12)
                right = sum(v for s, v in stacks if function in s and s[0] == kind)
                check(right >= 0.97 * values(stacks, function), f"{function}: {right} of {values(stacks, function)} {kind}")
        check(any("estimated" in note for note in result["quality"]["notes"]), f"{result['quality']}")


if __name__ == "__main__":
    main(offcpu_of_every_function, waits_across_both_ends, wall_is_all_of_every_thread,
         blocked_time_is_what_the_kernel_leaves, mutex_names_lock_and_waiter, mutex_names_every_holder, block_counts_contentions, io_by_kind,
         io_counts_bytes)
