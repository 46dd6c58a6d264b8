"""Fork: the child gets a working pool and ends promptly; the parent's tasks stay the parent's."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from concurrent.futures import Future, ProcessPoolExecutor

import pytest
from helpers import check_cases, check_python, eventually, occupied, run_python

import affinitypool
from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenThreadPool,
    CancelledError,
    PendingLimitError,
    ShutdownError,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from faults.interrupts import FOLDERS, at_each_place, pending_at

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def in_child(check, fork=os.fork) -> None:
    """Run `check` in a forked child; fail with what went wrong there, or with where it hangs."""
    read, write = os.pipe()
    child = fork()
    if child == 0:
        status = 1
        try:
            faulthandler.register(signal.SIGUSR2, write)
            check()
            status = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        status = end_of(child)
        if status is None:
            os.kill(child, signal.SIGUSR2)
            time.sleep(0.5)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs:\n" + pipe.read().decode())
        assert status == 0, pipe.read().decode()


def end_of(child: int, seconds: float = 20) -> int | None:
    """Wait for the end of a child and return its exit code; None if it does not end."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def works(pool, shut_down=True) -> None:
    """Use a pool in every way."""
    assert pool.submit(pow, 2, 3).result(10) == 8
    assert list(pool.map(abs, range(-40, 0), timeout=10)) == list(range(40, 0, -1))
    assert list(pool.map(abs, [-1, -2, -3], buffersize=1, timeout=10)) == [1, 2, 3]
    tasks = pool.submit_many(abs, range(-20, 0))
    assert wait(tasks, 10).not_done == set()
    assert sorted(task.result(0) for task in as_completed(tasks, 10)) == list(range(1, 21))
    assert pool.submit(lambda: pool.submit(abs, -5).result(10)).result(10) == 5
    called = []
    with occupied(pool):
        cancelled = pool.submit(int)
        cancelled.add_done_callback(called.append)
        assert cancelled.cancel()
        assert called == [cancelled]
    if shut_down:
        threads = set(pool._threads)
        assert len(threads) == pool._max_workers
        pool.shutdown()
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(ShutdownError):
            pool.submit(int)


def are_cancelled(tasks) -> None:
    """Look at the parent's unfinished tasks from a child, in every way."""
    for task in tasks:
        assert (task.done(), task.cancelled(), task.running()) == (True, True, False)
        with pytest.raises(CancelledError):
            task.result(5)
        with pytest.raises(CancelledError):
            task.exception(5)
        assert task.cancel()
        called = []
        task.add_done_callback(called.append)
        assert called == [task]
        assert "cancelled" in repr(task)
    assert wait(tasks, 5).not_done == set()
    assert set(as_completed(tasks, 5)) == set(tasks)
    other: Future = Future()
    other.set_result(None)
    assert wait([*tasks, other], 5).not_done == set()


# ---- the child gets a working pool, whatever the parent's does


@pytest.fixture(params=["unused", "idle", "busy", "nested", "in turn", "blocked observers"])
def moment(request):
    """Give a pool of two workers that is in some state, and its unfinished tasks."""
    gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        tasks, helpers = [], []
        if request.param == "idle":
            with occupied(pool):
                pass
        elif request.param in ("busy", "blocked observers"):
            met = threading.Barrier(3)
            tasks = [pool.submit(lambda: (met.wait(10), gate.wait(30))) for _ in range(2)]
            met.wait(10)
            tasks += [pool.submit(int) for _ in range(300)]
            if request.param == "blocked observers":
                entered = threading.Event()

                def hold():
                    with tasks[0]._condition:
                        entered.set()
                        gate.wait(30)

                targets = [
                    hold,
                    tasks[1].result,
                    lambda: wait(tasks),
                    lambda: [*as_completed(tasks)],
                ]
                helpers = [threading.Thread(target=target) for target in targets]
                tasks[5].add_done_callback(lambda task: None)
        elif request.param == "nested":
            entered = threading.Event()

            def inner():
                entered.set()
                return gate.wait(30)

            tasks = [pool.submit(lambda: pool.submit(inner).result(30))]
            entered.wait(10)
        elif request.param == "in turn":

            def produce():
                while not gate.is_set():
                    pool.submit(int).result(30)

            helpers = [threading.Thread(target=produce)]
        for helper in helpers:
            helper.start()
        if request.param == "blocked observers":
            entered.wait(10)
        try:
            yield pool, tasks
        finally:
            gate.set()
            for helper in helpers:
                helper.join(30)
        assert wait(tasks, 20).not_done == set()
        assert not any(task.cancelled() for task in tasks)


def test_the_child_gets_a_working_pool(moment):
    """fork in the parent's idle and busy moments: the child gets a working pool; the parent does
    not notice."""
    pool, tasks = moment
    threads = set(pool._threads)

    def check():
        assert pool._threads == set()
        assert pool.stats().workers == pool.stats().pending == 0
        assert pool._work_queue.empty()
        works(pool)

    for _ in range(3):
        in_child(check)
    assert threads <= pool._threads
    assert all(thread.is_alive() for thread in threads)
    assert not any(task.done() for task in tasks[:1])


def test_tasks_pending_at_the_fork_are_cancelled_in_the_child(moment):
    """Tasks pending at the fork run only in the parent, and their futures are cancelled in the
    child."""
    pool, tasks = moment

    def check():
        are_cancelled(tasks)
        works(pool)
        are_cancelled(tasks)

    in_child(check)


def test_a_child_that_leaves_the_parents_tasks_alone_works_too(moment):
    pool, tasks = moment

    def check():
        tasks.clear()
        gc.collect()
        works(pool)

    in_child(check)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("first", ["parent", "child"])
def test_the_child_drops_the_pool(first, used):
    """The parent's queues are never touched, also not when somebody lets go of everything."""
    gate = threading.Event()
    kept = [ThreadPoolExecutor(2)]
    died = weakref.ref(kept[0])
    tasks = [kept[0].submit(gate.wait, 30) for _ in range(100)]
    if first == "parent":
        kept.clear()
        assert died() is None

    def check():
        if used and kept:
            works(kept[0], False)
        kept.clear()
        gc.collect()
        assert died() is None
        are_cancelled(tasks)
        tasks.clear()
        works(ThreadPoolExecutor(2))

    in_child(check)
    kept.clear()
    gate.set()
    assert [task.result(20) for task in tasks] == [True] * 100


def test_a_pool_in_the_child_that_was_used_and_dropped_runs_its_tasks():
    with ThreadPoolExecutor(1) as parents:
        parents.submit(int).result(10)

        def check():
            order = []
            pool = ThreadPoolExecutor(1)
            for n in range(50):
                last = pool.submit(order.append, n)
            threads = list(pool._threads)
            del pool
            last.result(10)
            assert order == list(range(50))
            assert eventually(lambda: not any(thread.is_alive() for thread in threads))

        in_child(check)


def test_each_pool_of_many_works_in_the_child():
    pools = [ThreadPoolExecutor(n) for n in range(1, 8)]
    for pool in pools[::2]:
        pool.submit(int).result(10)

    def check():
        for pool in pools:
            works(pool)

    in_child(check)
    for pool in pools:
        works(pool)


def test_the_childs_pool_is_made_as_the_parents_was():
    local = threading.local()

    def start(value):
        local.value = value

    with ThreadPoolExecutor(
        2, "worker", start, (7,), stack_size=1 << 20, shards=2, propagate_context=True
    ) as pool:
        pool.submit(int).result(10)

        def check():
            barrier = threading.Barrier(2)

            def look():
                barrier.wait(10)
                return local.value, threading.current_thread().name

            found = [task.result(10) for task in [pool.submit(look) for _ in range(2)]]
            assert sorted(found) == [(7, "worker_0"), (7, "worker_1")]
            assert pool._max_workers == 2
            works(pool)

        in_child(check)


@pytest.mark.parametrize("wait_for_it", [True, False])
def test_a_pool_that_was_shut_down_stays_so(wait_for_it):
    pool = ThreadPoolExecutor(1)
    with occupied(pool) as gate:
        task = pool.submit(int)
        pool.shutdown(wait=False)
        if wait_for_it:
            gate.set()
            pool.shutdown()

        def check():
            with pytest.raises(ShutdownError, match="after shutdown"):
                pool.submit(int)
            pool.shutdown()
            assert task.cancelled() != wait_for_it

        in_child(check)
    assert task.result(10) == 0


def test_a_broken_pool_stays_so(caplog):
    def start():
        raise KeyError("no start")

    pool = ThreadPoolExecutor(1, initializer=start)
    assert isinstance(pool.submit(int).exception(10), BrokenThreadPool)

    def check():
        with pytest.raises(BrokenThreadPool) as caught:
            pool.submit(int)
        assert isinstance(caught.value.__cause__, KeyError)
        pool.shutdown()

    in_child(check)
    pool.shutdown()


def test_finished_tasks_keep_their_outcomes():
    with ThreadPoolExecutor(1) as pool:
        value, error = pool.submit(list, "ab"), pool.submit(int, "x")
        wait([value, error], 10)
        with occupied(pool):
            dropped = pool.submit(int)
            assert dropped.cancel()

        def check():
            assert value.result(0) == ["a", "b"]
            assert isinstance(error.exception(0), ValueError)
            with pytest.raises(CancelledError):
                dropped.result(0)
            assert [*as_completed([value, error], 5)] in ([value, error], [error, value])

        in_child(check)


def test_a_task_made_by_hand_belongs_to_the_child_as_well():
    task: Task[int] = Task()
    waiter = threading.Thread(target=task.result)
    waiter.start()

    def check():
        assert not task.done()
        threading.Timer(0.02, task.set_result, [3]).start()
        assert task.result(10) == 3

    in_child(check)
    assert not task.done()
    task.set_result(4)
    waiter.join(10)
    assert not waiter.is_alive()


# ---- iterations that were begun in the parent


def test_a_map_that_was_begun_in_the_parent(one):
    """Neighbour: what is taken already is taken, the rest is cancelled; nothing waits."""
    gate = threading.Event()
    results = one.map(lambda n: n == 0 or gate.wait(30), range(5))
    assert next(results) is True

    def check():
        with pytest.raises(CancelledError):
            next(results)
        with pytest.raises(StopIteration):
            next(results)
        works(one)

    in_child(check)
    gate.set()
    assert list(results) == [True] * 4


def test_a_buffered_map_that_was_begun_in_the_parent(one):
    gate, parent = threading.Event(), os.getpid()
    results = one.map(
        lambda n: n == 0 or os.getpid() != parent or gate.wait(30), range(5), buffersize=2
    )
    assert next(results) is True

    def check():
        with pytest.raises(CancelledError):  # it may have submitted the next item before that
            next(results)
        works(one)

    in_child(check)
    gate.set()
    assert list(results) == [True] * 4


def test_an_as_completed_that_was_begun_in_the_parent(one):
    gate = threading.Event()
    tasks = [one.submit(int), *(one.submit(gate.wait, 30) for _ in range(4))]
    completed = as_completed(tasks, 20)
    assert next(completed) is tasks[0]

    def check():
        rest = []
        with contextlib.suppress(TimeoutError):
            rest = list(as_completed(tasks[1:], 5))
        assert set(rest) == set(tasks[1:])
        works(one)

    in_child(check)
    gate.set()
    assert set(completed) == set(tasks[1:])


def test_an_as_completed_that_goes_on_in_the_child(one):
    """Each comes once, and the parent's end there at once."""
    gates = [threading.Event() for _ in range(3)]
    made: Task = Task()
    tasks = [*(one.submit(gate.wait, 30) for gate in gates), made]
    completed = as_completed(tasks)
    gates[0].set()
    first = next(completed)
    gates[1].set()
    assert tasks[1].result(10)  # and it has been told of: nothing else is there to do
    eventually(lambda: one._core.pending == 0)

    def check():
        threading.Timer(0.2, made.set_result, [1]).start()
        rest = list(completed)
        assert len(rest) == 3
        assert {first, *rest} == set(tasks)
        assert rest[-1] is made

    in_child(check)
    gates[2].set()
    made.set_result(None)
    assert {first, *completed} == set(tasks)


# ---- from everywhere


def test_fork_in_a_task(two):
    def fork():
        other = two.submit(time.sleep, 0.01)

        def check():
            are_cancelled([other])
            works(two)

        in_child(check)
        other.result(10)
        return "parent"

    assert two.submit(fork).result(60) == "parent"
    works(two)


def test_fork_in_a_task_that_its_worker_runs_inline(one):
    """The tasks that the forking thread runs go on, innermost first."""

    def inner():
        seen = []
        in_child(lambda: seen.append(works(one, False)))
        return 3

    def middle():
        return one.submit(inner).result(30) + 1

    def fork_in_middle():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(0 if one.submit(abs, -4).result(10) == 4 else 1)
        os.close(read)
        os.close(write)
        return end_of(child)

    assert one.submit(middle).result(60) == 4
    assert one.submit(lambda: one.submit(fork_in_middle).result(30)).result(60) == 0


def test_tasks_of_the_forking_thread_go_on_in_the_child():
    """In the child they run on, and end with their values, seen by whoever waits for them there."""
    out = run_python(
        """
        import os, sys, threading
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        tasks, ready = [], threading.Event()
        def inner():
            child = os.fork()
            states = [(task.running(), task.done(), task.cancelled()) for task in tasks]
            assert states == [(True, False, False)] * 2, states
            return child
        def outer():
            ready.wait(10)
            tasks.append(pool.submit(inner))
            child = tasks[1].result(10)
            if child == 0:
                assert tasks[1].done() and not tasks[1].cancelled() and tasks[1].result(0) == 0
                assert tasks[0].running()
                assert pool.submit(abs, -1).result(10) == 1
                os._exit(9)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tasks.append(pool.submit(outer))
        ready.set()
        print(tasks[0].result(20))
        """,
        options=("-W", "ignore"),
    )
    assert (out.returncode, out.stdout, out.stderr) == (0, "9\n", "")


@contextlib.contextmanager
def condition_held(task):
    """Another thread has the task's condition."""
    held, go = threading.Event(), threading.Event()

    def hold():
        with task._condition:
            held.set()
            go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        yield
    finally:
        go.set()
        thread.join()


@pytest.mark.parametrize("done", [False, True])
def test_a_condition_that_another_thread_has_at_the_fork_is_free_in_the_child(one, done):
    go = threading.Event()
    task = one.submit(go.wait, 30)
    if done:
        go.set()
        task.result(10)

    def check():
        condition = task._condition
        assert task.done()
        assert condition.acquire(timeout=10)
        assert condition.locked()
        assert condition._is_owned()
        condition.release()
        assert not condition.locked()

    with condition_held(task):
        in_child(check)
    go.set()


def test_a_condition_that_the_forking_thread_has_stays_its_own(one):
    task = one.submit(int)
    task.result(10)

    def check():
        assert task._condition._is_owned()
        task._condition.release()
        assert not task._condition.locked()

    with task._condition:
        in_child(check)


def test_a_task_that_forks_ends_in_the_child_whoever_has_its_condition():
    """Its end takes the condition, which another thread had at the fork."""
    done = run_python(
        """
        import os, signal, threading, time
        from affinitypool import ThreadPoolExecutor
        held, forked = threading.Event(), threading.Event()
        def hold():
            with task._condition:
                held.set()
                forked.wait(30)
        def fork():
            assert held.wait(10)
            child = os.fork()
            if child == 0:
                return "child"
            end = time.monotonic() + 20
            while True:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended or time.monotonic() > end:
                    break
                time.sleep(0.01)
            forked.set()
            if not ended:
                os.kill(child, signal.SIGKILL)
                return "the child hangs"
            return os.waitstatus_to_exitcode(status)
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(fork)
            threading.Thread(target=hold).start()
            print(task.result(40))
        """,
        options=("-W", "ignore"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("place", ["WorkerThread.launch", "WorkerThread.start", "Crew.make"])
def test_fork_in_the_middle_of_a_submit_that_goes_on_in_both(place):
    """Neighbour: a signal handler or a finalizer that forks and returns, here and there."""
    done = run_python(
        f"""
        import os, sys, threading
        from affinitypool import ThreadPoolExecutor, _threads
        place = {place!r}
        owner = getattr(_threads, place.split(".")[0])
        name = place.split(".")[1]
        original = getattr(owner, name)
        child = []
        def fork_first(self, *args):
            setattr(owner, name, original)
            child.append(os.fork())
            return original(self, *args)
        setattr(owner, name, fork_first)
        pool = ThreadPoolExecutor(2)
        task = pool.submit(os.write, 1, b"x")
        if child[0] == 0:
            # the task is the parent's: it does not run here, not by a thread that starts now either
            for thread in set(threading.enumerate()) - {{threading.current_thread()}}:
                thread.join(10)
            assert task.cancelled()
            assert pool.submit(abs, -2).result(10) == 2
            assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))
            pool.shutdown()
            sys.exit(5)
        assert task.result(10) == 1
        assert pool.submit(abs, -2).result(10) == 2
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1]))
        """,
        options=("-W", "ignore"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "x", "")


@pytest.mark.parametrize("pending", [0, 20])
@pytest.mark.parametrize("how", ["returns", "raises", "sys.exit"])
def test_a_task_whose_child_returns_ends_the_child(how, pending):
    """The thread leaves the worker loop, and was the only one; nothing runs twice."""
    end = {"returns": "return", "raises": "raise KeyError", "sys.exit": "sys.exit(5)"}[how]
    done = run_python(
        f"""
        import os, sys
        from affinitypool import ThreadPoolExecutor
        def fork():
            child = os.fork()
            if child:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            {end}
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(fork)
            behind = [pool.submit(os.write, 1, b"x") for _ in range({pending})]
            assert task.result(20) == 0, task.result()
        """,
        options=("-W", "ignore"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "x" * pending, "")


@pytest.mark.parametrize("where", ["worker", "canceller", "late"])
def test_fork_in_a_callback(two, where):
    outcome = []

    def callback(task):
        try:
            in_child(lambda: works(two))
        except BaseException as error:
            outcome.append(error)
        else:
            outcome.append(None)

    if where == "late":
        task = two.submit(int)
        task.result(10)
        task.add_done_callback(callback)
    else:
        with occupied(two):
            task = two.submit(int)
            task.add_done_callback(callback)
            if where == "canceller":
                task.cancel()
        two.submit(int).result(10)
    assert eventually(lambda: outcome, 30)
    assert outcome == [None]
    works(two)


def test_callbacks_of_the_parents_tasks_are_called_in_the_parent_only(one):
    read, write = os.pipe()
    with occupied(one):
        tasks = [one.submit(int) for _ in range(10)]
        for task in tasks:
            task.add_done_callback(lambda task: os.write(write, b"x"))

        def check():
            are_cancelled(tasks)
            works(one)

        in_child(check)
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    one.shutdown()
    assert os.read(read, 100) == b"x" * 10
    os.close(read)
    os.close(write)


def test_fork_in_a_signal_handler_while_main_waits(one):
    failed = []

    def handler(signum, frame):
        try:
            in_child(lambda: works(one))
        except BaseException as error:
            failed.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        entered, gate = threading.Event(), threading.Event()
        task = one.submit(lambda: entered.set() or gate.wait(30))
        entered.wait(10)
        timers = [
            threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1]),
            threading.Timer(0.2, gate.set),
        ]
        for timer in timers:
            timer.start()
        assert task.result(40) is True
        for timer in timers:
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert failed == []
    works(one)


def test_fork_in_a_signal_handler_while_main_submits():
    """Neighbour: the handler comes between two bytecodes of whoever is submitting."""
    failed: list[BaseException] = []
    stop, ready, handled = threading.Event(), threading.Semaphore(1), [0]
    with ThreadPoolExecutor(2) as pool:

        def handler(signum, frame):
            try:
                in_child(lambda: works(pool))
            except BaseException as error:
                failed.append(error)
            handled[0] += 1
            ready.release()

        def send():
            while ready.acquire(timeout=30) and not stop.is_set():
                time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, handler)
        thread = threading.Thread(target=send)
        thread.start()
        try:
            end = time.monotonic() + 20
            while handled[0] < 15 and not failed and time.monotonic() < end:
                tasks = [pool.submit(abs, -n) for n in range(20)]
                tasks += pool.submit_many(abs, range(-20, 0))
                assert sum(task.result(20) for task in tasks) == 190 + 210
        finally:
            stop.set()
            ready.release()
            thread.join(20)
            signal.signal(signal.SIGUSR1, before)
    if failed:
        raise failed[0]
    assert handled[0] >= 15


def test_fork_in_a_finalizer(one):
    outcome = []

    class Forks:
        def __del__(self):
            try:
                in_child(lambda: works(one))
                outcome.append(None)
            except BaseException as error:
                outcome.append(error)

    one.submit(id, Forks()).result(10)  # the argument dies in the worker
    assert eventually(lambda: outcome, 20)
    with occupied(one):
        task = one.submit(id, Forks())
        task.cancel()  # and here in the caller
    assert eventually(lambda: len(outcome) == 2, 20)
    assert outcome == [None, None]


def test_fork_in_the_initializer():
    """The thread that forks has not come to its loop yet."""
    outcome = []

    def start():
        try:
            in_child(lambda: works(plain))
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    plain = ThreadPoolExecutor(1)
    with ThreadPoolExecutor(1, initializer=start) as pool:
        assert pool.submit(abs, -1).result(30) == 1
    assert outcome == [None]
    works(plain)


def test_the_parents_threads_have_ended_in_the_child(two):
    """Neighbour: code that keeps the threads of a pool and joins them."""
    with occupied(two) as gate:
        threads = list(two._threads)
        busy = threading.Thread(target=gate.wait, args=[20])
        busy.start()

        def check():
            for thread in [*threads, busy]:
                thread.join()
                thread.join(10)
                assert not thread.is_alive()
            works(two)
            for thread in threads:
                thread.join()

        in_child(check)
        assert all(thread.is_alive() for thread in threads)
    busy.join(10)


def test_a_thread_of_the_parents_joins_in_the_child(two):
    """Neighbour: one worker forks; it lives on in the child, the other one does not."""
    entered, gate = threading.Event(), threading.Event()
    two.submit(lambda: entered.set() or gate.wait(20))
    entered.wait(10)

    def fork():
        me = threading.current_thread()
        (other,) = two._threads - {me}
        in_child(lambda: (other.join(), works(two)))
        return me.is_alive() and other.is_alive()

    try:
        assert two.submit(fork).result(40)
    finally:
        gate.set()


@pytest.mark.parametrize("call", ["shutdown", "drain", "shutdown_now", "join"])
def test_fork_in_a_signal_handler_while_main_joins(call):
    """Neighbour: the handler returns in the child, into a wait for threads that are not there."""
    parent, children = os.getpid(), []
    entered, gate = threading.Event(), threading.Event()
    pool = ThreadPoolExecutor(2)
    task = pool.submit(lambda: entered.set() or gate.wait(30))
    entered.wait(10)
    (thread,) = pool._threads

    def handler(*_):
        children.append(os.fork())
        if children[0]:
            gate.set()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        timer = threading.Timer(0.1, os.kill, [parent, signal.SIGUSR1])
        timer.start()
        try:
            if call == "join":
                pool.shutdown(wait=False)
                thread.join()
            else:
                getattr(pool, call)()
            if os.getpid() != parent:
                os._exit(5 if task.cancelled() else 6)
        finally:
            if os.getpid() != parent:
                os._exit(7)
        timer.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
        gate.set()
    ended = end_of(children[0])
    if ended is None:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert ended == 5
    assert task.result(0) is True


def test_fork_in_a_thread_while_main_waits(two):
    failed = []
    entered, gate = threading.Event(), threading.Event()
    task = two.submit(lambda: entered.set() or gate.wait(30))
    entered.wait(10)

    def fork():
        try:
            for _ in range(5):
                in_child(lambda: (are_cancelled([task]), works(two)))
        except BaseException as error:
            failed.append(error)
        finally:
            gate.set()

    thread = threading.Thread(target=fork)
    thread.start()
    assert task.result(60) is True
    thread.join(10)
    assert failed == []


def test_fork_in_another_pools_task(one, two):
    one.submit(int).result(10)
    two.submit(in_child, lambda: (works(one), works(two))).result(40)


# ---- while something is half done


def test_fork_while_shutdown_runs():
    pool = ThreadPoolExecutor(2)
    with occupied(pool) as gate:
        tasks = [pool.submit(int) for _ in range(50)]
        thread = threading.Thread(target=pool.shutdown)
        thread.start()
        assert eventually(lambda: pool._shutdown)

        def check():
            are_cancelled(tasks)
            with pytest.raises(ShutdownError):
                pool.submit(int)
            pool.shutdown(cancel_futures=True)
            works(ThreadPoolExecutor(2))

        for _ in range(3):
            in_child(check)
        gate.set()
        thread.join(20)
        assert not thread.is_alive()
    assert [task.result(0) for task in tasks] == [0] * 50


@pytest.mark.parametrize("stack_size", [None, 1 << 20])
def test_fork_while_a_thread_is_being_started(monkeypatch, stack_size):
    """Whoever starts it holds locks: `threading`'s, or ours around the stack size."""
    from affinitypool._threads import WorkerThread

    entered, gate = threading.Event(), threading.Event()
    start = WorkerThread.start

    def slow(self):
        entered.set()
        gate.wait(30)
        start(self)

    with ThreadPoolExecutor(2, stack_size=stack_size) as pool:
        monkeypatch.setattr(WorkerThread, "start", slow)
        tasks = []
        thread = threading.Thread(target=lambda: tasks.append(pool.submit(abs, -1)))
        thread.start()
        assert entered.wait(10)
        monkeypatch.setattr(WorkerThread, "start", start)
        in_child(lambda: (works(pool), works(ThreadPoolExecutor(1, stack_size=1 << 19))))
        gate.set()
        thread.join(20)
        assert tasks[0].result(20) == 1


def test_fork_while_an_initializer_runs():
    entered, gate = threading.Event(), threading.Event()
    parent = os.getpid()

    def start():
        entered.set()
        if os.getpid() == parent:
            gate.wait(30)

    with ThreadPoolExecutor(2, initializer=start) as pool:
        task = pool.submit(abs, -1)
        assert entered.wait(10)
        in_child(lambda: (are_cancelled([task]), works(pool)))
        gate.set()
        assert task.result(20) == 1


@pytest.mark.parametrize("on_full", ["block", "raise", "caller_runs"])
def test_fork_while_a_bound_is_reached(on_full):
    """Neighbour: the child's pool has the bound, and nothing counts against it there."""
    threads = []
    with ThreadPoolExecutor(1, max_pending=2, on_full=on_full) as pool:

        def check():
            assert pool._core.blocked == 0
            assert pool.wait_idle(10) is True
            with occupied(pool):
                mine = [pool.try_submit(int) for _ in range(2)]
                with pytest.raises(PendingLimitError):
                    pool.try_submit(int)
            assert wait(mine, 10).not_done == set()
            are_cancelled(tasks[:2])
            if on_full == "block":
                works(pool)

        with occupied(pool):
            tasks = [pool.submit(int) for _ in range(2)]
            if on_full == "block":
                threads = [
                    threading.Thread(target=lambda: tasks.append(pool.submit(int))),
                    threading.Thread(target=pool.wait_idle),
                ]
                for thread in threads:
                    thread.start()
                assert eventually(lambda: pool._core.blocked == 1)
            in_child(check)
            assert pool.stats().pending == 2
        for thread in threads:
            thread.join(20)
    assert [task.result(20) for task in tasks] == [0] * (2 + len(threads) // 2)


def test_fork_while_pools_are_made_and_dropped():
    stop = threading.Event()

    def make():
        while not stop.is_set():
            assert ThreadPoolExecutor(1).submit(abs, -1).result(20) == 1

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            in_child(lambda: works(ThreadPoolExecutor(2)))
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


@pytest.mark.parametrize("load", ["submit", "batch", "cancel", "nest", "observe"])
def test_many_forks_under_load(load):
    """Each load has queues, rings or observers in the middle of something at the fork."""
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:

        def produce():
            while not stop.is_set():
                if load == "batch":
                    tasks = pool.submit_many(abs, range(-100, 0))
                elif load == "nest":
                    tasks = [
                        pool.submit(lambda: [pool.submit(abs, -n).result(20) for n in range(9)])
                        for _ in range(9)
                    ]
                else:
                    tasks = [pool.submit(abs, -n) for n in range(50)]
                if load == "cancel":
                    for task in tasks:
                        task.cancel()
                elif load == "observe":
                    for task in tasks:
                        task.add_done_callback(lambda task: None)
                    for task in as_completed(tasks, 20):
                        task.result(0)
                wait(tasks, 20)

        producers = [threading.Thread(target=produce) for _ in range(2)]
        for producer in producers:
            producer.start()
        try:
            for _ in range(12):
                # (not a lambda: without a GIL a thread that reads a closure's cell holds its lock,
                # and if that is at the fork, nobody in the child can ever read it)
                in_child(functools.partial(works, pool))
        finally:
            stop.set()
            for producer in producers:
                producer.join(30)
                assert not producer.is_alive()


def test_nothing_runs_twice_or_never_across_forks(two):
    """Tasks pending at a fork run once, in the parent."""
    read, write = os.pipe()
    parent = os.getpid()

    def record(n):
        os.write(write, b"%d %d\n" % (os.getpid(), n))

    for n in range(200):
        two.submit(record, n)
        if n % 20 == 10:
            in_child(lambda: works(two))
    two.shutdown()
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = [tuple(map(int, line.split())) for line in pipe]
    assert sorted(lines) == [(parent, n) for n in range(200)]


# ---- children of children


def test_double_fork(two):
    two.submit(int).result(10)
    with occupied(two):
        tasks = [two.submit(int) for _ in range(5)]

        def grandchild():
            are_cancelled(tasks)
            works(two)

        def child():
            in_child(grandchild)
            works(two, False)
            mine = two.submit(threading.Event().wait, 0.2)
            in_child(lambda: are_cancelled([mine, *tasks]))
            in_child(grandchild)
            two.shutdown()

        in_child(child)


def test_a_daemonising_double_fork(one):
    """The child in the middle exits at once; the grandchild is nobody's and works."""
    one.submit(int).result(10)
    read, write = os.pipe()

    def child():
        if os.fork() == 0:
            os.setsid()
            with contextlib.suppress(BaseException):
                works(one)
                os.write(write, b"works")
            os._exit(0)

    in_child(child)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"works"


def test_forkpty(two):
    terminals = []

    def fork():
        child, terminal = os.forkpty()
        if child:
            terminals.append(terminal)  # closed earlier, it would hang the child up
        return child

    with occupied(two):
        task = two.submit(int)
        in_child(lambda: are_cancelled([task]), fork)
        in_child(lambda: works(two), fork)
    for terminal in terminals:
        os.close(terminal)


# ---- the child ends promptly


ENDS = {
    "falls off": ("pass", 0),
    "sys.exit": ("sys.exit(7)", 7),
    "an error": ("sys.stderr = open(os.devnull, 'w'); raise KeyError", 1),
    "os._exit": ("os._exit(8)", 8),
    "shutdown": ("pool.shutdown(); sys.exit(9)", 9),
    "with": ("pool.__exit__(None, None, None); sys.exit(10)", 10),
    "waits": ("wait(tasks); [*as_completed(tasks)]; sys.exit(11)", 11),
}


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_the_child_exits_promptly_with_work_pending_in_the_parent(used):
    """The child exits promptly."""
    check_cases([(end, used) for end in ENDS], check_the_end_of_a_child)


def check_the_end_of_a_child(end, used):
    last, status = ENDS[end]
    done = run_python(
        f"""
        import atexit, os, sys, threading
        from affinitypool import ThreadPoolExecutor, as_completed, wait
        gate = threading.Event()
        pool = ThreadPoolExecutor(2)
        tasks = [pool.submit(gate.wait) for _ in range(10)]
        child = os.fork()
        if child == 0:
            if {used}:
                pool.submit(os.write, 1, b"used ")
            {last}
        else:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert not any(task.done() for task in tasks)
            gate.set()
            sys.exit(status)
        """,
        options=("-W", "ignore"),
        timeout=20,
    )
    expected = "used " if used else ""
    if end == "os._exit" and used:
        assert (done.returncode, done.stderr) == (status, "")
    else:
        assert (done.returncode, done.stdout, done.stderr) == (status, expected, "")


def test_pending_tasks_of_the_child_run_at_its_end():
    """Neighbour: at the child's end what the child submitted runs, as anywhere."""
    out = check_python(
        """
        import os, sys, threading, time
        from affinitypool import ThreadPoolExecutor
        gate = threading.Event()
        pool = ThreadPoolExecutor(1)
        parents = [pool.submit(gate.wait), *(pool.submit(os.write, 1, b"p") for _ in range(3))]
        child = os.fork()
        if child == 0:
            pool.submit(time.sleep, 0.05)
            for _ in range(5):
                pool.submit(os.write, 1, b"c")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        gate.set()
        """,
        options=("-W", "ignore"),
    )
    assert out == "cccccppp"


def test_the_childs_atexit_hooks_run_after_its_tasks():
    out = check_python(
        """
        import atexit, os, sys
        from affinitypool import ThreadPoolExecutor
        parent = os.getpid()
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()
        @atexit.register
        def hook():
            try:
                pool.submit(int)
            except RuntimeError as error:
                os.write(1, (str(error) + "\\n").encode())
        child = os.fork()
        if child == 0:
            pool.submit(os.write, 1, b"ran\\n")
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        """,
        options=("-W", "ignore"),
    )
    line = "cannot schedule new futures after interpreter shutdown\n"
    assert out == "ran\n" + line + line


def test_fork_in_a_task_that_runs_while_the_interpreter_ends():
    """The last tasks run while main waits for them; the child of one ends as well."""
    done = run_python(
        """
        import os, sys, time
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        def late():
            time.sleep(0.1)
            try:
                child = os.fork()
            except RuntimeError:   # newer versions refuse
                return os.write(1, b"ended")
            if child == 0:
                try:
                    pool.submit(int)
                except RuntimeError:
                    os._exit(3)
                os._exit(4)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
            os.write(1, b"ended")
        pool.submit(late)
        """,
        options=("-W", "ignore"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended", "")


# ---- hooks of others around the fork


def test_a_hook_after_ours_may_use_the_pool():
    out = check_python(
        """
        import os
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        pool.submit(int).result()
        os.register_at_fork(
            before=lambda: os.write(1, b"%d" % pool.submit(abs, -1).result(10)),
            after_in_child=lambda: os.write(1, b"%d" % pool.submit(abs, -2).result(10)),
            after_in_parent=lambda: pool.submit(abs, -3).result(10),
        )
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        options=("-W", "ignore"),
    )
    assert out == "12"


USES = {
    "submits": "use = pool.submit(abs, -1).result(5)",
    "maps": "use = next(pool.map(abs, [-1], timeout=5))",
    "submits many": "use = pool.submit_many(abs, [-1])[0].result(5)",
    "waits for a task of the parent": "use = len(wait([queued], 5).done)",
    "shuts down": "pool.shutdown(); use = refuses(pool)",
    "makes a pool": "use = ThreadPoolExecutor(1).submit(abs, -1).result(5)",
    "drops its pool": "use = pool.submit(abs, -1).result(5); del pool",
}


@pytest.mark.parametrize("bound", [None, 1])
@pytest.mark.parametrize("use", USES)
def test_a_hook_before_ours_may_use_the_pool(use, bound):
    """Neighbour: somebody who registered a hook before the library was imported."""
    out = check_python(
        f"""
        import os, threading
        def refuses(pool):
            try:
                pool.submit(abs, -1)
            except ShutdownError:
                return True
        def hook():
            global pool
            {USES[use]}
            os.write(1, b"%d" % use)
            assert running.cancelled() and queued.cancelled()
        os.register_at_fork(after_in_child=hook)
        from affinitypool import CancelledError, ShutdownError, ThreadPoolExecutor, wait
        gate, begun = threading.Event(), threading.Event()
        pool = ThreadPoolExecutor(1, max_pending={bound})
        running = pool.submit(lambda: (begun.set(), gate.wait()))
        begun.wait()
        queued = pool.submit(int)
        child = os.fork()
        if child == 0:
            if {use!r} not in ("shuts down", "drops its pool"):
                assert pool.submit(abs, -2).result(5) == 2
                assert list(pool.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
            os.write(1, b"2")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        gate.set()
        assert queued.result(5) == 0
        """,
        options=("-W", "ignore"),
    )
    assert out == "12"


def test_a_fork_that_python_does_not_know_of():
    """Neighbour: a C library that forks and calls Python in the child, which no hook hears of."""
    out = check_python(
        """
        import ctypes, os, threading
        from affinitypool import ThreadPoolExecutor
        gate, begun = threading.Event(), threading.Event()
        pool = ThreadPoolExecutor(1)
        running = pool.submit(lambda: (begun.set(), gate.wait()))
        begun.wait()
        queued = pool.submit(int)
        child = ctypes.PyDLL(None).fork()  # PyDLL: the thread stays attached to the interpreter
        if child == 0:
            assert queued.cancelled() and running.cancelled()
            assert pool.submit(abs, -2).result(5) == 2
            os.write(1, b"2")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        gate.set()
        assert queued.result(5) == 0
        """,
        options=("-W", "ignore"),
    )
    assert out == "2"


# ---- the child renews each pool for itself, whatever becomes of the hook


class StruckOnce(ThreadPoolExecutor):
    """A pool whose renewal is interrupted the first time."""

    armed = False

    def _renew(self):
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        super()._renew()


def test_an_interrupt_of_the_renewal_leaves_no_pool_behind(monkeypatch):
    """Ctrl-C reaches the child while its pools are renewed: each of them works all the same."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: told.append(info.exc_type))
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(StruckOnce(1)) for _ in range(5)]
        for pool in pools:
            pool.submit(int).result(10)

        def check():
            assert told == [KeyboardInterrupt]
            for pool in pools:
                works(pool)

        for struck in pools[0], pools[2], pools[4]:
            struck.armed = True
            in_child(check)
            struck.armed = False


@pytest.mark.timeout(180)  # some hundred forks, of a process that may have grown
def test_ctrl_c_anywhere_in_the_renewal(monkeypatch):
    """Neighbour: at each place of the hook where the interpreter looks for signals."""
    gc.collect()  # pools that lie in cycles are renewed, too: each has places of its own
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        assert first.submit(int).result(10) == second.submit(int).result(10) == 0

        def attempt(k):
            read, write = os.pipe()
            child = None
            try:
                with pending_at(k, signal.SIGINT, FOLDERS[:1]) as seen:
                    child = os.fork()
            except KeyboardInterrupt:  # the last place: it comes as the fork returns
                child = 0
            if child == 0:
                status = 1
                try:
                    assert [pool.submit(abs, -1).result(10) for pool in (first, second)] == [1, 1]
                    os.write(write, b"more" if seen[0] >= k else b"end")
                    status = 0
                finally:
                    os._exit(status)
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                assert end_of(child) == 0
                return pipe.read() == b"more"

        at_each_place(attempt, step=5)


def test_a_pool_that_the_hook_does_not_know_of():
    """Neighbour: its `__init__` was interrupted at the end, by a handler that forks."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result(10)
        kept = affinitypool._threads.pools.pop(id(pool))
        try:
            in_child(lambda: works(pool))
        finally:
            affinitypool._threads.pools[id(pool)] = kept
        works(pool, False)


@pytest.mark.parametrize("number", range(3))
def test_a_thread_of_an_earlier_hook_uses_the_pool(number):
    """Neighbour: another thread of the child comes before our hook, or between two pools."""
    use = [
        "assert pool.submit(abs, -1).result(5) == 1",
        "assert list(pool.map(abs, [-1, -2])) == [1, 2]",
        "assert pool.shutdown(timeout=5)",
    ][number]
    out = check_python(
        f"""
        import os, threading
        def use():
            {use}
            os.write(1, b"1")
        def hook():
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        os.register_at_fork(after_in_child=hook)
        from affinitypool import ThreadPoolExecutor
        pool, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        for each in (pool, other):
            each.submit(int).result(5)
        child = os.fork()
        if child == 0:
            assert other.submit(abs, -2).result(5) == 2
            os.write(1, b"2")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        options=("-W", "ignore"),
    )
    assert out == "12"


# ---- a fork in the middle of a call that then goes on in both


class ForksOnce:
    """A function that forks when it is called first."""

    def __init__(self):
        self.parent, self.child = os.getpid(), None

    def __call__(self, *_):
        if self.child is None:
            self.child = os.fork()

    @contextlib.contextmanager
    def going_on_in_both(self):
        """Have the child end with the body; fail if it does not, or not well."""
        read, write = os.pipe()
        try:
            yield
        except BaseException:
            if os.getpid() != self.parent:
                os.write(write, traceback.format_exc().encode())
                os._exit(1)
            raise
        finally:
            if os.getpid() != self.parent:
                os._exit(0)
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                assert self.child is not None
                ended = end_of(self.child)
                if ended is None:
                    os.kill(self.child, signal.SIGKILL)
                    os.waitpid(self.child, 0)
                assert ended == 0, pipe.read().decode() or "the child hangs"


@contextlib.contextmanager
def struck_when_blocked(files, handler):
    """Send a signal once the main thread is in a call of one of the files; it calls `handler`."""
    main = threading.main_thread().ident

    def is_there():
        frame = sys._current_frames()[main]
        return os.path.basename(frame.f_code.co_filename) in files

    def send():
        assert eventually(is_there)
        time.sleep(0.02)  # most likely it sleeps by now
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
    thread.join(20)


FIRST_WAITS = {
    "first completed": lambda tasks: wait(tasks, return_when=FIRST_COMPLETED),
    "first exception": lambda tasks: wait(tasks, return_when=FIRST_EXCEPTION),
    "all": wait,
    "as_completed": lambda tasks: list(as_completed(tasks)),
    "as_completed with a timeout": lambda tasks: list(as_completed(tasks, 30)),
    "with a foreign future": lambda tasks: wait([*tasks, Future()], 30, FIRST_COMPLETED),
}


@pytest.mark.parametrize("waiting", FIRST_WAITS.values(), ids=FIRST_WAITS)
def test_fork_in_a_signal_handler_while_main_waits_for_several(waiting, one):
    """In the child nobody tells of the parent's tasks, which are cancelled: the wait returns."""
    gate, forks = threading.Event(), ForksOnce()
    tasks = [one.submit(gate.wait, 30), one.submit(int)]

    def handler(*_):
        forks()
        if forks.child:
            gate.set()

    with forks.going_on_in_both(), struck_when_blocked(["_waiting.py"], handler):
        waiting(tasks)
        if os.getpid() != forks.parent:
            assert all(task.cancelled() for task in tasks)
            works(one)
            os._exit(0)
    assert wait(tasks, 20).not_done == set()


@pytest.mark.parametrize("call", ["shutdown", "drain", "shutdown_now", "join"])
def test_fork_while_main_joins_a_thread_in_its_last_lines(call, monkeypatch):
    """The thread has given up all that it had, but has not ended: in the child it never does."""
    end = affinitypool._threads.WorkerThread._end
    left, gate, forks = threading.Event(), threading.Event(), ForksOnce()

    def slow_end(self):
        end(self)
        left.set()
        gate.wait(30)

    monkeypatch.setattr(affinitypool._threads.WorkerThread, "_end", slow_end)
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result(10)
    (thread,) = pool._threads

    def handler(*_):
        forks()
        if forks.child:
            gate.set()

    pool.shutdown(wait=False)
    assert left.wait(10)
    files = ["_joining.py", "_threads.py"]
    with forks.going_on_in_both(), struck_when_blocked(files, handler):
        thread.join() if call == "join" else getattr(pool, call)()
        if os.getpid() != forks.parent:
            assert not thread.is_alive()
            os._exit(0)
    assert not thread.is_alive()


@pytest.mark.parametrize("count", [2, 1300])
@pytest.mark.parametrize("name", ["submit_many", "map"])
def test_fork_in_an_iterator(name, count, two):
    """What was made before is the parent's; what comes after runs in the child, in its queues."""
    two.submit(int).result(10)
    forks = ForksOnce()
    before, made = [], []

    def items():
        yield from range(-count, 0)
        forks()
        yield from range(-5, 0)

    def call(n):
        made.append(n)
        return abs(n)

    with forks.going_on_in_both():
        if name == "submit_many":
            tasks = two.submit_many(call, items())
            before = tasks[:-5]
            assert [task.result(10) for task in tasks[-5:]] == [5, 4, 3, 2, 1]
            if os.getpid() != forks.parent:
                assert all(task.cancelled() for task in before[-2:])
        else:
            results = two.map(call, items(), timeout=20)
            if os.getpid() == forks.parent:
                assert list(results) == [*range(count, 0, -1), 5, 4, 3, 2, 1]
            else:
                assert two.wait_idle(10)
                assert sorted(made[-5:]) == [-5, -4, -3, -2, -1]
        if os.getpid() != forks.parent:
            works(two)
    assert [task.result(10) for task in before] == list(range(count, 0, -1))[: len(before)]


def test_fork_in_a_callback_of_what_a_shutdown_cancels():
    """The call that cancels goes on in the child, and leaves the parent's queues alone there."""
    forks, gate = ForksOnce(), threading.Event()
    pool = ThreadPoolExecutor(1)
    running = pool.submit(gate.wait, 30)
    assert eventually(running.running)
    tasks = [pool.submit(int) for _ in range(20)]
    tasks[3].add_done_callback(forks)
    with forks.going_on_in_both():
        pool.shutdown(wait=False, cancel_futures=True)
        if os.getpid() != forks.parent:
            are_cancelled([running, *tasks])
            assert pool.shutdown(timeout=10)
    gate.set()
    assert pool.shutdown(timeout=20)
    assert running.result(0) is True
    assert all(task.cancelled() for task in tasks)


@pytest.mark.parametrize("how", ["submit", "submit with many arguments", "submit_many"])
def test_fork_in_a_finalizer_in_the_middle_of_a_submit(how, one):
    """The collector may run wherever something is made; the submit goes on in both."""
    one.submit(int).result(10)
    forks = ForksOnce()

    class Forks:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            forks()

    submit = {
        "submit": lambda: one.submit(abs, -1),
        "submit with many arguments": lambda: one.submit(pow, 1, 2, mod=None),
        "submit_many": lambda: one.submit_many(abs, [-1])[0],
    }[how]
    with forks.going_on_in_both():
        before = gc.get_threshold()
        gc.collect()
        Forks()
        gc.set_threshold(1)
        try:
            tasks = [submit() for _ in range(3)]
        finally:
            gc.set_threshold(*before)
        gc.collect()
        if os.getpid() != forks.parent:
            # one that was made before the fork is the parent's
            assert tasks[-1].done() or tasks[-1].result(10) == 1
            works(one)
        else:
            assert [task.result(10) for task in tasks] == [1, 1, 1]


@pytest.mark.parametrize("who", ["another thread", "the same thread", "a task of the child"])
def test_fork_in_a_fork_of_a_task(who, two):
    """A task goes on in the child of its own thread; not in that one's child, if another forks."""
    box, ready, seen = [], threading.Event(), []

    def goes_on():
        assert not box[0].done()

    def ended():
        are_cancelled(box)
        works(two)

    def attempt():
        try:
            in_child(goes_on if who == "the same thread" else ended)
            seen.append(None)
        except BaseException as error:
            seen.append(error)

    def child():
        goes_on()
        if who == "the same thread":
            attempt()
        elif who == "another thread":
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
        else:
            two.submit(attempt)
            assert two.wait_idle(30)
        if seen != [None]:
            raise seen[0]
        goes_on()

    def outer():
        ready.wait(10)
        in_child(child)
        return "outer"

    box.append(two.submit(outer))
    ready.set()
    assert box[0].result(40) == "outer"


# ---- multiprocessing and subprocess


def use_and_report(pool, results):
    works(pool, False)
    results.put(pool.submit(pow, 2, 7).result(10))


def leave_pending(pool, path):
    for n in range(5):
        pool.submit(append, path, n)


def append(path, n):
    with open(path, "a") as file:
        file.write(f"{n}\n")


shared: ThreadPoolExecutor  # what functions that another process calls by name find


def square(n):
    return shared.submit(pow, n, 2).result(10)


@pytest.fixture
def context():
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("multiprocessing cannot fork here")
    return multiprocessing.get_context("fork")


@pytest.fixture
def busy():
    """Give the shared pool, with work pending in the parent."""
    global shared
    gate = threading.Event()
    with ThreadPoolExecutor(2) as shared:
        tasks = [shared.submit(gate.wait, 50) for _ in range(6)]
        yield shared
        assert not any(task.done() for task in tasks)
        gate.set()
        assert [task.result(20) for task in tasks] == [True] * 6
    del shared


@pytest.mark.parametrize("daemon", [False, True])
def test_multiprocessing_process(context, busy, daemon):
    results = context.SimpleQueue()
    process = context.Process(target=use_and_report, args=(busy, results), daemon=daemon)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert results.get() == 128


def test_a_multiprocessing_process_runs_what_it_left_pending(context, busy, tmp_path):
    """Neighbour: such a child leaves by `os._exit`, but not before its pools have ended."""
    path = tmp_path / "ran"
    process = context.Process(target=leave_pending, args=(busy, path))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert sorted(path.read_text().split()) == list("01234")


def test_multiprocessing_pool(context, busy):
    with context.Pool(2) as processes:
        assert processes.map(square, range(20), 1) == [n * n for n in range(20)]
        processes.close()
        processes.join()


def test_a_process_pool_executor(context, busy):
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        assert list(processes.map(square, range(20))) == [n * n for n in range(20)]


def test_processes_that_a_task_starts(context, busy):
    """Neighbour: the thread that forks is a worker of another pool."""

    def start():
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            squares = list(processes.map(square, range(5)))
        with context.Pool(1) as processes:
            return squares == processes.map(square, range(5))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(start).result(50)


def test_a_process_pool_that_lives_on_while_the_parent_submits(context, busy):
    with ThreadPoolExecutor(2) as pool, ProcessPoolExecutor(2, mp_context=context) as processes:
        for n in range(10):
            both = [processes.submit(square, n), pool.submit(pow, n, 2)]
            assert wait(both, 20).not_done == set()
            assert [future.result(0) for future in both] == [n * n] * 2


@pytest.mark.parametrize("where", ["main", "task"])
def test_a_subprocess_with_a_preexec_fn(busy, where):
    """`preexec_fn` is Python code in a forked child, and may even use a pool there."""

    def before_exec():
        assert busy.submit(abs, -3).result(10) == 3

    def start():
        return subprocess.run(
            [sys.executable, "-c", "print(4)"], preexec_fn=before_exec, stdout=-1, timeout=30
        )

    with ThreadPoolExecutor(1) as pool:
        done = start() if where == "main" else pool.submit(start).result(40)
    assert (done.returncode, done.stdout) == (0, b"4\n")


def test_subprocesses_under_load(two):
    """Neighbour: without `preexec_fn` the child only execs."""
    stop = threading.Event()

    def produce():
        while not stop.is_set():
            wait([two.submit(abs, -n) for n in range(50)], 20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(10):
            assert subprocess.run(["true"], timeout=20).returncode == 0
            assert subprocess.run(["true"], preexec_fn=int, timeout=20).returncode == 0
    finally:
        stop.set()
        thread.join(20)
