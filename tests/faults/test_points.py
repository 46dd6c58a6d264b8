"""Two threads at chosen points of the protocols: each script stops one and lets the other go on.

The points are marks in the C code (`AP_POINT`), which only the instrumented build has.  What a
thread does while it holds the GIL can only be stopped without one: see points/points.h.
"""

from __future__ import annotations

import re

import pytest
from helpers import HAS_GIL, ROOT

from faults.instrumented import check_points

pytestmark = pytest.mark.timeout(120)

attached = pytest.mark.skipif(
    HAS_GIL, reason="with a GIL no other thread runs Python code while this one is at the point"
)
hands_over = pytest.mark.skipif(
    not HAS_GIL, reason="without a GIL a worker has no reason to let go before it publishes"
)

# how many tasks a block of a queue holds
SLOTS = int(
    re.findall(
        r"^#define AP_BLOCK_SLOTS (\d+)$", (ROOT / "csrc/sched/block.h").read_text(), re.MULTILINE
    )[0]
)

# ---- wakes around parking

PARK = f"""
    SLOTS = {SLOTS}
    def by_submit(pool):
        return [pool.submit(abs, -1)]
    def by_batch(pool):
        return pool.submit_many(abs, [-1] * 5)
    def by_threads(pool):
        tasks = []
        join(*[run(lambda: tasks.append(pool.submit(abs, -1))) for _ in range(3)])
        return tasks
    def by_try_submit(pool):
        return [pool.try_submit(abs, -1), pool.try_submit(abs, -1)]
"""


def test_no_wake_is_lost_while_workers_park():
    """A worker stopped on its way to sleep sees what is pushed meanwhile, or is woken for it.

    In half of the pools that is where the indices of the queues wrap.
    """
    check_points(
        PARK
        + """
    spin(spins)
    for workers in (1, 2, 4):
        for shards in (None, 2):
            for number, push in enumerate((by_submit, by_batch, by_threads, by_try_submit)):
                wraps = number % 2 == spins and not shards
                core_options(first_index=2**64 - 1 if wraps else 0)
                pool = ThreadPoolExecutor(workers, shards=shards)
                if wraps:  # what comes next is in the last slot of the last block
                    wait(pool.submit_many(int, [0] * (SLOTS - 1 - 2 * workers)), WAIT)
                    filled(pool)
                with hold(point, workers) as held:
                    barrier = threading.Barrier(workers)
                    begun = [pool.submit(barrier.wait, WAIT) for _ in range(workers)]
                    held.reached(workers)
                    tasks = push(pool)
                    assert not any(task.done() for task in tasks)
                    held.let_go()
                    assert [task.result(WAIT) for task in tasks] == [1] * len(tasks)
                pool.shutdown()
    """,
        point=["worker-dry", "idle-enlist", "idle-enlisted", "idle-park", "idle-sleep"],
        spins=[True, False],
    )


def test_no_wake_is_lost_for_what_a_blocked_task_has_pushed():
    """The one that pushes blocks for it, so that only a worker stopped on its way to sleep can."""
    check_points(
        """
    spin(spins)
    for workers in (2, 4):
        for shards in (None, 2, 4):
            for many in (False, True):
                core_options(first_index=2**64 - (4 if many else 1))  # the ring wraps then
                pool = ThreadPoolExecutor(workers, shards=shards)
                with hold(point, workers - 1) as held:
                    barrier = threading.Barrier(workers)
                    pushed, gate = threading.Event(), threading.Event()
                    def outer():
                        barrier.wait(WAIT)
                        held.reached(workers - 1)
                        if many:
                            pool.submit_many(lambda n: n or gate.set(), [1, 2, 0, 3])
                        else:
                            pool.submit(gate.set)
                        pushed.set()
                        return gate.wait(WAIT)
                    tasks = [pool.submit(outer)]
                    tasks += [pool.submit(barrier.wait, WAIT) for _ in range(workers - 1)]
                    assert pushed.wait(WAIT)
                    held.let_go()
                    assert tasks[0].result(WAIT)
                pool.shutdown()
    """,
        point=["idle-enlist", "idle-enlisted", "idle-park", "idle-sleep"],
        spins=[True, False],
    )


def test_one_at_a_time_with_pauses_and_spinning_off():
    """2 workers, one no-op at a time with random pauses, also with spinning off: no timeout."""
    check_points(
        """
    chance = random.Random(3)
    for spins in (False, True):
        spin(spins)
        for workers, shards in ((2, None), (2, 2), (1, None), (4, 4)):
            with ThreadPoolExecutor(workers, shards=shards) as pool:
                for n in range(100):
                    assert pool.submit(abs, -n).result(WAIT) == n
                    end = time.perf_counter() + chance.random() * 1e-4
                    while time.perf_counter() < end:
                        pass
    """
    )


def test_a_lookout_that_is_late_finds_what_was_left_to_it():
    """Pushers beside an active worker leave their tasks to one that naps."""
    check_points(
        """
    for shards in (None, 3):
        pool = filled(ThreadPoolExecutor(3, shards=shards))
        gate, blocked = threading.Event(), threading.Event()
        def outer():
            tasks = [pool.submit(abs, -n) for n in range(6)]
            blocked.set()
            assert gate.wait(WAIT)
            return tasks
        with hold("idle-look-out") as held:
            task = pool.submit(outer)
            assert blocked.wait(WAIT)
            held.reached()
            outside = [pool.submit(abs, -n) for n in range(6)]
            held.let_go()
            assert [late.result(WAIT) for late in outside] == list(range(6))
        eventually(lambda: pool.stats().pending == 0)
        gate.set()
        assert [child.result(WAIT) for child in task.result(WAIT)] == list(range(6))
        pool.shutdown()
    """
    )


# ---- wakes of those who wait for a task

WAITS = """
    WAITS = {
        "result": lambda task: task.result(),
        "result with a timeout": lambda task: task.result(WAIT),
        "exception": lambda task: task.exception(),
        "wait": lambda task: wait([task]),
        "wait first completed": lambda task: wait([task], None, FIRST_COMPLETED),
        "wait first exception": lambda task: wait([task], WAIT, FIRST_EXCEPTION),
        "wait with a foreign future": lambda task: wait([task, Future()], None, FIRST_COMPLETED),
        "as_completed": lambda task: list(as_completed([task])),
        "as_completed with a timeout": lambda task: list(as_completed([task], WAIT)),
    }
    DONE = {
        "runs": lambda task, gate: gate.release(),
        "set_result": lambda task, gate: (task.set_result(1), gate.release()),
        "set_exception": lambda task, gate: (task.set_exception(OSError()), gate.release()),
    }
"""


def test_no_wake_is_lost_while_a_thread_goes_to_sleep_for_a_task():
    """A waiter stopped between its last look and its sleep: the task ends meanwhile."""
    check_points(
        WAITS
        + """
    for name, waiting in WAITS.items():
        if point == "wait-mark" and ("first" in name or "foreign" in name or "as_" in name):
            continue  # they sleep on the collector
        for end in DONE.values():
            with ThreadPoolExecutor(1) as pool:
                gate, ids, begun = threading.Lock(), [], threading.Event()
                gate.acquire()
                task = pool.submit(gate.acquire)
                eventually(task.running)
                def waiter():
                    ids.append(threading.get_native_id())
                    begun.set()
                    go.acquire()
                    with contextlib.suppress(OSError):
                        waiting(task)
                go = threading.Lock()
                go.acquire()
                thread = run(waiter)
                assert begun.wait(WAIT)
                with hold(point, thread=ids[0]) as held:
                    go.release()
                    held.reached()
                    end(task, gate)
                    eventually(task.done)
                    held.let_go()
                    join(thread)
    """,
        point=["wait-mark", "wait-sleep"],
    )


def test_a_signal_that_comes_just_before_the_main_thread_sleeps_is_handled():
    """It ends no sleep; so the sleep is short."""
    check_points(
        """
    import signal
    WAYS = {
        "result": Task.result,
        "wait": lambda task: wait([task]),
        "as_completed": lambda task: list(as_completed([task])),
    }
    handled, gate = threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(gate.wait, WAIT)
        eventually(task.running)
        def other(main=threading.get_ident()):
            held.reached()
            signal.pthread_kill(main, signal.SIGUSR1)
            held.let_go()
            assert handled.wait(10), "the signal is not handled"
            gate.set()
        with hold("wait-sleep", thread=threading.get_native_id()) as held:
            thread = run(other)
            WAYS[way](task)
        join(thread)
    """,
        way=["result", "wait", "as_completed"],
    )


@attached
def test_no_wake_is_lost_while_a_thread_goes_to_sleep_for_several():
    """The same for the collector of wait and as_completed, before it says that it sleeps."""
    check_points(
        WAITS
        + """
    for name in ("wait first completed", "as_completed", "wait with a foreign future"):
        with ThreadPoolExecutor(1) as pool:
            gate = threading.Lock()
            gate.acquire()
            task = pool.submit(gate.acquire)
            with hold("collect") as held:
                thread = run(WAITS[name], task)
                held.reached()
                gate.release()
                eventually(task.done)
                held.let_go()
                join(thread)
    """
    )


def test_no_wake_is_lost_around_wait_idle():
    """Whoever waits for the pool to be idle, and whoever makes it so, stopped in turn."""
    check_points(
        """
    for workers in (1, 3):
        pool = filled(ThreadPoolExecutor(workers))
        gate = threading.Lock()
        gate.acquire()
        task = pool.submit(gate.acquire)
        eventually(task.running)
        results = []
        if point == "quiet-tell":
            with hold("quiet-tell") as held:
                gate.release()
                held.reached()   # the worker has counted its task, and looks for waiters next
                thread = run(lambda: results.append(pool.wait_idle()))
                time.sleep(0.01)
                held.let_go()
                join(thread)
        else:
            ids = []
            go = threading.Lock()
            go.acquire()
            thread = run(lambda: (ids.append(threading.get_native_id()), go.acquire(),
                                  results.append(pool.wait_idle())))
            eventually(lambda: ids)
            # its first look comes before it lets go of the interpreter
            with hold(point, thread=ids[0], skip=point == "quiet-sum") as held:
                go.release()
                held.reached()
                gate.release()
                task.result(WAIT)
                parked(pool)
                held.let_go()
                join(thread)
        assert results == [True]
        pool.shutdown()
    """,
        point=["quiet-sleep", "quiet-sum", "quiet-tell"],
    )


# ---- a task in a worker's hands that is not started


def test_what_is_decided_while_a_worker_holds_a_task_stays_decided():
    """Cancel against start: cancel() is True exactly when the task never ran."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(workers))
    ran = []
    ways = {
        "cancel": lambda task: task.cancel(),
        "set_result": lambda task: task.set_result(5) or True,
        "set_exception": lambda task: task.set_exception(KeyError()) or True,
        "set_running": lambda task: task.set_running_or_notify_cancel(),
    }
    for name, way in ways.items():
        parked(pool)
        with hold(point) as held:
            argument = {name}
            death = weakref.ref(argument)
            task = pool.submit(ran.append, argument)
            del argument
            held.reached()
            assert task._state == "PENDING"
            assert way(task)
            if name == "set_running":
                assert not task.cancel()
                task.set_result(6)
            else:
                assert death() is None  # it lets go of that at once
                assert task.done()
            held.let_go()
        assert pool.submit(abs, -1).result(WAIT) == 1
    assert ran == []
    # and nothing decided: it runs
    parked(pool)
    with hold(point) as held:
        task = pool.submit(ran.append, 1)
        held.reached()
        assert not task.done()
        held.let_go()
    task.result(WAIT)
    assert ran == [1]
    pool.shutdown()
    """,
        point=["worker-found", "injector-claimed"],
        workers=[1, 2, 4],
    )


@hands_over
def test_nobody_counts_on_a_worker_with_a_task_in_its_hands():
    """It is idle when it has said so, and finds the task of a submit that took it for busy; the
    thread that this one starts finds nothing.  That is one worker for what comes next, not two."""
    check_points(
        """
    class Pool(ThreadPoolExecutor):
        def _make_worker(self, crew, number):
            if number == 1:
                ends.let_go()
                found.reached()
            return super()._make_worker(crew, number)
    pool = Pool(3)
    barrier = threading.Barrier(3)
    with hold("handover-published") as ends, hold("worker-found") as found:
        first = pool.submit(int)  # kept, so that it is handed over
        ends.reached()
        tasks = [pool.submit(barrier.wait, WAIT)]
        parked(pool, 1)
        tasks += [pool.submit(barrier.wait, WAIT) for _ in range(2)]
        found.let_go()
        assert sorted(task.result(WAIT) for task in tasks) == [0, 1, 2]
    pool.shutdown()
    """
    )


def test_a_worker_that_waits_runs_what_another_holds_in_its_hands():
    """Started inline by the one, dropped by the other: once."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(2))
    ran, box, gate = [], [], threading.Event()
    for wait_for in (lambda task: task.result(), lambda task: wait([task]),
                     lambda task: list(as_completed([task]))):
        gate.clear()
        box.clear()
        def waiter():
            gate.wait(WAIT)
            wait_for(box[0])
            return "back"
        outer = pool.submit(waiter)
        eventually(outer.running)
        parked(pool, 1)
        with hold("worker-found") as held:
            box.append(pool.submit(ran.append, 1))
            held.reached()
            gate.set()
            assert outer.result(WAIT) == "back"
            assert box[0].done()
            held.let_go()
        parked(pool)
    assert ran == [1] * 3
    pool.shutdown()
    """
    )


def test_a_pool_does_not_end_while_a_worker_holds_a_task():
    """A shutdown while one is neither queued nor started: it runs, or is visibly cancelled."""
    check_points(
        """
    import logging
    logging.disable(logging.WARNING)  # that a worker still runs
    for workers in (1, 2):
        pool = filled(ThreadPoolExecutor(workers))
        threads, ran = set(pool._threads), []
        with hold(point) as held:
            task = pool.submit(ran.append, 1)
            held.reached()
            if how == "plain":
                assert not pool.shutdown(wait=False)
            elif how == "cancel":
                pool.shutdown(wait=False, cancel_futures=True)
            elif how == "now":
                cancelled = pool.shutdown_now(0)
                assert cancelled in ([], [task])
            else:
                del pool
                gc.collect()
            time.sleep(0.01)
            assert any(thread.is_alive() for thread in threads)
            held.let_go()
        wait([task], WAIT)
        assert task.done()
        assert ran == ([] if task.cancelled() else [1])
        assert how in ("cancel", "now") or not task.cancelled()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
    """,
        point=["worker-found", "injector-claim", "injector-claimed"],
        how=["plain", "cancel", "now", "drop"],
    )


@attached
def test_what_a_running_worker_claims_for_its_ring_wakes_who_sleeps():
    """It has claimed several and runs the first, which needs another, while one more parks."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(3, shards=2))
    gates, met = [threading.Event() for _ in range(3)], threading.Barrier(3)
    blockers = [pool.submit(gate.wait, WAIT) for gate in gates]
    eventually(lambda: all(task.running() for task in blockers))
    tasks = pool.submit_many(lambda _: met.wait(WAIT), range(3))
    with hold("injector-claimed") as held:
        gates[0].set()
        held.reached()      # two of the three are in its hands
        gates[1].set()
        eventually(lambda: any(task.running() for task in tasks))
        gates[2].set()
        parked(pool, 1)
        held.let_go()
    assert sorted(task.result(WAIT) for task in tasks) == [0, 1, 2]
    pool.shutdown()
    """
    )


# ---- a worker that ends with tasks in its hands

ENDING = """
    import ctypes, logging
    logging.disable(logging.CRITICAL)  # that one has ended
    def end(thread):
        strike = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert strike(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)) == 1
    def alive(pool):
        return [thread for thread in pool._threads if thread.is_alive()]
"""


def test_what_an_ended_worker_has_in_its_hands_is_run_or_cancelled():
    """It has found a task, is told to end before it starts it, and the world goes on meanwhile."""
    check_points(
        ENDING
        + """
    pool = filled(ThreadPoolExecutor(1, shards=shards))
    [thread] = alive(pool)
    ran = []
    with hold(point) as held:
        task = pool.submit(ran.append, 1)
        held.reached()
        end(thread)
        later = []
        if meanwhile == "cancel":
            assert task.cancel()
        elif meanwhile == "result":
            task.set_result("outside")
        elif meanwhile == "submit":
            later = [pool.submit(ran.append, n) for n in (2, 3)]
        elif meanwhile == "take":  # what comes after it
            pool.submit(ran.append, 2)
            pool._work_queue.get_nowait().run()
            assert ran.pop() == 2
        elif meanwhile == "shutdown":
            pool.shutdown(wait=False)
        elif meanwhile == "cancelling":
            pool.shutdown(wait=False, cancel_futures=True)
        elif meanwhile == "now":
            assert pool.shutdown_now(0) in ([], [task])
        held.let_go()
    wait([task, *later], WAIT)
    assert task.done()
    if meanwhile in ("cancel", "result"):
        assert ran == []
    elif meanwhile in ("cancelling", "now"):
        assert ran == [] if task.cancelled() else ran == [1]
    else:
        assert ran == [1, 2, 3][: 1 + len(later)]
    join(thread)
    if not pool._shutdown:
        assert pool.submit(abs, -1).result(WAIT) == 1
        parked(pool)
        assert pool.wait_idle(WAIT)
        [other] = alive(pool)
        assert other is not thread
        stats = pool.stats()
        assert stats.pushed_outside == stats.taken + (meanwhile == "take")
    pool.shutdown()
    """,
        point=["worker-found", "injector-claimed"],
        shards=[None, 2],
        meanwhile=[
            "nothing", "cancel", "result", "submit", "take", "shutdown", "cancelling", "now"
        ],
    )  # fmt: skip


def test_a_ring_that_changes_hands_while_a_thief_reads_it():
    """Its owner ends, the next one empties and fills it again, and then the thief goes on."""
    check_points(
        ENDING
        + """
    pool = filled(ThreadPoolExecutor(2, shards=2))
    ran, more, gate, before = [], [], threading.Event(), set(alive(pool))
    def last():
        more.extend(pool.submit(ran.append, n) for n in range(children, 2 * children))
    def outer():
        tasks = [pool.submit(ran.append, n) for n in range(children)]
        tasks.append(pool.submit(last))
        assert gate.wait(WAIT)
        return tasks
    with hold("ring-steal") as held:
        task = pool.submit(outer)
        held.reached()
        pool._core.fault_end_workers(1)
        gate.set()
        for child in task.result(WAIT):
            child.result(WAIT)
        assert set(alive(pool)) - before  # its replacement
        for child in more:
            child.result(WAIT)
        assert ran == list(range(2 * children))
        held.let_go()
    parked(pool)
    assert ran == list(range(2 * children))
    assert pool.stats().pending == 0
    pool.shutdown()
    """,
        children=[1, 2, 5, 40],
    )


# ---- between two workers


def test_a_thief_that_is_late_takes_nothing_twice():
    """Steal against pop: the owner takes everything while the thief has read the slots."""
    check_points(
        """
    for children in (1, 2, 5, 40):
        pool = filled(ThreadPoolExecutor(2, shards=2))
        ran, gate = [], threading.Event()
        def outer():
            tasks = [pool.submit(ran.append, n) for n in range(children)]
            assert gate.wait(WAIT)
            return tasks
        with hold("ring-steal") as held:
            task = pool.submit(outer)
            held.reached()
            gate.set()
            for child in task.result(WAIT):
                child.result(WAIT)
            assert ran == list(range(children))
            held.let_go()
        parked(pool)
        assert ran == list(range(children))
        assert pool.stats().pending == 0
        pool.shutdown()
    """
    )


def test_an_owner_that_is_late_takes_nothing_twice():
    """Pop against steal: the thief takes the slot that the owner has read."""
    check_points(
        """
    for children in (3, 5, 40):
        pool = filled(ThreadPoolExecutor(2, shards=2))
        ran, gate = [], threading.Event()
        def outer():
            tasks = [pool.submit(ran.append, n) for n in range(children)]
            assert gate.wait(WAIT)
            return tasks
        with hold("ring-steal", until="ring-pop") as thief:
            task = pool.submit(outer)
            thief.reached()
            with hold("ring-pop", until="ring-stolen"):
                gate.set()
                for child in task.result(WAIT):
                    child.result(WAIT)
        assert sorted(ran) == list(range(children))
        parked(pool)
        assert pool.stats().stolen
        pool.shutdown()
    """
    )


def test_several_that_claim_the_same_task_get_it_once():
    """Claim against claim, and against who takes tasks out from outside."""
    check_points(
        """
    for shards in (None, 2):
        pool = filled(ThreadPoolExecutor(2, shards=shards))
        ran = []
        with hold("injector-claim") as held:
            tasks = [pool.submit(ran.append, n) for n in range(3)]
            held.reached()
            for n in range(3):
                item = pool._work_queue.get_nowait()
                item.run()
            assert ran == [0, 1, 2]
            held.let_go()
        assert pool.submit(abs, -1).result(WAIT) == 1
        assert ran == [0, 1, 2]
        assert pool.wait_idle(WAIT)
        pool.shutdown()
    """
    )


def test_what_a_stopped_worker_has_claimed_for_its_ring_is_shared():
    """It has taken several; once it goes on, those that it does not run wake others."""
    check_points(
        """
    for workers in (2, 4):
        pool = filled(ThreadPoolExecutor(workers, shards=shards))
        barrier = threading.Barrier(workers)
        with hold("injector-claimed") as held:
            tasks = pool.submit_many(lambda _: barrier.wait(WAIT), range(workers))
            held.reached()
            time.sleep(0.01)  # the others look, and find nothing, or what is left
            held.let_go()
            assert sorted(task.result(WAIT) for task in tasks) == list(range(workers))
        pool.shutdown()
    """,
        shards=[2, 4],
    )


def test_the_last_worker_may_be_late_at_the_end():
    """Who ends the pool wakes the others, which are gone before it has looked up."""
    check_points(
        """
    for workers in (2, 4):
        for skip in range(workers if point == "idle-token-given" else 1):
            pool = filled(ThreadPoolExecutor(workers))
            threads, gate = set(pool._threads), threading.Lock()
            gate.acquire()
            task = pool.submit(gate.acquire)
            eventually(task.running)
            parked(pool, workers - 1)
            pool.shutdown(wait=False)
            with hold(point, skip=skip) as held:
                gate.release()
                held.reached()
                del pool
                time.sleep(0.005)
                held.let_go()
            assert task.result(WAIT)
            for thread in threads:
                thread.join(WAIT)
                assert not thread.is_alive()
    """,
        point=["idle-token-given", "idle-try-end"],
    )


# ---- producers that stop


def test_workers_bear_a_producer_that_stops_in_the_middle():
    """A producer stopped between reserving and publishing a slot: nobody parks for good.

    It holds the GIL meanwhile.  With other producers beside it: below, where there is no GIL, and
    tests/c/test_points.c.
    """
    check_points(
        """
    for shards in (None, 2):
        for naps in (1, 5, 20):
            pool = ThreadPoolExecutor(workers, shards=shards)
            with hold("idle-enlisted", workers, until="injector-reserved") as parking:
                barrier = threading.Barrier(workers)
                begun = [pool.submit(barrier.wait, WAIT) for _ in range(workers)]
                parking.reached(workers)
                # they look as soon as it stops, and it goes on when they have napped
                with hold("injector-reserved", until="idle-sleep", passes=naps):
                    task = pool.submit(abs, -1)
            assert task.result(WAIT) == 1
            pool.shutdown()
    """,
        workers=[1, 2, 4],
    )


@attached
def test_other_shards_run_on_while_a_producer_is_stopped():
    """Nor does anybody spin: what those cost who wait for it."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(2, shards=2))
    results = []
    with hold("injector-reserved") as held:
        stopped = run(lambda: results.append(pool.submit(abs, -1)))
        held.reached()
        tasks = []
        for n in range(4):  # of threads in turn, which go to the shards in turn
            join(run(lambda: tasks.append(pool.submit(abs, -1))))
        eventually(lambda: sum(task.done() for task in tasks) == 2)
        begin = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - begin < 0.2
        assert sum(task.done() for task in tasks) == 2
        held.let_go()
    join(stopped)
    assert [task.result(WAIT) for task in tasks + results] == [1] * 5
    pool.shutdown()
    """
    )


@attached
def test_a_submit_that_is_stopped_while_the_pool_shuts_down():
    """Shutdown against submit: the future is done when both have returned, or it was refused."""
    check_points(
        """
    for workers, full in ((1, True), (3, True), (2, False)):
        for cancel in (False, True):
            if point == "idle-wake" and not full:
                continue
            pool = ThreadPoolExecutor(workers)
            if full:
                filled(pool)
            ran, outcomes = [], []
            def submit():
                try:
                    outcomes.append(pool.submit(ran.append, 1))
                except ShutdownError as error:
                    outcomes.append(error)
            with hold(point) as held:
                thread = run(submit)
                held.reached()
                ender = run(lambda: pool.shutdown(cancel_futures=cancel))
                eventually(lambda: pool._shutdown)
                time.sleep(0.005)
                held.let_go()
            join(thread, ender)
            [outcome] = outcomes
            if isinstance(outcome, ShutdownError):
                assert ran == []
            else:
                assert outcome.done()
                assert ran == ([] if outcome.cancelled() else [1])
                assert cancel or not outcome.cancelled()
    """,
        point=[
            "submit-push",
            "injector-reserve",
            "injector-reserved",
            "push-mark",
            "push-notify",
            "idle-wake",
            "submit-pushed",
        ],
    )


@attached
def test_a_shutdown_that_is_stopped_while_others_submit():
    """The other way round."""
    check_points(
        """
    for workers in (1, 3):
        pool = filled(ThreadPoolExecutor(workers))
        ran = []
        with hold(point) as held:
            ender = run(lambda: pool.shutdown(cancel_futures=True))
            held.reached()
            try:
                pool.submit(ran.append, 1)
            except ShutdownError:
                pass
            else:
                raise AssertionError("accepted")
            assert pool.stats().pending == 0
            held.let_go()
        join(ender)
        assert ran == []
    """,
        point=["core-close", "cancel-pending"],
    )


@attached
def test_a_submit_beside_one_whose_start_is_refused():
    """The one whose thread is refused has nobody left, looks, and the other has started one."""
    check_points(
        """
    real, thread = threading._start_joinable_thread, None
    def start(*args, **kwargs):
        if threading.current_thread() is thread:
            raise RuntimeError("can't start new thread")
        return real(*args, **kwargs)
    pool, errors, outcomes, go = ThreadPoolExecutor(2), [], [], threading.Event()
    def first():
        go.wait(WAIT)
        try:
            pool.submit(outcomes.append, "first")
        except RuntimeError as error:
            errors.append(error)
    thread = run(first)
    threading._start_joinable_thread = start
    with hold("start-refused") as held:
        go.set()
        held.reached()
        task = pool.submit(abs, -1)
        assert task.result(WAIT) == 1
        late = pool.submit(abs, -3)
        held.let_go()
        join(thread)
    assert late.result(WAIT) == 3  # it had a worker when it was submitted
    assert outcomes == ([] if errors else ["first"])
    assert pool.submit(abs, -2).result(WAIT) == 2
    pool.shutdown()
    """
    )


@attached
def test_a_submit_beside_the_end_of_the_last_worker():
    """It relies on a worker that ends, and is not replaced, just before the task is queued."""
    check_points(
        """
    import logging
    logging.disable()
    real = threading._start_joinable_thread
    def refuse(*args, **kwargs):
        raise RuntimeError("can't start new thread")
    pool, tasks = filled(ThreadPoolExecutor(1)), []
    with hold("submit-push") as held:
        submitter = run(lambda: tasks.append(pool.submit(abs, -1)))
        held.reached()
        threading._start_joinable_thread = refuse
        pool._core.fault_end_workers(1)
        pool.submit(int)
        eventually(lambda: pool._core.started == 0)
        threading._start_joinable_thread = real
        held.let_go()
        join(submitter)
    assert tasks[0].result(WAIT) == 1
    pool.shutdown()
    """
    )


# ---- between the end of a task and its publication


HANDOVER = """
    import ctypes
    def handed_over(until=None, passes=1, point="handover"):
        "A task whose worker is held in the middle of handing it over."
        parked(pool)
        held = hold(point, until=until, passes=passes)
        task = pool.submit(list)
        held.reached()
        return held, task
    pool = filled(ThreadPoolExecutor(1))
"""


@hands_over
def test_a_task_that_is_dropped_while_it_is_handed_over():
    """A worker stopped between hand-over and publish while the waiter drops the task."""
    check_points(
        HANDOVER
        + """
    awaited = count("handover-await")
    for n in range(5):
        held, task = handed_over(until="handover-await", passes=50)
        before = awaited.passes
        del task    # waits, with the GIL, for the worker to publish
        assert awaited.passes - before >= 50
        held.let_go()
        assert pool.submit(abs, -n).result(WAIT) == n
    pool.shutdown()
    """
    )


@hands_over
def test_a_task_that_is_looked_at_while_it_is_handed_over():
    """Whoever observes or decides it meanwhile waits for the worker; then it is done."""
    check_points(
        HANDOVER
        + """
    called = []
    looks = {
        "a callback": lambda task: task.add_done_callback(called.append),
        "cancel": lambda task: task.cancel() and called.append("cancelled"),
        "condition": lambda task: task._condition,
        "waiters": lambda task: task._waiters,
        "callbacks": lambda task: task._done_callbacks,
        "set_result": lambda task: set_from_outside(task),
        "wait": lambda task: wait([task], WAIT, FIRST_COMPLETED),
        "as_completed": lambda task: next(as_completed([task], WAIT)),
        "stdlib": lambda task: concurrent.futures.wait([task], WAIT),
        "foreign": lambda task: wait([task, Future()], WAIT, FIRST_COMPLETED),
    }
    def set_from_outside(task):
        try:
            task.set_result("outside")
        except InvalidStateError:
            called.append("too late")
    for name, look in looks.items():
        called.clear()
        held, task = handed_over(until="handover-await", passes=50)
        assert task._state == "RUNNING"
        look(task)
        assert task.done()
        assert task.result(0) == []
        if name == "a callback":
            assert called == [task]
        elif name == "set_result":
            assert called == ["too late"]
        else:
            assert called == []
        held.let_go()
        del task
    pool.shutdown()
    """
    )


@hands_over
def test_a_task_that_is_waited_for_while_it_is_handed_over():
    """A reader that looks sees it running; one that waits is woken; a timeout passes."""
    check_points(
        HANDOVER
        + """
    for waiting in (lambda task: task.result(), lambda task: task.exception() or [],
                    lambda task: wait([task]) and [], lambda task: task.result(WAIT)):
        held, task = handed_over()
        assert task.running() and not task.done()
        for timeout in (0, 1e-9, 0.01):
            try:
                task.result(timeout)
            except TimeoutError:
                pass
            else:
                raise AssertionError("not published")
        assert wait([task], 0.01).not_done
        results = []
        thread = run(lambda: results.append(waiting(task)))
        time.sleep(0.005)
        held.let_go()
        join(thread)
        assert results == [[]]
    pool.shutdown()
    """
    )


@hands_over
def test_the_waker_touches_no_memory_of_a_task_that_is_gone():
    """A waker never touches a completion record after the waiter may have freed it.

    The worker is stopped between publishing and waking; the memory is filled by the debug
    allocator when it is freed, and has to stay so.
    """
    check_points(
        HANDOVER
        + """
    def memory(address):  # the state and what follows; short, so that it is not put there itself
        return ctypes.string_at(address + 16, 8)
    dry = count("worker-dry")
    for n in range(5):
        held, task = handed_over(point="handover-published")
        assert task.done()
        address = id(task)
        del task
        assert set(memory(address)) == {0xDD}
        passes = dry.passes
        held.let_go()
        dry.wait(passes + 1)
        # the first time cffi makes the function that lets go, perhaps where the task was
        assert n == 0 or set(memory(address)) == {0xDD}
    pool.shutdown()
    """,
        env={"PYTHONMALLOC": "debug"},
    )


@hands_over
def test_the_waker_harms_no_task_that_has_the_memory_now():
    """A wake of an address whose memory is another's now is spurious, which all waits allow."""
    check_points(
        HANDOVER
        + """
    other = filled(ThreadPoolExecutor(1))
    reused = 0
    for round in range(50):
        gate = threading.Lock()
        gate.acquire()
        blocker = other.submit(gate.acquire)
        held, task = handed_over(point="handover-published")
        address = id(task)
        del task
        tasks = [other.submit(list) for _ in range(20)]
        tasks = [task for task in tasks if id(task) == address]
        task = None
        results = []
        if tasks:  # else something else has taken the memory
            reused += 1
            thread = run(lambda: results.append(tasks[0].result()))
            time.sleep(0.01)
        held.let_go()
        if tasks:
            time.sleep(0.01)
            assert not tasks[0].done() and not results
        gate.release()
        if tasks:
            join(thread)
            assert results == [[]]
        if reused == 3:
            break
    else:
        assert reused, "the memory of a task was never used again"
    other.shutdown()
    pool.shutdown()
    """,
        env={"PYTHONMALLOC": "pymalloc"},  # gives memory that was freed again at once
    )


@attached
def test_without_a_gil_a_task_is_looked_at_and_decided_in_the_middle_of_its_end():
    """Cancel against start, observers and outside results against publication: one decides."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(1))
    observed = point.startswith("settle")
    started = point != "task-start"
    over = point.endswith("ed")
    def outside(task):
        try:
            task.set_result("outside")
        except InvalidStateError:
            return False
        return True
    for name in ("cancel", "callback", "set_result", "wait", "as_completed", "timeout", "drop"):
        if observed and name in ("cancel", "set_result"):
            continue  # they would wait for the condition that the worker holds
        parked(pool)
        called, results = [], []
        gate = threading.Lock()
        gate.acquire()
        with hold(point) as held:
            if started:
                task = pool.submit(lambda: gate.acquire() and "inside")
                eventually(task.running)
                if observed:
                    task.add_done_callback(lambda _: None)
                    task._condition
                gate.release()
            else:
                gate.release()
                task = pool.submit(lambda: gate.acquire() and "inside")
            held.reached()
            assert task.done() == over
            if name == "cancel":
                assert task.cancel() == (not started)
            elif name == "callback":
                task.add_done_callback(called.append)
                assert called == [task] * over
            elif name == "set_result":
                results.append(outside(task))
                assert results == [not over]
            elif name == "timeout":
                if not over:
                    try:
                        task.result(0.01)
                    except TimeoutError:
                        pass
                    else:
                        raise AssertionError
            elif name == "drop":
                del task
            else:
                waiting = {"wait": lambda: wait([task], WAIT, FIRST_COMPLETED),
                           "as_completed": lambda: next(as_completed([task], WAIT))}[name]
                thread = run(lambda: results.append(waiting()))
                time.sleep(0.005)
            held.let_go()
        if name == "drop":
            continue
        if name in ("wait", "as_completed"):
            join(thread)
            assert len(results) == 1
        if name == "cancel" and not started:
            assert task.cancelled()
        elif name == "set_result" and not over:
            assert task.result(WAIT) == "outside"
        else:
            assert task.result(WAIT) == "inside"
        if name == "callback":
            eventually(lambda: called == [task])
    assert pool.submit(abs, -1).result(WAIT) == 1
    pool.shutdown()
    """,
        point=["publish", "settle", "task-start", "published", "settled"],
    )


@attached
def test_without_a_gil_a_callback_is_added_while_the_task_ends():
    """Stopped before it is put in the list: it is called once, by whoever comes last."""
    check_points(
        """
    pool = filled(ThreadPoolExecutor(1))
    called = []
    gate = threading.Lock()
    gate.acquire()
    task = pool.submit(gate.acquire)
    eventually(task.running)
    with hold("observe") as held:
        thread = run(task.add_done_callback, called.append)
        held.reached()
        gate.release()
        eventually(task.done)
        assert called == []
        held.let_go()
        join(thread)
    assert called == [task]
    pool.shutdown()
    """
    )


@attached
def test_without_a_gil_a_collector_dies_while_a_task_is_posted_to_it():
    """The waker keeps what it posts to: the waiter's timeout passed and it is gone."""
    check_points(
        """
    for waiting in (lambda task: wait([task, Task()], 0.01, FIRST_COMPLETED),
                    lambda task: list(as_completed([task, Task()], 0.01))):
        pool = filled(ThreadPoolExecutor(1))
        gate = threading.Lock()
        gate.acquire()
        task = pool.submit(gate.acquire)
        eventually(task.running)
        with hold("settled") as held:
            def waiter():
                try:
                    waiting(task)
                except TimeoutError:
                    pass
            thread = run(waiter)
            time.sleep(0.002)
            gate.release()
            time.sleep(0.005)
            join(thread)
            held.let_go()
        assert task.result(WAIT)
        pool.shutdown()
    """
    )


# ---- everything at once, with delays at every point


def test_a_mix_with_random_delays_at_every_point():
    """Exactly once, nobody left asleep: interleavings that a fast machine does not show."""
    check_points(
        """
    chance = random.Random(seed)
    spin(seed % 2 == 0)
    workers, shards = chance.choice([(1, None), (2, None), (2, 2), (3, 2), (4, 4)])
    pool = ThreadPoolExecutor(workers, shards=shards)
    chaos(seed, yields=100, sleeps=12)
    ran = []
    def node(depth):
        ran.append(1)
        if depth == 0:
            return 1
        tasks = [pool.submit(node, depth - 1) for _ in range(2)]
        tasks += pool.submit_many(node, [depth - 1])
        if depth % 2:
            return 1 + sum(task.result(WAIT) for task in tasks)
        return 1 + sum(task.result(WAIT) for task in as_completed(tasks, WAIT))
    def produce(seed):
        chance = random.Random(seed)
        for n in range(25):
            kind = chance.randrange(6)
            if kind == 0:
                assert pool.submit(node, 3).result(WAIT) == 40
            elif kind == 1:
                tasks = [pool.submit(abs, -n) for n in range(chance.randrange(20))]
                for task in tasks[::2]:
                    task.cancel()
                wait(tasks, WAIT)
            elif kind == 2:
                assert list(pool.map(abs, range(10), timeout=WAIT)) == list(range(10))
            elif kind == 3:
                task = pool.submit(abs, -1)
                seen = threading.Event()
                task.add_done_callback(lambda _: seen.set())
                assert seen.wait(WAIT)
            elif kind == 4:
                assert wait([pool.submit(int) for _ in range(5)], WAIT, FIRST_COMPLETED).done
            else:
                time.sleep(chance.random() / 2000)
                assert pool.submit(abs, -n).result(WAIT) == n
    join(*[run(produce, seed * 10 + n) for n in range(3)])
    assert pool.wait_idle(WAIT)
    late = []
    def race():
        try:
            while True:
                late.append(pool.submit(int))
        except ShutdownError:
            pass
    thread = run(race)
    time.sleep(0.005)
    pool.shutdown()
    join(thread)
    assert all(task.done() for task in late)
    assert len(ran) % 40 == 0
    """,
        seed=range(1, 7),
    )
