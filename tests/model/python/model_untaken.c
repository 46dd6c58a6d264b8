/* A submit against the end of the last worker thread (untaken.c, and lose_worker in home.c), with
 * the queue that ships: the task is cancelled by one of them, although the queue's slot may be
 * filled later than both have looked at the count of threads. */
#include "crew.h"

#include "python/submit.h"

int model_spins;
bool model_impatient;
_Thread_local ap_core *ap__home;

static ap_core *core;
static ap_core_object *object;
static ap_pytask *tasks[3];
static ap_atomic_u32 cancelled[3];

/* ---- what untaken.c takes from elsewhere ----------------------------------------------------- */

bool ap__task_cancel(ap_pytask *task) {
    int i = 0;
    while (tasks[i] != task)
        i++;
    MODEL_CHECK(ap_u32_add_acq_rel(&cancelled[i], 1) == 0);
    return true;
}

bool ap__task_settle_first(ap_pytask *task, unsigned from, uint32_t to, PyObject *outcome,
                           bool failed, PyObject **callbacks_out) {
    (void)task, (void)from, (void)to, (void)outcome, (void)failed, (void)callbacks_out;
    model_absent();
}

/* ---- the threads ----------------------------------------------------------------------------- */

static void push(int i) {
    MODEL_CHECK(ap_pool_push(core->pool, &tasks[i]->header) == AP_OK);
}

/* values: whether the queue's mark is set already, threads that are left */
static void setup(void) {
    core = model_alloc(sizeof *core);
    object = model_alloc(sizeof *object);
    object->core = core;
    model_name(&core->started, "started");
    int rc = ap_pool_new(&(ap_pool_options){.max_workers = 2, .shards = 1, .cpus = 2}, &core->pool);
    MODEL_CHECK(rc == AP_OK);
    ap_u32_store_relaxed(&core->started, (uint32_t)model_value(1));
    ap_u32_store_relaxed(&core->begun, (uint32_t)model_value(1));
    (void)PyGILState_Ensure();
    for (int i = 0; i < 3; i++) {
        tasks[i] = model_alloc(sizeof *tasks[i]);
        ((PyObject *)tasks[i])->immortal = true;
        ap_u32_store_relaxed(&cancelled[i], 0);
    }
    PyGILState_Release(0);
    if (model_value(0)) {
        push(2);
        MODEL_CHECK(ap_pool_take_try(core->pool) == &tasks[2]->header);
    }
}

static void submit(int i) {
    (void)PyGILState_Ensure();
    push(i);
    if (ap__core_is_stranded(core))
        ap__core_cancel_queued(object);
    PyGILState_Release(0);
}

static void submitter_1(void) {
    submit(0);
}

static void submitter_2(void) {
    submit(1);
}

/* As lose_worker in home.c. */
static void worker_that_ends(void) {
    (void)PyGILState_Ensure();
    uint32_t rest = ap_u32_sub_seq_cst(&core->started, 1) - 1;
    ap__core_trim_promised(object);
    if (!rest)
        ap__core_cancel_queued(object);
    PyGILState_Release(0);
}

static void finish(void) {
    int queued = ap_pool_take_try(core->pool) != NULL;
    model_outcome("%u %u%s", ap_u32_load_relaxed(&cancelled[0]), ap_u32_load_relaxed(&cancelled[1]),
                  queued ? " left" : "");
}

#define CASE(title, bound, ...)                                                                   \
    .name = title, .setup = setup, .finish = finish, .leaves_memory = true, .preemptions = bound, \
    .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("submit against the last worker's end", 3, 1, 1), .outcomes = "1 0",
     .threads = {submitter_1, worker_that_ends}},
    {CASE("submit against the last worker's end, the first of the queue", 3, 0, 1),
     .outcomes = "1 0", .threads = {submitter_1, worker_that_ends}},
    {CASE("2 submits against the last worker's end", 2, 1, 1), .stale = 1, .outcomes = "1 1",
     .threads = {submitter_1, submitter_2, worker_that_ends}},
    {CASE("submit against the end of 2 workers", 2, 1, 2), .stale = 1, .outcomes = "1 0",
     .threads = {submitter_1, worker_that_ends, worker_that_ends}},
    {0},
};
