"""What all threads of the mix share: the seed, the pools, the counts, the watchdog."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import faulthandler
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import diagnostics

import affinitypool

SLOTS = 5
MEGABYTE = 1 << 20


class Heart:
    """Shows that a thread goes on, and what it is doing."""

    __slots__ = ("beats", "doing", "name", "resting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.beats = 0
        self.doing = "begin"
        self.resting = False

    def beat(self, doing: str) -> None:
        """Say what comes next."""
        self.doing = doing
        self.beats += 1


class Box:
    """A pool and what is known of it.

    (No dict: a free-threaded CPython can fork while a dict is locked, and then its child hangs.)
    """

    __slots__ = (
        "blocking",
        "bounded",
        "breaks",
        "cancels",
        "initialized",
        "injects",
        "number",
        "options",
        "pool",
        "runs_here",
        "sees",
        "workers",
    )

    def __init__(self, number: int, pool: Any, options: dict[str, Any], breaks: bool) -> None:
        self.number = number
        self.pool = pool  # None once it was dropped
        self.workers: int = options["max_workers"]
        self.breaks = breaks  # its initializer fails
        self.initialized = "initializer" in options
        self.cancels = False  # set before something may cancel its pending tasks
        self.injects = False  # set before an exception is injected into one of its workers
        self.sees: bool = options.get("propagate_context", not self.initialized)
        self.bounded = "max_pending" in options
        self.blocking = self.bounded and options["on_full"] == "block"
        self.runs_here = self.bounded and options["on_full"] == "caller_runs"
        shown = {key: value for key, value in options.items() if key != "initializer"}
        self.options = f"{shown}"
        if self.initialized:
            self.options += ", an initializer that fails" if breaks else ", an initializer"

    def __repr__(self) -> str:
        return f"pool {self.number} {self.options}"


class World:
    """One run of the mix."""

    def __init__(self, seed: int, patience: float, pool_class: Any, rest: float = 10) -> None:
        self.seed = seed
        self.patience = patience
        self.rest = rest
        self.pool_class = pool_class
        self.actions: dict[str, tuple[int, Any]] = {}
        self.child = 0  # a forked child that runs
        self.hushed: Heart | None = None  # who asked all others to rest
        self.main = threading.get_ident()
        self.pid = os.getpid()
        self.counts: Counter[str] = Counter()  # added to by the main thread only
        self.hearts: list[Heart] = []
        self.boxes: list[Box] = []
        self.slot_locks = [_thread.allocate_lock() for _ in range(SLOTS)]
        self.box_numbers = itertools.count()
        self.entry_numbers = itertools.count()
        self.begun = time.monotonic()
        self.phase = "begin"
        self._faulty = _thread.allocate_lock()

    # ---- pools --------------------------------------------------------------------------

    def new_box(self, rng: random.Random, plain: bool = False) -> Box:
        """Make a pool of random shape."""
        options: dict[str, Any] = {"max_workers": rng.choice((1, 1, 2, 2, 3, 4, 8))}
        breaks = False
        if rng.random() < 0.3:
            options["shards"] = rng.choice((1, 2, 4))
        if rng.random() < 0.1:
            options["stack_size"] = 1 << 20
        if rng.random() < 0.2:
            options["propagate_context"] = rng.random() < 0.5
        if rng.random() < 0.3:
            options["cancel_on_error"] = True
        kind = rng.random()
        if kind < 0.05 and not plain:
            options["initializer"], breaks = failing_initializer, True
        elif kind < 0.15:
            options["initializer"] = working_initializer
        if HAS_BOUND and rng.random() < 0.3:
            options["max_pending"] = rng.choice((1, 2, 8, 64))
            options["on_full"] = rng.choice(("block", "raise", "caller_runs"))
        if HAS_BOUND and rng.random() < 0.2:
            options["wait_at_exit"] = False
        number = next(self.box_numbers)
        pool = self.pool_class(thread_name_prefix=f"mix{number}", **options)
        return Box(number, pool, options, breaks)

    def pick(self, rng: random.Random, least: int = 0) -> tuple[Box, Any]:
        """Return a box and its pool, of a number from `least` on if there is one.

        Seldom one that takes no more tasks.
        """
        found = None
        tries = 0
        while found is None or tries < 20:
            tries += 1
            box = self.boxes[rng.randrange(SLOTS)]
            pool = box.pool
            if pool is None:  # dropped while we looked at it
                continue
            found = box, pool
            takes_tasks = not (pool._shutdown or pool._broken)
            if box.number >= least and (takes_tasks or rng.random() < 0.1):
                break
        return found

    def pick_slot(self, rng: random.Random) -> int:
        """Return the slot of a pool that is to be ended: first of those that are shut down."""
        slots = list(range(SLOTS))
        rng.shuffle(slots)
        for slot in slots:
            pool = self.boxes[slot].pool
            if pool is None or pool._shutdown or pool._broken:
                return slot
        return slots[0]

    # ---- a quiet moment -------------------------------------------------------------------

    def rest_if_asked(self, heart: Heart) -> None:
        """Let somebody else have a quiet moment."""
        while self.hushed not in (None, heart):
            heart.resting = True
            time.sleep(0.0005)
        heart.resting = False

    def hush(self, heart: Heart) -> bool:
        """Ask all other drivers to rest; False if they do not soon.  Until `hushed` is None."""
        self.hushed = heart
        end = time.monotonic() + 0.5
        while not all(other.resting or other is heart for other in self.hearts):
            if time.monotonic() > end:
                self.hushed = None
                return False
            time.sleep(0.0005)
        return True

    # ---- faults -------------------------------------------------------------------------

    def fault(self, reason: str, text: str) -> None:
        """Print what is wrong and everything that helps, and end the process."""
        if not self._faulty.acquire(False):
            time.sleep(60)  # another thread is about to end the process
        child = "" if os.getpid() == self.pid else " (in a forked child)"
        head = f"\nFAULT{child}: {reason}: {text}\nseed {self.seed}, phase {self.phase}\n\n"
        hearts = "".join(
            f"{heart.name}: {heart.doing}, {heart.beats} beats\n" for heart in self.hearts
        )
        say(head + hearts + "\n" + diagnostics.report())
        say(f"FAULT{child}: {reason}: {text}\nseed {self.seed}\nmix: 0 passed, 1 failed\n")
        forked = self.child  # read once: 0 would be everybody
        if forked and os.getpid() == self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(forked, signal.SIGKILL)
        os._exit(1)

    def watch(self) -> None:
        """Look for hearts that stand still; for a thread of its own, which never ends."""
        seen: dict[Heart, tuple[int, float]] = {}
        told = time.monotonic()
        while True:
            time.sleep(0.25)
            # should this thread not run any more, faulthandler writes the stacks and ends it all
            signal.alarm(int(2 * self.patience) + 10)
            now = time.monotonic()
            for heart in list(self.hearts):
                beats, since = seen.get(heart, (-1, now))
                if beats != heart.beats or heart.resting:
                    seen[heart] = heart.beats, now
                elif now - since > self.patience:
                    text = f"{heart.name} has been at '{heart.doing}' for {self.patience:g} s"
                    self.fault("hang", text)
            if now - told > 5:
                told = now
                beats = sum(heart.beats for heart in list(self.hearts))
                say(
                    f"  {now - self.begun:5.1f} s  {self.phase}: {beats} actions by "
                    f"{len(self.hearts)} threads, {threading.active_count()} threads in all, "
                    f"{rss() / MEGABYTE:.1f} MB\n"
                )

    def start_watch(self) -> None:
        """Start the watchdog."""
        faulthandler.enable()
        faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
        _thread.start_new_thread(self.watch, ())

    # ---- what a quiet process uses ------------------------------------------------------

    def settle_down(self, threads: int, fds: set[str]) -> int:
        """Check that no thread and no descriptor is left; return the resident memory."""
        end = time.monotonic() + self.rest
        pause = 0.005
        # those that are alive: one into which an exception was injected when it had nearly ended
        # may be listed for ever, as CPython's own code in a thread does not survive that
        while sum(thread.is_alive() for thread in threading.enumerate()) > 1 or (
            task_count() > threads
        ):
            if time.monotonic() > end:
                text = f"{task_count()} instead of {threads}; {threading.enumerate()}"
                self.fault("threads", f"left behind: {text}")
            gc.collect()
            time.sleep(pause)
            pause = min(0.1, 2 * pause)
        while more := open_files() - fds:  # the watchdog opens files for a moment
            if time.monotonic() > end:
                self.fault("descriptors", f"left open: {sorted(more)}")
            time.sleep(0.01)
        return rss_at_rest()


HAS_BOUND = hasattr(affinitypool.ThreadPoolExecutor, "try_submit")
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
_local = threading.local()


def working_initializer() -> None:
    """Mark the thread."""
    _local.initialized = True


def is_initialized() -> bool:
    """Return whether the initializer ran in this thread."""
    return getattr(_local, "initialized", False)


def failing_initializer() -> None:
    """Break the pool."""
    raise ValueError("an initializer that fails")


def say(text: str) -> None:
    """Write at once, past Python's buffers, which a signal handler may have interrupted."""
    os.write(1, text.encode(errors="replace"))


def rss() -> int:
    """Return the resident memory, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def rss_at_rest() -> int:
    """Return the resident memory once everything that can be given back was."""
    for _ in range(3):
        gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return rss()


def task_count() -> int:
    """Return how many threads the process has, Python's or not."""
    return len(os.listdir("/proc/self/task"))


def open_files() -> set[str]:
    """Return the open descriptors, and what they are."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the one that listed them
            continue
    return found
