/* What the models of a pool have in common: a pool, tasks that count their runs, workers. */
#ifndef MODEL_CREW_H
#define MODEL_CREW_H

#include "affinitypool.h"
#include "explorer.h"
#include "points.h"

#define CREW_TASKS_MAX 12

typedef struct crew_task {
    ap_task task;
    uint64_t written; /* plainly, before the push: its runner has to see it */
    uint64_t runs;    /* plainly: two runs that are not ordered are a race */
} crew_task;

extern ap_pool *crew_pool;
extern crew_task *crew_tasks;

/* Makes a pool, for tasks 0 to count - 1.  Its workers do not spin, unless model_spins is set, and
 * yield before they nap, unless model_impatient is. */
void crew_make(const ap_pool_options *options, int count);

/* Task i, ready to be pushed. */
ap_task *crew_task_of(int i);

/* Runs it, exactly once. */
void crew_run(ap_task *task);

/* Runs it, and says so; first waits until `others` more have said so. */
void crew_run_after(ap_task *task, uint32_t others);

/* Blocks until so many have said so. */
void crew_wait(uint32_t count);

/* A worker's whole life; with tasks that have a `run` of their own. */
void crew_work(void);
void crew_work_on(ap_worker *worker); /* from its beginning on */

/* Whether all its tasks have run, for model_case.may_block; that they have, for .finish. */
bool crew_has_run(void);
void crew_check(void);
void crew_check_run(int count); /* of tasks that were made without a pool */

/* Frees the tasks; the pool is freed by ap_pool_release, if all workers have ended. */
void crew_free_tasks(void);

#endif
