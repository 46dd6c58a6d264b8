"""The mutants of the C core: each is one way in which a protocol could be wrong.

A mutant replaces one piece of text of one file, which has to be there exactly once (or so often as
`occurrence` says); so an entry that the code has left behind is noticed.  `seen_by` names the
programs of tests/model that are run, and the beginnings of the names of their cases, in the order
in which they are tried.

EQUIVALENT lists changes that no execution can show, with the reason; COMING what has no code yet.
"""

from __future__ import annotations

from mutant import Mutant


def park(*rest: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Seen by the models of parking."""
    return (*rest, ("model_park", ""))


INJECTOR = (("model_injector", ""),)
NAP = (("model_park", "park, 1 producer, 1 worker that naps"),)
RING = (("model_ring", ""),)
BLOCK = (("model_block", ""), ("model_injector", ""))
END = (("model_end", ""),)
LETS_GO = (("model_end", "end, a worker has let go"),)
TRANSFER = (("model_spawn", ""), ("model_transfer", ""))
QUIET = (("model_quiet", ""),)
CONDVAR = (("model_condvar", ""),)
UNDERTAKEN = (("model_quiet", "quiet, 1 worker, somebody undertakes"),)

MUTANTS = [
    # ---- push against park ------------------------------------------------------------------
    Mutant(
        "push-cas-acq-rel",
        "sched/injector.c",
        "if (!ap_u64_cas_seq_cst(&injector->tail, &word, after))",
        "if (!ap_u64_cas_acq_rel(&injector->tail, &word, after))",
        park(),
    ),
    Mutant(
        "notify-state-load-acquire",
        "sched/idle.h",
        "uint64_t word = ap_u64_load_seq_cst(&pool->idle);\n    if (AP_UNLIKELY(ap_idle_wants_wake",
        "uint64_t word = ap_u64_load_acquire(&pool->idle);\n    if (AP_UNLIKELY(ap_idle_wants_wake",
        park(),
    ),
    Mutant(
        "notify-removed",
        "sched/pool.c",
        '    AP_POINT("push-notify");\n    ap_idle_notify(pool);',
        '    AP_POINT("push-notify");',
        park(),
    ),
    Mutant(
        "enlist-acq-rel",
        "sched/idle.c",
        "} while (!ap_u64_cas_seq_cst(&pool->idle, &word, enlisted));",
        "} while (!ap_u64_cas_acq_rel(&pool->idle, &word, enlisted));",
        park(),
    ),
    Mutant(
        "re-scan-acquire",
        "sched/injector.c",
        "uint64_t tail = ap__normal(ap_u64_load_seq_cst(&injector->tail));",
        "uint64_t tail = ap__normal(ap_u64_load_acquire(&injector->tail));",
        park(),
    ),
    Mutant(
        "re-scan-removed",
        "sched/worker.c",
        "switch (ap_backlog_look(pool, true)) {",
        "switch (AP_QUEUE_EMPTY) {",
        park(),
    ),
    Mutant(
        "re-scan-reads-slots",
        "sched/injector.c",
        "!= NULL ? AP_QUEUE_READY : AP_QUEUE_RESERVED;",
        "!= NULL ? AP_QUEUE_READY : AP_QUEUE_EMPTY;",
        park(),
    ),
    Mutant(
        "found-but-nobody-woken",
        "sched/worker.c",
        "case AP_QUEUE_READY:\n            ap_idle_wake(pool, true);\n            break;",
        "case AP_QUEUE_READY:\n            break;",
        park(),
    ),
    Mutant(
        "bits-load-acquire",
        "sched/backlog.c",
        "uint64_t bits = ap_u64_load_seq_cst(&backlog->words[first / 64]);",
        "uint64_t bits = ap_u64_load_acquire(&backlog->words[first / 64]);",
        park(),
    ),
    Mutant(
        "mark-load-relaxed",
        "sched/backlog.h",
        "if (AP_UNLIKELY((ap_u64_load_seq_cst(word) & bit) == 0))",
        "if (AP_UNLIKELY((ap_u64_load_relaxed(word) & bit) == 0))",
        park(),
    ),
    Mutant(
        "mark-acq-rel",
        "sched/backlog.h",
        "(void)ap_u64_or_seq_cst(word, bit);",
        "(void)ap_u64_or_acq_rel(word, bit);",
        park(),
    ),
    Mutant(
        "bit-cleared-without-a-second-look",
        "sched/backlog.c",
        "                state = ap__queue_look(pool, ring, queue);\n"
        "                if (state != AP_QUEUE_EMPTY)\n"
        "                    ap_backlog_mark(backlog, queue);\n",
        "",
        park(),
    ),
    Mutant(
        "bit-cleared-acq-rel",
        "sched/backlog.h",
        "(void)ap_u64_and_seq_cst(",
        "(void)ap_u64_and_acq_rel(",
        (("model_spawn", "spawn, 2 tasks"),),
    ),
    Mutant(
        "bit-not-set-again",
        "sched/backlog.c",
        "                if (state != AP_QUEUE_EMPTY)\n"
        "                    ap_backlog_mark(backlog, queue);\n",
        "",
        park(),
    ),
    Mutant(
        "wake-by-a-store",
        "sched/idle.c",
        "if (ap_u64_cas_seq_cst(&pool->idle, &word, woken)) {",
        "if (ap_u64_store_seq_cst(&pool->idle, woken), true) {",
        park(),
    ),
    Mutant(
        "token-wake-only-if-seen-parked",
        "sched/idle.c",
        "    uint32_t before = ap_u32_exchange_acq_rel(&worker->token, token);\n",
        "    uint32_t before = ap_u32_load_acquire(&worker->token);\n"
        "    if (before != AP_TOKEN_PARKED)\n        return;\n"
        "    ap_u32_store_release(&worker->token, token);\n",
        park(),
    ),
    Mutant(
        "token-not-woken",
        "sched/idle.c",
        "    if (before == AP_TOKEN_PARKED)\n        ap_wake_u32(&worker->token, 1);",
        "    (void)before;",
        park(),
    ),
    Mutant(
        "parked-by-a-store",
        "sched/idle.c",
        "if (ap_u32_cas_acq_rel(&worker->token, &token, AP_TOKEN_PARKED)) {\n"
        "        token = AP_TOKEN_PARKED;",
        "if (ap_u32_store_release(&worker->token, AP_TOKEN_PARKED), true) {\n"
        "        token = AP_TOKEN_PARKED;",
        park(),
    ),
    Mutant(
        "token-emptied-after-enlisting",
        "sched/idle.c",
        "    worker->counted = false;\n    worker->urgent = false;\n    return true;\n",
        "    worker->counted = false;\n    worker->urgent = false;\n"
        "    ap_u32_store_relaxed(&worker->token, AP_TOKEN_EMPTY);\n    return true;\n",
        park(),
    ),
    Mutant(
        "nap-for-ever",
        "sched/worker.c",
        "deadline = ap_clock_after(nap);",
        "deadline = AP_FOREVER;",
        NAP,
    ),
    Mutant(
        "nap-ends-by-a-store",
        "sched/idle.c",
        "if (rc == AP_E_TIMEDOUT && ap_u32_cas_acq_rel(&worker->token, &token, AP_TOKEN_EMPTY))",
        "if (rc == AP_E_TIMEDOUT && (ap_u32_store_release(&worker->token, AP_TOKEN_EMPTY), true))",
        NAP,
    ),
    Mutant(
        "nap-goes-on-parked",
        "sched/idle.c",
        "if (rc == AP_E_TIMEDOUT && ap_u32_cas_acq_rel(&worker->token, &token, AP_TOKEN_EMPTY))",
        "if (rc == AP_E_TIMEDOUT)",
        NAP,
    ),
    Mutant(
        "last-searcher-acq-rel",
        "sched/idle.c",
        "uint64_t word = ap_u64_sub_seq_cst(&pool->idle, AP_IDLE_SEARCHING_ONE);",
        "uint64_t word = ap_u64_sub_acq_rel(&pool->idle, AP_IDLE_SEARCHING_ONE);",
        (("model_relay", ""),),
    ),
    Mutant(
        "relay-removed",
        "sched/idle.c",
        "if (backlog == AP_QUEUE_READY || (backlog == AP_QUEUE_RESERVED && found))\n"
        "        ap_idle_wake(pool, urgent);",
        "(void)backlog;\n    (void)found;\n    (void)urgent;",
        (("model_relay", ""),),
    ),
    Mutant(
        "wake-reads-the-word-relaxed",
        "sched/idle.c",
        "uint64_t word = ap_u64_load_seq_cst(&pool->idle);\n        bool others",
        "uint64_t word = ap_u64_load_relaxed(&pool->idle);\n        bool others",
        (("model_directory", ""),),
    ),
    Mutant(
        "directory-without-tag",
        "sched/idle.c",
        "AP_IDLE_IDLE_ONE - searching + AP_IDLE_TAG_ONE;",
        "AP_IDLE_IDLE_ONE - searching;",
        (("model_directory", ""),),
    ),
    # ---- claims, transfers -------------------------------------------------------------------
    Mutant(
        "notify-after-a-transfer-removed",
        "sched/worker.c",
        "    ap_backlog_mark(&worker->pool->ring_backlog, worker->index);\n"
        "    ap_idle_notify(worker->pool);\n}",
        "    ap_backlog_mark(&worker->pool->ring_backlog, worker->index);\n}",
        TRANSFER,
    ),
    Mutant(
        "transfer-without-mark",
        "sched/worker.c",
        "    ap_ring_publish(ap_worker_ring(worker), count);\n"
        "    ap_backlog_mark(&worker->pool->ring_backlog, worker->index);\n",
        "    ap_ring_publish(ap_worker_ring(worker), count);\n",
        TRANSFER,
    ),
    Mutant(
        "spawn-without-notify",
        "sched/worker.c",
        "        ap_count(&worker->pushed_to_shard, count);\n    }\n    ap_idle_notify(pool);",
        "        ap_count(&worker->pushed_to_shard, count);\n    }",
        TRANSFER,
    ),
    Mutant(
        "spawn-tail-by-a-release-store",
        "sched/ring.h",
        "(void)ap_u64_exchange_seq_cst(&ring->tail, tail + count);",
        "ap_u64_store_release(&ring->tail, tail + count);",
        TRANSFER,
    ),
    Mutant(
        "push-reads-the-tail-relaxed",
        "sched/injector.c",
        "    uint64_t word = ap_u64_load_acquire(&injector->tail);\n    for",
        "    uint64_t word = ap_u64_load_relaxed(&injector->tail);\n    for",
        (("model_injector", "injector, 2 producers"),),
    ),
    Mutant(
        "push-reads-the-tail-again-relaxed",
        "sched/injector.c",
        "word = ap_u64_load_acquire(&injector->tail); /* as above */",
        "word = ap_u64_load_relaxed(&injector->tail);",
        (("model_injector", "injector, 2 producers want"),),
    ),
    Mutant(
        "crossing-moves-the-tail-relaxed",
        "sched/injector.c",
        "ap_u64_add_seq_cst(&injector->tail, AP__UNIT +",
        "ap_u64_add_relaxed(&injector->tail, AP__UNIT +",
        (("model_injector", "injector, 2 producers"),),
    ),
    Mutant(
        "claim-reads-the-head-relaxed",
        "sched/injector.c",
        "    uint64_t word = ap_u64_load_acquire(&injector->head);\n    uint32_t at",
        "    uint64_t word = ap_u64_load_relaxed(&injector->head);\n    uint32_t at",
        (("model_injector", "injector, blocks come back, 2"),),
    ),
    Mutant(
        "claim-slot-load-relaxed",
        "sched/injector.c",
        "out[i] = ap_ptr_load_acquire(&block->slots[at + i]);",
        "out[i] = ap_ptr_load_relaxed(&block->slots[at + i]);",
        INJECTOR,
    ),
    Mutant(
        "slot-store-relaxed",
        "sched/injector.c",
        "            /* pairs with the acquire load of the slot in a claim: "
        "orders the task before it */\n"
        "            ap_ptr_store_release(",
        "            ap_ptr_store_relaxed(",
        INJECTOR,
    ),
    Mutant(
        "slot-store-relaxed-in-a-crossing",
        "sched/injector.c",
        "orders the task and next before the claim */\n            ap_ptr_store_release(",
        "orders the task and next before the claim */\n            ap_ptr_store_relaxed(",
        INJECTOR,
    ),
    Mutant(
        "claim-by-a-store",
        "sched/injector.c",
        "if (!ap_u64_cas_acq_rel(&injector->head, &word, after))\n        return 0;",
        "ap_u64_store_release(&injector->head, after);",
        INJECTOR,
    ),
    Mutant(
        "slots-not-cleared",
        "sched/injector.c",
        "    for (uint32_t i = 0; i < n; i++)\n"
        "        ap_ptr_store_relaxed(&block->slots[at + i], NULL);\n",
        "",
        INJECTOR,
    ),
    Mutant(
        "done-relaxed",
        "sched/injector.c",
        "if (ap_u32_add_acq_rel(&block->done, n) + n == AP_BLOCK_SLOTS)",
        "if (ap_u32_add_relaxed(&block->done, n) + n == AP_BLOCK_SLOTS)",
        BLOCK,
    ),
    Mutant(
        "done-release-only",
        "sched/injector.c",
        "if (ap_u32_add_acq_rel(&block->done, n) + n == AP_BLOCK_SLOTS)",
        "if (AP_RAW_ADD(&block->done, n, AP_ORDER_RELEASE) + n == AP_BLOCK_SLOTS)",
        BLOCK,
    ),
    Mutant(
        "done-acquire-only",
        "sched/injector.c",
        "if (ap_u32_add_acq_rel(&block->done, n) + n == AP_BLOCK_SLOTS)",
        "if (AP_RAW_ADD(&block->done, n, AP_ORDER_ACQUIRE) + n == AP_BLOCK_SLOTS)",
        BLOCK,
    ),
    Mutant(
        "block-freed-instead-of-recycled",
        "sched/injector.c",
        "        ap__spare_give(injector, block);\n    return n;",
        "        ap_memory_free(block);\n    return n;",
        INJECTOR,
    ),
    Mutant(
        "tail-moves-before-its-block",
        "sched/injector.c",
        "    ap_ptr_store_release(&injector->tail_block, last);\n",
        "",
        INJECTOR,
    ),
    Mutant(
        "next-read-after-the-last-slot",
        "sched/injector.c",
        "        block = next;\n        at = 0;",
        "        block = ap_ptr_load_relaxed(&block->next);\n        (void)next;\n        at = 0;",
        INJECTOR,
    ),
    Mutant(
        "next-set-after-the-slots",
        "sched/injector.c",
        "    ap_ptr_store_release(&block->next, chain->first);\n\n    size_t i = 0;",
        "    ap_block *old = block;\n    size_t i = 0;\n    if (blocks == 1) {\n"
        "        for (; at < AP_BLOCK_SLOTS; at++, i++)\n"
        "            ap_ptr_store_release(&block->slots[at], tasks[i]);\n    }\n"
        "    ap_ptr_store_release(&old->next, chain->first);\n"
        "    if (i == count)\n        return;\n",
        INJECTOR,
    ),
    Mutant(
        "head-moves-before-its-block",
        "sched/injector.c",
        "    ap_ptr_store_release(&injector->head_block, next);\n",
        "    (void)next;\n",
        INJECTOR,
    ),
    Mutant(
        "head-moves-relaxed",
        "sched/injector.c",
        "(void)ap_u64_exchange_seq_cst(&injector->head, word + AP__UNIT);",
        "(void)ap_u64_exchange_relaxed(&injector->head, word + AP__UNIT);",
        (("model_injector", "injector, a block comes back and"),),
    ),
    Mutant(
        "closed-bit-lost-in-a-crossing",
        "sched/injector.c",
        "    ap_u64_add_seq_cst(&injector->tail, AP__UNIT + (blocks - 1) * AP__LAP_WORD + "
        "end * AP__UNIT);",
        "    ap_u64_store_seq_cst(&injector->tail, (word & ~(AP__LAP_WORD - 1)) + "
        "blocks * AP__LAP_WORD + end * AP__UNIT);",
        INJECTOR,
    ),
    Mutant(
        "closed-bit-not-looked-at",
        "sched/injector.c",
        "if (AP_UNLIKELY((word & AP__CLOSED) != 0)) {",
        "if (AP_UNLIKELY((word & AP__CLOSED) != 0 && chain.first != NULL)) {",
        INJECTOR,
    ),
    Mutant(
        "blocks-leak-without-memory",
        "sched/injector.c",
        "            if (ap__chain_grow(injector, &chain, blocks) != AP_OK) {\n"
        "                ap__chain_drop(injector, chain.first);\n"
        "                return AP_E_NOMEM;",
        "            if (ap__chain_grow(injector, &chain, blocks) != AP_OK) {\n"
        "                return AP_E_NOMEM;",
        INJECTOR,
    ),
    # ---- blocks -------------------------------------------------------------------------------
    Mutant(
        "flag-taken-relaxed",
        "sched/block.c",
        "if (ap_u32_exchange_acq_rel(&store->popping, 1) == 0)",
        "if (ap_u32_exchange_relaxed(&store->popping, 1) == 0)",
        (("model_block", "blocks, 2 threads"),),
    ),
    Mutant(
        "top-read-relaxed",
        "sched/block.c",
        "void *top = ap_ptr_load_acquire(&store->top);",
        "void *top = ap_ptr_load_relaxed(&store->top);",
        (("model_block", "blocks, 2 threads"),),
    ),
    Mutant(
        "pop-without-the-flag",
        "sched/block.c",
        "if (ap_u32_exchange_acq_rel(&store->popping, 1) == 0)\n            break;",
        "break;",
        BLOCK,
    ),
    Mutant(
        "pop-without-the-flag-after-a-while",
        "sched/block.c",
        "if (tries == AP__POP_TRIES)\n            return NULL;",
        "if (tries == AP__POP_TRIES)\n            break;",
        (("model_block", "blocks, one takes two, or"),),
    ),
    Mutant(
        "flag-dropped-relaxed",
        "sched/block.c",
        "ap_u32_store_release(&store->popping, 0);",
        "ap_u32_store_relaxed(&store->popping, 0);",
        BLOCK,
    ),
    Mutant(
        "recycle-relaxed",
        "sched/block.c",
        "} while (!ap_ptr_cas_acq_rel(&store->top, &top, block));",
        "} while (!AP_RAW_CAS(&store->top, &top, (void *)block, AP_ORDER_RELAXED, "
        "AP_ORDER_RELAXED));",
        BLOCK,
    ),
    Mutant(
        "recycled-block-not-cleaned",
        "sched/block.c",
        "    ap_u32_store_relaxed(&block->done, 0);\n    void *top",
        "    void *top",
        BLOCK,
    ),
    Mutant(
        "popped-block-keeps-its-next",
        "sched/block.c",
        "    ap_ptr_store_relaxed(&block->next, NULL);\n    return block;",
        "    return block;",
        BLOCK,
    ),
    Mutant(
        "spare-taken-relaxed",
        "sched/injector.c",
        "ap_ptr_exchange_acq_rel(&injector->spare, NULL)",
        "ap_ptr_exchange_relaxed(&injector->spare, NULL)",
        (("model_injector", "injector, 2 producers, 1"),),
    ),
    Mutant(
        "spare-given-relaxed",
        "sched/injector.c",
        "if (ap_ptr_cas_acq_rel(&injector->spare, &none, block))",
        "if (AP_RAW_CAS(&injector->spare, &none, (void *)block, AP_ORDER_RELAXED, "
        "AP_ORDER_RELAXED))",
        (("model_injector", "injector, 2 producers, 1"),),
    ),
    Mutant(
        "spare-given-by-a-store",
        "sched/injector.c",
        "if (ap_ptr_cas_acq_rel(&injector->spare, &none, block))\n            return;",
        "(void)none;\n        ap_ptr_store_release(&injector->spare, block);\n        return;",
        INJECTOR,
    ),
    Mutant(
        "spare-taken-by-a-load",
        "sched/injector.c",
        "ap_block *block = ap_ptr_exchange_acq_rel(&injector->spare, NULL);",
        "ap_block *block = ap_ptr_load_acquire(&injector->spare);\n"
        "        ap_ptr_store_relaxed(&injector->spare, NULL);",
        INJECTOR,
    ),
    # ---- rings --------------------------------------------------------------------------------
    Mutant(
        "ring-tail-relaxed",
        "sched/ring.h",
        "(void)ap_u64_exchange_seq_cst(&ring->tail, tail + count);",
        "ap_u64_store_relaxed(&ring->tail, tail + count);\n"
        "    (void)ap_ptr_load_relaxed(&ring->slots[0]);",
        TRANSFER,
    ),
    Mutant(
        "ring-stages-one-too-far",
        "sched/ring.h",
        "    ap_ptr_store_release(&ring->slots[(tail + ahead) & ring->mask], task);\n}",
        "    ap_ptr_store_release(&ring->slots[(tail + ahead + 1) & ring->mask], task);\n}",
        RING,
    ),
    Mutant(
        "ring-pop-by-a-store",
        "sched/ring.h",
        "if (AP_LIKELY(ap_u64_cas_acq_rel(&ring->head, &head, head + 1)))\n"
        "            return task;",
        "ap_u64_store_release(&ring->head, head + 1);\n        return task;",
        RING,
    ),
    Mutant(
        "ring-take-tail-relaxed",
        "sched/ring.c",
        "    uint64_t tail = ap_u64_load_acquire(&ring->tail);\n"
        "    if ((int64_t)(tail - head) <= 0)\n        return NULL;",
        "    uint64_t tail = ap_u64_load_relaxed(&ring->tail);\n"
        "    if ((int64_t)(tail - head) <= 0)\n        return NULL;",
        RING,
    ),
    Mutant(
        "ring-steal-tail-relaxed",
        "sched/ring.c",
        "uint64_t tail = ap_u64_load_acquire(&from->tail);",
        "uint64_t tail = ap_u64_load_relaxed(&from->tail);",
        (("model_ring", "ring, 1 thief of halves"),),
    ),
    Mutant(
        "ring-steal-by-a-store",
        "sched/ring.c",
        "bool ours = ap_u64_cas_acq_rel(&from->head, &head, head + n);",
        "bool ours = true;\n    ap_u64_store_release(&from->head, head + n);",
        RING,
    ),
    Mutant(
        "ring-steal-wrong-half",
        "sched/ring.c",
        "ap_ptr_load_relaxed(&from->slots[(head + i) & from->mask]));",
        "ap_ptr_load_relaxed(&from->slots[(tail - i) & from->mask]));",
        RING,
    ),
    Mutant(
        "ring-room-one-too-many",
        "sched/ring.h",
        "return (uint32_t)(ring->mask + 1 - (ap_u64_load_relaxed(&ring->tail) - head));",
        "return (uint32_t)(ring->mask + 2 - (ap_u64_load_relaxed(&ring->tail) - head));",
        RING,
    ),
    Mutant(
        "ring-look-acquire",
        "sched/ring.c",
        "uint64_t tail = ap_u64_load_seq_cst(&ring->tail);",
        "uint64_t tail = ap_u64_load_acquire(&ring->tail);",
        TRANSFER,
    ),
    # ---- the end -------------------------------------------------------------------------------
    Mutant(
        "closed-before-the-shards",
        "sched/pool.c",
        "    for (uint32_t i = 0; i < pool->shards; i++)\n"
        "        ap_injector_close(&pool->injectors[i]);\n"
        "    ap_idle_close(pool);",
        "    ap_idle_close(pool);\n"
        "    for (uint32_t i = 0; i < pool->shards; i++)\n"
        "        ap_injector_close(&pool->injectors[i]);",
        END,
    ),
    Mutant(
        "close-does-not-try-to-end",
        "sched/idle.c",
        "(void)ap_u64_or_seq_cst(&pool->idle, AP_IDLE_CLOSED);\n    ap_idle_try_end(pool);",
        "(void)ap_u64_or_seq_cst(&pool->idle, AP_IDLE_CLOSED);",
        END,
    ),
    Mutant(
        "parked-does-not-try-to-end",
        "sched/worker.c",
        "case AP_QUEUE_EMPTY:\n            ap_idle_try_end(pool);\n            break;",
        "case AP_QUEUE_EMPTY:\n            break;",
        END,
    ),
    Mutant(
        "end-without-a-look",
        "sched/idle.c",
        "        if (ap_backlog_look_all(pool) != AP_QUEUE_EMPTY)\n            return;\n",
        "",
        END,
    ),
    Mutant(
        "end-looks-at-marked-queues-only",
        "sched/idle.c",
        "if (ap_backlog_look_all(pool) != AP_QUEUE_EMPTY)",
        "if (ap_backlog_look(pool, false) != AP_QUEUE_EMPTY)",
        END,
    ),
    Mutant(
        "end-with-active-workers",
        "sched/idle.c",
        "(word & (AP_IDLE_CLOSED | AP_IDLE_ENDED)) != AP_IDLE_CLOSED ||\n"
        "            ap_idle_idle(word) != ap_idle_begun(word))",
        "(word & (AP_IDLE_CLOSED | AP_IDLE_ENDED)) != AP_IDLE_CLOSED)",
        (("model_end", "end, a task"),),
    ),
    Mutant(
        "end-wakes-the-top-only",
        "sched/idle.c",
        "        top = ap_u32_load_relaxed(&worker->below);\n"
        "        ap__token_give(worker, AP_TOKEN_END);",
        "        top = 0;\n        ap__token_give(worker, AP_TOKEN_END);",
        END,
    ),
    Mutant(
        "last-release-relaxed",
        "sched/pool.c",
        "if (ap_u64_sub_acq_rel(&pool->refs, 1) == 1)",
        "if (ap_u64_sub_relaxed(&pool->refs, 1) == 1)",
        END,
    ),
    Mutant(
        "worker-without-a-reference",
        "sched/worker.c",
        "    ap_pool_retain(pool);\n",
        "",
        END,
    ),
    Mutant(
        "slot-read-relaxed",
        "sched/pool.h",
        "return ap_ptr_load_acquire(&pool->workers[index]);",
        "return ap_ptr_load_relaxed(&pool->workers[index]);",
        (("model_end", "end, 1 producer, 1"),),
    ),
    Mutant(
        "slot-published-relaxed",
        "sched/worker.c",
        "if (ap_ptr_cas_acq_rel(&pool->workers[index], &none, worker))",
        "if (AP_RAW_CAS(&pool->workers[index], &none, (void *)worker, AP_ORDER_RELAXED, "
        "AP_ORDER_RELAXED))",
        (("model_end", "end, 1 producer, 2"), ("model_transfer", "")),
    ),
    Mutant(
        "slot-given-back-after-the-pool",
        "sched/worker.c",
        "    ap_u32_store_release(&worker->used, 0);\n    ap_pool_release(pool);",
        "    ap_pool_release(pool);\n    ap_u32_store_release(&worker->used, 0);",
        LETS_GO,
    ),
    Mutant(
        "outer-read-after-the-pool-is-let-go",
        "sched/worker.c",
        "    ap__current = worker->outer;\n    ap_idle_end(pool);",
        "    ap_idle_end(pool);",
        LETS_GO,
        more=(
            (
                "    ap_pool_release(pool);\n}",
                "    ap_pool_release(pool);\n    ap__current = worker->outer;\n}",
            ),
        ),
    ),
    # ---- quiet ---------------------------------------------------------------------------------
    Mutant(
        "begin-acq-rel",
        "sched/idle.c",
        "} while (!ap_u64_cas_seq_cst(&pool->idle, &word, "
        "word + AP_IDLE_BEGUN_ONE + AP_IDLE_TAG_ONE));",
        "} while (!ap_u64_cas_acq_rel(&pool->idle, &word, "
        "word + AP_IDLE_BEGUN_ONE + AP_IDLE_TAG_ONE));",
        (("model_quiet", "quiet, 1 worker"),),
    ),
    Mutant(
        "rest-release-only",
        "sched/quiet.c",
        "(void)ap_u64_exchange_seq_cst(&worker->ended, ap_u64_load_relaxed(&worker->taken));",
        "ap_u64_store_release(&worker->ended, ap_u64_load_relaxed(&worker->taken));",
        QUIET,
    ),
    Mutant(
        "rest-relaxed",
        "sched/quiet.c",
        "(void)ap_u64_exchange_seq_cst(&worker->ended, ap_u64_load_relaxed(&worker->taken));",
        "ap_u64_store_relaxed(&worker->ended, ap_u64_load_relaxed(&worker->taken));",
        QUIET,
    ),
    Mutant(
        "ring-push-counted-late",
        "sched/worker.c",
        "        ap_count(&worker->pushed_to_ring, count);",
        "        /* later */",
        (("model_quiet", "quiet, 2 workers, a task pushes"),),
        more=(
            (
                "        ap_ring_publish(ring, (uint32_t)count);\n",
                "        ap_ring_publish(ring, (uint32_t)count);\n"
                "        ap_count(&worker->pushed_to_ring, count);\n",
            ),
        ),
    ),
    Mutant(
        "quiet-tells-acquire",
        "sched/quiet.c",
        "if (AP_LIKELY(ap_u64_load_seq_cst(&pool->quiet_waiters) == 0))",
        "if (AP_LIKELY(ap_u64_load_acquire(&pool->quiet_waiters) == 0))",
        QUIET,
    ),
    Mutant(
        "quiet-waiter-counts-acq-rel",
        "sched/quiet.c",
        "(void)ap_u64_add_seq_cst(&pool->quiet_waiters, 1);",
        "(void)ap_u64_add_acq_rel(&pool->quiet_waiters, 1);",
        QUIET,
    ),
    Mutant(
        "quiet-looks-before-the-changes",
        "sched/quiet.c",
        "        uint32_t changes = ap_u32_load_seq_cst(&pool->quiet_changes);\n"
        "        if (ap_pool_is_quiet(pool)) {\n            rc = AP_OK;\n"
        "            break;\n        }\n",
        "        if (ap_pool_is_quiet(pool)) {\n            rc = AP_OK;\n"
        "            break;\n        }\n"
        "        uint32_t changes = ap_u32_load_seq_cst(&pool->quiet_changes);\n",
        QUIET,
    ),
    Mutant(
        "quiet-pushed-before-ended",
        "sched/quiet.c",
        "ended += ap_u64_load_seq_cst(&worker->ended);",
        "ended += ap_u64_load_relaxed(&worker->ended);",
        QUIET,
    ),
    Mutant(
        "undertaken-not-counted",
        "sched/quiet.c",
        "    (void)ap_u64_add_acq_rel(&pool->undertaken, 1);",
        "    (void)pool;",
        UNDERTAKEN,
    ),
    Mutant(
        "quiet-without-the-undertaken",
        "sched/quiet.c",
        "uint64_t pushed = ap_u64_load_relaxed(&pool->undertaken);",
        "uint64_t pushed = 0;",
        UNDERTAKEN,
    ),
    Mutant(
        "undertaken-before-ended",
        "sched/quiet.c",
        "    uint64_t ended = ap_u64_load_seq_cst(&pool->dealt);",
        "    uint64_t undertaken = ap_u64_load_relaxed(&pool->undertaken);\n"
        "    uint64_t ended = ap_u64_load_seq_cst(&pool->dealt);",
        UNDERTAKEN,
        more=(
            (
                "uint64_t pushed = ap_u64_load_relaxed(&pool->undertaken);",
                "uint64_t pushed = undertaken;",
            ),
        ),
    ),
    Mutant(
        "quiet-does-not-read-the-idle-word",
        "sched/quiet.c",
        "    (void)ap_u64_load_seq_cst(&pool->idle);\n",
        "",
        (("model_quiet", "quiet, 1 worker"),),
    ),
    Mutant(
        "changes-added-relaxed",
        "sched/quiet.c",
        "(void)ap_u32_add_seq_cst(&pool->quiet_changes, 1);",
        "(void)ap_u32_add_relaxed(&pool->quiet_changes, 1);",
        (("model_quiet", "quiet, 1 worker"),),
    ),
    Mutant(
        "dealt-acq-rel",
        "sched/quiet.c",
        "    (void)ap_u64_add_seq_cst(&pool->dealt, 1);",
        "    (void)ap_u64_add_acq_rel(&pool->dealt, 1);",
        (("model_quiet", "quiet, 1 worker, somebody takes"),),
    ),
    Mutant(
        "dealt-read-relaxed",
        "sched/quiet.c",
        "ap_u64_load_seq_cst(&pool->dealt)",
        "ap_u64_load_relaxed(&pool->dealt)",
        (("model_quiet", "quiet, 1 worker, somebody takes"),),
    ),
    Mutant(
        "dealt-not-told",
        "sched/quiet.c",
        "    (void)ap_u64_add_seq_cst(&pool->dealt, 1);\n    ap__quiet_tell(pool);",
        "    (void)ap_u64_add_seq_cst(&pool->dealt, 1);",
        QUIET,
    ),
    Mutant(
        "end-does-not-look",
        "sched/idle.c",
        "    if (ap_backlog_look(pool, false) != AP_QUEUE_EMPTY)\n"
        "        ap_idle_wake(pool, true);\n    ap_idle_try_end(pool);",
        "    ap_idle_try_end(pool);",
        (("model_park", "park, a worker that searches ends"),),
    ),
    # ---- futexes made of condition variables --------------------------------------------------
    Mutant(
        "condvar-wake-does-not-lock",
        "sync/wait_condvar.c",
        "    (void)pthread_mutex_lock(&bucket->lock);\n    if (bucket->sleepers > 0)\n"
        "        (void)pthread_cond_broadcast(&bucket->woken);\n"
        "    (void)pthread_mutex_unlock(&bucket->lock);\n",
        "    (void)pthread_cond_broadcast(&bucket->woken);\n",
        CONDVAR,
    ),
    Mutant(
        "condvar-counts-outside-the-lock",
        "sync/wait_condvar.c",
        "    (void)pthread_mutex_lock(&bucket->lock);\n    if (bucket->sleepers > 0)\n"
        "        (void)pthread_cond_broadcast(&bucket->woken);\n"
        "    (void)pthread_mutex_unlock(&bucket->lock);\n",
        "    if (bucket->sleepers == 0)\n        return;\n"
        "    (void)pthread_mutex_lock(&bucket->lock);\n"
        "    (void)pthread_cond_broadcast(&bucket->woken);\n"
        "    (void)pthread_mutex_unlock(&bucket->lock);\n",
        CONDVAR,
    ),
    Mutant(
        "condvar-wakes-one",
        "sync/wait_condvar.c",
        "pthread_cond_broadcast(&bucket->woken)",
        "pthread_cond_signal(&bucket->woken)",
        (("model_condvar", "condvar, a sleeper of another word"),),
    ),
    Mutant(
        "condvar-wakes-as-many-as-asked",
        "sync/wait_condvar.c",
        "        (void)pthread_cond_broadcast(&bucket->woken);\n",
        "        for (uint32_t i = 0; i < count && i < bucket->sleepers; i++)\n"
        "            (void)pthread_cond_signal(&bucket->woken);\n",
        (("model_condvar", "condvar, a deadline takes no wake"),),
    ),
    Mutant(
        "condvar-wakes-nobody",
        "sync/wait_condvar.c",
        "    if (bucket->sleepers > 0)\n        (void)pthread_cond_broadcast(&bucket->woken);\n",
        "",
        CONDVAR,
    ),
    Mutant(
        "condvar-does-not-count",
        "sync/wait_condvar.c",
        "        bucket->sleepers++;\n",
        "",
        CONDVAR,
        more=(("        bucket->sleepers--;\n", ""),),
    ),
    Mutant(
        "condvar-counts-late",
        "sync/wait_condvar.c",
        "        bucket->sleepers--;\n    }\n    (void)pthread_mutex_unlock(&bucket->lock);\n",
        "        (void)pthread_mutex_unlock(&bucket->lock);\n        bucket->sleepers--;\n"
        "    } else {\n        (void)pthread_mutex_unlock(&bucket->lock);\n    }\n",
        CONDVAR,
    ),
    Mutant(
        "condvar-keeps-the-count",
        "sync/wait_condvar.c",
        "        bucket->sleepers--;\n",
        "",
        CONDVAR,
    ),
    Mutant(
        "condvar-compares-before-the-lock",
        "sync/wait_condvar.c",
        "    int rc = 0;\n    (void)pthread_mutex_lock(&bucket->lock);\n",
        "    int rc = 0;\n    bool same = ap_u32_load_relaxed(word) == expected;\n"
        "    (void)pthread_mutex_lock(&bucket->lock);\n",
        CONDVAR,
        more=(("if (ap_u32_load_relaxed(word) == expected) {", "if (same) {"),),
    ),
    Mutant(
        "condvar-does-not-compare",
        "sync/wait_condvar.c",
        "    if (ap_u32_load_relaxed(word) == expected) {",
        "    {",
        CONDVAR,
    ),
    Mutant(
        "condvar-does-not-unlock",
        "sync/wait_condvar.c",
        "    (void)pthread_mutex_unlock(&bucket->lock);\n    return rc",
        "    return rc",
        CONDVAR,
    ),
    Mutant(
        "condvar-wake-reads-the-word",
        "sync/wait_condvar.c",
        "    if (count == 0)\n        return;\n",
        "    if (count == 0 || ap_u32_load_relaxed(word) == 0)\n        return;\n",
        (("model_condvar", "condvar, the word is freed"),),
    ),
    Mutant(
        "condvar-does-not-say-late",
        "sync/wait_condvar.c",
        "return rc == ETIMEDOUT ? AP_E_TIMEDOUT : AP_OK;",
        "return AP_OK;",
        (("model_condvar", "condvar, a deadline"),),
    ),
    Mutant(
        "condvar-has-no-deadline",
        "sync/wait_condvar.c",
        "    if (deadline_ns == AP_FOREVER)\n",
        "    if (deadline_ns)\n",
        (("model_condvar", "condvar, a deadline"),),
    ),
    Mutant(
        "condvar-other-clock",
        "sync/wait_condvar.c",
        "    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);\n",
        "",
        (("model_condvar", "condvar, a deadline"),),
    ),
    Mutant(
        "condvar-buckets-made-twice",
        "sync/wait_condvar.c",
        "    (void)pthread_once(&ap__buckets_once, ap__buckets_init);\n",
        "    if (!ap__made) {\n        ap__buckets_init();\n        ap__made = true;\n    }\n",
        (("model_condvar", "condvar, the first calls"),),
        more=(
            (
                "static pthread_once_t ap__buckets_once = PTHREAD_ONCE_INIT;\n",
                "static pthread_once_t ap__buckets_once = PTHREAD_ONCE_INIT;\n"
                "static bool ap__made;\n",
            ),
        ),
    ),
    Mutant(
        "condvar-child-keeps-the-buckets",
        "sync/wait_condvar.c",
        "    ap__buckets_once = fresh;\n",
        "    (void)fresh;\n",
        (("model_condvar", "condvar, a fork"),),
    ),
    Mutant(
        "condvar-child-makes-them-once",
        "sync/wait_condvar.c",
        "    ap__buckets_once = fresh;\n",
        "    (void)fresh;\n    (void)pthread_once(&ap__buckets_once, ap__buckets_init);\n"
        "    ap__buckets_init();\n",
        (("model_condvar", "condvar, a fork in the first call"),),
    ),
    Mutant(
        "condvar-child-keeps-the-counts",
        "sync/wait_condvar.c",
        "        ap__buckets[i].sleepers = 0;\n",
        "        (void)i;\n",
        (("model_condvar", "condvar, a fork"),),
    ),
]

# Changes that no execution can tell from the real code.
EQUIVALENT = {
    "lookout disarms after its look, or acq_rel, or does not look": "a lookout that finds nothing "
    "enlists again, and whoever enlists looks: the look of its own only saves time",
    "a look that meets a moving head says empty": "the claim that moves it notifies afterwards",
    "the end reads `below` after it has given the token": "who ends the pool holds a "
    "reference, so no worker's memory goes, and none enlists again",
    "begin, or enlist, does not look at `ended`": "each of the two looks covers the other",
    "the head in a look read acquire": "an older head shows tasks that are taken already, which "
    "costs another look",
    "the addition to the tail at a block's end acq_rel": "whoever has claimed the block's last "
    "slot has acquired it, and looks, or notifies, when it has moved the head",
    "a worker, or take_try, does not notify when it has moved the head, or moves it acq_rel": "who "
    "saw the head between two blocks naps, and looks again",
    "ap_idle_end's subtraction acq_rel, or relaxed": "its look is for what the worker has seen "
    "itself, and a push that reads an older word wakes; relaxed it could take effect before older "
    "stores, which the explorer does not have",
    "search_begin's or ap_idle_wake's CAS acq_rel": "a push that saw the searcher comes before the "
    "searcher's last look, whatever the order of its beginning",
    "ap_idle_wake's load acquire": "whoever calls it has just read or changed the word, and the "
    "load reads nothing older",
    "the token given relaxed": "a woken worker looks at the queues in the order of seq_cst, and "
    "naps at a slot that it does not see filled",
    "the slots of a ring stored relaxed": "the exchange of the tail that follows releases them, "
    "and whoever reads one has acquired the tail",
    "the count of changes read acquire": "the wait compares it; that it is read before the counts "
    "is all that is needed",
    "undertaken added relaxed": "the CAS that starts the task, or the count of its dealing, comes "
    "after it and releases it",
    "the end's first look at the word relaxed, or closing relaxed": "wrong, but by what the "
    "explorer does not have: it takes effect after younger accesses of other words",
    "`used` of an ended worker stored relaxed": "wrong only if it takes effect before the older "
    "subtraction of ap_idle_end, which the explorer does not have; else the CAS of ap_idle_begin "
    "acquires that",
    "tail_block stored relaxed": "the addition to the tail that follows orders it as well",
    "the ring's CAS of the head relaxed, or the owner's load": "they keep a thief's load of a "
    "slot before the slot's next use: a load that comes late is what the explorer does not have",
    "claim's CAS relaxed": "what it orders is ordered by the slot's and the block's accesses too, "
    "but for loads that come before older loads of other slots, which the explorer does not have",
}

# Of the list in the verification plan: what the library does not have yet.
COMING = {
    "sentry, bitmap of idle workers": "one worker is woken by a stack of idle ones here",
    "Chase-Lev deque": "issue 7, and fork-join in issue 8",
    "Vyukov ring, SCQ, closed queues, disconnect": "issue 7",
    "WaitGroup": "issue 8",
    "slab remote list": "issue 5",
}
