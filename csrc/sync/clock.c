#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "sync/clock.h"

#include <time.h>

uint64_t ap_clock_now(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
