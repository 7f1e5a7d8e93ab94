#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Grafana reads profd: the generated Connect client of Pyroscope's own schema asks, as Grafana's data source does, and
each answer equals what family A says of the same window."""

import collections
import contextlib
import datetime
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
import urllib.parse

from harness import (BUILD, FAMILY_A, ROOT, Daemon, Skip, build_truth, check, group, main, own_name, running,
                     wait_until)
from registry import run_patiently

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SERVICE_PATH = "/querier.v1.QuerierService/"


def build_client():
    if not shutil.which("go"):
        raise Skip("the Go compiler is not installed")
    target = os.path.join(os.path.abspath(BUILD), "workloads", "querier_client")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    fresh = f"{target}.{os.getpid()}"
    run_patiently(["go", "build", "-buildvcs=false", "-o", fresh, "."], cwd=os.path.join(ROOT, "tests/support/querier"),
                  env=dict(os.environ, CGO_ENABLED="0"))
    os.replace(fresh, target)
    return target


class Client:
    """Asks one daemon. Every call goes as protobuf and as JSON; both answers must say the same."""

    def __init__(self, program, daemon):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{daemon.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def say(self, call, request, **options):
        self.process.stdin.write(json.dumps({"url": self.url, "call": call, "request": request, **options}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, call, request, **options):
        first, second = (self.say(call, request, json=as_json, gzip=not as_json, **options) for as_json in (False, True))
        check("message" in first, f"{call} {request}: {first}")
        if first != second:  # a flush lies between them
            first, second = (self.say(call, request, json=as_json, **options) for as_json in (False, True))
        check(first == second, f"{call} in JSON: {str(second)[:500]}, in protobuf: {str(first)[:500]}")
        return first["message"]

    def refused(self, call, request, **options):
        answer = self.say(call, request, **options)
        check("code" in answer, f"{call} {request} was not refused: {str(answer)[:300]}")
        return answer["code"], answer["error"]


def milliseconds(rfc3339):
    return round(datetime.datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp() * 1000)


def rfc3339(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).isoformat(
        timespec="milliseconds").replace("+00:00", "Z")


def stacks_of(graph, sides=1):
    """{names from the root on: (own values of each side)} of a flame graph in levels, without the root."""
    width = 3 * sides + 1
    found = collections.Counter() if sides == 1 else {}
    bars = []  # of the level above: (begin, end, names)
    for depth, level in enumerate(graph["levels"]):
        values, here, at = [int(v) for v in level["values"]], [], [0] * sides
        check(len(values) % width == 0, f"level {depth} has {len(values)} numbers")
        for i in range(0, len(values), width):
            begins, totals, selves = [], [], []
            for side in range(sides):
                offset, total, own = values[i + 3 * side:i + 3 * side + 3]
                begins.append(at[side] + offset)
                at[side] = begins[side] + total
                totals.append(total)
                selves.append(own)
            name = graph["names"][values[i + width - 1]]
            spans = [(b, b + t) for b, t in zip(begins, totals)]
            parents = [p for spot, p in bars if all(o[0] <= s[0] and s[1] <= o[1] for o, s in zip(spot, spans))]
            check(depth == 0 or parents, f"{name} at level {depth} lies below no bar")
            names = (*parents[0], name) if depth else ()
            here.append((spans, names))
            if any(selves):
                if sides == 1:
                    found[names] += selves[0]
                else:
                    found[names] = tuple(a + b for a, b in zip(found.get(names, (0,) * sides), selves))
        bars = here
    return found


def window_stacks(daemon, service, from_ms, to_ms, kind="cpu", **query):
    """The same of family A."""
    text = daemon.get(f"{FAMILY_A}/window/flamegraph?" + urllib.parse.urlencode({
        "service": service, "profileType": kind, "start": rfc3339(from_ms), "end": rfc3339(to_ms), "format": "folded",
        **query})).body.decode()
    found = collections.Counter()
    for line in text.splitlines():
        stack, value = line.rsplit(" ", 1)
        found[tuple(stack.split(";"))] += int(value)
    return found


def unchanged(read, compared):
    """read() before and after compared(), which must have seen the same data: until no flush lies between them."""
    def both():
        before = read()
        answer = compared()
        return (before, answer) if before == read() else None

    return wait_until(both, 60, "data that stand still")


def equal(ours, theirs, what):
    check(set(ours) == set(theirs), f"{what}: stacks of one side only: {list(set(ours) ^ set(theirs))[:3]}")
    different = {k: (ours[k], theirs[k]) for k in ours if abs(ours[k] - theirs[k]) > 1}
    check(not different, f"{what}: {list(different.items())[:3]}")


@contextlib.contextmanager
def profiled():
    """A daemon that profiles a program all the time and has two sessions of another one; the names of both, and the
    times of the sessions."""
    client = build_client()
    with own_name(build_truth()) as program, own_name(build_truth(True)) as other, Daemon() as daemon, \
            Client(client, daemon) as asked, running(program, "600"), running(other, "600"):
        name, second = os.path.basename(program), os.path.basename(other)
        wait_until(lambda: {name, second} <= {s["name"] for s in daemon.get("/api/v1/observability/services").json()["items"]},
                   120, "the services to be known")
        answer = daemon.request("POST", FAMILY_A + "/continuous", {
            "service": name, "profileTypes": ["cpu", "wall"], "sampleRate": 99, "enabled": True})
        check(answer.status == 200, f"continuous: {answer}")
        sessions = [daemon.profile(second, 2, rate=199) for _ in range(2)]
        yield daemon, asked, name, second, sessions


def window_now():
    """Two minutes behind and one ahead."""
    minute = int(time.time()) // 60 * 60
    return (minute - 120) * 1000, (minute + 60) * 1000


def check_lists(asked, name, second, window):
    span = {"start": str(window[0]), "end": str(window[1])}
    types = {t["ID"]: t for t in asked.ask("ProfileTypes", span)["profileTypes"]}
    check(types[CPU] == {"ID": CPU, "name": "process_cpu", "sampleType": "cpu", "sampleUnit": "nanoseconds",
                         "periodType": "cpu", "periodUnit": "nanoseconds"}, f"{types.get(CPU)}")
    check("wall:wall:nanoseconds:wall:nanoseconds" in types, f"{list(types)}")
    # Grafana's health check names no time
    check(CPU in [t["ID"] for t in asked.ask("ProfileTypes", {})["profileTypes"]], "types without a time range")
    names = asked.ask("LabelNames", {"matchers": ["{}"], **span})["names"]
    check({"service_name", "host", "process", "thread", "state", "wait", "__profile_type__"} <= set(names), f"{names}")
    services = asked.ask("LabelValues", {"name": "service_name", "matchers": [""], **span})["names"]
    check({name, second} <= set(services), f"{services}")
    only = asked.ask("LabelValues", {"name": "service_name", **span, "matchers": [
        '{service_name=~"%s.*", __profile_type__="%s"}' % (name[:5], CPU)]})["names"]
    check(only == sorted({n for n in (name, second) if n.startswith(name[:5])}), f"{only}")
    threads = asked.ask("LabelValues", {"name": "process", "matchers": ['{service_name="%s"}' % name], **span})["names"]
    check(threads == [name[:15]], f"processes: {threads}")
    found = asked.ask("Series", {"matchers": [], "labelNames": ["service_name", "__profile_type__"], **span})
    pairs = {tuple(pair["value"] for pair in labels["labels"]) for labels in found["labelsSet"]}
    check({(name, CPU), (second, CPU)} <= pairs, f"{pairs}")
    stats = asked.ask("GetProfileStats", {})
    check(stats["dataIngested"] and int(stats["oldestProfileTime"]) <= int(stats["newestProfileTime"]), f"{stats}")


def points_of(daemon, service, window, kind="cpu", step="60s"):
    answer = daemon.get(f"{FAMILY_A}/history?" + urllib.parse.urlencode({
        "service": service, "profileType": kind, "from": rfc3339(window[0]), "to": rfc3339(window[1]), "aggregate": step,
        "top": 0})).json()
    return {milliseconds(p["to"]): p["totalValue"] for p in answer["points"] if p["totalValue"]}


def series_of(answer):
    return {tuple(pair["value"] for pair in series["labels"]):
            {int(p["timestamp"]): p["value"] for p in series["points"] if p["value"]} for series in answer["series"]}


def check_time_series(daemon, asked, name, second, window):
    request = {"profileTypeID": CPU, "labelSelector": '{service_name=~"%s|%s"}' % (name, second), "start": str(window[0]),
               "end": str(window[1]), "step": 60, "groupBy": ["service_name"]}
    expected, found = unchanged(
        lambda: {(service,): points_of(daemon, service, window) for service in (name, second)},
        lambda: series_of(asked.ask("SelectSeries", request)))
    check(found == expected and found[(name,)] and found[(second,)], f"series {found}, family A {expected}")
    total = sum(expected[(name,)].values())
    # a step below a minute shares the minutes out, labels of samples are summed from events: the sums stay
    for more in ({"step": 15}, {"step": 60, "groupBy": ["thread"]}, {"step": 47, "groupBy": ["service_name", "pid"]}):
        expected, found = unchanged(
            lambda: sum(points_of(daemon, name, window).values()),
            lambda m=more: series_of(asked.ask("SelectSeries", {
                **request, "labelSelector": '{service_name="%s"}' % name, **m})))
        total = sum(value for points in found.values() for value in points.values())
        check(abs(total - expected) <= 1e-6 * expected + 16, f"{more}: {total}, family A {expected}")
    limited = asked.ask("SelectSeries", {**request, "limit": "1"})["series"]
    check(len(limited) == 1, f"{len(limited)} series with limit 1")


def check_merges(daemon, asked, name, second, sessions, window):
    request = {"profileTypeID": CPU, "start": str(window[0]), "end": str(window[1]), "maxNodes": "100000",
               "labelSelector": '{service_name="%s"}' % name}
    expected, graph = unchanged(
        lambda: window_stacks(daemon, name, *window),
        lambda: asked.ask("SelectMergeStacktraces", request)["flamegraph"])
    equal(stacks_of(graph), expected, "flame graph")
    check(int(graph["total"]) == sum(expected.values()), f"total {graph['total']}")
    # a matcher of samples chooses as family A's where does
    thread = next(iter(asked.ask("LabelValues", {"name": "state", "start": str(window[0]), "end": str(window[1]),
                                                 "matchers": ['{service_name="%s"}' % name]})["names"]))
    wall = {**request, "profileTypeID": "wall:wall:nanoseconds:wall:nanoseconds",
            "labelSelector": '{service_name="%s", state="%s"}' % (name, thread)}
    expected, graph = unchanged(
        lambda: window_stacks(daemon, name, *window, kind="wall", where=f"state:{thread}"),
        lambda: asked.ask("SelectMergeStacktraces", wall)["flamegraph"])
    equal(stacks_of(graph), expected, "a matcher of samples")
    # several services in one: the sum of both
    both = {**request, "labelSelector": '{service_name=~"%s|%s"}' % (name, second)}
    expected, graph = unchanged(
        lambda: window_stacks(daemon, name, *window) + window_stacks(daemon, second, *window),
        lambda: asked.ask("SelectMergeStacktraces", both)["flamegraph"])
    equal(stacks_of(graph), expected, "two services")
    of_two = {**request, "labelSelector": '{service_name="%s"}' % second}
    pprof = asked.ask("SelectMergeProfile", of_two)
    check(len(pprof["sampleType"]) == 1, f"{pprof['sampleType']}")
    total = sum(int(s["value"][0]) for s in pprof["sample"])
    check(total == sum(s["totalValue"] for s in sessions), f"pprof {total}, sessions {[s['totalValue'] for s in sessions]}")
    merged = asked.ask("SelectMergeStacktraces", {**of_two, "format": "PROFILE_FORMAT_PPROF"})["pprof"]["profile"]
    check(sum(int(s["value"][0]) for s in merged["sample"]) == total, "pprof inside of a merge")
    nothing = asked.ask("SelectMergeStacktraces", {**request, "labelSelector": '{service_name="nobody"}'})
    check(not nothing["flamegraph"], f"{nothing}")


def check_diff(daemon, asked, second, sessions):
    """Two windows around one session each."""
    sides, query = [], {"profileType": "cpu", "service": second, "format": "folded"}
    for side, session in zip(("base", "comparison"), sessions):
        begin = milliseconds(session["createdAt"])
        sides.append({"profileTypeID": CPU, "labelSelector": '{service_name="%s"}' % second, "start": str(begin - 1),
                      "end": str(begin + 1), "maxNodes": "100000"})
        query.update({side + "From": rfc3339(begin - 1), side + "To": rfc3339(begin + 1)})
    graph = asked.ask("Diff", {"left": sides[0], "right": sides[1]})["flamegraph"]
    expected = {}
    for line in daemon.get(f"{FAMILY_A}/compare/flamegraph?{urllib.parse.urlencode(query)}").body.decode().splitlines():
        stack, left, right = line.rsplit(" ", 2)
        stack = tuple(stack.split(";"))
        known = expected.get(stack, (0, 0))
        expected[stack] = (known[0] + int(left), known[1] + int(right))
    found = stacks_of(graph, 2)
    check(found == expected, f"diff: {[(k, found.get(k), expected.get(k)) for k in {**found, **expected} if found.get(k) != expected.get(k)][:3]}")
    check([int(graph[k]) for k in ("leftTicks", "rightTicks")] == [s["totalValue"] for s in sessions], "ticks")


def check_refusals(daemon, asked, window):
    span = {"start": str(window[0]), "end": str(window[1])}
    good = {"profileTypeID": CPU, "labelSelector": "{}", "step": 60, **span}
    for call, request, code in (
            ("SelectSeries", {**good, "labelSelector": '{a="b'}, "invalid_argument"),
            ("SelectSeries", {**good, "labelSelector": '{a=~"("}'}, "invalid_argument"),
            ("SelectSeries", {**good, "labelSelector": "{a}"}, "invalid_argument"),
            ("SelectSeries", {**good, "labelSelector": "service"}, "invalid_argument"),
            ("SelectSeries", {**good, "labelSelector": '{service_name=~"(([a-z_0-9-]|[a-z_0-9])*)*[!?]"}'}, "invalid_argument"),
            ("SelectSeries", {**good, "profileTypeID": "a:b"}, "invalid_argument"),
            ("SelectSeries", {**good, "step": 0}, "invalid_argument"),
            ("SelectSeries", {**good, "step": 1, "start": "1000"}, "invalid_argument"),
            ("SelectSeries", {**good, "start": span["end"], "end": span["start"]}, "invalid_argument"),
            ("SelectMergeStacktraces", {**good, "maxNodes": "99999999"}, "invalid_argument"),
            ("SelectMergeStacktraces", {**good, "format": "PROFILE_FORMAT_DOT"}, "unimplemented"),
            ("LabelValues", {"name": ""}, "invalid_argument"),
            ("Diff", {"left": {"profileTypeID": CPU}}, "invalid_argument"),
            ("SelectHeatmap", good, "unimplemented")):
        request = {k: v for k, v in request.items() if k != "step" or call == "SelectSeries"}
        found = asked.refused(call, request)
        check(found[0] == code, f"{call} {request}: {found}")
    for body, headers, status, code in (
            (b"\xff\xff\xff", {"Content-Type": "application/proto"}, 400, "invalid_argument"),
            (b"\x0a\x7f", {"Content-Type": "application/proto"}, 400, "invalid_argument"),
            (b"\x0a\x02\xff\xfe", {"Content-Type": "application/proto"}, 400, "invalid_argument"),
            (b"{", {"Content-Type": "application/json"}, 400, "invalid_argument"),
            (b'{"start":"x"}', {"Content-Type": "application/json"}, 400, "invalid_argument"),
            (b"x", {"Content-Type": "application/proto", "Content-Encoding": "gzip"}, 400, "invalid_argument"),
            (gzip.compress(bytes(8 << 20)), {"Content-Type": "application/proto", "Content-Encoding": "gzip"}, 413,
             "resource_exhausted"),
            (b"", {"Content-Type": "text/plain"}, 415, "invalid_argument"),
            (b"", {"Content-Type": "application/proto", "X-Scope-OrgID": "a b"}, 400, "invalid_argument")):
        answer = daemon.request("POST", SERVICE_PATH + "SelectSeries", body, headers)
        check((answer.status, answer.json()["code"]) == (status, code) and answer.json()["message"],
              f"{body[:20]} {headers}: {answer}")


def test_four_journeys():
    with profiled() as (daemon, asked, name, second, sessions):
        wait_until(lambda: points_of(daemon, name, window_now()) and points_of(daemon, name, window_now(), "wall"), 60,
                   "continuous data")
        window = window_now()
        check_lists(asked, name, second, window)
        check_time_series(daemon, asked, name, second, window)
        check_merges(daemon, asked, name, second, sessions, window)
        check_diff(daemon, asked, second, sessions)
        check_refusals(daemon, asked, window)


def test_keys_and_tenants():
    client = build_client()
    with tempfile.TemporaryDirectory() as folder, own_name(build_truth()) as program, \
            Daemon("--socket", f"{folder}/s") as daemon, Client(client, daemon) as asked, running(program, "600"):
        name = os.path.basename(program)
        wait_until(lambda: name in {s["name"] for s in daemon.get("/api/v1/observability/services").json()["items"]}, 120,
                   "the service to be known")
        daemon.profile(name, 1)

        def key(tenant):
            made = subprocess.run([os.path.join(BUILD, "profctl"), "--socket", f"{folder}/s", "key", "create", "--name", tenant,
                                   "--role", "read", "--tenant", tenant], check=True, capture_output=True, text=True)
            return {"Authorization": f"Bearer {made.stdout.split()[-1]}"}

        own, other = key("default"), key("guest")
        check(asked.refused("ProfileTypes", {})[0] == "unauthenticated", "without a key")
        check(asked.ask("ProfileTypes", {}, headers=own)["profileTypes"], "the tenant's own types")
        check(asked.ask("ProfileTypes", {}, headers={**own, "X-Scope-OrgID": "default"})["profileTypes"], "named")
        check(not asked.ask("ProfileTypes", {}, headers=other)["profileTypes"], "another tenant sees types")
        check(asked.refused("ProfileTypes", {}, headers={**other, "X-Scope-OrgID": "default"})[0] == "permission_denied",
              "another tenant's name")


def test_labels_of_the_past():
    """A service's unit is a label of its history, also when it runs no more and its agent has begun again."""
    client, unit = build_client(), f"past{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, group(f"profd{os.getpid()}/{unit}.service") as take:
        with Daemon(data_dir=folder) as daemon, running(build_truth(), "600") as process:
            take(process.pid)
            wait_until(lambda: unit in {s["name"] for s in daemon.get("/api/v1/observability/services").json()["items"]}, 120,
                       "the service to be known")
            taken = daemon.profile(unit, 1)

            def kept():
                with contextlib.closing(sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True)) as records:
                    return records.execute("SELECT body FROM records WHERE kind = 'labels' AND service = ?", (unit,)).fetchall()

            (body,), = wait_until(kept, 120, "the labels to be kept")
            check([s["unit"] for s in json.loads(body)["sets"]] == [f"{unit}.service"], f"{body}")
        with Daemon("--no-collect", data_dir=folder) as daemon, Client(client, daemon) as asked:
            check(not daemon.get("/api/v1/observability/services").json()["items"], "something runs")
            begin = milliseconds(taken["createdAt"])
            span = {"start": str(begin - 60000), "end": str(begin + 600000)}
            check(asked.ask("LabelValues", {"name": "unit", "matchers": ["{}"], **span})["names"] == [f"{unit}.service"], "unit")
            graph = asked.ask("SelectMergeStacktraces", {"profileTypeID": CPU, "labelSelector": '{unit="%s.service"}' % unit, **span})
            check(int(graph["flamegraph"]["total"]) == taken["totalValue"], f"{graph}")
            other = asked.ask("SelectMergeStacktraces", {"profileTypeID": CPU, "labelSelector": '{unit="other.service"}', **span})
            check(not other["flamegraph"], f"{other}")


if __name__ == "__main__":
    main(test_four_journeys, test_keys_and_tenants, test_labels_of_the_past)
