"""The pool: a `concurrent.futures.ThreadPoolExecutor` whose queues and tasks live in C."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import operator
import queue
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
from affinitypool._sizing import MAX_WORKERS, default_max_workers, usable_cpus
from affinitypool._stats import PoolStats, read_stats
from affinitypool._task import Task
from affinitypool._threads import WorkerThread, check_stack_size, pools

T = TypeVar("T")

_BROKEN = "A thread initializer failed, the thread pool is not usable anymore"


def _integer(name: str, value: object) -> int:
    """Return the value as an int; TypeError that names the argument."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} must be an integer, not {kind}") from None


class ThreadPoolExecutor(_core.PoolBase, concurrent.futures.ThreadPoolExecutor):
    """A pool of worker threads; `concurrent.futures.ThreadPoolExecutor` with a hot path in C.

    max_workers: threads at most, 1 to 512.  None: the environment variable
        AFFINITYPOOL_MAX_WORKERS, else min(32, usable CPUs + 4).  Threads start when a submit
        finds no idle one.
    thread_name_prefix: threads are named `prefix_0`, `prefix_1` and so on.
    initializer, initargs: called in each thread before its first task.  If it raises, the pool
        is broken: pending tasks fail with BrokenThreadPool and later submits raise it.
    shards: queues that submitting threads are spread over; rounded up to a power of two and not
        more than workers.  None: chosen from the number of workers and CPUs.
    stack_size: bytes of stack per worker thread, at least 32 KiB or what the platform needs; None:
        the platform's default.
        Tasks that wait for tasks of their own pool nest on it; RecursionError when it is full.
        (`threading.stack_size` is process-wide: it is set and restored around each start.)
    thread_per_core: as many threads as usable CPUs; not together with max_workers.
    propagate_context: run each task in a copy of its submitter's `contextvars` context.  None:
        yes, unless there is an initializer, whose context variables tasks then see.
    cancel_on_error: leaving a `with` block by an exception cancels what has not started.

    TypeError or ValueError says which argument is wrong.

    >>> from affinitypool import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(max_workers=2) as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    _counter = itertools.count().__next__

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
        cancel_on_error: bool = False,
    ) -> None:
        if id(self) in pools:
            raise RuntimeError("the pool is initialised already")
        if thread_per_core:
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
        if propagate_context is None:
            propagate_context = initializer is None
        elif not isinstance(propagate_context, bool):
            kind = type(propagate_context).__name__
            raise TypeError(f"propagate_context must be True, False or None, not {kind}")

        self._core_options = (max_workers, shards or 0, usable_cpus(), bool(propagate_context))
        core = _core.Core(*self._core_options)
        self._max_workers = max_workers
        self._initializer: Any = initializer
        self._initargs = tuple(initargs)
        self._stack_size = stack_size
        self._thread_name_prefix = thread_name_prefix or f"ThreadPoolExecutor-{self._counter()}"
        self._threads: set[WorkerThread] = set()
        self._broken: Any = False
        self._shutdown = False
        self._shutdown_lock: Any = threading.RLock()
        self._work_queue: Any = _WorkQueue(core)
        self._cancel_on_error = bool(cancel_on_error)
        self._initializer_error: list[BaseException] = []
        self._bind(core)
        pools[id(self)] = self

    def _renew(self) -> None:
        """In a forked child: leave the queues to the parent and start anew."""
        _core.orphan(self._core)
        core = _core.Core(*self._core_options)
        if self._shutdown or self._broken:
            core.close()
        self._rebind(core)
        self._work_queue = _WorkQueue(core)
        self._threads = set()
        self._shutdown_lock = threading.RLock()

    # ---- called by the C side -----------------------------------------------------------

    def _start_worker(self, number: int) -> None:
        """Start one more thread.  Raises what the OS's refusal raises."""
        broken = weakref.WeakMethod(self._initializer_failed)
        core = self._core

        def failed(error: BaseException) -> None:
            mark = broken()
            if mark is not None:
                mark(error)
            del mark
            _break(core, error)

        thread = WorkerThread(
            core,
            f"{self._thread_name_prefix}_{number}",
            self._initializer,
            self._initargs,
            failed,
        )
        try:
            self._threads.add(thread)
            thread.launch(self._stack_size)
        except BaseException:
            if thread.refused or not thread.launched:
                self._threads.discard(thread)
            else:
                core.started_add(1)  # it runs all the same; the caller takes one off
            raise

    def _initializer_failed(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._initializer_error.append(error)
        self._broken = _BROKEN

    def _raise_refused(self) -> None:
        """Raise the reason why the pool takes no tasks."""
        if self._broken:
            cause = self._initializer_error[0] if self._initializer_error else None
            raise BrokenThreadPool(self._broken) from cause
        if self._shutdown:
            raise ShutdownError("cannot schedule new futures after shutdown")
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    # ---- the executor -------------------------------------------------------------------

    def _submits_directly(self) -> bool:
        """Whether `submit` is ours, so that many tasks may go round it."""
        return type(self).submit is _core.PoolBase.submit and "submit" not in self.__dict__

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

        Closing the iterator, or an error from it, cancels what has not started.
        Source: `Executor.map` of CPython 3.14.

        >>> with ThreadPoolExecutor(2) as pool:
        ...     list(pool.map(pow, [2, 3], [3, 2]))
        [8, 9]
        """
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        end = None if timeout is None else timeout + time.monotonic()
        rows: Iterator[Any]
        if buffersize is None and self._submits_directly():
            if len(iterables) == 1:
                tasks = self._submit_rows(fn, iter(iterables[0]), False, True)
            else:
                tasks = self._submit_rows(fn, zip(*iterables, strict=False), True, True)
            tasks.reverse()
            return _results(tasks, end)
        rows = zip(*iterables, strict=False)
        if buffersize is None:
            tasks = [self.submit(fn, *row) for row in rows]
            tasks.reverse()
            return _results(tasks, end)
        buffered = deque(self.submit(fn, *row) for row in itertools.islice(rows, buffersize))
        return _buffered_results(buffered, end, weakref.ref(self), fn, rows)

    def submit_many(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[Task[T]]:
        """Submit `fn(*items)` for the zipped iterables at once; return the tasks in order.

        All are published together, with one wake, or, if an iterable raises, none.

        >>> with ThreadPoolExecutor(2) as pool:
        ...     [task.result() for task in pool.submit_many(abs, [-1, 2, -3])]
        [1, 2, 3]
        """
        if not iterables:
            raise TypeError("submit_many() needs at least one iterable")
        if not self._submits_directly():
            return [self.submit(fn, *row) for row in zip(*iterables, strict=False)]
        if len(iterables) == 1:
            return self._submit_rows(fn, iter(iterables[0]), False, False)
        return self._submit_rows(fn, zip(*iterables, strict=False), True, False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; those accepted are run, or cancelled with `cancel_futures`.

        wait: return only when every task has ended and the threads have left.  A task that
            shuts its own pool down does not wait, as it would wait for itself.

        May be called again, from any thread, also from signal handlers.
        """
        core = self._core
        self._shutdown = True
        core.close()
        if cancel_futures:
            core.cancel_pending()
        if wait and _core.worker_pool() != core.pool_address:
            self._join(core)

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

    def _join(self, core: Any) -> None:
        joined: set[WorkerThread] = set()
        while True:
            threads = set(self._threads)
            # a submit that was accepted before may be about to start a thread, which is waited
            # for; but not if it is a submit of this thread, which this call then interrupts
            interrupts = _core.is_starting()
            for thread in threads - joined:
                if not interrupts or thread.has_begun():
                    thread.join()
            joined = threads
            settled = core.started <= len(joined) and (core.started or not core.pending)
            if self._threads == joined and (settled or interrupts):
                return
            time.sleep(0)

    def stats(self) -> PoolStats:
        """Return a snapshot of the pool's counters."""
        return read_stats(self._core)

    @property
    def worker_count(self) -> int:
        """Worker threads that are running."""
        return self.stats().workers


ThreadPoolExecutor.__module__ = "affinitypool"


def _break(core: Any, cause: BaseException) -> None:
    """Fail everything that is pending; the core takes no more."""
    core.close()
    while True:
        task = core.take()
        if task is not None:
            error = BrokenThreadPool(_BROKEN)
            error.__cause__ = cause
            # InvalidStateError: it was cancelled, or its submitter ran it itself
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                task.set_exception(error)
        elif core.pending:
            time.sleep(0)  # a submit is between reserving its place and filling it
        else:
            return


def _result_or_cancel(task: Task[T], timeout: float | None = None) -> T:
    try:
        try:
            result: T = task.result(timeout)
            return result
        finally:
            task.cancel()
    finally:
        del task  # break the cycle with the exception's traceback


def _results(tasks: list[Task[T]], end: float | None) -> Iterator[T]:
    """Yield the results of tasks in reverse order, letting go of each."""
    try:
        while tasks:
            # in the list while it is waited for, so that it is cancelled if that is interrupted
            tasks[-1].result(None if end is None else end - time.monotonic())
            yield tasks.pop().result()
    finally:
        for task in tasks:
            task.cancel()


def _buffered_results(
    tasks: deque[Task[T]],
    end: float | None,
    pool: weakref.ref[ThreadPoolExecutor],
    fn: Callable[..., T],
    rows: Iterator[Any],
) -> Iterator[T]:
    """Yield results in order; submit one more row for each, while the pool is there."""
    try:
        while tasks:
            owner = pool()
            if owner is not None:
                for row in itertools.islice(rows, 1):
                    tasks.append(owner.submit(fn, *row))
                del owner
            timeout = None if end is None else end - time.monotonic()
            yield _result_or_cancel(tasks.popleft(), timeout)
    finally:
        for task in tasks:
            task.cancel()


class _WorkItem:
    """What `_work_queue.get` hands out: a task that then will not run by itself."""

    __slots__ = ("args", "fn", "future", "kwargs")

    def __init__(self, task: Task[Any], call: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> None:
        self.future = task
        self.fn, self.args, self.kwargs = call

    def run(self) -> None:
        """Run the call in this thread and end its task with the outcome."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.fn(*self.args, **self.kwargs)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class _WorkQueue:
    """The queue of a pool as code that looks into the stdlib's pool expects to find it."""

    __slots__ = ("_core",)

    def __init__(self, core: Any) -> None:
        self._core = core

    def qsize(self) -> int:
        """Return how many tasks are pending."""
        return int(self._core.pending)

    def empty(self) -> bool:
        """Return whether nothing is pending."""
        return self.qsize() == 0

    def get_nowait(self) -> _WorkItem:
        """Take a pending task out; `queue.Empty` if there is none."""
        while (task := self._core.take()) is not None:
            call = task._take_call()
            if call is not None:
                return _WorkItem(task, call)
        raise queue.Empty

    def get(self, block: bool = True, timeout: float | None = None) -> _WorkItem:
        """Take a pending task out; wait for one with `block`, at most `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self.get_nowait()
            except queue.Empty:
                if not block or (end is not None and time.monotonic() >= end):
                    raise
            time.sleep(0.001)
