"""Each entry point of the C types with input that nobody should give: it may raise, not crash.

What is called is found by `dir()`, so that a new method is in.  A SystemError would be a result
without an exception, or the other way round, and fails.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import threading
import warnings

import pytest
from helpers import fail, occupied

from affinitypool import Task, ThreadPoolExecutor, as_completed, wait
from affinitypool._binding import core


class Raises:
    """Whatever it is asked, it raises."""

    def _no(self, *args):
        raise KeyError("no")

    __index__ = __float__ = __bool__ = __len__ = __iter__ = __next__ = __call__ = __hash__ = _no
    __eq__ = __repr__ = __str__ = __enter__ = __getitem__ = _no


class Wrong:
    """Whatever it is asked, it returns something of another type."""

    def __index__(self):
        return "1"

    __float__ = __bool__ = __len__ = __hash__ = __repr__ = __iter__ = __index__


class CallsBack:
    """Whatever it is asked, it uses a pool first."""

    def _use(self):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(abs, -1).result(10)

    __index__ = __hash__ = __len__ = _use

    def __float__(self):
        return self._use() / 100

    def __bool__(self):
        return bool(self._use())

    def __call__(self, *args, **kwargs):
        return self._use()

    def __eq__(self, other):
        return self is other


class List(list):
    """A list that is none quite."""


def odd_values():
    done = Task()
    done.set_result(None)
    return [
        *(None, True, 0, -1, 2**31, 2**32, 2**63, 2**64, 2**70, -(2**31), -(2**70), 10**400),
        *(0.01, -0.0, math.nan, -math.inf, 5e-324, 1j, "x", "", "\ud800", b"x", bytearray(1)),
        *((), (1, 2), (None,) * 9, [], List(), [None], {}, {1: 2}, set(), object(), int, abs),
        *(Ellipsis, NotImplemented, KeyError, KeyError(1), BaseException, iter([1, 2]), iter("ab")),
        *(Raises(), Wrong(), CallsBack(), Raises, done, Task(), core.Core(1), core.Completions()),
        *(threading.Lock(), lambda *args: None, core.TaskBase(), core.PoolBase()),
    ]


def finished():
    task = Task()
    task.set_result(1)
    return task


def failed():
    task = Task()
    task.set_exception(KeyError(1))
    return task


def cancelled():
    task = Task()
    task.cancel()
    return task


def posted():
    completions = core.Completions()
    completions.post(None)  # so that get() returns
    return completions


def entry():
    return core.Entry(core.Core(1), Task(), Task(), abs)


MAKE = {
    "Task-pending": Task,
    "Task-finished": finished,
    "Task-failed": failed,
    "Task-cancelled": cancelled,
    "TaskBase": core.TaskBase,
    "Core": lambda: core.Core(2, 2, 1, max_pending=3),
    "Completions": posted,
    "Condition": lambda: Task()._condition,
    "Entry": entry,
    "PoolBase": core.PoolBase,
    "pool-without-init": lambda: ThreadPoolExecutor.__new__(ThreadPoolExecutor),
}
SKIP = {"__class__", "__dir__", "__init_subclass__", "__subclasshook__", "__class_getitem__"}
FUNCTIONS = [
    *("set_initial_context", "seconds", "wait_all", "watch_unobserved", "in_worker"),
    *("is_exiting", "is_starting", "worker_exception", "Core", "Completions", "Entry", "TaskBase"),
    "PoolBase",
]
# These change what the whole process relies on: they get only what they have to refuse.
REFUSING = {
    "configure": [(int,) * 8, (int,) * 9, (int,) * 10, (1,) * 9, (ThreadPoolExecutor,) * 9],
    "set_main_thread": [("x",), (None,), (-1,), (2**70,), (Raises(),), (1, 2)],
    "set_exiting": [(Raises(),), (1, 2)],
}


@contextlib.contextmanager
def any_error():
    """Let anything be raised that code may raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except SystemError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            del error


def waits_for_ever(name, method, args):
    """Whether a call has to wait: for a pending task, with no time limit."""
    timeout = args[0] if args else None
    endless = timeout is None or (isinstance(timeout, (int, float)) and timeout > 1)
    return name in ("Task-pending", "TaskBase") and method in ("result", "exception") and endless


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKE)
def test_methods_of_the_types(name, monkeypatch):
    """Each with no argument, each odd one, pairs of odd ones, too many, and odd keywords."""
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    odd = odd_values()
    cases = [(), (None,) * 3, (1,) * 9]
    cases += [(value,) for value in odd]
    cases += [(value, odd[(7 * n + 3) % len(odd)]) for n, value in enumerate(odd)]
    cases += [(KeyError(1), value) for value in odd[::4]]
    called = 0
    for method in dir(type(MAKE[name]())):
        if method in SKIP or not callable(getattr(type(MAKE[name]()), method, None)):
            continue
        for args in cases:
            if waits_for_ever(name, method, args):
                continue
            called += 1
            it = MAKE[name]()
            with any_error():
                getattr(it, method)(*args)
            del it
        for keywords in ({"timeout": "x"}, {"": 1}, {"\ud800": 2}, {"fn": None, "timeout": 0}):
            with any_error():
                getattr(MAKE[name](), method)(**keywords)
    assert called > 500


@pytest.mark.parametrize("name", MAKE)
def test_methods_of_the_types_with_another_self(name):
    kind = type(MAKE[name]())
    for method in dir(core.TaskBase) + dir(core.PoolBase) + dir(kind):
        function = vars(kind).get(method)
        if not callable(function) or isinstance(function, (staticmethod, classmethod)):
            continue
        for other in (None, 1, object(), core.Completions(), core.Core(1), int):
            if not isinstance(other, kind):
                with any_error():
                    function(other)


@pytest.mark.parametrize("name", MAKE)
def test_attributes_are_set_deleted_and_read(name):
    for attribute in [*dir(MAKE[name]()), "other", "__dict__", "__weakref__", "__slots__"]:
        for change in (delattr, *[lambda o, a, v=v: setattr(o, a, v) for v in odd_values()]):
            it = MAKE[name]()
            with any_error():
                change(it, attribute)
            with any_error():
                repr(it)
            with any_error():
                getattr(it, attribute)
            del it


@pytest.mark.parametrize("name", MAKE)
def test_copies_and_pickles_are_refused(name):
    it = MAKE[name]()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises((TypeError, pickle.PicklingError, AttributeError, RuntimeError)):
            pickle.loads(pickle.dumps(it, protocol))
    for how in (copy.copy, copy.deepcopy):
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            how(it)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_module(name, monkeypatch):
    if name == "watch_unobserved":
        monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    function, odd = getattr(core, name), odd_values()
    cases = [(), *[(value,) for value in odd], *[(core.Core(1), value) for value in odd]]
    cases += [(value, odd[(5 * n + 1) % len(odd)], 0) for n, value in enumerate(odd)]
    cases += [([value], 0) for value in odd] + [(1, 1, 1, *odd[n : n + 5]) for n in range(9)]
    cases += [(core.Core(1), Task(), Task(), value) for value in odd]
    for args in cases:
        with any_error():
            function(*args)
        with any_error():
            function(*args, max_workers=2)
    core.set_initial_context(())


@pytest.mark.parametrize("name", REFUSING)
def test_functions_that_the_process_relies_on(name):
    function, arguments = getattr(core, name), REFUSING[name]
    for args in ((), *arguments):
        with pytest.raises((TypeError, OverflowError, KeyError)):
            function(*args)


@pytest.mark.parametrize("kind", ["Core", "Completions", "Condition", "Entry"])
def test_types_that_have_no_subclasses(kind):
    with pytest.raises(TypeError):
        type("Sub", (getattr(core, kind),), {})
    with pytest.raises(TypeError):
        object.__new__(getattr(core, kind))
    with pytest.raises(TypeError):
        getattr(core, kind).other = 1


def test_layouts_do_not_mix():
    for bases in [
        (core.TaskBase, core.PoolBase),
        (Task, ThreadPoolExecutor),
        (core.TaskBase, int),
        (Task, dict),
    ]:
        with pytest.raises(TypeError):
            type("Both", bases, {})
    for maker, kind in [(object, Task), (core.TaskBase, ThreadPoolExecutor), (object, core.Core)]:
        with pytest.raises(TypeError):
            maker.__new__(kind)
    task = Task()
    for kind in (object, int, core.PoolBase, ThreadPoolExecutor, core.TaskBase):
        with pytest.raises(TypeError):
            task.__class__ = kind
    sub = type("Sub", (Task,), {})
    task.__class__ = sub
    task.set_result(1)
    assert task.result() == 1


def test_a_pool_is_not_made_twice(one):
    for args in ((), (3,), ("x",)):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            one.__init__(*args)
    with pytest.raises(RuntimeError):
        one._bind(core.Core(1), None, True)
    assert one._bind(core.Core(1), None, False) is False
    assert one.submit(abs, -1).result(10) == 1


@pytest.mark.parametrize("crew", [None, 1, Raises()], ids=["None", "int", "raises"])
def test_a_bare_pool_base_starts_no_thread(crew):
    pool = core.PoolBase()
    assert pool._bind(core.Core(1), crew, True)
    with pytest.raises(AttributeError):
        pool.submit(abs, 1)
    with pytest.raises(AttributeError):
        pool._submit_rows(abs, iter([1]), False, False)


@pytest.mark.parametrize("fate", [3, None, Raises(), KeyError, core.PoolBase()], ids=type)
def test_a_thread_of_a_subclass_that_is_none_of_ours(fate):
    class Thread:
        _fate = fate
        refuse = launch = lambda self: fail(OSError())

    class Pool(ThreadPoolExecutor):
        def _make_worker(self, crew, number):
            return Thread()

    pool = Pool(1)
    with any_error():
        pool.submit(abs, 1)
    pool.shutdown(wait=False, cancel_futures=True)


def test_fail_next_takes_exceptions_only(one):
    with occupied(one):
        tasks = [one.submit(abs, n) for n in range(9)]
        for value in odd_values():
            if not isinstance(value, BaseException):
                with pytest.raises(TypeError):
                    one._core.fail_next(value, [])
                with pytest.raises(TypeError):
                    one._core.fail_next(KeyError(), value if not isinstance(value, list) else 1)
        assert one._core.fail_next(KeyError(7), [])
    assert [task for task in tasks if task.exception(10)] == tasks[:1]


def test_lists_that_are_odd(one):
    with occupied(one):
        tasks = [one.submit(abs, n) for n in range(3)]
        for value in odd_values():
            if not isinstance(value, list):
                for method in (one._core.take_into, one._core.take_cancelled):
                    with pytest.raises(TypeError):
                        method(value)
        into = List([1])
        assert one._core.take_into(into)
        assert into[1:] == tasks[:1]
        into[1].cancel()
    assert wait(tasks, 10).not_done == set()


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_iterators_that_turn_on_the_pool(star, early):
    def shut(pool):
        yield 1
        pool.shutdown()
        yield 2

    def nested(pool):
        yield (1,)
        assert pool.submit(abs, -1).result(10) == 1
        yield from pool._submit_rows(abs, iter([1, 2]), False, early)

    def again(pool):
        yield 1
        pool.__init__(1)

    class Itself:
        left = 3

        def __next__(self):
            self.left -= 1
            if not self.left:
                raise StopIteration
            return self

        def __iter__(self):
            return self

    for make in (shut, nested, again, lambda pool: Itself(), lambda pool: iter(odd_values())):
        pool = ThreadPoolExecutor(1)
        with any_error():
            wait(pool._submit_rows(lambda *args: None, make(pool), star, early), 10)
        pool.shutdown()


def test_submits_of_odd_things(one):
    odd = odd_values()
    tasks = [one.submit(value) for value in odd] + [one.submit(max, *odd)]
    tasks += [one.submit(lambda *a, **k: len(a) + len(k), *odd[:n]) for n in range(len(odd))]
    tasks.append(one.submit(lambda *args: len(args), *range(70_000)))
    for count in (65_534, 65_535, 65_536):
        task = one.submit(lambda *args, **kw: (len(args), kw), *range(count), **{"": 1})
        assert task.result(20) == (count, {"": 1})
    tasks += [one.submit(dict, **{name: 1}) for name in ("", "\ud800", "self", "fn")]
    assert wait(tasks, 20).not_done == set()
    for bad in ((), None):
        with pytest.raises(TypeError):
            one.submit() if bad == () else one.submit(fn=abs)


class Timeout:
    """A number of seconds that does something when it is asked for."""

    def __init__(self, action):
        self.action = action

    def __float__(self):
        self.action()
        return 0.01


def test_timeouts_that_turn_on_what_waits(one):
    task = Task()
    assert task.result(Timeout(lambda: task.set_result(1))) == 1
    task = Task()
    tasks = [task]
    assert core.wait_all(tasks, Timeout(tasks.clear))
    condition = task._condition
    with pytest.raises(RuntimeError), condition:
        condition.wait(Timeout(condition.release))
    with pytest.raises(RuntimeError):
        condition.release()
    assert not condition.locked()
    with pytest.raises(RuntimeError), condition:
        condition.wait_for(condition.release)
    completions = core.Completions()
    assert completions.get(Timeout(lambda: completions.post(completions))) == [completions]
    assert one._core.wait_quiet(Timeout(lambda: one.submit(abs, 1).result(10)))
    for ask in (task.result, task.exception, lambda t: next(as_completed([task], t))):
        with pytest.raises(KeyError):
            ask(Timeout(lambda: fail(KeyError())))


def test_callbacks_and_waiters_that_turn_on_their_task(monkeypatch, caplog):
    lost = []
    monkeypatch.setattr("sys.unraisablehook", lambda info: lost.append(info.exc_value))
    task = Task()
    callbacks = task._done_callbacks  # the very list, with a GIL
    task.add_done_callback(lambda t: callbacks.clear())
    for value in odd_values():
        task.add_done_callback(value)
    task.add_done_callback(lambda t: t.set_result(2))
    task._waiters.extend(odd_values())
    task._waiters.append(task._waiters)
    task.set_result(1)
    assert task.result() == 1
    assert lost
    assert task._waiters  # theirs to take out
    task._waiters.clear()
    lost.clear()
