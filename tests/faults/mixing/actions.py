"""What a driver can choose to do, with how often it does so."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import itertools
import queue
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from mixing import child
from mixing.body import LEAVES, REFUSALS, choose_plan, make_garbage, run, submit, submit_soft
from mixing.driver import INTERRUPTED, Driver
from mixing.ledger import Entry, Failure, Injected, Interrupt
from mixing.world import HAS_BOUND, Box, World

from affinitypool import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenThreadPool,
    ThreadPoolExecutor,
    as_completed,
    wait,
)

Action = Callable[[Driver, random.Random], None]
NEVER: Future[Any] = Future()
ALREADY: Future[Any] = Future()
ALREADY.set_result(None)
CALL_ERRORS = (Failure, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, RuntimeError)
TASK_ERRORS = (*CALL_ERRORS, CancelledError, BrokenThreadPool, TimeoutError)


# ---- handing over -----------------------------------------------------------------------


def submit_one(driver: Driver, rng: random.Random) -> None:
    """One task."""
    box, pool = driver.world.pick(rng)
    driver.submit(rng, pool, driver.new_entry(rng, box))


def submit_burst(driver: Driver, rng: random.Random) -> None:
    """Many tasks, one by one."""
    box, pool = driver.world.pick(rng)
    for _ in range(rng.randint(2, 40)):
        driver.submit(rng, pool, driver.new_entry(rng, box))


def submit_many(driver: Driver, rng: random.Random) -> None:
    """Many tasks at once: all of them or none."""
    box, pool = driver.world.pick(rng)
    entries = [
        Entry(driver.world, box, choose_plan(rng), rng.getrandbits(32), driver.late)
        for _ in range(rng.randint(1, 30))
    ]
    for entry in entries:
        if entry.plan == "context":  # they share a context
            entry.plan = "return"
    try:
        tasks = driver.guard(pool.submit_many, run, entries, box=box)
    except REFUSALS:
        # with a bound, or a submit of a subclass, they are taken one by one
        at_once = not box.bounded and type(pool).submit is ThreadPoolExecutor.submit
        tasks = None if at_once else INTERRUPTED
    for index, entry in enumerate(entries):
        if tasks is INTERRUPTED:
            entry.may_run = True
        elif tasks is None:
            entry.refused = True
        else:
            entry.task = tasks[index]
    driver.window += entries


def map_some(driver: Driver, rng: random.Random) -> None:
    """`map`, read to its end or not."""
    box, pool = driver.world.pick(rng)
    plans = rng.choices(["return", "pause", "compute", "fail"], [60, 10, 10, 1], k=20)
    entries = [
        Entry(driver.world, box, plan, rng.getrandbits(32), driver.late)
        for plan in plans[: rng.randint(1, 20)]
    ]
    for entry in entries:
        entry.may_run = True  # what comes after an error, or after the last that is read
    buffersize = rng.choice((None, None, 1, 3, 8))
    stop = rng.randint(1, 40)
    got: list[Any] = []

    def consume() -> None:
        results = pool.map(run, entries, buffersize=buffersize)
        got.extend(itertools.islice(results, stop))

    ended = False
    try:
        ended = driver.guard(consume, box=box) is not INTERRUPTED
    except (*REFUSALS, Failure, CancelledError):
        pass
    if any(value is not entry.value for value, entry in zip(got, entries, strict=False)):
        driver.world.fault("wrong result", f"map: {entries}: {got}")
    if ended and len(got) != min(stop, len(entries)):
        driver.world.fault("lost", f"map: {len(got)} of {len(entries)} results of {box}")
    if ended and any(len(entry.marks) != 1 for entry in entries[: len(got)]):
        driver.world.fault("lost", f"map: {entries}")
    driver.window += entries


def try_submit(driver: Driver, rng: random.Random) -> None:
    """What never waits."""
    box, pool = driver.world.pick(rng)
    for _ in range(rng.randint(1, 20)):
        entry = driver.new_entry(rng, box, "return")
        try:
            entry.task = pool.try_submit(run, entry)
        except REFUSALS:
            entry.refused = True


def take_out(driver: Driver, rng: random.Random) -> None:
    """Take a task out of the queue and run it here, as some libraries do.

    Not if it waits: for its children perhaps, which only the worker can run that waits for it.
    """
    _, pool = driver.world.pick(rng)
    try:
        item = pool._work_queue.get_nowait()
    except queue.Empty:
        return
    entry = item.args[0] if item.args else None
    if not isinstance(entry, Entry):  # an event loop's, or a broken pool's
        item.run()
        return
    entry.taken = True
    if rng.random() < 0.2 or entry.plan in ("nest", "cross", "shut down"):
        entry.may_cancel = True
        item.future.cancel()
    item.run()


# ---- looking and waiting ----------------------------------------------------------------


def _some(driver: Driver, rng: random.Random, most: int = 40) -> list[Any]:
    tasks = [entry.task for entry in driver.window if entry.task is not None]
    if not tasks:
        return []
    return rng.choices(tasks, k=rng.randint(1, most))  # with duplicates


def wait_some(driver: Driver, rng: random.Random) -> None:
    """`wait` in all its forms."""
    tasks = _some(driver, rng)
    when = rng.choice((ALL_COMPLETED, ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION))
    timeout = rng.choice((None, None, 0, 0.0005, 0.01, -1))
    foreign = rng.random()
    asked: list[Any] = list(tasks)
    if foreign < 0.1:
        asked.append(ALREADY)
    elif foreign < 0.2 and timeout is not None:
        asked.append(NEVER)
    answer = driver.guard(wait, asked, timeout, when)
    if answer is INTERRUPTED:
        return
    done, not_done = answer
    if done | not_done != set(asked) or done & not_done or not all(f.done() for f in done):
        driver.world.fault("wait", f"{answer} for {asked}")
    if timeout is None and (
        (when == ALL_COMPLETED and not_done) or (when == FIRST_COMPLETED and asked and not done)
    ):
        driver.world.fault("wait", f"it returned early: {answer}")


def as_completed_some(driver: Driver, rng: random.Random) -> None:
    """`as_completed`, read to its end or not."""
    tasks = _some(driver, rng)
    timeout = rng.choice((None, None, 0.0005, 0.01))
    stop = rng.choice((None, None, 1, 5))
    foreign: list[Any] = [ALREADY] if rng.random() < 0.1 else []
    got: list[Any] = []

    def consume() -> None:
        got.extend(itertools.islice(as_completed([*tasks, *foreign], timeout), stop))

    try:
        ended = driver.guard(consume) is not INTERRUPTED
    except TimeoutError:
        ended = False
    if len(set(got)) != len(got) or not all(future.done() for future in got):
        driver.world.fault("as_completed", f"{got} of {tasks}")
    if ended and stop is None and set(got) != {*tasks, *foreign}:
        driver.world.fault("as_completed", f"it ended early: {got} of {tasks}")


def result_of_some(driver: Driver, rng: random.Random) -> None:
    """`result` and `exception`."""
    for task in _some(driver, rng, 5):
        timeout = rng.choice((None, None, 0, 0.001, 10))
        call = task.result if rng.random() < 0.7 else task.exception
        with contextlib.suppress(*TASK_ERRORS, Injected):
            if driver.guard(call, timeout) is not INTERRUPTED and not task.done():
                driver.world.fault("result", f"it returned early: {task!r}")


def cancel_some(driver: Driver, rng: random.Random) -> None:
    """`cancel`."""
    if driver.window:
        for entry in rng.choices(driver.window, k=rng.randint(1, 10)):
            entry.cancel()


def cancel_fresh(driver: Driver, rng: random.Random) -> None:
    """Cancel at once what was just submitted, so that it races with the worker."""
    box, pool = driver.world.pick(rng)
    for _ in range(rng.randint(1, 10)):
        entry = driver.new_entry(rng, box)
        driver.submit(rng, pool, entry)
        entry.cancel()


def add_callbacks(driver: Driver, rng: random.Random) -> None:
    """Callbacks, to tasks that are done and to others."""
    entries = [entry for entry in driver.window if entry.task is not None]
    box, pool = driver.world.pick(rng)
    fresh = driver.new_entry(rng, box)
    driver.submit(rng, pool, fresh)
    if fresh.task is not None:
        entries.append(fresh)
    for entry in rng.choices(entries, k=min(len(entries), 10)):
        for _ in range(rng.randint(1, 3)):
            entry.add_callback()


def set_from_outside(driver: Driver, rng: random.Random) -> None:
    """Set a result from outside, on what is pending, running or done."""
    box, pool = driver.world.pick(rng)
    entry = driver.new_entry(rng, box)
    driver.submit(rng, pool, entry)
    if entry.task is not None:
        entry.set_outside()


def hold_and_cancel(driver: Driver, rng: random.Random) -> None:
    """Keep a worker busy, and cancel some of what queues up behind."""
    box, pool = driver.world.pick(rng)
    if box.bounded:
        return
    gate = threading.Event()
    driver.gates += 1
    try:
        for _ in range(rng.randint(1, box.workers)):
            holder = driver.new_entry(rng, box, "gate")
            holder.gate = gate
            driver.submit(rng, pool, holder)
        behind = [driver.new_entry(rng, box, rng.choice(LEAVES)) for _ in range(rng.randint(1, 20))]
        for entry in behind:
            driver.submit(rng, pool, entry)
            if entry.task is not None and rng.random() < 0.3:
                entry.add_callback()
        for entry in behind:
            if rng.random() < 0.5:
                entry.cancel()
    finally:
        driver.gates -= 1
        gate.set()


def await_some(driver: Driver, rng: random.Random) -> None:
    """Wait in an event loop; some of it is cancelled there."""
    box, pool = driver.world.pick(rng)
    entries = [driver.new_entry(rng, box) for _ in range(rng.randint(1, 10))]
    for entry in entries:
        submit(pool, entry)

    async def listen(entry: Entry, timeout: float | None) -> None:
        if timeout is not None:
            entry.may_cancel = True
        with contextlib.suppress(*TASK_ERRORS, asyncio.CancelledError, Injected):
            await asyncio.wait_for(asyncio.wrap_future(entry.task), timeout)

    async def listen_to_all() -> None:
        timeouts = [rng.choice((None, None, 0, 0.001)) for _ in entries]
        await asyncio.gather(
            *(
                listen(entry, timeout)
                for entry, timeout in zip(entries, timeouts, strict=True)
                # a loop does not survive these, or waits for them for ever
                if entry.task is not None and entry.plan not in LOOP_ENDERS
            )
        )
        with contextlib.suppress(*REFUSALS):
            loop = asyncio.get_running_loop()
            if await loop.run_in_executor(pool, abs, -3) != 3:
                driver.world.fault("wrong result", "run_in_executor")

    with contextlib.suppress(CancelledError, asyncio.CancelledError, BrokenThreadPool):
        asyncio.run(listen_to_all())


LOOP_ENDERS = ("fail by SystemExit", "fail by KeyboardInterrupt", "fail by StopIteration")


# ---- others -----------------------------------------------------------------------------


def produce_shortly(driver: Driver, rng: random.Random) -> None:
    """Threads that submit a little and end."""

    def produce(salt: int) -> None:
        own = random.Random(salt)
        for _ in range(own.randint(1, 10)):
            box, pool = driver.world.pick(own)
            entry = Entry(driver.world, box, choose_plan(own), own.getrandbits(32), driver.late)
            submit(pool, entry)
            if entry.task is not None and own.random() < 0.2:
                with contextlib.suppress(*TASK_ERRORS, Injected):
                    entry.task.result()
            driver.late.append(entry)

    threads = [
        threading.Thread(target=produce, args=(rng.getrandbits(64),), name="producer")
        for _ in range(rng.randint(1, 4))
    ]
    for thread in threads:
        thread.start()
    if rng.random() < 0.5:
        for thread in threads:
            thread.join()
    else:
        driver.helpers += threads
    if len(driver.helpers) > 10:
        for thread in driver.helpers:
            thread.join()
        driver.helpers.clear()


def signal_main(driver: Driver, rng: random.Random) -> None:
    """Interrupt the main thread, wherever it is."""
    for _ in range(rng.randint(1, 3)):
        signal.pthread_kill(driver.world.main, signal.SIGUSR1)
        time.sleep(rng.choice((0, 0.0002)))


def collect(driver: Driver, rng: random.Random) -> None:
    """Leave garbage whose finalizers submit, and sometimes collect it at once."""
    box, _ = driver.world.pick(rng)
    for _ in range(rng.randint(1, 30)):
        make_garbage(driver.world, box, driver.late)
    if rng.random() < 0.1:
        gc.collect()


def fork(driver: Driver, rng: random.Random) -> None:
    """A child that uses the pools and ends by a status of its own."""
    child.fork_and_check(driver, rng)


# ---- ends of pools ----------------------------------------------------------------------


def end_pool(driver: Driver, rng: random.Random) -> None:
    """Put a new pool in the place of one that everybody uses, and end that in some way."""
    world = driver.world
    slot = world.pick_slot(rng)
    if not world.slot_locks[slot].acquire(False):
        return
    try:
        old, world.boxes[slot] = world.boxes[slot], world.new_box(rng)
    finally:
        world.slot_locks[slot].release()
    driver.counts["pools"] += 1
    retire(driver, rng, old)


def retire(driver: Driver, rng: random.Random, box: Box) -> None:
    """End a pool; others may be using it."""
    pool = box.pool
    way = rng.randrange(8)
    if way <= 1:
        box.pool = None  # dropped: what is pending runs, and the threads leave
        return
    cancel = way in (2, 3)
    box.cancels |= cancel
    if way == 4:
        pool.shutdown(False)
    elif way == 5 and HAS_BOUND:
        pool.shutdown(timeout=rng.choice((0, 0.001, 0.1)))
    elif way == 6 and HAS_BOUND:
        pool.drain(rng.choice((None, 0.001)))
    elif way == 7 and HAS_BOUND:
        box.cancels = True
        pool.shutdown_now()
    if rng.random() < 0.3:
        box.pool = None
        if way >= 4:
            return
    while driver.guard(_shutdown, pool, cancel) is INTERRUPTED:
        pass
    check_ended(driver, box, pool)
    box.pool = None


def _shutdown(pool: Any, cancel: bool) -> None:
    pool.shutdown(True, cancel_futures=cancel)


def check_ended(driver: Driver, box: Box, pool: Any) -> None:
    """After shutdown(wait=True): each of its tasks is done, and no thread is left."""
    end = time.monotonic() + 1
    for entry in driver.window:
        if entry.box is not box or entry.task is None:
            continue
        if entry.task.done():
            continue
        while not entry.taken:  # by another driver, who says so before it runs it
            if (entry.task.done() and not entry.taken) or time.monotonic() > end:
                driver.world.fault("shutdown", f"it returned before the end of {entry!r}")
            time.sleep(0)
    alive = [thread.name for thread in pool._threads if thread.is_alive()]
    if alive:
        driver.world.fault("shutdown", f"it returned before the end of {alive}, {box}")


class _Left(Exception):
    """What ends a with block."""


def own_pool(driver: Driver, rng: random.Random) -> None:
    """A pool that nobody else knows, so that more can be told of its end."""
    box = driver.world.new_box(rng)
    pool = box.pool
    driver.counts["pools"] += 1
    entries: list[Entry] = []

    def fill() -> None:
        for _ in range(rng.randint(0, 30)):
            entry = driver.new_entry(rng, box)
            submit(pool, entry)
            entries.append(entry)
            if entry.task is not None and rng.random() < 0.2:
                entry.add_callback()

    way = rng.choice(OWN_ENDS)
    if way == "with":
        with pool:
            fill()
    elif way == "with, left by an exception":
        box.cancels = True
        with contextlib.suppress(_Left), pool:
            fill()
            raise _Left
    elif way == "cancel":
        fill()
        box.cancels = True
        pool.shutdown(cancel_futures=True)
    elif way == "drop":
        fill()
        box.pool = pool = None
        return
    elif way == "many threads":
        fill()
        threads = [threading.Thread(target=pool.shutdown) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elif way == "drain":
        fill()
        if pool.drain() is not True:
            driver.world.fault("drain", f"it returned early: {box}")
    elif way == "now":
        fill()
        box.cancels = True
        given = pool.shutdown_now()
        if not all(task.cancelled() for task in given):
            driver.world.fault("shutdown_now", f"not cancelled: {given}")
        pool.shutdown()
        # tasks cancel tasks, too, one by one or all that are pending
        known = {entry.task for entry in entries if entry.task is not None and not entry.may_cancel}
        missing = {task for task in known if task.cancelled()} - set(given)
        if missing and not any(entry.plan == "shut down" for entry in entries):
            driver.world.fault("shutdown_now", f"cancelled, and not told: {missing}")
    elif way == "idle":
        fill()
        if pool.wait_idle() is not True:
            driver.world.fault("wait_idle", f"it returned early: {box}")
        for entry in entries:
            if entry.task is not None and not entry.task.done():
                driver.world.fault("wait_idle", f"it returned before the end of {entry!r}")
        pool.shutdown()
    elif way == "timeout":
        fill()
        while not pool.shutdown(timeout=rng.choice((0, 0.0005, 0.01))):
            driver.heart.beat("shutdown with a timeout")
    check_ended(driver, box, pool)
    box.pool = None


OWN_ENDS = ["with", "with, left by an exception", "cancel", "drop", "many threads"]
if HAS_BOUND:
    OWN_ENDS += ["drain", "now", "idle", "timeout"]


def hurt_workers(driver: Driver, rng: random.Random) -> None:
    """Inject exceptions into workers, or have them return, in a pool of our own."""
    box = driver.world.new_box(rng, plain=True)
    pool = box.pool
    driver.counts["pools"] += 1
    box.injects = True
    inject = ctypes.pythonapi.PyThreadState_SetAsyncExc
    hurt: set[threading.Thread] = set()
    with pool:
        for _ in range(rng.randint(1, 6)):
            for _ in range(rng.randint(1, 10)):
                entry = driver.new_entry(rng, box, rng.choice(LEAVES))
                submit(pool, entry)
            if rng.random() < 0.3:
                pool._core.fault_end_workers(1)
                driver.counts["workers ended"] += 1
            # once each: the next would perhaps reach another thread of the same number
            for thread in set(pool._threads) - hurt:
                if rng.random() < 0.5 and thread.is_alive():
                    hurt.add(thread)
                    inject(ctypes.c_ulong(thread.ident), ctypes.py_object(Injected))
                    driver.counts["exceptions injected"] += 1
            time.sleep(rng.choice((0, 0.001)))
    check_ended(driver, box, pool)


# ---- the signal handler -----------------------------------------------------------------


class Handler:
    """What the main thread does when it gets SIGUSR1."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.rng = random.Random(f"{driver.world.seed}/handler/{driver.name}")
        self.depth = 0

    def __call__(self, number: int, frame: Any) -> None:
        """Submit, wait, shut a pool down, or raise."""
        driver, rng = self.driver, self.rng
        driver.counts["signals handled"] += 1
        if self.depth >= 2:
            return
        self.depth += 1
        was_open, driver.open = driver.open, False  # nothing raises into what we do here
        try:
            self._act(driver, rng)
        finally:
            self.depth -= 1
        if was_open and rng.random() < 0.3:
            if driver.guarded is not None:
                # perhaps the start of its only thread: what was pending is cancelled then
                driver.guarded.cancels = True
            raise Interrupt
        driver.open = was_open

    def _act(self, driver: Driver, rng: random.Random) -> None:
        world: World = driver.world
        choice = rng.random()
        box, pool = world.pick(rng)
        if pool is None:
            return
        if choice < 0.7:
            entry = Entry(world, box, rng.choice(LEAVES), rng.getrandbits(32), driver.late)
            if box.blocking or driver.gates:
                submit_soft(entry, pool)
            else:
                submit(pool, entry)
            driver.late.append(entry)
            if choice < 0.3 and entry.task is not None:
                # not for ever: what was interrupted here is perhaps what it needs
                with contextlib.suppress(*TASK_ERRORS, Injected):
                    entry.task.result(0.02)
        elif choice < 0.72 and world.phase != "last":
            pool.shutdown(not driver.gates and rng.random() < 0.3)


# ---- the choice -------------------------------------------------------------------------

EVERYTHING: dict[str, tuple[int, Action]] = {
    "submit": (20, submit_one),
    "submit a burst": (10, submit_burst),
    "submit_many": (8, submit_many),
    "map": (8, map_some),
    "take out": (4, take_out),
    "wait": (12, wait_some),
    "as_completed": (12, as_completed_some),
    "result": (12, result_of_some),
    "cancel": (8, cancel_some),
    "cancel fresh": (8, cancel_fresh),
    "callbacks": (10, add_callbacks),
    "set from outside": (4, set_from_outside),
    "hold and cancel": (6, hold_and_cancel),
    "await": (2, await_some),
    "producers": (3, produce_shortly),
    "garbage": (3, collect),
    "signal": (10, signal_main),
    "fork": (1, fork),
    "end a pool": (3, end_pool),
    "own pool": (5, own_pool),
}
if HAS_BOUND:
    EVERYTHING["try_submit"] = (6, try_submit)
    EVERYTHING["hurt workers"] = (2, hurt_workers)
