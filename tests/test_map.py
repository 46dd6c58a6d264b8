"""`map`: order, early publishing, buffersize, errors, and what the iterator holds."""

from __future__ import annotations

import gc
import itertools
import math
import threading
import weakref

import pytest
from helpers import Probe, eventually, no_collector, occupied

from affinitypool import ThreadPoolExecutor

pytestmark = pytest.mark.timeout(30)

both = pytest.mark.parametrize("buffersize", [None, 1, 3, 1000])


@both
def test_results_come_in_order(pool, buffersize):
    assert list(pool.map(abs, range(-700, 0), buffersize=buffersize)) == list(range(700, 0, -1))


@both
def test_iterables_are_zipped(pool, buffersize):
    results = pool.map(pow, [2, 3, 4], itertools.count(1), buffersize=buffersize)
    assert list(results) == [2, 9, 64]
    assert list(pool.map(max, "ab", "ba", [*"cccc"], buffersize=buffersize)) == ["c", "c"]


@both
def test_an_item_that_is_a_tuple_is_one_argument(pool, buffersize):
    assert list(pool.map(len, [(1, 2), ()], buffersize=buffersize)) == [2, 0]


@both
def test_nothing_to_do(pool, buffersize):
    assert list(pool.map(abs, [], buffersize=buffersize)) == []
    assert list(pool.map(abs, buffersize=buffersize)) == []


@pytest.mark.parametrize("chunksize", [1, 7, 10**6])
def test_chunksize_changes_nothing(pool, chunksize):
    assert list(pool.map(abs, range(50), chunksize=chunksize)) == list(range(50))
    assert list(pool.map(abs, range(50), chunksize=chunksize, timeout=10)) == list(range(50))


@pytest.mark.parametrize(
    ("value", "error"), [("3", TypeError), (1.0, TypeError), (0, ValueError), (-1, ValueError)]
)
def test_a_bad_buffersize_is_refused(one, value, error):
    taken = []
    with pytest.raises(error):
        one.map(abs, (taken.append(n) or n for n in range(5)), buffersize=value)
    assert taken == []


@both
def test_bad_input_is_refused_at_the_call(one, buffersize):
    with pytest.raises(TypeError):
        one.map(abs, 5, buffersize=buffersize)
    with pytest.raises(TypeError):
        one.map(abs, [1], timeout="1", buffersize=buffersize)
    with pytest.raises(TypeError):
        one.map()
    assert list(one.map(abs, [-1])) == [1]


@both
def test_a_failing_call_raises_at_its_place(one, buffersize):
    results = one.map(lambda n: 1 // n, [1, 1, 0, 1], buffersize=buffersize)
    assert next(results) == 1
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@both
def test_an_error_cancels_what_has_not_started(one, buffersize):
    ran = []
    entered, gate = threading.Event(), threading.Event()

    def work(n):
        if n == 0:
            raise KeyError
        entered.set()
        gate.wait(10)
        ran.append(n)

    results = one.map(work, range(10), buffersize=buffersize)
    with pytest.raises(KeyError):
        next(results)
    gate.set()
    one.submit(int).result(10)
    assert len(ran) <= 1


# ---- submitted at the call, early


def test_all_is_submitted_at_the_call(pool):
    gate = threading.Event()
    seen = []
    results = pool.map(lambda n: (gate.wait(10), seen.append(n)), range(8))
    gate.set()
    pool.shutdown()
    assert sorted(seen) == list(range(8))
    assert len(list(results)) == 8


def test_first_items_run_before_a_slow_iterator_ends(one):
    ran = threading.Event()

    def slow():
        yield 1
        yield 2
        assert ran.wait(10), "nothing ran while the iterator was going on"
        yield 3

    def work(n):
        ran.set()
        return n

    assert list(one.map(work, slow())) == [1, 2, 3]


def test_the_iterable_runs_in_the_callers_thread(pool):
    threads = set()

    def items():
        for n in range(200):
            threads.add(threading.get_ident())
            yield n

    assert len(list(pool.map(abs, items()))) == 200
    assert len(list(pool.map(abs, items(), buffersize=4))) == 200
    assert threads == {threading.get_ident()}


@both
def test_an_iterable_that_raises_at_once(pool, buffersize):
    def items():
        raise KeyError("items")
        yield

    with pytest.raises(KeyError):
        pool.map(abs, items(), buffersize=buffersize)
    assert pool.submit(abs, -1).result(10) == 1


def test_an_iterable_that_raises_half_way(pool):
    ran = []

    def items():
        yield from range(600)
        raise KeyError("items")

    with pytest.raises(KeyError):
        pool.map(ran.append, items())
    pool.shutdown()
    assert sorted(ran) == list(range(600))  # as the stdlib: what was submitted runs
    with pytest.raises(RuntimeError):
        pool.map(abs, [1])


def test_an_iterable_that_raises_while_results_are_taken(one):
    def items():
        yield from range(5)
        raise KeyError("items")

    results = one.map(abs, items(), buffersize=2)
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(KeyError):
        list(results)


def test_an_iterable_may_use_the_pool(pool):
    def items():
        for n in range(50):
            yield pool.submit(abs, -n).result(10)

    assert list(pool.map(abs, items())) == list(range(50))


def test_map_within_a_task(pool):
    def work():
        return sum(pool.map(abs, range(-20, 0)))

    assert [pool.submit(work).result(10) for _ in range(5)] == [210] * 5
    assert list(pool.map(lambda _: work(), range(5))) == [210] * 5


# ---- buffersize


def test_a_buffered_map_of_a_dropped_pool_ends():
    pool = ThreadPoolExecutor(2)
    died = weakref.ref(pool)
    results = pool.map(abs, itertools.count(), buffersize=4)
    assert next(results) == 0
    del pool
    gc.collect()
    assert died() is None
    assert list(results) == [1, 2, 3, 4]


# ---- timeouts


@both
def test_a_timeout_counts_from_the_call(one, buffersize):
    with occupied(one):
        results = one.map(abs, [1, 2], timeout=0.02, buffersize=buffersize)
        with pytest.raises(TimeoutError):
            next(results)
    assert one.submit(int).result(10) == 0


@pytest.mark.parametrize("timeout", [1e9, threading.TIMEOUT_MAX, math.inf])
def test_a_long_timeout(pool, timeout):
    assert list(pool.map(abs, range(20), timeout=timeout)) == list(range(20))


@both
def test_a_timeout_cancels_what_has_not_started(one, buffersize):
    ran = []
    with occupied(one):
        results = one.map(ran.append, range(5), timeout=0, buffersize=buffersize)
        with pytest.raises(TimeoutError):
            next(results)
    one.submit(int).result(10)
    assert ran == []


# ---- closing and dropping


def test_an_iterator_that_nobody_started_cancels_nothing(one):
    ran = []
    with occupied(one):
        one.map(ran.append, range(3))
        one.map(ran.append, range(3, 6)).close()  # as the stdlib: its generator has not begun
        gc.collect()
    one.submit(int).result(10)
    assert ran == list(range(6))


@both
def test_dropping_a_started_iterator_cancels_what_has_not_started(one, buffersize):
    ran = []
    with ThreadPoolExecutor(1) as pool, no_collector():
        results = pool.map(abs, [0] * 3, buffersize=buffersize)
        next(results)
        list(results)
        entered, gate = threading.Event(), threading.Event()

        def work(n):
            if n == 1:
                entered.set()
                gate.wait(10)
            ran.append(n)

        results = pool.map(work, range(20), buffersize=buffersize)
        next(results)
        entered.wait(10)
        del results
        gate.set()
    assert ran == [0, 1]


@both
def test_closing_a_started_iterator_cancels_the_rest(one, buffersize):
    ran = []
    entered, gate = threading.Event(), threading.Event()

    def work(n):
        if n == 1:
            entered.set()
            gate.wait(10)
        ran.append(n)
        return n

    results = one.map(work, range(20), buffersize=buffersize)
    assert next(results) == 0
    entered.wait(10)
    results.close()
    gate.set()
    one.submit(int).result(10)
    assert ran == [0, 1]


@both
def test_what_was_handed_out_is_let_go(one, buffersize):
    with no_collector():
        results = one.map(lambda n: Probe(), range(5), buffersize=buffersize)
        for _ in range(5):
            death = weakref.ref(next(results))
            assert eventually(lambda death=death: death() is None, 1)


def test_the_iterator_does_not_hold_the_pool():
    pool = ThreadPoolExecutor(2)
    died = weakref.ref(pool)
    plain = pool.map(abs, range(100))
    buffered = pool.map(abs, range(100), buffersize=5)
    assert next(plain) == 0
    assert next(buffered) == 0
    with no_collector():
        del pool
        assert died() is None
    assert list(plain) == list(range(1, 100))
    buffered.close()


# ---- an overridden submit is respected


def recording(pool):
    calls = []
    original = pool.submit

    def submit(fn, *args, **kwargs):
        calls.append((fn, args))
        return original(fn, *args, **kwargs)

    return calls, submit


@both
def test_submit_assigned_on_the_instance(one, buffersize):
    calls, one.submit = recording(one)
    assert list(one.map(abs, [-1, -2], buffersize=buffersize)) == [1, 2]
    assert calls == [(abs, (-1,)), (abs, (-2,))]
    del one.submit
    assert list(one.map(abs, [-1, -2], buffersize=buffersize)) == [1, 2]
    assert len(calls) == 2


@both
def test_submit_overridden_in_a_subclass(buffersize):
    class Pool(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            return super().submit(lambda: 10 * fn(*args, **kwargs))

    with Pool(2) as pool:
        assert list(pool.map(abs, [-1, -2], buffersize=buffersize)) == [10, 20]
        assert list(pool.map(pow, [2], [3], buffersize=buffersize)) == [80]


def test_a_foreign_future_of_an_overridden_submit(one):
    from concurrent.futures import Future

    def submit(fn, *args):
        future = Future()
        future.set_result(fn(*args) + 1)
        return future

    one.submit = submit
    try:
        assert list(one.map(abs, [-1, -2])) == [2, 3]
        assert list(one.map(abs, [-1, -2], buffersize=1)) == [2, 3]
    finally:
        del one.submit


@both
def test_map_after_shutdown_is_refused(buffersize):
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.map(abs, [1], buffersize=buffersize)


def test_exactly_once_for_many(pool):
    counts = [0] * 5000

    def work(n):
        counts[n] += 1

    for _ in pool.map(work, range(5000)):
        pass
    assert counts == [1] * 5000
