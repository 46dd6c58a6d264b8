/* Blocks and their store: see block.h. */
#include "sched/block.h"

#include "sync/memory.h"

/* How often a popper looks at a taken flag before it allocates instead. */
#ifndef AP__POP_TRIES /* the models try it with none */
#define AP__POP_TRIES 64
#endif

static ap_block *ap__block_pop(ap_block_store *store) {
    for (int tries = 0;; tries++) {
        if (ap_ptr_load_relaxed(&store->top) == NULL)
            return NULL;
        /* pairs with the store of 0 below: orders the last popper's CAS before our load */
        if (ap_u32_exchange_acq_rel(&store->popping, 1) == 0)
            break;
        if (tries == AP__POP_TRIES)
            return NULL;
        if (tries < AP__POP_TRIES / 2)
            ap_cpu_pause();
        else
            ap_cpu_yield();
    }
    AP_POINT("block-pop");
    /* pairs with the CAS in ap_block_recycle: orders the cleaning before our use */
    void *top = ap_ptr_load_acquire(&store->top);
    while (top != NULL &&
           /* acquire on failure, as above */
           !ap_ptr_cas_acq_rel(&store->top, &top, ap_ptr_load_relaxed(&((ap_block *)top)->next))) {
    }
    /* pairs with the exchange above: orders our CAS before the next popper's load */
    ap_u32_store_release(&store->popping, 0);
    return top;
}

ap_block *ap_block_get(ap_block_store *store) {
    ap_block *block = ap__block_pop(store);
    if (block == NULL)
        return ap_memory_alloc(sizeof *block);
    ap_ptr_store_relaxed(&block->next, NULL);
    return block;
}

void ap_block_recycle(ap_block_store *store, ap_block *block) {
    ap_u32_store_relaxed(&block->done, 0);
    void *top = ap_ptr_load_relaxed(&store->top);
    do {
        ap_ptr_store_relaxed(&block->next, top);
        /* pairs with the acquire load in ap__block_pop: orders the cleaning before its use */
    } while (!ap_ptr_cas_acq_rel(&store->top, &top, block));
}

void ap_block_store_destroy(ap_block_store *store) {
    ap_block *block = ap_ptr_exchange_relaxed(&store->top, NULL);
    while (block != NULL) {
        ap_block *next = ap_ptr_load_relaxed(&block->next);
        ap_memory_free(block);
        block = next;
    }
}
