"""Micro rows under pytest-benchmark: `make bench-micro`.

The two executors are in one group per row, so that the plugin's own table sets them side by
side. The head-to-head with interleaved sides is `python -m bench`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from bench.sides import our_pool, our_side, stdlib_pool
from bench.workloads import burst, identity, map_items, round_trip

pytest.importorskip("pytest_benchmark")

WORKERS = 2


@pytest.fixture(params=["stdlib", our_side()])
def pool(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """A warm executor of each side."""
    make = stdlib_pool() if request.param == "stdlib" else our_pool()
    with make(WORKERS) as executor:
        burst(executor, 100)
        yield executor


@pytest.mark.benchmark(group="submit")
def test_submit(benchmark: Any, pool: Executor) -> None:
    """What the caller pays for one submit; the results are taken outside the clock."""
    futures: list[Future[int]] = []

    def drain() -> None:
        while futures:
            futures.pop().result()

    def submit() -> None:
        for i in range(1000):
            futures.append(pool.submit(identity, i))

    benchmark.pedantic(submit, setup=drain, rounds=30)
    drain()


@pytest.mark.benchmark(group="round-trip")
def test_round_trip(benchmark: Any, pool: Executor) -> None:
    """One task there and back."""
    benchmark.pedantic(round_trip, args=(pool, 100), rounds=30, warmup_rounds=1)


@pytest.mark.benchmark(group="burst")
def test_burst(benchmark: Any, pool: Executor) -> None:
    """1,000 tasks, then their results."""
    benchmark.pedantic(burst, args=(pool, 1000), rounds=30, warmup_rounds=1)


@pytest.mark.benchmark(group="map")
def test_map(benchmark: Any, pool: Executor) -> None:
    """1,000 items through map."""
    benchmark.pedantic(map_items, args=(pool, 1000), rounds=30, warmup_rounds=1)


@pytest.mark.benchmark(group="context of five variables, 1,000 tasks")
@pytest.mark.parametrize("propagate", [False, True], ids=["off", "on"])
def test_propagate_context(benchmark: Any, propagate: bool) -> None:
    """What a copy of the submitter's context costs: the difference, over 1,000."""
    variables = [contextvars.ContextVar(f"variable {i}", default=0) for i in range(5)]

    def measure() -> None:
        for variable in variables:
            variable.set(1)
        benchmark.pedantic(burst, args=(executor, 1000), rounds=300, warmup_rounds=10)

    with our_pool()(WORKERS, propagate_context=propagate) as executor:  # type: ignore[call-arg]
        contextvars.Context().run(measure)
