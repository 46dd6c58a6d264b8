"""Loads the compiled module and puts the C types into it.

Everything else in the package imports `core`, `ffi` and `lib` from here, so that the types are
bound before anybody asks for one.
"""

from __future__ import annotations

import os
import sys


def _is_main_interpreter() -> bool:
    if sys.version_info >= (3, 13):
        import _interpreters

        return bool(_interpreters.get_current()[0] == _interpreters.get_main()[0])
    import _xxsubinterpreters  # type: ignore[import-not-found,unused-ignore]

    return bool(_xxsubinterpreters.get_current() == _xxsubinterpreters.get_main())


if not _is_main_interpreter():
    raise ImportError(
        "affinitypool cannot be imported in a sub-interpreter: its worker threads attach to "
        "the main interpreter"
    )
try:
    import affinitypool._core as core
except ModuleNotFoundError as missing:
    if missing.name != "affinitypool._core":  # something that it imports
        raise
    raise ImportError(
        "affinitypool._core is not built for this Python in "
        f"{os.path.dirname(__file__)}. If that is a "
        "checkout of the sources, which hide an installed copy: run `make build` there, or start "
        "Python elsewhere"
    ) from missing

__all__ = ["core", "ffi", "lib"]

ffi = core.ffi
lib = core.lib


def _bind() -> None:
    if hasattr(core, "TaskBase"):
        return
    if lib.ap_python_bind(ffi.cast("void *", id(core))) != 0:
        raise ImportError("affinitypool._core could not be initialised; see the error above")


_bind()
