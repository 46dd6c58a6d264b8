"""Contexts: each task sees its submitter's variables, and nobody else's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import sys
import threading
import weakref

import pytest
from helpers import Probe, check_python, eventually, no_collector, occupied

import affinitypool
from affinitypool import ThreadPoolExecutor, as_completed, wait

pytestmark = pytest.mark.timeout(60)

variable: contextvars.ContextVar = contextvars.ContextVar("variable", default="unset")
other: contextvars.ContextVar = contextvars.ContextVar("other", default="unset")


@pytest.fixture(autouse=True)
def _own_context():
    """Reset what a test sets in the main thread."""
    token = variable.set("unset")
    yield
    variable.reset(token)


def run_in_loop(pool, fn, *args):
    async def main():
        return await asyncio.get_running_loop().run_in_executor(pool, fn, *args)

    return asyncio.run(main())


# how a function gets into a worker; each returns its result
FORMS = {
    "submit": lambda pool, fn, *args: pool.submit(fn, *args).result(10),
    "try_submit": lambda pool, fn, *args: pool.try_submit(fn, *args).result(10),
    "submit_many": lambda pool, fn, *args: pool.submit_many(fn, *[[arg] for arg in args])[0].result(
        10
    ),
    "map": lambda pool, fn, *args: next(pool.map(fn, *[[arg] for arg in args])),
    "buffered map": lambda pool, fn, *args: next(
        pool.map(fn, *[[arg] for arg in args], buffersize=1)
    ),
    "event loop": run_in_loop,
    "wait": lambda pool, fn, *args: wait([pool.submit(fn, *args)]).done.pop().result(0),
    "as_completed": lambda pool, fn, *args: next(as_completed([pool.submit(fn, *args)])).result(0),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def swap(value):
    """Set both variables; return what the first was."""
    before = variable.get()
    variable.set(value)
    other.set(value)
    return before


def in_empty_context(fn, *args):
    return contextvars.Context().run(fn, *args)


# ---- each task in a copy of its submitter's


def test_each_task_sees_its_submitters_variables(two, form):
    """Each task sees its submitter's."""
    for n in range(10):
        variable.set(n)
        assert form(two, swap, "task") == n
        assert variable.get() == n
        assert other.get() == "unset"


def test_a_task_without_arguments_sees_them_too(two):
    for n in range(10):
        variable.set(n)
        assert two.submit(variable.get).result(10) == n


def test_what_the_submitter_sets_later_is_not_seen(two):
    with occupied(two):
        variable.set("at submit")
        tasks = [two.submit(variable.get), *two.submit_many(lambda _: variable.get(), range(3))]
        results = two.map(lambda _: variable.get(), range(3))
        variable.set("later")
    assert {task.result(10) for task in tasks} | set(results) == {"at submit"}


@pytest.mark.parametrize("who", ["thread", "task", "callback", "own task", "finalizer"])
def test_every_kind_of_submitter(one, who):
    """The context is that of the code that submits, wherever it runs."""
    found = []

    def submit(*_):
        variable.set(who)
        found.append(pool.submit(variable.get))

    class Dies:
        __del__ = submit

    with ThreadPoolExecutor(1) as pool:
        if who == "thread":
            thread = threading.Thread(target=submit)
            thread.start()
            thread.join(10)
        elif who == "task":
            one.submit(submit).result(10)
        elif who == "own task":
            pool.submit(submit).result(10)
        elif who == "callback":
            with occupied(one):
                one.submit(int).add_done_callback(submit)
            one.submit(int).result(10)
        else:
            Dies()
            gc.collect()
    assert [task.result(10) for task in found] == [who]


@pytest.mark.parametrize("on_full", ["block", "caller_runs"])
def test_a_task_under_a_bound_has_a_copy_too(on_full):
    """Neighbour: a task that its submitter has to run itself runs in a copy as well."""
    with ThreadPoolExecutor(1, max_pending=1, on_full=on_full) as pool:
        variable.set("submitter")
        tasks = []
        if on_full == "caller_runs":
            with occupied(pool):
                tasks = [pool.submit(swap, n) for n in range(5)]
        tasks += [pool.submit(swap, n) for n in range(20)]
        assert {task.result(10) for task in tasks} == {"submitter"}
        assert (variable.get(), other.get()) == ("submitter", "unset")


@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
@pytest.mark.parametrize("how", ["result", "exception", "wait", "as_completed"])
def test_a_task_that_is_run_inline_has_a_copy_too(one, how, empty):
    """Neighbour: a task that its own worker runs while it waits."""

    def outer():
        variable.set("outer")
        submit = in_empty_context if empty else contextvars.copy_context().run
        task = submit(one.submit, swap, "inner")
        other.set("outer")
        if how == "wait":
            wait([task], 10)
        elif how == "as_completed":
            list(as_completed([task], 10))
        elif how == "exception":
            assert task.exception(10) is None
        return task.result(10), variable.get(), other.get()

    assert one.submit(outer).result(10) == ("unset" if empty else "outer", "outer", "outer")


# ---- one task's variables never show in the next


def returns():
    swap("left behind")


def raises():
    swap("left behind")
    raise KeyError


def exits():
    swap("left behind")
    raise SystemExit


def keeps_the_token():
    token = variable.set("left behind")
    other.set(token)


def sets_in_another_context():
    swap("left behind")
    contextvars.Context().run(swap, "left there")


def submits():
    swap("left behind")
    contextvars.Context().run(returns)


@pytest.mark.parametrize(
    "task", [returns, raises, exits, keeps_the_token, sets_in_another_context, submits]
)
@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
def test_one_tasks_variables_never_show_in_the_next(one, task, empty):
    """One task's context variables never show in the next."""

    def use():
        for _ in range(3):
            one.submit(task).exception(10)
            assert one.submit(variable.get).result(10) == "unset"
            assert one.submit(other.get).result(10) == "unset"
            assert len(one.submit(contextvars.copy_context).result(10)) == len(
                contextvars.copy_context()
            )

    if empty:
        in_empty_context(use)
    else:
        variable.set("unset")
        use()


@pytest.mark.parametrize("workers", [1, 3])
def test_variables_stay_apart_under_load(workers):
    """Neighbour: many submitters with contexts of their own at once, some of them empty."""
    wrong = []
    with ThreadPoolExecutor(workers) as pool:

        def task(expected):
            if variable.get() != expected:
                wrong.append((variable.get(), expected))
            variable.set(f"task of {expected}")
            nested = pool.submit(variable.get)
            if nested.result(20) != f"task of {expected}":
                wrong.append(expected)

        def produce(name):
            for n in range(100):
                if n % 3:
                    variable.set((name, n))
                    wait([pool.submit(task, (name, n)) for _ in range(3)], 20)
                else:
                    in_empty_context(lambda: wait([pool.submit(task, "unset")], 20))

        threads = [threading.Thread(target=produce, args=[name]) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive()
    assert wrong == []


@pytest.mark.parametrize("what", ["callback", "finalizer", "hook"])
def test_what_runs_between_tasks_does_not_show_in_the_next(one, what):
    """Neighbour: other code of the user's that a worker runs."""

    class Dies:
        def __del__(self):
            variable.set("left behind")

    def fail():
        raise KeyError

    previous = affinitypool.on_unobserved_error(lambda task: variable.set("left behind"))
    try:

        def use():
            with occupied(one):
                if what == "callback":
                    task = one.submit(int)
                    task.add_done_callback(lambda task: variable.set("left behind"))
                elif what == "hook":
                    one.submit(fail)
                else:
                    # with what holds it from the result: it dies with the outcome
                    one.submit(lambda: [Dies()])
                seen = one.submit(variable.get)
            return seen.result(10)

        assert in_empty_context(use) == "unset"
    finally:
        affinitypool.on_unobserved_error(previous)


def test_a_callback_does_not_see_the_tasks_variables(one):
    """Neighbour: what a task sets ends with it."""
    seen = []
    with occupied(one):
        task = one.submit(swap, "left behind")
        task.add_done_callback(lambda task: seen.append(variable.get()))
    one.submit(int).result(10)
    assert seen == ["unset"]


def test_a_replaced_worker_has_nothing_of_the_one_before(one, caplog):
    """Neighbour: the thread that replaces a worker is started by the one that dies."""
    caplog.set_level(logging.CRITICAL + 1)
    for propagate in True, False:
        with ThreadPoolExecutor(1, propagate_context=propagate) as pool:
            pool.submit(swap, "left behind").result(10)
            with occupied(pool):
                pool._core.fault_end_workers(1)
                task = in_empty_context(pool.submit, variable.get)
            assert task.result(10) == ("unset" if propagate else task.result(0))
            first = pool.submit(threading.get_ident).result(10)
            assert in_empty_context(pool.submit, variable.get).result(10) == "unset"
            assert first == pool.submit(threading.get_ident).result(10)


# ---- what the initializer has set


def initialised(**options):
    """A pool whose initializer sets `variable`; `other` is the submitter's business."""
    return ThreadPoolExecutor(1, initializer=variable.set, initargs=("initial",), **options)


def both(*_):
    return variable.get(), other.get()


def test_a_task_sees_the_initializers_variables_and_its_submitters(form):
    def submit():
        variable.set("submitter")
        other.set("submitter")
        return form(pool, both, 0)

    with initialised() as pool:
        for _ in range(3):
            assert contextvars.copy_context().run(submit) == ("initial", "submitter")
            assert in_empty_context(form, pool, both, 0) == ("initial", "unset")


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("how", ["task", "callback", "inline"])
def test_what_a_task_sets_over_the_initializers_ends_with_it(how, empty):
    def spoil(*_):
        variable.set("spoilt")
        other.set("spoilt")

    def act():
        if how == "callback":
            with occupied(pool):
                pool.submit(int).add_done_callback(spoil)
        elif how == "inline":
            assert pool.submit(lambda: (pool.submit(spoil).result(), both())).result(10)[1] == (
                ("initial", "unset") if empty else ("initial", "submitter")
            )
        else:
            pool.submit(spoil).result(10)
        return pool.submit(both).result(10)

    def submit():
        other.set("submitter")
        return act()

    with initialised() as pool:
        for _ in range(3):
            if empty:
                assert in_empty_context(act) == ("initial", "unset")
            else:
                assert contextvars.copy_context().run(submit) == ("initial", "submitter")


def test_an_inline_task_and_a_callback_see_the_initializers_variables_too():
    seen = []
    with initialised() as pool:
        assert pool.submit(lambda: pool.submit(both).result()).result(10) == ("initial", "unset")
        with occupied(pool):
            in_empty_context(pool.submit, int).add_done_callback(lambda _: seen.append(both()))
    assert seen == [("initial", "unset")]


def test_who_runs_a_call_in_place_of_the_pool_has_not_been_initialised():
    """Neighbour: the caller's thread, also a worker of another pool with an initializer."""
    with (
        initialised(max_pending=1, on_full="caller_runs") as full,
        ThreadPoolExecutor(1, initializer=other.set, initargs=("another",)) as another,
        occupied(full),
    ):
        full.submit(int)
        assert in_empty_context(full.submit, both).result(0) == ("unset", "unset")
        task = in_empty_context(another.submit, lambda: full.submit(both).result(0))
        assert task.result(10) == ("unset", "another")  # its own context, and no more than that


@pytest.mark.parametrize("empty", [True, False])
def test_a_replaced_worker_is_initialised_again(empty, caplog):
    caplog.set_level(logging.CRITICAL + 1)
    run = in_empty_context if empty else lambda fn, *args: fn(*args)
    with initialised() as pool:
        first = run(pool.submit, threading.get_ident).result(10)
        pool._core.fault_end_workers(1)
        assert eventually(lambda: run(pool.submit, threading.get_ident).result(10) != first)
        assert run(pool.submit, variable.get).result(10) == "initial"


def test_what_the_initializer_found_is_not_what_it_set():
    """Neighbour: tools put variables into the context of a thread that they start."""

    def initializer():
        variable.set(variable.get())  # the same object: nothing to keep

    def submit():
        variable.set("submitter")
        return pool.submit(variable.get).result(10)

    with ThreadPoolExecutor(1, initializer=initializer) as pool:
        # ContextVar.set of what is the default does set it, so it holds
        assert contextvars.copy_context().run(submit) == "unset"
    with ThreadPoolExecutor(1, initializer=int) as pool:
        assert contextvars.copy_context().run(submit) == "submitter"


@pytest.mark.parametrize("propagate", [True, False])
def test_by_choice_the_initializers_variables_hold_in_the_thread_alone(propagate):
    def submit():
        variable.set("submitter")
        return pool.submit(variable.get).result(10)

    with initialised(propagate_context=propagate) as pool:
        expected = "submitter" if propagate else "initial"
        assert contextvars.copy_context().run(submit) == expected


def test_what_the_initializer_set_dies_with_its_thread():
    with no_collector():
        probe = Probe()
        death = weakref.ref(probe)
        with ThreadPoolExecutor(1, initializer=variable.set, initargs=(probe,)) as pool:
            assert pool.submit(variable.get).result(10) is probe
            del probe
            assert death() is not None
        del pool
        gc.collect()
        assert eventually(lambda: death() is None)


# ---- contexts die


@pytest.mark.parametrize("end", ["returns", "raises", "is cancelled", "is dropped"])
def test_a_context_dies_with_its_task(one, end):
    """When a future is done the pool keeps no reference to its context."""
    with no_collector():

        def submit():
            probe = Probe()
            variable.set(probe)
            died.append(weakref.ref(probe))
            task = one.submit(raises if end == "raises" else returns)
            one.submit(returns)
            return task

        died: list[weakref.ref] = []
        with occupied(one):
            task = contextvars.copy_context().run(submit)
            if end == "is cancelled":
                assert task.cancel()
            elif end == "is dropped":
                del task
        assert one.wait_idle(10)
        assert eventually(lambda: died[0]() is None)


def test_what_a_task_sets_dies_with_it(one):
    """Neighbour: also where the worker then sleeps, and for tasks from an empty context."""
    died = []

    def set_it():
        probe = Probe()
        died.append(weakref.ref(probe))
        variable.set(probe)

    with no_collector():
        one.submit(set_it).result(10)
        assert eventually(lambda: died[0]() is None)
        in_empty_context(one.submit, set_it).result(10)
        assert eventually(lambda: died[1]() is None)


# ---- workers start with an empty context

WORKERS = """
import contextvars, logging, threading
from affinitypool import ThreadPoolExecutor
logging.disable()
variable = contextvars.ContextVar("variable", default="unset")
def in_empty_context(fn, *args):
    return contextvars.Context().run(fn, *args)
seen = []
for options in (
    {}, {"propagate_context": True}, {"propagate_context": False}, {"stack_size": 1 << 20},
    {"wait_at_exit": False}, {"max_pending": 3},
    {"propagate_context": False, "stack_size": 1 << 20},
    {"initializer": lambda: seen.append(variable.get())},
    {"initializer": lambda: seen.append(variable.get()), "propagate_context": True},
):
    variable.set("creator")
    with ThreadPoolExecutor(2, **options) as pool:
        variable.set("starter")
        pool.submit(int).result()
        def start_from_a_task():
            variable.set("task")
            met = threading.Barrier(2)
            return [in_empty_context(pool.submit, met.wait, 10) for _ in range(2)]
        for task in pool.submit(start_from_a_task).result():
            task.result()
        def look():
            met.wait(10)
            seen.append(variable.get())
        met = threading.Barrier(2)
        if not options.get("initializer") and options.get("propagate_context", True):
            tasks = [in_empty_context(pool.submit, look) for _ in range(2)]
            for task in tasks:
                task.result()
    # the thread's own context, where a task does not get one
    variable.set("starter")
    with ThreadPoolExecutor(1, propagate_context=False, **{
        name: value for name, value in options.items() if name != "propagate_context"
    }) as pool:
        seen.append(pool.submit(variable.get).result())
        pool._core.fault_end_workers(1)
        pool.submit(int).result()
        seen.append(pool.submit(variable.get).result())
        threads = {pool.submit(threading.get_ident).result() for _ in range(2)}
print(sorted(set(seen)), len(seen) > 20)
"""


@pytest.mark.parametrize("inherit", ["0", "1"])
def test_workers_start_with_an_empty_context(inherit):
    """Workers start with an empty context (also where threads inherit one by default)."""
    options = ("-X", f"thread_inherit_context={inherit}") if sys.version_info >= (3, 14) else ()
    if inherit == "1" and not options:
        pytest.skip("threads inherit no context before Python 3.14")
    out = check_python(WORKERS, options=options)
    assert out == "['unset'] True\n"


def test_a_pool_of_a_forked_child_starts_with_an_empty_context():
    out = check_python(
        """
        import contextvars, os
        from affinitypool import ThreadPoolExecutor
        variable = contextvars.ContextVar("variable", default="unset")
        pool = ThreadPoolExecutor(1)
        def fork():
            variable.set("task")
            child = os.fork()
            if child:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            here = pool.submit(variable.get).result(10)
            empty = contextvars.Context().run(pool.submit, variable.get).result(10)
            os.write(1, f"{here} {empty}".encode())
            os._exit(0)
        assert pool.submit(fork).result(20) == 0
        """,
        options=("-W", "ignore"),
    )
    assert out == "task unset"
