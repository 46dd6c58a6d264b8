/* The block store against a stack: last in, first out, and every block clean. */
#include "fuzz.h"
#include "sched/block.h"

#define HELD 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, data + size};
    ap_block_store store;
    ap_block *held[HELD], *stored[HELD];
    uint32_t n_held = 0, n_stored = 0;
    memset(&store, 0, sizeof store);
    fuzz_begin();
    while (fuzz_more(&in)) {
        switch (fuzz_byte(&in) % 8) {
        case 0:
            fuzz_fail_allocation(fuzz_below(&in, 4));
            break;
        case 1: /* somebody else is at work for long: a new one, whatever there is */
            if (n_held + n_stored < HELD) {
                ap_u32_store_relaxed(&store.popping, 1);
                ap_block *block = ap_block_get(&store);
                ap_u32_store_relaxed(&store.popping, 0);
                FUZZ_EQ(block != NULL, fuzz_allocations(1));
                if (block != NULL)
                    held[n_held++] = block;
            }
            break;
        case 2:
        case 3:
        case 4:
            if (n_held + n_stored < HELD || n_stored > 0) {
                ap_block *block = ap_block_get(&store);
                if (n_stored > 0)
                    FUZZ_CHECK(block == stored[--n_stored]);
                else
                    FUZZ_EQ(block != NULL, fuzz_allocations(1));
                if (block == NULL)
                    break;
                for (uint32_t i = 0; i < AP_BLOCK_SLOTS; i++)
                    FUZZ_CHECK(ap_ptr_load_relaxed(&block->slots[i]) == NULL);
                FUZZ_CHECK(ap_ptr_load_relaxed(&block->next) == NULL);
                FUZZ_EQ(ap_u32_load_relaxed(&block->done), 0);
                for (uint32_t i = 0; i < n_held; i++)
                    FUZZ_CHECK(held[i] != block);
                held[n_held++] = block;
            }
            break;
        default:
            if (n_held > 0) {
                uint32_t at = fuzz_below(&in, n_held);
                ap_block *block = held[at];
                held[at] = held[--n_held];
                ap_u32_store_relaxed(&block->done, fuzz_byte(&in));
                ap_ptr_store_relaxed(&block->next, n_held > 0 ? held[0] : block);
                ap_block_recycle(&store, block);
                stored[n_stored++] = block;
            }
        }
        FUZZ_EQ(fuzz_live(), n_held + n_stored);
    }
    ap_block_store_destroy(&store);
    FUZZ_EQ(fuzz_live(), n_held);
    while (n_held > 0)
        ap_memory_free(held[--n_held]);
    return 0;
}
