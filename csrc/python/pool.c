/* PoolBase: submit and its batch forms.
 *
 * Overview.  affinitypool.ThreadPoolExecutor inherits PoolBase and the stdlib's class.  One
 * call of submit is one C call: signal handlers and finalizers come before or after it, never
 * inside, and it takes no lock.  Threads are started by the Python layer, after the push.
 *
 *     submit                              worker
 *     1  find an idle worker: `idled` or  1  finds the queues empty: hands its last task over
 *        `seen_idle` above `counted_on`;     (run.c) if it has one, adds 1 to `idled`
 *        if there is one, add 1 to
 *        `counted_on` and note it in the  whoever first sees a task done that was handed over
 *        task                             2  adds 1 to `seen_idle`
 *     2  push
 *     3  none was found: add 1 to         3  takes a task after it has said so: if the task's
 *        `started` and start a thread        submit did not count on it, adds 1 to `counted_on`
 *
 * So `idled` less `counted_on` is at most the number of idle workers that no submit counts on.  Who
 * saw a result knows that its worker was about to say so, hence the worker's 2: submits in turn
 * need one thread, and submits that all block need one each.  The two counts name the same
 * events, each some of them, so their maximum is no more than there were.  (A worker that
 * publishes attached does 1 first.)  The worker's count has a line of its own, which in such
 * turns nobody else looks at.  Once every thread is started none of this is touched.
 */
#include "bridge.h"

typedef struct {
    PyObject_HEAD ap_core_object *core; /* NULL until _bind; another one in a forked child */
    PyObject *crew;                     /* who starts threads for that core: _threads.py */
} ap_pool_base;

ap_atomic_u32 ap__interpreter_exiting;

#define METHOD(f) ((PyCFunction)(void (*)(void))(f))

static PyObject *fate_name, *refuse_name; /* made once, so that no look for them needs memory */
static _Thread_local unsigned starting_threads; /* nested, if one interrupts another */

/* In a forked child: gives the pool a core of its own, if it has the parent's. */
static int renew(PyObject *op) {
    PyObject *none = PyObject_CallMethod(op, "_renew", NULL);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

static bool is_orphaned(PyObject *op) {
    ap_core_object *object = ((ap_pool_base *)op)->core;
    return object && ap__core_is_orphaned(object->core);
}

/* Raises the reason why the pool takes no tasks, and returns -1; or 0: its core was the parent's,
 * and has been renewed, so that the caller is to try again. */
static int refuse(PyObject *op) {
    if (is_orphaned(op))
        return renew(op);
    /* pairs with the store in ap__core_close: orders why it is closed before our asking */
    (void)ap_u32_load_acquire(&((ap_pool_base *)op)->core->core->refuse);
    PyObject *none = PyObject_CallMethod(op, "_raise_refused", NULL);
    if (none)
        PyErr_SetString(PyExc_RuntimeError, "cannot schedule new futures after shutdown");
    Py_XDECREF(none);
    return -1;
}

/* The pool's core if it takes tasks; NULL with the exception that says why it does not. */
static ap_core *open_core(PyObject *op) {
    ap_core_object *object = ((ap_pool_base *)op)->core;
    if (!object) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the pool is not initialised: call super().__init__() first");
        return NULL;
    }
    /* relaxed: hints, for the sake of the message.  What decides is CLOSED in the shard's tail, and
     * at exit is_exiting, asked by who starts a thread.  In a forked child the store was made by
     * this thread, or before this one was started. */
    while (ap_u32_load_relaxed(&object->core->refuse) |
           ap_u32_load_relaxed(&ap__interpreter_exiting)) {
        if (refuse(op) < 0)
            return NULL;
        object = ((ap_pool_base *)op)->core;
    }
    return object->core;
}

/* Turns a failed push into an exception. */
static void push_failed(PyObject *op, int code) {
    if (code == AP_E_CLOSED) {
        if (refuse(op) == 0) /* the fork came between the look and the push */
            PyErr_SetString(PyExc_RuntimeError, "the pool was forked in the middle of a submit");
    } else {
        PyErr_SetString(ap__hooks.submit_error, "out of memory: the task was not queued");
    }
}

/* Whether there is an idle worker that no other submit counts on. */
bool ap__core_count_on_idle(ap_core *core) {
    uint64_t counted = ap_u64_load_relaxed(&core->counted_on);
    do {
        /* acquire pairs with count_idle in worker.c */
        if (ap_u64_load_relaxed(&core->seen_idle) <= counted &&
            ap_u64_load_acquire(&core->idled) <= counted)
            return false;
#ifndef Py_GIL_DISABLED
        /* submitters are attached; a RMW would wait until the push has reached the worker */
        ap_u64_store_relaxed(&core->counted_on, counted + 1);
        return true;
#endif
        /* that one submit counts on one worker needs no order, only the RMW */
    } while (!ap_u64_cas_acq_rel(&core->counted_on, &counted, counted + 1));
    return true;
}

static bool is_starting_up(ap_core *core) {
    return ap_u32_load_relaxed(&core->started) < core->max_workers;
}

/* What has to be done is tried so often, if each time an interrupt strikes. */
#define INTERRUPTS_MOST 16

/* Of a thread that did not start as it should: whether it never will, nor run anything. */
static bool is_refused(PyObject *thread) {
    PyObject *found = PyObject_GetAttr(thread, fate_name);
    bool refused = false;
    /* a subclass may have made the thread, and that be none of ours */
    if (found && PyObject_TypeCheck(found, ap__task_base_type)) {
        ap_pytask *fate = (ap_pytask *)found;
        (void)ap__task_cancel(fate); /* perhaps it was before; not if the thread has started it */
        /* pairs with the CAS of who cancelled it, or started it: run.c, step 1 */
        refused = (ap_u32_load_acquire(&fate->state) & AP_STATE) == AP_CANCELLED;
    }
    Py_XDECREF(found);
    PyErr_Clear();
    /* the rest is to clean up; an interrupt of that is none of the caller's */
    for (int i = 0; refused && i < INTERRUPTS_MOST; i++) {
        PyObject *done = PyObject_CallMethodNoArgs(thread, refuse_name);
        if (done) {
            Py_DECREF(done);
            break;
        }
        PyErr_Clear();
    }
    return refused;
}

/* Takes a place among the started threads, and starts one.  1: it did; 0: there is no place; -1:
 * exception, with *others the threads that are there; -2: exception, and this is a forked child, in
 * which the core is the parent's.
 *
 * Whatever an interrupt has struck, the place is given back exactly if the thread can be kept
 * from running: its fate is decided by one step, here or in the thread (home.c). */
static int start_one(PyObject *op, ap_core *core, uint32_t *others) {
    ap_pool_base *self = (ap_pool_base *)op;
    uint32_t started = ap_u32_load_relaxed(&core->started);
    do {
        if (started >= core->max_workers)
            return 0;
        /* pairs with has_no_threads: who sees the place relies on the thread, or, if that is
         * refused, on the look at the queue that follows the giving up */
    } while (!ap_u32_cas_seq_cst(&core->started, &started, started + 1));

    starting_threads++;
    PyObject *none = NULL, *crew = self->core->core == core ? Py_XNewRef(self->crew) : NULL;
    PyObject *thread =
        crew ? PyObject_CallMethod(op, "_make_worker", "OI", crew, (unsigned int)started) : NULL;
    if (thread)
        none = PyObject_CallMethod(thread, "launch", NULL);
    starting_threads--;
    Py_XDECREF(crew);
    if (none) {
        Py_DECREF(none);
        Py_DECREF(thread);
        return 1;
    }
    if (!PyErr_Occurred()) /* there is another core, as there was a fork before we came here */
        PyErr_SetString(PyExc_RuntimeError, "the pool was forked in the middle of a submit");
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    bool refused = !thread || is_refused(thread);
    Py_XDECREF(thread);
    int code = -1;
    if (ap__core_is_orphaned(core)) /* a fork in the middle: the tasks are the parent's too */
        code = -2;
    else if (refused)
        /* pairs with has_no_threads: who pushed before is seen by the look at the queue that
         * follows */
        *others = ap_u32_sub_seq_cst(&core->started, 1) - 1;
    else
        *others = 1; /* it runs all the same */
    PyErr_Restore(type, error, traceback);
    return code;
}

/* Whether no thread is left, or about to start, that could run what is queued. */
static bool has_no_threads(ap_core *core) {
    /* pairs with start_one and lose_worker, which give a place up and look at the queue then: they
     * see our push, or we see that nobody is left */
    return ap_u32_load_seq_cst(&core->started) == 0;
}

/* Whether a task that was pushed, and needed no thread, needs one now.  (With a GIL: no.  The
 * caller is attached all the time.) */
static inline bool is_stranded(ap_core *core) {
#ifdef Py_GIL_DISABLED
    return AP_UNLIKELY(has_no_threads(core));
#else
    (void)core;
    return false;
#endif
}

/* After an interrupted start that has left the pool without threads: others may have submitted
 * meanwhile, and rely on it. */
static void start_for_others(PyObject *op, ap_core *core) {
    uint32_t others = 0;
    if (!ap__core_promise_pending(((ap_pool_base *)op)->core))
        return;
    for (int i = 0; !others && i < INTERRUPTS_MOST; i++) {
        int code = start_one(op, core, &others);
        if (code >= 0)
            return; /* or somebody else has started one */
        bool refused = PyErr_ExceptionMatches(PyExc_Exception);
        PyErr_Clear();
        if (refused || code == -2)
            return;
    }
}

/* Starts a thread for tasks that were pushed and count on no idle worker.  -1 with an exception:
 * the system refuses a thread and there is no other, so that none of them runs; or the start was
 * interrupted, and all run if a thread is there, else none. */
static int start_worker(PyObject *op, ap_core *core, ap_task *const *tasks, size_t count) {
    uint32_t others = 0;
    int code = start_one(op, core, &others);
    if (code >= 0)
        return 0;
    bool interrupted = !PyErr_ExceptionMatches(PyExc_Exception);
    if (code == -2) {
        if (!interrupted)
            PyErr_Clear(); /* the parent's start is none of ours */
        return interrupted ? -1 : 0;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    AP_POINT("start-refused");
    bool run = others != 0; /* those that are there will come to what was published */
    for (size_t i = 0; i < count && !run; i++)
        run = !ap__task_cancel(ap__task_from_header(tasks[i])); /* somebody has come meanwhile */
    if (interrupted && !others)
        start_for_others(op, core);
    if (!ap__core_is_orphaned(core)) {
        ap_core_object *object = ((ap_pool_base *)op)->core;
        ap__core_trim_promised(object);
        if (has_no_threads(core))
            ap__core_cancel_queued(object); /* nobody will come: visibly, not for ever */
    }
    if (run && !interrupted) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return 0;
    }
    PyErr_Restore(type, error, traceback);
    return -1;
}

static PyObject *pool_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);

/* Makes a task and queues it. */
static PyObject *enqueue(PyObject *op, ap_core *core, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
    ap_pytask *task =
        ap__task_new(core, args[0], args + 1, (size_t)nargs - 1, kwnames, core->isolated);
    if (!task) {
        if (core->max_pending)
            ap__bound_leave(core);
        return NULL;
    }
    bool starting_up = is_starting_up(core);
    task->counted = starting_up && ap__core_count_on_idle(core);
    bool needs_worker = starting_up && !task->counted;
    AP_POINT("submit-push");
    if (AP_UNLIKELY(ap__core_is_orphaned(core))) { /* a finalizer has forked: start again */
        ap__task_unqueue(task);
        Py_DECREF(task);
        return pool_submit(op, args, nargs, kwnames);
    }
    int code = ap_pool_push(core->pool, &task->header);
    AP_POINT("submit-pushed");
    if (code < 0) {
        ap__task_unqueue(task);
        Py_DECREF(task);
        push_failed(op, code);
        return NULL;
    }
    ap_task *header = &task->header;
    if ((needs_worker || is_stranded(core)) && start_worker(op, core, &header, 1) < 0) {
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

/* Makes a task and runs it in the calling thread.  Ctrl-C while it runs is the caller's too. */
static PyObject *run_in_caller(ap_core *core, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
    ap_pytask *task =
        ap__task_new(core, args[0], args + 1, (size_t)nargs - 1, kwnames, core->isolated);
    if (!task)
        return NULL;
    task->bounded = false; /* it has no place */
    ap__task_unqueue(task);
    if (ap__task_run_here(task) < 0) {
        Py_DECREF(task);
        return NULL;
    }
    if (task->failed && PyErr_GivenExceptionMatches(task->outcome, PyExc_KeyboardInterrupt) &&
        PyThread_get_thread_ident() == ap__hooks.main_thread) {
        PyErr_Restore(Py_NewRef(Py_TYPE(task->outcome)), Py_NewRef(task->outcome),
                      Py_XNewRef(task->args));
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

static inline PyObject *submit(PyObject *op, bool may_wait, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
    for (;;) {
        ap_core *core = open_core(op);
        if (!core)
            return NULL;
        if (AP_LIKELY(!core->max_pending))
            return enqueue(op, core, args, nargs, kwnames);
        switch (ap__bound_enter(core, may_wait ? core->on_full : AP_FULL_RAISE)) {
        case 1:
            return enqueue(op, core, args, nargs, kwnames);
        case 0:
            return run_in_caller(core, args, nargs, kwnames);
        case -2:
            return NULL;
        default: /* closed, which open_core says; or left to the parent, and there is a new one */
            break;
        }
    }
}

static PyObject *pool_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "submit() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    return submit(op, true, args, nargs, kwnames);
}

static PyObject *pool_try_submit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError,
                        "try_submit() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    return submit(op, false, args, nargs, kwnames);
}

/* ---- many at once ---------------------------------------------------------------------- */

#define BATCH 512
#define BATCH_NS 20000u /* how long a made task may wait to be published by map */

typedef struct {
    PyObject *pool;
    ap_core *core;
    PyObject *tasks;   /* list of all, in order */
    ap_task **waiting; /* those that are not published yet */
    size_t count;      /* of them */
    size_t room;
} batch;

/* Makes room for one more waiting task. */
static int batch_grow(batch *self) {
    if (self->count < self->room)
        return 0;
    size_t room = self->room ? 2 * self->room : 64;
    ap_task **waiting = PyMem_Realloc(self->waiting, room * sizeof *waiting);
    if (!waiting) {
        PyErr_NoMemory();
        return -1;
    }
    self->waiting = waiting;
    self->room = room;
    return 0;
}

/* Lets go of the tasks that wait. */
static void batch_drop(batch *self) {
    for (size_t i = 0; i < self->count; i++)
        ap__task_unqueue(ap__task_from_header(self->waiting[i]));
    self->count = 0;
}

/* Where the iterator has forked, and this is the child: what waits is the parent's. -1 with an
 * exception. */
static int batch_check_fork(batch *self) {
    if (AP_LIKELY(!ap__core_is_orphaned(self->core)))
        return 0;
    batch_drop(self);
    ap_core *core = open_core(self->pool);
    if (!core)
        return -1;
    self->core = core;
    return 0;
}

/* Publishes the waiting tasks: all or none. */
static int batch_publish(batch *self) {
    if (batch_check_fork(self) < 0)
        return -1;
    size_t count = self->count;
    if (!count)
        return 0;
    size_t needed = 0; /* threads: one for each task that counts on no idle worker */
    for (size_t i = 0; i < count && is_starting_up(self->core); i++) {
        ap_pytask *task = ap__task_from_header(self->waiting[i]);
        task->counted = ap__core_count_on_idle(self->core);
        needed += !task->counted;
    }
    int code = ap_pool_push_batch(self->core->pool, self->waiting, count);
    if (code < 0) {
        push_failed(self->pool, code);
        return -1;
    }
    self->count = 0;
    if (!needed && is_stranded(self->core))
        needed = 1;
    for (; needed && is_starting_up(self->core); needed--) {
        if (start_worker(self->pool, self->core, self->waiting, count) < 0)
            return -1;
    }
    return 0;
}

static void batch_free(batch *self) {
    batch_drop(self);
    PyMem_Free(self->waiting);
}

/* _submit_rows(fn, iterator, star, early) -> list of tasks
 *
 * One task for each item of the iterator: fn(item), or fn(*item) with `star`, when items are
 * tuples.  With `early`, tasks are published while the iterator runs, and stay published if it
 * raises; without, all at the end or none. */
static PyObject *pool_submit_rows(PyObject *op, PyObject *args) {
    PyObject *fn, *iterator;
    int star, early;
    if (!PyArg_ParseTuple(args, "OOpp", &fn, &iterator, &star, &early))
        return NULL;
    ap_core *core = open_core(op);
    if (!core)
        return NULL;
    if (!PyIter_Check(iterator)) {
        PyErr_Format(PyExc_TypeError, "expected an iterator, not %.200s",
                     Py_TYPE(iterator)->tp_name);
        return NULL;
    }
    batch self = {.pool = op, .core = core, .tasks = PyList_New(0)};
    if (!self.tasks)
        return NULL;
    if (core->max_pending) {
        Py_DECREF(self.tasks);
        PyErr_SetString(PyExc_RuntimeError, "a pool with max_pending takes its tasks one by one");
        return NULL;
    }
    bool isolated = core->isolated;
    size_t published = 0, seen = 0;
    uint64_t oldest = 0;
    PyObject *item;
    while ((item = PyIter_Next(iterator))) {
        ap_pytask *task = NULL;
        if (batch_check_fork(&self) == 0 && batch_grow(&self) == 0) {
            core = self.core;
            if (star && PyTuple_Check(item))
                task = ap__task_new(core, fn, ((PyTupleObject *)item)->ob_item,
                                    (size_t)PyTuple_GET_SIZE(item), NULL, isolated);
            else
                task = ap__task_new(core, fn, &item, 1, NULL, isolated);
        }
        Py_DECREF(item);
        if (!task)
            goto fail;
        /* a builtin iterator never enters the eval loop, where signals are handled and others let
         * run; what that raises is the caller's */
        if (AP_UNLIKELY(++seen % BATCH == 0)) {
            PyObject *none = PyObject_CallNoArgs(ap__hooks.breathe);
            if (!none) {
                ap__task_unqueue(task);
                Py_DECREF(task);
                goto fail;
            }
            Py_DECREF(none);
        }
        self.waiting[self.count++] = &task->header;
        int appended = PyList_Append(self.tasks, (PyObject *)task);
        Py_DECREF(task);
        if (appended < 0)
            goto fail;
        if (early) {
            uint64_t now = ap_clock_now();
            if (self.count == 1)
                oldest = now;
            /* the first at once, then twice as many each time, while the iterator is quick */
            if (self.count >= BATCH || self.count > published || now - oldest >= BATCH_NS) {
                published += self.count;
                if (batch_publish(&self) < 0)
                    goto fail;
            }
        }
    }
    if (PyErr_Occurred() || batch_publish(&self) < 0)
        goto fail;
    batch_free(&self);
    return self.tasks;

fail:
    if (early) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        if (batch_publish(&self) < 0)
            PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    batch_free(&self);
    Py_DECREF(self.tasks);
    return NULL;
}

/* ---- the object ------------------------------------------------------------------------ */

/* _bind(core, crew, fresh): sets both, and returns whether it did.  `fresh`: the pool has none yet;
 * else it has the parent's, and this is a forked child. */
static PyObject *pool_bind(PyObject *op, PyObject *args) {
    ap_pool_base *self = (ap_pool_base *)op;
    PyObject *core, *crew;
    int fresh;
    if (!PyArg_ParseTuple(args, "O!Op", ap__core_type, &core, &crew, &fresh))
        return NULL;
    if (!ap__task_type) {
        PyErr_SetString(PyExc_RuntimeError, "affinitypool._task has not been imported");
        return NULL;
    }
    if (fresh && self->core) {
        PyErr_SetString(PyExc_RuntimeError, "the pool is initialised already");
        return NULL;
    }
    PyObject *old_core = NULL, *old_crew = NULL;
    bool bound = false;
    Py_BEGIN_CRITICAL_SECTION(op);
    if (fresh || is_orphaned(op)) {
        old_core = (PyObject *)self->core;
        old_crew = self->crew;
        self->core = (ap_core_object *)Py_NewRef(core);
        self->crew = Py_NewRef(crew);
        bound = true;
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(old_core);
    Py_XDECREF(old_crew);
    return PyBool_FromLong(bound);
}

/* One of the two, in a forked child that of the child. */
static PyObject *pool_part(PyObject *op, bool crew) {
    ap_pool_base *self = (ap_pool_base *)op;
    if (AP_UNLIKELY(is_orphaned(op)) && renew(op) < 0)
        return NULL;
    PyObject *part;
    Py_BEGIN_CRITICAL_SECTION(op);
    part = Py_XNewRef(crew ? self->crew : (PyObject *)self->core);
    Py_END_CRITICAL_SECTION();
    if (!part)
        PyErr_SetString(PyExc_RuntimeError,
                        "the pool is not initialised: call super().__init__() first");
    return part;
}

static PyObject *pool_get_core(PyObject *op, void *Py_UNUSED(closure)) {
    return pool_part(op, false);
}

static PyObject *pool_get_crew(PyObject *op, void *Py_UNUSED(closure)) {
    return pool_part(op, true);
}

/* The crew as it is, in a forked child perhaps the parent's; None if there is none. */
static PyObject *pool_present_crew(PyObject *op, PyObject *Py_UNUSED(ignored)) {
    PyObject *crew;
    Py_BEGIN_CRITICAL_SECTION(op);
    crew = Py_XNewRef(((ap_pool_base *)op)->crew);
    Py_END_CRITICAL_SECTION();
    return crew ? crew : Py_NewRef(Py_None);
}

static int pool_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ap_pool_base *)op)->core);
    Py_VISIT(((ap_pool_base *)op)->crew);
    return 0;
}

static void pool_dealloc(PyObject *op) {
    ap_pool_base *self = (ap_pool_base *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->core) {
        if (!is_orphaned(op))
            ap__core_close(self->core->core);
        Py_CLEAR(self->core);
    }
    Py_CLEAR(self->crew);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef pool_methods[] = {
    {"submit", METHOD(pool_submit), METH_FASTCALL | METH_KEYWORDS,
     "submit($self, fn, /, *args, **kwargs)\n--\n\n"
     "Run fn(*args, **kwargs) in a worker thread; return its Task at once.\n\n"
     "May be called from any thread, also from tasks, signal handlers and finalizers.  Whatever\n"
     "fn raises, and a TypeError if it cannot be called, is raised by the Task's result().\n"
     "RuntimeError after shutdown(), BrokenThreadPool after an initializer failed, SubmitError\n"
     "when memory has run out; a refused call leaves nothing behind.  With max_pending, on_full\n"
     "says what happens when that many tasks have not started."},
    {"try_submit", METHOD(pool_try_submit), METH_FASTCALL | METH_KEYWORDS,
     "try_submit($self, fn, /, *args, **kwargs)\n--\n\n"
     "Submit as submit() does, but never wait.\n\n"
     "PendingLimitError, at once, when max_pending tasks have not started, whatever on_full is."},
    {"_submit_rows", pool_submit_rows, METH_VARARGS, NULL},
    {"_bind", pool_bind, METH_VARARGS, NULL},
    {"_present_crew", pool_present_crew, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_getset[] = {
    {"_core", pool_get_core, NULL, NULL, NULL},
    {"_crew", pool_get_crew, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "The C side of a pool; see affinitypool.ThreadPoolExecutor."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_traverse, pool_traverse},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_getset},
    {0, NULL},
};

static PyType_Spec pool_spec = {
    .name = "affinitypool._core.PoolBase",
    .basicsize = sizeof(ap_pool_base),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = pool_slots,
};

static PyObject *is_starting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(starting_threads != 0);
}

static PyMethodDef functions[] = {
    {"is_starting", is_starting, METH_NOARGS,
     "Whether this call interrupts a submit of this thread that starts a worker."},
    {NULL, NULL, 0, NULL},
};

int ap__pool_setup(PyObject *module) {
    static PyObject *type;
    if (!type && !(type = PyType_FromSpec(&pool_spec)))
        return -1;
    fate_name = PyUnicode_InternFromString("_fate");
    refuse_name = PyUnicode_InternFromString("refuse");
    if (!fate_name || !refuse_name)
        return -1;
    int code = PyModule_AddObjectRef(module, "PoolBase", type);
    return code < 0 ? code : PyModule_AddFunctions(module, functions);
}
