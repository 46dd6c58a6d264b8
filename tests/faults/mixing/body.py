"""What a task does, and what callbacks and finalizers do."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import random
import time
from typing import Any

from mixing.ledger import FAILING, Entry
from mixing.world import Box, World, is_initialized

from affinitypool import as_completed, wait

PLANS = {
    "return": 30,
    "pause": 10,
    "compute": 10,
    "nest": 10,
    "spawn": 6,
    "cross": 4,
    "cancel": 6,
    "context": 8,
    "garbage": 3,
    "shut down": 1,
    "fail": 10,
    "fail by SystemExit": 1,
    "fail by KeyboardInterrupt": 1,
    "fail by GeneratorExit": 1,
    "fail by StopIteration": 1,
}
NAMES, WEIGHTS = list(PLANS), list(PLANS.values())
LEAVES = ["return", "pause", "compute", "fail", "context"]
REFUSALS = (RuntimeError, queue.Full)  # ShutdownError, BrokenThreadPool, PendingLimitError
submitter: contextvars.ContextVar[int] = contextvars.ContextVar("submitter", default=-1)


def choose_plan(rng: random.Random) -> str:
    """Return what a task shall do."""
    return rng.choices(NAMES, WEIGHTS)[0]


def run(entry: Entry, *args: Any, **kwargs: Any) -> Any:
    """Do what the entry says: the function of every task."""
    entry.begin()
    if args and args != (entry.number,):
        entry.world.fault("wrong arguments", f"{entry!r}: {args}")
    if kwargs and kwargs != {"number": entry.number}:
        entry.world.fault("wrong arguments", f"{entry!r}: {kwargs}")
    if entry.box.initialized and in_worker(entry) and not is_initialized():
        entry.world.fault("no initializer", f"{entry!r}")
    step = BODIES.get(entry.plan)
    if step is not None:
        step(entry, random.Random(entry.salt))
    elif entry.plan in FAILING:
        raise FAILING[entry.plan](entry.number)
    return entry.value


def in_worker(entry: Entry) -> bool:
    """Return whether the calling thread is a worker of the entry's pool, if that is still there."""
    pool = entry.box.pool
    return pool is not None and bool(pool.is_worker())


def submit(pool: Any, entry: Entry, shape: int = 0) -> None:
    """Submit an entry's call; what is refused is noted."""
    before = submitter.set(entry.number)
    try:
        if shape == 0:
            entry.task = pool.submit(run, entry)
        elif shape == 1:
            entry.task = pool.submit(run, entry, entry.number)
        else:
            entry.task = pool.submit(run, entry, number=entry.number)
    except REFUSALS:
        entry.refused = True
    finally:  # finalizers and signal handlers come in the middle of other submits
        submitter.reset(before)


def submit_soft(entry: Entry, pool: Any) -> None:
    """The same, from where nothing may block, and no context variable be set.

    (CPython 3.11 runs finalizers in the middle of `ContextVar.set`; one that sets a variable then
    takes away what that works on.)
    """
    if entry.plan == "context":
        entry.plan = "return"
    try:
        ask = pool.try_submit if entry.box.blocking else pool.submit
        entry.task = ask(run, entry)
    except REFUSALS:
        entry.refused = True


def _pause(entry: Entry, rng: random.Random) -> None:
    time.sleep(rng.choice((0, 0.0001, 0.001, 0.005)))


def _compute(entry: Entry, rng: random.Random) -> None:
    sum(range(rng.choice((10, 1_000, 20_000))))


def _gate(entry: Entry, rng: random.Random) -> None:
    # a thread that took it out of the queue is perhaps the one that is to open the gate
    if in_worker(entry) and entry.gate is not None and not entry.gate.wait(60):
        entry.world.fault("hang", f"{entry!r}: its gate stays shut")


def _context(entry: Entry, rng: random.Random) -> None:
    # a thread that took it out of the queue runs it in its own context
    if entry.box.sees and in_worker(entry):
        if submitter.get() != entry.number:
            entry.world.fault("wrong context", f"{entry!r}: that of {submitter.get()}")
        submitter.set(-entry.number)


def _children(entry: Entry, rng: random.Random, box: Box, pool: Any) -> list[Entry]:
    children = []
    for _ in range(rng.randint(1, 4)):
        deep = entry.depth < 3 and rng.random() < 0.3
        plan = "nest" if deep else rng.choice(LEAVES)
        salt = rng.getrandbits(32)
        child = Entry(entry.world, box, plan, salt, entry.late, entry.depth + 1)
        submit(pool, child, rng.randrange(3))
        children.append(child)
    return children


def _nest(entry: Entry, rng: random.Random) -> None:
    _wait_for_children(entry, rng, entry.box)


def _cross(entry: Entry, rng: random.Random) -> None:
    box, _ = entry.world.pick(rng, entry.box.number + 1)
    if box.number > entry.box.number:
        _wait_for_children(entry, rng, box)


def _wait_for_children(entry: Entry, rng: random.Random, box: Box) -> None:
    pool = box.pool
    if pool is None:
        return
    children = _children(entry, rng, box, pool)
    del pool
    try:
        tasks = [child.task for child in children if child.task is not None]
        way = rng.randrange(4)
        if way == 0:
            done = wait(tasks).done
        elif way == 1:
            done = set(as_completed(tasks))
        else:
            order = tasks if way == 2 else tasks[::-1]
            done = set()
            for task in order:
                if not task.cancelled():
                    with contextlib.suppress(Exception):  # CancelledError, BrokenThreadPool, ours
                        task.result()
                done.add(task)
        if done != set(tasks) or not all(task.done() for task in tasks):
            entry.world.fault("nested wait", f"{entry!r}: {tasks}")
    finally:
        entry.late.extend(children)


def _spawn(entry: Entry, rng: random.Random) -> None:
    pool = entry.box.pool
    if pool is not None:
        entry.late.extend(_children(entry, rng, entry.box, pool))


def _cancel(entry: Entry, rng: random.Random) -> None:
    other = entry.other
    if other is not None and other.task is not None:
        other.cancel()


def _garbage(entry: Entry, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 20)):
        make_garbage(entry.world, entry.box, entry.late)


def _shut_down(entry: Entry, rng: random.Random) -> None:
    pool = entry.box.pool
    if pool is not None:
        cancel = rng.random() < 0.5
        entry.box.cancels |= cancel
        pool.shutdown(rng.random() < 0.5, cancel_futures=cancel)


BODIES = {
    "pause": _pause,
    "compute": _compute,
    "gate": _gate,
    "context": _context,
    "nest": _nest,
    "cross": _cross,
    "spawn": _spawn,
    "cancel": _cancel,
    "garbage": _garbage,
    "shut down": _shut_down,
}


class _Garbage:
    """A cycle with a finalizer that submits, whenever and wherever the collector finds it."""

    def __init__(self, world: World, box: Box, late: Any) -> None:
        self.world, self.box, self.late, self.itself = world, box, late, self

    def __del__(self) -> None:
        pool = self.box.pool
        if pool is not None:
            entry = Entry(self.world, self.box, "return", 0, self.late)
            submit_soft(entry, pool)
            self.late.append(entry)


def make_garbage(world: World, box: Box, late: Any) -> None:
    """Leave something to the collector that submits when it is collected."""
    _Garbage(world, box, late)


class CallbackFailure(Exception):
    """What a callback raises; it is logged."""


def after_callback(entry: Entry, number: int) -> None:
    """Do what the callback does: mostly nothing."""
    choice = (entry.number * 7 + number) % 40
    if choice < 4:
        pool = entry.box.pool
        if pool is not None:
            child = Entry(entry.world, entry.box, "return", 0, entry.late)
            submit_soft(child, pool)
            entry.late.append(child)
    elif choice == 4:
        raise CallbackFailure(entry.number)
    elif choice == 5:
        raise (SystemExit, KeyboardInterrupt, GeneratorExit)[entry.number % 3](entry.number)
    elif choice == 6 and entry.other is not None and entry.other.task is not None:
        entry.other.cancel()
