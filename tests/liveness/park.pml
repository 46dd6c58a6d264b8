/* A push against workers that park: every task is run, whatever meets.
 *
 * Steps 1 to 5 of the pusher against a to d of workers and i, ii of searchers (csrc/sched/idle.h);
 * a slot may be reserved and not yet filled for any while, and is napped on.  idle.inc says how
 * the steps are made, and what is left out.
 */
#define RINGS 0
#define CLAIM 1
#define BLOCKS 0
#define SPAWN 0
#define CLOSE 0
#define LEAVE 0
#include "idle.inc"

ltl runs { <> (ran == ALL) }
ltl rests { <> RESTS } /* and nobody wakes another for ever */
