"""Exactly once, and progress; order and idle workers are in tests/faults/test_scheduling.py."""

from __future__ import annotations

import random
import threading
import time

import pytest

from affinitypool import ThreadPoolExecutor, wait

pytestmark = pytest.mark.timeout(60)


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
