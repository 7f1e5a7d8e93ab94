# SPDX-License-Identifier: Apache-2.0
"""A Python process whose code objects are known, for tests/bpf/test_reader_python.c: prints for each of them a line of
fields separated by tabs (address, position, line at the position, first line, qualified name, file), then "ready", and
waits with two more threads until standard input ends."""

import ctypes
import os
import sys
import threading

MINOR = sys.version_info[1]

SOURCE = """
def plain(a):
    b = a + 1

    return [x for x in range(b)
            if x % 2]

class Outer:
    class Inner:
        def method(self):
            try:
                return (lambda: 1 /
                        self.zero)()
            finally:
                del self

def caf\u00e9(): return 1
def \u5217\u8868(): return 2
def {long}(): return 3
async def waits():
    async with waits() as w:
        await w
"""


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from code_objects(constant)


def main():
    out = open(1, "w", encoding="utf-8", closefd=False)
    address = ctypes.pythonapi.PyCode_Addr2Line
    address.argtypes = [ctypes.py_object, ctypes.c_int]
    kept = []
    for file in ("/srv/app.py", "/srv/\u00fcber.py", "/srv/\U0001f40d.py", "<string>", "/" + 1200 * "d" + "/end.py"):
        kept += code_objects(compile(SOURCE.replace("{long}", 300 * "n"), file, "exec"))
    for code in kept:
        name = code.co_qualname if MINOR >= 11 else code.co_name
        for position in range(0, len(code.co_code) // 2):
            line = address(code, 2 * position)
            out.write("\t".join((f"{id(code):x}", str(position), str(max(line, 0)), str(code.co_firstlineno), name,
                                 code.co_filename)) + "\n")
    stop = threading.Event()
    for _ in range(2):
        threading.Thread(target=stop.wait, daemon=True).start()
    out.write("ready\n")
    out.flush()
    sys.stdin.read()
    os._exit(0)


main()
