"""Runs each test many times over and fails the one that leaves something behind each time.

`pytest --leaks`: conftest registers the Plugin.  A test is run WARM_UP times, then in rounds that
are measured, each after the collector has found nothing more to free:

    references  sys.gettotalrefcount(), in debug builds of Python only
    blocks      sys.getallocatedblocks(): what the interpreter's allocator has given out
    heap        bytes given out by malloc, which the C core asks itself (mallinfo2 of glibc)
    rss         memory of the process, in pages: what neither of these counts
    own types   objects of the extension and of the package's classes: by the references to a
                type, of which each object holds one; without a GIL types count none, and the
                collector's list is asked, which lacks the types that are none of its business

Caches, free lists and tables that grow make steps; a leak is a slope.  So a number is suspected
if it rose in more than half of the rounds and did not fall back; the test fails if it still does
after ROUNDS more, twice.  The message names the types whose objects became more.

Not measured, and reported as skipped with the reason: tests that start a process (what it leaves
behind ends with it), tests that skip, and tests that take too long to be repeated.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from _pytest import runner

WARM_UP = 3
FIRST = 4  # rounds that decide whether a test is looked at more closely
ROUNDS = (10, 16)  # how many more, each time
SLOWEST = float(os.environ.get("AFFINITYPOOL_LEAKS_SLOWEST", "0.1"))  # seconds for one run
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()

# The least growth for one round that counts.  A reference or a block too many is one; the
# smallest chunk of malloc is 24 bytes; the pages of a thread's stack come and go.  Without a GIL
# the interpreter's own tables for threads grow by some bytes for each thread, for a long time.
LEAST = {"references": 0.5, "blocks": 0.5, "heap": 16.0 if HAS_GIL else 64.0, "rss": 32.0}


Series = dict[str, "array[int]"]  # what was counted, after each round; the first is before them


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def _heap_counter() -> Callable[[], int] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    function.restype = _Mallinfo

    def count() -> int:
        info = function()
        return int(info.uordblks + info.hblkhd)

    return count


# The cache of attributes keeps the names that were asked for, also those made for one look: for
# hundreds of rounds each brings new ones.
_clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


def _resident_pages() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1])


def own_types() -> dict[str, type]:
    """Return the types of the extension and of the package, by name."""
    import affinitypool
    from affinitypool import _executor, _threads, _waiting
    from affinitypool._binding import core

    types = {}
    for module in (core, affinitypool, _executor, _threads, _waiting):
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.startswith("affinitypool"):
                types[value.__qualname__] = value
    return types


class Counters:
    """Everything that is counted."""

    def __init__(self) -> None:
        self._types = self.own = own_types()
        self._sources: dict[str, Callable[[], int]] = {
            "blocks": sys.getallocatedblocks,
            "rss": _resident_pages,
        }
        if hasattr(sys, "gettotalrefcount"):
            self._sources["references"] = sys.gettotalrefcount
        if heap := _heap_counter():
            self._sources["heap"] = heap

    def names(self) -> list[str]:
        """Return what is counted here."""
        return [*self._sources, "own types"]

    def series(self, rounds: int) -> Series:
        """Return room for so many rounds, and the state before them: nothing is allocated later."""
        names = [*self._sources, *self._types]
        series = {name: array("q", bytes(8 * (rounds + 1))) for name in names}
        self.count(series, 0)
        self.count(series, 0)  # what the first time has made is there now
        return series

    def count(self, series: Series, index: int) -> None:
        """Count, once the collector finds nothing more."""
        _clear_caches()
        for _ in range(5):
            if gc.collect() == 0:
                break
        if HAS_GIL:
            for name, kind in self._types.items():
                series[name][index] = sys.getrefcount(kind)
        else:
            found = Counter(map(type, gc.get_objects()))
            for name, kind in self._types.items():
                series[name][index] = found[kind]
            del found
        for name, source in self._sources.items():
            series[name][index] = source()


def histogram() -> Counter[str]:
    """Return how many objects of each type the collector knows."""
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))


def slope(values: Sequence[int]) -> float:
    """Return the growth for one round: the median over all pairs of rounds, which steps do not
    move.  0 if half of the rounds or fewer saw a rise, or the last third is not above the first.
    """
    pairs = [
        (values[j] - values[i]) / (j - i)
        for i in range(len(values))
        for j in range(i + 1, len(values))
    ]
    rises = sum(b > a for a, b in pairwise(values))
    third = max(1, len(values) // 3)
    if 2 * rises <= len(values) - 1 or min(values[-third:]) <= max(values[:third]):
        return 0.0
    return statistics.median(pairs)


def growing(series: Series) -> dict[str, float]:
    """Return what grows steadily, and by how much for each round."""
    slopes = {name: slope(values) for name, values in series.items()}
    return {name: by for name, by in slopes.items() if by >= LEAST.get(name, 0.5)}


@contextlib.contextmanager
def _processes_counted(started: list[str]) -> Iterator[None]:
    """Note in `started` that a process was started, by a fork or a subprocess."""
    popen, fork = subprocess.Popen.__init__, os.fork

    def counting_popen(self: Any, *args: Any, **kwargs: Any) -> None:
        started.append("Popen")
        popen(self, *args, **kwargs)

    def counting_fork() -> int:
        started.append("fork")
        return fork()

    subprocess.Popen.__init__ = counting_popen  # type: ignore[method-assign]
    os.fork = counting_fork
    try:
        yield
    finally:
        subprocess.Popen.__init__ = popen  # type: ignore[method-assign]
        os.fork = fork


@contextlib.contextmanager
def _classes_counted(made: list[str]) -> Iterator[None]:
    """Note in `made` each class that a class statement makes."""
    build = builtins.__build_class__

    def counting_build(body: Any, name: str, *bases: Any, **options: Any) -> Any:
        made.append(name)
        return build(body, name, *bases, **options)

    builtins.__build_class__ = counting_build
    try:
        yield
    finally:
        builtins.__build_class__ = build


@contextlib.contextmanager
def _finalizers_kept(item: pytest.Item) -> Iterator[None]:
    """Leave no finalizer in fixtures that stay: each run of a test adds that of each fixture of its
    own that uses one of them, as `tmp_path` does.
    """
    found = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
    stay = [each for several in found for each in several if each.scope != "function"]
    counts = [len(each._finalizers) for each in stay]
    try:
        yield
    finally:
        for each, count in zip(stay, counts, strict=True):
            del each._finalizers[count:]


class _Sibling:
    """Stands for a test that follows in the same module: so much is kept set up."""

    def __init__(self, item: pytest.Item) -> None:
        assert item.parent is not None
        self.listchain = item.parent.listchain


class _NotMeasured(Exception):
    """Why a test is not repeated."""


class Plugin:
    """The part that pytest sees."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._measured = 0
        self._total = 0

    def pytest_report_header(self) -> str:
        """Say what is counted."""
        return f"leaks: each test again and again; counted are {', '.join(self._counters.names())}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how much was looked at."""
        terminalreporter.write_line(f"leaks: {self._measured} tests measured, {self._total} rounds")

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run the test as often as is needed, and report once."""
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._first_run(item, nextitem)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _first_run(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        started: list[str] = []
        begin = time.perf_counter()
        with _processes_counted(started):
            reports = self._run(item)
        seconds = time.perf_counter() - begin
        try:
            if any(not report.passed for report in reports):
                return reports
            if started:
                raise _NotMeasured("starts a process")
            if seconds > SLOWEST:
                raise _NotMeasured(f"takes more than {SLOWEST:g} s")
            message = self._measure(item)
        except _NotMeasured as reason:
            return self._replace(reports, "skipped", f"Skipped: not measured: {reason}", item)
        finally:
            item.session._setupstate.teardown_exact(nextitem)
        if message:
            return self._replace(reports, "failed", message, item)
        return reports

    @staticmethod
    def _replace(
        reports: list[pytest.TestReport], outcome: Any, text: str, item: pytest.Item
    ) -> list[pytest.TestReport]:
        for report in reports:
            if report.when == "call":
                report.outcome = outcome
                path, line, _ = item.location
                report.longrepr = (path, (line or 0) + 1, text) if outcome == "skipped" else text
        return reports

    @staticmethod
    def _run(item: pytest.Item) -> list[pytest.TestReport]:
        """Run the test once, with its fixtures; those of its module stay."""
        item._initrequest()  # type: ignore[attr-defined]
        try:
            reports = [runner.call_and_report(item, "setup", log=False)]
            if reports[0].passed:
                reports.append(runner.call_and_report(item, "call", log=False))
            sibling: Any = _Sibling(item)
            reports.append(runner.call_and_report(item, "teardown", log=False, nextitem=sibling))
            return reports
        finally:
            item._report_sections.clear()
            item._request = False  # type: ignore[attr-defined]
            item.funcargs = None  # type: ignore[attr-defined]

    def _round(self, item: pytest.Item) -> None:
        threads, frozen = threading.active_count(), gc.get_freeze_count()
        with _finalizers_kept(item):
            reports = self._run(item)
        if gc.get_freeze_count() > frozen:
            raise _NotMeasured("freezes what it has made")
        for report in reports:
            if not report.passed:
                text = str(report.longrepr).strip().rpartition("\n")[2]
                raise _NotMeasured(f"{report.outcome} when it is repeated: {text[:120]}")
        end = time.monotonic() + 2
        while threading.active_count() > threads and time.monotonic() < end:
            time.sleep(0.001)

    def _measure(self, item: pytest.Item) -> str:
        """Return what grows, as a text, or nothing."""
        for _ in range(WARM_UP - 1):
            self._round(item)
        gc.collect()
        gc.freeze()  # the collector, and who asks for its list, look at what is new
        try:
            return self._look(item)
        finally:
            gc.unfreeze()

    def _rounds(self, item: pytest.Item, count: int) -> dict[str, float]:
        series = self._counters.series(count)
        for index in range(1, count + 1):
            self._round(item)
            self._counters.count(series, index)
        self._total += count
        return growing(series)

    def _look(self, item: pytest.Item) -> str:
        self._measured += 1
        suspects = self._rounds(item, FIRST)
        told: list[str] = []
        classes: list[str] = []
        for rounds in ROUNDS:
            if not suspects:
                return ""
            before = histogram()
            with _classes_counted(classes):
                now = self._rounds(item, rounds)
            suspects = {name: by for name, by in now.items() if name in suspects}
            after = histogram()
            told = [
                f"{name} +{count / rounds:g}"
                for name, count in (after - before).most_common()
                if 2 * count > rounds
            ]
        if not suspects:
            return ""
        if not HAS_GIL and (classes or any(name.startswith("builtins.function ") for name in told)):
            raise _NotMeasured("makes classes or modules, which live for ever without a GIL")
        lines = [f"{name}: +{by:g} for each round" for name, by in suspects.items()]
        types = ", ".join(told) or "none that the collector knows"
        return "\n".join(["leaks:", *lines, f"types whose objects became more: {types}"])
