/* The injector against a queue of numbers, to the block.
 *
 * At each point of a push or a claim the input may have one more operation done, as another
 * thread would: a close or a claim in the middle of a crossing, a push that makes a reservation
 * fail. The model follows what is visible at each point, so every return value is known beforehand,
 * and how many blocks there are.
 */
#include "fuzz.h"
#include "sched/injector.h"

#define TASKS 2048
#define SLOTS AP_BLOCK_SLOTS
#define DEPTH 2
#define BLOCKS 1024 /* of which claims are counted at once */

/* A push or a claim on its way. */
typedef struct action {
    bool pushes;
    ap_task **batch;
    uint64_t start; /* number of its first task, once it is reserved or claimed */
    uint64_t count;
    uint64_t chain;  /* blocks in hand */
    uint64_t filled; /* of count */
    bool reserved;   /* or claimed */
    bool crosses;
} action;

static ap_task tasks[2 * TASKS];
static uint64_t named;
static ap_block_store store;
static ap_injector injector;
static fuzz_input in;
static action actions[DEPTH];
static int depth;

/* Tasks are numbered as they are reserved. */
static ap_task *numbered[TASKS];
static uint64_t head, tail;
static uint64_t visible_tail; /* of the tail's word: the block's end while a push crosses it */
static bool head_moves, tail_moves, closed;
static bool empty[TASKS];     /* reserved and not filled */
static uint64_t free_blocks;  /* spare, or in the store */
static uint64_t total_blocks; /* allocated */
static uint32_t claims_done[BLOCKS];

static void look(void) {
    ap_queue_state wanted = head == visible_tail                ? AP_QUEUE_EMPTY
                            : head_moves || empty[head % TASKS] ? AP_QUEUE_RESERVED
                                                                : AP_QUEUE_READY;
    FUZZ_EQ(ap_injector_look(&injector), wanted);
    FUZZ_EQ(ap_injector_pending(&injector), visible_tail - head);
    FUZZ_EQ(ap_injector_pushed(&injector), visible_tail);
    if (!head_moves && !tail_moves) {
        FUZZ_EQ(ap_injector_seems_empty(&injector), head == tail);
        FUZZ_EQ(ap_injector_seems_ready(&injector), wanted == AP_QUEUE_READY);
    }
}

static uint64_t blocks_wanted(uint64_t count) {
    return (tail % SLOTS + count) / SLOTS;
}

/* The chain of a push grows to what it needs: false if an allocation fails on the way. */
static bool grow(action *a) {
    uint64_t wanted = blocks_wanted(a->count);
    uint64_t missing = wanted > a->chain ? wanted - a->chain : 0;
    uint64_t kept = missing < free_blocks ? missing : free_blocks;
    uint64_t made = fuzz_allocations(missing - kept);
    free_blocks -= kept;
    total_blocks += made;
    a->chain += kept + made;
    return kept + made == missing;
}

static void fill(action *a, uint64_t upto) {
    for (; a->filled < upto; a->filled++)
        empty[(a->start + a->filled) % TASKS] = false;
}

static void push(void) {
    ap_task *batch[TASKS];
    uint32_t size = fuzz_byte(&in);
    uint64_t count = size < 128 ? 1 : size < 192 ? 1 + size % SLOTS : fuzz_below(&in, 4 * SLOTS);
    if (tail - head + count + 8 * SLOTS > TASKS || tail_moves || depth == DEPTH)
        return;
    action *a = &actions[depth++];
    *a = (action){.pushes = true, .batch = batch, .count = count};
    for (uint64_t i = 0; i < count; i++)
        batch[i] = &tasks[named++ % (2 * TASKS)];
    int rc = ap_injector_push(&injector, batch, count);
    if (rc == AP_OK) {
        FUZZ_CHECK(a->reserved);
        fill(a, count);
        tail_moves = tail_moves && !a->crosses;
        visible_tail = tail_moves ? visible_tail : tail;
    } else if (rc == AP_E_CLOSED) {
        FUZZ_CHECK(closed && !a->reserved);
    } else {
        FUZZ_CHECK(rc == AP_E_NOMEM && !a->reserved);
        FUZZ_CHECK(!grow(a));
    }
    free_blocks += a->chain;
    depth--;
}

static void claim(void) {
    ap_task *out[AP_CLAIM_MAX];
    uint32_t max = 1 + fuzz_below(&in, AP_CLAIM_MAX);
    bool halve = fuzz_byte(&in) % 2 != 0;
    bool moved = false;
    if (depth == DEPTH)
        return;
    uint64_t at = head % SLOTS, start = head, n = 0;
    uint64_t limit = halve ? 2 * (uint64_t)max : max;
    if (limit > SLOTS - at)
        limit = SLOTS - at;
    while (n < limit && head + n != tail && !empty[(head + n) % TASKS])
        n++;
    n = halve ? (n + 1) / 2 : n;
    n = n > max ? max : n;
    if (head_moves)
        n = 0;
    action *a = &actions[depth++];
    *a = (action){.count = n, .start = start, .crosses = at + n == SLOTS && n > 0};
    uint32_t got = ap_injector_claim_try(&injector, out, max, halve, &moved);
    depth--;
    if (!a->reserved) { /* nothing there, or another claim came in between */
        FUZZ_EQ(got, 0);
        FUZZ_CHECK(n == 0 || head != start);
        return;
    }
    FUZZ_EQ(got, n);
    for (uint64_t i = 0; i < n; i++)
        FUZZ_CHECK(out[i] == numbered[(start + i) % TASKS]);
    FUZZ_EQ(moved, a->crosses);
    if (a->crosses)
        head_moves = false;
    uint32_t *done = &claims_done[start / SLOTS % BLOCKS];
    *done += (uint32_t)n;
    if (*done == SLOTS) {
        *done = 0;
        free_blocks++;
    }
}

static void close_it(void) {
    ap_injector_close(&injector);
    closed = true;
}

static void at_point(const char *name) {
    if (depth == 0)
        return; /* the making of the injector */
    action *a = &actions[depth - 1];
    if (strcmp(name, "injector-reserve") == 0) {
        FUZZ_CHECK(a->pushes && grow(a));
    } else if (strcmp(name, "injector-reserved") == 0) {
        FUZZ_CHECK(!closed);
        uint64_t blocks = blocks_wanted(a->count);
        a->reserved = true;
        a->crosses = blocks > 0;
        a->start = tail;
        a->chain -= blocks;
        for (uint64_t i = 0; i < a->count; i++) {
            empty[(tail + i) % TASKS] = true;
            numbered[(tail + i) % TASKS] = a->batch[i];
        }
        visible_tail = a->crosses ? tail + SLOTS - tail % SLOTS : tail + a->count;
        tail_moves = a->crosses;
        tail += a->count;
    } else if (strcmp(name, "injector-filled") == 0) {
        if (a->filled == 0) {
            tail_moves = false;
            visible_tail = tail;
            fill(a, SLOTS - a->start % SLOTS);
        } else {
            fill(a, a->filled + SLOTS);
        }
    } else if (strcmp(name, "injector-claimed") == 0) {
        FUZZ_CHECK(!a->pushes && head == a->start);
        a->reserved = true;
        head += a->count;
        head_moves = a->crosses;
    } else if (strncmp(name, "injector", 8) != 0) {
        return; /* the store's: no place for a second popper, which would wait */
    }
    if (depth == DEPTH)
        return;
    switch (fuzz_byte(&in) % 16) {
    case 1:
        if (fuzz_byte(&in) % 8 == 0)
            close_it();
        break;
    case 2:
    case 3:
    case 4:
        claim();
        break;
    case 5:
    case 6:
        push();
        break;
    case 7:
        look();
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    in = (fuzz_input){data, data + size};
    fuzz_begin();
    memset(&store, 0, sizeof store);
    memset(&injector, 0, sizeof injector);
    memset(empty, 0, sizeof empty);
    memset(claims_done, 0, sizeof claims_done);
    head = tail = visible_tail = free_blocks = named = 0;
    head_moves = tail_moves = closed = false;
    depth = 0;
    total_blocks = 1;
    FUZZ_CHECK(ap_injector_init(&injector, &store, fuzz_first_index(&in)) == AP_OK);
    fuzz_at_point = at_point;
    while (fuzz_more(&in)) {
        switch (fuzz_byte(&in) % 16) {
        case 0:
            if (fuzz_byte(&in) % 16 == 0)
                close_it();
            break;
        case 1:
            fuzz_fail_allocation(fuzz_below(&in, 6));
            break;
        case 2:
        case 3:
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
            push();
            break;
        default:
            claim();
            break;
        }
        look();
        FUZZ_EQ(fuzz_live(), total_blocks);
        FUZZ_EQ(free_blocks + tail / SLOTS + 1, total_blocks + head / SLOTS);
    }
    while (head != tail)
        claim();
    look();
    ap_injector_destroy(&injector);
    ap_block_store_destroy(&store);
    FUZZ_EQ(fuzz_live(), 0);
    return 0;
}
