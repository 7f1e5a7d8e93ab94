# SPDX-License-Identifier: Apache-2.0
"""Three users and five services that nobody here wrote: a developer with a slow service, an operator who was asleep when
it happened, a release engineer with a gate. The slow function, the wait and the regression are planted; each question is
asked as the README says, by profctl, by HTTP and on the page, and the answer must name what was planted."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))

# pylint: disable=wrong-import-position
from browser import Page  # noqa: E402
from harness import BUILD, FAMILY_A, Daemon, check, free_port, main, wait_until  # noqa: E402
from programs import build_go_source, load, started  # noqa: E402
from registry import maven, node, npm, pypi  # noqa: E402

PROFCTL = os.path.join(BUILD, "profctl")
SECONDS = 6
# Each request waits 20 ms for the stock. Then it computes a price and, with a third of the work, a tax.
PYTHON_WORK = """
rounds, tax_rounds = int(os.environ["ROUNDS"]), int(os.environ["TAX"])

def price(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total

def tax(n):
    total = 0
    for i in range(n):
        total += i * i % 5
    return total

def ask_stock():
    time.sleep(0.02)
"""
FLASK = """
import logging, os, sys, time
from flask import Flask
logging.getLogger("werkzeug").setLevel(logging.ERROR)  # nobody reads its log here
app = Flask(__name__)
""" + PYTHON_WORK + """
@app.route("/")
def order():
    ask_stock()
    return str(price(rounds) + tax(tax_rounds))

app.run("127.0.0.1", int(sys.argv[1]), threaded=True)
"""
DJANGO = """
import os, time
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of a test")
""" + PYTHON_WORK + """
def order(request):
    ask_stock()
    return HttpResponse(str(price(rounds) + tax(tax_rounds)))

urlpatterns = [path("", order)]
application = get_wsgi_application()
"""
EXPRESS = """
const express = require("express");
const app = express();
const rounds = Number(process.env.ROUNDS), taxRounds = Number(process.env.TAX);
const cell = new Int32Array(new SharedArrayBuffer(4));
function price(n) {
  let total = 0;
  for (let i = 0; i < n; i++) total += (i * i) % 7;
  return total;
}
function tax(n) {
  let total = 0;
  for (let i = 0; i < n; i++) total += (i * i) % 5;
  return total;
}
function askStock() {
  Atomics.wait(cell, 0, 0, 20);
}
app.get("/", (request, response) => {
  askStock();
  response.send(String(price(rounds) + tax(taxRounds)));
});
app.listen(Number(process.argv[2]), "127.0.0.1");
"""
JETTY = """
import java.net.InetSocketAddress;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.*;
import org.eclipse.jetty.util.Callback;

public class Shop extends Handler.Abstract {
    static final int ROUNDS = Integer.parseInt(System.getenv("ROUNDS")), TAX_ROUNDS = Integer.parseInt(System.getenv("TAX"));

    static long price(int n) {
        long total = 0;
        for (int i = 0; i < n; i++)
            total += (long) i * i % 7;
        return total;
    }

    static long tax(int n) {
        long total = 0;
        for (int i = 0; i < n; i++)
            total += (long) i * i % 5;
        return total;
    }

    static void askStock() throws InterruptedException {
        Thread.sleep(20);
    }

    public boolean handle(Request request, Response response, Callback callback) throws Exception {
        askStock();
        Content.Sink.write(response, true, Long.toString(price(ROUNDS) + tax(TAX_ROUNDS)), callback);
        return true;
    }

    public static void main(String[] arguments) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(new Shop());
        server.start();
    }
}
"""
GO = """
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

//go:noinline
func price(n int) (total int) {
	for i := 0; i < n; i++ {
		total += i * i % 7
	}
	return
}

//go:noinline
func tax(n int) (total int) {
	for i := 0; i < n; i++ {
		total += i * i % 5
	}
	return
}

//go:noinline
func askStock() {
	time.Sleep(20 * time.Millisecond)
}

func main() {
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	taxRounds, _ := strconv.Atoi(os.Getenv("TAX"))
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		askStock()
		fmt.Fprint(w, price(rounds)+tax(taxRounds))
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
"""


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def flask(folder):
    os.environ["PYTHONPATH"] = pypi("flask==3.0.3")
    return [sys.executable, written(folder, "shop.py", FLASK)]


def django(folder):
    os.environ["PYTHONPATH"] = installed = pypi("django==4.2.16", "gunicorn==22.0.0")
    written(folder, "shop.py", DJANGO)
    gunicorn = [sys.executable, os.path.join(installed, "bin/gunicorn"), "--chdir", folder, "--threads", "4"]
    return ["sh", "-c", f"exec {shlex.join(gunicorn)} --bind 127.0.0.1:$0 shop"]


def express(folder):
    os.environ["NODE_PATH"] = os.path.join(npm("express@4.21.2"), "node_modules")
    return [node(), written(folder, "shop.js", EXPRESS)]


def jetty(folder):
    libraries = maven("org.eclipse.jetty:jetty-server:12.0.16")
    subprocess.run(["javac", "-cp", libraries, "-d", folder, written(folder, "Shop.java", JETTY)], check=True)
    return ["java", "-XX:+UseSerialGC", "-cp", f"{folder}:{libraries}", "Shop"]


def go(_folder):
    return [build_go_source("shop", GO)]


# name: how it is started, rounds of a price, the planted function, its file, the planted wait, seconds until the compilers of its
# runtime have done most of their work, pools of threads of its own that wait without work
SERVICES = {
    "flask": (flask, 30000, "price", "shop.py", "ask_stock", 2, 0),
    "django": (django, 30000, "price", "shop.py", "ask_stock", 2, 0),
    "express": (express, 1000000, "price", "shop.js", "askStock", 2, 0),
    "jetty": (jetty, 1000000, "Shop.price", "Shop.java", "Shop.askStock", 12, 3),
    "go": (go, 1000000, "main.price", "main.go", "main.askStock", 2, 0),
}


class User:
    """A daemon, and what a user of the service @name has: profctl, curl, a browser."""

    def __init__(self, name, folder):
        self.name = name
        self.socket = os.path.join(folder, "profd.sock")
        self.daemon = Daemon("--socket", self.socket)

    def profctl(self, *arguments, allowed=(0,)):
        done = subprocess.run([PROFCTL, "--socket", self.socket, *arguments], capture_output=True, text=True, timeout=180,
                              check=False)
        check(done.returncode in allowed, f"profctl {' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def profile(self, kind, *options, seconds=SECONDS):
        """A profile as JSON, taken by profctl."""
        return json.loads(self.profctl("start", self.name, "--type", kind, "--duration", str(seconds), "--follow", "-o", "json",
                                       *options))

    def is_listed(self):
        return self.name in self.profctl("services").split()


class Host(User):
    """One service of SERVICES under load."""

    def __init__(self, name, folder):
        super().__init__("shop-" + name, folder)
        start, self.rounds, self.price, self.file, self.wait, self.warm_s, self.idle_pools = SERVICES[name]
        self.tax = self.price.replace("price", "tax")
        self.command = start(folder)

    @contextlib.contextmanager
    def release(self, factor=1.0):
        """A life of the service, whose tax takes @factor of what it takes in the first release."""
        port = free_port()
        env = {**os.environ, "OTEL_SERVICE_NAME": self.name, "ROUNDS": str(self.rounds),
               "TAX": str(int(self.rounds * factor / 3))}
        with started([*self.command, str(port)], port, env=env), \
                load("wrk", "-t", "1", "-c", "4", "-d", "36000", f"http://127.0.0.1:{port}/"):
            wait_until(self.is_listed, 60, "the service in the list")
            time.sleep(self.warm_s)
            yield


@contextlib.contextmanager
def host(name):
    with tempfile.TemporaryDirectory(prefix="profd-journey-") as folder:
        h = Host(name, folder)
        with h.daemon:
            yield h


def says(name, text, *words):
    for word in words:
        check(word in text, f"{name}: no {word!r} in: {text}")


def developer(name):
    """A developer asks what the service computes, what it waits for, and what the page says of it."""
    with host(name) as h, h.release():
        table = h.profctl("start", h.name, "--duration", str(SECONDS), "--follow")
        result = h.profile("cpu")
        own = result["ownFunctions"][0]
        check(own["funcName"] == h.price, f"cpu: {own} instead of {h.price}: {table}")
        check(os.path.basename(own["file"]) == h.file and own["line"] > 0, f"cpu: {own}")
        says("profctl start --follow", table, h.price, h.file)
        says("profctl top --once", h.profctl("top", h.name, "--once"), h.price)
        shares = {f["funcName"]: f["pct"] for f in result["ownFunctions"]}
        tax = shares[h.tax]
        print(f"  {name}: price {own['pct']:.1f} %, tax {tax:.1f} % of the service's CPU time")
        check(own["pct"] > tax, f"a tax takes less than a price: {shares}")
        waits_named(h)
        check(result["quality"]["truncatedPct"] <= 1, f"cut stacks: {result['quality']}")
        with Page() as page:
            for width in (1280, 400):
                page.resize(width, 800)
                page.open(f"http://127.0.0.1:{h.daemon.port}/p/{result['id']}")
                page.wait(f"document.body.innerText.includes({json.dumps(h.price)})", f"{h.price} on the page")
                check(page.run("document.documentElement.scrollWidth <= innerWidth"), f"the page is wider than {width}")
            check(not page.errors, page.errors)


def waits_named(h):
    """A thread of Go does not wait where its goroutine does: the list of goroutines says it there."""
    if h.name == "shop-go":
        # a list is of one moment, in which all of them may compute or have no request
        wait_until(lambda: all(word in h.profctl("goroutines", h.name) for word in (h.wait, "sleep")), 30, h.wait)
        return
    result = h.profile("offcpu")
    names = [f["funcName"] for f in result["ownFunctions"] if f["wait"] != "runqueue"]
    check(h.wait in names[:3 + h.idle_pools], f"offcpu: {names} instead of {h.wait}")
    table = h.profctl("get", result["id"])
    says("profctl get", table, h.wait)
    answer = h.daemon.get(f"{FAMILY_A}/{result['id']}").json()
    check(answer["ownFunctions"] == result["ownFunctions"], "profctl and HTTP differ")


def operator(name):
    """An operator asks what happened in the night. The service was profiled continuously; in the morning it is gone."""
    with host(name) as h:
        h.profctl("continuous", "start", h.name)
        with h.release():
            time.sleep(75)
        listed = h.profctl("history", "--service", h.name, "--from", "-10m")
        says("profctl history", listed, h.name)
        begin, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago)) for ago in (600, 0))
        found = h.daemon.get(f"{FAMILY_A}/window/flamegraph?service={h.name}&profileType=cpu&start={begin}&end={end}"
                             "&format=folded").body.decode()
        says("the flame graph of the night", found, h.price)


def release_engineer(name):
    """The same release again passes the gate; one whose tax takes three times as long does not, and the gate says why."""
    gate = ("ci", "--baseline", "v1", "--duration", "15")
    with host(name) as h:
        with h.release():
            first = json.loads(h.profctl("start", h.name, "--duration", "15", "--follow", "-o", "json"))
            h.profctl("baseline", "create", first["id"], "--label", "v1")
        with h.release():
            h.profctl(*gate, "--service", h.name, allowed=(0,))
        with h.release(3):
            said = h.profctl(*gate, "--service", h.name, allowed=(1,))
        says("profctl ci", said, h.tax)


def journey(person, name):
    def run():
        person(name)

    run.__name__ = f"{person.__name__}_{name}"
    return run


if __name__ == "__main__":
    main(*[journey(person, name) for name in SERVICES for person in (developer, operator, release_engineer)])
