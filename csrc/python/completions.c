/* Completions: collects tasks as they end, for wait and as_completed.
 *
 * Overview.  `watch(task)` puts the collector in the task's list of watchers; whoever settles
 * the task posts it here.  `post` is also a callback for futures of other kinds.  `get(timeout)`
 * takes all that have been posted, in order of completion, and waits for the first if there is
 * none.
 *
 *     posting (attached)                          getting (attached)
 *     a  append to `done`, critical section       1  load `sequence`, acquire
 *     b  add 1 to `sequence`, seq_cst             2  take `done`, critical section; not empty:
 *     c  load `sleepers` seq_cst; not 0:             return it
 *        wake all                                 3  `sleepers` + 1, seq_cst
 *                                                 4  load `sequence` seq_cst; as in 1: sleep
 *                                                    while it is
 *                                                 5  `sleepers` - 1; from 1
 *
 * - What is posted is found.  If (1) sees (b), (2) sees (a).  If not, (b) changes the word after
 *   (1), so that (4) differs, or the sleep is ended by (c).
 * - No wake is lost.  In the total order of the seq_cst operations either (3) precedes (c), which
 *   then wakes; the sleeper compares the word as it falls asleep, after (b) has changed it.  Or
 *   (c), and so (b), precedes (3), and (4) sees the change.
 * - A `sleepers` that is counted for longer than the sleep costs a wake and no more.
 *
 * In a forked child nobody posts what the parent's threads were to end: whoever gets there is told
 * once to look at the tasks themselves.
 * Tests: tests/model/python/model_{observe,fork}.c, tests/test_waiting.py.
 */
#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_atomic_u32 sequence;
    ap_atomic_u32 sleepers;
    ap_atomic_u32 missed; /* not 0: there was no memory for a post */
    ap_atomic_u32 forks;  /* ap__forks, as of the last call that found another */
    PyObject *done;       /* list of futures */
} ap_completions;

PyTypeObject *ap__completions_type;

void ap__completions_post(PyObject *op, PyObject *future) {
    ap_completions *self = (ap_completions *)op;
    int failed;
    /* made outside: an allocation may run the collector, and that any code */
    PyObject *fresh = PyList_New(0);
#ifdef Py_GIL_DISABLED
    if (fresh)
        ap__give_up_ownership(fresh);
#endif
    Py_BEGIN_CRITICAL_SECTION(op);
    if (!self->done) {
        self->done = fresh;
        fresh = NULL;
    }
    failed = !self->done || PyList_Append(self->done, future) < 0;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(fresh);
    if (failed) {
        PyErr_Clear();
        /* release pairs with the exchange in get: who takes it sees that the future is done */
        ap_u32_store_release(&self->missed, 1);
    }
    /* step b: pairs with steps 1 and 4, orders (a) and `missed` before what follows those */
    ap_u32_add_seq_cst(&self->sequence, 1);
    /* step c: pairs with step 3, one of both sees the other */
    if (ap_u32_load_seq_cst(&self->sleepers))
        ap_wake_u32(&self->sequence, UINT32_MAX);
}

static PyObject *completions_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                                 PyObject *Py_UNUSED(kwargs)) {
    PyObject *op = type->tp_alloc(type, 0);
    if (op)
        ap_u32_store_relaxed(&((ap_completions *)op)->forks, ap__forks);
    return op;
}

/* Whether this is a forked child, in which nobody has been told so yet. */
static bool is_news(ap_completions *self) {
    /* relaxed: what the child has of the parent was there before any of its threads */
    return AP_UNLIKELY(ap_u32_load_relaxed(&self->forks) != ap__forks) &&
           ap_u32_exchange_relaxed(&self->forks, ap__forks) != ap__forks;
}

static PyObject *take_done(ap_completions *self) {
    PyObject *done;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    done = self->done;
    self->done = NULL;
    Py_END_CRITICAL_SECTION();
    return done;
}

/* get(timeout=None): the tasks that ended; an empty list when the timeout passed; None if the
 * caller has to look for itself: in a forked child, the first time, or when memory ran out. */
static PyObject *completions_get(PyObject *op, PyObject *args) {
    ap_completions *self = (ap_completions *)op;
    PyObject *timeout = NULL;
    uint64_t deadline;
    bool past;
    if (!PyArg_ParseTuple(args, "|O", &timeout))
        return NULL;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    for (;;) {
        if (is_news(self))
            Py_RETURN_NONE;
        /* acquire pairs with step b: whoever sees a post's number sees what it has posted */
        uint32_t sequence = ap_u32_load_acquire(&self->sequence);
        /* (b) comes after the store, so step 1 orders it before this load; the exchange takes it
         * with what was done before it, or leaves a later one for the next call */
        if (ap_u32_load_relaxed(&self->missed) && ap_u32_exchange_acq_rel(&self->missed, 0))
            Py_RETURN_NONE;
        PyObject *done = take_done(self);
        if (done && PyList_GET_SIZE(done))
            return done;
        Py_XDECREF(done); /* empty: there was no memory for its first */
        AP_POINT("collect");
        /* step 3: pairs with step c */
        ap_u32_add_seq_cst(&self->sleepers, 1);
        int woken = 1;
        /* step 4: pairs with step b, a post that did not see step 3 is seen here */
        if (ap_u32_load_seq_cst(&self->sequence) == sequence)
            woken = ap__word_wait(&self->sequence, sequence, deadline);
        ap_u32_sub_relaxed(&self->sleepers, 1); /* seen late it costs a wake: see above */
        if (woken < 0)
            return NULL;
        if (!woken)
            return PyList_New(0);
    }
}

static bool is_task(PyObject *task) {
    if (PyObject_TypeCheck(task, ap__task_base_type))
        return true;
    PyErr_Format(PyExc_TypeError, "expected a Task, not %.200s", Py_TYPE(task)->tp_name);
    return false;
}

static PyObject *completions_watch(PyObject *op, PyObject *task) {
    if (!is_task(task))
        return NULL;
    ap__task_check_fork((ap_pytask *)task);
    int in = ap__task_watch((ap_pytask *)task, op);
    return in < 0 ? NULL : PyBool_FromLong(in);
}

static PyObject *completions_unwatch(PyObject *op, PyObject *task) {
    if (!is_task(task))
        return NULL;
    ap__task_unwatch((ap_pytask *)task, op);
    Py_RETURN_NONE;
}

static PyObject *completions_post(PyObject *op, PyObject *future) {
    ap__completions_post(op, future);
    Py_RETURN_NONE;
}

static int completions_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ap_completions *)op)->done);
    return 0;
}

static int completions_clear(PyObject *op) {
    Py_CLEAR(((ap_completions *)op)->done);
    return 0;
}

static void completions_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    completions_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

/* wait_all(tasks, timeout): waits for each in turn.  True if all are done, False when the
 * timeout has passed.  In a worker it runs tasks of its own pool that have not started. */
static PyObject *wait_all(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *tasks, *timeout;
    uint64_t deadline;
    bool past;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &tasks, &timeout))
        return NULL;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tasks); i++) {
        PyObject *op = Py_NewRef(PyList_GET_ITEM(tasks, i));
        int done = -1;
        if (is_task(op)) {
            ap_pytask *task = (ap_pytask *)op;
            ap__task_check_fork(task);
            done = past ? 0 : ap__task_run_inline(task);
            if (!done)
                done = ap__task_wait(task, deadline);
        }
        if (done > 0)
            ap__task_seen_done((ap_pytask *)op);
        Py_DECREF(op);
        if (done < 0)
            return NULL;
        if (!done)
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef completions_methods[] = {
    {"watch", completions_watch, METH_O, "Collect the task when it ends; False if it is done."},
    {"unwatch", completions_unwatch, METH_O, "Take one watch() back."},
    {"post", completions_post, METH_O, "Collect a future of another kind, which has ended."},
    {"get", completions_get, METH_VARARGS,
     "Take what has ended; wait for the first.  [] when the timeout has passed; None after a "
     "fork."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"wait_all", wait_all, METH_VARARGS, "Wait for each task of a list; False on timeout."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot completions_slots[] = {
    {Py_tp_doc, "Collects tasks as they end."},
    {Py_tp_new, completions_new},
    {Py_tp_dealloc, completions_dealloc},
    {Py_tp_traverse, completions_traverse},
    {Py_tp_clear, completions_clear},
    {Py_tp_methods, completions_methods},
    {0, NULL},
};

static PyType_Spec completions_spec = {
    .name = "affinitypool._core.Completions",
    .basicsize = sizeof(ap_completions),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = completions_slots,
};

int ap__completions_setup(PyObject *module) {
    if (!ap__completions_type)
        ap__completions_type = (PyTypeObject *)PyType_FromSpec(&completions_spec);
    if (!ap__completions_type ||
        PyModule_AddObjectRef(module, "Completions", (PyObject *)ap__completions_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
