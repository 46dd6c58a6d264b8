/* Points at which tests hold threads: points.h. */
#include <Python.h>

#include "points.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POINTS_MAX 64
#define NAME_MAX_LENGTH 48
#define LIMIT_SECONDS 20.0 /* nobody is held for longer */

typedef struct {
    char name[NAME_MAX_LENGTH];
    uint64_t passes;
    uint32_t skip;
    uint32_t threads; /* still to be held */
    uint64_t thread;  /* the only one, or 0 */
    int until;        /* index of another point, or -1 */
    uint64_t until_passes;
    uint32_t held; /* now */
    uint64_t lets; /* how often it let go */
} point;

static point points[POINTS_MAX]; /* guarded by lock, but for the names, which stay */
static _Atomic int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char trouble[200];
static _Atomic bool spins = true;

static _Atomic uint32_t chaos_seed, chaos_yields, chaos_sleeps, chaos_threads;

/* ---- in the threads that come by ----------------------------------------------------------- */

static void be_chaotic(void) {
    static _Thread_local uint32_t state, seed;
    uint32_t now = atomic_load(&chaos_seed);
    if (now == 0)
        return;
    if (seed != now) {
        seed = now;
        state = now * 2654435761u ^ (atomic_fetch_add(&chaos_threads, 1) + 1) * 40503u;
        state |= state == 0;
    }
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    uint32_t dice = state % 1024, yields = atomic_load(&chaos_yields);
    if (dice < yields) {
        sched_yield();
    } else if (dice < yields + atomic_load(&chaos_sleeps)) {
        struct timespec span = {0, (long)(state >> 10) % 50000};
        nanosleep(&span, NULL);
    }
}

static int find(const char *name) {
    int n = atomic_load(&count);
    for (int i = 0; i < n; i++) {
        if (strcmp(points[i].name, name) == 0)
            return i;
    }
    return -1;
}

static struct timespec deadline_after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    double whole = (double)(int64_t)seconds;
    at.tv_sec += (time_t)whole;
    at.tv_nsec += (long)((seconds - whole) * 1e9);
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

static void complain(const char *what, const char *name) {
    if (!trouble[0])
        snprintf(trouble, sizeof trouble, "%s: %s", name, what);
}

/* With the lock. */
static void stay(point *p) {
#ifndef Py_GIL_DISABLED
    if (p->until < 0 && Py_IsInitialized() && PyGILState_Check()) {
        complain("a thread that holds the GIL cannot be held", p->name);
        return;
    }
#endif
    struct timespec limit = deadline_after(LIMIT_SECONDS);
    uint64_t lets = p->lets;
    point *other = p->until < 0 ? NULL : &points[p->until];
    uint64_t wanted = other ? other->passes + p->until_passes : 0;
    p->held++;
    pthread_cond_broadcast(&changed);
    while (p->lets == lets && !(other && other->passes >= wanted)) {
        if (pthread_cond_timedwait(&changed, &lock, &limit) == ETIMEDOUT) {
            complain("held for too long", p->name);
            break;
        }
    }
    p->held--;
    pthread_cond_broadcast(&changed);
}

void ap_point_reach(const char *name) {
    be_chaotic();
    int i = find(name);
    if (i < 0)
        return;
    pthread_mutex_lock(&lock);
    point *p = &points[i];
    p->passes++;
    pthread_cond_broadcast(&changed);
    if (p->threads && (!p->thread || p->thread == PyThread_get_thread_native_id())) {
        if (p->skip) {
            p->skip--;
        } else {
            p->threads--;
            stay(p);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool ap_point_spins(void) {
    return atomic_load(&spins);
}

/* ---- in the test ---------------------------------------------------------------------------- */

/* With the lock. */
static point *find_or_add(const char *name) {
    int i = find(name);
    if (i >= 0)
        return &points[i];
    i = atomic_load(&count);
    if (i == POINTS_MAX || strlen(name) >= NAME_MAX_LENGTH) {
        complain("too many points, or too long a name", name);
        return &points[0];
    }
    points[i] = (point){.until = -1};
    strcpy(points[i].name, name);
    atomic_store(&count, i + 1);
    return &points[i];
}

void ap_point_hold(const char *name, uint32_t threads, uint32_t skip, uint64_t thread,
                   const char *until, uint64_t passes) {
    pthread_mutex_lock(&lock);
    point *p = find_or_add(name);
    p->skip = skip;
    p->threads = threads;
    p->thread = thread;
    p->until = until ? (int)(find_or_add(until) - points) : -1;
    p->until_passes = passes;
    pthread_mutex_unlock(&lock);
}

void ap_point_let_go(const char *name) {
    pthread_mutex_lock(&lock);
    point *p = find_or_add(name);
    p->threads = p->skip = 0;
    p->lets++;
    pthread_cond_broadcast(&changed);
    while (p->held) /* so that the next hold does not see who was let go */
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void ap_point_count(const char *name) {
    pthread_mutex_lock(&lock);
    find_or_add(name)->passes = 0;
    pthread_mutex_unlock(&lock);
}

uint64_t ap_point_passes(const char *name) {
    pthread_mutex_lock(&lock);
    uint64_t passes = find_or_add(name)->passes;
    pthread_mutex_unlock(&lock);
    return passes;
}

bool ap_point_await_held(const char *name, uint32_t threads, double seconds) {
    struct timespec limit = deadline_after(seconds);
    int code = 0;
    pthread_mutex_lock(&lock);
    point *p = find_or_add(name);
    while (p->held < threads && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&changed, &lock, &limit);
    bool done = p->held >= threads;
    pthread_mutex_unlock(&lock);
    return done;
}

bool ap_point_await_passes(const char *name, uint64_t passes, double seconds) {
    struct timespec limit = deadline_after(seconds);
    int code = 0;
    pthread_mutex_lock(&lock);
    point *p = find_or_add(name);
    while (p->passes < passes && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&changed, &lock, &limit);
    bool done = p->passes >= passes;
    pthread_mutex_unlock(&lock);
    return done;
}

void ap_point_chaos(uint32_t seed, uint32_t yields, uint32_t sleeps) {
    atomic_store(&chaos_yields, yields);
    atomic_store(&chaos_sleeps, sleeps);
    atomic_store(&chaos_threads, 0);
    atomic_store(&chaos_seed, seed);
}

void ap_point_spin(bool spin) {
    atomic_store(&spins, spin);
}

const char *ap_point_trouble(void) {
    return trouble;
}

void ap_point_print(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < atomic_load(&count); i++)
        fprintf(stderr, "point %s: passed %llu times, holds %u\n", points[i].name,
                (unsigned long long)points[i].passes, points[i].held);
    pthread_mutex_unlock(&lock);
}
