"""Builds `affinitypool._core`: the C core, the CPython bridge and the cffi glue in one module.

The declarations that cffi gets are cut from the headers, between the cdef marks, so that the
two cannot drift.  `AFFINITYPOOL_PARKING=condvar` in the environment builds with condition
variables instead of futexes; `AFFINITYPOOL_CFLAGS` adds compiler flags; `AFFINITYPOOL_POINTS=1`
builds for tests that stop threads at named points (tests/faults/points).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
HEADERS = ["affinitypool.h", "python/worker.h"]
FOLDERS = ("sync", "sched", "python")
POINTS = "tests/faults/points"
with_points = os.environ.get("AFFINITYPOOL_POINTS") == "1"
if with_points:
    HEADERS.append(f"../{POINTS}/points.h")


def declarations(header: Path) -> str:
    """Return the text of a header between its cdef marks."""
    text = header.read_text(encoding="utf-8")
    parts = re.findall(r"/\* cdef: begin \*/\n(.*?)/\* cdef: end \*/", text, re.DOTALL)
    if not parts:
        raise ValueError(f"{header} has no text between cdef marks")
    return "\n".join(parts)


def sources() -> list[str]:
    """Return the C files, relative to the root, as setuptools wants them."""
    files = [file for folder in FOLDERS for file in sorted((CSRC / folder).glob("*.c"))]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    return [*names, f"{POINTS}/points.c"] if with_points else names


def compile_args() -> list[str]:
    """Return the flags for every C file."""
    args = ["-std=c11", "-O2", "-g", "-fvisibility=hidden", "-fno-strict-aliasing", "-pthread"]
    args.append("-D_DEFAULT_SOURCE")  # POSIX 2008 beside ISO C; Python.h may ask for more
    if os.environ.get("AFFINITYPOOL_PARKING") == "condvar":
        args.append("-DAP_PARKING_CONDVAR=1")
    if with_points:
        args.append('-DAP_POINT_HEADER="points.h"')
    return args + os.environ.get("AFFINITYPOOL_CFLAGS", "").split()


ffibuilder = FFI()
for name in HEADERS:
    ffibuilder.cdef(declarations(CSRC / name))
ffibuilder.set_source(
    "affinitypool._core",
    "".join(f'#include "{name}"\n' for name in HEADERS),
    sources=sources(),
    include_dirs=["csrc", POINTS] if with_points else ["csrc"],
    depends=[path.relative_to(ROOT).as_posix() for path in sorted(CSRC.rglob("*.h"))],
    extra_compile_args=compile_args(),
    extra_link_args=["-pthread"],
    py_limited_api=False,
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
