/* The processor and the compiler: cache lines, pauses, branch hints, places for fault tests. */
#ifndef AP_SYNC_CPU_H
#define AP_SYNC_CPU_H

#include <stddef.h>
#include <stdint.h>

/* Shared words that different threads write are this far apart: two 64-byte lines, because
 * x86 prefetches the neighbour and Apple's lines are 128 bytes long. */
#define AP_LINE 128
#define AP_ALIGN_LINE _Alignas(AP_LINE)

#define AP_LIKELY(x) __builtin_expect(!!(x), 1)
#define AP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define AP_NOINLINE __attribute__((noinline))

/* A named place between two steps of a protocol, where a test may stop or delay the thread:
 * compile with -DAP_POINT_HEADER='"file.h"' to give it a meaning. */
#ifdef AP_POINT_HEADER
#include AP_POINT_HEADER
#endif
#ifndef AP_POINT
#define AP_POINT(name) ((void)0)
#endif
/* Thread-locals of the hot path.  The fast model needs room in the static TLS area, which
 * glibc and Darwin give to libraries that are loaded late and musl does not. */
#ifdef AP_THREAD_LOCAL
/* the test's threads are not the system's */
#elif defined(__linux__) && defined(__GLIBC__)
#define AP_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define AP_THREAD_LOCAL _Thread_local
#endif
/* Whether idle workers spin before they park: a test may say no. */
#ifndef AP_WORKERS_SPIN
#define AP_WORKERS_SPIN true
#endif

/* Tells the processor that this is a spin loop. */
static inline void ap_cpu_pause(void) {
#ifdef AP_CPU_PAUSE
    AP_CPU_PAUSE();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#elif defined(__arm__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

/* Asks for a line that is about to be written, so that it is on its way meanwhile. */
static inline void ap_cpu_prefetch_write(void *address) {
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

/* Lets another runnable thread have this CPU. */
void ap_cpu_yield(void);

/* The lowest address of the calling thread's stack and its size; 0 if that cannot be told. */
uintptr_t ap_stack_low(size_t *size);

/* How many CPUs the affinity mask of the calling thread names; at least 1. */
uint32_t ap_cpu_count(void);

#endif
