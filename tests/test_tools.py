"""The small programs behind `make` and CI."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TALLY = runpy.run_path(str(ROOT / "tools" / "tally.py"))
REQUIREMENTS = runpy.run_path(str(ROOT / "tools" / "requirements.py"))


def run(
    *command: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd or ROOT, env=env, timeout=60
    )


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("3 passed, 0 failed", (3, 0, 0)),
        ("check: 3 passed, 1 failed, 2 skipped", (3, 1, 2)),
        ("=== 67 passed, 1 skipped in 19.44s ===", (67, 0, 1)),
        ("67 passed in 0.44s", (67, 0, 0)),
        ("== 1 failed, 5 passed, 2 warnings, 1 error in 70.01s (0:01:10) ==", (5, 2, 0)),
        (
            "\x1b[32m== \x1b[1m2 passed\x1b[0m, \x1b[33m1 xfailed\x1b[0m\x1b[32m in 1.0s\x1b[0m ==",
            (3, 0, 0),
        ),
        ("=== 1 xpassed, 4 deselected in 1.00s ===", (0, 1, 0)),
        ("=== no tests ran in 0.01s ===", (0, 0, 0)),
        ("in all: 3 passed, 0 failed", (0, 0, 0)),
        ("we saw 3 passed, 0 failed and went on", (0, 0, 0)),
        ("    | 3 passed, 0 failed", (0, 0, 0)),
    ],
)
def test_tally_of_a_line(line: str, counts: tuple[int, int, int]) -> None:
    assert TALLY["count"]([line]) == counts


def test_tally_adds_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("noise\n2 passed, 1 failed\n== 3 passed, 1 skipped in 1.0s ==\n")
    (tmp_path / "b").write_text("1 passed, 0 failed\n")
    logs = [str(tmp_path / name) for name in ("a", "b", "missing")]
    assert run(sys.executable, "tools/tally.py", *logs).stdout == "6 passed, 1 failed, 1 skipped\n"
    assert run(sys.executable, "tools/tally.py", "--each", *logs).stdout == "5 1 1\n1 0 0\n0 0 0\n"
    assert run(sys.executable, "tools/tally.py", logs[1]).stdout == "1 passed, 0 failed\n"


def test_requirements_follow_the_projects_own_extras() -> None:
    project: dict[str, Any] = {
        "build-system": {"requires": ["setuptools"]},
        "project": {
            "name": "affinitypool",
            "dependencies": ["cffi"],
            "optional-dependencies": {
                "test": ["pytest"],
                "dev": ["affinitypool[test, docs]", "ruff"],
                "docs": ["x[y]"],
            },
        },
    }
    requirements = REQUIREMENTS["requirements"]
    assert list(requirements(project, "build")) == ["setuptools", "cffi"]
    assert list(requirements(project, "dev")) == ["pytest", "x[y]", "ruff"]
    with pytest.raises(KeyError, match="nonesuch"):
        list(requirements(project, "nonesuch"))


def test_logged_keeps_status_and_output(tmp_path: Path) -> None:
    log = tmp_path / "sub" / "log"
    done = run("sh", "tools/logged.sh", str(log), "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == log.read_text() == "out\nerr\n"
    assert run("sh", "tools/logged.sh", str(log), "true").returncode == 0


def test_find_python_takes_what_will_do(tmp_path: Path) -> None:
    found = run("sh", "tools/find_python.sh", sys.executable)
    if found.returncode:
        assert "has no C headers" in found.stderr or "virtual environments" in found.stderr
    else:
        assert os.path.exists(found.stdout.strip())


def test_find_python_says_what_is_missing(tmp_path: Path) -> None:
    """One that does not run, one that is too old, and none at all."""
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 'is 3.10, want 3.11 or later'\n")
    old.chmod(0o755)
    assert "does not run" in run("sh", "tools/find_python.sh", str(tmp_path / "none")).stderr
    assert "is 3.10" in run("sh", "tools/find_python.sh", str(old)).stderr
    for tool in ("sh", "sort"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    nothing = run("sh", "tools/find_python.sh", env={"PATH": str(tmp_path)})
    assert nothing.returncode == 1
    assert "PYTHON=..." in nothing.stderr
    assert "is 3.10" in nothing.stderr


def test_layers(tmp_path: Path) -> None:
    for directory in ("csrc/sync", "csrc/sched", "csrc/python"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "csrc/sync/a.h").write_text("#include <stdatomic.h>\n#include <pthread.h>\n")
    (tmp_path / "csrc/python/b.c").write_text("#include <Python.h>\n")
    (tmp_path / "csrc/sched/c.c").write_text(
        "/* not <stdatomic.h>, not Python.h */\n#include <stdint.h>\n"
    )
    check = str(ROOT / "tools" / "check_layers.sh")
    assert run("sh", check, cwd=tmp_path).returncode == 0
    for path, line in (
        ("csrc/sched/c.c", "  # include <stdatomic.h>"),
        ("csrc/python/b.c", "#include <linux/futex.h>"),
        ("csrc/sync/a.h", "#include <Python.h>"),
        ("csrc/top.h", '#include "Python.h"'),
    ):
        file = tmp_path / path
        before = file.read_text() if file.exists() else ""
        file.write_text(before + line + "\n")
        done = run("sh", check, cwd=tmp_path)
        assert done.returncode == 1, path
        assert path in done.stderr
        file.write_text(before)


def test_warnings_are_errors(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc here")
    (tmp_path / "csrc").mkdir()
    file = tmp_path / "csrc" / "a.c"
    check = ("sh", str(ROOT / "tools" / "check_warnings.sh"), "gcc", str(tmp_path))
    file.write_text("int f(int x);\nint f(int x) { return x; }\n")
    assert run(*check, cwd=tmp_path).returncode == 0
    file.write_text("char f(int x);\nchar f(int x) { return x; }\n")
    done = run(*check, cwd=tmp_path)
    assert done.returncode == 1
    assert "conversion" in done.stderr


def test_make_help_lists_every_target() -> None:
    if not shutil.which("make"):
        pytest.skip("no make here")
    text = run("make", "help").stdout
    for target in ("test", "bench", "lint", "sanitize", "build", "clean", "ci"):
        assert f"\n  {target} " in text
