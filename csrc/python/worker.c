/* The loop that every worker thread lives in.
 *
 * Overview.  The thread enters through cffi, detached, and attaches.  Then, for each task:
 *
 *  1  It keeps the interpreter from task to task: it looks for the next one without blocking.
 *     A task that is a builtin never enters the eval loop, so the worker goes through it on its own
 *     once per tick of the clock.
 *  2  If there is none, it hands the last outcome over (run.c): it drops its reference, detaches
 *     and publishes then, so that whoever waits wakes into an interpreter that is free.  An
 *     outcome that somebody observes is published attached.
 *  3  It searches for a while, then parks; a task found, it waits briefly for the interpreter to
 *     be let go before it queues up for it.
 *
 * `idled` and `busy` are explained in pool.c and block.c.
 */
#include "bridge.h"

#include "../sync/clock.h"
#include "worker.h"

/* About 2 to 4 us: how long a submitter needs to get from its submit into a wait. */
#define HANDOVER_PAUSES 80

typedef struct {
    ap_core *core;
    ap_worker *worker;
    PyThreadState *thread; /* while detached */
    ap_pytask *last;       /* called, not published, and referred to */
    PyObject *empty;       /* a context, entered and empty, for isolated tasks */
    uint64_t tick;         /* of the clock, at the last let_others_run */
    bool counted;          /* in core->idled since it last found a task */
    bool busy;
} loop;

static void attach(loop *self) {
    PyEval_RestoreThread(self->thread);
}

/* Waits until a thread that just submitted has let go of the interpreter, but not for long:
 * on its condition variable the wake would take many times as long. */
static void await_release(ap_pytask *task) {
#ifndef Py_GIL_DISABLED
    for (int pause = 0; pause < HANDOVER_PAUSES; pause++) {
        if (ap_u32_load_relaxed(&task->state) & AP_LET_GO || ap_u32_load_relaxed(&ap__sleeping))
            return;
        ap_cpu_pause();
    }
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
    PyObject *none = PyObject_CallNoArgs(ap__hooks.breathe);
    if (!none)
        PyErr_WriteUnraisable(NULL); /* sent to this thread from outside, between two tasks */
    Py_XDECREF(none);
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

static void count_idle(loop *self) {
    if (self->counted || ap_u32_load_relaxed(&self->core->started) >= self->core->max_workers)
        return;
    self->counted = true;
    /* release pairs with count_on_idle in pool.c */
    ap_u64_add_acq_rel(&self->core->idled, 1);
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
    if (last && ap__task_hand_over(last, &self->thread)) {
        count_idle(self);
    } else
#endif
    {
        count_idle(self);
        if (last) {
            ap__task_publish(last);
            Py_DECREF(last);
        }
        self->thread = PyEval_SaveThread();
    }
    ap_task *task;
    while (!(task = ap_worker_search(self->worker))) {
        if (ap_worker_park(self->worker) == AP_E_CLOSED)
            break;
    }
    if (task)
        await_release(ap__task_from_header(task));
    attach(self);
    return task;
}

/* Runs a task that is the worker's to run, and keeps it as `last`. */
static void run_one(loop *self, ap_pytask *task) {
    set_busy(self, true);
    if (self->counted) {
        self->counted = false;
        if (!task->counted)
            (void)ap__core_count_on_idle(self->core); /* nobody else may: we are busy */
    }
    if (ap__task_start(task)) {
        ap__task_call(task, &self->empty);
        self->last = task;
    } else {
        Py_DECREF(task);
    }
    let_others_run(self);
}

/* In a forked child, in the thread that forked: the queues are the parent's. */
static bool is_orphaned(loop *self) {
    return AP_UNLIKELY(ap_u32_load_relaxed(&self->core->orphaned));
}

static void run_all(loop *self) {
    while (!is_orphaned(self)) {
        ap_task *header = ap_worker_take_try(self->worker);
        if (!header) {
            header = go_dry(self);
            if (!header)
                return;
        } else if (self->last) {
            publish_last(self);
        }
        ap_pytask *task = ap__task_from_header(header);
        if (ap_u32_load_relaxed(&self->core->cancelling))
            ap__task_cancel(task);
        run_one(self, task);
    }
}

int ap_python_worker_run(void *core_object) {
    PyGILState_STATE state = PyGILState_Ensure();
    ap_core_object *object = (ap_core_object *)Py_NewRef((PyObject *)core_object);
    loop self = {.core = object->core};
    ap__stack_measure();
    int code = ap_worker_begin(self.core->pool, &self.worker);
    ap_pytask *first = ap__core_take_first(object, code == AP_OK ? self.worker : NULL);
    if (self.core->isolated) {
        self.empty = PyContext_New();
        if (!self.empty || PyContext_Enter(self.empty) < 0) {
            PyErr_Clear(); /* out of memory: tasks run in the thread's context */
            Py_CLEAR(self.empty);
        }
    }
    if (first)
        run_one(&self, first);
    if (code == AP_OK)
        run_all(&self);
    if (self.last)
        publish_last(&self);
    set_busy(&self, false);
    if (code == AP_OK && !is_orphaned(&self))
        ap_worker_end(self.worker);
    if (self.empty) {
        if (PyContext_Exit(self.empty) < 0)
            PyErr_WriteUnraisable(NULL);
        Py_DECREF(self.empty);
    }
    Py_DECREF(object);
    PyGILState_Release(state);
    return code == AP_E_CLOSED ? AP_OK : code;
}
