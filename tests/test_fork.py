"""A forked child: it leaves the parent's tasks alone, and its pools work."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from affinitypool import ThreadPoolExecutor

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def in_child(check) -> None:
    """Run `check` in a forked child and fail with what it printed unless it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(status)
    os.close(write)
    end = time.monotonic() + 30
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    with os.fdopen(read, "rb") as pipe:
        assert os.waitstatus_to_exitcode(status) == 0, pipe.read().decode()


@pytest.mark.parametrize("used", [False, True])
def test_the_child_gets_a_working_pool(used):
    with ThreadPoolExecutor(2) as pool:
        if used:
            assert pool.submit(pow, 2, 3).result() == 8

        def check():
            assert len(pool._threads) == 0
            assert pool.submit(pow, 2, 4).result(10) == 16
            assert list(pool.map(abs, range(-50, 0))) == list(range(50, 0, -1))
            pool.shutdown()

        in_child(check)
        assert pool.submit(pow, 2, 5).result() == 32


def test_unfinished_tasks_are_cancelled_in_the_child_and_run_in_the_parent():
    gate = threading.Event()
    ran = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(gate.wait)
        observed = pool.submit(ran.append, 0)
        observed.add_done_callback(lambda task: ran.append("called back"))
        pending = [pool.submit(ran.append, n) for n in range(1, 5)]
        finished = pool.submit(int)
        finished.cancel()

        def check():
            for task in [running, observed, *pending]:
                assert task.done()
                assert task.cancelled()
                with pytest.raises(CancelledError):
                    task.result(1)
            assert wait([running, observed, *pending], 5).not_done == set()
            assert ran == []
            assert pool.submit(len, "four").result(10) == 4
            assert ran == []

        try:
            in_child(check)
            assert not running.done()
        finally:
            gate.set()
        assert [task.result() for task in pending] == [None] * 4
    assert ran == [0, "called back", 1, 2, 3, 4]


def test_a_pool_that_was_shut_down_stays_so():
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    pool.shutdown()

    def check():
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(int)

    in_child(check)


def test_forking_in_a_task():
    with ThreadPoolExecutor(2) as pool:

        def fork():
            other = pool.submit(time.sleep, 0.01)

            def check():
                assert other.done()
                assert pool.submit(pow, 3, 2).result(10) == 9

            in_child(check)
            other.result()
            return "parent"

        assert pool.submit(fork).result(60) == "parent"


def test_a_task_whose_child_returns_ends_the_child():
    code = """
        import os, sys
        from affinitypool import ThreadPoolExecutor
        def fork():
            child = os.fork()
            if child:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return "child"      # the thread leaves the loop, and was the only one
        with ThreadPoolExecutor(1) as pool:
            task, behind = pool.submit(fork), pool.submit(print, "once")
            assert task.result(20) == 0, task.result()
            behind.result()
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n", "")


def test_forks_while_threads_submit():
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:

        def produce():
            while not stop.is_set():
                tasks = [pool.submit(abs, -n) for n in range(50)]
                for task in tasks:
                    task.result()

        producers = [threading.Thread(target=produce) for _ in range(2)]
        for producer in producers:
            producer.start()

        def check():
            assert pool.submit(pow, 2, 6).result(10) == 64

        try:
            for _ in range(20):
                in_child(check)
        finally:
            stop.set()
            for producer in producers:
                producer.join()


def use_the_pool(pool, results):
    results.put(pool.submit(pow, 2, 7).result(10))


def test_multiprocessing_by_fork():
    context = multiprocessing.get_context("fork")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        results = context.SimpleQueue()
        process = context.Process(target=use_the_pool, args=(pool, results))
        process.start()
        process.join(30)
        assert process.exitcode == 0
        assert results.get() == 128


def test_the_child_exits_promptly_with_work_pending_in_the_parent():
    code = """
        import os, sys, threading
        from affinitypool import ThreadPoolExecutor
        gate = threading.Event()
        pool = ThreadPoolExecutor(1)
        tasks = [pool.submit(gate.wait) for _ in range(10)]
        child = os.fork()
        if child == 0:
            sys.exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        gate.set()
        sys.exit(status)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
