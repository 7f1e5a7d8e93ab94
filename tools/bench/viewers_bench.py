# SPDX-License-Identifier: Apache-2.0
"""The flame graph page beside speedscope, d3-flame-graph and Grafana's component: the same tree, in each one's own format,
in the same browser, in turns. Load: from navigation to the first frame on screen that shows the graph. Zoom: from the
click on a frame to the first frame on screen after it; printed beside it what the page worked until the end of that frame,
because a screen ticks every 17 ms."""

import functools
import http.server
import json
import os
import random
import shutil
import statistics
import threading

from browser import Page, Site
from harness import BUILD, FAMILY_A, Daemon, check, compile_workload, own_name, running, wait_until
from registry import npm, once, run_patiently
from test_flame_page import page_html

SPEEDSCOPE, D3_FLAME_GRAPH, D3 = "1.25.0", "5.0.0", "7.9.0"
# Its component takes 400 packages, one of them from no registry: a release of the same name stands in for it.
GRAFANA = {"private": True, "dependencies": {"@grafana/flamegraph": "13.0.1", "react": "18.3.1", "react-dom": "18.3.1",
                                             "react-table": "7.8.0"},
           "overrides": {"react-data-grid": "7.0.0-beta.47"}}
FOLDER = os.path.join(BUILD, "viewers")
SIZES = (10_000, 100_000, 500_000)
ROUNDS = 3
FIRST_PAGE_MS = 1000
WIDTH, HEIGHT = 1280, 800
FUNCTIONS = 5000

GRAFANA_PAGE = """
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, toDataFrame } from '@grafana/data';
import { FlameGraph } from '@grafana/flamegraph';
const doc = await (await fetch('grafana-' + location.hash.slice(1) + '.json')).json();
const data = toDataFrame({ fields: [{ name: 'level', values: doc.level }, { name: 'value', values: doc.value }, { name: 'self', values: doc.self },
    { name: 'label', type: 'enum', config: { type: { enum: { text: doc.names } } }, values: doc.label }] });
createRoot(document.getElementById('chart')).render(React.createElement(FlameGraph, { data, getTheme: () => createTheme(),
    disableCollapsing: true }));
"""
D3_PAGE = """<!doctype html><meta charset=utf-8><link rel=stylesheet href=d3-flamegraph.css><div id=chart></div>
<script src=d3.min.js></script><script src=d3-flamegraph.umd.min.js></script><script>
fetch('d3-' + location.hash.slice(1) + '.json').then(r => r.json()).then(data => d3.select('#chart').datum(data).call(
    flamegraph.default().width(1200).inverted(true).minFrameSize(1).transitionDuration(0)));
</script>"""

# name: (address of a size, true when the graph is there, kind of the event that zooms)
VIEWERS = {
    "profd": ("profd-{0}.html", "document.documentElement.dataset.ready === 'true'", "click"),
    "speedscope": ("speedscope/index.html#profileURL=/speedscope-{0}.json", "document.title.includes('viewers')", "dblclick"),
    "d3-flame-graph": ("d3.html#{0}", "document.querySelector('g.frame')", "click"),
    "Grafana": ("grafana.html#{0}", "document.querySelector('canvas')?.height > 200", "click"),
}
# The place of a frame of the second row.
SPOTS = {
    "profd": "(b => { const r = explorer.canvas.getBoundingClientRect(); return [r.left + b.left + b.width / 2, r.top + b.top + 8]; })(explorer.view.box(children(explorer.model, 0)[0]))",
    "speedscope": "[300, 190]",
    "d3-flame-graph": "(r => [r.left + r.width / 2, r.top + 8])([...document.querySelectorAll('g.frame')].map(g => g.getBoundingClientRect())"
                      ".sort((a, b) => a.top - b.top || b.width - a.width)[1])",
    "Grafana": "(r => [r.left + 100, r.top + 30])(document.querySelector('canvas').getBoundingClientRect())",
}


def tree(count):
    """A profile of `count` frames up to 111 deep: [(level, function, self)] in preorder, siblings by total."""
    rng, nodes, root = random.Random(count), 1, ({}, [0])
    while nodes < count:
        at, depth, shared = root, rng.randint(20, 110), rng.randint(0, 15)
        for level in range(depth):
            function = level if level < shared else rng.randint(0, FUNCTIONS - 1)
            if function not in at[0]:
                at[0][function] = ({}, [0])
                nodes += 1
            at = at[0][function]
        at[1][0] += rng.randint(1, 5)

    out = []

    def walk(node, function, level):
        out.append((level, function, node[1][0]))
        for child_function, child in sorted(node[0].items(), key=lambda item: -sums[id(item[1])]):
            walk(child, child_function, level + 1)

    sums = {}

    def add_up(node):
        sums[id(node)] = node[1][0] + sum(add_up(child) for child in node[0].values())
        return sums[id(node)]

    add_up(root)
    walk(root, FUNCTIONS, 0)
    return out


def name_of(function):
    return "all" if function == FUNCTIONS else f"module{function % 37}::function_{function}"


def totals_of(nodes):
    totals, below = [], {}
    for level, _, own in reversed(nodes):
        total = own + below.pop(level + 1, 0)
        below[level] = below.get(level, 0) + total
        totals.append(total)
    return totals[::-1]


def write(name, document):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as f:
        json.dump(document, f, separators=(",", ":"))


def write_profd(size, nodes, total):
    used = sorted({function for _, function, _ in nodes} - {FUNCTIONS})
    number = {function: k + 1 for k, function in enumerate(used)}
    number[FUNCTIONS] = 0
    names = ["", "all", *[name_of(function) for function in used]]
    count = len(used) + 1
    up = [0] + [nodes[i - 1][0] + 1 - nodes[i][0] for i in range(1, len(nodes))]
    quality = {"samples": total, "lost": 0, "truncatedPct": 0, "unknownFramePct": 0, "unwindErrors": {}, "notes": []}
    document = {"v": 1, "type": "cpu", "value": "cpu", "unit": "nanoseconds", "title": "viewers", "service": "viewers", "host": "h",
                "from": "2026-01-15T08:00:00.000Z", "durationSeconds": 10, "rate": True, "scale": 1000000, "total": total,
                "samples": total, "strings": names, "fn": {"name": list(range(1, count + 1)), "module": [0] * count,
                                                           "file": [0] * count, "line": [0] * count, "kind": [0] + [1] * (count - 1)},
                "node": {"fn": [number[function] for _, function, _ in nodes], "up": up, "self": [own for _, _, own in nodes]},
                "pruned": {"nodes": 0, "value": 0, "minTotal": 0}, "quality": quality}
    with open(os.path.join(FOLDER, f"profd-{size}.html"), "w", encoding="utf-8") as f:
        f.write(page_html(document))


def write_speedscope(size, nodes, totals):
    events, open_frames, at = [], [], 0
    for level, function, own in nodes:
        while len(open_frames) > level:
            events.append({"type": "C", "frame": open_frames.pop(), "at": at})
        events.append({"type": "O", "frame": function, "at": at})
        open_frames.append(function)
        at += own
    while open_frames:
        events.append({"type": "C", "frame": open_frames.pop(), "at": at})
    write(f"speedscope-{size}.json", {
        "$schema": "https://www.speedscope.app/file-format-schema.json", "name": "viewers", "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name_of(function)} for function in range(FUNCTIONS + 1)]},
        "profiles": [{"type": "evented", "name": "viewers", "unit": "nanoseconds", "startValue": 0, "endValue": totals[0],
                      "events": events}]})


def write_d3(size, nodes, totals):
    path = []
    for (level, function, _), total in zip(nodes, totals):
        del path[level:]
        node = {"name": name_of(function), "value": total, "children": []}
        if path:
            path[-1]["children"].append(node)
        path.append(node)
    write(f"d3-{size}.json", path[0])


def write_grafana(size, nodes, totals):
    write(f"grafana-{size}.json", {"level": [n[0] for n in nodes], "value": totals, "self": [n[2] for n in nodes],
                                   "label": [n[1] for n in nodes], "names": [name_of(f) for f in range(FUNCTIONS + 1)]})


def install_grafana(folder):
    with open(os.path.join(folder, "package.json"), "w", encoding="utf-8") as f:
        json.dump(GRAFANA, f)
    run_patiently(["npm", "install", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)


def bundle_grafana():
    """The component as one script; the button of a chat, which it imports and does not show, is left out."""
    modules = os.path.join(once(os.path.join(BUILD, "test-npm/grafana"), install_grafana), "node_modules")
    for name, text in (("grafana.jsx", GRAFANA_PAGE), ("assistant.js", "export const OpenAssistantButton = () => null;")):
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as f:
            f.write(text)
    run_patiently([os.path.join(BUILD, "ui-tools/node_modules/.bin/esbuild"), "grafana.jsx", "--bundle", "--minify", "--format=esm",
               "--outfile=grafana.js", "--loader:.woff2=empty", "--loader:.ttf=empty", "--alias:@grafana/assistant=./assistant.js",
               # its .mjs files import the default of CommonJS modules, which bundlers read as node does: the whole module
               "--alias:@grafana/flamegraph=" + os.path.join(modules, "@grafana/flamegraph/dist/cjs/index.cjs"),
               "--define:process.env.NODE_ENV=\"production\"", "--define:global=window", "--log-level=error"],
              cwd=FOLDER, env=dict(os.environ, NODE_PATH=modules))


def prepare():
    """The viewers from npm and the data of each size, below build/."""
    os.makedirs(FOLDER, exist_ok=True)
    shutil.copytree(os.path.join(npm(f"speedscope@{SPEEDSCOPE}"), "node_modules/speedscope/dist/release"), os.path.join(FOLDER, "speedscope"),
                    dirs_exist_ok=True)
    d3 = os.path.join(npm(f"d3-flame-graph@{D3_FLAME_GRAPH}", f"d3@{D3}"), "node_modules/d3-flame-graph")
    for name in ("d3-flamegraph.umd.min.js", "d3-flamegraph.css"):
        shutil.copy(os.path.join(d3, "dist", name), FOLDER)
    shutil.copy(os.path.join(os.path.dirname(d3), "d3/dist/d3.min.js"), FOLDER)
    bundle_grafana()
    pages = {"d3.html": D3_PAGE, "grafana.html": "<!doctype html><meta charset=utf-8><div id=chart style='width:1200px'></div>"
                                                 "<script type=module src=grafana.js></script>"}
    for name, text in pages.items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as f:
            f.write(text)
    for size in SIZES:
        nodes = tree(size)
        totals = totals_of(nodes)
        write_profd(size, nodes, totals[0])
        write_speedscope(size, nodes, totals)
        write_d3(size, nodes, totals)
        write_grafana(size, nodes, totals)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def load_ms(page, address, there, event="click"):
    """From the navigation to the first frame on screen with what is looked for; armed() then times the event that zooms: until
    it is dealt with, then from the begin of the next frame until that is handed over, and until the frame after that begins."""
    page.send("Page.addScriptToEvaluateOnNewDocument", {"source": f"""(() => {{
        const frame = run => requestAnimationFrame(() => requestAnimationFrame(run));
        const look = () => document.documentElement && ({there}) ? frame(() => {{ window.loadedAt = performance.now(); }}) : requestAnimationFrame(look);
        look();
        const soon = run => {{ const c = new MessageChannel(); c.port1.onmessage = run; c.port2.postMessage(0); }};
        window.armed = () => addEventListener('{event}', e => {{
            let dealt = 0;
            const end = () => {{ dealt ||= performance.now() - e.timeStamp; }};
            soon(end);
            requestAnimationFrame(() => {{ end(); const begin = performance.now(); soon(() => {{ window.worked = dealt + performance.now() - begin; }}); }});
            frame(() => {{ window.zoomed = performance.now() - e.timeStamp; }});
        }}, {{ capture: true, once: true }});
    }})()"""})
    page.send("Page.navigate", {"url": address})
    page.wait("window.loadedAt > 0", address, 120)
    return page.run("window.loadedAt")


def first_page_ms():
    """From the address of a daemon to the cost of every service."""
    times = []
    with Daemon() as daemon:
        for _ in range(ROUNDS):
            with Page(width=WIDTH, height=HEIGHT) as page:
                times.append(load_ms(page, f"http://127.0.0.1:{daemon.port}/", "document.querySelector('.list .figure')"))
    return statistics.median(times)


def all_frames(absolute):
    """A profile of more frames than a page is given at first, and the button that brings the rest."""
    with own_name(compile_workload("many_stacks.c", "-O1", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer")) as program, \
            Daemon() as daemon, running(program, ready=False) as process, Site(daemon) as page:
        session = daemon.start_profile(f"pid:{process.pid}", seconds=600, rate=999)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["sampleCount"] > 2500, 120, "samples")
        daemon.stop_profile(session)
        drawn = "document.querySelector('.graph')?.dataset.final === 'true'"
        first_ms = load_ms(page, f"http://127.0.0.1:{daemon.port}/p/{session}", drawn)
        beyond = page.run("Number(/[\\d,]+/.exec([...document.querySelectorAll('.bar a')].find(a => a.textContent.endsWith('small frames too')).textContent)[0].replaceAll(',', ''))")
        page.run("[...document.querySelectorAll('.bar a')].find(a => a.textContent.endsWith('small frames too')).click()")
        page.wait("location.search.includes('maxNodes=') && window.loadedAt > 0", "all frames", 120)
        whole_ms, count = page.run("window.loadedAt"), page.frames()
        absolute("frames of a profile of a running daemon that the page shows, % of all, after one click", 100 * count / (beyond + 200_000), 100,
                 f"{count:,}; the largest 200,000 on screen {first_ms:.0f} ms after the navigation, all {whole_ms:.0f} ms after the click's", smaller=False)


def measure(port, name, size):
    """(load, work of a zoom, zoom by the screen's clock) in ms, in a browser of its own."""
    address, there, event = VIEWERS[name]
    with Page(width=WIDTH, height=HEIGHT) as page:
        load = load_ms(page, f"http://127.0.0.1:{port}/" + address.format(size), there, event)
        page.run("new Promise(r => setTimeout(r, 1000))")  # what a viewer still does after its first picture is over
        spot = page.run(SPOTS[name])
        before = page.picture()
        if name == "Grafana":  # a click opens a menu, whose first entry zooms
            page.click(*spot)
            page.wait("!!document.querySelector('[role=menuitem]')", "the menu")
            spot = page.run("(r => [r.left + 20, r.top + r.height / 2])(document.querySelector('[role=menuitem]').getBoundingClientRect())")
        page.run("armed()")
        page.click(*spot)
        if event == "dblclick":
            for kind in ("mousePressed", "mouseReleased"):
                page.send("Input.dispatchMouseEvent", {"type": kind, "x": spot[0], "y": spot[1], "clickCount": 2, "button": "left"})
        page.wait("window.zoomed > 0", f"the zoom of {name}", 60)
        page.run("new Promise(r => setTimeout(r, 500))")
        check(page.picture() != before, f"{name} did not zoom")
        return load, page.run("window.worked"), page.run("window.zoomed")


def run(row, absolute):
    check(os.path.exists(os.path.join(BUILD, "ui-tools/node_modules")), "the page was built without npm")
    absolute("first page, from its address to every service's cost, ms", first_page_ms(), FIRST_PAGE_MS, f"median of {ROUNDS} browsers")
    all_frames(absolute)
    prepare()
    handler = functools.partial(Quiet, directory=FOLDER)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for size in SIZES:
            times = {name: [] for name in VIEWERS}
            for _ in range(ROUNDS):
                for name in VIEWERS:
                    times[name].append(measure(server.server_port, name, size))
            load, work, zoom = ({name: statistics.median(t[k] for t in times[name]) for name in VIEWERS} for k in range(3))
            worked = "; work " + ", ".join(f"{name} {value:.0f}" for name, value in work.items())
            for what, median, beside in (("load", load, ""), ("zoom", zoom, worked)):
                best = min(value for name, value in median.items() if name != "profd")
                row(f"{what} of a flame graph of {size:,} frames, ms / the fastest of three viewers", median["profd"], best, 1.0,
                    ", ".join(f"{name} {value:.0f}" for name, value in median.items() if name != "profd") + beside)
        server.shutdown()
