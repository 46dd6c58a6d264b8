"""Opt-in hook for failures nobody looked at: `on_unobserved_error`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import sys
import threading
import weakref

import pytest
from helpers import (
    Probe,
    all_dead,
    at_once,
    check_python,
    eventually,
    fail,
    no_collector,
    occupied,
    run_python,
)

from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenThreadPool,
    Task,
    ThreadPoolExecutor,
    as_completed,
    on_unobserved_error,
    wait,
)

pytestmark = pytest.mark.timeout(60)


class Error(Exception):
    pass


@pytest.fixture(autouse=True)
def _no_hook_is_left():
    before = on_unobserved_error(None)
    yield
    on_unobserved_error(before)


@pytest.fixture
def lost():
    """Give the list of the errors that nobody looked at."""
    gc.collect()  # what earlier tests have left
    errors = []
    on_unobserved_error(lambda task: errors.append(task.exception()))
    return errors


def fails():
    raise Error


def dies_when_collected(death):
    """A worker lets go of a task after it has told that it is done."""
    return eventually(lambda: gc.collect() is not None and death() is None, 10)


def settle(pool):
    """Whatever was submitted has run, and its callbacks too."""
    assert pool.wait_idle(10)


# ---- what is reported


def by_batch(pool, error):
    pool.submit_many(fail, [error])


def by_map(pool, error):
    pool.map(fail, [error])


def by_map_abandoned(pool, error):
    results = pool.map(lambda n: fail(error) if n else n, range(2))
    settle(pool)  # else the second call may be cancelled
    next(results)


def by_a_task(pool, error):
    pool.submit(lambda: pool.submit(fail, error) and None).result(10)


def by_an_inline_run(pool, error):
    pool.submit(lambda: wait([pool.submit(fail, error)]) and None).result(10)


def by_a_dropped_pool(pool, error):
    ThreadPoolExecutor(1).submit(fail, error)


def by_an_observed_task(pool, error):
    with occupied(pool):
        task = pool.submit(fail, error)
        task.add_done_callback(lambda _: None)
        assert task._condition


def by_a_work_item(pool, error):
    with occupied(pool):
        pool.submit(fail, error)
        pool._work_queue.get_nowait().run()


def by_hand(pool, error):
    Task().set_exception(error)


def by_set_exception(pool, error):
    with occupied(pool):
        pool.submit(int).set_exception(error)


def by_set_exception_while_it_runs(pool, error):
    entered, gate = threading.Event(), threading.Event()
    task = pool.submit(lambda: (entered.set(), gate.wait(10)))
    entered.wait(10)
    task.set_exception(error)
    gate.set()


def by_a_callback_that_does_not_look(pool, error):
    pool.submit(fail, error).add_done_callback(repr)


WAYS = {
    "submit": lambda pool, error: pool.submit(fail, error) and None,
    "batch": by_batch,
    "map": by_map,
    "map-abandoned": by_map_abandoned,
    "in-a-task": by_a_task,
    "inline": by_an_inline_run,
    "dropped-pool": by_a_dropped_pool,
    "observed": by_an_observed_task,
    "work-item": by_a_work_item,
    "by-hand": by_hand,
    "set_exception": by_set_exception,
    "set_exception-running": by_set_exception_while_it_runs,
    "callback": by_a_callback_that_does_not_look,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_failure_that_nobody_looked_at_is_reported_once(pool, lost, way):
    """However the task was made and ended, and without the collector."""
    with no_collector(collect=False):
        for _ in range(3):
            error = Error()
            way(pool, error)
            assert eventually(lambda: lost, 10)
            assert lost.pop() is error
        settle(pool)
    assert lost == []


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(4),
        ExceptionGroup("group", [KeyError()]),
        type("Falsy", (Exception,), {"__bool__": lambda self: False})(),
        type("Bad", (Exception,), {"__bool__": lambda self: fail(OSError())})(),
        type("Own", (BaseException,), {})(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_every_kind_are_reported(one, lost, error):
    one.submit(fail, error)
    assert eventually(lambda: lost, 10)
    assert len(lost) == 1
    assert lost[0] is error


def test_all_of_many_are_reported(pool, lost):
    """Each once, whoever made them and let go of them."""

    def produce(k):
        for n in range(300):
            task = pool.submit(fail, Error(k, n))
            if n % 3 == 0:
                wait([task], 10)
            elif n % 3 == 1:
                task.add_done_callback(lambda _: None)

    at_once(*(functools.partial(produce, k) for k in range(4)))
    settle(pool)
    assert eventually(lambda: len(lost) >= 1200, 10)
    assert sorted(error.args for error in lost) == [(k, n) for k in range(4) for n in range(300)]


def test_pending_tasks_of_a_pool_that_breaks_are_reported(lost, monkeypatch):
    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", lambda record: None)
    gate = threading.Event()
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), fail(OSError("start"))))
    tasks = [pool.submit(int) for _ in range(5)]
    looked = tasks.pop()
    tasks.clear()
    gate.set()
    assert isinstance(looked.exception(10), BrokenThreadPool)
    pool.shutdown()
    del looked
    assert eventually(lambda: len(lost) >= 4)
    assert {type(error) for error in lost} == {BrokenThreadPool}
    assert len(lost) == 4


# ---- what is not


def test_success_and_cancel_are_not_reported(pool, lost):
    with occupied(pool):
        for n in range(20):
            task = pool.submit(fail, Error()) if n % 2 else pool.submit(int)
            if n % 2:
                task.cancel()
        pool.submit(fail, Error()).set_result(0)
        Task().set_result(Error())
        Task().cancel()
        del task
    pool.submit(Error)
    settle(pool)
    with ThreadPoolExecutor(1) as other, occupied(other):
        for _ in range(5):
            other.submit(fails)
        other.shutdown(wait=False, cancel_futures=True)
    gc.collect()
    assert lost == []


async def await_it(task):
    with pytest.raises(Error):
        await asyncio.wrap_future(task)


def read_as_completed(task):
    for done in as_completed([task], 10):
        assert isinstance(done.exception(), Error)


def look_in_a_callback(task):
    told = threading.Event()
    task.add_done_callback(lambda t: t.exception() and told.set())
    assert told.wait(10)


def look_with_a_passed_timeout(task):
    wait([task], 10)
    assert isinstance(task.exception(0), Error)


LOOKS = {
    "result": lambda task: pytest.raises(Error, task.result, 10),
    "exception": lambda task: task.exception(10),
    "timeout-0": look_with_a_passed_timeout,
    "snapshot": lambda task: wait([task]) and task._get_snapshot(),
    "attribute": lambda task: wait([task]) and task._exception,
    "as_completed": read_as_completed,
    "callback": look_in_a_callback,
    "asyncio": lambda task: asyncio.run(await_it(task)),
    "twice": lambda task: task.exception(10) is task.exception(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_somebody_looked_at_is_not_reported(two, lost, look):
    for _ in range(3):
        task = two.submit(fails)
        look(task)
        death = weakref.ref(task)
        del task
        if look in (LOOKS["result"], LOOKS["asyncio"]):  # frames of theirs hold the task
            assert dies_when_collected(death)
        assert all_dead([death])
    assert lost == []


def test_what_map_raised_is_not_reported(two, lost):
    for options in ({}, {"buffersize": 2}):
        with pytest.raises(Error):
            list(two.map(lambda _: fails(), [1], **options))
    gc.collect()
    assert lost == []


def test_who_waits_inside_a_task_has_looked(one, lost):
    def work():
        task = one.submit(fails)
        with contextlib.suppress(Error):
            task.result()

    one.submit(work).result(10)
    gc.collect()
    assert lost == []


NO_LOOKS = {
    "nothing": lambda task: eventually(task.done, 10),
    "states": lambda task: (
        wait([task]) and [task.running(), task.cancelled(), task.cancel(), task.done()]
    ),
    "repr": lambda task: wait([task]) and repr(task),
    "state": lambda task: wait([task]) and (task._state, task._result),
    "wait": lambda task: wait([task], 10),
    "wait-first": lambda task: wait([task], 10, FIRST_COMPLETED),
    "wait-exception": lambda task: wait([task], 10, FIRST_EXCEPTION),
    "as_completed": lambda task: list(as_completed([task], 10)),
    "callback": lambda task: task.add_done_callback(lambda t: t.done()),
    "observed": lambda task: (task._condition, task._waiters, task._done_callbacks),
    "timed-out": lambda task: contextlib.suppress(TimeoutError).__exit__(None, None, None),
    "refused": lambda task: wait([task]) and pytest.raises(Exception, task.set_result, 1),
    "weak": lambda task: weakref.finalize(task, int),
}


@pytest.mark.parametrize("look", NO_LOOKS.values(), ids=NO_LOOKS)
def test_waiting_is_not_looking(two, lost, look):
    """To wait for a task, to ask for its state, or a callback that does not look, is no look."""
    for _ in range(3):
        task = two.submit(fails)
        look(task)
        del task
        settle(two)
        assert eventually(lambda: lost, 10)
        assert type(lost.pop()) is Error
    assert lost == []


def test_a_task_that_is_kept_is_not_reported(two, lost):
    """Somebody may look yet."""
    tasks = [two.submit(fails) for _ in range(5)]
    settle(two)
    gc.collect()
    assert lost == []
    tasks.pop().exception(10)
    tasks.clear()
    assert eventually(lambda: len(lost) >= 4)
    assert len(lost) == 4


# ---- the hook


def test_there_is_no_hook_by_default():
    out = check_python(
        """
        from affinitypool import ThreadPoolExecutor, on_unobserved_error
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int, "x")
        print(on_unobserved_error(print), on_unobserved_error(None) is print)
        """
    )
    assert out == "None True\n"


def test_setting_gives_the_hook_before(one):
    first, second = [], []
    assert on_unobserved_error(first.append) is None
    assert on_unobserved_error(second.append) == first.append
    one.submit(fails)
    assert eventually(lambda: second, 10)
    assert on_unobserved_error(None) == second.append
    assert on_unobserved_error(None) is None
    one.submit(fails)
    settle(one)
    gc.collect()
    assert (len(first), len(second)) == (0, 1)


@pytest.mark.parametrize("hook", [5, "name", [], 0, False], ids=repr)
def test_a_hook_that_cannot_be_called_is_refused(one, lost, hook):
    """...and the one before stays."""
    with pytest.raises(TypeError, match="hook must be a callable or None"):
        on_unobserved_error(hook)
    one.submit(fails)
    assert eventually(lambda: lost, 10)


def test_the_hook_of_the_moment_of_death_counts(one):
    """Tasks made before the hook was set are told of; those that die after it was removed not."""
    errors = []
    early = one.submit(fails)
    late = one.submit(fails)
    settle(one)
    on_unobserved_error(lambda task: errors.append(1))
    del early
    assert eventually(lambda: errors, 10)
    on_unobserved_error(None)
    del late
    settle(one)
    assert errors == [1]


def test_a_hook_may_keep_the_task(one):
    """It is revived, whole, and told of once only."""
    kept = []
    on_unobserved_error(kept.append)
    error = Error()
    task = one.submit(fail, error)
    task.note = Probe()
    probe = weakref.ref(task.note)
    del task
    assert eventually(lambda: kept, 10)
    (task,) = kept
    assert isinstance(task, Task)
    assert task.note is probe()
    assert (task.done(), task.cancelled(), task.cancel()) == (True, False, False)
    for _ in range(3):
        with pytest.raises(Error) as caught:
            task.result()
        assert caught.value is error
    calls = []
    task.add_done_callback(calls.append)
    assert calls == [task]
    assert wait([task], 0).done == {task}
    death = weakref.ref(task)
    kept.clear()
    calls.clear()
    del task
    assert all_dead([death, probe])
    assert kept == []


@pytest.mark.parametrize(
    "error", [Error("hook"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr
)
def test_a_hook_that_raises_harms_nobody(pool, monkeypatch, error):
    """It is told to `sys.unraisablehook`; the pool and the next report go on."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    on_unobserved_error(lambda task: fail(error))
    for n in range(5):
        pool.submit(fails)
        assert eventually(lambda n=n: len(unraisable) > n, 10)
        assert pool.submit(abs, -1).result(10) == 1
    assert unraisable == [error] * 5


def test_a_hook_leaves_an_exception_that_is_under_way_alone(one):
    """A task may die while another exception passes through the frame that held it."""
    seen = []
    on_unobserved_error(lambda task: seen.append(type(task.exception())))

    def work():
        task = one.submit(fails)
        settle(one)
        try:
            raise KeyError
        finally:
            del task

    with pytest.raises(KeyError) as caught:
        work()
    assert seen == [Error]
    assert caught.value.__context__ is None


ACTIONS = {
    "submits": lambda pool: pool.submit(abs, -1),
    "waits": lambda pool: pool.submit(abs, -1).result(20),
    "maps": lambda pool: list(pool.map(abs, [-1])),
    "makes-a-pool": lambda pool: ThreadPoolExecutor(1).submit(abs, -1).result(20),
    "collects": lambda pool: gc.collect(),
    "unsets": lambda pool: on_unobserved_error(None),
    "loses-another": lambda pool: Task().set_exception(Error("another")),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_hook_may_use_the_pool(monkeypatch, action, workers):
    unraisable, done = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: unraisable.append(info.exc_value))

    def hook(task):
        error = task.exception()
        if not error.args:
            ACTIONS[action](pool)
        done.append(error.args)

    with ThreadPoolExecutor(workers) as pool:
        for n in range(5):
            on_unobserved_error(hook)
            pool.submit(fails)
            expected = (n + 1) * (2 if action == "loses-another" else 1)
            assert eventually(lambda expected=expected: len(done) >= expected, 20)
        assert pool.submit(abs, -1).result(10) == 1
        assert len(done) == expected
    assert unraisable == []


def test_tasks_in_cycles_are_reported_by_the_collector(one, lost):
    for n in range(10):
        task = one.submit(fail, Error(n))
        task.me = task
        task.add_done_callback(lambda t, task=task: None)
        del task
    settle(one)
    assert lost == []
    assert eventually(lambda: gc.collect() is not None and len(lost) >= 10, 10)
    assert sorted(error.args[0] for error in lost) == list(range(10))


def test_what_was_reported_is_freed(two):
    """The hook that only counts keeps nothing, and the collector has nothing to do."""
    deaths, count = [], []
    on_unobserved_error(lambda task: count.append(1))

    def work():
        probe, error = Probe(), Error()
        deaths.extend([weakref.ref(probe), weakref.ref(error)])
        try:
            raise error
        finally:
            del probe, error

    with no_collector(collect=False):
        for _ in range(200):
            two.submit(work)
        assert eventually(lambda: len(count) == 200, 10)
        assert all_dead(deaths)


def test_hooks_that_come_and_go_while_tasks_die(two):
    """Set and unset by one thread while others let go of failed tasks."""
    seen, stop = [], threading.Event()

    def change():
        while not stop.is_set():
            on_unobserved_error(seen.append)
            on_unobserved_error(None)

    def produce():
        for _ in range(400):
            two.submit(fails)
            Task().set_exception(Error())

    def produce_all():
        try:
            at_once(produce, produce)
        finally:
            stop.set()

    at_once(change, produce_all)
    on_unobserved_error(None)
    settle(two)
    assert all(isinstance(task, Task) for task in seen)
    assert len({id(task) for task in seen}) == len(seen)
    seen.clear()


def test_subclasses_of_task_are_reported_too(lost):
    class Own(Task):
        pass

    Own().set_exception(Error("before"))
    on_unobserved_error(None)

    class Later(Task):
        pass

    on_unobserved_error(lambda task: lost.append(task.exception()))
    Later().set_exception(Error("after"))
    assert [error.args for error in lost] == [("before",), ("after",)]


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise KeyError"])
def test_what_is_lost_at_the_end_of_the_process_is_reported(end):
    """What ran at exit and failed, and what a module still held."""
    done = run_python(
        f"""
        import sys
        from affinitypool import ThreadPoolExecutor, on_unobserved_error
        on_unobserved_error(lambda task: print("lost", task.exception(), flush=True))
        pool = ThreadPoolExecutor(1)
        for n in range(3):
            pool.submit(int, "x%d" % n)
        kept = pool.submit(int, "kept")
        {end}
        """
    )
    lines = sorted(done.stdout.splitlines())
    expected = [
        f"lost invalid literal for int() with base 10: '{text}'" for text in ("x0", "x1", "x2")
    ]
    assert [line for line in lines if "kept" not in line] == expected
    assert done.returncode == {"pass": 0, "sys.exit(3)": 3, "raise KeyError": 1}[end]
    assert "Fatal" not in done.stderr
