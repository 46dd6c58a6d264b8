"""Fixtures of the tests of faults."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _the_collector_passes_over_pytest():
    """Many tests run the collector: it need not look at what was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()  # whatever a test has frozen as well
