# SPDX-License-Identifier: Apache-2.0
"""How soon a leak is named first among the suspected ones, in a program that allocates and frees much more
(tests/workloads/heap.c), and that its cache, which stays as large as it is, is never called one."""

import contextlib
import time

from coverage_bench import Program, started
from harness import FAMILY_A, Daemon, compile_workload, own_name, wait_until

PAIRS_PER_S = 1_000_000
LEAK_BYTES = 100


def name_after(daemon, path, bytes_per_s, seconds):
    """The functions suspected of leaking after so many seconds."""
    program = Program(path, PAIRS_PER_S, 1, bytes_per_s // LEAK_BYTES)
    try:
        wait_until(lambda: daemon.profile(program.service, 1, "alloc")["quality"].get("windows"), 90, "probes")
        session = started(daemon, program, "memory")
        time.sleep(seconds)
        return [leak["funcName"] for leak in daemon.stop_profile(session)["suspectedLeaks"]]
    finally:
        program.stop()


def run(absolute, bytes_per_s, seconds):
    """A leak of @bytes_per_s, which must be named in @seconds."""
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(own_name(compile_workload("heap.c", "-O2", "-lpthread")))
        daemon = stack.enter_context(Daemon())
        seen = name_after(daemon, path, bytes_per_s, seconds)
    absolute(f"a leak of {bytes_per_s // 1000} KB/s named first after {seconds} s, {PAIRS_PER_S} pairs/s",
             seen[:1] == ["leak"], 1, f"suspected: {', '.join(seen)}", smaller=False)
    absolute("steady sites that are called leaks", sum(name not in ("leak", "large") for name in seen), 0)
