#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Programs send their own profiles: Go's net/http/pprof, Pyroscope's agent for Go, OTLP built with OpenTelemetry's published
schema, and profd itself. Each becomes a session with the sender's numbers; what is wrong is refused with its field named."""

import base64
import contextlib
import gzip
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

from harness import (BUILD, FAMILY_A, ROOT, WORKLOADS, Daemon, Skip, check, main, wait_until)
from registry import pypi_import, run_patiently

pypi_import("opentelemetry-proto==1.45.2", "protobuf==6.33.0", "googleapis-common-protos==1.72.0")

from google.protobuf import json_format  # noqa: E402
from google.rpc import status_pb2  # noqa: E402
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service_pb2  # noqa: E402


OTLP = "/v1development/profiles"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
MS = 1000000


def build_sender():
    if subprocess.run(["which", "go"], capture_output=True).returncode:
        raise Skip("the Go compiler is not installed")
    os.makedirs(WORKLOADS, exist_ok=True)
    target = os.path.join(os.path.abspath(BUILD), "workloads", "sender")
    fresh = f"{target}.{os.getpid()}"
    run_patiently(["go", "build", "-buildvcs=false", "-o", fresh, "."], cwd=os.path.join(ROOT, "tests/support/sender"),
                  env=dict(os.environ, CGO_ENABLED="0"))
    os.replace(fresh, target)
    return target


@contextlib.contextmanager
def sender(*arguments, **env):
    """The port of its net/http/pprof."""
    process = subprocess.Popen([build_sender(), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, **env))
    try:
        word, port = process.stdout.readline().split()
        check(word == "ready", "the sender is not ready")
        yield int(port)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def server(*arguments, **options):
    return Daemon("--no-collect", *arguments, **options)


def pprof(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/pprof/{path}", timeout=60) as answer:
        return answer.read()


def ingest(daemon, body, name="shop", status=200, headers=None, **query):
    query = urllib.parse.urlencode({"name": name, **query})
    answer = daemon.request("POST", f"/ingest?{query}", body, {"Content-Type": "application/octet-stream", **(headers or {})})
    check(answer.status == status, f"{query}: {answer}")
    return answer.json()


def sessions(daemon, service, kind=None, headers=None):
    query = urllib.parse.urlencode({"service": service, **({"profileType": kind} if kind else {})})
    return daemon.get(f"/api/v1/profiling/sessions?{query}&limit=100", headers=headers).json()["items"]


def tops(daemon, session, headers=None):
    result = daemon.get(f"{FAMILY_A}/{session}?top=1000", headers=headers).json()
    return result, {t["funcName"]: t for t in result["topFunctions"]}


def go_tool(body, value):
    """{function: (own value, value with callees)}, as Go's own tool reads the profile."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        text = subprocess.run(["go", "tool", "pprof", "-top", "-nodecount=100000", "-unit=none", f"-sample_index={value}", file.name],
                              capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 5) for line in text.split("cum%\n", 1)[1].splitlines()]
    return {row[5].replace(" (inline)", ""): (row[0], row[3]) for row in rows}


def real_go_profiles():
    """Every function has the value that `go tool pprof` gives it, of each type; what is sent twice is there once, also after
    a restart."""
    with sender() as port, server() as daemon:
        body = pprof(port, "profile?seconds=2")
        session, = ingest(daemon, body, "shop{version=v1,team=a b}")["items"]
        result, own = tops(daemon, session)
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}{FAMILY_A}/{session}/flamegraph?format=pprof") as answer:
            check(go_tool(answer.read(), "cpu") == go_tool(body, "cpu"), "what goes out is not what came in")
        check(result["labels"] == {"version": "v1", "team": "a b", "profd.received": "pprof"}, f"{result['labels']}")
        check(result["status"] == "completed" and result["profileType"] == "cpu" and result["durationSeconds"] == 2 and
              result["sampleRate"] == 100 and result["totalValue"] == 10 * MS * result["sampleCount"], f"{result}")
        hot, cold = (own[f"main.burn{name}"]["cumulativeValue"] for name in ("Hot", "Cold"))
        check(2 < hot / cold < 4.5, f"burnHot : burnCold is {hot} : {cold}")
        check(own["main.burn"]["file"].endswith("/main.go") and own["main.burn"]["package"] == "main", f"{own['main.burn']}")
        heap, = ingest(daemon, pprof(port, "heap"))["items"]
        result, own = tops(daemon, heap)
        check(result["profileType"] == "memory" and own["main.keepBlocks"]["selfValue"] >= 64 << 20, f"{own}")
        goroutines, = ingest(daemon, pprof(port, "goroutine"))["items"]
        check(tops(daemon, goroutines)[0]["profileType"] == "goroutine", "goroutine")
        now = int(time.time())
        locks = pprof(port, "mutex")
        refused = ingest(daemon, locks, status=422)
        check(refused["error_code"] == "ProfileTypeMismatch" and "type=mutex" in refused["message"], f"{refused}")
        mutex, = ingest(daemon, locks, type="mutex", **{"from": now - 5}, until=now)["items"]
        result, own = tops(daemon, mutex)
        check("sync.(*Mutex).Unlock" in own and "unlocker" in " ".join(result["quality"]["notes"]), f"{result}")
        totals = ingest(daemon, pprof(port, "allocs"), **{"from": now - 5}, until=now * 1000)["items"]
        check(len(totals) == 2, "allocs has memory, too")
        check(ingest(daemon, body, "shop{version=v1,team=a b}")["items"] == [session], "the same profile became two sessions")
        check(len(sessions(daemon, "shop", "cpu")) == 1, "the same profile became two sessions")
        before = sessions(daemon, "shop")
        daemon.stop()
        daemon.start()
        check(ingest(daemon, body, "shop{version=v1,team=a b}")["items"] == [session], "after a restart it became two")
        check(sessions(daemon, "shop") == before, "a restart changed what was received")


def compared_and_kept():
    """Two releases that send their profiles are compared as any sessions are; a baseline keeps one of them."""
    with sender() as port, server() as daemon:
        first, second = (ingest(daemon, pprof(port, "profile?seconds=3"))["items"][0] for _ in range(2))
        comparison = daemon.get(f"{FAMILY_A}/compare?baseProfileId={first}&comparisonProfileId={second}").json()
        check(comparison["verdict"] == "unchanged", f"{str(comparison)[:500]}")
        answer = daemon.request("POST", "/api/v1/profiling/baselines",
                                {"sessionId": first, "label": "v1", "profileType": "cpu"})
        check(answer.status in (200, 201), f"{answer}")
        baseline = answer.json()["baselineId"]
        kept = daemon.get(f"{FAMILY_A}/{first}/flamegraph?format=folded").body
        check(daemon.request("DELETE", f"{FAMILY_A}/{first}").status == 204, "delete")
        check(daemon.get(f"{FAMILY_A}/{baseline}/flamegraph?format=folded").body == kept, "the baseline is another profile")
        window = daemon.get(f"{FAMILY_A}/history?service=shop&profileType=cpu").json()
        check([i["id"] for i in window["items"]] == [second], f"{window}")


def pyroscope_agent():
    """Pyroscope's own agent sends every type it has."""
    with server() as daemon:
        with sender(f"http://127.0.0.1:{daemon.port}"):
            kinds = ("cpu", "memory", "alloc", "goroutine", "mutex", "block")
            wait_until(lambda: {s["profileType"] for s in sessions(daemon, "sender")} == set(kinds), 60, "a profile of each type")
        for session in sessions(daemon, "sender"):
            check(session["labels"]["version"] == "v7" and session["totalValue"] > 0, f"{session}")
        result, own = tops(daemon, sessions(daemon, "sender", "cpu")[0]["id"])
        check(own["main.burnHot"]["cumulativePct"] > 50, f"{own['main.burnHot']}")


class Request:
    """An OTLP request under construction, as an SDK builds one."""

    def __init__(self):
        self.message = service_pb2.ExportProfilesServiceRequest()
        tables = self.tables = self.message.dictionary
        for table in ("mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"):
            getattr(tables, table).add()
        self.strings = {}
        self.text("")

    def text(self, value):
        if value not in self.strings:
            self.strings[value] = len(self.tables.string_table)
            self.tables.string_table.append(value)
        return self.strings[value]

    def attribute(self, key, value):
        entry = self.tables.attribute_table.add(key_strindex=self.text(key))
        if isinstance(value, int):
            entry.value.int_value = value
        else:
            entry.value.string_value = value
        return len(self.tables.attribute_table) - 1

    def stack(self, *functions):
        """Innermost first."""
        indices = []
        for name in functions:
            self.tables.function_table.add(name_strindex=self.text(name), filename_strindex=self.text("app.py"), start_line=3)
            location = self.tables.location_table.add(address=0)
            location.lines.add(function_index=len(self.tables.function_table) - 1, line=7)
            location.attribute_indices.append(self.attribute("profile.frame.type", "cpython"))
            indices.append(len(self.tables.location_table) - 1)
        self.tables.stack_table.add(location_indices=indices)
        return len(self.tables.stack_table) - 1

    def scope(self, **resource):
        entry = self.message.resource_profiles.add()
        for key, value in resource.items():
            pair = entry.resource.attributes.add(key=key.replace("__", "."))
            if isinstance(value, int):
                pair.value.int_value = value
            else:
                pair.value.string_value = value
        return entry.scope_profiles.add()

    def profile(self, scope, kind, unit, start_ns, duration_ns=10**9, period=10 * MS):
        profile = scope.profiles.add(time_unix_nano=start_ns, duration_nano=duration_ns, period=period)
        profile.sample_type.type_strindex, profile.sample_type.unit_strindex = self.text(kind), self.text(unit)
        profile.period_type.type_strindex, profile.period_type.unit_strindex = self.text("cpu"), self.text("nanoseconds")
        return profile

    def bytes(self):
        return self.message.SerializeToString()


def export(daemon, body, status=200, headers=None):
    answer = daemon.request("POST", OTLP, body, {**PROTOBUF, **(headers or {})})
    check(answer.status == status and answer.headers["Content-Type"] == "application/x-protobuf", f"{answer}")
    if status != 200:
        return status_pb2.Status.FromString(answer.body)
    return service_pb2.ExportProfilesServiceResponse.FromString(answer.body)


def a_request(start_ns=None):
    """(request, its CPU profile): 3 and 1 samples of 10 ms in two stacks, one with a thread and labels."""
    request = Request()
    scope = request.scope(service__name="cart", service__version="v3", process__pid=4711, process__executable__path="/usr/bin/cart")
    profile = request.profile(scope, "samples", "count", start_ns or time.time_ns() - 10**10)
    profile.samples.add(stack_index=request.stack("inner", "outer"), values=[3], attribute_indices=[
        request.attribute("thread.name", "worker"), request.attribute("thread.id", 4712), request.attribute("endpoint", "/buy")])
    profile.samples.add(stack_index=request.stack("other", "outer"), timestamps_unix_nano=[profile.time_unix_nano + 5])
    return request, profile


def otlp_profiles():
    """OTLP by the published schema: one session a scope and type; values, labels, threads and links arrive; what is not ours is
    counted in partial_success."""
    with server() as daemon:
        request, profile = a_request()
        request.tables.link_table.add(trace_id=bytes(range(16)), span_id=bytes(range(1, 9)))
        profile.samples[0].link_index = 1
        answer = export(daemon, gzip.compress(request.bytes()), headers={"Content-Encoding": "gzip"})
        check(not answer.HasField("partial_success"), f"{answer}")
        session, = sessions(daemon, "cart")
        result, own = tops(daemon, session["id"])
        check(result["totalValue"] == 40 * MS and result["sampleCount"] == 4 and result["sampleRate"] == 100, f"{result}")
        check(result["labels"] == {"service.version": "v3", "profd.received": "otlp"}, f"{result['labels']}")
        check(result["processes"] == [{**result["processes"][0], "pid": 4711, "exe": "/usr/bin/cart", "value": 40 * MS}], f"{result}")
        check((own["inner"]["selfValue"], own["outer"]["cumulativeValue"], own["inner"]["line"]) == (30 * MS, 40 * MS, 3),
              f"{own}")
        check(result["breakdown"]["thread"]["worker"] == 30 * MS, f"{result['breakdown']}")
        stacks = daemon.folded(session["id"], "&where=endpoint:/buy")
        check(stacks == [(["outer", "inner"], 30 * MS)], f"{stacks}")
        stacks = daemon.folded(session["id"], "&where=span_id:0102030405060708")
        check(stacks == [(["outer", "inner"], 30 * MS)], f"{stacks}")
        for span, expected in (("0102030405060708", 30 * MS), ("0102030405060709", 0)):
            answer = daemon.request("POST", "/querier.v1.QuerierService/SelectMergeSpanProfile", {
                "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "labelSelector": '{service_name="cart"}',
                "spanSelector": [span]}).json()
            check(int(answer.get("flamegraph", {}).get("total", 0)) == expected, f"span {span}: {answer}")
        scope = request.scope(service__name="cart")
        request.profile(scope, "cache_misses", "count", time.time_ns() - 10**9).samples.add(stack_index=1, values=[1])
        nameless = request.scope(host__name="h")
        request.profile(nameless, "cpu", "nanoseconds", time.time_ns() - 10**9).samples.add(stack_index=1, values=[1])
        partial = export(daemon, request.bytes()).partial_success
        check(partial.rejected_profiles == 2 and "cache_misses" in partial.error_message, f"{partial}")
        check({s["totalValue"] for s in sessions(daemon, "cart")} == {40 * MS}, "a profile of no type became a session")
        check(export(daemon, b"").ByteSize() == 0, "an empty request")


def as_json(message, of_number=str):
    """As OTLP says it in JSON: protobuf's own mapping, but ids are hexadecimal. 64-bit numbers may be texts or numbers."""
    tree = json_format.MessageToDict(message)
    for link in tree["dictionary"].get("linkTable", []):
        link.update({name: base64.b64decode(link[name]).hex() for name in link})

    def numbers(value):
        if isinstance(value, dict):
            return {name: of_number(v) if name in ("timeUnixNano", "durationNano", "period", "intValue") else numbers(v)
                    for name, v in value.items()}
        return [numbers(v) for v in value] if isinstance(value, list) else value

    return json.dumps(numbers(tree))


def export_json(daemon, body, status=200, headers=None):
    answer = daemon.request("POST", OTLP, body, {"Content-Type": "application/json; charset=utf-8", **(headers or {})})
    check(answer.status == status and answer.headers["Content-Type"] == "application/json", f"{answer}")
    kind = status_pb2.Status if status != 200 else service_pb2.ExportProfilesServiceResponse
    return json_format.Parse(answer.body, kind())


def otlp_json():
    """The same request in JSON makes the same session: numbers as texts or as numbers, gzipped or not, with names that nobody
    knows. The answers are JSON, too."""
    with server() as daemon:
        begin = time.time_ns() - 10**10
        results = {}
        for name, of_number in (("bytes", None), ("texts", str), ("numbers", int)):
            request, profile = a_request(begin)
            request.tables.link_table.add(trace_id=bytes(range(16)), span_id=bytes(range(1, 9)))
            profile.samples[0].link_index = 1
            request.message.resource_profiles[0].resource.attributes[0].value.string_value = f"cart-{name}"
            request.message.resource_profiles[0].schema_url = "https://example.com/schema"
            if not of_number:
                export(daemon, request.bytes())
            elif of_number is str:
                check(export_json(daemon, as_json(request.message)).ByteSize() == 0, "a warning")
            else:
                text = as_json(request.message, of_number).replace('{"resourceProfiles"', '{"later": [{}, [1e3]], "resourceProfiles"')
                export_json(daemon, gzip.compress(text.encode()), headers={"Content-Encoding": "gzip"})
            session, = sessions(daemon, f"cart-{name}")
            result, own = tops(daemon, session["id"])
            results[name] = (result["totalValue"], result["sampleCount"], result["sampleRate"], result["labels"], result["breakdown"],
                             [(p["pid"], p["exe"], p["value"]) for p in result["processes"]], result["durationSeconds"],
                             sorted(map(str, own.values())), daemon.folded(session["id"], "&where=span_id:0102030405060708"))
        check(results["bytes"][0] == 40 * MS and results["bytes"][-1], f"{results['bytes']}")
        for name in ("texts", "numbers"):
            check(results[name] == results["bytes"], f"{name}: {results[name]} is not {results['bytes']}")
        request, _ = a_request()
        request.profile(request.scope(service__name="cart"), "cache_misses", "count", begin).samples.add(stack_index=1, values=[1])
        partial = export_json(daemon, as_json(request.message)).partial_success
        check(partial.rejected_profiles == 1 and "cache_misses" in partial.error_message, f"{partial}")
        kept = len(sessions(daemon, "cart"))
        for body, word in ((b"", "JSON"), (b'{"resourceProfiles": [{}]}', "dictionary"), (b'{"dictionary": {}', "ends too early"), (b"\x0a\x00", "UTF-8"),
                           (as_json(request.message).replace('"values": ["3"]', '"values": [-1]'), "values"),
                           (as_json(request.message).replace('"stackIndex": 1', '"stackIndex": 99'), "stack_index"),
                           (as_json(request.message).replace('"period": "', '"period": "x'), "period")):
            wrong = export_json(daemon, body, status=400)
            check(wrong.code == 3 and word in wrong.message, f"{body}: {wrong}")
        check(export_json(daemon, b"{}").ByteSize() == 0, "an empty request")
        check(len(sessions(daemon, "cart")) == kept, "something was kept of what was refused")


def two_values_of_one_profile():
    """A message for each value, as profd's own exporter writes them, makes one session."""
    with server() as daemon:
        request = Request()
        scope = request.scope(service__name="pair")
        begin = time.time_ns() - 10**10
        stack = request.stack("f")
        request.profile(scope, "cpu", "nanoseconds", begin).samples.add(stack_index=stack, values=[70 * MS])
        request.profile(scope, "samples", "count", begin).samples.add(stack_index=stack, values=[5])
        export(daemon, request.bytes())
        session, = sessions(daemon, "pair")
        check((session["totalValue"], session["sampleCount"]) == (70 * MS, 5), f"{session}")


def from_profd_to_profd():
    """An agent exports by OTLP and by Pyroscope's API; another one receives both, and has the sender's numbers."""
    with server() as receiver, tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "profd.conf")
        with open(config, "w") as file:
            for kind in ("otlp", "pyroscope"):
                file.write(f"[export {kind}]\nkind = {kind}\nurl = http://127.0.0.1:{receiver.port}\n")
        with server("--config", config) as source, sender() as port:
            session, = ingest(source, pprof(port, "profile?seconds=1"), "relayed")["items"]
            _, own = tops(source, session)
            found = wait_until(lambda: len(sessions(receiver, "relayed")) == 2 and sessions(receiver, "relayed"), 60, "both copies")
            check({s["labels"]["profd.received"] for s in found} == {"otlp", "pprof"}, f"{found}")
            for copy in found:
                _, theirs = tops(receiver, copy["id"])
                check({n: (t["selfValue"], t["cumulativeValue"], t["sampleCount"], t["file"], t["line"]) for n, t in own.items()} ==
                      {n: (t["selfValue"], t["cumulativeValue"], t["sampleCount"], t["file"], t["line"]) for n, t in theirs.items()},
                      f"{own} became {theirs}")


def refused():
    """Whatever is wrong is a 4xx that names the field, and leaves nothing behind."""
    with sender() as port, server() as daemon:
        body = pprof(port, "profile?seconds=1")
        plain = gzip.decompress(body)
        now = int(time.time())
        for wrong, options, status, word in (
                (b"", {}, 400, "string_table"), (b"\x0a\xff", {}, 400, "profile"), (body[:100], {}, 400, "gzip"),
                (plain[:len(plain) // 2], {}, 400, ""), (gzip.compress(bytes(64 << 20)), {}, 413, "bytes"),
                (body, {"name": "{a=b}"}, 400, "name"), (body, {"name": "a{b}"}, 400, "name"), (body, {"name": "pid:12"}, 400, "pid:12"),
                (body, {"name": "host"}, 400, "host"), (body, {"name": "*"}, 400, "service"), (body, {"until": "soon"}, 400, "until"),
                (body, {"from": now + 86400, "until": now + 86401}, 400, "future"), (body, {"from": 12, "until": 13}, 400, "days"),
                (body, {"from": now - 10, "until": now - 20}, 400, "until"), (body, {"format": "jfr"}, 400, "format"),
                (body, {"from": now - 90000, "until": now}, 400, "24 h")):
            options = dict(options)
            answer = ingest(daemon, wrong, options.pop("name", "shop"), status, **options)
            check(word in answer["message"], f"{options}: {answer}")
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        for wrong, word in ((b"--b\r\n", "form"), (b"--b--", "profile"),
                            (b'--b\r\nContent-Disposition: form-data; name="prev_profile"\r\n\r\nx\r\n--b--', "prev_profile")):
            check(word in ingest(daemon, wrong, status=400, headers=form)["message"], f"{wrong}")
        good, _ = a_request()
        for change, word in (
                (lambda r: setattr(r.message.resource_profiles[0].scope_profiles[0].profiles[0].samples[0], "stack_index", 99), "stack_index"),
                (lambda r: r.tables.stack_table.add(location_indices=[99]), "location_indices"),
                (lambda r: r.tables.location_table.add(mapping_index=99), "mapping_index"),
                (lambda r: r.tables.function_table.add(name_strindex=9999), "name_strindex"),
                (lambda r: r.message.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].values.append(-1), "values"),
                (lambda r: setattr(r.message.resource_profiles[0].resource.attributes[0], "key", "x"), "service.name"),
                (lambda r: r.message.ClearField("dictionary"), "dictionary")):
            request, _ = a_request()
            change(request)
            status = export(daemon, request.bytes(), status=400)
            check(status.code == 3 and word in status.message, f"{word}: {status}")
        check(export(daemon, b"\x0a\x7f", status=400).code == 3, "a cut message")
        answer = daemon.request("POST", OTLP, b"{}", {"Content-Type": "text/plain"})
        check(answer.status == 415, f"{answer}")
        for path in ("/ingest?name=a", OTLP, "/push.v1.PusherService/Push"):
            check(daemon.request("GET", path).status == 405, path)
        check(not sessions(daemon, "shop") and not sessions(daemon, "cart"), "something was kept of what was refused")
        export(daemon, good.bytes())
        check(len(sessions(daemon, "cart")) == 1, "the right one was not taken")


def the_disk_budget():
    """Programs that send all the time cost their own oldest profiles, not the sessions that people asked for."""
    with tempfile.TemporaryDirectory() as folder, sender() as port:
        config = os.path.join(folder, "profd.conf")
        with open(config, "w") as file:
            file.write("[store]\ndisk_budget = 64M\n[limits]\nreceived_per_second = 1000\n")
        with Daemon("--config", config) as daemon:
            asked = daemon.profile("host", 1)["id"]
            first, = ingest(daemon, pprof(port, "profile?seconds=1"), "flood")["items"]
            request = Request()
            profile = request.profile(request.scope(service__name="flood"), "cpu", "nanoseconds", 1)
            for _ in range(4500):  # some 400 KB that cannot be compressed
                profile.samples.add(stack_index=request.stack(os.urandom(64).hex()), values=[10 * MS])
            for _ in range(250):
                profile.time_unix_nano = time.time_ns()
                answer = daemon.request("POST", OTLP, request.bytes(), PROTOBUF)
                check(answer.status in (200, 503), f"{answer}")
            wait_until(lambda: daemon.request("GET", f"{FAMILY_A}/{first}").status == 404, 60, "the oldest received profile to go")
            check(daemon.get(f"{FAMILY_A}/{asked}").json()["status"] == "completed", "the session that was asked for has gone")


def keys_and_limits():
    """Role read may not send; a tenant's profiles are its own; more than the rate allows is 429."""
    with tempfile.TemporaryDirectory() as folder:
        config, socket = os.path.join(folder, "profd.conf"), os.path.join(folder, "s")
        with open(config, "w") as file:
            file.write("[limits]\nreceived_per_second = 1\n")
        with server("--config", config, "--socket", socket) as daemon:
            keys = {}
            for name, role, tenant in (("read", "read", "one"), ("one", "profile", "one"), ("two", "profile", "two")):
                text = subprocess.run([os.path.join(BUILD, "profctl"), "--socket", socket, "key", "create", "--name", name,
                                       "--role", role, "--tenant", tenant], capture_output=True, text=True, check=True).stdout
                keys[name] = {"Authorization": "Bearer " + text.split()[-1], "X-Scope-OrgID": tenant}
            request, _ = a_request()
            check(export(daemon, request.bytes(), 401).code == 16, "without a key")
            check(export(daemon, request.bytes(), 403, keys["read"]).code == 7, "a key that reads")
            export(daemon, request.bytes(), headers=keys["one"])
            mine = {**keys["one"], "X-Tenant-ID": "one"}
            theirs = {**keys["two"], "X-Tenant-ID": "two"}
            session, = sessions(daemon, "cart", headers=mine)
            check(not sessions(daemon, "cart", headers=theirs), "another tenant sees it")
            check(daemon.request("GET", f"{FAMILY_A}/{session['id']}", headers=theirs).status == 404, "another tenant reads it")
            export(daemon, request.bytes(), headers=keys["two"])
            check(len(sessions(daemon, "cart", headers=theirs)) == 1, "the other tenant's own")
            last = None
            for i in range(12):
                request, _ = a_request(time.time_ns() - (i + 20) * 10**9)
                last = daemon.request("POST", OTLP, request.bytes(), {**PROTOBUF, **keys["one"]})
            check(last.status == 429 and int(last.headers["Retry-After"]) >= 1, f"{last}")
            metrics = daemon.get("/metrics", headers=keys["one"]).body.decode()
            check(re.search(r'profd_limit\{name="received_per_second"\} 1\n', metrics), "the limit is not in /metrics")


if __name__ == "__main__":
    main(real_go_profiles, compared_and_kept, pyroscope_agent, otlp_profiles, otlp_json, two_values_of_one_profile, from_profd_to_profd,
         refused, the_disk_budget, keys_and_limits)
