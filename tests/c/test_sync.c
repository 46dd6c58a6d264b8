/* csrc/sync: memory, clock, CPUs, and waiting on a word. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/memory.h"
#include "sync/wait.h"

TEST(sync, memory_is_zeroed_aligned_and_fails_on_demand, 5) {
    uint64_t live = ap_memory_live();
    unsigned char *a = ap_memory_alloc(1000);
    CHECK(a != NULL && (uintptr_t)a % AP_LINE == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(a[i] == 0);
    CHECK_EQ(ap_memory_live(), live + 1);
    ap_memory_fail_at(2);
    void *b = ap_memory_alloc(1);
    CHECK(b != NULL);
    CHECK(ap_memory_alloc(1) == NULL);
    void *c = ap_memory_alloc(1);
    CHECK(c != NULL);
    CHECK(ap_memory_alloc(SIZE_MAX - 5) == NULL);
    ap_memory_free(a);
    ap_memory_free(b);
    ap_memory_free(c);
    ap_memory_free(NULL);
    CHECK_EQ(ap_memory_live(), live);
}

TEST(sync, clock_and_cpus, 5) {
    uint64_t start = ap_clock_now();
    check_pause_ns(2000000);
    uint64_t span = ap_clock_now() - start;
    CHECK(span >= 2000000 && span < 1000000000);
    CHECK(ap_clock_after(AP_FOREVER - 1) == AP_FOREVER);
    CHECK(ap_clock_after(1000000) > start);
    CHECK(ap_cpu_count() >= 1);
    ap_cpu_pause();
    ap_cpu_yield();
}

TEST(wait, back_end_is_named, 5) {
#ifdef AP_PARKING_CONDVAR
    CHECK(strcmp(ap_parking_backend(), "condvar") == 0);
#else
    CHECK(strcmp(ap_parking_backend(), "futex") == 0);
#endif
}

TEST(wait, returns_when_the_word_differs_or_time_is_up, 10) {
    ap_atomic_u32 word;
    ap_u32_store_relaxed(&word, 7);
    CHECK(check_wait_u32(&word, 8, AP_FOREVER) == AP_OK);
    CHECK(check_wait_u32(&word, 7, 0) == AP_E_TIMEDOUT);
    CHECK(check_wait_u32(&word, 7, ap_clock_now()) == AP_E_TIMEDOUT);
    uint64_t until = ap_clock_after(20000000);
    CHECK(check_wait_u32(&word, 7, until) == AP_E_TIMEDOUT);
    CHECK(ap_clock_now() >= until);
    CHECK(ap_clock_now() < until + 2000000000);
    ap_wake_u32(&word, 1); /* nobody there */
}

static void *wait_for_zero(void *argument) {
    ap_atomic_u32 *word = argument;
    uint32_t value;
    while ((value = ap_u32_load_acquire(word)) != 0)
        (void)ap_wait_u32(word, value, AP_FOREVER);
    return NULL;
}

TEST(wait, wakes_all_sleepers, 10) {
    ap_atomic_u32 word;
    pthread_t threads[4];
    ap_u32_store_relaxed(&word, 1);
    for (int i = 0; i < 4; i++)
        threads[i] = check_thread(wait_for_zero, &word);
    check_pause_ns(5000000);
    ap_u32_store_release(&word, 0);
    ap_wake_u32(&word, UINT32_MAX);
    for (int i = 0; i < 4; i++)
        check_join(threads[i]);
}

/* Two threads hand one word to and fro. */
typedef struct pair {
    ap_atomic_u32 word;
    uint32_t rounds;
} pair;

static void *ping(void *argument) {
    pair *p = argument;
    for (uint32_t i = 0; i < p->rounds; i++) {
        uint32_t value;
        while ((value = ap_u32_load_acquire(&p->word)) % 2 == 0)
            (void)ap_wait_u32(&p->word, value, AP_FOREVER);
        ap_u32_store_release(&p->word, value + 1);
        ap_wake_u32(&p->word, 1);
    }
    return NULL;
}

TEST(wait, ping_pong_never_loses_a_wake, 20) {
    /* Four pairs, so that buckets of the condvar back end are shared now and then. */
    static pair pairs[4];
    pthread_t threads[8];
    for (int i = 0; i < 4; i++) {
        pairs[i].rounds = (uint32_t)check_scale(3000);
        threads[i] = check_thread(ping, &pairs[i]);
    }
    for (uint32_t r = 0; r < pairs[0].rounds; r++)
        for (int i = 0; i < 4; i++) {
            uint32_t value;
            while ((value = ap_u32_load_acquire(&pairs[i].word)) % 2 == 1)
                (void)ap_wait_u32(&pairs[i].word, value, AP_FOREVER);
            ap_u32_store_release(&pairs[i].word, value + 1);
            ap_wake_u32(&pairs[i].word, 1);
        }
    for (int i = 0; i < 4; i++)
        check_join(threads[i]);
}

static void *free_when_set(void *argument) {
    ap_atomic_u32 *word = argument;
    while (ap_u32_load_acquire(word) == 0)
        (void)ap_wait_u32(word, 0, AP_FOREVER);
    ap_memory_free(word);
    return NULL;
}

TEST(wait, waker_does_not_read_a_freed_word, 20) {
    for (uint64_t i = 0; i < check_scale(2000); i++) {
        ap_atomic_u32 *word = ap_memory_alloc(sizeof *word);
        CHECK(word != NULL);
        pthread_t thread = check_thread(free_when_set, word);
        (void)ap_u32_exchange_acq_rel(word, 1);
        ap_wake_u32(word, 1); /* the word may be gone */
        check_join(thread);
    }
}

#ifndef AP_PARKING_CONDVAR
static ap_atomic_u32 interrupted;

static void on_signal(int number) {
    (void)number;
}

static void *wait_interruptible(void *argument) {
    ap_atomic_u32 *word = argument;
    int rc;
    while ((rc = ap_wait_u32(word, 0, ap_clock_after(UINT64_C(5000000000)))) == AP_OK) {
    }
    ap_u32_store_release(&interrupted, rc == AP_E_INTR ? 1 : 2);
    return NULL;
}

TEST(wait, signal_interrupts, 10) {
    ap_atomic_u32 word;
    ap_u32_store_relaxed(&word, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread = check_thread(wait_interruptible, &word);
    while (ap_u32_load_acquire(&interrupted) == 0) {
        check_pause_ns(2000000);
        if (ap_u32_load_acquire(&interrupted) == 0)
            (void)pthread_kill(thread, SIGUSR1);
    }
    check_join(thread);
    CHECK_EQ(ap_u32_load_relaxed(&interrupted), 1);
}
#endif
