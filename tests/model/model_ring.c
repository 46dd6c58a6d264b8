/* The ring (ring.h): owner against thieves, round its end, and when it is full. */
#include "crew.h"
#include "sched/ring.h"

/* values: tasks that the owner pushes, how many at a time, thieves that take one (1) or half (0),
 * slots */
static ap_ring *own, *stolen[2];

static ap_ring *make(uint64_t first) {
    ap_ring *ring = model_alloc(ap_ring_size((uint32_t)model_value(3)));
    ap_ring_init(ring, (uint32_t)model_value(3), first);
    return ring;
}

static void setup(void) {
    own = make(UINT64_MAX);
    stolen[0] = make(5);
    stolen[1] = make(UINT64_MAX - 1);
    crew_tasks = model_alloc(CREW_TASKS_MAX * sizeof *crew_tasks);
    model_name(crew_tasks, "tasks");
    model_name(&own->head, "head");
    model_name(&own->tail, "tail");
    model_name(own->slots, "slots");
}

static void owner(void) {
    int next = 0;
    while (next < model_value(0)) {
        int room = (int)ap_ring_room(own);
        if (room < model_value(1)) { /* the real owner pushes to its shard then */
            ap_task *task = ap_ring_pop_try(own);
            if (task)
                crew_run(task);
            continue;
        }
        for (int i = 0; i < model_value(1); i++)
            ap_ring_stage(own, (uint32_t)i, crew_task_of(next++));
        ap_ring_publish(own, (uint32_t)model_value(1));
    }
    ap_task *task;
    while ((task = ap_ring_pop_try(own)))
        crew_run(task);
}

static void thief(void) {
    ap_ring *into = stolen[model_self() - 2];
    ap_task *task = NULL;
    for (int i = 0; i < 2; i++) {
        if (model_value(2)) {
            task = ap_ring_take_try(own);
        } else {
            uint32_t n = ap_ring_steal_try(own, into, ap_ring_room(into), &task);
            if (n > 1)
                ap_ring_publish(into, n - 1);
            if (n == 0)
                task = NULL;
        }
        if (task)
            crew_run(task);
        while ((task = ap_ring_pop_try(into)))
            crew_run(task);
    }
}

static void finish(void) {
    MODEL_CHECK(ap_ring_look(own) == AP_QUEUE_EMPTY);
    crew_check_run(model_value(0));
}

#define CASE(title, bound, ...)                                             \
    .name = title, .setup = setup, .finish = finish, .leaves_memory = true, \
    .values = {__VA_ARGS__}, .preemptions = bound

const model_case model_cases[] = {
    {CASE("ring, 1 thief of halves", 3, 4, 1, 0, 2), .threads = {owner, thief}},
    {CASE("ring, 1 thief of one", 3, 4, 1, 1, 2), .threads = {owner, thief}},
    {CASE("ring, 1 thief, pushes of two", 4, 4, 2, 0, 2), .threads = {owner, thief}},
    {CASE("ring, 1 thief of halves, 4 slots", 2, 6, 3, 0, 4), .threads = {owner, thief}},
    {CASE("ring, 2 thieves of halves", 2, 3, 1, 0, 2), .threads = {owner, thief, thief}},
    {CASE("ring, 2 thieves of one", 2, 3, 1, 1, 2), .threads = {owner, thief, thief}},
    {0},
};
