"""Worker threads: how they start, what they do, and that the interpreter waits for them."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

from affinitypool._binding import core as _core
from affinitypool._binding import ffi, lib
from affinitypool._task import Task

_logger = logging.getLogger("concurrent.futures")

# Every worker thread that was started and has not ended, with the core it works for.
_live: dict[WorkerThread, Any] = {}

_active: dict[int | None, threading.Thread] = threading._active  # type: ignore[attr-defined]

# The pools that there are, by identity, for a forked child to renew.
pools: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

BROKEN = "A thread initializer failed, the thread pool is not usable anymore"

# Seconds before each try to start a thread in place of another, and to find memory for a worker.
_RETRY_DELAYS = (0.0, 0.001, 0.01, 0.1)

# Seconds for what is left of a thread that has ended, as far as it was ours.
_JOIN_LIMIT = threading.TIMEOUT_MAX if sys.version_info >= (3, 13) else 1.0

# Threads in turn that end before they can work, before no more are started in their place.
_STILLBORN_MOST = 50

_process = os.getpid()  # whose the things above are

# threading.stack_size is process-wide: set, start a thread and restore it under this lock.
_stack_size_lock = threading.RLock()


def check_stack_size(size: int) -> None:
    """Raise ValueError if no thread can be started with so many bytes of stack."""
    try:
        if size <= 0:  # threading takes 0 for the default
            raise ValueError
        with _stack_size_lock:
            threading.stack_size(threading.stack_size(size))
    except (ValueError, OverflowError):
        raise ValueError(
            "stack_size must be a number of bytes that the platform allows, mostly 32768 or more "
            f"and a multiple of 4096, not {size}"
        ) from None


class _Started(threading.Event):
    """A thread's "has begun" event that `Thread.start` does not wait for.

    A submit may run in a finalizer that interrupted a frame which holds what the new thread
    needs to begin (threading's own locks), so no submit may wait for that.
    """

    def wait(self, timeout: float | None = None) -> bool:
        return True


class Crew:
    """What the worker threads of one core share.  It refers to no pool, so that one can be dropped.

    stillborn: how many threads in turn ended before they could work.
    launched: those that were started and not told not to run.
    threads: the same; the pool's `_threads`, out of which users may take some.
    daemon: they do not keep the interpreter from exiting.
    keeps_initial_context: what an initializer sets holds for tasks with contexts of their own.
    broken: an initializer has failed.
    mark_broken: called with the error of an initializer that failed.
    """

    __slots__ = (
        "broken",
        "core",
        "daemon",
        "keeps_initial_context",
        "launched",
        "mark_broken",
        "stack_size",
        "stillborn",
        "threads",
    )

    def __init__(
        self,
        core: Any,
        stack_size: int | None,
        *,
        daemon: bool,
        keeps_initial_context: bool,
        mark_broken: Callable[[BaseException], None],
    ) -> None:
        self.core = core
        self.stack_size = stack_size
        self.daemon = daemon
        self.keeps_initial_context = keeps_initial_context
        self.broken = False
        self.mark_broken = mark_broken
        self.stillborn = 0
        self.launched: set[WorkerThread] = set()
        self.threads: set[WorkerThread] = set()

    def make(
        self, name: str, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
    ) -> WorkerThread:
        """Make one more thread, to be launched."""
        return WorkerThread(self, name, initializer, initargs)

    def forget(self, thread: WorkerThread) -> None:
        """It was told not to run, or another has its place."""
        self.launched.discard(thread)
        self.threads.discard(thread)

    def let_joiners_go(self) -> None:
        """In a forked child, which has none of the threads."""
        for thread in self.launched.copy():
            thread.let_joiners_go()

    def replace(
        self, dead: WorkerThread, initializer: Callable[..., object] | None, initargs: Any
    ) -> None:
        """Start a thread in place of one that ended although it should not have.

        Whatever ended that one may strike here too; so it is tried several times.
        """
        for old in self.launched.copy():
            if old.replacement is not None and not old.is_alive():
                self.forget(old)  # others count as started: see holds_place
        failure: BaseException | None = None
        self.stillborn += 1
        refusals = 0 if self.stillborn < _STILLBORN_MOST else len(_RETRY_DELAYS)
        while refusals < len(_RETRY_DELAYS):
            try:
                if refusals:
                    time.sleep(_RETRY_DELAYS[refusals])
                thread = dead.replacement
                if thread is None or thread.refuse():
                    thread = dead.replacement = self.make(dead.name, initializer, initargs)
                    thread.launch()
                self.core.exit()
                return
            except (RuntimeError, MemoryError, OSError) as error:  # the system refuses a thread
                failure = error
                refusals += 1
            except BaseException as error:  # sent from outside
                failure = error
        self.core.lose_worker()
        _logger.critical("Worker thread %s ended and could not be replaced: %r", dead.name, failure)


class WorkerThread(threading.Thread):
    """A thread that spends its life in the C worker loop of one core."""

    def __init__(
        self,
        crew: Crew,
        name: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        super().__init__(name=name, daemon=crew.daemon)
        self._started = _Started()
        # Tasks serve as events: what is done to them is one step for signals and other threads.
        self._fate: Task[Any] = Task()  # started by the thread, or cancelled by who refuses it
        self._gone: Task[Any] = Task()  # done once it was refused, or has ended: home.c
        self._guard: Any = None
        self._crew: Any = crew  # until it has ended, like the next two
        self._initializer: Any = initializer
        self._initargs: Any = initargs
        self._has_ended = False  # as it should
        self.replacement: WorkerThread | None = None

    def launch(self) -> None:
        """Start the thread without waiting for it; raises what `Thread.start` raises."""
        crew = self._crew
        core, stack_size = crew.core, crew.stack_size
        try:
            crew.threads.add(self)
            crew.launched.add(self)
            _live[self] = core
            if _core.is_exiting():  # then nobody may have seen this one: see _at_exit
                _close_at_exit(self, core)
            # Tasks bring their contexts; a worker has none, also where threads inherit one, and
            # where a tracing tool has patched `start` to pass one on.
            empty = contextvars.Context()
            if stack_size is None:
                empty.run(self.start)
            else:
                with _stack_size_lock:
                    before = threading.stack_size(stack_size)
                    try:
                        empty.run(self.start)
                    finally:
                        threading.stack_size(before)
        except BaseException:
            self.refuse()  # perhaps an interrupt, after the thread was made
            raise

    def refuse(self) -> bool:
        """Keep the thread from running, if it does not yet; return whether it never will."""
        if not self._fate.cancel():
            return False
        self._crew.forget(self)
        _live.pop(self, None)
        threading._limbo.pop(self, None)  # type: ignore[attr-defined]
        self.let_joiners_go()
        return True

    def let_joiners_go(self) -> None:
        """Tell those who wait for the thread's end that it never comes, or has come.

        Not if this is the thread: as in a child that a task has forked.
        """
        if self.ident != threading.get_ident():
            with contextlib.suppress(InvalidStateError):  # done already
                self._gone.set_result(None)

    def is_lost(self) -> bool:
        """Return whether the thread has given up its place among the started, and has not been
        replaced.
        """
        if self._guard is not None and self._guard.is_lost():
            return True
        return self._gone.done() and self._gone.result() is True  # by the guard: see home.c

    def holds_place(self) -> bool:
        """Return whether it is one of those that its core counts as started."""
        return self.replacement is None and not self.is_lost() and not self._fate.cancelled()

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return not self._fate.cancelled() and super().is_alive()

    def is_busy(self) -> bool:
        """Return whether the thread runs something: a task, a callback, its initializer."""
        return self._guard is not None and self._guard.is_busy()

    def has_begun(self) -> bool:
        """Return whether the thread runs or has run."""
        return self._started.is_set() and not self._fate.cancelled()

    @property
    def _bootstrap(self) -> Callable[[], object]:
        # `start` gives this to the new thread, which begins in C: see home.c
        return _core.Entry(self._crew.core, self._fate, self._gone, self._bootstrap_guarded)

    def _bootstrap_guarded(self, guard: Any) -> None:
        self._guard = guard
        try:
            super()._bootstrap()  # type: ignore[misc]
        finally:
            self._end()  # an exception that was sent to the thread kept `run` from it
            if _active.get(self.ident) is self:  # or threading from this
                _active.pop(self.ident, None)

    def run(self) -> None:
        """Run the initializer, then tasks until the core has ended."""
        try:
            self._has_ended = _work(self._crew, self._initializer, self._initargs)
            if not self._has_ended:
                _logger.error("Worker thread %s ended unexpectedly, and is replaced", self.name)
        finally:
            self._end()

    def _end(self) -> None:
        """Have the thread replaced, if it should not have ended; let go of what it held."""
        crew = self._crew
        if crew is None:
            return
        if crew.broken:
            crew.core.lose_worker()  # nobody runs what was promised to it, or by it
        elif not self._has_ended:
            crew.replace(self, self._initializer, self._initargs)
        crew.core.exit()
        _live.pop(self, None)
        self._initializer = self._initargs = self._crew = None

    def join_until(self, end: float | None) -> bool:
        """Join; False if it still runs at the time `end` of `time.monotonic`."""
        if end is None:
            self.join()
            return True
        self.join(min(max(0.0, end - time.monotonic()), threading.TIMEOUT_MAX))
        return self._gone.done() and not self.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, also if it has not begun yet.

        `Thread.join` comes last, and has nothing to wait for: before Python 3.13 one that is
        interrupted takes the thread for ended, and one in a signal handler that has interrupted
        another waits for that; hence its limit.
        """
        if self is threading.current_thread():
            raise RuntimeError("cannot join current thread")
        if not _core.wait_all([self._gone], timeout):
            return
        if self._gone.result() is True and not self._started.is_set():
            # it died before its first line
            _live.pop(self, None)
            threading._limbo.pop(self, None)  # type: ignore[attr-defined]
        elif self.has_begun():
            super().join(_JOIN_LIMIT if timeout is None else min(timeout, _JOIN_LIMIT))


def _work(crew: Crew, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> bool:
    """Live as a worker.  False if that ended before it should; raises what ended it, if known."""
    core = crew.core
    if initializer is not None:
        try:
            if crew.keeps_initial_context:
                _initialize_context(initializer, initargs)
            else:
                initializer(*initargs)
        except BaseException as error:
            crew.broken = True  # whatever the logging does, this thread is not replaced
            try:
                _logger.critical("Exception in initializer:", exc_info=True)
            finally:
                _break(crew, error)
            return True
    code = lib.ap_python_worker_run(ffi.cast("void *", core.address))
    crew.stillborn = 0
    for delay in _RETRY_DELAYS:
        if code != lib.AP_E_NOMEM:
            break
        time.sleep(delay)
        code = lib.ap_python_worker_run(ffi.cast("void *", core.address))
    if code < 0:
        core.lose_worker()
        _logger.critical("A worker thread could not begin: error %d", code)
    if code <= 0:
        return True
    sent = _core.worker_exception()
    if sent is not None:
        raise sent
    return False


def _initialize_context(initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
    """Run the initializer; the variables that it has set hold for each task of this thread."""
    before = contextvars.copy_context()
    context = before.copy()
    context.run(initializer, *initargs)
    changed = [
        (variable, value)
        for variable, value in context.items()
        if variable not in before or before[variable] is not value
    ]
    if changed:
        _core.set_initial_context(tuple(itertools.chain.from_iterable(changed)))


def _break(crew: Crew, cause: BaseException) -> None:
    """Fail everything that is pending; the core takes no more.

    Callbacks come last: one may wait for another task of the pool.
    """
    core = crew.core
    core.leave_home()  # what it waits for from now on it does not run itself
    crew.mark_broken(cause)
    core.close()
    callbacks: list[tuple[Task[Any], Callable[[Any], object]]] = []
    try:
        while True:
            error = BrokenThreadPool(BROKEN)
            error.__cause__ = cause
            if core.fail_next(error, callbacks):
                continue
            if not core.pending:
                break
            time.sleep(0)  # a submit is between reserving its place and filling it
    finally:
        _give_all(callbacks)


def _give_all(callbacks: list[tuple[Task[Any], Callable[[Any], object]]]) -> None:
    """Call them, whatever is raised from outside in between."""
    callbacks.reverse()
    failure = None
    while callbacks:
        try:
            task, callback = callbacks.pop()
            task._give_callback(callback)
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure


def _at_exit() -> None:
    """Run what is pending and wait for every worker, before the interpreter goes.

    Of pools that said wait_at_exit=False what is pending is cancelled.  Their workers are left
    alone: one that is asleep stays so, and one that is in a task ends with the interpreter.
    """
    _core.set_exiting(True)  # from here on threads that start do the same: see launch
    for thread, core in list(_live.items()):
        _close_at_exit(thread, core)
    while waited := [thread for thread in list(_live) if not thread.daemon]:
        for thread in waited:
            thread.join()
            _live.pop(thread, None)


def _close_at_exit(thread: WorkerThread, core: Any) -> None:
    if thread.daemon:
        core.cancel_pending(False)
    else:
        core.close()


def begin_child() -> None:
    """In a forked child, before anything else: what the pools share is the child's now.

    None of the parent's workers exists.  May be interrupted, and is done again then.
    """
    global _process, _stack_size_lock
    if _process == os.getpid():
        return
    _stack_size_lock = threading.RLock()
    for thread, core in list(_live.items()):
        if core.is_orphaned:
            thread.let_joiners_go()
            _live.pop(thread, None)
    _process = os.getpid()


def _renew_all() -> None:
    """In a forked child: renew every pool; one that is not renews itself when it is used."""
    begin_child()
    failure = None
    for pool in list(pools.values()):
        try:
            pool._renew()
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure


def _register_exit() -> None:
    # Workers are no daemons, unless wait_at_exit=False makes them so, and threading joins such
    # threads before it calls atexit: this hook is the one that comes earlier.  The stdlib's pool
    # uses it too.
    threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
    ident = threading.main_thread().ident
    assert ident is not None
    _core.set_main_thread(ident)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_all)


_register_exit()
