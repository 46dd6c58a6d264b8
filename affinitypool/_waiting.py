"""`wait` and `as_completed`: the stdlib's meaning, with the waiting in C."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future, _base
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from affinitypool._binding import core
from affinitypool._task import Task

T = TypeVar("T")
F = TypeVar("F", bound=Future[Any])

if TYPE_CHECKING:

    class DoneAndNotDone(NamedTuple, Generic[F]):
        """What `wait` returns; at run time the stdlib's class of the same shape."""

        done: set[F]
        not_done: set[F]


_stdlib_wait = _base.wait
_stdlib_as_completed = _base.as_completed


def _split(fs: Iterable[Future[T]]) -> tuple[set[Task[T]], set[Future[T]]]:
    """Part the futures into tasks of ours and all others."""
    tasks: set[Task[T]] = set()
    others: set[Future[T]] = set()
    for future in fs:
        if isinstance(future, Task):
            tasks.add(future)
        else:
            others.add(future)
    return tasks, others


def _bounded(timeout: float | None) -> float | None:
    """Return a timeout that the stdlib's locks take."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)


def _failed(task: Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is not None


def wait(
    fs: Iterable[F], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone[F]:
    """Wait for futures; return the named tuple of sets `(done, not_done)`.

    fs: tasks of any pool and futures of any kind; duplicates count once.
    timeout: seconds, None for no limit.  When it has passed, what is done is returned.
    return_when: ALL_COMPLETED, FIRST_COMPLETED, or FIRST_EXCEPTION (all done, or one failed).

    In a worker thread it runs tasks of that worker's own pool that have not started itself.
    Source: `concurrent.futures.wait`.

    >>> from affinitypool import ThreadPoolExecutor, wait
    >>> with ThreadPoolExecutor(2) as pool:
    ...     done, not_done = wait([pool.submit(abs, -1), pool.submit(abs, -2)])
    >>> sorted(task.result() for task in done), not_done
    ([1, 2], set())
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(f"Invalid return condition: {return_when!r}")
    timeout = core.seconds(timeout)
    tasks, others = _split(fs)
    if others:
        if timeout is None or timeout > 0:
            _run_inline(tasks, return_when)
        return _stdlib_wait({*tasks, *others}, _bounded(timeout), return_when)  # type: ignore[return-value]
    if return_when == ALL_COMPLETED:
        core.wait_all(list(tasks), timeout)
    else:
        _wait_first(tasks, timeout, failed_only=return_when == FIRST_EXCEPTION)
    done = {task for task in tasks if task.done()}
    return _base.DoneAndNotDoneFutures(done, tasks - done)  # type: ignore[arg-type,return-value]


def _run_inline(tasks: Iterable[Task[Any]], return_when: str) -> None:
    for task in tasks:
        ran = task._run_inline()
        if ran and (
            return_when == FIRST_COMPLETED or (return_when == FIRST_EXCEPTION and _failed(task))
        ):
            return


def _wait_first(tasks: set[Task[Any]], timeout: float | None, failed_only: bool) -> None:
    """Wait until one task is done (or failed, with `failed_only`) or all are."""

    def enough(task: Task[Any]) -> bool:
        return not failed_only or _failed(task)

    end = None if timeout is None else time.monotonic() + timeout
    pending = {task for task in tasks if not task.done()}
    if not pending or any(enough(task) for task in tasks - pending):
        return
    collector = core.Completions()
    watched = []
    try:
        for task in list(pending):
            if collector.watch(task):
                watched.append(task)
            else:
                pending.discard(task)
                if enough(task):
                    return
        if timeout is None or timeout > 0:
            for task in watched:
                if task._run_inline() and enough(task):
                    return
        while pending:
            done = collector.get(None if end is None else end - time.monotonic())
            if not done or any(enough(task) for task in done):
                return
            pending.difference_update(done)
    finally:
        for task in watched:
            collector.unwatch(task)


def as_completed(fs: Iterable[F], timeout: float | None = None) -> Iterator[F]:
    """Iterate over futures as they end; each is yielded once and then let go of.

    fs: tasks of any pool and futures of any kind; duplicates count once.
    timeout: seconds from the first `next`, None for no limit; TimeoutError when it has passed.

    In a worker thread it runs tasks of that worker's own pool that have not started itself.
    Source: `concurrent.futures.as_completed`.

    >>> from affinitypool import ThreadPoolExecutor, as_completed
    >>> with ThreadPoolExecutor(2) as pool:
    ...     tasks = [pool.submit(pow, n, 2) for n in range(4)]
    ...     sorted(task.result() for task in as_completed(tasks))
    [0, 1, 4, 9]
    """
    timeout = core.seconds(timeout)
    end = None if timeout is None else time.monotonic() + timeout
    tasks, others = _split(fs)
    if others:
        if timeout is None or timeout > 0:
            _run_inline(tasks, ALL_COMPLETED)
        merged = [{*tasks, *others}]  # so that no name here keeps a future that was yielded
        del tasks, others, fs
        yield from _stdlib_as_completed(merged.pop(), _bounded(timeout))  # type: ignore[misc]
        return
    del fs, others
    total = len(tasks)
    ready: list[Any] = []
    collector = core.Completions()
    pending = tasks
    for task in list(pending):
        if not collector.watch(task):
            ready.append(task)
            pending.discard(task)
    task = None  # type: ignore[assignment]
    candidates = list(pending) if core.in_worker() and (timeout is None or timeout > 0) else []
    try:
        ready.reverse()
        while True:
            while ready:
                yield ready.pop()
            if not pending:
                return
            while candidates and not ready:
                if candidates.pop()._run_inline():
                    break
            ready = collector.get(None if end is None else end - time.monotonic())
            if not ready:
                raise TimeoutError(f"{len(pending)} (of {total}) futures unfinished")
            pending.difference_update(ready)
            ready.reverse()
    finally:
        for task in pending:
            collector.unwatch(task)
