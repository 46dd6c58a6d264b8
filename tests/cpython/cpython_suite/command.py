"""The command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cpython_suite import discovery, report, runner, single
from cpython_suite.replacement import DEFAULT_EXECUTOR, Replacement
from cpython_suite.suite import DEBIAN_PACKAGE, Suite, SuiteMissing, locate

GOOD, BAD, NOT_RUN = 0, 1, 77


def main(argv: Sequence[str]) -> int:
    """Run the suite; return GOOD, BAD, or NOT_RUN if this Python has no suite."""
    if len(argv) == 2 and argv[0] in ("list", "single"):  # the runner's own processes
        request = json.loads(argv[1])
        replacement = _replacement(request["replacement"])
        if argv[0] == "list":
            return _list(replacement)
        suite = Suite(request["suite"]["graft"], tuple(request["suite"]["modules"]))
        return single.run(request["name"], replacement, suite, request["limit"])
    options = _parser().parse_args(argv)
    replacement = Replacement(options.executor, options.patch_all, tuple(sys.path[1:]))
    try:
        listing = runner.list_tests(replacement)
    except SuiteMissing as missing:
        print(f"not run here: {missing} ({report.python()})")
        return NOT_RUN
    except runner.RunnerError as error:
        print(f"nothing ran, {options.executor} cannot be put in place:\n{error}")
        return BAD
    if listing.suite.graft is not None:
        print(f"the tests are those of Debian's {DEBIAN_PACKAGE}")
    for module, reason in listing.broken.items():
        print(f"not importable here: {module}: {reason}")
    wrong = discovery.wrong_number(listing.suite, len(listing.names), options.expect)
    outcomes = []
    names = [name for name in listing.names if options.only in name]
    for outcome in runner.run_tests(names, replacement, listing.suite, options.limit, options.jobs):
        outcomes.append(outcome)
        print(report.progress(len(outcomes), len(names), outcome), flush=True)
    print()
    for outcome in sorted(outcomes, key=lambda outcome: outcome.name):
        if not outcome.good:
            print(report.failure(outcome))
    if wrong is not None:
        print(f"wrong number of tests: {wrong}")
    print(report.summary(outcomes, options.executor))
    return GOOD if outcomes and wrong is None and all(outcome.good for outcome in outcomes) else BAD


def _list(replacement: Replacement) -> int:
    answer: dict[str, Any]
    try:
        suite = locate()
    except SuiteMissing as missing:
        answer = {"missing": str(missing)}
    else:
        replacement.install()
        suite.prepare()
        names, broken = discovery.discover(suite)
        replacement.verify(discovery.mixin(suite))
        answer = {"suite": asdict(suite), "names": names, "broken": broken}
    print(json.dumps(answer))
    return GOOD


def _replacement(fields: dict[str, Any]) -> Replacement:
    return Replacement(fields["executor"], fields["patch_all"], tuple(fields["path"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/cpython", description=_description())
    parser.add_argument(
        "--executor", default=DEFAULT_EXECUTOR, metavar="MODULE:CLASS", help="default: %(default)s"
    )
    parser.add_argument(
        "--patch-all", action="store_true", help="call the module's patch_stdlib() instead"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="tests at a time, default: %(default)s",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=runner.DEFAULT_LIMIT,
        help="seconds per test, default: %(default)s",
    )
    parser.add_argument(
        "--expect", type=int, help="the number of tests, on a version that is not listed"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run the tests whose names contain this"
    )
    return parser


def _description() -> str:
    return (
        "Run the thread-pool classes of the interpreter's own test.test_concurrent_futures "
        f"with another executor. The exit status is {GOOD} if all passed, {NOT_RUN} if this "
        f"Python has no such tests, else {BAD}."
    )
