"""Cancel, wait, timeouts, and what is near it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import gc
import math
import random
import signal
import threading
import time
import weakref
from decimal import Decimal
from fractions import Fraction

import pytest
from helpers import (
    Cell,
    Probe,
    about,
    all_dead,
    at_once,
    eventually,
    fail,
    no_collector,
    occupied,
    run_python,
)

from affinitypool import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    InvalidStateError,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from faults.interrupts import FOLDERS, at_each_place, pending_at

pytestmark = pytest.mark.timeout(60)

EVERY_WHEN = [ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION]
STDLIB_WAIT = concurrent.futures._base.wait
STDLIB_AS_COMPLETED = concurrent.futures._base.as_completed


def ended(value=None):
    future = Future()
    future.set_result(value)
    return future


# ---- a cancelled task is done at once, and holds nothing


def by_callback(pool, task):
    other = Task()
    other.add_done_callback(lambda _: task.cancel())
    other.set_result(0)


def by_a_task_of_another_pool(pool, task):
    with ThreadPoolExecutor(1) as other:
        assert other.submit(task.cancel).result(10) is True


def by_a_finalizer(pool, task):
    class Canceller:
        def __del__(self):
            task.cancel()

    Canceller()


CANCELS = {
    "cancel": lambda pool, task: task.cancel(),
    "cancel-twice": lambda pool, task: task.cancel() and task.cancel(),
    "thread": lambda pool, task: at_once(task.cancel),
    "callback": by_callback,
    "finalizer": by_a_finalizer,
    "other-pool": by_a_task_of_another_pool,
    "shutdown": lambda pool, task: pool.shutdown(wait=False, cancel_futures=True),
}
every_cancel = pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)


@every_cancel
@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
def test_a_cancelled_task_is_done_at_once_for_every_waiter(two, cancel, observed):
    """A queued task that was cancelled is in `wait(...).done` at once."""
    with occupied(two):
        task, other = two.submit(int), Task()
        if observed:
            task.add_done_callback(lambda _: None)
            assert task._condition
        cancel(two, task)
        assert task.cancelled()
        for when in EVERY_WHEN:
            for way in (wait, STDLIB_WAIT):
                assert way([task], 0, when) == ({task}, set())
                assert way([task, ended()], 0, when).not_done == set()
            assert wait([task, task], 0, when).done == {task}
        assert wait([task, other], 0, FIRST_COMPLETED) == ({task}, {other})
        assert wait([other, task, Future()], 0, FIRST_COMPLETED).done == {task}
        for way in (as_completed, STDLIB_AS_COMPLETED):
            assert list(way([task], 0)) == [task]
            assert next(way([other, task], 0)) is task
            assert next(way([other, task, Future()], 0)) is task
        for method in (task.result, task.exception):
            for timeout in (None, 0, -1, 1e-9):
                with pytest.raises(CancelledError):
                    method(timeout)


class Callable(Probe):
    def __call__(self):
        raise AssertionError("a cancelled task was run")

    method = __call__


def submit_in_a_context(pool, probe):
    variable = contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    context.run(variable.set, probe)
    return context.run(pool.submit, int)


def submit_with_a_callback(pool, probe):
    task = pool.submit(int)
    task.add_done_callback(functools.partial(id, probe))
    return task


SHAPES = {
    "argument": lambda pool, probe: pool.submit(id, probe),
    "several": lambda pool, probe: pool.submit(print, 1, probe, 2),
    "keyword": lambda pool, probe: pool.submit(dict, a=probe),
    "both": lambda pool, probe: pool.submit(print, 1, end=probe),
    "function": lambda pool, probe: pool.submit(probe),
    "method": lambda pool, probe: pool.submit(probe.method),
    "batch": lambda pool, probe: pool.submit_many(id, [probe])[0],
    "context": submit_in_a_context,
    "callback": submit_with_a_callback,
}


@every_cancel
@pytest.mark.parametrize("submit", SHAPES.values(), ids=SHAPES)
def test_the_arguments_of_a_cancelled_task_are_free(one, submit, cancel):
    """...and its arguments are free: while it is in the queue still, and without the collector."""
    with occupied(one), no_collector(collect=False):
        probe = Callable()
        death = weakref.ref(probe)
        task = submit(one, probe)
        del probe
        assert death() is not None
        cancel(one, task)
        assert death() is None
        assert task.cancelled()


def test_the_arguments_of_many_cancelled_tasks_are_free_before_a_worker_comes_to_them(pool):
    """The kind: not one of them is left in a slot of the queue, wherever it stands in it."""
    with occupied(pool), no_collector(collect=False):
        probes = [Probe() for _ in range(2000)]
        deaths = [weakref.ref(probe) for probe in probes]
        tasks = pool.submit_many(id, probes)
        del probes
        random.Random(5).shuffle(tasks)
        for task in tasks:
            assert task.cancel()
        assert not any(death() for death in deaths)
        assert wait(tasks, 0).not_done == set()


# ---- shutdown(cancel_futures=True) wakes whoever waits


def waits_with(method):
    def way(tasks):
        for task in tasks:
            with contextlib.suppress(CancelledError):
                getattr(task, method)(20)
                raise AssertionError("a cancelled task has an outcome")
        return set(tasks)

    return way


def waits_for_the_first(when, way=wait):
    def run(tasks):
        seen, rest = set(), set(tasks)
        while rest:
            done, rest = way(rest, 20, when)
            assert done, "a wait returned with nothing done"
            seen |= done
        return seen

    return run


def waits_on_the_conditions(tasks):
    for task in tasks:
        with task._condition:
            while not task.done():
                assert task._condition.wait(20)
    return set(tasks)


def waits_in_asyncio(tasks):
    async def main():
        futures = [asyncio.wrap_future(task) for task in tasks]
        return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 20)

    outcomes = asyncio.run(main())
    return {task for task, outcome in zip(tasks, outcomes, strict=True) if outcome is not None}


WAYS = {
    "result": waits_with("result"),
    "exception": waits_with("exception"),
    "wait": lambda tasks: wait(tasks, 20).done,
    "wait-first": waits_for_the_first(FIRST_COMPLETED),
    "wait-exception": lambda tasks: wait(tasks, 20, FIRST_EXCEPTION).done,
    "wait-mixed": lambda tasks: wait([ended(), *tasks], 20).done,
    "stdlib-wait": lambda tasks: STDLIB_WAIT(tasks, 20).done,
    "stdlib-first": waits_for_the_first(FIRST_COMPLETED, STDLIB_WAIT),
    "as_completed": lambda tasks: set(as_completed(tasks, 20)),
    "as_completed-mixed": lambda tasks: set(as_completed([*tasks, ended()], 20)),
    "stdlib-as_completed": lambda tasks: set(STDLIB_AS_COMPLETED(tasks, 20)),
    "condition": waits_on_the_conditions,
    "asyncio": waits_in_asyncio,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("where", ["queue", "ring"])
@pytest.mark.parametrize("asleep", [True, False], ids=["asleep", "racing"])
def test_shutdown_that_cancels_wakes_whoever_waits(way, where, asleep):
    """`shutdown(cancel_futures=True)` wakes whoever waits for the cancelled futures."""
    pool = ThreadPoolExecutor(1)
    box, filled, gate = [], threading.Event(), threading.Event()

    def produce():
        box.extend(pool.submit(fail, AssertionError("ran")) for _ in range(300))
        filled.set()
        gate.wait(20)

    if where == "ring":
        pool.submit(produce)
    else:
        pool.submit(lambda: (filled.wait(20), gate.wait(20)))
        box.extend(pool.submit_many(fail, [AssertionError("ran")] * 300))
        filled.set()
    assert filled.wait(10)
    tasks, begun = list(box), threading.Event()

    def collect():
        begun.set()
        return way(tasks)

    def cancel():
        begun.wait(10)
        if asleep:
            time.sleep(0.01)
        pool.shutdown(wait=False, cancel_futures=True)

    try:
        seen, _ = at_once(collect, cancel)
    finally:
        gate.set()
        pool.shutdown()
    assert seen >= set(tasks)
    assert all(task.cancelled() for task in tasks)


def test_as_completed_yields_all_that_a_shutdown_cancels(pool):
    """`as_completed` yields all of them: also those that ended or ran before, each once."""
    with occupied(pool):
        tasks = [pool.submit(int) for _ in range(50)]
        for task in tasks[::7]:
            task.cancel()
        waiting = as_completed(tasks, 20)
        first = [next(waiting) for _ in tasks[::7]]
        assert set(first) == set(tasks[::7])
        pool.shutdown(wait=False, cancel_futures=True)
        rest = list(waiting)
    assert sorted(map(id, first + rest)) == sorted(map(id, tasks))


@pytest.mark.parametrize("kind", ["other-pool", "handed-out"])
@pytest.mark.parametrize("way", ["result", "wait", "wait-first", "as_completed"])
def test_a_worker_that_waits_is_woken_by_a_cancel_too(one, two, kind, way):
    """The waiter may be a task: of another pool, or of this one that cannot run it itself."""
    with occupied(one):
        task = one.submit(int)
        waits_in = two
        if kind == "handed-out":
            assert one._work_queue.get_nowait().future is task
            waits_in = one
    begun = threading.Event()

    def work():
        begun.set()
        return WAYS[way]([task])

    gate = threading.Event()
    if kind == "other-pool":
        one.submit(gate.wait, 20)
        task = one.submit(int)
    waiting = waits_in.submit(work)
    begun.wait(10)
    if kind == "handed-out":
        assert task.cancel()
    else:
        one.shutdown(wait=False, cancel_futures=True)
    assert waiting.result(20) == {task}
    gate.set()


@every_cancel
def test_a_cancel_is_told_to_callbacks_once(one, cancel):
    with occupied(one):
        task, calls = one.submit(int), []
        for n in range(3):
            task.add_done_callback(lambda t, n=n: calls.append((n, t, t.cancelled())))
        cancel(one, task)
        assert calls == [(n, task, True) for n in range(3)]
    one.shutdown()
    assert len(calls) == 3


# ---- cancel() is True exactly when the task never ran


def check(tasks, ran, cancelled):
    """Each ran once, or was cancelled and did not run."""
    wait(tasks, 20)
    assert sorted(ran) == sorted(set(range(len(tasks))) - cancelled)
    for n, task in enumerate(tasks):
        assert task.done()
        assert task.cancelled() == (n in cancelled)


ORDERS = {
    "forward": lambda tasks: list(enumerate(tasks)),
    "backward": lambda tasks: list(enumerate(tasks))[::-1],
    "shuffled": lambda tasks: random.Random(1).sample(list(enumerate(tasks)), len(tasks)),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
def test_cancel_is_true_exactly_when_the_task_never_ran(pool, order, observed):
    """`cancel()` is True exactly when the task never ran."""
    for _ in range(15):
        ran, called = [], []
        tasks = [pool.submit(ran.append, n) for n in range(60)]
        if observed:
            for task in tasks:
                task.add_done_callback(called.append)
        cancelled = {n for n, task in order(tasks) if task.cancel()}
        check(tasks, ran, cancelled)
        if observed:
            assert eventually(lambda called=called: len(called) >= 60)
            assert sorted(map(id, called)) == sorted(map(id, tasks))


def test_many_threads_cancel_the_same_tasks_at_once(pool):
    """All of them are told the same, and it is true."""
    for seed in range(8):
        ran, called = [], []
        tasks = [pool.submit(ran.append, n) for n in range(80)]
        for task in tasks:
            task.add_done_callback(called.append)

        def cancel(order, tasks=tasks):
            return {n: tasks[n].cancel() for n in order}

        orders = [random.Random(4 * seed + k).sample(range(80), 80) for k in range(4)]
        answers = at_once(*(functools.partial(cancel, order) for order in orders))
        assert all(answer == answers[0] for answer in answers)
        check(tasks, ran, {n for n, told in answers[0].items() if told})
        assert eventually(lambda called=called: len(called) >= 80)
        assert sorted(map(id, called)) == sorted(map(id, tasks))


def test_one_queued_task_and_many_threads(one):
    for _ in range(40):
        with occupied(one):
            called = []
            task = one.submit(fail, AssertionError("ran"))
            task.add_done_callback(called.append)
            assert at_once(*[task.cancel] * 4) == [True] * 4
            assert called == [task]


def test_tasks_that_cancel_tasks_of_their_own_pool(pool):
    ran, told, tasks = [], [], []

    def work(n):
        ran.append(n)
        for k in (n + 1, n + 7, n - 3):
            if 0 <= k < len(tasks) and tasks[k].cancel():
                told.append(k)

    with occupied(pool):
        tasks.extend(pool.submit(work, n) for n in range(200))
    wait(tasks, 20)
    check(tasks, ran, set(told))
    assert told


def test_callbacks_that_cancel_the_next_task(pool):
    ran, told = [], []
    with occupied(pool):
        tasks = [pool.submit(ran.append, n) for n in range(100)]
        for n in range(99):
            tasks[n].add_done_callback(
                lambda _, n=n: tasks[n + 1].cancel() and told.append(n + 1)  # type: ignore
            )
    wait(tasks, 20)
    assert eventually(lambda: len(ran) + len(set(told)) == 100)
    check(tasks, ran, set(told))


def test_a_long_chain_of_callbacks_that_cancel_ends_in_an_error_that_is_logged():
    """Each is called in the cancel of the one before: a RecursionError, never a crash."""
    done = run_python(  # there may be no stack left to log with: stderr does not matter
        """
        import logging, threading
        from affinitypool import ThreadPoolExecutor, wait
        logged = []
        handler = logging.Handler()
        handler.emit = lambda record: logged.append(record.exc_info[0])
        logging.getLogger("concurrent.futures").addHandler(handler)
        logging.raiseExceptions = False
        gate = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(gate.wait)
            tasks = [pool.submit(int) for _ in range(5000)]
            for one, other in zip(tasks, tasks[1:]):
                one.add_done_callback(lambda _, other=other: other.cancel())
            assert tasks[0].cancel()
            gate.set()
            wait(tasks)
            assert pool.submit(abs, -1).result() == 1
        print(set(logged) <= {RecursionError}, all(task.done() for task in tasks))
        """
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done


def test_finalizers_that_cancel(pool):
    """In the worker that drops the argument, and wherever else the last reference goes."""
    ran, told, tasks = [], [], []

    class Argument:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            for k in (self.n + 1, self.n + 50):
                if k < len(tasks) and tasks[k].cancel():
                    told.append(k)

    def work(argument):
        ran.append(argument.n)

    with occupied(pool):
        tasks.extend(pool.submit(work, Argument(n)) for n in range(100))
    wait(tasks, 20)
    assert eventually(lambda: len(ran) + len(set(told)) == 100)
    check(tasks, ran, set(told))


def test_a_signal_handler_that_cancels_while_tasks_are_submitted(two):
    ran, told, tasks = [], set(), []

    def handler(number, frame):
        for n, task in list(enumerate(tasks)):
            if task.cancel():
                told.add(n)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for n in range(300):
            tasks.append(two.submit(ran.append, n))
            if n % 10 == 9:
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    check(tasks, ran, told)


@pytest.mark.parametrize("way", ["result", "wait", "wait-first", "as_completed", "wait-mixed"])
def test_a_signal_handler_cancels_what_the_main_thread_waits_for(one, way):
    with occupied(one):
        task = one.submit(fail, AssertionError("ran"))
        before = signal.signal(signal.SIGUSR1, lambda *_: task.cancel())
        main = threading.main_thread().ident
        timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGUSR1])
        timer.start()
        try:
            assert WAYS[way]([task]) >= {task}
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)


def test_a_running_task_is_not_cancelled_whoever_asks(one):
    entered, gate, box, told = threading.Event(), threading.Event(), [], []

    def work():
        gate.wait(10)
        told.append(box[0].cancel())  # itself
        entered.set()
        return 5

    box.append(one.submit(work))
    task = box[0]
    task.add_done_callback(lambda t: told.append(t.cancel()))
    gate.set()
    entered.wait(10)
    told += at_once(task.cancel, task.cancel)
    assert task.result(10) == 5
    one.submit(int).result(10)
    told.append(task.cancel())
    assert told == [False] * 5
    assert not task.cancelled()


def test_what_has_ended_is_not_cancelled(one):
    finished, failed = one.submit(int), one.submit(fail, KeyError())
    wait([finished, failed], 10)
    outside, bad = Task(), Task()
    outside.set_result(1)
    bad.set_exception(KeyError())
    for task in (finished, failed, outside, bad):
        assert task.cancel() is False
        assert task.done()
        assert not task.cancelled()


def test_a_task_that_was_handed_out_may_be_cancelled(one):
    """`_work_queue.get` took its call: who took it finds it cancelled and does not run it."""
    ran = []
    with occupied(one):
        task = one.submit(ran.append, 1)
        item = one._work_queue.get_nowait()
        assert item.future is task
        assert item.future.cancel() is True
        assert wait([task], 0).done == {task}
        item.run()
        assert item.future.set_running_or_notify_cancel() is False
    one.submit(int).result(10)
    assert ran == []
    assert task.cancelled()


def test_cancel_races_whoever_was_handed_the_task(one):
    for _ in range(100):
        ran = []
        with occupied(one):
            task = one.submit(ran.append, 1)
            item = one._work_queue.get_nowait()
            _, told = at_once(item.run, task.cancel)
        assert len(ran) + told == 1
        assert task.done()
        assert task.cancelled() == told


def test_cancel_races_taking_the_task_out_of_the_queue(one):
    import queue

    for _ in range(60):
        ran = []
        with occupied(one):
            tasks = [one.submit(ran.append, n) for n in range(5)]

            def take_and_run():
                with contextlib.suppress(queue.Empty):
                    while True:
                        one._work_queue.get_nowait().run()

            def cancel(tasks=tasks):
                return {n for n, task in enumerate(tasks) if task.cancel()}

            _, told = at_once(take_and_run, cancel)
        check(tasks, ran, told)


def test_ctrl_c_anywhere_while_a_task_is_taken_out_of_the_queue(one):
    """Whoever was interrupted has the task, or it is still in the queue, or it is cancelled."""

    def attempt(k):
        with occupied(one):
            tasks, items = [one.submit(int) for _ in range(2)], []
            try:
                with pending_at(k, signal.SIGINT, FOLDERS[:1]) as seen:
                    items.append(one._work_queue.get_nowait())
            except KeyboardInterrupt:
                pass
            for item in items:
                item.run()
        assert wait(tasks, 10).not_done == set(), k
        assert one.wait_idle(10), k
        return seen[0] >= k

    at_each_place(attempt)


def test_cancel_races_the_worker_that_waits_for_the_task(one):
    """A waiting worker runs the task itself, or finds it cancelled."""
    for _ in range(100):
        ran, box, ready = [], [], threading.Event()

        def work(ran=ran, box=box, ready=ready):
            inner = one.submit(ran.append, 1)
            box.append(inner)
            ready.set()
            try:
                inner.result()
            except CancelledError:
                return "cancelled"
            return "ran"

        outer = one.submit(work)
        ready.wait(10)
        told = box[0].cancel()
        assert outer.result(10) == ("cancelled" if told else "ran")
        assert len(ran) + told == 1


@pytest.mark.parametrize("end", ["shutdown", "drop"])
def test_cancel_races_the_end_of_the_pool(end):
    for _ in range(40):
        ran, called = [], []
        pool = ThreadPoolExecutor(2)
        tasks = [pool.submit(ran.append, n) for n in range(60)]
        for task in tasks:
            task.add_done_callback(called.append)
        box = [pool]
        del pool

        def finish(box=box):
            if end == "shutdown":
                box[0].shutdown(cancel_futures=True)
            box.clear()

        def cancel(tasks=tasks):
            return {n for n, task in enumerate(tasks) if task.cancel()}

        _, told = at_once(finish, cancel)
        wait(tasks, 20)
        cancelled = {n for n, task in enumerate(tasks) if task.cancelled()}
        if end == "drop":
            assert cancelled == told
        assert cancelled >= told
        check(tasks, ran, cancelled)
        assert eventually(lambda called=called: len(called) >= 60)
        assert sorted(map(id, called)) == sorted(map(id, tasks))


def test_tasks_of_every_origin_can_be_cancelled(one):
    ran = []

    def inner():
        return one.submit(ran.append, 0), one.submit_many(ran.append, [1, 2])

    entered, gate = threading.Event(), threading.Event()

    def work():
        made = inner()
        entered.set()
        gate.wait(10)
        return made

    outer = one.submit(work)
    entered.wait(10)
    outside = [one.submit(ran.append, 3), *one.submit_many(ran.append, [4, 5])]
    assert [task.cancel() for task in outside] == [True] * 3
    results = one.map(ran.append, [6, 7], timeout=0)
    with pytest.raises(TimeoutError):
        next(results)
    one.shutdown(wait=False, cancel_futures=True)
    gate.set()
    single, batch = outer.result(10)
    assert all(task.cancelled() for task in (single, *batch))
    one.shutdown()
    assert ran == []


# ---- wait and as_completed: duplicates; done before, during and after; many


@contextlib.contextmanager
def every_state(pool):
    """Tasks and futures in every state, and a function that ends the rest."""
    with occupied(pool) as gate:
        finished, failed = Task(), Task()
        finished.set_result(1)
        failed.set_exception(KeyError())
        cancelled, taken, kept = pool.submit(int), pool.submit(int), pool.submit(int)
        cancelled.cancel()
        items = [pool._work_queue.get_nowait()]  # cancelled ones are not handed out
        assert items[0].future is taken
        assert kept.set_running_or_notify_cancel()
        queued = [pool.submit(int), pool.submit(fail, ValueError()), *pool.submit_many(int, "12")]
        by_hand = Task()

        def end():
            gate.set()
            items.pop().run()
            kept.set_result(2)
            by_hand.set_exception(OSError())

        yield [finished, failed, cancelled], [taken, kept, *queued, by_hand], end
        if items:
            end()


@pytest.mark.parametrize("foreign", [False, True], ids=["tasks", "mixed"])
@pytest.mark.parametrize("wait", [wait, STDLIB_WAIT], ids=["ours", "stdlib"])
def test_wait_over_every_state_with_duplicates(pool, wait, foreign):
    """`wait` over lists with duplicates and with futures done before, during and after the call."""
    with every_state(pool) as (done, pending, end):
        done = [*done, ended()] if foreign else done
        fs = [*done, *pending, *done[::-1], *pending]
        assert wait(fs, 0) == (set(done), set(pending))
        assert wait(fs, 20, FIRST_COMPLETED).done == set(done)
        assert wait(fs, 20, FIRST_EXCEPTION).done == set(done)
        rest = [pending[0], *pending]
        assert wait(rest, 0.001, FIRST_COMPLETED) == (set(), set(pending))
        assert wait(rest, 0.001, FIRST_EXCEPTION) == (set(), set(pending))
        result, _ = at_once(lambda: wait(fs, 20), end)
        assert result == ({*done, *pending}, set())
        for when in EVERY_WHEN:
            assert wait(fs, 0, when) == ({*done, *pending}, set())


@pytest.mark.parametrize("foreign", [False, True], ids=["tasks", "mixed"])
@pytest.mark.parametrize("way", [as_completed, STDLIB_AS_COMPLETED], ids=["ours", "stdlib"])
def test_as_completed_over_every_state_with_duplicates(pool, way, foreign):
    """...and `as_completed`: each is yielded once, those that are done first."""
    with every_state(pool) as (done, pending, end):
        done = [*done, ended()] if foreign else done
        fs = [*pending, *done, *done[::-1], *pending]
        waiting = way(fs, 20)
        assert {next(waiting) for _ in done} == set(done)
        rest, _ = at_once(lambda: list(waiting), end)
        assert sorted(map(id, rest)) == sorted(map(id, pending))
        again = list(way(fs, 0))
        assert sorted(map(id, again)) == sorted(map(id, [*done, *pending]))


def test_one_future_a_thousand_times(one):
    """The kind: no count of unfinished futures goes wrong when one counts many times."""
    with occupied(one) as gate:
        task = one.submit(int)
        fs = [task] * 1000
        timer = threading.Timer(0.01, gate.set)
        timer.start()
        assert list(as_completed(fs, 20)) == [task]
        for when in EVERY_WHEN:
            assert wait(fs, 20, when) == ({task}, set())
        timer.join()


@pytest.mark.parametrize("way", ["wait", "wait-first", "wait-exception", "as_completed"])
def test_tasks_end_while_they_are_waited_for(pool, way):
    """During the call: some end before they are looked at, some while, some after."""
    for _ in range(30):
        tasks = [pool.submit(int) for _ in range(20)]
        assert WAYS[way](tasks) == set(tasks)


def cpu_seconds(run, count):
    begin = time.process_time()
    run(count)
    return time.process_time() - begin


def tasks_ended_by_hand(count):
    tasks = [Task() for _ in range(count)]
    for task in tasks[1:]:
        task.set_result(0)
    timer = threading.Timer(0, tasks[0].set_result, [0])
    timer.start()
    return tasks, timer


def linear_wait(count):
    tasks, timer = tasks_ended_by_hand(count)
    assert len(wait(tasks, 20).done) == count
    timer.join()


def linear_wait_first(count):
    tasks = [Task() for _ in range(count)]
    tasks[-1].set_result(0)
    assert len(wait(tasks, 20, FIRST_COMPLETED).done) == 1
    assert len(wait(tasks[:-1], 0, FIRST_COMPLETED).done) == 0


def linear_wait_exception(count):
    tasks, timer = tasks_ended_by_hand(count)
    assert len(wait(tasks, 20, FIRST_EXCEPTION).done) == count
    timer.join()


def linear_as_completed(count):
    tasks, timer = tasks_ended_by_hand(count)
    assert len(list(as_completed(tasks, 20))) == count
    timer.join()


def linear_mixed(count):
    tasks, timer = tasks_ended_by_hand(count)
    assert len(wait([*tasks, ended()], 20).done) == count + 1
    assert len(list(as_completed([*tasks, ended()], 20))) == count + 1
    timer.join()


def linear_duplicates(count):
    task = Task()
    timer = threading.Timer(0, task.set_result, [0])
    timer.start()
    assert len(wait([task] * count, 20).done) == 1
    assert len(list(as_completed([task] * count, 20))) == 1
    timer.join()


def linear_cancelled(count):
    pool, gate = ThreadPoolExecutor(1), threading.Event()
    pool.submit(gate.wait, 20)
    tasks = pool.submit_many(int, [0] * count)
    waiting = as_completed(tasks, 20)
    timer = threading.Timer(0, pool.shutdown, [False], {"cancel_futures": True})
    timer.start()
    assert len(list(waiting)) == count
    timer.join()
    gate.set()
    pool.shutdown()


def linear_live(count):
    with ThreadPoolExecutor(2) as pool:
        tasks = pool.submit_many(int, [0] * count)
        assert len(list(as_completed(tasks, 20))) == count
        assert len(wait(tasks, 20).done) == count


def linear_abandoned(count):
    tasks = [Task() for _ in range(count)]
    tasks[0].set_result(0)
    waiting = as_completed(tasks)
    next(waiting)
    waiting.close()


LINEAR = {
    name.removeprefix("linear_"): function
    for name, function in list(globals().items())
    if name.startswith("linear_")
}


@pytest.mark.parametrize("run", LINEAR.values(), ids=LINEAR)
def test_twenty_thousand_futures_cost_about_linear_time(run):
    """20,000 futures cost about linear time: ten times as many, not a hundred times the CPU."""
    small = min(cpu_seconds(run, 2_000) for _ in range(3))
    large = min(cpu_seconds(run, 20_000) for _ in range(2))
    assert large < 0.05 + 40 * small  # 100 times if it were quadratic


# ---- timeouts


def first_of(iterator):
    return next(iter(iterator))


def raise_if_pending(result):
    if result.not_done:
        raise TimeoutError
    return result


# each takes (pool, task, timeout); it raises TimeoutError when the timeout has passed
ENTRIES = {
    "result": lambda pool, task, timeout: task.result(timeout),
    "exception": lambda pool, task, timeout: task.exception(timeout),
    "wait": lambda pool, task, timeout: raise_if_pending(wait([task], timeout)),
    "wait-first": lambda pool, task, timeout: raise_if_pending(
        wait([task], timeout, FIRST_COMPLETED)
    ),
    "wait-exception": lambda pool, task, timeout: raise_if_pending(
        wait([task], timeout, FIRST_EXCEPTION)
    ),
    "wait-mixed": lambda pool, task, timeout: raise_if_pending(wait([task, ended()], timeout)),
    "as_completed": lambda pool, task, timeout: list(as_completed([task], timeout)),
    "as_completed-mixed": lambda pool, task, timeout: list(as_completed([task, ended()], timeout)),
    "map": lambda pool, task, timeout: list(pool.map(int, [0], timeout=timeout)),
    "map-buffered": lambda pool, task, timeout: list(
        pool.map(int, [0], timeout=timeout, buffersize=1)
    ),
}
every_entry = pytest.mark.parametrize("name", ENTRIES)
OF_TASKS = {name: entry for name, entry in ENTRIES.items() if not name.startswith("map")}


class Number:
    """A number as numpy's scalars are: it has __float__ and knows arithmetic with floats."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __add__(self, other):
        return self.value + other

    __radd__ = __add__

    def __gt__(self, other):
        return self.value > other

    def __lt__(self, other):
        return self.value < other

    def __repr__(self):
        return f"Number({self.value})"


SHORT = [
    0,
    -0.0,
    False,
    -1,
    -1e-9,
    1e-9,
    5e-324,
    0.02,
    -threading.TIMEOUT_MAX,
    -(10**30),
    -math.inf,
]
LONG = [
    None,
    1e9,
    10**9,
    threading.TIMEOUT_MAX,
    math.nextafter(threading.TIMEOUT_MAX, 0),
]
BEYOND = [
    math.nextafter(threading.TIMEOUT_MAX, math.inf),
    2 * threading.TIMEOUT_MAX,
    1e18,
    10**30,
    1e308,
    math.inf,
]


@pytest.mark.parametrize("timeout", SHORT, ids=repr)
def test_a_short_timeout_passes_and_not_too_soon(one, timeout):
    """Timeouts of 0, below 0, 1e-9."""
    with occupied(one):
        for name, entry in ENTRIES.items():
            task = one.submit(int)
            begin = time.monotonic()
            with about(name), pytest.raises(TimeoutError):
                entry(one, task, timeout)
            took = time.monotonic() - begin
            assert took >= timeout - 1e-6, name
            assert took < 10, name
            assert task._state == "PENDING", name
    assert task.result(10) == 0


def opened_soon(gate):
    timer = threading.Timer(0.005, gate.set)
    timer.start()
    return timer


@pytest.mark.parametrize("timeout", [*LONG, *BEYOND], ids=repr)
def test_a_long_timeout_waits(one, timeout):
    """Timeouts of 1e9 and `threading.TIMEOUT_MAX`.  The kind: nothing wraps around in a clock or a
    lock; above TIMEOUT_MAX is "for ever"."""
    for name, entry in ENTRIES.items():
        with about(name), occupied(one) as gate:
            task = one.submit(int)
            timer = opened_soon(gate)
            entry(one, task, timeout)
            timer.join()
        assert task.result(10) == 0


@pytest.mark.parametrize("timeout", [10**400, -(10**400)], ids=["10**400", "-10**400"])
def test_a_timeout_that_no_float_can_hold(one, timeout):
    """An OverflowError as in the stdlib, or as without a limit; the pool does not notice."""
    for name, entry in ENTRIES.items():
        with about(name), occupied(one) as gate:
            task = one.submit(int)
            if timeout > 0:
                gate.set()
            with contextlib.suppress(OverflowError, TimeoutError):
                entry(one, task, timeout)
        assert task.result(10) == 0
        assert one.submit(abs, -1).result(10) == 1


class OnlyFloat:
    def __float__(self):
        return 0.01


class OnlyIndex:
    def __index__(self):
        return 0


ODD = {
    "fraction": Fraction(1, 100),
    "decimal": Decimal("0.01"),
    "number": Number(0.01),
    "negative": Number(-1),
    "float": OnlyFloat(),
    "index": OnlyIndex(),
}


@pytest.mark.parametrize("timeout", ODD.values(), ids=ODD)
def test_odd_timeouts_count_as_seconds(one, timeout):
    """Whatever is a number of seconds: fractions, decimals, numpy's scalars."""
    with occupied(one):
        for name, entry in ENTRIES.items():
            task = one.submit(int)
            with about(name), pytest.raises(TimeoutError):
                entry(one, task, timeout)
    assert task.result(10) == 0


@pytest.mark.parametrize(
    "timeout",
    ["1", b"1", "", [], {}, (1,), object(), 1j, int],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:1]}",
)
def test_a_timeout_that_is_no_number_is_a_type_error(one, timeout):
    with occupied(one):
        for name, entry in ENTRIES.items():
            task = one.submit(int)
            with about(name), pytest.raises(TypeError):
                entry(one, task, timeout)
            assert task._state == "PENDING", name
    assert task.result(10) == 0


class BadNumber:
    def __float__(self):
        raise OSError("no number")


def test_a_timeout_whose_float_raises(one):
    """What it raises reaches the caller; nobody waits, nothing ran."""
    with occupied(one):
        for name, entry in ENTRIES.items():
            task = one.submit(int)
            with about(name), pytest.raises(OSError, match="no number"):
                entry(one, task, BadNumber())
            assert task._state == "PENDING", name
    assert task.result(10) == 0


@every_entry
def test_nan_is_refused(one, name):
    """It is neither passed nor not: a wait with it would never end, or spin."""
    with occupied(one):
        task = one.submit(int)
        with pytest.raises(ValueError, match="NaN"):
            ENTRIES[name](one, task, math.nan)
    assert task.result(10) == 0


@pytest.mark.parametrize("timeout", [0, -1, 0.0, -math.inf, None, 1e9, math.inf, True], ids=repr)
def test_what_is_done_needs_no_time(one, timeout):
    """A passed deadline does not hide what is done."""
    for name, entry in ENTRIES.items():
        task = one.submit(int)
        task.result(10)
        # the task of a map may not be done
        with about(name), contextlib.suppress(*[TimeoutError] * name.startswith("map")):
            entry(one, task, timeout)


@pytest.mark.parametrize("timeout", [1e-9, 0.005, 1e9, Fraction(1, 100)], ids=repr)
def test_a_timeout_in_a_worker_does_not_bound_the_run_of_its_own_task(one, timeout):
    """A timeout bounds the waiting, not the running: a result that came late is returned."""
    gate = threading.Event()

    def slow():
        gate.wait(0.01)
        return 7

    def work(entry):
        task = one.submit(slow)
        entry(one, task, timeout)
        return task.result(0)

    for name, entry in OF_TASKS.items():
        with about(name):
            assert one.submit(work, entry).result(10) == 7


@pytest.mark.parametrize("timeout", [0, -1, -math.inf, False], ids=repr)
def test_a_passed_timeout_in_a_worker_runs_nothing(one, timeout):
    def work(entry):
        task = one.submit(int)
        with pytest.raises(TimeoutError):
            entry(one, task, timeout)
        return task._state

    for name, entry in OF_TASKS.items():
        with about(name):
            assert one.submit(work, entry).result(10) == "PENDING"


@every_entry
def test_a_timeout_from_a_callback(one, name):
    """Callbacks wait as everybody does: here in the thread that cancels."""
    outcomes = []
    with occupied(one):
        task, other = one.submit(int), one.submit(int)

        def callback(_):
            try:
                ENTRIES[name](one, other, 0.01)
            except TimeoutError:
                outcomes.append("timed out")

        task.add_done_callback(callback)
        task.cancel()
        assert outcomes == ["timed out"]


@pytest.mark.parametrize("name", OF_TASKS)
def test_waits_that_timed_out_leave_nothing_with_the_task(one, name):
    """A service polls one long task for days."""
    with occupied(one), no_collector(collect=False):
        task = one.submit(int)
        for _ in range(300):
            with pytest.raises(TimeoutError):
                ENTRIES[name](one, task, 1e-9)
        assert task._waiters == []
        assert len(gc.get_referents(task)) < 20
        for referent in gc.get_referents(task):
            assert not isinstance(referent, list) or len(referent) == 0
    assert task.result(10) == 0


@pytest.mark.parametrize("timeout", [0, -1, 1e-9, 0.02, False, -math.inf], ids=repr)
def test_joining_a_worker_with_a_short_timeout(one, timeout):
    one.submit(int).result(10)
    (thread,) = one._threads
    thread.join(timeout)
    assert thread.is_alive()


@pytest.mark.parametrize("timeout", [None, 1e6, threading.TIMEOUT_MAX], ids=repr)
def test_joining_a_worker_with_a_long_timeout(timeout):
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result(10)
    (thread,) = pool._threads
    pool.shutdown(wait=False)
    thread.join(timeout)
    assert not thread.is_alive()


# each takes (pool, timeout); it returns False, or a list, when the timeout has passed
POOL_WAITS = {
    "shutdown": lambda pool, timeout: pool.shutdown(timeout=timeout),
    "cancelling": lambda pool, timeout: pool.shutdown(cancel_futures=True, timeout=timeout),
    "drain": lambda pool, timeout: pool.drain(timeout),
    "shutdown_now": lambda pool, timeout: pool.shutdown_now(timeout),
    "wait_idle": lambda pool, timeout: pool.wait_idle(timeout=timeout),
}


@pytest.mark.parametrize("timeout", [*SHORT, *ODD.values()], ids=[*map(repr, SHORT), *ODD])
def test_waiting_for_a_pool_with_a_short_timeout(timeout):
    """The pool's own waits take what those for a task take."""
    for name, pool_wait in POOL_WAITS.items():
        with about(name), ThreadPoolExecutor(2) as pool:
            with occupied(pool):
                begin = time.monotonic()
                outcome = pool_wait(pool, timeout)
                took = time.monotonic() - begin
                assert outcome == ([] if name == "shutdown_now" else False)
                assert took < 10
                if isinstance(timeout, (int, float)):
                    assert took >= timeout - 1e-6
            assert pool.shutdown(timeout=20) is True


@pytest.mark.parametrize("timeout", [*LONG, *BEYOND], ids=repr)
def test_waiting_for_a_pool_with_a_long_timeout(timeout):
    for name, pool_wait in POOL_WAITS.items():
        with about(name), ThreadPoolExecutor(2) as pool, occupied(pool) as gate:
            timer = opened_soon(gate)
            assert pool_wait(pool, timeout) == ([] if name == "shutdown_now" else True)
            timer.join()


@pytest.mark.parametrize("name", POOL_WAITS)
@pytest.mark.parametrize(
    ("timeout", "error"),
    [("1", TypeError), (b"1", TypeError), ([], TypeError), (1j, TypeError), (math.nan, ValueError)],
    ids=repr,
)
def test_a_pool_whose_wait_was_refused_stays_open(one, name, timeout, error):
    """Nothing is closed or cancelled when the timeout is no number."""
    with occupied(one):
        task = one.submit(int)
        with pytest.raises(error):
            POOL_WAITS[name](one, timeout)
        assert task._state == "PENDING"
    assert task.result(10) == 0
    assert one.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("timeout", [0, 0.0, -1, 1e-9, 0.02, -math.inf], ids=repr)
def test_the_condition_of_a_task_with_a_short_timeout(one, timeout):
    with occupied(one):
        condition = one.submit(int)._condition
        with condition:
            assert condition.wait(timeout) is False
            assert condition.wait_for(lambda: False, timeout) is False
            assert condition.wait_for(lambda: True, timeout) is True


@pytest.mark.parametrize("timeout", [*LONG, *BEYOND], ids=repr)
def test_the_condition_of_a_task_with_a_long_timeout(one, timeout):
    with occupied(one) as gate:
        task = one.submit(int)
        with task._condition:
            timer = opened_soon(gate)
            assert task._condition.wait_for(task.done, timeout) is True
        timer.join()


# ---- a task is decided from outside, in every state


def handed_out(pool):
    task = pool.submit(fail, AssertionError("ran"))
    assert pool._work_queue.get_nowait().future is task
    return task


def kept_running(pool):
    task = pool.submit(fail, AssertionError("ran"))
    assert task.set_running_or_notify_cancel()
    return task


def by_hand_running(pool):
    task = Task()
    assert task.set_running_or_notify_cancel()
    return task


OPEN = {
    "queued": lambda pool: pool.submit(fail, AssertionError("ran")),
    "batch": lambda pool: pool.submit_many(fail, [AssertionError("ran")])[0],
    "handed-out": handed_out,
    "kept-running": kept_running,
    "by-hand": lambda pool: Task(),
    "by-hand-running": by_hand_running,
}
every_open = pytest.mark.parametrize("make", OPEN.values(), ids=OPEN)


def decide(task, how):
    """Set the outcome; return what the task then has to tell."""
    if how == "result":
        task.set_result(how)
    else:
        task.set_exception(OSError(how))


def check_decided(task, how):
    assert (task.done(), task.cancelled(), task.running()) == (True, False, False)
    assert task._state == "FINISHED"
    if how == "result":
        assert task.result(0) == how
        assert task.exception(0) is None
    else:
        assert isinstance(task.exception(0), OSError)
        with pytest.raises(OSError, match=how):
            task.result(0)


every_how = pytest.mark.parametrize("how", ["result", "exception"])


@every_how
@every_open
@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
def test_a_task_that_has_not_ended_may_be_decided_from_outside(one, make, how, observed):
    """An outside `set_result` on a pending task means that it does not run."""
    with occupied(one):
        task, calls = make(one), []
        if observed:
            task.add_done_callback(calls.append)
        decide(task, how)
        check_decided(task, how)
        assert calls == [task] * observed
        assert task.cancel() is False
        for again in ("result", "exception"):
            with pytest.raises(InvalidStateError, match="FINISHED"):
                decide(task, again)
        assert wait([task], 0).done == {task}
        assert list(as_completed([task], 0)) == [task]
    one.submit(int).result(10)
    check_decided(task, how)
    assert calls == [task] * observed


@every_how
@pytest.mark.parametrize("make", [OPEN["queued"], OPEN["kept-running"], OPEN["by-hand"]])
@pytest.mark.parametrize(
    "way", ["result", "exception", "wait", "wait-first", "as_completed", "stdlib-wait", "asyncio"]
)
def test_deciding_wakes_whoever_waits(one, make, how, way):
    with occupied(one):
        task, begun = make(one), threading.Event()

        def collect():
            begun.set()
            if way in ("result", "exception"):
                with contextlib.suppress(OSError):
                    getattr(task, way)(20)
                return {task}
            if way == "asyncio":

                async def main():
                    with contextlib.suppress(OSError):
                        await asyncio.wait_for(asyncio.wrap_future(task), 20)

                asyncio.run(main())
                return {task}
            return WAYS[way]([task])

        def end():
            begun.wait(10)
            decide(task, how)

        seen, _ = at_once(collect, end)
        assert seen >= {task}
        check_decided(task, how)


@every_how
@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_deciding_a_running_task_drops_what_the_worker_has(one, how, observed, fails):
    """...on a running one the worker drops its own result and lives."""
    entered, gate, deaths, calls = threading.Event(), threading.Event(), [], []

    def work():
        entered.set()
        gate.wait(10)
        own = Probe()
        deaths.append(weakref.ref(own))
        if fails:
            error = KeyError()
            error.probe = own
            try:
                raise error
            finally:
                del error
        return own

    with no_collector(collect=False):
        task = one.submit(work)
        if observed:
            task.add_done_callback(calls.append)
        entered.wait(10)
        decide(task, how)
        check_decided(task, how)
        gate.set()
        assert one.submit(abs, -1).result(10) == 1
        check_decided(task, how)
        assert calls == [task] * observed
        assert len(deaths) == 1
        assert all_dead(deaths)


CLOSED = {
    "finished": (lambda pool: pool.submit(int), "FINISHED"),
    "failed": (lambda pool: pool.submit(fail, KeyError("own")), "FINISHED"),
    "cancelled": (lambda pool: pool.submit(int), "CANCELLED_AND_NOTIFIED"),
    "set-result": (lambda pool: Task(), "FINISHED"),
    "set-exception": (lambda pool: Task(), "FINISHED"),
}


@every_how
@pytest.mark.parametrize("state", CLOSED)
def test_a_task_that_has_ended_is_not_decided_again(one, caplog, state, how):
    make, name = CLOSED[state]
    with occupied(one):
        task, calls = make(one), []
        task.add_done_callback(calls.append)
        if state == "cancelled":
            task.cancel()
        elif state.startswith("set-"):
            decide(task, state.removeprefix("set-"))
    wait([task], 10)
    one.submit(int).result(10)
    before = task._get_snapshot()
    argument = Probe()
    death = weakref.ref(argument)
    error = OSError(argument) if how == "exception" else None
    with pytest.raises(InvalidStateError, match=name):
        task.set_exception(error) if error else task.set_result(argument)
    assert task._get_snapshot() == before
    assert task._state == name
    assert calls == [task]
    del argument, error
    gc.collect()
    assert death() is None, "the outcome that was refused is held"
    if state == "cancelled":
        assert task.set_running_or_notify_cancel() is False
    else:
        with pytest.raises(RuntimeError, match="unexpected state"):
            task.set_running_or_notify_cancel()
        assert "unexpected state" in caplog.text


@pytest.mark.parametrize(
    "value", [None, 5, "text", object, int, OSError("ok").args], ids=lambda value: repr(value)[:12]
)
def test_what_is_no_exception_is_refused(one, value):
    """The stdlib would raise it later, in whoever asks for the result."""
    with occupied(one):
        for make in OPEN.values():
            task = make(one)
            state = task._state
            with pytest.raises(TypeError):
                task.set_exception(value)
            assert task._state == state
            task.set_result(1)


def test_an_exception_class_whose_init_raises_decides_nothing(one):
    class Bad(Exception):
        def __init__(self):
            raise OSError("in __init__")

    with occupied(one):
        task = one.submit(int)
        with pytest.raises(OSError, match="in __init__"):
            task.set_exception(Bad)
        assert task._state == "PENDING"
    assert task.result(10) == 0


@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
@pytest.mark.parametrize("kind", ["queued", "by-hand", "kept-running", "handed-out"])
def test_many_threads_decide_one_task(one, kind, observed):
    """One of them, or a cancel, wins; the others are told."""
    for _ in range(25):
        with occupied(one):
            task, calls = OPEN[kind](one), []
            if observed:
                task.add_done_callback(calls.append)

            def decider(value, task=task):
                try:
                    task.set_result(value)
                except InvalidStateError:
                    return False
                return True

            *won, cancelled = at_once(
                *(functools.partial(decider, value) for value in range(3)), task.cancel
            )
            assert sum(won) + cancelled == 1
            assert task.cancelled() == cancelled
            if not cancelled:
                assert task.result(0) == won.index(True)
            assert calls == [task] * observed


@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
def test_deciding_races_the_worker(pool, observed):
    """Either the worker's own outcome or the outside one, and the decider is told which."""
    ran = []
    for _ in range(150):
        calls = []
        task = pool.submit(ran.append, 1)
        if observed:
            task.add_done_callback(calls.append)
        try:
            task.set_result("outside")
            assert task.result(10) == "outside"
        except InvalidStateError:
            assert task.result(10) is None
        if observed:
            assert eventually(lambda calls=calls: calls)
            assert calls == [task]
    assert pool.submit(abs, -1).result(10) == 1


def test_a_cycle_of_tasks_that_were_decided_is_collected(one):
    with occupied(one):
        first, second = one.submit(int), one.submit(int)
        first.set_result(second)
        second.set_result(first)
    one.submit(int).result(10)
    cell = Cell()
    death = weakref.ref(cell)
    first.note = cell
    del first, second, cell
    assert eventually(lambda: gc.collect() is not None and death() is None)
