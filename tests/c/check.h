/* A tiny test harness.
 *
 * Usage.
 *
 *     TEST(ring, keeps_order, 5) {          suite, name, time limit in seconds
 *         CHECK(1 + 1 == 2);
 *         CHECK_EQ(ap_ring_pending(r), 3);  prints both sides
 *     }
 *
 * Each test runs in a child process of its own.  When its time is up it prints the counters of
 * the pool that check_watch() named and aborts; if even that hangs, it is killed.  A SIGUSR2
 * interrupts system calls and does nothing else.
 */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "affinitypool.h"
#include "sync/atomic.h"
#include "sync/wait.h"

typedef struct check_test {
    const char *suite;
    const char *name;
    unsigned seconds;
    void (*run)(void);
    struct check_test *next;
} check_test;

void check_add(check_test *test);
_Noreturn void check_fail(const char *file, int line, const char *what);
_Noreturn void check_fail_eq(const char *file, int line, const char *what, uint64_t got,
                             uint64_t wanted);

/* Names the pool, and a counter of tasks run, that a test that hangs is to print. */
void check_watch(ap_pool *pool, ap_atomic_u64 *ran);

/* What is to be said when all tests have run; false if it is a failure. */
void check_report(bool (*report)(void));

/* True under a sanitizer or injected delays: stress tests do less. */
extern const bool check_slow;

/* `n`, or a twentieth of it where everything is slow. */
static inline uint64_t check_scale(uint64_t n) {
    return check_slow ? n / 20 + 1 : n;
}

#define TEST(suite_, name_, seconds_)                                                         \
    static void suite_##_##name_(void);                                                       \
    static check_test suite_##_##name_##_test = {#suite_, #name_, seconds_, suite_##_##name_, \
                                                 NULL};                                       \
    __attribute__((constructor)) static void suite_##_##name_##_add(void) {                   \
        check_add(&suite_##_##name_##_test);                                                  \
    }                                                                                         \
    static void suite_##_##name_(void)

#define CHECK(condition) ((condition) ? (void)0 : check_fail(__FILE__, __LINE__, #condition))
#define CHECK_EQ(got, wanted)                                                                \
    do {                                                                                     \
        uint64_t check_got = (uint64_t)(got);                                                \
        uint64_t check_wanted = (uint64_t)(wanted);                                          \
        if (check_got != check_wanted)                                                       \
            check_fail_eq(__FILE__, __LINE__, #got " == " #wanted, check_got, check_wanted); \
    } while (0)

/* A small generator for pauses and choices. */
static inline uint32_t check_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Sleeps, or spins below 20 us. */
void check_pause_ns(uint64_t ns);

/* ap_wait_u32 and ap_pool_wait_quiet, but through signals and wakes without a reason. */
int check_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns);
int check_wait_quiet(ap_pool *pool, uint64_t deadline_ns);

/* CPU time that this process has used. */
uint64_t check_cpu_ns(void);

static inline pthread_t check_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        check_fail(__FILE__, __LINE__, "pthread_create");
    return thread;
}

static inline void check_join(pthread_t thread) {
    CHECK(pthread_join(thread, NULL) == 0);
}

#endif
