/* The store of blocks (block.h): who gets a block has it alone, and clean; none is lost. */
#include "crew.h"
#include "sched/block.h"

/* values: blocks in the store at the beginning, turns of each thread, allocating at once */
#define BLOCKS_MAX 8

static ap_block_store *store;

static void setup(void) {
    ap_block *blocks[BLOCKS_MAX];
    model_impatient = model_value(2);
    store = model_alloc(sizeof *store);
    model_name(&store->top, "top");
    model_name(&store->popping, "popping");
    for (int i = 0; i < model_value(0); i++)
        MODEL_CHECK((blocks[i] = ap_block_get(store)) != NULL);
    for (int i = 0; i < model_value(0); i++)
        ap_block_recycle(store, blocks[i]);
}

/* It belongs to the caller: another owner that is not ordered with this one is a race. */
static void use(ap_block *block) {
    MODEL_CHECK(ap_ptr_load_relaxed(&block->next) == NULL);
    MODEL_CHECK(ap_u32_load_relaxed(&block->done) == 0);
    for (int i = 0; i < AP_BLOCK_SLOTS; i++)
        MODEL_CHECK(ap_ptr_load_relaxed(&block->slots[i]) == NULL);
    model_plain_write(block, 8);
    ap_ptr_store_relaxed(&block->slots[0], block);
    ap_u32_store_relaxed(&block->done, 1);
    model_plain_write(block, 8);
    ap_ptr_store_relaxed(&block->slots[0], NULL);
}

static void taker(void) {
    for (int i = 0; i < model_value(1); i++) {
        ap_block *block = ap_block_get(store);
        MODEL_CHECK(block != NULL);
        use(block);
        ap_block_recycle(store, block);
    }
}

/* Takes two, and gives them back in the same order: the top is another block with the same next. */
static void swapper(void) {
    ap_block *first = ap_block_get(store), *second = ap_block_get(store);
    MODEL_CHECK(first && second && first != second);
    use(first);
    use(second);
    ap_block_recycle(store, second);
    ap_block_recycle(store, first);
}

static void finish(void) {
    ap_block_store_destroy(store);
    model_free(store);
}

#define CASE(title, bound, ...) \
    .name = title, .setup = setup, .finish = finish, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("blocks, 2 threads", 3, 1, 2), .threads = {taker, taker}},
    {CASE("blocks, 3 threads", 1, 2, 1), .stale = 1, .threads = {taker, taker, taker}},
    {CASE("blocks, one takes two", 3, 2, 1), .threads = {taker, swapper}},
    {CASE("blocks, 2 threads, one allocates instead", 3, 1, 2, 1), .threads = {taker, taker}},
    {CASE("blocks, one takes two, or allocates", 3, 2, 1, 1), .threads = {taker, swapper}},
    {0},
};
