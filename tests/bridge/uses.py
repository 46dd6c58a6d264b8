"""Small uses of the bridge for planted faults to show in: tools/bridge.py.

None looks at what lives on, so that it is the check that finds the fault, not the test.
"""

from __future__ import annotations

import contextlib

import pytest

from affinitypool import Task, ThreadPoolExecutor, as_completed


class Thing:
    """Something that the collector knows."""


def test_results(one):
    for _ in range(5):
        one.submit(Thing).result(timeout=10)


def test_refusals():
    for _ in range(5):
        with pytest.raises(TypeError):
            Task().set_exception(Thing())


def _rows():
    yield 1
    raise KeyError


def test_failing_batches(one):
    for _ in range(5):
        with contextlib.suppress(KeyError):
            one.submit_many(abs, _rows())


def test_batches(one):
    assert len(one.submit_many(abs, range(64))) == 64


def test_observers():
    for _ in range(5):
        task = Task()
        with task._condition:
            task.add_done_callback(abs)
        del task


def test_as_completed():
    tasks = [Task() for _ in range(5)]
    waiting = as_completed(tasks)
    for task in tasks:
        task.set_result(None)
        assert next(waiting) is task


def test_pools():
    pools = [ThreadPoolExecutor(1) for _ in range(2)]
    for pool in pools:
        pool.shutdown()


def test_wait_idle(one):
    task = one.submit(__import__("time").sleep, 0.05)
    assert one.wait_idle(10)
    assert task.done()
