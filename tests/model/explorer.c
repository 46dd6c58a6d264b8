/* The explorer's program: which cases are explored, how, and up to which bounds. */
#include "explorer.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
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
            show_failure();
            return false;
        }
    }
    if (current->fails) {
        printf("%s: FAILED: a control, but none of %llu random executions from seed %llu failed "
               "with \"%s\"; more of them may\n",
               current->name, (unsigned long long)executions, (unsigned long long)given.seed,
               current->fails);
        return false;
    }
    printf("%s: ok, %llu random executions from seed %llu, %llu steps\n", current->name,
           (unsigned long long)executions, (unsigned long long)given.seed,
           (unsigned long long)steps_in_all);
    return true;
}

static _Noreturn __attribute__((format(printf, 1, 2))) void refuse(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s: ", given.program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(2);
}

static bool replay(void) {
    decide_from_the_start(REPLAY);
    telling = true;
    execute();
    telling = false;
    if (!trace_fits())
        refuse("the trace is not of \"%s\" as this program was built: %s", current->name, failure);
    if (failed)
        show_failure();
    else
        printf("%s: ok\n", current->name);
    return !failed;
}

/* ---- the command line ----------------------------------------------------------------------- */

static const char *const help =
    "[OPTIONS] [CASE...]: explores the cases whose names begin so, all by default\n"
    "  --list             names the cases\n"
    "  --deep             one preemption more than the case says\n"
    "  --quick            ends at the first failure, and does not tell it step by step\n"
    "  --preemptions N    bound, instead of what the case says\n"
    "  --older N          bound on loads of older stores, likewise\n"
    "  --executions N     at most\n"
    "  --seconds S        at most, of each case\n"
    "  --random N         random executions instead of the search   --seed S\n"
    "  --replay TRACE     one execution of one case, step by step; as a failure prints it\n";

/* What follows the option argv[*i]. */
static const char *value_of(char **argv, int *i) {
    if (!argv[*i + 1])
        refuse("%s needs a value; --help says which", argv[*i]);
    return argv[++*i];
}

static uint64_t number_of(char **argv, int *i, uint64_t least, uint64_t most) {
    const char *option = argv[*i], *text = value_of(argv, i);
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < least || value > most)
        refuse("%s takes a whole number from %llu to %llu, not '%s'", option,
               (unsigned long long)least, (unsigned long long)most, text);
    return value;
}

static double seconds_of(char **argv, int *i) {
    const char *option = argv[*i], *text = value_of(argv, i);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0))
        refuse("%s takes a number above 0, not '%s'", option, text);
    return value;
}

/* The words that are no options, up to a NULL: beginnings of names. */
static const char *const *read_options(char **argv) {
    bool seeded = false;
    int words = 0;
    given.program = argv[0];
    given.seed = 1;
    given.preemptions = given.stale = -1;
    for (int i = 1; argv[i]; i++) {
        const char *option = argv[i];
        if (option[0] != '-') {
            argv[words++] = argv[i];
        } else if (strcmp(option, "--help") == 0) {
            printf("%s %s", given.program, help);
            exit(0);
        } else if (strcmp(option, "--list") == 0) {
            given.list = true;
        } else if (strcmp(option, "--deep") == 0) {
            given.deep = true;
        } else if (strcmp(option, "--quick") == 0) {
            given.quick = true;
        } else if (strcmp(option, "--preemptions") == 0) {
            given.preemptions = (int)number_of(argv, &i, 0, MODEL_UNBOUNDED);
        } else if (strcmp(option, "--older") == 0) {
            given.stale = (int)number_of(argv, &i, 0, MODEL_UNBOUNDED);
        } else if (strcmp(option, "--executions") == 0) {
            given.executions = number_of(argv, &i, 1, UINT64_MAX);
        } else if (strcmp(option, "--seconds") == 0) {
            given.seconds = seconds_of(argv, &i);
        } else if (strcmp(option, "--random") == 0) {
            given.runs = number_of(argv, &i, 1, UINT64_MAX);
        } else if (strcmp(option, "--seed") == 0) {
            given.seed = number_of(argv, &i, 0, UINT64_MAX);
            seeded = true;
        } else if (strcmp(option, "--replay") == 0) {
            given.trace = value_of(argv, &i);
            if (!read_trace(given.trace))
                refuse("a trace is NUMBER=VALUE,NUMBER=VALUE,... with growing numbers, or -, as a "
                       "failure prints it; not '%s'",
                       given.trace);
        } else {
            refuse("there is no option %s; --help has the options", option);
        }
    }
    if (given.trace && given.runs)
        refuse("either --random or --replay, not both");
    if (seeded && !given.runs)
        refuse("--seed is of --random N; the search has none");
    argv[words] = NULL;
    return (const char *const *)argv;
}

static bool begins_so(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_wanted(const char *name, const char *const *prefixes) {
    bool wanted = !*prefixes;
    for (; *prefixes; prefixes++)
        wanted |= given.trace ? strcmp(name, *prefixes) == 0 : begins_so(name, *prefixes);
    return wanted;
}

/* A name that is no case's is an error, not a case fewer. */
static void check_names(const char *const *prefixes) {
    if (given.trace && (!prefixes[0] || prefixes[1]))
        refuse("--replay needs the name of one case; --list has the names");
    for (; *prefixes; prefixes++) {
        const char *const one[] = {*prefixes, NULL};
        const model_case *at = model_cases;
        while (at->name && !is_wanted(at->name, one))
            at++;
        if (!at->name)
            refuse("no case's name %s '%s'; --list has the names",
                   given.trace ? "is" : "begins with", *prefixes);
    }
}

int main(int count, char **argv) {
    int ok = 0, bad = 0;
    (void)count;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction crash = {.sa_handler = crashed, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &crash, NULL);
    sigaction(SIGBUS, &crash, NULL);
    const char *const *prefixes = read_options(argv);
    check_names(prefixes);
    for (current = model_cases; current->name && !(bad && given.quick); current++) {
        if (!is_wanted(current->name, prefixes))
            continue;
        if (given.list) {
            printf("%s\n", current->name);
            continue;
        }
        bool fine = given.trace ? replay() : given.runs ? search_at_random() : search();
        ok += fine;
        bad += !fine;
    }
    if (given.list)
        return 0;
    printf("%d passed, %d failed\n", ok, bad);
    return bad != 0;
}
