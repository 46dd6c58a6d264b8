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
 *     tag        24 bits   counts enlistings and beginnings: no ABA on the directory
 *
 * and one token per worker, on which it sleeps.  The directory is a linked stack (`below`).
 * A worker is idle (enlisted), searching (counted), or neither (active).
 *
 *     pusher                                    worker that parks
 *     1 push: tail seq_cst, slot release        a CAS word seq_cst: idle + 1, self on top
 *     2 mark the queue (backlog.h)              b look at the marked queues seq_cst; if there is
 *     3 load word seq_cst: somebody searching     a task, as 3 and 4: wake the top, perhaps
 *       or nobody idle: done                      oneself
 *     4 CAS word seq_cst: top off, idle - 1,    c CAS token EMPTY to PARKED acq_rel
 *       searching + 1                           d wait while PARKED
 *     5 exchange token WORK acq_rel; system
 *       call only if it was PARKED
 *
 *     searcher that stops
 *     i  word - searching 1, seq_cst RMW
 *     ii if it was the last one: look at the marked queues seq_cst; as 3 and 4 if not empty
 *
 * No wake is lost.  In the total order of the seq_cst operations either (1) precedes (b), which
 * sees it, or (a) precedes (3), which sees an idle worker.  If (3) sees a searcher instead, its
 * (i) comes later and so (ii) sees the task, unless it was taken.  Whoever moves several tasks
 * at once (claim, steal) publishes those left over as a pusher does, from (1) on.
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
 * Checked by tests/c/test_idle.c, and by test_pool.c (lost wakes, closing).
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
#define AP_IDLE_TAG_ONE (UINT64_C(1) << 40)

#define AP_SEARCHING_MAX 255
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
#define AP_TOKEN_END 3u    /* woken because the pool has ended */

/* Steps 4 and 5: wakes the top of the directory, unless somebody searches or nobody is idle. */
void ap_idle_wake(ap_pool *pool);

/* Step 3, after a push or a transfer. */
static inline void ap_idle_notify(ap_pool *pool) {
    /* pairs with the CAS of ap_idle_enlist: after our publication in the total order */
    uint64_t word = ap_u64_load_seq_cst(&pool->idle);
    if (AP_UNLIKELY(ap_idle_searching(word) == 0 && ap_idle_idle(word) != 0))
        ap_idle_wake(pool);
}

/* Counts the worker as searching, unless enough are. */
bool ap_idle_search_begin(ap_worker *worker);

/* Steps i and ii, of a worker that is counted and has found a task or not.  If not it is about to
 * park or to end. */
void ap_idle_search_end(ap_worker *worker, bool found);

/* Step a, of a worker that may be counted.  False, and not enlisted, if the pool has ended. */
bool ap_idle_enlist(ap_worker *worker);

/* Steps c and d, after ap_idle_enlist.  AP_OK: woken, counted as searching.  AP_E_CLOSED: the
 * pool has ended.  AP_E_TIMEDOUT: still enlisted. */
int ap_idle_sleep(ap_worker *worker, uint64_t deadline_ns);

/* Counts a worker as begun (false if the pool has ended), as ended. */
bool ap_idle_begin(ap_pool *pool);
void ap_idle_end(ap_pool *pool);

/* Sets `closed`: after every shard was closed. */
void ap_idle_close(ap_pool *pool);

/* Steps E1 to E3. */
void ap_idle_try_end(ap_pool *pool);

#endif
