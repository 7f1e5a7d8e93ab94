#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""An assistant asks profd: the client of PyPI's `mcp` package uses every tool on a real program, over HTTP and through
`profctl mcp`; a key of role read starts nothing."""

import asyncio
import json
import os
import subprocess
import tempfile

from harness import BUILD, FAMILY_A, Daemon, build_truth, check, compile_workload, main, own_name, running, wait_until
from registry import pypi_import

pypi_import("mcp==2.3.0")

import httpx2  # noqa: E402
from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

PROFCTL = os.path.join(BUILD, "profctl")
TOKENS_MAX = 8000
READING = {"list_services", "find_profiles", "top_functions", "compare", "history", "waits_ledger", "locks", "goroutines",
           "findings", "doctor"}


def over_http(daemon, key, **options):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120)
    return Client(streamable_http_client(f"http://127.0.0.1:{daemon.port}/mcp", http_client=http), **options)


def over_stdio(daemon, key):
    return Client(stdio_client(StdioServerParameters(command=PROFCTL, args=["--url", f"http://127.0.0.1:{daemon.port}", "mcp"],
                                                     env={**os.environ, "PROFD_TOKEN": key})), mode="legacy")


async def ask(client, name, fails=False, **arguments):
    answer = await client.call_tool(name, arguments)
    text = answer.content[0].text
    check(bool(answer.is_error) == fails, f"{name} {arguments}: {text[:300]}")
    # no tokenizer makes more than a token of two and a half bytes of such JSON
    check(len(text) / 2.5 <= TOKENS_MAX, f"{name}: {len(text)} bytes")
    if fails:
        return text
    found = json.loads(text)
    check(found.get("units"), f"{name} says no units: {text[:200]}")
    check(found.get("next"), f"{name} says nothing about what to ask next")
    return found


def sessions(daemon, key):
    return daemon.get(f"{FAMILY_A}/history?top=0", headers={"Authorization": f"Bearer {key}"}).json()["total"]


async def use_every_tool(client, busy, waiting):
    found = await ask(client, "list_services", filter=busy)
    check([s["name"] for s in found["services"]] == [busy] and "cpu" in found["services"][0]["profileTypes"], f"{found}")
    taken = [await ask(client, "take_profile", service=busy, profile_type="cpu", seconds=1) for _ in range(2)]
    leaves = {f["function"]: f for f in taken[0]["functions"]}
    hottest = next((f for name, f in leaves.items() if name.startswith("leaf_")), None)
    check(hottest and hottest["callersPctOfSelf"] and taken[0]["quality"]["samples"] > 0, f"{list(leaves)[:5]}")
    again = await ask(client, "top_functions", profile=taken[0]["id"], limit=3)
    check(len(again["functions"]) <= 4 and again["totalValue"] == taken[0]["totalValue"], f"{again}")
    stored = await ask(client, "find_profiles", service=busy)
    check({t["id"] for t in taken} == {p["id"] for p in stored["items"]}, f"{stored}")
    compared = await ask(client, "compare", base=taken[0]["id"], comparison=taken[1]["id"])
    check(compared["verdict"] in ("unchanged", "insufficientData", "improved") and compared["summary"], f"{compared}")
    trend = await ask(client, "history", service=busy, hours=1)
    check(sum(p["sampleCount"] for p in trend["points"]) > 0 and trend["unit"] == "nanoseconds", f"{trend}")
    wall = await ask(client, "take_profile", service=waiting, profile_type="wall", seconds=1)
    ledger = await ask(client, "waits_ledger", profile=wall["id"])
    check(ledger["threads"] and ledger["threads"][0]["elapsedNs"] > 0, f"{ledger}")
    mutex = await ask(client, "take_profile", service=waiting, profile_type="mutex", seconds=1)
    await ask(client, "locks", profile=mutex["id"])
    threads = await ask(client, "take_profile", service=waiting, profile_type="goroutine")
    states = await ask(client, "goroutines", profile=threads["id"])
    check(states["goroutineCount"] > 0 and states["states"] and states["topStacks"], f"{states}")
    await ask(client, "findings")
    doctor = await ask(client, "doctor")
    check(doctor["version"] and "ready" in doctor, f"{doctor}")
    check("UnknownService" not in (text := await ask(client, "take_profile", fails=True, service="nobody-has-this-name")) and
          "nobody-has-this-name" in text, text)
    check("profile" in await ask(client, "top_functions", fails=True), "arguments that are missing")
    await ask(client, "take_profile", fails=True, service=busy, seconds=100000)


async def use_prompts(client, service):
    listed = (await client.list_prompts()).prompts
    check({p.name for p in listed} == {"why_is_it_slow", "did_the_release_regress", "what_leaks"}, f"{listed}")
    for prompt in listed:
        got = await client.get_prompt(prompt.name, {"service": service})
        text = got.messages[0].content.text
        named = {name for name in READING | {"take_profile"} if name in text}
        check(service in text and len(named) >= 2, f"{prompt.name}: {text[:200]}")


async def look_only(client, busy):
    names = {t.name for t in (await client.list_tools()).tools}
    check(names == READING, f"tools of role read: {names}")
    found = await ask(client, "find_profiles", service=busy)
    check(found["items"], "role read reads")
    await ask(client, "top_functions", service=busy, minutes=60)
    check("role" in await ask(client, "take_profile", fails=True, service=busy, seconds=1), "role read takes a profile")


async def everything(daemon, keys, busy, waiting):
    async with over_http(daemon, keys["profile"]) as client:  # tries the newest protocol first
        names = {t.name for t in (await client.list_tools()).tools}
        check(names == READING | {"take_profile"}, f"tools: {names}")
        await use_every_tool(client, busy, waiting)
        await use_prompts(client, busy)
    before = sessions(daemon, keys["read"])
    async with over_http(daemon, keys["read"], mode="legacy") as client:
        await look_only(client, busy)
    async with over_stdio(daemon, keys["read"]) as client:
        await look_only(client, busy)
        await use_prompts(client, busy)
    check(sessions(daemon, keys["read"]) == before, "role read has started something")
    async with over_stdio(daemon, keys["profile"]) as client:
        taken = await ask(client, "take_profile", service=busy, seconds=1)
        check(taken["functions"], f"{taken}")


def check_protocol(daemon, key):
    def post(body, **headers):
        return daemon.request("POST", "/mcp", body, {"Content-Type": "application/json", "Authorization": f"Bearer {key}",
                                                     **headers})

    check(daemon.request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 401, "without a key")
    check(post('{"jsonrpc":"2.0","method":"notifications/initialized"}').status == 202, "a notification")
    check(post('{"jsonrpc":"2.0","id":"x","method":"ping"}').json() == {"jsonrpc": "2.0", "id": "x", "result": {}}, "ping")
    for body, code in (('{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601), ('{"jsonrpc":"2.0","id":1}', -32600),
                       ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}', -32602),
                       ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"doctor","arguments":3}}', -32602),
                       ('{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"what_leaks"}}', -32602)):
        check(post(body).json()["error"]["code"] == code, f"{body}: {post(body)}")
    for body in ("[]", "{", '"x"', ""):
        check(post(body).status == 400, f"{body}: {post(body)}")
    check(post('{"jsonrpc":"2.0","id":1,"method":"ping"}', **{"MCP-Protocol-Version": "1999-01-01"}).status == 400, "version")
    check(daemon.request("GET", "/mcp", headers={"Authorization": f"Bearer {key}"}).status == 405, "no stream")


def test_an_assistant():
    with tempfile.TemporaryDirectory() as folder, own_name(build_truth()) as program, \
            own_name(compile_workload("off_locks.c", "-O1", "-fno-omit-frame-pointer", "-lpthread")) as waits, \
            Daemon("--socket", f"{folder}/s") as daemon, running(program, "600"), running(waits, "600"):
        keys = {}
        for role in ("read", "profile"):
            made = subprocess.run([PROFCTL, "--socket", f"{folder}/s", "key", "create", "--name", role, "--role", role],
                                  check=True, capture_output=True, text=True)
            keys[role] = made.stdout.split()[-1]
        busy, waiting = os.path.basename(program), os.path.basename(waits)
        wait_until(lambda: {busy, waiting} <= {s["name"] for s in daemon.get(
            "/api/v1/observability/services", headers={"Authorization": f"Bearer {keys['read']}"}).json()["items"]}, 60,
            "the services to be known")
        asyncio.run(everything(daemon, keys, busy, waiting))
        check_protocol(daemon, keys["read"])


if __name__ == "__main__":
    main(test_an_assistant)
