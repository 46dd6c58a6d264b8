/* sync/wait.h by mutexes and condition variables: a parking lot hashed by address.
 *
 *     sleeper                                   waker
 *     1 lock the bucket of the address          a change the word (caller, its own order)
 *     2 read the word; leave if it differs      b lock the bucket
 *     3 `sleepers` + 1; wait on the bucket      c if `sleepers` is not 0: wake all of the bucket
 *       (unlocks, and locks again)              d unlock
 *     4 `sleepers` - 1, unlock
 *
 * - No wake is lost.  One of the two locks the bucket first.  If the waker does, (d) orders (a)
 *   before the sleeper's 2, which reads the new value, relaxed as it is.  If the sleeper does, 3
 *   unlocks, counts and begins to wait as one step for whoever locks after it, so (c) wakes it.
 * - (c) wakes all, because those that sleep in the bucket may do so for different words, and one
 *   whose time is over at the same moment may take a signal with it: callers loop.
 * - A waker uses the address of the word only, and the buckets are static and made once: it touches
 *   nothing that could have been freed.
 * - In a forked child all are made anew by the first call: whoever held one, or was about to make
 *   them, is not there.
 *
 * Tests: tests/model/model_condvar.c, tests/c/test_sync.c.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "sync/wait.h"

#ifdef AP_PARKING_CONDVAR

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "sync/clock.h"
#include "sync/cpu.h"

#define AP__BUCKETS 64

struct ap__bucket {
    AP_ALIGN_LINE pthread_mutex_t lock;
    pthread_cond_t woken;
    uint32_t sleepers; /* under the lock */
};

static struct ap__bucket ap__buckets[AP__BUCKETS];
static pthread_once_t ap__buckets_once = PTHREAD_ONCE_INIT;

const char *ap_parking_backend(void) {
    return "condvar";
}

static void ap__buckets_init(void) {
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
#ifndef __APPLE__
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    for (int i = 0; i < AP__BUCKETS; i++) {
        (void)pthread_mutex_init(&ap__buckets[i].lock, NULL);
        (void)pthread_cond_init(&ap__buckets[i].woken, &attr);
    }
    (void)pthread_condattr_destroy(&attr);
}

void ap_wait_after_fork(void) {
    static const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    for (int i = 0; i < AP__BUCKETS; i++)
        ap__buckets[i].sleepers = 0;
    ap__buckets_once = fresh;
}

static struct ap__bucket *ap__bucket_of(ap_atomic_u32 *word) {
    (void)pthread_once(&ap__buckets_once, ap__buckets_init);
    uint64_t hash = (uint64_t)(uintptr_t)word * UINT64_C(0x9e3779b97f4a7c15);
    return &ap__buckets[hash >> 58];
}
_Static_assert(AP__BUCKETS == 1 << (64 - 58), "the hash names a bucket");

static int ap__bucket_sleep(struct ap__bucket *bucket, uint64_t deadline_ns) {
    if (deadline_ns == AP_FOREVER)
        return pthread_cond_wait(&bucket->woken, &bucket->lock);
    struct timespec at;
#ifdef __APPLE__
    uint64_t now = ap_clock_now();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    at.tv_sec = (time_t)(left / 1000000000);
    at.tv_nsec = (long)(left % 1000000000);
    return pthread_cond_timedwait_relative_np(&bucket->woken, &bucket->lock, &at);
#else
    at.tv_sec = (time_t)(deadline_ns / 1000000000);
    at.tv_nsec = (long)(deadline_ns % 1000000000);
    return pthread_cond_timedwait(&bucket->woken, &bucket->lock, &at);
#endif
}

int ap_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns) {
    struct ap__bucket *bucket = ap__bucket_of(word);
    int rc = 0;
    (void)pthread_mutex_lock(&bucket->lock);
    /* relaxed: the mutex orders this after the change of any waker that locked before */
    if (ap_u32_load_relaxed(word) == expected) {
        bucket->sleepers++;
        rc = ap__bucket_sleep(bucket, deadline_ns);
        bucket->sleepers--;
    }
    (void)pthread_mutex_unlock(&bucket->lock);
    return rc == ETIMEDOUT ? AP_E_TIMEDOUT : AP_OK;
}

void ap_wake_u32(ap_atomic_u32 *word, uint32_t count) {
    if (count == 0)
        return;
    struct ap__bucket *bucket = ap__bucket_of(word);
    (void)pthread_mutex_lock(&bucket->lock);
    if (bucket->sleepers > 0)
        (void)pthread_cond_broadcast(&bucket->woken);
    (void)pthread_mutex_unlock(&bucket->lock);
}

#endif

typedef int ap__wait_condvar_is_not_empty;
