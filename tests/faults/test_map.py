"""`map`, and what is near it.  Ordinary use: tests/test_map.py."""

from __future__ import annotations

import _thread
import contextlib
import functools
import gc
import itertools
import logging
import operator
import signal
import sys
import threading
import time
import weakref

import pytest
from helpers import (
    HAS_GIL,
    Probe,
    all_dead,
    at_once,
    eventually,
    fail,
    no_collector,
    occupied,
)

from affinitypool import (
    BrokenThreadPool,
    PendingLimitError,
    ShutdownError,
    ThreadPoolExecutor,
)

pytestmark = pytest.mark.timeout(60)

both = pytest.mark.parametrize("buffersize", [None, 1, 3, 1000])
every_size = pytest.mark.parametrize("size", [1, 2, 8, 100])


class Own(BaseException):
    pass


class Input:
    """An iterator that notes how far ahead of the results it is pulled, and by whom."""

    def __init__(self, items=None):
        self.items = itertools.count() if items is None else iter(items)
        self.pulled = self.taken = self.ahead = 0
        self.threads = set()
        self.ended = False

    def note(self):
        self.threads.add(threading.get_ident())

    def __iter__(self):
        self.note()
        return self

    def __length_hint__(self):
        self.note()
        return 10**6

    def __next__(self):
        self.note()
        item = next(self.items)
        self.pulled += 1
        self.ahead = max(self.ahead, self.pulled - self.taken)
        return item

    def take(self, results):
        result = next(results)
        self.taken += 1
        return result


# ---- an endless input


@every_size
@pytest.mark.parametrize("columns", [1, 3])
def test_an_endless_input_is_pulled_no_further_than_the_buffer(pool, size, columns):
    """An endless input with `buffersize=8`: at most 9 items pulled ahead, in order, iterated only
    in the caller's thread."""
    inputs = [Input() for _ in range(columns)]
    results = pool.map(lambda *row: row, *inputs, buffersize=size)
    assert [source.pulled for source in inputs] == [size] * columns
    for n in range(150):
        assert inputs[0].take(results) == (n,) * columns
        for source in inputs[1:]:
            source.taken += 1
    for source in inputs:
        assert source.ahead <= size + 1
        assert source.pulled == 150 + size
        assert source.threads == {threading.get_ident()}
    results.close()
    assert [source.pulled for source in inputs] == [150 + size] * columns


@every_size
def test_nothing_is_pulled_while_nothing_is_taken(pool, size):
    """However long the caller takes, and however quick the workers are."""
    source = Input()
    results = pool.map(abs, source, buffersize=size)
    for n in range(5):
        assert source.take(results) == n
        assert pool.wait_idle(10)
        assert source.pulled == size + n + 1
    results.close()


@pytest.mark.parametrize("size", [4, 8])
def test_results_come_in_order_though_the_calls_end_in_reverse(size):
    """In order: each call ends only after the next one has."""
    ended = [threading.Event() for _ in range(200)]

    def work(n):
        if n % size != size - 1:
            assert ended[n + 1].wait(10)
        ended[n].set()
        return n

    with ThreadPoolExecutor(size) as pool:
        source = Input(range(200))
        # the next block of calls only begins once the block before has been taken
        assert list(pool.map(work, source, buffersize=size)) == list(range(200))
    assert source.threads == {threading.get_ident()}


def test_whoever_asks_for_the_next_result_iterates(two):
    """The caller is who calls `next`: several threads in turn, and a worker of the pool."""
    source = Input()
    results = two.map(abs, source, buffersize=4)
    assert source.threads == {threading.get_ident()}
    source.threads.clear()
    (other,) = at_once(lambda: [next(results) for _ in range(5)] and threading.get_ident())
    assert source.threads == {other}
    source.threads.clear()
    worker = two.submit(lambda: [next(results) for _ in range(5)] and threading.get_ident())
    assert source.threads == {worker.result(10)}
    assert next(results) == 10
    results.close()


@pytest.mark.parametrize("how", ["close", "drop", "error", "end", "timeout"])
def test_the_input_is_left_in_the_callers_thread(two, how):
    """A generator's `finally` runs where the caller lets go of it, and as soon as that."""
    left = []

    def items():
        try:
            yield from range(20 if how == "end" else 10**9)
        finally:
            left.append(threading.get_ident())

    gate = threading.Event()

    def work(n):
        if n == 6 and how == "error":
            raise KeyError
        if n == 6 and how == "timeout":
            gate.wait(20)
        return n

    options = {"timeout": 0.2} if how == "timeout" else {}
    with no_collector(collect=False):
        results = two.map(work, items(), buffersize=3, **options)
        if how in ("close", "drop"):
            assert [next(results) for _ in range(4)] == list(range(4))
            assert left == []
            if how == "close":
                results.close()
        else:
            with contextlib.suppress(KeyError, TimeoutError):
                for _ in results:
                    assert left == [] or how == "end"
        del results
        assert left == [threading.get_ident()]
        gate.set()


@pytest.mark.parametrize("use", ["next", "close", "throw"])
def test_two_threads_that_use_one_iterator_at_once(two, use):
    """As with every generator: one of them is told so; pool and iterator stay sound."""
    entered, gate = threading.Event(), threading.Event()

    def items():
        yield from range(3)
        entered.set()
        gate.wait(10)
        yield from range(3, 6)

    results = two.map(abs, items(), buffersize=2)
    assert next(results) == 0
    arguments = [KeyError()] if use == "throw" else []

    def meddle():
        assert entered.wait(10)
        try:
            with pytest.raises(ValueError, match="already executing"):
                next(results) if use == "next" else getattr(results, use)(*arguments)
        finally:
            gate.set()

    rest, _ = at_once(lambda: list(results), meddle)
    assert rest == [1, 2, 3, 4, 5]
    assert two.submit(abs, -1).result(10) == 1


# ---- the input raises


INPUT_ERRORS = [KeyError("in"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Own()]


@pytest.mark.parametrize("error", INPUT_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("columns", [1, 2])
def test_an_input_that_raises(two, error, at, size, columns):
    """At the call, or at the `next` that pulls so far; what has not started then is cancelled."""
    ran = []

    def items():
        yield from range(at)
        raise error

    def run():
        for result in two.map(
            lambda *row: ran.append(row[0]) or row[0],
            items(),
            *[range(100)] * (columns - 1),
            buffersize=size,
        ):
            taken.append(result)

    taken = []
    with pytest.raises(type(error)) as caught:
        run()
    assert caught.value is error
    assert taken == list(range(0 if size is None else max(0, at - size)))
    assert two.wait_idle(10)
    assert len(ran) == len(set(ran))
    assert set(ran) <= set(range(at))
    if size is None:
        assert sorted(ran) == list(range(at))  # as the stdlib: what was submitted runs
    assert two.submit(abs, -1).result(10) == 1


class Stops:
    """Raises StopIteration, goes on if it is asked again, and may raise something else then."""

    def __init__(self, *script):
        self.script = list(script)

    def __iter__(self):
        return self

    def __next__(self):
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


@both
def test_an_input_that_ends_and_goes_on(two, buffersize):
    """Once it has ended it has ended, as for `zip`; what it has to say later matters to nobody."""
    source = Stops(1, 2, StopIteration(), *[StopIteration()] * 10)
    assert list(two.map(abs, source, buffersize=buffersize)) == [1, 2]


@both
def test_a_generator_that_raises_stop_iteration(two, buffersize):
    def items():
        yield 1
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(two.map(abs, items(), buffersize=buffersize))


@both
@pytest.mark.parametrize(
    "source", [5, None, object(), int, [1].__len__], ids=lambda item: type(item).__name__
)
def test_what_cannot_be_iterated(two, buffersize, source):
    for rows in ([source], [[1], source], [source, [1]]):
        with pytest.raises(TypeError):
            two.map(abs, *rows, buffersize=buffersize)
    assert two.stats().taken == 0


class Indexed:
    """Iterated by __getitem__."""

    def __getitem__(self, n):
        if n >= 5:
            raise IndexError
        return n


class BadIter:
    def __iter__(self):
        return 5


class BadLength:
    def __init__(self):
        self.items = iter(range(5))

    def __iter__(self):
        return self.items

    def __len__(self):
        raise OSError("len")

    __length_hint__ = __len__


@both
def test_inputs_of_odd_kinds(two, buffersize):
    assert list(two.map(abs, Indexed(), buffersize=buffersize)) == list(range(5))
    assert list(two.map(abs, BadLength(), buffersize=buffersize)) == list(range(5))
    with pytest.raises(TypeError):
        two.map(abs, BadIter(), buffersize=buffersize)
    changing = {n: n for n in range(5)}

    def items():
        for n in changing:
            changing[n + 100] = n
            yield n

    with pytest.raises(RuntimeError, match="changed size"):
        list(two.map(abs, items(), buffersize=buffersize))


@pytest.mark.parametrize("buffersize", [None, 1, 3, 1000])
def test_the_shortest_input_ends_it(two, buffersize):
    """As `zip` does: of those before it one item more is pulled, of those after it none."""
    before, short, after = Input(), Input(range(4)), Input()
    results = two.map(lambda *row: sum(row), before, short, after, buffersize=buffersize)
    assert list(results) == [0, 3, 6, 9]
    assert (before.pulled, short.pulled, after.pulled) == (5, 4, 4)


@both
def test_an_input_that_uses_the_pool(one, buffersize):
    """It submits and waits, maps, and takes results of the very iterator's calls."""

    def items():
        for n in range(20):
            assert list(one.map(abs, [-n], buffersize=1)) == [n]
            yield one.submit(abs, -n).result(10)

    assert list(one.map(abs, items(), buffersize=buffersize)) == list(range(20))
    assert one.submit(lambda: list(one.map(abs, items(), buffersize=buffersize))).result(
        20
    ) == list(range(20))


@both
def test_two_maps_that_share_one_input(two, buffersize):
    """Every item goes to one of them, once."""
    source = iter(range(300))
    first = two.map(abs, source, buffersize=buffersize)
    second = two.map(abs, source, buffersize=buffersize)
    seen = []
    for pair in itertools.zip_longest(first, second):
        seen += [item for item in pair if item is not None]
    assert sorted(seen) == list(range(300))


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("size", [None, 1, 3])
def test_an_input_that_shuts_the_pool_down(columns, size):
    """Half-way: the call raises, and what was submitted runs."""
    ran = []
    pool = ThreadPoolExecutor(2)

    def items():
        yield from range(600)
        pool.shutdown(wait=False)
        yield from range(600, 700)

    with pytest.raises(ShutdownError):
        for _ in pool.map(
            lambda *row: ran.append(row[0]),
            items(),
            *[itertools.count()] * (columns - 1),
            buffersize=size,
        ):
            pass
    pool.shutdown()
    assert len(ran) == len(set(ran))
    assert set(ran) <= set(range(601))


# ---- the call raises, the caller stops


CALL_ERRORS = [KeyError("call"), SystemExit(3), KeyboardInterrupt(), Own(), GeneratorExit()]


@pytest.mark.parametrize("error", CALL_ERRORS, ids=lambda error: type(error).__name__)
@every_size
def test_a_call_that_raises_ends_the_pulling(one, error, size):
    """The results before it are given out, then the error, then nothing; no more is pulled."""
    source = Input()
    ran = []

    def work(n):
        ran.append(n)
        if n == 5:
            raise error
        return n

    results = one.map(work, source, buffersize=size)
    assert [source.take(results) for _ in range(5)] == list(range(5))
    with pytest.raises(type(error)) as caught:
        next(results)
    assert caught.value is error
    pulled = source.pulled
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(results)
    assert source.pulled == pulled <= 5 + size + 1
    assert one.wait_idle(10)
    assert ran == list(range(len(ran)))


@both
@pytest.mark.parametrize("how", ["close", "drop", "throw", "thread"])
def test_who_stops_early_cancels_what_has_not_started(one, buffersize, how):
    """Closing in the middle: what runs goes on, the rest is cancelled, the worker is free."""
    entered, gate, ran = threading.Event(), threading.Event(), []

    def work(n):
        if n == 2:
            entered.set()
            gate.wait(10)
        ran.append(n)
        return n

    source = Input(range(50))
    results = one.map(work, source, buffersize=buffersize)
    assert [next(results), next(results)] == [0, 1]
    if buffersize != 1:
        assert entered.wait(10)
    with no_collector(collect=False):
        if how == "close":
            results.close()
            results.close()
        elif how == "throw":
            with pytest.raises(Own):
                results.throw(Own())
        elif how == "thread":
            at_once(results.close)
        del results
    pulled = source.pulled
    gate.set()
    assert one.wait_idle(10)
    assert source.pulled == pulled
    assert ran in ([0, 1, 2], [0, 1])
    assert one.submit(abs, -1).result(10) == 1


@both
def test_leaving_a_loop_early_again_and_again(two, buffersize):
    """What a search for the first hit does, for years."""
    for n in range(60):
        for result in two.map(
            abs, itertools.count() if buffersize else range(50), buffersize=buffersize
        ):
            if result == n % 5:
                break
    assert two.wait_idle(10)
    assert two.stats().pending == 0


def test_an_interrupt_while_a_result_is_waited_for(one):
    """Ctrl-C: the caller gets it, what has not started is cancelled, no more is pulled."""
    source, ran = Input(), []
    main = threading.main_thread().ident
    with occupied(one):
        results = one.map(ran.append, source, buffersize=4)
        timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        timer.join()
        pulled = source.pulled
        with pytest.raises(StopIteration):
            next(results)
    assert one.wait_idle(10)
    assert (ran, source.pulled) == ([], pulled)


# ---- timeouts


@every_size
def test_a_timeout_bounds_the_whole_and_ends_the_pulling(one, size):
    source, ran, gate = Input(), [], threading.Event()

    def work(n):
        if n == 3:
            gate.wait(20)
        ran.append(n)
        return n

    results = one.map(work, source, timeout=0.1, buffersize=size)
    taken = []
    with pytest.raises(TimeoutError):
        taken.extend(iter(functools.partial(next, results), "never"))
    assert taken == list(range(len(taken)))
    assert len(taken) <= 3
    pulled = source.pulled
    with pytest.raises(StopIteration):
        next(results)
    gate.set()
    assert one.wait_idle(10)
    assert source.pulled == pulled <= len(taken) + size + 1
    assert ran in (list(range(4)), list(range(len(taken))), list(range(len(taken) + 1)))


@both
def test_a_timeout_that_has_passed_does_not_hide_what_is_done(one, buffersize):
    results = one.map(abs, range(3), timeout=0, buffersize=buffersize)
    assert one.wait_idle(10)
    if buffersize == 1:  # each next submits one more, which is not waited for
        assert next(results) == 0
        with contextlib.suppress(TimeoutError):
            list(results)
    else:
        assert list(results) == [0, 1, 2]


def test_a_slow_input_counts_against_the_timeout(one):
    """The deadline counts from the call; a result that is there is given out all the same."""
    gate = threading.Event()

    def items():
        yield 1
        gate.wait(0.1)
        yield 2
        yield 3

    results = one.map(abs, items(), timeout=0.05, buffersize=1)
    assert one.wait_idle(10)
    with contextlib.suppress(TimeoutError):
        assert next(results) == 1
        list(results)
    assert one.submit(abs, -1).result(10) == 1


# ---- chunksize, buffersize


@both
@pytest.mark.parametrize("chunksize", [-1, 0, 1, 7, 10**9])
def test_chunksize_changes_nothing(two, chunksize, buffersize):
    """It never has, for threads."""
    source = Input(range(30))
    results = two.map(abs, source, chunksize=chunksize, buffersize=buffersize)
    assert source.pulled == min(30, buffersize or 30)
    assert list(results) == list(range(30))


@pytest.mark.parametrize(
    ("buffersize", "error"),
    [
        ("8", TypeError),
        (8.0, TypeError),
        ([8], TypeError),
        ({}, TypeError),
        (0, ValueError),
        (False, ValueError),
        (-1, ValueError),
        (-(10**30), ValueError),
    ],
    ids=repr,
)
def test_a_bad_buffersize_is_refused_before_anything_is_pulled(two, buffersize, error):
    source = Input()
    with pytest.raises(error, match="buffersize"):
        two.map(abs, source, buffersize=buffersize)
    assert (source.pulled, source.threads) == (0, set())


@pytest.mark.parametrize("buffersize", [True, 2**31, sys.maxsize, 2**63, 10**30], ids=repr)
def test_buffersizes_beyond_reason(two, buffersize):
    """As large as one can count; beyond that a ValueError or the same."""
    try:
        assert list(two.map(abs, range(20), buffersize=buffersize)) == list(range(20))
    except ValueError:
        assert buffersize > sys.maxsize
    assert two.submit(abs, -1).result(10) == 1


# ---- the pool ends before the map


def test_a_pool_that_is_shut_down_in_the_middle(two):
    source, ran = Input(), []
    results = two.map(lambda n: ran.append(n) or n, source, buffersize=4)
    assert source.take(results) == 0
    two.shutdown()
    with pytest.raises(ShutdownError):
        next(results)
    assert source.ahead <= 5
    assert sorted(ran) == list(range(len(ran)))


@both
def test_a_pool_that_cancels_in_the_middle(one, buffersize):
    from affinitypool import CancelledError

    entered, gate = threading.Event(), threading.Event()

    def work(n):
        entered.set()
        gate.wait(10)
        return n

    results = one.map(work, range(6), buffersize=buffersize)
    assert entered.wait(10)
    one.shutdown(wait=False, cancel_futures=True)
    gate.set()
    with pytest.raises((CancelledError, ShutdownError)):
        list(results)


@both
def test_a_pool_that_breaks_in_the_middle(buffersize, monkeypatch):
    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", lambda record: None)
    gate = threading.Event()
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), fail(OSError("start"))))
    results = pool.map(abs, range(5), buffersize=buffersize)
    gate.set()
    with pytest.raises(BrokenThreadPool):
        list(results)
    with pytest.raises(BrokenThreadPool):
        pool.map(abs, range(5), buffersize=buffersize)
    pool.shutdown()


@every_size
def test_a_pool_that_is_dropped_in_the_middle(size):
    """What is in the buffer is given out; nothing more is pulled."""
    source = Input()
    pool = ThreadPoolExecutor(2)
    results = pool.map(abs, source, buffersize=size)
    assert source.take(results) == 0
    with no_collector(collect=False):
        death = weakref.ref(pool)
        del pool
        assert all_dead([death])
    assert list(results) == list(range(1, size + 1))
    assert source.pulled == size + 1


# ---- many at once


@pytest.mark.parametrize("size", [None, 1, 4, 64])
def test_every_item_runs_exactly_once(pool, size):
    counts = [0] * 3000

    def work(n):
        counts[n] += 1
        return n

    assert list(pool.map(work, range(3000), buffersize=size)) == list(range(3000))
    assert counts == [1] * 3000


def test_many_maps_at_once(two):
    """Interleaved in one thread, and in several."""
    maps = [
        two.map(operator.mul, itertools.repeat(k), itertools.count(), buffersize=k + 1)
        for k in range(10)
    ]
    for n in range(50):
        assert [next(results) for results in maps] == [k * n for k in range(10)]
    maps.clear()

    def run(size):
        source = Input(range(200))
        results = two.map(abs, source, buffersize=size)
        taken = [source.take(results) for _ in range(200)]
        return taken == list(range(200)), source.ahead <= size + 1, len(source.threads)

    sizes = (1, 2, 5, 8)
    assert at_once(*(functools.partial(run, size) for size in sizes)) == [(True, True, 1)] * 4


@pytest.mark.parametrize("size", [None, 1, 4])
def test_maps_within_maps_on_one_worker(one, size):
    """The worker takes the calls that it waits for itself; its input is iterated there."""

    def inner(n):
        source = Input(range(n))
        total = sum(one.map(abs, source, buffersize=size))
        assert source.threads <= {threading.get_ident()}
        return total

    def middle(n):
        return sum(one.map(inner, range(n), buffersize=size))

    assert list(one.map(middle, range(8), buffersize=size)) == [
        sum(sum(range(k)) for k in range(n)) for n in range(8)
    ]


@both
def test_a_map_from_a_callback_and_from_a_finalizer(two, buffersize):
    seen = []

    class Dying:
        def __del__(self):
            seen.append(sum(two.map(abs, range(10), buffersize=buffersize)))

    with occupied(two):
        task = two.submit(id, Dying())
        task.add_done_callback(
            lambda _: seen.append(sum(two.map(abs, range(10), buffersize=buffersize)))
        )
    assert eventually(lambda: seen == [45, 45], 10)


@pytest.mark.parametrize("how", ["fails", "closed"])
def test_a_large_map_that_ends_early_costs_about_linear_time(how):
    """A hundred thousand calls, of which the first one fails, or is enough."""

    def run(count):
        gate = threading.Event()

        def work(n):
            if n:
                gate.wait(20)
            elif how == "fails":
                raise KeyError

        with ThreadPoolExecutor(1) as pool:
            begin = time.process_time()
            results = pool.map(work, range(count))
            with contextlib.suppress(KeyError):
                next(results)
            results.close()
            used = time.process_time() - begin
            gate.set()
        return used

    small = min(run(5_000) for _ in range(3))
    assert run(100_000) < 0.2 + 60 * small


# ---- what a map holds


@pytest.mark.parametrize("how", ["plain", "rows", "buffered", "buffered-rows"])
def test_the_arguments_of_a_map_are_let_go(two, how):
    """The items live as long as their calls, not as long as the iterator."""
    deaths = []

    def make():
        probe = Probe()
        deaths.append(weakref.ref(probe))
        return probe

    def items():
        for _ in range(6):
            yield make()

    sources = [items() for _ in range(2 if "rows" in how else 1)]
    with no_collector(collect=False):
        results = two.map(lambda *row: 0, *sources, buffersize=3 if "buffered" in how else None)
        for _ in range(6):
            assert next(results) == 0
        del sources
        assert all_dead(deaths)
        assert next(results, None) is None


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("kind", ["error", "timeout", "cancelled"])
def test_a_failed_map_leaves_no_cycle(two, size, kind):
    """With the collector off: what it raised, the results not taken and the calls not run die."""
    from affinitypool import CancelledError

    deaths, gate = [], threading.Event()

    class Error(Exception):
        pass

    def work(n):
        if n == 1:
            if kind == "error":
                error = Error()
                deaths.append(weakref.ref(error))
                try:
                    raise error
                finally:
                    del error
            gate.wait(20)
        probe = Probe()
        deaths.append(weakref.ref(probe))
        return probe

    def run():
        results = two.map(work, range(6), buffersize=size, timeout=0.1 if kind == "timeout" else 20)
        deaths.append(weakref.ref(results))
        with contextlib.suppress(Error, TimeoutError, CancelledError):
            if kind == "cancelled":
                next(results)
                results.throw(CancelledError())
            for _ in results:
                pass

    with no_collector(collect=False):
        run()
        gate.set()
        assert two.wait_idle(10)
        assert all_dead(deaths)


@pytest.mark.parametrize("size", [None, 3])
def test_a_kept_error_of_a_map_keeps_no_other_results(two, size):
    """The error may be kept for long; its traceback must not keep the rest of a large map."""
    deaths, ready = [], []

    def work(n):
        if n == 1:
            assert eventually(lambda: len(ready) >= 2)
            raise KeyError
        probe = Probe()
        deaths.append(weakref.ref(probe))
        ready.append(n)
        return probe

    with no_collector(collect=False):
        results, kept = two.map(work, range(4), buffersize=size), None
        try:
            while True:
                next(results)
        except KeyError as error:
            kept = error
        assert two.wait_idle(10)
        assert deaths
        assert all_dead(deaths)
        assert kept is not None


def test_an_abandoned_map_is_no_cycle(two):
    with no_collector(collect=False):
        for size in (None, 2):
            results = two.map(Probe, *[[]], buffersize=size)
            unstarted = two.map(abs, range(5), buffersize=size)
            started = two.map(abs, range(5), buffersize=size)
            next(started)
            deaths = [weakref.ref(item) for item in (results, unstarted, started)]
            del results, unstarted, started
            assert all_dead(deaths)
    gc.collect()


# ---- bounded pools


@pytest.mark.parametrize("on_full", ["block", "caller_runs"])
@pytest.mark.parametrize("size", [None, 1, 5])
def test_a_bounded_pool_maps_in_order_and_never_holds_more(on_full, size):
    """More items than `max_pending`: the caller waits, or helps; the order is the same."""
    most = []
    with ThreadPoolExecutor(2, max_pending=3, on_full=on_full) as pool:

        def work(n):
            most.append(pool._work_queue.qsize())
            return n

        source = Input(range(200))
        assert list(pool.map(work, source, buffersize=size)) == list(range(200))
        assert max(most) <= 3
        assert source.threads == {threading.get_ident()}


@pytest.mark.parametrize("size", [None, 5])
def test_a_bounded_pool_that_raises_cancels_what_map_submitted(size):
    ran = []
    with (
        ThreadPoolExecutor(1, max_pending=3, on_full="raise") as pool,
        occupied(pool),
        pytest.raises(PendingLimitError),
    ):
        pool.map(ran.append, range(20), buffersize=size)
    assert ran == ([] if size is None else ran)


@pytest.mark.parametrize("name", ["map", "submit_many"])
def test_a_signal_is_handled_while_a_builtin_iterator_is_read(one, name):
    """Reading it runs no Python code, and yet Ctrl-C ends it soon, not at its end."""
    rest = iter(itertools.repeat(0, 60_000))
    interrupt = map(_thread.interrupt_main, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        getattr(one, name)(bool, itertools.chain(interrupt, rest))
    assert operator.length_hint(rest) > 50_000
    assert one.submit(abs, -1).result(10) == 1


@pytest.mark.skipif(not HAS_GIL, reason="without a GIL other threads run anyway")
@pytest.mark.parametrize("name", ["map", "submit_many"])
def test_other_threads_run_while_a_builtin_iterator_is_read(one, name):
    """Neighbour: it lets go of the GIL now and then, as Python code does."""
    rest, gate = itertools.count(), threading.Event()

    def interrupt():
        gate.wait(20)
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    gate.set()
    with pytest.raises(KeyboardInterrupt):
        getattr(one, name)(bool, itertools.islice(rest, 1_000_000))
    thread.join(10)
    assert next(rest) < 1_000_000
    assert one.submit(abs, -1).result(10) == 1
