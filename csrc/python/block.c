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

#define SPIN_PAUSES 80        /* about 2 to 4 us */
#define PAUSES_PER_LOOK 8     /* a look takes the line from the finisher, who writes to it */
#define SPIN_BUDGET_NS 50000u /* about the cost of being woken */
#define SIGNAL_SLICE_NS 50000000u
#define CREDIT_MOST 8u
#define PROBE_EVERY 32u

ap_atomic_u32 ap__sleeping;

int ap__deadline_from_timeout(PyObject *timeout, uint64_t *deadline, bool *past) {
    *past = false;
    *deadline = AP_FOREVER;
    if (!timeout || timeout == Py_None)
        return 0;
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

/* How long the next sleep may last.  A signal that arrived while the thread was spinning does
 * not end a sleep that begins after it, so the first one is short; on condition variables a
 * signal ends none, so all are. */
static uint64_t sleep_until(uint64_t deadline, bool first) {
    static int interruptible = -1;
    if (interruptible < 0)
        interruptible = strcmp(ap_parking_backend(), "futex") == 0;
    if (!first && interruptible)
        return deadline;
    uint64_t slice = ap_clock_now() + SIGNAL_SLICE_NS;
    return slice < deadline ? slice : deadline;
}

/* Detached: one sleep. */
static void nap(ap_atomic_u32 *word, uint32_t value, uint64_t deadline) {
    ap_u32_add_relaxed(&ap__sleeping, 1);
    ap_wait_u32(word, value, deadline);
    ap_u32_sub_relaxed(&ap__sleeping, 1);
}

/* Whether each CPU runs a worker, so that spinning would take one from them.  A hint. */
static bool cpus_are_taken(ap_core *core) {
#ifdef Py_GIL_DISABLED
    return ap_u32_load_relaxed(&core->busy) >= core->cpus;
#else
    /* attached, for a task that is not done: its pool is there */
    return core->max_workers >= core->cpus && !ap_pool_cpu_is_free(core->pool);
#endif
}

static bool spin_pays(ap_core *core) {
    if (!core || core->cpus < 2)
        return false;
    if (cpus_are_taken(core))
        return false;
    if (ap_u32_load_relaxed(&core->spin_credit))
        return true;
    uint32_t waits = ap_u32_load_relaxed(&core->waits) + 1;
    ap_u32_store_relaxed(&core->waits, waits); /* lost counts do no harm */
    return waits % PROBE_EVERY == 0;
}

static bool spin(ap_pytask *task, uint64_t deadline) {
    ap_core *core = task->core;
    bool done = false;
    for (int pause = 0; !done && pause < SPIN_PAUSES; pause++) {
        ap_cpu_pause();
        if (pause % PAUSES_PER_LOOK)
            continue;
        done = ap__state_is_done(ap_u32_load_acquire(&task->state));
    }
    if (!done) {
        uint64_t now = ap_clock_now(), end = now + SPIN_BUDGET_NS;
        end = end < deadline ? end : deadline;
        while (!done && now < end) {
            ap_cpu_yield();
            done = ap__state_is_done(ap_u32_load_acquire(&task->state));
            now = ap_clock_now();
        }
    }
    uint32_t credit = ap_u32_load_relaxed(&core->spin_credit);
    if (done && credit < CREDIT_MOST)
        ap_u32_store_relaxed(&core->spin_credit, credit + 1);
    else if (!done && credit)
        ap_u32_store_relaxed(&core->spin_credit, credit - 1);
    return done;
}

int ap__task_wait(ap_pytask *task, uint64_t deadline) {
    for (bool first = true;; first = false) {
        if (ap__state_is_done(ap_u32_load_acquire(&task->state)))
            return 1;
        if (!first && PyErr_CheckSignals() < 0)
            return -1;
        if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
            return 0;
        bool may_spin = first && spin_pays(task->core);
        PyThreadState *thread = PyEval_SaveThread();
        if (may_spin)
            ap_u32_or_relaxed(&task->state, AP_LET_GO); /* see await_release in worker.c */
        if (!may_spin || !spin(task, deadline)) {
            /* pairs with the CAS in ap__task_publish_try and settle: see above */
            uint32_t state = ap_u32_or_acq_rel(&task->state, AP_WAITED) | AP_WAITED;
            if (!ap__state_is_done(state))
                nap(&task->state, state, sleep_until(deadline, first));
        }
        PyEval_RestoreThread(thread);
    }
}

int ap__word_wait(ap_atomic_u32 *word, uint32_t value, uint64_t deadline) {
    for (bool first = true;; first = false) {
        if (ap_u32_load_acquire(word) != value)
            return 1;
        if (!first && PyErr_CheckSignals() < 0)
            return -1;
        if (deadline != AP_FOREVER && ap_clock_now() >= deadline)
            return 0;
        PyThreadState *thread = PyEval_SaveThread();
        nap(word, value, sleep_until(deadline, first));
        PyEval_RestoreThread(thread);
    }
}
