/* A claim or a steal of several tasks (worker.c): those that the worker does not start at once are
 * shared, so that one that blocks holds none of them back. */
#include "crew.h"

/* values: tasks, workers, by a worker's own push (1) or from outside (0) */
static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(1),
                                 .shards = (uint32_t)model_value(1),
                                 .ring_slots = 4,
                                 .cpus = 2},
              model_value(0));
}

static void run(ap_task *task, ap_worker *worker) {
    (void)worker;
    bool first = task == &crew_tasks[0].task;
    for (int i = 1; first && model_value(2) && i < model_value(0); i++) {
        crew_task_of(i)->run = run;
        MODEL_CHECK(ap_pool_push(crew_pool, &crew_tasks[i].task) == AP_OK);
    }
    crew_run_after(task, first ? (uint32_t)model_value(0) - 1 : 0); /* waits for all others */
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

#define CASE(title, bound, ...)                                                         \
    {                                                                                   \
        .name = title, .setup = setup, .may_block = crew_has_run, .finish = crew_check, \
        .threads = {producer, crew_work, crew_work}, .leaves_memory = true,             \
        .values = {__VA_ARGS__}, .preemptions = 2, .both = bound                        \
    }

const model_case model_cases[] = {
    CASE("transfer, a batch of 2, 2 workers", 2, 2, 2, 0),
    CASE("transfer, a batch of 4, 2 workers", 2, 4, 2, 0),
    CASE("transfer, a task pushes 1, 2 workers", 2, 2, 2, 1),
    CASE("transfer, a task pushes 2, 2 workers", 2, 3, 2, 1),
    {0},
};
