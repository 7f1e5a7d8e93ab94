#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Crowds of bad clients: every one is answered with a 4xx or cut off, memory stays bounded, and a good client is served
throughout. Its times are printed, not judged. And the end of the daemon is no end of an answer."""

import contextlib
import os
import re
import selectors
import signal
import socket
import tempfile
import threading
import time

from harness import FAMILY_A, Daemon, check, main, running, wait_until

B = "/api/v1/profiling"
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
START = FAMILY_A.encode() + b"/start"
# Requests that must be refused: (name, bytes)
HOSTILE = [
    ("a header of 64 KB", b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: " + b"y" * 65536 + b"\r\n\r\n"),
    ("64 KB of headers", b"GET /healthz HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 500) for i in range(128))
     + b"\r\n"),
    ("two Hosts", b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: localhost\r\n\r\n"),
    ("two lengths", b"POST " + START + b" HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    ("length and chunks", b"POST " + START + b" HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    ("a chunk of zz bytes", b"POST " + START + b" HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    ("a chunk of 2^68 bytes", b"POST " + START + b" HTTP/1.1\r\n" + HOST + JSON +
     b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n"),
    ("traversal", b"GET /ui/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("encoded traversal", b"GET /ui/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("twice encoded", b"GET /ui/%252e%252e%252fpasswd HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("a NUL", b"GET /healthz\0 HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("%00", b"GET /healthz%00 HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("%00 in a parameter", b"GET " + FAMILY_A.encode() + b"/x%00y HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("overlong UTF-8", b"GET " + FAMILY_A.encode() + b"/%c0%ae%c0%ae HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("overlong UTF-8, raw", b"GET " + FAMILY_A.encode() + b"/\xc0\xae\xe0\x80\xaf HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("a surrogate", b"GET " + FAMILY_A.encode() + b"/history?service=%ed%a0%80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("no HTTP version", b"GET /nowhere\r\n\r\n"),
    ("a body of words", b"POST " + START + b" HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 5\r\n\r\nhello"),
    ("an unknown method", b"BREW /healthz HTTP/1.1\r\n" + HOST + b"\r\n"),
]


# No request line at all: the connection is closed at once, with or without a word.
NOISE = [("noise", bytes(range(1, 256)) + b"\r\n\r\n"), ("another protocol", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n")]


class Good:
    """A client that behaves, on a connection of its own for each request, and the times it took."""

    def __init__(self, daemon):
        self.daemon, self.times, self.failure, self.stop = daemon, [], None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            try:
                self.daemon.get(FAMILY_A + "/history?limit=5", timeout=60)
            except Exception as error:  # reported by the test
                self.failure = error
                return
            self.times.append(time.monotonic() - begin)
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(90)

    def report(self, what):
        check(self.failure is None, f"{what}: the good client failed: {self.failure}")
        check(len(self.times) > 5, f"{what}: only {len(self.times)} requests of the good client")
        times = sorted(self.times)
        print(f"{what}: {len(times)} good requests, p50 {1e3 * times[len(times) // 2]:.1f} ms, "
              f"p99 {1e3 * times[int(len(times) * 0.99)]:.1f} ms, worst {1e3 * times[-1]:.1f} ms", flush=True)


def memory_mb(daemon):
    """Resident memory of the server process."""
    with open(f"/proc/{daemon.children()['profd-server']}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def answer_of(port, data):
    """Status of the first answer; None when the connection was cut without one."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while b"\r\n" not in received and (chunk := sock.recv(4096)):
                received += chunk
    found = re.match(rb"HTTP/1\.[01] (\d{3})", received)
    return int(found.group(1)) if found else None


def refused(status):
    return status is not None and (400 <= status < 500 or status in (501, 505))


def test_ten_thousand_connections():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        # The good client has the address of the others; here it is not to be told to come back later.
        config.write("[limits]\nrequests_per_second = 1000000\nrequest_burst = 1000000\n")
        config.flush()
        refuse_ten_thousand("--no-collect", "--config", config.name)


def refuse_ten_thousand(*arguments):
    with Daemon(*arguments) as daemon:
        for name, data in HOSTILE:
            status = answer_of(daemon.port, data)
            check(refused(status), f"{name}: {status}")
        before = memory_mb(daemon)
        with Good(daemon) as good:
            for i in range(10000):
                name, data = (HOSTILE + NOISE)[i % len(HOSTILE + NOISE)]
                status = answer_of(daemon.port, data)
                check(refused(status) or (name, data) in NOISE and status is None, f"{name}: {status}")
        good.report("10,000 connections in turn")
        grown = memory_mb(daemon) - before
        print(f"memory of the server: {before:.0f} MB, {grown:+.0f} MB", flush=True)
        check(grown < 100, f"the server grew by {grown:.0f} MB")
        wait_until(lambda: "profd_http_connections 1" in daemon.get("/metrics").body.decode().split("\n"), 60,
                   "all connections to be closed")


def drip(socks, until):
    """A byte of a header to each, round and round; dead ones are replaced by new ones."""
    text = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"z" * 10000
    selector = selectors.DefaultSelector()
    at = {}
    for sock in socks:
        selector.register(sock, selectors.EVENT_READ)
        at[sock] = 0
    cut = 0
    while not until.is_set():
        for sock in list(at):
            try:
                sock.send(text[at[sock]:at[sock] + 1])
                at[sock] += 1
            except OSError:
                selector.unregister(sock)
                del at[sock]
                sock.close()
                cut += 1
        until.wait(0.3)
    for sock in at:
        sock.close()
    return cut


def test_slow_clients():
    """250 that drip, 300 that say nothing."""
    with Daemon("--no-collect") as daemon:
        for what, count, drips in (("250 dripping clients", 250, True), ("300 silent clients", 300, False)):
            before = memory_mb(daemon)
            socks = [socket.create_connection(("127.0.0.1", daemon.port), timeout=60) for _ in range(count)]
            until = threading.Event()
            thread = threading.Thread(target=drip, args=(socks, until), daemon=True)
            if drips:
                thread.start()
            with Good(daemon) as good:
                wait_until(lambda g=good: g.failure or len(g.times) > 100, 60, f"a client beside {what}")
            grown = memory_mb(daemon) - before
            until.set()
            if drips:
                thread.join()
            for sock in socks:
                sock.close()
            good.report(what)
            check(grown < 100, f"{what}: the server grew by {grown:.0f} MB")


def test_end_during_answers():
    """SIGTERM while one call waits for its session and one reads a large answer slowly: both get whole answers."""
    with running("sha1sum", "/dev/zero", ready=False), Daemon() as daemon:
        waiting = {}

        def wait_for_session():
            try:
                waiting["answer"] = daemon.request("POST", B + "/sessions", {
                    "profileType": "cpu", "target": "*", "durationSeconds": 3000}, timeout=120)
            except Exception as error:  # reported below
                waiting["error"] = error

        thread = threading.Thread(target=wait_for_session, daemon=True)
        thread.start()
        wait_until(lambda: daemon.get(FAMILY_A + "/history?status=running").json()["total"] == 1, 60, "the session")
        slow = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
        slow.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = slow.recv(1000)
        daemon.process.send_signal(signal.SIGTERM)
        while chunk := slow.recv(4096):
            received += chunk
        slow.close()
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
        check(head.startswith(b"HTTP/1.1 200") and len(body) == length, f"{len(body)} of {length} bytes")
        thread.join(60)
        check("answer" in waiting, f"the waiting call got {waiting}")
        check(waiting["answer"].status in (200, 503), f"{waiting['answer']}")
        check(daemon.process.wait(60) == 0, f"status {daemon.process.returncode}")
        check(not os.path.exists(f"/proc/{daemon.process.pid}/stat"), "still there")


if __name__ == "__main__":
    main(test_ten_thousand_connections, test_slow_clients, test_end_during_answers)
