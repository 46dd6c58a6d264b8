/* The monotonic clock: ap_clock_now() of affinitypool.h, and arithmetic on deadlines. */
#ifndef AP_SYNC_CLOCK_H
#define AP_SYNC_CLOCK_H

#include <stdint.h>

#include "affinitypool.h"

/* The same clock as of its last tick, some milliseconds ago at most, for a tenth of the price. */
uint64_t ap_clock_tick(void);

/* The deadline `ns` from now; AP_FOREVER if that is past the end of the clock. */
static inline uint64_t ap_clock_after(uint64_t ns) {
    uint64_t now = ap_clock_now();
    return ns >= AP_FOREVER - now ? AP_FOREVER : now + ns;
}

#endif
