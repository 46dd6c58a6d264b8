/* Decides: which thread goes on, what model_choose() answers; by depth-first search, at random, or
 * as a trace says.
 *
 * Overview.  An execution is given by the answers of its decisions.  In the search the next one has
 * the last answer that can be counted up counted up, and begins anew.  Going on with the same
 * thread costs nothing; another one, while that could go on, costs one of the case's preemptions.
 * Of the threads that might go on, those are tried that make a difference: por.c.
 *
 * At random each thread has a priority, and the highest that can goes on; at a few steps, drawn
 * beforehand, the running one becomes the last (Burckhardt et al., 2010).
 *
 * A trace names the decisions whose answer was not the first one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#define DECISIONS_MAX (1 << 16)

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

mode how;
uint32_t number;

static decision decisions[DECISIONS_MAX];
static int depth, known; /* decisions made in this execution; those that are given */
static int preemptions, spent[BUDGETS];

static struct answer {
    uint32_t number;
    int value;
} answers[4096];
static int answer_count;
static struct answer replayed[4096];
static int replayed_count, replayed_at;
static bool misfit; /* what has been replayed is no execution */

static uint64_t random_state;
static int priority[THREADS], lowest;
static uint64_t changes[8]; /* steps at which the running thread becomes the last */

void decide_from_the_start(mode wanted) {
    how = wanted;
    known = 0;
}

void decide_begin(void) {
    depth = 0;
    number = 0;
    preemptions = 0;
    answer_count = replayed_at = 0;
    misfit = false;
    memset(spent, 0, sizeof spent);
}

int decide_last(void) {
    return depth - 1;
}

/* ---- at random ------------------------------------------------------------------------------ */

static uint64_t random_next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

void decide_seed(uint64_t seed) {
    random_state = seed * 0x9e3779b97f4a7c15u | 1;
    random_next();
}

void decide_begin_threads(int count) {
    for (int i = 1; i <= count; i++)
        priority[i] = (int)(random_next() % 1000) + 1;
    lowest = 0;
    for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++)
        changes[i] = 1 + random_next() % 150;
}

void decide_step(uint64_t step) {
    if (how == RANDOM)
        for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++)
            if (changes[i] == step)
                priority[self] = --lowest;
}

void decide_yield(void) {
    if (how == RANDOM)
        priority[self] = --lowest;
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* Counts a decision; the answer that is given for it, if one is: by the trace, or at random. */
static bool decided(unsigned count, const int8_t *of, unsigned *index) {
    number++;
    *index = 0;
    if (how == REPLAY) {
        if (replayed_at < replayed_count && replayed[replayed_at].number == number) {
            int value = replayed[replayed_at++].value;
            while (*index < count && (of ? of[*index] : (int)*index) != value)
                ++*index;
            if (*index == count) {
                misfit = true;
                model_fail("its decision %u cannot be %d here", number, value);
            }
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

int bound_of_preemptions(void) {
    if (how == RANDOM)
        return MODEL_UNBOUNDED;
    return given.preemptions >= 0 ? given.preemptions : current->preemptions + given.deep;
}

int bound_of_both(void) {
    return how == SEARCH && current->both && given.preemptions < 0 && given.stale < 0
               ? current->both + given.deep
               : MODEL_UNBOUNDED;
}

int bound_of(budget which) {
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

unsigned decide_thread(unsigned count, const int8_t *of, unsigned free_of_cost) {
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
    preemptions += index >= free_of_cost;
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

bool decide_next_time(void) {
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

/* ---- traces --------------------------------------------------------------------------------- */

void print_trace(void) {
    printf("  %s --replay ", given.program);
    for (int i = 0; i < answer_count; i++)
        printf("%s%u=%d", i ? "," : "", answers[i].number, answers[i].value);
    printf("%s '%s'\n", answer_count ? "" : "-", current->name);
    if (answer_count == (int)(sizeof answers / sizeof *answers))
        printf("  (the trace is cut: raise `answers` in decide.c)\n");
}

static bool read_number(const char **text, char end, long most, long *number_out) {
    char *after;
    errno = 0;
    *number_out = strtol(*text, &after, 10);
    if (**text < '0' || **text > '9' || errno || *number_out > most || (*after && *after != end))
        return false;
    *text = after + (*after == end);
    return end != '=' || after[0] == '=';
}

bool read_trace(const char *text) {
    long at, value, before = 0;
    replayed_count = 0;
    if (strcmp(text, "-") == 0)
        return true;
    do {
        if (replayed_count == (int)(sizeof replayed / sizeof *replayed) ||
            !read_number(&text, '=', INT32_MAX, &at) ||
            !read_number(&text, ',', UINT16_MAX, &value) || at <= before)
            return false;
        replayed[replayed_count++] = (struct answer){(uint32_t)at, (int)value};
        before = at;
    } while (*text);
    return text[-1] != ',';
}

bool trace_fits(void) {
    if (!misfit && replayed_at < replayed_count) {
        snprintf(failure, sizeof failure, "it goes on after the end, with decision %u",
                 replayed[replayed_at].number);
        misfit = true;
    }
    return !misfit;
}

void replay_this(void) {
    memcpy(replayed, answers, sizeof answers);
    replayed_count = answer_count;
    how = REPLAY;
}
