/* Puts the bridge into the cffi module, so that one shared object holds both.
 *
 * And has the flag of an interpreter that exits.  In the Python layer (_threads.py):
 *
 *     who starts a thread, after its push         who exits
 *     1  enter it into the dictionary `_live`     a  set_exiting(True)
 *     2  is_exiting: close the core               b  look at what is in `_live`: close their cores
 *     3  start it                                 c  join them, until `_live` is empty
 *
 * 1 and b take the lock of the dictionary (or the GIL), so one comes first.  If 1 does, b sees the
 * thread; if b does, 2 sees the flag, as a comes before b and 1 before 2.  So every thread that is
 * started works for a core that is, or will be, closed: it runs what was accepted, and ends.  A
 * push that comes after the close is refused by the queue.
 * Tests: tests/model/python/model_exit.c, tests/faults/test_exit.py.
 */
#include "bridge.h"
#include "worker.h"

/* configure(task_type, CancelledError, InvalidStateError, SubmitError, log_callback, log_state,
 * breathe, PendingLimitError, unobserved) */
static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *type;
    ap_hooks hooks = ap__hooks;
    if (!PyArg_ParseTuple(args, "O!OOOOOOOO", &PyType_Type, &type, &hooks.cancelled_error,
                          &hooks.invalid_state_error, &hooks.submit_error, &hooks.log_callback,
                          &hooks.log_state, &hooks.breathe, &hooks.pending_limit_error,
                          &hooks.unobserved))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, ap__task_base_type)) {
        PyErr_SetString(PyExc_TypeError, "the task type must inherit TaskBase");
        return NULL;
    }
    Py_INCREF(hooks.cancelled_error);
    Py_INCREF(hooks.invalid_state_error);
    Py_INCREF(hooks.submit_error);
    Py_INCREF(hooks.log_callback);
    Py_INCREF(hooks.log_state);
    Py_INCREF(hooks.breathe);
    Py_INCREF(hooks.pending_limit_error);
    Py_INCREF(hooks.unobserved);
    ap__hooks = hooks;
    ap__task_type = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

/* set_main_thread(ident): the thread that runs signal handlers. */
static PyObject *set_main_thread(PyObject *Py_UNUSED(module), PyObject *ident) {
    unsigned long value = PyLong_AsUnsignedLong(ident);
    if (PyErr_Occurred())
        return NULL;
    ap__hooks.main_thread = value;
    Py_RETURN_NONE;
}

static PyObject *set_exiting(PyObject *Py_UNUSED(module), PyObject *flag) {
    int exiting = PyObject_IsTrue(flag);
    if (exiting < 0)
        return NULL;
    /* pairs with is_exiting, with the help of what comes in between: see above */
    ap_u32_store_seq_cst(&ap__interpreter_exiting, (uint32_t)exiting);
    Py_RETURN_NONE;
}

/* Whether set_exiting(True) came before: see above. */
static PyObject *is_exiting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ap_u32_load_seq_cst(&ap__interpreter_exiting) != 0);
}

/* in_worker(): whether the calling thread is a worker thread of some pool. */
static PyObject *in_worker(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(ap__home != NULL);
}

/* seconds(timeout): a timeout as a float or None; what is no number of seconds raises. */
static PyObject *seconds(PyObject *Py_UNUSED(module), PyObject *timeout) {
    uint64_t deadline;
    bool past;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    return timeout == Py_None ? Py_NewRef(timeout) : PyNumber_Float(timeout);
}

static PyMethodDef functions[] = {
    {"configure", configure, METH_VARARGS, "Give the bridge what it needs of the Python layer."},
    {"set_main_thread", set_main_thread, METH_O, "Tell which thread runs signal handlers."},
    {"set_exiting", set_exiting, METH_O, "Whether submits are refused: the interpreter exits."},
    {"is_exiting", is_exiting, METH_NOARGS, "Whether the interpreter exits."},
    {"in_worker", in_worker, METH_NOARGS, "Whether this is a worker thread of some pool."},
    {"seconds", seconds, METH_O, "A timeout as a float, or None; ValueError or TypeError."},
    {NULL, NULL, 0, NULL},
};

/* More than once if the package is imported again after it was dropped from sys.modules: the types
 * stay the same, so that pools and tasks of the first import live on. */
int ap_python_bind(void *pointer) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *module = (PyObject *)pointer;
    int code = 0;
    if (PyModule_AddFunctions(module, functions) < 0 || ap__core_setup(module) < 0 ||
        ap__task_setup(module) < 0 || ap__context_setup(module) < 0 ||
        ap__condition_setup(module) < 0 || ap__completions_setup(module) < 0 ||
        ap__pool_setup(module) < 0 || ap__fork_setup(module) < 0 || ap__worker_setup(module) < 0 ||
        ap__home_setup(module) < 0)
        code = -1;
#ifdef Py_GIL_DISABLED
    if (code == 0 && PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED) < 0)
        code = -1;
#endif
    if (code < 0)
        PyErr_Print();
    PyGILState_Release(state);
    return code;
}
