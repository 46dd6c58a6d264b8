"""The runner of CPython's tests can fail, and runs the class that it was told to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from cpython_suite import command, discovery, runner, suite
from cpython_suite.replacement import Replacement

try:
    SUITE = suite.locate()
except suite.SuiteMissing as missing:
    pytest.skip(f"not run here: {missing}", allow_module_level=True)

pytestmark = pytest.mark.timeout(120)

EXECUTORS = '''
import concurrent.futures, os, sys
from concurrent.futures.thread import ThreadPoolExecutor as Stdlib

def named(cls):
    """The tests' scripts import the class by its name."""
    cls.__name__ = "ThreadPoolExecutor"
    return cls

@named
class Marked(Stdlib):
    """Writes down in which process it was made."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        with open(os.environ["MARKS"], "a") as marks:
            print(os.getpid(), file=marks)

@named
class NeverDone(Stdlib):
    def submit(self, fn, /, *args, **kwargs):
        return concurrent.futures.Future()

@named
class WrongNames(Stdlib):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._thread_name_prefix = "wrong"

@named
class Crashes(Stdlib):
    def submit(self, fn, /, *args, **kwargs):
        os.abort()

@named
class LosesTasksAtExit(Stdlib):
    """Behaves, except in the tests' scripts."""
    def submit(self, fn, /, *args, **kwargs):
        if sys.argv[0] == "-c":
            return concurrent.futures.Future()
        return super().submit(fn, *args, **kwargs)

@named
class HangsInChildren(Stdlib):
    def submit(self, fn, /, *args, **kwargs):
        if sys.argv[0] == "-c":
            import time
            time.sleep(1000)
        return super().submit(fn, *args, **kwargs)

def patch_stdlib():
    concurrent.futures.ThreadPoolExecutor = Marked
'''


@pytest.fixture
def executors(tmp_path: Path) -> tuple[str, ...]:
    """The directory of a module with executors, as a path."""
    (tmp_path / "executors_for_test.py").write_text(EXECUTORS)
    return (str(tmp_path),)


def one(
    method: str, executor: str, path: tuple[str, ...], limit: float = 60.0, patch_all: bool = False
) -> runner.Outcome:
    """Run the one thread-pool test whose method this is."""
    replacement = Replacement(f"executors_for_test:{executor}", patch_all, path)
    (name,) = [n for n in runner.list_tests(replacement).names if n.endswith(f".{method}")]
    return runner.run_test(name, replacement, SUITE, limit)


@pytest.mark.parametrize("patch_all", [False, True])
def test_child_interpreters_run_the_class(
    executors: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch_all: bool
) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    outcome = one("test_interpreter_shutdown", "Marked", executors, patch_all=patch_all)
    assert outcome.status == "passed", outcome.output
    processes = (tmp_path / "marks").read_text().split()
    assert len(set(processes)) == 2, "one pool in the test, one in the script that it starts"


def run_single(code: str, path: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Do what the process of one test does, a test that starts a child, after `code`.

    In `code`, `path` is where the executor is; it leaves the replacement in `replacement`.
    """
    replacement = Replacement("executors_for_test:WrongNames", False, path)
    (name,) = [
        n
        for n in runner.list_tests(replacement).names
        if n.endswith(".test_submit_after_interpreter_shutdown")
    ]
    script = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r}); path = {path!r}\n"
        "from cpython_suite import children, single, suite\n"
        "from cpython_suite.replacement import Replacement\n"
        f"{code}\n"
        f"sys.exit(single.run({name!r}, replacement, suite.locate(), 60.0))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


def test_child_without_the_class_is_a_failure(executors: tuple[str, ...]) -> None:
    process = run_single(
        "replacement = Replacement('executors_for_test:WrongNames', False, path)\n"
        "children.treat = lambda *args: None",
        executors,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "started an interpreter without the replacement" in process.stdout


def test_child_whose_replacement_fails_is_a_failure(executors: tuple[str, ...]) -> None:
    """A class that only the test's own process can import does not go unnoticed."""
    process = run_single(
        "replacement = Replacement('executors_for_test:WrongNames'); sys.path.extend(path)",
        executors,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "No module named 'executors_for_test'" in process.stdout


def test_replacement_that_does_not_hold_is_a_failure(executors: tuple[str, ...]) -> None:
    """The tests' classes have bound the stdlib's class before ours was in place."""
    process = run_single(
        "replacement = Replacement('executors_for_test:WrongNames', False, path)\n"
        "suite.locate().prepare()\n"
        "import test.test_concurrent_futures as package\n"
        "if suite.locate().modules: import test.test_concurrent_futures.util",
        executors,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "ThreadPoolMixin.executor_type is" in process.stderr


def test_hang_is_a_failure_with_stacks(executors: tuple[str, ...]) -> None:
    outcome = one("test_submit", "NeverDone", executors, limit=3.0)
    assert outcome.status == "timed out"
    assert "most recent call first" in outcome.output
    assert "in test_submit" in outcome.output


def test_hang_of_a_child_is_a_failure_with_its_stacks(executors: tuple[str, ...]) -> None:
    outcome = one("test_interpreter_shutdown", "HangsInChildren", executors, limit=10.0)
    assert outcome.status == "failed"
    assert 'executors_for_test.py", line' in outcome.output


@pytest.mark.parametrize(
    ("method", "executor"),
    [
        ("test_thread_names_default", "WrongNames"),
        ("test_thread_names_assigned", "WrongNames"),
        ("test_interpreter_shutdown", "LosesTasksAtExit"),
        ("test_hang_gh83386", "LosesTasksAtExit"),
        ("test_submit", "Crashes"),
    ],
)
def test_broken_executor_is_a_failure(
    executors: tuple[str, ...], method: str, executor: str
) -> None:
    outcome = one(method, executor, executors)
    assert outcome.status == "failed", outcome.output


def test_crash_names_the_signal(executors: tuple[str, ...]) -> None:
    outcome = one("test_submit", "Crashes", executors)
    assert outcome.reason == "ended by SIGABRT"
    assert "most recent call first" in outcome.output


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(__file__).parent), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_command_passes_on_the_stdlib() -> None:
    process = run_command(
        "--executor", "concurrent.futures:ThreadPoolExecutor", "--only", "test_submit_keyword"
    )
    assert process.returncode == command.GOOD, process.stdout + process.stderr
    assert "1 of 1 passed on CPython" in process.stdout


def test_command_fails_on_a_lost_test() -> None:
    process = run_command(
        "--executor",
        "concurrent.futures:ThreadPoolExecutor",
        "--only",
        "test_submit_keyword",
        "--expect",
        "1000",
    )
    assert process.returncode == command.BAD
    assert "tests found, 1000 expected" in process.stdout


def test_command_fails_on_a_failed_test(
    executors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", executors[0])
    process = run_command(
        "--executor", "executors_for_test:WrongNames", "--only", "test_thread_names_default"
    )
    assert process.returncode == command.BAD
    assert "ThreadPoolShutdownTest.test_thread_names_default: see above" in process.stdout
    assert "0 of 1 passed" in process.stdout


def test_command_fails_without_the_executor() -> None:
    process = run_command("--executor", "no_such_module:ThreadPoolExecutor")
    assert process.returncode == command.BAD
    assert "No module named 'no_such_module'" in process.stdout


def test_command_fails_if_nothing_matches() -> None:
    process = run_command(
        "--executor", "concurrent.futures:ThreadPoolExecutor", "--only", "no such test"
    )
    assert process.returncode == command.BAD


def test_missing_suite_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(replacement: Replacement) -> runner.Listing:
        raise suite.SuiteMissing("there is none")

    monkeypatch.setattr(runner, "list_tests", nothing)
    assert command.main([]) == command.NOT_RUN
    assert "not run here: there is none (" in capsys.readouterr().out


def test_unknown_version_needs_enough_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    package = suite.Suite(None, ("test_wait",))
    monkeypatch.setattr(sys, "version_info", (3, 14, 99))
    assert discovery.wrong_number(package, 76) is None
    assert discovery.wrong_number(package, 80) is None
    assert discovery.wrong_number(package, 75) == "75 tests found, at least 76 expected"
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert discovery.wrong_number(package, 80) is not None
    assert discovery.wrong_number(package, 80, 80) is None
