/* Waiting until nothing is queued and nothing runs. */
#include "crew.h"
#include "sync/clock.h"
#include "sync/cpu.h"

#define SECOND 1000000000u

/* A task that stays until it is let go, or spawns children. */
typedef struct job {
    ap_task task;
    ap_pool *pool;
    ap_atomic_u32 *gate; /* NULL: does not wait */
    uint32_t children;
    struct job *spawned;
    ap_atomic_u64 *ended;
} job;

static void job_run(ap_task *task, ap_worker *worker) {
    job *self = (job *)(void *)task;
    (void)worker;
    for (uint32_t i = 0; i < self->children; i++)
        CHECK(ap_pool_push(self->pool, &self->spawned[i].task) == AP_OK);
    while (self->gate && ap_u32_load_acquire(self->gate) == 0)
        ap_cpu_yield();
    ap_u64_add_acq_rel(self->ended, 1);
}

static job *jobs_new(size_t count, ap_pool *pool, ap_atomic_u64 *ended) {
    job *jobs = calloc(count, sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        jobs[i].task.run = job_run;
        jobs[i].pool = pool;
        jobs[i].ended = ended;
    }
    return jobs;
}

TEST(quiet, a_new_pool_is, 5) {
    ap_pool *pool;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    CHECK(ap_pool_is_quiet(pool));
    CHECK(check_wait_quiet(pool, AP_FOREVER) == AP_OK);
    ap_pool_release(pool);
}

TEST(quiet, not_while_a_task_runs, 10) {
    crew c = {.no_search = false};
    crew_start(&c, &(ap_pool_options){.max_workers = 2}, 2);
    ap_atomic_u64 ended = {0};
    ap_atomic_u32 gate = {0};
    job *jobs = jobs_new(1, c.pool, &ended);
    jobs[0].gate = &gate;
    CHECK(ap_pool_push(c.pool, &jobs[0].task) == AP_OK);
    CHECK(!ap_pool_is_quiet(c.pool));
    CHECK(check_wait_quiet(c.pool, ap_clock_after(20000000)) == AP_E_TIMEDOUT);
    ap_u32_store_release(&gate, 1);
    CHECK(check_wait_quiet(c.pool, ap_clock_after(5ull * SECOND)) == AP_OK);
    CHECK_EQ(ap_u64_load_acquire(&ended), 1);
    crew_stop(&c);
    free(jobs);
}

TEST(quiet, outside_takers_count, 5) {
    ap_pool *pool;
    ap_worker *worker;
    ap_atomic_u64 ended = {0};
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    job *jobs = jobs_new(3, pool, &ended);
    for (int i = 0; i < 3; i++)
        CHECK(ap_pool_push(pool, &jobs[i].task) == AP_OK);
    CHECK(ap_pool_take_try(pool) == &jobs[0].task);
    CHECK(ap_pool_take_try(pool) == &jobs[1].task);
    ap_pool_dealt(pool);
    CHECK(!ap_pool_is_quiet(pool));
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    ap_worker_adopt(worker); /* runs jobs[1] */
    CHECK(ap_worker_take_try(worker) == &jobs[2].task);
    ap_worker_disown(worker); /* leaves it */
    ap_worker_end(worker);
    CHECK(!ap_pool_is_quiet(pool));
    ap_pool_dealt(pool);
    CHECK(ap_pool_is_quiet(pool));
    ap_pool_release(pool);
    free(jobs);
}

TEST(quiet, a_task_that_runs_while_it_stays_queued_counts_twice, 5) {
    ap_pool *pool;
    ap_worker *worker;
    ap_atomic_u64 ended = {0};
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    job *jobs = jobs_new(1, pool, &ended);
    CHECK(ap_pool_push(pool, &jobs[0].task) == AP_OK);
    ap_pool_undertake(pool); /* we run it here */
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    CHECK(ap_worker_take_try(worker) == &jobs[0].task);
    ap_worker_end(worker); /* has dropped it, as it was started */
    CHECK(!ap_pool_is_quiet(pool));
    CHECK(check_wait_quiet(pool, ap_clock_after(1000000)) == AP_E_TIMEDOUT);
    ap_pool_dealt(pool); /* it has ended */
    CHECK(ap_pool_is_quiet(pool));
    ap_pool_release(pool);
    free(jobs);
}

/* Tasks that spawn; each wait comes back, and finds all that was pushed before it ended. */
TEST(quiet, all_that_was_pushed_has_ended, 60) {
    enum { FAN = 4 };
    crew c = {.no_search = true};
    crew_start(&c, &(ap_pool_options){.max_workers = 3}, 3);
    ap_atomic_u64 ended = {0};
    uint64_t rounds = check_scale(20000);
    job *jobs = jobs_new(1 + FAN + FAN, c.pool, &ended);
    for (int i = 0; i <= FAN; i++) {
        jobs[i].children = i == 0 ? FAN : 1;
        jobs[i].spawned = i == 0 ? &jobs[1] : &jobs[FAN + i];
    }
    for (uint64_t round = 1; round <= rounds; round++) {
        CHECK(ap_pool_push(c.pool, &jobs[0].task) == AP_OK);
        CHECK(check_wait_quiet(c.pool, AP_FOREVER) == AP_OK);
        CHECK_EQ(ap_u64_load_acquire(&ended), round * (1 + FAN + FAN));
    }
    crew_stop(&c);
    free(jobs);
}

static void *wait_often(void *argument) {
    crew *c = argument;
    for (uint64_t round = 0; round < check_scale(5000); round++)
        CHECK(check_wait_quiet(c->pool, AP_FOREVER) == AP_OK);
    return NULL;
}

/* Several that wait while another pushes with pauses: nobody is forgotten. */
TEST(quiet, many_waiters, 60) {
    crew c = {.no_search = false};
    crew_start(&c, &(ap_pool_options){.max_workers = 2}, 2);
    ap_atomic_u64 ended = {0};
    uint64_t count = check_scale(20000);
    job *jobs = jobs_new(count, c.pool, &ended);
    pthread_t waiters[3];
    for (int i = 0; i < 3; i++)
        waiters[i] = check_thread(wait_often, &c);
    uint32_t random = 7;
    for (uint64_t i = 0; i < count; i++) {
        CHECK(ap_pool_push(c.pool, &jobs[i].task) == AP_OK);
        if (check_random(&random) % 8 == 0)
            check_pause_ns(check_random(&random) % 100000);
    }
    for (int i = 0; i < 3; i++)
        check_join(waiters[i]);
    CHECK(check_wait_quiet(c.pool, AP_FOREVER) == AP_OK);
    CHECK_EQ(ap_u64_load_acquire(&ended), count);
    crew_stop(&c);
    free(jobs);
}
