/* csrc/sched/block: recycled blocks have one owner at a time, and are clean. */
#include "check.h"
#include "crew.h"
#include "sched/block.h"
#include "sync/memory.h"

TEST(block, recycles_before_it_allocates, 5) {
    static ap_block_store store;
    ap_block *a = ap_block_get(&store);
    ap_block *b = ap_block_get(&store);
    CHECK(a != NULL && b != NULL && a != b);
    uint64_t asked = ap_memory_asked();
    ap_block_recycle(&store, a);
    ap_block_recycle(&store, b);
    CHECK(ap_block_get(&store) == b);
    CHECK(ap_block_get(&store) == a);
    CHECK_EQ(ap_memory_asked(), asked);
    ap_memory_fail_at(1);
    CHECK(ap_block_get(&store) == NULL);
    ap_block_recycle(&store, a);
    ap_block_recycle(&store, b);
    ap_block_store_destroy(&store);
    CHECK_EQ(ap_memory_live(), 0);
}

static ap_block_store shared_store;

static void *get_and_recycle(void *argument) {
    (void)argument;
    ap_block *mine[4];
    for (uint64_t i = 0; i < check_scale(50000); i++) {
        int n = 1 + (int)(i % 4);
        for (int k = 0; k < n; k++) {
            mine[k] = ap_block_get(&shared_store);
            CHECK(mine[k] != NULL);
            /* `done` doubles as the owner's mark; a second owner would see it. */
            CHECK_EQ(ap_u32_exchange_relaxed(&mine[k]->done, 1), 0);
            CHECK(ap_ptr_load_relaxed(&mine[k]->next) == NULL);
        }
        for (int k = 0; k < n; k++)
            ap_block_recycle(&shared_store, mine[k]);
    }
    return NULL;
}

TEST(block, has_one_owner_under_stress, 20) {
    pthread_t threads[CREW_MAX];
    uint32_t size = crew_size(4);
    for (uint32_t i = 0; i < size; i++)
        threads[i] = check_thread(get_and_recycle, NULL);
    for (uint32_t i = 0; i < size; i++)
        check_join(threads[i]);
    ap_block_store_destroy(&shared_store);
    CHECK_EQ(ap_memory_live(), 0);
}
