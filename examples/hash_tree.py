#!/usr/bin/env python3
"""SHA-256 of every regular file below a directory, hashed in parallel.

    python examples/hash_tree.py DIR [-j N]

Prints what `find DIR -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum` prints, byte for
byte, so `sha256sum --check` reads it. Symbolic links and special files below DIR are left out.
What cannot be read is reported on stderr, the rest is hashed all the same, and the exit status
is 1. However large the tree, only a window of files is in memory as tasks.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from affinitypool import MAX_WORKERS, Future, ThreadPoolExecutor

if TYPE_CHECKING:
    from tqdm import tqdm

WINDOW = 1024
"""Files submitted and not yet printed, at most."""


class Progress:
    """Files and bytes done, as a bar on stderr if that is a terminal and tqdm is installed."""

    def __init__(self) -> None:
        """Nothing done yet."""
        self._bar = make_bar()
        self._files = 0

    def clear(self) -> None:
        """Makes room for a line; the next `count` draws the bar again."""
        if self._bar is not None:
            self._bar.clear()

    def count(self, size: int) -> None:
        """Counts a file of `size` bytes."""
        self._files += 1
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._files} files", refresh=False)
            self._bar.update(size)

    def close(self) -> None:
        """Leaves the final figures on the screen."""
        if self._bar is not None:
            self._bar.close()


def make_bar() -> tqdm[NoReturn] | None:
    """tqdm's bar, or None where it would be of no use."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(unit="B", unit_scale=True, unit_divisor=1024, dynamic_ncols=True)


def listing(directory: bytes) -> Iterator[bytes]:
    """Paths of what is in `directory`: files, and directories with a slash at the end.

    In byte order, which the slash makes the order of the paths of everything below; OSError if
    the directory cannot be read.
    """
    prefix = directory if directory.endswith(b"/") else directory + b"/"
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + b"/")
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
    names.sort()
    return (prefix + name for name in names)


def walk(top: bytes, on_error: Callable[[OSError, bytes], None]) -> Iterator[bytes]:
    """Regular files below `top` in the byte order of their paths.

    Holds one listing per level of the path that it is at, and does not recurse.
    """
    levels: list[Iterator[bytes]] = [iter([top if top.endswith(b"/") else top + b"/"])]
    while levels:
        path = next(levels[-1], None)
        if path is None:
            levels.pop()
        elif not path.endswith(b"/"):
            yield path
        else:
            try:
                levels.append(listing(path))
            except OSError as error:
                on_error(error, path)


def digest(path: bytes) -> tuple[str, int]:
    """Hexadecimal SHA-256 of a file, and its size in bytes; OSError if it cannot be read.

    The file is read in blocks.
    """
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def format_line(path: bytes, value: str) -> bytes:
    """A line as coreutils writes it: names with a backslash or line break are escaped, marked."""
    escaped = path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != path else b""
    return mark + value.encode() + b"  " + escaped + b"\n"


def hash_tree(top: bytes, jobs: int | None, out: BinaryIO, progress: Progress) -> bool:
    """Writes the line of every file below `top` to `out`; False if something could not be read."""
    complete = True
    pending: deque[tuple[bytes, Future[tuple[str, int]]]] = deque()

    def report(error: OSError, path: bytes) -> None:
        nonlocal complete
        complete = False
        progress.clear()
        name = os.fsdecode(path.rstrip(b"/") or path)
        print(f"hash_tree: {name}: {error.strerror or error}", file=sys.stderr)

    def print_oldest() -> None:
        path, task = pending.popleft()
        try:
            value, size = task.result()
        except OSError as error:
            report(error, path)
            return
        if out.isatty():
            progress.clear()
        out.write(format_line(path, value))
        progress.count(size)

    with ThreadPoolExecutor(jobs, cancel_on_error=True) as pool:
        for path in walk(top, report):
            if len(pending) == WINDOW:
                print_oldest()
            pending.append((path, pool.submit(digest, path)))
        while pending:
            print_oldest()
    out.flush()
    return complete


def positive(text: str) -> int:
    """A number of threads; ValueError if a pool cannot have so many."""
    number = int(text)
    if not 1 <= number <= MAX_WORKERS:
        raise ValueError(text)
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Print the SHA-256 of every file below DIR, as sha256sum does."
    )
    parser.add_argument("directory", metavar="DIR", type=os.fsencode)
    parser.add_argument(
        "-j", "--jobs", type=positive, metavar="N", help="threads (default: the pool's own choice)"
    )
    args = parser.parse_args(argv)
    progress = Progress()
    try:
        complete = hash_tree(args.directory, args.jobs, sys.stdout.buffer, progress)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        progress.close()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
