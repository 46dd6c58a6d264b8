"""Taking samples: the sides take turns, so that what the machine does meanwhile hits them alike."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from bench import memory
from bench.results import Row
from bench.sides import CEILING, STDLIB, STDLIB_MODULE, our_module, our_pool, our_side, stdlib_pool
from bench.workloads import Workload

Probe = Callable[[], float]
"""Takes one sample."""


def interleave(
    probes: Mapping[str, Probe], repetitions: int, step: Callable[[], None]
) -> dict[str, list[float]]:
    """`repetitions` samples per side, the order reversed at every other repetition.

    `step` is called after each sample, outside the clock.
    """
    samples: dict[str, list[float]] = {side: [] for side in probes}
    order = list(probes)
    for _ in range(repetitions):
        for side in order:
            gc.collect()
            samples[side].append(probes[side]())
            step()
        order.reverse()
    return samples


def per_task(run: Callable[[], None], tasks: int) -> float:
    """Seconds per task of one run."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / tasks


@contextlib.contextmanager
def probes_of(workload: Workload, workers: int, tasks: int) -> Iterator[dict[str, Probe]]:
    """A probe per side; the pools are made, and everything has run once, before they are given."""
    if workload.run is None:
        yield {
            STDLIB: partial(memory.bytes_per_task, STDLIB_MODULE, tasks),
            our_side(): partial(memory.bytes_per_task, our_module(), tasks),
        }
        return
    with stdlib_pool()(workers) as theirs, our_pool()(workers) as ours:
        runs: dict[str, Callable[[], None]] = {
            STDLIB: partial(workload.run, theirs, tasks),
            our_side(): partial(workload.run, ours, tasks),
        }
        if workload.bare is not None:
            runs[CEILING] = partial(workload.bare, workers, tasks)
        for run in runs.values():
            run()
        yield {side: partial(per_task, run, tasks) for side, run in runs.items()}


def measure(
    workload: Workload, workers: int, tasks: int, repetitions: int, step: Callable[[], None]
) -> Row:
    """One row of the table."""
    with probes_of(workload, workers, tasks) as probes:
        samples = interleave(probes, repetitions, step)
    return Row(workload.name, workload.summary, workers, tasks, workload.unit, samples)
