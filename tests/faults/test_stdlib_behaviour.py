"""What the stdlib's pool does and users rely on: each test holds for its class and for ours."""

from __future__ import annotations

import concurrent.futures.thread
import functools
import gc
import logging
import textwrap
import threading
import time
import weakref

import pytest
from helpers import (
    all_dead,
    at_once,
    check_cases,
    check_python,
    eventually,
    fail,
    occupied,
    run_python,
)

from affinitypool import BrokenThreadPool, ThreadPoolExecutor, wait

pytestmark = pytest.mark.timeout(60)

CLASSES = {"stdlib": concurrent.futures.thread.ThreadPoolExecutor, "ours": ThreadPoolExecutor}


@pytest.fixture(params=CLASSES)
def pool_class(request):
    """Give the stdlib's class, whose behaviour the test describes, and ours."""
    return CLASSES[request.param]


@pytest.fixture
def quiet(monkeypatch):
    """Keep what is logged to the stdlib's logger to itself."""
    records = []
    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", records.append)
    return records


# ---- callbacks in order


def test_callbacks_run_in_the_order_they_were_added(pool_class):
    """Callbacks in order: once each, in the thread of the task, before the next task."""
    with pool_class(1) as pool:
        calls = []
        with occupied(pool):
            first, second = pool.submit(calls.append, "first"), pool.submit(calls.append, "second")
            for n in range(50):
                second.add_done_callback(lambda f, n=n: calls.append((2, n, f is second)))
                first.add_done_callback(lambda f, n=n: calls.append((1, n, f is first)))
            worker = pool.submit(threading.get_ident)
            first.add_done_callback(lambda _: calls.append(threading.get_ident()))
        assert calls == [
            "first",
            *((1, n, True) for n in range(50)),
            worker.result(10),
            "second",
            *((2, n, True) for n in range(50)),
        ]


def test_a_callback_that_raises_keeps_none_from_running(pool_class, quiet):
    with pool_class(1) as pool:
        calls = []
        with occupied(pool):
            future = pool.submit(int)
            for n in range(6):
                future.add_done_callback(
                    lambda f, n=n: fail(ValueError(n)) if n % 2 else calls.append(n)
                )
        pool.submit(int).result(10)
    assert calls == [0, 2, 4]
    assert [record.exc_info[1].args for record in quiet] == [(1,), (3,), (5,)]


def test_a_late_callback_runs_at_once(pool_class):
    with pool_class(1) as pool:
        future = pool.submit(int)
        future.result(10)
        calls = []
        for n in range(5):
            future.add_done_callback(lambda _, n=n: calls.append((n, threading.get_ident())))
            assert calls[-1] == (n, threading.get_ident())


def test_callbacks_of_a_cancelled_future_run_in_order_in_who_cancels(pool_class):
    with pool_class(1) as pool, occupied(pool):
        calls = []
        future = pool.submit(int)
        for n in range(20):
            future.add_done_callback(lambda f, n=n: calls.append((n, f.cancelled())))
        assert future.cancel()
        assert calls == [(n, True) for n in range(20)]


def test_shutdown_has_seen_every_callback(pool_class):
    calls = []
    for _ in range(20):
        with pool_class(3) as pool:
            for n in range(20):
                pool.submit(int).add_done_callback(lambda _, n=n: calls.append(n))
    assert len(calls) == 400


# ---- first in, first out on one worker


def test_one_worker_runs_in_the_order_of_submission(pool_class):
    """FIFO on one worker: far more than any block of a queue holds."""
    ran = []
    with pool_class(1) as pool:
        for n in range(3000):
            pool.submit(ran.append, n)
    assert ran == list(range(3000))


def test_submit_and_map_share_one_order(pool_class):
    ran = []
    with pool_class(1) as pool:
        with occupied(pool):
            for n in range(0, 300, 10):
                pool.submit(ran.append, n)
                pool.map(ran.append, range(n + 1, n + 6))
                pool.map(lambda one, two: ran.append(one + two), range(n, n + 4), [6] * 9)
        pool.submit(int).result(10)
    assert ran == list(range(300))


def test_all_of_our_ways_to_submit_share_one_order(one):
    ran = []
    with occupied(one):
        for n in range(0, 300, 10):
            one.submit(ran.append, n)
            one.submit_many(ran.append, range(n + 1, n + 4))
            one.try_submit(ran.append, n + 4)
            one.map(ran.append, [n + 5, n + 6], buffersize=2)
            one.map(ran.append, range(n + 7, n + 9))
            one.submit(ran.append, n + 9)
    one.submit(int).result(10)
    assert ran == list(range(300))


def test_what_tasks_submit_comes_after_what_was_there(pool_class):
    """Inside and outside submits form one queue."""
    ran = []
    with pool_class(1) as pool:

        def work(n):
            ran.append(n)
            if n < 60:
                pool.submit(work, n + 30)

        with occupied(pool):
            for n in range(30):
                pool.submit(work, n)
        assert eventually(lambda: len(ran) == 90, 10)
    assert ran == list(range(90))


def test_what_callbacks_submit_comes_after_what_was_there(pool_class):
    ran = []
    with pool_class(1) as pool:
        with occupied(pool):
            for n in range(30):
                future = pool.submit(ran.append, n)
                future.add_done_callback(lambda _, n=n: pool.submit(ran.append, 30 + n))
        assert eventually(lambda: len(ran) == 60, 10)
    assert ran == list(range(60))


def test_threads_that_submit_in_turn_keep_their_order(pool_class):
    """Whoever submits: the order is that of the submits."""
    ran, lock, counter = [], threading.Lock(), iter(range(2000))
    with pool_class(1) as pool:

        def produce():
            while True:
                with lock:
                    n = next(counter, None)
                    if n is None:
                        return
                    pool.submit(ran.append, n)

        at_once(*[produce] * 4)
    assert ran == list(range(2000))


def test_each_thread_keeps_its_own_order(pool_class):
    ran = []
    with pool_class(1) as pool:

        def produce(k):
            for n in range(500):
                pool.submit(ran.append, (k, n))

        at_once(*(functools.partial(produce, k) for k in range(4)))
    for k in range(4):
        assert [n for key, n in ran if key == k] == list(range(500))


def test_cancelled_futures_leave_the_order_of_the_others(pool_class):
    ran = []
    with pool_class(1) as pool, occupied(pool):
        futures = [pool.submit(ran.append, n) for n in range(300)]
        for future in futures[::3]:
            assert future.cancel()
    assert ran == [n for n in range(300) if n % 3]


def test_waiting_from_outside_changes_no_order(pool_class):
    ran = []
    with pool_class(1) as pool:
        with occupied(pool):
            futures = [pool.submit(ran.append, n) for n in range(100)]
            with pytest.raises(TimeoutError):
                futures[50].result(0.01)
            wait(futures[60:], 0.01)
        futures[-1].result(10)
    assert ran == list(range(100))


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_several_workers_begin_in_the_order_of_submission(pool_class, workers):
    """A future begins no later than those submitted after it: programs wait for earlier ones."""
    count = 40
    begun = [threading.Event() for _ in range(count)]
    gates = [threading.Event() for _ in range(count)]

    def work(n):
        begun[n].set()
        gates[n].wait(20)

    with pool_class(workers) as pool:
        for n in range(count):
            pool.submit(work, n)
        for n in range(count):
            last = min(n + workers, count)
            assert all(event.wait(10) for event in begun[:last])
            assert not any(event.is_set() for event in begun[last:])
            gates[n].set()


def test_one_worker_that_is_replaced_keeps_the_order():
    """Ours only: a worker that ends although it should not hands on what it holds, in order."""
    ran = []
    with ThreadPoolExecutor(1) as pool:
        with occupied(pool):
            for n in range(200):
                pool.submit(ran.append, n)
            pool._core.fault_end_workers(1)
        assert pool.wait_idle(10)
        pool._core.fault_end_workers(0)
    assert ran == list(range(200))


# ---- everything pending runs at exit

IMPORTS = {
    "stdlib": "from concurrent.futures import ThreadPoolExecutor",
    "ours": "from affinitypool import ThreadPoolExecutor",
}
HEAD = """
import atexit, gc, os, sys, threading, time
def work(n):
    time.sleep(0.001)
    os.write(1, b"%d " % n)
"""

# script, and what it writes; each runs until everything that was accepted has run
SCRIPTS = {
    "falls-off": (
        """
        pool = ThreadPoolExecutor(1)
        for n in range(30): pool.submit(work, n)
        """,
        range(30),
    ),
    "in-a-function": (
        """
        def main():
            pool = ThreadPoolExecutor(1)
            for n in range(30): pool.submit(work, n)
        main()
        """,
        range(30),
    ),
    "dropped": (
        """
        pool = ThreadPoolExecutor(1)
        for n in range(30): pool.submit(work, n)
        del pool
        gc.collect()
        """,
        range(30),
    ),
    "shut-down": (
        """
        pool = ThreadPoolExecutor(1)
        for n in range(30): pool.submit(work, n)
        pool.shutdown(wait=False)
        """,
        range(30),
    ),
    "map": (
        """
        ThreadPoolExecutor(1).map(work, range(30))
        """,
        range(30),
    ),
    "callbacks": (
        """
        pool = ThreadPoolExecutor(1)
        for n in range(0, 30, 2):
            pool.submit(work, n).add_done_callback(lambda _, n=n: work(n + 1))
        """,
        range(30),
    ),
    "failures": (
        """
        pool = ThreadPoolExecutor(1)
        def bad(n):
            work(n)
            raise SystemExit(3)
        for n in range(30): pool.submit(bad, n)
        """,
        range(30),
    ),
    "two-pools": (
        """
        pools = [ThreadPoolExecutor(1) for _ in range(2)]
        gate = threading.Event()
        for n in range(15): pools[0].submit(work, n)
        pools[0].submit(gate.set)
        pools[1].submit(gate.wait)
        for n in range(15, 30): pools[1].submit(work, n)
        """,
        range(30),
    ),
    "a-thread-goes-on": (
        """
        pool = ThreadPoolExecutor(1)
        def produce():
            for n in range(30): pool.submit(work, n)
        thread = threading.Thread(target=produce)
        thread.start()
        thread.join()
        """,
        range(30),
    ),
    "atexit-comes-after": (
        """
        atexit.register(os.write, 1, b"atexit ")
        pool = ThreadPoolExecutor(1)
        for n in range(30): pool.submit(work, n)
        """,
        [*range(30), "atexit"],
    ),
    "results-in-atexit": (
        """
        pool = ThreadPoolExecutor(1)
        futures = [pool.submit(pow, 2, n) for n in range(5)]
        atexit.register(lambda: os.write(1, b"%d" % sum(f.result() for f in futures)))
        """,
        [31],
    ),
    "many-workers": (
        """
        pool = ThreadPoolExecutor(8)
        lock = threading.Lock()
        left = list(range(200))
        def take():
            with lock:
                work(left.pop(0))
        for n in range(200): pool.submit(take)
        """,
        range(200),
    ),
}


@pytest.mark.parametrize("which", IMPORTS)
def test_everything_pending_runs_at_exit(which):
    """Everything pending runs at exit, in order, before anything that `atexit` was told."""

    def check(name):
        code, expected = SCRIPTS[name]
        out = check_python(f"{IMPORTS[which]}\n{HEAD}\n" + textwrap.dedent(code))
        assert out.split() == [str(word) for word in expected]

    check_cases(SCRIPTS, check)


@pytest.mark.parametrize("which", IMPORTS)
def test_everything_pending_runs_however_main_ends(which):
    def check(last, code):
        done = run_python(
            f"{IMPORTS[which]}\n{HEAD}\n"
            "pool = ThreadPoolExecutor(1)\nfor n in range(30): pool.submit(work, n)\n" + last
        )
        assert done.returncode == code
        assert done.stdout.split() == [str(n) for n in range(30)]

    check_cases([("sys.exit(5)", 5), ("raise KeyError('end')", 1), ("1 / 0", 1)], check)


REFUSALS = """
pool, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
other.submit(int).result()
other.shutdown()
def attempt(word):
    for one in (pool, other):
        try:
            one.submit(int)
        except RuntimeError as error:
            print(word, error, flush=True)
        else:
            print(word, "accepted", flush=True)
atexit.register(attempt, "atexit")
gate = threading.Event()
def at_the_end():
    gate.wait(10)
    try:
        while True:
            pool.submit(int)
            time.sleep(0.01)
    except RuntimeError:
        attempt("task")
pool.submit(at_the_end)
attempt("main")
gate.set()
"""


def test_refusals_at_exit_are_the_same():
    """The same words in the same places: after shutdown, and once the interpreter ends.  (By the
    time of `atexit` the stdlib's workers have marked their own pool as shut down.)"""
    lines = {
        which: check_python(f"{imports}\n{HEAD}\n{REFUSALS}").splitlines()
        for which, imports in IMPORTS.items()
    }
    assert lines["ours"][:4] == lines["stdlib"][:4]
    assert lines["ours"][:4] == [
        "main accepted",
        "main cannot schedule new futures after shutdown",
        "task cannot schedule new futures after interpreter shutdown",
        "task cannot schedule new futures after shutdown",
    ]
    assert "accepted" not in str(lines["stdlib"][4:])
    assert lines["ours"][4:] == [line.replace("task", "atexit") for line in lines["ours"][2:4]]


# ---- a dropped pool finishes its tasks and its threads leave


def new_threads(before):
    return set(threading.enumerate()) - before


@pytest.mark.parametrize("how", ["del", "cycle", "thread", "task", "callback", "error"])
def test_a_dropped_pool_finishes_its_tasks_and_its_threads_leave(pool_class, how):
    """However the last reference goes."""
    before = set(threading.enumerate())
    ran, gate = [], threading.Event()
    box = [pool_class(2)]
    for _ in range(2):
        box[0].submit(gate.wait, 20)
    if how == "task":
        box[0].submit(box.clear)
    elif how == "callback":
        box[0].submit(int).add_done_callback(lambda _: box.clear())
    futures = [box[0].submit(ran.append, n) for n in range(50)]
    death = weakref.ref(box[0])
    assert new_threads(before)
    if how == "del":
        box.clear()
    elif how == "cycle":
        box[0].me = box
        box = None
        gc.collect()
    elif how == "thread":
        at_once(box.clear)
    elif how == "error":

        def use(pool):
            raise KeyError

        with pytest.raises(KeyError):
            use(box.pop())
    gate.set()
    assert wait(futures, 20).not_done == set()
    assert sorted(ran) == list(range(50))
    futures.clear()
    assert eventually(lambda: gc.collect() is not None and not new_threads(before), 10)
    assert death() is None


def test_an_idle_pool_that_is_dropped_lets_its_threads_go(pool_class):
    before = set(threading.enumerate())
    for n in range(20):
        pool = pool_class(3)
        assert list(pool.map(abs, range(n))) == list(range(n))
        del pool
    assert eventually(lambda: not new_threads(before), 10)


def test_a_dropped_pool_runs_its_callbacks_and_keeps_its_failures(pool_class, quiet):
    calls, gate = [], threading.Event()
    pool = pool_class(1)
    pool.submit(gate.wait, 20)
    futures = [pool.submit(fail, KeyError(n)) for n in range(20)]
    for future in futures:
        future.add_done_callback(calls.append)
        future.add_done_callback(lambda _: fail(ValueError()))
    death = weakref.ref(pool)
    del pool
    assert all_dead([death])
    gate.set()
    assert wait(futures, 20).not_done == set()
    assert eventually(lambda: len(calls) == 20, 10)
    assert calls == futures
    assert [future.exception().args for future in futures] == [(n,) for n in range(20)]


def test_a_task_of_a_dropped_pool_may_not_submit_to_it_but_to_others(pool_class):
    """It holds no reference to its pool, and another pool is as open as ever."""
    gate = threading.Event()
    other = pool_class(1)
    pool = pool_class(1)
    future = pool.submit(lambda: (gate.wait(20), other.submit(abs, -3).result(20))[1])
    del pool
    gate.set()
    assert future.result(20) == 3
    other.shutdown()


# ---- threads


def test_threads_start_as_they_are_needed(pool_class):
    """None at first, one for submits in turn, one for each that blocks, at most `max_workers`."""
    pool = pool_class(3)
    assert len(pool._threads) == 0
    for _ in range(20):
        pool.submit(int).result(10)
        time.sleep(0)
    turn = len(pool._threads)
    assert 1 <= turn <= 2
    with occupied(pool):
        assert len(pool._threads) == 3
        for _ in range(20):
            pool.submit(int)
        assert len(pool._threads) == 3
    pool.shutdown()
    assert not any(thread.is_alive() for thread in pool._threads)


@pytest.mark.parametrize("busy", [0, 1, 2])
def test_who_was_taken_out_of_the_set_of_threads_is_not_waited_for(pool_class, busy):
    """The known way round the wait: `pool._threads.clear()`."""
    pool, gate = pool_class(2), threading.Event()
    try:
        with occupied(pool):
            pass
        futures = [pool.submit(gate.wait, 30) for _ in range(busy)]
        pool._threads.clear()
        at_once(pool.shutdown, timeout=10)
        assert not any(future.done() for future in futures)
    finally:
        gate.set()
    assert all(future.result(10) for future in futures)


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("_shutdown", True, RuntimeError, "cannot schedule new futures after shutdown"),
        ("_broken", "a reason", BrokenThreadPool, "a reason"),
        ("_broken", True, BrokenThreadPool, "True"),
    ],
)
@pytest.mark.parametrize("pending", [0, 5])
def test_submits_are_refused_once_a_private_name_was_assigned(
    pool_class, name, value, error, words, pending
):
    """What was accepted before is run, and the pool can be shut down."""
    pool, gate = pool_class(1), threading.Event()
    futures = [pool.submit(gate.wait, 20) for _ in range(pending)]
    setattr(pool, name, value)
    assert getattr(pool, name) is value
    with pytest.raises(error) as refused:
        pool.submit(int)
    assert str(refused.value) == words
    gate.set()
    pool.shutdown()
    assert all(future.result(0) for future in futures)
    assert getattr(pool, name) is value


@pytest.mark.parametrize("name", ["_shutdown", "_broken"])
def test_private_names_that_are_assigned_what_they_are(pool_class, name):
    pool = pool_class(1)
    setattr(pool, name, False)
    assert pool.submit(abs, -1).result(10) == 1
    assert getattr(pool, name) is False
    pool.shutdown()


def test_names_and_kind_of_threads(pool_class):
    with pool_class(2, thread_name_prefix="worker") as pool, occupied(pool):
        threads = sorted(pool._threads, key=lambda thread: thread.name)
        assert [thread.name for thread in threads] == ["worker_0", "worker_1"]
        assert not any(thread.daemon for thread in threads)


def test_the_initializer_runs_once_in_each_thread(pool_class):
    seen = []
    with pool_class(
        3, initializer=lambda *args: seen.append((threading.get_ident(), args)), initargs=(1, "2")
    ) as pool:
        with occupied(pool):
            pass
        list(pool.map(abs, range(50)))
    assert len(seen) == len({ident for ident, _ in seen}) == 3
    assert {args for _, args in seen} == {(1, "2")}


def test_shutdown_again_and_from_everywhere(pool_class):
    pool = pool_class(2)
    futures = [pool.submit(abs, n) for n in range(50)]
    at_once(*[pool.shutdown] * 4)
    assert all(future.done() for future in futures)
    pool.shutdown()
    pool.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match=r"^cannot schedule new futures after shutdown$"):
        pool.submit(int)
