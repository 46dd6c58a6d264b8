/* Pushes that leave the waking to one who is awake: a searcher, that wakes the next when it has
 * found a task (ap_idle_search_end), or a lookout, that looks after its nap.  The first task blocks
 * until the others have run, so another worker has to come. */
#include "crew.h"

/* values: tasks, spinning, in order, workers */
static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(3),
                                 .shards = 1,
                                 .in_order = (uint32_t)model_value(2),
                                 .ring_slots = 2,
                                 .cpus = 2},
              model_value(0));
    model_spins = -model_value(1);
}

static void run(ap_task *task, ap_worker *worker) {
    (void)worker;
    crew_run_after(task, task == &crew_tasks[0].task ? (uint32_t)model_value(0) - 1 : 0);
}

static void producer(void) {
    for (int i = 0; i < model_value(0); i++) {
        crew_task_of(i)->run = run;
        MODEL_CHECK(ap_pool_push(crew_pool, &crew_tasks[i].task) == AP_OK);
    }
}

#define CASE(title, bound, ...)                                                               \
    {                                                                                         \
        .name = title, .setup = setup, .may_block = crew_has_run, .finish = crew_check,       \
        .threads = {producer, crew_work, crew_work}, .leaves_memory = true, .preemptions = 2, \
        .both = bound, .values = {                                                            \
            __VA_ARGS__                                                                       \
        }                                                                                     \
    }

const model_case model_cases[] = {
    CASE("relay, 2 tasks, in order", 3, 2, 0, 1, 2),
    CASE("relay, 2 tasks, spinning, in order", 1, 2, 1, 1, 2),
    CASE("relay, 2 tasks, rings", 2, 2, 0, 0, 2),
    {0},
};
