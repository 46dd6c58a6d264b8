#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifdef AP_POINT_HEADER
#include <stdint.h>
#include <string.h>

#include "chance.h"
#include "check.h"
#include "point_chaos.h"

static const char *check_point_name; /* set and used by one thread */
static void (*check_point_function)(void);

void check_point_call(const char *name, void (*call)(void)) {
    check_point_name = name;
    check_point_function = call;
}

static _Thread_local const char *check_point_mine;
static ap_atomic_u32 check_point_held; /* 0: nobody is held, 1: somebody is, 2: it is to go */

void check_point_hold_me(const char *name) {
    check_point_mine = name;
}

static void check_point_wait(uint32_t wanted) {
    while (ap_u32_load_acquire(&check_point_held) != wanted)
        check_pause_ns(50000);
}

void check_point_await_held(void) {
    check_point_wait(1);
}

void check_point_let_go(void) {
    ap_u32_store_release(&check_point_held, 2);
    check_point_wait(0);
}

void check_point(const char *name) {
    if (check_point_mine != NULL && strcmp(name, check_point_mine) == 0) {
        check_point_mine = NULL;
        ap_u32_store_release(&check_point_held, 1);
        check_point_wait(2);
        ap_u32_store_release(&check_point_held, 0);
    }
    if (check_point_name != NULL && strcmp(name, check_point_name) == 0) {
        check_point_name = NULL;
        check_point_function();
        return;
    }
    chance_pause(4, 60);
}
#endif
typedef int point_chaos_is_not_empty;
