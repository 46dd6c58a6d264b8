"""Tasks: states, outcomes, timeouts, callbacks, settling from outside, and memory."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import gc
import logging
import math
import re
import sys
import sysconfig
import threading
import time
import weakref

import pytest
from helpers import Probe, check_python, eventually, no_collector, occupied

from affinitypool import CancelledError, Future, InvalidStateError, Task, ThreadPoolExecutor

pytestmark = pytest.mark.timeout(30)


def fail(error):
    raise error


class Falsy(Exception):
    def __bool__(self):
        return False


class Empty(Exception):
    def __len__(self):
        return 0


# ---- states


def states(task):
    return task._state, task.done(), task.running(), task.cancelled()


def test_states_of_a_task_that_returns(one):
    entered, gate = threading.Event(), threading.Event()
    with occupied(one):
        task = one.submit(lambda: (entered.set(), gate.wait(10)))
        assert states(task) == ("PENDING", False, False, False)
    entered.wait(10)
    assert states(task) == ("RUNNING", False, True, False)
    assert task.cancel() is False
    gate.set()
    task.result(10)
    assert states(task) == ("FINISHED", True, False, False)
    assert task.cancel() is False


def test_states_of_a_cancelled_task(one):
    ran = []
    with occupied(one):
        task = one.submit(ran.append, 1)
        assert task.cancel() is True
        assert task.cancel() is True
        assert states(task) == ("CANCELLED_AND_NOTIFIED", True, False, True)
        with pytest.raises(CancelledError):
            task.result()
        with pytest.raises(CancelledError):
            task.exception()
    one.submit(int).result(10)
    assert ran == []


def test_repr_names_the_state_and_the_outcome(one):
    with occupied(one):
        pending, cancelled = one.submit(int), one.submit(int)
        cancelled.cancel()
        assert re.fullmatch(r"<Task at 0x[0-9a-f]+ state=pending>", repr(pending))
        assert re.fullmatch(r"<Task at 0x[0-9a-f]+ state=cancelled>", repr(cancelled))
    pending.result(10)
    assert repr(pending).endswith(" state=finished returned int>")
    failed = one.submit(fail, KeyError(1))
    failed.exception(10)
    assert repr(failed).endswith(" state=finished raised KeyError>")
    entered, gate = threading.Event(), threading.Event()
    running = one.submit(lambda: (entered.set(), gate.wait(10)))
    entered.wait(10)
    assert repr(running).endswith(" state=running>")
    gate.set()


def test_a_task_is_a_future(one):
    task = one.submit(int)
    assert isinstance(task, Future)
    assert isinstance(task, concurrent.futures.Future)
    assert type(task) is Task
    assert Task.__module__ == "affinitypool"
    assert len({task, task}) == 1
    assert task == task
    assert task != one.submit(int)


def test_every_public_name_of_the_stdlib_future_is_there():
    for name in vars(Future):
        if not name.startswith("__"):
            assert hasattr(Task, name), name


def test_a_task_made_by_hand_is_an_empty_future():
    task = Task()
    assert states(task) == ("PENDING", False, False, False)
    task.set_result(3)
    assert task.result() == 3
    other = Task()
    assert other.set_running_or_notify_cancel() is True
    assert other.running()
    other.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        other.result()
    third = Task()
    assert third.cancel()
    assert third.set_running_or_notify_cancel() is False
    with pytest.raises(TypeError):
        Task(1)


def test_a_result_crosses_unchanged(pool):
    value = Probe()
    assert pool.submit(lambda: value).result(10) is value
    assert pool.submit(lambda: None).result(10) is None


# ---- timeouts


@pytest.mark.parametrize("timeout", [0, -1, -math.inf, 1e-9, 0.0, -1e-9, 0.02])
@pytest.mark.parametrize("method", ["result", "exception"])
def test_a_short_timeout_passes(one, method, timeout):
    with occupied(one):
        task = one.submit(int)
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            getattr(task, method)(timeout)
        took = time.monotonic() - begin
        assert (timeout if timeout > 0 else 0) <= took + 1e-3
        assert took < timeout + 2 if timeout > 0 else took < 2
    task.result(timeout=10)


@pytest.mark.parametrize("timeout", [None, 20, 1e9, 1e18, threading.TIMEOUT_MAX, math.inf, 10**30])
@pytest.mark.parametrize("method", ["result", "exception"])
def test_a_long_timeout_waits(one, method, timeout):
    with occupied(one) as gate:
        task = one.submit(fail, KeyError())
        timer = threading.Timer(0.02, gate.set)
        timer.start()
        if method == "result":
            with pytest.raises(KeyError):
                task.result(timeout)
        else:
            assert isinstance(task.exception(timeout), KeyError)
        timer.join()


@pytest.mark.parametrize(
    ("timeout", "error"),
    [("1", TypeError), (b"1", TypeError), ([], TypeError), (math.nan, ValueError)],
)
@pytest.mark.parametrize("method", ["result", "exception"])
def test_a_timeout_that_is_no_number_is_refused(one, method, timeout, error):
    with occupied(one):
        task = one.submit(int)
        with pytest.raises(error):
            getattr(task, method)(timeout)
        with pytest.raises(error):
            getattr(task, method)(timeout=timeout)
    assert task.result(10) == 0


@pytest.mark.parametrize("timeout", [0, -1, None, 1e9])
def test_a_finished_task_needs_no_time(one, timeout):
    task = one.submit(int)
    task.result()
    assert task.result(timeout) == 0
    assert task.exception(timeout=timeout) is None


@pytest.mark.parametrize("method", ["result", "exception"])
def test_misuse_of_arguments_is_a_type_error(one, method):
    task = one.submit(int)
    with pytest.raises(TypeError):
        getattr(task, method)(1, 2)
    with pytest.raises(TypeError):
        getattr(task, method)(seconds=1)
    with pytest.raises(TypeError):
        getattr(task, method)(1, timeout=1)
    with pytest.raises(TypeError):
        task.add_done_callback()


def test_many_threads_may_wait_for_one_task(one):
    results = []
    with occupied(one) as gate:
        task = one.submit(pow, 2, 5)
        threads = [
            threading.Thread(target=lambda: results.append(task.result(10))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        gate.set()
        for thread in threads:
            thread.join(10)
    assert results == [32] * 8


# ---- exceptions


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k"),
        Falsy(),
        Empty(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(4),
        BaseExceptionGroup("g", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_task_raises_is_in_its_future(pool, error):
    task = pool.submit(fail, error)
    assert task.exception(10) is error
    with pytest.raises(type(error)) as caught:
        task.result()
    assert caught.value is error
    assert task._exception is error
    assert task._result is None
    assert pool.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("error", [Falsy(), Empty()], ids=["bool", "len"])
def test_a_falsy_exception_set_from_outside_is_raised(error):
    task = Task()
    task.set_exception(error)
    assert task.exception() is error
    with pytest.raises(type(error)):
        task.result()


def test_a_call_that_cannot_be_made_fails_in_the_future(one):
    for call in ((None,), (int, 1, 2, 3), (fail,), ("text", 1)):
        assert isinstance(one.submit(*call).exception(10), TypeError)


def inner_frame():
    raise KeyError("deep")


def outer_frame():
    inner_frame()


def test_context_and_cause_of_an_exception_are_kept(one):
    def work():
        try:
            raise ValueError("first")
        except ValueError as error:
            raise KeyError("second") from error

    error = one.submit(work).exception(10)
    assert isinstance(error.__cause__, ValueError)
    assert isinstance(error.__context__, ValueError)


def test_an_exception_gets_no_context_of_an_earlier_task(one):
    one.submit(fail, ValueError("earlier")).exception(10)
    error = one.submit(outer_frame).exception(10)
    assert error.__context__ is None


# ---- callbacks


def test_callbacks_run_once_in_order_with_the_task(one):
    calls = []
    with occupied(one):
        task = one.submit(int)
        for n in range(5):
            task.add_done_callback(lambda t, n=n: calls.append((n, t)))
        task.add_done_callback(fn=lambda t: calls.append((5, t)))
    one.submit(int).result(10)
    assert calls == [(n, task) for n in range(6)]


def test_a_callback_runs_in_the_worker_and_sees_the_task_done(one):
    seen = []
    with occupied(one):
        task = one.submit(pow, 2, 3)
        task.add_done_callback(lambda t: seen.append((threading.get_ident(), t.result(0))))
    worker = one.submit(threading.get_ident).result(10)
    assert seen == [(worker, 8)]


def test_a_late_callback_runs_at_once_in_the_caller(one):
    task = one.submit(int)
    task.result()
    seen = []
    assert task.add_done_callback(lambda t: seen.append(threading.get_ident())) is None
    assert seen == [threading.get_ident()]


def test_a_callback_runs_in_the_thread_that_cancels(one):
    seen = []
    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(lambda t: seen.append((threading.get_ident(), t.cancelled())))
        task.cancel()
        assert seen == [(threading.get_ident(), True)]
    assert len(seen) == 1


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration]
)
def test_a_callback_that_raises_harms_nobody(one, caplog, error):
    seen = []
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        with occupied(one):
            task = one.submit(int)
            task.add_done_callback(lambda t: fail(error("in a callback")))
            task.add_done_callback(seen.append)
        assert one.submit(abs, -2).result(10) == 2
    assert seen == [task]
    assert task.result() == 0
    assert "exception calling callback" in caplog.text
    assert "in a callback" in caplog.text


def test_a_late_callback_that_raises_is_logged(one, caplog):
    task = one.submit(int)
    task.result()
    task.add_done_callback(lambda t: fail(ValueError("too late")))
    assert "too late" in caplog.text


def test_a_callback_may_add_a_callback(one):
    seen = []
    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(lambda t: t.add_done_callback(lambda t: seen.append("inner")))
        task.add_done_callback(lambda t: seen.append("outer"))
    one.submit(int).result(10)
    assert seen == ["inner", "outer"]


def test_a_callback_may_submit_and_wait(one):
    results = []
    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(lambda t: results.append(one.submit(abs, -4).result(10)))
    one.submit(int).result(10)
    assert results == [4]


def test_shutdown_returns_after_the_callbacks():
    seen = []
    slow = threading.Event()
    for _ in range(20):
        pool = ThreadPoolExecutor(2)
        with occupied(pool):
            task = pool.submit(int)
            task.add_done_callback(lambda t: (slow.wait(0.001), seen.append(1)))
        pool.shutdown()
        assert seen == [1]
        seen.clear()


def test_callbacks_added_while_the_task_ends_run_once(two):
    for _ in range(300):
        calls = []
        task = two.submit(int)
        for _ in range(3):
            task.add_done_callback(calls.append)
        task.result(10)
        assert eventually(lambda calls=calls: len(calls) == 3)
        assert calls == [task] * 3


# ---- deciding from outside


def test_set_result_on_a_pending_task_means_that_it_does_not_run(one):
    ran, seen = [], []
    with occupied(one):
        task = one.submit(ran.append, 1)
        task.add_done_callback(seen.append)
        task.set_result("outside")
        assert states(task) == ("FINISHED", True, False, False)
        assert task.result(0) == "outside"
        assert seen == [task]
    assert one.submit(abs, -1).result(10) == 1
    assert ran == []
    assert task.result() == "outside"


def test_set_exception_on_a_pending_task_means_that_it_does_not_run(one):
    ran = []
    with occupied(one):
        task = one.submit(ran.append, 1)
        task.set_exception(KeyError("outside"))
        assert isinstance(task.exception(0), KeyError)
    one.submit(int).result(10)
    assert ran == []


def test_set_result_on_a_running_task_drops_what_the_worker_has(one):
    entered, gate = threading.Event(), threading.Event()
    own = Probe()
    death = weakref.ref(own)
    box = [own]
    del own

    def work():
        entered.set()
        gate.wait(10)
        return box.pop()

    task = one.submit(work)
    entered.wait(10)
    task.set_result("outside")
    assert task.result(0) == "outside"
    gate.set()
    assert one.submit(abs, -1).result(10) == 1
    assert task.result() == "outside"
    assert eventually(lambda: death() is None)


def test_set_result_wakes_a_waiter(one):
    with occupied(one):
        task = one.submit(int)
        got = []
        waiter = threading.Thread(target=lambda: got.append(task.result(10)))
        waiter.start()
        task.set_result(7)
        waiter.join(10)
        assert got == [7]


@pytest.mark.parametrize("how", ["finished", "cancelled"])
def test_a_task_is_decided_once(one, how):
    with occupied(one):
        task = one.submit(int)
        if how == "cancelled":
            task.cancel()
    if how == "finished":
        task.result(10)
    with pytest.raises(InvalidStateError):
        task.set_result(1)
    with pytest.raises(InvalidStateError):
        task.set_exception(KeyError())
    assert task.cancelled() is (how == "cancelled")


def test_set_running_keeps_the_worker_away(one, caplog):
    ran = []
    with occupied(one):
        task = one.submit(ran.append, 1)
        assert task.set_running_or_notify_cancel() is True
        assert states(task) == ("RUNNING", False, True, False)
        assert task.cancel() is False
        with pytest.raises(RuntimeError):  # the stdlib's class
            task.set_running_or_notify_cancel()
        assert "unexpected state" in caplog.text
    one.submit(int).result(10)
    assert not task.done()
    task.set_result(2)
    assert task.result(0) == 2
    assert ran == []


def test_set_exception_as_on_a_future():
    task = Task()
    error = KeyError("k")
    task.set_exception(error)
    assert task.exception() is error


# ---- what inherited and foreign code uses


def test_private_names_of_the_stdlib(one):
    task = one.submit(pow, 2, 3)
    task.result(10)
    assert task._result == 8
    assert task._exception is None
    assert task._waiters == []
    assert task._done_callbacks == []
    assert task._get_snapshot() == (True, False, 8, None)
    assert task._invoke_callbacks() is None
    error = KeyError()
    failed = one.submit(fail, error)
    failed.exception(10)
    assert failed._get_snapshot() == (True, False, None, error)
    with occupied(one):
        pending, cancelled = one.submit(int), one.submit(int)
        cancelled.cancel()
        assert pending._get_snapshot() == (False, False, None, None)
        assert cancelled._get_snapshot() == (True, True, None, None)


def test_the_condition_is_a_condition(one):
    with occupied(one) as gate:
        task = one.submit(int)
        condition = task._condition
        assert task._condition is condition
        with pytest.raises(RuntimeError):
            condition.wait(0)
        with pytest.raises(RuntimeError):
            condition.notify_all()
        with pytest.raises(RuntimeError):
            condition.release()
        with condition:
            assert condition.acquire(blocking=False)  # re-entrant
            condition.release()
            assert condition.wait(0.01) is False
            gate.set()
            while task._state != "FINISHED":
                assert condition.wait(10)
        with condition:
            assert condition.wait_for(task.done, 0)


def test_a_predicate_that_lets_go_of_the_condition():
    """The wait would let go of a lock that is not its own."""
    condition = Task()._condition
    condition.acquire()
    with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
        condition.wait_for(condition.release, 0.1)
    assert not condition._is_owned()
    with condition:
        assert condition.wait_for(condition._is_owned, 0)


def test_the_condition_excludes_other_threads(one):
    with occupied(one):
        condition = one.submit(int)._condition
        got = []
        with condition:
            thread = threading.Thread(
                target=lambda: got.append((condition.acquire(False), condition.acquire(timeout=0)))
            )
            thread.start()
            thread.join(10)
        assert got == [(False, False)]


def test_a_task_does_not_end_while_its_condition_is_held(one):
    entered = threading.Event()
    with occupied(one) as gate:
        task = one.submit(entered.set)
        with task._condition:
            gate.set()
            entered.wait(10)
            for _ in range(20):
                assert task._state != "FINISHED"
                time.sleep(0.001)
    task.result(10)


@pytest.mark.parametrize(
    "when",
    [
        concurrent.futures.ALL_COMPLETED,
        concurrent.futures.FIRST_COMPLETED,
        concurrent.futures.FIRST_EXCEPTION,
    ],
)
def test_the_wait_of_the_stdlib_understands_tasks(pool, when):
    for _ in range(30):
        tasks = [pool.submit(fail, KeyError(n)) if n == 5 else pool.submit(int) for n in range(10)]
        done, pending = concurrent.futures.wait(tasks, 10, when)
        assert done | pending == set(tasks)
        assert done
        if when == concurrent.futures.ALL_COMPLETED:
            assert not pending
        if when == concurrent.futures.FIRST_EXCEPTION and pending:
            assert tasks[5] in done


def test_the_as_completed_of_the_stdlib_understands_tasks(pool):
    for _ in range(30):
        tasks = [pool.submit(int) for _ in range(20)]
        assert set(concurrent.futures.as_completed(tasks, 10)) == set(tasks)


def test_the_wait_of_the_stdlib_sees_a_cancelled_task(one):
    with occupied(one):
        task = one.submit(int)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(concurrent.futures.wait([task], 10)))
        thread.start()
        assert eventually(lambda: task._waiters)
        task.cancel()
        thread.join(10)
        assert seen[0].done == {task}


# ---- attributes and weak references


def test_attributes_stay_on_a_task(one):
    with occupied(one):
        task = one.submit(int)
        task.note = "pending"
        task.later = [task]
    task.result(10)
    assert task.note == "pending"
    assert vars(task) == {"note": "pending", "later": [task]}
    del task.note
    with pytest.raises(AttributeError):
        task.note  # noqa: B018
    task.__dict__["other"] = 1
    assert task.other == 1


def test_a_task_can_be_referred_to_weakly(one):
    died = []
    task = one.submit(int)
    reference = weakref.ref(task, died.append)
    weakref.finalize(task, died.append, "finalized")
    assert reference() is task
    task.result()
    del task
    assert eventually(lambda: len(died) == 2)
    assert reference() is None


def test_a_task_cannot_be_copied_or_pickled(one):
    import pickle

    task = one.submit(int)
    with pytest.raises(TypeError):
        pickle.dumps(task)
    with pytest.raises(TypeError):
        copy.copy(task)
    assert task.result(10) == 0


# ---- memory


def collected(reference):
    def gone():
        gc.collect()
        return reference() is None

    return eventually(gone)


def test_a_cycle_through_an_attribute_is_collected(one):
    task = one.submit(int)
    task.me = task
    task.result()
    reference = weakref.ref(task)
    del task
    assert collected(reference)


def test_a_cycle_through_the_dictionary_is_collected(one):
    with occupied(one):
        task = one.submit(int)
        vars(task)["me"] = task
    task.result(10)
    reference = weakref.ref(task)
    del task
    assert collected(reference)


def test_a_cycle_through_the_result_is_collected(one):
    task = one.submit(list)
    task.result(10).append(task)
    reference = weakref.ref(task)
    del task
    assert collected(reference)


def test_a_cycle_through_the_exception_is_collected(one):
    error = KeyError()
    task = one.submit(fail, error)
    error.task = task
    task.exception(10)
    reference = weakref.ref(task)
    del task, error
    assert collected(reference)


def test_a_cycle_through_a_callback_is_collected():
    task = Task()
    task.add_done_callback(lambda t, me=task: None)
    reference = weakref.ref(task)
    del task
    assert collected(reference)


def test_a_cycle_through_an_outside_result_is_collected(one):
    with occupied(one):
        task = one.submit(int)
        task.set_result([task])
    one.submit(int).result(10)
    reference = weakref.ref(task)
    del task
    assert collected(reference)


def test_the_collector_leaves_queued_work_alone(one):
    results = []
    with occupied(one):
        box = [Probe()]
        box.append(box)
        for n in range(50):
            task = one.submit(lambda box, n: (len(box), n), box, n)
            task.me = task
            task.add_done_callback(lambda t: results.append(t.result(0)))
            del task
        del box
        gc.collect()
        gc.collect()
    one.submit(int).result(10)
    assert results == [(2, n) for n in range(50)]


@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_arguments_die_with_their_last_user(pool, observed, keep):
    with no_collector():
        argument, keyword = Probe(), Probe()
        deaths = [weakref.ref(argument), weakref.ref(keyword)]

        def work(a, *, b):
            return 1

        deaths.append(weakref.ref(work))
        task = pool.submit(work, argument, b=keyword)
        if observed:
            task.add_done_callback(lambda t: None)
        del work, argument, keyword
        task.result(10)
        if not keep:
            del task
        assert eventually(lambda: not any(death() for death in deaths), 1)


@pytest.mark.parametrize("observed", [False, True], ids=["plain", "observed"])
def test_a_result_dies_with_its_last_user(pool, observed):
    with no_collector():
        for _ in range(20):
            task = pool.submit(Probe)
            if observed:
                task.add_done_callback(lambda t: None)
            death = weakref.ref(task.result(10))
            del task
            assert eventually(lambda death=death: death() is None, 1)


def test_a_result_nobody_asked_for_dies(pool):
    lock = threading.RLock()

    class Result(Probe):
        count = 0

        def __init__(self):
            with lock:
                Result.count += 1

        def __del__(self):
            with lock:
                Result.count -= 1

    with no_collector():
        for _ in range(50):
            pool.submit(Result)
        assert eventually(lambda: pool.submit(lambda: Result.count).result(10) == 0)
        pool.submit(Result)
        assert eventually(lambda: Result.count == 0, 1)  # the pool idle


@pytest.mark.parametrize("looked", [False, True])
def test_an_exception_dies_with_its_last_user(pool, looked):
    class Error(Exception):
        pass

    def work():
        local = Probe()
        deaths.append(weakref.ref(local))
        error = Error()
        deaths.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error, local

    def look(task):
        try:
            task.result(10)
        except Error:
            pass
        finally:
            del task

    with no_collector():
        for _ in range(20):
            deaths = []
            task = pool.submit(work)
            if looked:
                look(task)
            del task
            assert eventually(
                lambda deaths=deaths: len(deaths) == 2 and not any(d() for d in deaths), 1
            )


def test_failed_tasks_leave_no_cycles(two):
    def look():
        for _ in range(200):
            with contextlib.suppress(KeyError):
                two.submit(outer_frame).result(10)

    look()
    with no_collector():
        look()
        two.submit(int).result(10)
        assert gc.collect() < 20


def test_a_cancelled_task_lets_go_of_its_arguments_at_once(one):
    with occupied(one), no_collector():
        argument = Probe()
        death = weakref.ref(argument)
        task = one.submit(id, argument)
        del argument
        assert task.cancel()
        assert death() is None
    del task


def test_a_task_set_from_outside_lets_go_of_its_arguments(one):
    with occupied(one), no_collector():
        argument = Probe()
        death = weakref.ref(argument)
        task = one.submit(id, argument)
        del argument
        task.set_result(0)
        assert death() is None


def test_callbacks_die_after_they_ran(one):
    with no_collector():
        owner = Probe()
        death = weakref.ref(owner)
        with occupied(one):
            task = one.submit(int)
            task.add_done_callback(lambda t, owner=owner: None)
            del owner
        task.result(10)
        assert eventually(lambda: death() is None, 1)


def test_tasks_and_results_are_not_leaked(two):
    def burst():
        tasks = two.submit_many(lambda n: [n], range(500))
        tasks += [two.submit(fail, KeyError()) for _ in range(100)]
        for task in tasks:
            task.add_done_callback(lambda t: None)
            task.exception(10)

    def live():
        two.submit(int).result(10)
        gc.collect()
        return sum(isinstance(item, Task) for item in gc.get_objects())

    before, tasks = sys.getrefcount(Task), live()
    burst()
    assert eventually(lambda: live() <= tasks + 2)
    assert sys.getrefcount(Task) - before < 50


@pytest.mark.timeout(60)
def test_a_long_chain_of_results_dies_without_overflow():
    out = check_python(
        """
        from affinitypool import Task
        last = None
        for _ in range(200_000):
            task = Task()
            task.set_result(last)
            last = task
        del task, last
        print("done")
        """
    )
    assert out == "done\n"


# ---- a worker that waits runs the task itself


def fib(pool, n):
    if n < 2:
        return n
    left, right = pool.submit(fib, pool, n - 1), pool.submit(fib, pool, n - 2)
    return left.result() + right.result()


def test_recursive_fibonacci_returns(pool):
    assert pool.submit(fib, pool, 11).result(20) == 89


@pytest.mark.parametrize("method", ["result", "exception"])
def test_a_worker_runs_the_very_task_it_waits_for(one, method):
    def work():
        task = one.submit(threading.get_ident)
        getattr(task, method)()
        return task.result() == threading.get_ident()

    assert one.submit(work).result(10) is True


def test_a_waiting_worker_runs_nothing_else(one):
    order = []

    def work():
        other, wanted = one.submit(order.append, "other"), one.submit(order.append, "wanted")
        wanted.result()
        order.append("work")
        return other

    one.submit(work).result(10).result(10)
    assert order == ["wanted", "work", "other"]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_worker_that_does_not_wait_runs_nothing(one, timeout):
    def work():
        task = one.submit(int)
        with pytest.raises(TimeoutError):
            task.result(timeout)
        return task._state

    assert one.submit(work).result(10) == "PENDING"


def test_a_timeout_does_not_bound_the_inline_run(one):
    gate = threading.Event()

    def slow():
        gate.wait(0.05)
        return 5

    assert one.submit(lambda: one.submit(slow).result(0.001)).result(10) == 5


def test_a_task_of_another_pool_is_not_run_inline(one, two):
    def work():
        return one.submit(threading.get_ident).result(10)

    assert two.submit(work).result(10) != two.submit(threading.get_ident).result(10)
    assert two.submit(work).result(10) == one.submit(threading.get_ident).result(10)


def test_a_failing_task_that_is_run_inline_fails_in_its_future(one):
    def work():
        task = one.submit(fail, KeyError("inner"))
        with pytest.raises(KeyError):
            task.result()
        return type(task.exception())

    assert one.submit(work).result(10) is KeyError


@pytest.mark.timeout(60)
def test_a_chain_of_nested_waits_never_crashes():
    out = check_python(
        """
        from affinitypool import ThreadPoolExecutor
        def nest(pool, n):
            return n and 1 + pool.submit(nest, pool, n - 1).result()
        for workers in (1, 4):
            with ThreadPoolExecutor(workers) as pool:
                assert pool.submit(nest, pool, 100).result() == 100
                task = pool.submit(nest, pool, 3000)
                error = task.exception()
                assert error is None or isinstance(error, RecursionError), error
                assert error is not None or task.result() == 3000
                assert pool.submit(abs, -1).result() == 1
        print("done")
        """
    )
    assert out == "done\n"


def test_a_task_that_waits_for_itself_is_told_so():
    box = []
    gate = threading.Event()

    def wait_for_itself():
        gate.wait(10)
        return box[0].result()

    with ThreadPoolExecutor(1) as pool:
        box.append(pool.submit(wait_for_itself))
        gate.set()
        with pytest.raises(RuntimeError, match="cannot wait for itself"):
            box[0].result(10)


def test_tasks_that_wait_for_each_other_in_one_thread_are_told_so(one):
    """The first waits for the second and so runs it; the second waits for the first."""
    tasks = []
    gate = threading.Event()

    def wait_for(other):
        gate.wait(10)
        return tasks[other].result()

    tasks.append(one.submit(wait_for, 1))
    tasks.append(one.submit(wait_for, 0))
    gate.set()
    with pytest.raises(RuntimeError, match=r"^a task cannot wait for one that waits for it$"):
        tasks[0].result(10)


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without a GIL an object is finalized by the thread that made it, not by the worker",
)
def test_an_argument_whose_finalizer_waits_for_the_task():
    box = []
    gate = threading.Event()
    errors = []

    class Argument:
        def __del__(self):
            try:
                box[0].result()
            except RuntimeError as error:
                errors.append(str(error))

    with ThreadPoolExecutor(1) as pool:
        box.append(pool.submit(lambda argument: gate.wait(10), Argument()))
        gate.set()
        assert box[0].result(10) is True
    assert errors == ["a task cannot wait for itself"]
