"""Fixtures of all tests."""

from __future__ import annotations

import gc
import signal
import threading
import time

import diagnostics
import leaks
import pytest

import affinitypool


def pytest_addoption(parser):
    """Add `--repeat` and `--leaks`."""
    parser.addoption("--repeat", type=int, default=1, help="run each test so many times in a row")
    parser.addoption("--leaks", action="store_true", help="look for leaks: tests/leaks.py")


def pytest_configure(config):
    """Have failures say where every thread was and what the pools counted; and Ctrl-C raise."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(diagnostics.Plugin(), "affinitypool-diagnostics")
    if config.option.leaks:
        config.pluginmanager.register(leaks.Plugin(), "affinitypool-leaks")


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """Repeat each test; `round-7` in its name is one of them."""
    rounds = metafunc.config.option.repeat
    if rounds > 1:
        metafunc.fixturenames.append("_round")
        metafunc.parametrize("_round", range(rounds), ids=lambda n: f"round-{n}")


def pytest_runtest_teardown(item):
    """Let go of what a parameter that was raised has gathered: whole frames, with their pools."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    for value in params.values():
        if isinstance(value, BaseException):
            value.__traceback__ = value.__context__ = None


@pytest.fixture
def _round(request):
    return request.param


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    """Fail a test that leaves threads behind, pools of which it dropped included."""
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 5
    while left := set(threading.enumerate()) - before:
        if time.monotonic() > end:
            pytest.fail(f"threads left behind: {sorted(thread.name for thread in left)}")
        gc.collect()
        time.sleep(0.005)


@pytest.fixture(params=[1, 2, 4], ids=["1-worker", "2-workers", "4-workers"])
def pool(request):
    """Give a pool of each size."""
    with affinitypool.ThreadPoolExecutor(request.param) as pool:
        yield pool


@pytest.fixture
def one():
    """Give a pool of one worker."""
    with affinitypool.ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def two():
    """Give a pool of two workers."""
    with affinitypool.ThreadPoolExecutor(2) as pool:
        yield pool
