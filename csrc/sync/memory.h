/* The one place that memory comes from.
 *
 * Usage.  ap_memory_alloc gives zeroed memory aligned to AP_LINE, or NULL.  A build with
 * -DAP_FAULTS has ap_memory_fail_at(n): the n-th allocation from now (1 is the next) fails,
 * once; ap_memory_asked() and ap_memory_live() count allocations.
 */
#ifndef AP_SYNC_MEMORY_H
#define AP_SYNC_MEMORY_H

#include <stddef.h>
#include <stdint.h>

void *ap_memory_alloc(size_t size);
void ap_memory_free(void *memory);

#ifdef AP_FAULTS
void ap_memory_fail_at(uint64_t n); /* 0: never */
uint64_t ap_memory_asked(void);     /* allocations asked for since the start */
uint64_t ap_memory_live(void);      /* allocations not yet freed */
#endif

#endif
