"""Builds the models and explores every case of each, several programs at a time.

    python tests/model/run.py [--deep] [--random RUNS] [--seconds S] [PROGRAM...]

Without options every case is explored to its bounds, which are printed.  --deep: one more switch
between threads.  --random: so many random executions of each case instead.  --seconds: at most, of
each case; one that is cut says NOT ALL.  Ends with the number of cases that passed and failed.
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
TALLY = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)


def make(*words: str) -> str:
    """Run make in tests/model; its output, SystemExit if it fails."""
    command = ["make", "--no-print-directory", "-C", str(ROOT / "tests" / "model"), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def explore(program: str, options: list[str]) -> tuple[int, int]:
    """Run a program; how many of its cases passed and failed."""
    begun = time.monotonic()
    done = subprocess.run(
        [OUT / program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    tally = TALLY.search(done.stdout)
    passed, failed = (int(tally[1]), int(tally[2])) if tally else (0, 1)
    if done.returncode and not failed:
        failed = 1
    text = TALLY.sub("", done.stdout).rstrip()
    print(f"---- {program}, {time.monotonic() - begun:.1f} s\n{text}", flush=True)
    if not tally:
        print(f"{program} ended with status {done.returncode}", flush=True)
    return passed, failed


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deep", action="store_true", help="one more switch than the cases say")
    parser.add_argument("--random", type=int, help="random executions of each case")
    parser.add_argument("--seed", type=int, default=1, help="of the first of those (1)")
    parser.add_argument("--seconds", type=float, help="of each case, at most")
    parser.add_argument("programs", nargs="*", help="all by default")
    given = parser.parse_args()
    jobs = len(os.sched_getaffinity(0))
    make(f"-j{jobs}", "all")
    programs = given.programs or make("list").split()
    options = ["--deep"] if given.deep else []
    if given.random:
        options += ["--random", str(given.random), "--seed", str(given.seed)]
    if given.seconds:
        options += ["--seconds", str(given.seconds)]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda program: explore(program, options), programs))
    passed, failed = (sum(column) for column in zip(*results, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
