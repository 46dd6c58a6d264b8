/* A task that somebody looks at from outside: conditions, waiters, callbacks, watchers.
 *
 * Overview.  A task has no observer until `_condition`, `_waiters`, a callback or a watcher is
 * first asked for.  From then on its state changes only in ap__task_settle.
 *
 *     observing (attached)                        settling (attached)
 *     1  make the observer                        1  take `_condition`, if there is one
 *     2  in the critical section: put the         2  in the critical section: if a condition
 *        entry in, OR the state with OBSERVED        came meanwhile, start again; change the
 *     3  it was done already: take the entry         state; take callbacks and watchers whole
 *        out again, and tell at once              3  tell waiters, notify, let go, wake, tell
 *                                                    watchers, call callbacks
 *
 * Both run in the task's critical section, so an entry is either in the lists that 2 takes or
 * sees the state done.  The one change outside is ap__task_publish_try's CAS, which expects
 * OBSERVED clear: it either comes before the OR, which then sees the task done, or fails.  (A
 * hand-over is waited for: run.c.)
 *
 * The stdlib's wait and as_completed count unfinished futures while they hold every condition;
 * as 2 happens under the condition, no task finishes while they count.
 */
#include "bridge.h"

#include <stdlib.h>

ap_observer *ap__task_observe(ap_pytask *task) {
    ap_observer *observer;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
    if (!task->observer) {
        task->observer = calloc(1, sizeof *task->observer);
#ifndef Py_GIL_DISABLED
        if (task->observer && !PyObject_GC_IsTracked((PyObject *)task))
            PyObject_GC_Track(task);
#endif
    }
    observer = task->observer;
    Py_END_CRITICAL_SECTION();
    if (!observer)
        PyErr_NoMemory();
    return observer;
}

void ap__observer_free(ap_observer *observer) {
    if (!observer)
        return;
    Py_XDECREF(observer->condition);
    Py_XDECREF(observer->waiters);
    Py_XDECREF(observer->callbacks);
    Py_XDECREF(observer->watchers);
    Py_XDECREF(observer->outcome);
    Py_XDECREF(observer->traceback);
    free(observer);
}

/* In the critical section: sets OBSERVED; true if the task was done before it was set. */
static bool mark_observed(ap_pytask *task) {
    /* acquire pairs with the publishing CAS: if it came first, the outcome is visible */
    return ap__state_is_done(ap_u32_or_acq_rel(&task->state, AP_OBSERVED));
}

/* Puts `item` in the list *slot of the task's observer.  1: it is in; 0: the task is done;
 * -1: exception. */
static int enlist(ap_pytask *task, PyObject **slot, PyObject *item) {
    PyObject *spare = PyList_New(0), *list = NULL;
    int result;
    if (!spare)
        return -1;
    AP_POINT("observe");
    Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
    ap__task_await_handover(task);
    if (ap__task_is_done(task)) {
        result = 0;
    } else {
        if (!*slot) {
            *slot = spare;
            spare = NULL;
        }
        list = Py_XNewRef(*slot);
        result = !list || PyList_Append(list, item) < 0 ? -1 : 1;
        /* without a GIL the list has a lock of its own; if user code held that, the section was
         * left meanwhile, and the task may have been settled without the item */
        if (result == 1 && *slot != list) {
            result = 0;
        } else if (result == 1 && mark_observed(task)) {
            Py_ssize_t size = PyList_GET_SIZE(list);
            result = PyList_SetSlice(list, size - 1, size, NULL) < 0 ? -1 : 0;
        }
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(spare);
    Py_XDECREF(list);
    return result;
}

/* Calls one callback; whatever it raises is logged (`swallow`) or, if it is no Exception,
 * left to the caller. */
static int call_back(ap_pytask *task, PyObject *fn, bool swallow) {
    PyObject *result = NULL;
    if (AP_UNLIKELY(ap__stack_is_used_up()))
        PyErr_SetString(PyExc_RecursionError,
                        "callbacks that end further tasks are nested too deep for the stack");
    else
        result = PyObject_CallOneArg(fn, (PyObject *)task);
    if (result) {
        Py_DECREF(result);
        return 0;
    }
    if (!swallow && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    result = PyObject_CallFunctionObjArgs(ap__hooks.log_callback, (PyObject *)task, type, error,
                                          traceback ? traceback : Py_None, NULL);
    if (!result)
        PyErr_WriteUnraisable(fn);
    Py_XDECREF(result);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return 0;
}

PyObject *ap__task_add_done_callback(PyObject *self, PyObject *fn, bool swallow) {
    ap_pytask *task = (ap_pytask *)self;
    if (!ap__task_is_done(task)) {
        ap_observer *observer = ap__task_observe(task);
        if (!observer)
            return NULL;
        int in = enlist(task, &observer->callbacks, fn);
        if (in < 0)
            return NULL;
        if (in)
            Py_RETURN_NONE;
    }
    if (call_back(task, fn, swallow) < 0)
        return NULL;
    Py_RETURN_NONE;
}

int ap__task_watch(ap_pytask *task, PyObject *completions) {
    if (ap__task_is_done(task))
        return 0;
    ap_observer *observer = ap__task_observe(task);
    return observer ? enlist(task, &observer->watchers, completions) : -1;
}

void ap__task_unwatch(ap_pytask *task, PyObject *completions) {
    PyObject *removed = NULL;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
    PyObject *list = task->observer ? task->observer->watchers : NULL;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        if (PyList_GET_ITEM(list, i) == completions) {
            removed = Py_NewRef(completions); /* so that nothing dies in the critical section */
            if (PyList_SetSlice(list, i, i + 1, NULL) < 0)
                PyErr_Clear();
            break;
        }
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(removed);
}

/* Tells the stdlib's waiters.  They are Python objects with add_result and its like. */
static void tell_waiters(ap_pytask *task, PyObject *waiters, const char *method) {
    PyObject *copy = PySequence_Tuple(waiters);
    for (Py_ssize_t i = 0; copy && i < PyTuple_GET_SIZE(copy); i++) {
        PyObject *result =
            PyObject_CallMethod(PyTuple_GET_ITEM(copy, i), method, "O", (PyObject *)task);
        if (!result)
            PyErr_WriteUnraisable((PyObject *)task);
        Py_XDECREF(result);
    }
    if (!copy)
        PyErr_WriteUnraisable((PyObject *)task);
    Py_XDECREF(copy);
}

bool ap__task_settle(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome, bool failed) {
    PyObject *callbacks;
    if (!ap__task_settle_first(task, from, to, outcome, failed, &callbacks))
        return false;
    for (Py_ssize_t i = 0; callbacks && i < PyList_GET_SIZE(callbacks); i++) {
        PyObject *fn = Py_NewRef(PyList_GET_ITEM(callbacks, i)); /* users may hold the list */
        call_back(task, fn, true);
        Py_DECREF(fn);
    }
    Py_XDECREF(callbacks);
    return true;
}

bool ap__task_settle_first(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome,
                           bool failed, PyObject **callbacks_out) {
    PyObject *condition = NULL, *waiters = NULL, *callbacks = NULL, *watchers = NULL;
    ap_observer *observer = NULL;
    uint32_t before = 0;
    PyObject *traceback = to & AP_OVERRIDE && failed ? PyException_GetTraceback(outcome) : NULL;
    bool changed = false, again = true;

    if ((to & AP_OVERRIDE) && !(observer = ap__task_observe(task))) {
        PyErr_Clear();
        Py_XDECREF(traceback);
        return false;
    }
    while (again) {
        Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
        condition = task->observer ? Py_XNewRef(task->observer->condition) : NULL;
        Py_END_CRITICAL_SECTION();
        if (condition)
            ap__condition_acquire(condition);
        AP_POINT("settle");
        Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
        observer = task->observer;
        again = observer && observer->condition != condition;
        if (!again) {
            ap__task_await_handover(task);
            ap__bound_pin(task);
            /* acquire pairs with the CAS of whoever decided: in core_dealloc it makes that one's
             * pin visible.  (Of two who settle the CAS decides: see ap__bound_pin.) */
            before = ap_u32_load_acquire(&task->state);
            /* an override decides once; its outcome is in place before the state says so */
            while (((1u << (before & AP_STATE)) & from)) {
                if (to & AP_OVERRIDE) {
                    observer->outcome = outcome;
                    observer->failed = failed;
                    observer->traceback = traceback;
                }
                /* release pairs with the acquire load of whoever reads the outcome */
                if (ap_u32_cas_acq_rel(&task->state, &before, to | (before & AP_OBSERVED))) {
                    changed = true;
                    traceback = NULL; /* the observer's now */
                    break;
                }
                if (to & AP_OVERRIDE) {
                    observer->outcome = observer->traceback = NULL;
                }
            }
            if (changed && task->bounded && (before & (AP_STATE | AP_TAKEN)) == AP_PENDING)
                ap__bound_leave(task->core);
            ap__bound_unpin(task);
            if (changed && observer) {
                waiters = Py_XNewRef(observer->waiters);
                callbacks = observer->callbacks;
                watchers = observer->watchers;
                observer->callbacks = observer->watchers = NULL;
            }
        }
        Py_END_CRITICAL_SECTION();
        if (again && condition) {
            ap__condition_release(condition);
            Py_CLEAR(condition);
        }
    }
    Py_XDECREF(traceback);
    if (changed) {
        AP_POINT("settled");
        if (waiters)
            tell_waiters(task, waiters,
                         (to & AP_STATE) == AP_CANCELLED                ? "add_cancelled"
                         : ((to & AP_OVERRIDE) ? failed : task->failed) ? "add_exception"
                                                                        : "add_result");
        if (condition)
            ap__condition_notify_all(condition);
    }
    if (condition) {
        ap__condition_release(condition);
        Py_DECREF(condition);
    }
    Py_XDECREF(waiters);
    if (!changed)
        return false;
    if ((before & (AP_STATE | AP_TAKEN)) == AP_PENDING) /* else the call is its taker's */
        ap__task_drop_call(task);
    if (before & AP_WAITED)
        ap_wake_u32(&task->state, UINT32_MAX);
    for (Py_ssize_t i = 0; watchers && i < PyList_GET_SIZE(watchers); i++)
        ap__completions_post(PyList_GET_ITEM(watchers, i), (PyObject *)task);
    Py_XDECREF(watchers);
    *callbacks_out = callbacks;
    return true;
}
