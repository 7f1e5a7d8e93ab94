# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Configuration: files, drop-ins in their order, environment and command line over them; every mistake is named with
its place; SIGHUP takes a new one over without losing a running session."""

import base64
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time

from harness import BUILD, FAMILY_A, ROOT, Daemon, build_truth, check, check_sampled, cpu_ns, main, running, wait_until

PROFD = os.path.join(BUILD, "profd")
PROFCTL = os.path.join(BUILD, "profctl")
SAMPLE = os.path.join(ROOT, "tools/packaging/profd.conf")


def known_keys():
    """(section, key) of the table in agent/config.c."""
    with open(os.path.join(ROOT, "agent/config.c")) as f:
        table = re.search(r"struct key keys\[\] = \{(.*?)\n\};", f.read(), re.S).group(1)
    return set(re.findall(r'(?:TEXT\(|\{ )"([a-z]+)", "([a-z0-9_]+)"', table))


def checked(*arguments, env=None):
    return subprocess.run([PROFD, "--check", "--no-collect", *arguments], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, **(env or {})))


def limit(daemon, name):
    text = daemon.get("/metrics").body.decode()
    return float(re.search(rf'^profd_limit\{{name="{name}"\}} (\S+)$', text, re.M).group(1))


def sample_file_lists_every_key():
    with open(SAMPLE) as f:
        text = f.read()
    section, listed = "", set()
    for line in text.splitlines():
        if found := re.match(r"#?\[([a-z]+)\]$", line):
            section = found.group(1)
        elif found := re.match(r"#([a-z0-9_]+) =", line):
            listed.add((section, found.group(1)))
    check(listed >= known_keys(), f"not in profd.conf: {known_keys() - listed}")
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "profd.conf")
        # every default, written out, is a valid configuration
        with open(path, "w") as f:
            f.write(re.sub(r"^#(\[|[a-z0-9_]+ =)", r"\1", text, flags=re.M))
        done = checked("--config", path)
        check(done.returncode == 0, f"the sample's own values: {done.stderr}")


def each_layer_over_the_last():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "profd.conf")
        os.mkdir(os.path.join(folder, "conf.d"))
        for name, value in (("profd.conf", 11), ("conf.d/20-b.conf", 13), ("conf.d/10-a.conf", 12),
                            ("conf.d/90-off.conf.disabled", 14)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(f"[limits]\nconnections = {value}\n")
        given = ["--no-collect", "--config", path]
        with Daemon(*given) as daemon:
            check(limit(daemon, "connections") == 13, "drop-ins in the order of their names")
        with Daemon(*given, env={"PROFD_LIMITS_CONNECTIONS": "15", "PROFD_TOKEN": "x"}) as daemon:
            check(limit(daemon, "connections") == 15, "the environment")
        with Daemon(*given, "--set", "limits.connections=16", "--set", "limits.body_bytes=2M",
                    env={"PROFD_LIMITS_CONNECTIONS": "15"}) as daemon:
            check(limit(daemon, "connections") == 16 and limit(daemon, "body_bytes") == 2 << 20, "the command line")


def mistakes_are_named():
    cases = (([], {"PROFD_LIMITS_CONECTIONS": "5"}, ["PROFD_LIMITS_CONECTIONS", "unknown key"]),
             ([], {"PROFD_STORE_DISK_BUDGET": "much"}, ["PROFD_STORE_DISK_BUDGET", "size"]),
             (["--set", "limits.nothing=1"], {}, ["--set", "nothing"]),
             (["--set", "limits.connections"], {}, ["SECTION.KEY=VALUE"]),
             (["--set", "connections=1"], {}, ["SECTION.KEY"]),
             (["--set", "auth.jwt_key_file=/dev/null"], {}, ["needs jwt_algorithm"]),
             (["--set", "auth.jwt_algorithm=HS256"], {}, ["needs jwt_key_file"]),
             (["--set", "collect.cpu_event=instructions"], {}, ["[collect] cpu_event", "cpu-clock or cycles"]),
             (["--set", "kitchen.sink=1"], {}, ["[kitchen]"]))
    for arguments, env, words in cases:
        done = checked(*arguments, env=env)
        check(done.returncode == 1 and done.stderr.count("\n") == 1, f"{arguments} {env}: {done}")
        check(all(word in done.stderr for word in words), f"{words}: {done.stderr}")
    for section, key in known_keys():
        done = checked(env={f"PROFD_{section}_{key}".upper(): "\x01"}, *["--set", "limits.connections=7"])
        check("unknown" not in done.stderr, f"{section}.{key} is no variable: {done.stderr}")


def reload_keeps_sessions():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder, running(build_truth(), "600") as process:
        path = os.path.join(folder, "profd.conf")

        def write(text):
            with open(path, "w") as f:
                f.write(text)

        def reload(daemon, said):
            seen = len(daemon.log)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: any(said in line for line in daemon.log[seen:]), 60, f"'{said}' in the log")

        def answers(daemon):
            try:
                return daemon.request("GET", "/readyz").status == 200
            except OSError:
                return False

        write("[limits]\nconnections = 20\n")
        with Daemon("--config", path) as daemon:
            before = cpu_ns(process.pid)
            session = daemon.start_profile(f"pid:{process.pid}", 600, rate=499)
            start, server = cpu_ns(process.pid), daemon.children()["profd-server"]
            collector = daemon.children()["profd-collect"]
            wait_until(lambda: cpu_ns(process.pid) - start > 1e9, 120, "the program to run")
            write("[store]\nurl = sqlite:/nowhere\n[limits]\nconnections = 21\n[service renamed]\nexe = *truth_nofp\n")
            reload(daemon, "was read again")
            wait_until(lambda: daemon.children().get("profd-server") not in (None, server) and answers(daemon), 60,
                       "the server's next life")
            check(limit(daemon, "connections") == 21, "the new limit")
            check(any("[store] url changed" in line for line in daemon.log), f"what needs a restart: {daemon.log}")
            check(not any("is started again" in line for line in daemon.log), f"an orderly change: {daemon.log}")
            check(daemon.children()["profd-collect"] == collector, "sampling went on")
            wait_until(lambda: any(s["name"] == "renamed" for s in
                                   daemon.get("/api/v1/observability/services").json()["items"]), 60, "the new name")
            # a mistake changes nothing
            server = daemon.children()["profd-server"]
            write("[limits]\nconnections = 22\nconections = 3\n")
            reload(daemon, "profd.conf:3:")
            check(daemon.children()["profd-server"] == server and limit(daemon, "connections") == 21, "as before")
            check(daemon.get(f"{FAMILY_A}/{session}").json()["status"] == "running", "the session goes on")
            used = cpu_ns(process.pid) - start
            wait_until(lambda: cpu_ns(process.pid) - start > used + 3e9, 120, "the program to run")
            least = cpu_ns(process.pid) - start
            result = daemon.stop_profile(session)
            check(result["status"] == "completed" and result["quality"]["lost"] == 0, result["quality"])
            # all of its time, also that around the reload
            check_sampled(result["totalValue"], least, cpu_ns(process.pid) - before, 499)


def what_a_start_would_refuse():
    """Files that no server could begin with are found by --check, and a reload keeps what was: the daemon does not end for it."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        make_certificate(folder, "one")
        os.rename(f"{folder}/profd.tls_key", f"{folder}/first.key")
        make_certificate(folder, "two")
        for name, text in (("text", "nonsense\n"), ("set", '{"keys": []}'), ("short", "secret\n")):
            with open(f"{folder}/{name}", "w") as f:
                f.write(text)
        os.mkfifo(f"{folder}/fifo")
        path = f"{folder}/profd.conf"
        good = "[limits]\nconnections = 20\n"
        cases = ((f"[server]\ntls_certificate = {folder}/text\ntls_key = {folder}/text\n", ["tls_certificate", "PEM"]),
                 (f"[server]\ntls_certificate = {folder}/profd.tls_certificate\ntls_key = {folder}/first.key\n",
                  ["tls_key", "together"]),
                 (f"[auth]\njwt_algorithm = RS256\njwt_key_file = {folder}/text\n", ["jwt_key_file", "PEM"]),
                 (f"[auth]\njwt_algorithm = HS256\njwt_key_file = {folder}/short\n", ["jwt_key_file", "at least"]),
                 (f"[auth]\njwt_algorithm = HS256\njwt_jwks_file = {folder}/text\n", ["jwt_jwks_file", "JSON"]),
                 (f"[auth]\njwt_algorithm = HS256\njwt_jwks_file = {folder}/set\n", ["jwt_jwks_file", "no key"]),
                 (f"[auth]\njwt_algorithm = HS256\njwt_key_file = {folder}/fifo\n", ["not read within"]),
                 ("[server]\npublic_url = profd.example\n", [":2:", "public_url"]),
                 ("[collect]\ndebuginfod_urls =" + " http://d.example" * 9 + "\n", ["debuginfod_urls", "more than 8"]))
        with open(path, "w") as f:
            f.write(good)
        with Daemon("--no-collect", "--config", path) as daemon:
            server = daemon.children()["profd-server"]
            for text, words in cases:
                with open(path, "w") as f:
                    f.write(text)
                done = checked("--config", path)
                check(done.returncode == 1 and all(word in done.stderr for word in words), f"{text}: {done}")
                seen = len(daemon.log)
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any("stays as it was" in line for line in daemon.log[seen:]), 30, f"{text}: {daemon.log}")
                check(all(any(word in line for line in daemon.log[seen:]) for word in words), f"{text}: {daemon.log[seen:]}")
                check(daemon.children()["profd-server"] == server and daemon.get("/readyz"), f"serves on: {daemon.log}")


def what_only_a_server_can_refuse():
    """Others reach it, and the new configuration asks nobody for a token: the server of the one before is back."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path, served = f"{folder}/profd.conf", "[server]\ncleartext = yes\n"
        with open(f"{folder}/key", "w") as f:
            f.write("a secret of 32 characters or more")
        good = served + f"[auth]\njwt_algorithm = HS256\njwt_key_file = {folder}/key\n"
        with open(path, "w") as f:
            f.write(good)
        with Daemon("--no-collect", "--listen", "0.0.0.0:0", "--config", path) as daemon:
            for text in (served, served + "[collect]\nexclude = x\n"):
                server, seen = daemon.children()["profd-server"], len(daemon.log)
                with open(path, "w") as f:
                    f.write(text)
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any("stays as it was" in line and "jwt_algorithm" in line for line in daemon.log[seen:]), 30,
                           f"{text}: {daemon.log}")
                wait_until(lambda: daemon.children().get("profd-server") not in (None, server), 30, "the server's next life")
                check(daemon.request("GET", "/api/v1/profiling/sessions").status == 401, f"asks for a token: {daemon.log}")
            # and one that can be served is
            with open(path, "w") as f:
                f.write(good + "[limits]\nconnections = 20\n")
            seen, server = len(daemon.log), daemon.children()["profd-server"]
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: daemon.children().get("profd-server") not in (None, server), 30, "the server's next life")
            check(daemon.request("GET", "/api/v1/profiling/sessions").status == 401, f"asks for a token: {daemon.log}")
            check(not any("stays" in line for line in daemon.log[seen:]), f"{daemon.log[seen:]}")


def listening_elsewhere():
    """--check refuses what a start refuses, in the same words; a key in the store is authentication, whether profd runs or not."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path, data = f"{folder}/profd.conf", f"{folder}/data"
        with open(f"{folder}/key", "w") as f:
            f.write("a secret of 32 characters or more")
        make_certificate(folder, "elsewhere")
        verifier = f"[auth]\njwt_algorithm = HS256\njwt_key_file = {folder}/key\n"
        tls = f"tls_certificate = {folder}/profd.tls_certificate\ntls_key = {folder}/profd.tls_key\n"

        def said(text, address="0.0.0.0:0"):
            with open(path, "w") as f:
                f.write(f"[server]\nlisten = {address}\nsocket =\n{text}")
            return checked("--config", path, "--data-dir", data)

        for text, word in (("", "neither a key nor"), ("cleartext = yes\n", "neither a key nor"), (tls, "neither a key nor"),
                           (verifier, "not encrypted")):
            done = said(text)
            check(done.returncode == 1 and word in done.stderr and not done.stdout, f"{text}: {done}")
            started = subprocess.run([PROFD, "--no-collect", "--config", path, "--data-dir", data + "-start"], capture_output=True,
                                     text=True, timeout=60)
            sentence = re.sub(r"^.*(\[server\] listen can be reached)", r"\1", done.stderr.strip())
            check(started.returncode == 1 and sentence in started.stderr, f"{text}: {started.stderr} is not {sentence}")
            check(said(text, "[::]:0").returncode == 1, f"{text} on IPv6")
            check(said(text, "[::1]:0").returncode == 0 and said(text, "127.9.9.9:0").returncode == 0, f"{text} on loopback")
        check(not os.path.exists(data), "nothing is created")
        for text in ("cleartext = yes\n" + verifier, tls + verifier):
            check(said(text).returncode == 0, f"{text}: {said(text)}")
        with Daemon("--no-collect", "--socket", f"{folder}/socket", data_dir=data):
            check(said("cleartext = yes\n").returncode == 1, "no key yet")
            subprocess.run([PROFCTL, "--socket", f"{folder}/socket", "key", "create", "--name", "k", "--role", "admin"], check=True,
                           capture_output=True, timeout=60)
            check(said("cleartext = yes\n").returncode == 0, f"a key of a running daemon: {said('cleartext = yes')}")
        check(said("cleartext = yes\n").returncode == 0, f"a key: {said('cleartext = yes')}")
        check("not encrypted" in said("").stderr, "a key does not encrypt")


def reload_of_what_is_never_profiled():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder, running(build_truth(), "600") as process:
        path = os.path.join(folder, "profd.conf")
        with open(path, "w") as f:
            f.write("")
        with Daemon("--config", path) as daemon:
            session = daemon.start_profile(f"pid:{process.pid}", 600)
            collector = daemon.children()["profd-collect"]
            with open(path, "w") as f:
                f.write("[collect]\nexclude = *truth_nofp\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: daemon.children().get("profd-collect") not in (None, collector), 60, "the collector's next life")

            def is_excluded():
                try:
                    answer = daemon.request("POST", FAMILY_A + "/start", {"service": f"pid:{process.pid}", "profileType": "offcpu",
                                                                          "durationSeconds": 1})
                except OSError:
                    return False
                return answer.status == 422 and "exclude" in answer.json()["detail"]

            wait_until(is_excluded, 60, "the program to be left alone")
            check(daemon.get(f"{FAMILY_A}/{session}").status == 200, "the session is still known")


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def key_set(secret):
    return json.dumps({"keys": [{"kty": "oct", "kid": "k", "k": base64url(secret)}]})


def token(secret):
    parts = ".".join(base64url(json.dumps(part).encode()) for part in (
        {"alg": "HS256", "kid": "k"}, {"exp": int(time.time()) + 3600, "role": "admin"}))
    return parts + "." + base64url(hmac.new(secret, parts.encode(), hashlib.sha256).digest())


def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-keyout", f"{folder}/profd.tls_key", "-out", f"{folder}/profd.tls_certificate"],
                   check=True, capture_output=True)
    with open(f"{folder}/profd.tls_certificate") as f:
        return f.read()


def secrets_are_files_and_credentials():
    """Key set and certificate in files that systemd would pass: served from there, and again after a change."""
    first, second = b"1" * 32, b"2" * 32
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        given = [part for name in ("auth.jwt_algorithm=HS256", "auth.jwt_jwks_file=profd.jwt_jwks") for part in ("--set", name)]
        done = checked(*given, env={"CREDENTIALS_DIRECTORY": folder})
        check(done.returncode == 1 and f"{folder}/profd.jwt_jwks" in done.stderr, f"what is missing: {done.stderr}")
        with open(f"{folder}/profd.jwt_jwks", "w") as f:
            f.write(key_set(first))
        certificate = make_certificate(folder, "one")
        done = checked(*given)
        check(done.returncode == 1 and "profd.jwt_jwks" in done.stderr, "without systemd it is a name in this folder")
        given += ["--set", "server.tls_certificate=profd.tls_certificate", "--set", "server.tls_key=profd.tls_key"]
        with Daemon("--no-collect", *given, env={"CREDENTIALS_DIRECTORY": folder}) as daemon:
            def status(secret):
                context = ssl.create_default_context(cadata=certificate)
                context.check_hostname = False
                try:
                    with context.wrap_socket(socket.create_connection(("127.0.0.1", daemon.port), timeout=60)) as sock:
                        sock.sendall(f"GET /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                     f"Authorization: Bearer {token(secret)}\r\n\r\n".encode())
                        return int(sock.recv(4096).split()[1])
                except (OSError, IndexError):
                    return None

            wait_until(lambda: status(first) == 200, 60, "the first key and certificate")
            done = subprocess.run(["openssl", "s_client", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-connect",
                                   f"127.0.0.1:{daemon.port}"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            check(done.returncode != 0 and "no peer certificate" in done.stdout, f"TLS 1.1 is spoken: {done}")
            check(status(second) == 401, "a key that is not known yet")
            with open(f"{folder}/profd.jwt_jwks", "w") as f:
                f.write(key_set(second))
            certificate = make_certificate(folder, "two")
            check(status(second) is None, "the second certificate is not served yet")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: status(second) == 200, 60, "the second key and certificate")
            check(status(first) == 401, "the first key")
            check(not any(secret.decode() in line or token(secret)[-20:] in line
                          for line in daemon.log for secret in (first, second)), "a secret in the log")


if __name__ == "__main__":
    main(sample_file_lists_every_key, each_layer_over_the_last, mistakes_are_named, reload_keeps_sessions,
         what_a_start_would_refuse, listening_elsewhere, what_only_a_server_can_refuse, reload_of_what_is_never_profiled, secrets_are_files_and_credentials)
