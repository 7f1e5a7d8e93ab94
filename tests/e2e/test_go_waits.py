# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Block and mutex of Go programs that keep no such profile of their own: sampled from goroutine states, beside
what the program measured of itself."""

import contextlib
import gzip
import math
import os
import signal
import subprocess

from harness import FAMILY_A, Daemon, build_go, check, main, wait_until

SECONDS = 6
CONTINUOUS = ["block", "mutex", "goroutine"]


class Contended:
    """tests/workloads/go/contended; sums() are the ns that each of its sites has waited."""

    def __init__(self, program, *args):
        self.process = subprocess.Popen([program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        check(self.process.stdout.readline().strip() == "ready", "the workload did not start")

    def sums(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return {"main." + name: int(ns) for name, ns in zip(words[::2], words[1::2])}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.communicate()


def functions(result):
    return {f["funcName"]: f for f in result["topFunctions"]}


def named(daemon, result):
    """@result, as soon as the program's functions have names: a daemon that has just started looks at every file that
    the host runs."""
    def are_known():
        again = daemon.get(f"{FAMILY_A}/{result['id']}?top=1000").json()
        return again if any(name.startswith("main.") for name in functions(again)) else None

    return wait_until(are_known, 60, "names of the program")


def waited(before, after, name):
    return after[name] - before[name]


def check_site(kind, found, name, least, most):
    check(name in found, f"{kind}: {name} is missing: {list(found)}")
    row = found[name]
    # sampleCount of a caller is not listed: how often it was seen follows from its share of the snapshots.
    seen = row["cumulativeValue"] / found["per snapshot"]
    band = 4 / math.sqrt(max(seen, 1)) + 0.12
    check((1 - band) * least <= row["cumulativeValue"] <= (1 + band) * most,
          f"{kind}: {name} waited {least / 1e9:.2f} to {most / 1e9:.2f} s, profile says {row['cumulativeValue'] / 1e9:.2f} s "
          f"(seen {seen:.0f} times)")


def test_waits_equal_what_the_program_measured():
    with Daemon() as daemon, Contended(build_go("contended")) as program:
        pid = f"pid:{program.process.pid}"
        outer = program.sums()
        block = daemon.start_profile(pid, 3600, "block")
        mutex = daemon.start_profile(pid, 3600, "mutex")
        before = program.sums()
        wait_until(lambda: waited(before, program.sums(), "main.leakedSite") > SECONDS * 1e9, 60, "waits")
        after = program.sums()
        results = {"block": daemon.stop_profile(block), "mutex": daemon.stop_profile(mutex)}
        outer_end = program.sums()
        for kind, result in results.items():
            result = named(daemon, result)
            check(result["status"] == "completed" and result["unit"] == "nanoseconds", f"{kind}: {result}")
            found = functions(result)
            quality = result["quality"]
            found["per snapshot"] = 1e9 / quality["effectiveRate"]
            check(any("goroutine states" in n for n in quality["notes"]), f"{kind}: {quality}")
            check(any("unbiased" in n and "contentions are not known" in n for n in quality["notes"]), f"{quality}")
            check(quality["effectiveRate"] > 2 and 0 < quality["overheadPct"] < 10, f"{kind}: {quality}")
            for name in ("main.lockSite", "main.readSite"):
                check_site(kind, found, name, waited(before, after, name), waited(outer, outer_end, name))
            others = ("main.receiveSite", "main.leakedSite")
            for name in others if kind == "block" else ():
                check_site(kind, found, name, waited(before, after, name), waited(outer, outer_end, name))
            check(kind == "block" or not any(name in found for name in others), f"a mutex profile holds {list(found)}")
            leaves = {name for name, row in found.items() if name != "per snapshot" and row["selfValue"]}
            check(not leaves & {"runtime.gopark", "runtime.semacquire1"}, f"{kind}: the runtime's own leaves {leaves}")
        check(results["mutex"]["stackRole"] == "waiter", f"{results['mutex']}")
        locks = daemon.get(f"{FAMILY_A}/{mutex}?breakdown=lock").json()["breakdown"]["lock"]
        check(any(l.startswith("sync.Mutex 0x") and l.endswith(" in main.lockSite") for l in locks), f"{locks}")
        waits = daemon.get(f"{FAMILY_A}/{mutex}?breakdown=wait").json()["breakdown"]["wait"]
        # Before 1.20 the runtime calls all of them by one word.
        check(set(waits) in ({"sync.Mutex.Lock", "sync.RWMutex.RLock"}, {"semacquire"}), f"{waits}")
        raw = daemon.get(f"{FAMILY_A}/{block}/flamegraph?format=pprof").body
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        check(b"delay" in text, "no delay in the pprof")
        answer = daemon.request("GET", f"{FAMILY_A}/{block}/flamegraph?format=folded&value=contentions")
        check(answer.status == 400, f"contentions are not known, yet: {answer}")


def test_it_is_not_skipped_beside_a_profile_of_its_threads():
    with Daemon() as daemon, Contended(build_go("contended")) as program:
        pid = f"pid:{program.process.pid}"
        kinds = ("block", "mutex")
        sessions = [daemon.start_profile(pid, 3600, kind) for kind in kinds]
        daemon.profile(pid, 3, "wall")
        results = [daemon.stop_profile(session) for session in sessions]
        for kind, result in zip(kinds, results):
            check(result["totalValue"] > 0, f"{kind}: {result}")
            check(not result["quality"]["processesSkipped"], f"{kind}: {result['quality']}")


def test_own_profile_is_preferred():
    with Daemon() as daemon, Contended(build_go("contended"), "-keep") as program, \
            Contended(build_go("contended")) as other:
        own = daemon.start_profile(f"pid:{program.process.pid}", 3600, "mutex")
        sampled = daemon.start_profile(f"pid:{other.process.pid}", 3600, "mutex")
        before = program.sums()
        wait_until(lambda: waited(before, program.sums(), "main.leakedSite") > 2e9, 60, "waits")
        result = daemon.stop_profile(own)
        check(result["stackRole"] == "unlocker", f"{result}")
        check(any("stackRole: unlocker" in n for n in result["quality"]["notes"]), f"{result['quality']}")
        check("main.leakedSite" not in functions(result), f"{result}")
        check(daemon.stop_profile(sampled)["stackRole"] == "waiter", "sampled stacks are waiters'")
        answer = daemon.request("GET", f"{FAMILY_A}/compare?baseProfileId={own}&comparisonProfileId={sampled}")
        check(answer.status == 422, f"unlockers compared with waiters: {answer}")


def standing(daemon, service, status):
    """{type: session} that a continuous setting has started, once all are as @status says."""
    def all_of_them():
        items = daemon.get(f"{FAMILY_A}/history?service={service}&limit=100").json()["items"]
        found = {i["profileType"]: i for i in items if i["continuous"] and i["startedAt"] and i["status"] == status}
        return found if set(found) == set(CONTINUOUS) else None

    return wait_until(all_of_them, 60, f"{status} sessions of {CONTINUOUS}")


def check_standing(daemon, service, program):
    """Continuous block and mutex profiles of a Go service that keeps none itself agree with the
    waits that the service measured."""
    standing(daemon, service, "running")
    before = program.sums()
    wait_until(lambda: waited(before, program.sums(), "main.leakedSite") > 2e9, 60, "waits")
    check(daemon.request("DELETE", f"{FAMILY_A}/continuous/{service}").status == 204, "the setting is gone")
    sessions = standing(daemon, service, "completed")
    for kind in ("block", "mutex"):
        found = functions(named(daemon, sessions[kind]))
        check("main.lockSite" in found and ("main.leakedSite" in found) == (kind == "block"), f"{kind}: {list(found)}")
    block = daemon.get(f"{FAMILY_A}/{sessions['block']['id']}").json()
    leaked = functions(block)["main.leakedSite"]["cumulativeValue"]
    check(abs(leaked - block["durationNanos"]) < 0.25 * block["durationNanos"], f"{leaked} of {block['durationNanos']}")
    check(0 < block["quality"]["overheadPct"] < 10, f"{block['quality']}")
    answer = daemon.get(f"/api/v1/profiling/sessions/{sessions['goroutine']['id']}/analysis?limit=1000").json()
    check(any("main.leakedSite" in stack["frames"] for stack in answer["topStacks"]), f"{answer}")


def test_method_is_chosen_when_the_service_appears():
    program = build_go("contended")
    copy = f"{program}-late-{os.getpid()}"
    with Daemon() as daemon, contextlib.ExitStack() as stack:
        os.link(program, copy)
        stack.callback(os.unlink, copy)
        session = daemon.start_profile(os.path.basename(copy), 3, "block", waitSeconds=300)
        check(daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"] is None, "started before there was a process")
        running = stack.enter_context(Contended(copy))
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "the session")
        answer = daemon.request("POST", FAMILY_A + "/continuous",
                                {"service": os.path.basename(copy), "profileTypes": CONTINUOUS})
        check(answer.status == 200 and answer.json()["profileTypes"] == CONTINUOUS, f"{answer}")
        check_standing(daemon, os.path.basename(copy), running)
        result = daemon.finish_profile(session)
        check(result["status"] == "completed", f"{result}")
        found = functions(named(daemon, result))
        check("main.leakedSite" in found and "main.lockSite" in found, f"{list(found)} {result['quality']}")
        check(1e9 < found["main.leakedSite"]["cumulativeValue"] <= 3.1e9, f"{found['main.leakedSite']}")


def test_sampling_survives_the_server():
    with Daemon() as daemon, Contended(build_go("contended")) as program:
        session = daemon.start_profile(f"pid:{program.process.pid}", 3600, "block")
        before = program.sums()

        def is_back():
            with contextlib.suppress(OSError):
                return daemon.request("GET", f"{FAMILY_A}/{session}").status == 200
            return False

        # The sums reach the store after a second; what is sampled later reaches it from the next server.
        wait_until(lambda: waited(before, program.sums(), "main.leakedSite") > 2e9, 60, "waits")
        os.kill(daemon.children()["profd-server"], signal.SIGKILL)
        wait_until(is_back, 60, "another server")
        wait_until(lambda: waited(before, program.sums(), "main.leakedSite") > 4e9, 60, "waits")
        result = named(daemon, daemon.stop_profile(session))
        check(result["status"] == "completed", f"{result}")
        check(not result["quality"]["processesSkipped"], f"{result['quality']}")
        leaked = functions(result)["main.leakedSite"]["cumulativeValue"]
        check(abs(leaked - result["durationNanos"]) < 0.25 * result["durationNanos"], f"{leaked} {result['durationNanos']}")


if __name__ == "__main__":
    main(test_waits_equal_what_the_program_measured, test_it_is_not_skipped_beside_a_profile_of_its_threads,
         test_sampling_survives_the_server, test_own_profile_is_preferred, test_method_is_chosen_when_the_service_appears)
