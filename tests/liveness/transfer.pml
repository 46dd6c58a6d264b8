/* Several tasks move at once: those left over are run though the one in hand blocks for ever.
 *
 * A worker claims several tasks or steals half a ring, and publishes the others on its own ring
 * from step 1 on (csrc/sched/idle.h, worker.c); with SPAWN a task pushes another to the ring and
 * then blocks (ring.h, step 3).  W - 1 tasks may block.  idle.inc says how the steps are made, and
 * what is left out.
 */
#define RINGS 1
#define CLAIM 2
#define BLOCKS (W - 1)
#define CLOSE 0
#define LEAVE 0
#include "idle.inc"

ltl runs { <> (ran == ALL) }
ltl rests { <> RESTS } /* and nobody wakes another for ever */
