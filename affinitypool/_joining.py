"""Waiting until a pool has ended and its threads have left; telling which of them still run."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from typing import Any

from affinitypool._binding import core as _core
from affinitypool._threads import WorkerThread

_logger = logging.getLogger("affinitypool")


def has_ended(core: Any) -> bool:
    """Return whether everything that was submitted has ended; False if this is a worker."""
    return core.wait_quiet(0) if not core.is_home() else False


def join_threads(pool: Any, core: Any, end: float | None, call: str) -> bool:
    """Wait until all has ended; False if the time has passed, or if this is a worker.

    As in the stdlib, whoever was taken out of the pool's `_threads` is not waited for.
    """
    me = threading.get_ident()
    if core.is_home() or any(t.ident == me and t.is_alive() for t in pool._crew.launched.copy()):
        return False
    joined: set[WorkerThread] = set()
    delay = 0.0
    while core is pool._core:  # else a signal handler has forked: all reads as cancelled
        # before `_threads`, so that what is only here was taken out there, and is not yet to come
        launched = pool._crew.launched.copy()
        threads = set(pool._threads)
        # a submit that was accepted before may be about to start a thread, which is waited
        # for; but not if it is a submit of this thread, which this call then interrupts
        interrupts = _core.is_starting()
        for thread in threads - joined:
            if interrupts and not thread.has_begun():
                continue
            if not thread.join_until(end):
                _log_running(pool, call)
                return False
        joined = threads
        held = {thread for thread in joined | launched if thread.holds_place()}
        settled = core.started <= len(held) and (core.started or not core.pending)
        if pool._threads == joined and (settled or interrupts):
            return bool(settled) and (held <= joined or has_ended(core))
        if end is not None and time.monotonic() >= end:
            _log_running(pool, call)
            return False
        time.sleep(delay)
        delay = min(0.01, 2 * delay or 0.0001)
    return True


def _log_running(pool: Any, call: str) -> None:
    """Log which workers still run after the call, and where they are."""
    frames = sys._current_frames()
    for thread in sorted(pool._threads, key=lambda thread: thread.name):
        if not thread.is_busy():
            continue
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else "  (no Python code)\n"
        _logger.warning(
            "worker thread %s still runs after %s:\n%s",
            thread.name,
            call,
            stack.rstrip(),
        )
