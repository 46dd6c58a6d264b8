"""`python -m affinitypool run SCRIPT [ARGS]`: run a script with the stdlib's pool replaced.

SCRIPT is a file; modules (`-m`) are not run.
"""

from __future__ import annotations

import argparse
import builtins
import io
import os
import pkgutil
import runpy
import sys
import types

from affinitypool import patch_stdlib


def _run(path: str) -> None:
    """Run the script as the module `__main__`, which is there as long as its tasks are."""
    if path.endswith(".pyc") or pkgutil.get_importer(path) is not None:
        # an archive or a folder too; our own module is `__main__` again when it has ended
        runpy.run_path(path, run_name="__main__")
        return
    with io.open_code(os.path.abspath(path)) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __cached__=None, __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, vars(module))


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
    _run(options.script)


if __name__ == "__main__":
    main()
