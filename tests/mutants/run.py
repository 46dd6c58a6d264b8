"""Makes the mutants of the core and the bridge, and shows which model notices each.

    python tests/mutants/run.py [--list] [NAME...]

A mutant is noticed if a case that passes on the real code fails.  One that survives, one whose text
is not in the code any more, and one that does not compile are failures.  Prints a table: the
mutant, the case that noticed it, what it said, and the time; then what has no mutant, and why.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import bridge
import catalogue
from mutant import Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "build" / "mutants"
REAL = ROOT / "build" / "model"  # the programs of the real code
MUTANTS = [*catalogue.MUTANTS, *bridge.MUTANTS]
LIMIT = 240  # seconds that one program may take
FAILED = re.compile(r"^(.*?): FAILED.*?: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    noticed: bool
    by: str  # the program and the case; or why there is no result
    seconds: float


def mutate(mutant: Mutant) -> Path:
    """Return a directory with a changed copy of csrc; ValueError if the text is not there once."""
    directory = OUT / mutant.name
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(ROOT / "csrc", directory / "csrc")
    path = directory / "csrc" / mutant.file
    text = path.read_text()
    for old, new, occurrence in [
        (mutant.old, mutant.new, mutant.occurrence),
        *((old, new, 0) for old, new in mutant.more),
    ]:
        pieces = text.split(old)
        if len(pieces) <= occurrence or (not occurrence and len(pieces) != 2):
            raise ValueError(f"{old!r} is {len(pieces) - 1} times in csrc/{mutant.file}")
        at = occurrence or 1
        text = old.join(pieces[:at]) + new + old.join(pieces[at:])
    path.write_text(text)
    if (
        path.suffix == ".c"
    ):  # the rest is as in the real code, and built; no link: make may write it
        for built in REAL.glob("*-*.o"):
            if not built.stem.endswith(f"-{path.stem}"):
                shutil.copy2(built, directory)
    return directory


def build(directory: Path, program: str) -> Path:
    """Return the program, of the mutated code; ValueError if it does not compile."""
    target = directory / program
    command = ["make", "--no-print-directory", "-C", str(ROOT / "tests" / "model")]
    command += [f"CSRC={directory / 'csrc'}", f"OUT={directory}", "WERROR=", str(target)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise ValueError(f"does not compile: {done.stdout.strip()[-600:]}")
    return target


def try_out(mutant: Mutant) -> Result:
    """Make a mutant, and run what should notice it."""
    begun = time.monotonic()

    def result(noticed: bool, by: str) -> Result:
        return Result(mutant, noticed, by, time.monotonic() - begun)

    try:
        directory = mutate(mutant)
        for program, cases in mutant.seen_by:
            command = [str(build(directory, program)), "--quick", *([cases] if cases else [])]
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT
                )
            except subprocess.TimeoutExpired:
                return result(False, f"{program} took more than {LIMIT} s")
            found = FAILED.search(done.stdout)
            if done.returncode == 1 and found:
                shutil.rmtree(directory)
                return result(True, f"{found[1]}: {found[2][:70]}")
            if done.returncode:
                return result(False, f"{program} ended with status {done.returncode}")
    except ValueError as error:
        return result(False, str(error))
    return result(False, f"SURVIVES, see {directory}")


def show(result: Result) -> None:
    """Print a line of the table."""
    mark = "" if result.noticed else "NOT NOTICED: "
    print(f"{result.mutant.name:36} {result.seconds:6.1f} s  {mark}{result.by}", flush=True)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the mutants")
    parser.add_argument("names", nargs="*", help="all by default")
    given = parser.parse_args()
    unknown = set(given.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if given.list:
        print("\n".join(mutant.name for mutant in MUTANTS))
        return 0
    wanted = [m for m in MUTANTS if not given.names or m.name in given.names]
    jobs = len(os.sched_getaffinity(0))
    # what they share with the real code is made once, before they are at it side by side
    programs = {str(REAL / program) for mutant in wanted for program, _ in mutant.seen_by}
    model = str(ROOT / "tests" / "model")
    subprocess.run(["make", "-s", f"-j{jobs}", "-C", model, *sorted(programs)], check=True)
    with ThreadPoolExecutor(jobs) as pool:
        results = []
        for result in pool.map(try_out, wanted):
            show(result)
            results.append(result)
    noticed = sum(result.noticed for result in results)
    if not given.names:
        for kind, names in (
            ("no execution differs", catalogue.EQUIVALENT | bridge.EQUIVALENT),
            ("no code yet", catalogue.COMING),
        ):
            print(f"\n{kind}:")
            for name, reason in names.items():
                print(f"    {name}: {reason}")
    print(f"\n{noticed} passed, {len(results) - noticed} failed")
    return 0 if noticed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
