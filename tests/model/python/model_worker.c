/* The loop of a worker thread (worker.c), with the queues and the promises that ship: a task that
 * was accepted is run once, or visibly cancelled, whatever ends a worker; whoever waits for it goes
 * on; the counts are right in the end. */
#include "crew.h"

#include "python/worker.h"

#define TASKS_MAX 3
#define STRUCK PyExc_RuntimeError

/* values: tasks, workers that the pool has room for, threads that were started, workers that are to
 * leave by a fault, threads that come too many */
static ap_core_object *object;
static ap_pytask *tasks[TASKS_MAX];
static PyObject *arguments[TASKS_MAX], *results[TASKS_MAX];
static int runs[TASKS_MAX]; /* plain: two that are not ordered are a race */
static ap_atomic_u32 ended; /* workers, before they should */
static _Thread_local bool settled;

/* ---- what worker.c takes from home.c and start.c --------------------------------------------- */

void ap__home_rest(bool rests) {
    (void)rests;
}

void ap__home_settle(void) {
    settled = true;
}

/* All threads are started: nobody counts on idle ones. */
bool ap__core_count_on_idle(ap_core *core) {
    (void)core;
    model_absent();
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void check_busy(bool busy) {
#ifdef Py_GIL_DISABLED
    MODEL_CHECK((ap_u32_load_relaxed(&crew_core->busy) != 0) == busy);
#else
    (void)busy;
#endif
}

static PyObject *call(PyObject *argument) {
    int i = 0;
    while (arguments[i] != argument)
        i++;
    check_busy(true);
    MODEL_CHECK(runs[i]++ == 0);
    return results[i] = model_object();
}

/* Of the core; it never ends. */
static void set_references(int count) {
#ifdef Py_GIL_DISABLED
    ap_u64_store_relaxed(&((PyObject *)object)->ob_ref_shared, (uint64_t)count);
#else
    ((PyObject *)object)->ob_refcnt = count;
#endif
}

static int references(void) {
#ifdef Py_GIL_DISABLED
    return (int)ap_u64_load_relaxed(&((PyObject *)object)->ob_ref_shared);
#else
    return (int)((PyObject *)object)->ob_refcnt;
#endif
}

static void setup(void) {
    uint32_t workers = (uint32_t)model_value(1);
    static bool is_set_up;
    crew_begin_core();
    if (!is_set_up)
        ap__worker_setup(NULL);
    is_set_up = true;
    model_strike_begin();
    crew_core->max_workers = (uint32_t)model_value(2);
    ap_u32_store_relaxed(&crew_core->started, (uint32_t)model_value(2));
    ap_u32_store_relaxed(&crew_core->leave, (uint32_t)model_value(3));
    model_name(&crew_core->started, "started");
    model_name(&crew_core->begun, "begun");
    model_name(&crew_core->leave, "leave");
    ap_pool_options options = {.max_workers = workers, .shards = 1, .in_order = 1, .cpus = 2};
    MODEL_CHECK(ap_pool_new(&options, &crew_core->pool) == AP_OK);
    object = model_alloc(sizeof *object);
    set_references(2);
    object->core = crew_core;
    ap_u32_store_relaxed(&ended, 0);

    PyObject *fn = model_function(call);
    for (int i = 0; i < model_value(0); i++) {
        runs[i] = 0;
        results[i] = NULL;
        arguments[i] = model_object();
        tasks[i] = ap__task_new(crew_core, fn, &arguments[i], 1, NULL, false);
        Py_DECREF(arguments[i]);
        model_name(tasks[i], "task");
        model_name(&tasks[i]->state, "state");
    }
    Py_DECREF(fn);
    crew_ready();
}

/* ---- threads --------------------------------------------------------------------------------- */

static void push(int i) {
    if (ap_pool_push(crew_core->pool, &tasks[i]->header) != AP_OK)
        ap__task_unqueue(tasks[i]);
}

/* tasks[i].result() */
static void ask(int i) {
    PyObject *result = model_method((PyObject *)tasks[i], "result", NULL);
    if (result) {
        MODEL_CHECK(runs[i] == 1 && result == results[i]);
        Py_DECREF(result);
    } else {
        MODEL_CHECK(PyErr_Occurred() == STRUCK || PyErr_Occurred() == MODEL_CANCELLED_ERROR);
        MODEL_CHECK(runs[i] == 0);
        PyErr_Clear();
    }
}

static void submitter(void) {
    crew_attach();
    for (int i = 0; i < model_value(0); i++)
        push(i);
    ap_pool_close(crew_core->pool);
    for (int i = 0; i < model_value(0); i++)
        ask(i);
    crew_detach();
}

/* One after the other, so that the worker is idle in between. */
static void submitter_in_turns(void) {
    crew_attach();
    for (int i = 0; i < model_value(0); i++) {
        push(i);
        ask(i);
        check_busy(false); /* it has found nothing else before it said so */
    }
    ap_pool_close(crew_core->pool);
    crew_detach();
}

/* The exception was there before the task. */
static void submitter_that_strikes(void) {
    crew_attach();
    model_strike(2, STRUCK);
    crew_detach();
    submitter();
}

static void canceller(void) {
    crew_attach();
    (void)crew_is(tasks[0], "cancel");
    crew_detach();
}

static void canceller_of_all(void) {
    crew_attach();
    PyObject *none = ap__core_cancel_pending((PyObject *)object, Py_False);
    Py_DECREF(none);
    crew_detach();
}

static void striker(void) {
    crew_attach();
    model_strike(2, STRUCK);
    crew_detach();
}

/* Its thread, and those that replace it, one after the other: _threads.py. */
static void worker(void) {
    int code;
    ap__home = crew_core;
    while ((code = ap_python_worker_run(object)) == AP_PYTHON_WORKER_ENDED) {
        MODEL_CHECK(!settled);
        ap_u32_add_relaxed(&ended, 1);
        crew_attach();
        PyObject *error = model_call("worker_exception", NULL);
        MODEL_CHECK(error == Py_None || (PyObject *)Py_TYPE(error) == STRUCK);
        Py_DECREF(error);
        crew_detach();
    }
    MODEL_CHECK(code == AP_OK && settled);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void finish(void) {
    char text[TASKS_MAX + 1] = {0};
    MODEL_CHECK(ap_pool_is_quiet(crew_core->pool));
    MODEL_CHECK(ap_pool_pending(crew_core->pool) == 0);
    MODEL_CHECK(!object->promised || PyList_GET_SIZE(object->promised) == 0);
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->begun) ==
                (uint32_t)(model_value(2) + model_value(4)));
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->leave) == 0);
    MODEL_CHECK(references() == 2);
    check_busy(false);
    crew_attach();
    for (int i = 0; i < model_value(0); i++) {
        uint32_t state = ap_u32_load_relaxed(&tasks[i]->state) & AP_STATE;
        MODEL_CHECK(ap__state_is_done(state));
        text[i] = state == AP_CANCELLED ? 'c' : runs[i] ? 'r' : 'x';
        Py_DECREF(tasks[i]);
    }
    Py_XDECREF(object->promised);
    model_free(object);
    ap_pool_release(crew_core->pool);
    crew_detach();
    if (ap_u32_load_relaxed(&ended))
        model_outcome("%s, %u ended", text, ap_u32_load_relaxed(&ended));
    else
        model_outcome("%s", text);
    crew_end(0);
}

#define CASE(title, bound, ...) \
    .name = "worker, " title, .setup = setup, .finish = finish, .values = {__VA_ARGS__}, bound
#define LOADS .preemptions = 2, .stale = 1, .both = 2
#define SWITCHES(count) .preemptions = count, .stale = -1

const model_case model_cases[] = {
    {CASE("1 task", LOADS, 1, 1, 1), .threads = {submitter, worker}, .outcomes = "r"},
    {CASE("2 tasks", LOADS, 2, 1, 1), .threads = {submitter, worker}, .outcomes = "rr"},
    {CASE("2 tasks in turns", LOADS, 2, 1, 1), .threads = {submitter_in_turns, worker},
     .outcomes = "rr"},
    {CASE("1 task, a thread too many", SWITCHES(1), 1, 1, 1, 0, 1),
     .threads = {submitter, worker, worker}, .outcomes = "r"},
    {CASE("2 tasks, 2 workers", SWITCHES(1), 2, 2, 2), .threads = {submitter, worker, worker},
     .outcomes = "rr"},
    {CASE("1 task, struck", SWITCHES(2), 1, 1, 1), .threads = {submitter, worker, striker},
     .outcomes = "r|r, 1 ended|x"},
    {CASE("struck before its task", SWITCHES(2), 1, 1, 1), .outcomes = "r, 1 ended",
     .threads = {submitter_that_strikes, worker}},
    {CASE("2 tasks, struck", SWITCHES(1), 2, 1, 1), .threads = {submitter, worker, striker},
     .outcomes = "rr|rr, 1 ended|xr|rx"},
    {CASE("2 tasks, a fault", LOADS, 2, 1, 1, 1), .threads = {submitter, worker},
     .outcomes = "rr, 1 ended"},
    {CASE("2 tasks, 2 workers, a fault", SWITCHES(1), 2, 2, 2, 1),
     .threads = {submitter, worker, worker}, .outcomes = "rr, 1 ended"},
    {CASE("1 task, cancelled", SWITCHES(1), 1, 1, 1), .threads = {submitter, worker, canceller},
     .outcomes = "r|c"},
    {CASE("2 tasks, all are cancelled", SWITCHES(1), 2, 1, 1),
     .threads = {submitter, worker, canceller_of_all}},
    {0},
};
