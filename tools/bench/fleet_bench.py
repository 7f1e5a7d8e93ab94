# SPDX-License-Identifier: Apache-2.0
"""A thousand hosts in one current ClickHouse: 24 hours of one host are written as an agent writes them (series.c) and copied
to the others by the server. Then a viewer asks for the whole fleet, and one more agent works beside."""

import contextlib
import datetime
import http.client
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from clickhouse import CURRENT, PASSWORD, ClickHouse
from grafana_bench import CPU, protobuf, timed
from harness import BUILD, FAMILY_A, Daemon, check

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


def server_cpu(clickhouse):
    with open(f"/proc/{clickhouse.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent(clickhouse, seconds):
    """CPU seconds of the server a second."""
    before, begin = server_cpu(clickhouse), time.monotonic()
    time.sleep(seconds)
    return (server_cpu(clickhouse) - before) / (time.monotonic() - begin)


def fill(clickhouse, folder, hosts):
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
    end = int(time.time()) // 3600 * 3600
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


def agent(clickhouse, folder, name, seconds, *more):
    """CPU seconds of the server a second while one agent works, beyond what it takes by itself."""
    daemon = Daemon(*more, "--socket", f"{folder}/{name}.sock", data_dir=f"{folder}/{name}",
                    env={"PROFD_STORE_URL": clickhouse.url})
    daemon.prefix = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
    os.makedirs(daemon.data_dir, exist_ok=True)
    idle = spent(clickhouse, seconds)
    with daemon:
        time.sleep(SETTLING)  # it looks at each hour of the day once
        return max(spent(clickhouse, seconds) - idle, 0)


def run(absolute, hosts=HOSTS, seconds=120):
    folder = tempfile.mkdtemp(prefix="profd-bench-", dir=BUILD)
    clickhouse = ClickHouse(folder, CURRENT)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        clickhouse.start()
        stack.callback(clickhouse.kill)
        fill(clickhouse, folder, hosts)
        for table, (rows, parts, size) in sorted(stored(clickhouse).items()):
            print(f"# {table}: {rows} rows, {parts} parts, {size / 1e6:.0f} MB", flush=True)
        with Daemon("--no-collect", "--socket", f"{folder}/viewer.sock", data_dir=f"{folder}/viewer",
                    env={"PROFD_STORE_URL": clickhouse.url}) as daemon:
            for name, median in views(daemon).items():
                print(f"# {name}: {median:.0f} ms", flush=True)
                absolute(f"fleet of {hosts} hosts, 24 h: {name}, median ms", median, 2000, f"{SERVICES} services each")
        kept = agent(clickhouse, folder, "host-0", seconds)
        absolute(f"fleet of {hosts} hosts: bookkeeping, cores of the server", kept * hosts, 2, f"one idle agent, times {hosts}")


if __name__ == "__main__":
    run(lambda name, value, bound, text: print(name, f"{value:.4g} of {bound}", text, flush=True), *map(int, sys.argv[1:]))
