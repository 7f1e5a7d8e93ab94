# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""A shared store that cannot work: the agent listens, says why in one line, records and shows its own host, and moves
what it recorded to the store when that works."""

import http.client
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from clickhouse import CURRENT, DEBIANS, PASSWORD, ClickHouse
from harness import (BUILD, FAMILY_A, Daemon, check, check_sampled, compile_workload, cpu_ns, main, own_name, running, wait_until)

RATE = 199
RESTS_MS = "30"  # of the program, which runs for minutes, after each 5 ms of work
FLUSH_S = 60  # a shared store gets continuous data every minute


class Place:
    """A folder with a ClickHouse that does not run yet, and an agent that is to use it."""

    def __init__(self, command):
        self.folder = tempfile.mkdtemp(prefix="profd-away-")
        self.clickhouse = ClickHouse(self.folder, command)

    def agent(self, *more, url=None):
        return Daemon("--socket", f"{self.folder}/{'viewer' if more else 'agent'}.sock", "--set", "collect.exclude=*/clickhouse-server */python3*", *more,
                      data_dir=f"{self.folder}/{'viewer' if more else 'agent'}",
                      env={"PROFD_STORE_URL": url or self.clickhouse.url})

    def __enter__(self):
        os.makedirs(f"{self.folder}/agent")
        os.makedirs(f"{self.folder}/viewer")
        return self

    def __exit__(self, kind, value, trace):
        if self.clickhouse.process and self.clickhouse.process.poll() is None:
            self.clickhouse.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def reason(place, daemon):
    """The words of profctl doctor about the store, from /readyz as root reads it. Strangers are not told where it is."""
    answer = daemon.request("GET", "/readyz")
    check(answer.status == 503, "it is ready")
    check(str(place.clickhouse.port).encode() not in answer.body, answer)
    run = subprocess.run([f"{BUILD}/profctl", "--socket", f"{place.folder}/agent.sock", "doctor"], capture_output=True, text=True)
    return " ".join(run.stdout.split())


def says_why(place, daemon, *words):
    """In one line of the log, and where profctl doctor reads it."""
    told = reason(place, daemon)
    check(all(word in told for word in words), told)
    check([line for line in daemon.log if all(word in line for word in words)], daemon.log)


def named(daemon, session):
    """Its stacks when all frames have names: a busy host answers without them at first."""
    found = folded(daemon, session)
    return None if any("[unknown]" in stack for stack, _ in found) else found


class Callers:
    """Clients that ask all the while, on new connections and on kept ones. Each request has to be answered, and a start that
    cannot be taken says when to come back."""

    def __init__(self, daemon, service):
        self.daemon, self.service = daemon, service
        self.over, self.wrong, self.started, self.answered = threading.Event(), [], set(), 0
        self.threads = [threading.Thread(target=self.ask, args=(call,)) for call in (self.anew, self.kept, self.start)]

    def anew(self):
        return self.daemon.request("GET", "/readyz").status in (200, 503)

    def kept(self):
        if not hasattr(self, "connection"):
            self.connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=90)
        self.connection.request("GET", "/healthz")
        answer = self.connection.getresponse()
        answer.read()
        return answer.status == 200

    def start(self):
        answer = self.daemon.request("POST", FAMILY_A + "/start", {
            "service": self.service, "profileType": "offcpu", "durationSeconds": 1})
        if answer.status == 202:
            self.started.add(answer.json()["id"])
        check(answer.status in (202, 409) or answer.status == 503 and int(answer.headers["Retry-After"]) > 0, answer)
        return True

    def ask(self, call):
        while not self.over.is_set():
            try:
                check(call(), call.__name__)
                self.answered += 1
            except (OSError, http.client.HTTPException, AssertionError, LookupError) as wrong:
                self.wrong.append(f"{call.__name__}: {wrong!r}")
            time.sleep(0.005)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if kind is None:
            check(not self.wrong, f"{len(self.wrong)} of {self.answered + len(self.wrong)} requests: {self.wrong[:5]}")
            for session in self.started:
                result = self.daemon.finish_profile(session)
                check(result["status"] == "completed", f"a promised session: {result}")


def await_store(daemon):
    wait_until(lambda: daemon.request("GET", "/readyz").status == 200, 120, "the store to be used")


def history_ns(daemon, service):
    """The total of the service's continuous CPU profiles."""
    items = daemon.get(f"{FAMILY_A}/history?service={service}&profileType=cpu&limit=100").json()["items"]
    return sum(item["totalValue"] for item in items if item["continuous"])


def folded(daemon, session):
    return sorted((";".join(stack), value) for stack, value in daemon.folded(session))


def serves_alone_and_comes_back(command, again=False):
    with Place(command) as place, own_name(compile_workload("calm.c", "-O1", "-g", "-fno-omit-frame-pointer")) as program, \
            running(program, RESTS_MS) as process:
        service = os.path.basename(program)
        daemon = place.agent().start()
        try:
            says_why(place, daemon, f"127.0.0.1:{place.clickhouse.port}", "cannot be reached")
            answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": service, "sampleRate": RATE})
            check(answer.status == 200, answer)
            recorded = [cpu_ns(process.pid)]
            first = daemon.profile(service, 2, rate=RATE)
            check(first["totalValue"], first)
            stacks = wait_until(lambda: named(daemon, first["id"]), 60, "names")
            began = [cpu_ns(process.pid)]
            across = daemon.start_profile(service, 3600, rate=RATE)
            began.append(cpu_ns(process.pid))
            wait_until(lambda: history_ns(daemon, service), 60 + FLUSH_S, "continuous profiling")

            with Callers(daemon, service):
                place.clickhouse.start()
                await_store(daemon)
            moved = daemon.get(f"{FAMILY_A}/{first['id']}").json()
            check(moved["totalValue"] == first["totalValue"], (moved, first))
            found = folded(daemon, first["id"])
            check(found == stacks, f"the stacks differ: {set(found) ^ set(stacks)}")
            check(not os.path.exists(f"{place.folder}/agent/standby/sessions/{first['id']}.log"), "it is kept twice")
            before = cpu_ns(process.pid)
            result = daemon.stop_profile(across)
            check_sampled(result["totalValue"], before - began[1], cpu_ns(process.pid) - began[0], RATE)
            # a flush later all of it is in the history, once
            least = cpu_ns(process.pid) - recorded[0]
            wait_until(lambda: history_ns(daemon, service) > 0.9 * least, 60 + FLUSH_S, "the history to have it")
            check_sampled(history_ns(daemon, service), 0.9 * least, cpu_ns(process.pid) - recorded[0], RATE)

            viewer = place.agent("--no-collect").start()
            check(viewer.get(f"{FAMILY_A}/{first['id']}").json()["totalValue"] == first["totalValue"], "another host")
            viewer.stop()

            daemon.stop()
            place.clickhouse.kill()
            if again:
                knows_what_it_needs(place, service)
        finally:
            daemon.stop()


def knows_what_it_needs(place, service):
    """Away again: the settings are known, and a server without data of its own has nothing to show."""
    with place.agent() as daemon, place.agent("--no-collect") as viewer:
        settings = daemon.get(f"{FAMILY_A}/continuous").json()["items"]
        check([setting["service"] for setting in settings] == [service], settings)
        wait_until(lambda: history_ns(daemon, service), 60 + FLUSH_S, "continuous profiling to go on")
        answer = viewer.get(f"{FAMILY_A}/history", status=503)
        check(answer.json()["error_code"] == "StoreUnavailable" and "cannot be reached" in answer.json()["detail"], answer)
        # what is changed meanwhile is changed for good
        check(daemon.request("DELETE", f"{FAMILY_A}/continuous/{service}").status == 204, "the setting stays")
        place.clickhouse.start()
        await_store(daemon)
        check(daemon.get(f"{FAMILY_A}/continuous").json()["items"] == [], "the setting is back")


def away_with_debians():
    serves_alone_and_comes_back(DEBIANS)


def away_with_current():
    serves_alone_and_comes_back(CURRENT, again=True)


def refused():
    """Wrong password, no right to write, a database that the user may not use: each is told, and put right without a
    restart of the agent."""
    with Place(DEBIANS) as place:
        place.clickhouse.write_users("another")
        place.clickhouse.start()
        with place.agent() as daemon:
            says_why(place, daemon, f"127.0.0.1:{place.clickhouse.port}", "refuses", "correct the user and password")
            check(PASSWORD not in " ".join(daemon.log), "the log has the password")
            place.clickhouse.write_users(PASSWORD)
            await_store(daemon)
        place.clickhouse.write_users(PASSWORD, "<readonly>1</readonly>")
        wait_until(lambda: said(place, "readonly"), 60, "the profile to count")
        place.clickhouse.write_users(PASSWORD, user="<allow_databases><database>system</database></allow_databases>")
        wait_until(lambda: said(place, "GRANTS"), 60, "the right to be taken")


def seconds_of(daemon, number, times):
    start = time.monotonic()
    answer = daemon.request("GET", "/api/v1/keys", headers={"Authorization": f"Bearer unknown-{number}"})
    check(answer.status in (401, 503), answer)
    times.append(time.monotonic() - start)


def hangs():
    """Strangers with keys that nobody knows do not wait one after another for a store that hangs: it holds at most two of
    them (one who looks for his key, one who reads the keys again because they are old)."""
    with Place(DEBIANS) as place:
        place.clickhouse.start()
        with place.agent() as daemon:
            await_store(daemon)
            subprocess.run([f"{BUILD}/profctl", "--socket", f"{place.folder}/agent.sock", "key", "create", "--name", "a", "--role", "read"],
                           check=True, stdout=subprocess.DEVNULL)
            seconds_of(daemon, 0, [])
            place.clickhouse.process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)  # after a second an unknown key has the keys read again
            times = []
            strangers = [threading.Thread(target=seconds_of, args=(daemon, number, times)) for number in range(1, 7)]
            for stranger in strangers:
                stranger.start()
            for stranger in strangers:
                stranger.join()
            place.clickhouse.process.send_signal(signal.SIGCONT)
            times.sort()
            check(len(times) == len(strangers) and times[-3] < times[-1] / 2, times)


def said(place, word):
    with place.agent() as daemon:
        return daemon.request("GET", "/readyz").status == 503 and word in reason(place, daemon)


if __name__ == "__main__":
    main(away_with_debians, away_with_current, refused, hangs)
