#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Thousands of requests made from /openapi.json by schemathesis, valid and invalid, with one seed: no server error, no
status, content type, header or body that is not described, no invalid request accepted. And the linters of the
OpenAPI trade find nothing."""

import json
import os
import subprocess
import sys
import tempfile

from harness import ROOT, Daemon, check, main
from registry import node, npm, pypi

B = "/api/v1/profiling"
# Valid requests meet what is not there (404) or cannot be done now (409, 503): acceptance is no rule here.
NOT_OURS = "not_a_server_error,positive_data_acceptance"


def schemathesis(folder, port, *arguments, parameters=None):
    program = pypi("schemathesis==4.32.5")
    with open(f"{folder}/schemathesis.toml", "w") as f:
        if parameters:
            f.write("[parameters]\n")
            f.writelines(f'"path.{name}" = "{value}"\n' for name, value in parameters.items())
    command = [sys.executable, f"{program}/bin/schemathesis", "--config-file", f"{folder}/schemathesis.toml", "run",
               f"http://127.0.0.1:{port}/openapi.json", "--seed", "1", "--phases", "examples,coverage,fuzzing",
               "--checks", "all", "--exclude-checks", NOT_OURS, "--continue-on-failure", "--no-shrink",
               "--generation-database", "none", "--request-timeout", "60", "--suppress-health-check", "all",
               "--report", "json", "--report-json-path", f"{folder}/report.json", "--no-color", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=dict(
        os.environ, PYTHONPATH=f"{program}:{ROOT}/tests/e2e", SCHEMATHESIS_HOOKS="schemathesis_checks"))
    check(done.returncode == 0, f"schemathesis {done.returncode}: {done.stdout[-6000:]} {done.stderr[-1000:]}")
    print(*[line for line in done.stdout.splitlines() if "generated" in line or "Tested:" in line], flush=True)


def test_without_authentication():
    with tempfile.TemporaryDirectory() as folder, Daemon("--no-collect") as daemon:
        schemathesis(folder, daemon.port, "--max-examples", "8")
        check(daemon.get("/healthz").status == 200, "does not serve afterwards")


def make_history(folder):
    """A store with one of everything, and an administrator's key: {path parameter: id}, key"""
    with Daemon(data_dir=folder) as daemon:
        take = {"profileType": "cpu", "target": "*", "durationSeconds": 1}
        first = daemon.request("POST", B + "/sessions", take).json()["sessionId"]
        second = daemon.request("POST", B + "/sessions", take).json()["sessionId"]
        baseline = daemon.request("POST", B + "/baselines", {"label": "l", "sessionId": first,
                                                             "profileType": "cpu"}).json()["baselineId"]
        report = daemon.request("POST", B + "/regression/check", {"baselineId": baseline,
                                                                  "compareId": second}).json()["reportId"]
    made = subprocess.Popen([daemon.program, "--no-collect", "--listen", "127.0.0.1:0", "--data-dir", folder, "--socket",
                             f"{folder}/sock"], stderr=subprocess.PIPE, text=True)
    try:
        check("listening" in made.stderr.readline(), "no socket")
        key = subprocess.run([os.path.join(os.path.dirname(daemon.program), "profctl"), "--socket", f"{folder}/sock",
                              "key", "create", "--name", "st", "--role", "admin"], capture_output=True, text=True,
                             check=True).stdout.splitlines()[-1].strip()
    finally:
        made.terminate()
        made.wait()
        made.stderr.close()
    return {"profileId": first, "sessionId": second, "baselineId": baseline, "reportId": report}, key


def test_with_authentication():
    """Every path with an id, with ids that exist (DELETE would end that), and what only an administrator may do."""
    with tempfile.TemporaryDirectory() as folder:
        ids, key = make_history(folder)
        with Daemon("--no-collect", data_dir=folder) as daemon:
            check(daemon.request("GET", B + "/sessions").status == 401, "open although there is a key")
            schemathesis(folder, daemon.port, "--max-examples", "8", "--header", f"Authorization: Bearer {key}",
                         "--exclude-method", "DELETE", "--include-path-regex",
                         r"\{(profileId|sessionId|baselineId|reportId)\}|/keys|/backup|/sampling|/links", parameters=ids)
            token = {"Authorization": f"Bearer {key}"}
            check(daemon.request("GET", f"{B}/sessions/{ids['sessionId']}", headers=token).status == 200, "the session is gone")


def test_linters():
    folder = npm("@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3")
    bin_folder = os.path.join(folder, "node_modules/.bin")
    document = os.path.join(ROOT, "api/openapi.yaml")
    with tempfile.TemporaryDirectory() as rules:
        with open(f"{rules}/redocly.yaml", "w") as f:
            f.write("extends: [recommended]\nrules:\n  no-server-example.com: off\n  operation-4xx-response: off\n"
                    # continuous/{service} stands beside {profileId}/flamegraph: literal words go before, and an id begins with sess-
                    "  no-ambiguous-paths: off\n")
        with open(f"{rules}/spectral.yaml", "w") as f:
            f.write("extends: ['spectral:oas']\nrules:\n  info-contact: off\n"
                    "  operation-description: off\n")  # each has a summary
        for command in ([f"{bin_folder}/redocly", "lint", "--config", f"{rules}/redocly.yaml", "--max-problems", "50",
                         "--format", "json", document],
                        [f"{bin_folder}/spectral", "lint", "--ruleset", f"{rules}/spectral.yaml", "--fail-severity",
                         "warn", "--format", "json", document]):
            done = subprocess.run([node(), *command], capture_output=True, text=True, cwd=rules, env=dict(
                os.environ, REDOCLY_TELEMETRY="off", CI="1", HOME=rules))
            check(done.returncode == 0, f"{os.path.basename(command[0])}: {done.stdout[-3000:]} {done.stderr[-2000:]}")
            if "redocly" in command[0]:
                found = json.loads(done.stdout[done.stdout.index("{"):])["problems"] if "{" in done.stdout else []
                check(not found, f"warnings: {[(p['ruleId'], p['message']) for p in found][:5]}")


if __name__ == "__main__":
    main(test_without_authentication, test_with_authentication, test_linters)
