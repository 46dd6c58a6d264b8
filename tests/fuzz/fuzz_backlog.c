/* The marks of a pool's queues, word for word, and what a look at them finds.
 *
 * At the point between a look that found a queue empty and the clearing of its mark the input may
 * have a task pushed to it, as its producer would: the mark must be there in the end.
 */
#include "fuzz.h"
#include "sched/pool.h"

#define TASKS 64

static ap_task tasks[TASKS];
static fuzz_input in;
static ap_pool *pool;

/* One kind of queues. */
typedef struct kind {
    bool rings;
    uint32_t size; /* of them that there are */
    uint32_t queued[AP_MAX_WORKERS];
    bool marked[AP_MAX_WORKERS];
} kind;

static kind shards, rings;
static uint32_t looked_at; /* the queue that a look is at: the first marked one that is empty */
static kind *looked_in;
static bool unmarks;

static void push(kind *k, uint32_t queue) {
    ap_task *task = &tasks[0];
    if (k->queued[queue] == 2)
        return;
    if (k->rings) {
        ap_ring *ring = ap_worker_ring(ap_pool_slot(pool, queue));
        ap_ring_stage(ring, 0, task);
        ap_ring_publish(ring, 1);
        ap_backlog_mark(&pool->ring_backlog, queue);
    } else {
        int rc = ap_injector_push(&pool->injectors[queue], &task, 1);
        if (rc != AP_OK)
            return;
        ap_backlog_mark(&pool->shard_backlog, queue);
    }
    k->queued[queue]++;
    k->marked[queue] = true;
}

static void take(kind *k, uint32_t queue) {
    ap_task *task = NULL;
    bool moved;
    if (k->rings)
        task = ap_ring_take_try(ap_worker_ring(ap_pool_slot(pool, queue)));
    else
        (void)ap_injector_claim_try(&pool->injectors[queue], &task, 1, false, &moved);
    FUZZ_EQ(task != NULL, k->queued[queue] > 0);
    k->queued[queue] -= task != NULL;
}

/* The model of a look at one kind from queue `from` on: true if it has found a task. */
static bool look_on(kind *k, uint32_t from) {
    for (uint32_t i = from; i < k->size; i++) {
        if (k->marked[i] && k->queued[i] > 0)
            return true;
        if (k->marked[i] && unmarks) {
            looked_in = k;
            looked_at = i;
            return false;
        }
    }
    looked_in = NULL;
    return false;
}

/* "backlog-empty": the look is where the model has it. */
static void at_point(const char *name) {
    if (strcmp(name, "backlog-empty") != 0)
        return;
    FUZZ_CHECK(looked_in != NULL);
    kind *k = looked_in;
    uint32_t queue = looked_at;
    FUZZ_CHECK(k->marked[queue] && k->queued[queue] == 0);
    if (fuzz_byte(&in) % 4 == 1)
        push(k, queue);
    k->marked[queue] = k->queued[queue] > 0;
    if (!k->marked[queue] && !look_on(k, queue + 1) && looked_in == NULL && k == &shards)
        (void)look_on(&rings, 0);
}

static bool any(const kind *k, bool marked_only) {
    for (uint32_t i = 0; i < k->size; i++)
        if (k->queued[i] > 0 && (k->marked[i] || !marked_only))
            return true;
    return false;
}

static void check(const kind *k, ap_backlog *backlog) {
    for (uint32_t word = 0; word < AP_BACKLOG_WORDS; word++) {
        uint64_t bits = 0;
        for (uint32_t i = 64 * word; i < 64 * word + 64 && i < k->size; i++) {
            FUZZ_CHECK(k->marked[i] || k->queued[i] == 0);
            bits |= (uint64_t)k->marked[i] << (i % 64);
        }
        FUZZ_EQ(ap_u64_load_relaxed(&backlog->words[word]), bits);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint32_t sizes[] = {1, 2, 3, 4, 8, 63, 64, 65, 66, 128, 130};
    in = (fuzz_input){data, data + size};
    fuzz_begin();
    ap_worker *worker;
    uint32_t most = sizes[fuzz_below(&in, 11)];
    ap_pool_options options = {.max_workers = most, .cpus = 1, .ring_slots = 2};
    options.shards = 1u << fuzz_below(&in, 8);
    options.first_index = fuzz_first_index(&in);
    FUZZ_CHECK(ap_pool_new(&options, &pool) == AP_OK);
    memset(&shards, 0, sizeof shards);
    memset(&rings, 0, sizeof rings);
    rings.rings = true;
    shards.size = pool->shards;
    /* The rings are there once their workers are; then nobody of them is at work. */
    for (rings.size = 0; rings.size < most && ap_worker_begin(pool, &worker) == AP_OK; rings.size++)
        worker->outer = NULL;
    fuzz_at_point = at_point;
    while (fuzz_more(&in)) {
        uint8_t op = fuzz_byte(&in);
        kind *k = op < 128 ? &shards : &rings;
        uint32_t queue = fuzz_below(&in, k->size);
        switch (op % 8) {
        case 0:
        case 1:
            push(k, queue);
            break;
        case 2:
        case 3:
            take(k, queue);
            break;
        case 4: /* marked by a pusher whose task is gone */
            ap_backlog_mark(k->rings ? &pool->ring_backlog : &pool->shard_backlog, queue);
            k->marked[queue] = true;
            break;
        case 5:
            FUZZ_EQ(ap_backlog_look_all(pool),
                    any(&shards, false) || any(&rings, false) ? AP_QUEUE_READY : AP_QUEUE_EMPTY);
            break;
        default:
            unmarks = op % 8 == 6;
            looked_in = NULL;
            if (!look_on(&shards, 0) && looked_in == NULL)
                (void)look_on(&rings, 0);
            ap_queue_state state = ap_backlog_look(pool, unmarks);
            FUZZ_EQ(state,
                    any(&shards, true) || any(&rings, true) ? AP_QUEUE_READY : AP_QUEUE_EMPTY);
        }
        check(&shards, &pool->shard_backlog);
        check(&rings, &pool->ring_backlog);
    }
    fuzz_at_point = NULL;
    for (uint32_t i = 0; i < rings.size; i++)
        ap_worker_end(ap_pool_slot(pool, i));
    ap_pool_release(pool);
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
