# SPDX-License-Identifier: Apache-2.0
"""Chromium without a display, driven over its debugging pipe (no port, no further library)."""

import base64
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time

from harness import BUILD, Failure, Skip, check

PICTURES = os.path.join(BUILD, "pictures")  # what people see, for whoever wants to look


class Page:
    """`with Page() as page: page.open(url)`; script errors and policy violations are in page.errors."""

    def __init__(self, width=1280, height=800):
        self.size = (width, height)
        self.errors = []
        self.next_id = 0
        self.rest = b""

    def __enter__(self):
        program = shutil.which("chromium")
        if not program:
            raise Skip("no chromium here")
        self.profile = tempfile.mkdtemp(prefix="profd-browser-")
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        self.out, self.into = ours_out, ours_in

        def descriptors():
            # Chromium reads commands on 3 and writes answers on 4. Both are moved out of the way first.
            a, b = os.dup(to_browser), os.dup(from_browser)
            high_a, high_b = 100, 101
            os.dup2(a, high_a)
            os.dup2(b, high_b)
            os.dup2(high_a, 3)
            os.dup2(high_b, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             f"--window-size={self.size[0]},{self.size[1]}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=descriptors)
        os.close(to_browser)
        os.close(from_browser)
        target = self.send("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        self.session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True},
                                 session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")
        self.resize(*self.size)
        return self

    def resize(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def __exit__(self, kind, value, trace):
        try:
            self.send("Browser.close", session=None, timeout=5)
            self.process.wait(10)
        except (Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.into], [], [], max(left, 0))
            if not ready:
                raise Failure("the browser did not answer")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise Failure("the browser ended")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def send(self, method, params=None, session="own", timeout=120):
        asked = self.post(method, params, session)
        deadline = time.monotonic() + timeout
        while True:
            message = self.message(deadline)
            if message.get("id") == asked:
                check("error" not in message, f"{method}: {message.get('error')}")
                return message["result"]
            self.event(message)

    def post(self, method, params=None, session="own"):
        """Sends a command and does not wait for its answer; its number."""
        self.next_id += 1
        text = {"id": self.next_id, "method": method, "params": params or {}}
        if session:
            text["sessionId"] = self.session
        os.write(self.out, json.dumps(text).encode() + b"\0")
        return self.next_id

    def event(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def run(self, expression):
        """Value of a JavaScript expression; promises are awaited."""
        result = self.send("Runtime.evaluate", {"expression": expression, "awaitPromise": True,
                                                "returnByValue": True, "userGesture": True})
        check("exceptionDetails" not in result,
              f"{expression}: {result.get('exceptionDetails', {}).get('exception', {}).get('description')}")
        return result["result"].get("value")

    def wait(self, expression, what, seconds=120):
        end, last = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                if self.run(expression):
                    return
            except Failure as failure:  # a page that is just being left, or not there yet, has not what is looked at
                last = failure
            time.sleep(0.02)
        raise Failure(f"timed out waiting for {what}: {self.errors} {last}")

    def open(self, url):
        self.errors.clear()
        self.send("Page.navigate", {"url": "about:blank"})
        self.send("Page.navigate", {"url": url})

    def settle(self):
        """Two frames on the screen: what was asked for is drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def key(self, key, modifiers=0):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        params = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **params} if text
                  else {"type": "keyDown", **params})
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", **params})

    def type(self, text):
        self.send("Input.insertText", {"text": text})

    def click(self, x, y, button="left"):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "clickCount": 1,
                                                   "button": "none" if kind == "mouseMoved" else button})

    def tab_to(self, expression, what):
        """Tab until the element with the focus, `e`, is the one meant."""
        for _ in range(200):
            if self.run(f"(e => !!(e && {expression}))(document.activeElement)"):
                return
            self.key("Tab")
        raise Failure(f"Tab does not lead to {what}")

    def catch_copies(self):
        """From now on what the page copies is window.copied."""
        self.run("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async t => { window.copied = t; } } }) && 1")

    def picture(self, kind="png"):
        """The window as a picture: png or webp."""
        return base64.b64decode(self.send("Page.captureScreenshot", {"format": kind})["data"])


class Site(Page):
    """A browser page that notes every request and looks at one daemon."""

    def __init__(self, daemon, **size):
        super().__init__(**size)
        self.daemon = daemon
        self.requests = []

    def __enter__(self):
        super().__enter__()
        self.send("Network.enable")
        return self

    def event(self, message):
        super().event(message)
        params = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message.get("method") == "Fetch.requestPaused" and "sparkline=" in params["request"]["url"]:
            self.with_history(params["requestId"], params["request"]["url"])
        elif message.get("method") == "Fetch.requestPaused" and "limit=100" in params["request"]["url"]:
            self.post("Fetch.continueRequest", {"requestId": params["requestId"], "url": params["request"]["url"].replace("limit=100", "limit=1")})
        elif message.get("method") == "Fetch.requestPaused":
            self.post("Fetch.continueRequest", {"requestId": params["requestId"], "url": params["request"]["url"] + "&maxNodes=10"})

    def few_frames(self):
        """From now on, until Fetch.disable, the page is given ten frames as if it were 200,000."""
        self.send("Fetch.enable", {"patterns": [{"urlPattern": "*format=flame*"}]})

    def short_lists(self):
        """From now on, until Fetch.disable, a page of a list has one item as if it were a hundred."""
        self.send("Fetch.enable", {"patterns": [{"urlPattern": "*limit=100*"}]})

    def frames(self):
        """How many frames the graph has, as its search counts them."""
        self.run("(i => { i.value = '/./'; i.focus(); })(document.querySelector('.query'))")
        self.key("Enter")
        self.wait("/ frames/.test(document.querySelector('.hits').textContent)", "the hits")
        count = re.search(r"([\d,]+) frames", self.text(".hits"))[1].replace(",", "")
        self.key("Escape")
        return int(count)

    def with_history(self, request, url):
        """The daemon's answer, as if each service had run for an hour already."""
        answer = self.daemon.get(url[url.index("/api"):]).json()
        for service in answer["items"]:
            service["sparkline"] = {"from": "2026-01-01T00:00:00.000Z", "stepSeconds": 60, "values": [None, 0.5, 1.0, 0.25]}
        self.post("Fetch.fulfillRequest", {"requestId": request, "responseCode": 200, "responseHeaders": [
            {"name": "Content-Type", "value": "application/json"}], "body": base64.b64encode(json.dumps(answer).encode()).decode()})

    def shoot(self, name):
        os.makedirs(PICTURES, exist_ok=True)
        with open(os.path.join(PICTURES, name + ".png"), "wb") as f:
            f.write(self.picture())

    def wait(self, expression, what, seconds=120):
        # An element by value would be an empty object, which is false here.
        super().wait(f"!!({expression})", what, seconds)

    def visit(self, path, ready="document.documentElement?.dataset.ready === 'true'"):
        self.open(f"http://127.0.0.1:{self.daemon.port}{path}")
        self.wait(ready, path)

    def text(self, selector="main"):
        """The text that is written there, with plain spaces."""
        return re.sub("[\u00a0\u202f]", " ", self.run(f"document.querySelector({json.dumps(selector)})?.textContent || ''"))

    def press(self, label):
        """Clicks the button that a person would read as `label`."""
        found = self.run(f"""(() => {{ const b = [...document.querySelectorAll('main button')].find(b => !b.disabled &&
            b.textContent.replace(/\\u00a0/g, ' ').trim() === {json.dumps(label)}); b?.click(); return !!b; }})()""")
        if not found:  # what it pressed may lead away: then there is no text to look at
            raise Failure(f"no button {label}: {self.text()[:400]}")

    def clean(self, expected=()):
        own = f"http://127.0.0.1:{self.daemon.port}/"
        outside = [u for u in self.requests if not u.startswith((own, "data:", "about:", "blob:"))]
        check(not outside, f"requests to others: {outside}")
        errors = [e for e in self.errors if not any(word in e for word in expected)]
        check(not errors, f"errors in the console: {errors}")
        check(self.run("window.hacked") is None, "a name ran as script")
