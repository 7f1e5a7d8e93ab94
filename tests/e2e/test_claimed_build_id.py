# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""A user's program with the build-id of a program of root's: it names itself only, in samples, in readings of threads, in
the disk cache and for whoever asks later; what was kept apart is told."""

import contextlib
import os
import shutil
import subprocess
import tempfile

from harness import FAMILY_A, Daemon, check, compile_workload, main, wait_until

USER = 65534
BUILD_ID = "-Wl,--build-id=0x70726f666420636c61696d20746573740a"


@contextlib.contextmanager
def spinning(program, uid):
    process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True, user=uid)
    try:
        check(process.stdout.readline() == "ready\n", f"{program} is not ready")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def build(folder, name, uid, *flags):
    """A program whose one function is called @name unless @flags say another name, owned by @uid."""
    built = compile_workload("claims.c", "-O1", "-fomit-frame-pointer", BUILD_ID, *(flags or [f"-DNAME={name}"]),
                             output=f"claims-{name}-{os.getpid()}")
    path = os.path.join(folder, name)
    shutil.move(built, path)
    os.chmod(path, 0o755)
    os.chown(path, uid, uid)
    return path


def top(result):
    return {function["funcName"] for function in result["topFunctions"]}


def named(daemon, session):
    """The session when its names have been read."""
    daemon.finish_profile(session)
    return wait_until(lambda: (lambda result: result if top(result) & {"honest_turns", "forged_turns"} else None)(
        daemon.get(f"{FAMILY_A}/{session}").json()), 60, "names")


def names(daemon, process, kind):
    return top(named(daemon, daemon.start_profile(f"pid:{process.pid}", 2, kind)))


def test_user_names_nothing_of_root():
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        os.chmod(folder, 0o755)
        honest, forged = build(folder, "honest_turns", 0), build(folder, "forged_turns", USER)
        # The liar comes first: its names are built, and in the cache, before anybody has seen the other's.
        with spinning(forged, USER) as liar:
            check("forged_turns" in names(daemon, liar, "cpu"), "the user's program has no names")
            with spinning(honest, 0) as fine:
                for kind in ("cpu", "goroutine"):
                    seen = names(daemon, fine, kind)
                    check("honest_turns" in seen and "forged_turns" not in seen, f"{kind} of root's program: {seen}")
                    seen = names(daemon, liar, kind)
                    check("forged_turns" in seen and "honest_turns" not in seen, f"{kind} of the user's: {seen}")
                host = named(daemon, daemon.start_profile("*", 2))
                check({"honest_turns", "forged_turns"} <= top(host), f"{top(host)}")
                notes = [note for note in host["quality"]["notes"] if "another file's build-id" in note]
                check(len(notes) == 1 and ": 1, " in notes[0], f"{host['quality']['notes']}")
        daemon.stop()
        daemon.start()
        with spinning(honest, 0) as fine:
            seen = names(daemon, fine, "cpu")
            check("honest_turns" in seen and "forged_turns" not in seen, f"from the cache: {seen}")


def test_copy_with_other_offsets():
    """As patchelf makes it: the same build-id, and code elsewhere in the file."""
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        before = build(folder, "honest_turns", 0)
        after = build(folder, "patched", 0, "-DNAME=honest_turns", "-Wl,-z,max-page-size=0x200000")
        with spinning(before, 0) as first:
            check("honest_turns" in names(daemon, first, "cpu"), "no names before")
        with spinning(after, 0) as second:
            session = daemon.start_profile(f"pid:{second.pid}", 2)
            result = named(daemon, session)
            check("honest_turns" in top(result), f"{result}")
            stacks = daemon.folded(session)
            whole = sum(count for frames, count in stacks if {"main", "honest_turns"} <= set(frames))
            check(whole >= 0.9 * sum(count for _, count in stacks), f"stacks by another file's rows: {stacks}")


if __name__ == "__main__":
    main(test_user_names_nothing_of_root, test_copy_with_other_offsets)
