"""`submit_many`: one publish, all or none."""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref

import pytest
from helpers import Probe, eventually, no_collector, occupied

from affinitypool import Task, ThreadPoolExecutor, wait

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("count", [0, 1, 2, 126, 127, 128, 511, 512, 513, 5000])
def test_tasks_come_in_order(pool, count):
    tasks = pool.submit_many(abs, range(-count, 0))
    assert type(tasks) is list
    assert all(type(task) is Task for task in tasks)
    assert [task.result(10) for task in tasks] == list(range(count, 0, -1))


def test_iterables_are_zipped(pool):
    tasks = pool.submit_many(pow, [2, 3, 4], itertools.count(1))
    assert [task.result(10) for task in tasks] == [2, 9, 64]


def test_a_tuple_is_one_argument(one):
    assert one.submit_many(len, [(1, 2)])[0].result(10) == 2


def test_misuse_is_a_type_error(one):
    for call in (
        lambda: one.submit_many(),
        lambda: one.submit_many(abs),
        lambda: one.submit_many(abs, 5),
        lambda: one.submit_many(abs, [1], None),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("count", [0, 1, 600])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_nothing_runs_when_the_iterable_raises(pool, count, error):
    ran = []

    def items():
        yield from range(count)
        raise error

    with pytest.raises(error):
        pool.submit_many(ran.append, items())
    with pytest.raises(error):
        pool.submit_many(lambda *pair: ran.append(pair), items(), itertools.count())
    assert pool.stats().pushed_outside == 0
    assert pool.stats().pending == 0
    for _ in range(8):
        pool.submit(int).result(10)
    assert ran == []


def test_what_was_refused_leaves_nothing_behind(one):
    argument = Probe()
    death = weakref.ref(argument)

    def items():
        yield box.pop()
        raise KeyError

    box = [argument]
    del argument
    with no_collector():
        with pytest.raises(KeyError):
            one.submit_many(id, items())
        assert eventually(lambda: death() is None, 1)


def test_what_strikes_between_items_leaves_nothing_behind(one):
    """A builtin iterator: an exception that was sent to the thread is raised by the call itself."""
    strike = ctypes.pythonapi.PyThreadState_SetAsyncExc
    sent = (ctypes.c_ulong(threading.get_ident()), ctypes.py_object(KeyError))
    call = Probe()
    death = weakref.ref(call)
    for place in (100, 511, 512):  # signals are looked at with every 512th item
        rows = itertools.chain(range(place), itertools.starmap(strike, [sent]), range(600))
        with no_collector(), pytest.raises(KeyError):
            one.submit_many(call, rows)
    del call, rows
    assert death() is None
    assert one.submit(int).result(10) == 0


def test_nothing_is_published_before_the_iterable_ends(one):
    ran = []

    def items():
        for n in range(600):
            if n % 100 == 0:
                one.submit(int).result(10)
                assert ran == []
            yield n

    tasks = one.submit_many(ran.append, items())
    wait(tasks, 10)
    assert ran == list(range(600))


def test_one_worker_keeps_the_order(one):
    order = []
    with occupied(one):
        one.submit(order.append, -1)
        one.submit_many(order.append, range(300))
        one.submit(order.append, 300)
    one.submit(int).result(10)
    assert order == list(range(-1, 301))


def test_within_a_task(pool):
    def work():
        return sum(task.result() for task in pool.submit_many(abs, range(-600, 0)))

    assert [pool.submit(work).result(20) for _ in range(3)] == [180300] * 3


def test_blocking_tasks_of_a_batch_get_a_thread_each():
    with ThreadPoolExecutor(4) as pool:
        barrier = threading.Barrier(4)
        tasks = pool.submit_many(lambda _: barrier.wait(10), range(4))
        assert sorted(task.result(10) for task in tasks) == [0, 1, 2, 3]
        assert len(pool._threads) == 4


def test_after_shutdown_it_is_refused():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit_many(abs, [1])


def test_an_iterable_that_shuts_the_pool_down():
    pool = ThreadPoolExecutor(1)
    ran = []

    def items():
        yield 1
        pool.shutdown()
        yield 2

    with pytest.raises(RuntimeError, match="cannot schedule new futures"):
        pool.submit_many(ran.append, items())
    assert ran == []


def test_an_overridden_submit_is_respected(one):
    original, calls = one.submit, []
    one.submit = lambda fn, *args: (calls.append(args), original(fn, *args))[1]
    tasks = one.submit_many(pow, [2, 3], [3, 2])
    del one.submit
    assert [task.result(10) for task in tasks] == [8, 9]
    assert calls == [(2, 3), (3, 2)]


def test_a_batch_can_be_cancelled(one):
    ran = []
    with occupied(one):
        tasks = one.submit_many(ran.append, range(500))
        assert all(task.cancel() for task in tasks[::2])
    one.submit(int).result(10)
    assert ran == list(range(1, 500, 2))
