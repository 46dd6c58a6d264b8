"""The pool object: construction, submit, `with`, dropping it, and names that others touch."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import gc
import queue
import threading
import weakref

import pytest
from helpers import Probe, eventually, occupied

import affinitypool
from affinitypool import (
    MAX_WORKERS,
    AffinityPoolError,
    BrokenThreadPool,
    PoolStats,
    ShutdownError,
    SubmitError,
    Task,
    ThreadPoolExecutor,
)

pytestmark = pytest.mark.timeout(30)

STDLIB = concurrent.futures.thread.ThreadPoolExecutor


# ---- what the package gives


@pytest.mark.parametrize(
    "name",
    [
        "ALL_COMPLETED",
        "FIRST_COMPLETED",
        "FIRST_EXCEPTION",
        "BrokenExecutor",
        "CancelledError",
        "Executor",
        "Future",
        "InvalidStateError",
        "TimeoutError",
    ],
)
def test_what_people_import_beside_the_pool_is_the_stdlibs(name):
    assert getattr(affinitypool, name) is getattr(concurrent.futures, name)


def test_names_of_the_package():
    assert affinitypool.BrokenThreadPool is concurrent.futures.thread.BrokenThreadPool
    for name in affinitypool.__all__:
        assert hasattr(affinitypool, name), name
    for name in ("ThreadPoolExecutor", "wait", "as_completed", "Task", "patch_stdlib"):
        assert name in affinitypool.__all__


def test_errors_are_what_users_catch_today():
    assert issubclass(ShutdownError, (AffinityPoolError,))
    assert issubclass(ShutdownError, RuntimeError)
    assert issubclass(SubmitError, AffinityPoolError)
    assert issubclass(SubmitError, MemoryError)


# ---- construction


def test_a_pool_is_the_stdlibs_class(one):
    assert isinstance(one, STDLIB)
    assert isinstance(one, concurrent.futures.Executor)
    assert issubclass(ThreadPoolExecutor, STDLIB)


@pytest.mark.parametrize("workers", [0, -1, -(10**30), False])
def test_less_than_one_worker_is_a_value_error(workers):
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        ThreadPoolExecutor(workers)


@pytest.mark.parametrize("workers", ["2", 1.5, 2.0, [], b"1"])
def test_workers_that_are_no_integer_are_a_type_error(workers):
    with pytest.raises(TypeError):
        ThreadPoolExecutor(workers)


@pytest.mark.parametrize("workers", [MAX_WORKERS + 1, 10**6, 2**32, 2**32 + 1, 2**64 + 1])
def test_more_workers_than_there_are_slots_is_a_value_error(workers):
    with pytest.raises(ValueError, match="512"):
        ThreadPoolExecutor(workers)


def test_the_most_workers():
    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        assert pool._max_workers == 512
        assert pool.submit(abs, -1).result(10) == 1
        assert len(pool._threads) == 1


class Index:
    def __index__(self):
        return 3


def test_what_has_an_index_is_an_integer():
    assert ThreadPoolExecutor(Index())._max_workers == 3
    assert ThreadPoolExecutor(True)._max_workers == 1


@pytest.mark.parametrize("initializer", [5, "name", [], 0])
def test_an_initializer_is_callable(initializer):
    with pytest.raises(TypeError, match="initializer must be a callable"):
        ThreadPoolExecutor(1, initializer=initializer)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("shards", 0, ValueError),
        ("shards", -1, ValueError),
        ("shards", "2", TypeError),
        ("shards", 1.0, TypeError),
        ("stack_size", 0, ValueError),
        ("stack_size", -1, ValueError),
        ("stack_size", 100, ValueError),
        ("stack_size", 2**63, ValueError),
        ("stack_size", "64k", TypeError),
        ("stack_size", 1e6, TypeError),
        ("no_such_option", 1, TypeError),
        ("initargs", 5, TypeError),
    ],
)
def test_bad_options_are_refused(option, value, error):
    with pytest.raises(error):
        ThreadPoolExecutor(1, **{option: value})


def test_options_after_initargs_are_keywords():
    with pytest.raises(TypeError):
        ThreadPoolExecutor(1, "", None, (), 1)
    with ThreadPoolExecutor(1, "name", None, ()) as pool:
        assert pool.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("shards", [None, 1, 2, 3, 8, 10**6])
def test_shards(shards):
    with ThreadPoolExecutor(8, shards=shards) as pool:
        out = affinitypool._binding.ffi.new("ap_pool_stats *")
        address = affinitypool._binding.ffi.cast("ap_pool *", pool._core.pool_address)
        affinitypool._binding.lib.ap_pool_read_stats(address, out)
        if shards is not None:
            assert out.shards == {1: 1, 2: 2, 3: 4, 8: 8, 10**6: 8}[shards]
        assert 1 <= out.shards <= 8
        assert sum(pool.map(abs, range(-500, 0))) == 125250


def test_thread_per_core():
    assert ThreadPoolExecutor(thread_per_core=True)._max_workers == min(
        affinitypool._sizing.usable_cpus(), MAX_WORKERS
    )
    with pytest.raises(ValueError, match="thread_per_core"):
        ThreadPoolExecutor(2, thread_per_core=True)


def test_making_a_pool_starts_nothing():
    before = threading.active_count()
    pools = [ThreadPoolExecutor(4) for _ in range(50)]
    assert threading.active_count() == before
    assert all(pool._threads == set() for pool in pools)


def test_a_pool_whose_init_did_not_run_raises_on_use():
    class Forgetful(ThreadPoolExecutor):
        def __init__(self):
            pass

    pool = Forgetful()
    for call in (
        lambda: pool.submit(int),
        lambda: list(pool.map(int, [1])),
        lambda: list(pool.map(int, [1], buffersize=1)),
        lambda: pool.submit_many(int, [1]),
        lambda: pool.shutdown(),
        lambda: pool.stats(),
        lambda: pool.worker_count,
    ):
        with pytest.raises(RuntimeError):
            call()


def test_init_twice_is_refused_and_the_pool_lives(one):
    with pytest.raises(RuntimeError):
        one.__init__(1)
    assert one.submit(abs, -1).result(10) == 1
    one.shutdown()
    assert one._threads


def test_a_bare_base_is_of_no_use():
    base = affinitypool._binding.core.PoolBase()
    with pytest.raises(RuntimeError):
        base.submit(int)


# ---- submit


def test_submit_passes_what_it_is_given(pool):
    def work(*args, **kwargs):
        return args, kwargs

    for args, kwargs in (
        ((), {}),
        ((1,), {}),
        ((1, 2), {}),
        ((), {"a": 1}),
        ((1,), {"a": 1}),
        ((1, 2, 3), {"a": 1, "b": 2}),
        (((1, 2),), {}),
        (((),), {}),
        ((), {"self": 1, "fn": 2, "args": 3, "kwargs": 4}),
        (tuple(range(300)), {f"k{n}": n for n in range(300)}),
        (tuple(range(70_000)), {}),
        (tuple(range(70_000)), {"a": 1}),
    ):
        assert pool.submit(work, *args, **kwargs).result(10) == (args, kwargs)


def test_submit_takes_the_function_by_position(one):
    with pytest.raises(TypeError):
        one.submit()
    with pytest.raises(TypeError):
        one.submit(fn=int)


def test_submit_runs_any_callable(one):
    import functools

    class Callable:
        def __call__(self, value):
            return value + 1

        def method(self, value):
            return value + 2

        @classmethod
        def of_class(cls, value):
            return value + 3

    for fn, expected in (
        (Callable(), 2),
        (Callable().method, 3),
        (Callable.of_class, 4),
        (functools.partial(pow, 2), 2),
        (lambda value: value, 1),
        ([7, 8].__getitem__, 8),
        (complex, 1 + 0j),
    ):
        assert one.submit(fn, 1).result(10) == expected


def test_a_worker_is_neither_the_caller_nor_a_daemon(one):
    thread = one.submit(threading.current_thread).result(10)
    assert thread is not threading.current_thread()
    assert thread in one._threads
    assert isinstance(thread, threading.Thread)
    assert not thread.daemon


def test_submit_in_a_task_and_from_many_threads(pool):
    def producer():
        tasks = [pool.submit(lambda: pool.submit(abs, -1)) for _ in range(100)]
        counts.append(sum(task.result(10).result(10) for task in tasks))

    counts = []
    threads = [threading.Thread(target=producer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert counts == [100] * 4


def test_a_future_is_a_task_at_once(one):
    with occupied(one):
        assert type(one.submit(int)) is Task


def test_an_overridden_submit_is_used_by_super(one):
    class Counting(ThreadPoolExecutor):
        calls = 0

        def submit(self, fn, /, *args, **kwargs):
            self.calls += 1
            return super().submit(fn, *args, **kwargs)

    with Counting(2) as pool:
        assert pool.submit(abs, -1).result(10) == 1
        assert pool.calls == 1


# ---- with


def test_leaving_with_waits_for_all():
    done = []
    gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        assert isinstance(pool, ThreadPoolExecutor)
        for n in range(20):
            pool.submit(lambda n=n: (gate.wait(10), done.append(n)))
        gate.set()
    assert sorted(done) == list(range(20))
    assert not any(thread.is_alive() for thread in pool._threads)
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_leaving_with_by_an_exception_waits_too():
    done = []

    def work():
        with ThreadPoolExecutor(1) as pool:
            for n in range(20):
                pool.submit(done.append, n)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert done == list(range(20))


# ---- dropping the last reference


def test_nothing_keeps_a_pool_alive():
    pool = ThreadPoolExecutor(2)
    argument = Probe()
    died = weakref.ref(pool)
    task = pool.submit(lambda a: a, argument)
    results = pool.map(abs, range(3))
    buffered = pool.map(abs, range(30), buffersize=2)
    task.result(10)
    next(buffered)
    del pool
    gc.collect()
    assert died() is None
    assert list(results) == [0, 1, 2]
    buffered.close()


def test_a_pool_dies_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        pool = ThreadPoolExecutor(2)
        pool.submit(abs, -1).result(10)
        died = weakref.ref(pool)
        del pool
        assert died() is None
    finally:
        gc.enable()


def test_a_task_may_drop_the_last_reference():
    box = [ThreadPoolExecutor(2)]
    pool = box[0]
    gate = threading.Event()
    died = weakref.ref(pool)

    def work():
        gate.wait(10)
        box.clear()
        gc.collect()

    task = pool.submit(work)
    after = pool.submit(abs, -3)
    del pool
    gate.set()
    task.result(10)
    assert after.result(10) == 3
    assert eventually(lambda: died() is None)


def test_a_pool_in_a_cycle_is_collected():
    pool = ThreadPoolExecutor(1)
    pool.me = pool
    pool.submit(int).result(10)
    died = weakref.ref(pool)
    del pool
    gc.collect()
    assert died() is None


# ---- names that other libraries touch


def test_private_names_of_the_stdlib():
    def start(value):
        pass

    pool = ThreadPoolExecutor(3, "prefix", start, (1,))
    assert pool._max_workers == 3
    assert pool._thread_name_prefix == "prefix"
    assert pool._initializer is start
    assert pool._initargs == (1,)
    assert pool._shutdown is False
    assert pool._broken is False
    assert isinstance(pool._threads, set)
    assert pool._threads == set()
    with pool._shutdown_lock:
        pass
    pool.submit(int).result(10)
    assert all(isinstance(thread, threading.Thread) for thread in pool._threads)
    assert len(pool._threads) == 1
    pool.shutdown()
    assert pool._shutdown is True


def test_the_work_queue_tells_what_is_pending(one):
    assert one._work_queue.empty()
    with occupied(one):
        for n in range(5):
            one.submit(abs, n)
            assert one._work_queue.qsize() == n + 1
        assert not one._work_queue.empty()
    one.submit(int).result(10)
    assert one._work_queue.qsize() == 0


def test_the_work_queue_hands_out_tasks(one):
    ran = []
    with occupied(one):
        task = one.submit(ran.append, 1)
        keyed = one.submit(dict, [(1, 2)], a=3)
        plain = one.submit(list)
        item = one._work_queue.get()
        assert (item.future, item.fn, item.args, item.kwargs) == (task, ran.append, (1,), {})
        item = one._work_queue.get_nowait()
        assert (item.future, item.fn, item.args, item.kwargs) == (
            keyed,
            dict,
            ([(1, 2)],),
            {"a": 3},
        )
        item = one._work_queue.get(block=True, timeout=1)
        assert (item.future, item.fn, item.args, item.kwargs) == (plain, list, (), {})
        with pytest.raises(queue.Empty):
            one._work_queue.get_nowait()
        with pytest.raises(queue.Empty):
            one._work_queue.get(timeout=0.01)
        with pytest.raises(queue.Empty):
            one._work_queue.get(False)
    one.submit(int).result(10)
    assert ran == []
    assert not task.done()
    task.set_result(5)
    assert task.result(0) == 5
    assert keyed.cancel()
    assert plain.set_running_or_notify_cancel()
    plain.set_result([])


def test_a_cancelled_task_is_not_handed_out(one):
    with occupied(one):
        first, second = one.submit(int), one.submit(abs, -1)
        first.cancel()
        assert one._work_queue.get_nowait().future is second


def test_a_work_queue_that_is_assigned_is_refused_and_says_what_to_do():
    """A known way to bound the backlog of the stdlib's pool."""

    class Bounded(ThreadPoolExecutor):
        def __init__(self, *args):
            super().__init__(*args)
            self._work_queue = queue.Queue(5)

    with pytest.raises(AttributeError, match=r"ThreadPoolExecutor\(max_pending=n\) bounds it$"):
        Bounded(1)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(AttributeError, match="max_pending"):
            pool._work_queue = queue.Queue(5)
        assert pool.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize(
    ("name", "error"), [("_shutdown", ShutdownError), ("_broken", BrokenThreadPool)]
)
def test_a_private_name_that_is_assigned_releases_a_blocked_submit(name, error):
    with ThreadPoolExecutor(1, max_pending=1) as pool, occupied(pool):
        pool.submit(int)
        setter = threading.Timer(0.05, setattr, [pool, name, True])
        setter.start()
        with pytest.raises(error):
            pool.submit(int)


def test_a_pool_that_was_shut_down_is_not_opened_by_a_private_name(one):
    one.shutdown()
    one._shutdown = False
    with pytest.raises(ShutdownError, match=r"^cannot schedule new futures after shutdown$"):
        one.submit(int)


def test_attributes_stay_on_a_pool(one):
    one.note = 5
    assert vars(one)["note"] == 5


def test_a_subclass_may_add_what_it_wants():
    class Pool(ThreadPoolExecutor):
        def __init__(self, size):
            super().__init__(max_workers=size, thread_name_prefix="mine")
            self.extra = []

        def shutdown(self, *args, **kwargs):
            self.extra.append((args, kwargs))
            return super().shutdown(*args, **kwargs)

    with Pool(2) as pool:
        assert pool.submit(abs, -1).result(10) == 1
    assert pool.extra == [((), {"wait": True})]


# ---- counters


def test_stats_count(one):
    assert one.stats() == PoolStats(*[0] * len(PoolStats._fields))
    assert one.worker_count == 0
    for _ in range(10):
        one.submit(int).result(10)
    one.submit(lambda: one.submit(int)).result(10).result(10)
    stats = one.stats()
    assert (stats.pushed_outside, stats.pushed_inside, stats.taken) == (11, 1, 12)
    assert (stats.workers, stats.pending) == (1, 0)
    assert one.worker_count == 1
    with occupied(one):
        one.submit(int)
        assert one.stats().pending == 1
    one.shutdown()
    assert one.worker_count == 0


def test_taking_a_call_races_with_cancelling_it():
    with ThreadPoolExecutor(1) as pool:
        gate = threading.Event()
        pool.submit(gate.wait, 30)
        argument = Probe()
        alive = weakref.ref(argument)
        for _ in range(30):
            tasks = [pool.submit(id, argument) for _ in range(50)]
            barrier = threading.Barrier(2)

            def take(tasks=tasks, barrier=barrier):
                barrier.wait(10)
                for task in tasks:
                    task._take_call()

            def cancel(tasks=tasks, barrier=barrier):
                barrier.wait(10)
                for task in tasks:
                    task.cancel()

            threads = [threading.Thread(target=target) for target in (take, cancel)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert all(task.cancelled() for task in tasks)
            del tasks, take, cancel, threads
        gate.set()
    assert alive() is argument
    del argument
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", ["max_workers", "shards", "stack_size"])
def test_a_wrong_type_is_named(name):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, not str$"):
        ThreadPoolExecutor(**{name: "4"})


@pytest.mark.parametrize("name", ["thread_per_core", "cancel_on_error", "wait_at_exit"])
@pytest.mark.parametrize("value", ["no", None, 0, 1])
def test_flags_are_true_or_false(name, value):
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"^{name} must be True or False, not {kind}$"):
        ThreadPoolExecutor(**{name: value})


def test_initargs_of_a_wrong_type_are_named():
    with pytest.raises(TypeError, match=r"^initargs must be a tuple of arguments, not int$"):
        ThreadPoolExecutor(1, initializer=int, initargs=5)


def test_what_goes_wrong_in_initargs_is_no_wrong_type():
    def values():
        yield 1
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        ThreadPoolExecutor(1, initializer=int, initargs=values())


@pytest.mark.parametrize("size", [-1, 0, 5, 2**63])
def test_a_stack_size_that_cannot_be_says_what_can(size):
    with pytest.raises(ValueError, match=f"^stack_size must be .*32768 or more.*, not {size}$"):
        ThreadPoolExecutor(1, stack_size=size)


def test_on_full_without_a_bound_has_no_effect():
    with ThreadPoolExecutor(1, on_full="raise") as pool, occupied(pool):
        tasks = [pool.submit(int) for _ in range(100)]
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize(
    "name", ["AffinityPoolError", "PendingLimitError", "ShutdownError", "SubmitError"]
)
def test_errors_are_named_where_users_import_them_from(name):
    assert getattr(affinitypool, name).__module__ == "affinitypool"


def test_propagate_context_is_a_flag():
    with pytest.raises(TypeError, match="propagate_context must be True, False or None, not str"):
        ThreadPoolExecutor(propagate_context="no")


def test_the_other_executors_are_those_of_the_stdlib():
    assert affinitypool.ProcessPoolExecutor is concurrent.futures.ProcessPoolExecutor
    with pytest.raises(AttributeError, match="no attribute 'Executors'"):
        affinitypool.Executors  # noqa: B018


def test_a_second_init_is_refused_and_changes_nothing():
    with ThreadPoolExecutor(1) as pool:
        threads = pool._threads
        assert pool.submit(abs, -1).result(10) == 1
        with pytest.raises(RuntimeError, match="initialised already"):
            pool.__init__(2)
        assert pool._threads is threads
        assert pool._max_workers == 1
        assert pool.submit(abs, -2).result(10) == 2
