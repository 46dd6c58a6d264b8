"""Scheduling and CPU: what idle workers cost, the order of tasks, how many threads there are."""

from __future__ import annotations

import functools
import json
import os
import random
import threading
import time

import pytest
from helpers import HAS_GIL, check_cases, check_python, eventually, occupied, run_python

from affinitypool import ThreadPoolExecutor, _binding, _sizing

pytestmark = pytest.mark.timeout(60)

FUTEX = _binding.ffi.string(_binding.lib.ap_parking_backend()) == b"futex"


# ---- idle CPU

HEAD = """
import json, os, resource, signal, sys, threading, time
from affinitypool import Task, ThreadPoolExecutor, as_completed, wait
signal.alarm(50)  # also if nobody waits for this process any more
def meet(pool):
    met = threading.Barrier(pool._max_workers)
    wait([pool.submit(met.wait) for _ in range(pool._max_workers)])
def spend():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw
pools, gate, threads = [ThreadPoolExecutor(8)], threading.Event(), []
pool = pools[0]
meet(pool)
def thread(*targets):
    for target in targets:
        threads.append(threading.Thread(target=target))
        threads[-1].start()
"""
TAIL = """
time.sleep(0.3)
parks, (cpu, switches) = sum(pool.stats().parks for pool in pools), spend()
time.sleep(2)
cpu, switches = spend()[0] - cpu, spend()[1] - switches
parks = sum(pool.stats().parks for pool in pools) - parks
workers = sum(pool.stats().workers for pool in pools)
gate.set()
print(json.dumps([workers, parks, cpu, switches]))
"""
# what the eight workers have done, or what they are in, before they are idle
HISTORIES = {
    "a burst": "wait([pool.submit(int) for _ in range(3000)])",
    "a batch": "wait(pool.submit_many(int, range(3000)))",
    "one at a time": "for _ in range(500): pool.submit(int).result()",
    "nested waits": """
def fib(n):
    if n < 2:
        return n
    left, right = pool.submit(fib, n - 1), pool.submit(fib, n - 2)
    return left.result() + right.result()
assert fib(13) == 233
""",
    "children": """
wait([pool.submit(lambda: pool.submit_many(int, range(600))) for _ in range(8)])
pool.wait_idle()
""",
    "cancelled tasks": """
held = [pool.submit(gate.wait) for _ in range(8)]
for task in [pool.submit(int) for _ in range(1000)]:
    task.cancel()
gate.set()
wait(held)
""",
    "producers that left": """
for n in range(20):
    thread(lambda: [pool.submit(int).result() for _ in range(50)])
for each in threads:
    each.join()
""",
    "workers that were replaced": """
sys.stderr = open(os.devnull, "w")
import logging
logging.disable()
pool._core.fault_end_workers(3)
wait([pool.submit(time.sleep, 0.001) for _ in range(100)])
meet(pool)
""",
    "a bound": """
pools[:] = pool, = [ThreadPoolExecutor(8, max_pending=4)]
meet(pool)
wait([pool.submit(int) for _ in range(2000)])
""",
    "many pools": """
pools[:] = [ThreadPoolExecutor(1) for _ in range(8)]
for each in pools * 100:
    each.submit(int).result()
""",
    "a child of a fork": """
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(50)
meet(pool)
wait([pool.submit(int) for _ in range(1000)])
""",
    "waiters": """
tasks = [Task() for _ in range(3)]
thread(tasks[0].result, lambda: wait(tasks), lambda: list(as_completed(tasks)))
thread(lambda: wait(tasks, 1000), lambda: tasks[1].exception(1000))
thread(lambda: wait(tasks, 1000, "FIRST_EXCEPTION"))
thread(lambda: gate.wait() and [task.set_result(0) for task in tasks])
""",
    "blocked tasks": "held = [pool.submit(gate.wait) for _ in range(8)]",
    "tasks that wait for tasks": """
task = Task()
held = [pool.submit(task.result) for _ in range(4)]
held += [pool.submit(lambda: list(as_completed([task]))) for _ in range(4)]
thread(lambda: gate.wait() and task.set_result(0))
""",
    "blocked submits": """
pools[:] = pool, = [ThreadPoolExecutor(8, max_pending=4)]
held = [pool.submit(gate.wait) for _ in range(8)]
while pool.stats().pending:
    time.sleep(0.001)
held += [pool.submit(int) for _ in range(4)]
def blocked():
    try:
        pool.submit(int)
    except RuntimeError:  # main has ended
        pass
thread(*[blocked] * 3)
""",
    "a shutdown that waits": """
held = [pool.submit(gate.wait) for _ in range(8)]
thread(pool.shutdown, lambda: pool.shutdown(timeout=1000), lambda: pool.drain(1000))
""",
    "wait_idle": """
held = [pool.submit(gate.wait) for _ in range(8)]
thread(pool.wait_idle, lambda: pool.wait_idle(1000))
""",
}


def test_idle_workers_cost_nothing():
    """8 idle workers: under 5 ms of CPU in 2 s, no periodic wake-ups."""
    # all at once: hardly anything of it computes
    check_cases(HISTORIES, check_idle_workers, at_once=len(HISTORIES))


def check_idle_workers(history):
    code = HEAD + HISTORIES[history] + TAIL
    done = run_python(code, options=("-W", "ignore"), timeout=45)
    assert (done.returncode, done.stderr) == (0, ""), done
    workers, parks, cpu, switches = json.loads(done.stdout)
    assert workers == 8
    assert parks == 0
    assert cpu < 0.005
    # one is of the sleep; one thread with a timer of a second would make two more
    assert switches <= 2 if FUTEX else switches < 20


@pytest.mark.parametrize("workers", [1, 4])
def test_a_task_now_and_then_costs_little(workers):
    """One task every 10 ms: under 15 % of a core."""
    ways = ["result", "wait", "callback", "unwatched", "batch"]
    check_cases([(workers, how) for how in ways], check_a_task_now_and_then, at_once=5)


def check_a_task_now_and_then(workers, how):
    out = check_python(
        f"""
        import threading, time
        from affinitypool import ThreadPoolExecutor, wait
        with ThreadPoolExecutor({workers}) as pool:
            def use():
                if {how!r} == "result":
                    pool.submit(int).result()
                elif {how!r} == "wait":
                    wait([pool.submit(int)])
                elif {how!r} == "callback":
                    called = threading.Event()
                    pool.submit(int).add_done_callback(lambda task: called.set())
                    called.wait()
                elif {how!r} == "unwatched":
                    pool.submit(int)
                else:
                    pool.submit_many(int, range(4))
            use()
            begin, start = time.process_time(), time.monotonic()
            for _ in range(50):
                time.sleep(0.01)
                use()
            print((time.process_time() - begin) / (time.monotonic() - start))
        """
    )
    assert float(out) < 0.15


def test_the_process_has_no_thread_but_workers(one):
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are listed in /proc, which this system does not have")
    before = set(os.listdir("/proc/self/task"))
    one.submit(int).result(10)
    assert one.shutdown(wait=False, timeout=0.01) in (True, False)
    assert len(set(os.listdir("/proc/self/task")) - before) <= 1


# ---- order on one worker

# each submits to one worker what appends 0 to 999 in turn
ORDERS = {
    "submit": lambda one, append: [one.submit(append, n) for n in range(1000)],
    "submit_many": lambda one, append: one.submit_many(append, range(1000)),
    "map": lambda one, append: one.map(append, range(1000)),
    "all forms": lambda one, append: [
        (one.submit(append, n), one.submit_many(append, range(n + 1, n + 10)))
        for n in range(0, 1000, 10)
    ],
    "try_submit": lambda one, append: [one.try_submit(append, n) for n in range(1000)],
}  # fmt: skip


@pytest.mark.parametrize("form", ORDERS)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_one_worker_runs_first_in_first_out(one, form, inside):
    """One worker: strictly first in, first out, for outside and inside submits."""
    order: list[int] = []
    if inside:
        one.submit(ORDERS[form], one, order.append).result(20)
    else:
        with occupied(one):
            ORDERS[form](one, order.append)
    one.submit(int).result(20)
    assert order == list(range(1000))


@pytest.mark.parametrize("form", ORDERS)
def test_one_worker_that_is_awake_runs_first_in_first_out(one, form):
    order: list[int] = []
    ORDERS[form](one, order.append)
    one.submit(int).result(20)
    assert order == list(range(1000))


def test_inside_and_outside_submits_run_in_order(one):
    order: list[int] = []
    turn = threading.Barrier(2)

    def submit(first):
        for n in range(first, 100, 2):
            turn.wait(10)
            one.submit(order.append, n)
            turn.wait(10)

    def take_turns(first):
        for n in range(100):
            if n % 2 == first:
                one.submit(order.append, n)
            turn.wait(10)

    task = one.submit(take_turns, 0)
    take_turns(1)
    task.result(10)
    one.submit(int).result(10)
    assert order == list(range(100))


@pytest.mark.parametrize("kind", ["threads", "threads in turn", "callbacks", "generations"])
def test_the_order_holds_over_all_who_submit(one, kind):
    """Neighbour: what one thread submits after another has submitted runs after it."""
    order: list[int] = []
    lock, count = threading.Lock(), [0]

    def submit(times=1):
        for _ in range(times):
            with lock:
                one.submit(order.append, count[0])
                count[0] += 1

    if kind == "generations":

        def again(depth):
            submit()
            if depth:
                one.submit(again, depth - 1)

        threads = [threading.Thread(target=again, args=[100]) for _ in range(3)]
    else:
        threads = [threading.Thread(target=submit, args=[200]) for _ in range(4)]
    with occupied(one):
        if kind == "callbacks":
            for _ in range(100):
                one.submit(int).add_done_callback(lambda task: submit())
    for thread in threads:
        thread.start()
        if kind == "threads in turn":
            thread.join(20)
    for thread in threads:
        thread.join(20)
    assert one.wait_idle(20)
    assert order == list(range(count[0]))
    assert count[0] >= 303


def test_cancelled_tasks_leave_no_gap_and_no_disorder(one):
    order: list[int] = []
    with occupied(one):
        tasks = [one.submit(order.append, n) for n in range(1000)]
        for task in tasks[::3]:
            assert task.cancel()
    one.submit(int).result(20)
    assert order == [n for n in range(1000) if n % 3]


def test_the_order_outlives_the_worker(one, caplog):
    """Neighbour: a worker that is replaced hands its tasks over in their order."""
    order: list[int] = []
    for begin in range(0, 1000, 100):
        with occupied(one):
            for n in range(begin, begin + 100):
                one.submit(order.append, n)
            one._core.fault_end_workers(1)
        one.submit(int).result(20)
    assert order == list(range(1000))


def test_the_order_under_a_bound():
    order: list[int] = []
    with ThreadPoolExecutor(1, max_pending=3) as pool:
        for n in range(300):
            pool.submit(order.append, n)
    assert order == list(range(300))


# ---- the order in which tasks of several workers begin


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_later_tasks_do_not_start_before_earlier_ones_that_are_needed(count, warm):
    """Three tasks that meet at a barrier on three workers always meet, with others behind them that
    wait for one of them."""
    chance = random.Random(count)
    pool = ThreadPoolExecutor(count)
    try:
        if warm:
            with occupied(pool):
                pass
        for _ in range(30):
            met = threading.Barrier(count)
            first = [pool.submit(met.wait, 5) for _ in range(count)]
            if chance.random() < 0.5:
                time.sleep(chance.random() * 1e-4)
            later = [pool.submit(first[0].result) for _ in range(3 * count)]
            # a meeting that fails is broken after its five seconds
            assert [task.exception(10) for task in first + later] == [None] * 4 * count
            if not warm:
                pool.shutdown()
                pool = ThreadPoolExecutor(count)
    finally:
        pool.shutdown()


@pytest.mark.parametrize("form", ["submit", "submit_many"])
def test_the_tasks_of_a_worker_that_blocks_do_not_starve(two, form):
    """Neighbour: nobody waits for them, but the others have something to do for a long time."""
    with occupied(two):
        pass
    overtaken: list[int] = []

    def block_one_worker():
        gate, ran = threading.Event(), []
        early = [lambda: gate.wait(20), *[lambda: overtaken.append(len(ran))] * 6]
        if form == "submit":
            for call in early:
                two.submit(call)
        else:
            two.submit_many(lambda call: call(), early)
        two.submit_many(ran.append, range(5000))
        assert eventually(lambda: len(ran) == 5000, 20)
        gate.set()
        assert two.wait_idle(20)

    for _ in range(10):
        block_one_worker()
    assert len(overtaken) == 60
    assert max(overtaken) < 1000


# ---- sizing


@pytest.mark.parametrize("mask", [1, 3, 64])
@pytest.mark.parametrize("limit", [None, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("version", [1, 2])
def test_sizing(monkeypatch, tmp_path, version, limit, mask):
    """Sizing by affinity mask and cgroup v1 and v2 quota, not by the host's CPU count."""
    root, own = tmp_path / "cgroup", tmp_path / "own"
    quota = -1 if limit is None else int(limit * 100_000)
    if version == 1:
        own.write_text("5:memory:/x\n4:cpu,cpuacct:/a/b\n")
        folder = root / "cpu,cpuacct" / "a"
        files = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": 100_000}
    else:
        own.write_text("0::/a/b\n")
        folder = root / "a"
        files = {"cpu.max": f"{'max' if limit is None else quota} 100000"}
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    monkeypatch.delenv("AFFINITYPOOL_MAX_WORKERS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 256)
    if hasattr(os, "process_cpu_count"):
        monkeypatch.setattr(os, "process_cpu_count", lambda: mask)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(mask)), raising=False)
    quota_of = functools.partial(_sizing.cgroup_quota, str(root), str(own))
    monkeypatch.setattr(_sizing, "cgroup_quota", quota_of)
    usable = mask if limit is None else min(mask, -(-quota // 100_000))
    assert _sizing.usable_cpus() == usable
    assert ThreadPoolExecutor()._max_workers == min(32, usable + 4)
    assert ThreadPoolExecutor(thread_per_core=True)._max_workers == usable


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_a_mask_that_changes_counts_for_the_next_pool():
    """Neighbour: the mask is read for each pool, not once for the process."""
    out = check_python(
        """
        import os
        from affinitypool import ThreadPoolExecutor as Pool
        cpus = sorted(os.sched_getaffinity(0))
        for mask in cpus, cpus[:1], cpus:
            os.sched_setaffinity(0, mask)
            more = Pool()._max_workers - len(mask)
            print(more, Pool(thread_per_core=True)._max_workers - len(mask))
        """,
        AFFINITYPOOL_MAX_WORKERS="",
    )
    assert out == "4 0\n" * 3


# ---- pools inside pools


def test_is_worker_tells(pool):
    """Pools inside pools must not multiply threads silently: `is_worker()` tells."""
    with ThreadPoolExecutor(1) as other:
        assert not pool.is_worker()
        assert pool.submit(pool.is_worker).result(10) is True
        assert pool.submit(other.is_worker).result(10) is False
        assert other.submit(pool.is_worker).result(10) is False
        assert pool.submit(lambda: other.submit(pool.is_worker).result(10)).result(10) is False
        assert list(pool.map(lambda _: pool.is_worker(), range(20))) == [True] * 20


def test_is_worker_in_other_places(one):
    seen: dict[str, bool] = {}

    class Dies:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            seen[self.name] = one.is_worker()

    def started():
        thread = threading.Thread(target=lambda: seen.update(thread=one.is_worker()))
        thread.start()
        thread.join(10)

    with occupied(one):
        task = one.submit(id, Dies("argument"))
        task.add_done_callback(lambda task: seen.update(callback=one.is_worker()))
        cancelled = one.submit(id, Dies("cancelled"))
        cancelled.add_done_callback(lambda task: seen.update(canceller=one.is_worker()))
        cancelled.cancel()
    one.submit(started).result(10)
    # run inline by the worker that waits for it
    assert one.submit(lambda: one.submit(one.is_worker).result(10)).result(10) is True
    one.shutdown()
    assert not one.is_worker()
    assert seen.pop("argument") or not HAS_GIL  # which frees objects in the thread that made them
    assert seen == {
        "callback": True,
        "cancelled": False,
        "canceller": False,
        "thread": False,
    }


def test_is_worker_in_an_initializer():
    seen = []
    pool = ThreadPoolExecutor(1, initializer=lambda: seen.append(pool.is_worker()))
    with pool:
        pool.submit(int).result(10)
    assert seen == [True]


def test_is_worker_after_a_fork():
    """Neighbour: in the child of a task the thread works for nobody."""
    out = check_python(
        """
        import os
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        def fork():
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                return pool.is_worker()
            here, there = pool.is_worker(), pool.submit(pool.is_worker).result(10)
            os.write(1, f"{here} {there} ".encode())
            os._exit(0)
        os.write(1, str(pool.submit(fork).result(20)).encode())
        """,
        options=("-W", "ignore"),
    )
    assert out == "False True True"


def test_a_library_that_asks_is_worker_makes_no_more_threads(two):
    """What it is for: a nested call that finds itself on a worker goes on without threads."""
    before = threading.active_count()

    def parallel(depth, n):
        if depth == 0:
            return n
        if two.is_worker():
            return sum(parallel(depth - 1, n) for _ in range(2))
        return sum(two.map(lambda _: parallel(depth - 1, n), range(2)))

    assert parallel(8, 3) == 3 * 2**8
    assert threading.active_count() <= before + 2
    assert len(two._threads) <= 2


# ---- producers that come and go


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_many_producers_that_come_and_go_leave_nothing_behind():
    """Many producers that come and go (10,000 threads in turn) leave nothing behind."""
    out = check_python(
        """
        import gc, json, os, threading
        from affinitypool import ThreadPoolExecutor
        ended = [0]
        def produce(n):
            task = pool.submit(abs, -1)
            if n % 2:
                ended[0] += task.result()
        def run(times):
            for n in range(times):
                thread = threading.Thread(target=produce, args=[n])
                thread.start()
                thread.join()
            pool.wait_idle()
            gc.collect()
            from pathlib import Path
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
            return resident, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        with ThreadPoolExecutor(2) as pool:
            before, after = run(2000), run(10000)
            print(json.dumps([after[n] - before[n] for n in range(3)]))
            stats = pool.stats()
            assert stats.taken + stats.pending == stats.pushed_outside == 12000, stats
        assert ended == [6000]
        """,
        timeout=50,
    )
    resident, threads, files = json.loads(out)
    assert resident < 1 << 20
    assert threads <= 1  # a second worker
    assert files == 0


def test_many_producers_at_once_that_come_and_go():
    """Neighbour: in waves, with tasks of threads that have ended long before they run."""
    out = check_python(
        """
        import threading
        from affinitypool import ThreadPoolExecutor
        gate, ran = threading.Event(), []
        with ThreadPoolExecutor(2) as pool:
            met = threading.Barrier(3)
            for _ in range(2):
                pool.submit(lambda: (met.wait(10), gate.wait(20)))
            met.wait(10)
            for wave in range(40):
                threads = [threading.Thread(target=pool.submit, args=[ran.append, (wave, n)])
                           for n in range(25)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert not ran
            gate.set()
        print(sorted(ran) == [(wave, n) for wave in range(40) for n in range(25)])
        """
    )
    assert out == "True\n"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "stop", ["gc.collect()", "sys._current_frames()", "os.fork() or os._exit(0)", "gc.freeze()"]
)
def test_the_world_can_be_stopped_beside_builtin_tasks(stop, workers):
    """Workers that run one builtin after the other, without end, never run Python code; yet they
    stop when the collector, or a fork, wants all threads to stop."""
    out = check_python(
        f"""
        import functools, gc, os, sys
        from affinitypool import ThreadPoolExecutor
        pool = ThreadPoolExecutor({workers})
        for _ in range({workers}):
            again = functools.partial(pool.submit)
            again.__setstate__((pool.submit, (again,), {{}}, None))
            assert pool.submit(again).result(10)
        for _ in range(3):
            {stop}
        os.write(1, b"stopped")
        os._exit(0)
        """,
        options=("-W", "ignore"),
        timeout=20,
    )
    assert out == "stopped"
