#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the README's pictures of the page into api/ui/pictures/, from real services under load (about five minutes).

No test: run it by hand after the page has changed, on a host that does nothing else."""

import contextlib
import os
import tempfile

from browser import Site
from harness import FAMILY_A, ROOT, Daemon, check, wait_until
from programs import LIVES
from test_page import GRAPH, known

FOLDER = os.path.join(ROOT, "api/ui/pictures")
LARGEST = 150_000
# The life of programs.py that is shown under a service's name. PostgreSQL and Redis write their titles over their environment.
SERVICES = {"postgres": "postgres", "redis-server": "redis", "orders-api": "go", "reports": "python"}
MINUTES = 5
SECONDS = 20


def save(page, name):
    path = os.path.join(FOLDER, name + ".webp")
    data = page.picture("webp")
    check(len(data) <= LARGEST, f"{path} has {len(data)} bytes, at most {LARGEST}")
    with open(path, "wb") as f:
        f.write(data)
    print(f"{path}: {len(data)} bytes")


def minutes_of_history(daemon):
    items = daemon.get("/api/v1/observability/services?sparkline=cpu").json()["items"]
    return max(sum(value is not None for value in (s.get("sparkline") or {}).get("values", [])) for s in items)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="profd-pictures-") as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user
        daemon = stack.enter_context(Daemon())
        for service, life in SERVICES.items():
            own = os.path.join(folder, life)
            os.makedirs(own)
            stack.enter_context(LIVES[life](own, {"OTEL_SERVICE_NAME": service}))
        for service in SERVICES:
            known(daemon, service)
        check(daemon.request("POST", f"{FAMILY_A}/continuous", {"service": "*"}).status < 300, "continuous profiling")
        wait_until(lambda: minutes_of_history(daemon) >= MINUTES, MINUTES * 120, "some minutes of history")
        views = {"services": ("/", "document.querySelector('.spark path')?.getAttribute('d').includes('L')")}
        for name, service, kind in (("cpu", "reports", "cpu"), ("waits", "postgres", "wall")):
            views[name] = (f"/p/{daemon.profile(service, SECONDS, kind)['id']}", GRAPH)
        with Site(daemon) as page:
            for name, (path, ready) in views.items():
                page.visit(path, ready)
                save(page, name)


if __name__ == "__main__":
    main()
