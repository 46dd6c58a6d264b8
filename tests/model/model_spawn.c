/* A worker that pushes to its own ring and then blocks: another one, on its way to sleep, has to
 * come for the tasks. */
#include "crew.h"

/* values: tasks, at once (1) or one by one (0), slots of the ring: what does not fit goes to the
 * shard */
static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = 2,
                                 .shards = 1,
                                 .ring_slots = (uint32_t)model_value(2),
                                 .cpus = 2},
              model_value(0));
}

static void run(ap_task *task, ap_worker *worker) {
    (void)worker;
    crew_run_after(task, 0);
}

static void spawner(void) {
    ap_worker *worker;
    ap_task *tasks[CREW_TASKS_MAX];
    int count = model_value(0), step = model_value(1) ? count : 1;
    MODEL_CHECK(ap_worker_begin(crew_pool, &worker) == AP_OK);
    for (int i = 0; i < count; i++) {
        tasks[i] = crew_task_of(i);
        tasks[i]->run = run;
    }
    for (int i = 0; i < count; i += step)
        MODEL_CHECK(ap_pool_push_batch(crew_pool, &tasks[i], (size_t)step) == AP_OK);
    crew_wait((uint32_t)count);
}

static bool may_block(void) {
    return crew_has_run() && model_has_ended(1);
}

#define CASE(title, bound, ...)                                                                   \
    {                                                                                             \
        .name = title, .setup = setup, .may_block = may_block, .finish = crew_check,              \
        .threads = {spawner, crew_work}, .leaves_memory = true, .preemptions = bound, .values = { \
            __VA_ARGS__                                                                           \
        }                                                                                         \
    }

const model_case model_cases[] = {
    CASE("spawn, 1 task", 3, 1, 0, 2),
    CASE("spawn, 2 tasks", 2, 2, 0, 2),
    CASE("spawn, 2 tasks at once", 2, 2, 1, 2),
    CASE("spawn, 3 tasks, more than the ring holds", 1, 3, 0, 2),
    {0},
};
