/* Two rings, each against a queue: push, pop, take, steal either way. */
#include "fuzz.h"
#include "sched/ring.h"

#define TASKS 1024

static ap_task tasks[TASKS];

/* A ring and the numbers of the tasks in it, oldest first. */
typedef struct twin {
    ap_ring *ring;
    uint32_t slots;
    uint32_t count;
    uint32_t tasks[AP_RING_SLOTS_MAX];
} twin;

static void add(twin *t, uint32_t task) {
    FUZZ_CHECK(t->count < t->slots);
    t->tasks[t->count++] = task;
}

static uint32_t remove_first(twin *t) {
    uint32_t task = t->tasks[0];
    memmove(t->tasks, t->tasks + 1, --t->count * sizeof *t->tasks);
    return task;
}

static void check(twin *t) {
    FUZZ_EQ(ap_ring_pending(t->ring), t->count);
    FUZZ_EQ(ap_ring_room(t->ring), t->slots - t->count);
    FUZZ_EQ(ap_ring_look(t->ring), t->count > 0 ? AP_QUEUE_READY : AP_QUEUE_EMPTY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, data + size};
    twin twins[2];
    uint32_t next = 0;
    fuzz_begin();
    for (int i = 0; i < 2; i++) {
        twins[i].slots = 2u << fuzz_below(&in, 8);
        twins[i].count = 0;
        twins[i].ring = ap_memory_alloc(ap_ring_size(twins[i].slots));
        FUZZ_CHECK(twins[i].ring != NULL);
        ap_ring_init(twins[i].ring, twins[i].slots, fuzz_first_index(&in));
    }
    while (fuzz_more(&in)) {
        uint8_t op = fuzz_byte(&in);
        twin *t = &twins[op / 128], *other = &twins[1 - op / 128];
        switch (op % 8) {
        case 0:
        case 1:
        case 2: {
            uint32_t n = fuzz_below(&in, t->slots - t->count + 1);
            for (uint32_t i = 0; i < n; i++)
                ap_ring_stage(t->ring, i, &tasks[(next + i) % TASKS]);
            check(t); /* what is staged is not seen */
            ap_ring_publish(t->ring, n);
            for (uint32_t i = 0; i < n; i++)
                add(t, next++ % TASKS);
            break;
        }
        case 3:
        case 4: {
            ap_task *task = op % 8 == 3 ? ap_ring_pop_try(t->ring) : ap_ring_take_try(t->ring);
            FUZZ_CHECK(task == (t->count == 0 ? NULL : &tasks[t->tasks[0]]));
            if (task != NULL)
                (void)remove_first(t);
            break;
        }
        default: {
            uint32_t max = fuzz_below(&in, t->slots - t->count + 1);
            uint32_t wanted = (other->count + 1) / 2;
            ap_task *first = NULL;
            if (wanted > max + 1)
                wanted = max + 1;
            uint32_t n = ap_ring_steal_try(other->ring, t->ring, max, &first);
            FUZZ_EQ(n, wanted);
            check(t);
            if (n == 0)
                break;
            FUZZ_CHECK(first == &tasks[remove_first(other)]);
            ap_ring_publish(t->ring, n - 1);
            for (uint32_t i = 1; i < n; i++)
                add(t, remove_first(other));
        }
        }
        check(t);
        check(other);
    }
    for (int i = 0; i < 2; i++) {
        for (; twins[i].count > 0; (void)remove_first(&twins[i]))
            FUZZ_CHECK(ap_ring_pop_try(twins[i].ring) == &tasks[twins[i].tasks[0]]);
        check(&twins[i]);
        ap_memory_free(twins[i].ring);
    }
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
