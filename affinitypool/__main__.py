"""`python -m affinitypool run SCRIPT [ARGS]`: run a script with the stdlib's pool replaced.

SCRIPT is a file; modules (`-m`) are not run.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from affinitypool import patch_stdlib


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and run the script as `__main__`."""
    parser = argparse.ArgumentParser(prog="python -m affinitypool", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        usage="%(prog)s SCRIPT [ARGS]",
        help="run a script with our pool in place of the stdlib's",
    )
    run.add_argument("script", metavar="SCRIPT", help="a file; modules (-m) are not run")
    rest = run.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    rest.required = False  # else it is named as missing, beside the script
    options = parser.parse_args(argv)
    if not os.path.exists(options.script):
        parser.error(f"no such script: {options.script}")
    sys.argv = [options.script, *options.arguments]
    if not sys.flags.safe_path:  # else the first entry is not where Python was started
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    patch_stdlib()
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
