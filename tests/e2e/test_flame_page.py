#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The flame graph page in Chromium, put together from api/ui/flame and the script that tools/build_ui joins as api/render/html.c does, with documents made
here: what is drawn, found and said is known independently of profd."""

import base64
import gzip
import hashlib
import json
import os
import random
import sys
import tempfile

from browser import Page
from harness import BUILD, ROOT, check, main

EVIL = ['</script><img src=x onerror="window.hacked=1">', '"><svg onload=window.hacked=1>', "a\u202eb", "x" * 10000,
        "\u0000\u0001", "javascript:window.hacked=1"]


def source(name):
    with open(os.path.join(ROOT, "api/ui/flame", name), encoding="utf-8") as file:
        return file.read()


def page_html(document):
    style = source("flame.css")
    with open(os.path.join(BUILD, "ui/standalone.js"), encoding="utf-8") as file:
        script = file.read()

    def digest(text):
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    policy = (f"default-src 'none'; script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(style)}'; "
              "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
    data = base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()
    text = source("page.html")
    for name, value in (("title", "test"), ("csp", policy), ("css", style), ("data", data), ("js", script)):
        text = text.replace("{{" + name + "}}", value)
    return text


def document(stacks, **extra):
    """A format=flame document of {(frame, …): self}."""
    tree = {}
    for stack, value in stacks.items():
        node = tree
        for frame in stack:
            node = node.setdefault(frame, [0, {}])[1] if frame not in node else node[frame][1]
        parent = tree
        for frame in stack[:-1]:
            parent = parent[frame][1]
        parent[stack[-1]][0] += value
    strings, functions, nodes = ["", "all"], ["all"], {"fn": [0], "up": [0], "self": [0]}
    index, totals = {}, {}

    def total(entry):
        totals[id(entry)] = entry[0] + sum(map(total, entry[1].values()))
        return totals[id(entry)]

    def walk(children, level, before):
        for name, entry in sorted(children.items(), key=lambda item: -totals[id(item[1])]):
            if name not in index:
                index[name] = len(functions)
                functions.append(name)
                strings.append(name)
            nodes["fn"].append(index[name])
            nodes["up"].append(before + 1 - level)
            nodes["self"].append(entry[0])
            before = walk(entry[1], level + 1, level)
        return before

    sys.setrecursionlimit(10000)
    for entry in tree.values():
        total(entry)
    walk(tree, 1, 0)
    count = len(functions)
    return {"v": 1, "type": "cpu", "value": "cpu", "unit": "nanoseconds", "title": "t", "service": "api", "host": "h",
            "from": "2026-01-15T08:00:00.000Z", "durationSeconds": 10, "rate": True, "scale": 1000000,
            "total": sum(stacks.values()), "samples": sum(stacks.values()), "strings": strings,
            "fn": {"name": list(range(1, count + 1)), "module": [0] * count, "file": [0] * count,
                   "line": [0] * count, "kind": [0] + [1] * (count - 1)},
            "node": nodes, "pruned": {"nodes": 0, "value": 0, "minTotal": 0},
            "quality": {"samples": sum(stacks.values()), "lost": 0, "truncatedPct": 0, "unknownFramePct": 0,
                        "unwindErrors": {}, "notes": []}, **extra}


SMALL = {("main",): 1, ("main", "serve"): 2, ("main", "serve", "json"): 40, ("main", "serve", "json", "copy"): 10,
         ("main", "serve", "db"): 20, ("main", "gc"): 17, ("main", "gc", "copy"): 5, ("start", "rec", "rec", "rec"): 4,
         ("start", "rec"): 1}


# Short words for the parts of the page.
WORDS = """Object.assign(globalThis, { app: explorer, view: explorer.view, largestOf: f => explorer.largestOf(f),
    change: run => explorer.change(run), select: (...a) => explorer.select(...a), zoom: (...a) => explorer.zoom(...a),
    setSearch: text => explorer.setSearch(text), part: name => ({ search: explorer.input, hits: explorer.hits, tree: explorer.tree,
    canvas: explorer.canvas, table: explorer.tableScroll })[name] || document.getElementById(name) }) && 1"""


class Shown:
    """`with Shown(document) as page`: the page is open and ready. One browser serves all tests."""

    browser = None

    def __init__(self, shown, fragment="", width=1280, height=800):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8")
        self.file.write(page_html(shown))
        self.file.close()
        self.size = (width, height)
        self.fragment = fragment

    def __enter__(self):
        Shown.browser = page = Shown.browser or Page().__enter__()
        page.resize(*self.size)
        page.open("file://" + self.file.name + self.fragment)
        page.wait("document.documentElement?.dataset.ready === 'true'", "the page")
        page.run(WORDS)
        page.settle()
        return page

    def __exit__(self, *what):
        os.unlink(self.file.name)

    @staticmethod
    def close():
        if Shown.browser:
            Shown.browser.__exit__(None, None, None)


def zoomed(page):
    return page.run("nodeName(app.model, view.zoomed)")


def test_sums_and_recursion():
    with Shown(document(SMALL)) as page:
        check(page.run("app.model.total[0]") == 100, "the root is the sum")
        totals = json.loads(page.run("""JSON.stringify(Object.fromEntries(Array.from({length: app.model.functions},
            (_, f) => [functionName(app.model, f), [app.totals.self[f], app.totals.total[f]]])))"""))
        check(totals["copy"] == [15, 15], f"copy {totals['copy']}")
        check(totals["rec"] == [5, 5], f"recursion counts once: {totals['rec']}")
        check(totals["serve"] == [2, 72], f"serve {totals['serve']}")
        check("json" in page.run("part('sentence').textContent"), "the first sentence names the top function")
        check("100" in page.run("part('quality').textContent"), "the quality line counts samples")
        first = page.run("part('table').querySelector('tbody td').textContent")
        check(first == "json", f"the table begins with {first}")
        check(not page.errors, page.errors)


def click_on(page, name):
    page.click(*page.run(f"""(() => {{ const m = app.model, n = largestOf([...Array(m.functions).keys()].find(
        f => functionName(m, f) === '{name}')), b = view.box(n), r = part('canvas').getBoundingClientRect();
        return [r.left + b.left + b.width / 2, r.top + b.top + 8]; }})()"""))


def test_zoom_and_back():
    with Shown(document(SMALL)) as page:
        click_on(page, "json")
        check(zoomed(page) == "json", f"one click zooms, at {zoomed(page)}")
        check(page.run("view.to - view.from") == 50, "the click itself draws the whole zoom")
        page.wait("part('tree').getAttribute('aria-activedescendant') === 'n' + view.zoomed && document.querySelector('.functions [aria-selected=true]')"
                  ".textContent.startsWith('json')", "table and reader to follow")
        address = page.run("location.href")
        check("z=" in address, address)
        page.key("Escape")
        page.key("Escape")
        check(zoomed(page) == "all", f"Escape goes back, at {zoomed(page)}")
        page.wait("!location.hash", "the address of the whole")
        page.run("history.back()")
        page.wait("nodeName(app.model, view.zoomed) === 'json'", "the browser's back")
        page.open(address)
        page.wait("document.documentElement?.dataset.ready === 'true'", "the page")
        page.run(WORDS)
        check(zoomed(page) == "json", f"a link opens the same view, at {zoomed(page)}")


def test_back_after_a_filter():
    """Escape goes to the frame that was left, also when a filter has renumbered the frames since."""
    with Shown(document(SMALL)) as page:
        for name in ("gc", "copy"):
            page.run(f"zoom(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === '{name}')), true)")
        page.run("change(() => { app.filters = [{ kind: 'drop', name: 'db' }, { kind: 'hide', name: 'json' }]; })")
        page.key("Escape")
        check(zoomed(page) == "gc", f"Escape goes to {zoomed(page)}")
        page.key("Escape")
        check(zoomed(page) == "all", f"and to {zoomed(page)}")
        page.key("2")
        check("p=graph" in page.run("location.hash"), "a pane chosen by its key is in the address")


def test_quality_with_reasons():
    quality = {"samples": 95, "lost": 5, "truncatedPct": 2.5, "unknownFramePct": 1, "unwindErrors": {"no_rows": 3}, "unwindErrorMeanings": {"no_rows": "not ready"}, "notes": ["sampled at 50 per second for a while"]}
    with Shown(document(SMALL, quality=quality)) as page:
        check("95 samples · 5 lost · truncated stacks 2.5 % · unknown frames 1.0 %" in page.run("part('quality').textContent").replace("\u00a0", " "), "losses are in sight")
        check(page.run("part('quality').querySelector('summary > .bad') !== null"), "and marked")
        for words in ("debug package", "the walk did not reach", "3 stacks: not ready", "sampled at 50 per second"):
            check(page.run(f"[...part('quality').querySelectorAll('li')].some(e => e.checkVisibility() && e.textContent.includes('{words}'))"), f"the reason: {words}")


def test_link_to_a_frame_that_is_gone():
    path = {}
    with Shown(document(SMALL)) as page:
        page.run("zoom(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === 'json')), true)")
        page.wait("location.hash", "the zoom in the address")
        path = page.run("location.hash")
    without = {stack: value for stack, value in SMALL.items() if "json" not in stack}
    with Shown(document(without), path) as page:
        check(zoomed(page) == "serve", f"the nearest caller is shown, at {zoomed(page)}")


def test_search():
    # beside the others a frame that no screen is wide enough for
    with Shown(document({**{stack: 1000 * value for stack, value in SMALL.items()}, ("main", "gc", "dust"): 1})) as page:
        page.key("/")
        page.type("copy")
        page.wait("part('hits').textContent.includes('15')", "the share of the hits")
        check("1 function" in page.run("part('hits').textContent"), page.run("part('hits').textContent"))
        page.key("Enter")
        check(page.run("nodeName(app.model, view.selected)") == "copy", "Enter goes to the largest hit")
        page.run("setSearch('/^(json|db)$/')")
        check("70" in page.run("part('hits').textContent"), "nested hits count once, expressions work")
        page.run("setSearch('/(/')")
        check("expression" in page.run("part('hits').textContent"), "a bad expression is explained")
        page.run("setSearch('no such name')")
        check("No function" in page.run("part('table').textContent"), "an empty table says so")
        page.run("setSearch('dust')")
        page.run("part('search').blur()")
        page.key("n")
        page.wait("view.box(view.selected).width >= 8", "the hit to be wide enough to be seen")
        check(page.run("nodeName(app.model, view.selected)") == "dust", "n goes to it")
        check(not page.errors, page.errors)


def test_hostile_link_is_not_run():
    with Shown(document(SMALL), "#q=" + "%2F(a%2B)%2B%24%2F") as page:
        check(page.run("app.query") == "" and page.run("part('search').value") == "/(a+)+$/",
              "an expression from a link waits for Enter")


def test_filters_keep_the_sum():
    with Shown(document(SMALL)) as page:
        for kind, name, expected in (("hide", "json", 100), ("drop", "json", 50), ("focus", "copy", 15),
                                     ("collapse", None, 100)):
            page.run(f"change(() => {{ app.filters = [{{ kind: '{kind}', name: {json.dumps(name)} }}]; }})")
            kept = page.run("app.model.total[0]")
            check(kept == expected, f"{kind} {name} keeps {kept}")
            if kind in ("hide", "drop"):
                check(page.run("[...app.model.fn].every(f => functionName(app.model, f) !== 'json')"), "json is gone")
        depth = page.run("app.model.rows[4] ? [...app.model.rows[3]].filter(i => nodeName(app.model, i) === 'rec').length : 0")
        check(depth == 0, "recursion is one frame")
        page.run("change(() => { app.filters = []; })")
        check(page.run("app.model.total[0]") == 100, "without filters everything is back")
        # the same by keys and chips, with undo
        page.run("select(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === 'json')))")
        page.run("part('tree').focus()")
        for key, kept, chips in (("d", 50, 1), ("z", 100, 0), ("Z", 50, 1), ("c", 50, 2)):
            page.key(key)
            check(page.run("app.model.total[0]") == kept, f"{key} keeps {page.run('app.model.total[0]')}")
            check(page.run("document.querySelectorAll('.chip').length") == chips, f"{key}: chips")
        check("50" in page.run("part('sentence').textContent"), "the share that is left is said")
        for _ in range(2):
            page.run("document.querySelector('.chip').click()")
        check(page.run("app.model.total[0]") == 100, "a click on a chip takes its filter away")


def test_sandwich():
    with Shown(document(SMALL)) as page:
        page.run("""change(() => { app.side = 'callers'; app.sandwich = 'copy'; })""")
        check(page.run("app.model.total[0]") == 15, "callers sum to the function")
        names = page.run("children(app.model, 0).map(i => nodeName(app.model, i) + app.model.total[i]).join()")
        check(names == "json10,gc5", names)


def test_tree():
    """The call tree shows the same numbers, by keys alone, and inverted what each function spent itself."""
    with Shown(document(SMALL)) as page:
        page.key("4")
        page.run("document.querySelector('.call-tree').focus()")
        rows = "[...document.querySelectorAll('.lines .line')].map(r => [...r.children].map(c => c.textContent.trim()).join('|'))"
        for _ in range(8):  # opens and goes in by turns, to the end of the largest stack
            page.key("ArrowRight")
        level = page.run("document.querySelector('.lines [aria-selected=true]').getAttribute('aria-level')")
        check(level == "5", f"at level {level}, not at the end of the largest stack")
        name = page.run("nodeName(app.model, view.selected)")
        check(any(name in row for row in page.run(rows)), f"{name} is a line: {page.run(rows)}")
        count = len(page.run(rows))
        page.key("ArrowLeft")
        check(page.run("app.model.level[view.selected]") == 3, "left goes out")
        page.key("ArrowLeft")
        check(len(page.run(rows)) < count, "and closes")
        check(page.run("document.querySelector('.call-tree').getAttribute('aria-activedescendant') === "
                       "document.querySelector('.lines [aria-selected=true]').id"), "the reader hears the line")
        page.key("v")
        check("v=callers" in page.run("location.hash"), "the turned view is in the address")
        first = page.run("nodeName(app.model, children(app.model, 0)[0])")
        check(page.run("app.model.total[children(app.model, 0)[0]] === Math.max(...app.totals.self)"), f"{first} spent most itself")
        page.key("v")
        check(page.run("app.model.total[0]") == 100 and "v=" not in page.run("location.hash"), "turned back")


def test_the_views_agree():
    """Table, tree, details and callees say the same of a function, which is selected in all of them."""
    shown = document(SMALL)
    shown["strings"].append("/src/json/decode.c")
    shown["fn"]["file"][shown["fn"]["name"].index(shown["strings"].index("json"))] = len(shown["strings"]) - 1
    shown["fn"]["line"] = [12] * len(shown["fn"]["line"])
    with Shown(shown) as page:
        def cells(row):
            return page.run(f"[...document.querySelector('{row}').children].map(c => c.textContent.replace(/\\u00a0/g, ' ').replace(/[▾▸]/, ''))")

        page.run("localStorage.setItem('source', 'https://host/{file}#L{line}')")
        page.run("[...part('table').querySelectorAll('tbody tr')].find(r => r.textContent.startsWith('json')).click()")
        check(page.run("nodeName(app.model, view.selected)") == "json", "a row of the table selects in the graph")
        check(cells(".functions [aria-selected=true]") == ["json", "40.040.0 %", "50.050.0 %"], cells(".functions [aria-selected=true]"))
        said = page.run("(d => { getSelection().selectAllChildren(d); return getSelection().toString(); })(document.querySelector('.details'))").replace("\u00a0", " ")
        for words in ("json", "50.0 ms · 50.0 % ± 9.8", "40.0 ms · 40.0 %", "/src/json/decode.c:12"):
            check(words in said, f"{words}: {said}")
        check(page.run("document.querySelector('.details a').href") == "https://host/src/json/decode.c#L12", "its line at the reader's host of sources")
        page.run("localStorage.removeItem('source')")
        page.key("4")
        check(cells(".lines [aria-selected=true]") == ["json", "40.0", "50.0", "50.0 %"], cells(".lines [aria-selected=true]"))
        page.run("document.querySelector('.call-tree').focus()")
        page.key("b")
        check("callees=json" in page.run("location.hash") and page.run("app.model.total[0]") == 50, "b shows its callees")
        page.key("1")
        page.run("part('tree').focus()")
        page.key("o")
        check(page.run("view.box(0).top > view.box(1).top") and "o=flame" in page.run("location.hash"), "o puts the root at the bottom")
        page.key("?")
        said = page.run("document.querySelector('dialog[open]').textContent")
        check("Self is what a function costs itself, total with its callees" in said and "Colours tell modules apart" in said, said)
        page.key("Escape")
        check(not page.errors, page.errors)


def test_hostile_names():
    stacks = {("main", name): 3 + k for k, name in enumerate(EVIL)}
    with Shown(document(stacks)) as page:
        for name in EVIL:
            page.run(f"select(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === "
                     f"{json.dumps(name)})), true)")
        page.run("openHelp(explorer)")
        page.settle()
        check(page.run("window.hacked") is None, "a name ran as script")
        check(page.run("document.images.length") == 0, "a name became an element")
        check("\\u{202e}" in page.run("part('table').textContent"), "direction marks are shown, not obeyed")
        check(not page.errors, page.errors)


def test_keyboard_and_reader():
    with Shown(document(SMALL)) as page:
        page.run("part('tree').focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            page.key(key)
        name = page.run("nodeName(app.model, view.selected)")
        check(name == "gc", f"down, down, right is at {name}")
        label = page.run("document.getElementById(part('tree').getAttribute('aria-activedescendant')).getAttribute('aria-label')")
        check(label.startswith("gc, 22") and "self 17" in label and "1 callee" in label, label)
        page.key("Enter")
        check(zoomed(page) == "gc", "Enter zooms")
        page.wait("location.hash.includes('z=')", "the zoom in the address")
        page.catch_copies()
        for key, modifiers, copied in (("c", 2, "gc"), ("y", 0, "main\ngc"), ("l", 0, page.run("location.href"))):
            page.key(key, modifiers)
            page.wait(f"window.copied === {json.dumps(copied)}", f"{key} to copy")
            page.wait("document.querySelector('.toast')?.checkVisibility() && / copied$/.test(document.querySelector('.toast').textContent)", "a word of it for those who see")
        page.run("app.options.share = async () => { throw new Error('it still runs'); }; 1")
        page.key("L")
        page.wait("document.querySelector('.toast').textContent === 'No link: it still runs'", "why there is no link")
        # what is pinned stays while the mouse moves on, until Escape
        page.key(" ")
        said = page.run("document.querySelector('.details').textContent")
        page.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 900, "y": 200})
        page.settle()
        check("gc" in said and "Of its caller" in said and page.run("document.querySelector('.details').textContent") == said, said)
        page.key("Escape")
        check(page.run("document.querySelector('.details').hidden"), "Escape closes it")
        # new data keep the place of whoever reads
        more = json.dumps(document({stack: value + (70 if "gc" in stack else 0) for stack, value in SMALL.items()}))
        page.run(f"explorer.setData({more})")
        check((zoomed(page), page.run("nodeName(app.model, view.selected)")) == ("gc", "gc"), "live data moved the view")
        page.key("0")
        check(page.run("document.querySelectorAll('[role=treeitem]').length") < 200, "a window of items")


def test_letters_can_be_switched_off():
    """WCAG 2.1.4: who dictates, or hits keys by chance, has no use for keys of one character."""
    with Shown(document(SMALL)) as page:
        page.key("?")
        page.wait("!!document.querySelector('dialog.help[open]')", "the list of keys")
        page.tab_to("e.matches('.help input[type=checkbox]') && e.parentElement.textContent.includes('one letter')", "the switch")
        page.key(" ")
        page.key("Escape")
        page.run("part('tree').focus()")
        for _ in range(2):
            for key in ("v", "4", "o", "/", "?", "d"):
                page.key(key)
            state = page.run("[app.inverted, app.mode, view.flipped, app.filters.length, document.activeElement.className, app.help.open]")
            check(state == [False, "both", False, 0, "tree", False], f"with the letters switched off: {state}")
            for key in ("ArrowDown", "Enter"):  # what is no character acts
                page.key(key)
            check(zoomed(page) == "main", zoomed(page))
            page.run("location.reload()")  # and it is remembered
            page.wait("!globalThis.app && document.documentElement?.dataset.ready === 'true'", "the page again")
            page.run(WORDS)
            page.run("part('tree').focus()")
            page.key("Escape")
            page.key("Escape")
        page.run("[...document.querySelectorAll('.bar button')].find(b => b.textContent === 'Keys').click()")
        page.run("document.querySelector('dialog.help[open] input[type=checkbox]').click()")
        page.key("Escape")
        page.run("part('tree').focus()")
        page.key("v")
        check(page.run("app.inverted"), "switched on again")


def test_a_choice_by_keys_waits_for_enter():
    """Each arrow on a closed select is a change of it."""
    with Shown(document(SMALL)) as page:
        page.run("""(window.made = [], window.pick = h('select', {}, ['a', 'b', 'c', 'd'].map(v => h('option', {}, v))), window.other = h('button', {}, 'other'), 1) &&
            onChoice(pick, v => made.push(v)) || document.body.prepend(pick, other) || pick.focus() || 1""")

        def after(*keys):
            for key in keys:
                page.key(key)
            return page.run("[pick.value, made.splice(0).join()]")

        check(after("ArrowDown", "ArrowDown") == ["c", ""], "arrows choose nothing")
        check("Enter" in page.run("document.querySelector('.toast').textContent"), "what does, in words")
        check(after("Enter") == ["c", "c"], "Enter does")
        check(after("ArrowDown", "Escape") == ["a", ""], "Escape takes it back")
        check(after("ArrowDown", "Tab") == ["a", ""], "so does leaving")
        page.run("pick.focus()")
        check(after(" ", "ArrowDown") == ["a", ""], "in the open list")
        check(after("Enter") == ["b", "b"], "Enter chooses there, too")
        check(after("ArrowDown", " ", "Enter") == ["c", "c"], "what the list had already")
        page.run("pick.value = 'd'; pick.dispatchEvent(new Event('change')); 1")
        check(after() == ["d", "d"], "a pointer chooses at once")


def test_comparison():
    before = document({("main", "a"): 50, ("main", "gone"): 50})
    after = document({("main", "a"): 75, ("main", "gone"): 0, ("main", "new"): 25})
    merged = document({("main", "a"): 75, ("main", "gone"): 1, ("main", "new"): 25})
    order = [merged["strings"][merged["fn"]["name"][f]] for f in merged["node"]["fn"]]
    base = {"a": 50, "gone": 50}
    own = {"a": 75, "new": 25}
    merged["node"]["self"] = [own.get(name, 0) for name in order]
    merged["node"]["base"] = [base.get(name, 0) for name in order]
    merged["total"] = after["total"]
    merged["base"] = {"label": "x", "comparison": "y", "scale": 1000000, "total": before["total"],
                      "durationSeconds": 10, "quality": before["quality"]}
    with Shown(merged) as page:
        deltas = json.loads(page.run("""JSON.stringify(Object.fromEntries([...Array(app.model.count).keys()].map(
            i => [nodeName(app.model, i), app.model.delta[i]])))"""))
        check(abs(deltas["a"] - 25) < 1e-9 and abs(deltas["gone"] + 50) < 1e-9 and abs(deltas["new"] - 25) < 1e-9, deltas)
        width = page.run("view.box(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === 'gone'))).width / view.width")
        check(abs(width - 0.25) < 0.01, f"what vanished is still seen, {width}")
        check("▼ −50.0" in page.run("part('table').querySelector('tbody tr').textContent.replace(/\\u00a0/g, ' ')"), "largest change first, with a glyph")
        colours = page.run("['new', 'main', 'gone'].map(name => view.fill(largestOf([...Array(app.model.functions).keys()].find(f => functionName(app.model, f) === name)))[0])")
        check(colours == ["#eca769", "#e2e4e7", "#3182bd"], f"orange, grey, blue: {colours}")
        check(not page.errors, page.errors)


def large(nodes):
    rng, stacks, made = random.Random(1), {}, 0
    while made < nodes:
        depth, shared = rng.randint(20, 110), rng.randint(0, 15)
        stack = tuple(f"module{d % 7}::f{d if d < shared else rng.randint(0, 4000)}" for d in range(depth))
        stacks[stack] = stacks.get(stack, 0) + rng.randint(1, 5)
        made += depth - shared
    return document(stacks)


def test_two_hundred_thousand_nodes():
    with Shown(large(200000)) as page:
        count = page.run("app.model.count")
        check(count > 190000, f"{count} nodes")
        page.run("zoom(children(app.model, 0)[0], true)")
        slow = page.run("""(() => { const times = []; for (let i = 0; i < 40; i++) { const t = performance.now();
            view.draw(); times.push(performance.now() - t); } return times.sort((a, b) => a - b)[37]; })()""")
        check(slow < 1000, f"drawing took {slow} ms")  # bounds a broken run; the budget is for tools/bench
        took = page.run("(() => { const t = performance.now(); setSearch('f12'); return performance.now() - t; })()")
        check(took < 5000, f"searching took {took} ms")
        check(not page.errors, page.errors)


def test_deep():
    with Shown(document({tuple(f"d{level}" for level in range(512)): 1})) as page:
        page.run("select(512, true)")
        page.settle()
        box = page.run("Object.values(view.box(512))")
        check(0 <= box[1] < page.run("view.height") and box[2] > 100, f"the innermost of 512 frames is at {box}")
        check(page.run("part('canvas').height") <= 2 * 800, "the canvas is not taller than the window")
        check(page.run("(b => [...view.context.getImageData(b.left + 40, b.top + 3, 1, 1).data].some(v => v))(view.box(512))"), "it is drawn")


def test_phone_dark_and_paper():
    many = {("main", f"f{k}"): 100 - k for k in range(80)}
    with Shown(document(many), width=320, height=640) as page:
        check(page.run("document.documentElement.scrollWidth") <= 320, "no sideways scrolling")
        light = page.picture()
        page.run("turnTheme()")
        page.settle()
        check(page.picture() != light, "the theme changes the picture")
        page.send("Emulation.setEmulatedMedia", {"media": "print"})
        check(page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is light")
        check(page.run("document.querySelector('.bar').checkVisibility()") is False, "no buttons on paper")
        rows = page.run("[...document.querySelectorAll('.functions tbody tr')].filter(r => r.checkVisibility()).length")
        check(rows == 50, f"{rows} functions on paper")
        page.send("Emulation.setEmulatedMedia", {"media": ""})
        paper = base64.b64decode(page.send("Page.printToPDF", {"printBackground": True})["data"])
        check(paper.startswith(b"%PDF") and len(paper) > 5000, f"{len(paper)} bytes of PDF")
        page.send("Emulation.setEmulatedMedia", {"features": [{"name": "forced-colors", "value": "active"}]})
        check(page.run("getComputedStyle(document.querySelector('.functions td.bar')).backgroundImage") == "none", "no bar under forced colours")
        page.send("Emulation.setEmulatedMedia", {"features": []})
        page.run("turnTheme()")
        check(not page.errors, page.errors)


def test_large_text():
    """For readers who have set their browser to letters twice as large."""
    with Shown(document(SMALL)) as page:
        address = page.run("location.href")
        page.send("Page.setFontSizes", {"fontSizes": {"standard": 32, "fixed": 26}})
        page.open(address)
        page.wait("document.documentElement?.dataset.ready === 'true'", "the page")
        page.run(WORDS)
        page.settle()
        check(page.run("[ROW, getComputedStyle(document.body).fontSize]") == [40, "28px"], "rows and letters grow")
        click_on(page, "json")
        check(zoomed(page) == "json", f"a click is where it is seen, at {zoomed(page)}")
        page.send("Page.setFontSizes", {"fontSizes": {"standard": 16, "fixed": 13}})


def test_empty():
    with Shown(document({("main",): 0}, total=0)) as page:
        check("Nothing was recorded" in page.run("part('sentence').textContent"), "emptiness is said in words")
        check(not page.errors, page.errors)


if __name__ == "__main__":
    try:
        main(*[value for name, value in list(globals().items()) if name.startswith("test_")])
    finally:
        Shown.close()
