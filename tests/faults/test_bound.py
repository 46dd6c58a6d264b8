"""`max_pending`: a bound on what was accepted and has not started."""

from __future__ import annotations

import queue
import signal
import threading
import time

import pytest
from helpers import eventually, occupied

import affinitypool
from affinitypool import AffinityPoolError, PendingLimitError, ShutdownError, ThreadPoolExecutor

pytestmark = pytest.mark.timeout(60)


def in_thread(call, *args):
    """Run a call in a thread; return a list that its result or error comes into, and the thread."""
    outcome = []

    def run():
        try:
            outcome.append(call(*args))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return outcome, thread


def blocked(pool, count=1):
    """Wait until so many threads are blocked in a submit."""
    return eventually(lambda: pool._core.blocked == count, 10)


def full(max_workers=1, max_pending=2, **options):
    """Make a pool, and a context in which its workers are busy."""
    return ThreadPoolExecutor(max_workers, max_pending=max_pending, **options)


@pytest.mark.parametrize("max_pending", [0, -1, 2**30 + 1, 10**30])
def test_a_bound_out_of_range_is_refused(max_pending):
    with pytest.raises(ValueError, match="max_pending must be from 1 to"):
        ThreadPoolExecutor(1, max_pending=max_pending)


@pytest.mark.parametrize("max_pending", ["3", 1.0, object()])
def test_a_bound_of_a_wrong_type_is_refused(max_pending):
    with pytest.raises(TypeError, match="max_pending must be an integer"):
        ThreadPoolExecutor(1, max_pending=max_pending)


@pytest.mark.parametrize("on_full", ["", "wait", None, 1, []])
def test_an_unknown_on_full_is_refused(on_full):
    with pytest.raises(ValueError, match="on_full must be 'block', 'raise' or 'caller_runs'"):
        ThreadPoolExecutor(1, max_pending=1, on_full=on_full)


def test_raise_refuses_and_leaves_nothing_behind():
    ran = []
    with full(on_full="raise") as pool:
        with occupied(pool):
            tasks = [pool.submit(ran.append, n) for n in range(2)]
            for submit in (pool.submit, pool.try_submit):
                with pytest.raises(PendingLimitError, match="max_pending=2") as caught:
                    submit(ran.append, "never")
                assert isinstance(caught.value, queue.Full)
                assert isinstance(caught.value, AffinityPoolError)
            assert pool.stats().pending == 2
        assert [task.result(10) for task in tasks] == [None, None]
        assert pool.submit(abs, -1).result(10) == 1
    assert ran == [0, 1]


@pytest.mark.parametrize("on_full", ["block", "raise", "caller_runs"])
def test_try_submit_never_waits_whatever_on_full_is(on_full):
    with full(on_full=on_full) as pool, occupied(pool):
        tasks = [pool.try_submit(int) for _ in range(2)]
        with pytest.raises(PendingLimitError):
            pool.try_submit(int)
        assert not any(task.done() for task in tasks)


def test_try_submit_of_an_unbounded_pool_is_submit(one):
    with occupied(one):
        tasks = [one.try_submit(abs, -n) for n in range(1000)]
    assert [task.result(10) for task in tasks] == list(range(1000))
    with pytest.raises(TypeError):
        one.try_submit()


def test_caller_runs():
    here = threading.get_ident()
    with full(on_full="caller_runs") as pool:
        with occupied(pool):
            queued = [pool.submit(threading.get_ident) for _ in range(2)]
            mine = pool.submit(threading.get_ident)
            assert mine.done()
            assert mine.result() == here
            failed = pool.submit(divmod, 1, 0)
            assert isinstance(failed.exception(), ZeroDivisionError)
            called = []
            mine.add_done_callback(called.append)
            assert called == [mine]
        assert here not in [task.result(10) for task in queued]
    with pytest.raises(ShutdownError):
        pool.submit(int)


def test_caller_runs_nested_too_deep_is_a_recursion_error():
    with full(max_pending=1, on_full="caller_runs") as pool, occupied(pool):
        pool.submit(int)

        def nest():
            return pool.submit(nest).result()

        assert isinstance(pool.submit(nest).exception(), RecursionError)
        assert pool.submit(abs, -1).result() == 1


def test_ctrl_c_in_a_call_that_the_caller_runs_reaches_the_caller():
    with full(max_pending=1, on_full="caller_runs") as pool, occupied(pool):
        pool.submit(int)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(signal.raise_signal, signal.SIGINT)
        assert pool.submit(abs, -1).result() == 1


def test_block_waits_for_a_start():
    with full() as pool:
        with occupied(pool) as gate:
            tasks = [pool.submit(abs, -1) for _ in range(2)]
            outcome, thread = in_thread(pool.submit, abs, -3)
            assert blocked(pool)
            assert not outcome
            assert pool.stats().pending == 2
            gate.set()
            thread.join(10)
        assert outcome[0].result(10) == 3
        assert [task.result(10) for task in tasks] == [1, 1]
        assert pool._core.blocked == 0


RELEASES = {
    "cancel": lambda task: task.cancel(),
    "set_result": lambda task: task.set_result(1),
    "set_exception": lambda task: task.set_exception(KeyError()),
    "set_running_or_notify_cancel": lambda task: (
        task.set_running_or_notify_cancel() and task.set_result(1)
    ),
}


@pytest.mark.parametrize("way", RELEASES)
def test_what_ends_a_pending_task_gives_its_place_back(way):
    with full(max_pending=1) as pool, occupied(pool):
        for _ in range(50):
            RELEASES[way](pool.try_submit(int))
        first = pool.try_submit(int)
        outcome, thread = in_thread(pool.submit, int)
        assert blocked(pool)
        RELEASES[way](first)
        thread.join(10)
        assert not outcome[0].done()
        with pytest.raises(PendingLimitError):
            pool.try_submit(int)


def test_the_work_queue_gives_places_back():
    with full(max_pending=1) as pool, occupied(pool):
        for _ in range(3):
            task = pool.try_submit(abs, -2)
            item = pool._work_queue.get_nowait()
            item.run()
            assert task.result() == 2
        item = None
        pool.try_submit(abs, -2)
        item = pool._work_queue.get_nowait()
        item.future.cancel()
        pool.try_submit(int)


@pytest.mark.parametrize("cancel", [False, True])
def test_shutdown_releases_a_blocked_submit(cancel):
    pool = full()
    with occupied(pool):
        tasks = [pool.submit(int) for _ in range(2)]
        waits = [in_thread(pool.submit, int) for _ in range(3)]
        assert blocked(pool, 3)
        assert not pool.shutdown(wait=False, cancel_futures=cancel)
        for outcome, thread in waits:
            thread.join(10)
            assert isinstance(outcome[0], ShutdownError)
    pool.shutdown()
    assert all(task.cancelled() == cancel for task in tasks)


def test_a_broken_pool_releases_a_blocked_submit():
    gate = threading.Event()

    def initializer():
        gate.wait(30)
        raise ValueError

    pool = ThreadPoolExecutor(1, initializer=initializer, max_pending=1)
    first = pool.submit(int)
    outcome, thread = in_thread(pool.submit, int)
    assert blocked(pool)
    gate.set()
    thread.join(10)
    assert isinstance(outcome[0], affinitypool.BrokenThreadPool)
    assert isinstance(first.exception(10), affinitypool.BrokenThreadPool)
    pool.shutdown()


@pytest.mark.parametrize("others", [0, 1])
def test_ctrl_c_ends_a_blocked_submit(others):
    """The main thread leaves without a place, and nobody else's wake is lost with it."""
    with full() as pool:
        with occupied(pool) as gate:
            tasks = [pool.submit(int) for _ in range(2)]
            waits = [in_thread(pool.submit, abs, -5) for _ in range(others)]
            assert blocked(pool, others)
            timer = threading.Timer(
                0.05,
                lambda: blocked(pool, others + 1)
                and signal.pthread_kill(threading.main_thread().ident, signal.SIGINT),
            )
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                pool.submit(int)
            timer.join()
            assert pool.stats().pending == 2
            gate.set()
            for outcome, thread in waits:
                thread.join(10)
                assert outcome[0].result(10) == 5
        assert [task.result(10) for task in tasks] == [0, 0]


def test_a_handler_that_submits_while_its_submit_is_blocked():
    results = []
    with full() as pool, occupied(pool) as gate:
        for _ in range(2):
            pool.submit(int)

        def handler(*_):
            gate.set()
            results.append(pool.submit(abs, -7).result(10))

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            main = threading.main_thread().ident
            timer = threading.Timer(
                0.01, lambda: blocked(pool) and signal.pthread_kill(main, signal.SIGUSR1)
            )
            timer.start()
            assert pool.submit(abs, -8).result(10) == 8
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert results == [7]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_is_never_blocked_by_its_own_bound(workers):
    """Also where all of them submit more than the bound at once, and wait for it."""
    with ThreadPoolExecutor(workers, max_pending=1) as pool:

        def fib(n):
            if n < 2:
                return n
            parts = [pool.submit(fib, n - 1), pool.submit(fib, n - 2)]
            return sum(part.result(30) for part in parts)

        assert pool.submit(fib, 12).result(50) == 144
        assert [task.result(30) for task in [pool.submit(fib, 5) for _ in range(20)]] == [5] * 20


def test_an_initializer_is_never_blocked_by_its_own_bound():
    inner = []
    pool = ThreadPoolExecutor(
        1, max_pending=1, initializer=lambda: inner.append(pool.submit(abs, -2))
    )
    assert pool.submit(abs, -1).result(10) == 1
    assert inner[0].result(10) == 2
    pool.shutdown()


def test_a_callback_is_never_blocked_by_the_bound_of_its_pool():
    inner = []
    with ThreadPoolExecutor(1, max_pending=1) as pool:
        with occupied(pool):
            task = pool.submit(int)
            task.add_done_callback(lambda _: inner.extend(pool.submit(int) for _ in range(5)))
        assert eventually(lambda: len(inner) == 5, 10)
        assert [task.result(10) for task in inner] == [0] * 5


def test_over_the_bound_others_wait_until_the_pool_is_below_it():
    with ThreadPoolExecutor(1, max_pending=2) as pool:
        gate = threading.Event()

        def work():
            tasks = [pool.submit(int) for _ in range(4)]
            gate.wait(30)
            return tasks

        outer = pool.submit(work)
        assert eventually(lambda: pool.stats().pending == 4, 10)
        with pytest.raises(PendingLimitError):
            pool.try_submit(int)
        gate.set()
        assert all(task.result(10) == 0 for task in outer.result(10))
        assert pool.try_submit(int).result(10) == 0


def test_a_task_that_cannot_be_made_takes_no_place():
    class Key(str):
        __slots__ = ()

    with full(max_pending=1) as pool, occupied(pool):
        for _ in range(3):
            with pytest.raises(TypeError):
                pool.try_submit()
        pool.try_submit(int)


def test_a_refused_thread_gives_the_place_back(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    pool = ThreadPoolExecutor(1, max_pending=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(5):
            with pytest.raises(RuntimeError, match="can't start"):
                pool.submit(int)
    assert pool.try_submit(abs, -1).result(10) == 1
    pool.shutdown()


def test_map_and_submit_many_obey_the_bound():
    most = []
    with ThreadPoolExecutor(2, max_pending=3) as pool:

        def work(n):
            most.append(pool.stats().pending)
            return n

        assert list(pool.map(work, range(300))) == list(range(300))
        assert [task.result(10) for task in pool.submit_many(work, range(300))] == list(range(300))
        assert list(pool.map(work, range(30), buffersize=2)) == list(range(30))
    assert max(most) <= 3


@pytest.mark.parametrize("way", ["map", "submit_many"])
def test_a_batch_that_is_refused_cancels_what_it_submitted(way):
    ran = []
    with full(on_full="raise") as pool:
        with occupied(pool), pytest.raises(PendingLimitError):
            getattr(pool, way)(ran.append, range(5))
        assert pool.submit(abs, -1).result(10) == 1
    assert ran == []


@pytest.mark.parametrize("workers", [1, 3])
def test_many_producers_are_bounded_and_nothing_is_lost(workers):
    """Places are neither lost nor made: as many as at first are there in the end."""
    bound, most = 4, []
    with ThreadPoolExecutor(workers, max_pending=bound) as pool:

        def work(n):
            most.append(pool.stats().pending)
            return n

        def produce(number):
            tasks = []
            for n in range(400):
                tasks.append(pool.submit(work, n))
                if n % 7 == number:
                    tasks[-1].cancel()
            done = sum(task.result(30) is not None for task in tasks if not task.cancelled())
            return done + sum(task.cancelled() for task in tasks)

        waits = [in_thread(produce, number) for number in range(4)]
        for _, thread in waits:
            thread.join(50)
        assert [outcome for outcome, _ in waits] == [[400]] * 4
        # a cancelled task gives its place back and stays in the queue for a while
        assert pool.wait_idle(10)
        with occupied(pool):
            tasks = [pool.try_submit(int) for _ in range(bound)]
            with pytest.raises(PendingLimitError):
                pool.try_submit(int)
        assert all(task.result(10) == 0 for task in tasks)


def test_a_blocked_submit_uses_no_cpu():
    with full() as pool, occupied(pool) as gate:
        for _ in range(2):
            pool.submit(int)
        used = []

        def submit():
            begin = time.thread_time()
            pool.submit(int)
            used.append(time.thread_time() - begin)

        _, thread = in_thread(submit)
        assert blocked(pool)
        time.sleep(0.3)
        gate.set()
        thread.join(10)
    assert used[0] < 0.1
