"""The record of a run, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.sides import CEILING, STDLIB
from bench.summary import Summary, ratios, summarize

FORMAT = 1
"""Version of the JSON layout."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload with one number of workers."""

    name: str
    summary: str
    workers: int
    tasks: int
    unit: str
    """"s" or "B", per task."""
    samples: Mapping[str, list[float]]
    """Per side, one sample per repetition; those at the same index were taken together."""

    @property
    def label(self) -> str:
        """Name and workers, for people."""
        return f"{self.name}, {self.workers} worker{'s' if self.workers != 1 else ''}"

    def of(self, side: str) -> Summary:
        """Median and quartiles of a side."""
        return summarize(self.samples[side])

    def ratio(self, ours: str) -> Summary:
        """How many times less our side takes than the stdlib; below 1 is a loss."""
        return summarize(ratios(self.samples[STDLIB], self.samples[ours]))

    def of_ceiling(self, ours: str) -> Summary | None:
        """The fraction of the bare threads' speed that our side reaches, if that was measured."""
        if CEILING not in self.samples:
            return None
        return summarize(ratios(self.samples[CEILING], self.samples[ours]))


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run."""

    ours: str
    """Name of our side."""
    machine: Mapping[str, str]
    """What it ran on, in the order in which to print it."""
    repetitions: int
    short: bool
    """Made with --short: shows that everything works, and no more."""
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """The JSON text, with the summaries beside the samples."""
        document: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        for row, shown in zip(self.rows, document["rows"], strict=True):
            shown["ratio"] = asdict(row.ratio(self.ours))
            shown["sides"] = {side: asdict(row.of(side)) for side in row.samples}
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Reads `to_json`'s text; ValueError if it is something else."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}, want {FORMAT}")
            fields = ("name", "summary", "workers", "tasks", "unit", "samples")
            rows = tuple(Row(**{field: row[field] for field in fields}) for row in document["rows"])
            return cls(
                document["ours"],
                document["machine"],
                document["repetitions"],
                document["short"],
                rows,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the results of a benchmark run: {error!r}") from error


def load(path: Path) -> Results:
    """Reads a results file; OSError or ValueError."""
    return Results.from_json(path.read_text(encoding="utf-8"))
