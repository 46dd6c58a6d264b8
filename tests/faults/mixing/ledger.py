"""What is known of each task, and the check of how it ended."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import CancelledError, InvalidStateError
from typing import TYPE_CHECKING, Any

from affinitypool import BrokenThreadPool

if TYPE_CHECKING:
    from collections import deque

    from mixing.world import Box, World


class Failure(Exception):
    """What a task raises that is to fail."""


class Interrupt(BaseException):
    """What the signal handler raises in the main thread."""


class Injected(BaseException):
    """What is injected into workers from outside."""


class Entry:
    """One call that was given to a pool, or was to be."""

    __slots__ = (
        "added",
        "box",
        "called",
        "cancelled",
        "depth",
        "gate",
        "late",
        "marks",
        "may_cancel",
        "may_run",
        "number",
        "other",
        "outside",
        "plan",
        "refused",
        "salt",
        "settled",
        "taken",
        "task",
        "value",
        "world",
    )

    def __init__(
        self, world: World, box: Box, plan: str, salt: int, late: deque[Entry], depth: int = 0
    ) -> None:
        self.world = world
        self.box = box
        # a Ctrl-C in a call that `submit` itself runs in the main thread is raised there
        self.plan = "fail" if plan == "fail by KeyboardInterrupt" and box.runs_here else plan
        self.salt = salt  # what the task takes its random choices from
        self.late = late  # where the driver finds what tasks submit in their turn
        self.depth = depth
        self.number = next(world.entry_numbers)
        self.value = object()
        self.task: Any = None
        self.marks: list[int] = []  # the threads that ran it
        self.added = 0  # callbacks
        self.called: list[tuple[int, int]] = []  # of these, with the threads that ran them
        self.cancelled = False  # cancel() returned True
        self.may_cancel = False  # somebody cancels it without telling
        self.may_run = False  # its submit was interrupted: it runs once or not at all
        self.refused = False  # its submit raised: it never runs
        self.taken = False  # out of the queue, by a thread that runs it itself
        self.settled = False  # it was done and nothing may happen any more
        self.outside: Any = None  # a result that was set from outside
        self.gate: threading.Event | None = None
        self.other: Entry | None = None

    def __repr__(self) -> str:
        return f"task {self.number} ({self.plan}, depth {self.depth}) of {self.box}: {self.task!r}"

    def begin(self) -> None:
        """Note a run; called first thing by the task's function."""
        self.marks.append(threading.get_ident())
        if len(self.marks) > 1:
            self.world.fault("run twice", f"{self!r}, by threads {self.marks}")
        if self.refused:
            self.world.fault("ran although refused", repr(self))
        if self.settled:
            self.world.fault("ran after its end", repr(self))
        if self.cancelled:
            self.world.fault("ran although cancelled", repr(self))

    def cancel(self) -> bool:
        """Cancel the task, if it has not been settled, and note the answer."""
        task = self.task
        if task is None:
            return False
        self.may_cancel = True  # first, for its driver may see the outcome before we say so
        if not task.cancel():
            return False
        self.cancelled = True
        if self.marks:
            self.world.fault("cancelled although it ran", repr(self))
        if not (task.cancelled() and task.done()):
            self.world.fault("not cancelled although cancel() said so", repr(self))
        return True

    def set_outside(self) -> bool:
        """End the task from outside, unless it has ended."""
        value = object()
        try:
            self.task.set_result(value)
        except InvalidStateError:
            return False
        self.outside = value
        return True

    def add_callback(self) -> None:
        """Have a callback run when it is done."""
        self.added += 1
        # one that runs at once raises to its caller what the stdlib's would
        with contextlib.suppress(SystemExit, KeyboardInterrupt, GeneratorExit):
            self.task.add_done_callback(_Callback(self, self.added))

    def is_quiet(self) -> bool:
        """Return whether it is done and its callbacks ran."""
        if self.task is None:
            return True
        if not self.task.done():
            return False
        return self.box.injects or len(self.called) >= self.added

    def settle(self) -> str:
        """Check how it ended; return that in a word."""
        end = self._end()
        if not self.box.injects:
            self._check_callbacks()
        if self.outside is None and not self.may_run:
            self.settled = True
        self.task = self.other = None
        return end

    def _end(self) -> str:
        world, runs = self.world, len(self.marks)
        if self.refused:
            if runs:
                world.fault("ran although refused", repr(self))
            return "refused"
        if self.task is None:
            return "ran, no handle" if runs else "did not run, no handle"
        if not self.task.done():
            world.fault("not done", repr(self))
        if self.task.cancelled():
            if runs:
                world.fault("ran although cancelled", repr(self))
            if not (self.cancelled or self.may_cancel or self.box.cancels):
                world.fault("cancelled by nobody", repr(self))
            try:
                self.task.result(0)
            except CancelledError:
                return "cancelled"
            world.fault("no CancelledError", repr(self))
        if self.cancelled:
            world.fault("not cancelled although cancel() said so", repr(self))
        error = self.task.exception(0)
        if self.outside is not None:
            if error is not None or self.task.result(0) is not self.outside:
                world.fault("wrong result", f"{self!r}: not the one that was set from outside")
            return "set from outside"
        # an exception may have been injected into the initializer
        breaks = self.box.breaks or (self.box.injects and self.box.initialized)
        if isinstance(error, BrokenThreadPool) and breaks and not runs:
            return "broken"
        if isinstance(error, Injected) and self.box.injects:
            return "hit by an injected exception"
        if runs != 1:
            world.fault("lost", f"{self!r}: it ran {runs} times and ended with {error!r}")
        expected = self.plan in FAILING
        if (error is not None) != expected:
            world.fault("wrong result", f"{self!r}: raised {error!r}")
        if not expected:
            if self.task.result(0) is not self.value:
                world.fault("wrong result", f"{self!r}: {self.task.result(0)!r}")
            return "returned"
        if not isinstance(error, FAILING[self.plan]) or error.args != (self.number,):
            world.fault("wrong result", f"{self!r}: raised {error!r}")
        return "raised"

    def _check_callbacks(self) -> None:
        numbers = sorted(number for number, _ in self.called)
        if numbers != list(range(1, self.added + 1)):
            self.world.fault("callbacks", f"{self!r}: {self.added} added, called {self.called}")
        last: dict[int, int] = {}
        for number, thread in self.called:
            if last.get(thread, 0) > number:
                self.world.fault("callbacks", f"{self!r}: out of order, {self.called}")
            last[thread] = number


FAILING: dict[str, type[BaseException]] = {
    "fail": Failure,
    "fail by SystemExit": SystemExit,
    "fail by KeyboardInterrupt": KeyboardInterrupt,
    "fail by GeneratorExit": GeneratorExit,
    "fail by StopIteration": StopIteration,
}


class _Callback:
    """A callback; what it does beyond being counted depends on the task's number."""

    def __init__(self, entry: Entry, number: int) -> None:
        self.entry, self.number = entry, number

    def __call__(self, task: Any) -> None:
        from mixing.body import after_callback

        entry = self.entry
        entry.called.append((self.number, threading.get_ident()))
        if not task.done():
            entry.world.fault("callbacks", f"{entry!r}: called before its end")
        after_callback(entry, self.number)
