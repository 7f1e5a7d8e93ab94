# SPDX-License-Identifier: Apache-2.0
"""A thousand hosts in one current ClickHouse: 24 hours of one host are written as an agent writes them (series.c) and copied
to the others by the server. Then a viewer asks for the whole fleet, and one more agent works beside. Its statements pass a
relay, which notes what each costs the server. PROFD_BENCH_CLOCK=1 (a machine of the bench's own) sets the host's clock to the
last minute of an hour for the viewer: none of that hour is rolled up, which is the most that a viewer has to read."""

import contextlib
import datetime
import http.client
import http.server
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from clickhouse import CURRENT, PASSWORD, ClickHouse
from grafana_bench import CPU, protobuf, timed
from harness import BUILD, FAMILY_A, Daemon, check, wait_until

HOSTS, SERVICES, COPIES, RUNS = 1000, 10, 25, 5
SETTLING = 300
TABLES = ("hours", "minutes")


def ask(clickhouse, sql, timeout=600):
    connection = http.client.HTTPConnection("127.0.0.1", clickhouse.port, timeout=timeout)
    connection.request("POST", "/?database=fleet", sql, {"X-ClickHouse-User": "prof", "X-ClickHouse-Key": PASSWORD})
    answer = connection.getresponse()
    text = answer.read().decode()
    check(answer.status == 200, f"{sql}: {text}")
    return text


class Relay(http.server.ThreadingHTTPServer):
    """Between an agent and the server: one statement at a time, and the server's CPU seconds during each."""

    daemon_threads = True

    def __init__(self, clickhouse):
        super().__init__(("127.0.0.1", 0), RelayHandler)
        self.target, self.clock = clickhouse.port, ~clickhouse.process.pid << 3 | 2  # the process's CPU clock
        self.lock, self.spent = threading.Lock(), {}
        self.url = clickhouse.url.replace(f":{clickhouse.port}/", f":{self.server_port}/")
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def pass_on(self, path, body, headers):
        with self.lock:
            before = time.clock_gettime(self.clock)
            connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=600)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            kind = "INSERT" if "query=INSERT" in path else body[:6].decode()
            count, seconds = self.spent.get(kind, (0, 0))
            self.spent[kind] = (count + 1, seconds + time.clock_gettime(self.clock) - before)
        return status, text


class RelayHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text = self.server.pass_on(self.path, body, {
            name: value for name, value in self.headers.items() if name.startswith("X-ClickHouse")})
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextlib.contextmanager
def clock_at(seconds):
    """The host's clock begins there, and is right again afterwards."""
    shift = seconds - time.time() if os.environ.get("PROFD_BENCH_CLOCK") == "1" else 0
    if shift:
        time.clock_settime(time.CLOCK_REALTIME, time.time() + shift)
    try:
        yield
    finally:
        if shift:
            time.clock_settime(time.CLOCK_REALTIME, time.time() - shift)


def fill(clickhouse, folder, hosts, now):
    with clock_at(now):
        subprocess.run([os.path.join(BUILD, "tools/bench/series"), f"{folder}/first", str(SERVICES), clickhouse.url, "host-0"],
                       check=True)
    for table in TABLES:
        for first in range(1, hosts, COPIES):
            count = min(COPIES, hosts - first)
            ask(clickhouse, f"INSERT INTO {table} SELECT * EXCEPT number REPLACE(concat('host-', toString(number)) AS host) "
                            f"FROM (SELECT * FROM {table} WHERE host = 'host-0') AS one CROSS JOIN "
                            f"(SELECT number FROM numbers({first}, {count})) AS others")


def stored(clickhouse):
    """{table: (rows, parts, bytes)} of all, and of it the bytes of the history's data."""
    lines = ask(clickhouse, "SELECT table, sum(rows), count(), sum(bytes_on_disk) FROM system.parts WHERE active AND "
                            "database = 'fleet' GROUP BY table FORMAT TabSeparated").splitlines()
    return {table: tuple(map(int, numbers)) for table, *numbers in (line.split("\t") for line in lines)}


def stamp(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def list_of_spans(daemon, begin, end):
    """Median milliseconds; infinite where the answer does not come within a minute or is refused."""
    times = []
    with contextlib.suppress(OSError):
        for _ in range(RUNS):
            start = time.monotonic()
            answer = daemon.get(f"{FAMILY_A}/history?limit=100&top=0&start={stamp(begin)}&end={stamp(end)}")
            times.append((time.monotonic() - start) * 1000)
            if answer.status != 200:
                break
        else:
            return statistics.median(times)
    return float("inf")


def views(daemon):
    """{what: median ms}"""
    end = int(time.time()) // 60 * 60
    begin_ms, end_ms, found = (end - 86400) * 1000, end * 1000, {}
    series = {1: CPU, 2: "{}", 3: begin_ms, 4: end_ms, 5: "service_name", 6: 900.0}
    for name, call, request in (
            ("services and their types", "Series", {2: ["service_name", "__profile_type__"], 3: begin_ms, 4: end_ms}),
            ("CPU time of each service", "SelectSeries", series),
            ("the ten hosts with most CPU time of a service", "SelectSeries",
             {**series, 2: '{service_name="service-001"}', 5: "host", 9: 10})):
        found[name] = timed(daemon, call, request)[0]
    found["the list of its spans"] = list_of_spans(daemon, end - 86400, end)
    return found


def agent(clickhouse, folder, name, seconds, rate=0):
    """{kind of statement: (statements, CPU seconds of the server) a second} of one agent, idle or profiling its whole host."""
    relay = Relay(clickhouse)
    daemon = Daemon("--socket", f"{folder}/{name}.sock", data_dir=f"{folder}/{name}", env={"PROFD_STORE_URL": relay.url})
    daemon.prefix = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
    os.makedirs(daemon.data_dir, exist_ok=True)
    with daemon:
        if rate:
            answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*", "sampleRate": rate})
            check(answer.status == 200, answer)
        time.sleep(SETTLING)  # it looks at each hour of the day once
        with relay.lock:
            relay.spent.clear()
        time.sleep(seconds)
        with relay.lock:
            spent = dict(relay.spent)
    relay.shutdown()
    return {kind: (count / seconds, cpu / seconds) for kind, (count, cpu) in spent.items()}


def run(absolute, hosts=HOSTS, seconds=600):
    folder = tempfile.mkdtemp(prefix="profd-bench-", dir=BUILD)
    clickhouse = ClickHouse(folder, CURRENT)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        clickhouse.start()
        stack.callback(clickhouse.kill)
        late = int(time.time()) // 3600 * 3600 - 50
        fill(clickhouse, folder, hosts, late)
        # so many rows at once are no fleet's; merging them would slow the viewer
        wait_until(lambda: ask(clickhouse, "SELECT count() FROM system.merges").strip() == "0", 600, "the merges")
        for table, (rows, parts, size) in sorted(stored(clickhouse).items()):
            print(f"# {table}: {rows} rows, {parts} parts, {size / 1e6:.0f} MB", flush=True)
        with clock_at(late), Daemon("--no-collect", "--socket", f"{folder}/viewer.sock", data_dir=f"{folder}/viewer",
                                    env={"PROFD_STORE_URL": clickhouse.url}) as daemon:
            for name, median in views(daemon).items():
                print(f"# {name}: {median:.0f} ms", flush=True)
                absolute(f"fleet of {hosts} hosts, 24 h: {name}, median ms", median, 2000, f"{SERVICES} services each")
        for what, rate in (("idle agent", 0), ("agent that profiles its host at 19 Hz", 19)):
            spent = agent(clickhouse, folder, f"host-{rate}", seconds, rate)
            for kind, (count, cpu) in sorted(spent.items()):
                print(f"# one {what}: {count * 60:.1f} {kind} a minute, {cpu * 1e6:.0f} us of CPU a second", flush=True)
            absolute(f"fleet of {hosts} hosts: bookkeeping, cores of the server",
                     sum(cpu for kind, (_, cpu) in spent.items() if kind != "INSERT") * hosts, 2,
                     f"every statement of one {what} but INSERTs of data, times {hosts}")


if __name__ == "__main__":
    run(lambda name, value, bound, text: print(name, f"{value:.4g} of {bound}", text, flush=True), *map(int, sys.argv[1:]))
