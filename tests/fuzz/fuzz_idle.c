/* The idle word and the tokens against a stack of idle workers and plain counts.
 *
 * A worker that has no token and sleeps without a deadline leaves its sleep by longjmp, its token
 * PARKED as a sleeping thread's; when it has been given a token it sleeps again and is woken at
 * once.
 */
#include "sched/idle.h"

#include "fuzz.h"

#define WORKERS 6

/* What a worker of the model is doing. */
typedef struct twin {
    ap_worker *worker;
    bool begun;
    bool enlisted; /* or off the directory with a token, and not yet awake */
    bool asleep;
    uint32_t token; /* given to it */
    bool counted;
    bool urgent;
    bool lookout;
} twin;

static ap_task task;
static ap_pool *pool;
static uint32_t max_workers;
static twin twins[WORKERS];
static uint32_t stack[WORKERS];
static uint32_t idle, begun, searching, queued;
static bool closed, ended, lookout;

/* ---- the model --------------------------------------------------------------------------- */

static void model_wake(bool urgent) {
    bool others = idle + lookout < begun;
    bool wanted = !lookout || idle + 1 == begun;
    if (searching != 0 || idle == 0 || (!urgent && !wanted))
        return;
    twin *t = &twins[stack[--idle]];
    if (others && !urgent) {
        lookout = true;
        t->token = AP_TOKEN_LOOKOUT;
    } else {
        searching++;
        t->token = urgent ? AP_TOKEN_URGENT : AP_TOKEN_WORK;
    }
}

static void model_try_end(void) {
    if (!closed || ended || idle != begun || queued > 0)
        return;
    ended = true;
    while (idle > 0)
        twins[stack[--idle]].token = AP_TOKEN_END;
}

static void model_search_end(twin *t) {
    bool urgent = t->urgent;
    t->counted = t->urgent = false;
    searching--;
    if (searching == 0 && idle > 0 && queued > 0)
        model_wake(urgent);
}

static void model_end(twin *t) {
    if (t->counted)
        model_search_end(t);
    t->begun = false;
    begun--;
    if (queued > 0)
        model_wake(true);
    model_try_end();
}

/* ---- operations on both ------------------------------------------------------------------ */

static void begin(void) {
    uint32_t index = 0;
    while (index < max_workers && twins[index].begun)
        index++;
    int wanted = AP_OK;
    if (index == max_workers)
        wanted = AP_E_FULL;
    else if (ap_pool_slot(pool, index) == NULL && fuzz_allocations(1) == 0)
        wanted = AP_E_NOMEM;
    else if (ended)
        wanted = AP_E_CLOSED;
    ap_worker *worker = NULL;
    FUZZ_EQ(ap_worker_begin(pool, &worker), wanted);
    if (wanted != AP_OK)
        return;
    worker->outer = NULL;
    FUZZ_EQ(ap_worker_index(worker), index);
    twins[index] = (twin){.worker = worker, .begun = true};
    begun++;
}

static void enlist(twin *t) {
    FUZZ_EQ(ap_idle_enlist(t->worker), !ended);
    if (ended) {
        if (t->counted)
            model_search_end(t);
        return;
    }
    searching -= t->counted;
    t->counted = t->urgent = false;
    t->enlisted = true;
    t->token = AP_TOKEN_EMPTY;
    stack[idle++] = (uint32_t)(t - twins);
}

/* `deadline_ns` has passed, or is AP_FOREVER. */
static void sleep_on(twin *t, uint64_t deadline_ns) {
    jmp_buf woken;
    volatile int rc = AP_OK;
    volatile bool sleeps = false;
    fuzz_sleeper = &woken;
    if (setjmp(woken) == 0)
        rc = ap_idle_sleep(t->worker, deadline_ns);
    else
        sleeps = true;
    fuzz_sleeper = NULL;
    FUZZ_EQ(sleeps, t->token == AP_TOKEN_EMPTY && deadline_ns == AP_FOREVER);
    if (sleeps) {
        t->asleep = true;
        return;
    }
    if (t->token == AP_TOKEN_EMPTY) {
        FUZZ_EQ(rc, AP_E_TIMEDOUT);
        return;
    }
    t->enlisted = t->asleep = false;
    FUZZ_EQ(rc, t->token == AP_TOKEN_END ? AP_E_CLOSED : AP_OK);
    if (rc != AP_OK)
        return;
    t->lookout = t->token == AP_TOKEN_LOOKOUT;
    t->counted = !t->lookout;
    t->urgent = t->token == AP_TOKEN_URGENT;
}

static void look_out(twin *t) {
    ap_idle_look_out(t->worker);
    lookout = t->lookout = false;
    searching++;
    t->counted = t->urgent = true;
}

static void end(twin *t) {
    ap_worker_end(t->worker);
    model_end(t);
}

static void check(void) {
    uint64_t word = ap_u64_load_relaxed(&pool->idle);
    FUZZ_EQ(ap_idle_idle(word), idle);
    FUZZ_EQ(ap_idle_begun(word), begun);
    FUZZ_EQ(ap_idle_searching(word), searching);
    FUZZ_EQ((word & AP_IDLE_CLOSED) != 0, closed);
    FUZZ_EQ((word & AP_IDLE_ENDED) != 0, ended);
    FUZZ_EQ((word & AP_IDLE_LOOKOUT) != 0, lookout);
    uint32_t top = ap_idle_top(word);
    for (uint32_t i = idle; i > 0; i--) {
        FUZZ_EQ(top, stack[i - 1] + 1);
        top = ap_u32_load_relaxed(&twins[stack[i - 1]].worker->below);
    }
    FUZZ_EQ(top, 0);
    for (uint32_t i = 0; i < max_workers; i++) {
        const twin *t = &twins[i];
        if (!t->begun)
            continue;
        FUZZ_EQ(t->worker->counted, t->counted);
        FUZZ_EQ(t->worker->urgent, t->urgent);
        if (t->enlisted) {
            uint32_t none = t->asleep ? AP_TOKEN_PARKED : AP_TOKEN_EMPTY;
            FUZZ_EQ(ap_u32_load_relaxed(&t->worker->token),
                    t->token == AP_TOKEN_EMPTY ? none : t->token);
        } else {
            FUZZ_EQ(t->worker->lookout, t->lookout);
        }
    }
}

static void worker_step(twin *t, uint8_t op) {
    if (!t->begun)
        return;
    if (t->enlisted) {
        if (!t->asleep || t->token != AP_TOKEN_EMPTY)
            sleep_on(t, op % 2 == 0 ? 0 : AP_FOREVER);
    } else if (t->lookout) {
        look_out(t);
    } else if (op % 8 < 3) {
        enlist(t);
    } else if (op % 8 == 3) {
        end(t);
    } else if (t->counted) {
        ap_idle_search_end(t->worker, op % 2 != 0);
        model_search_end(t);
    } else {
        bool begins = searching < pool->max_searching;
        FUZZ_EQ(ap_idle_search_begin(t->worker), begins);
        searching += begins;
        t->counted = begins;
    }
}

static void push(void) {
    ap_task *pointer = &task;
    if (ap_injector_push(&pool->injectors[0], &pointer, 1) != AP_OK)
        return;
    ap_backlog_mark(&pool->shard_backlog, 0);
    queued++;
}

static void take(void) {
    ap_task *out;
    bool moved;
    queued -= ap_injector_claim_try(&pool->injectors[0], &out, 1, false, &moved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, data + size};
    fuzz_begin();
    memset(twins, 0, sizeof twins);
    idle = begun = searching = queued = 0;
    closed = ended = lookout = false;
    max_workers = 1 + fuzz_below(&in, WORKERS);
    ap_pool_options options = {.max_workers = max_workers, .shards = 1, .ring_slots = 2};
    options.cpus = 1 + fuzz_below(&in, 8);
    FUZZ_CHECK(ap_pool_new(&options, &pool) == AP_OK);
    while (fuzz_more(&in)) {
        uint8_t op = fuzz_byte(&in);
        fuzz_early_wakes = op % 5 == 0 ? 1 : 0;
        switch (op % 16) {
        case 0:
        case 1:
            begin();
            break;
        case 2:
            push(); /* not told yet */
            break;
        case 3:
            push();
            ap_idle_notify(pool); /* also if it was refused: no harm */
            model_wake(false);
            break;
        case 4:
            take();
            break;
        case 5:
            ap_idle_wake(pool, true);
            model_wake(true);
            break;
        case 6:
            if (fuzz_byte(&in) % 8 == 0) {
                ap_injector_close(&pool->injectors[0]);
                ap_idle_close(pool);
                closed = true;
                model_try_end();
            }
            break;
        case 7:
            fuzz_fail_allocation(1); /* of the worker, if it is new */
            begin();
            fuzz_fail_allocation(0);
            break;
        case 8:
            ap_idle_try_end(pool);
            model_try_end();
            break;
        default: {
            twin *t = &twins[fuzz_below(&in, max_workers)];
            worker_step(t, fuzz_byte(&in));
        }
        }
        check();
    }
    fuzz_early_wakes = 0;
    while (queued > 0)
        take();
    ap_injector_close(&pool->injectors[0]);
    ap_idle_close(pool);
    closed = true;
    model_try_end();
    /* Whoever is awake ends; then those that are idle are told that the pool has ended. */
    for (uint32_t i = 0; i < 2 * max_workers; i++) {
        twin *t = &twins[i % max_workers];
        if (!t->begun || (i < max_workers && t->enlisted && t->token == AP_TOKEN_EMPTY))
            continue;
        if (t->enlisted)
            sleep_on(t, AP_FOREVER);
        FUZZ_CHECK(!t->enlisted);
        if (t->lookout)
            look_out(t);
        end(t);
        check();
    }
    FUZZ_EQ(begun, 0);
    ap_pool_release(pool);
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
