# SPDX-License-Identifier: Apache-2.0
"""What history costs: bytes on the disk for a sample beside pprof files of the same minutes, time to merge a day and a
month, pages of a long list, one comparison, and the statistical tables in full."""

import contextlib
import datetime
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

from harness import BUILD, FAMILY_A, ROOT, Daemon, build_truth, check, compile_workload, cpu_ns, own_name, running

MINUTE, DAY = 60, 86400
RATE = 19
SESSIONS = 100000


def day_files(folder):
    folder = os.path.join(folder, "history")
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".db")]


def stamp(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(folder, seconds):
    """The whole host at 19 Hz while programs of several kinds run; the service with the most samples."""
    python = ["python3", "-c", "import json\nwhile True: json.loads(json.dumps(list(range(1000))))"]
    with Daemon(data_dir=folder) as daemon, contextlib.ExitStack() as stack:
        program = stack.enter_context(own_name(compile_workload("two_ways.c", "-O2", "-g")))
        stack.enter_context(running(program, "20"))
        stack.enter_context(running(build_truth(), str(seconds + 60)))
        others = [subprocess.Popen(python),
                  subprocess.Popen(["sh", "-c", f"while true; do gcc -O2 -c -o /dev/null {ROOT}/tests/workloads/*.c; done"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)]
        answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*", "sampleRate": RATE})
        check(answer.status == 200, answer)
        time.sleep(seconds)
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9) if os.getpgid(process.pid) == process.pid else process.kill()
            process.wait()
        now = int(time.time()) // MINUTE * MINUTE
        items = daemon.get(f"{FAMILY_A}/history?limit=100&top=0").json()["items"]
        pprof = 0
        for service in {item["service"] for item in items}:
            for start in range(now - seconds // MINUTE * MINUTE, now + MINUTE, MINUTE):
                path = (f"{FAMILY_A}/window/flamegraph?service={service}&profileType=cpu&format=pprof"
                        f"&start={stamp(start)}&end={stamp(start + MINUTE)}")
                one = daemon.request("GET", path)
                pprof += len(one.body) if one.status == 200 else 0
    return max(items, key=lambda item: item["sampleCount"])["service"], pprof


def disk(absolute, row, folder, pprof):
    bytes_all = samples = payload = 0
    for path in day_files(folder):
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            found = db.execute("SELECT total(samples), total(length(z)) FROM win").fetchone()
        samples, payload, bytes_all = samples + found[0], payload + found[1], bytes_all + os.path.getsize(path)
    absolute("history, bytes a sample, all in", bytes_all / samples, 1.5, f"{samples:.0f} samples; the dictionary is most of so short a record")
    absolute("history, bytes a sample of the minutes alone", payload / samples, 1.5)
    row("history beside pprof.gz a minute and service, bytes", bytes_all, pprof, 1 / 10)


def repeat(folder, service, days):
    """The recorded minutes of a service, written again for all minutes of so many days. No stacks are added."""
    source = day_files(folder)[0]
    with contextlib.closing(sqlite3.connect(source)) as db:
        rows = db.execute("SELECT w.series, w.samples, w.lost, w.value, w.z FROM win w JOIN series s ON s.id = w.series "
                          "WHERE s.service = ? AND s.type = 'cpu' ORDER BY w.ts", (service,)).fetchall()
        db.execute("DELETE FROM win")
        db.commit()
        db.execute("VACUUM")
    check(rows, "nothing was recorded")
    today = int(time.time()) // DAY
    for day in range(today - days, today):
        name = datetime.datetime.fromtimestamp(day * DAY, datetime.timezone.utc).strftime("%Y-%m-%d-r30.db")
        path = os.path.join(os.path.dirname(source), name)
        shutil.copy(source, path)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executemany("INSERT INTO win (series, ts, part, samples, lost, value, z) VALUES (?, ?, 0, ?, ?, ?, ?)",
                           [(one[0], day * DAY + i * MINUTE, *one[1:]) for i, one in
                            ((i, rows[i % len(rows)]) for i in range(DAY // MINUTE))])
            db.commit()
    os.unlink(source)
    return today * DAY, sum(one[1] for one in rows) / len(rows) * DAY // MINUTE


def merges(absolute, folder, service):
    end, samples = repeat(folder, service, 30)
    with Daemon("--no-collect", data_dir=folder) as daemon:
        for days, must in ((1, 50), (30, 500)):
            path = (f"{FAMILY_A}/history?service={service}&profileType=cpu&merge=true&limit=1&top=0"
                    f"&from={stamp(end - days * DAY)}&to={stamp(end)}")
            spent, server = [], daemon.children()["profd-server"]
            for _ in range(3):
                start, cpu = time.monotonic(), cpu_ns(server)
                check(daemon.get(path).json()["topFunctions"], path)
                spent.append(((time.monotonic() - start) * 1000, (cpu_ns(server) - cpu) / 1e6))
            absolute(f"merge of {days} days of the busiest service, ms", min(spent)[0], must,
                     f"{samples * days:.0f} samples; {min(one[1] for one in spent):.0f} ms of CPU")


def listing(absolute):
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    with Daemon(data_dir=folder) as daemon, running(build_truth(), "60") as process:
        daemon.finish_profile(daemon.start_profile(f"pid:{process.pid}", 1))
    with contextlib.closing(sqlite3.connect(os.path.join(folder, "state.db"))) as db:
        columns = "kind, tenant, id, service, type, status, created_ns, body"
        one = db.execute(f"SELECT {columns} FROM records WHERE kind = 'session'").fetchone()
        rows = []
        for i in range(SESSIONS):
            name = "sess-" + f"{i:026d}"
            body = re.sub(r"sess-[0-9a-z]{26}", name, one[7] if isinstance(one[7], str) else one[7].decode())
            rows.append((*one[:2], name, *one[3:6], one[6] - i * 1000000, body.encode()))
        db.executemany(f"INSERT INTO records ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.commit()
    with Daemon("--no-collect", data_dir=folder) as daemon:
        cursor, spent = "", []
        for _ in range(20):
            start = time.monotonic()
            page = daemon.get(f"{FAMILY_A}/history?limit=100&top=0&from=2020-01-01T00:00:00Z{cursor}").json()
            spent.append((time.monotonic() - start) * 1000)
            check(len(page["items"]) == 100 and page["total"] > SESSIONS, page["total"])
            cursor = "&cursor=" + page["nextCursor"]
    shutil.rmtree(folder)
    absolute(f"one page of {SESSIONS} sessions, ms", statistics.median(spent), 20)


def run(row, absolute, seconds):
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    service, pprof = record(folder, max(seconds, 150))
    disk(absolute, row, folder, pprof)
    merges(absolute, folder, service)
    shutil.rmtree(folder)
    listing(absolute)
    absolute("comparison of 5,000 functions by 60 windows, ms", float(subprocess.run(
        [os.path.join(BUILD, "tools/bench/compare")], capture_output=True, text=True, check=True).stdout), 5)


def tables(absolute, runs=1000):
    """Cells of the null and power tables outside their band."""
    done = subprocess.run([os.path.join(BUILD, "tests/unit/test_share_test")], capture_output=True, text=True,
                          env=dict(os.environ, PROFD_TEST_RUNS=str(runs)))
    cells = done.stdout.count("bound") + done.stdout.count("others")
    absolute(f"cells of {cells} outside their band", done.stderr.count(" x "), 0, f"{runs} runs each")
