/* Waiting until nothing is queued and nothing runs.
 *
 * Overview.  A worker that parks has dealt with all that it took: only then does it say so, in a
 * counter of its own, so that a task costs nothing here.  The pool is quiet when as many tasks
 * have ended as were pushed.
 *
 *     worker that parks or ends                     waiter
 *     1  ended = taken, exchange seq_cst            a  waiters + 1, seq_cst
 *     2  load waiters seq_cst; if not 0:            b  load changes seq_cst
 *        changes + 1 seq_cst, wake all              c  E: add up `ended`, seq_cst loads
 *                                                   d  P: add up what was pushed
 *     taker from outside                            e  E == P: quiet
 *     1' dealt + 1 seq_cst; then as 2               f  sleep while changes is what b saw
 *
 *     who runs a task that stays queued, and is no worker of the pool
 *     0  undertaken + 1; then starts the task, runs it, and does 1'
 *
 * - E == P means quiet.  Who pushes to a ring counts the task first, and a shard's tail counts it
 *   by itself.  The hand-over orders that before the task's taking, (1) is a release, (c) an
 *   acquire: every task in E is in P.  As many are, so they are the same tasks.  Every push that
 *   happened before the call is in P, so those tasks have ended, and their ends happened before.
 * - A task that stays queued while somebody runs it counts twice: once as queued, once as
 *   undertaken.  Whoever then finds it in the queue only drops it, having seen that it was started,
 *   by an acquire; so if the dropping is in E, (0) is in P, and the pool is quiet only after (1').
 *   (Of a worker that runs such a task neither is needed: it does not rest meanwhile.)
 * - No wake is lost.  Take the last (1) or (1') after which E == P holds.  In the total order of
 *   the seq_cst operations either its (2) follows (a), and its change makes (f) return or keeps (f)
 *   from sleeping; or (2) precedes (a), and with it (1) precedes (c), which sees it.
 * - (c) does not miss a worker that has just begun.  If its (2) precedes (a): after (a) the waiter
 *   loads the idle word, seq_cst, which reads from the CAS by which the worker began or from a
 *   later one (all are RMWs), and that CAS comes after the one that filled the worker's slot.  If
 *   its (2) follows (a): (b) reads from its change, in this turn or the next.
 *
 * Checked by tests/model/model_quiet.c, tests/model/python/model_undertake.c, tests/c/test_quiet.c.
 */
#ifndef AP_SCHED_QUIET_H
#define AP_SCHED_QUIET_H

#include "sched/pool.h"

/* Steps 1 and 2, of a worker that has dealt with all that it took. */
void ap_quiet_rest(ap_worker *worker);

#endif
