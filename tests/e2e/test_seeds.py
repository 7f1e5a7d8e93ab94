# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Every field of the published API pages, in answers made from real profiles: names, types, required ones,
and their example requests word for word with only host, token and identifiers changed."""

import datetime
import json
import os
import shutil
import subprocess
import tempfile

from harness import BUILD, FAMILY_A, ROOT, Daemon, Skip, build_truth, check, main, own_name, running, wait_until

FAMILY_B = "/api/v1/profiling"


# ---- the types of the pages -----------------------------------------------------------------------------

def text(value):
    return isinstance(value, str)


def integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def number(value):
    return integer(value) or isinstance(value, float)


def boolean(value):
    return isinstance(value, bool)


def instant(value):
    return text(value) and value.endswith("Z") and bool(datetime.datetime.fromisoformat(value[:-1] + "+00:00"))


def list_of(element):
    """A list with something in it: an empty one would prove nothing about its elements."""
    return lambda value: isinstance(value, list) and value and all(holds(element, v) for v in value)


def maybe_empty(element):
    return lambda value: isinstance(value, list) and all(holds(element, v) for v in value)


def one_of(*words):
    return lambda value: value in words


def holds(kind, value):
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(name in value and holds(k, value[name]) for name, k in kind.items())
    return kind(value)


def check_fields(what, table, answer):
    for name, kind in table.items():
        check(name in answer, f"{what}: no field {name}: {sorted(answer)}")
        check(holds(kind, answer[name]), f"{what}: {name} is {json.dumps(answer[name])[:300]}")


PROFILE_TYPES = ("cpu", "memory", "alloc", "block", "mutex", "goroutine")
TOP_FUNCTION = {"funcName": text, "package": text, "selfPct": number, "cumulativePct": number}
PROFILE_REQUEST = {"service": "ai-service", "profileType": "cpu", "durationSeconds": 60, "sampleRate": 100}
PROFILE_RESULT = {
    "id": text, "service": text, "profileType": one_of(*PROFILE_TYPES), "status": one_of("completed"),
    "startedAt": instant, "completedAt": instant, "durationSeconds": integer, "sampleCount": integer,
    "topFunctions": list_of(TOP_FUNCTION), "flameGraphUrl": text,
}
PROFILE_COMPARISON = {
    "baseProfile": text, "comparisonProfile": text, "improvements": maybe_empty({"funcName": text}),
    "regressions": maybe_empty({"funcName": text}), "unchanged": integer, "overallDelta": number,
}
CONTINUOUS_PROFILE = {
    "service": text, "profileTypes": list_of(one_of(*PROFILE_TYPES)), "sampleRate": integer,
    "retentionDays": integer, "enabled": boolean,
}
BASELINE_FUNCTION = {**TOP_FUNCTION, "sampleCount": text}
BASELINE_REQUEST = {  # field: an example, all required but the description
    "label": "v1.2.0-release", "sessionId": "sess-abc123", "profileType": "cpu",
    "description": "Post-deploy baseline for v1.2.0",
    "topFunctions": [{"funcName": "runtime.gcBgMarkWorker", "package": "runtime", "selfPct": 12.5,
                      "cumulativePct": 18.3, "sampleCount": "4200"}],
}
BASELINE = {
    "baselineId": text, "baselineLabel": text, "profileType": text, "sessionId": text, "description": text,
    "topFunctions": list_of(BASELINE_FUNCTION), "createdAt": instant, "isLatest": boolean, "tags": maybe_empty(text),
}
STACK = {"count": integer, "state": text, "waitReason": text, "frames": list_of(text), "createdBy": text}
DIFF_REQUEST = ("baseId", "compareId", "type")
DIFF = {"baseSessionId": text, "compareSessionId": text, "newStacks": list_of(STACK), "growthCount": integer}
ANALYSIS = {
    "sessionId": text, "goroutineCount": integer, "topStacks": list_of(STACK), "blockedGoroutines": list_of(STACK),
    "goroutineGrowthRate": number, "analyzedAt": instant,
}
ERROR = {"message": text, "error_code": text, "details": lambda value: isinstance(value, dict)}


# ---- the examples ---------------------------------------------------------------------------------------

def curl(daemon, command):
    """Runs a page's example in a shell; status and body. {host} is all that the pages leave open."""
    host = f"http://127.0.0.1:{daemon.port}"
    command = command.replace("http://localhost:8088", host).replace("{host}", host)
    command = command.replace("https://api.example.com", host)
    done = subprocess.run(["sh", "-c", command.replace("curl ", "curl -s -w '\\n%{http_code}' ", 1)],
                          capture_output=True, text=True, env=dict(os.environ, TOKEN="no-verifier-yet"), timeout=120)
    check(done.returncode == 0, f"curl: {done.stderr}")
    body, status = done.stdout.rsplit("\n", 1)
    return int(status), body


def take(daemon, service, kind="cpu", seconds=2):
    answer = daemon.request("POST", FAMILY_A + "/start", {
        "service": service, "profileType": kind, "durationSeconds": seconds, "waitSeconds": 60})
    check(answer.status == 202, f"start of {kind}: {answer}")
    return daemon.finish_profile(answer.json()["id"])


def observability_profiling():
    with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2"):
        service = os.path.basename(program)
        take(daemon, service, seconds=1)
        status, body = curl(daemon, r'''curl -X POST http://localhost:8088/api/v1/observability/profiling/start \
-H "Content-Type: application/json" \
-H "Authorization: Bearer ${TOKEN}" \
-H "X-Tenant-ID: 550e8400" \
-d '{
"service": "ai-service",
"profileType": "cpu",
"durationSeconds": 60,
"sampleRate": 100
}\''''.replace("}\\'", "}'").replace("ai-service", service))
        check(status == 202, f"the page's example: {status} {body}")
        begun, tenant = json.loads(body), {"X-Tenant-ID": "550e8400"}
        check(begun["service"] == service and begun["sampleRate"] == PROFILE_REQUEST["sampleRate"], body)
        check(begun["requestedDurationSeconds"] == PROFILE_REQUEST["durationSeconds"], body)
        check(set(PROFILE_RESULT) <= set(begun) and begun["status"] == "running", f"while running: {sorted(begun)}")
        path = f"{FAMILY_A}/{begun['id']}"
        wait_until(lambda: daemon.get(path, headers=tenant).json()["sampleCount"] > 50, 60, "samples")
        check(daemon.request("DELETE", path, headers=tenant).status == 202, "stop")
        wait_until(lambda: daemon.get(path, headers=tenant).json()["status"] != "running", 60, "the end")
        check_fields("ProfileResult", PROFILE_RESULT, daemon.get(path, headers=tenant).json())

        base, comparison = (take(daemon, service)["id"] for _ in range(2))
        answer = daemon.get(f"{FAMILY_A}/compare?baseProfileId={base}&comparisonProfileId={comparison}").json()
        check_fields("ProfileComparison", PROFILE_COMPARISON, answer)
        check((answer["baseProfile"], answer["comparisonProfile"]) == (base, comparison), "sides")
        history = daemon.get(f"{FAMILY_A}/history?service={service}").json()
        check(history["service"] == service, f"history of {history['service']}")
        for item in history["items"]:
            check_fields("history", PROFILE_RESULT, item)


def continuous_profile():
    with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2"):
        service = os.path.basename(program)
        take(daemon, service, seconds=1)
        sent = {"service": service, "profileTypes": ["cpu"], "sampleRate": 29, "retentionDays": 14, "enabled": True}
        answer = daemon.request("POST", FAMILY_A + "/continuous", sent)
        check(answer.status == 200, f"continuous: {answer}")
        check_fields("ContinuousProfile", CONTINUOUS_PROFILE, answer.json())
        check({name: answer.json()[name] for name in sent} == sent, f"not what was sent: {answer}")
        span = wait_until(lambda: next((i for i in daemon.get(f"{FAMILY_A}/history?service={service}").json()["items"]
                                        if i["continuous"]), None), 60, "continuous data")
        result = daemon.get(f"{FAMILY_A}/{span['id']}").json()
        check([p["value"] for p in result["processes"]] == [result["totalValue"]], f"{result['processes']}")
        defaults = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*"}).json()
        check_fields("defaults", CONTINUOUS_PROFILE, defaults)
        check((defaults["profileTypes"], defaults["sampleRate"], defaults["retentionDays"], defaults["enabled"])
              == (["cpu"], 19, 7, True), f"defaults: {defaults}")
        listed = daemon.get(FAMILY_A + "/continuous").json()
        check({item["service"] for item in listed["items"]} == {service, defaults["service"]}, f"{listed}")
        check(daemon.request("DELETE", f"{FAMILY_A}/continuous/{service}").status == 204, "delete")
        check(daemon.request("GET", f"{FAMILY_A}/continuous/{service}").status == 404, "after delete")


def profile_types():
    """Each type of the page on a Go program whose block and mutex profiles are on."""
    with go_program() as service, Daemon() as daemon:
        for kind in PROFILE_TYPES:
            answer = daemon.request("POST", FAMILY_A + "/start", {
                "service": service, "profileType": kind, "durationSeconds": 1, "waitSeconds": 60})
            check(answer.status == 202, f"{kind}: {answer}")
            result = daemon.finish_profile(answer.json()["id"])
            check(result["profileType"] == kind, f"{kind}: {result}")
            check_fields(kind, dict(PROFILE_RESULT, topFunctions=maybe_empty(TOP_FUNCTION)), result)


def create_baseline():
    with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2"):
        session = take(daemon, os.path.basename(program))["id"]
        status, body = curl(daemon, (
            "curl -X POST '{host}/api/v1/profiling/baselines' -H 'Authorization: Bearer {token}' "
            "-H 'Content-Type: application/json' -d '{\"label\":\"v1.2.0-release\",\"sessionId\":\"sess-abc123\","
            "\"profileType\":\"cpu\",\"description\":\"Post-deploy baseline for v1.2.0\","
            "\"topFunctions\":\"(nested array)\"}'").replace("sess-abc123", session))
        check(status == 200, f"the page's example: {status} {body}")
        first = json.loads(body)
        check_fields("baseline", BASELINE, first)
        check(first["baselineLabel"] == "v1.2.0-release" and first["sessionId"] == session, body)
        check(first["description"] == BASELINE_REQUEST["description"] and first["isLatest"] is True, body)
        check(first["warnings"], "topFunctions was not a list, and nothing is said about it")
        answer = daemon.request("POST", FAMILY_B + "/baselines", {
            **BASELINE_REQUEST, "sessionId": session, "tags": ["item1", "item2"]})
        check(answer.status == 200, f"{answer}")
        second = answer.json()
        check_fields("baseline", BASELINE, second)
        check(second["tags"] == ["item1", "item2"], f"tags {second['tags']}")
        check(second["topFunctions"] == BASELINE_REQUEST["topFunctions"], f"{second['topFunctions']}")
        read = daemon.get(f"{FAMILY_B}/baselines/{first['baselineId']}").json()
        check_fields("baseline read again", BASELINE, read)
        check(read["isLatest"] is False, "two latest baselines")
        for name in ("label", "sessionId", "profileType"):
            body = {k: v for k, v in BASELINE_REQUEST.items() if k != name}
            answer = daemon.request("POST", FAMILY_B + "/baselines", body)
            check(answer.status == 400 and answer.json()["details"]["field"] == name, f"without {name}: {answer}")


def go_program(*arguments):
    return _go_program(shutil.which("go"), *arguments)


class _go_program:
    """The workload with goroutines in every situation, under a name of its own; its service."""

    def __init__(self, go, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="profd-e2e-")
        self.path = os.path.join(self.folder.name, f"situations-{os.getpid()}")
        self.arguments = arguments
        subprocess.run([go, "build", "-o", self.path, "./situations"], check=True,
                       cwd=os.path.join(ROOT, "tests/workloads/go"),
                       env=dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=mod -buildvcs=false",
                                GOCACHE=os.path.join(BUILD, "go-cache")))

    def start(self, *arguments):
        process = subprocess.Popen([self.path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        return process

    def __enter__(self):
        self.process = self.start(*self.arguments)
        return os.path.basename(self.path)

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()


def goroutine_analysis_and_diff():
    workload = go_program("-many", "512")
    with workload as service, Daemon() as daemon:
        base = take(daemon, service, "goroutine", seconds=1)
        check(base["status"] == "completed", f"{base}")
        path = f"{{host}}{FAMILY_B}/sessions/{base['id']}/analysis"
        status, body = curl(daemon, f"curl -X GET '{path}' -H 'Authorization: Bearer {{token}}'")
        check(status == 200, f"the page's example: {status} {body}")
        analysis = json.loads(body)
        check_fields("analysis", ANALYSIS, analysis)
        check(analysis["sessionId"] == base["id"] and analysis["goroutineCount"] >= 512, body[:300])
        check(analysis["goroutineGrowthRate"] == 1.0, "grown compared with nothing")
        top = analysis["topStacks"][0]
        check(top["count"] >= 512 and top["state"] == "waiting" and top["waitReason"], f"top stack {top}")
        check(all(s["waitReason"] == "" for s in analysis["topStacks"] if s["state"] != "waiting"), "waitReason")
        workload.process.stdin.write("spin\n")
        workload.process.stdin.flush()
        while workload.process.stdout.readline().strip() != "<<<end>>>":
            pass
        grown = take(daemon, service, "goroutine", seconds=1)
        status, body = curl(daemon, (
            "curl -X POST '{host}/api/v1/profiling/diff' -H 'Authorization: Bearer {token}' "
            "-H 'Content-Type: application/json' -d '{\"baseId\":\"sess-base001\",\"compareId\":\"sess-cmp002\","
            "\"type\":\"goroutine\"}'").replace("sess-base001", base["id"]).replace("sess-cmp002", grown["id"]))
        check(status == 200, f"the page's example: {status} {body}")
        diff = json.loads(body)
        check_fields("diff", DIFF, diff)
        check((diff["baseSessionId"], diff["compareSessionId"]) == (base["id"], grown["id"]), "sides")
        check(diff["growthCount"] >= 1, f"growth {diff['growthCount']}")
        for name in DIFF_REQUEST:
            body = {"baseId": base["id"], "compareId": grown["id"], "type": "goroutine"}
            del body[name]
            answer = daemon.request("POST", FAMILY_B + "/diff", body)
            check(answer.status == 400 and answer.json()["details"]["field"] == name, f"without {name}: {answer}")


def samply_profile():
    with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2"):
        name = os.path.basename(program)
        take(daemon, name, seconds=1)
        example = ("curl -X POST 'https://api.example.com/v0/pipelines/{pipeline_name}/samply_profile"
                   "?ordinal=<ordinal>&duration_secs=<duration_secs>' \\\n -H 'Authorization: Bearer YOUR_TOKEN'")
        command = example.replace("<ordinal>", "0").replace("<duration_secs>", "600")
        status, body = curl(daemon, command.replace("{pipeline_name}", name))
        check((status, body) == (202, ""), f"the page's example: {status} {body}")
        status, body = curl(daemon, command.replace("{pipeline_name}", name))
        check(status == 409 and set(json.loads(body)) == set(ERROR), f"while in progress: {status} {body}")
        check_fields("409", ERROR, json.loads(body))
        check(json.loads(body)["error_code"] == "SamplyProfilingInProgress", body)
        status, body = curl(daemon, command.replace("{pipeline_name}", "non-existent-pipeline"))
        check(status == 404 and json.loads(body) == {
            "message": "Unknown pipeline name 'non-existent-pipeline'", "error_code": "UnknownPipelineName",
            "details": {"pipeline_name": "non-existent-pipeline"}}, f"{status} {body}")
        path = f"/v0/pipelines/{name}/samply_profile"
        running_now = daemon.get(f"{FAMILY_A}/history?service={name}&status=running").json()["items"]
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{running_now[0]['id']}").json()["sampleCount"] > 20, 60, "samples")
        daemon.stop_profile(running_now[0]["id"])
        first = wait_until(lambda: (a := daemon.request("GET", path + "?latest=true&ordinal=0")).status != 204 and a,
                           60, "the profile")
        check(first.status == 200 and first.headers["Content-Type"] == "application/gzip", f"{first}")
        status, body = curl(daemon, command.replace("{pipeline_name}", name).replace("ordinal=0&", ""))
        check((status, body) == (202, ""), f"without ordinal: {status} {body}")


if __name__ == "__main__":
    main(observability_profiling, continuous_profile, profile_types, create_baseline, goroutine_analysis_and_diff,
         samply_profile)
