"""A pool's `_work_queue`, for code that looks into the stdlib's pool."""

from __future__ import annotations

import queue
import time
from typing import Any

from affinitypool._task import Task


class WorkItem:
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
            self = None  # type: ignore[assignment]  # break the cycle with the traceback
        else:
            self.future.set_result(result)


class WorkQueue:
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

    def get_nowait(self) -> WorkItem:
        """Take a pending task out; `queue.Empty` if there is none."""
        taken: list[Task[Any]] = []
        try:
            while self._core.take_into(taken):
                call = taken[-1]._take_call()
                if call is not None:
                    return WorkItem(taken[-1], call)
                taken.clear()
        except BaseException:
            for task in taken:  # an interrupt tears it from our hands
                task.cancel()
            raise
        raise queue.Empty

    def get(self, block: bool = True, timeout: float | None = None) -> WorkItem:
        """Take a pending task out; wait for one with `block`, at most `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self.get_nowait()
            except queue.Empty:
                if not block or (end is not None and time.monotonic() >= end):
                    raise
            time.sleep(0.001)
