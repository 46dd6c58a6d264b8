/* Waiting for a task, or for any 32-bit word.
 *
 * Overview.  A waiter lets go of the interpreter, spins for a bounded time if that has paid
 * lately, then marks the word and sleeps on it.  A signal ends the sleep; its Python handler
 * runs attached, and the wait goes on unless the handler raised.
 *
 *     waiter                                      finisher (run.c, observe.c)
 *     1  OR the state with WAITED, acq_rel        1  write the outcome
 *     2  if it was done: read the outcome         2  CAS the state to done, acq_rel
 *     3  sleep while the word is what OR left     3  if WAITED was set: wake
 *
 * The two RMWs on one word are ordered: either the waiter's comes first, and the finisher sees
 * WAITED and wakes, after the waiter sleeps or with a word that no longer has the value the
 * waiter compares; or it comes second and sees the task done.  Test: tests/test_task.py.
 */
#include "bridge.h"

#include <math.h>
#include <string.h>

#define SPIN_PAUSES 160       /* 2 to 7 us, by processor */
#define PAUSES_PER_LOOK 8     /* a look takes the line from the finisher, who writes to it */
#define SPIN_BUDGET_NS 50000u /* about the cost of being woken */
#define SIGNAL_SLICE_NS 50000000u
#define SIGNAL_SLICE_MOST_NS 1000000000u
#define CREDIT_MOST 8u
#define PROBE_EVERY 32u

ap_atomic_u32 ap__sleeping;

int ap__deadline_from_timeout(PyObject *timeout, uint64_t *deadline, bool *past) {
    *past = false;
    *deadline = AP_FOREVER;
    if (!timeout || timeout == Py_None)
        return 0;
    const PyNumberMethods *number = Py_TYPE(timeout)->tp_as_number;
    if (!number || !(number->nb_float || number->nb_index)) {
        PyErr_Format(PyExc_TypeError,
                     "timeout must be a real number of seconds or None, not %.200s",
                     Py_TYPE(timeout)->tp_name);
        return -1;
    }
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (isnan(seconds)) {
        PyErr_SetString(PyExc_ValueError, "timeout must be a number of seconds, not NaN");
        return -1;
    }
    if (seconds <= 0) {
        *past = true;
        *deadline = 0;
    } else if (seconds < 9e9) { /* beyond 285 years the clock would wrap: for ever */
        double ns = ceil(seconds * 1e9);
        *deadline = ap_clock_now() + (uint64_t)ns;
    }
    return 0;
}

/* How long the sleep after `sleeps` others may last.  A signal ends a sleep, but not one that
 * begins just after it (while the thread was spinning, or before the system call), so the main
 * thread, which alone runs handlers, sleeps for 50 ms, then longer, at most for a second.  On
 * condition variables a signal ends none: it sleeps for 50 ms. */
uint64_t ap__sleep_until(uint64_t deadline, unsigned sleeps) {
    bool interruptible = strcmp(ap_parking_backend(), "futex") == 0;
    if (PyThread_get_thread_ident() != ap__hooks.main_thread)
        return deadline;
    uint64_t slice = (uint64_t)SIGNAL_SLICE_NS << (interruptible && sleeps < 4 ? sleeps : 0);
    if (interruptible && sleeps >= 4)
        slice = SIGNAL_SLICE_MOST_NS;
    slice += ap_clock_now();
    return slice < deadline ? slice : deadline;
}

/* Detached: one sleep. */
static void nap(ap_atomic_u32 *word, uint32_t value, uint64_t deadline) {
    ap_u32_add_relaxed(&ap__sleeping, 1);
    AP_POINT("wait-sleep");
    ap_wait_u32(word, value, deadline);
    ap_u32_sub_relaxed(&ap__sleeping, 1);
}

/* Whether each CPU runs a worker, so that spinning would take one from them.  A hint. */
static bool cpus_are_taken(ap_core *core) {
#ifdef Py_GIL_DISABLED
    return ap_u32_load_relaxed(&core->busy) >= core->cpus;
#else
    /* attached, as whoever frees a pool is */
    return core->max_workers >= core->cpus && core->pool && !ap_pool_cpu_is_free(core->pool);
#endif
}

static bool spin_pays(ap_core *core) {
    if (!core || core->cpus < 2)
        return false;
    if (cpus_are_taken(core))
        return false;
    uint32_t waits = ap_u32_load_relaxed(&core->waits) + 1;
    ap_u32_store_relaxed(&core->waits, waits); /* lost counts do no harm */
    /* Few pauses: worker and waiter share a CPU.  To sleep now and then gives the kernel the
     * occasion to wake this thread on another one. */
    if (waits % PROBE_EVERY == PROBE_EVERY / 2 &&
        ap_u32_load_relaxed(&core->pauses) < SPIN_PAUSES / 16)
        return false;
    return ap_u32_load_relaxed(&core->spin_credit) != 0 || waits % PROBE_EVERY == 0;
}

/* Pauses help if the worker runs on another CPU.  If it waits for ours they only delay it: then
 * the task is done after the first yields, and fewer pauses are made the next times.  Every
 * PROBE_EVERYth wait makes all of them, to see whether they help again.
 *
 * A look takes the task's line from the worker, which writes to it several times: so there is none
 * for the first three quarters of what it took the last time. */
static bool spin_pausing(ap_pytask *task, uint32_t pauses) {
    ap_core *core = task->core;
    uint32_t blind = ap_u32_load_relaxed(&core->blind);
    for (uint32_t pause = 0; pause < pauses; pause++) {
        ap_cpu_pause();
        if (pause < blind || pause % PAUSES_PER_LOOK || !ap__task_is_done(task))
            continue;
        ap_u32_store_relaxed(&core->blind, pause - pause / 4);
        if (pauses != SPIN_PAUSES)
            ap_u32_store_relaxed(&core->pauses, SPIN_PAUSES);
        return true;
    }
    ap_u32_store_relaxed(&core->blind, blind / 2);
    return false;
}

static bool spin_yielding(ap_pytask *task, uint32_t pauses, uint64_t deadline) {
    uint64_t now = ap_clock_now(), end = now + SPIN_BUDGET_NS;
    end = end < deadline ? end : deadline;
    for (uint32_t yields = 1; now < end; yields++) {
        ap_cpu_yield();
        if (ap__task_is_done(task)) {
            if (yields <= 2)
                ap_u32_store_relaxed(&task->core->pauses, (pauses + 1) / 2);
            return true;
        }
        now = ap_clock_now();
    }
    return false;
}

static bool spin(ap_pytask *task, uint64_t deadline) {
    ap_core *core = task->core;
    uint32_t waits = ap_u32_load_relaxed(&core->waits);
    uint32_t pauses = waits % PROBE_EVERY ? ap_u32_load_relaxed(&core->pauses) : SPIN_PAUSES;
    bool done = spin_pausing(task, pauses) || spin_yielding(task, pauses, deadline);
    uint32_t credit = ap_u32_load_relaxed(&core->spin_credit);
    if (done && credit < CREDIT_MOST)
        ap_u32_store_relaxed(&core->spin_credit, credit + 1);
    else if (!done && credit)
        ap_u32_store_relaxed(&core->spin_credit, credit - 1);
    return done;
}

/* Raises if the calling thread is running the task: then it would wait for itself. */
static int check_not_running_here(ap_pytask *task) {
    for (ap_pytask *running = ap__running; running; running = running->outer) {
        if (running != task)
            continue;
        PyErr_SetString(PyExc_RuntimeError, running == ap__running
                                                ? "a task cannot wait for itself"
                                                : "a task cannot wait for one that waits for it");
        return -1;
    }
    return 0;
}

int ap__task_wait(ap_pytask *task, uint64_t deadline) {
    if (deadline == AP_FOREVER && !ap__task_is_done(task) && check_not_running_here(task) < 0)
        return -1;
    for (unsigned sleeps = 0;; sleeps++) {
        if (ap__task_is_done(task))
            return 1;
        if (sleeps && PyErr_CheckSignals() < 0)
            return -1;
        ap__task_check_fork(task); /* a signal handler may have forked */
        if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
            return 0;
        bool may_spin = !sleeps && spin_pays(task->core);
        PyThreadState *thread = PyEval_SaveThread();
        if (may_spin)
            ap_u32_or_relaxed(&task->state, AP_LET_GO); /* see await_release in worker.c */
        if (!may_spin || !spin(task, deadline)) {
            AP_POINT("wait-mark");
            /* pairs with the CAS in ap__task_publish_try and settle: see above */
            uint32_t state = ap_u32_or_acq_rel(&task->state, AP_WAITED) | AP_WAITED;
            if (!ap__state_is_done(state))
                nap(&task->state, state, ap__sleep_until(deadline, sleeps));
        }
        PyEval_RestoreThread(thread);
    }
}

void ap__word_sleep(ap_atomic_u32 *word, uint32_t value, uint64_t deadline, unsigned sleeps) {
    PyThreadState *thread = PyEval_SaveThread();
    nap(word, value, ap__sleep_until(deadline, sleeps));
    PyEval_RestoreThread(thread);
}

int ap__word_wait(ap_atomic_u32 *word, uint32_t value, uint64_t deadline) {
    unsigned forks = ap__forks;
    for (unsigned sleeps = 0;; sleeps++) {
        /* pairs with whoever changes the word (completions.c, condition.c): orders what was written
         * before the change before what the caller does next */
        if (ap_u32_load_acquire(word) != value)
            return 1;
        if (sleeps && PyErr_CheckSignals() < 0)
            return -1;
        if (forks != ap__forks) /* a signal handler has forked, and this is the child */
            return 1;
        if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
            return 0;
        ap__word_sleep(word, value, deadline, sleeps);
    }
}
