/* Sleeping, time and the CPU of csrc/sync, for code that the explorer runs. */
#include "inside.h"
#include "sync/clock.h"
#include "sync/cpu.h"
#include "sync/wait.h"

#define TICK_NS \
    10000 /* what a look at the clock takes: a search for a time ends after a few looks */

/* Of those that sleep on the word: who comes first is woken first, and a compare leaves what it
 * knew to the next one. */
static uintptr_t queue_of(const ap_atomic_u32 *word) {
    return (uintptr_t)word + 1;
}

int ap_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns) {
    const void *caller = __builtin_return_address(0);
    point((uintptr_t)word, false);
    point_also(queue_of(word), true);
    uint64_t value = order_compared(word, sizeof *word);
    TELL(caller, "futex wait at %s: %#llx%s", name_of((uintptr_t)word), (unsigned long long)value,
         value != word->raw ? "  (not the newest)" : "");
    if (value != expected || pick_within(BUDGET_SPURIOUS, 2))
        return AP_OK;
    bool woken = sleep_at((uintptr_t)word, deadline_ns);
    TELL(caller, "%s", woken ? "is woken" : "its time is over");
    return woken ? AP_OK : AP_E_TIMEDOUT;
}

void ap_wake_u32(ap_atomic_u32 *word, uint32_t count) {
    point((uintptr_t)word, true);
    point_also(queue_of(word), true);
    order_woke((uintptr_t)word);
    unsigned woken = wake_at((uintptr_t)word, count); /* the address only: it may be freed */
    TELL(__builtin_return_address(0), "futex wake at %s: %u woken", name_of((uintptr_t)word),
         woken);
}

void ap_wait_after_fork(void) {
}

uint64_t ap_clock_now(void) {
    return model_now += TICK_NS;
}

uint64_t ap_clock_tick(void) {
    return model_now;
}

void ap_cpu_yield(void) {
    model_yield();
}

uint32_t ap_cpu_count(void) {
    return 2;
}

const char *ap_parking_backend(void) {
    return "model";
}
