/* PoolBase: the pool object and its submit.
 *
 * Overview.  affinitypool.ThreadPoolExecutor inherits PoolBase and the stdlib's class.  One
 * call of submit is one C call: signal handlers and finalizers come before or after it, never
 * inside, and it takes no lock.
 */
#include "submit.h"

ap_atomic_u32 ap__interpreter_exiting;

#define METHOD(f) ((PyCFunction)(void (*)(void))(f))

/* In a forked child: gives the pool a core of its own, if it has the parent's. */
static int renew(PyObject *op) {
    PyObject *none = PyObject_CallMethod(op, "_renew", NULL);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

static bool is_orphaned(PyObject *op) {
    ap_core_object *object = ((ap_pool_base *)op)->core;
    return object && ap__core_is_orphaned(object->core);
}

/* Raises the reason why the pool takes no tasks, and returns -1; or 0: its core was the parent's,
 * and has been renewed, so that the caller is to try again. */
static int refuse(PyObject *op) {
    if (is_orphaned(op))
        return renew(op);
    /* pairs with the store in ap__core_close: orders why it is closed before our asking */
    (void)ap_u32_load_acquire(&((ap_pool_base *)op)->core->core->refuse);
    PyObject *none = PyObject_CallMethod(op, "_raise_refused", NULL);
    if (none)
        PyErr_SetString(PyExc_RuntimeError, "cannot schedule new futures after shutdown");
    Py_XDECREF(none);
    return -1;
}

ap_core *ap__pool_open(PyObject *op) {
    ap_core_object *object = ((ap_pool_base *)op)->core;
    if (!object) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the pool is not initialised: call super().__init__() first");
        return NULL;
    }
    /* relaxed: hints, for the sake of the message.  What decides is CLOSED in the shard's tail, and
     * at exit is_exiting, asked by who starts a thread.  In a forked child the store was made by
     * this thread, or before this one was started. */
    while (ap_u32_load_relaxed(&object->core->refuse) |
           ap_u32_load_relaxed(&ap__interpreter_exiting)) {
        if (refuse(op) < 0)
            return NULL;
        object = ((ap_pool_base *)op)->core;
    }
    return object->core;
}

void ap__pool_push_failed(PyObject *op, int code) {
    if (code == AP_E_CLOSED) {
        if (refuse(op) == 0) /* the fork came between the look and the push */
            PyErr_SetString(PyExc_RuntimeError, "the pool was forked in the middle of a submit");
    } else {
        PyErr_SetString(ap__hooks.submit_error, "out of memory: the task was not queued");
    }
}

static PyObject *pool_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);

/* Makes a task and queues it. */
static PyObject *enqueue(PyObject *op, ap_core *core, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
    ap_pytask *task =
        ap__task_new(core, args[0], args + 1, (size_t)nargs - 1, kwnames, core->isolated);
    if (!task) {
        if (core->max_pending)
            ap__bound_leave(core);
        return NULL;
    }
    bool starting_up = ap__core_is_starting_up(core);
    task->counted = starting_up;
    bool needs_worker = starting_up && !ap__core_count_on_idle(core);
    AP_POINT("submit-push");
    if (AP_UNLIKELY(ap__core_is_orphaned(core))) { /* a finalizer has forked: start again */
        ap__task_unqueue(task);
        Py_DECREF(task);
        return pool_submit(op, args, nargs, kwnames);
    }
    int code = ap_pool_push(core->pool, &task->header);
    AP_POINT("submit-pushed");
    if (code < 0) {
        ap__task_unqueue(task);
        Py_DECREF(task);
        ap__pool_push_failed(op, code);
        return NULL;
    }
    ap_task *header = &task->header;
    if ((needs_worker || ap__core_is_stranded(core)) &&
        ap__pool_start_worker(op, core, &header, 1) < 0) {
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

/* Makes a task and runs it in the calling thread.  Ctrl-C while it runs is the caller's too. */
static PyObject *run_in_caller(ap_core *core, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
    ap_pytask *task =
        ap__task_new(core, args[0], args + 1, (size_t)nargs - 1, kwnames, core->isolated);
    if (!task)
        return NULL;
    task->bounded = false; /* it has no place */
    ap__task_unqueue(task);
    if (ap__task_run_here(task) < 0) {
        Py_DECREF(task);
        return NULL;
    }
    if (task->failed && PyErr_GivenExceptionMatches(task->outcome, PyExc_KeyboardInterrupt) &&
        PyThread_get_thread_ident() == ap__hooks.main_thread) {
        PyErr_Restore(Py_NewRef(Py_TYPE(task->outcome)), Py_NewRef(task->outcome),
                      Py_XNewRef(task->args));
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

static inline PyObject *submit(PyObject *op, bool may_wait, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
    for (;;) {
        ap_core *core = ap__pool_open(op);
        if (!core)
            return NULL;
        if (AP_LIKELY(!core->max_pending))
            return enqueue(op, core, args, nargs, kwnames);
        switch (ap__bound_enter(core, may_wait ? core->on_full : AP_FULL_RAISE)) {
        case 1:
            return enqueue(op, core, args, nargs, kwnames);
        case 0:
            return run_in_caller(core, args, nargs, kwnames);
        case -2:
            return NULL;
        default: /* closed, which ap__pool_open says; or left to the parent, and there is a new one
                  */
            break;
        }
    }
}

static PyObject *pool_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "submit() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    return submit(op, true, args, nargs, kwnames);
}

static PyObject *pool_try_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError,
                        "try_submit() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    return submit(op, false, args, nargs, kwnames);
}

/* ---- the object ------------------------------------------------------------------------ */

/* _bind(core, crew, fresh): sets both, and returns whether it did.  `fresh`: the pool has none yet;
 * else it has the parent's, and this is a forked child. */
static PyObject *pool_bind(PyObject *op, PyObject *args) {
    ap_pool_base *self = (ap_pool_base *)op;
    PyObject *core, *crew;
    int fresh;
    if (!PyArg_ParseTuple(args, "O!Op", ap__core_type, &core, &crew, &fresh))
        return NULL;
    if (!ap__task_type) {
        PyErr_SetString(PyExc_RuntimeError, "affinitypool._task has not been imported");
        return NULL;
    }
    if (fresh && self->core) {
        PyErr_SetString(PyExc_RuntimeError, "the pool is initialised already");
        return NULL;
    }
    PyObject *old_core = NULL, *old_crew = NULL;
    bool bound = false;
    Py_BEGIN_CRITICAL_SECTION(op);
    if (fresh || is_orphaned(op)) {
        old_core = (PyObject *)self->core;
        old_crew = self->crew;
        self->core = (ap_core_object *)Py_NewRef(core);
        self->crew = Py_NewRef(crew);
        bound = true;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(old_core);
    Py_XDECREF(old_crew);
    return PyBool_FromLong(bound);
}

/* One of the two, in a forked child that of the child. */
static PyObject *pool_part(PyObject *op, bool crew) {
    ap_pool_base *self = (ap_pool_base *)op;
    if (AP_UNLIKELY(is_orphaned(op)) && renew(op) < 0)
        return NULL;
    PyObject *part;
    Py_BEGIN_CRITICAL_SECTION(op);
    part = Py_XNewRef(crew ? self->crew : (PyObject *)self->core);
    Py_END_CRITICAL_SECTION();
    if (!part)
        PyErr_SetString(PyExc_RuntimeError,
                        "the pool is not initialised: call super().__init__() first");
    return part;
}

static PyObject *pool_get_core(PyObject *op, void *Py_UNUSED(closure)) {
    return pool_part(op, false);
}

static PyObject *pool_get_crew(PyObject *op, void *Py_UNUSED(closure)) {
    return pool_part(op, true);
}

/* The crew as it is, in a forked child perhaps the parent's; None if there is none. */
static PyObject *pool_present_crew(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    PyObject *crew;
    Py_BEGIN_CRITICAL_SECTION(op);
    crew = Py_XNewRef(((ap_pool_base *)op)->crew);
    Py_END_CRITICAL_SECTION();
    return crew ? crew : Py_NewRef(Py_None);
}

static int pool_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ap_pool_base *)op)->core);
    Py_VISIT(((ap_pool_base *)op)->crew);
    return 0;
}

static void pool_dealloc(PyObject *op) {
    ap_pool_base *self = (ap_pool_base *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->core) {
        if (!is_orphaned(op))
            ap__core_close(self->core->core);
        Py_CLEAR(self->core);
    }
    Py_CLEAR(self->crew);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef pool_methods[] = {
    {"submit", METHOD(pool_submit), METH_FASTCALL | METH_KEYWORDS,
     "submit($self, fn, /, *args, **kwargs)\n--\n\n"
     "Run fn(*args, **kwargs) in a worker thread; return its Task at once.\n\n"
     "May be called from any thread, also from tasks, signal handlers and finalizers.  Whatever\n"
     "fn raises, and a TypeError if it cannot be called, is raised by the Task's result().\n"
     "RuntimeError after shutdown(), BrokenThreadPool after an initializer failed, SubmitError\n"
     "when memory has run out; a refused call leaves nothing behind.  With max_pending, on_full\n"
     "says what happens when that many tasks have not started."},
    {"try_submit", METHOD(pool_try_submit), METH_FASTCALL | METH_KEYWORDS,
     "try_submit($self, fn, /, *args, **kwargs)\n--\n\n"
     "Submit as submit() does, but never wait.\n\n"
     "PendingLimitError, at once, when max_pending tasks have not started, whatever on_full is."},
    {"_submit_rows", ap__pool_submit_rows, METH_VARARGS, NULL},
    {"_bind", pool_bind, METH_VARARGS, NULL},
    {"_present_crew", pool_present_crew, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_getset[] = {
    {"_core", pool_get_core, NULL, NULL, NULL},
    {"_crew", pool_get_crew, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "The C side of a pool; see affinitypool.ThreadPoolExecutor."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_traverse, pool_traverse},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_getset},
    {0, NULL},
};

static PyType_Spec pool_spec = {
    .name = "affinitypool._core.PoolBase",
    .basicsize = sizeof(ap_pool_base),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = pool_slots,
};

int ap__pool_setup(PyObject *module) {
    static PyObject *type;
    if (!type && !(type = PyType_FromSpec(&pool_spec)))
        return -1;
    int code = PyModule_AddObjectRef(module, "PoolBase", type);
    return code < 0 ? code : ap__start_setup(module);
}
