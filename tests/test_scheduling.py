"""Order, exactly-once, progress, and what idle workers cost."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from helpers import check_python, occupied

from affinitypool import ThreadPoolExecutor, wait

pytestmark = pytest.mark.timeout(60)


# ---- order on one worker


def test_outside_submits_run_in_order(one):
    order = []
    with occupied(one):
        for n in range(1000):
            one.submit(order.append, n)
    one.submit(int).result(10)
    assert order == list(range(1000))


def test_inside_submits_run_in_order(one):
    order = []

    def outer():
        for n in range(1000):
            one.submit(order.append, n)

    one.submit(outer).result(10)
    one.submit(int).result(10)
    assert order == list(range(1000))


def test_inside_and_outside_submits_run_in_order(one):
    order = []
    reached, go_on = threading.Event(), threading.Event()

    def outer():
        one.submit(order.append, "inside 1")
        reached.set()
        go_on.wait(10)
        one.submit(order.append, "inside 2")

    task = one.submit(outer)
    reached.wait(10)
    one.submit(order.append, "outside")
    go_on.set()
    task.result(10)
    one.submit(int).result(10)
    assert order == ["inside 1", "outside", "inside 2"]


def test_submits_of_several_threads_in_turn_run_in_order(one):
    order = []
    with occupied(one):
        for n in range(100):
            thread = threading.Thread(target=one.submit, args=[order.append, n])
            thread.start()
            thread.join()
    one.submit(int).result(10)
    assert order == list(range(100))


# ---- exactly once


@pytest.mark.parametrize("shards", [None, 1, 4])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_exactly_once_with_producers_and_children(workers, shards):
    each, counts = 1000, {}
    with ThreadPoolExecutor(workers, shards=shards) as pool:

        def count(key):
            counts[key] = counts.get(key, 0) + 1  # its own key, once

        def parent(key):
            count(key)
            return pool.submit(count, (*key, "child"))

        def produce(name):
            tasks = [pool.submit(parent, (name, n)) for n in range(each)]
            for task in tasks:
                task.result(20).result(20)

        threads = [threading.Thread(target=produce, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    keys = [(name, n) for name in range(4) for n in range(each)]
    assert counts == dict.fromkeys(keys + [(*key, "child") for key in keys], 1)


def test_many_children_of_one_task(pool):
    """More than a ring holds."""
    seen = []

    def outer():
        return [pool.submit(seen.append, n) for n in range(2000)]

    wait(pool.submit(outer).result(10), 20)
    assert sorted(seen) == list(range(2000))


def test_producers_that_come_and_go(two):
    results = []
    for n in range(200):
        thread = threading.Thread(target=lambda n=n: results.append(two.submit(abs, -n)))
        thread.start()
        thread.join()
    assert [task.result(10) for task in results] == list(range(200))


def test_one_task_at_a_time_with_pauses(two):
    chance = random.Random(5)
    for _ in range(3000):
        assert two.submit(int).result(5) == 0
        end = time.perf_counter() + chance.random() * 1e-4
        while time.perf_counter() < end:
            pass


def test_a_worker_that_sleeps_is_woken(pool):
    for _ in range(10):
        pool.submit(int).result(10)
        time.sleep(0.005)
        assert pool.submit(abs, -1).result(1) == 1


# ---- progress


@pytest.mark.parametrize("how", ["submit", "submit_many", "map"])
def test_three_tasks_meet_on_three_workers(how):
    for _ in range(10):
        with ThreadPoolExecutor(3) as pool:
            for _ in range(10):
                barrier = threading.Barrier(3, timeout=10)

                def meet(_=None, barrier=barrier):
                    return barrier.wait()

                if how == "submit":
                    results = [task.result(10) for task in [pool.submit(meet) for _ in range(3)]]
                elif how == "map":
                    results = list(pool.map(meet, range(3)))
                else:
                    results = [task.result(10) for task in pool.submit_many(meet, range(3))]
                assert sorted(results) == [0, 1, 2]


def test_children_of_a_task_that_then_blocks_are_run_by_others():
    with ThreadPoolExecutor(3) as pool:
        for _ in range(30):
            barrier = threading.Barrier(3, timeout=10)

            def outer(barrier=barrier):
                children = [pool.submit(barrier.wait) for _ in range(2)]
                barrier.wait()
                return children

            for child in pool.submit(outer).result(10):
                assert child.result(10) in (0, 1, 2)


def test_children_in_a_full_ring_of_a_blocked_worker_are_run_by_others(two):
    gate, done = threading.Event(), []

    def outer():
        for n in range(300):
            two.submit(done.append, n)
        two.submit(gate.set)
        return gate.wait(10)

    assert two.submit(outer).result(20)


def test_grandchildren_meet_their_ancestors():
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            barrier = threading.Barrier(4, timeout=10)

            def descend(depth, barrier=barrier):
                if depth:
                    pool.submit(descend, depth - 1, barrier)
                return barrier.wait()

            assert pool.submit(descend, 3).result(10) in range(4)


def test_local_work_does_not_starve_outside_work(pool):
    stop = threading.Event()

    def again():
        if not stop.is_set():
            pool.submit(again)
            pool.submit(int)

    for _ in range(pool._max_workers):
        pool.submit(again)
    try:
        assert pool.submit(abs, -1).result(10) == 1
    finally:
        stop.set()


def test_a_busy_python_thread_does_not_stop_the_pool(two):
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            sum(range(500))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        tasks = [two.submit(abs, -n) for n in range(2000)]
        assert sum(task.result(20) for task in tasks) == 1999000
    finally:
        stop.set()
        thread.join()


def test_a_task_that_holds_the_interpreter_lets_others_in(one):
    """A worker that runs builtins only lets go of the interpreter now and then."""
    tasks = one.submit_many(sum, [range(300)] * 20_000)
    begin = time.monotonic()
    for _ in range(10):
        time.sleep(0)
    assert time.monotonic() - begin < 5
    wait(tasks, 20)


# ---- CPU


def test_idle_workers_cost_nothing():
    out = check_python(
        """
        import threading, time
        from affinitypool import ThreadPoolExecutor, wait
        with ThreadPoolExecutor(8) as pool:
            meet = threading.Barrier(8)
            wait([pool.submit(meet.wait) for _ in range(8)])
            wait([pool.submit(int) for _ in range(2000)])
            time.sleep(0.2)
            parks = pool.stats().parks
            begin = time.process_time()
            time.sleep(2)
            used = time.process_time() - begin
            print(pool.stats().workers, pool.stats().idle, pool.stats().parks - parks, used)
        """
    )
    workers, idle, parks, used = out.split()
    assert (int(workers), int(idle), int(parks)) == (8, 8, 0)
    assert float(used) < 0.005


def test_a_task_now_and_then_costs_little():
    out = check_python(
        """
        import time
        from affinitypool import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            pool.submit(int).result()
            begin, start = time.process_time(), time.monotonic()
            for _ in range(100):
                time.sleep(0.01)
                pool.submit(int).result()
            print((time.process_time() - begin) / (time.monotonic() - start))
        """
    )
    assert float(out) < 0.15


def test_waiters_cost_nothing():
    out = check_python(
        """
        import threading, time
        from affinitypool import Task, as_completed, wait
        tasks = [Task() for _ in range(3)]
        threads = [threading.Thread(target=target) for target in (
            tasks[0].result, lambda: wait(tasks), lambda: list(as_completed(tasks)))]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        begin = time.process_time()
        time.sleep(0.5)
        print(time.process_time() - begin)
        for task in tasks:
            task.set_result(0)
        """
    )
    from affinitypool import _binding

    backend = _binding.ffi.string(_binding.lib.ap_parking_backend())
    assert float(out) < (0.002 if backend == b"futex" else 0.02)


def test_the_process_has_no_thread_but_workers(one):
    before = set(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
    if before is None:
        pytest.skip("no /proc here")
    one.submit(int).result(10)
    assert len(set(os.listdir("/proc/self/task")) - before) == 1
