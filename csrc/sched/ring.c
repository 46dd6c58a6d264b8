/* A worker's ring: protocol in ring.h. */
#include "sched/ring.h"

void ap_ring_init(ap_ring *ring, uint32_t slots, uint64_t first_index) {
    ap_u64_store_relaxed(&ring->head, first_index);
    ap_u64_store_relaxed(&ring->tail, first_index);
    ring->mask = slots - 1;
}

ap_task *ap_ring_take_try(ap_ring *ring) {
    /* pairs with the CAS of the head: orders an older taking before our look at the tail */
    uint64_t head = ap_u64_load_acquire(&ring->head);
    /* pairs with ap_ring_publish: orders the slots and the tasks before our reading */
    uint64_t tail = ap_u64_load_acquire(&ring->tail);
    if ((int64_t)(tail - head) <= 0)
        return NULL;
    ap_task *task = ap_ptr_load_relaxed(&ring->slots[head & ring->mask]);
    AP_POINT("ring-take");
    /* pairs with ap_ring_room: orders our read of the slot before its reuse */
    return ap_u64_cas_acq_rel(&ring->head, &head, head + 1) ? task : NULL;
}

uint32_t ap_ring_steal_try(ap_ring *from, ap_ring *into, uint32_t max, ap_task **first) {
    /* pairs with the CAS of the head, as in ap_ring_take_try */
    uint64_t head = ap_u64_load_acquire(&from->head);
    /* pairs with ap_ring_publish: orders the slots and the tasks before our reading */
    uint64_t tail = ap_u64_load_acquire(&from->tail);
    uint64_t size = tail - head;
    /* Larger than the ring: the head has moved since, and the CAS would fail. */
    if ((int64_t)size <= 0 || size > from->mask + 1)
        return 0;
    uint64_t n = (size + 1) / 2;
    if (n > (uint64_t)max + 1)
        n = (uint64_t)max + 1;
    *first = ap_ptr_load_relaxed(&from->slots[head & from->mask]);
    for (uint64_t i = 1; i < n; i++)
        ap_ring_stage(into, (uint32_t)(i - 1),
                      ap_ptr_load_relaxed(&from->slots[(head + i) & from->mask]));
    AP_POINT("ring-steal");
    /* pairs with ap_ring_room: orders our reads of the slots before their reuse */
    bool ours = ap_u64_cas_acq_rel(&from->head, &head, head + n);
    AP_POINT("ring-stolen");
    return ours ? (uint32_t)n : 0;
}

ap_queue_state ap_ring_look(ap_ring *ring) {
    /* pairs with ap_ring_publish, which is followed by a load of the idle word: tail first, as
     * in ap_injector_look */
    uint64_t tail = ap_u64_load_seq_cst(&ring->tail);
    /* pairs with the CAS of the head: what was taken is in the hands of an active worker, which
     * publishes and looks at the idle word if it took several */
    uint64_t head = ap_u64_load_seq_cst(&ring->head);
    return (int64_t)(tail - head) > 0 ? AP_QUEUE_READY : AP_QUEUE_EMPTY;
}
