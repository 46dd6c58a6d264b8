/* Gives AP_POINT a meaning for tests from Python: a test holds the thread that comes to a named
 * point, counts the passes, and lets go; or has every thread yield and sleep at random.
 *
 * Built into the extension by AFFINITYPOOL_POINTS=1 (build_ffi.py).  Tests use hold.py.
 *
 * A thread that is held while it holds the GIL would stop whoever is to let it go, so it is let
 * through with a complaint, unless it waits only for passes of another point (`until`). */
#ifndef POINTS_H
#define POINTS_H

#include <stdbool.h>
#include <stdint.h>

/* cdef: begin */
/* Holds the next `threads` threads that come to the point, after `skip` of them: until they are let
 * go, or `until` (or NULL) was passed `passes` times since.  `thread`: the native identifier of
 * the only one meant, or 0. */
void ap_point_hold(const char *name, uint32_t threads, uint32_t skip, uint64_t thread,
                   const char *until, uint64_t passes);
/* Lets go of who is held, and holds nobody any more. */
void ap_point_let_go(const char *name);
/* Counts the passes of a point from now on. */
void ap_point_count(const char *name);
uint64_t ap_point_passes(const char *name);
/* Waits until so many threads are held, or so many passes were counted; false: out of time. */
bool ap_point_await_held(const char *name, uint32_t threads, double seconds);
bool ap_point_await_passes(const char *name, uint64_t passes, double seconds);
/* Of 1024 passes of any point so many yield, so many sleep for up to 50 us. */
void ap_point_chaos(uint32_t seed, uint32_t yields, uint32_t sleeps);
/* Whether idle workers spin before they park. */
void ap_point_spin(bool spin);
/* What went wrong so far, or an empty string. */
const char *ap_point_trouble(void);
/* Writes every point that is counted, with what it holds, to stderr. */
void ap_point_print(void);
/* cdef: end */

void ap_point_reach(const char *name);
bool ap_point_spins(void);
#define AP_POINT(name) ap_point_reach(name)
#define AP_WORKERS_SPIN ap_point_spins()

#endif
