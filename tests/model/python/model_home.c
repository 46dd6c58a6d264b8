/* What becomes of a thread's place (home.c: the fate and the guard), with the start (start.c) and
 * the fate's task (run.c, observe.c, future.c) as they ship: whatever meets, it is given up once,
 * or settled; then nothing is queued that nobody runs, and whoever joins the thread goes on.
 *
 * _threads.py is imitated, and the thread's work is to take a task. */
#include "crew.h"

#include "python/submit.h"
#include "sync/wait.h"

#define SLOTS 2

/* What a start comes to, and what a thread's life; a case allows some of each. */
enum { STARTS = 1, IS_REFUSED = 2, IS_INTERRUPTED = 4 };
enum { WORKS = 1, IS_STILLBORN = 2, IS_STRUCK = 4, IS_LOST = 8, LACKS_MEMORY = 16 };

/* values: what a start may come to, what a thread's life may, whether somebody joins the thread, or
 * counts on it */
typedef struct {
    PyObject_HEAD ap_pytask *fate, *gone;
} thread_object;
static ap_core_object *object;
static ap_pool_base *pool;
static PyTypeObject pool_type, core_type;
static thread_object *threads[SLOTS];
static PyObject *body;
static struct {
    ap_atomic_u32 launched;
    PyObject *entry;
} slots[SLOTS];
static ap_atomic_u32 made, settled;
static ap_pytask *second; /* the task of one who counts on the thread */
static bool is_there;     /* it was pushed */

static int one_of(int allowed) {
    int found[8], count = 0;
    for (int bit = 1; bit <= allowed; bit *= 2)
        if (allowed & bit)
            found[count++] = bit;
    return found[count > 1 ? (int)model_choose((unsigned)count) : 0];
}

/* ---- _threads.py ------------------------------------------------------------------------- */

static PyObject *thread_refuse(PyObject *op, PyObject *ignored) {
    thread_object *self = (thread_object *)op;
    (void)ignored;
    if (!crew_is(self->fate, "cancel"))
        return Py_False;
    if (!model_method((PyObject *)self->gone, "set_result", Py_None))
        PyErr_Clear();
    return Py_True;
}

static PyObject *thread_launch(PyObject *op, PyObject *ignored) {
    thread_object *self = (thread_object *)op;
    PyTypeObject *type = (PyTypeObject *)model_module_get("Entry");
    (void)ignored;
    int i = self == threads[1];
    /* those that come to the first thread's end are not told about the next one's */
    int what = one_of(i ? STARTS | IS_REFUSED : model_value(0));
    PyObject *args = PyTuple_Pack(4, object, self->fate, self->gone, body);
    PyObject *started = type->tp_new(type, args, NULL);
    Py_DECREF(args);
    if (what != IS_REFUSED) {
        slots[i].entry = Py_NewRef(started);
        ap_u32_store_release(&slots[i].launched, 1);
        ap_wake_u32(&slots[i].launched, 1);
    }
    if (what == IS_REFUSED)
        PyErr_SetNone(PyExc_RuntimeError); /* and then the arguments of the call die */
    Py_DECREF(started);
    if (what == STARTS)
        return Py_None;
    if (what == IS_INTERRUPTED) {
        PyEval_RestoreThread(PyEval_SaveThread());
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
    PyObject *type_of, *error, *traceback;
    PyErr_Fetch(&type_of, &error, &traceback);
    if (model_choose(2)) /* else another interrupt keeps it from that */
        Py_DECREF(thread_refuse(op, NULL));
    PyErr_Restore(type_of, error, traceback);
    return NULL;
}

static PyObject *thread_get_fate(PyObject *op, void *closure) {
    (void)closure;
    return Py_NewRef(((thread_object *)op)->fate);
}

static const PyMethodDef thread_methods[] = {{.ml_name = "launch", .ml_meth = thread_launch},
                                             {.ml_name = "refuse", .ml_meth = thread_refuse},
                                             {0}};
static const PyGetSetDef thread_attributes[] = {{.name = "_fate", .get = thread_get_fate}, {0}};
static PyTypeObject thread_type = {.ob_base = {.immortal = true},
                                   .tp_methods = thread_methods,
                                   .tp_getset = thread_attributes};

static PyObject *make_worker(PyObject *op, PyObject *crew) {
    (void)op, (void)crew;
    return (PyObject *)threads[ap_u32_add_relaxed(&made, 1)];
}

static const PyMethodDef pool_methods[] = {{.ml_name = "_make_worker", .ml_meth = make_worker},
                                           {0}};

/* The thread's Python part, called with its guard. */
static PyObject *live(PyObject *guard) {
    (void)guard;
    int what = one_of(model_value(1) & (WORKS | IS_STRUCK | IS_LOST));
    if (what == IS_STRUCK) { /* before it has settled anything */
        PyErr_SetNone(PyExc_RuntimeError);
        return NULL;
    }
    if (what == IS_LOST) {
        MODEL_CHECK(ap__home_lose((PyObject *)object, NULL) == Py_True);
        MODEL_CHECK(!ap__core_count_on_idle(crew_core));
        PyErr_SetNone(PyExc_RuntimeError);
        return NULL;
    }
    ap_worker *worker;
    MODEL_CHECK(ap_worker_begin(crew_core->pool, &worker) == AP_OK);
    ap_pytask *task = ap__core_take_first(object, worker);
    if (task)
        ap__task_run_header(&task->header, worker);
    ap_worker_end(worker);
    ap_u32_add_relaxed(&settled, 1);
    return ap__home_exit((PyObject *)object, NULL);
}

/* ---- the threads ----------------------------------------------------------------------------- */

static ap_pytask *event(const char *name) {
    PyObject *task = ap__task_base_type->tp_alloc(ap__task_base_type, 0);
    model_name(task, name);
    model_name(&((ap_pytask *)task)->state, name);
    return (ap_pytask *)task;
}

static void setup(void) {
    crew_fails = false;
    crew_begin(0, 2);
    int rc = ap_pool_new(&(ap_pool_options){.max_workers = 2, .in_order = 1, .cpus = 2},
                         &crew_core->pool);
    MODEL_CHECK(rc == AP_OK);
    core_type = (PyTypeObject){.ob_base = {.immortal = true}};
    ap__core_type = &core_type;
    object = model_alloc(sizeof *object);
    *(PyObject *)object = (PyObject){.ob_type = &core_type, .immortal = true};
    object->core = crew_core;
    pool_type = (PyTypeObject){.ob_base = {.immortal = true}, .tp_methods = pool_methods};
    pool = model_alloc(sizeof *pool);
    *(PyObject *)pool = (PyObject){.ob_type = &pool_type, .immortal = true};
    pool->core = object;
    pool->crew = Py_None;
    static bool is_set_up;
    if (!is_set_up) {
        is_set_up = true;
        ap__home_setup(NULL);
        ap__start_setup(NULL);
    }
    model_name(&crew_core->started, "started");
    body = model_function(live);
    body->immortal = true;
    ap_u32_store_relaxed(&made, 0);
    ap_u32_store_relaxed(&settled, 0);
    for (int i = 0; i < SLOTS; i++) {
        threads[i] = model_alloc(sizeof *threads[i]);
        *(PyObject *)threads[i] = (PyObject){.ob_type = &thread_type, .immortal = true};
        threads[i]->fate = event("fate");
        threads[i]->gone = event("gone");
        ap_u32_store_relaxed(&slots[i].launched, 0);
    }
    second = event("second");
    is_there = false;
    ap_u64_store_relaxed(&crew_core->idled, 1); /* a worker that was there before */
    crew_ready();
}

static void starter(void) {
    crew_attach();
    ap_task *header = &crew_task->header;
    MODEL_CHECK(ap_pool_push(crew_core->pool, header) == AP_OK);
    int code = ap__pool_start_worker((PyObject *)pool, crew_core, &header, 1);
    MODEL_CHECK(code < 0 || model_value(0) != IS_REFUSED);
    PyErr_Clear();
    crew_detach();
}

/* A submit that counts on the thread. */
static void relying(void) {
    crew_attach();
    if (!ap__core_is_starting_up(crew_core)) {
        Py_INCREF(second);
        MODEL_CHECK(ap_pool_push(crew_core->pool, &second->header) == AP_OK);
        if (ap__core_is_stranded(crew_core))
            ap__core_cancel_queued(object); /* as when no thread can be started */
        is_there = true;
    }
    crew_detach();
}

static void born(int i) {
    while (!ap_u32_load_acquire(&slots[i].launched))
        ap_wait_u32(&slots[i].launched, 0, AP_FOREVER);
    crew_attach();
    PyObject *entry = slots[i].entry;
    bool stillborn = one_of(model_value(1) & IS_STILLBORN ? 3 : 1) == 2;
    if (!stillborn) {
        model_short_of_memory = model_value(1) & LACKS_MEMORY;
        PyObject *result = Py_TYPE(entry)->tp_call(entry, NULL, NULL);
        model_short_of_memory = false;
        MODEL_CHECK(!result == !!PyErr_Occurred());
        PyErr_Clear();
    }
    Py_DECREF(entry);
    model_thread_ends();
    crew_detach();
}

static void thread_1(void) {
    born(0);
}

static void thread_2(void) {
    born(1);
}

static void joiner(void) {
    crew_attach();
    PyObject *end = model_method((PyObject *)threads[0]->gone, "result", NULL);
    MODEL_CHECK(end == Py_None || end == Py_True);
    if (end == Py_True)
        MODEL_CHECK(ap_u32_load_acquire(&crew_core->started) == 0);
    crew_detach();
}

static bool may_block(void) { /* threads that were not started */
    return model_has_ended(1) && (!model_value(2) || model_has_ended(2));
}

static void finish(void) {
    MODEL_CHECK(ap_u32_load_relaxed(&crew_core->started) == ap_u32_load_relaxed(&settled));
    MODEL_CHECK(ap__task_is_done(crew_task));
    if (is_there && !ap_u32_load_relaxed(&settled)) /* else it is the next thread's */
        MODEL_CHECK(ap__task_is_done(second));
    model_outcome("%u", ap_u32_load_relaxed(&settled));
}

#define CASE(title, bound, ...)                                              \
    .name = title, .setup = setup, .finish = finish, .may_block = may_block, \
    .leaves_memory = true, .preemptions = bound, .values = {__VA_ARGS__}

const model_case model_cases[] = {
    {CASE("a thread begins, or dies before", 3, STARTS, WORKS | IS_STILLBORN), .outcomes = "0|1",
     .threads = {starter, thread_1}},
    {CASE("a start is refused", 2, IS_REFUSED, WORKS, 1), .stale = 1, .outcomes = "0",
     .threads = {starter, joiner}},
    {CASE("a start is interrupted", 2, IS_INTERRUPTED, WORKS | IS_STILLBORN), .stale = 1,
     .outcomes = "0|1", .threads = {starter, thread_1, thread_2}},
    {CASE("a thread is struck, or lost", 3, STARTS, WORKS | IS_STRUCK | IS_LOST | LACKS_MEMORY),
     .outcomes = "0|1", .threads = {starter, thread_1}},
    {CASE("somebody joins", 1, STARTS | IS_REFUSED | IS_INTERRUPTED,
          WORKS | IS_STILLBORN | IS_STRUCK | IS_LOST, 1),
     .stale = -1, .outcomes = "0|1", .threads = {starter, joiner, thread_1}},
    {CASE("somebody counts on a thread that is lost", 2, STARTS, IS_STRUCK, 1), .outcomes = "0",
     .threads = {starter, relying, thread_1}},
    {0},
};
