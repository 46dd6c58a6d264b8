/* Which switches between threads matter: dynamic partial-order reduction.
 *
 * Overview.  Two executions that differ only in the order of steps that do not depend on each other
 * come to the same.  Two steps depend on each other if both are of one address and one writes.
 * So, where a step comes after one of another thread that it depends on, and nothing else in the
 * execution says that it has to, the search is told to try it earlier: at the decision before that
 * step (Flanagan and Godefroid, 2005).  As switches are bounded, also at the decision that began
 * the other thread's run, where a switch may be free (Coons, Musuvathi and McKinley, 2013).
 *
 * Futex calls on a word depend on each other as well: they take its lock, and sleepers queue.  So
 * do seq_cst loads of it: the first to read a newer store keeps the others from an older one.
 *
 * A yield depends on every write, because a thread that has yielded sees what is newest.  Fences
 * depend on more than is written here: cases with fences are searched in full (model_case.full).
 */
#include <string.h>

#include "inside.h"

#define HASH 2048

typedef struct access {
    struct access *older; /* of this address */
    int decision;         /* before it */
    int step;             /* counted in this execution */
    int16_t thread;
    bool writes;
} access;

typedef struct place {
    uintptr_t address;
    access *newest;
    int write_clock[THREADS]; /* what the last write knew */
    int all_clock[THREADS];   /* what all accesses knew */
} place;

static place places[HASH];
static int used[HASH], used_count;
static int clocks[THREADS][THREADS]; /* the last step of each thread that each has to come after */
static int last_step[THREADS];
static int step_count;
static access *yields, *writes_anywhere;

void por_reset(void) {
    for (int i = 0; i < used_count; i++)
        memset(&places[used[i]], 0, sizeof *places);
    used_count = 0;
    memset(clocks, 0, sizeof clocks);
    memset(last_step, 0, sizeof last_step);
    step_count = 0;
    yields = writes_anywhere = NULL;
}

static place *place_of(uintptr_t address) {
    unsigned i = (unsigned)(address >> 2) * 2654435761u >> 21;
    while (places[i].address && places[i].address != address)
        i = (i + 1) % HASH;
    if (!places[i].address) {
        if (used_count == HASH / 2)
            model_fail("too many addresses: raise HASH in por.c");
        used[used_count++] = (int)i;
        places[i].address = address;
    }
    return &places[i];
}

static void raise_clock(int *clock, const int *other) {
    for (int i = 0; i < THREADS; i++)
        clock[i] = clock[i] > other[i] ? clock[i] : other[i];
}

/* The running thread's step depends on these; the newest first. */
static void try_before(const access *list, bool writes) {
    for (const access *at = list; at; at = at->older) {
        if (at->thread == self || !(writes || at->writes) || at->step <= clocks[self][at->thread])
            continue;
        try_earlier(at->decision, self);
        if (at->step < last_step[self])
            break; /* earlier ones: when that one has been tried before them */
    }
}

static access *keep(access *older, int decision, bool writes) {
    access *added = arena_take(sizeof *added);
    *added = (access){older, decision, step_count, (int16_t)self, writes};
    return added;
}

void por_step(uintptr_t address, bool writes, int decision) {
    step_count++;
    place *at = place_of(address);
    try_before(at->newest, writes);
    if (writes)
        try_before(yields, true);
    raise_clock(clocks[self], writes ? at->all_clock : at->write_clock);
    clocks[self][self] = step_count;
    raise_clock(at->all_clock, clocks[self]);
    if (writes)
        memcpy(at->write_clock, clocks[self], sizeof at->write_clock);
    at->newest = keep(at->newest, decision, writes);
    if (writes)
        writes_anywhere = keep(writes_anywhere, decision, true);
    last_step[self] = step_count;
}

void por_yield(int decision) {
    step_count++;
    try_before(writes_anywhere, true);
    clocks[self][self] = step_count;
    yields = keep(yields, decision, false);
    last_step[self] = step_count;
}

void por_wake(int thread) {
    raise_clock(clocks[thread], clocks[self]);
}
