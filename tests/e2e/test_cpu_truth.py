# SPDX-License-Identifier: Apache-2.0
"""CPU profiles against known answers: shares that the program measured itself, chains of known depth, the
kernel part of a system-call-heavy program, many short-lived processes."""

import collections
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time

from harness import (Daemon, await_perf, band, build_truth, check, check_sampled, compile_workload, cpu_ns, main, own_name,
                     running, wait_until)

LEAVES = {"leaf_a": 0.44, "leaf_b": 0.25, "leaf_c": 0.15, "leaf_s": 0.10, "leaf_t": 0.06}
RATE_HZ = 999
# frames of one name on the stack of each leaf, as the source says
CHAINS = {"leaf_a": ("chain_a", 9), "leaf_b": ("chain_b", 25), "leaf_c": ("chain_c", 118),
          "leaf_s": ("chain_s", 17)}


def profile_truth(daemon, program, cpu_seconds, threads):
    """Profiles it until its process has used @cpu_seconds: a busy machine only makes that last longer."""
    with running(program, "600", str(threads)) as process:
        session = daemon.start_profile(os.path.basename(program), 600, rate=199)
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > cpu_seconds * 1e9, 300, "the program to run")
        return daemon.stop_profile(session)


def check_truth(daemon, result, program):
    samples = result["sampleCount"]
    stacks = daemon.folded(result["id"])
    total = sum(value for _, value in stacks)
    check(samples > 300, f"only {samples} samples")
    check(total == result["totalValue"], f"folded sums to {total}, the result to {result['totalValue']}")

    complete = sum(v for s, v in stacks if s[0] in ("_start", "__clone3", "clone3", "__GI___clone3") or "main" in s)
    check(complete >= 0.97 * total, f"{100 * complete / total:.1f} % of the stacks are complete")
    unknown = sum(v * sum(f.startswith("[unknown]") for f in s) / len(s) for s, v in stacks)
    check(unknown <= 0.01 * total, f"{100 * unknown / total:.2f} % of the frames are unknown")

    for leaf, share in LEAVES.items():
        mine = [(s, v) for s, v in stacks if leaf in s]
        got = sum(v for _, v in mine) / total
        check(abs(got - share) * 100 <= 2 + band(share, samples),
              f"{program}: {leaf} has {100 * got:.2f} %, should be {100 * share:.0f} %")
        if leaf in CHAINS:
            name, count = CHAINS[leaf]
            exact = sum(v for s, v in mine if s.count(name) == count) / max(sum(v for _, v in mine), 1)
            check(exact >= 0.97, f"{leaf}: {100 * exact:.1f} % of its stacks hold exactly {count} x {name}")


def shares_without_frame_pointers():
    program = build_truth()
    with Daemon() as daemon:
        check_truth(daemon, profile_truth(daemon, program, 8, 2), program)


def shares_with_frame_pointers():
    program = build_truth(frame_pointers=True)
    with Daemon() as daemon:
        check_truth(daemon, profile_truth(daemon, program, 8, 2), program)


def first_profile_of_a_new_program():
    """A program that starts while a profile of the whole host runs is complete from its first samples."""
    with Daemon() as daemon, own_name(build_truth()) as program:
        session = daemon.start_profile("*", 300, rate=199)
        done = subprocess.run([program, "2", "1"], capture_output=True, text=True, check=True)
        daemon.stop_profile(session)
        name = os.path.basename(program)[:15]
        stacks = [(s, v) for s, v in daemon.folded(session, "&groupBy=process")
                  if s[0].startswith(name) and ("leaf_a" in s or "leaf_c" in s)]
        truth = json.loads(done.stdout.splitlines()[-1])
        total = sum(v for _, v in stacks)
        due = truth["leaf_a"] + truth["leaf_c"]
        check_sampled(total, due, due, 199)
        complete = sum(v for s, v in stacks if "main" in s)
        check(complete >= 0.97 * total, f"{100 * complete / total:.1f} % complete")


def what_is_paged_out():
    """A stack that is taken from memory again and again: whole where the kernel lets it be walked again, else each of
    its samples is there with what could be read, and in quality.unwindErrors."""
    features = subprocess.run([Daemon().program, "--features"], capture_output=True, text=True, check=True).stdout
    row = next(line for line in features.splitlines() if line.startswith("task_work "))
    program = compile_workload("paged_out.c", "-O2", "-fno-optimize-sibling-calls")
    for retried in (False, True):
        if retried and row.split()[1] != "yes":
            print(f"# not walked again here: {row}")
            break
        arguments = () if retried else ("--disable-feature=task_work",)
        with Daemon(*arguments) as daemon, own_name(program) as mine, running(mine, "spin") as process:
            session = daemon.start_profile(os.path.basename(mine), 600, rate=199)
            start = cpu_ns(process.pid)
            wait_until(lambda: cpu_ns(process.pid) - start > 0.6e9, 300, "the program to run")
            result = daemon.stop_profile(session)
            stacks = daemon.folded(session)
        samples, errors = result["sampleCount"], result["quality"]["unwindErrors"]
        total = sum(v for _, v in stacks)
        check(samples > 60 and total == result["totalValue"], f"{samples} samples, {total} of {result['totalValue']} ns")
        whole = sum(v for s, v in stacks if "run" in s and s.count("down") == 61)
        if retried:
            check(whole >= 0.97 * total, f"{100 * whole / total:.1f} % of the stacks are whole: {errors}")
            check(errors.get("user_read_fault", 0) <= 0.03 * samples, f"{errors} of {samples}")
        else:
            check(whole <= 0.03 * total, f"{100 * whole / total:.1f} % of the stacks are whole")
            check(errors.get("user_read_fault", 0) >= 0.97 * samples, f"{errors} of {samples}")


def what_ran_before_is_whole():
    """200 processes of ten programs that run when the daemon starts: already the first samples of each are whole."""
    programs = [compile_workload("sleeper.c", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", f"-DV={v}",
                                 output=f"sleeper{v}") for v in range(10)]
    with contextlib.ExitStack() as stack:
        byte_out, byte_in = os.pipe()
        crowd = [stack.enter_context(subprocess.Popen([program, "10"], stdin=byte_out)) for program in programs * 20]
        stack.callback(lambda: [p.kill() for p in crowd])
        daemon = stack.enter_context(Daemon())
        session = daemon.start_profile("*", 600, rate=499)
        os.write(byte_in, b"x" * len(crowd))
        for process in crowd:
            check(process.wait(300) == 0, f"status {process.returncode}")
        daemon.stop_profile(session)
        stacks = daemon.folded(session)
        os.close(byte_in)
        os.close(byte_out)
    for v in range(10):
        mine = [(s, n) for s, n in stacks if f"burn_{v}" in s]
        total = sum(n for _, n in mine)
        # 20 processes of 10 ms: 100 samples, give or take four deviations
        check(0.5 * 20 * 10e6 < total < 1.6 * 20 * 10e6, f"program {v}: {total / 1e6:.0f} ms")
        whole = sum(n for s, n in mine if "main" in s and s.count(f"chain_{v}") == 10)
        check(whole >= 0.97 * total, f"program {v}: {100 * whole / total:.1f} % of its stacks are whole")


def sampled_total(daemon):
    text = daemon.get("/metrics").body.decode()
    return int(float(next(line for line in text.splitlines() if line.startswith("profd_samples_total ")).split()[1]))


def a_high_rate_is_not_the_hosts():
    """One service at 999 a second and the whole host at 99 beside it: both are true, others are sampled at 99."""
    other = compile_workload("short.c", "-O2")
    with Daemon() as daemon, own_name(build_truth()) as program, running(other, "burn", "600000", ready=False) as bystander, \
            running(program, "600") as process:
        before_all = cpu_ns(process.pid)
        everything = daemon.start_profile("*", 600, rate=99)
        before_it = cpu_ns(process.pid)
        session = daemon.start_profile(os.path.basename(program), 600, rate=999)
        start, aside, began = cpu_ns(process.pid), cpu_ns(bystander.pid), time.monotonic()
        before = sampled_total(daemon)
        wait_until(lambda: cpu_ns(process.pid) - start > 2.5e9, 300, "the program to run")
        least = cpu_ns(process.pid) - start  # the session ends between the two
        result = daemon.stop_profile(session)
        used, aside = cpu_ns(process.pid) - before_it, cpu_ns(bystander.pid) - aside
        sampled, lasted = sampled_total(daemon) - before, time.monotonic() - began
        daemon.stop_profile(everything)
        of_all = cpu_ns(process.pid) - before_all
        check_truth(daemon, result, program)
        check_sampled(result["totalValue"], least, used, 999)
        check(result["sampleCount"] > 500 * least / 1e9, f"{result['sampleCount']} samples in {least / 1e9:.1f} s of CPU time")
        others = sampled - result["sampleCount"]
        check(others < 300 * aside / 1e9 + 120 * lasted * os.cpu_count(), f"{others} samples of others in {lasted:.1f} s")
        name = os.path.basename(program)
        mine = sum(v for s, v in daemon.folded(everything, "&groupBy=process") if s[0].startswith(name[:15]))
        check_sampled(mine, least, of_all, 99)


def perf_functions(pid, cpu_seconds):
    """{function that ran: samples} as perf sees it, the kernel's included, until the process has used that time."""
    with tempfile.NamedTemporaryFile() as data:
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "199", "-p", str(pid), "-o", data.name],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_perf(perf, data.name)
        start = cpu_ns(pid)
        wait_until(lambda: cpu_ns(pid) - start > cpu_seconds * 1e9, 300, "the program to run")
        perf.send_signal(signal.SIGINT)
        perf.wait(120)
        text = subprocess.run(["perf", "script", "-i", data.name, "-F", "ip,sym"], capture_output=True, text=True,
                              check=True).stdout
    return collections.Counter(line.split()[1] for line in text.splitlines() if len(line.split()) > 1)


def kernel_part_of_system_calls():
    """Below its own functions, and the function that runs as often as `perf` says."""
    program = compile_workload("syscalls.c", "-O2")
    with Daemon() as daemon:
        with running(program, "600") as process:
            session = daemon.start_profile("syscalls", 600, rate=199)
            theirs = perf_functions(process.pid, 3)
            result = daemon.stop_profile(session)
        stacks = daemon.folded(result["id"])
        total = sum(v for _, v in stacks)
        kernel = sum(v for s, v in stacks if "read_loop" in s and any("vfs_read" in f for f in s))
        check(kernel > 0.9 * total, f"only {100 * kernel / total:.1f} % pass read_loop and vfs_read")
        for stack, _ in stacks:
            if "read_loop" in stack and any("vfs_read" in f for f in stack):
                user = stack.index("read_loop")
                check(user < next(i for i, f in enumerate(stack) if "vfs_read" in f), f"order: {stack}")
    samples = sum(theirs.values())
    check(samples > 200, f"perf took {samples} samples")
    for name, count in theirs.most_common(5):
        share, got = count / samples, sum(v for s, v in stacks if s[-1] == name) / total
        check(abs(share - got) <= (band(share, samples) + band(share, result["sampleCount"])) / 100 + 0.02,
              f"{name}: {100 * got:.1f} %, perf has {100 * share:.1f} %")


def short_lived_processes():
    """100 programs of 5 ms a second: their CPU time belongs to the right service and function."""
    program = compile_workload("short.c", "-O2")
    with Daemon() as daemon:
        session = daemon.start_profile("*", 600, rate=RATE_HZ)
        done = subprocess.run([program, "storm", "100", "10"], capture_output=True, text=True, check=True)
        daemon.stop_profile(session)
        due = int(done.stdout)
        stacks = daemon.folded(session, "&groupBy=process")
        mine = [(s, v) for s, v in stacks if s[0].startswith("short")]
        got = sum(v for _, v in mine)
        burn = sum(v for s, v in mine if any(f.startswith("storm_burn") for f in s))
        noise = 4 / (due * RATE_HZ / 1e9) ** 0.5
        check(got > (0.95 - noise) * due, f"{got / 1e6:.0f} ms of {due / 1e6:.0f} ms attributed")
        check(burn > 0.6 * got, f"{100 * burn / got:.0f} % in storm_burn")


if __name__ == "__main__":
    main(shares_without_frame_pointers, shares_with_frame_pointers, first_profile_of_a_new_program,
         what_is_paged_out, what_ran_before_is_whole, a_high_rate_is_not_the_hosts, kernel_part_of_system_calls,
         short_lived_processes)
