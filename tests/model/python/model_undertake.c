/* A task that is run by who waits for it, while it stays queued (run.c), against a wait until the
 * pool is quiet, with the queue and the counts that ship (sched/quiet.h): that is over after the
 * run, although the worker that finds the task only drops it.  Without a GIL, which would order the
 * run before the dropping by itself. */
#include "crew.h"

static void setup(void) {
    crew_fails = false;
    crew_begin(0, 1);
    crew_ready();
    int rc =
        ap_pool_new(&(ap_pool_options){.max_workers = 1, .shards = 1, .cpus = 2}, &crew_core->pool);
    MODEL_CHECK(rc == AP_OK);
    model_name(crew_core->pool, "pool");
}

static void submitter(void) {
    ap_pool *pool = crew_core->pool;
    MODEL_CHECK(ap_pool_push(pool, &crew_task->header) == AP_OK);
    MODEL_CHECK(ap_pool_wait_quiet(pool, AP_FOREVER) == AP_OK);
    MODEL_CHECK(crew_runs == 1); /* a plain load: a race if the run came not before */
}

static void inliner(void) {
    crew_attach();
    ap__home = crew_core;
    MODEL_CHECK(ap__task_run_inline(crew_task) >= 0);
    Py_DECREF(crew_task);
    crew_detach();
}

static void worker(void) {
    ap_worker *own;
    MODEL_CHECK(ap_worker_begin(crew_core->pool, &own) == AP_OK);
    do {
        ap_task *task;
        while ((task = ap_worker_take_try(own))) {
            crew_attach();
            task->run(task, own);
            crew_detach();
        }
    } while (ap_worker_park(own) == AP_OK);
}

static bool may_block(void) {
    return model_has_ended(1) && model_has_ended(2);
}

static void finish(void) {
    MODEL_CHECK(crew_runs == 1 && ap_pool_is_quiet(crew_core->pool));
    crew_end(0);
}

#define CASE(title, bound)                                                   \
    .name = title, .setup = setup, .finish = finish, .may_block = may_block, \
    .leaves_memory = true, .preemptions = bound

const model_case model_cases[] = {
    {CASE("inline run against quiet", 2), .both = 3, .threads = {submitter, inliner, worker}},
    {0},
};
