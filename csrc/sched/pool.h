/* The insides of pools and workers, shared by the files of csrc/sched. */
#ifndef AP_SCHED_POOL_H
#define AP_SCHED_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "affinitypool.h"
#include "sched/backlog.h"
#include "sched/block.h"
#include "sched/injector.h"
#include "sched/ring.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

/* The counters are on the owner's line, written by the owner alone, and read by anybody. */
struct ap_worker {
    AP_ALIGN_LINE ap_pool *pool;
    ap_worker *outer; /* the worker this thread was before, of another pool */
    uint32_t index;
    uint32_t shard;        /* the shard it looks at first */
    uint32_t until_shards; /* takes until it looks at shards before its ring */
    uint32_t random;
    uint32_t searches;
    uint32_t pause_rounds; /* of the next search */
    bool counted;          /* counts as searching */
    bool urgent;           /* when it stops searching it wakes the next without a lookout */
    bool lookout;          /* was woken to be the lookout */
    bool fruitless;        /* the last search found nothing */
    ap_atomic_u64 taken;
    ap_atomic_u64 stolen;
    ap_atomic_u64 parks;
    ap_atomic_u64 wakes;
    ap_atomic_u64 pushed_to_ring; /* by a push of this worker, not by a claim or a steal */
    ap_atomic_u64 pushed_to_shard;
    ap_atomic_u64 ended; /* taken and dealt with, as of its last rest: see quiet.h */

    AP_ALIGN_LINE ap_atomic_u32 token; /* AP_TOKEN_: see idle.h */
    ap_atomic_u32 below;               /* the directory's next, as index + 1; 0: none */
    ap_atomic_u32 used;                /* 1 from begin to end */
};
_Static_assert(offsetof(ap_worker, token) == AP_LINE, "wakers do not touch the owner's line");
_Static_assert(sizeof(ap_worker) == 2 * AP_LINE, "the ring follows on a line of its own");

static inline ap_ring *ap_worker_ring(ap_worker *worker) {
    return (ap_ring *)(void *)(worker + 1);
}

struct ap_pool {
    /* Read only after ap_pool_new. */
    AP_ALIGN_LINE uint32_t max_workers;
    uint32_t shards;
    uint32_t ring_slots;
    uint32_t cpus;
    uint32_t max_searching;
    uint32_t claim_max; /* tasks that one claim takes at most */
    bool uses_rings;    /* for what its workers push, and to steal from */
    uint64_t first_index;
    ap_injector *injectors; /* `shards` of them */
    ap_atomic_ptr *workers; /* max_workers slots: NULL until first begun, then kept */

    AP_ALIGN_LINE ap_atomic_u64 idle; /* the idle word: see idle.h */
    AP_ALIGN_LINE ap_atomic_u64 refs;
    ap_atomic_u64 quiet_waiters;
    ap_atomic_u64 dealt;      /* tasks that outside takers have dealt with */
    ap_atomic_u64 undertaken; /* tasks that stay queued and are run by who is no worker */
    ap_atomic_u32 quiet_changes;
    ap_backlog shard_backlog;
    ap_backlog ring_backlog;
    ap_block_store blocks;
};
_Static_assert(offsetof(ap_pool, idle) == AP_LINE, "the idle word has a line of its own");
_Static_assert(offsetof(ap_pool, refs) == 2 * AP_LINE, "the idle word has a line of its own");

/* The worker of a slot; NULL if the slot was never begun. */
static inline ap_worker *ap_pool_slot(ap_pool *pool, uint32_t index) {
    /* pairs with the CAS in ap_worker_begin: orders the worker's making before its use */
    return ap_ptr_load_acquire(&pool->workers[index]);
}

/* Adds to a counter that only the caller writes. */
static inline void ap_count(ap_atomic_u64 *counter, uint64_t n) {
    ap_u64_store_relaxed(counter, ap_u64_load_relaxed(counter) + n);
}

/* The state of the marked queues: the most advanced that was seen.  `unmark`: clears the marks
 * of empty ones; for enlisted workers only. */
ap_queue_state ap_backlog_look(ap_pool *pool, bool unmark);

/* The state of all queues, marked or not. */
ap_queue_state ap_backlog_look_all(ap_pool *pool);

/* A push by one of the pool's own workers: all or none. */
int ap_worker_push(ap_worker *worker, ap_task *const *tasks, size_t count);

#endif
