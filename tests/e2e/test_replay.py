# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""A recording made by one daemon is played by another one without any privilege: the same program,
functions and shares."""

import contextlib
import gzip
import os
import shutil
import tempfile

from harness import BUILD, FAMILY_A, ROOT, Counting, Daemon, build_truth, check, cpu_ns, main, running, wait_until

CPU_SECONDS = 2
NOBODY = 65534
GOLDEN = os.path.join(ROOT, "tests", "golden")


def shares(stacks):
    """{leaf function: share} of the program's functions whose chains reach main."""
    whole = [(s, v) for s, v in stacks if "main" in s]
    total = sum(v for _, v in whole)
    found = {}
    for stack, value in whole:
        leaf = next((f for f in reversed(stack) if f.startswith("leaf_")), None)
        if leaf:
            found[leaf] = found.get(leaf, 0) + value / total
    return found


def record(folder, program):
    with Daemon("--record", os.path.join(folder, "recording")) as daemon, running(program, "600") as process:
        session = daemon.start_profile(os.path.basename(program), 600, rate=199, waitSeconds=60)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "sampling to begin")
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > CPU_SECONDS * 1e9, 120, "the program to run")
        daemon.stop_profile(session)
        return wait_until(lambda: shares(daemon.folded(session)), 60, "names")


@contextlib.contextmanager
def play(folder):
    """A daemon of nobody's that plays `recording` of @folder, which everybody may read."""
    os.chmod(folder, 0o755)
    os.chmod(os.path.join(folder, "recording"), 0o644)
    data = os.path.join(folder, "data")
    os.mkdir(data)
    os.chown(data, NOBODY, NOBODY)
    daemon = Daemon("--replay", os.path.join(folder, "recording"), data_dir=data)
    daemon.program = shutil.copy(os.path.join(BUILD, "profd"), folder)
    daemon.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with daemon:
        wait_until(lambda: daemon.request("GET", "/readyz").json().get("collector"), 60, "the recording to be there")
        yield daemon


def what_was_recorded_once():
    """A program of three functions, static and stripped, for three seconds at 19 Hz: every stack and every value."""
    with open(os.path.join(GOLDEN, "recording.folded")) as f:
        expected = f.read()
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        with open(os.path.join(GOLDEN, "recording.hex")) as text, open(os.path.join(folder, "recording"), "wb") as f:
            f.write(bytes.fromhex(text.read()))
        with play(folder) as daemon:
            session = daemon.start_profile("worker", 600, rate=19, waitSeconds=60)
            wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] == 52, 60, "all samples")
            daemon.stop_profile(session)
            got = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=folded").body.decode()
    check(sorted(got.splitlines()) == sorted(expected.splitlines()), got)


def recording_plays_without_privileges():
    """Everything is in a folder that everybody may read: the checkout need not be."""
    built = build_truth()
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(built, os.path.join(folder, f"replayed-{os.getpid()}"))
        shutil.copy(os.path.join(os.path.dirname(built), "libtruth.so"), folder)
        recorded = record(folder, program)
        with play(folder) as daemon:
            session = daemon.start_profile(os.path.basename(program), 600, rate=199, waitSeconds=60)
            wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 200, 120, "the recording to play")
            daemon.stop_profile(session)
            played = wait_until(lambda: shares(daemon.folded(session)), 60, "names")
    check(set(played) == set(recorded), f"functions: {sorted(played)}, recorded {sorted(recorded)}")
    for leaf, share in recorded.items():
        check(abs(played[leaf] - share) < 0.12, f"{leaf}: {played[leaf]:.2f}, recorded {share:.2f}")


FORMATS = ("json", "csv", "folded", "svg", "flame", "speedscope", "pprof", "perfscript", "callgrind", "firefox",
           "otlp")


def script_frames_play():
    """The functions of a Python program have their names in every format, though its process is gone."""
    program = os.path.join(ROOT, "tests/workloads/python/chains.py")
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        os.chmod(folder, 0o755)
        with Daemon("--record", os.path.join(folder, "recording")) as daemon, \
                Counting("/usr/bin/python3", program, 1) as process:
            service, start = process.service, cpu_ns(process.pid)
            session = daemon.start_profile(service, 600, rate=199, waitSeconds=60)
            wait_until(lambda: cpu_ns(process.pid) - start > 3e9, 120, "the program to run")
            daemon.stop_profile(session)
        with play(folder) as daemon:
            session = daemon.start_profile(service, 600, rate=199, waitSeconds=60)
            wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 400, 120, "the recording")
            daemon.stop_profile(session)
            stacks = daemon.folded(session)
            for name in FORMATS:
                body = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format={name}").body
                if body[:2] == b"\x1f\x8b":
                    body = gzip.decompress(body)
                check(b"by_reduce" in body, f"{name} does not know by_reduce")
    # The first samples come before the layout of the runtime was checked against live threads.
    whole = sum(v for s, v in stacks if "work" in s)
    check(whole > 0.9 * sum(v for _, v in stacks), "stacks without Python frames")


if __name__ == "__main__":
    main(what_was_recorded_once, recording_plays_without_privileges, script_frames_play)
