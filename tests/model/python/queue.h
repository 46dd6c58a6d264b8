/* A queue in place of csrc/sched, where that is not what a model looks at: each call is one step,
 * in an order that all threads agree on.  It does what affinitypool.h says: who parks is woken by
 * each push, and by the close. */
#ifndef MODEL_PYTHON_QUEUE_H
#define MODEL_PYTHON_QUEUE_H

#include "affinitypool.h"
#include "explorer.h"

ap_pool *queue_new(void);

#endif
