# SPDX-License-Identifier: Apache-2.0
"""Verdicts on real programs: lives of the same program, recorded side by side with others on a shared host, must not be
called regressed; a function that takes twice as much must be, and be the only one named."""

import contextlib
import datetime
import itertools
import math
import os
import shutil
import subprocess
import tempfile
import time

from harness import FAMILY_A, ROOT, Daemon, build_truth, check, compile_workload

RATE = 99
LIVES = 8  # of each program: 28 pairs
SIDE = 4   # lives on each side of a planted change
PLANTED = ("12", "24")  # percent of its work in one function, before and after


def programs(folder):
    """{name: command}; those that are not installed here are left out."""
    python = "import json\nwhile True: json.loads(json.dumps({str(i): list(range(40)) for i in range(200)}))"
    gcc = f"while true; do gcc -O2 -c -o /dev/null {ROOT}/tests/workloads/truth_plain.c; done"
    found = {"python": ["python3", "-c", python], "compile": ["sh", "-c", gcc],
             "truth": [build_truth(), "86400"], "two_ways": [compile_workload("two_ways.c", "-O2", "-g"), "30"],
             "gzip": ["sh", "-c", f"while true; do gzip -c {ROOT}/build/profd >/dev/null; done"]}
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        socket = os.path.join(folder, "redis.sock")
        found["redis"] = ["sh", "-c", f"redis-server --port 0 --unixsocket {socket} --save '' >/dev/null & sleep 1; "
                                      f"exec redis-benchmark -s {socket} -l -q -t set,get,lpush"]
    return found


def life(daemon, commands, seconds):
    """One life of each program, all at once; {name: session}."""
    with contextlib.ExitStack() as stack:
        sessions = {}
        for name, command in commands.items():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                       env=dict(os.environ, OTEL_SERVICE_NAME="life-" + name))
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, 9)
        time.sleep(2)
        for name in commands:
            sessions[name] = daemon.start_profile("life-" + name, seconds, rate=RATE, waitSeconds=30)
        for session in sessions.values():
            check(daemon.finish_profile(session, seconds=seconds + 120)["status"] == "completed", session)
        return sessions


def interval(hits, count):
    """Wilson's, 95 %."""
    z, p = 1.96, hits / count
    middle, half = p + z * z / (2 * count), z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return [(middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)]


def compare(daemon, base, other):
    return daemon.get(f"{FAMILY_A}/compare?baseProfileId={base}&comparisonProfileId={other}").json()


def null(daemon, absolute, folder, seconds, lives):
    commands = programs(folder)
    taken = [life(daemon, commands, seconds) for _ in range(lives)]
    quiet = open_pairs = pairs = 0
    wrong = []
    for name in commands:
        for base, other in itertools.combinations(taken, 2):
            answer = compare(daemon, base[name], other[name])
            pairs += 1
            open_pairs += answer["insufficientData"]
            quiet += answer["verdict"] != "regressed"
            if answer["verdict"] == "regressed":
                wrong.append(f"{name}: {answer['summary'][:80]}")
    low, high = interval(quiet, pairs)
    absolute(f"pairs of lives without a regression, of {pairs}", quiet / pairs, 0.98,
             f"95 % interval {low:.3f} to {high:.3f}; {len(commands)} programs, {seconds} s; {open_pairs} too short; "
             + "; ".join(wrong), smaller=False)


def stamp(when):
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def power(daemon, absolute, seconds, rounds):
    """Four lives a side, merged; found and the only one named."""
    program = compile_workload("two_ways.c", "-O2", "-g")
    found = alone = 0
    for number in range(rounds):
        name, edges = f"planted{number}", [time.time() - 1]
        for percent in PLANTED:
            for _ in range(SIDE):
                life(daemon, {name: [program, percent]}, seconds)
            edges.append(time.time())
        answer = daemon.get(f"{FAMILY_A}/compare?service=life-{name}&profileType=cpu&baseFrom={stamp(edges[0])}"
                            f"&baseTo={stamp(edges[1])}&comparisonFrom={stamp(edges[1])}&comparisonTo={stamp(edges[2])}").json()
        named = [f["funcName"] for f in answer["regressions"] if not f["environment"]]
        found += "slow_way" in named
        alone += named == ["slow_way"]
    absolute("a function doubled is found", found / rounds, 0.9, f"{rounds} times, {SIDE} lives a side, {seconds} s", smaller=False)
    absolute("and is the only one named", alone / rounds, 0.9, smaller=False)


def run(absolute, seconds, lives=LIVES, rounds=10):
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    with Daemon() as daemon:
        null(daemon, absolute, folder, seconds, lives)
        power(daemon, absolute, seconds, rounds)
    shutil.rmtree(folder)
