/* What the models of the bridge share: a core, tasks, threads that run and ask. */
#ifndef MODEL_PYTHON_CREW_H
#define MODEL_PYTHON_CREW_H

#include "python/bridge.h"

extern ap_core *crew_core;
extern ap_pytask *crew_task;
extern PyObject *crew_result; /* what the call has returned */
extern int crew_runs;         /* of the call */
extern bool crew_fails;       /* the call raises; set before crew_begin */

/* In setup: a core, and a task with one reference for its queue and `references` more.  Attached
 * from then on until crew_ready. */
void crew_begin(uint32_t max_pending, int references);
void crew_begin_core(void); /* no task */
void crew_ready(void);
/* In finish: nothing is left, once it has dropped the references that nobody has. */
void crew_end(int references);

/* Threads, and what they do while they are attached. */
void crew_attach(void);
void crew_detach(void);

/* As worker.c with a task from the queue: it goes on with another one, or has none. */
void crew_work_on(ap_pytask *task);
void crew_work_dry(ap_pytask *task);

typedef enum { GOT_RESULT, GOT_ERROR, GOT_CANCELLED, GOT_TIMEOUT, GOT_SIGNAL, GOT_OTHER } crew_got;

/* task.result(timeout), checked against what the call has returned; timeout: seconds, or less
 * than 0 for none. */
crew_got crew_ask(ap_pytask *task, double timeout);
/* op.name(argument): true or false, as it returns. */
bool crew_is(void *op, const char *name);

#endif
