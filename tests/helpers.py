"""What several test modules use."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor as StdlibPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
CHILD_ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONFAULTHANDLER": "1",
    # compiled once for hundreds of processes, whatever holds for this one
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache"),
}


class Probe:
    """Something that can be weakly referred to."""


class Cell:
    """Something that can be weakly referred to, and refers to what it is told to."""

    def __init__(self, content: object = None) -> None:
        self.content = content


def fail(error: BaseException) -> None:
    """Raise the error: a function for tasks and callbacks."""
    raise error


def eventually(condition: Callable[[], object], timeout: float = 20.0) -> bool:
    """Poll for what no event tells, such as the death of an object."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def all_dead(references: Iterable[Callable[[], object]], timeout: float = 10.0) -> bool:
    """Whether all that the weak references refer to dies soon, with nothing done for it."""
    references = list(references)
    return eventually(lambda: not any(reference() is not None for reference in references), timeout)


def at_once(*functions: Callable[[], Any], timeout: float = 20.0) -> list[Any]:
    """Run each function in a thread of its own, all begun together; return their results."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            barrier.wait(timeout)
            results[index] = function()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=[index, function], daemon=True)
        for index, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        assert not thread.is_alive(), "a thread has not ended"
    if errors:
        raise errors[0]
    return results


@contextmanager
def occupied(pool: Any) -> Iterator[threading.Event]:
    """Keep each worker of the pool busy until the event is set, at the latest at the end."""
    count = pool._max_workers
    gate, met = threading.Event(), threading.Barrier(count + 1)

    def hold() -> None:
        met.wait(10)
        gate.wait(60)

    tasks = [pool.submit(hold) for _ in range(count)]
    met.wait(10)
    try:
        yield gate
    finally:
        gate.set()
        for task in tasks:
            task.result(10)


@contextmanager
def about(name: object) -> Iterator[None]:
    """Say in an error what it is about: which of the cases that a test goes through."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {name}")
        raise


def check_cases(cases: Iterable[Any], check: Callable[..., None], at_once: int = 4) -> None:
    """Call `check` for every case, some at once, in threads: for checks that look at a process.

    A case is a name, or a tuple of arguments.  All that fail are told.
    """

    def run(case: Any) -> Exception | None:
        try:
            with about(case):
                check(*case) if isinstance(case, tuple) else check(case)
        except Exception as error:
            return error
        return None

    # the stdlib's pool: a fault of ours is to be seen, not to hang the test
    with StdlibPool(at_once) as pool:
        errors = [error for error in pool.map(run, cases) if error is not None]
    if len(errors) > 1:
        raise ExceptionGroup("several cases fail", errors)
    if errors:
        raise errors[0]


@contextmanager
def no_collector(collect: bool = True) -> Iterator[None]:
    """Run the body with the cyclic collector off; it runs once before, with `collect`."""
    if collect:
        gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class ChildHangs(AssertionError):
    """A child went on past its time; the message has its output, and its stacks."""


def run_python(
    code: str, *args: str, timeout: float = 30, options: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own, with the package importable.

    One that goes on for more than `timeout` seconds is aborted, so that it writes where all of
    its threads are, and ChildHangs raised.
    """
    command = [sys.executable, *options, "-c", textwrap.dedent(code), *args]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **CHILD_ENVIRONMENT, **env},
        cwd=ROOT,
        process_group=0,  # its own children end with it
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ChildHangs(_abort(child, timeout)) from None
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def _abort(child: subprocess.Popen[str], timeout: float) -> str:
    """End a child and its children; return what they wrote."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            out, err = child.communicate(timeout=5)
            break
    else:
        out, err = "", "it cannot be killed"
    return f"no end after {timeout:g} s\n--- its stdout:\n{out}\n--- its stderr:\n{err}"


def check_python(code: str, *args: str, **options: Any) -> str:
    """Run code as `run_python` does; it has to end well and say nothing on stderr."""
    done = run_python(code, *args, **options)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout
