# SPDX-License-Identifier: Apache-2.0
"""Moves a process that is older than all timed looks at it (follow.c) to the control group of another unit."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))

from harness import Daemon, check, main, wait_until  # noqa: E402 pylint: disable=wrong-import-position

GROUPS = next(path for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(path + "/cgroup.procs"))
OLDER_S = 31  # than the last timed look


def group(unit):
    path = f"{GROUPS}/{unit}"
    os.makedirs(path, exist_ok=True)
    return path


def move(pid, path):
    with open(path + "/cgroup.procs", "w", encoding="ascii") as file:
        file.write(str(pid))


def test_process_moves_to_another_unit():
    units = [f"before{os.getpid()}.service", f"after{os.getpid()}.service"]
    paths = [group(unit) for unit in units]
    process = subprocess.Popen(["sleep", "1000"])
    try:
        move(process.pid, paths[0])
        with Daemon() as daemon:
            def services():
                return {s["name"] for s in daemon.get("/api/v1/observability/services").json()["items"]}

            before, after = (unit.removesuffix(".service") for unit in units)
            wait_until(lambda: before in services(), 30, "the first service")
            time.sleep(OLDER_S)
            check(before in services() and after not in services(), "it moved by itself")
            move(process.pid, paths[1])
            wait_until(lambda: after in services() and before not in services(), 120, "the second service")
    finally:
        process.kill()
        process.wait()
        for path in paths:
            os.rmdir(path)


if __name__ == "__main__":
    main(test_process_moves_to_another_unit)
