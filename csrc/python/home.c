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
 */
#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_core_object *core; /* NULL: settled */
    PyObject *gone;                     /* a Task, to be ended */
    bool *rests;                        /* ap__rests of the thread; NULL once it has ended */
} guard;

_Thread_local ap_core *ap__home;
_Thread_local bool ap__rests;
static _Thread_local guard *own_guard; /* the thread state's reference */
static PyTypeObject *guard_type;

void ap__home_settle(void) {
    if (own_guard)
        Py_CLEAR(own_guard->core);
}

/* A worker thread has ended, and is not replaced: others do what was promised to it. */
static void lose_worker(ap_core_object *self) {
    /* pairs with the loads after a push, of has_no_threads in pool.c and in core.c: they see that
     * nobody is left, or our look at the queue, seq_cst too, sees their push */
    uint32_t rest = ap_u32_sub_seq_cst(&self->core->started, 1) - 1;
    ap__core_trim_promised(self);
    if (!rest)
        ap__core_cancel_queued(self); /* nobody will come: visibly, not for ever */
}

/* The calling thread ends. */
static void leave(ap_core_object *unsettled, PyObject *gone) {
    if (unsettled && !ap__core_is_orphaned(unsettled->core))
        lose_worker(unsettled);
    PyObject *none = PyObject_CallMethod(gone, "set_result", "O", Py_None);
    if (!none && PyErr_ExceptionMatches(ap__hooks.invalid_state_error))
        PyErr_Clear(); /* it was started by a submit that a fork interrupted: _threads.py */
    else if (!none)
        PyErr_WriteUnraisable(gone);
    Py_XDECREF(none);
}

/* Not in a forked child, nor at the end of the interpreter, which free the states of others. */
static void guard_end(guard *self) {
    if (!self || own_guard != self)
        return;
    own_guard = NULL;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    self->rests = NULL;
    Py_END_CRITICAL_SECTION();
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

/* Whether the thread runs something: a task, a callback, its initializer.  By any thread. */
static PyObject *guard_is_busy(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    guard *self = (guard *)op;
    bool is_busy;
    Py_BEGIN_CRITICAL_SECTION(op);
    is_busy = self->rests && !*(volatile bool *)self->rests;
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(is_busy);
}

/* The calling thread is one of the core's; `gone` is a Task to end at its end. */
static guard *enter(ap_core_object *core, PyObject *gone) {
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
    fresh->gone = Py_NewRef(gone);
    fresh->rests = &ap__rests;
    own_guard = fresh;
    ap__home = core->core;
    ap__stack_measure();
    return fresh;
}

PyObject *ap__home_exit(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(ignored)) {
    ap__home = NULL;
    ap__home_settle();
    ap__rests = true; /* all that is left to do is to end */
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
        lose_worker((ap_core_object *)op);
    }
    return PyBool_FromLong(unsettled);
}

PyObject *ap__home_is(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ap__home == ((ap_core_object *)op)->core);
}

/* run_thread(core, fate, gone, body): what a worker thread starts with.  Unless `fate` was
 * cancelled: calls body(guard) with the guard in place, and has it end the thread's part. */
static PyObject *run_thread(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *core, *fate, *gone, *body;
    if (!PyArg_ParseTuple(args, "O!OOO", ap__core_type, &core, &fate, &gone, &body))
        return NULL;
    PyObject *runs = PyObject_CallMethod(fate, "set_running_or_notify_cancel", NULL);
    if (runs != Py_True)
        return runs;
    Py_DECREF(runs);
    guard *own = enter((ap_core_object *)core, gone);
    if (!own)
        return NULL;
    PyObject *result = PyObject_CallOneArg(body, (PyObject *)own);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    guard_end(own);
    PyErr_Restore(type, error, traceback);
    Py_DECREF(own);
    return result;
}

static PyMethodDef functions[] = {
    {"run_thread", run_thread, METH_VARARGS, "What a worker thread starts with."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef guard_methods[] = {
    {"is_busy", guard_is_busy, METH_NOARGS, "Whether the thread runs something."},
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

int ap__home_setup(PyObject *module) {
    guard_type = (PyTypeObject *)PyType_FromSpec(&guard_spec);
    return guard_type ? PyModule_AddFunctions(module, functions) : -1;
}
