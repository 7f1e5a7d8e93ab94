# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""One ClickHouse for many hosts: two agents under host names of their own, and a server that takes nothing. Whatever one of
them has, each of them answers, in the same words; what works on it stays with its host; and while ClickHouse is away nothing
ends and nothing is lost."""

import contextlib
import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

from clickhouse import CURRENT, DEBIANS, PASSWORD, ClickHouse
from harness import (FAMILY_A, Daemon, Skip, check, check_sampled, compile_workload, cpu_ns, free_port, main, own_name,
                     running, wait_until)

FAMILY_B = "/api/v1/profiling"
RATE = 199
RESTS_MS = "30"  # of the program, which runs for minutes, after each 5 ms of work
FLUSH_S = 61  # a shared store gets continuous data every minute
FORMATS = ("folded", "json", "svg", "flame", "pprof", "firefox", "speedscope", "otlp", "perfscript", "callgrind", "csv")


class Fleet:
    """a and b are agents, v takes nothing."""

    def __init__(self, service, command):
        self.service = service
        self.folder = tempfile.mkdtemp(prefix="profd-fleet-")
        self.clickhouse = ClickHouse(self.folder, command)
        self.names = {x: f"{x}{os.getpid()}.fleet.test" for x in "ab"}
        self.daemons = {}

    def daemon(self, which, *more):
        # ClickHouse on the same host is no part of the question, and its library takes long to read
        daemon = Daemon(*more, "--socket", f"{self.folder}/{which}.sock", "--set", "collect.exclude=*/clickhouse-server */python3*",
                        data_dir=f"{self.folder}/{which}",
                        env={"PROFD_STORE_URL": self.clickhouse.url})
        if which in self.names:
            daemon.prefix = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.names[which]]
        os.makedirs(daemon.data_dir, exist_ok=True)
        return daemon

    def __enter__(self):
        try:
            self.clickhouse.start()
            self.daemons = {"a": self.daemon("a"), "b": self.daemon("b"), "v": self.daemon("v", "--no-collect")}
            for which, daemon in self.all():
                daemon.start()
                # one after the other, as each begins with ClickHouse's large library
                if which in self.names:
                    await_names(daemon, self.service)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self.a, self.b, self.v = self.daemons.values()
        return self

    def __exit__(self, kind, value, trace):
        for which, daemon in self.daemons.items():
            daemon.stop()
            if kind:
                print(f"log of {which}:", *daemon.log[-30:], sep="\n  ")
            check(PASSWORD not in " ".join(daemon.log), f"{which} logs the password")
        if self.clickhouse.process and self.clickhouse.process.poll() is None:
            self.clickhouse.kill()
        if kind:
            with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
                print("log of ClickHouse:", f.read()[-3000:])
        shutil.rmtree(self.folder, ignore_errors=True)

    def all(self):
        return self.daemons.items()

    def admin(self, which, method, path, body=None):
        """By the Unix socket, as root: (status, JSON)."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(f"{self.folder}/{which}.sock")
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def same(self, path, seconds=180, of=lambda answer: answer, **kwargs):
        """Waits until all daemons give the same answer and returns it. The owner of a session may
        still write for a moment."""
        seen = {}

        def agree():
            for which, daemon in self.all():
                seen[which] = of(daemon.get(path, **kwargs))
            return seen["a"] == seen["b"] == seen["v"]

        try:
            wait_until(agree, seconds, f"the same answer to {path}")
        except AssertionError:
            for which, answer in seen.items():
                print(which, repr(answer)[:1500])
            raise
        return seen["a"]


def body(answer):
    return gzip.decompress(answer.body) if answer.body[:2] == b"\x1f\x8b" else answer.body


def as_json(answer):
    return answer.json()


def problem(answer, status, word):
    check(answer.status == status, answer)
    check(answer.headers["Content-Type"].startswith("application/problem+json"), answer.headers)
    check(answer.json()["error_code"] == word, answer.json())
    return answer.json()


def await_names(daemon, service):
    """A symbolizer reads what runs on the host first: ClickHouse's library takes a busy machine long."""
    wait_until(lambda: daemon.get("/readyz").status == 200, 60, "the daemon to be ready")
    wait_until(lambda: any("main" in stack for stack, _ in daemon.folded(daemon.profile(service, 1, rate=RATE)["id"])), 180,
               "names")


# ---- one session, everywhere -----------------------------------------------------------------------------------------


def same_session(fleet, service, session):
    """Every view of it."""
    result = fleet.same(f"{FAMILY_A}/{session}", of=as_json)
    check(result["host"] == fleet.names["a"] and result["status"] == "completed", result)
    items = fleet.same(f"{FAMILY_A}/history?service={service}&profileType=cpu&status=completed", of=as_json)["items"]
    check(session in [item["id"] for item in items], items)
    fleet.same(f"{FAMILY_B}/sessions/{session}", of=as_json)
    for name in FORMATS:
        fleet.same(f"{FAMILY_A}/{session}/flamegraph?format={name}", of=body)
    fleet.same(f"{FAMILY_A}/{session}/heatmap", of=as_json)
    named = [stack for stack, _ in fleet.v.folded(session) if "main" in stack]
    check(named, "the viewer has no names")
    return result


def same_threads(fleet, service):
    """A snapshot type has the same threads and the same analysis on all hosts."""
    answer = fleet.a.request("POST", FAMILY_B + "/sessions", {"profileType": "goroutine", "target": service})
    check(answer.status == 200, answer)
    session = answer.json()["sessionId"]
    analysis = fleet.same(f"{FAMILY_B}/sessions/{session}/analysis", of=lambda answer: {**answer.json(), "analyzedAt": None})
    check(analysis["goroutineCount"] >= 1, analysis)


def compared(fleet, first, second):
    query = f"baseProfileId={first}&comparisonProfileId={second}"
    result = fleet.same(f"{FAMILY_A}/compare?{query}", of=as_json)
    check(result["verdict"], result)
    fleet.same(f"{FAMILY_A}/compare/flamegraph?{query}&format=json", of=as_json)
    answer = fleet.v.request("POST", FAMILY_B + "/diff", {"baseId": first, "compareId": second, "type": "cpu"})
    check(answer.status == 200, answer)


def baseline_outlives(fleet, session):
    """Made on B of A's session, which the viewer then deletes."""
    folded = body(fleet.a.get(f"{FAMILY_A}/{session}/flamegraph?format=folded"))
    answer = fleet.b.request("POST", FAMILY_B + "/baselines", {"label": "of a", "sessionId": session, "profileType": "cpu"})
    check(answer.status == 200, answer)
    baseline = answer.json()["baselineId"] if "baselineId" in answer.json() else answer.json()["id"]
    answer = fleet.v.request("DELETE", f"{FAMILY_A}/{session}")
    check(answer.status == 204, answer)
    for which, daemon in fleet.all():
        wait_until(lambda d=daemon: d.request("GET", f"{FAMILY_A}/{session}").status == 404, 60, f"{which} to forget it")
    kept = fleet.same(f"{FAMILY_B}/baselines/{baseline}", of=as_json)
    check(kept["isLatest"], kept)
    fleet.same(f"{FAMILY_B}/baselines", of=as_json)
    query = f"baseProfileId={baseline}&comparisonProfileId={baseline}"
    check(fleet.same(f"{FAMILY_A}/compare?{query}", of=as_json)["verdict"] == "unchanged", "unlike itself")
    check(body(fleet.v.get(f"{FAMILY_A}/{baseline}/flamegraph?format=folded")) == folded, "the baseline is not its session")


def stopped_at_home(fleet, session):
    """Only A stops what runs on A; the others see that it runs."""
    for daemon in (fleet.b, fleet.v):
        wait_until(lambda d=daemon: d.request("GET", f"{FAMILY_A}/{session}").status == 200, 60, "others to see it")
        result = daemon.get(f"{FAMILY_A}/{session}").json()
        check(result["status"] == "running" and result["host"] == fleet.names["a"], result)
        detail = problem(daemon.request("DELETE", f"{FAMILY_A}/{session}"), 409, "NotFinished")["detail"]
        check(fleet.names["a"] in detail, detail)
    check(fleet.a.get(f"{FAMILY_A}/{session}").json()["status"] == "running", "it was stopped")


# ---- continuous profiling --------------------------------------------------------------------------------------------


def spans(daemon, service):
    items = daemon.get(f"{FAMILY_A}/history?service={service}&limit=100").json()["items"]
    return [item for item in items if item["continuous"]]


def window(daemon, service, start, where=""):
    """Folded total of what is stored since then, None = nothing."""
    answer = daemon.request("GET", f"{FAMILY_A}/window/flamegraph?service={service}&profileType=cpu&start={start}"
                                   f"&end=now&format=folded{where}")
    if answer.status == 404:
        return None
    check(answer.status == 200, answer)
    return sum(int(line.rsplit(" ", 1)[1]) for line in answer.body.decode().splitlines())


def spans_of_both(fleet, service, start):
    """They are listed everywhere under the same ids; a window holds what both took."""
    for daemon in (fleet.a, fleet.b):
        wait_until(lambda d=daemon: {item["host"] for item in spans(d, service)} == set(fleet.names.values()),
                   60 + FLUSH_S, "spans of both hosts")
    for daemon in (fleet.a, fleet.b):
        check(daemon.request("DELETE", f"{FAMILY_A}/continuous/{service}").status == 204, "the setting stays")
    wait_until(lambda: fleet.v.request("GET", f"{FAMILY_A}/continuous").json()["items"] == [], 10, "no settings")

    def ids(answer):
        return [(item["id"], item["host"], item["totalValue"], item["sampleCount"]) for item in answer.json()["items"]
                if item["continuous"]]

    def adds_up():
        """The last flush comes some seconds after the setting has gone: until then sums of two moments may differ."""
        total = dict.fromkeys(fleet.names.values(), 0)
        for _, host, value, _ in fleet.same(f"{FAMILY_A}/history?service={service}&limit=100", of=ids):
            total[host] += value
        whole = {which: window(daemon, service, start) for which, daemon in fleet.all()}
        parts = {name: window(fleet.v, service, start, f"&where=host:{name}") for name in total}
        points = fleet.v.get(f"{FAMILY_A}/history?service={service}&profileType=cpu&from={start}&to=now&aggregate=1m").json()
        points = sum(point["totalValue"] for point in points["points"])
        seen.update(total=total, whole=whole, parts=parts, points=points)
        return all(total.values()) and parts == total and {*whole.values(), points} == {sum(total.values())}

    seen = {}
    try:
        wait_until(adds_up, 60 + FLUSH_S, "sums of both hosts that add up")
    except AssertionError:
        print(seen)
        raise


def named_everywhere(fleet, service):
    """Whoever looks has the names, though the viewer has none of the files."""
    span = spans(fleet.v, service)[0]["id"]
    wait_until(lambda: any("main" in stack for stack, _ in fleet.v.folded(span)), 60, "names of a span")


def span_deleted(fleet, service):
    span = spans(fleet.v, service)[0]["id"]
    check(fleet.v.request("DELETE", f"{FAMILY_A}/{span}").status == 204, "the span stays")
    for which, daemon in fleet.all():
        wait_until(lambda d=daemon: span not in [item["id"] for item in spans(d, service)], 60, f"{which} to forget it")


# ---- keys ------------------------------------------------------------------------------------------------------------


def keys_open_everything(fleet, session):
    """Made on A it opens B at once and closes all of them; revoked on B it opens none."""
    status, key = fleet.admin("a", "POST", "/api/v1/keys", {"name": "fleet", "role": "admin"})
    check(status == 200, key)
    headers = {"Authorization": "Bearer " + key["key"]}
    for which, daemon in fleet.all():
        wait_until(lambda d=daemon: d.request("GET", "/api/v1/keys", headers=headers).status == 200, 60, f"the key to open {which}")
    for which, daemon in fleet.all():
        wait_until(lambda d=daemon: d.request("GET", f"{FAMILY_A}/history").status == 401, 60, f"{which} to close")
    link = fleet.a.get(f"{FAMILY_A}/{session}", headers=headers).json()["flameGraphUrl"]
    check("sig=" in link, link)
    for _, daemon in fleet.all():
        check(daemon.request("GET", link).status == 200, "a link does not open it")
    check(fleet.b.request("DELETE", f"/api/v1/keys/{key['id']}", headers=headers).status == 204, "the key stays")
    for which, daemon in fleet.all():
        # without any key they are open again, and a token is ignored
        wait_until(lambda d=daemon: d.request("GET", f"{FAMILY_A}/history").status == 200, 60, f"{which} to open")
    for which in "abv":
        check(fleet.admin(which, "GET", "/api/v1/keys")[1]["items"] == [], "a key is left")


def told_without_password(fleet):
    """Answers, logs and metrics name the store's place without its password. A backup of the store
    is refused: the store's own tools make it."""
    status, answer = fleet.admin("v", "GET", "/api/v1/backup")
    check(status == 503 and "back up its database fleet" in answer["detail"], answer)
    checked = subprocess.run([fleet.v.program, "--check"], env=fleet.v.env, capture_output=True, text=True)
    texts = [json.dumps(answer), checked.stdout + checked.stderr]
    for _, daemon in fleet.all():
        texts += [daemon.get(path).body.decode() for path in ("/metrics", "/readyz", "/version")]
    for text in texts:
        check(PASSWORD not in text and urllib.parse.quote(PASSWORD, safe="") not in text, text)


# ---- without ClickHouse ----------------------------------------------------------------------------------------------


def is_away(daemon):
    return daemon.request("GET", "/readyz").status == 503


def metric(daemon, name):
    for line in daemon.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    return None


def goes_on_without(fleet, process, service, session, began):
    """@session runs on A; it was begun when its program had used between @began ns of CPU time."""
    fleet.clickhouse.kill()
    for which, daemon in fleet.all():
        problem(daemon.request("GET", f"{FAMILY_A}/history"), 503, "StoreUnavailable")
        problem(daemon.request("GET", f"{FAMILY_B}/baselines"), 503, "StoreUnavailable")
        problem(daemon.request("GET", f"{FAMILY_A}/window/flamegraph?service={service}&profileType=cpu&start=now-1h&end=now"),
                503, "StoreUnavailable")
        if which != "a":
            problem(daemon.request("GET", f"{FAMILY_A}/{session}"), 503, "StoreUnavailable")
        wait_until(lambda d=daemon: is_away(d), 60, f"{which} to say that the store is away")
    check(fleet.a.get(f"{FAMILY_A}/{session}").json()["status"] == "running", "it ended")
    answer = fleet.a.request("POST", FAMILY_A + "/start", {"service": "host", "profileType": "cpu", "durationSeconds": 600})
    check(answer.status == 202, f"none can be started: {answer}")
    second = answer.json()["id"]
    wait_until(lambda: fleet.a.get(f"{FAMILY_A}/{second}").json()["sampleCount"] > 100, 60, "samples of another one")
    server = fleet.a.children()["profd-server"]
    seen = fleet.a.get(f"{FAMILY_A}/{session}").json()["sampleCount"]
    wait_until(lambda: fleet.a.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > seen + 100, 60, "more samples")
    ended = [cpu_ns(process.pid)]
    for each in (session, second):
        check(fleet.a.request("DELETE", f"{FAMILY_A}/{each}").status == 202, "not stopped")
    ended.append(cpu_ns(process.pid))
    wait_until(lambda: metric(fleet.a, "profd_store_waiting_bytes"), 60, "what waits to be counted")
    fleet.clickhouse.start()
    for which, daemon in fleet.all():
        wait_until(lambda d=daemon: not is_away(d), 60, f"{which} to see that the store is back")
    for each in (session, second):
        wait_until(lambda e=each: fleet.v.request("GET", f"{FAMILY_A}/{e}").status == 200 and
                   fleet.v.get(f"{FAMILY_A}/{e}").json()["status"] == "completed", 60, "the session to arrive")
    result = fleet.same(f"{FAMILY_A}/{session}", of=as_json)
    check_sampled(result["totalValue"], ended[0] - began[1], ended[1] - began[0], RATE)
    check(sum(value for _, value in fleet.v.folded(session)) == result["totalValue"], "its data is not what it says")
    wait_until(lambda: metric(fleet.a, "profd_store_waiting_bytes") == 0, 60, "nothing to wait")
    check(fleet.a.children()["profd-server"] == server, "the server began again")


def killed(fleet, program, process, service):
    """The server alone: the session goes on. All of A: it is there with what it had."""
    before = cpu_ns(process.pid)
    session = fleet.a.start_profile(service, 600, rate=RATE)
    start = cpu_ns(process.pid)
    os.kill(fleet.a.children()["profd-server"], signal.SIGKILL)

    def count():
        with contextlib.suppress(OSError):
            answer = fleet.a.request("GET", f"{FAMILY_A}/{session}")
            return answer.json().get("sampleCount", 0) if answer.status == 200 else 0
        return 0

    wait_until(lambda: cpu_ns(process.pid) - start > 5e8 and count() > 100, 60, "it to go on")
    least = cpu_ns(process.pid) - start
    check(fleet.a.request("DELETE", f"{FAMILY_A}/{session}").status == 202, "not stopped")
    most = cpu_ns(process.pid) - before
    result = fleet.a.finish_profile(session)
    check(result["status"] == "completed", result)
    check_sampled(result["totalValue"], least, most, RATE)

    session = fleet.a.start_profile(service, 600, rate=RATE)
    # on the disk of A, or already in the store
    wait_until(lambda: sum(value for _, value in fleet.v.folded(session)) > 0
               if fleet.v.request("GET", f"{FAMILY_A}/{session}/flamegraph?format=folded").status == 200 else False, 60,
               "the first flush")
    fleet.a.stop(signal.SIGKILL)
    fleet.a.start()
    result = fleet.same(f"{FAMILY_A}/{session}", of=as_json)
    check(result["status"] == "completed" and result["stoppedEarly"] and result["totalValue"] > 0, result)


# ---- the whole -------------------------------------------------------------------------------------------------------


def fleet_answers_as_one(command):
    for tool in (command[0], "unshare"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    if os.geteuid() != 0:
        raise Skip("host names of their own need root")
    built = compile_workload("calm.c", "-O1", "-g", "-fno-omit-frame-pointer")
    with own_name(built) as program, running(program, RESTS_MS) as process, Fleet(os.path.basename(program), command) as fleet:
        service = fleet.service
        start = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime())
        for daemon in (fleet.a, fleet.b):
            answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": service, "sampleRate": 49})
            check(answer.status == 200, answer)
        check(fleet.v.request("POST", FAMILY_A + "/continuous", {"service": service}).status in (404, 422), "taken by nobody")
        first = fleet.a.profile(service, 2, rate=RATE)["id"]
        other = fleet.b.profile(service, 2, rate=RATE)["id"]
        same_session(fleet, service, first)
        same_threads(fleet, service)
        compared(fleet, first, other)
        keys_open_everything(fleet, other)
        told_without_password(fleet)
        spans_of_both(fleet, service, start)
        flushed = time.monotonic() + FLUSH_S
        named_everywhere(fleet, service)
        span_deleted(fleet, service)
        baseline_outlives(fleet, first)
        began = [cpu_ns(process.pid)]
        session = fleet.a.start_profile(service, 600, rate=RATE)
        began.append(cpu_ns(process.pid))
        stopped_at_home(fleet, session)
        wait_until(lambda: sum(value for _, value in fleet.v.folded(session)), 60, "a flush")
        time.sleep(max(0, flushed - time.monotonic()))  # then the last of what was recorded before is stored
        of_a = f"&where=host:{fleet.names['a']}"
        before, recorded = window(fleet.v, service, start, of_a), [cpu_ns(process.pid)]
        answer = fleet.a.request("POST", FAMILY_A + "/continuous", {"service": service, "sampleRate": RATE})
        check(answer.status == 200, answer)
        recorded.append(cpu_ns(process.pid))
        goes_on_without(fleet, process, service, session, began)
        recorded.append(cpu_ns(process.pid))
        check(fleet.a.request("DELETE", f"{FAMILY_A}/continuous/{service}").status == 204, "the setting stays")
        recorded.append(cpu_ns(process.pid))
        # what was recorded while ClickHouse was away is there, once; the rest comes with the next flush
        least = recorded[2] - recorded[1]
        wait_until(lambda: window(fleet.v, service, start, of_a) - before > 0.92 * least, 60 + FLUSH_S,
                   "what was recorded meanwhile")
        check_sampled(window(fleet.v, service, start, of_a) - before, least, recorded[3] - recorded[0], RATE)
        killed(fleet, program, process, service)


def fleet_on_debians():
    fleet_answers_as_one(DEBIANS)


def fleet_on_current():
    fleet_answers_as_one(CURRENT)


main(fleet_on_debians, fleet_on_current)
