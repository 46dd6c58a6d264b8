"""The interpreter's own thread-pool tests, one pytest test for each of them.

`CPYTHON_SUITE_EXECUTOR` (`module:Class`) names another executor than affinitypool's, and
`CPYTHON_SUITE_PATCH_ALL=1` puts it in place by its module's `patch_stdlib()`.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # not there under every import mode of pytest

from cpython_suite import discovery, report, runner
from cpython_suite.replacement import DEFAULT_EXECUTOR, Replacement
from cpython_suite.suite import SuiteMissing

LIMIT = runner.DEFAULT_LIMIT

pytestmark = pytest.mark.timeout(LIMIT + 2 * runner.GRACE)


@functools.cache
def replacement() -> Replacement:
    executor = os.environ.get("CPYTHON_SUITE_EXECUTOR", DEFAULT_EXECUTOR)
    return Replacement(executor, os.environ.get("CPYTHON_SUITE_PATCH_ALL") == "1", tuple(sys.path))


@functools.cache
def listing() -> runner.Listing | str:
    """The tests, or why there are none here."""
    try:
        return runner.list_tests(replacement())
    except SuiteMissing as missing:
        return f"not run here: {missing} ({report.python()})"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        found = listing()
        if isinstance(found, str):
            metafunc.parametrize(
                "name", [pytest.param("", marks=pytest.mark.skip(found), id="none")]
            )
        else:
            metafunc.parametrize("name", found.names)


def test_number() -> None:
    """No test is lost silently."""
    found = listing()
    if isinstance(found, str):
        pytest.skip(found)
    assert discovery.wrong_number(found.suite, len(found.names)) is None


def all_cpus_count() -> bool:
    """Whether CPython's test and we count the same CPUs."""
    if sys.version_info >= (3, 13) or not hasattr(os, "sched_getaffinity"):
        return True
    return len(os.sched_getaffinity(0)) == os.cpu_count()


def test_passes(name: str) -> None:
    """One test of CPython's passes with our executor."""
    found = listing()
    assert not isinstance(found, str)
    if name.endswith(".test_default_workers") and not all_cpus_count():
        pytest.skip("before Python 3.13 it counts all CPUs, and we may use some of them")
    outcome = runner.run_test(name, replacement(), found.suite, LIMIT)
    if outcome.status == "skipped":
        pytest.skip(f"by CPython's test itself: {outcome.reason}")
    if not outcome.good:
        pytest.fail(report.failure(outcome), pytrace=False)
