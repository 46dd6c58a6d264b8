/* The affinity mask needs glibc's cpu_set_t macros. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sync/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

void ap_cpu_yield(void) {
    (void)sched_yield();
}

uintptr_t ap_stack_low(size_t *size) {
    void *low = NULL;
    *size = 0;
#if defined(__linux__)
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &low, size) != 0)
            low = NULL;
        (void)pthread_attr_destroy(&attributes);
    }
#elif defined(__APPLE__)
    *size = pthread_get_stacksize_np(pthread_self());
    low = (char *)pthread_get_stackaddr_np(pthread_self()) - *size;
#endif
    return (uintptr_t)low;
}

uint32_t ap_cpu_count(void) {
#if defined(__linux__)
    /* The kernel refuses a mask shorter than its own: try longer ones. */
    for (int bits = CPU_SETSIZE; bits <= 64 * CPU_SETSIZE; bits *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        if (set == NULL)
            break;
        size_t size = CPU_ALLOC_SIZE((size_t)bits);
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return (uint32_t)count;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}
