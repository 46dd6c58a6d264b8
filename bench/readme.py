"""Putting the generated table into documents, between two markers."""

from __future__ import annotations

import os
from pathlib import Path

from bench.results import Results, load
from bench.sides import OUR_MODULE
from bench.table import render
from bench.workloads import WORKLOADS

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
PLOT = ROOT / "docs" / "benchmarks.svg"


def embed(text: str, table: str) -> str:
    """`text` with what stands between the markers replaced; ValueError without them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"want {BEGIN} and then {END}, once each")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n{table.strip()}\n{END}{tail}"


def section(results: Results, document: Path) -> str:
    """What stands in `document`: the plot by its path from there, then the table."""
    plot = Path(os.path.relpath(PLOT, document.parent)).as_posix()
    return f"![Time and memory per task, both pools]({plot})\n\n{render(results)}"


def check_evidence(results: Results) -> None:
    """ValueError unless the run is one that may be published: whole, not short, of our pool."""
    if results.ours != OUR_MODULE:
        raise ValueError(f"the last run measured {results.ours}, not {OUR_MODULE}")
    if results.short:
        raise ValueError("the last run was a short one; run `make bench` first")
    missing = {workload.name for workload in WORKLOADS} - {row.name for row in results.rows}
    if missing:
        raise ValueError(
            f"the last run left out {', '.join(sorted(missing))}; run `make bench` first"
        )


def update(directory: Path) -> list[Path]:
    """Writes the table and the plot of `directory`/latest.json into the documents.

    OSError or ValueError if there is no such run, or none that may be published; ImportError
    without matplotlib. Returns what was written.
    """
    results = load(directory / "latest.json")
    check_evidence(results)
    from bench.plot import draw_svg

    PLOT.write_bytes(draw_svg(results))
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(embed(text, section(results, document)), encoding="utf-8")
    return [PLOT, *DOCUMENTS]
