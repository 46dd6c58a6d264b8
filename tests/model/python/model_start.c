/* Which submit starts a thread (start.c), with submit (pool.c), the worker's loop (worker.c) and
 * its first look (untaken.c) as they ship: tasks that block for ever all begin, as long as there
 * are no more than max_workers of them; in turn they need one thread; never more than max_workers
 * start.
 *
 * The queue is queue.c, and _threads.py is imitated, without home.c: that is model_home.c's. */
#include "crew.h"
#include "queue.h"

#include "python/submit.h"
#include "python/worker.h"
#include "sync/wait.h"

#define WORKERS 3

/* values: max_workers, tasks that the first submitter waits for, of the first and of the second
 * submitter that block for ever, whether a thread is there that has a task which returns, and
 * what happens */
enum { NOTHING, REFUSED, STRUCK, NO_PLACE };
/* REFUSED: the system refuses a thread for the first that blocks, and the next is submitted when
 * that has begun.  STRUCK: an exception is sent to the worker after the task that returns, when it
 * has the next in its hands.  NO_PLACE: the second submitter's task returns too, the system refuses
 * the first one a thread, so that the other perhaps finds no place; then the counts are looked at.
 */
static ap_core_object *object;
static AP_THREAD_LOCAL bool refuses, strikes;
static PyObject *pool, *returning, *blocking;
static ap_atomic_u32 launched[WORKERS], blocked[WORKERS];
static ap_atomic_u32 starts, begun; /* of threads; blocking tasks */

/* ---- what _threads.py does ------------------------------------------------------------------- */

static PyObject *launch(PyObject *thread, PyObject *ignored) {
    (void)thread, (void)ignored;
    uint32_t count = ap_u32_add_relaxed(&starts, 1);
    MODEL_CHECK(count < (uint32_t)model_value(0));
    ap_u32_store_release(&launched[count], 1);
    ap_wake_u32(&launched[count], 1);
    return Py_None;
}

static PyObject *make_worker(PyObject *op, PyObject *crew);

static const PyMethodDef thread_methods[] = {{.ml_name = "launch", .ml_meth = launch}, {0}};
static const PyMethodDef pool_methods[] = {{.ml_name = "_make_worker", .ml_meth = make_worker},
                                           {0}};
static PyTypeObject thread_type = {.ob_base = {.immortal = true}, .tp_methods = thread_methods};
static PyTypeObject pool_type = {.ob_base = {.immortal = true}, .tp_methods = pool_methods};
static PyObject thread = {.ob_type = &thread_type, .immortal = true};

static PyObject *make_worker(PyObject *op, PyObject *crew) {
    (void)op, (void)crew;
    if (refuses) {
        PyErr_SetNone(PyExc_RuntimeError);
        return NULL;
    }
    return &thread;
}

/* ---- the tasks ------------------------------------------------------------------------------- */

static PyObject *return_none(PyObject *argument) {
    (void)argument;
    strikes = model_value(5) == STRUCK;
    return Py_None;
}

/* The worker has found its next task, or has none. */
void ap__home_rest(bool rests) {
    if (!rests && strikes)
        model_strike(model_self(), PyExc_RuntimeError);
    strikes &= rests;
}

static PyObject *block(PyObject *argument) {
    (void)argument;
    PyThreadState *state = PyEval_SaveThread();
    ap_atomic_u32 *word = &blocked[ap_u32_add_relaxed(&begun, 1)];
    if (model_value(5) == REFUSED)
        ap_wake_u32(&begun, 1);
    for (;;)
        ap_wait_u32(word, 0, AP_FOREVER);
    PyEval_RestoreThread(state);
    return Py_None;
}

static PyObject *submit(PyObject *call) {
    PyObject *task = model_method(pool, "submit", call);
    MODEL_CHECK(task);
    return task;
}

/* ---- the threads ----------------------------------------------------------------------------- */

static void setup(void) {
    model_strike_begin();
    crew_begin(0, 0);
    Py_DECREF(crew_task);
    crew_core->max_workers = (uint32_t)model_value(0);
    crew_core->pool = queue_new();
    object = model_alloc(sizeof *object);
    ((PyObject *)object)->immortal = true;
    object->core = crew_core;
    model_name(&crew_core->started, "started");
    model_name(&crew_core->idled, "idled");
    model_name(&crew_core->seen_idle, "seen_idle");
    model_name(&crew_core->counted_on, "counted_on");
    if (!pool_type.tp_base) {
        ap__pool_setup(NULL);
        pool_type.tp_base = (PyTypeObject *)model_module_get("PoolBase");
    }
    pool = model_alloc(sizeof(ap_pool_base));
    pool->ob_type = &pool_type;
    pool->immortal = true;
    ((ap_pool_base *)pool)->core = object;
    ((ap_pool_base *)pool)->crew = Py_None;
    returning = model_function(return_none);
    blocking = model_function(block);
    returning->immortal = blocking->immortal = true;
    for (int i = 0; i < WORKERS; i++) {
        ap_u32_store_relaxed(&launched[i], 0);
        ap_u32_store_relaxed(&blocked[i], 0);
        model_name(&launched[i], "launched");
        model_name(&blocked[i], "blocked");
    }
    ap_u32_store_relaxed(&starts, 0);
    ap_u32_store_relaxed(&begun, 0);
    if (model_value(4))
        (void)submit(returning); /* its reference stays: else it would not be handed over */
    crew_ready();
}

static void submits(int waiting, int count) {
    crew_attach();
    for (int i = 0; i < waiting; i++) {
        PyObject *task = submit(returning);
        for (int again = 0; again < 2; again++) /* each look may count what it sees */
            MODEL_CHECK(model_method(task, "result", NULL) == Py_None);
    }
    refuses = model_value(5) == REFUSED;
    for (int i = 0; i < count; i++) {
        (void)submit(blocking);
        crew_detach();
        if (refuses)
            ap_wait_u32(&begun, 0, AP_FOREVER);
        crew_attach();
        refuses = false;
    }
    crew_detach();
}

static void submitter_1(void) {
    refuses = model_value(5) == NO_PLACE;
    submits(model_value(1), model_value(2));
}

static void submitter_2(void) {
    submits(model_value(5) == NO_PLACE, model_value(3));
}

static void work(int i) {
    while (!ap_u32_load_acquire(&launched[i]))
        ap_wait_u32(&launched[i], 0, AP_FOREVER);
    while (ap_python_worker_run(object) == AP_PYTHON_WORKER_ENDED)
        continue; /* it is the thread that replaces it from here on */
}

static void worker_1(void) {
    work(0);
}

static void worker_2(void) {
    work(1);
}

static void worker_3(void) {
    work(2);
}

static bool may_block(void) {
    return model_has_ended(1) && (!model_value(3) || model_has_ended(2));
}

static void finish(void) {
    int count = model_value(2) + model_value(3);
    count = count < model_value(0) ? count : model_value(0);
    MODEL_CHECK(ap_u32_load_relaxed(&begun) == (uint32_t)count);
    uint64_t given = ap_u64_load_relaxed(&crew_core->idled);
    if (model_value(5) == NO_PLACE) /* as many takers as threads */
        MODEL_CHECK(given <=
                    ap_u64_load_relaxed(&crew_core->counted_on) + ap_u32_load_relaxed(&starts));
    model_outcome("%u", ap_u32_load_relaxed(&starts));
}

#define CASE(title, bound, ...)                                              \
    .name = title, .setup = setup, .finish = finish, .may_block = may_block, \
    .leaves_memory = true, .preemptions = bound, .values = {__VA_ARGS__}
#define ONE .threads = {submitter_1, worker_1, worker_2, worker_3}
#define TWO .threads = {submitter_1, submitter_2, worker_1, worker_2, worker_3}

const model_case model_cases[] = {
    {CASE("3 in turn", 1, 3, 3), .stale = 1, .outcomes = "1",
     .threads = {submitter_1, worker_1, worker_2}},
    {CASE("3 that block", 1, 3, 0, 3), .stale = -1, .outcomes = "3", ONE},
    {CASE("2 in turn, then 2 that block", 1, 3, 2, 2), .stale = -1, .outcomes = "2", ONE},
    {CASE("1 and 1 that block", 1, 3, 0, 1, 1), .stale = -1, .outcomes = "2", TWO},
    {CASE("1 and 1 that block, one worker", 1, 1, 0, 1, 1), .stale = 1, .outcomes = "1",
     .threads = {submitter_1, submitter_2, worker_1, worker_2}},
    {CASE("2 that block, 1 before", 1, 3, 0, 2, 0, 1), .stale = -1, .outcomes = "2|3", ONE},
    {CASE("3 that block, 1 before", 1, 3, 0, 3, 0, 1), .stale = -1, .outcomes = "3", ONE},
#ifdef Py_GIL_DISABLED /* with a GIL, which all wait for, they are too many */
    {CASE("1 and 1 that block, 1 before", 1, 3, 0, 1, 1, 1), .stale = -1, .outcomes = "2|3", TWO},
    {CASE("1 and 1 in turn, 1 before, perhaps no place", 2, 2, 1, 0, 0, 1, NO_PLACE), .stale = -1,
     .outcomes = "1|2", .threads = {submitter_1, submitter_2, worker_1}},
    {CASE("2 and 1 that block, 1 before", 1, 3, 0, 2, 1, 1), .stale = -1, .outcomes = "3", TWO},
#endif
    {CASE("2 that block, 1 before, a start is refused", 1, 3, 0, 2, 0, 1, REFUSED), .stale = -1,
     .outcomes = "2", .threads = {submitter_1, worker_1, worker_2}},
    {CASE("2 that block, 1 before, its worker is replaced", 1, 3, 0, 2, 0, 1, STRUCK), .stale = -1,
     .outcomes = "2|3", ONE},
    {0},
};
