"""What a failing or hanging test leaves behind: stacks, counters, and an end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from diagnostics import EXIT_STATUS
from helpers import HAS_GIL, ROOT, ChildHangs, eventually, run_python

pytestmark = pytest.mark.timeout(60)

HEAD = """
    import ctypes, threading, time
    import pytest
    from affinitypool import ThreadPoolExecutor

    def stuck_in_a_task(gate):
        gate.wait(20)
"""


def run_pytest(directory: Path, body: str, *options: str, grace: float = 20) -> tuple[int, str]:
    """Run a test file with the settings and the plugins of this suite."""
    file = directory / "test_inner.py"
    file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(body))
    plugins = ["-p", "conftest", "-p", "no:cacheprovider"]
    settings = [f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={directory}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *settings, *options, str(file)],
        capture_output=True,
        text=True,
        timeout=50,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
            "PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT))),
            "AFFINITYPOOL_TEST_GRACE": str(grace),
        },
        cwd=directory,
    )
    return done.returncode, done.stdout + done.stderr


def check_report(out: str) -> None:
    """The stack of the worker, by name, and what its pool counted."""
    assert "[crew_0] (most recent call first):" in out, out
    assert " in stuck_in_a_task" in out, out
    assert "crew: open, max_workers=1" in out, out
    assert "pushed_outside=3, " in out, out
    assert "pending=2" in out, out
    assert "threads: crew_0" in out, out


HANG = """
    @pytest.mark.timeout(1)
    def test_hang():
        gate = threading.Event()
        pool = ThreadPoolExecutor(1, "crew")
        try:
            tasks = [pool.submit(stuck_in_a_task, gate) for _ in range(3)]
            tasks[2].result()
        finally:
            gate.set()
            pool.shutdown()
"""


def test_a_test_that_hangs_says_where_everybody_is(tmp_path):
    code, out = run_pytest(tmp_path, HANG)
    assert code == 1, out
    assert "1 failed" in out
    assert "shortly before the time limit" in out
    check_report(out[out.index("shortly before the time limit") :])
    assert " in test_hang" in out  # the main thread's stack


def test_a_test_that_fails_says_so_too(tmp_path):
    body = """
        def test_fails(request):
            gate = threading.Event()
            pool = ThreadPoolExecutor(1, "crew")
            request.addfinalizer(pool.shutdown)
            request.addfinalizer(gate.set)
            tasks = [pool.submit(stuck_in_a_task, gate) for _ in range(3)]
            while pool.stats().pending != 2:
                time.sleep(0.001)
            assert False, "on purpose"
    """
    code, out = run_pytest(tmp_path, body)
    assert code == 1, out
    assert "on purpose" in out
    assert "shortly before the time limit" not in out
    check_report(out[out.index("threads and pools after the failure") :])


def test_a_test_that_passes_says_nothing(tmp_path):
    body = """
        def test_passes():
            with ThreadPoolExecutor(1, "crew") as pool:
                assert pool.submit(abs, -1).result(10) == 1

        @pytest.mark.xfail(strict=True)
        def test_fails_as_expected():
            assert False
    """
    code, out = run_pytest(tmp_path, body, "-rA")
    assert code == 0, out
    assert "1 passed, 1 xfailed" in out
    assert "threads and pools" not in out


def test_a_test_that_cannot_be_interrupted_ends_the_run(tmp_path):
    """The interrupt of pytest-timeout comes once; what goes on after it hangs for ever."""
    body = HANG.replace("tasks[2].result()", "deaf(tasks[2])")
    body += """
    def deaf(task):
        while True:
            try:
                task.result()
            except BaseException:
                pass
    """
    code, out = run_pytest(tmp_path, body, grace=1)
    assert code == EXIT_STATUS, out
    assert "test_inner.py::test_hang had 1 s, and goes on 1 s later" in out
    check_report(out)
    assert " in deaf" in out


def test_a_test_that_never_lets_go_of_the_interpreter_ends_the_run(tmp_path):
    """No Python code can run in any thread: what is left is faulthandler's own timer."""
    body = """
        @pytest.mark.timeout(1)
        def test_hang():
            mutex = ctypes.create_string_buffer(128)
            for _ in range(2):
                ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    """
    code, out = run_pytest(tmp_path, body, grace=1)
    assert code == 1, out
    assert "Timeout (0:00:03)!" in out
    assert "1 failed" not in out
    if HAS_GIL:  # without one, faulthandler cannot look into other threads
        assert " in test_hang" in out


@pytest.mark.parametrize("mark", ["timeout(0)", "timeout(timeout=0)"])
def test_a_test_without_a_limit_is_refused(tmp_path, mark):
    body = f"""
        @pytest.mark.{mark}
        def test_endless():
            pass
    """
    code, out = run_pytest(tmp_path, body)
    assert code == pytest.ExitCode.USAGE_ERROR, out
    assert "test_inner.py::test_endless has no time limit" in out


def test_every_test_has_a_limit_by_default(request):
    assert float(request.config.getini("timeout")) > 0
    assert request.config.getini("required_plugins") == ["pytest-timeout"]


def test_repeat_runs_each_test_many_times(tmp_path):
    body = """
        @pytest.mark.parametrize("n", [1, 2])
        def test_a(n):
            pass

        def test_b():
            pass
    """
    code, out = run_pytest(tmp_path, body, "--repeat", "3", "-vv")
    assert code == 0, out
    assert "9 passed" in out
    assert "test_inner.py::test_a[1-round-2] PASSED" in out
    assert "test_inner.py::test_b[round-0] PASSED" in out


def test_a_child_that_hangs_says_where_all_its_threads_are():
    code = """
        import os, threading
        from affinitypool import ThreadPoolExecutor
        def stuck_in_a_task():
            threading.Event().wait()
        pool = ThreadPoolExecutor(1)
        print("begun", flush=True)
        pool.submit(stuck_in_a_task).result()
    """
    with pytest.raises(ChildHangs, match="no end after 4 s") as caught:
        run_python(code, timeout=4)
    out = str(caught.value)
    assert "its stdout:\nbegun\n" in out
    assert "Fatal Python error: Aborted" in out
    assert 'File "<string>", line 8 in <module>' in out
    if HAS_GIL:
        assert " in stuck_in_a_task" in out


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's /proc")
def test_a_child_that_hangs_takes_its_own_children_along():
    code = """
        import os, time
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(100)
        os.waitpid(-1, 0)
    """
    with pytest.raises(ChildHangs) as caught:
        run_python(code, timeout=4)
    grandchild = int(str(caught.value).split("its stdout:\n")[1].split()[0])
    assert eventually(lambda: not is_alive(grandchild), 10)
