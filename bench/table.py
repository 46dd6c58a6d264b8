"""The results as a Markdown table whose columns line up, so that it reads in a terminal too."""

from __future__ import annotations

from bench.results import Results, Row
from bench.sides import STDLIB
from bench.summary import Summary

TIME_UNITS = ((1e-6, "ns", 1e9), (1e-3, "us", 1e6), (1.0, "ms", 1e3))


def significant(value: float) -> str:
    """Three significant digits, never in exponent form."""
    for limit, digits in ((10, 2), (100, 1)):
        if abs(value) < limit - 0.5 * 10**-digits:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def quantity(value: float, unit: str) -> str:
    """A sample with its unit: seconds as ns, us or ms, bytes as B."""
    if unit == "B":
        return f"{value:,.0f} B"
    for limit, name, factor in TIME_UNITS:
        if value < limit:
            return f"{significant(value * factor)} {name}"
    return f"{significant(value)} s"


def is_loss(ratio: Summary) -> bool:
    """Whether the stdlib's pool did better."""
    return ratio.median < 1


def ratio_text(ratio: Summary) -> str:
    """The ratio, a loss marked as one."""
    text = f"{significant(ratio.median)}x"
    return f"**{text} (loss)**" if is_loss(ratio) else text


def spread_text(ratio: Summary) -> str:
    """The quartiles of the ratio."""
    return f"{significant(ratio.low)} to {significant(ratio.high)}"


def cells(row: Row, ours: str) -> list[str]:
    """One line of the table."""
    ratio = row.ratio(ours)
    return [
        row.label,
        quantity(row.of(STDLIB).median, row.unit),
        quantity(row.of(ours).median, row.unit),
        ratio_text(ratio),
        spread_text(ratio),
    ]


def grid(header: list[str], lines: list[list[str]]) -> str:
    """Markdown with every column as wide as its widest cell, numbers to the right."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def join(line: list[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        return f"| {' | '.join([line[0].ljust(widths[0]), *rest])} |"

    return "\n".join(join(line) for line in [header, rule, *lines])


def notes(results: Results) -> list[str]:
    """What a reader must know beside the table."""
    lines = [
        f"{row.label}: {ceiling.median:.0%} of the speed of bare threads, "
        + ("which no pool can beat." if ceiling.median <= 1 else "as fast, within the noise.")
        for row in results.rows
        if (ceiling := row.of_ceiling(results.ours))
    ]
    losses = sum(is_loss(row.ratio(results.ours)) for row in results.rows)
    if losses:
        lines.append(f"{losses} of {len(results.rows)} rows are losses.")
    lines.append(
        f"Medians of {results.repetitions} interleaved repetitions; a ratio is the stdlib's figure "
        "over ours, repetition by repetition, with its quartiles."
    )
    if results.short:
        lines.append(
            "**A short run: it shows that the benchmarks work; its figures are no evidence.**"
        )
    lines.append("; ".join(f"{key}: {value}" for key, value in results.machine.items()) + ".")
    return lines


def render(results: Results) -> str:
    """Table and notes as Markdown, with a newline at the end."""
    header = ["per task", STDLIB, results.ours, "ratio", "quartiles"]
    table = grid(header, [cells(row, results.ours) for row in results.rows])
    return "\n".join([table, "", *(f"- {note}" for note in notes(results))]) + "\n"
