/* Futex calls as a hostile kernel makes them: linked with -Wl,--wrap=syscall, and only where
 * CHECK_FUTEX_FAULTS is defined.
 *
 * By chance a wait fails with EINTR or with EAGAIN, returns for no reason, begins late, or returns
 * late; a wake comes late, or returns late.  All of it is what Linux may do; so a wake is never
 * dropped and a deadline never early.  How often each happened is printed at the end, and a kind
 * that never did is a failure.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifdef CHECK_FUTEX_FAULTS
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "chance.h"
#include "check.h"

#define NAP_NS 200000

enum { INTERRUPTED, CHANGED, FOR_NO_REASON, LATE_WAIT, LATE_RETURN, LATE_WAKE, KINDS };
static const char *const names[KINDS] = {"EINTR",     "EAGAIN",      "woken for no reason",
                                         "late wait", "late return", "late wake"};
static atomic_ullong *counts; /* shared with the tests' processes */

static bool futex_faults_report(void) {
    bool all = true;
    printf("injected into futex calls:");
    for (int i = 0; i < KINDS; i++) {
        unsigned long long n = atomic_load(&counts[i]);
        printf("%s %llu %s", i == 0 ? "" : ",", n, names[i]);
        all = all && n > 0;
    }
    printf("\n");
    if (!all)
        printf("a kind of fault was never injected\n");
    return all;
}

__attribute__((constructor)) static void futex_faults_begin(void) {
    counts = mmap(NULL, KINDS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (counts == MAP_FAILED)
        abort();
    check_report(futex_faults_report);
}

static bool happens(int kind, uint32_t of_1024) {
    if (!chance_is(of_1024))
        return false;
    atomic_fetch_add(&counts[kind], 1);
    return true;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    bool futex = number == SYS_futex;
    bool wait = futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    bool wake = futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
    if (wait) {
        if (happens(INTERRUPTED, 100)) {
            errno = EINTR;
            return -1;
        }
        if (happens(CHANGED, 50)) {
            errno = EAGAIN;
            return -1;
        }
        if (happens(FOR_NO_REASON, 50))
            return 0;
        if (happens(LATE_WAIT, 80))
            chance_nap(NAP_NS);
    }
    if (wake && happens(LATE_WAKE, 150))
        chance_nap(NAP_NS);
    long rc = __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (futex && chance_is(80)) {
        int error = errno;
        atomic_fetch_add(&counts[LATE_RETURN], 1);
        chance_nap(NAP_NS);
        errno = error;
    }
    return rc;
}
#endif
typedef int futex_faults_is_not_empty;
