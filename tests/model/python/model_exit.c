/* The end of the interpreter (module.c: set_exiting, is_exiting) against a submit that starts a
 * thread, with the queues and the worker's loop that ship: what was accepted is run, and no thread
 * is left that nobody has told to end.  What _threads.py does is imitated, one statement after the
 * other. */
#include "crew.h"

#include "python/submit.h"
#include "python/worker.h"

#define TASKS_MAX 2

/* values: tasks, threads that are there before */
static ap_core_object *object;
static ap_pytask *tasks[TASKS_MAX];
static PyObject *arguments[TASKS_MAX];
static int runs[TASKS_MAX];
static bool accepted[TASKS_MAX];
static PyObject *live_threads; /* the dictionary: its lock */
static bool live;              /* what is in it: the one thread */
static ap_atomic_u32 launched, gone;

/* ---- what is imitated of other files --------------------------------------------------------- */

void ap__home_rest(bool rests) {
    (void)rests;
}

void ap__home_settle(void) {
}

/* No thread is idle when a task is submitted. */
bool ap__core_count_on_idle(ap_core *core) {
    (void)core;
    return false;
}

int ap__core_setup(PyObject *module) {
    (void)module;
    return 0;
}

int ap__context_setup(PyObject *module) {
    (void)module;
    return 0;
}

int ap__pool_setup(PyObject *module) {
    (void)module;
    return 0;
}

int ap__fork_setup(PyObject *module) {
    (void)module;
    return 0;
}

int ap__home_setup(PyObject *module) {
    (void)module;
    return 0;
}

static void core_close(void) {
    ap_u32_store_release(&crew_core->refuse, 1);
    ap_pool_close(crew_core->pool);
}

/* Between two statements of Python. */
static void breathe(void) {
    crew_detach();
    crew_attach();
}

static void set_live(bool is_there) {
    Py_BEGIN_CRITICAL_SECTION(live_threads);
    live = is_there;
    Py_END_CRITICAL_SECTION();
    breathe();
}

static bool is_live(void) {
    bool is_there;
    Py_BEGIN_CRITICAL_SECTION(live_threads);
    is_there = live;
    Py_END_CRITICAL_SECTION();
    breathe();
    return is_there;
}

/* WorkerThread.launch */
static void launch(void) {
    set_live(true);
    PyObject *exiting = model_call("is_exiting", NULL);
    breathe();
    if (exiting == Py_True)
        core_close();
    ap_u32_store_release(&launched, 1);
    ap_wake_u32(&launched, 1);
}

/* ---- the threads ----------------------------------------------------------------------------- */

static PyObject *call(PyObject *argument) {
    int i = 0;
    while (arguments[i] != argument)
        i++;
    MODEL_CHECK(runs[i]++ == 0);
    return Py_None;
}

static void setup(void) {
    static bool is_set_up;
    if (!is_set_up)
        MODEL_CHECK(ap_python_bind(NULL) == 0);
    is_set_up = true;
    crew_begin_core();
    ap_pool_options options = {.max_workers = 1, .shards = 1, .in_order = 1, .cpus = 2};
    MODEL_CHECK(ap_pool_new(&options, &crew_core->pool) == AP_OK);
    object = model_alloc(sizeof *object);
    ((PyObject *)object)->immortal = true;
    object->core = crew_core;
    live_threads = model_object();
    live = model_value(1);
    ap_u32_store_relaxed(&crew_core->started, (uint32_t)model_value(1));
    ap_u32_store_relaxed(&launched, (uint32_t)model_value(1));
    ap_u32_store_relaxed(&gone, 0);
    ap_u32_store_relaxed(&ap__interpreter_exiting, 0);
    model_name(&ap__interpreter_exiting, "exiting");
    model_name(&launched, "launched");
    model_name(&gone, "gone");
    PyObject *fn = model_function(call);
    for (int i = 0; i < model_value(0); i++) {
        runs[i] = 0;
        accepted[i] = false;
        arguments[i] = model_object();
        tasks[i] = ap__task_new(crew_core, fn, &arguments[i], 1, NULL, false);
        Py_DECREF(arguments[i]);
    }
    Py_DECREF(fn);
    crew_ready();
}

/* pool.c, start.c */
static void submit(int i) {
    crew_attach();
    bool needs_thread = ap__core_is_starting_up(crew_core);
    accepted[i] = ap_pool_push(crew_core->pool, &tasks[i]->header) == AP_OK;
    uint32_t none = 0;
    if (!accepted[i])
        ap__task_unqueue(tasks[i]);
    else if ((needs_thread || ap__core_is_stranded(crew_core)) &&
             ap_u32_cas_seq_cst(&crew_core->started, &none, 1))
        launch();
    crew_detach();
}

static void submitter_1(void) {
    submit(0);
}

static void submitter_2(void) {
    submit(1);
}

/* _at_exit */
static void exiter(void) {
    crew_attach();
    PyObject *none = model_call("set_exiting", Py_True);
    MODEL_CHECK(none == Py_None);
    breathe();
    if (is_live())
        core_close();
    while (is_live()) {
        crew_detach();
        while (!ap_u32_load_acquire(&gone))
            ap_wait_u32(&gone, 0, AP_FOREVER);
        crew_attach();
        set_live(false);
    }
    crew_detach();
}

static void worker(void) {
    while (!ap_u32_load_acquire(&launched))
        ap_wait_u32(&launched, 0, AP_FOREVER);
    ap__home = crew_core;
    MODEL_CHECK(ap_python_worker_run(object) == AP_OK);
    crew_attach();
    set_live(false);
    crew_detach();
    ap_u32_store_release(&gone, 1);
    ap_wake_u32(&gone, UINT32_MAX);
}

/* Only a thread that was not started. */
static bool may_block(void) {
    return launched.raw == 0 && gone.raw == 0 && model_has_ended(1) && model_has_ended(2);
}

static void finish(void) {
    char text[TASKS_MAX + 1] = {0};
    crew_attach();
    for (int i = 0; i < model_value(0); i++) {
        MODEL_CHECK(runs[i] == accepted[i]);
        text[i] = accepted[i] ? 'r' : '-';
        Py_DECREF(tasks[i]);
    }
    Py_DECREF(live_threads);
    model_free(object);
    ap_pool_release(crew_core->pool);
    crew_detach();
    crew_end(0);
    model_outcome("%s", text);
}

#define CASE(title, bound, ...)                                                        \
    .name = "exit, " title, .setup = setup, .finish = finish, .values = {__VA_ARGS__}, \
    .may_block = may_block, bound
#define LOADS .preemptions = 2, .stale = 1, .both = 2
#define SWITCHES(count) .preemptions = count, .stale = -1

const model_case model_cases[] = {
    {CASE("a submit that starts a thread", LOADS, 1, 0), .threads = {submitter_1, exiter, worker},
     .outcomes = "r"},
    {CASE("a submit, a thread is there", LOADS, 1, 1), .threads = {submitter_1, exiter, worker},
     .outcomes = "r|-"},
    {CASE("2 submits", SWITCHES(1), 2, 0), .threads = {submitter_1, submitter_2, exiter, worker},
     .outcomes = "rr|r-|-r"},
    {0},
};
