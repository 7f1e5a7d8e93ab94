# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Java and Node programs of some tenths of a second have names: new functions are asked for while they run."""
import os
import subprocess
import tempfile

from harness import FAMILY_A, ROOT, Daemon, check, main, wait_until
from test_java_truth import installed
from test_python_truth import pprof_stacks

RUNS = 12


def check_program(command, module, file):
    """Most of the frames of the programs' functions are named, but for runs that end before the runtime is known."""
    script = f"until read -t 0.1 line; do {command}; done; for i in $(seq {RUNS}); do {command}; done; echo done; read line"
    with Daemon() as daemon, subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              text=True) as shell:
        session = daemon.start_profile(f"pid:{shell.pid}", 600, rate=499, children=True)
        graph = f"{FAMILY_A}/{session}/flamegraph?format=pprof"
        wait_until(lambda: any(module in (name, path) or path.endswith(file) for stack, _ in pprof_stacks(daemon.get(graph).body)
                               for name, path, _ in stack), 120, "the runtime to be known")
        shell.stdin.write("\n")
        shell.stdin.flush()
        check(shell.stdout.readline() == "done\n", "the programs failed")
        daemon.stop_profile(session)
        shell.stdin.close()
        stacks = pprof_stacks(daemon.get(graph).body)
    named = sum(value for stack, value in stacks if any(path.endswith(file) for _, path, _ in stack))
    unnamed = sum(value for stack, value in stacks if any(name == module for name, _, _ in stack))
    print(f"# {file}: {named / 1e6:.0f} ms named, {unnamed / 1e6:.0f} ms with a frame that is not")
    check(named > RUNS * 1e8, f"{named / 1e6:.0f} ms in the programs' functions")
    check(unnamed < 0.1 * named, f"{file}: {unnamed / 1e6:.0f} ms without names, {named / 1e6:.0f} ms with")


def java():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-d", folder, "--release", "11", os.path.join(ROOT, "tests/workloads/java/Brief.java")], check=True)
        newest = installed()[max(installed())]
        check_program(f"{newest} -cp {folder} Brief", "[java]", "Brief.java")


def node():
    check_program(f"node {ROOT}/tests/workloads/node/brief.js", "[js]", "brief.js")


if __name__ == "__main__":
    main(java, node)
