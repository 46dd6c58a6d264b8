/* Cases that fail, one for each kind of failure, and each kind of decision that a trace names: for
 * check_program.py.  After its comma a name says what must be in the failure. */
#include "explorer.h"
#include "sync/atomic.h"
#include "sync/memory.h"
#include "sync/wait.h"

static ap_atomic_u32 *x, *flag;
static uint32_t *plain;

static void setup(void) {
    x = model_alloc(sizeof *x);
    flag = model_alloc(sizeof *flag);
    plain = model_alloc(sizeof *plain);
    model_name(x, "x");
    model_name(flag, "flag");
}
static void finish(void) {
    model_free(x);
    model_free(flag);
    model_free(plain);
}

/* switches: both load before one stores */
static void add_in_two(void) {
    ap_u32_store_relaxed(x, ap_u32_load_relaxed(x) + 1);
}
static void expect_three(void) {
    MODEL_CHECK(ap_u32_load_relaxed(x) == 3);
    finish();
}

/* an older load, after a choice */
static void change(void) {
    ap_u32_store_relaxed(x, 1);
    ap_u32_store_relaxed(flag, 1);
}
static void choose_and_load(void) {
    if (model_choose(3) == 2 && ap_u32_load_relaxed(flag) == 1)
        MODEL_CHECK(ap_u32_load_relaxed(x) == 1);
}

/* a futex wait that compares an older value */
static void change_and_look(void) {
    ap_u32_store_relaxed(x, 1);
    if (ap_u32_load_seq_cst(flag))
        ap_wake_u32(x, 1);
}
static void say_and_wait(void) {
    ap_u32_store_seq_cst(flag, 1);
    if (!ap_u32_load_seq_cst(x))
        (void)ap_wait_u32(x, 0, AP_FOREVER);
}

/* a futex wait that returns for no reason; its deadline */
static void wait(void) {
    MODEL_CHECK(ap_wait_u32(x, 0, AP_FOREVER) != AP_OK || ap_u32_load_acquire(flag));
}
static void say_and_wake(void) {
    ap_u32_store_seq_cst(flag, 1);
    ap_u32_store_seq_cst(x, 1);
    ap_wake_u32(x, 1);
}
static void wait_for_a_while(void) {
    MODEL_CHECK(ap_wait_u32(x, 0, 1000000000) == AP_OK);
}

static void allocate(void) {
    void *memory = ap_memory_alloc(8);
    MODEL_CHECK(memory);
    ap_memory_free(memory);
}

static void write_plainly(void) {
    model_plain_write(plain, sizeof *plain);
    *plain = 1;
}
static void free_it(void) {
    model_free(flag);
}
static void use_it(void) {
    ap_u32_store_relaxed(flag, 1);
}
static void turn(void) {
    while (!ap_u32_load_relaxed(x)) {
    }
}
static void follow(void) {
    static uint32_t *volatile nowhere = (uint32_t *)8;
    *nowhere = ap_u32_load_relaxed(x);
}
static void leave(void) {
    (void)model_alloc(8);
}
static void give_outcome(void) {
    model_outcome("%u", ap_u32_load_relaxed(x));
    finish();
}
static void nothing(void) {
    (void)ap_u32_load_relaxed(x);
}

#define CASE(...) .setup = setup, .threads = {__VA_ARGS__}, .finish = finish, .preemptions = 2

const model_case model_cases[] = {
    {.name = "switches, broken.c:",
     .setup = setup,
     .threads = {add_in_two, add_in_two, add_in_two},
     .finish = expect_three,
     .preemptions = 2},
    {.name = "a choice and an older load, broken.c:", CASE(change, choose_and_load)},
    {.name = "an older compare, lost wake", CASE(change_and_look, say_and_wait)},
    {.name = "a return for no reason, broken.c:", CASE(wait, say_and_wake), .spurious = 1},
    {.name = "a deadline, broken.c:", CASE(wait_for_a_while, say_and_wake)},
    {.name = "an allocation fails, broken.c:", CASE(allocate, allocate), .failures = 1},
    {.name = "a race, data race on 0x", CASE(write_plainly, write_plainly)}, /* x has a name */
    {.name = "a free, ", CASE(free_it, use_it)},
    {.name = "a turning, more than", CASE(turn, nothing)},
    {.name = "a crash, crash: signal 11", CASE(follow, nothing)},
    {.name = "a leak, memory is left", CASE(leave, nothing)},
    {.name = "an outcome, an outcome that must not be: 2",
     .setup = setup,
     .threads = {add_in_two, add_in_two},
     .finish = give_outcome,
     .outcomes = "1|3",
     .preemptions = 2},
    {.name = "a control", CASE(add_in_two, nothing), .fails = "what it does not fail with"},
    {0},
};
