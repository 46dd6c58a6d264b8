/* TaskBase: a task and its future in one object; making and freeing it.
 *
 * Overview.  affinitypool.Task inherits TaskBase and concurrent.futures.Future, in that order:
 * the stdlib's class gives the type and its few untouched methods, TaskBase the layout and
 * everything that is hot.  Its methods are in future.c.
 */
#include "bridge.h"

#include <string.h>

PyTypeObject *ap__task_base_type;
PyTypeObject *ap__task_type;
ap_hooks ap__hooks;

void ap__task_run_header(ap_task *task, ap_worker *worker) {
    (void)worker;
    ap_pytask *self = ap__task_from_header(task);
    PyObject *base = NULL;
    if (ap__task_start(self)) {
        ap__task_call(self, &base);
        ap__task_publish(self);
    }
    Py_DECREF(self);
}

/* ---- making and freeing ---------------------------------------------------------------- */

ap_pytask *ap__task_new(ap_core *core, PyObject *fn, PyObject *const *values, size_t nargs,
                        PyObject *kwnames, bool isolated) {
    size_t nkw = kwnames ? (size_t)PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *args = NULL, *context = NULL;
    if (isolated && ap__context_capture(&context) < 0)
        return NULL;
    if (nargs == 1 && !nkw) {
        args = Py_NewRef(values[0]);
    } else if (nargs + nkw) {
        args = PyTuple_New((Py_ssize_t)(nargs + nkw));
        if (!args)
            goto fail;
        for (size_t i = 0; i < nargs + nkw; i++)
            PyTuple_SET_ITEM(args, (Py_ssize_t)i, Py_NewRef(values[i]));
    }
    ap_pytask *task = (ap_pytask *)ap__task_type->tp_alloc(ap__task_type, 0);
    if (!task)
        goto fail;
#ifdef Py_GIL_DISABLED
    /* The queue's reference is dropped by another thread, which would otherwise have to ask
     * this one to do it: count it where that thread will look. */
    _Py_atomic_add_ssize(&((PyObject *)task)->ob_ref_shared, (Py_ssize_t)1 << _Py_REF_SHARED_SHIFT);
#else
    Py_INCREF(task);
    PyObject_GC_UnTrack(task); /* run.c: track */
#endif
    task->header.run = ap__task_run_header;
    task->core = core;
    task->fn = Py_NewRef(fn);
    task->args = args;
    task->nargs = nargs < UINT16_MAX ? (uint16_t)nargs : UINT16_MAX;
    task->outcome = nkw ? Py_NewRef(kwnames) : NULL;
    task->context = context;
    task->has_context = context != NULL;
    task->isolated = isolated;
    task->bounded = core->max_pending != 0;
    return task;

fail:
    Py_XDECREF(ap__context_take(&context));
    Py_XDECREF(args);
    return NULL;
}

void ap__task_unqueue(ap_pytask *task) {
    if (task->bounded) {
        task->bounded = false;
        ap__bound_leave(task->core);
    }
    Py_DECREF(task);
}

static int task_traverse(PyObject *op, visitproc visit, void *arg) {
    ap_pytask *self = (ap_pytask *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->fn);
    Py_VISIT(self->args);
    Py_VISIT(self->outcome);
    Py_VISIT(self->context);
    if (self->observer) {
        Py_VISIT(self->observer->condition);
        Py_VISIT(self->observer->waiters);
        Py_VISIT(self->observer->callbacks);
        Py_VISIT(self->observer->watchers);
        Py_VISIT(self->observer->outcome);
        Py_VISIT(self->observer->traceback);
    }
    return 0;
}

static int task_clear(PyObject *op) {
    ap_pytask *self = (ap_pytask *)op;
    ap__task_drop_call(self);
    if (self->observer) {
        Py_CLEAR(self->observer->waiters);
        Py_CLEAR(self->observer->callbacks);
        Py_CLEAR(self->observer->watchers);
        Py_CLEAR(self->observer->outcome);
        Py_CLEAR(self->observer->traceback);
    }
    return 0;
}

static void task_dealloc(PyObject *op) {
    ap_pytask *self = (ap_pytask *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    ap__task_await_handover(self);
    ap__task_drop_call(self);
    ap__observer_free(self->observer);
    type->tp_free(op);
    Py_DECREF(type);
}

static int task_init(PyObject *Py_UNUSED(op), PyObject *args, PyObject *kwargs) {
    if (PyTuple_GET_SIZE(args) || (kwargs && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "Task() takes no arguments");
        return -1;
    }
    return 0;
}

/* Whatever an attribute refers to may refer back. */
static void track_for_attributes(PyObject *op) {
#ifndef Py_GIL_DISABLED
    if (!PyObject_GC_IsTracked(op))
        PyObject_GC_Track(op);
#else
    (void)op;
#endif
}

static int task_setattro(PyObject *op, PyObject *name, PyObject *value) {
    track_for_attributes(op);
    return PyObject_GenericSetAttr(op, name, value);
}

PyObject *ap__task_get_dict(PyObject *op, void *closure) {
    track_for_attributes(op);
    return PyObject_GenericGetDict(op, closure);
}

static PyType_Slot task_slots[] = {
    {Py_tp_doc, "The C side of a task; see affinitypool.Task."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, task_init},
    {Py_tp_dealloc, task_dealloc},
    {Py_tp_traverse, task_traverse},
    {Py_tp_clear, task_clear},
    {Py_tp_setattro, task_setattro},
    {Py_tp_repr, ap__future_repr},
    {Py_tp_methods, ap__future_methods},
    {Py_tp_getset, ap__future_attributes},
    {0, NULL},
};

static PyType_Spec task_spec = {
    .name = "affinitypool._core.TaskBase",
    .basicsize = sizeof(ap_pytask),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = task_slots,
};

/* ---- failures that nobody looked at ------------------------------------------------------ */

/* Runs when a task dies, while somebody wants to know; the task may be revived. */
static void task_finalize(PyObject *op) {
    ap_pytask *self = (ap_pytask *)op;
    ap__task_await_handover(self);
    /* acquire pairs with the publishing RMW: a done state makes the outcome visible */
    uint32_t state = ap_u32_load_acquire(&self->state);
    if ((state & (AP_STATE | AP_LOOKED)) != AP_FINISHED)
        return;
    if (!(state & AP_OVERRIDE ? self->observer->failed : self->failed))
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *none = PyObject_CallOneArg(ap__hooks.unobserved, op);
    if (!none)
        PyErr_WriteUnraisable(ap__hooks.unobserved);
    Py_XDECREF(none);
    PyErr_Restore(type, error, traceback);
}

/* watch_unobserved(type): from now on hooks.unobserved is called for tasks of this type.  The
 * finalizer is not there before, as it costs something for every task that dies, and is not taken
 * back, as the interpreter reads the slot twice. */
static PyObject *watch_unobserved(PyObject *Py_UNUSED(module), PyObject *type) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, ap__task_base_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a type of task");
        return NULL;
    }
    if (!((PyTypeObject *)type)->tp_finalize)
        ((PyTypeObject *)type)->tp_finalize = task_finalize;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"watch_unobserved", watch_unobserved, METH_O,
     "Whether failed tasks that die and that nobody looked at are to be reported."},
    {NULL, NULL, 0, NULL},
};

int ap__task_setup(PyObject *module) {
    if (PyModule_AddFunctions(module, functions) < 0)
        return -1;
    if (!ap__task_base_type)
        ap__task_base_type = (PyTypeObject *)PyType_FromSpec(&task_spec);
    return ap__task_base_type
               ? PyModule_AddObjectRef(module, "TaskBase", (PyObject *)ap__task_base_type)
               : -1;
}
