/* Decides: which thread goes on, what model_choose() answers; by depth-first search, at random, or
 * as a trace says.
 *
 * Overview.  Threads are coroutines on stacks of their own.  Before each step that others may see
 * (point) the search decides who goes on.  Going on with the same thread costs nothing; another
 * one, while that could go on, costs one of the case's preemptions.  An execution is given by the
 * answers of its decisions; the next one has the last answer that can be counted up counted up, and
 * begins anew.
 *
 * A thread that yields is passed over until another one has written something.  A sleeper with a
 * deadline may go on at any time, for a preemption, and does when nobody else can: time passes
 * then.
 *
 * Of the threads that might go on, those are tried that make a difference: por.c.
 */
#include "explorer.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "inside.h"

#define STACK (128u << 10)
#define STEPS_MAX 20000 /* of an execution; more is a turning for ever */
#define DECISIONS_MAX (1 << 16)

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

typedef struct decision {
    uint16_t chosen, count;
    /* about threads: */
    bool of_threads;
    int8_t from;           /* the thread that ran before */
    uint8_t free_of_cost;  /* so many answers cost no preemption */
    uint8_t wanted, tried; /* answers, as bits */
    int8_t threads[THREADS];
    int preemptions, stale; /* before it */
} decision;

typedef enum mode { SEARCH, RANDOM, REPLAY } mode;

typedef struct options {
    uint64_t executions; /* at most; 0: no limit */
    double seconds;
    uint64_t seed, runs; /* of random executions */
    const char *trace;
    int preemptions, stale; /* -1: as the case says */
    bool deep, quick;
    bool list;
} options;

int self;
bool together, unwatched, telling;
uint64_t model_now;

static const model_case *current;
static options given;
static mode how;
static coroutine threads[THREADS];
static int started; /* threads 1 to this one */
static char stacks[THREADS][STACK] __attribute__((aligned(64)));
static jmp_buf over;
static bool failed;
static char failure[4096];

static decision decisions[DECISIONS_MAX];
static int depth, known; /* decisions made in this execution; those that are given */
static uint32_t number;  /* of the decision, those with one answer included */
static uint64_t steps, sleeps;
static int preemptions, spent[BUDGETS];
static uint64_t executions, steps_in_all;

/* The answers that were not the first ones, for the trace. */
static struct answer {
    uint32_t number;
    int value;
} answers[4096];
static int answer_count;
static struct answer replayed[4096];
static int replayed_count, replayed_at;

static uint64_t random_state;
static int priority[THREADS], lowest;
static uint64_t changes[8]; /* steps at which the running thread becomes the last */

/* ---- names -------------------------------------------------------------------------------- */

static struct name {
    uintptr_t address;
    char text[48];
} names[128];
static int name_count;

void model_name(const void *address, const char *text) {
    if (name_count == (int)(sizeof names / sizeof *names))
        return;
    names[name_count].address = (uintptr_t)address;
    snprintf(names[name_count++].text, sizeof names->text, "%s", text);
}

const char *name_of(uintptr_t address) {
    static char texts[4][80];
    static int turn;
    char *text = texts[turn++ % 4];
    const struct name *best = NULL;
    for (int i = 0; i < name_count; i++)
        if (names[i].address <= address && (!best || names[i].address >= best->address))
            best = &names[i];
    if (!best || address - best->address >= 4096)
        snprintf(text, sizeof *texts, "%#llx", (unsigned long long)address);
    else if (best->address == address)
        snprintf(text, sizeof *texts, "%s", best->text);
    else
        snprintf(text, sizeof *texts, "%s+%llu", best->text,
                 (unsigned long long)(address - best->address));
    return text;
}

/* ---- telling ------------------------------------------------------------------------------ */

static void print_caller(const void *caller) {
    static char own[512];
    if (!own[0]) {
        FILE *link = popen("readlink /proc/$PPID/exe", "r");
        if (!link || !fgets(own, sizeof own, link))
            strcpy(own, "?");
        own[strcspn(own, "\n")] = 0;
        if (link)
            pclose(link);
    }
    char command[700], line[512];
    snprintf(command, sizeof command, "addr2line -i -s -e '%s' %#lx 2>/dev/null" /* binutils */,
             own, (unsigned long)((uintptr_t)caller - 1));
    FILE *pipe = popen(command, "r");
    bool first = true;
    while (pipe && fgets(line, sizeof line, pipe)) {
        line[strcspn(line, " \n")] = 0;
        if (strncmp(line, "atomic", 6) == 0) /* the inline functions around the access */
            continue;
        printf("%s%s", first ? "    " : " < ", line);
        first = false;
    }
    if (pipe)
        pclose(pipe);
}

void tell(const void *caller, const char *format, ...) {
    va_list arguments;
    printf("%6u  thread %d  ", number, self);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    if (caller)
        print_caller(caller);
    printf("\n");
}

void model_fail(const char *format, ...) {
    if (!failed) {
        va_list arguments;
        failed = true;
        va_start(arguments, format);
        vsnprintf(failure, sizeof failure, format, arguments);
        va_end(arguments);
    }
    longjmp(over, 1);
}

/* ---- decisions ---------------------------------------------------------------------------- */

static uint64_t random_next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Counts a decision; the answer that is given for it, if one is: by the trace, or at random. */
static bool decided(unsigned count, const int8_t *of, unsigned *index) {
    number++;
    *index = 0;
    if (how == REPLAY) {
        if (replayed_at < replayed_count && replayed[replayed_at].number == number) {
            int value = replayed[replayed_at++].value;
            while (*index < count && (of ? of[*index] : (int)*index) != value)
                ++*index;
            if (*index == count)
                model_fail("the trace does not fit: it is of another case or another program");
        }
    } else if (how == RANDOM) {
        if (of) /* the thread of the highest priority */
            for (unsigned i = 1; i < count; i++)
                *index = priority[of[i]] > priority[of[*index]] ? i : *index;
        else
            *index = random_next() % 4 ? 0 : (unsigned)(random_next() % count);
    }
    return how != SEARCH;
}

/* The decision that comes now, as it was, or a new one. */
static decision *next_decision(unsigned count) {
    decision *now = &decisions[depth++];
    if (depth > known) {
        if (depth == DECISIONS_MAX)
            model_fail("too many decisions: raise DECISIONS_MAX");
        memset(now, 0, sizeof *now);
        now->count = (uint16_t)count;
        known = depth;
    } else if (now->count != count) {
        model_fail("not deterministic: a decision had %d answers, now it has %u", now->count,
                   count);
    }
    return now;
}

static void keep_answer(unsigned index, int value) {
    if (index && answer_count < (int)(sizeof answers / sizeof *answers))
        answers[answer_count++] = (struct answer){number, value};
}

static unsigned decide(unsigned count) {
    unsigned index;
    if (!decided(count, NULL, &index) && count > 1)
        index = next_decision(count)->chosen;
    keep_answer(index, (int)index);
    return index;
}

static int bound_of_preemptions(void) {
    if (how == RANDOM)
        return MODEL_UNBOUNDED;
    return given.preemptions >= 0 ? given.preemptions : current->preemptions + given.deep;
}

static int bound_of_both(void) {
    return how == SEARCH && current->both && given.preemptions < 0 && given.stale < 0
               ? current->both + given.deep
               : MODEL_UNBOUNDED;
}

static int bound_of(budget which) {
    switch (which) {
    case BUDGET_STALE:
        return given.stale >= 0     ? given.stale
               : current->stale < 0 ? 0
               : current->stale     ? current->stale
                                    : 2;
    case BUDGET_SPURIOUS:
        return current->spurious;
    default:
        return current->failures;
    }
}

static bool affordable(const decision *at, unsigned index) {
    return index < at->free_of_cost || (at->preemptions < bound_of_preemptions() &&
                                        at->preemptions + at->stale < bound_of_both());
}

/* Which of the threads goes on. */
static unsigned decide_thread(unsigned count, const int8_t *of, unsigned free_of_cost) {
    unsigned index;
    if (!decided(count, of, &index)) {
        bool new = depth == known;
        decision *now = next_decision(count);
        if (new) {
            now->of_threads = true;
            now->from = (int8_t)self;
            now->free_of_cost = (uint8_t)free_of_cost;
            now->preemptions = preemptions;
            now->stale = spent[BUDGET_STALE];
            now->wanted = current->full ? 0xff : 1;
            memcpy(now->threads, of, count);
        }
        index = now->chosen;
    }
    keep_answer(index, of[index]);
    return index;
}

/* Adds a thread to what is tried at a decision; all, if it could not go on there. */
static void want(decision *at, int thread) {
    for (unsigned i = 0; i < at->count; i++)
        if (at->threads[i] == thread) {
            at->wanted |= (uint8_t)(1u << i);
            return;
        }
    at->wanted = 0xff;
}

void try_earlier(int index, int thread) {
    decision *at = &decisions[index];
    want(at, thread);
    int runner = at->threads[at->chosen];
    while (at->from == runner && index > 0) { /* to the beginning of its run */
        while (index > 0 && !decisions[--index].of_threads) {
        }
        if (!decisions[index].of_threads)
            return;
        at = &decisions[index];
    }
    want(at, thread);
}

unsigned model_choose(unsigned count) {
    return decide(count);
}

unsigned pick_within(budget which, unsigned count) {
    bool may = spent[which] < bound_of(which) &&
               (which != BUDGET_STALE || preemptions + spent[which] < bound_of_both());
    unsigned index = decide(may || how == REPLAY ? count : 1);
    spent[which] += index != 0;
    return index;
}

/* ---- threads ------------------------------------------------------------------------------ */

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
    preemptions += index >= free_of_cost;
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
    if (how == RANDOM)
        for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++)
            if (changes[i] == steps)
                priority[self] = --lowest;
    step();
    if (how == SEARCH)
        por_step(address, writes, depth - 1);
    if (writes)
        for (int i = 1; i <= started; i++)
            if (i != self && threads[i].state == YIELDED)
                threads[i].state = READY;
}

void point_also(uintptr_t address, bool writes) {
    if (together && how == SEARCH)
        por_step(address, writes, depth - 1);
}

void model_yield(void) {
    if (!together)
        return;
    count_step();
    threads[self].state = YIELDED;
    if (how == RANDOM)
        priority[self] = --lowest;
    step();
    if (how == SEARCH)
        por_yield(depth - 1);
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
        threads[first].state = READY;
        por_wake(first);
        woken++;
    }
    return woken;
}

int model_self(void) {
    return self;
}

bool model_has_ended(int thread) {
    return threads[thread].state == ENDED;
}

int model_value(int i) {
    return current->values[i];
}

/* ---- outcomes ----------------------------------------------------------------------------- */

static struct outcome {
    char text[64];
    uint64_t seen;
} outcomes[64];
static int outcome_count;

void model_outcome(const char *format, ...) {
    char text[sizeof outcomes->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int i = 0;
    while (i < outcome_count && strcmp(outcomes[i].text, text) != 0)
        i++;
    if (i == outcome_count) {
        if (i == (int)(sizeof outcomes / sizeof *outcomes))
            model_fail("too many outcomes");
        strcpy(outcomes[outcome_count++].text, text);
    }
    outcomes[i].seen++;
}

static bool among(const char *text, const char *list) {
    size_t length = strlen(text);
    for (const char *at = list; (at = strstr(at, text)); at++)
        if ((at == list || at[-1] == '|') && (at[length] == 0 || at[length] == '|'))
            return true;
    return false;
}

static void check_outcomes(void) {
    char wanted[512], *rest = NULL;
    snprintf(wanted, sizeof wanted, "%s", current->outcomes);
    for (int i = 0; i < outcome_count; i++)
        if (!among(outcomes[i].text, current->outcomes)) {
            snprintf(failure, sizeof failure, "an outcome that must not be: %s", outcomes[i].text);
            failed = true;
        }
    for (char *word = strtok_r(wanted, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        int i = 0;
        while (i < outcome_count && strcmp(outcomes[i].text, word) != 0)
            i++;
        if (i == outcome_count) {
            snprintf(failure, sizeof failure, "an outcome that was never seen: %s", word);
            failed = true;
        }
    }
}

/* ---- executions --------------------------------------------------------------------------- */

/* The code under test has followed a wild pointer. */
static void crashed(int signal) {
    model_fail("crash: signal %d", signal);
}

static void prepare(void) {
    self = 0;
    together = false;
    model_now = 1000000;
    depth = 0;
    number = 0;
    steps = sleeps = 0;
    preemptions = 0;
    answer_count = replayed_at = name_count = 0;
    memset(spent, 0, sizeof spent);
    failed = false;
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
        priority[started] = (int)(random_next() % 1000) + 1;
    }
    lowest = 0;
    for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++)
        changes[i] = 1 + random_next() % 150;
}

static void execute(void) {
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

/* Gives the last decision that has another answer to be tried that answer; false if there is none.
 */
static bool advance(void) {
    for (known = depth; known > 0; known--) {
        decision *last = &decisions[known - 1];
        if (!last->of_threads) {
            if (last->chosen + 1 < last->count) {
                last->chosen++;
                return true;
            }
            continue;
        }
        last->tried |= (uint8_t)(1u << last->chosen);
        for (unsigned i = 0; i < last->count; i++)
            if ((last->wanted & ~last->tried & (1u << i)) != 0 && affordable(last, i)) {
                last->chosen = (uint16_t)i;
                return true;
            }
    }
    return false;
}

static double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void print_trace(void) {
    printf("  trace:");
    for (int i = 0; i < answer_count; i++)
        printf("%c%u=%d", i ? ',' : ' ', answers[i].number, answers[i].value);
    printf("%s\n", answer_count ? "" : " -");
}

static void read_trace(const char *text) {
    replayed_count = 0;
    while (*text && *text != '-') {
        char *end;
        replayed[replayed_count].number = (uint32_t)strtoul(text, &end, 10);
        if (*end != '=' || replayed_count == (int)(sizeof replayed / sizeof *replayed) - 1) {
            fprintf(stderr, "a trace is NUMBER=VALUE,NUMBER=VALUE,...\n");
            exit(2);
        }
        replayed[replayed_count++].value = (int)strtol(end + 1, &end, 10);
        text = *end ? end + 1 : end;
    }
}

/* Tells the failed execution again. */
static void show_failure(void) {
    char text[sizeof failure];
    memcpy(text, failure, sizeof text);
    printf("%s: FAILED after %llu executions: %s\n", current->name, (unsigned long long)executions,
           text);
    print_trace();
    if (how != REPLAY && !given.quick) {
        memcpy(replayed, answers, sizeof answers);
        replayed_count = answer_count;
        how = REPLAY;
        telling = true;
        execute();
        telling = false;
        if (!failed || strcmp(failure, text) != 0)
            printf("  replayed it came to: %s\n", failed ? failure : "no failure");
    }
}

/* Of a control: the execution has failed with what it must fail with. */
static bool has_failed_as_it_must(void) {
    if (!failed || !current->fails || !strstr(failure, current->fails))
        return false;
    printf("%s: ok, fails as it must after %llu executions: %s\n", current->name,
           (unsigned long long)executions, failure);
    return true;
}

static bool search(void) {
    bool complete = true;
    double end = seconds_now() + given.seconds;
    how = SEARCH;
    executions = steps_in_all = 0;
    outcome_count = known = 0;
    do {
        execute();
        if (has_failed_as_it_must())
            return true;
        if (failed) {
            show_failure();
            return false;
        }
        if ((given.executions && executions >= given.executions) ||
            (given.seconds > 0 && executions % 256 == 0 && seconds_now() > end))
            complete = false;
    } while (complete && advance());
    if (current->outcomes && complete)
        check_outcomes();
    if (current->fails && !failed) {
        snprintf(failure, sizeof failure, "did not fail with \"%s\"", current->fails);
        failed = true;
    }
    if (failed) {
        printf("%s: FAILED: %s\n", current->name, failure);
        return false;
    }
    printf("%s: ok, %llu executions, %llu steps, %s", current->name, (unsigned long long)executions,
           (unsigned long long)steps_in_all, complete ? "all" : "NOT ALL");
    if (bound_of_preemptions() < MODEL_UNBOUNDED)
        printf(" up to %d preemptions, %d older loads", bound_of_preemptions(),
               bound_of(BUDGET_STALE));
    if (bound_of_both() < MODEL_UNBOUNDED)
        printf(", %d of both", bound_of_both());
    if (current->spurious)
        printf(", %d returns for no reason", current->spurious);
    if (current->failures)
        printf(", %d failed allocations", current->failures);
    printf("\n");
    return true;
}

static bool search_at_random(void) {
    how = RANDOM;
    executions = steps_in_all = 0;
    outcome_count = 0;
    for (uint64_t i = 0; i < given.runs; i++) {
        random_state = (given.seed + i) * 0x9e3779b97f4a7c15u | 1;
        random_next();
        execute();
        if (has_failed_as_it_must())
            return true;
        if (failed) {
            printf("%s: seed %llu\n", current->name, (unsigned long long)(given.seed + i));
            show_failure();
            return false;
        }
    }
    printf("%s: ok, %llu random executions from seed %llu, %llu steps\n", current->name,
           (unsigned long long)executions, (unsigned long long)given.seed,
           (unsigned long long)steps_in_all);
    return true;
}

static bool replay(void) {
    how = REPLAY;
    telling = true;
    read_trace(given.trace);
    execute();
    telling = false;
    if (failed)
        show_failure();
    else
        printf("%s: ok\n", current->name);
    return !failed;
}

static _Noreturn void usage(const char *program) {
    fprintf(stderr,
            "%s [options] [CASE...]: explores the cases whose names begin so, all by default\n"
            "  --list             names the cases\n"
            "  --deep             one preemption more than the case says\n"
            "  --quick            ends at the first failure, and does not tell it step by step\n"
            "  --preemptions N    bound, instead of what the case says\n"
            "  --older N          bound on loads of older stores, likewise\n"
            "  --executions N     at most\n"
            "  --seconds S        at most, of each case\n"
            "  --random N         random executions instead of the search   --seed S\n"
            "  --replay TRACE     one execution, step by step\n",
            program);
    exit(2);
}

static const char *argument(int argc, char **argv, int *i) {
    if (*i + 1 == argc)
        usage(argv[0]);
    return argv[++*i];
}

int main(int argc, char **argv) {
    const char *prefixes[64];
    int prefix_count = 0, ok = 0, bad = 0;
    given.seed = 1;
    given.preemptions = given.stale = -1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction crash = {.sa_handler = crashed, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &crash, NULL);
    sigaction(SIGBUS, &crash, NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            given.list = true;
        else if (strcmp(argv[i], "--deep") == 0)
            given.deep = true;
        else if (strcmp(argv[i], "--quick") == 0)
            given.quick = true;
        else if (strcmp(argv[i], "--preemptions") == 0)
            given.preemptions = atoi(argument(argc, argv, &i));
        else if (strcmp(argv[i], "--older") == 0)
            given.stale = atoi(argument(argc, argv, &i));
        else if (strcmp(argv[i], "--executions") == 0)
            given.executions = strtoull(argument(argc, argv, &i), NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            given.seconds = strtod(argument(argc, argv, &i), NULL);
        else if (strcmp(argv[i], "--random") == 0)
            given.runs = strtoull(argument(argc, argv, &i), NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            given.seed = strtoull(argument(argc, argv, &i), NULL, 10);
        else if (strcmp(argv[i], "--replay") == 0)
            given.trace = argument(argc, argv, &i);
        else if (argv[i][0] == '-' || prefix_count == 64)
            usage(argv[0]);
        else
            prefixes[prefix_count++] = argv[i];
    }
    for (current = model_cases; current->name; current++) {
        bool wanted = prefix_count == 0;
        for (int i = 0; i < prefix_count; i++)
            wanted |= strncmp(current->name, prefixes[i], strlen(prefixes[i])) == 0;
        if (!wanted)
            continue;
        if (given.list) {
            printf("%s\n", current->name);
            continue;
        }
        bool fine = given.trace ? replay() : given.runs ? search_at_random() : search();
        ok += fine;
        bad += !fine;
        if (bad && given.quick)
            break;
    }
    if (given.list)
        return 0;
    if (ok + bad == 0) {
        fprintf(stderr, "no case has such a name\n");
        return 2;
    }
    printf("%d passed, %d failed\n", ok, bad);
    return bad != 0;
}
