"""Objects that many threads hold and drop at once: each dies once, and none lives on.

Tasks, their arguments, results, exceptions and callbacks are shared between threads that drop them
together, while workers do.  Weak references and finalizers count; without a GIL the counts of
references are split between threads, and what is lost there shows here.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest
from helpers import all_dead, at_once, eventually, occupied

from affinitypool import Task, ThreadPoolExecutor, as_completed, wait

THREADS = 6
ROUNDS = 12


class Counted:
    """Counts its deaths.  To append is one step, also without a GIL."""

    made: list[None] = []
    died: list[None] = []

    def __init__(self, *parts):
        self.made.append(None)
        self.parts = parts

    def __del__(self):
        self.died.append(None)


def left():
    return len(Counted.made) - len(Counted.died)


@pytest.fixture(autouse=True)
def _switches():
    """Have threads meet in more places; begin and end with nothing."""
    before, interval = left(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
    gc.collect()
    assert eventually(lambda: left() == before, 10), f"{left() - before} live on"


def drop_together(shared, others=()):
    """Have each thread hold all of `shared`, and let go of them at the same time as the others."""
    meeting = threading.Barrier(THREADS + len(others))
    box = [list(shared) for _ in range(THREADS)]
    deaths = [weakref.ref(each) for each in shared]
    shared.clear()

    def drop(held):
        meeting.wait(20)
        while held:
            held.pop()

    def run(other):
        meeting.wait(20)
        other()

    at_once(*[lambda held=held: drop(held) for held in box], *[lambda o=o: run(o) for o in others])
    return deaths


@pytest.mark.parametrize("workers", [1, 4])
def test_arguments_and_results_dropped_from_everywhere(workers):
    """Each argument is in several tasks, and each result is another task's argument."""
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(ROUNDS):
            arguments = [Counted() for _ in range(8)]
            first = [pool.submit(Counted, *arguments) for _ in range(12)]
            second = [pool.submit(Counted, task) for task in first]
            third = [pool.submit(lambda t: t.result(20), task) for task in second]
            shared = [*arguments, *first, *second, *third]
            del arguments, first, second, third
            assert all_dead(drop_together(shared))


def test_results_read_while_the_last_reference_goes():
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            tasks = [pool.submit(Counted, n) for n in range(20)]

            def read(tasks=tuple(tasks)):
                assert [task.result(20).parts[0] for task in tasks] == list(range(20))

            deaths = drop_together(tasks, [read] * 3)
            del read
            assert all_dead(deaths)


def test_exceptions_raised_in_many_threads():
    """One exception, raised from its task by every thread at once."""

    def work():
        raise KeyError(Counted())

    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            task = pool.submit(work)

            def look(task=task):
                for _ in range(10):
                    with pytest.raises(KeyError):
                        task.result(20)
                    assert task.exception(20) is not None

            at_once(*[look] * THREADS)
            death = weakref.ref(task)
            del task, look
            gc.collect()  # the frames of who looked refer to the error, and it to them
            assert all_dead([death])


def test_callbacks_and_watchers_of_tasks_that_end_while_they_come():
    """Each callback is called once, and dies."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            called, tasks = [], [Task() for _ in range(10)]

            def add(tasks=tuple(tasks), called=called):
                for task in tasks:
                    held = Counted(task)
                    task.add_done_callback(lambda t, held=held: called.append(1))

            def watch(tasks=tuple(tasks)):
                assert sum(1 for _ in as_completed(tasks, 20)) == 10
                assert wait(tasks, 20).not_done == set()

            def end(tasks=tuple(tasks)):
                for task in tasks:
                    pool.submit(task.set_result, Counted())

            deaths = drop_together(tasks, [add, add, watch, watch, end])
            del add, watch, end
            assert eventually(lambda called=called: len(called) == 20)
            gc.collect()
            assert all_dead(deaths)


def test_setters_race_and_all_outcomes_but_one_are_dropped():
    for _ in range(ROUNDS * 4):
        task, won = Task(), []

        def decide(task=task, won=won):
            try:
                task.set_result(Counted())
                won.append(1)
            except Exception:
                task.result(20)

        at_once(*[decide] * THREADS)
        assert won == [1]
        assert left() == 1
        del task, decide
        assert eventually(lambda: left() == 0)


def test_cancels_race_starts():
    """A task's arguments die once, whoever gets it."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            with occupied(pool) as gate:
                tasks = [pool.submit(Counted, Counted()) for _ in range(40)]
                assert tasks[0].cancel()  # one for certain, the others as it happens

                def cancel(tasks=tuple(tasks)):
                    for task in tasks[::2]:
                        task.cancel()

                def take(tasks=tuple(tasks)):
                    for task in tasks[1::3]:
                        task._take_call()

                deaths = drop_together(tasks, [cancel, take, gate.set])
                del cancel, take
            assert all_dead(deaths)


def test_pools_dropped_by_many_threads_with_tasks_in_them():
    for _ in range(ROUNDS):
        pools = [ThreadPoolExecutor(2) for _ in range(3)]
        for pool in pools:
            pool.submit_many(Counted, [Counted() for _ in range(30)])
        del pool
        assert all_dead(drop_together(pools))


def test_a_finalizer_that_lets_go_of_tasks():
    """Chains of tasks, each the argument of the next, dropped at their end."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            chains = []
            for _ in range(4):
                task = pool.submit(Counted)
                for _ in range(30):
                    task = pool.submit(Counted, task)
                chains.append(task)
            del task
            assert all_dead(drop_together(chains))
