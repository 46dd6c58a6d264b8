/* The loop that every worker thread lives in.
 *
 * Overview.  The thread enters through cffi, detached, and attaches.  It looks for its first task
 * (untaken.c).  Then, for each task:
 *
 *  1  It keeps the interpreter from task to task: it looks for the next one without blocking.
 *     A task that is a builtin never enters the eval loop, so the worker goes through it on its own
 *     once per tick of the clock.
 *  2  If there is none, it hands the last outcome over (run.c): it drops its reference, detaches
 *     and publishes then, so that whoever waits wakes into an interpreter that is free.  An
 *     outcome that somebody observes is published attached.
 *  3  It searches for a while, then parks; a task found, it waits briefly for the interpreter to
 *     be let go before it queues up for it.
 *  4  If an exception was sent to the thread from outside (PyThreadState_SetAsyncExc) while no task
 *     ran, it leaves: the exception is nobody's but the thread's.  What it holds in its hands is
 *     promised to the thread that replaces it (untaken.c, _threads.py); its ring is stolen, or that
 *     thread's.
 *  5  A thread leaves once the pool has ended, or at (4), or as one of `leave`, or in a child.
 *
 * What holds, and why:
 *
 * - A task that was taken is dealt with in one of these ways: started here, by the CAS that one
 *   thread wins, and published; or found to be started or decided by another, and its reference
 *   dropped; or promised, and then it counts as not taken here (ap_worker_disown).
 * - What was called is in `last`, which is published once, before the next one is called (run_all),
 *   before the thread waits for one (2), and before it leaves (live).
 * - An exception that was there before the task is seen before the task is started (is_struck), so
 *   it ends the thread and not the task.  One that comes later may strike in the task.
 * - A thread that leaves early takes its `begun` back before it says so: the next looks for a first
 *   task in its place.  As many leave as `leave` says, as each takes one off by a CAS.
 * - `busy` counts a worker from when it finds a task to when it finds none, or leaves.
 *
 * Tests: tests/model/python/model_worker.c, tests/faults/test_death_watch.py.
 *
 * `idled` and `busy` are explained in start.c and block.c.
 */
#include "worker.h"
#include "../sync/clock.h"
#include "submit.h"

/* About 2 to 4 us: how long a submitter needs to get from its submit into a wait. */
#define HANDOVER_PAUSES 80

#define EVAL_EVENTS 0xff /* of the eval breaker; the rest is a version */

typedef struct {
    ap_core_object *object;
    ap_core *core;
    ap_worker *worker;
    PyThreadState *thread;
    ap_pytask *last; /* called, not published, and referred to */
    PyObject *base;  /* the context that is entered between tasks; NULL: the thread's own */
    uint64_t tick;   /* of the clock, at the last let_others_run */
    uint32_t owed;   /* to core->idled: start.c, a */
    bool busy;
    bool ended; /* from outside, or by a fault */
} loop;

/* What ended this thread from outside, until the Python layer asks for it. */
static _Thread_local PyObject *ended_by;

static void attach(loop *self) {
    PyEval_RestoreThread(self->thread);
}

/* Waits until a thread that just submitted has let go of the interpreter, but not for long:
 * on its condition variable the wake would take many times as long. */
static void await_release(ap_pytask *task) {
    (void)task;
#ifndef Py_GIL_DISABLED
    for (int pause = 0; pause < HANDOVER_PAUSES; pause++) {
        if (ap_u32_load_relaxed(&task->state) & AP_LET_GO || ap_u32_load_relaxed(&ap__sleeping))
            return;
        ap_cpu_pause();
    }
#else
    (void)task;
#endif
}

/* Goes through the eval loop once.  If that raises, it was sent to this thread from outside. */
static void breathe(loop *self) {
    PyObject *none = PyObject_CallNoArgs(ap__hooks.breathe);
    Py_XDECREF(none);
    if (none)
        return;
    self->ended = true;
    PyObject *type, *traceback;
    Py_CLEAR(ended_by);
    PyErr_Fetch(&type, &ended_by, &traceback);
    PyErr_NormalizeException(&type, &ended_by, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
}

/* Whether an exception waits for this thread to enter the eval loop. */
static bool is_struck(loop *self) {
#ifdef Py_GIL_DISABLED
    return _Py_atomic_load_ptr_relaxed(&self->thread->async_exc) != NULL;
#else
    return self->thread->async_exc != NULL;
#endif
}

/* Lets the eval loop do what it does between instructions: hand the GIL to whoever has asked for
 * it, with a switch that the asker is sure to win.  (To detach and attach again would wake the
 * asker without that, and start its waiting anew.)  Once per tick of the clock. */
static void let_others_run(loop *self) {
#ifndef Py_GIL_DISABLED
    uint64_t tick = ap_clock_tick();
    if (AP_LIKELY(tick == self->tick))
        return;
    self->tick = tick;
    breathe(self);
#elif PY_VERSION_HEX >= 0x030D0000
    /* a builtin in each task never looks whether somebody wants the world to stop */
    if (AP_UNLIKELY(_Py_atomic_load_uintptr_relaxed(&self->thread->eval_breaker) & EVAL_EVENTS))
        breathe(self);
#else
    (void)self;
#endif
}

static void set_busy(loop *self, bool busy) {
#ifdef Py_GIL_DISABLED
    if (self->busy == busy)
        return;
    self->busy = busy;
    if (busy)
        ap_u32_add_relaxed(&self->core->busy, 1);
    else
        ap_u32_sub_relaxed(&self->core->busy, 1);
#else
    (void)self, (void)busy;
#endif
}

/* start.c, b: the worker, or the thread that replaces it, looks for a task from now on. */
static void count_idle(loop *self) {
    uint32_t owed = self->owed;
    self->owed = 0;
    if (owed && ap__core_is_starting_up(self->core))
        /* that nothing is counted twice needs no order, only the RMW */
        ap_u64_add_relaxed(&self->core->idled, owed);
}

static void publish_last(loop *self) {
    ap_pytask *last = self->last;
    self->last = NULL;
    ap__task_publish(last);
    Py_DECREF(last);
}

/* Attached, with nothing in the queues: publishes the last outcome and waits for a task.  NULL
 * once the pool has ended.  Attached. */
static ap_task *go_dry(loop *self) {
    set_busy(self, false);
    ap_pytask *last = self->last;
    self->last = NULL;
#ifndef Py_GIL_DISABLED
    if (last && ap__task_hand_over(last)) {
        count_idle(self);
    } else
#endif
    {
        count_idle(self);
        if (last) {
            ap__task_publish(last);
            Py_DECREF(last);
        }
        (void)PyEval_SaveThread();
    }
    ap__home_rest(true);
    AP_POINT("worker-dry");
    ap_task *task;
    while (!(task = ap_worker_search(self->worker))) {
        if (ap_worker_park(self->worker) == AP_E_CLOSED)
            break;
    }
    if (task) { /* else the thread leaves, and rests to its end: _threads.py */
        await_release(ap__task_from_header(task));
        ap__home_rest(false);
    }
    AP_POINT("worker-found");
    attach(self);
    return task;
}

/* Runs a task that is the worker's to run, and keeps it as `last`.  Or leaves it to another. */
static void run_one(loop *self, ap_pytask *task) {
    set_busy(self, true);
    if (AP_UNLIKELY(is_struck(self)))
        breathe(self);
    if (AP_UNLIKELY(self->ended)) {
        ap__core_promise(self->object, task);
        if (self->worker)
            ap_worker_disown(self->worker);
        return;
    }
    self->owed += task->counted;
    if (ap__task_start(task)) {
        ap__task_call(task, &self->base);
        self->last = task;
    } else {
        Py_DECREF(task);
    }
    let_others_run(self);
}

/* Whether to leave the loop: in a forked child, where the queues are the parent's; because the
 * thread was ended from outside; or by an injected fault. */
static bool must_leave(loop *self) {
    uint32_t leave = ap_u32_load_relaxed(&self->core->leave);
    if (AP_UNLIKELY(self->ended))
        return true;
    while (AP_UNLIKELY(leave != 0)) {
        if (leave & AP_ORPHANED)
            return true;
        /* one worker leaves for each count; that needs no order, only the RMW */
        if (ap_u32_cas_acq_rel(&self->core->leave, &leave, leave - 1)) {
            self->ended = true;
            return true;
        }
    }
    return false;
}

static void run_all(loop *self) {
    while (!must_leave(self)) {
        ap_task *header = ap_worker_take_try(self->worker);
        if (!header) {
            header = go_dry(self);
            if (!header)
                return;
        } else if (self->last) {
            publish_last(self);
        }
        ap_pytask *task = ap__task_from_header(header);
        if (ap_u32_load_relaxed(&self->core->cancelling)) /* a hint: what misses it is run */
            ap__core_cancel(self->object, task);
        run_one(self, task);
    }
}

/* The attached life of a thread that has become a worker, or came too late: a pool that has ended
 * may still have promised it a task. */
static int live(loop *self, bool is_worker) {
    ap_pytask *first = ap__core_take_first(self->object, self->worker);
    if (self->core->isolated)
        self->base = ap__context_enter_base();
    bool left = false; /* the first task is another's */
    if (first) {
        run_one(self, first);
        left = self->ended && !self->last;
    }
    if (is_worker)
        run_all(self);
    if (self->last)
        publish_last(self);
    set_busy(self, false);
    bool orphaned = ap__core_is_orphaned(self->core);
    if (self->ended && !orphaned) {
        count_idle(self);
        ap_u32_sub_relaxed(&self->core->begun, 1); /* the next will begin in its place */
    }
    if (is_worker && !orphaned)
        ap_worker_end(self->worker);
    if (first && !is_worker && !left)
        ap_pool_dealt(self->core->pool);
    ap__context_leave_base(self->base);
    if (self->ended && !orphaned)
        return AP_PYTHON_WORKER_ENDED;
    ap__home_settle();
    return AP_OK;
}

int ap_python_worker_run(void *core_object) {
    PyGILState_STATE state = PyGILState_Ensure();
    ap_core_object *object = (ap_core_object *)Py_NewRef((PyObject *)core_object);
    loop self = {.object = object, .core = object->core, .thread = PyThreadState_Get()};
    /* orphaned: a submit was interrupted by a fork, and starts a thread for the parent's pool */
    bool orphaned = ap__core_is_orphaned(self.core);
    int code = orphaned ? AP_OK : ap_worker_begin(self.core->pool, &self.worker);
    if (orphaned) {
        ap__home_settle();
    } else if (code == AP_OK || code == AP_E_CLOSED) {
        code = live(&self, code == AP_OK);
    } else if (code == AP_E_FULL) {
        /* a thread that was given up is there after all: this one counts in its place */
        ap_u32_add_relaxed(&self.core->begun, 1);
        ap__core_trim_promised(object); /* it takes no promised task */
        ap__home_settle();
        code = AP_OK;
    }
    Py_DECREF(object);
    PyGILState_Release(state);
    return code;
}

/* worker_exception(): what was sent to this thread, and ended it, or None. */
static PyObject *worker_exception(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    PyObject *error = ended_by;
    ended_by = NULL;
    return error ? error : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"worker_exception", worker_exception, METH_NOARGS,
     "The exception that was sent to this worker thread from outside and ended it, or None."},
    {NULL, NULL, 0, NULL},
};

int ap__worker_setup(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
