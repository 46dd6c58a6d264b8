/* The idle word and the tokens: protocol and proof in idle.h. */
#include "sched/idle.h"

#include "sync/clock.h"
#include "sync/wait.h"

/* The lookout's nap; the kernel's timer slack comes on top. */
#define AP__LOOKOUT_NS 30000

static void ap__token_give(ap_worker *worker, uint32_t token) {
    /* pairs with the acquire loads of ap_idle_sleep: orders what we know before its waking */
    uint32_t before = ap_u32_exchange_acq_rel(&worker->token, token);
    AP_POINT("idle-token-given");
    if (before == AP_TOKEN_PARKED)
        ap_wake_u32(&worker->token, 1);
}

AP_NOINLINE void ap_idle_wake(ap_pool *pool, bool urgent) {
    for (;;) {
        /* pairs with the CAS of ap_idle_enlist: orders its `below` before our load of it */
        uint64_t word = ap_u64_load_seq_cst(&pool->idle);
        bool others = ap_idle_idle(word) + ((word & AP_IDLE_LOOKOUT) != 0) < ap_idle_begun(word);
        if (ap_idle_searching(word) != 0 || ap_idle_idle(word) == 0 ||
            (!urgent && !ap_idle_wants_wake(word)))
            return;
        uint32_t top = ap_idle_top(word);
        ap_worker *worker = ap_pool_slot(pool, top - 1);
        uint32_t below = ap_u32_load_relaxed(&worker->below);
        bool lookout = others && !urgent;
        uint64_t woken = word - top + below - AP_IDLE_IDLE_ONE +
                         (lookout ? AP_IDLE_LOOKOUT : AP_IDLE_SEARCHING_ONE);
        AP_POINT("idle-wake");
        /* pairs with ap_idle_search_end, ap_idle_look_out and ap_idle_notify: from here on
         * somebody searches, or will look */
        if (ap_u64_cas_seq_cst(&pool->idle, &word, woken)) {
            ap__token_give(worker, lookout  ? AP_TOKEN_LOOKOUT
                                   : urgent ? AP_TOKEN_URGENT
                                            : AP_TOKEN_WORK);
            return;
        }
    }
}

bool ap_idle_search_begin(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    do {
        if (ap_idle_searching(word) >= pool->max_searching)
            return false;
        /* pairs with ap_idle_notify: pushers that see us leave the task to us */
    } while (!ap_u64_cas_seq_cst(&pool->idle, &word, word + AP_IDLE_SEARCHING_ONE));
    worker->counted = true;
    return true;
}

void ap_idle_search_end(ap_worker *worker, bool found) {
    ap_pool *pool = worker->pool;
    bool urgent = worker->urgent;
    worker->counted = false;
    worker->urgent = false;
    AP_POINT("idle-search-end");
    /* pairs with ap_idle_notify: a push that saw us search precedes this, and our look below */
    uint64_t word = ap_u64_sub_seq_cst(&pool->idle, AP_IDLE_SEARCHING_ONE);
    /* With nobody idle there is nobody to relay to; whoever enlists later looks by itself. */
    if (ap_idle_searching(word) != 1 || ap_idle_idle(word) == 0)
        return;
    ap_queue_state backlog = ap_backlog_look(pool, false);
    /* A slot that is only reserved is relayed by a worker that has something else to do; one
     * that found nothing will see it when it parks, and nap.  Else two would wake each other for
     * as long as the producer is stopped. */
    if (backlog == AP_QUEUE_READY || (backlog == AP_QUEUE_RESERVED && found))
        ap_idle_wake(pool, urgent);
}

bool ap_idle_enlist(ap_worker *worker) {
    ap_pool *pool = worker->pool;
    uint64_t searching = worker->counted ? AP_IDLE_SEARCHING_ONE : 0;
    uint64_t enlisted;
    ap_u32_store_relaxed(&worker->token, AP_TOKEN_EMPTY);
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    do {
        if ((word & AP_IDLE_ENDED) != 0) {
            if (worker->counted)
                ap_idle_search_end(worker, false);
            return false;
        }
        uint32_t top = ap_idle_top(word);
        ap_u32_store_relaxed(&worker->below, top);
        enlisted = word - top + worker->index + 1 + AP_IDLE_IDLE_ONE - searching + AP_IDLE_TAG_ONE;
        AP_POINT("idle-enlist");
        /* pairs with ap_idle_notify (before our look at the queues in the total order) and with
         * ap_idle_wake (orders token and below before its use of them) */
    } while (!ap_u64_cas_seq_cst(&pool->idle, &word, enlisted));
    worker->counted = false;
    worker->urgent = false;
    return true;
}

int ap_idle_sleep(ap_worker *worker, uint64_t deadline_ns) {
    uint32_t token = AP_TOKEN_EMPTY;
    AP_POINT("idle-park");
    /* pairs with ap__token_give, either way: it sees PARKED, or we see its token */
    if (ap_u32_cas_acq_rel(&worker->token, &token, AP_TOKEN_PARKED)) {
        token = AP_TOKEN_PARKED;
        ap_count(&worker->parks, 1);
        AP_POINT("idle-sleep"); /* outside the loop: wakes without a reason do not pass again */
        while (token == AP_TOKEN_PARKED) {
            int rc = ap_wait_u32(&worker->token, AP_TOKEN_PARKED, deadline_ns);
            /* pairs with ap__token_give; acquire also on failure */
            if (rc == AP_E_TIMEDOUT && ap_u32_cas_acq_rel(&worker->token, &token, AP_TOKEN_EMPTY))
                return AP_E_TIMEDOUT;
            /* pairs with ap__token_give: orders what the waker knew before our waking */
            token = ap_u32_load_acquire(&worker->token);
        }
    }
    if (token == AP_TOKEN_END)
        return AP_E_CLOSED;
    ap_count(&worker->wakes, 1);
    worker->lookout = token == AP_TOKEN_LOOKOUT;
    worker->counted = token != AP_TOKEN_LOOKOUT;
    worker->urgent = token == AP_TOKEN_URGENT;
    return AP_OK;
}

void ap_idle_look_out(ap_worker *worker) {
    uint64_t until = ap_clock_after(AP__LOOKOUT_NS);
    /* Nobody else writes the token of a worker that is off the directory. */
    ap_u32_store_relaxed(&worker->token, AP_TOKEN_NAP);
    while (ap_wait_u32(&worker->token, AP_TOKEN_NAP, until) != AP_E_TIMEDOUT) {
    }
    AP_POINT("idle-look-out");
    /* pairs with ap_idle_notify: a push that saw the lookout precedes this, and our look next */
    (void)ap_u64_add_seq_cst(&worker->pool->idle, AP_IDLE_SEARCHING_ONE - AP_IDLE_LOOKOUT);
    worker->lookout = false;
    worker->counted = true;
    worker->urgent = true;
}

bool ap_idle_begin(ap_pool *pool) {
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    do {
        if ((word & AP_IDLE_ENDED) != 0)
            return false;
        /* pairs with ap_idle_try_end: the pool does not end once we have begun */
    } while (!ap_u64_cas_seq_cst(&pool->idle, &word, word + AP_IDLE_BEGUN_ONE + AP_IDLE_TAG_ONE));
    return true;
}

void ap_idle_end(ap_pool *pool) {
    /* pairs with ap_idle_try_end: after this our pushes are in the queues it looks at */
    (void)ap_u64_sub_seq_cst(&pool->idle, AP_IDLE_BEGUN_ONE);
    /* a search that found nothing leaves a slot that is only reserved to its worker */
    if (ap_backlog_look(pool, false) != AP_QUEUE_EMPTY)
        ap_idle_wake(pool, true);
    ap_idle_try_end(pool);
}

void ap_idle_close(ap_pool *pool) {
    /* pairs with ap_idle_try_end: orders the closing of the shards before its looks at them */
    (void)ap_u64_or_seq_cst(&pool->idle, AP_IDLE_CLOSED);
    ap_idle_try_end(pool);
}

void ap_idle_try_end(ap_pool *pool) {
    uint64_t word;
    do {
        /* pairs with ap_idle_close, ap_idle_enlist and ap_idle_end: orders what those workers
         * and the closer did to the queues before our looks at them */
        word = ap_u64_load_seq_cst(&pool->idle);
        if ((word & (AP_IDLE_CLOSED | AP_IDLE_ENDED)) != AP_IDLE_CLOSED ||
            ap_idle_idle(word) != ap_idle_begun(word))
            return;
        if (ap_backlog_look_all(pool) != AP_QUEUE_EMPTY)
            return;
        AP_POINT("idle-try-end");
        /* pairs with ap_idle_enlist, ap_idle_begin: they come before and this fails, or after and
         * see the end */
    } while (!ap_u64_cas_seq_cst(&pool->idle, &word,
                                 (word | AP_IDLE_ENDED) - ap_idle_top(word) * AP_IDLE_TOP_ONE -
                                     ap_idle_idle(word) * AP_IDLE_IDLE_ONE));

    /* All idle workers are ours now; each may be gone as soon as it has its token. */
    uint32_t top = ap_idle_top(word);
    while (top != 0) {
        ap_worker *worker = ap_pool_slot(pool, top - 1);
        top = ap_u32_load_relaxed(&worker->below);
        ap__token_give(worker, AP_TOKEN_END);
    }
}
