"""What a task costs in bytes."""

from __future__ import annotations

import os
import sys

import pytest
from helpers import HAS_GIL, check_python

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc"),
]

HEAD = """
import contextvars, gc, threading
from affinitypool import ThreadPoolExecutor
from pathlib import Path
rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
count = 100_000
gate = threading.Event()
pool = ThreadPoolExecutor(1)
pool.submit(gate.wait)
tasks = [None] * count
gc.collect()
before = rss()
"""
TAIL = """
print((rss() - before) / count)
gate.set()
pool.shutdown()
"""
# an object of the free-threaded build has a larger head, and mimalloc rounds up
ROOM = 1 if HAS_GIL else 1.3


def cost(body):
    # what the debug allocator puts around each block is not the task's
    return float(check_python(HEAD + body + TAIL, PYTHONMALLOC="", PYTHONDEVMODE=""))


def test_a_pending_task():
    assert cost("for n in range(count): tasks[n] = pool.submit(int)") < 180 * ROOM


def test_a_pending_task_with_an_argument():
    assert cost("for n in range(count): tasks[n] = pool.submit(int, 0)") < 180 * ROOM


def test_a_pending_task_with_a_context():
    body = """
variable = contextvars.ContextVar("variable")
variable.set(1)
for n in range(count): tasks[n] = pool.submit(int)
"""
    assert cost(body) < 260 * ROOM


def test_a_pending_task_of_a_batch():
    assert cost("tasks = pool.submit_many(int, [0] * count)") < 190 * ROOM


def test_finished_tasks_give_their_memory_back():
    out = check_python(
        """
        import gc
        from affinitypool import ThreadPoolExecutor, as_completed, wait
        from pathlib import Path
        rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        def fail():
            raise KeyError
        with ThreadPoolExecutor(2) as pool:
            def use():
                tasks = pool.submit_many(lambda n: [n], range(3000))
                tasks += [pool.submit(fail) for _ in range(500)]
                wait(tasks)
                for task in as_completed(tasks):
                    task.exception()
                    task._condition
                    task.note = 1
            for _ in range(5):
                use()
            gc.collect()
            before = rss()
            for _ in range(15):
                use()
            gc.collect()
            print(rss() - before)
        """
    )
    assert int(out) < 3 << 20


def test_the_size_of_the_object():
    from affinitypool import Task

    assert sys.getsizeof(Task()) <= (200 if HAS_GIL else 220)
