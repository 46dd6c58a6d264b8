"""`_core`: what cffi was given, and the C types behind the package."""

from __future__ import annotations

import _thread
import concurrent.futures
import importlib.util
import re
import threading
import time
import weakref

import pytest
from helpers import HAS_GIL, ROOT, check_python, eventually

import affinitypool
from affinitypool import Task, ThreadPoolExecutor
from affinitypool._binding import core, ffi, lib

pytestmark = pytest.mark.timeout(30)


def cdef():
    """Cut the declarations out of the headers, as the build does."""
    spec = importlib.util.spec_from_file_location("build_ffi", ROOT / "build_ffi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: module.declarations(ROOT / "csrc" / name) for name in module.HEADERS}, module


def test_every_declared_function_and_constant_is_in_the_library():
    texts, _ = cdef()
    text = re.sub(r"/\*.*?\*/", "", "\n".join(texts.values()), flags=re.DOTALL)
    functions = re.findall(r"^\w[\w *]*?\b(ap_\w+)\(", text, re.MULTILINE)
    constants = dict(re.findall(r"^#define (AP_\w+) (-?\d+)$", text.replace(" \n", "\n"), re.M))
    constants |= dict(re.findall(r"^#define (AP_\w+) (-?\d+)\s*$", text, re.MULTILINE))
    assert len(functions) >= 8
    assert len(constants) >= 8
    for name in functions:
        assert callable(getattr(lib, name)), name
    for name, value in constants.items():
        assert getattr(lib, name) == int(value), name
    assert set(functions) | set(constants) == set(dir(lib))


def test_structs_have_the_declared_fields():
    texts, _ = cdef()
    for name, body in re.findall(
        r"typedef struct (\w+) \{(.*?)\} \1;", texts["affinitypool.h"], re.DOTALL
    ):
        fields = re.findall(r"(uint\d+_t) (\w+);", body)
        assert fields
        assert [(f.type.cname, n) for n, f in ffi.typeof(name).fields] == fields


def test_a_header_without_marks_is_an_error(tmp_path):
    _, module = cdef()
    header = tmp_path / "bare.h"
    header.write_text("int f(void);\n")
    with pytest.raises(ValueError, match="no text between cdef marks"):
        module.declarations(header)


def test_the_version_of_the_limits():
    assert lib.AP_MAX_WORKERS == affinitypool.MAX_WORKERS == 512


def test_the_parking_backend_has_a_name():
    assert ffi.string(lib.ap_parking_backend()) in (b"futex", b"condvar")


def test_the_clock_is_the_monotonic_one():
    before = time.monotonic_ns()
    now = lib.ap_clock_now()
    assert before <= now <= time.monotonic_ns()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_workers": 0},
        {"max_workers": 513},
        {"max_workers": 1, "ring_slots": 3},
        {"max_workers": 1, "ring_slots": 1},
        {"max_workers": 1, "ring_slots": 512},
    ],
)
def test_a_pool_with_bad_options_is_refused(options):
    out = ffi.new("ap_pool **")
    assert lib.ap_pool_new(ffi.new("ap_pool_options *", options), out) == lib.AP_E_INVALID


def test_a_pool_by_hand():
    out = ffi.new("ap_pool **")
    options = ffi.new("ap_pool_options *", {"max_workers": 5, "shards": 3})
    assert lib.ap_pool_new(options, out) == lib.AP_OK
    pool, stats = out[0], ffi.new("ap_pool_stats *")
    lib.ap_pool_read_stats(pool, stats)
    assert (stats.max_workers, stats.shards, stats.workers, stats.closed) == (5, 4, 0, 0)
    assert lib.ap_pool_is_closed(pool) == 0
    assert lib.ap_pool_pending(pool) == 0
    lib.ap_pool_retain(pool)
    lib.ap_pool_release(pool)
    lib.ap_pool_close(pool)
    assert lib.ap_pool_is_closed(pool) == 1
    lib.ap_pool_release(pool)


# ---- the C types


def test_core_refuses_bad_sizes():
    for workers in (0, 513):
        with pytest.raises(ValueError):
            core.Core(workers)
    for bad in ("2", None, 1.5):
        with pytest.raises(TypeError):
            core.Core(bad)


def test_a_core_closes_and_takes():
    pool = core.Core(2)
    assert (pool.pending, pool.started) == (0, 0)
    assert not pool.take_into([])
    assert pool.cancel_pending(False) is None
    pool.close()
    pool.close()


def test_a_thread_too_many_leaves_no_promise_behind():
    """One that finds every worker's slot taken was promised a task all the same."""
    with ThreadPoolExecutor(1) as pool:
        gate = threading.Event()
        running, promised = pool.submit(gate.wait, 20), pool.submit(int)
        assert eventually(running.running)
        pool._core.started_add(1)
        pool._core.cancel_pending(False)
        assert not promised.done()  # it waits for the other thread
        address = ffi.cast("void *", pool._core.address)
        thread = threading.Thread(target=lib.ap_python_worker_run, args=[address])
        thread.start()
        thread.join(10)
        gate.set()
        assert eventually(promised.done)
        pool._core.started_add(-1)


def test_cores_are_used_again():
    """The memory of a core stays one, so its count is that of the pools alive at once."""
    out = check_python(
        """
        from affinitypool import ThreadPoolExecutor
        from pathlib import Path
        rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        def use(count):
            for _ in range(count):
                with ThreadPoolExecutor(2) as pool:
                    pool.submit(int).result()
        use(100)
        before = rss()
        use(400)
        print(rss() - before)
        """
    )
    assert int(out) < 2 << 20


def test_in_worker_tells_whether_a_thread_is_a_worker(one, two):
    assert core.in_worker() is False
    assert one.submit(core.in_worker).result(10) is True
    assert one.submit(one._core.is_home).result(10) is True
    assert one.submit(two._core.is_home).result(10) is False
    thread_result = []
    thread = threading.Thread(target=lambda: thread_result.append(core.in_worker()))
    thread.start()
    thread.join()
    assert thread_result == [False]


@pytest.mark.parametrize("name", ["Condition", "Core", "Completions"])
def test_c_types_are_what_they_say(name):
    kind = getattr(core, name)
    assert kind.__module__ == "affinitypool._core"
    with pytest.raises(TypeError):
        kind.anything = 1


def test_a_condition_is_not_made_by_hand():
    with pytest.raises(TypeError):
        core.Condition()


def test_completions_watch_tasks_only(one):
    collector = core.Completions()
    for bad in (None, 5, concurrent.futures.Future()):
        with pytest.raises(TypeError):
            collector.watch(bad)
        with pytest.raises(TypeError):
            collector.unwatch(bad)
        with pytest.raises(TypeError):
            core.wait_all([bad], 0)
    with pytest.raises(TypeError):
        core.wait_all((), None)
    task = one.submit(int)
    task.result(10)
    assert collector.watch(task) is False
    assert collector.get(0) == []
    assert core.wait_all([task], 0) is True


def test_bases_follow_the_stdlib():
    assert issubclass(core.PoolBase, object)
    assert affinitypool.Task.__mro__[1:3] == (core.TaskBase, concurrent.futures.Future)
    assert ThreadPoolExecutor.__mro__[2] is core.PoolBase


def test_one_bind_is_enough():
    before = core.TaskBase
    affinitypool._binding._bind()
    assert core.TaskBase is before


def test_sys_modules_says_the_free_threaded_build_keeps_the_gil_off():
    out = check_python(
        """
        import sys
        check = getattr(sys, "_is_gil_enabled", lambda: True)
        before = check()
        import affinitypool
        print(before == check())
        """,
        options=("-W", "error"),
    )
    assert out == "True\n"


@pytest.mark.parametrize("bound", [None, 2])
def test_a_push_that_is_refused_leaves_nothing_behind(bound):
    """The pool is closed between the look whether it takes tasks and the push."""

    class Call:
        def __call__(self):
            raise AssertionError("it was refused")

    pool = ThreadPoolExecutor(1, max_pending=bound)
    lib.ap_pool_close(ffi.cast("ap_pool *", pool._core.pool_address))
    call = Call()
    death = weakref.ref(call)
    for _ in range(5):
        with pytest.raises(RuntimeError, match="cannot schedule new futures"):
            pool.submit(call)
    if bound is None:
        with pytest.raises(RuntimeError, match="cannot schedule new futures"):
            pool.submit_many(call, range(3))
    del call
    assert death() is None
    assert pool.shutdown()


def test_an_entry_that_dies_in_its_thread_gives_the_place_up():
    """As when memory runs out before a new thread has come to its first line."""
    it, fate, gone = core.Core(1), Task(), Task()
    it.started_add(1)
    entries = [core.Entry(it, fate, gone, abs)]
    thread = threading.Thread(target=entries.clear)
    thread.start()
    thread.join()
    assert gone.result(10) is True
    assert fate.running()
    assert it.started == 0
    with pytest.raises(TypeError):  # in its maker's thread: the start fails, who sees to it
        _thread.start_new_thread(core.Entry(it, Task(), Task(), abs), None)
    assert it.started == 0
    if not HAS_GIL:  # the maker lets go last: it was started, as nothing is raised
        it.started_add(1)
        core.Entry(it, Task(), gone := Task(), abs)
        assert gone.result(10) is True
        assert it.started == 0


def test_a_core_lets_go_of_what_it_has_collected():
    it, task = core.Core(1), Task()
    it.cancel_pending(True)
    it.give_cancelled([task])
    death = weakref.ref(task)
    del it, task
    assert death() is None


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", "affinitypool._core is not built for this Python in "),
        ("no library", "_core.so: "),
        ("it imports what is not there", "No module named 'not_there'"),
    ],
)
def test_a_core_that_cannot_be_imported_says_why(tmp_path, how, words):
    package = tmp_path / "affinitypool"
    package.mkdir()
    for file in (ROOT / "affinitypool").glob("*.py"):
        (package / file.name).write_bytes(file.read_bytes())
    if how == "no library":
        (package / "_core.so").write_bytes(b"no library")
    elif how != "missing":
        (package / "_core.py").write_text("import not_there\n")
    out = check_python(
        """
        import sys
        # that of an editable install finds the real _core
        sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each)]
        try:
            import affinitypool
        except ImportError as error:
            print(error)
        """,
        PYTHONPATH=str(tmp_path),
        options=("-P",),
    )
    assert words in out
    assert ("is not built" in out) == (how == "missing")
