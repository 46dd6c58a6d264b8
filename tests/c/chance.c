/* See chance.h.  Uses no atomics of csrc/sync: the stress back end draws from here. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "chance.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t chance_of_all; /* the seed */
static uint64_t chance_of_test;
static atomic_uint chance_threads;
static _Thread_local uint64_t chance_state;

static uint64_t chance_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t chance_seed(void) {
    if (chance_of_all == 0) {
        const char *given = getenv("AP_STRESS_SEED");
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        chance_of_all = given != NULL
                            ? strtoull(given, NULL, 0)
                            : (uint64_t)now.tv_nsec * 1000003 + (uint64_t)getpid() % 1000003;
        chance_of_all += chance_of_all == 0;
    }
    return chance_of_all;
}

void chance_begin(const char *test) {
    chance_of_test = chance_seed();
    for (; *test != 0; test++)
        chance_of_test = chance_mix(chance_of_test + (unsigned char)*test);
    chance_state = 0;
    atomic_store_explicit(&chance_threads, 0, memory_order_relaxed);
}

uint32_t chance(void) {
    if (chance_state == 0) {
        uint32_t number = atomic_fetch_add_explicit(&chance_threads, 1, memory_order_relaxed) + 1;
        chance_state = chance_mix(chance_of_test + number * UINT64_C(0x9e3779b97f4a7c15)) | 1;
    }
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return (uint32_t)(chance_state >> 32);
}

void chance_nap(uint32_t ns) {
    struct timespec span = {0, (long)(chance() % ns)};
    (void)nanosleep(&span, NULL);
}

void chance_pause(uint32_t naps, uint32_t yields) {
    uint32_t drawn = chance() % 1024;
    if (drawn < naps)
        chance_nap(50000);
    else if (drawn < naps + yields)
        (void)sched_yield();
}

/* What csrc/sync/atomic_stress.h calls.  A thread keeps to one manner for a while: it runs freely,
 * yields often, or is slow at every few steps, so that others get far ahead of it. */
void ap_stress_pause(void);
void ap_stress_pause(void) {
    static const struct {
        uint32_t naps, yields;
    } manners[4] = {{0, 1}, {1, 16}, {2, 200}, {40, 100}};
    static _Thread_local uint32_t left, manner;
    if (left == 0) {
        uint32_t drawn = chance() % 16;
        manner = drawn < 7 ? 0 : drawn < 11 ? 1 : drawn < 14 ? 2 : 3;
        left = manner == 3 ? 64 : 1024;
    }
    left--;
    chance_pause(manners[manner].naps, manners[manner].yields);
}
