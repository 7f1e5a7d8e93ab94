# SPDX-License-Identifier: Apache-2.0
"""Line tables of the standard library and the lines that this interpreter itself reads from them, for
tests/unit/test_cpython_lines.c.

line_tables.py [SHARE]: compiles every SHARE-th module. Standard output: a head of two 32-bit numbers (minor version,
0), then for each code object four (bytes of the table, first line, code units, 0), the table, and a signed 32-bit
line for each code unit, -1 where it has none."""

import ctypes
import os
import struct
import sys
import sysconfig
import types

MINOR = sys.version_info[1]


def sources(share):
    library = sysconfig.get_paths()["stdlib"]
    found = []
    for folder, _, names in os.walk(library):
        if "site-packages" not in folder and "dist-packages" not in folder:
            found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)[::share]


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def lines_of(code):
    """By the interpreter's own readers; where it has two, they must agree."""
    units = len(code.co_code) // 2
    if MINOR < 10:
        address = ctypes.pythonapi.PyCode_Addr2Line
        address.argtypes = [ctypes.py_object, ctypes.c_int]
        return [address(code, 2 * unit) for unit in range(units)]
    lines = [None] * units
    for start, end, line in code.co_lines():
        for unit in range(start // 2, end // 2):
            lines[unit] = -1 if line is None else line
    if MINOR > 10:
        assert lines == [-1 if p[0] is None else p[0] for p in code.co_positions()], code
    return lines


def main():
    out = sys.stdout.buffer
    out.write(struct.pack("<2I", MINOR, 0))
    for path in sources(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        try:
            with open(path, "rb") as file:
                module = compile(file.read(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, UnicodeDecodeError):
            continue  # test data that is wrong on purpose
        for code in code_objects(module):
            table = code.co_lnotab if MINOR < 10 else code.co_linetable
            lines = lines_of(code)
            out.write(struct.pack("<4I", len(table), code.co_firstlineno, len(lines), 0) + table)
            out.write(struct.pack(f"<{len(lines)}i", *lines))


main()
