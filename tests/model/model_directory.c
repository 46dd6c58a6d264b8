/* The directory of idle workers (idle.h): wakes, while others are woken and enlist again. */
#include "crew.h"
#include "sched/idle.h"

enum { A, B, C, WORKERS };
static ap_worker *workers[WORKERS];
static uint64_t woken[WORKERS]; /* plainly: once each, in between it has enlisted again */

static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = WORKERS, .in_order = 1, .cpus = 2});
    for (int i = 0; i < WORKERS; i++) {
        MODEL_CHECK(ap_worker_begin(crew_pool, &workers[i]) == AP_OK);
        woken[i] = 0;
    }
    MODEL_CHECK(ap_idle_enlist(workers[B]));
    MODEL_CHECK(ap_idle_enlist(workers[A])); /* on top of B */
}

static void waker(void) {
    ap_idle_wake(crew_pool, true);
}

/* Wakes one, which does nothing but count. */
static void wake(int worker) {
    ap_idle_wake(crew_pool, true);
    if (ap_u32_load_relaxed(&workers[worker]->token) == AP_TOKEN_EMPTY)
        return; /* another has been woken */
    MODEL_CHECK(ap_idle_sleep(workers[worker], AP_FOREVER) == AP_OK);
    ap_idle_search_end(workers[worker], false);
    woken[worker]++;
}

/* The same worker on top of another one: a wake that has read the word before must not go on. */
static void shuffler(void) {
    wake(A);
    wake(B);
    if (woken[A] == 0 || woken[B] == 0)
        return;
    MODEL_CHECK(ap_idle_enlist(workers[C]));
    MODEL_CHECK(ap_idle_enlist(workers[A]));
}

static void finish(void) {
    uint64_t word = ap_u64_load_relaxed(&crew_pool->idle);
    bool listed[WORKERS] = {false};
    uint32_t count = 0;
    for (uint32_t top = ap_idle_top(word); top != 0; count++) {
        MODEL_CHECK(top <= WORKERS && !listed[top - 1]);
        listed[top - 1] = true;
        top = ap_u32_load_relaxed(&workers[top - 1]->below);
    }
    MODEL_CHECK(count == ap_idle_idle(word));
    for (int i = 0; i < WORKERS; i++) /* whoever has a token is off, whoever has none is on */
        if (woken[i] == 0 && i != C)
            MODEL_CHECK(listed[i] ==
                        (ap_u32_load_relaxed(&workers[i]->token) == AP_TOKEN_EMPTY));
}

const model_case model_cases[] = {
    {.name = "directory, two wakers", .setup = setup, .finish = finish,
     .threads = {waker, shuffler}, .leaves_memory = true, .preemptions = 4},
    {0},
};
