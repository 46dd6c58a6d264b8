"""Tests of what the explorer's programs are told and tell: --random, --seed, --replay, errors.

    python tests/model/check_program.py     (as the last part of tests/model/run.py)

Each case of broken.c has to fail, searched and at random, with what its name ends with; the
commands that are printed below a failure have to come to the same line.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent.parent / "build" / "model"
RUNS = "5000"
FAILED = re.compile(r"^(.*): FAILED: (.*)$", re.MULTILINE)
AGAIN = re.compile(r"^  (\S+ --(?:random|replay) .*)$", re.MULTILINE)

CONTROL = "a control"  # of broken.c: says that it fails, and does not


def run(program: str | Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the explorer's to its end; it must not have crashed."""
    done = subprocess.run(
        [OUT / program, *words], capture_output=True, text=True, errors="replace", timeout=60
    )
    assert done.returncode in (0, 1, 2), f"{words}: ended with status {done.returncode}"
    return done


def failure(done: subprocess.CompletedProcess[str], name: str) -> str:
    """Return the line of the failure, which the case's name foretells."""
    lines = [match[0] for match in FAILED.finditer(done.stdout)]
    assert (done.returncode, len(lines)) == (1, 1), f"{name}: {lines or done.stdout[-300:]}"
    assert lines[0].startswith(f"{name}: FAILED: "), lines[0]
    foretold = name.partition(", ")[2]
    assert foretold in lines[0].removeprefix(name), f"{foretold!r} is not in {lines[0]!r}"
    return lines[0]


def again(done: subprocess.CompletedProcess[str], name: str) -> list[list[str]]:
    """Return the commands that repeat the failure, each tried: they come to the same line."""
    commands = [shlex.split(line) for line in AGAIN.findall(done.stdout)]
    for program, *words in commands:
        repeated = failure(run(program, *words), name)
        assert repeated == failure(done, name), f"{words} came to {repeated!r}"
    return commands


def broken() -> list[str]:
    """Return the names of the cases that have to fail."""
    return [name for name in run("broken", "--list").stdout.splitlines() if name != CONTROL]


def check_searched() -> None:
    """The search finds each, and its trace replays."""
    for name in broken():
        commands = again(run("broken", name), name)
        assert [words[1] for words in commands] == ["--replay"], commands


def check_random() -> None:
    """So does chance; its seed and its trace replay."""
    for name in broken():
        commands = again(run("broken", "--random", RUNS, name), name)
        assert [words[1] for words in commands] == ["--random", "--replay"], commands


def check_seed() -> None:
    """A seed is one sequence of executions: it goes on where the one before has ended."""
    name = "switches, broken.c:"
    found = set()
    for seed in range(1, 9):
        done = run("broken", "--random", RUNS, "--seed", str(seed), name)
        found.add(again(done, name)[0][4])
        assert done.stdout == run("broken", "--random", RUNS, "--seed", str(seed), name).stdout
    assert len(found) > 1, found


def check_trace_is_told() -> None:
    """A failure is told step by step, with the line of each step and what is odd about it."""
    told = run("broken", "an older compare, lost wake").stdout
    line = re.search(r"futex wait at x: 0  \(not the newest\) +broken\.c:\d+", told)
    assert line, told
    assert "thread" not in run("broken", "--quick", "a leak").stdout


def check_wrong_trace() -> None:
    """A trace of something else is an error that says so, whatever it does before it is noticed."""
    name = "switches, broken.c:"
    for trace, why in [
        ("1=5", "decision 1 cannot be 5"),
        ("11=1,100000=1", "goes on after the end, with decision 100000"),
    ]:
        done = run("broken", "--replay", trace, name)
        assert done.returncode == 2, done
        assert f'the trace is not of "{name}" as this program was built' in done.stderr, done.stderr
        assert why in done.stderr, done.stderr
    refused = 0
    traces = [again(run("broken", name), name)[0][2] for name in broken()]
    for program in ("test_litmus", "test_futex", "gil_result"):
        for case in run(program, "--list").stdout.splitlines()[:4]:
            for trace in traces:
                done = run(program, "--replay", trace, case)
                refused += done.returncode == 2
                assert (done.returncode == 2) == ("the trace is not of" in done.stderr), done.stderr
                assert done.returncode == 2 or done.stdout.rstrip().endswith(" failed"), done.stdout
    assert refused > 12, refused


def check_arguments() -> None:
    """A wrong argument is an error that names it and says what to do, not a run of something."""
    for words, message in [
        (["--random"], "--random needs a value"),
        (["--random", "many"], "--random takes a whole number from 1 to .*, not 'many'"),
        (["--random", "0"], "not '0'"),
        (["--random", "-3"], "not '-3'"),
        (["--random", "10x"], "not '10x'"),
        (["--random", "99999999999999999999"], "not '99999999999999999999'"),
        (["--seed", "3"], "--seed is of --random"),
        (["--random", "3", "--seed", "two"], "--seed takes a whole number .*, not 'two'"),
        (["--preemptions", ""], "--preemptions takes a whole number .*, not ''"),
        (["--seconds", "0"], "--seconds takes a number above 0, not '0'"),
        (["--seconds", "soon"], "not 'soon'"),
        (["--fast"], "there is no option --fast; --help has the options"),
        (["no such"], "no case's name begins with 'no such'; --list has the names"),
        (["switches", "no such"], "begins with 'no such'"),
        (["--replay", "1=1"], "--replay needs the name of one case; --list has the names"),
        (["--replay", "1=1", "switches"], "no case's name is 'switches'; --list"),
        (["--replay", "1=1", "a leak, memory is left", "a free, "], "the name of one case"),
        (["--replay", "1=1", "--random", "3"], "either --random or --replay"),
    ]:
        done = run("broken", *words)
        assert (done.returncode, done.stdout) == (2, ""), (words, done)
        assert re.fullmatch(f".*{message}.*\n", done.stderr), (words, done.stderr)
    for trace in ("", "5", "=", "5=", "=1", "5=1,", "5=1 6=1", "5=1,5=2", "6=1,5=1", "5=-1", "x=1"):
        done = run("broken", "--replay", trace, "switches, broken.c:")
        assert done.returncode == 2, trace
        assert "a trace is NUMBER=VALUE,NUMBER=VALUE" in done.stderr, trace
    assert run("broken", "--help").stdout.count("--replay TRACE") == 1


def check_control() -> None:
    """A control that is not noticed is a failure, also at random; one that is noticed is none."""
    other, right = "the tail is loaded", "two fences"
    for program, words, status, said in [
        ("broken", [CONTROL], 1, "FAILED: did not fail with"),
        ("broken", ["--random", "9", CONTROL], 1, "FAILED: a control, but none of 9 random exec"),
        ("test_dekker", [other], 0, "ok, fails as it must"),
        ("test_dekker", ["--random", RUNS, other], 0, "ok, fails as it must"),
        ("test_dekker", ["--random", "100", right], 0, "ok, 100 random executions from seed 1"),
    ]:
        done = run(program, *words)
        assert done.returncode == status, done
        assert f"{words[-1]}: {said}" in done.stdout, done


CHECKS: list[Callable[[], None]] = [
    check_searched,
    check_random,
    check_seed,
    check_trace_is_told,
    check_wrong_trace,
    check_arguments,
    check_control,
]


def main() -> tuple[int, int]:
    """Run the checks; how many have passed and failed."""
    failed = 0
    for check in CHECKS:
        try:
            check()
            print(f"{check.__name__}: ok")
        except Exception:
            failed += 1
            print(f"{check.__name__}: FAILED: {traceback.format_exc()}")
    return len(CHECKS) - failed, failed


if __name__ == "__main__":
    passed, failed = main()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
