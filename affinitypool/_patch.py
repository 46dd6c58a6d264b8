"""Putting this library in place of the stdlib's names, for code that hard-codes them."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import _base
from types import TracebackType
from typing import Any

from affinitypool._executor import ThreadPoolExecutor
from affinitypool._waiting import as_completed, wait

# concurrent.futures.thread.ThreadPoolExecutor stays: the stdlib derives classes from it.
_REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (concurrent.futures, "ThreadPoolExecutor", ThreadPoolExecutor),
    (concurrent.futures, "wait", wait),
    (concurrent.futures, "as_completed", as_completed),
    (_base, "wait", wait),
    (_base, "as_completed", as_completed),
)
_originals: dict[tuple[str, str], Any] = {}


class _Patch:
    """What `patch_stdlib` returns: a context manager that takes the patch back."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unpatch_stdlib()


def patch_stdlib() -> _Patch:
    """Put our pool, `wait` and `as_completed` in place of those of `concurrent.futures`.

    For code that names the stdlib's class itself; what has been imported by name before keeps
    what it has.  `concurrent.futures.thread.ThreadPoolExecutor` stays the stdlib's, as the stdlib
    derives classes from it: code that imports from there is not reached.  Calling
    it again changes nothing.  Usable as a context manager.

    >>> import concurrent.futures, affinitypool
    >>> with affinitypool.patch_stdlib():
    ...     concurrent.futures.ThreadPoolExecutor is affinitypool.ThreadPoolExecutor
    True
    """
    for module, name, ours in _REPLACED:
        key = (module.__name__, name)
        if key not in _originals:
            _originals[key] = getattr(module, name)
            setattr(module, name, ours)
    return _Patch()


def unpatch_stdlib() -> None:
    """Take `patch_stdlib` back.  Without a patch it does nothing."""
    for module, name, _ in _REPLACED:
        original = _originals.pop((module.__name__, name), None)
        if original is not None:
            setattr(module, name, original)
