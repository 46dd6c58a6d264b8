"""Which tests of the suite concern the thread pool, and how many there must be."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import unittest
from collections.abc import Iterator
from typing import Any

from cpython_suite.suite import NAME, Suite

# The number of tests on the versions that have been counted, as the stdlib's executor passes them.
# Debian's single file is listed as the version that it comes from.
COUNTED = {
    (3, 11, 2): 64,
    (3, 13, 0): 65,
    (3, 13, 5): 67,
    (3, 14, 10): 76,
    (3, 15, 2): 77,
}

FORK_TESTS = {"test_hang_global_shutdown_lock", "test_process_fork_from_a_threadpool"}
GIL_TESTS = {"test_idle_thread_reuse"}


def mixin(suite: Suite) -> Any:
    """The suite's ThreadPoolMixin."""
    return importlib.import_module(f"{NAME}.util" if suite.modules else NAME).ThreadPoolMixin


def discover(suite: Suite) -> tuple[list[str], dict[str, str]]:
    """Return the names of the tests, relative to `NAME`, and the modules that cannot be imported.

    Taken are the classes that use ThreadPoolMixin, and FutureTests, which tests what the tasks of a
    thread pool derive from. Some Pythons are packaged without helpers that tests of process pools
    need; that such a module holds nothing of ours is seen from the number of tests.
    """
    base = mixin(suite)
    names: list[str] = []
    broken: dict[str, str] = {}
    for module_name in [f".{name}" for name in suite.modules] or [""]:
        try:
            module = importlib.import_module(NAME + module_name)
        except ImportError as error:
            broken[module_name[1:]] = str(error)
            continue
        for test in _flatten(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if isinstance(test, base) or type(test).__name__ == "FutureTests":
                names.append(test.id().removeprefix(f"{NAME}."))
    return sorted(names), broken


def wrong_number(suite: Suite, found: int, expected: int | None = None) -> str | None:
    """Say what is wrong with the number of tests found, or None if it is right.

    `expected` overrides what is known. A version that has not been counted must have at least as
    many as the smallest one counted of its series.
    """
    version = (3, 11, 2) if suite.graft is not None else sys.version_info[:3]
    if expected is None:
        expected = COUNTED.get(version)
    if expected is not None:
        return None if found == expected else f"{found} tests found, {expected} expected"
    series = [count for key, count in COUNTED.items() if key[:2] == version[:2]]
    if not series:
        return f"{found} tests found; how many Python {version[0]}.{version[1]} has is not known"
    return None if found >= min(series) else f"{found} tests found, at least {min(series)} expected"


def may_skip(name: str) -> bool:
    """Whether the suite itself skips this test on this interpreter."""
    method = name.rpartition(".")[2]
    if method in GIL_TESTS:
        return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return method in FORK_TESTS and not hasattr(os, "fork")


def _flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from _flatten(entry)
        else:
            yield entry
