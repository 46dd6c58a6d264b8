"""Points in the C code at which a test holds threads; for scripts on an instrumented build.

    with hold("idle-enlisted") as held:
        pool.submit(int)
        held.reached()      # a thread is there now
        ...
        held.let_go()

Holding a thread that has the GIL would stop everybody: that is refused (`finish` fails), except
with `until`, the name of another point: then nobody needs to let go.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from affinitypool._binding import core as core_module
from affinitypool._binding import ffi, lib
from affinitypool._threads import pools

WAIT = 40.0  # for what comes at once on an idle machine; others may be busy beside us
LIMIT = 95.0  # of a run of a script; the test itself allows 110 s


class hold:
    """Hold the next `threads` threads that come to a point, after `skip` others."""

    def __init__(
        self,
        name: str,
        threads: int = 1,
        *,
        skip: int = 0,
        thread: int = 0,
        until: str | None = None,
        passes: int = 1,
    ) -> None:
        self._name = name.encode()
        other = ffi.NULL if until is None else ffi.new("char[]", until.encode())
        lib.ap_point_hold(self._name, threads, skip, thread, other, passes)

    def __enter__(self) -> hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_go()

    def reached(self, threads: int = 1) -> None:
        """Wait until so many threads are held."""
        assert lib.ap_point_await_held(self._name, threads, WAIT), f"nobody at {self._name}"

    def let_go(self) -> None:
        """Let go of who is held; nobody is held any more."""
        lib.ap_point_let_go(self._name)


class count:
    """Count the passes of a point from now on."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        lib.ap_point_count(self._name)

    @property
    def passes(self) -> int:
        """How often threads came to the point."""
        return int(lib.ap_point_passes(self._name))

    def wait(self, passes: int) -> None:
        """Wait until there were so many."""
        assert lib.ap_point_await_passes(self._name, passes, WAIT), f"too few at {self._name}"


def chaos(seed: int, yields: int = 64, sleeps: int = 8) -> None:
    """Of 1024 passes of any point let so many yield, so many sleep; 0, 0 ends it."""
    lib.ap_point_chaos(seed, yields, sleeps)


def core_options(**options: int) -> None:
    """Have pools made with options of the core that only tests know."""
    core_module.Core = lambda *given: _Core(*given, **options)


def spin(allowed: bool) -> None:
    """Let idle workers spin before they park, or not."""
    lib.ap_point_spin(allowed)


def eventually(condition: Callable[[], object], timeout: float = WAIT) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


def parked(pool: Any, workers: int | None = None) -> None:
    """Wait until so many workers of the pool, or all that it may have, are idle, and none is on its
    way to sleep: a hold that begins now does not catch one that is late.
    """
    wanted = pool._max_workers if workers is None else workers
    eventually(lambda: pool.stats().idle == wanted and not any(map(runs, list(pool._threads))))


def runs(thread: threading.Thread) -> bool:
    """Whether the kernel runs the thread, or would if it had a CPU."""
    try:
        line = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:  # it has ended, or this is not Linux
        return False
    return line.rpartition(")")[2].split()[0] == "R"


def filled(pool: Any) -> Any:
    """Start every worker of the pool, and wait until all are idle."""
    barrier = threading.Barrier(pool._max_workers)
    for task in [pool.submit(barrier.wait, WAIT) for _ in range(pool._max_workers)]:
        task.result(WAIT)
    parked(pool)
    return pool


def run(fn: Callable[..., Any], *args: Any) -> threading.Thread:
    """Run fn(*args) in a thread of its own; an error ends the process."""

    def work() -> None:
        try:
            fn(*args)
        except BaseException:
            fail(*sys.exc_info())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def join(*threads: threading.Thread) -> None:
    """Wait for threads to end."""
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive(), f"{thread.name} never ended"


def print_counters() -> None:
    """Write what every pool and every point has counted to stderr."""
    for pool in list(pools.values()):
        print(pool.stats(), "started", pool._core.started, file=sys.stderr)
    lib.ap_point_print()


def fail(*error: Any) -> None:
    """End the process now: threads may be held that nobody lets go any more."""
    traceback.print_exception(*error)
    print(f"with {_values}", file=sys.stderr)
    print_counters()
    faulthandler.dump_traceback(all_threads=True)
    sys.stderr.flush()
    os._exit(1)


def begin(values: dict[str, Any]) -> None:
    """Begin a run of the script with these values."""
    global _values
    _values = values
    _runs.set()
    faulthandler.dump_traceback_later(LIMIT, exit=True)


def finish() -> None:
    """Check that every hold did what it should; the last line of a script."""
    gc.collect()
    trouble = ffi.string(lib.ap_point_trouble()).decode()
    assert not trouble, trouble
    print("done")


def _watch() -> None:
    while _runs.wait(LIMIT - 5):
        _runs.clear()
    print(f"out of time, with {_values}", file=sys.stderr)
    print_counters()


_Core = core_module.Core
_values: dict[str, Any] = {}
_runs = threading.Event()
sys.excepthook = fail
threading.Thread(target=_watch, daemon=True).start()
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    gc.disable()  # it stops every attached thread, so it would wait for those that are held
