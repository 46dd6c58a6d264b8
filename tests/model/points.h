/* What csrc/sync/cpu.h takes from its AP_POINT_HEADER in a build for the explorer. */
#ifndef MODEL_POINTS_H
#define MODEL_POINTS_H

#include <stdbool.h>

void model_yield(void);

/* The explorer gives each of its threads a copy of this section. */
#define AP_THREAD_LOCAL __attribute__((section("model_tls")))
#define AP_CPU_PAUSE() model_yield()

int model_self(void);
extern int model_spins; /* the thread whose worker spins; 0: none, -1: all */
#define AP_WORKERS_SPIN (model_spins < 0 || model_spins == model_self())

/* How often it yields or pauses before it does something else.  The explorer lets a thread that
 * yields go on after a write of another one only: that it does something else while the others
 * stand still is seen if it does not wait at all. */
extern bool model_impatient;
#define AP__NAP_YIELDS (model_impatient ? 0u : 4u)
#define AP__POP_TRIES (model_impatient ? 0 : 64)

#endif
