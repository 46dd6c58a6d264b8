/* A claim or a steal of several tasks (worker.c): those that the worker does not start at once are
 * shared, so that one that blocks holds none of them back. */
#include "crew.h"
#include "sync/wait.h"

extern bool model_spins;

/* values: tasks, workers, by a worker's own push (1) or from outside (0), first index */
static ap_atomic_u32 *ended; /* how many tasks */

static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(1),
                                 .shards = (uint32_t)model_value(1),
                                 .ring_slots = 4,
                                 .cpus = 2});
    ended = model_alloc(sizeof *ended);
    model_name(ended, "ended");
}

static void run(ap_task *task, ap_worker *worker) {
    (void)worker;
    crew_run(task);
    int number = (int)((crew_task *)(void *)task - crew_tasks);
    if (number == 0 && model_value(2))
        for (int i = 1; i < model_value(0); i++) {
            crew_task_of(i)->run = run;
            MODEL_CHECK(ap_pool_push(crew_pool, &crew_tasks[i].task) == AP_OK);
        }
    if (number == 0) { /* waits for all others */
        uint32_t seen;
        while ((seen = ap_u32_load_acquire(ended)) + 1 < (uint32_t)model_value(0))
            ap_wait_u32(ended, seen, AP_FOREVER);
    }
    ap_u32_add_acq_rel(ended, 1);
    ap_wake_u32(ended, UINT32_MAX);
}

static void producer(void) {
    ap_task *tasks[CREW_TASKS_MAX];
    int count = model_value(2) ? 1 : model_value(0);
    for (int i = 0; i < count; i++) {
        tasks[i] = crew_task_of(i);
        tasks[i]->run = run;
    }
    MODEL_CHECK(ap_pool_push_batch(crew_pool, tasks, (size_t)count) == AP_OK);
}

static void work(void) {
    ap_worker *worker;
    MODEL_CHECK(ap_worker_begin(crew_pool, &worker) == AP_OK);
    do {
        ap_task *task;
        while ((task = ap_worker_take_try(worker)) || (task = ap_worker_search(worker)))
            task->run(task, worker);
    } while (ap_worker_park(worker) == AP_OK);
}

static bool may_block(void) {
    return crew_have_run(model_value(0));
}

static void finish(void) {
    crew_check_run(model_value(0));
}

#define CASE(title, bound, ...)                                              \
    {.name = title, .setup = setup, .may_block = may_block, .finish = finish, \
     .threads = {producer, work, work}, .leaves_memory = true, .values = {__VA_ARGS__}, \
     .preemptions = bound, .stale = 1}

const model_case model_cases[] = {
    CASE("transfer, a batch of 2, 2 workers", 2, 2, 2, 0),
    CASE("transfer, a batch of 4, 2 workers", 1, 4, 2, 0),
    CASE("transfer, a task pushes 1, 2 workers", 2, 2, 2, 1),
    CASE("transfer, a task pushes 2, 2 workers", 1, 3, 2, 1),
    {0},
};
