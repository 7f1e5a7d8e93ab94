# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""CPU profiles of a Java program, started without a flag for profd, against what it can do: every stack must be one
that the program's grammar allows, every line one of its method and of the call, the share of each branch what the program
measured itself, and the native frames around Java are where they belong. Threads that wait have the stacks that jstack
dumps. Each JDK that is found here is tested, mixed; those of PROFD_TEST_JAVAS also interpreted and with C1 alone. A version
that is not found is a skip."""
import collections
import contextlib
import glob
import os
import re
import subprocess
import tempfile

from harness import FAMILY_A, ROOT, WITHOUT_LOOP, Counting, Daemon, Skip, await_work, check, judge_samples, main, running, wait_until
from test_python_truth import pprof_stacks

PROGRAM = os.path.join(ROOT, "tests/workloads/java/Chains.java")
WAITS = os.path.join(ROOT, "tests/workloads/java/Waits.java")
VIRTUAL = os.path.join(ROOT, "tests/workloads/java/Virtual.java")
CHURN = os.path.join(ROOT, "tests/workloads/java/Churn.java")
REDEFINED = os.path.join(ROOT, "tests/workloads/java/Redefined.java")
VERSIONS = (8, 11, 17, 21, 25)
MODES = {"mixed": (), "interpreted": ("-Xint",), "c1": ("-XX:TieredStopAtLevel=1",)}
# C2 of JDK 8 puts all branches into one method, and places in loops without a safepoint are recorded only then.
RECORDED = {8: ("-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints")}
BRANCHES = ("byVirtual", "byLambda", "bySort", "byRecursion", "byException", "byReflection", "byLoop")
THREADS = 2
CPU_NS = 2e9  # that each mode is profiled for

# caller: {callee: what the caller's line says}, in the methods of the program
CALLS = {
    "Chains.work": {"Chains.branch": "branch("},
    "Chains.branch": {"Chains.choose": "choose(", "Chains.lambda$branch": ".computeIfAbsent("},
    "Chains.choose": {f"Chains.{name}": f"{name}()" for name in BRANCHES},
    "Chains.byVirtual": {f"Chains${shape}.area": "shape.area(" for shape in ("Square", "Circle", "Triangle")},
    "Chains$Square.area": {"Chains.burn": "burn("},
    "Chains$Circle.area": {"Chains.burn": "burn("},
    "Chains$Triangle.area": {"Chains.burn": "burn("},
    "Chains.byLambda": {"Chains.lambda$byLambda": ".map("},
    "Chains.lambda$byLambda": {"Chains.burn": "burn("},
    "Chains.bySort": {"Chains.lambda$bySort": "Arrays.sort("},
    "Chains.lambda$bySort": {"Chains.burn": "burn("},
    "Chains.byRecursion": {"Chains.recurse": "recurse("},
    "Chains.recurse": {"Chains.recurse": "recurse(", "Chains.burn": "burn("},
    "Chains.byException": {"Chains.thrower": "thrower(", "Chains.burn": "burn("},
    "Chains.thrower": {"Chains.thrower": "thrower("},
    "Chains.byReflection": {"Chains.target": "invoke("},
    "Chains.target": {"Chains.burn": "burn("},
}


def installed():
    """{version: path of java} of what is installed, asked for its version."""
    found = {}
    for path in [*filter(None, os.environ.get("PROFD_TEST_JAVAS", "").split(":")), *glob.glob("/usr/lib/jvm/*/bin/java")]:
        done = subprocess.run([path, "-version"], capture_output=True, text=True)
        version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
        if done.returncode == 0 and version:
            found.setdefault(int(version[1]), path)
    return found


@contextlib.contextmanager
def classes():
    """A folder with the program compiled for all versions."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-Xlint:-options", "--release", "8", "-d", folder, PROGRAM, WAITS], check=True)
        yield folder


class Source:
    def __init__(self):
        with open(PROGRAM, encoding="utf-8") as f:
            self.lines = [""] + f.read().splitlines()
        self.ranges = collections.defaultdict(set)
        name = owner = None
        for number, line in enumerate(self.lines):
            found = re.match(r"(    |        )(?:public |static )*\w+(?:\[\])? (\w+)\([\w ,\[\]]*\)[\w ]* \{$", line)
            inner = re.match(r"    static class (\w+)", line)
            if inner:
                owner = f"Chains${inner[1]}"
            if found:
                name = f"{owner if len(found[1]) > 4 else 'Chains'}.{found[2]}"
            if name:
                self.ranges[name].add(number)
            if "->" in line and name:
                self.ranges[name.replace("Chains.", "Chains.lambda$", 1)].add(number)

    def fault(self, stack):
        """The fault of the program's frames, root first; None if there is none."""
        for (name, file, line), after in zip(stack, [*stack[1:], None]):
            if file != "Chains.java" or line not in self.ranges[name]:
                return f"{name} at {file}:{line}"
            if not after:
                continue
            says = CALLS.get(name, {}).get(after[0])
            if not says:
                return f"{name} calls {after[0]}"
            if says not in self.lines[line]:
                return f"{name} calls {after[0]} at line {line}"
        return None


def program_frames(stack):
    """The frames of the program from work() on; a lambda without its number."""
    frames = [(re.sub(r"(lambda\$\w+)\$\d+$", r"\1", name), file, line)
              for name, file, line in stack if name.startswith("Chains")]
    frames = [frame for frame in frames if not frame[0].startswith("Chains$$Lambda")]
    names = [name for name, _, _ in frames]
    return frames[names.index("Chains.work"):] if "Chains.work" in names else []


def native_fault(stack):
    """The fault of the frames around Java: they begin where the thread does, and Java is called by C++."""
    names = [name for name, _, _ in stack]
    java = [i for i, name in enumerate(names) if name == "Chains.work"]
    if not java:
        return None
    if "[java call stub]" not in names[:java[0]]:
        return f"no call stub: {names[:java[0]]}"
    if not any("JavaCalls::call_helper" in name for name in names[:java[0]]):
        return f"no JavaCalls: {names[:java[0]]}"
    if not re.match(r"(__)?clone|start_thread|\[unknown\] libc", names[0]):  # libc's symbols may come later
        return f"begins with {names[0]}"
    return None


def measure(java, flags, folder, daemon_options, rate, ns):
    """(stacks, result, the program's own times) of a profile of @ns of the program's CPU time."""
    with Daemon(*daemon_options) as daemon, Counting(java, *flags, "-cp", folder, "Chains", THREADS) as program:
        session = daemon.start_profile(program.service, 3600, rate=rate)
        await_work(program.pid, ns)
        times = program.counters()
        result = daemon.stop_profile(session)
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    return stacks, result, times


def check_mode(java, mode, folder, flags, daemon_options=()):
    judge_samples(lambda rate, ns: judge(java, mode, folder, flags, daemon_options, rate, ns), CPU_NS)


def judge(java, mode, folder, flags, daemon_options, rate, ns):
    """The number of samples of a profile, of which each is one that the program can have."""
    source = Source()
    stacks, result, times = measure(java, (*MODES[mode], *flags), folder, daemon_options, rate, ns)
    total = worked = 0
    shares, faults, natives = collections.Counter(), collections.Counter(), collections.Counter()
    for stack, value in stacks:
        frames = program_frames(stack)
        total += value
        if not frames:
            continue
        worked += value
        fault = source.fault(frames)
        if fault:
            faults[fault] += value
        fault = native_fault(stack)
        if fault:
            natives[fault] += value
        for name, _, _ in frames[3:4]:
            shares[name.split(".")[-1]] += value
    count = result["sampleCount"]
    check(count > 500, f"{mode}: {count} samples")
    check(not faults, f"{mode}: stacks that cannot be: {faults.most_common(5)}")
    check(not natives, f"{mode}: native frames: {natives.most_common(3)}")
    check(worked > 0.8 * total, f"{mode}: only {100 * worked / total:.1f} % in the program; {result['quality']}")
    # Code may be replaced and freed before its name is read.
    unnamed = collections.Counter()
    for stack, value in stacks:
        for name in {name for name, _, _ in stack} & {"[jit]", "[java]"}:
            unnamed[name] += value
    check(sum(unnamed.values()) < 0.01 * total, f"{mode}: frames without names: {unnamed} of {total}")
    due, got = sum(times.values()), sum(shares.values())
    for name in BRANCHES:
        check(abs(shares[name] / got - times[name] / due) < 0.02 + 1 / count ** 0.5,
              f"{mode}: {name}: {100 * shares[name] / got:.1f} %, the program says {100 * times[name] / due:.1f} %")
    return count


def without_made_up(name):
    """A name without the numbers that the virtual machine gives classes."""
    return re.sub(r"\$\$Lambda[^.]*", "$$Lambda", name)


def dumped(java, pid):
    """{thread: its Java frames, root first, as (name, line)} by jstack."""
    own = os.path.join(os.path.dirname(java), "jstack")  # a JRE has none
    text = subprocess.run([own if os.path.exists(own) else "jstack", str(pid)], capture_output=True, text=True,
                          check=True).stdout
    found = {}
    for part in text.split('\n"')[1:]:
        frames = re.findall(r"^\tat (\S+)\((?:[^)/]*/)?[^):]*(?::(\d+))?\)$", part, re.M)
        found[part.split('"')[0]] = [(without_made_up(name), int(line or 0)) for name, line in reversed(frames)]
    return found


def java_part(stack):
    """The Java frames of a stack as (name, line), root first."""
    return [(name, line) for name, file, line in stack
            if file.endswith(".java") or re.match(r"(java|jdk|sun)\.", name) or name.startswith("Waits")]


def check_waits(java, mode, folder):
    """Threads that wait: the very frames and lines that jstack dumps, inlined ones too."""
    with Daemon() as daemon, Counting(java, *MODES[mode], "-cp", folder, "Waits") as program:
        session = daemon.start_profile(program.service, 600, "offcpu")
        dumps = [dumped(java, program.pid) for _ in range(3)]
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 500, 60, "the threads to wait")
        result = daemon.stop_profile(session)
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    for thread in ("main", *(f"wait-{i}" for i in range(4))):
        wanted = [dump[thread] for dump in dumps]
        share = [stack for stack, _ in stacks if java_part(stack)[:3] == wanted[0][:3]]
        check(any(java_part(stack) in wanted for stack, _ in stacks),
              f"{mode}: {thread} is not as jstack says: {wanted[0]}; seen: {[java_part(s) for s in share[:3]]}; "
              f"{result['quality']}")


def profile(java, folder, *arguments):
    """The stacks of two seconds of a program's CPU time. @arguments: the program, with options of its own before it."""
    with Daemon() as daemon, running(java, "-cp", folder, *arguments, stdin=subprocess.PIPE) as program:
        session = daemon.start_profile(f"pid:{program.pid}", 600, rate=499)
        await_work(program.pid, CPU_NS)
        daemon.stop_profile(session)
        return pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)


# In the stack of a virtual thread, root first. After a yield, what called work() stays where the thread was parked.
MOUNTED = ["java.util.concurrent.ForkJoinWorkerThread.run", "jdk.internal.vm.Continuation.run", "Virtual.work", "Virtual.step"]


def virtual_threads():
    """A virtual thread's frames lead to where it was mounted, and on to its carrier."""
    javas = {version: java for version, java in installed().items() if version >= 21}
    if not javas:
        raise Skip("JDK 21 or newer is not installed")
    with tempfile.TemporaryDirectory() as folder:
        compiler = [os.path.join(os.path.dirname(java), "javac") for java in javas.values()]
        compiler = [path for path in compiler if os.path.exists(path)]
        if not compiler:
            raise Skip("no javac of JDK 21 or newer")
        subprocess.run([compiler[0], "-g", "--release", "21", "-d", folder, VIRTUAL], check=True)
        for version, java in javas.items():
            stacks = profile(java, folder, "Virtual")
            total = whole = 0
            for stack, value in stacks:
                names = [name for name, _, _ in stack]
                if "Virtual.step" not in names:
                    continue
                places = [names.index(name) if name in names else -1 for name in MOUNTED]
                total += value
                whole += value if -1 not in places and places == sorted(places) else 0
                steps = [line for name, _, line in stack if name == "Virtual.step"]
                check(len(steps) <= 4 and set(steps) <= {14}, f"{version}: {stack}")
            check(total > 0.3 * sum(value for _, value in stacks), f"{version}: {stacks[:3]}")
            check(whole > 0.99 * total, f"{version}: {100 * whole / total:.2f} % lead to their carrier")


def unloaded_classes():
    """Classes that come and go, whose methods and code take each other's place: a name is the right one or none."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-Xlint:-options", "--release", "8", "-d", folder, CHURN], check=True)
        for version, java in installed().items():
            stacks = profile(java, folder, "Churn")
            total = named = missing = 0
            for stack, value in stacks:
                total += value if any(name == "Churn.main" for name, _, _ in stack) else 0
                made = [name for name, _, _ in stack if name.startswith("Churn$Made.")]
                numbers = {name[-4:] for name in made}
                roles = [name[len("Churn$Made."):-5] for name in made]
                check(len(numbers) <= 1 and roles in ([], ["caller"], ["callee"], ["caller", "callee"]), f"{version}: {stack}")
                named += value if made else 0
                missing += value if any(name == "[java]" for name, _, _ in stack) else 0
            print(f"# {version}: {named / 1e6:.0f} ms named, {missing / 1e6:.0f} ms with a frame that was gone")
            check(named > 0.5 * total > 0, f"{version}: {named} of {total} in the thread that works")


def redefined_classes():
    """A method whose code was replaced while it ran: its lines and callees are those of the code that runs."""
    with open(REDEFINED, encoding="utf-8") as f:
        lines = ["", *f.read().splitlines()]
    methods = [""]  # of each line
    for line in lines[1:]:
        found = re.match(r"    static long (\w+)\(", line)
        methods.append(found[1] if found else methods[-1])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-Xlint:-options", "--release", "8", "-d", folder, REDEFINED], check=True)
        agent, manifest = os.path.join(folder, "agent.jar"), os.path.join(folder, "manifest")
        with open(manifest, "w", encoding="ascii") as f:
            f.write("Premain-Class: Redefined\nCan-Redefine-Classes: true\n")
        subprocess.run(["jar", "cfm", agent, manifest, "-C", folder, "Redefined.class"], check=True)
        for version, java in installed().items():
            times, missing = collections.Counter(), 0
            for stack, value in profile(java, folder, f"-javaagent:{agent}", "Redefined"):
                made = [(name, line) for name, _, line in stack if name.startswith("MadeAs")]
                missing += value if any(name == "[java]" for name, _, _ in stack) else 0
                if not made:
                    continue
                names = [name for name, _ in made]
                check(names in (["MadeAsOne.caller"], ["MadeAsOne.caller", "MadeAsOne.one"], ["MadeAsOne.caller", "MadeAsOne.two"],
                                ["MadeAsOne.one"], ["MadeAsOne.two"]), f"{version}: {stack}")
                if len(made) == 2:
                    check(f" {names[1][-3:]}(" in lines[made[0][1]], f"{version}: {made}")
                if names[-1] != "MadeAsOne.caller":
                    times[names[-1]] += value
                # Code that was replaced goes on until it returns; what it calls is of the new class.
                check(all(methods[line] == name.split(".")[1] for name, line in made), f"{version}: {made}")
            print(f"# {version}: {dict(times)}, {missing / 1e6:.0f} ms with a frame that was gone")
            check(len(times) == 2 and min(times.values()) > 0.2 * sum(times.values()), f"{version}: {times}")


def of(version):
    def test():
        java = installed().get(version)
        if not java:
            raise Skip(f"JDK {version} is not installed")
        with classes() as folder:
            for mode in MODES if os.environ.get("PROFD_TEST_JAVAS") else ["mixed"]:
                check_mode(java, mode, folder, RECORDED.get(version, ()))
                check_waits(java, mode, folder)
    test.__name__ = f"jdk_{version}"
    test.__doc__ = f"Stacks, lines and shares of JDK {version}."
    return test


def old_kernels():
    """The same by the walk of kernels without bpf_loop(), for the newest JDK that is installed."""
    found = installed()
    version = max(filter(found.get, VERSIONS), default=None)
    if not version:
        raise Skip("no JDK is installed")
    with classes() as folder:
        check_mode(found[version], "mixed", folder, RECORDED.get(version, ()), WITHOUT_LOOP)


if __name__ == "__main__":
    main(*map(of, VERSIONS), old_kernels, virtual_threads, unloaded_classes, redefined_classes)
