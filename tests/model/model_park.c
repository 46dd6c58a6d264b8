/* Push against park (idle.h): whatever is pushed is run, whoever is on the way to sleep. */
#include "crew.h"
#include "sync/wait.h"

/* values: tasks of each producer, producers, workers, in order, the thread that spins, napping at
 * once */
static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(2),
                                 .shards = 1,
                                 .in_order = (uint32_t)model_value(3),
                                 .ring_slots = 2,
                                 .cpus = 2},
              model_value(0) * model_value(1));
    model_spins = model_value(4);
    model_impatient = model_value(5);
}

static void push(int producer) {
    for (int i = 0; i < model_value(0); i++)
        MODEL_CHECK(ap_pool_push(crew_pool, crew_task_of(producer * model_value(0) + i)) == AP_OK);
}

static void producer_1(void) {
    push(0);
}

static void producer_2(void) {
    push(1);
}

/* Its second push comes at any time: also when the worker that took the first has had its last look
 * at the queues, and still counts as searching. */
static void napper(void) {
    static ap_atomic_u32 never;
    MODEL_CHECK(ap_pool_push(crew_pool, crew_task_of(0)) == AP_OK);
    MODEL_CHECK(ap_wait_u32(&never, 0, 1) == AP_E_TIMEDOUT);
    MODEL_CHECK(ap_pool_push(crew_pool, crew_task_of(1)) == AP_OK);
}

/* A worker that searches and, when it finds nothing, ends instead of parking. */
static void passer_by(void) {
    ap_worker *worker;
    ap_task *task;
    MODEL_CHECK(ap_worker_begin(crew_pool, &worker) == AP_OK);
    while ((task = ap_worker_search(worker)))
        crew_run(task);
    ap_worker_end(worker);
}

#define CASE(title, ...)                                                            \
    .name = title, .setup = setup, .may_block = crew_has_run, .finish = crew_check, \
    .leaves_memory = true, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("park, 1 producer, 1 worker", 2, 1, 1), .threads = {producer_1, crew_work},
     .preemptions = 3},
    {CASE("park, 2 producers, 1 worker", 1, 2, 1), .threads = {producer_1, producer_2, crew_work},
     .preemptions = 3, .both = 3},
    {CASE("park, 1 producer, 2 workers", 1, 1, 2), .threads = {producer_1, crew_work, crew_work},
     .preemptions = 2, .both = 3},
    {CASE("park, 2 producers, 2 workers", 1, 2, 2),
     .threads = {producer_1, producer_2, crew_work, crew_work}, .preemptions = 1, .stale = 2},
    {CASE("park, 2 producers, 2 workers, in order", 1, 2, 2, 1),
     .threads = {producer_1, producer_2, crew_work, crew_work}, .preemptions = 1, .stale = 1},
    {CASE("park, 1 producer, 1 worker that naps", 2, 1, 1, 0, 0, 1),
     .threads = {producer_1, crew_work}, .preemptions = 3},
    {CASE("park, 2 producers, 1 worker that naps", 1, 2, 1, 0, 0, 1),
     .threads = {producer_1, producer_2, crew_work}, .preemptions = 2, .both = 3},
    {CASE("park, a worker that searches ends", 2, 1, 2, 0, 2),
     .threads = {crew_work, passer_by, napper}, .preemptions = 1, .stale = 1},
    {0},
};
