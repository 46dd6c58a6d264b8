"""Signals and finalizers: Ctrl-C through every wait, and re-entered submits."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time

import pytest
from helpers import check_python, eventually, occupied

from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    Future,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)

pytestmark = pytest.mark.timeout(30)


@contextlib.contextmanager
def on_signal(handler):
    """Have SIGUSR1 call the handler."""
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


class Interrupt(BaseException):
    """What a handler raises; no test of another thing catches it."""


def interrupt():
    raise Interrupt


@contextlib.contextmanager
def signal_soon(handler, delay=0.05):
    """Send one signal to the main thread after a while, once it is likely to wait."""
    main = threading.main_thread().ident
    timer = threading.Timer(delay, signal.pthread_kill, [main, signal.SIGUSR1])
    with on_signal(handler):
        timer.start()
        try:
            yield
        finally:
            timer.join()


WAITS = {
    "result": lambda pool, task: task.result(),
    "result with a timeout": lambda pool, task: task.result(20),
    "exception": lambda pool, task: task.exception(),
    "wait": lambda pool, task: wait([task]),
    "wait with a timeout": lambda pool, task: wait([task], 20),
    "wait first completed": lambda pool, task: wait([task], None, FIRST_COMPLETED),
    "wait first exception": lambda pool, task: wait([task], 20, FIRST_EXCEPTION),
    "wait mixed": lambda pool, task: wait([task, Future()]),
    "as_completed": lambda pool, task: next(as_completed([task])),
    "as_completed with a timeout": lambda pool, task: next(as_completed([task], 20)),
    "as_completed mixed": lambda pool, task: next(as_completed([task, Future()])),
    "map": lambda pool, task: next(pool.map(int, [1])),
    "map with a timeout": lambda pool, task: next(pool.map(int, [1], timeout=20)),
    "map with a buffer": lambda pool, task: next(pool.map(int, [1], buffersize=1)),
    "condition": lambda pool, task: hold(task),
    "queue": lambda pool, task: Drained(pool).get(),
    "shutdown": lambda pool, task: pool.shutdown(),
}


def hold(task):
    with task._condition:
        task._condition.wait()


class Drained:
    """The queue of a pool, emptied."""

    def __init__(self, pool):
        pool._work_queue.get().future.cancel()
        self.get = pool._work_queue.get


@pytest.mark.parametrize("way", WAITS)
def test_a_handler_that_raises_ends_the_wait(one, way):
    with occupied(one):
        task = one.submit(int)
        begin = time.monotonic()
        with signal_soon(interrupt), pytest.raises(Interrupt):
            WAITS[way](one, task)
        assert time.monotonic() - begin < 5
    if way != "shutdown":
        assert one.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("way", ["result", "exception", "wait", "as_completed", "shutdown"])
def test_a_handler_that_returns_lets_the_wait_go_on(one, way):
    handled = threading.Event()
    with occupied(one) as gate:
        task = one.submit(int)

        def handler():
            handled.set()
            gate.set()

        with signal_soon(handler):
            WAITS[way](one, task)
        assert handled.is_set()
        assert task.result(10) == 0


def test_signals_do_not_shorten_a_timeout(one):
    count = []
    with occupied(one), on_signal(lambda: count.append(1)):
        task = one.submit(int)
        stop = threading.Event()
        main = threading.main_thread().ident

        def pester():
            while not stop.wait(0.005):
                signal.pthread_kill(main, signal.SIGUSR1)

        thread = threading.Thread(target=pester)
        thread.start()
        begin = time.monotonic()
        for call in (
            lambda: task.result(0.15),
            lambda: next(as_completed([task], 0.15)),
        ):
            with pytest.raises(TimeoutError):
                call()
        assert wait([task], 0.15).not_done == {task}
        took = time.monotonic() - begin
        stop.set()
        thread.join()
    assert 0.44 < took < 5
    assert len(count) > 5


def test_an_interrupted_map_cancels_the_item_it_waited_for(one):
    ran = []
    with occupied(one):
        results = one.map(ran.append, range(3))
        with signal_soon(interrupt), pytest.raises(Interrupt):
            next(results)
    one.submit(int).result(10)
    assert ran == []


def test_a_real_ctrl_c():
    out = check_python(
        """
        import os, signal, threading
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        gate = threading.Event()
        task = pool.submit(gate.wait, 20)
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            task.result()
        except KeyboardInterrupt:
            print("interrupted")
        gate.set()
        print(task.result(), pool.submit(abs, -1).result())
        """
    )
    assert out == "interrupted\nTrue 1\n"


def test_ctrl_c_in_a_with_block():
    out = check_python(
        """
        import os, signal, threading
        from affinitypool import ThreadPoolExecutor
        gate = threading.Event()
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(gate.wait, 20)
        except KeyboardInterrupt:
            print("interrupted")
        gate.set()
        """
    )
    assert out == "interrupted\n"


# ---- handlers and finalizers that use the pool while the main thread does


@contextlib.contextmanager
def pestered(handler, count=60):
    """Send many signals to the main thread while it does something."""
    main, stop = threading.main_thread().ident, threading.Event()

    def pester():
        for _ in range(count):
            if stop.wait(0.0005):
                return
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=pester)
    with on_signal(handler):
        thread.start()
        try:
            yield thread
        finally:
            stop.set()
            thread.join()


def test_a_handler_that_submits_while_main_submits(pool):
    inner, outer = [], []
    with pestered(lambda: inner.append(pool.submit(abs, -2))) as thread:
        while thread.is_alive():
            outer.append(pool.submit(abs, -1))
    assert inner
    assert all(task.result(10) == 2 for task in inner)
    assert all(task.result(10) == 1 for task in outer)


def test_a_handler_that_submits_and_waits(pool):
    results = []
    with pestered(lambda: results.append(pool.submit(abs, -2).result(10))) as thread:
        while thread.is_alive():
            assert pool.submit(abs, -1).result(10) == 1
            assert wait([pool.submit(int)], 10).done
    assert set(results) == {2}


def test_a_handler_that_submits_while_threads_start():
    inner = []
    box = []
    with pestered(lambda: box and inner.append(box[-1].submit(abs, -2))) as thread:
        while thread.is_alive():
            pool = ThreadPoolExecutor(4)
            box.append(pool)
            tasks = [pool.submit(abs, -1) for _ in range(8)]
            assert [task.result(10) for task in tasks] == [1] * 8
            box.pop()
            pool.shutdown()
    assert all(task.result(10) == 2 for task in inner)


def test_a_handler_that_raises_while_main_submits(pool):
    tasks, count = [], 0

    def burst():
        for _ in range(1_000):  # calls C only, so that signals are handled in this frame
            tasks.append(pool.submit(abs, -1))

    def handler(signum, frame):
        if frame.f_code is burst.__code__:
            raise Interrupt

    with pestered(lambda: None) as thread:
        signal.signal(signal.SIGUSR1, handler)
        while thread.is_alive():
            try:
                burst()
            except Interrupt:
                count += 1
    assert count > 0
    assert all(task.result(10) == 1 for task in tasks)
    assert pool.submit(abs, -3).result(10) == 3
    assert eventually(lambda: pool.stats().pending == 0)


def test_a_handler_that_shuts_down_while_main_submits():
    for _ in range(20):
        pool = ThreadPoolExecutor(2)
        tasks = []
        with signal_soon(pool.shutdown, 0.002):
            end = time.monotonic() + 10
            try:
                while time.monotonic() < end:
                    tasks.append(pool.submit(int))
            except RuntimeError:
                pass
            else:
                pytest.fail("never shut down")
        assert all(task.done() for task in tasks)


def test_a_finalizer_that_submits_while_submit_runs(pool):
    results = []

    class Finalizer:
        def __del__(self):
            results.append(pool.submit(abs, -2))

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            cycle = [Finalizer()]
            cycle.append(cycle)
            del cycle
            pool.submit([].append, {})
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(results) == 300
    assert all(task.result(10) == 2 for task in results)


def test_a_finalizer_that_submits_while_threads_start():
    for _ in range(10):
        with ThreadPoolExecutor(8) as pool:
            results = []

            class Finalizer:
                def __del__(self, results=results, pool=pool):
                    results.append(pool.submit(abs, -2))

            before = gc.get_threshold()
            gc.set_threshold(1)
            gate = threading.Event()
            try:
                for _ in range(8):
                    cycle = [Finalizer()]
                    cycle.append(cycle)
                    del cycle
                    pool.submit(gate.wait, 10)
            finally:
                gc.set_threshold(*before)
            gate.set()
            gc.collect()
            assert [task.result(10) for task in results] == [2] * 8
            Finalizer = None


def test_a_finalizer_of_an_argument_that_submits(one):
    results = []

    class Argument:
        def __del__(self):
            results.append(one.submit(abs, -2))

    one.submit(id, Argument()).result(10)
    with occupied(one):
        one.submit(id, Argument()).cancel()
    assert eventually(lambda: len(results) == 2)
    assert [task.result(10) for task in results] == [2, 2]


def test_a_finalizer_of_a_refused_task_that_submits():
    pool, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    pool.shutdown()
    results = []

    class Argument:
        def __del__(self):
            results.append(other.submit(abs, -2))

    with pytest.raises(RuntimeError):
        pool.submit(id, Argument())
    gc.collect()
    assert eventually(lambda: results)
    assert results[0].result(10) == 2
    other.shutdown()


def test_a_waiter_does_not_hold_the_interpreter(one):
    """The GIL is free while the main thread waits in C."""
    done = []
    with occupied(one) as gate:
        task = one.submit(int)

        def work():
            for n in range(20_000):
                done.append(n)
            gate.set()

        thread = threading.Thread(target=work)
        thread.start()
        task.result(20)
        thread.join()
    assert len(done) == 20_000


def test_a_task_made_by_hand_can_be_interrupted():
    with signal_soon(interrupt), pytest.raises(Interrupt):
        Task().result()
