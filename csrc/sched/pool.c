/* A pool's making, closing and freeing, pushes from outside, counters.
 *
 * Overview.  A thread that pushes from outside gets a number the first time it does and keeps
 * to the shard of that number: its tasks keep their order, and producers do not meet.  Numbers
 * are never given back; many short-lived threads leave nothing behind.
 *
 * Checked by tests/c/test_pool.c.
 */
#include "sched/pool.h"

#include "sched/idle.h"
#include "sync/memory.h"

static ap_atomic_u64 ap__producers;
static AP_THREAD_LOCAL uint32_t ap__producer; /* number + 1; 0: none yet */

static AP_NOINLINE uint32_t ap__producer_enrol(void) {
    return ap__producer = (uint32_t)ap_u64_add_relaxed(&ap__producers, 1) | 0x80000000u;
}

static inline uint32_t ap__producer_number(void) {
    uint32_t number = ap__producer;
    return AP_LIKELY(number != 0) ? number : ap__producer_enrol();
}

/* ---- making and freeing ------------------------------------------------------------------ */

static uint32_t ap__power_at_or_below(uint32_t n) {
    uint32_t power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

static uint32_t ap__power_at_or_above(uint32_t n) {
    uint32_t power = ap__power_at_or_below(n);
    return power == n ? n : 2 * power;
}

static uint32_t ap__min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t ap__shards(const ap_pool_options *options, uint32_t cpus) {
    if (options->in_order != 0)
        return 1;
    if (options->shards == 0)
        return ap__min(ap__power_at_or_above(ap__min(options->max_workers, 8)),
                       ap__power_at_or_below(cpus));
    uint32_t most = ap__power_at_or_below(options->max_workers);
    return options->shards >= most ? most : ap__power_at_or_above(options->shards);
}

static void ap__pool_free(ap_pool *pool) {
    for (uint32_t i = 0; pool->injectors != NULL && i < pool->shards; i++)
        ap_injector_destroy(&pool->injectors[i]);
    for (uint32_t i = 0; pool->workers != NULL && i < pool->max_workers; i++)
        ap_memory_free(ap_pool_slot(pool, i));
    ap_block_store_destroy(&pool->blocks);
    ap_memory_free(pool->injectors);
    ap_memory_free(pool->workers);
    ap_memory_free(pool);
}

int ap_pool_new(const ap_pool_options *options, ap_pool **out) {
    uint32_t slots = options->ring_slots != 0 ? options->ring_slots : AP_RING_SLOTS_MAX;
    if (options->max_workers < 1 || options->max_workers > AP_MAX_WORKERS || slots < 2 ||
        slots > AP_RING_SLOTS_MAX || (slots & (slots - 1)) != 0 || options->shards > AP_MAX_SHARDS)
        return AP_E_INVALID;
    ap_pool *pool = ap_memory_alloc(sizeof *pool);
    if (pool == NULL)
        return AP_E_NOMEM;
    pool->cpus = options->cpus != 0 ? options->cpus : ap_cpu_count();
    pool->max_workers = options->max_workers;
    pool->shards = ap__shards(options, pool->cpus);
    pool->ring_slots = slots;
    /* the only worker of a pool claims many into its ring, which nobody else looks at */
    pool->claim_max = options->in_order != 0 && options->max_workers > 1 ? 1 : AP_CLAIM_MAX;
    pool->uses_rings = options->in_order == 0 && options->max_workers > 1;
    pool->first_index = options->first_index;
    pool->max_searching = pool->cpus < 4 ? 1 : ap__min(pool->cpus / 2, AP_SEARCHING_MAX);
    ap_u64_store_relaxed(&pool->refs, 1);
    pool->injectors = ap_memory_alloc(pool->shards * sizeof *pool->injectors);
    pool->workers = ap_memory_alloc(pool->max_workers * sizeof *pool->workers);
    int rc = pool->injectors == NULL || pool->workers == NULL ? AP_E_NOMEM : AP_OK;
    for (uint32_t i = 0; i < pool->shards && rc == AP_OK; i++)
        rc = ap_injector_init(&pool->injectors[i], &pool->blocks, pool->first_index);
    if (rc != AP_OK) {
        ap__pool_free(pool);
        return rc;
    }
    *out = pool;
    return AP_OK;
}

void ap_pool_retain(ap_pool *pool) {
    (void)ap_u64_add_relaxed(&pool->refs, 1);
}

void ap_pool_release(ap_pool *pool) {
    /* pairs with the other releases: orders every use of the pool before its freeing */
    if (ap_u64_sub_acq_rel(&pool->refs, 1) == 1)
        ap__pool_free(pool);
}

/* ---- push, take, close ------------------------------------------------------------------- */

int ap_pool_push_batch(ap_pool *pool, ap_task *const *tasks, size_t count) {
    if (AP_UNLIKELY(count == 0))
        return ap_pool_is_closed(pool) ? AP_E_CLOSED : AP_OK;
    ap_worker *worker = ap_worker_current();
    if (worker != NULL && worker->pool == pool)
        return ap_worker_push(worker, tasks, count);
    uint32_t shard = ap__producer_number() & (pool->shards - 1);
    int rc = ap_injector_push(&pool->injectors[shard], tasks, count);
    if (AP_UNLIKELY(rc != AP_OK))
        return rc;
    AP_POINT("push-mark");
    ap_backlog_mark(&pool->shard_backlog, shard);
    AP_POINT("push-notify");
    ap_idle_notify(pool);
    return AP_OK;
}

int ap_pool_push(ap_pool *pool, ap_task *task) {
    return ap_pool_push_batch(pool, &task, 1);
}

ap_task *ap_pool_take_try(ap_pool *pool) {
    for (uint32_t i = 0; i < pool->shards; i++) {
        ap_injector *injector = &pool->injectors[i];
        ap_task *task;
        bool moved = false;
        do {
            if (ap_injector_claim_try(injector, &task, 1, false, &moved) == 1) {
                if (moved && !ap_injector_seems_empty(injector))
                    ap_idle_notify(pool);
                return task;
            }
        } while (ap_injector_look(injector) == AP_QUEUE_READY); /* lost a race */
    }
    for (uint32_t i = 0; i < pool->max_workers; i++) {
        ap_worker *worker = ap_pool_slot(pool, i);
        ap_task *task;
        if (worker == NULL)
            continue;
        do {
            if ((task = ap_ring_take_try(ap_worker_ring(worker))) != NULL)
                return task;
        } while (ap_ring_look(ap_worker_ring(worker)) == AP_QUEUE_READY); /* lost a race */
    }
    return NULL;
}

void ap_pool_close(ap_pool *pool) {
    for (uint32_t i = 0; i < pool->shards; i++)
        ap_injector_close(&pool->injectors[i]);
    ap_idle_close(pool);
}

int ap_pool_is_closed(ap_pool *pool) {
    /* pairs with ap_idle_close: who sees the pool closed sees its shards closed */
    return (ap_u64_load_acquire(&pool->idle) & AP_IDLE_CLOSED) != 0;
}

/* ---- counters ---------------------------------------------------------------------------- */

uint64_t ap_pool_pending(ap_pool *pool) {
    uint64_t pending = 0;
    for (uint32_t i = 0; i < pool->shards; i++)
        pending += ap_injector_pending(&pool->injectors[i]);
    for (uint32_t i = 0; i < pool->max_workers; i++) {
        ap_worker *worker = ap_pool_slot(pool, i);
        if (worker != NULL)
            pending += ap_ring_pending(ap_worker_ring(worker));
    }
    return pending;
}

void ap_pool_read_stats(ap_pool *pool, ap_pool_stats *out) {
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    ap_pool_stats stats = {
        .workers = ap_idle_begun(word),
        .idle = ap_idle_idle(word),
        .searching = ap_idle_searching(word),
        .shards = pool->shards,
        .max_workers = pool->max_workers,
        .closed = (word & AP_IDLE_CLOSED) != 0,
    };
    uint64_t inside_to_shards = 0;
    for (uint32_t i = 0; i < pool->max_workers; i++) {
        ap_worker *worker = ap_pool_slot(pool, i);
        if (worker == NULL)
            continue;
        uint64_t to_shard = ap_u64_load_relaxed(&worker->pushed_to_shard);
        inside_to_shards += to_shard;
        stats.pushed_inside += to_shard + ap_u64_load_relaxed(&worker->pushed_to_ring);
        stats.taken += ap_u64_load_relaxed(&worker->taken);
        stats.stolen += ap_u64_load_relaxed(&worker->stolen);
        stats.parks += ap_u64_load_relaxed(&worker->parks);
        stats.wakes += ap_u64_load_relaxed(&worker->wakes);
    }
    for (uint32_t i = 0; i < pool->shards; i++)
        stats.pushed_outside += ap_injector_pushed(&pool->injectors[i]);
    stats.pushed_outside -= inside_to_shards;
    *out = stats;
}

int ap_pool_cpu_is_free(ap_pool *pool) {
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    return ap_idle_begun(word) - ap_idle_idle(word) - ap_idle_searching(word) < pool->cpus;
}
