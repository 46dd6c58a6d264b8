"""Gives the interpreters that the tests start the same replacement.

The tests start them in isolated mode, which ignores the environment, so the replacement travels in
the code that they are given: `treat` wraps the two functions that all of them pass through and puts
a prologue before the code. A child whose replacement fails ends with an error. A child that was
started in another way is counted in `untreated`, so that no test passes on the wrong class.

Everything that the executor's module registers to run at exit is registered before what the script
itself registers.
"""

from __future__ import annotations

import faulthandler
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cpython_suite.replacement import Replacement
from cpython_suite.suite import Suite

HERE = str(Path(__file__).parent.parent)
MARK = "cpython_suite.children"
PROBE = ["-E", "-c", "import sys; sys.exit(0)"]  # script_helper asks whether -E works at all

untreated: list[list[str]] = []


def treat(replacement: Replacement, suite: Suite, limit: float) -> None:
    """From now on, start child interpreters with `replacement` in place.

    A child that still runs after `limit` seconds writes the stacks of its threads to stderr and
    ends, which fails the test that waits for it.
    """
    prologue = _prologue(replacement, suite, limit)
    _wrap(importlib.import_module("test.support.script_helper"), "run_python_until_end", prologue)
    _wrap(importlib.import_module("multiprocessing.util"), "spawnv_passfds", prologue)


def watch() -> None:
    """From now on, note in `untreated` every interpreter that is started without the prologue."""
    sys.addaudithook(_audit)


def enter(replacement: dict[str, Any], suite: dict[str, Any], limit: float) -> None:
    """What the prologue calls in the child."""
    faulthandler.dump_traceback_later(limit, exit=True)
    Replacement(**replacement).install()
    Suite(**suite).prepare()


def _prologue(replacement: Replacement, suite: Suite, limit: float) -> str:
    return (
        f"import sys; sys.path.append({HERE!r}); import {MARK}; "
        f"{MARK}.enter({asdict(replacement)!r}, {asdict(suite)!r}, {limit!r})\n"
    )


def _wrap(module: Any, name: str, prologue: str) -> None:
    """Replace a function so that the word after a `-c` in its arguments starts with `prologue`."""
    function: Callable[..., Any] = getattr(module, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if name == "spawnv_passfds":  # (path, argv, descriptors)
            args = (args[0], _with_prologue(args[1], prologue), *args[2:])
        else:
            args = tuple(_with_prologue(args, prologue))
        return function(*args, **kwargs)

    setattr(module, name, wrapper)


def _with_prologue(argv: Sequence[Any], prologue: str) -> list[Any]:
    words = list(argv)
    if "-c" in words:
        code = words.index("-c") + 1
        if "resource_tracker" not in words[code]:  # runs no tasks
            words[code] = prologue + words[code]
    return words


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or not isinstance(args[1], (list, tuple)):
        return
    argv = [str(word) for word in args[1]]
    if argv[0] == sys.executable and argv[1:] != PROBE and not any(MARK in word for word in argv):
        untreated.append(argv)
