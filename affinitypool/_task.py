"""The handle of a submitted call."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from affinitypool._binding import core
from affinitypool._errors import SubmitError

T = TypeVar("T")

_logger = logging.getLogger("concurrent.futures")


class Task(core.TaskBase[T], Future[T]):
    """A submitted call: a `concurrent.futures.Future` whose state lives in C.

    Made by `ThreadPoolExecutor.submit`.  All that is written for futures works: `wait`,
    `as_completed`, `asyncio.wrap_future`.  A worker that waits for a task of its own pool runs
    that task itself if it has not started, so that a pool cannot wait for itself for ever.

    >>> from affinitypool import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as pool:
    ...     task = pool.submit(pow, 2, 10)
    >>> task.result()
    1024
    """

    # the C side tracks a task for the collector once it is given attributes
    __dict__ = core.TaskBase.__dict__["__dict__"]


Task.__module__ = "affinitypool"


def _log_callback(task: Task[Any], error: BaseException) -> None:
    _logger.error("exception calling callback for %r", task, exc_info=error)


def _log_state(task: Task[Any]) -> None:
    _logger.critical("Future %s in unexpected state: %s", id(task), task._state)


def _breathe() -> None:
    pass


core.configure(
    Task, CancelledError, InvalidStateError, SubmitError, _log_callback, _log_state, _breathe
)
