# SPDX-License-Identifier: Apache-2.0
"""A current ClickHouse for the tests: the HTTP interface of a ClickHouse server in front of chdb-core (PyPI), which is
ClickHouse's engine in a process. It takes the configuration that the tests write for Debian's clickhouse-server:
--config-file=PATH with http_port, path, users_config and, in that file, users, passwords and the settings of the profile.
It listens on 127.0.0.1 alone. Statements run in the real engine; logins, URLs and framing are done here as
ClickHouse's HTTPHandler does them. Not the real thing: the queue of asynchronous inserts, and access rights."""

import http.server
import os
import queue
import re
import struct
import sys
import threading
import urllib.parse
import xml.etree.ElementTree

CONFIG = next(argument.split("=", 1)[1] for argument in sys.argv[1:] if argument.startswith("--config-file="))
ROOT = xml.etree.ElementTree.parse(CONFIG).getroot()
USERS_ROOT = xml.etree.ElementTree.parse(ROOT.findtext("users_config")).getroot()
DATA = os.path.abspath(ROOT.findtext("path"))
USERS = {user.tag: user.findtext("password") or "" for user in USERS_ROOT.find("users")}
# a server does not wait for mutations unless it is told to; chdb does
PROFILE = {"mutations_sync": "0", **{setting.tag: setting.text for setting in USERS_ROOT.find("profiles/default")
                                     if setting.tag != "max_memory_usage"}}
os.makedirs(DATA, exist_ok=True)
os.chdir(DATA)  # chdb reads a config.xml of the current folder

import chdb  # noqa: E402 (after chdir)

# what a URL holds beside settings
NO_SETTINGS = {"query", "database", "decompress", "wait_end_of_query", "http_native_compression_disable_checksumming_on_decompress"}
STATUS = {516: 403, 192: 403, 497: 403, 392: 403, 164: 403, 60: 404, 81: 404, 62: 400, 206: 400, 115: 400, 36: 400}
FRAME_HEAD = 16 + 9  # checksum; method, both lengths
METHOD_NONE = 0x02


class Refusal(Exception):
    """An exception of ClickHouse, by its number."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def refusal_of(error):
    text = str(error)
    found = re.search(r"Code: (\d+)\..*", text, re.DOTALL)
    code, text = (int(found[1]), found[0]) if found else (1002, f"Code: 1002. DB::Exception: {text}")
    return Refusal(code, f"{text} (version {VERSION} (official build))")


class Connections:
    """Idle connections by the settings that they have; each is made with the profile's first."""

    def __init__(self):
        self.lock, self.idle = threading.Lock(), {}

    def take(self, settings):
        with self.lock:
            idle = self.idle.setdefault(settings, queue.LifoQueue())
        try:
            return idle.get_nowait()
        except queue.Empty:
            pass
        connection = chdb.connect(DATA)
        try:
            # a profile that forbids something forbids it to the statements, not to the settings of this loop
            for name, value in sorted({**PROFILE, **dict(settings)}.items(), key=lambda item: item[0] == "allow_ddl"):
                run(connection, f"SET {name} = '{value}'")
        except Refusal:
            connection.close()
            raise
        return connection

    def give(self, settings, connection):
        with self.lock:
            self.idle[settings].put(connection)


VERSION = chdb.query("SELECT version()", "TabSeparated").bytes().decode().strip()
CONNECTIONS = Connections()


def run(connection, sql):
    try:
        answer = connection.query(sql, "TabSeparated")
    except Exception as error:
        raise refusal_of(error) from error
    return answer.bytes() if answer is not None and hasattr(answer, "bytes") else b""


def insert(connection, sql, rows):
    """One block, or nothing. chdb says nothing of a part that cannot be put into place, where a server answers an exception."""
    statement, name = re.fullmatch(r"(.*)\sFORMAT\s+(\w+)\s*", sql, re.DOTALL).groups()
    try:
        stream = connection.send_insert(statement, name)
        try:
            stream.append(rows)
            stream.finish()
        except BaseException:
            stream.cancel()
            raise
    except Exception as error:
        raise refusal_of(error) from error


def unframe(body):
    """The bytes inside of ClickHouse's own framing (CompressedReadBuffer), whose checksum the URL says is not looked at."""
    out, at = [], 0
    while at < len(body):
        if len(body) - at < FRAME_HEAD:
            raise Refusal(33, "Code: 33. DB::Exception: Cannot read all data. (CANNOT_READ_ALL_DATA)")
        method, size, _ = struct.unpack_from("<BII", body, at + 16)
        if method != METHOD_NONE:
            raise Refusal(432, f"Code: 432. DB::Exception: Unknown codec family code: {method} (UNKNOWN_CODEC)")
        if len(body) - at - 16 < size or size < 9:
            raise Refusal(33, "Code: 33. DB::Exception: Cannot read all data. (CANNOT_READ_ALL_DATA)")
        out.append(body[at + FRAME_HEAD:at + 16 + size])
        at += 16 + size
    return b"".join(out)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, b"Ok.\n") if self.path == "/ping" else self.answer(404, b"")

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        try:
            self.answer(200, self.work(body))
        except Refusal as refusal:
            print(refusal, file=sys.stderr, flush=True)
            self.answer(STATUS.get(refusal.code, 500), f"{refusal}\n".encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def login(self):
        user = self.headers.get("X-ClickHouse-User", "default")
        if USERS.get(user) != self.headers.get("X-ClickHouse-Key", ""):
            raise Refusal(516, f"Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect, or there is "
                               "no user with such name. (AUTHENTICATION_FAILED)")

    def work(self, body):
        self.login()
        url = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True, errors="surrogateescape"))
        if url.get("decompress") == "1":
            body = unframe(body)
        settings = tuple(sorted((name, value) for name, value in url.items() if name not in NO_SETTINGS))
        connection = CONNECTIONS.take(settings)
        try:
            run(connection, f"USE `{url.get('database', 'default')}`")
            if "query" not in url:
                return run(connection, body)
            insert(connection, url["query"], body)
            return b""
        finally:
            CONNECTIONS.give(settings, connection)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


Server(("127.0.0.1", int(ROOT.findtext("http_port"))), Handler).serve_forever()
