"""The package, built so that tests can hold threads at named points (tests/faults/points)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import HAS_GIL, ROOT, run_python

POINTS = ROOT / "tests" / "faults" / "points"
VARIABLES = ("AFFINITYPOOL_PARKING", "AFFINITYPOOL_CFLAGS")

SCRIPT = """
import contextlib, gc, itertools, os, random, sys, threading, time, weakref
import affinitypool, concurrent.futures
from affinitypool import *
from hold import *
HAS_GIL = {has_gil}
names = {names}
code = {code!r}
for values in itertools.product(*{values}):
    values = dict(zip(names, values))
    begin(values)
    exec(compile(code, "<script>", "exec"), {{**globals(), **values}})
finish()
"""


def _digest() -> str:
    files = [ROOT / name for name in ("build_ffi.py", "setup.py")]
    for folder, patterns in ((ROOT / "csrc", "*.[ch]"), (POINTS, "*.[ch]")):
        files += sorted(folder.rglob(patterns))
    digest = hashlib.sha256(sys.version.encode())
    for name in VARIABLES:
        digest.update(f"{name}={os.environ.get(name)}\n".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def build() -> Path:
    """Build the instrumented package, unless its sources have not changed; return its place."""
    parking = os.environ.get("AFFINITYPOOL_PARKING", "futex")
    place = ROOT / "build" / f"faults-{sysconfig.get_config_var('SOABI')}-{parking}"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, digest = place / "stamp", _digest()
        if not stamp.exists() or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            command = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
            command += ["--build-lib", str(place / "lib"), "--build-temp", str(place / "temp")]
            flags = f"{os.environ.get('AFFINITYPOOL_CFLAGS', '')} -O1 -g0"  # soon compiled
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "AFFINITYPOOL_POINTS": "1", "AFFINITYPOOL_CFLAGS": flags},
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode:
                pytest.fail(
                    "the package cannot be built with points; this needs a C compiler, and "
                    f"setuptools and cffi in this environment:\n{done.stderr}",
                    pytrace=False,
                )
            stamp.write_text(digest)
        package = place / "lib" / "affinitypool"
        for file in (ROOT / "affinitypool").glob("*.py"):
            copy = package / file.name
            if not copy.exists() or copy.read_bytes() != file.read_bytes():
                shutil.copyfile(file, copy)
    return place / "lib"


def check_points(code: str, *, env: Mapping[str, str] | None = None, **values: Any) -> None:
    """Run a script on the instrumented build; it has to come to its end, in silence.

    `values`: names that the script may use; it is run once for each combination of what they may
    stand for, one after the other in one process.
    """
    script = SCRIPT.format(
        has_gil=HAS_GIL,
        names=tuple(values),
        values=[tuple(each) for each in values.values()],
        code=textwrap.dedent(code),
    )
    path = os.pathsep.join(map(str, (build(), POINTS)))
    done = run_python(script, timeout=110, options=("-P",), PYTHONPATH=path, **(env or {}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", ""), (
        f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
