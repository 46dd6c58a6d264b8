/* See crew.h. */
#include "crew.h"

#include "sched/pool.h"
#include "sync/wait.h"

int model_spins;
bool model_impatient;
ap_pool *crew_pool;
crew_task *crew_tasks;
static int task_count;
static ap_atomic_u32 *ended; /* how many have said so */

void crew_make(const ap_pool_options *options, int count) {
    task_count = count;
    model_spins = 0;
    model_impatient = false;
    int rc = ap_pool_new(options, &crew_pool);
    MODEL_CHECK(rc == AP_OK);
    crew_tasks = model_alloc(CREW_TASKS_MAX * sizeof *crew_tasks);
    ended = model_alloc(sizeof *ended);
    model_name(ended, "ended");
    model_name(crew_tasks, "tasks");
    model_name(crew_pool, "pool");
    model_name(&crew_pool->idle, "idle");
    model_name(&crew_pool->refs, "refs");
    model_name(&crew_pool->shard_backlog, "shard marks");
    model_name(&crew_pool->ring_backlog, "ring marks");
    model_name(&crew_pool->blocks, "store");
    for (uint32_t i = 0; i < crew_pool->shards; i++) {
        model_name(&crew_pool->injectors[i].head, "head");
        model_name(&crew_pool->injectors[i].tail, "tail");
        model_name(&crew_pool->injectors[i].spare, "spare");
    }
}

ap_task *crew_task_of(int i) {
    crew_tasks[i].written = (uint64_t)i + 1;
    return &crew_tasks[i].task;
}

void crew_run(ap_task *task) {
    crew_task *own = (crew_task *)(void *)task;
    MODEL_CHECK(own->written == (uint64_t)(own - crew_tasks) + 1);
    MODEL_CHECK(own->runs == 0);
    own->runs++;
}

void crew_wait(uint32_t count) {
    uint32_t seen;
    while ((seen = ap_u32_load_acquire(ended)) < count)
        ap_wait_u32(ended, seen, AP_FOREVER);
}

void crew_run_after(ap_task *task, uint32_t others) {
    crew_run(task);
    crew_wait(others);
    ap_u32_add_acq_rel(ended, 1);
    ap_wake_u32(ended, UINT32_MAX);
}

void crew_work(void) {
    ap_worker *worker;
    if (ap_worker_begin(crew_pool, &worker) != AP_OK)
        return; /* the pool has ended */
    crew_work_on(worker);
}

void crew_work_on(ap_worker *worker) {
    do {
        ap_task *task;
        while ((task = ap_worker_take_try(worker)) || (task = ap_worker_search(worker)))
            task->run ? task->run(task, worker) : crew_run(task);
    } while (ap_worker_park(worker) == AP_OK);
    ap_worker_end(worker);
}

bool crew_has_run(void) {
    for (int i = 0; i < task_count; i++)
        if (crew_tasks[i].runs != 1)
            return false;
    return true;
}

void crew_check_run(int count) {
    for (int i = 0; i < count; i++)
        if (crew_tasks[i].runs != 1)
            model_fail("task %d has run %llu times", i, (unsigned long long)crew_tasks[i].runs);
}

void crew_check(void) {
    crew_check_run(task_count);
}

void crew_free_tasks(void) {
    model_free(crew_tasks);
    model_free(ended);
}
