/* Quietness: protocol and proof in quiet.h. */
#include "sched/quiet.h"

#include "sync/clock.h"
#include "sync/wait.h"

static void ap__quiet_tell(ap_pool *pool) {
    AP_POINT("quiet-tell");
    /* pairs with the add in ap_pool_wait_quiet: it sees our count, or we see that it waits */
    if (AP_LIKELY(ap_u64_load_seq_cst(&pool->quiet_waiters) == 0))
        return;
    (void)ap_u32_add_seq_cst(&pool->quiet_changes, 1);
    ap_wake_u32(&pool->quiet_changes, UINT32_MAX);
}

void ap_quiet_rest(ap_worker *worker) {
    /* pairs with the loads in ap_pool_is_quiet: orders what the tasks did before their counting */
    (void)ap_u64_exchange_seq_cst(&worker->ended, ap_u64_load_relaxed(&worker->taken));
    ap__quiet_tell(worker->pool);
}

void ap_pool_dealt(ap_pool *pool) {
    /* as in ap_quiet_rest */
    (void)ap_u64_add_seq_cst(&pool->dealt, 1);
    ap__quiet_tell(pool);
}

void ap_pool_undertake(ap_pool *pool) {
    /* release pairs with whoever sees that the task was started, and with ap_quiet_rest after it:
     * see quiet.h */
    (void)ap_u64_add_acq_rel(&pool->undertaken, 1);
}

int ap_pool_is_quiet(ap_pool *pool) {
    uint64_t ended = ap_u64_load_seq_cst(&pool->dealt);
    for (uint32_t i = 0; i < pool->max_workers; i++) {
        ap_worker *worker = ap_pool_slot(pool, i);
        if (worker != NULL)
            ended += ap_u64_load_seq_cst(&worker->ended);
    }
    AP_POINT("quiet-sum");
    uint64_t pushed = ap_u64_load_relaxed(&pool->undertaken);
    for (uint32_t i = 0; i < pool->shards; i++)
        pushed += ap_injector_pushed(&pool->injectors[i]);
    for (uint32_t i = 0; i < pool->max_workers; i++) {
        ap_worker *worker = ap_pool_slot(pool, i);
        if (worker != NULL)
            pushed += ap_u64_load_relaxed(&worker->pushed_to_ring);
    }
    return ended == pushed;
}

int ap_pool_wait_quiet(ap_pool *pool, uint64_t deadline_ns) {
    int rc = AP_OK;
    (void)ap_u64_add_seq_cst(&pool->quiet_waiters, 1);
    /* pairs with the CAS of ap_idle_begin: whoever has rested since, unheard, has its slot seen */
    (void)ap_u64_load_seq_cst(&pool->idle);
    for (;;) {
        uint32_t changes = ap_u32_load_seq_cst(&pool->quiet_changes);
        if (ap_pool_is_quiet(pool)) {
            rc = AP_OK;
            break;
        }
        if (rc != AP_OK)
            break; /* looked once more after the deadline or the signal */
        AP_POINT("quiet-sleep");
        rc = ap_wait_u32(&pool->quiet_changes, changes, deadline_ns);
    }
    (void)ap_u64_sub_seq_cst(&pool->quiet_waiters, 1);
    return rc;
}
