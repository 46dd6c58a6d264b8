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
# what was there, and the patch that has replaced it
_originals: dict[tuple[str, str], tuple[Any, _Patch]] = {}


class _Patch:
    """What `patch_stdlib` returns: a context manager that takes back what that call has patched."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _take_back(self)


def _take_back(patch: _Patch | None = None) -> None:
    """Put back what the patch has replaced; None: everything."""
    for module, name, _ in _REPLACED:
        key = (module.__name__, name)
        original, by = _originals.get(key, (None, None))
        if by is not None and (patch is None or patch is by):
            setattr(module, name, original)
            del _originals[key]


def patch_stdlib() -> _Patch:
    """Put our pool, `wait` and `as_completed` in place of those of `concurrent.futures`.

    For code that names the stdlib's class itself; what has been imported by name before keeps
    what it has.  `concurrent.futures.thread.ThreadPoolExecutor` stays the stdlib's, as the stdlib
    derives classes from it: code that imports from there is not reached.  Pools made before are
    no instances of the class that is there now: make those for `loop.set_default_executor` after.
    Calling it again changes nothing.  Usable as a context manager, which takes back what its own
    call has changed.

    >>> import concurrent.futures, affinitypool
    >>> with affinitypool.patch_stdlib():
    ...     concurrent.futures.ThreadPoolExecutor is affinitypool.ThreadPoolExecutor
    True
    """
    patch = _Patch()
    for module, name, ours in _REPLACED:
        there = (getattr(module, name), patch)
        if _originals.setdefault((module.__name__, name), there) is there:
            setattr(module, name, ours)
    return patch


def unpatch_stdlib() -> None:
    """Take `patch_stdlib` back, whoever has called it.  Without a patch it does nothing."""
    _take_back()
