# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""One real profile in every format: each parses with a reader of its own kind and carries the same total,
the trees are equal, and the tools of the formats' owners agree on the first function."""

import base64
import collections
import csv
import gzip
import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree

from harness import FAMILY_A, ROOT, Daemon, Skip, build_truth, check, cpu_ns, main, own_name, running, wait_until

FORMATS = {  # format: media type
    "html": "text/html", "svg": "image/svg+xml", "json": "application/json", "flame": "application/json",
    "folded": "text/plain", "pprof": "application/octet-stream", "firefox": "application/json",
    "speedscope": "application/json", "otlp": "application/x-protobuf", "perfscript": "text/plain",
    "callgrind": "text/plain", "autofdo": "text/plain", "csv": "text/csv", "lines": "application/json",
}
taken = {}


def profile():
    """{"result": …, "folded": [(frames, value)], format: bytes}, taken once for all tests of this file."""
    if taken:
        return taken
    with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2") as process:
        session = daemon.start_profile(os.path.basename(program), 600, rate=199)
        begin = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - begin > 5e9, 120, "the program to run")
        result = daemon.stop_profile(session)
        for name, media in FORMATS.items():
            answer = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format={name}")
            check(answer.headers["Content-Type"].split(";")[0] == media, f"{name}: {answer.headers}")
            taken[name] = answer.body
            accepted = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format={name}",
                                  headers={"Accept-Encoding": "gzip"})
            if accepted.headers.get("Content-Encoding") == "gzip":
                check(gzip.decompress(accepted.body) == answer.body, f"{name}: another body when compressed")
        taken["stacks"] = daemon.folded(session)
        taken["result"] = result
    check(result["sampleCount"] > 300, f"only {result['sampleCount']} samples")
    return taken


def total():
    return profile()["result"]["totalValue"]


def merged(stacks):
    """{frames joined by newlines: value}: stacks that differ only in what a format does not carry are one."""
    sums = collections.Counter()
    for frames, value in stacks:
        sums["\n".join(frames)] += value
    return sums


def tree_stacks(node, above=()):
    """The stacks of nested {name, value, self, children} below its root."""
    for child in node.get("children", []):
        path = (*above, child["name"])
        if child["self"]:
            yield path, child["self"]
        yield from tree_stacks(child, path)


def check_sums(node):
    below = sum(child["value"] for child in node.get("children", []))
    check(node["value"] == node["self"] + below, f"{node['name']}: {node['value']} != {node['self']} + {below}")
    for child in node.get("children", []):
        check_sums(child)


def check_same(name, stacks):
    due, got = merged(profile()["stacks"]), merged(stacks)
    check(sum(got.values()) == total(), f"{name} sums to {sum(got.values())}, not {total()}")
    for stack in due.keys() | got.keys():
        check(due[stack] == got[stack], f"{name}: {got[stack]}, not {due[stack]} for {stack.splitlines()}")


def folded_and_json():
    check_same("folded", profile()["stacks"])
    tree = json.loads(profile()["json"])
    check(tree["value"] == total(), f"json: {tree['value']}, not {total()}")
    check_sums(tree)
    check_same("json", tree_stacks(tree))


def flame_columns():
    """The page's columns, decoded by nothing but their description."""
    data = json.loads(profile()["flame"])
    strings, fn, node = data["strings"], data["fn"], data["node"]
    check(data["unit"] == "nanoseconds" and data["scale"] * data["total"] == total(), "flame: unit or total")
    check(len({len(column) for column in fn.values()}) == 1, "flame: columns of functions differ in length")
    check(len({len(column) for column in node.values()}) == 1, "flame: columns of nodes differ in length")
    path, stacks = [], []
    for i, (function, up, own) in enumerate(zip(node["fn"], node["up"], node["self"])):
        if i:
            del path[len(path) - up:]
        path.append(strings[fn["name"][function]])
        if own:
            stacks.append((path[1:], own * data["scale"]))
    check_same("flame", stacks)


def pprof_message():
    """protoc reads the message without a field it does not know, and every number in it means something."""
    if not shutil.which("protoc"):
        raise Skip("protoc is not installed")
    golden = os.path.join(ROOT, "tests/golden")
    done = subprocess.run(["protoc", "--decode=pprof.Profile", f"--proto_path={golden}", "pprof.proto"],
                          input=gzip.decompress(profile()["pprof"]), capture_output=True)
    check(done.returncode == 0, f"protoc: {done.stderr}")
    text = done.stdout.decode()
    unknown = re.search(r"^\s*\d+[:{ ]", text, re.M)
    check(not unknown, f"a field that the schema does not have: {unknown and unknown.group()}")
    message = text_message(text)
    strings = message["string_table"]
    check(strings[0] == "", "string 0 is not empty")
    types = [(strings[int(t["type"][0])], strings[int(t["unit"][0])]) for t in message["sample_type"]]
    check(types == [("samples", "count"), ("cpu", "nanoseconds")], f"sample types {types}")
    functions = {f["id"][0]: strings[int(f["name"][0])] for f in message["function"]}
    mappings = {m["id"][0] for m in message["mapping"]}
    names = {}
    for location in message["location"]:
        check(location.get("mapping_id", ["0"])[0] in mappings | {"0"}, f"location without mapping: {location}")
        names[location["id"][0]] = [functions[line["function_id"][0]] for line in reversed(location["line"])]
    stacks, samples = [], 0
    for sample in message["sample"]:
        frames = [name for location in reversed(sample["location_id"]) for name in names[location]]
        stacks.append((frames, int(sample["value"][1])))
        samples += int(sample["value"][0])
    check(samples == profile()["result"]["sampleCount"], f"pprof: {samples} samples")
    check_same("pprof", stacks)


def text_message(text):
    """Text format of protobuf -> {field: [values]}, nested messages likewise."""
    root = collections.defaultdict(list)
    open_messages = [root]
    for line in text.splitlines():
        line = line.strip()
        if line.endswith("{"):
            inner = collections.defaultdict(list)
            open_messages[-1][line[:-1].strip()].append(inner)
            open_messages.append(inner)
        elif line == "}":
            open_messages.pop()
        elif line:
            field, value = line.split(": ", 1)
            if value.startswith('"'):
                value = value[1:-1].encode().decode("unicode_escape")
            open_messages[-1][field].append(value)
    return root


def pprof_tool():
    go = shutil.which("go")
    if not go:
        raise Skip("go is not installed")
    first = profile()["result"]["topFunctions"][0]
    with tempfile.NamedTemporaryFile(suffix=".pb.gz") as file:
        file.write(profile()["pprof"])
        file.flush()
        done = subprocess.run([go, "tool", "pprof", "-top", "-nodecount=5", "-unit=ns", file.name],
                              capture_output=True, text=True, env=dict(os.environ, PPROF_BINARY_PATH="/nonexistent"))
    check(done.returncode == 0, f"go tool pprof: {done.stderr}")
    lines = done.stdout.splitlines()
    top = lines[next(i for i, line in enumerate(lines) if line.split()[:2] == ["flat", "flat%"]) + 1].split()
    check(top[5] == first["funcName"], f"pprof says {top[5]}, the result {first['funcName']}")
    check(abs(float(top[1].rstrip("%")) - first["selfPct"]) < 0.01, f"pprof {top[1]}, result {first['selfPct']}")
    check(int(top[0].removesuffix("ns")) == first["selfValue"], f"pprof {top[0]}, result {first['selfValue']}")


def speedscope_file():
    data = json.loads(profile()["speedscope"])
    check(data["$schema"] == "https://www.speedscope.app/file-format-schema.json", "$schema")
    frames = [frame["name"] for frame in data["shared"]["frames"]]
    by_profile = []
    for one in data["profiles"]:
        check(one["type"] == "sampled" and one["unit"] == "nanoseconds", f"{one['type']}, {one['unit']}")
        check(len(one["samples"]) == len(one["weights"]), "samples and weights differ in number")
        check(one["endValue"] - one["startValue"] == sum(one["weights"]), "endValue")
        by_profile.append([([frames[i] for i in stack], weight)
                           for stack, weight in zip(one["samples"], one["weights"])])
    check_same("speedscope: all threads", by_profile[0])
    check_same("speedscope: thread by thread", [stack for stacks in by_profile[1:] for stack in stacks])


def firefox_file():
    data = json.loads(profile()["firefox"])
    check(data["meta"]["preprocessedProfileVersion"] == 61, "version")
    shared = data["shared"]
    table, frame_table, strings = shared["stackTable"], shared["frameTable"], shared["stringArray"]
    names, stacks = {}, []

    def name(frame):
        return strings[shared["funcTable"]["name"][frame_table["func"][frame]]]

    for stack, (frame, prefix) in enumerate(zip(table["frame"], table["prefix"])):
        check(prefix is None or prefix < stack, f"stack {stack} has prefix {prefix}")
        names[stack] = [*(names[prefix] if prefix is not None else ()), name(frame)]
    for thread in data["threads"]:
        samples = thread["samples"]
        times = samples["time"] if "time" in samples else [*_running_sum(samples["timeDeltas"])]
        check(len(times) == samples["length"] == len(samples["stack"]), "columns of samples differ in length")
        check(times == sorted(times), f"{thread['name']}: not in order of time")
        weights = samples["weight"] or [1] * samples["length"]
        stacks += [(names[s], w) for s, w in zip(samples["stack"], weights) if s is not None]
    scale = total() / sum(weight for _, weight in stacks)
    check(abs(scale - round(scale)) < 1e-9 or scale == 1, f"the weights' scale is {scale}")
    check_same("firefox", [(frames, round(weight * scale)) for frames, weight in stacks])


def _running_sum(deltas):
    at = 0
    for delta in deltas:
        at += delta
        yield at


def fields(data):
    """The fields of one protobuf message: (number, int or bytes)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, data[at:at + size]
            at += size
        else:
            check(kind == 2, f"wire type {kind}")
            size = varint()
            yield number, data[at:at + size]
            at += size
    check(at == len(data), "a field reaches beyond its message")


def group(data):
    found = collections.defaultdict(list)
    for number, value in fields(data):
        found[number].append(value)
    return found


def packed(values):
    """A repeated varint, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
        else:
            # as a message of fields without keys: give each a key of field 1
            at = 0
            while at < len(value):
                end = at
                while value[end] & 0x80:
                    end += 1
                yield next(fields(b"\x08" + value[at:end + 1]))[1]
                at = end + 1


def otlp_message():
    """ExportProfilesServiceRequest by its field numbers: both values, each summing to the profile's."""
    request = group(profile()["otlp"])
    check(set(request) == {1, 2}, f"fields {sorted(request)}")
    strings = [s.decode() for s in group(request[2][0])[5]]
    sums = collections.Counter()
    for resource in request[1]:
        for scope in group(resource)[2]:
            for one in group(scope)[2]:
                one = group(one)
                kind = strings[group(one[1][0])[1][0]]
                for sample in one[2]:
                    sums[kind] += sum(packed(group(sample)[4]))
    check(sums["cpu"] == total(), f"otlp: {sums}, not {total()}")
    check(sums["samples"] in (0, profile()["result"]["sampleCount"]), f"otlp: {sums}")


def perf_script_text():
    stacks, frames, value = [], [], None
    for line in [*profile()["perfscript"].decode().splitlines(), ""]:
        head = re.match(r"\S.* +\d+/\d+ \[\d+\] +\d+\.\d+: +(\d+) cpu:", line)
        if head:
            check(value is None, f"no blank line before {line}")
            value = int(head.group(1))
        elif line:
            frame = re.match(r"\t +[0-9a-f]+ (.*) \(.*\)$", line)
            check(frame, f"not a frame: {line!r}")
            frames.append(frame.group(1))
        elif value is not None:
            stacks.append((frames[::-1], value))
            frames, value = [], None
    check_same("perfscript", stacks)


def callgrind_file():
    """Self costs sum to the summary, and names are defined before they are used."""
    lines = profile()["callgrind"].decode().splitlines()
    check(lines[0] == "# callgrind format", lines[0])
    names, own, after_call = {}, 0, False
    for line in lines:
        spec = re.match(r"c?(fn|fl|fi|fe|ob)=\((\d+)\)(?: (.*))?$", line)
        if spec:
            kind = "fn" if spec.group(1) == "fn" else "ob" if spec.group(1) == "ob" else "fl"
            check(spec.group(3) or (kind, spec.group(2)) in names, f"not defined: {line}")
            names.setdefault((kind, spec.group(2)), spec.group(3))
        elif line.startswith("calls="):
            after_call = True
        elif re.match(r"[+*\d-]\S* \d+$", line):
            own += 0 if after_call else int(line.split()[1])
            after_call = False
    summary = int(next(line for line in lines if line.startswith("summary:")).split()[1])
    check(own == summary == total(), f"self {own}, summary {summary}, total {total()}")
    if shutil.which("callgrind_annotate"):
        with tempfile.NamedTemporaryFile(suffix=".out") as file:
            file.write(profile()["callgrind"])
            file.flush()
            done = subprocess.run(["callgrind_annotate", file.name], capture_output=True, text=True)
            check(done.returncode == 0 and "leaf_a" in done.stdout, done.stderr)


def csv_table():
    rows = list(csv.DictReader(io.StringIO(profile()["csv"].decode())))
    top = profile()["result"]["topFunctions"]
    check(list(rows[0]) == ["funcName", "package", "file", "line", "selfPct", "cumulativePct", "selfValue",
                            "cumulativeValue", "sampleCount"], f"columns {list(rows[0])}")
    check(sum(int(row["selfValue"]) for row in rows) == total(), "self values do not sum to the total")
    check(rows[0]["funcName"] == top[0]["funcName"], rows[0]["funcName"])
    for row, function in zip(rows, top):
        for member, value in function.items():
            if member in row:
                same = row[member] == value if isinstance(value, str) else float(row[member]) == value
                check(same, f"{member}: {row[member]}, not {value}")


def lines_of_functions():
    """Every line's own value, as callgrind's file has it; a function's lines sum to the function."""
    lines = json.loads(profile()["lines"])["lines"]
    own = collections.Counter()
    for line in lines:
        own[line["funcName"], line["line"]] += line["selfValue"]
    due, name, after_call, names = collections.Counter(), None, False, {}
    for text in profile()["callgrind"].decode().splitlines():
        spec = re.match(r"c?fn=\((\d+)\)(?: (.*))?$", text)
        if spec:
            names.setdefault(spec.group(1), spec.group(2))
            name = name if text.startswith("c") else names[spec.group(1)]
        elif text.startswith("calls="):
            after_call = True
        elif re.match(r"\d+ \d+$", text):
            due[name, int(text.split()[0])] += 0 if after_call else int(text.split()[1])
            after_call = False
    check(+own == +due, f"{(+own - +due).most_common(5)} are not in callgrind, {(+due - +own).most_common(5)} are")
    rows = list(csv.DictReader(io.StringIO(profile()["csv"].decode())))
    for row in rows[:3]:
        of = [line for line in lines if (line["funcName"], line["file"]) == (row["funcName"], row["file"])]
        check(sum(line["selfValue"] for line in of) == int(row["selfValue"]), row["funcName"])


def svg_file():
    root = xml.etree.ElementTree.fromstring(profile()["svg"])
    space = {"svg": "http://www.w3.org/2000/svg"}
    titles = [title.text for title in root.findall(".//svg:g/svg:title", space)]
    check(titles[0] == f"all ({total() / 1e9:.2f} s, 100.00 %)", titles[0])
    check(any(title.startswith("leaf_a (") for title in titles), "no leaf_a")
    width = float(root.get("width"))
    for box in root.findall(".//svg:rect", space):
        check(float(box.get("x", 0)) + float(box.get("width")) <= width + 0.5, "a box beyond the edge")
    check(not root.findall(".//svg:script", space) and b"href" not in profile()["svg"], "script or link in SVG")


class Resources(html.parser.HTMLParser):
    """Addresses that a page would load, and its inline scripts."""

    def __init__(self):
        super().__init__()
        self.found, self.scripts, self.in_script = [], [], False

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, value) for name, value in attrs
                       if name in ("src", "href", "srcset", "data", "action", "poster") and tag != "a"
                       and not (value or "").startswith(("data:", "#"))]
        self.in_script = tag == "script"

    def handle_endtag(self, tag):
        self.in_script = False

    def handle_data(self, data):
        if self.in_script:
            self.scripts.append(data)


def html_page():
    text = profile()["html"].decode()
    page = Resources()
    page.feed(text)
    check(not page.found, f"loads {page.found}")
    check("url(" not in re.sub(r"url\(#", "", text) and "@import" not in text, "a style that loads something")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
    check(policy.startswith("default-src 'none'"), policy)
    packed_data = max(re.findall(r"[A-Za-z0-9+/]{200,}={0,2}", text), key=len)
    data = json.loads(gzip.decompress(base64.b64decode(packed_data)))
    check(data["scale"] * data["total"] == total(), "the page's data has another total")


def autofdo_text():
    """Heads of functions carry samples: their sum cannot exceed the profile's."""
    heads = [line for line in profile()["autofdo"].decode().splitlines() if not line.startswith(" ")]
    check(heads and all(re.match(r"[^:\s]+:\d+:\d+$", head) for head in heads), f"heads: {heads}")
    first = max(heads, key=lambda head: int(head.split(":")[1]))
    check(first.startswith("leaf_a:"), f"{first} is the first")
    samples = sum(int(head.split(":")[1]) for head in heads)
    check(0.9 * profile()["result"]["sampleCount"] <= samples <= profile()["result"]["sampleCount"],
          f"{samples} samples of {profile()['result']['sampleCount']}")


if __name__ == "__main__":
    main(folded_and_json, flame_columns, pprof_message, pprof_tool, speedscope_file, firefox_file, otlp_message,
         perf_script_text, callgrind_file, csv_table, lines_of_functions, svg_file, html_page, autofdo_text)
