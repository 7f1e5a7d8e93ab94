# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""Each process killed in mid-session, and the whole daemon killed many times under load: what is lost is what
the store allows (agent/store/README.md), and it is stated."""

import contextlib
import os
import random
import resource
import shutil
import signal
import tempfile
import time

from harness import FAMILY_A, Daemon, Failure, build_truth, check, check_sampled, compile_workload, cpu_ns, main, running, wait_until

RATE = 199


def kill_one(comm, cpu_seconds=4):
    """Kills one process in the middle of a session on a busy program: the finished result, its stacks when all
    have names, and the CPU time that the program used meanwhile, at least and at most."""
    program = build_truth()
    with Daemon() as daemon, running(program, "600") as process:
        before = cpu_ns(process.pid)
        session = daemon.start_profile(os.path.basename(program), 600, rate=RATE)
        start = cpu_ns(process.pid)
        count = more_samples(daemon, session, 0)
        victim = daemon.children()[comm]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: daemon.children().get(comm) not in (None, victim), 60, comm + " to come back")
        more_samples(daemon, session, count)
        wait_until(lambda: cpu_ns(process.pid) - start > cpu_seconds * 1e9, 300, "the program to run")
        least = cpu_ns(process.pid) - start

        def stopped():
            try:
                return daemon.request("DELETE", f"{FAMILY_A}/{session}").status in (202, 204)
            except OSError:
                return False  # the server itself is away

        wait_until(stopped, 60, "the session to take the stop")
        most = cpu_ns(process.pid) - before
        result = daemon.finish_profile(session)
        check(result["status"] == "completed", result)

        def all_named():
            stacks = daemon.folded(session)
            return sum(v for s, v in stacks if "main" in s) > 0.97 * sum(v for _, v in stacks)

        wait_until(all_named, 60, "names of all stacks")
        return result, (least, most)


def more_samples(daemon, session, than):
    """Waits for 100 samples more than that, also while a process is away; how many there are."""
    def taken():
        with contextlib.suppress(OSError):
            count = daemon.request("GET", f"{FAMILY_A}/{session}").json().get("sampleCount", 0)
            return count if count > than + 100 else None

    return wait_until(taken, 60, "samples")


def symbolizer_killed():
    result, used = kill_one("profd-symbols")
    check_sampled(result["totalValue"], *used, RATE)


def server_killed():
    result, used = kill_one("profd-server")
    check_sampled(result["totalValue"], *used, RATE)
    check(result["quality"]["lost"] == 0, result["quality"])


def collector_killed():
    result, _ = kill_one("profd-collect")
    notes = " ".join(result["quality"].get("notes", []))
    check("collector" in notes or "gap" in notes, f"the gap is not stated: {result['quality']}")


def collector_and_server_killed():
    """The server reads again what it had not stored; stacks that only the dead collector knew are lost. Who sees that sees
    how much it is."""
    program = build_truth()
    with Daemon() as daemon, running(program, "600"):
        name = os.path.basename(program)
        first = daemon.start_profile("*", 600, rate=RATE)
        time.sleep(12)  # stored every 10 s: with the stacks that the next session's samples are of
        session = daemon.start_profile(name, 600, rate=RATE)
        more_samples(daemon, session, 0)
        before = {comm: daemon.children()[comm] for comm in ("profd-collect", "profd-server")}
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(daemon.children().get(comm) not in (None, pid) for comm, pid in before.items()), 60, "both")
        for victim in (first, session):
            more_samples(daemon, victim, 0)
        time.sleep(3)
        for victim in (first, session):
            daemon.request("DELETE", f"{FAMILY_A}/{victim}")
            result = daemon.finish_profile(victim)
            stacks = daemon.folded(victim)
            lost = 100 * sum(v for s, v in stacks if s[0] == "[unknown]") / result["totalValue"]
            quality = result["quality"]
            check(quality["unknownFramePct"] > lost - 0.5, f"{lost:.1f} % of the samples have no stack: {quality}")
            check(lost == 0 or "lost" in " ".join(quality.get("notes", [])), f"{quality}")


def reader_killed():
    result, used = kill_one("profd-reader")
    check_sampled(result["totalValue"], *used, RATE)


def connected_when_there_is_room():
    """A reader that starts while the supervisor may open no more files is connected as soon as it may."""
    program = build_truth()
    with Daemon() as daemon, running(program, "600"):
        supervisor = daemon.process.pid
        used = {int(fd) for fd in os.listdir(f"/proc/{supervisor}/fd")}
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        # One number is free: with the dead one's it takes a new child's control channel, and then no other.
        check(max(used) <= len(used), f"descriptors: {sorted(used)}")
        victim = daemon.children()["profd-reader"]
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (len(used) + 1, before[1]))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: any("cannot " in line for line in daemon.log), 30, "a connection that fails")
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        wait_until(lambda: daemon.children().get("profd-reader") not in (None, victim), 30, "the reader to come back")

        def profiles():
            with contextlib.suppress(OSError, Failure):
                return daemon.profile(os.path.basename(program), 1, kind="goroutine")["totalValue"] > 0

        wait_until(profiles, 30, "a reading of its threads")


def killed_again_and_again():
    """However often a process dies in a row, and however long its next life is waited for, it comes."""
    with Daemon("--no-collect") as daemon:
        for turn in range(7):
            victim = wait_until(lambda: daemon.children().get("profd-symbols"), 30, f"life {turn} of the symbolizer")
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: daemon.children().get("profd-symbols") != victim, 30, "its end")
        wait_until(lambda: daemon.children().get("profd-symbols"), 30, "its last life")


def daemon_killed_many_times():
    """kill -9 of everything at random moments: nothing corrupt, no completed session missing, ready again."""
    program = compile_workload("calm.c", "-O1", "-g")
    folder = tempfile.mkdtemp(prefix="profd-e2e-")
    random.seed(50)
    completed, running_ids = set(), []
    times = int(os.environ.get("CRASHES", "50"))
    try:
        with running(program):
            for turn in range(times):
                daemon = Daemon(data_dir=folder).start()
                for session in running_ids:  # what ran when it was killed has ended, with data or a reason
                    result = daemon.get(f"{FAMILY_A}/{session}").json()
                    check(result["status"] in ("completed", "failed"), f"turn {turn}: {result}")
                    check(result["status"] == "completed" or result["failureReason"], result)
                    if result["status"] == "completed":
                        completed.add(session)
                running_ids = [daemon.start_profile(os.path.basename(program), 1, rate=RATE),
                               daemon.start_profile("*", 3600, rate=19)]
                end = time.monotonic() + random.uniform(0, 3.0)
                while time.monotonic() < end:
                    result = daemon.get(f"{FAMILY_A}/{running_ids[0]}").json()
                    if result["status"] == "completed":
                        completed.add(result["id"])
                    time.sleep(0.05)
                daemon.stop(signal.SIGKILL)
            with Daemon(data_dir=folder) as daemon:
                check(not any("damaged" in line or "corrupt" in line for line in daemon.log), daemon.log)
                for session in completed:
                    result = daemon.get(f"{FAMILY_A}/{session}").json()
                    check(result["status"] == "completed", result)
                    check(sum(v for _, v in daemon.folded(session)) == result["totalValue"], session)
        check(len(completed) > times / 10, f"only {len(completed)} sessions completed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(symbolizer_killed, server_killed, collector_killed, collector_and_server_killed, reader_killed, connected_when_there_is_room, killed_again_and_again, daemon_killed_many_times)
