#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifdef AP_POINT_HEADER
#include <sched.h>
#include <stdint.h>
#include <time.h>

#include "check.h"
#include "point_chaos.h"

void check_point(void) {
    static _Thread_local uint32_t state;
    if (state == 0)
        state = (uint32_t)(uintptr_t)&state ^ (uint32_t)ap_clock_now() ^ 1;
    uint32_t r = check_random(&state) % 1024;
    if (r < 4) {
        struct timespec span = {0, (long)(check_random(&state) % 50000)};
        (void)nanosleep(&span, NULL);
    } else if (r < 64) {
        (void)sched_yield();
    }
}
#endif
typedef int point_chaos_is_not_empty;
