/* The insides of the explorer, shared by its files: explorer.c decides, order.c knows what loads
 * may read, memory.c what plain accesses and frees may touch. */
#ifndef MODEL_INSIDE_H
#define MODEL_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomic_model.h"
#include "explorer.h"

#define THREADS (MODEL_THREADS_MAX + 1) /* 0 runs setup and finish */
#define LOCATIONS 320

/* What a thread knows.  A clock counts the releases of a thread; an access at clock c of thread t
 * happened before whoever has clock[t] >= c. */
typedef struct view {
    int16_t seen[LOCATIONS]; /* the oldest store of a location that may still be read */
    int16_t clock[THREADS];
} view;

typedef struct store {
    uint64_t value;
    view *released; /* what an acquire of it learns; NULL: nothing */
} store;

typedef struct location {
    uintptr_t address;
    unsigned size;
    store *stores;
    int count, room;
    int16_t seq_cst;       /* the newest store that a seq_cst operation has touched */
    int16_t fenced;        /* the newest that was seen before a seq_cst fence */
    int16_t locked;        /* the newest that a futex call on it has known */
    int16_t used[THREADS]; /* clock of the last access of each thread */
} location;

/* ---- explorer.c --------------------------------------------------------------------------- */

extern int self;           /* the running thread */
extern bool together;      /* the threads run, not setup or finish */
extern bool unwatched;     /* plain accesses are nobody's */
extern uint64_t model_now; /* nanoseconds */

/* Before a step that others may see, at an address (0: at none): others may go first. */
void point(uintptr_t address, bool writes);

/* The step that this has been called for is one of another address as well. */
void point_also(uintptr_t address, bool writes);

/* As model_choose, but other answers than 0 are given only so often in an execution. */
typedef enum budget { BUDGET_STALE, BUDGET_SPURIOUS, BUDGET_FAILURE, BUDGETS } budget;
unsigned pick_within(budget budget, unsigned count);

/* Writes a line of the trace, if one is wanted. */
#define TELL(...)              \
    do {                       \
        if (telling)           \
            tell(__VA_ARGS__); \
    } while (0)
extern bool telling;
void tell(const void *caller, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *name_of(uintptr_t address); /* in a buffer of its own, of which there are some */

/* Sleeps on an address until woken (true), or until the deadline (false). */
bool sleep_at(uintptr_t address, uint64_t deadline);
unsigned wake_at(uintptr_t address, uint32_t count);
bool is_thread_local(uintptr_t address); /* each thread has a copy of it */

/* ---- order.c ------------------------------------------------------------------------------ */

extern view views[THREADS];

void order_reset(void);
void order_fork(int thread); /* a thread begins: it knows what setup did */
void order_join(void);       /* thread 0 learns what all know */
void order_catch_up(void);   /* the running thread sees what is newest */
/* What a futex wait compares; a use of the location.  And a wake, which is none. */
uint64_t order_compared(void *address, unsigned size);
void order_woke(uintptr_t address);
/* The first use of a location after the running thread's view, among addresses; for frees. */
bool order_used_after(uintptr_t from, uintptr_t to, uintptr_t *address, int *thread);

/* ---- por.c ------------------------------------------------------------------------------- */

void por_reset(void);
/* The running thread has been chosen at a decision, and accesses an address, or yields. */
void por_step(uintptr_t address, bool writes, int decision);
void por_yield(int decision);
void por_wake(int thread); /* by the running thread */
/* In explorer.c: at that decision another thread has to be tried as well. */
void try_earlier(int decision, int thread);

/* ---- memory.c ----------------------------------------------------------------------------- */

void memory_reset(void);
bool memory_is_arena(uintptr_t address);
void memory_check_use(uintptr_t address, size_t size, const void *caller);
unsigned memory_live(void);
void *arena_take(size_t size); /* until the end of the execution; not zeroed, not seen by checks */

#endif
