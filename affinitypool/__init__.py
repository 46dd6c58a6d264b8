"""A drop-in ThreadPoolExecutor whose hot path is C.

    from affinitypool import ThreadPoolExecutor        # was: concurrent.futures

The package gives what people import from `concurrent.futures`, with the pool, `wait` and
`as_completed` its own.
"""

import concurrent.futures
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    TimeoutError,
)
from concurrent.futures.thread import BrokenThreadPool
from typing import TYPE_CHECKING, Any

from affinitypool._errors import (
    AffinityPoolError,
    PendingLimitError,
    ShutdownError,
    SubmitError,
)
from affinitypool._executor import ThreadPoolExecutor
from affinitypool._patch import patch_stdlib, unpatch_stdlib
from affinitypool._sizing import MAX_WORKERS
from affinitypool._stats import PoolStats
from affinitypool._task import Task, on_unobserved_error
from affinitypool._waiting import as_completed, wait

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor as ProcessPoolExecutor

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # loaded when asked for, as in the stdlib, so that one changed import is enough
    if name in ("ProcessPoolExecutor", "InterpreterPoolExecutor"):
        return getattr(concurrent.futures, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "MAX_WORKERS",
    "AffinityPoolError",
    "BrokenExecutor",
    "BrokenThreadPool",
    "CancelledError",
    "Executor",
    "Future",
    "InvalidStateError",
    "PendingLimitError",
    "PoolStats",
    "ShutdownError",
    "SubmitError",
    "Task",
    "ThreadPoolExecutor",
    "TimeoutError",
    "as_completed",
    "on_unobserved_error",
    "patch_stdlib",
    "unpatch_stdlib",
    "wait",
]
