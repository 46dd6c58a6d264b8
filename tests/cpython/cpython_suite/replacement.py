"""Puts an executor class in place of the stdlib's.

The class has to be in place before the tests are imported, because they bind
`concurrent.futures.ThreadPoolExecutor` while their classes are made. `concurrent.futures.thread` is
left alone: InterpreterPoolExecutor derives from the class there.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import sys
from dataclasses import dataclass
from typing import Any

DEFAULT_EXECUTOR = "affinitypool:ThreadPoolExecutor"


class NotReplaced(Exception):
    """The executor is not in place; the text says where."""


@dataclass(frozen=True)
class Replacement:
    """An executor class and how it gets in place.

    `executor` is `module:Class`. With `patch_all` the module's own `patch_stdlib()` is called,
    which may replace more than the class. `path` is what `sys.path` needs so that the module is
    found.
    """

    executor: str = DEFAULT_EXECUTOR
    patch_all: bool = False
    path: tuple[str, ...] = ()

    def install(self) -> None:
        """Put the class in place of `concurrent.futures.ThreadPoolExecutor`, in this process."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        module, cls = self._load()
        if self.patch_all:
            module.patch_stdlib()
        else:
            concurrent.futures.ThreadPoolExecutor = cls  # type: ignore[misc]
        self.verify()

    def verify(self, mixin: Any = None) -> None:
        """Raise NotReplaced unless the class is what `from concurrent.futures import` gives.

        `mixin` is the suite's ThreadPoolMixin, whose `executor_type` has to be the class too.
        """
        cls = self._load()[1]
        found = concurrent.futures.ThreadPoolExecutor
        if found is not cls:
            raise NotReplaced(f"concurrent.futures.ThreadPoolExecutor is {found!r}, not {cls!r}")
        if mixin is not None and mixin.executor_type is not cls:
            raise NotReplaced(
                f"ThreadPoolMixin.executor_type is {mixin.executor_type!r}, not {cls!r}"
            )

    def _load(self) -> tuple[Any, Any]:
        """The module and the class that `executor` names.

        The stdlib's own class is taken from where it is defined, since its public name is what gets
        replaced.
        """
        module_name, _, class_name = self.executor.partition(":")
        module = importlib.import_module(module_name)
        if module is concurrent.futures:
            return module, getattr(importlib.import_module("concurrent.futures.thread"), class_name)
        return module, getattr(module, class_name)
