"""What a failing run has to say: every thread's stack, and every pool's counters.

`report()` is that text.  `Plugin` puts it into the report of each failed test, and ends a run whose
test goes on after its time limit:

    limit - a little    the report is taken, for the case that the limit is reached
    limit               pytest-timeout interrupts the main thread: the test fails
    limit + GRACE       it did not: the report is printed, and the process ends
    limit + 2 GRACE     not even that could run: faulthandler prints the stacks from C, and ends it
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

GRACE = float(os.environ.get("AFFINITYPOOL_TEST_GRACE", "20"))
EXIT_STATUS = 70
DEPTH = 60


def _stack(frame: FrameType | None) -> list[str]:
    # as faulthandler writes it; by hand, for it shows one thread only where there is no GIL, and
    # without the `traceback` module, which reads files and imports
    lines = []
    while frame is not None and len(lines) < DEPTH:
        code = frame.f_code
        if Path(code.co_filename).parent.name in ("pluggy", "_pytest"):
            frame = frame.f_back  # says nothing
            continue
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return lines if frame is None else [*lines, "  ..."]


def stacks() -> str:
    """Return the Python stack of every thread, the calling one last."""
    names = {thread.ident: thread.name for thread in list(threading._active.values())}  # type: ignore[attr-defined]
    own = _thread.get_ident()
    parts = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] == own):
        kind = "Current thread" if ident == own else "Thread"
        name = names.get(ident, "not of threading")
        parts.append(f"{kind} 0x{ident:016x} [{name}] (most recent call first):")
        parts += _stack(frame)
    return "\n".join(parts)


def counters() -> str:
    """Return the counters of every pool, and of those whose workers live on without it."""
    from affinitypool._stats import read_stats
    from affinitypool._threads import _live, pools

    workers: dict[int, list[str]] = {}
    cores = {}
    for thread, core in list(_live.items()):
        cores[core.address] = core
        workers.setdefault(core.address, []).append(thread.name)
    lines = []

    def tell(title: str, core: Any) -> None:
        numbers = ", ".join(f"{key}={value}" for key, value in read_stats(core)._asdict().items())
        names = ", ".join(sorted(workers.get(core.address, ()))) or "none"
        lines.extend((title, f"  started={core.started}, {numbers}", f"  threads: {names}"))

    for pool in list(pools.values()):
        cores.pop(pool._core.address, None)
        state = "broken" if pool._broken else "shut down" if pool._shutdown else "open"
        title = f"{pool._thread_name_prefix}: {state}, max_workers={pool._max_workers}"
        tell(title, pool._core)
    for core in cores.values():
        tell("a pool that was dropped, or left behind by a fork", core)
    return "\n".join(lines) or "no pools"


def report() -> str:
    """Return stacks and counters; a part that cannot be had says why."""
    parts = []
    for title, part in (("threads", stacks), ("pools", counters)):
        try:
            text = part()
        except Exception as error:  # the process is in trouble, and the rest is wanted
            text = f"cannot be told: {error!r}"
        parts.append(f"---- {title} ----\n{text}\n")
    return "\n".join(parts)


class _Watch:
    """One thread that looks after the test that is running.

    It is none of threading's, so that tests which count threads do not see it.
    """

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr
        self._bell = _thread.allocate_lock()
        self._bell.acquire()
        self._test: tuple[str, float, float] | None = None  # name, limit, when it began
        self._taken: tuple[str, str] | None = None
        self._pid = 0

    def begin(self, name: str, limit: float) -> None:
        self._taken = None
        self._test = (name, limit, time.monotonic())
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _thread.start_new_thread(self._run, ())
        faulthandler.dump_traceback_later(limit + 2 * GRACE, exit=True, file=self._stderr)
        self._ring()

    def end(self) -> None:
        if self._test is not None:
            self._test = None
            faulthandler.cancel_dump_traceback_later()
            self._ring()

    def taken(self, name: str) -> str | None:
        """Return the report that was taken shortly before the test's limit."""
        taken = self._taken
        return taken[1] if taken and taken[0] == name else None

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _pause(self, until: float) -> None:
        self._bell.acquire(timeout=max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while True:
            test = self._test
            if test is None:
                self._bell.acquire()
                continue
            name, limit, begin = test
            early = begin + limit - min(1.0, limit / 10)
            while self._test is test and time.monotonic() < early:
                self._pause(early)
            if self._test is test:
                self._taken = (name, report())
            while self._test is test and time.monotonic() < begin + limit + GRACE:
                self._pause(begin + limit + GRACE)
            if self._test is test:
                self._give_up(name, limit)

    def _give_up(self, name: str, limit: float) -> None:
        head = f"\n{name} had {limit:g} s, and goes on {GRACE:g} s later; this run ends here.\n\n"
        with contextlib.suppress(OSError):
            os.write(self._stderr, (head + report()).encode(errors="replace"))
        os._exit(EXIT_STATUS)


class Plugin:
    """The part that pytest sees."""

    def __init__(self) -> None:
        # made while nothing is captured; kept for ever, as threads may write to it at any time
        self._watch = _Watch(os.dup(2))

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        """Begin to look after a test; pytest-timeout itself goes on with its own."""
        self._watch.begin(item.nodeid, settings.timeout)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """End that once the test and its fixtures are done with."""
        try:
            return (yield)
        finally:
            self._watch.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Add stacks and counters to what failed."""
        result = yield
        if result.failed:
            before = self._watch.taken(item.nodeid)
            if before is not None:
                result.sections.append(("threads and pools shortly before the time limit", before))
            result.sections.append(("threads and pools after the failure", report()))
        return result

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a test that switched its time limit off."""
        for item in items:
            marker = item.get_closest_marker("timeout")
            limit = marker and (marker.args[0] if marker.args else marker.kwargs.get("timeout"))
            if marker and limit is not None and limit <= 0:
                raise pytest.UsageError(f"{item.nodeid} has no time limit")
