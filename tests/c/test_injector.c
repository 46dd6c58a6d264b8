/* csrc/sched/injector. */
#include <string.h>

#include "check.h"
#include "sched/injector.h"
#include "sync/memory.h"

#define MANY 1000

static ap_task tasks[MANY];
static ap_task *pointers[MANY];
static ap_block_store store;
static ap_injector injector;

static void setup(uint64_t first_index) {
    for (int i = 0; i < MANY; i++)
        pointers[i] = &tasks[i];
    CHECK(ap_injector_init(&injector, &store, first_index) == AP_OK);
}

static void teardown(void) {
    ap_injector_destroy(&injector);
    ap_block_store_destroy(&store);
    memset(&store, 0, sizeof store);
    CHECK_EQ(ap_memory_live(), 0);
}

static uint32_t claim(ap_task **out, uint32_t max, bool halve) {
    bool moved = false;
    return ap_injector_claim_try(&injector, out, max, halve, &moved);
}

static void claim_in_order(size_t from, size_t to, uint32_t max) {
    while (from < to) {
        ap_task *out[AP_CLAIM_MAX];
        uint32_t n = claim(out, max, false);
        CHECK(n > 0 && n <= max && from + n <= to);
        for (uint32_t i = 0; i < n; i++)
            CHECK(out[i] == &tasks[from++]);
    }
}

TEST(injector, is_first_in_first_out_across_blocks, 10) {
    setup(0);
    CHECK(ap_injector_look(&injector) == AP_QUEUE_EMPTY);
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < MANY; i++)
            CHECK(ap_injector_push(&injector, &pointers[i], 1) == AP_OK);
        CHECK(ap_injector_look(&injector) == AP_QUEUE_READY);
        CHECK_EQ(ap_injector_pending(&injector), MANY);
        CHECK_EQ(ap_injector_pushed(&injector), (round + 1) * MANY);
        claim_in_order(0, MANY, 1 + 7 * (uint32_t)round);
        CHECK_EQ(ap_injector_pending(&injector), 0);
        CHECK(ap_injector_look(&injector) == AP_QUEUE_EMPTY);
        CHECK(ap_injector_seems_empty(&injector));
    }
    teardown();
}

TEST(injector, batches_of_any_size_at_any_offset, 20) {
    for (size_t size = 1; size <= 400; size += size < 130 ? 9 : 61)
        for (size_t before = 0; before < AP_BLOCK_SLOTS + 2; before += before < 120 ? 13 : 1) {
            setup(UINT64_MAX - 300); /* wraps on the way */
            for (size_t i = 0; i < before; i++)
                CHECK(ap_injector_push(&injector, &pointers[i], 1) == AP_OK);
            if (before % 2 == 1)
                claim_in_order(0, before, 32);
            CHECK(ap_injector_push(&injector, pointers + before, size) == AP_OK);
            CHECK(ap_injector_push(&injector, pointers + before + size, 3) == AP_OK);
            CHECK_EQ(ap_injector_pushed(&injector), before + size + 3);
            claim_in_order(before % 2 == 1 ? before : 0, before + size + 3, 32);
            CHECK(ap_injector_look(&injector) == AP_QUEUE_EMPTY);
            teardown();
        }
}

TEST(injector, claims_at_most_max_and_half, 5) {
    ap_task *out[AP_CLAIM_MAX];
    setup(0);
    CHECK_EQ(claim(out, 32, true), 0);
    CHECK(ap_injector_push(&injector, pointers, 100) == AP_OK);
    CHECK_EQ(claim(out, 32, true), 32);
    CHECK_EQ(claim(out, 32, false), 32);
    CHECK_EQ(claim(out, 32, true), 18);
    CHECK_EQ(claim(out, 5, true), 5);
    CHECK_EQ(claim(out, 32, true), 7);
    CHECK_EQ(claim(out, 32, true), 3);
    CHECK_EQ(claim(out, 32, true), 2);
    CHECK_EQ(claim(out, 32, true), 1);
    CHECK_EQ(claim(out, 32, true), 0);
    teardown();
}

TEST(injector, closed_refuses_and_keeps_what_it_has, 5) {
    setup(0);
    CHECK(ap_injector_push(&injector, pointers, 130) == AP_OK);
    ap_injector_close(&injector);
    ap_injector_close(&injector);
    CHECK(ap_injector_push(&injector, pointers, 1) == AP_E_CLOSED);
    CHECK(ap_injector_push(&injector, pointers, 400) == AP_E_CLOSED);
    CHECK_EQ(ap_injector_pending(&injector), 130);
    claim_in_order(0, 130, 32);
    CHECK(ap_injector_push(&injector, pointers, 1) == AP_E_CLOSED);
    CHECK(ap_injector_look(&injector) == AP_QUEUE_EMPTY);
    CHECK(ap_injector_seems_empty(&injector));
    teardown();
}

TEST(injector, a_reserved_slot_is_backlog, 5) {
    ap_task *out[AP_CLAIM_MAX];
    setup(0);
    /* What a producer does that is stopped after its reservation. */
    (void)ap_u64_add_seq_cst(&injector.tail, 2);
    CHECK(ap_injector_look(&injector) == AP_QUEUE_RESERVED);
    CHECK(ap_injector_push(&injector, pointers + 1, 1) == AP_OK);
    CHECK(ap_injector_look(&injector) == AP_QUEUE_RESERVED);
    CHECK_EQ(claim(out, 32, false), 0);
    ap_block *block = ap_ptr_load_relaxed(&injector.head_block);
    ap_ptr_store_release(&block->slots[0], &tasks[0]);
    CHECK(ap_injector_look(&injector) == AP_QUEUE_READY);
    claim_in_order(0, 2, 32);
    teardown();
}

TEST(injector, out_of_memory_changes_nothing, 10) {
    setup(0);
    CHECK(ap_injector_push(&injector, pointers, 100) == AP_OK);
    for (uint64_t n = 1; n <= 4; n++) {
        ap_memory_fail_at(n); /* 500 more need 4 blocks; recycled ones come first */
        int rc = ap_injector_push(&injector, pointers + 100, 500);
        CHECK(rc == AP_E_NOMEM);
        CHECK_EQ(ap_injector_pushed(&injector), 100);
        ap_block_store_destroy(&store);
        ap_memory_free(ap_ptr_exchange_relaxed(&injector.spare, NULL));
    }
    ap_memory_fail_at(0);
    CHECK(ap_injector_push(&injector, pointers + 100, 500) == AP_OK);
    claim_in_order(0, 600, 32);
    teardown();
}

TEST(injector, blocks_are_recycled, 10) {
    setup(0);
    for (int round = 0; round < 500; round++) {
        CHECK(ap_injector_push(&injector, pointers, 300) == AP_OK);
        claim_in_order(0, 300, 32);
    }
    CHECK(ap_memory_live() <= 6);
    teardown();
}

/* ---- stress: every task exactly once, in order per producer ------------------------------- */

#define PRODUCERS 4
#define PER_PRODUCER 200000

typedef struct job {
    ap_task task;
    uint32_t producer;
    uint32_t number;
} job;

static job *jobs;
static uint64_t per_producer;
static ap_atomic_u32 *seen;
static ap_atomic_u64 claimed;
static ap_atomic_u64 accepted;
static ap_atomic_u64 closed_at; /* close after this many claims; 0: never */
static ap_atomic_u32 producers_left;

static void *produce(void *argument) {
    uint32_t id = (uint32_t)(uintptr_t)argument;
    uint32_t random = id + 1;
    uint64_t i = 0;
    while (i < per_producer) {
        ap_task *batch[300];
        uint64_t n = check_random(&random) % 8 == 0 ? 1 + check_random(&random) % 300 : 1;
        if (n > per_producer - i)
            n = per_producer - i;
        for (uint64_t k = 0; k < n; k++) {
            job *j = &jobs[id * per_producer + i + k];
            j->producer = id;
            j->number = (uint32_t)(i + k);
            batch[k] = &j->task;
        }
        int rc = ap_injector_push(&injector, batch, n);
        if (rc == AP_E_CLOSED)
            break;
        CHECK(rc == AP_OK);
        (void)ap_u64_add_relaxed(&accepted, n);
        i += n;
    }
    (void)ap_u32_sub_acq_rel(&producers_left, 1);
    return NULL;
}

static void *consume(void *argument) {
    uint32_t random = (uint32_t)(uintptr_t)argument + 77;
    uint32_t last[PRODUCERS] = {0};
    for (;;) {
        ap_task *out[AP_CLAIM_MAX];
        bool over = ap_u32_load_acquire(&producers_left) == 0;
        uint32_t n = claim(out, 1 + check_random(&random) % 32, check_random(&random) % 2 == 0);
        for (uint32_t i = 0; i < n; i++) {
            job *j = (job *)out[i];
            CHECK(j->number + 1 > last[j->producer]); /* in order, as far as we can see */
            last[j->producer] = j->number + 1;
            CHECK_EQ(ap_u32_add_relaxed(&seen[j->producer * per_producer + j->number], 1), 0);
        }
        uint64_t sum = ap_u64_add_relaxed(&claimed, n) + n;
        uint64_t limit = ap_u64_load_relaxed(&closed_at);
        if (limit != 0 && sum >= limit)
            ap_injector_close(&injector);
        if (n == 0 && over && ap_injector_look(&injector) == AP_QUEUE_EMPTY)
            return NULL;
        if (n == 0)
            ap_cpu_yield();
    }
}

static void stress(uint64_t first_index, uint64_t close_at) {
    pthread_t threads[2 * PRODUCERS];
    setup(first_index);
    per_producer = check_scale(PER_PRODUCER);
    jobs = calloc(PRODUCERS * per_producer, sizeof *jobs);
    seen = calloc(PRODUCERS * per_producer, sizeof *seen);
    CHECK(jobs != NULL && seen != NULL);
    ap_u64_store_relaxed(&closed_at, close_at);
    ap_u32_store_relaxed(&producers_left, PRODUCERS);
    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        threads[2 * i] = check_thread(produce, (void *)i);
        threads[2 * i + 1] = check_thread(consume, (void *)i);
    }
    for (int i = 0; i < 2 * PRODUCERS; i++)
        check_join(threads[i]);
    CHECK_EQ(ap_u64_load_relaxed(&claimed), ap_u64_load_relaxed(&accepted));
    CHECK_EQ(ap_injector_pushed(&injector), ap_u64_load_relaxed(&accepted));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < PRODUCERS * per_producer; i++)
        sum += ap_u32_load_relaxed(&seen[i]);
    CHECK_EQ(sum, ap_u64_load_relaxed(&accepted));
    if (close_at == 0)
        CHECK_EQ(sum, PRODUCERS * per_producer);
    free(jobs);
    free(seen);
    teardown();
}

TEST(injector, exactly_once_under_stress, 30) {
    stress(UINT64_MAX - 20000, 0);
}

TEST(injector, close_races_pushes, 30) {
    stress(0, check_scale(PER_PRODUCER));
}
