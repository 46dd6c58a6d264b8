"""Runs every test in a process of its own, several at a time, each with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from cpython_suite import single
from cpython_suite.children import HERE
from cpython_suite.replacement import Replacement
from cpython_suite.suite import Suite, SuiteMissing

DEFAULT_LIMIT = 120.0
GRACE = 10.0  # seconds between the limit, when stacks are written, and the kill


class RunnerError(Exception):
    """A process of the runner's own, not of a test, failed; the text is its output."""


@dataclass(frozen=True)
class Listing:
    """The tests to run: their names, the modules that could not be imported, and the suite."""

    suite: Suite
    names: tuple[str, ...]
    broken: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """How a test ended: `status` is "passed", "skipped", "failed" or "timed out"."""

    name: str
    status: str
    reason: str
    seconds: float
    output: str

    @property
    def good(self) -> bool:
        return self.status in ("passed", "skipped")


def list_tests(replacement: Replacement) -> Listing:
    """Find the tests, in a process of its own so that nothing of them is imported in this one.

    Raises SuiteMissing if this Python has none, RunnerError if the executor cannot be put in place.
    """
    process = subprocess.run(
        _command("list", {"replacement": asdict(replacement)}),
        capture_output=True,
        env=_environment(),
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RunnerError(process.stdout + process.stderr)
    answer = json.loads(process.stdout.splitlines()[-1])
    if "missing" in answer:
        raise SuiteMissing(answer["missing"])
    suite = Suite(answer["suite"]["graft"], tuple(answer["suite"]["modules"]))
    return Listing(suite, tuple(answer["names"]), answer["broken"])


def run_test(
    name: str, replacement: Replacement, suite: Suite, limit: float = DEFAULT_LIMIT
) -> Outcome:
    """Run one test in a process of its own; `limit` is in seconds."""
    request = {
        "name": name,
        "replacement": asdict(replacement),
        "suite": asdict(suite),
        "limit": limit,
    }
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # A file, since a pipe would stay open as long as any descendant of the test lives.
        process = subprocess.Popen(
            _command("single", request),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(limit + GRACE)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(process)
        output.seek(0)
        text = output.read()
    status, reason = _judge(code, text, time.monotonic() - begin > limit)
    return Outcome(name, status, reason, time.monotonic() - begin, text)


def run_tests(
    names: Sequence[str], replacement: Replacement, suite: Suite, limit: float, jobs: int
) -> Iterator[Outcome]:
    """Run tests, `jobs` at a time, and yield their outcomes as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_test, name, replacement, suite, limit) for name in names]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _judge(code: int | None, text: str, late: bool) -> tuple[str, str]:
    """Tell from exit status and output how a test ended. Silence is a failure."""
    lines = text.splitlines()
    last = next((line for line in reversed(lines) if line.startswith("outcome: ")), "")
    if code is None or (late and code != 0):
        return (
            "timed out",
            "its stacks are in the output" if "most recent call first" in text else "killed",
        )
    if code != 0:
        if code < 0:
            return "failed", f"ended by {signal.Signals(-code).name}"
        return "failed", last.removeprefix("outcome: failed: ") or f"exit status {code}"
    if last == single.PASSED:
        return "passed", ""
    if last.startswith(single.SKIPPED):
        return "skipped", last.removeprefix(single.SKIPPED)
    return "failed", "exit status 0 without an outcome"


def _command(verb: str, request: dict[str, Any]) -> list[str]:
    return [sys.executable, "-u", HERE, verb, json.dumps(request)]


def _environment() -> dict[str, str]:
    """The environment without what would change the defaults that the tests check."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AFFINITYPOOL_")}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    with contextlib.suppress(ProcessLookupError):  # nothing left of the group
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
