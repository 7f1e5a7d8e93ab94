# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Programs that lie about themselves: damaged and boobytrapped ELF files, one that nobody can open without hanging, perf
maps that are not theirs, endless or full of markup. They spoil their own names at most; sampling, names and memory of everything else stay as they are."""

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

from harness import (FAMILY_A, WORKLOADS, Daemon, Skip, band, build_truth, check, check_sampled, compile_workload, cpu_ns, main,
                     own_name, running, wait_until)
from silent_fs import OPEN, READ, SilentFs

FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE = 1, 2
FILES, AT_ONCE = 9000, 3000  # as many as one process may map
MEMORY_KB_MAX = 700 << 10  # of the symbolizer, at any time
STACKS_MAX = 1000  # the least that can be set
BOMB_BYTES = 1 << 30
MAPPER = """
import mmap, os, sys
held = []
for name in sys.argv[1:]:
    with open(name, "rb") as f:
        held.append(mmap.mmap(f.fileno(), os.path.getsize(name), prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE))
print("ready", flush=True)
x = 0
while True:
    x = x * 31 + 1 & 0xffff
"""


class Elf:
    """Section headers of a 64-bit file, to be lied about."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        self.shoff, = struct.unpack_from("<Q", self.data, 0x28)
        self.count, = struct.unpack_from("<H", self.data, 0x3c)
        names_at, = struct.unpack_from("<H", self.data, 0x3e)
        strings, = struct.unpack_from("<Q", self.data, self.shoff + 64 * names_at + 0x18)
        self.at = {}
        for i in range(self.count):
            head = self.shoff + 64 * i
            start = strings + struct.unpack_from("<I", self.data, head)[0]
            self.at[bytes(self.data[start:self.data.index(0, start)]).decode()] = head

    def place(self, name):
        return struct.unpack_from("<QQ", self.data, self.at[name] + 0x18)

    def set(self, name, offset, value):
        struct.pack_into("<Q", self.data, self.at[name] + offset, value)

MANY_MAPPER = """
import ctypes, os, sys, time
mmap = ctypes.CDLL(None).mmap
mmap.restype = ctypes.c_void_p
folder, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(begin, end):
    fd = os.open(os.path.join(folder, str(i)), os.O_RDONLY)
    mmap(None, ctypes.c_size_t(4096), 5, 2, fd, ctypes.c_long(0))
    os.close(fd)
print("ready", flush=True)
time.sleep(1000)
"""


def truncated(elf):
    del elf.data[len(elf.data) // 2:]


def headers_beyond(elf):
    struct.pack_into("<Q", elf.data, 0x28, 1 << 60)


def endless_section(elf):
    elf.set(".debug_info", 0x20, 1 << 60)


def entries_of_nothing(elf):
    elf.set(".symtab", 0x38, 0)
    elf.set(".dynsym", 0x38, 0)


def sections_on_each_other(elf):
    for name in (".debug_abbrev", ".debug_line", ".debug_str", ".symtab", ".eh_frame"):
        offset, _ = elf.place(".debug_info")
        elf.set(name, 0x18, offset)


def noise(name):
    def change(elf):
        offset, size = elf.place(name)
        state = 1
        for i in range(size):
            state = (state * 1103515245 + 12345) & 0x7fffffff
            elf.data[offset + i] = state >> 16 & 0xff
    change.__name__ = "noise_" + name.lstrip(".")
    return change


def all_ones(name):
    def change(elf):
        offset, size = elf.place(name)
        elf.data[offset:offset + size] = b"\xff" * size
    change.__name__ = "ones_" + name.lstrip(".")
    return change


def bomb(elf):
    """A gigabyte of zeros in a megabyte."""
    packer = zlib.compressobj(1)
    packed = b"".join([packer.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20)] + [packer.flush()])
    elf.set(".debug_info", 0x8, 0x800)  # SHF_COMPRESSED
    elf.set(".debug_info", 0x18, len(elf.data))
    elf.data += struct.pack("<IIQQ", 1, 0, BOMB_BYTES, 1) + packed
    elf.set(".debug_info", 0x20, 24 + len(packed))


# Starts a program of a folder with an overlay over that folder, as anybody may in a user namespace.
OVERLAID = ("unshare", "-Urm", "sh", "-c", 'cd "${0%/*}" && mount -t tmpfs none /srv && mount -t overlay -o "lowerdir=$PWD:/srv" '
            'none "$PWD" && cd "$PWD" && exec "./${0##*/}" "$@"')

LIES = [truncated, headers_beyond, endless_section, entries_of_nothing, sections_on_each_other, bomb,
        *(noise(n) for n in (".debug_info", ".debug_abbrev", ".debug_line", ".eh_frame", ".symtab", ".strtab")),
        *(all_ones(n) for n in (".debug_info", ".debug_abbrev", ".debug_line", ".eh_frame", ".dynsym"))]


def hostile_files(folder):
    """One file per lie, each a build of its own."""
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "workloads/truth_lib.cpp")
    plain = os.path.join(folder, "plain.so")
    subprocess.run(["g++", "-O2", "-g", "-gdwarf-5", "-fPIC", "-shared", "-Wl,--build-id=none", "-o", plain, source], check=True)
    paths = []
    for lie in LIES:
        elf = Elf(plain)
        lie(elf)
        paths.append(os.path.join(folder, lie.__name__ + ".so"))
        with open(paths[-1], "wb") as f:
            f.write(elf.data)
    return paths


def memory_kb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


def builders(daemon):
    """Processes that the symbolizer has reading a file now; none of them may grow."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/stat") as f:
            if int(f.read().rsplit(") ", 1)[1].split()[1]) == daemon.children()["profd-symbols"]:
                found.append(pid)
                check(memory_kb(pid) < MEMORY_KB_MAX, f"a builder used {memory_kb(pid) >> 10} MB")
    return found


@contextlib.contextmanager
def silent_program(*under):
    """A program whose file system has stopped answering, so that whoever opens its file hangs, started by @under; yields
    the number of those who asked it since."""
    if not os.path.exists("/dev/fuse"):
        print("  without a silent file system: this kernel has no FUSE")
        yield lambda: 1
        return
    if under and subprocess.run(["unshare", "-Urm", "true"], stderr=subprocess.DEVNULL).returncode:
        print("  without an overlay over it: no user namespace can be made here, as in a changed root")
        yield lambda: 1
        return
    folder = tempfile.mkdtemp()
    program = compile_workload("places.c", "-O2", "-static", "-Wl,--no-warnings", output=os.path.basename(folder))
    files = SilentFs(program, folder, "silent")
    try:
        with files as path, running(*under, path, "plain") as process:
            wait_until(lambda: cpu_ns(process.pid) > 0.1e9, 60, "its code to be in memory")
            files.silence()
            yield lambda: files.unanswered
    finally:
        os.rmdir(folder)
        os.unlink(program)


@contextlib.contextmanager
def shut_in_program(place):
    """A program with code of its own making below a root of its own, whose @place there, where its map or its debug
    file would be, does not answer; yields it and the number of those who asked there."""
    if not os.path.exists("/dev/fuse"):
        yield None, lambda: 1
        return
    with tempfile.TemporaryDirectory() as root:
        inside = os.path.join(root, f"shut-in-{os.getpid()}")
        os.chmod(root, 0o755)
        os.makedirs(os.path.join(root, place))
        compile_workload("jit.c", "-O2", "-static", f"-Wl,--build-id=0x{os.urandom(20).hex()}", output=os.path.relpath(inside, WORKLOADS))
        files = SilentFs(inside, os.path.join(root, place), "none")
        with files, running("chroot", root, "/" + os.path.basename(inside), "300", "none") as process:
            files.silence()
            yield process, lambda: files.unanswered


class LockingFs(SilentFs):
    """The first who opens the file has direct access, the others the cache; nobody is given a page."""

    opened = False

    def answer(self, opcode, node, body):
        if opcode == READ:
            return None
        if opcode == OPEN:
            first, self.opened = not self.opened, True
            return struct.pack("<QII", 0, FOPEN_KEEP_CACHE | (FOPEN_DIRECT_IO if first else 0), 0)
        return super().answer(opcode, node, body)


@contextlib.contextmanager
def locked_program():
    """A program that lets nobody look at its address space."""
    folder = tempfile.mkdtemp()
    program = compile_workload("locked_space.c", "-O2", "-lpthread")
    files = LockingFs("/bin/true", folder, "page")
    try:
        with files as path, running(program, path) as process:
            def locked():
                with open(f"/proc/{process.pid}/stat") as f:
                    return f.read().rsplit(") ", 1)[1][0] == "D"

            try:
                wait_until(locked, 60, "the lock to be held")
                yield process
            finally:
                files.end()  # before that it cannot even be killed
    finally:
        os.rmdir(folder)


def locked_spaces():
    """Programs, running when it starts and begun later, whose command line and mappings cannot be read by anybody: nothing else
    waits for them."""
    if not os.path.exists("/dev/fuse"):
        raise Skip("this kernel has no FUSE")
    with contextlib.ExitStack() as locked, own_name(build_truth()) as truth:
        locked.enter_context(locked_program())
        with Daemon() as daemon, running(truth, "600") as honest:
            for _ in range(2):
                before = cpu_ns(honest.pid)
                session = daemon.start_profile(os.path.basename(truth), 600, rate=199)
                start = cpu_ns(honest.pid)
                wait_until(lambda begun=start: cpu_ns(honest.pid) - begun > 2e9, 60, "the program to run")
                least = cpu_ns(honest.pid) - start
                daemon.request("DELETE", f"{FAMILY_A}/{session}")
                most = cpu_ns(honest.pid) - before
                undisturbed(daemon, daemon.finish_profile(session), least, most)
                locked.enter_context(locked_program())
            wait_until(lambda: sum("address space" in line for line in daemon.log) == 3, 60, "all three to be told")


def mapped_files(folder, names):
    """Maps these files executable, until it is killed."""
    return running(sys.executable, "-c", MANY_MAPPER, folder, *map(str, (names.start, names.stop)))


def files_without_end():
    """More files than BPF's map holds, mapped and left: a program that nobody has seen has whole stacks all the same."""
    own = f"_{os.getpid()}"  # the end of all its functions' names
    program = compile_workload("sleeper.c", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", f"-DV={own[1:]}",
                               output=f"unseen{own}")
    with tempfile.TemporaryDirectory() as folder, Daemon("--verbose") as daemon:
        source = os.path.join(folder, "empty.c")
        write(source, "int empty;\n")
        subprocess.run(["gcc", "-shared", "-nostdlib", "-s", "-Wl,-z,noseparate-code", "-o", source + ".so", source], check=True)
        for i in range(FILES):
            shutil.copy(source + ".so", os.path.join(folder, str(i)))

        def known():
            return int(re.search(r"^profd_modules (\d+)$", daemon.get("/metrics").body.decode(), re.M).group(1))

        def read_by(symbolizer, before):
            now = cpu_ns(symbolizer)
            time.sleep(0.5)
            return now > before and cpu_ns(symbolizer) == now

        symbolizer = daemon.children()["profd-symbols"]
        session = daemon.start_profile("*", 600, rate=999)
        modules = known()
        for begin in range(0, FILES, AT_ONCE):
            before = cpu_ns(symbolizer)
            with mapped_files(folder, range(begin, begin + AT_ONCE)):
                wait_until(lambda end=begin + AT_ONCE, used=before: known() >= modules + end and read_by(symbolizer, used), 60,
                           "all to be indexed")
        for _ in range(10):
            subprocess.run([program, "50"], input=b"x", check=True)
        daemon.stop_profile(session)
        stacks = [(stack, value) for stack, value in daemon.folded(session) if any(own in frame for frame in stack)]
        got = share(stacks, "main")
        refused = sum("no room for file" in line for line in daemon.log)
        check(refused == 0, f"no room for {refused} files")
        check(sum(value for _, value in stacks) > 0.3e9 and got > 0.95, f"{100 * got:.1f} % of its stacks are whole: {stacks[:3]}")
    os.unlink(program)


def undisturbed(daemon, result, least, most):
    """The session at 199 Hz of an honest program beside others, which used between @least and @most ns of CPU time."""
    check_sampled(result["totalValue"], least, most, 199)
    check(result["quality"]["lost"] == 0, f"lost samples: {result['quality']}")
    named = share(daemon.folded(result["id"]), "leaf_")
    check(named > 0.9, f"only {100 * named:.1f} % of the honest program is named")


def lying_files():
    with contextlib.ExitStack() as silent, tempfile.TemporaryDirectory() as folder, own_name(build_truth()) as truth:
        asked = [silent.enter_context(silent_program(*under)) for under in ((), OVERLAID)]
        shut_in = [silent.enter_context(shut_in_program(place)) for place in ("tmp", "usr/lib/debug")]
        asked += [count for _, count in shut_in]
        paths = hostile_files(folder)
        with Daemon() as daemon, running(truth, "300", "1") as program:
            before = daemon.children()
            before_it = cpu_ns(program.pid)
            session = daemon.start_profile(f"pid:{program.pid}", 300, rate=199)
            start = cpu_ns(program.pid)
            with running(sys.executable, "-c", MAPPER, *paths) as mapper:
                beside = [daemon.start_profile(f"pid:{process.pid}", 300, rate=199)
                          for process in [mapper, *(p for p, _ in shut_in)] if process]
                wait_until(lambda: cpu_ns(program.pid) - start > 2e9 and cpu_ns(mapper.pid) > 2e9 and
                           all(count() for count in asked), 120,
                           "both to run, and somebody to ask each silent file system")
                least = cpu_ns(program.pid) - start
                result = daemon.stop_profile(session)
                most = cpu_ns(program.pid) - before_it
                for other in beside:
                    daemon.stop_profile(other)
                wait_until(lambda: not builders(daemon), 120, "names of all files to be built")
            for other in beside:
                daemon.folded(other)
            undisturbed(daemon, result, least, most)
            after = daemon.children()
            for comm in ("profd-collect", "profd-server"):
                check(before[comm] == after[comm], f"{comm} was restarted")
            used_kb = memory_kb(after["profd-symbols"])
            check(used_kb < MEMORY_KB_MAX, f"the symbolizer used {used_kb >> 10} MB")


@contextlib.contextmanager
def far_file():
    """A file whose path is as long as one can be, with everything in it that a list of mappings escapes."""
    here, folder = os.getcwd(), tempfile.mkdtemp()
    name = "a\n\\012 (deleted)\t" + "x" * 230
    try:
        os.chdir(folder)
        for _ in range((4090 - len(folder)) // (len(name) + 1) - 1):
            os.mkdir(name)
            os.chdir(name)
        shutil.copy("/bin/true", name)
        at = os.open(".", os.O_RDONLY)
        os.chdir(here)
        yield at, name
        os.close(at)
    finally:
        os.chdir(here)
        shutil.rmtree(folder)


@contextlib.contextmanager
def neighbour(*arguments, **kwargs):
    with subprocess.Popen([compile_workload("neighbours.c", "-O2"), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                          **kwargs) as process:
        try:
            line = process.stdout.readline().strip()
            check(line == "ready" or line.startswith("cannot"), f"it said {line!r}")
            if line != "ready":
                print(f"  a neighbour {line}")
            yield process
        finally:
            process.kill()


def bad_neighbours():
    """Processes by the thousand, two programs that take turns with one number, 60,000 mappings of a file that can hardly be
    named, stacks of which hardly any two are the same: what is said of others stays right, and memory bounded."""
    twins = [compile_workload("short.c", "-O2", f"-Dstorm_burn=burn_{color}", output=f"{color}-{os.getpid()}") for color in ("red", "blue")]
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon("--set", f"limits.stacks_per_session={STACKS_MAX}"))
        program = stack.enter_context(running(stack.enter_context(own_name(build_truth())), "300", "1"))
        many = stack.enter_context(running(compile_workload("many_stacks.c", "-O1"), ready=False))
        before_it = cpu_ns(program.pid)
        session = daemon.start_profile(f"pid:{program.pid}", 300, rate=199)
        start = cpu_ns(program.pid)
        varied = daemon.start_profile(f"pid:{many.pid}", 300, rate=999)
        of_twins = [daemon.start_profile(os.path.basename(twin), 300, rate=999, waitSeconds=600) for twin in twins]
        at, name = stack.enter_context(far_file())
        crowd = stack.enter_context(neighbour("crowd", 60000, name, cwd=f"/proc/self/fd/{at}", pass_fds=[at]))
        crowded = daemon.start_profile(f"pid:{crowd.pid}", 300, rate=199)
        crowd_start = cpu_ns(crowd.pid)
        same = stack.enter_context(neighbour("same", 1000, *twins))
        bomb = stack.enter_context(neighbour("bomb", 5000))
        took_turns = same.stdout.readline() == "done\n"
        check(bomb.stdout.readline() == "done\n", "the bomb did not end")
        wait_until(lambda: cpu_ns(program.pid) - start > 1e9 and cpu_ns(many.pid) > 1e9 and cpu_ns(crowd.pid) - crowd_start > 0.5e9, 120, "all to run")
        least = cpu_ns(program.pid) - start
        result = daemon.stop_profile(session)
        undisturbed(daemon, result, least, cpu_ns(program.pid) - before_it)
        check(daemon.stop_profile(crowded)["sampleCount"] > 10, "what has 60,000 mappings has no samples")
        daemon.stop_profile(varied)
        found = daemon.folded(varied)
        check(len(found) <= STACKS_MAX + 1 and share(found, "[truncated]") > 0, f"{len(found)} stacks of {STACKS_MAX}")
        for own, other, twin in zip(("burn_red", "burn_blue"), ("burn_blue", "burn_red"), of_twins):
            daemon.stop_profile(twin)
            if not took_turns:
                continue
            stacks = daemon.folded(twin)
            check(share(stacks, own) > 0.3, f"{own} has {share(stacks, own):.2f} of its program")
            check(not share(stacks, other), f"{other} is in the other's program")
        for comm in ("profd-collect", "profd-server"):
            used_kb = memory_kb(daemon.children()[comm])
            check(used_kb < 400 << 10, f"{comm} used {used_kb >> 10} MB")


def share(stacks, text):
    return sum(v for s, v in stacks if any(text in f for f in s)) / sum(v for _, v in stacks)


@contextlib.contextmanager
def jitted(make_map):
    """A program with code of its own making, whose map @make_map(path, lines) writes; lines: what a true one has."""
    with running(compile_workload("jit.c", "-O2"), "300", "none") as process:
        path = f"/tmp/perf-{process.pid}.map"
        with open(f"/proc/{process.pid}/maps") as f:
            code = next(line.split("-")[0] for line in f if " r-xp 00000000 00:00 0" in line and "[" not in line)
        light = f"{int(code, 16) + 2048:x}"
        try:
            make_map(path, lambda heavy, lightly: f"{code} b {heavy}\n{light} b {lightly}\n")
            yield process
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def of_map(daemon, make_map):
    """(stacks, samples, id) of a program with that map."""
    with jitted(make_map) as process:
        session = daemon.start_profile(f"pid:{process.pid}", 300, rate=199)
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > 1e9, 120, "the program to run")
        result = daemon.stop_profile(session)
        return daemon.folded(session), result["sampleCount"], session


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def lying_maps():
    elsewhere = os.path.join(WORKLOADS, f"elsewhere-{os.getpid()}.map")

    def linked(path, lines):
        write(elsewhere, lines("stolen", "stolen"))
        os.symlink(elsewhere, path)

    def foreign(path, lines):
        write(path, lines("stolen", "stolen"))
        os.chown(path, 12345, 12345)

    def endless(path, lines):
        write(path, "")
        os.truncate(path, 10 << 30)

    def markup(path, lines):
        write(path, "0 ffffffffffffffff all of it\n-5 10 negative\nfffffffffffffff0 100 wraps\n" +
              lines("<script>alert(1)</script>;b\x1b[31m", "plain"))

    with Daemon() as daemon:
        try:
            for make_map in (linked, foreign, endless):
                stacks, _, _ = of_map(daemon, make_map)
                check(share(stacks, "[jit]") > 0.9 and not share(stacks, "stolen"), f"{make_map.__name__}: {stacks[:3]}")
        finally:
            with contextlib.suppress(OSError):
                os.unlink(elsewhere)
        stacks, samples, session = of_map(daemon, markup)
        got = share(stacks, "script")
        check(abs(got - 2 / 3) * 100 < 3 + band(2 / 3, samples), f"a name with markup has {100 * got:.1f} %")
        check(all("\x1b" not in f for s, _ in stacks for f in s), "an escape sequence came through")
        page = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=html").body.decode()
        check("<script>alert(1)" not in page, "markup came through")
        used_kb = memory_kb(daemon.children()["profd-symbols"])
        check(used_kb < MEMORY_KB_MAX, f"the symbolizer used {used_kb >> 10} MB")


if __name__ == "__main__":
    main(lying_files, locked_spaces, files_without_end, lying_maps, bad_neighbours)
