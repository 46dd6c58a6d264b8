"""The mutants of the bridge: as catalogue.py has those of the core.  Seen by tests/model/python."""

from __future__ import annotations

from mutant import Mutant

UNDERTAKE = (("free_undertake", ""),)
MISSED = (("free_observe", "2 posts, no memory for one"),)

LOOP = (("gil_worker", ""), ("free_worker", ""))
FREE_LOOP = (("free_worker", ""),)
GIL_LOOP = (("gil_worker", ""),)
FORK = (("gil_fork", ""), ("free_fork", ""))
FORK_TASK = (("gil_fork", "fork, in a task"),)
EXIT = (("free_exit", "exit, a submit that"), ("gil_exit", "exit, a submit that"))
STRUCK = (("gil_worker", "worker, 1 task, struck"), ("gil_worker", "worker, 2 tasks, struck"))

MUTANTS = [
    Mutant(
        "publish-store",
        "python/run.c",
        "    } while (!ap_u32_cas_acq_rel(&task->state, &state, AP_FINISHED));",
        "    } while (false);\n    ap_u32_store_release(&task->state, AP_FINISHED);",
        (("gil_result", "result, 1 waiter"),),
    ),
    Mutant(
        "publish-relaxed",
        "python/run.c",
        "    } while (!ap_u32_cas_acq_rel(&task->state, &state, AP_FINISHED));",
        "    } while (false);\n    state = ap_u32_exchange_relaxed(&task->state, AP_FINISHED);",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "publish-before-outcome",
        "python/run.c",
        "    task->failed = failed;",
        "    ap_u32_or_acq_rel(&task->state, AP_FINISHED);\n    task->failed = failed;",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "publish-ignores-observed",
        "python/run.c",
        "if ((state & (AP_STATE | AP_OBSERVED)) != AP_RUNNING)",
        "if ((state & AP_STATE) != AP_RUNNING)",
        (("gil_observe", "callback against publish"),),
        occurrence=1,
    ),
    Mutant(
        "publish-exchange",
        "python/run.c",
        "    } while (!ap_u32_cas_acq_rel(&task->state, &state, AP_FINISHED));",
        "    } while (false);\n    state = ap_u32_exchange_acq_rel(&task->state, AP_FINISHED);",
        (("free_observe", "callback against publish"),),
    ),
    Mutant(
        "publish-no-wake",
        "python/run.c",
        "    if (state & AP_WAITED)\n        ap_wake_u32(&task->state, UINT32_MAX);",
        "/* nothing */",
        (("free_result", "result, 1 waiter"),),
        occurrence=1,
    ),
    Mutant(
        "handover-no-wake",
        "python/run.c",
        "    if (state & AP_WAITED)\n        ap_wake_u32(&task->state, UINT32_MAX);",
        "/* nothing */",
        (("gil_result", "hand-over, 1 waiter"),),
        occurrence=2,
    ),
    Mutant(
        "settle-no-wake",
        "python/observe.c",
        "    if (before & AP_WAITED)\n        ap_wake_u32(&task->state, UINT32_MAX);",
        "/* nothing */",
        (("free_cancel", "cancel against start, a waiter"),),
    ),
    Mutant(
        "wait-no-recheck",
        "python/block.c",
        "            if (!ap__state_is_done(state))\n                nap(",
        "            nap(",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "wait-once",
        "python/block.c",
        "        PyEval_RestoreThread(thread);\n    }\n}",
        "        PyEval_RestoreThread(thread);\n        return 1;\n    }\n}",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "wait-mark-late",
        "python/block.c",
        "            uint32_t state = ap_u32_or_acq_rel(&task->state, AP_WAITED) | AP_WAITED;",
        "            uint32_t state = ap_u32_load_acquire(&task->state);\n"
        "            ap_u32_store_release(&task->state, state | AP_WAITED);\n"
        "            state |= AP_WAITED;",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "wait-mark-relaxed-read",
        "python/bridge.h",
        "    return ap__state_is_done(ap_u32_load_acquire(&task->state));",
        "    return ap__state_is_done(ap_u32_load_relaxed(&task->state));",
        (("gil_result", "hand-over, a deadline"),),
    ),
    Mutant(
        "state-of-relaxed",
        "python/future.c",
        "    uint32_t state = ap_u32_load_acquire(&((ap_pytask *)op)->state);",
        "    uint32_t state = ap_u32_load_relaxed(&((ap_pytask *)op)->state);",
        (("free_result", "result, 1 waiter"),),
    ),
    Mutant(
        "start-store",
        "python/run.c",
        "        if (ap_u32_cas_acq_rel(&task->state, &state, state | AP_RUNNING)) {",
        "        ap_u32_store_release(&task->state, state | AP_RUNNING);\n        {",
        (("free_cancel", "cancel against start"),),
    ),
    Mutant(
        "start-does-not-release",
        "python/run.c",
        "        if (ap_u32_cas_acq_rel(&task->state, &state, state | AP_RUNNING)) {",
        "        if (AP_RAW_CAS(&task->state, &state, state | AP_RUNNING, AP_ORDER_ACQUIRE, "
        "AP_ORDER_ACQUIRE)) {",
        UNDERTAKE,
    ),
    Mutant(
        "started-is-seen-relaxed",
        "python/run.c",
        "    (void)ap_u32_load_acquire(&task->state);\n    return false;",
        "    return false;",
        UNDERTAKE,
    ),
    Mutant(
        "undertakes-after-the-start",
        "python/run.c",
        "    if (!is_worker)\n        ap_pool_undertake(pool);\n"
        "    int ran = ap__task_start(task);\n",
        "    int ran = ap__task_start(task);\n    if (!is_worker)\n"
        "        ap_pool_undertake(pool);\n",
        UNDERTAKE,
    ),
    Mutant(
        "dealt-before-the-run",
        "python/run.c",
        "    if (ran)\n        run_started(task);\n    if (!is_worker)\n"
        "        ap_pool_dealt(pool);\n",
        "    if (!is_worker)\n        ap_pool_dealt(pool);\n    if (ran)\n"
        "        run_started(task);\n",
        UNDERTAKE,
    ),
    Mutant(
        "cancel-running",
        "python/run.c",
        "AP_FROM_PENDING, AP_CANCELLED",
        "AP_FROM_PENDING | AP_FROM_RUNNING, AP_CANCELLED",
        (("gil_cancel", "cancel against start"),),
    ),
    Mutant(
        "observe-result-ignored",
        "python/observe.c",
        "} else if (result == 1 && mark_observed(task)) {",
        "} else if (result == 1 && (mark_observed(task), false)) {",
        (("free_observe", "callback against publish"),),
    ),
    Mutant(
        "observe-no-mark",
        "python/observe.c",
        "} else if (result == 1 && mark_observed(task)) {",
        "} else if (false) {",
        (("free_observe", "callback against publish"),),
    ),
    Mutant(
        "enlist-reads-outside",
        "python/observe.c",
        "    PyObject *spare = PyList_New(0), *list = NULL;\n    int result;\n    if (!spare)",
        "    PyObject *spare = NULL, *list = NULL;\n"
        "    int result;\n"
        "    if (!*slot && !(spare = PyList_New(0)))",
        (("free_observe", "2 callbacks against publish"),),
    ),
    Mutant(
        "observe-reads-outside",
        "python/observe.c",
        "    ap_observer *observer;\n    Py_BEGIN",
        "    ap_observer *observer = task->observer;\n"
        "    if (observer)\n"
        "        return observer;\n"
        "    Py_BEGIN",
        (("free_observe", "watch and callback against publish"),),
    ),
    Mutant(
        "handover-unmarked",
        "python/run.c",
        "    task->handed_over = true; /* the GIL orders this before its readers */",
        "/* nothing */",
        (("gil_result", "hand-over, a deadline"),),
    ),
    Mutant(
        "handover-ignores-observed",
        "python/run.c",
        "    if ((state & (AP_STATE | AP_OBSERVED)) != AP_RUNNING)\n"
        "        return false;\n"
        "    task->handed",
        "    if ((state & AP_STATE) != AP_RUNNING)\n        return false;\n    task->handed",
        (("gil_observe", "2 callbacks against hand-over"),),
    ),
    Mutant(
        "handover-last-reference",
        "python/run.c",
        "    if (Py_REFCNT(task) == 1)\n        return false;",
        "/* nothing */",
        (("gil_result", "hand-over, a deadline"),),
    ),
    Mutant(
        "handover-keeps-gil",
        "python/run.c",
        '    (void)PyEval_SaveThread();\n    AP_POINT("handover");',
        '    AP_POINT("handover");',
        (("gil_result", "hand-over, 1 waiter"),),
    ),
    Mutant(
        "handover-relaxed",
        "python/run.c",
        "    state = ap_u32_exchange_acq_rel(&task->state, AP_FINISHED);",
        "    state = ap_u32_exchange_relaxed(&task->state, AP_FINISHED);",
        (("gil_result", "hand-over, 1 waiter"),),
    ),
    Mutant(
        "handover-drops-late",
        "python/run.c",
        "    Py_DECREF(task);\n    (void)PyEval_SaveThread();",
        "    (void)PyEval_SaveThread();",
        (("gil_result", "hand-over, 1 waiter"),),
        more=(
            (
                '    AP_POINT("handover-published");',
                '    AP_POINT("handover-published");\n    Py_DECREF(task);',
            ),
        ),
    ),
    Mutant(
        "handover-wake-reads",
        "python/run.c",
        "    if (state & AP_WAITED)",
        "    if (ap_u32_load_relaxed(&task->state) & AP_WAITED)",
        (("gil_result", "hand-over, 1 waiter"),),
        occurrence=2,
    ),
    Mutant(
        "await-removed-enlist",
        "python/observe.c",
        "    ap__task_await_handover(task);\n    if (ap__task_is_done(task)) {",
        "    if (ap__task_is_done(task)) {",
        (("gil_observe", "callback against hand"),),
    ),
    Mutant(
        "await-removed-settle",
        "python/observe.c",
        "            ap__task_await_handover(task);\n            ap__bound_pin(task);",
        "            ap__bound_pin(task);",
        (("gil_cancel", "set_result against start, handed"),),
    ),
    Mutant(
        "await-removed-dealloc",
        "python/task.c",
        "    ap__task_await_handover(self);\n    ap__task_drop_call(self);",
        "    ap__task_drop_call(self);",
        (("gil_result", "hand-over, a deadline"),),
    ),
    Mutant(
        "await-relaxed",
        "python/run.c",
        "task->handed_over && !ap__task_is_done(task) &&",
        "task->handed_over && !ap__state_is_done(ap_u32_load_relaxed(&task->state)) &&",
        (("gil_result", "hand-over, a deadline"),),
    ),
    Mutant(
        "settle-store",
        "python/observe.c",
        "                if (ap_u32_cas_acq_rel(&task->state, &before, to | (before & "
        "AP_OBSERVED))) {",
        "                ap_u32_store_release(&task->state, to | (before & AP_OBSERVED));\n"
        "                {",
        (("free_cancel", "cancel against start"),),
    ),
    Mutant(
        "settle-overrides-late",
        "python/observe.c",
        "                if (to & AP_OVERRIDE) {\n"
        "                    observer->outcome = outcome;\n"
        "                    observer->failed = failed;\n"
        "                    observer->traceback = traceback;\n"
        "                }\n",
        "",
        (("free_cancel", "set_result against start, a reader"),),
        more=(
            (
                "                    changed = true;",
                "                    if (to & AP_OVERRIDE) {\n"
                "                        observer->outcome = outcome;\n"
                "                        observer->failed = failed;\n"
                "                        observer->traceback = traceback;\n"
                "                    }\n"
                "                    changed = true;",
            ),
        ),
    ),
    Mutant(
        "settle-drops-call-always",
        "python/observe.c",
        "    if ((before & (AP_STATE | AP_TAKEN)) == AP_PENDING) /*",
        "    if (true) /*",
        (("free_cancel", "taking the call against start and cancel"),),
    ),
    Mutant(
        "settle-keeps-call",
        "python/observe.c",
        "    if ((before & (AP_STATE | AP_TAKEN)) == AP_PENDING) /*",
        "    if (false) /*",
        (("free_cancel", "cancel against start"),),
    ),
    Mutant(
        "settle-keeps-place",
        "python/observe.c",
        "                ap__bound_leave(task->core);",
        "                (void)0;",
        (("free_cancel", "cancel against start, bounded"),),
    ),
    Mutant(
        "start-keeps-place",
        "python/run.c",
        "                ap__bound_leave(task->core);",
        "                (void)0;",
        (("free_cancel", "cancel against start, bounded"),),
    ),
    Mutant(
        "settle-reads-state-relaxed-from",
        "python/observe.c",
        "            while (((1u << (before & AP_STATE)) & from)) {",
        "            while (from) {",
        (("free_cancel", "cancel against start"),),
    ),
    Mutant(
        "touch-no-mark",
        "python/future.c",
        "        /* pairs with the publishing CAS, which expects OBSERVED clear: observe.c */\n"
        "        ap_u32_or_acq_rel(&self->state, AP_OBSERVED);\n",
        "",
        (("free_observe", "condition against publish"),),
    ),
    Mutant(
        "touch-without-the-section",
        "python/future.c",
        "    Py_BEGIN_CRITICAL_SECTION(op);\n    ap__task_await_handover(self);\n    if (!*slot) {",
        "    {\n    ap__task_await_handover(self);\n    if (!*slot) {",
        (("free_observe", "2 conditions against publish"),),
        more=(
            (
                "    result = Py_NewRef(*slot);\n    Py_END_CRITICAL_SECTION();\n",
                "    result = Py_NewRef(*slot);\n    }\n",
            ),
        ),
    ),
    Mutant(
        "touch-does-not-await",
        "python/future.c",
        "    ap__task_await_handover(self);\n    if (!*slot) {",
        "    if (!*slot) {",
        (("gil_observe", "condition against hand-over"),),
    ),
    Mutant(
        "settle-ignores-a-late-condition",
        "python/observe.c",
        "again = observer && observer->condition != condition;",
        "again = false;",
        (("free_observe", "condition against cancel"),),
    ),
    Mutant(
        "settle-without-the-condition",
        "python/observe.c",
        "        if (condition)\n            ap__condition_acquire(condition);",
        "",
        (("gil_observe", "condition against publish"),),
        more=(
            (
                "        if (condition)\n            ap__condition_notify_all(condition);",
                "        if (condition) {\n            ap__condition_acquire(condition);\n"
                "            ap__condition_notify_all(condition);\n        }",
            ),
        ),
    ),
    Mutant(
        "settle-does-not-notify",
        "python/observe.c",
        "        if (condition)\n            ap__condition_notify_all(condition);",
        "",
        (("gil_observe", "condition against publish"),),
    ),
    Mutant(
        "settle-forgets-waiters",
        "python/observe.c",
        "                waiters = Py_XNewRef(observer->waiters);\n",
        "",
        (("gil_observe", "waiter in the condition"),),
    ),
    Mutant(
        "settle-callbacks-stay",
        "python/observe.c",
        "                observer->callbacks = observer->watchers = NULL;",
        "                (void)0;",
        (("gil_observe", "callback against publish"),),
    ),
    Mutant(
        "start-ignores-taken",
        "python/run.c",
        "    while ((state & (AP_STATE | AP_TAKEN)) == AP_PENDING) {",
        "    while ((state & AP_STATE) == AP_PENDING) {",
        (("free_cancel", "taking the call against start and cancel"),),
    ),
    Mutant(
        "take-store",
        "python/future.c",
        "        taken = ap_u32_cas_acq_rel(&self->state, &state, state | AP_TAKEN);",
        "        ap_u32_store_release(&self->state, state | AP_TAKEN);\n        taken = true;",
        (("free_cancel", "taking the call against start and cancel"),),
    ),
    Mutant(
        "set-running-store",
        "python/future.c",
        "        started =\n"
        "            ap_u32_cas_acq_rel(&self->state, &state, "
        "(state & ~(uint32_t)AP_TAKEN) | AP_RUNNING);",
        "        ap_u32_store_release(&self->state, (state & ~(uint32_t)AP_TAKEN) | AP_RUNNING);\n"
        "        started = true;",
        (("free_cancel", "set_running against start"),),
    ),
    Mutant(
        "take-call-clears-has-context",
        "python/future.c",
        "    self->outcome = self->args = self->fn = NULL;\n",
        "    self->outcome = self->args = self->fn = NULL;\n    self->has_context = false;\n",
        (("free_cancel", "taking the call against start and cancel"),),
    ),
    Mutant(
        "bound-no-wake",
        "python/bound.c",
        "        ap_wake_u32(&core->pending, 1);",
        "        (void)0;",
        (("gil_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-close-no-wake",
        "python/bound.c",
        "    ap_wake_u32(&core->pending, UINT32_MAX);",
        "/* nothing */",
        (("gil_bound", "bound, closed"),),
    ),
    Mutant(
        "bound-close-wakes-one",
        "python/bound.c",
        "    ap_wake_u32(&core->pending, UINT32_MAX);",
        "    ap_wake_u32(&core->pending, 1);",
        (("gil_bound", "bound, 2 are closed"),),
    ),
    Mutant(
        "bound-two-steps",
        "python/bound.c",
        "        if (ap_u32_cas_seq_cst(&core->pending, seen, *seen + 1))\n            return 1;",
        "        ap_u32_add_seq_cst(&core->pending, 1);\n        return 1;",
        (("free_bound", "bound, 2 leave"),),
    ),
    Mutant(
        "bound-close-store",
        "python/bound.c",
        "    ap_u32_or_seq_cst(&core->pending, CLOSED);",
        "    ap_u32_store_seq_cst(&core->pending, ap_u32_load_seq_cst(&core->pending) | CLOSED);",
        (("free_bound", "bound, 1 leaves, closed"),),
    ),
    Mutant(
        "bound-closed-unseen",
        "python/bound.c",
        "        if (*seen & CLOSED)\n            return -1;",
        "/* nothing */",
        (("gil_bound", "bound, closed"),),
    ),
    Mutant(
        "bound-blocked-relaxed",
        "python/bound.c",
        "    ap_u32_add_seq_cst(&core->blocked, 1);",
        "    ap_u32_add_relaxed(&core->blocked, 1);",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-blocked-late",
        "python/bound.c",
        "    ap_u32_add_seq_cst(&core->blocked, 1);\n",
        "",
        (("free_bound", "bound, 2 leave"),),
        more=(
            (
                "        ap__word_sleep(&core->pending,",
                "        if (!sleeps)\n"
                "            ap_u32_add_seq_cst(&core->blocked, 1);\n"
                "        ap__word_sleep(&core->pending,",
            ),
            (
                "    ap_u32_sub_seq_cst(&core->blocked, 1);",
                "    if (ap_u32_load_seq_cst(&core->blocked))\n"
                "        ap_u32_sub_seq_cst(&core->blocked, 1);",
            ),
        ),
    ),
    Mutant(
        "bound-look-relaxed",
        "python/bound.c",
        "    if (AP_LIKELY(ap_u32_load_seq_cst(&core->blocked) == 0))",
        "    if (AP_LIKELY(ap_u32_load_relaxed(&core->blocked) == 0))",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-leave-relaxed",
        "python/bound.c",
        "    ap_u32_sub_seq_cst(&core->pending, 1);\n    wake_one(core);",
        "    ap_u32_sub_relaxed(&core->pending, 1);\n    wake_one(core);",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-take-load-relaxed",
        "python/bound.c",
        "    *seen = ap_u32_load_seq_cst(&core->pending);",
        "    *seen = ap_u32_load_relaxed(&core->pending);",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-look-before-leave",
        "python/bound.c",
        "    ap_u32_sub_seq_cst(&core->pending, 1);\n    wake_one(core);",
        "    wake_one(core);\n    ap_u32_sub_seq_cst(&core->pending, 1);",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-no-pass-on",
        "python/bound.c",
        "    if (taken < 0)\n        wake_one(core);",
        "/* nothing */",
        (("gil_bound", "bound, the interpreter exits"),),
    ),
    Mutant(
        "bound-no-recheck",
        "python/bound.c",
        "    for (unsigned sleeps = 0; !(taken = take_place_try(core, &seen)); sleeps++) {",
        "    for (unsigned sleeps = 0; (seen = ap_u32_load_seq_cst(&core->pending)), sleeps == 0; "
        "sleeps++) {\n"
        "        taken = 1;",
        (("gil_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "bound-blocked-stays",
        "python/bound.c",
        "    ap_u32_sub_seq_cst(&core->blocked, 1);",
        "/* nothing */",
        (("free_bound", "bound, 1 leaves"),),
    ),
    Mutant(
        "post-no-wake",
        "python/completions.c",
        "        ap_wake_u32(&self->sequence, UINT32_MAX);",
        "        (void)0;",
        (("gil_observe", "watch against publish"),),
    ),
    Mutant(
        "post-look-relaxed",
        "python/completions.c",
        "    if (ap_u32_load_seq_cst(&self->sleepers))",
        "    if (ap_u32_load_relaxed(&self->sleepers))",
        (("free_observe", "watch against publish"),),
    ),
    Mutant(
        "get-no-second-look",
        "python/completions.c",
        "        if (ap_u32_load_seq_cst(&self->sequence) == sequence)\n"
        "            woken = ap__word_wait(&self->sequence, sequence, deadline);",
        "        woken = ap__word_wait(&self->sequence, ap_u32_load_seq_cst(&self->sequence), "
        "deadline);",
        (("free_observe", "watch against publish"),),
    ),
    Mutant(
        "get-sleepers-relaxed",
        "python/completions.c",
        "        ap_u32_add_seq_cst(&self->sleepers, 1);",
        "        ap_u32_add_relaxed(&self->sleepers, 1);",
        (("free_observe", "watch against publish"),),
    ),
    Mutant(
        "post-counts-first",
        "python/completions.c",
        "    Py_BEGIN_CRITICAL_SECTION(op);",
        "    ap_u32_add_seq_cst(&self->sequence, 1);\n    Py_BEGIN_CRITICAL_SECTION(op);",
        (("free_observe", "watch against publish"),),
        more=(
            (
                "    ap_u32_add_seq_cst(&self->sequence, 1);\n    /* step c:",
                "    /* step c:",
            ),
        ),
    ),
    Mutant(
        "condition-unlock-no-wake",
        "python/condition.c",
        "    if (ap_u32_exchange_acq_rel(&self->word, 0) == 2)\n"
        "        ap_wake_u32(&self->word, 1);",
        "    (void)ap_u32_exchange_acq_rel(&self->word, 0);",
        (("free_condition", "condition, 2 take"),),
    ),
    Mutant(
        "condition-unlock-reads-first",
        "python/condition.c",
        "    if (ap_u32_exchange_acq_rel(&self->word, 0) == 2)\n"
        "        ap_wake_u32(&self->word, 1);",
        "    uint32_t before = ap_u32_load_relaxed(&self->word);\n"
        "    ap_u32_store_release(&self->word, 0);\n"
        "    if (before == 2)\n"
        "        ap_wake_u32(&self->word, 1);",
        (("free_condition", "condition, 2 take"),),
    ),
    Mutant(
        "condition-unlock-relaxed",
        "python/condition.c",
        "ap_u32_exchange_acq_rel(&self->word, 0) == 2",
        "ap_u32_exchange_relaxed(&self->word, 0) == 2",
        (("free_condition", "condition, 2 take"),),
    ),
    Mutant(
        "condition-lock-relaxed",
        "python/condition.c",
        "while (ap_u32_exchange_acq_rel(&self->word, 2) != 0)",
        "while (ap_u32_exchange_relaxed(&self->word, 2) != 0)",
        (("free_condition", "condition, 2 take"),),
    ),
    Mutant(
        "condition-lock-forgets-sleepers",
        "python/condition.c",
        "while (ap_u32_exchange_acq_rel(&self->word, 2) != 0)",
        "while ((expected = 0, !ap_u32_cas_acq_rel(&self->word, &expected, 1)) &&\n"
        "               ap_u32_exchange_acq_rel(&self->word, 2) != 0)",
        (("free_condition", "condition, 3 take"),),
    ),
    Mutant(
        "condition-owner-cleared-late",
        "python/condition.c",
        "static void unlock(ap_condition *self) {\n    ap_u64_store_relaxed(&self->owner, 0);\n",
        "static void unlock(ap_condition *self) {\n",
        (("free_condition", "condition, 2 take"),),
        more=(
            (
                "        ap_wake_u32(&self->word, 1);\n",
                "        ap_wake_u32(&self->word, 1);\n"
                "    ap_u64_store_relaxed(&self->owner, 0);\n",
            ),
        ),
    ),
    Mutant(
        "condition-glance-waits",
        "python/condition.c",
        "            if (deadline != AP_FOREVER && ap_clock_now() >= deadline)\n"
        "                return 0;\n",
        "",
        (("free_condition", "condition, one only"),),
    ),
    Mutant(
        "condition-notify-no-step",
        "python/condition.c",
        "    ap_u32_add_acq_rel(&self->sequence, 1);\n",
        "",
        (("free_condition", "condition, 1 waits"),),
    ),
    Mutant(
        "leave-reads-pending-relaxed",
        "python/bound.c",
        "if ((ap_u32_load_seq_cst(&core->pending) & ~CLOSED)",
        "if ((ap_u32_load_relaxed(&core->pending) & ~CLOSED)",
        (("free_bound", "bound, the interpreter exits"),),
    ),
    Mutant(
        "missed-not-told",
        "python/completions.c",
        "        ap_u32_store_release(&self->missed, 1);\n",
        "",
        MISSED,
    ),
    Mutant(
        "missed-ignored",
        "python/completions.c",
        "if (ap_u32_load_relaxed(&self->missed) && ap_u32_exchange_acq_rel(&self->missed, 0))",
        "if (false)",
        MISSED,
    ),
    Mutant(
        "missed-after-the-number",
        "python/completions.c",
        "        ap_u32_store_release(&self->missed, 1);\n    }\n",
        "    }\n",
        MISSED,
        more=(
            (
                "    ap_u32_add_seq_cst(&self->sequence, 1);\n",
                "    ap_u32_add_seq_cst(&self->sequence, 1);\n"
                "    if (failed)\n        ap_u32_store_release(&self->missed, 1);\n",
            ),
        ),
    ),
    Mutant(
        "missed-is-seen-late",
        "python/completions.c",
        "uint32_t sequence = ap_u32_load_acquire(&self->sequence);",
        "uint32_t sequence = ap_u32_load_relaxed(&self->sequence);",
        MISSED,
    ),
    Mutant(
        "missed-is-left",
        "python/completions.c",
        "ap_u32_exchange_acq_rel(&self->missed, 0))",
        "ap_u32_load_relaxed(&self->missed))",
        MISSED,
    ),
    Mutant(
        "get-takes-an-empty-list",
        "python/completions.c",
        "if (done && PyList_GET_SIZE(done))",
        "if (done)",
        MISSED,
    ),
    Mutant(
        "condition-notify-no-wake",
        "python/condition.c",
        "    ap_wake_u32(&self->sequence, UINT32_MAX);",
        "    (void)self;",
        (("free_condition", "condition, 1 waits"),),
    ),
    Mutant(
        "condition-notify-wakes-one",
        "python/condition.c",
        "    ap_wake_u32(&self->sequence, UINT32_MAX);",
        "    ap_wake_u32(&self->sequence, 1);",
        (("free_condition", "condition, 2 wait"),),
    ),
    Mutant(
        "condition-wait-unlocks-first",
        "python/condition.c",
        "    uint32_t sequence = ap_u32_load_acquire(&self->sequence);\n"
        "    uint32_t depth = self->depth;\n"
        "    self->depth = 0;\n"
        "    unlock(self);\n",
        "    uint32_t depth = self->depth;\n"
        "    self->depth = 0;\n"
        "    unlock(self);\n"
        "    uint32_t sequence = ap_u32_load_acquire(&self->sequence);\n",
        (("free_condition", "condition, 1 waits"),),
    ),
    Mutant(
        "condition-wait-does-not-lock",
        "python/condition.c",
        "    lock(self, AP_FOREVER, false);\n    self->depth = depth;",
        "    self->depth = depth;",
        (("free_condition", "condition, 1 waits"),),
    ),
    Mutant(
        "condition-wait-forgets-depth",
        "python/condition.c",
        "    self->depth = depth;\n",
        "    (void)depth;\n",
        (("free_condition", "condition, 1 waits"),),
    ),
    Mutant(
        "untaken-does-not-await",
        "python/untaken.c",
        "    while (!(header = ap_pool_take_try(pool)) && ap_pool_pending(pool))\n"
        "        ap_cpu_yield();\n",
        "    header = ap_pool_take_try(pool);\n",
        (("free_untaken", "submit against the last"),),
    ),
    Mutant(
        "untaken-cancels-one",
        "python/untaken.c",
        "    while (!ap__core_is_orphaned(self->core) && (header",
        "    if (!ap__core_is_orphaned(self->core) && (header",
        (("free_untaken", "2 submits"),),
    ),
    Mutant(
        "stranded-looks-acquire",
        "python/submit.h",
        "    return ap_u32_load_seq_cst(&core->started) == 0;",
        "    return ap_u32_load_acquire(&core->started) == 0;",
        (("free_untaken", "submit against the last"),),
    ),
    Mutant(
        "stranded-does-not-look",
        "python/submit.h",
        "    return AP_UNLIKELY(ap__core_has_no_threads(core));",
        "    return (void)core, false;",
        (("free_untaken", "submit against the last"),),
    ),
    # ---- which submit starts a thread -----------------------------------------------------------
    Mutant(
        "start-thread-owes",
        "python/worker.c",
        ".thread = PyThreadState_Get()}",
        ".thread = PyThreadState_Get(), .owed = 1}",
        (("free_start", "2 that block, 1 before"),),
    ),
    Mutant(
        "start-worker-owes-nothing",
        "python/worker.c",
        "    self->owed += task->counted;\n",
        "",
        (("free_start", "3 in turn"),),
    ),
    Mutant(
        "start-worker-owes-again",
        "python/worker.c",
        "    uint32_t owed = self->owed;\n    self->owed = 0;\n",
        "    uint32_t owed = self->owed;\n",
        (("free_start", "2 in turn, then"),),
    ),
    Mutant(
        "start-promised-is-owed",
        "python/worker.c",
        "    if (AP_UNLIKELY(is_struck(self)))",
        "    self->owed += task->counted;\n    if (AP_UNLIKELY(is_struck(self)))",
        (("free_start", "2 that block, 1 before, its worker"),),
        more=(
            (
                "    self->owed += task->counted;\n    if (ap__task_start(task)) {",
                "    if (ap__task_start(task)) {",
            ),
        ),
    ),
    Mutant(
        "start-publishes-first",
        "python/worker.c",
        "        count_idle(self);\n        if (last) {\n            ap__task_publish(last);\n"
        "            Py_DECREF(last);\n        }\n",
        "        if (last) {\n            ap__task_publish(last);\n            Py_DECREF(last);\n"
        "        }\n        count_idle(self);\n",
        (("free_start", "3 in turn"),),
    ),
    Mutant(
        "start-counts-by-store",
        "python/start.c",
        "    } while (!ap_u64_cas_acq_rel(&core->counted_on, &counted, counted + 1));",
        "    } while (false);\n    ap_u64_store_release(&core->counted_on, counted + 1);",
        (("free_start", "1 and 1 that block, 1 before"),),
    ),
    Mutant(
        "start-counts-nothing",
        "python/start.c",
        "        ap_u64_store_relaxed(&core->counted_on, counted + 1);",
        "",
        (("gil_start", "2 that block, 1 before"),),
    ),
    Mutant(
        "start-seen-is-not-counted",
        "python/bridge.h",
        "    ap_u64_store_relaxed(seen, ap_u64_load_relaxed(seen) + 1);",
        "    (void)seen;",
        (("gil_start", "3 in turn"),),
    ),
    Mutant(
        "start-seen-is-counted-twice",
        "python/bridge.h",
        "    task->handed_over = false; /* hand-overs need a GIL,",
        "    /* hand-overs need a GIL,",
        (("gil_start", "2 in turn, then"),),
    ),
    Mutant(
        "start-place-by-store",
        "python/start.c",
        "    } while (!ap_u32_cas_seq_cst(&core->started, &started, started + 1));",
        "    } while (false);\n    ap_u32_store_seq_cst(&core->started, started + 1);",
        (("free_start", "1 and 1 that block, one worker"),),
    ),
    Mutant(
        "start-refused-is-not-noted",
        "python/start.c",
        "        if (*others || interrupted)",
        "        if (false)",
        (("free_start", "2 that block, 1 before, a start"),),
    ),
    Mutant(
        "start-no-place-is-not-noted",
        "python/start.c",
        "            ap__core_lack(core, 1);\n            return 0;",
        "            return 0;",
        (("free_start", "1 and 1 in turn"),),
    ),
    Mutant(
        "start-ignores-idle",
        "python/start.c",
        "    uint64_t counted = ap_u64_load_relaxed(&core->counted_on);",
        "    uint64_t counted = UINT64_MAX;",
        (("free_start", "3 in turn"),),
    ),
    # ---- tasks that are promised ------------------------------------------------------------
    Mutant(
        "promised-look-in-2-steps",
        "python/untaken.c",
        "    if (header)\n        task = ap__task_from_header(header);\n    ap_u32_add_relaxed(",
        "    if (header)\n        task = ap__task_from_header(header);\n"
        "    Py_END_CRITICAL_SECTION();\n"
        "    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);\n    ap_u32_add_relaxed(",
        (("free_promised", "shutdown"),),
    ),
    Mutant(
        "promised-look-is-not-counted",
        "python/untaken.c",
        "    ap_u32_add_relaxed(&self->core->begun, 1);\n",
        "",
        (("gil_promised", "shutdown"),),
    ),
    Mutant(
        "promised-look-does-not-see-it",
        "python/untaken.c",
        "    task = pop_promised(self);\n    if (task && worker)\n",
        "    if (task && worker)\n",
        (("gil_promised", "shutdown"),),
    ),
    Mutant(
        "promised-look-takes-the-queued",
        "python/untaken.c",
        "    ap_task *header = task || !worker ? NULL : ap_worker_take_try(worker);\n",
        "    ap_task *header = !worker ? NULL : ap_worker_take_try(worker);\n",
        (("free_promised", "shutdown"),),
    ),
    Mutant(
        "promised-nothing",
        "python/untaken.c",
        "    while ((uint32_t)PyList_GET_SIZE(self->promised) < unbegun(core) &&",
        "    while (false &&",
        (("gil_promised", "shutdown"),),
    ),
    Mutant(
        "promised-whatever-has-looked",
        "python/untaken.c",
        "(ap_u32_load_relaxed(&core->started) - ap_u32_load_relaxed(&core->begun));",
        "ap_u32_load_relaxed(&core->started);",
        (("gil_promised", "shutdown"),),
    ),
    Mutant(
        "promised-is-not-adopted",
        "python/untaken.c",
        "    if (task && worker)\n        ap_worker_adopt(worker);\n",
        "",
        (("gil_promised", "shutdown"),),
    ),
    Mutant(
        "promised-is-told-twice",
        "python/untaken.c",
        "    if (!ap__task_cancel(task))\n        return;\n",
        "    (void)ap__task_cancel(task);\n",
        (("gil_promised", "shutdown_now"),),
    ),
    Mutant(
        "promised-is-not-trimmed",
        "python/untaken.c",
        "> unbegun(self->core))\n            task = pop_promised(self);",
        "> unbegun(self->core))\n            task = NULL;",
        (("gil_promised", ""),),
    ),
    Mutant(
        "promised-trim-outside",
        "python/untaken.c",
        "        if (self->promised && (uint32_t)PyList_GET_SIZE(self->promised) > "
        "unbegun(self->core))\n            task = pop_promised(self);\n"
        "        Py_END_CRITICAL_SECTION();",
        "        more = self->promised && (uint32_t)PyList_GET_SIZE(self->promised) > "
        "unbegun(self->core);\n        Py_END_CRITICAL_SECTION();\n"
        "        Py_BEGIN_CRITICAL_SECTION((PyObject *)self);\n"
        "        if (more)\n            task = pop_promised(self);\n"
        "        Py_END_CRITICAL_SECTION();",
        (("free_promised", "shutdown, 2 promised"),),
        more=(
            (
                "    for (;;) {\n        ap_pytask *task = NULL;\n",
                "    for (;;) {\n        ap_pytask *task = NULL;\n        bool more;\n",
            ),
        ),
    ),
    Mutant(
        "promised-trim-is-not-dealt",
        "python/untaken.c",
        "        Py_XDECREF(task);\n        ap_pool_dealt(self->core->pool);\n",
        "        Py_XDECREF(task);\n",
        (("gil_promised", ""),),
    ),
    Mutant(
        "promised-trim-does-not-look",
        "python/untaken.c",
        "        if (!ap_u32_load_seq_cst(&self->core->started))\n"
        "            ap__core_cancel_queued(self);\n",
        "",
        (("free_promised", "2 promised"),),
    ),
    Mutant(
        "promised-trim-looks-acquire",
        "python/untaken.c",
        "        if (!ap_u32_load_seq_cst(&self->core->started))",
        "        if (!ap_u32_load_acquire(&self->core->started))",
        (("free_promised", "1 promised"),),
    ),
    Mutant(
        "refused-start-looks-relaxed",
        "python/start.c",
        "        started = ap_u32_load_seq_cst(&core->started);",
        "        started = ap_u32_load_acquire(&core->started);",
        (("free_promised", "a start is refused"),),
    ),
    Mutant(
        "refused-start-keeps-its-place",
        "python/start.c",
        "        *others = ap_u32_sub_seq_cst(&core->started, 1) - 1;",
        "        *others = ap_u32_load_seq_cst(&core->started) - 1;",
        (("gil_promised", ""),),
    ),
    Mutant(
        "refused-start-does-not-look",
        "python/start.c",
        "        if (ap__core_has_no_threads(core))\n",
        "        if (false)\n",
        (("gil_promised", "a start is refused"),),
    ),
    Mutant(
        "refused-start-does-not-trim",
        "python/start.c",
        "        ap__core_trim_promised(object);\n        if (ap__core",
        "        if (ap__core",
        (("gil_promised", ""),),
    ),
    Mutant(
        "interrupted-start-forgets-others",
        "python/start.c",
        "    if (interrupted && !others)\n        start_for_others(op, core);\n",
        "    (void)start_for_others;\n",
        (("gil_promised", "a start is interrupted"),),
    ),
    # ---- a thread's place -----------------------------------------------------------------------
    Mutant(
        "home-fate-is-not-asked",
        "python/home.c",
        "    if (!ap__task_start(self->fate))\n        Py_RETURN_NONE;\n",
        "    (void)ap__task_start(self->fate);\n",
        (("gil_home", "a start is interrupted"),),
    ),
    Mutant(
        "home-entry-keeps-the-place",
        "python/home.c",
        "    if (!unstarted && ap__task_start(self->fate)) {",
        "    if (false) {",
        (("gil_home", "a thread begins"),),
    ),
    Mutant(
        "home-entry-asks-only-where",
        "python/home.c",
        "    unstarted = unstarted && PyErr_Occurred();",
        "",
        (("free_home", "a thread begins"),),
    ),
    Mutant(
        "home-entry-gives-up-if-refused",
        "python/home.c",
        "    bool unstarted = self->maker == PyThread_get_thread_ident();",
        "    bool unstarted = false;",
        (("gil_home", "a start is refused"),),
    ),
    Mutant(
        "home-entry-does-not-ask-the-fate",
        "python/home.c",
        "    if (!unstarted && ap__task_start(self->fate)) {",
        "    if (!unstarted) {",
        (("gil_home", ""),),
    ),
    Mutant(
        "home-settles-nothing",
        "python/home.c",
        "    if (own_guard)\n        Py_CLEAR(own_guard->core);",
        "    (void)own_guard;",
        (("gil_home", "a thread begins"),),
    ),
    Mutant(
        "home-loses-unsettled",
        "python/home.c",
        "    if (unsettled) {\n        ap__home_settle();",
        "    if (unsettled) {",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-guard-ends-twice",
        "python/home.c",
        "        return;\n    own_guard = NULL;\n",
        "        return;\n",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-guard-gives-nothing-up",
        "python/home.c",
        "    leave(self->core, self->gone);\n}\n\nstatic void guard_dealloc",
        "    leave(NULL, self->gone);\n}\n\nstatic void guard_dealloc",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-without-guard-keeps-the-place",
        "python/home.c",
        "        PyErr_Clear();\n        leave(core, gone);\n",
        "        PyErr_Clear();\n",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-loses-acq-rel",
        "python/home.c",
        "    uint32_t rest = ap_u32_sub_seq_cst(&self->core->started, 1) - 1;",
        "    uint32_t rest = ap_u32_sub_acq_rel(&self->core->started, 1) - 1;",
        (("free_home", "somebody counts"),),
    ),
    Mutant(
        "home-loses-without-a-look",
        "python/home.c",
        "    if (!rest)\n        ap__core_cancel_queued(self);",
        "    (void)rest;",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-lost-is-counted-on",
        "python/home.c",
        "    ap_u64_add_relaxed(&self->core->counted_on, AP_ON_NOBODY);",
        "",
        (("gil_home", "a thread is struck"),),
    ),
    Mutant(
        "home-gone-does-not-end",
        "python/home.c",
        "        ap__task_publish(gone);\n",
        "",
        (("gil_home", "somebody joins"),),
    ),
    Mutant(
        "home-gone-ends-first",
        "python/home.c",
        "    if (lost)\n        lose_worker(unsettled);\n",
        "",
        (("free_home", "somebody joins"),),
        more=(
            (
                "        ap__task_publish(gone);\n    }\n",
                "        ap__task_publish(gone);\n    }\n"
                "    if (lost)\n        lose_worker(unsettled);\n",
            ),
        ),
    ),
    Mutant(
        "refused-start-does-not-ask-the-fate",
        "python/start.c",
        "        refused = (ap_u32_load_acquire(&fate->state) & AP_STATE) == AP_CANCELLED;",
        "        refused = true;",
        (("gil_home", "a start is interrupted"),),
    ),
    Mutant(
        "refused-start-does-not-cancel",
        "python/start.c",
        "        (void)ap__task_cancel(fate); /* perhaps",
        "        /* perhaps",
        (("gil_home", "a start is refused"),),
    ),
    Mutant(
        "refused-start-keeps-joiners",
        "python/start.c",
        "    for (int i = 0; refused && i < INTERRUPTS_MOST; i++) {",
        "    for (int i = 0; false && i < INTERRUPTS_MOST; i++) {",
        (("gil_home", "somebody joins"),),
    ),
    Mutant(
        "pin-relaxed-unpin",
        "python/bridge.h",
        "        ap_u32_sub_seq_cst(&task->core->pins, 1);",
        "        ap_u32_sub_relaxed(&task->core->pins, 1);",
        (("free_pins", ""),),
    ),
    Mutant(
        "pin-nothing",
        "python/bridge.h",
        "        ap_u32_add_seq_cst(&task->core->pins, 1);",
        "        (void)0;",
        (("free_pins", ""),),
        more=(("        ap_u32_sub_seq_cst(&task->core->pins, 1);", "        (void)0;"),),
    ),
    Mutant(
        "take-unpins-first",
        "python/future.c",
        "    if (taken && self->bounded)\n"
        "        ap__bound_leave(self->core);\n"
        "    ap__bound_unpin(self);",
        "    ap__bound_unpin(self);\n"
        "    if (taken && self->bounded)\n"
        "        ap__bound_leave(self->core);",
        (("free_pins", "next pool against taking"),),
    ),
    Mutant(
        "set-running-unpins-first",
        "python/future.c",
        "    if (started && !(state & AP_TAKEN) && self->bounded)\n"
        "        ap__bound_leave(self->core);\n    ap__bound_unpin(self);",
        "    ap__bound_unpin(self);\n    if (started && !(state & AP_TAKEN) && self->bounded)\n"
        "        ap__bound_leave(self->core);",
        (("free_pins", "next pool against set_running"),),
    ),
    # ---- the loop of a worker ------------------------------------------------------------------
    Mutant(
        "worker-dry-does-not-publish",
        "python/worker.c",
        "            ap__task_publish(last);\n            Py_DECREF(last);\n        }\n",
        "        }\n",
        FREE_LOOP,
    ),
    Mutant(
        "worker-dry-does-not-hand-over",
        "python/worker.c",
        "if (last && ap__task_hand_over(last)) {",
        "if (last) {\n        Py_DECREF(last);\n        (void)PyEval_SaveThread();",
        GIL_LOOP,
    ),
    Mutant(
        "worker-next-does-not-publish",
        "python/worker.c",
        "        } else if (self->last) {\n            publish_last(self);\n        }\n",
        "        }\n",
        LOOP,
    ),
    Mutant(
        "worker-end-does-not-publish",
        "python/worker.c",
        "    if (self->last)\n        publish_last(self);\n    set_busy(self, false);\n",
        "    set_busy(self, false);\n",
        (("gil_worker", "worker, 2 tasks, a fault"),),
    ),
    Mutant(
        "worker-publishes-twice",
        "python/worker.c",
        "    ap_pytask *last = self->last;\n    self->last = NULL;\n    ap__task_publish(last);\n",
        "    ap_pytask *last = self->last;\n    ap__task_publish(last);\n",
        (("gil_worker", "worker, 2 tasks, all"),),
    ),
    Mutant(
        "worker-keeps-its-reference",
        "python/worker.c",
        "    ap__task_publish(last);\n    Py_DECREF(last);\n}",
        "    ap__task_publish(last);\n}",
        LOOP,
    ),
    Mutant(
        "worker-keeps-what-it-may-not-start",
        "python/worker.c",
        "    } else {\n        Py_DECREF(task);\n    }\n    let_others_run(self);",
        "    }\n    let_others_run(self);",
        (("gil_worker", "worker, 1 task, cancelled"),),
    ),
    Mutant(
        "worker-starts-what-it-may-not",
        "python/worker.c",
        "    if (ap__task_start(task)) {",
        "    (void)ap__task_start(task);\n    {",
        (("gil_worker", "worker, 1 task, cancelled"),),
        more=(
            (
                "        self->last = task;\n    } else {\n        Py_DECREF(task);\n    }\n",
                "        self->last = task;\n    }\n",
            ),
        ),
    ),
    Mutant(
        "worker-parks-attached",
        "python/worker.c",
        "        (void)PyEval_SaveThread();\n    }\n",
        "    }\n",
        LOOP,
    ),
    Mutant(
        "worker-parks-once",
        "python/worker.c",
        "    while (!(task = ap_worker_search(self->worker))) {\n"
        "        if (ap_worker_park(self->worker) == AP_E_CLOSED)\n            break;\n    }\n",
        "    if (!(task = ap_worker_search(self->worker)) &&\n"
        "        ap_worker_park(self->worker) != AP_E_CLOSED)\n"
        "        task = ap_worker_search(self->worker);\n",
        (("free_worker", "worker, 2 tasks"),),
    ),
    Mutant(
        "worker-does-not-see-the-end",
        "python/worker.c",
        "        if (ap_worker_park(self->worker) == AP_E_CLOSED)\n            break;\n",
        "        (void)ap_worker_park(self->worker);\n",
        LOOP,
    ),
    Mutant(
        "worker-struck-goes-on",
        "python/worker.c",
        "    self->ended = true;\n    PyObject *type, *traceback;",
        "    PyObject *type, *traceback;",
        STRUCK,
    ),
    Mutant(
        "worker-does-not-look-whether-struck",
        "python/worker.c",
        "    if (AP_UNLIKELY(is_struck(self)))\n        breathe(self);\n",
        "",
        (("gil_worker", "worker, struck before"),),
    ),
    Mutant(
        "worker-struck-drops-its-task",
        "python/worker.c",
        "        ap__core_promise(self->object, task);\n",
        "        Py_DECREF(task);\n",
        STRUCK,
    ),
    Mutant(
        "worker-struck-still-counts-it",
        "python/worker.c",
        "        if (self->worker)\n            ap_worker_disown(self->worker);\n",
        "",
        STRUCK,
    ),
    Mutant(
        "worker-struck-runs-it-too",
        "python/worker.c",
        "            ap_worker_disown(self->worker);\n        return;\n",
        "            ap_worker_disown(self->worker);\n",
        STRUCK,
    ),
    Mutant(
        "worker-struck-keeps-its-begin",
        "python/worker.c",
        "        ap_u32_sub_relaxed(&self->core->begun, 1);",
        "        (void)0;",
        STRUCK,
    ),
    Mutant(
        "worker-struck-stays",
        "python/worker.c",
        "    if (AP_UNLIKELY(self->ended))\n        return true;\n",
        "",
        (("gil_worker", "worker, 2 tasks, struck"),),
    ),
    Mutant(
        "worker-struck-says-all-is-well",
        "python/worker.c",
        "    if (self->ended && !orphaned)\n        return AP_PYTHON_WORKER_ENDED;\n",
        "",
        STRUCK,
    ),
    Mutant(
        "worker-struck-leaves-its-place",
        "python/worker.c",
        "    if (is_worker && !orphaned)\n        ap_worker_end(self->worker);\n",
        "    if (is_worker && !orphaned && !self->ended)\n        ap_worker_end(self->worker);\n",
        STRUCK,
    ),
    Mutant(
        "worker-late-does-not-count-its-task",
        "python/worker.c",
        "    if (first && !is_worker && !left)\n        ap_pool_dealt(self->core->pool);\n",
        "",
        STRUCK,
    ),
    Mutant(
        "worker-late-ignores-its-task",
        "python/worker.c",
        "    if (first) {\n",
        "    if (first && is_worker) {\n",
        STRUCK,
    ),
    Mutant(
        "worker-leaves-uncounted",
        "python/worker.c",
        "        if (ap_u32_cas_acq_rel(&self->core->leave, &leave, leave - 1)) {\n",
        "        ap_u32_store_relaxed(&self->core->leave, leave - 1);\n        {\n",
        (("free_worker", "worker, 2 tasks, 2 workers, a fault"),),
    ),
    Mutant(
        "worker-leaves-without-counting",
        "python/worker.c",
        "        if (ap_u32_cas_acq_rel(&self->core->leave, &leave, leave - 1)) {\n",
        "        {\n",
        (("free_worker", "worker, 2 tasks, a fault"),),
    ),
    Mutant(
        "worker-does-not-leave",
        "python/worker.c",
        "            self->ended = true;\n            return true;\n",
        "            return false;\n",
        (("free_worker", "worker, 2 tasks, a fault"),),
    ),
    Mutant(
        "worker-dry-stays-busy",
        "python/worker.c",
        "static ap_task *go_dry(loop *self) {\n    set_busy(self, false);\n",
        "static ap_task *go_dry(loop *self) {\n",
        (("free_worker", "worker, 2 tasks in turns"),),
    ),
    Mutant(
        "worker-is-never-busy",
        "python/worker.c",
        "    set_busy(self, true);\n",
        "",
        (("free_worker", "worker, 1 task"),),
    ),
    Mutant(
        "worker-end-stays-busy",
        "python/worker.c",
        "        publish_last(self);\n    set_busy(self, false);\n    bool orphaned",
        "        publish_last(self);\n    bool orphaned",
        (("free_worker", "worker, 2 tasks, a fault"),),
    ),
    Mutant(
        "worker-end-not-settled",
        "python/worker.c",
        "        return AP_PYTHON_WORKER_ENDED;\n    ap__home_settle();\n",
        "        return AP_PYTHON_WORKER_ENDED;\n",
        GIL_LOOP,
    ),
    Mutant(
        "worker-too-many-not-settled",
        "python/worker.c",
        "it takes no promised task */\n        ap__home_settle();\n",
        "it takes no promised task */\n",
        (("gil_worker", "worker, 1 task, a thread too many"),),
    ),
    Mutant(
        "worker-too-many-not-counted",
        "python/worker.c",
        "        ap_u32_add_relaxed(&self.core->begun, 1);\n",
        "",
        (("gil_worker", "worker, 1 task, a thread too many"),),
    ),
    Mutant(
        "worker-keeps-the-core",
        "python/worker.c",
        "    Py_DECREF(object);\n    PyGILState_Release(state);\n    return code;",
        "    PyGILState_Release(state);\n    return code;",
        GIL_LOOP,
    ),
    # ---- the end of the interpreter --------------------------------------------------------------
    Mutant(
        "exit-is-not-said",
        "python/module.c",
        "    ap_u32_store_seq_cst(&ap__interpreter_exiting, (uint32_t)exiting);\n",
        "",
        EXIT,
    ),
    Mutant(
        "exit-is-not-asked",
        "python/module.c",
        "ap_u32_load_seq_cst(&ap__interpreter_exiting) != 0",
        "false",
        EXIT,
    ),
    Mutant(
        "exit-is-said-to-be-over",
        "python/module.c",
        "(uint32_t)exiting);",
        "(uint32_t)!exiting);",
        EXIT,
    ),
    # ---- forked children -------------------------------------------------------------------------
    Mutant(
        "fork-cancels-what-is-done",
        "python/fork.c",
        "    if (!ap__state_is_done(state)) {\n",
        "    {\n",
        FORK,
    ),
    Mutant(
        "fork-cancels-nothing",
        "python/fork.c",
        "        ap_u32_store_release(&task->state, AP_CANCELLED);\n",
        "",
        FORK,
    ),
    Mutant(
        "fork-keeps-the-call",
        "python/fork.c",
        "    if (cancelled)\n        ap__task_drop_call(task);\n",
        "    (void)cancelled;\n",
        FORK,
    ),
    Mutant(
        "fork-marks-no-core",
        "python/fork.c",
        "    ap__core_orphan_all();\n",
        "",
        FORK,
    ),
    Mutant(
        "fork-its-own-task-does-not-survive",
        "python/fork.c",
        "        task->survives = true;\n",
        "",
        FORK_TASK,
    ),
    Mutant(
        "fork-its-own-task-has-no-number",
        "python/fork.c",
        "        task->nargs = (uint16_t)ap__forks; /* its call has been made */\n",
        "",
        FORK_TASK,
    ),
    Mutant(
        "fork-is-not-looked-at",
        "python/future.c",
        "    ap__task_check_fork((ap_pytask *)op);\n    /* as above */\n",
        "    /* as above */\n",
        FORK,
    ),
    Mutant(
        "fork-in-a-wait-is-not-looked-at",
        "python/block.c",
        "        ap__task_check_fork(task); /* a signal handler may have forked */\n",
        "",
        (("free_fork", "fork, in a wait"),),
    ),
    Mutant(
        "fork-awaits-who-is-not-there",
        "python/run.c",
        "!ap__task_is_done(task) && !is_orphan(task); round++",
        "!ap__task_is_done(task); round++",
        (("gil_fork", "fork, a task that is handed over, and dropped"),),
    ),
    Mutant(
        "fork-worker-stays",
        "python/worker.c",
        "        if (leave & AP_ORPHANED)\n            return true;\n",
        "        if (leave & AP_ORPHANED)\n            return false;\n",
        FORK_TASK,
    ),
    Mutant(
        "fork-worker-ends-in-the-pool",
        "python/worker.c",
        "    if (is_worker && !orphaned)\n",
        "    if (is_worker)\n",
        FORK_TASK,
    ),
    Mutant(
        "fork-child-has-a-home",
        "python/fork.c",
        "    ap__home = NULL; /* the thread of a worker lives on as the child's main thread */\n",
        "",
        FORK_TASK,
    ),
    Mutant(
        "fork-outer-tasks-do-not-survive",
        "python/fork.c",
        "task; task = task->outer) {",
        "task; task = NULL) {",
        (("gil_fork", "fork, in a task that another"),),
    ),
    Mutant(
        "fork-collector-is-not-told",
        "python/completions.c",
        "        if (is_news(self))\n            Py_RETURN_NONE;\n",
        "        (void)is_news;\n",
        (("gil_fork", "fork, between"),),
    ),
    Mutant(
        "fork-collector-is-told-again",
        "python/completions.c",
        "ap_u32_exchange_relaxed(&self->forks, ap__forks) != ap__forks",
        "true",
        (("gil_fork", "fork, between"),),
    ),
    Mutant(
        "fork-condition-is-kept",
        "python/condition.c",
        "        renew(self);\n",
        "        (void)renew;\n",
        (("gil_fork", "fork, in a task whose"),),
    ),
    Mutant(
        "fork-condition-is-taken-from-its-owner",
        "python/condition.c",
        "if (ap_u64_load_relaxed(&self->owner) != ap__hooks.main_thread) {",
        "{",
        (("gil_fork", "fork, who has"),),
    ),
    Mutant(
        "fork-condition-keeps-its-word",
        "python/condition.c",
        "            ap_u32_store_relaxed(&self->word, 0);\n",
        "",
        (("gil_fork", "fork, in a task whose"),),
    ),
    Mutant(
        "fork-condition-keeps-its-depth",
        "python/condition.c",
        "            self->depth = 0;\n",
        "",
        (("gil_fork", "fork, a task whose condition"),),
    ),
]

# Changes that no execution can tell from the real code, as in catalogue.py.
EQUIVALENT = {
    "a batch whose start is refused lacks nothing": "batch.c is in no model: "
    "tests/faults/test_deadlock.py, exceptions from outside at any point of submit_many",
    "OBSERVED set relaxed": "who is told that the task is done loads the state again, acquire, "
    "before it reads the outcome; entries are read in the critical section",
    "the entry of a task that was done already stays in the list": "nobody reads that list again, "
    "it is freed with the task",
    "settling forgets OBSERVED": "of a task that is done nobody asks for it",
    "settling does not pin the core": "it gives the place back in the task's critical section, "
    "which the settling of core_dealloc takes as well",
    "settling reads the state relaxed": "core_dealloc would have to see a late state and an early "
    "`pins`: a seq_cst load that comes before an older relaxed one, which the explorer has not",
    "the flag of an interpreter that exits is stored, or loaded, relaxed": "in between both sides "
    "take the lock of the dictionary of live threads, or the GIL: who comes second sees the other",
    "a submit does not look at the flag": "a hint: what it pushes is refused, or run",
    "a child's task keeps or frees its observer, gets no fresh one, or stays handed over": "nobody "
    "reads those of a task that is done, but perhaps frames of the thread that forked",
    "a child keeps the number of sleepers": "a hint",
    "the number of the fork stays": "one fork is modelled; it tells two apart",
    "a worker does not look at `cancelling`": "a hint: what misses it is run",
    "a worker does not let others run, or await their release": "who gets the interpreter when is "
    "no matter of these protocols",
    "trimming pushes although no thread is left": "it looks at the queue after that",
    "a refused start gives its place up acq_rel": "before it looks at the queue it asks, "
    "seq_cst, whether threads are left",
    "`idled` and `counted_on` with more order": "they are relaxed: nothing is read behind them",
    "a worker owes one, not one for each task that it took in turn": "more threads than are needed "
    "start, never too few",
    "seen_idle counts a task whose worker owes nothing": "only where a start was refused, or a "
    "thread lost, and later submits count on nobody",
    "an outcome that lost against set_result is not dropped at once": "it is dropped with the task",
}
