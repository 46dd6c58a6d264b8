/* A pool with threads that work for it, for tests. */
#ifndef CREW_H
#define CREW_H

#include "check.h"

#define CREW_MAX 64

typedef struct crew {
    ap_pool *pool;
    uint32_t size;
    bool no_search; /* workers park as soon as they find nothing */
    pthread_t threads[CREW_MAX];
} crew;

/* How many threads a test has that would have `n`: with CHECK_CROWD=4 in the environment at least
 * four times as many as there are CPUs, as far as CREW_MAX allows. */
uint32_t crew_size(uint32_t n);

extern ap_atomic_u64 crew_ran; /* tasks run, by whoever */

/* The usual worker loop, until the pool has ended. */
static inline void crew_loop(ap_worker *worker, bool no_search) {
    do {
        ap_task *task;
        while ((task = ap_worker_take_try(worker)) != NULL ||
               (!no_search && (task = ap_worker_search(worker)) != NULL))
            task->run(task, worker);
    } while (ap_worker_park(worker) == AP_OK);
}

/* Makes the pool; starts `size` workers. */
void crew_start(crew *c, const ap_pool_options *options, uint32_t size);

/* Closes, joins, checks that nothing is left and that `taken` is what was pushed, releases. */
void crew_stop(crew *c);

/* Waits until `*counter` is `wanted`; the test's time limit is the only other end. */
void crew_wait(ap_atomic_u64 *counter, uint64_t wanted);

/* Waits until `n` workers have begun, until `n` are idle. */
void crew_wait_begun(ap_pool *pool, uint32_t n);
void crew_wait_idle(ap_pool *pool, uint32_t n);

#endif
