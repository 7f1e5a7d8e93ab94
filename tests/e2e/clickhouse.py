# SPDX-License-Identifier: Apache-2.0
"""ClickHouse servers of a test's own: Debian's of 2018, and a current one."""

import contextlib
import http.client
import os
import subprocess
import time
import urllib.parse

from harness import free_port, wait_until

PASSWORD = "p@ss:w/rd"
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEBIANS = ("clickhouse-server",)
CURRENT = (f"{TREE}/build/clickhouse-current/bin/python3", f"{TREE}/tests/support/clickhouse_current.py")


class ClickHouse:
    """A server with all it has in a folder of its own; it can be killed and come back."""

    def __init__(self, folder, command):
        self.folder, self.port, self.process, self.command = folder, free_port(), None, command
        self.url = f"clickhouse://prof:{urllib.parse.quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/fleet"
        self.tcp_port = free_port()
        self.write_users(PASSWORD)
        self.write_config()

    def write_config(self, more=""):
        """@more: elements besides those that every server has, as XML."""
        with open(f"{self.folder}/config.xml", "w", encoding="ascii") as f:
            f.write(f"""<yandex><logger><level>error</level><console>1</console></logger>
                <http_port>{self.port}</http_port><tcp_port>{self.tcp_port}</tcp_port><listen_host>127.0.0.1</listen_host>
                <path>{self.folder}/data/</path><tmp_path>{self.folder}/tmp/</tmp_path>
                <users_config>{self.folder}/users.xml</users_config>
                <default_profile>default</default_profile><default_database>default</default_database>
                <mark_cache_size>16777216</mark_cache_size><max_concurrent_queries>100</max_concurrent_queries>{more}</yandex>""")

    def write_users(self, password, settings="", user="", others="", profiles=""):
        """Debian's server takes them over within seconds. @settings of the profile, @user, and @others and @profiles beside the
        user and the profile are XML elements."""
        with open(f"{self.folder}/users.new", "w", encoding="ascii") as f:
            f.write(f"""<yandex><profiles><default>{settings}</default>{profiles}</profiles><quotas><default/></quotas><users><prof>
                <password>{password}</password><networks><ip>127.0.0.1</ip></networks>{user}
                <profile>default</profile><quota>default</quota></prof>{others}</users></yandex>""")
        # The server tells a changed file by its time in whole seconds.
        self.users_time = max(int(time.time()), getattr(self, "users_time", 0) + 2)
        os.utime(f"{self.folder}/users.new", (self.users_time, self.users_time))
        os.replace(f"{self.folder}/users.new", f"{self.folder}/users.xml")

    def answers(self):
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/ping")
            return connection.getresponse().status == 200
        return False

    def start(self):
        log = open(f"{self.folder}/log", "ab")
        self.process = subprocess.Popen([*self.command, f"--config-file={self.folder}/config.xml"], stdout=log, stderr=log,
                                        cwd=self.folder)
        log.close()
        wait_until(self.answers, 120, "ClickHouse to answer")

    def kill(self):
        self.process.kill()
        self.process.wait()
