/* The directory of idle workers (idle.h): wakes, while others are woken and enlist again. */
#include "crew.h"
#include "sched/idle.h"

enum { A, B, C, WORKERS };
static ap_worker *workers[WORKERS];
static bool on[WORKERS]; /* enlisted, and not yet seen to be woken */

static void setup(void) {
    crew_make(&(ap_pool_options){.max_workers = WORKERS, .in_order = 1, .cpus = 2}, 0);
    for (int i = 0; i < WORKERS; i++) {
        MODEL_CHECK(ap_worker_begin(crew_pool, &workers[i]) == AP_OK);
        on[i] = i != C;
    }
    MODEL_CHECK(ap_idle_enlist(workers[B]));
    MODEL_CHECK(ap_idle_enlist(workers[A])); /* on top of B */
}

static void waker(void) {
    ap_idle_wake(crew_pool, true);
}

/* Wakes one, which does nothing but to stop searching; false if it is another one. */
static bool wake(int worker) {
    ap_idle_wake(crew_pool, true);
    if (ap_u32_load_relaxed(&workers[worker]->token) == AP_TOKEN_EMPTY)
        return false;
    MODEL_CHECK(ap_idle_sleep(workers[worker], AP_FOREVER) == AP_OK);
    ap_idle_search_end(workers[worker], false);
    on[worker] = false;
    return true;
}

static void enlist(int worker) {
    MODEL_CHECK(ap_idle_enlist(workers[worker]));
    on[worker] = true;
}

/* The same worker on top of another one: a wake that has read the word before must not go on. */
static void shuffler(void) {
    if (!wake(A) || !wake(B))
        return;
    enlist(C);
    enlist(A);
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
    for (int i = 0; i < WORKERS; i++) /* and that are those without a token */
        MODEL_CHECK(listed[i] ==
                    (on[i] && ap_u32_load_relaxed(&workers[i]->token) == AP_TOKEN_EMPTY));
}

const model_case model_cases[] = {
    {.name = "directory, two wakers",
     .setup = setup,
     .finish = finish,
     .threads = {waker, shuffler},
     .leaves_memory = true,
     .preemptions = 4},
    {0},
};
