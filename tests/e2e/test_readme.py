# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The pages for users tell the truth: their commands run against a live daemon, its options, keys, files and make targets
exist."""

import os
import re
import shlex
import subprocess
import tempfile

from harness import BUILD, ROOT, Daemon, build_truth, check, cpu_ns, main, own_name, running, wait_until

PROFCTL = os.path.join(BUILD, "profctl")
PROFD = os.path.join(BUILD, "profd")

PAGES = "README.md", "tools/README.md", "tools/packaging/README.md"


def page(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.read()


README = page("README.md")
ALL = "\n".join(map(page, PAGES))


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ten_questions():
    """The commands of the first block, in their order, with a program of ours for nginx and real ids."""
    block = README.split("## Use it")[1].split("```\n")[1]
    lines = [line.split("  #")[0].strip() for line in block.splitlines() if line.startswith("profctl ")]
    check(len([line for line in block.splitlines() if re.match(r"# \d+\. ", line)]) == 10, "ten questions")
    done = []
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder, own_name(build_truth()) as program, \
            running(program, "600") as process:
        service, path = os.path.basename(program), os.path.join(folder, "profd.sock")
        ids = {}

        def profile(daemon, kind="cpu"):
            session = daemon.start_profile(service, 600, kind, rate=499)
            begin = cpu_ns(process.pid)
            wait_until(lambda: cpu_ns(process.pid) - begin > 1e9, 120, "the program to run")
            daemon.stop_profile(session)
            return session

        with Daemon("--socket", path) as daemon:
            for line in lines:
                command = line.replace("nginx", service).replace("cpu.pb.gz", os.path.join(folder, "cpu.pb.gz"))
                if "sess-…" in command:
                    kind = "wall" if " ledger " in command else "cpu"
                    command = command.replace("sess-…", profile(daemon, kind), 1)
                command = command.replace("bl-…", ids.get("baseline", "bl-"))
                words = shlex.split(command)
                check(words[0] == "profctl" and "…" not in command, command)
                words[0:1] = [PROFCTL, "--socket", path]
                # Commands that take half a minute by default are run for one second here.
                if " start " in command and "continuous" not in command:
                    words += ["--duration", "1"]
                if " ci " in command:
                    words[words.index("--duration") + 1] = "12"
                answer = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=folder)
                allowed = (0, 1, 3) if " ci " in command else (0,)
                check(answer.returncode in allowed, f"{line}: exit {answer.returncode}: {answer.stdout[-600:]}"
                      f"{answer.stderr[-600:]}")
                if " baseline create " in command:
                    ids["baseline"] = answer.stdout.strip()
                done.append(line)
    check(len(done) >= 14, done)


def options_exist():
    helps = {}
    for words in re.findall(r"\bprofctl ((?:[a-z]+ ?)+[^`#\n]*)", ALL):
        names = words.split()
        for name in (" ".join(names[:2]), names[0]):
            if name in helps:
                break
            answer = subprocess.run([PROFCTL, *name.split(), "--help"], capture_output=True, text=True)
            if answer.returncode == 0:
                helps[name] = answer.stdout
                break
        else:
            check(False, f"no command in: profctl {words}")
        for option in re.findall(r"(?<=\s)--([a-z-]+)", words.split(" -- ")[0]):
            check(f"--{option}" in helps[name] or option == "help", f"profctl {name} has no --{option}")
    daemon = output(PROFD, "--help")
    for words in re.findall(r"\bprofd ((?:--[^`\n]+)+)`", ALL):
        for option in re.findall(r"--([a-z-]+)", words):
            check(f"--{option}" in daemon, f"profd has no --{option}")
    targets = output("make", "-s", "-C", ROOT, "help")
    for target in re.findall(r"`make ([a-z-]+)`", ALL):
        check(re.search(rf"make {target}\b", targets) or target == "help", f"no make target {target}")


def keys_and_files_exist():
    with open(os.path.join(ROOT, "tools/packaging/profd.conf")) as f:
        known = set(re.findall(r"^#([a-z0-9_]+) =", f.read(), re.M))
    for key in re.findall(r"`\[(?:server|store|collect|continuous|auth|limits)\] ([a-z_]+)", ALL):
        check(key in known, f"no key {key}")
    for path in re.findall(r"`((?:agent|api|bpf|symbolize|tests|tools)/[A-Za-z0-9_./-]+)`", ALL):
        check(os.path.exists(os.path.join(ROOT, path)), f"no {path}")
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    for path in pictures:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            picture = f.read()
        # As the daemon writes them: text without script, of a size that a page bears.
        check(picture.startswith("<?xml") and "<script" not in picture and len(picture) < 60000, path)
    check(pictures, "no picture")
    check(len(README.splitlines()) <= 180 and len(README.split()) <= 1800, "the README is for users: 180 lines, 1,800 words")


def kernels_are_those_of_the_matrix():
    """The table of kernels says what booted kernels did (tests/vm/matrix.txt)."""
    faults = output("python3", os.path.join(ROOT, "tests/vm/support.py"), "faults")
    check(not faults, faults)


if __name__ == "__main__":
    main(ten_questions, options_exist, keys_and_files_exist, kernels_are_those_of_the_matrix)
