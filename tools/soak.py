"""Runs every test of tests/faults many times in a row, on several Pythons, in several settings.

    python tools/soak.py [--rounds 50] [--pythons 3.11,3.13] [--settings free,pinned,busy] ...

Settings: `free`; `pinned`, each run on one CPU, and as many runs at a time as there are CPUs;
`busy`, beside four processes that compute.  A Python is a version (its environment, .venv-VERSION,
is made if it is missing) or the path of an interpreter that has what the tests need.  Goes on after
failures.  A run that crashed, hung or did not run what it was asked to is a failure.

Logs are kept in build/soak.  So is a record, of what has been run of which commit, after each
process of some rounds: a soak that was cut goes on from there with --resume.  Ends with a table and
the names of what failed; the status is 1 if anything did, 130 if it was cut.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ("free", "pinned", "busy")
BUSY_PROCESSES = 4
SILENCE = 300  # seconds without a line of output after which a run is ended: the limit of a test
#                and what tests/diagnostics.py adds to it are less
RESULT = re.compile(r"(\S+::.*) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
ROUND = re.compile(r"-?round-\d+")


@dataclass
class Cell:
    """One Python in one setting."""

    python: str
    setting: str
    rounds: int = 0
    passed: int = 0
    skipped: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # of all its processes; some may have run at the same time


@dataclass(eq=False)
class Run:
    """Some rounds of a cell in one process."""

    cell: Cell
    first: int
    rounds: int
    wanted: int
    seen: int = 0
    begun: float = 0.0  # 0: not yet


def prepare(python: str) -> str:
    """Return the path of an interpreter that can run the tests; SystemExit if there is none."""
    if os.sep in python:
        return python
    commands = (
        ["bash", "tools/environment.sh", python],
        ["make", "environment", f"VENV=.venv-{python}"],
    )
    for command in commands:
        if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
            raise SystemExit(f"no environment for Python {python}, see above")
    return str(ROOT / f".venv-{python}" / "bin" / "python")


def pytest_command(python: str, tests: str, *options: str) -> list[str]:
    """Return how pytest is called."""
    return [python, "-m", "pytest", "-p", "no:cacheprovider", *options, tests]


def collect(python: str, tests: str) -> int:
    """Return how many tests one round has; SystemExit if it has none."""
    command = pytest_command(python, tests, "--collect-only", "-q")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    found = re.search(r"^(\d+) tests? collected", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise SystemExit(f"{python} collects no tests:\n{done.stdout}{done.stderr}")
    return int(found[1])


@contextlib.contextmanager
def busy_neighbours(setting: str) -> Iterator[None]:
    """Keep other processes computing while the body runs, if the setting says so."""
    code = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    count = BUSY_PROCESSES if setting == "busy" else 0
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process, and what its tests left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def commit() -> str:
    """Return what the working tree is: the commit, and a hash of what was changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, check=True)
        return done.stdout.decode(errors="replace")

    try:
        head, changes = git("rev-parse", "--short=12", "HEAD").strip(), git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "of no repository"
    return f"{head}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else head


def duration(seconds: float) -> str:
    """Return a time in words."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def read_report(path: Path) -> tuple[int, int, Counter[str]]:
    """Return how many tests passed and were skipped, and which failed how often."""
    passed = skipped = 0
    failed: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        name = plain(f"{case.get('classname')}::{case.get('name')}")
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed[name] += 1
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failed


def plain(name: str) -> str:
    """Return a test's name without the number of its round."""
    return ROUND.sub("", name).replace("[]", "")


class Soak:
    """The whole run."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make the directory of the logs."""
        self.options = options
        self.directory = Path(options.output).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.begun = time.monotonic()
        self.commit = commit()
        self.cells: list[Cell] = []
        self._paths: dict[str, str] = {}  # of the Pythons
        self._sizes: dict[str, int] = {}  # of a round of each
        self._runs: list[Run] = []
        self._lock = threading.RLock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def say(self, text: str) -> None:
        """Print a line with the time."""
        with self._lock:
            print(f"{time.monotonic() - self.begun:7.0f} s  {text}", flush=True)

    # ---- the record -----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        """Where it lies."""
        return self.directory / "record.json"

    def write_record(self) -> None:
        """Keep what has been run so far."""
        cells = [vars(cell) for cell in self.cells]
        text = json.dumps(
            {"commit": self.commit, "tests": self.options.tests, "cells": cells}, indent=1
        )
        new = self.record.with_suffix(".new")
        new.write_text(text + "\n")
        new.replace(self.record)

    def read_record(self) -> None:
        """Go on from there; SystemExit if it is of something else."""
        if not self.record.exists():
            return
        record: dict[str, Any] = json.loads(self.record.read_text())
        for name, own in ("commit", self.commit), ("tests", self.options.tests):
            if record[name] != own:
                raise SystemExit(
                    f"{self.record}: its {name} is {record[name]}, not {own}: it cannot be gone on "
                    "with; without --resume all begins anew"
                )
        done = {(each["python"], each["setting"]): each for each in record["cells"]}
        for cell in self.cells:
            values = done.pop((cell.python, cell.setting), {})
            for name, value in values.items():
                setattr(cell, name, Counter(value) if name == "failed" else value)
        for values in done.values():  # not asked for any more, but not to be forgotten
            self.cells.append(Cell(**{**values, "failed": Counter(values["failed"])}))

    # ---- processes ------------------------------------------------------------------------

    def stream(
        self, command: list[str], cpu: int | None, log: Path, line: Callable[[str], None]
    ) -> int | None:
        """Run a command; hand its lines on, keep them in a log; its status, None if it hung."""
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=None if cpu is None else functools.partial(os.sched_setaffinity, 0, {cpu}),
            start_new_session=True,
        )
        self._running.add(process)
        if self._stopped:  # before it was among those
            _kill(process)
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for text in process.stdout:
                lines.put(text)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            with log.open("w") as file:
                while (text := lines.get(timeout=SILENCE)) is not None:
                    file.write(text)
                    file.flush()
                    line(text.rstrip("\n"))
                return process.wait(timeout=SILENCE)
        except (queue.Empty, subprocess.TimeoutExpired):
            return None
        finally:
            self._running.discard(process)
            _kill(process)

    def stop(self) -> None:
        """End what runs, and begin nothing more."""
        self._stopped = True
        for process in list(self._running):
            _kill(process)

    def perform(self, run: Run, cpus: queue.SimpleQueue[int | None]) -> None:
        """Run some rounds in one process, on a CPU that is free, and count what happened."""
        if self._stopped:
            return
        cell = run.cell
        label = re.sub(r"[^\w.]+", "_", cell.python).strip("_")
        stem = f"{label}-{cell.setting}-{run.first:03}"
        report, log = self.directory / f"{stem}.xml", self.directory / f"{stem}.log"
        report.unlink(missing_ok=True)
        last = run.first + run.rounds - 1
        title = f"{cell.python} {cell.setting}, rounds {run.first} to {last}"
        told = run.begun = time.monotonic()
        last_test = "nothing"

        def line(text: str) -> None:
            nonlocal told, last_test
            if "::" in text:
                last_test = text.split(" ")[0]
            if result := RESULT.match(text):
                run.seen += 1
                if result[2] in ("FAILED", "ERROR"):
                    self.say(f"{title}: {result[2]} {result[1]}")
            if time.monotonic() - told > 30:
                told = time.monotonic()
                self.say(f"{title}: {run.seen:,} of {run.wanted:,} tests{self.left()}")

        options = ["-v", "--repeat", str(run.rounds), f"--junitxml={report}"]
        python = self._paths[cell.python]
        cpu = cpus.get()
        try:
            command = pytest_command(python, self.options.tests, *options)
            status = self.stream(command, cpu, log, line)
        finally:
            cpus.put(cpu)
        if self._stopped:
            return
        passed = skipped = 0
        failed: Counter[str] = Counter()
        with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
            passed, skipped, failed = read_report(report)
        ran = passed + skipped + failed.total()
        if status is None:
            failed[f"no output for {SILENCE} s; the last was {plain(last_test)}"] += 1
        elif status not in (0, 1) or (status == 1 and not failed):
            failed[f"pytest ended with status {status}; the last test was {plain(last_test)}"] += 1
        elif ran < run.wanted:  # a test that fails in its call and in its teardown counts twice
            failed[f"only {ran} of {run.wanted} tests ran"] += 1
        took = time.monotonic() - run.begun
        with self._lock:
            self._runs.remove(run)
            cell.rounds += run.rounds
            cell.passed += passed
            cell.skipped += skipped
            cell.failed += failed
            cell.seconds += took
            self.write_record()
            self.say(
                f"{title}: {passed:,} passed, {failed.total()} failed, {took:.0f} s, "
                f"{log.name}{self.left()}"
            )

    # ---- all of it ------------------------------------------------------------------------

    def cpus(self, setting: str) -> list[int | None]:
        """Return where the runs of a setting may be, at a time: None is anywhere."""
        return [*sorted(os.sched_getaffinity(0))] if setting == "pinned" else [None] * self.jobs

    @property
    def jobs(self) -> int:
        """How many runs there are at a time of the other settings."""
        jobs: int = self.options.jobs
        return jobs

    def left(self) -> str:
        """Return how long all that is left takes, at the speed of what was run so far."""
        with self._lock:
            now = time.monotonic()
            tests: Counter[str] = Counter()
            seconds: Counter[str] = Counter()
            left: Counter[str] = Counter()
            for cell in self.cells:
                tests[cell.setting] += cell.passed + cell.skipped + cell.failed.total()
                seconds[cell.setting] += cell.seconds  # type: ignore[assignment]
            for run in self._runs:
                left[run.cell.setting] += max(0, run.wanted - run.seen)
                if run.begun:
                    tests[run.cell.setting] += run.seen
                    seconds[run.cell.setting] += now - run.begun  # type: ignore[assignment]
        if tests.total() < 100:
            return ""
        mean = seconds.total() / tests.total()
        total = 0.0
        for setting, count in left.items():
            pace = seconds[setting] / tests[setting] if tests[setting] > 100 else mean
            total += count * pace / len(self.cpus(setting))
        return f"; {duration(total)} left" if total else ""

    def plan(self) -> None:
        """Find the Pythons, and list what is to be run."""
        for name in self.options.pythons:
            self._paths[name] = prepare(name)
            self._sizes[name] = collect(self._paths[name], self.options.tests)
            self.say(f"{name}: {self._sizes[name]} tests a round, {self.options.rounds} rounds")
        self.cells = [
            Cell(name, setting)
            for name in self.options.pythons
            for setting in self.options.settings
        ]
        wanted = list(self.cells)
        if self.options.resume:
            self.read_record()
        for cell in wanted:
            if cell.rounds:
                self.say(f"{cell.python} {cell.setting}: {cell.rounds} rounds were run before")
            for first in range(cell.rounds + 1, self.options.rounds + 1, self.options.per_process):
                rounds = min(self.options.per_process, self.options.rounds + 1 - first)
                run = Run(cell, first, rounds, rounds * self._sizes[cell.python])
                self._runs.append(run)

    def perform_all(self, setting: str, runs: Iterable[Run]) -> None:
        """Run what there is of a setting."""
        cpus: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        for cpu in self.cpus(setting):
            cpus.put(cpu)
        with busy_neighbours(setting), ThreadPoolExecutor(cpus.qsize()) as pool:
            try:
                for done in [pool.submit(self.perform, run, cpus) for run in runs]:
                    done.result()
            except BaseException:
                self.stop()
                raise

    def run(self) -> bool:
        """Run everything, one setting after the other; False if it was cut."""
        self.plan()
        try:
            for setting in self.options.settings:
                runs = [run for run in self._runs if run.cell.setting == setting]
                # a Python after the other would leave one CPU idle in the end
                self.perform_all(setting, sorted(runs, key=lambda run: run.first))
        except KeyboardInterrupt:
            return False
        return True


def table(cells: list[Cell]) -> str:
    """Return the table, and what failed."""
    head = ("Python", "setting", "rounds", "passed", "failed", "skipped", "seconds")
    rows = [
        (
            cell.python,
            cell.setting,
            f"{cell.rounds}",
            f"{cell.passed:,}",
            f"{cell.failed.total():,}",
            f"{cell.skipped:,}",
            f"{cell.seconds:.0f}",
        )
        for cell in cells
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        words = [
            word.ljust(width) if index < 2 else word.rjust(width)
            for index, (word, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(words))
    for cell in cells:
        for name, count in cell.failed.most_common():
            lines.append(f"FAILED {count} times, {cell.python} {cell.setting}: {name}")
    return "\n".join(lines)


def names(text: str) -> list[str]:
    """Split a list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50, help="of every test (50)")
    parser.add_argument("--pythons", type=names, default=["3.11", "3.13"], help="3.11,3.13")
    parser.add_argument("--settings", type=names, default=list(SETTINGS), help=",".join(SETTINGS))
    parser.add_argument("--per-process", type=int, default=5, help="rounds in one process (5)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, not pinned (1)")
    parser.add_argument("--resume", action="store_true", help="go on with the one that was cut")
    parser.add_argument("--tests", default="tests/faults", help="what to run (tests/faults)")
    parser.add_argument("--output", default=str(ROOT / "build" / "soak"), help="for the logs")
    options = parser.parse_args(argv)
    unknown = set(options.settings) - set(SETTINGS)
    if unknown or not options.settings or not options.pythons:
        parser.error(f"settings are {', '.join(SETTINGS)}; give at least one, and one Python")
    if min(options.rounds, options.per_process, options.jobs) < 1:
        parser.error("--rounds, --per-process and --jobs are at least 1")
    return options


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    soak = Soak(parse(argv))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    complete = soak.run()
    text = f"commit {soak.commit}\n\n{table(soak.cells)}"
    print(f"\n{text}\n\nlogs: {soak.directory}")
    (soak.directory / "summary.txt").write_text(text + "\n")
    if not complete:
        print("cut off; --resume goes on from here")
        return 130
    return 1 if "\nFAILED " in text else 0


if __name__ == "__main__":
    sys.exit(main())
