/* The lock and the waits of a task's `_condition` (condition.c): one has the lock at a time and
 * sees what the last one wrote, and whoever waits goes on when it is let go, or when it is
 * notified. */
#include "crew.h"

/* values: how often each thread takes the lock, what the flag has to come to, seconds that the
 * waiter waits at most (0: for ever) */
static PyObject *condition;
static int inside, total; /* plain: the lock orders them */
static int flag;          /* what the waiter waits for */
static bool timed_out;

static void setup(void) {
    inside = total = flag = 0;
    timed_out = false;
    crew_attach();
    if (!ap__condition_type)
        ap__condition_setup(NULL);
    condition = ap__condition_new();
    model_name(condition, "condition");
    crew_detach();
}

static void finish(void) {
    crew_attach();
    MODEL_CHECK(model_method(condition, "locked", NULL) == Py_False);
    Py_DECREF(condition);
    crew_detach();
    MODEL_CHECK(flag == model_value(1) || timed_out);
    model_outcome("%d%s", total, timed_out ? " timed out" : "");
}

/* What user code does with the lock: others get the interpreter meanwhile. */
static void enter(void) {
    MODEL_CHECK(inside++ == 0);
    total++;
    PyEval_RestoreThread(PyEval_SaveThread());
    MODEL_CHECK(--inside == 0);
}

/* As a task that settles. */
static void settler(void) {
    crew_attach();
    for (int i = 0; i < model_value(0); i++) {
        ap__condition_acquire(condition);
        enter();
        ap__condition_release(condition);
    }
    crew_detach();
}

/* As user code: with a signal handler, and twice. */
static void user(void) {
    crew_attach();
    for (int i = 0; i < model_value(0); i++) {
        MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
        MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
        MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
        enter();
        MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    }
    crew_detach();
}

/* Does not wait for the lock. */
static void glancer(void) {
    crew_attach();
    if (model_method(condition, "acquire", Py_False) == Py_True) {
        enter();
        MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    }
    crew_detach();
}

static void waiter(void) {
    crew_attach();
    PyObject *seconds = model_value(2) ? model_float(model_value(2)) : NULL;
    MODEL_CHECK(model_method(condition, "__enter__", NULL) == Py_True);
    while (flag < model_value(1) && !timed_out) {
        PyObject *notified = model_method(condition, "wait", seconds);
        enter();
        timed_out = notified == Py_False && flag < model_value(1);
    }
    MODEL_CHECK(model_method(condition, "_is_owned", NULL) == Py_True);
    MODEL_CHECK(model_method(condition, "release", NULL) == Py_None);
    Py_XDECREF(seconds);
    crew_detach();
}

static void notifier(void) {
    crew_attach();
    ap__condition_acquire(condition);
    enter();
    flag++;
    ap__condition_notify_all(condition);
    ap__condition_release(condition);
    crew_detach();
}

#define CASE(title, bound, ...) \
    .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("condition, 2 take the lock", 3, 2), .spurious = 1, .threads = {settler, user},
     .outcomes = "4"},
    {CASE("condition, 3 take the lock", 2, 1), .stale = 1, .threads = {settler, user, settler},
     .outcomes = "3"},
    {CASE("condition, one only if it is free", 3, 1), .threads = {settler, glancer},
     .outcomes = "1|2"},
    {CASE("condition, 1 waits", 3, 1, 1), .threads = {waiter, notifier}, .outcomes = "1|2"},
    {CASE("condition, 2 wait", 2, 1, 1), .stale = 1, .threads = {waiter, waiter, notifier},
     .outcomes = "1|2|3"},
    {CASE("condition, 1 waits for 2", 2, 1, 2), .stale = 1, .threads = {waiter, notifier, notifier},
     .outcomes = "2|3|4"},
    {CASE("condition, 1 waits for a time", 2, 1, 1, 1), .threads = {waiter, notifier},
     .outcomes = "1|2|2 timed out"},
    {0},
};
