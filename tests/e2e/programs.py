# SPDX-License-Identifier: Apache-2.0
"""Real programs that suites and benches start: servers with their clients, each for one life."""

import contextlib
import glob
import os
import pwd
import socket
import subprocess
import time

from harness import ROOT, WORKLOADS, check, free_port, wait_until

GO_JSON = """
package main

import (
	"encoding/json"
	"net/http"
	"os"
	"sort"
)

type order struct {
	ID    int
	Name  string
	Lines []map[string]float64
}

func handle(w http.ResponseWriter, r *http.Request) {
	orders := make([]order, 30)
	for i := range orders {
		orders[i] = order{ID: i * 7919 % 31, Name: r.URL.Path, Lines: []map[string]float64{{"price": 1.5, "tax": 0.19}}}
	}
	text, _ := json.Marshal(orders)
	var again []order
	if json.Unmarshal(text, &again) != nil {
		os.Exit(1)
	}
	sort.Slice(again, func(i, j int) bool { return again[i].ID < again[j].ID })
	_ = json.NewEncoder(w).Encode(again)
}

func main() {
	http.HandleFunc("/", handle)
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
"""
PYTHON = """
import json, random, zlib
print("ready", flush=True)
draw = random.Random(1)
while True:
    rows = [{"id": i, "name": f"row {i}", "values": [draw.random() for _ in range(10)]} for i in range(60)]
    text = json.dumps(sorted(json.loads(json.dumps(rows)), key=lambda row: row["values"][0]))
    zlib.crc32(text.encode())
"""


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def started(command, port=None, **kwargs):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    try:
        if port:
            wait_until(lambda: process.poll() is not None or answers(port), 60, f"{command[0]} to listen")
            check(process.poll() is None, f"{command[0]} ended: {process.stdout.read() if process.poll() is not None else ''}")
        else:
            check(process.stdout.readline() == "ready\n", f"{command[0]} is not ready")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextlib.contextmanager
def load(*command, **kwargs):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kwargs)
    try:
        time.sleep(0.5)
        check(process.poll() is None, f"{command[0]} ended at once")
        yield
    finally:
        process.kill()
        process.wait()


def build_go_source(name, text):
    """Builds one file of Go without modules; the program's path."""
    folder = os.path.join(WORKLOADS, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "main.go"), "w") as f:
        f.write(text)
    program = os.path.join(folder, name)
    subprocess.run(["go", "build", "-o", program, os.path.join(folder, "main.go")], check=True, cwd=ROOT,
                   env=dict(os.environ, GO111MODULE="off", CGO_ENABLED="0"))
    return program


@contextlib.contextmanager
def postgres(folder, port, env=None):
    """A server whose data lies in @folder, made at its first life."""
    tools = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    run = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = os.path.join(folder, "data")
    if not os.path.exists(data):
        subprocess.run([*run, tools + "/initdb", "-D", data, "-A", "trust", "--no-sync"], check=True,
                       stdout=subprocess.DEVNULL, cwd=folder)
    with started([*run, tools + "/postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"], port,
                 cwd=folder, env=dict(os.environ, **(env or {}))) as process:
        wait_until(lambda: subprocess.run([tools + "/pg_isready", "-h", "127.0.0.1", "-p", str(port)],
                                          stdout=subprocess.DEVNULL, check=False).returncode == 0, 60, "postgres")
        yield process, ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres"], tools


# ---- lives: a service of that name with its load; folder keeps what outlives it ------------------------------------


@contextlib.contextmanager
def postgres_life(folder, env):
    with postgres(folder, free_port(), env) as (_process, where, tools):
        if not os.path.exists(os.path.join(folder, "filled")):
            subprocess.run([tools + "/pgbench", *where, "-i", "-q", "-s", "5", "postgres"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(os.path.join(folder, "filled"), "w"):
                pass
        with load(tools + "/pgbench", *where, "-n", "-c", "4", "-R", "250", "-T", "36000", "postgres"):
            yield


@contextlib.contextmanager
def redis_life(folder, env):
    port = free_port()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, "dump.rdb"))  # while it is loaded again, clients are refused
    with started(["redis-server", "--port", str(port), "--dir", folder, "--save", "20 1"], port,
                 env=dict(os.environ, **env)), \
            load("redis-benchmark", "-p", str(port), "-q", "-l", "-t", "set,get,lpush,lpop,sadd", "-c", "3", "-r", "100000"):
        yield


@contextlib.contextmanager
def go_life(_folder, env):
    port = free_port()
    with started([build_go_source("go_json", GO_JSON), str(port)], port, env=dict(os.environ, **env)), \
            load("wrk", "-t", "1", "-c", "4", "-d", "36000", f"http://127.0.0.1:{port}/orders"):
        yield


@contextlib.contextmanager
def compile_life(_folder, env):
    """A new compiler for each file, as make does it."""
    loop = f"trap 'exit' TERM; while true; do for f in {ROOT}/tests/workloads/*.c; do gcc -O2 -c -o /dev/null $f; done; done"
    process = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=dict(os.environ, **env), start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@contextlib.contextmanager
def python_life(_folder, env):
    with started(["python3", "-c", PYTHON], env=dict(os.environ, **env)):
        yield


LIVES = {"postgres": postgres_life, "redis": redis_life, "go": go_life, "compile": compile_life, "python": python_life}


@contextlib.contextmanager
def lives(folder, prefix):
    """One life of each of LIVES, all at once, as services prefix + name."""
    os.chmod(folder, 0o755)  # postgres is another user
    with contextlib.ExitStack() as stack:
        for name, life in LIVES.items():
            own = os.path.join(folder, name)
            os.makedirs(own, exist_ok=True)
            stack.enter_context(life(own, {"OTEL_SERVICE_NAME": prefix + name}))
        yield
