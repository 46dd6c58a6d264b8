/* Threads on demand: whether a submit needs one more, and starting it.
 *
 * Overview.  Threads are started by the Python layer (_threads.py), after the push.
 *
 *     submit, while threads can be started      worker
 *     1  `idled` or `seen_idle` above           a  takes a task of such a submit: owes one
 *        `counted_on`: add 1 to that; there     b  finds the queues empty: hands its last task
 *        is a taker                                over (run.c) if it has one, adds what it owes
 *     2  push                                      to `idled`, and looks for a task from then on
 *     3  there was none: add 1 to `started`
 *        and start a thread                     who first sees a task done that was handed over
 *     4  there is no place, or that is           c  adds 1 to `seen_idle`
 *        refused: add 1 to `counted_on`
 *
 * - Each task has a taker.  Takers are the workers that look for a task, and the threads that a
 *   submit starts or is about to, and that have not looked.  A submit takes one for its task (1),
 *   or brings one (3).  Who takes a task (a) is a taker no more, be it this task's or another's;
 *   at b it is one again, and gives back one for each task that it has taken.  A thread that finds
 *   nothing at its first look owes nothing: whoever has taken its task does.  So what was given
 *   back less `counted_on` is never more than there are takers less tasks that nobody has taken,
 *   in whatever order tasks are pushed and taken.
 * - The two counts name the same events, those that came to b and those that were seen to come
 *   there.  Each names some of them, so their maximum is no more than there were.  (None needs an
 *   order: 1 reads nothing else, and whoever looks after a push finds it.)
 * - Submits in turn need one thread.  Who saw a result knows that its worker was about to do b,
 *   hence c.  (A worker that publishes attached does b first.)  The worker's count has a line of
 *   its own, which in such turns nobody else looks at.
 * - Never more threads than max_workers: 3 is a CAS, and stops there.
 *
 * A batch of tasks does 1 to 4 for each of them.  Once every thread is started none of this is
 * touched, and the counts mean nothing any more.  If a place is given up then, later submits count
 * on nobody (home.c: lose_worker).
 *
 * Tests: tests/model/python/model_start.c, tests/faults/test_points.py, tests/test_threads.py.
 */
#include "submit.h"

static PyObject *fate_name, *refuse_name; /* made once, so that no look for them needs memory */
static _Thread_local unsigned starting_threads; /* nested, if one interrupts another */

bool ap__core_count_on_idle(ap_core *core) {
    uint64_t counted = ap_u64_load_relaxed(&core->counted_on);
    do {
        if (ap_u64_load_relaxed(&core->seen_idle) <= counted &&
            ap_u64_load_relaxed(&core->idled) <= counted)
            return false;
#ifndef Py_GIL_DISABLED
        /* submitters are attached; a RMW would wait until the push has reached the worker */
        ap_u64_store_relaxed(&core->counted_on, counted + 1);
        return true;
#endif
        /* that one submit counts on one worker needs no order, only the RMW */
    } while (!ap_u64_cas_acq_rel(&core->counted_on, &counted, counted + 1));
    return true;
}

/* Whoever takes such a task owes for a taker that there never was: so that is counted on. */
void ap__core_lack(ap_core *core, size_t tasks) {
    if (tasks)
        ap_u64_add_relaxed(&core->counted_on, tasks);
}

/* What has to be done is tried so often, if each time an interrupt strikes. */
#define INTERRUPTS_MOST 16

/* Of a thread that did not start as it should: whether it never will, nor run anything. */
static bool is_refused(PyObject *thread) {
    PyObject *found = PyObject_GetAttr(thread, fate_name);
    bool refused = false;
    /* a subclass may have made the thread, and that be none of ours */
    if (found && PyObject_TypeCheck(found, ap__task_base_type)) {
        ap_pytask *fate = (ap_pytask *)found;
        (void)ap__task_cancel(fate); /* perhaps it was before; not if the thread has started it */
        /* pairs with the CAS of who cancelled it, or started it: run.c, step 1 */
        refused = (ap_u32_load_acquire(&fate->state) & AP_STATE) == AP_CANCELLED;
    }
    Py_XDECREF(found);
    PyErr_Clear();
    /* the rest is to clean up; an interrupt of that is none of the caller's */
    for (int i = 0; refused && i < INTERRUPTS_MOST; i++) {
        PyObject *done = PyObject_CallMethodNoArgs(thread, refuse_name);
        if (done) {
            Py_DECREF(done);
            break;
        }
        PyErr_Clear();
    }
    return refused;
}

/* Takes a place among the started threads, and starts one.  1: it did; 0: there is no place; -1:
 * exception, with *others the threads that are there; -2: exception, and this is a forked child, in
 * which the core is the parent's.
 *
 * Whatever an interrupt has struck, the place is given back exactly if the thread can be kept
 * from running: its fate is decided by one step, here or in the thread (home.c). */
static int start_one(PyObject *op, ap_core *core, uint32_t *others) {
    ap_pool_base *self = (ap_pool_base *)op;
    uint32_t started;
    do {
        /* pairs with the giving up below and in home.c: where we find no place, either its owner
         * sees our push, or we see that it has given it up */
        started = ap_u32_load_seq_cst(&core->started);
        if (started >= core->max_workers) {
            ap__core_lack(core, 1);
            return 0;
        }
        /* pairs with ap__core_has_no_threads: who sees the place relies on the thread, or, if that
         * is refused, on the look at the queue that follows the giving up */
    } while (!ap_u32_cas_seq_cst(&core->started, &started, started + 1));

    starting_threads++;
    PyObject *none = NULL, *crew = self->core->core == core ? Py_XNewRef(self->crew) : NULL;
    PyObject *thread =
        crew ? PyObject_CallMethod(op, "_make_worker", "OI", crew, (unsigned int)started) : NULL;
    if (thread)
        none = PyObject_CallMethod(thread, "launch", NULL);
    Py_XDECREF(crew);
    if (none) {
        starting_threads--;
        Py_DECREF(none);
        Py_DECREF(thread);
        return 1;
    }
    if (!PyErr_Occurred()) /* there is another core, as there was a fork before we came here */
        PyErr_SetString(PyExc_RuntimeError, "the pool was forked in the middle of a submit");
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    bool interrupted = !PyErr_GivenExceptionMatches(type, PyExc_Exception);
    bool refused = !thread || is_refused(thread);
    Py_XDECREF(thread);
    int code = -1;
    if (ap__core_is_orphaned(core)) { /* a fork in the middle: the tasks are the parent's too */
        code = -2;
    } else if (refused) {
        /* pairs with ap__core_has_no_threads: who pushed before is seen by the look at the queue
         * that follows */
        *others = ap_u32_sub_seq_cst(&core->started, 1) - 1;
        if (*others || interrupted) /* else our task is not taken, but cancelled */
            ap__core_lack(core, 1);
    } else {
        *others = 1; /* it runs all the same */
    }
    starting_threads--; /* not before: a signal handler that waits for the pool does not for us */
    PyErr_Restore(type, error, traceback);
    return code;
}

/* After an interrupted start that has left the pool without threads: others may have submitted
 * meanwhile, and rely on it. */
static void start_for_others(PyObject *op, ap_core *core) {
    uint32_t others = 0;
    if (!ap__core_promise_pending(((ap_pool_base *)op)->core))
        return;
    for (int i = 0; !others && i < INTERRUPTS_MOST; i++) {
        int code = start_one(op, core, &others);
        if (code >= 0)
            return; /* or somebody else has started one */
        bool refused = PyErr_ExceptionMatches(PyExc_Exception);
        PyErr_Clear();
        if (refused || code == -2)
            return;
    }
}

int ap__pool_start_worker(PyObject *op, ap_core *core, ap_task *const *tasks, size_t count) {
    uint32_t others = 0;
    int code = start_one(op, core, &others);
    if (code >= 0)
        return 0;
    bool interrupted = !PyErr_ExceptionMatches(PyExc_Exception);
    if (code == -2) {
        if (!interrupted)
            PyErr_Clear(); /* the parent's start is none of ours */
        return interrupted ? -1 : 0;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    AP_POINT("start-refused");
    bool run = others != 0; /* those that are there will come to what was published */
    for (size_t i = 0; i < count && !run; i++)
        run = !ap__task_cancel(ap__task_from_header(tasks[i])); /* somebody has come meanwhile */
    if (interrupted && !others)
        start_for_others(op, core);
    if (!ap__core_is_orphaned(core)) {
        ap_core_object *object = ((ap_pool_base *)op)->core;
        ap__core_trim_promised(object);
        if (ap__core_has_no_threads(core))
            ap__core_cancel_queued(object); /* nobody will come: visibly, not for ever */
    }
    if (run && !interrupted) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return 0;
    }
    PyErr_Restore(type, error, traceback);
    return -1;
}

static PyObject *is_starting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(starting_threads != 0);
}

static PyMethodDef functions[] = {
    {"is_starting", is_starting, METH_NOARGS,
     "Whether this call interrupts a submit of this thread that starts a worker."},
    {NULL, NULL, 0, NULL},
};

int ap__start_setup(PyObject *module) {
    fate_name = PyUnicode_InternFromString("_fate");
    refuse_name = PyUnicode_InternFromString("refuse");
    return fate_name && refuse_name ? PyModule_AddFunctions(module, functions) : -1;
}
