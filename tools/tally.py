"""Counts passed, failed and skipped tests from the closing lines in logs.

    python tools/tally.py [--each] LOG...

Understood are pytest's closing line and a plain `N passed, N failed[, N skipped]`, with a word and
a colon before it or not. Prints the total in that plain form; with --each, three numbers per log.
An error of pytest counts as a failure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ANSI = re.compile(r"\x1b\[[0-9;]*m")
PLAIN = re.compile(r"(?:[\w./-]+:\s+)?\d+ passed, \d+ failed(?:, \d+ skipped)?")
PYTEST = re.compile(r"(?:=+ )?(?:\d+ [a-z]+, )*\d+ [a-z]+ in [\d.]+s(?: \([\d:, days]+\))?(?: =+)?")
COUNT = re.compile(r"(\d+) (passed|xfailed|failed|xpassed|errors?|skipped)\b")
KIND = {"passed": 0, "xfailed": 0, "failed": 1, "xpassed": 1, "error": 1, "errors": 1, "skipped": 2}


class Tally(NamedTuple):
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Tally) -> Tally:
        """The sum."""
        return Tally(*(a + b for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        """The plain closing line."""
        tail = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{tail}"


def count(lines: Iterable[str]) -> Tally:
    """Adds up every closing line."""
    total = Tally()
    for line in lines:
        text = ANSI.sub("", line).strip()
        if PLAIN.fullmatch(text) or PYTEST.fullmatch(text):
            counts = [0, 0, 0]
            for number, kind in COUNT.findall(text):
                counts[KIND[kind]] += int(number)
            total = total.plus(Tally(*counts))
    return total


def main() -> int:
    """Entry point; a log that is not there counts nothing."""
    arguments = sys.argv[1:]
    each = "--each" in arguments
    total = Tally()
    for name in arguments:
        path = Path(name)
        tally = (
            count(path.read_text(encoding="utf-8", errors="replace").splitlines())
            if path.is_file()
            else Tally()
        )
        total = total.plus(tally)
        if each and name != "--each":
            print(*tally)
    if not each:
        print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
