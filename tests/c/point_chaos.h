/* Gives AP_POINT a meaning: now and then the thread yields, or sleeps for some microseconds, so
 * that rare interleavings become common.  A test may have a function called at one point. */
#ifndef POINT_CHAOS_H
#define POINT_CHAOS_H

void check_point(const char *name);
void check_point_call(const char *name, void (*call)(void)); /* once, then forgotten */
#define AP_POINT(name) check_point(name)

#endif
