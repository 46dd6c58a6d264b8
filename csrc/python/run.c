/* Running a task: start, call, publish.
 *
 * Overview.  One word holds the state.  Whoever moves it from PENDING to RUNNING runs the task
 * and alone writes its outcome; the CAS from RUNNING to FINISHED publishes it.
 *
 *     runner                                      anyone else
 *     1  CAS PENDING to RUNNING, acq_rel          a  cancel: CAS PENDING to CANCELLED
 *     2  call, write the outcome                  b  observe: OR with OBSERVED (observe.c)
 *     3  CAS RUNNING to FINISHED, acq_rel,        c  wait: OR with WAITED (block.c)
 *        if OBSERVED is clear; else settle        d  set_result: CAS to FINISHED | OVERRIDE
 *     4  wake if WAITED was set                   e  read: load acquire, then the outcome
 *
 * A worker that goes on with another task does 3 and 4 attached.  One that has none (GIL builds)
 * lets go of the interpreter first, so that whoever waits wakes into an interpreter that is
 * free, and of its reference too, so that the outcome dies with its last user:
 *
 *     worker                                      anyone else, attached
 *     h1 attached: set `handed_over`              o  before it observes, settles or frees a
 *     h2 drop the reference; detach                  task: if `handed_over` is set, wait
 *     h3 exchange for FINISHED, acq_rel              until h3 has come
 *     h4 wake, by address, if WAITED was set
 *
 * h1 needs OBSERVED clear, and o is attached as h1 is, so OBSERVED stays clear until h3.  The
 * memory stays until h3, because freeing it is an o.  h3 needs no interpreter, so o ends (in a
 * forked child, where there is no such worker, at once).  A wake of an address whose memory was
 * freed and used again is a spurious wake, which all waits allow.
 *
 * All are RMWs of one word, so each of a to d comes before 3, which then fails or sees the
 * flag, or after it and sees the task done.  The acquire of e pairs with the release of 3.
 * After d the outcome is the observer's; the runner finds its CAS failed, and drops its own.
 * Step 4 touches only the address of the word: the runner holds a reference until it is done.
 * Tests: tests/model/python/model_{result,cancel,undertake}.c, tests/test_task.py.
 */
#include "bridge.h"

bool ap__task_start(ap_pytask *task) {
    uint32_t state = ap_u32_load_relaxed(&task->state);
    while ((state & (AP_STATE | AP_TAKEN)) == AP_PENDING) {
        AP_POINT("task-start");
        /* acquire pairs with the queue's hand-over; release with readers of "running" */
        if (ap_u32_cas_acq_rel(&task->state, &state, state | AP_RUNNING)) {
            if (AP_UNLIKELY(task->bounded))
                ap__bound_leave(task->core);
            return true;
        }
    }
    /* pairs with the CAS above by who runs it: orders its ap_pool_undertake before our rest */
    (void)ap_u32_load_acquire(&task->state);
    return false;
}

void ap__task_drop_call(ap_pytask *task) {
    PyObject *fn = task->fn, *args = task->args, *names = task->outcome;
    PyObject *context = ap__context_take(&task->context);
    task->fn = task->args = task->outcome = NULL;
    Py_XDECREF(fn);
    Py_XDECREF(args);
    Py_XDECREF(names);
    Py_XDECREF(context);
}

/* Takes the exception that is set out of the thread, normalised and with its traceback. */
static PyObject *take_exception(PyObject **traceback) {
    PyObject *error;
#if PY_VERSION_HEX >= 0x030C0000
    error = PyErr_GetRaisedException();
#else
    PyObject *type, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyErr_NormalizeException(&type, &error, &tb);
    if (tb) {
        PyException_SetTraceback(error, tb);
        Py_DECREF(tb);
    }
    Py_DECREF(type);
#endif
    *traceback = PyException_GetTraceback(error);
    return error;
}

#ifdef Py_GIL_DISABLED
/* Moves the references that this thread counts by itself to the count that all share.  An object
 * belongs to the thread that made it, and whoever drops the last reference elsewhere has to leave
 * the freeing to that thread; a worker may sleep by then.  (What the interpreter does itself when
 * an object outlives its thread: _Py_ExplicitMergeRefcount.) */
void ap__give_up_ownership(PyObject *object) {
    if (_Py_IsImmortal(object) || !_Py_IsOwnedByCurrentThread(object))
        return;
    Py_ssize_t shared = _Py_atomic_load_ssize_relaxed(&object->ob_ref_shared), merged;
    do {
        Py_ssize_t count = Py_ARITHMETIC_RIGHT_SHIFT(Py_ssize_t, shared, _Py_REF_SHARED_SHIFT) +
                           (Py_ssize_t)object->ob_ref_local;
        merged = _Py_REF_SHARED(count, _Py_REF_MERGED);
    } while (!_Py_atomic_compare_exchange_ssize(&object->ob_ref_shared, &shared, merged));
    _Py_atomic_store_uint32_relaxed(&object->ob_ref_local, 0);
    _Py_atomic_store_uintptr_relaxed(&object->ob_tid, 0);
}

static int give_up_visit(PyObject *object, void *left) {
    ap__give_up_ownership(object);
    return --*(int *)left <= 0;
}

/* With what it refers to, as far as that is little. */
static void give_up_with_contents(PyObject *object) {
    int left = 64;
    traverseproc traverse = Py_TYPE(object)->tp_traverse;
    if (traverse && PyObject_IS_GC(object))
        (void)traverse(object, give_up_visit, &left);
    ap__give_up_ownership(object);
}

static void give_up_outcome(PyObject *outcome, PyObject *traceback) {
    /* The traceback first, as the outcome refers to it.  Entries are put in front: what is behind
     * the first that is not ours was given up before. */
    while (traceback && PyTraceBack_Check(traceback) && _Py_IsOwnedByCurrentThread(traceback)) {
        PyTracebackObject *entry = (PyTracebackObject *)traceback;
        give_up_with_contents((PyObject *)entry->tb_frame);
        traceback = (PyObject *)entry->tb_next;
        ap__give_up_ownership((PyObject *)entry);
    }
    give_up_with_contents(outcome);
}

#define track(task, outcome) give_up_outcome(outcome, (task)->args)
#else

/* A task is tracked by the collector only once it can be part of a cycle: while it is queued
 * the queue owns it, and a result that is no container refers to nothing. */
static inline void track(ap_pytask *task, PyObject *outcome) {
    if (PyObject_IS_GC(outcome) && !PyObject_GC_IsTracked((PyObject *)task))
        PyObject_GC_Track(task);
}
#endif

static PyObject *call_in_context(ap_pytask *task, PyObject *context, const ap_call *call,
                                 PyObject **base) {
    if (context || ap__context_has_initial(task))
        return ap__context_call(task, context, call);
    if (!task->isolated || !*base)
        return ap__call(call);
    /* empty before, whatever callbacks and finalizers have done in it, and after, so that an idle
     * worker keeps nothing alive */
    ap__context_empty(base);
    PyObject *result = ap__call(call);
    ap__context_empty(base);
    return result;
}

/* Takes the task out of those that the thread runs.  It is the innermost one, unless greenlets have
 * been switched in the middle of tasks. */
static void leave_running(ap_pytask *task) {
    ap_pytask **link = &ap__running;
    while (AP_UNLIKELY(*link != task) && *link)
        link = &(*link)->outer;
    if (AP_LIKELY(*link != NULL))
        *link = task->outer;
    task->outer = NULL;
}

void ap__task_call(ap_pytask *task, PyObject **base) {
    ap_call call = {task->fn, task->args, task->outcome, task->nargs};
    PyObject *context = task->has_context ? ap__context_take(&task->context) : NULL;
    task->fn = task->args = task->outcome = NULL;
    if (call.nargs == UINT16_MAX)
        call.nargs =
            (size_t)(PyTuple_GET_SIZE(call.args) - (call.names ? PyTuple_GET_SIZE(call.names) : 0));

    PyObject *result, *traceback = NULL;
    task->outer = ap__running;
    ap__running = task;
    result = call_in_context(task, context, &call, base);
    bool failed = !result;
    if (failed)
        result = take_exception(&traceback);

    Py_DECREF(call.fn);
    Py_XDECREF(call.args);
    Py_XDECREF(call.names);
    Py_XDECREF(context);
    leave_running(task); /* not before what the arguments' finalizers do */
    task->failed = failed;
    task->args = traceback;
    task->outcome = result;
    track(task, result);
}

bool ap__task_publish_try(ap_pytask *task) {
    uint32_t state = ap_u32_load_relaxed(&task->state);
    do {
        if ((state & (AP_STATE | AP_OBSERVED)) != AP_RUNNING)
            return false;
        AP_POINT("publish");
        /* release pairs with the acquire load of whoever reads the outcome */
    } while (!ap_u32_cas_acq_rel(&task->state, &state, AP_FINISHED));
    AP_POINT("published");
    if (state & AP_WAITED)
        ap_wake_u32(&task->state, UINT32_MAX);
    return true;
}

#ifndef Py_GIL_DISABLED
bool ap__task_hand_over(ap_pytask *task) {
    if (Py_REFCNT(task) == 1)
        return false;
    uint32_t state = ap_u32_load_relaxed(&task->state);
    if ((state & (AP_STATE | AP_OBSERVED)) != AP_RUNNING)
        return false;
    task->handed_over = true; /* the GIL orders this before its readers */
    task->nargs = task->core->generation;
    Py_DECREF(task);
    (void)PyEval_SaveThread();
    AP_POINT("handover");
    /* release pairs with the acquire load of whoever reads the outcome */
    state = ap_u32_exchange_acq_rel(&task->state, AP_FINISHED);
    AP_POINT("handover-published");
    if (state & AP_WAITED)
        ap_wake_u32(&task->state, UINT32_MAX);
    return true;
}
#endif

static bool is_orphan(ap_pytask *task) {
    return task->core && ap__core_is_orphaned(task->core);
}

void ap__task_await_handover(ap_pytask *task) {
    /* acquire pairs with the exchange in ap__task_hand_over */
    /* in a forked child the worker that would do it is not there: the task is an orphan */
    for (int round = 0; task->handed_over && !ap__task_is_done(task) && !is_orphan(task); round++) {
        AP_POINT("handover-await");
        if (round < 64)
            ap_cpu_pause();
        else
            ap_cpu_yield();
    }
}

void ap__task_settle_run(ap_pytask *task) {
    if (ap__task_settle(task, AP_FROM_RUNNING, AP_FINISHED, NULL, false))
        return;
    /* somebody else decided: drop this outcome */
    PyObject *outcome = task->outcome, *traceback = task->args;
    task->outcome = task->args = NULL;
    Py_XDECREF(outcome);
    Py_XDECREF(traceback);
}

/* Tasks that wait for tasks nest on the stack of their worker, which may be small, or the recursion
 * limit large: below this address no further one is begun. */
#define STACK_RESERVE (64 * 1024)
static _Thread_local uintptr_t stack_limit;
#define C_LEVEL_BYTES 512
#define C_LEVELS_LEAST 100 /* twice what 3.13 keeps back when it frees */

void ap__stack_measure(void) {
    size_t size;
    uintptr_t low = ap_stack_low(&size);
    stack_limit = low ? low + (size / 2 < STACK_RESERVE ? size / 2 : STACK_RESERVE) : 0;
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    /* these versions let C code nest so deep on any stack, 3.13 also when it frees chains of
     * objects; later ones look at the stack */
    size_t most = size / C_LEVEL_BYTES > C_LEVELS_LEAST ? size / C_LEVEL_BYTES : C_LEVELS_LEAST;
    PyThreadState *thread = PyThreadState_Get();
    if (low && thread->c_recursion_remaining > 0 && most < (size_t)thread->c_recursion_remaining)
        thread->c_recursion_remaining = (int)most;
#endif
}

bool ap__stack_is_used_up(void) {
    char here;
    return (uintptr_t)&here < stack_limit;
}

/* The first field of a frame object on every version (pycore_frame.h). */
typedef struct {
    PyObject_HEAD PyFrameObject *back;
} frame_head;

/* A call that has failed keeps its frame, and that the frame it was called from: here the frame of
 * whoever waits, who holds the task, which holds the exception.  Called by a worker it would have
 * none, so that cycle is cut. */
static void forget_waiter(PyObject *traceback) {
    if (!traceback || !PyTraceBack_Check(traceback))
        return;
    frame_head *outermost = (frame_head *)((PyTracebackObject *)traceback)->tb_frame;
    PyFrameObject *waiter = PyEval_GetFrame();
    if (waiter && outermost->back == waiter)
        Py_CLEAR(outermost->back); /* others hold it while it runs */
}

/* Calls and publishes a started task on top of what this thread is doing. */
static void run_started(ap_pytask *task) {
    /* it sees no exception that the caller is handling */
    PyThreadState *thread = PyThreadState_Get();
    _PyErr_StackItem *outer = thread->exc_info, none = {0};
    thread->exc_info = &none;
    PyObject *base = task->isolated && !task->context ? ap__context_enter_base() : NULL;
    ap__task_call(task, &base);
    ap__context_leave_base(base);
    if (task->failed)
        forget_waiter(task->args);
    ap__task_publish(task); /* callbacks see none either */
    thread->exc_info = outer;
    Py_XDECREF(none.exc_value);
}

int ap__task_run_inline(ap_pytask *task) {
    if (!task->core || task->core != ap__home)
        return 0;
    if ((ap_u32_load_relaxed(&task->state) & (AP_STATE | AP_TAKEN)) != AP_PENDING)
        return 0;
    if (ap__stack_is_used_up()) {
        PyErr_SetString(PyExc_RecursionError,
                        "tasks that wait for tasks are nested too deep for the stack of their "
                        "worker; a larger stack_size of the pool allows more");
        return -1;
    }
    if (Py_EnterRecursiveCall(" while running a task that its own worker waits for"))
        return -1;
    /* in an initializer, say, the thread is no worker, and none that wait_idle counts on */
    ap_worker *worker = ap_worker_current();
    ap_pool *pool = task->core->pool;
    bool is_worker = worker && ap_worker_pool(worker) == pool;
    if (!is_worker)
        ap_pool_undertake(pool);
    int ran = ap__task_start(task);
    if (ran)
        run_started(task);
    if (!is_worker)
        ap_pool_dealt(pool);
    Py_LeaveRecursiveCall();
    return ran;
}

int ap__task_run_here(ap_pytask *task) {
    if (Py_EnterRecursiveCall(" while running a task in place of its pool"))
        return -1;
    int ran = ap__task_start(task);
    if (ran)
        run_started(task);
    Py_LeaveRecursiveCall();
    return ran;
}

bool ap__task_cancel(ap_pytask *task) {
    return ap__task_settle(task, AP_FROM_PENDING, AP_CANCELLED, NULL, false);
}
