"""Memory, and what is near it.  What a task costs in bytes: tests/test_memory.py."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import decimal
import functools
import gc
import itertools
import os
import sys
import threading
import weakref

import pytest
from helpers import (
    HAS_GIL,
    Cell,
    Probe,
    all_dead,
    at_once,
    check_cases,
    check_python,
    eventually,
    fail,
    no_collector,
    occupied,
)

from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    Future,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)

pytestmark = pytest.mark.timeout(60)


class Error(Exception):
    """Can be weakly referred to."""


def use(*args, **kwargs):
    return 1


# ---- arguments


def submit_in_a_context(pool, fn, probe):
    variable = contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    context.run(variable.set, probe)
    return context.run(pool.submit, fn)


def submit_in_a_task(pool, fn, probe):
    return pool.submit(pool.submit, fn, probe).result(10)


# how (pool, function, argument) become a task
SHAPES = {
    "argument": lambda pool, fn, probe: pool.submit(fn, probe),
    "several": lambda pool, fn, probe: pool.submit(fn, 1, probe, 2),
    "keyword": lambda pool, fn, probe: pool.submit(fn, key=probe),
    "both": lambda pool, fn, probe: pool.submit(fn, 1, probe, key=probe),
    "function": lambda pool, fn, probe: pool.submit(functools.partial(fn, probe)),
    "closure": lambda pool, fn, probe: pool.submit(lambda: fn(probe)),
    "batch": lambda pool, fn, probe: pool.submit_many(fn, [probe])[0],
    "rows": lambda pool, fn, probe: pool.submit_many(fn, [1], [probe])[0],
    "context": submit_in_a_context,
}


def end_by_running(pool, submit, probe):
    task = submit(pool, use, probe)
    task.result(10)
    return task


def end_unseen(pool, submit, probe):
    task = submit(pool, use, probe)
    assert eventually(lambda: task._state == "FINISHED", 10)
    return task


def end_observed(pool, submit, probe):
    told = threading.Event()
    with occupied(pool):
        task = submit(pool, use, probe)
        task.add_done_callback(lambda _: told.set())
        assert task._condition
    told.wait(10)
    return task


def end_inline(pool, submit, probe):
    def waiter(box):
        task = submit(pool, use, box.pop())
        task.result()
        return task

    return pool.submit(waiter, [probe]).result(10)


def end_by(way):
    def end(pool, submit, probe):
        with occupied(pool):
            task = submit(pool, use, probe)
            way(pool, task)
        return task

    return end


def end_by_shutdown(pool, submit, probe):
    with ThreadPoolExecutor(2) as other:
        return submit(other, use, probe)


def end_by_dropping(pool, submit, probe):
    other = ThreadPoolExecutor(2)
    task = submit(other, use, probe)
    del other
    task.result(10)
    return task


def end_by_breaking(pool, submit, probe):
    import logging

    gate = threading.Event()
    logging.getLogger("concurrent.futures").disabled = True
    try:
        with ThreadPoolExecutor(
            1, initializer=lambda: gate.wait(10) and fail(OSError()), propagate_context=True
        ) as broken:
            task = submit(broken, use, probe)
            gate.set()
            task.exception(10)
        return task
    finally:
        logging.getLogger("concurrent.futures").disabled = False


ENDS = {
    "result": end_by_running,
    "unseen": end_unseen,
    "observed": end_observed,
    "inline": end_inline,
    "cancel": end_by(lambda pool, task: task.cancel()),
    "set_result": end_by(lambda pool, task: task.set_result(0)),
    "set_exception": end_by(lambda pool, task: task.set_exception(KeyError())),
    "set_running": end_by(lambda pool, task: task.set_running_or_notify_cancel()),
    "work-item": end_by(lambda pool, task: pool._work_queue.get_nowait().run()),
    "cancel-all": end_by(lambda pool, task: pool.shutdown(False, cancel_futures=True)),
    "shutdown": end_by_shutdown,
    "drop": end_by_dropping,
    "broken": end_by_breaking,
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_arguments_die_with_their_last_user(end, workers):
    """With the collector off, arguments are dead within a second of their last user, the pool
    idle: in every shape, however the task ends, and also if the task itself is kept."""
    with no_collector(collect=False):
        for name, submit in SHAPES.items():
            with ThreadPoolExecutor(workers) as pool:
                probe = Probe()
                deaths = [weakref.ref(probe)]

                def call(pool, fn, probe, submit=submit, deaths=deaths):
                    def own(*args, **kwargs):
                        return fn(*args, **kwargs)

                    deaths.append(weakref.ref(own))
                    return submit(pool, own, probe)

                task = end(pool, call, probe)
                del probe
                assert all_dead(deaths), name
                assert task is not None
                del task


@pytest.mark.parametrize("shape", SHAPES)
def test_arguments_of_a_call_that_raises_die_with_its_error(pool, shape):
    """The traceback holds the frame, and that the arguments; nothing else does."""

    def work(*args, **kwargs):
        raise Error

    with no_collector(collect=False):
        probe = Probe()
        death = weakref.ref(probe)
        task = SHAPES[shape](pool, work, probe)
        del probe
        assert isinstance(task.exception(10), Error)
        del task
        assert all_dead([death])


def test_arguments_of_a_builtin_that_raises_die_at_once(pool):
    """No frame, so nobody has a reason to hold them, although the task is kept."""
    with no_collector(collect=False):
        probe = Probe()
        death = weakref.ref(probe)
        task = pool.submit(int, probe)
        del probe
        assert isinstance(task.exception(10), TypeError)
        assert all_dead([death])


def test_the_last_arguments_die_while_the_workers_sleep(pool):
    """The pool idle: no further task is needed to push the last one out of a worker's hands."""
    with no_collector(collect=False):
        for count in (1, 2, 5, 40):
            deaths = []
            for _ in range(count):
                probe = Probe()
                deaths.append(weakref.ref(probe))
                pool.submit(use, probe)
                del probe
            assert all_dead(deaths)


# ---- results


LOOKS = {
    "never": lambda pool, fn: pool.submit(fn),
    "result": lambda pool, fn: pool.submit(fn).result(10),
    "exception": lambda pool, fn: pool.submit(fn).exception(10),
    "done": lambda pool, fn: eventually(pool.submit(fn).done),
    "wait": lambda pool, fn: wait([pool.submit(fn), pool.submit(fn)]),
    "wait-first": lambda pool, fn: wait([pool.submit(fn)], 10, FIRST_COMPLETED),
    "stdlib-wait": lambda pool, fn: concurrent.futures._base.wait([pool.submit(fn)], 10),
    "as_completed": lambda pool, fn: list(as_completed([pool.submit(fn), pool.submit(fn)])),
    "stdlib-as_completed": lambda pool, fn: list(
        concurrent.futures._base.as_completed([pool.submit(fn)], 10)
    ),
    "callback": lambda pool, fn: pool.submit(fn).add_done_callback(lambda t: t.exception()),
    "repr": lambda pool, fn: eventually(lambda t=pool.submit(fn): "finished" in repr(t)),
    "batch": lambda pool, fn: wait(pool.submit_many(lambda _: fn(), range(3))),
    "map": lambda pool, fn: list(pool.map(lambda _: fn(), range(3))),
    "map-buffered": lambda pool, fn: list(pool.map(lambda _: fn(), range(3), buffersize=2)),
    "map-abandoned": lambda pool, fn: next(pool.map(lambda _: fn(), range(3))),
    "in-a-task": lambda pool, fn: pool.submit(lambda: pool.submit(fn) and None).result(10),
    "passed-on": lambda pool, fn: pool.submit(pool.submit, fn).result(10).exception(10),
}


def work_item(pool, fn):
    with occupied(pool):
        task = pool.submit(fn)
        pool._work_queue.get_nowait().run()
        task.exception(10)
        del task  # this frame is the one that the error's frame links to


def inline(pool, fn):
    def waiter():
        pool.submit(fn).exception()

    pool.submit(waiter).result(10)


def inline_kept(pool, fn):
    def waiter():
        task = pool.submit(fn)
        task.exception()

    pool.submit(waiter).result(10)


def inline_wait(pool, fn):
    pool.submit(lambda: wait([pool.submit(fn)]) and None).result(10)


def inline_first(pool, fn):
    pool.submit(lambda: wait([pool.submit(fn)], None, FIRST_COMPLETED) and None).result(10)


def inline_completed(pool, fn):
    pool.submit(lambda: list(as_completed([pool.submit(fn)])) and None).result(10)


def asyncio_gather(pool, fn):
    async def main():
        futures = [asyncio.wrap_future(pool.submit(fn)) for _ in range(2)]
        return [None for _ in await asyncio.gather(*futures, return_exceptions=True)]

    asyncio.run(main())


def outcome(fn):
    try:
        return fn()
    except Error as error:
        return error


def set_from_outside(pool, fn):
    task, result = Task(), outcome(fn)
    if isinstance(result, Error):
        task.set_exception(result)
    else:
        task.set_result(result)
    task.exception()
    del task, result  # this frame is the one that the error's frame links to


LOOKS |= {
    "work-item": work_item,
    "inline": inline,
    "inline-kept": inline_kept,
    "inline-wait": inline_wait,
    "inline-first": inline_first,
    "inline-completed": inline_completed,
    "outside": set_from_outside,
}


every_look = pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)


@every_look
def test_results_die_with_their_last_user(pool, look):
    """With the collector off, results are dead within a second of their last user."""
    deaths = []

    def work():
        result = Probe()
        deaths.append(weakref.ref(result))
        return result

    with no_collector(collect=False):
        for n in range(5):
            look(pool, work)
            assert eventually(lambda n=n: len(deaths) > n)
            assert all_dead(deaths)


def test_a_result_that_is_shared_is_not_held(one):
    with no_collector(collect=False):
        result = Cell()
        tasks = [one.submit(lambda same: same, result) for _ in range(100)]
        assert all(task.result(10) is result for task in tasks)
        death = weakref.ref(result)
        del tasks, result
        assert all_dead([death])


# ---- exceptions


def attempt(pool, look, work):
    with contextlib.suppress(Error, RuntimeError):
        look(pool, work)


@every_look
def test_failed_tasks_leave_no_cycles(two, look):
    """200 failed tasks leave no cycles: with the collector off, their exceptions are dead within a
    second, and what their frames held."""
    deaths = []

    def work():
        local, error = Probe(), Error()
        deaths.extend([weakref.ref(error), weakref.ref(local)])
        try:
            raise error
        finally:
            del error, local

    with no_collector(collect=False):
        for _ in range(200):
            attempt(two, look, work)
        assert eventually(lambda: len(deaths) >= 400)
        assert all_dead(deaths)


def test_failed_tasks_leave_the_collector_nothing(two):
    """The same told by the collector: it finds next to nothing."""

    def work():
        raise Error

    def run():
        for _ in range(200):
            with contextlib.suppress(Error):
                two.submit(work).result(10)
            two.submit(work).exception(10)
            two.submit(work)
        list(as_completed([two.submit(work) for _ in range(200)]))

    run()
    with no_collector():
        run()
        assert two.wait_idle(10)
        assert gc.collect() < 20


def test_failed_tasks_that_asyncio_awaits_die(two):
    deaths = []

    def work():
        error = Error()
        deaths.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    with no_collector(collect=False):
        asyncio_gather(two, work)
        gc.collect()  # loops and their futures are cycles of their own
        assert len(deaths) == 2
        assert all_dead(deaths)


def test_an_error_that_a_callback_raises_dies(one, monkeypatch):
    import logging

    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", lambda record: None)
    deaths = []

    def callback(task):
        error = Error()
        deaths.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    with no_collector(collect=False):
        with occupied(one):
            task = one.submit(int)
            for _ in range(5):
                task.add_done_callback(callback)
        assert one.wait_idle(10)
        assert len(deaths) == 5
        assert all_dead(deaths)
        task.add_done_callback(callback)
        assert all_dead(deaths)


def test_the_errors_of_a_broken_pool_die_with_it(monkeypatch):
    import logging

    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", lambda record: None)
    deaths = []

    def initializer():
        error = Error()
        deaths.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    with no_collector(collect=False):
        pool = ThreadPoolExecutor(2, initializer=initializer)
        for _ in range(5):
            try:
                task = pool.submit(int)
            except RuntimeError:
                break
            broken = task.exception(10)
            if broken is not None:
                deaths.append(weakref.ref(broken))
            del broken, task
        pool.shutdown()
        deaths.append(weakref.ref(pool))
        del pool
        assert len(deaths) >= 3
        assert all_dead(deaths)


def test_a_kept_error_holds_no_task_and_no_pool(one):
    """People keep errors in lists for a report: that keeps frames of the task, not the task."""

    def work():
        raise Error

    with no_collector(collect=False):
        pool = ThreadPoolExecutor(1)
        task = pool.submit(work)
        error = task.exception(10)
        deaths = [weakref.ref(task), weakref.ref(pool)]
        del task, pool
        assert all_dead(deaths)
        assert isinstance(error, Error)


# ---- cycles


def collected(*references):
    def gone():
        gc.collect()
        return not any(reference() is not None for reference in references)

    return eventually(gone, 10)


def cycle_through_the_result(pool):
    box = []
    gate = threading.Event()

    def work():
        gate.wait(10)
        return box.pop()

    task = pool.submit(work)
    box.append(task)
    gate.set()
    assert task.result(10) is task
    return task


def cycle_through_the_error(pool):
    error = Error()
    task = pool.submit(fail, error)
    error.task = task
    task.exception(10)
    return task


def cycle_through_the_frame(pool):
    box, gate = [], threading.Event()

    def work():
        gate.wait(10)
        own = box.pop()
        raise Error(own)

    task = pool.submit(work)
    box.append(task)
    gate.set()
    task.exception(10)
    return task


def cycle_through_an_argument(pool):
    cell = Cell()
    task = pool.submit(use, cell)
    cell.content = task
    task.note = cell
    task.result(10)
    return task


def cycle_through_an_argument_of_a_cancelled_task(pool):
    with occupied(pool):
        cell = Cell()
        task = pool.submit(use, cell)
        cell.content = task
        task.note = cell
        task.cancel()
    return task


def cycle_through_callbacks(pool):
    task = Task()
    task.add_done_callback(functools.partial(use, task))
    return task


def cycle_through_the_waiters(pool):
    task = Task()
    task._waiters.append(task)
    return task


def cycle_through_a_watcher(pool):
    task = Task()
    other = Task()
    other.set_result(0)
    waiting = as_completed([task, other])
    next(waiting)
    task.waiting = waiting
    return task


def cycle_of_two_tasks(pool):
    first, second = Task(), Task()
    first.set_result([second])
    second.set_exception(Error(first))
    return first


def cycle_through_the_pool(pool):
    own = ThreadPoolExecutor(2)
    task = own.submit(int)
    own.task, task.pool = task, own
    task.result(10)
    return task


def cycle_through_map(pool):
    task = pool.submit(int)
    task.results = pool.map(lambda n: task, range(3))
    next(task.results)
    return task


CYCLES = {
    name.removeprefix("cycle_"): function
    for name, function in list(globals().items())
    if name.startswith("cycle_")
}


@pytest.mark.parametrize("where", ["main", "thread", "worker"])
@pytest.mark.parametrize("make", CYCLES.values(), ids=CYCLES)
def test_cycles_are_collected(two, make, where):
    """Results that are the task, tasks in cycles with their pool, arguments with the task; in
    whatever thread the collector runs."""

    def run():
        task = make(two)
        deaths = [weakref.ref(task)]
        task.probe = Probe()
        deaths.append(weakref.ref(task.probe))
        del task
        return deaths

    deaths = run()
    if where == "main":
        assert collected(*deaths)
    elif where == "thread":
        assert at_once(functools.partial(collected, *deaths)) == [True]
    else:
        assert two.submit(collected, *deaths).result(20)


def test_a_pending_task_in_a_cycle_is_left_alone(two):
    """What is queued is owned by the queue: no collector takes it, its arguments or callbacks."""
    ran, called = [], []

    def work(cell):
        ran.append(cell.content is not None)

    with occupied(two):
        for _ in range(50):
            cell = Cell()
            task = two.submit(work, cell)
            cell.content = task
            task.note = cell
            task.add_done_callback(lambda t: called.append(t.note is not None))
            del cell, task
        for collect in (gc.collect, functools.partial(at_once, gc.collect)):
            collect()
    assert two.wait_idle(10)
    assert ran == [True] * 50
    assert eventually(lambda: called == [True] * 50)


def test_a_pool_in_a_cycle_with_pending_tasks_runs_them():
    ran = []
    pool, gate = ThreadPoolExecutor(1), threading.Event()
    pool.submit(gate.wait, 10)
    tasks = [pool.submit(ran.append, n) for n in range(50)]
    pool.tasks = tasks
    tasks[0].pool = pool
    death = weakref.ref(pool)
    last = tasks[-1]
    del pool, tasks
    gc.collect()
    assert death() is not None  # the queue has a task that refers to it
    gate.set()
    last.result(10)
    assert ran == list(range(50))
    del last
    assert collected(death)


@pytest.mark.parametrize("how", ["drop-task", "drop-pool", "drop-both"])
def test_what_is_dropped_while_it_runs_goes_on(how):
    for observed in (False, True):
        pool, gate, entered = ThreadPoolExecutor(1), threading.Event(), threading.Event()
        ran, called = [], []
        probe = Probe()
        deaths = [weakref.ref(probe)]

        def work(probe, entered=entered, gate=gate, ran=ran):
            entered.set()
            gate.wait(10)
            ran.append(1)
            return probe

        with no_collector(collect=False):
            task = pool.submit(work, probe)
            after = pool.submit(ran.append, 2)
            if observed:
                task.add_done_callback(lambda t, called=called: called.append(t.done()))
            entered.wait(10)
            del probe
            deaths += [weakref.ref(task), weakref.ref(pool)]
            if how != "drop-pool":
                del task
            if how != "drop-task":
                del pool
            gate.set()
            after.result(10)
            assert ran == [1, 2]
            assert called == [True] * observed
            if how != "drop-pool":
                assert all_dead(deaths[:2])
            else:
                del task
            if how != "drop-task":
                assert all_dead(deaths)
            else:
                pool.shutdown()


# ---- finalizers


class Dying:
    """Does something when it dies."""

    def __init__(self, action):
        self.action = action

    def __call__(self, *args):
        return None

    def __del__(self):
        self.action()


def dying_argument(pool, dying):
    pool.submit(use, dying)


def dying_keyword(pool, dying):
    pool.submit(use, key=dying)


def dying_function(pool, dying):
    pool.submit(dying)


def dying_result(pool, dying):
    pool.submit(lambda box: box.pop(), [dying])


def dying_result_in_hand(pool, dying):
    task = pool.submit(lambda box: box.pop(), [dying])
    del dying
    task.result(10)


def dying_error(pool, dying):
    def work(box):
        error = Error()
        error.dying = box.pop()
        try:
            raise error
        finally:
            del error

    pool.submit(work, [dying])


def dying_local(pool, dying):
    def work(box):
        own = box.pop()
        assert own is None

    pool.submit(work, [dying])


def dying_callback(pool, dying):
    with occupied(pool):
        pool.submit(int).add_done_callback(dying)


def dying_attribute(pool, dying):
    task = pool.submit(int)
    task.dying = dying
    del dying
    task.result(10)


def dying_context(pool, dying):
    submit_in_a_context(pool, int, dying)


def dying_cancelled(pool, dying):
    with ThreadPoolExecutor(1) as other, occupied(other):
        task = other.submit(use, dying)
        del dying
        task.cancel()


def dying_refused(pool, dying):
    other = ThreadPoolExecutor(1)
    other.shutdown()
    with contextlib.suppress(RuntimeError):
        other.submit(use, dying)


def dying_map(pool, dying):
    box = [dying]
    del dying
    list(pool.map(lambda _: box.pop(), [1]))


PLACES = {
    name.removeprefix("dying_"): function
    for name, function in list(globals().items())
    if name.startswith("dying_")
}

ACTIONS = {
    "submits": lambda pool, other: pool.submit(abs, -1),
    "submits-many": lambda pool, other: pool.submit_many(abs, range(5)),
    "waits": lambda pool, other: pool.submit(abs, -1).result(20),
    "maps": lambda pool, other: list(pool.map(abs, [-1, -2])),
    "wait": lambda pool, other: wait([pool.submit(abs, -1) for _ in range(3)], 20),
    "as_completed": lambda pool, other: list(as_completed([pool.submit(abs, -1)], 20)),
    "cancels": lambda pool, other: other.cancel(),
    "collects": lambda pool, other: gc.collect(),
    "makes-a-pool": lambda pool, other: ThreadPoolExecutor(1).submit(abs, -1).result(20),
    "raises": lambda pool, other: fail(Error("in a finalizer")),
    "exits": lambda pool, other: sys.exit(3),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_finalizer_may_use_the_pool(monkeypatch, action, workers):
    """`__del__` that submits, waits, cancels: wherever the object dies, in worker or caller."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_type))
    for name, place in PLACES.items():
        with ThreadPoolExecutor(workers) as pool:
            done, other = [], Task()

            def act(pool=pool, done=done, other=other):
                try:
                    return ACTIONS[action](pool, other)
                finally:
                    done.append(1)

            place(pool, Dying(act))
            assert eventually(lambda done=done: done, 10), name
            assert pool.submit(abs, -1).result(10) == 1
            assert other.cancelled() == (action == "cancels")
            assert done == [1]
            del act
    assert len(unraisable) == (len(PLACES) if action in ("raises", "exits") else 0)


def test_weak_reference_callbacks_may_use_the_pool(one):
    done = []
    for _ in range(20):
        probe = Probe()
        task = one.submit(use, probe)
        references = [
            weakref.ref(target, lambda _: done.append(one.submit(abs, -1)))
            for target in (probe, task)
        ]
        del probe, task
        assert all_dead(references)
    assert eventually(lambda: len(done) == 40)
    assert [task.result(10) for task in done] == [1] * 40


def test_a_pool_that_is_dropped_by_its_own_finalizing_argument():
    """The last reference to the pool is in an argument that dies in the pool's worker."""
    for _ in range(20):
        pool = ThreadPoolExecutor(2)
        death = weakref.ref(pool)
        cell = Cell(pool)
        task = pool.submit(use, cell)
        after = pool.submit(abs, -1)
        del pool, cell
        assert task.result(10) == 1
        assert after.result(10) == 1
        assert all_dead([death])


def test_the_collector_in_every_thread():
    """It may run at every allocation: in submits, workers, waits, callbacks, and beside them."""
    code = """
    import gc, threading
    from affinitypool import ThreadPoolExecutor, as_completed, wait
    class Cell:
        def __init__(self):
            self.me = self
        def __del__(self):
            died.append(1)
    died, called, stop = [], [], threading.Event()
    def work(cell):
        return [Cell(), cell]
    def collect():
        while not stop.wait(0.001):
            gc.collect()
    def produce(pool):
        for _ in range(6):
            tasks = [pool.submit(work, Cell()) for _ in range(30)]
            tasks += pool.submit_many(work, [Cell() for _ in range(10)])
            for task in tasks:
                task.me = task
                task.add_done_callback(lambda t: called.append(t.done()))
            tasks[5].cancel()
            assert wait(tasks[:20], 30).not_done == set()
            assert len(list(as_completed(tasks, 30))) == 40
            assert len(list(pool.map(work, [Cell() for _ in range(10)], buffersize=3))) == 10
    before = gc.get_threshold()
    with ThreadPoolExecutor(3) as pool:
        collector = threading.Thread(target=collect)
        producers = [threading.Thread(target=produce, args=[pool]) for _ in range(3)]
        gc.set_threshold(2, 2, 2)
        for thread in [collector, *producers]:
            thread.start()
        for thread in producers:
            thread.join()
        stop.set()
        collector.join()
        gc.set_threshold(*before)
    gc.collect()
    print(len(called) == 3 * 6 * 40, len(died) >= 3 * 6 * 50)
    """
    assert check_python(code, timeout=50) == "True True\n"


# ---- counts


def counted_uses(pool):
    """Objects that many tasks use, and what uses them once."""

    class Function:
        def __call__(self, *args, **kwargs):
            return result

        def fail(self, *args, **kwargs):
            raise error

    function, argument, value, result, callback = Function(), Cell(), Cell(), Cell(), Function()
    error, variable = Error(), contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    context.run(variable.set, value)

    def once(n):
        kind = n % 10
        if kind == 0:
            pool.submit(function, argument, key=value)
        elif kind == 1:
            pool.submit(function, argument).result(10)
        elif kind == 2:
            with contextlib.suppress(Error):
                pool.submit(function.fail, argument, argument).result(10)
            error.__traceback__ = None
        elif kind == 3:
            pool.submit(function).add_done_callback(callback)
        elif kind == 4:
            pool.submit(function, argument, key=value).cancel()
        elif kind == 5:
            task = pool.submit(function, argument)
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                task.set_result(result)
        elif kind == 6:
            context.run(pool.submit, function, argument).result(10)
        elif kind == 7:
            wait([pool.submit(function, argument)])
        elif kind == 8:
            list(as_completed(pool.submit_many(function, [argument] * 3)))
        else:
            list(pool.map(function, [argument] * 3, buffersize=2))

    named = {
        "function": function,
        "argument": argument,
        "value": value,
        "result": result,
        "callback": callback,
        "error": error,
        "variable": variable,
        "context": context,
        "pool": pool,
        "core": pool._core,
        "None": None,
    }
    return once, named


def test_reference_counts_stay(two):
    """Over 10,000 tasks no count of anything that they share goes up, or down."""
    once, named = counted_uses(two)

    def counts():
        assert two.wait_idle(10)
        named["error"].__traceback__ = None
        return {name: sys.getrefcount(item) for name, item in named.items()}

    def differ():
        after = counts()
        return {
            name: (before[name], after[name])
            for name in named
            if abs(before[name] - after[name]) > (300 if name == "None" else 2)
        }

    # both workers are there: a thread that starts later refers to the core as well
    meeting = threading.Barrier(2)
    assert len(list(two.map(meeting.wait, [10, 10]))) == 2
    for n in range(200):
        once(n)
    before = counts()
    for n in range(8000):
        once(n)
    assert eventually(lambda: not differ(), 5), differ()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_stays_flat():
    """Over 200,000 tasks with failures and callbacks: RSS stays flat, and the number of objects."""
    out = check_python(
        """
        import contextvars, gc, logging
        from affinitypool import ThreadPoolExecutor, as_completed, wait
        logging.getLogger("concurrent.futures").disabled = True
        from pathlib import Path
        rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        called = 0
        variable = contextvars.ContextVar("variable")
        def callback(task):
            global called
            called += 1
            if called % 7 == 0:
                raise KeyError
        def work(n, key=None):
            if n % 3 == 0:
                raise KeyError(n)
            return [n]
        def wave(pool, start):
            variable.set(start)
            tasks = [pool.submit(work, n, key=start) for n in range(start, start + 1000)]
            tasks += pool.submit_many(work, range(1000))
            for task in tasks[::2]:
                task.add_done_callback(callback)
            for task in tasks[::50]:
                task.cancel()
                task.note = task
            wait(tasks[:500])
            for task in as_completed(tasks):
                if not task.cancelled():
                    task.exception()
        with ThreadPoolExecutor(2) as pool:
            for n in range(20):
                wave(pool, n)
            gc.collect()
            before, objects = rss(), len(gc.get_objects())
            for n in range(80):
                wave(pool, n)
            gc.collect()
            print(rss() - before, len(gc.get_objects()) - objects)
        """,
        timeout=50,
    )
    grown, objects = map(int, out.split())
    # without a GIL CPython's allocator keeps a part of what crosses threads, whatever the pool
    assert grown < (2 << 20 if HAS_GIL else 12 << 20)
    assert objects < 500


def test_a_long_chain_through_tasks_dies_without_overflow():
    """A task refers to the one before, which refers to the one before: 100,000 of them."""
    check_cases(["results", "arguments", "errors", "contexts"], check_a_long_chain)


def check_a_long_chain(kind):
    out = check_python(
        f"""
        import contextvars, threading
        from affinitypool import ThreadPoolExecutor, wait
        kind, last = {kind!r}, None
        variable = contextvars.ContextVar("variable")
        def work(task):
            if kind == "errors":
                raise KeyError(task)
            return task
        with ThreadPoolExecutor(1) as pool:
            gate = threading.Event()
            pool.submit(gate.wait)
            for _ in range(100_000):
                if kind == "contexts":
                    variable.set(last)
                    last = pool.submit(int)
                elif kind == "arguments":
                    last = pool.submit(id, last)
                else:
                    last = pool.submit(work, last)
            if kind in ("arguments", "contexts"):
                variable.set(None)
                pool.shutdown(wait=False, cancel_futures=True)
            gate.set()
            wait([last])
        del last
        print("done")
        """,
        timeout=50,
    )
    assert out == "done\n"


# ---- contexts


variable = contextvars.ContextVar("variable", default="unset")


def set_and_get(value):
    before = variable.get()
    variable.set(value)
    return before


CONTEXT_FORMS = {
    "submit": lambda pool, fn, value: pool.submit(fn, value).result(10),
    "batch": lambda pool, fn, value: pool.submit_many(fn, [value])[0].result(10),
    "map": lambda pool, fn, value: next(pool.map(fn, [value])),
    "map-buffered": lambda pool, fn, value: next(pool.map(fn, [value], buffersize=1)),
    "in-a-task": lambda pool, fn, value: pool.submit(pool.submit, fn, value).result(10).result(10),
    "inline": lambda pool, fn, value: pool.submit(lambda: pool.submit(fn, value).result()).result(
        10
    ),
}
every_form = pytest.mark.parametrize("form", CONTEXT_FORMS.values(), ids=CONTEXT_FORMS)


@every_form
def test_what_a_task_sets_never_shows_in_the_next(pool, form):
    """One task's context variables never show in the next."""
    for n in range(30):
        assert form(pool, set_and_get, n) == "unset"
    assert variable.get() == "unset"


@every_form
def test_each_task_sees_what_its_submitter_sees(pool, form):
    """Each task sees its submitter's: as it was at the submit, and a copy of it."""
    context = contextvars.copy_context()
    for n in range(10):
        context.run(variable.set, n)
        assert context.run(form, pool, set_and_get, "changed") == n
        assert context.run(variable.get) == n
        assert form(pool, set_and_get, "changed") == "unset"


def test_tasks_of_many_submitters_see_their_own(pool):
    def submitter(value):
        variable.set(value)
        tasks = [pool.submit(set_and_get, "changed") for _ in range(100)]
        return [task.result(20) for task in tasks]

    values = at_once(*(functools.partial(submitter, value) for value in "abcd"))
    assert values == [[value] * 100 for value in "abcd"]


def test_the_context_at_the_submit_counts_not_that_of_the_run(one):
    context = contextvars.copy_context()
    context.run(variable.set, "at the submit")
    with occupied(one):
        task = context.run(one.submit, variable.get)
        context.run(variable.set, "later")
    assert task.result(10) == "at the submit"


def test_a_failed_or_cancelled_task_leaves_no_context_behind(one):
    def set_and_fail():
        variable.set("failed")
        raise Error

    empty = functools.partial(contextvars.Context().run, one.submit)
    context = contextvars.copy_context()
    context.run(variable.set, "submitter")
    for run in (one.submit, functools.partial(context.run, one.submit)):
        assert isinstance(run(set_and_fail).exception(10), Error)
        assert one.submit(variable.get).result(10) == "unset"
    with occupied(one):
        context.run(one.submit, variable.get).cancel()
    assert one.submit(variable.get).result(10) == "unset"
    assert len(empty(contextvars.copy_context).result(10)) == 0


def test_workers_start_with_an_empty_context():
    """Workers start with an empty context, also where the first submit comes out of a full one."""
    context = contextvars.copy_context()
    context.run(variable.set, "starter")
    for options in ({}, {"propagate_context": False}, {"initializer": int}):
        with ThreadPoolExecutor(1, **options) as pool:
            context.run(pool.submit, int).result(10)
            assert pool.submit(variable.get).result(10) == "unset"
            empty = functools.partial(contextvars.Context().run, pool.submit)
            assert len(empty(contextvars.copy_context).result(10)) == 0


@pytest.mark.skipif(sys.version_info < (3, 14), reason="threads inherit a context from 3.14 on")
@pytest.mark.parametrize("flag", ["0", "1"])
def test_workers_start_with_an_empty_context_where_threads_inherit_one(flag):
    """...also where threads inherit one by default."""
    out = check_python(
        """
        import contextvars
        from affinitypool import ThreadPoolExecutor
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("starter")
        for options in ({"propagate_context": False}, {"initializer": int}):
            with ThreadPoolExecutor(1, **options) as pool:
                print(pool.submit(variable.get).result(), end=" ")
                print(len(pool.submit(contextvars.copy_context).result()))
        with ThreadPoolExecutor(1) as pool:
            print(pool.submit(variable.get).result())
        """,
        options=("-X", f"thread_inherit_context={flag}"),
    )
    assert out == "unset 0\nstarter 1\nstarter\n"


def test_decimal_contexts_do_not_leak(one):
    """The stdlib's own users of context variables."""

    def lower():
        decimal.setcontext(decimal.Context(prec=3))
        return decimal.Decimal(1) / 3

    def plain():
        return decimal.Decimal(1) / 3

    expected = plain()
    for _ in range(5):
        assert one.submit(lower).result(10) == decimal.Decimal("0.333")
        assert one.submit(plain).result(10) == expected
    assert plain() == expected


# ---- as_completed and map drop what they have handed out


COMPLETED = {
    "ours": as_completed,
    "list": lambda tasks: as_completed(list(tasks)),
    "generator": lambda tasks: as_completed(task for task in list(tasks)),
    "dictionary": lambda tasks: as_completed(dict.fromkeys(tasks)),
    "duplicates": lambda tasks: as_completed([*tasks, *tasks]),
    "timeout": lambda tasks: as_completed(tasks, 20),
    "mixed": lambda tasks: as_completed([*tasks, Future()], 20),
}


@pytest.mark.parametrize("way", COMPLETED.values(), ids=COMPLETED)
@pytest.mark.parametrize("before", [0, 3, 6])
def test_as_completed_drops_what_it_has_handed_out(two, way, before):
    """`as_completed` drops what it has handed out: at once, while others are pending."""
    with no_collector(collect=False):
        gates = [threading.Event() for _ in range(6)]
        tasks = [Task() for _ in gates]
        for task in tasks[:before]:
            task.set_result(Probe())
        deaths = {id(task): weakref.ref(task) for task in tasks}
        results = {id(task): weakref.ref(task._result) for task in tasks[:before]}
        waiting = way(tasks)
        pending = tasks[before:]
        tasks = task = None
        order = []
        for _ in range(before):
            task = next(waiting)
            order.append(id(task))
            del task
            assert all_dead([deaths[order[-1]], results[order[-1]]])
        while pending:
            task = pending.pop()
            expected = id(task)
            task.set_result(0)
            del task
            task = next(waiting)
            assert id(task) == expected
            del task
            assert all_dead([deaths[expected]])
        waiting.close()


def test_as_completed_over_live_tasks_drops_results_one_by_one(pool):
    with no_collector(collect=False):
        deaths = []

        def work():
            probe = Probe()
            deaths.append(weakref.ref(probe))
            return probe

        alive = 0
        for task in as_completed([pool.submit(work) for _ in range(200)], 20):
            assert task.result(0) is not None
            del task
            alive += 1
        assert alive == 200
        assert all_dead(deaths)


@pytest.mark.parametrize("when", [None, FIRST_COMPLETED, FIRST_EXCEPTION])
def test_wait_holds_nothing_when_it_has_returned(two, when):
    with no_collector(collect=False):
        for timeout in (None, 0, 0.001, 20):
            tasks = [Task() for _ in range(5)]
            for task in tasks[: 5 if timeout in (None, 20) else 2]:
                task.set_result(Probe())
            deaths = [weakref.ref(task) for task in tasks]
            wait(tasks, timeout, *[when][: when is not None])
            wait([*tasks, Future()], 0)
            del tasks, task
            assert all_dead(deaths)


MAPS = {
    "plain": lambda pool, fn, *rows: pool.map(fn, *rows),
    "timeout": lambda pool, fn, *rows: pool.map(fn, *rows, timeout=20),
    "buffer-1": lambda pool, fn, *rows: pool.map(fn, *rows, buffersize=1),
    "buffer-3": lambda pool, fn, *rows: pool.map(fn, *rows, buffersize=3),
    "buffer-100": lambda pool, fn, *rows: pool.map(fn, *rows, buffersize=100),
}


@pytest.mark.parametrize("way", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("columns", [1, 2])
def test_map_drops_what_it_has_handed_out(pool, way, columns):
    """`map` drops what it has handed out: each result, before the next is asked for."""
    with no_collector(collect=False):
        results = way(pool, lambda *row: Probe(), *[range(8)] * columns)
        for _ in range(8):
            assert all_dead([weakref.ref(next(results))])
        assert next(results, None) is None


# ---- pools


POOL_USES = {
    "submit": lambda pool: pool.submit(abs, -1).result(10),
    "unseen": lambda pool: pool.submit(abs, -1),
    "several": lambda pool: [task.result(10) for task in pool.submit_many(abs, range(10))],
    "map": lambda pool: list(pool.map(abs, range(5))),
    "map-abandoned": lambda pool: next(pool.map(abs, range(5), buffersize=2)),
    "callback": lambda pool: pool.submit(abs, -1).add_done_callback(lambda t: None),
    "failed": lambda pool: pool.submit(int, "x").exception(10),
    "cancelled": lambda pool: pool.submit(int).cancel(),
    "nothing": lambda pool: None,
    "nested": lambda pool: pool.submit(lambda: pool.submit(abs, -1).result()).result(10),
}


@pytest.mark.parametrize("use", POOL_USES.values(), ids=POOL_USES)
def test_pools_used_once_and_dropped_leave_no_threads(use):
    """50 pools made, used once and dropped leave no threads, and the pools die by themselves."""
    before = set(threading.enumerate())
    deaths = []
    with no_collector(collect=False):
        for _ in range(50):
            pool = ThreadPoolExecutor(2)
            use(pool)
            deaths.append(weakref.ref(pool))
            del pool
        assert all_dead(deaths)
        assert eventually(lambda: set(threading.enumerate()) <= before, 10)


def test_pools_in_cycles_leave_no_threads():
    before = set(threading.enumerate())
    for _ in range(50):
        pool = ThreadPoolExecutor(2)
        pool.me = pool
        pool.task = pool.submit(abs, -1)
        pool.task.result(10)
        del pool
    gc.collect()
    assert eventually(lambda: set(threading.enumerate()) <= before, 10)


@pytest.mark.parametrize("how", ["submit", "batch", "map", "in-a-task", "ring"])
@pytest.mark.parametrize("workers", [1, 3])
def test_pending_tasks_of_a_dropped_pool_run(workers, how):
    """50 pending tasks of a dropped pool run: from the queues and from the rings of workers."""
    ran, box, gate = [], [], threading.Event()
    pool = ThreadPoolExecutor(workers)
    death = weakref.ref(pool)
    holders = [pool.submit(gate.wait, 20) for _ in range(workers - 1)]
    filled = threading.Event()

    def produce(own):
        if how in ("in-a-task", "ring"):
            box.extend(own().submit(ran.append, n) for n in range(50))
        filled.set()
        gate.wait(20)

    holders.append(pool.submit(produce, death))
    assert filled.wait(10)
    if how == "submit":
        box.extend(pool.submit(ran.append, n) for n in range(50))
    elif how == "batch":
        box.extend(pool.submit_many(ran.append, range(50)))
    elif how == "map":
        box.append(pool.map(ran.append, range(50)))
    with no_collector(collect=False):
        del pool
        assert all_dead([death])
    if how != "map":
        assert not any(task.done() for task in box)
    gate.set()
    if how == "map":
        assert list(box.pop()) == [None] * 50
    else:
        assert wait(box, 20).not_done == set()
    assert sorted(ran) == list(range(50))
    assert wait(holders, 20).not_done == set()


def test_tasks_that_are_dropped_with_their_pool_run_too():
    """Nobody has a handle on anything any more."""
    for _ in range(10):
        ran = itertools.count()
        pool = ThreadPoolExecutor(2)
        for _ in range(50):
            pool.submit(next, ran)
        del pool
        assert eventually(lambda ran=ran: repr(ran) == "count(50)", 10)


def test_what_a_dropped_pool_was_given_dies_with_it():
    """Its initializer, their arguments, its name, and the attributes that others set."""
    with no_collector(collect=False):
        probes = [Probe() for _ in range(3)]
        deaths = [weakref.ref(probe) for probe in probes]
        pool = ThreadPoolExecutor(
            2, initializer=functools.partial(use, probes[0]), initargs=(probes[1],)
        )
        pool.note = probes[2]
        pool.submit(int).result(10)
        threads = [weakref.ref(thread) for thread in pool._threads]
        del pool, probes
        assert all_dead(deaths)
        assert all_dead(threads)


@pytest.mark.skipif(not HAS_GIL, reason="without a GIL every object is tracked from the start")
def test_a_task_that_nobody_decorates_is_no_work_for_the_collector(one):
    """A queue of a million tasks must not cost the collector a walk over a million objects."""
    with occupied(one):
        tasks = [one.submit(use, n) for n in range(1000)]
        assert not any(gc.is_tracked(task) for task in tasks)
    assert wait(tasks, 10).not_done == set()
    assert not any(gc.is_tracked(task) for task in tasks)


@pytest.mark.skipif(not HAS_GIL, reason="the allocation that fails may be the waiter's own there")
@pytest.mark.parametrize("waiting", ["as_completed", "wait"])
def test_no_end_of_a_task_is_missed_when_memory_is_short(waiting):
    """One allocation fails, the n-th from here: whoever waits for several returns all the same."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told that memory is out")
    out = check_python(
        f"""
        import sys, threading, logging, _testcapi
        from affinitypool import Task, as_completed, wait
        logging.disable(logging.CRITICAL)
        sys.unraisablehook = threading.excepthook = lambda *_: None
        on, off = _testcapi.set_nomemory, _testcapi.remove_mem_hooks
        def end(tasks, n):
            on(n, n + 1)
            try:
                for task in tasks:
                    task.set_result(None)
            finally:
                off()
        for n in range(30):
            tasks = [Task() for _ in range(3)]
            for task in tasks:
                task.set_running_or_notify_cancel()
            def finish(task=tasks[0]):
                try:
                    end(tasks, n)
                except MemoryError:
                    pass
                for task in tasks:
                    if not task.done():
                        task.set_result(None)
            if {waiting!r} == "wait":
                watcher = threading.Thread(target=lambda: wait(tasks, 10, "FIRST_COMPLETED"))
                watcher.start()
                finish()
                watcher.join(5)
                assert not watcher.is_alive(), n
            else:
                ended = as_completed(tasks, 10)
                done = threading.Thread(target=finish)
                done.start()
                assert len(list(ended)) == 3, n
                done.join()
        print("ends", flush=True)
        """
    )
    assert out == "ends\n"
