/* AP_POINT for the harnesses: see fuzz.h. */
#ifndef FUZZ_POINT_H
#define FUZZ_POINT_H

extern void (*fuzz_at_point)(const char *name);
#define AP_POINT(name) ((void)(fuzz_at_point != 0 ? fuzz_at_point(name) : (void)0))

#endif
