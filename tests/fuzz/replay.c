/* A main for the harnesses where there is no libFuzzer: runs inputs again, with any compiler.
 *
 *     PROGRAM FILE...             each file as one input
 *     PROGRAM --random N SEED CRASH   N inputs at random; one that aborts is kept in the file CRASH
 *     PROGRAM --seeds DIRECTORY   writes the seed corpus: a few inputs at random of several lengths
 */
#include <signal.h>
#include <stdio.h>

#include "fuzz.h"

#define LENGTH_MAX 512

static uint64_t state;

static uint32_t next(void) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

static size_t fill(uint8_t *input, size_t length) {
    /* Some bytes come again and again: runs of one operation. */
    uint8_t last = 0;
    for (size_t i = 0; i < length; i++)
        input[i] = last = next() % 4 == 0 ? last : (uint8_t)next();
    return length;
}

static void write_seeds(const char *directory) {
    static const size_t lengths[] = {8, 32, 64, 128, 256, LENGTH_MAX};
    uint8_t input[LENGTH_MAX];
    for (unsigned i = 0; i < 4 * sizeof lengths / sizeof *lengths; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/seed-%02u", directory, i);
        FILE *file = fopen(name, "wb");
        size_t length = fill(input, lengths[i / 4]);
        FUZZ_CHECK(file != NULL && fwrite(input, 1, length, file) == length);
        FUZZ_CHECK(fclose(file) == 0);
    }
}

static void run_file(const char *name) {
    uint8_t *input = malloc(1 << 20);
    FILE *file = fopen(name, "rb");
    if (file == NULL || input == NULL) {
        perror(name);
        exit(2);
    }
    size_t length = fread(input, 1, 1 << 20, file);
    fclose(file);
    (void)LLVMFuzzerTestOneInput(input, length);
    free(input);
}

static uint8_t now[LENGTH_MAX];
static size_t now_length;
static const char *crash;

static void keep(int number) {
    FILE *file = fopen(crash, "wb");
    if (file != NULL) {
        (void)fwrite(now, 1, now_length, file);
        (void)fclose(file);
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void run_random(uint64_t count) {
    (void)signal(SIGABRT, keep);
    for (uint64_t i = 0; i < count; i++) {
        now_length = fill(now, 1 + next() % LENGTH_MAX);
        (void)LLVMFuzzerTestOneInput(now, now_length);
    }
}

int main(int argc, char **argv) {
    state = 1;
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        write_seeds(argv[2]);
    } else if (argc == 5 && strcmp(argv[1], "--random") == 0) {
        crash = argv[4];
        state = strtoull(argv[3], NULL, 10);
        run_random(strtoull(argv[2], NULL, 10));
    } else {
        for (int i = 1; i < argc; i++)
            run_file(argv[i]);
        printf("%d inputs replayed\n", argc - 1);
    }
    return 0;
}
