"""The benchmark's arithmetic, table, plot and command line, on made-up data."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench import cli, honesty, machine, memory, readme, sampling
from bench.progress import Progress
from bench.results import Results, Row, load
from bench.sides import CEILING, STDLIB, STDLIB_MODULE, stdlib_pool
from bench.summary import Summary, ratios, summarize
from bench.table import grid, is_loss, quantity, ratio_text, render, significant
from bench.workloads import WORKLOADS, burst, map_items, round_trip, select, sha256, sha256_threads

ROOT = Path(__file__).resolve().parent.parent
OURS = "affinitypool"


def row(name: str, stdlib: list[float], ours: list[float], **changes: object) -> Row:
    made = Row(name, "made up", 2, 10, "s", {STDLIB: stdlib, OURS: ours})
    return replace(made, **changes)  # type: ignore[arg-type]


WIN = row("burst", [20e-6, 22e-6, 21e-6], [1e-6, 1e-6, 1e-6])
LOSS = row("map", [1e-6, 1e-6, 1e-6], [2e-6, 2e-6, 2e-6])
HASH = row("sha256", [40e-6], [8e-6], samples={STDLIB: [40e-6], OURS: [8e-6], CEILING: [6e-6]})
MEMORY = row("memory", [1900.0, 1900.0], [130.0, 131.0], unit="B", workers=1)


@pytest.fixture
def results() -> Results:
    facts = {"cpu": "a fast one, 2 of 2 CPUs usable", "python": "CPython 3.99.0, with GIL"}
    return Results(OURS, facts, 3, False, (WIN, LOSS, HASH, MEMORY))


# summary


def test_summary_is_median_and_quartiles() -> None:
    assert summarize([5.0, 1.0, 2.0, 4.0, 3.0]) == Summary(3, 2, 4)
    assert summarize([7.0]) == Summary(7, 7, 7)
    assert summarize([1.0, 2.0]).median == 1.5
    assert summarize([3.0, 1.0, 2.0]).spread == 0.5
    assert summarize([0.0]).spread == 0
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


def test_ratios_pair_the_repetitions() -> None:
    assert ratios([10.0, 20.0], [1.0, 4.0]) == [10, 5]
    with pytest.raises(ValueError):
        ratios([1.0], [1.0, 2.0])


def test_ratio_is_of_pairs_not_of_medians() -> None:
    """A machine that slows down fourfold half-way leaves the ratio alone."""
    drifting = row("burst", [10.0, 10.0, 40.0, 40.0], [1.0, 1.0, 4.0, 4.0])
    assert drifting.ratio(OURS) == Summary(10, 10, 10)


# sampling


def test_sides_take_turns_and_swap_order() -> None:
    taken: list[str] = []
    steps: list[None] = []

    def probe(side: str) -> float:
        taken.append(side)
        return float(len(taken))

    probes = {side: lambda side=side: probe(side) for side in ("a", "b")}
    samples = sampling.interleave(probes, 3, lambda: steps.append(None))
    assert taken == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert len(steps) == 6


def test_every_workload_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFFINITYPOOL_BENCH_MODULE", STDLIB_MODULE)
    for workload in WORKLOADS:
        steps = itertools.count()
        measured = sampling.measure(
            workload, 1, 50 if workload.unit == "s" else 2000, 2, partial(next, steps)
        )
        assert set(measured.samples) == {STDLIB, "control", *workload.further_sides}
        assert all(len(samples) == 2 for samples in measured.samples.values())
        assert next(steps) == 2 * len(measured.samples)
        if workload.unit == "s":
            assert all(sample > 0 for samples in measured.samples.values() for sample in samples)


def test_workloads_do_the_work() -> None:
    class Counting(stdlib_pool()):  # type: ignore[misc]
        submitted = 0

        def submit(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.submitted += 1
            return super().submit(*args, **kwargs)

    for work in (burst, round_trip, map_items, sha256):
        with Counting(2) as pool:
            work(pool, 7)
        assert pool.submitted == 7
    sha256_threads(2, 4)


def test_select() -> None:
    assert select([]) == WORKLOADS
    assert [workload.name for workload in select(["map", "burst", "map"])] == ["map", "burst"]
    with pytest.raises(KeyError, match="nonesuch"):
        select(["nonesuch"])


def test_memory_of_the_stdlib_is_plausible() -> None:
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc here")
    assert 500 < memory.bytes_per_task(STDLIB_MODULE, 20_000) < 10_000


def test_memory_probe_passes_on_what_went_wrong() -> None:
    with pytest.raises(RuntimeError, match="no_such_module_anywhere"):
        memory.bytes_per_task("no_such_module_anywhere", 10)


# honesty


def test_the_stdlib_is_honest() -> None:
    honesty.check(stdlib_pool())


def test_cheats_are_found() -> None:
    class Inline(stdlib_pool()):  # type: ignore[misc]
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            future = super().submit(int)
            future.result()
            future._result = fn(*args, **kwargs)
            return future

    with pytest.raises(honesty.Dishonest, match="thread that submitted"):
        honesty.check(Inline)
    with pytest.raises(honesty.Dishonest, match="one after the other"):
        honesty.check(lambda workers: stdlib_pool()(1))


# table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (0.954, "0.95"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (42.44, "42.4"),
        (99.96, "100"),
        (12345.6, "12,346"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5e-7, "s", "500 ns"),
        (1.5e-6, "s", "1.50 us"),
        (0.0301, "s", "30.1 ms"),
        (2.0, "s", "2.00 s"),
        (1899.4, "B", "1,899 B"),
    ],
)
def test_quantity(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_losses_show_as_losses(results: Results) -> None:
    assert is_loss(LOSS.ratio(OURS))
    assert not is_loss(WIN.ratio(OURS))
    assert ratio_text(WIN.ratio(OURS)) == "21.0x"
    assert ratio_text(LOSS.ratio(OURS)) == "**0.50x (loss)**"
    assert "1 of 4 rows are losses" in render(results)
    assert "losses" not in render(replace(results, rows=(WIN,)))


def test_a_ratio_that_rounds_to_one_is_still_a_loss() -> None:
    assert ratio_text(summarize([0.9999])).endswith("(loss)**")


def test_grid_lines_up() -> None:
    lines = grid(["a", "b"], [["wide cell", "1"], ["x", "1000"]]).splitlines()
    assert lines == [
        "| a         |    b |",
        "| --------- | ---: |",
        "| wide cell |    1 |",
        "| x         | 1000 |",
    ]


def test_table_says_everything(results: Results) -> None:
    text = render(results)
    assert "| burst, 2 workers  | 21.0 us |      1.00 us |" in text
    assert "| memory, 1 worker  | 1,900 B |        130 B |" in text
    assert "75% of the speed of bare threads" in text
    assert "Medians of 3 interleaved repetitions" in text
    assert "python: CPython 3.99.0, with GIL" in text
    assert "no evidence" not in text
    assert "no evidence" in render(replace(results, short=True))


def test_more_than_bare_threads_is_noise(results: Results) -> None:
    quick = replace(HASH, samples={**HASH.samples, OURS: [5e-6]})
    text = render(replace(results, rows=(quick,)))
    assert "120% of the speed of bare threads, as fast, within the noise." in text
    assert "no pool can beat" not in text


def test_machine_is_described() -> None:
    facts = machine.describe()
    assert list(facts) == ["cpu", "os", "python", "compiler", "affinitypool", "load", "date"]
    assert all(facts.values())
    assert "GIL" in facts["python"]


# results


def test_json_round_trip(results: Results) -> None:
    text = results.to_json()
    assert Results.from_json(text) == results
    assert json.loads(text)["rows"][0]["ratio"]["median"] == 21
    assert json.loads(text)["rows"][0]["sides"][STDLIB]["median"] == 21e-6


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"format": 0}', "not json", '{"format": 1, "ours": "x"}']
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Results.from_json(text)


# plot


def test_plot_shows_every_row_and_marks_losses(results: Results) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from bench.plot import LOSS_COLOUR, draw

    figure = draw(results)
    time_axes, memory_axes = figure.axes
    assert [label.get_text() for label in time_axes.get_yticklabels()] == [
        r.label for r in (WIN, LOSS, HASH)
    ]
    assert [label.get_text() for label in memory_axes.get_yticklabels()] == [MEMORY.label]
    assert time_axes.get_xscale() == "log"
    widths = sorted(patch.get_width() for patch in time_axes.patches)  # type: ignore[attr-defined]
    assert widths == pytest.approx(sorted([21e-6, 1e-6, 1e-6, 2e-6, 40e-6, 8e-6]))
    labels = {text.get_text(): text.get_color() for text in time_axes.texts}
    assert labels["0.50x loss"] == LOSS_COLOUR
    assert labels["21.0x"] != LOSS_COLOUR


def test_plot_files(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from bench.plot import save

    svg, png = save(results, tmp_path / "latest")
    assert "<svg" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    save(results, tmp_path / "latest")
    assert svg.read_bytes() == first, "the same results give the same file"
    save(replace(results, rows=(MEMORY,)), tmp_path / "one row")
    with pytest.raises(ValueError, match="no rows"):
        save(replace(results, rows=()), tmp_path / "none")


# progress


def test_progress_away_from_a_terminal_is_plain_lines() -> None:
    stream = io.StringIO()
    progress = Progress(4, stream)
    progress.begin("burst")
    progress.step()
    progress.step()
    progress.end("burst: 20x")
    progress.begin("map")
    progress.close()
    assert stream.getvalue() == "[  0%] burst ...\n       burst: 20x\n[ 50%] map ...\n"


def test_progress_on_a_terminal_is_a_bar() -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(2, stream)
    progress.begin("burst")
    progress.step()
    progress.end("burst: 20x")
    progress.step()
    progress.close()
    assert "burst: 20x\n" in stream.getvalue()
    assert "\r" in stream.getvalue()


# documents


def test_embed_replaces_what_is_between_the_markers() -> None:
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    once = readme.embed(text, "new\n")
    assert once == f"before\n{readme.BEGIN}\nnew\n{readme.END}\nafter\n"
    assert readme.embed(once, "new\n") == once


@pytest.mark.parametrize(
    "text",
    [
        "",
        readme.BEGIN,
        readme.END + readme.BEGIN,
        readme.BEGIN * 2 + readme.END,
        readme.BEGIN + readme.END * 2,
    ],
)
def test_embed_wants_its_markers(text: str) -> None:
    with pytest.raises(ValueError):
        readme.embed(text, "new")


def test_update_fills_the_documents(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    rows = tuple(row(workload.name, [2.0], [1.0]) for workload in WORKLOADS)
    (tmp_path / "latest.json").write_text(replace(results, rows=rows).to_json())
    (tmp_path / "docs").mkdir()
    documents = (tmp_path / "README.md", tmp_path / "docs" / "benchmarks.md")
    for document in documents:
        document.write_text(f"# Title\n\n{readme.BEGIN}\n{readme.END}\n")
    monkeypatch.setattr(readme, "DOCUMENTS", documents)
    monkeypatch.setattr(readme, "PLOT", tmp_path / "docs" / "benchmarks.svg")
    readme.update(tmp_path)
    for document, plot in zip(documents, ("docs/benchmarks.svg", "benchmarks.svg"), strict=True):
        text = document.read_text()
        assert text.startswith("# Title\n")
        assert f"({plot})" in text
        assert (document.parent / plot).read_bytes().startswith(b"<?xml")
        assert "2.00x" in text


def test_only_whole_runs_of_our_pool_are_published(results: Results) -> None:
    rows = tuple(row(workload.name, [2.0], [1.0]) for workload in WORKLOADS)
    whole = replace(results, rows=rows)
    readme.check_evidence(whole)
    for changed in (
        replace(whole, ours="control"),
        replace(whole, short=True),
        replace(whole, rows=rows[1:]),
    ):
        with pytest.raises(ValueError, match="the last run"):
            readme.check_evidence(changed)


def test_documents_have_the_markers() -> None:
    for document in readme.DOCUMENTS:
        readme.embed(document.read_text(encoding="utf-8"), "")


# command line


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "AFFINITYPOOL_BENCH_MODULE": STDLIB_MODULE, **environment},
        timeout=100,
    )


def test_a_short_run_writes_everything(tmp_path: Path) -> None:
    done = bench(
        "--short", "--repetitions", "2", "--output", str(tmp_path), "map", "sha256", "--no-plot"
    )
    assert done.returncode == 0, done.stderr
    results = load(tmp_path / "latest.json")
    assert [r.name for r in results.rows] == ["map", "sha256"]
    assert results.short
    assert results.repetitions == 2
    assert (tmp_path / "latest.md").read_text() == render(results)
    assert render(results) in done.stdout
    assert len(list(tmp_path.glob("2*.json"))) == 1
    assert "[  0%] map, workers: 2 ..." in done.stderr


def test_json_on_stdout(tmp_path: Path) -> None:
    done = bench(
        "--short", "--repetitions", "1", "--output", str(tmp_path), "map", "--no-plot", "--json"
    )
    assert Results.from_json(done.stdout).rows[0].name == "map"


def test_list() -> None:
    done = bench("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        workload.name for workload in WORKLOADS
    ]


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["nonesuch"], ["--repetitions", "-1"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
    assert "no such benchmark: nonesuch" in capsys.readouterr().err


def test_a_missing_package_is_said(tmp_path: Path) -> None:
    done = bench("--output", str(tmp_path), AFFINITYPOOL_BENCH_MODULE="no_such_module_anywhere")
    assert done.returncode == 1
    assert "pip install ." in done.stderr


def test_nothing_is_published_without_results(tmp_path: Path) -> None:
    done = bench("--update-readme", "--output", str(tmp_path))
    assert done.returncode == 1
    assert "nothing published" in done.stderr
