/* What a load may read: C11's memory orders by views.
 *
 * Overview.  Each location has a list of stores, in modification order.  Each thread has a view:
 * for each location the oldest store that it may still read (what it has read, written or learnt of
 * makes older ones unreadable), and a vector clock, for plain accesses and frees.
 *
 *     load               reads any store from the view's on; the view moves up to it
 *     acquire            joins the view that was released with the store that is read
 *     store              is the newest; a release keeps the thread's view with it
 *     read-modify-write  reads the newest; goes on with what that released (release sequence)
 *     failed CAS         is a load that reads another value than the expected one
 *     seq_cst            their order is the order of execution: such a load reads nothing older
 *                        than what a seq_cst operation on the location has touched before, or a
 *                        view before a seq_cst fence
 *     seq_cst fence      raises the view to what seq_cst operations have touched, and to the views
 *                        of earlier fences
 *     futex wait         compares under a lock, which a wake takes as well: reads nothing older
 *                        than what those that held it before knew of the word; a relaxed load else
 *
 * That the order of seq_cst operations is the order of execution leaves out what C++20 allows where
 * a thread has read a store relaxed, and the order of seq_cst operations puts its next one before
 * those that came before that store: then nothing but the order of execution is against it.
 */
#include <string.h>

#include "inside.h"

#define HASH 1024

view views[THREADS];
static view fenced[THREADS];     /* what the thread's last release fence released */
static view acquirable[THREADS]; /* what an acquire fence of it would learn */
static bool has_fenced[THREADS];

static location locations[LOCATIONS];
static int count;
static int16_t hashed[HASH]; /* location + 1 */

static void join(view *into, const view *from) {
    for (int i = 0; i < count; i++)
        into->seen[i] = into->seen[i] > from->seen[i] ? into->seen[i] : from->seen[i];
    for (int i = 0; i < THREADS; i++)
        into->clock[i] = into->clock[i] > from->clock[i] ? into->clock[i] : from->clock[i];
}

void order_reset(void) {
    /* Variables of the program begin each execution as they began the last one. */
    for (int i = 0; i < count; i++)
        if (!memory_is_arena(locations[i].address))
            memcpy((void *)locations[i].address, &locations[i].stores[0].value, locations[i].size);
    memset(views, 0, sizeof views);
    memset(fenced, 0, sizeof fenced);
    memset(acquirable, 0, sizeof acquirable);
    memset(has_fenced, 0, sizeof has_fenced);
    memset(hashed, 0, sizeof hashed);
    memset(locations, 0, (size_t)count * sizeof *locations);
    count = 0;
    for (int i = 0; i < THREADS; i++)
        views[i].clock[i] = 1;
}

void order_fork(int thread) {
    join(&views[thread], &views[0]);
    views[0].clock[0]++;
}

void order_join(void) {
    for (int i = 1; i < THREADS; i++)
        join(&views[0], &views[i]);
}

void order_catch_up(void) {
    for (int i = 0; i < count; i++)
        views[self].seen[i] = (int16_t)(locations[i].count - 1);
}

static uint64_t raw(const void *address, unsigned size) {
    uint64_t value = 0;
    memcpy(&value, address, size); /* little-endian, as both machines that this runs on are */
    return value;
}

static store *add(location *at, uint64_t value) {
    if (at->count == at->room) {
        int room = at->room ? 2 * at->room : 8;
        store *stores = arena_take((size_t)room * sizeof *stores);
        if (at->count)
            memcpy(stores, at->stores, (size_t)at->count * sizeof *stores);
        at->stores = stores;
        at->room = room;
    }
    store *added = &at->stores[at->count++];
    *added = (store){value, NULL};
    return added;
}

static int find(uintptr_t address) {
    unsigned at = (unsigned)(address >> 2) * 2654435761u >> 22;
    while (hashed[at] && locations[hashed[at] - 1].address != address)
        at = (at + 1) % HASH;
    return hashed[at] ? hashed[at] - 1 : -1 - (int)at;
}

/* The location, which is used now. */
static int use(void *address, unsigned size, const void *caller) {
    memory_check_use((uintptr_t)address, size, caller);
    int i = find((uintptr_t)address);
    if (i < 0) {
        if (count == LOCATIONS)
            model_fail("more than %d locations: raise LOCATIONS in inside.h", LOCATIONS);
        hashed[-1 - i] = (int16_t)(count + 1);
        i = count++;
        locations[i].address = (uintptr_t)address;
        locations[i].size = size;
        add(&locations[i], raw(address, size)); /* index 0: what it was made with */
    }
    locations[i].used[self] = views[self].clock[self];
    return i;
}

bool order_used_after(uintptr_t from, uintptr_t to, uintptr_t *address, int *thread) {
    for (int i = 0; i < count; i++)
        for (int t = 0; t < THREADS; t++)
            if (locations[i].address >= from && locations[i].address < to &&
                locations[i].used[t] > views[self].clock[t]) {
                *address = locations[i].address;
                *thread = t;
                return true;
            }
    return false;
}

static bool acquires(int order) {
    return order == AP_ORDER_ACQUIRE || order >= AP_ORDER_ACQ_REL;
}

static bool releases(int order) {
    return order >= AP_ORDER_RELEASE;
}

static const char *name_of_order(int order) {
    static const char *names[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
    return names[order];
}

/* The running thread has read a store. */
static void have_read(int i, int index, int order) {
    location *at = &locations[i];
    view *own = &views[self];
    const view *released = at->stores[index].released;
    own->seen[i] = own->seen[i] > index ? own->seen[i] : (int16_t)index;
    if (released) {
        if (acquires(order))
            join(own, released);
        else
            join(&acquirable[self], released);
    }
    if (order == AP_ORDER_SEQ_CST && index > at->seq_cst)
        at->seq_cst = (int16_t)index;
}

/* Appends a store that follows `before` of a read-modify-write, or -1. */
static void have_written(int i, uint64_t value, int order, int before) {
    location *at = &locations[i];
    const view *gone_on = before < 0 ? NULL : at->stores[before].released;
    store *added = add(at, value);
    views[self].seen[i] = (int16_t)(at->count - 1);
    if (releases(order) || has_fenced[self] || gone_on) {
        added->released = arena_take(sizeof(view));
        if (releases(order))
            *added->released = views[self];
        else if (has_fenced[self])
            *added->released = fenced[self];
        else
            memset(added->released, 0, sizeof(view));
        added->released->seen[i] = (int16_t)(at->count - 1);
        if (gone_on)
            join(added->released, gone_on);
        views[self].clock[self]++;
    }
    if (order == AP_ORDER_SEQ_CST)
        at->seq_cst = at->seq_cst_store = (int16_t)(at->count - 1);
}

/* The oldest store that the running thread may read. */
static int oldest(int i, int order) {
    int from = views[self].seen[i];
    if (order == AP_ORDER_SEQ_CST) {
        from = from > locations[i].seq_cst ? from : locations[i].seq_cst;
        from = from > locations[i].fenced ? from : locations[i].fenced;
    }
    return from;
}

/* What a seq_cst load has read is the oldest that later ones may: two of one location depend on
 * each other, if it has been stored to in another order since the last seq_cst store. */
static void point_of_floor(uintptr_t address) {
    int i = find(address);
    if (i >= 0 && locations[i].count - 1 > locations[i].seq_cst_store)
        point_also(address + 2, true);
}

uint64_t model_load(void *address, unsigned size, int order) {
    const void *caller = __builtin_return_address(0);
    point((uintptr_t)address, false);
    if (order == AP_ORDER_SEQ_CST)
        point_of_floor((uintptr_t)address);
    int i = use(address, size, caller);
    location *at = &locations[i];
    int newest = at->count - 1;
    int index = newest - (int)pick_within(BUDGET_STALE, (unsigned)(newest - oldest(i, order) + 1));
    have_read(i, index, order);
    TELL(caller, "load %s %s: %#llx%s", name_of_order(order), name_of((uintptr_t)address),
         (unsigned long long)at->stores[index].value, index < newest ? "  (not the newest)" : "");
    return at->stores[index].value;
}

void model_store(void *address, unsigned size, uint64_t value, int order) {
    const void *caller = __builtin_return_address(0);
    point((uintptr_t)address, true);
    int i = use(address, size, caller);
    have_written(i, value, order, -1);
    memcpy(address, &value, size);
    TELL(caller, "store %s %s: %#llx", name_of_order(order), name_of((uintptr_t)address),
         (unsigned long long)value);
}

static uint64_t result(int operation, uint64_t old, uint64_t value) {
    switch (operation) {
    case MODEL_ADD:
        return old + value;
    case MODEL_SUB:
        return old - value;
    case MODEL_OR:
        return old | value;
    case MODEL_AND:
        return old & value;
    default:
        return value;
    }
}

uint64_t model_modify(void *address, unsigned size, int operation, uint64_t value, int order) {
    static const char *names[] = {"exchange", "add", "sub", "or", "and"};
    const void *caller = __builtin_return_address(0);
    point((uintptr_t)address, true);
    int i = use(address, size, caller), newest = locations[i].count - 1;
    uint64_t old = locations[i].stores[newest].value;
    uint64_t new = result(operation, old, value);
    if (size < 8)
        new &= (UINT64_C(1) << 8 * size) - 1;
    have_read(i, newest, order);
    have_written(i, new, order, newest);
    memcpy(address, &new, size);
    TELL(caller, "%s %s %s: %#llx to %#llx", names[operation], name_of_order(order),
         name_of((uintptr_t)address), (unsigned long long)old, (unsigned long long)new);
    return old;
}

bool model_cas(void *address, unsigned size, uint64_t *expected, uint64_t desired, int order,
               int fail) {
    const void *caller = __builtin_return_address(0);
    point((uintptr_t)address, true);
    int i = use(address, size, caller);
    location *at = &locations[i];
    int newest = at->count - 1, index = newest;
    /* It fails by reading any store that it may read and that has another value. */
    int candidates[16], n = 0;
    candidates[n++] = newest;
    for (int older = newest - 1; older >= oldest(i, fail) && n < 16; older--)
        if (at->stores[older].value != *expected)
            candidates[n++] = older;
    index = candidates[pick_within(BUDGET_STALE, (unsigned)n)];
    uint64_t old = at->stores[index].value;
    bool done = old == *expected; /* only the newest has it, see above */
    have_read(i, index, done ? order : fail);
    if (done) {
        have_written(i, desired, order, newest);
        memcpy(address, &desired, size);
    }
    TELL(caller, "cas %s %s: %#llx to %#llx%s%s", name_of_order(order), name_of((uintptr_t)address),
         (unsigned long long)old, (unsigned long long)desired, done ? "" : ", failed",
         index < newest ? "  (not the newest)" : "");
    *expected = old;
    return done;
}

uint64_t order_compared(void *address, unsigned size) {
    int i = use(address, size, __builtin_return_address(0));
    location *at = &locations[i];
    int newest = at->count - 1, from = oldest(i, AP_ORDER_RELAXED);
    from = from > at->locked ? from : at->locked;
    int index = newest - (int)pick_within(BUDGET_STALE, (unsigned)(newest - from + 1));
    have_read(i, index, AP_ORDER_RELAXED);
    at->locked = views[self].seen[i];
    return at->stores[index].value;
}

void order_woke(uintptr_t address) {
    int i = find(address);
    if (i >= 0 && locations[i].locked < views[self].seen[i])
        locations[i].locked = views[self].seen[i];
}

void model_fence(int order) {
    const void *caller = __builtin_return_address(0);
    view *own = &views[self];
    point(order == AP_ORDER_SEQ_CST ? 1 : 0, true);
    if (acquires(order))
        join(own, &acquirable[self]);
    if (order == AP_ORDER_SEQ_CST) {
        for (int i = 0; i < count; i++) {
            location *at = &locations[i];
            int16_t most = own->seen[i];
            most = most > at->fenced ? most : at->fenced;
            most = most > at->seq_cst ? most : at->seq_cst;
            own->seen[i] = at->fenced = most;
        }
    }
    if (releases(order)) {
        fenced[self] = *own;
        has_fenced[self] = true;
        own->clock[self]++;
    }
    TELL(caller, "fence %s", name_of_order(order));
}
