# SPDX-License-Identifier: Apache-2.0
"""Cost of history: bytes on the disk for a sample beside pprof files of the same minutes, time to
merge a day and a month, pages of a long list, one comparison, and the statistical tables in
full."""

import collections
import contextlib
import datetime
import itertools
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

import programs
from harness import BUILD, FAMILY_A, Daemon, build_truth, check, cpu_ns, running

MINUTE, DAY = 60, 86400
RATE = 19
THIN = 52  # a record at so many times the rate has in minutes the samples of hours
SESSIONS = 100000
# Two of programs.LIVES write their title over their environment and are told by what they run.
SERVICES = ("postgres", "redis-check-rdb", "record-go", "record-compile", "record-python")


def day_files(folder):
    folder = os.path.join(folder, "history")
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".db")]


def stamp(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(folder, seconds, thin):
    """Real programs at @thin times 19 Hz, whatever else runs on the host; the services by samples, and what pprof files of
    the minutes take."""
    with tempfile.TemporaryDirectory() as own, Daemon("--set", "collect.cpu_budget_pct=100", data_dir=folder) as daemon, \
            programs.lives(own, "record-"):
        for service in SERVICES:
            answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": service, "sampleRate": RATE * thin})
            check(answer.status == 200, answer)
        begin = int(time.time()) // MINUTE * MINUTE
        time.sleep(seconds)
        items = daemon.get(f"{FAMILY_A}/history?limit=100&top=0").json()["items"]
        samples, pprof = collections.Counter(), 0
        for item in items:
            samples[item["service"]] += item["sampleCount"]
        for service, start in itertools.product(samples, range(begin, int(time.time()), MINUTE)):
            one = daemon.request("GET", f"{FAMILY_A}/window/flamegraph?service={service}&profileType=cpu&format=pprof"
                                        f"&start={stamp(start)}&end={stamp(start + MINUTE)}")
            pprof += len(one.body) if one.status == 200 else 0
    return samples, pprof


def size_of(folder):
    total = 0
    for path in day_files(folder):
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        total += os.path.getsize(path)
    return total


def detail_of(folder):
    """Bytes of the single samples with their times, which are stored beside the day files."""
    folder = os.path.join(folder, "sessions")
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.startswith("detail-"))


def days_from(source, count, thin, *service):
    """Days made of a record at @thin times their rate (days.c): the folder, {service: samples of a day}, how distinct
    stacks grow with them, and the share of calls in new stacks that are known."""
    target = tempfile.mkdtemp(prefix="profd-bench-")
    done = subprocess.run([os.path.join(BUILD, "tools/bench/days"), source, target, str(count), str(thin), *service],
                          check=True, capture_output=True, text=True)
    *series, known = done.stdout.splitlines()
    lines = [line.rsplit(" ", 5) for line in series]
    return target, {line[0]: float(line[3]) for line in lines}, {line[0]: float(line[5]) for line in lines}, float(known)


def minutes(absolute, row, seconds):
    """Minutes as they are recorded; what pprof files of them take, bytes a sample."""
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    samples, pprof = record(folder, seconds, 1)
    total = sum(samples.values())
    row("the minutes of the last hour / pprof.gz a minute and service, bytes a sample", size_of(folder) / total, pprof / total,
        None, f"{total} samples of five programs, not rolled up yet")
    absolute("the last hours sample by sample, bytes a sample", detail_of(folder) / total, 5, "beside the history, within its own budget")
    shutil.rmtree(folder)
    return pprof / total


def disk(absolute, name, pprof, folder, *service):
    """A day like a record at THIN times its rate; @pprof: what files of its minutes take, bytes a sample."""
    target, days, growth, known = days_from(folder, 1, THIN, *service)
    all_day = sum(days.values())
    slope = sum(growth[name] * days[name] for name in days) / all_day
    absolute(f"history of {name}, bytes a sample, all in / pprof.gz a minute and service", size_of(target) / all_day, 1.5,
             f"a day of {all_day:.0f} samples; distinct stacks grow as samples ^ {slope:.2f}; {100 * known:.0f} % of the "
             "calls in new stacks are known", base=pprof)
    shutil.rmtree(target)


def days_like(absolute, name, folder, count, must):
    """The size of a day like a record, and pages of the list of @count of them, which continuous data makes sessions of."""
    target, days, _, _ = days_from(folder, count, 1)
    absolute(f"{name}, MB a day", size_of(target) / count / 1e6, must, f"{sum(days.values()) / count:.0f} samples")
    pages(absolute, f"{name}, one page of {count} days", target)
    shutil.rmtree(target)


def merges(absolute, folder, service):
    folder, days, _, _ = days_from(folder, 30, THIN, service)
    end, samples = int(time.time()) // DAY * DAY, days[service]
    with Daemon("--no-collect", data_dir=folder) as daemon:
        for count, must in ((1, 50), (30, 500)):
            path = (f"{FAMILY_A}/history?service={service}&profileType=cpu&merge=true&limit=1&top=0"
                    f"&from={stamp(end - count * DAY)}&to={stamp(end)}")
            spent, server = [], daemon.children()["profd-server"]
            for _ in range(3):
                start, cpu = time.monotonic(), cpu_ns(server)
                check(daemon.get(path).json()["topFunctions"], path)
                spent.append(((time.monotonic() - start) * 1000, (cpu_ns(server) - cpu) / 1e6))
            absolute(f"merge of {count} days of the busiest service, ms", min(spent)[0], must,
                     f"{samples * count:.0f} samples; {min(one[1] for one in spent):.0f} ms of CPU")
    shutil.rmtree(folder)


def pages(absolute, name, folder):
    with Daemon("--no-collect", data_dir=folder) as daemon:
        cursor, spent = "", []
        for _ in range(20):
            start = time.monotonic()
            page = daemon.get(f"{FAMILY_A}/history?limit=100&top=0&from=2020-01-01T00:00:00Z{cursor}").json()
            spent.append((time.monotonic() - start) * 1000)
            check(len(page["items"]) == 100, page["total"])
            cursor = "&cursor=" + page["nextCursor"]
    absolute(f"{name}, ms", statistics.median(spent), 20, f"{page['total']} sessions; the slowest of 20 pages {max(spent):.0f} ms")


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
    pages(absolute, f"one page of {SESSIONS} sessions", folder)
    shutil.rmtree(folder)


def run(row, absolute, seconds):
    pprof = minutes(absolute, row, 75)
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    samples, _ = record(folder, max(seconds, 130), THIN)
    busiest = samples.most_common(1)[0][0]
    disk(absolute, "five programs", pprof, folder)
    disk(absolute, "the busiest service", pprof, folder, busiest)
    merges(absolute, folder, busiest)
    shutil.rmtree(folder)
    listing(absolute)
    absolute("comparison of 5,000 functions by 60 windows, ms", float(subprocess.run(
        [os.path.join(BUILD, "tools/bench/compare")], capture_output=True, text=True, check=True).stdout), 5)


def tables(absolute, runs=1000):
    """Cells of the tables of false calls, power and coverage outside their band."""
    done = subprocess.run([os.path.join(BUILD, "tests/unit/test_share_changes")], capture_output=True, text=True,
                          env=dict(os.environ, PROFD_TEST_RUNS=str(runs)))
    cells = done.stdout.count("bound") + done.stdout.count("others")
    absolute(f"cells of {cells} outside their band", done.stderr.count(" x "), 0, f"{runs} runs each")
