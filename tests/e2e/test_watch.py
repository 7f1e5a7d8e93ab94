# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The watch of continuous profiling on a real program: an hour that is unlike the same hour of other days becomes a
finding and is told to a webhook that refuses the first time; another build of a program is a deployment. The past
hours are minutes of the program that were really recorded, written again under the times of other days."""

import contextlib
import datetime
import http.server
import json
import os
import re
import shutil
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

from browser import Site
from harness import BUILD, FAMILY_A, Daemon, check, compile_workload, free_port, main, own_name, running, wait_until

FAMILY_B = "/api/v1/profiling"
HOUR = 3600


class Receiver(http.server.ThreadingHTTPServer):
    """Refuses the first request, keeps the bodies of the others."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.bodies = 0, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        if self.server.requests > 1:
            self.server.bodies.append(json.loads(body))
        self.send_response(200 if self.server.requests > 1 else 503)
        self.end_headers()

    def log_message(self, *arguments):
        pass


class AnyAnswer(http.server.BaseHTTPRequestHandler):
    """Takes everything: path, media type and body."""

    def do_POST(self):
        self.server.taken.append((self.path, self.headers["Content-Type"],
                                  json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def alertmanager():
    """The address of Prometheus Alertmanager."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/a.yml", "w") as f:
            f.write("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        server = subprocess.Popen(["prometheus-alertmanager", f"--config.file={folder}/a.yml", f"--storage.path={folder}",
                                   f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: alerts_of(address) is not None, 60, "Alertmanager")
            yield address
        finally:
            server.kill()
            server.wait()


def alerts_of(address):
    try:
        with urllib.request.urlopen(address + "/api/v2/alerts", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def put(daemon, service, **more):
    answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": service, "sampleRate": 199, **more})
    check(answer.status == 200, answer)
    return answer.json()


def samples(daemon, service):
    items = daemon.get(f"{FAMILY_A}/history?service={service}&top=0").json()["items"]
    return sum(int(item["sampleCount"]) for item in items)


def checksum(*numbers):
    """CRC-32C of a row's numbers, as the store keeps it: each with SQLite's type before it."""
    crc = 0xffffffff
    for byte in b"".join(struct.pack("<Bq", 1, number) for number in numbers):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def rewrite(folder, normal, changed, hours):
    """Makes a history of @normal out of the recorded minutes: @hours maps the end of an hour to whether it is like
    @changed. What was recorded itself goes away."""
    folder = os.path.join(folder, "history")
    # across midnight there are two
    days_recorded = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith("-r7.db")]
    source = max(days_recorded, key=os.path.getsize)
    for path in days_recorded:
        if path != source:
            os.unlink(path)
    with contextlib.closing(sqlite3.connect(source)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        series = dict(db.execute("SELECT service, id FROM series WHERE type = 'cpu'"))
        # of each minute the part with the most samples: a series that began later counts its parts from there
        rows = {name: {ts: row for ts, *row in db.execute(
            "SELECT ts, samples, lost, value, z FROM win WHERE series = ? ORDER BY samples", (series[name],))} for name in (normal, changed)}
        # the same minute of both: what else ran meanwhile is no difference between them
        when = max(rows[normal].keys() & rows[changed].keys(), key=lambda at: min(rows[normal][at][0], rows[changed][at][0]))
        best = {name: rows[name][when] for name in rows}
        check(min(row[0] for row in best.values()) >= 150, f"{[row[0] for row in best.values()]} samples")
        db.execute("DELETE FROM win")
        db.commit()
    days = {}
    for end, is_changed in hours.items():
        for ts in range(end - HOUR, end, 60):
            *numbers, data = best[changed if is_changed else normal]
            row = series[normal], ts, 0, *numbers, 60000
            days.setdefault(ts // 86400, []).append((*row, data, checksum(*row)))
    for day, rows in days.items():
        name = datetime.datetime.fromtimestamp(day * 86400, datetime.timezone.utc).strftime("%Y-%m-%d-r7.db")
        path = os.path.join(folder, name)
        if path != source:
            shutil.copy(source, path)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executemany("INSERT INTO win (series, ts, part, samples, lost, value, profiled, z, sum) "
                           "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            db.commit()


def cells(daemon, session, width, height):
    answer = daemon.request("GET", f"{FAMILY_A}/{session}/heatmap?colMs={width}&rowMs={height}")
    check(answer.status == 200, answer)
    return answer.json()


def columns_of(heat):
    return [heat["cells"][c * heat["rows"]:(c + 1) * heat["rows"]] for c in range(heat["cols"])]


def times_of_samples(daemon, service):
    """A session of continuous profiling answers like one on demand: cells below a second, any part of it, each sample."""
    def several_seconds():
        """The second of the map with the most samples, what the session says of it, and that more do not come."""
        items = daemon.get(f"{FAMILY_A}/history?service={service}&top=0").json()["items"]
        one = max(items, key=lambda item: item["sampleCount"])["id"]
        heat = cells(daemon, one, 1000, 20)
        if heat["cols"] < 5:
            return None
        columns = columns_of(heat)
        begin = datetime.datetime.fromisoformat(heat["from"].replace("Z", "+00:00"))
        most = max(range(len(columns) - 2), key=lambda c: sum(columns[c]))
        at = [(begin + datetime.timedelta(seconds=most + i)).strftime("%Y-%m-%dT%H:%M:%SZ") for i in (0, 1)]
        part = daemon.get(f"{FAMILY_A}/{one}/flamegraph?format=folded&from={at[0]}&to={at[1]}").body.decode()
        return columns_of(cells(daemon, one, 1000, 20))[most] == columns[most] and (one, heat, columns, most, part)

    session, heat, columns, most, part = wait_until(several_seconds, 60, "some seconds of samples")
    check(sum(1 for column in columns if sum(1 for cell in column if cell) > 5) > 1, f"all at one moment: {heat}")
    check(sum(int(line.rsplit(" ", 1)[1]) for line in part.splitlines()) == sum(columns[most]), part)
    firefox = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=firefox").json()
    times = [time for thread in firefox["threads"] for time in thread["samples"]["time"]]
    check(len(set(times)) > 100, f"{len(set(times))} moments of {len(times)} samples")
    check("profd_detail_bytes 0\n" not in daemon.get("/metrics").body.decode(), "the metric")


def minutes_only(daemon, service, end):
    """Hours whose single samples nobody has: refused below the minute, answered by it."""
    stamps = [datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (end - HOUR, end)]
    items = daemon.get(f"{FAMILY_A}/history?service={service}&top=0&from={stamps[0]}&to={stamps[1]}").json()["items"]
    old = f"{FAMILY_A}/{items[0]['id']}"
    for path in ("/heatmap", "/heatmap?colMs=60000&rowMs=30000", "/flamegraph?format=firefox",
                 "/flamegraph?format=folded&from=" + items[0]["startedAt"].replace(":00.000Z", ":01.000Z")):
        answer = daemon.request("GET", old + path)
        check(answer.status == 422 and answer.json()["error_code"] == "DetailExpired" and "minutes" in answer.json()["detail"], answer)
    heat = cells(daemon, items[0]["id"], 60000, 60000)
    check(sum(heat["cells"]) == items[0]["totalValue"], heat)
    check(daemon.get(old + "/flamegraph?format=folded&from=" + items[0]["startedAt"]).body, "whole minutes")


def shown_to_people(daemon, service, now):
    """The finding on its page, and the two hours on theirs: the verdict first, with its interval."""
    at = [datetime.datetime.fromtimestamp(now - hours * HOUR, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") for hours in (3, 2, 1, 0)]
    with Site(daemon) as page:
        page.visit("/findings", "document.querySelector('.card')")
        cards = page.run("[...document.querySelectorAll('.card')].map(c => c.textContent.replace(/\\u00a0/g, ' '))")
        check("still open" in page.text(".lead") and any(re.search(r"openregressedslow_way takes .* 99 % interval \d+\.\d to \d+\.\d", c) for c in cards), cards)
        page.shoot("findings")
        # the hour beside that of the day before, of the host that found it
        page.run("document.querySelector('.card a[href^=\"/compare\"]').click()")
        page.wait("location.pathname === '/compare' && document.querySelector('.explorer')?.dataset.ready", "the comparison of a finding")
        check(page.text().count(f"(host:{socket.gethostname()})") == 2, page.text()[:600])
        # a profile beside a time, and the other way round
        one = daemon.get(f"{FAMILY_A}/history?service={service}&top=0&to={at[1]}").json()["items"][0]["id"]
        page.visit(f"/compare?base={one}&service={service}&profileType=cpu&comparisonFrom={at[2]}&comparisonTo={at[3]}",
                   "document.querySelector('.explorer')?.dataset.ready")
        page.run("[...document.querySelectorAll('a.button')].find(a => a.textContent === 'Swap').click()")
        page.wait(f"new URLSearchParams(location.search).get('cmp') === '{one}' && document.querySelector('.explorer')?.dataset.ready", "the sides changed over")
        check(page.run("document.querySelectorAll('.side')[1].textContent").startswith(f"After {one}"), page.text()[:600])
        page.visit(f"/compare?service={service}&profileType=cpu&baseFrom={at[0]}&baseTo={at[1]}&comparisonFrom={at[2]}&comparisonTo={at[3]}",
                   "document.querySelector('.explorer')?.dataset.ready")
        # what the CPUs gave to each recording decides the verdict of the whole
        check(page.text(".verdict") in ("regressed", "unchanged", "improved") and page.text(".lead") == f"cpu: {page.text('.verdict')}.", page.text()[:600])
        rows = page.run("[...document.querySelectorAll('[aria-label=\"Changed functions\"] tbody tr')].map(r => [...r.children].map(c => c.textContent))")
        row = next((r for r in rows if r[2] == "slow_way"), None)
        check(row and row[0].startswith("▲\u00a0+") and re.fullmatch(r"\[\d+\.\d\d, \d+\.\d\d\]", row[1]), rows)
        page.shoot("regression")
        page.clean()


def copy_of(folder):
    """A copy with the same owners: the symbolizer's names belong to another user, who must be able to read them."""
    copy = tempfile.mkdtemp(prefix="profd-e2e-")
    subprocess.run(["cp", "-a", f"{folder}/.", copy], check=True)
    return copy


def not_beside_the_hourly_check():
    """90 s after its end the daemon judges each hour by itself: not in the middle of what is looked at here."""
    left = (90 - time.time()) % HOUR
    if left < 60:
        time.sleep(left + 5)


def unlike_other_days():
    folder = tempfile.mkdtemp(prefix="profd-e2e-")
    receiver = Receiver()
    with own_name(compile_workload("two_ways.c", "-O2", "-g")) as program:
        normal, changed = (f"{os.path.basename(program)}-{word}" for word in ("normal", "changed"))
        # Beside a part that stays the same: of two functions alone nobody can say which of them changed.
        with Daemon("--set", "collect.cpu_budget_pct=100", data_dir=folder) as daemon, \
                running(program, "5", "25", env={"OTEL_SERVICE_NAME": normal}), \
                running(program, "40", "25", env={"OTEL_SERVICE_NAME": changed}):
            put(daemon, normal)
            put(daemon, changed)
            wait_until(lambda: min(samples(daemon, normal), samples(daemon, changed)) > 1000, 60, "samples of both")
            times_of_samples(daemon, normal)
    not_beside_the_hourly_check()
    now = int(time.time()) // 60 * 60
    hours = {now - 2 * HOUR: False, now - HOUR: True, now: True}
    hours.update({now - hour * HOUR - day * 86400: False for day in range(1, 8) for hour in range(3)})
    rewrite(folder, normal, changed, hours)
    before = copy_of(folder)
    own_receiver = ("--set", "continuous.private_webhooks=yes", "--set", "continuous.open_webhooks=yes")
    with Daemon(*own_receiver, data_dir=folder) as daemon:
        def check_hour(end):
            at = datetime.datetime.fromtimestamp(end, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = daemon.request("POST", FAMILY_B + "/findings/check", {"service": normal, "at": at})
            check(answer.status == 200 and answer.json()["checked"] == 1, answer)
            return daemon.get(f"{FAMILY_B}/findings?service={normal}").json()["items"]

        check(daemon.request("POST", FAMILY_B + "/findings/check", {"service": normal}).status == 404, "no watch yet")
        setting = put(daemon, normal, watch={"against": "history",
                                             "webhook": f"http://127.0.0.1:{receiver.server_port}/profd"})
        check(setting["watch"]["against"] == "history", setting)
        minutes_only(daemon, normal, now - 2 * HOUR)
        check(check_hour(now - 2 * HOUR) == [], "an hour like others")
        check(check_hour(now - HOUR) == [], "seen once")
        items = check_hour(now)
        # One part's samples stand for sixty minutes here: what chance did to other functions is a finding too.
        item = next((i for i in items if i["comparison"]["regressions"][0]["funcName"] == "slow_way"), None)
        check(item, items)
        check((item["state"], item["profileType"], item["against"]) == ("open", "cpu", "history"), item)
        grown = item["comparison"]["regressions"][0]
        check(grown["funcName"] == "slow_way" and 5 < grown["deltaPct"] < 45, grown)
        check(item["comparison"]["verdict"] == "regressed" and "slow_way" in item["comparison"]["summary"], item)
        wait_until(lambda: item in receiver.bodies and receiver.requests == len(items) + 1, 60, "the webhook to be told again")
        check(daemon.get(f"{FAMILY_A}/findings").json()["items"] == items, "the other path")
        check({item["host"] for item in items} == {socket.gethostname()}, f"{items}")
        listed = subprocess.run([os.path.join(BUILD, "profctl"), "--url", f"http://127.0.0.1:{daemon.port}", "findings"],
                                capture_output=True, text=True, check=True).stdout
        check(all(word in listed for word in ("open", normal, "history", "regressed", "slow_way")), listed)
        shown_to_people(daemon, normal, now)
    receiver.shutdown()
    in_other_formats(before, normal, now)
    shutil.rmtree(before)
    shutil.rmtree(folder)


def check_alerts(items, address):
    """Alertmanager shows the findings."""
    alerts = wait_until(lambda: len(found := alerts_of(address)) == len(items) and found, 60, "all alerts")
    for item in items:
        alert = next(a for a in alerts if a["labels"]["finding"] == item["id"])
        check(alert["status"]["state"] == "active" and alert["annotations"]["summary"] == item["comparison"]["summary"], alert)
        check((alert["labels"]["alertname"], alert["labels"]["service"], alert["labels"]["profile_type"]) ==
              ("ProfdFinding", item["service"], item["profileType"]), alert)
        check(alert["startsAt"][:19] == item["at"][:19], alert)


def check_events(items, receiver):
    """Events follow the specification of CloudEvents."""
    wait_until(lambda: len(receiver.taken) == len(items), 60, "all events")
    for path, media, event in receiver.taken:
        check((path, media) == ("/events", "application/cloudevents+json"), (path, media))
        check(event["data"] in items and event["id"] == event["data"]["id"] + "-opened", event)
        check((event["specversion"], event["type"], event["datacontenttype"], event["subject"], event["time"]) ==
              ("1.0", "profd.finding.opened", "application/json", event["data"]["service"], event["data"]["at"]), event)
        check(event["source"] == "/profd/" + socket.gethostname(), event)


def told_in(folder, service, now, watch):
    """The findings of three hours in a copy of @folder, told as @watch says; the daemon runs on."""
    @contextlib.contextmanager
    def told():
        copy = copy_of(folder)
        with Daemon("--set", "continuous.private_webhooks=yes", "--set", "continuous.open_webhooks=yes",
                    data_dir=copy) as daemon:
            setting = put(daemon, service, watch={"against": "history", **watch})
            check(setting["watch"]["format"] == watch["format"], setting)
            minutes_only(daemon, service, now - 2 * HOUR)  # and its functions have names from now on

            for end in (now - 2 * HOUR, now - HOUR, now):
                at = datetime.datetime.fromtimestamp(end, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
                answer = daemon.request("POST", FAMILY_B + "/findings/check", {"service": service, "at": at})
                check(answer.status == 200 and answer.json()["checked"] == 1, answer)
            items = daemon.get(f"{FAMILY_B}/findings?service={service}").json()["items"]
            check(items, "nothing was found in the copied hours")
            yield items
        shutil.rmtree(copy)

    return told()


def in_other_formats(folder, service, now):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), AnyAnswer)
    receiver.taken = []
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with alertmanager() as address, told_in(folder, service, now, {"webhook": address, "format": "alertmanager"}) as items:
        check_alerts(items, address)
    with told_in(folder, service, now, {"webhook": f"http://127.0.0.1:{receiver.server_port}/events",
                                        "format": "cloudevents"}) as items:
        check_events(items, receiver)
    receiver.shutdown()


def another_build():
    with own_name(compile_workload("two_ways.c", "-O2", "-g")) as program, Daemon() as daemon:
        service = os.path.basename(program)
        put(daemon, service)

        def deployments():
            return daemon.get(f"{FAMILY_A}/history?service={service}").json()["deployments"]

        with running(program, "5"):
            wait_until(lambda: samples(daemon, service) > 50, 60, "samples of the first build")
        check(deployments() == [], "the first build is no deployment")
        other = compile_workload("two_ways.c", "-O2", "-g", "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567")
        shutil.copy(other, program + ".new")
        os.replace(program + ".new", program)  # as packages are installed: another inode
        with running(program, "5"):
            found = wait_until(deployments, 60, "the deployment")
        check(len(found) == 1 and found[0]["buildId"] == "0123456789abcdef0123456789abcdef01234567", found)
        check(found[0]["exe"] == service and found[0]["host"] == socket.gethostname() and found[0]["previousBuildId"] not in ("", found[0]["buildId"]), found)


if __name__ == "__main__":
    main(unlike_other_days, another_build)
