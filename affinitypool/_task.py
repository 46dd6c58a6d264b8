"""The handle of a submitted call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from types import TracebackType
from typing import Any, TypeVar

from affinitypool._binding import core
from affinitypool._errors import PendingLimitError, SubmitError

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _is_watched:
            core.watch_unobserved(cls)


Task.__module__ = "affinitypool"


def _log_callback(
    task: Task[Any],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    # the error itself is not asked: it may be false, or raise
    _logger.error("exception calling callback for %r", task, exc_info=(kind, error, traceback))


def _log_state(task: Task[Any]) -> None:
    _logger.critical("Future %s in unexpected state: %s", id(task), task._state)


def _breathe() -> None:
    pass


_unobserved_hook: Callable[[Task[Any]], object] | None = None
_is_watched = False  # there has been a hook


def _unobserved(task: Task[Any]) -> None:
    hook = _unobserved_hook
    if hook is not None:
        hook(task)


def _task_types(kind: type[Task[Any]]) -> Iterator[type[Task[Any]]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _task_types(subclass)


def on_unobserved_error(
    hook: Callable[[Task[Any]], object] | None,
) -> Callable[[Task[Any]], object] | None:
    """Have `hook(task)` called when a failed task dies and nobody looked at its exception.

    hook: a callable, or None for none, which is the default.  It is called in whatever thread lets
        go of the task last; `task.exception()` tells what went wrong.  What it raises goes to
        `sys.unraisablehook`.

    Returns the hook before.  Looking means `result()`, `exception()`, or what is built on them
    (`map`, `asyncio.wrap_future`); waiting for a task, or a callback that does not look, is none.
    TypeError if the hook cannot be called.  A subclass of Task with a `__del__` of its own is not
    reported.

    >>> from affinitypool import ThreadPoolExecutor, on_unobserved_error
    >>> before = on_unobserved_error(lambda task: print("lost:", repr(task.exception())))
    >>> with ThreadPoolExecutor(1) as pool:
    ...     task = pool.submit(int, "x")
    >>> del task
    lost: ValueError("invalid literal for int() with base 10: 'x'")
    >>> hook = on_unobserved_error(before)
    """
    global _unobserved_hook, _is_watched
    if hook is not None and not callable(hook):
        raise TypeError(f"hook must be a callable or None, not {type(hook).__name__}")
    before, _unobserved_hook = _unobserved_hook, hook
    if hook is not None and not _is_watched:
        _is_watched = True
        for kind in _task_types(Task):
            core.watch_unobserved(kind)
    return before


on_unobserved_error.__module__ = "affinitypool"

core.configure(
    Task,
    CancelledError,
    InvalidStateError,
    SubmitError,
    _log_callback,
    _log_state,
    _breathe,
    PendingLimitError,
    _unobserved,
)
