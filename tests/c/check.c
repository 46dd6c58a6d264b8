/* The harness's main: runs the tests whose "suite.name" contains one of the arguments, or all.
 * The first argument is the label that each line starts with.  CHECK_SECONDS in the environment
 * caps every test's time limit.  A program that injects delays or faults takes its seed from
 * AP_STRESS_SEED (chance.h). */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "chance.h"

#ifndef CHECK_SLOW
#define CHECK_SLOW 0
#endif
const bool check_slow = CHECK_SLOW;

static check_test *check_tests;
static ap_pool *check_pool;
static ap_atomic_u64 *check_ran;

void check_add(check_test *test) {
    check_test **at = &check_tests;
    while (*at != NULL &&
           (strcmp((*at)->suite, test->suite) < 0 || strcmp((*at)->suite, test->suite) == 0))
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

void check_watch(ap_pool *pool, ap_atomic_u64 *ran) {
    check_pool = pool;
    check_ran = ran;
}

static bool (*check_reporter)(void);

void check_report(bool (*report)(void)) {
    check_reporter = report;
}

static void check_print_counters(void) {
    if (check_ran != NULL)
        fprintf(stderr, "    ran %" PRIu64 "\n", ap_u64_load_relaxed(check_ran));
    if (check_pool == NULL)
        return;
    ap_pool_stats s;
    ap_pool_read_stats(check_pool, &s);
    fprintf(stderr,
            "    pending %" PRIu64 ", pushed %" PRIu64 " outside %" PRIu64 " inside, taken %" PRIu64
            ", stolen %" PRIu64 ", parks %" PRIu64 ", wakes %" PRIu64
            ", workers %u, idle %u, searching %u, closed %u\n",
            ap_pool_pending(check_pool), s.pushed_outside, s.pushed_inside, s.taken, s.stolen,
            s.parks, s.wakes, s.workers, s.idle, s.searching, s.closed);
}

_Noreturn void check_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "    %s:%d: %s\n", file, line, what);
    check_print_counters();
    abort();
}

_Noreturn void check_fail_eq(const char *file, int line, const char *what, uint64_t got,
                             uint64_t wanted) {
    fprintf(stderr, "    %" PRIu64 " is not %" PRIu64 "\n", got, wanted);
    check_fail(file, line, what);
}

void check_pause_ns(uint64_t ns) {
    uint64_t until = ap_clock_now() + ns;
    if (ns >= 20000) {
        struct timespec span = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        (void)nanosleep(&span, NULL);
    }
    while (ap_clock_now() < until) {
    }
}

int check_wait_u32(ap_atomic_u32 *word, uint32_t expected, uint64_t deadline_ns) {
    int rc;
    while (((rc = ap_wait_u32(word, expected, deadline_ns)) == AP_OK || rc == AP_E_INTR) &&
           ap_u32_load_acquire(word) == expected) {
    }
    return rc == AP_E_INTR ? AP_OK : rc; /* the word differs */
}

int check_wait_quiet(ap_pool *pool, uint64_t deadline_ns) {
    int rc;
    while ((rc = ap_pool_wait_quiet(pool, deadline_ns)) == AP_E_INTR) {
    }
    return rc;
}

uint64_t check_cpu_ns(void) {
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static void check_alarm(int number) {
    (void)number;
    fprintf(stderr, "    out of time\n");
    check_print_counters();
    abort();
}

static void check_interrupt(int number) {
    (void)number;
}

static void check_begin(const char *name, unsigned seconds) {
    struct sigaction interrupt;
    memset(&interrupt, 0, sizeof interrupt);
    interrupt.sa_handler = check_interrupt;
    (void)sigaction(SIGUSR2, &interrupt, NULL); /* without SA_RESTART */
    signal(SIGALRM, check_alarm);
    alarm(seconds);
    chance_begin(name);
}

static bool check_run(const char *label, check_test *test) {
    const char *cap = getenv("CHECK_SECONDS");
    if (cap != NULL && (unsigned)atoi(cap) < test->seconds)
        test->seconds = (unsigned)atoi(cap);
    fflush(NULL);
    uint64_t start = ap_clock_now();
    pid_t child = fork();
    if (child == 0) {
        check_begin(test->name, test->seconds);
        test->run();
        fflush(NULL);
        exit(0); /* not _exit: leak checks run at exit */
    }
    int status = 0;
    uint64_t limit = start + (uint64_t)(test->seconds + 5) * 1000000000;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (ap_clock_now() > limit)
            kill(child, SIGKILL);
        check_pause_ns(1000000);
    }
    bool passed = status == 0;
    printf("%-4s %-18s %6.2f s  %s.%s\n", passed ? "ok" : "FAIL", label,
           (double)(ap_clock_now() - start) / 1e9, test->suite, test->name);
    return passed;
}

int main(int argc, char **argv) {
    const char *label = argc > 1 ? argv[1] : "";
    int passed = 0;
    int failed = 0;
    (void)chance_seed();
    for (check_test *test = check_tests; test != NULL; test = test->next) {
        char name[200];
        bool wanted = argc <= 2;
        snprintf(name, sizeof name, "%s.%s", test->suite, test->name);
        for (int i = 2; i < argc; i++)
            wanted = wanted || strstr(name, argv[i]) != NULL;
        if (!wanted)
            continue;
        if (check_run(label, test))
            passed++;
        else
            failed++;
    }
    if (check_reporter != NULL && !check_reporter())
        failed++;
#ifdef CHECK_CHANCE
    if (failed != 0)
        printf("%s: AP_STRESS_SEED=%" PRIu64 " draws the same\n", label, chance_seed());
#endif
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
