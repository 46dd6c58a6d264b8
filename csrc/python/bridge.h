/* What the files of the CPython bridge share.
 *
 * Overview.  The bridge gives the scheduler core Python tasks to run.  Its objects:
 *
 *     core       what a pool's threads share and what outlives the pool      core.c, untaken.c
 *     TaskBase   a task and its future in one object                            task.c, future.c
 *     observer   what a task grows once somebody looks at it from outside       observe.c
 *     Condition  the task's `_condition`                                        condition.c
 *     PoolBase   submit and its batch forms                  pool.c, batch.c, start.c, bound.c
 *     worker     the loop that every worker thread lives in                     worker.c, home.c
 *     Completions  collects finished tasks for wait and as_completed            completions.c
 *
 * "Attached" means that the calling thread holds the interpreter (the GIL, or an attached
 * thread state on a free-threaded build); "detached" that it does not.
 *
 * Fields that several threads use are one of: atomic; written only before the task's state is
 * published and read only after that; or guarded by the object's critical section, which is
 * the GIL itself on a build that has one.  Inside a critical section no Python code runs.
 */
#ifndef AFFINITYPOOL_BRIDGE_H
#define AFFINITYPOOL_BRIDGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "../affinitypool.h"
#include "../sync/atomic.h"
#include "../sync/cpu.h"
#include "../sync/wait.h"

#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* ---- core: what threads share, in memory that stays a core for ever (core.c) ------------ */

/* What submit does when max_pending tasks have not started. */
typedef enum { AP_FULL_BLOCK = 0, AP_FULL_RAISE = 1, AP_FULL_CALLER_RUNS = 2 } ap_on_full;

typedef struct ap_core {
    ap_pool *pool; /* compared, never followed, by threads that only hold a task */
    uint32_t max_workers;
    uint32_t cpus;
    uint32_t max_pending; /* 0: no bound */
    ap_on_full on_full;
    uint16_t generation; /* counts the pools that it has served: core.c */
    bool isolated;       /* tasks run in a copy of their submitter's context, or an empty one */
    ap_atomic_u32 leave; /* AP_ORPHANED, and how many workers are to return from their loop: a fault
                            that tests inject (worker.c) */

    /* read by every submit, written by shutdown and the first max_workers submits */
    _Alignas(AP_LINE) ap_atomic_u32 refuse; /* not 0: submits are refused */
    ap_atomic_u32 cancelling;               /* workers cancel what they take */
    ap_atomic_u32 started;                  /* worker threads asked for and not failed */
    ap_atomic_u32 begun;                    /* of these, past their first look for a task */

    /* used while started < max_workers only: see start.c */
    _Alignas(AP_LINE) ap_atomic_u64 idled;      /* written by workers */
    _Alignas(AP_LINE) ap_atomic_u64 counted_on; /* written by submitters, as the next one */
    ap_atomic_u64 seen_idle;

    /* hints, written by threads that wait for a result */
    _Alignas(AP_LINE) ap_atomic_u32 spin_credit; /* recent waits that ended while spinning */
    ap_atomic_u32 pauses;                        /* how many pauses to spin for before yielding */
    ap_atomic_u32 blind; /* how many of them before the first look at the task */
    ap_atomic_u32 waits; /* waits begun, to probe again now and then */

    /* with max_pending only: bound.c */
    _Alignas(AP_LINE) ap_atomic_u32 pending; /* tasks that hold a place, and the closed bit */
    ap_atomic_u32 blocked;                   /* threads that wait for a place */
#ifdef Py_GIL_DISABLED
    ap_atomic_u32 pins;                   /* threads that are about to give a place back */
    _Alignas(AP_LINE) ap_atomic_u32 busy; /* workers between finding a task and finding none */
#endif

    struct ap_core *next_free;
    struct ap_core *next_made; /* written once */
} ap_core;

#define AP_ORPHANED UINT32_C(0x80000000) /* in a forked child: it is the parent's (fork.c) */
static inline bool ap__core_is_orphaned(ap_core *core) {
    return (ap_u32_load_relaxed(&core->leave) & AP_ORPHANED) != 0;
}

/* The lists are guarded by the critical section. */
typedef struct {
    PyObject_HEAD ap_core *core;
    PyObject *promised;  /* list of tasks, or NULL: see untaken.c */
    PyObject *cancelled; /* list of tasks that shutdown_now cancelled, or NULL: nobody asks */
} ap_core_object;

extern PyTypeObject *ap__core_type;
int ap__core_setup(PyObject *module);
/* In a forked child, which has one thread: marks every core, and has it refuse tasks. */
void ap__core_orphan_all(void);
/* Refuses tasks from now on; workers run what is pending and leave. */
void ap__core_close(ap_core *core);
/* home.c: the core whose worker thread the caller is, from its first line to its last; or NULL. */
extern _Thread_local ap_core *ap__home;
/* The calling thread looks for a task from now on, or sleeps, or leaves; or it does not any more.
 */
void ap__home_rest(bool rests);
/* The thread's place among the started ones needs no more care: it has ended as it should. */
void ap__home_settle(void);
PyObject *ap__home_exit(PyObject *op, PyObject *ignored); /* methods of Core */
PyObject *ap__home_leave(PyObject *op, PyObject *ignored);
PyObject *ap__home_lose(PyObject *op, PyObject *ignored);
PyObject *ap__home_is(PyObject *op, PyObject *ignored);
int ap__home_setup(PyObject *module);

/* ---- task ------------------------------------------------------------------------------- */

enum {
    AP_PENDING = 0,
    AP_RUNNING = 1,
    AP_FINISHED = 2,
    AP_CANCELLED = 3,
    AP_STATE = 3,     /* mask of the four above */
    AP_WAITED = 4,    /* somebody sleeps on the state word */
    AP_OBSERVED = 8,  /* an observer may hold a condition, waiters, callbacks or watchers */
    AP_OVERRIDE = 16, /* the outcome is the observer's: it was set from outside */
    AP_TAKEN = 32,    /* pending, and its call was handed out by _work_queue.get */
    AP_LET_GO = 64,   /* a hint: a thread that waits for it has let go of the interpreter */
    AP_LOOKED = 128,  /* failed, and somebody has seen the exception: task.c */
};

/* What a task grows when it is first looked at from outside.  Guarded by the task's critical
 * section; the pointer to it is set once. */
typedef struct ap_observer {
    PyObject *condition; /* Condition, or NULL until touched */
    PyObject *waiters;   /* the list that the stdlib's wait and as_completed append to */
    PyObject *callbacks; /* list of callables; taken whole when the task is done */
    PyObject *watchers;  /* list of Completions; taken whole when the task is done */
    PyObject *outcome;   /* with AP_OVERRIDE */
    PyObject *traceback;
    bool failed;
} ap_observer;

/* What a worker touches of a task that has no context stands first. */
typedef struct ap_pytask {
    PyObject_HEAD ap_atomic_u32 state;
    uint16_t nargs;       /* positional arguments, UINT16_MAX: as many as the tuple says; once
                             handed over, the generation of its core; with `survives`, see there */
    uint8_t failed;       /* outcome is an exception */
    bool isolated : 1;    /* without a context of its own it runs in an empty one */
    bool has_context : 1; /* it was made with a context */
    bool handed_over : 1; /* written and read attached: see run.c */
    bool counted : 1;     /* whoever takes it owes one to core->idled: start.c */
    bool survives : 1;    /* it runs in the thread that forked the child whose number nargs is */
    bool bounded : 1;     /* it holds a place while it is pending: bound.c */
    PyObject *fn;
    PyObject *args;    /* one positional argument, or a tuple; when failed, the traceback */
    PyObject *outcome; /* while pending, the names of keyword arguments */
    ap_task header;
    ap_core *core;     /* NULL for a task made by Task(), which is never queued */
    PyObject *context; /* to run in, or NULL */
    ap_observer *observer;
    struct ap_pytask *outer; /* while it runs: what its thread was running before, or NULL */
} ap_pytask;

extern PyTypeObject *ap__task_base_type; /* _core.TaskBase */
extern PyTypeObject *ap__task_type;      /* affinitypool.Task, set by configure() */

/* Set once by configure(): what the bridge needs from the Python layer. */
typedef struct {
    PyObject *cancelled_error;
    PyObject *invalid_state_error;
    PyObject *submit_error;
    PyObject *pending_limit_error;
    PyObject *log_callback;    /* log_callback(task, type, error, traceback): a callback raised */
    PyObject *log_state;       /* log_state(task): set_running_or_notify_cancel came too late */
    PyObject *unobserved;      /* unobserved(task): it failed, dies, and nobody looked */
    PyObject *breathe;         /* a Python function that does nothing: worker.c */
    unsigned long main_thread; /* its identifier */
} ap_hooks;
extern ap_hooks ap__hooks;

int ap__task_setup(PyObject *module);
void ap__task_run_header(ap_task *task, ap_worker *worker); /* marks a Python task */

static inline ap_pytask *ap__task_from_header(ap_task *header) {
    return (ap_pytask *)(void *)((char *)header - offsetof(ap_pytask, header));
}

static inline bool ap__state_is_done(uint32_t state) {
    return (state & AP_STATE) >= AP_FINISHED;
}

static inline bool ap__task_is_done(ap_pytask *task) {
    /* acquire pairs with the publishing RMW: a done state makes the outcome visible */
    return ap__state_is_done(ap_u32_load_acquire(&task->state));
}

/* A pending task with a reference for the caller and one for the queue; NULL with an exception.
 * `values` are nargs positional arguments followed by those that kwnames names. */
ap_pytask *ap__task_new(ap_core *core, PyObject *fn, PyObject *const *values, size_t nargs,
                        PyObject *kwnames, bool isolated);
/* Drops the queue's reference of a task that was never queued, and gives its place back. */
void ap__task_unqueue(ap_pytask *task);

/* untaken.c ------------------------------------------------------------------------------ */

/* A new worker's first look: a task with its queue's reference, or NULL.  `worker` is NULL if
 * the thread could not become one.  Once for each thread. */
ap_pytask *ap__core_take_first(ap_core_object *self, ap_worker *worker);
/* Promises a task, whose reference it takes over, to the next thread that begins. */
void ap__core_promise(ap_core_object *self, ap_pytask *task);
/* Of a pool without threads: whether a task is promised to the next, or is now, as it is queued. */
bool ap__core_promise_pending(ap_core_object *self);
/* Cancels a task that a worker has taken, and tells shutdown_now. */
void ap__core_cancel(ap_core_object *self, ap_pytask *task);
/* Cancels every queued task. */
void ap__core_cancel_queued(ap_core_object *self);
/* After a thread failed to start: the tasks that were promised to it go to those that run, or are
 * cancelled. */
void ap__core_trim_promised(ap_core_object *self);
/* Methods of Core: core.c. */
PyObject *ap__core_cancel_pending(PyObject *op, PyObject *collect);
PyObject *ap__core_take_cancelled(PyObject *op, PyObject *into);
PyObject *ap__core_give_cancelled(PyObject *op, PyObject *tasks);
PyObject *ap__core_fail_next(PyObject *op, PyObject *args);
PyObject *ap__core_take_into(PyObject *op, PyObject *list);

/* future.c ------------------------------------------------------------------------------- */

extern PyMethodDef ap__future_methods[];
extern PyGetSetDef ap__future_attributes[];
PyObject *ap__future_repr(PyObject *op);
PyObject *ap__task_get_dict(PyObject *op, void *closure); /* task.c */

/* fork.c --------------------------------------------------------------------------------- */

/* The tasks that the thread runs, innermost first, linked by `outer`: several when it runs some
 * inline.  The links are no part of the C stack, of which greenlets use pieces in turn. */
extern _Thread_local ap_pytask *ap__running;

/* In a forked child: makes a task that the parent left unfinished read as cancelled. */
void ap__task_orphan(ap_pytask *task);
extern unsigned ap__forks; /* how many forks this process and its ancestors are children of */
static inline void ap__task_check_fork(ap_pytask *task) {
    if (task->core && ap__core_is_orphaned(task->core) &&
        !(task->survives && task->nargs == (uint16_t)ap__forks))
        ap__task_orphan(task);
}
int ap__fork_setup(PyObject *module);

/* context.c: the contextvars context that a task runs in --------------------------------- */

/* What a task calls. */
typedef struct {
    PyObject *fn;
    PyObject *args;  /* one positional argument, or a tuple; NULL: none */
    PyObject *names; /* of keyword arguments, the last ones; or NULL */
    size_t nargs;    /* positional ones */
} ap_call;

static inline PyObject *ap__call(const ap_call *call) {
    if (!call->args)
        return PyObject_Vectorcall(call->fn, NULL, 0, NULL);
    if (call->nargs == 1 && !call->names) {
        PyObject *stack[2] = {NULL, call->args};
        return PyObject_Vectorcall(call->fn, stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    return PyObject_Vectorcall(call->fn, ((PyTupleObject *)call->args)->ob_item, call->nargs,
                               call->names);
}

/* Puts a copy of the caller's context in *slot, or NULL if that is empty; -1 with an exception.
 * While it is queued no collector has to look at it: it is tracked from when it is taken. */
int ap__context_capture(PyObject **slot);
static inline PyObject *ap__context_take(PyObject **slot) {
    PyObject *context = *slot;
    *slot = NULL;
#ifndef Py_GIL_DISABLED
    if (context)
        PyObject_GC_Track(context);
#endif
    return context;
}

/* What the initializer has set in this thread, which belongs to the core ap__home; NULL: nothing.
 */
extern AP_THREAD_LOCAL PyObject *ap__initial_context;
/* Whether the initializer that has run in this thread is that of the task's pool. */
static inline bool ap__context_has_initial(ap_pytask *task) {
    return AP_UNLIKELY(ap__initial_context != NULL) && task->core == ap__home;
}
/* Calls in the context that the task has brought (else NULL), with what the initializer has set. */
PyObject *ap__context_call(ap_pytask *task, PyObject *context, const ap_call *call);
/* Makes and enters a base context; NULL if there is no memory: tasks run in that of the thread. */
PyObject *ap__context_enter_base(void);
void ap__context_leave_base(PyObject *base);
void ap__context_replace(PyObject **base);
/* Replaces *base, a context that is entered, if something was left in it. */
static inline void ap__context_empty(PyObject **base) {
    if (AP_UNLIKELY(Py_TYPE(*base)->tp_as_mapping->mp_length(*base) != 0))
        ap__context_replace(base);
}
/* The thread ends. */
void ap__context_forget(void);
int ap__context_setup(PyObject *module);

/* run.c: starting, running and publishing ---------------------------------------------- */

/* PENDING to RUNNING; false if the task was cancelled, set from outside, or taken. */
bool ap__task_start(ap_pytask *task);
/* Calls a started task's function and keeps its outcome; publishes nothing.  Attached.
 * `*base`: NULL, or from ap__context_enter_base; it may be replaced. */
void ap__task_call(ap_pytask *task, PyObject **base);
/* Publishes the outcome if nobody observes the task.  Attached or detached.  False: observed,
 * or decided from outside; then ap__task_settle_run must be called, attached. */
bool ap__task_publish_try(ap_pytask *task);
#ifndef Py_GIL_DISABLED
/* Drops the caller's reference, detaches, and publishes then.  Attached before, detached after.
 * False, and nothing done: the task is observed, or nobody
 * else holds it. */
bool ap__task_hand_over(ap_pytask *task);
#endif
/* Tells that a task was seen to be done: start.c, c.  Attached. */
static inline void ap__task_seen_done(ap_pytask *task) {
    if (!task->handed_over)
        return;
    task->handed_over = false; /* hand-overs need a GIL, and we hold it: no RMW is needed */
    if (!task->counted || task->nargs != task->core->generation)
        return; /* its worker owed nothing for it; or its pool is gone, and its core serves another
                 */
    if (ap_u32_load_relaxed(&task->core->started) >= task->core->max_workers)
        return; /* nor do workers count any more */
    ap_atomic_u64 *seen = &task->core->seen_idle;
    ap_u64_store_relaxed(seen, ap_u64_load_relaxed(seen) + 1);
}
/* Waits until a hand-over in progress is complete.  Attached. */
void ap__task_await_handover(ap_pytask *task);
void ap__task_settle_run(ap_pytask *task);
static inline void ap__task_publish(ap_pytask *task) {
    if (!ap__task_publish_try(task))
        ap__task_settle_run(task);
}
#ifdef Py_GIL_DISABLED
/* For an object that this thread has made and others may let go of: run.c. */
void ap__give_up_ownership(PyObject *object);
#endif
/* Whether a worker thread has too little stack left to begin a call of user code on top of another.
 */
bool ap__stack_is_used_up(void);
/* Tells that how far the stack of a worker thread reaches.  Once, at its begin. */
void ap__stack_measure(void);
/* If the calling thread is a worker thread of the task's pool and the task has not started: runs it
 * here.  1: it ran; 0: it did not; -1: RecursionError is set. */
int ap__task_run_inline(ap_pytask *task);
/* Runs and publishes a task, if it can be started, in the calling thread.  -1: RecursionError. */
int ap__task_run_here(ap_pytask *task);
/* Cancels a pending task. */
bool ap__task_cancel(ap_pytask *task);
/* Drops function, arguments and context.  By whoever moved the task out of PENDING. */
void ap__task_drop_call(ap_pytask *task);

/* observe.c ------------------------------------------------------------------------------ */

enum { AP_FROM_PENDING = 1 << AP_PENDING, AP_FROM_RUNNING = 1 << AP_RUNNING };

/* Moves the task from one of the states in `from` to `to` (with flags), under its condition if
 * it has one, and tells everyone: waiters, watchers, sleepers, callbacks.  An override's outcome
 * is taken over from `outcome` (stolen).  False, and nothing changed, if the state was another.
 * Attached. */
bool ap__task_settle(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome, bool failed);
/* The same but for the callbacks, which are the caller's to call: a list, or NULL. */
bool ap__task_settle_first(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome,
                           bool failed, PyObject **callbacks);
ap_observer *ap__task_observe(ap_pytask *task); /* NULL with MemoryError */
void ap__observer_free(ap_observer *observer);
/* `swallow`: whatever the callback raises is logged; else what is no Exception is raised. */
PyObject *ap__task_add_done_callback(PyObject *self, PyObject *fn, bool swallow);
/* 1: installed, 0: the task is done, -1: exception. */
int ap__task_watch(ap_pytask *task, PyObject *completions);
void ap__task_unwatch(ap_pytask *task, PyObject *completions);

/* block.c: waiting for a task ------------------------------------------------------------- */

/* Seconds, None or NULL to an absolute deadline; -1 with an exception.  *past is set for 0 or
 * less. */
int ap__deadline_from_timeout(PyObject *timeout, uint64_t *deadline, bool *past);
/* Waits until the task is done.  1: done; 0: the deadline passed; -1: exception (a signal
 * handler raised). */
int ap__task_wait(ap_pytask *task, uint64_t deadline);
/* The same for any word: waits while it holds `value`. */
int ap__word_wait(ap_atomic_u32 *word, uint32_t value, uint64_t deadline);
/* One sleep of such a wait, which `sleeps` others came before.  Signals are to be looked at next.
 */
void ap__word_sleep(ap_atomic_u32 *word, uint32_t value, uint64_t deadline, unsigned sleeps);
/* When that sleep has to end, at the latest, for signals to be handled. */
uint64_t ap__sleep_until(uint64_t deadline, unsigned sleeps);

/* Threads that sleep in a wait of ours, and so have let go of the interpreter (block.c). */
extern ap_atomic_u32 ap__sleeping;

/* condition.c, completions.c, pool.c, worker.c -------------------------------------------- */

extern PyTypeObject *ap__condition_type;
int ap__condition_setup(PyObject *module);
PyObject *ap__condition_new(void);
void ap__condition_acquire(PyObject *condition);
void ap__condition_release(PyObject *condition);
void ap__condition_notify_all(PyObject *condition);

extern PyTypeObject *ap__completions_type;
int ap__completions_setup(PyObject *module);
void ap__completions_post(PyObject *completions, PyObject *future);

/* bound.c.  1: a place was taken; 0: the caller is to run the task; -1: the pool is closed;
 * -2: exception. */
int ap__bound_enter(ap_core *core, ap_on_full on_full);
/* Gives a place back. */
void ap__bound_leave(ap_core *core);
/* Has those who wait for a place refused. */
void ap__bound_close(ap_core *core);
/* Around the moving of a task out of PENDING and its ap__bound_leave, by whoever may not be a
 * worker of its pool.  core_dealloc waits for the pins after it has settled each task that was
 * queued: if our change of the task's state came first, that settling has read it (an acquire), and
 * so the pin that was taken before it; if not, ours fails, and nothing is given back. */
static inline void ap__bound_pin(ap_pytask *task) {
#ifdef Py_GIL_DISABLED
    if (task->bounded)
        /* pairs with the load in core_dealloc, by way of the task's state: see above */
        ap_u32_add_seq_cst(&task->core->pins, 1);
#else
    (void)task;
#endif
}
static inline void ap__bound_unpin(ap_pytask *task) {
#ifdef Py_GIL_DISABLED
    if (task->bounded)
        /* release pairs with the load in core_dealloc: orders our use of the core before its next
         */
        ap_u32_sub_seq_cst(&task->core->pins, 1);
#else
    (void)task;
#endif
}

int ap__pool_setup(PyObject *module);
int ap__worker_setup(PyObject *module);
/* start.c, 1: takes one idle worker out of the count; false if there is none.  Attached. */
bool ap__core_count_on_idle(ap_core *core);
/* Added to counted_on: then that is always false. */
#define AP_ON_NOBODY (UINT64_C(1) << 40)
/* Not 0: the interpreter exits, and no pool takes a task. */
extern ap_atomic_u32 ap__interpreter_exiting;

#endif
