"""What the process of one test does."""

from __future__ import annotations

import faulthandler
import importlib
import sys
import unittest

from cpython_suite import children, discovery
from cpython_suite.replacement import Replacement
from cpython_suite.suite import NAME, Suite

# A child interpreter has to be given up on before the test that waits for it.
CHILD_SHARE = 0.8

# The text of the last line: how the test ended, for the runner.
PASSED = "outcome: passed"
SKIPPED = "outcome: skipped: "


def run(name: str, replacement: Replacement, suite: Suite, limit: float) -> int:
    """Run one test and return the exit status, 0 if it passed.

    After `limit` seconds the stacks of all threads are written to stderr and the process ends.
    """
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit, exit=True)
    replacement.install()
    suite.prepare()
    children.treat(replacement, suite, limit * CHILD_SHARE)
    children.watch()
    tests = unittest.defaultTestLoader.loadTestsFromName(f"{NAME}.{name}")
    mixin = discovery.mixin(suite)
    replacement.verify(mixin)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    replacement.verify(mixin)
    problem = _problem(name, result)
    if problem is not None:
        print(f"outcome: failed: {problem}", flush=True)
        return 1
    print(SKIPPED + result.skipped[0][1] if result.skipped else PASSED, flush=True)
    return 0


def _problem(name: str, result: unittest.TestResult) -> str | None:
    if not result.wasSuccessful():
        return "see above"
    if result.testsRun != 1:
        return f"{result.testsRun} tests ran instead of one"
    if result.skipped and not discovery.may_skip(name):
        return f"skipped without need: {result.skipped[0][1]}"
    if children.untreated:
        return f"started an interpreter without the replacement: {children.untreated[0]}"
    if importlib.import_module("test.support").environment_altered:
        return "threads or processes were left behind"
    return None
