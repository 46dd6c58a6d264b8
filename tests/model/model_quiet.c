/* Waiting until nothing runs (quiet.h): what was pushed before the call has ended, and its effects
 * are seen; the waiter is woken. */
#include "crew.h"
#include "sync/atomic.h"

/* values: workers, tasks of the waiter, tasks of the other producer, in order, the first task may
 * be run where it is queued: whoever starts it runs it, whoever finds it started drops it; tasks
 * that the first one pushes before it ends */
static ap_atomic_u32 *started;

/* As ap__task_start (run.c) and its caller. */
static void start(ap_task *task) {
    uint32_t state = ap_u32_load_relaxed(started);
    if (state == 0 && ap_u32_cas_acq_rel(started, &state, 1))
        crew_run(task);
    else
        (void)ap_u32_load_acquire(started);
}

static void run(ap_task *task, ap_worker *worker) {
    (void)worker;
    start(task);
}

/* Pushes the tasks that are nobody else's; they may end before it does. */
static void spawn(ap_task *task, ap_worker *worker) {
    (void)worker;
    int first = (int)(model_value(1) + model_value(2));
    for (int i = 0; i < model_value(5); i++)
        MODEL_CHECK(ap_pool_push(crew_pool, crew_task_of(first + i)) == AP_OK);
    crew_run(task);
}

static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = (uint32_t)model_value(0),
                                 .shards = 1,
                                 .in_order = (uint32_t)model_value(3),
                                 .ring_slots = 2,
                                 .cpus = 2},
              model_value(1) + model_value(2) + model_value(5));
    started = model_alloc(sizeof *started);
    model_name(started, "started");
    if (model_value(4))
        crew_task_of(0)->run = run;
    if (model_value(5))
        crew_task_of(0)->run = spawn;
}

static void waiter(void) {
    for (int i = 0; i < model_value(1); i++)
        MODEL_CHECK(ap_pool_push(crew_pool, crew_tasks[i].task.run ? &crew_tasks[i].task
                                                                   : crew_task_of(i)) == AP_OK);
    MODEL_CHECK(ap_pool_wait_quiet(crew_pool, AP_FOREVER) == AP_OK);
    for (int i = 0; i < model_value(1) + model_value(5); i++)
        MODEL_CHECK(crew_tasks[i].runs == 1); /* a plain load: a race if its end came not before */
}

static void producer(void) {
    for (int i = 0; i < model_value(2); i++)
        MODEL_CHECK(ap_pool_push(crew_pool, crew_task_of(model_value(1) + i)) == AP_OK);
}

/* Takes out what it can, runs it, and says so. */
static void taker(void) {
    ap_task *task = ap_pool_take_try(crew_pool);
    if (task) {
        crew_run(task);
        ap_pool_dealt(crew_pool);
    }
}

/* Runs the task where it is queued. */
static void undertaker(void) {
    ap_pool_undertake(crew_pool);
    start(&crew_tasks[0].task);
    ap_pool_dealt(crew_pool);
}

static bool may_block(void) {
    return crew_has_run() && model_has_ended(1);
}

static void finish(void) {
    crew_check();
    MODEL_CHECK(ap_pool_is_quiet(crew_pool));
}

#define CASE(title, bound, together, ...)                                    \
    .name = title, .setup = setup, .may_block = may_block, .finish = finish, \
    .leaves_memory = true, .preemptions = bound, .both = together, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("quiet, 1 worker", 3, 0, 1, 1), .threads = {waiter, crew_work}},
    {CASE("quiet, 1 worker, another producer", 2, 3, 1, 1, 1),
     .threads = {waiter, producer, crew_work}},
    {CASE("quiet, 1 worker, somebody takes out", 2, 3, 1, 1),
     .threads = {waiter, taker, crew_work}},
    {CASE("quiet, 1 worker, somebody undertakes", 2, 3, 1, 1, 0, 0, 1),
     .threads = {waiter, undertaker, crew_work}},
    {CASE("quiet, 2 workers, a task pushes another", 1, 2, 2, 1, 0, 0, 0, 1),
     .threads = {waiter, crew_work, crew_work}},
    {CASE("quiet, 2 workers", 1, 3, 2, 1, 0, 1), .threads = {waiter, crew_work, crew_work}},
    {0},
};
