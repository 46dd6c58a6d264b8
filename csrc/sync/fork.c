#include "sync/fork.h"

#include <pthread.h>

int ap_fork_watch(void (*in_child)(void)) {
    return pthread_atfork(NULL, NULL, in_child);
}
