/* A pool that is closed ends: every worker leaves, and everything accepted was run.
 *
 * E1 to E3 (csrc/sched/idle.h) against pushes, parking, searching and, with LEAVE, a worker that
 * ends by itself at any time.  The closer closes each shard, then the idle word, then tries to
 * end the pool, all at any time.  idle.inc says how the steps are made, and what is left out.
 */
#define BLOCKS 0
#define CLOSE 1
#include "idle.inc"

#define DONE (gone == W && pushed == PUSHERS && ran == ACCEPTED)

ltl ends { <> DONE }
