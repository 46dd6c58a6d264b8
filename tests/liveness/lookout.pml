/* Tasks that block for ever: those behind them are run as long as there is another worker.
 *
 * Any W - 1 of the tasks may block.  Steps 3 and 4 wake a lookout then and not a searcher, so
 * what is checked is L1 to L3 and the urgent wakes after it (csrc/sched/idle.h), beside what
 * park.pml checks.  idle.inc says how the steps are made, and what is left out.
 */
#define RINGS 0
#define CLAIM 1
#define BLOCKS (W - 1)
#define SPAWN 0
#define CLOSE 0
#define LEAVE 0
#include "idle.inc"

ltl runs { <> (ran == ALL) }
ltl rests { <> RESTS } /* and nobody wakes another for ever */
