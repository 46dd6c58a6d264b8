/* The contextvars context that a task runs in.
 *
 * Overview.  A task of a pool that propagates contexts brings a copy of its submitter's, or, when
 * that is empty, none: it then runs in the base context of the worker, which is empty between
 * tasks.  If the pool's initializer has set variables in this thread, they are set in the copy as
 * well, and a task that brings none gets a copy of them.  So each task sees its submitter's
 * variables and the initializer's, and none of another task.
 */
#include "bridge.h"

AP_THREAD_LOCAL PyObject *ap__initial_context;
static _Thread_local PyObject *initial_pairs; /* the same, to be set in another context */

void ap__context_forget(void) {
    Py_CLEAR(ap__initial_context);
    Py_CLEAR(initial_pairs);
}

/* In the context that is entered. */
static int set_values(PyObject *pairs) {
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(pairs); i += 2) {
        PyObject *token =
            PyContextVar_Set(PyTuple_GET_ITEM(pairs, i), PyTuple_GET_ITEM(pairs, i + 1));
        if (!token)
            return -1;
        Py_DECREF(token);
    }
    return 0;
}

/* set_initial_context(pairs): what the initializer of this worker thread has set: variable, value,
 * variable, value. */
static PyObject *set_initial_context(PyObject *Py_UNUSED(module), PyObject *pairs) {
    if (!PyTuple_Check(pairs)) {
        PyErr_Format(PyExc_TypeError, "expected a tuple, not %.200s", Py_TYPE(pairs)->tp_name);
        return NULL;
    }
    PyObject *context = PyContext_New();
    if (!context || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        return NULL;
    }
    bool failed = set_values(pairs) < 0;
    if (PyContext_Exit(context) < 0 || failed) {
        Py_DECREF(context);
        return NULL;
    }
    Py_XSETREF(ap__initial_context, context);
    Py_XSETREF(initial_pairs, Py_NewRef(pairs));
    Py_RETURN_NONE;
}

int ap__context_capture(PyObject **out) {
    *out = NULL;
    PyObject *current = PyThreadState_Get()->context;
    if (!current || Py_TYPE(current)->tp_as_mapping->mp_length(current) == 0)
        return 0;
    *out = PyContext_CopyCurrent();
    if (!*out)
        return -1;
#ifdef Py_GIL_DISABLED
    ap__give_up_ownership(*out); /* the worker lets go of it, and of what the task sets in it */
#else
    PyObject_GC_UnTrack(*out);
#endif
    return 0;
}

PyObject *ap__context_enter_base(void) {
    PyObject *base = ap__initial_context ? PyContext_Copy(ap__initial_context) : PyContext_New();
    if (!base || PyContext_Enter(base) < 0) {
        PyErr_Clear(); /* out of memory: tasks run in the context of the thread */
        Py_CLEAR(base);
    }
    return base;
}

void ap__context_leave_base(PyObject *base) {
    if (base && PyContext_Exit(base) < 0)
        PyErr_WriteUnraisable(NULL);
    Py_XDECREF(base);
}

void ap__context_replace(PyObject **base) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *fresh = PyContext_New();
    if (!fresh || PyContext_Exit(*base) < 0 || PyContext_Enter(fresh) < 0) {
        Py_XDECREF(fresh);
        PyErr_WriteUnraisable(NULL);
    } else {
        Py_SETREF(*base, fresh);
    }
    PyErr_Restore(type, error, traceback);
}

PyObject *ap__context_call(ap_pytask *task, PyObject *context, const ap_call *call) {
    bool has_initial = ap__context_has_initial(task), copied = !context;
    if (copied && !(context = PyContext_Copy(ap__initial_context)))
        return NULL;
    PyObject *result = NULL;
    if (PyContext_Enter(context) == 0) {
        if (copied || !has_initial || set_values(initial_pairs) == 0)
            result = ap__call(call);
        PyObject *type, *error, *traceback;
        if (!result)
            PyErr_Fetch(&type, &error, &traceback);
        if (PyContext_Exit(context) < 0)
            PyErr_WriteUnraisable(call->fn);
        if (!result)
            PyErr_Restore(type, error, traceback);
    }
    if (copied)
        Py_DECREF(context);
    return result;
}

static PyMethodDef functions[] = {
    {"set_initial_context", set_initial_context, METH_O,
     "What the initializer of this worker thread has set: variables and values in turn."},
    {NULL, NULL, 0, NULL},
};

int ap__context_setup(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
