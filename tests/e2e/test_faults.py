# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Profiles of page faults against what a program with known faults says that getrusage(2) counted of each of its
functions."""

import contextlib
import math
import os
import tempfile

from harness import FAMILY_A, ROOT, Counting, Daemon, check, compile_workload, main

PERIOD = 64  # PROF_FAULT_PERIOD
PAGES_A, PAGES_B, FILE_PAGES = 20000, 40000, 200


@contextlib.contextmanager
def program():
    """The workload with a file on a disk, whose pages are written."""
    with tempfile.NamedTemporaryFile(dir=os.path.join(ROOT, "build")) as file:
        file.write(os.urandom(FILE_PAGES * 4096))
        file.flush()
        os.fsync(file.fileno())
        with Counting(compile_workload("faults.c", "-O1", "-g"), PAGES_A, PAGES_B, file.name, FILE_PAGES) as counting:
            yield counting


def faults_of(stacks, state, function):
    return sum(value for stack, value in stacks if stack[0] == state and function in stack)


def check_minor(stacks, function, due):
    """A sample stands for PERIOD faults; those of others on the same CPU decide which one is taken."""
    got = faults_of(stacks, "minor", function)
    allowed = 4 * PERIOD * math.sqrt(due / PERIOD)
    check(abs(got - due) <= allowed, f"{function} has {got} minor faults of {due}, {allowed:.0f} are allowed")


def counts_of_functions():
    with Daemon() as daemon, program() as counting:
        session = daemon.start_profile(counting.service, 300, "faults", 1000)
        truth = counting.counters()
        result = daemon.stop_profile(session)
        check(result["quality"]["lost"] == 0, f"{result['quality']}")
        check(truth["touch_a"] >= PAGES_A and truth["touch_b"] >= PAGES_B, f"{truth}")
        stacks = daemon.folded(session, "&groupBy=state")
        check(sum(v for _, v in stacks) == result["totalValue"], f"folded differs from {result['totalValue']}")
        check_minor(stacks, "touch_a", truth["touch_a"])
        check_minor(stacks, "touch_b", truth["touch_b"])
        check(truth["read_file_major"] >= FILE_PAGES / 2, f"the file was in the page cache: {truth}")
        major = faults_of(stacks, "major", "read_file")
        check(major == truth["read_file_major"], f"read_file has {major} major faults of {truth['read_file_major']}: "
              f"{[one for one in stacks if one[0][0] == 'major']}; {result['quality']}")
        check(all("main" in s for s, _ in stacks if "touch_a" in s or "touch_b" in s), "stacks are cut")
        top = daemon.get(f"{FAMILY_A}/{session}?top=10").json()["topFunctions"]
        check(top[0]["funcName"] == "touch_b", f"{top[0]}")
        low, high = top[0]["confidenceInterval"]
        check(low < top[0]["selfValue"] < high and high - low < 0.2 * PAGES_B, f"{top[0]}")
        print(f"# touch_a {faults_of(stacks, 'minor', 'touch_a')} of {truth['touch_a']}, touch_b {top[0]['selfValue']} of "
              f"{truth['touch_b']} in {top[0]['confidenceInterval']}, read_file {major} of {truth['read_file_major']}")


def without_the_feature():
    with Daemon("--disable-feature=page_faults") as daemon, program() as counting:
        answer = daemon.request("POST", f"{FAMILY_A}/start", {"service": counting.service, "profileType": "faults",
                                                              "durationSeconds": 1})
        check(answer.status >= 400 and "page faults" in answer.body.decode(), f"{answer}")
        check(daemon.profile(counting.service, 1)["status"] == "completed", "cpu needs no page faults")


main(counts_of_functions, without_the_feature)
