/* Looking at the marked queues: protocol and proof in backlog.h. */
#include "sched/backlog.h"

#include "sched/pool.h"

static ap_queue_state ap__queue_look(ap_pool *pool, bool ring, uint32_t queue) {
    if (!ring)
        return ap_injector_look(&pool->injectors[queue]);
    ap_worker *worker = ap_pool_slot(pool, queue);
    return worker == NULL ? AP_QUEUE_EMPTY : ap_ring_look(ap_worker_ring(worker));
}

static ap_queue_state ap__kind_look(ap_pool *pool, bool ring, bool unmark) {
    ap_backlog *backlog = ring ? &pool->ring_backlog : &pool->shard_backlog;
    uint32_t queues = ring ? pool->max_workers : pool->shards;
    ap_queue_state most = AP_QUEUE_EMPTY;
    for (uint32_t first = 0; first < queues; first += 64) {
        /* pairs with ap_backlog_mark: after our enlisting in the total order */
        uint64_t bits = ap_u64_load_seq_cst(&backlog->words[first / 64]);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t queue = first + (uint32_t)__builtin_ctzll(bits);
            ap_queue_state state = ap__queue_look(pool, ring, queue);
            if (state == AP_QUEUE_EMPTY && unmark) {
                AP_POINT("backlog-empty");
                ap_backlog_unmark(backlog, queue);
                state = ap__queue_look(pool, ring, queue);
                if (state != AP_QUEUE_EMPTY)
                    ap_backlog_mark(backlog, queue);
            }
            if (state > most)
                most = state;
            if (most == AP_QUEUE_READY)
                return most;
        }
    }
    return most;
}

ap_queue_state ap_backlog_look(ap_pool *pool, bool unmark) {
    ap_queue_state shards = ap__kind_look(pool, false, unmark);
    if (shards == AP_QUEUE_READY)
        return shards;
    ap_queue_state rings = ap__kind_look(pool, true, unmark);
    return rings > shards ? rings : shards;
}

ap_queue_state ap_backlog_look_all(ap_pool *pool) {
    ap_queue_state most = AP_QUEUE_EMPTY;
    for (uint32_t i = 0; i < pool->shards + pool->max_workers; i++) {
        bool ring = i >= pool->shards;
        ap_queue_state state = ap__queue_look(pool, ring, ring ? i - pool->shards : i);
        if (state > most)
            most = state;
    }
    return most;
}
