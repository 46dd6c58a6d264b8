/* Which core a worker thread belongs to, and what becomes of its place when it ends.
 *
 * Overview.  Each worker thread that was asked for is counted in core->started, so that submits
 * rely on it.  A thread that ends before its time has to be replaced, or the count corrected.
 * That is done by the Python layer (_threads.py), in the thread itself, and an exception that is
 * sent to the thread from outside may strike there as well.  So the thread's state holds a guard,
 * which dies with it, in C: if nobody has settled the place by then, it is given up, visibly.  Then
 * the guard lets go of those who wait for the thread's end.  (The thread's last line has the guard
 * do so already: where the stack is very small, Python 3.14 and later leave the dying state's
 * objects alone.)
 *
 * Before the guard is in place there is the entry, which the interpreter calls as the thread's
 * function.  If memory runs out on the way to that call, the entry dies without having been called,
 * in the new thread or, without a GIL, where the maker lets go of it last; and gives the place up.
 * (Where the thread did not start, start.c does.)  From the start to the end nothing here that has
 * to happen allocates.
 *
 *     starter (start.c, _threads.py)              new thread
 *     1  `started` + 1, seq_cst                   a  called, or the entry dies: CAS the fate from
 *     2  make fate and entry, start the thread       PENDING to RUNNING; failed: end; died: as d
 *     3  that raised: CAS the fate from           b  put the guard into the thread's state; no
 *        PENDING to CANCELLED; done: place           memory for it: as d
 *        given up, as d; failed: it runs          c  work; settle the place: the next thread has
 *                                                    it, or nobody waits for it any more
 *                                                 d  the guard dies, not settled: `started` - 1,
 *                                                    seq_cst, and look at the queue; nobody left:
 *                                                    cancel what is there
 *                                                 e  end `gone`: who joins goes on
 *
 * - One of 3 and a moves the fate, so the place is given up by 3, or is the thread's.  The entry
 *   dies once, and asks the fate too, so of a call and a death without one the one does a.
 * - The thread's place is given up or settled once: who settles it, or gives it up before the end
 *   (ap__home_lose), clears the guard's core, which d asks; only the thread itself does either.
 * - d leaves nothing behind that somebody relies on the place for: of d and a submit that saw the
 *   place one sees the other, as both look seq_cst after what they did (ap__core_has_no_threads).
 * - e comes after d: who has seen the end sees the place given up.
 *
 * Tests: tests/model/python/model_home.c, tests/faults/test_death_watch.py, test_work.py.
 */
#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_core_object *core; /* NULL: settled */
    ap_pytask *gone;                    /* ended when the thread is; True: its place was given up */
    ap_atomic_u32 rests;                /* the thread looks for a task, or sleeps, or has left */
    ap_atomic_u32 lost;                 /* the place was given up, and the thread not replaced */
} guard;

typedef struct {
    PyObject_HEAD ap_core_object *core;
    ap_pytask *fate; /* started by the thread, or cancelled by who keeps it from running */
    ap_pytask *gone;
    PyObject *body;      /* called as body(guard) */
    unsigned long maker; /* the thread that made it, and starts the other */
} entry;

_Thread_local ap_core *ap__home;
static _Thread_local guard *own_guard; /* the thread state's reference */
static PyTypeObject *guard_type, *entry_type;

void ap__home_settle(void) {
    if (own_guard)
        Py_CLEAR(own_guard->core);
}

/* A worker thread has ended, and is not replaced: others do what was promised to it. */
static void lose_worker(ap_core_object *self) {
    /* before a submit can start threads again, if all were started, and the counts not kept */
    ap_u64_add_relaxed(&self->core->counted_on, AP_ON_NOBODY);
    /* pairs with the loads after a push, of ap__core_has_no_threads and in untaken.c: they see that
     * nobody is left, or our look at the queue, seq_cst too, sees their push */
    uint32_t rest = ap_u32_sub_seq_cst(&self->core->started, 1) - 1;
    ap__core_trim_promised(self);
    if (!rest)
        ap__core_cancel_queued(self); /* nobody will come: visibly, not for ever */
}

/* The calling thread ends. */
static void leave(ap_core_object *unsettled, ap_pytask *gone) {
    bool lost = unsettled && !ap__core_is_orphaned(unsettled->core);
    if (lost)
        lose_worker(unsettled);
    /* not if it was started by a submit that a fork interrupted: _threads.py has ended it */
    if (ap__task_start(gone)) {
        gone->outcome = Py_NewRef(lost ? Py_True : Py_None);
        ap__task_publish(gone);
    }
}

/* Not in a forked child, nor at the end of the interpreter, which free the states of others. */
static void guard_end(guard *self) {
    if (!self || own_guard != self)
        return;
    own_guard = NULL;
    ap__home = NULL;
    ap_u32_store_relaxed(&self->rests, 1);
    ap__context_forget();
    leave(self->core, self->gone);
}

static void guard_dealloc(PyObject *op) {
    guard *self = (guard *)op;
    PyTypeObject *type = Py_TYPE(op);
    guard_end(self);
    Py_XDECREF(self->core);
    Py_XDECREF(self->gone);
    type->tp_free(op);
    Py_DECREF(type);
}

void ap__home_rest(bool rests) {
    if (own_guard)
        ap_u32_store_relaxed(&own_guard->rests, rests);
}

/* Whether the thread runs something: a task, a callback, its initializer.  By any thread. */
static PyObject *guard_is_busy(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(!ap_u32_load_relaxed(&((guard *)op)->rests));
}

/* By any thread. */
static PyObject *guard_is_lost(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ap_u32_load_relaxed(&((guard *)op)->lost) != 0);
}

/* The calling thread is one of the core's; `gone` is a Task to end at its end. */
static guard *enter(ap_core_object *core, ap_pytask *gone) {
    PyObject *state = PyThreadState_GetDict();
    guard *fresh = state ? (guard *)guard_type->tp_alloc(guard_type, 0) : NULL;
    if (!fresh || PyDict_SetItem(state, (PyObject *)guard_type, (PyObject *)fresh) < 0) {
        Py_XDECREF(fresh);
        PyErr_Clear();
        leave(core, gone);
        PyErr_NoMemory();
        return NULL;
    }
    fresh->core = (ap_core_object *)Py_NewRef(core);
    fresh->gone = (ap_pytask *)Py_NewRef(gone);
    own_guard = fresh;
    ap__home = core->core;
    ap__stack_measure();
    return fresh;
}

PyObject *ap__home_exit(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(ignored)) {
    ap__home = NULL;
    ap__home_settle();
    ap__home_rest(true); /* all that is left to do is to end */
    Py_RETURN_NONE;
}

PyObject *ap__home_leave(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(ignored)) {
    ap__home = NULL;
    Py_RETURN_NONE;
}

PyObject *ap__home_lose(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    bool unsettled = own_guard && own_guard->core;
    if (unsettled) {
        ap__home_settle();
        ap_u32_store_relaxed(&own_guard->lost, 1);
        lose_worker((ap_core_object *)op);
    }
    return PyBool_FromLong(unsettled);
}

PyObject *ap__home_is(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ap__home == ((ap_core_object *)op)->core);
}

/* Entry(core, fate, gone, body) */
static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *core, *fate, *gone, *body;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Entry() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O!O!O", ap__core_type, &core, ap__task_base_type, &fate,
                          ap__task_base_type, &gone, &body))
        return NULL;
    entry *self = (entry *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->core = (ap_core_object *)Py_NewRef(core);
    self->fate = (ap_pytask *)Py_NewRef(fate);
    self->gone = (ap_pytask *)Py_NewRef(gone);
    self->body = Py_NewRef(body);
    self->maker = PyThread_get_thread_ident();
#ifdef Py_GIL_DISABLED
    ap__give_up_ownership((PyObject *)self); /* it dies where it is let go of last */
#endif
    return (PyObject *)self;
}

/* In the new thread: runs its body with the guard in place, unless it was kept from running. */
static PyObject *entry_call(PyObject *op, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    entry *self = (entry *)op;
    if (!ap__task_start(self->fate))
        Py_RETURN_NONE;
    guard *own = enter(self->core, self->gone);
    if (!own)
        return NULL;
    PyObject *result = PyObject_CallOneArg(self->body, (PyObject *)own);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    guard_end(own);
    PyErr_Restore(type, error, traceback);
    Py_DECREF(own);
    return result;
}

static void entry_dealloc(PyObject *op) {
    entry *self = (entry *)op;
    PyTypeObject *type = Py_TYPE(op);
    /* in the maker: the thread did not start, and the maker hears of it */
    bool unstarted = self->maker == PyThread_get_thread_ident();
#ifdef Py_GIL_DISABLED
    /* by an exception, with which the arguments of the call that failed die; without one it did
     * start, and died before the maker let go */
    unstarted = unstarted && PyErr_Occurred();
#endif
    if (!unstarted && ap__task_start(self->fate)) {
        PyObject *error_type, *error, *traceback;
        PyErr_Fetch(&error_type, &error, &traceback);
        leave(self->core, self->gone);
        PyErr_Restore(error_type, error, traceback);
    }
    Py_DECREF(self->core);
    Py_DECREF(self->fate);
    Py_DECREF(self->gone);
    Py_DECREF(self->body);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef guard_methods[] = {
    {"is_busy", guard_is_busy, METH_NOARGS, "Whether the thread runs something."},
    {"is_lost", guard_is_lost, METH_NOARGS, "Whether the thread's place was given up."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot guard_slots[] = {
    {Py_tp_doc, "Held by the state of a worker thread."},
    {Py_tp_dealloc, guard_dealloc},
    {Py_tp_methods, guard_methods},
    {0, NULL},
};

static PyType_Spec guard_spec = {
    .name = "affinitypool._core._Guard",
    .basicsize = sizeof(guard),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = guard_slots,
};

static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "Entry(core, fate, gone, body): what a worker thread starts with."},
    {Py_tp_new, entry_new},
    {Py_tp_call, entry_call},
    {Py_tp_dealloc, entry_dealloc},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "affinitypool._core.Entry",
    .basicsize = sizeof(entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = entry_slots,
};

int ap__home_setup(PyObject *module) {
    if (!guard_type)
        guard_type = (PyTypeObject *)PyType_FromSpec(&guard_spec);
    if (!entry_type)
        entry_type = (PyTypeObject *)PyType_FromSpec(&entry_spec);
    if (!guard_type || !entry_type)
        return -1;
    return PyModule_AddObjectRef(module, "Entry", (PyObject *)entry_type);
}
