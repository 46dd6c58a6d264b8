"""`wait` and `as_completed`: the stdlib's meaning, with the waiting in C."""

from __future__ import annotations

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


class _Collector:
    """Collects futures as they end.  No lock of a future is held while Python code runs."""

    def __init__(self) -> None:
        self._task = Task  # a suspended as_completed ends with the interpreter, without globals
        self._completions = core.Completions()
        self.get = self._completions.get
        self._post = self._completions.post

    def watch(self, future: Future[Any]) -> bool:
        """Collect the future when it ends; False if it is done."""
        if isinstance(future, Task):
            return self._completions.watch(future)
        if future.done():
            return False
        future.add_done_callback(self._post)
        return True

    def unwatch(self, future: Future[Any]) -> None:
        """Take one `watch` back."""
        if isinstance(future, self._task):
            self._completions.unwatch(future)
            return
        with future._condition:
            if not future.done():  # else somebody iterates over them, or has
                callbacks = future._done_callbacks  # type: ignore[attr-defined]
                callbacks[:] = [each for each in callbacks if each is not self._post]


def _done_of(futures: Iterable[F]) -> list[F]:
    """Return those that are done: in a forked child nobody tells of the parent's, which are
    cancelled there.
    """
    return [future for future in futures if future.done()]


def _run_inline(future: Future[Any]) -> bool:
    """Run a task of this worker's own pool that has not started; whether it was one."""
    return isinstance(future, Task) and future._run_inline()


def _set_of(function: str, fs: Iterable[F]) -> set[F]:
    """Return the futures; TypeError for the likely mistakes: one future, asyncio's futures."""
    if isinstance(fs, Future):
        raise TypeError(f"{function}() takes an iterable of futures, not a {type(fs).__name__}")
    futures = set(fs)
    for future in futures:
        if not isinstance(future, Task) and not hasattr(future, "_condition"):
            kind = f"{type(future).__module__}.{type(future).__qualname__}"
            raise TypeError(
                f"{function}() takes futures of concurrent.futures, not {kind}; "
                f"asyncio's are for asyncio.{function}()"
            )
    return futures


def _failed(future: Future[Any]) -> bool:
    if isinstance(future, Task):
        return future._has_failed()  # which is no look: see on_unobserved_error
    return not future.cancelled() and future.exception() is not None


def wait(
    fs: Iterable[F], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone[F]:
    """Wait for futures; return the named tuple of sets `(done, not_done)`.

    fs: tasks of any pool and futures of `concurrent.futures`, of any kind; duplicates count once.
        TypeError for others: asyncio's are for `asyncio.wait`.
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
    futures = _set_of("wait", fs)
    if return_when == ALL_COMPLETED and all(isinstance(future, Task) for future in futures):
        core.wait_all(list(futures), timeout)
    else:
        _wait(futures, timeout, return_when)
    done = {future for future in futures if future.done()}
    return _base.DoneAndNotDoneFutures(done, futures - done)  # type: ignore[arg-type,return-value]


def _wait(futures: set[F], timeout: float | None, return_when: str) -> None:
    """Wait until one of the futures is done or failed, as `return_when` says, or all are done."""

    def enough(future: Future[Any]) -> bool:
        if return_when == FIRST_EXCEPTION:
            return _failed(future)
        return return_when == FIRST_COMPLETED

    end = None if timeout is None else time.monotonic() + timeout
    pending = {future for future in futures if not future.done()}
    if not pending or any(enough(future) for future in futures - pending):
        return
    collector = _Collector()
    watched = []
    try:
        for future in list(pending):
            if collector.watch(future):
                watched.append(future)
            else:
                pending.discard(future)
                if enough(future):
                    return
        if timeout is None or timeout > 0:
            for future in watched:
                if _run_inline(future) and enough(future):
                    return
        while pending:
            done = collector.get(None if end is None else end - time.monotonic())
            if done is None:
                done = _done_of(pending)
            elif not done:
                return
            if any(enough(future) for future in done):
                return
            pending.difference_update(done)
    finally:
        for future in watched:
            collector.unwatch(future)


def as_completed(fs: Iterable[F], timeout: float | None = None) -> Iterator[F]:
    """Iterate over futures as they end; each is yielded once and then let go of.

    fs: as `wait` takes them.
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
    pending = _set_of("as_completed", fs)
    del fs
    total = len(pending)
    ready: list[Any] = []
    looked = False
    collector = _Collector()
    for future in list(pending):
        if not collector.watch(future):
            ready.append(future)
            pending.discard(future)
    future = None  # type: ignore[assignment]
    candidates = list(pending) if core.in_worker() and (timeout is None or timeout > 0) else []
    try:
        ready.reverse()
        while True:
            while ready:
                yield ready.pop()
            if not pending:
                return
            while candidates and not ready:
                if _run_inline(candidates.pop()):
                    break
            ended = collector.get(None if end is None else end - time.monotonic())
            if ended is None:
                looked = True
                ready = _done_of(pending)
            elif not ended:
                raise TimeoutError(f"{len(pending)} (of {total}) futures unfinished")
            else:
                if looked:  # it may tell of what was found then
                    ended = [future for future in ended if future in pending]
                ready = ended
            pending.difference_update(ready)
            ready.reverse()
    finally:
        for future in pending:
            collector.unwatch(future)
