/* A forked child: what it keeps of the parent's pools.
 *
 * Overview.  Only the thread that forked lives on in the child, and the parent's queues may have
 * been in the middle of anything, so the child never touches them: the core of each pool is
 * marked as orphaned and kept for ever, and the pool gets a fresh one.  Tasks that the parent had
 * not finished run there, in the parent.  In the child they read as cancelled from the first
 * time that they are touched; their callbacks and waiters belong to the parent and are not
 * told.  Tasks that the forking thread itself is running go on and end as usual, after which the
 * thread leaves the worker loop.
 */
#include "bridge.h"

_Thread_local ap_frame *ap__frames;

void ap__task_orphan(ap_pytask *task) {
    ap_observer *fresh = NULL;
    if (task->observer && !(fresh = calloc(1, sizeof *fresh)))
        return; /* it reads as it was, and the next touch tries again */
    bool cancelled = false;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)task);
    uint32_t state = ap_u32_load_relaxed(&task->state);
    if (!ap__state_is_done(state)) {
        /* the old observer is let go of and not freed: a thread of the parent was perhaps in the
         * middle of it, and its condition is perhaps held for ever */
        if (task->observer) {
            task->observer = fresh;
            fresh = NULL;
        }
        task->handed_over = false;
        /* release pairs with the acquire load of whoever reads the state */
        ap_u32_store_release(&task->state, AP_CANCELLED);
        cancelled = (state & AP_STATE) == AP_PENDING;
    }
    Py_END_CRITICAL_SECTION();
    free(fresh);
    if (cancelled)
        ap__task_drop_call(task);
}

/* orphan(core): in a child, after fork: `core` is the parent's, and is never to be freed. */
static PyObject *orphan(PyObject *Py_UNUSED(module), PyObject *core) {
    if (!PyObject_TypeCheck(core, ap__core_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a Core");
        return NULL;
    }
    ap_u32_or_relaxed(&((ap_core_object *)core)->core->leave, AP_ORPHANED);
    Py_INCREF(core);
    Py_RETURN_NONE;
}

/* after_fork(): in a child, once: the tasks that this thread is running survive. */
static PyObject *after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    ap_wait_after_fork();
    ap__home = NULL; /* the thread of a worker lives on as the child's main thread */
    for (ap_frame *frame = ap__frames; frame; frame = frame->outer)
        frame->task->survives = true;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"orphan", orphan, METH_O, "In a forked child: keep a core of the parent's, untouched."},
    {"after_fork", after_fork, METH_NOARGS, "In a forked child: what this thread runs goes on."},
    {NULL, NULL, 0, NULL},
};

int ap__fork_setup(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
