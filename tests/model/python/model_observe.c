/* Callbacks and watchers against the end of the task (observe.c, completions.c), and against the
 * hand-over: each is told exactly once.  Conditions and waiters too: while somebody has a task's
 * condition it does not end, and whoever waits there is notified. */
#include "crew.h"

/* values: references, how the runner ends, a bound on pending tasks, calls of the first and the
 * second callback, references that nobody drops (the queue's, without a runner) */
enum { GOES_ON, RUNS_DRY };

static int told[2];
static int enrolled; /* to be told once more */

static void setup(void) {
    told[0] = told[1] = enrolled = 0;
    crew_fails = false;
    crew_begin((uint32_t)model_value(2), model_value(0));
    crew_ready();
}

static void runner(void) {
    crew_attach();
    if (model_value(1) == GOES_ON)
        crew_work_on(crew_task);
    else
        crew_work_dry(crew_task);
    crew_detach();
}

static void canceller(void) {
    crew_attach();
    (void)crew_is(crew_task, "cancel");
    Py_DECREF(crew_task);
    crew_detach();
}

static void note(PyObject *task, int i) {
    MODEL_CHECK(task == (PyObject *)crew_task && told[i] == 0);
    told[i]++;
    MODEL_CHECK(crew_is(task, "done"));
    if (!crew_is(task, "cancelled"))
        MODEL_CHECK(crew_ask(crew_task, -1) == GOT_RESULT);
}

static PyObject *note_1(PyObject *task) {
    note(task, 0);
    return Py_None;
}

static PyObject *note_2(PyObject *task) {
    note(task, 1);
    return Py_None;
}

static void observe(PyObject *(*callback)(PyObject *)) {
    crew_attach();
    PyObject *fn = model_function(callback);
    model_name(fn, "callback");
    PyObject *none = model_method((PyObject *)crew_task, "add_done_callback", fn);
    MODEL_CHECK(none);
    Py_DECREF(fn);
    Py_DECREF(crew_task);
    crew_detach();
}

static void observer_1(void) {
    observe(note_1);
}

static void observer_2(void) {
    observe(note_2);
}

/* As concurrent.futures.wait does with tasks of its own kind. */
static void collector(void) {
    crew_attach();
    PyObject *all = ap__completions_type->tp_alloc(ap__completions_type, 0);
    model_name(all, "completions");
    PyObject *watched = model_method(all, "watch", (PyObject *)crew_task);
    if (watched == Py_True) {
        PyObject *done = model_method(all, "get", NULL);
        MODEL_CHECK(PyList_GET_SIZE(done) == 1 &&
                    PyList_GET_ITEM(done, 0) == (PyObject *)crew_task);
        Py_DECREF(done);
    }
    note((PyObject *)crew_task, 1);
    Py_DECREF(all);
    Py_DECREF(crew_task);
    crew_detach();
}

/* A task and something else are posted, and there may be no memory for the task. */
static PyObject *posts, *other;

static void setup_posts(void) {
    setup();
    crew_attach();
    posts = ap__completions_type->tp_alloc(ap__completions_type, 0);
    other = model_object();
    model_name(posts, "completions");
    model_name(other, "other");
    MODEL_CHECK(model_method(posts, "watch", (PyObject *)crew_task) == Py_True);
    crew_detach();
}

static void short_runner(void) {
    model_short_of_memory = true;
    runner();
    model_short_of_memory = false;
}

static void poster(void) {
    crew_attach();
    ap__completions_post(posts, other);
    crew_detach();
}

/* Is told of both, or to look for itself. */
static void collector_of_two(void) {
    bool missed = false;
    crew_attach();
    for (Py_ssize_t seen = 0; seen < 2;) {
        PyObject *done = model_method(posts, "get", NULL);
        if (done == Py_None) {
            MODEL_CHECK(!missed && crew_is(crew_task, "done"));
            missed = true;
            seen++;
        } else {
            MODEL_CHECK(PyList_GET_SIZE(done) > 0);
            seen += PyList_GET_SIZE(done);
        }
        Py_DECREF(done);
    }
    Py_DECREF(crew_task);
    crew_detach();
}

/* Watches, and takes it back: what was posted before is there, and later nothing is. */
static void passer_by(void) {
    crew_attach();
    PyObject *all = ap__completions_type->tp_alloc(ap__completions_type, 0), *none;
    model_name(all, "completions");
    PyObject *watched = model_method(all, "watch", (PyObject *)crew_task);
    none = model_method(all, "unwatch", (PyObject *)crew_task);
    MODEL_CHECK(none == Py_None && watched);
    Py_DECREF(all);
    Py_DECREF(crew_task);
    crew_detach();
}

/* As user code that waits for the end in the task's condition: while it has that, nothing ends. */
static void conditioner(void) {
    crew_attach();
    PyObject *condition = model_attribute((PyObject *)crew_task, "_condition");
    model_name(condition, "condition");
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    while (!crew_is(crew_task, "done")) {
        PyEval_RestoreThread(PyEval_SaveThread());
        MODEL_CHECK(!crew_is(crew_task, "done"));
        MODEL_CHECK(model_method(condition, "wait", NULL) == Py_True);
    }
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    Py_DECREF(condition);
    Py_DECREF(crew_task);
    crew_detach();
}

/* As the stdlib's wait: puts a waiter in, if the task is not done while it has the condition. */
static void enroller(void) {
    crew_attach();
    PyObject *waiter = model_function(note_1), *waiters;
    PyObject *condition = model_attribute((PyObject *)crew_task, "_condition");
    model_name(waiter, "waiter");
    model_name(condition, "condition");
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    if (!crew_is(crew_task, "done")) {
        waiters = model_attribute((PyObject *)crew_task, "_waiters");
        MODEL_CHECK(PyList_Append(waiters, waiter) == 0);
        Py_DECREF(waiters);
        enrolled = 1;
    }
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    Py_DECREF(condition);
    Py_DECREF(waiter);
    Py_DECREF(crew_task);
    crew_detach();
}

static void waiter(void) {
    crew_attach();
    MODEL_CHECK(crew_ask(crew_task, -1) == GOT_RESULT);
    Py_DECREF(crew_task);
    crew_detach();
}

static void finish(void) {
    MODEL_CHECK(told[0] == model_value(3) + enrolled && told[1] == model_value(4));
    crew_end(model_value(5));
}

static void finish_posts(void) {
    crew_attach();
    Py_DECREF(posts);
    Py_DECREF(other);
    crew_detach();
    finish();
}

#define CASE_(title, before, after, bound, ...) \
    .name = title, .setup = before, .finish = after, .preemptions = bound, .values = {__VA_ARGS__}
#define CASE(title, ...) CASE_(title, setup, finish, __VA_ARGS__)

const model_case model_cases[] = {
    {CASE("callback against publish", 3, 1, GOES_ON, 0, 1, 0), .threads = {runner, observer_1}},
    {CASE("callback against cancel", 3, 2, GOES_ON, 1, 1, 0, 1),
     .threads = {canceller, observer_1}},
    {CASE("2 callbacks against publish", 2, 2, GOES_ON, 0, 1, 1), .stale = 1,
     .threads = {runner, observer_1, observer_2}},
    {CASE("callback against publish and cancel", 2, 2, GOES_ON, 0, 1, 0), .stale = 1,
     .threads = {runner, canceller, observer_1}},
    {CASE("callback and waiter against publish", 2, 2, GOES_ON, 0, 1, 0), .stale = 1,
     .threads = {runner, observer_1, waiter}},
    {CASE("watch against publish", 3, 1, GOES_ON, 0, 0, 1), .threads = {runner, collector}},
    {CASE("watch and callback against publish", 2, 2, GOES_ON, 0, 1, 1), .stale = 1,
     .threads = {runner, observer_1, collector}},
    {CASE("watch and unwatch against publish", 2, 1, GOES_ON, 0, 0, 0),
     .threads = {runner, passer_by}},
    {CASE_("2 posts, no memory for one", setup_posts, finish_posts, 1, 1, GOES_ON, 0, 0, 0),
     .stale = 1, .threads = {short_runner, poster, collector_of_two}},
    {CASE("condition against publish", 3, 1, GOES_ON, 0, 0, 0), .threads = {runner, conditioner}},
    {CASE("condition against cancel", 2, 2, GOES_ON, 1, 0, 0, 1),
     .threads = {canceller, conditioner}},
    {CASE("2 conditions against publish", 1, 2, GOES_ON, 0, 0, 0), .stale = 1,
     .threads = {runner, conditioner, conditioner}},
    {CASE("waiter in the condition against publish", 2, 1, GOES_ON, 0, 0, 0),
     .threads = {runner, enroller}},
    {CASE("waiter and callback against publish", 1, 2, GOES_ON, 0, 0, 1), .stale = 1,
     .threads = {runner, enroller, observer_2}},
#ifndef Py_GIL_DISABLED
    {CASE("condition against hand-over", 3, 1, RUNS_DRY, 0, 0, 0),
     .threads = {runner, conditioner}},
    {CASE("callback against hand-over", 3, 1, RUNS_DRY, 0, 1, 0), .threads = {runner, observer_1}},
    {CASE("2 callbacks against hand-over", 2, 2, RUNS_DRY, 0, 1, 1), .stale = 1,
     .threads = {runner, observer_1, observer_2}},
    {CASE("callback and waiter against hand-over", 2, 2, RUNS_DRY, 0, 1, 0), .stale = 1,
     .threads = {runner, observer_1, waiter}},
    {CASE("watch against hand-over", 3, 1, RUNS_DRY, 0, 0, 1), .threads = {runner, collector}},
#endif
    {0},
};
