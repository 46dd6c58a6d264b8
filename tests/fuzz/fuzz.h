/* What the harnesses share: the input's bytes, checks, short memory, a world of one thread.
 *
 * Overview.  A harness defines LLVMFuzzerTestOneInput: it reads operations off the input, does each
 * on the structure and on a plain model of it, and compares.  Everything is of one thread and
 * a function of the input alone: fuzz_world.c is the clock, CPUs and sleep of the core.  What
 * other threads could do meanwhile is done at the core's AP_POINTs, by fuzz_at_point.
 *
 * An input that has ended reads as zeros.  No two reads are in one expression: their order would be
 * the compiler's, and an input would not mean the same in each build.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "affinitypool.h"
#include "sync/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- checks ------------------------------------------------------------------------------ */

_Noreturn void fuzz_fail(const char *file, int line, const char *what, uint64_t got,
                         uint64_t wanted);

#define FUZZ_CHECK(condition) \
    ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition, 0, 1))
#define FUZZ_EQ(got, wanted)                                                           \
    do {                                                                               \
        uint64_t fuzz_got = (uint64_t)(got);                                           \
        uint64_t fuzz_wanted = (uint64_t)(wanted);                                     \
        if (fuzz_got != fuzz_wanted)                                                   \
            fuzz_fail(__FILE__, __LINE__, #got " == " #wanted, fuzz_got, fuzz_wanted); \
    } while (0)

/* ---- the input --------------------------------------------------------------------------- */

typedef struct fuzz_input {
    const uint8_t *at;
    const uint8_t *end;
} fuzz_input;

static inline bool fuzz_more(const fuzz_input *in) {
    return in->at != in->end;
}

static inline uint8_t fuzz_byte(fuzz_input *in) {
    return fuzz_more(in) ? *in->at++ : 0;
}

static inline uint32_t fuzz_word(fuzz_input *in) {
    uint32_t low = fuzz_byte(in);
    return low | (uint32_t)fuzz_byte(in) << 8;
}

/* Below n, which is at most 65536. */
static inline uint32_t fuzz_below(fuzz_input *in, uint32_t n) {
    return n == 0 ? 0 : (n <= 256 ? fuzz_byte(in) : fuzz_word(in)) % n;
}

/* Where indices start: near the places where positions, words and their differences wrap. */
static inline uint64_t fuzz_first_index(fuzz_input *in) {
    switch (fuzz_byte(in) % 5) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - fuzz_byte(in);
    case 2:
        return (UINT64_C(1) << 63) - fuzz_byte(in);
    case 3:
        return (UINT64_C(1) << 62) - fuzz_byte(in);
    default: {
        uint64_t high = fuzz_word(in);
        return high << 48 | fuzz_word(in);
    }
    }
}

/* ---- short memory ------------------------------------------------------------------------ */

extern uint64_t fuzz_fails_in; /* the allocation that will fail, 1 is the next; 0: none */

static inline void fuzz_fail_allocation(uint64_t n) {
    fuzz_fails_in = n;
    ap_memory_fail_at(n);
}

/* The model of `count` allocations in a row, which end at one that fails: how many succeed. */
static inline uint64_t fuzz_allocations(uint64_t count) {
    if (fuzz_fails_in == 0 || fuzz_fails_in > count) {
        fuzz_fails_in -= fuzz_fails_in == 0 ? 0 : count;
        return count;
    }
    uint64_t succeed = fuzz_fails_in - 1;
    fuzz_fails_in = 0;
    return succeed;
}

/* ---- the world --------------------------------------------------------------------------- */

/* Before each input. */
void fuzz_begin(void);

/* Called at each AP_POINT, if not NULL. */
extern void (*fuzz_at_point)(const char *name);

/* Each bit that is set makes one sleep end at once, for no reason. */
extern uint32_t fuzz_early_wakes;

/* Where a thread that would sleep without a deadline goes by longjmp; NULL: that is a failure. */
extern jmp_buf *fuzz_sleeper;

/* Allocations of the harness that are not freed. */
uint64_t fuzz_live(void);

/* Makes `worker`, or nobody (NULL), what ap_worker_current gives. */
void fuzz_become(ap_worker *worker);

#endif
