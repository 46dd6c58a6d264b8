/* A model checker for C11 code: runs small programs of several threads through every order of
 * their steps, and every value that their loads may see, up to a bound.
 *
 * Overview.  A model is a C file with an array of cases.  A case has a setup, which runs alone,
 * some threads, and a finish, which runs alone after them.  The code under test is the shipping
 * code of csrc/, compiled with the back end atomic_model.h and with -fsanitize=thread: its atomic
 * accesses come here by the one, its plain accesses by the calls that the other puts in.
 *
 *     static void writer(void) { ap_u32_store_release(&flag, 1); }
 *     static void reader(void) { MODEL_CHECK(ap_u32_load_acquire(&flag) <= 1); }
 *     const model_case model_cases[] = {
 *         {.name = "flag", .setup = clear, .threads = {writer, reader}, .preemptions = 2},
 *         {0},
 *     };
 *
 * What is found: a check that fails; threads that block for ever (a lost wake) or turn for ever;
 * races of plain accesses; use of memory that is freed, or whose making does not happen before its
 * use; memory that is left.  A failure prints a trace that --replay takes.
 *
 * Memory orders.  As in C11 with the order of seq_cst operations of C++20, and its release
 * sequences: each thread has a view, of the oldest store of each location that it may still
 * read and of what happened before it.  A futex wait may compare an older value, as far as both
 * back ends of sync/wait.h let it; neither it nor a wake orders anything else.  Stand-alone fences
 * exist for the litmus tests.  See order.c.
 *
 * Limits.  A location's stores are ordered as they are executed, and a load reads a store that was
 * executed: no load buffering, no store that takes effect before an older one of its thread.  The
 * order of seq_cst operations is that of execution too: a seq_cst load does not come before an
 * older relaxed load of its thread.  A compare-and-swap that fails reads one of the 15 newest
 * stores of other values.
 *
 * A thread that pauses or yields goes on after a write of another one, or when nobody else can, and
 * sees what is newest then.  So what follows a number of yields, while the others stand still, is
 * explored only of code that can be told not to yield (points.h).  Time is one for all: a look at
 * the clock takes 10 us, a sleep that ends in time takes until its deadline, nothing else takes
 * any, and steps are not tried in another order because of it.  A deadline that is over at the
 * first look is not explored.
 *
 * A futex wait is not interrupted by signals, and those who came first are woken first.  Memory
 * that is freed is not given out again.
 *
 * An exploration is complete only up to its bounds, which it prints: switches away from a thread
 * that could go on, loads that do not read the newest store, futex waits that return for no reason,
 * allocations that fail.
 */
#ifndef MODEL_EXPLORER_H
#define MODEL_EXPLORER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_THREADS_MAX 6
#define MODEL_UNBOUNDED 10000

typedef struct model_case {
    const char *name;
    void (*setup)(void);
    void (*threads[MODEL_THREADS_MAX])(void);
    void (*finish)(void); /* also after threads have blocked, if that is no fault */
    bool (*may_block)(
        void);            /* some threads block for ever: is that no lost wake?  By plain loads */
    int values[6];        /* what the case's functions make of model_value() */
    int preemptions;      /* bound */
    int stale;            /* bound on loads of older stores; 0: 2, -1: none */
    int both;             /* bound on these two together; 0: none */
    int spurious;         /* bound on futex waits that return for no reason */
    int failures;         /* bound on allocations that fail */
    const char *outcomes; /* exactly these are seen, "a b|c d": for litmus tests */
    const char *fails;    /* a control: it must fail, with this in the message */
    bool full;            /* every switch, also those that make no difference: with fences */
    bool leaves_memory;   /* memory that is left is no fault */
} model_case;

extern const model_case model_cases[]; /* up to one without a name */

/* Parameter i of the case. */
int model_value(int i);

/* The number of the calling thread: 0 in setup and finish, 1 for the first. */
int model_self(void);

/* Whether a thread, the first is 1, has ended; for may_block. */
bool model_has_ended(int thread);

/* The calling thread goes on as that of a forked child: the others stop where they are, for ever.
 * What they have not made known to it may be torn: to read it is a race, to write it is not.  In
 * cases that explore every switch (.full): it depends on every step of the others. */
void model_fork(void);

/* Memory of this execution, zeroed; and a name for it, or for a part, in traces. */
void *model_alloc(size_t size);
void model_free(void *memory);
void model_name(const void *address, const char *name);

/* One of 0 to count - 1: all are explored. */
unsigned model_choose(unsigned count);

/* Waits without a bound on its time until something has been written that makes the condition
 * true: `while (!condition) model_yield();`. */
void model_yield(void);

/* What this execution came to: see model_case.outcomes. */
void model_outcome(const char *format, ...) __attribute__((format(printf, 1, 2)));

_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MODEL_CHECK(condition) \
    ((condition) ? (void)0 : model_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

/* A fence of its own; the library has none. */
void model_fence(int order);

/* Plain accesses that are to be checked although the code is compiled without -fsanitize=thread. */
void model_plain_read(const void *address, size_t size);
void model_plain_write(void *address, size_t size);

#endif
