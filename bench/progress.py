"""What a run shows while it lasts: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm


class Progress:
    """Counts samples. It starts no thread, which would disturb what is measured."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        """Shows on `stream`, by default stderr, how many of `total` samples are taken."""
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._done = 0
        self._bar = make_bar(total, self._stream)

    def begin(self, label: str) -> None:
        """Says what is measured now."""
        if self._bar is not None:
            self._bar.set_description(label)
        else:
            self._print(f"[{self._done / self._total:4.0%}] {label} ...")

    def step(self) -> None:
        """Counts one sample."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()

    def end(self, line: str) -> None:
        """Leaves a line about what was measured."""
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            self._print(f"       {line}")

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def make_bar(total: int, stream: TextIO) -> tqdm[NoReturn] | None:
    """A bar if `stream` is a terminal and tqdm is installed."""
    if not stream.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    tqdm.monitor_interval = 0
    return tqdm(total=total, file=stream, unit="sample", leave=False, dynamic_ncols=True)
