/* Closing against pushing, and the end of a pool (idle.h): whatever is accepted is run, every
 * worker leaves, and the last one frees: perhaps a worker that holds the pool by its beginning
 * only. */
#include "crew.h"

/* values: tasks of each producer, workers, in order, threads: each holds a reference to the pool,
 * napping at once */
static int accepted[2];

static void setup(void) {
    accepted[0] = accepted[1] = 0;
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(1),
                                 .shards = 1,
                                 .in_order = (uint32_t)model_value(2),
                                 .ring_slots = 2,
                                 .cpus = 2},
              0);
    model_impatient = model_value(4);
    for (int i = 1; i < model_value(3); i++)
        ap_pool_retain(crew_pool);
}

static void push(int producer) {
    for (int i = 0; i < model_value(0); i++) {
        int rc = ap_pool_push(crew_pool, crew_task_of(producer * model_value(0) + i));
        MODEL_CHECK(rc == AP_OK || rc == AP_E_CLOSED);
        accepted[producer] += rc == AP_OK;
    }
    ap_pool_release(crew_pool);
}

static void producer_1(void) {
    push(0);
}

static void producer_2(void) {
    push(1);
}

static void closer(void) {
    ap_pool_close(crew_pool);
    ap_pool_release(crew_pool);
}

/* The first task waits for the second: until both have run, another worker has to be there. */
static void run(ap_task *task, ap_worker *unused) {
    (void)unused;
    crew_run_after(task, task == &crew_tasks[0].task);
}

static void producer_and_closer(void) {
    ap_task *tasks[2] = {crew_task_of(0), crew_task_of(1)};
    tasks[0]->run = tasks[1]->run = run;
    MODEL_CHECK(ap_pool_push_batch(crew_pool, tasks, 2) == AP_OK);
    accepted[0] = 2;
    closer();
}

static void worker(void) {
    crew_work();
    ap_pool_release(crew_pool);
}

/* Has let go of the pool before it ends: the reference of its beginning may be the last. */
static void worker_that_lets_go(void) {
    ap_worker *worker;
    int rc = ap_worker_begin(crew_pool, &worker);
    ap_pool_release(crew_pool);
    if (rc == AP_OK)
        crew_work_on(worker);
}

/* Workers have begun, late or not: while something is queued the pool has not ended. */
static void finish(void) {
    for (int producer = 0; producer < 2; producer++)
        for (int i = 0; i < accepted[producer]; i++)
            MODEL_CHECK(crew_tasks[producer * model_value(0) + i].runs == 1);
    crew_free_tasks(); /* the last to release has freed the pool */
}

#define CASE(title, bound, ...) \
    .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("end, 1 producer, 1 worker", 2, 2, 1, 0, 3), .both = 3,
     .threads = {producer_1, closer, worker}},
    {CASE("end, 1 producer, 1 worker that naps", 2, 2, 1, 0, 3, 1), .both = 3,
     .threads = {producer_1, closer, worker}},
    {CASE("end, a worker has let go of the pool", 2, 1, 1, 0, 3), .both = 3,
     .threads = {producer_1, closer, worker_that_lets_go}},
    {CASE("end, 1 producer, 2 workers", 2, 1, 2, 0, 4), .stale = -1,
     .threads = {producer_1, closer, worker, worker}},
    {CASE("end, 1 producer, 2 workers, older loads", 1, 1, 2, 0, 4), .stale = 1,
     .threads = {producer_1, closer, worker, worker}},
    {CASE("end, 1 producer, 2 workers, in order", 1, 1, 2, 1, 4), .stale = 1,
     .threads = {producer_1, closer, worker, worker}},
    {CASE("end, a task that waits for another", 2, 2, 2, 0, 3), .stale = -1,
     .threads = {producer_and_closer, worker, worker}},
    {CASE("end, 2 producers, 1 worker", 2, 1, 1, 0, 4), .both = 2,
     .threads = {producer_1, producer_2, closer, worker}},
    {0},
};
