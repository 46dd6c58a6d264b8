"""The pool: a `concurrent.futures.ThreadPoolExecutor` whose queues and tasks live in C."""

from __future__ import annotations

import concurrent.futures
import itertools
import operator
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.thread import BrokenThreadPool
from types import TracebackType
from typing import Any, TypeVar

from affinitypool._binding import core as _core
from affinitypool._errors import ShutdownError
from affinitypool._joining import has_ended, join_threads
from affinitypool._private_names import PrivateNames
from affinitypool._results import buffered_results, results_reversed
from affinitypool._sizing import MAX_WORKERS, default_max_workers, usable_cpus
from affinitypool._stats import PoolStats, read_stats
from affinitypool._task import Task
from affinitypool._threads import (
    BROKEN,
    Crew,
    WorkerThread,
    begin_child,
    check_stack_size,
    pools,
)

# By name, so that they are imported by now where imports are lazy: the C side calls what they bind.
_BINDERS = (Task, Crew)

T = TypeVar("T")

_MAX_PENDING = 2**30

_ON_FULL = {"block": 0, "raise": 1, "caller_runs": 2}  # as ap_on_full of bridge.h


def _row(*items: Any) -> tuple[Any, ...]:
    return items


def _integer(name: str, value: object) -> int:
    """Return the value as an int; TypeError that names the argument."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} must be an integer, not {kind}") from None


def _flag(name: str, value: object) -> bool:
    """Return the value if it is True or False; TypeError that names the argument."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def _arguments(name: str, value: object) -> tuple[Any, ...]:
    """Return the values as a tuple; TypeError that names the argument."""
    try:
        values = iter(value)  # type: ignore[call-overload]
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} must be a tuple of arguments, not {kind}") from None
    return tuple(values)


class ThreadPoolExecutor(  # type: ignore[misc]  # of what the private names are
    PrivateNames, concurrent.futures.ThreadPoolExecutor
):
    """A pool of worker threads; `concurrent.futures.ThreadPoolExecutor` with a hot path in C.

    max_workers: threads at most, 1 to 512.  None: the environment variable
        AFFINITYPOOL_MAX_WORKERS, else min(32, usable CPUs + 4).  Threads start when a submit
        finds no idle one.
    thread_name_prefix: threads are named `prefix_0`, `prefix_1` and so on.
    initializer, initargs: called in each thread before its first task.  If it raises, the pool
        is broken: pending tasks fail with BrokenThreadPool and later submits raise it.
    shards: queues that submitting threads are spread over: rounded up to a power of two, but at
        most the largest one that does not exceed the workers.  None: one, and tasks start in the
        order of submission.  With several only each thread's own tasks are taken in order, and
        a task may wait behind another that blocks while later ones start.
    stack_size: bytes of stack per worker thread, at least 32 KiB or what the platform needs; None:
        the platform's default.
        Tasks that wait for tasks of their own pool nest on it; RecursionError when it is full.
        More than the system has: an error of the submit that starts a thread.
        (`threading.stack_size` is process-wide: it is set and restored around each start.)
    thread_per_core: as many threads as usable CPUs; not together with max_workers.
    propagate_context: run each task in a copy of its submitter's `contextvars` context.  None:
        yes, and the variables that an initializer has set hold in it.  False: in the context of the
        worker thread, as the stdlib's pool does.  (A copy refers to the same objects: a task that
        changes one, as `decimal`'s context, changes it for its submitter.)
    max_pending: how many tasks may be accepted and not started, at least 1; None: any number.
        A task that an idle worker is about to start counts, so as many as workers is a good least.
    on_full: what `submit` does when there are that many: "block" until one of them starts or is
        cancelled, "raise" PendingLimitError, or "caller_runs": run the call itself.  A worker of
        this pool is never blocked by it: with "block" it goes over the bound.  Without
        `max_pending` it has no effect.
    cancel_on_error: leaving a `with` block by an exception cancels what has not started.
    wait_at_exit: whether the end of the main program waits for what is pending or running.  False:
        what has not started by then is cancelled, and what runs is cut off.

    TypeError or ValueError says which argument is wrong.

    >>> from affinitypool import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(max_workers=2) as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    _counter = itertools.count().__next__
    _max_pending: int | None = None

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        shards: int | None = None,
        stack_size: int | None = None,
        thread_per_core: bool = False,
        propagate_context: bool | None = None,
        max_pending: int | None = None,
        on_full: str = "block",
        cancel_on_error: bool = False,
        wait_at_exit: bool = True,
    ) -> None:
        if id(self) in pools:
            raise RuntimeError("the pool is initialised already")
        if _flag("thread_per_core", thread_per_core):
            if max_workers is not None:
                raise ValueError("give max_workers or thread_per_core, not both")
            max_workers = min(usable_cpus(), MAX_WORKERS)
        elif max_workers is None:
            max_workers = default_max_workers()
        max_workers = _integer("max_workers", max_workers)
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_workers > MAX_WORKERS:
            raise ValueError(f"max_workers must be at most {MAX_WORKERS}, not {max_workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if shards is not None:
            shards = _integer("shards", shards)
            if shards < 1:
                raise ValueError(f"shards must be at least 1, not {shards}")
            shards = min(shards, max_workers)
        if stack_size is not None:
            stack_size = _integer("stack_size", stack_size)
            check_stack_size(stack_size)
        if propagate_context is not None and not isinstance(propagate_context, bool):
            kind = type(propagate_context).__name__
            raise TypeError(f"propagate_context must be True, False or None, not {kind}")
        if max_pending is not None:
            max_pending = _integer("max_pending", max_pending)
            if not 1 <= max_pending <= _MAX_PENDING:
                raise ValueError(f"max_pending must be from 1 to {_MAX_PENDING}, not {max_pending}")
        if not isinstance(on_full, str) or on_full not in _ON_FULL:
            raise ValueError(f"on_full must be 'block', 'raise' or 'caller_runs', not {on_full!r}")
        initargs = _arguments("initargs", initargs)
        cancel_on_error = _flag("cancel_on_error", cancel_on_error)
        wait_at_exit = _flag("wait_at_exit", wait_at_exit)

        self._core_options = (
            max_workers,
            shards or 0,
            usable_cpus(),
            propagate_context is not False,
            max_pending or 0,
            _ON_FULL[on_full],
        )
        core = _core.Core(*self._core_options)
        self._max_workers = max_workers
        self._initializer: Any = initializer
        self._initargs = initargs
        self._stack_size = stack_size
        self._thread_name_prefix = thread_name_prefix or f"ThreadPoolExecutor-{self._counter()}"
        self._broken = False
        self._shutdown = False
        self._shutdown_lock: Any = threading.RLock()
        self._max_pending = max_pending
        self._cancel_on_error = cancel_on_error
        self._keeps_initial_context = propagate_context is None
        self._wait_at_exit = wait_at_exit
        self._initializer_error: list[BaseException] = []
        self._bind(core, self._make_crew(core), True)
        pools[id(self)] = self

    def _make_crew(self, core: Any) -> Crew:
        mark = weakref.WeakMethod(self._initializer_failed)

        def mark_broken(error: BaseException) -> None:
            method = mark()
            if method is not None:
                method(error)

        return Crew(
            core,
            self._stack_size,
            daemon=not self._wait_at_exit,
            keeps_initial_context=self._keeps_initial_context,
            mark_broken=mark_broken,
        )

    # ---- called by the C side -----------------------------------------------------------

    def _renew(self) -> None:
        """In a forked child: leave the queues to the parent and start anew.

        May be interrupted anywhere, also by a handler that uses the pool and so does the same.
        """
        begin_child()
        crew = self._present_crew()
        if crew is None or not crew.core.is_orphaned:
            return
        crew.let_joiners_go()
        core = _core.Core(*self._core_options)
        if self._shutdown or self._broken:
            core.close()
        self._shutdown_lock = threading.RLock()
        self._bind(core, self._make_crew(core), False)

    def _make_worker(self, crew: Crew, number: int) -> WorkerThread:
        """Make one more thread, to be launched."""
        name = f"{self._thread_name_prefix}_{number}"
        return crew.make(name, self._initializer, self._initargs)

    def _initializer_failed(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._initializer_error.append(error)
        self._broken = BROKEN

    def _raise_refused(self) -> None:
        """Raise the reason why the pool takes no tasks."""
        if self._broken:
            cause = self._initializer_error[0] if self._initializer_error else None
            raise BrokenThreadPool(self._broken) from cause
        if self._shutdown or self._was_closed:
            raise ShutdownError("cannot schedule new futures after shutdown")
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    # ---- the executor -------------------------------------------------------------------

    def _submits_directly(self) -> bool:
        """Whether `submit` is ours, and waits for nothing, so that many tasks may go round it."""
        return (
            type(self).submit is _core.PoolBase.submit
            and "submit" not in self.__dict__
            and self._max_pending is None
        )

    def _submit_each(self, fn: Callable[..., T], rows: Iterable[Any]) -> list[Task[T]]:
        """Submit one call for each row; what was submitted is cancelled if that fails."""
        tasks: list[Task[T]] = []
        try:
            for row in rows:
                tasks.append(self.submit(fn, *row))
                del row
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        return tasks

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return an iterator over `fn(*items)` for the zipped iterables, in order.

        timeout: seconds from this call; `next` raises TimeoutError when it has passed.
        chunksize: accepted as the stdlib's is; it has no effect on threads.
        buffersize: at most so many tasks whose results were not taken; None: all are submitted
            at once.  The iterables are only iterated in the caller's thread.

        Closing the iterator, once it was asked for a result, or an error from it, cancels what has
        not started.
        Source: `Executor.map` of CPython 3.14.

        >>> with ThreadPoolExecutor(2) as pool:
        ...     list(pool.map(pow, [2, 3], [3, 2]))
        [8, 9]
        """
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        end = _deadline(timeout)
        rows: Iterator[tuple[Any, ...]]
        if buffersize is None and self._submits_directly():
            if len(iterables) == 1:
                tasks = self._submit_rows(fn, iter(iterables[0]), False, True)
            else:
                tasks = self._submit_rows(fn, zip(*iterables, strict=False), True, True)
            tasks.reverse()
            return results_reversed(tasks, end)
        rows = map(_row, *iterables) if iterables else iter(())  # zip would keep the last row
        if buffersize is None:
            tasks = self._submit_each(fn, rows)
            tasks.reverse()
            return results_reversed(tasks, end)
        buffered = deque(self._submit_each(fn, itertools.islice(rows, buffersize)))
        if len(buffered) < buffersize:
            rows = iter(())
        return buffered_results(buffered, end, weakref.ref(self), fn, rows)

    def submit_many(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[Task[T]]:
        """Submit `fn(*items)` for the zipped iterables at once; return the tasks in order.

        All are published together, with one wake, or, if an iterable raises, none.  With
        `max_pending` they are submitted one by one; what has not started is cancelled if one fails.

        >>> with ThreadPoolExecutor(2) as pool:
        ...     [task.result() for task in pool.submit_many(abs, [-1, 2, -3])]
        [1, 2, 3]
        """
        if not iterables:
            raise TypeError("submit_many() needs at least one iterable")
        if not self._submits_directly():
            return self._submit_each(fn, zip(*iterables, strict=False))
        if len(iterables) == 1:
            return self._submit_rows(fn, iter(iterables[0]), False, False)
        return self._submit_rows(fn, zip(*iterables, strict=False), True, False)

    def shutdown(  # type: ignore[override]  # the stdlib's returns None
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> bool:
        """Take no more tasks; those accepted are run, or cancelled with `cancel_futures`.

        wait: return only when every task has ended and the threads have left.  A task that
            shuts its own pool down does not wait, as it would wait for itself.
        timeout: seconds to wait at most; None: no limit.  When it has passed, the workers that
            still run, and where they are, are logged as warnings of the logger "affinitypool".

        Return whether everything has ended.  May be called again, from any thread, also from signal
        handlers.
        """
        return self._shut_down(f"shutdown(timeout={timeout})", wait, cancel_futures, timeout)

    def _shut_down(
        self, call: str, wait: bool, cancel_futures: bool, timeout: float | None
    ) -> bool:
        end = _deadline(timeout)
        core = self._core
        self._shutdown = True  # which closes the core
        if cancel_futures:
            core.cancel_pending(False)
        return join_threads(self, core, end, call) if wait else has_ended(core)

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more tasks, run all that were accepted, wait for the threads to leave.

        timeout: as in `shutdown`.  Return whether everything has ended.

        >>> pool = ThreadPoolExecutor(2)
        >>> task = pool.submit(pow, 2, 3)
        >>> pool.drain(timeout=60), task.done()
        (True, True)
        """
        return self._shut_down(f"drain(timeout={timeout})", True, False, timeout)

    def shutdown_now(self, timeout: float | None = None) -> list[Task[Any]]:
        """Take no more tasks, cancel what has not started, wait for what runs.

        timeout: as in `shutdown`.  Return the tasks that were cancelled, in no particular order:
        each is returned once.  What workers come to cancel only after the time has passed is
        returned by the next call, and so is everything after a call that was interrupted.  Calls
        at the same time share what they cancel.

        >>> pool = ThreadPoolExecutor(1)
        >>> pool.shutdown_now()
        []
        """
        end = _deadline(timeout)
        core = self._core
        self._shutdown = True  # which closes the core
        core.cancel_pending(True)
        join_threads(self, core, end, f"shutdown_now(timeout={timeout})")
        cancelled: list[Task[Any]] = []
        try:
            core.take_cancelled(cancelled)
        except BaseException:
            core.give_cancelled(cancelled)
            raise
        return cancelled

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until every task has ended; the pool stays open.

        timeout: seconds, None for no limit.  Return whether everything that was submitted before
        the call has ended.  If others go on submitting, it returns at a moment when nothing is
        left.  RuntimeError in a task of this pool, which would wait for itself.

        >>> with ThreadPoolExecutor(2) as pool:
        ...     tasks = pool.submit_many(abs, range(-9, 9))
        ...     pool.wait_idle(timeout=60), all(task.done() for task in tasks)
        (True, True)
        """
        return self._core.wait_quiet(timeout)

    def is_worker(self) -> bool:
        """Return whether the calling thread is one of this pool's workers."""
        return self._core.is_home()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None and self._cancel_on_error:
            self.shutdown(wait=True, cancel_futures=True)
        else:
            self.shutdown(wait=True)

    def stats(self) -> PoolStats:
        """Return a snapshot of the pool's counters."""
        return read_stats(self._core)

    @property
    def worker_count(self) -> int:
        """Worker threads that are running."""
        return self.stats().workers


ThreadPoolExecutor.__module__ = "affinitypool"


def _deadline(timeout: float | None) -> float | None:
    """Return the time of `time.monotonic` at which a wait has to end."""
    seconds = _core.seconds(timeout)
    return None if seconds is None else time.monotonic() + seconds
