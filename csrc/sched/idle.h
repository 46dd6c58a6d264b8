/* Who is idle, who searches, who is woken, and when a closed pool has ended.
 *
 * Overview.  One 64-bit word per pool:
 *
 *     top        10 bits   directory: the idle worker enlisted last, as index + 1; 0: none
 *     idle       10 bits   enlisted workers
 *     begun      10 bits   workers begun and not ended
 *     searching   8 bits   workers looking for work, or woken to do so
 *     closed      1 bit    no push is accepted any more
 *     ended       1 bit    closed, and everything accepted was taken
 *     lookout     1 bit    a worker taken off the directory naps and will look at the queues
 *     tag        23 bits   counts enlistings and beginnings: no ABA on the directory
 *
 * and one token per worker, on which it sleeps.  The directory is a linked stack (`below`).
 * A worker is idle (enlisted), searching (counted), lookout, or none of these (active).
 *
 *     pusher                                    worker that parks
 *     1 push: tail seq_cst, slot release        a CAS word seq_cst: idle + 1, self on top
 *     2 mark the queue (backlog.h)              b look at the marked queues seq_cst; if there is
 *     3 load word seq_cst: somebody searching     a task, as 3 and 4: wake the top, perhaps
 *       or nobody idle: done; lookout set and     oneself
 *       somebody else active: done              c CAS token EMPTY to PARKED acq_rel
 *     4 CAS word seq_cst: top off, idle - 1;    d wait while PARKED
 *       nobody active: searching + 1, else
 *       lookout
 *     5 exchange token WORK or LOOKOUT
 *       acq_rel; system call only if it was
 *       PARKED
 *
 *     searcher that stops
 *     i  word - searching 1, seq_cst RMW
 *     ii if it was the last one: look at the marked queues seq_cst; as 3 and 4 if not empty,
 *        but without a lookout if it was itself one, or was woken by one that was (urgent)
 *
 *     lookout
 *     L1 nap
 *     L2 word - lookout + searching 1, seq_cst RMW
 *     L3 look at the marked queues seq_cst: go on as a searcher, or enlist again
 *
 * No wake is lost.  In the total order of the seq_cst operations either (1) precedes (b), which
 * sees it, or (a) precedes (3), which sees an idle worker.  If (3) sees a searcher instead, its
 * (i) comes later and so (ii) sees the task, unless it was taken; if a lookout, (L2) and (L3).
 * Whoever moves several tasks at once (claim, steal) publishes those left over as a pusher does,
 * from (1) on.
 *
 * The lookout keeps pushes from waking a worker for what an awake one will have done before the
 * other is up.  A task that blocks delays those behind it by at most one nap and one wake: if
 * there is backlog after the nap the tasks are slow, and from then on each searcher that finds
 * one wakes the next at once.
 *
 * A reserved slot that is not yet filled cannot be taken, and its pusher may be past (3).  A
 * worker that sees one in (b) sleeps only for a nap and then looks again.  A searcher that sees
 * one in (ii) wakes another, if it has found a task itself, or else comes to (b).
 *
 * The end.  ap_pool_close closes every shard, then sets `closed`, then tries to end the pool; so
 * does every worker that has enlisted or ended while `closed` is set.  Trying means:
 *
 *     E1 load word seq_cst: closed, not ended, idle == begun; else give up
 *     E2 look at every queue, marked or not; if any is not empty give up
 *     E3 CAS word: ended, directory and idle 0; else from E1.  Give all taken off their token
 *
 * - It ends only when it may.  The word of E1 cannot come back before E3: a wake takes off the
 *   top, a worker that is woken comes back only by enlisting, and enlisting and beginning count
 *   the tag up.  So from E1 to E3 no worker was active: nothing was claimed into hands, stolen,
 *   or pushed to a ring.  Outside pushes were refused since before E1, and those accepted are in
 *   the tails.  Only outside takers moved anything, and they take one task away.  So queues
 *   found empty in E2 are all empty in E3.  A beginner after E3 sees `ended` and is refused.
 * - It ends when it must.  The last of: close, the last enlisting, the last ending, tries; it sees
 *   idle == begun.  If it finds a queue not empty, that task's pusher wakes someone (above), or
 *   the one that found it reserved naps and looks again; the woken will enlist or end, and try.
 *
 * Checked by tests/model/model_{park,directory,relay,end}.c, tests/c/test_idle.c, and test_pool.c
 * (lost wakes, closing).
 */
#ifndef AP_SCHED_IDLE_H
#define AP_SCHED_IDLE_H

#include "sched/pool.h"

#define AP_IDLE_TOP_ONE (UINT64_C(1) << 0)
#define AP_IDLE_IDLE_ONE (UINT64_C(1) << 10)
#define AP_IDLE_BEGUN_ONE (UINT64_C(1) << 20)
#define AP_IDLE_SEARCHING_ONE (UINT64_C(1) << 30)
#define AP_IDLE_CLOSED (UINT64_C(1) << 38)
#define AP_IDLE_ENDED (UINT64_C(1) << 39)
#define AP_IDLE_LOOKOUT (UINT64_C(1) << 40)
#define AP_IDLE_TAG_ONE (UINT64_C(1) << 41)

#define AP_SEARCHING_MAX 250 /* of those that begin by themselves; a lookout may add one */
_Static_assert(AP_MAX_WORKERS < 1 << 10, "an index + 1 fits");

static inline uint32_t ap_idle_top(uint64_t word) {
    return (uint32_t)(word / AP_IDLE_TOP_ONE) & 0x3ff;
}
static inline uint32_t ap_idle_idle(uint64_t word) {
    return (uint32_t)(word / AP_IDLE_IDLE_ONE) & 0x3ff;
}
static inline uint32_t ap_idle_begun(uint64_t word) {
    return (uint32_t)(word / AP_IDLE_BEGUN_ONE) & 0x3ff;
}
static inline uint32_t ap_idle_searching(uint64_t word) {
    return (uint32_t)(word / AP_IDLE_SEARCHING_ONE) & 0xff;
}

#define AP_TOKEN_EMPTY 0u
#define AP_TOKEN_PARKED 1u /* asleep, or about to be */
#define AP_TOKEN_WORK 2u   /* woken for a task, and counted as searching by the waker */
#define AP_TOKEN_URGENT 3u /* the same, and the tasks are known to be slow */
#define AP_TOKEN_LOOKOUT 4u
#define AP_TOKEN_END 5u /* woken because the pool has ended */
#define AP_TOKEN_NAP 6u /* set by the lookout itself */

/* Whether step 3 goes on: nobody searches, and somebody is idle, and no other than the lookout is
 * active or there is no lookout. */
static inline bool ap_idle_wants_wake(uint64_t word) {
    return ap_idle_searching(word) == 0 && ap_idle_idle(word) != 0 &&
           ((word & AP_IDLE_LOOKOUT) == 0 || ap_idle_idle(word) + 1 == ap_idle_begun(word));
}

/* Steps 4 and 5.  `urgent`: the top is woken to search even if others are active. */
void ap_idle_wake(ap_pool *pool, bool urgent);

/* Step 3, after a push or a transfer. */
static inline void ap_idle_notify(ap_pool *pool) {
    /* pairs with the CAS of ap_idle_enlist: after our publication in the total order */
    uint64_t word = ap_u64_load_seq_cst(&pool->idle);
    if (AP_UNLIKELY(ap_idle_wants_wake(word)))
        ap_idle_wake(pool, false);
}

/* Whether the calling worker is the only one.  Then it may search without being counted: nobody
 * is idle for a pusher to wake or for a searcher to relay to, and one that begins meanwhile looks
 * at the queues itself before it is idle. */
static inline bool ap_idle_is_alone(ap_pool *pool) {
    return ap_idle_begun(ap_u64_load_relaxed(&pool->idle)) == 1;
}

/* Counts the worker as searching, unless enough are. */
bool ap_idle_search_begin(ap_worker *worker);

/* Steps i and ii, of a worker that is counted and has found a task or not.  If not it is about to
 * park or to end. */
void ap_idle_search_end(ap_worker *worker, bool found);

/* Step a, of a worker that may be counted.  False, and not enlisted, if the pool has ended. */
bool ap_idle_enlist(ap_worker *worker);

/* Steps c and d, after ap_idle_enlist.  AP_OK: woken, counted as searching, or to be the lookout.
 * AP_E_CLOSED: the pool has ended.  AP_E_TIMEDOUT: still enlisted. */
int ap_idle_sleep(ap_worker *worker, uint64_t deadline_ns);

/* Steps L1 and L2, after ap_idle_sleep has set worker->lookout: leaves it counted, and urgent. */
void ap_idle_look_out(ap_worker *worker);

/* Counts a worker as begun (false if the pool has ended), as ended. */
bool ap_idle_begin(ap_pool *pool);
void ap_idle_end(ap_pool *pool);

/* Sets `closed`: after every shard was closed. */
void ap_idle_close(ap_pool *pool);

/* Steps E1 to E3. */
void ap_idle_try_end(ap_pool *pool);

#endif
