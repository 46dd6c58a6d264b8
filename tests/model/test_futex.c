/* The explorer's own tests: what a futex wait may compare, and whom a wake finds.
 *
 * A wait compares under a lock that a wake takes as well, so it sees what whoever wakes, or has
 * compared before, knew of the word.  Else it is a relaxed load: after a store that is not
 * ordered it may still compare the old value, however late it is executed. */
#include "explorer.h"
#include "sync/atomic.h"
#include "sync/wait.h"

static ap_atomic_u32 *word, *flag, *order;
static uint32_t a, b;
static const char *what[3];

static void setup(void) {
    word = model_alloc(sizeof *word);
    flag = model_alloc(sizeof *flag);
    order = model_alloc(sizeof *order);
    model_name(word, "word");
    model_name(flag, "flag");
    model_name(order, "order");
    a = b = 9;
    what[0] = what[1] = what[2] = "asleep";
}

static bool may_sleep(void) {
    return true;
}

static void wait(void) {
    (void)ap_wait_u32(word, 0, AP_FOREVER);
    what[model_self()] = "awake";
}

/* A waker that looks for sleepers, and a sleeper that says so and looks at the word again.
 * values: whether the store, the flags, the second look are seq_cst */
static void change_and_look(void) {
    if (model_value(0))
        ap_u32_store_seq_cst(word, 1);
    else
        ap_u32_store_relaxed(word, 1);
    a = model_value(1) ? ap_u32_load_seq_cst(flag) : ap_u32_load_relaxed(flag);
    if (a)
        ap_wake_u32(word, 1);
}
static void say_and_wait(void) {
    if (model_value(1))
        ap_u32_store_seq_cst(flag, 1);
    else
        ap_u32_store_relaxed(flag, 1);
    if (model_value(2) && ap_u32_load_seq_cst(word))
        what[2] = "awake";
    else
        wait();
}
static void looked(void) {
    model_outcome("%u %s", a, what[2]);
}

/* The change is not ordered, but is followed by a wake: by the same thread, or by one that knows
 * of the change. */
static void change_and_wake(void) {
    ap_u32_store_relaxed(word, 1);
    ap_wake_u32(word, 1);
}
static void change_and_tell(void) {
    ap_u32_store_relaxed(word, 1);
    ap_u32_store_release(flag, 1);
}
static void wake_when_told(void) {
    a = model_value(0) ? ap_u32_load_acquire(flag) : ap_u32_load_relaxed(flag);
    if (a)
        ap_wake_u32(word, 1);
}
static void second_is(void) {
    model_outcome("%s", what[2]);
}

/* A load after a wait that has compared the new value. */
static void change(void) {
    ap_u32_store_relaxed(word, 1);
}
static void wait_and_load(void) {
    wait();
    b = ap_u32_load_relaxed(word);
}
static void loaded(void) {
    model_outcome("%s %u", what[2], b);
}

/* A wait after another one has compared the new value. */
static void wait_and_say(void) {
    wait();
    ap_u32_store_relaxed(flag, 1);
}
static void load_and_wait(void) {
    a = ap_u32_load_relaxed(flag);
    wait();
}
static void waited(void) {
    model_outcome("%u %s", a, what[1]);
}

/* Two sleepers, of whom the first that has come is woken. */
static void change_and_wake_one(void) {
    ap_u32_store_seq_cst(word, 1);
    ap_wake_u32(word, 1);
}
static void both(void) {
    model_outcome("%s %s", what[1], what[2]);
}

#define CASE(title, end, ...)                                               \
    .name = title, .setup = setup, .threads = {__VA_ARGS__}, .finish = end, \
    .may_block = may_sleep, .preemptions = MODEL_UNBOUNDED, .leaves_memory = true
#define OLDER .stale = MODEL_UNBOUNDED

const model_case model_cases[] = {
    {CASE("futex, relaxed store, seq_cst flag", looked, change_and_look, say_and_wait),
     .values = {0, 1, 1}, OLDER, .outcomes = "0 awake|0 asleep|1 awake"},
    {CASE("futex, seq_cst store, relaxed flag", looked, change_and_look, say_and_wait),
     .values = {1, 0, 1}, OLDER, .outcomes = "0 awake|0 asleep|1 awake"},
    /* the compare of Linux is behind a full barrier, that of the condition variables is not */
    {CASE("futex, seq_cst, no second look", looked, change_and_look, say_and_wait),
     .values = {1, 1, 0}, OLDER, .outcomes = "0 awake|0 asleep|1 awake"},
    {CASE("futex, seq_cst", looked, change_and_look, say_and_wait), .values = {1, 1, 1}, OLDER,
     .outcomes = "0 awake|1 awake"},
    {CASE("futex, relaxed store and a wake", second_is, change_and_wake, wait), OLDER,
     .outcomes = "awake"},
    {CASE("futex, a wake by one who knows", waited, wait, change_and_tell, wake_when_told),
     .values = {1}, OLDER, .outcomes = "0 awake|0 asleep|1 awake"},
    {CASE("futex, a wake by one who does not know", waited, wait, change_and_tell, wake_when_told),
     .values = {0}, OLDER, .outcomes = "0 awake|0 asleep|1 awake|1 asleep"},
    {CASE("futex, a load after it", loaded, change, wait_and_load), OLDER,
     .outcomes = "asleep 9|awake 1"},
    {CASE("futex, another wait after it", waited, load_and_wait, wait_and_say, change), OLDER,
     .outcomes = "0 awake|0 asleep|1 awake"},
    {CASE("futex, the first of two is woken", both, wait, wait, change_and_wake_one), .stale = -1,
     .outcomes = "awake awake|awake asleep|asleep awake"},
    {0},
};
