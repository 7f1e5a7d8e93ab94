# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Files that are installed beside the programs: the unit's exposure and syntax, the maintainer's
scripts, the Prometheus rules and the Grafana dashboard against the metrics of a live daemon. The
packages themselves are built and installed by tests/long/package."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from harness import BUILD, ROOT, Daemon, Skip, check, main, wait_until

DEBIAN = os.path.join(ROOT, "tools/packaging/debian")
ALERTS = os.path.join(ROOT, "tools/packaging/prometheus/profd-alerts.yml")
DASHBOARD = os.path.join(ROOT, "tools/packaging/grafana/profd.json")
EXPOSURE_MAX = 3.0


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)
    check(done.returncode == 0, f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def promtool():
    """The path of promtool. Debian's prometheus package is unpacked and not installed, since no
    service shall start here."""
    found = shutil.which("promtool")
    if found:
        return found
    folder = os.path.join(BUILD, "promtool")
    program = os.path.join(folder, "usr/bin/promtool")
    if not os.path.exists(program):
        os.makedirs(folder, exist_ok=True)
        run("sh", "-c", ". \"$0\"; apt_patiently download prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb",
            os.path.join(ROOT, "tools/packages.sh"), cwd=folder)
    return program


def what_make_install_installs():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        run("make", "-s", f"O={BUILD}", "install", f"DESTDIR={folder}", cwd=ROOT)
        for path in ("usr/sbin/profd", "usr/bin/profctl", "etc/profd/profd.conf", "lib/systemd/system/profd.service",
                     "lib/systemd/system-generators/profd-generator",
                     "usr/lib/sysusers.d/profd.conf", "usr/lib/tmpfiles.d/profd.conf", "usr/lib/sysctl.d/50-profd.conf", "usr/share/man/man8/profd.8",
                     "usr/share/man/man5/profd.conf.5",
                     "usr/share/man/man1/profctl.1", "usr/share/bash-completion/completions/profctl",
                     "usr/share/profd/profd-alerts.yml", "usr/share/profd/profd-dashboard.json", "usr/share/profd/profd-datasource.yaml"):
            check(os.path.getsize(os.path.join(folder, path)) > 0, path)
        for page in ("man8/profd.8", "man5/profd.conf.5", "man1/profctl.1"):
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", os.path.join(folder, "usr/share/man", page)],
                                      capture_output=True, text=True, env=dict(os.environ, MANWIDTH="100", LC_ALL="C.UTF-8"))
                check(done.returncode == 0 and not done.stderr, done.stderr)
        with open(os.path.join(folder, "usr/share/man/man5/profd.conf.5")) as f:
            described = set(re.findall(r"^\.B ([a-z0-9_]+) =", f.read(), re.M))
        with open(os.path.join(folder, "etc/profd/profd.conf")) as f:
            check(described == set(re.findall(r"^#([a-z0-9_]+) =", f.read(), re.M)), f"profd.conf(5): {described}")
        with open(os.path.join(folder, "usr/share/man/man8/profd.8")) as f:
            manual = f.read().replace("\\-", "-")
        for option in re.findall(r"--[a-z-]+", run(os.path.join(folder, "usr/sbin/profd"), "--help")):
            check(option in manual or option in ("--help", "--usage"), f"profd(8) has no {option}")
        run(os.path.join(folder, "usr/sbin/profd"), "--check", "--no-collect", "--config",
            os.path.join(folder, "etc/profd/profd.conf"))
        # no path of the machine that built it, in what is not debug information
        stripped = os.path.join(folder, "stripped")
        run("strip", "-o", stripped, os.path.join(folder, "usr/sbin/profd"))
        with open(stripped, "rb") as f:
            check(ROOT.encode() not in f.read(), f"{ROOT} stands in the program")


def the_unit():
    unit = os.path.join(DEBIAN, "profd.service")
    text = run("systemd-analyze", "security", "--offline=yes", unit)
    exposure = float(re.search(r"exposure level for profd.service: ([0-9.]+)", text).group(1))
    check(exposure <= EXPOSURE_MAX, f"exposure {exposure}")
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        # the programs it names need not be installed here
        copy = os.path.join(folder, "profd.service")
        with open(unit) as f:
            content = f.read()
        with open(copy, "w") as f:
            f.write(content.replace("/usr/sbin/profd", os.path.join(BUILD, "profd")).replace("man:profd(8)", ""))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
        check("profd.service" not in done.stderr, done.stderr)


def hardening_that_is_left():
    """Each line of systemd-analyze that counts against the unit has its reason in the operator's guide."""
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    with open(os.path.join(ROOT, "tools/packaging/README.md"), encoding="utf-8") as file:
        guide = file.read()
    reasons = guide[guide.index("systemd-analyze security"):]
    report = run("systemd-analyze", "security", "--offline=true", "--no-pager", os.path.join(DEBIAN, "profd.service"))
    left = [line.split()[1] for line in report.splitlines() if line.startswith("✗")]
    check(left, f"nothing counts against the unit, so the table can go: {report}")
    for name in left:
        key, _, value = name.partition("=")
        word = re.sub(r"[|)].*", "", value[1:]) if value.startswith("~") else key
        check(f"{key}=" in reasons and word in reasons, f"tools/packaging/README.md has no reason for {name}")


def maintainer_scripts():
    for name in ("profd.postinst", "profd.postrm"):
        path = os.path.join(DEBIAN, name)
        run("sh", "-n", path)
        with open(path) as f:
            text = f.read()
        check("set -e" in text and "#DEBHELPER#" in text, name)
        run("shellcheck", path)
    with open(os.path.join(DEBIAN, "profd.postrm")) as f:
        check(re.search(r'"\$1" = purge.*rm -rf /var/lib/profd', f.read(), re.S), "data goes with purge alone")


def expressions():
    """Every PromQL expression of the dashboard, with the dashboard's variables filled in."""
    with open(DASHBOARD) as f:
        dashboard = json.load(f)
    found = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    ids = [panel["id"] for panel in dashboard["panels"]]
    check(len(set(ids)) == len(ids) and all(p["title"] for p in dashboard["panels"]), "panels")
    cells = {(x, y) for p in dashboard["panels"] for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
             for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])}
    check(len(cells) == sum(p["gridPos"]["w"] * p["gridPos"]["h"] for p in dashboard["panels"]), "panels overlap")
    return [e.replace("$job", "profd").replace("$instance", ".*").replace("$__rate_interval", "5m") for e in found]


def prometheus_and_grafana():
    tool = promtool()
    run(tool, "check", "rules", ALERTS)
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        shutil.copy(ALERTS, folder)
        shutil.copy(os.path.join(ROOT, "tests/golden/prometheus-alerts.yml"), folder)
        run(tool, "test", "rules", "prometheus-alerts.yml", cwd=folder)
        # a rule for each expression lets promtool parse it
        rules = {"groups": [{"name": "d", "rules": [{"record": f"r{i}", "expr": e} for i, e in enumerate(expressions())]}]}
        with open(os.path.join(folder, "dashboard.yml"), "w") as f:
            json.dump(rules, f)  # JSON is YAML
        run(tool, "check", "rules", "dashboard.yml", cwd=folder)
    with Daemon() as daemon:
        daemon.profile("*", 1)
        text = daemon.get("/metrics").body.decode()
        done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True)
        check(done.returncode == 0 and not done.stdout + done.stderr, f"{done.stdout}{done.stderr}")
        names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
        with open(ALERTS) as f:
            used = set(re.findall(r"\bprofd_[a-z_]+", f.read() + " ".join(expressions())))
        check(used <= names, f"no such metrics: {used - names}")
        outcomes = set(re.findall(r'outcome="([a-z_0-9]+)"', text))
        with open(ALERTS) as f:
            for words in re.findall(r'outcome=~"([^"]+)"', f.read() + " ".join(expressions())):
                check(set(words.split("|")) <= outcomes, f"no such outcomes: {set(words.split('|')) - outcomes}")
        limits = set(re.findall(r'profd_limit\{name="([a-z_]+)"\}', text))
        with open(os.path.join(ROOT, "api/README.md")) as f:
            rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", f.read(), re.M)
        described = {name for row in rows for name in re.findall("[a-z_]+", row)}
        check(limits == described, f"/metrics and the table of limits differ: {limits ^ described}")


def without_npm():
    """`make` says that the page is served as separate modules, and the daemon serves it so."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        tools, build = os.path.join(folder, "bin"), os.path.join(folder, "build")
        os.mkdir(tools)
        for place in reversed(os.environ["PATH"].split(":")):
            for name in os.listdir(place) if os.path.isdir(place) else ():
                link = os.path.join(tools, name)
                if name not in ("node", "nodejs", "npm", "npx"):
                    if os.path.lexists(link):
                        os.unlink(link)
                    os.symlink(os.path.join(place, name), link)
        # The objects that are there, but for the page's.
        os.mkdir(build)
        for name in ("agent", "api", "symbolize", "tools", "gen", "bpf", "libprofd.a"):
            run("cp", "-a", os.path.join(BUILD, name), build)
        shutil.rmtree(os.path.join(build, "ui"), ignore_errors=True)
        os.unlink(os.path.join(build, "gen/ui_files.h"))
        os.unlink(os.path.join(build, "api/http/assets.o"))
        done = subprocess.run(["make", "-s", f"O={build}", os.path.join(build, "profd")], cwd=ROOT, capture_output=True,
                              text=True, timeout=600, env=dict(os.environ, PATH=tools))
        check(done.returncode == 0, done.stderr[-1500:])
        check("node and npm are not there" in done.stderr, done.stderr)
        daemon = Daemon("--no-collect")
        daemon.program = os.path.join(build, "profd")
        with daemon:
            page = daemon.get("/", headers={"Accept": "text/html"}).body.decode()
            files = re.findall(r'(?:src|href)="(/ui/[^"]+)"', page)
            check("<html" in page and files, page[:500])
            for path in files:
                check(daemon.get(path).body, path)


def runs_by_the_notify_protocol():
    """READY=1 when it serves, STOPPING=1 when it is told to end, RELOADING=1 for SIGHUP: what Type=notify goes by."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(0.2)
            said = []

            def heard(word):
                try:
                    said.append(manager.recv(4096).decode())
                except socket.timeout:
                    pass
                return any(word in text for text in said)

            with Daemon("--no-collect", env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "10000000"}) as daemon:
                wait_until(lambda: heard("READY=1"), 60, "READY=1")
                wait_until(lambda: heard("WATCHDOG=1"), 60, "WATCHDOG=1")
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: heard("RELOADING=1"), 60, "RELOADING=1")
            wait_until(lambda: heard("STOPPING=1"), 60, "STOPPING=1")


if __name__ == "__main__":
    main(what_make_install_installs, the_unit, hardening_that_is_left, maintainer_scripts, prometheus_and_grafana, without_npm, runs_by_the_notify_protocol)
