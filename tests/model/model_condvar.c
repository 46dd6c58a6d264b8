/* Futexes made of condition variables (sync/wait_condvar.c): the file that ships, on mutexes and
 * condition variables that the explorer schedules (posix/pthread.h).
 *
 * Whoever changes a word and wakes loses no sleeper, whoever else sleeps in the same bucket, and
 * whoever's time is over; a wake touches no word, which may be freed by then. */
#define AP_PARKING_CONDVAR 1
#define ap_wait_u32 condvar_wait
#define ap_wake_u32 condvar_wake
#define ap_wait_after_fork condvar_after_fork
#define ap_parking_backend condvar_backend
#include "sync/wait_condvar.c"

#include "explorer.h"

#define SOON 2000000 /* a deadline; the clock begins at half of it, and a look takes a little */

/* Sleepers on the first word, on a second one of the same bucket, on one of another. */
static ap_atomic_u32 *words; /* in a block of their own */
static ap_atomic_u32 *first, *second, *other;
static int rcs[2]; /* of waits with a deadline */
static int taken;  /* by whom */

static struct ap__bucket *bucket_of(ap_atomic_u32 *word) {
    return &ap__buckets[(uint64_t)(uintptr_t)word * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

/* Nobody has called anything yet. */
static void setup_untouched(void) {
    words = model_alloc(256 * sizeof *words);
    first = second = other = words;
    while (second == first || bucket_of(second) != bucket_of(first))
        second++;
    while (bucket_of(other) == bucket_of(first))
        other++;
    model_name(first, "first");
    model_name(second, "second");
    model_name(other, "other");
    model_name(&bucket_of(first)->lock, "bucket");
    model_name(&bucket_of(first)->woken, "woken");
    model_name(&bucket_of(first)->sleepers, "sleepers");
    rcs[0] = rcs[1] = AP_E_CLOSED;
    taken = 0;
}

static void setup(void) {
    setup_untouched();
    condvar_wake(first, 1);
}

static void wait_for(ap_atomic_u32 *word) {
    while (ap_u32_load_acquire(word) == 0)
        MODEL_CHECK(condvar_wait(word, 0, AP_FOREVER) == AP_OK);
}

static void change(ap_atomic_u32 *word, uint32_t sleepers) {
    ap_u32_store_release(word, 1);
    condvar_wake(word, sleepers);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void sleeper(void) {
    wait_for(first);
}

static void sleeper_of_second(void) {
    wait_for(second);
}

static void sleeper_of_other(void) {
    wait_for(other);
}

static void waker(void) {
    change(first, 1);
}

static void waker_of_all(void) {
    change(first, UINT32_MAX);
}

static void waker_of_other(void) {
    change(other, 1);
}

/* The change is ordered by nothing but the calls. */
static void relaxed_sleeper(void) {
    while (ap_u32_load_relaxed(first) == 0)
        condvar_wait(first, 0, AP_FOREVER);
}

static void relaxed_waker(void) {
    ap_u32_store_relaxed(first, 1);
    condvar_wake(first, 1);
}

/* It waits once, until its deadline or a wake. */
static void patient(void) {
    rcs[0] = condvar_wait(first, 0, SOON);
    MODEL_CHECK(rcs[0] == AP_OK || ap_clock_now() >= SOON);
}

/* Whoever sees 1 takes it; one stays until it has, the other until its deadline. */
static bool take(int who) {
    uint32_t one = 1;
    if (ap_u32_load_relaxed(first) == 0 || !ap_u32_cas_acq_rel(first, &one, 0))
        return false;
    taken = who;
    return true;
}

static void taker(void) {
    while (!take(1))
        condvar_wait(first, 0, AP_FOREVER);
}

static void taker_in_a_hurry(void) {
    while (!take(2))
        if (condvar_wait(first, 0, SOON) == AP_E_TIMEDOUT)
            return;
}

/* Frees what it has waited for as soon as it sees the change. */
static void sleeper_that_frees(void) {
    wait_for(first);
    model_free(words);
    words = NULL;
}

/* Forks at any step of the other, and uses the bucket in the child. */
static void forker(void) {
    model_fork();
    condvar_after_fork();
    condvar_wake(first, 1);
    MODEL_CHECK(condvar_wait(second, 0, SOON) == AP_E_TIMEDOUT);
    MODEL_CHECK(bucket_of(first)->sleepers == 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Some sleep for ever if nobody had to wake them. */
static bool only_second_may(void) {
    return model_has_ended(1) && model_has_ended(3);
}

static bool only_one_has_taken(void) {
    return taken == 2 && model_has_ended(2) && model_has_ended(3);
}

static void finish(void) {
    bucket_of(first)->sleepers = 0; /* for the next execution: the memory is static */
    if (words)
        model_free(words);
}

static void finish_empty(void) {
    MODEL_CHECK(bucket_of(first)->sleepers == 0 && bucket_of(other)->sleepers == 0);
    finish();
}

static void finish_taken(void) {
    model_outcome("%d", taken);
    finish();
}

static void finish_patient(void) {
    model_outcome("%s", rcs[0] == AP_OK ? "woken" : rcs[0] == AP_E_TIMEDOUT ? "late" : "?");
    finish_empty();
}

#define CASE(title, end, ...) \
    .name = "condvar, " title, .setup = setup, .finish = end, .threads = {__VA_ARGS__}
#define ALL .preemptions = MODEL_UNBOUNDED, .stale = MODEL_UNBOUNDED

const model_case model_cases[] = {
    {CASE("1 sleeper", finish_empty, sleeper, waker), ALL, .spurious = 1},
    {CASE("nothing but the calls orders", finish_empty, relaxed_sleeper, relaxed_waker), ALL,
     .spurious = 1},
    {CASE("2 sleepers", finish_empty, sleeper, sleeper, waker_of_all), .preemptions = 2, .stale = 1,
     .spurious = 1},
    {CASE("a sleeper of another word of the bucket", finish, sleeper, sleeper_of_second, waker),
     .preemptions = 3, .may_block = only_second_may},
    {CASE("sleepers of two buckets", finish_empty, sleeper, sleeper_of_other, waker,
          waker_of_other),
     .preemptions = 2},
    {CASE("a deadline", finish_patient, patient, waker), ALL, .spurious = 1,
     .outcomes = "woken|late"},
    {CASE("a deadline, and nobody wakes", finish_patient, patient), ALL, .outcomes = "late"},
    {CASE("a deadline takes no wake of another", finish_taken, taker, taker_in_a_hurry, waker),
     .preemptions = 2, .stale = 1, .outcomes = "1|2", .may_block = only_one_has_taken},
    {CASE("the word is freed", finish, sleeper_that_frees, waker), ALL, .spurious = 1},
    {.name = "condvar, the first calls",
     .setup = setup_untouched,
     .finish = finish_empty,
     ALL,
     .threads = {sleeper, waker}},
    {CASE("a fork", finish, sleeper, waker, forker), .preemptions = 2, .full = true},
    {.name = "condvar, a fork in the first call",
     .setup = setup_untouched,
     .finish = finish,
     .threads = {sleeper, forker},
     .preemptions = 2,
     .full = true},
    {0},
};
