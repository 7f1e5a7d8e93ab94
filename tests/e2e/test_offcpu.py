# SPDX-License-Identifier: Apache-2.0
"""Time off the CPU against a program that measures its own waits (tests/workloads/off_waits.c): how long, in which
function, why, for which lock."""

import collections
import contextlib
import datetime
import math
import os
import time

from harness import (FAMILY_A, WORKLOADS, Counting, Daemon, Failure, check, compile_workload, lasted_ns, main, own_name, running,
                     wait_until)

SECONDS = 5
# function: the wait kind of its blocked time, the smallest part that has it
WAITS = {"wait_sleep": "sleep", "wait_lock": "futex", "wait_condition": "futex", "wait_pipe": "pipe",
         "wait_socket": "socket", "wait_epoll": "epoll", "wait_sync": "disk", "wait_child": "child",
         "wait_rwlock": "futex", "wait_semaphore": "futex"}
HOGS = ("hog_a", "hog_b")
# libc's function that a whole stack must pass
LIBC = {"wait_sleep": "nanosleep", "wait_lock": "pthread_mutex_lock", "wait_condition": "pthread_cond_wait",
        "wait_pipe": "read", "wait_socket": "recv", "wait_epoll": "epoll_wait", "wait_sync": "fsync",
        "wait_rwlock": "pthread_rwlock_rdlock", "wait_semaphore": "sem_wait"}


@contextlib.contextmanager
def waits():
    """The running program; counters() asks it for {function: [ns off the CPU, calls]} and its time."""
    program = compile_workload("off_waits.c", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-lpthread")
    with own_name(program) as name, Counting(name, WORKLOADS) as process:
        yield process


def taken_ns():
    """Time that interrupts and the hypervisor took from all CPUs. A thread's CPU time does not
    include it, and the thread is not off the CPU meanwhile."""
    with open("/proc/stat") as f:
        irq, softirq, steal = map(int, f.readline().split()[6:9])
    return (irq + softirq + steal) * 1e9 / os.sysconf("SC_CLK_TCK")


class Truth:
    """Counters of the program and of the kernel, at moments before, in and after a session."""

    def __init__(self, program):
        self.program = program
        self.moments = []  # begin, end, counters, schedstats, taken_ns

    def look(self):
        begin = time.time()
        found = self.program.counters(), schedstats(self.program.pid), taken_ns()
        self.moments.append((begin, time.time(), *found))

    @staticmethod
    def ends(result):
        return (datetime.datetime.fromisoformat(result[name].replace("Z", "+00:00")).timestamp()
                for name in ("startedAt", "completedAt"))

    def is_behind(self, result):
        """A wait that goes on at the end has a quarter of a second to be counted by the program."""
        _, ended = self.ends(result)
        return self.moments[-1][0] >= ended + 0.25

    def around(self, result):
        """The moments just inside of a session and those outside: ((first, last), (first, last))."""
        started, ended = self.ends(result)
        return ((next(m for m in self.moments if m[0] >= started), [m for m in self.moments if m[1] <= ended][-1]),
                ([m for m in self.moments if m[1] <= started][-1], next(m for m in self.moments if m[0] >= ended + 0.25)))

    def counted(self, result):
        """{function: [ns off the CPU, calls]} in a session, each as (at least, at most): waits do not come at an even
        pace. wait_sync uses CPUs and has interrupts for every wait, which its own clock cannot tell from it."""
        spans = [(first[2], last[2]) for first, last in self.around(result)]
        (_, (first, last)) = self.around(result)
        found = {name: [tuple(last[name][i] - first[name][i] for first, last in spans) for i in (0, 1)]
                 for name in spans[0][0] if name != "time"}
        least, most = found["wait_sync"][0]
        found["wait_sync"][0] = least - (last[4] - first[4]), most
        return found

    def queued_ns(self, result, thread):
        """How long the thread of this name waited for CPUs, at most."""
        _, (first, last) = self.around(result)
        for tid, (_, _, queued) in last[3].items():
            with open(f"/proc/{self.program.pid}/task/{tid}/comm") as f:
                if f.read().strip() == thread:
                    return queued - first[3][tid][2]
        raise Failure(f"no thread is called {thread}")


def window(daemon, program, kinds, seconds=SECONDS, extra=None):
    """Sessions of all @kinds at once, with further members of their requests: {kind: result} and what is true
    meanwhile."""
    truth = Truth(program)
    sessions = {}
    truth.look()
    for kind, rate in kinds.items():
        sessions[kind] = daemon.start_profile(program.service, 600, kind, rate, **(extra or {}).get(kind, {}))
        truth.look()
    time.sleep(seconds)
    truth.look()
    for session in sessions.values():
        check(daemon.request("DELETE", f"{FAMILY_A}/{session}").status == 202, "the session does not stop")

    def ended():
        """All of them, and looked at after the last one's end."""
        truth.look()
        return all(result["status"] != "running" and truth.is_behind(result) for result in (
            daemon.get(f"{FAMILY_A}/{session}?top=0").json() for session in sessions.values()))

    wait_until(ended, 60, "the sessions to end")
    return {kind: daemon.finish_profile(session) for kind, session in sessions.items()}, truth


def values(stacks, function):
    return sum(value for stack, value in stacks if function in stack)


def near(what, got, due, percent, samples):
    """@got is @due, or between its two values, but for @percent and four standard deviations of so many samples."""
    low, high = due if isinstance(due, tuple) else (due, due)
    allowed = percent / 100 + 4 / math.sqrt(max(samples, 1)) * 0.1
    check(low * (1 - allowed) <= got <= high * (1 + allowed),
          f"{what}: {got / 1e6:.1f}, should be {low / 1e6:.1f} to {high / 1e6:.1f} but for {100 * allowed:.1f} %")


def tables_are_there(daemon, program):
    """A daemon that has just begun on a busy machine does not know every library at once."""
    def whole():
        errors = daemon.profile(program.service, 1, "offcpu", 1000)["quality"]["unwindErrors"]
        return not {"no_rows", "no_mapping"} & set(errors)

    wait_until(whole, 60, "unwind tables")


def every_function_is_named(daemon, result, truth):
    counted = truth.counted(result)
    def named():  # names may come some seconds after the session on a busy machine
        found = daemon.folded(result["id"])
        return found if not any("[unknown] libc" in f for s, _ in found for f in s) else None

    stacks = wait_until(named, 60, "libc's names")
    states = daemon.folded(result["id"], "&groupBy=state")
    kinds = daemon.folded(result["id"], "&groupBy=wait")
    # By the program's clock a thread is off the CPU while interrupts run in its place; no function has that time.
    threads = daemon.folded(result["id"], "&groupBy=thread")
    stolen = {name: sum(v for s, v in threads if s[0] == name and "[stolen]" in s) for name in HOGS}
    (_, (first, last)) = truth.around(result)
    check(sum(stolen.values()) <= last[4] - first[4] + 3e7, f"{stolen} of {last[4] - first[4]:.0f} ns that were taken")
    for name in (*WAITS, *HOGS):
        near(name, values(stacks, name) + stolen.get(name, 0), counted[name][0], 3, result["sampleCount"] / 10)
    for name, kind in WAITS.items():
        blocked = sum(v for s, v in states if name in s and s[0] == "blocked")
        right = sum(v for s, v in kinds if name in s and s[0] == kind)
        check(right >= 0.97 * blocked, f"{name}: {100 * right / blocked:.1f} % of it waits for {kind}: "
              f"{[(s[0], v, s[-4:]) for s, v in kinds if name in s and s[0] != kind]}")
        if name in LIBC:
            through = sum(v for s, v in stacks if name in s and any(LIBC[name] in f for f in s))
            check(through >= 0.99 * values(stacks, name), f"{name}: not through {LIBC[name]}: "
                  f"{[s for s, _ in stacks if name in s][:2]}")
    for name in HOGS:
        waiting = sum(v for s, v in states if name in s and s[0] in ("runqueue", "preempted"))
        check(waiting >= 0.97 * values(stacks, name), f"{name}: {waiting / 1e6:.0f} ms on run queues")
    # Waits whose end the kernel did not show have no stack of the program, and say so.
    unseen = sum(v for s, v in stacks if "[blocked, not sampled]" in s)
    whole = sum(v for s, v in stacks if any(f in s for f in ("main", "start_thread", "clone3", "__clone3")))
    total = sum(v for _, v in stacks)
    check(unseen <= 0.03 * total, f"{100 * unseen / total:.2f} % of the time has no samples")
    check(whole >= 0.99 * (total - unseen), f"{100 * whole / (total - unseen):.2f} % of the stacks are whole: "
          f"{[s for s, _ in stacks if not {'main', 'start_thread', 'clone3', '__clone3'} & set(s)][:5]}")


def intervals_hold_the_truth(daemon, result, truth):
    """The intervals of functions whose waits were sampled hold the program's own counts. Each
    interval is widened to twice its width, which misses the truth once in ten thousand times, and
    by 3 % for differing clocks."""
    counted = truth.counted(result)
    rows = {row["funcName"]: row for row in daemon.get(f"{FAMILY_A}/{result['id']}?top=1000").json()["topFunctions"]}
    for name in (*WAITS, *HOGS):
        value, (low, high) = rows[name]["cumulativeValue"], rows[name]["confidenceInterval"]
        least, most = counted[name][0]
        check(low <= value <= high, f"{name}: {value} in {low} to {high}")
        check(0.97 * low * low / value <= most and 0.97 * least <= high * high / value,
              f"{name}: {low} to {high}, {least} to {most} are due")


def waits_are_cut_at_both_ends(daemon, result):
    """A thread that was blocked before and still is afterwards counts with what fell inside, where it waits."""
    due = lasted_ns(result)
    stacks = daemon.folded(result["id"], "&groupBy=thread")
    for thread in ("forever", "off_waits"):
        mine = [(s, v) for s, v in stacks if s[0].startswith(thread)]
        near(thread, sum(v for _, v in mine), due, 1, 1e6)
        function = "wait_for_ever" if thread == "forever" else "main"
        check(values(mine, function) >= 0.97 * due, f"{thread}: not in {function}: {mine}")
    kinds = daemon.folded(result["id"], "&groupBy=wait&where=thread:forever")
    check({s[0] for s, _ in kinds} == {"futex"}, f"{kinds}")


def schedstats(pid):
    """{tid: [clock, ns on a CPU, ns on run queues]}"""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            cpu, queued = map(int, f.read().split()[:2])
        found[int(tid)] = [time.monotonic_ns(), cpu, queued]
    return found


def wall_is_all_of_every_thread(daemon, result, truth):
    """The ledger's parts sum to the time that passed, and lie between what the kernel counted just inside of the
    session and just outside."""
    # of running threads, which its waits say nothing about
    check(abs(result["quality"]["effectiveRate"] / result["sampleRate"] - 1) < 0.05, f"{result['quality']}")
    threads = daemon.get(f"{FAMILY_A}/{result['id']}/ledger").json()["threads"]
    mine = {t["tid"]: t for t in threads}
    (inner, inner_end), (outer, outer_end) = ((first[3], last[3]) for first, last in truth.around(result))
    check(set(inner) == set(mine), f"{len(mine)} threads of {len(inner)}")

    def parts(first, last):
        elapsed, cpu, queued = (b - a for a, b in zip(first, last))
        return {"on CPU": cpu, "waiting for a CPU": queued, "blocked": elapsed - cpu - queued}

    for tid, t in mine.items():
        least, most = parts(inner[tid], inner_end[tid]), parts(outer[tid], outer_end[tid])
        got = {"on CPU": t["userNs"] + t["kernelNs"],
               "waiting for a CPU": t["runqueueNs"] + t["preemptedNs"] - t["stolenNs"],
               # neither on its CPU nor waiting for one, for the kernel's counts
               "blocked": sum(t["blockedNs"].values()) + t["stolenNs"]}
        near(t["thread"], t["elapsedNs"], lasted_ns(result), 1, 1e12)
        near(f"parts of {t['thread']}", sum(got.values()), t["elapsedNs"], 1, 1e12)
        # the last reading comes late on a busy machine; and the kernel counts a wait for a CPU when it ends
        slack = (0.1 if t["thread"] in HOGS else 0.03) * t["elapsedNs"]
        for what, value in got.items():
            check(least[what] - slack <= value <= most[what] + slack,
                  f"{t['thread']} {what}: {value / 1e6:.0f} ms, {least[what] / 1e6:.0f} to "
                  f"{most[what] / 1e6:.0f} are due: {t}")
    total = sum(t["elapsedNs"] for t in threads)
    check(abs(total / result["totalValue"] - 1) < 0.01, f"{result['totalValue']} instead of {total}")


def mutex_names_lock_and_waiter(daemon, result, truth):
    counted = truth.counted(result)
    stacks = daemon.folded(result["id"])
    total = sum(v for _, v in stacks)
    locks = result["breakdown"]["lock"]
    for name in ("wait_lock", "wait_rwlock"):
        near(name, values(stacks, name), counted[name][0], 5, result["sampleCount"] / 10)
        check(any(lock.startswith("futex 0x") and lock.endswith(f" in {name}") for lock in locks), f"{locks}")
    known = ("wait_lock", "wait_rwlock", "own", "rewrite", "wait_condition", "feed", "wait_for_ever")
    rest = [(s, v) for s, v in stacks if not set(known) & set(s)]
    check(sum(v for _, v in rest) <= 0.01 * total, f"other waits: {rest[:3]}")
    holders = daemon.folded(result["id"], "&groupBy=holder")
    for name, holder in (("wait_lock", "owner"), ("wait_rwlock", "writer")):
        held = sum(v for s, v in holders if name in s and s[0].startswith(f"{holder} ("))
        check(held >= 0.97 * values(stacks, name), f"{name}: held by {holder} {held / 1e6:.0f} ms of "
              f"{values(stacks, name) / 1e6:.0f}")


def block_counts_contentions(daemon, result, truth):
    counted = truth.counted(result)
    stacks = daemon.folded(result["id"])
    for name in ("wait_lock", "wait_condition", "wait_pipe", "wait_epoll", "wait_child", "wait_rwlock", "wait_semaphore"):
        # forking waits for CPUs too, which does not count here
        near(name, values(stacks, name), counted[name][0], 15 if name == "wait_child" else 5, result["sampleCount"] / 10)
    check(values(stacks, "wait_sleep") == 0, "sleeping is no synchronization")
    check(values(stacks, "hog_a") == 0, "nor is waiting for a CPU")


def io_has_kinds(daemon, result, truth):
    """Waiting for a CPU afterwards is no I/O: that is much of a wait for a fast disk."""
    counted = truth.counted(result)
    stacks = daemon.folded(result["id"], "&groupBy=kind")
    for name, kind in (("wait_pipe", "pipe"), ("wait_socket", "socket"), ("wait_sync", "sync")):
        mine = sum(v for s, v in stacks if name in s and s[0] == kind)
        least, most = counted[name][0]
        near(name, mine, (least - truth.queued_ns(result, name), most), 6, result["sampleCount"] / 10)
    check(values(stacks, "wait_lock") == 0, "locks are not I/O")
    disk_waits_have_parts(daemon, result)
    check(any("bytes" in note for note in result["quality"]["notes"]), f"{result['quality']}")
    # of a part of the time only waits are known
    path = f"{FAMILY_A}/{result['id']}/flamegraph?from={result['startedAt']}&format=folded"
    check(daemon.request("GET", path).status == 200, "waits since the begin")
    answer = daemon.request("GET", path + "&value=bytes")
    check(answer.status == 422 and answer.json()["details"]["field"] == "value", f"{answer}")


def disk_waits_have_parts(daemon, result):
    """Every wait for a disk: at which device, in its queue, or for what is not the thread's own request."""
    parts = result["breakdown"]["disk"]
    waited = sum(v for _, v in daemon.folded(result["id"], "&where=wait:disk"))
    check(sum(parts.values()) == waited > 0, f"{parts}: {waited}")
    devices = {name.rsplit(" ", 1)[0] for name in parts if name != "not joined"}
    check(devices <= {name[:8] for name in os.listdir("/sys/block")}, f"{parts}")
    number = os.stat(WORKLOADS).st_dev
    if os.path.exists(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"):  # else nobody says which it is
        own = daemon.folded(result["id"], "&groupBy=disk&where=kind:sync")
        check(any("wait_sync" in s and s[0].endswith(" device") for s, _ in own), f"{own}")


def waits_have_paths(daemon, result):
    stacks = daemon.folded(result["id"], "&groupBy=path")
    for name, path in (("wait_sync", os.path.abspath(WORKLOADS) + "/off_waits."), ("wait_pipe", "pipe:["),
                       ("wait_socket", "unix")):
        right = sum(v for s, v in stacks if name in s and path in s[0])
        check(right >= 0.97 * values(stacks, name) > 0, f"{name}: {path}: {[s[0] for s, _ in stacks if name in s]}")


def wakers_are_named(daemon, result):
    stacks = daemon.folded(result["id"], "&where=state:blocked")

    def woken_by(stack):
        return stack[stack.index("[woken by]") + 1:] if "[woken by]" in stack else []

    for name in ("wait_pipe", "wait_socket", "wait_epoll", "wait_condition", "wait_lock"):
        waker = "own" if name == "wait_lock" else "feed"
        mine = [(woken_by(s), v) for s, v in stacks if name in s]
        known = sum(v for s, v in mine if s)  # waits that stand for others have none
        right = sum(v for s, v in mine if waker in s)
        check(known >= 0.2 * sum(v for _, v in mine), f"{name}: {known / 1e6:.0f} ms with wakers: {mine}")
        check(right >= 0.9 * known, f"{name}: {right / 1e6:.0f} of {known / 1e6:.0f} ms woken by {waker}: {mine}")
    check(not any(frame.startswith(("bpf_", "__traceiter")) for s, _ in stacks for frame in woken_by(s)), "our own program wakes nobody")
    sleeps = [(woken_by(s), v) for s, v in stacks if "wait_sleep" in s and "[woken by]" in s]
    by_timer = sum(v for s, v in sleeps if "start_thread" not in s)  # not what a timer interrupted
    check(sleeps and by_timer >= 0.7 * sum(v for _, v in sleeps), f"wait_sleep: {sleeps}")


def costs_are_told_by_type(daemon, results):
    """The overhead of each type covers its BPF programs, which are timed; for io those of bytes and disks too."""
    for kind, result in results.items():
        quality = result["quality"]
        check(0 < quality["typeOverheadPct"] <= quality["overheadPct"], f"{kind}: {quality}")
    check(results["io"]["quality"]["typeOverheadPct"] > results["block"]["quality"]["typeOverheadPct"],
          f"{results['io']['quality']}, {results['block']['quality']}")
    metrics = daemon.get("/metrics").body.decode()
    for program in ("cpu", "switch", "resume", "io", "disk"):
        line = next(li for li in metrics.splitlines() if f'profd_bpf_program_run_seconds_total{{program="{program}"}}' in li)
        check(float(line.split()[1]) > 0, line)


def every_type_at_once():
    """Sessions of all types of one program do not disturb one another, and all tell the truth."""
    with Daemon() as daemon, waits() as program:
        tables_are_there(daemon, program)
        results, truth = window(daemon, program, {"offcpu": 1000, "wall": 99, "mutex": 1000, "block": 1000, "io": 1000})
        every_function_is_named(daemon, results["offcpu"], truth)
        intervals_hold_the_truth(daemon, results["offcpu"], truth)
        waits_are_cut_at_both_ends(daemon, results["offcpu"])
        wall_is_all_of_every_thread(daemon, results["wall"], truth)
        mutex_names_lock_and_waiter(daemon, results["mutex"], truth)
        block_counts_contentions(daemon, results["block"], truth)
        io_has_kinds(daemon, results["io"], truth)
        costs_are_told_by_type(daemon, results)
        # one that begins while nothing else is followed any more
        results, _ = window(daemon, program, {"offcpu": 1000, "io": 1000}, 2,
                            {"offcpu": {"wakers": True}, "io": {"paths": True}})
        waits_are_cut_at_both_ends(daemon, results["offcpu"])
        wakers_are_named(daemon, results["offcpu"])
        waits_have_paths(daemon, results["io"])
        answer = daemon.request("GET", f"{FAMILY_A}/{results['offcpu']['id']}/flamegraph?format=folded&groupBy=path")
        check(answer.status == 400, f"nobody asked it for paths: {answer}")
        # wakers alone: their stacks are not walked by the way, at the ends of calls
        results, _ = window(daemon, program, {"offcpu": 1000}, 2, {"offcpu": {"wakers": True}})
        wakers_are_named(daemon, results["offcpu"])


def every_holder_is_named(daemon, result):
    """Also of locks that do not say who holds them, and although the holders never wait for a lock."""
    stacks = daemon.folded(result["id"], "&groupBy=holder")
    for kind in ("plain", "timed", "robust", "pi", "reader", "writer", "word", "vector", "second", "op", "requeue"):
        of = collections.Counter()
        for stack, value in stacks:
            if f"wait_{kind}" in stack:
                of[stack[0].split(" ")[0]] += value
        check(sum(of.values()) > 0.3 * lasted_ns(result), f"{kind}: {sum(of.values()) / 1e6:.0f} ms of waiting")
        check(of[f"h_{kind}"] >= 0.9 * sum(of.values()), f"{kind}: held by {of}")
        locks = [lock for lock in result["breakdown"]["lock"] if lock.endswith(f" in wait_{kind}")]
        check(locks, f"{kind}: {result['breakdown']['lock']}")


def locks_of_programs_and_of_the_kernel():
    locks = compile_workload("off_locks.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    crowd = compile_workload("off_crowd.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    with Daemon() as daemon, own_name(locks) as name, own_name(crowd) as mapping, running(name), \
            Counting(mapping, "maps") as process:
        tables_are_there(daemon, process)
        plain = daemon.start_profile(os.path.basename(name), 600, "mutex", 1000)
        begin = process.counters()
        kernel = daemon.start_profile(process.service, 600, "mutex", 1000, kernelLocks=True)
        inner = process.counters()
        time.sleep(3)
        inner_end = process.counters()
        result = daemon.stop_profile(kernel)
        end = process.counters()
        every_holder_is_named(daemon, daemon.stop_profile(plain))
        got = sum(v for s, v in daemon.folded(kernel) if "map_small" in s and any("down_write" in f for f in s))
        due = end["mapped"] - begin["mapped"]
        # off the CPU it also waits for a CPU once it has the lock
        check(0.5 * (inner_end["mapped"] - inner["mapped"]) <= got <= 1.1 * due, f"{got / 1e6:.0f} ms of {due / 1e6:.0f}")
        check(result["quality"]["lost"] == 0, f"each is walked before the next: {result['quality']}")
        locks = result["breakdown"]["lock"]
        check(any(lock.startswith("kernel lock 0x") and " in " in lock for lock in locks), f"{locks}")
        answer = daemon.request("POST", FAMILY_A + "/start", {"service": process.service, "profileType": "cpu",
                                                              "kernelLocks": True})
        check(answer.status == 400 and b"kernelLocks" in answer.body, f"{answer}")


def readings_are_taken(daemon, session):
    """Those of the session's begin, while samples come all the time: they are asked for before its first sample is
    shown, and taken before what comes two deliveries later."""
    seen = set()

    def some():
        seen.add(daemon.get(f"{FAMILY_A}/{session}?top=0").json()["sampleCount"])
        return len(seen - {0}) >= 3

    wait_until(some, 60, "samples")


def thread_id(pid, name):
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm") as f:
            if f.read().strip() == name:
                return tid
    return None


def io_counts_bytes():
    """Also of calls that never wait; what is sampled is right in the mean, and what each thread has moved exact."""
    program = compile_workload("off_io.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    kinds = {"read_file": "file", "write_file": "file", "write_pipe": "pipe", "send_socket": "socket"}
    with Daemon() as daemon, own_name(program) as name, Counting(name, WORKLOADS) as process:
        daemon.profile(process.service, 1, "io", 1000)  # unwind tables are there
        outer = [process.counters()]
        session = daemon.start_profile(process.service, 600, "io", 1000, paths=True)
        readings_are_taken(daemon, session)
        inner = [process.counters("move")]
        time.sleep(3)
        inner.append(process.counters("move"))
        result = daemon.stop_profile(session)
        outer.append(process.counters())
        moved = daemon.folded(session, "&groupBy=kind&value=bytes")
        calls = daemon.folded(session, "&groupBy=kind&value=operations")
        for function, kind in kinds.items():
            # a tenth of some thousand samples at least: four standard deviations are 20 %
            for which, stacks in enumerate((moved, calls)):
                due = tuple(last[function][which] - first[function][which] for first, last in (inner, outer))
                near(f"{function} {which}", 1e6 * values(stacks, function), tuple(1e6 * d for d in due), 30, 1e12)
                right = sum(v for s, v in stacks if function in s and s[0] == kind)
                check(right >= 0.97 * values(stacks, function), f"{function}: {right} of {values(stacks, function)} {kind}")
        check(any("were sampled" in note for note in result["quality"]["notes"]), f"{result['quality']}")
        rows = {row["funcName"]: row for row in daemon.get(f"{FAMILY_A}/{session}?value=bytes&top=1000").json()["topFunctions"]}
        for function in kinds:
            low, high = rows[function]["confidenceInterval"]
            value, (first, last) = rows[function]["cumulativeValue"], (inner, outer)
            due = [pair[1][function][0] - pair[0][function][0] for pair in (first, last)]
            # twice as wide an interval holds the truth in all but one of ten thousand sessions
            check(low <= value <= high < 1.5 * low, f"{function}: {value} in {low} to {high}")
            check(low * low / value <= due[1] and due[0] <= high * high / value,
                  f"{function}: {low} to {high}, moved {due}")
        paths = daemon.folded(session, "&groupBy=path&value=bytes")
        for function, path in (("read_file", os.path.abspath(WORKLOADS) + "/off_io."), ("write_pipe", "pipe:["),
                               ("send_socket", "unix"), ("move_all", "tcp 127.0.0.1:")):
            # paths are those of the mount namespace: in a changed root the place of that root stands before
            right = sum(v for s, v in paths if function in s and path in s[0])
            check(right >= (0.97 * values(paths, function) if function != "move_all" else 1),
                  f"{function}: {path}: {set(s[0] for s, _ in paths if function in s)}")
        exact = collections.Counter()
        for stack, value in daemon.folded(session, "&groupBy=thread&value=bytes"):
            # requests of io_uring that would wait are moved by a thread of the kernel, which has a name of its own
            owner = stack[0].removeprefix("iou-wrk-")
            exact["steady" if owner == thread_id(process.pid, "steady") else "passing" if owner.isdigit() else owner] += value
        for thread in ("steady", "passing"):  # every means of reading and writing
            check(exact[thread] == inner[1][thread], f"{exact}, {inner[1]}")


def io_is_exact_at_any_rate():
    """Bytes and calls of each function, in a session of 10 samples a second: some hundred calls a second are all recorded."""
    program = compile_workload("off_io.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    with Daemon() as daemon, own_name(program) as name, Counting(name, WORKLOADS, "100") as process:
        daemon.profile(process.service, 1, "io", 10)  # unwind tables are there
        outer = [process.counters()]
        session = daemon.start_profile(process.service, 600, "io", 10)
        readings_are_taken(daemon, session)
        inner = [process.counters()]
        time.sleep(3)
        inner.append(process.counters())
        result = daemon.stop_profile(session)
        outer.append(process.counters())
        rows = {row["funcName"]: row for row in daemon.get(f"{FAMILY_A}/{session}?value=bytes&top=1000").json()["topFunctions"]}
        calls = daemon.folded(session, "&value=operations")
        check(result["quality"]["samples"] > 10 * 2 * result["durationSeconds"], f"{result['quality']}")
        for function in ("read_file", "write_file", "write_pipe", "send_socket"):
            for which, got in enumerate((rows[function]["cumulativeValue"], values(calls, function))):
                least, most = (last[function][which] - first[function][which] for first, last in (inner, outer))
                check(0 < least <= got <= most, f"{function}: {got} of {least} to {most}")
            low, high = rows[function].get("confidenceInterval", (0, 0))
            check(low == high, f"{function}: {rows[function]}")


def io_is_refused_without_its_program():
    """A kernel that takes no program at the end of system calls loses io, and no other type."""
    program = compile_workload("off_io.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    with Daemon("--disable-feature=io_calls") as daemon, Counting(program, WORKLOADS, "100") as process:
        answer = daemon.request("POST", f"{FAMILY_A}/start", {"service": process.service, "profileType": "io",
                                                              "durationSeconds": 1})
        check(answer.status >= 400 and "bytes of system calls" in answer.body.decode(), f"{answer}")
        result = daemon.profile(process.service, 1, "offcpu", 1000)
        check(result["sampleCount"] > 10, f"{result}")


def io_counts_requests_that_post_many():
    """Receives, reads and bundles of io_uring with many completions, handed in before and in the session: by thread and by
    function to the byte, and what nobody can say is said to be missing."""
    program = compile_workload("ring_posts.c", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-lpthread")
    peers = {"recv_armed": "tcp 127.0.0.1:", "recv_now": "tcp 127.0.0.1:", "recvmsg_armed": "udp ", "recvmsg_now": "udp ",
             "read_armed": "pipe:[", "read_now": "pipe:[", "recv_at_once": "tcp 127.0.0.1:", "send_bundle": "tcp 127.0.0.1:",
             "recv_full": "unix"}
    with Daemon() as daemon, own_name(program) as name, Counting(name) as process:
        daemon.profile(process.service, 1, "io", 1000)  # unwind tables are there
        session = daemon.start_profile(process.service, 600, "io", 1000, paths=True)
        readings_are_taken(daemon, session)
        due = process.counters("move")
        result = daemon.stop_profile(session)
        # a symbolizer without its turn for seconds leaves names for later
        nameless = f"[unknown] {os.path.basename(name)}"
        wait_until(lambda: not any(nameless in frame for stack, _ in daemon.folded(session) for frame in stack), 60, "names")
        threads, paths, kinds = (daemon.folded(session, f"&groupBy={by}&value=bytes") for by in ("thread", "path", "kind"))
        seen = set()
        for function, peer in peers.items():
            moved = sum(v for s, v in threads if s[0] == function)
            check(moved == due[function], f"thread {function}: {moved} bytes of {due}")
            # On a busy CPU only a part of all completions is recorded, or none of a thread's; those that are stand for all.
            if not values(paths, function):
                check(not due[function] or ([function, "[moved, not sampled]"], moved) in threads, f"{function}: {threads}")
                continue
            seen.add(function)
            check(values(paths, function) == due[function], f"{function}: {values(paths, function)} of {due[function]}")
            check(all(peer in s[0] for s, _ in paths if function in s), f"{function}: {[s for s in paths if function in s[0]]}")
            kind = "pipe" if peer == "pipe:[" else "socket"
            check(all(s[0] == kind for s, _ in kinds if function in s), f"{function}: {[s for s in kinds if function in s[0]]}")
        check(len(seen) > 1, f"{threads}")
        check(any("io_uring" in note for note in result["quality"]["notes"]), f"{result['quality']}")
        unknown = [line for line in daemon.get("/metrics").body.decode().splitlines() if 'request_unknown"' in line]
        check(len(unknown) == 1 and unknown[0].endswith(" 1"), f"{unknown}")


def a_spinner_is_not_blocked():
    """Nor is a thread for as long as a hypervisor or interrupts have its CPU, whether it sleeps at times or never."""
    program = compile_workload("spin_nap.c", "-O2", "-lpthread")
    with Daemon() as daemon, running(program) as process:
        daemon.profile(f"pid:{process.pid}", 1, "offcpu")  # the programs are there: threads are read as a session begins
        taken = taken_ns()
        result = daemon.profile(f"pid:{process.pid}", 5, "wall", 99)
        taken = taken_ns() - taken
        threads = {t["thread"]: t for t in daemon.get(f"{FAMILY_A}/{result['id']}/ledger").json()["threads"]}
        check(set(threads) == {"spin", "nap"}, f"{threads}")
        for thread in threads.values():
            ran = sum(thread[name] for name in ("userNs", "kernelNs", "runqueueNs", "preemptedNs"))
            near(thread["thread"], ran + sum(thread["blockedNs"].values()), lasted_ns(result), 1, 1e12)
            # of three counters each is up to one of their ticks of 10 ms late
            check(thread["stolenNs"] <= min(thread["preemptedNs"], taken + 3e7), f"{taken} were taken: {thread}")
        blocked = {name: sum(t["blockedNs"].values()) / t["elapsedNs"] for name, t in threads.items()}
        check(blocked["spin"] == 0, f"{threads}")
        check(blocked["nap"] > 0.01, f"{threads}")
        shown = sum(v for s, v in daemon.folded(result["id"]) if s == ["[stolen]"])
        check(shown == sum(t["stolenNs"] for t in threads.values()), f"{shown}: {threads}")


if __name__ == "__main__":
    main(a_spinner_is_not_blocked, every_type_at_once, locks_of_programs_and_of_the_kernel, io_counts_bytes,
         io_is_exact_at_any_rate, io_is_refused_without_its_program, io_counts_requests_that_post_many)
