# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""The life of sessions as a client sees it: start, partial results, stop, delete, history, limits, retries,
tenants, a restart of the daemon, and what comparisons of known programs have to say."""

import contextlib
import datetime
import os
import re
import signal
import sys
import tempfile
import time

from harness import (FAMILY_A, Counting, Daemon, band, check, compile_workload, cpu_ns, free_port, lasted_ns, main, own_name,
                     running, wait_until)

FAMILY_B = "/api/v1/profiling"
SHARES = {"parse_input": 0.4, "encode_output": 0.3, "hash_record": 0.2, "write_log": 0.1}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


@contextlib.contextmanager
def units():
    with own_name(compile_workload("units.c", "-O2")) as program:
        yield program


@contextlib.contextmanager
def configured(text, **kwargs):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profd.conf")
        with open(path, "w") as f:
            f.write(text)
        with Daemon("--config", path, **kwargs) as daemon:
            yield daemon


def start(daemon, service, tenant=None, key=None, status=202, **members):
    headers = {"X-Tenant-ID": tenant} if tenant else {}
    if key:
        headers["Idempotency-Key"] = key
    answer = daemon.request("POST", FAMILY_A + "/start", {
        "service": service, "profileType": "cpu", "durationSeconds": 600, **members}, headers)
    check(answer.status == status, f"start of {service}: {answer}")
    return answer


def known(daemon, service):
    wait_until(lambda: any(s["name"] == service for s in daemon.get(
        "/api/v1/observability/services").json()["items"]), 60, f"{service} to be seen")


def run_for(process, seconds):
    """Waits until the program has used that much CPU time, however busy the machine is."""
    begin = cpu_ns(process.pid)
    wait_until(lambda: cpu_ns(process.pid) - begin > seconds * 1e9, 120, "the program to run")


def shares(result):
    return {f["funcName"]: f["selfPct"] / 100 for f in result["topFunctions"]}


def life_of_a_session():
    with units() as program, Daemon() as daemon, running(program) as process:
        service = os.path.basename(program)
        known(daemon, service)
        answer = start(daemon, service, sampleRate=199)
        first = answer.json()
        session = first["id"]
        check(re.match(r"sess-[0-9a-hjkmnp-tv-z]{26}$", session), session)
        check(answer.headers["Location"] == f"{FAMILY_A}/{session}", f"Location {answer.headers}")
        check(first["id"] == first["profileId"] == first["sessionId"], "ids differ")
        check(first["status"] == "running" and first["requestedDurationSeconds"] == 600, f"{first}")
        check(first["completedAt"] is None and first["flameGraphUrl"] is None, "a running session with an end")
        run_for(process, 2)
        partial = daemon.get(f"{FAMILY_A}/{session}").json()
        check(partial["status"] == "running" and partial["sampleCount"] > 50, f"partial: {partial}")
        check(set(SHARES) <= set(shares(partial)), f"partial: {shares(partial)}")
        check(partial["durationSeconds"] >= 1, f"time so far: {partial['durationSeconds']}")
        check(sum(v for _, v in daemon.folded(session)) >= partial["totalValue"], "partial flame graph")
        later = wait_until(lambda: (r := daemon.get(f"{FAMILY_A}/{session}").json())["sampleCount"]
                           > partial["sampleCount"] and r, 60, "more samples")
        check(later["totalValue"] > partial["totalValue"], "the total did not grow")
        result = daemon.stop_profile(session)
        check(result["status"] == "completed" and result["stoppedEarly"] is True, f"{result}")
        check(result["sampleCount"] >= later["sampleCount"], "samples were lost at the end")
        times = [datetime.datetime.fromisoformat(result[m].replace("Z", "+00:00"))
                 for m in ("createdAt", "startedAt", "completedAt")]
        check(times == sorted(times) and all(TIME.match(result[m]) for m in ("createdAt", "completedAt")),
              f"times {times}")
        check(abs((times[2] - times[1]).total_seconds() - result["durationSeconds"]) <= 1, "durationSeconds")
        for function, share in SHARES.items():
            got = shares(result)[function]
            check(abs(got - share) * 100 <= 2 + band(share, result["sampleCount"]), f"{function}: {got}")
        page = daemon.get(result["flameGraphUrl"][result["flameGraphUrl"].index("/api"):])
        check(page.headers["Content-Type"].startswith("text/html"), "flameGraphUrl is no page")
        check(daemon.get(f"{FAMILY_B}/sessions/{session}").json()["id"] == session, "family B")
        check(daemon.request("DELETE", f"{FAMILY_A}/{session}").status == 204, "delete")
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/flamegraph"), ("GET", "/heatmap")):
            answer = daemon.request(method, f"{FAMILY_A}/{session}{path}")
            check(answer.status == 404 and answer.json()["error_code"] == "UnknownSession", f"{path}: {answer}")
        check(daemon.get(FAMILY_A + "/history").json()["total"] == 0, "deleted but in the history")


def history_pages():
    """Filters, and pages that neither repeat nor miss a session while others are added and deleted."""
    with units() as program, Daemon() as daemon, running(program), running("sha1sum", "/dev/zero", ready=False):
        service = os.path.basename(program)
        known(daemon, service)
        known(daemon, "sha1sum")

        def quick(name, **members):
            session = start(daemon, name, durationSeconds=1, **members).json()["id"]
            return daemon.finish_profile(session)["id"]

        added = []
        ids = []
        for _ in range(2):
            started = [start(daemon, s, durationSeconds=1).json()["id"] for s in (service, "sha1sum", "*")]
            ids += started
            for session in started:
                daemon.finish_profile(session)
        newest_first = sorted(ids, reverse=True)

        def page(query):
            return daemon.get(f"{FAMILY_A}/history?{query}").json()

        everything = page("")
        check([i["id"] for i in everything["items"]] == newest_first, "not newest first")
        check(everything["total"] == 6 and everything["nextCursor"] is None, f"{everything['total']}")
        mine = page(f"service={service}")
        check(mine["service"] == service and mine["total"] == 2, f"by service: {mine['total']}")
        check(all(i["service"] == service for i in mine["items"]), "another service's session")
        check(page("profileType=offcpu")["total"] == 0 and page("profileType=cpu")["total"] == 6, "by type")
        # A session is completed for its readers a moment before the store, which counts by status, has its end.
        wait_until(lambda: [page(f"status={status}")["total"] for status in ("running", "completed", "failed")] == [0, 6, 0], 10, "the store")
        middle = sorted(everything["items"], key=lambda i: i["createdAt"])[3]["createdAt"]
        check(page(f"from={middle}")["total"] == 3 and page(f"to={middle}")["total"] == 3, "by time")
        check(page(f"start={middle}&size=1")["total"] == 3, "aliases")
        check(len(page(f"start={middle}&size=1")["items"]) == 1, "size")

        seen, query = [], "limit=2"
        for step in range(10):
            answer = page(query)
            seen += [i["id"] for i in answer["items"]]
            if not answer["nextCursor"]:
                break
            query = f"limit=2&cursor={answer['nextCursor']}"
            if step == 0:
                added.append(quick(service))
                check(daemon.request("DELETE", f"{FAMILY_A}/{newest_first[1]}").status == 204, "delete")
        check(seen == newest_first, f"pages: {seen}, not {newest_first}")
        check(page("limit=1")["items"][0]["id"] == added[0], "the new one is not first")


def limits_of_running_sessions():
    with configured("[limits]\nrunning_sessions = 2\nrunning_sessions_host = 3\n") as daemon, units() as program:
        with running(program) as process:
            service = os.path.basename(program)
            known(daemon, service)
            session = start(daemon, service).json()["id"]
            busy = start(daemon, service, status=409).json()
            check(busy["error_code"] == "AlreadyRunning" and session in str(busy["details"]), f"{busy}")
            start(daemon, f"pid:{process.pid}")
            answer = start(daemon, "*", status=429)
            check(answer.json()["error_code"] == "TooManySessions", f"{answer}")
            check(int(answer.headers["Retry-After"]) >= 1, "no Retry-After")
            start(daemon, service, tenant="walnut")
            answer = start(daemon, "*", tenant="orchid", status=503)
            check(answer.json()["error_code"] == "AgentBusy", f"{answer}")
            check(int(answer.headers["Retry-After"]) >= 1, "no Retry-After")
            check(session not in answer.body.decode() and "walnut" not in answer.body.decode(), f"{answer}")
            daemon.stop_profile(session)
            start(daemon, service)
        metrics = daemon.get("/metrics").body.decode()
        check(re.search(r"^profd_\w*session\w*", metrics, re.M), "no metric of sessions")
        check("walnut" not in metrics and "orchid" not in metrics, "a tenant's name in the metrics")


def retries_with_a_key():
    with units() as program, Daemon() as daemon, running(program):
        service = os.path.basename(program)
        known(daemon, service)
        session = start(daemon, service, key="retry-1").json()["id"]
        check(start(daemon, service, key="retry-1").json()["id"] == session, "a retry made another session")
        start(daemon, service, key="retry-2", status=409)
        start(daemon, service, tenant="other", key="retry-1")
        changed = daemon.request("POST", FAMILY_A + "/start", {"service": service, "profileType": "offcpu"},
                                 {"Idempotency-Key": "retry-1"})
        check(400 <= changed.status < 500, f"one key for two requests: {changed}")
        daemon.stop_profile(session)
        check(start(daemon, service, key="retry-1").json()["id"] == session, "a late retry made another")
        check(daemon.get(FAMILY_A + "/history").json()["total"] == 1, "more than one session")


def waiting_for_a_service():
    with units() as program, Daemon() as daemon:
        service = os.path.basename(program)
        answer = start(daemon, service, status=404)
        check(answer.json()["error_code"] == "UnknownService", f"{answer}")
        session = start(daemon, service, waitSeconds=60, durationSeconds=2).json()
        check(session["status"] == "running" and session["startedAt"] is None, f"{session}")
        time.sleep(1)
        check(daemon.get(f"{FAMILY_A}/{session['id']}").json()["startedAt"] is None, "began without a process")
        with running(program):
            result = daemon.finish_profile(session["id"])
            check(result["status"] == "completed" and result["sampleCount"] > 20, f"{result}")
            check(2 <= lasted_ns(result) / 1e9 < 10, f"{result['startedAt']} to {result['completedAt']}")
        wait_until(lambda: start_refused(daemon, service), 60, "the end of the process to be seen")
        failed = start(daemon, service, waitSeconds=1, durationSeconds=1).json()["id"]
        result = daemon.finish_profile(failed)
        check(result["status"] == "failed" and result["failureReason"], f"{result}")


def kernel_threads():
    """They run and wait as others do, and have neither a heap nor stacks that could be read."""
    without = ("memory", "alloc", "goroutine")
    with Daemon() as daemon:
        known(daemon, "kernel")
        service = next(s for s in daemon.get("/api/v1/observability/services").json()["items"] if s["name"] == "kernel")
        for kind in service["profileTypes"]:
            check(kind["available"] == (kind["type"] not in without) and bool(kind["reason"]) != kind["available"], f"{kind}")
        for kind in without:
            answer = start(daemon, "kernel", status=422, profileType=kind).json()
            check(answer["error_code"] == "ProfileTypeUnavailable" and "kernel threads" in answer["detail"], f"{answer}")
        # nor do they take the places of programs that have one
        result = daemon.finish_profile(start(daemon, "*", profileType="alloc", durationSeconds=1).json()["id"])
        kernel = {process["pid"] for process in service["processes"]}
        about = [note for note in result["quality"]["notes"] if any(f"process {pid} " in note for pid in kernel)]
        check(not about, f"{about}")


def unknown_names():
    """A program that was found through a link is known by the link's name, and by its executable's. A request for what
    `ps` shows of a program that renamed itself is told which service that is."""
    rename = "import time\nopen('/proc/self/comm', 'w').write('renamed_one')\nprint('ready', flush=True)\ntime.sleep(600)\n"
    with units() as program, tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "linked_units")
        os.symlink(program, link)
        with running(link), running(sys.executable, "-c", rename) as renamed, Daemon() as daemon:
            interpreter = os.path.basename(os.readlink(f"/proc/{renamed.pid}/exe"))
            known(daemon, "linked_units")
            known(daemon, interpreter)
            answer = start(daemon, os.path.basename(program), durationSeconds=1).json()
            check(answer["service"] == "linked_units", f"{answer}")
            for asked, told in (("renamed_one", f"belongs to service '{interpreter}'"), ("nothing_like_it", "no service 'nothing_like_it'"),
                                ("pid:4194305", "no process 4194305"), ("port:1", "listens on TCP port 1")):
                answer = start(daemon, asked, status=404).json()
                check(answer["error_code"] == "UnknownService" and told in answer["detail"], f"{answer}")


def listens_late():
    """A port belongs to who listens on it when somebody asks, however long that process has been known."""
    port = free_port()
    program = ("import socket, sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n if line == 'open\\n':\n"
               f"  s = socket.create_server(('127.0.0.1', {port}))\n else:\n  s.close()\n print('done', flush=True)\n")
    with Daemon() as daemon, Counting(sys.executable, "-c", program) as first, Counting(sys.executable, "-c", program) as second:
        for process in (first, second):
            daemon.profile(process.service, 1, "wall")
        for process, other in ((first, None), (second, first)):
            if other:
                tell(other, "close")
            tell(process, "open")
            answer = start(daemon, f"port:{port}", durationSeconds=1, profileType="wall").json()
            result = daemon.finish_profile(answer["id"])
            check([p["pid"] for p in result["processes"]] == [process.pid], f"{process.pid}: {result}")


def tell(process, what):
    process.say(what)
    check(process.process.stdout.readline() == "done\n", f"{what} was not done")


def start_refused(daemon, service):
    answer = daemon.request("POST", FAMILY_A + "/start", {"service": service, "profileType": "cpu"})
    if answer.status == 202:
        path = f"{FAMILY_A}/{answer.json()['id']}"
        daemon.request("DELETE", path)
        wait_until(lambda: daemon.request("GET", path).json().get("status") != "running", 60, "its end")
        return False
    check(answer.status == 503 and answer.json()["error_code"] == "ServiceNotRunning", f"{answer}")
    check("Retry-After" in answer.headers, "503 without Retry-After")
    return True


def two_rates_of_one_program():
    """Sampled once at the higher rate, each session thinned to its own: totals and shares agree."""
    with units() as program, Daemon() as daemon, running(program) as process:
        service = os.path.basename(program)
        known(daemon, service)
        fast = daemon.start_profile(service, 600, rate=199)
        slow = daemon.start_profile(f"pid:{process.pid}", 600, rate=47)
        run_for(process, 6)
        results = [daemon.stop_profile(session) for session in (fast, slow)]
        fast, slow = results
        check(slow["sampleCount"] > 150, f"{slow['sampleCount']} samples")
        ratio = fast["sampleCount"] / slow["sampleCount"]
        check(3 < ratio < 6, f"{fast['sampleCount']} and {slow['sampleCount']} samples")
        for function, share in SHARES.items():
            for result in results:
                got = shares(result).get(function, 0)
                check(abs(got - share) * 100 <= 2 + band(share, result["sampleCount"]),
                      f"{function} at {result['sampleRate']}/s: {got}")
        rates = [r["totalValue"] / r["durationNanos"] for r in results]
        check(abs(rates[0] / rates[1] - 1) < 0.15, f"CPUs used: {rates}")


def tenants_see_their_own():
    with units() as program, Daemon() as daemon, running(program):
        service = os.path.basename(program)
        known(daemon, service)
        mine = start(daemon, service, tenant="red", durationSeconds=1).json()["id"]
        other = start(daemon, service, tenant="blue", durationSeconds=1, sampleRate=49).json()["id"]
        as_red, as_blue = {"X-Tenant-ID": "red"}, {"X-Tenant-ID": "blue"}
        wait_until(lambda: all(daemon.get(f"{FAMILY_A}/{s}", headers=h).json()["status"] == "completed"
                               for s, h in ((mine, as_red), (other, as_blue))), 60, "both to end")
        for path in ("", "/flamegraph?format=json", "/heatmap"):
            answer = daemon.request("GET", f"{FAMILY_A}/{mine}{path}", headers=as_blue)
            absent = daemon.request("GET", f"{FAMILY_A}/{mine[:-1] + ('0' if mine[-1] != '0' else '1')}{path}",
                                    headers=as_blue)
            check(answer.status == absent.status == 404, f"another tenant's: {answer}")
            check(answer.json()["error_code"] == absent.json()["error_code"], "told apart from an absent one")
        check(daemon.request("DELETE", f"{FAMILY_A}/{mine}", headers=as_blue).status == 404, "delete")
        check(daemon.request("GET", f"{FAMILY_A}/{mine}").status == 404, "seen by the default tenant")
        for headers, session in ((as_red, mine), (as_blue, other)):
            for path in (FAMILY_A + "/history", FAMILY_B + "/sessions"):
                answer = daemon.get(path, headers=headers).json()
                check([i["id"] for i in answer["items"]] == [session] and answer["total"] == 1, f"{answer}")
        check(daemon.get(f"{FAMILY_A}/{mine}", headers=as_red).json()["tenant"] == "red", "tenant")
        answer = daemon.request("POST", FAMILY_B + "/baselines", {
            "label": "x", "sessionId": mine, "profileType": "cpu"}, as_blue)
        check(answer.status == 404, f"baseline of another tenant's session: {answer}")
        answer = daemon.request("GET", f"{FAMILY_A}/compare?baseProfileId={other}&comparisonProfileId={mine}",
                                headers=as_blue)
        check(answer.status == 404, f"comparison with another tenant's session: {answer}")


def named(result):
    """The result, unless it says that names are still to come."""
    return None if any("names are still being read" in note for note in result["quality"]["notes"]) else result


def restarts_keep_sessions():
    """A clean stop, and an end by SIGKILL, in the middle of a session; completed ones stay as they were."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder, units() as program, running(program) as process:
        service = os.path.basename(program)
        daemon = Daemon(data_dir=folder).start()
        try:
            known(daemon, service)
            session = daemon.profile(service, seconds=2, rate=199)["id"]
            done = wait_until(lambda: named(daemon.get(f"{FAMILY_A}/{session}?top=1000").json()), 60, "all names")
            stacks = daemon.folded(session)
            baseline = daemon.request("POST", FAMILY_B + "/baselines", {
                "label": "kept", "sessionId": done["id"], "profileType": "cpu"})
            check(baseline.status == 200, f"baseline: {baseline}")
            for sig in (signal.SIGTERM, signal.SIGKILL):
                open_one = daemon.start_profile(service, 600)
                run_for(process, 1)
                least = wait_until(lambda s=open_one: (n := daemon.get(f"{FAMILY_A}/{s}").json()["sampleCount"]) > 50 and n,
                                   60, "samples")
                if sig == signal.SIGKILL:
                    time.sleep(11)  # what is older than the open window of 10 s is kept
                daemon.stop(sig)
                daemon.start()
                again = daemon.get(f"{FAMILY_A}/{done['id']}?top=1000").json()
                for member in ("status", "sampleCount", "totalValue", "durationSeconds", "completedAt", "labels",
                               "processes", "topFunctions"):
                    check(again[member] == done[member], f"{member} after {sig.name}: {again[member]}")
                check(daemon.folded(done["id"]) == stacks, f"stacks after {sig.name}")
                result = daemon.finish_profile(open_one)
                check(result["status"] == "completed" and result["sampleCount"] >= least, f"after {sig.name}: {result}")
                check(result["durationSeconds"] < 300, f"real duration: {result['durationSeconds']}")
                kept = daemon.get(f"{FAMILY_B}/baselines/{baseline.json()['baselineId']}").json()
                check(kept["baselineLabel"] == "kept", f"baseline after {sig.name}: {kept}")
        finally:
            daemon.stop()


def take(daemon, program, *arguments, seconds=7):
    with running(program, *arguments) as process:
        known(daemon, os.path.basename(program))
        session = daemon.start_profile(os.path.basename(program), 600, rate=499)
        run_for(process, seconds)
        return daemon.stop_profile(session)["id"]


def compare(daemon, base, comparison, options=""):
    answer = daemon.get(f"{FAMILY_A}/compare?baseProfileId={base}&comparisonProfileId={comparison}{options}").json()
    check(answer["baseProfile"] == base and answer["comparisonProfile"] == comparison, "identifiers")
    return answer


def regressions_of_known_programs():
    """Nothing between two runs of one program; the slower function and no other between two versions."""
    with units() as program, Daemon() as daemon:
        steady, again = take(daemon, program), take(daemon, program)
        slower = take(daemon, program, "hash_record", "2")
        critical = take(daemon, program, "hash_record", "5")

        same = compare(daemon, steady, again)
        check(same["regressions"] == [] and same["improvements"] == [], f"same program: {same}")
        check(same["verdict"] != "regressed" and same["unchanged"] >= 4, f"same program: {same['summary']}")

        # per unit of work it is what the programs used by the count that was given; per second what they used by the time
        used, lasted = zip(*((s["totalValue"], lasted_ns(s)) for s in (
            daemon.get(f"{FAMILY_A}/{session}").json() for session in (steady, again))))
        for pair, units_of, verdict in (((0, 1), (20, 10), "regressed"), ((1, 0), (10, 20), "improved")):
            base, other = pair
            per_unit = compare(daemon, (steady, again)[base], (steady, again)[other],
                               f"&baseUnits={units_of[0]}&comparisonUnits={units_of[1]}")
            said = re.match(r"([0-9.]+)× the CPU per unit of work \(([0-9.]+)× per second\), same composition: ", per_unit["summary"])
            check(per_unit["verdict"] == verdict and per_unit["cause"] is None and said, f"{per_unit['summary']}")
            ratio = used[other] / used[base]
            check(abs(float(said[1]) / (ratio * units_of[0] / units_of[1]) - 1) < 0.05, f"{said[0]}, should be of {used} and {units_of}")
            check(abs(float(said[2]) / (ratio * lasted[base] / lasted[other]) - 1) < 0.05, f"{said[0]}, should be of {used} and {lasted}")
            check(abs(per_unit["overallDelta"] / 100 + 1 - float(said[1])) < 0.006, f"{per_unit['overallDelta']}: {said[0]}")

        worse = compare(daemon, steady, slower)
        names = [r["funcName"] for r in worse["regressions"]]
        check(names == ["hash_record"], f"regressions {names}: {worse['summary']}")
        found = worse["regressions"][0]
        # eight deviations of 3,500 samples on each side: a busy host moves shares too
        check(abs(found["deltaPct"] - 13.3) < 8.5, f"delta {found['deltaPct']}, should be 13.3 points")
        low, high = found["confidenceInterval"]
        check(low <= found["deltaPct"] <= high and low > 0, f"interval {low}, {high}")
        check("hash_record" in worse["summary"], worse["summary"])
        better = compare(daemon, slower, steady)
        check([r["funcName"] for r in better["improvements"]] == ["hash_record"], f"{better['improvements']}")

        labels = []
        for label, session in (("v1", steady), ("v2", slower)):
            answer = daemon.request("POST", FAMILY_B + "/baselines", {
                "label": label, "sessionId": session, "profileType": "cpu", "tags": ["release"]})
            check(answer.status == 200, f"baseline: {answer}")
            labels.append(answer.json()["baselineId"])
        listed = daemon.get(FAMILY_B + "/baselines?tag=release").json()
        check([b["isLatest"] for b in listed["items"]] == [True, False], f"{listed}")
        check(daemon.request("DELETE", f"{FAMILY_A}/{steady}").status == 204, "delete")
        for session, severity in ((again, "NONE"), (slower, "WARNING"), (critical, "CRITICAL")):
            answer = daemon.request("POST", FAMILY_B + "/regression/check",
                                    {"baselineId": labels[0], "compareId": session})
            report = answer.json()
            check(answer.status == 200 and report["severity"] == severity, f"not {severity}: {answer}")
            check(report["regressionDetected"] is (severity != "NONE"), f"{report}")
            check(report["baselineLabel"] == "v1" and report["profileType"] == "cpu", f"{report}")
            check(daemon.get(f"{FAMILY_B}/regression/{report['reportId']}").json() == report, "read again")
        check([r["funcName"] for r in compare(daemon, labels[0], slower)["regressions"]] == ["hash_record"],
              "a baseline whose session is gone")
        trend = daemon.get(f"{FAMILY_B}/trend?profileType=cpu&funcName=hash_record").json()
        check([i["baselineLabel"] for i in trend["items"]] == ["v1", "v2"], f"trend {trend}")
        values = [i["value"] for i in trend["items"]]
        check(abs(values[0] - 20) < 5.5 and abs(values[1] - 33.3) < 6.5, f"trend {values}")
        answer = daemon.request("POST", FAMILY_B + "/diff", {"baseId": labels[0], "compareId": slower, "type": "cpu"})
        check(answer.status == 200 and answer.json()["functions"], f"diff: {answer}")


if __name__ == "__main__":
    main(life_of_a_session, history_pages, limits_of_running_sessions, retries_with_a_key, waiting_for_a_service, kernel_threads,
         unknown_names, listens_late, two_rates_of_one_program, tenants_see_their_own, restarts_keep_sessions, regressions_of_known_programs)
