"""Runs every test of tests/faults many times in a row, on several Pythons, in several settings.

    python tools/soak.py [--rounds 50] [--pythons 3.11,3.13] [--settings free,pinned,busy] ...

Settings: `free`; `pinned`, the whole run on one CPU; `busy`, beside four processes that compute.
A Python is a version (its environment, .venv-VERSION, is made if it is missing) or the path of an
interpreter that has what the tests need.  Goes on after failures.  A run that crashed, hung or did
not run what it was asked to is a failure.  Logs are kept in build/soak.  Ends with a table and the
names of what failed; the status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

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
    seconds: float = 0.0


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


def _pin_to_one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


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
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def say(self, text: str) -> None:
        """Print a line with the time."""
        with self._lock:
            print(f"{time.monotonic() - self.begun:7.0f} s  {text}", flush=True)

    def stream(
        self, command: list[str], setting: str, log: Path, line: Callable[[str], None]
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
            preexec_fn=_pin_to_one_cpu if setting == "pinned" else None,
            start_new_session=True,
        )
        self._running.add(process)
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

    def run_cell(self, cell: Cell, python: str, tests_per_round: int) -> None:
        """Run all rounds of one Python in one setting."""
        begin = time.monotonic()
        with busy_neighbours(cell.setting):
            number = 0
            while cell.rounds < self.options.rounds and not self._stopped:
                rounds = min(self.options.per_process, self.options.rounds - cell.rounds)
                number += 1
                self.run_process(cell, python, rounds, rounds * tests_per_round, number)
                cell.rounds += rounds
        cell.seconds = time.monotonic() - begin

    def run_process(self, cell: Cell, python: str, rounds: int, wanted: int, number: int) -> None:
        """Run some rounds in one process."""
        label = re.sub(r"[^\w.]+", "_", cell.python).strip("_")
        stem = f"{label}-{cell.setting}-{number:02}"
        report, log = self.directory / f"{stem}.xml", self.directory / f"{stem}.log"
        report.unlink(missing_ok=True)
        title = f"{cell.python} {cell.setting}, rounds {cell.rounds + 1} to {cell.rounds + rounds}"
        seen = 0
        told = begin = time.monotonic()
        last = "nothing"

        def line(text: str) -> None:
            nonlocal seen, told, last
            if "::" in text:
                last = text.split(" ")[0]
            if RESULT.match(text):
                seen += 1
            if time.monotonic() - told > 30:
                told = time.monotonic()
                self.say(f"{title}: {seen:,} of {wanted:,} tests")

        options = ["-v", "--repeat", str(rounds), f"--junitxml={report}"]
        command = pytest_command(python, self.options.tests, *options)
        status = self.stream(command, cell.setting, log, line)
        passed = skipped = 0
        failed: Counter[str] = Counter()
        with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
            passed, skipped, failed = read_report(report)
        ran = passed + skipped + failed.total()
        if status is None:
            failed[f"no output for {SILENCE} s; the last was {plain(last)}"] += 1
        elif status not in (0, 1) or (status == 1 and not failed):
            failed[f"pytest ended with status {status}; the last test was {plain(last)}"] += 1
        elif ran < wanted:  # a test that fails in its call and in its teardown counts twice
            failed[f"only {ran} of {wanted} tests ran"] += 1
        cell.passed += passed
        cell.skipped += skipped
        cell.failed += failed
        took = time.monotonic() - begin
        self.say(f"{title}: {passed:,} passed, {failed.total()} failed, {took:.0f} s, {log.name}")

    def run(self) -> list[Cell]:
        """Run everything; several cells at once with --jobs."""
        work = []
        for name in self.options.pythons:
            python = prepare(name)
            tests_per_round = collect(python, self.options.tests)
            self.say(f"{name}: {tests_per_round} tests a round, {self.options.rounds} rounds")
            for setting in self.options.settings:
                work.append((Cell(name, setting), python, tests_per_round))
        with ThreadPoolExecutor(self.options.jobs) as pool:
            try:
                for done in [pool.submit(self.run_cell, *item) for item in work]:
                    done.result()
            except BaseException:
                self.stop()
                raise
        return [cell for cell, _, _ in work]


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
    parser.add_argument("--per-process", type=int, default=10, help="rounds in one process (10)")
    parser.add_argument("--jobs", type=int, default=1, help="pairs of both at a time (1)")
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
    text = table(soak.run())
    print(f"\n{text}\n\nlogs: {soak.directory}")
    (soak.directory / "summary.txt").write_text(text + "\n")
    return 1 if "\nFAILED " in text else 0


if __name__ == "__main__":
    sys.exit(main())
