/* sync/wait.h by Linux futexes, private to the process. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "sync/wait.h"

#ifndef AP_PARKING_CONDVAR

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *ap_parking_backend(void) {
    return "futex";
}

int ap_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns) {
    struct timespec at;
    struct timespec *deadline = NULL;
    if (deadline_ns != AP_FOREVER) {
        at.tv_sec = (time_t)(deadline_ns / 1000000000);
        at.tv_nsec = (long)(deadline_ns % 1000000000);
        deadline = &at;
    }
    /* The bit set variant takes an absolute deadline on the monotonic clock. */
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, deadline, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    if (rc == 0 || errno == EAGAIN)
        return AP_OK;
    if (errno == ETIMEDOUT)
        return AP_E_TIMEDOUT;
    return errno == EINTR ? AP_E_INTR : AP_OK;
}

void ap_wake_u32(ap_atomic_u32 *word, uint32_t count) {
    int n = count > INT_MAX ? INT_MAX : (int)count;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

void ap_wait_after_fork(void) {
}

#endif

typedef int ap__wait_futex_is_not_empty;
