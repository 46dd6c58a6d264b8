"""Where the interpreter's own `test.test_concurrent_futures` is.

Interpreters have it in one of three ways: as a package (3.12.2 and later), as a single file, or not
at all because whoever packaged them left it out. Debian keeps the single file of its 3.11 in a
package of its own; any 3.11 can run that file, with its own `test.support`.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NAME = "test.test_concurrent_futures"
DEBIAN_PACKAGE = "libpython3.11-testsuite"


class SuiteMissing(Exception):
    """This interpreter's test-suite cannot be run here; the text says why."""


@dataclass(frozen=True)
class Suite:
    """A test-suite that can be imported as `NAME`.

    `graft` is a directory to add to the search path of the package `test` before that works, or
    None. `modules` are the names below `NAME` that hold tests; a single file has none.
    """

    graft: str | None
    modules: tuple[str, ...]

    def prepare(self) -> None:
        """Make `NAME` importable in this process."""
        if self.graft is not None:
            package = importlib.import_module("test")
            if self.graft not in package.__path__:
                package.__path__.append(self.graft)


def locate() -> Suite:
    """Find the suite of the running interpreter; raise SuiteMissing if there is none."""
    origin = _origin()
    if origin is not None:
        if origin.name == "__init__.py":
            return Suite(None, tuple(sorted(p.stem for p in origin.parent.glob("test_*.py"))))
        return Suite(None, ())
    if importlib.util.find_spec("test") is None or importlib.util.find_spec("test.support") is None:
        raise SuiteMissing("this Python has no test.support")
    if sys.version_info[:2] != (3, 11):
        raise SuiteMissing(f"this Python has no {NAME}")
    directory = _debian_directory()
    if directory is None:
        raise SuiteMissing(
            f"this Python has no {NAME}, and Debian's {DEBIAN_PACKAGE} is not installed"
        )
    return Suite(str(directory), ())


def _origin() -> Path | None:
    try:
        spec = importlib.util.find_spec(NAME)
    except ModuleNotFoundError:  # not even a package `test`
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _debian_directory() -> Path | None:
    """The directory of Debian's single file, asked of the package manager."""
    query = shutil.which("dpkg-query")
    if query is None:
        return None
    listing = subprocess.run(
        [query, "-L", DEBIAN_PACKAGE], capture_output=True, text=True, check=False
    )
    for line in listing.stdout.splitlines():
        path = Path(line)
        if path.parts[-2:] == ("test", "test_concurrent_futures.py") and path.is_file():
            return path.parent
    return None
