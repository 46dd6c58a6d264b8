/* Several that try to move a task out of PENDING (run.c, observe.c, future.c): one of them does.
 * And the outcome set from outside against the run. */
#include "crew.h"

/* values: references, a bound on pending tasks, the runner has the last task of its queue,
 * references that nobody drops (the queue's, without a runner), a thread takes the call */
static int cancels, takes, starts, settings; /* that succeeded; written attached, or by one */
static PyObject *set_to;

static void setup(void) {
    cancels = takes = starts = settings = 0;
    crew_fails = false;
    crew_begin((uint32_t)model_value(1), model_value(0));
    set_to = model_object();
    model_name(set_to, "set_to");
    crew_ready();
}

static void runner(void) {
    crew_attach();
    if (model_value(2))
        crew_work_dry(crew_task);
    else
        crew_work_on(crew_task);
    crew_detach();
}

static void canceller(void) {
    crew_attach();
    bool cancelled = crew_is(crew_task, "cancel");
    MODEL_CHECK(cancelled == crew_is(crew_task, "cancelled"));
    MODEL_CHECK(!cancelled || crew_is(crew_task, "done"));
    cancels += cancelled;
    if (cancelled && !model_value(4)) /* else the taker perhaps takes it out just now */
        MODEL_CHECK(!crew_task->fn && !crew_task->args);
    Py_DECREF(crew_task);
    crew_detach();
}

/* Two of them: both are told that it is cancelled. */
static void co_canceller(void) {
    crew_attach();
    bool cancelled = crew_is(crew_task, "cancel");
    MODEL_CHECK(cancelled == crew_is(crew_task, "cancelled"));
    Py_DECREF(crew_task);
    crew_detach();
}

static void waiter(void) {
    crew_attach();
    crew_got got = crew_ask(crew_task, -1);
    MODEL_CHECK(got == GOT_RESULT || got == GOT_CANCELLED);
    Py_DECREF(crew_task);
    crew_detach();
}

/* A worker of the pool, in another task, that waits for this one. */
static void inline_waiter(void) {
    ap__home = crew_core;
    waiter();
}

/* _work_queue.get: then the call is its own to make. */
static void taker(void) {
    crew_attach();
    PyObject *call = model_method((PyObject *)crew_task, "_take_call", NULL);
    if (call != Py_None) {
        takes++;
        MODEL_CHECK(PyTuple_GET_SIZE(call) == 3);
    }
    Py_DECREF(call);
    Py_DECREF(crew_task);
    crew_detach();
}

static void starter(void) {
    crew_attach();
    PyObject *result = model_method((PyObject *)crew_task, "set_running_or_notify_cancel", NULL);
    if (result == Py_True)
        starts++;
    if (!result)
        PyErr_Clear(); /* it runs already */
    Py_DECREF(crew_task);
    crew_detach();
}

static void set(bool waits) {
    crew_attach();
    PyObject *none = model_method((PyObject *)crew_task, "set_result", set_to);
    if (none)
        settings++;
    else
        MODEL_CHECK(PyErr_Occurred() == MODEL_INVALID_STATE_ERROR);
    PyErr_Clear();
    if (waits) {
        PyObject *result = model_method((PyObject *)crew_task, "result", NULL);
        MODEL_CHECK(result == (none ? set_to : crew_result));
        Py_DECREF(result);
    }
    Py_DECREF(crew_task);
    crew_detach();
}

static void setter(void) {
    set(false);
}

static void setter_and_reader(void) {
    set(true);
}

/* Waits for whatever outcome; reads the same one again later. */
static void reader(void) {
    crew_attach();
    PyObject *first = model_method((PyObject *)crew_task, "result", NULL);
    MODEL_CHECK(first == set_to || (crew_runs == 1 && first == crew_result));
    PyObject *again = model_method((PyObject *)crew_task, "result", NULL);
    MODEL_CHECK(first == again);
    Py_DECREF(first);
    Py_DECREF(again);
    Py_DECREF(crew_task);
    crew_detach();
}

/* One of them; but a task may be cancelled or set from outside after its call was taken, and set
 * while it runs. */
static void finish(void) {
    MODEL_CHECK(crew_runs + cancels + starts <= 1 && crew_runs + takes + starts <= 1);
    MODEL_CHECK(cancels + settings <= 1);
    MODEL_CHECK(crew_runs + cancels + takes + starts + settings >= 1);
    crew_attach();
    Py_DECREF(set_to);
    crew_detach();
    crew_end(model_value(3));
    model_outcome("%s", settings    ? crew_runs ? "set late" : "set"
                        : crew_runs ? "run"
                        : cancels   ? takes ? "taken, cancelled" : "cancelled"
                                    : "started");
}

/* Two that cancel: they count as one. */
static void finish_of_two(void) {
    crew_attach();
    MODEL_CHECK(crew_runs <= 1);
    Py_DECREF(set_to);
    crew_detach();
    crew_end(0);
    model_outcome("%s", crew_runs ? "run" : "cancelled");
}

#define CASE_(title, end, bound, ...) \
    .name = title, .setup = setup, .finish = end, .preemptions = bound, .values = {__VA_ARGS__}
#define CASE(title, bound, ...) CASE_(title, finish, bound, __VA_ARGS__)

const model_case model_cases[] = {
    {CASE("cancel against start", 3, 1), .threads = {runner, canceller},
     .outcomes = "run|cancelled"},
    {CASE("cancel against start, bounded", 3, 1, 1), .threads = {runner, canceller},
     .outcomes = "run|cancelled"},
    {CASE("cancel against start, a waiter", 2, 2), .stale = 1,
     .threads = {runner, canceller, waiter}, .outcomes = "run|cancelled"},
    {CASE("cancel against start, handed over", 2, 2, 0, 1), .stale = 1,
     .threads = {runner, canceller, waiter}, .outcomes = "run|cancelled"},
    {CASE("cancel against inline run", 2, 2), .stale = 1,
     .threads = {runner, canceller, inline_waiter}, .outcomes = "run|cancelled"},
    {CASE("start against inline run", 3, 1, 1), .threads = {runner, inline_waiter},
     .outcomes = "run"},
    {CASE("start against inline run, handed over", 3, 1, 1, 1), .threads = {runner, inline_waiter},
     .outcomes = "run"},
    {CASE_("two cancels against start", finish_of_two, 2, 2, 1), .stale = 1,
     .threads = {runner, co_canceller, co_canceller}, .outcomes = "run|cancelled"},
    {CASE("taking the call against start and cancel", 2, 2, 1, 0, 0, 1), .stale = 1,
     .threads = {runner, canceller, taker}, .outcomes = "run|cancelled|taken, cancelled"},
    {CASE("set_running against start", 3, 1, 1), .threads = {runner, starter},
     .outcomes = "run|started"},
    {CASE("set_running against cancel", 3, 2, 1, 0, 1), .threads = {canceller, starter},
     .outcomes = "cancelled|started"},
    {CASE("set_result against start", 2, 1, 1), .threads = {runner, setter_and_reader},
     .outcomes = "run|set|set late"},
    {CASE("set_result against start, handed over", 2, 1, 1, 1),
     .threads = {runner, setter_and_reader}, .outcomes = "run|set|set late"},
    {CASE("set_result against start, a reader", 2, 2), .stale = 1,
     .threads = {runner, setter, reader}, .outcomes = "run|set|set late"},
    {CASE("set_result against cancel", 3, 2, 1, 0, 1), .threads = {canceller, setter},
     .outcomes = "cancelled|set"},
    {0},
};
