/* Runs the threads of a case: an execution, step by step.
 *
 * Overview.  Threads are coroutines on stacks of their own.  Before each step that others may see
 * (point) it is decided who goes on: decide.c.  Thread 0 runs setup and finish.
 *
 * A thread that yields is passed over until another one has written something.  A sleeper with a
 * deadline may go on at any time, for a preemption, and does when nobody else can: time passes
 * then.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "inside.h"

#define STACK (128u << 10)
#define STEPS_MAX 20000 /* of an execution; more is a turning for ever */

typedef enum state { READY, YIELDED, ASLEEP, ENDED } state;

typedef struct coroutine {
    void (*run)(void);
    state state;
    bool begun, woken;
    uintptr_t address; /* asleep at */
    uint64_t deadline;
    uint64_t since; /* it sleeps */
    jmp_buf at;
    ucontext_t context;
    char *tls;
} coroutine;

int self;
bool together, unwatched, forked;
uint64_t model_now;
uint64_t executions, steps_in_all;

static coroutine threads[THREADS];
static int started; /* threads 1 to this one */
static char stacks[THREADS][STACK] __attribute__((aligned(64)));
static jmp_buf over;
static uint64_t steps, sleeps;

void abandon(void) {
    longjmp(over, 1);
}

/* ---- coroutines ----------------------------------------------------------------------------- */

/* Thread-locals of the code under test lie in a section of their own; each thread has a copy. */
extern char __start_model_tls[] __attribute__((weak)), __stop_model_tls[] __attribute__((weak));

static size_t tls_size(void) {
    return (size_t)(__stop_model_tls - __start_model_tls);
}

bool is_thread_local(uintptr_t address) {
    return address - (uintptr_t)__start_model_tls < tls_size();
}

static void step(void);

static void enter(void) {
    threads[self].run();
    threads[self].state = ENDED;
    TELL(NULL, "ends");
    step(); /* never comes back */
    abort();
}

static void switch_to(int thread) {
    if (thread == self)
        return;
    int from = self;
    if (tls_size()) {
        memcpy(threads[from].tls, __start_model_tls, tls_size());
        memcpy(__start_model_tls, threads[thread].tls, tls_size());
    }
    if (_setjmp(threads[from].at))
        return;
    self = thread;
    if (threads[thread].begun)
        _longjmp(threads[thread].at, 1);
    threads[thread].begun = true;
    setcontext(&threads[thread].context);
}

static void describe_block(char *text, size_t size) {
    size_t at = 0;
    for (int i = 1; i <= started && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%sthread %d %s%s", i > 1 ? ", " : "", i,
                               threads[i].state == ENDED ? "has ended" : "sleeps at ",
                               threads[i].state == ENDED ? "" : name_of(threads[i].address));
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Nobody can go on: back to thread 0. */
static void all_blocked(void) {
    bool ended = true;
    for (int i = 1; i <= started; i++)
        ended &= threads[i].state == ENDED;
    unwatched = true;
    bool may = ended || (current->may_block && current->may_block());
    unwatched = false;
    if (!may) {
        char text[400];
        describe_block(text, sizeof text);
        model_fail("lost wake, or deadlock: %s", text);
    }
    switch_to(0);
    abort();
}

/* Who may go on, the most natural first: the running thread, others, yielded ones, sleepers whose
 * time may come. */
static unsigned candidates(int8_t *list, unsigned *free_of_cost) {
    unsigned n = 0;
    bool own = threads[self].state == READY && self != 0;
    if (own)
        list[n++] = (int8_t)self;
    for (int i = 1; i <= started; i++)
        if (i != self && threads[i].state == READY)
            list[n++] = (int8_t)i;
    *free_of_cost = own ? 1 : n;
    if (n == 0) {
        for (int i = 1; i <= started; i++)
            if (threads[i].state == YIELDED)
                list[n++] = (int8_t)i;
        *free_of_cost = n;
    }
    for (int i = 1; i <= started; i++)
        if (threads[i].state == ASLEEP && threads[i].deadline != UINT64_MAX)
            list[n++] = (int8_t)i;
    if (*free_of_cost == 0)
        *free_of_cost = n;
    return n;
}

static void step(void) {
    int8_t list[THREADS];
    unsigned free_of_cost, n = candidates(list, &free_of_cost);
    if (n == 0) {
        all_blocked();
        return;
    }
    unsigned index = decide_thread(n, list, free_of_cost);
    int next = list[index];
    coroutine *thread = &threads[next];
    if (thread->state == ASLEEP) { /* its deadline */
        model_now = model_now > thread->deadline ? model_now : thread->deadline;
        thread->woken = false;
    }
    thread->state = READY;
    switch_to(next);
}

static void count_step(void) {
    if (++steps > STEPS_MAX)
        model_fail("more than %d steps: threads turn for ever", STEPS_MAX);
}

void point(uintptr_t address, bool writes) {
    if (!together)
        return;
    count_step();
    decide_step(steps);
    step();
    if (how == SEARCH)
        por_step(address, writes, decide_last());
    if (writes)
        for (int i = 1; i <= started; i++)
            if (i != self && threads[i].state == YIELDED)
                threads[i].state = READY;
}

void point_also(uintptr_t address, bool writes) {
    if (together && how == SEARCH)
        por_step(address, writes, decide_last());
}

void model_yield(void) {
    if (!together)
        return;
    count_step();
    threads[self].state = YIELDED;
    decide_yield();
    step();
    if (how == SEARCH)
        por_yield(decide_last());
    order_catch_up();
}

bool sleep_at(uintptr_t address, uint64_t deadline) {
    coroutine *own = &threads[self];
    if (!together)
        model_fail("setup and finish must not sleep");
    own->state = ASLEEP;
    own->address = address;
    own->deadline = deadline;
    own->since = ++sleeps;
    own->woken = true;
    step();
    return own->woken;
}

unsigned wake_at(uintptr_t address, uint32_t wanted) {
    unsigned woken = 0;
    while (woken < wanted) {
        int first = 0;
        for (int i = 1; i <= started; i++)
            if (threads[i].state == ASLEEP && threads[i].address == address &&
                (!first || threads[i].since < threads[first].since))
                first = i;
        if (!first)
            break;
        if (how == SEARCH && threads[first].deadline != UINT64_MAX)
            try_earlier(decide_last(), first); /* its time may be over before it is woken */
        threads[first].state = READY;
        por_wake(first);
        woken++;
    }
    return woken;
}

int model_self(void) {
    return self;
}

void model_fork(void) {
    MODEL_CHECK(current->full);
    point(0, true);
    for (int i = 1; i <= started; i++)
        if (i != self)
            threads[i].state = ENDED;
    forked = true;
    TELL(__builtin_return_address(0), "forks, and goes on as the child");
}

bool model_has_ended(int thread) {
    return threads[thread].state == ENDED;
}

/* ---- executions ----------------------------------------------------------------------------- */

static void prepare(void) {
    self = 0;
    together = forked = false;
    model_now = 1000000;
    steps = sleeps = 0;
    decide_begin();
    report_begin();
    order_reset();
    memory_reset();
    por_reset();
    started = 0;
    memset(threads, 0, sizeof threads);
    if (tls_size())
        memset(__start_model_tls, 0, tls_size());
    for (int i = 0; i < THREADS; i++)
        threads[i].tls = arena_take(tls_size() + 1);
    threads[0].begun = true;
}

static void start_threads(void) {
    while (started < MODEL_THREADS_MAX && current->threads[started]) {
        coroutine *thread = &threads[++started];
        thread->run = current->threads[started - 1];
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = stacks[started];
        thread->context.uc_stack.ss_size = STACK;
        makecontext(&thread->context, enter, 0);
        if (tls_size())
            memset(thread->tls, 0, tls_size());
        order_fork(started);
    }
    decide_begin_threads(started);
}

void execute(void) {
    prepare();
    if (setjmp(over) == 0) {
        if (current->setup)
            current->setup();
        start_threads();
        threads[0].state = ENDED; /* until nobody else can go on */
        together = true;
        step();
        together = false;
        order_join();
        if (current->finish)
            current->finish();
        if (!current->leaves_memory && memory_live() > 0)
            model_fail("memory is left: %u blocks", memory_live());
    }
    together = unwatched = false;
    executions++;
    steps_in_all += steps;
}
