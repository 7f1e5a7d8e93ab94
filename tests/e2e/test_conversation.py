#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""One long conversation with the API as its clients lead it: every operation of /openapi.json succeeds at least once,
and every error that the documentation names is provoked."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile

from harness import FAMILY_A as A
from harness import Answer, Daemon, check, main, running, wait_until
from test_isolation import Guarded

B = "/api/v1/profiling"
V0 = "/v0/pipelines"
CODES = set("""InvalidParam InvalidBody Unauthenticated Forbidden TenantMismatch UnknownService UnknownSession UnknownBaseline
    UnknownKey UnknownReport NotFound MethodNotAllowed NotAcceptable RequestTimeout AlreadyRunning NotFinished BodyTooLarge
    UriTooLong UnsupportedMediaType ProfileTypeUnavailable ProfileTypeMismatch SessionFailed DetailExpired LimitReached
    TooManySessions TooManyProfiles RateLimited HeadersTooLarge AgentBusy ServiceNotRunning StoreUnavailable UnknownPipelineName
    SamplyProfilingInProgress NoSamplyProfile SamplyProfilingFailure PipelineInteractionNotDeployed PipelineUnavailable
    UnknownOrdinal""".split())
CONFIG = """[server]
socket = {folder}/sock
[limits]
header_timeout = 5s
body_bytes = 4K
running_sessions = 3
running_sessions_host = 4
received_per_second = 1
"""
heard = set()  # error codes
worked = set()  # "GET /path/{of}/the/document"


class Talk:
    def __init__(self, daemon):
        self.daemon = daemon
        paths = daemon.get("/openapi.json").json()["paths"]
        # Literal paths before those with parameters, as the server chooses.
        self.operations = sorted(((f"{method.upper()} {path}", re.compile(
            method.upper() + " " + re.sub(r"\\\{\w+\\\}", "[^/?]+", re.escape(path)) + r"(\?.*)?$"))
            for path, methods in paths.items() for method in methods if method in ("get", "post", "delete")),
            key=lambda row: row[0].count("{"))

    def all_operations(self):
        return {name for name, _ in self.operations}

    def hear(self, method, target, answer, status, code):
        check(answer.status == status, f"{method} {target}: {answer.status}, not {status}: {answer}")
        if status < 400:
            name = next((n for n, form in self.operations if form.match(f"{method} {target}")), None)
            check(name, f"{method} {target} is not described")
            worked.add(name)
            return answer
        said = answer.json()["error_code"]
        check(code is None or said == code, f"{method} {target}: {said}, not {code}: {answer}")
        heard.add(said)
        return answer

    def say(self, method, target, body=None, status=200, code=None, headers=None):
        return self.hear(method, target, self.daemon.request(method, target, body, headers), status, code)

    def say_as_root(self, method, target, body=None, status=200, code=None):
        return self.hear(method, target, self.daemon.local(method, target, body), status, code)


def start(service, kind="cpu", seconds=1, **more):
    return {"service": service, "profileType": kind, "durationSeconds": seconds, **more}


def family_a(talk, busy, idle):
    """Returns two finished sessions of the busy service."""
    talk.say("GET", "/api/v1/observability/services")
    talk.say("POST", A + "/start", start(busy, seconds=0), 400, "InvalidParam")
    talk.say("POST", A + "/start", b"{", 400, "InvalidBody", {"Content-Type": "application/json"})
    talk.say("POST", A + "/start", b"service=x", 415, "UnsupportedMediaType", {"Content-Type": "text/plain"})
    talk.say("POST", A + "/start", start(busy, labels={"x": "y" * 5000}), 413, "BodyTooLarge")
    talk.say("POST", A + "/start", start("nobody-has-this-name"), 404, "UnknownService")
    talk.say("PUT", A + "/start", start(busy), 405, "MethodNotAllowed")
    talk.say("GET", A + "/start/over/again", status=404, code="NotFound")
    talk.say("GET", A + "/history?service=" + "x" * 9000, status=414, code="UriTooLong")
    talk.say("GET", A + "/history", status=431, code="HeadersTooLarge", headers={"X-Filler": "x" * 17000})
    first = talk.say("POST", A + "/start", start(busy, seconds=60), 202).json()["id"]
    talk.say("POST", A + "/start", start(busy, seconds=60), 409, "AlreadyRunning")
    wait_until(lambda: talk.say("GET", f"{A}/{first}").json()["sampleCount"] > 20, 60, "samples")
    talk.say("GET", f"{A}/compare?baseProfileId={first}&comparisonProfileId={first}", status=409, code="NotFinished")
    talk.say("DELETE", f"{A}/{first}", status=202)
    talk.daemon.finish_profile(first)
    second = talk.say("POST", B + "/sessions", {"profileType": "cpu", "target": busy, "durationSeconds": 1}).json()["sessionId"]
    talk.say("GET", f"{A}/{first}/flamegraph")
    talk.say("GET", f"{A}/{first}/flamegraph", status=406, code="NotAcceptable", headers={"Accept": "image/gif"})
    talk.say("GET", f"{A}/{first}/heatmap")
    talk.say("GET", f"{A}/{first}/ledger", status=422, code="ProfileTypeMismatch")
    talk.say("GET", f"{A}/sess-0000/flamegraph", status=404, code="UnknownSession")
    talk.say("GET", f"{A}/history?service={busy}&profileType=cpu&aggregate=60s&merge=true")
    talk.say("GET", f"{A}/compare?baseProfileId={first}&comparisonProfileId={second}")
    talk.say("GET", f"{A}/compare/flamegraph?baseProfileId={first}&comparisonProfileId={second}")
    talk.say("GET", f"{A}/window/flamegraph?service={busy}&profileType=cpu&start=now-1h&end=now&format=folded")
    wall = talk.daemon.profile(busy, 1, "wall")["id"]
    talk.say("GET", f"{A}/{wall}/ledger")
    threads = talk.daemon.profile(busy, 1, "goroutine")
    talk.say("GET", f"{A}/{threads['id']}/flamegraph?from={threads['startedAt']}", status=422, code="DetailExpired")
    failed = talk.say("POST", A + "/start", start(idle, seconds=600), 202).json()["id"]
    check(talk.daemon.stop_profile(failed)["status"] == "failed", "stopped without data and not failed")
    talk.say("GET", f"{A}/{failed}/flamegraph", status=422, code="SessionFailed")
    talk.say("DELETE", f"{A}/{failed}", status=204)
    return first, second, threads["id"]


def continuous(talk, busy):
    talk.say("POST", A + "/continuous", {"service": busy, "watch": {"against": "history"}})
    talk.say("POST", f"{B}/findings/check", {"service": busy})
    talk.say("GET", A + "/continuous")
    talk.say("GET", f"{A}/continuous/{busy}")
    talk.say("DELETE", f"{A}/continuous/{busy}", status=204)
    talk.say("GET", f"{A}/continuous/{busy}", status=404, code="UnknownService")
    talk.say("GET", f"{A}/findings")
    talk.say("GET", f"{B}/findings")
    for i in range(101):
        answer = talk.daemon.request("POST", A + "/continuous", {"service": f"many-{i}", "enabled": False})
        if answer.status != 200:
            break
    talk.hear("POST", A + "/continuous", answer, 422, "LimitReached")


def limits_of_running(talk, busy):
    """Three sessions a tenant, four a host."""
    ids = [talk.say("POST", A + "/start", start(busy, kind, 600), 202).json()["id"] for kind in ("offcpu", "wall", "goroutine")]
    talk.say("POST", A + "/start", start("*", "cpu", 600), 429, "TooManySessions")
    talk.say("POST", f"{V0}/{busy}/samply_profile", status=503, code="PipelineUnavailable")
    other = {"X-Tenant-ID": "other"}
    ids.append(talk.say("POST", A + "/start", start(busy, "cpu", 600), 202, headers=other).json()["id"])
    talk.say("POST", A + "/start", start(busy, "offcpu", 600), 503, "AgentBusy", headers=other)
    for ident in ids[:3]:
        talk.daemon.stop_profile(ident)
    check(talk.daemon.request("DELETE", f"{A}/{ids[3]}", headers=other).status == 202, "the other tenant's")


def family_b(talk, first, second, threads):
    talk.say("GET", B + "/sessions")
    talk.say("GET", f"{B}/sessions/{first}")
    talk.say("GET", f"{B}/sessions/{threads}/analysis")
    talk.say("GET", f"{B}/goroutine-flame/{threads}?format=folded")
    talk.say("POST", B + "/diff", {"baseId": first, "compareId": second, "type": "cpu"})
    talk.say("POST", B + "/diff", {"baseId": first, "compareId": threads, "type": "cpu"}, 422, "ProfileTypeMismatch")
    baseline = talk.say("POST", B + "/baselines", {"label": "one", "sessionId": first, "profileType": "cpu",
                                                   "topFunctions": "(nested array)"}).json()["baselineId"]
    talk.say("GET", B + "/baselines?tag=none")
    talk.say("GET", f"{B}/baselines/{baseline}")
    talk.say("GET", f"{B}/baselines/bl-0000", status=404, code="UnknownBaseline")
    report = talk.say("POST", B + "/regression/check", {"baselineId": baseline, "compareId": second}).json()["reportId"]
    talk.say("GET", f"{B}/regression/{report}")
    talk.say("GET", f"{B}/regression/rpt-0000", status=404, code="UnknownReport")
    talk.say("GET", B + "/trend?profileType=cpu&funcName=main")
    talk.say("DELETE", f"{B}/baselines/{baseline}", status=204)
    talk.say("DELETE", f"{B}/sessions/{second}", status=204)


def family_c(talk, busy, idle):
    talk.say("GET", V0)
    talk.say("GET", f"{V0}/{busy}")
    talk.say("GET", f"{V0}/non-existent-pipeline", status=404, code="UnknownPipelineName")
    talk.say("GET", f"{V0}/{busy}/samply_profile", status=400, code="NoSamplyProfile")
    talk.say("POST", f"{V0}/{busy}/samply_profile?ordinal=7", status=404, code="UnknownOrdinal")
    talk.say("POST", f"{V0}/{busy}/samply_profile?duration_secs=600", status=202)
    talk.say("POST", f"{V0}/{busy}/samply_profile?duration_secs=2", status=409, code="SamplyProfilingInProgress")
    running_now = talk.say("GET", f"{A}/history?service={busy}&status=running").json()["items"]
    wait_until(lambda: talk.daemon.get(f"{A}/{running_now[0]['id']}").json()["sampleCount"] > 20, 60, "samples")
    talk.daemon.stop_profile(running_now[0]["id"])
    wait_until(lambda: talk.say("GET", f"{V0}/{busy}/samply_profile", status=200) if talk.daemon.request(
        "GET", f"{V0}/{busy}/samply_profile?latest=true").status == 200 else None, 60, "the Samply profile")
    talk.say("POST", f"{V0}/{idle}/samply_profile?duration_secs=600", status=202)
    running_now = talk.say("GET", f"{A}/history?service={idle}&status=running").json()["items"]
    talk.daemon.stop_profile(running_now[0]["id"])
    wait_until(lambda: talk.daemon.request("GET", f"{V0}/{idle}/samply_profile?latest=true").status == 500, 60, "the failure")
    talk.say("GET", f"{V0}/{idle}/samply_profile", status=500, code="SamplyProfilingFailure")


def pull(talk, busy, go_program):
    for kind in ("profile", "block", "mutex", "goroutine"):
        talk.say("GET", f"/debug/pprof/{kind}?seconds=1&service={busy}")
    for kind in ("heap", "allocs"):
        talk.say("GET", f"/debug/pprof/{kind}?seconds=1&service={go_program}")
    talk.say("GET", f"{V0}/{go_program}/heap_profile")


def the_agent(talk):
    pages = [name.split(" ")[1] for name in talk.all_operations() if re.match(r"GET /[\w.-]*$", name)]
    for path in (*pages, "/s/x", "/p/x", "/g/x", "/api/v1/sampling"):
        talk.say("GET", path)
    talk.say("POST", "/querier.v1.QuerierService/ProfileTypes", {})
    talk.say("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers={"Accept": "application/json, text/event-stream"})
    page = talk.daemon.get("/").body.decode()
    files = re.findall(r'(?:src|href)="(/ui/[^"]+)"', page)
    check(files, "the page loads nothing")
    for name in files:
        talk.say("GET", name)
    talk.say("GET", "/ui/nothing.js", status=404, code="NotFound")
    for name in {"GET /ui/{file}", "GET /ui/{folder}/{file}"} - worked:  # which of both depends on how the page was built
        worked.add(name)


# perftools.profiles.Profile: strings "", cpu, nanoseconds, f; 10 ns of cpu in f, within a second
PPROF = bytes.fromhex("3200 3203637075 320b6e616e6f7365636f6e6473 320166 0a0408011002 12060a010112010a 220608012202 0801 2a0408011003"
                      " 508094ebdc03")


def what_programs_send(talk):
    talk.say("POST", "/v1development/profiles", b"", headers={"Content-Type": "application/x-protobuf"})
    talk.say("POST", "/push.v1.PusherService/Push", {"series": []})
    for at in range(10):
        talk.say("POST", f"/ingest?name=sender{at}", PPROF)
    talk.say("POST", "/ingest?name=sender", PPROF, 429, "TooManyProfiles")


def half_a_request(talk):
    with socket.create_connection(("127.0.0.1", talk.daemon.port), timeout=60) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        received = b""
        while chunk := sock.recv(4096):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    talk.hear("GET", "/healthz", Answer(int(head.split()[1]), {}, body), 408, "RequestTimeout")


def keys(talk, first):
    """The first key closes the API."""
    talk.say_as_root("GET", "/api/v1/backup")
    talk.say_as_root("POST", "/api/v1/sampling", {"enabled": True})
    made = talk.say_as_root("POST", "/api/v1/keys", {"name": "k", "role": "read", "tenant": "default"}).json()
    talk.say_as_root("GET", "/api/v1/keys")
    token = {"Authorization": f"Bearer {made['key']}"}
    talk.say("GET", f"{A}/{first}", status=401, code="Unauthenticated")
    talk.say("GET", f"{A}/{first}", headers=token)
    talk.say("DELETE", f"{A}/{first}", status=403, code="Forbidden", headers=token)
    talk.say("GET", f"{A}/{first}", status=403, code="TenantMismatch", headers={**token, "X-Tenant-ID": "other"})
    talk.say("POST", "/sign-in", {"token": "wrong"}, 401, "Unauthenticated")
    cookie = talk.say("POST", "/sign-in", {"token": made["key"]}).headers["Set-Cookie"].split(";")[0]
    talk.say("GET", f"{A}/{first}", headers={"Cookie": cookie})
    talk.say("POST", "/sign-out", status=204)
    talk.say_as_root("POST", "/api/v1/links/rotate", status=204)
    talk.say("GET", f"{A}/{first}", status=401, code="Unauthenticated", headers={"Cookie": cookie})
    talk.say_as_root("DELETE", "/api/v1/keys/key-0000", status=404, code="UnknownKey")
    talk.say_as_root("DELETE", f"/api/v1/keys/{made['id']}", status=204)


@contextlib.contextmanager
def copies(folder, **programs):
    """Programs under names of their own: {name: path}"""
    yield {name: shutil.copy(shutil.which(program), f"{folder}/{name}-{os.getpid()}") for name, program in programs.items()}


def build_go(folder):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../workloads/go")
    program = f"{folder}/gone-{os.getpid()}"
    subprocess.run(["go", "build", "-o", program, "./served"], cwd=source, check=True)
    return program


def test_every_operation_and_error():
    with tempfile.TemporaryDirectory() as folder, copies(folder, busy="sha1sum", idle="sleep") as program:
        with open(f"{folder}/profd.conf", "w") as f:
            f.write(CONFIG.format(folder=folder))
        busy, idle = os.path.basename(program["busy"]), os.path.basename(program["idle"])
        go_program = build_go(folder)
        with Guarded("--config", f"{folder}/profd.conf", data_dir=folder) as daemon, \
                running(program["idle"], "3600", ready=False), running(go_program, ready=False):
            talk = Talk(daemon)
            with running(program["busy"], "/dev/zero", ready=False):
                wait_until(lambda: {busy, idle, os.path.basename(go_program)} <= {s["name"] for s in daemon.get(
                    "/api/v1/observability/services").json()["items"]}, 60, "the services")
                first, second, threads = family_a(talk, busy, idle)
                family_b(talk, first, second, threads)
                family_c(talk, busy, idle)
                pull(talk, busy, os.path.basename(go_program))
                limits_of_running(talk, busy)
                continuous(talk, busy)
            the_agent(talk)
            what_programs_send(talk)
            half_a_request(talk)
            wait_until(lambda: daemon.request("POST", A + "/start", start(busy)).status == 503, 60, "the end to be noticed")
            talk.say("POST", A + "/start", start(busy), 503, "ServiceNotRunning")
            talk.say("POST", f"{V0}/{busy}/samply_profile", status=503, code="PipelineInteractionNotDeployed")
            keys(talk, first)
            missing = talk.all_operations() - worked
            check(not missing, f"operations that were not seen to work: {sorted(missing)}")


def test_too_many_requests_and_no_collector():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/profd.conf", "w") as f:
            f.write("[limits]\nrequests_per_second = 1\nrequest_burst = 8\n")
        with Daemon("--config", f"{folder}/profd.conf", "--no-collect") as daemon:
            talk = Talk(daemon)
            answer = wait_until(lambda: next((a for a in [daemon.request("GET", "/version")] if a.status == 429), None), 60,
                                "the burst to end")
            talk.hear("GET", "/version", answer, 429, "RateLimited")
            check(int(answer.headers["Retry-After"]) >= 1, f"{answer.headers}")
        # An agent that only serves a store.
        with Daemon("--no-collect") as daemon:
            Talk(daemon).say("POST", A + "/continuous", {"service": "x"}, 422, "ProfileTypeUnavailable")


def test_full_disk():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/small")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", f"{folder}/small"], check=True)
        try:
            with open(f"{folder}/profd.conf", "w") as f:
                f.write(f"[server]\nsocket = {folder}/small/sock\n")
            with Guarded("--no-collect", "--config", f"{folder}/profd.conf", data_dir=f"{folder}/small") as daemon:
                talk = Talk(daemon)
                with contextlib.suppress(OSError), open(f"{folder}/small/filler", "wb", buffering=0) as f:
                    while f.write(b"x" * 65536):
                        pass

                def refused():
                    answer = daemon.local("POST", "/api/v1/keys", {"name": "x", "role": "read"})
                    return answer if answer.status != 200 else None

                # The store keeps a reserve for full disks, which may last for some requests.
                talk.hear("POST", "/api/v1/keys", wait_until(refused, 60, "the store to refuse"), 503, "StoreUnavailable")
                talk.say_as_root("GET", A + "/history")
                os.unlink(f"{folder}/small/filler")
                wait_until(lambda: refused() is None, 60, "the store to recover")
        finally:
            subprocess.run(["umount", "-l", f"{folder}/small"], check=True)


def test_nothing_was_left_out():
    check(heard >= CODES, f"errors that were not provoked: {sorted(CODES - heard)}")
    check(heard <= CODES, f"errors that are not documented: {sorted(heard - CODES)}")


if __name__ == "__main__":
    main(test_every_operation_and_error, test_too_many_requests_and_no_collector, test_full_disk, test_nothing_was_left_out)
