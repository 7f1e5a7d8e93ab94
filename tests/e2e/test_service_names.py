# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Names of services without a unit or a container: real programs, started the ways people start them, and the name by
which people know each."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

from harness import Daemon, check, free_port, main, wait_until
from programs import postgres
from registry import node, pypi

PYTHON_PACKAGES = "gunicorn==23.0.0", "uvicorn==0.32.0", "flask==3.0.3", "celery==5.4.0"
SECRET = "hunter2"

FILES = {
    "shop/report.py": "import time\ntime.sleep(600)\n",
    "shop/src/main.py": "import time\ntime.sleep(600)\n",
    "shop/wsgi_app.py": "def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n",
    "shop/asgi_app.py": "async def app(scope, receive, send):\n    pass\n",
    "shop/flask_app.py": "import flask\napp = flask.Flask('shop')\n",
    "shop/tasks.py": "import celery\napp = celery.Celery('tasks', broker='memory://')\n",
    "shop/server.js": "setInterval(() => 0, 1000)\n",
    "shop/mailer.mjs": "setInterval(() => 0, 1000)\n",
    "shop/node_modules/paint/bin/run.js": "setInterval(() => 0, 1000)\n",
    "shop/Orders.java": "class Orders { public static void main(String[] a) throws Exception { Thread.sleep(600000); } }\n",
    "shop/manifest": "Main-Class: Orders\n",
    "shop/jobs.rb": "sleep 600\n",
    "shop/artisan": "<?php sleep(600);\n",
    "shop/nightly.pl": "sleep 600;\n",
    "shop/backup.sh": "#!/bin/bash\nwhile true; do sleep 1; done\n",
    "shop/fpm.conf": "[global]\npid = {0}/fpm.pid\nerror_log = {0}/fpm.log\ndaemonize = no\n"
                     "[till]\nlisten = {0}/fpm.sock\nuser = nobody\npm = static\npm.max_children = 1\n",
}


def rows(shop, packages):
    """(what is run, the name it must have); working directory: @shop."""
    javac = shutil.which("javac")
    subprocess.run([javac, "Orders.java"], cwd=shop, check=True)
    subprocess.run([os.path.join(os.path.dirname(os.path.realpath(javac)), "jar"), "cfm", "orders-2.4.1.jar", "manifest", "Orders.class"], cwd=shop, check=True)
    python = shutil.which("python3")
    script = lambda name: os.path.join(packages, "bin", name)  # noqa: E731
    os.symlink("/bin/busybox", os.path.join(shop, "httpd"))
    return [
        ([python, "report.py", "--token", SECRET], "report.py"),
        ([python, "-u", os.path.join(shop, "src/main.py")], "shop/main.py"),
        ([python, "-m", "http.server", "0"], "http.server"),
        ([python, script("gunicorn"), "-b", "127.0.0.1:0", "wsgi_app:app"], "gunicorn wsgi_app:app"),
        ([python, "-m", "uvicorn", "--port", "0", "asgi_app:app"], "uvicorn asgi_app:app"),
        ([python, script("flask"), "--app", "flask_app", "run", "--port", "0"], "flask flask_app"),
        ([python, script("celery"), "-A", "tasks", "worker", "--pool", "solo", "--without-mingle"], "celery tasks"),
        ([node(), "server.js"], "shop/server.js"),
        ([node(), "--max-old-space-size=64", "mailer.mjs", f"--key={SECRET}"], "mailer.mjs"),
        ([node(), "node_modules/paint/bin/run.js"], "paint"),
        (["java", "-Xmx32m", f"-Dpassword={SECRET}", "-cp", ".", "Orders"], "Orders"),
        (["java", "-Xmx32m", "-jar", "orders-2.4.1.jar"], "orders"),
        (["java", "-Xmx32m", "-Dspring.application.name=billing", "-cp", ".", "Orders"], "billing"),
        (["ruby", "-W0", "jobs.rb"], "jobs.rb"),
        (["php", "artisan", "queue:work"], "shop/artisan"),
        (["php-fpm8.2", "-y", os.path.join(shop, "fpm.conf")], "php-fpm"),
        (["perl", "nightly.pl"], "nightly.pl"),
        (["bash", "backup.sh"], "backup.sh"),
        (["redis-server", "--port", "0", "--unixsocket", os.path.join(shop, "redis"), "--save", ""], "redis-server"),
        ([os.path.join(shop, "httpd"), "-f", "-p", "127.0.0.1:0"], "httpd"),
        (["sleep", "600"], "sleep"),
    ]


def names_that_people_know():
    packages = pypi(*PYTHON_PACKAGES)
    env = dict(os.environ, PYTHONPATH=packages, C_FORCE_ROOT="1")
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        os.chmod(folder, 0o755)
        shop = os.path.join(folder, "shop")
        for name, text in FILES.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as f:
                f.write(text.replace("{0}", shop))
        programs = []
        try:
            for command, name in rows(shop, packages):
                programs.append((subprocess.Popen(command, cwd=shop, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL, start_new_session=True), command, name))
            await_names(daemon, programs)
            the_old_name_is_an_alias(daemon, programs)
        finally:
            for process, _, _ in programs:
                try:
                    os.killpg(process.pid, 9)
                except ProcessLookupError:
                    pass
                process.wait()


def await_names(daemon, programs):
    def by_pid():
        items = daemon.get("/api/v1/observability/services").json()["items"]
        return {p["pid"]: item["name"] for item in items for p in item["processes"]}

    def wrong():
        found = by_pid()
        return [(command, name, found.get(process.pid)) for process, command, name in programs if found.get(process.pid) != name]

    deadline = time.monotonic() + 60  # interpreters start, and retitle themselves
    while (left := wrong()) and time.monotonic() < deadline:
        time.sleep(0.5)
    for process, command, _ in programs:
        check(process.poll() is None, f"{command} ended with {process.returncode}")
    check(not left, f"(command, expected, shown): {left}")
    names = set(by_pid().values())
    check(not any(name.startswith("swapper") for name in names), f"idle threads: {sorted(names)}")
    check(not any(SECRET in name for name in names), "a secret of a command line")


def the_old_name_is_an_alias(daemon, programs):
    redis = next(p for p, _, name in programs if name == "redis-server")
    old = os.path.basename(os.readlink(f"/proc/{redis.pid}/exe"))
    session = daemon.start_profile(old, 1)
    result = daemon.finish_profile(session)
    check(result["service"] == "redis-server", result["service"])


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(child) for child in f.read().split()]


TITLED = """
import subprocess, sys, time
import setproctitle
child = subprocess.Popen([sys.executable, "-c", "import setproctitle, time; setproctitle.setproctitle('worker'); time.sleep(600)"],
                         env={"OTEL_SERVICE_NAME": "tasks", "PYTHONPATH": sys.argv[1]})
time.sleep(600)
"""


def titles_written_over_the_environment():
    """PostgreSQL's children write their titles over the environment that names their service: they have the postmaster's name,
    also those that ran before profd. A child that was executed with another environment has not its parent's name."""
    packages = pypi("setproctitle==1.3.7")
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after, contextlib.ExitStack() as stack:
        first, _, _ = stack.enter_context(postgres(before, free_port(), {"OTEL_SERVICE_NAME": "orders-db"}))
        daemon = stack.enter_context(Daemon())
        second, _, _ = stack.enter_context(postgres(after, free_port(), {"OTEL_SERVICE_NAME": "users-db"}))
        other = subprocess.Popen([shutil.which("python3"), "-c", TITLED, packages], stdout=subprocess.DEVNULL,
                                 env=dict(os.environ, OTEL_SERVICE_NAME="web", PYTHONPATH=packages), start_new_session=True)
        stack.callback(lambda: (os.killpg(other.pid, 9), other.wait()))
        for process in (first, second):
            for child in children_of(process.pid):
                with contextlib.suppress(OSError), open(f"/proc/{child}/environ", "rb") as f:  # workers come and go
                    check(b"OTEL_SERVICE_NAME" not in f.read(), "this PostgreSQL leaves the environment alone")
        wait_until(lambda: any(b"worker" in open(f"/proc/{child}/cmdline", "rb").read() for child in children_of(other.pid)), 60, "the title")
        child, = children_of(other.pid)
        expected = {other.pid: "web", **{pid: "orders-db" for pid in [first.pid, *children_of(first.pid)]},
                    **{pid: "users-db" for pid in [second.pid, *children_of(second.pid)]}}
        check(len(expected) > 9, f"children: {expected}")

        def by_pid():
            items = daemon.get("/api/v1/observability/services").json()["items"]
            return {p["pid"]: item["name"] for item in items for p in item["processes"]}

        def wrong():
            found = by_pid()
            return {pid: (found.get(pid), name) for pid, name in expected.items()
                    if found.get(pid) != name and os.path.exists(f"/proc/{pid}")}

        deadline = time.monotonic() + 40
        while wrong() and time.monotonic() < deadline:
            time.sleep(0.5)
        check(not wrong(), f"pid: (shown, expected): {wrong()}")
        time.sleep(7)  # the facts of a young process are read again after 5 s
        check(not wrong(), f"pid: (shown, expected): {wrong()}")
        check(by_pid()[child] != "web", "a child has the name of another service")


if __name__ == "__main__":
    main(names_that_people_know, titles_written_over_the_environment)
