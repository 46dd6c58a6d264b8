/* Memory that is freed, or not yet made known, and races of plain accesses.
 *
 * Overview.  The memory of an execution comes from one piece, at the same addresses each time, and
 * none is used twice.  For each byte that was accessed plainly there are the clocks of the last
 * write and of each thread's last read; an access races with an earlier one of another thread that
 * did not happen before it, if one of them is a write.  So does a free with any access.
 *
 * The calls __tsan_... are put into the code under test by the compiler; that library is not
 * linked.
 */
#include <string.h>

#include "inside.h"
#include "sync/memory.h"

#define ARENA (4u << 20)
#define LINE 128
#define CELLS 8192 /* a power of two */

typedef struct block {
    uintptr_t from, to;
    int16_t thread, clock; /* of its making */
    bool freed;
} block;

typedef struct cell { /* of 8 bytes */
    uintptr_t address;
    uint32_t execution;
    int8_t only; /* the one thread that was here, + 1; -1: there were several */
    int8_t writer[8];
    int16_t written[8];
    int16_t read[8][THREADS];
} cell;

static _Alignas(LINE) char arena[ARENA]; /* blocks from below, what the explorer keeps from above */
static size_t bottom, top = ARENA;
static block blocks[256];
static int16_t owner[ARENA / LINE]; /* block + 1 */
static unsigned count, live;
static cell cells[CELLS];
static uint32_t execution = 1;

void memory_reset(void) {
    memset(owner, 0, (bottom + LINE - 1) / LINE * sizeof *owner);
    bottom = 0;
    top = ARENA;
    count = live = 0;
    execution++;
}

bool memory_is_arena(uintptr_t address) {
    return address - (uintptr_t)arena < ARENA;
}

unsigned memory_live(void) {
    return live;
}

void *arena_take(size_t size) {
    size = (size + 15) / 16 * 16;
    if (top - bottom < size)
        model_fail("out of memory: raise ARENA in memory.c");
    return &arena[top -= size];
}

/* ---- blocks --------------------------------------------------------------------------------- */

void *model_alloc(size_t size) {
    size = (size + LINE - 1) / LINE * LINE;
    if (top - bottom < size || count == sizeof blocks / sizeof *blocks)
        model_fail("out of memory: raise ARENA in memory.c");
    void *memory = &arena[bottom];
    memset(memory, 0, size);
    blocks[count] = (block){(uintptr_t)memory, (uintptr_t)memory + size, (int16_t)self,
                            views[self].clock[self], false};
    count++;
    live++;
    for (size_t i = bottom / LINE; i < (bottom + size) / LINE; i++)
        owner[i] = (int16_t)count;
    bottom += size;
    return memory;
}

static block *block_of(uintptr_t address) {
    size_t offset = address - (uintptr_t)arena;
    return offset < bottom && owner[offset / LINE] ? &blocks[owner[offset / LINE] - 1] : NULL;
}

uintptr_t memory_block(uintptr_t address) {
    block *in = block_of(address);
    return in ? in->from : 0;
}

void memory_check_use(uintptr_t address, size_t size, const void *caller) {
    block *in = block_of(address);
    if (!in)
        return;
    if (in->freed || address + size > in->to) {
        TELL(caller, "use of %s", name_of(address));
        model_fail("%s: %s is used", in->freed ? "use after free" : "past the end",
                   name_of(address));
    }
    if (in->thread != self && in->clock > views[self].clock[in->thread]) {
        TELL(caller, "use of %s", name_of(address));
        model_fail("%s is used, but its making by thread %d does not happen before",
                   name_of(address), in->thread);
    }
}

static cell *cell_of(uintptr_t address) {
    unsigned i = (unsigned)(address >> 3) * 2654435761u % CELLS;
    for (unsigned tries = 0; cells[i].execution == execution && cells[i].address != address >> 3;
         i = (i + 1) % CELLS)
        if (++tries == CELLS)
            model_fail("too many plain accesses: raise CELLS in memory.c");
    cell *found = &cells[i];
    if (found->execution != execution) {
        memset(found, 0, sizeof *found);
        found->execution = execution;
        found->address = address >> 3;
    }
    return found;
}

static _Noreturn void race(uintptr_t address, const char *what, const char *with, int thread,
                           const void *caller) {
    TELL(caller, "plain %s of %s", what, name_of(address));
    model_fail("data race on %s: this %s, and a %s of thread %d", name_of(address), what, with,
               thread);
}

static void access_cell(cell *at, unsigned from, unsigned to, bool writes, const void *caller) {
    const view *own = &views[self];
    bool alone = at->only == 0 || at->only == self + 1;
    at->only = alone ? (int8_t)(self + 1) : -1;
    for (unsigned byte = from; byte < to; byte++) {
        uintptr_t address = (at->address << 3) + byte;
        int writer = at->writer[byte];
        if (!alone && !(forked && writes) && at->written[byte] > own->clock[writer])
            race(address, writes ? "write" : "read", "write", writer, caller);
        if (!writes) {
            at->read[byte][self] = own->clock[self];
            continue;
        }
        for (int t = 0; t < THREADS && !alone && !forked; t++)
            if (at->read[byte][t] > own->clock[t])
                race(address, "write", "read", t, caller);
        at->writer[byte] = (int8_t)self;
        at->written[byte] = own->clock[self];
    }
}

static void access_plainly(uintptr_t address, size_t size, bool writes, const void *caller) {
    if (unwatched || is_thread_local(address))
        return;
    memory_check_use(address, size, caller);
    while (size > 0) {
        unsigned from = (unsigned)(address & 7);
        unsigned to = size < 8 - from ? from + (unsigned)size : 8;
        access_cell(cell_of(address), from, to, writes, caller);
        address += to - from;
        size -= to - from;
    }
}

void model_free(void *memory) {
    const void *caller = __builtin_return_address(0);
    block *in = block_of((uintptr_t)memory);
    if (!in || in->from != (uintptr_t)memory || in->freed)
        model_fail("a free of what is no block, or is freed already");
    uintptr_t address;
    int thread;
    memory_check_use(in->from, 1, caller);
    if (!forked && order_used_after(in->from, in->to, &address, &thread))
        model_fail("%s is freed, and its use by thread %d did not happen before", name_of(address),
                   thread);
    for (unsigned i = 0; i < CELLS; i++) {
        uintptr_t at = cells[i].address << 3;
        if (cells[i].execution == execution && at >= in->from && at < in->to)
            access_plainly(at, 8, true, caller);
    }
    TELL(caller, "free of %s", name_of(in->from));
    in->freed = true;
    live--;
}

/* ---- what the code under test calls ---------------------------------------------------------- */

void *ap_memory_alloc(size_t size) {
    return together && pick_within(BUDGET_FAILURE, 2) ? NULL : model_alloc(size);
}

void ap_memory_free(void *memory) {
    if (memory)
        model_free(memory);
}

void model_plain_read(const void *address, size_t size) {
    access_plainly((uintptr_t)address, size, false, __builtin_return_address(0));
}

void model_plain_write(void *address, size_t size) {
    access_plainly((uintptr_t)address, size, true, __builtin_return_address(0));
}

#define PLAIN(size)                                                             \
    void __tsan_read##size(void *p);                                            \
    void __tsan_write##size(void *p);                                           \
    void __tsan_unaligned_read##size(void *p);                                  \
    void __tsan_unaligned_write##size(void *p);                                 \
    void __tsan_read##size(void *p) {                                           \
        access_plainly((uintptr_t)p, size, false, __builtin_return_address(0)); \
    }                                                                           \
    void __tsan_write##size(void *p) {                                          \
        access_plainly((uintptr_t)p, size, true, __builtin_return_address(0));  \
    }                                                                           \
    void __tsan_unaligned_read##size(void *p) {                                 \
        access_plainly((uintptr_t)p, size, false, __builtin_return_address(0)); \
    }                                                                           \
    void __tsan_unaligned_write##size(void *p) {                                \
        access_plainly((uintptr_t)p, size, true, __builtin_return_address(0));  \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *p, size_t size);
void __tsan_write_range(void *p, size_t size);
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *p, size_t size) {
    access_plainly((uintptr_t)p, size, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t size) {
    access_plainly((uintptr_t)p, size, true, __builtin_return_address(0));
}
void __tsan_init(void) {
}
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void) {
}
