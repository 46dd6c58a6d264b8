/* What a task's owner may do with it: the methods and attributes of concurrent.futures.Future.
 *
 * Overview.  Each reads or changes the state word through run.c, observe.c and block.c.  In a
 * forked child the first touch of a task that the parent left unfinished cancels it (fork.c), so
 * everything here asks state_of first.
 */
#include "bridge.h"

#include <string.h>

#define METHOD(f) ((PyCFunction)(void (*)(void))(f))

/* ---- reading --------------------------------------------------------------------------- */

static uint32_t state_of(PyObject *op) {
    /* acquire pairs with the publishing RMW: a done state makes the outcome visible */
    uint32_t state = ap_u32_load_acquire(&((ap_pytask *)op)->state);
    if (ap__state_is_done(state))
        return state;
    ap__task_check_fork((ap_pytask *)op);
    /* as above */
    return ap_u32_load_acquire(&((ap_pytask *)op)->state);
}

/* The outcome of a finished task, borrowed; NULL after the collector cleared it. */
static PyObject *outcome_of(PyObject *op, uint32_t state, bool *failed, PyObject **traceback) {
    ap_pytask *self = (ap_pytask *)op;
    if (state & AP_OVERRIDE) {
        *failed = self->observer->failed;
        *traceback = self->observer->traceback;
        return self->observer->outcome;
    }
    *failed = self->failed;
    *traceback = self->failed ? self->args : NULL;
    return self->outcome;
}

/* Somebody sees the exception of a failed task. */
static void note_look(PyObject *op) {
    ap_pytask *self = (ap_pytask *)op;
    if (!(ap_u32_load_relaxed(&self->state) & AP_LOOKED))
        ap_u32_or_relaxed(&self->state, AP_LOOKED);
}

/* The same for a user who looks at a done task; -1 with CancelledError if it was cancelled. */
static int settled_outcome(PyObject *op, uint32_t state, PyObject **outcome, bool *failed,
                           PyObject **traceback) {
    ap__task_seen_done((ap_pytask *)op);
    if ((state & AP_STATE) == AP_CANCELLED) {
        PyErr_SetNone(ap__hooks.cancelled_error);
        return -1;
    }
    *outcome = outcome_of(op, state, failed, traceback);
    if (*failed)
        note_look(op);
    return 0;
}

static PyObject *result_now(PyObject *op, uint32_t state) {
    bool failed;
    PyObject *outcome, *traceback;
    if (settled_outcome(op, state, &outcome, &failed, &traceback) < 0)
        return NULL;
    if (!failed || !outcome)
        return Py_NewRef(outcome ? outcome : Py_None);
    /* from the task's own traceback each time, so that it does not grow */
    if (!traceback)
        PyException_SetTraceback(outcome, Py_None);
    PyErr_Restore(Py_NewRef(Py_TYPE(outcome)), Py_NewRef(outcome), Py_XNewRef(traceback));
    return NULL;
}

static PyObject *exception_now(PyObject *op, uint32_t state) {
    bool failed;
    PyObject *outcome, *traceback;
    if (settled_outcome(op, state, &outcome, &failed, &traceback) < 0)
        return NULL;
    return Py_NewRef(failed && outcome ? outcome : Py_None);
}

/* Whether the task is done and has failed; nobody has seen its exception by that. */
static PyObject *task_has_failed(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    bool failed = false;
    PyObject *traceback;
    uint32_t state = state_of(op);
    if ((state & AP_STATE) == AP_FINISHED)
        (void)outcome_of(op, state, &failed, &traceback);
    return PyBool_FromLong(failed);
}

/* The one optional argument `name` of a fast call, NULL if it was not given; -1 on misuse. */
static int one_argument(const char *method, const char *name, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames, PyObject **out) {
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    *out = NULL;
    if (nargs + nkw > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most 1 argument (%zd given)", method,
                     nargs + nkw);
        return -1;
    }
    if (nkw && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), name) != 0) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", method,
                     PyTuple_GET_ITEM(kwnames, 0));
        return -1;
    }
    if (nargs + nkw)
        *out = args[0];
    return 0;
}

/* Runs the task here if that is due, else waits for it.  The done state, or -1. */
static int64_t wait_done(PyObject *op, PyObject *timeout) {
    ap_pytask *self = (ap_pytask *)op;
    uint64_t deadline;
    bool past;
    if (ap__deadline_from_timeout(timeout, &deadline, &past) < 0)
        return -1;
    int done = past ? 0 : ap__task_run_inline(self);
    if (!done)
        done = ap__task_wait(self, deadline);
    if (done < 0)
        return -1;
    if (!done) {
        PyErr_SetNone(PyExc_TimeoutError);
        return -1;
    }
    return state_of(op);
}

/* The state of the task once it is done, for method(timeout=None); -1 with an exception. */
static int64_t done_state(PyObject *op, const char *method, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames) {
    PyObject *timeout;
    if (one_argument(method, "timeout", args, nargs, kwnames, &timeout) < 0)
        return -1;
    uint32_t state = state_of(op);
    return ap__state_is_done(state) ? state : wait_done(op, timeout);
}

static PyObject *task_result(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
    int64_t state = done_state(op, "result", args, nargs, kwnames);
    return state < 0 ? NULL : result_now(op, (uint32_t)state);
}

static PyObject *task_exception(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames) {
    int64_t state = done_state(op, "exception", args, nargs, kwnames);
    return state < 0 ? NULL : exception_now(op, (uint32_t)state);
}

static PyObject *task_done(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    if (!ap__state_is_done(state_of(op)))
        Py_RETURN_FALSE;
    ap__task_seen_done((ap_pytask *)op);
    Py_RETURN_TRUE;
}

static PyObject *task_running(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong((state_of(op) & AP_STATE) == AP_RUNNING);
}

static PyObject *task_cancelled(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong((state_of(op) & AP_STATE) == AP_CANCELLED);
}

static PyObject *task_snapshot(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    uint32_t state = state_of(op);
    bool failed;
    PyObject *traceback, *none = Py_None;
    if ((state & AP_STATE) == AP_CANCELLED)
        return PyTuple_Pack(4, Py_True, Py_True, none, none);
    if ((state & AP_STATE) != AP_FINISHED)
        return PyTuple_Pack(4, Py_False, Py_False, none, none);
    PyObject *outcome = outcome_of(op, state, &failed, &traceback);
    if (!outcome)
        outcome = none;
    if (failed)
        note_look(op);
    return PyTuple_Pack(4, Py_True, Py_False, failed ? none : outcome, failed ? outcome : none);
}

/* ---- deciding -------------------------------------------------------------------------- */

static PyObject *task_cancel(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    ap_pytask *self = (ap_pytask *)op;
    (void)state_of(op);
    if (ap__task_cancel(self))
        Py_RETURN_TRUE;
    return PyBool_FromLong((state_of(op) & AP_STATE) == AP_CANCELLED);
}

static PyObject *task_add_done_callback(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                                        PyObject *kwnames) {
    PyObject *fn;
    if (one_argument("add_done_callback", "fn", args, nargs, kwnames, &fn) < 0)
        return NULL;
    if (!fn) {
        PyErr_SetString(PyExc_TypeError,
                        "add_done_callback() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    (void)state_of(op);
    return ap__task_add_done_callback(op, fn, false);
}

static const char *state_name(uint32_t state) {
    static const char *const names[] = {"PENDING", "RUNNING", "FINISHED", "CANCELLED_AND_NOTIFIED"};
    return names[state & AP_STATE];
}

static PyObject *set_outcome(PyObject *op, PyObject *outcome, bool failed) {
    ap_pytask *self = (ap_pytask *)op;
    (void)state_of(op);
    if (!ap__task_observe(self))
        return NULL;
    Py_INCREF(outcome);
    if (ap__task_settle(self, AP_FROM_PENDING | AP_FROM_RUNNING, AP_FINISHED | AP_OVERRIDE, outcome,
                        failed))
        Py_RETURN_NONE;
    Py_DECREF(outcome);
    PyErr_Format(ap__hooks.invalid_state_error, "%s: %R", state_name(state_of(op)), op);
    return NULL;
}

static PyObject *task_set_result(PyObject *op, PyObject *result) {
    return set_outcome(op, result, false);
}

static PyObject *task_set_exception(PyObject *op, PyObject *exception) {
    PyObject *outcome = Py_NewRef(exception);
    if (PyExceptionClass_Check(exception)) {
        Py_SETREF(outcome, PyObject_CallNoArgs(exception));
        if (!outcome)
            return NULL;
    }
    if (!PyExceptionInstance_Check(outcome)) {
        PyErr_Format(PyExc_TypeError, "set_exception() takes an exception, not %.200s",
                     Py_TYPE(outcome)->tp_name);
        Py_DECREF(outcome);
        return NULL;
    }
    PyObject *none = set_outcome(op, outcome, true);
    Py_DECREF(outcome);
    return none;
}

static PyObject *task_set_running(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    ap_pytask *self = (ap_pytask *)op;
    uint32_t state = state_of(op);
    bool started = false;
    ap__bound_pin(self);
    while (!started && (state & AP_STATE) == AP_PENDING) {
        /* pairs as the CAS of ap__task_start; also by whoever took the call out */
        started =
            ap_u32_cas_acq_rel(&self->state, &state, (state & ~(uint32_t)AP_TAKEN) | AP_RUNNING);
    }
    if (started && !(state & AP_TAKEN) && self->bounded)
        ap__bound_leave(self->core);
    ap__bound_unpin(self);
    if (started) {
        if (!(state & AP_TAKEN))
            ap__task_drop_call(self);
        Py_RETURN_TRUE;
    }
    if ((state_of(op) & AP_STATE) == AP_CANCELLED)
        Py_RETURN_FALSE;
    PyObject *logged = PyObject_CallOneArg(ap__hooks.log_state, op);
    if (!logged)
        return NULL;
    Py_DECREF(logged);
    PyErr_SetString(PyExc_RuntimeError, "Future in unexpected state");
    return NULL;
}

static PyObject *task_invoke_callbacks(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    (void)op; /* whoever settles the task calls them, once */
    Py_RETURN_NONE;
}

/* (fn, args, kwargs) of a pending task, which then will not run; None if it is not pending. */
static PyObject *task_take_call(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    ap_pytask *self = (ap_pytask *)op;
    uint32_t state = ap_u32_load_relaxed(&self->state);
    bool taken = false;
    if (!self->core)
        Py_RETURN_NONE;
    ap__bound_pin(self);
    while (!taken && (state & (AP_STATE | AP_TAKEN)) == AP_PENDING) {
        /* acquire pairs with the queue's hand-over: the call is visible */
        taken = ap_u32_cas_acq_rel(&self->state, &state, state | AP_TAKEN);
    }
    if (taken && self->bounded)
        ap__bound_leave(self->core);
    ap__bound_unpin(self);
    if (!taken)
        Py_RETURN_NONE;
    PyObject *names = self->outcome, *values = self->args, *fn = self->fn;
    PyObject *context = ap__context_take(&self->context);
    size_t nargs = self->nargs;
    self->outcome = self->args = self->fn = NULL;
    PyObject *args = NULL, *kwargs = PyDict_New(), *result = NULL;
    if (values && nargs == 1 && !names) {
        args = PyTuple_Pack(1, values);
    } else if (!values) {
        args = PyTuple_New(0);
    } else {
        Py_ssize_t nkw = names ? PyTuple_GET_SIZE(names) : 0;
        Py_ssize_t n = PyTuple_GET_SIZE(values) - nkw;
        args = PyTuple_GetSlice(values, 0, n);
        for (Py_ssize_t i = 0; kwargs && i < nkw; i++) {
            if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, i), PyTuple_GET_ITEM(values, n + i)))
                Py_CLEAR(kwargs);
        }
    }
    if (args && kwargs)
        result = PyTuple_Pack(3, fn, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_DECREF(fn);
    Py_XDECREF(values);
    Py_XDECREF(names);
    Py_XDECREF(context);
    return result;
}

static PyObject *task_run_inline(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    (void)state_of(op);
    int ran = ap__task_run_inline((ap_pytask *)op);
    return ran < 0 ? NULL : PyBool_FromLong(ran);
}

/* ---- attributes ------------------------------------------------------------------------ */

static PyObject *task_get_state(PyObject *op, void *Py_UNUSED(closure)) {
    return PyUnicode_InternFromString(state_name(state_of(op)));
}

static PyObject *task_get_result(PyObject *op, void *Py_UNUSED(closure)) {
    uint32_t state = state_of(op);
    bool failed;
    PyObject *traceback, *outcome = NULL;
    if ((state & AP_STATE) == AP_FINISHED)
        outcome = outcome_of(op, state, &failed, &traceback);
    return Py_NewRef(outcome && !failed ? outcome : Py_None);
}

static PyObject *task_get_exception(PyObject *op, void *Py_UNUSED(closure)) {
    uint32_t state = state_of(op);
    bool failed;
    PyObject *traceback, *outcome = NULL;
    if ((state & AP_STATE) == AP_FINISHED)
        outcome = outcome_of(op, state, &failed, &traceback);
    if (outcome && failed)
        note_look(op);
    return Py_NewRef(outcome && failed ? outcome : Py_None);
}

/* Makes *slot on first touch and marks the task observed. */
static PyObject *touch(PyObject *op, size_t offset, PyObject *(*make)(void)) {
    ap_pytask *self = (ap_pytask *)op;
    (void)state_of(op);
    ap_observer *observer = ap__task_observe(self);
    PyObject *fresh = observer ? make() : NULL;
    if (!fresh)
        return NULL;
    PyObject **slot = (PyObject **)(void *)((char *)observer + offset), *result;
    Py_BEGIN_CRITICAL_SECTION(op);
    ap__task_await_handover(self);
    if (!*slot) {
        *slot = fresh;
        fresh = NULL;
        /* pairs with the publishing CAS, which expects OBSERVED clear: observe.c */
        ap_u32_or_acq_rel(&self->state, AP_OBSERVED);
    }
    result = Py_NewRef(*slot);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(fresh);
    return result;
}

static PyObject *make_list(void) {
    return PyList_New(0);
}

static PyObject *task_get_condition(PyObject *op, void *Py_UNUSED(closure)) {
    ap_pytask *self = (ap_pytask *)op;
    PyObject *condition;
    (void)state_of(op);
    /* made by an earlier touch: the stdlib asks for it many times */
    Py_BEGIN_CRITICAL_SECTION(op);
    condition = self->observer ? Py_XNewRef(self->observer->condition) : NULL;
    Py_END_CRITICAL_SECTION();
    return condition ? condition : touch(op, offsetof(ap_observer, condition), ap__condition_new);
}

static PyObject *task_get_waiters(PyObject *op, void *Py_UNUSED(closure)) {
    return touch(op, offsetof(ap_observer, waiters), make_list);
}

static PyObject *task_get_callbacks(PyObject *op, void *Py_UNUSED(closure)) {
    PyObject *list = touch(op, offsetof(ap_observer, callbacks), make_list);
#ifdef Py_GIL_DISABLED
    /* A copy: the list has a lock of its own, and if somebody else held that, the task's section
     * would be left in the middle of observe.c's enlist. */
    PyObject *copy = NULL;
    if (list) {
        Py_BEGIN_CRITICAL_SECTION(op);
        copy = PyList_GetSlice(list, 0, PyList_GET_SIZE(list));
        Py_END_CRITICAL_SECTION();
        Py_SETREF(list, copy);
    }
#endif
    return list;
}

PyObject *ap__future_repr(PyObject *op) {
    static const char *const words[] = {"pending", "running", "finished", "cancelled"};
    uint32_t state = state_of(op);
    const char *name = Py_TYPE(op)->tp_name;
    const char *dot = strrchr(name, '.');
    if (dot)
        name = dot + 1;
    if ((state & AP_STATE) != AP_FINISHED)
        return PyUnicode_FromFormat("<%s at %p state=%s>", name, op, words[state & AP_STATE]);
    bool failed;
    PyObject *traceback;
    PyObject *outcome = outcome_of(op, state, &failed, &traceback);
    PyObject *type = PyType_GetName(Py_TYPE(outcome ? outcome : Py_None));
    if (!type)
        return NULL;
    PyObject *text = PyUnicode_FromFormat("<%s at %p state=finished %s %U>", name, op,
                                          failed ? "raised" : "returned", type);
    Py_DECREF(type);
    return text;
}

/* A callback that fail_next has taken: it is called now. */
static PyObject *task_give_callback(PyObject *op, PyObject *fn) {
    return ap__task_add_done_callback(op, fn, true);
}

PyMethodDef ap__future_methods[] = {
    {"result", METHOD(task_result), METH_FASTCALL | METH_KEYWORDS,
     "result($self, timeout=None)\n--\n\n"
     "Return what the call returned, or raise what it raised; wait for it if need be.\n\n"
     "timeout: seconds, or None for no limit; TimeoutError when it has passed, CancelledError if\n"
     "the task was cancelled.  A worker that waits for a task of its own pool runs that task\n"
     "itself if it has not started; the timeout does not bound that run."},
    {"exception", METHOD(task_exception), METH_FASTCALL | METH_KEYWORDS,
     "exception($self, timeout=None)\n--\n\n"
     "Return the exception that the call raised, or None; wait for it as result() does."},
    {"done", task_done, METH_NOARGS,
     "done($self)\n--\n\n"
     "True if the call has ended or was cancelled."},
    {"running", task_running, METH_NOARGS,
     "running($self)\n--\n\n"
     "True if the call is being run."},
    {"cancelled", task_cancelled, METH_NOARGS,
     "cancelled($self)\n--\n\n"
     "True if the task was cancelled."},
    {"cancel", task_cancel, METH_NOARGS,
     "cancel($self)\n--\n\n"
     "Cancel the task if it has not started.  True if it is cancelled: then it never runs."},
    {"add_done_callback", METHOD(task_add_done_callback), METH_FASTCALL | METH_KEYWORDS,
     "add_done_callback($self, fn)\n--\n\n"
     "Call fn(task) when the task is done, in the thread that ends it; at once if it is done."},
    {"set_result", task_set_result, METH_O,
     "set_result($self, result, /)\n--\n\n"
     "End the task from outside, with a result."},
    {"set_exception", task_set_exception, METH_O,
     "set_exception($self, exception, /)\n--\n\n"
     "End the task from outside, with an exception."},
    {"set_running_or_notify_cancel", task_set_running, METH_NOARGS,
     "set_running_or_notify_cancel($self)\n--\n\n"
     "Mark the task as running; False if it was cancelled."},
    {"_get_snapshot", task_snapshot, METH_NOARGS,
     "_get_snapshot($self)\n--\n\n"
     "(done, cancelled, result, exception)"},
    {"_invoke_callbacks", task_invoke_callbacks, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {"_take_call", task_take_call, METH_NOARGS, NULL},
    {"_run_inline", task_run_inline, METH_NOARGS, NULL},
    {"_has_failed", task_has_failed, METH_NOARGS, NULL},
    {"_give_callback", task_give_callback, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef ap__future_attributes[] = {
    {"_state", task_get_state, NULL, NULL, NULL},
    {"_result", task_get_result, NULL, NULL, NULL},
    {"_exception", task_get_exception, NULL, NULL, NULL},
    {"_condition", task_get_condition, NULL, NULL, NULL},
    {"_waiters", task_get_waiters, NULL, NULL, NULL},
    {"_done_callbacks", task_get_callbacks, NULL, NULL, NULL},
    {"__dict__", ap__task_get_dict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
