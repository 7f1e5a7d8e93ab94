# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels, their BTF and a newer QEMU, unpacked below build/vm. Nothing is installed on the machine.

    debian.py btf              one BTF file for each kernel version and architecture; prints their folder
    debian.py kernel 6.12 arm64   unpacks the newest 6.12 kernel for arm64; prints the path of its vmlinuz
    debian.py qemu             unpacks QEMU from backports; prints the folder that holds it

A private apt configuration reads the suites below, so that the machine's own lists and packages stay as they are.
Kernels are chosen by suite: each suite's newest package of each version. What is unpacked is kept for later runs."""

import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import time

SUITES = (("Debian", "bookworm-backports"), ("Debian", "trixie-backports"), ("Debian-Security", "bullseye-security"),
          ("Debian-Security", "bookworm-security"), ("Debian-Security", "trixie-security"))
KERNEL = re.compile(r"linux-(image|binary)-((\d+\.\d+)\.\S*cloud-(amd64|arm64))")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGE_MAX = 150e6  # bytes; the largest kernel package has 51 MB
RENEW_S = 7 * 86400  # how long the lists of packages are good for
BTF_MAGIC = b"\x9f\xeb\x01"
QEMU = ("qemu-system-x86", "qemu-system-arm", "qemu-system-common", "qemu-system-data")
WORK = os.path.abspath(os.path.join(os.environ.get("O", "build"), "vm"))
COMPRESSIONS = ((b"\xfd7zXZ\0", ("xz", "-dc")), (b"\x28\xb5\x2f\xfd", ("zstd", "-dcq")), (b"\x1f\x8b\x08", ("gzip", "-dc")),
                (b"\x02\x21\x4c\x18", ("lz4", "-dcq")))


class Missing(Exception):
    """The archive lists a file that it does not have."""


def patiently(*command, cwd=None):
    """A download may break off: up to four tries."""
    for pause in (5, 20, 60, 0):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)
        if done.returncode == 0:
            return done.stdout
        if "404  Not Found" in done.stderr:
            raise Missing(command[-1])
        time.sleep(pause)
    sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")


def site_of(label):
    """The site that this machine's own configuration has for @label's packages."""
    targets = subprocess.run(("apt-get", "indextargets", "--format", "$(LABEL) $(SITE)"), capture_output=True, text=True, check=True)
    return next(line.split()[1] for line in targets.stdout.splitlines() if line.split()[0] == label)


def apt(*words, cwd=None):
    root = os.path.join(WORK, "apt")
    sources = os.path.join(root, "sources.list")
    if not os.path.exists(sources):
        for folder in ("lists/partial", "archives/partial"):
            os.makedirs(os.path.join(root, folder), exist_ok=True)
        with open(sources, "w") as f:
            f.writelines(f"deb [signed-by={KEYS}] {site_of(label)} {suite} main\n" for label, suite in SUITES)
    options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null", f"Dir::State::lists={root}/lists",
               f"Dir::Cache={root}", "APT::Architectures::=amd64", "APT::Architectures::=arm64", "Acquire::Languages=none",
               "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "APT::Sandbox::User=root",
               "Acquire::Retries=3", "Acquire::http::Timeout=60"]
    return patiently("apt-get", "-q", *(word for option in options for word in ("-o", option)), *words, cwd=cwd)


def packages():
    """The suites' packages: [{field: text}]"""
    lists = os.path.join(WORK, "apt", "lists")
    stamp = os.path.join(WORK, "apt", "renewed")
    if not os.path.exists(stamp) or time.time() - os.path.getmtime(stamp) > RENEW_S:
        apt("update")
        with open(stamp, "w"):
            pass
    for name in sorted(os.listdir(lists)):
        if "_Packages" not in name:
            continue
        text = subprocess.run(("/usr/lib/apt/apt-helper", "cat-file", os.path.join(lists, name)), capture_output=True,
                              text=True, check=True).stdout
        for stanza in text.split("\n\n"):
            yield dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")


def is_newer(version, than):
    return subprocess.run(("dpkg", "--compare-versions", version, "gt", than)).returncode == 0


def newest(match):
    """{match(package): the newest package}; match() returns None for those that are not wanted"""
    found = {}
    for package in packages():
        key = match(package) if package else None
        if key and (key not in found or is_newer(package["Version"], found[key]["Version"])):
            found[key] = package
    return found


def kernel_of(package):
    """(version, architecture), None for what holds no kernel: since 6.19 linux-image-* only depends on linux-binary-*"""
    match = KERNEL.fullmatch(package["Package"])
    return match.group(3, 4) if match and int(package["Size"]) > 5e6 else None


def download(package, folder):
    """Path of the package's file in @folder; apt checks what it hashes to."""
    assert int(package["Size"]) < PACKAGE_MAX, f"{package['Package']} has {package['Size']} bytes"
    os.makedirs(folder, exist_ok=True)
    apt("download", f"{package['Package']}:{package['Architecture']}={package['Version']}", cwd=folder)
    names = [name for name in os.listdir(folder) if name.startswith(package["Package"] + "_") and name.endswith(".deb")]
    return os.path.join(folder, names[0])


def btf_in(image):
    """The longest part of @image that has the form of a kernel's BTF: include/uapi/linux/btf.h, struct btf_header"""
    best, at = b"", image.find(BTF_MAGIC)
    while at >= 0:
        header_bytes, types_at, type_bytes, strings_at, string_bytes = struct.unpack_from("<5I", image.ljust(at + 24), at + 4)
        size = header_bytes + strings_at + string_bytes
        if types_at == 0 and strings_at >= type_bytes and len(best) < size <= len(image) - at:
            best = image[at:at + size]
        at = image.find(BTF_MAGIC, at + 1)
    return best


def btf_of(vmlinuz):
    """BTF of a bootable kernel, which is one compressed part behind what decompresses it, or is not compressed."""
    best = btf_in(vmlinuz)
    for magic, command in COMPRESSIONS:
        at = vmlinuz.find(magic)
        while at >= 0 and len(best) < 1e6:
            # what follows the compressed part makes the tools complain after they have written all of it
            best = max(best, btf_in(subprocess.run(command, input=vmlinuz[at:], capture_output=True).stdout), key=len)
            at = vmlinuz.find(magic, at + 1)
    return best


def vmlinuz_in(deb):
    stream = subprocess.Popen(("dpkg", "--fsys-tarfile", deb), stdout=subprocess.PIPE)
    image = subprocess.run(("tar", "-xO", "--wildcards", "./boot/vmlinuz-*", "./usr/lib/modules/*/vmlinuz"), stdin=stream.stdout,
                           capture_output=True).stdout  # one of the two names is there
    stream.stdout.close()
    stream.wait()
    return image


def fetch_btf():
    folder = os.path.join(WORK, "btf")
    os.makedirs(folder, exist_ok=True)
    for (version, architecture), package in sorted(newest(kernel_of).items()):
        path = os.path.join(folder, f"{version}-{architecture}.btf")
        if os.path.exists(path):
            continue
        try:
            deb = download(package, folder)
        except Missing as missing:
            print(f"the archive lists {missing} and does not have it", file=sys.stderr)
            continue
        image = btf_of(vmlinuz_in(deb))
        os.remove(deb)
        assert len(image) > 1e6, f"{package['Package']}: no BTF found"
        with open(path + ".new", "wb") as f:
            f.write(image)
        os.rename(path + ".new", path)
    return folder


def unpacked(package):
    folder = os.path.join(WORK, package["Package"].replace(":", "_"))
    if not os.path.exists(folder):
        deb = download(package, WORK)
        subprocess.run(("dpkg", "-x", deb, folder + ".new"), check=True)
        os.remove(deb)
        os.rename(folder + ".new", folder)
    return folder


def paths_in(folder, pattern):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if re.fullmatch(pattern, name)]


def fetch_kernel(version, architecture):
    """Unpacks the kernel, and its modules where they are a package of their own, beside it."""
    chosen = newest(kernel_of)[version, architecture]
    folder = unpacked(chosen)
    if "-binary-" in chosen["Package"]:
        name = chosen["Package"].replace("-binary-", "-modules-")
        modules = newest(lambda package: package["Package"] == name or None)[True]
        unpacked(modules)
    return paths_in(folder, "vmlinuz.*")[0]


def qemu_part(package):
    """The package's name if it is a part of QEMU from Debian 12's backports, which runs with this
    host's libraries; else None."""
    return package["Package"] if package["Package"] in QEMU and "~bpo12" in package["Version"] else None


def fetch_qemu():
    """The folder below which all of QEMU is unpacked."""
    root = os.path.join(WORK, "qemu")
    if not os.path.exists(os.path.join(root, "usr/bin/qemu-system-aarch64")):
        for package in newest(qemu_part).values():
            subprocess.run(("dpkg", "-x", download(package, WORK), root + ".new"), check=True)
        shutil.rmtree(root, ignore_errors=True)
        os.rename(root + ".new", root)
    return root


def act(what, *which):
    if what == "btf":
        print(fetch_btf())
    elif what == "kernel":
        print(fetch_kernel(*which))
    elif what == "qemu":
        print(fetch_qemu())


if __name__ == "__main__":
    os.makedirs(WORK, exist_ok=True)
    # two may be asked for at a time: the second finds what the first has fetched
    with open(os.path.join(WORK, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        act(*sys.argv[1:])
