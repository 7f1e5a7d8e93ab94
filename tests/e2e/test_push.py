#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Push to receivers that are away, busy, in a hurry or wrong: what arrives is decoded with the schema that
OpenTelemetry publishes, equals the sessions, and arrives once."""

import base64
import collections
import contextlib
import email.utils
import gzip
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from harness import ROOT, Daemon, check, free_port, main, own_name, running, wait_until
from registry import pypi_import

pypi_import("opentelemetry-proto==1.45.2", "protobuf==6.33.0")

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2  # noqa: E402

OTLP_PATH, PYROSCOPE_PATH = "/v1development/profiles", "/push.v1.PusherService/Push"


class Receiver:
    """Answers each request with the next of `script` (status, headers, body; None: hangs up), at last with 200."""

    def __init__(self, port):
        self.script, self.requests = [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = receiver.script.pop(0) if receiver.script else (200, {}, b"")
                receiver.requests.append({"at": time.monotonic(), "path": self.path, "headers": dict(self.headers),
                                          "body": body, "status": answer and answer[0]})
                if answer is None:
                    self.connection.close()
                    return
                self.send_response(answer[0])
                for name, value in {**answer[1], "Content-Length": str(len(answer[2]))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer[2])

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def taken(self):
        return [r for r in self.requests if r["status"] == 200]


def unknown_fields(message, path=""):
    from google.protobuf import unknown_fields as reader

    for field in reader.UnknownFieldSet(message):
        yield f"{path}: field {field.field_number}"
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                yield from unknown_fields(one, f"{path}.{field.name}")


def decode_otlp(body):
    """{"services": …, "sums": {sample type: sum}, "leaves": {name: samples' cpu}} after a check of the rules."""
    message = profiles_service_pb2.ExportProfilesServiceRequest.FromString(gzip.decompress(body))
    check(not list(unknown_fields(message)), f"unknown: {list(unknown_fields(message))[:3]}")
    tables = message.dictionary
    strings = tables.string_table
    check(strings[0] == "", "string 0")
    for table in (tables.mapping_table, tables.location_table, tables.function_table, tables.attribute_table,
                  tables.stack_table):
        check(not table[0].ListFields(), f"entry 0 is {table[0]}")
    found = {"services": set(), "sums": collections.Counter(), "leaves": collections.Counter(), "ids": set()}
    for resource in message.resource_profiles:
        attributes = {a.key: a.value for a in resource.resource.attributes}
        found["services"].add(attributes["service.name"].string_value)
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                kind = strings[profile.sample_type.type_strindex]
                check(len(profile.profile_id) == 16 and profile.profile_id not in found["ids"], "profile_id")
                found["ids"].add(profile.profile_id)
                for sample in profile.samples:
                    check(len(sample.values) == 1, f"{len(sample.values)} values")
                    found["sums"][kind] += sample.values[0]
                    stack = tables.stack_table[sample.stack_index].location_indices
                    check(all(0 < i < len(tables.location_table) for i in stack), "a location out of range")
                    if kind == "cpu" and stack:
                        line = tables.location_table[stack[0]].lines[0]
                        name = strings[tables.function_table[line.function_index].name_strindex]
                        found["leaves"][name] += sample.values[0]
                    for index in sample.attribute_indices:
                        check(0 < index < len(tables.attribute_table), "an attribute out of range")
    return found


def decode_pyroscope(body):
    """(labels, id, {sample type: sum})"""
    series, = json.loads(body)["series"]
    sample, = series["samples"]
    text = subprocess.run(["protoc", "--decode=pprof.Profile", f"--proto_path={ROOT}/tests/golden", "pprof.proto"],
                          input=gzip.decompress(base64.b64decode(sample["rawProfile"])), capture_output=True,
                          check=True).stdout.decode()
    values = [int(v) for v in re.findall(r"^  value: (\d+)$", text, re.M)]
    return {p["name"]: p["value"] for p in series["labels"]}, sample["ID"], sum(values[1::2])


def metric(daemon, name, receiver):
    text = daemon.get("/metrics").body.decode()
    return int(re.search(rf'^{name}{{receiver="{receiver}"}} (\d+)$', text, re.M).group(1))


@contextlib.contextmanager
def pushing(folder, otlp_port, pyroscope_port):
    with open(f"{folder}/token", "w") as f:
        f.write("the-token\n")
    with open(f"{folder}/profd.conf", "w") as f:
        f.write(f"[export otel]\nkind = otlp\nurl = http://127.0.0.1:{otlp_port}\ntoken_file = {folder}/token\n"
                f"[export pyro]\nkind = pyroscope\nurl = http://127.0.0.1:{pyroscope_port}/\n")
    with Daemon("--config", f"{folder}/profd.conf", data_dir=f"{folder}/data") as daemon:
        yield daemon


def check_otlp(request, result, service):
    check(request["path"] == OTLP_PATH and request["headers"]["Content-Type"] == "application/x-protobuf"
          and request["headers"]["Content-Encoding"] == "gzip", f"{request['path']} {request['headers']}")
    check(request["headers"]["Authorization"] == "Bearer the-token", "no token")
    got = decode_otlp(request["body"])
    check(got["services"] == {service}, f"services {got['services']}")
    check(got["sums"] == {"cpu": result["totalValue"], "samples": result["sampleCount"]}, f"{got['sums']}: {result}")
    first = result["topFunctions"][0]
    check(got["leaves"][first["funcName"]] == first["selfValue"], f"{got['leaves']}, not {first}")
    return got["ids"]


def check_pyroscope(request, result, service):
    check(request["path"] == PYROSCOPE_PATH and request["headers"]["Content-Type"] == "application/json",
          f"{request['path']} {request['headers']}")
    check("Authorization" not in request["headers"], "a token that was not configured")
    labels, ident, total = decode_pyroscope(request["body"])
    check(labels["service_name"] == service and labels["__name__"] == "process_cpu", f"{labels}")
    check(total == result["totalValue"], f"{total}, not {result['totalValue']}")
    return ident


def test_away_busy_and_back():
    """A receiver that is away while the agent is killed, then busy twice and hanging up once."""
    with tempfile.TemporaryDirectory() as folder, own_name(shutil.copy(shutil.which("sha1sum"), folder)) as program:
        service, ports = os.path.basename(program), (free_port(), free_port())
        with pushing(folder, *ports) as daemon, running(program, "/dev/zero", ready=False):
            results = [daemon.profile(service, 1), daemon.profile(service, 1)]
            wait_until(lambda: metric(daemon, "profd_export_failures_total", "otel") > 0
                       and metric(daemon, "profd_export_failures_total", "pyro") > 0, 60, "tries to fail")
            wait_until(lambda: len(os.listdir(f"{folder}/data/spool/otel")) == 3, 60, "both sessions in the spool")
            check(metric(daemon, "profd_export_sent_total", "otel") == 0, "sent to nobody")
            daemon.stop(signal.SIGKILL)
        date = email.utils.formatdate(time.time() + 4, usegmt=True)
        otlp, pyroscope = Receiver(ports[0]), Receiver(ports[1])
        otlp.script = [(503, {"Retry-After": "2"}, b""), (429, {"Retry-After": date}, b""), None]
        with otlp, pyroscope, pushing(folder, *ports) as daemon:
            wait_until(lambda: len(otlp.taken()) >= 2 and len(pyroscope.taken()) >= 2, 120, "both sessions to arrive")
            check([r["status"] for r in otlp.requests[:3]] == [503, 429, None], f"{[r['status'] for r in otlp.requests]}")
            check(otlp.requests[1]["at"] - otlp.requests[0]["at"] >= 2, "Retry-After in seconds was not kept")
            for request, result in zip(otlp.taken(), results):
                check_otlp(request, result, service)
            idents = {check_pyroscope(request, result, service)
                      for request, result in zip(pyroscope.taken(), results)}
            check(len(idents) == 2, "two sessions have one id")
            # Told apart: another session arrives, and those that arrived do not come again.
            otlp.script = [(200, {}, b"\x0a\x0a\x08\x02\x12\x06no two")]
            with running(program, "/dev/zero", ready=False):
                third = daemon.profile(service, 1)
            wait_until(lambda: len(otlp.taken()) >= 3 and len(pyroscope.taken()) >= 3, 60, "the third session")
            check_otlp(otlp.taken()[2], third, service)
            wait_until(lambda: metric(daemon, "profd_export_rejected_profiles_total", "otel") == 2, 60,
                       "the partial success to be counted")
            wait_until(lambda: metric(daemon, "profd_export_spool_bytes", "otel") == 0, 60, "an empty spool")
            # A message that will never be taken does not hold up the next.
            otlp.script = [(400, {}, b"malformed\x1b[31m")]
            with running(program, "/dev/zero", ready=False):
                daemon.profile(service, 1)
                fifth = daemon.profile(service, 1)
            wait_until(lambda: len(otlp.taken()) == 4, 60, "the session after the refused one")
            check_otlp(otlp.taken()[3], fifth, service)
            check(metric(daemon, "profd_export_refused_total", "otel") == 1, "refusals")
            check(metric(daemon, "profd_export_sent_total", "otel") == 4, "sent")
            check(metric(daemon, "profd_export_dropped_total", "otel") == 0, "dropped")
            check(not any("the-token" in line or "\x1b" in line for line in daemon.log), f"{daemon.log}")
            wait_until(lambda: len(pyroscope.taken()) == 5, 60, "all sessions at the other receiver")
        bodies = [r["body"] for r in otlp.requests if r["status"] in (200, 400)]
        check(len(set(bodies)) == len(bodies) == 5, "a session came twice")
        tries = {r["body"] for r in otlp.requests if r["status"] in (503, 429, None)}
        check(tries == {bodies[0]}, "another try had another body")


if __name__ == "__main__":
    main(test_away_busy_and_back)
