#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""The page in Chromium against a running daemon, as a person uses it; and the page's modules under node."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import xml.dom.minidom

from browser import Site
from harness import BUILD, FAMILY_A, ROOT, Daemon, Failure, Skip, check, main, running, wait_until
from registry import npm

EVIL = '"><img src=x onerror=window.hacked=1> </script>\u202eevil'
AXE = "4.14.1"
FILE_LIMIT = 200 * 1024
BUSY = "import time\nprint('ready', flush=True)\ndef hot_loop():\n while True: pass\nhot_loop()\n"


def busy(name):
    return running(sys.executable, "-c", BUSY, env={"OTEL_SERVICE_NAME": name})


def known(daemon, name):
    def there():
        items = daemon.get("/api/v1/observability/services").json()["items"]
        return any(s["name"] == name for s in items)
    wait_until(there, 60, f"service {name}")


# Three processes on one CPU: two of one name take it from each other, and two threads of the third wait, and wait again for the CPU.
WORKERS = """
import ctypes, os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
heard, told = os.pipe()
def called(name):
 with open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w') as f: f.write(name)
 os.write(told, b'.')
def hog():
 while True: pass
def patient():
 os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
 while True: time.sleep(.001)
def second():
 called('page-second')
 patient()
def both():
 threading.Thread(target=second).start()
 patient()
for name, work in (('page-hog', hog), ('page-patient', both)):
 if not os.fork():
  ctypes.CDLL(None).prctl(1, 9)
  called(name)
  work()
called('page-hog')
for _ in range(4): os.read(heard, 1)
print('ready', flush=True)
hog()
"""


GRAPH = "document.querySelector('.graph')?.dataset.final === 'true' && !document.querySelector('.graph').hidden"


def modules_under_node():
    node = shutil.which("node")
    if not node:
        raise Skip("node is not installed")
    done = subprocess.run([node, "--test", "test/"], cwd=os.path.join(ROOT, "api/ui"), capture_output=True, text=True,
                          timeout=120)
    check(done.returncode == 0, done.stdout[-3000:])


def from_the_list_to_the_graph():
    with Daemon() as daemon, busy("page-test"), Site(daemon) as page:
        known(daemon, "page-test")
        page.visit("/status", "document.querySelector('.card')")
        check("bpf_loop" in page.text(), "the kernel's features and what replaces them")
        page.send("Fetch.enable", {"patterns": [{"urlPattern": "*sparkline=cpu*"}]})
        page.key("/")  # from any page to where services are found
        page.wait("location.pathname === '/' && document.activeElement?.type === 'search'", "the search of services")
        page.wait("[...document.querySelectorAll('.name')].some(a => a.textContent === 'page-test')", "the service")
        page.wait("document.querySelector('.spark path')?.getAttribute('d').includes('L')", "a line of the last hour")
        page.wait("document.querySelector('.foot')?.textContent.includes('lost')", "what profd itself costs")
        page.shoot("services")
        page.send("Fetch.disable")
        # with keys alone to a profile
        page.type("page-te")
        check(page.run("document.querySelectorAll('.list tbody tr').length") == 1, "the filter leaves one")
        page.tab_to("e.className === 'name'", "the service")
        page.key("Enter")
        page.wait("location.pathname === '/s/page-test' && document.querySelector('form.fields')", "the service's page")
        page.tab_to("e.name === 'seconds'", "the seconds")
        page.run("document.activeElement.select()")
        page.type("600")
        page.key("Enter")
        page.wait("location.pathname.startsWith('/p/') && document.querySelector('[role=progressbar]')", "progress")
        session = page.run("location.pathname.split('/').pop()")
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["durationSeconds"] >= 2, 60, "two seconds")
        page.press("Stop and keep")
        page.wait(GRAPH, "the result, without a reload")
        page.shoot("profile")
        check("CPU time" in page.text(".lead"), page.text(".lead"))
        check("samples" in page.text(".quality"), "the quality line")
        rows = page.run("document.querySelectorAll('.functions tbody tr').length")
        check(rows > 3, f"{rows} functions")
        page.run("(i => { i.value = '_PyEval_EvalFrameDefault'; i.dispatchEvent(new Event('input')); })(document.querySelector('.query'))")
        page.wait("/%/.test(document.querySelector('.hits').textContent) && /function/.test(document.querySelector('.hits').textContent)", "the hits")
        page.key("Escape")
        page.run("document.querySelector('.query').blur()")
        page.run("document.querySelector('.tree').focus()")
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            page.key(key)
        page.wait("location.hash.includes('z=')", "the zoom in the address")
        link, path = page.run("location.href"), page.text(".path")
        page.key("Escape")
        page.key("Escape")
        page.wait("!location.hash.includes('z=')", "Escape to go out")
        page.send("Page.navigate", {"url": "about:blank"})
        page.open(link)
        page.wait(GRAPH, "the linked view")
        check(page.text(".path") == path, f"the link shows {page.text('.path')}, not {path}")
        label = page.run("document.getElementById(document.querySelector('.tree').getAttribute('aria-activedescendant')).getAttribute('aria-label')")
        check("percent" in label or "%" in label, f"the reader hears {label}")
        page.run("document.querySelector('.tree').focus()")
        page.key("i")
        page.wait("document.querySelector('dialog.source-lines[open] tbody td')", "the lines of the selected function")
        check("Self" in page.text("dialog.source-lines") and "%" in page.text("dialog.source-lines tbody"), page.text("dialog.source-lines"))
        page.key("Escape")
        page.wait("!document.querySelector('dialog.source-lines[open]')", "Escape to close them")
        result = daemon.get(f"{FAMILY_A}/{session}").json()
        check(f"{result['quality']['samples']:,} samples" in page.text(".quality"), "the page and the API agree")

        page.run("[...document.querySelectorAll('summary')].find(s => s.textContent.includes('heat map')).click()")
        page.wait("document.querySelector('.heat')", "the heat map")
        click_the_heat_map(page)
        page.wait(GRAPH, "the graph of a part of a second")
        page.run("history.back()")
        page.wait("!location.search.includes('from=') && document.querySelector('.graph')?.dataset.final === 'true'", "the whole profile again")
        page.run("[...document.querySelectorAll('summary')].find(s => s.textContent.includes('heat map')).click()")
        page.wait("document.querySelector('.heat')", "the heat map again")
        page.run("(f => { f.querySelectorAll('input')[1].value = '1'; f.requestSubmit(); })(document.querySelector('.heat').closest('details').querySelector('form'))")
        page.wait("location.search.includes('from=') && location.search.includes('to=')", "the time in the address")
        page.wait(GRAPH, "the graph of one second")
        check("Show all" in page.text(), "it says that it is a part")
        page.run("(s => { s.value = 'thread'; s.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label=\"Group by\"]'))")
        page.wait("location.search.includes('groupBy=thread')", "the grouping in the address")
        page.wait(GRAPH, "the grouped graph")
        whole = page.run("[...document.querySelectorAll('a')].find(a => a.textContent === 'Show all').search")
        check("groupBy=thread" in whole and "from=" not in whole and "to=" not in whole, f"all of it: {whole}")
        page.clean()
        svg = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=svg").body
        check(len(svg) <= FILE_LIMIT and xml.dom.minidom.parseString(svg).documentElement.tagName == "svg", f"{len(svg)} bytes of SVG")
        saved = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=html").body
        check(len(saved) <= FILE_LIMIT, f"the page in one file has {len(saved)} bytes")
        with tempfile.NamedTemporaryFile(suffix=".html") as file:
            file.write(saved)
            file.flush()
            page.requests.clear()
            page.open("file://" + file.name)
            page.wait("document.documentElement?.dataset.ready === 'true'", "the file without a daemon")
            check(page.text(".functions tbody td"), "its table")
            page.settle()
            asked = [u for u in page.requests if not u.startswith(("file:", "data:", "about:"))]
            check(not asked and not page.errors, f"it asks for {asked}, {page.errors}")


def group_by(page, what):
    """Divides the graph and gives what it is divided into: {name of a frame below the root: its share in %}."""
    page.run(f"(s => {{ s.value = '{what}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('[aria-label=\"Group by\"]'))")
    page.wait(f"location.search.includes('groupBy={what}') && {GRAPH}", f"the graph by {what}")
    labels = page.run("[...document.querySelectorAll('[role=treeitem][aria-level=\"2\"]')].map(e => e.getAttribute('aria-label').replace(/\\u00a0/g, ' '))")
    parts = [re.match(r"(.*), (?:< )?([\d.]+) % of time off CPU, self ", label).groups() for label in labels]
    check(abs(sum(float(share) for _, share in parts) - 100) < 1, f"by {what} they are not the whole: {parts}")
    return {name: float(share) for name, share in parts}


def by_whom_and_in_which_state():
    with running(sys.executable, "-c", WORKERS, env={"OTEL_SERVICE_NAME": "page-split"}) as workers, Daemon() as daemon, Site(daemon) as page:
        known(daemon, "page-split")
        session = daemon.start_profile("page-split", 600, "offcpu", rate=999)

        def off_cpu():
            return daemon.get(f"{FAMILY_A}/{session}").json().get("breakdown", {}).get("state", {})

        wait_until(lambda: len(off_cpu()) == 3, 60, "time in all three states")
        daemon.stop_profile(session)
        page.visit(f"/p/{session}", GRAPH)
        check(re.search(r"[\d.]+ % blocked \(sleep .*% on the run queue · [\d.]+ % preempted", page.text()), page.text()[:900])
        # the program's own function, none of the kernel's scheduler
        said = page.run("document.querySelector('main .lead').textContent").replace("\u00a0", " ")
        own = daemon.get(f"{FAMILY_A}/{session}").json()["ownFunctions"][0]
        check(f"Most in {own['funcName']} (" in said and own["package"] != "kernel", f"{said}: {own}")
        page.shoot("offcpu")
        pids = {p["pid"]: p for s in daemon.get("/api/v1/observability/services").json()["items"] if s["name"] == "page-split" for p in s["processes"]}
        check(len(pids) == 3 and workers.pid in pids, pids)
        check(set(group_by(page, "process")) == {"page-hog", "page-patient"}, "by name of the process")
        each = group_by(page, "pid")
        check(sorted(name.split()[0] for name in each) == ["page-hog", "page-hog", "page-patient"] and {int(re.search(r"\((\d+)\)$", name)[1]) for name in each} == set(pids), f"each process: {each}")
        check(set(group_by(page, "thread")) == {"page-hog", "page-patient", "page-second"}, "by name of the thread")
        threads = group_by(page, "tid")
        check(len(threads) == 4 and f"page-hog ({workers.pid})" in threads and any(t.startswith("page-second (") for t in threads), f"each thread: {threads}")
        states, sums = group_by(page, "state"), off_cpu()
        for state, value in sums.items():
            check(abs(states[state] - 100 * value / sum(sums.values())) < 0.1, f"{states}, the API says {sums}")
        page.shoot("offcpu-by-state")
        # by keys: each arrow is a change of the closed list, and none of them leads away
        page.run("document.querySelector('[aria-label=\"Group by\"]').focus()")
        page.key("ArrowUp")
        page.settle()
        check("groupBy=state" in page.run("location.search") and page.run("document.activeElement.value") == "tid", page.run("location.href"))
        page.key("Enter")
        page.wait(f"location.search.includes('groupBy=tid') && {GRAPH}", "Enter to choose")
        page.clean()


def stopping_keeps_what_there_is():
    with Daemon() as daemon, busy("page-stop"), Site(daemon) as page:
        known(daemon, "page-stop")
        session = daemon.start_profile("page-stop", seconds=600, rate=9)  # 200 samples, as many as a graph takes, are far away
        page.visit(f"/p/{session}")
        page.wait("/^Running: .* left, .* sample/.test(document.querySelector('main .lead').textContent)", "the state in words")
        page.wait("document.querySelector('[aria-label=\"Top functions so far\"] tbody tr')", "what is known so far")
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.send("Network.emulateNetworkConditions", offline)
        page.wait("document.querySelector('.note.warn:not([hidden])')?.textContent.includes('does not answer')", "words for a daemon that is away")
        page.send("Network.emulateNetworkConditions", {**offline, "offline": False})
        page.wait("!document.querySelector('.note.warn:not([hidden])')", "it to be back")
        page.press("Stop and keep")
        page.wait(GRAPH, "the result")
        check("stopped early" in page.text(), "it says that it was stopped")
        # one that ended since the page looked is kept, too
        second = daemon.start_profile("page-stop", seconds=600)
        page.visit(f"/p/{second}")
        page.wait("window.stop2 = [...document.querySelectorAll('main button')].find(b => b.textContent === 'Stop and keep')", "the button")
        daemon.stop_profile(second)
        page.run("window.stop2.click()")
        page.wait("[...document.querySelectorAll('main button')].some(b => b.textContent === 'Delete')", "the end")
        page.settle()
        daemon.get(f"{FAMILY_A}/{second}")
        page.visit(f"/p/{session}", GRAPH)
        # keys that lead to another page are none of the graph, as one finds it when one comes back
        page.run("document.querySelector('.tree').focus()")
        page.key("g")
        page.key("c")
        page.wait("location.pathname === '/compare'", "g c")
        page.run("history.back()")
        page.wait(GRAPH, "the profile again")
        check(not page.run("document.querySelector('.chip')") and page.run("location.hash") == "", page.text(".path"))
        # the graph comes late, and nothing that belongs to it is lost
        page.send("Network.setBlockedURLs", {"urls": ["*format=flame*"]})
        page.visit(f"/p/{session}", "document.querySelector('.note.warn:not([hidden])')")
        page.send("Network.setBlockedURLs", {"urls": []})
        page.wait(GRAPH, "the graph in the end")
        check("heat map" in page.text(), page.text()[:400])
        page.clean(expected=("ERR_INTERNET_DISCONNECTED", "ERR_BLOCKED_BY_CLIENT"))


def continuous_in_words():
    """The page of a running span has no button "Stop and keep", whose call would delete the
    span."""
    with Daemon() as daemon, busy("page-span"), Site(daemon) as page:
        known(daemon, "page-span")
        put = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*", "profileTypes": ["cpu"], "retentionDays": 1})
        check(put.status == 200, f"{put}")
        page.visit("/s/page-span", "document.querySelector('form[aria-label=\"Continuous profiling\"]')")
        words = page.run("document.querySelector('form[aria-label=\"Continuous profiling\"]').closest('details').querySelector('summary').textContent")
        check(words == "Continuous profiling is on for all services: cpu at 19 Hz, kept 1 day", words)
        # what is opened and where the focus is outlives the next look at the daemon
        process = "[...document.querySelectorAll('summary')].find(s => s.textContent === '1 process')"
        page.wait(process, "its process")
        page.run(f"(s => {{ s.click(); s.focus(); s.dataset.old = '1'; }})({process})")
        page.run("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait(f"!{process}.dataset.old", "the next look")
        check(page.run(f"{process}.parentElement.open && document.activeElement === {process}"), "closed under the reader's eyes")
        spans = FAMILY_A + "/history?service=page-span&status=running&limit=1"
        span = wait_until(lambda: daemon.get(spans).json()["items"], 60, "the span under way")[0]["id"]
        page.visit(f"/p/{span}")
        page.wait("document.querySelector('[role=progressbar]')", "the span under way")
        check("Stop and keep" not in page.text(), "nothing that would delete it under another name")
        page.wait("document.querySelector('main').textContent.includes('ends by itself')", "how it ends, in words")
        check(page.run("[...document.querySelectorAll('main a')].find(a => a.textContent === 'on the page of the service').pathname") == "/s/page-span", "where it is switched off")
        # what a goroutine session finds comes when it is over, without a reload
        session = daemon.start_profile("page-span", seconds=4, kind="goroutine")
        page.visit(f"/g/{session}")
        page.wait("document.querySelector('main .lead').textContent.startsWith('It still runs')", "that it runs")
        page.wait("document.querySelector('main .lead').textContent.includes(' in 1 stack')", "its stacks")
        page.clean(expected=("404", "409"))


def hostile_service_name():
    with Daemon() as daemon, busy(EVIL), Site(daemon) as page:
        known(daemon, EVIL)
        page.visit("/")
        page.wait("[...document.querySelectorAll('.name')].some(a => a.textContent.includes('onerror'))", "the name as text")
        check("\\u{202e}" in page.text(".list"), "direction marks are shown, not obeyed")
        check(page.run("document.images.length") == 0, "a name became an element")
        # one button takes a profile
        page.run("[...document.querySelectorAll('.list tbody tr')].find(r => r.textContent.includes('onerror')).querySelector('button').click()")
        page.wait("location.pathname.startsWith('/p/') && document.querySelector('[role=progressbar]')", "progress")
        session = page.run("location.pathname.split('/').pop()")
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 0, 60, "a sample")
        page.press("Stop and keep")
        page.wait(GRAPH, "the result")
        for path in (f"/p/{session}", "/s/" + urllib.parse.quote(EVIL, safe=""), "/compare?base=" + urllib.parse.quote(EVIL)):
            page.visit(path)
            page.settle()
            check(page.run("document.images.length") == 0, f"{path}: a name became an element")
        page.clean()


def comparison_and_baseline():
    with Daemon() as daemon, busy("page-cmp"), Site(daemon) as page:
        known(daemon, "page-cmp")
        first, second = (daemon.profile("page-cmp", seconds=2)["id"] for _ in range(2))
        page.visit(f"/compare?base={first}&cmp={second}")
        page.wait("document.querySelector('.explorer')?.dataset.ready", "the differential graph")
        check(page.run("document.querySelector('.verdict').textContent.toLowerCase()") in ("unchanged", "not enough data"), page.text(".verdict"))
        check("Change" in page.text(".functions thead"), "the table shows the change")
        check("Orange frames gained share, blue ones lost" in page.text(), "what the colours mean")
        page.shoot("comparison")
        page.visit(f"/compare?base={first}&cmp={second}", "document.querySelector('.verdict')")
        page.run("[...document.querySelectorAll('main a')].find(a => a.textContent === 'Swap').click()")
        page.wait(f"location.search.includes('base={second}') && document.querySelector('.verdict')", "the sides the other way round")
        # a page is given so many frames; of the rest one frame with a name, until one click brings them
        page.few_frames()
        page.visit(f"/p/{first}", GRAPH)
        few = page.frames()
        page.send("Fetch.disable")
        page.run("[...document.querySelectorAll('.bar a')].find(a => /^Load \\d+ small frames too$/.test(a.textContent)).click()")
        page.wait("location.search.includes('maxNodes=') && " + GRAPH, "the graph of all")
        check(page.frames() > few and "small frames" not in page.text(), f"{few} frames, then {page.frames()}")
        page.press("Keep as baseline")
        page.run("(() => { document.querySelector('dialog[open] input').value = 'v1'; document.querySelector('dialog[open] button').click(); })()")
        page.wait("location.pathname === '/baselines' && document.querySelector('.card')", "the baseline")
        page.press("Check a profile against it")
        page.wait("document.querySelector('.card form')", "the form")
        page.press("Check")
        page.wait("document.querySelector('.card .verdict')", "the verdict")
        # two seconds are not enough to say that nothing became slower
        check(page.text(".card .verdict") == "not enough data" and not page.run("document.querySelector('.card .note.good')"), page.text(".card"))
        page.run("[...document.querySelectorAll('.card a')].find(a => a.textContent === 'Open the comparison').click()")
        page.wait("location.search.includes('base=bl-') && document.querySelector('.verdict')", "a baseline on one side")
        page.visit("/trend?type=cpu&function=_PyEval_EvalFrameDefault&service=page-cmp")
        page.wait("document.querySelector('.chart canvas')", "the chart")
        check(page.run("document.querySelectorAll('[aria-label=Values] tbody tr').length") == 1, "one baseline, one row")
        answer = daemon.request("POST", "/api/v1/profiling/baselines", {"label": "v2", "sessionId": second, "profileType": "cpu"})
        check(answer.status == 200, f"{answer}")
        page.visit("/trend?type=cpu&function=_PyEval_EvalFrameDefault&service=page-cmp")
        page.wait("document.querySelector('.chart canvas')", "the chart")
        shown = page.run("[...document.querySelectorAll('[aria-label=Values] tbody tr')].map(r => r.querySelector('a').textContent).join()")
        check(shown == "v1,v2", f"oldest first: {shown}")
        page.short_lists()
        page.visit("/baselines", "document.querySelectorAll('.card').length === 2")
        # the last profile of each service, also where the newest are all of others
        daemon.start_profile("*", seconds=600)
        page.visit("/", f"document.querySelector('.list a[href=\"/p/{second}\"]')")
        page.send("Fetch.disable")
        page.clean()


def click_the_heat_map(page):
    """A cell of its last row. How far down it is depends on what stands above; what still loads there moves it: then again."""
    def clicked():
        try:
            if page.run("/from=.*to=/.test(location.search)"):
                return True
            page.run("document.querySelector('.heat').scrollIntoView({ block: 'center' })")
            page.settle()
            page.click(*page.run("(r => [r.left + r.width / 4, r.bottom - 2])(document.querySelector('.heat').getBoundingClientRect())"))
            page.settle()
        except Failure:  # the page is just being left
            pass
        return False
    wait_until(clicked, 120, "the time of a cell in the address")


CHART = "document.querySelector('.u-over')"


def drag_over_the_chart(page):
    """From its one end to the other. What still loads above it moves it: then it is tried again."""
    def dragged():
        try:
            box = page.run(f"(r => r && [r.left + 3, r.right - 3, r.top + r.height / 2])({CHART}?.getBoundingClientRect())")
            if box:
                for kind, x in (("mouseMoved", box[0]), ("mousePressed", box[0]), ("mouseMoved", (box[0] + box[1]) / 2), ("mouseMoved", box[1]), ("mouseReleased", box[1])):
                    page.send("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": box[2], "clickCount": 1, "button": "left"})
            page.settle()
            return page.run("location.search.includes('start=')")
        except Failure:  # the page is just being left
            return False
    wait_until(dragged, 120, "the time in the address")


def choose_newest(page):
    page.run("document.querySelector('[aria-label=\"Cost over time\"] button').click()")
    page.wait("location.search.includes('start=')", "the time in the address")


def continuous_and_two_times():
    """One click switches continuous profiling on; a time chosen on the time line is a graph, two are a comparison."""
    with Daemon() as daemon, busy("page-on"), Site(daemon) as page:
        known(daemon, "page-on")
        page.visit("/s/page-on", "document.querySelector('main form')")
        page.wait("[...document.querySelectorAll('main summary, main button')].some(b => /[Cc]ontinuous/.test(b.textContent))", "the switch")
        page.press("Switch continuous profiling on")
        wait_until(lambda: any(c["service"] == "page-on" for c in daemon.get(FAMILY_A + "/continuous").json()["items"]), 20, "it to be on")
        for _ in range(2):  # what is on demand is history too
            daemon.profile("page-on", seconds=2)
        page.run("[...document.querySelectorAll('.tabs a')].find(a => a.textContent === 'offcpu').click()")
        page.wait("location.search.includes('type=offcpu') && document.querySelector('main').textContent.includes('No offcpu profile')", "another type")
        page.visit("/s/page-on?from=-1h", CHART)
        drag_over_the_chart(page)
        page.wait("document.querySelector('.explorer')?.dataset.ready", "the graph of that time")
        check("CPU time" in page.text(), "the first sentence of the window")
        start = page.run("new URLSearchParams(location.search).get('start')")
        page.shoot("service")
        for key, comes in (("[", f"!== {json.dumps(start)}"), ("]", f"=== {json.dumps(start)}")):
            page.key(key)
            page.wait(f"new URLSearchParams(location.search).get('start') {comes} && document.documentElement?.dataset.ready === 'true'", f"{key} to walk in time")
        page.wait("document.querySelector('.explorer')?.dataset.ready", "the graph of that time again")
        # a time without data says so and leads on; another type is not asked for this one's values
        page.visit("/s/page-on?from=-1h&value=samples&groupBy=process&start=2026-01-01T00:00:00Z&end=2026-01-01T00:01:00Z", "document.querySelector('.tabs a')")
        page.wait("[...document.querySelectorAll('main a')].some(a => a.textContent.startsWith('The nearest after'))", "a way to what there is")
        check("Nothing is stored" in page.text() and all(f">{word}<" in page.run("document.querySelector('main').innerHTML") for word in ("Earlier", "Later", "Close")), page.text()[:600])
        check("value" not in page.run("[...document.querySelectorAll('.tabs a')].find(a => a.textContent === 'wall').search"), "another type's values")
        page.run("[...document.querySelectorAll('main a')].find(a => a.textContent.startsWith('The nearest after')).click()")
        page.wait("!location.search.includes('2026-01-01') && document.querySelector('.explorer')?.dataset.ready", "the graph of the nearest time")
        page.visit("/s/page-on?" + urllib.parse.urlencode({"from": "-1h", "groupBy": "none", "start": start, "end": "2100-01-01T00:00:00Z"}), "document.querySelector('.explorer')?.dataset.ready")
        page.catch_copies()
        page.key("L")
        page.wait("window.copied", "a link")
        check(daemon.request("GET", page.run("window.copied").split("#")[0].split(str(daemon.port))[1]).status == 200, "a link to a graph that is not grouped")
        page.key("x")
        page.wait("location.search.includes('base=') && document.querySelector('[aria-label=\"Cost over time\"] button')", "the base in the address")
        choose_newest(page)
        page.wait("[...document.querySelectorAll('main a')].some(a => a.textContent.startsWith('Compare with'))", "the second time")
        page.run("[...document.querySelectorAll('main a')].find(a => a.textContent.startsWith('Compare with')).click()")
        page.wait("location.pathname === '/compare' && document.querySelector('.verdict')", "the verdict")
        check(page.run("document.querySelector('.verdict').textContent.toLowerCase()") in ("unchanged", "not enough data"), page.text(".verdict"))
        page.wait("document.querySelector('.explorer')?.dataset.ready", "the differential graph")
        page.visit("/s/page-on?from=-1h", CHART)
        page.run("[...document.querySelectorAll('summary')].find(s => s.textContent === 'Heat map of this time').click()")
        page.wait("document.querySelector('.heat')", "the heat map of the hour")
        page.press("Open the hottest cell")
        page.wait("location.search.includes('start=') && document.querySelector('.explorer')?.dataset.ready", "the graph of that minute")
        check(page.run("(q => Date.parse(q.get('end')) - Date.parse(q.get('start')))(new URLSearchParams(location.search))") == 60000, "a cell is a minute")
        page.clean(expected=("404",))  # a minute without a profile, as it may come on the walk in time


def options_of_a_type():
    """The form offers the options of the chosen type. The session has the one that was chosen, and so has the next one."""
    form = "document.querySelector('form[aria-label=\"Start a profile\"]')"
    with Daemon() as daemon, busy("page-options"), Site(daemon) as page:
        known(daemon, "page-options")
        page.visit("/s/page-options", form)
        for kind, options in (("cpu", ""), ("offcpu", "wakers"), ("mutex", "wakers,kernelLocks"), ("goroutine", "tasks"),
                              ("io", "wakers,paths")):
            page.run(f"(t => {{ t.value = '{kind}'; t.dispatchEvent(new Event('change')); }})({form}.type)")
            shown = page.run(f"[...{form}.querySelectorAll('label.check')].filter(l => l.checkVisibility()).map(l => l.querySelector('input').name).join()")
            check(shown == options, f"{kind}: {shown}")
        page.run(f"{form}.paths.click(); {form}.seconds.value = '2'; {form}.requestSubmit()")
        for number in range(2):
            page.wait("location.pathname.startsWith('/p/') && [...document.querySelectorAll('button')].some(b => b.textContent === 'Profile again')",
                      "the session's end")
            session = page.run("location.pathname.split('/').pop()")
            taken = daemon.get(f"{FAMILY_A}/{session}").json()
            check(taken["options"] == ["paths"] and taken["profileType"] == "io", f"session {number}: {taken['options']}")
            if number == 0:
                page.press("Profile again")
                page.wait(f"location.pathname.startsWith('/p/') && !location.pathname.includes('{session}')", "the next session")
        page.clean(expected=("404",))  # a profile without samples has no graph


def words_for_what_is_missing():
    with tempfile.TemporaryDirectory() as folder, Daemon("--socket", os.path.join(folder, "s")) as daemon, Site(daemon) as page:
        known(daemon, "kernel")
        page.visit("/", "document.querySelector('.name')")
        check(re.search(rf" of {os.cpu_count()} CPUs busy", page.text(".lead")) and not page.run("document.querySelector('.note.warn:not([hidden])')"), page.text()[:300])
        # what reads and writes without waiting has no time, and is not nothing
        with running("dd", "if=/dev/zero", "of=/dev/null", "bs=64k", ready=False) as process:
            session = daemon.profile(f"pid:{process.pid}", 1, "io")["id"]
        page.visit(f"/p/{session}", f"{GRAPH} && document.querySelector('main .lead').textContent.includes('iB of I/O in ')")
        check(page.run("document.querySelector('[aria-label=Value]').value") == "bytes", "the value that is shown")
        subprocess.run([os.path.join(BUILD, "profctl"), "--socket", os.path.join(folder, "s"), "stop", "--all"], check=True, capture_output=True)
        page.visit("/", "document.querySelector('.note.warn:not([hidden])')?.textContent.startsWith('Sampling was stopped by an administrator')")
        for path, word in (("/s/kernel?type=goroutine", "goroutine cannot be taken of this service now: "), ("/p/sess-00000000000000000000000000", "no such profile"),
                           ("/g/sess-00000000000000000000000000", "no such profile"), ("/s/nobody", "does not run"), ("/baselines", "No baseline yet"), ("/findings", "Nothing was found"), ("/settings", "administrators"),
                           ("/status", "costs"), ("/compare", "Choose two")):
            page.visit(path)
            page.wait(f"document.querySelector('main').textContent.includes({json.dumps(word)})", f"{path}: {word}")
        page.clean(expected=("404", "403"))


def first_key(path):
    """Made over the Unix socket, where the caller is who the kernel says."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        body = json.dumps({"name": "web", "role": "admin"})
        connection.sendall((f"POST /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["key"]


def sign_in_with_a_key():
    with tempfile.TemporaryDirectory() as folder, Daemon("--socket", os.path.join(folder, "s")) as daemon, busy("page-key"), Site(daemon) as page:
        path = os.path.join(folder, "s")
        key = first_key(path)
        page.visit("/status#q=kept", "location.pathname === '/sign-in' && document.querySelector('form')")
        page.run("document.querySelector('input').value = 'wrong'")
        page.press("Sign in")
        page.wait("document.querySelector('[role=alert]').textContent.includes('not known')", "the refusal in words")
        page.run(f"document.querySelector('input').value = {json.dumps(key)}")
        page.press("Sign in")
        page.wait("location.pathname === '/status' && location.hash === '#q=kept'", "the page that was asked for, with its fragment")
        page.visit("/settings")
        page.wait("document.querySelector('[aria-label=Keys]')", "the keys")
        page.run("(f => { f.querySelector('input').value = 'https://host/blob/{file}#L{line}'; f.requestSubmit(); })(document.querySelector('[aria-label=\"Source links\"]'))")
        check(key not in page.text(), "the key is shown once only, when it is made")
        page.run("""(f => { [f.querySelectorAll('input')[0].value, f.querySelectorAll('input')[1].value] = ['guest', 'guests']; f.requestSubmit(); })(
            document.querySelector('[aria-label="New key"]'))""")
        page.wait("document.querySelector('.key')", "the new key")
        guest = page.text(".key")
        check(page.run("document.cookie") == "", "script cannot read the cookie")
        # who may see several tenants stays with the one that the address names
        page.visit("/?tenant=guests")
        page.wait("document.querySelector('nav a')", "the header")
        check(page.run("[...document.querySelectorAll('header.top nav a')].every(a => new URL(a.href).searchParams.get('tenant') === 'guests')"), "the header's links")
        page.run("[...document.querySelectorAll('header.top nav a')].find(a => a.textContent === 'Baselines').click()")
        page.wait("location.pathname === '/baselines' && location.search === '?tenant=guests'", "baselines of the tenant")
        for path in ("/compare", "/trend"):
            page.visit(path + "?tenant=guests", "document.querySelector('main form')")
            check(page.run("new FormData(document.querySelector('main form')).get('tenant')") == "guests", f"the form of {path} leaves the tenant")
        theirs = {"headers": {"Authorization": "Bearer " + key, "X-Tenant-ID": "guests"}}
        own = daemon.request("POST", FAMILY_A + "/start", {"service": "*", "profileType": "cpu", "durationSeconds": 1}, **theirs).json()["id"]
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{own}", **theirs).json()["status"] == "completed", 60, "the tenant's profile")
        page.visit(f"/compare?base={own}&cmp={own}&tenant=guests", "document.querySelector('.explorer')?.dataset.ready")
        page.run("""HTMLAnchorElement.prototype.click = function () { window.download = this.href; };
            (s => { s.value = 'json'; s.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label="Download as"]'))""")
        path = page.run("window.download").split(str(daemon.port))[1]
        check(daemon.request("GET", path, headers={"Authorization": "Bearer " + key}).status == 200, f"a download of another tenant's: {path}")
        # a link for somebody without a key: this view, and nothing else
        shown = {"headers": {"Authorization": "Bearer " + key}}
        session = daemon.request("POST", FAMILY_A + "/start", {"service": "*", "profileType": "cpu", "durationSeconds": 1}, **shown).json()["id"]
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}", **shown).json()["status"] == "completed", 60, "the profile")
        page.visit(f"/p/{session}", GRAPH)
        page.run("document.querySelector('.tree').focus()")
        page.key("ArrowDown")
        page.key("Enter")
        page.wait("location.hash.includes('z=')", "a zoom")
        path = page.text(".path")
        page.catch_copies()
        page.key("L")
        page.wait("window.copied?.includes('sig=')", "the link")
        link = page.run("window.copied")
        page.send("Network.clearBrowserCookies")
        page.open(link)
        page.wait("document.documentElement?.dataset.ready === 'true'", "the page of the link")
        check(page.text(".path") == path, f"the link shows {page.text('.path')}, not {path}")
        page.visit(f"/p/{session}", "location.pathname === '/sign-in' && document.querySelector('form')")
        # another tenant's reader signs in and is told of no such profile
        page.run(f"document.querySelector('input').value = {json.dumps(guest)}")
        page.press("Sign in")
        page.wait("document.querySelector('main').textContent.includes('There is no such profile')", "the words of another tenant's profile")
        page.clean(expected=("401", "404"))


PAGES = (("/", "document.querySelector('.name')"), ("/p/{}", GRAPH), ("/s/page-phone", "document.querySelector('form')"),
         ("/baselines", "document.querySelector('h1')"), ("/status", "document.querySelector('.card')"), ("/settings", "document.querySelector('h2')"))


def phone_dark_and_keyboard():
    with Daemon() as daemon, busy("page-phone"), Site(daemon, width=400, height=800) as page:
        known(daemon, "page-phone")
        session = daemon.profile("page-phone", seconds=1, kind="wall")["id"]
        for path, ready in PAGES:
            page.visit(path.format(session), ready)
            page.settle()
            width, room = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            check(width <= room, f"{path} is {width} px wide, not {room}")
            if ready == GRAPH:
                page.run("[...document.querySelectorAll('summary')].find(s => s.textContent.startsWith('Threads:')).click()")
                page.wait("document.querySelector('[aria-label=Threads] tbody tr')", "where the threads' time went")
                check("Run queue" in page.text("[aria-label=Threads]"), page.text("[aria-label=Threads]"))
                page.run("[...document.querySelectorAll('summary')].find(s => s.textContent.startsWith('Threads:')).click()")
                page.run("(s => { s.value = 'state'; s.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label=\"Group by\"]'))")
                page.wait("location.search.includes('groupBy=state')", "the grouping in the address")
                page.wait(GRAPH + " && [...document.querySelectorAll('.functions td:first-child')].some(t => t.textContent === '[on CPU]')", "the time by state")
            page.shoot("phone" + path.replace("/", "-").format("profile"))
        # the same with letters twice as large
        page.send("Page.setFontSizes", {"fontSizes": {"standard": 32, "fixed": 26}})
        for path, ready in PAGES:
            page.visit(path.format(session), ready)
            page.settle()
            width, room, letters = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth, getComputedStyle(document.body).fontSize]")
            check(width <= room and letters == "28px", f"{path} is {width} px wide, not {room}, with letters of {letters}")
            cut = page.run("[...document.querySelectorAll('main button, main a, nav a, h1')].filter(e => e.checkVisibility() && e.clientWidth && (e.scrollWidth > e.clientWidth + 1 || e.clientHeight > 3 * e.clientWidth || e.getBoundingClientRect().right > document.documentElement.clientWidth)).map(e => e.textContent)")
            check(not cut, f"{path}: cut off: {cut}")
            page.shoot("large" + path.replace("/", "-").format("profile"))
        page.send("Page.setFontSizes", {"fontSizes": {"standard": 16, "fixed": 13}})
        light = page.picture()
        page.run("document.querySelector('.top .right button').click()")
        page.settle()
        check(page.picture() != light, "the theme changes the picture")
        page.visit("/status", "document.querySelector('.card')")
        check(page.run("document.documentElement.dataset.theme") == "dark", "the theme is kept")
        page.key("g")
        page.key("b")
        page.wait("location.pathname === '/baselines' && document.documentElement?.dataset.ready === 'true'", "g b")
        # letters can be switched off, and on again where no letter is needed for it
        page.key("?")
        page.run("document.querySelector('dialog.help[open] input').click()")
        page.key("Escape")
        page.key("?")
        check(not page.run("!!document.querySelector('dialog[open]')"), "a letter that is switched off")
        page.visit("/settings")
        check(page.run("document.querySelector('label.check input').checked") is False, "it is not remembered")
        page.run("document.querySelector('label.check input').click()")
        page.key("g")
        page.key("b")
        page.wait("location.pathname === '/baselines'", "g b again")
        page.clean(expected=("403",))


def barriers():
    """axe-core's WCAG 2.2 AA rules on every page, light and dark."""
    with open(os.path.join(npm(f"axe-core@{AXE}"), "node_modules/axe-core/axe.min.js")) as f:
        axe = f.read()
    with Daemon() as daemon, busy("page-axe"), Site(daemon) as page:
        known(daemon, "page-axe")
        first, second = (daemon.profile("page-axe", seconds=1)["id"] for _ in range(2))
        earlier, threads = [daemon.profile("page-axe", seconds=1, kind="goroutine")["id"] for _ in range(2)]
        daemon.request("POST", "/api/v1/profiling/baselines", {"label": "v1", "sessionId": first, "profileType": "cpu"})
        found = []

        def judge(theme, path, rules):
            wrong = page.run(f"""axe.run({{ runOnly: {json.dumps(rules)} }})
                .then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' +
                    (n.any[0] || n.all[0] || n.none[0])?.message).join(' | ')))""")
            found.extend(f"{theme} {path}: {w}" for w in wrong)

        for path, ready in (("/", "document.querySelector('.name')"), ("/s/page-axe", "document.querySelector('form')"),
                            (f"/p/{first}", GRAPH), (f"/g/{threads}", "document.querySelector('.stack')"),
                            (f"/compare?base={first}&cmp={second}", "document.querySelector('.explorer')?.dataset.ready"),
                            ("/baselines", "document.querySelector('.card')"), ("/findings", "document.querySelector('.note')"), ("/trend", "document.querySelector('form')"),
                            ("/status", "document.querySelector('.card')"), ("/settings", "document.querySelector('h2')"),
                            ("/sign-in", "document.querySelector('form')")):
            page.visit(path, ready)
            page.settle()
            if path == f"/g/{threads}":
                said = page.text()
                check("States" in said and "As many as in" in said and "All, by stack" in said, said[:600])
            page.run(axe + "; true")
            judge("light", path, ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"])
            page.run("document.querySelector('.top .right button').click()")
            page.settle()
            judge("dark", path, ["color-contrast"])  # all that another theme changes
            page.shoot("dark-" + (re.sub("[^a-z].*", "", path[1:]) or "services"))
            page.run("document.querySelector('.top .right button').click()")
        page.visit(f"/compare?base={earlier}&cmp={threads}", "document.querySelector('.verdict')")
        check("%" in page.text(".note .facts") and "per second" not in page.text(".note .facts"), f"a level has no second: {page.text('.note .facts')}")
        check(not found, "\n".join(found))
        page.clean()


if __name__ == "__main__":
    main(modules_under_node, from_the_list_to_the_graph, by_whom_and_in_which_state, continuous_in_words, stopping_keeps_what_there_is, hostile_service_name,
         comparison_and_baseline, continuous_and_two_times, options_of_a_type, words_for_what_is_missing, sign_in_with_a_key, phone_dark_and_keyboard, barriers)
