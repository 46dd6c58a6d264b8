#include "crew.h"

#include "sync/cpu.h"

ap_atomic_u64 crew_ran;

uint32_t crew_size(uint32_t n) {
    const char *crowd = getenv("CHECK_CROWD");
    uint64_t size = crowd == NULL ? 0 : strtoull(crowd, NULL, 10) * ap_cpu_count();
    if (size > CREW_MAX)
        size = CREW_MAX;
    return size > n ? (uint32_t)size : n;
}

static void *crew_work(void *argument) {
    crew *c = argument;
    ap_worker *worker;
    int rc = ap_worker_begin(c->pool, &worker);
    if (rc == AP_E_CLOSED)
        return NULL; /* the others were faster */
    CHECK(rc == AP_OK);
    CHECK(ap_worker_current() == worker && ap_worker_pool(worker) == c->pool);
    crew_loop(worker, c->no_search);
    ap_worker_end(worker);
    CHECK(ap_worker_current() == NULL);
    return NULL;
}

void crew_start(crew *c, const ap_pool_options *options, uint32_t size) {
    CHECK(ap_pool_new(options, &c->pool) == AP_OK);
    check_watch(c->pool, &crew_ran);
    c->size = size;
    for (uint32_t i = 0; i < size; i++)
        c->threads[i] = check_thread(crew_work, c);
}

void crew_stop(crew *c) {
    ap_pool_close(c->pool);
    for (uint32_t i = 0; i < c->size; i++)
        check_join(c->threads[i]);
    ap_pool_stats s;
    ap_pool_read_stats(c->pool, &s);
    CHECK_EQ(ap_pool_pending(c->pool), 0);
    CHECK_EQ(s.taken, s.pushed_outside + s.pushed_inside);
    CHECK_EQ(s.workers, 0);
    CHECK_EQ(s.idle, 0);
    CHECK_EQ(s.searching, 0);
    CHECK_EQ(s.closed, 1);
    check_watch(NULL, NULL);
    ap_pool_release(c->pool);
}

void crew_wait(ap_atomic_u64 *counter, uint64_t wanted) {
    for (uint32_t round = 0; ap_u64_load_acquire(counter) != wanted; round++)
        if (round < 1000)
            ap_cpu_yield();
        else
            check_pause_ns(100000);
}

void crew_wait_begun(ap_pool *pool, uint32_t n) {
    ap_pool_stats s;
    do {
        check_pause_ns(50000);
        ap_pool_read_stats(pool, &s);
    } while (s.workers != n);
}

void crew_wait_idle(ap_pool *pool, uint32_t n) {
    ap_pool_stats s;
    do {
        check_pause_ns(50000);
        ap_pool_read_stats(pool, &s);
    } while (s.idle != n);
}
