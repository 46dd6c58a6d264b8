/* A multi-producer multi-consumer queue of tasks: the shard that outside threads push to.
 *
 * Overview.  Linked blocks of 127 slots.  An index counts positions: 128 to a block, of which
 * the last is no slot but the state "somebody is moving to the next block".  An index word is
 * the position shifted left by one; bit 0 of the tail word is the closed bit, so that closing
 * and pushing cannot race.  Words wrap at 2^64, which is a multiple of a block.
 *
 *     push (n tasks, one CAS whatever n)        claim (n tasks, one CAS)
 *     1 load tail word, tail block acquire      a load head word, head block acquire
 *     2 get the blocks that n needs             b count non-NULL slots relaxed, at most n
 *     3 CAS tail word seq_cst                   c CAS head word acq_rel
 *     4 crossing: tail block release,           d crossing: load next acquire, head block
 *       add to tail word seq_cst,                 release, head word seq_cst
 *       next release                            e per slot: load acquire, store NULL relaxed
 *     5 per slot: store release                 f add n to done acq_rel; recycle at 127
 *
 * A push that reaches a block's end moves the tail to position 127 in step 3; until step 4 has
 * moved it on, other producers wait.  So a push of many blocks is still one reservation: it is
 * accepted as a whole or not at all, also against a concurrent close.
 *
 * - (3) is what a worker about to park looks for (idle.h); the closed bit is part of it.
 * - (b) sees a slot of the right block, or (c) fails: the head word has moved on if the block
 *   has.  A counted slot is full, so (e) never waits for a producer; nor does (d), because the
 *   last slot is filled after next was set.
 * - (f) recycles when every slot was read; (d) comes first, so the head has left the block.
 *
 * Checked by tests/model/model_injector.c and tests/c/test_injector.c (alone), tests/c/test_pool.c
 * (with workers).
 */
#ifndef AP_SCHED_INJECTOR_H
#define AP_SCHED_INJECTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "affinitypool.h"
#include "sched/block.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

/* The most tasks that one claim takes. */
#define AP_CLAIM_MAX 32

typedef struct ap_injector {
    AP_ALIGN_LINE ap_atomic_u64 head; /* word */
    ap_atomic_ptr head_block;
    AP_ALIGN_LINE ap_atomic_u64 tail; /* word, closed bit in bit 0 */
    ap_atomic_ptr tail_block;
    AP_ALIGN_LINE ap_atomic_ptr spare; /* a clean block, kept at hand */
    ap_block_store *store;
    uint64_t first; /* the word both indices started at */
} ap_injector;
_Static_assert(offsetof(ap_injector, tail) == AP_LINE, "consumers do not touch the tail's line");
_Static_assert(offsetof(ap_injector, spare) == 2 * AP_LINE, "the spare has its own line");

/* What a look at a queue has found. */
typedef enum ap_queue_state {
    AP_QUEUE_EMPTY = 0,
    AP_QUEUE_RESERVED = 1, /* a producer has reserved a slot and not yet filled it */
    AP_QUEUE_READY = 2     /* there is a task to take */
} ap_queue_state;

/* AP_E_NOMEM.  Indices start at first_index, rounded down to a whole block. */
int ap_injector_init(ap_injector *injector, ap_block_store *store, uint64_t first_index);
void ap_injector_destroy(ap_injector *injector);

/* Queues `count` tasks in order, all or none.  AP_E_NOMEM, AP_E_CLOSED. */
int ap_injector_push(ap_injector *injector, ap_task *const *tasks, size_t count);

/* Takes at most `max` (<= AP_CLAIM_MAX) of the oldest tasks, at most half of those seen (rounded
 * up) if `halve`.  Returns how many; 0 also after a lost race.  Sets *moved if the head went to the
 * next block: a parking worker may have found it half moved, so the caller notifies if more is
 * queued. */
uint32_t ap_injector_claim_try(ap_injector *injector, ap_task **out, uint32_t max, bool halve,
                               bool *moved);

/* Refuses pushes from now on. */
void ap_injector_close(ap_injector *injector);

/* By seq_cst loads of tail, then head: what a worker about to park must use. */
ap_queue_state ap_injector_look(ap_injector *injector);

/* Whether it looked empty, by relaxed loads: a hint. */
static inline bool ap_injector_seems_empty(ap_injector *injector) {
    return ((ap_u64_load_relaxed(&injector->head) ^ ap_u64_load_relaxed(&injector->tail)) &
            ~UINT64_C(1)) == 0;
}

/* Whether its oldest task could be taken now, by relaxed loads of what only consumers and the
 * slot's producer write: a hint.  The tail's line stays with the producer, whose next push is the
 * quicker for it. */
bool ap_injector_seems_ready(ap_injector *injector);

/* Tasks queued now, and tasks queued since the start: exact when nothing moves. */
uint64_t ap_injector_pending(ap_injector *injector);
uint64_t ap_injector_pushed(ap_injector *injector);

#endif
