"""The pool against a plain model, by hypothesis: sequences of calls that nobody would write.

The twin (`Twin`, `PoolMachine.advance`) is a list of what is queued and a set of what runs. Tasks
start in the order of submission and end at once, unless they stand at a gate that only the machine
opens; so after each call the twin knows the state of each task, of one worker or of several, and
the pool has to come to it. What is checked after each call: the state of every task, that it
started once or never, in which order (one worker), its callbacks and their order, what is pending.

The machine is also run on pools and tasks with a fault planted, which it must find.

HYPOTHESIS_PROFILE=deep runs it for longer, and from other seeds each time.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError, as_completed, wait
from concurrent.futures.thread import BrokenThreadPool
from contextlib import contextmanager
from typing import Any

import pytest
from helpers import eventually
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import affinitypool
from affinitypool import PendingLimitError, ShutdownError, Task, ThreadPoolExecutor

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
SLOW = 20.0  # seconds for what has to happen
SHORT = 0.002  # seconds for what must not

PLAIN = settings(
    deadline=None,
    derandomize=not DEEP,
    database=None,
    max_examples=1000 if DEEP else 60,
    stateful_step_count=60 if DEEP else 40,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=[Phase.generate],
)
# A planted fault is found or is not; its smallest example is of no interest.
PLANTED = settings(PLAIN, derandomize=True, max_examples=300)

variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)


@contextmanager
def raises(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """As `pytest.raises`, but what it raises itself is an Exception, which hypothesis shrinks."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"


class Odd(BaseException):
    """Not an Exception."""


class Twin:
    """A task as the model has it."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.state = "pending"
        self.gate = threading.Event()
        self.started = threading.Event()
        self.task: Any = None
        self.context = (variable.get(), 0)  # of the submitter
        self.callbacks = 0
        # what was seen
        self.threads: list[int] = []
        self.called: list[int] = []
        self.error: type[BaseException] | None = None
        self.value: Any = None

    @property
    def over(self) -> bool:
        """Whether it is done."""
        return self.state in ("done", "failed", "cancelled")

    def __repr__(self) -> str:
        """What a failing example prints."""
        return f"<{self.number} {self.kind} {self.state}>"


KINDS = ("returns", "raises", "odd", "exit", "gate", "gate", "gate", "context", "nested")
ERRORS = {"raises": ValueError, "odd": Odd, "exit": SystemExit}
kinds = st.sampled_from(KINDS)
index = st.integers(0, 30)


class PoolMachine(RuleBasedStateMachine):
    """One pool and its twin."""

    pool_class: type[ThreadPoolExecutor] = ThreadPoolExecutor
    patience = SLOW  # with what the pool has to come to

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.made: list[Twin] = []
        self.twins: list[Twin] = []  # those that have tasks
        self.queue: list[Twin] = []  # accepted and not started; the cancelled are not in it
        self.dropped = 0  # at most so many that were cancelled are still queued
        self.running: list[Twin] = []
        self.order: list[int] = []  # as the functions say
        self.wanted_order: list[int] = []
        self.refused: list[int] = []  # must never run
        self.closed = self.broken = False
        self.initialized: list[int] = []
        self.pool: Any = None
        variable.set(0)

    # ---- the pool -----------------------------------------------------------------------

    @initialize(
        workers=st.sampled_from([1, 1, 1, 2, 3]),
        max_pending=st.sampled_from([None, None, 1, 2, 3]),
        on_full=st.sampled_from(["block", "raise", "caller_runs"]),
        initializer=st.sampled_from(["none", "none", "none", "counts", "marks", "marks", "fails"]),
    )
    def make(self, workers: int, max_pending: int | None, on_full: str, initializer: str) -> None:
        self.workers, self.max_pending, self.on_full = workers, max_pending, on_full
        self.initializer = initializer
        function: Callable[..., object] | None = {
            "none": None,
            "counts": self.count_initializer,
            "marks": self.count_initializer,
            "fails": self.fail_initializer,
        }[initializer]
        self.pool = self.pool_class(
            workers,
            initializer=function,
            initargs=(7,) if function is not None else (),
            max_pending=max_pending,
            on_full=on_full,
        )

    def count_initializer(self, value: int) -> None:
        self.initialized.append(threading.get_ident())
        if self.initializer == "marks":
            mark.set(value)

    def fail_initializer(self, value: int) -> None:
        raise ValueError(value)

    def body(self, twin: Twin) -> Any:
        """What each task does."""
        twin.threads.append(threading.get_ident())
        self.order.append(twin.number)
        twin.started.set()
        if twin.kind == "gate":
            assert twin.gate.wait(60), "nobody opened the gate"
        elif twin.kind in ERRORS:
            raise ERRORS[twin.kind](twin.number)
        elif twin.kind == "context":
            return (variable.get(), mark.get())
        elif twin.kind == "nested":
            return self.pool.submit(pow, twin.number, 2).result()
        return twin.number

    # ---- the twin -----------------------------------------------------------------------

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do."""
        return len(self.running) < self.workers

    @property
    def full(self) -> bool:
        """Whether a submit finds as many pending as may be."""
        return self.max_pending is not None and len(self.queue) >= self.max_pending

    def new(self, kind: str) -> Twin:
        if kind == "nested" and self.max_pending is not None:
            kind = "returns"
        twin = Twin(next(self.numbers), kind)
        self.made.append(twin)
        return twin

    def accept(self, twin: Twin, task: Any) -> None:
        assert isinstance(task, Task)
        twin.task = task
        self.twins.append(twin)
        self.queue.append(twin)

    def refuse(self, twin: Twin) -> None:
        """Nobody may run it."""
        self.refused.append(twin.number)
        twin.gate.set()

    def run_twin(self, twin: Twin, *, by_worker: bool) -> None:
        """It has started: and ended, unless it stands at a gate."""
        self.wanted_order.append(twin.number)
        if twin.kind == "gate" and not twin.gate.is_set():
            twin.state = "running"
            self.running.append(twin)
            return
        self.end_twin(twin, by_worker=by_worker)

    def end_twin(self, twin: Twin, *, by_worker: bool) -> None:
        twin.state, twin.value = "done", twin.number
        if twin.kind in ERRORS:
            twin.state, twin.error = "failed", ERRORS[twin.kind]
        elif twin.kind == "nested" and self.closed:
            twin.state, twin.error = "failed", ShutdownError
        elif twin.kind == "nested":
            twin.value = twin.number**2
            self.dropped += 1  # the inner task, if it was run by who waits for it
        elif twin.kind == "context":
            marked = self.initializer == "marks" and by_worker
            twin.value = (twin.context[0], 7 if marked else 0)

    def advance(self) -> None:
        """The workers do what they can."""
        while self.free and self.queue:
            if self.initializer == "fails":
                self.broken = True
                for twin in self.queue:
                    twin.state, twin.error = "failed", BrokenThreadPool
                self.queue.clear()
                return
            self.run_twin(self.queue.pop(0), by_worker=True)
        if self.free:
            self.dropped = 0

    def cancel_twin(self, twin: Twin) -> None:
        self.queue.remove(twin)
        self.dropped += 1
        twin.state = "cancelled"
        twin.gate.set()

    def pick(self, at: int) -> Twin:
        return self.twins[-1 - at % len(self.twins)]

    def pick_some(self, chosen: list[int]) -> list[Twin]:
        return [self.pick(at) for at in chosen] if self.twins else []

    # ---- submitting ---------------------------------------------------------------------

    def submit_refused(self, submit: Callable[..., Any], twin: Twin) -> bool:
        """Whether a pool that takes no tasks says so."""
        if not (self.broken or self.closed):
            return False
        kind: type[Exception] = BrokenThreadPool if self.broken else ShutdownError
        with raises(kind):
            submit(self.body, twin)
        self.refuse(twin)
        return True

    @precondition(lambda self: self.free and not self.closed and self.initializer != "fails")
    @rule()
    def occupy(self) -> None:
        """A gate for every worker."""
        while self.free:
            twin = self.new("gate")
            self.accept(twin, self.pool.submit(self.body, twin))
            self.agrees()

    @rule(some=st.lists(kinds, min_size=1, max_size=4))
    def submit(self, some: list[str]) -> None:
        for kind in some:
            self.submit_one(kind)
            self.agrees()

    def submit_one(self, kind: str) -> None:
        if self.full and self.on_full == "block" and not (self.broken or self.closed):
            return self.submit_that_blocks(kind)
        if self.full and self.on_full == "caller_runs" and kind == "gate":
            kind = "odd"  # a call that must come back
        twin = self.new(kind)
        if self.submit_refused(self.pool.submit, twin):
            return None
        if self.full and self.on_full == "raise":
            with raises(PendingLimitError):
                self.pool.submit(self.body, twin)
            self.refuse(twin)
        elif self.full:
            twin.task = self.pool.submit(self.body, twin)
            self.twins.append(twin)
            assert twin.threads == [threading.get_ident()], "the bound lets one more in"
            self.run_twin(twin, by_worker=False)
        else:
            self.accept(twin, self.pool.submit(self.body, twin))
        return None

    def submit_that_blocks(self, kind: str) -> None:
        """Another thread is let in by a cancel."""
        twin, given = self.new(kind), []
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: given.append(context.run(self.pool.submit, self.body, twin))
        )
        thread.start()
        thread.join(SHORT)
        try:
            assert thread.is_alive(), "the bound lets one more in"
        finally:
            last = self.queue[-1]
            cancelled = last.task.cancel()
            thread.join(SLOW)
        assert cancelled
        assert not thread.is_alive(), "the place was not given back"
        self.cancel_twin(last)
        self.accept(twin, given[0])

    @rule(kind=kinds)
    def try_submit(self, kind: str) -> None:
        twin = self.new(kind)
        if self.submit_refused(self.pool.try_submit, twin):
            return
        if self.full:
            with raises(PendingLimitError):
                self.pool.try_submit(self.body, twin)
            self.refuse(twin)
        else:
            self.accept(twin, self.pool.try_submit(self.body, twin))

    def may_submit(self, count: int) -> bool:
        """Whether so many surely find room, whatever the workers have done meanwhile."""
        return self.max_pending is None or len(self.queue) + count <= self.max_pending

    @rule(some=st.lists(kinds, min_size=1, max_size=5), bad_input=st.booleans())
    def submit_many(self, some: list[str], bad_input: bool) -> None:
        if not self.may_submit(len(some)) or self.initializer == "fails":
            return
        twins = [self.new(kind) for kind in some]
        if self.closed:
            with raises(ShutdownError):
                self.pool.submit_many(self.body, twins)
            for twin in twins:
                self.refuse(twin)
            return
        if bad_input and self.pool._submits_directly():  # all or none
            with raises(KeyError):
                self.pool.submit_many(self.body, _then_fails(twins))
            for twin in twins:
                self.refuse(twin)
            return
        tasks = self.pool.submit_many(self.body, twins)
        assert len(tasks) == len(twins)
        for twin, task in zip(twins, tasks, strict=True):
            self.accept(twin, task)

    @precondition(lambda self: not self.closed and self.initializer != "fails")
    @rule(
        some=st.lists(st.sampled_from(["returns", "context"]), min_size=1, max_size=5),
        buffersize=st.sampled_from([None, 1, 2]),
    )
    def map(self, some: list[str], buffersize: int | None) -> None:
        """All results in order where there is a worker; else none runs once the time has passed."""
        if not self.may_submit(len(some)):
            return
        twins = [self.new(kind) for kind in some]
        results = self.pool.map(
            self.body, twins, buffersize=buffersize, timeout=SLOW if self.free else SHORT
        )
        if self.free:
            for twin, result in zip(twins, results, strict=True):
                self.run_twin(twin, by_worker=True)
                assert result == twin.value, f"{twin} returned {result}, not {twin.value}"
                assert len(twin.threads) == 1
            return
        with raises(TimeoutError):
            next(results)
        # one more than the buffer holds is submitted before a result is waited for
        self.dropped += len(twins if buffersize is None else twins[: buffersize + 1])
        for twin in twins:
            self.refuse(twin)

    # ---- tasks --------------------------------------------------------------------------

    @precondition(lambda self: self.twins)
    @rule(at=index)
    def cancel(self, at: int) -> None:
        twin = self.pick(at)
        before = twin.state
        assert twin.task.cancel() is (before in ("pending", "cancelled"))
        if before == "pending":
            self.cancel_twin(twin)

    @precondition(lambda self: self.running)
    @rule(at=index)
    def open_gate(self, at: int) -> None:
        gates = [twin for twin in self.running + self.queue if twin.kind == "gate"]
        if not gates:
            return
        twin = gates[at % len(gates)]
        twin.gate.set()
        if twin in self.running:
            self.running.remove(twin)
            self.end_twin(twin, by_worker=True)

    @precondition(lambda self: self.twins)
    @rule(at=index, method=st.sampled_from(["result", "exception"]), late=st.booleans())
    def ask(self, at: int, method: str, late: bool) -> None:
        twin = self.pick(at)
        self.check_outcome(twin, method, 0 if late else SHORT)

    def check_outcome(self, twin: Twin, method: str, timeout: float) -> None:
        ask = getattr(twin.task, method)
        if not twin.over:
            with raises(TimeoutError):
                ask(timeout)
        elif twin.state == "cancelled":
            with raises(CancelledError):
                ask(timeout)
        elif method == "exception":
            error = ask(timeout)
            assert type(error) is (twin.error or type(None))
        elif twin.error is not None:
            with raises(twin.error) as caught:
                ask(timeout)
            if twin.error in ERRORS.values():
                assert caught[0].args == (twin.number,)
        else:
            value = ask(timeout)
            assert value == twin.value, f"{twin} returned {value}, not {twin.value}"

    @precondition(lambda self: self.twins)
    @rule(
        at=index,
        errors=st.lists(st.sampled_from([None, None, ValueError, Odd]), min_size=1, max_size=3),
    )
    def add_done_callbacks(self, at: int, errors: list[type[BaseException] | None]) -> None:
        twin = self.pick(at)
        for error in errors:
            if error is Odd and twin.over:
                error = None  # a late callback runs in the caller, who gets it
            twin.task.add_done_callback(self.callback(twin, twin.callbacks, error))
            twin.callbacks += 1

    def callback(
        self, twin: Twin, number: int, error: type[BaseException] | None
    ) -> Callable[[Any], None]:
        def call(task: Any) -> None:
            right = task is twin.task and task.done()
            twin.called.append(number if right else -1)
            if error is not None:
                raise error(number)

        return call

    @precondition(lambda self: self.twins)
    @rule(at=index, fails=st.booleans())
    def set_from_outside(self, at: int, fails: bool) -> None:
        """Whoever sets a task's outcome decides it, once; the worker then leaves it."""
        twin = self.pick(at)
        if twin.state == "running":
            return
        error = KeyError(twin.number)
        call = twin.task.set_exception if fails else twin.task.set_result
        argument = error if fails else "outside"
        if twin.over:
            with raises(InvalidStateError):
                call(argument)
            return
        call(argument)
        self.cancel_twin(twin)
        twin.state, twin.value = ("failed", None) if fails else ("done", "outside")
        twin.error = KeyError if fails else None

    @precondition(lambda self: self.twins)
    @rule(at=index)
    def run_from_outside(self, at: int) -> None:
        """As an executor runs a future: the worker leaves it."""
        twin = self.pick(at)
        if twin.state != "pending":
            return
        assert twin.task.set_running_or_notify_cancel() is True
        assert twin.task.running()
        assert not twin.task.cancel()
        assert not twin.task.done()
        twin.task.set_result("outside")
        self.cancel_twin(twin)
        twin.state, twin.value = "done", "outside"

    @precondition(lambda self: self.queue)
    @rule()
    def take_from_work_queue(self) -> None:
        item = self.pool._work_queue.get_nowait()
        (twin,) = item.args
        assert twin in self.queue
        assert item.future is twin.task
        twin.gate.set()
        if twin.kind == "nested":
            twin.kind = "returns"  # who is no worker would wait for one
        self.queue.remove(twin)
        item.run()
        self.run_twin(twin, by_worker=False)
        if twin.kind == "context":
            twin.value = (variable.get(), 0)  # of whoever runs it

    @rule(value=st.integers(1, 1000))
    def set_variable(self, value: int) -> None:
        variable.set(value)

    # ---- waiting ------------------------------------------------------------------------

    @rule(chosen=st.lists(index, max_size=6), when=st.sampled_from(["ALL", "FIRST", "EXCEPTION"]))
    def wait_for(self, chosen: list[int], when: str) -> None:
        twins = self.pick_some(chosen)
        flag = {"ALL": "ALL_COMPLETED", "FIRST": "FIRST_COMPLETED", "EXCEPTION": "FIRST_EXCEPTION"}
        tasks = [twin.task for twin in twins]
        for wait_function in (wait, affinitypool.wait):
            done, not_done = wait_function(tasks, timeout=0, return_when=flag[when])
            assert done == {twin.task for twin in twins if twin.over}
            assert not_done == {twin.task for twin in twins if not twin.over}

    @rule(chosen=st.lists(index, max_size=6))
    def as_they_complete(self, chosen: list[int]) -> None:
        twins = set(self.pick_some(chosen))
        wanted = {twin.task for twin in twins if twin.over}
        for function in (as_completed, affinitypool.as_completed):
            seen: list[Future[Any]] = []
            try:
                for task in function([twin.task for twin in twins], timeout=0):
                    seen.append(task)
            except TimeoutError:
                assert len(wanted) < len(twins)
            else:
                assert len(wanted) == len(twins)
            assert len(seen) == len(set(seen))
            assert set(seen) == wanted

    @rule()
    def wait_idle(self) -> None:
        busy = bool(self.running)
        idle = self.pool.wait_idle(SHORT if busy else SLOW)
        assert idle is not busy, f"idle: {idle}, while {self.running} run"

    # ---- the end ------------------------------------------------------------------------

    @property
    def ends(self) -> bool:
        return not self.running and not self.queue

    @precondition(lambda self: len(self.made) > 5)  # or there would be little else
    @rule(
        how=st.sampled_from(["leave", "cancel", "drain", "now", "now", "now", "wait"]), rare=index
    )
    def shut_down(self, how: str, rare: int) -> None:
        if rare % 2:
            return
        pending = list(self.queue)
        timeout = SLOW if self.ends or (how in ("cancel", "now") and not self.running) else SHORT
        if how == "leave":
            self.pool.shutdown(wait=False)
        elif how == "cancel":
            self.pool.shutdown(wait=False, cancel_futures=True)
        elif how == "now":
            cancelled = self.pool.shutdown_now(timeout)
            assert len(cancelled) == len(set(cancelled)), "one is returned twice"
            assert set(cancelled) == {twin.task for twin in pending}, "not what it cancelled"
        else:
            end = self.pool.drain if how == "drain" else self.pool.shutdown
            assert end(timeout=timeout) is self.ends
        if how in ("cancel", "now"):
            for twin in pending:
                self.cancel_twin(twin)
        self.closed = True

    # ---- the comparison -----------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if self.pool is None:
            return
        self.advance()
        for twin in self.twins:
            self.check_twin(twin)
        assert not set(self.refused) & set(self.order), "what was refused runs"
        order, wanted = list(self.order), list(self.wanted_order)
        if self.workers > 1:
            order, wanted = sorted(order), sorted(wanted)
        assert order == wanted, f"started {order}, not {wanted}"
        least, most = len(self.queue), len(self.queue) + self.dropped
        pending = 0

        def as_pending() -> bool:
            nonlocal pending
            pending = self.pool.stats().pending
            return least <= pending <= most

        assert eventually(as_pending, self.patience), f"{pending} pending, not {least} to {most}"
        assert len(self.initialized) <= self.workers

    def check_twin(self, twin: Twin) -> None:
        task = twin.task
        if twin.over:
            assert eventually(task.done, self.patience), f"{twin} is {task!r}"
            assert task.cancelled() is (twin.state == "cancelled"), f"{twin} is {task!r}"
            assert not task.running()
            if twin.state == "cancelled":
                with raises(CancelledError):
                    task.result(0)
            else:
                error = task.exception(0)
                assert type(error) is (twin.error or type(None)), f"{twin} is {task!r}: {error!r}"
            calls = list(range(twin.callbacks))
            eventually(lambda: len(twin.called) >= len(calls), self.patience)
            assert twin.called == calls, f"{twin}: callbacks {twin.called}, not {calls}"
        elif twin.state == "running":
            assert twin.started.wait(self.patience), f"{twin} is {task!r}"
            assert eventually(task.running, self.patience)
            assert not task.done()
            assert not twin.called
        else:
            assert not task.done(), f"{twin} is {task!r}"
            assert not task.running(), f"{twin} is {task!r}"
            assert not twin.called
            assert not twin.threads
        once = self.wanted_order.count(twin.number)
        assert len(twin.threads) == once, f"{twin} has run {len(twin.threads)} times"

    def teardown(self) -> None:
        """Let everything go, also after a failure; else compare once more."""
        if self.pool is None:
            return
        for twin in self.made:
            twin.gate.set()
        ended = self.pool.shutdown(timeout=SLOW)
        if sys.exc_info()[0] is not None:
            return  # what failed is on its way
        assert ended, "the pool does not end"
        self.closed = True
        for twin in self.running:
            self.end_twin(twin, by_worker=True)
        self.running.clear()
        self.agrees()
        assert self.pool.stats().pending == 0
        assert self.pool.wait_idle(0)


def _then_fails(twins: list[Twin]) -> Iterator[Twin]:
    yield from twins
    raise KeyError


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """What raising callbacks and impatient shutdowns log is no matter here."""
    loggers = [logging.getLogger(name) for name in ("affinitypool", "concurrent.futures")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger, flag in zip(loggers, before, strict=True):
        logger.disabled = flag


@pytest.mark.timeout(7200 if DEEP else 120)
def test_a_pool_does_as_its_twin() -> None:
    run_state_machine_as_test(PoolMachine, settings=PLAIN)


# ---- faults planted: each must be found --------------------------------------------------------


class RunsTwice(ThreadPoolExecutor):
    """Some calls are made twice."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Twin) and args[0].number % 5 == 4:
            return super().submit(lambda *args: (fn(*args), fn(*args))[0], *args, **kwargs)
        return super().submit(fn, *args, **kwargs)


class Overtakes(ThreadPoolExecutor):
    """Many at once are submitted last first."""

    def submit_many(self, fn: Any, *iterables: Any) -> Any:
        tasks = super().submit_many(fn, *(list(each)[::-1] for each in iterables))
        return tasks[::-1]


class Miscounts(ThreadPoolExecutor):
    """One pending task too many, now and then."""

    def stats(self) -> Any:
        stats = super().stats()
        return stats._replace(pending=stats.pending + (stats.pending == 2))


class ForgetsOne(ThreadPoolExecutor):
    """`shutdown_now` does not return all that it cancels."""

    def shutdown_now(self, timeout: float | None = None) -> Any:
        return super().shutdown_now(timeout)[1:]


class LosesContexts(ThreadPoolExecutor):
    """Tasks run in an empty context."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return contextvars.Context().run(super().submit, fn, *args, **kwargs)


class LetsOneMoreIn(ThreadPoolExecutor):
    """The bound is one too many."""

    def __init__(self, *args: Any, max_pending: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, max_pending=max_pending and max_pending + 1, **kwargs)


class TakesMore(ThreadPoolExecutor):
    """A closed pool says that it has taken a task."""

    def try_submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().try_submit(fn, *args, **kwargs)
        except ShutdownError:
            return Task()  # type: ignore[no-untyped-call]


class IsIdleTooSoon(ThreadPoolExecutor):
    """`wait_idle` does not wait for what runs."""

    def wait_idle(self, timeout: float | None = None) -> bool:
        return super().wait_idle(timeout) or self.stats().pending == 0


def _lose_cancels(task: Any) -> bool:
    return bool(_cancel(task)) if not task_is_pending(task) else True


def task_is_pending(task: Any) -> bool:
    """Whether a cancel would have something to do."""
    return not (task.done() or task.running())


def _cancel(task: Any) -> bool:
    return bool(Task.__mro__[1].cancel(task))  # type: ignore[attr-defined]


def _call_in_reverse(task: Any, fn: Callable[[Any], object]) -> None:
    """Callbacks of a pending task are called last first."""
    add = Task.__mro__[1].add_done_callback  # type: ignore[attr-defined]
    if task.done():
        add(task, fn)
        return
    held = vars(task).setdefault("held", [])
    if not held:
        add(task, lambda task: [each(task) for each in reversed(vars(task).pop("held"))])
    held.append(fn)


def _result_is_none(task: Any, timeout: float | None = None) -> Any:
    """A cancelled task has a result."""
    if task.cancelled():
        return None
    return Task.__mro__[1].result(task, timeout)  # type: ignore[attr-defined]


FAULTY_POOLS = {
    RunsTwice: "has run 2 times",
    Overtakes: "started .*, not |is <Task",
    Miscounts: "3 pending, not 2",
    ForgetsOne: "not what it cancelled",
    LosesContexts: "context done> returned",
    LetsOneMoreIn: "no PendingLimitError|the bound lets one more in",
    TakesMore: "no ShutdownError",
    IsIdleTooSoon: "idle: True, while",
}
FAULTY_METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "cancel": (_lose_cancels, "cancelled> is <Task|what was refused runs"),
    "add_done_callback": (_call_in_reverse, "callbacks \\["),
    "result": (_result_is_none, "no CancelledError"),
}


def _finds(kind: type[ThreadPoolExecutor], words: str) -> None:
    machine = type("Machine", (PoolMachine,), {"pool_class": kind, "patience": 1.0})
    for attempt in range(3):
        try:
            with pytest.raises(AssertionError, match=words) as caught:
                run_state_machine_as_test(machine, settings=PLANTED)
            break
        except Flaky:  # a second of patience is short where all is slow
            if attempt == 2:
                raise
    print(kind.__name__, "found by:", str(caught.value).splitlines()[0])


@pytest.mark.parametrize("kind", FAULTY_POOLS, ids=lambda kind: kind.__name__)
def test_the_machine_finds_a_pool_with_a_fault(kind: type[ThreadPoolExecutor]) -> None:
    _finds(kind, FAULTY_POOLS[kind])


@pytest.mark.parametrize("name", FAULTY_METHODS)
def test_the_machine_finds_a_task_with_a_fault(name: str, monkeypatch: Any) -> None:
    method, words = FAULTY_METHODS[name]
    monkeypatch.setattr(Task, name, method, raising=False)
    _finds(ThreadPoolExecutor, words)
