/* affinitypool: the C API of the scheduler core.
 *
 * Overview.  A pool owns sharded injector queues, one ring per worker and the idle workers'
 * parking places.  It owns no thread: the embedding program brings threads, each of which
 * becomes a worker by ap_worker_begin() and then alternates between taking tasks and parking.
 *
 * Usage, one worker thread:
 *
 *     ap_worker *w;
 *     if (ap_worker_begin(pool, &w) < 0) return;
 *     do {
 *         ap_task *t;
 *         while ((t = ap_worker_take_try(w)) || (t = ap_worker_search(w)))
 *             t->run(t, w);
 *     } while (ap_worker_park(w) == AP_OK);
 *     ap_worker_end(w);
 *
 * Every function may be called from any thread unless it takes an ap_worker, which belongs to
 * the thread that began it.  Functions that can fail return AP_OK or a negative AP_E value.
 * Deadlines are absolute nanoseconds of the monotonic clock; AP_FOREVER means none.
 *
 * The text between the cdef marks is what Python's cffi is given, word for word.
 */
#ifndef AFFINITYPOOL_H
#define AFFINITYPOOL_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */
#define AP_OK 0
#define AP_E_NOMEM -1    /* out of memory; nothing was changed */
#define AP_E_CLOSED -2   /* the pool takes no more tasks, or has ended */
#define AP_E_INVALID -3  /* an argument is out of range */
#define AP_E_TIMEDOUT -4 /* the deadline passed */
#define AP_E_INTR -5     /* a signal arrived while waiting */
#define AP_E_FULL -6     /* every worker slot is taken */

#define AP_MAX_WORKERS 512
#define AP_MAX_SHARDS 512

typedef struct ap_pool ap_pool;     /* reference counted */
typedef struct ap_worker ap_worker; /* one per worker thread, owned by its pool */

/* Zero in any field means the default. */
typedef struct ap_pool_options {
    uint32_t max_workers; /* 1 to AP_MAX_WORKERS; required */
    uint32_t shards;      /* rounded up to a power of two and clamped to 1..max_workers */
    uint32_t in_order;   /* not 0: one shard, no use of rings, one task a claim: see ap_pool_push */
    uint32_t cpus;       /* CPUs that the process may use; default: those of the affinity mask */
    uint32_t ring_slots; /* a power of two from 2 to 256; default 256 */
    uint64_t first_index; /* where queue indices start, so that tests can see them wrap */
} ap_pool_options;

/* Counters since the pool was made.  Each is exact once the pool is quiet. */
typedef struct ap_pool_stats {
    uint64_t pushed_outside; /* tasks pushed by threads that are no worker of the pool */
    uint64_t pushed_inside;  /* tasks that a worker pushed to its own ring or shard */
    uint64_t taken;          /* tasks handed to workers */
    uint64_t stolen;         /* tasks moved from one worker's ring to another's */
    uint64_t parks;          /* times a worker went to sleep */
    uint64_t wakes;          /* times a worker was woken on behalf of a task */
    uint32_t workers;        /* workers begun and not ended */
    uint32_t idle;           /* of these, enlisted as idle */
    uint32_t searching;      /* of these, looking for work */
    uint32_t shards;
    uint32_t max_workers;
    uint32_t closed; /* 0 or 1 */
} ap_pool_stats;

int ap_pool_new(const ap_pool_options *options, ap_pool **out);
void ap_pool_retain(ap_pool *pool);
void ap_pool_release(ap_pool *pool);
void ap_pool_close(ap_pool *pool);
int ap_pool_is_closed(ap_pool *pool);
uint64_t ap_pool_pending(ap_pool *pool);
void ap_pool_read_stats(ap_pool *pool, ap_pool_stats *out);
uint64_t ap_clock_now(void);
const char *ap_parking_backend(void); /* "futex" or "condvar" */
/* cdef: end */

#define AP_FOREVER UINT64_MAX

typedef struct ap_task ap_task;

/* The intrusive header of a task.  Queues store pointers to it and never read it. */
struct ap_task {
    void (*run)(ap_task *task, ap_worker *worker);
};

/* ---- pool ---------------------------------------------------------------------------
 *
 * ap_pool_new       AP_E_INVALID, AP_E_NOMEM.  Unwinds fully on failure.  One reference.
 * ap_pool_close     No task is accepted from the moment it returns; those accepted are run.
 *                   Idempotent.  Workers leave (ap_worker_park returns AP_E_CLOSED) once every
 *                   accepted task has been taken and no worker is active.
 * ap_pool_pending   Tasks accepted and not taken.  A snapshot, exact when nothing moves.
 * ap_pool_take_try  NULL if nothing was seen.  Used to cancel what is pending, also after
 *                   ap_pool_close.  The caller then deals with the task and says so by
 * ap_pool_dealt, once for each, unless a worker adopts it. ap_pool_is_quiet  Whether every task
 * whose push happened before has ended: nothing is queued, and every worker has parked since it
 * took its last task. ap_pool_wait_quiet  Waits for that.  AP_OK, AP_E_TIMEDOUT, AP_E_INTR.  Not
 * for workers of the pool, which would wait for themselves. ap_pool_release   The last reference
 * frees everything; there must be no worker left then (each worker holds a reference from begin to
 * end).  Tasks still queued are the caller's to take out before (ap_pool_take_try).
 */

/* Queues one task: on the caller's own ring if it is a worker of this pool and the pool has
 * more than one, else on the caller's shard.  Wakes a worker if none is looking for work.
 * With max_workers == 1 there is one shard and strict first-in-first-out order.  With in_order
 * tasks start in the order in which they were pushed, whoever pushed them: a worker that blocks in
 * a task holds no other back that is older than what the others run. AP_E_CLOSED, AP_E_NOMEM: the
 * task was not queued. */
int ap_pool_push(ap_pool *pool, ap_task *task);

/* Queues `count` tasks, all or none, in order, with one reservation per block of the shard. */
int ap_pool_push_batch(ap_pool *pool, ap_task *const *tasks, size_t count);

/* Takes one queued task from any queue, for a caller that is no worker. */
ap_task *ap_pool_take_try(ap_pool *pool);
void ap_pool_dealt(ap_pool *pool);

/* Before a thread that is no worker of the pool starts a task that stays queued: once it has ended,
 * or could not be started, ap_pool_dealt says so.  Until then the pool is not quiet. */
void ap_pool_undertake(ap_pool *pool);

int ap_pool_is_quiet(ap_pool *pool);
int ap_pool_wait_quiet(ap_pool *pool, uint64_t deadline_ns);

/* ---- worker --------------------------------------------------------------------------- */

/* Makes the calling thread a worker: AP_E_FULL, AP_E_NOMEM, AP_E_CLOSED if the pool has ended.
 * The new worker is active and holds a reference to the pool. */
int ap_worker_begin(ap_pool *pool, ap_worker **out);

/* Ends it.  What its ring still holds stays there, also if the pool is closed, for the others to
 * steal or for the next worker on the slot, and another worker is woken for it; the slot can
 * be begun again.  Cannot fail. */
void ap_worker_end(ap_worker *worker);

/* The calling thread's worker, or NULL; and its pool. */
ap_worker *ap_worker_current(void);
ap_pool *ap_worker_pool(const ap_worker *worker);
uint32_t ap_worker_index(const ap_worker *worker);

/* One non-blocking look at own ring, shards, other rings.  Never spins, makes no system call
 * except to wake another worker.  The worker is active before and after. */
ap_task *ap_worker_take_try(ap_worker *worker);

/* Searches for a bounded time: pauses, then yields the CPU, up to about the cost of a wake.
 * Returns at once if enough workers are searching already.  Active before and after: the
 * worker counts as searching only inside. */
ap_task *ap_worker_search(ap_worker *worker);

/* The worker runs a task that ap_pool_take_try, or another worker, had taken; leaves the task that
 * it took last to another to run. */
void ap_worker_adopt(ap_worker *worker);
void ap_worker_disown(ap_worker *worker);

/* Enlists as idle, looks again, sleeps until woken.  AP_OK: woken, look for work at once: the
 * worker counts as searching, so that nobody else is woken, until its next call of
 * ap_worker_take_try, search, park or end.  Take first, then wait for an interpreter.  Every task
 * that it took has ended by the time it parks.
 * AP_E_CLOSED: the pool is closed and everything accepted has been taken; the worker is still
 * to be ended by ap_worker_end. */
int ap_worker_park(ap_worker *worker);

/* Whether, as a hint, a CPU is free for a thread that would spin: fewer active workers than
 * usable CPUs. */
int ap_pool_cpu_is_free(ap_pool *pool);

#endif
