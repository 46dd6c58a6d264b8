"""What a forked child does, and how the parent looks at it."""

from __future__ import annotations

import gc
import math
import os
import random
import signal
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from mixing.body import REFUSALS, submit
from mixing.ledger import Entry
from mixing.world import FREE_THREADED

from affinitypool import BrokenThreadPool, wait

if TYPE_CHECKING:
    from mixing.driver import Driver
    from mixing.world import Box, World

_gate = threading.Lock()  # one child at a time


def fork_and_check(driver: Driver, rng: random.Random) -> None:
    """Fork; the child uses the pools and ends by a status that the parent checks."""
    world = driver.world
    status = rng.randint(10, 100)
    salt = rng.getrandbits(64)
    if not _gate.acquire(False):
        return
    try:
        # A free-threaded CPython forks while the lock of a dict, say, is on its way from one thread
        # to the next, if they have waited for long; nobody in the child ever opens it.
        if FREE_THREADED and not world.hush(driver.heart):
            return
        pid = _fork()
        if pid == 0:
            _in_child(driver, random.Random(salt), status)
        world.hushed = None
        world.child = pid
        code = _wait(driver, pid)
    finally:
        world.hushed = None
        world.child = 0
        _gate.release()
    if code != status:
        world.fault("child", f"status {code} instead of {status}")
    driver.counts["children"] += 1


def _limit(world: World) -> float:
    """Return how many seconds a child may take."""
    return min(20.0, 2 * world.patience)


def _fork() -> int:
    """Fork, with no finalizer in the middle of it.

    What `threading` does in a child takes every thread but the calling one for ended, also one that
    the submit of a finalizer has just started.
    """
    gc.disable()
    try:
        return os.fork()
    finally:
        gc.enable()


def _wait(driver: Driver, pid: int) -> int:
    end = time.monotonic() + driver.world.patience + _limit(driver.world)
    while True:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(code)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGABRT)  # so that it says where it is
            time.sleep(1)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            driver.world.fault("child", "it does not end")
        driver.heart.beat("wait for a child")
        time.sleep(0.001)


def _in_child(driver: Driver, rng: random.Random, status: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.alarm(
            math.ceil(_limit(driver.world))
        )  # faulthandler writes the stacks then, and it ends
        _check(driver, rng, rng.random() < 0.1)
        code = status
    except BaseException as error:
        import traceback

        text = "".join(traceback.format_exception(error))
        driver.world.fault("child", text)
    finally:
        os._exit(code)


def _check(driver: Driver, rng: random.Random, again: bool) -> None:
    world = driver.world
    for entry in rng.sample(driver.window, min(50, len(driver.window))):
        # what the parent had not finished reads as cancelled here, and never runs here
        if entry.task is not None and not entry.task.done():
            world.fault("child", f"not done: {entry!r}")
    boxes = list(world.boxes)
    rng.shuffle(boxes)
    for box in boxes[:2]:
        pool = box.pool
        if pool is not None:
            _use(driver, rng, box, pool)
        del pool
    if rng.random() < 0.1:
        gc.collect()
    if again:
        _fork_again(driver, rng)


def _use(driver: Driver, rng: random.Random, box: Box, pool: Any) -> None:
    world = driver.world
    late: deque[Entry] = deque()
    plans = rng.choices(["return", "nest", "fail", "spawn", "context"], k=rng.randint(1, 10))
    entries = [Entry(world, box, plan, rng.getrandbits(32), late) for plan in plans]
    for entry in entries:
        submit(pool, entry)
    tasks = [entry.task for entry in entries if entry.task is not None]
    if not box.breaks and wait(tasks, _limit(world) / 2).not_done:
        world.fault("child", f"tasks that do not end: {entries}")
    if rng.random() < 0.5:
        try:
            if list(pool.map(abs, range(-5, 0))) != [5, 4, 3, 2, 1]:
                world.fault("child", "wrong result of map")
        except (*REFUSALS, BrokenThreadPool):
            pass
    if rng.random() < 0.3:
        pool.shutdown()
    end = time.monotonic() + _limit(world) / 2
    while entries or late:
        entry = entries.pop() if entries else late.popleft()
        while not entry.is_quiet():
            if time.monotonic() > end:
                world.fault("child", f"lost: {entry!r}")
            time.sleep(0.0005)
        entry.settle()


def _fork_again(driver: Driver, rng: random.Random) -> None:
    pid = _fork()
    if pid == 0:
        _in_child_again(driver, rng)
    _, code = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(code) != 7:
        driver.world.fault("child", f"a child's child: status {code}")


def _in_child_again(driver: Driver, rng: random.Random) -> None:
    code = 1
    try:
        signal.alarm(math.ceil(_limit(driver.world)))
        _check(driver, rng, False)
        code = 7
    finally:
        os._exit(code)
