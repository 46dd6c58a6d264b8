/* Atomic words with the order of every access in the name of the access.
 *
 * Overview.  Three struct types (ap_atomic_u32, ap_atomic_u64, ap_atomic_ptr) that plain C
 * assignment cannot touch, and one inline function per operation and order:
 *
 *     ap_u32_load_relaxed   _acquire  _seq_cst         value
 *     ap_u32_store_relaxed  _release  _seq_cst
 *     ap_u32_exchange_relaxed  _acq_rel  _seq_cst      old value
 *     ap_u32_cas_acq_rel  _seq_cst                     true if it stored
 *     ap_u32_add_relaxed  _acq_rel  _seq_cst           old value; also sub, or, and
 *
 * The same for u64; ptr has load, store, exchange and cas.  A compare-and-swap is strong: it
 * fails only if the value differs, writes that value to *expected, and is then an acquire.
 *
 * Back ends.  AP_ATOMIC_BACKEND names the header that gives the types and the AP_RAW_ macros;
 * it is chosen here and nowhere else, so that a stress back end or a model checker can take
 * the place of the compiler's atomics without a change to any caller.  There is no fence on
 * purpose: the protocols need none, and ThreadSanitizer cannot see one.
 */
#ifndef AP_SYNC_ATOMIC_H
#define AP_SYNC_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifndef AP_ATOMIC_BACKEND
#define AP_ATOMIC_BACKEND "sync/atomic_c11.h"
#endif
#include AP_ATOMIC_BACKEND

#define AP__LOAD(name, type, value, suffix, order)           \
    static inline value ap_##name##_load_##suffix(type *p) { \
        return AP_RAW_LOAD(p, order);                        \
    }
#define AP__STORE(name, type, value, suffix, order)                   \
    static inline void ap_##name##_store_##suffix(type *p, value v) { \
        AP_RAW_STORE(p, v, order);                                    \
    }
#define AP__EXCHANGE(name, type, value, suffix, order)                    \
    static inline value ap_##name##_exchange_##suffix(type *p, value v) { \
        return AP_RAW_EXCHANGE(p, v, order);                              \
    }
#define AP__CAS(name, type, value, suffix, order, fail)                                    \
    static inline bool ap_##name##_cas_##suffix(type *p, value *expected, value desired) { \
        return AP_RAW_CAS(p, expected, desired, order, fail);                              \
    }
#define AP__FETCH(name, type, value, op, RAW)                          \
    static inline value ap_##name##_##op##_relaxed(type *p, value v) { \
        return RAW(p, v, AP_ORDER_RELAXED);                            \
    }                                                                  \
    static inline value ap_##name##_##op##_acq_rel(type *p, value v) { \
        return RAW(p, v, AP_ORDER_ACQ_REL);                            \
    }                                                                  \
    static inline value ap_##name##_##op##_seq_cst(type *p, value v) { \
        return RAW(p, v, AP_ORDER_SEQ_CST);                            \
    }

#define AP__WORD(name, type, value)                                         \
    AP__LOAD(name, type, value, relaxed, AP_ORDER_RELAXED)                  \
    AP__LOAD(name, type, value, acquire, AP_ORDER_ACQUIRE)                  \
    AP__LOAD(name, type, value, seq_cst, AP_ORDER_SEQ_CST)                  \
    AP__STORE(name, type, value, relaxed, AP_ORDER_RELAXED)                 \
    AP__STORE(name, type, value, release, AP_ORDER_RELEASE)                 \
    AP__STORE(name, type, value, seq_cst, AP_ORDER_SEQ_CST)                 \
    AP__EXCHANGE(name, type, value, relaxed, AP_ORDER_RELAXED)              \
    AP__EXCHANGE(name, type, value, acq_rel, AP_ORDER_ACQ_REL)              \
    AP__EXCHANGE(name, type, value, seq_cst, AP_ORDER_SEQ_CST)              \
    AP__CAS(name, type, value, acq_rel, AP_ORDER_ACQ_REL, AP_ORDER_ACQUIRE) \
    AP__CAS(name, type, value, seq_cst, AP_ORDER_SEQ_CST, AP_ORDER_ACQUIRE)

#define AP__NUMBER(name, type, value)             \
    AP__FETCH(name, type, value, add, AP_RAW_ADD) \
    AP__FETCH(name, type, value, sub, AP_RAW_SUB) \
    AP__FETCH(name, type, value, or, AP_RAW_OR)   \
    AP__FETCH(name, type, value, and, AP_RAW_AND)

AP__WORD(u32, ap_atomic_u32, uint32_t)
AP__NUMBER(u32, ap_atomic_u32, uint32_t)
AP__WORD(u64, ap_atomic_u64, uint64_t)
AP__NUMBER(u64, ap_atomic_u64, uint64_t)
AP__WORD(ptr, ap_atomic_ptr, void *)

#undef AP__LOAD
#undef AP__STORE
#undef AP__EXCHANGE
#undef AP__CAS
#undef AP__FETCH
#undef AP__WORD
#undef AP__NUMBER

_Static_assert(sizeof(ap_atomic_u32) == 4, "a futex word");
_Static_assert(sizeof(ap_atomic_u64) == 8, "no lock beside the value");
_Static_assert(sizeof(ap_atomic_ptr) == sizeof(void *), "no lock beside the value");

#endif
