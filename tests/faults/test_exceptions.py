"""Exceptions and callbacks, and what is near it.  The hook: test_unobserved.py."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import contextvars
import functools
import logging
import operator
import sys
import threading
import time
import traceback

import pytest
from helpers import HAS_GIL, at_once, eventually, fail, occupied

import affinitypool
from affinitypool import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenThreadPool,
    CancelledError,
    Future,
    InvalidStateError,
    Task,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from faults.interrupts import at_each_place

pytestmark = pytest.mark.timeout(60)


# ---- errors of every kind; a fresh one for each test


class Own(BaseException):
    pass


class Falsy(Exception):
    def __bool__(self):
        return False


class Empty(Exception):
    def __len__(self):
        return 0


class BadBool(Exception):
    def __bool__(self):
        raise OSError("bool")


class Slots(Exception):
    __slots__ = ("code",)

    def __init__(self, code):
        self.code = code


class BadText(Exception):
    def __str__(self):
        raise OSError("str")

    __repr__ = __str__


class BadEquality(Exception):
    def __eq__(self, other):
        raise OSError("eq")

    def __hash__(self):
        raise OSError("hash")


class Unhashable(Exception):
    __hash__ = None


class BadAttributes(Exception):
    def __getattribute__(self, name):
        raise OSError(name)

    def __setattr__(self, name, value):
        raise OSError(name)


class BadTraceback(Exception):
    __traceback__ = property(lambda self: fail(OSError("get")))
    __context__ = __cause__ = __traceback__


class Liar(Exception):
    __class__ = int


class NeedsArguments(Exception):
    def __init__(self, one, two, *, three):
        super().__init__(one)


class Meta(type):
    def __instancecheck__(cls, instance):
        raise OSError("instancecheck")

    __subclasscheck__ = __instancecheck__


class BadChecks(Exception, metaclass=Meta):
    pass


ERRORS = {
    "SystemExit": lambda: SystemExit(3),
    "SystemExit-0": lambda: SystemExit(),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(4),
    "StopAsyncIteration": StopAsyncIteration,
    "asyncio-cancelled": asyncio.CancelledError,
    "BaseException": BaseException,
    "own-BaseException": lambda: Own("own"),
    "group": lambda: ExceptionGroup("group", [KeyError(), ValueError()]),
    "base-group": lambda: BaseExceptionGroup("group", [KeyboardInterrupt(), KeyError()]),
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "TimeoutError": TimeoutError,
    "CancelledError": CancelledError,
    "InvalidStateError": InvalidStateError,
    "BrokenThreadPool": BrokenThreadPool,
    "OSError": lambda: OSError(2, "none", "file"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "falsy": Falsy,
    "empty": Empty,
    "bad-bool": BadBool,
    "slots": lambda: Slots(5),
    "bad-text": BadText,
    "bad-equality": BadEquality,
    "unhashable": Unhashable,
    "bad-attributes": BadAttributes,
    "bad-traceback": BadTraceback,
    "liar": Liar,
    "needs-arguments": lambda: NeedsArguments(1, 2, three=3),
}
every_error = pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)


def caught(function, *args):
    """What the call raises, caught in the plainest way: it may be no friend of tools."""
    try:
        function(*args)
    except BaseException as error:
        return error
    return None


# ---- a task raises


def run_inline(way):
    """A task that the worker which waits for it runs itself."""

    def run(pool, error):
        def waiter():
            task = pool.submit(fail, error)
            way(task)
            return task

        return pool.submit(waiter).result(10)

    return run


def in_a_context(pool, error):
    context = contextvars.copy_context()
    context.run(contextvars.ContextVar("variable").set, 1)
    return context.run(pool.submit, fail, error)


def observed(pool, error):
    with occupied(pool):
        task = pool.submit(fail, error)
        task.add_done_callback(lambda _: None)
        assert task._condition
        assert task._waiters == []
    return task


def by_work_item(pool, error):
    with occupied(pool):
        task = pool.submit(fail, error)
        item = pool._work_queue.get_nowait()
        item.run()
    return task


def from_outside(pool, error):
    with occupied(pool):
        task = pool.submit(fail, AssertionError("ran"))
        task.set_exception(error)
    return task


def made_by_a_task(pool, error):
    return pool.submit(pool.submit, fail, error).result(10)


RUNS = {
    "submit": lambda pool, error: pool.submit(fail, error),
    "keyword": lambda pool, error: pool.submit(fail, error=error),
    "batch": lambda pool, error: pool.submit_many(fail, [error])[0],
    "context": in_a_context,
    "observed": observed,
    "inline-result": run_inline(lambda task: caught(task.result)),
    "inline-exception": run_inline(lambda task: task.exception()),
    "inline-wait": run_inline(lambda task: wait([task])),
    "inline-first": run_inline(lambda task: wait([task], None, FIRST_COMPLETED)),
    "inline-completed": run_inline(lambda task: list(as_completed([task]))),
    "work-item": by_work_item,
    "outside": from_outside,
    "in-a-task": made_by_a_task,
}


@every_error
def test_whatever_a_task_raises_is_in_its_future(two, make):
    """SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration from tasks: in the future."""
    two.submit_many(int, [0] * 4)
    for name, run in RUNS.items():
        error = make()
        task = run(two, error)
        assert task.exception(10) is error, name
        assert caught(task.result, 10) is error, name
        assert caught(task.result) is error, name
        assert (task._state, task.cancelled()) == ("FINISHED", False), name
        assert task._exception is error, name
        assert task._result is None, name
        assert task._get_snapshot()[3] is error, name
        assert repr(task).endswith(f"raised {type(error).__name__}>"), name
        assert wait([task], 0, FIRST_EXCEPTION).done == {task}, name
        assert two.submit(abs, -1).result(10) == 1, name  # and the next task runs
    assert eventually(lambda: two.worker_count == len(two._threads) <= 2)  # nobody was replaced


@every_error
def test_whatever_a_call_of_map_raises_reaches_the_caller(one, make):
    for options in ({}, {"buffersize": 2}, {"timeout": 20}):
        error = make()
        results = one.map(lambda n, error=error: fail(error) if n == 1 else n, range(3), **options)
        assert next(results) == 0
        raised = caught(next, results)
        if type(error) is StopIteration:
            assert isinstance(raised, RuntimeError)  # what Python makes of it in a generator
            assert raised.__cause__ is error
        else:
            assert raised is error
        assert one.submit(abs, -1).result(10) == 1


def endless():
    return endless()


class BadInit(Exception):
    def __init__(self, *args):
        raise OSError("in __init__")


class NoException(Exception):
    def __new__(cls):
        return 5


def raise_class(cls):
    raise cls


CALLS = {
    "StopIteration": (next, iter(())),
    "IndexError": ([].pop,),
    "ValueError": (int, "x"),
    "KeyError": ({}.__getitem__, 1),
    "SystemExit": (sys.exit, 3),
    "TypeError": ("".join, [1]),
    "UnicodeDecodeError": (b"\xff".decode,),
    "AttributeError": (getattr, object(), "no_such_name"),
    "SyntaxError": (compile, "(", "name", "exec"),
    "ModuleNotFoundError": (__import__, "no_such_module_at_all"),
    "RecursionError": (endless,),
    "MemoryError": (bytes, 1 << 62),
    "ZeroDivisionError": (divmod, 1, 0),
    "OSError": (raise_class, BadInit),
    "TypeError-instance": (raise_class, NoException),
    "TypeError-no-exception": (raise_class, int),
    "TypeError-no-callable": (None,),
    "TypeError-arguments": (fail,),
    "TypeError-keyword": (functools.partial(fail, no_such_name=1),),
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_that_c_code_raises(one, name):
    """Errors that nobody made yet when they were raised: classes, and builtins that fail."""
    kind = getattr(builtins, name.split("-")[0])
    for run in (one.submit, run_many_inline(one)):
        task = run(*CALLS[name])
        error = task.exception(20)
        assert isinstance(error, kind)
        assert caught(task.result) is error
        assert one.submit(abs, -1).result(10) == 1


def run_many_inline(pool):
    def run(*call):
        def waiter():
            task = pool.submit(*call)
            task.exception()
            return task

        return pool.submit(waiter).result(20)

    return run


def test_a_task_that_raises_its_own_cancelled_error_was_not_cancelled(one):
    """CancelledError out of a call is a failure, not a cancel."""
    box, gate = [], threading.Event()

    def work():
        gate.wait(10)
        assert box[0].cancel() is False
        raise CancelledError

    box.append(one.submit(work))
    (task,) = box
    calls = []
    task.add_done_callback(lambda t: calls.append((t.cancelled(), type(t.exception()))))
    gate.set()
    with pytest.raises(CancelledError):
        task.result(10)
    one.submit(int).result(10)
    assert (task.cancelled(), task._state) == (False, "FINISHED")
    assert calls == [(False, CancelledError)]
    assert wait([task, Task()], 0, FIRST_EXCEPTION).done == {task}


def test_a_cancelled_task_that_a_task_waits_for_fails_the_waiter(one):
    def work():
        inner = one.submit(int)
        assert inner.cancel()
        return inner.result()

    task = one.submit(work)
    assert isinstance(task.exception(10), CancelledError)
    assert not task.cancelled()


def test_exception_groups_can_be_split_at_the_result(one):
    group = ExceptionGroup("group", [KeyError(1), OSError(2)])
    seen = []
    try:
        one.submit(fail, group).result(10)
    except* KeyError as keys:
        seen += keys.exceptions
    except* OSError as others:
        seen += others.exceptions
    assert [type(error) for error in seen] == [KeyError, OSError]


def test_an_exception_whose_class_refuses_every_check(one):
    """Python 3.11 puts the error of the check in its place; either is in the future."""
    for run in RUNS.values():
        error = BadChecks()
        with contextlib.suppress(OSError):
            assert type(run(one, error).exception(10)) in (BadChecks, OSError)
        assert one.submit(abs, -1).result(10) == 1


def test_failures_do_not_end_a_worker(pool):
    """The next task runs, on the same threads, whatever the tasks before raised."""
    for _ in range(5):
        tasks = [pool.submit(fail, make()) for make in ERRORS.values()]
        wait(tasks, 20)
        assert all(task.exception(10) is not None for task in tasks)
    assert eventually(lambda: pool.worker_count == len(pool._threads))
    assert all(thread.is_alive() for thread in pool._threads)


# ---- context and cause


def test_context_and_cause_are_those_of_the_task(one):
    def chained():
        try:
            raise ValueError("first")
        except ValueError as error:
            raise KeyError("second") from error

    def handled():
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second")  # noqa: B904

    def hidden():
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second") from None

    for run in (one.submit, run_many_inline(one)):
        error = run(chained).exception(10)
        assert isinstance(error.__cause__, ValueError)
        assert error.__context__ is error.__cause__
        error = run(handled).exception(10)
        assert error.__cause__ is None
        assert isinstance(error.__context__, ValueError)
        error = run(hidden).exception(10)
        assert error.__suppress_context__
        assert isinstance(error.__context__, ValueError)


def generator():
    try:
        yield
    except ValueError:
        yield sys.exc_info()


def leaves_a_generator_in_a_handler():
    running = generator()
    next(running)
    running.throw(ValueError("in a generator"))
    kept.append(running)


kept: list[object] = []


@pytest.mark.parametrize(
    "earlier",
    [
        lambda: fail(ValueError("earlier")),
        leaves_a_generator_in_a_handler,
        functools.partial(int, "x"),
        lambda: caught(fail, ValueError("handled")),
    ],
    ids=["failed", "generator", "builtin", "handled"],
)
def test_no_task_sees_the_exception_of_an_earlier_one(one, earlier):
    for _ in range(3):
        wait([one.submit(earlier)], 10)
        assert one.submit(sys.exc_info).result(10) == (None, None, None)
        assert one.submit(fail, KeyError("later")).exception(10).__context__ is None
    kept.clear()


def test_a_callback_of_a_failed_task_sees_no_exception_being_handled(one):
    seen = []
    with occupied(one):
        task = one.submit(fail, KeyError())
        task.add_done_callback(lambda _: seen.append(sys.exc_info()))
        task.add_done_callback(lambda _: fail(ValueError("in a callback")))
        task.add_done_callback(lambda _: seen.append(sys.exc_info()))
    one.submit(int).result(10)
    assert seen == [(None, None, None)] * 2


INLINE = {
    "result": lambda task: caught(task.result),
    "exception": lambda task: task.exception(),
    "timeout": lambda task: task.exception(20),
    "wait": lambda task: wait([task]),
    "wait-first": lambda task: wait([task], None, FIRST_COMPLETED),
    "wait-mixed": lambda task: wait([task, Future()], 0.001),
    "as_completed": lambda task: list(as_completed([task])),
}


def reraise():
    raise


@pytest.mark.parametrize("way", INLINE.values(), ids=INLINE)
def test_a_task_run_inline_sees_no_exception_of_its_waiter(one, way):
    """It could as well have run on another worker: what its waiter handles is none of its."""

    def waiter():
        try:
            raise ValueError("of the waiter")
        except ValueError:
            tasks = [one.submit(sys.exc_info), one.submit(fail, KeyError()), one.submit(reraise)]
            for task in tasks:
                way(task)
            return tasks

    info, failed, again = one.submit(waiter).result(10)
    assert info.result(10) == (None, None, None)
    assert failed.exception(10).__context__ is None
    assert isinstance(again.exception(10), RuntimeError)


@pytest.mark.parametrize("way", INLINE.values(), ids=INLINE)
def test_a_callback_of_a_task_run_inline_sees_none_either(one, way, logged):
    seen = []

    def waiter():
        try:
            raise ValueError("of the waiter")
        except ValueError:
            task = one.submit(int)
            task.add_done_callback(lambda _: seen.append(sys.exc_info()))
            task.add_done_callback(lambda _: fail(KeyError()))
            way(task)

    one.submit(waiter).result(10)
    assert seen == [(None, None, None)]
    assert logged[0].exc_info[1].__context__ is None


@pytest.mark.parametrize("way", INLINE.values(), ids=INLINE)
def test_a_waiter_keeps_the_exception_that_it_handles(one, way):
    """...and what a task that runs inline raises does not replace it."""
    seen = []

    def waiter():
        try:
            raise ValueError("of the waiter")
        except ValueError as error:
            for task in (one.submit(fail, KeyError()), one.submit(int)):
                way(task)
                seen.append((sys.exc_info()[1] is error, error.__context__))
            raise

    task = one.submit(waiter)
    with pytest.raises(ValueError, match="of the waiter"):
        task.result(10)
    assert seen == [(True, None)] * 2


# ---- tracebacks


def names_of(error):
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]


def inner_frame():
    raise KeyError("deep")


def outer_frame():
    inner_frame()


def raised_here():
    error = caught(outer_frame)
    error.__traceback__ = error.__traceback__.tb_next
    return error


def set_from_outside(pool):
    task = Task()
    task.set_exception(raised_here())
    return task


def queued_and_set(pool):
    with occupied(pool):
        task = pool.submit(int)
        task.set_exception(raised_here())
    return task


def inline(way):
    def run(pool):
        def waiter():
            task = pool.submit(outer_frame)
            way(task)
            return task

        return pool.submit(waiter).result(10)

    return run


def taken(pool):
    with occupied(pool):
        task = pool.submit(outer_frame)
        pool._work_queue.get_nowait().run()
    return task


def seen_by_a_callback(pool):
    with occupied(pool):
        task = pool.submit(outer_frame)
        task.add_done_callback(lambda t: caught(t.result))
        task.add_done_callback(lambda t: [caught(t.result) for _ in range(50)])
    pool.submit(int).result(10)
    return task


def one_of_map(pool):
    error = caught(list, pool.map(lambda _: outer_frame(), [1]))
    task = Task()
    task.set_exception(error)
    return task


FAILURES = {
    "submit": lambda pool: pool.submit(outer_frame),
    "batch": lambda pool: pool.submit_many(lambda _: outer_frame(), [1])[0],
    "callback": seen_by_a_callback,
    "inline-result": inline(lambda task: caught(task.result)),
    "inline-wait": inline(lambda task: wait([task])),
    "work-item": taken,
    "by-hand": set_from_outside,
    "queued-and-set": queued_and_set,
}


@pytest.mark.parametrize("make", FAILURES.values(), ids=FAILURES)
def test_the_traceback_stays_bounded_and_keeps_the_frames_of_the_task(one, make):
    """`result()` called 300 times: the traceback stays bounded and keeps the task's own frames."""
    task = make(one)
    error = task.exception(10)
    lengths = set()
    for _ in range(300):
        again = caught(task.result)
        assert again is error
        names = names_of(error)
        assert names[-2:] == ["outer_frame", "inner_frame"]
        lengths.add(len(names))
    assert max(lengths) <= 6
    assert len(lengths) == 1


def deeper(task, depth):
    if depth:
        deeper(task, depth - 1)
    else:
        task.result()


def test_the_traceback_starts_anew_wherever_the_result_is_asked_for(one):
    task = one.submit(outer_frame)
    task.exception(10)
    for depth in (50, 0, 20, 0):
        error = caught(deeper, task, depth)
        assert len(names_of(error)) <= depth + 6
        assert names_of(error)[-2:] == ["outer_frame", "inner_frame"]


def test_what_others_do_with_the_traceback_is_undone(one):
    """The user raises the error again and again, or takes its traceback away."""
    task = one.submit(outer_frame)
    error = task.exception(10)

    def raise_it():
        raise error

    for _ in range(50):
        caught(raise_it)
    assert len(names_of(caught(task.result))) <= 6
    for spoil in (
        lambda error: setattr(error, "__traceback__", None),
        lambda error: error.with_traceback(None),
        lambda error: error.with_traceback(caught(int, "x").__traceback__),
    ):
        spoil(error)
        assert caught(task.result) is error
        assert names_of(error)[-2:] == ["outer_frame", "inner_frame"]
        assert len(names_of(error)) <= 6


@pytest.mark.parametrize("make", [FAILURES["submit"], FAILURES["by-hand"]], ids=["own", "outside"])
def test_the_traceback_is_bounded_when_many_threads_ask(one, make):
    task = make(one)
    task.exception(10)

    def ask():
        for _ in range(150):
            with contextlib.suppress(KeyError):
                task.result()

    at_once(*[ask] * 4)
    error = caught(task.result)
    assert names_of(error)[-2:] == ["outer_frame", "inner_frame"]
    assert len(names_of(error)) <= 6


def test_the_traceback_of_each_futures_own_error_in_a_broken_pool(one):
    pool, gate = ThreadPoolExecutor(1, initializer=lambda: gate.wait(10) and outer_frame()), None
    gate = threading.Event()
    logging.getLogger("concurrent.futures").disabled = True
    try:
        tasks = [pool.submit(int) for _ in range(3)]
        gate.set()
        wait(tasks, 10)
    finally:
        logging.getLogger("concurrent.futures").disabled = False
    pool.shutdown()
    for task in tasks:
        lengths = {len(names_of(caught(task.result))) for _ in range(300)}
        assert len(lengths) == 1
        assert max(lengths) <= 3
        assert names_of(task.exception().__cause__)[-2:] == ["outer_frame", "inner_frame"]


def test_one_exception_that_many_tasks_raise(pool):
    """Each task has it, and each has a traceback that ends in its own frames."""
    shared = KeyError("shared")

    def left():
        raise shared

    def right():
        raise shared

    tasks = [pool.submit(function) for function in (left, right) * 100]
    wait(tasks, 20)
    for task in tasks:
        assert task.exception() is shared
        assert caught(task.result) is shared
    for task, name in zip(tasks, ["left", "right"] * 100, strict=True):
        caught(task.result)
        assert name in names_of(shared)


@pytest.mark.parametrize("looked", [False, True], ids=["unread", "read"])
def test_one_exception_that_very_many_tasks_raise_costs_about_linear_time(one, looked):
    """Its traceback grows with every raise, as Python has it; nobody walks it each time."""

    def run(count):
        shared = KeyError("shared")
        begin = time.process_time()
        tasks = one.submit_many(lambda _: fail(shared), range(count))
        wait(tasks, 30)
        if looked:
            for task in tasks:
                task.exception()
        used = time.process_time() - begin
        shared.__traceback__ = None
        return used

    small = min(run(500) for _ in range(3))
    assert min(run(10_000) for _ in range(2)) < 0.1 + 60 * small


# ---- a callback raises


@pytest.fixture
def logged(monkeypatch):
    """What is logged to the stdlib's logger, and nowhere else."""
    records = []
    monkeypatch.setattr(logging.getLogger("concurrent.futures"), "handle", records.append)
    return records


def errors_in(records):
    return [record.exc_info[1] for record in records if record.exc_info is not None]


def ended_by_running(function, *args):
    def run(pool, callbacks):
        told = threading.Event()
        with occupied(pool):
            task = pool.submit(function, *args)
            for callback in callbacks:
                task.add_done_callback(callback)
            task.add_done_callback(lambda _: told.set())
        assert told.wait(10)
        return task

    return run


ended_by_the_worker = ended_by_running(int)
failed_in_the_worker = ended_by_running(lambda: fail(KeyError("of the task")))


def ended_by(way):
    def run(pool, callbacks):
        with occupied(pool):
            task = pool.submit(int)
            for callback in callbacks:
                task.add_done_callback(callback)
            way(pool, task)
        return task

    return run


def ended_inline(pool, callbacks):
    if pool._max_workers > 1:
        with ThreadPoolExecutor(1) as alone:  # else another worker takes the task
            return ended_inline(alone, callbacks)

    def waiter():
        task = pool.submit(int)
        for callback in callbacks:
            task.add_done_callback(callback)
        task.result()
        return task

    return pool.submit(waiter).result(10)


def ended_by_a_broken_pool(pool, callbacks):
    gate = threading.Event()

    def initializer():
        gate.wait(10)
        raise OSError("initializer")

    with ThreadPoolExecutor(1, initializer=initializer) as broken:
        task = broken.submit(int)
        for callback in callbacks:
            task.add_done_callback(callback)
        gate.set()
    return task


ENDS = {
    "worker": ended_by_the_worker,
    "failed": failed_in_the_worker,
    "inline": ended_inline,
    "cancel": ended_by(lambda pool, task: task.cancel()),
    "set_result": ended_by(lambda pool, task: task.set_result(1)),
    "set_exception": ended_by(lambda pool, task: task.set_exception(KeyError())),
    "shutdown": ended_by(lambda pool, task: pool.shutdown(False, cancel_futures=True)),
    "work-item": ended_by(lambda pool, task: pool._work_queue.get_nowait().run()),
    "broken": ended_by_a_broken_pool,
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@every_error
def test_whatever_a_callback_raises_is_logged_and_the_next_one_runs(make, logged):
    """...from callbacks: logged; the next callback and the next task run."""
    for name, end in ENDS.items():
        calls, error = [], make()
        logged.clear()

        def bad(task, error=error):
            raise error

        with ThreadPoolExecutor(2) as pool:
            task = end(pool, [calls.append, bad, calls.append, bad, bad, calls.append])
            assert calls == [task] * 3, name
            records = [record for record in logged if "callback" in record.getMessage()]
            assert len(records) == 3, name
            assert all(found is error for found in errors_in(records)), name
            if name != "shutdown":
                assert pool.submit(abs, -1).result(10) == 1
                assert eventually(lambda pool=pool: pool.worker_count == len(pool._threads))


@every_error
def test_a_late_callback_that_raises(one, logged, make):
    """An Exception is logged, in full; anything else is the caller's, as in the stdlib."""
    task = one.submit(int)
    task.result(10)
    error = make()
    raised = caught(task.add_done_callback, lambda _: fail(error))
    if issubclass(type(error), Exception):
        assert raised is None
        (record,) = logged
        assert record.exc_info[0] is type(error)
        assert record.exc_info[1] is error
        assert record.exc_info[2] is not None
    else:
        assert raised is error
        assert not logged
    assert one.submit(abs, -1).result(10) == 1


@contextlib.contextmanager
def broken_logging(error, monkeypatch, hook=None):
    """To log raises: the disk is full, say.  Gives the list of the unraisable errors."""
    unraisable = []

    def keep(info):  # not `info`: the collector does not know it, nor any cycle that it is in
        unraisable.append(info.exc_value)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", hook or keep)
        patch.setattr(logging.getLogger("concurrent.futures"), "handle", lambda _: fail(error))
        yield unraisable


@pytest.mark.parametrize(
    "error", [OSError("disk full"), SystemExit(1), KeyboardInterrupt(), Own()], ids=repr
)
@pytest.mark.parametrize("name", [name for name in ENDS if name != "broken"])
def test_a_logging_handler_that_raises_harms_nobody(monkeypatch, name, error):
    """The kind: what reports the failure fails.  The next callback and the next task run."""
    calls = []
    with ThreadPoolExecutor(1) as pool, broken_logging(error, monkeypatch) as unraisable:
        bad = functools.partial(operator.setitem, 5, 5)  # a TypeError
        task = ENDS[name](pool, [calls.append, bad, calls.append, bad, calls.append])
        assert calls == [task] * 3
        assert unraisable == [error] * 2
        if name != "shutdown":
            assert pool.submit(abs, -1).result(10) == 1
        late = task.add_done_callback(calls.append)
        assert (late, len(calls)) == (None, 4)


class BadRepr:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)

    def __repr__(self):
        raise OSError("repr")

    __str__ = __getattr__ = lambda self, *args: fail(OSError("str"))


def test_functions_that_cannot_be_printed(one, monkeypatch, logged):
    """Nobody needs the name of a function to run it, or to report it."""
    calls = []
    assert one.submit(BadRepr(abs), -1).result(10) == 1
    assert isinstance(one.submit(BadRepr(inner_frame)).exception(10), KeyError)
    task = ended_by_the_worker(one, [BadRepr(calls.append), BadRepr(fail), BadRepr(inner_frame)])
    assert calls == [task]
    assert len(logged) == 2
    assert list(one.map(BadRepr(abs), [-1])) == [1]
    with broken_logging(OSError("disk full"), monkeypatch) as unraisable:
        ended_by_the_worker(one, [BadRepr(inner_frame), BadRepr(calls.append)])
    assert len(unraisable) == 1
    assert len(calls) == 2


def test_even_a_hook_for_unraisable_errors_may_raise(one, monkeypatch, capfd):
    def hook(unraisable):
        raise Own("hook")

    calls = []
    with broken_logging(OSError("disk full"), monkeypatch, hook):
        ended_by_the_worker(one, [inner_frame, calls.append])
        assert len(calls) == 1
        assert one.submit(abs, -1).result(10) == 1


def test_callbacks_of_every_kind(one, logged):
    """Whatever can be called; what cannot is an error that is logged."""
    calls = []

    class Method:
        def method(self, task):
            calls.append("method")

        def __call__(self, task):
            calls.append("instance")

    class Made:
        def __init__(self, task):
            calls.append("class")

    callbacks = [
        lambda _: calls.append("lambda"),
        Method().method,
        Method(),
        Made,
        functools.partial(lambda word, _: calls.append(word), "partial"),
        None,
        5,
        lambda: calls.append("never"),
        calls.append,
    ]
    task = ended_by_the_worker(one, callbacks)
    assert calls == ["lambda", "method", "instance", "class", "partial", task]
    assert [type(error) for error in errors_in(logged)] == [TypeError] * 3


def test_the_same_callback_many_times(one):
    calls = []
    task = ended_by_the_worker(one, [calls.append] * 100)
    assert calls == [task] * 100


# ---- what callbacks do


@every_end
def test_callbacks_run_once_in_order(two, end, logged):
    """Callbacks run once, in order."""
    calls = []
    callbacks = [lambda t, n=n: calls.append((n, t)) for n in range(50)]
    task = end(two, callbacks)
    assert calls == [(n, task) for n in range(50)]
    two.shutdown()
    assert len(calls) == 50


@every_end
def test_callbacks_see_the_task_done(two, end, logged):
    seen = []
    task = end(two, [lambda t: seen.append((t.done(), t.running(), wait([t], 0).done))])
    assert seen == [(True, False, {task})]


@every_end
def test_a_late_callback_runs_at_once_in_the_caller(two, end, logged):
    """A callback added late runs at once in the caller."""
    task = end(two, [lambda _: None])
    seen = []
    for n in range(3):
        assert (
            task.add_done_callback(lambda t, n=n: seen.append((n, threading.get_ident()))) is None
        )
        assert seen[-1] == (n, threading.get_ident())


@every_end
def test_a_callback_may_add_callbacks(two, end, logged):
    """They are late ones: they run at once, before the callbacks that are still to come."""
    calls = []

    def deeper(task, depth=3):
        calls.append(depth)
        if depth:
            task.add_done_callback(lambda t: deeper(t, depth - 1))

    task = end(two, [deeper, calls.append])
    assert calls == [3, 2, 1, 0, task]


@pytest.mark.parametrize("end", ["worker", "cancel", "set_result"])
def test_a_callback_may_remove_callbacks_from_the_list(one, end):
    """What runs was settled when the task ended; to meddle with the list crashes nothing."""
    calls, lists = [], []

    def meddle(task):
        calls.append("meddle")
        for callbacks in (task._done_callbacks, *lists):
            callbacks.clear()
            callbacks.append(lambda _: calls.append("slipped in"))
            callbacks.clear()

    class Last:
        def __call__(self, task):
            calls.append("last")
            fail(KeyError("the callback that frees itself"))

    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(lambda _: calls.append("first"))
        lists.append(task._done_callbacks)
        task.add_done_callback(meddle)
        task.add_done_callback(Last())
        if end == "cancel":
            task.cancel()
        elif end == "set_result":
            task.set_result(0)
    one.submit(int).result(10)
    assert calls[:2] == ["first", "meddle"]
    assert "slipped in" not in calls


def test_a_callback_that_was_removed_before_the_end_does_not_run(one):
    """As in the stdlib, where `_done_callbacks` is the list itself (with a GIL: a copy without)."""
    calls = []
    with occupied(one):
        task = one.submit(int)
        task.add_done_callback(calls.append)
        removed = task._done_callbacks.pop()
        assert removed == calls.append
    one.submit(int).result(10)
    assert calls == ([] if HAS_GIL else [task])


@every_end
@pytest.mark.parametrize("wait_with", ["result", "wait", "as_completed", "map", "timeout"])
def test_a_callback_may_submit_and_wait(end, wait_with, logged):
    """On the only worker too: it runs the task that it waits for itself."""
    calls = []
    other = ThreadPoolExecutor(1)

    def callback(_):
        if wait_with == "map":
            calls.extend(other.map(abs, [-5]))
            return
        inner = other.submit(abs, -5)
        if wait_with == "wait":
            wait([inner])
        elif wait_with == "as_completed":
            list(as_completed([inner]))
        calls.append(inner.result(20 if wait_with == "timeout" else None))

    try:
        with ThreadPoolExecutor(1) as pool:
            end(pool, [callback, callback])
        end(other, [callback]) if end is ended_by_the_worker or end is ended_inline else None
    finally:
        other.shutdown()
    assert calls == [5] * (3 if end in (ended_by_the_worker, ended_inline) else 2)


@every_end
def test_a_callback_may_decide_nothing_and_cancel_nothing_of_a_done_task(two, end, logged):
    seen = []

    def callback(task):
        for act in (lambda: task.set_result(1), lambda: task.set_exception(KeyError())):
            seen.append(type(caught(act)))
        seen.append(task.cancel() is task.cancelled())

    end(two, [callback])
    assert seen == [InvalidStateError, InvalidStateError, True]


@pytest.mark.parametrize("end", ["worker", "failed", "inline", "cancel", "set_result", "work-item"])
def test_a_callback_may_shut_the_pool_down(end, logged):
    for how in ({}, {"wait": False}, {"cancel_futures": True}):
        calls = []
        pool = ThreadPoolExecutor(1)

        def callback(_, pool=pool, how=how, calls=calls):
            if threading.current_thread() is threading.main_thread():
                how = {**how, "wait": False}  # the worker waits for this very thread
            pool.shutdown(**how)
            calls.append(type(caught(pool.submit, int)))

        try:
            ENDS[end](pool, [callback])
        except RuntimeError:
            assert calls  # the pool is shut down: the test's own next submit is refused
        pool.shutdown()
        assert calls[0].__name__ == "ShutdownError"


def test_callbacks_added_while_the_task_ends_run_once(two):
    """By several threads; each finds the task pending or done, and its callback runs once."""
    for _ in range(60):
        calls = []
        gate = threading.Event()
        task = two.submit(gate.wait, 10)

        def add(k, task=task, calls=calls):
            for n in range(10):
                task.add_done_callback(lambda _, key=(k, n): calls.append(key))

        at_once(*(functools.partial(add, k) for k in range(3)), gate.set)
        expected = [(k, n) for k in range(3) for n in range(10)]
        assert eventually(lambda calls=calls: len(calls) >= 30)
        assert sorted(calls) == expected


@pytest.mark.parametrize("cancel", [False, True], ids=["runs", "cancels"])
@pytest.mark.parametrize("leave", ["shutdown", "with", "again"])
def test_shutdown_returns_after_the_callbacks(pool, leave, cancel):
    """`shutdown(wait=True)` returns after they ran: the slow ones and those that fail too."""
    calls, slow = [], threading.Event()
    logging.getLogger("concurrent.futures").disabled = True
    try:
        gate = threading.Event()
        for _ in range(pool._max_workers):
            pool.submit(gate.wait, 10)
        tasks = [pool.submit(int) for _ in range(20)]
        for task in tasks:
            task.add_done_callback(lambda _: slow.wait(0.002))
            task.add_done_callback(lambda _: fail(SystemExit()))
            task.add_done_callback(calls.append)
        if leave == "again":
            pool.shutdown(wait=False, cancel_futures=cancel)
            cancel = False
        gate.set()
        if leave == "with":
            with pool:
                pass
        else:
            pool.shutdown(cancel_futures=cancel)
        assert sorted(map(id, calls)) == sorted(map(id, tasks))
    finally:
        logging.getLogger("concurrent.futures").disabled = False


def test_shutdown_returns_after_what_callbacks_submitted(pool):
    """A callback of the last task may submit before shutdown refuses: it runs before the return."""
    done = []
    with occupied(pool) as gate:
        task = pool.submit(int)
        task.add_done_callback(lambda _: pool.submit(done.append, 1))
        gate.set()
        wait([task], 10)
        assert eventually(lambda: done)
    pool.shutdown()
    assert done == [1]


def test_stdlib_waiters_that_raise_harm_nobody(one, monkeypatch):
    """Code of others puts its own objects into `_waiters`: to tell them may fail."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))

    class Waiter:
        def add_result(self, future):
            raise Own("waiter")

        add_exception = add_cancelled = add_result

    calls = []
    for act in (lambda t: None, lambda t: t.cancel(), lambda t: t.set_result(0)):
        with occupied(one):
            task = one.submit(int)
            task._waiters.append(Waiter())
            task._waiters.append(object())
            task.add_done_callback(calls.append)
            act(task)
        one.submit(int).result(10)
        assert task.done()
    assert len(calls) == 3
    assert len(unraisable) == 6


# ---- an initializer fails


INITIALIZER_ERRORS = [name for name in ERRORS if name not in ("bad-attributes", "bad-traceback")]


@pytest.mark.parametrize("name", INITIALIZER_ERRORS)
def test_an_initializer_that_fails_breaks_the_pool(name, logged):
    """Every pending future fails with its own BrokenThreadPool with the cause attached; later
    submits raise; shutdown returns."""
    for workers in (1, 3):
        error, gate = ERRORS[name](), threading.Event()

        def initializer(gate=gate, error=error):
            gate.wait(10)
            raise error

        pool = ThreadPoolExecutor(workers, initializer=initializer)
        tasks = [*(pool.submit(int) for _ in range(10)), *pool.submit_many(abs, range(10))]
        cancelled = tasks.pop(15)
        assert cancelled.cancel()
        calls = []
        for task in tasks:
            task.add_done_callback(calls.append)
        gate.set()
        assert wait(tasks, 20).not_done == set()
        errors = [task.exception(10) for task in tasks]
        assert all(type(broken) is BrokenThreadPool for broken in errors)
        assert len({id(broken) for broken in errors}) == len(errors)
        assert all(broken.__cause__ is error for broken in errors)
        for refused in (
            functools.partial(pool.submit, int),
            functools.partial(pool.submit_many, int, "12"),
            functools.partial(pool.map, int, "12"),
            functools.partial(pool.map, int, "12", buffersize=1),
        ):
            raised = caught(refused)
            assert type(raised) is BrokenThreadPool
            assert raised.__cause__ is error
        pool.shutdown()
        pool.shutdown(cancel_futures=True)
        assert cancelled.cancelled()
        assert sorted(map(id, calls)) == sorted(map(id, tasks))
        assert not any(thread.is_alive() for thread in pool._threads)
        assert 1 <= len(logged) <= workers
        logged.clear()


@pytest.mark.parametrize("way", ["result", "exception", "wait", "first", "as_completed", "foreign"])
def test_whoever_waits_in_a_pool_that_breaks_is_woken(way, logged):
    gate, begun = threading.Event(), threading.Event()
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), fail(OSError())))
    tasks = [pool.submit(int) for _ in range(5)]

    def waiter():
        begun.set()
        if way in ("result", "exception"):
            return [caught(getattr(task, way), 20) or task.exception() for task in tasks]
        if way == "first":
            wait(tasks, 20, FIRST_EXCEPTION)
            return [tasks[0].exception(20)]
        if way == "foreign":
            foreign = Future()
            foreign.set_result(0)
            wait([*tasks, foreign], 20)
        done = wait(tasks, 20).done if way != "as_completed" else as_completed(tasks, 20)
        return [task.exception(0) for task in done]

    seen, _ = at_once(waiter, lambda: begun.wait(10) and gate.set())
    assert seen
    assert all(type(error) is BrokenThreadPool for error in seen)
    pool.shutdown()


def test_what_runs_when_a_later_thread_fails_to_begin_goes_on(logged):
    """One worker is there and runs a task; the second thread's initializer fails."""
    count, gate, entered = [], threading.Event(), threading.Event()

    def initializer():
        count.append(1)
        if len(count) == 2:
            raise OSError("second")

    pool = ThreadPoolExecutor(2, initializer=initializer)
    running = pool.submit(lambda: (entered.set(), gate.wait(20), "ran")[2])
    entered.wait(10)
    tasks = [pool.submit(int) for _ in range(5)]
    assert wait(tasks, 20).not_done == set()
    assert all(isinstance(task.exception(), BrokenThreadPool) for task in tasks)
    with pytest.raises(BrokenThreadPool):
        pool.submit(int)
    assert not running.done()
    gate.set()
    assert running.result(10) == "ran"
    pool.shutdown()


def test_callbacks_of_a_pool_that_breaks(logged):
    """They may submit (and are refused), raise, shut down; every task has failed before."""
    gate, seen = threading.Event(), []
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), fail(OSError())))
    tasks = [pool.submit(int) for _ in range(6)]
    tasks[0].add_done_callback(lambda _: seen.append(type(caught(pool.submit, int))))
    tasks[1].add_done_callback(lambda _: fail(SystemExit("callback")))
    tasks[2].add_done_callback(lambda _: seen.append(tasks[3].cancel()))
    tasks[3].add_done_callback(lambda t: seen.append(t.cancelled()))
    tasks[4].add_done_callback(lambda _: pool.shutdown(wait=False))
    tasks[5].add_done_callback(lambda t: seen.append(type(t.exception())))
    gate.set()
    pool.shutdown()
    assert seen == [BrokenThreadPool, False, False, BrokenThreadPool]
    assert all(task.done() for task in tasks)


def test_a_callback_that_waits_for_another_task_of_a_pool_that_breaks(logged):
    gate, seen = threading.Event(), []
    pool = ThreadPoolExecutor(1, initializer=lambda: (gate.wait(10), fail(OSError())))
    tasks = [pool.submit(int) for _ in range(3)]
    tasks[0].add_done_callback(lambda _: seen.append(type(caught(tasks[2].result, 10))))
    gate.set()
    pool.shutdown()
    assert seen == [BrokenThreadPool]


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(1), Own()], ids=repr)
def test_an_initializer_that_fails_while_logging_fails_too(monkeypatch, error):
    """The kind: what reports the failure fails.  Nobody waits for ever because of that, and no
    further thread is tried."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    runs = []

    def initializer():
        runs.append(1)
        raise KeyError("initializer")

    pool = ThreadPoolExecutor(1, initializer=initializer)
    with broken_logging(error, monkeypatch):
        task = pool.submit(int)
        outcome = caught(task.result, 10)
        refused = caught(pool.submit, int)
        time.sleep(0.05)
    pool.shutdown(cancel_futures=True)
    assert type(outcome) is type(refused) is BrokenThreadPool
    assert isinstance(outcome.__cause__, KeyError)
    assert len(runs) == 1


def test_an_initializer_that_is_called_wrongly(logged):
    pool = ThreadPoolExecutor(1, initializer=abs, initargs=(1, 2, 3))
    task = pool.submit(int)
    assert isinstance(task.exception(10), BrokenThreadPool)
    assert isinstance(task.exception().__cause__, TypeError)
    pool.shutdown()


def test_a_dropped_pool_that_breaks_fails_its_tasks(logged):
    gate = threading.Event()
    pool = ThreadPoolExecutor(2, initializer=lambda: (gate.wait(10), fail(OSError("late"))))
    tasks = [pool.submit(int) for _ in range(20)]
    del pool
    gate.set()
    assert wait(tasks, 20).not_done == set()
    for task in tasks:
        assert isinstance(task.exception(), BrokenThreadPool)
        assert isinstance(task.exception().__cause__, OSError)


def test_an_initializer_that_is_interrupted_by_a_cancel_of_everything(logged):
    """Shutdown that cancels, while the initializer still runs and then fails: all ends."""
    for _ in range(10):
        gate = threading.Event()
        pool = ThreadPoolExecutor(2, initializer=lambda gate=gate: (gate.wait(10), fail(OSError())))
        tasks = [pool.submit(int) for _ in range(10)]
        at_once(gate.set, functools.partial(pool.shutdown, cancel_futures=True))
        assert all(task.done() for task in tasks)


@pytest.mark.parametrize("way", ["result", "wait", "as_completed"])
def test_a_task_that_runs_inline_goes_on_while_its_pool_breaks(way, logged):
    """What a waiting worker runs itself is not pending, though it is still in the queue: it is
    not failed, and its callbacks come when it ends."""
    threads, called = [], []
    running, gate = threading.Event(), threading.Event()

    def initializer():
        threads.append(threading.current_thread())
        if len(threads) == 2:
            running.wait(20)
            raise OSError("second")

    def inner():
        running.set()
        gate.wait(20)
        called.append("inner")
        return "result"

    def outer():
        task = pool.submit(inner)
        task.add_done_callback(lambda task: called.append(task.result(0)))
        if way == "wait":
            wait([task])
        elif way == "as_completed":
            list(as_completed([task]))
        return task.result()

    pool = ThreadPoolExecutor(2, initializer=initializer)
    task = pool.submit(outer)
    assert running.wait(10)
    assert eventually(lambda: len(threads) == 2)
    threads[1].join(20)
    with pytest.raises(BrokenThreadPool):
        pool.submit(int)
    assert called == []
    gate.set()
    assert task.result(10) == "result"
    assert called == ["inner", "result"]
    assert pool.shutdown(timeout=10)


def test_a_pool_whose_breaking_is_interrupted_leaves_no_task_pending(logged, monkeypatch):
    """An exception from outside, at any step of the failing of what is pending."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    breaks = affinitypool._threads._break.__code__

    def attempt(k):
        gate, steps = threading.Event(), [0]

        def strike(frame, event, arg):
            if event == "c_return" and frame.f_code is breaks:
                steps[0] += 1
                if steps[0] == k:
                    sys.setprofile(None)
                    raise KeyError("from outside")

        def initializer():
            gate.wait(20)
            sys.setprofile(strike)
            raise ValueError("initializer")

        pool = ThreadPoolExecutor(1, initializer=initializer)
        tasks = [pool.submit(int) for _ in range(3)]
        gate.set()
        assert wait(tasks, 10).not_done == set(), k
        assert pool.wait_idle(10), k
        assert pool.shutdown(timeout=10), k
        return steps[0] >= k

    assert at_each_place(attempt) > 5
