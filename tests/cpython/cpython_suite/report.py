"""What a person reads about a run."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Sequence

from cpython_suite.runner import Outcome

TAIL = 60  # lines shown of a failed test


def python() -> str:
    """The running interpreter, as in `CPython 3.13.5t`."""
    suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{platform.python_implementation()} {platform.python_version()}{suffix}"


def progress(index: int, total: int, outcome: Outcome) -> str:
    """One line for a test that has ended."""
    reason = f": {outcome.reason}" if outcome.reason else ""
    count = f"[{index:{len(str(total))}}/{total}]"
    return f"{count} {outcome.seconds:5.1f} s  {outcome.status:9}  {outcome.name}{reason}"


def failure(outcome: Outcome) -> str:
    """The name of a failed test and the end of its output."""
    lines = outcome.output.splitlines()
    cut = f"  ... {len(lines) - TAIL} lines left out\n" if len(lines) > TAIL else ""
    tail = "\n".join(f"  {line}" for line in lines[-TAIL:])
    return f"{outcome.status}: {outcome.name}: {outcome.reason}\n{cut}{tail}\n"


def summary(outcomes: Sequence[Outcome], executor: str) -> str:
    """The line that counts: how many of how many, and where. Tests that the suite itself skips on
    this interpreter are named."""
    good = sum(outcome.good for outcome in outcomes)
    text = f"{good} of {len(outcomes)} passed on {python()} with {executor}"
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    if skipped:
        names = "; ".join(f"{outcome.name}: {outcome.reason}" for outcome in skipped)
        text += f" (of them {len(skipped)} skipped by the suite itself: {names})"
    return text
