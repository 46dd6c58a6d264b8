/* The core of a Python pool: what the pool object, its workers and its tasks share.
 *
 * Overview.  A `_core.Core` object owns the scheduler pool and an ap_core.  The pool object and
 * each worker thread hold the Core; tasks hold a bare pointer to the ap_core.  A task may
 * outlive its pool, and a thread that waits for a task may look at the ap_core just as the last
 * worker leaves.  So the memory of an ap_core stays an ap_core for ever: it goes to a free list
 * and serves the next pool.  A stale reader sees another pool's hints, or compares a task's
 * pool with its own and finds them equal although they were not; it then tries to start a task
 * that is done, which fails.  What is more than a hint (seen_idle, start.c) is only changed by a
 * task of the core's present generation.  There are as many ap_cores as there were pools
 * at once, and one more for each 65,536 pools in turn.
 */
#include "bridge.h"

#include <stdlib.h>

PyTypeObject *ap__core_type;

static ap_core *free_cores;      /* guarded by the type's critical section */
static ap_atomic_ptr made_cores; /* all; grows only, in the critical section */

static ap_core *core_acquire(void) {
    ap_core *core;
    Py_BEGIN_CRITICAL_SECTION(ap__core_type);
    core = free_cores;
    if (core)
        free_cores = core->next_free;
    Py_END_CRITICAL_SECTION();
    if (core) {
        core->generation++;
    } else {
        core = aligned_alloc(AP_LINE, sizeof *core);
        if (core) {
            core->generation = 0;
#ifdef Py_GIL_DISABLED
            ap_u32_store_relaxed(&core->pins, 0);
#endif
            Py_BEGIN_CRITICAL_SECTION(ap__core_type);
            core->next_made = ap_ptr_load_relaxed(&made_cores);
            /* release pairs with the load below: a child that another thread forks now finds the
             * list whole */
            ap_ptr_store_release(&made_cores, core);
            Py_END_CRITICAL_SECTION();
        }
    }
    return core;
}

void ap__core_orphan_all(void) {
    /* pairs with the store in core_acquire: what the list holds is whole */
    for (ap_core *core = ap_ptr_load_acquire(&made_cores); core; core = core->next_made) {
        ap_u32_or_relaxed(&core->leave, AP_ORPHANED);
        ap_u32_store_relaxed(&core->refuse, 1);
#ifdef Py_GIL_DISABLED
        ap_u32_store_relaxed(&core->pins, 0); /* who held them is not here */
#endif
    }
}

static void core_recycle(ap_core *core) {
    if (core->generation == UINT16_MAX)
        return; /* set aside, so that no generation comes twice */
    Py_BEGIN_CRITICAL_SECTION(ap__core_type);
    core->next_free = free_cores;
    free_cores = core;
    Py_END_CRITICAL_SECTION();
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"max_workers", "shards",     "cpus",        "isolated", "max_pending",
                            "on_full",     "ring_slots", "first_index", NULL};
    unsigned int max_workers, shards = 0, cpus = 0, max_pending = 0, on_full = AP_FULL_BLOCK;
    unsigned int ring_slots = 0;
    unsigned long long first_index = 0;
    int isolated = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "I|IIpIIIK", names, &max_workers, &shards, &cpus,
                                     &isolated, &max_pending, &on_full, &ring_slots, &first_index))
        return NULL;
    ap_core_object *self = (ap_core_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    ap_core *core = core_acquire();
    if (!core) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    ap_pool *pool;
    ap_pool_options options = {.max_workers = max_workers,
                               .shards = shards,
                               .in_order = shards <= 1,
                               .cpus = cpus,
                               .ring_slots = ring_slots,
                               .first_index = first_index};
    int code = ap_pool_new(&options, &pool);
    if (code < 0) {
        core_recycle(core);
        Py_DECREF(self);
        if (code == AP_E_NOMEM)
            return PyErr_NoMemory();
        return PyErr_Format(PyExc_ValueError,
                            "max_workers must be from 1 to %d, ring_slots a power of two from 2 to "
                            "256",
                            AP_MAX_WORKERS);
    }
    core->pool = pool;
    core->max_workers = max_workers;
    core->isolated = isolated;
    core->cpus = cpus ? cpus : ap_cpu_count();
    core->max_pending = max_pending;
    core->on_full = (ap_on_full)on_full;
    ap_u32_store_relaxed(&core->pending, 0);
    ap_u32_store_relaxed(&core->blocked, 0);
    ap_u32_store_relaxed(&core->leave, 0);
    ap_u32_store_relaxed(&core->refuse, 0);
    ap_u32_store_relaxed(&core->cancelling, 0);
    ap_u32_store_relaxed(&core->started, 0);
    ap_u32_store_relaxed(&core->begun, 0);
    ap_u64_store_relaxed(&core->idled, 0);
    ap_u64_store_relaxed(&core->counted_on, 0);
    ap_u64_store_relaxed(&core->seen_idle, 0);
#ifdef Py_GIL_DISABLED
    ap_u32_store_relaxed(&core->busy, 0);
#endif
    ap_u32_store_relaxed(&core->spin_credit, 4);
    ap_u32_store_relaxed(&core->pauses, 0);
    ap_u32_store_relaxed(&core->blind, 0);
    ap_u32_store_relaxed(&core->waits, 0);
    self->core = core;
    return (PyObject *)self;
}

static void core_dealloc(PyObject *op) {
    ap_core_object *self = (ap_core_object *)op;
    PyTypeObject *type = Py_TYPE(op);
    ap_core *core = self->core;
    if (core && !ap__core_is_orphaned(core)) { /* its queues are the parent's otherwise */
        PyObject *error_type, *error, *traceback;
        PyErr_Fetch(&error_type, &error, &traceback);
        ap_pool_close(core->pool);
        ap__core_cancel_queued(self); /* no worker is left, and nobody can add one */
        ap_u32_store_relaxed(&core->begun, ap_u32_load_relaxed(&core->started));
        ap__core_trim_promised(self);
        Py_CLEAR(self->promised);
        Py_CLEAR(self->cancelled);
#ifdef Py_GIL_DISABLED
        /* acquire pairs with ap__bound_unpin; that a pin is seen at all: ap__bound_pin */
        while (ap_u32_load_seq_cst(&core->pins))
            ap_cpu_yield();
#endif
        if (!ap__core_is_orphaned(core)) { /* a callback of what was cancelled may have forked */
            ap_pool_release(core->pool);
            core->pool = NULL;
            core_recycle(core);
        }
        PyErr_Restore(error_type, error, traceback);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

void ap__core_close(ap_core *core) {
    /* release pairs with `refuse` in pool.c: orders why (`_shutdown`, `_broken`) before it */
    ap_u32_store_release(&core->refuse, 1);
    AP_POINT("core-close");
    ap_pool_close(core->pool);
    ap__bound_close(core);
}

static PyObject *core_close(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    ap__core_close(((ap_core_object *)op)->core);
    Py_RETURN_NONE;
}

/* wait_quiet(timeout): whether everything that was submitted has ended. */
static PyObject *core_wait_quiet(PyObject *op, PyObject *timeout) {
    ap_core *core = ((ap_core_object *)op)->core;
    uint64_t deadline;
    bool past;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    if (ap__home == core) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a task cannot wait for its own pool to be idle: it would wait for itself");
        return NULL;
    }
    for (unsigned sleeps = 0;; sleeps++) {
        if (ap_pool_is_quiet(core->pool))
            Py_RETURN_TRUE;
        if (sleeps && PyErr_CheckSignals() < 0)
            return NULL;
        if (ap__core_is_orphaned(core)) /* a signal handler has forked: all reads as cancelled */
            Py_RETURN_TRUE;
        if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
            Py_RETURN_FALSE;
        uint64_t until = ap__sleep_until(deadline, sleeps);
        Py_BEGIN_ALLOW_THREADS(void) ap_pool_wait_quiet(core->pool, until);
        Py_END_ALLOW_THREADS
    }
}

/* The next `count` workers that look for a task return from their loop, as by a fault. */
static PyObject *core_fault_end_workers(PyObject *op, PyObject *count) {
    unsigned long value = PyLong_AsUnsignedLong(count);
    if (PyErr_Occurred())
        return NULL;
    ap_u32_add_relaxed(&((ap_core_object *)op)->core->leave, (uint32_t)value & 0xffff);
    Py_RETURN_NONE;
}

static PyObject *core_started_add(PyObject *op, PyObject *arg) {
    ap_core *core = ((ap_core_object *)op)->core;
    long delta = PyLong_AsLong(arg);
    if (delta == -1 && PyErr_Occurred())
        return NULL;
    /* seq_cst as the other changes of this word: see ap__core_has_no_threads */
    ap_u32_add_seq_cst(&core->started, (uint32_t)delta);
    Py_RETURN_NONE;
}

static PyObject *core_pending(PyObject *op, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(ap_pool_pending(((ap_core_object *)op)->core->pool));
}

static PyObject *core_address(PyObject *op, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(op);
}

static PyObject *core_pool_address(PyObject *op, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(((ap_core_object *)op)->core->pool);
}

static PyObject *core_blocked(PyObject *op, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong(ap_u32_load_relaxed(&((ap_core_object *)op)->core->blocked));
}

static PyObject *core_leave(PyObject *op, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong(ap_u32_load_relaxed(&((ap_core_object *)op)->core->leave));
}

static PyObject *core_started(PyObject *op, void *Py_UNUSED(closure)) {
    /* acquire pairs with who gives a place up (home.c, start.c): orders its end before our look at
     * what is pending, in _joining.py */
    return PyLong_FromUnsignedLong(ap_u32_load_acquire(&((ap_core_object *)op)->core->started));
}

static PyMethodDef core_methods[] = {
    {"close", core_close, METH_NOARGS, "Refuse further tasks; workers leave once all ran."},
    {"cancel_pending", ap__core_cancel_pending, METH_O,
     "Cancel every queued task, and every one that a worker takes from now on; collect them?"},
    {"take_cancelled", ap__core_take_cancelled, METH_O, "Move what was collected into a list."},
    {"give_cancelled", ap__core_give_cancelled, METH_O, "Give a list of them back."},
    {"wait_quiet", core_wait_quiet, METH_O, "Wait until all has ended; False on timeout."},
    {"fail_next", ap__core_fail_next, METH_VARARGS,
     "Take one queued task out of the queue and fail it; False if there is none."},
    {"take_into", ap__core_take_into, METH_O, "Take one queued task out, to the end of a list."},
    {"exit", ap__home_exit, METH_NOARGS,
     "The calling thread is no longer a worker thread, and its place is settled."},
    {"leave_home", ap__home_leave, METH_NOARGS,
     "The calling thread is no longer one of this core's, but holds its place until it ends."},
    {"is_home", ap__home_is, METH_NOARGS, "Whether the calling thread is one of this core's."},
    {"lose_worker", ap__home_lose, METH_NOARGS,
     "The calling worker thread is gone for good, unless its place is settled: False."},
    {"fault_end_workers", core_fault_end_workers, METH_O,
     "For tests: the next so many workers that look for a task return from their loop."},
    {"started_add", core_started_add, METH_O, "For tests: correct the count of worker threads."},
    {NULL, NULL, 0, NULL},
};

static PyObject *core_is_orphaned(PyObject *op, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(ap__core_is_orphaned(((ap_core_object *)op)->core));
}

static PyGetSetDef core_getset[] = {
    {"is_orphaned", core_is_orphaned, NULL, "Whether it is the parent's: fork.c.", NULL},
    {"pending", core_pending, NULL, "Tasks queued and not taken by a worker.", NULL},
    {"blocked", core_blocked, NULL, "Threads that wait for a place: max_pending.", NULL},
    {"leave", core_leave, NULL, "Workers that fault_end_workers has yet to end.", NULL},
    {"address", core_address, NULL, "What ap_python_worker_run takes.", NULL},
    {"pool_address", core_pool_address, NULL, "The ap_pool, for _core.lib.", NULL},
    {"started", core_started, NULL, "Worker threads that were started.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_doc,
     "Core(max_workers, shards=0, cpus=0, isolated=False, max_pending=0, on_full=0, ring_slots=0, "
     "first_index=0): the scheduler and what its users share."},
    {Py_tp_new, core_new},
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_methods, core_methods},
    {Py_tp_getset, core_getset},
    {0, NULL},
};

static PyType_Spec core_spec = {
    .name = "affinitypool._core.Core",
    .basicsize = sizeof(ap_core_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = core_slots,
};

int ap__core_setup(PyObject *module) {
    if (!ap__core_type)
        ap__core_type = (PyTypeObject *)PyType_FromSpec(&core_spec);
    return ap__core_type ? PyModule_AddObjectRef(module, "Core", (PyObject *)ap__core_type) : -1;
}
