"""tools/soak.py: that what it counts is what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import ROOT, eventually

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        not hasattr(os, "sched_setaffinity"), reason="pins processes by Linux's API"
    ),
]

CONFTEST = f"""
import runpy, sys

sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}]
names = runpy.run_path({str(ROOT / "tests" / "conftest.py")!r})
globals().update({{name: names[name] for name in names if name.startswith(("pytest_", "_round"))}})
"""


def soak_command(directory: Path, body: str, *options: str) -> list[str]:
    tests = directory / "inner"
    tests.mkdir(exist_ok=True)
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_inner.py").write_text(textwrap.dedent(body))
    command = [sys.executable, "tools/soak.py", "--pythons", sys.executable]
    return [*command, "--tests", str(tests), "--output", str(directory / "out"), *options]


def soak(directory: Path, body: str, *options: str) -> tuple[int, str, Path]:
    command = soak_command(directory, body, *options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    return done.returncode, done.stdout + done.stderr, directory / "out"


def rows(out: str) -> list[list[str]]:
    """The table: setting, rounds, passed, failed, skipped of each row."""
    lines = [line for line in out.splitlines() if line.startswith(sys.executable)]
    return [line.split()[1:6] for line in lines]


def test_rounds_are_counted_in_each_setting(tmp_path):
    body = """
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_a(n):
            pass

        @pytest.mark.skip
        def test_b():
            pass
    """
    code, out, output = soak(
        tmp_path, body, "--rounds", "5", "--per-process", "3", "--settings", "free,busy"
    )
    assert code == 0, out
    assert rows(out) == [["free", "5", "10", "0", "5"], ["busy", "5", "10", "0", "5"]]
    assert len(list(output.glob("*.log"))) == 4
    assert (output / "summary.txt").read_text() in out


def test_what_fails_is_named_and_the_rest_goes_on(tmp_path):
    body = """
        def test_fails_now_and_then(request):
            assert request.node.name.endswith(("round-0]", "round-3]"))

        def test_passes():
            pass
    """
    code, out, _ = soak(
        tmp_path, body, "--rounds", "8", "--per-process", "4", "--settings", "free,pinned"
    )
    assert code == 1, out
    assert rows(out) == [["free", "8", "12", "4", "0"], ["pinned", "8", "12", "4", "0"]]
    last = out.split("\n\nlogs")[0].splitlines()[-1]
    assert last.startswith(f"FAILED 4 times, {sys.executable} pinned: "), out
    assert last.endswith("inner.test_inner::test_fails_now_and_then"), out


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("os._exit(0)", "only 0 of 4 tests ran"),
        ("os._exit(7)", "pytest ended with status 7; the last test was "),
        ("os.kill(os.getpid(), 9)", "pytest ended with status -9; the last test was "),
        ("pytest.exit('enough', 0)", "only 3 of 4 tests ran"),
    ],
)
def test_a_run_that_breaks_off_is_a_failure(tmp_path, how, reason):
    body = f"""
        import os, pytest

        def test_first():
            pass

        def test_second():
            {how}
    """
    code, out, _ = soak(tmp_path, body, "--rounds", "2", "--settings", "free")
    assert code == 1, out
    assert f"FAILED 1 times, {sys.executable} free: {reason}" in out
    if "last test" in reason:
        assert "test_inner.py::test_second" in out


def test_no_tests_are_no_success(tmp_path):
    code, out, _ = soak(tmp_path, "", "--rounds", "2")
    assert code == 1, out
    assert "collects no tests" in out


SIMPLE = """
    def test_passes():
        pass
"""


def test_a_soak_goes_on_where_it_was_cut(tmp_path):
    options = "--settings", "free", "--per-process", "2"
    code, out, output = soak(tmp_path, SIMPLE, "--rounds", "2", *options)
    assert code == 0, out
    code, out, _ = soak(tmp_path, SIMPLE, "--rounds", "5", "--resume", *options)
    assert code == 0, out
    assert rows(out) == [["free", "5", "5", "0", "0"]]
    assert "rounds 1 to" not in out
    assert "rounds 3 to 4: 2 passed" in out
    record = json.loads((output / "record.json").read_text())
    (output / "record.json").write_text(json.dumps({**record, "commit": "another"}))
    code, out, _ = soak(tmp_path, SIMPLE, "--rounds", "5", "--resume", *options)
    assert code == 1, out
    assert "its commit is another, not " in out
    code, out, _ = soak(tmp_path, SIMPLE, "--rounds", "1", *options)
    assert (code, rows(out)) == (0, [["free", "1", "1", "0", "0"]])


def test_ctrl_c_ends_all_and_keeps_the_record(tmp_path):
    body = """
        import os, pathlib, time

        def test_sleeps_in_the_end(request):
            if request.node.name.endswith("round-1]") or "round" not in request.node.name:
                here = pathlib.Path(__file__).parent
                if (here / "first").exists():
                    (here / "pid").write_text(str(os.getpid()))
                    time.sleep(50)
                (here / "first").touch()
    """
    options = "--settings", "free", "--per-process", "2", "--rounds", "6"
    command = soak_command(tmp_path, body, *options)
    pid = tmp_path / "inner" / "pid"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(pid.exists, 40)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130, out
    assert rows(out) == [["free", "2", "2", "0", "0"]]
    assert "--resume" in out
    assert eventually(lambda: not os.path.exists(f"/proc/{pid.read_text()}"), 10)


def test_pinned_runs_share_the_cpus(tmp_path):
    """As many at a time as there are, each on another one."""
    body = """
        import os, pathlib, time

        def test_meets_the_others():
            here = pathlib.Path(__file__).parent
            (cpu,) = os.sched_getaffinity(0)
            (here / f"cpu-{cpu}").touch()
            count = len(os.sched_getaffinity(os.getppid()))
            end = time.monotonic() + 20
            while len(list(here.glob("cpu-*"))) < count:
                assert time.monotonic() < end
                time.sleep(0.01)
    """
    count = str(len(os.sched_getaffinity(0)))
    options = "--rounds", count, "--per-process", "1", "--settings", "pinned"
    code, out, _ = soak(tmp_path, body, *options)
    assert (code, rows(out)) == (0, [["pinned", count, count, "0", "0"]]), out


def test_pinned_means_one_cpu(tmp_path):
    body = """
        import os

        def test_pinned():
            assert len(os.sched_getaffinity(0)) == 1
    """
    code, out, _ = soak(tmp_path, body, "--rounds", "1", "--settings", "pinned")
    assert code == 0, out


def test_busy_means_four_processes_beside_it_that_end_with_it(tmp_path):
    body = """
        import os, pathlib

        def test_busy():
            here = pathlib.Path(__file__).parent
            tasks = pathlib.Path(f"/proc/{os.getppid()}/task").iterdir()
            pids = {pid for task in tasks for pid in (task / "children").read_text().split()}
            (here / "children").write_text(" ".join(pids - {str(os.getpid())}))
    """
    code, out, _ = soak(tmp_path, body, "--rounds", "1", "--settings", "busy")
    assert code == 0, out
    children = (tmp_path / "inner" / "children").read_text().split()
    assert len(children) == 4
    assert not any(os.path.exists(f"/proc/{pid}") for pid in children)


def test_unknown_settings_are_refused(tmp_path):
    code, out, _ = soak(tmp_path, "", "--settings", "free,upside-down")
    assert code == 2
    assert "settings are free, pinned, busy" in out
