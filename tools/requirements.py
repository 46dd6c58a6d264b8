"""Prints what pip needs for parts of the project, as pyproject.toml says.

    python tools/requirements.py PART...

A part is `build` (the build system and the run-time dependencies) or the name of an extra.
The Makefile installs these by themselves so that the build can do without isolation, which
some interpreters need, and so that a changed source does not fetch anything.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(project: dict[str, Any], part: str) -> Iterator[str]:
    """The requirements of a part; an extra that names the project's own extras is followed."""
    if part == "build":
        yield from project["build-system"]["requires"]
        yield from project["project"].get("dependencies", ())
        return
    own = re.compile(re.escape(project["project"]["name"]) + r"\s*\[([^\]]*)\]\s*")
    for requirement in project["project"].get("optional-dependencies", {})[part]:
        if match := own.fullmatch(requirement):
            for inner in match[1].split(","):
                yield from requirements(project, inner.strip())
        else:
            yield requirement


def main() -> int:
    """Entry point."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    for part in sys.argv[1:]:
        try:
            print("\n".join(requirements(project, part)))
        except KeyError as missing:
            print(f"pyproject.toml has no part {missing}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
