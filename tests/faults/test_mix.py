"""A short random mix; and that the mix sees what it is there to see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import CHILD_ENVIRONMENT, check_cases, check_python

MIX = Path(__file__).resolve().parent / "mix.py"

pytestmark = [
    pytest.mark.timeout(100),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def run_mix(*options: str, broken: str = "") -> tuple[int, str]:
    """Run the mix in a process of its own, with a pool class that is perhaps broken."""
    code = textwrap.dedent(
        """
        import itertools, os, sys, threading, time

        sys.path.insert(0, sys.argv[1])
        import mix
        from affinitypool import Task, ThreadPoolExecutor

        counter = itertools.count(1)
        keep = []

        class Pool(ThreadPoolExecutor):
            pass
        """
    )
    code += textwrap.dedent(broken) + "\nsys.exit(mix.main(sys.argv[2:], Pool))\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(MIX.parent), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
        env={**os.environ, **CHILD_ENVIRONMENT},
    )
    return done.returncode, done.stdout


def test_a_short_mix_of_everything():
    """Submit, cancel, wait, callbacks, signals, forks, producers, shutdown: nothing is lost."""
    code, out = run_mix("--seconds=2", "--seed=7")
    assert code == 0, out
    assert out.startswith("mix: seed 7, 2 s, "), out
    assert out.endswith("\nmix: 1 passed, 0 failed\n"), out
    for action in ("fork", "own pool", "signals handled", "children", "task cancelled"):
        assert f"\n  {action} " in out, f"the mix never came to: {action}\n{out}"


def test_the_seed_decides_what_a_thread_chooses():
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import mix
        from mixing.driver import Driver
        for seed in 1, 2, 101:
            world = mix.World(seed, 30, mix.ThreadPoolExecutor)
            print(*[Driver(world, name).rng.random() for name in ("main", "other")])
    """
    one, other = (check_python(code, str(MIX.parent)).split() for _ in range(2))
    assert one == other
    assert len(set(one)) == 6


SUBMIT = """
    def submit(self, fn, /, *args, **kwargs):
        number = next(counter)
        {body}
        return ThreadPoolExecutor.submit(self, fn, *args, **kwargs)

    Pool.submit = submit
"""


def in_submit(body: str) -> str:
    return SUBMIT.format(body=textwrap.indent(textwrap.dedent(body), " " * 8).strip())


BROKEN = {
    "it drops a task": (
        "(lost|hang)",  # a task that waits for it may be what another thread waits for
        in_submit("if number % 100 == 0: return Task()"),
        "--only=submit,submit a burst,submit_many",
        "--patience=1",
    ),
    "it runs a task twice": (
        "(run twice|ran after its end|ran although cancelled)",
        in_submit("if number % 100 == 0: super(Pool, self).submit(fn, *args, **kwargs)"),
    ),
    "it hangs": (
        # what it was about to submit has an owner that waits; the submit may be a forked child's
        "(lost|hang|child: (lost|not done|tasks that do not end|it does not end))",
        in_submit("if number == 300: threading.Event().wait()"),
        "--patience=1",
    ),
    "it refuses and runs": (
        "ran although refused",
        in_submit(
            """
            if number % 100 == 0:
                super(Pool, self).submit(fn, *args, **kwargs)
                raise RuntimeError("refused")
            """
        ),
    ),
    "it cancels by itself": (
        # whichever looks at the task first
        "(cancelled by nobody|shutdown_now: cancelled, and not told)",
        in_submit(
            """
            if number % 100 == 0:
                task = Task()
                task.cancel()
                return task
            """
        ),
    ),
    "what was cancelled has run": (
        "cancelled although it ran",
        in_submit(
            """
            if getattr(args[0], "plan", None) in ("return", "pause"):
                fn(*args, **kwargs)
                return Task()
            """
        ),
    ),
    "it mixes results up": (
        "wrong result",
        in_submit("if number % 100 == 0: return super(Pool, self).submit(lambda: (fn(*args), 1))"),
    ),
    "it loses a callback": (
        "lost: .*its callbacks did not come to an end",
        """
        class Forgetful(Task):
            def add_done_callback(self, fn):
                if next(counter) % 10:
                    super().add_done_callback(fn)

        def submit(self, fn, /, *args, **kwargs):
            task = ThreadPoolExecutor.submit(self, fn, *args, **kwargs)
            task.__class__ = Forgetful
            return task

        Pool.submit = submit
        """,
        "--without=await",
        "--patience=2",
    ),
    "it calls back too early": (
        "callbacks: .* called before its end",
        """
        class Hasty(Task):
            def add_done_callback(self, fn):
                fn(self)

        def submit(self, fn, /, *args, **kwargs):
            task = ThreadPoolExecutor.submit(self, fn, *args, **kwargs)
            task.__class__ = Hasty
            return task

        Pool.submit = submit
        """,
    ),
    "shutdown does not wait": (
        "shutdown: it returned before the end",
        """
        def shutdown(self, wait=True, **options):
            return ThreadPoolExecutor.shutdown(self, False, **options)

        Pool.shutdown = shutdown
        """,
    ),
    "it keeps its tasks": (
        "memory: .* MB more than after the warm-up",
        in_submit("keep.append(bytes(20_000))"),
        "--seconds=0.6",
    ),
    "it leaves a thread": (
        "threads: left behind",
        in_submit(
            """
            if number == 100:
                threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
            """
        ),
        "--rest=1",
    ),
    "it leaves a descriptor": (
        "descriptors: left open",
        in_submit("if number == 100: keep.append(open(os.devnull))"),
        "--rest=1",
    ),
    "it does not come back after a fork": (
        "child: ",
        """
        def _renew(self):
            raise SystemExit

        Pool._renew = _renew
        """,
        "--only=fork,submit",
    ),
}


def test_a_broken_pool_is_caught():
    """The reason is named, with the seed, all stacks and the counters of the pools."""
    check_cases(BROKEN, check_a_broken_pool, at_once=3)


def check_a_broken_pool(way):
    reason, broken, *options = BROKEN[way]
    # (of an option that is given twice the last one counts)
    code, out = run_mix("--seed=7", "--seconds=1", "--patience=3", *options, broken=broken)
    assert code == 1, out
    assert re.search(f"^FAULT[^:]*: {reason}", out, re.MULTILINE), out
    # (a child that is at fault as well may go on writing after it)
    assert "\nseed 7\nmix: 0 passed, 1 failed\n" in out
    assert " 1 passed" not in out
    assert "---- threads ----" in out
    assert "---- pools ----" in out
