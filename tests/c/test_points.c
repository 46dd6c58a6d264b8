/* Producers that stop in the middle of a push.  Built with injected delays only: point_chaos.h. */
#ifdef AP_POINT_HEADER
#include <string.h>

#include "check.h"
#include "crew.h"
#include "point_chaos.h"
#include "sched/idle.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/memory.h"

#define MANY 400

typedef struct pushes {
    ap_pool *pool;
    const char *point; /* where the last push stops, or NULL */
    size_t singly;     /* tasks pushed before, one by one */
    size_t batch;      /* tasks of the last push */
    int rc;            /* of the last push */
    ap_atomic_u32 done;
    ap_task tasks[MANY];
} pushes;

static void count_run(ap_task *task, ap_worker *worker) {
    (void)task;
    (void)worker;
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

static void *push(void *argument) {
    pushes *p = argument;
    ap_task *batch[MANY];
    CHECK(p->singly + p->batch <= MANY);
    for (size_t i = 0; i < p->singly; i++) {
        p->tasks[i].run = count_run;
        CHECK(ap_pool_push(p->pool, &p->tasks[i]) == AP_OK);
    }
    for (size_t i = 0; i < p->batch; i++) {
        batch[i] = &p->tasks[p->singly + i];
        batch[i]->run = count_run;
    }
    if (p->point != NULL)
        check_point_hold_me(p->point);
    p->rc = ap_pool_push_batch(p->pool, batch, p->batch);
    CHECK(p->rc == AP_OK || p->rc == AP_E_CLOSED);
    ap_u32_store_release(&p->done, 1);
    return NULL;
}

static uint64_t accepted(const pushes *p) {
    return p->singly + (p->rc == AP_OK ? p->batch : 0);
}

/* `others_run`: what a producer of the other shard pushes meanwhile is run meanwhile. */
static void stopped_producer(const char *point, size_t singly, size_t batch, bool others_run) {
    for (int closes = 0; closes < 2; closes++) {
        crew c = {.no_search = closes == 1};
        pushes *p = calloc(3, sizeof *p);
        pthread_t threads[3];
        CHECK(p != NULL);
        ap_u64_store_relaxed(&crew_ran, 0);
        crew_start(&c, &(ap_pool_options){.max_workers = 2, .shards = 2, .cpus = 4}, 2);
        crew_wait_idle(c.pool, 2);

        p[0].point = point;
        p[0].singly = singly;
        p[0].batch = batch;
        p[1].batch = 100; /* of the next producer, so to the other shard */
        p[2].batch = 10;  /* to the same shard: is accepted or waits for the stopped push */
        for (int i = 0; i < 3; i++)
            p[i].pool = c.pool;
        threads[0] = check_thread(push, &p[0]);
        check_point_await_held();
        threads[1] = check_thread(push, &p[1]);
        if (others_run) {
            check_join(threads[1]);
            while (ap_u64_load_acquire(&crew_ran) < singly + 100)
                check_pause_ns(100000);
            uint64_t begin = check_cpu_ns();
            check_pause_ns(100000000);
            CHECK(check_cpu_ns() - begin < 60000000); /* nobody spins */
        }
        threads[2] = check_thread(push, &p[2]);
        check_pause_ns(1000000);
        if (closes) {
            ap_pool_close(c.pool);
            check_pause_ns(5000000);
            if (strcmp(point, "injector-reserved") == 0)
                CHECK_EQ(ap_u64_load_seq_cst(&c.pool->idle) & AP_IDLE_ENDED, 0);
        }
        check_point_let_go();
        check_join(threads[0]);
        if (!others_run)
            check_join(threads[1]);
        check_join(threads[2]);
        if (strcmp(point, "injector-reserve") != 0)
            CHECK(p[0].rc == AP_OK); /* reserved before the closing: accepted */
        crew_wait(&crew_ran, accepted(&p[0]) + accepted(&p[1]) + accepted(&p[2]));
        crew_stop(&c);
        free(p);
    }
    CHECK_EQ(ap_memory_live(), 0);
}

TEST(points, a_producer_stopped_before_it_reserves, 20) {
    stopped_producer("injector-reserve", 3, 1, true);
}

TEST(points, a_producer_stopped_before_it_fills_its_slot, 20) {
    stopped_producer("injector-reserved", 0, 1, true);
    stopped_producer("injector-reserved", 50, 20, true);
}

TEST(points, a_producer_stopped_with_the_last_slot_of_a_block, 20) {
    stopped_producer("injector-reserved", AP_BLOCK_SLOTS - 1, 1, true);
}

TEST(points, a_producer_stopped_while_it_moves_the_tail, 20) {
    stopped_producer("injector-crossing", 100, 200, true);
}

TEST(points, a_producer_stopped_between_two_blocks, 20) {
    stopped_producer("injector-filled", 100, 200, true);
}

TEST(points, a_producer_stopped_before_it_marks_its_queue, 20) {
    stopped_producer("push-mark", 1, 1, true);
}

TEST(points, a_producer_stopped_before_it_looks_for_idle_workers, 20) {
    stopped_producer("push-notify", 1, 1, true);
}

/* From here on it has taken it upon itself to wake a worker, and others leave that to it. */
TEST(points, a_producer_stopped_while_it_wakes_a_worker, 20) {
    stopped_producer("idle-wake", 0, 1, false);
    stopped_producer("idle-token-given", 0, 1, false);
}
#endif
typedef int test_points_is_not_empty;
