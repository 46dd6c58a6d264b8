"""Faults that are planted in a copy of csrc, to show that the checks of the bridge find such.

Each is a replacement of text that is there once.  All are in one build; `AFFINITYPOOL_PLANTED=name`
in the environment switches one on.  tools/bridge.py runs them.
"""

from __future__ import annotations

from typing import NamedTuple

# It comes before what the sources define for the C library's headers, so it includes none.
HEADER = """
extern char *getenv(const char *);
extern int strcmp(const char *, const char *);
static inline int ap_planted(const char *name) {
    const char *planted = getenv("AFFINITYPOOL_PLANTED");
    return planted && !strcmp(planted, name);
}
"""


class Fault(NamedTuple):
    """One fault: where, what, and who has to find it by which words."""

    name: str
    file: str  # below csrc
    text: str
    faulty: str
    use: str  # the test of uses.py, or "everything"
    finds: dict[str, str]  # check: what it has to print, a regular expression
    builds: str = "all"  # "gil", "free": what it can be seen on


FAULTS = [
    # ---- references
    Fault(
        "a reference to each result too many",
        "python/run.c",
        "    task->outcome = result;\n",
        '    task->outcome = ap_planted("a reference to each result too many")'
        " ? Py_NewRef(result) : result;\n",
        "test_results",
        {"leaks": r"types whose objects became more: .*uses\.Thing \+"},
    ),
    Fault(
        "a reference is kept where set_exception refuses",
        "python/future.c",
        "                     Py_TYPE(outcome)->tp_name);\n        Py_DECREF(outcome);\n",
        "                     Py_TYPE(outcome)->tp_name);\n"
        '        if (!ap_planted("a reference is kept where set_exception refuses"))\n'
        "            Py_DECREF(outcome);\n",
        "test_refusals",
        {"leaks": r"types whose objects became more: .*uses\.Thing \+"},
    ),
    Fault(
        "the list of tasks is kept where an iterator raises",
        "python/batch.c",
        "    batch_free(&self);\n    Py_DECREF(self.tasks);\n    return NULL;\n",
        "    batch_free(&self);\n"
        '    if (!ap_planted("the list of tasks is kept where an iterator raises"))\n'
        "        Py_DECREF(self.tasks);\n    return NULL;\n",
        "test_failing_batches",
        {"leaks": r"Task: \+[\s\S]*types whose objects became more: .*builtins\.list \+"},
    ),
    Fault(
        "a condition keeps its type",
        "python/condition.c",
        "    type->tp_free(op);\n    Py_DECREF(type);\n",
        '    type->tp_free(op);\n    if (!ap_planted("a condition keeps its type"))\n'
        "        Py_DECREF(type);\n",
        "test_observers",
        {"leaks": r"Condition: \+"},
        "gil",  # without one, types are not counted
    ),
    Fault(
        "an untracked object is leaked",
        "python/completions.c",
        "            Py_RETURN_NONE;\n        PyObject *done = take_done(self);\n",
        "            Py_RETURN_NONE;\n"
        '        if (ap_planted("an untracked object is leaked"))\n'
        "            (void)PyBytes_FromStringAndSize(NULL, 40);\n"
        "        PyObject *done = take_done(self);\n",
        "test_as_completed",
        {"leaks": r"blocks: \+[\s\S]*none that the collector knows"},
    ),
    Fault(
        "the arguments of a cancelled task are kept",
        "python/run.c",
        "    Py_XDECREF(fn);\n    Py_XDECREF(args);\n",
        "    Py_XDECREF(fn);\n"
        '    if (!ap_planted("the arguments of a cancelled task are kept"))\n'
        "        Py_XDECREF(args);\n",
        "tests/test_lifetimes.py::test_cancels_race_starts",
        {"lifetimes": r"AssertionError: [0-9]+ live on"},
    ),
    Fault(
        "a count is merged wrongly",
        "python/run.c",
        "                           (Py_ssize_t)object->ob_ref_local;\n",
        "                           (Py_ssize_t)object->ob_ref_local +\n"
        '                           ap_planted("a count is merged wrongly");\n',
        "tests/test_lifetimes.py::test_arguments_and_results_dropped_from_everywhere",
        {"lifetimes": r"AssertionError|live on"},
        "free",
    ),
    Fault(
        "a task is kept where an interrupt strikes a batch",
        "python/batch.c",
        "            if (!none) {\n                ap__task_unqueue(task);\n",
        "            if (!none) {\n"
        '                if (!ap_planted("a task is kept where an interrupt strikes a batch"))\n'
        "                    ap__task_unqueue(task);\n",
        "tests/test_submit_many.py::test_what_strikes_between_items_leaves_nothing_behind",
        {"leaks": r"AssertionError: assert <helpers\.Probe"},
    ),
    Fault(
        "a task is kept where a push is refused",
        "python/pool.c",
        "    if (code < 0) {\n        ap__task_unqueue(task);\n",
        "    if (code < 0) {\n"
        '        if (!ap_planted("a task is kept where a push is refused"))\n'
        "            ap__task_unqueue(task);\n",
        "tests/test_core_binding.py::test_a_push_that_is_refused_leaves_nothing_behind",
        {"leaks": r"AssertionError: assert <.*Call object"},
    ),
    Fault(
        "a core keeps what it has collected",
        "python/core.c",
        "        Py_CLEAR(self->cancelled);\n",
        '        if (!ap_planted("a core keeps what it has collected"))\n'
        "            Py_CLEAR(self->cancelled);\n",
        "tests/test_core_binding.py::test_a_core_lets_go_of_what_it_has_collected",
        {"leaks": r"AssertionError: assert <Task"},
    ),
    # ---- counts and places
    Fault(
        "an entry that dies keeps the place",
        "python/home.c",
        "    if (!unstarted && ap__task_start(self->fate)) {\n",
        '    if (!unstarted && !ap_planted("an entry that dies keeps the place") &&\n'
        "        ap__task_start(self->fate)) {\n",
        "tests/test_core_binding.py::test_an_entry_that_dies_in_its_thread_gives_the_place_up",
        {"debug": r"TimeoutError"},
    ),
    Fault(
        "a thread that comes too late does not count what it runs",
        "python/worker.c",
        "    if (first && !is_worker && !left)\n",
        "    if (first && !is_worker && !left &&\n"
        '        !ap_planted("a thread that comes too late does not count what it runs"))\n',
        "tests/faults/test_shutdown.py::test_a_thread_that_begins_after_the_end_counts_what_it_runs",
        {"debug": r"where False = wait_idle"},
    ),
    Fault(
        "a thread that is replaced counts as begun",
        "python/worker.c",
        "        ap_u32_sub_relaxed(&self->core->begun, 1);",
        '        if (!ap_planted("a thread that is replaced counts as begun"))\n'
        "            ap_u32_sub_relaxed(&self->core->begun, 1);",
        "tests/faults/test_death_watch.py"
        "::test_a_thread_is_promised_a_task_also_after_others_were_replaced",
        {"debug": r"CancelledError"},
    ),
    Fault(
        "a wait lets go of a lock that is not its own",
        "python/condition.c",
        "        Py_DECREF(result);\n"
        '        if (!check_owned(op, "cannot wait on un-acquired lock"))\n',
        "        Py_DECREF(result);\n"
        '        if (!ap_planted("a wait lets go of a lock that is not its own") &&\n'
        '            !check_owned(op, "cannot wait on un-acquired lock"))\n',
        "tests/test_task.py::test_a_predicate_that_lets_go_of_the_condition",
        {"debug": r"DID NOT RAISE"},
    ),
    # ---- memory of the C library
    Fault(
        "an observer is not freed",
        "python/observe.c",
        "    Py_XDECREF(observer->traceback);\n    free(observer);\n",
        "    Py_XDECREF(observer->traceback);\n"
        '    if (!ap_planted("an observer is not freed"))\n        free(observer);\n',
        "test_observers",
        {"leaks": r"heap: \+"},
    ),
    Fault(
        "a core is not used again",
        "python/core.c",
        "            core->pool = NULL;\n            core_recycle(core);\n",
        "            core->pool = NULL;\n"
        '            if (!ap_planted("a core is not used again"))\n'
        "                core_recycle(core);\n",
        "test_pools",
        {"leaks": r"heap: \+"},
    ),
    # ---- memory of the interpreter
    Fault(
        "a write past the end",
        "python/batch.c",
        "    self->waiting = waiting;\n    self->room = room;\n",
        "    self->waiting = waiting;\n    self->room = room;\n"
        '    if (ap_planted("a write past the end"))\n'
        "        *(volatile char *)(waiting + room) = 1;\n",
        "test_batches",
        {
            "debug": r"bad trailing pad byte",
            "asan": r"heap-buffer-overflow",
            "memcheck": r"InvalidWrite",
        },
    ),
    Fault(
        "a use after free",
        "python/completions.c",
        "    completions_clear(op);\n    type->tp_free(op);\n    Py_DECREF(type);\n",
        "    completions_clear(op);\n    type->tp_free(op);\n"
        '    Py_DECREF(ap_planted("a use after free") ? Py_TYPE(op) : type);\n',
        "test_as_completed",
        {
            "debug": r"Fatal Python error: (Segmentation fault|Bus error)",
            "asan": r"heap-use-after-free",
            "memcheck": r"InvalidRead",
        },
    ),
    Fault(
        "freed twice",
        "python/batch.c",
        "    batch_drop(self);\n    PyMem_Free(self->waiting);\n",
        "    batch_drop(self);\n    PyMem_Free(self->waiting);\n"
        '    if (ap_planted("freed twice"))\n        PyMem_Free(self->waiting);\n',
        "test_batches",
        {"debug": r"bad ID|Debug memory block", "asan": r"double-free", "memcheck": r"InvalidFree"},
    ),
    Fault(
        "an allocation without the interpreter",
        "python/core.c",
        "        Py_BEGIN_ALLOW_THREADS(void) ap_pool_wait_quiet(core->pool, until);\n",
        "        Py_BEGIN_ALLOW_THREADS\n"
        '        if (ap_planted("an allocation without the interpreter"))\n'
        "            PyMem_Free(PyMem_Malloc(1));\n"
        "        (void)ap_pool_wait_quiet(core->pool, until);\n",
        "test_wait_idle",
        {"debug": r"without holding the GIL"},
    ),
    Fault(
        "a field without a value",
        "python/completions.c",
        "    uint64_t deadline;\n    bool past;\n"
        '    if (!PyArg_ParseTuple(args, "|O", &timeout))\n        return NULL;\n',
        "    uint64_t deadline;\n    bool past;\n"
        '    if (ap_planted("a field without a value")) {\n'
        "        volatile int *unset = PyMem_RawMalloc(sizeof *unset);\n"
        "        if (unset && *unset == 77)\n            Py_RETURN_NONE;\n"
        "        PyMem_RawFree((void *)unset);\n    }\n"
        '    if (!PyArg_ParseTuple(args, "|O", &timeout))\n        return NULL;\n',
        "test_as_completed",
        {"memcheck": r"UninitCondition"},
    ),
    Fault(
        "a shift that is undefined",
        "python/future.c",
        "    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;\n    *out = NULL;\n",
        "    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;\n    *out = NULL;\n"
        '    if (ap_planted("a shift that is undefined"))\n'
        "        nkw += (1 << (int)(nargs + 40)) & 0;\n",
        "test_results",
        {"asan": r"runtime error: shift exponent"},
    ),
]
