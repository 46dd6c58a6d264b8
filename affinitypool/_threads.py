"""Worker threads: how they start, what they do, and that the interpreter waits for them."""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from affinitypool._binding import core as _core
from affinitypool._binding import ffi, lib

_logger = logging.getLogger("concurrent.futures")

# Every worker thread that was started and has not ended, with the core it works for.
_live: dict[WorkerThread, Any] = {}

# The pools that there are, by identity, for a forked child to renew.
pools: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

# threading.stack_size is process-wide: set, start a thread and restore it under this lock.
_stack_size_lock = threading.RLock()


def check_stack_size(size: int) -> None:
    """Raise ValueError if no thread can be started with so many bytes of stack."""
    try:
        if size <= 0:  # threading takes 0 for the default
            raise ValueError("size must be positive")
        with _stack_size_lock:
            threading.stack_size(threading.stack_size(size))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"stack_size of {size} bytes: {error}") from None


class _Started(threading.Event):
    """A thread's "has begun" event that `Thread.start` does not wait for.

    A submit may run in a finalizer that interrupted a frame which holds what the new thread
    needs to begin (threading's own locks), so no submit may wait for that.
    """

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def wait_begun(self, timeout: float | None) -> bool:
        """Wait until the thread has begun, at most `timeout` seconds."""
        return super().wait(timeout)


class WorkerThread(threading.Thread):
    """A thread that spends its life in the C worker loop of one core.

    It refers to the core, never to the pool object, so that a pool can be dropped.
    """

    def __init__(
        self,
        core: Any,
        name: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        failed: Callable[[BaseException], None],
    ) -> None:
        # tasks bring their contexts; a worker has none, also where threads inherit one
        empty = {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}
        super().__init__(name=name, daemon=False, **empty)  # type: ignore[arg-type]
        self._started = _Started()
        self.launched = False  # perhaps without success: see refused
        self._refused = False
        self._running = False
        self._fate = threading.Lock()  # decides whether the thread runs or was refused
        self._core = core
        self._initializer = initializer
        self._initargs = initargs
        self._failed = failed

    def launch(self, stack_size: int | None) -> None:
        """Start the thread without waiting for it; raises what `Thread.start` raises."""
        try:
            _live[self] = self._core
            self.launched = True
            if stack_size is None:
                self.start()
            else:
                with _stack_size_lock:
                    before = threading.stack_size(stack_size)
                    try:
                        self.start()
                    finally:
                        threading.stack_size(before)
        except BaseException:
            # perhaps an interrupt after the thread was made: it runs, or it will not
            with self._fate:
                self._refused = not self._running
            if self._refused:
                _live.pop(self, None)
                self._started.set()  # lets go of whoever joins it
            raise

    @property
    def refused(self) -> bool:
        """Whether the thread was not started, or started and told not to run."""
        return self._refused

    def has_begun(self) -> bool:
        """Return whether the thread runs or has run."""
        return self._started.is_set() and not self._refused

    def run(self) -> None:
        """Run the initializer, then tasks until the core has ended."""
        with self._fate:
            if self._refused:
                return
            self._running = True
        core, initializer, initargs = self._core, self._initializer, self._initargs
        failed = self._failed
        del self._core, self._initializer, self._initargs, self._failed
        try:
            if initializer is not None:
                try:
                    initializer(*initargs)
                except BaseException as error:
                    _logger.critical("Exception in initializer:", exc_info=True)
                    failed(error)
                    return
            del initializer, initargs, failed
            code = lib.ap_python_worker_run(ffi.cast("void *", core.address))
            if code != 0:
                core.started_add(-1)
                if core.started <= 0:
                    core.cancel_pending()  # nobody will come: visibly, not for ever
                _logger.critical("A worker thread could not begin: error %d", code)
        finally:
            _live.pop(self, None)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, also if it has not begun yet."""
        self._started.wait_begun(timeout)
        if self.has_begun():
            super().join(timeout)


def _at_exit() -> None:
    """Run what is pending and wait for every worker, before the interpreter goes."""
    _core.set_exiting(True)
    for core in list(_live.values()):
        core.close()
    while _live:
        for thread in list(_live):
            thread.join()
            _live.pop(thread, None)


def _after_fork_in_child() -> None:
    """In a child none of the parent's workers exists, and this thread is the main one."""
    global _stack_size_lock
    _stack_size_lock = threading.RLock()
    _core.after_fork()
    _core.set_main_thread(threading.get_ident())
    for core in set(_live.values()):
        _core.orphan(core)
    _live.clear()
    for pool in list(pools.values()):
        pool._renew()


def _register_exit() -> None:
    # Workers are no daemons, and threading joins those before it calls atexit: this hook is
    # the one that comes earlier.  The stdlib's pool uses it too.
    threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
    ident = threading.main_thread().ident
    assert ident is not None
    _core.set_main_thread(ident)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)


_register_exit()
