# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Attacks by strangers and by users of the host on the doors of a running daemon: what they take is theirs alone."""

import contextlib
import os
import socket
import subprocess
import tempfile

from harness import BUILD, Daemon, Skip, check, main, running

PLACES = 256  # [limits] connections
NOBODY = 65534
BODY_NEVER = b"POST /api/v1/observability/profiling/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"

# Users' connections have to be made by a process of that user: the kernel notes who connected.
PINNER = """
import os, socket, sys, time
os.setresuid(%d, %d, %d)
held = []
for i in range(300):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.2)
    try:
        s.connect(sys.argv[1])
        s.sendall(%r)
        held.append(s)
    except OSError:
        break
print(len(held), flush=True)
time.sleep(1000)
""" % (NOBODY, NOBODY, NOBODY, BODY_NEVER)


def profctl(path, *arguments):
    return subprocess.run([os.path.join(BUILD, "profctl"), "--socket", path, *arguments], capture_output=True, text=True,
                          timeout=60, check=False)


def pinned_places():
    """All places of the network and of the socket are pinned by bodies that never come; root stops the profiler."""
    if os.geteuid():
        raise Skip("only root can be two users")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "s")
        with Daemon("--no-collect", "--socket", path, "--set", "limits.body_timeout=600s") as daemon:
            os.chmod(path, 0o666)
            for _ in range(PLACES):
                s = held.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
                s.sendall(BODY_NEVER)
            pinner = held.enter_context(subprocess.Popen(["python3", "-c", PINNER, path], stdout=subprocess.PIPE, text=True))
            try:
                pinned = int(pinner.stdout.readline())
                for _ in range(3):
                    done = profctl(path, "services")
                    check(done.returncode == 0, f"root is refused: {done.stdout} {done.stderr}")
                check(pinned >= 60, f"the stranger had only {pinned} places of the socket")
            finally:
                pinner.kill()


def inherited_lock():
    """Whoever cannot be killed must not keep the next daemon out: of the children only the server holds the lock."""
    with Daemon() as daemon:
        holders = []
        for name, pid in daemon.children().items():
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{fd}") == os.path.join(daemon.data_dir, "lock"):
                        holders.append(name)
        check(holders == ["profd-server"], f"the lock is held by {holders}")


def webhooks_of_strangers():
    """A caller that is no administrator sets no webhook, and what an administrator set is shown without its secret."""
    path = "/api/v1/observability/profiling/continuous"
    setting = {"service": "host", "watch": {"against": "history", "webhook": "https://hooks.example/T0/secret"}}
    with tempfile.TemporaryDirectory() as folder:
        s = os.path.join(folder, "s")
        with Daemon("--socket", s) as daemon:
            answer = daemon.request("POST", path, setting)
            check(answer.status == 403, f"the open role set a webhook: {answer}")
            done = profctl(s, "continuous", "start", "nginx", "--watch", "history", "--webhook", setting["watch"]["webhook"])
            check(done.returncode == 0, done.stderr)
            shown = daemon.get(path).body.decode()
            check("hooks.example" in shown and "secret" not in shown, shown)
            again = daemon.get(path).json()["items"][0]
            again["enabled"] = False
            answer = daemon.request("POST", path, again)
            check(answer.status == 200 and "hooks.example" in answer.body.decode(), f"what was read is not taken: {answer}")


def memory_has(pid, words):
    """Which of @words the memory of a process holds."""
    found = set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            if " rw" not in line or end - start > 1 << 30:
                continue
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(start)
                text = memory.read(end - start)
                found |= {word for word in words if word in text}
    return found


def passwords_in_children():
    """The server alone keeps passwords, from a file of any size or from the environment: no process that parses what
    targets wrote has them. Those in the environments of targets are forgotten when the service's name has been read."""
    in_file, in_environment, in_target = b"5ecret-of-the-file", b"5ecret-of-the-environment", b"5ecret-of-the-target"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profd.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# a long comment\n" * 1000)
            file.write(f"[export away]\nkind = otlp\nurl = http://u:{in_file.decode()}@127.0.0.1:9/v1development/profiles\n")
        environment = {"PROFD_COLLECT_DEBUGINFOD_URLS": f"http://u:{in_environment.decode()}@127.0.0.1:9/"}
        target = {"OTEL_SERVICE_NAME": "with-password", "PADDING": "x" * 30000, "PGPASSWORD": in_target.decode()}
        with Daemon("--config", path, env=environment) as daemon, \
                running("sh", "-c", "while :; do :; done", ready=False, env=target):
            words = {in_file, in_environment}
            children = daemon.children()
            check(memory_has(children["profd-server"], words) == words, "the server has no passwords: the test sees none")
            check(daemon.profile("with-password", 1)["sampleCount"] > 0, "the target's environment was not read")
            words.add(in_target)
            for name in ("profd-collect", "profd-symbols", "profd-reader"):
                check(not memory_has(children[name], words), f"{name} has {memory_has(children[name], words)}")


if __name__ == "__main__":
    main(pinned_places, inherited_lock, webhooks_of_strangers, passwords_in_children)
