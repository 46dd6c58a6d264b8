"""`shutdown`, alone and racing with everything else."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
from helpers import eventually, occupied

from affinitypool import CancelledError, ShutdownError, ThreadPoolExecutor, as_completed, wait

pytestmark = pytest.mark.timeout(30)


def test_shutdown_runs_what_is_pending(pool):
    done = []
    tasks = [pool.submit(done.append, n) for n in range(200)]
    pool.shutdown()
    assert sorted(done) == list(range(200))
    assert all(task.done() for task in tasks)
    assert not any(thread.is_alive() for thread in pool._threads)


def test_after_shutdown_submits_are_refused(pool):
    pool.submit(int).result(10)
    pool.shutdown()
    for call in (
        lambda: pool.submit(int),
        lambda: pool.submit_many(int, [1]),
        lambda: pool.map(int, [1]),
        lambda: pool.map(int, [1], buffersize=1),
    ):
        with pytest.raises(ShutdownError, match=r"^cannot schedule new futures after shutdown$"):
            call()
    assert pool._shutdown


def test_shutdown_of_an_unused_pool():
    before = threading.active_count()
    for wait_for_it in (True, False):
        pool = ThreadPoolExecutor(2)
        pool.shutdown(wait_for_it)
        with pytest.raises(RuntimeError):
            pool.submit(int)
    assert threading.active_count() == before


def test_shutdown_again_and_again(pool):
    task = pool.submit(abs, -1)
    for _ in range(3):
        pool.shutdown(wait=False)
        pool.shutdown()
        pool.shutdown(True, cancel_futures=True)
    assert task.result(0) == 1


def test_arguments_of_shutdown(one):
    with pytest.raises(TypeError):
        one.shutdown(True, True)
    with pytest.raises(TypeError):
        one.shutdown(now=True)
    assert one.submit(abs, -1).result(10) == 1


def test_without_waiting_it_returns_at_once(one):
    with occupied(one):
        task = one.submit(abs, -5)
        one.shutdown(wait=False)
        assert not task.done()
        with pytest.raises(RuntimeError):
            one.submit(int)
    assert task.result(10) == 5


def test_cancel_futures_cancels_what_has_not_started(pool):
    ran = []
    with occupied(pool) as gate:
        tasks = [pool.submit(ran.append, n) for n in range(300)]
        pool.shutdown(wait=False, cancel_futures=True)
        assert all(task.cancelled() for task in tasks)
        assert pool.stats().pending == 0
        gate.set()
    pool.shutdown()
    assert ran == []


def test_cancel_futures_takes_from_the_rings_of_workers():
    pool = ThreadPoolExecutor(2)
    ran = []
    gate, ready = threading.Event(), threading.Barrier(3)

    def work():
        tasks = [pool.submit(ran.append, n) for n in range(300)]
        ready.wait(10)
        gate.wait(10)
        return tasks

    workers = [pool.submit(work) for _ in range(2)]
    ready.wait(10)
    before = len(ran)  # the second worker may have run some before it came to its own work
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    tasks = [task for worker in workers for task in worker.result(10)]
    pool.shutdown()
    assert len(ran) == before <= 300
    assert sum(task.cancelled() for task in tasks) == 600 - before


def test_cancel_futures_runs_callbacks_and_wakes_waiters(one):
    seen, called = [], []
    with occupied(one) as gate:
        tasks = [one.submit(int) for _ in range(10)]
        tasks[0].add_done_callback(called.append)
        threads = [
            threading.Thread(target=lambda: seen.append(len(wait(tasks, 10).done))),
            threading.Thread(target=lambda: seen.append(len(list(as_completed(tasks, 10))))),
            threading.Thread(target=lambda: seen.append(tasks[3].cancelled() or catch(tasks[3]))),
        ]
        for thread in threads:
            thread.start()
        one.shutdown(wait=False, cancel_futures=True)
        assert called == [tasks[0]]
        for thread in threads:
            thread.join(10)
        gate.set()
    assert sorted(map(str, seen)) == ["10", "10", "True"]


def catch(task):
    try:
        task.result(10)
    except CancelledError:
        return True
    return False


def test_cancel_futures_after_a_plain_shutdown(one):
    with occupied(one) as gate:
        task = one.submit(int)
        one.shutdown(wait=False)
        assert not task.done()
        one.shutdown(wait=False, cancel_futures=True)
        assert task.cancelled()
        gate.set()


def test_a_task_may_submit_nothing_after_shutdown(one):
    entered, gate = threading.Event(), threading.Event()

    def work():
        entered.set()
        gate.wait(10)
        one.submit(int)

    task = one.submit(work)
    entered.wait(10)
    one.shutdown(wait=False)
    gate.set()
    assert isinstance(task.exception(10), ShutdownError)


@pytest.mark.parametrize("wait_for_it", [True, False])
@pytest.mark.parametrize("cancel", [True, False])
def test_a_task_may_shut_its_own_pool_down(pool, wait_for_it, cancel):
    def work():
        pool.shutdown(wait_for_it, cancel_futures=cancel)
        return "back"

    assert pool.submit(work).result(10) == "back"
    pool.shutdown()
    assert eventually(lambda: not any(thread.is_alive() for thread in pool._threads))


def test_all_tasks_shut_their_pool_down_at_once(pool):
    barrier = threading.Barrier(pool._max_workers)

    def work():
        barrier.wait(10)
        pool.shutdown()

    for task in [pool.submit(work) for _ in range(pool._max_workers)]:
        task.result(10)


def test_a_callback_may_shut_its_own_pool_down(pool):
    called = threading.Event()

    def callback(task):
        pool.shutdown(wait=True)
        called.set()

    with occupied(pool):
        task = pool.submit(int)
        task.add_done_callback(callback)
    assert called.wait(10)
    pool.shutdown()


def test_a_task_may_leave_a_with_block_of_its_own_pool(one):
    def work():
        with one:
            return one.submit(abs, -1)

    assert one.submit(work).result(10).result(10) == 1
    with pytest.raises(RuntimeError):
        one.submit(int)


def test_a_task_may_use_a_pool_of_its_own(two):
    def work(depth):
        with ThreadPoolExecutor(2) as inner:
            return depth and 1 + inner.submit(work, depth - 1).result(10)

    assert two.submit(work, 4).result(20) == 4


def test_shutdown_from_another_pools_worker(one, two):
    tasks = [one.submit(abs, -n) for n in range(20)]
    two.submit(one.shutdown).result(10)
    assert all(task.done() for task in tasks)


def test_several_threads_shut_down_at_once(pool):
    tasks = [pool.submit(abs, n) for n in range(100)]
    threads = [threading.Thread(target=pool.shutdown) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("cancel", [False, True], ids=["run", "cancel"])
@pytest.mark.parametrize("workers", [1, 3])
def test_submits_race_shutdown(workers, cancel):
    for _ in range(12):
        pool = ThreadPoolExecutor(workers)
        start = threading.Barrier(4)
        accepted = [[] for _ in range(3)]

        def produce(n, pool=pool, start=start, accepted=accepted):
            mine = accepted[n]
            start.wait(10)
            try:
                while True:
                    if n == 2:
                        mine.extend(pool.submit_many(abs, [0] * 5))
                    else:
                        mine.append(pool.submit(int))
            except ShutdownError:
                pass

        threads = [threading.Thread(target=produce, args=[n]) for n in range(3)]
        for thread in threads:
            thread.start()
        start.wait(10)
        pool.submit(int).result(10)
        pool.shutdown(wait=True, cancel_futures=cancel)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        for task in [task for tasks in accepted for task in tasks]:
            if cancel and task.cancelled():
                continue
            assert task.result(10) == 0
        assert not any(thread.is_alive() for thread in pool._threads)


def test_when_shutdown_has_returned_every_future_is_done():
    for _ in range(30):
        pool = ThreadPoolExecutor(2)
        tasks = []
        go = threading.Event()

        def produce(pool=pool, tasks=tasks, go=go):
            go.set()
            try:
                while True:
                    tasks.append(pool.submit(int))
            except RuntimeError:
                pass

        thread = threading.Thread(target=produce)
        thread.start()
        go.wait(10)
        pool.shutdown()
        seen = list(tasks)
        assert all(task.done() for task in seen)
        thread.join(10)
        assert all(task.done() for task in tasks)


def test_shutdown_races_the_first_submit():
    for _ in range(200):
        pool = ThreadPoolExecutor(1)
        results = []

        def submit(pool=pool, results=results):
            try:
                results.append(pool.submit(abs, -1))
            except RuntimeError:
                results.append(None)

        thread = threading.Thread(target=submit)
        thread.start()
        pool.shutdown()
        thread.join(10)
        assert results[0] is None or results[0].result(10) == 1


def test_a_dropped_pool_runs_its_pending_tasks_in_order():
    pool = ThreadPoolExecutor(1)
    gate, order, last = threading.Event(), [], threading.Event()
    pool.submit(gate.wait, 10)
    for n in range(50):
        pool.submit(order.append, n)
    pool.submit(last.set)
    died = weakref.ref(pool)
    del pool
    gc.collect()
    assert died() is None
    gate.set()
    assert last.wait(10)
    assert order == list(range(50))


def test_a_pool_dropped_while_submits_return():
    for _ in range(100):
        task = ThreadPoolExecutor(2).submit(abs, -1)
        assert task.result(10) == 1


def test_shutdown_lets_a_running_task_end(one):
    entered, done = threading.Event(), []

    def work():
        entered.set()
        time.sleep(0.02)
        done.append(1)

    task = one.submit(work)
    entered.wait(10)
    one.shutdown(cancel_futures=True)
    assert done == [1]
    assert task.result(0) is None


def test_a_buffered_map_of_a_pool_that_was_shut_down(one):
    results = one.map(abs, range(100), buffersize=2)
    assert next(results) == 0
    one.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        list(results)
