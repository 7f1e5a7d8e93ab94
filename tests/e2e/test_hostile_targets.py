# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Programs that lie to whoever reads their memory: a clear reason in processesSkipped or in the failure, and an
agent that goes on."""

import contextlib
import os
import re
import subprocess
import tempfile

from harness import FAMILY_A, Daemon, Skip, build_go, check, compile_workload, cpu_ns, main, running, wait_until
from silent_fs import SilentFs
from test_python_truth import pprof_stacks

FAMILY_B = "/api/v1/profiling"


def build_liar():
    version = re.match(r"go1\.(\d+)", subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True,
                                                    check=True).stdout)
    flags = ["-ldflags=-checklinkname=0"] if version and int(version.group(1)) >= 23 else []
    return build_go("hostile", *flags)


@contextlib.contextmanager
def liar(how, *arguments, while_honest=lambda process: None):
    """tests/workloads/go/hostile, as soon as it lies."""
    process = subprocess.Popen([build_liar(), how, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        check(process.stdout.readline().strip() == "ready", f"{how}: it did not start")
        if how != "exec":
            while_honest(process)
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline().strip()
            if line.startswith("cannot "):
                raise Skip(line)
            check(line == "lying", f"{how}: {line!r}")
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(daemon, pid, kind="goroutine"):
    """The session of one reading: its result, or the problem it was refused with."""
    answer = daemon.request("POST", FAMILY_B + "/sessions",
                            {"profileType": kind, "target": f"pid:{pid}",
                             **({} if kind == "goroutine" else {"durationSeconds": 1})})
    if answer.status != 200:
        return answer.json()
    return daemon.get(f"{FAMILY_A}/{answer.json()['sessionId']}").json()


def is_fine(daemon, program):
    """A well-behaved program is read as before."""
    result = ask(daemon, program.pid)
    check(result["status"] == "completed" and result["sampleCount"] == 7, f"the agent is affected: {result}")


def refused(result, *words):
    check(result["status"] == "failed" or isinstance(result["status"], int), f"{result}")
    reason = result.get("failureReason") or result.get("detail")
    check(any(word in reason for word in words), f"the reason does not say {words}: {result}")
    if result["status"] == "failed":
        skipped = result["quality"]["processesSkipped"]
        check(len(skipped) == 1 and skipped[0]["reason"] == reason, f"{skipped}")


def test_lists_without_end():
    with Daemon() as daemon, running(compile_workload("waits.c", "-O2", "-pthread")) as fine:
        def is_read(process):
            check(ask(daemon, process.pid)["status"] == "completed", "it was honest and could not be read")

        for how in ("endless", "long"):
            with liar(how, while_honest=is_read) as process:
                # First with what is known of it, then as if it had just been found.
                refused(ask(daemon, process.pid), "changed under every attempt")
                again = ask(daemon, process.pid)
                if again["status"] == "completed":
                    check(any("threads instead of goroutines" in n for n in again["quality"]["notes"]), f"{again}")
                else:
                    refused(again, "changed under every attempt", "has not started")
                is_fine(daemon, fine)
        with liar("cyclic") as process:
            result = ask(daemon, process.pid, "memory")
            check(result["status"] == "completed", f"{result}")
            check(any("were read within the time" in n for n in result["quality"]["notes"]), f"{result['quality']}")
            is_fine(daemon, fine)


def test_memory_that_comes_and_goes():
    with Daemon() as daemon, running(compile_workload("waits.c", "-O2", "-pthread")) as fine, \
            liar("unmapped") as process:
        for _ in range(10):
            result = ask(daemon, process.pid)
            if result["status"] == "completed":
                check(1 <= result["sampleCount"] < 50, f"{result}")
            else:
                refused(result, "changed under every attempt", "has not started", "self-check")
        is_fine(daemon, fine)


def test_memory_that_never_answers():
    with Daemon() as daemon, running(compile_workload("waits.c", "-O2", "-pthread")) as fine, \
            liar("silent") as process:
        is_fine(daemon, fine)
        refused(ask(daemon, process.pid), "do not answer")
        wait_until(lambda: "profd-reader" in daemon.children(), 60, "another reader")
        is_fine(daemon, fine)
        check(process.poll() is None, "the target died of being read")


def test_a_mapped_file_that_never_answers():
    """Not even SIGKILL ends a reader that hangs there: it is left behind, and not sent there again."""
    if not os.path.exists("/dev/fuse"):
        raise Skip("there is no /dev/fuse")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon())
        fine = stack.enter_context(running(compile_workload("waits.c", "-O2", "-pthread")))
        file_system = SilentFs(build_liar(), folder, "file")
        process = stack.enter_context(liar("mapped", stack.enter_context(file_system)))
        file_system.silence()
        for _ in range(2):
            refused(ask(daemon, process.pid), "do not answer")
            is_fine(daemon, fine)
        check(file_system.unanswered == 1, f"it was asked {file_system.unanswered} times")
        check(process.poll() is None, "the target died of being read")


def test_false_build_information():
    with Daemon() as daemon, running(compile_workload("go_fake.c", "-O1")) as process:
        result = ask(daemon, process.pid)
        check(result["status"] == "completed" and result["sampleCount"] == 1, f"read as the one thread it has: {result}")
        refused(ask(daemon, process.pid, "memory"), "Go program", "function table", "moduledata", "type descriptors")


def test_exec_during_the_read():
    with Daemon() as daemon, running(compile_workload("waits.c", "-O2", "-pthread")) as fine, \
            liar("exec") as process:
        completed = 0
        for _ in range(3):
            result = ask(daemon, process.pid)
            completed += result["status"] == "completed"
            reason = result.get("failureReason") or result.get("detail") or ""
            check(result["status"] == "completed" or reason, f"{result}")
        is_fine(daemon, fine)
        check(process.poll() is None, "the target died of being read")


def build_python_liar(version=0x030d00f0):
    return compile_workload("python_liar.c", "-O1", "-pthread", "-rdynamic", f"-DVERSION={version:#x}",
                            output=f"python_liar_{version >> 16:x}")


def python_stacks(daemon, process, all_named=False, work_ns=5e8):
    """(stacks of a profile of @process while it works for @work_ns, root first; how they end). On a busy host names come some
    time after the profile."""
    before = cpu_ns(process.pid)
    session = daemon.start_profile(f"pid:{process.pid}", 600, rate=499)
    wait_until(lambda: cpu_ns(process.pid) > before + work_ns, 60, "the program to work")
    result = daemon.stop_profile(session)

    def shown():
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
        return stacks if not all_named or not any(f[0] == "[python]" for stack, _ in stacks for f in stack) else None

    return wait_until(shown, 60, "all names"), result["quality"]["unwindErrors"]


def is_honest(daemon, process):
    """Every stack in the loop has the two frames that there are."""
    stacks, errors = python_stacks(daemon, process, all_named=True)
    for stack, _ in stacks:
        frames = [frame for frame in stack if frame[1] == "/honest.py"]
        check(frames == [("honest_outer", "/honest.py", 20), ("honest_inner", "/honest.py", 10)], f"{stack} in {stacks}")
    check(not any(name.startswith("script") for name in errors), f"{errors}")


def share_of(stacks, holds):
    return sum(value for stack, value in stacks if holds([frame[0] for frame in stack])) / sum(v for _, v in stacks)


def check_lie(how, stacks, errors):
    """Shown are the true parts; what is missing is counted."""
    names = {frame for stack, _ in stacks for frame in stack if frame[1].startswith(("/", "<"))}
    if how == "cyclic":
        check(share_of(stacks, lambda frames: len(frames) >= 500) > 0.99, "the walk goes round and round up to its end")
        check(errors.get("truncated"), f"{errors}")
    elif how == "long":
        check(names == {("long_table", "/long.py", 0)}, f"a table without end has no lines: {names}")
        check(share_of(stacks, lambda frames: "[python]" in frames) == 1, "a name without end is none")
    elif how == "wild":
        check(errors.get("script_desync") and errors.get("script_unread"), f"{errors}")
        check(names <= {("honest_inner", "/honest.py", 10)}, f"{names}")
    elif how == "unmapped":
        check(errors.get("script_unread"), f"{errors}")
        check(names <= {("honest_outer", "/honest.py", 20), ("honest_inner", "/honest.py", 10)}, f"{names}")
    elif how == "fresh":
        fresh = [frame for frame in names if frame[0].startswith("fresh_")]
        check(len(fresh) > 10, f"{names}")
        for name, file, line in fresh:
            check(file == f"/fresh/{name[6:]}.py" and line in (0, int(name[6:])), f"{name} is not in {file}:{line}")


def test_python_that_lies():
    """Frames in circles, names and tables of 2^60 bytes, addresses that lead nowhere, code objects that come and go, and 1,000
    new functions a second: bounded and counted, and another program's frames stay right."""
    with Daemon() as daemon, running(build_python_liar(), "honest", stdin=subprocess.PIPE) as honest:
        children = daemon.children()
        for how in ("cyclic", "long", "wild", "unmapped", "fresh"):
            with running(build_python_liar(), how, stdin=subprocess.PIPE) as process:
                is_honest(daemon, process)
                process.stdin.write("\n")
                process.stdin.flush()
                check(process.stdout.readline() == "lying\n", f"{how} does not lie")
                # a function that lives for a millisecond is named when the reader comes in time
                check_lie(how, *python_stacks(daemon, process, work_ns=2e9 if how == "fresh" else 5e8))
                result = ask(daemon, process.pid)
                check(result["status"] == "completed", f"the view of threads: {result}")
                is_honest(daemon, honest)
        check(daemon.children() == children, f"{daemon.children()}, before {children}")


def test_python_of_a_later_version():
    """A version without known offsets: its stacks say that frames are missing, and none is made up."""
    with Daemon() as daemon, running(build_python_liar(0x030f00f0), "honest", stdin=subprocess.PIPE) as process:
        stacks, errors = python_stacks(daemon, process)
        check(errors.get("script_unsupported"), f"{errors}")
        check(not any(frame[1] == "/honest.py" or frame[0] == "[python]" for stack, _ in stacks for frame in stack), f"{stacks}")


if __name__ == "__main__":
    main(test_lists_without_end, test_memory_that_comes_and_goes, test_memory_that_never_answers,
         test_a_mapped_file_that_never_answers,
         test_false_build_information, test_exec_during_the_read,
         test_python_that_lies, test_python_of_a_later_version)
