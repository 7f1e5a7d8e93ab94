# SPDX-License-Identifier: Apache-2.0
"""Time off the CPU in bad cases: thousands of threads, a storm of switches, an exec while threads are blocked; and
that nothing stays attached when nobody asks any more."""

import contextlib
import os
import time

from harness import (FAMILY_A, Counting, Daemon, check, check_sampled, compile_workload, cpu_ns, lasted_ns, main, own_name, running,
                     wait_until)

RATE = 499  # of threads' own events


@contextlib.contextmanager
def crowd_of(*arguments):
    """tests/workloads/off_crowd.c under a name of its own."""
    program = compile_workload("off_crowd.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    with own_name(program) as name, Counting(name, *arguments) as crowd:
        yield crowd


def links(daemon):
    """Ids of the BPF programs that the collector has attached: those of its links."""
    pid = daemon.children()["profd-collect"]
    found = []
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}") as f:
            facts = dict(line.split(":", 1) for line in f.read().splitlines() if ":" in line)
            if "link_type" in facts:
                found.append(int(facts["prog_id"]))
    return sorted(found)


def sum_of(stacks, function):
    return sum(value for stack, value in stacks if function in stack)


def nothing_stays_attached(daemon):
    with crowd_of("threads", "2") as crowd:
        before = links(daemon)
        check(before, "exec, fork and exit are always followed")

        def ends(session, left):
            daemon.stop_profile(session)
            wait_until(lambda: links(daemon) == left, 60, f"{left}, there are {links(daemon)}")

        # those of each type go with its last session, also while another type goes on
        standing = daemon.start_profile(crowd.service, 600, "offcpu")
        waits = links(daemon)
        check(len(waits) >= len(before) + 3, f"{waits}")
        for kind, more, extra in (("block", 0, {}), ("wall", 1, {"wakers": True}), ("mutex", 1, {}),
                                  ("mutex", 3, {"kernelLocks": True}), ("io", 2, {})):
            session = daemon.start_profile(crowd.service, 600, kind, **extra)
            wait_until(lambda: len(links(daemon)) >= len(waits) + more, 60, f"programs of {kind} {extra}: {links(daemon)}, {waits}")
            ends(session, waits)
        ends(standing, before)


def events(daemon):
    """How many perf events the collector has open."""
    folder = f"/proc/{daemon.children()['profd-collect']}/fd"
    found = []
    for fd in os.listdir(folder):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"{folder}/{fd}"))
    return sum("perf_event" in target for target in found)


def nothing_counts_twice(daemon):
    """The helper that reads stacks of sleeping threads may hang at a target. The events of the
    ended session are gone all the same, and each sample of the next session counts once."""
    with own_name(compile_workload("silent_stack.c", "-O2", "-lpthread")) as program, running(program) as process:
        before = events(daemon)
        session = daemon.start_profile(os.path.basename(program), 600, "wall", rate=RATE)
        wait_until(lambda: events(daemon) > before, 60, f"more than {before} events")
        daemon.request("DELETE", f"{FAMILY_A}/{session}")
        wait_until(lambda: events(daemon) == before, 60, f"{before} events, there are {events(daemon)}")
        before = cpu_ns(process.pid)
        session = daemon.start_profile(os.path.basename(program), 600, rate=RATE)
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > 0.7e9, 60, "the program to run")
        least = cpu_ns(process.pid) - start
        daemon.request("DELETE", f"{FAMILY_A}/{session}")
        most = cpu_ns(process.pid) - before
        check_sampled(daemon.finish_profile(session)["totalValue"], least, most, RATE)


def two_thousand_threads(daemon):
    with crowd_of("threads", "2000") as crowd:
        daemon.profile(crowd.service, 1, "offcpu", 1000)  # unwind tables are there
        outer = [crowd.counters()]
        session = daemon.start_profile(crowd.service, 600, "offcpu", 1000)
        inner = [crowd.counters()]
        time.sleep(4)
        inner.append(crowd.counters())
        result = daemon.stop_profile(session)
        outer.append(crowd.counters())
        check(result["quality"]["lost"] == 0, f"{result['quality']}")
        stacks = daemon.folded(session)
        total = sum(v for _, v in stacks)
        length = lasted_ns(result)
        # what they run is next to nothing
        check(0.9 <= total / (2001 * length) <= 1.01, f"{total / 1e9:.1f} s of {2001 * length / 1e9:.1f}")
        low, high = (last["nap"] - first["nap"] for first, last in (inner, outer))
        got = sum_of(stacks, "nap")
        # a nap is counted when it ends, at most 0.09 s of each thread are on the other side
        slack = 1000 * 0.1e9 + 0.05 * high
        check(low - slack <= got <= high + slack, f"nap: {got / 1e9:.1f} s, {low / 1e9:.1f} to {high / 1e9:.1f} are due")
        # those that were blocked all the time are read from outside
        stayed = sum_of(stacks, "stay")
        check(stayed >= 0.9 * 1000 * length, f"stay: {stayed / 1e9:.1f} s of {1000 * length / 1e9:.1f}")
        forever = daemon.folded(session, "&groupBy=wait")
        futex = sum(v for s, v in forever if s[0] == "futex")
        check(0.97 <= futex / (1000 * length) <= 1.01, f"futex: {futex / 1e9:.1f} s of {1000 * length / 1e9:.1f}")


def a_storm_of_switches(daemon):
    with crowd_of("switches") as crowd:
        daemon.profile(crowd.service, 1, "offcpu", 1000)
        memory = daemon.resident_mb()
        session = daemon.start_profile(crowd.service, 600, "offcpu", 1000)
        first = crowd.counters()
        time.sleep(4)
        last = crowd.counters()
        result = daemon.stop_profile(session)
        rate = (last["switches"] - first["switches"]) * 1e9 / (last["time"] - first["time"])
        print(f"  {rate:.0f} switches a second, {result['sampleCount']} samples, {result['quality']['lost']} lost")
        check(result["quality"]["lost"] >= 0, "losses are counted")
        check(result["sampleCount"] < 1000 * (lasted_ns(result) / 1e9 + 3) * 3, f"{result['sampleCount']} samples")
        check(daemon.resident_mb() < memory + 40, f"{memory:.0f} MB before, {daemon.resident_mb():.0f} after")
        stacks = daemon.folded(session)
        # one of the two is off the CPU at any time, and main all the time
        check(sum_of(stacks, "pass") >= 0.9 * lasted_ns(result), f"{sum_of(stacks, 'pass') / 1e9:.2f} s")


def exec_while_blocked(daemon):
    with crowd_of("exec") as crowd:
        daemon.profile(crowd.service, 1, "offcpu", 1000)
        asked = time.monotonic()
        session = daemon.start_profile(crowd.service, 600, "offcpu", 1000)
        started = time.monotonic()
        time.sleep(2)
        crowd.say("exec")
        executed = time.monotonic()
        time.sleep(2)
        result = daemon.stop_profile(session)
        stacks = daemon.folded(session)
        before = sum_of(stacks, "stay")
        length, alive = lasted_ns(result), (executed - started) * 1e9
        # stay() ends with the exec; the main thread goes on under the same number
        check(before >= 0.8 * alive, f"stay: {before / 1e9:.2f} s of {alive / 1e9:.2f}")
        total = sum(v for _, v in stacks)
        check(0.9 * (length + alive) <= total <= 1.02 * (length + (executed - asked) * 1e9) + 0.2e9,
              f"{total / 1e9:.2f} s, {length / 1e9:.2f} and {alive / 1e9:.2f} are due")


def born_as(pid, command):
    """A process whose number is @pid, which must be free. Others may take it first: None."""
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(pid - 1))
    process = Counting(*command)
    if process.pid == pid:
        return process
    process.__exit__(None, None, None)
    return None


def a_pid_that_is_used_again(daemon):
    """The waits of two processes with the same pid, one after the other, are kept apart."""
    program = compile_workload("off_crowd.c", "-O2", "-fomit-frame-pointer", "-lpthread")
    again_program = compile_workload("off_crowd.c", "-O2", "-lpthread", output="off_crowd_again")
    with own_name(program) as first_name, own_name(again_program) as second_name:
        daemon.profile("*", 1, "offcpu")
        session = daemon.start_profile("*", 600, "offcpu")
        with Counting(first_name, "threads", "4") as first:
            time.sleep(1)

        def again():
            return born_as(first.pid, (second_name, "threads", "4"))

        with wait_until(again, 60, f"another process {first.pid}"):
            time.sleep(1)
            result = daemon.stop_profile(session)
        lives = [p for p in result["processes"] if p["pid"] == first.pid]
        check(len(lives) == 2 and {os.path.basename(p["exe"]) for p in lives} ==
              {os.path.basename(first_name), os.path.basename(second_name)}, f"{lives}")
        for life in lives:  # five threads that wait all the time
            check(life["value"] >= 0.8 * 5e9, f"{lives}")


def bad_cases():
    with Daemon() as daemon:
        two_thousand_threads(daemon)
        a_storm_of_switches(daemon)
        exec_while_blocked(daemon)
        a_pid_that_is_used_again(daemon)
        nothing_stays_attached(daemon)
        nothing_counts_twice(daemon)


if __name__ == "__main__":
    main(bad_cases)
