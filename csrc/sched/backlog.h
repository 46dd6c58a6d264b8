/* Which queues may hold tasks: one bit for each shard and each ring of a pool.
 *
 * Overview.  A worker about to park must look at every queue.  The bits make that cost what the
 * queues in use cost, not what max_workers does.  A set bit means nothing; a clear bit means
 * that the queue is empty, or that its pusher has not yet come to the idle word.
 *
 *     pusher                                    worker about to park, enlisted as idle
 *     1 reserve or publish, seq_cst             a load bits seq_cst
 *     2 load bits seq_cst;                      b look at each marked queue, seq_cst
 *       if clear: set by RMW seq_cst            c if empty: clear by RMW seq_cst, look again,
 *     3 load idle word seq_cst, notify            set again if not empty
 *
 * Proof, in the single order of the seq_cst operations.  If (2) saw the bit set, then any (c)
 * that clears it later looks after (1), sees the task and takes the task's case: it notifies.
 * If (2) saw it clear, it sets it before (3): a worker that enlisted before (3) is seen by it, one
 * that enlists later loads the bit set in (a).  Only an enlisted worker clears bits, and it
 * never un-enlists by itself, so between clear and set again the queue has someone.
 *
 * Checked by tests/model/model_{park,spawn,transfer}.c, tests/c/test_pool.c (lost wakes, barriers).
 */
#ifndef AP_SCHED_BACKLOG_H
#define AP_SCHED_BACKLOG_H

#include "affinitypool.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

#define AP_BACKLOG_WORDS 8 /* 512 queues of a kind */
_Static_assert(AP_BACKLOG_WORDS * 64 >= AP_MAX_WORKERS, "a bit for each ring");
_Static_assert(AP_BACKLOG_WORDS * 64 >= AP_MAX_SHARDS, "a bit for each shard");

typedef struct ap_backlog {
    AP_ALIGN_LINE ap_atomic_u64 words[AP_BACKLOG_WORDS];
} ap_backlog;

/* Step 2 of a pusher. */
static inline void ap_backlog_mark(ap_backlog *backlog, uint32_t queue) {
    ap_atomic_u64 *word = &backlog->words[queue / 64];
    uint64_t bit = UINT64_C(1) << (queue % 64);
    /* pairs with ap_backlog_unmark: after our publication in the total order, so whoever clears
     * the bit later sees the task */
    if (AP_UNLIKELY((ap_u64_load_seq_cst(word) & bit) == 0))
        /* pairs with the load of the bits by a worker that parks: before our look at the idle
         * word in the total order */
        (void)ap_u64_or_seq_cst(word, bit);
}

/* Step c: the caller looks at the queue again and marks it if it is not empty. */
static inline void ap_backlog_unmark(ap_backlog *backlog, uint32_t queue) {
    /* pairs with ap_backlog_mark: before our second look in the total order */
    (void)ap_u64_and_seq_cst(&backlog->words[queue / 64], ~(UINT64_C(1) << (queue % 64)));
}

#endif
