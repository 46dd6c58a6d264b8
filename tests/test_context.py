"""`contextvars`: tasks run in a copy of their submitter's context, or as the stdlib's do."""

from __future__ import annotations

import contextvars
import decimal
import sys
import threading
from concurrent.futures import Future

import pytest
from helpers import check_python, occupied

from affinitypool import ThreadPoolExecutor, as_completed, wait

pytestmark = pytest.mark.timeout(30)

variable = contextvars.ContextVar("variable", default="unset")


@pytest.fixture(autouse=True)
def _own_context():
    """Reset what a test sets in the main thread."""
    token = variable.set("unset")
    yield
    variable.reset(token)


def put_and_get(value):
    before = variable.get()
    variable.set(value)
    return before, variable.get()


def test_a_task_sees_its_submitters_context(pool):
    tasks = []
    for n in range(20):
        variable.set(n)
        tasks.append(pool.submit(variable.get))
    variable.set("later")
    assert [task.result(10) for task in tasks] == list(range(20))


def test_the_batch_forms_propagate_too(pool):
    variable.set("here")
    assert list(pool.map(lambda _: variable.get(), range(600))) == ["here"] * 600
    assert list(pool.map(lambda _: variable.get(), range(9), buffersize=2)) == ["here"] * 9
    tasks = pool.submit_many(lambda _: variable.get(), range(600))
    assert {task.result(10) for task in tasks} == {"here"}


def test_each_task_has_a_copy_of_its_own(pool):
    variable.set("mine")
    for n in range(20):
        assert pool.submit(put_and_get, n).result(10) == ("mine", n)
    assert variable.get() == "mine"


def test_a_task_from_an_empty_context_leaves_nothing_behind(pool):
    def submit():
        tasks = [pool.submit(put_and_get, n) for n in range(50)]
        return [task.result(10) for task in tasks]

    empty = contextvars.Context()
    assert empty.run(submit) == [("unset", n) for n in range(50)]
    assert empty.run(lambda: len(contextvars.copy_context())) == 0


def test_a_failing_task_leaves_nothing_behind(one):
    def work():
        variable.set("left")
        raise KeyError

    def submit():
        assert isinstance(one.submit(work).exception(10), KeyError)
        return one.submit(variable.get).result(10)

    assert contextvars.Context().run(submit) == "unset"
    variable.set("here")
    assert isinstance(one.submit(work).exception(10), KeyError)
    assert one.submit(variable.get).result(10) == "here"


def test_a_nested_task_sees_the_task_that_submitted_it(pool):
    def outer(n):
        variable.set(n)
        return pool.submit(variable.get)

    for n in range(10):
        assert pool.submit(outer, n).result(10).result(10) == n


@pytest.mark.parametrize("how", ["result", "wait", "as_completed", "mixed", "nested"])
def test_a_task_that_is_run_inline_has_its_own_context(one, how):
    def inner(value):
        before = variable.get()
        variable.set(value)
        return before

    def outer():
        variable.set("at submit")
        task = one.submit(inner, "inner")
        variable.set("after submit")
        if how == "wait":
            wait([task])
        elif how == "as_completed":
            list(as_completed([task]))
        elif how == "mixed":
            future = Future()
            future.set_result(0)
            wait([task, future])
        elif how == "nested":
            assert contextvars.copy_context().run(task.result)
        return task.result(), variable.get()

    assert one.submit(outer).result(10) == ("at submit", "after submit")


def test_an_inline_task_from_an_empty_context(one):
    def outer():
        task = contextvars.Context().run(one.submit, put_and_get, 1)
        variable.set("outer")
        return task.result(), variable.get()

    variable.set("submitter")
    assert one.submit(outer).result(10) == (("unset", 1), "outer")


def test_a_callback_of_the_pool_may_use_contexts(one):
    seen = []
    with occupied(one):
        variable.set("submit")
        task = one.submit(int)
        task.add_done_callback(lambda t: seen.append(one.submit(variable.get).result(10)))
    one.submit(int).result(10)
    assert len(seen) == 1


# ---- with an initializer, and by choice


def start(value):
    variable.set(value)
    decimal.getcontext().prec = 5


def test_with_an_initializer_tasks_see_what_it_set():
    variable.set("submitter")
    with ThreadPoolExecutor(2, initializer=start, initargs=("initializer",)) as pool:
        for _ in range(10):
            assert pool.submit(variable.get).result(10) == "initializer"
        assert set(pool.map(lambda _: variable.get(), range(50))) == {"initializer"}


def test_with_an_initializer_that_sets_decimal_precision():
    with ThreadPoolExecutor(1, initializer=start, initargs=(0,)) as pool:
        assert pool.submit(lambda: decimal.Decimal(1) / 3).result(10) == decimal.Decimal("0.33333")


def test_decimal_precision_of_the_submitter(pool):
    with decimal.localcontext() as context:
        context.prec = 4
        assert pool.submit(lambda: decimal.Decimal(1) / 3).result(10) == decimal.Decimal("0.3333")
    with decimal.localcontext() as context:
        context.prec = 7
        assert pool.submit(lambda: decimal.Decimal(1) / 3).result(10) == decimal.Decimal(
            "0.3333333"
        )


def test_propagation_with_an_initializer():
    variable.set("submitter")
    with ThreadPoolExecutor(
        1, initializer=start, initargs=("initializer",), propagate_context=True
    ) as pool:
        assert pool.submit(variable.get).result(10) == "submitter"
        assert contextvars.Context().run(pool.submit, variable.get).result(10) == "unset"


def test_no_propagation_by_choice():
    variable.set("submitter")
    with ThreadPoolExecutor(1, propagate_context=False) as pool:
        assert pool.submit(variable.get).result(10) == "unset"
        # as the stdlib's: the context is the thread's
        assert pool.submit(put_and_get, 1).result(10) == ("unset", 1)
        assert pool.submit(put_and_get, 2).result(10) == (1, 2)


# ---- where threads start with their creator's context


@pytest.mark.skipif(
    sys.version_info < (3, 14), reason="threads inherit no context before Python 3.14"
)
def test_workers_start_with_an_empty_context_where_threads_inherit_one():
    out = check_python(
        """
        import contextvars
        from affinitypool import ThreadPoolExecutor
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("creator")
        for propagate in (None, True, False):
            with ThreadPoolExecutor(1, propagate_context=propagate) as pool:
                pool.submit(int).result()
                task = contextvars.Context().run(pool.submit, variable.get)
                print(task.result(), pool.submit(variable.get).result())
        """,
        options=("-X", "thread_inherit_context=1"),
    )
    assert out.split("\n")[:3] == ["unset creator", "unset creator", "unset unset"]


def test_a_worker_that_a_task_started_has_none_of_its_context():
    with ThreadPoolExecutor(2, propagate_context=False) as pool:
        gate = threading.Event()

        def outer():
            variable.set("outer")
            task = pool.submit(variable.get)
            return gate.wait(10) and task

        task = pool.submit(outer)
        gate.set()
        inner = task.result(10)
        assert inner.result(10) in ("unset", "outer")
        with occupied(pool):
            assert len(pool._threads) == 2
