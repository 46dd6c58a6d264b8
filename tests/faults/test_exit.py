"""The end of the interpreter: what is pending runs, and the process ends, with the right status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import CHILD_ENVIRONMENT, HAS_GIL, check_cases, check_python, run_python

pytestmark = pytest.mark.timeout(100)

HEAD = """
import atexit, gc, os, signal, sys, threading, time, weakref
from affinitypool import Task, ThreadPoolExecutor, as_completed, wait
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
LATE = "cannot schedule new futures after interpreter shutdown"
# how many processes end in each way: a long run, which has
# many rounds, comes to the hundreds that are promised
PROCESSES = int(os.environ.get("AFFINITYPOOL_TEST_PROCESSES", "6"))

ENDS = {
    "falls off": ("", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "sys.exit without a status": ("sys.exit()", 0, ""),
    "sys.exit with words": ("sys.exit('words')", 1, "words"),
    "SystemExit": ("raise SystemExit(4)", 4, ""),
    "an error": ("1 / 0", 1, "ZeroDivisionError: division by zero"),
    "Ctrl-C": ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
    "an error in excepthook": (
        "sys.excepthook = 5; 1 / 0",
        1,
        "ZeroDivisionError: division by zero",
    ),
}


def check(code, **options):
    return check_python(HEAD + code, **options)


# ---- what is pending runs


@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_the_end_of_main_runs_what_is_pending(dropped):
    """Falling off the end of main runs what is pending; so does every other end of main."""
    check_cases([(end, dropped) for end in ENDS], check_the_end_of_main)


def check_the_end_of_main(end, dropped):
    last, status, error = ENDS[end]
    done = run_python(
        f"""{HEAD}
pool = ThreadPoolExecutor(1)
pool.submit(time.sleep, 0.05)
for n in range(3):
    pool.submit(say, n)
pool.submit_many(say, [3, 4])
pool.map(say, [5, 6])
if {dropped}:
    del pool
say("main ends")
{last}
"""
    )
    assert done.stdout.split("\n") == ["main ends", *"0123456", ""]
    assert done.returncode == status
    assert error in done.stderr if error else done.stderr == ""


PLACES = [
    "holder.pool = pool; holder.cycle = holder",
    "tasks[0].pool = pool",
    "threading.local().pool = pool",
    "sys.pool = pool",
    "atexit.register(lambda: pool)",
    "threading.Thread(target=pool.submit, args=[say, 'thread']).start()",
    "holder.__del__ = lambda: pool.shutdown()",
    "pool.submit(lambda: holder)",
]


def test_pools_kept_in_many_places():
    check_cases(PLACES, check_a_place)


def check_a_place(place):
    out = check(f"""
class holder: pass
def use():
    pool = ThreadPoolExecutor(2)
    tasks = [pool.submit(time.sleep, 0.02), *(pool.submit(say, n) for n in range(3))]
    {place}
use()
""")
    assert sorted(out.split()) in (["0", "1", "2"], ["0", "1", "2", "thread"])


def test_an_object_with_a_finalizer_that_shuts_its_pool_down():
    """The finalizer of a global runs when hardly anything is left of the interpreter."""
    done = run_python(
        HEAD
        + """
class Owner:
    def __init__(self):
        self.pool = ThreadPoolExecutor(2)
    def __del__(self, write=os.write):
        write(1, b"finalized ")
        self.pool.shutdown()
        write(1, b"shut down")
owner = Owner()
owner.pool.submit(int)
"""
    )
    said = done.stdout, done.stderr
    # without a GIL the names of modules may be gone by then, for the stdlib's pool as well
    assert said == ("finalized shut down", "") or (not HAS_GIL and "NoneType" in done.stderr)
    assert done.returncode == 0


def test_tasks_end_before_exit_hooks_run():
    out = check("""
pool = ThreadPoolExecutor(2)
atexit.register(lambda: say(task.done(), task.result(), wait([task]).done == {task}))
pool.submit(time.sleep, 0.05)
task = pool.submit(time.sleep, 0.05)
atexit.register(lambda: say([*as_completed([task])] == [task]))
""")
    assert out == "True\nTrue None True\n"


def test_a_task_that_waits_for_another_at_the_end():
    out = check("""
pool = ThreadPoolExecutor(1)
def work():
    inner = pool.submit(abs, -3)
    time.sleep(0.05)
    say(inner.result())
started = threading.Event()
pool.submit(lambda: (started.set(), work()))
started.wait()
time.sleep(0.01)
""")
    assert out == "3\n"


def test_results_are_waited_for_by_a_thread_at_the_end():
    out = check("""
pool = ThreadPoolExecutor(1)
task = pool.submit(time.sleep, 0.05)
threading.Thread(target=lambda: say(task.result())).start()
""")
    assert out == "None\n"


def test_an_error_of_a_task_is_no_error_of_the_process():
    out = check("""
pool = ThreadPoolExecutor(1)
def fail(error):
    raise error
for error in SystemExit(5), KeyboardInterrupt(), GeneratorExit(), ValueError():
    pool.submit(fail, error)
pool.submit(say, "end")
""")
    assert out == "end\n"


def test_a_broken_pool_at_the_end():
    done = run_python(
        HEAD
        + """
def start():
    time.sleep(0.05)
    raise ValueError("no start")
pool = ThreadPoolExecutor(2, initializer=start)
tasks = [pool.submit(int) for _ in range(10)]
atexit.register(lambda: say(all(task.exception() for task in tasks)))
"""
    )
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "no start" in done.stderr


@pytest.mark.parametrize("order", ["ours, theirs", "theirs, ours"])
def test_the_stdlibs_pool_beside_ours(order):
    out = check(f"""
import concurrent.futures
ours, theirs = ThreadPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(1)
for pool in {order}:
    pool.submit(time.sleep, 0.03)
ours.submit(say, "ours"); theirs.submit(say, "theirs")
""")
    assert sorted(out.split()) == ["ours", "theirs"]


def test_a_pool_that_an_event_loop_used():
    out = check("""
import asyncio
pool = ThreadPoolExecutor(2)
async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(pool)
    loop.run_in_executor(pool, time.sleep, 0.05)
    say(await asyncio.to_thread(abs, -1))
asyncio.run(main())
other = ThreadPoolExecutor(1)
other.submit(say, "end")
""")
    assert out == "1\nend\n"


def test_with_warnings_as_errors_in_development_mode():
    assert (
        check(
            """
pool = ThreadPoolExecutor(2)
tasks = [pool.submit(say, "x") for n in range(5)]
""",
            options=("-X", "dev", "-W", "error"),
        )
        == "x\n" * 5
    )


@pytest.mark.parametrize("patched", [False, True], ids=["script", "patched"])
def test_a_script(tmp_path, patched):
    script = tmp_path / "script.py"
    module = "concurrent.futures" if patched else "affinitypool"
    script.write_text(
        f"import sys, time\nfrom {module} import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "pool.submit(time.sleep, 0.05)\n"
        "pool.submit(print, type(pool).__module__)\n"
        "sys.exit(3)\n"
    )
    run = ["-m", "affinitypool", "run"] if patched else []
    done = subprocess.run(
        [sys.executable, *run, script],
        env={**os.environ, **CHILD_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "affinitypool\n", "")


# ---- it ends at once


STATES = ["busy", "ring", "idle", "unused", "from a task", "from a callback", "in a with block"]


@pytest.mark.parametrize("end", ["falls off", "sys.exit", "an error"])
def test_a_shutdown_that_cancels_and_the_end_of_main(end):
    """`shutdown(wait=False, cancel_futures=True)` and the end of main exits at once."""
    # what a pool is in matters to how the process ends, hardly to why it does
    states = STATES if end == "falls off" else ["busy", "from a callback", "in a with block"]
    check_cases([(state, end) for state in states], check_a_shutdown_that_cancels)


def check_a_shutdown_that_cancels(state, end):
    last, status, error = ENDS[end]
    done = run_python(
        f"""{HEAD}
state, ready = {state!r}, threading.Event()
pool = ThreadPoolExecutor(1 if state.startswith("from") else 2, cancel_on_error=True)
met = threading.Barrier(pool._max_workers + 1)
tasks = []
def work():
    met.wait()
    if state == "ring":
        tasks.append(pool.submit(time.sleep, 50))
    ready.wait()
    # what stands behind it in the queue is cancelled before it can be run
    while not state.startswith("from") and not all(task.done() for task in tasks):
        time.sleep(0.005)
def stop(*_):
    pool.shutdown(wait=False, cancel_futures=True)
if state == "idle":
    for task in [pool.submit(int) for _ in range(100)]:
        task.result()
elif state != "unused":
    running = [pool.submit(work) for _ in range(pool._max_workers)]
    if state == "from a callback":
        running[0].add_done_callback(stop)
    elif state == "from a task":
        pool.submit(stop)
    met.wait()
    tasks.extend(pool.submit(time.sleep, 50) for _ in range(5))
    while state == "ring" and len(tasks) < 7:
        time.sleep(0.005)
ready.set()
if state == "in a with block":
    with pool:
        {last or "sys.exit(0)"}
if not state.startswith("from"):
    stop()
{last}
""",
        timeout=25,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert error in done.stderr if error else done.stderr == ""


def test_a_daemon_thread_that_waits_does_not_hold_the_process():
    out = check("""
tasks = [Task() for _ in range(3)]
def wait_for_condition():
    with tasks[1]._condition:
        tasks[1]._condition.wait()
for target in (tasks[0].result, lambda: wait(tasks), lambda: list(as_completed(tasks)),
               wait_for_condition, lambda: wait(tasks, None, "FIRST_COMPLETED")):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.05)
say("end")
""")
    assert out == "end\n"


@pytest.mark.parametrize("where", ["main", "task"])
def test_a_process_that_becomes_another(where):
    call = 'os.execv, sys.executable, [sys.executable, "-c", "import sys; sys.exit(4)"]'
    done = run_python(f"""{HEAD}
pool = ThreadPoolExecutor(2)
pool.submit(time.sleep, 50)
pool.submit({call}) if {where == "task"} else {call.replace(",", "(", 1)})
""")
    assert (done.returncode, done.stderr) == (4, "")


def test_ctrl_c_at_the_end_does_not_wait_for_a_task_for_ever():
    """A task that never returns: whoever presses Ctrl-C often enough gets out."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HEAD + "ThreadPoolExecutor(1).submit(lambda: (say('in'), time.sleep(90)))",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **CHILD_ENVIRONMENT},
    )
    try:
        assert process.stdout.read(3) == b"in\n"
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        assert process.returncode in (0, 1, 120, -signal.SIGINT)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---- whoever comes late

USES = """
def outcome(use):
    try:
        use()
    except RuntimeError as error:
        return str(error)
    return "works"
def use_pools():
    found = [outcome(use) for use in (
        lambda: pool.submit(abs, -1).result(20),
        lambda: pool.submit_many(abs, [1])[0].result(20),
        lambda: list(pool.map(abs, [1, 2])),
        lambda: list(pool.map(abs, [1, 2], buffersize=1)),
        lambda: fresh.submit(abs, -1).result(20),
        lambda: ThreadPoolExecutor(1).submit(abs, -1).result(20),
    )]
    with ThreadPoolExecutor(2):
        pass
    fresh.shutdown(); pool.shutdown(wait=False)
    say(old.result(), wait([old]).done == {old}, *sorted(set(found)))
pool, fresh = ThreadPoolExecutor(2), ThreadPoolExecutor(2)
old = pool.submit(abs, -7)
old.result()
"""

# where it is called: the setting, and whether pools still work there
LATECOMERS = {
    "atexit hook": ("atexit.register(use_pools)", False),
    "finalizer at exit": ("weakref.finalize(old, use_pools)", False),
    "excepthook": ("sys.excepthook = lambda *_: use_pools()\nsys.stderr.flush()\n1 / 0", True),
    "threading's hook": ("threading._register_atexit(use_pools)", True),
    "thread": (
        "threading.Thread(target=lambda: (threading.main_thread().join(), pause(), use_pools()))"
        ".start()",
        False,
    ),
    "task": ("fresh.submit(lambda: (pause(), use_pools()))", False),
    "callback": (
        "fresh.submit(pause).add_done_callback(lambda task: use_pools())\n",
        False,
    ),
    "stdlib pool's task": (
        "import concurrent.futures\n"
        "concurrent.futures.ThreadPoolExecutor(1).submit(lambda: (pause(), use_pools()))",
        False,
    ),
}


def test_pools_are_used_after_main_has_ended():
    """Submitting from a live non-daemon thread after main has ended, or from an atexit hook: works
    or a distinct error, never a hang."""
    check_cases(LATECOMERS, check_a_latecomer)


def check_a_latecomer(who):
    setting, works = LATECOMERS[who]
    done = run_python(
        HEAD
        + USES
        + """
from affinitypool._binding import core
def pause():
    # until the end of the interpreter has begun
    end = time.monotonic() + 20
    while time.monotonic() < end and outcome(lambda: ThreadPoolExecutor(1).submit(int)) == "works":
        time.sleep(0.01)
"""
        + setting
    )
    expected = "works" if works else LATE
    if who == "threading's hook" and sys.version_info[:2] == (3, 12):
        # this version starts no thread then; those that there are go on
        expected = "can't create new thread at interpreter shutdown works"
    assert done.stdout == f"7 True {expected}\n", done
    assert (done.returncode, done.stderr) == (1 if who == "excepthook" else 0, "")


def test_a_hook_of_threading_that_is_older_than_ours():
    out = check_python(
        "import threading; threading._register_atexit(lambda: use_pools())\n" + HEAD + USES
    )
    assert out == f"7 True {LATE}\n"


def test_a_finalizer_of_a_global_that_submits():
    """Neighbour: the last moment at which Python code runs."""
    done = run_python(
        HEAD
        + """
class Late:
    def __init__(self):
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()
    def __del__(self, write=os.write, new=ThreadPoolExecutor):
        write(1, b"finalized\\n")
        for make in (lambda: self.pool), (lambda: new(1)):
            try:
                make().submit(int).result(5)
            except (RuntimeError, TypeError) as error:
                write(1, str(error).encode() + b"\\n")
late = Late()
"""
    )
    first, *said = done.stdout.splitlines()
    assert (done.returncode, first, len(said)) == (0, "finalized", 2), done
    assert said == [LATE] * 2 or (not HAS_GIL and "NoneType" in done.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("where", ["global", "attribute", "cycle"])
def test_iterators_that_are_suspended_at_the_end_say_nothing(where, foreign):
    """Neighbour: they let go of their futures when the globals of modules are None."""
    keep = {
        "global": "",
        "attribute": "threading.it = it",
        "cycle": "cycle = [it]; cycle.append(cycle)",
    }
    check(
        f"""
from concurrent.futures import Future
pool = ThreadPoolExecutor(2)
more = [Future()] if {foreign} else []
it = as_completed(more + [pool.submit(time.sleep, .01) for _ in range(10)]); next(it)
results = pool.map(time.sleep, [.01] * 20); next(results)
buffered = pool.map(time.sleep, [.01] * 20, buffersize=5); next(buffered)
{keep[where]}
"""
    )


def test_a_task_that_submits_until_the_interpreter_ends():
    out = check("""
pool = ThreadPoolExecutor(1)
def again():
    try:
        pool.submit(again)
    except RuntimeError as error:
        say(error)
again()
""")
    assert out == LATE + "\n"


@pytest.mark.parametrize("kind", ["plain", "stack"])
def test_threads_that_submit_while_main_ends(kind):
    """What was accepted has run, however late it was."""
    out = check(f"""
pool = ThreadPoolExecutor(3, stack_size={1 << 19 if kind == "stack" else None})
accepted, ran = [0] * 3, []
def produce(n):
    try:
        while True:
            pool.submit(ran.append, n)
            accepted[n] += 1
    except RuntimeError as error:
        pass
for n in range(3):
    threading.Thread(target=produce, args=[n]).start()
atexit.register(lambda: say(accepted == [ran.count(n) for n in range(3)], sum(accepted) > 0))
time.sleep(0.05)
""")
    assert out == "True True\n"


# ---- many processes


def status_of(code: str) -> tuple[int, str]:
    """Run the code in a process; return its status and what it says on stderr."""
    done = run_python(HEAD + code, timeout=60)
    return done.returncode, done.stderr


FLIGHT = """
pool = ThreadPoolExecutor(3)
tasks = [pool.submit(sum, range(2000)) for _ in range(200)]
tasks += [pool.submit(pool.submit, time.sleep, 0.001) for _ in range(5)]
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit(5)", 5),
        ("1 / 0", 1),
        ("pool.submit(os._exit, 6); time.sleep(50)", 6),
    ],
    ids=["sys.exit", "an uncaught error", "os._exit in a task"],
)
def test_the_status_is_right_every_time(end, status):
    """200 processes that end by sys.exit, by an uncaught error and by `os._exit` in a task, with
    tasks in flight: the expected status every time."""

    def check_one(_):
        code, error = status_of(FLIGHT + end)
        assert code == status, error
        assert error.count("Traceback") == (status == 1), error

    check_cases(range(PROCESSES), check_one)


OTHER_ENDS = [
    ("pool.submit(int).add_done_callback(lambda task: os._exit(8)); time.sleep(50)", 8),
    ("ThreadPoolExecutor(1, '', os._exit, [9]).submit(int); time.sleep(50)", 9),
    ("os._exit(10)", 10),
    ("pool.submit(sys.exit, 4); pool.submit(lambda: 1 / 0)", 0),
    ("threading.Thread(target=sys.exit, args=[4]).start()", 0),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(50)", -signal.SIGTERM),
    ("pool.submit(os.kill, os.getpid(), signal.SIGKILL); time.sleep(50)", -signal.SIGKILL),
    ("pool.submit(os.kill, os.getpid(), signal.SIGINT); time.sleep(50)", -signal.SIGINT),
    ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(11))\n"
     "pool.submit(os.kill, os.getpid(), signal.SIGTERM); time.sleep(50)", 11),
    ("pool.shutdown(wait=False); sys.exit(12)", 12),
    ("pool.shutdown(cancel_futures=True); sys.exit(13)", 13),
    ("del pool, tasks; sys.exit(14)", 14),
    ("with pool: sys.exit(15)", 15),
]  # fmt: skip


def test_the_status_of_other_ends():
    def check_one(end, status):
        assert status_of(FLIGHT + end)[0] == status

    check_cases(OTHER_ENDS * max(1, PROCESSES // 10), check_one)


def test_daemon_threads_in_the_middle_of_everything_at_the_end():
    """Neighbour: threads that the interpreter stops while they are inside the library."""
    code = (
        USES
        + """
mine = [Task() for _ in range(3)]
def forever(use):
    while True:
        try:
            use()
        except Exception:
            pass
def observe():
    task = pool.submit(int)
    task.add_done_callback(str)
    task.cancel()
for use in (
    lambda: pool.submit(int),
    lambda: pool.submit(int).result(),
    lambda: pool.submit_many(int, [1, 2]),
    lambda: list(pool.map(int, range(9), buffersize=2)),
    lambda: wait([pool.submit(int) for _ in range(9)]),
    lambda: list(as_completed([pool.submit(int) for _ in range(9)])),
    lambda: ThreadPoolExecutor(1).submit(int),
    lambda: mine[0].result(0.001),
    observe,
):
    threading.Thread(target=forever, args=[use], daemon=True).start()
time.sleep(0.03)
"""
    )

    def check_one(_):
        assert status_of(code) == (0, "")

    check_cases(range(max(2, PROCESSES // 4)), check_one)


# ---- not to wait at the end

# what the workers of a pool with wait_at_exit=False do when the interpreter ends
LEFT_ALONE = {
    "sleeping": "start(time.sleep, 90)",
    "computing": """
def forever():
    while True:
        sum(range(100))
start(forever)
""",
    "in C without the interpreter": """
import hashlib
data = bytes(5_000_000)
def forever():
    while True:
        hashlib.sha256(data).digest()
start(forever)
""",
    "holding a lock": """
lock = threading.Lock()
def forever():
    with lock:
        while True:
            time.sleep(0)
start(forever)
""",
    "submitting": """
def forever():
    while True:
        try:
            pool.submit(int).result()
            ThreadPoolExecutor(1, wait_at_exit=False).submit(int)
            pool.submit_many(int, [1, 2])
        except (RuntimeError, concurrent.futures.CancelledError):
            pass
start(forever)
""",
    "submitting itself": """
def forever():
    pool.submit(forever)
start(forever)
""",
    "waiting": """
task = Task()
start(task.result)
start(wait, [task])
start(lambda: list(as_completed([task])))
start(task._condition.acquire)
""",
    "nested": """
def descend(depth):
    return pool.submit(descend, depth - 1).result() if depth else time.sleep(90)
start(descend, 5)
""",
    "calling back": """
def forever():
    while True:
        try:
            task = pool.submit(int)
            task.add_done_callback(str)
            task.cancel()
        except RuntimeError:
            pass
start(forever)
""",
    "collecting": """
def forever():
    while True:
        rubbish = []
        rubbish.append(rubbish)
        del rubbish
        gc.collect(0)
start(forever)
""",
    "in an initializer": """
pool = ThreadPoolExecutor(2, wait_at_exit=False, initializer=time.sleep, initargs=[90])
pool.submit(int)
""",
    "idle": "wait([pool.submit(int) for _ in range(100)])",
    "busy with short tasks": "tasks = [pool.submit(int) for _ in range(3000)]",
    "dropped": "start(time.sleep, 90); pool.submit_many(time.sleep, [90] * 9); del pool",
    "shut down": "start(time.sleep, 90); pool.shutdown(wait=False)",
    "shut down with a limit": """
import logging
logging.disable()
start(time.sleep, 90)
pool.shutdown(timeout=0.01)
""",
    "failing": """
def fail():
    pool.submit(fail)
    raise KeyError
start(fail)
""",
}
if HAS_GIL:
    # without one a daemon thread that the interpreter stops in the middle of this may leave a lock
    # behind that the interpreter then waits for, with plain threads as well
    LEFT_ALONE["printing"] = """
def forever():
    while True:
        print(end="")
        sys.stderr.write("")
start(forever)
"""
ALONE = """
import concurrent.futures
pool = ThreadPoolExecutor(4, wait_at_exit=False)
def start(call, *args):
    # more than there are workers: some are pending
    for _ in range(3):
        pool.submit(call, *args)
"""


def test_an_exit_that_does_not_wait_never_crashes():
    """Interpreter exit can be told not to wait; that never crashes finalization."""

    def check_one(what):
        code = ALONE + LEFT_ALONE[what] + "\ntime.sleep(0.02)\nsys.exit(3)"
        assert status_of(code) == (3, "")

    check_cases([*LEFT_ALONE] * max(1, PROCESSES // 7), check_one)


def test_pending_tasks_of_a_pool_that_is_not_waited_for_are_cancelled():
    """Neighbour: exit hooks see that they never run."""
    out = check(
        ALONE
        + """
start(time.sleep, 90)
start(time.sleep, 90)
tasks = [pool.submit(say, "ran") for _ in range(5)]
@atexit.register
def hook():
    say(*{task.cancelled() for task in tasks}, wait(tasks, 10).not_done)
    try:
        pool.submit(int)
    except RuntimeError as error:
        say(error)
"""
    )
    assert out == f"True set()\n{LATE}\n"


def test_pools_that_wait_beside_one_that_does_not():
    out = check(
        ALONE
        + """
start(time.sleep, 90)
other = ThreadPoolExecutor(1)
other.submit(time.sleep, 0.05)
other.submit(say, "waited for")
"""
    )
    assert out == "waited for\n"


def test_a_pool_that_is_not_waited_for_can_be_waited_for():
    """Neighbour: it is an option of the exit, not of the pool."""
    out = check("""
with ThreadPoolExecutor(2, wait_at_exit=False) as pool:
    pool.submit(time.sleep, 0.05)
    pool.submit(say, "ran")
pool = ThreadPoolExecutor(2, wait_at_exit=False)
task = pool.submit(lambda: threading.current_thread().daemon)
say(task.result(), pool.wait_idle(10), pool.drain(10), threading.active_count())
with ThreadPoolExecutor(1) as pool:
    say(pool.submit(lambda: threading.current_thread().daemon).result())
""")
    assert out == "ran\nTrue True True 1\nFalse\n"


def test_a_forked_child_does_not_wait_either():
    done = run_python(
        HEAD
        + ALONE
        + """
start(time.sleep, 90)
child = os.fork()
start(time.sleep, 90)
time.sleep(0.02)
if child == 0:
    sys.exit(5)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        options=("-W", "ignore"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")


# ---- imports


SLOW_START = """
import os, sys, threading, time
go, starting, tasks = threading.Event(), threading.Event(), []
threading._register_atexit(go.set)  # older than ours, so it comes after it
import affinitypool._threads
from affinitypool import ThreadPoolExecutor, wait
launch = affinitypool._threads.WorkerThread.launch
def slow(self, *args):
    starting.set()
    assert go.wait(20)
    launch(self, *args)
def produce():
    tasks.append(pool.submit(os.write, 1, b"ran "))
    assert not wait(tasks, 20).not_done
    os.write(1, b"done")
"""


no_late_starts = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="3.12 starts no thread once main has ended"
)


@no_late_starts
@pytest.mark.parametrize("wait_at_exit", [True, False])
def test_a_thread_that_starts_after_our_exit_hook_ends(wait_at_exit):
    """A submit in another thread is about to start a worker when main ends."""
    out = check_python(
        f"""{SLOW_START}
pool = ThreadPoolExecutor(1, wait_at_exit={wait_at_exit})
affinitypool._threads.WorkerThread.launch = slow
threading.Thread(target=produce).start()
starting.wait(20)
"""
    )
    assert out in ("ran done", "done") if not wait_at_exit else out == "ran done"


@no_late_starts
def test_a_thread_that_starts_while_our_exit_hook_waits_ends():
    """Neighbour: the hook has seen which threads there are, and waits for one of them."""
    out = check_python(
        f"""{SLOW_START}
gate, first, pool = threading.Event(), ThreadPoolExecutor(1), ThreadPoolExecutor(1)
first.submit(gate.wait, 20)
main = threading.get_ident()
def watch():
    while sys._current_frames()[main].f_code.co_name != "join":
        time.sleep(0.001)
    go.set()
def produce_late():
    produce()
    gate.set()
affinitypool._threads.WorkerThread.launch = slow
threading.Thread(target=produce_late).start()
starting.wait(20)
threading.Thread(target=watch).start()
"""
    )
    assert out == "ran done"


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


def test_importing_in_a_subinterpreter_is_refused():
    pytest.importorskip("_interpreters", reason="no sub-interpreters from Python on this version")
    done = run_python("""
import _interpreters
interp = _interpreters.create()
error = _interpreters.run_string(interp, "import affinitypool")
print(error.type.__name__, error.msg)
""")
    assert done.returncode == 0, done
    assert done.stdout.startswith("ImportError affinitypool cannot be imported in a sub-interp")


@pytest.mark.skipif(sys.version_info < (3, 15), reason="no lazy imports before Python 3.15")
@pytest.mark.parametrize(
    "use",
    [
        "pool.submit(abs, -1).result()",
        "next(pool.map(abs, [-1]))",
        "pool.submit_many(abs, [-1])[0].result()",
        "next(affinitypool.as_completed([pool.submit(abs, -1)])).result()",
    ],
)
@pytest.mark.parametrize("leaving", ["pool.shutdown()", "del pool", "", "os.fork() or exit()"])
def test_where_every_import_is_lazy(use, leaving):
    """What the C code needs of the modules is there before the first use."""
    out = check_python(
        f"""
        import os
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        import affinitypool
        os.write(1, b"%d " % ({use}))
        {leaving}
        """,
        options=("-X", "lazy_imports=all", "-W", "ignore"),
    )
    assert out == "1 "


TWICE = """
import os, sys, threading
import affinitypool as one
first = one.ThreadPoolExecutor(1)
gate, begun = threading.Event(), threading.Event()
running = first.submit(lambda: begun.set() or gate.wait(20))
begun.wait(20)
pending = first.submit(abs, -3)
for name in [name for name in sys.modules if name.partition(".")[0] == "affinitypool"]:
    del sys.modules[name]
import affinitypool as two
assert two is not one
second = two.ThreadPoolExecutor(1)
def use(pool, module):
    task = pool.submit(abs, -1)
    assert module.wait([task], 10).done == {task} and task.result() == 1
    assert [task.result() for task in module.as_completed(pool.submit_many(abs, [-1]), 10)] == [1]
    assert list(pool.map(abs, [-1, -2], timeout=10)) == [1, 2]
    assert pool.submit(lambda: pool.submit(abs, -1).result(10)).result(10) == 1
"""


@pytest.mark.parametrize("order", ["first, second", "second, first"])
@pytest.mark.parametrize("where", ["here", "in a child"])
def test_the_package_is_imported_twice(order, where):
    """Its modules were dropped from sys.modules, as some tools do: old pools and new ones work."""
    out = check_python(
        TWICE
        + f"""
if {where!r} == "in a child":
    child = os.fork()
    if child:
        gate.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        assert running.cancelled() and pending.cancelled()
gate.set()
for pool in ({order}):
    use(pool, one if pool is first else two)
if {where!r} == "here":
    assert running.result(10) is True and pending.result(10) == 3
for pool in ({order}):
    assert pool.shutdown(timeout=10)
os.write(1, b"ends ")
""",
        options=("-W", "ignore"),
    )
    assert out == ("ends " if where == "here" else "ends ends ")


def test_both_copies_of_the_package_run_what_is_pending_at_the_end():
    out = check_python(
        TWICE
        + """
for pool in (first, second):
    pool.submit(os.write, 1, b"ran ")
threading.Timer(0.05, gate.set).start()
"""
    )
    assert out == "ran ran "
