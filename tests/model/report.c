/* Tells: names of addresses, steps of an execution, what has failed, what executions came to. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

bool telling, failed;
char failure[4096];

/* ---- names ---------------------------------------------------------------------------------- */

static struct name {
    uintptr_t address;
    char text[48];
} names[128];
static int name_count;

void model_name(const void *address, const char *text) {
    if (name_count == (int)(sizeof names / sizeof *names))
        return;
    names[name_count].address = (uintptr_t)address;
    snprintf(names[name_count++].text, sizeof names->text, "%s", text);
}

const char *name_of(uintptr_t address) {
    static char texts[4][80];
    static int turn;
    char *text = texts[turn++ % 4];
    const struct name *best = NULL;
    uintptr_t block = memory_block(address);
    for (int i = 0; i < name_count; i++)
        if (names[i].address <= address && memory_block(names[i].address) == block &&
            (!best || names[i].address >= best->address))
            best = &names[i];
    if (!best || (!block && address - best->address >= 4096))
        snprintf(text, sizeof *texts, "%#llx", (unsigned long long)address);
    else if (best->address == address)
        snprintf(text, sizeof *texts, "%s", best->text);
    else
        snprintf(text, sizeof *texts, "%s+%llu", best->text,
                 (unsigned long long)(address - best->address));
    return text;
}

void report_begin(void) {
    name_count = 0;
    failed = false;
}

/* ---- telling -------------------------------------------------------------------------------- */

/* The lines that a caller is on, with those that it is inlined at; known ones without a process. */
static const char *lines_of(const void *caller) {
    static char own[512];
    static struct {
        const void *caller;
        char text[200];
    } known[256];
    static int count;
    for (int i = 0; i < count; i++)
        if (known[i].caller == caller)
            return known[i].text;
    if (!own[0]) {
        FILE *link = popen("readlink /proc/$PPID/exe", "r");
        if (!link || !fgets(own, sizeof own, link))
            strcpy(own, "?");
        own[strcspn(own, "\n")] = 0;
        if (link)
            pclose(link);
    }
    count = count < 256 ? count + 1 : count; /* then the last place is used again */
    char command[700], line[512], *text = known[count - 1].text;
    size_t length = 0, size = sizeof known->text;
    known[count - 1].caller = caller;
    text[0] = 0;
    snprintf(command, sizeof command, "addr2line -i -s -e '%s' %#lx 2>/dev/null" /* binutils */,
             own, (unsigned long)((uintptr_t)caller - 1));
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        line[strcspn(line, " \n")] = 0;
        if (strncmp(line, "atomic", 6) != 0 && length < size) /* not what is around the access */
            length += (size_t)snprintf(text + length, size - length, "%s%s",
                                       length ? " < " : "    ", line);
    }
    if (pipe)
        pclose(pipe);
    return text;
}

void tell(const void *caller, const char *format, ...) {
    va_list arguments;
    printf("%6u  thread %d  ", number, self);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("%s\n", caller ? lines_of(caller) : "");
}

/* ---- failures ------------------------------------------------------------------------------- */

void model_fail(const char *format, ...) {
    if (!failed) {
        va_list arguments;
        failed = true;
        va_start(arguments, format);
        vsnprintf(failure, sizeof failure, format, arguments);
        va_end(arguments);
    }
    abandon();
}

/* Tells the failed execution again. */
void show_failure(void) {
    char text[sizeof failure];
    memcpy(text, failure, sizeof text);
    printf("%s: FAILED: %s\n  after %llu executions; again:\n", current->name, text,
           (unsigned long long)executions);
    if (how == RANDOM)
        printf("  %s --random 1 --seed %llu '%s'\n", given.program,
               (unsigned long long)(given.seed + executions - 1), current->name);
    print_trace();
    if (how != REPLAY && !given.quick) {
        replay_this();
        telling = true;
        execute();
        telling = false;
        if (!failed || strcmp(failure, text) != 0)
            printf("  replayed it came to: %s\n", failed ? failure : "no failure");
    }
}

/* ---- outcomes ------------------------------------------------------------------------------- */

static struct outcome {
    char text[64];
    uint64_t seen;
} outcomes[64];
static int outcome_count;

static bool among(const char *text, const char *list) {
    size_t length = strlen(text);
    for (const char *at = list; (at = strstr(at, text)); at++)
        if ((at == list || at[-1] == '|') && (at[length] == 0 || at[length] == '|'))
            return true;
    return false;
}

void model_outcome(const char *format, ...) {
    char text[sizeof outcomes->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int i = 0;
    while (i < outcome_count && strcmp(outcomes[i].text, text) != 0)
        i++;
    if (i == outcome_count) {
        if (i == (int)(sizeof outcomes / sizeof *outcomes))
            model_fail("too many outcomes");
        strcpy(outcomes[outcome_count++].text, text);
    }
    outcomes[i].seen++;
    if (current->outcomes && !among(text, current->outcomes))
        model_fail("an outcome that must not be: %s", text);
}

void forget_outcomes(void) {
    outcome_count = 0;
}

void check_outcomes(void) {
    char wanted[512], *rest = NULL;
    snprintf(wanted, sizeof wanted, "%s", current->outcomes);
    for (char *word = strtok_r(wanted, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        int i = 0;
        while (i < outcome_count && strcmp(outcomes[i].text, word) != 0)
            i++;
        if (i == outcome_count) {
            snprintf(failure, sizeof failure, "an outcome that was never seen: %s", word);
            failed = true;
        }
    }
}
