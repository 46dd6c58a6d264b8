/* A forked child: what it keeps of the parent's pools.
 *
 * Overview.  Only the thread that forked lives on in the child, and the parent's queues may have
 * been in the middle of anything, so the child never touches them: every core is marked as
 * orphaned and kept for ever, and each pool gets a fresh one.  Tasks that the parent had
 * not finished run there, in the parent.  In the child they read as cancelled from the first
 * time that they are touched; their callbacks and waiters belong to the parent and are not
 * told.  Tasks that the forking thread itself is running go on and end as usual, after which the
 * thread leaves the worker loop.
 *
 *     thread that forked, inside fork()           whoever touches this in the child
 *     1  renew the locks of csrc/sync             a  a pool: its core refuses; asks why, so that
 *     2  mark each core ORPHANED, have it            the pool is given a new core; submits there
 *        refuse tasks                             b  a task that is not done, of an orphaned core:
 *     3  `ap__forks` + 1; the tasks that it          not running here, by the number of the fork:
 *        is running survive this fork, by            CANCELLED, with an observer of its own
 *        its number                               c  a wait that went on through the fork (in a
 *                                                    signal handler): `ap__forks` has changed, or
 *                                                    the core is orphaned: looks again, or leaves
 *                                                 d  the worker's loop that it is in: leaves
 *                                                 e  a condition: free, unless the thread that
 *                                                    forked has it (condition.c)
 *
 * There is one thread until (3) is done, so a to e need no order against it; threads that the child
 * starts come after it.  The forking thread is attached, and the others have let go of the
 * interpreter, so what is guarded by the GIL or a critical section is whole and nobody's.  What is
 * changed detached is not: the queues, which are left alone, and the state of a task that is handed
 * over, which is one word.  A lock that is held detached is that of a condition: hence e.
 * Tests: tests/model/python/model_fork.c, tests/faults/test_fork.py.
 *
 * The marks are set inside fork() itself, by a handler of the C library, before any Python code
 * runs in the child.  An orphaned core refuses tasks; whoever then asks the pool why has it renewed
 * (ap__pool_open).  A hook of os.register_at_fork renews all pools; nothing depends on its running,
 * or on its getting to the end.
 */
#include "sync/fork.h"
#include "bridge.h"

_Thread_local ap_pytask *ap__running;
unsigned ap__forks;

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

/* In the child, before fork() returns. */
static void begin_child(void) {
    ap_wait_after_fork();
    ap__home = NULL; /* the thread of a worker lives on as the child's main thread */
    ap__hooks.main_thread = PyThread_get_thread_ident();
    ap_u32_store_relaxed(&ap__sleeping, 0);
    ap__core_orphan_all();
    ap__forks++;
    /* by number: those of the thread that forked the parent, if it is another, end with it */
    for (ap_pytask *task = ap__running; task; task = task->outer) {
        task->survives = true;
        task->nargs = (uint16_t)ap__forks; /* its call has been made */
    }
}

int ap__fork_setup(PyObject *Py_UNUSED(module)) {
    static bool watches;
    int error = watches ? 0 : ap_fork_watch(begin_child);
    watches = !error;
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return 0;
}
