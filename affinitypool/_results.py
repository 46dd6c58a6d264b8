"""Iterators over the results of tasks, for `map`; at their end they cancel what is left."""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from affinitypool._task import Task

T = TypeVar("T")


def _result_or_cancel(task: Task[T], timeout: float | None = None) -> T:
    try:
        try:
            result: T = task.result(timeout)
            return result
        finally:
            task.cancel()
    finally:
        del task  # break the cycle with the exception's traceback


def results_reversed(tasks: list[Task[T]], end: float | None) -> Iterator[T]:
    """Yield the results of tasks in reverse order, letting go of each."""
    try:
        while tasks:
            # in the list while it is waited for, so that it is cancelled if that is interrupted
            tasks[-1].result(None if end is None else end - time.monotonic())
            yield tasks.pop().result()
    finally:
        while tasks:  # no name of this frame, which an error's traceback holds, keeps a task
            tasks.pop().cancel()


def buffered_results(
    tasks: deque[Task[T]],
    end: float | None,
    pool: weakref.ref[Any],
    fn: Callable[..., T],
    rows: Iterator[Any],
) -> Iterator[T]:
    """Yield results in order; submit one more row for each, while the pool is there."""
    try:
        while tasks:
            owner = pool()
            if owner is not None:
                more = owner._submit_each(fn, itertools.islice(rows, 1))
                tasks.extend(more)
                if not more:
                    rows = iter(())  # the inputs are not asked again
                del owner, more
            timeout = None if end is None else end - time.monotonic()
            yield _result_or_cancel(tasks.popleft(), timeout)
    finally:
        while tasks:
            tasks.popleft().cancel()
