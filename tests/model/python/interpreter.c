/* See Python.h. */
#include "Python.h"

#include <stdarg.h>
#include <string.h>

#include "affinitypool.h"
#include "sync/wait.h"

/* ---- locks ----------------------------------------------------------------------------------- */

enum { FREE, HELD, WAITED_FOR };

static void lock(ap_atomic_u32 *word) {
    uint32_t state = FREE;
    if (ap_u32_cas_acq_rel(word, &state, HELD))
        return;
    while (ap_u32_exchange_acq_rel(word, WAITED_FOR) != FREE)
        ap_wait_u32(word, WAITED_FOR, AP_FOREVER);
}

static void unlock(ap_atomic_u32 *word) {
    if (ap_u32_exchange_acq_rel(word, FREE) == WAITED_FOR)
        ap_wake_u32(word, 1);
}

/* ---- threads --------------------------------------------------------------------------------- */

static PyThreadState thread_states[MODEL_THREADS_MAX + 1];
static AP_THREAD_LOCAL bool attached;

static PyThreadState *own_state(void) {
    return &thread_states[model_self()];
}

PyThreadState *PyThreadState_Get(void) {
    MODEL_CHECK(attached);
    return own_state();
}

unsigned long PyThread_get_thread_ident(void) {
    return (unsigned long)model_self() + 1;
}

#ifdef Py_GIL_DISABLED
static AP_THREAD_LOCAL model_section *sections; /* innermost first */

static void sections_suspend(void) {
    for (model_section *section = sections; section && section->held; section = section->outer) {
        section->held = false;
        unlock(&section->object->ob_mutex);
    }
}

/* Only the innermost: those around it when they are reached. */
static void sections_resume(void) {
    if (sections && !sections->held) {
        lock(&sections->object->ob_mutex);
        sections->held = true;
    }
}

void model_section_begin(model_section *section, PyObject *op) {
    uint32_t state = FREE;
    MODEL_CHECK(attached);
    if (!ap_u32_cas_acq_rel(&op->ob_mutex, &state, HELD)) {
        sections_suspend();
        lock(&op->ob_mutex);
    }
    *section = (model_section){op, true, sections};
    sections = section;
}

void model_section_end(model_section *section) {
    MODEL_CHECK(attached && sections == section && section->held);
    unlock(&section->object->ob_mutex);
    sections = section->outer;
    sections_resume();
}

/* Of a thread, as the interpreter has it; kept only where somebody stops the world. */
enum { DETACHED, ATTACHED, SUSPENDED };
static bool world_may_stop;
static ap_atomic_u32 world[MODEL_THREADS_MAX + 1];

static void let_go(void) {
    sections_suspend();
    if (world_may_stop)
        ap_u32_store_release(&world[model_self()], DETACHED);
}

static void take(void) {
    uint32_t state = DETACHED;
    while (world_may_stop && !ap_u32_cas_acq_rel(&world[model_self()], &state, ATTACHED)) {
        ap_wait_u32(&world[model_self()], SUSPENDED, AP_FOREVER);
        state = DETACHED;
    }
    sections_resume();
}

void model_python_fork_begin(void) {
    world_may_stop = true;
}

void model_python_fork(void) {
    MODEL_CHECK(attached && world_may_stop);
    for (int i = 1; i <= MODEL_THREADS_MAX; i++) {
        uint32_t state = DETACHED;
        while (i != model_self() && !ap_u32_cas_acq_rel(&world[i], &state, SUSPENDED)) {
            state = DETACHED;
            model_yield();
        }
    }
    model_fork();
}
#else
static ap_atomic_u32 gil;

static void let_go(void) {
    unlock(&gil);
}

static void take(void) {
    lock(&gil);
}

void model_python_fork_begin(void) {
}

void model_python_fork(void) {
    MODEL_CHECK(attached);
    model_fork();
}
#endif

PyThreadState *PyEval_SaveThread(void) {
    MODEL_CHECK(attached);
    attached = false;
    let_go();
    return own_state();
}

void PyEval_RestoreThread(PyThreadState *thread) {
    MODEL_CHECK(!attached && thread == own_state());
    take();
    attached = true;
}

PyGILState_STATE PyGILState_Ensure(void) {
    PyEval_RestoreThread(own_state());
    return 0;
}

void PyGILState_Release(PyGILState_STATE state) {
    (void)state;
    MODEL_CHECK(!PyErr_Occurred());
    (void)PyEval_SaveThread();
}

/* What a call, or a finalizer, may do. */
static void breathe(void) {
    PyEval_RestoreThread(PyEval_SaveThread());
}

/* ---- exceptions that are sent from outside --------------------------------------------------- */

#define ASYNC_EXCEPTION 8 /* a bit of the eval breaker */

static bool somebody_is_struck; /* perhaps */

void model_strike_begin(void) {
    somebody_is_struck = true;
#ifndef Py_GIL_DISABLED
    for (int i = 0; i <= MODEL_THREADS_MAX; i++)
        thread_states[i].async_exc = NULL;
#endif
}

/* In the order of the interpreter: for a moment the eval loop does not know. */
void model_strike(int thread, PyObject *type) {
    PyThreadState *struck = &thread_states[thread];
    MODEL_CHECK(type->immortal);
#ifdef Py_GIL_DISABLED
    ap_ptr_exchange_seq_cst(&struck->async_exc, type);
    ap_u64_or_seq_cst(&struck->eval_breaker, ASYNC_EXCEPTION);
#else
    struck->async_exc = type;
#endif
}

/* What the eval loop does first; -1 if it raises. */
static int enter_eval_loop(void) {
    PyObject *type;
    if (!somebody_is_struck)
        return 0;
#ifdef Py_GIL_DISABLED
    if (!(ap_u64_load_relaxed(&own_state()->eval_breaker) & ASYNC_EXCEPTION))
        return 0;
    ap_u64_and_seq_cst(&own_state()->eval_breaker, ~(uint64_t)ASYNC_EXCEPTION);
    type = ap_ptr_exchange_seq_cst(&own_state()->async_exc, NULL);
#else
    type = own_state()->async_exc;
    own_state()->async_exc = NULL;
#endif
    if (!type)
        return 0;
    PyErr_SetNone(type);
    return -1;
}

/* ---- counts ---------------------------------------------------------------------------------- */

void model_incref(PyObject *op) {
    MODEL_CHECK(attached);
    if (op->immortal)
        return;
#ifdef Py_GIL_DISABLED
    ap_u64_add_relaxed(&op->ob_ref_shared, 1);
#else
    op->ob_refcnt++;
#endif
}

void model_decref(PyObject *op) {
    MODEL_CHECK(attached);
    if (op->immortal)
        return;
#ifdef Py_GIL_DISABLED
    bool last = ap_u64_sub_acq_rel(&op->ob_ref_shared, 1) == 1;
#else
    bool last = --op->ob_refcnt == 0;
#endif
    if (last)
        Py_TYPE(op)->tp_dealloc(op);
}

PyObject *model_newref(PyObject *op) {
    model_incref(op);
    return op;
}

PyObject *PyThreadState_GetDict(void) {
    if (!own_state()->dict)
        own_state()->dict = PyList_New(0);
    return own_state()->dict;
}

int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value) {
    (void)key;
    return PyList_Append(dict, value);
}

void model_thread_ends(void) {
    Py_CLEAR(own_state()->dict);
}

void PyObject_GC_Track(void *op) {
    MODEL_CHECK(attached && !((PyObject *)op)->tracked);
    ((PyObject *)op)->tracked = true;
}

void PyObject_GC_UnTrack(void *op) {
    MODEL_CHECK(attached);
    ((PyObject *)op)->tracked = false;
}

/* ---- types ----------------------------------------------------------------------------------- */

static PyObject *alloc(PyTypeObject *type, Py_ssize_t items) {
    (void)items;
    MODEL_CHECK(attached);
    PyObject *op = model_alloc(type->tp_basicsize);
#ifdef Py_GIL_DISABLED
    ap_u64_store_relaxed(&op->ob_ref_shared, 1);
#else
    op->ob_refcnt = 1;
#endif
    op->ob_type = type;
    op->tracked = true;
    return op;
}

static void object_dealloc(PyObject *op) {
    model_free(op);
    breathe();
}

static void list_dealloc(PyObject *op) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(op); i++)
        Py_XDECREF(PyList_GET_ITEM(op, i));
    model_free(op);
}

#define IMMORTAL .ob_base = {.immortal = true}
#define TYPE(of, dealloc)                                                            \
    {                                                                                \
        IMMORTAL, .tp_name = #of, .tp_basicsize = sizeof(of), .tp_dealloc = dealloc, \
                  .tp_alloc = alloc                                                  \
    }

static PyTypeObject object_type = TYPE(PyObject, object_dealloc);
PyTypeObject PyList_Type = TYPE(PyListObject, list_dealloc);
PyTypeObject PyType_Type = TYPE(PyTypeObject, object_dealloc);
#define EXCEPTION TYPE(PyObject, object_dealloc)
PyTypeObject model_exceptions[] = {EXCEPTION, EXCEPTION, EXCEPTION, EXCEPTION, EXCEPTION, EXCEPTION,
                                   EXCEPTION, EXCEPTION, EXCEPTION, EXCEPTION, EXCEPTION};

PyObject *PyType_FromSpec(PyType_Spec *spec) {
    static PyTypeObject types[8];
    static size_t count;
    MODEL_CHECK(count < sizeof types / sizeof *types);
    PyTypeObject *type = &types[count++];
    *type = (PyTypeObject){IMMORTAL, .tp_name = spec->name, .tp_basicsize = (size_t)spec->basicsize,
                           .tp_alloc = alloc, .tp_free = model_free};
    for (PyType_Slot *slot = spec->slots; slot->slot; slot++)
        if (slot->slot == Py_tp_dealloc)
            type->tp_dealloc = (destructor)slot->pfunc;
        else if (slot->slot == Py_tp_methods)
            type->tp_methods = slot->pfunc;
        else if (slot->slot == Py_tp_getset)
            type->tp_getset = slot->pfunc;
        else if (slot->slot == Py_tp_new)
            type->tp_new = slot->pfunc;
        else if (slot->slot == Py_tp_call)
            type->tp_call = slot->pfunc;
    return (PyObject *)type;
}

static struct {
    const char *name;
    PyObject *op;
} module_holds[8];

int PyModule_AddObjectRef(PyObject *module, const char *name, PyObject *op) {
    int i = 0;
    (void)module;
    while (module_holds[i].name)
        i++;
    MODEL_CHECK(i < 7);
    module_holds[i].name = name;
    module_holds[i].op = op;
    return 0;
}

PyObject *model_module_get(const char *name) {
    int i = 0;
    while (strcmp(module_holds[i].name, name) != 0)
        i++;
    return module_holds[i].op;
}

typedef struct {
    PyObject_HEAD const char *text;
} name_object;

PyObject *PyUnicode_InternFromString(const char *text) {
    static name_object names[4];
    static size_t count;
    MODEL_CHECK(count < sizeof names / sizeof *names);
    name_object *name = &names[count++];
    *name = (name_object){{.ob_type = &object_type, .immortal = true}, text};
    return (PyObject *)name;
}

/* ---- objects --------------------------------------------------------------------------------- */

PyObject model_none = {.ob_type = &object_type, .immortal = true};
PyObject model_true = {.ob_type = &object_type, .immortal = true};
PyObject model_false = {.ob_type = &object_type, .immortal = true};

PyObject *model_object(void) {
    return alloc(&object_type, 0);
}

PyObject *PyDict_New(void) {
    return alloc(&object_type, 0);
}

typedef struct {
    PyObject_HEAD double value;
} float_object;
static PyNumberMethods float_methods = {.nb_float = &float_methods};
static PyTypeObject float_type = {IMMORTAL, .tp_basicsize = sizeof(float_object),
                                  .tp_dealloc = object_dealloc, .tp_as_number = &float_methods};

PyObject *model_float(double value) {
    PyObject *op = alloc(&float_type, 0);
    ((float_object *)op)->value = value;
    return op;
}

double PyFloat_AsDouble(PyObject *op) {
    return ((float_object *)op)->value;
}

PyObject *PyList_New(Py_ssize_t size) {
    PyObject *list = alloc(&PyList_Type, 0);
    MODEL_CHECK(size <= 4);
    PyList_GET_SIZE(list) = size;
    return list;
}

#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

AP_THREAD_LOCAL bool model_short_of_memory;

int PyList_Append(PyObject *op, PyObject *item) {
    PyListObject *list = (PyListObject *)op;
    if (model_short_of_memory && model_choose(2)) {
        model_short_of_memory = false;
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF(item);
    Py_BEGIN_CRITICAL_SECTION(op);
    MODEL_CHECK(list->size < 4);
    list->ob_item[list->size++] = item;
    Py_END_CRITICAL_SECTION();
    return 0;
}

int PyList_SetSlice(PyObject *op, Py_ssize_t from, Py_ssize_t to, PyObject *items) {
    PyListObject *list = (PyListObject *)op;
    PyObject *removed = NULL;
    Py_BEGIN_CRITICAL_SECTION(op);
    MODEL_CHECK(!items && to == from + 1 && to <= list->size);
    removed = list->ob_item[from];
    for (Py_ssize_t i = from; i + 1 < list->size; i++)
        list->ob_item[i] = list->ob_item[i + 1];
    list->size--;
    Py_END_CRITICAL_SECTION();
    Py_DECREF(removed);
    return 0;
}

PyObject *PyTuple_New(Py_ssize_t size) {
    return PyList_New(size);
}

PyObject *PyTuple_Pack(Py_ssize_t size, ...) {
    PyObject *tuple = PyTuple_New(size);
    va_list items;
    va_start(items, size);
    for (Py_ssize_t i = 0; i < size; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(va_arg(items, PyObject *)));
    va_end(items);
    return tuple;
}

PyObject *PySequence_Tuple(PyObject *list) {
    PyObject *tuple = PyTuple_New(0);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        PyList_Append(tuple, PyList_GET_ITEM(list, i));
    return tuple;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *(*call)(PyObject *);
} function_object;
static PyTypeObject function_type = TYPE(function_object, object_dealloc);

PyObject *model_function(PyObject *(*call)(PyObject *)) {
    PyObject *op = alloc(&function_type, 0);
    ((function_object *)op)->call = call;
    return op;
}

PyObject *PyObject_CallOneArg(PyObject *fn, PyObject *argument) {
    MODEL_CHECK(Py_TYPE(fn) == &function_type && !PyErr_Occurred());
    breathe();
    if (enter_eval_loop() < 0)
        return NULL;
    PyObject *result = ((function_object *)fn)->call(argument);
    MODEL_CHECK(!result == !!PyErr_Occurred());
    return result;
}

PyObject *PyObject_CallNoArgs(PyObject *fn) {
    return PyObject_CallOneArg(fn, NULL);
}

PyObject *PyObject_Vectorcall(PyObject *fn, PyObject *const *args, size_t nargs, PyObject *names) {
    nargs &= ~PY_VECTORCALL_ARGUMENTS_OFFSET;
    MODEL_CHECK(nargs <= 1 && !names);
    return PyObject_CallOneArg(fn, nargs ? args[0] : NULL);
}

static const PyMethodDef *method_of(PyTypeObject *type, const char *name) {
    const PyMethodDef *method;
    for (; type; type = type->tp_base)
        for (method = type->tp_methods; method && method->ml_name; method++)
            if (strcmp(method->ml_name, name) == 0)
                return method;
    model_fail("there is no method %s", name);
}

PyObject *model_method(PyObject *op, const char *name, PyObject *argument) {
    const PyMethodDef *method = method_of(Py_TYPE(op), name);
    PyObject *result, *tuple;
    switch (method->ml_flags) {
    case METH_FASTCALL | METH_KEYWORDS:
        result =
            ((model_fast)(void (*)(void))method->ml_meth)(op, &argument, argument != NULL, NULL);
        break;
    case METH_VARARGS:
        tuple = argument ? PyTuple_Pack(1, argument) : PyTuple_New(0);
        result = method->ml_meth(op, tuple);
        Py_DECREF(tuple);
        break;
    case METH_VARARGS | METH_KEYWORDS:
        tuple = argument ? PyTuple_Pack(1, argument) : PyTuple_New(0);
        result = ((model_keyed)(void (*)(void))method->ml_meth)(op, tuple, NULL);
        Py_DECREF(tuple);
        break;
    default:
        result = method->ml_meth(op, argument);
    }
    MODEL_CHECK(!result == !!PyErr_Occurred());
    return result;
}

static PyMethodDef *modules[8];
static int module_count;

int PyModule_AddFunctions(PyObject *module, PyMethodDef *functions) {
    (void)module;
    MODEL_CHECK(module_count < 8);
    modules[module_count++] = functions;
    return 0;
}

PyObject *model_call(const char *name, PyObject *argument) {
    for (int i = 0; i < module_count; i++)
        for (PyMethodDef *function = modules[i]; function->ml_name; function++)
            if (strcmp(function->ml_name, name) == 0)
                return function->ml_meth(NULL, argument);
    model_fail("no function %s", name);
}

PyObject *model_attribute(PyObject *op, const char *name) {
    const PyGetSetDef *attribute = Py_TYPE(op)->tp_getset;
    while (strcmp(attribute->name, name) != 0)
        attribute++;
    PyObject *result = attribute->get(op, NULL);
    MODEL_CHECK(!result == !!PyErr_Occurred());
    return result;
}

/* Of an object whose methods are one function, or that has some; with one object at most, and what
 * is no object is only told. */
PyObject *PyObject_CallMethod(PyObject *op, const char *name, const char *format, ...) {
    PyObject *argument = NULL;
    if (format) {
        va_list values;
        MODEL_CHECK(strcmp(format, "O") == 0 || strcmp(format, "OI") == 0);
        va_start(values, format);
        argument = va_arg(values, PyObject *);
        va_end(values);
    }
    if (Py_TYPE(op) == &function_type)
        return PyObject_CallOneArg(op, argument);
    breathe();
    return model_method(op, name, argument);
}

PyObject *PyObject_CallMethodNoArgs(PyObject *op, PyObject *name) {
    return PyObject_CallMethod(op, ((name_object *)name)->text, NULL);
}

PyObject *PyObject_GetAttr(PyObject *op, PyObject *name) {
    return model_attribute(op, ((name_object *)name)->text);
}

int PyArg_ParseTuple(PyObject *args, const char *format, ...) {
    va_list targets;
    Py_ssize_t given = 0;
    va_start(targets, format);
    for (; *format && given < PyTuple_GET_SIZE(args); format++) {
        if (*format == '|')
            continue;
        MODEL_CHECK(*format == 'O');
        PyObject *item = PyTuple_GET_ITEM(args, given++);
        if (format[1] == '!') {
            MODEL_CHECK(Py_TYPE(item) == va_arg(targets, PyTypeObject *));
            format++;
        }
        *va_arg(targets, PyObject **) = item;
    }
    va_end(targets);
    return 1;
}

int PyArg_ParseTupleAndKeywords(PyObject *args, PyObject *names, const char *format, char **known,
                                ...) {
    va_list targets;
    (void)known;
    MODEL_CHECK(!names && (strcmp(format, "|O") == 0 || strcmp(format, "|pO") == 0));
    va_start(targets, known);
    if (PyTuple_GET_SIZE(args) && format[1] == 'p')
        *va_arg(targets, int *) = PyTuple_GET_ITEM(args, 0) != Py_False;
    else if (PyTuple_GET_SIZE(args))
        *va_arg(targets, PyObject **) = PyTuple_GET_ITEM(args, 0);
    va_end(targets);
    return 1;
}

/* ---- exceptions ------------------------------------------------------------------------------ */

static AP_THREAD_LOCAL PyObject *raised;
AP_THREAD_LOCAL bool model_signalled;
AP_THREAD_LOCAL void (*model_handler)(void);

void PyErr_SetNone(PyObject *type) {
    PyErr_Clear();
    raised = alloc((PyTypeObject *)type, 0);
}

PyObject *PyErr_Format(PyObject *type, const char *format, ...) {
    (void)format;
    PyErr_SetNone(type);
    return NULL;
}

PyObject *PyErr_NoMemory(void) {
    PyErr_SetNone(PyExc_MemoryError);
    return NULL;
}

PyObject *PyErr_Occurred(void) {
    MODEL_CHECK(attached);
    return raised ? (PyObject *)Py_TYPE(raised) : NULL;
}

PyObject *PyErr_GetRaisedException(void) {
    PyObject *error = raised;
    raised = NULL;
    return error;
}

void PyErr_Clear(void) {
    PyObject *error = PyErr_GetRaisedException();
    Py_XDECREF(error);
}

void PyErr_Fetch(PyObject **type, PyObject **error, PyObject **traceback) {
    *error = PyErr_GetRaisedException();
    *type = *error ? (PyObject *)Py_TYPE(*error) : NULL;
    *traceback = NULL;
}

void PyErr_Restore(PyObject *type, PyObject *error, PyObject *traceback) {
    (void)type; /* lives for ever */
    MODEL_CHECK(!traceback);
    PyErr_Clear();
    raised = error;
}

int PyErr_GivenExceptionMatches(PyObject *error, PyObject *type) {
    PyObject *given = Py_TYPE(error) ? (PyObject *)Py_TYPE(error) : error;
    return type == PyExc_Exception ? given != PyExc_KeyboardInterrupt : given == type;
}

int PyErr_ExceptionMatches(PyObject *type) {
    MODEL_CHECK(raised);
    return PyErr_GivenExceptionMatches(raised, type);
}

int PyErr_CheckSignals(void) {
    MODEL_CHECK(attached);
    if (!model_signalled)
        return 0;
    model_signalled = false;
    if (model_handler) {
        model_handler();
        return 0;
    }
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return -1;
}

void model_absent(void) {
    model_fail("a part of the interpreter that the stand-in has not");
}

PyObject *model_absent_object(const void *first, ...) {
    (void)first;
    model_absent();
}

int model_absent_int(const void *first, ...) {
    (void)first;
    model_absent();
}
