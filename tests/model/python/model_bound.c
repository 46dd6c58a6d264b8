/* max_pending (bound.c): never more places than the bound, but for workers; whoever waits for a
 * place goes on when one is given back, or when the pool is closed. */
#include "crew.h"

/* values: the bound, places that are taken before, places that the leaver gives back, the first
 * submitter is signalled, workers that may go over the bound */
static ap_atomic_u32 places; /* taken, by our own count */
static int answers[2];       /* of the submitters; 0: not there */
static uint32_t most;

static void setup(void) {
    crew_core = model_alloc(sizeof *crew_core);
    crew_core->cpus = 1;
    crew_core->max_pending = (uint32_t)model_value(0);
    most = (uint32_t)(model_value(0) + model_value(4));
    ap__hooks.pending_limit_error = MODEL_PENDING_LIMIT_ERROR;
    ap_u32_store_relaxed(&crew_core->pending, (uint32_t)model_value(1));
    ap_u32_store_relaxed(&places, (uint32_t)model_value(1));
    model_name(&crew_core->pending, "pending");
    model_name(&crew_core->blocked, "blocked");
    model_name(&places, "places");
    for (int i = 0; i < 2; i++)
        answers[i] = 0;
}

/* A place that was taken is counted after, and before it is given back: the count is never too
 * high. */
static void took(void) {
    MODEL_CHECK(ap_u32_add_relaxed(&places, 1) < most);
}

static void give_back(void) {
    ap_u32_sub_relaxed(&places, 1);
    ap__bound_leave(crew_core);
}

static void submit(int i, ap_on_full on_full, bool leaves) {
    crew_attach();
    int answer = ap__bound_enter(crew_core, on_full);
    if (answer == 1) {
        took();
        if (leaves)
            give_back();
    } else if (answer == -2) {
        MODEL_CHECK(PyErr_Occurred() == (on_full == AP_FULL_RAISE ? MODEL_PENDING_LIMIT_ERROR
                                                                  : PyExc_KeyboardInterrupt));
        PyErr_Clear();
    }
    answers[i] = answer;
    crew_detach();
}

static void submitter_1(void) {
    submit(0, AP_FULL_BLOCK, false);
}

static void submitter_2(void) {
    submit(1, AP_FULL_BLOCK, false);
}

/* Their tasks start at once. */
static void passer_1(void) {
    model_signalled = model_value(3);
    submit(0, AP_FULL_BLOCK, true);
}

static void passer_2(void) {
    submit(1, AP_FULL_BLOCK, true);
}

static void raiser(void) {
    submit(1, AP_FULL_RAISE, true);
}

static void leaver(void) {
    crew_attach();
    for (int i = 0; i < model_value(2); i++)
        give_back();
    crew_detach();
}

/* A worker of the pool submits: over the bound. */
static void worker(void) {
    ap__home = crew_core;
    crew_attach();
    int answer = ap__bound_enter(crew_core, AP_FULL_BLOCK);
    if (answer == 1) {
        took();
        give_back();
    }
    crew_detach();
}

/* What is queued at exit is cancelled. */
static void exiter(void) {
    crew_attach();
    ap_u32_store_relaxed(&ap__interpreter_exiting, 1);
    give_back();
    crew_detach();
}

static void closer(void) {
    crew_attach();
    ap__bound_close(crew_core);
    crew_detach();
}

static uint32_t pending(void) {
    return ap_u32_load_relaxed(&crew_core->pending) & 0x7fffffff;
}

static void check_counts(void) {
    MODEL_CHECK(pending() == ap_u32_load_relaxed(&places));
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->blocked) == 0);
    model_free(crew_core);
}

/* Everyone got a place. */
static void finish(void) {
    check_counts();
    for (int i = 0; i < 2; i++)
        MODEL_CHECK(answers[i] >= 0);
}

static void finish_closed(void) {
    check_counts();
    model_outcome("%d %d", answers[0], answers[1]);
}

#define CASE(title, end, bound, ...) \
    .name = title, .setup = setup, .finish = end, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("bound, 1 leaves", finish, 3, 1, 1, 1), .spurious = 1, .threads = {submitter_1, leaver}},
    {CASE("bound, 2 leave", finish, 2, 2, 2, 2), .stale = 1,
     .threads = {submitter_1, submitter_2, leaver}},
    {CASE("bound, one passes through", finish, 2, 1, 1, 1), .stale = 1,
     .threads = {passer_1, passer_2, leaver}},
    {CASE("bound, room for one of two", finish_closed, 3, 1, 0, 0),
     .threads = {submitter_1, raiser}, .outcomes = "1 -2|1 1"},
    {CASE("bound, closed", finish_closed, 3, 1, 1, 1), .threads = {submitter_1, closer},
     .outcomes = "-1 0"},
    {CASE("bound, 1 leaves, closed", finish_closed, 2, 1, 1, 1), .stale = 1,
     .threads = {submitter_1, leaver, closer}, .outcomes = "-1 0|1 0"},
    {CASE("bound, 2 are closed", finish_closed, 2, 1, 1, 1), .stale = 1,
     .threads = {submitter_1, submitter_2, closer}, .outcomes = "-1 -1"},
    {CASE("bound, a signal", finish_closed, 2, 1, 1, 1, 1), .stale = 1, .spurious = 1,
     .threads = {passer_1, passer_2, leaver}, .outcomes = "-2 1|1 1"},
    {CASE("bound, the interpreter exits", finish_closed, 2, 1, 1), .stale = 1,
     .threads = {passer_1, passer_2, exiter}, .outcomes = "-1 -1|1 -1|-1 1|1 1"},
    {CASE("bound, a worker goes over it", finish, 2, 1, 1, 1, 0, 1), .stale = 1,
     .threads = {submitter_1, worker, leaver}},
    {0},
};
