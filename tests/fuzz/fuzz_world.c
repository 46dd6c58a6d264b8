/* A world of one thread for the core, in the place of csrc/sync/clock.c, cpu.c and wait_*.c: a
 * clock that only moves when it is looked at or slept on, sleeps that end at once, nobody to yield
 * to. */
#include <stdio.h>

#include "fuzz.h"
#include "sched/pool.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/wait.h"

#define LOOK_NS 7000 /* a search looks some ten times */

void (*fuzz_at_point)(const char *name);
uint32_t fuzz_early_wakes;
jmp_buf *fuzz_sleeper;
uint64_t fuzz_fails_in;

static uint64_t now;
static uint64_t of_other; /* blocks of fuzz_become */

void fuzz_begin(void) {
    now = 1000;
    fuzz_at_point = NULL;
    fuzz_early_wakes = 0;
    fuzz_sleeper = NULL;
    fuzz_fail_allocation(0);
    FUZZ_EQ(fuzz_live(), 0);
}

void fuzz_fail(const char *file, int line, const char *what, uint64_t got, uint64_t wanted) {
    fprintf(stderr, "%s:%d: %s: %llu, not %llu\n", file, line, what, (unsigned long long)got,
            (unsigned long long)wanted);
    abort();
}

uint64_t ap_clock_now(void) {
    return now += LOOK_NS;
}

uint64_t ap_clock_tick(void) {
    return now;
}

void ap_cpu_yield(void) {
}

uint32_t ap_cpu_count(void) {
    return 4;
}

int ap_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns) {
    if (ap_u32_load_relaxed(word) != expected)
        return AP_OK;
    bool early = (fuzz_early_wakes & 1) != 0;
    fuzz_early_wakes >>= 1;
    if (early)
        return AP_OK;
    if (deadline_ns == AP_FOREVER) {
        FUZZ_CHECK(fuzz_sleeper != NULL && "somebody wakes it");
        longjmp(*fuzz_sleeper, 1);
    }
    now = now < deadline_ns ? deadline_ns : now;
    return AP_E_TIMEDOUT;
}

void ap_wake_u32(ap_atomic_u32 *word, uint32_t count) {
    (void)word;
    (void)count;
}

void ap_wait_after_fork(void) {
}

const char *ap_parking_backend(void) {
    return "fuzz";
}

uint64_t fuzz_live(void) {
    return ap_memory_live() - of_other;
}

void fuzz_become(ap_worker *worker) {
    /* A worker's end makes its thread what it was before: one of another pool does. */
    static ap_pool *other;
    ap_worker *stand_in;
    void (*at_point)(const char *name) = fuzz_at_point;
    uint64_t fails_in = fuzz_fails_in;
    if (ap_worker_current() == worker)
        return;
    fuzz_at_point = NULL;
    fuzz_fail_allocation(0);
    uint64_t before = ap_memory_live();
    if (other == NULL)
        FUZZ_CHECK(ap_pool_new(&(ap_pool_options){.max_workers = 1}, &other) == AP_OK);
    FUZZ_CHECK(ap_worker_begin(other, &stand_in) == AP_OK);
    of_other += ap_memory_live() - before;
    stand_in->outer = worker;
    ap_worker_end(stand_in);
    fuzz_fail_allocation(fails_in);
    fuzz_at_point = at_point;
    FUZZ_CHECK(ap_worker_current() == worker);
}
