"""The executors that are compared."""

from __future__ import annotations

import concurrent.futures
import importlib
import os
from collections.abc import Callable
from concurrent.futures import Executor

STDLIB = "stdlib"
"""Name of the side that everything is compared with."""

CEILING = "threads"
"""Name of the side that has no pool: bare threads, the work divided beforehand."""

STDLIB_MODULE = "concurrent.futures"
OUR_MODULE = "affinitypool"

PoolFactory = Callable[[int], Executor]
"""Makes an executor with that many workers."""


def our_module() -> str:
    """Module that `ours` comes from.

    The environment variable AFFINITYPOOL_BENCH_MODULE names another one. With
    `concurrent.futures` both sides are the same, and every ratio has to come out near 1: that
    is the control of the measurement itself.
    """
    return os.environ.get("AFFINITYPOOL_BENCH_MODULE", OUR_MODULE)


def our_side() -> str:
    """Name of our side in tables and plots."""
    module = our_module()
    return "control" if module == STDLIB_MODULE else module


def our_pool() -> PoolFactory:
    """The factory of our executor; ImportError if its module is missing."""
    factory: PoolFactory = importlib.import_module(our_module()).ThreadPoolExecutor
    return factory


def stdlib_pool() -> PoolFactory:
    """The factory of the stdlib's executor."""
    return concurrent.futures.ThreadPoolExecutor
