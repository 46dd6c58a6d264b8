"""The library's exceptions.

Each inherits `AffinityPoolError` and the builtin or stdlib error that a user would catch today.
"""

from __future__ import annotations

import queue


class AffinityPoolError(Exception):
    """Base of what this library raises of its own."""


class ShutdownError(AffinityPoolError, RuntimeError):
    """A task was submitted to a pool that takes no more: it was shut down."""


class SubmitError(AffinityPoolError, MemoryError):
    """Memory ran out while a task was being queued; the task was not queued."""


class PendingLimitError(AffinityPoolError, queue.Full):
    """As many tasks as `max_pending` allows have not started; the task was not queued."""


for _error in (AffinityPoolError, ShutdownError, SubmitError, PendingLimitError):
    _error.__module__ = "affinitypool"  # where users import them from
del _error
