/* The back end of sync/atomic.h that disturbs: the compiler's atomics, with a chance to yield or
 * to nap before and after every access, so that threads meet between any two of them.
 *
 * Usage.  -DAP_ATOMIC_BACKEND='"sync/atomic_stress.h"', and an ap_stress_pause() in the program:
 * tests/c/chance.c has the seeded one.  Types, orders and results are those of atomic_c11.h; a
 * compare-and-swap stays strong.  Not for a program that is measured.
 */
#ifndef AP_SYNC_ATOMIC_STRESS_H
#define AP_SYNC_ATOMIC_STRESS_H

#include "sync/atomic_c11.h"

void ap_stress_pause(void);

#define AP__STRESS(access)                          \
    __extension__({                                 \
        ap_stress_pause();                          \
        __typeof__(access) ap__stress_got = access; \
        ap_stress_pause();                          \
        ap__stress_got;                             \
    })

#undef AP_RAW_LOAD
#undef AP_RAW_STORE
#undef AP_RAW_EXCHANGE
#undef AP_RAW_CAS
#undef AP_RAW_ADD
#undef AP_RAW_SUB
#undef AP_RAW_OR
#undef AP_RAW_AND

#define AP_RAW_LOAD(p, order) AP__STRESS(atomic_load_explicit(&(p)->raw, order))
#define AP_RAW_STORE(p, v, order) \
    (ap_stress_pause(), atomic_store_explicit(&(p)->raw, v, order), ap_stress_pause())
#define AP_RAW_EXCHANGE(p, v, order) AP__STRESS(atomic_exchange_explicit(&(p)->raw, v, order))
#define AP_RAW_CAS(p, expected, desired, order, fail) \
    AP__STRESS(atomic_compare_exchange_strong_explicit(&(p)->raw, expected, desired, order, fail))
#define AP_RAW_ADD(p, v, order) AP__STRESS(atomic_fetch_add_explicit(&(p)->raw, v, order))
#define AP_RAW_SUB(p, v, order) AP__STRESS(atomic_fetch_sub_explicit(&(p)->raw, v, order))
#define AP_RAW_OR(p, v, order) AP__STRESS(atomic_fetch_or_explicit(&(p)->raw, v, order))
#define AP_RAW_AND(p, v, order) AP__STRESS(atomic_fetch_and_explicit(&(p)->raw, v, order))

#endif
