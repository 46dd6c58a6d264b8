#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "sync/memory.h"

#include <stdlib.h>
#include <string.h>

#include "sync/atomic.h"
#include "sync/cpu.h"

#ifdef AP_FAULTS
static ap_atomic_u64 ap__memory_asked;
static ap_atomic_u64 ap__memory_freed;
static ap_atomic_u64 ap__memory_granted;
static ap_atomic_u64 ap__memory_fail_at; /* number of the allocation that fails; 0: none */

void ap_memory_fail_at(uint64_t n) {
    uint64_t asked = ap_u64_load_relaxed(&ap__memory_asked);
    ap_u64_store_relaxed(&ap__memory_fail_at, n == 0 ? 0 : asked + n);
}

uint64_t ap_memory_asked(void) {
    return ap_u64_load_relaxed(&ap__memory_asked);
}

uint64_t ap_memory_live(void) {
    return ap_u64_load_relaxed(&ap__memory_granted) - ap_u64_load_relaxed(&ap__memory_freed);
}
#endif

void *ap_memory_alloc(size_t size) {
#ifdef AP_FAULTS
    uint64_t number = ap_u64_add_relaxed(&ap__memory_asked, 1) + 1;
    if (number == ap_u64_load_relaxed(&ap__memory_fail_at))
        return NULL;
#endif
    size_t rounded = (size + AP_LINE - 1) / AP_LINE * AP_LINE;
    void *memory = rounded < size ? NULL : aligned_alloc(AP_LINE, rounded);
    if (memory == NULL)
        return NULL;
    memset(memory, 0, rounded);
#ifdef AP_FAULTS
    ap_u64_add_relaxed(&ap__memory_granted, 1);
#endif
    return memory;
}

void ap_memory_free(void *memory) {
    if (memory == NULL)
        return;
#ifdef AP_FAULTS
    ap_u64_add_relaxed(&ap__memory_freed, 1);
#endif
    free(memory);
}
