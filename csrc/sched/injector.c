/* The sharded injector queue: protocol and guarantees in injector.h. */
#include "sched/injector.h"

#include "sync/memory.h"

#define AP__CLOSED UINT64_C(1)
#define AP__UNIT UINT64_C(2)                           /* one position */
#define AP__LAP_WORD (AP__UNIT * (AP_BLOCK_SLOTS + 1)) /* one block */

static inline uint32_t ap__offset(uint64_t word) {
    return (uint32_t)(word / AP__UNIT) & AP_BLOCK_SLOTS;
}
_Static_assert((AP_BLOCK_SLOTS & (AP_BLOCK_SLOTS + 1)) == 0, "an offset is a mask of the position");

/* The word at which the next slot is: position 127 is no slot. */
static inline uint64_t ap__normal(uint64_t word) {
    word &= ~AP__CLOSED;
    return ap__offset(word) == AP_BLOCK_SLOTS ? word + AP__UNIT : word;
}

/* Slots between two words. */
static inline uint64_t ap__slots_between(uint64_t from, uint64_t to) {
    uint64_t laps = (to & ~(AP__LAP_WORD - 1)) - (from & ~(AP__LAP_WORD - 1));
    return laps / AP__LAP_WORD * AP_BLOCK_SLOTS + ap__offset(to) - ap__offset(from);
}

int ap_injector_init(ap_injector *injector, ap_block_store *store, uint64_t first_index) {
    ap_block *block = ap_block_get(store);
    if (block == NULL)
        return AP_E_NOMEM;
    uint64_t word = (first_index * AP__UNIT) & ~(AP__LAP_WORD - 1);
    ap_u64_store_relaxed(&injector->head, word);
    ap_u64_store_relaxed(&injector->tail, word);
    ap_ptr_store_relaxed(&injector->head_block, block);
    ap_ptr_store_relaxed(&injector->tail_block, block);
    ap_ptr_store_relaxed(&injector->spare, NULL);
    injector->store = store;
    injector->first = word;
    return AP_OK;
}

void ap_injector_destroy(ap_injector *injector) {
    ap_block *block = ap_ptr_load_relaxed(&injector->head_block);
    while (block != NULL) {
        ap_block *next = ap_ptr_load_relaxed(&block->next);
        ap_memory_free(block);
        block = next;
    }
    ap_memory_free(ap_ptr_load_relaxed(&injector->spare));
}

/* ---- blocks: a spare of the shard's own before the pool's store ------------------------- */

static ap_block *ap__spare_take(ap_injector *injector) {
    if (ap_ptr_load_relaxed(&injector->spare) != NULL) {
        /* pairs with the CAS in ap__spare_give: orders the cleaning before our use */
        ap_block *block = ap_ptr_exchange_acq_rel(&injector->spare, NULL);
        if (block != NULL)
            return block;
    }
    return ap_block_get(injector->store);
}

static void ap__spare_give(ap_injector *injector, ap_block *block) {
    if (ap_ptr_load_relaxed(&injector->spare) == NULL) {
        void *none = NULL;
        ap_u32_store_relaxed(&block->done, 0);
        ap_ptr_store_relaxed(&block->next, NULL);
        /* pairs with the exchange in ap__spare_take: orders the cleaning before its use */
        if (ap_ptr_cas_acq_rel(&injector->spare, &none, block))
            return;
    }
    ap_block_recycle(injector->store, block);
}

/* A private chain of blocks, linked by next, for a push that crosses block ends. */
struct ap__chain {
    ap_block *first;
    ap_block *last;
    uint64_t length;
};

static int ap__chain_grow(ap_injector *injector, struct ap__chain *chain, uint64_t length) {
    while (chain->length < length) {
        ap_block *block = ap__spare_take(injector);
        if (block == NULL)
            return AP_E_NOMEM;
        if (chain->last == NULL)
            chain->first = block;
        else
            ap_ptr_store_relaxed(&chain->last->next, block);
        chain->last = block;
        chain->length++;
    }
    return AP_OK;
}

/* Gives back every block from `block` on. */
static void ap__chain_drop(ap_injector *injector, ap_block *block) {
    while (block != NULL) {
        ap_block *next = ap_ptr_load_relaxed(&block->next);
        ap__spare_give(injector, block);
        block = next;
    }
}

/* ---- push -------------------------------------------------------------------------------- */

/* Waits a little for the producer that is moving the tail to the next block. */
static AP_NOINLINE void ap__tail_wait(uint32_t round) {
    if (round < 64)
        ap_cpu_pause();
    else
        ap_cpu_yield();
}

/* Steps 4 and 5 of a push that reaches its block's end: it owns the tail, at position 127 of
 * `block`, and needs `blocks` more, the last of which it fills up to `offset`. */
static AP_NOINLINE void ap__push_across(ap_injector *injector, ap_task *const *tasks, size_t count,
                                        uint64_t word, ap_block *block, struct ap__chain *chain,
                                        uint64_t blocks) {
    uint32_t at = ap__offset(word);
    uint32_t end = (uint32_t)((at + count) % AP_BLOCK_SLOTS);
    ap_block *last = chain->first;
    for (uint64_t i = 1; i < blocks; i++)
        last = ap_ptr_load_relaxed(&last->next);
    ap_block *surplus = ap_ptr_load_relaxed(&last->next);
    ap_ptr_store_relaxed(&last->next, NULL);

    AP_POINT("injector-crossing");
    /* pairs with the acquire load of tail_block: orders the block's cleaning before its use */
    ap_ptr_store_release(&injector->tail_block, last);
    /* pairs with the loads of tail by producers (orders tail_block before their load of it)
     * and by ap_injector_look (one total order with the idle word) */
    ap_u64_add_seq_cst(&injector->tail, AP__UNIT + (blocks - 1) * AP__LAP_WORD + end * AP__UNIT);
    /* pairs with the acquire load in ap__claim_across: orders the block before its use */
    ap_ptr_store_release(&block->next, chain->first);

    size_t i = 0;
    for (;;) {
        /* Before the last slot is filled: after that the block may be claimed empty, recycled, and
         * have another next. */
        ap_block *next = ap_ptr_load_relaxed(&block->next);
        for (; at < AP_BLOCK_SLOTS && i < count; at++, i++)
            /* pairs with the acquire load of the slot: orders the task and next before the claim */
            ap_ptr_store_release(&block->slots[at], tasks[i]);
        if (i == count)
            break;
        AP_POINT("injector-filled");
        block = next;
        at = 0;
    }
    ap__chain_drop(injector, surplus);
}

int ap_injector_push(ap_injector *injector, ap_task *const *tasks, size_t count) {
    struct ap__chain chain = {NULL, NULL, 0};
    uint32_t waits = 0;
    /* pairs with the add in ap__push_across: orders its tail_block before our load of it */
    uint64_t word = ap_u64_load_acquire(&injector->tail);
    for (;;) {
        if (AP_UNLIKELY((word & AP__CLOSED) != 0)) {
            ap__chain_drop(injector, chain.first);
            return AP_E_CLOSED;
        }
        uint32_t at = ap__offset(word);
        if (AP_UNLIKELY(at == AP_BLOCK_SLOTS)) {
            ap__tail_wait(waits++);
            word = ap_u64_load_acquire(&injector->tail); /* as above */
            continue;
        }
        /* pairs with the store in ap__push_across: orders the block's cleaning before our use */
        ap_block *block = ap_ptr_load_acquire(&injector->tail_block);
        uint64_t blocks = (at + count) / AP_BLOCK_SLOTS;
        uint64_t after = word + count * AP__UNIT;
        if (AP_UNLIKELY(blocks > 0)) {
            if (ap__chain_grow(injector, &chain, blocks) != AP_OK) {
                ap__chain_drop(injector, chain.first);
                return AP_E_NOMEM;
            }
            after = word + (AP_BLOCK_SLOTS - at) * AP__UNIT;
        }
        AP_POINT("injector-reserve");
        /* pairs with the seq_cst loads of tail in ap_injector_look: in one total order with the
         * idle word, either the worker that parks sees this or we see it parked */
        if (!ap_u64_cas_seq_cst(&injector->tail, &word, after))
            continue;
        AP_POINT("injector-reserved");
        if (AP_UNLIKELY(blocks > 0)) {
            ap__push_across(injector, tasks, count, word, block, &chain, blocks);
            return AP_OK;
        }
        for (size_t i = 0; i < count; i++)
            /* pairs with the acquire load of the slot in a claim: orders the task before it */
            ap_ptr_store_release(&block->slots[at + i], tasks[i]);
        if (AP_UNLIKELY(chain.first != NULL))
            ap__chain_drop(injector, chain.first);
        return AP_OK;
    }
}

/* ---- claim ------------------------------------------------------------------------------- */

static AP_NOINLINE void ap__claim_across(ap_injector *injector, ap_block *block, uint64_t word) {
    /* pairs with the store in ap__push_across; set before the last slot, which we saw full and
     * whose acquire load by the caller orders it */
    ap_block *next = ap_ptr_load_acquire(&block->next);
    AP_POINT("injector-claim-crossing");
    /* pairs with the acquire load in ap_injector_claim_try: orders the block before its use */
    ap_ptr_store_release(&injector->head_block, next);
    /* pairs with the acquire load of head (orders head_block before its load) and with
     * ap_injector_look (one total order with the idle word, which the caller loads next) */
    (void)ap_u64_exchange_seq_cst(&injector->head, word + AP__UNIT);
}

bool ap_injector_seems_ready(ap_injector *injector) {
    uint32_t at = ap__offset(ap_u64_load_relaxed(&injector->head));
    if (at == AP_BLOCK_SLOTS)
        return false; /* a claim is moving the head */
    /* pairs with the store in ap__claim_across: orders the block's cleaning before our look */
    ap_block *block = ap_ptr_load_acquire(&injector->head_block);
    return ap_ptr_load_relaxed(&block->slots[at]) != NULL;
}

uint32_t ap_injector_claim_try(ap_injector *injector, ap_task **out, uint32_t max, bool halve,
                               bool *moved) {
    /* pairs with the store in ap__claim_across: orders its head_block before our load of it */
    uint64_t word = ap_u64_load_acquire(&injector->head);
    uint32_t at = ap__offset(word);
    if (at == AP_BLOCK_SLOTS)
        return 0; /* another claim is moving the head */
    /* pairs with the store in ap__claim_across: orders the block's cleaning before our use */
    ap_block *block = ap_ptr_load_acquire(&injector->head_block);

    uint32_t limit = halve ? 2 * max : max;
    if (limit > AP_BLOCK_SLOTS - at)
        limit = AP_BLOCK_SLOTS - at;
    uint32_t n = 0;
    while (n < limit && ap_ptr_load_relaxed(&block->slots[at + n]) != NULL)
        n++;
    if (halve)
        n = (n + 1) / 2;
    if (n > max)
        n = max;
    if (n == 0)
        return 0;

    uint64_t after = word + n * AP__UNIT;
    AP_POINT("injector-claim");
    /* pairs with other claims: one owner per slot; orders our looks before the next claim */
    if (!ap_u64_cas_acq_rel(&injector->head, &word, after))
        return 0;
    AP_POINT("injector-claimed");
    for (uint32_t i = 0; i < n; i++)
        /* pairs with the release store of a push: orders the task, and next, before our use */
        out[i] = ap_ptr_load_acquire(&block->slots[at + i]);
    if (AP_UNLIKELY(at + n == AP_BLOCK_SLOTS)) {
        ap__claim_across(injector, block, after);
        *moved = true;
    }
    for (uint32_t i = 0; i < n; i++)
        ap_ptr_store_relaxed(&block->slots[at + i], NULL);
    /* pairs with the adds of the other claims: orders every clearing before the recycling */
    if (ap_u32_add_acq_rel(&block->done, n) + n == AP_BLOCK_SLOTS)
        ap__spare_give(injector, block);
    return n;
}

/* ---- close, look ------------------------------------------------------------------------- */

void ap_injector_close(ap_injector *injector) {
    /* pairs with the CAS of a push: it comes before and is accepted, or after and is refused */
    ap_u64_or_seq_cst(&injector->tail, AP__CLOSED);
}

ap_queue_state ap_injector_look(ap_injector *injector) {
    /* pairs with the CAS of a push, which is followed by a load of the idle word: tail first,
     * so that a head beyond it means only that later pushes, which will look, were claimed */
    uint64_t tail = ap__normal(ap_u64_load_seq_cst(&injector->tail));
    /* pairs with the CAS of a claim, which is followed by a publication if it took several */
    uint64_t word = ap_u64_load_seq_cst(&injector->head);
    if ((int64_t)(tail - ap__normal(word)) <= 0)
        return AP_QUEUE_EMPTY;
    uint32_t at = ap__offset(word);
    if (at == AP_BLOCK_SLOTS)
        return AP_QUEUE_RESERVED;
    /* pairs with the store in ap__claim_across, as in a claim */
    ap_block *block = ap_ptr_load_acquire(&injector->head_block);
    return ap_ptr_load_relaxed(&block->slots[at]) != NULL ? AP_QUEUE_READY : AP_QUEUE_RESERVED;
}

uint64_t ap_injector_pending(ap_injector *injector) {
    /* what lies between is exact if the head has not moved meanwhile; while it goes on moving, too
     * few is better than many that were never there at once (acquire keeps the loads in order) */
    uint64_t head = ap_u64_load_acquire(&injector->head), before, tail;
    int tries = 8;
    do {
        before = head;
        tail = ap_u64_load_acquire(&injector->tail);
        head = ap_u64_load_acquire(&injector->head);
    } while (head != before && --tries);
    head = ap__normal(head);
    tail = ap__normal(tail);
    return (int64_t)(tail - head) <= 0 ? 0 : ap__slots_between(head, tail);
}

uint64_t ap_injector_pushed(ap_injector *injector) {
    return ap__slots_between(injector->first, ap__normal(ap_u64_load_relaxed(&injector->tail)));
}
