/* Seeded chance: what injected delays and faults are drawn from.
 *
 * AP_STRESS_SEED in the environment is the seed; without it one is chosen.  A run that fails prints
 * it.  Each test, and each of its threads by the order in which they first draw, has a sequence of
 * its own.  The same seed makes the same draws; when threads meet, the kernel decides as well.
 */
#ifndef CHANCE_H
#define CHANCE_H

#include <stdint.h>

uint64_t chance_seed(void);

/* At a test's start, before it has threads. */
void chance_begin(const char *test);

/* The calling thread's next number. */
uint32_t chance(void);

/* True `n` times of 1024. */
static inline int chance_is(uint32_t n) {
    return chance() % 1024 < n;
}

/* Sleeps for up to `ns`. */
void chance_nap(uint32_t ns);

/* Usually nothing, `naps` times of 1024 a nap of up to 50 us, `yields` times a yield. */
void chance_pause(uint32_t naps, uint32_t yields);

#endif
