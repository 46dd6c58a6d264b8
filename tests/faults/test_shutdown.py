"""Shutdown: from anywhere, with a limit, and what it tells about what still runs."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import signal
import threading
import time

import pytest
from helpers import at_once, check_python, eventually, occupied

import affinitypool
from affinitypool import (
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

pytestmark = pytest.mark.timeout(60)


def leave(pool):
    with pool:
        pass


# every way to shut a pool down, and what it returns where it cannot wait
WAYS = {
    "shutdown": (lambda pool: pool.shutdown(), False),
    "shutdown, cancelling": (lambda pool: pool.shutdown(cancel_futures=True), False),
    "shutdown with a timeout": (lambda pool: pool.shutdown(timeout=20), False),
    "shutdown without waiting": (lambda pool: pool.shutdown(wait=False), False),
    "drain": (lambda pool: pool.drain(), False),
    "drain with a timeout": (lambda pool: pool.drain(20), False),
    "shutdown_now": (lambda pool: pool.shutdown_now(), []),
    "leaving a with block": (leave, None),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def ends(pool) -> bool:
    """Whether a pool that was shut down takes no more and its threads leave."""
    with pytest.raises(ShutdownError):
        pool.submit(int)
    # (a thread that has yet to begin may still run a task that was promised to it)
    return eventually(lambda: all(thread._gone.done() for thread in set(pool._threads)), 20)


# ---- from a task, a callback and other code of the pool itself


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("pending", [0, 50])
def test_shutdown_from_a_task_never_hangs(way, workers, pending):
    """`shutdown(wait=True)` from a task of the same pool: never a hang."""
    stop, returned = way
    pool = ThreadPoolExecutor(workers)
    entered, gate = threading.Event(), threading.Event()

    def work():
        entered.set()
        gate.wait(20)
        return stop(pool)

    task = pool.submit(work)
    entered.wait(10)
    behind = [pool.submit(int) for _ in range(pending)]
    gate.set()
    result = task.result(20)
    if isinstance(result, list):
        assert set(result) <= set(behind)
    else:
        assert result == returned
    assert ends(pool)
    assert all(task.done() for task in behind)
    assert pool.shutdown(timeout=20) is True


@pytest.mark.parametrize("how", ["result", "wait", "as_completed"])
def test_shutdown_from_a_task_that_is_run_inline(one, way, how):
    """Neighbour: the frames below it are tasks of the same pool."""
    stop, _ = way

    def outer():
        task = one.submit(lambda: (stop(one), "back"))
        if how == "wait":
            wait([task], 20)
        elif how == "as_completed":
            list(as_completed([task], 20))
        return task.result(20)[1]

    assert one.submit(outer).result(20) == "back"
    assert ends(one)


@pytest.mark.parametrize("where", ["worker", "canceller", "late", "shutdown"])
def test_shutdown_from_a_callback_never_hangs(two, way, where):
    """`shutdown(wait=True)` from a callback of the same pool: never a hang."""
    stop, _ = way
    called = threading.Event()

    def callback(task):
        stop(two)
        called.set()

    if where == "late":
        task = two.submit(int)
        task.result(10)
        task.add_done_callback(callback)
    else:
        with occupied(two) as gate:
            task = two.submit(int)
            task.add_done_callback(callback)
            if where != "worker":
                # the workers are let go while the callback waits for them
                timer = threading.Timer(0.02, gate.set)
                timer.start()
            if where == "canceller":
                task.cancel()
            elif where == "shutdown":
                two.shutdown(wait=False, cancel_futures=True)
    assert called.wait(20)
    assert ends(two)


@pytest.mark.parametrize("where", ["argument", "result", "cancelled argument"])
def test_shutdown_from_a_finalizer(one, way, where):
    stop, _ = way
    done = threading.Event()

    class Dies:
        def __del__(self):
            stop(one)
            done.set()

    if where == "cancelled argument":
        with occupied(one) as gate:
            task = one.submit(id, Dies())
            timer = threading.Timer(0.02, gate.set)
            timer.start()
            task.cancel()
            del task
    elif where == "argument":
        one.submit(id, Dies()).result(10)
    else:
        one.submit(Dies)
    gc.collect()
    assert done.wait(20)
    assert ends(one)


def test_shutdown_from_the_hook_for_errors_nobody_looked_at(one, way):
    stop, _ = way
    done = threading.Event()

    def fail():
        raise KeyError

    previous = affinitypool.on_unobserved_error(lambda task: (stop(one), done.set()))
    try:
        one.submit(fail)
        assert done.wait(20)
    finally:
        affinitypool.on_unobserved_error(previous)
    assert ends(one)


def test_shutdown_from_an_initializer(way):
    stop, _ = way
    pool = ThreadPoolExecutor(2, initializer=lambda: stop(pool))
    with contextlib.suppress(ShutdownError):
        task = pool.submit(abs, -1)
        with contextlib.suppress(CancelledError):
            assert task.result(20) == 1
    assert ends(pool)


def test_all_tasks_shut_their_pool_down_at_once(pool, way):
    stop, _ = way
    barrier = threading.Barrier(pool._max_workers + 1)

    def work():
        barrier.wait(10)
        stop(pool)

    tasks = [pool.submit(work) for _ in range(pool._max_workers)]
    barrier.wait(10)
    pool.shutdown()
    assert all(task.done() and task.exception(0) is None for task in tasks)
    assert ends(pool)


def test_a_task_and_main_shut_down_in_turns(way):
    """Neighbour: main waits for the task that then shuts down as well."""
    stop, _ = way
    pool = ThreadPoolExecutor(1)
    entered = threading.Event()

    def work():
        entered.set()
        while not pool._shutdown:
            time.sleep(0.001)
        stop(pool)
        return "back"

    task = pool.submit(work)
    entered.wait(10)
    assert pool.shutdown(timeout=20) is True
    assert task.result(0) == "back"


def test_shutdown_from_another_pools_worker(one, two, way):
    stop, _ = way
    tasks = [one.submit(abs, -n) for n in range(20)]
    two.submit(stop, one).result(20)
    assert ends(one)
    assert all(task.done() for task in tasks)


def test_two_pools_whose_tasks_shut_each_other_down():
    """Neighbour: each waits for the other, which nothing but a limit can end."""
    pools = [ThreadPoolExecutor(1) for _ in range(2)]
    met = threading.Barrier(2)

    def work(other):
        met.wait(10)
        return other.shutdown(timeout=0.2)

    tasks = [pools[n].submit(work, pools[1 - n]) for n in range(2)]
    assert not all(task.result(20) for task in tasks)
    assert all(pool.shutdown(timeout=20) for pool in pools)


def test_a_task_that_joins_a_thread_that_shuts_its_pool_down(one):
    """Neighbour: that thread is no worker, so only a limit ends its wait."""
    found = []

    def work():
        thread = threading.Thread(target=lambda: found.append(one.shutdown(timeout=0.2)))
        thread.start()
        thread.join(20)
        return thread.is_alive()

    assert one.submit(work).result(20) is False
    assert found == [False]
    assert one.shutdown(timeout=20) is True


def test_shutdown_from_a_signal_handler(two, way):
    """Neighbour: it interrupts a shutdown, a submit or a wait of the main thread."""
    stop, _ = way
    called = []
    before = signal.signal(signal.SIGUSR1, lambda *_: (stop(two), called.append(1)))
    try:
        with occupied(two) as gate:
            timers = [
                threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1]),
                threading.Timer(0.05, gate.set),
            ]
            for timer in timers:
                timer.start()
            assert two.shutdown(timeout=30) is True
            for timer in timers:
                timer.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called == [1]
    assert ends(two)


def test_ctrl_c_in_a_shutdown_that_waits(two, way):
    """Neighbour: the wait is given up, the pool is shut down all the same."""
    stop, _ = way

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with occupied(two):
            task = two.submit(int)
            timer = threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1])
            timer.start()

            def stop_and_wait():
                stop(two)
                time.sleep(10)  # where the call does not wait

            with pytest.raises(KeyboardInterrupt):
                stop_and_wait()
            timer.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ends(two)
    assert task.done()


# ---- with a limit


def reports(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "affinitypool" and record.levelno == logging.WARNING
    ]


LIMITED = {
    "shutdown": lambda pool, timeout: pool.shutdown(timeout=timeout),
    "shutdown, cancelling": lambda pool, timeout: pool.shutdown(
        cancel_futures=True, timeout=timeout
    ),
    "drain": lambda pool, timeout: pool.drain(timeout),
    "shutdown_now": lambda pool, timeout: pool.shutdown_now(timeout),
}


def a_task_that_never_returns(entered, gate):
    entered.set()
    while not gate.is_set():
        gate.wait(0.01)


@pytest.fixture
def gate():
    """Give an event that is set at the latest when the test ends, whichever way."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("call", LIMITED)
def test_a_task_that_never_returns_is_reported(caplog, gate, call):
    """A task that never returns: `shutdown(timeout=0.5)` reports it."""
    entered = threading.Event()
    pool = ThreadPoolExecutor(3, "worker")
    with occupied(pool):
        pass
    task = pool.submit(a_task_that_never_returns, entered, gate)
    entered.wait(10)
    begin = time.monotonic()
    seconds = 0.5 if call == "shutdown" else 0.1
    result = LIMITED[call](pool, seconds)
    assert 0.8 * seconds < time.monotonic() - begin < 15
    assert result == ([] if call == "shutdown_now" else False)
    (report,) = [text for text in reports(caplog) if "in a_task_that_never_returns" in text]
    assert any(thread.name in report for thread in pool._threads if thread.is_alive())
    name = call.removesuffix(", cancelling")
    assert f" still runs after {name}(timeout={seconds}):" in report
    assert "test_shutdown.py" in report
    assert not task.done()
    caplog.clear()
    gate.set()
    assert pool.shutdown(timeout=20) is True
    assert reports(caplog) == []
    assert task.result(0) is None


@pytest.mark.parametrize("call", LIMITED)
def test_workers_without_a_task_are_not_reported(caplog, gate, call):
    """Neighbour: nobody has to look after those."""
    pool = ThreadPoolExecutor(3)
    with occupied(pool):
        pass
    entered = threading.Event()
    pool.submit(a_task_that_never_returns, entered, gate)
    entered.wait(10)
    LIMITED[call](pool, 0.05)
    assert len(reports(caplog)) == 1


@pytest.mark.parametrize("call", LIMITED)
def test_workers_that_leave_are_not_reported(caplog, call):
    """Neighbour: nor those that are on their way out."""
    for _ in range(100):
        pool = ThreadPoolExecutor(3)
        with occupied(pool):
            pass
        assert eventually(lambda: pool.stats().idle == 3)  # noqa: B023
        LIMITED[call](pool, 0)
        LIMITED[call](pool, 0.0001)
    assert reports(caplog) == []


@pytest.mark.parametrize("call", ["shutdown", "drain", "shutdown_now", "wait_idle"])
def test_a_limit_that_is_no_number_is_named(one, call):
    with pytest.raises(
        TypeError, match=r"^timeout must be a real number of seconds or None, not str$"
    ):
        getattr(one, call)(timeout="1")
    assert one.submit(abs, -1).result(10) == 1


@pytest.mark.xfail(strict=True, reason="idle workers stay while another one is in a task")
def test_idle_workers_leave_although_another_one_stays(gate):
    """Neighbour: as soon as nothing is pending, as in the stdlib."""
    pool = ThreadPoolExecutor(3)
    with occupied(pool):
        pass
    entered = threading.Event()
    pool.submit(a_task_that_never_returns, entered, gate)
    entered.wait(10)
    pool.shutdown(wait=False)
    assert eventually(lambda: sum(thread.is_alive() for thread in pool._threads) == 1, 2)


@pytest.mark.parametrize(
    "where",
    [
        "in C",
        "nested",
        "waiting",
        "callback",
        "initializer",
    ],
)
def test_wherever_a_worker_is_the_report_tells(caplog, gate, where):
    """Neighbour: whatever keeps the worker."""
    entered = threading.Event()

    def innermost(*_):
        entered.set()
        gate.wait(20)

    def initializer():
        if where == "initializer":
            innermost()

    pool = ThreadPoolExecutor(1, initializer=initializer)
    hand_made: Task[None] = Task()

    def outer():
        if where == "in C":
            entered.set()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire(timeout=0.3)
        elif where == "nested":
            pool.submit(innermost).result(20)
        elif where == "waiting":
            entered.set()
            hand_made.result(20)

    task = pool.submit(outer)
    if where == "callback":
        task.add_done_callback(innermost)
    assert entered.wait(10)
    assert pool.shutdown(timeout=0.05) is False
    (report,) = reports(caplog)
    expected = {"callback": ["innermost"], "initializer": ["initializer", "innermost"]}
    for name in expected.get(where, ["outer"] + ["innermost"] * (where == "nested")):
        assert f"in {name}" in report
    gate.set()
    hand_made.set_result(None)
    assert pool.shutdown(timeout=20) is True


def test_each_worker_that_still_runs_is_reported(caplog):
    pool = ThreadPoolExecutor(4, "worker")
    with occupied(pool):
        assert pool.shutdown(timeout=0.05) is False
        named = [report.split()[2] for report in reports(caplog)]
        assert named == ["worker_0", "worker_1", "worker_2", "worker_3"]
    assert pool.shutdown(timeout=20) is True


@pytest.mark.parametrize("timeout", [0, -1, -1e9, 1e-9, 0.01])
@pytest.mark.parametrize("call", LIMITED)
def test_short_limits(caplog, call, timeout):
    """Neighbour: timeouts of 0, below 0, 1e-9."""
    pool = ThreadPoolExecutor(2)
    with occupied(pool):
        task = pool.submit(int)
        result = LIMITED[call](pool, timeout)
        assert result in (False, [task])
        assert len(reports(caplog)) == 2
        assert task.cancelled() == (call in ("shutdown_now", "shutdown, cancelling"))
    assert pool.shutdown(timeout=20) is True
    assert task.done()


@pytest.mark.parametrize("timeout", [None, 1e9, threading.TIMEOUT_MAX, float("inf"), 2**40])
@pytest.mark.parametrize("call", LIMITED)
def test_long_limits(call, timeout):
    """Neighbour: timeouts of 1e9 and `threading.TIMEOUT_MAX`, and longer."""
    pool = ThreadPoolExecutor(2)
    tasks = [pool.submit(time.sleep, 0.005) for _ in range(4)]
    assert LIMITED[call](pool, timeout) is True or call == "shutdown_now"
    assert all(task.done() for task in tasks)
    assert ends(pool)


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (float("nan"), ValueError)])
@pytest.mark.parametrize("call", LIMITED)
def test_a_limit_that_is_none_changes_nothing(one, call, timeout, error):
    with pytest.raises(error):
        LIMITED[call](one, timeout)
    with pytest.raises(error):
        one.wait_idle(timeout)
    assert one.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("call", LIMITED)
def test_pools_with_nothing_to_wait_for(caplog, call):
    unused, idle = ThreadPoolExecutor(2), ThreadPoolExecutor(2)
    idle.submit(int).result(10)

    def start():
        raise KeyError

    broken = ThreadPoolExecutor(1, initializer=start)
    assert isinstance(broken.submit(int).exception(10), BrokenThreadPool)
    for pool in unused, idle, broken:
        for _ in range(2):
            assert LIMITED[call](pool, 20) in (True, [])
    assert reports(caplog) == []


def test_without_waiting_it_tells_whether_all_has_ended(caplog):
    pool = ThreadPoolExecutor(1)
    with occupied(pool):
        assert pool.shutdown(wait=False) is False
        assert pool.shutdown(wait=False, timeout=0) is False
    assert pool.shutdown() is True
    assert pool.shutdown(wait=False) is True
    assert reports(caplog) == []


def test_a_log_handler_that_uses_the_pool(one, caplog):
    """Neighbour: the report runs code of the user's in the middle of a shutdown."""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            with pytest.raises(ShutdownError):
                one.submit(int)
            seen.append((one.shutdown(wait=False), one.stats().workers))

    handler = Handler()
    logging.getLogger("affinitypool").addHandler(handler)
    try:
        with occupied(one):
            assert one.shutdown(timeout=0.01) is False
    finally:
        logging.getLogger("affinitypool").removeHandler(handler)
    assert seen == [(False, 1)]


def test_several_threads_wait_with_limits_of_their_own(two):
    found: dict[float, bool] = {}

    def stop(timeout):
        found[timeout] = two.shutdown(timeout=timeout)

    threads = [threading.Thread(target=stop, args=[timeout]) for timeout in (0.01, 0.1, 30, 40)]
    with occupied(two):
        for thread in threads:
            thread.start()
        for thread in threads[:2]:
            thread.join(20)
        assert found == {0.01: False, 0.1: False}
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert found == {0.01: False, 0.1: False, 30: True, 40: True}


def test_a_limit_counts_for_a_thread_that_starts_slowly(monkeypatch, gate):
    """Neighbour: a submit in another thread is about to start the worker."""
    from affinitypool._threads import WorkerThread

    entered = threading.Event()
    start = WorkerThread.start

    def slow(self):
        entered.set()
        gate.wait(20)
        start(self)

    monkeypatch.setattr(WorkerThread, "start", slow)
    pool = ThreadPoolExecutor(1)
    tasks = []
    thread = threading.Thread(target=lambda: tasks.append(pool.submit(abs, -1)))
    thread.start()
    assert entered.wait(10)
    begin = time.monotonic()
    assert pool.shutdown(timeout=0.05) is False
    assert time.monotonic() - begin < 15
    gate.set()
    thread.join(20)
    assert pool.shutdown(timeout=20) is True
    assert tasks[0].result(0) == 1


# ---- threads that users have taken out of `_threads`, which are not waited for


@pytest.mark.parametrize("call", LIMITED)
@pytest.mark.parametrize("limit", [None, 20])
def test_threads_that_were_taken_out_are_no_reason_to_wait(caplog, call, limit):
    """Idle ones that were, and have left since."""
    pool = ThreadPoolExecutor(2)
    with occupied(pool):
        pass
    threads = set(pool._threads)
    pool._threads.clear()
    pool.shutdown(wait=False)
    for thread in threads:
        thread.join(10)
    (result,) = at_once(lambda: LIMITED[call](pool, limit), timeout=10)
    assert result == ([] if call == "shutdown_now" else True)
    assert reports(caplog) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_shutdown_says_that_not_all_has_ended_where_it_did_not_wait(gate, workers):
    """What it has returned True for has ended, all the same."""
    pool = ThreadPoolExecutor(workers)
    with occupied(pool):
        pass
    tasks = [pool.submit(gate.wait, 30) for _ in range(2 * workers)]
    threads = set(pool._threads)
    pool._threads.clear()
    assert at_once(pool.shutdown, timeout=10) == [False]
    assert not any(task.done() for task in tasks)
    gate.set()
    for thread in threads:
        thread.join(10)
    assert pool.shutdown() is True
    assert all(task.result(0) for task in tasks)


def test_threads_that_start_after_others_were_taken_out_are_waited_for(gate):
    pool = ThreadPoolExecutor(2)
    assert pool.submit(int).result(10) == 0
    (idle,) = pool._threads
    pool._threads.clear()
    busy = [pool.submit(gate.wait, 30) for _ in range(2)]
    assert eventually(lambda: all(task.running() for task in busy))
    (thread,) = pool._threads
    assert thread is not idle
    assert pool.shutdown(timeout=0.05) is False
    gate.set()
    pool.shutdown()
    assert not thread.is_alive()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_thread_that_was_taken_out_and_replaced_counts_for_its_replacement(one, gate, when):
    """Neighbour: its replacement is in the set, and is waited for."""
    assert one.submit(int).result(10) == 0
    (dead,) = one._threads
    if when == "before":
        one._threads.clear()
    one._core.fault_end_workers(1)
    assert eventually(lambda: (one.submit(int).result(10), dead.replacement)[1])
    dead.join(10)
    one._threads.discard(dead)
    task = one.submit(gate.wait, 30)
    assert eventually(task.running)
    assert one.shutdown(timeout=0.05) is False
    gate.set()
    assert one.shutdown(timeout=10) is True
    assert task.done()


# ---- drain


def test_drain_runs_all_that_was_accepted(pool):
    ran = []

    def parent(n):
        ran.append(n)
        with contextlib.suppress(ShutdownError):
            pool.submit(ran.append, "child").result(20)

    tasks = [pool.submit(parent, n) for n in range(200)]
    assert pool.drain(30) is True
    assert all(task.done() and task.exception(0) is None for task in tasks)
    assert sorted(n for n in ran if n != "child") == list(range(200))
    assert ends(pool)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("call", LIMITED)
def test_when_it_has_returned_true_every_task_is_done(workers, call):
    """Submits race it: what was accepted has ended, what was refused has left nothing behind."""
    for _ in range(10):
        pool = ThreadPoolExecutor(workers)
        accepted: list[list[Task]] = [[] for _ in range(3)]
        go = threading.Barrier(4)

        def produce(mine, pool=pool, go=go):
            go.wait(10)
            with contextlib.suppress(ShutdownError):
                while True:
                    mine.append(pool.submit(int))

        threads = [threading.Thread(target=produce, args=[mine]) for mine in accepted]
        for thread in threads:
            thread.start()
        go.wait(10)
        returned = LIMITED[call](pool, 30)
        seen = [task for mine in accepted for task in list(mine)]
        assert all(task.done() for task in seen)
        for thread in threads:
            thread.join(20)
        tasks = [task for mine in accepted for task in mine]
        assert all(task.done() for task in tasks)
        if call == "shutdown_now":
            assert set(returned) == {task for task in tasks if task.cancelled()}
        else:
            assert returned is True
            assert call != "drain" or not any(task.cancelled() for task in tasks)
        assert pool.stats().pending == 0


@pytest.mark.parametrize("call", LIMITED)
def test_submits_that_wait_for_room_are_let_go(call):
    """Neighbour: with `max_pending` a submit may be waiting when the pool is shut down."""
    pool = ThreadPoolExecutor(1, max_pending=1)
    outcomes = []
    with occupied(pool):
        accepted = pool.submit(abs, -1)

        def submit():
            try:
                outcomes.append(pool.submit(int))
            except ShutdownError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: pool._core.blocked == 3)
        with pytest.raises(PendingLimitError):
            pool.try_submit(int)
        LIMITED[call](pool, 0.01)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert pool.shutdown(timeout=20) is True
    assert accepted.done()
    assert len(outcomes) == 3
    # one may have come in when the cancelled one made room
    assert all(isinstance(each, ShutdownError) or each.done() for each in outcomes)


# ---- shutdown_now


def test_shutdown_now_returns_what_it_cancelled(pool):
    ran, called = [], []
    with occupied(pool) as gate:
        tasks = [pool.submit(ran.append, n) for n in range(300)]
        tasks[7].add_done_callback(called.append)
        assert tasks[3].cancel()
        watched = as_completed(tasks, 20)
        timer = threading.Timer(0.02, gate.set)
        timer.start()
        cancelled = pool.shutdown_now()
    assert set(cancelled) == {*tasks} - {tasks[3]}
    assert len(cancelled) == 299
    assert all(task.cancelled() for task in tasks)
    assert ran == []
    assert called == [tasks[7]]
    assert set(watched) == set(tasks)
    assert pool.shutdown_now() == []
    assert ends(pool)


def test_shutdown_now_takes_from_the_rings_of_workers():
    pool = ThreadPoolExecutor(2)
    ran: list[int] = []
    gate, ready = threading.Event(), threading.Barrier(3)

    def work():
        ready.wait(10)
        tasks = [pool.submit(ran.append, n) for n in range(300)]
        ready.wait(10)
        gate.wait(10)
        return tasks

    workers = [pool.submit(work) for _ in range(2)]
    ready.wait(10)
    ready.wait(10)
    timer = threading.Timer(0.02, gate.set)
    timer.start()
    cancelled = pool.shutdown_now()
    assert set(cancelled) == {task for worker in workers for task in worker.result(0)}
    assert len(cancelled) == 600
    assert ran == []


def test_shutdown_now_lets_what_runs_end(two):
    with occupied(two) as gate:
        timer = threading.Timer(0.02, gate.set)
        timer.start()
        assert two.shutdown_now() == []
    # `occupied` has looked at the outcomes
    assert ends(two)


def test_several_threads_call_shutdown_now_at_once():
    """Each cancelled task is returned once."""
    for _ in range(10):
        pool = ThreadPoolExecutor(2)
        returned: list[list[Task]] = []
        with occupied(pool) as gate:
            tasks = [pool.submit(int) for _ in range(500)]
            threads = [
                threading.Thread(target=lambda: returned.append(pool.shutdown_now()))  # noqa: B023
                for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            assert eventually(lambda: all(task.done() for task in tasks))  # noqa: B023
            gate.set()
            for thread in threads:
                thread.join(20)
        every = [task for part in returned for task in part]
        assert len(every) == 500
        assert set(every) == set(tasks)


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_one_shutdown_now_returns_while_another_one_cancels(timeout):
    """Each cancelled task is in the list of one of them."""
    pool = ThreadPoolExecutor(1)
    entered, going = threading.Event(), threading.Event()
    first = []
    with occupied(pool):
        tasks = [pool.submit(int) for _ in range(20)]
        tasks[0].add_done_callback(lambda _: entered.set() or going.wait(20))
        thread = threading.Thread(target=lambda: first.append(pool.shutdown_now(timeout)))
        thread.start()
        assert entered.wait(10)  # it has cancelled the first task, and is about to note it
        second = pool.shutdown_now(timeout)
        going.set()
        thread.join(20)
    every = [*first[0], *second]
    assert len(every) == 20
    assert set(every) == set(tasks)
    assert tasks[0] in first[0]
    assert pool.shutdown_now() == []


def test_the_next_shutdown_now_returns_what_workers_cancel_later():
    """With a timeout a call may return before a worker has looked at what it has in its hands."""
    pool = ThreadPoolExecutor(1)
    entered, going, gate = threading.Event(), threading.Event(), threading.Event()
    first = pool.submit(gate.wait, 20)
    first.add_done_callback(lambda _: entered.set() or going.wait(20))
    assert eventually(first.running)
    second, third = pool.submit(int), pool.submit(int)
    gate.set()
    assert entered.wait(10)  # the only worker has several in its ring, or one in its hands
    cancelled = pool.shutdown_now(0)
    assert second not in cancelled
    going.set()
    assert eventually(second.done)
    cancelled += pool.shutdown_now()
    assert set(cancelled) == {second, third}
    assert len(cancelled) == 2
    assert pool.shutdown_now() == []


def test_the_next_shutdown_now_returns_what_an_interrupted_one_cancelled(one, monkeypatch):
    with occupied(one):
        tasks = [one.submit(int) for _ in range(20)]

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(affinitypool._executor, "join_threads", interrupted)
            with pytest.raises(KeyboardInterrupt):
                one.shutdown_now()
        assert all(task.cancelled() for task in tasks)
    assert set(one.shutdown_now()) == set(tasks)
    assert one.shutdown_now() == []


def test_shutdown_waits_for_a_thread_that_starts_in_place_of_a_lost_one(monkeypatch):
    """A thread that has given its place up without being replaced holds none."""

    def struck(*_):
        raise KeyError("sent from outside")

    make = affinitypool._threads.WorkerThread.__init__
    making, gate = threading.Event(), threading.Event()

    def slow(self, *args):
        making.set()
        gate.wait(20)
        make(self, *args)

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    monkeypatch.setattr(affinitypool._threads.Crew, "replace", struck)
    pool, box = ThreadPoolExecutor(1), []
    assert pool.submit(int).result(10) == 0
    (lost,) = pool._threads
    pool._core.fault_end_workers(1)
    with contextlib.suppress(CancelledError):
        pool.submit(int).result(10)  # it looks
    lost.join(10)
    monkeypatch.setattr(affinitypool._threads.WorkerThread, "__init__", slow)
    submitter = threading.Thread(target=lambda: box.append(pool.submit(abs, -1)))
    submitter.start()
    try:
        assert making.wait(10)  # the task was accepted
        assert pool.shutdown(timeout=0.05) is False
        assert pool._core.pending == 1
    finally:
        gate.set()
        submitter.join(20)
    assert pool.shutdown(timeout=10) is True
    assert box[0].result(0) == 1


def test_ctrl_c_anywhere_in_shutdown_now_loses_no_task_that_it_cancelled():
    """Each is returned once: by the call that was interrupted, or by the next one."""

    def attempt(k):
        pool, gate, returned = ThreadPoolExecutor(1), threading.Event(), []
        running = pool.submit(gate.wait, 20)
        assert eventually(running.running)
        tasks = [pool.submit(int) for _ in range(3)]
        running.cancel()
        gate.set()
        try:
            with pending_at(k, signal.SIGINT, FOLDERS[:1]) as seen:
                returned += pool.shutdown_now()
        except KeyboardInterrupt:
            pass
        pool.shutdown()
        more = pool.shutdown_now()
        assert not set(returned) & set(more)
        assert (
            len(returned + more)
            == len(set(returned + more))
            == sum(task.cancelled() for task in tasks)
        ), k
        return seen[0] >= k

    at_each_place(attempt)


def test_a_dropped_result_of_shutdown_now_frees_the_tasks(one):
    """Neighbour: nothing keeps them."""
    died = []

    class Dies:
        def __del__(self):
            died.append(1)

    with occupied(one) as gate:
        for _ in range(20):
            one.submit(id, Dies())
        timer = threading.Timer(0.02, gate.set)
        timer.start()
        assert len(one.shutdown_now()) == 20
    gc.collect()
    assert eventually(lambda: len(died) == 20)


# ---- wait_idle


def test_wait_idle_waits_for_all_and_the_pool_stays_open(pool):
    assert pool.wait_idle(0) is True  # nothing was ever submitted
    ran: list[int] = []

    def parent(n):
        pool.submit(ran.append, n)

    for round_ in range(20):
        for n in range(50):
            pool.submit(parent, n)
        pool.submit_many(ran.append, range(50))
        assert pool.wait_idle(20) is True
        assert len(ran) == 100 * (round_ + 1)
    assert pool.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("timeout", [0, -1, 1e-9, 0.05])
def test_wait_idle_gives_up_after_its_timeout(two, timeout):
    with occupied(two):
        assert two.wait_idle(timeout) is False
    assert two.wait_idle(20) is True


@pytest.mark.parametrize("timeout", [None, 1e9, threading.TIMEOUT_MAX, float("inf")])
def test_wait_idle_with_long_timeouts(two, timeout):
    two.submit(time.sleep, 0.05)
    assert two.wait_idle(timeout) is True


@pytest.mark.parametrize("how", ["cancelled", "failed", "set from outside", "taken", "refused"])
def test_wait_idle_counts_tasks_that_end_otherwise(one, how):
    """Neighbour: a task that never runs must not be waited for for ever."""

    def fail():
        raise KeyError

    with occupied(one):
        task = one.submit(fail if how == "failed" else int)
        if how == "cancelled":
            assert task.cancel()
        elif how == "set from outside":
            task.set_result(3)
        elif how == "taken":
            one._work_queue.get_nowait().run()
        elif how == "refused":
            with pytest.raises(TypeError):
                one.submit()
    assert one.wait_idle(20) is True
    assert task.done()


def test_wait_idle_is_over_when_callbacks_have_run(one):
    called = []

    def callback(task):
        time.sleep(0.02)
        called.append(task)

    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(callback)
    assert one.wait_idle(20) is True
    assert called == [task]


def test_wait_idle_waits_for_what_an_initializer_runs():
    """Neighbour: a task that runs in a thread that is not a worker yet."""
    threads = itertools.count()
    entered, gate, first = threading.Event(), threading.Event(), threading.Event()
    inner: list[Task] = []

    def initialize():
        if next(threads) == 1:
            inner.append(pool.submit(lambda: entered.set() or gate.wait(20)))
            assert inner[0].result(30) is True

    with ThreadPoolExecutor(2, initializer=initialize) as pool:
        held = pool.submit(first.wait, 20)
        pool.submit(int)  # has the second thread started
        assert entered.wait(10)
        first.set()
        assert held.result(10)
        # the first worker drops what it finds in the queue, and rests
        assert eventually(lambda: pool.stats().idle == 1 and pool.stats().pending == 0)
        assert pool.wait_idle(0.1) is False
        assert inner[0].running()
        gate.set()
        assert pool.wait_idle(20) is True
        assert inner[0].done()


def test_wait_idle_waits_for_what_a_log_handler_of_an_ending_worker_runs():
    """Neighbour: a task that runs in a thread that is no longer a worker."""
    entered, gate = threading.Event(), threading.Event()
    inner: list[Task] = []

    class Submits(logging.Handler):
        def emit(self, record):
            if not inner and "ended unexpectedly" in record.getMessage():
                inner.append(pool.submit(lambda: entered.set() or gate.wait(20)))
                inner[0].result(30)

    handler = Submits()
    logger = logging.getLogger("concurrent.futures")
    logger.addHandler(handler)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = threading.Event(), threading.Event()
            held = [pool.submit(event.wait, 20) for event in (first, second)]
            assert eventually(lambda: all(task.running() for task in held))
            pool._core.fault_end_workers(1)
            first.set()
            assert entered.wait(10)  # in the thread that ends, as the other worker is busy
            second.set()
            pool.submit(int).result(10)  # what is left of the inner task is before it
            assert eventually(lambda: pool.stats().idle == 1 and pool.stats().pending == 0)
            assert pool.wait_idle(0.1) is False
            gate.set()
            assert pool.wait_idle(20) is True
            assert inner[0].result(0) is True
    finally:
        logger.removeHandler(handler)


def test_wait_idle_in_a_task_is_an_error(two):
    """It would wait for itself; in another pool's task it works."""
    assert isinstance(two.submit(two.wait_idle).exception(10), RuntimeError)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(two.wait_idle, 20).result(30) is True


def test_several_threads_wait_until_idle(two):
    found = []
    threads = [threading.Thread(target=lambda: found.append(two.wait_idle(30))) for _ in range(4)]
    with occupied(two):
        for thread in threads:
            thread.start()
        assert found == []
    for thread in threads:
        thread.join(20)
    assert found == [True] * 4


def test_wait_idle_while_others_shut_down(pool, way):
    stop, _ = way
    found = []
    thread = threading.Thread(target=lambda: found.append(pool.wait_idle(30)))
    with occupied(pool) as gate:
        tasks = [pool.submit(int) for _ in range(50)]
        thread.start()
        timer = threading.Timer(0.02, gate.set)
        timer.start()
        stop(pool)
    thread.join(20)
    assert found == [True]
    assert pool.wait_idle(20) is True
    assert eventually(lambda: all(task.done() for task in tasks))


def test_wait_idle_lets_signals_through(one):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with occupied(one):
            timer = threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                one.wait_idle()
            timer.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert one.wait_idle(20) is True


def test_wait_idle_after_workers_were_replaced(two, caplog):
    ran = []
    for n in range(200):
        two.submit(ran.append, n)
        if n % 50 == 25:
            two._core.fault_end_workers(1)
    assert two.wait_idle(20) is True
    assert sorted(ran) == list(range(200))


def test_wait_idle_races_submits(two):
    """Everything that was submitted before the call has ended when it returns."""
    stop = threading.Event()

    def produce():
        while not stop.is_set():
            two.submit(int)
            time.sleep(0.0005)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(50):
            tasks = [two.submit(int) for _ in range(20)]
            assert two.wait_idle(20) is True
            assert all(task.done() for task in tasks)
    finally:
        stop.set()
        thread.join(20)


# ---- leaving a with block by an exception


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_leaving_a_with_block_by_an_exception(error, cancel):
    """`cancel_on_error`: leaving a `with` block by an exception cancels what has not started."""
    ran: list[int] = []
    tasks: list[Task] = []
    entered, gate = threading.Event(), threading.Event()

    def use():
        with ThreadPoolExecutor(1, cancel_on_error=cancel) as pool:
            tasks.append(pool.submit(lambda: entered.set() or gate.wait(20)))
            entered.wait(10)
            tasks.extend(pool.submit(ran.append, n) for n in range(20))
            threading.Timer(0.02, gate.set).start()
            raise error

    with pytest.raises(error):
        use()
    assert tasks.pop(0).result(0) is True
    assert [task.cancelled() for task in tasks] == [cancel] * 20
    assert ran == ([] if cancel else list(range(20)))


def test_leaving_a_with_block_without_one_runs_everything():
    ran: list[int] = []
    with ThreadPoolExecutor(2, cancel_on_error=True) as pool:
        tasks = [pool.submit(ran.append, n) for n in range(50)]
    assert not any(task.cancelled() for task in tasks)
    assert sorted(ran) == list(range(50))


# ---- dropped pools


def test_pools_used_once_and_dropped_leave_no_threads():
    """50 pools made, used once and dropped leave no threads; 50 pending tasks of a dropped pool
    run."""
    before = threading.active_count()
    ran: list[int] = []
    for n in range(50):
        ThreadPoolExecutor(2).submit(ran.append, n)
    assert eventually(lambda: len(ran) == 50)
    assert eventually(lambda: threading.active_count() == before)
    pool = ThreadPoolExecutor(1)
    entered, gate = threading.Event(), threading.Event()
    pool.submit(lambda: entered.set() or gate.wait(20))
    entered.wait(10)
    tasks = [pool.submit(ran.append, n) for n in range(50)]
    del pool
    gc.collect()
    gate.set()
    assert wait(tasks, 20).not_done == set()
    assert ran[50:] == list(range(50))
    assert eventually(lambda: threading.active_count() == before)


def test_a_pool_that_is_dropped_while_it_is_shut_down():
    out = check_python(
        """
        import atexit
        from affinitypool import ThreadPoolExecutor
        ran = []
        atexit.register(lambda: print(len(ran)))
        for n in range(100):
            pool = ThreadPoolExecutor(2)
            for _ in range(5):
                pool.submit(ran.append, n)
            pool.shutdown(wait=False)
            del pool
        """
    )
    assert out == "500\n"


def test_a_thread_that_begins_after_the_end_counts_what_it_runs():
    """A pool that is closed and has no worker has ended; the task that was promised to its thread
    is run all the same, and ends for `wait_idle` too.
    """
    gate = threading.Event()
    pool = ThreadPoolExecutor(1, initializer=gate.wait, initargs=(20,))
    task = pool.submit(abs, -1)
    for _ in range(2):  # the first takes the task out of the queue, the second finds that empty
        assert pool.shutdown(wait=False, cancel_futures=True) is False
    assert not pool.wait_idle(0)
    gate.set()
    assert task.result(20) == 1
    assert pool.shutdown()
    assert pool.wait_idle(1)  # the thread has left
