/* A whole pool, several workers of which are one thread: every task once, in order where that is
 * promised, nobody asleep while something is queued, every count exact, and an end.
 *
 * A worker that sleeps leaves its ap_worker_park by longjmp; once it has been given a token it goes
 * on as ap_worker_park does.
 */
#include "fuzz.h"
#include "sched/idle.h"
#include "sched/pool.h"

#define WORKERS 5
#define TASKS 320
#define BATCH 96

static ap_task tasks[TASKS];
static uint64_t number_of[TASKS]; /* of its push, from 1 on; 0: not queued */
static uint64_t next_number;      /* of the next push */
static uint64_t queued;

static ap_pool *pool;
static uint32_t max_workers;
static bool in_order; /* tasks are taken in the order of their pushes */
static ap_worker *workers[WORKERS];
static bool asleep[WORKERS];
static bool over[WORKERS]; /* told that the pool has ended */
static bool closed;
static uint64_t pushed_outside, pushed_inside, taken;

static bool awake(uint32_t i) {
    return workers[i] != NULL &&
           (!asleep[i] || ap_u32_load_relaxed(&workers[i]->token) != AP_TOKEN_PARKED);
}

static bool is_told_the_end(uint32_t i) {
    return asleep[i] && ap_u32_load_relaxed(&workers[i]->token) == AP_TOKEN_END;
}

static uint32_t count_begun(void) {
    uint32_t begun = 0;
    for (uint32_t i = 0; i < max_workers; i++)
        begun += workers[i] != NULL;
    return begun;
}

static uint32_t count_awake(void) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < max_workers; i++)
        n += awake(i);
    return n;
}

/* ---- tasks ------------------------------------------------------------------------------- */

static void push(ap_worker *from, uint32_t count) {
    ap_task *batch[BATCH];
    uint32_t n = 0;
    for (uint32_t i = 0; i < TASKS && n < count; i++)
        if (number_of[i] == 0)
            batch[n++] = &tasks[i];
    fuzz_become(from);
    int rc = n == 1 ? ap_pool_push(pool, batch[0]) : ap_pool_push_batch(pool, batch, n);
    if (closed) {
        FUZZ_EQ(rc, AP_E_CLOSED);
        return;
    }
    if (rc != AP_OK) {
        FUZZ_EQ(rc, AP_E_NOMEM);
        FUZZ_CHECK(fuzz_fails_in != 0 && "only if an allocation failed");
        fuzz_fail_allocation(0);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        number_of[batch[i] - tasks] = ++next_number;
    queued += n;
    *(from != NULL ? &pushed_inside : &pushed_outside) += n;
}

static uint64_t oldest(void) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < TASKS; i++)
        if (number_of[i] != 0 && number_of[i] < least)
            least = number_of[i];
    return least;
}

static void take(ap_task *task, bool ordered) {
    FUZZ_CHECK(task >= tasks && task < tasks + TASKS);
    uint64_t *number = &number_of[task - tasks];
    FUZZ_CHECK(*number != 0 && "it is queued");
    if (ordered)
        FUZZ_EQ(*number, oldest());
    *number = 0;
    queued--;
}

static bool worker_takes(uint32_t i, bool searches) {
    ap_worker *worker = workers[i];
    /* A search may be refused, when enough workers are at it. */
    bool may_be_refused = searches && !worker->counted;
    fuzz_become(worker);
    ap_task *task = searches ? ap_worker_search(worker) : ap_worker_take_try(worker);
    if (task == NULL) {
        FUZZ_CHECK(queued == 0 || may_be_refused);
        return false;
    }
    take(task, in_order);
    taken++;
    return true;
}

/* ---- workers ----------------------------------------------------------------------------- */

/* The loop of ap_worker_park, from its sleep on. */
static int sleep_on(ap_worker *worker) {
    int rc = ap_idle_sleep(worker, AP_FOREVER);
    if (rc != AP_OK || !worker->lookout)
        return rc;
    ap_idle_look_out(worker);
    return ap_backlog_look(pool, false) != AP_QUEUE_EMPTY ? AP_OK : ap_worker_park(worker);
}

static void park(uint32_t i) {
    jmp_buf woken;
    volatile int rc = AP_OK;
    fuzz_become(workers[i]);
    fuzz_sleeper = &woken;
    if (setjmp(woken) == 0) {
        rc = asleep[i] ? sleep_on(workers[i]) : ap_worker_park(workers[i]);
        asleep[i] = false;
    } else {
        asleep[i] = true;
    }
    fuzz_sleeper = NULL;
    if (asleep[i])
        return;
    if (rc == AP_E_CLOSED) {
        over[i] = true;
        FUZZ_CHECK(closed && queued == 0);
    } else {
        FUZZ_EQ(rc, AP_OK);
        FUZZ_CHECK(workers[i]->counted);
    }
}

static void begin(void) {
    ap_worker *worker = NULL;
    int rc = ap_worker_begin(pool, &worker);
    if (rc == AP_E_FULL) {
        FUZZ_EQ(count_begun(), max_workers);
    } else if (rc == AP_E_NOMEM) {
        FUZZ_CHECK(fuzz_fails_in != 0 && "only if an allocation failed");
        fuzz_fail_allocation(0);
    } else if (rc == AP_E_CLOSED) {
        FUZZ_CHECK(closed && queued == 0);
        for (uint32_t i = 0; i < max_workers; i++)
            FUZZ_CHECK(workers[i] == NULL || over[i] || is_told_the_end(i));
    } else {
        FUZZ_EQ(rc, AP_OK);
        uint32_t i = ap_worker_index(worker);
        FUZZ_CHECK(i < max_workers && workers[i] == NULL && ap_worker_current() == worker);
        FUZZ_CHECK(ap_worker_pool(worker) == pool);
        worker->outer = NULL;
        workers[i] = worker;
        asleep[i] = over[i] = false;
    }
}

static void end(uint32_t i) {
    fuzz_become(workers[i]);
    ap_worker_end(workers[i]);
    workers[i] = NULL;
    over[i] = false;
}

static void worker_step(uint32_t i, uint8_t op) {
    if (!awake(i))
        return;
    if (asleep[i])
        park(i);
    else if (over[i] || op % 32 == 0)
        end(i);
    else if (op % 4 == 0)
        park(i);
    else
        (void)worker_takes(i, op % 4 == 1);
}

static void check(void) {
    ap_pool_stats stats;
    ap_pool_read_stats(pool, &stats);
    FUZZ_EQ(ap_pool_pending(pool), queued);
    FUZZ_EQ(stats.pushed_outside, pushed_outside);
    FUZZ_EQ(stats.pushed_inside, pushed_inside);
    FUZZ_EQ(stats.taken, taken);
    FUZZ_EQ(stats.workers, count_begun());
    FUZZ_EQ(stats.closed, closed);
    FUZZ_EQ(ap_pool_is_closed(pool), closed);
    FUZZ_CHECK(stats.idle <= stats.workers);
    if (count_begun() > 0 && count_awake() == 0)
        FUZZ_CHECK(queued == 0 && !closed && "nobody is asleep while there is something to do");
}

static void make(fuzz_input *in) {
    uint8_t shape = fuzz_byte(in);
    ap_pool_options options = {.max_workers = 1 + shape % WORKERS, .ring_slots = 2};
    options.ring_slots <<= fuzz_below(in, 8);
    options.cpus = 1 + fuzz_below(in, 8);
    options.shards = fuzz_below(in, 6);
    options.in_order = shape >= 192;
    options.first_index = fuzz_first_index(in);
    fuzz_fail_allocation(fuzz_below(in, 16));
    uint64_t armed = fuzz_fails_in;
    int rc = ap_pool_new(&options, &pool);
    if (rc == AP_E_NOMEM) {
        FUZZ_CHECK(armed != 0);
        FUZZ_EQ(fuzz_live(), 0);
        fuzz_fail_allocation(0);
        rc = ap_pool_new(&options, &pool);
    }
    fuzz_fail_allocation(0);
    FUZZ_EQ(rc, AP_OK);
    max_workers = options.max_workers;
    in_order = options.in_order != 0 || max_workers == 1;
}

static void step(fuzz_input *in) {
    uint8_t op = fuzz_byte(in);
    fuzz_early_wakes = op % 7 == 0 ? 5 : 0;
    switch (op % 16) {
    case 0:
    case 1:
        begin();
        break;
    case 2:
        push(NULL, 1);
        break;
    case 3:
        push(NULL, fuzz_below(in, BATCH));
        break;
    case 4:
    case 5: {
        uint32_t i = fuzz_below(in, max_workers);
        bool inside = workers[i] != NULL && !asleep[i] && !over[i];
        push(inside ? workers[i] : NULL, op % 16 == 4 ? 1 : fuzz_below(in, BATCH));
        break;
    }
    case 6: {
        fuzz_become(NULL);
        ap_task *task = ap_pool_take_try(pool);
        FUZZ_EQ(task != NULL, queued > 0);
        if (task != NULL) {
            /* the only worker's ring, which is looked at last, has the oldest */
            take(task, in_order && max_workers > 1);
            ap_pool_dealt(pool);
        }
        break;
    }
    case 7:
        if (fuzz_byte(in) % 16 == 0) {
            fuzz_become(NULL);
            ap_pool_close(pool);
            closed = true;
        }
        break;
    case 8:
        fuzz_fail_allocation(fuzz_below(in, 4));
        break;
    default: {
        uint32_t i = fuzz_below(in, max_workers);
        worker_step(i, fuzz_byte(in));
    }
    }
}

/* Closes; the workers do what is left and end; with none left it is taken out. */
static void finish(void) {
    fuzz_become(NULL);
    ap_pool_close(pool);
    closed = true;
    while (count_begun() > 0) {
        FUZZ_CHECK(count_awake() > 0 && "a closed pool ends");
        for (uint32_t i = 0; i < max_workers; i++) {
            if (!awake(i))
                continue;
            if (asleep[i]) {
                park(i);
            } else if (over[i]) {
                end(i);
            } else {
                while (worker_takes(i, false))
                    check();
                park(i);
            }
            check();
        }
    }
    for (ap_task *task; (task = ap_pool_take_try(pool)) != NULL; ap_pool_dealt(pool))
        take(task, false);
    FUZZ_EQ(queued, 0);
    FUZZ_CHECK(ap_pool_is_quiet(pool));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, data + size};
    fuzz_begin();
    memset(number_of, 0, sizeof number_of);
    memset(workers, 0, sizeof workers);
    memset(asleep, 0, sizeof asleep);
    memset(over, 0, sizeof over);
    closed = false;
    next_number = queued = pushed_outside = pushed_inside = taken = 0;
    make(&in);
    while (fuzz_more(&in)) {
        step(&in);
        check();
    }
    fuzz_early_wakes = 0;
    fuzz_fail_allocation(0);
    finish();
    fuzz_become(NULL);
    ap_pool_release(pool);
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
