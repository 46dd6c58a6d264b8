"""What no measurement may be won by: running tasks in the caller, late, or not at all."""

from __future__ import annotations

import threading
import time

from bench.sides import PoolFactory


class Dishonest(Exception):
    """The executor does not do what it is timed for."""


def check(make: PoolFactory) -> None:
    """Raises Dishonest unless tasks run in worker threads, at once, side by side, in order."""
    caller = threading.get_ident()
    with make(4) as pool:
        tasks = [pool.submit(threading.get_ident) for _ in range(100)]
        if caller in {task.result() for task in tasks}:
            raise Dishonest("a task ran in the thread that submitted it")
        seen = threading.Event()
        pool.submit(seen.set)
        if not seen.wait(2):
            raise Dishonest("a task that nobody waits for did not run")
        start = time.perf_counter()
        list(pool.map(time.sleep, [0.1] * 4))
        if time.perf_counter() - start > 0.35:
            raise Dishonest("map ran slow items one after the other")
        if list(pool.map(abs, range(1000))) != list(range(1000)):
            raise Dishonest("map lost or swapped items")
