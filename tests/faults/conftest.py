"""Fixtures of the tests of faults."""

from __future__ import annotations

import pytest


@pytest.fixture
def patience(request):
    """Seconds to wait for what has to happen: not long where the test is expected to fail."""
    return 0.5 if request.node.get_closest_marker("xfail") else 10
