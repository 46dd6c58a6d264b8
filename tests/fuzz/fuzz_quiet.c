/* Quietness against a list of what is queued, in hands, or undertaken.
 *
 * At the point before a waiter sleeps everything is dealt with, as other threads would: the waiter,
 * which has no deadline, must be told.
 */
#include "sched/quiet.h"

#include "fuzz.h"

#define WORKERS 4

static ap_task tasks[16];
static ap_pool *pool;
static ap_worker *workers[WORKERS];
static uint64_t taken[WORKERS]; /* since its last rest */
static uint64_t outside;        /* taken by who is no worker, or undertaken, and not dealt with */
static uint64_t queued;
static bool settles;

static bool is_quiet(void) {
    uint64_t open = queued + outside;
    for (int i = 0; i < WORKERS; i++)
        open += taken[i];
    return open == 0;
}

static void rest(int i) {
    ap_quiet_rest(workers[i]);
    taken[i] = 0;
}

static bool take_outside(void) {
    bool took = ap_pool_take_try(pool) != NULL;
    FUZZ_EQ(took, queued > 0);
    queued -= took;
    outside += took;
    return took;
}

static void deal(void) {
    ap_pool_dealt(pool);
    outside--;
}

/* Deals with everything, in an order that the input chose: what is last differs. */
static void settle(bool workers_last) {
    while (take_outside()) {
    }
    for (int step = 0; step < 2; step++) {
        if ((step == 1) == workers_last) {
            for (int i = 0; i < WORKERS; i++)
                if (workers[i] != NULL && taken[i] > 0)
                    rest(i);
        } else {
            while (outside > 0)
                deal();
        }
    }
}

static bool workers_last;

static void at_point(const char *name) {
    if (!settles || strcmp(name, "quiet-sleep") != 0)
        return;
    settles = false;
    settle(workers_last);
}

static void wait_quiet(fuzz_input *in) {
    bool quiet = is_quiet();
    if (fuzz_byte(in) % 2 == 0) {
        FUZZ_EQ(ap_pool_wait_quiet(pool, 0), quiet ? AP_OK : AP_E_TIMEDOUT);
        return;
    }
    settles = true;
    workers_last = fuzz_byte(in) % 2 == 0;
    FUZZ_EQ(ap_pool_wait_quiet(pool, AP_FOREVER), AP_OK);
    FUZZ_EQ(settles, quiet);
    settles = false;
}

static void worker_step(int i, uint8_t op) {
    if (workers[i] == NULL) {
        /* Slots are given from the first on. */
        for (i = 0; workers[i] != NULL; i++) {
        }
        if (ap_worker_begin(pool, &workers[i]) != AP_OK) {
            workers[i] = NULL;
            return;
        }
        FUZZ_EQ(ap_worker_index(workers[i]), i);
        workers[i]->outer = NULL;
        return;
    }
    switch (op % 8) {
    case 0:
        ap_worker_end(workers[i]);
        workers[i] = NULL;
        taken[i] = 0;
        break;
    case 1:
        if (outside > 0) {
            ap_worker_adopt(workers[i]);
            outside--;
            taken[i]++;
        }
        break;
    case 2:
        if (taken[i] > 0) {
            ap_worker_disown(workers[i]);
            outside++;
            taken[i]--;
        }
        break;
    case 3:
        rest(i);
        break;
    default: {
        bool took = ap_worker_take_try(workers[i]) != NULL;
        FUZZ_EQ(took, queued > 0);
        queued -= took;
        taken[i] += took;
    }
    }
}

static void push(int i, uint32_t count) {
    ap_task *batch[16];
    for (uint32_t n = 0; n < 16; n++)
        batch[n] = &tasks[n];
    fuzz_become(workers[i]);
    queued += ap_pool_push_batch(pool, batch, count) == AP_OK ? count : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, data + size};
    fuzz_begin();
    memset(workers, 0, sizeof workers);
    memset(taken, 0, sizeof taken);
    outside = queued = 0;
    settles = false;
    uint8_t shape = fuzz_byte(&in);
    ap_pool_options options = {.max_workers = WORKERS, .ring_slots = 2u << shape % 4, .cpus = 2};
    options.shards = 1 + shape / 64;
    options.in_order = shape % 32 < 8;
    options.first_index = fuzz_first_index(&in);
    FUZZ_CHECK(ap_pool_new(&options, &pool) == AP_OK);
    fuzz_at_point = at_point;
    while (fuzz_more(&in)) {
        uint8_t op = fuzz_byte(&in);
        int i = (int)fuzz_below(&in, WORKERS);
        switch (op % 16) {
        case 0:
        case 1:
        case 2:
            push(i, fuzz_below(&in, 17));
            break;
        case 3:
            (void)take_outside();
            break;
        case 4:
            if (outside > 0)
                deal();
            break;
        case 5:
            ap_pool_undertake(pool);
            outside++;
            break;
        case 6:
            fuzz_fail_allocation(fuzz_below(&in, 3));
            break;
        case 7:
            wait_quiet(&in);
            break;
        case 8:
            settle(i % 2 == 0);
            break;
        default:
            worker_step(i, op / 16);
        }
        FUZZ_EQ(ap_pool_is_quiet(pool) != 0, is_quiet());
        FUZZ_EQ(ap_pool_pending(pool), queued);
        FUZZ_EQ(ap_u64_load_relaxed(&pool->quiet_waiters), 0);
    }
    fuzz_at_point = NULL;
    settle(true);
    for (int i = 0; i < WORKERS; i++)
        if (workers[i] != NULL)
            ap_worker_end(workers[i]);
    FUZZ_CHECK(ap_pool_is_quiet(pool));
    fuzz_become(NULL);
    ap_pool_release(pool);
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
