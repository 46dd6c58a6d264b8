"""The results as a picture: horizontal bars on a log scale, the ratio beside each pair."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.results import Results, Row
from bench.sides import CEILING, STDLIB
from bench.table import is_loss, quantity, significant

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
STDLIB_COLOUR, OUR_COLOUR, LOSS_COLOUR = "#b8c2cc", "#0f766e", "#c81e1e"
BAR = 0.36
"""Height of a bar; rows are 1 apart."""
ROW_INCHES = 0.62
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "svg.hashsalt": "affinitypool",
}


def draw_side(axes: Axes, rows: Sequence[Row], side: str, offset: float, colour: str) -> None:
    """The bars of one side with their quartiles, and the figure at the end of each."""
    for y, row in enumerate(rows):
        summary = row.of(side)
        axes.barh(y + offset, summary.median, height=BAR, color=colour, zorder=2)
        axes.plot([summary.low, summary.high], [y + offset] * 2, color=INK, linewidth=1.1, zorder=3)
        axes.annotate(
            quantity(summary.median, row.unit),
            (max(summary.high, summary.median), y + offset),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=MUTED,
        )


def draw_ceiling(axes: Axes, rows: Sequence[Row]) -> None:
    """A mark where bare threads end, for the rows that have it."""
    for y, row in enumerate(rows):
        if CEILING in row.samples:
            axes.plot(
                [row.of(CEILING).median] * 2,
                [y - 0.44, y + 0.44],
                color=INK,
                linewidth=1.4,
                ls=":",
                zorder=4,
            )


def draw_ratios(axes: Axes, rows: Sequence[Row], ours: str) -> None:
    """The ratios in a column of their own at the right, with its heading."""
    axes.text(
        1.015,
        -0.62,
        "times less",
        transform=axes.get_yaxis_transform(),
        va="bottom",
        fontsize=8,
        color=MUTED,
    )
    for y, row in enumerate(rows):
        ratio = row.ratio(ours)
        loss = is_loss(ratio)
        axes.text(
            1.015,
            y,
            f"{significant(ratio.median)}x" + (" loss" if loss else ""),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=12,
            fontweight="bold",
            color=LOSS_COLOUR if loss else OUR_COLOUR,
        )


def draw_panel(axes: Axes, rows: Sequence[Row], ours: str) -> None:
    """The rows of one unit."""
    unit = rows[0].unit
    draw_side(axes, rows, STDLIB, -BAR / 2, STDLIB_COLOUR)
    draw_side(axes, rows, ours, BAR / 2, OUR_COLOUR)
    draw_ceiling(axes, rows)
    draw_ratios(axes, rows, ours)
    medians = [row.of(side).median for row in rows for side in row.samples]
    axes.set_xscale("log")
    axes.set_xlim(min(medians) / 3, max(medians) * 3)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, unit)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(
        "time per task, log scale" if unit == "s" else "memory per pending task, log scale",
        fontsize=9,
    )
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(which="both", length=0)
    axes.grid(axis="x", color=GRID, zorder=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def tick_text(value: float, unit: str) -> str:
    """A power of ten with its unit, without digits that say nothing."""
    number, _, name = quantity(value, unit).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {name}"


def draw(results: Results) -> Figure:
    """The figure: one panel per unit, the measured rows from top to bottom."""
    panels = [
        rows for unit in ("s", "B") if (rows := [row for row in results.rows if row.unit == unit])
    ]
    if not panels:
        raise ValueError("no rows to plot")
    inches = ROW_INCHES * len(results.rows) + 0.85 * len(panels) + 1.15
    figure = Figure(figsize=(9.2, inches), facecolor="white", layout="constrained")
    axes = figure.subplots(
        len(panels), 1, squeeze=False, height_ratios=[len(rows) + 0.2 for rows in panels]
    )
    for panel, rows in zip(axes[:, 0], panels, strict=True):
        draw_panel(panel, rows, results.ours)
    handles: list[Patch | Line2D] = [
        Patch(color=STDLIB_COLOUR, label="stdlib"),
        Patch(color=OUR_COLOUR, label=results.ours),
        Line2D([], [], color=INK, linewidth=1.1, label="quartiles"),
    ]
    if any(CEILING in row.samples for row in results.rows):
        handles.append(
            Line2D([], [], color=INK, linewidth=1.4, ls=":", label="bare threads, no pool")
        )
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        title=f"{results.ours} against concurrent.futures.ThreadPoolExecutor",
        title_fontproperties={"size": 13, "weight": "bold"},
        alignment="left",
    )
    machine = results.machine
    how = (
        "burst: submit many no-op tasks, then take every result.  round-trip: submit(f).result(), "
        "one at a time.\nmap: list(pool.map(f, items)).  sha256: of 16 KiB, without the "
        f"GIL.\nShorter bars are better.  Medians of {results.repetitions} interleaved repetitions"
    )
    where = "; ".join(machine[key] for key in ("python", "cpu") if key in machine)
    figure.supxlabel(
        f"{how}{'; SHORT RUN' if results.short else ''}\n{where}", fontsize=8, color=MUTED
    )
    return figure


def draw_svg(results: Results) -> bytes:
    """The figure as SVG; the same results give the same bytes."""
    out = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        draw(results).savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def save(results: Results, stem: Path) -> list[Path]:
    """Writes `stem`.svg and `stem`.png and returns their paths."""
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    svg.write_bytes(draw_svg(results))
    with matplotlib.rc_context(STYLE):
        draw(results).savefig(png, dpi=160)
    return [svg, png]
