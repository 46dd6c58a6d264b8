/* The insides of the explorer, shared by its files: explorer.c is the program, threads.c runs the
 * threads of a case, decide.c decides which goes on, por.c which might as well, order.c knows what
 * loads may read, memory.c what plain accesses and frees may touch, report.c tells; sync_model.c
 * and posix_model.c stand in for csrc/sync and for POSIX threads. */
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
    int16_t seq_cst_store; /* the newest that is one itself */
    int16_t fenced;        /* the newest that was seen before a seq_cst fence */
    int16_t locked;        /* the newest that a futex call on it has known */
    int16_t used[THREADS]; /* clock of the last access of each thread */
} location;

/* ---- explorer.c --------------------------------------------------------------------------- */

typedef struct options {
    uint64_t executions; /* at most; 0: no limit */
    double seconds;
    uint64_t seed, runs; /* of random executions */
    const char *program, *trace;
    int preemptions, stale; /* -1: as the case says */
    bool deep, quick;
    bool list;
} options;

extern options given;
extern const model_case *current;

/* ---- threads.c ---------------------------------------------------------------------------- */

extern int self;           /* the running thread */
extern bool together;      /* the threads run, not setup or finish */
extern bool unwatched;     /* plain accesses are nobody's */
extern bool forked;        /* the running thread is a child's only one */
extern uint64_t model_now; /* nanoseconds */
extern uint64_t executions, steps_in_all;

void execute(void);           /* the current case, once */
_Noreturn void abandon(void); /* the execution */

/* Before a step that others may see, at an address (0: at none): others may go first. */
void point(uintptr_t address, bool writes);

/* The step that this has been called for is one of another address as well. */
void point_also(uintptr_t address, bool writes);

/* Sleeps on an address until woken (true), or until the deadline (false). */
bool sleep_at(uintptr_t address, uint64_t deadline);
unsigned wake_at(uintptr_t address, uint32_t count);
bool is_thread_local(uintptr_t address); /* each thread has a copy of it */

/* ---- decide.c ----------------------------------------------------------------------------- */

typedef enum mode { SEARCH, RANDOM, REPLAY } mode;
extern mode how;
extern uint32_t number; /* of the decision, those with one answer included */

void decide_from_the_start(mode wanted);
void decide_seed(uint64_t seed); /* of the next execution, at random */
void decide_begin(void);         /* an execution; its threads */
void decide_begin_threads(int count);
/* Another answer for the last decision that has one to be tried; false: there is none. */
bool decide_next_time(void);

/* Which of these threads goes on; the first so many cost no preemption. */
unsigned decide_thread(unsigned count, const int8_t *of, unsigned free_of_cost);
void decide_step(uint64_t step); /* the running thread is about to make it, or yields */
void decide_yield(void);
int decide_last(void); /* the decision that was made last, for por.c */

/* As model_choose, but other answers than 0 are given only so often in an execution. */
typedef enum budget { BUDGET_STALE, BUDGET_SPURIOUS, BUDGET_FAILURE, BUDGETS } budget;
unsigned pick_within(budget budget, unsigned count);
int bound_of(budget which);
int bound_of_preemptions(void);
int bound_of_both(void);

void print_trace(void); /* the command that replays the execution */
bool read_trace(const char *text);
bool trace_fits(void);  /* it was one of this case; else `failure` says why not */
void replay_this(void); /* the execution that has been */

/* ---- report.c ----------------------------------------------------------------------------- */

extern bool failed; /* the execution */
extern char failure[4096];

void report_begin(void); /* an execution */
void show_failure(void); /* and the failed execution again, step by step */
void forget_outcomes(void);
void check_outcomes(void); /* that each was seen; others end their execution */

/* Writes a line of the trace, if one is wanted. */
#define TELL(...)              \
    do {                       \
        if (telling)           \
            tell(__VA_ARGS__); \
    } while (0)
extern bool telling;
void tell(const void *caller, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *name_of(uintptr_t address); /* in a buffer of its own, of which there are some */

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
/* In decide.c: at that decision another thread has to be tried as well. */
void try_earlier(int decision, int thread);

/* ---- memory.c ----------------------------------------------------------------------------- */

void memory_reset(void);
bool memory_is_arena(uintptr_t address);
uintptr_t memory_block(uintptr_t address); /* where its block begins; 0: it is of none */
void memory_check_use(uintptr_t address, size_t size, const void *caller);
unsigned memory_live(void);
void *arena_take(size_t size); /* until the end of the execution; not zeroed, not seen by checks */

#endif
