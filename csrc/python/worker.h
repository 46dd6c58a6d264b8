/* What Python calls through cffi.  The text between the cdef marks is given to cffi. */
#ifndef AFFINITYPOOL_WORKER_H
#define AFFINITYPOOL_WORKER_H

/* cdef: begin */
/* Adds the bridge's types and functions to the cffi module `module`.  0, or -1 with the Python
 * exception printed. */
int ap_python_bind(void *module);
#define AP_PYTHON_WORKER_ENDED 1
/* The life of a worker thread: runs tasks of the _core.Core at `core` until the pool has ended.
 * AP_OK; AP_PYTHON_WORKER_ENDED if it returned before that, and has to be replaced; or a negative
 * AP_E value if the thread could not become a worker. */
int ap_python_worker_run(void *core);
/* cdef: end */

#endif
