/* What the bridge uses of CPython, for the explorer: what CPython guarantees, and no more.
 *
 * Overview.  It claims to be 3.13.  Objects have a reference count and a type with a destructor;
 * functions are C functions; an exception is a pointer in the thread.  Memory is the explorer's.
 *
 * With a GIL: a lock that a thread holds while it is attached.  Counts are plain: whoever changes
 * one detached fails a check, or races.
 *
 * Py_GIL_DISABLED: no such lock.  Counts are atomic, relaxed up, acquire and release down.  Each
 * object has a lock, which a critical section holds; one that has to wait lets go of those around
 * it meanwhile, as does whoever detaches.
 *
 * A call may let go of the interpreter, and so may the end of an object (its finalizer): both do,
 * each time.  A file that needs something that is not here does not compile; what only has to
 * compile is at the end, and fails if it is called.
 */
#ifndef MODEL_PYTHON_H
#define MODEL_PYTHON_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "explorer.h"
#include "sync/atomic.h"
#include "sync/cpu.h"
#include "sync/memory.h"

#define PY_VERSION_HEX 0x030D0000
#define _Thread_local AP_THREAD_LOCAL /* threads are the explorer's */
#define calloc(count, size) ap_memory_alloc((count) * (size))
#define free ap_memory_free

typedef ptrdiff_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;

struct _object {
#ifdef Py_GIL_DISABLED
    ap_atomic_u64 ob_ref_shared; /* all references: no thread counts some by itself */
    uint32_t ob_ref_local;
    uintptr_t ob_tid;
    ap_atomic_u32 ob_mutex;
#else
    Py_ssize_t ob_refcnt;
#endif
    PyTypeObject *ob_type;
    bool immortal;
    bool tracked; /* by the collector */
};

#define PyObject_HEAD PyObject ob_base;
#define Py_TYPE(op) (((PyObject *)(op))->ob_type)

typedef void (*destructor)(PyObject *);
typedef int (*visitproc)(PyObject *, void *);
typedef int (*traverseproc)(PyObject *, visitproc, void *);
typedef struct {
    void *nb_float, *nb_index;
} PyNumberMethods;
typedef struct {
    Py_ssize_t (*mp_length)(PyObject *);
} PyMappingMethods;

struct _typeobject {
    PyObject_HEAD const char *tp_name;
    size_t tp_basicsize;
    PyTypeObject *tp_base; /* whose methods and attributes it has too */
    destructor tp_dealloc, tp_finalize;
    traverseproc tp_traverse;
    PyObject *(*tp_new)(PyTypeObject *, PyObject *, PyObject *);
    PyObject *(*tp_call)(PyObject *, PyObject *, PyObject *);
    PyNumberMethods *tp_as_number;
    PyMappingMethods *tp_as_mapping;
    PyObject *(*tp_alloc)(PyTypeObject *, Py_ssize_t);
    void (*tp_free)(void *);
    const struct PyMethodDef *tp_methods;
    const struct PyGetSetDef *tp_getset;
};

/* ---- counts ---------------------------------------------------------------------------------- */

void model_incref(PyObject *op);
void model_decref(PyObject *op);
PyObject *model_newref(PyObject *op);

#define Py_INCREF(op) model_incref((PyObject *)(op))
#define Py_DECREF(op) model_decref((PyObject *)(op))
#define Py_XDECREF(op) ((op) ? model_decref((PyObject *)(op)) : (void)0)
#define Py_NewRef(op) model_newref((PyObject *)(op))
#define Py_XNewRef(op) ((op) ? model_newref((PyObject *)(op)) : NULL)
#define Py_SETREF(at, value)                  \
    do {                                      \
        PyObject *model_old = (PyObject *)at; \
        at = value;                           \
        Py_DECREF(model_old);                 \
    } while (0)
#define Py_CLEAR(at)                          \
    do {                                      \
        PyObject *model_old = (PyObject *)at; \
        at = NULL;                            \
        Py_XDECREF(model_old);                \
    } while (0)
#ifdef Py_GIL_DISABLED
#define _Py_REF_SHARED_SHIFT 0
#define _Py_REF_MERGED 0
#define _Py_REF_SHARED(count, flags) (count)
#define _Py_IsImmortal(op) ((op)->immortal)
#define _Py_IsOwnedByCurrentThread(op) ((void)(op), false)
#define _Py_atomic_add_ssize(at, value) ap_u64_add_relaxed(at, (uint64_t)(value))
#define _Py_atomic_load_ssize_relaxed(at) ((Py_ssize_t)ap_u64_load_relaxed(at))
#define _Py_atomic_compare_exchange_ssize(at, expected, value) \
    ap_u64_cas_seq_cst(at, (uint64_t *)(expected), (uint64_t)(value))
#define _Py_atomic_store_uint32_relaxed(at, value) (*(at) = (value))
#define _Py_atomic_store_uintptr_relaxed(at, value) (*(at) = (value))
#define Py_ARITHMETIC_RIGHT_SHIFT(type, value, by) ((type)(value) >> (by))
#else
#define Py_REFCNT(op) (((PyObject *)(op))->ob_refcnt)
#endif

#define PyObject_IS_GC(op) ((void)(op), true)
#define PyObject_GC_IsTracked(op) ((op)->tracked)
void PyObject_GC_Track(void *op);
void PyObject_GC_UnTrack(void *op);
#define Py_VISIT(op)                                \
    do {                                            \
        if (op) {                                   \
            int ended = visit((PyObject *)op, arg); \
            if (ended)                              \
                return ended;                       \
        }                                           \
    } while (0)

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct _err_stackitem {
    PyObject *exc_value;
} _PyErr_StackItem;

#ifdef Py_GIL_DISABLED
#define MODEL_SHARED(type, atomic) atomic /* what other threads change */
#define _Py_atomic_load_ptr_relaxed(at) ap_ptr_load_relaxed(at)
#define _Py_atomic_load_uintptr_relaxed(at) ap_u64_load_relaxed(at)
#else
#define MODEL_SHARED(type, atomic) type
#endif
typedef struct _ts {
    _PyErr_StackItem *exc_info;
    int c_recursion_remaining;
    MODEL_SHARED(PyObject *, ap_atomic_ptr) async_exc; /* to be raised by the eval loop */
    MODEL_SHARED(uintptr_t, ap_atomic_u64) eval_breaker;
    PyObject *dict;
} PyThreadState;

/* As PyThreadState_SetAsyncExc, for the thread of the explorer; a type. */
void model_strike(int thread, PyObject *type);
/* In setup of whatever is struck: nobody is yet. */
void model_strike_begin(void);

typedef int PyGILState_STATE;
PyGILState_STATE PyGILState_Ensure(void);
void PyGILState_Release(PyGILState_STATE state);
PyThreadState *PyThreadState_Get(void);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *thread);
unsigned long PyThread_get_thread_ident(void);
PyObject *PyThreadState_GetDict(void); /* NULL: no memory */
int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value);
void model_thread_ends(void); /* its dictionary dies.  Attached */

/* In setup of whatever forks.  And os.fork, by a thread that is attached: before the child is made,
 * and as long as that takes, no other is attached, and none becomes so. */
void model_python_fork_begin(void);
void model_python_fork(void);

#ifdef Py_GIL_DISABLED
typedef struct model_section {
    PyObject *object;
    bool held; /* its lock */
    struct model_section *outer;
} model_section;
void model_section_begin(model_section *section, PyObject *op);
void model_section_end(model_section *section);
#define Py_BEGIN_CRITICAL_SECTION(op) \
    {                                 \
        model_section section;        \
        model_section_begin(&section, (PyObject *)(op));
#define Py_END_CRITICAL_SECTION() \
    model_section_end(&section);  \
    }
#endif

/* ---- objects --------------------------------------------------------------------------------- */

extern PyObject model_none, model_true, model_false;
#define Py_None (&model_none)
#define Py_True (&model_true)
#define Py_False (&model_false)
#define Py_RETURN_NONE return Py_None
#define Py_RETURN_TRUE return Py_True
#define Py_RETURN_FALSE return Py_False
#define PyObject_IsTrue(op) ((op) == Py_True)
#define PyBool_FromLong(value) ((value) ? Py_True : Py_False)

typedef struct {
    PyObject_HEAD Py_ssize_t size;
    PyObject *ob_item[4];
} PyListObject;
typedef PyListObject PyTupleObject;
extern PyTypeObject PyList_Type, PyType_Type;

PyObject *PyList_New(Py_ssize_t size);
int PyList_Append(PyObject *list, PyObject *item);
int PyList_SetSlice(PyObject *list, Py_ssize_t from, Py_ssize_t to, PyObject *items); /* NULL */
#define PyList_GET_SIZE(op) (((PyListObject *)(op))->size)
#define PyList_GET_ITEM(op, i) (((PyListObject *)(op))->ob_item[i])
PyObject *PyTuple_New(Py_ssize_t size);
PyObject *PyTuple_Pack(Py_ssize_t size, ...);
PyObject *PySequence_Tuple(PyObject *list);
extern AP_THREAD_LOCAL bool model_short_of_memory; /* the thread's next list may not grow */
#define PyTuple_GET_SIZE(op) PyList_GET_SIZE(op)
#define PyTuple_GET_ITEM(op, i) PyList_GET_ITEM(op, i)
#define PyTuple_SET_ITEM(op, i, item) (((PyListObject *)(op))->ob_item[i] = (item))

double PyFloat_AsDouble(PyObject *op);
#define PyFloat_FromDouble model_float
PyObject *PyDict_New(void);

/* Some object; a float; a function. */
PyObject *model_object(void);
PyObject *model_float(double value);
PyObject *model_function(PyObject *(*call)(PyObject *argument));

#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << 63)
PyObject *PyObject_Vectorcall(PyObject *fn, PyObject *const *args, size_t nargs, PyObject *names);
PyObject *PyObject_CallOneArg(PyObject *fn, PyObject *argument);
PyObject *PyObject_CallNoArgs(PyObject *fn);

/* ---- exceptions ------------------------------------------------------------------------------ */

extern PyTypeObject model_exceptions[];
#define PyExc_Exception ((PyObject *)&model_exceptions[0])
#define PyExc_MemoryError ((PyObject *)&model_exceptions[1])
#define PyExc_RecursionError ((PyObject *)&model_exceptions[2])
#define PyExc_RuntimeError ((PyObject *)&model_exceptions[3])
#define PyExc_TimeoutError ((PyObject *)&model_exceptions[4])
#define PyExc_TypeError ((PyObject *)&model_exceptions[5])
#define PyExc_ValueError ((PyObject *)&model_exceptions[6])
#define PyExc_KeyboardInterrupt ((PyObject *)&model_exceptions[7])
#define MODEL_CANCELLED_ERROR ((PyObject *)&model_exceptions[8])
#define MODEL_INVALID_STATE_ERROR ((PyObject *)&model_exceptions[9])
#define MODEL_PENDING_LIMIT_ERROR ((PyObject *)&model_exceptions[10])

void PyErr_SetNone(PyObject *type);
#define PyErr_SetString(type, text) ((void)(text), PyErr_SetNone(type))
PyObject *PyErr_Format(PyObject *type, const char *format, ...);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
PyObject *PyErr_GetRaisedException(void);
void PyErr_Fetch(PyObject **type, PyObject **error, PyObject **traceback);
void PyErr_Restore(PyObject *type, PyObject *error, PyObject *traceback);
#define PyErr_NormalizeException(type, error, traceback) ((void)0)
int PyErr_ExceptionMatches(PyObject *type);
int PyErr_GivenExceptionMatches(PyObject *error, PyObject *type); /* an exception, or its type */
#define PyException_GetTraceback(error) ((void)(error), (PyObject *)NULL)
#define PyException_SetTraceback(error, traceback) ((void)(error), (void)(traceback))
/* A signal that has arrived: its handler raises, in a thread that has said so, once; or does this.
 */
extern AP_THREAD_LOCAL bool model_signalled;
extern AP_THREAD_LOCAL void (*model_handler)(void);
int PyErr_CheckSignals(void);
#define Py_EnterRecursiveCall(where) 0
#define Py_LeaveRecursiveCall() ((void)0)

/* ---- types and methods ----------------------------------------------------------------------- */

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef PyObject *(*model_keyed)(PyObject *, PyObject *, PyObject *);
typedef PyObject *(*model_fast)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
typedef struct PyMethodDef {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
enum { METH_FASTCALL = 1, METH_KEYWORDS = 2, METH_NOARGS = 4, METH_O = 8, METH_VARARGS = 16 };
enum { METH_CLASS = 32 };
/* op.name(), or op.name(argument) */
PyObject *model_method(PyObject *op, const char *name, PyObject *argument);
PyObject *PyObject_CallMethod(PyObject *op, const char *name, const char *format, ...);
PyObject *PyObject_CallMethodNoArgs(PyObject *op, PyObject *name);
PyObject *PyUnicode_InternFromString(const char *text);        /* lives for ever */
int PyArg_ParseTuple(PyObject *args, const char *format, ...); /* of objects */
int PyArg_ParseTupleAndKeywords(PyObject *args, PyObject *names, const char *format, char **known,
                                ...); /* of one, without a name */
typedef struct PyGetSetDef {
    const char *name;
    PyObject *(*get)(PyObject *, void *);
    int (*set)(PyObject *, PyObject *, void *);
    const char *doc;
    void *closure;
} PyGetSetDef;
/* A function that was added to the module: name(argument) */
int PyModule_AddFunctions(PyObject *module, PyMethodDef *functions);
PyObject *model_call(const char *name, PyObject *argument);
/* op.name */
PyObject *model_attribute(PyObject *op, const char *name);
PyObject *PyObject_GetAttr(PyObject *op, PyObject *name);
/* What a file has put into the module. */
int PyModule_AddObjectRef(PyObject *module, const char *name, PyObject *op);
PyObject *model_module_get(const char *name);
typedef struct {
    int slot;
    void *pfunc;
} PyType_Slot;
typedef struct {
    const char *name;
    int basicsize;
    unsigned flags;
    PyType_Slot *slots;
} PyType_Spec;
enum { Py_TPFLAGS_DEFAULT, Py_TPFLAGS_BASETYPE, Py_TPFLAGS_HAVE_GC, Py_TPFLAGS_IMMUTABLETYPE };
enum { Py_TPFLAGS_DISALLOW_INSTANTIATION = 4 };
enum {
    Py_tp_dealloc = 1,
    Py_tp_traverse,
    Py_tp_doc,
    Py_tp_new,
    Py_tp_init,
    Py_tp_call,
    Py_tp_clear,
    Py_tp_setattro,
    Py_tp_repr,
    Py_tp_methods,
    Py_tp_getset
};
PyObject *PyType_FromSpec(PyType_Spec *spec); /* types live for ever */

/* ---- what only has to compile ---------------------------------------------------------------- */

typedef struct _frame PyFrameObject;
typedef struct _traceback {
    PyObject_HEAD struct _traceback *tb_next;
    PyFrameObject *tb_frame;
} PyTracebackObject;
#define PyTraceBack_Check(op) ((void)(op), false)
#define PyEval_GetFrame() ((PyFrameObject *)NULL)
#define Py_UNUSED(name) name __attribute__((unused))
#define PyObject_TypeCheck(op, type) (Py_TYPE(op) == (type))
#define PyType_Check(op) ((void)(op), false)
#define PyType_IsSubtype(type, of) ((void)(type), (void)(of), false)

_Noreturn void model_absent(void);
PyObject *model_absent_object(const void *first, ...);
int model_absent_int(const void *first, ...);
#define PyDict_GET_SIZE(...) model_absent_int(__VA_ARGS__)
#define PyErr_WriteUnraisable(op) model_absent()
#define PyErr_Print() model_absent()
#define PyErr_SetFromErrno(type) model_absent()
#define PyExceptionClass_Check(...) model_absent_int(__VA_ARGS__)
#define PyExceptionInstance_Check(...) model_absent_int(__VA_ARGS__)
#define PyList_Check(...) model_absent_int(__VA_ARGS__)
#define PyList_GetSlice(...) model_absent_object(__VA_ARGS__)
#define PyList_SetItem(...) model_absent_int(__VA_ARGS__)
#define PyLong_AsUnsignedLong(...) (unsigned long)model_absent_int(__VA_ARGS__)
#define PyNumber_Float(...) model_absent_object(__VA_ARGS__)
#define PyObject_CallFunctionObjArgs(...) model_absent_object(__VA_ARGS__)
#define PyObject_GenericGetDict(...) model_absent_object(__VA_ARGS__)
#define PyObject_GenericSetAttr(...) model_absent_int(__VA_ARGS__)
#define PyTuple_GetSlice(...) model_absent_object(__VA_ARGS__)
#define PyType_GetName(...) model_absent_object(__VA_ARGS__)
#define PyUnicode_CompareWithASCIIString(...) model_absent_int(__VA_ARGS__)
#define PyUnicode_FromFormat(...) model_absent_object(__VA_ARGS__)
#define PyUnstable_Module_SetGIL(module, used) ((void)(module), 0)
#define PyType_GenericNew NULL
#define PyObject_GenericSetDict NULL
#define Py_GenericAlias NULL

#endif
