/* Whoever gives a place of a bounded pool back, against the end of the pool, whose core serves the
 * next one (bound.c, and core_dealloc in core.c): the place goes to the old one, and once.  Without
 * a GIL; with one they are one step. */
#include "crew.h"

static int moved; /* as it was told: out of PENDING, by who holds the task */
static PyObject *set_to;

static void setup(void) {
    moved = 0;
    crew_fails = false;
    crew_begin(1, 1);
    set_to = model_object();
    crew_ready();
}

static void drop(void) {
    Py_DECREF(crew_task);
    crew_detach();
}

static void canceller(void) {
    crew_attach();
    moved = crew_is(crew_task, "cancel");
    drop();
}

static void taker(void) {
    crew_attach();
    PyObject *call = model_method((PyObject *)crew_task, "_take_call", NULL);
    moved = call != Py_None;
    Py_DECREF(call);
    drop();
}

static void runner(void) {
    crew_attach();
    PyObject *is_ours = model_method((PyObject *)crew_task, "set_running_or_notify_cancel", NULL);
    moved = is_ours == Py_True;
    drop();
}

static void setter(void) {
    crew_attach();
    PyObject *none = model_method((PyObject *)crew_task, "set_result", set_to);
    moved = none != NULL;
    if (!none)
        PyErr_Clear();
    drop();
}

/* As core_dealloc with one task in the queue, core_acquire and core_new. */
static void next_pool(void) {
    crew_attach();
    (void)ap__task_cancel(crew_task);
    Py_DECREF(crew_task);
    while (ap_u32_load_seq_cst(&crew_core->pins))
        ap_cpu_yield();
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->pending) == 0); /* of the old one */
    crew_core->generation++;
    crew_core->max_pending = 2;
    ap_u32_store_relaxed(&crew_core->pending, 1);
    ap_u32_store_relaxed(&crew_core->blocked, 1); /* so that whoever leaves looks at the bound */
    crew_detach();
}

static void finish(void) {
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->pending) == 1);
    ap_u32_store_relaxed(&crew_core->pending, 0);
    crew_attach();
    Py_DECREF(set_to);
    crew_detach();
    crew_end(0);
    model_outcome("%d", moved);
}

#define CASE(title, thread, seen)                                                               \
    {                                                                                           \
        .name = "next pool against " title, .setup = setup, .finish = finish, .preemptions = 3, \
        .threads = {thread, next_pool}, .outcomes = seen                                        \
    }

const model_case model_cases[] = {
    CASE("cancel", canceller, "1"), /* also who comes second is told so */
    CASE("taking the call", taker, "0|1"), CASE("set_running", runner, "0|1"),
    CASE("set_result", setter, "0|1"),     {0},
};
