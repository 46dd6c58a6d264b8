"""Workers that are ended from outside, or by a fault, are replaced; no task pays for it."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import itertools
import logging
import signal
import sys
import threading
import time
from threading import get_ident

import pytest
from helpers import HAS_GIL, eventually, occupied, run_python

import affinitypool
from affinitypool import ThreadPoolExecutor, wait
from faults.interrupts import at_each_place, pending_at

pytestmark = pytest.mark.timeout(60)

WAYS = ["exception", "fault"]


set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc


def striking(ident, error=SystemExit):
    """Return a call, all in C, that raises an exception in a thread from outside.

    A task that makes it ends without entering the eval loop: one that strikes its own worker
    leaves the exception for between it and the next task.
    """
    return functools.partial(set_async_exc, ctypes.c_ulong(ident), ctypes.py_object(error))


def strike(ident, error=SystemExit):
    assert striking(ident, error)() == 1


def ending(pool, way):
    """Return a call, all in C, that ends a worker of the pool."""
    if way == "fault":
        return functools.partial(pool._core.fault_end_workers, 1)
    return striking(next(thread.ident for thread in pool._threads if thread.is_alive()))


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.fixture(autouse=True)
def uncaught(monkeypatch):
    """Collect what threads end with."""
    caught = []
    monkeypatch.setattr(threading, "excepthook", lambda args: caught.append(args.exc_type))
    return caught


def end_all(pool, way):
    """Have each thread of the pool end: at once or when it next looks for a task."""
    threads = alive_of(pool)
    for thread in threads:
        if way == "exception":
            strike(thread.ident)
        else:
            pool._core.fault_end_workers(1)
    return threads


def alive_of(pool):
    return {thread for thread in pool._threads if thread.is_alive()}


def rested(pool):
    """Wait until every worker is asleep."""
    return eventually(lambda: pool.stats().idle == pool.stats().workers > 0, 10)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_an_idle_worker_that_is_ended_is_replaced(way, workers):
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(10):
            with occupied(pool):  # so that all of them are there
                pass
            assert rested(pool)
            old = end_all(pool, way)
            tasks = [pool.submit(get_ident) for _ in range(50)]
            assert all(task.result(10) for task in tasks)
            with occupied(pool):
                assert pool.stats().workers == workers
                assert eventually(lambda: len(alive_of(pool)) == workers, 10)
            if way == "exception" and workers == 1:
                assert not alive_of(pool) & old
                assert {task.result() for task in tasks} == {pool.submit(get_ident).result(10)}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError, MemoryError])
def test_the_next_task_never_sees_what_was_sent_between_tasks(one, error, uncaught):
    for round in range(30):
        ident = one.submit(get_ident).result(10)
        if round % 2:
            assert rested(one)
        strike(ident, error)
        task = one.submit(lambda: max(n for n in range(100)))
        assert task.result(10) == 99
    assert eventually(lambda: len(uncaught) == 30, 10)
    assert set(uncaught) == {error}


def test_what_is_sent_while_a_task_runs_is_its_own(one):
    begun = threading.Event()

    def work():
        begun.set()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass

    task = one.submit(work)
    after = one.submit(abs, -1)
    assert begun.wait(10)
    (thread,) = one._threads
    strike(thread.ident, ZeroDivisionError)
    assert isinstance(task.exception(20), ZeroDivisionError)
    assert after.result(10) == 1
    assert thread.is_alive()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_ring_held_is_run_in_order(one, way, uncaught):
    """The only worker is ended with tasks behind it; its replacements run them, in order."""
    ran = []
    with occupied(one):
        tasks = []
        for n in range(300):
            if n == 50 or (n % 50 == 0 and way == "fault"):
                tasks.append(one.submit(ending(one, way)))
            tasks.append(one.submit(ran.append, n))
    assert all(task.exception(10) is None for task in tasks)
    assert ran == list(range(300))
    assert way == "fault" or uncaught == [SystemExit]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_exactly_once_while_workers_are_ended(way, workers, uncaught):
    """Also for tasks that workers submit, which lie in their rings.

    All tasks are calls in C, so that none can see an exception that is sent to its thread.
    """
    ran, count, stop = [], 2_000, threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        with occupied(pool):
            pass

        def pester():
            while not stop.wait(0.002):
                if way == "fault":
                    pool._core.fault_end_workers(1)
                    continue
                for thread in alive_of(pool):
                    striking(thread.ident)()

        pesterer = threading.Thread(target=pester)
        pesterer.start()
        try:
            outer = []
            for n in range(count):
                outer.append(pool.submit(pool.submit, ran.append, n))
                if n % 100 == 0:
                    time.sleep(0.003)
            inner = [task.result(20) for task in outer]
            assert [task.exception(20) for task in inner] == [None] * count
        finally:
            stop.set()
            pesterer.join()
        assert sorted(ran) == list(range(count))
        assert pool.submit(abs, -1).result(10) == 1
        assert pool.wait_idle(10)


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_is_ended_after_shutdown_leaves_nothing_undone(way, uncaught):
    pool = ThreadPoolExecutor(1)
    with occupied(pool):
        tasks = [pool.submit(ending(pool, way))]
        tasks += [pool.submit(abs, -1) for _ in range(10)]
        pool.shutdown(wait=False)
    assert pool.shutdown()
    assert [task.result(0) for task in tasks[1:]] == [1] * 10
    assert not alive_of(pool)


@pytest.mark.parametrize("way", WAYS)
def test_shutdown_that_cancels_while_a_worker_is_ended(way, uncaught):
    pool = ThreadPoolExecutor(1)
    with occupied(pool):
        tasks = [pool.submit(ending(pool, way))]
        tasks += [pool.submit(abs, -1) for _ in range(10)]
        pool.shutdown(wait=False, cancel_futures=True)
    assert pool.shutdown()
    assert all(task.cancelled() for task in tasks)


def test_a_dropped_pool_replaces_its_workers_too():
    pool = ThreadPoolExecutor(1)
    gate = threading.Event()
    first = pool.submit(gate.wait, 30)
    tasks = [pool.submit(abs, -1) for _ in range(10)]
    pool._core.fault_end_workers(1)
    del pool
    gate.set()
    assert first.result(10)
    assert [task.result(10) for task in tasks] == [1] * 10


def test_the_initializer_runs_in_the_replacement():
    local = threading.local()

    def initializer(value):
        local.value = value

    with ThreadPoolExecutor(1, initializer=initializer, initargs=("here",)) as pool:
        for _ in range(5):
            assert pool.submit(lambda: local.value).result(10) == "here"
            pool._core.fault_end_workers(1)
            assert pool.submit(lambda: local.value).result(10) == "here"


def test_names_and_number_of_threads_stay():
    with ThreadPoolExecutor(2, "worker") as pool:
        for _ in range(20):
            with occupied(pool):
                pool._core.fault_end_workers(1)
            assert eventually(lambda: pool._core.leave == 0, 10)
        with occupied(pool):
            assert eventually(
                lambda: sorted(thread.name for thread in alive_of(pool))
                == ["worker_0", "worker_1"],
                10,
            )
        assert len(pool._threads) <= 10


def refuse(self):
    raise RuntimeError("can't start new thread")


def test_a_replacement_that_the_os_refuses_leaves_the_work_to_the_others(monkeypatch, caplog):
    with ThreadPoolExecutor(2) as pool:
        with monkeypatch.context() as patch:
            with occupied(pool):
                tasks = [pool.submit(abs, -1) for _ in range(20)]
                patch.setattr(threading.Thread, "start", refuse)
                pool._core.fault_end_workers(1)
            assert [task.result(10) for task in tasks] == [1] * 20
            assert eventually(lambda: pool._core.started == 1, 10)
        with occupied(pool):  # a submit starts the missing one
            pass
    assert eventually(lambda: "could not be replaced" in caplog.text, 10)


def test_the_last_worker_that_cannot_be_replaced_leaves_nothing_pending(monkeypatch, caplog):
    pool = ThreadPoolExecutor(1)
    with monkeypatch.context() as patch:
        with occupied(pool):
            tasks = [pool.submit(abs, -1) for _ in range(20)]
            patch.setattr(threading.Thread, "start", refuse)
            pool._core.fault_end_workers(1)
        assert eventually(lambda: all(task.done() for task in tasks), 10)
    assert all(task.cancelled() for task in tasks)
    assert eventually(lambda: "could not be replaced" in caplog.text, 10)
    assert pool.submit(abs, -2).result(10) == 2
    pool.shutdown()


def test_a_replacement_is_refused_for_a_while(monkeypatch):
    refused = []
    start = threading.Thread.start

    def refuse_twice(self):
        if len(refused) < 2:
            refused.append(self)
            raise RuntimeError("can't start new thread")
        start(self)

    with ThreadPoolExecutor(1) as pool:
        with occupied(pool):
            tasks = [pool.submit(abs, -1) for _ in range(20)]
            monkeypatch.setattr(threading.Thread, "start", refuse_twice)
            pool._core.fault_end_workers(1)
        assert [task.result(10) for task in tasks] == [1] * 20
    assert len(refused) == 2
    assert not set(refused) & set(threading.enumerate())


def test_a_worker_of_a_pool_that_broke_leaves_nothing_in_its_hands():
    """It ends between two tasks, and is not replaced."""
    entered, going = threading.Event(), threading.Event()
    gate, broken = threading.Event(), threading.Event()
    threads = itertools.count()

    def initialize():
        if next(threads):
            broken.wait(20)
            raise ValueError

    # called with the task as its last argument, and without the eval loop
    strikes = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object, ctypes.py_object)(
        ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
    )
    pool = ThreadPoolExecutor(2, initializer=initialize)
    first = pool.submit(gate.wait, 20)
    assert eventually(first.running)
    (worker,) = pool._threads
    first.add_done_callback(lambda _: entered.set() or going.wait(20))
    first.add_done_callback(functools.partial(strikes, worker.ident, KeyError))
    second = pool.submit(int)
    (other,) = pool._threads - {worker}
    gate.set()
    assert entered.wait(10)  # the worker has taken the second task
    broken.set()
    other.join(10)
    assert pool._broken
    assert not second.done()
    going.set()
    assert eventually(second.done)
    assert pool.shutdown(timeout=20) is True
    assert pool.wait_idle(10)


def test_wait_idle_and_shutdown_do_not_mind():
    with ThreadPoolExecutor(2) as pool:
        for round in range(20):
            tasks = [pool.submit(time.sleep, 0.001) for _ in range(10)]
            pool._core.fault_end_workers(round % 3)
            assert pool.wait_idle(20)
            assert all(task.done() for task in tasks)


def test_a_worker_whose_start_was_interrupted_ends_too(monkeypatch):
    """Ctrl-C in the submit that starts it, anywhere; later nothing may replace it.  Then the pool
    has no worker, and starts one when it may again."""
    monkeypatch.setattr(affinitypool._threads, "_RETRY_DELAYS", (0,))
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    def attempt(k):
        with ThreadPoolExecutor(2) as pool:
            try:
                with pending_at(k, signal.SIGINT) as seen:
                    pool.submit(int)
            except KeyboardInterrupt:
                pass
            assert pool.wait_idle(10)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                threads = set(pool._threads)
                pool._core.fault_end_workers(len(threads))
                with contextlib.suppress(RuntimeError):
                    assert wait([pool.submit(int)], 10).not_done == set()
                for thread in threads:
                    thread.join(10)
                    assert not thread.is_alive()
            tasks = [pool.submit(abs, -1) for _ in range(3)]
            assert [task.result(10) for task in tasks] == [1] * 3
        return seen[0] >= k

    at_each_place(attempt)


def test_workers_that_never_come_to_work_are_not_replaced_for_ever(monkeypatch):
    """A function of threading.setprofile that raises strikes each of them before its first look."""
    struck = []

    def raises(frame, event, arg):
        if event == "c_call" and frame.f_code is affinitypool._threads._work.__code__:
            if len(struck) > 1000:  # they would come for ever
                return
            struck.append(arg)
            raise KeyError("profile")

    before = threading.getprofile()
    threading.setprofile(raises)
    try:
        pool = ThreadPoolExecutor(1)
        task = pool.submit(int)
        assert wait([task], 20).not_done == set()
    finally:
        threading.setprofile(before)
    assert task.cancelled()
    assert 1 < len(struck) < 100
    assert pool.submit(abs, -1).result(10) == 1
    assert pool.shutdown(timeout=10)


@pytest.mark.parametrize("limit", [None, 20])
def test_a_thread_that_dies_before_its_first_line_gives_its_place_up(limit, monkeypatch):
    """No memory for the call of its function: the interpreter drops that, in the new thread."""
    returned, name = threading.Event(), "_start_new_thread"
    if hasattr(threading, "_start_joinable_thread"):
        name = "_start_joinable_thread"
    start = _thread.start_new_thread

    def stillborn(function, *_, **__):
        box = [function]

        def drop():
            returned.wait(20)
            box.clear()

        start(drop, ())

    pool = ThreadPoolExecutor(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading, name, stillborn)
        task = pool.submit(int)
    (thread,) = pool._threads
    returned.set()
    assert wait([task], 10).not_done == set()
    assert task.cancelled()
    thread.join(10)
    assert not thread.is_alive()
    assert pool.submit(abs, -1).result(10) == 1
    assert pool.shutdown(timeout=limit) is True


@pytest.mark.skipif(not HAS_GIL, reason="who is out of memory cannot be told there")
@pytest.mark.skipif(
    sys.version_info[:2] in ((3, 12), (3, 13)),
    reason="these lose a reference to a code object when memory runs out in Thread()",
)
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_a_thread_that_is_born_while_memory_is_short(length):
    """Neighbour: any of the allocations of a submit and of its new thread fails."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told that memory is out")
    done = run_python(  # it may say that memory was out
        f"""
        import logging, sys, threading, time, _testcapi
        from affinitypool import ThreadPoolExecutor, wait
        logging.disable(logging.CRITICAL)
        sys.unraisablehook = threading.excepthook = lambda *_: None
        def starve(pool, tasks, n, on=_testcapi.set_nomemory, off=_testcapi.remove_mem_hooks):
            on(n, n + {length})
            try:
                tasks.append(pool.submit(int))
                time.sleep(0.0002)  # the thread is most likely there now
            finally:
                off()
        for n in range(1, 100):
            pool, tasks = ThreadPoolExecutor(1), []
            try:
                starve(pool, tasks, n)
            except (MemoryError, RuntimeError):
                pass
            assert not wait(tasks, 5).not_done, n
            assert pool.submit(abs, -1).result(5) == 1, n
            assert pool.shutdown(), n
        print("ends", flush=True)
        """
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done


def test_a_thread_is_promised_a_task_also_after_others_were_replaced(caplog):
    """What is submitted just before a shutdown that cancels is run by the thread that it starts."""
    caplog.set_level(logging.CRITICAL, "concurrent.futures")
    gates: list[threading.Event] = []
    pool = ThreadPoolExecutor(2, initializer=lambda: [gate.wait(20) for gate in gates])
    pool.submit(int).result(20)
    for _ in range(3):
        assert eventually(lambda: pool.stats().idle == 1)
        pool._core.fault_end_workers(1)
        pool.submit(int).result(20)  # its worker leaves after that, and is replaced
        assert eventually(lambda: pool._core.leave == 0)
    assert eventually(lambda: pool.stats().idle == 1)
    assert pool._core.started == 1
    gate, entered = threading.Event(), threading.Event()
    gates.append(gate)
    first = pool.submit(lambda: entered.set() or gate.wait(20))
    assert entered.wait(20)
    second = pool.submit(abs, -1)  # starts a thread, which does not look for a task yet
    third = pool.submit(abs, -2)
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    assert (first.result(20), second.result(20), third.cancelled()) == (True, 1, True)
    assert pool.shutdown()
