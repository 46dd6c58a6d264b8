/* _submit_rows: many tasks, published together.
 *
 * Overview.  What map and submit_many are made of.  Tasks are made one by one, as the iterator
 * gives their arguments, and wait in an array until they are pushed as one batch: with one
 * reservation of places, one publication and one wake.
 */
#include "submit.h"

#define BATCH 512
#define BATCH_NS 20000u /* how long a made task may wait to be published by map */

typedef struct {
    PyObject *pool;
    ap_core *core;
    PyObject *tasks;   /* list of all, in order */
    ap_task **waiting; /* those that are not published yet */
    size_t count;      /* of them */
    size_t room;
} batch;

/* Makes room for one more waiting task. */
static int batch_grow(batch *self) {
    if (self->count < self->room)
        return 0;
    size_t room = self->room ? 2 * self->room : 64;
    ap_task **waiting = PyMem_Realloc(self->waiting, room * sizeof *waiting);
    if (!waiting) {
        PyErr_NoMemory();
        return -1;
    }
    self->waiting = waiting;
    self->room = room;
    return 0;
}

/* Lets go of the tasks that wait. */
static void batch_drop(batch *self) {
    for (size_t i = 0; i < self->count; i++)
        ap__task_unqueue(ap__task_from_header(self->waiting[i]));
    self->count = 0;
}

/* Where the iterator has forked, and this is the child: what waits is the parent's. -1 with an
 * exception. */
static int batch_check_fork(batch *self) {
    if (AP_LIKELY(!ap__core_is_orphaned(self->core)))
        return 0;
    batch_drop(self);
    ap_core *core = ap__pool_open(self->pool);
    if (!core)
        return -1;
    self->core = core;
    return 0;
}

/* Publishes the waiting tasks: all or none. */
static int batch_publish(batch *self) {
    if (batch_check_fork(self) < 0)
        return -1;
    size_t count = self->count;
    if (!count)
        return 0;
    size_t needed = 0; /* threads: one for each task that counts on no idle worker */
    for (size_t i = 0; i < count && ap__core_is_starting_up(self->core); i++) {
        ap_pytask *task = ap__task_from_header(self->waiting[i]);
        task->counted = true;
        needed += !ap__core_count_on_idle(self->core);
    }
    int code = ap_pool_push_batch(self->core->pool, self->waiting, count);
    if (code < 0) {
        ap__pool_push_failed(self->pool, code);
        return -1;
    }
    self->count = 0;
    if (!needed && ap__core_is_stranded(self->core))
        needed = 1;
    code = 0;
    while (needed && code == 0) {
        needed--;
        code = ap__pool_start_worker(self->pool, self->core, self->waiting, count);
        /* not before: it sees whether a place was given up just now */
        if (!ap__core_is_starting_up(self->core))
            break;
    }
    if (!ap__core_has_no_threads(self->core)) /* else the rest are cancelled */
        ap__core_lack(self->core, needed);
    return code;
}

static void batch_free(batch *self) {
    batch_drop(self);
    PyMem_Free(self->waiting);
}

/* _submit_rows(fn, iterator, star, early) -> list of tasks
 *
 * One task for each item of the iterator: fn(item), or fn(*item) with `star`, when items are
 * tuples.  With `early`, tasks are published while the iterator runs, and stay published if it
 * raises; without, all at the end or none. */
PyObject *ap__pool_submit_rows(PyObject *op, PyObject *args) {
    PyObject *fn, *iterator;
    int star, early;
    if (!PyArg_ParseTuple(args, "OOpp", &fn, &iterator, &star, &early))
        return NULL;
    ap_core *core = ap__pool_open(op);
    if (!core)
        return NULL;
    if (!PyIter_Check(iterator)) {
        PyErr_Format(PyExc_TypeError, "expected an iterator, not %.200s",
                     Py_TYPE(iterator)->tp_name);
        return NULL;
    }
    batch self = {.pool = op, .core = core, .tasks = PyList_New(0)};
    if (!self.tasks)
        return NULL;
    if (core->max_pending) {
        Py_DECREF(self.tasks);
        PyErr_SetString(PyExc_RuntimeError, "a pool with max_pending takes its tasks one by one");
        return NULL;
    }
    bool isolated = core->isolated;
    size_t published = 0, seen = 0;
    uint64_t oldest = 0;
    PyObject *item;
    while ((item = PyIter_Next(iterator))) {
        ap_pytask *task = NULL;
        if (batch_check_fork(&self) == 0 && batch_grow(&self) == 0) {
            core = self.core;
            if (star && PyTuple_Check(item))
                task = ap__task_new(core, fn, ((PyTupleObject *)item)->ob_item,
                                    (size_t)PyTuple_GET_SIZE(item), NULL, isolated);
            else
                task = ap__task_new(core, fn, &item, 1, NULL, isolated);
        }
        Py_DECREF(item);
        if (!task)
            goto fail;
        /* a builtin iterator never enters the eval loop, where signals are handled and others let
         * run; what that raises is the caller's */
        if (AP_UNLIKELY(++seen % BATCH == 0)) {
            PyObject *none = PyObject_CallNoArgs(ap__hooks.breathe);
            if (!none) {
                ap__task_unqueue(task);
                Py_DECREF(task);
                goto fail;
            }
            Py_DECREF(none);
        }
        self.waiting[self.count++] = &task->header;
        int appended = PyList_Append(self.tasks, (PyObject *)task);
        Py_DECREF(task);
        if (appended < 0)
            goto fail;
        if (early) {
            uint64_t now = ap_clock_now();
            if (self.count == 1)
                oldest = now;
            /* the first at once, then twice as many each time, while the iterator is quick */
            if (self.count >= BATCH || self.count > published || now - oldest >= BATCH_NS) {
                published += self.count;
                if (batch_publish(&self) < 0)
                    goto fail;
            }
        }
    }
    if (PyErr_Occurred() || batch_publish(&self) < 0)
        goto fail;
    batch_free(&self);
    return self.tasks;

fail:
    if (early) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        if (batch_publish(&self) < 0)
            PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    batch_free(&self);
    Py_DECREF(self.tasks);
    return NULL;
}
