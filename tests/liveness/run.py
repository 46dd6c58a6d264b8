"""Verifies the models of this folder with spin, and that spin finds what is broken on purpose.

    python tests/liveness/run.py [--deep] [--only WORD] [--jobs N]

Each case is a model in one configuration. `safe` means no failed assertion and no invalid end
state; the other properties are the model's LTL formulas, under weak fairness. A control is a model
with one step left out or weakened (a BREAK_ macro): a property of it has to fail. A spared one
(SPARED_) has to hold, and shows what is not needed. --deep runs the larger cases too. Builds under
build/liveness, where a failed case leaves its trail. Ends with a table and the plain closing line;
the status is 1 if a property failed, a search was cut, or a control lived.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
OUT = HERE.parent.parent / "build" / "liveness"
MEGABYTES = 2000  # that one search may take; deep ones have their part of what is free
DEEP_MEGABYTES = max(
    MEGABYTES,
    (os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20)
    * 3
    // 4
    // (os.cpu_count() or 1),
)
LIMIT = 90  # seconds of CPU of one search; deep ones have ten times that
DEPTH = 1_000_000

# What idle.inc says of them. A model sets some itself.
DEFAULTS = {"W": 2, "S": 1, "T": 2, "PUSHERS": 1, "BATCH": 1, "SPIN": 0, "MAXS": 1, "STALE": 0}
FREE = {
    "park": {},
    "lookout": {},
    "transfer": {"SPAWN": 0},
    "shutdown": {"RINGS": 0, "CLAIM": 1, "SPAWN": 0, "LEAVE": 0},
}
GOAL = {"park": "runs", "lookout": "runs", "transfer": "runs", "shutdown": "ends"}


@dataclass(frozen=True)
class Case:
    """A model, what differs from the defaults, and the properties to look at, in order."""

    model: str
    settings: str
    properties: tuple[str, ...]
    deep: bool = False
    broken: str = ""
    needed: bool = True  # whether what is broken has to be found

    def macros(self) -> dict[str, int]:
        """All that spin is told."""
        macros = DEFAULTS | FREE[self.model]
        for word in self.settings.split():
            name, value = word.split("=")
            macros[name] = int(value)
        return macros

    def describe(self) -> str:
        """The configuration in a few words."""
        m = self.macros()
        words = [f"W{m['W']} P{m['PUSHERS']} T{m['T']}", "spin" if m["SPIN"] else "no-spin"]
        words += ["batch"] if m["BATCH"] > 1 else []
        words += ["shards2"] if m["S"] > 1 else []
        words += ["rings"] if m.get("RINGS") and m["W"] > 1 else []
        words += [n.lower() for n in ("SPAWN", "LEAVE") if m.get(n)]
        words += [f"{n.lower()}{m[n]}" for n in ("STALE", "MAXS") if m[n] > (n == "MAXS")]
        return " ".join(words)

    def folder(self) -> Path:
        """Where it is built."""
        broken = f" {'broken' if self.needed else 'spared'} {self.broken}" if self.broken else ""
        return OUT / re.sub(r"\W+", "-", f"{self.model} {self.settings}{broken}")


def case(model: str, settings: str, *more: str, deep: bool = False) -> Case:
    """A case that must hold: `safe`, the model's own property, and `more`."""
    return Case(model, settings, ("safe", GOAL[model], *more), deep)


def deep(model: str, settings: str, *more: str) -> Case:
    """The same, for --deep."""
    return case(model, settings, *more, deep=True)


def control(broken: str, model: str, settings: str, goal: str = "") -> Case:
    """A case whose property must fail."""
    return Case(model, settings, (goal or GOAL[model],), broken=broken)


def spared(broken: str, model: str, settings: str) -> Case:
    """A model with a step left out that is not needed for what is verified, which must hold."""
    return Case(model, settings, (GOAL[model],), broken=broken, needed=False)


CASES = [
    case("park", "W=1 T=2", "rests"),
    case("park", "W=1 T=2 PUSHERS=2 SPIN=1", "rests"),
    case("park", "T=1 STALE=1 SPIN=1", "rests"),
    case("park", "SPIN=1"),
    case("park", "PUSHERS=2"),
    case("park", "T=1 S=2 SPIN=1", "rests"),
    case("park", "W=3 T=1"),
    case("lookout", "SPIN=1"),
    case("lookout", "BATCH=2", "rests"),
    case("transfer", "T=3 BATCH=3"),
    case("transfer", "T=2 SPAWN=1", "rests"),
    case("transfer", "T=2 SPAWN=1 SPIN=1"),
    case("shutdown", "W=1 T=1 SPIN=1"),
    case("shutdown", "W=1 T=2 PUSHERS=2"),
    case("shutdown", "T=1"),
    deep("park", "T=1 STALE=1", "rests"),
    deep("park", "SPIN=1 STALE=1", "rests"),
    deep("park", "PUSHERS=2 SPIN=1", "rests"),
    deep("park", "PUSHERS=2 S=2"),
    deep("park", "PUSHERS=2 S=2 SPIN=1"),
    deep("park", "W=3 T=1 SPIN=1"),
    deep("park", "W=3 T=1 SPIN=1 MAXS=2"),
    deep("lookout", "PUSHERS=2 SPIN=1", "rests"),
    deep("lookout", "W=3 T=2 BATCH=2"),
    deep("lookout", "W=3 T=3 BATCH=3"),
    deep("transfer", "T=3 BATCH=3 SPIN=1", "rests"),
    deep("transfer", "T=3 BATCH=2 SPAWN=1 SPIN=1", "rests"),
    deep("shutdown", "T=1 SPIN=1"),
    deep("shutdown", "T=1 LEAVE=1"),
    deep("shutdown", "T=2 BATCH=2 RINGS=1 CLAIM=2"),
    deep("shutdown", "PUSHERS=2 T=2"),
    deep("shutdown", "PUSHERS=2 S=2 T=2"),
    # what `safe` has to see: a task run twice, a thread that never goes on
    control("CLAIM", "park", "T=1", "safe"),
    control("CLOSE_WAITS", "shutdown", "T=1", "safe"),
    # b: the look after enlisting; backlog.h's c: the second look after the mark was cleared
    control("NO_RELOOK", "park", "T=1"),
    control("UNMARK", "park", "T=2"),
    control("RESERVED_EMPTY", "park", "T=1"),
    # ii: the relay of the last searcher
    control("NO_RELAY", "lookout", "T=2 SPIN=1"),
    control("RESERVED_RELAY", "lookout", "T=2 SPIN=1"),
    # 3, 4, L3
    control("NO_LOOKOUT", "lookout", "T=2"),
    control("LOOKOUT_NO_LOOK", "lookout", "T=2"),
    spared("LOOKOUT_NO_LOOK", "lookout", "T=2"),
    control("WAKE_ALWAYS", "park", "T=1", "rests"),
    control("WAKE_UNCOUNTED", "park", "T=2"),
    # 5
    control("TOKEN", "park", "T=1"),
    # what is not seq_cst but would have to be
    control("TAIL_BUFFERED", "park", "T=1"),
    control("MARK_BUFFERED", "park", "T=1"),
    control("SPAWN_BUFFERED", "transfer", "T=2 SPAWN=1"),
    # after a claim or a steal
    control("TRANSFER", "transfer", "T=3 BATCH=3"),
    # the end
    control("END_ENLIST", "shutdown", "T=1"),
    control("END_CLOSE", "shutdown", "W=1 T=1"),
    control("END_LEAVE", "shutdown", "T=1 LEAVE=1"),
    control("END_NO_LOOK", "shutdown", "T=1"),
    control("CLOSE_FIRST", "shutdown", "W=1 T=1"),
]


class Search(NamedTuple):
    """What pan says of one property."""

    states: int
    depth: int
    seconds: float
    failure: str  # "": it holds
    complete: bool


class Failed(Exception):
    """A step that should have worked did not."""


def run(command: list[str], folder: Path, log: str, limit: int) -> tuple[str, float]:
    """Runs a command; what it printed, and the processor time it took."""
    path = folder / log
    with path.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (limit, limit + 5))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    text = path.read_text(errors="replace")
    if process.returncode == -signal.SIGXCPU:
        raise Failed(f"{command[0]}: more than {limit} s of CPU, see {path}")
    if process.returncode != 0 and "pan:1:" not in text:
        raise Failed(f"{command[0]} failed, see {path}: {text[-300:]}")
    return text, used.ru_utime + used.ru_stime


def number(pattern: str, text: str) -> int:
    """The number that a line of pan's begins or ends with."""
    found = re.search(pattern, text)
    if not found:
        raise Failed("pan printed no result")
    return int(float(found.group(1)))


def search(which: Case, name: str) -> tuple[Search, float]:
    """Looks at one property; also the time that building took."""
    folder, macros = which.folder(), which.macros()
    flags = [f"-D{n}={v}" for n, v in macros.items()]
    flags += [f"-D{'BREAK' if which.needed else 'SPARED'}_{which.broken}"] if which.broken else []
    safe = name == "safe"
    built = 0.0
    if not (folder / "pan.c").exists():
        model = str(HERE / f"{which.model}.pml")
        built += run(["spin", "-a", *flags, model], folder, "spin", 60)[1]
    program = folder / ("safe" if safe else "live")
    if not program.exists():
        kind = ["-DSAFETY", "-DNOCLAIM"] if safe else ["-DNFAIR=3"]
        large = which.deep or not (safe or which.broken or macros["W"] == 1)
        optimise = "-O1" if large else "-O0"  # which of the two takes longer
        kind += ["-DCOLLAPSE"] if which.deep else []  # slower, but they fit
        command = [
            "gcc",
            optimise,
            "-w",
            f"-DMEMLIM={DEEP_MEGABYTES if which.deep else MEGABYTES}",
            *kind,
        ]
        built += run([*command, "-o", program.name, "pan.c"], folder, f"gcc-{name}", 120)[1]
    property_flags = [] if safe else ["-a", "-f", "-N", name]
    limit = LIMIT * (10 if which.deep else 1)
    command = [f"./{program.name}", f"-m{DEPTH}", *property_flags]
    text, seconds = run(command, folder, f"pan-{name}", limit)
    failure = re.search(r"pan:1: (.*?)(?: \(at depth.*)?$", text, re.MULTILINE)
    result = Search(
        number(r"(\d\S*) states, stored", text),
        number(r"depth reached (\d+)", text),
        seconds,
        failure.group(1).strip() if failure else "",
        "Search not completed" not in text and "max search depth too small" not in text,
    )
    return result, built


@dataclass
class Outcome:
    """The rows of a case, and whether each is as it should be."""

    rows: list[tuple[str, ...]]
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


def shown(failure: str) -> str:
    """A failure of pan's in the words of the table."""
    if failure.startswith("assertion violated"):
        return "assertion " + failure.removeprefix("assertion violated").strip()[:40]
    return failure


def examine(which: Case) -> Outcome:
    """Runs all of a case."""
    folder = which.folder()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcome = Outcome([])
    title = f"{which.model} {which.broken}".strip()
    for name in which.properties:
        try:
            found, built = search(which, name)
        except Failed as error:
            outcome.failed += 1
            outcome.rows.append((title, which.describe(), name, "", "", "", f"FAILED: {error}"))
            return outcome
        outcome.seconds += found.seconds + built
        if which.broken and which.needed:
            good = bool(found.failure)
            result = f"caught: {shown(found.failure)}" if good else "SURVIVED"
        else:
            good = not found.failure and found.complete
            if good:
                result = "holds, spared" if which.broken else "holds"
            elif found.failure:
                result = f"FAILED: {shown(found.failure)}; cd {folder}, {name} -r -n"
            else:
                result = "FAILED: search cut, for want of memory or depth"
        outcome.passed += good
        outcome.failed += not good
        numbers = (f"{found.states}", f"{found.depth}", f"{found.seconds:.1f}")
        outcome.rows.append((title, which.describe(), name, *numbers, result))
    return outcome


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--deep", action="store_true", help="the larger cases, too")
    parser.add_argument("--only", default="", help="cases whose title contains the word")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    missing = [tool for tool in ("spin", "gcc") if not shutil.which(tool)]
    if missing:
        print(f"NOT RUN: {' and '.join(missing)} not installed (Debian: apt-get install spin gcc)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    chosen = [
        c
        for c in CASES
        if (options.deep or not c.deep)
        and options.only in f"{c.model} {c.describe()} {'control ' + c.broken if c.broken else ''}"
    ]
    start = time.monotonic()
    head = ("model", "configuration", "property", "states", "depth", "cpu s", "result")
    line = "{:<24} {:<32} {:<8} {:>10} {:>7} {:>7}  {}"
    print(line.format(*head), flush=True)
    passed = failed = 0
    seconds = 0.0
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        for outcome in pool.map(examine, chosen):
            for row in outcome.rows:
                print(line.format(*row), flush=True)
            passed += outcome.passed
            failed += outcome.failed
            seconds += outcome.seconds
    elapsed = time.monotonic() - start
    print(f"{seconds:.0f} s of CPU with compiling, {elapsed:.0f} s in all")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
