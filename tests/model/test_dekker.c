/* Controls: handshakes of push and park that the library does not use, and that are right too.
 *
 *     pusher                                 worker that parks
 *     1 tail + 1                             a token PARKED
 *     2 fence seq_cst                        b fence seq_cst
 *     3 load token relaxed; PARKED: as 4     c look at the tail; a task: not asleep
 *     4 exchange it for AWAKE, wake          d wait while PARKED
 *
 * Two stand-alone fences: either 2 comes first, and c sees the task; or b, and 3 sees the token.
 * Or no fence, and c is an acq_rel read-modify-write of the tail: either it reads 1; or 1 reads
 * from it, and acquires the token.  With one half missing or weaker each loses a wake: the explorer
 * has to find that, and must not find it in the whole. */
#include "explorer.h"
#include "sync/atomic.h"
#include "sync/wait.h"

enum { AWAKE, PARKED };
enum { BY_LOAD, BY_RMW, BY_RELAXED_RMW };

static ap_atomic_u32 *tail, *token;
static uint32_t *items; /* plain: written before 1, read after the tail */

static void setup(void) {
    tail = model_alloc(sizeof *tail);
    token = model_alloc(sizeof *token);
    items = model_alloc(2 * sizeof *items);
    model_name(tail, "tail");
    model_name(token, "token");
    model_name(items, "items");
}

static void fence(int order) {
    if (order)
        model_fence(order);
}

/* values: fence of the pusher, fence of the worker (0: none), the worker's look, tasks, whether the
 * tail is moved relaxed */
static void push(void) {
    uint32_t *item = &items[model_self() - 1];
    model_plain_write(item, sizeof *item);
    *item = 1;
    if (model_value(4))
        (void)ap_u32_add_relaxed(tail, 1);
    else
        (void)ap_u32_add_acq_rel(tail, 1);
    fence(model_value(0));
    if (ap_u32_load_relaxed(token) == PARKED && ap_u32_exchange_acq_rel(token, AWAKE) == PARKED)
        ap_wake_u32(token, 1);
}

static uint32_t look(void) {
    switch (model_value(2)) {
    case BY_LOAD:
        return ap_u32_load_acquire(tail);
    case BY_RMW:
        return ap_u32_add_acq_rel(tail, 0);
    default:
        return ap_u32_add_relaxed(tail, 0);
    }
}

static void work(void) {
    uint32_t tasks = (uint32_t)model_value(3);
    while (ap_u32_load_acquire(tail) < tasks) {
        uint32_t seen;
        ap_u32_store_relaxed(token, PARKED);
        fence(model_value(1));
        if (look() < tasks) /* woken for each push, so for the last one too */
            while ((seen = ap_u32_load_acquire(token)) == PARKED)
                ap_wait_u32(token, seen, AP_FOREVER);
        else
            (void)ap_u32_exchange_acq_rel(token, AWAKE);
    }
}

/* After an acquire load has seen both. */
static void read_items(void) {
    work();
    for (int i = 0; i < model_value(3); i++) {
        model_plain_read(&items[i], sizeof *items);
        MODEL_CHECK(items[i] == 1);
    }
}

#define SC AP_ORDER_SEQ_CST
#define FENCES .setup = setup, .full = true, .leaves_memory = true
#define NO_FENCES .setup = setup, .leaves_memory = true
#define LOST .fails = "lost wake"

const model_case model_cases[] = {
    {.name = "two fences",
     .threads = {push, read_items},
     .values = {SC, SC, BY_LOAD, 1},
     FENCES,
     .preemptions = 4,
     .stale = 3},
    {.name = "two fences, 2 pushers",
     .threads = {push, push, read_items},
     .values = {SC, SC, BY_LOAD, 2},
     FENCES,
     .preemptions = 2,
     .stale = 2},
    {.name = "no fence of the pusher",
     .threads = {push, read_items},
     .values = {0, SC, BY_LOAD, 1},
     FENCES,
     .preemptions = 2,
     LOST},
    {.name = "no fence of the worker",
     .threads = {push, read_items},
     .values = {SC, 0, BY_LOAD, 1},
     FENCES,
     .preemptions = 2,
     LOST},
    {.name = "two acq_rel fences",
     .threads = {push, read_items},
     .values = {AP_ORDER_ACQ_REL, AP_ORDER_ACQ_REL, BY_LOAD, 1},
     FENCES,
     .preemptions = 2,
     LOST},
    {.name = "the tail is written",
     .threads = {push, read_items},
     .values = {0, 0, BY_RMW, 1},
     NO_FENCES,
     .preemptions = 4,
     .stale = 3},
    {.name = "the tail is written, 2 pushers",
     .threads = {push, push, read_items},
     .values = {0, 0, BY_RMW, 2},
     NO_FENCES,
     .preemptions = 3,
     .stale = 2},
    {.name = "the tail is loaded",
     .threads = {push, read_items},
     .values = {0, 0, BY_LOAD, 1},
     NO_FENCES,
     .preemptions = 2,
     LOST},
    {.name = "the tail is written relaxed by the worker",
     .threads = {push, read_items},
     .values = {0, 0, BY_RELAXED_RMW, 1},
     NO_FENCES,
     .preemptions = 2,
     LOST},
    {.name = "the tail is written relaxed by the pusher",
     .threads = {push, work},
     .values = {0, 0, BY_RMW, 1, 1},
     NO_FENCES,
     .preemptions = 2,
     LOST},
    {0},
};
