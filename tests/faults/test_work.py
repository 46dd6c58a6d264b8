"""Work lost, doubled, stranded: wakes, exactly once, refused threads, shutdown, wrap-around."""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import signal
import threading
import time
import weakref

import pytest
from helpers import Probe, check_python, eventually, no_collector, occupied

from affinitypool import (
    CancelledError,
    PendingLimitError,
    ShutdownError,
    ThreadPoolExecutor,
    wait,
)
from affinitypool._binding import core as core_module
from affinitypool._binding import ffi, lib
from affinitypool._threads import WorkerThread
from faults.interrupts import at_each_place, handled, pending_at

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def core_options(monkeypatch):
    """Have pools made with options that only tests know: where indices start, slots of a ring."""
    real = core_module.Core

    def use(**options):
        monkeypatch.setattr(core_module, "Core", lambda *given: real(*given, **options))

    return use


# How one call is submitted: gives its task.
HOW = {
    "submit": lambda pool, fn, *args: pool.submit(fn, *args),
    "try_submit": lambda pool, fn, *args: pool.try_submit(fn, *args),
    "submit_many": lambda pool, fn, *args: pool.submit_many(fn, *([arg] for arg in args))[0],
    "a task": lambda pool, fn, *args: pool.submit(pool.submit, fn, *args).result(20),
    "a batch of a task": lambda pool, fn, *args: pool.submit(
        pool.submit_many, fn, *([arg] for arg in args)
    ).result(20)[0],
}
OUTSIDE = ["submit", "try_submit", "submit_many"]
every_how = pytest.mark.parametrize("how", HOW.values(), ids=HOW)

from_outside = pytest.mark.parametrize("how", [HOW[name] for name in OUTSIDE], ids=OUTSIDE)

SHARDS = (None, 2, 4)


# ---- one at a time, with pauses


@every_how
def test_one_task_at_a_time_never_waits_for_a_further_one(how):
    """One no-op at a time with random pauses of 0 to 100 us: never a timeout."""
    chance = random.Random(3)
    for workers, shards in itertools.product((1, 2, 4), SHARDS):
        with ThreadPoolExecutor(workers, shards=shards) as pool:
            for n in range(25):
                assert how(pool, abs, -n).result(20) == n
                end = time.perf_counter() + chance.random() * 1e-4
                while time.perf_counter() < end:
                    pass


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_sleeping_pool_is_woken_from_everywhere(workers):
    """The same after every worker has gone to sleep: from main, threads, callbacks, finalizers."""
    tasks = []
    with ThreadPoolExecutor(workers) as pool:
        barrier = threading.Barrier(workers)
        wait([pool.submit(barrier.wait, 10) for _ in range(workers)])

        class Finalizer:
            def __del__(self):
                tasks.append(pool.submit(abs, -3))

        for _ in range(10):
            for submit in (
                lambda: tasks.append(pool.submit(abs, -1)),
                lambda: tasks.append(pool.submit_many(abs, [-2] * 3)[2]),
                lambda: Finalizer() and None,
                lambda: call_back_in(pool, lambda _: tasks.append(pool.submit(abs, -4))),
                lambda: in_thread(lambda: tasks.append(pool.submit(abs, -5))),
            ):
                assert eventually(lambda: pool.stats().idle == workers)
                submit()
                assert eventually(lambda: tasks)
                assert tasks.pop().result(20)


def call_back_in(pool, callback):
    pool.submit(int).add_done_callback(callback)


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)


# ---- exactly once


@pytest.mark.parametrize("shards", [None, 4])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("ring_slots", [0, 2])
@pytest.mark.parametrize("first_index", [0, 2**64 - 700])
def test_exactly_once(core_options, workers, shards, ring_slots, first_index):
    """Exactly once with 4 producers, each task spawning a child; rings that start at 2 slots."""
    core_options(ring_slots=ring_slots, first_index=first_index)
    each, ran = 100, collections.Counter()
    lock = threading.Lock()

    def count(key):
        with lock:
            ran[key] += 1

    with ThreadPoolExecutor(workers, shards=shards) as pool:

        def parent(key):
            count(key)
            return pool.submit(count, (*key, "child"))

        def produce(name):
            for n in range(0, each, 4):
                tasks = [pool.submit(parent, (name, n)), pool.submit(parent, (name, n + 1))]
                tasks += pool.submit_many(parent, [(name, n + 2), (name, n + 3)])
                wait([task.result(20) for task in tasks], 20)

        threads = [threading.Thread(target=produce, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    keys = {(name, n) for name in range(4) for n in range(each)}
    assert ran == collections.Counter(keys | {(*key, "child") for key in keys})


@pytest.mark.parametrize("ring_slots", [2, 4, 256])
def test_children_that_overflow_the_ring_run_once(core_options, ring_slots):
    """Each task has more children than its ring has slots, and they have children too."""
    core_options(ring_slots=ring_slots, first_index=2**64 - 3)
    ran = collections.Counter()
    lock = threading.Lock()

    def node(pool, key, depth):
        with lock:
            ran[key] += 1
        if depth:
            return [pool.submit(node, pool, (*key, n), depth - 1) for n in range(9)]
        return []

    def leaves(tasks):
        for task in tasks:
            yield from leaves(task.result(20))
            yield task

    with ThreadPoolExecutor(3, shards=2) as pool:
        tasks = list(leaves([pool.submit(node, pool, (), 3)]))
    assert len(tasks) == len(ran) == 1 + 9 + 81 + 729
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_exactly_once_beside_cancels_and_waits(workers):
    """A task runs once or is cancelled, whoever runs it: a worker, a waiting task, nobody."""
    ran = collections.Counter()
    lock = threading.Lock()

    def count(key):
        with lock:
            ran[key] += 1
        return key

    with ThreadPoolExecutor(workers, shards=2) as pool:

        def parent(key):
            tasks = [pool.submit(count, (key, n)) for n in range(6)]
            cancelled = [task.cancel() for task in tasks[::3]]
            wait(tasks[:2], 20)
            tasks[5].exception(20)
            return tasks, cancelled

        parents = [pool.submit(parent, n) for n in range(300)]
        for key, task in enumerate(parents):
            tasks, cancelled = task.result(20)
            for n, child in enumerate(tasks):
                if n % 3 == 0 and cancelled[n // 3]:
                    assert child.cancelled()
                    assert (key, n) not in ran
                else:
                    assert child.result(20) == (key, n)
    assert set(ran.values()) == {1}


# ---- a task that blocks keeps nobody from its children


@pytest.mark.parametrize("asleep", [True, False], ids=["the others sleep", "the others are awake"])
@every_how
def test_children_of_a_blocked_task_run(how, asleep):
    """A task pushes children to its worker's queue and then blocks: an idle worker takes them."""
    for workers, shards, count in itertools.product((2, 4), SHARDS, (1, 2, 300)):
        with ThreadPoolExecutor(workers, shards=shards) as pool:
            barrier = threading.Barrier(workers)
            wait([pool.submit(barrier.wait, 10) for _ in range(workers)])
            if asleep:
                assert eventually(lambda pool=pool: pool.stats().idle == pool.stats().workers)
            done, gate = [], threading.Event()

            def child(n, count=count, done=done, gate=gate):
                done.append(n)
                if n == count - 1:
                    gate.set()

            def outer(pool=pool, count=count, child=child, gate=gate):
                if how in (HOW["submit_many"], HOW["a batch of a task"]):
                    pool.submit_many(child, range(count))
                else:
                    for n in range(count):
                        how(pool, child, n)
                return gate.wait(20)

            assert pool.submit(outer).result(30)
        assert sorted(done) == list(range(count))


def test_children_of_tasks_that_all_block_but_one():
    """Every worker but one blocks, with children in its ring: the one runs them all."""
    with ThreadPoolExecutor(4, shards=4) as pool:
        met, gate, done = threading.Barrier(4), threading.Event(), []

        def outer(name):
            met.wait(10)
            tasks = [pool.submit(done.append, (name, n)) for n in range(50)]
            if name:
                gate.wait(20)
            return tasks

        parents = [pool.submit(outer, name) for name in range(4)]
        assert eventually(lambda: len(done) == 200, 20)
        gate.set()
        for parent in parents:
            wait(parent.result(20), 20)
    assert len(set(done)) == 200


# ---- tasks that meet


@pytest.mark.parametrize("how", ["submit", "submit_many", "map", "from threads", "from a task"])
def test_as_many_tasks_as_workers_always_meet(how):
    """Three tasks that meet at a barrier on three workers always meet."""
    for workers, shards, _ in itertools.product((2, 3, 4), SHARDS, range(2)):
        with ThreadPoolExecutor(workers, shards=shards) as pool:
            for _ in range(5):
                assert sorted(meet(pool, how, threading.Barrier(workers, timeout=20))) == list(
                    range(workers)
                )


def meet(pool, how, barrier):
    """Have as many tasks as the barrier wants wait at it; return what they were given."""
    count, tasks = barrier.parties, []
    if how == "map":
        return pool.map(lambda _: barrier.wait(), range(count))
    if how == "submit_many":
        tasks = pool.submit_many(lambda _: barrier.wait(), range(count))
    elif how == "from threads":
        threads = [
            threading.Thread(target=lambda: tasks.append(pool.submit(barrier.wait)))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    elif how == "from a task":

        def outer():
            children = [pool.submit(barrier.wait) for _ in range(count - 1)]
            return barrier.wait(), children

        here, tasks = pool.submit(outer).result(20)
        return [here, *(task.result(20) for task in tasks)]
    else:
        tasks = [pool.submit(barrier.wait) for _ in range(count)]
    return [task.result(20) for task in tasks]


# ---- the system refuses a thread


class Refusal:
    """Decides about each start of a thread: `on(n)` says whether the n-th, from 1, is refused."""

    def __init__(self):
        self.count = 0
        self.on = lambda n: False
        self.error = None  # or the one to raise
        self.meanwhile = lambda: None  # called before it is refused

    def start(self, original, *args, **kwargs):
        self.count += 1
        if self.on(self.count):
            self.meanwhile()
            raise self.error or RuntimeError("can't start new thread")
        return original(*args, **kwargs)

    def now(self, *numbers):
        """From now on refuse the starts of these numbers, or all."""
        self.count = 0
        self.on = (lambda n: n in numbers) if numbers else (lambda n: True)

    def over(self):
        self.on = lambda n: False


@pytest.fixture
def refusal(monkeypatch):
    """Refuse what the system is asked for when a thread starts."""
    refusal = Refusal()
    for name in ("_start_joinable_thread", "_start_new_thread"):
        original = getattr(threading, name, None)
        if original is not None:

            def start(*args, original=original, **kwargs):
                return refusal.start(original, *args, **kwargs)

            monkeypatch.setattr(threading, name, start)
    return refusal


def check_recovered(pool):
    """Check that the pool gets all its threads, that nothing is left over, and that it ends."""
    barrier = threading.Barrier(pool._max_workers)
    meeting = [pool.submit(barrier.wait, 20) for _ in range(pool._max_workers)]
    assert sorted(task.result(20) for task in meeting) == list(range(pool._max_workers))
    assert len(pool._threads) == pool._core.started == pool._max_workers
    assert eventually(lambda: pool.stats().pending == 0)
    assert pool.shutdown()


# Each makes calls of fn(n) for n below 6 and gives the tasks.
CALLS = {
    "submit": lambda pool, fn: [pool.submit(fn, n) for n in range(6)],
    "try_submit": lambda pool, fn: [pool.try_submit(fn, n) for n in range(6)],
    "submit_many": lambda pool, fn: pool.submit_many(fn, range(6)),
    "map": lambda pool, fn: list(pool.map(fn, range(6))) and [],
    "map with a buffer": lambda pool, fn: list(pool.map(fn, range(6), buffersize=2)) and [],
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def start_errors():
    """Return what a system may say that gives no thread: new ones, as they gather tracebacks."""
    return [RuntimeError("can't start new thread"), MemoryError(), BlockingIOError(11, "again")]


@every_call
def test_with_every_start_refused_a_call_raises_and_nothing_runs(refusal, call):
    """The OS refuses a thread: with no worker at all it raises, and its task never runs."""
    for error, workers in itertools.product(start_errors(), (1, 2, 4)):
        pool, ran = ThreadPoolExecutor(workers), []
        before = threading.active_count()
        refusal.error = error
        refusal.now()
        for _ in range(3):
            with pytest.raises(type(error)) as caught:
                call(pool, ran.append)
            assert caught.value is error
            assert pool.stats().pending == pool._core.started == len(pool._threads) == 0
        assert threading.active_count() == before
        refusal.over()
        check_recovered(pool)
        assert ran == []


@every_call
def test_with_one_start_refused_a_call_completes_or_raises(refusal, call):
    """A submit either returns a future that completes, or raises and its task never runs."""
    for workers, number in itertools.product((1, 2, 4), (1, 2, 3, 4)):
        pool, ran = ThreadPoolExecutor(workers), []

        def work(n, ran=ran):
            ran.append(n)
            time.sleep(0.001)  # so that further threads are wanted
            return n

        refusal.now(number)
        if number == 1:
            with pytest.raises(RuntimeError, match="can't start new thread"):
                call(pool, work)
            assert ran == []
            assert pool.stats().pending == 0
        else:
            tasks = call(pool, work)
            assert [task.result(20) for task in tasks] in ([], list(range(6)))
            assert eventually(lambda ran=ran: sorted(ran) == list(range(6)), 20)
        refusal.over()
        check_recovered(pool)
        assert len(ran) == len(set(ran))


@every_call
def test_with_workers_alive_a_refused_start_is_kept_quiet(refusal, call):
    """Those that run come to it."""
    for error, alive in itertools.product(start_errors(), (1, 2)):
        pool, ran = ThreadPoolExecutor(4), []
        barrier = threading.Barrier(alive)
        wait([pool.submit(barrier.wait, 10) for _ in range(alive)])
        refusal.error = error
        refusal.now()
        wait(call(pool, ran.append), 20)
        assert eventually(lambda ran=ran: sorted(ran) == list(range(6)), 20)
        assert len(pool._threads) == pool._core.started == alive
        refusal.over()
        check_recovered(pool)


def test_a_signal_handler_that_shuts_down_while_a_refused_start_is_cleaned_up(refusal, monkeypatch):
    """It does not wait for the place that the submit which it interrupts is about to give back."""
    pool, refused, ended = ThreadPoolExecutor(1), [], []
    refuse = WorkerThread.refuse

    def refuse_and_be_interrupted(thread):
        refused.append(thread)
        if len(refused) == 2:  # in launch, then from start.c
            signal.raise_signal(signal.SIGUSR1)
        return refuse(thread)

    monkeypatch.setattr(WorkerThread, "refuse", refuse_and_be_interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: ended.append(pool.shutdown(timeout=20)))
    try:
        refusal.now()
        begun = time.monotonic()
        with pytest.raises(RuntimeError):
            pool.submit(int)
        assert time.monotonic() - begun < 10
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (len(refused), len(ended)) == (2, 1)
    assert pool.shutdown()


@pytest.mark.parametrize("workers", [2, 4])
def test_a_refused_start_in_a_task_is_kept_quiet(refusal, workers):
    """A task whose submit is refused a thread goes on, and waits for what it submitted."""
    pool = ThreadPoolExecutor(workers)
    pool.submit(int).result(10)
    refusal.now()

    def work():
        tasks = [pool.submit(abs, -n) for n in range(10)]
        return [task.result() for task in tasks] + list(pool.map(abs, [-1]))

    assert pool.submit(work).result(20) == [*range(10), 1]
    refusal.over()
    check_recovered(pool)


def test_what_was_refused_leaves_nothing_behind(refusal):
    """A refused submit leaves nothing behind: no argument, no thread, no name."""
    pool = ThreadPoolExecutor(2, thread_name_prefix="mine")
    refusal.now()
    with no_collector():
        deaths = []
        for call in CALLS.values():
            argument = Probe()
            deaths.append(weakref.ref(argument))
            fn = argument.__class__.__hash__.__get__(argument)
            del argument
            with contextlib.suppress(RuntimeError):
                call(pool, fn)
            del fn
        assert eventually(lambda: not any(death() for death in deaths))
    refusal.over()
    check_recovered(pool)
    names = {thread.name for thread in pool._threads}
    assert names == {"mine_0", "mine_1"}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("alive", [0, 1])
def test_an_interrupted_start_raises_whatever_runs(refusal, interrupt, alive):
    """What is no Exception is the caller's, also with a worker alive, which then runs the task."""
    pool, ran, gate = ThreadPoolExecutor(3), [], threading.Event()
    if alive:
        pool.submit(gate.wait, 20)
    refusal.error = interrupt()
    refusal.now()
    with pytest.raises(interrupt):
        pool.submit(ran.append, 1)
    with pytest.raises(interrupt):
        pool.submit_many(ran.append, [2, 3])
    refusal.over()
    gate.set()
    if alive:  # it has counted what it took: start.c, b
        assert eventually(lambda: pool.stats().idle == 1)
    check_recovered(pool)
    assert sorted(ran) == ([1, 2, 3] if alive else [])


@pytest.mark.parametrize("workers", [1, 2])
@from_outside
def test_what_others_submit_while_a_start_is_refused_is_decided(refusal, how, workers):
    """It completes, or is visibly cancelled; or its submit raises: it is not left pending."""
    for _ in range(10):
        pool, ran, outcomes = ThreadPoolExecutor(workers), [], []

        def other(pool=pool, ran=ran, outcomes=outcomes):
            try:
                outcomes.append(how(pool, ran.append, 1))
            except RuntimeError as error:
                outcomes.append(error)

        thread = threading.Thread(target=other)

        def meanwhile(thread=thread, outcomes=outcomes):
            refusal.meanwhile = lambda: None
            refusal.over()
            thread.start()
            thread.join(20)
            assert outcomes

        refusal.meanwhile = meanwhile
        refusal.now(1)
        with contextlib.suppress(RuntimeError):
            pool.submit(ran.append, 2)
        [outcome] = outcomes
        if not isinstance(outcome, RuntimeError):
            wait([outcome], 20)
            assert outcome.cancelled() or ran.count(1) == 1
            assert outcome.done()
        check_recovered(pool)
        assert len(ran) == len(set(ran))


def test_a_refused_start_restores_the_stack_size(refusal):
    """threading.stack_size is process-wide."""
    pool = ThreadPoolExecutor(1, stack_size=512 * 1024)
    refusal.now()
    with pytest.raises(RuntimeError):
        pool.submit(int)
    assert threading.stack_size() == 0
    refusal.over()
    check_recovered(pool)


def test_a_refused_start_of_a_bounded_pool_gives_its_place_back(refusal):
    """max_pending counts what waits, and that does not."""
    pool = ThreadPoolExecutor(1, max_pending=2, on_full="raise")
    refusal.now()
    for _ in range(5):
        with pytest.raises(RuntimeError):
            pool.submit(int)
    refusal.over()
    with occupied(pool):
        tasks = [pool.submit(int) for _ in range(2)]
        with pytest.raises(PendingLimitError):
            pool.submit(int)
    assert [task.result(10) for task in tasks] == [0, 0]
    pool.shutdown()


def test_the_start_of_a_thread_is_refused_by_the_system():
    """The real thing: no room for its stack.  (Root is not bound by the number of processes.)"""
    out = check_python(
        """
        import resource, threading
        from affinitypool import ThreadPoolExecutor
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        pool = ThreadPoolExecutor(4, stack_size=256 << 20)
        small = ThreadPoolExecutor(2)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), hard))
        ran = []
        for call in (pool.submit, pool.try_submit):
            try:
                call(ran.append, 1)
            except RuntimeError as error:
                print(error)
        try:
            pool.submit_many(ran.append, [1, 2])
        except RuntimeError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (size + (600 << 20), hard))
        barrier = threading.Barrier(2)
        print(pool.submit(abs, -1).result(10))  # one thread now
        tasks = [pool.submit(abs, -n) for n in range(10)]
        print(sum(task.result(10) for task in tasks), len(pool._threads) < 4)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        barrier = threading.Barrier(4)
        print(sum(task.result(10) for task in [pool.submit(barrier.wait, 10) for _ in range(4)]))
        pool.shutdown()
        print(ran, small.submit(abs, -2).result(10))
        """
    )
    lines = out.splitlines()
    assert len(lines) == 7
    assert all("start new thread" in line for line in lines[:3])
    assert lines[3:] == ["1", "45 True", "6", "[] 2"]


# ---- submits that race a shutdown


@pytest.mark.parametrize("ending", ["shutdown", "cancel", "now", "drain", "timeout", "with"])
@from_outside
def test_when_shutdown_has_returned_every_future_is_done(how, ending):
    """Submit racing shutdown: when shutdown has returned, every future ever returned is done."""
    for workers in (1, 3, 1, 3):
        pool, tasks, ran, go = ThreadPoolExecutor(workers), [], [], threading.Barrier(3)

        def produce(pool=pool, tasks=tasks, ran=ran, go=go):
            go.wait(10)
            with contextlib.suppress(ShutdownError):
                while True:
                    tasks.append(how(pool, ran.append, None))

        threads = [threading.Thread(target=produce) for _ in range(2)]
        for thread in threads:
            thread.start()
        go.wait(10)
        if ending == "shutdown":
            assert pool.shutdown()
        elif ending == "cancel":
            assert pool.shutdown(cancel_futures=True)
        elif ending == "now":
            assert all(task.cancelled() for task in pool.shutdown_now())
        elif ending == "drain":
            assert pool.drain()
        elif ending == "timeout":
            assert pool.shutdown(timeout=20)
        else:
            with pool:
                pass
        seen = list(tasks)
        assert all(task.done() for task in seen)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert all(task.done() for task in tasks)
        if how is not HOW["submit_many"]:
            assert len(ran) == sum(not task.cancelled() for task in tasks)


@pytest.mark.parametrize("on_full", ["block", "raise", "caller_runs"])
def test_bounded_submits_that_race_shutdown(on_full):
    """The same with a bound, at which the submits wait, fail, or run the call themselves."""
    for _ in range(8):
        pool, tasks, ran = ThreadPoolExecutor(2, max_pending=3, on_full=on_full), [], []
        go = threading.Barrier(3)

        def produce(pool=pool, tasks=tasks, ran=ran, go=go):
            go.wait(10)
            with contextlib.suppress(ShutdownError):
                while True:
                    with contextlib.suppress(PendingLimitError):
                        tasks.append(pool.submit(ran.append, None))

        threads = [threading.Thread(target=produce) for _ in range(2)]
        for thread in threads:
            thread.start()
        go.wait(10)
        pool.shutdown()
        assert all(task.done() for task in list(tasks))
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert len(ran) == len(tasks)


class Ender:
    """A thread that waits to be told to shut a pool down."""

    def __init__(self, pool, **options):
        self._gate = threading.Lock()
        self._gate.acquire()
        self._pool = pool
        self.thread = threading.Thread(target=self._run, kwargs=options)
        self.thread.start()

    def _run(self, **options):
        self._gate.acquire()
        self._pool.shutdown(**options)

    def end(self):
        """Let it run until the pool is closed; it then waits for the workers."""
        self._gate.release()
        pool = ffi.cast("ap_pool *", self._pool._core.pool_address)
        while not lib.ap_pool_is_closed(pool):
            time.sleep(0)


@pytest.mark.parametrize("cancel", [False, True], ids=["", "cancels"])
@pytest.mark.parametrize("how", ["submit", "submit_many", "map", "submit beside a worker"])
def test_a_shutdown_of_another_thread_at_any_point_of_a_submit(how, cancel):
    """It comes when the submit has published its task and is about to start a thread for it."""

    def attempt(k):
        pool, ran, tasks = ThreadPoolExecutor(2), [], []
        if how == "submit beside a worker":
            tasks.append(pool.submit(time.sleep, 0.001))
        ender = Ender(pool, cancel_futures=cancel)
        called = []
        with (
            handled(signal.SIGUSR1, lambda: called.append(ender.end())),
            contextlib.suppress(ShutdownError, CancelledError),
            pending_at(k, signal.SIGUSR1) as seen,
        ):
            if how == "map":
                list(pool.map(ran.append, [1, 2]))
            elif how == "submit_many":
                tasks += pool.submit_many(ran.append, [1, 2])
            else:
                tasks.append(pool.submit(ran.append, 1))
        if not called:
            ender.end()
        ender.thread.join(20)
        assert not ender.thread.is_alive()
        assert all(task.done() for task in tasks)
        assert cancel or not any(task.cancelled() for task in tasks)
        assert len(ran) == len(set(ran))
        return seen[0] >= k

    at_each_place(attempt, step=2)


# ---- counters across their wrap-around


@pytest.mark.parametrize("before", [0, 1, 100, 127, 128, 129, 1000])
def test_queues_across_the_wrap_of_their_indices(core_options, before):
    """Counters and sequence numbers across their wrap-around."""
    core_options(first_index=2**64 - 1 - before, ring_slots=4)
    for workers, shards in itertools.product((1, 2, 4), SHARDS):
        use_all_queues(ThreadPoolExecutor(workers, shards=shards))


def use_all_queues(pool):
    """Push from everywhere, in every number; cancel; check the counters."""
    with pool:
        tasks = [pool.submit(abs, -n) for n in range(200)]
        tasks += pool.submit_many(abs, range(200, 700))
        tasks += pool.submit(lambda: [pool.submit(abs, n) for n in range(700, 900)]).result(20)
        assert [task.result(20) for task in tasks] == list(range(900))
        with occupied(pool):
            pending = [pool.submit(int) for _ in range(300)]
            assert pool.stats().pending == 300
            assert pool._work_queue.qsize() == 300
            assert all(task.cancel() for task in pending[::2])
        wait(pending, 20)
        assert eventually(lambda: pool.stats().pending == 0)

        def is_consistent():  # the cancelled ones are taken out later
            stats = pool.stats()
            return stats.pushed_outside + stats.pushed_inside == stats.taken

        assert eventually(is_consistent)
        assert pool.wait_idle(20)


def test_order_on_one_worker_across_the_wrap(core_options):
    """One worker: first in, first out, also there."""
    core_options(first_index=2**64 - 300)
    order = []
    with ThreadPoolExecutor(1) as pool, occupied(pool):
        for n in range(300):
            pool.submit(order.append, n)
        pool.submit_many(order.append, range(300, 700))
    assert order == list(range(700))


def test_cancelling_and_closing_across_the_wrap(core_options):
    """What is queued around the wrap is found by whoever takes it out."""
    core_options(first_index=2**64 - 200, ring_slots=2)
    for shards in SHARDS:
        pool = ThreadPoolExecutor(4, shards=shards)
        with occupied(pool):
            tasks = pool.submit_many(int, [0] * 500)
            taken = [pool._work_queue.get_nowait() for _ in range(10)]
            cancelled = pool.shutdown_now(0)
            assert len(cancelled) == 490
            for item in taken:
                item.run()
        assert pool.shutdown()
        assert all(task.done() for task in tasks)


@pytest.mark.parametrize("count", [0, 1, 2, 254, 255, 256, 65_534, 65_535, 65_536, 70_000])
def test_as_many_arguments_as_a_counter_holds_and_more(two, count):
    """The number of arguments is kept in 16 bits as long as it fits."""
    items = list(range(count))

    def work(*args, **kwargs):
        return len(args), args[-1:], kwargs

    assert two.submit(work, *items).result(10) == (count, tuple(items[-1:]), {})
    task = two.submit(work, *items, last=1)
    assert task.result(10) == (count, tuple(items[-1:]), {"last": 1})
    with occupied(two):
        task = two.submit(work, *items, last=1)
        call = two._work_queue.get_nowait()
        assert (len(call.args), call.kwargs) == (count, {"last": 1})
        call.run()
        assert task.result(0)[0] == count


def test_a_core_that_has_served_all_its_generations():
    """A task counts for its own pool only, however many pools its core has served since.

    It was handed over, and nobody has looked at it; when somebody does, that is no idle worker of
    the pool that its core serves now.  The number of the pool that a task remembers has 16 bits.
    """
    out = check_python(
        """
        import threading, time
        from affinitypool import ThreadPoolExecutor, _core
        from affinitypool._binding import core as _core
        tasks = []
        def unseen():
            with ThreadPoolExecutor(2) as pool:
                for _ in range(3):
                    tasks.append(pool.submit(int))
                    while tasks[-1]._state != "FINISHED":
                        time.sleep(0)
        for _ in range(40):
            unseen()
        for _ in range((1 << 16) - 20):  # then the number is one of those 40 again
            _core.Core(2)
        for _ in range(3):
            with ThreadPoolExecutor(2) as pool:
                first = pool.submit(int)
                first.result()
                assert {task.result() for task in tasks} == {0}
                barrier = threading.Barrier(2)
                meeting = [pool.submit(barrier.wait, 10) for _ in range(2)]
                assert sorted(task.result() for task in meeting) == [0, 1]
        print("done")
        """,
        timeout=60,
    )
    assert out == "done\n"


def test_a_ring_is_taken_from_outside_across_the_wrap(core_options):
    """What a worker has in its ring while it blocks: taken one by one, some of it cancelled."""
    core_options(first_index=2**64 - 5)
    with ThreadPoolExecutor(2, shards=2) as pool:
        ran, gate, pushed = [], threading.Event(), threading.Event()
        met = threading.Barrier(2)
        pool.submit(lambda: (met.wait(20), gate.wait(20)))  # occupies the other worker

        def outer():
            met.wait(20)
            tasks = [pool.submit(ran.append, n) for n in range(20)]
            pushed.set()
            assert gate.wait(20)
            return tasks

        task = pool.submit(outer)
        assert pushed.wait(20)
        for _ in range(12):
            pool._work_queue.get_nowait().run()
        assert ran == list(range(12))
        gate.set()
        wait(task.result(20), 20)
    assert sorted(ran) == list(range(20))


def test_more_producers_than_there_are_shards(core_options):
    """Producers are numbered in order of first use; their number matters to nobody."""
    core_options(first_index=2**64 - 50)
    with ThreadPoolExecutor(4, shards=4) as pool:
        tasks = []
        for _ in range(5):
            threads = [
                threading.Thread(target=lambda: tasks.append(pool.submit(int))) for _ in range(40)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
        assert [task.result(20) for task in tasks] == [0] * 200
