# SPDX-License-Identifier: Apache-2.0
"""How many stacks are whole: those of programs whose chains are known, and of large programs that are not ours beside
perf, which copies 32 KiB of each stack, in the same span."""

import contextlib
import re
import subprocess
import tempfile

import test_builds
import test_real_programs
from harness import free_port, running, wait_until
from programs import load, postgres

NODE = ("const d = {}; for (let i = 0; i < 300; i++) d['k' + i] = Array.from({length: 40}, (_, j) => i * j);"
        "for (;;) { const s = JSON.stringify(d); JSON.parse(s); s.match(/[0-9]+5/g).sort(); }")


def known(absolute):
    """A tick between the start of a program and its entry counts as not whole."""
    shares, samples, unknown, named = {}, 0, 0, 0
    with test_builds.profiled() as (daemon, session, table):
        for build in table:
            stacks = test_builds.stacks_of(daemon, session, build)
            total = sum(v for _, v in stacks)
            shares[build.name] = (test_builds.exact_ns(stacks, build), total)
            samples += total / test_builds.TICK_NS
            if build.shows & test_builds.NAMES:
                unknown += test_builds.unknown_ns(stacks)
                named += total
    worst = min(shares, key=lambda name: shares[name][0] / shares[name][1])
    whole, total = map(sum, zip(*shares.values()))
    absolute(f"complete and exact stacks of {len(shares)} builds of known programs, %", 100 * whole / total, 100,
             f"{samples:.0f} samples; worst {worst} {100 * shares[worst][0] / shares[worst][1]:.2f}", smaller=False)
    absolute("frames without a name in them, %", 100 * unknown / named, 0.5)


def backend_of(server):
    """A process of the server that answers a client."""
    children = subprocess.run(["pgrep", "-P", str(server.pid), "-af", ""], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^(\d+) postgres: .*\b127\.0\.0\.1\(", children, re.MULTILINE)
    return found and int(found[1])


@contextlib.contextmanager
def backend():
    with tempfile.TemporaryDirectory() as folder, postgres(folder, free_port()) as (server, where, tools):
        subprocess.run([tools + "/pgbench", *where, "-i", "-q", "postgres"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with load(tools + "/pgbench", *where, "-n", "-S", "-c", "1", "-T", "36000", "postgres"):
            yield wait_until(lambda: backend_of(server), 60, "a client's process")


@contextlib.contextmanager
def command(*words):
    with running(*words, ready=False) as process:
        yield process.pid


def others(absolute):
    for name, program in (("clang compiling", command(*test_real_programs.clang_command())), ("node", command("node", "-e", NODE)),
                          ("postgres under pgbench", backend())):
        with program as pid:
            ours, theirs = test_real_programs.of_both(pid)
        mine, reference = test_real_programs.complete_shares(ours, theirs)
        must = max(97, min(100 * reference + 3, 99))
        absolute(f"complete stacks, {name}, %", 100 * mine, must, f"perf with 32 KiB of stack {100 * reference:.1f}", smaller=False)
