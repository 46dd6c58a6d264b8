/* A worker's life: begin, take, search, park, end.
 *
 * Overview.  Taking looks at the own ring, the preferred shard, the other marked shards, and the
 * rings of others, from a random start; every 61st time at the shards first, so that work that
 * spawns work cannot starve what comes from outside.  A claim or a steal of several gives one to
 * the caller and publishes the others on the own ring, which counts as a push (idle.h, from
 * step 1 on): the one given may block for ever.
 *
 * With max_workers == 1 everything is pushed to the one shard and claimed through the ring, so
 * the order is first in, first out.  With in_order the rings are not used: tasks start in the order
 * of the one shard, as each claim is of one task, which is started next.
 *
 * A ring outlives its worker: what an ended worker leaves is stolen, or taken by the next to
 * begin on the slot.
 *
 * Checked by tests/c/test_pool.c.
 */
#include "sched/idle.h"
#include "sched/pool.h"
#include "sched/quiet.h"
#include "sync/clock.h"
#include "sync/memory.h"

#define AP__SHARDS_FIRST_EVERY 61
#define AP__PAUSE_ROUNDS 10
#define AP__PAUSES 8
#define AP__PAUSE_ALL_EVERY 16
#define AP__SEARCH_NS 50000
#define AP__NAP_NS 50000
#define AP__NAP_MAX_NS 2000000
#ifndef AP__NAP_YIELDS /* the models try it with none */
#define AP__NAP_YIELDS 4
#endif

static AP_THREAD_LOCAL ap_worker *ap__current;

ap_worker *ap_worker_current(void) {
    return ap__current;
}

ap_pool *ap_worker_pool(const ap_worker *worker) {
    return worker->pool;
}

uint32_t ap_worker_index(const ap_worker *worker) {
    return worker->index;
}

/* ---- begin and end ----------------------------------------------------------------------- */

/* The worker of slot `index`, now the caller's; NULL with *rc AP_OK if the slot is in use. */
static ap_worker *ap__slot_claim(ap_pool *pool, uint32_t index, int *rc) {
    ap_worker *worker = ap_pool_slot(pool, index);
    if (worker != NULL) {
        /* pairs with the store in ap_worker_end: orders the former owner's use before ours */
        return ap_u32_load_relaxed(&worker->used) == 0 &&
                       ap_u32_exchange_acq_rel(&worker->used, 1) == 0
                   ? worker
                   : NULL;
    }
    worker = ap_memory_alloc(sizeof *worker + ap_ring_size(pool->ring_slots));
    if (worker == NULL) {
        *rc = AP_E_NOMEM;
        return NULL;
    }
    worker->pool = pool;
    worker->index = index;
    worker->shard = index & (pool->shards - 1);
    worker->random = (index + 1) * 0x9e3779b9u;
    ap_u32_store_relaxed(&worker->used, 1);
    ap_ring_init(ap_worker_ring(worker), pool->ring_slots, pool->first_index);
    void *none = NULL;
    /* pairs with ap_pool_slot: orders the worker's making before its use */
    if (ap_ptr_cas_acq_rel(&pool->workers[index], &none, worker))
        return worker;
    ap_memory_free(worker); /* another beginner was faster */
    return NULL;
}

int ap_worker_begin(ap_pool *pool, ap_worker **out) {
    int rc = AP_OK;
    ap_worker *worker = NULL;
    for (uint32_t i = 0; i < pool->max_workers && worker == NULL && rc == AP_OK; i++)
        worker = ap__slot_claim(pool, i, &rc);
    if (worker == NULL)
        return rc == AP_OK ? AP_E_FULL : rc;
    if (!ap_idle_begin(pool)) {
        /* pairs with the exchange in ap__slot_claim */
        ap_u32_store_release(&worker->used, 0);
        return AP_E_CLOSED;
    }
    ap_pool_retain(pool);
    worker->until_shards = AP__SHARDS_FIRST_EVERY;
    worker->counted = false;
    worker->urgent = false;
    worker->lookout = false;
    worker->fruitless = false;
    worker->pause_rounds = AP__PAUSE_ROUNDS;
    worker->searches = 0;
    worker->outer = ap__current;
    ap__current = worker;
    *out = worker;
    return AP_OK;
}

void ap_worker_end(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    if (worker->counted)
        ap_idle_search_end(worker, false);
    ap_quiet_rest(worker);
    ap__current = worker->outer;
    ap_idle_end(pool);
    /* pairs with the exchange in ap__slot_claim: orders our use of the slot before the next */
    ap_u32_store_release(&worker->used, 0);
    ap_pool_release(pool);
}

/* ---- push -------------------------------------------------------------------------------- */

int ap_worker_push(ap_worker *worker, ap_task *const *tasks, size_t count) {
    ap_pool *pool = worker->pool;
    ap_ring *ring = ap_worker_ring(worker);
    if ((ap_u64_load_relaxed(&pool->idle) & AP_IDLE_CLOSED) != 0)
        return AP_E_CLOSED;
    if (pool->uses_rings && AP_LIKELY(count <= ap_ring_room(ring))) {
        ap_count(&worker->pushed_to_ring, count); /* before a thief can end one: quiet.h */
        for (uint32_t i = 0; i < (uint32_t)count; i++)
            ap_ring_stage(ring, i, tasks[i]);
        ap_ring_publish(ring, (uint32_t)count);
        ap_backlog_mark(&pool->ring_backlog, worker->index);
    } else {
        int rc = ap_injector_push(&pool->injectors[worker->shard], tasks, count);
        if (rc != AP_OK)
            return rc;
        ap_backlog_mark(&pool->shard_backlog, worker->shard);
        ap_count(&worker->pushed_to_shard, count);
    }
    ap_idle_notify(pool);
    return AP_OK;
}

/* ---- take -------------------------------------------------------------------------------- */

/* Makes `count` staged tasks visible to the others, as a push does. */
static void ap__publish(ap_worker *worker, uint32_t count) {
    if (count == 0)
        return;
    ap_ring_publish(ap_worker_ring(worker), count);
    ap_backlog_mark(&worker->pool->ring_backlog, worker->index);
    ap_idle_notify(worker->pool);
}

static ap_task *ap__take_shard(ap_worker *worker, uint32_t shard) {
    ap_pool *pool = worker->pool;
    ap_ring *ring = ap_worker_ring(worker);
    ap_task *claimed[AP_CLAIM_MAX];
    uint32_t max = ap_ring_room(ring) + 1;
    if (max > pool->claim_max)
        max = pool->claim_max;
    bool halve = ap_idle_begun(ap_u64_load_relaxed(&pool->idle)) > 1;
    bool moved = false;
    uint32_t n = ap_injector_claim_try(&pool->injectors[shard], claimed, max, halve, &moved);
    if (n == 0)
        return NULL;
    for (uint32_t i = 1; i < n; i++)
        ap_ring_stage(ring, i - 1, claimed[i]);
    ap__publish(worker, n - 1);
    if (AP_UNLIKELY(moved) && !ap_injector_seems_empty(&pool->injectors[shard]))
        ap_idle_notify(pool);
    return claimed[0];
}

static ap_task *ap__take_ring(ap_worker *worker, uint32_t index) {
    ap_pool *pool = worker->pool;
    ap_worker *victim = ap_pool_slot(pool, index);
    if (victim == NULL || victim == worker || ap_ring_pending(ap_worker_ring(victim)) == 0)
        return NULL;
    ap_ring *ring = ap_worker_ring(worker);
    ap_task *first;
    uint32_t n = ap_ring_steal_try(ap_worker_ring(victim), ring, ap_ring_room(ring), &first);
    if (n == 0)
        return NULL;
    ap_count(&worker->stolen, n);
    ap__publish(worker, n - 1);
    return first;
}

static uint32_t ap__random(ap_worker *worker) {
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 17;
    worker->random ^= worker->random << 5;
    return worker->random;
}

/* Tries each marked queue of a kind but `except` once, from a random one round. */
static ap_task *ap__take_marked(ap_worker *worker, ap_backlog *backlog, uint32_t queues,
                                uint32_t except,
                                ap_task *(*take)(ap_worker *worker, uint32_t queue)) {
    if (queues <= 64) { /* the usual answer, for the price of one load */
        uint64_t bits = ap_u64_load_relaxed(&backlog->words[0]);
        if ((bits & ~(UINT64_C(1) << except)) == 0)
            return NULL;
    }
    uint32_t start = ap__random(worker) % queues;
    uint32_t words = (queues + 63) / 64;
    uint64_t upper = ~UINT64_C(0) << (start % 64);
    for (uint32_t i = 0; i <= words; i++) {
        uint32_t word = (start / 64 + i) % words;
        uint64_t bits = ap_u64_load_relaxed(&backlog->words[word]);
        bits &= i == 0 ? upper : i == words ? ~upper : ~UINT64_C(0);
        if (word == except / 64)
            bits &= ~(UINT64_C(1) << except % 64);
        for (; bits != 0; bits &= bits - 1) {
            ap_task *task = take(worker, word * 64 + (uint32_t)__builtin_ctzll(bits));
            if (task != NULL)
                return task;
        }
    }
    return NULL;
}

static ap_task *ap__take_shards(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    ap_task *task = ap__take_shard(worker, worker->shard);
    if (task == NULL && pool->shards > 1)
        task = ap__take_marked(worker, &pool->shard_backlog, pool->shards, worker->shard,
                               ap__take_shard);
    return task;
}

/* One look at everything. */
static AP_NOINLINE ap_task *ap__take_any(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    ap_task *task;
    if (worker->until_shards == 0) {
        worker->until_shards = AP__SHARDS_FIRST_EVERY;
        if (pool->max_workers > 1 && (task = ap__take_shards(worker)) != NULL)
            return task;
    }
    if ((task = ap_ring_pop_try(ap_worker_ring(worker))) != NULL)
        return task;
    if ((task = ap__take_shards(worker)) != NULL)
        return task;
    if (!pool->uses_rings)
        return NULL;
    return ap__take_marked(worker, &pool->ring_backlog, pool->max_workers, worker->index,
                           ap__take_ring);
}

ap_task *ap_worker_take_try(ap_worker *worker) {
    ap_task *task = NULL;
    if (AP_LIKELY(--worker->until_shards != 0))
        task = ap_ring_pop_try(ap_worker_ring(worker));
    if (AP_UNLIKELY(task == NULL))
        task = ap__take_any(worker);
    if (AP_UNLIKELY(worker->counted))
        ap_idle_search_end(worker, task != NULL);
    if (AP_LIKELY(task != NULL))
        ap_count(&worker->taken, 1);
    return task;
}

void ap_worker_adopt(ap_worker *worker) {
    ap_count(&worker->taken, 1);
}

void ap_worker_disown(ap_worker *worker) {
    ap_count(&worker->taken, UINT64_MAX);
}

/* ---- search and park --------------------------------------------------------------------- */

/* Pauses help if the pusher runs on another CPU.  If it waits for ours they only delay it: then
 * the task comes with the first yields, and fewer pauses are made the next times.  Every 16th
 * search makes all of them, to see whether they help again. */
static ap_task *ap__search_pausing(ap_worker *worker) {
    ap_injector *shard = &worker->pool->injectors[worker->shard];
    bool all = worker->searches++ % AP__PAUSE_ALL_EVERY == 0;
    uint32_t rounds = all ? AP__PAUSE_ROUNDS : worker->pause_rounds;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < AP__PAUSES && !ap_injector_seems_ready(shard); i++)
            ap_cpu_pause();
        if (worker->counted)
            ap_cpu_prefetch_write(&worker->pool->idle); /* for ap_idle_search_end */
        ap_task *task = ap__take_any(worker);
        if (task != NULL) {
            worker->pause_rounds = AP__PAUSE_ROUNDS;
            return task;
        }
    }
    return NULL;
}

static ap_task *ap__search_yielding(ap_worker *worker) {
    uint64_t until = ap_clock_after(worker->fruitless ? AP__SEARCH_NS / 2 : AP__SEARCH_NS);
    uint32_t yields = 0;
    ap_task *task;
    do {
        ap_cpu_yield();
        yields++;
        task = ap__take_any(worker);
    } while (task == NULL && ap_clock_now() < until);
    if (task != NULL && yields <= 2)
        worker->pause_rounds = (worker->pause_rounds + 1) / 2;
    return task;
}

ap_task *ap_worker_search(ap_worker *worker) {
    ap_task *task = NULL;
    if (!AP_WORKERS_SPIN)
        return ap_worker_take_try(worker);
    if (!worker->counted && !ap_idle_is_alone(worker->pool) && !ap_idle_search_begin(worker))
        return NULL;
    task = ap__search_pausing(worker);
    if (task == NULL)
        task = ap__search_yielding(worker);
    worker->fruitless = task == NULL;
    if (worker->counted)
        ap_idle_search_end(worker, task != NULL);
    if (task != NULL)
        ap_count(&worker->taken, 1);
    return task;
}

/* Looks again, and sleeps until woken; naps instead while it sees a slot that is only reserved. */
static int ap__park_enlisted(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    uint64_t nap = AP__NAP_NS;
    for (uint32_t round = 0;; round++) {
        uint64_t deadline = AP_FOREVER;
        switch (ap_backlog_look(pool, true)) {
        case AP_QUEUE_READY:
            ap_idle_wake(pool, true);
            break;
        case AP_QUEUE_RESERVED:
            if (round < AP__NAP_YIELDS) {
                ap_cpu_yield();
                continue;
            }
            deadline = ap_clock_after(nap);
            nap = nap < AP__NAP_MAX_NS ? 2 * nap : nap;
            break;
        case AP_QUEUE_EMPTY:
            ap_idle_try_end(pool);
            break;
        }
        int rc = ap_idle_sleep(worker, deadline);
        if (rc != AP_E_TIMEDOUT)
            return rc;
    }
}

int ap_worker_park(ap_worker *worker) {
    ap_quiet_rest(worker);
    for (;;) {
        if (!ap_idle_enlist(worker))
            return AP_E_CLOSED;
        AP_POINT("idle-enlisted");
        int rc = ap__park_enlisted(worker);
        if (rc != AP_OK || !worker->lookout)
            return rc;
        ap_idle_look_out(worker);
        if (ap_backlog_look(worker->pool, false) != AP_QUEUE_EMPTY)
            return AP_OK;
    }
}
