"""The command line."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import honesty, machine, readme, sampling
from bench.progress import Progress
from bench.results import Results, Row
from bench.sides import our_module, our_pool, our_side, stdlib_pool
from bench.table import ratio_text, render
from bench.workloads import WORKLOADS, Workload, select

REPETITIONS, SHORT_REPETITIONS = 9, 3
RESULTS = Path(__file__).resolve().parent / "results"


def parser() -> argparse.ArgumentParser:
    """The options."""
    it = argparse.ArgumentParser(
        prog="python -m bench", description="Compare affinitypool with the stdlib's thread pool."
    )
    it.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks to run (default: all); see --list"
    )
    it.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    it.add_argument(
        "--short",
        action="store_true",
        help="small counts, few repetitions: shows only that it works",
    )
    it.add_argument(
        "--repetitions", type=int, metavar="N", help=f"samples per side (default {REPETITIONS})"
    )
    it.add_argument(
        "--json", action="store_true", help="print the results as JSON instead of the table"
    )
    it.add_argument(
        "--output", type=Path, default=RESULTS, metavar="DIR", help="where to write (bench/results)"
    )
    it.add_argument(
        "--no-plot",
        action="store_true",
        help="write no SVG and PNG (matplotlib is not needed then)",
    )
    it.add_argument(
        "--update-readme",
        action="store_true",
        help="put the table of the last full run into the documents and stop",
    )
    return it


def run(workloads: Sequence[Workload], repetitions: int, short: bool) -> Results:
    """Measures everything, with progress on stderr."""
    facts = machine.describe()
    plan = [(workload, workers) for workload in workloads for workers in workload.workers]
    samples = sum(repetitions * (2 + len(workload.further_sides)) for workload, _ in plan)
    progress = Progress(samples)
    rows: list[Row] = []
    try:
        for workload, workers in plan:
            progress.begin(f"{workload.name}, workers: {workers}")
            tasks = workload.short_tasks if short else workload.tasks
            row = sampling.measure(workload, workers, tasks, repetitions, progress.step)
            rows.append(row)
            progress.end(f"{row.label}: {ratio_text(row.ratio(our_side())).strip('*')}")
    finally:
        progress.close()
    return Results(our_side(), facts, repetitions, short, tuple(rows))


def write(results: Results, directory: Path, plot: bool) -> list[Path]:
    """Writes JSON, Markdown and the plots; returns what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    text = results.to_json()
    dated = directory / time.strftime("%Y%m%d-%H%M%S.json")
    latest = directory / "latest"
    written = [dated, latest.with_suffix(".json"), latest.with_suffix(".md")]
    for path, content in zip(written, (text, text, render(results)), strict=True):
        path.write_text(content, encoding="utf-8")
    if plot:
        from bench.plot import save

        return written + save(results, latest)
    for stale in (latest.with_suffix(".svg"), latest.with_suffix(".png")):
        stale.unlink(missing_ok=True)
    return written


def can_plot() -> bool:
    """Whether matplotlib is there; says so if not.

    It is imported only after everything is measured: an extension module may switch the GIL of a
    free-threaded interpreter back on.
    """
    found = importlib.util.find_spec("matplotlib") is not None
    if not found:
        print("no plot: matplotlib is not installed (it is in the `bench` extra)", file=sys.stderr)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit status is 0 if everything ran, whatever the ratios."""
    options = parser()
    args = options.parse_args(argv)
    if args.list:
        for workload in WORKLOADS:
            workers = ", ".join(map(str, workload.workers))
            print(f"{workload.name:12}{workload.summary}; workers: {workers}")
        return 0
    if args.update_readme:
        try:
            for path in readme.update(args.output):
                print(f"updated {path}")
        except (OSError, ValueError, ImportError) as error:
            print(f"nothing published: {error}", file=sys.stderr)
            return 1
        return 0
    try:
        workloads = select(args.names)
    except KeyError as unknown:
        options.error(f"no such benchmark: {unknown.args[0]} (see --list)")
    repetitions = args.repetitions or (SHORT_REPETITIONS if args.short else REPETITIONS)
    if repetitions < 1:
        options.error("--repetitions must be at least 1")
    try:
        ours = our_pool()
    except ImportError as error:
        print(
            f"cannot import {our_module()}: {error}\n"
            "Install it first: pip install . (or run `make bench`)",
            file=sys.stderr,
        )
        return 1
    plot = not args.no_plot and can_plot()
    for make in (stdlib_pool(), ours):
        honesty.check(make)
    results = run(workloads, repetitions, args.short)
    print(results.to_json() if args.json else f"\n{render(results)}", end="", flush=True)
    for path in write(results, args.output, plot):
        print(f"wrote {path}", file=sys.stderr)
    return 0
