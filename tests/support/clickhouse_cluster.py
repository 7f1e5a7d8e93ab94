# SPDX-License-Identifier: Apache-2.0
"""A ClickHouse cluster for the tests: ZooKeeper, Debian's clickhouse-server as three replicas of one shard, and a balancer that
sends each request to the next replica. All in a temporary folder, on free ports of 127.0.0.1.

It prints four ports (of the replicas, and of the balancer) and obeys the lines of its input: `kill N` and `start N`. It
answers each line with `ok`. At the end of its input everything is killed and removed.

There is no cluster of the current release: chdb-core has tables with replicas, but neither the thread that runs statements
ON CLUSTER (exception 392) nor the port at which replicas fetch parts from each other."""

import contextlib
import http.client
import http.server
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

from clickhouse import DEBIANS, PASSWORD, ClickHouse  # noqa: E402 (after sys.path)
from harness import free_port, wait_until  # noqa: E402

REPLICAS = 3
JARS = [f"/usr/share/java/{name}.jar" for name in (
    "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "metrics-core", "snappy-java")]


class ZooKeeper:
    def __init__(self, folder):
        self.port = free_port()
        with open(f"{folder}/zoo.cfg", "w", encoding="ascii") as f:
            f.write(f"dataDir={folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
                    "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,dump\n")
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no", "-cp", ":".join(JARS),
                 "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{folder}/zoo.cfg"], stdout=log, stderr=log)
        # A replica of 18.16 that starts earlier ends with a segmentation fault.
        wait_until(lambda: "Mode: standalone" in self.ask("srvr"), 60, "ZooKeeper to serve")

    def ask(self, command):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall(command.encode())
            return s.makefile().read()
        return ""


class Replica(ClickHouse):
    """A ClickHouse of the cluster `main`. INSERTs of the user `quorum` wait for two replicas, those of `default` for one."""

    def join(self, number, replicas, zookeeper):
        # 18.16 sends DROP PARTITION to the leading replica as `default`.
        self.write_users(PASSWORD, profiles="<quorum><insert_quorum>2</insert_quorum></quorum>", others="".join(
            f"<{name}><password/><networks><ip>127.0.0.1</ip></networks><profile>{name}</profile><quota>default</quota></{name}>"
            for name in ("default", "quorum")))
        others = "".join(f"""<replica><host>127.0.0.1</host><port>{replica.tcp_port}</port></replica>""" for replica in replicas)
        self.write_config(f"""<interserver_http_host>127.0.0.1</interserver_http_host>
            <interserver_http_port>{free_port()}</interserver_http_port>
            <zookeeper><node><host>127.0.0.1</host><port>{zookeeper.port}</port></node>
            <session_timeout_ms>2000</session_timeout_ms></zookeeper>
            <remote_servers><main><shard><internal_replication>true</internal_replication>{others}</shard></main></remote_servers>
            <macros><shard>1</shard><replica>r{number}</replica></macros>
            <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>""")
        self.session, self.zookeeper = f"/replicas/r{number}/is_active", zookeeper

    def kill(self):
        """Also waits until its session is over: 18.16 that starts earlier takes itself for running, for ten seconds."""
        super().kill()
        wait_until(lambda: self.session not in self.zookeeper.ask("dump"), 60, "the session to end")


class Balancer(http.server.ThreadingHTTPServer):
    """A connection serves one request, so that each request goes to the next replica, or to a later one if that is dead."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, replicas):
        super().__init__(("127.0.0.1", 0), Handler)
        self.next, self.replicas = itertools.count(), replicas


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        first = next(self.server.next)
        for turn in range(first, first + REPLICAS):
            replica = self.server.replicas[turn % REPLICAS]
            connection = http.client.HTTPConnection("127.0.0.1", replica.port)
            try:
                connection.connect()
            except OSError:
                continue
            connection.request("POST", self.path, body, dict(self.headers))
            answer = connection.getresponse()
            text = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        self.send_error(503)

    def handle(self):
        # A replica that is killed meanwhile ends the connection without an answer.
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().handle()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="profd-cluster-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    running, numbers = [], [str(number + 1) for number in range(REPLICAS)]
    try:
        for name in ("zookeeper", *numbers):
            os.mkdir(f"{folder}/{name}")
        zookeeper = ZooKeeper(f"{folder}/zookeeper")
        running.append(zookeeper)
        replicas = [Replica(f"{folder}/{number}", DEBIANS) for number in numbers]
        for number, replica in enumerate(replicas, 1):
            replica.join(number, replicas, zookeeper)
        for replica in replicas:
            running.append(replica)
            replica.start()
        balancer = Balancer(replicas)
        threading.Thread(target=balancer.serve_forever, daemon=True).start()
        print(*(replica.port for replica in replicas), balancer.server_port, flush=True)
        for line in sys.stdin:
            verb, number = line.split()
            getattr(replicas[int(number) - 1], verb)()
            print("ok", flush=True)
    finally:
        for one in running:
            if one.process:
                one.process.kill()
                one.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
