"""Builds the models and explores every case of each, several programs at a time.

    python tests/model/run.py [--deep] [--random RUNS] [--seconds S] [PROGRAM...]

Without options every case is explored to its bounds, which are printed.  --deep: one more switch
between threads.  --random: so many random executions of each case instead.  --seconds: at most, of
each case; one that is cut says NOT ALL.  Without a PROGRAM, what the programs make of their options
is tested as well (check_program.py).  Ends with the number of cases that passed and failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "build" / "model"
CHECK = Path(__file__).resolve().with_name("check_program.py")
TALLY = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)


def make(*words: str) -> str:
    """Run make in tests/model; its output, SystemExit if it fails."""
    command = ["make", "--no-print-directory", "-C", str(ROOT / "tests" / "model"), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def explore(program: str, command: list[str]) -> tuple[int, int]:
    """Run a program; how many of its cases passed and failed."""
    begun = time.monotonic()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    tallies = TALLY.findall(done.stdout)
    passed, failed = (int(number) for number in tallies[-1]) if tallies else (0, 1)
    if done.returncode and not failed:
        failed = 1
    text = TALLY.sub("", done.stdout).rstrip()
    print(f"---- {program}, {time.monotonic() - begun:.1f} s\n{text}", flush=True)
    if not tallies:
        print(f"{program} ended with status {done.returncode}", flush=True)
    return passed, failed


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deep", action="store_true", help="one more switch than the cases say")
    parser.add_argument("--random", type=int, help="random executions of each case")
    parser.add_argument("--seed", type=int, help="of the first of those (1)")
    parser.add_argument("--seconds", type=float, help="of each case, at most")
    parser.add_argument("programs", nargs="*", help="all by default")
    given = parser.parse_args()
    jobs = len(os.sched_getaffinity(0))
    make(f"-j{jobs}", "all")
    programs = given.programs or make("list").split()
    options = ["--deep"] if given.deep else []
    if given.random is not None:
        options += ["--random", str(given.random)]
    if given.seed is not None:
        options += ["--seed", str(given.seed)]
    if given.seconds is not None:
        options += ["--seconds", str(given.seconds)]
    commands = {program: [str(OUT / program), *options] for program in programs}
    if not given.programs:
        commands[CHECK.name] = [sys.executable, str(CHECK)]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda item: explore(*item), commands.items()))
    passed, failed = (sum(column) for column in zip(*results, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
