/* Tasks that are promised to threads which have not looked (untaken.c, 1 and a to d), with the
 * queue that ships and starts that are refused (start.c): each task is run or cancelled, once; of
 * those that were there before everything is cancelled, as many are run as threads were started;
 * what is cancelled is told once.
 *
 * A task is a word here, and the thread, its loss and the cancelling are those of worker.c, home.c
 * and _executor.py in a few lines. */
#include "crew.h"

#include "python/submit.h"
#include "sync/wait.h"

#define TASKS 3

int model_spins;
bool model_impatient;
ap_atomic_u32 ap__interpreter_exiting;
PyTypeObject *ap__task_base_type;
PyTypeObject *ap__core_type;
ap_hooks ap__hooks;

/* values: tasks that are queued, tasks that are promised, threads that have their places, those of
 * them that have looked, tasks that submits push, and what happens */
enum { STAYS_OPEN, CLOSES, CLOSED, INTERRUPTED };
static ap_core *core;
static ap_core_object *object;
static ap_pool_base *pool;
static PyTypeObject pool_type;
static ap_pytask *tasks[TASKS];
enum { WAITS, HAS_RUN, CANCELLED, CANCELLED_BEFORE };
static ap_atomic_u32 states[TASKS];
static int count;
static bool collects;
static AP_THREAD_LOCAL bool interrupts, interrupted;
static ap_atomic_u32 launched;

/* ---- what the files under test take from elsewhere ------------------------------------------- */

static ap_atomic_u32 *state_of(ap_pytask *task) {
    int i = 0;
    while (tasks[i] != task)
        i++;
    return &states[i];
}

bool ap__task_cancel(ap_pytask *task) {
    uint32_t state = WAITS;
    return ap_u32_cas_acq_rel(state_of(task), &state, CANCELLED);
}

bool ap__task_settle_first(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome,
                           bool failed, PyObject **callbacks_out) {
    (void)task, (void)from, (void)to, (void)outcome, (void)failed, (void)callbacks_out;
    model_absent();
}

static PyObject *launch(PyObject *op, PyObject *ignored) {
    (void)op, (void)ignored;
    ap_u32_store_release(&launched, 1);
    ap_wake_u32(&launched, 1);
    return Py_None;
}

static const PyMethodDef thread_methods[] = {{.ml_name = "launch", .ml_meth = launch}, {0}};
static PyTypeObject thread_type = {.ob_base = {.immortal = true}, .tp_methods = thread_methods};
static PyObject thread = {.ob_type = &thread_type, .immortal = true};

/* Refuses; or is interrupted, once. */
static PyObject *make_worker(PyObject *op, PyObject *crew) {
    (void)op, (void)crew;
    if (interrupts && interrupted)
        return &thread;
    PyErr_SetNone(interrupts ? PyExc_KeyboardInterrupt : PyExc_RuntimeError);
    interrupted = true;
    return NULL;
}

static const PyMethodDef pool_methods[] = {{.ml_name = "_make_worker", .ml_meth = make_worker},
                                           {0}};

/* ---- the threads ----------------------------------------------------------------------------- */

static void push(int i) {
    MODEL_CHECK(ap_pool_push(core->pool, &tasks[i]->header) == AP_OK);
}

static void setup(void) {
    (void)PyGILState_Ensure();
    core = model_alloc(sizeof *core);
    object = model_alloc(sizeof *object);
    ((PyObject *)object)->immortal = true;
    object->core = core;
    core->max_workers = model_value(4) == 2 ? 1 : 3;
    pool_type = (PyTypeObject){.ob_base = {.immortal = true}, .tp_methods = pool_methods};
    pool = model_alloc(sizeof *pool);
    ((PyObject *)pool)->ob_type = &pool_type;
    ((PyObject *)pool)->immortal = true;
    pool->core = object;
    pool->crew = Py_None;
    model_name(&core->started, "started");
    model_name(&core->begun, "begun");
    int rc =
        ap_pool_new(&(ap_pool_options){.max_workers = 2, .in_order = 1, .cpus = 2}, &core->pool);
    MODEL_CHECK(rc == AP_OK);
    ap_u32_store_relaxed(&core->started, (uint32_t)model_value(2));
    ap_u32_store_relaxed(&core->begun, (uint32_t)model_value(3));
    collects = false;
    ap_u32_store_relaxed(&launched, 0);
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = model_alloc(sizeof *tasks[i]);
        ((PyObject *)tasks[i])->immortal = true;
        ap_u32_store_relaxed(&states[i], WAITS);
        model_name(&states[i], "task");
    }
    for (count = 0; count < model_value(0) + model_value(1); count++)
        push(count);
    for (int i = 0; i < model_value(1); i++)
        ap__core_promise(object, ap__task_from_header(ap_pool_take_try(core->pool)));
    if (model_value(5) == CLOSED)
        ap_pool_close(core->pool);
    count += model_value(4); /* the last one is the refused submit's */
    PyGILState_Release(0);
}

static void run(ap_pytask *task) {
    uint32_t state = WAITS;
    (void)ap_u32_cas_acq_rel(state_of(task), &state, HAS_RUN);
    MODEL_CHECK(state != HAS_RUN);
}

/* As ap_python_worker_run. */
static void work(bool looks_first) {
    ap_worker *worker = NULL;
    (void)PyGILState_Ensure();
    int code = ap_worker_begin(core->pool, &worker);
    MODEL_CHECK(code == AP_OK || code == AP_E_CLOSED);
    ap_pytask *first = looks_first ? ap__core_take_first(object, worker) : NULL;
    if (first)
        run(first);
    if (first && !worker)
        ap_pool_dealt(core->pool);
    PyGILState_Release(0);
    if (!worker)
        return;
    do {
        ap_task *header;
        while ((header = ap_worker_take_try(worker))) {
            (void)PyGILState_Ensure();
            if (ap_u32_load_relaxed(&core->cancelling))
                ap__core_cancel(object, ap__task_from_header(header));
            run(ap__task_from_header(header));
            PyGILState_Release(0);
        }
    } while (ap_worker_park(worker) == AP_OK);
    ap_worker_end(worker);
}

static void fresh_worker(void) {
    work(true);
}

static void old_worker(void) {
    work(false);
}

/* As lose_worker. */
static void lost_worker(void) {
    (void)PyGILState_Ensure();
    uint32_t rest = ap_u32_sub_seq_cst(&core->started, 1) - 1;
    ap__core_trim_promised(object);
    if (!rest)
        ap__core_cancel_queued(object);
    PyGILState_Release(0);
}

/* One that has looked is ended from outside with a task in its hands, and cannot be replaced. */
static void ended_worker(void) {
    (void)PyGILState_Ensure();
    ap_task *header = ap_pool_take_try(core->pool);
    if (header)
        ap__core_promise(object, ap__task_from_header(header));
    ap_u32_sub_relaxed(&core->begun, 1);
    PyGILState_Release(0);
    lost_worker();
}

static void refused_submit(void) {
    (void)PyGILState_Ensure();
    interrupts = model_value(5) == INTERRUPTED;
    int i = count - 1, code = ap_pool_push(core->pool, &tasks[i]->header);
    ap_task *header = &tasks[i]->header;
    if (code < 0)
        ap_u32_store_relaxed(&states[i], CANCELLED);
    else if (ap__pool_start_worker((PyObject *)pool, core, &header, 1) < 0)
        PyErr_Clear();
    PyGILState_Release(0);
}

static void launched_worker(void) {
    while (!ap_u32_load_acquire(&launched))
        ap_wait_u32(&launched, 0, AP_FOREVER);
    work(true);
}

/* Perhaps it finds that a thread is about to start, and no place for another one. */
static void relying_submit(void) {
    (void)PyGILState_Ensure();
    interrupts = interrupted = model_value(5) == INTERRUPTED;
    bool needs_worker = ap__core_is_starting_up(core);
    ap_task *header = &tasks[0]->header;
    MODEL_CHECK(ap_pool_push(core->pool, header) == AP_OK);
    if ((needs_worker || ap__core_is_stranded(core)) &&
        ap__pool_start_worker((PyObject *)pool, core, &header, 1) < 0)
        PyErr_Clear();
    PyGILState_Release(0);
}

static void canceller(void) {
    uint32_t state = WAITS;
    (void)ap_u32_cas_acq_rel(&states[0], &state, CANCELLED_BEFORE);
}

static void shut(bool collect) {
    (void)PyGILState_Ensure();
    ap_pool_close(core->pool);
    Py_DECREF(ap__core_cancel_pending((PyObject *)object, collect ? Py_True : Py_False));
    PyGILState_Release(0);
}

static void shutdown(void) {
    shut(false);
}

static void shutdown_now(void) {
    collects = true;
    shut(true);
}

static bool may_block(void) {
    return model_value(5) == STAYS_OPEN || model_value(5) == INTERRUPTED;
}

/* What came of the tasks: r run, c cancelled, b cancelled before by its owner. */
static void finish(void) {
    char text[TASKS + 1] = "";
    int cancelled = 0;
    MODEL_CHECK(!object->promised || PyList_GET_SIZE(object->promised) == 0);
    MODEL_CHECK(ap_pool_is_quiet(core->pool));
    for (int i = 0; i < count; i++) {
        uint32_t state = ap_u32_load_relaxed(&states[i]);
        MODEL_CHECK(state != WAITS);
        cancelled += state == CANCELLED;
        text[i] = "-rcb"[state];
    }
    if (collects)
        MODEL_CHECK(PyList_GET_SIZE(object->cancelled) == cancelled);
    model_outcome("%s", text);
}

#define CASE(title, bound, ...)                                              \
    .name = title, .setup = setup, .finish = finish, .may_block = may_block, \
    .leaves_memory = true, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("shutdown against a first look, 1 task", 2, 1, 0, 1, 0, 0, CLOSES), .stale = 1,
     .outcomes = "r", .threads = {shutdown, fresh_worker}},
    {CASE("shutdown_now against a first look, 2 tasks", 2, 2, 0, 1, 0, 0, CLOSES), .stale = 1,
     .outcomes = "rc|rr", .threads = {shutdown_now, fresh_worker}},
    {CASE("shutdown against 2 first looks, 2 tasks", 1, 2, 0, 2, 0, 0, CLOSES), .stale = -1,
     .outcomes = "rr|rc", .threads = {shutdown, fresh_worker, fresh_worker}},
    {CASE("shutdown_now, 2 tasks, 1 of 2 threads is lost", 2, 2, 0, 2, 0, 0, CLOSES), .stale = -1,
     .outcomes = "rc|cr|rr|rc", .threads = {shutdown_now, fresh_worker, lost_worker}},
    {CASE("shutdown_now against a cancel", 2, 1, 0, 0, 0, 0, CLOSES), .outcomes = "b|c",
     .threads = {shutdown_now, canceller}},
    {CASE("shutdown, 2 promised, 2 of 3 threads are lost", 2, 0, 2, 3, 0, 0, CLOSED), .stale = -1,
     .outcomes = "rc|cr", .threads = {lost_worker, lost_worker, fresh_worker}},
    {CASE("shutdown, a start is refused", 3, 0, 0, 0, 0, 1, CLOSES), .stale = 1, .outcomes = "c",
     .threads = {shutdown, refused_submit}},
    {CASE("shutdown, a start is refused and a first look", 2, 1, 0, 1, 0, 1, CLOSES), .stale = -1,
     .outcomes = "rc|cr|rr", .threads = {shutdown, refused_submit, fresh_worker}},
    {CASE("a start is refused, and a submit relies on it", 2, 0, 0, 0, 0, 2), .stale = 2,
     .outcomes = "cc", .threads = {refused_submit, relying_submit}},
    {CASE("a start is interrupted, and a submit relies on it", 1, 0, 0, 0, 0, 2, INTERRUPTED),
     .stale = -1, .outcomes = "rc|rr",
     .threads = {refused_submit, relying_submit, launched_worker}},
    {CASE("2 promised, both threads are lost", 2, 0, 2, 2, 0), .stale = 1, .outcomes = "cc",
     .threads = {lost_worker, lost_worker}},
    {CASE("1 promised, its thread is lost, the other one too", 2, 0, 1, 2, 1), .stale = 3,
     .outcomes = "c", .threads = {lost_worker, lost_worker}},
    {CASE("1 promised, its thread is lost, another one works", 3, 0, 1, 2, 1), .stale = 1,
     .outcomes = "r", .threads = {lost_worker, old_worker}},
    {CASE("1 task, its worker ends, another one is lost", 3, 1, 0, 2, 2), .stale = 1,
     .outcomes = "c", .threads = {ended_worker, lost_worker}},
    {0},
};
