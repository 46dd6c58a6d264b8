/* A forked child (fork.c): the other threads stop at any step at which they have let go of the
 * interpreter.  A task that the parent had not finished reads as cancelled from the first touch on,
 * whatever its observer's condition was held for; one that the forking thread runs goes on; the
 * queues are not touched.  To read what another thread was in the middle of would be a race. */
#include "crew.h"

#include "python/worker.h"
#include "sync/fork.h"

/* values: the worker goes dry, and hands over; references to the task beside the queue's; tasks are
 * queued before */
static ap_core_object *object;
static ap_pytask *other; /* queued, and not taken */
static void (*in_child)(void);
static bool is_child;
static int called; /* callbacks */

/* ---- what fork.c and worker.c take from elsewhere -------------------------------------------- */

int ap_fork_watch(void (*handler)(void)) {
    in_child = handler;
    return 0;
}

void ap__core_orphan_all(void) {
    ap_u32_or_relaxed(&crew_core->leave, AP_ORPHANED);
    ap_u32_store_relaxed(&crew_core->refuse, 1);
}

void ap__home_rest(bool rests) {
    (void)rests;
}

void ap__home_settle(void) {
}

bool ap__core_count_on_idle(ap_core *core) {
    (void)core;
    model_absent();
}

/* ---- the child ------------------------------------------------------------------------------- */

/* In the child the pool is gone: whoever touches it is told. */
static void fork_here(void) {
    model_python_fork();
    is_child = true;
    model_free(crew_core->pool);
    in_child();
}

static void check_touched(ap_pytask *task, crew_got got) {
    MODEL_CHECK(got == GOT_RESULT || got == GOT_CANCELLED);
    MODEL_CHECK(crew_is(task, "done"));
    MODEL_CHECK(crew_is(task, "cancelled") == (got == GOT_CANCELLED));
    MODEL_CHECK(!task->fn); /* what it would have called is let go of */
    MODEL_CHECK(crew_ask(task, -1) == got);
}

static void forker(void) {
    crew_attach();
    fork_here();
    crew_got got = crew_ask(crew_task, -1);
    check_touched(crew_task, got);
    model_outcome(got == GOT_RESULT ? "result" : "cancelled");
    Py_DECREF(crew_task);
    crew_detach();
}

/* It forks in the middle of its wait: in a signal handler. */
static void waiter_that_forks(void) {
    crew_attach();
    model_signalled = true;
    model_handler = fork_here;
    crew_got got = crew_ask(crew_task, -1);
    check_touched(crew_task, got);
    model_outcome("%s%s", is_child ? "child, " : "", got == GOT_RESULT ? "result" : "cancelled");
    Py_DECREF(crew_task);
    crew_detach();
}

/* It is touched by who drops it. */
static void forker_that_drops(void) {
    crew_attach();
    fork_here();
    Py_DECREF(crew_task);
    crew_detach();
}

static PyObject *count_call(PyObject *task) {
    MODEL_CHECK(task == (PyObject *)crew_task);
    called++;
    return Py_None;
}

/* The first touch adds a callback, which is called, and the condition can be taken. */
static void forker_that_observes(void) {
    crew_attach();
    PyObject *callback = model_function(count_call);
    fork_here();
    PyObject *none = model_method((PyObject *)crew_task, "add_done_callback", callback);
    MODEL_CHECK(none == Py_None && called == 1);
    crew_got got = crew_ask(crew_task, -1);
    check_touched(crew_task, got);
    PyObject *condition = model_attribute((PyObject *)crew_task, "_condition");
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    MODEL_CHECK(model_method(condition, "locked", NULL) == Py_False);
    Py_DECREF(condition);
    Py_DECREF(callback);
    crew_detach();
}

/* ---- the other threads ----------------------------------------------------------------------- */

static void runner(void) {
    crew_attach();
    if (model_value(0))
        crew_work_dry(crew_task);
    else
        crew_work_on(crew_task);
    crew_detach();
}

static void waiter(void) {
    crew_attach();
    (void)crew_ask(crew_task, -1);
    Py_DECREF(crew_task);
    crew_detach();
}

static void conditioner(void) {
    crew_attach();
    PyObject *condition = model_attribute((PyObject *)crew_task, "_condition");
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    crew_detach(); /* user code, with the condition */
    crew_attach();
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    Py_DECREF(condition);
    Py_DECREF(crew_task);
    crew_detach();
}

/* It has the condition still, in the child. */
static void conditioner_that_forks(void) {
    crew_attach();
    PyObject *condition = model_attribute((PyObject *)crew_task, "_condition");
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    fork_here();
    check_touched(crew_task, crew_ask(crew_task, -1));
    MODEL_CHECK(model_method(condition, "_is_owned", NULL) == Py_True);
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    MODEL_CHECK(model_method(condition, "locked", NULL) == Py_False);
    crew_detach();
}

/* As a loop over as_completed that goes on in the child: it is told to look for itself, if nobody
 * has told it of the task. */
static void collector_that_forks(void) {
    crew_attach();
    PyObject *completions = ap__completions_type->tp_alloc(ap__completions_type, 0);
    model_name(completions, "completions");
    bool watched = model_method(completions, "watch", (PyObject *)crew_task) == Py_True;
    fork_here();
    PyObject *seconds = model_float(-1);
    PyObject *ended = watched ? model_method(completions, "get", NULL) : Py_None;
    MODEL_CHECK(ended == Py_None || PyList_GET_SIZE(ended) == 1);
    MODEL_CHECK(crew_is(crew_task, "done"));
    check_touched(crew_task, crew_ask(crew_task, -1));
    if (watched) { /* it is told once */
        ended = model_method(completions, "get", seconds);
        MODEL_CHECK(ended != Py_None && PyList_GET_SIZE(ended) <= 1);
    }
    crew_detach();
}

/* A worker whose task forks: both go on with the task. */
static void worker(void) {
    ap__home = crew_core;
    MODEL_CHECK(ap_python_worker_run(object) == AP_OK);
    if (!is_child)
        return;
    crew_attach();
    MODEL_CHECK(crew_is(crew_task, "done") && !crew_is(crew_task, "cancelled"));
    crew_got got = crew_ask(other, -1);
    check_touched(other, got);
    MODEL_CHECK(got == GOT_CANCELLED);
    model_outcome("child");
    crew_detach();
}

/* The same with a task that waits for the one that forks, and so runs it: both go on. */
static void worker_that_waits(void) {
    ap__home = crew_core;
    MODEL_CHECK(ap_python_worker_run(object) == AP_OK);
    MODEL_CHECK(is_child);
    crew_attach();
    MODEL_CHECK(crew_is(crew_task, "done") && !crew_is(crew_task, "cancelled"));
    MODEL_CHECK(crew_ask(other, -1) == GOT_RESULT);
    crew_detach();
}

static void push(void) {
    MODEL_CHECK(ap_pool_push(crew_core->pool, &crew_task->header) == AP_OK);
    MODEL_CHECK(ap_pool_push(crew_core->pool, &other->header) == AP_OK);
}

static void submitter(void) {
    crew_attach();
    push();
    crew_detach();
}

/* ---- setup ----------------------------------------------------------------------------------- */

static PyObject *do_nothing(PyObject *argument) {
    (void)argument;
    return Py_None;
}

static PyObject *call_that_forks(PyObject *argument) {
    (void)argument;
    crew_runs++;
    fork_here();
    MODEL_CHECK(!crew_is(crew_task, "done") && !ap__home);
    return crew_result = model_object();
}

static PyObject *call_that_waits(PyObject *argument) {
    (void)argument;
    MODEL_CHECK(crew_ask(other, -1) == GOT_RESULT);
    MODEL_CHECK(is_child && !crew_is(crew_task, "done"));
    return Py_None;
}

static void set_up_once(void) {
    if (in_child)
        return;
    ap__fork_setup(NULL);
    ap__worker_setup(NULL);
}

static void setup(void) {
    set_up_once();
    ap__forks = 7;             /* as many came before */
    ap__hooks.main_thread = 2; /* the first one: it handles signals */
    is_child = false;
    called = 0;
    model_python_fork_begin();
    crew_begin(0, model_value(1));
    crew_core->pool = model_alloc(sizeof(int)); /* there is none */
    crew_ready();
}

/* The first task forks, or waits for the other one, which does. */
static void make_worker(PyObject *(*call)(PyObject *), PyObject *(*other_call)(PyObject *)) {
    setup();
    crew_attach();
    ap_pool_options options = {.max_workers = 1, .shards = 1, .in_order = 1, .cpus = 2};
    model_free(crew_core->pool);
    MODEL_CHECK(ap_pool_new(&options, &crew_core->pool) == AP_OK);
    ap_u32_store_relaxed(&crew_core->started, 1);
    object = model_alloc(sizeof *object);
    ((PyObject *)object)->immortal = true;
    object->core = crew_core;
    Py_SETREF(crew_task->fn, model_function(call));
    PyObject *fn = model_function(other_call), *argument = model_object();
    other = ap__task_new(crew_core, fn, &argument, 1, NULL, false);
    Py_DECREF(fn);
    Py_DECREF(argument);
    if (model_value(2))
        push();
    crew_detach();
}

static void setup_worker(void) {
    make_worker(call_that_forks, do_nothing);
}

static void setup_worker_that_waits(void) {
    make_worker(call_that_waits, call_that_forks);
}

#define CASE(title, made, ...)                                                    \
    .name = "fork, " title, .setup = made, .values = {__VA_ARGS__}, .full = true, \
    .leaves_memory = true, .preemptions = 2, .stale = 1, .both = 2

const model_case model_cases[] = {
    {CASE("a task that runs", setup, 0, 2), .threads = {forker, runner},
     .outcomes = "result|cancelled"},
    {CASE("a task that is handed over", setup, 1, 2), .threads = {forker, runner},
     .outcomes = "result|cancelled"},
    {CASE("a task that is handed over, and dropped", setup, 1, 1),
     .threads = {forker_that_drops, runner}},
    {CASE("a task that runs, a waiter", setup, 0, 3), .threads = {forker, runner, waiter},
     .outcomes = "result|cancelled"},
    {CASE("a task whose condition is held", setup, 0, 3),
     .threads = {forker_that_observes, runner, conditioner}},
    {CASE("in a wait", setup, 1, 2), .threads = {waiter_that_forks, runner}, .spurious = 1,
     .outcomes = "result|child, result|child, cancelled"},
    {CASE("in a task", setup_worker, 0, 1), .threads = {worker, submitter}, .outcomes = "child"},
    {CASE("in a task whose condition is held", setup_worker, 0, 2, 1),
     .threads = {worker, conditioner}, .outcomes = "child"},
    {CASE("in a task that another one runs", setup_worker_that_waits, 0, 2, 1),
     .threads = {worker_that_waits, conditioner}},
    {CASE("between two looks for what has ended", setup, 0, 2),
     .threads = {collector_that_forks, runner}},
    {CASE("who has the condition", setup, 0, 2), .threads = {conditioner_that_forks, runner}},
    {0},
};
