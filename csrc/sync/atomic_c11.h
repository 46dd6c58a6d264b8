/* The compiler's C11 atomics as the back end of sync/atomic.h.
 *
 * A back end defines the three types, the five orders and the eight AP_RAW_ operations.  The
 * operations may be macros or functions; their order argument is always one of the AP_ORDER_
 * names.
 */
#ifndef AP_SYNC_ATOMIC_C11_H
#define AP_SYNC_ATOMIC_C11_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct ap_atomic_u32 {
    _Atomic(uint32_t) raw;
} ap_atomic_u32;

typedef struct ap_atomic_u64 {
    _Atomic(uint64_t) raw;
} ap_atomic_u64;

typedef struct ap_atomic_ptr {
    _Atomic(void *) raw;
} ap_atomic_ptr;

#define AP_ORDER_RELAXED memory_order_relaxed
#define AP_ORDER_ACQUIRE memory_order_acquire
#define AP_ORDER_RELEASE memory_order_release
#define AP_ORDER_ACQ_REL memory_order_acq_rel
#define AP_ORDER_SEQ_CST memory_order_seq_cst

#define AP_RAW_LOAD(p, order) atomic_load_explicit(&(p)->raw, order)
#define AP_RAW_STORE(p, v, order) atomic_store_explicit(&(p)->raw, v, order)
#define AP_RAW_EXCHANGE(p, v, order) atomic_exchange_explicit(&(p)->raw, v, order)
#define AP_RAW_CAS(p, expected, desired, order, fail) \
    atomic_compare_exchange_strong_explicit(&(p)->raw, expected, desired, order, fail)
#define AP_RAW_ADD(p, v, order) atomic_fetch_add_explicit(&(p)->raw, v, order)
#define AP_RAW_SUB(p, v, order) atomic_fetch_sub_explicit(&(p)->raw, v, order)
#define AP_RAW_OR(p, v, order) atomic_fetch_or_explicit(&(p)->raw, v, order)
#define AP_RAW_AND(p, v, order) atomic_fetch_and_explicit(&(p)->raw, v, order)

#endif
