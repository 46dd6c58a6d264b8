/* csrc/sched/idle and backlog: directory, tokens, reserved slots, the end. */
#include "sched/idle.h"

#include "check.h"
#include "crew.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/memory.h"

static ap_pool *pool_new(uint32_t max_workers) {
    ap_pool *pool;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = max_workers, .cpus = 4}, &pool) == AP_OK);
    check_watch(pool, &crew_ran);
    return pool;
}

static uint64_t word_of(ap_pool *pool) {
    return ap_u64_load_seq_cst(&pool->idle);
}

TEST(idle, directory_wakes_the_last_enlisted, 5) {
    ap_pool *pool = pool_new(8);
    ap_worker *w[8];
    for (int i = 0; i < 8; i++)
        CHECK(ap_worker_begin(pool, &w[i]) == AP_OK);
    ap_idle_wake(pool, true); /* nobody idle */
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    static const int order[] = {3, 7, 0, 5, 1, 2, 6, 4};
    for (int i = 0; i < 8; i++)
        CHECK(ap_idle_enlist(w[order[i]]));
    CHECK_EQ(ap_idle_idle(word_of(pool)), 8);
    for (int i = 7; i >= 0; i--) {
        CHECK_EQ(ap_idle_top(word_of(pool)), order[i] + 1);
        ap_idle_wake(pool, true);
        ap_idle_wake(pool, true); /* somebody searches: no second one */
        CHECK_EQ(ap_idle_idle(word_of(pool)), i);
        CHECK_EQ(ap_idle_searching(word_of(pool)), 1);
        CHECK(ap_idle_sleep(w[order[i]], AP_FOREVER) == AP_OK);
        CHECK(w[order[i]]->counted);
        CHECK(ap_worker_take_try(w[order[i]]) == NULL);
        CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    }
    CHECK_EQ(ap_idle_top(word_of(pool)), 0);
    for (int i = 7; i >= 0; i--)
        ap_worker_end(w[i]);
    ap_pool_release(pool);
}

TEST(idle, sleep_times_out_and_stays_enlisted, 5) {
    ap_pool *pool = pool_new(2);
    ap_worker *w;
    CHECK(ap_worker_begin(pool, &w) == AP_OK);
    CHECK(ap_idle_enlist(w));
    for (int i = 0; i < 3; i++)
        CHECK(ap_idle_sleep(w, ap_clock_after(2000000)) == AP_E_TIMEDOUT);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 1);
    ap_idle_wake(pool, true);
    CHECK(ap_idle_sleep(w, ap_clock_after(2000000)) == AP_OK);
    ap_worker_end(w);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    ap_pool_release(pool);
}

TEST(idle, searchers_are_limited, 5) {
    ap_pool *pool = pool_new(4); /* on 4 CPUs: 2 searchers */
    ap_worker *w[4];
    for (int i = 0; i < 4; i++)
        CHECK(ap_worker_begin(pool, &w[i]) == AP_OK);
    CHECK(ap_idle_search_begin(w[0]));
    CHECK(ap_idle_search_begin(w[1]));
    CHECK(!ap_idle_search_begin(w[2]));
    CHECK(ap_worker_search(w[3]) == NULL);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 2);
    ap_idle_search_end(w[0], false);
    ap_idle_search_end(w[1], false);
    CHECK(ap_worker_search(w[3]) == NULL);
    CHECK(w[3]->fruitless);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    for (int i = 3; i >= 0; i--)
        ap_worker_end(w[i]);
    ap_pool_release(pool);
}

static void do_nothing(ap_task *task, ap_worker *worker) {
    (void)task;
    (void)worker;
}

TEST(idle, last_searcher_relays, 5) {
    ap_pool *pool = pool_new(4);
    ap_worker *w[3];
    ap_task tasks[2] = {{do_nothing}, {do_nothing}};
    for (int i = 0; i < 3; i++)
        CHECK(ap_worker_begin(pool, &w[i]) == AP_OK);
    CHECK(ap_idle_enlist(w[0]));
    CHECK(ap_idle_search_begin(w[1]));
    CHECK(ap_pool_push(pool, &tasks[0]) == AP_OK); /* this thread is w[2]: to its ring */
    CHECK_EQ(ap_idle_idle(word_of(pool)), 1);      /* left to the searcher */
    CHECK(ap_pool_push(pool, &tasks[1]) == AP_OK);
    CHECK(ap_worker_take_try(w[1]) == &tasks[0]);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 0); /* woken for the second, as others are active */
    CHECK(ap_idle_sleep(w[0], AP_FOREVER) == AP_OK);
    CHECK(w[0]->lookout && !w[0]->counted);
    CHECK((word_of(pool) & AP_IDLE_LOOKOUT) != 0);
    ap_idle_look_out(w[0]);
    CHECK(w[0]->counted && w[0]->urgent);
    CHECK_EQ(word_of(pool) & AP_IDLE_LOOKOUT, 0);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 1);
    CHECK(ap_worker_take_try(w[0]) == &tasks[1]);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    for (int i = 2; i >= 0; i--)
        ap_worker_end(w[i]);
    ap_pool_release(pool);
}

TEST(idle, left_over_of_a_claim_wakes, 5) {
    ap_pool *pool = pool_new(2);
    ap_worker *w[2];
    ap_task tasks[3] = {{do_nothing}, {do_nothing}, {do_nothing}};
    ap_task *batch[3] = {&tasks[0], &tasks[1], &tasks[2]};
    CHECK(ap_pool_push_batch(pool, batch, 3) == AP_OK); /* from outside, nobody there */
    CHECK(ap_worker_begin(pool, &w[0]) == AP_OK);
    CHECK(ap_worker_begin(pool, &w[1]) == AP_OK);
    /* Enlisted, and past its look: as if the claim had been in flight then. */
    CHECK(ap_idle_enlist(w[0]));
    CHECK(ap_worker_take_try(w[1]) == &tasks[0]); /* claims two */
    CHECK_EQ(ap_idle_idle(word_of(pool)), 0);
    CHECK(ap_idle_sleep(w[0], AP_FOREVER) == AP_OK);
    ap_idle_look_out(w[0]);
    CHECK(ap_worker_take_try(w[0]) == &tasks[2]);
    CHECK(ap_worker_take_try(w[0]) == &tasks[1]);
    ap_worker_end(w[1]);
    ap_worker_end(w[0]);
    ap_pool_release(pool);
}

TEST(idle, a_claim_that_moves_the_head_wakes, 5) {
    ap_pool *pool = pool_new(2);
    ap_worker *w[2];
    static ap_task tasks[AP_BLOCK_SLOTS + 1];
    for (int i = 0; i <= AP_BLOCK_SLOTS; i++)
        CHECK(ap_pool_push(pool, &tasks[i]) == AP_OK);
    for (int i = 0; i < AP_BLOCK_SLOTS - 1; i++)
        CHECK(ap_pool_take_try(pool) == &tasks[i]);
    CHECK(ap_worker_begin(pool, &w[0]) == AP_OK);
    CHECK(ap_worker_begin(pool, &w[1]) == AP_OK);
    CHECK(ap_idle_enlist(w[0])); /* past its look: as if it had seen the head half moved */
    CHECK(ap_worker_take_try(w[1]) == &tasks[AP_BLOCK_SLOTS - 1]);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 0);
    CHECK(ap_idle_sleep(w[0], AP_FOREVER) == AP_OK);
    ap_idle_look_out(w[0]);
    CHECK(ap_worker_take_try(w[0]) == &tasks[AP_BLOCK_SLOTS]);
    ap_worker_end(w[1]);
    ap_worker_end(w[0]);
    ap_pool_release(pool);
}

#ifdef AP_POINT_HEADER
static ap_pool *hooked_pool;
static ap_task hooked_task = {do_nothing};

static void push_hooked(void) {
    CHECK(ap_pool_push(hooked_pool, &hooked_task) == AP_OK);
}

TEST(idle, a_push_between_look_and_unmark_stays_marked, 5) {
    ap_task first = {do_nothing};
    hooked_pool = pool_new(2);
    CHECK(ap_pool_push(hooked_pool, &first) == AP_OK);
    CHECK(ap_pool_take_try(hooked_pool) == &first);
    check_point_call("backlog-empty", push_hooked); /* sees its mark set */
    CHECK(ap_backlog_look(hooked_pool, true) == AP_QUEUE_READY);
    CHECK(ap_backlog_look(hooked_pool, true) == AP_QUEUE_READY);
    CHECK(ap_pool_take_try(hooked_pool) == &hooked_task);
    CHECK(ap_backlog_look(hooked_pool, true) == AP_QUEUE_EMPTY);
    ap_pool_release(hooked_pool);
}

static void begin_and_end(void) {
    ap_worker *w;
    CHECK(ap_worker_begin(hooked_pool, &w) == AP_OK);
    ap_worker_end(w);
}

TEST(idle, the_end_fails_if_a_worker_began_meanwhile, 5) {
    hooked_pool = pool_new(2);
    uint64_t before = word_of(hooked_pool);
    check_point_call("idle-try-end", begin_and_end); /* between E2 and E3 */
    ap_pool_close(hooked_pool);
    /* It ended, but at the second try: the tag tells that a worker was there. */
    CHECK((word_of(hooked_pool) & AP_IDLE_ENDED) != 0);
    CHECK((word_of(hooked_pool) ^ before) / AP_IDLE_TAG_ONE != 0);
    ap_pool_release(hooked_pool);
}
#endif

TEST(idle, pushes_beside_an_active_worker_arm_one_lookout, 5) {
    ap_pool *pool = pool_new(4);
    ap_worker *w[4];
    ap_task tasks[3] = {{do_nothing}, {do_nothing}, {do_nothing}};
    for (int i = 0; i < 4; i++)
        CHECK(ap_worker_begin(pool, &w[i]) == AP_OK);
    for (int i = 0; i < 3; i++)
        CHECK(ap_idle_enlist(w[i]));
    CHECK(ap_pool_push(pool, &tasks[0]) == AP_OK); /* by w[3], which is active */
    CHECK((word_of(pool) & AP_IDLE_LOOKOUT) != 0);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 2);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    CHECK(ap_pool_push(pool, &tasks[1]) == AP_OK);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 2);
    /* When nobody but the lookout is active, a push does not wait for it. */
    CHECK(ap_idle_enlist(w[3]));
    CHECK(ap_pool_push(pool, &tasks[2]) == AP_OK);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 2);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 1);
    CHECK(ap_idle_sleep(w[3], AP_FOREVER) == AP_OK);
    CHECK(w[3]->counted && !w[3]->urgent);
    CHECK(ap_worker_take_try(w[3]) == &tasks[0]); /* and leaves the rest to the lookout */
    CHECK_EQ(ap_idle_idle(word_of(pool)), 2);
    CHECK(ap_idle_sleep(w[2], AP_FOREVER) == AP_OK);
    ap_idle_look_out(w[2]);
    CHECK(ap_worker_take_try(w[2]) == &tasks[1]); /* the tasks are slow: wakes the next at once */
    CHECK_EQ(ap_idle_idle(word_of(pool)), 1);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 1);
    CHECK(ap_idle_sleep(w[1], AP_FOREVER) == AP_OK);
    CHECK(w[1]->counted && w[1]->urgent);
    CHECK(ap_worker_take_try(w[1]) == &tasks[2]);
    CHECK_EQ(ap_idle_idle(word_of(pool)), 1);
    ap_idle_wake(pool, true);
    CHECK(ap_idle_sleep(w[0], AP_FOREVER) == AP_OK);
    for (int i = 3; i >= 0; i--)
        ap_worker_end(w[i]);
    CHECK_EQ(ap_idle_searching(word_of(pool)), 0);
    ap_pool_release(pool);
}

TEST(idle, backlog_covers_every_queue, 10) {
    ap_pool *pool;
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 512, .shards = 512}, &pool) == AP_OK);
    ap_worker *w[512];
    ap_task task = {do_nothing};
    ap_task *one = &task;
    CHECK(ap_backlog_look(pool, true) == AP_QUEUE_EMPTY);
    for (int i = 0; i < 512; i++)
        CHECK(ap_worker_begin(pool, &w[i]) == AP_OK);
    for (uint32_t i = 0; i < 512; i += 37)
        for (int ring = 0; ring < 2; ring++) {
            if (ring) {
                CHECK(ap_worker_push(w[i], &one, 1) == AP_OK);
            } else {
                CHECK(ap_injector_push(&pool->injectors[i], &one, 1) == AP_OK);
                ap_backlog_mark(&pool->shard_backlog, i);
            }
            CHECK(ap_backlog_look(pool, true) == AP_QUEUE_READY);
            CHECK(ap_backlog_look_all(pool) == AP_QUEUE_READY);
            CHECK(ap_worker_take_try(w[(i * 7 + 3) % 512]) == &task);
            CHECK(ap_backlog_look_all(pool) == AP_QUEUE_EMPTY);
            CHECK(ap_backlog_look(pool, true) == AP_QUEUE_EMPTY);
            for (int k = 0; k < AP_BACKLOG_WORDS; k++) {
                CHECK_EQ(ap_u64_load_relaxed(&pool->shard_backlog.words[k]), 0);
                CHECK_EQ(ap_u64_load_relaxed(&pool->ring_backlog.words[k]), 0);
            }
        }
    for (int i = 511; i >= 0; i--)
        ap_worker_end(w[i]);
    ap_pool_release(pool);
}

/* ---- a producer that is stopped between reserving and filling a slot ---------------------- */

static void count_run(ap_task *task, ap_worker *worker) {
    (void)task;
    (void)worker;
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

static void stopped_producer(bool notifies) {
    crew c = {.no_search = false};
    ap_task stuck = {count_run};
    ap_task others[100];
    crew_start(&c, &(ap_pool_options){.max_workers = 2, .shards = 2}, 2);
    crew_wait_idle(c.pool, 2);
    ap_injector *injector = &c.pool->injectors[1];
    (void)ap_u64_add_seq_cst(&injector->tail, 2); /* reserved, and stopped */
    ap_backlog_mark(&c.pool->shard_backlog, 1);
    ap_idle_notify(c.pool);

    uint64_t used = check_cpu_ns();
    check_pause_ns(100000000);
    CHECK(check_cpu_ns() - used < (check_slow ? 90000000 : 30000000)); /* nobody spins */
    for (int i = 0; i < 100; i++) {                                    /* the other shard runs on */
        ap_task *task = &others[i];
        task->run = count_run;
        CHECK(ap_injector_push(&c.pool->injectors[0], &task, 1) == AP_OK);
        ap_backlog_mark(&c.pool->shard_backlog, 0);
        ap_idle_notify(c.pool);
    }
    crew_wait(&crew_ran, 100);

    check_pause_ns(20000000);
    ap_pool_close(c.pool); /* ends only after the stopped push */
    check_pause_ns(5000000);
    CHECK_EQ(word_of(c.pool) & AP_IDLE_ENDED, 0);
    ap_block *block = ap_ptr_load_relaxed(&injector->head_block);
    ap_ptr_store_release(&block->slots[0], &stuck);
    if (notifies)
        ap_idle_notify(c.pool);
    crew_wait(&crew_ran, 101); /* also without: its look at the word may be long past */
    for (uint32_t i = 0; i < c.size; i++)
        check_join(c.threads[i]);
    c.size = 0;
    crew_stop(&c);
}

TEST(idle, stopped_producer_harms_nobody, 20) {
    stopped_producer(true);
}

TEST(idle, stopped_producer_that_looked_too_early, 20) {
    stopped_producer(false);
}

/* ---- the end ----------------------------------------------------------------------------- */

TEST(idle, last_active_worker_that_ends_ends_the_pool, 10) {
    for (uint32_t left = 0; left < 2; left++) {
        crew c = {.no_search = true};
        ap_worker *failing;
        ap_task tasks[300];
        ap_u64_store_relaxed(&crew_ran, 0);
        crew_start(&c, &(ap_pool_options){.max_workers = 4}, 3);
        crew_wait_idle(c.pool, 3);
        CHECK(ap_worker_begin(c.pool, &failing) == AP_OK);
        if (left) /* more than a ring: the rest goes to the shard */
            for (int i = 0; i < 300; i++) {
                tasks[i].run = count_run;
                CHECK(ap_pool_push(c.pool, &tasks[i]) == AP_OK);
            }
        ap_pool_close(c.pool);
        CHECK_EQ(word_of(c.pool) & AP_IDLE_ENDED, 0);
        ap_worker_end(failing);
        crew_wait(&crew_ran, left ? 300 : 0);
        if (left == 0)
            CHECK((word_of(c.pool) & AP_IDLE_ENDED) != 0);
        while ((word_of(c.pool) & AP_IDLE_ENDED) == 0)
            check_pause_ns(20000); /* nobody closes again meanwhile */
        crew_stop(&c);             /* hangs if nobody saw the end */
    }
}

TEST(idle, ring_of_an_ended_worker_is_taken, 10) {
    ap_pool *pool = pool_new(2);
    ap_worker *w;
    ap_task tasks[50];
    CHECK(ap_worker_begin(pool, &w) == AP_OK);
    for (int i = 0; i < 50; i++) {
        tasks[i].run = count_run;
        CHECK(ap_pool_push(pool, &tasks[i]) == AP_OK);
    }
    ap_worker_end(w); /* nobody is there */
    CHECK_EQ(ap_pool_pending(pool), 50);
    ap_pool_close(pool);
    CHECK_EQ(word_of(pool) & AP_IDLE_ENDED, 0);
    CHECK(ap_worker_begin(pool, &w) == AP_OK);
    crew_loop(w, true);
    CHECK_EQ(ap_u64_load_relaxed(&crew_ran), 50);
    ap_worker_end(w);
    ap_pool_release(pool);
}

/* Workers come and go, some with full rings, while tasks are pushed and the pool is closed:
 * everything accepted runs once, and everybody leaves. */

typedef struct churn {
    ap_pool *pool;
    uint32_t seed;
} churn;

static void *come_and_go(void *argument) {
    churn *c = argument;
    uint32_t random = c->seed;
    ap_worker *w;
    int rc;
    while ((rc = ap_worker_begin(c->pool, &w)) == AP_OK) {
        int steps = (int)(check_random(&random) % 40);
        for (int i = 0; i < steps && rc == AP_OK; i++) {
            ap_task *task = ap_worker_take_try(w);
            if (task == NULL && check_random(&random) % 2 == 0)
                task = ap_worker_search(w);
            if (task != NULL)
                task->run(task, w);
            else if (check_random(&random) % 2 == 0)
                rc = ap_worker_park(w);
        }
        ap_worker_end(w);
        if (rc == AP_E_CLOSED)
            break;
    }
    CHECK(rc == AP_E_CLOSED);
    return NULL;
}

typedef struct spawner {
    ap_task task;
    ap_pool *pool;
    ap_task children[3];
} spawner;

static ap_atomic_u64 spawned;

static void spawner_run(ap_task *task, ap_worker *worker) {
    spawner *s = (spawner *)task;
    (void)worker;
    for (int i = 0; i < 3; i++) {
        s->children[i].run = count_run;
        int rc = ap_pool_push(s->pool, &s->children[i]);
        CHECK(rc == AP_OK || rc == AP_E_CLOSED);
        if (rc == AP_OK)
            (void)ap_u64_add_relaxed(&spawned, 1);
    }
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

TEST(idle, workers_that_come_and_go_meet_the_end, 40) {
    for (uint32_t round = 0; round < (check_slow ? 30 : 300); round++) {
        ap_u64_store_relaxed(&crew_ran, 0);
        ap_u64_store_relaxed(&spawned, 0);
        ap_pool *pool = pool_new(4);
        churn churns[4];
        pthread_t threads[4];
        uint32_t n = 1 + round % 500;
        spawner *tasks = calloc(n, sizeof *tasks);
        CHECK(tasks != NULL);
        for (uint32_t i = 0; i < 4; i++) {
            churns[i] = (churn){pool, round * 4 + i + 1};
            threads[i] = check_thread(come_and_go, &churns[i]);
        }
        for (uint32_t i = 0; i < n; i++) {
            tasks[i].task.run = spawner_run;
            tasks[i].pool = pool;
            CHECK(ap_pool_push(pool, &tasks[i].task) == AP_OK);
        }
        if (round % 2 == 0)
            check_pause_ns(round * 500);
        ap_pool_close(pool);
        for (int i = 0; i < 4; i++)
            check_join(threads[i]);
        CHECK_EQ(ap_u64_load_relaxed(&crew_ran), n + ap_u64_load_relaxed(&spawned));
        CHECK_EQ(ap_pool_pending(pool), 0);
        ap_pool_stats s;
        ap_pool_read_stats(pool, &s);
        CHECK_EQ(s.workers + s.idle + s.searching, 0);
        check_watch(NULL, NULL);
        ap_pool_release(pool);
        free(tasks);
    }
    CHECK_EQ(ap_memory_live(), 0);
}
