/* csrc/sched/ring. */
#include "check.h"
#include "sched/ring.h"
#include "sync/memory.h"

static ap_task tasks[1024];

static ap_ring *ring_new(uint32_t slots, uint64_t first) {
    ap_ring *ring = ap_memory_alloc(ap_ring_size(slots));
    CHECK(ring != NULL);
    ap_ring_init(ring, slots, first);
    return ring;
}

static bool push(ap_ring *ring, ap_task *task) {
    if (ap_ring_room(ring) == 0)
        return false;
    ap_ring_stage(ring, 0, task);
    ap_ring_publish(ring, 1);
    return true;
}

TEST(ring, is_first_in_first_out_and_wraps, 5) {
    static const uint32_t sizes[] = {2, 4, 256};
    for (int s = 0; s < 3; s++) {
        uint32_t slots = sizes[s];
        ap_ring *ring = ring_new(slots, UINT64_MAX - 3);
        CHECK(ap_ring_pop_try(ring) == NULL);
        CHECK(ap_ring_look(ring) == AP_QUEUE_EMPTY);
        for (int round = 0; round < 20; round++) {
            for (uint32_t i = 0; i < slots; i++) {
                CHECK_EQ(ap_ring_room(ring), slots - i);
                CHECK(push(ring, &tasks[i]));
            }
            CHECK(!push(ring, &tasks[0]));
            CHECK_EQ(ap_ring_pending(ring), slots);
            CHECK(ap_ring_look(ring) == AP_QUEUE_READY);
            for (uint32_t i = 0; i < slots; i++)
                CHECK((i % 2 == 0 ? ap_ring_pop_try(ring) : ap_ring_take_try(ring)) == &tasks[i]);
            CHECK(ap_ring_pop_try(ring) == NULL && ap_ring_take_try(ring) == NULL);
        }
        ap_memory_free(ring);
    }
}

TEST(ring, staged_tasks_are_invisible_until_published, 5) {
    ap_ring *ring = ring_new(8, 5);
    for (uint32_t i = 0; i < 8; i++)
        ap_ring_stage(ring, i, &tasks[i]);
    CHECK(ap_ring_take_try(ring) == NULL);
    CHECK(ap_ring_look(ring) == AP_QUEUE_EMPTY);
    ap_ring_publish(ring, 8);
    for (uint32_t i = 0; i < 8; i++)
        CHECK(ap_ring_take_try(ring) == &tasks[i]);
    ap_memory_free(ring);
}

TEST(ring, steal_takes_the_older_half, 5) {
    ap_ring *from = ring_new(16, 3);
    ap_ring *into = ring_new(16, 9);
    ap_task *first = NULL;
    CHECK_EQ(ap_ring_steal_try(from, into, 16, &first), 0);
    for (int i = 0; i < 13; i++)
        CHECK(push(from, &tasks[i]));
    CHECK_EQ(ap_ring_steal_try(from, into, 16, &first), 7);
    CHECK(first == &tasks[0]);
    ap_ring_publish(into, 6);
    for (int i = 1; i < 7; i++)
        CHECK(ap_ring_pop_try(into) == &tasks[i]);
    CHECK_EQ(ap_ring_steal_try(from, into, 1, &first), 2); /* room for one beside the first */
    CHECK(first == &tasks[7]);
    ap_ring_publish(into, 1);
    CHECK(ap_ring_pop_try(into) == &tasks[8]);
    CHECK_EQ(ap_ring_steal_try(from, into, 0, &first), 1);
    CHECK(first == &tasks[9]);
    CHECK_EQ(ap_ring_pending(from), 3);
    ap_memory_free(from);
    ap_memory_free(into);
}

/* ---- stress: one owner, one outside taker, two thieves with rings of their own ------------ */

#define TOTAL 100000

static ap_ring *rings[3];
static ap_task *items;
static uint64_t total;
static ap_atomic_u32 *seen;
static ap_atomic_u64 done;

static void mark(ap_task *task) {
    CHECK_EQ(ap_u32_add_relaxed(&seen[task - items], 1), 0);
    (void)ap_u64_add_relaxed(&done, 1);
}

static void *owner(void *argument) {
    (void)argument;
    uint32_t random = 5;
    uint64_t next = 0;
    while (ap_u64_load_relaxed(&done) < total) {
        uint32_t n = check_random(&random) % 5;
        uint32_t room = ap_ring_room(rings[0]);
        if (n > room)
            n = room;
        if (n > total - next)
            n = (uint32_t)(total - next);
        for (uint32_t i = 0; i < n; i++)
            ap_ring_stage(rings[0], i, &items[next++]);
        if (n > 0)
            ap_ring_publish(rings[0], n);
        ap_task *task = check_random(&random) % 2 == 0 ? ap_ring_pop_try(rings[0]) : NULL;
        if (task != NULL)
            mark(task);
        if (n == 0)
            ap_cpu_yield();
    }
    return NULL;
}

static void *thief(void *argument) {
    uintptr_t self = (uintptr_t)argument;
    uint32_t random = (uint32_t)self;
    while (ap_u64_load_relaxed(&done) < total) {
        ap_task *task = ap_ring_pop_try(rings[self]);
        uint32_t victim = check_random(&random) % 3;
        if (task == NULL && victim != self) {
            uint32_t n =
                ap_ring_steal_try(rings[victim], rings[self], ap_ring_room(rings[self]), &task);
            if (n > 1)
                ap_ring_publish(rings[self], n - 1);
            if (n == 0)
                task = NULL;
        }
        if (task != NULL)
            mark(task);
        else
            ap_cpu_yield();
    }
    return NULL;
}

static void *taker(void *argument) {
    (void)argument;
    uint32_t random = 99;
    while (ap_u64_load_relaxed(&done) < total) {
        ap_task *task = ap_ring_take_try(rings[check_random(&random) % 3]);
        if (task != NULL)
            mark(task);
        else
            ap_cpu_yield();
    }
    return NULL;
}

static void stress(uint32_t slots) {
    total = check_scale(TOTAL);
    items = calloc(total, sizeof *items);
    seen = calloc(total, sizeof *seen);
    CHECK(items != NULL && seen != NULL);
    for (uint32_t i = 0; i < 3; i++)
        rings[i] = ring_new(slots, UINT64_MAX - 1000 * i);
    pthread_t threads[4] = {
        check_thread(owner, NULL),
        check_thread(thief, (void *)1),
        check_thread(thief, (void *)2),
        check_thread(taker, NULL),
    };
    for (int i = 0; i < 4; i++)
        check_join(threads[i]);
    CHECK_EQ(ap_u64_load_relaxed(&done), total);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(ap_ring_look(rings[i]) == AP_QUEUE_EMPTY);
        ap_memory_free(rings[i]);
    }
    free(items);
    free(seen);
}

TEST(ring, exactly_once_under_stress, 30) {
    stress(256);
}

TEST(ring, exactly_once_with_two_slots, 30) {
    stress(2);
}
