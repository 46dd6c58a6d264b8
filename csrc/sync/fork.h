/* What is called in a forked child. */
#ifndef AP_SYNC_FORK_H
#define AP_SYNC_FORK_H

/* From now on every fork() of the process calls `in_child` in the child, before it returns there,
 * in the only thread that there is; children made by vfork or posix_spawn do not.  0 or an errno.
 */
int ap_fork_watch(void (*in_child)(void));

#endif
