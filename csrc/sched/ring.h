/* A worker's ring of tasks: the owner pushes, everybody pops, first in, first out.
 *
 * Overview.  A power of two of slots, at most 256.  Positions are 64 bits and never reused, so
 * a compare-and-swap on the head has no ABA; they may wrap.
 *
 *     owner pushes                          owner pops, others take or steal
 *     1 load head acquire: is there room    a load head relaxed (others: acquire), tail
 *     2 store slots release                   (owner: relaxed, others: acquire)
 *     3 exchange tail seq_cst               b load slots relaxed
 *                                           c CAS head acq_rel
 *
 * - (3) is an exchange, also for one task, because a load of the idle word follows it (idle.h):
 *   the spawner may block right after, and then only another worker can run the task.
 * - A slot is reused only when the head has passed it, so if (b) read a reused slot, (c) fails.
 *
 * Checked by tests/model/model_ring.c, tests/c/test_ring.c.
 */
#ifndef AP_SCHED_RING_H
#define AP_SCHED_RING_H

#include <stdbool.h>
#include <stddef.h>

#include "affinitypool.h"
#include "sched/injector.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

#define AP_RING_SLOTS_MAX 256

typedef struct ap_ring {
    AP_ALIGN_LINE ap_atomic_u64 head;
    AP_ALIGN_LINE ap_atomic_u64 tail;
    uint64_t mask;
    AP_ALIGN_LINE ap_atomic_ptr slots[]; /* mask + 1 of them */
} ap_ring;
_Static_assert(offsetof(ap_ring, tail) == AP_LINE, "thieves' CAS does not touch the tail's line");
_Static_assert(offsetof(ap_ring, slots) == 2 * AP_LINE, "slots start on a line");

static inline size_t ap_ring_size(uint32_t slots) {
    return sizeof(ap_ring) + slots * sizeof(ap_atomic_ptr);
}

/* `slots` is a power of two from 2 to AP_RING_SLOTS_MAX. */
void ap_ring_init(ap_ring *ring, uint32_t slots, uint64_t first_index);

/* Owner: how many more tasks fit. */
static inline uint32_t ap_ring_room(ap_ring *ring) {
    /* pairs with the CAS of a thief: orders its read of a slot before our reuse of it */
    uint64_t head = ap_u64_load_acquire(&ring->head);
    return (uint32_t)(ring->mask + 1 - (ap_u64_load_relaxed(&ring->tail) - head));
}

/* Owner: writes a task `ahead` slots past the end, where there must be room. */
static inline void ap_ring_stage(ap_ring *ring, uint32_t ahead, ap_task *task) {
    uint64_t tail = ap_u64_load_relaxed(&ring->tail);
    /* release: with the tail's exchange, orders the task's contents before its taking */
    ap_ptr_store_release(&ring->slots[(tail + ahead) & ring->mask], task);
}

/* Owner: makes `count` staged tasks visible.  The caller then looks at the idle word. */
static inline void ap_ring_publish(ap_ring *ring, uint32_t count) {
    uint64_t tail = ap_u64_load_relaxed(&ring->tail);
    AP_POINT("ring-publish");
    /* pairs with the loads of tail by thieves (orders the slots before them) and with
     * ap_ring_look (one total order with the idle word) */
    (void)ap_u64_exchange_seq_cst(&ring->tail, tail + count);
}

/* Owner: takes the oldest task, or NULL. */
static inline ap_task *ap_ring_pop_try(ap_ring *ring) {
    uint64_t head = ap_u64_load_relaxed(&ring->head);
    uint64_t tail = ap_u64_load_relaxed(&ring->tail);
    while (head != tail) {
        ap_task *task = ap_ptr_load_relaxed(&ring->slots[head & ring->mask]);
        AP_POINT("ring-pop");
        /* pairs with the CAS of thieves: one owner per slot */
        if (AP_LIKELY(ap_u64_cas_acq_rel(&ring->head, &head, head + 1)))
            return task;
    }
    return NULL;
}

/* Anybody: takes the oldest task, or NULL; NULL also after a lost race. */
ap_task *ap_ring_take_try(ap_ring *ring);

/* The owner of `into`, which has room for `max` tasks and is not `from`: takes the older half
 * (rounded up), at most max + 1.  The first is given back in *first, the others are staged in
 * `into` and not yet published.  Returns how many in all; 0 also after a lost race. */
uint32_t ap_ring_steal_try(ap_ring *from, ap_ring *into, uint32_t max, ap_task **first);

/* By seq_cst loads of tail, then head: what a worker about to park must use. */
ap_queue_state ap_ring_look(ap_ring *ring);

/* Tasks in the ring, by relaxed loads: a hint. */
static inline uint32_t ap_ring_pending(ap_ring *ring) {
    uint64_t head = ap_u64_load_relaxed(&ring->head);
    uint64_t size = ap_u64_load_relaxed(&ring->tail) - head;
    return (int64_t)size <= 0 ? 0 : (uint32_t)(size > ring->mask + 1 ? ring->mask + 1 : size);
}

#endif
