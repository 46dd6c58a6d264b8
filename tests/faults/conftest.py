"""Fixtures of the tests of faults."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="session")
def _the_collector_passes_over_pytest():
    """Many tests run the collector: it need not look at what was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def patience(request):
    """Seconds to wait for what has to happen: not long where the test is expected to fail.

    What that one leaves is collected, so that it dies in no other test.
    """
    marks = request.node.iter_markers("xfail")
    fails = any(not mark.args or mark.args[0] for mark in marks)
    yield 0.5 if fails else 10
    if fails:
        gc.collect()
