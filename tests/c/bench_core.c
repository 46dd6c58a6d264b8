/* What the core costs, without an interpreter: a burst of no-op tasks, and round trips one at a
 * time, on 1, 2 and 4 workers; pushes from outside, from inside, and in batches.
 *
 * Prints the median of several runs.  Not part of the checks. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "affinitypool.h"
#include "sync/atomic.h"
#include "sync/cpu.h"

#define BURST 100000
#define TRIPS 20000
#define RUNS 9

static ap_pool *pool;
static ap_task tasks[BURST];
static ap_task *batch[BURST];
static AP_ALIGN_LINE ap_atomic_u64 trips;
static AP_ALIGN_LINE ap_atomic_u64 done[AP_MAX_WORKERS][AP_LINE / sizeof(ap_atomic_u64)];

static void run_noop(ap_task *task, ap_worker *worker) {
    (void)task;
    ap_atomic_u64 *mine = &done[ap_worker_index(worker)][0];
    ap_u64_store_release(mine, ap_u64_load_relaxed(mine) + 1);
}

static void run_trip(ap_task *task, ap_worker *worker) {
    (void)task;
    (void)worker;
    ap_u64_store_release(&trips, ap_u64_load_relaxed(&trips) + 1);
}

static void run_spawn(ap_task *task, ap_worker *worker) {
    (void)task;
    (void)worker;
    for (uint32_t i = 1; i < BURST; i++)
        if (ap_pool_push(pool, &tasks[i]) != AP_OK)
            abort();
}

static void *work(void *argument) {
    (void)argument;
    ap_worker *worker;
    if (ap_worker_begin(pool, &worker) != AP_OK)
        return NULL;
    do {
        ap_task *task;
        while ((task = ap_worker_take_try(worker)) != NULL ||
               (task = ap_worker_search(worker)) != NULL)
            task->run(task, worker);
    } while (ap_worker_park(worker) == AP_OK);
    ap_worker_end(worker);
    return NULL;
}

static uint64_t done_sum(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 8; i++)
        sum += ap_u64_load_acquire(&done[i][0]);
    return sum;
}

static void done_wait(uint64_t wanted) {
    for (uint32_t round = 0; done_sum() != wanted; round++)
        if (round < 100)
            ap_cpu_pause();
        else
            ap_cpu_yield();
}

static double burst_outside(void) {
    uint64_t wanted = done_sum() + BURST;
    uint64_t start = ap_clock_now();
    for (uint32_t i = 0; i < BURST; i++) {
        tasks[i].run = run_noop;
        if (ap_pool_push(pool, &tasks[i]) != AP_OK)
            abort();
    }
    done_wait(wanted);
    return (double)(ap_clock_now() - start) / BURST;
}

static double burst_batch(void) {
    uint64_t wanted = done_sum() + BURST;
    uint64_t start = ap_clock_now();
    for (uint32_t i = 0; i < BURST; i++) {
        tasks[i].run = run_noop;
        batch[i] = &tasks[i];
    }
    for (uint32_t i = 0; i < BURST; i += 1000)
        if (ap_pool_push_batch(pool, batch + i, 1000) != AP_OK)
            abort();
    done_wait(wanted);
    return (double)(ap_clock_now() - start) / BURST;
}

static double burst_inside(void) {
    uint64_t wanted = done_sum() + BURST - 1;
    tasks[0].run = run_spawn;
    for (uint32_t i = 1; i < BURST; i++)
        tasks[i].run = run_noop;
    uint64_t start = ap_clock_now();
    if (ap_pool_push(pool, &tasks[0]) != AP_OK)
        abort();
    done_wait(wanted);
    return (double)(ap_clock_now() - start) / BURST;
}

static double round_trip(void) {
    uint64_t start = ap_clock_now();
    for (uint32_t i = 0; i < TRIPS; i++) {
        uint64_t wanted = ap_u64_load_relaxed(&trips) + 1;
        tasks[0].run = run_trip;
        if (ap_pool_push(pool, &tasks[0]) != AP_OK)
            abort();
        for (uint32_t round = 0; ap_u64_load_acquire(&trips) != wanted; round++)
            if (round % 64 < 32)
                ap_cpu_pause();
            else
                ap_cpu_yield();
    }
    return (double)(ap_clock_now() - start) / TRIPS;
}

/* One worker, nobody else: pushes to its own ring and takes again, some at a time. */
static double own_ring(void) {
    ap_pool *alone;
    ap_worker *worker;
    if (ap_pool_new(&(ap_pool_options){.max_workers = 2}, &alone) != AP_OK ||
        ap_worker_begin(alone, &worker) != AP_OK)
        abort();
    uint64_t start = ap_clock_now();
    for (uint32_t i = 0; i < BURST; i += 100) {
        for (uint32_t k = 0; k < 100; k++)
            if (ap_pool_push(alone, &tasks[i + k]) != AP_OK)
                abort();
        for (uint32_t k = 0; k < 100; k++)
            if (ap_worker_take_try(worker) == NULL)
                abort();
    }
    double span = (double)(ap_clock_now() - start) / BURST;
    ap_worker_end(worker);
    ap_pool_release(alone);
    return span;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double (*measure)(void)) {
    double runs[RUNS];
    for (int i = 0; i < RUNS; i++)
        runs[i] = measure();
    qsort(runs, RUNS, sizeof *runs, compare);
    printf("  %-18s %8.1f ns  (best %.1f, worst %.1f)\n", name, runs[RUNS / 2], runs[0],
           runs[RUNS - 1]);
}

int main(void) {
    report("own push and take", own_ring);
    for (uint32_t workers = 1; workers <= 4; workers *= 2) {
        ap_pool_options options = {.max_workers = workers};
        pthread_t threads[4];
        if (ap_pool_new(&options, &pool) != AP_OK)
            return 1;
        for (uint32_t i = 0; i < workers; i++)
            if (pthread_create(&threads[i], NULL, work, NULL) != 0)
                return 1;
        printf("%u worker%s\n", workers, workers == 1 ? "" : "s");
        report("burst outside", burst_outside);
        report("burst batched", burst_batch);
        report("burst inside", burst_inside);
        report("round trip", round_trip);
        ap_pool_stats stats;
        ap_pool_read_stats(pool, &stats);
        printf("  taken %llu, stolen %llu, parks %llu, wakes %llu\n",
               (unsigned long long)stats.taken, (unsigned long long)stats.stolen,
               (unsigned long long)stats.parks, (unsigned long long)stats.wakes);
        ap_pool_close(pool);
        for (uint32_t i = 0; i < workers; i++)
            (void)pthread_join(threads[i], NULL);
        ap_pool_release(pool);
    }
    return 0;
}
