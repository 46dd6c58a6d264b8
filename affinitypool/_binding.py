"""Loads the compiled module and puts the C types into it.

Everything else in the package imports `core`, `ffi` and `lib` from here, so that the types are
bound before anybody asks for one.
"""

from __future__ import annotations

import threading

from affinitypool import _core as core

ffi = core.ffi
lib = core.lib


def _bind() -> None:
    if hasattr(core, "TaskBase"):
        return
    if threading.main_thread() is None:  # pragma: no cover
        raise ImportError("affinitypool needs an interpreter with threads")
    if lib.ap_python_bind(ffi.cast("void *", id(core))) != 0:
        raise ImportError("affinitypool._core could not be initialised; see the error above")


_bind()
