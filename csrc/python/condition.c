/* The `_condition` of a task: threading.Condition's methods over a re-entrant lock.
 *
 * Overview.  The stdlib's wait and as_completed take this lock for every future they are given,
 * so it is small and made on first touch.  The lock is a word: 0 free, 1 held, 2 held and
 * somebody sleeps.  Waiting is a sequence number: notify raises it and wakes every waiter, so
 * a waiter may wake although another was meant, as Condition's users must allow for.
 *
 * In a forked child the lock is free, unless the thread that forked has it: whoever else had it is
 * not there.  The first touch there sees it by the number of the fork.
 * Tests: tests/model/python/model_{condition,observe,fork}.c, tests/test_condition.py.
 */
#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_atomic_u32 word;
    ap_atomic_u32 sequence;
    ap_atomic_u64 owner; /* thread identifier; 0: nobody */
    uint32_t depth;      /* by the owner only */
    ap_atomic_u32 forks; /* ap__forks, as of when the lock was made or renewed */
} ap_condition;

PyTypeObject *ap__condition_type;

static uint64_t self_id(void) {
    return (uint64_t)PyThread_get_thread_ident();
}

static AP_NOINLINE void renew(ap_condition *self) {
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    if (ap_u32_load_relaxed(&self->forks) != ap__forks) {
        /* the thread that forked is this process's main thread: fork.c */
        if (ap_u64_load_relaxed(&self->owner) != ap__hooks.main_thread) {
            ap_u64_store_relaxed(&self->owner, 0);
            ap_u32_store_relaxed(&self->word, 0);
            self->depth = 0;
        }
        /* release pairs with the load below: whoever sees the number sees the lock as it is now */
        ap_u32_store_release(&self->forks, ap__forks);
    }
    Py_END_CRITICAL_SECTION();
}

static void check_fork(ap_condition *self) {
    /* pairs with the store in renew */
    if (AP_UNLIKELY(ap_u32_load_acquire(&self->forks) != ap__forks))
        renew(self);
}

static bool owned(ap_condition *self) {
    check_fork(self);
    return ap_u64_load_relaxed(&self->owner) == self_id();
}

static void unlock(ap_condition *self) {
    ap_u64_store_relaxed(&self->owner, 0);
    /* release pairs with the acquiring CAS or exchange of the next owner */
    if (ap_u32_exchange_acq_rel(&self->word, 0) == 2)
        ap_wake_u32(&self->word, 1);
}

/* 1: locked, 0: the deadline passed, -1: a signal handler raised (only if `interruptible`). */
static int lock(ap_condition *self, uint64_t deadline, bool interruptible) {
    uint32_t expected = 0;
    check_fork(self); /* again: who waits may have forked in a signal handler */
    /* acquire pairs with the exchange in unlock: the owner sees what the last one wrote */
    if (!ap_u32_cas_acq_rel(&self->word, &expected, 1)) {
        /* 2, "somebody sleeps", also when this takes it: others may sleep still */
        while (ap_u32_exchange_acq_rel(&self->word, 2) != 0) { /* pairs as the CAS */
            if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
                return 0;
            if (interruptible) {
                if (ap__word_wait(&self->word, 2, deadline) < 0)
                    return -1;
            } else {
                PyThreadState *thread = PyEval_SaveThread();
                ap_wait_u32(&self->word, 2, deadline);
                PyEval_RestoreThread(thread);
            }
        }
    }
    ap_u64_store_relaxed(&self->owner, self_id());
    return 1;
}

void ap__condition_acquire(PyObject *op) {
    ap_condition *self = (ap_condition *)op;
    if (!owned(self))
        lock(self, AP_FOREVER, false);
    self->depth++;
}

void ap__condition_release(PyObject *op) {
    ap_condition *self = (ap_condition *)op;
    if (--self->depth == 0)
        unlock(self);
}

void ap__condition_notify_all(PyObject *op) {
    ap_condition *self = (ap_condition *)op;
    /* release pairs with the acquire load in condition_wait */
    ap_u32_add_acq_rel(&self->sequence, 1);
    ap_wake_u32(&self->sequence, UINT32_MAX);
}

PyObject *ap__condition_new(void) {
    PyObject *op = ap__condition_type->tp_alloc(ap__condition_type, 0);
    if (op)
        ap_u32_store_relaxed(&((ap_condition *)op)->forks, ap__forks);
    return op;
}

static PyObject *condition_acquire(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"blocking", "timeout", NULL};
    ap_condition *self = (ap_condition *)op;
    int blocking = 1;
    PyObject *timeout = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pO", names, &blocking, &timeout))
        return NULL;
    uint64_t deadline = AP_FOREVER;
    if (timeout) {
        double seconds = PyFloat_AsDouble(timeout);
        if (seconds == -1.0 && PyErr_Occurred())
            return NULL;
        if (!blocking && seconds != -1.0) {
            PyErr_SetString(PyExc_ValueError, "can't specify a timeout for a non-blocking call");
            return NULL;
        }
        if (seconds < 0 && seconds != -1.0) {
            PyErr_SetString(PyExc_ValueError, "timeout value must be a non-negative number");
            return NULL;
        }
        bool past;
        PyObject *value = seconds == -1.0 ? NULL : PyFloat_FromDouble(seconds);
        int failed = ap__deadline_from_timeout(value, &deadline, &past);
        Py_XDECREF(value);
        if (failed || PyErr_Occurred())
            return NULL;
    }
    if (!blocking)
        deadline = 0;
    if (!owned(self)) {
        int locked = lock(self, deadline, true);
        if (locked < 0)
            return NULL;
        if (!locked)
            Py_RETURN_FALSE;
    }
    self->depth++;
    Py_RETURN_TRUE;
}

/* Whether the calling thread holds the lock; if not, RuntimeError with the text. */
static bool check_owned(PyObject *op, const char *text) {
    if (owned((ap_condition *)op))
        return true;
    PyErr_SetString(PyExc_RuntimeError, text);
    return false;
}

static PyObject *condition_release(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    if (!check_owned(op, "cannot release un-acquired lock"))
        return NULL;
    ap__condition_release(op);
    Py_RETURN_NONE;
}

static PyObject *condition_enter(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    ap_condition *self = (ap_condition *)op;
    if (!owned(self) && lock(self, AP_FOREVER, true) < 0)
        return NULL;
    self->depth++;
    Py_RETURN_TRUE;
}

static PyObject *condition_exit(PyObject *op, PyObject *const *Py_UNUSED(args),
                                Py_ssize_t Py_UNUSED(nargs)) {
    return condition_release(op, NULL);
}

/* 1: notified, 0: timed out, -1: exception. */
static int wait_once(ap_condition *self, uint64_t deadline) {
    /* pairs with the add in notify; before we unlock, so that a notify after it differs */
    uint32_t sequence = ap_u32_load_acquire(&self->sequence);
    uint32_t depth = self->depth;
    self->depth = 0;
    unlock(self);
    int notified = ap__word_wait(&self->sequence, sequence, deadline);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    lock(self, AP_FOREVER, false);
    self->depth = depth;
    PyErr_Restore(type, error, traceback);
    return notified;
}

static PyObject *condition_wait(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = NULL;
    uint64_t deadline;
    bool past;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &timeout))
        return NULL;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    if (!check_owned(op, "cannot wait on un-acquired lock"))
        return NULL;
    int notified = wait_once((ap_condition *)op, deadline);
    return notified < 0 ? NULL : PyBool_FromLong(notified);
}

static PyObject *condition_wait_for(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"predicate", "timeout", NULL};
    PyObject *predicate, *timeout = NULL;
    uint64_t deadline;
    bool past;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O", names, &predicate, &timeout))
        return NULL;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return NULL;
    if (!check_owned(op, "cannot wait on un-acquired lock"))
        return NULL;
    for (;;) {
        PyObject *result = PyObject_CallNoArgs(predicate);
        if (!result)
            return NULL;
        int true_ = PyObject_IsTrue(result);
        if (true_ != 0 || (deadline != AP_FOREVER && ap_clock_now() >= deadline)) {
            if (true_ >= 0)
                return result;
            Py_DECREF(result);
            return NULL;
        }
        Py_DECREF(result);
        if (!check_owned(op, "cannot wait on un-acquired lock"))
            return NULL;
        if (wait_once((ap_condition *)op, deadline) < 0)
            return NULL;
    }
}

static PyObject *condition_notify(PyObject *op, PyObject *args) {
    Py_ssize_t count = 1;
    if (!PyArg_ParseTuple(args, "|n", &count))
        return NULL;
    if (!check_owned(op, "cannot notify on un-acquired lock"))
        return NULL;
    ap__condition_notify_all(op);
    Py_RETURN_NONE;
}

static PyObject *condition_is_owned(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(owned((ap_condition *)op));
}

static PyObject *condition_locked(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    check_fork((ap_condition *)op);
    return PyBool_FromLong(ap_u32_load_relaxed(&((ap_condition *)op)->word) != 0);
}

static void condition_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

#define METHOD(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef condition_methods[] = {
    {"acquire", METHOD(condition_acquire), METH_VARARGS | METH_KEYWORDS, NULL},
    {"release", condition_release, METH_NOARGS, NULL},
    {"__enter__", condition_enter, METH_NOARGS, NULL},
    {"__exit__", METHOD(condition_exit), METH_FASTCALL, NULL},
    {"wait", METHOD(condition_wait), METH_VARARGS | METH_KEYWORDS, NULL},
    {"wait_for", METHOD(condition_wait_for), METH_VARARGS | METH_KEYWORDS, NULL},
    {"notify", condition_notify, METH_VARARGS, NULL},
    {"notify_all", condition_notify, METH_VARARGS, NULL},
    {"locked", condition_locked, METH_NOARGS, NULL},
    {"_is_owned", condition_is_owned, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot condition_slots[] = {
    {Py_tp_doc, "A re-entrant lock and the condition of one task, as threading.Condition."},
    {Py_tp_dealloc, condition_dealloc},
    {Py_tp_methods, condition_methods},
    {0, NULL},
};

static PyType_Spec condition_spec = {
    .name = "affinitypool._core.Condition",
    .basicsize = sizeof(ap_condition),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = condition_slots,
};

int ap__condition_setup(PyObject *module) {
    if (!ap__condition_type)
        ap__condition_type = (PyTypeObject *)PyType_FromSpec(&condition_spec);
    return ap__condition_type
               ? PyModule_AddObjectRef(module, "Condition", (PyObject *)ap__condition_type)
               : -1;
}
