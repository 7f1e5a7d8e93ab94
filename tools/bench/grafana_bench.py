# SPDX-License-Identifier: Apache-2.0
"""Waiting times of Grafana: the calls of its data source on a history of 200 services over 24 hours (series.c)."""

import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

from harness import BUILD, Daemon, check

SERVICES, RUNS = 200, 9
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


def varint(number):
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def protobuf(fields):
    """A message of {field number: int, float, text or list of texts}."""
    out = b""
    for number, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, float):
                out += varint(number << 3 | 1) + struct.pack("<d", one)
            elif isinstance(one, int):
                out += varint(number << 3) + varint(one)
            else:
                out += varint(number << 3 | 2) + varint(len(one)) + one.encode()
    return out


def timed(daemon, call, request):
    """Median milliseconds, and the answer, as Grafana asks: protobuf, not compressed between the two on one host."""
    times, body = [], protobuf(request)
    for _ in range(RUNS):
        begin = time.monotonic()
        answer = daemon.request("POST", "/querier.v1.QuerierService/" + call, body, {"Content-Type": "application/proto"})
        times.append((time.monotonic() - begin) * 1000)
        check(answer.status == 200, f"{call}: {answer}")
    return statistics.median(times), answer


def grafana():
    """{call: (median ms, bytes)}"""
    folder = tempfile.mkdtemp(prefix="profd-bench-")
    subprocess.run([os.path.join(BUILD, "tools/bench/series"), folder, str(SERVICES)], check=True)
    end = int(time.time()) // 3600 * 3600
    begin_ms, end_ms = (end - 86400) * 1000, end * 1000
    series = {1: CPU, 2: "{}", 3: begin_ms, 4: end_ms, 5: "service_name", 6: 60.0}
    found = {}
    with Daemon("--no-collect", data_dir=folder) as daemon:
        for name, call, request in (
                ("profile types", "ProfileTypes", {1: begin_ms, 2: end_ms}),
                ("label names", "LabelNames", {1: "{}", 2: begin_ms, 3: end_ms}),
                ("label values", "LabelValues", {1: "service_name", 2: "{}", 3: begin_ms, 4: end_ms}),
                ("services and their types", "Series", {2: ["service_name", "__profile_type__"], 3: begin_ms, 4: end_ms}),
                ("a point a minute of each service", "SelectSeries", series),
                ("the ten largest", "SelectSeries", {**series, 9: 10}),
                ("the sum of a matcher", "SelectSeries", {**series, 2: '{service_name=~"service-1.*"}', 5: []})):
            median, answer = timed(daemon, call, request)
            found[name] = (median, len(answer.body))
        check(found["a point a minute of each service"][1] > SERVICES * 1440 * 16, f"{found}")
    shutil.rmtree(folder)
    return found


def run(absolute):
    for name, (median, size) in grafana().items():
        absolute(f"Grafana, {SERVICES} services, 24 h: {name}, median ms", median, 300, f"{size / 1024:.0f} KiB of protobuf")
