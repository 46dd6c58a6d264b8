/* See crew.h.  And what the bridge's files under test take from those that are not. */
#include "crew.h"

#include <string.h>

#include "python/submit.h"

#define WEAK __attribute__((weak))

ap_core *crew_core;
ap_pytask *crew_task;
PyObject *crew_result;
int crew_runs;
bool crew_fails;
int model_spins;
bool model_impatient;

static PyObject *call(PyObject *argument) {
    MODEL_CHECK(argument);
    MODEL_CHECK(crew_runs == 0);
    crew_runs++;
    if (crew_fails) {
        PyErr_SetNone(PyExc_ValueError);
        return NULL;
    }
    crew_result = model_object();
    model_name(crew_result, "result");
    return crew_result;
}

static PyObject *log_nothing(PyObject *task) {
    (void)task;
    return Py_None;
}

/* As the eval loop: raises what was sent to the thread. */
static PyObject *breathe(PyObject *argument) {
    (void)argument;
    return Py_None;
}

void crew_attach(void) {
    (void)PyGILState_Ensure();
}

void crew_detach(void) {
    PyGILState_Release(0);
}

void crew_begin_core(void) {
    crew_attach();
    if (!ap__task_base_type)
        ap__task_setup(NULL);
    if (!ap__completions_type)
        ap__completions_setup(NULL);
    if (!ap__condition_type)
        ap__condition_setup(NULL);
    ap__task_type = ap__task_base_type;
    ap__hooks.cancelled_error = MODEL_CANCELLED_ERROR;
    ap__hooks.invalid_state_error = MODEL_INVALID_STATE_ERROR;
    ap__hooks.pending_limit_error = MODEL_PENDING_LIMIT_ERROR;

    ap__hooks.log_state = model_function(log_nothing);
    ap__hooks.breathe = model_function(breathe);

    crew_core = model_alloc(sizeof *crew_core);
    crew_core->cpus = 1;
    crew_core->max_workers = 1;
    model_name(crew_core, "core");
    model_name(&crew_core->pending, "pending");
    model_name(&crew_core->blocked, "blocked");
}

void crew_begin(uint32_t max_pending, int references) {
    crew_result = NULL;
    crew_runs = 0;
    crew_begin_core();
    crew_core->max_pending = max_pending;
    ap_u32_store_relaxed(&crew_core->pending, max_pending != 0); /* the task's place */

    PyObject *fn = model_function(call), *argument = model_object();
    crew_task = ap__task_new(crew_core, fn, &argument, 1, NULL, false);
    model_name(fn, "fn");
    model_name(argument, "argument");
    model_name(crew_task, "task");
    model_name(&crew_task->state, "state");
    Py_DECREF(fn);
    Py_DECREF(argument);
    for (int i = 1; i < references; i++)
        Py_INCREF(crew_task);
    if (!references)
        Py_DECREF(crew_task);
}

void crew_ready(void) {
    crew_detach();
}

void crew_end(int references) {
    crew_attach();
    for (int i = 0; i < references; i++)
        Py_DECREF(crew_task);
    MODEL_CHECK(!crew_core->max_pending ||
                (ap_u32_load_relaxed(&crew_core->pending) & 0xffff) == 0);
    Py_DECREF(ap__hooks.log_state);
    Py_DECREF(ap__hooks.breathe);
    model_free(crew_core);
    crew_detach();
}

void crew_work_on(ap_pytask *task) {
    ap__task_run_header(&task->header, NULL);
}

void crew_work_dry(ap_pytask *task) {
#ifndef Py_GIL_DISABLED
    PyObject *base = NULL;
    if (ap__task_start(task)) {
        ap__task_call(task, &base);
        if (ap__task_hand_over(task)) {
            (void)PyGILState_Ensure(); /* it leaves detached */
            return;
        }
        ap__task_publish(task);
    }
    Py_DECREF(task);
#else
    crew_work_on(task);
#endif
}

crew_got crew_ask(ap_pytask *task, double timeout) {
    PyObject *seconds = timeout < 0 ? NULL : model_float(timeout);
    PyObject *result = model_method((PyObject *)task, "result", seconds);
    Py_XDECREF(seconds);
    if (result) {
        MODEL_CHECK(crew_runs == 1 && result == crew_result);
        Py_DECREF(result);
        return GOT_RESULT;
    }
    PyObject *type = PyErr_Occurred();
    PyErr_Clear();
    if (type == PyExc_ValueError) {
        MODEL_CHECK(crew_runs == 1 && crew_fails);
        return GOT_ERROR;
    }
    if (type == MODEL_CANCELLED_ERROR)
        return GOT_CANCELLED;
    if (type == PyExc_TimeoutError)
        return GOT_TIMEOUT;
    return type == PyExc_KeyboardInterrupt ? GOT_SIGNAL : GOT_OTHER;
}

bool crew_is(void *op, const char *name) {
    PyObject *answer = model_method(op, name, NULL);
    MODEL_CHECK(answer == Py_True || answer == Py_False);
    return answer == Py_True;
}

/* ---- core.c, fork.c, home.c, context.c, module.c, batch.c: nothing of it happens here, but where
 * home.c is linked */

WEAK _Thread_local ap_pytask *ap__running;
WEAK _Thread_local ap_core *ap__home;
AP_THREAD_LOCAL PyObject *ap__initial_context;
WEAK unsigned ap__forks;
WEAK ap_atomic_u32 ap__interpreter_exiting; /* pool.c has it */

WEAK void ap__home_rest(bool rests) {
    (void)rests;
}

WEAK void ap__home_settle(void) {
}

PyTypeObject *ap__core_type;

void ap__core_close(ap_core *core) {
    (void)core;
    model_absent();
}

PyObject *ap__pool_submit_rows(PyObject *op, PyObject *args) {
    (void)op, (void)args;
    model_absent();
}

void ap__context_forget(void) {
}

WEAK void ap__task_orphan(ap_pytask *task) {
    (void)task;
    model_absent();
}

int ap__context_capture(PyObject **slot) {
    *slot = NULL;
    return 0;
}

PyObject *ap__context_call(ap_pytask *task, PyObject *context, const ap_call *what) {
    (void)task, (void)context, (void)what;
    model_absent();
}

PyObject *ap__context_enter_base(void) {
    return NULL;
}

void ap__context_leave_base(PyObject *base) {
    (void)base;
}

void ap__context_replace(PyObject **base) {
    (void)base;
    model_absent();
}

/* ---- the scheduler: there is no queue, but where csrc/sched is linked ------------------------ */

WEAK ap_worker *ap_worker_current(void) {
    return NULL;
}

WEAK ap_pool *ap_worker_pool(const ap_worker *worker) {
    (void)worker;
    return NULL;
}

WEAK void ap_pool_undertake(ap_pool *pool) {
    (void)pool;
}

WEAK void ap_pool_dealt(ap_pool *pool) {
    (void)pool;
}

WEAK int ap_pool_cpu_is_free(ap_pool *pool) {
    (void)pool;
    return 1;
}

uintptr_t ap_stack_low(size_t *size) {
    (void)size;
    return 0; /* it cannot be told */
}
