/* Gives AP_POINT a meaning: now and then the thread yields, or sleeps for some microseconds, so
 * that rare interleavings become common (seeded: chance.h).  A test may have a function called at
 * one point. */
#ifndef POINT_CHAOS_H
#define POINT_CHAOS_H

void check_point(const char *name);
void check_point_call(const char *name, void (*call)(void)); /* once, then forgotten */

/* The next time that the calling thread comes to the point, it stays there until it is let go.
 * One thread at a time. */
void check_point_hold_me(const char *name);
void check_point_await_held(void);
void check_point_let_go(void);
#define AP_POINT(name) check_point(name)

#endif
