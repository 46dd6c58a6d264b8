/* The injector (injector.h) and its blocks (block.h): pushes and claims over the ends of blocks,
 * which are recycled; closing. */
#include "crew.h"
#include "sched/injector.h"

/* values: pushes of each producer, tasks of each push, claims of each consumer, at most so many at
 * once, closed meanwhile */
static ap_injector *injector;
static ap_block_store *store;
static int accepted[2], before; /* tasks pushed */

static void setup(void) {
    store = model_alloc(sizeof *store);
    injector = model_alloc(sizeof *injector);
    crew_tasks = model_alloc(CREW_TASKS_MAX * sizeof *crew_tasks);
    MODEL_CHECK(ap_injector_init(injector, store, UINT64_MAX / 4 + 1 - (AP_BLOCK_SLOTS + 1)) ==
                AP_OK);
    model_name(crew_tasks, "tasks");
    model_name(store, "store");
    model_name(&injector->head, "head");
    model_name(&injector->tail, "tail");
    model_name(&injector->spare, "spare");
    accepted[0] = accepted[1] = 0;
    before = model_value(5) == 2 ? AP_BLOCK_SLOTS : 0;
    for (int i = 0; i < before; i++) {
        ap_task *out, *task = crew_task_of(CREW_TASKS_MAX - 1 - i);
        bool moved;
        MODEL_CHECK(ap_injector_push(injector, &task, 1) == AP_OK);
        MODEL_CHECK(ap_injector_claim_try(injector, &out, 1, false, &moved) == 1 && out == task);
    }
}

static void push(int producer) {
    int count = model_value(1), first = producer * model_value(0) * count;
    for (int i = 0; i < model_value(0); i++) {
        ap_task *tasks[CREW_TASKS_MAX];
        for (int j = 0; j < count; j++)
            tasks[j] = crew_task_of(first + i * count + j);
        int rc = ap_injector_push(injector, tasks, (size_t)count);
        MODEL_CHECK(rc == AP_OK || (rc == AP_E_CLOSED && model_value(4)) ||
                    (rc == AP_E_NOMEM && model_value(5)));
        if (rc == AP_OK)
            accepted[producer] += count;
    }
}

static void producer_1(void) {
    push(0);
}

static void producer_2(void) {
    push(1);
}

static void claim(void) {
    ap_task *out[AP_CLAIM_MAX];
    bool moved;
    uint32_t n = ap_injector_claim_try(injector, out, (uint32_t)model_value(3), false, &moved);
    for (uint32_t i = 0; i < n; i++)
        crew_run(out[i]);
}

static void consumer(void) {
    for (int i = 0; i < model_value(2); i++)
        claim();
}

static void once(void) {
    claim();
}

static void closer(void) {
    ap_injector_close(injector);
}

static void finish(void) {
    int all = CREW_TASKS_MAX;
    for (int i = 0; i < all; i++)
        claim();
    MODEL_CHECK(ap_injector_look(injector) == AP_QUEUE_EMPTY);
    MODEL_CHECK(ap_injector_pushed(injector) == (uint64_t)(before + accepted[0] + accepted[1]));
    for (int producer = 0; producer < 2; producer++)
        for (int i = 0; accepted[producer] && i < model_value(0) * model_value(1); i++) {
            uint64_t runs = crew_tasks[producer * model_value(0) * model_value(1) + i].runs;
            MODEL_CHECK(runs == (i < accepted[producer]));
        }
    ap_injector_destroy(injector);
    ap_block_store_destroy(store);
    model_free(injector);
    model_free(store);
    model_free(crew_tasks);
}

#define CASE(title, bound, ...) \
    .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("injector, 1 producer, 1 consumer", 3, 4, 1, 3, 2), .threads = {producer_1, consumer}},
    {CASE("injector, 1 producer, 2 consumers", 2, 3, 1, 2, 2), .stale = 1,
     .threads = {producer_1, consumer, consumer}},
    {CASE("injector, 2 producers", 3, 2, 1, 0, 1), .threads = {producer_1, producer_2}},
    {CASE("injector, 2 producers, 1 consumer", 2, 2, 1, 2, 2), .stale = 1,
     .threads = {producer_1, producer_2, consumer}},
    {CASE("injector, a batch over blocks, 2 consumers", 2, 1, 5, 2, 2), .stale = 1,
     .threads = {producer_1, consumer, consumer}},
    {CASE("injector, closed during two pushes", 2, 2, 2, 1, 2, 1), .stale = 1,
     .threads = {producer_1, producer_2, closer}},
    {CASE("injector, blocks come back, 1 consumer", 2, 8, 1, 4, 3), .both = 2,
     .threads = {producer_1, consumer}},
    {CASE("injector, blocks come back, 2 consumers", 2, 6, 1, 5, 2), .both = 3,
     .threads = {producer_1, once, consumer}},
    {CASE("injector, a block comes back and is filled", 1, 7, 1, 2, 2), .stale = 1,
     .threads = {producer_1, consumer, once}},
    {CASE("injector, 2 producers want the block at hand", 3, 1, 3, 0, 1, 0, 2),
     .threads = {producer_1, producer_2}},
    {CASE("injector, memory runs out", 2, 1, 7, 2, 2, 0, 1), .failures = 1, .stale = 1,
     .threads = {producer_1, consumer}},
    {0},
};
