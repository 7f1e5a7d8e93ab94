#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Answers of the daemon follow /openapi.json: status, content type and every JSON body against its
schema (JSON Schema 2020-12), for accepted and refused calls."""


from harness import Daemon, Skip, build_truth, check, main, running, wait_until
from harness import FAMILY_A as A

try:
    import jsonschema
except ImportError:
    jsonschema = None

B = "/api/v1/profiling"


class Checked:
    def __init__(self, daemon):
        self.daemon = daemon
        self.document = daemon.get("/openapi.json").json()
        self.calls = 0

    def resolve(self, item):
        while "$ref" in item:
            at = self.document
            for part in item["$ref"].split("/")[1:]:
                at = at[part]
            item = at
        return item

    def call(self, method, pattern, path, body=None, status=None):
        answer = self.daemon.request(method, path, body)
        name = f"{method} {path}: {answer.status}"
        check(status is None or answer.status == status, f"{name} {answer.body[:300]!r}")
        responses = self.document["paths"][pattern][method.lower()]["responses"]
        described = responses.get(str(answer.status), responses.get("default"))
        check(described is not None, f"{name} is not described")
        content = self.resolve(described).get("content", {})
        self.calls += 1
        if not answer.body:
            check(not content, f"{name} has no body, one is described")
            return None
        kind = answer.headers["Content-Type"].split(";")[0]
        check(kind in content, f"{name} is {kind}, described are {list(content)}")
        if not kind.endswith("json"):
            return None
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema",
                  "components": self.document["components"], **content[kind]["schema"]}
        errors = [f"{list(e.absolute_path)}: {e.message[:200]}"
                  for e in jsonschema.Draft202012Validator(schema).iter_errors(answer.json())]
        check(not errors, f"{name} does not match: {errors[:3]}")
        return answer.json()


def test_answers_match_the_document():
    if jsonschema is None:
        raise Skip("no python3-jsonschema here")
    # something is busy and has names and lines: of an idle host some formats have nothing to write
    with Daemon() as daemon, running(build_truth(), "600"):
        c = Checked(daemon)
        take = {"profileType": "cpu", "target": "*", "durationSeconds": 1}
        one = c.call("POST", B + "/sessions", B + "/sessions", take, 200)["sessionId"]
        wait_until(lambda: any("leaf_a" in s for s, _ in daemon.folded(one)), 60, "names")
        two = c.call("POST", B + "/sessions", B + "/sessions", take, 200)["sessionId"]
        sides = f"baseProfileId={one}&comparisonProfileId={two}"
        made = c.call("POST", B + "/baselines", B + "/baselines",
                      {"label": "l", "sessionId": one, "profileType": "cpu"}, 200)
        baseline = made["baselineId"]
        unnamed = set(made["topFunctions"][0]) - set(c.document["components"]["schemas"]["BaselineFunction"]["properties"])
        check(not unnamed, f"a baseline's functions have members that are not described: {unnamed}")
        report = c.call("POST", B + "/regression/check", B + "/regression/check",
                        {"baselineId": baseline, "compareId": two}, 200)["reportId"]
        rows = [
            ("GET", "/api/v1/observability/services", "", None, 200),
            ("GET", A + "/history", "?limit=2", None, 200),
            ("GET", A + "/history", "?limit=1000", None, 400),
            ("GET", A + "/compare", "?" + sides, None, 200),
            ("GET", A + "/compare", "?baseProfileId=sess-none&comparisonProfileId=sess-none", None, 404),
            ("POST", A + "/start", "", {"service": "nobody-has-this-name", "profileType": "cpu"}, 404),
            ("POST", A + "/start", "", {"service": "*", "profileType": "banana"}, 400),
            ("GET", B + "/sessions", "", None, 200),
            ("GET", B + "/baselines", "", None, 200),
            ("GET", A + "/findings", "?service=api", None, 200),
            ("GET", B + "/findings", "", None, 200),
            ("GET", B + "/findings", "?cursor=nonsense", None, 400),
            ("POST", B + "/findings/check", "", {}, 404),
            ("POST", B + "/findings/check", "", {"at": "never"}, 400),
            ("GET", B + "/trend", "?profileType=cpu&funcName=main", None, 200),
            ("POST", B + "/diff", "", {"baseId": one, "compareId": two, "type": "cpu"}, 200),
            ("POST", B + "/diff", "", {"baseId": one, "compareId": two, "type": "goroutine"}, 422),
            ("GET", "/v0/pipelines", "", None, 200),
            ("GET", "/healthz", "", None, 200),
            ("GET", "/readyz", "", None, 200),
            ("GET", "/version", "", None, 200),
            ("GET", "/metrics", "", None, 200),
            ("GET", "/api/v1/keys", "", None, 403),
            ("GET", "/", "", None, 200),
        ]
        for method, pattern, query, body, status in rows:
            c.call(method, pattern, pattern + query, body, status)
        for pattern, value in ((A + "/{profileId}", one), (A + "/{profileId}/heatmap", one), (B + "/sessions/{sessionId}", one),
                               (B + "/baselines/{baselineId}", baseline), (B + "/regression/{reportId}", report)):
            c.call("GET", pattern, pattern[:pattern.index("{")] + value + pattern[pattern.index("}") + 1:], None, 200)
        c.call("GET", A + "/{profileId}/ledger", f"{A}/{one}/ledger", None, 422)
        c.call("GET", B + "/sessions/{sessionId}/analysis", f"{B}/sessions/{one}/analysis", None, 422)
        c.call("GET", "/v0/pipelines/{pipeline_name}", "/v0/pipelines/nobody", None, 404)
        c.call("POST", "/v0/pipelines/{pipeline_name}/samply_profile", "/v0/pipelines/nobody/samply_profile", None, 404)
        for kind in daemon.get("/version").json()["formats"]:
            c.call("GET", A + "/{profileId}/flamegraph", f"{A}/{one}/flamegraph?format={kind}")
        for kind in ("html", "svg", "json", "flame", "folded"):
            c.call("GET", A + "/compare/flamegraph", f"{A}/compare/flamegraph?{sides}&format={kind}", None, 200)
        c.call("DELETE", B + "/baselines/{baselineId}", f"{B}/baselines/{baseline}", None, 204)
        c.call("DELETE", A + "/{profileId}", f"{A}/{one}", None, 204)
        check(c.calls > 40, f"{c.calls} calls")


if __name__ == "__main__":
    main(test_answers_match_the_document)
