"""A random mix of everything that a pool is asked to do, checked to the last task.

    python tests/faults/mix.py [--seconds 60] [--seed N] [--short] [--only NAMES] [--without NAMES]

Several threads choose what to do: submit, cancel, wait, `as_completed`, `map`, nested waits,
callbacks, event loops, results set from outside, finalizers, signals to the main thread (whose
handler submits, waits, shuts down or raises), forked children, short-lived threads, pools that are
made and end in every way, and, where the pool has them, bounds, exceptions injected into workers
and workers that end.  What a thread chooses follows from the seed; how the threads interleave does
not.  The seed is printed first, and in every failure.

Checked are: no thread stands still (30 s: --patience); each accepted task is done in the end, ran
once, or failed or was cancelled visibly; `cancel` is True exactly when a task never ran; results,
exceptions, callbacks and contexts are the right ones; at the end of each phase no thread and no
descriptor is left; memory in the end is within 2 MB (--megabytes) of what it was after a quarter of
the time.

What is wrong is named, with every thread's stack and every pool's counters, and the status is 1.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

from mixing.actions import EVERYTHING, Handler  # noqa: E402
from mixing.driver import Driver  # noqa: E402
from mixing.world import (  # noqa: E402
    FREE_THREADED,
    MEGABYTE,
    SLOTS,
    World,
    open_files,
    say,
    task_count,
)

from affinitypool import ThreadPoolExecutor  # noqa: E402

OTHERS = 3  # threads beside the main one
PHASE = 2.5  # seconds at most from one quiet moment to the next


def run_phase(world: World, name: str, seconds: float, idle: tuple[int, set[str]]) -> int:
    """Let everybody go for a while; return the resident memory once all is quiet again."""
    world.phase = name
    rng = random.Random(f"{world.seed}/{name}")
    world.boxes = [world.new_box(rng) for _ in range(SLOTS)]
    main = Driver(world, f"main, {name}")
    others = [Driver(world, f"thread {n}, {name}") for n in range(OTHERS)]
    handler = Handler(main)
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=other.drive, args=(until, world.actions), name=other.name)
        for other in others
    ]
    before = signal.signal(signal.SIGUSR1, handler)
    for thread in threads:
        thread.start()
    main.drive(until, world.actions)
    main.heart.resting = False
    main.heart.beat("join the others")
    while any(not other.heart.resting for other in others):
        time.sleep(0.005)
        main.heart.beat("join the others")  # they have hearts of their own
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)
    for box in world.boxes:
        main.heart.beat(f"shut down {box}")
        pool, box.pool = box.pool, None
        if pool is not None:
            pool.shutdown()
    world.boxes = []
    for driver in [main, *others]:
        driver.heart.resting = False
        driver.finish()  # what tasks, callbacks and finalizers submitted after its end
        driver.heart.beat("let go")
        world.counts.update(driver.counts)
    main.heart.beat("wait for threads to leave")
    del driver, main, others, handler, threads, box, pool
    world.hearts.clear()
    return world.settle_down(*idle)


def names(text: str) -> list[str]:
    """Split a list of names."""
    return [name.strip() for name in text.split(",")]


def summary(counts: Counter[str]) -> str:
    """Return the counts as lines."""
    rows = sorted(counts.items())
    return "".join(f"  {name:34} {count:10,}\n" for name, count in rows)


def main(argv: list[str] | None = None, pool_class: Any = ThreadPoolExecutor) -> int:
    """Run the mix; return the exit status."""
    parser = argparse.ArgumentParser(description="a random mix of everything, checked")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--short", action="store_true", help="3 seconds")
    parser.add_argument("--patience", type=float, default=30, help="seconds without progress")
    parser.add_argument("--rest", type=float, default=10, help="seconds for threads to leave (10)")
    parser.add_argument("--megabytes", type=float, default=None, help="that memory may grow by (2)")
    parser.add_argument("--only", type=names, help="of the actions: " + ", ".join(EVERYTHING))
    parser.add_argument("--without", type=names, default=[], help="these actions")
    options = parser.parse_args(argv)
    unknown = {*(options.only or ()), *options.without} - set(EVERYTHING)
    if unknown:
        parser.error(f"there is no action {', '.join(sorted(unknown))}")
    seconds = 3.0 if options.short else options.seconds
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    limit = options.megabytes
    if limit is None:
        # with few phases to compare: see below
        limit = 8.0 if FREE_THREADED and seconds < 30 else 2.0
    say(f"mix: seed {seed}, {seconds:g} s, {sys.implementation.name} {sys.version}\n")

    logging.disable(logging.CRITICAL)  # callbacks that raise are logged
    warnings.simplefilter("ignore", DeprecationWarning)  # forks with other threads about
    sys.unraisablehook = lambda unraisable: None  # the handler raises in finalizers, too
    threading.excepthook = lambda arguments: None  # workers that an exception was injected into
    world = World(seed, options.patience, pool_class, options.rest)
    world.actions = {
        name: action
        for name, action in EVERYTHING.items()
        if name in (options.only or EVERYTHING) and name not in options.without
    }
    world.start_watch()
    idle = task_count(), open_files()
    count = max(4, round(seconds / PHASE))
    warm = count // 4  # phases until everything has its size
    rests = []
    for number in range(1, count + 1):
        name = f"phase {number} of {count}"
        rests.append(run_phase(world, name, seconds / count, idle) / MEGABYTE)
        say(f"  {time.monotonic() - world.begun:5.1f} s  {name}: {rests[-1]:.2f} MB at rest\n")
    if FREE_THREADED:
        # mimalloc keeps what threads that have ended had until others take it over: some MB more or
        # less each time, but not more and more
        start, end = max(rests[:warm]), min(rests[-warm:])
    else:
        start, end = rests[warm - 1], rests[-1]
    if FREE_THREADED and options.megabytes is None:
        # nor does it get back all that a worker had which has started its replacement: about 1 KB
        # each, though no object is left (a thread that starts no other leaves nothing)
        limit += world.counts["workers ended"] * 3 / 1024
    say(summary(world.counts))
    say(f"memory: {start:.2f} MB after the warm-up, {end - start:+.2f} MB in the end\n")
    if end - start > limit:
        world.fault("memory", f"{end - start:.2f} MB more than after the warm-up")
    say(f"seed {seed}: nothing hung, lost or run twice\nmix: 1 passed, 0 failed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
