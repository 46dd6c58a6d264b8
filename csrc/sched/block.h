/* The memory of injectors: blocks of 127 task slots, and the store they are recycled through.
 *
 * Overview.  A block that has been handed out once stays a block until its pool is freed, so a
 * thread that holds a stale pointer may read its slots; what it read is void once its
 * compare-and-swap on an index fails.  That is why neither epochs nor hazard pointers are
 * needed.
 *
 * Guarantee.  A block from the store has only NULL slots, no next and a done count of 0, and
 * belongs to the caller alone.
 *
 *     ap_block_recycle                          ap_block_get
 *     1 link to the top, CAS top release        a take the popper's flag
 *                                               b load top acquire, CAS top to its next
 *                                               c drop the flag release
 *
 * One popper at a time makes (b) free of ABA: nobody else can take the top away and bring it
 * back.  A popper that finds the flag taken for long allocates instead of waiting.
 */
#ifndef AP_SCHED_BLOCK_H
#define AP_SCHED_BLOCK_H

#include "affinitypool.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

#ifndef AP_BLOCK_SLOTS /* a test may have shorter blocks: a power of two less one */
#define AP_BLOCK_SLOTS 127
#endif

typedef struct ap_block ap_block;

struct ap_block {
    ap_atomic_ptr slots[AP_BLOCK_SLOTS]; /* NULL: not yet pushed, or already claimed */
    ap_atomic_ptr next;                  /* the next block of the injector, or of the store */
    AP_ALIGN_LINE ap_atomic_u32 done;    /* slots whose claim is over */
};
_Static_assert(sizeof(ap_block) ==
                   ((AP_BLOCK_SLOTS + 1) * sizeof(void *) + AP_LINE - 1) / AP_LINE * AP_LINE +
                       AP_LINE,
               "the done count has a line of its own");

typedef struct ap_block_store {
    AP_ALIGN_LINE ap_atomic_ptr top;
    AP_ALIGN_LINE ap_atomic_u32 popping; /* 1 while a popper is at work */
} ap_block_store;

/* A recycled block or a new one; NULL if memory has run out. */
ap_block *ap_block_get(ap_block_store *store);

/* Takes back a block that nobody claims from any more.  Makes it clean. */
void ap_block_recycle(ap_block_store *store, ap_block *block);

/* Frees what the store holds; nobody else may use it. */
void ap_block_store_destroy(ap_block_store *store);

#endif
