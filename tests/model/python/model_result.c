/* A result published against those who wait for it (run.c, block.c), and handed over by a worker
 * that lets go of the interpreter first. */
#include "crew.h"

/* values: how the runner ends, waiters, timeout in us (0: none), the call fails, waiters spin */
enum { GOES_ON, RUNS_DRY };

static int got[GOT_OTHER + 1];

static void setup(void) {
    for (int i = 0; i <= GOT_OTHER; i++)
        got[i] = 0;
    crew_fails = model_value(3);
    crew_begin(0, model_value(1));
    if (model_value(4)) {
        crew_core->cpus = 2;
        ap_u32_store_relaxed(&crew_core->spin_credit, 4);
    }
    crew_ready();
}

static void runner(void) {
    crew_attach();
    if (model_value(0) == GOES_ON)
        crew_work_on(crew_task);
    else
        crew_work_dry(crew_task);
    crew_detach();
}

static void waiter(void) {
    crew_attach();
    crew_got what = crew_ask(crew_task, model_value(2) ? model_value(2) * 1e-6 : -1);
    MODEL_CHECK(what == (crew_fails ? GOT_ERROR : GOT_RESULT) ||
                (what == GOT_TIMEOUT && model_value(2)));
    Py_DECREF(crew_task);
    crew_detach();
    if (model_value(1) == 1)
        got[what]++;
}

/* Looks once, and lets go. */
static void glancer(void) {
    crew_attach();
    if (crew_is(crew_task, "done"))
        MODEL_CHECK(crew_ask(crew_task, -1) == GOT_RESULT);
    Py_DECREF(crew_task);
    crew_detach();
}

static void finish(void) {
    MODEL_CHECK(crew_runs == 1);
    crew_end(0);
    if (model_value(2))
        model_outcome("%s", got[GOT_TIMEOUT] ? "timeout" : "result");
}

#define CASE(title, bound, ...) \
    .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("result, 1 waiter", 3, GOES_ON, 1), .spurious = 1, .threads = {runner, waiter}},
    {CASE("result, 2 waiters", 2, GOES_ON, 2), .stale = 1, .threads = {runner, waiter, waiter}},
    {CASE("result, a deadline", 3, GOES_ON, 1, 30), .threads = {runner, waiter},
     .outcomes = "result|timeout"},
    {CASE("result, the call raises", 3, GOES_ON, 1, 0, 1), .threads = {runner, waiter}},
    {CASE("result, the waiter spins", 2, GOES_ON, 1, 0, 0, 1), .threads = {runner, waiter}},
    {CASE("result, a glance", 3, GOES_ON, 1), .threads = {runner, glancer}},
    {CASE("result, a glance and a waiter", 2, GOES_ON, 2), .stale = 1,
     .threads = {runner, glancer, waiter}},
#ifndef Py_GIL_DISABLED
    {CASE("hand-over, 1 waiter", 3, RUNS_DRY, 1), .spurious = 1, .threads = {runner, waiter}},
    {CASE("hand-over, 2 waiters", 2, RUNS_DRY, 2), .stale = 1, .threads = {runner, waiter, waiter}},
    {CASE("hand-over, a deadline", 3, RUNS_DRY, 1, 30), .threads = {runner, waiter},
     .outcomes = "result|timeout"},
    {CASE("hand-over, the call raises", 3, RUNS_DRY, 1, 0, 1), .threads = {runner, waiter}},
    {CASE("hand-over, a glance", 3, RUNS_DRY, 1), .threads = {runner, glancer}},
    {CASE("hand-over, a glance and a waiter", 2, RUNS_DRY, 2), .stale = 1,
     .threads = {runner, glancer, waiter}},
#endif
    {0},
};
