/* What submit and its batch forms share: the object, and what each of them does with its core.
 */
#ifndef AFFINITYPOOL_SUBMIT_H
#define AFFINITYPOOL_SUBMIT_H

#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_core_object *core; /* NULL until _bind; another one in a forked child */
    PyObject *crew;                     /* who starts threads for that core: _threads.py */
} ap_pool_base;

/* pool.c: the pool's core if it takes tasks; NULL with the exception that says why it does not. */
ap_core *ap__pool_open(PyObject *op);
/* Turns a failed push into an exception. */
void ap__pool_push_failed(PyObject *op, int code);

/* batch.c */
PyObject *ap__pool_submit_rows(PyObject *op, PyObject *args);

/* start.c: starts a thread for tasks that were pushed and count on no idle worker.  -1 with an
 * exception: the system refuses a thread and there is no other, so that none of them runs; or the
 * start was interrupted, and all run if a thread is there, else none. */
int ap__pool_start_worker(PyObject *op, ap_core *core, ap_task *const *tasks, size_t count);
int ap__start_setup(PyObject *module);

/* start.c, 4: so many tasks were pushed, or will be, that have no taker.  Attached. */
void ap__core_lack(ap_core *core, size_t tasks);

/* Whether a thread can be started for a task. */
static inline bool ap__core_is_starting_up(ap_core *core) {
    return ap_u32_load_relaxed(&core->started) < core->max_workers;
}

/* Whether no thread is left, or about to start, that could run what is queued. */
static inline bool ap__core_has_no_threads(ap_core *core) {
    /* pairs with start_one and lose_worker, which give a place up and look at the queue then: they
     * see our push, or we see that nobody is left */
    return ap_u32_load_seq_cst(&core->started) == 0;
}

/* Whether a task that was pushed, and needed no thread, needs one now.  (With a GIL: no.  The
 * caller is attached all the time.) */
static inline bool ap__core_is_stranded(ap_core *core) {
#ifdef Py_GIL_DISABLED
    return AP_UNLIKELY(ap__core_has_no_threads(core));
#else
    (void)core;
    return false;
#endif
}

#endif
