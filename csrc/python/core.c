/* The core of a Python pool: what the pool object, its workers and its tasks share.
 *
 * Overview.  A `_core.Core` object owns the scheduler pool and an ap_core.  The pool object and
 * each worker thread hold the Core; tasks hold a bare pointer to the ap_core.  A task may
 * outlive its pool, and a thread that waits for a task may look at the ap_core just as the last
 * worker leaves.  So the memory of an ap_core stays an ap_core for ever: it goes to a free list
 * and serves the next pool.  A stale reader sees another pool's hints, or compares a task's
 * pool with its own and finds them equal although they were not; it then tries to start a task
 * that is done, which fails.  What is more than a hint (seen_idle, pool.c) is only changed by a
 * task of the core's present generation.  There are as many ap_cores as there were pools
 * at once, and one more for each 65,536 pools in turn.
 *
 * Promises.  A submit that starts a thread does not wait for it, so shutdown(cancel_futures) may
 * come before the thread has looked for a task.  The stdlib's pool has started a task for each
 * thread by then.  So cancelling sets one task aside for each thread that was started and has
 * not looked: it is promised to it, and is run.  The critical section makes the thread's look,
 * in the queues and at the promises, one step against that.  A worker that is ended from outside
 * with a task in its hands promises it to the thread that replaces it.
 *
 *     who cancels all                             thread that was started
 *     in the critical section                     in the critical section, at its first look
 *     1  while there are fewer promises than      a  take a promised task; none: a queued one
 *        `started` - `begun`: take a queued       b  `begun` + 1
 *        task and promise it                      ended from outside, and replaced
 *     outside                                     c  promise the task in its hands; `begun` - 1
 *     2  cancel what is queued still              ended, and not replaced (home.c)
 *                                                 d  `started` - 1; more promises than threads
 *                                                    that will look: push the rest, or cancel it
 *
 * If b comes before 1, the thread has taken what was there for it, and needs no promise; if not, 1
 * leaves it one, or the queue was empty.  Tests: tests/faults/test_cancel.py, test_death_watch.py.
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

void ap__core_cancel(ap_core_object *self, ap_pytask *task) {
    if (!ap__task_cancel(task))
        return;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    if (self->cancelled && PyList_Append(self->cancelled, (PyObject *)task) < 0)
        PyErr_Clear();
    Py_END_CRITICAL_SECTION();
}

/* A queued task, or NULL.  A push that has reserved its place is waited for: its task may be in a
 * store buffer still when a look, seq_cst, sees the place.  That ends at once: nothing stops the
 * pusher on the way from the one to the other. */
static ap_task *take_or_await(ap_pool *pool) {
    ap_task *header;
    while (!(header = ap_pool_take_try(pool)) && ap_pool_pending(pool))
        ap_cpu_yield();
    return header;
}

void ap__core_cancel_queued(ap_core_object *self) {
    ap_task *header;
    /* orphaned: a callback has forked, and this is the child */
    while (!ap__core_is_orphaned(self->core) && (header = take_or_await(self->core->pool))) {
        ap_pytask *task = ap__task_from_header(header);
        ap__core_cancel(self, task);
        Py_DECREF(task);
        if (!ap__core_is_orphaned(self->core))
            ap_pool_dealt(self->core->pool);
    }
}

/* In the critical section: a promised task, or NULL. */
static ap_pytask *pop_promised(ap_core_object *self) {
    Py_ssize_t size = self->promised ? PyList_GET_SIZE(self->promised) : 0;
    if (!size)
        return NULL;
    PyObject *task = Py_NewRef(PyList_GET_ITEM(self->promised, 0));
    if (PyList_SetSlice(self->promised, 0, 1, NULL) < 0)
        PyErr_Clear();
    return (ap_pytask *)task;
}

/* In the critical section: how many threads were started that have not looked for a task. */
static uint32_t unbegun(ap_core *core) {
    int32_t rest =
        (int32_t)(ap_u32_load_relaxed(&core->started) - ap_u32_load_relaxed(&core->begun));
    return rest > 0 ? (uint32_t)rest : 0; /* below 0: one began and could not become a worker */
}

ap_pytask *ap__core_take_first(ap_core_object *self, ap_worker *worker) {
    ap_pytask *task = NULL;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    /* the promise first: what came after it was not promised, and is cancelled */
    task = pop_promised(self);
    if (task && worker)
        ap_worker_adopt(worker);
    ap_task *header = task || !worker ? NULL : ap_worker_take_try(worker);
    if (header)
        task = ap__task_from_header(header);
    ap_u32_add_relaxed(&self->core->begun, 1);
    Py_END_CRITICAL_SECTION();
    return task;
}

void ap__core_trim_promised(ap_core_object *self) {
    for (;;) {
        ap_pytask *task = NULL;
        Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
        if (self->promised && (uint32_t)PyList_GET_SIZE(self->promised) > unbegun(self->core))
            task = pop_promised(self);
        Py_END_CRITICAL_SECTION();
        if (!task)
            return;
        /* those that run take it, if the pool is open; it is behind what came later */
        if (ap_u32_load_relaxed(&self->core->started) &&
            ap_pool_push(self->core->pool, &task->header) == AP_OK)
            task = NULL;
        else
            ap__core_cancel(self, task);
        Py_XDECREF(task);
        ap_pool_dealt(self->core->pool);
        /* pairs with lose_worker and start_one, which give a place up and look at the queue then:
         * they see our push, or we see that nobody is left */
        if (!ap_u32_load_seq_cst(&self->core->started))
            ap__core_cancel_queued(self);
    }
}

void ap__core_promise(ap_core_object *self, ap_pytask *task) {
    PyObject *fresh = PyList_New(0);
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    if (!self->promised) {
        self->promised = fresh;
        fresh = NULL;
    }
    if (self->promised && PyList_Append(self->promised, (PyObject *)task) == 0) {
        Py_DECREF(task);
        task = NULL;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(fresh);
    if (task) { /* out of memory */
        PyErr_Clear();
        ap__core_cancel(self, task);
        Py_DECREF(task);
        ap_pool_dealt(self->core->pool);
    }
}

bool ap__core_promise_pending(ap_core_object *self) {
    bool promised;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    promised = self->promised && PyList_GET_SIZE(self->promised);
    Py_END_CRITICAL_SECTION();
    ap_task *header;
    while (!promised && (header = take_or_await(self->core->pool))) {
        ap_pytask *task = ap__task_from_header(header);
        if (ap__task_is_done(task)) {
            Py_DECREF(task);
            ap_pool_dealt(self->core->pool);
        } else {
            ap__core_promise(self, task);
            promised = true;
        }
    }
    return promised;
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

/* cancel_pending(collect): with `collect`, take_cancelled gives those that are cancelled from now
 * on, each once. */
static PyObject *core_cancel_pending(PyObject *op, PyObject *collect) {
    ap_core_object *self = (ap_core_object *)op;
    ap_core *core = self->core;
    ap_pytask *unpromised = NULL;
    PyObject *fresh = PyList_New(0), *cancelled = PyList_New(0);
    if (!fresh || !cancelled) {
        Py_XDECREF(fresh);
        Py_XDECREF(cancelled);
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(op);
    if (collect == Py_True && !self->cancelled) {
        self->cancelled = cancelled;
        cancelled = NULL;
    }
    if (!self->promised) {
        self->promised = fresh;
        fresh = NULL;
    }
    ap_task *header;
    while ((uint32_t)PyList_GET_SIZE(self->promised) < unbegun(core) &&
           (header = ap_pool_take_try(core->pool))) {
        ap_pytask *task = ap__task_from_header(header);
        if (PyList_Append(self->promised, (PyObject *)task) < 0) {
            PyErr_Clear();
            unpromised = task; /* out of memory: it is cancelled below */
            break;
        }
        Py_DECREF(task);
    }
    Py_END_CRITICAL_SECTION();
    if (unpromised) {
        ap__core_cancel(self, unpromised);
        Py_DECREF(unpromised);
        ap_pool_dealt(core->pool);
    }
    Py_XDECREF(fresh);
    Py_XDECREF(cancelled);
    AP_POINT("cancel-pending");
    /* a hint for what workers have taken, and have not started: what misses it is run */
    ap_u32_store_relaxed(&core->cancelling, 1);
    ap__core_cancel_queued(self);
    Py_RETURN_NONE;
}

static bool is_list(PyObject *object) {
    if (PyList_Check(object))
        return true;
    PyErr_Format(PyExc_TypeError, "expected a list, not %.200s", Py_TYPE(object)->tp_name);
    return false;
}

/* take_cancelled(into): moves what was collected to the end of the list. */
static PyObject *core_take_cancelled(PyObject *op, PyObject *into) {
    ap_core_object *self = (ap_core_object *)op;
    int code = 0;
    if (!is_list(into))
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(op);
    /* others may be about to cancel more, which is for the next call */
    PyObject *list = self->cancelled;
    if (list) {
        Py_ssize_t end = PyList_GET_SIZE(into);
        code = PyList_SetSlice(into, end, end, list);
        if (code == 0)
            code = PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL);
    }
    Py_END_CRITICAL_SECTION();
    if (code < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* give_cancelled(tasks): for the next take_cancelled. */
static PyObject *core_give_cancelled(PyObject *op, PyObject *tasks) {
    ap_core_object *self = (ap_core_object *)op;
    int code = 0;
    if (!is_list(tasks))
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(op);
    if (self->cancelled)
        code = PyList_SetSlice(self->cancelled, 0, 0, tasks);
    Py_END_CRITICAL_SECTION();
    if (code < 0)
        return NULL;
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

/* A task that is queued or promised, with the queue's reference, or NULL.  Once it is dealt with,
 * ap_pool_dealt is due. */
static ap_pytask *take_any(ap_core_object *self) {
    ap_task *header = ap_pool_take_try(self->core->pool);
    if (header)
        return ap__task_from_header(header);
    ap_pytask *task;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    task = pop_promised(self);
    Py_END_CRITICAL_SECTION();
    return task;
}

/* fail_next(error, callbacks): takes a task out of the queue and fails it, if it is pending.
 * Appends (task, callback) for each of its callbacks, which are the caller's to call.  False if the
 * queue is empty. */
static PyObject *core_fail_next(PyObject *op, PyObject *args) {
    PyObject *error, *kept, *callbacks = NULL;
    if (!PyArg_ParseTuple(args, "OO!", &error, &PyList_Type, &kept))
        return NULL;
    if (!PyExceptionInstance_Check(error)) {
        PyErr_Format(PyExc_TypeError, "expected an exception, not %.200s", Py_TYPE(error)->tp_name);
        return NULL;
    }
    ap_pytask *task = take_any((ap_core_object *)op);
    if (!task)
        Py_RETURN_FALSE;
    /* from PENDING only: who waits for it in a worker may be running it */
    Py_INCREF(error);
    if (!ap__task_settle_first(task, AP_FROM_PENDING, AP_FINISHED | AP_OVERRIDE, error, true,
                               &callbacks)) {
        Py_DECREF(error);
        (void)ap__task_cancel(task); /* it is pending still if memory has run out */
    } else {
        for (Py_ssize_t i = 0; callbacks && i < PyList_GET_SIZE(callbacks); i++) {
            PyObject *pair = PyTuple_Pack(2, (PyObject *)task, PyList_GET_ITEM(callbacks, i));
            if (!pair || PyList_Append(kept, pair) < 0)
                PyErr_WriteUnraisable((PyObject *)task);
            Py_XDECREF(pair);
        }
        Py_XDECREF(callbacks);
    }
    Py_DECREF(task);
    ap_pool_dealt(((ap_core_object *)op)->core->pool);
    Py_RETURN_TRUE;
}

/* take_into(list): a task out of the queue to the end of the list; whether there was one. */
static PyObject *core_take_into(PyObject *op, PyObject *list) {
    if (!is_list(list))
        return NULL;
    if (PyList_Append(list, Py_None) < 0) /* room first */
        return NULL;
    Py_ssize_t last = PyList_GET_SIZE(list) - 1;
    ap_pytask *task = take_any((ap_core_object *)op);
    if (!task)
        return PyList_SetSlice(list, last, last + 1, NULL) < 0 ? NULL : Py_NewRef(Py_False);
    (void)PyList_SetItem(list, last, (PyObject *)task);
    ap_pool_dealt(((ap_core_object *)op)->core->pool); /* what follows is the caller's */
    Py_RETURN_TRUE;
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
    /* seq_cst as the other changes of this word: see has_no_threads in pool.c */
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
    /* acquire pairs with who gives a place up (home.c, pool.c): orders its end before our look at
     * what is pending, in _join of _executor.py */
    return PyLong_FromUnsignedLong(ap_u32_load_acquire(&((ap_core_object *)op)->core->started));
}

static PyMethodDef core_methods[] = {
    {"close", core_close, METH_NOARGS, "Refuse further tasks; workers leave once all ran."},
    {"cancel_pending", core_cancel_pending, METH_O,
     "Cancel every queued task, and every one that a worker takes from now on; collect them?"},
    {"take_cancelled", core_take_cancelled, METH_O, "Move what was collected into a list."},
    {"give_cancelled", core_give_cancelled, METH_O, "Give a list of them back."},
    {"wait_quiet", core_wait_quiet, METH_O, "Wait until all has ended; False on timeout."},
    {"fail_next", core_fail_next, METH_VARARGS,
     "Take one queued task out of the queue and fail it; False if there is none."},
    {"take_into", core_take_into, METH_O, "Take one queued task out, to the end of a list."},
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
