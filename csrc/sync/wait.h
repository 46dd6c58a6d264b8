/* Sleeping until a 32-bit word changes.
 *
 * Overview.  ap_wait_u32 sleeps while *word == expected.  It may return early for no reason:
 * call it in a loop that re-reads the word.  ap_wake_u32 wakes up to `count` sleepers (possibly
 * more).  The waker changes the word before it calls.
 *
 * Guarantee.  If the word was changed and ap_wake_u32 called, no sleeper that had seen the old
 * value stays asleep.  ap_wake_u32 uses the address of the word only and never reads it: the
 * word may have been freed by the one who was woken by the change itself.
 *
 * Neither call orders anything: the accesses to the word do, with the orders they name.
 */
#ifndef AP_SYNC_WAIT_H
#define AP_SYNC_WAIT_H

#include <stdint.h>

#include "affinitypool.h"
#include "sync/atomic.h"

#if !defined(__linux__) && !defined(AP_PARKING_CONDVAR)
#define AP_PARKING_CONDVAR 1
#endif

/* AP_OK: woken, or the word differs, or no reason.  AP_E_TIMEDOUT: the absolute monotonic
 * deadline passed.  AP_E_INTR: a signal handler ran; never from the condvar back end, where a
 * sleeper that must answer to signals has to wait in slices. */
int ap_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns);

void ap_wake_u32(ap_atomic_u32 *word, uint32_t count);

/* In a forked child, before anything else here: no lock is held by a thread that is not there. */
void ap_wait_after_fork(void);

#endif
