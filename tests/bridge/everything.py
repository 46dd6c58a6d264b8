"""Calls every entry point of the C types once or twice, for a checker that is slow: valgrind.

    everything.py [NAME]

With a name, only that use of uses.py's kind: for planted faults.
"""

from __future__ import annotations

import contextvars
import gc
import logging
import sys
import threading
import weakref

sys.setswitchinterval(1e-3)

from affinitypool import (  # noqa: E402
    Task,
    ThreadPoolExecutor,
    as_completed,
    on_unobserved_error,
    wait,
)
from affinitypool._binding import core  # noqa: E402

logging.disable(logging.CRITICAL)
called: set[str] = set()


def use(it, name, *args, **kwargs):
    """Call a method, and note that it was; what it raises is swallowed."""
    called.add(f"{type(it).__name__}.{name}")
    try:
        return getattr(it, name)(*args, **kwargs)
    except Exception:
        return None


def test_batches():
    with ThreadPoolExecutor(2) as pool:
        pool.submit_many(abs, range(80))
        assert sum(pool.map(abs, range(80), buffersize=4)) == 3160

        def rows():
            yield 1
            raise KeyError

        use(pool, "_submit_rows", abs, rows(), False, True)
        use(pool, "_submit_rows", abs, iter([(1,), (2,)]), True, False)


def test_as_completed():
    tasks = [Task() for _ in range(3)]
    waiting = as_completed(tasks, 20)
    for task in tasks:
        task.set_result(None)
        assert next(waiting) is task
    completions, task = core.Completions(), Task()
    for name, args in [
        ("watch", (task,)),
        ("unwatch", (task,)),
        ("watch", (task,)),
        ("watch", (None,)),
        ("post", (1,)),
        ("get", ()),
        ("get", (0.001,)),
        ("get", ("x",)),
    ]:
        use(completions, name, *args)
    task.cancel()
    use(completions, "get", 1)


def tasks():
    def fail(*args):
        raise KeyError(args)

    on_unobserved_error(lambda task: None)
    variable = contextvars.ContextVar("variable")
    variable.set(1)
    gate = threading.Event()
    names = [name for name in dir(core.TaskBase) if not name.startswith("__")]
    with ThreadPoolExecutor(2, max_pending=50) as pool:
        holders = [pool.submit(gate.wait, 30) for _ in range(2)]
        made = [pool.submit(fail if n % 2 else abs, n, *(() if n % 3 else (1,))) for n in range(8)]
        made += [pool.try_submit(dict, a=n) for n in range(4)]
        for task in [*made, Task(), holders[0]]:
            for name in names:
                value = getattr(task, name)
                if not callable(value):
                    called.add(f"Task.{name}")
                    continue
                if name in ("result", "exception"):
                    use(task, name, 0)
                    use(task, name, timeout=0.001)
                elif (
                    (task in made[:8] and name in ("cancel", "_take_call"))
                    or (task in made[:8] and name.startswith("set_"))
                    or (task is holders[0] and name in ("cancel", "set_result", "set_exception"))
                ):
                    continue
                else:
                    use(task, name)
                    use(task, name, KeyError(1))
                repr(task)
        use(made[7], "_take_call")
        gate.set()
        assert wait(made[:7], 20).not_done == set()
        del made, holders, task
        nested = pool.submit(lambda: pool.submit(abs, -1).result(20))
        assert nested.result(20) == 1
        pool.submit(fail).exception(20)
        pool.submit(fail)
    cycle = Task()
    cycle.me = cycle
    cycle.add_done_callback(lambda t: fail())
    cycle.set_exception(KeyError(cycle))
    death = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert death() is None
    on_unobserved_error(None)


def conditions():
    task = Task()
    condition = task._condition
    for name in [name for name in dir(condition) if not name.startswith("__")]:
        for args in ((), (1,), (0.001,), (True, 0.001), (lambda: True,), (lambda: False, 0.001)):
            if name == "wait" and not args:
                continue
            with condition:
                use(condition, name, *args)
                if name == "acquire":
                    condition.release()
                if name == "release":
                    condition.acquire()
            if name != "acquire":
                use(condition, name, *args)

    def other():
        with condition:
            condition.notify_all()

    thread = threading.Thread(target=other)
    with condition:
        thread.start()
        condition.wait(20)
    thread.join()


def cores():
    pool = ThreadPoolExecutor(1, initializer=lambda: None, on_full="raise", max_pending=40)
    gate = threading.Event()
    pool.submit(gate.wait, 30)
    queued = [pool.submit(abs, n) for n in range(6)]
    it = pool._core
    for name in [name for name in dir(it) if not name.startswith("__")]:
        if not callable(getattr(it, name)):
            called.add(f"Core.{name}")
        elif name not in ("close", "cancel_pending", "started_add", "fault_end_workers"):
            for args in ((), ([],), (0,), (KeyError(1), []), (None, None, None)):
                use(it, name, *args)
    use(it, "started_add", 0)
    use(it, "fault_end_workers", 0)
    gate.set()
    pool.wait_idle(20)
    pool.stats()
    pool.shutdown_now()
    use(it, "cancel_pending", True)
    use(it, "close")
    del queued
    core.Core(3, 2, 1, True, 5, 1, 8, 2**40)
    entry = core.Entry(core.Core(1), Task(), Task(), abs)
    use(entry, "__call__")
    del entry
    dropped = ThreadPoolExecutor(2, propagate_context=False)
    dropped.submit_many(abs, range(20))
    del dropped


def functions():
    for name, args in [
        ("seconds", (1,)),
        ("seconds", ("x",)),
        ("set_initial_context", (1,)),
        ("set_initial_context", ((),)),
        ("wait_all", ([Task()], 0.001)),
        ("wait_all", ([1], None)),
        ("watch_unobserved", (Task,)),
        ("watch_unobserved", (int,)),
        ("configure", ()),
        ("set_main_thread", (threading.main_thread().ident,)),
        ("set_exiting", (False,)),
        ("in_worker", ()),
        ("is_exiting", ()),
        ("is_starting", ()),
        ("worker_exception", ()),
    ]:
        called.add(name)
        try:
            getattr(core, name)(*args)
        except Exception as error:
            del error
    core.ffi.string(core.lib.ap_parking_backend())


def missing() -> list[str]:
    """Return the entry points that nothing above has called."""
    wanted = {
        name for name in dir(core) if type(getattr(core, name)).__name__.startswith("builtin")
    }
    for kind, name in [(core.Core, "Core"), (core.Condition, "Condition")]:
        wanted |= {f"{name}.{each}" for each in vars(kind) if not each.startswith("__")}
    wanted |= {f"Completions.{each}" for each in vars(core.Completions) if each[0] != "_"}
    wanted |= {f"Task.{each}" for each in vars(core.TaskBase) if not each.startswith("__")}
    return sorted(wanted - called)


if sys.argv[1:]:
    globals()[sys.argv[1]]()
else:
    for each in (tasks, test_batches, test_as_completed, conditions, cores, functions):
        each()
        print(each.__name__, flush=True)
    if left := missing():
        sys.exit(f"not called: {left}")
