/* Tasks that no worker has taken: promised to a thread, cancelled, failed, taken out.
 *
 * Overview.  A submit that starts a thread does not wait for it, so shutdown(cancel_futures) may
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
 * - If b comes before 1, the thread has taken what was there for it, and needs no promise; if
 *   not, 1 leaves it one, or the queue was empty.
 * - No promise is left over.  1 makes no more than `started` - `begun`; b takes one as it makes
 *   that less, and c adds one before it makes that more.  Only d, and a start that is refused,
 *   make it less without taking one.  They look at the promises after that, in the critical
 *   section: either 1 comes later, and sees the new `started`, or they see its promise.
 * - What d pushes is taken.  It looks at `started` after the push, seq_cst; whoever gives the
 *   last place up does that before it looks at the queue, seq_cst too: one sees the other, and
 *   cancels.  The pool is not quiet meanwhile: the push counts the task again before its first
 *   counting ends.
 *
 * Tests: tests/model/python/model_promised.c, model_untaken.c (2), tests/faults/test_cancel.py,
 * test_death_watch.py.
 */
#include "bridge.h"

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

/* cancel_pending(collect): with `collect`, take_cancelled gives those that are cancelled from now
 * on, each once. */
PyObject *ap__core_cancel_pending(PyObject *op, PyObject *collect) {
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
PyObject *ap__core_take_cancelled(PyObject *op, PyObject *into) {
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
PyObject *ap__core_give_cancelled(PyObject *op, PyObject *tasks) {
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
PyObject *ap__core_fail_next(PyObject *op, PyObject *args) {
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
PyObject *ap__core_take_into(PyObject *op, PyObject *list) {
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
