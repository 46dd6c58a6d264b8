"""Deadlock and re-entrancy: waits inside tasks, signal handlers, finalizers, Ctrl-C, imports."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import gc
import logging
import signal
import sys
import threading

import pytest
from helpers import ROOT, check_python, eventually, occupied, run_python

from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    ShutdownError,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from faults.interrupts import FOLDERS, at_each_place, handled, pending_at

pytestmark = pytest.mark.timeout(25)


def ended():
    """Make a future of the stdlib that is done."""
    future = Future()
    future.set_result(None)
    return future


def results(tasks):
    """Give the results of tasks that are done."""
    return [task.result(0) for task in tasks]


def by_exception(pool, fn, items):
    tasks = [pool.submit(fn, item) for item in items]
    assert [task.exception() for task in tasks] == [None] * len(tasks)
    return results(tasks)


def by_wait(pool, fn, items, *args, more=()):
    tasks = [pool.submit(fn, item) for item in items]
    wait([*tasks, *more], *args)
    return results(tasks)


def by_first_completed(pool, fn, items):
    tasks = [pool.submit(fn, item) for item in items]
    pending = set(tasks)
    while pending:
        _, pending = wait(pending, None, FIRST_COMPLETED)
    return results(tasks)


def by_as_completed(pool, fn, items, timeout=None, more=()):
    tasks = [pool.submit(fn, item) for item in items]
    assert set(as_completed([*tasks, *more], timeout)) == {*tasks, *more}
    return results(tasks)


# Each submits fn(item) for every item, waits, and gives the results in order.
GATHER = {
    "result": lambda pool, fn, items: [
        task.result() for task in [pool.submit(fn, item) for item in items]
    ],
    "result with a timeout": lambda pool, fn, items: [
        task.result(30) for task in [pool.submit(fn, item) for item in items]
    ],
    "exception": by_exception,
    "wait": by_wait,
    "wait with a timeout": lambda *call: by_wait(*call, 30),
    "wait first exception": lambda *call: by_wait(*call, None, FIRST_EXCEPTION),
    "wait first completed": by_first_completed,
    "wait with a foreign future": lambda *call: by_wait(*call, more=[ended()]),
    "as_completed": by_as_completed,
    "as_completed with a timeout": lambda *call: by_as_completed(*call, 30),
    "as_completed with a foreign future": lambda *call: by_as_completed(*call, more=[ended()]),
    "map": lambda pool, *call: list(pool.map(*call)),
    "map with a timeout": lambda pool, *call: list(pool.map(*call, timeout=30)),
    "map with a buffer of 1": lambda pool, *call: list(pool.map(*call, buffersize=1)),
    "map with a buffer of 3": lambda pool, *call: list(pool.map(*call, buffersize=3)),
    "submit_many": lambda pool, *call: [task.result() for task in pool.submit_many(*call)],
}
every_gather = pytest.mark.parametrize("gather", GATHER.values(), ids=GATHER)

# Each waits until a task is done.
WAITS = {
    "result": lambda task: task.result(),
    "result with a timeout": lambda task: task.result(30),
    "exception": lambda task: task.exception(30),
    "wait": lambda task: wait([task]),
    "wait with a timeout": lambda task: wait([task], 30),
    "wait first completed": lambda task: wait([task, Future()], None, FIRST_COMPLETED),
    "wait first completed of tasks": lambda task: wait([task], None, FIRST_COMPLETED),
    "wait first exception": lambda task: wait([task], 30, FIRST_EXCEPTION),
    "as_completed": lambda task: next(as_completed([task])),
    "as_completed with a timeout": lambda task: list(as_completed([task], 30)),
    "as_completed with a foreign future": lambda task: next(as_completed([task, Future()])),
}
every_wait = pytest.mark.parametrize("waiting", WAITS.values(), ids=WAITS)


# ---- a task submits to its own pool and waits


def fib(pool, gather, n):
    """Sum what two tasks of the pool give."""
    if n < 2:
        return n
    return sum(gather(pool, lambda n: fib(pool, gather, n), [n - 1, n - 2]))


def in_a_task(pool, work):
    return pool.submit(work).result(30)


def in_every_worker(pool, work):
    tasks = [pool.submit(work) for _ in range(2 * pool._max_workers)]
    return {task.result(30) for task in tasks}.pop()


def in_another_thread(pool, work):
    box = []
    thread = threading.Thread(target=lambda: box.append(work()))
    thread.start()
    thread.join(30)
    return box[0]


def in_a_callback(pool, work):
    """In the worker that ends the task."""
    box, called = [], threading.Event()
    with occupied(pool):
        pool.submit(int).add_done_callback(lambda _: (box.append(work()), called.set()))
    assert called.wait(30)
    return box[0]


def in_a_callback_of_a_cancel(pool, work):
    """In the thread that cancels, while no worker is free."""
    box = []
    with occupied(pool) as gate:
        task = pool.submit(int)
        task.add_done_callback(lambda _: (gate.set(), box.append(work())))
        assert task.cancel()
    return box[0]


def in_a_finalizer(pool, work):
    """In a worker, when a task lets go of something."""
    box = []

    class Finalizer:
        def __del__(self):
            box.append(work())

    def task():
        Finalizer()
        return box[0]

    return pool.submit(task).result(30)


def in_a_signal_handler(pool, work):
    """In the main thread, while it waits for another task."""
    box = []

    def handler(*_):
        box.append(work())
        gate.set()

    before = signal.signal(signal.SIGUSR1, handler)
    gate = threading.Event()
    try:
        task = pool.submit(gate.wait, 30) if pool._max_workers > 1 else concurrent.futures.Future()
        main = threading.main_thread().ident
        timer = threading.Timer(0.005, signal.pthread_kill, [main, signal.SIGUSR1])
        timer.start()
        with contextlib.suppress(TimeoutError):
            wait([task], 30 if pool._max_workers > 1 else 0.05)
        timer.join()
        assert eventually(lambda: box, 30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return box[0]


PLACES = [
    in_a_task,
    in_every_worker,
    in_another_thread,
    in_a_callback,
    in_a_callback_of_a_cancel,
    in_a_finalizer,
    in_a_signal_handler,
]


@every_gather
def test_a_task_that_waits_for_its_own_pool_returns(pool, gather):
    """A task submits to its own pool and waits (recursive Fibonacci): returns."""
    for place in PLACES:
        assert place(pool, lambda: fib(pool, gather, 6)) == 8, place.__name__


@pytest.mark.parametrize("how", ["result", "wait", "as_completed", "map", "submit_many"])
def test_a_larger_recursive_fibonacci_returns(pool, how):
    """Recursive Fibonacci on 1, 2 and 4 workers."""
    assert pool.submit(fib, pool, GATHER[how], 13).result(50) == 233


@every_gather
def test_tasks_that_wait_meet_in_one_pool(pool, gather):
    """Every worker waits, for tasks that wait, and the queue is full of more of them."""

    def node(depth):
        return 1 + sum(gather(pool, node, [depth - 1] * 3)) if depth else 1

    tasks = [pool.submit(node, 2) for _ in range(2 * pool._max_workers)]
    assert [task.result(30) for task in tasks] == [13] * len(tasks)


def test_a_task_waits_for_a_task_that_fails_inline(pool):
    """The failure is in the task that was waited for, and the waiting one goes on."""

    def work():
        failures = [pool.submit(divmod, 1, 0) for _ in range(3)]
        wait(failures)
        return [type(task.exception(0)) for task in failures]

    assert pool.submit(work).result(10) == [ZeroDivisionError] * 3


@pytest.mark.parametrize("how", ["cancel", "set_result", "set_exception"])
def test_a_task_waits_for_a_task_that_somebody_else_ends(one, how):
    """It was decided from outside, or is taken while the worker waits: no hang, no second run."""
    ran = []

    def work():
        task = one.submit(ran.append, 1)
        if how == "cancel":
            assert task.cancel()
        else:
            getattr(task, how)(KeyError("outside"))
        wait([task], 10)
        return list(as_completed([task], 10)) == [task]

    assert one.submit(work).result(10) is True
    one.submit(int).result(10)
    assert ran == []


@pytest.mark.parametrize("way", ["submit", "submit_many", "map", "context manager"])
def test_tasks_that_use_pools_of_their_own_return(pool, way):
    """Pools inside pools: each is waited for by a task of the one outside."""

    def work(depth):
        if not depth:
            return 0
        with ThreadPoolExecutor(1) as inner:
            if way == "submit_many":
                return 1 + inner.submit_many(work, [depth - 1])[0].result()
            if way == "map":
                return 1 + next(inner.map(work, [depth - 1]))
            task = inner.submit(work, depth - 1)
            if way == "submit":
                return 1 + task.result()
        return 1 + task.result(0)

    tasks = [pool.submit(work, 3) for _ in range(4)]
    assert [task.result(30) for task in tasks] == [3] * 4


# ---- a waiting worker starts nothing unrelated


@every_gather
def test_a_waiting_worker_starts_nothing_unrelated(one, gather):
    """A waiting worker never starts unrelated work on top of its own frame (it may hold a lock)."""
    lock, order = threading.Lock(), []

    def other(n):
        free = lock.acquire(timeout=0)
        order.append(free and f"other {n}")
        if free:
            lock.release()

    def work():
        others = [one.submit(other, n) for n in range(5)]
        with lock:
            assert gather(one, lambda n: order.append("wanted") or n, [1, 2]) == [1, 2]
            order.append("work")
        return others

    with occupied(one):
        before = one.submit(other, -1)
        task = one.submit(work)
    for late in [before, *task.result(10)]:
        late.result(10)
    # the one from before came first; those of the task, after it had let go
    assert order[0] == "other -1"
    assert order[1:4] == ["wanted", "wanted", "work"]
    assert order[4:] == [f"other {n}" for n in range(5)]


@every_wait
def test_a_worker_that_waits_for_a_running_task_runs_nothing(two, waiting):
    """The task it waits for runs elsewhere; whatever else is queued is left alone meanwhile."""
    gate, running, waits = threading.Event(), threading.Event(), threading.Event()
    state, wrong = {}, []

    def wanted():
        running.set()
        assert gate.wait(30)

    def other():
        if threading.get_ident() == state["waiter"] and not state["returned"]:
            wrong.append("ran on top of the waiting frame")

    def work():
        state.update(waiter=threading.get_ident(), returned=False)
        others = [two.submit(other) for _ in range(20)]
        waits.set()
        waiting(task)
        state["returned"] = True
        return others

    task = two.submit(wanted)
    assert running.wait(10)
    worker = two.submit(work)
    assert waits.wait(10)
    outside = [two.submit(other) for _ in range(20)]
    # it may sleep by now, or not yet: what it must not do it would do at once
    assert not eventually(lambda: any(late.done() for late in outside), 0.02)
    gate.set()
    for late in [*outside, *worker.result(10)]:
        late.result(10)
    assert wrong == []


@every_wait
def test_a_wait_with_a_timeout_in_a_worker_ends_while_the_pool_is_stuck(two, waiting):
    """All workers wait for tasks that run elsewhere, and for nothing else."""
    gates = [threading.Event(), threading.Event()]
    tasks = [two.submit(gates[0].wait, 30)]

    def work():
        gates[1].set()
        waiting(tasks[0])
        return "back"

    task = two.submit(work)
    assert gates[1].wait(10)
    with pytest.raises(TimeoutError):
        task.result(0.01)
    gates[0].set()
    assert task.result(10) == "back"


# ---- chains of nested waits

CHAIN = """
import sys, threading
from affinitypool import *
gathers = {
    "result": lambda fn, n: pool.submit(fn, n).result(),
    "exception": lambda fn, n: raised(pool.submit(fn, n)),
    "wait": lambda fn, n: waited(pool.submit(fn, n)),
    "first completed": lambda fn, n: waited(pool.submit(fn, n), None, FIRST_COMPLETED),
    "first exception": lambda fn, n: waited(pool.submit(fn, n), 60, FIRST_EXCEPTION),
    "as_completed": lambda fn, n: next(as_completed([pool.submit(fn, n)])).result(),
    "map": lambda fn, n: next(pool.map(fn, [n])),
    "map with a buffer": lambda fn, n: next(pool.map(fn, [n], buffersize=1)),
    "submit_many": lambda fn, n: pool.submit_many(fn, [n])[0].result(),
}
def raised(task):
    error = task.exception()
    if error:
        raise error
    return task.result()
def waited(task, *args):
    wait([task], *args)
    return task.result()
def nest(n):
    return n and 1 + gather(nest, n - 1)
depth, limit, stack_size = (int(argument) for argument in sys.argv[1:])
if limit:
    sys.setrecursionlimit(limit)
for way, gather in gathers.items():
    print(way, flush=True)  # the last one is that which crashed
    for workers in (2,) if limit else (1, 4):
        with ThreadPoolExecutor(workers, stack_size=stack_size or None) as pool:
            assert pool.submit(nest, 8).result() == 8
            task = pool.submit(nest, depth)
            error = task.exception()
            assert error is None or isinstance(error, RecursionError), error
            assert error is not None or task.result() == depth
            assert sum(pool.map(abs, range(100))) == 4950
print("done")
"""


@pytest.mark.parametrize(
    ("limit", "stack_size"),
    [(0, 0), (100_000, 0), (100_000, 256 * 1024)],
    ids=["", "no recursion limit", "no recursion limit, a small stack"],
)
def test_a_chain_of_nested_waits_never_crashes(limit, stack_size):
    """A chain of 3,000 nested waits gives the value or a RecursionError, never a crash."""
    out = check_python(CHAIN, "3000", str(limit), str(stack_size), timeout=60)
    assert out.splitlines()[-1] == "done"


@pytest.mark.parametrize("end", ["cancel", "set_result"])
def test_a_chain_of_callbacks_never_crashes(end):
    """Each callback ends the next task, whose callback ends the next."""
    done = run_python(  # a RecursionError in a callback is logged, or told on stderr
        """
        import logging, sys, threading
        from affinitypool import ThreadPoolExecutor
        logging.disable(logging.CRITICAL)
        end = {"cancel": lambda task: task.cancel(), "set_result": lambda task: task.set_result(0)}
        end = end[sys.argv[1]]
        gate = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(gate.wait, 30)
            tasks = [pool.submit(int) for _ in range(3000)]
            for task, after in zip(tasks, tasks[1:]):
                task.add_done_callback(lambda _, after=after: end(after))
            end(tasks[0])
            count = sum(task.done() for task in tasks)
            assert count > 100, count
            gate.set()
        assert all(task.done() for task in tasks)
        print("done")
        """,
        end,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done


# ---- signal handlers in the middle of submit


def nothing(*_):
    """Give no tasks, after whatever the arguments did."""
    return []


def idle(pool):
    with contextlib.suppress(RuntimeError):  # in a task
        pool.wait_idle()


def leave_map(pool):
    tasks = pool.map(abs, [-1, -2, -3], buffersize=2)
    assert next(tasks) == 1
    tasks.close()
    return []


# What the main thread does: gives the tasks that it got.
OUTER = {
    "submit": lambda pool: [pool.submit(int)],
    "submit twice": lambda pool: [pool.submit(int), pool.submit(int)],
    "submit_many": lambda pool: pool.submit_many(abs, [-1, -2, -3]),
    "map": lambda pool: nothing(list(pool.map(abs, [-1, -2, -3]))),
    "map with a buffer": leave_map,
    "try_submit": lambda pool: [pool.try_submit(int)],
    "wait": lambda pool: list(wait([pool.submit(int), pool.submit(int)], 10).done),
    "wait first": lambda pool: list(
        wait([pool.submit(int), pool.submit(int)], 10, FIRST_COMPLETED).done
    ),
    "as_completed": lambda pool: list(as_completed([pool.submit(int), pool.submit(int)], 10)),
    "wait_idle": lambda pool: nothing(pool.submit(int), idle(pool)),
    "shutdown": lambda pool: nothing(pool.submit(int), pool.shutdown()),
    "shutdown that cancels": lambda pool: nothing(
        pool.submit(int), pool.shutdown(cancel_futures=True)
    ),
    "shutdown with a timeout": lambda pool: nothing(pool.submit(int), pool.shutdown(timeout=30)),
    "shutdown_now": lambda pool: nothing(pool.submit(int), pool.shutdown_now()),
    "drain": lambda pool: nothing(pool.submit(int), pool.drain()),
}

# What a handler does meanwhile.
HANDLERS = {
    "submits": lambda pool: [pool.submit(abs, -2)],
    "submits many": lambda pool: pool.submit_many(abs, [-1] * 5),
    "maps": lambda pool: nothing(pool.map(abs, [-1] * 5)),
    "shuts down": lambda pool: nothing(pool.shutdown()),
    "shuts down without waiting": lambda pool: nothing(pool.shutdown(wait=False)),
    "shuts down and cancels": lambda pool: nothing(pool.shutdown(cancel_futures=True)),
    "shuts down now": lambda pool: pool.shutdown_now(),
}


def check_works(pool):
    """Check that as many tasks as the pool has workers run at once, and that nothing is left."""
    barrier = threading.Barrier(pool._max_workers)
    meeting = [pool.submit(barrier.wait, 10) for _ in range(pool._max_workers)]
    assert sorted(task.result(10) for task in meeting) == list(range(pool._max_workers))
    assert eventually(lambda: pool.stats().pending == 0)


# A handler that joins a thread while the main thread is inside Thread.join for the same one.
JOIN = ("shuts down", "shuts down and cancels", "shuts down now")
JOIN_OUTER = [name for name in OUTER if name.startswith(("shutdown", "drain"))]
JOINS_WAIT = sys.version_info < (3, 13)  # in threading, for each other: a second each time


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(outer, inner) for outer in OUTER for inner in HANDLERS],
    ids=[f"{outer}, it {inner}" for outer in OUTER for inner in HANDLERS],
)
def test_a_signal_handler_at_any_point_of_a_call(outer, inner):
    """A signal handler that submits, or shuts down, while the main thread is inside `submit`."""
    # not those in Thread.join where that takes seconds: the next test is about them
    folders = FOLDERS[: 1 if JOINS_WAIT and outer in JOIN_OUTER and inner in JOIN else 2]

    def attempt(k):
        pool = ThreadPoolExecutor(2)
        tasks, ran = [], []

        def handler():
            ran.append(k)
            with contextlib.suppress(ShutdownError):
                tasks.extend(HANDLERS[inner](pool))

        with (
            handled(signal.SIGUSR1, handler),
            contextlib.suppress(ShutdownError, CancelledError),
            pending_at(k, signal.SIGUSR1, folders) as seen,
        ):
            tasks.extend(OUTER[outer](pool))
        assert len(ran) == (seen[0] >= k)
        if not pool._shutdown:
            check_works(pool)
        pool.shutdown()
        assert all(task.done() for task in tasks)
        return seen[0] >= k

    if outer == "submit":
        at_each_place(attempt)
    else:  # a part of the places for each handler; all of them together come to every second
        first = 1 + 2 * list(HANDLERS).index(inner)
        at_each_place(attempt, first=first, step=2 * len(HANDLERS))


def test_a_signal_handler_that_joins_in_the_middle_of_a_join():
    """A signal handler that shuts down while the main thread is in shutdown: in a process."""
    out = check_python(
        """
        import signal
        from affinitypool import ThreadPoolExecutor
        from faults.interrupts import at_each_place, handled, pending_at
        def attempt(k):
            pool = ThreadPoolExecutor(1)
            task = pool.submit(int)
            with handled(signal.SIGUSR1, pool.shutdown), pending_at(k, signal.SIGUSR1) as seen:
                pool.shutdown()
            assert task.done()
            return seen[0] >= k
        at_each_place(attempt)
        print("done")
        """,
        timeout=40,
        PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}",
    )
    assert out == "done\n"


def test_a_signal_handler_while_the_last_worker_starts():
    """With one worker in all, which the interrupted submit is about to start."""
    for inner in HANDLERS.values():

        def attempt(k, inner=inner):
            pool, tasks = ThreadPoolExecutor(1), []

            def handler():
                tasks.extend(inner(pool))

            with (
                handled(signal.SIGUSR1, handler),
                contextlib.suppress(ShutdownError),
                pending_at(k, signal.SIGUSR1) as seen,
            ):
                tasks.append(pool.submit(int))
            pool.shutdown()
            assert all(task.done() for task in tasks)
            return seen[0] >= k

        at_each_place(attempt)


# ---- finalizers in the middle of submit


@contextlib.contextmanager
def frozen():
    """Have the collector look only at what the body makes: it is quick then.

    (What was there before stays frozen until the end of this file, see conftest.py.)
    """
    gc.freeze()
    yield


@contextlib.contextmanager
def eager_collector():
    """Have the collector run whenever it may."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with frozen():
            yield
    finally:
        gc.set_threshold(*before)


ALLOCATES = {
    "submit": lambda pool: [pool.submit([].append, {})],
    "submit with many arguments": lambda pool: [pool.submit(dict, [], a=[], b=[], c=[])],
    "submit_many": lambda pool: pool.submit_many(list, [[], [], []]),
    "submit_many of rows": lambda pool: pool.submit_many(lambda a, b: a, [[], []], [[], []]),
    "map": lambda pool: nothing(list(pool.map(list, [[], [], []]))),
    "map with a buffer": lambda pool: nothing(list(pool.map(list, [[], []], buffersize=1))),
    "wait first": lambda pool: list(wait([pool.submit(list)], 10, FIRST_COMPLETED).done),
    "as_completed": lambda pool: list(as_completed([pool.submit(list), pool.submit(list)], 10)),
    "a callback": lambda pool: [call_back(pool.submit(list))],
}


def call_back(task):
    task.add_done_callback(lambda _: [[]])
    return task


@pytest.mark.parametrize("outer", ALLOCATES.values(), ids=ALLOCATES)
@pytest.mark.parametrize("inner", HANDLERS.values(), ids=HANDLERS)
def test_a_finalizer_in_the_middle_of_a_call(outer, inner):
    """A finalizer run by the garbage collector that submits while `submit` runs on that thread."""
    tasks, ran = [], []

    class Finalizer:
        def __init__(self, pool):
            self.pool, self.cycle = pool, self

        def __del__(self):
            ran.append(1)
            with contextlib.suppress(ShutdownError):
                tasks.extend(inner(self.pool))

    for _ in range(2):
        pool = ThreadPoolExecutor(3)
        with eager_collector():
            for _ in range(4):
                Finalizer(pool)
                with contextlib.suppress(ShutdownError, CancelledError):
                    tasks.extend(outer(pool))
            gc.collect()
        if not pool._shutdown:
            check_works(pool)
        pool.shutdown()
    assert len(ran) == 8
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("where", ["argument", "result", "function", "context", "exception"])
@pytest.mark.parametrize("inner", HANDLERS.values(), ids=HANDLERS)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_finalizer_of_what_a_task_held(workers, inner, where):
    """What dies when a task starts, ends, is cancelled or refused uses the pool once more."""
    pool = ThreadPoolExecutor(workers)
    tasks, ran = [], []

    class Finalizer(Exception):
        def __del__(self):
            with contextlib.suppress(ShutdownError):
                tasks.extend(inner(pool))
            ran.append(1)

        def __call__(self):
            pass

    def submit():
        if where == "argument":
            return pool.submit(id, Finalizer())
        if where == "result":
            return pool.submit(Finalizer)
        if where == "function":
            return pool.submit(Finalizer())
        if where == "context":
            context = contextvars.Context()
            context.run(VARIABLE.set, Finalizer())
            return context.run(pool.submit, int)
        return pool.submit(fail, Finalizer)

    check_works(pool)  # every thread has begun
    made = 0
    with frozen():
        with contextlib.suppress(ShutdownError, CancelledError):
            wait([submit()], 10)
            made += where not in ("result", "exception")
            for _ in range(5):
                made += where not in ("result", "exception")
                submit().cancel()  # before it starts, while it runs, or after
        gc.collect()
    assert eventually(lambda: len(ran) >= made)
    pool.shutdown()
    assert all(task.done() for task in tasks)


def test_a_finalizer_at_the_end_of_a_worker_may_shut_its_pool_down():
    """What a worker kept in a threading.local dies when the thread is no worker any more."""
    out = check_python(
        """
        import faulthandler, threading
        from affinitypool import ThreadPoolExecutor
        faulthandler.dump_traceback_later(8, exit=True)
        local, ended = threading.local(), []
        class Last:
            def __del__(self):
                pool.shutdown()
                ended.append("back")
        def work():
            local.last = Last()
        pool = ThreadPoolExecutor(1)
        pool.submit(work).result()
        pool.shutdown()
        print(ended)
        """
    )
    assert out == "['back']\n"


def test_a_task_that_was_promised_to_a_late_thread_may_shut_its_pool_down():
    """The thread begins when the pool has ended, and runs what was set aside for it."""
    gates, begun = [threading.Event(), threading.Event()], []

    def initializer():
        begun.append(gates[len(begun)])
        assert begun[-1].wait(10)

    pool = ThreadPoolExecutor(2, initializer=initializer)
    tasks = [pool.submit(int), pool.submit(pool.shutdown)]
    assert eventually(lambda: len(begun) == 2)
    pool.shutdown(wait=False, cancel_futures=True)
    begun[0].set()
    assert eventually(lambda: sum(thread.is_alive() for thread in pool._threads) == 1)
    begun[1].set()
    assert [task.exception(10) for task in tasks] == [None, None]
    pool.shutdown()


VARIABLE = contextvars.ContextVar("VARIABLE")


def fail(kind):
    raise kind


# ---- Ctrl-C at any point


def interrupted_with(pool):
    with pool:
        pool.submit(int)


def use_another(pool):
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result(10)


def refused(pool):
    pool.shutdown()
    for call in (pool.submit, pool.submit_many, pool.map):
        with contextlib.suppress(ShutdownError):
            call(int, [1])


def second_submit(pool):
    """Starts a thread beside another."""
    gate = threading.Lock()  # in C: an interrupt in an Event's Python code would leave it locked
    gate.acquire()
    try:
        return [pool.submit(gate.acquire, True, 30), pool.submit(int)]
    finally:
        gate.release()


INTERRUPTED = {
    **OUTER,
    "submit beside a busy worker": second_submit,
    "a with block": lambda pool: nothing(interrupted_with(pool)),
    "another pool from its making to its end": lambda pool: nothing(use_another(pool)),
    "refused calls": lambda pool: nothing(refused(pool)),
    "wait for a foreign future too": lambda pool: list(
        wait([pool.submit(int), ended()], 10, FIRST_EXCEPTION).done
    ),
    "as_completed with a foreign future": lambda pool: list(
        as_completed([pool.submit(int), ended()], 10)
    ),
    "stats": lambda pool: nothing(pool.stats(), pool.worker_count, pool.is_worker()),
}


# of which every place is taken; of the others every second
EACH = ("submit", "submit_many", "shutdown", "submit beside a busy worker")

every_interrupted = pytest.mark.parametrize(("name", "call"), INTERRUPTED.items(), ids=INTERRUPTED)


@contextlib.contextmanager
def quiet(monkeypatch):
    """Say nothing of an interrupt that a finalizer of the standard library swallowed."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        yield


def interrupted(pool, call, k, what):
    """Call it with an interrupt at its k-th place; return the tasks, and if there was a place."""
    tasks = []
    try:
        with pending_at(k, what) as seen:
            tasks.extend(call(pool))
    except KeyboardInterrupt:
        pass
    return tasks, seen[0] >= k


def no_watcher_is_left():
    return not any(type(thing).__name__ == "Completions" for thing in gc.get_objects())


@every_interrupted
def test_ctrl_c_at_any_point_of_a_call(monkeypatch, name, call):
    """KeyboardInterrupt at any point: the task is published or it is not; the pool works."""

    def attempt(k):
        pool = ThreadPoolExecutor(2)
        tasks, more = interrupted(pool, call, k, signal.SIGINT)
        if not pool._shutdown:
            check_works(pool)
        pool.shutdown()
        assert all(task.done() for task in tasks)
        assert not any(task.cancelled() for task in tasks)
        return more

    with quiet(monkeypatch), frozen():
        at_each_place(attempt, step=9 if "making" in name else 1 if name in EACH else 2)
        gc.collect()
        assert no_watcher_is_left()


THREADS = ["another thread", "a worker", "a worker of another pool"]


@pytest.mark.parametrize("worker", THREADS)
@every_interrupted
def test_an_exception_from_outside_at_any_point_of_a_call(monkeypatch, worker, name, call):
    """As Ctrl-C, in a thread that is not the main one: PyThreadState_SetAsyncExc."""
    with quiet(monkeypatch), ThreadPoolExecutor(1) as other:

        def attempt(k):
            pool = ThreadPoolExecutor(2)
            box = []

            def work():
                box.append(interrupted(pool, call, k, KeyboardInterrupt))

            if worker == "another thread":
                thread = threading.Thread(target=work)
                thread.start()
                thread.join(30)
            else:
                (other if worker == "a worker of another pool" else pool).submit(work).result(30)
            tasks, more = box[0]
            if not pool._shutdown:
                check_works(pool)
            pool.shutdown()
            assert all(task.done() for task in tasks)
            return more

        first = 1 + 3 * THREADS.index(worker)
        at_each_place(attempt, first=first, step=45 if "making" in name else 9)


@pytest.mark.parametrize("count", [1, 3])
def test_ctrl_c_never_runs_a_task_twice_or_loses_one(monkeypatch, count):
    """A submit that raised has published its task or not; one that returned has."""

    def attempt(k):
        pool, ran, tasks = ThreadPoolExecutor(2), [], []
        try:
            with pending_at(k, signal.SIGINT) as seen:
                for n in range(count):
                    tasks.append(pool.submit(ran.append, n))
        except KeyboardInterrupt:
            pass
        check_works(pool)
        pool.shutdown()
        accepted = len(tasks)
        assert sorted(ran) in (list(range(accepted)), list(range(accepted + 1)))
        return seen[0] >= k

    with quiet(monkeypatch):
        at_each_place(attempt)


def test_ctrl_c_never_splits_a_batch(monkeypatch):
    """submit_many publishes all or nothing, and what it has published runs."""

    def attempt(k):
        pool, ran, tasks = ThreadPoolExecutor(3), [], None
        try:
            with pending_at(k, signal.SIGINT) as seen:
                tasks = pool.submit_many(ran.append, range(10))
        except KeyboardInterrupt:
            pass
        check_works(pool)
        pool.shutdown()
        assert sorted(ran) == list(range(10)) or (ran == [] and tasks is None)
        return seen[0] >= k

    with quiet(monkeypatch):
        at_each_place(attempt)


def test_ctrl_c_twice(monkeypatch):
    """While the first is dealt with, the second comes."""

    def attempt(k):
        pool, ran = ThreadPoolExecutor(2), []
        try:
            try:
                with pending_at(k, signal.SIGINT) as seen:
                    pool.submit(ran.append, 1)
            except KeyboardInterrupt:
                with pending_at(k, signal.SIGINT):
                    pool.submit(ran.append, 2)
        except KeyboardInterrupt:
            pass
        check_works(pool)
        pool.shutdown()
        assert len(ran) == len(set(ran))
        return seen[0] >= k

    with quiet(monkeypatch):
        at_each_place(attempt)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_in_the_start_of_a_thread_that_fails_to_begin(monkeypatch, workers):
    """Each place is given back once, whatever has struck: shutdown returns, all tasks are done."""

    def attempt(k):
        gate = threading.Event()

        def initializer():
            gate.wait(20)
            raise ValueError("initializer")

        pool = ThreadPoolExecutor(workers, initializer=initializer)
        tasks, more = interrupted(pool, lambda pool: [pool.submit(int)], k, signal.SIGINT)
        gate.set()
        assert pool.shutdown(timeout=10)
        assert pool._core.started <= 1
        assert all(task.done() for task in tasks)
        return more

    with quiet(monkeypatch):
        at_each_place(attempt)


def test_ctrl_c_leaves_no_thread_that_never_was(monkeypatch):
    """What an interrupted start leaves is no thread of `threading.enumerate`."""
    before = threading.active_count()

    def attempt(k):
        pool = ThreadPoolExecutor(1)
        _, more = interrupted(pool, lambda pool: [pool.submit(int)], k, signal.SIGINT)
        pool.shutdown()
        repr(threading.enumerate())
        return more

    with quiet(monkeypatch):
        at_each_place(attempt)
        assert threading.active_count() == before


# ---- locks


def test_no_lock_of_python_is_needed_to_submit(pool):
    """No Python-level lock is held or needed inside `submit` on the caller's side."""
    check_works(pool)
    locks = [
        pool._shutdown_lock,
        concurrent.futures.thread._global_shutdown_lock,
        threading._active_limbo_lock,
        getattr(threading, "_shutdown_locks_lock", threading.Lock()),
        logging.getLogger().manager and logging._lock,
    ]
    held, done = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        tasks = [pool.submit(abs, -n) for n in range(100)]
        assert [task.result(10) for task in tasks] == list(range(100))
        assert wait(pool.submit_many(abs, range(10)), 10).not_done == set()
        assert list(pool.map(abs, [-1, -2], timeout=10)) == [1, 2]
        assert len(list(as_completed([pool.submit(int)], 10))) == 1
        pool.submit(int).cancel()
        pool.shutdown(wait=False)
        with pytest.raises(ShutdownError):
            pool.submit(int)
    finally:
        done.set()
        thread.join(10)


def test_no_lock_of_python_is_held_while_a_caller_waits_in_the_pool(one):
    """Whoever waits inside a call of the pool holds none of them either."""
    with occupied(one) as gate:
        task = one.submit(int)
        threads = [
            threading.Thread(target=call)
            for call in (task.result, lambda: wait([task]), lambda: list(as_completed([task])))
        ]
        threads.append(threading.Thread(target=one.shutdown))
        for thread in threads:
            thread.start()
        for lock in (one._shutdown_lock, threading._active_limbo_lock, task._condition):
            assert lock.acquire(timeout=10)
            lock.release()
        gate.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


# ---- imports

BODY = """
import affinitypool, concurrent.futures, threading
from affinitypool import *
def fail():
    raise ValueError
with ThreadPoolExecutor(WORKERS) as pool:
    tasks = [pool.submit(abs, -n) for n in range(20)]
    assert [task.result() for task in tasks] == list(range(20))
    assert wait(tasks).done == set(tasks)
    assert set(as_completed(tasks)) == set(tasks)
    assert list(pool.map(abs, range(3))) == list(pool.map(abs, range(3), buffersize=1)) == [0, 1, 2]
    assert [task.result() for task in pool.submit_many(abs, [-1])] == [1]
    assert type(pool.submit(fail).exception()) is ValueError
    assert pool.submit(lambda: pool.submit(abs, -5).result()).result() == 5
    foreign = concurrent.futures.Future()
    foreign.set_result(1)
    task = pool.submit(int)
    assert wait([task, foreign], 10, FIRST_COMPLETED).done
    called = threading.Event()
    task.add_done_callback(lambda task: called.set())
    assert called.wait(10)
    pool.submit(int).cancel()
    for method in (pool.submit(int).result, pool.submit(int).exception):
        method(10)
    repr(pool.submit(int)), pool.stats(), pool.worker_count, pool._work_queue.qsize()
    with ThreadPoolExecutor(1, initializer=int, stack_size=1 << 20) as other:
        other.submit(int).result()
pool.shutdown()
try:
    pool.submit(int)
except ShutdownError:
    pass
total = len(tasks)
"""


@pytest.mark.parametrize("where", ["main", "thread", "task", "inner import"])
def test_a_module_body_may_use_a_pool(tmp_path, where):
    """A module body that makes a pool, submits, waits, shuts down."""
    for workers in (1, 2, 4):
        (tmp_path / f"body_{workers}.py").write_text(BODY.replace("WORKERS", str(workers)))
        (tmp_path / f"outer_{workers}.py").write_text(f"from body_{workers} import total\n")
    out = check_python(
        """
        import sys, threading
        sys.path.insert(0, sys.argv[1])
        where = sys.argv[2]
        for workers in ("1", "2", "4"):
            name = "body_" + workers
            if where == "main":
                __import__(name)
            elif where == "inner import":
                name = "outer_" + workers
                __import__(name)
            elif where == "thread":
                thread = threading.Thread(target=__import__, args=[name])
                thread.start()
                thread.join()
            else:
                from affinitypool import ThreadPoolExecutor
                with ThreadPoolExecutor(2) as pool:
                    pool.submit(__import__, name).result()
            print(sys.modules[name].total)
        """,
        str(tmp_path),
        where,
    )
    assert out == "20\n" * 3


def test_nothing_is_imported_lazily(tmp_path):
    """Nothing on these paths imports lazily, be it for the first time or again."""
    (tmp_path / "body.py").write_text(BODY.replace("WORKERS", "2"))
    out = check_python(
        """
        import builtins, sys
        sys.path.insert(0, sys.argv[1])
        import affinitypool, concurrent.futures, threading
        imported, original = [], builtins.__import__
        def importing(name, globals=None, *args, **kwargs):
            imported.append((name, (globals or {}).get("__name__", "?")))
            return original(name, globals, *args, **kwargs)
        sys.addaudithook(lambda event, args: event == "import" and imported.append((args[0], "?")))
        builtins.__import__ = importing
        import body
        builtins.__import__ = original
        print([(name, by) for name, by in imported if not (
            name == "body" or by == "body" or "importlib" in by)])
        """,
        str(tmp_path),
    )
    assert out == "[]\n"


def test_nothing_is_imported_lazily_when_things_go_wrong():
    """Nor is it where a callback, an initializer or a thread's start fails."""
    out = check_python(
        """
        import logging, sys, threading
        from affinitypool import *
        imported = []
        logging.getLogger("concurrent.futures").addHandler(logging.NullHandler())
        sys.addaudithook(lambda event, args: event == "import" and imported.append(args[0]))
        def fail(*args):
            raise ValueError
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(int)
            task.result(10)
            task.add_done_callback(fail)
            gate = threading.Event()
            pool.submit(gate.wait, 10)
            task = pool.submit(int)
            task.add_done_callback(fail)
            for call in (lambda: task.result(0), lambda: next(as_completed([task], 0))):
                try:
                    call()
                except TimeoutError:
                    pass
            gate.set()
        pool = ThreadPoolExecutor(1, initializer=fail)
        try:
            pool.submit(int).result()
        except BrokenThreadPool:
            pass
        try:
            pool.submit(int).result()
        except BrokenThreadPool:
            pass
        pool.shutdown()
        threading.Thread.start = fail
        try:
            ThreadPoolExecutor(1).submit(int)
        except ValueError:
            pass
        print(imported)
        """
    )
    assert out == "[]\n"
