/* What csrc/sync/wait_condvar.c uses of POSIX threads, for the explorer: what POSIX guarantees, and
 * no more.
 *
 * A mutex orders whoever has it behind whoever had it.  A wait lets go of the mutex and begins to
 * sleep in one step; it may return for no reason.  A signal wakes one of those that sleep, any; if
 * that one's deadline comes at the same time the wait may say so although it has had the signal. */
#ifndef MODEL_PTHREAD_H
#define MODEL_PTHREAD_H

#include <stdint.h>
#include <sys/types.h> /* has these names too */
#include <time.h>

#include "atomic_model.h"
#include "inside.h"

typedef struct model_mutex {
    ap_atomic_u32 held;
    uint64_t made_in; /* the execution */
    int owner;
} model_mutex;

typedef struct model_attribute {
    clockid_t clock;
} model_attribute;

typedef struct model_condition {
    char sleepers[THREADS]; /* the address at which each of them sleeps */
    uint64_t made_in;
    uint32_t asleep; /* a bit each */
    clockid_t clock;
} model_condition;

typedef struct model_once {
    uint64_t made_in; /* its state; 0: as initialised */
    ap_atomic_u32 *state;
} model_once;

#define pthread_mutex_t model_mutex
#define pthread_cond_t model_condition
#define pthread_condattr_t model_attribute
#define pthread_once_t model_once
#undef PTHREAD_ONCE_INIT
#define PTHREAD_ONCE_INIT \
    { 0 }

#define pthread_mutex_init model_mutex_init
#define pthread_mutex_lock model_mutex_lock
#define pthread_mutex_unlock model_mutex_unlock
#define pthread_condattr_init model_attribute_init
#define pthread_condattr_setclock model_attribute_set_clock
#define pthread_condattr_destroy model_attribute_destroy
#define pthread_cond_init model_condition_init
#define pthread_cond_wait model_condition_wait
#define pthread_cond_timedwait model_condition_wait_until
#define pthread_cond_signal model_condition_signal
#define pthread_cond_broadcast model_condition_broadcast
#define pthread_once model_call_once

int model_mutex_init(model_mutex *mutex, const void *unused);
int model_mutex_lock(model_mutex *mutex);
int model_mutex_unlock(model_mutex *mutex);
int model_attribute_init(model_attribute *attribute);
int model_attribute_set_clock(model_attribute *attribute, clockid_t clock);
int model_attribute_destroy(model_attribute *attribute);
int model_condition_init(model_condition *condition, const model_attribute *attribute);
int model_condition_wait(model_condition *condition, model_mutex *mutex);
int model_condition_wait_until(model_condition *condition, model_mutex *mutex,
                               const struct timespec *at);
int model_condition_signal(model_condition *condition);
int model_condition_broadcast(model_condition *condition);
int model_call_once(model_once *once, void (*call)(void));

#endif
