/* csrc/sched/pool and worker: what a user of the core relies on. */
#include <string.h>

#include "check.h"
#include "crew.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/memory.h"

typedef struct job {
    ap_task task;
    ap_pool *pool;
    uint32_t number;
    uint32_t children;
    struct job *child;
    ap_atomic_u32 runs;
} job;

static void job_run(ap_task *task, ap_worker *worker) {
    job *j = (job *)task;
    CHECK(ap_worker_current() == worker);
    CHECK_EQ(ap_u32_add_relaxed(&j->runs, 1), 0);
    for (uint32_t i = 0; i < j->children; i++)
        CHECK(ap_pool_push(j->pool, &j->child[i].task) == AP_OK);
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

static job *jobs_new(uint64_t n, ap_pool *pool) {
    job *jobs = calloc(n, sizeof *jobs);
    CHECK(jobs != NULL);
    for (uint64_t i = 0; i < n; i++) {
        jobs[i].task.run = job_run;
        jobs[i].pool = pool;
        jobs[i].number = (uint32_t)i;
    }
    return jobs;
}

/* ---- options ----------------------------------------------------------------------------- */

static uint32_t shards_of(uint32_t workers, uint32_t shards, uint32_t cpus) {
    ap_pool *pool;
    ap_pool_stats s;
    ap_pool_options options = {.max_workers = workers, .shards = shards, .cpus = cpus};
    CHECK(ap_pool_new(&options, &pool) == AP_OK);
    ap_pool_read_stats(pool, &s);
    CHECK_EQ(s.max_workers, workers);
    ap_pool_release(pool);
    return s.shards;
}

TEST(pool, options, 10) {
    ap_pool *pool = NULL;
    static const ap_pool_options bad[] = {
        {.max_workers = 0},
        {.max_workers = AP_MAX_WORKERS + 1},
        {.max_workers = 1, .shards = AP_MAX_SHARDS + 1},
        {.max_workers = 1, .ring_slots = 1},
        {.max_workers = 1, .ring_slots = 3},
        {.max_workers = 1, .ring_slots = 512},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(ap_pool_new(&bad[i], &pool) == AP_E_INVALID);
    CHECK_EQ(shards_of(1, 0, 64), 1);
    CHECK_EQ(shards_of(3, 0, 64), 4);
    CHECK_EQ(shards_of(8, 0, 64), 8);
    CHECK_EQ(shards_of(512, 0, 64), 8);
    CHECK_EQ(shards_of(512, 0, 6), 4);
    CHECK_EQ(shards_of(512, 0, 1), 1);
    CHECK_EQ(shards_of(512, 300, 1), 512);
    CHECK_EQ(shards_of(8, 3, 2), 4);
    CHECK_EQ(shards_of(3, 16, 2), 2);
    CHECK_EQ(shards_of(1, 16, 2), 1);
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, slots_are_finite_and_reused, 10) {
    ap_pool *pool;
    ap_worker *workers[AP_MAX_WORKERS];
    ap_worker *more;
    ap_pool_options options = {.max_workers = AP_MAX_WORKERS};
    CHECK(ap_pool_new(&options, &pool) == AP_OK);
    for (uint32_t i = 0; i < AP_MAX_WORKERS; i++) {
        CHECK(ap_worker_begin(pool, &workers[i]) == AP_OK);
        CHECK_EQ(ap_worker_index(workers[i]), i);
    }
    CHECK(ap_worker_begin(pool, &more) == AP_E_FULL);
    for (uint32_t i = 0; i < AP_MAX_WORKERS; i++)
        ap_worker_end(workers[AP_MAX_WORKERS - 1 - i]);
    CHECK(ap_worker_current() == NULL);
    uint64_t asked = ap_memory_asked();
    CHECK(ap_worker_begin(pool, &workers[0]) == AP_OK);
    CHECK_EQ(ap_memory_asked(), asked);
    ap_worker_end(workers[0]);
    ap_pool_release(pool);
    CHECK_EQ(ap_memory_live(), 0);
}

/* ---- exactly once ------------------------------------------------------------------------ */

typedef struct producer {
    ap_pool *pool;
    job *jobs;
    uint64_t count;
    uint64_t accepted;
    uint32_t random;
    bool batches;
    pthread_t thread;
} producer;

/* Owns a reference to the pool: it may outlive the workers. */
static void *produce(void *argument) {
    producer *p = argument;
    uint64_t i = 0;

    while (i < p->count) {
        ap_task *batch[200];
        uint64_t n = p->batches ? 1 + check_random(&p->random) % 200 : 1;
        if (n > p->count - i)
            n = p->count - i;
        for (uint64_t k = 0; k < n; k++)
            batch[k] = &p->jobs[i + k].task;
        int rc =
            p->batches ? ap_pool_push_batch(p->pool, batch, n) : ap_pool_push(p->pool, batch[0]);
        if (rc == AP_E_CLOSED)
            break;
        CHECK(rc == AP_OK);
        i += n;
    }
    p->accepted = i;
    ap_pool_release(p->pool);
    return NULL;
}

static void exactly_once(ap_pool_options options, bool no_search, uint32_t producers) {
    crew c = {.no_search = no_search};
    producer p[CREW_MAX];
    uint64_t all = producers * check_scale(60000);
    if (options.max_workers > 1)
        options.max_workers = crew_size(options.max_workers);
    producers = crew_size(producers);
    uint64_t each = all / producers;
    crew_start(&c, &options, options.max_workers);
    job *jobs = jobs_new(2 * producers * each, c.pool);
    for (uint64_t i = 0; i < producers * each; i++) {
        jobs[i].children = 1;
        jobs[i].child = &jobs[producers * each + i];
    }
    for (uint32_t i = 0; i < producers; i++) {
        p[i] = (producer){.pool = c.pool,
                          .jobs = jobs + i * each,
                          .count = each,
                          .random = i + 1,
                          .batches = i % 2 == 1};
        ap_pool_retain(p[i].pool);
        p[i].thread = check_thread(produce, &p[i]);
    }
    for (uint32_t i = 0; i < producers; i++)
        check_join(p[i].thread);
    crew_wait(&crew_ran, 2 * producers * each);
    ap_pool_stats s;
    ap_pool_read_stats(c.pool, &s);
    CHECK_EQ(s.pushed_outside, producers * each);
    CHECK_EQ(s.pushed_inside, producers * each);
    CHECK_EQ(s.taken, 2 * producers * each);
    CHECK_EQ(ap_pool_pending(c.pool), 0);
    crew_stop(&c);
    for (uint64_t i = 0; i < 2 * producers * each; i++)
        CHECK_EQ(ap_u32_load_relaxed(&jobs[i].runs), 1);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, exactly_once, 30) {
    exactly_once((ap_pool_options){.max_workers = 4}, false, 4);
}

TEST(pool, exactly_once_many_shards_and_wrap, 30) {
    exactly_once((ap_pool_options){.max_workers = 4, .shards = 4, .first_index = UINT64_MAX - 5000},
                 false, 4);
}

TEST(pool, exactly_once_rings_of_two, 30) {
    exactly_once((ap_pool_options){.max_workers = 4, .ring_slots = 2, .first_index = UINT64_MAX},
                 false, 4);
}

TEST(pool, exactly_once_without_search, 30) {
    exactly_once((ap_pool_options){.max_workers = 4, .cpus = 4}, true, 4);
}

TEST(pool, exactly_once_one_worker, 30) {
    exactly_once((ap_pool_options){.max_workers = 1, .first_index = UINT64_MAX - 100}, false, 3);
}

TEST(pool, exactly_once_many_workers, 30) {
    exactly_once((ap_pool_options){.max_workers = 20, .cpus = 8}, false, 4);
}

/* ---- closing ----------------------------------------------------------------------------- */

TEST(pool, close_races_pushes, 30) {
    for (uint32_t round = 0; round < (check_slow ? 20 : 200); round++) {
        uint64_t each = 2000;
        crew c = {.no_search = round % 3 == 0};
        producer p[4];
        ap_u64_store_relaxed(&crew_ran, 0);
        crew_start(&c, &(ap_pool_options){.max_workers = 1 + round % 4}, 1 + round % 4);
        job *jobs = jobs_new(4 * each, c.pool);
        for (uint32_t i = 0; i < 4; i++) {
            p[i] = (producer){.pool = c.pool,
                              .jobs = jobs + i * each,
                              .count = each,
                              .random = round + i + 1,
                              .batches = i % 2 == 1};
            ap_pool_retain(p[i].pool);
            p[i].thread = check_thread(produce, &p[i]);
        }
        check_pause_ns(round * 1000);
        crew_stop(&c);
        uint64_t accepted = 0;
        for (uint32_t i = 0; i < 4; i++) {
            check_join(p[i].thread);
            for (uint64_t k = 0; k < each; k++)
                CHECK_EQ(ap_u32_load_relaxed(&p[i].jobs[k].runs), k < p[i].accepted);
            accepted += p[i].accepted;
        }
        CHECK_EQ(ap_u64_load_relaxed(&crew_ran), accepted);
        free(jobs);
    }
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, close_ends_parked_workers, 20) {
    for (uint32_t workers = 1; workers <= 8; workers++) {
        crew c = {.no_search = true};
        crew_start(&c, &(ap_pool_options){.max_workers = 8}, workers);
        crew_wait_idle(c.pool, workers);
        CHECK(!ap_pool_is_closed(c.pool));
        ap_pool_close(c.pool);
        ap_pool_close(c.pool);
        CHECK(ap_pool_is_closed(c.pool));
        crew_stop(&c);
    }
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, closed_refuses_everything, 10) {
    ap_pool *pool;
    ap_worker *worker;
    job *jobs = jobs_new(300, NULL);
    ap_task *batch[300];
    for (int i = 0; i < 300; i++)
        batch[i] = &jobs[i].task;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    CHECK(ap_pool_push_batch(pool, batch, 0) == AP_OK);
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    ap_pool_close(pool);
    CHECK(ap_pool_push(pool, batch[0]) == AP_E_CLOSED); /* from a worker */
    CHECK(ap_pool_push_batch(pool, batch, 300) == AP_E_CLOSED);
    ap_worker_end(worker);
    CHECK(ap_pool_push(pool, batch[0]) == AP_E_CLOSED); /* from outside */
    CHECK(ap_pool_push_batch(pool, batch, 300) == AP_E_CLOSED);
    CHECK(ap_pool_push_batch(pool, batch, 0) == AP_E_CLOSED);
    CHECK_EQ(ap_pool_pending(pool), 0);
    CHECK(ap_worker_begin(pool, &worker) == AP_E_CLOSED); /* ended: nothing was pending */
    ap_pool_release(pool);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, begun_after_close_runs_what_is_pending, 10) {
    ap_pool *pool;
    ap_worker *worker;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    job *jobs = jobs_new(300, pool);
    for (int i = 0; i < 300; i++)
        CHECK(ap_pool_push(pool, &jobs[i].task) == AP_OK);
    ap_pool_close(pool);
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    crew_loop(worker, false);
    CHECK_EQ(ap_u64_load_relaxed(&crew_ran), 300);
    ap_worker_end(worker);
    CHECK(ap_worker_begin(pool, &worker) == AP_E_CLOSED);
    ap_pool_release(pool);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

/* ---- lost wakes -------------------------------------------------------------------------- */

static void one_at_a_time(ap_pool_options options, uint32_t workers, bool no_search,
                          uint64_t rounds) {
    crew c = {.no_search = no_search};
    uint32_t random = 12345;
    crew_start(&c, &options, workers);
    job *one = jobs_new(1, c.pool);
    for (uint64_t i = 1; i <= rounds; i++) {
        ap_u32_store_relaxed(&one->runs, 0);
        CHECK(ap_pool_push(c.pool, &one->task) == AP_OK);
        crew_wait(&crew_ran, i);
        check_pause_ns(check_random(&random) % 100000);
    }
    crew_stop(&c);
    free(one);
}

TEST(pool, no_wake_is_lost, 30) {
    uint32_t workers = crew_size(2);
    one_at_a_time((ap_pool_options){.max_workers = workers}, workers, false, 6000);
}

TEST(pool, no_wake_is_lost_without_search, 30) {
    uint32_t workers = crew_size(2);
    one_at_a_time((ap_pool_options){.max_workers = workers}, workers, true, 6000);
}

TEST(pool, no_wake_is_lost_in_a_large_pool, 30) {
    one_at_a_time((ap_pool_options){.max_workers = 300, .shards = 128}, crew_size(8), true, 3000);
}

/* Several producers at random, so that parking meets pushing from many sides. */
static ap_atomic_u64 expected;

static void *produce_with_pauses(void *argument) {
    producer *p = argument;
    for (uint64_t i = 0; i < p->count; i++) {
        CHECK(ap_pool_push(p->pool, &p->jobs[i].task) == AP_OK);
        uint64_t wanted = ap_u64_add_acq_rel(&expected, 1);
        (void)wanted;
        check_pause_ns(check_random(&p->random) % 30000);
    }
    return NULL;
}

TEST(pool, no_wake_is_lost_with_many_producers, 30) {
    crew c = {.no_search = true};
    producer p[3];
    uint64_t each = 3000;
    uint32_t workers = crew_size(3);
    crew_start(&c, &(ap_pool_options){.max_workers = workers, .shards = 2}, workers);
    job *jobs = jobs_new(6 * each, c.pool);
    for (uint64_t i = 0; i < 3 * each; i++) {
        jobs[i].children = 1;
        jobs[i].child = &jobs[3 * each + i];
    }
    for (uint32_t i = 0; i < 3; i++) {
        p[i] = (producer){.pool = c.pool, .jobs = jobs + i * each, .count = each, .random = i + 1};
        p[i].thread = check_thread(produce_with_pauses, &p[i]);
    }
    for (uint32_t i = 0; i < 3; i++)
        check_join(p[i].thread);
    crew_wait(&crew_ran, 6 * each);
    crew_stop(&c);
    free(jobs);
}

/* ---- tasks that block -------------------------------------------------------------------- */

typedef struct meeting {
    ap_task task;
    ap_pool *pool;
    ap_atomic_u64 *arrived;
    uint64_t wanted;
    struct meeting *others; /* pushes these first */
    uint32_t other_count;
    bool batch;
} meeting;

static void meeting_run(ap_task *task, ap_worker *worker) {
    meeting *m = (meeting *)task;
    ap_task *others[CREW_MAX];
    (void)worker;
    for (uint32_t i = 0; i < m->other_count; i++) {
        others[i] = &m->others[i].task;
        if (!m->batch)
            CHECK(ap_pool_push(m->pool, others[i]) == AP_OK);
    }
    if (m->batch)
        CHECK(ap_pool_push_batch(m->pool, others, m->other_count) == AP_OK);
    (void)ap_u64_add_acq_rel(m->arrived, 1);
    while (ap_u64_load_acquire(m->arrived) < m->wanted)
        ap_cpu_yield();
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

/* way 0: pushed one by one; 1: as one batch; 2, 3: spawned by the first, singly or as a batch */
static void meet(int way, uint32_t workers, bool no_search) {
    crew c = {.no_search = no_search};
    uint32_t random = (uint32_t)way + 1;
    uint64_t rounds = check_scale(2000);
    workers = crew_size(workers);
    crew_start(&c, &(ap_pool_options){.max_workers = workers, .cpus = 4}, workers);
    for (uint64_t round = 0; round < rounds; round++) {
        ap_atomic_u64 arrived;
        meeting m[CREW_MAX];
        ap_task *batch[CREW_MAX];
        ap_u64_store_relaxed(&arrived, 0);
        for (uint32_t i = 0; i < workers; i++) {
            m[i] = (meeting){.task = {meeting_run},
                             .pool = c.pool,
                             .arrived = &arrived,
                             .wanted = workers};
            batch[i] = &m[i].task;
        }
        if (way >= 2) {
            m[0].others = &m[1];
            m[0].other_count = workers - 1;
            m[0].batch = way == 3;
            CHECK(ap_pool_push(c.pool, batch[0]) == AP_OK);
        } else if (way == 1) {
            CHECK(ap_pool_push_batch(c.pool, batch, workers) == AP_OK);
        } else {
            for (uint32_t i = 0; i < workers; i++)
                CHECK(ap_pool_push(c.pool, batch[i]) == AP_OK);
        }
        crew_wait(&crew_ran, (round + 1) * workers);
        if (round % 4 == 0)
            check_pause_ns(check_random(&random) % 150000);
    }
    crew_stop(&c);
}

TEST(pool, barrier_of_three_pushed_singly, 30) {
    meet(0, 3, false);
}
TEST(pool, barrier_of_three_pushed_as_a_batch, 30) {
    meet(1, 3, false);
}
TEST(pool, barrier_of_three_spawned, 30) {
    meet(2, 3, false);
}
TEST(pool, barrier_of_three_spawned_as_a_batch, 30) {
    meet(3, 3, false);
}
TEST(pool, barrier_of_eight_without_search, 30) {
    for (int way = 0; way < 4; way++) {
        ap_u64_store_relaxed(&crew_ran, 0);
        meet(way, 8, true);
    }
}

/* ---- order ------------------------------------------------------------------------------- */

static ap_atomic_u64 next_number;

static void ordered_run(ap_task *task, ap_worker *worker) {
    job *j = (job *)task;
    (void)worker;
    CHECK_EQ(ap_u64_add_acq_rel(&next_number, 1), j->number);
    for (uint32_t i = 0; i < j->children; i++)
        CHECK(ap_pool_push(j->pool, &j->child[i].task) == AP_OK);
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

TEST(pool, one_worker_is_first_in_first_out, 20) {
    for (uint32_t slots = 2; slots <= 256; slots *= 128) {
        ap_pool *pool;
        ap_worker *worker;
        ap_u64_store_relaxed(&next_number, 0);
        CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 1, .shards = 8, .ring_slots = slots},
                          &pool) == AP_OK);
        job *jobs = jobs_new(1000, pool);
        for (uint32_t i = 0; i < 1000; i++)
            jobs[i].task.run = ordered_run;
        for (uint32_t i = 0; i < 500; i++) {
            jobs[i].children = 1; /* goes behind everything pushed so far */
            jobs[i].child = &jobs[500 + i];
            CHECK(ap_pool_push(pool, &jobs[i].task) == AP_OK);
        }
        /* Three workers one after the other: what one leaves in its ring stays in front. */
        for (int k = 0; k < 3; k++) {
            CHECK(ap_worker_begin(pool, &worker) == AP_OK);
            for (int i = 0; i < 7; i++) {
                ap_task *task = ap_worker_take_try(worker);
                CHECK(task != NULL);
                task->run(task, worker);
            }
            ap_worker_end(worker);
        }
        CHECK(ap_worker_begin(pool, &worker) == AP_OK);
        ap_pool_stats s;
        ap_pool_read_stats(pool, &s);
        CHECK_EQ(s.shards, 1);
        ap_task *task;
        while ((task = ap_worker_take_try(worker)) != NULL)
            task->run(task, worker);
        CHECK_EQ(ap_u64_load_relaxed(&next_number), 1000);
        ap_worker_end(worker);
        ap_pool_close(pool);
        ap_pool_release(pool);
        free(jobs);
    }
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, outside_work_is_not_starved, 10) {
    ap_pool *pool;
    ap_worker *worker;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    job *jobs = jobs_new(2, pool);
    job *again = &jobs[0];
    CHECK(ap_pool_push(pool, &again->task) == AP_OK);
    /* From outside; the test's own thread is a worker, so another thread pushes. */
    producer p = {.pool = pool, .jobs = &jobs[1], .count = 1};
    ap_pool_retain(p.pool);
    check_join(check_thread(produce, &p));
    bool seen = false;
    for (int i = 0; i < 200 && !seen; i++) {
        ap_task *task = ap_worker_take_try(worker);
        CHECK(task != NULL);
        seen = task == &jobs[1].task;
        if (!seen)
            CHECK(ap_pool_push(pool, task) == AP_OK); /* spawns itself again, for ever */
    }
    CHECK(seen);
    CHECK(ap_pool_take_try(pool) == &again->task);
    ap_worker_end(worker);
    ap_pool_close(pool);
    ap_pool_release(pool);
    free(jobs);
}

/* ---- taking from outside ----------------------------------------------------------------- */

TEST(pool, take_try_empties_shards_and_rings, 10) {
    ap_pool *pool;
    ap_worker *worker;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    job *jobs = jobs_new(600, pool);
    CHECK(ap_pool_take_try(pool) == NULL);
    for (int i = 0; i < 200; i++)
        CHECK(ap_pool_push(pool, &jobs[i].task) == AP_OK);
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    for (int i = 200; i < 600; i++) /* more than the ring holds */
        CHECK(ap_pool_push(pool, &jobs[i].task) == AP_OK);
    CHECK_EQ(ap_pool_pending(pool), 600);
    ap_worker_end(worker);
    ap_pool_close(pool);
    for (int i = 0; i < 600; i++) {
        job *j = (job *)ap_pool_take_try(pool);
        CHECK(j != NULL);
        CHECK_EQ(ap_u32_add_relaxed(&j->runs, 1), 0);
        CHECK_EQ(ap_pool_pending(pool), 599 - i);
    }
    CHECK(ap_pool_take_try(pool) == NULL);
    ap_pool_release(pool);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

static void *take_all(void *argument) {
    ap_pool *pool = argument;
    ap_task *task;
    for (int idle = 0; idle < 1000;)
        if ((task = ap_pool_take_try(pool)) != NULL) {
            CHECK_EQ(ap_u32_add_relaxed(&((job *)task)->runs, 1), 0);
            (void)ap_u64_add_acq_rel(&crew_ran, 1);
        } else {
            idle++;
            ap_cpu_yield();
        }
    return NULL;
}

TEST(pool, take_try_races_workers, 30) {
    ap_pool *pool;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &pool) == AP_OK);
    crew c = {.pool = pool};
    check_watch(pool, &crew_ran);
    uint64_t n = check_scale(200000);
    job *jobs = jobs_new(n, pool);
    producer p = {.pool = pool, .jobs = jobs, .count = n};
    ap_worker *worker;
    ap_pool_retain(p.pool);
    p.thread = check_thread(produce, &p);
    pthread_t taker = check_thread(take_all, c.pool);
    CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    while (ap_u64_load_acquire(&crew_ran) < n) {
        ap_task *task = ap_worker_take_try(worker);
        if (task != NULL)
            task->run(task, worker);
        else
            ap_cpu_yield();
    }
    check_join(p.thread);
    check_join(taker);
    for (uint64_t i = 0; i < n; i++)
        CHECK_EQ(ap_u32_load_relaxed(&jobs[i].runs), 1);
    ap_worker_end(worker);
    ap_pool_release(pool);
    free(jobs);
}

/* ---- memory ------------------------------------------------------------------------------ */

TEST(pool, out_of_memory_at_every_allocation, 20) {
    job *jobs = jobs_new(2000, NULL);
    ap_task *batch[2000];
    for (int i = 0; i < 2000; i++)
        batch[i] = &jobs[i].task;
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        ap_pool *pool = NULL;
        ap_worker *worker = NULL;
        uint64_t queued = 0;
        failed = false;
        ap_memory_fail_at(n);
        int rc = ap_pool_new(&(ap_pool_options){.max_workers = 4, .shards = 4}, &pool);
        if (rc != AP_OK) {
            CHECK(rc == AP_E_NOMEM);
            CHECK_EQ(ap_memory_live(), 0);
            failed = true;
            continue;
        }
        /* A push that fails changes nothing and works the next time. */
        for (int i = 0; i < 300; i++, queued++)
            while ((rc = ap_pool_push(pool, batch[i])) != AP_OK) {
                CHECK(rc == AP_E_NOMEM && !failed);
                CHECK_EQ(ap_pool_pending(pool), queued);
                failed = true;
            }
        while ((rc = ap_pool_push_batch(pool, batch + 300, 700)) != AP_OK) {
            CHECK(rc == AP_E_NOMEM && !failed);
            CHECK_EQ(ap_pool_pending(pool), queued);
            failed = true;
        }
        queued += 700;
        while ((rc = ap_worker_begin(pool, &worker)) != AP_OK) {
            CHECK(rc == AP_E_NOMEM && !failed);
            CHECK(ap_worker_current() == NULL);
            failed = true;
        }
        for (int i = 1000; i < 2000; i++, queued++)
            while ((rc = ap_pool_push(pool, batch[i])) != AP_OK) {
                CHECK(rc == AP_E_NOMEM && !failed);
                CHECK_EQ(ap_pool_pending(pool), queued);
                failed = true;
            }
        ap_pool_close(pool);
        uint64_t taken = 0;
        while (ap_worker_take_try(worker) != NULL)
            taken++;
        CHECK_EQ(taken, 2000);
        CHECK(ap_worker_park(worker) == AP_E_CLOSED);
        ap_worker_end(worker);
        ap_pool_release(pool);
        CHECK_EQ(ap_memory_live(), 0);
    }
    free(jobs);
}

TEST(pool, many_short_lived_producers_leave_nothing, 30) {
    crew c = {.no_search = false};
    crew_start(&c, &(ap_pool_options){.max_workers = 2}, 2);
    uint64_t n = check_scale(2000);
    job *jobs = jobs_new(n, c.pool);
    for (uint64_t i = 0; i < n; i++) {
        producer p = {.pool = c.pool, .jobs = &jobs[i], .count = 1};
        ap_pool_retain(p.pool);
        check_join(check_thread(produce, &p));
    }
    crew_wait(&crew_ran, n);
    CHECK(ap_memory_live() < 20);
    crew_stop(&c);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, several_at_once_and_nested, 10) {
    ap_pool *a;
    ap_pool *b;
    ap_worker *in_a;
    ap_worker *in_b;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &a) == AP_OK);
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 2}, &b) == AP_OK);
    job *jobs = jobs_new(2, NULL);
    CHECK(ap_worker_begin(a, &in_a) == AP_OK);
    CHECK(ap_worker_begin(b, &in_b) == AP_OK);
    CHECK(ap_worker_current() == in_b);
    CHECK(ap_pool_push(a, &jobs[0].task) == AP_OK); /* from outside, as seen from a */
    CHECK(ap_pool_push(b, &jobs[1].task) == AP_OK);
    CHECK(ap_worker_take_try(in_b) == &jobs[1].task);
    ap_worker_end(in_b);
    CHECK(ap_worker_current() == in_a);
    CHECK(ap_worker_take_try(in_a) == &jobs[0].task);
    ap_pool_stats s;
    ap_pool_read_stats(a, &s);
    CHECK_EQ(s.pushed_outside, 1);
    ap_pool_read_stats(b, &s);
    CHECK_EQ(s.pushed_inside, 1);
    ap_worker_end(in_a);
    ap_pool_release(a);
    ap_pool_release(b);
    free(jobs);
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(pool, idle_workers_use_no_cpu, 10) {
    crew c = {.no_search = false};
    crew_start(&c, &(ap_pool_options){.max_workers = 8}, 8);
    crew_wait_idle(c.pool, 8);
    uint64_t used = check_cpu_ns();
    check_pause_ns(300000000);
    CHECK(check_cpu_ns() - used < (check_slow ? 50000000 : 3000000));
    crew_stop(&c);
}
