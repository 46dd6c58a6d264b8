"""What is measured: each workload is a function of an executor and a number of tasks."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from bench.sides import CEILING

BLOCK = b"x" * 16384


def identity(x: int) -> int:
    """A task that costs next to nothing, so that what is left is the pool's own cost."""
    return x


def burst(pool: Executor, tasks: int) -> None:
    """Submit every task, then take every result in order."""
    futures = [pool.submit(identity, i) for i in range(tasks)]
    for future in futures:
        future.result()


def round_trip(pool: Executor, tasks: int) -> None:
    """Submit a task and take its result before the next one."""
    for i in range(tasks):
        pool.submit(identity, i).result()


def map_items(pool: Executor, tasks: int) -> None:
    """One call of `map` with its default arguments."""
    list(pool.map(identity, range(tasks)))


def sha256(pool: Executor, tasks: int) -> None:
    """A burst of tasks that let go of the GIL: the SHA-256 of 16 KiB."""
    futures = [pool.submit(hashlib.sha256, BLOCK) for _ in range(tasks)]
    for future in futures:
        future.result()


def sha256_threads(workers: int, tasks: int) -> None:
    """The same hashes in bare threads, each with its share: what no pool can beat."""

    def share() -> None:
        for _ in range(tasks // workers):
            hashlib.sha256(BLOCK)

    threads = [threading.Thread(target=share) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass(frozen=True, slots=True)
class Workload:
    """A named measurement; each of its numbers of workers gives one row of the table."""

    name: str
    summary: str
    workers: tuple[int, ...]
    tasks: int
    """Tasks per repetition."""
    short_tasks: int
    """The same under `--short`."""
    run: Callable[[Executor, int], None] | None
    """None: measured in processes of their own, by `bench.memory`."""
    bare: Callable[[int, int], None] | None = None
    """The work without a pool, given (workers, tasks)."""

    @property
    def unit(self) -> str:
        """What a sample is, per task: seconds ("s") or bytes ("B")."""
        return "B" if self.run is None else "s"

    @property
    def further_sides(self) -> tuple[str, ...]:
        """The sides beyond the two executors."""
        return () if self.bare is None else (CEILING,)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "burst",
        "submit 20,000 no-op tasks, then take every result",
        (1, 2, 4),
        20_000,
        2_000,
        burst,
    ),
    Workload(
        "round-trip", "submit(...).result(), one at a time", (1, 2, 4), 1_500, 200, round_trip
    ),
    Workload("map", "list(pool.map(f, range(50_000)))", (2,), 50_000, 5_000, map_items),
    Workload(
        "sha256",
        "SHA-256 of 16 KiB, a task that releases the GIL",
        (2,),
        2_000,
        400,
        sha256,
        sha256_threads,
    ),
    Workload("memory", "bytes held per pending task", (1,), 100_000, 20_000, None),
)


def select(names: Iterable[str]) -> tuple[Workload, ...]:
    """The workloads of these names, all if none are given; KeyError names an unknown one."""
    known = {workload.name: workload for workload in WORKLOADS}
    chosen = tuple(dict.fromkeys(names)) or tuple(known)
    return tuple(known[name] for name in chosen)
