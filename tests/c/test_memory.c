/* Out of memory: every operation that may allocate, with each of its allocations failing in turn.
 *
 * An operation is repeated with its n-th allocation failing, for n = 1, 2, ..., until it needs no
 * more.  Each time it says AP_E_NOMEM and nothing has changed: counters, what is queued, memory in
 * use but for blocks kept for the next push.  Then it is done without a failure, every task comes
 * out once and in order, and nothing is left.
 */
#include <string.h>

#include "check.h"
#include "crew.h"
#include "sync/cpu.h"
#include "sync/memory.h"

typedef struct numbered {
    ap_task task;
    uint32_t number;
    ap_atomic_u32 runs;
} numbered;

static void numbered_run(ap_task *task, ap_worker *worker) {
    (void)worker;
    CHECK_EQ(ap_u32_add_relaxed(&((numbered *)task)->runs, 1), 0);
    (void)ap_u64_add_acq_rel(&crew_ran, 1);
}

#define MOST 2000
static numbered items[MOST];
static ap_task *pointers[MOST];

static void items_make(void) {
    for (uint32_t i = 0; i < MOST; i++) {
        items[i] = (numbered){.task = {numbered_run}, .number = i};
        pointers[i] = &items[i].task;
    }
}

/* What must not change when an operation fails. */
typedef struct picture {
    ap_pool_stats stats;
    uint64_t pending;
    int closed;
    int quiet;
    ap_worker *current;
} picture;

static picture picture_of(ap_pool *pool) {
    picture p;
    memset(&p, 0, sizeof p);
    ap_pool_read_stats(pool, &p.stats);
    p.pending = ap_pool_pending(pool);
    p.closed = ap_pool_is_closed(pool);
    p.quiet = ap_pool_is_quiet(pool);
    p.current = ap_worker_current();
    return p;
}

TEST(memory, a_pool_is_made_or_is_not, 20) {
    static const ap_pool_options kinds[] = {
        {.max_workers = 1},
        {.max_workers = 8, .shards = 8},
        {.max_workers = 4, .in_order = 1},
        {.max_workers = AP_MAX_WORKERS, .shards = 64},
    };
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        ap_pool *pool = NULL;
        uint64_t n = 1;
        for (;; n++) {
            ap_memory_fail_at(n);
            int rc = ap_pool_new(&kinds[kind], &pool);
            if (rc == AP_OK)
                break;
            CHECK(rc == AP_E_NOMEM);
            CHECK(pool == NULL);
            CHECK_EQ(ap_memory_live(), 0);
        }
        ap_memory_fail_at(0);
        CHECK(n > 3); /* the pool, its workers, its shards, and a block for each */
        ap_pool_release(pool);
        CHECK_EQ(ap_memory_live(), 0);
    }
}

TEST(memory, a_worker_begins_or_does_not, 20) {
    ap_pool *pool;
    ap_worker *workers[4];
    CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 4}, &pool) == AP_OK);
    for (uint32_t i = 0; i < 4; i++) {
        picture before = picture_of(pool);
        uint64_t live = ap_memory_live();
        workers[i] = NULL;
        ap_memory_fail_at(1);
        CHECK(ap_worker_begin(pool, &workers[i]) == AP_E_NOMEM);
        CHECK(workers[i] == NULL);
        CHECK_EQ(ap_memory_live(), live);
        picture after = picture_of(pool);
        CHECK(memcmp(&before, &after, sizeof before) == 0);
        ap_memory_fail_at(2);
        CHECK(ap_worker_begin(pool, &workers[i]) == AP_OK); /* needs one */
        ap_memory_fail_at(0);
        CHECK_EQ(ap_worker_index(workers[i]), i);
    }
    ap_pool_close(pool);
    for (uint32_t i = 0; i < 4; i++)
        ap_worker_end(workers[3 - i]);
    ap_pool_release(pool); /* would stay, had a failed beginning kept a reference */
    CHECK_EQ(ap_memory_live(), 0);
}

static ap_pool_options push_options;
static bool push_by_worker;

/* A pool with `queued` tasks, of which the caller is a worker if push_by_worker. */
static ap_pool *pool_with(uint32_t queued, ap_worker **worker) {
    ap_pool *pool;
    items_make();
    *worker = NULL;
    CHECK(ap_pool_new(&push_options, &pool) == AP_OK);
    if (push_by_worker)
        CHECK(ap_worker_begin(pool, worker) == AP_OK);
    if (queued > 0)
        CHECK(ap_pool_push_batch(pool, pointers, queued) == AP_OK);
    return pool;
}

/* Takes everything out, each task once, in order where the pool promises one. */
static void drain(ap_pool *pool, ap_worker *worker, uint32_t count) {
    bool ordered = push_options.max_workers == 1 || push_options.in_order != 0;
    CHECK_EQ(ap_pool_pending(pool), count);
    if (worker == NULL)
        CHECK(ap_worker_begin(pool, &worker) == AP_OK);
    ap_pool_close(pool);
    for (uint32_t i = 0; i < count; i++) {
        numbered *item = (numbered *)ap_worker_take_try(worker);
        CHECK(item != NULL);
        CHECK(item->number < count && (!ordered || item->number == i));
        CHECK_EQ(ap_u32_add_relaxed(&item->runs, 1), 0);
    }
    CHECK(ap_worker_take_try(worker) == NULL);
    CHECK(ap_worker_park(worker) == AP_E_CLOSED);
    ap_worker_end(worker);
    ap_pool_release(pool);
    CHECK_EQ(ap_memory_live(), 0);
}

/* Pushes a batch of `size` behind `queued` tasks, which needs `blocks` new blocks. */
static void push_in_turn(uint32_t queued, uint32_t size, uint64_t blocks) {
    for (uint64_t n = 1; n <= blocks + 1; n++) {
        ap_worker *worker;
        ap_pool *pool = pool_with(queued, &worker);
        picture before = picture_of(pool);
        uint64_t live = ap_memory_live();
        uint64_t asked = ap_memory_asked();
        ap_memory_fail_at(n);
        int rc = size == 1 ? ap_pool_push(pool, pointers[queued])
                           : ap_pool_push_batch(pool, pointers + queued, size);
        if (n <= blocks) {
            CHECK(rc == AP_E_NOMEM);
            picture after = picture_of(pool);
            CHECK(memcmp(&before, &after, sizeof before) == 0);
            CHECK_EQ(ap_memory_live(), live + n - 1); /* what it had got is kept at hand */
            CHECK(ap_pool_push_batch(pool, pointers + queued, size) == AP_OK);
            CHECK_EQ(ap_memory_asked() - asked, blocks + 1); /* and so taken by the next */
        } else {
            CHECK(rc == AP_OK);
            ap_memory_fail_at(0);
            CHECK_EQ(ap_memory_asked() - asked, blocks);
        }
        drain(pool, worker, queued + size);
    }
}

static void pushes_in_turn(void) {
    push_in_turn(0, 1, 0);
    push_in_turn(126, 1, 1); /* fills the block */
    push_in_turn(0, 127, 1);
    push_in_turn(100, 300, 3);
    push_in_turn(126, 1800, 15);
}

TEST(memory, a_push_from_outside_is_accepted_or_not, 20) {
    push_by_worker = false;
    push_options = (ap_pool_options){.max_workers = 1};
    pushes_in_turn();
    push_options = (ap_pool_options){.max_workers = 4, .shards = 4};
    pushes_in_turn();
    push_options = (ap_pool_options){.max_workers = 4, .in_order = 1};
    pushes_in_turn();
    push_options = (ap_pool_options){.max_workers = 4, .first_index = UINT64_MAX - 300};
    pushes_in_turn();
}

TEST(memory, a_push_by_a_worker_is_accepted_or_not, 20) {
    push_by_worker = true;
    push_options = (ap_pool_options){.max_workers = 1}; /* to the shard */
    pushes_in_turn();
    push_options = (ap_pool_options){.max_workers = 4, .in_order = 1}; /* the same */
    pushes_in_turn();
    push_options = (ap_pool_options){.max_workers = 4}; /* to the ring, if it fits */
    push_in_turn(0, 256, 0);
    push_in_turn(0, 257, 2);
    push_in_turn(256, 1, 0);
    push_in_turn(256, 127, 1);
    push_in_turn(200, 1700, 13);
}

/* ---- with workers at work ---------------------------------------------------------------- */

typedef struct pusher {
    ap_pool *pool;
    uint32_t first;
    uint32_t count;
    pthread_t thread;
} pusher;

static ap_atomic_u64 refused;
static ap_atomic_u32 pushers_left;

static void *push_all(void *argument) {
    pusher *p = argument;
    for (uint32_t i = 0; i < p->count;) {
        uint32_t n = i % 400 + 1 < p->count - i ? i % 400 + 1 : p->count - i;
        int rc = ap_pool_push_batch(p->pool, pointers + p->first + i, n);
        CHECK(rc == AP_OK || rc == AP_E_NOMEM);
        if (rc == AP_OK)
            i += n;
        else
            (void)ap_u64_add_relaxed(&refused, 1);
    }
    (void)ap_u32_sub_acq_rel(&pushers_left, 1);
    return NULL;
}

/* While several push and others work, every few allocations fail. */
TEST(memory, runs_out_again_and_again_under_load, 30) {
    uint64_t rounds = 5 * check_scale(100);
    for (uint64_t round = 0; round < rounds; round++) {
        crew c = {.no_search = round % 2 == 0};
        pusher p[4];
        items_make();
        ap_u64_store_relaxed(&crew_ran, 0);
        crew_start(&c, &(ap_pool_options){.max_workers = 3, .shards = 2}, 3);
        crew_wait_begun(c.pool, 3); /* or a worker might not begin */
        ap_u32_store_relaxed(&pushers_left, 4);
        for (uint32_t i = 0; i < 4; i++) {
            p[i] = (pusher){.pool = c.pool, .first = i * MOST / 4, .count = MOST / 4};
            p[i].thread = check_thread(push_all, &p[i]);
        }
        for (uint64_t n = 0; ap_u32_load_acquire(&pushers_left) != 0; n++) {
            ap_memory_fail_at(1 + n % 3);
            ap_cpu_yield();
        }
        ap_memory_fail_at(0);
        for (uint32_t i = 0; i < 4; i++)
            check_join(p[i].thread);
        crew_wait(&crew_ran, MOST);
        crew_stop(&c);
        for (uint32_t i = 0; i < MOST; i++)
            CHECK_EQ(ap_u32_load_relaxed(&items[i].runs), 1);
        CHECK_EQ(ap_memory_live(), 0);
    }
    CHECK(ap_u64_load_relaxed(&refused) > 0);
}
