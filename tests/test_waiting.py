"""`wait` and `as_completed`: ours, for tasks and foreign futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import sys
import threading
import time
import weakref

import pytest
from helpers import Probe, eventually, no_collector, occupied

from affinitypool import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)

pytestmark = pytest.mark.timeout(30)

every_when = pytest.mark.parametrize("when", [ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION])


def fail(error):
    raise error


def ended(value=None):
    future = Future()
    future.set_result(value)
    return future


# ---- wait


@every_when
@pytest.mark.parametrize("timeout", [None, 0, 10, -1])
def test_waiting_for_nothing(when, timeout):
    assert wait([], timeout, when) == (set(), set())
    assert wait((), timeout=timeout, return_when=when).done == set()


@every_when
def test_waiting_for_what_is_done(one, when):
    tasks = [one.submit(int) for _ in range(3)]
    for task in tasks:
        task.result(10)
    for timeout in (None, 0, -1, 10):
        assert wait(tasks, timeout, when) == (set(tasks), set())


def test_all_completed(pool):
    tasks = [pool.submit(abs, n) for n in range(200)]
    result = wait(tasks)
    assert result.done == set(tasks)
    assert result.not_done == set()
    assert type(result) is type(concurrent.futures.wait([]))
    done, not_done = result
    assert (done, not_done) == (set(tasks), set())


@pytest.mark.parametrize("timeout", [0, -1, 1e-9, 0.02])
@every_when
def test_a_short_timeout_returns_what_is_done(two, when, timeout):
    first = two.submit(int)
    first.result(10)
    with occupied(two):
        second = two.submit(int)
        tasks = [first, second]
        begin = time.monotonic()
        if when == FIRST_COMPLETED:
            tasks = [second]
        done, not_done = wait(tasks, timeout, when)
        assert time.monotonic() - begin < 2
        assert done == set(tasks) - {second}
        assert not_done == {second}


@pytest.mark.parametrize("timeout", [None, 1e9, threading.TIMEOUT_MAX, math.inf, 10])
@every_when
def test_a_long_timeout_waits(one, when, timeout):
    with occupied(one) as gate:
        task = one.submit(int)
        timer = threading.Timer(0.01, gate.set)
        timer.start()
        assert wait([task], timeout, when) == ({task}, set())
        timer.join()


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (math.nan, ValueError)])
@every_when
def test_a_timeout_that_is_no_number_is_refused(one, when, timeout, error):
    with occupied(one):
        task = one.submit(int)
        with pytest.raises(error):
            wait([task], timeout, when)
        with pytest.raises(error):
            next(as_completed([task], timeout))
    assert task.result(10) == 0


def test_a_future_where_futures_are_expected_is_named(one):
    task = one.submit(int)
    with pytest.raises(TypeError, match=r"^wait\(\) takes an iterable of futures, not a Task$"):
        wait(task)
    with pytest.raises(TypeError, match=r"^as_completed\(\) takes .* of futures, not a Future$"):
        next(as_completed(Future()))


@every_when
@pytest.mark.parametrize("state", ["pending", "done"])
def test_futures_of_asyncio_are_refused_at_once(one, when, state):
    """The loop that would end them is the one that the wait would block."""

    async def main():
        future = asyncio.get_running_loop().create_future()
        if state == "done":
            future.set_result(1)
        task = one.submit(int)
        for futures in ([future], [task, future]):
            with pytest.raises(TypeError, match=r"^wait\(\) takes .* are for asyncio.wait\(\)$"):
                wait(futures, 5, when)
            with pytest.raises(TypeError, match=r"not _asyncio.Future; .*o.as_completed\(\)$"):
                next(as_completed(futures, 5))
        assert task.result(10) == 0

    asyncio.run(main())


@pytest.mark.parametrize("thing", [None, 5, abs])
def test_what_is_no_future_is_refused(one, thing):
    for things in ([thing], {one.submit(int), thing}):
        with pytest.raises(TypeError, match=r"^wait\(\) takes futures of concurrent.futures, not "):
            wait(things)
        with pytest.raises(TypeError, match=r"^as_completed\(\) takes futures of concurrent.fu"):
            next(as_completed(things))


@pytest.mark.parametrize("when", ["ALL", None, 3])
def test_an_unknown_condition_is_refused(one, when):
    with pytest.raises(ValueError, match="Invalid return condition"):
        wait([one.submit(int)], return_when=when)
    with pytest.raises(ValueError, match="Invalid return condition"):
        wait([Future()], 0, when)


def test_first_completed_returns_with_the_first(two):
    gate = threading.Event()
    slow, quick = two.submit(gate.wait, 10), two.submit(abs, -1)
    done, not_done = wait([slow, quick], 10, FIRST_COMPLETED)
    assert (done, not_done) == ({quick}, {slow})
    gate.set()


def test_first_exception_waits_for_a_failure_or_all(two):
    gate = threading.Event()
    slow, fine = two.submit(gate.wait, 10), two.submit(abs, -1)
    fine.result(10)
    bad = two.submit(fail, KeyError())
    done, not_done = wait([slow, fine, bad], 10, FIRST_EXCEPTION)
    assert not_done == {slow}
    assert done == {fine, bad}
    gate.set()
    assert wait([slow, fine], 10, FIRST_EXCEPTION).done == {slow, fine}


def test_first_exception_is_not_a_cancelled_task(one):
    with occupied(one) as gate:
        cancelled, last = one.submit(int), one.submit(int)
        cancelled.cancel()
        timer = threading.Timer(0.01, gate.set)
        timer.start()
        assert wait([cancelled, last], 10, FIRST_EXCEPTION).not_done == set()
        timer.join()


def test_a_cancelled_task_is_done_at_once(one):
    with occupied(one):
        task = one.submit(int)
        task.cancel()
        assert wait([task], 0).done == {task}
        assert list(as_completed([task], 0)) == [task]
        assert wait([task, ended()], 0).not_done == set()


@every_when
def test_a_cancel_wakes_a_waiter(one, when):
    with occupied(one):
        task = one.submit(int)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(wait([task], 10, when).done))
        thread.start()
        task.cancel()
        thread.join(10)
        assert seen == [{task}]


@every_when
def test_a_falsy_exception_counts_as_one(two, when):
    class Falsy(Exception):
        def __bool__(self):
            return False

    gate = threading.Event()
    slow, bad = two.submit(gate.wait, 10), two.submit(fail, Falsy())
    if when != ALL_COMPLETED:
        assert wait([slow, bad], 10, when).done == {bad}
    gate.set()
    assert wait([slow, bad], 10, when).done


@every_when
def test_duplicates_count_once(pool, when):
    task, other = pool.submit(int), pool.submit(int)
    tasks = [task, other, task, task]
    done, not_done = wait(tasks, 10, when)
    assert done | not_done == {task, other}
    assert wait(tasks, 10).done == {task, other}
    assert sorted(map(id, as_completed(tasks, 10))) == sorted([id(task), id(other)])


def test_any_iterable_will_do(pool):
    tasks = {pool.submit(abs, -n): n for n in range(20)}
    assert wait(tasks).done == set(tasks)
    assert wait(iter(tasks)).done == set(tasks)
    assert set(as_completed(task for task in tasks)) == set(tasks)
    with pytest.raises(TypeError):
        wait(5)
    with pytest.raises((TypeError, AttributeError)):
        wait([5])


# ---- foreign futures


@every_when
def test_foreign_futures_alone(when):
    futures = [ended(n) for n in range(3)]
    assert wait(futures, 10, when).done == set(futures)
    assert set(as_completed(futures, 10)) == set(futures)


def test_foreign_futures_mixed_with_tasks(pool):
    with concurrent.futures.ThreadPoolExecutor(2) as foreign:
        for _ in range(20):
            futures = [executor.submit(abs, n) for executor in (pool, foreign) for n in range(5)]
            assert wait(futures, 10) == (set(futures), set())
            futures = [executor.submit(abs, n) for executor in (foreign, pool) for n in range(5)]
            assert set(as_completed(futures, 10)) == set(futures)


def test_a_foreign_future_that_ends_first(one):
    with occupied(one):
        task, foreign = one.submit(int), ended()
        assert wait([task, foreign], 10, FIRST_COMPLETED).done == {foreign}
        assert next(as_completed([task, foreign], 10)) is foreign
        failed = Future()
        failed.set_exception(KeyError())
        assert wait([task, failed], 10, FIRST_EXCEPTION) == ({failed}, {task})
        assert wait([task, foreign], 0) == ({foreign}, {task})


def test_a_task_that_ends_first(one):
    foreign = Future()
    task = one.submit(int)
    assert wait([task, foreign], 10, FIRST_COMPLETED).done == {task}
    waiting = as_completed([task, foreign], 0.02)
    assert next(waiting) is task
    with pytest.raises(TimeoutError):
        next(waiting)


def test_tasks_of_several_pools(one, two):
    tasks = [pool.submit(abs, n) for n in range(50) for pool in (one, two)]
    assert wait(tasks, 10).done == set(tasks)
    assert set(as_completed(tasks, 10)) == set(tasks)


def test_tasks_made_by_hand():
    task = Task()
    assert wait([task], 0).not_done == {task}
    timer = threading.Timer(0.01, task.set_result, [1])
    timer.start()
    assert list(as_completed([task], 10)) == [task]
    timer.join()


# ---- as_completed


def test_in_order_of_completion(two):
    gates = [threading.Event() for _ in range(2)]
    first, second = (two.submit(gate.wait, 10) for gate in gates)
    waiting = as_completed([first, second], 10)
    gates[1].set()
    assert next(waiting) is second
    gates[0].set()
    assert next(waiting) is first
    with pytest.raises(StopIteration):
        next(waiting)


def test_done_before_during_and_after(pool):
    for _ in range(50):
        tasks = [pool.submit(abs, n) for n in range(30)]
        assert set(as_completed(tasks, 10)) == set(tasks)
        assert set(as_completed(tasks)) == set(tasks)


@pytest.mark.parametrize("timeout", [0, -1, 1e-9, 0.02])
def test_as_completed_gives_what_is_done_and_then_times_out(one, timeout):
    ready = one.submit(int)
    ready.result(10)
    with occupied(one):
        pending = one.submit(int)
        waiting = as_completed([pending, ready], timeout)
        assert next(waiting) is ready
        with pytest.raises(TimeoutError, match=r"1 \(of 2\) futures unfinished"):
            next(waiting)


@pytest.mark.parametrize("timeout", [None, 1e9, threading.TIMEOUT_MAX, math.inf])
def test_as_completed_waits_long(one, timeout):
    with occupied(one) as gate:
        task = one.submit(int)
        timer = threading.Timer(0.01, gate.set)
        timer.start()
        assert list(as_completed([task], timeout)) == [task]
        timer.join()


def test_nothing_to_iterate_over():
    assert list(as_completed([])) == []
    assert list(as_completed([], 0)) == []


def test_an_abandoned_iterator_leaves_no_watcher(one):
    with occupied(one):
        tasks = [one.submit(int) for _ in range(3)]
        tasks[0].cancel()
        waiting = as_completed(tasks)
        assert next(waiting) is tasks[0]
        death = weakref.ref(waiting)
        waiting.close()
        del waiting
        assert death() is None
        for when in (FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED):
            assert wait(tasks[1:], 0.001, when).done == set()
        tasks[1].cancel()
        assert wait(tasks[1:], 10, FIRST_COMPLETED).done == {tasks[1]}


def test_as_completed_drops_what_it_handed_out(pool):
    with no_collector():
        tasks = [pool.submit(Probe) for _ in range(10)]
        deaths = [weakref.ref(task) for task in tasks]
        waiting = as_completed(tasks)
        del tasks
        for n in range(1, 11):
            next(waiting)
            assert eventually(lambda n=n: sum(death() is None for death in deaths) >= n, 1), (
                "a task that was handed out is still held"
            )
    waiting.close()


def test_as_completed_drops_what_was_done_before(one):
    with no_collector():
        tasks = [one.submit(int) for _ in range(5)]
        tasks[-1].result(10)
        deaths = [weakref.ref(task) for task in tasks]
        waiting = as_completed(tasks)
        del tasks
        for n in range(1, 6):
            next(waiting)
            assert eventually(lambda n=n: sum(death() is None for death in deaths) >= n, 1)


def test_as_completed_drops_foreign_futures_too():
    with no_collector():
        futures = [ended() for _ in range(3)] + [Task()]
        futures[-1].set_result(0)
        deaths = [weakref.ref(future) for future in futures]
        waiting = as_completed(futures)
        del futures
        for n in range(1, 5):
            next(waiting)
            assert sum(death() is None for death in deaths) >= n


def test_wait_keeps_nothing():
    with no_collector():
        tasks = [Task() for _ in range(3)]
        tasks[0].set_result(0)
        deaths = [weakref.ref(task) for task in tasks]
        for when in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
            wait(tasks, 0.001, when)
        del tasks
        assert not any(death() for death in deaths)


def test_cancelled_futures_of_a_shutdown_wake_who_waits():
    pool = ThreadPoolExecutor(1)
    with occupied(pool) as gate:
        tasks = [pool.submit(int) for _ in range(20)]
        seen, begun = [], threading.Event()

        def collect():
            begun.set()
            for task in as_completed(tasks, 10):
                seen.append(task)

        threads = [threading.Thread(target=collect), threading.Thread(target=wait, args=[tasks])]
        for thread in threads:
            thread.start()
        begun.wait(10)
        pool.shutdown(wait=False, cancel_futures=True)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert set(seen) == set(tasks)
        with pytest.raises(CancelledError):
            tasks[0].result()
        gate.set()
    pool.shutdown()


def test_several_threads_wait_for_the_same_tasks(pool):
    ways = [
        lambda tasks: wait(tasks, 10).done,
        lambda tasks: set(as_completed(tasks, 10)),
        lambda tasks: set(concurrent.futures.as_completed(tasks, 10)),
        lambda tasks: wait(tasks, 10, FIRST_EXCEPTION).done,
    ]
    with concurrent.futures.ThreadPoolExecutor(len(ways)) as others:
        for _ in range(10):
            tasks = [pool.submit(abs, n) for n in range(50)]
            waiting = [others.submit(way, tasks) for way in ways]
            assert [future.result(20) for future in waiting] == [set(tasks)] * 4


# ---- in a worker


@every_when
def test_a_waiting_worker_runs_the_tasks_itself(one, when):
    def work():
        tasks = [one.submit(threading.get_ident) for _ in range(5)]
        done, not_done = wait(tasks, None, when)
        assert done
        assert done | not_done == set(tasks)
        return len(done), {task.result() for task in tasks} == {threading.get_ident()}

    count, here = one.submit(work).result(10)
    assert here
    assert count == (1 if when == FIRST_COMPLETED else 5)


def test_a_worker_iterates_over_its_own_tasks(one):
    def work():
        tasks = [one.submit(abs, -n) for n in range(5)]
        return sorted(task.result(0) for task in as_completed(tasks))

    assert one.submit(work).result(10) == [0, 1, 2, 3, 4]


def test_a_worker_waits_for_a_mixed_list(one):
    def work(when):
        tasks = [one.submit(abs, -1), ended()]
        return len(wait(tasks, 10, when).done)

    assert one.submit(work, ALL_COMPLETED).result(10) == 2
    assert one.submit(work, FIRST_COMPLETED).result(10) >= 1

    def iterate():
        return len(list(as_completed([one.submit(abs, -1), ended()], 10)))

    assert one.submit(iterate).result(10) == 2


def test_first_exception_in_a_worker_stops_at_the_failure(one):
    def work():
        tasks = [one.submit(fail, KeyError()) for _ in range(3)]
        done, not_done = wait(tasks, None, FIRST_EXCEPTION)
        return len(done), len(not_done)

    assert one.submit(work).result(10) == (1, 2)


@every_when
@pytest.mark.parametrize("timeout", [0, -1])
def test_a_worker_that_does_not_wait_runs_nothing(one, when, timeout):
    def work():
        tasks = [one.submit(int), one.submit(int)]
        done, _ = wait(tasks, timeout, when)
        with pytest.raises(TimeoutError):
            next(as_completed(tasks, timeout))
        with pytest.raises(TimeoutError):
            next(as_completed([*tasks, Future()], timeout))
        wait([*tasks, Future()], timeout, when)
        return len(done), {task._state for task in tasks}

    assert one.submit(work).result(10) == (0, {"PENDING"})


def test_all_workers_wait_at_once(pool):
    def work():
        tasks = [pool.submit(abs, -n) for n in range(10)]
        return len(wait(tasks).done) + len(list(as_completed(tasks)))

    tasks = [pool.submit(work) for _ in range(20)]
    assert [task.result(20) for task in tasks] == [20] * 20


def test_as_completed_in_a_worker_holds_no_candidates(one):
    def work():
        outside = [Task() for _ in range(4)]
        deaths = [weakref.ref(task) for task in outside]
        waiting = as_completed(outside, 10)
        for task in outside:
            threading.Timer(0, task.set_result, [0]).start()
        del outside, task
        for n in range(1, 5):
            next(waiting)
            if not eventually(lambda n=n: sum(d() is None for d in deaths) >= n, 1):
                return f"{n} handed out, {sum(d() is None for d in deaths)} dead"
        return "all dropped"

    with no_collector():
        assert one.submit(work).result(10) == "all dropped"


def test_wait_does_not_grow_the_callers_references(one):
    task = one.submit(int)
    task.result(10)
    before = sys.getrefcount(task)
    for _ in range(100):
        wait([task])
        list(as_completed([task]))
        wait([task, ended()])
    assert sys.getrefcount(task) <= before + 1
