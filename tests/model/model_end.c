/* Closing against pushing, and the end of a pool (idle.h): whatever is accepted is run, every
 * worker leaves, and the last one frees. */
#include "crew.h"

/* values: tasks of each producer, workers, in order */
static int accepted[2];

static void setup(void) {
    accepted[0] = accepted[1] = 0;
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(1),
                                 .shards = 1,
                                 .in_order = (uint32_t)model_value(2),
                                 .ring_slots = 2,
                                 .cpus = 2});
}

static void push(int producer) {
    for (int i = 0; i < model_value(0); i++) {
        int rc = ap_pool_push(crew_pool, crew_task_of(producer * model_value(0) + i));
        MODEL_CHECK(rc == AP_OK || rc == AP_E_CLOSED);
        accepted[producer] += rc == AP_OK;
    }
}

static void producer_1(void) {
    push(0);
}

static void producer_2(void) {
    push(1);
}

static void closer(void) {
    ap_pool_close(crew_pool);
}

/* Workers have begun, late or not: while something is queued the pool has not ended. */
static void finish(void) {
    for (int producer = 0; producer < 2; producer++)
        for (int i = 0; i < accepted[producer]; i++)
            MODEL_CHECK(crew_tasks[producer * model_value(0) + i].runs == 1);
    crew_free();
}

#define CASE(title, bound, ...)                                                            \
    {                                                                                      \
        .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = { \
            __VA_ARGS__                                                                    \
        }

const model_case model_cases[] = {CASE("end, 1 producer, 1 worker", 2, 2, 1, 0), .both = 3,
                                  .threads = {producer_1, closer, crew_work}},
                 CASE("end, 1 producer, 2 workers", 2, 1, 2, 0), .stale = -1,
                 .threads = {producer_1, closer, crew_work, crew_work}
}
, CASE("end, 1 producer, 2 workers, older loads", 1, 1, 2, 0),
    .stale = 1, .threads = {producer_1, closer, crew_work, crew_work}
}
, CASE("end, 1 producer, 2 workers, in order", 1, 1, 2, 1),
    .stale = 1, .threads = {producer_1, closer, crew_work, crew_work}
}
, CASE("end, 2 producers, 1 worker", 2, 1, 1, 0),
    .both = 2, .threads = {producer_1, producer_2, closer, crew_work}
}
, {0},
}
;
