/* The explorer's program: which cases are explored, how, and up to which bounds. */
#include "explorer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

const model_case *current;
options given;

int model_value(int i) {
    return current->values[i];
}

/* The code under test has followed a wild pointer. */
static void crashed(int signal) {
    model_fail("crash: signal %d", signal);
}

static double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
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
    decide_from_the_start(SEARCH);
    executions = steps_in_all = 0;
    forget_outcomes();
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
    } while (complete && decide_next_time());
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
    decide_from_the_start(RANDOM);
    executions = steps_in_all = 0;
    forget_outcomes();
    for (uint64_t i = 0; i < given.runs; i++) {
        decide_seed(given.seed + i);
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
    decide_from_the_start(REPLAY);
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
