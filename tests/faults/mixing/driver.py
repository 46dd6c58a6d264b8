"""A thread that chooses what to do, and its window of tasks that have not been settled."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from mixing.body import choose_plan, submit, submit_soft
from mixing.ledger import Entry, Interrupt
from mixing.world import Box, Heart, World

WINDOW = 200
INTERRUPTED = object()


class Driver:
    """One thread of the mix.  What it chooses follows from the seed and its name alone."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(f"{world.seed}/{name}")
        self.heart = Heart(name)
        self.window: list[Entry] = []
        self.late: deque[Entry] = deque()  # submitted by tasks, callbacks, finalizers, helpers
        self.helpers: list[threading.Thread] = []
        self.counts: Counter[str] = Counter()
        self.gates = 0  # gates that are shut: nothing may block
        self.open = False  # the signal handler may raise
        self.guarded: Box | None = None  # into a submit to this pool
        world.hearts.append(self.heart)

    # ---- what a signal handler may interrupt, in the main thread ---------------------------

    def guard(self, function: Callable[..., Any], *args: Any, box: Box | None = None) -> Any:
        """Call; INTERRUPTED if the signal handler raised meanwhile.

        With a box that has the caller run tasks, it does not: it would be one of these that fails.
        """
        if box is not None and box.runs_here:
            return function(*args)
        self.guarded = box
        try:
            self.open = True
            try:
                return function(*args)
            finally:
                self.open = False
        except Interrupt:
            self.open = False
            self.counts["interrupted"] += 1
            return INTERRUPTED

    def new_entry(self, rng: random.Random, box: Box, plan: str | None = None) -> Entry:
        """Return an entry that is in the window, and was not submitted."""
        plan = plan or choose_plan(rng)
        entry = Entry(self.world, box, plan, rng.getrandbits(32), self.late)
        if plan == "cancel" and self.window:
            entry.other = self.window[rng.randrange(len(self.window))]
        self.window.append(entry)
        return entry

    def submit(self, rng: random.Random, pool: Any, entry: Entry) -> None:
        """Submit an entry of the window; it may be interrupted."""
        if self.gates:
            submit_soft(entry, pool)
        elif self.guard(submit, pool, entry, rng.randrange(3), box=entry.box) is INTERRUPTED:
            entry.may_run = True

    # ---- settling ------------------------------------------------------------------------

    def settle_some(self) -> None:
        """Settle what is done; wait for more if the window is too large."""
        while self.late:
            self.window.append(self.late.popleft())
        rest = []
        for entry in self.window:
            if entry.is_quiet():
                self.settle(entry)
            else:
                rest.append(entry)
        self.window = rest
        if len(rest) > WINDOW:
            self.settle_all(rest[: len(rest) - WINDOW // 2])
            self.window = rest[len(rest) - WINDOW // 2 :]

    def settle_all(self, entries: list[Entry]) -> None:
        """Wait for the entries and settle them."""
        for entry in entries:
            self.wait_for(entry)
            self.settle(entry)

    def settle(self, entry: Entry) -> None:
        """Check how an entry ended and count it."""
        self.counts[f"task {entry.settle()}"] += 1

    def wait_for(self, entry: Entry) -> None:
        """Wait until an entry is done and its callbacks ran; it is lost if that takes too long."""
        begin = time.monotonic()
        while not entry.is_quiet():
            time.sleep(0.0005)
            took = time.monotonic() - begin
            self.heart.beat(f"wait for task {entry.number} of pool {entry.box.number}")
            if took > self.world.patience:
                what = "its callbacks" if entry.task.done() else "it"
                text = f"{entry!r}: {what} did not come to an end within {took:.0f} s"
                self.world.fault("lost", text)

    def finish(self) -> None:
        """Settle everything that there is, and that comes meanwhile from what runs."""
        for helper in self.helpers:
            helper.join()
        self.helpers.clear()
        while self.window or self.late:
            entries, self.window = self.window, []
            while self.late:
                entries.append(self.late.popleft())
            self.settle_all(entries)

    # ---- the thread ------------------------------------------------------------------------

    def drive(self, until: float, actions: dict[str, tuple[int, Callable[..., None]]]) -> None:
        """Do one thing after the other until it is time."""
        names = list(actions)
        weights = [weight for weight, _ in actions.values()]
        try:
            while time.monotonic() < until:
                self.world.rest_if_asked(self.heart)
                name = self.rng.choices(names, weights)[0]
                rng = random.Random(self.rng.getrandbits(64))
                self.heart.beat(name)
                actions[name][1](self, rng)
                self.counts[name] += 1
                self.heart.beat("settle")
                self.settle_some()
            self.heart.beat("finish")
            self.finish()
            self.heart.resting = True
        except BaseException as error:
            import traceback

            text = "".join(traceback.format_exception(error))
            self.world.fault("unexpected exception", f"in {self.heart.doing}\n{text}")
