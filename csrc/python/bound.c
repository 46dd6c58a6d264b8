/* max_pending: the bound on tasks that were accepted and have not started.
 *
 * Overview.  A task of a bounded pool takes a place before it is queued.  Whoever moves it out of
 * PENDING (starts it, cancels it, takes its call or sets its outcome) gives the place back.
 *
 *     submitter                                   whoever moves a task out of PENDING
 *     1  load `pending` seq_cst; closed: refused  a  move it
 *     2  below the bound: CAS + 1 seq_cst, done   b  `pending` - 1, seq_cst
 *     3  `blocked` + 1, seq_cst                   c  load `blocked` seq_cst
 *     4  as 1 and 2; done: `blocked` - 1          d  not 0, and `pending` below the bound:
 *     5  sleep while `pending` is what 4 saw,        wake one
 *        then from 4                              closing
 *                                                 x  OR `pending` with CLOSED seq_cst, wake all
 *
 *     worker of the pool, with "block"
 *     2' not below the bound: add 1, without a look at CLOSED
 *
 * - No wake is lost.  In the total order of the seq_cst operations either (3) precedes (c), and (d)
 *   wakes a sleeper or keeps it from sleeping, as (5) compares; or (c), and so (b), precedes (3),
 *   and (4) sees the place.  (x) changes the word itself.
 * - One wake for one place is enough.  A sleeper that finds the place gone to somebody else sleeps
 *   on, and is owed nothing.  One that leaves without a look at the places, as the interpreter
 *   exits or it finds itself in a forked child, may have swallowed the wake of another: it passes
 *   it on, as (c) and (d) do.
 * - A worker never waits for its own pool: it goes over the bound (2'), and others then wait until
 *   the pool is below it again.  If the pool is closed by then, its push is refused and the place
 *   given back.  The sum leaves CLOSED alone: the bound and the workers' tasks are far below it.
 * - A place is given back to the pool that it was taken from, because the memory of its core is not
 *   used again before: with a GIL (a) to (d) are one step; without one, whoever is no worker of the
 *   pool pins the core from before (a) to after (d), and core_dealloc waits for the pins.
 *
 * Tests: tests/model/python/model_bound.c, model_pins.c, tests/faults/test_bound.py.
 */
#include "bridge.h"

#define CLOSED UINT32_C(0x80000000)

/* Steps 1 and 2.  1: a place was taken; 0: there is none; -1: closed.  *seen is what 1 loaded. */
static int take_place_try(ap_core *core, uint32_t *seen) {
    /* as step 4 it pairs with (b): after our (3) in the total order, so it sees the place, or (c)
     * sees us */
    *seen = ap_u32_load_seq_cst(&core->pending);
    for (;;) {
        if (*seen & CLOSED)
            return -1;
        if (*seen >= core->max_pending)
            return 0;
        /* one order with (b) and (x) of the same word: a place is taken once, and none after (x) */
        if (ap_u32_cas_seq_cst(&core->pending, seen, *seen + 1))
            return 1;
    }
}

/* Steps c and d. */
static void wake_one(ap_core *core) {
    /* pairs with step 3: it sees our place, or we see that it waits */
    if (AP_LIKELY(ap_u32_load_seq_cst(&core->blocked) == 0))
        return;
    /* no earlier than our (b): a place that is free for all that we see is worth a wake */
    if ((ap_u32_load_seq_cst(&core->pending) & ~CLOSED) < core->max_pending)
        ap_wake_u32(&core->pending, 1);
}

static int wait_for_place(ap_core *core) {
    int taken;
    uint32_t seen;
    /* pairs with step c: orders it before step 4, as c is ordered behind b */
    ap_u32_add_seq_cst(&core->blocked, 1);
    for (unsigned sleeps = 0; !(taken = take_place_try(core, &seen)); sleeps++) {
        if (sleeps && PyErr_CheckSignals() < 0) {
            taken = -2;
            break;
        }
        ap__word_sleep(&core->pending, seen, AP_FOREVER, sleeps);
        /* exiting: a hint; at exit a pool is closed (x) or what it holds cancelled (b), and both
         * wake us.  orphaned: a signal handler has forked, and this is the child */
        if (ap_u32_load_relaxed(&ap__interpreter_exiting) || ap__core_is_orphaned(core)) {
            taken = -1;
            break;
        }
    }
    /* pairs with step c: who still counted us may have woken us alone; wake_one passes it on */
    ap_u32_sub_seq_cst(&core->blocked, 1);
    if (taken < 0)
        wake_one(core);
    return taken;
}

int ap__bound_enter(ap_core *core, ap_on_full on_full) {
    uint32_t seen;
    int taken = take_place_try(core, &seen);
    if (taken)
        return taken;
    if (on_full == AP_FULL_RAISE) {
        PyErr_Format(ap__hooks.pending_limit_error,
                     "the pool has max_pending=%u tasks that have not started: wait for some of "
                     "them, or submit again later",
                     core->max_pending);
        return -2;
    }
    if (on_full == AP_FULL_CALLER_RUNS)
        return 0;
    if (ap__home == core) {
        /* over the bound; atomic is enough: no wake is owed for a place that is taken */
        ap_u32_add_seq_cst(&core->pending, 1);
        return 1;
    }
    return wait_for_place(core);
}

void ap__bound_leave(ap_core *core) {
    /* pairs with step 4 of whoever waits: orders the place before our look at `blocked` */
    ap_u32_sub_seq_cst(&core->pending, 1);
    wake_one(core);
}

void ap__bound_close(ap_core *core) {
    if (!core->max_pending)
        return;
    /* pairs with steps 1 and 4, and with the compare of 5: it changes the word that they look at */
    ap_u32_or_seq_cst(&core->pending, CLOSED);
    ap_wake_u32(&core->pending, UINT32_MAX);
}
