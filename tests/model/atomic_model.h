/* The explorer as the back end of sync/atomic.h: each access is a step that it decides about. */
#ifndef MODEL_ATOMIC_MODEL_H
#define MODEL_ATOMIC_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* `raw` always holds the newest value. */
typedef struct ap_atomic_u32 {
    uint32_t raw;
} ap_atomic_u32;

typedef struct ap_atomic_u64 {
    uint64_t raw;
} ap_atomic_u64;

typedef struct ap_atomic_ptr {
    void *raw;
} ap_atomic_ptr;

enum model_order {
    AP_ORDER_RELAXED,
    AP_ORDER_ACQUIRE,
    AP_ORDER_RELEASE,
    AP_ORDER_ACQ_REL,
    AP_ORDER_SEQ_CST
};

enum model_rmw { MODEL_EXCHANGE, MODEL_ADD, MODEL_SUB, MODEL_OR, MODEL_AND };

uint64_t model_load(void *address, unsigned size, int order);
void model_store(void *address, unsigned size, uint64_t value, int order);
uint64_t model_modify(void *address, unsigned size, int operation, uint64_t value, int order);
bool model_cas(void *address, unsigned size, uint64_t *expected, uint64_t desired, int order,
               int fail);

#define MODEL__WORD(name, type, value, to, from)                                            \
    static inline __attribute__((always_inline)) value model_load_##name(type *p, int o) {  \
        return (value)to model_load(p, sizeof *p, o);                                       \
    }                                                                                       \
    static inline                                                                           \
        __attribute__((always_inline)) void model_store_##name(type *p, value v, int o) {   \
        model_store(p, sizeof *p, from v, o);                                               \
    }                                                                                       \
    static inline __attribute__((always_inline))                                            \
    value model_modify_##name(type *p, int op, value v, int o) {                            \
        return (value)to model_modify(p, sizeof *p, op, from v, o);                         \
    }                                                                                       \
    static inline                                                                           \
        __attribute__((always_inline)) bool model_cas_##name(type *p, value *expected,      \
                                                             value desired, int o, int f) { \
        uint64_t old = from * expected;                                                     \
        bool done = model_cas(p, sizeof *p, &old, from desired, o, f);                      \
        if (!done)                                                                          \
            *expected = (value)to old;                                                      \
        return done;                                                                        \
    }

MODEL__WORD(u32, ap_atomic_u32, uint32_t, , (uint64_t))
MODEL__WORD(u64, ap_atomic_u64, uint64_t, , (uint64_t))
MODEL__WORD(ptr, ap_atomic_ptr, void *, (uintptr_t), (uint64_t)(uintptr_t))
#undef MODEL__WORD

#define MODEL__OF(p, name)                 \
    _Generic((p), ap_atomic_u32 *          \
             : name##_u32, ap_atomic_u64 * \
             : name##_u64, ap_atomic_ptr * \
             : name##_ptr)

#define AP_RAW_LOAD(p, order) MODEL__OF(p, model_load)(p, order)
#define AP_RAW_STORE(p, v, order) MODEL__OF(p, model_store)(p, v, order)
#define AP_RAW_EXCHANGE(p, v, order) MODEL__OF(p, model_modify)(p, MODEL_EXCHANGE, v, order)
#define AP_RAW_CAS(p, expected, desired, order, fail) \
    MODEL__OF(p, model_cas)(p, expected, desired, order, fail)
#define AP_RAW_ADD(p, v, order) MODEL__OF(p, model_modify)(p, MODEL_ADD, v, order)
#define AP_RAW_SUB(p, v, order) MODEL__OF(p, model_modify)(p, MODEL_SUB, v, order)
#define AP_RAW_OR(p, v, order) MODEL__OF(p, model_modify)(p, MODEL_OR, v, order)
#define AP_RAW_AND(p, v, order) MODEL__OF(p, model_modify)(p, MODEL_AND, v, order)

#endif
