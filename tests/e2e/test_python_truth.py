# SPDX-License-Identifier: Apache-2.0
"""CPU profiles of a Python program against what it can do: every stack must be one that the program's grammar
allows, every line the one that calls, and the share of each branch what the program measured itself. Each CPython
that is found here is tested; a version that is not found is a skip."""
import ast
import collections
import glob
import gzip
import os
import re
import subprocess
import tempfile
import time

from harness import FAMILY_A, ROOT, WITHOUT_LOOP, Counting, Daemon, Skip, await_work, check, judge_samples, main, wait_until

PROGRAM = os.path.join(ROOT, "tests/workloads/python/chains.py")
ASLEEP = os.path.join(ROOT, "tests/workloads/python/asleep.py")
GIL = os.path.join(ROOT, "tests/workloads/python/gil.py")
SHORT = os.path.join(ROOT, "tests/workloads/python/short.py")
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
WITHOUT_GIL = "3.13t"
BRANCHES = ("by_sorted", "by_reduce", "by_re", "by_generator", "by_recursion", "by_comprehension", "by_exec", "by_init")
THREADS = 2
CPU_NS = 2e9  # that each version is profiled for

# caller: {callee: what the caller's line says}. Names without the functions around them.
CALLS = {
    "work": {"branch": "branch("},
    "branch": {name: "function()" for name in BRANCHES},
    "by_sorted": {"<lambda>": "sorted("},
    "<lambda>": {"burn": "burn("},
    "by_reduce": {"add": "reduce("},
    "add": {"burn": "burn("},
    "replace": {"burn": "burn("},
    "by_generator": {"generate": "generate()"},
    "generate": {"burn": "burn("},
    "by_recursion": {"recurse": "recurse("},
    "recurse": {"recurse": "recurse(", "by_sorted": "by_sorted("},
    "by_comprehension": {"<listcomp>": "burn(", "burn": "burn("},
    "<listcomp>": {"burn": "burn("},
    "by_init": {"__init__": "Thing("},
    "__init__": {"burn": "burn("},
    "by_exec": {"<module>": "exec("},
    "<module>": {"inner": None},  # of <made>, whose text is no file's
    "inner": {"burn": None},
}
# Functions of the interpreter that only call others, or are its loop.
INTERPRETER = {"_PyEval_EvalFrameDefault", "_PyFunction_Vectorcall", "PyEval_EvalCode"}
LEAVES = {"by_re", "work", "branch", *BRANCHES}  # these call functions of the standard library, too


def interpreters():
    """{version: path} of what is installed, asked for its version."""
    found = {}
    for path in [*glob.glob("/usr/bin/python3.*"), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")),
                 *filter(None, os.environ.get("PROFD_TEST_PYTHONS", "").split(":"))]:
        if not re.fullmatch(r"python3(\.\d+t?)?", os.path.basename(path)):
            continue
        done = subprocess.run([path, "-c", "import sys; print('%d.%d%s' % (*sys.version_info[:2], sys.abiflags))"],
                              capture_output=True, text=True)
        if done.returncode == 0:
            found.setdefault(done.stdout.strip(), path)
    return found


def three(found):
    """The oldest, a middle and the newest version of interpreters(): each has another layout of frames."""
    versions = list(filter(found.get, VERSIONS))
    return versions[0], versions[len(versions) // 2], versions[-1]


def fields(data):
    """(field number, value) of a protobuf message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            check(tag & 7 == 2, f"wire type {tag & 7}")
            length = number()
            yield tag >> 3, data[at:at + length]
            at += length


def numbers(value):
    """A packed field."""
    out, part, shift = [], 0, 0
    for byte in value if isinstance(value, bytes) else []:
        part |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            out.append(part)
            part = shift = 0
    return out if isinstance(value, bytes) else [value]


def pprof_stacks(data):
    """[([(function, file, line)], value)], root first, of a pprof file."""
    strings, functions, locations, samples = [], {}, {}, []
    for field, value in fields(gzip.decompress(data)):
        if field == 6:
            strings.append(value.decode())
        elif field == 5:
            one = dict(fields(value))
            functions[one[1]] = (one.get(2, 0), one.get(4, 0))
        elif field == 4:
            one = collections.defaultdict(list)
            for number, part in fields(value):
                one[number].append(part)
            locations[one[1][0]] = [(line[1], line.get(2, 0)) for line in map(dict, map(fields, one[4]))]
        elif field == 2:
            one = collections.defaultdict(list)
            for number, part in fields(value):
                one[number] += numbers(part)
            samples.append((one[1], one[2][-1]))
    stacks = []
    for ids, value in samples:
        frames = []
        for at in reversed(ids):
            for function, line in reversed(locations[at]):
                name, file = functions[function]
                frames.append((strings[name], strings[file], line))
        stacks.append((frames, value))
    return stacks


class Source:
    def __init__(self, version):
        # The instruction with which a generator of 3.10 begins (GEN_START) has no line.
        self.without_line = {"generate"} if version == "3.10" else set()
        with open(PROGRAM, encoding="utf-8") as f:
            text = f.read()
        self.lines = [""] + text.splitlines()
        self.ranges = collections.defaultdict(set)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp)):
                name = {ast.Lambda: "<lambda>", ast.ListComp: "<listcomp>"}.get(type(node), getattr(node, "name", ""))
                self.ranges[name].update(range(node.lineno, node.end_lineno + 1))

    def fault(self, stack):
        """The first error in the Python frames of a stack, root first; None if there is none."""
        for (name, file, line), after in zip(stack, [*stack[1:], None]):
            made = file == "<made>"
            if file != PROGRAM and not made:
                return f"{name} of {file}"
            begins = not line and not after and name in self.without_line
            if not made and not begins and line not in self.ranges[name]:
                return f"{name} at line {line}"
            if not after:
                continue
            if (name, after[0]) == ("by_re", "replace"):
                continue
            says = CALLS.get(name, {}).get(after[0], "")
            if says == "":
                return f"{name} calls {after[0]}"
            if says and says not in self.lines[line]:
                return f"{name} calls {after[0]} at line {line}"
        return None


def python_frames(stack):
    """The frames of the program from work() on, their names without the functions around them."""
    frames = [(name.split(".")[-1], file, line) for name, file, line in stack
              if file.endswith(".py") or file in ("<made>", "<string>") or file.startswith("<frozen")]
    names = [name for name, _, _ in frames]
    frames = frames[names.index("work"):] if "work" in names else []
    # The library has Python frames: re.sub() between by_re() and replace(), and Event.is_set().
    return [frame for frame in frames if not frame[1].endswith(("/re.py", "/re/__init__.py", "/threading.py"))]


def lacks_script(stack):
    """Has the interpreter's loop, and nothing that it executes."""
    return any(name == "_PyEval_EvalFrameDefault" for name, _, _ in stack) and not any(
        name == "[python]" or file.endswith(".py") or file.startswith("<") for name, file, _ in stack)


def is_python(frame):
    return frame[1].endswith(".py") or frame[1].startswith("<")


def check_folded(stacks, raw):
    """The interpreter's own functions are left out between Python functions, and nothing else is."""
    def by_python(stacks):
        sums = collections.Counter()
        for stack, value in stacks:
            sums[tuple(filter(is_python, stack))] += value
        return sums

    check(by_python(stacks) == by_python(raw), "the Python frames differ from those with frames=raw")
    for stack, _ in stacks:
        at = [i for i, frame in enumerate(stack) if is_python(frame)]
        inside = stack[at[0]:at[-1]] if at else []
        check(not any(name in INTERPRETER for name, _, _ in inside), f"not folded: {inside}")
    check(any(name in INTERPRETER for stack, _ in raw for name, _, _ in stack), "frames=raw has none of the interpreter")


def check_version(version, *daemon_options):
    path = interpreters().get(version)
    if not path:
        raise Skip(f"CPython {version} is not installed")
    judge_samples(lambda rate, ns: judge(version, path, daemon_options, rate, ns), CPU_NS)


def judge(version, path, daemon_options, rate, ns):
    """Profiles the program for @ns of CPU time; the number of samples, of which each is one that it can have."""
    source = Source(version)
    with Daemon(*daemon_options) as daemon, Counting(path, PROGRAM, THREADS) as program:
        session = daemon.start_profile(program.service, 3600, rate=rate)
        await_work(program.pid, ns)
        # It ends when it is asked, and the lines of a frame that was met just before can be read no more.
        result = daemon.stop_profile(session)
        times = program.counters()
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
        raw = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof&frames=raw").body)
    check_folded(stacks, raw)
    total = sum(value for _, value in stacks)
    shares, faults, without = collections.Counter(), collections.Counter(), 0
    # The session begins when the interpreter's frames can be read, not before.
    lacking = sum(value for stack, value in stacks if lacks_script(stack))
    check(not lacking, f"{100 * lacking / total:.2f} % in the loop without Python frames; {result['quality']}")
    for stack, value in stacks:
        frames = python_frames(stack)
        fault = frames and source.fault(frames)
        if fault:
            faults[fault] += value
        if not frames:
            without += value
        for name, _, _ in frames[2:3]:
            shares[name] += value
    check(result["sampleCount"] > 500, f"{result['sampleCount']} samples")
    check(not faults, f"stacks that cannot be: {faults.most_common(5)}")
    check(without <= 0.02 * total, f"{100 * without / total:.1f} % without Python frames; {result['quality']}")
    due, got = sum(times.values()), sum(shares.values())
    for name in BRANCHES:
        check(abs(shares[name] / got - times[name] / due) < 0.02 + 2 / result["sampleCount"] ** 0.5 / 2,
              f"{name}: {100 * shares[name] / got:.1f} %, the program says {100 * times[name] / due:.1f} %")
    return result["sampleCount"]


def go_tool_lists_the_source():
    """`go tool pprof -list` shows the time of each line of a Python function beside its text."""
    found = interpreters()
    path = [found[version] for version in VERSIONS if version in found][-1]
    with Daemon() as daemon, Counting(path, PROGRAM, 1) as program, tempfile.NamedTemporaryFile(suffix=".pb.gz") as file:
        session = daemon.profile(program.service, 2, "cpu")["id"]
        file.write(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
        file.flush()
        done = subprocess.run(["go", "tool", "pprof", "-list", "^burn$", file.name], capture_output=True, text=True, cwd="/")
    check(re.search(r"^ +\S+ +[0-9.]+m?s +\d+: +total \+= i \* i$", done.stdout, re.M), done.stdout + done.stderr)


def waits_for_the_gil():
    """Two threads that compute wait for each other's turn: a kind of its own, and a lock of mutex profiles."""
    found = interpreters()
    versions = list(filter(found.get, VERSIONS))
    for version in sorted({versions[0], versions[-1]}):
        with Daemon() as daemon, Counting(found[version], PROGRAM, THREADS) as program:
            waits = daemon.profile(program.service, 2, "offcpu")["breakdown"]["wait"]
            check(waits.get("gil", 0) > waits.get("futex", 0), f"{version}: {waits}")
            locks = daemon.profile(program.service, 2, "mutex")["breakdown"]["lock"]
            check(any(name.startswith("GIL 0x") for name in locks), f"{version}: {locks}")


def lines_of(path):
    """{function: its lines} of a source file."""
    with open(path, encoding="utf-8") as f:
        return {node.name: range(node.lineno, node.end_lineno + 1) for node in ast.walk(ast.parse(f.read()))
                if isinstance(node, ast.FunctionDef)}


def holders_in(stacks):
    """{(waiting function, innermost Python function of the holder): ns} of the waits for the GIL in want(), and how many ns of
    them have no holder. The line of each frame lies in its function."""
    lines, sums, unseen = lines_of(GIL), collections.Counter(), 0
    for stack, value in stacks:
        names = [name for name, _, _ in stack]
        at = next((i for i, name in enumerate(names) if name in ("[held by]", "[holder not seen]")), 0)
        if "want" not in names[:at]:
            continue
        if names[at] != "[held by]":
            unseen += value
            continue
        holder = [frame for frame in stack[at + 1:] if frame[1] == GIL]
        check(holder and all(line in lines[name] for name, _, line in holder), f"the holder's frames: {stack[at:]}")
        sums[holder[0][0]] += value
        # the caller of both, at its own line
        check(not holder[0][0].startswith("hold_") or holder[1][0] == "hold", f"the holder's callers: {stack[at:]}")
    return sums, unseen


def holders_of_the_gil():
    """A wait for the GIL has the Python stack of the thread that held it: the shares of two functions that hold it are those
    that the waiters measured, and a label names the thread."""
    found = interpreters()
    for version, waiters in zip(three(found), (1, 3, 3)):
        with Daemon() as daemon, Counting(found[version], GIL, waiters) as program:
            daemon.profile(program.service, 1, "mutex")  # the interpreter is known from now on
            before = program.counters()
            session = daemon.start_profile(program.service, 600, "mutex", rate=1000)
            time.sleep(2)
            daemon.stop_profile(session)
            after = program.counters()
            stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
            mine = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof&groupBy=holder").body)
        sums, unseen = holders_in(stacks)
        held = sums["hold_long"] + sums["hold_short"]
        due = {name: after.get(name, 0) - before.get(name, 0) for name in ("hold_long", "hold_short")}
        said = f"{version}, {waiters} waiters: {sums} ns, without holder {unseen}, the program says {due}"
        check(held > 5e8 * waiters, said)
        # the last holder releases the lock when the session is over
        check(unseen <= 0.1 * (held + unseen), said)
        check(sum(sums.values()) - held <= 0.02 * held, said)
        # the program charges a whole wait to its last holder, and time in the queue for a CPU: many waiters wait through two
        check(waiters > 1 or abs(sums["hold_long"] / held - due["hold_long"] / sum(due.values())) < 0.1, said)
        # every wait that holder's frames were found for names its thread
        for stack, _ in mine:
            names = [name for name, _, _ in stack]
            holder = names[names.index("[held by]"):] if "[held by]" in names else []
            for function, thread in (("hold", "holder ("), ("want", "waiter (")):
                check(function not in holder or names[0].startswith(thread), f"{version}: {stack}")


def python_stacks_of(daemon, session):
    """The Python frames of each stack but the main thread's, sorted. A wait that began to be counted before the program's
    files were known is in two parts, of which the first says that it was not sampled."""
    stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    frames = sorted(tuple(filter(is_python, stack)) for stack, _ in stacks if stack[0][0] != "[blocked, not sampled]")
    return [stack for stack in frames if not stack or stack[0][:2] != ("<module>", ASLEEP)]


def threads_that_sleep():
    """Threads that sleep through a whole session, and the view of threads: each has the frames and lines that the program
    itself says."""
    found = interpreters()
    for version in filter(found.get, (*VERSIONS, WITHOUT_GIL)):
        with Daemon() as daemon, Counting(found[version], ASLEEP) as program:
            due = program.counters()
            due.pop("MainThread")
            due = sorted(tuple(map(tuple, stack)) for stack in due.values())
            for kind, seconds in (("goroutine", 0), ("offcpu", 1)):
                answer = daemon.request("POST", "/api/v1/profiling/sessions", {
                    "profileType": kind, "target": program.service, **({"durationSeconds": seconds} if seconds else {})})
                check(answer.status == 200, f"{kind}: {answer}")
                result = daemon.finish_profile(answer.json()["sessionId"])
                shown = python_stacks_of(daemon, result["id"])
                check(shown == due, f"{version} {kind}: {set(shown) ^ set(due)} {result['quality']['unwindErrors']}")
                check(not result["quality"]["unwindErrors"], f"{version} {kind}: {result['quality']}")
            # so that a person sees where the program waits: its own functions, none of the interpreter's or of threading.py
            own = {f["funcName"]: f for f in result["ownFunctions"]}
            check(own and all(f["file"] == ASLEEP and f["wait"] for f in own.values()), f"{version}: {own}")


def threads_that_run():
    """The view of threads has the Python frames of threads that run: stacks that the program can have."""
    found, views = interpreters(), 4
    for version in (*three(found), *filter(found.get, [WITHOUT_GIL])):
        with Daemon() as daemon, Counting(found[version], PROGRAM, THREADS) as program:
            daemon.profile(program.service, 1, "cpu")  # the interpreter is known from now on
            stacks = []
            for _ in range(views):
                answer = daemon.request("POST", "/api/v1/profiling/sessions",
                                        {"profileType": "goroutine", "target": program.service})
                check(answer.status == 200, answer)
                result = daemon.finish_profile(answer.json()["sessionId"])
                check(result["sampleCount"] == THREADS + 1, f"{version}: {result['sampleCount']} threads")
                graph = f"{FAMILY_A}/{result['id']}/flamegraph?format=pprof"
                wait_until(lambda: all(name != "[python]" for stack, _ in pprof_stacks(daemon.get(graph).body)
                                       for name, _, _ in stack), 30, "names")
                for state in ("running", "runnable"):
                    stacks += pprof_stacks(daemon.get(f"{graph}&where=state:{state}").body)
        frames = [(python_frames(stack), value) for stack, value in stacks]
        whole = sum(value for stack, value in frames if stack)
        total = sum(value for _, value in frames)
        source = Source(version)
        faults = list(filter(None, (source.fault(stack) for stack, _ in frames if stack)))
        check(not faults, f"{version}: stacks that cannot be: {faults}")
        check(total >= views / 2 and whole >= 0.8 * total, f"{version}: {whole} of {total} running threads have Python frames")


def short_programs():
    """Programs of 0.1 s have names: their interpreter is known from others, and new functions are asked for at once."""
    found, runs = interpreters(), 20
    path = [found[version] for version in VERSIONS if version in found][-1]
    script = f"{path} {PROGRAM} 1; for i in $(seq {runs}); do {path} {SHORT}; done; read line"
    with Daemon() as daemon, subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              text=True) as shell:
        session = daemon.start_profile(f"pid:{shell.pid}", 600, rate=499, children=True)
        graph = f"{FAMILY_A}/{session}/flamegraph?format=pprof"
        # The interpreter's file is read when it is first sampled.
        wait_until(lambda: any(file == PROGRAM for stack, _ in pprof_stacks(daemon.get(graph).body) for _, file, _ in stack),
                   120, "an interpreter to be known")
        shell.stdin.write("\n")
        shell.stdin.flush()
        check(shell.stdout.readline() == "ready\n" and shell.stdout.readline().startswith("{"), "the first program failed")
        own = sum(int(shell.stdout.readline()) for _ in range(runs))
        daemon.stop_profile(session)
        shell.stdin.close()
        stacks = [(stack, value) for stack, value in pprof_stacks(daemon.get(graph).body)
                  if not any(file == PROGRAM for _, file, _ in stack)]
    named = sum(value for stack, value in stacks if any(file == SHORT for _, file, _ in stack))
    unnamed = sum(value for stack, value in stacks if any(name == "[python]" for name, _, _ in stack))
    # Four standard deviations of what is sampled at 499 Hz, and a tenth for what each program begins and ends with.
    check(named >= 0.9 * own - 4 * (own / 499e-9) ** 0.5, f"{named / 1e6:.0f} ms in its functions of {own / 1e6:.0f} ms; "
          f"without names {unnamed / 1e6:.0f} ms")


def of(version):
    def test():
        check_version(version)
    test.__name__ = "cpython_" + version.replace(".", "_")
    test.__doc__ = f"Stacks, lines and shares of CPython {version}."
    return test


def old_kernels():
    """The same by the walk of kernels without bpf_loop(), for the oldest and the newest CPython that is installed."""
    found = [version for version in VERSIONS if version in interpreters()]
    for version in (found[0], found[-1]):
        check_version(version, *WITHOUT_LOOP)


if __name__ == "__main__":
    main(*map(of, (*VERSIONS, WITHOUT_GIL)), old_kernels, waits_for_the_gil, holders_of_the_gil, threads_that_sleep, threads_that_run,
         go_tool_lists_the_source, short_programs)
