/* See posix/pthread.h. */
#include "posix/pthread.h"

#include <errno.h>

enum { ONCE_BEGUN = 1, ONCE_DONE = 2 };

/* Static memory lives on from execution to execution, so what was made is made anew in each. */
static void make(uint64_t *made_in, ap_atomic_u32 *word) {
    model_plain_write(made_in, sizeof *made_in);
    *made_in = executions + 1;
    if (word && word->raw)
        model_store(word, sizeof *word, 0, AP_ORDER_RELAXED);
}

static void check_made(uint64_t *made_in) {
    model_plain_read(made_in, sizeof *made_in);
    MODEL_CHECK(*made_in == executions + 1);
}

/* ---- mutexes --------------------------------------------------------------------------------- */

int model_mutex_init(model_mutex *mutex, const void *unused) {
    MODEL_CHECK(!unused);
    make(&mutex->made_in, &mutex->held);
    mutex->owner = -1;
    return 0;
}

int model_mutex_lock(model_mutex *mutex) {
    check_made(&mutex->made_in);
    /* what a try that finds it held learns, the one that gets it learns too */
    while (model_modify(&mutex->held, sizeof mutex->held, MODEL_EXCHANGE, 1, AP_ORDER_ACQUIRE))
        (void)sleep_at((uintptr_t)mutex, UINT64_MAX);
    mutex->owner = self;
    return 0;
}

int model_mutex_unlock(model_mutex *mutex) {
    MODEL_CHECK(mutex->owner == self);
    model_modify(&mutex->held, sizeof mutex->held, MODEL_EXCHANGE, 0, AP_ORDER_RELEASE);
    mutex->owner = -1;
    (void)wake_at((uintptr_t)mutex, UINT32_MAX); /* who gets it is decided among them */
    return 0;
}

/* ---- condition variables --------------------------------------------------------------------- */

int model_attribute_init(model_attribute *attribute) {
    attribute->clock = CLOCK_REALTIME;
    return 0;
}

int model_attribute_set_clock(model_attribute *attribute, clockid_t clock) {
    attribute->clock = clock;
    return 0;
}

int model_attribute_destroy(model_attribute *attribute) {
    (void)attribute;
    return 0;
}

int model_condition_init(model_condition *condition, const model_attribute *attribute) {
    make(&condition->made_in, NULL);
    condition->asleep = 0;
    condition->clock = attribute ? attribute->clock : CLOCK_REALTIME;
    return 0;
}

static int wait_until(model_condition *condition, model_mutex *mutex, uint64_t deadline) {
    int me = self;
    bool woken = true;
    check_made(&condition->made_in);
    (void)model_mutex_unlock(mutex);
    point_also((uintptr_t)condition, true); /* no step until it sleeps */
    if (!pick_within(BUDGET_SPURIOUS, 2)) {
        condition->asleep |= 1u << me;
        TELL(__builtin_return_address(0), "waits at %s", name_of((uintptr_t)condition));
        woken = sleep_at((uintptr_t)&condition->sleepers[me], deadline);
        condition->asleep &= ~(1u << me);
        if (woken && deadline != UINT64_MAX && model_choose(2)) {
            model_now = model_now > deadline ? model_now : deadline;
            woken = false;
        }
        TELL(__builtin_return_address(0), "%s", woken ? "is woken" : "its time is over");
    }
    (void)model_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int model_condition_wait(model_condition *condition, model_mutex *mutex) {
    return wait_until(condition, mutex, UINT64_MAX);
}

int model_condition_wait_until(model_condition *condition, model_mutex *mutex,
                               const struct timespec *at) {
    MODEL_CHECK(condition->clock == CLOCK_MONOTONIC); /* that of the deadlines */
    return wait_until(condition, mutex, (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec);
}

static void wake(model_condition *condition, int thread) {
    condition->asleep &= ~(1u << thread);
    (void)wake_at((uintptr_t)&condition->sleepers[thread], 1);
}

int model_condition_signal(model_condition *condition) {
    check_made(&condition->made_in);
    point((uintptr_t)condition, true);
    unsigned count = (unsigned)__builtin_popcount(condition->asleep);
    TELL(__builtin_return_address(0), "signal at %s", name_of((uintptr_t)condition));
    if (count == 0)
        return 0;
    uint32_t asleep = condition->asleep;
    for (unsigned skip = model_choose(count); skip > 0; skip--)
        asleep &= asleep - 1;
    wake(condition, __builtin_ctz(asleep));
    return 0;
}

int model_condition_broadcast(model_condition *condition) {
    check_made(&condition->made_in);
    point((uintptr_t)condition, true);
    TELL(__builtin_return_address(0), "broadcast at %s", name_of((uintptr_t)condition));
    while (condition->asleep)
        wake(condition, __builtin_ctz(condition->asleep));
    return 0;
}

/* ---- once ------------------------------------------------------------------------------------ */

int model_call_once(model_once *once, void (*call)(void)) {
    model_plain_read(once, sizeof *once);
    if (once->made_in != executions + 1) {
        once->made_in = executions + 1;
        once->state = arena_take(sizeof *once->state);
        once->state->raw = 0;
    }
    ap_atomic_u32 *state = once->state;
    if (model_load(state, sizeof *state, AP_ORDER_ACQUIRE) & ONCE_DONE)
        return 0;
    for (;;) {
        uint64_t was = model_modify(state, sizeof *state, MODEL_OR, ONCE_BEGUN, AP_ORDER_ACQ_REL);
        if (was & ONCE_DONE)
            return 0;
        if (!was)
            break;
        (void)sleep_at((uintptr_t)state, UINT64_MAX);
    }
    call();
    model_store(state, sizeof *state, ONCE_BEGUN | ONCE_DONE, AP_ORDER_RELEASE);
    (void)wake_at((uintptr_t)state, UINT32_MAX);
    return 0;
}
