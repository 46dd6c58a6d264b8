"""The end of the interpreter, as with the stdlib's pool."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers import ROOT, check_python, run_python

pytestmark = pytest.mark.timeout(60)

PIPES = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "env": {**os.environ, "PYTHONPATH": str(ROOT)},
}
HEAD = """
import atexit, os, sys, threading, time
from affinitypool import ThreadPoolExecutor
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def check(code, **options):
    return check_python(HEAD + code, **options)


def test_falling_off_the_end_runs_what_is_pending():
    out = check("""
pool = ThreadPoolExecutor(1)
pool.submit(time.sleep, 0.05)
for n in range(5):
    pool.submit(say, n)
say("main ends")
""")
    assert out.split("\n") == ["main ends", "0", "1", "2", "3", "4", ""]


def test_a_dropped_pool_runs_what_is_pending():
    out = check("""
pool = ThreadPoolExecutor(2)
pool.submit(time.sleep, 0.05)
pool.submit(time.sleep, 0.05)
for n in range(5):
    pool.submit(say, n)
del pool
""")
    assert sorted(out.split()) == ["0", "1", "2", "3", "4"]


def test_pools_kept_in_many_places():
    out = check("""
class Holder: pass
holder = Holder()
holder.pool = ThreadPoolExecutor(2)
holder.cycle = holder
tasks = [holder.pool.submit(say, n) for n in range(3)]
tasks[0].holder = holder
threading.local().pool = ThreadPoolExecutor(1)
""")
    assert sorted(out.split()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("last", "code", "error"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('words')", 1, "words\n"),
        ("raise SystemExit(4)", 4, ""),
    ],
)
def test_sys_exit(last, code, error):
    done = run_python(
        HEAD + "pool = ThreadPoolExecutor(2)\nfor n in range(4): pool.submit(say, n)\n" + last
    )
    assert (done.returncode, done.stderr) == (code, error)
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3"]


def test_an_uncaught_error():
    done = run_python(
        HEAD + "pool = ThreadPoolExecutor(2)\nfor n in range(4): pool.submit(say, n)\n1 / 0\n"
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3"]


def test_os_exit_in_a_task():
    done = run_python(
        HEAD
        + """
pool = ThreadPoolExecutor(2)
others = [pool.submit(int) for _ in range(100)]
pool.submit(os._exit, 7)
time.sleep(20)
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_an_error_of_a_task_is_no_error_of_the_process():
    assert check("ThreadPoolExecutor(1).submit(sys.exit, 5)\nsay('end')") == "end\n"


def test_shutdown_that_cancels_and_the_end_of_main():
    out = check("""
pool = ThreadPoolExecutor(1)
begun = threading.Event()
pool.submit(lambda: (begun.set(), time.sleep(0.05), say("ran")))
begun.wait()
for n in range(5):
    pool.submit(time.sleep, 30)
pool.shutdown(wait=False, cancel_futures=True)
""")
    assert out == "ran\n"


def test_submit_in_an_atexit_hook_is_a_distinct_error():
    out = check("""
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
fresh = ThreadPoolExecutor(1)
@atexit.register
def hook():
    for each in (pool, fresh):
        try:
            each.submit(int)
        except RuntimeError as error:
            say(error)
""")
    assert out == "cannot schedule new futures after interpreter shutdown\n" * 2


def test_a_task_that_submits_while_the_interpreter_ends():
    out = check("""
pool = ThreadPoolExecutor(1)
def again(n):
    try:
        pool.submit(again, n + 1)
    except RuntimeError as error:
        say(error)
pool.submit(time.sleep, 0.05)
def late():
    time.sleep(0.1)
    again(0)
pool.submit(late)
""")
    assert out == "cannot schedule new futures after interpreter shutdown\n"


def test_a_live_thread_that_submits_after_main_ended():
    out = check("""
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
def late():
    threading.main_thread().join()
    while True:
        try:
            pool.submit(int).result(5)
        except RuntimeError as error:
            return say(error)
threading.Thread(target=late).start()
""")
    assert out == "cannot schedule new futures after interpreter shutdown\n"


def test_a_daemon_thread_that_waits_does_not_hold_the_process():
    out = check("""
from affinitypool import Task, wait, as_completed
tasks = [Task() for _ in range(3)]
for target in (tasks[0].result, lambda: wait(tasks), lambda: list(as_completed(tasks))):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.05)
say("end")
""")
    assert out == "end\n"


def test_results_are_waited_for_by_a_thread_at_the_end():
    out = check("""
pool = ThreadPoolExecutor(1)
task = pool.submit(time.sleep, 0.05)
threading.Thread(target=lambda: say(task.result())).start()
""")
    assert out == "None\n"


def test_a_task_that_waits_for_another_at_the_end():
    out = check("""
pool = ThreadPoolExecutor(1)
def work():
    inner = pool.submit(abs, -3)
    time.sleep(0.05)
    say(inner.result())
pool.submit(work)
gate = time.sleep(0.01)
""")
    assert out == "3\n"


def test_a_broken_pool_at_the_end():
    done = run_python(
        HEAD
        + """
def start():
    raise ValueError("no start")
pool = ThreadPoolExecutor(2, initializer=start)
task = pool.submit(int)
"""
    )
    assert done.returncode == 0
    assert "no start" in done.stderr


def test_the_stdlibs_pool_beside_ours():
    out = check("""
import concurrent.futures
ours, theirs = ThreadPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(1)
ours.submit(time.sleep, 0.03); theirs.submit(time.sleep, 0.03)
ours.submit(say, "ours"); theirs.submit(say, "theirs")
""")
    assert sorted(out.split()) == ["ours", "theirs"]


def test_a_module_body_that_uses_a_pool(tmp_path):
    (tmp_path / "body.py").write_text(
        "from affinitypool import ThreadPoolExecutor, wait\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    tasks = [pool.submit(abs, -n) for n in range(20)]\n"
        "    wait(tasks)\n"
        "    total = sum(task.result() for task in tasks) + sum(pool.map(abs, range(3)))\n"
    )
    out = check(f"sys.path.insert(0, {str(tmp_path)!r})\nimport body\nsay(body.total)")
    assert out == "193\n"


def test_no_import_happens_while_a_pool_is_used():
    out = check("""
from affinitypool import wait, as_completed
before = set(sys.modules)
with ThreadPoolExecutor(2) as pool:
    tasks = [pool.submit(int) for _ in range(4)]
    wait(tasks); list(as_completed(tasks)); list(pool.map(abs, [1])); pool.submit_many(abs, [1])
    pool.submit(1).exception()
say(sorted(set(sys.modules) - before))
""")
    assert out == "[]\n"


@pytest.mark.parametrize(
    "how", ["sys.exit(5)", "1 / 0", "pool.submit(os._exit, 6) and time.sleep(20)"]
)
def test_the_status_is_right_every_time(how):
    code = (
        HEAD
        + "pool = ThreadPoolExecutor(3)\n"
        + "tasks = [pool.submit(sum, range(2000)) for _ in range(200)]\n"
        + how
    )
    expected = {"s": 5, "1": 1, "p": 6}[how[0]]
    for _ in range(4):
        running = [subprocess.Popen([sys.executable, "-c", code], **PIPES) for _ in range(2)]
        for process in running:
            process.communicate(timeout=30)
            assert process.returncode == expected


def test_importing_in_a_subinterpreter_is_refused():
    pytest.importorskip("_interpreters", reason="no sub-interpreters from Python on this version")
    done = run_python("""
import _interpreters
interp = _interpreters.create()
error = _interpreters.run_string(interp, "import affinitypool")
print(error.type.__name__)
""")
    assert done.returncode == 0, done
    assert done.stdout == "ImportError\n"
