# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Malformed and impossible requests against the running daemon: each gets its documented status and a
problem document that names the field; nothing is started by one, and the same processes serve on."""

import contextlib
import json
import os
import re
import socket
import struct
import tempfile
import time

from harness import FAMILY_A, Answer, Daemon, check, main, running, wait_until

FAMILY_B = "/api/v1/profiling"
ABSENT = "sess-01jgz4w8x2m3n4p5q6r7s8t9v0"
CONFIG = """[limits]
body_bytes = 64K
"""
SHORT = """header_timeout = 1s
body_timeout = 1s
"""

GOOD = {"service": "sleep", "profileType": "cpu"}


def start_with(**members):
    return {**GOOD, **members}


# (method, target, headers, body, status, error_code, field); a body of type dict is sent as JSON, bytes as
# they are with a JSON content type. A field of None: the error is about no single field.
REQUESTS = [
    # paths and methods
    ("GET", "/api/v1/nothing", {}, None, 404, "NotFound", None),
    ("GET", FAMILY_A + "/start", {}, None, 405, "MethodNotAllowed", "method"),
    ("PUT", FAMILY_A + "/start", {}, GOOD, 405, "MethodNotAllowed", "method"),
    ("PATCH", FAMILY_A + "/" + ABSENT, {}, GOOD, 405, "MethodNotAllowed", "method"),
    ("POST", FAMILY_A + "/history", {}, GOOD, 405, "MethodNotAllowed", "method"),
    ("DELETE", FAMILY_B + "/diff", {}, None, 405, "MethodNotAllowed", "method"),
    ("BREW", "/healthz", {}, None, 405, "MethodNotAllowed", "method"),
    ("GET", "/../../../etc/passwd", {}, None, 404, "NotFound", None),
    ("GET", "/ui/..%2f..%2f..%2fetc%2fpasswd", {}, None, 404, "NotFound", None),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", {}, None, 404, "NotFound", None),
    ("GET", FAMILY_A + "/..%2f..%2fkeys", {}, None, 404, "UnknownSession", None),
    ("GET", FAMILY_A + "/a%00b", {}, None, 400, "InvalidParam", "profileId"),
    ("GET", FAMILY_A + "/%zz", {}, None, 400, "InvalidParam", "profileId"),
    ("GET", FAMILY_A + "/%f", {}, None, 400, "InvalidParam", "profileId"),
    ("GET", FAMILY_A + "/%ff%fe", {}, None, 400, "InvalidParam", "profileId"),
    ("GET", FAMILY_A + "/a%0d%0aX-Evil:%201", {}, None, 400, "InvalidParam", "profileId"),
    ("GET", FAMILY_A + "/" + ABSENT, {}, None, 404, "UnknownSession", None),
    ("DELETE", FAMILY_A + "/" + ABSENT, {}, None, 404, "UnknownSession", None),
    ("GET", f"{FAMILY_A}/{ABSENT}/flamegraph", {}, None, 404, "UnknownSession", None),
    ("GET", f"{FAMILY_B}/sessions/{ABSENT}/analysis", {}, None, 404, "UnknownSession", None),
    ("GET", FAMILY_B + "/baselines/bl-01jgz4w8x2m3n4p5q6r7s8t9v0", {}, None, 404, "UnknownBaseline", None),
    ("GET", FAMILY_B + "/regression/nope", {}, None, 404, "UnknownReport", None),
    # queries
    ("GET", FAMILY_A + "/history?limit=0", {}, None, 400, "InvalidParam", "limit"),
    ("GET", FAMILY_A + "/history?limit=101", {}, None, 400, "InvalidParam", "limit"),
    ("GET", FAMILY_A + "/history?limit=1e1", {}, None, 400, "InvalidParam", "limit"),
    ("GET", FAMILY_A + "/history?limit=99999999999999999999", {}, None, 400, "InvalidParam", "limit"),
    ("GET", FAMILY_A + "/history?limit=1&limit=2", {}, None, 400, "InvalidParam", "limit"),
    ("GET", FAMILY_A + "/history?colour=red", {}, None, 400, "InvalidParam", "colour"),
    ("GET", FAMILY_A + "/history?profileType=banana", {}, None, 400, "InvalidParam", "profileType"),
    ("GET", FAMILY_A + "/history?status=dead", {}, None, 400, "InvalidParam", "status"),
    ("GET", FAMILY_A + "/history?from=2026-02-30T00:00:00Z", {}, None, 400, "InvalidParam", "from"),
    ("GET", FAMILY_A + "/history?from=now&to=now-1h", {}, None, 400, "InvalidParam", "to"),
    ("GET", FAMILY_A + "/history?service=%c3%28", {}, None, 400, "InvalidParam", "service"),
    ("GET", FAMILY_A + "/history?service=a%00b", {}, None, 400, "InvalidParam", "service"),
    ("GET", FAMILY_A + "/history?cursor=garbage", {}, None, 400, "InvalidParam", "cursor"),
    ("GET", f"{FAMILY_A}/{ABSENT}?top=1001", {}, None, 400, "InvalidParam", "top"),
    ("GET", f"{FAMILY_A}/{ABSENT}?top=-1", {}, None, 400, "InvalidParam", "top"),
    ("GET", f"{FAMILY_A}/compare?baseProfileId={ABSENT}", {}, None, 400, "InvalidParam", "comparisonProfileId"),
    ("GET", f"{FAMILY_A}/compare?baseProfileId={ABSENT}&comparisonProfileId={ABSENT}", {}, None, 404,
     "UnknownSession", None),
    ("GET", f"{FAMILY_B}/trend?profileType=cpu", {}, None, 400, "InvalidParam", "funcName"),
    ("GET", f"{FAMILY_B}/trend?profileType=cpu&funcName=f&metric=mood", {}, None, 400, "InvalidParam", "metric"),
    # bodies
    ("POST", FAMILY_A + "/start", {}, b"", 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b"{", 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b"[]", 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sleep",}', 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sleep","profileType":"cpu"} trailing', 400, "InvalidBody",
     "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sl\xffeep","profileType":"cpu"}', 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sl\\u0000eep","profileType":"cpu"}', 400, "InvalidBody",
     "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sl\0eep","profileType":"cpu"}', 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"\\ud800","profileType":"cpu"}', 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sleep","service":"cat","profileType":"cpu"}', 400,
     "InvalidBody", "service"),
    ("POST", FAMILY_A + "/start", {}, b'{"labels":' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"a":[' + b"1," * 30000 + b"1]}", 400, "InvalidBody", "body"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"' + b"a" * 70000 + b'"}', 413, "BodyTooLarge", "body"),
    ("POST", FAMILY_A + "/start", {}, {"profileType": "cpu"}, 400, "InvalidParam", "service"),
    ("POST", FAMILY_A + "/start", {}, start_with(service=""), 400, "InvalidParam", "service"),
    ("POST", FAMILY_A + "/start", {}, start_with(service=7), 400, "InvalidParam", "service"),
    ("POST", FAMILY_A + "/start", {}, start_with(service=["sleep"]), 400, "InvalidParam", "service"),
    ("POST", FAMILY_A + "/start", {}, start_with(service="x" * 5000), 400, "InvalidParam", "service"),
    ("POST", FAMILY_A + "/start", {}, {"service": "sleep"}, 400, "InvalidParam", "profileType"),
    ("POST", FAMILY_A + "/start", {}, start_with(profileType="banana"), 400, "InvalidParam", "profileType"),
    ("POST", FAMILY_A + "/start", {}, start_with(profileType=True), 400, "InvalidParam", "profileType"),
    ("POST", FAMILY_A + "/start", {}, start_with(durationSeconds=0), 400, "InvalidParam", "durationSeconds"),
    ("POST", FAMILY_A + "/start", {}, start_with(durationSeconds=3601), 400, "InvalidParam", "durationSeconds"),
    ("POST", FAMILY_A + "/start", {}, start_with(durationSeconds=1.5), 400, "InvalidParam", "durationSeconds"),
    ("POST", FAMILY_A + "/start", {}, start_with(durationSeconds="soon"), 400, "InvalidParam", "durationSeconds"),
    ("POST", FAMILY_A + "/start", {}, b'{"service":"sleep","profileType":"cpu","durationSeconds":1e400}', 400,
     "InvalidParam", "durationSeconds"),
    ("POST", FAMILY_A + "/start", {}, start_with(sampleRate=0), 400, "InvalidParam", "sampleRate"),
    ("POST", FAMILY_A + "/start", {}, start_with(sampleRate=1001), 400, "InvalidParam", "sampleRate"),
    ("POST", FAMILY_A + "/start", {}, start_with(sampleRate={}), 400, "InvalidParam", "sampleRate"),
    ("POST", FAMILY_A + "/start", {}, start_with(waitSeconds=0), 400, "InvalidParam", "waitSeconds"),
    ("POST", FAMILY_A + "/start", {}, start_with(labels=[]), 400, "InvalidParam", "labels"),
    ("POST", FAMILY_A + "/start", {}, start_with(labels={"a": 1}), 400, "InvalidParam", "labels"),
    ("POST", FAMILY_A + "/start", {}, start_with(service="never-heard-of"), 404, "UnknownService", None),
    ("POST", FAMILY_A + "/start", {}, start_with(service="pid:4194305"), 404, "UnknownService", None),
    ("POST", FAMILY_B + "/sessions", {}, {"profileType": "cpu"}, 400, "InvalidParam", "target"),
    ("POST", FAMILY_B + "/sessions", {}, {"target": "sleep"}, 400, "InvalidParam", "profileType"),
    ("POST", FAMILY_B + "/sessions?wait=perhaps", {}, {"profileType": "cpu", "target": "sleep"}, 400,
     "InvalidParam", "wait"),
    ("POST", FAMILY_B + "/diff", {}, {"compareId": ABSENT, "type": "cpu"}, 400, "InvalidParam", "baseId"),
    ("POST", FAMILY_B + "/diff", {}, {"baseId": ABSENT, "compareId": ABSENT, "type": "cpu"}, 404,
     "UnknownSession", None),
    ("POST", FAMILY_B + "/baselines", {}, {"sessionId": ABSENT, "profileType": "cpu"}, 400, "InvalidParam",
     "label"),
    ("POST", FAMILY_B + "/baselines", {}, {"label": "x", "sessionId": ABSENT, "profileType": "cpu"}, 404,
     "UnknownSession", None),
    ("POST", FAMILY_B + "/regression/check", {}, {"baselineId": 1, "compareId": ABSENT}, 400, "InvalidParam",
     "baselineId"),
    # headers
    ("POST", FAMILY_A + "/start", {"Content-Type": "text/plain"}, b"{}", 415, "UnsupportedMediaType",
     "Content-Type"),
    ("POST", FAMILY_A + "/start", {"Content-Type": "application/x-www-form-urlencoded"}, b"service=sleep", 415,
     "UnsupportedMediaType", "Content-Type"),
    ("POST", FAMILY_A + "/start", {"Content-Encoding": "gzip"}, b"\x1f\x8b", 415, "UnsupportedMediaType",
     "Content-Encoding"),
    ("GET", FAMILY_A + "/history", {"X-Tenant-ID": "a/b"}, None, 400, "InvalidParam", "X-Tenant-ID"),
    ("GET", FAMILY_A + "/history", {"X-Tenant-ID": "a" * 65}, None, 400, "InvalidParam", "X-Tenant-ID"),
    ("GET", "/healthz", {"Host": "evil.example"}, None, 403, "Forbidden", "Host"),
    ("GET", "/healthz", {"Host": "127.0.0.1.evil.example"}, None, 403, "Forbidden", "Host"),
    ("GET", "/healthz", {"Host": ""}, None, 400, "InvalidParam", "Host"),
    ("POST", FAMILY_A + "/start", {"Origin": "https://evil.example"}, GOOD, 403, "Forbidden", "Origin"),
    ("GET", "/healthz", {"X-Filler": "x" * 17000}, None, 431, "HeadersTooLarge", "headers"),
    ("GET", FAMILY_A + "/history?service=" + "x" * 9000, {}, None, 414, "UriTooLong", "url"),
    ("GET", "/api/v1/keys", {}, None, 403, "Forbidden", None),
]

# family C has a document of its own: (method, target, status, error_code, details)
PIPELINES = [
    ("POST", "/v0/pipelines/non-existent-pipeline/samply_profile", 404, "UnknownPipelineName",
     {"pipeline_name": "non-existent-pipeline"}),
    ("POST", "/v0/pipelines/sleep/samply_profile?duration_secs=0", 400, "InvalidParam", None),
    ("POST", "/v0/pipelines/sleep/samply_profile?duration_secs=3601", 400, "InvalidParam", None),
    ("POST", "/v0/pipelines/sleep/samply_profile?ordinal=99", 404, "UnknownOrdinal", None),
    ("POST", "/v0/pipelines/sleep/samply_profile?ordinal=-1", 400, "InvalidParam", None),
    ("GET", "/v0/pipelines/sleep/samply_profile", 400, "NoSamplyProfile", None),
    ("DELETE", "/v0/pipelines/sleep/samply_profile", 405, "MethodNotAllowed", None),
    ("GET", "/v0/nothing", 404, "NotFound", None),
    ("GET", "/v0/pipelines/%zz", 400, "InvalidParam", None),
]


def exchange(port, data, timeout=60):
    """Sends bytes as they are; everything that comes back until the peer closes, or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
        return read_all(sock)


def read_all(sock):
    received = b""
    with contextlib.suppress(ConnectionResetError, TimeoutError):
        while chunk := sock.recv(65536):
            received += chunk
    return received


def first_answer(received):
    head, _, body = received.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3})", head)
    check(found, f"not an HTTP answer: {received[:200]!r}")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return Answer(int(found.group(1)), headers, body[:int(headers.get("Content-Length", len(body)))])


def check_problem(what, answer, status, code, field):
    check(answer.status == status, f"{what}: {answer.status}, not {status}: {answer}")
    check(answer.headers.get("Content-Type") == "application/problem+json", f"{what}: {answer.headers}")
    problem = answer.json()
    check(set(problem) >= {"type", "title", "status", "detail", "message", "error_code", "details"},
          f"{what}: members {sorted(problem)}")
    check(problem["status"] == status and problem["error_code"] == code, f"{what}: {problem}")
    check(len(problem["detail"]) > 5 and problem["message"] == problem["detail"], f"{what}: {problem}")
    check(isinstance(problem["details"], dict), f"{what}: details {problem['details']!r}")
    check(field is None or problem["details"].get("field") == field, f"{what}: does not name {field}: {problem}")


@contextlib.contextmanager
def watched(more=""):
    """A daemon beside a program named sleep; afterwards its processes are the same ones and nothing was started. With SHORT
    it does not wait for who is slow, so that nobody is to send anything else there."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profd.conf")
        with open(path, "w") as f:
            f.write(CONFIG + more)
        with running("sleep", "600", ready=False), Daemon("--config", path) as daemon:
            wait_until(lambda: any(s["name"] == "sleep" for s in daemon.get(
                "/api/v1/observability/services").json()["items"]), 60, "the service to be seen")
            before = daemon.children()
            yield daemon
            check(daemon.get("/healthz").status == 200, "does not serve afterwards")
            check(daemon.children() == before, f"processes were {before}, are {daemon.children()}")
            total = daemon.get(FAMILY_A + "/history").json()["total"]
            check(total == 0, f"{total} sessions began")


def shown(method, target, body):
    return f"{method} {target[:100]} {body if not isinstance(body, bytes) else body[:80]}"


def refused_requests():
    with watched() as daemon:
        for method, target, headers, body, status, code, field in REQUESTS:
            sent = {"Content-Type": "application/json", **headers} if isinstance(body, bytes) else headers
            answer = daemon.request(method, target, body, sent)
            check_problem(shown(method, target, body), answer, status, code, field)
            check("X-Evil" not in answer.headers, f"{target}: header injected")
            if status == 405:
                allowed = answer.headers.get("Allow", "").split(", ")
                check(allowed[0] and method not in allowed, f"{method} {target}: Allow {allowed}")


def refused_pipelines():
    with watched() as daemon:
        for method, target, status, code, details in PIPELINES:
            answer = daemon.request(method, target)
            check(answer.status == status, f"{method} {target}: {answer}")
            error = answer.json()
            check(set(error) == {"message", "error_code", "details"}, f"{target}: members {sorted(error)}")
            check(error["error_code"] == code, f"{target}: {error}")
            check(isinstance(error["details"], dict), f"{target}: {error}")
            check(details is None or error["details"] == details, f"{target}: {error}")
            check(answer.headers["Content-Type"] == "application/json", f"{target}: {answer.headers}")


def unacceptable_answers():
    with watched() as daemon, running("sha1sum", "/dev/zero", ready=False):
        wait_until(lambda: any(s["name"] == "sha1sum" for s in daemon.get(
            "/api/v1/observability/services").json()["items"]), 60, "the service to be seen")
        session = daemon.profile("sha1sum", seconds=1)["id"]
        path = f"{FAMILY_A}/{session}/flamegraph"
        answer = daemon.request("GET", path, headers={"Accept": "image/gif"})
        check_problem("Accept: image/gif", answer, 406, "NotAcceptable", "Accept")
        for accept in ("text/html;q=0", "nonsense", "*/*;q=0"):
            answer = daemon.request("GET", path, headers={"Accept": accept})
            check(answer.status in (406, 200), f"Accept {accept!r}: {answer.status}")
        for query in ("format=gif", "where=process", "maxNodes=many", "groupBy=mood", "from=yesterday", "root=zz"):
            field = query.split("=")[0]
            check_problem(query, daemon.request("GET", f"{path}?{query}"), 400, "InvalidParam", field)
        answer = daemon.request("GET", path + "?format=pgo")
        check_problem("pgo of a program that is not Go", answer, 422, "ProfileTypeMismatch", None)
        answer = daemon.request("GET", f"{FAMILY_A}/{session}/ledger")
        check_problem("ledger of a cpu session", answer, 422, "ProfileTypeMismatch", None)
        answer = daemon.request("GET", f"{FAMILY_B}/sessions/{session}/analysis")
        check_problem("analysis of a cpu session", answer, 422, "ProfileTypeMismatch", None)
        check(daemon.request("DELETE", f"{FAMILY_A}/{session}").status == 204, "delete")


def raw(method, target, *headers, body=b"", host="Host: localhost"):
    lines = [f"{method} {target} HTTP/1.1", *([host] if host else []), *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def bytes_on_the_wire():
    """Requests that no HTTP library would send. None may be answered with success or taken as a
    second request."""
    json_type = "Content-Type: application/json"
    rows = [
        ("binary noise", bytes(range(256)) * 4, (400,)),
        ("a NUL in the request line", b"GET /healthz\0x HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404)),
        ("blank in the target", b"GET /health z HTTP/1.1\r\nHost: localhost\r\n\r\n", (400,)),
        ("no target", b"GET HTTP/1.1\r\n\r\n", (400,)),
        ("no Host", raw("GET", "/healthz", host=None), (400,)),
        ("two Hosts", raw("GET", "/healthz", "Host: evil.example"), (400,)),
        ("relative target", raw("GET", "healthz"), (400,)),
        ("HTTP/9.9", b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n", (400, 505)),
        ("length not a number", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: ten"), (400,)),
        ("negative length", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: -1"), (400,)),
        ("length of 2^64", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: 18446744073709551616"),
         (400, 413)),
        ("two lengths", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: 2", "Content-Length: 40",
                            body=b"{}"), (400, 408)),
        ("length and chunked", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: 4",
                                   "Transfer-Encoding: chunked", body=b"0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"),
         (400,)),
        ("unknown transfer coding", raw("POST", FAMILY_A + "/start", json_type, "Transfer-Encoding: rot13"),
         (400, 408, 411, 501)),
        ("garbage as a chunk size", raw("POST", FAMILY_A + "/start", json_type, "Transfer-Encoding: chunked",
                                        body=b"zz\r\n{}\r\n0\r\n\r\n"), (400,)),
        ("a chunk of 2^64 bytes", raw("POST", FAMILY_A + "/start", json_type, "Transfer-Encoding: chunked",
                                      body=b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n"), (400, 413)),
        ("a chunk longer than it says", raw("POST", FAMILY_A + "/start", json_type, "Transfer-Encoding: chunked",
                                            body=b"1\r\n{}{}{}\r\n0\r\n\r\n"), (400,)),
        ("header without a colon", raw("GET", "/healthz", "nonsense"), (400, 200)),
        ("300 headers", raw("GET", "/healthz", *[f"X-{i}: {'y' * 60}" for i in range(300)]), (431,)),
        ("a huge header", raw("GET", "/healthz", "X-A: " + "y" * 300000), (431,)),
        ("a huge target", raw("GET", "/" + "y" * 300000), (414,)),
    ]
    with watched(SHORT) as daemon:
        for what, data, statuses in rows:
            answer = first_answer(exchange(daemon.port, data))
            check(answer.status in statuses, f"{what}: {answer}")


def half_sent_requests():
    """Headers, bodies and chunks that never come to their end: 408 within the configured second."""
    json_type = "Content-Type: application/json"
    rows = [
        ("half a request line", b"GET /heal"),
        ("half a header", b"GET /healthz HTTP/1.1\r\nHost: local"),
        ("no end of the headers", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"),
        ("half a body", raw("POST", FAMILY_A + "/start", json_type, "Content-Length: 40", body=b'{"serv')),
        ("half a chunk", raw("POST", FAMILY_A + "/start", json_type, "Transfer-Encoding: chunked",
                             body=b'20\r\n{"serv')),
    ]
    with watched(SHORT) as daemon:
        for what, data in rows:
            begin = time.monotonic()
            answer = first_answer(exchange(daemon.port, data))
            check_problem(what, answer, 408, "RequestTimeout", None)
            check(time.monotonic() - begin > 0.5, f"{what}: after {time.monotonic() - begin:.1f} s")
        # a byte now and then must not hold the connection: the deadline is absolute
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")

            def is_cut():
                try:
                    sock.sendall(b"z")
                except OSError:
                    return True
                return False

            wait_until(is_cut, 60, "a dripping client to be cut off")


def torn_connections():
    """Clients that leave at every byte of a request, and some that leave with a reset."""
    request = raw("POST", FAMILY_A + "/start", "Content-Type: application/json", "Content-Length: 30",
                  body=b'{"service":"sleep"')
    with watched() as daemon:
        for cut in range(len(request)):
            with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as sock:
                sock.sendall(request[:cut])
                if cut % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def pipelined_requests():
    """Requests sent at once on one connection are answered in order, each by itself."""
    body = json.dumps(start_with(sampleRate=0)).encode()
    with watched() as daemon:
        data = (raw("GET", "/healthz") + raw("GET", FAMILY_A + "/history?limit=0")
                + raw("POST", FAMILY_A + "/start", "Content-Type: application/json",
                      f"Content-Length: {len(body)}", body=body)
                + raw("GET", "/api/v1/nothing") + raw("GET", "/version", "Connection: close"))
        received = exchange(daemon.port, data)
        statuses = [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
        check(statuses == [200, 400, 400, 404, 200], f"pipelined: {statuses}")


def many_idle_connections():
    """More connections than are served at a time: all others wait, and are served once idle ones time out."""
    with watched(SHORT) as daemon:
        idle = [socket.create_connection(("127.0.0.1", daemon.port), timeout=60) for _ in range(300)]
        try:
            check(daemon.get("/healthz").status == 200, "not served beside idle connections")
        finally:
            for sock in idle:
                sock.close()


if __name__ == "__main__":
    main(refused_requests, refused_pipelines, unacceptable_answers, bytes_on_the_wire, half_sent_requests,
         torn_connections, pipelined_requests, many_idle_connections)
