/* See queue.h. */
#include "queue.h"

#include "sync/atomic.h"
#include "sync/wait.h"

#define TASKS_MOST 8

struct ap_pool {
    ap_atomic_u32 steps; /* changed by each call: what follows that up to the next access is a step
                            with it */
    ap_task *tasks[TASKS_MOST];
    uint32_t count;
    bool closed;
};

struct ap_worker {
    ap_pool *pool;
    bool woken; /* and has not looked */
};

/* What is not seen needs no order. */
#define STEP __attribute__((no_sanitize_thread))

STEP ap_pool *queue_new(void) {
    ap_pool *pool = model_alloc(sizeof *pool);
    model_name(&pool->steps, "queue");
    return pool;
}

STEP int ap_pool_push(ap_pool *pool, ap_task *task) {
    ap_u32_add_acq_rel(&pool->steps, 1);
    if (pool->closed)
        return AP_E_CLOSED;
    MODEL_CHECK(pool->count < TASKS_MOST);
    pool->tasks[pool->count++] = task;
    ap_wake_u32(&pool->steps, 1);
    return AP_OK;
}

STEP void ap_pool_close(ap_pool *pool) {
    ap_u32_add_acq_rel(&pool->steps, 1);
    pool->closed = true;
    ap_wake_u32(&pool->steps, UINT32_MAX);
}

STEP ap_task *ap_pool_take_try(ap_pool *pool) {
    (void)ap_u32_load_acquire(&pool->steps);
    if (!pool->count)
        return NULL;
    ap_u32_add_acq_rel(&pool->steps, 1);
    if (!pool->count)
        return NULL;
    ap_task *task = pool->tasks[0];
    pool->count--;
    for (uint32_t at = 0; at < pool->count; at++)
        pool->tasks[at] = pool->tasks[at + 1];
    return task;
}

STEP uint64_t ap_pool_pending(ap_pool *pool) {
    (void)ap_u32_load_acquire(&pool->steps);
    return pool->count;
}

void ap_pool_dealt(ap_pool *pool) {
    (void)pool;
}

STEP int ap_worker_begin(ap_pool *pool, ap_worker **out) {
    (void)ap_u32_load_acquire(&pool->steps);
    if (pool->closed && !pool->count)
        return AP_E_CLOSED;
    *out = model_alloc(sizeof **out);
    (*out)->pool = pool;
    return AP_OK;
}

STEP void ap_worker_end(ap_worker *worker) {
    model_free(worker);
}

STEP ap_task *ap_worker_take_try(ap_worker *worker) {
    return ap_pool_take_try(worker->pool);
}

/* After a look of its own it does not look again. */
STEP ap_task *ap_worker_search(ap_worker *worker) {
    bool looks = worker->woken;
    worker->woken = false;
    return looks ? ap_pool_take_try(worker->pool) : NULL;
}

STEP int ap_worker_park(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    uint32_t seen = ap_u32_load_acquire(&pool->steps);
    worker->woken = true;
    if (pool->count)
        return AP_OK;
    if (pool->closed)
        return AP_E_CLOSED;
    ap_wait_u32(&pool->steps, seen, AP_FOREVER);
    return AP_OK;
}

void ap_worker_adopt(ap_worker *worker) {
    (void)worker;
}

void ap_worker_disown(ap_worker *worker) {
    (void)worker;
}
