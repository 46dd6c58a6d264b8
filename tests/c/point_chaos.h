/* Gives AP_POINT a meaning: now and then the thread yields, or sleeps for some microseconds, so
 * that rare interleavings become common. */
#ifndef POINT_CHAOS_H
#define POINT_CHAOS_H

void check_point(void);
#define AP_POINT(name) check_point()

#endif
