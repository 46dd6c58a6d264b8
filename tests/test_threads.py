"""Worker threads: how many start and when, names, stacks, refused starts, initializers."""

from __future__ import annotations

import concurrent.futures
import gc
import logging
import sys
import threading
import time
import weakref

import pytest
from helpers import Probe, eventually, no_collector, run_python

from affinitypool import BrokenExecutor, BrokenThreadPool, ThreadPoolExecutor, as_completed, wait

pytestmark = pytest.mark.timeout(30)


# ---- lazy start


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_blocking_submits_start_a_thread_each(count):
    with ThreadPoolExecutor(8) as pool:
        gate = threading.Event()
        for n in range(count):
            pool.submit(gate.wait, 10)
            assert len(pool._threads) == n + 1
        gate.set()


def test_submits_in_turn_start_one_thread():
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            for _ in range(200):
                pool.submit(int).result(10)
            assert len(pool._threads) == 1


def test_an_idle_thread_is_used_before_another_starts():
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            meet = threading.Barrier(3)
            wait([pool.submit(meet.wait, 10) for _ in range(3)])
            assert len(pool._threads) == 3
            assert eventually(lambda: pool.stats().idle == 3)


def test_no_more_threads_than_max_workers():
    with ThreadPoolExecutor(3) as pool:
        gate = threading.Event()
        tasks = [pool.submit(gate.wait, 10) for _ in range(50)]
        assert len(pool._threads) == 3
        assert eventually(lambda: pool.worker_count == 3)
        gate.set()
        wait(tasks)
        assert len(pool._threads) == 3


def test_threads_end_with_the_pool():
    pool = ThreadPoolExecutor(4)
    barrier = threading.Barrier(4)
    wait([pool.submit(barrier.wait, 10) for _ in range(4)])
    threads = set(pool._threads)
    pool.shutdown()
    assert len(threads) == 4
    assert not any(thread.is_alive() for thread in threads)


# ---- names


def names(pool, count):
    barrier = threading.Barrier(count)

    def name():
        barrier.wait(10)
        return threading.current_thread().name

    return sorted(task.result(10) for task in [pool.submit(name) for _ in range(count)])


def test_names_with_a_prefix():
    with ThreadPoolExecutor(3, thread_name_prefix="mine") as pool:
        assert names(pool, 3) == ["mine_0", "mine_1", "mine_2"]
        assert sorted(thread.name for thread in pool._threads) == ["mine_0", "mine_1", "mine_2"]


def test_names_without_a_prefix():
    with ThreadPoolExecutor(2) as first, ThreadPoolExecutor(2) as second:
        number = int(first._thread_name_prefix.removeprefix("ThreadPoolExecutor-"))
        assert second._thread_name_prefix == f"ThreadPoolExecutor-{number + 1}"
        assert names(first, 2) == [f"ThreadPoolExecutor-{number}_{n}" for n in range(2)]


def test_the_current_thread_knows_itself(one):
    def work():
        thread = threading.current_thread()
        return thread in threading.enumerate(), thread.ident == threading.get_ident()

    assert one.submit(work).result(10) == (True, True)


def test_thread_locals_last_as_long_as_the_thread(one):
    local = threading.local()

    def work():
        local.count = getattr(local, "count", 0) + 1
        return local.count

    assert [one.submit(work).result(10) for _ in range(3)] == [1, 2, 3]


# ---- stacks


def deep(n):
    return n and 1 + deep(n - 1)


def test_the_stack_size_is_applied_and_restored():
    applied = []
    original = threading.stack_size

    def recording(*args):
        applied.append(args)
        return original(*args)

    before = threading.stack_size()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "stack_size", recording)
        with ThreadPoolExecutor(2, stack_size=512 * 1024) as pool:
            assert names(pool, 2)
    assert threading.stack_size() == before
    # once when it is made, to see that it is allowed, and for each thread
    assert applied == [(512 * 1024,), (before,)] * 3


def test_the_stack_of_a_worker_is_as_large_as_asked():
    size = """
        import threading
        from affinitypool import ThreadPoolExecutor
        def stack():
            import ctypes
            local = ctypes.c_int()
            at = ctypes.addressof(local)
            libc = ctypes.CDLL(None)
            attr = ctypes.create_string_buffer(64)
            libc.pthread_self.restype = ctypes.c_void_p
            assert libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attr) == 0
            got = ctypes.c_size_t()
            assert libc.pthread_attr_getstacksize(attr, ctypes.byref(got)) == 0
            return got.value
        with ThreadPoolExecutor(1, stack_size=1 << 20) as pool:
            print(pool.submit(stack).result())
        with ThreadPoolExecutor(1, stack_size=16 << 20) as pool:
            print(pool.submit(stack).result())
    """
    done = run_python(size)
    small, large = map(int, done.stdout.split())
    assert done.stderr == ""
    assert 1 << 20 <= small < 3 << 20
    assert 16 << 20 <= large < 18 << 20


def test_other_threads_keep_their_stack_size():
    with ThreadPoolExecutor(1, stack_size=256 * 1024) as pool:
        pool.submit(int).result(10)
        assert threading.stack_size() == 0
        assert pool.submit(threading.stack_size).result(10) == 0


def test_a_stack_size_that_the_platform_refuses_is_an_error_of_submit():
    pool = ThreadPoolExecutor(1, stack_size=2**62)
    ran = []
    with pytest.raises((ValueError, RuntimeError, OverflowError, MemoryError)):
        pool.submit(ran.append, 1)
    assert threading.stack_size() == 0
    pool.shutdown()
    assert ran == []


# ---- a thread that the system refuses


@pytest.fixture
def refuse(monkeypatch):
    """Let no thread start while `refuse.on` is set."""

    class Refuse:
        on = False
        count = 0

    names = ["_start_joinable_thread", "_start_new_thread"]
    for name in names:
        original = getattr(threading, name, None)
        if original is None:
            continue

        def start(*args, original=original, **kwargs):
            if Refuse.on:
                Refuse.count += 1
                raise RuntimeError("can't start new thread")
            return original(*args, **kwargs)

        monkeypatch.setattr(threading, name, start)
    return Refuse


def test_with_no_worker_at_all_submit_raises_and_nothing_is_left(refuse):
    pool = ThreadPoolExecutor(2)
    ran = []
    refuse.on = True
    argument = Probe()
    death = weakref.ref(argument)
    before = threading.active_count()
    with no_collector():
        for _ in range(3):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                pool.submit(lambda a: ran.append(a), argument)
        del argument
        assert eventually(lambda: death() is None, 1)
    assert refuse.count == 3
    assert pool._threads == set()
    assert pool.stats().pending == 0
    assert threading.active_count() == before
    refuse.on = False
    assert pool.submit(abs, -1).result(10) == 1  # it recovers
    assert ran == []
    pool.shutdown()


def test_with_no_worker_at_all_a_batch_raises_and_is_cancelled(refuse):
    pool = ThreadPoolExecutor(2)
    ran = []
    refuse.on = True
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pool.submit_many(ran.append, range(1000))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pool.map(ran.append, range(1000))
    assert pool.stats().pending == 0
    refuse.on = False
    pool.submit(int).result(10)
    pool.shutdown()
    assert ran == []


def test_with_a_worker_alive_submit_keeps_quiet(refuse):
    with ThreadPoolExecutor(4) as pool:
        gate = threading.Event()
        first = pool.submit(gate.wait, 10)
        refuse.on = True
        tasks = [pool.submit(abs, -n) for n in range(20)]
        tasks += pool.submit_many(abs, range(-20, 0))
        assert refuse.count
        gate.set()
        first.result(10)
        assert sum(task.result(10) for task in tasks) == 190 + 210
        assert len(pool._threads) == 1
        refuse.on = False
        barrier = threading.Barrier(4)
        wait([pool.submit(barrier.wait, 10) for _ in range(4)])
        assert len(pool._threads) == 4


def test_shutdown_after_a_refused_start_returns(refuse):
    pool = ThreadPoolExecutor(2)
    refuse.on = True
    with pytest.raises(RuntimeError):
        pool.submit(int)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_a_start_method_that_raises(monkeypatch):
    pool = ThreadPoolExecutor(1)
    with monkeypatch.context() as patch:

        def start(self):
            raise MemoryError("no thread")

        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(MemoryError, match="no thread"):
            pool.submit(int)
    assert pool.submit(abs, -1).result(10) == 1
    pool.shutdown()


def test_an_interrupt_while_a_thread_starts_leaves_a_working_pool(monkeypatch):
    pool = ThreadPoolExecutor(2)
    gate = threading.Event()
    first = pool.submit(gate.wait, 10)
    with monkeypatch.context() as patch:

        def start(self):
            raise KeyboardInterrupt

        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(int)
    second = pool.submit(abs, -2)
    assert second.result(10) == 2
    gate.set()
    assert first.result(10)
    pool.shutdown()


SUBMITS = {
    "submit": lambda pool, fn: pool.submit(fn),
    "submit_many": lambda pool, fn: pool.submit_many(lambda _: fn(), range(20)),
    "map": lambda pool, fn: pool.map(lambda _: fn(), range(20)),
}


@pytest.fixture
def elsewhere():
    """Give a function that calls another in a thread that is there already."""
    with concurrent.futures.ThreadPoolExecutor(1) as helper:
        helper.submit(int).result(10)
        yield lambda fn: helper.submit(fn).result(10)


@pytest.mark.parametrize("interrupts", [1, 3])
@pytest.mark.parametrize("submit", SUBMITS)
def test_an_interrupted_start_is_made_good_for_what_others_submitted(
    monkeypatch, elsewhere, submit, interrupts
):
    """They relied on the thread, which was counted as started."""
    original = threading.Thread.start
    pool = ThreadPoolExecutor(1)
    ran, others, left = [], [], [interrupts]

    def start(thread):
        if left[0]:
            left[0] -= 1
            if not others:
                elsewhere(lambda: others.extend(pool.submit(abs, -n) for n in range(5)))
            raise KeyboardInterrupt
        original(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        SUBMITS[submit](pool, lambda: ran.append(1))
    assert left == [0]
    assert [task.result(10) for task in others] == [0, 1, 2, 3, 4]
    assert pool.submit(abs, -1).result(10) == 1
    assert pool.shutdown(timeout=20) is True
    assert ran == []


@pytest.mark.parametrize("then", ["interrupted", "refused"])
@pytest.mark.parametrize("submit", SUBMITS)
def test_where_no_start_succeeds_what_others_submitted_is_cancelled(
    monkeypatch, elsewhere, submit, then
):
    """Visibly; and the interrupted submit comes back."""
    pool = ThreadPoolExecutor(1)
    others = []

    def start(thread):
        if not others:
            elsewhere(lambda: others.append(pool.submit(int)))
        elif then == "refused":
            raise RuntimeError("can't start new thread")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            SUBMITS[submit](pool, int)
    assert others[0].cancelled()
    assert pool.stats().pending == 0
    assert pool.submit(abs, -1).result(10) == 1
    assert pool.shutdown(timeout=20) is True


@pytest.mark.parametrize("count", [1, 3])
def test_a_submit_whose_task_has_run_does_not_raise(monkeypatch, count):
    """Its own start was refused, and somebody else has come to the task meanwhile."""
    pool = ThreadPoolExecutor(1)
    ran = []

    def make_worker(crew, number):
        for _ in range(count):
            pool._work_queue.get_nowait().run()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "_make_worker", make_worker, raising=False)
        if count == 1:
            tasks = [pool.submit(ran.append, 0)]
        else:
            tasks = pool.submit_many(ran.append, range(count))
    assert ran == list(range(count))
    assert all(task.result(0) is None for task in tasks)
    assert pool.submit(abs, -1).result(10) == 1
    pool.shutdown()


# ---- initializers


def test_the_initializer_runs_once_in_each_thread():
    seen = []
    with ThreadPoolExecutor(
        3, initializer=lambda *args: seen.append((threading.get_ident(), args)), initargs=(1, "a")
    ) as pool:
        barrier = threading.Barrier(3)
        wait([pool.submit(barrier.wait, 10) for _ in range(3)])
        for _ in range(20):
            pool.submit(int).result(10)
        assert sorted(seen) == sorted((thread.ident, (1, "a")) for thread in pool._threads)


def test_the_initializer_runs_before_the_first_task():
    local = threading.local()

    def start():
        local.value = 5

    with ThreadPoolExecutor(2, initializer=start) as pool:
        assert list(pool.map(lambda _: local.value, range(50))) == [5] * 50


def test_initargs_may_be_a_list():
    seen = []
    with ThreadPoolExecutor(1, initializer=seen.append, initargs=[7]) as pool:
        pool.submit(int).result(10)
    assert seen == [7]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_initializer_that_fails_breaks_the_pool(caplog, error):
    gate = threading.Event()

    def start():
        gate.wait(10)
        raise error("no start")

    pool = ThreadPoolExecutor(2, initializer=start)
    tasks = [pool.submit(int) for _ in range(20)]
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        gate.set()
        failures = [task.exception(10) for task in tasks]
        for failure in failures:
            assert isinstance(failure, BrokenThreadPool)
            assert isinstance(failure.__cause__, error)
        assert len(set(map(id, failures))) == 20  # each its own
        assert len(list(as_completed(tasks, 10))) == 20
        for call in (
            lambda: pool.submit(int),
            lambda: pool.submit_many(int, [1]),
            lambda: pool.map(int, [1]),
        ):
            with pytest.raises(BrokenThreadPool, match="initializer failed") as caught:
                call()
            assert isinstance(caught.value.__cause__, error)
            assert isinstance(caught.value, BrokenExecutor)
        assert pool._broken
        pool.shutdown()
        pool.shutdown()
    assert "Exception in initializer" in caplog.text
    assert "no start" in caplog.text
    with pytest.raises(BrokenThreadPool):
        pool.submit(int)


def test_waiters_of_a_pool_that_breaks_are_woken(caplog):
    gate = threading.Event()
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), 1 / 0))
    tasks = [pool.submit(int) for _ in range(5)]
    seen = []
    called = []
    tasks[4].add_done_callback(called.append)
    thread = threading.Thread(target=lambda: seen.extend(as_completed(tasks, 10)))
    thread.start()
    gate.set()
    thread.join(10)
    assert set(seen) == set(tasks)
    # (on builds without a GIL the waiter may be the quicker one)
    assert eventually(lambda: called == [tasks[4]])
    pool.shutdown()


def test_the_second_thread_fails_to_start(caplog):
    count = []

    def start():
        count.append(1)
        if len(count) == 2:
            raise ValueError("second")

    pool = ThreadPoolExecutor(2, initializer=start)
    gate, entered = threading.Event(), threading.Event()
    running = pool.submit(lambda: (entered.set(), gate.wait(10)) and 5)
    entered.wait(10)
    pending = pool.submit(int)
    assert isinstance(pending.exception(10), BrokenThreadPool)
    gate.set()
    assert running.result(10) == 5  # what ran was let end
    with pytest.raises(BrokenThreadPool):
        pool.submit(int)
    pool.shutdown()


def test_a_broken_pool_that_was_dropped_leaves_nothing(caplog):
    gate = threading.Event()
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), 1 / 0))
    task = pool.submit(int)
    died = weakref.ref(pool)
    del pool
    gc.collect()
    assert died() is None
    gate.set()
    assert isinstance(task.exception(10), BrokenThreadPool)


def test_submits_race_a_failing_initializer(caplog):
    for _ in range(10):
        pool = ThreadPoolExecutor(2, initializer=lambda: 1 / 0)
        tasks = []
        end = time.monotonic() + 10
        try:
            while time.monotonic() < end:
                tasks.append(pool.submit(int))
        except BrokenThreadPool:
            pass
        else:
            pytest.fail("the pool never broke")
        for task in tasks:
            assert isinstance(task.exception(10), BrokenThreadPool)
        pool.shutdown()


def test_an_initializer_may_submit():
    inner = []
    pool = ThreadPoolExecutor(2, initializer=lambda: inner.append(pool.submit(abs, -3)))
    assert pool.submit(abs, -1).result(10) == 1
    assert inner[0].result(10) == 3
    pool.shutdown()


def test_initargs_die_with_the_pool():
    argument = Probe()
    death = weakref.ref(argument)
    pool = ThreadPoolExecutor(1, initializer=lambda a: None, initargs=(argument,))
    pool.submit(int).result(10)
    del argument
    pool.shutdown()
    del pool
    gc.collect()
    assert eventually(lambda: death() is None)


def test_a_worker_is_hit_by_an_injected_exception_only_in_its_task(one):
    import ctypes

    entered, gate = threading.Event(), threading.Event()

    def work():
        entered.set()
        while not gate.is_set():
            time.sleep(0.001)

    task = one.submit(work)
    entered.wait(10)
    ident = next(iter(one._threads)).ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyError))
    assert isinstance(task.exception(10), KeyError)
    assert one.submit(abs, -1).result(10) == 1
    gate.set()


def test_the_pool_lives_on_after_every_kind_of_task(pool):
    for error in (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration):

        def work(error=error):
            raise error

        for _ in range(8):
            assert isinstance(pool.submit(work).exception(10), error)
    assert all(thread.is_alive() for thread in pool._threads)


def test_a_task_of_a_pool_that_is_gone_does_not_count_for_the_next():
    """Its result is looked at only after its core serves another pool."""
    tasks = []
    for _ in range(3):
        pool = ThreadPoolExecutor(1)
        tasks.append(pool.submit(abs, -1))
        while tasks[-1]._state != "FINISHED":
            time.sleep(0.001)
        pool.shutdown()
        del pool
        with ThreadPoolExecutor(1) as pool:
            assert [task.result() for task in tasks] == [1] * len(tasks)
            assert pool.submit(abs, -2).result(10) == 2


def test_a_submit_that_interrupts_the_start_of_a_thread_gets_one_too(monkeypatch):
    """As a finalizer or a signal handler may, in the middle of `Thread.start`."""
    start = threading.Thread.start
    tasks = []
    with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(2) as pool:

        def interrupted(thread):
            if not tasks:
                tasks.append(None)
                tasks[:] = [other.submit(abs, -1), pool.submit(abs, -2)]
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", interrupted)
        gate = threading.Event()
        blocking = pool.submit(gate.wait, 30)
        assert [task.result(10) for task in tasks] == [1, 2]
        gate.set()
        assert blocking.result(10)


@pytest.mark.parametrize("ran", [False, True])
def test_an_interrupt_after_the_thread_was_made(monkeypatch, ran):
    """The thread runs or is told not to; shutdown knows of it."""
    start = threading.Thread.start
    began = threading.Event()
    gate = threading.Event()

    def task():
        began.set()
        gate.wait(30)
        return "ran"

    def interrupted(thread):
        start(thread)
        if ran:
            assert began.wait(10)
        raise KeyboardInterrupt

    pool = ThreadPoolExecutor(2)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(task)
    monkeypatch.undo()
    ended = threading.Event()
    waiter = threading.Thread(target=lambda: (pool.shutdown(), ended.set()))
    waiter.start()
    if began.is_set():
        assert not ended.wait(0.1)
    gate.set()
    waiter.join(10)
    assert ended.is_set()


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python 3.11 counts calls in C as it does Python's own"
)
@pytest.mark.parametrize("stack_size", [128 * 1024, 256 * 1024])
def test_what_nests_in_c_fits_on_a_small_stack(stack_size):
    """Freeing a long chain, and the repr of one."""
    code = f"""
        from affinitypool import ThreadPoolExecutor
        def free(n):
            chain = None
            for _ in range(n):
                chain = [chain]
        def show(n):
            chain = None
            for _ in range(n):
                chain = [chain]
            return repr(chain)
        with ThreadPoolExecutor(1, stack_size={stack_size}) as pool:
            for _ in range(3):
                assert pool.submit(free, 50_000).result() is None
                assert isinstance(pool.submit(show, 50_000).exception(), RecursionError)
                assert len(pool.submit(show, 20).result()) == 44
        print("alive")
    """
    assert run_python(code).stdout == "alive\n"


@pytest.mark.parametrize("stack_size", [64 * 1024, 256 * 1024, None])
@pytest.mark.parametrize("depth", [10, 300, 5000])
def test_tasks_that_nest_deeper_than_the_stack_get_an_error(stack_size, depth):
    """They run on the stack of the worker that waits; the process never pays for it."""
    code = f"""
        import sys
        from affinitypool import ThreadPoolExecutor
        sys.setrecursionlimit(100_000)
        with ThreadPoolExecutor(1, stack_size={stack_size}) as pool:
            def nest(n):
                return 0 if n == 0 else 1 + pool.submit(nest, n - 1).result()
            try:
                assert pool.submit(nest, {depth}).result() == {depth}
            except RecursionError:
                assert {depth} > 10
            assert pool.submit(abs, -1).result() == 1
        print("alive")
    """
    assert run_python(code).stdout == "alive\n"
