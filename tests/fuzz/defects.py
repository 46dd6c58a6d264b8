"""Defects planted in copies of the core: each must be found by the harness that is named.

A defect is one replacement of text in one file of csrc; the text is there exactly once.
"""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    """One replacement, and who finds it."""

    name: str
    harness: str
    file: str
    old: str
    new: str


BLOCK = "sched/block.c"
INJECTOR = "sched/injector.c"
RING = "sched/ring.c"
BACKLOG = "sched/backlog.c"
IDLE = "sched/idle.c"
QUIET = "sched/quiet.c"
POOL = "sched/pool.c"
WORKER = "sched/worker.c"

DEFECTS = [
    Defect(
        "a block from the store keeps its next",
        "block",
        BLOCK,
        "    ap_ptr_store_relaxed(&block->next, NULL);\n    return block;",
        "    return block;",
    ),
    Defect(
        "a recycled block keeps its count of claims",
        "block",
        BLOCK,
        "    ap_u32_store_relaxed(&block->done, 0);\n",
        "",
    ),
    Defect(
        "a crossing moves the tail by a lap too many",
        "injector-3",
        INJECTOR,
        "(blocks - 1) * AP__LAP_WORD",
        "blocks * AP__LAP_WORD",
    ),
    Defect(
        "the closed bit is lost at a crossing",
        "injector-127",
        INJECTOR,
        "ap_u64_add_seq_cst(&injector->tail, AP__UNIT +",
        "ap_u64_store_seq_cst(&injector->tail, word + (AP_BLOCK_SLOTS - ap__offset(word) + 1) * "
        "AP__UNIT +",
    ),
    Defect(
        "claimed slots are not cleared",
        "injector-127",
        INJECTOR,
        "        ap_ptr_store_relaxed(&block->slots[at + i], NULL);\n",
        "        (void)0;\n",
    ),
    Defect(
        "a spare block keeps its count of claims",
        "injector-3",
        INJECTOR,
        "        ap_u32_store_relaxed(&block->done, 0);\n",
        "",
    ),
    Defect(
        "a look compares words that may wrap",
        "injector-3",
        INJECTOR,
        "(int64_t)(tail - ap__normal(word)) <= 0",
        "tail <= ap__normal(word)",
    ),
    Defect(
        "memory runs out and the chain is lost",
        "injector-3",
        INJECTOR,
        "ap__chain_drop(injector, chain.first);\n                return AP_E_NOMEM;",
        "return AP_E_NOMEM;",
    ),
    Defect(
        "blocks that a push no longer needs are lost",
        "injector-3",
        INJECTOR,
        "    ap__chain_drop(injector, surplus);\n",
        "    (void)surplus;\n",
    ),
    Defect(
        "the next block is looked up after the last slot is filled",
        "injector-3",
        INJECTOR,
        "        block = next;\n        at = 0;",
        "        block = ap_ptr_load_relaxed(&block->next);\n        at = 0;",
    ),
    Defect(
        "the offset after a crossing is one of 128",
        "injector-127",
        INJECTOR,
        "(at + count) % AP_BLOCK_SLOTS",
        "(at + count) % (AP_BLOCK_SLOTS + 1)",
    ),
    Defect(
        "half of one is none",
        "injector-127",
        INJECTOR,
        "        n = (n + 1) / 2;",
        "        n = n / 2;",
    ),
    Defect(
        "a thief takes the newer half",
        "ring",
        RING,
        "from->slots[(head + i) & from->mask]",
        "from->slots[(tail - i) & from->mask]",
    ),
    Defect("a thief takes one too many", "ring", RING, "(size + 1) / 2", "size / 2 + 1"),
    Defect(
        "a taker compares positions that may wrap",
        "ring",
        RING,
        "(int64_t)(tail - head) <= 0)\n        return NULL;",
        "tail <= head)\n        return NULL;",
    ),
    Defect(
        "a mark is cleared without a second look",
        "backlog",
        BACKLOG,
        "                state = ap__queue_look(pool, ring, queue);\n",
        "",
    ),
    Defect(
        "a mark of the second word is taken for the first's",
        "backlog",
        BACKLOG,
        "first + (uint32_t)__builtin_ctzll(bits)",
        "(uint32_t)__builtin_ctzll(bits)",
    ),
    Defect(
        "the lookout's bit stays",
        "idle",
        IDLE,
        "AP_IDLE_SEARCHING_ONE - AP_IDLE_LOOKOUT",
        "AP_IDLE_SEARCHING_ONE",
    ),
    Defect(
        "the last searcher relays nothing", "idle", IDLE, "backlog == AP_QUEUE_READY ||", "false ||"
    ),
    Defect(
        "a wake forgets those below the top",
        "idle",
        IDLE,
        "uint32_t below = ap_u32_load_relaxed(&worker->below);",
        "uint32_t below = 0;",
    ),
    Defect(
        "a pool ends while one works",
        "idle",
        IDLE,
        "ap_idle_idle(word) != ap_idle_begun(word)",
        "ap_idle_idle(word) + 1 < ap_idle_begun(word)",
    ),
    Defect(
        "a resting worker tells nobody", "quiet", QUIET, "    ap__quiet_tell(worker->pool);\n", ""
    ),
    Defect(
        "who runs a task that stays queued does not count",
        "quiet",
        QUIET,
        "uint64_t pushed = ap_u64_load_relaxed(&pool->undertaken);",
        "uint64_t pushed = 0;",
    ),
    Defect(
        "a push from outside wakes nobody",
        "pool-127",
        POOL,
        '    AP_POINT("push-notify");\n    ap_idle_notify(pool);\n',
        "",
    ),
    Defect(
        "the last to park does not end the pool",
        "pool-127",
        WORKER,
        "            ap_idle_try_end(pool);\n",
        "",
    ),
    Defect(
        "an only worker looks at the shard before its ring",
        "pool-127",
        WORKER,
        "if (pool->max_workers > 1 && (task = ap__take_shards(worker)) != NULL)",
        "if ((task = ap__take_shards(worker)) != NULL)",
    ),
    Defect(
        "a push overflows the ring by one",
        "pool-3",
        WORKER,
        "count <= ap_ring_room(ring))",
        "count <= ap_ring_room(ring) + 1)",
    ),
    Defect(
        "a claim overflows the ring by one",
        "pool-127",
        WORKER,
        "uint32_t max = ap_ring_room(ring) + 1;",
        "uint32_t max = ap_ring_room(ring) + 2;",
    ),
    Defect(
        "one of the stolen is not published",
        "pool-3",
        WORKER,
        "    ap__publish(worker, n - 1);\n    return first;",
        "    ap__publish(worker, n > 2 ? n - 2 : 0);\n    return first;",
    ),
    Defect(
        "the last worker to end does not end the pool",
        "pool-3",
        IDLE,
        "        ap_idle_wake(pool, true);\n    ap_idle_try_end(pool);",
        "        ap_idle_wake(pool, true);",
    ),
]
