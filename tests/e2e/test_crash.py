# SPDX-License-Identifier: Apache-2.0
# tools/test: beside fuzzers
"""Each process killed in mid-session, and the whole daemon killed many times under load: what is lost is what
contract.md section 9 and the design allow, and it is stated."""

import os
import random
import shutil
import signal
import tempfile
import time

from harness import FAMILY_A, Daemon, build_truth, check, cpu_ns, main, running, wait_until

RATE = 199


def kill_one(comm, cpu_seconds=4):
    """Kills one process in the middle of a session on a busy program: the finished result, its stacks, and
    the CPU time that the program used meanwhile."""
    program = build_truth()
    with Daemon() as daemon, running(program, "600") as process:
        session = daemon.start_profile(os.path.basename(program), 600, rate=RATE)
        start = cpu_ns(process.pid)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 100, 60, "samples")
        victim = daemon.children()[comm]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: daemon.children().get(comm) not in (None, victim), 10, comm + " to come back")
        wait_until(lambda: cpu_ns(process.pid) - start > cpu_seconds * 1e9, 300, "the program to run")
        used = cpu_ns(process.pid) - start

        def stopped():
            try:
                return daemon.request("DELETE", f"{FAMILY_A}/{session}").status in (202, 204)
            except OSError:
                return False  # the server itself is away

        wait_until(stopped, 30, "the session to take the stop")
        result = daemon.finish_profile(session)
        check(result["status"] == "completed", result)
        return result, daemon.folded(session), used


def check_nothing_lost(result, used):
    """All the CPU time is there, once. The band: sampling error, and the time to start and to stop."""
    share = result["totalValue"] / used
    check(0.93 < share < 1.08, f"{result['totalValue'] / 1e6:.0f} ms sampled of {used / 1e6:.0f} ms")


def symbolizer_killed():
    result, stacks, used = kill_one("profd-symbols")
    check_nothing_lost(result, used)
    named = sum(v for s, v in stacks if "main" in s)
    check(named > 0.97 * sum(v for _, v in stacks), "names are missing after the symbolizer came back")


def server_killed():
    result, _, used = kill_one("profd-server")
    check_nothing_lost(result, used)
    check(result["quality"]["lost"] == 0, result["quality"])


def collector_killed():
    result, _, used = kill_one("profd-collect")
    notes = " ".join(result["quality"].get("notes", []))
    check("collector" in notes or "gap" in notes, f"the gap is not stated: {result['quality']}")
    check(result["totalValue"] > 0.5 * used, "sampling did not come back")


def reader_killed():
    result, _, used = kill_one("profd-reader")
    check_nothing_lost(result, used)


def daemon_killed_many_times():
    """kill -9 of everything at random moments: nothing corrupt, no completed session missing, ready again."""
    program = build_truth()
    folder = tempfile.mkdtemp(prefix="profd-e2e-")
    random.seed(50)
    completed, running_ids = set(), []
    times = int(os.environ.get("CRASHES", "50"))
    try:
        with running(program, "600"):
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
    main(symbolizer_killed, server_killed, collector_killed, reader_killed, daemon_killed_many_times)
