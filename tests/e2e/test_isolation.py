#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Two tenants, three roles, every route of /openapi.json. What belongs to red is invisible to blue: an id of red's
is answered like an id that nobody has, byte for byte, lists and counts hold nothing of red, and nothing blue does
changes what red has. Red itself sees all of it, so that the silence means something."""

import concurrent.futures
import http.client
import json
import os
import re
import shutil
import socket
import tempfile

from harness import FAMILY_A as A
from harness import Answer, Daemon, check, main, running, wait_until

B = "/api/v1/profiling"
ROLES = ("read", "profile", "admin")
# An id of the same form that belongs to nobody.
NOBODY = {
    "session": "sess-0000000000nobody0000000000", "other": "sess-0000000000nobody0000000001",
    "baseline": "bl-0000000000nobody0000000000", "report": "rpt-0000000000nobody0000000000",
    "key": "key-0000000000nobody0000000000", "service": "nobody-has-this-service",
}
PATH_PARAMETERS = {"profileId": "session", "sessionId": "session", "baselineId": "baseline", "reportId": "report",
                   "service": "service", "pipeline_name": "service", "id": "key", "file": None, "folder": None, "call": None}
# Queries that name things; a route that is not here is called without one.
QUERIES = {
    f"GET {A}/history": ["service={service}", "from=-1h", "status=completed",
                         "service={service}&profileType=cpu&aggregate=60s&merge=true"],
    f"GET {A}/compare": ["baseProfileId={session}&comparisonProfileId={other}",
                         "baseProfileId={baseline}&comparisonProfileId={session}",
                         "service={service}&profileType=cpu&baseFrom=-1h&baseTo=now&comparisonFrom=-1h&comparisonTo=now"],
    f"GET {A}/compare/flamegraph": ["baseProfileId={session}&comparisonProfileId={other}&format=json"],
    f"GET {A}/window/flamegraph": ["service={service}&profileType=cpu&start=-1h&end=now&format=folded"],
    f"GET {A}/{{profileId}}/flamegraph": ["format=folded", "format=html"],
    "GET /api/v1/observability/services": ["", "sparkline=cpu"],
    f"GET {B}/sessions": ["service={service}", ""],
    f"GET {A}/findings": ["service={service}", ""],
    f"GET {B}/findings": ["service={service}", ""],
    f"GET {B}/baselines": ["service={service}", "tag=redtag", ""],
    f"GET {B}/trend": ["profileType=cpu&funcName=main&service={service}", "profileType=cpu&funcName=main"],
    f"GET {B}/goroutine-flame/{{sessionId}}": ["format=folded"],
    "GET /v0/pipelines/{pipeline_name}/samply_profile": ["", "latest=true"],
    "GET /debug/pprof/profile": ["service={service}&seconds=1"],
    "GET /debug/pprof/heap": ["service={service}&seconds=1"],
    "GET /debug/pprof/allocs": ["service={service}&seconds=1"],
    "GET /debug/pprof/block": ["service={service}&seconds=1"],
    "GET /debug/pprof/mutex": ["service={service}&seconds=1"],
    "GET /debug/pprof/goroutine": ["service={service}&seconds=1"],
}
BODIES = {
    "POST /querier.v1.QuerierService/{call}": [{"labelNames": ["service_name"]}],
    "POST /mcp": [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_services", "arguments": {}}}],
    f"POST {A}/start": [{"service": "{service}", "profileType": "cpu", "durationSeconds": 1}],
    f"POST {A}/continuous": [{"service": "{service}"}],
    f"POST {B}/sessions": [{"target": "{service}", "profileType": "cpu", "durationSeconds": 1}],
    f"POST {B}/diff": [{"baseId": "{session}", "compareId": "{other}", "type": "cpu"},
                       {"baseId": "{baseline}", "compareId": "{other}", "type": "cpu"}],
    f"POST {B}/baselines": [{"label": "mine", "sessionId": "{session}", "profileType": "cpu"}],
    f"POST {B}/regression/check": [{"baselineId": "{baseline}", "compareId": "{session}"}],
    f"POST {B}/findings/check": [{"service": "{service}"}, {}],
    "POST /api/v1/keys": [{"name": "x", "role": "read", "tenant": "red"}, {"name": "x", "role": "admin", "tenant": "red"}],
    "POST /sign-in": [{"token": "{key}"}],
}
# Concerns everybody: refused to whoever belongs to one tenant.
OF_THE_HOST = {"POST /api/v1/links/rotate": None, "GET /api/v1/backup": None,
               "POST /api/v1/sampling": {"enabled": False}}


class Tenant:
    def __init__(self, daemon, name):
        self.daemon, self.name, self.keys, self.key_ids = daemon, name, {}, {}
        for role in ROLES:
            made = daemon.local("POST", "/api/v1/keys", {"name": f"{name}-{role}-key", "role": role, "tenant": name})
            check(made.status == 200, f"key: {made}")
            self.keys[role], self.key_ids[role] = made.json()["key"], made.json()["id"]

    def call(self, role, method, target, body=None):
        return self.daemon.request(method, target, body, {"Authorization": "Bearer " + self.keys[role]})

    def good(self, role, method, target, body=None, status=200):
        answer = self.call(role, method, target, body)
        check(answer.status == status, f"{self.name} {role} {method} {target}: {answer}")
        return answer.json() if answer.body else None


class Guarded(Daemon):
    """With a Unix socket, over which root is administrator."""

    def local(self, method, target, body=None):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(90)
        connection.sock.connect(os.path.join(self.data_dir, "sock"))
        connection.request(method, target, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        try:
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


def fill_red(red, service):
    """One of everything; {kind of id: id}"""
    has = {"service": service, "key": red.key_ids["read"]}
    take = {"profileType": "cpu", "target": service, "durationSeconds": 1}
    has["session"] = red.good("profile", "POST", B + "/sessions", take)["sessionId"]
    has["other"] = red.good("profile", "POST", B + "/sessions", take)["sessionId"]
    has["goroutine"] = red.good("profile", "POST", B + "/sessions",
                                {"profileType": "goroutine", "target": service, "durationSeconds": 0})["sessionId"]
    has["baseline"] = red.good("profile", "POST", B + "/baselines", {
        "label": "red-label", "sessionId": has["session"], "profileType": "cpu", "tags": ["redtag"],
        "description": "red-description"})["baselineId"]
    has["report"] = red.good("profile", "POST", B + "/regression/check",
                             {"baselineId": has["baseline"], "compareId": has["other"]})["reportId"]
    red.good("profile", "POST", A + "/continuous", {"service": service, "sampleRate": 47})
    red.good("profile", "POST", f"/v0/pipelines/{service}/samply_profile?duration_secs=1", status=202)
    wait_until(lambda: red.call("read", "GET", f"/v0/pipelines/{service}/samply_profile?latest=true").status == 200,
               60, "the Samply profile")
    return has


def requests_of(document):
    """(method, path pattern, query, body) of every operation, with {kind} where an id stands."""
    for pattern, operations in document["paths"].items():
        for method in (m for m in operations if m in ("get", "post", "delete", "put", "patch")):
            name = f"{method.upper()} {pattern}"
            path = pattern
            for parameter in re.findall(r"\{(\w+)\}", pattern):
                kind = PATH_PARAMETERS[parameter]
                path = path.replace("{" + parameter + "}", "{" + kind + "}" if kind else "Series" if parameter == "call" else "x")
            for query in QUERIES.get(name, [""]):
                for body in BODIES.get(name, [None]):
                    yield method.upper(), name, path + ("?" + query if query else ""), body


def filled(template, ids):
    return re.sub(r"\{(\w+)\}", lambda m: ids.get(m.group(1), m.group(0)), template)


def filled_body(body, ids):
    return None if body is None else {k: filled(v, ids) if isinstance(v, str) else v for k, v in body.items()}


def shape(answer, ids):
    """The answer without what differs from request to request, and with the ids asked for by their kinds."""
    text = answer.body.decode("latin-1")
    for kind, value in sorted(ids.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, "<" + kind + ">")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    text = re.sub(r'"requestId":"[^"]*"', "", text)
    text = re.sub(r'"(cpus|value|overheadPct)":[\d.]+', "", text)
    headers = {k: v for k, v in answer.headers.items()
               if k not in ("X-Request-ID", "Date", "ETag", "Content-Length", "Location")}
    return answer.status, headers, text


def secrets_of(has, red):
    """Strings that would give red away. The service's name is no secret where blue asked for that
    name."""
    return [*(v for k, v in has.items() if k != "service"), *red.key_ids.values(), "red-label", "red-description",
            "redtag", "red-read-key"]


# An unknown name is looked for on the host before it is refused: these wait, so they wait together.
SLOW = re.compile(rf"GET /debug/pprof/|POST ({B}/sessions|{A}/start)$|GET .*/heap_profile$")


def look_as_blue(document, blue, has, secrets):
    def look(row):
        method, name, template, body, role = row
        real = blue.call(role, method, filled(template, has), filled_body(body, has))
        none = blue.call(role, method, filled(template, NOBODY), filled_body(body, NOBODY))
        what = f"blue {role} {method} {template} {body or ''}"
        check(real.status < 500 or real.status == 503, f"{what}: {real}")
        if "{" in template or body:
            given, unknown = shape(real, has), shape(none, NOBODY)
            check(given == unknown, f"{what}: red's is {given}, nobody's {unknown}")
        if name == f"POST {A}/continuous":  # a setting for a name is blue's own, whoever has the service
            for ids in (has, NOBODY):
                blue.call("profile", "DELETE", f"{A}/continuous/{ids['service']}")
        asked = filled(template, has) + json.dumps(filled_body(body, has))
        text = real.body.decode("latin-1") + repr(real.headers)
        for secret in secrets:
            check(secret in asked or secret not in text, f"{what}: shows {secret}: {text[:400]}")
        if has["service"] not in asked:
            check(has["service"] not in text, f"{what}: names red's service: {text[:400]}")

    rows = [(*row, role) for row in requests_of(document) for role in ROLES if row[1] not in OF_THE_HOST]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(look, [row for row in rows if SLOW.match(row[1])]))
    for row in rows:
        if not SLOW.match(row[1]):
            look(row)
    return len(rows)


def look_as_red(document, red, has):
    """Every reading route works for every role of its owner."""
    for method, name, template, body in requests_of(document):
        if method != "GET" or "?" not in template and "{" not in template or name.startswith(("GET /debug", "GET /ui")):
            continue
        ids = dict(has, session=has["goroutine"]) if "analysis" in name or "goroutine-flame" in name else has
        if name.endswith(("/ledger", "/heap_profile")) or name.startswith("GET /api/v1/keys"):
            continue
        for role in ROLES:
            answer = red.call(role, method, filled(template, ids))
            check(answer.status == 200, f"red {role} {method} {template}: {answer}")


def held(tenant):
    """The sessions, baselines and settings that a tenant has made."""
    sessions = tenant.good("read", "GET", A + "/history?limit=100")["items"]
    baselines = tenant.good("read", "GET", B + "/baselines")["items"]
    settings = tenant.good("read", "GET", A + "/continuous")["items"]
    return {*(s["id"] for s in sessions if not s["continuous"]), *(b["baselineId"] for b in baselines),
            *((s["service"], s["sampleRate"], s["enabled"]) for s in settings)}


def test_every_route():
    with tempfile.TemporaryDirectory() as folder:
        program, other = f"{folder}/red-{os.getpid()}", f"{folder}/blue-{os.getpid()}"
        shutil.copy(shutil.which("sha1sum"), program)
        shutil.copy(shutil.which("sleep"), other)
        service = os.path.basename(program)
        config = os.path.join(folder, "profd.conf")
        with open(config, "w") as f:
            f.write(f"[server]\nsocket = {folder}/sock\n[tenant red]\nservices = {program}\n"
                    f"[tenant blue]\nservices = {other}\n")
        with Guarded("--config", config, data_dir=folder) as daemon, running(program, "/dev/zero", ready=False), \
                running(other, "600", ready=False):
            red, blue = Tenant(daemon, "red"), Tenant(daemon, "blue")
            for tenant, own in ((red, program), (blue, other)):
                wait_until(lambda t=tenant, o=own: [s["name"] for s in t.good(
                    "read", "GET", "/api/v1/observability/services")["items"]] == [os.path.basename(o)],
                    60, f"{tenant.name} to see its own service and no other")
            document = daemon.get("/openapi.json").json()
            has = fill_red(red, service)
            before = held(red)
            look_as_red(document, red, has)
            checked = look_as_blue(document, blue, has, secrets_of(has, red))
            check(checked > 200, f"only {checked} requests")
            for path in (A + "/history", B + "/sessions", B + "/baselines", A + "/continuous"):
                check(blue.good("read", "GET", path)["total"] == 0, f"blue has something at {path}")
            check(held(red) == before, f"red had {before}, has {held(red)}")
            look_as_red(document, red, has)
            keys = blue.good("admin", "GET", "/api/v1/keys")
            check({k["tenant"] for k in keys["items"]} == {"blue"}, f"blue's keys: {keys}")
            for name, body in OF_THE_HOST.items():
                check(blue.call("admin", *name.split(" "), body).status == 403, f"blue may {name}")
            made = blue.good("admin", "POST", "/api/v1/keys", {"name": "mine", "role": "read"})
            check(made["tenant"] == "blue", f"an unbound key: {made}")
            headers = {"Authorization": "Bearer " + blue.keys["read"], "X-Tenant-ID": "red"}
            answer = daemon.request("GET", A + "/history", headers=headers)
            check(answer.status == 403 and answer.json()["error_code"] == "TenantMismatch", f"{answer}")
            link = red.good("read", "GET", f"{A}/{has['session']}")["flameGraphUrl"]
            check(daemon.request("GET", link).status == 200, "red's link does not open")
            check(daemon.request("GET", link.replace("tenant=red", "tenant=blue")).status == 401, "link of red's as blue")
            check(blue.call("read", "GET", link).status == 404, "red's link with blue's key")
            metrics = blue.call("read", "GET", "/metrics").body.decode()
            check("sessions_running" not in metrics and "http_requests" not in metrics, "counts of all tenants")
            check("tenant" not in daemon.local("GET", "/metrics").body.decode(), "a label of tenants")


if __name__ == "__main__":
    main(test_every_route)
