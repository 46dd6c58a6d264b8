/* The explorer's own tests: the classic litmus shapes give exactly the outcomes that C11 allows,
 * but for those that its limits leave out, which are named here. */
#include "explorer.h"
#include "sync/atomic.h"

static ap_atomic_u32 *x, *y, *z;
static uint32_t a, b, c, d;

static void setup(void) {
    x = model_alloc(sizeof *x);
    y = model_alloc(sizeof *y);
    z = model_alloc(sizeof *z);
    model_name(x, "x");
    model_name(y, "y");
    model_name(z, "z");
    a = b = c = d = 9;
}

static void two(void) {
    model_outcome("%u %u", a, b);
}

static uint32_t load(ap_atomic_u32 *word, int order) {
    switch (order) {
    case AP_ORDER_RELAXED:
        return ap_u32_load_relaxed(word);
    case AP_ORDER_ACQUIRE:
        return ap_u32_load_acquire(word);
    default:
        return ap_u32_load_seq_cst(word);
    }
}

static void store(ap_atomic_u32 *word, uint32_t value, int order) {
    switch (order) {
    case AP_ORDER_RELAXED:
        ap_u32_store_relaxed(word, value);
        break;
    case AP_ORDER_RELEASE:
        ap_u32_store_release(word, value);
        break;
    default:
        ap_u32_store_seq_cst(word, value);
    }
}

/* values: order of the stores, order of the loads, order of a fence or -1 */
static void between(void) {
    if (model_value(2) > 0)
        model_fence(model_value(2));
}

/* store buffering */
static void sb_1(void) {
    store(x, 1, model_value(0));
    between();
    a = load(y, model_value(1));
}
static void sb_2(void) {
    store(y, 1, model_value(0));
    between();
    b = load(x, model_value(1));
}
static void sb_rmw_1(void) {
    (void)ap_u32_exchange_seq_cst(x, 1);
    a = ap_u32_load_relaxed(y);
}
static void sb_rmw_2(void) {
    (void)ap_u32_exchange_seq_cst(y, 1);
    b = ap_u32_load_relaxed(x);
}
static void sb_same_1(void) { /* a read-modify-write of the other's word instead of a load */
    ap_u32_store_relaxed(x, 1);
    a = ap_u32_add_acq_rel(y, 0);
}
static void sb_same_2(void) {
    (void)ap_u32_add_acq_rel(y, 1);
    b = ap_u32_load_relaxed(x);
}

/* message passing */
static void mp_1(void) {
    ap_u32_store_relaxed(x, 1);
    between();
    store(y, 1, model_value(0));
}
static void mp_2(void) {
    a = load(y, model_value(1));
    if (model_value(3))
        model_fence(model_value(3));
    b = ap_u32_load_relaxed(x);
}
/* a seq_cst word and a relaxed flag: 1 0 is a limit (a seq_cst load before an older relaxed one) */
static void mp_sc_1(void) {
    ap_u32_store_seq_cst(x, 1);
    ap_u32_store_release(y, 1);
}
static void mp_sc_2(void) {
    a = ap_u32_load_relaxed(y);
    b = ap_u32_load_seq_cst(x);
}
/* the same through a plain word */
static uint32_t *plain;
static void plain_setup(void) {
    setup();
    plain = model_alloc(sizeof *plain);
    model_name(plain, "plain");
}
static void mp_plain_1(void) {
    model_plain_write(plain, sizeof *plain);
    *plain = 1;
    store(y, 1, model_value(0));
}
static void mp_plain_2(void) {
    a = load(y, model_value(1));
    if (a) {
        model_plain_read(plain, sizeof *plain);
        b = *plain;
    }
}
/* release sequence: a third thread's read-modify-write lies between */
static void rs_2(void) {
    (void)ap_u32_add_relaxed(y, 1);
}
static void rs_3(void) {
    a = ap_u32_load_acquire(y);
    b = ap_u32_load_relaxed(x);
}

/* load buffering: 1 1 is a limit of the explorer */
static void lb_1(void) {
    a = ap_u32_load_relaxed(x);
    ap_u32_store_relaxed(y, 1);
}
static void lb_2(void) {
    b = ap_u32_load_relaxed(y);
    ap_u32_store_relaxed(x, 1);
}

/* independent reads of independent writes */
static void iriw_1(void) {
    store(x, 1, model_value(0));
}
static void iriw_2(void) {
    store(y, 1, model_value(0));
}
static void iriw_3(void) {
    a = load(x, model_value(1));
    b = load(y, model_value(1));
}
static void iriw_4(void) {
    c = load(y, model_value(1));
    d = load(x, model_value(1));
}
static void iriw(void) { /* all but one outcome are common */
    model_outcome(a == 1 && b == 0 && c == 1 && d == 0 ? "1 0 1 0" : "other");
}

/* coherence: one location */
static void co_1(void) {
    ap_u32_store_relaxed(x, 1);
    ap_u32_store_relaxed(x, 2);
}
static void co_2(void) {
    a = ap_u32_load_relaxed(x);
    b = ap_u32_load_relaxed(x);
}
static void corw_1(void) {
    a = ap_u32_load_relaxed(x);
    ap_u32_store_relaxed(x, 1);
}
static void corw_2(void) {
    ap_u32_store_relaxed(x, 2);
    b = ap_u32_load_relaxed(x);
}
static void corw(void) {
    model_outcome("%u %u %u", a, b, ap_u32_load_relaxed(x));
}

/* write to read causality */
static void wrc_1(void) {
    ap_u32_store_relaxed(x, 1);
}
static void wrc_2(void) {
    if (ap_u32_load_acquire(x) == 1)
        store(y, 1, model_value(0));
}
static void wrc_1_release(void) {
    ap_u32_store_release(x, 1);
}

/* two writers of two words: 1 1 is a limit (a store before an older one of the other thread) */
static void ww_1(void) {
    ap_u32_store_relaxed(x, 1);
    ap_u32_store_relaxed(y, 2);
}
static void ww_2(void) {
    ap_u32_store_relaxed(y, 1);
    ap_u32_store_relaxed(x, 2);
}
static void ww(void) {
    model_outcome("%u %u", ap_u32_load_relaxed(x), ap_u32_load_relaxed(y));
}

/* counting */
static void add(void) {
    (void)ap_u32_add_relaxed(x, 1);
}
static void add_in_two(void) {
    ap_u32_store_relaxed(x, ap_u32_load_relaxed(x) + 1);
}
static void cas_once(void) {
    uint32_t old = 0;
    if (!ap_u32_cas_acq_rel(x, &old, (uint32_t)model_self()))
        *(model_self() == 1 ? &a : &b) = old;
}
static void total(void) {
    model_outcome("%u", ap_u32_load_relaxed(x));
}

/* a seq_cst load against a relaxed store that came after a seq_cst one */
static void sc_mixed_1(void) {
    ap_u32_store_seq_cst(x, 1);
    a = ap_u32_load_seq_cst(y);
}
static void sc_mixed_2(void) {
    ap_u32_store_relaxed(y, 1);
    b = ap_u32_load_seq_cst(x);
}

/* two seq_cst loads of one word: the first to read 1 keeps the other from 0, so their order matters
 * although neither writes (1 0 1, of a, b and c, needs b's load before c's) */
static void loads_1(void) {
    ap_u32_store_relaxed(x, 1);
    ap_u32_store_relaxed(y, 1);
}
static void loads_1_seq_cst(void) {
    ap_u32_store_seq_cst(x, 1);
    ap_u32_store_relaxed(x, 2);
    ap_u32_store_relaxed(y, 1);
}
static void loads_2(void) {
    c = ap_u32_load_seq_cst(x);
}
static void loads_3(void) {
    a = ap_u32_load_relaxed(y);
    b = ap_u32_load_seq_cst(x);
}
static void three(void) {
    model_outcome("%u %u %u", a, b, c);
}

#define UNBOUNDED .preemptions = MODEL_UNBOUNDED, .stale = MODEL_UNBOUNDED, .leaves_memory = true
#define RLX AP_ORDER_RELAXED
#define ACQ AP_ORDER_ACQUIRE
#define REL AP_ORDER_RELEASE
#define SC AP_ORDER_SEQ_CST

#define SB(title, s, l, f, seen)                                                                   \
    {                                                                                              \
        .name = "store buffering, " title, .setup = setup, .threads = {sb_1, sb_2}, .finish = two, \
        .values = {s, l, f}, .outcomes = seen, .full = (f) > 0, UNBOUNDED                          \
    }
#define MP(title, s, l, f1, f2, seen)                                                              \
    {                                                                                              \
        .name = "message passing, " title, .setup = setup, .threads = {mp_1, mp_2}, .finish = two, \
        .values = {s, l, f1, f2}, .outcomes = seen, .full = (f1) + (f2) > 0, UNBOUNDED             \
    }
#define IRIW(title, s, l, seen)                                                        \
    {                                                                                  \
        .name = "independent reads, " title, .setup = setup,                           \
        .threads = {iriw_1, iriw_2, iriw_3, iriw_4}, .finish = iriw, .values = {s, l}, \
        .outcomes = seen, UNBOUNDED                                                    \
    }
#define LOADS(title, all, ...)                                                                     \
    {                                                                                              \
        .name = "two seq_cst loads of one word, " title, .setup = setup, .threads = {__VA_ARGS__}, \
        .finish = three, .full = all,                                                              \
        .outcomes = "0 0 0|0 0 1|0 1 0|0 1 1|1 0 0|1 0 1|1 1 0|1 1 1", UNBOUNDED                   \
    }
#define ALL_FOUR "0 0|0 1|1 0|1 1"

const model_case model_cases[] = {
    SB("relaxed", RLX, RLX, -1, ALL_FOUR),
    SB("release and acquire", REL, ACQ, -1, ALL_FOUR),
    SB("seq_cst", SC, SC, -1, "0 1|1 0|1 1"),
    SB("seq_cst stores, relaxed loads", SC, RLX, -1, ALL_FOUR),
    SB("relaxed stores, seq_cst loads", RLX, SC, -1, ALL_FOUR),
    SB("seq_cst fences", RLX, RLX, SC, "0 1|1 0|1 1"),
    SB("acq_rel fences", RLX, RLX, AP_ORDER_ACQ_REL, ALL_FOUR),
    {.name = "store buffering, exchanges and relaxed loads",
     .setup = setup,
     .threads = {sb_rmw_1, sb_rmw_2},
     .finish = two,
     .outcomes = ALL_FOUR,
     UNBOUNDED},
    {.name = "store buffering, read-modify-writes of one word",
     .setup = setup,
     .threads = {sb_same_1, sb_same_2},
     .finish = two,
     .outcomes = "0 1|1 0|1 1",
     UNBOUNDED},
    {.name = "store buffering, one relaxed store",
     .setup = setup,
     .threads = {sc_mixed_1, sc_mixed_2},
     .finish = two,
     .outcomes = ALL_FOUR,
     UNBOUNDED},
    MP("relaxed", RLX, RLX, 0, 0, ALL_FOUR),
    MP("release store, relaxed load", REL, RLX, 0, 0, ALL_FOUR),
    MP("relaxed store, acquire load", RLX, ACQ, 0, 0, ALL_FOUR),
    MP("release and acquire", REL, ACQ, 0, 0, "0 0|0 1|1 1"),
    MP("seq_cst", SC, SC, 0, 0, "0 0|0 1|1 1"),
    MP("fences", RLX, RLX, REL, ACQ, "0 0|0 1|1 1"),
    MP("release fence, relaxed load", RLX, RLX, REL, 0, ALL_FOUR),
    MP("release store, acquire fence", REL, RLX, 0, ACQ, "0 0|0 1|1 1"),
    {.name = "message passing, a seq_cst word and a relaxed flag",
     .setup = setup,
     .threads = {mp_sc_1, mp_sc_2},
     .finish = two,
     .outcomes = "0 0|0 1|1 1",
     UNBOUNDED},
    {.name = "message passing, through a read-modify-write of another",
     .setup = setup,
     .threads = {mp_1, rs_2, rs_3},
     .finish = two,
     .values = {REL, ACQ},
     .outcomes = "0 0|0 1|1 0|1 1|2 1",
     UNBOUNDED},
    {.name = "message passing, a plain word",
     .setup = plain_setup,
     .threads = {mp_plain_1, mp_plain_2},
     .finish = two,
     .values = {REL, ACQ},
     .outcomes = "0 9|1 1",
     UNBOUNDED},
    {.name = "load buffering",
     .setup = setup,
     .threads = {lb_1, lb_2},
     .finish = two,
     .outcomes = "0 0|0 1|1 0",
     UNBOUNDED},
    IRIW("relaxed", RLX, RLX, "1 0 1 0|other"),
    IRIW("release and acquire", REL, ACQ, "1 0 1 0|other"),
    IRIW("seq_cst", SC, SC, "other"),
    IRIW("relaxed stores, seq_cst loads", RLX, SC, "other"), /* by C++20; C11 leaves it open */
    LOADS("writer first", false, loads_1, loads_2, loads_3),
    LOADS("loads first", false, loads_2, loads_3, loads_1),
    LOADS("every switch", true, loads_1, loads_2, loads_3),
    {.name = "two seq_cst loads of one word, after a seq_cst store",
     .setup = setup,
     .threads = {loads_1_seq_cst, loads_2, loads_3},
     .finish = three,
     .outcomes = "0 0 0|0 0 1|0 0 2|0 1 0|0 1 1|0 1 2|0 2 0|0 2 1|0 2 2|"
                 "1 1 0|1 1 1|1 1 2|1 2 0|1 2 1|1 2 2",
     UNBOUNDED},
    {.name = "coherence, two reads",
     .setup = setup,
     .threads = {co_1, co_2},
     .finish = two,
     .outcomes = "0 0|0 1|0 2|1 1|1 2|2 2",
     UNBOUNDED},
    {.name = "coherence, read and write",
     .setup = setup,
     .threads = {corw_1, corw_2},
     .finish = corw,
     .outcomes = "0 2 2|0 1 1|0 2 1|2 2 1|2 1 1",
     UNBOUNDED},
    {.name = "causality, released",
     .setup = setup,
     .threads = {wrc_1_release, wrc_2, rs_3},
     .finish = two,
     .values = {REL},
     .outcomes = "0 0|0 1|1 1",
     UNBOUNDED},
    {.name = "causality, one relaxed store",
     .setup = setup,
     .threads = {wrc_1_release, wrc_2, rs_3},
     .finish = two,
     .values = {RLX},
     .outcomes = ALL_FOUR,
     UNBOUNDED},
    {.name = "causality, through a relaxed store",
     .setup = setup,
     .threads = {wrc_1, wrc_2, rs_3},
     .finish = two,
     .values = {REL},
     .outcomes = "0 0|0 1|1 1",
     UNBOUNDED},
    {.name = "two writers",
     .setup = setup,
     .threads = {ww_1, ww_2},
     .finish = ww,
     .outcomes = "2 2|1 2|2 1",
     UNBOUNDED},
    {.name = "counting, atomic",
     .setup = setup,
     .threads = {add, add, add},
     .finish = total,
     .outcomes = "3",
     UNBOUNDED},
    {.name = "counting, in two steps",
     .setup = setup,
     .threads = {add_in_two, add_in_two},
     .finish = total,
     .outcomes = "1|2",
     UNBOUNDED},
    {.name = "one of two compare-and-swaps",
     .setup = setup,
     .threads = {cas_once, cas_once},
     .finish = two,
     .outcomes = "9 1|2 9",
     UNBOUNDED},
    {0},
};
