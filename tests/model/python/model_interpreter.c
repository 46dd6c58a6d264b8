/* The stand-in itself (Python.h): it excludes whom CPython excludes, and no more. */
#include "Python.h"

int model_spins;

static PyObject *object[2];
static int shared, seen;

static void setup(void) {
    model_strike_begin();
    model_python_fork_begin();
    (void)PyGILState_Ensure();
    shared = seen = 0;
    for (int i = 0; i < 2; i++)
        object[i] = model_object();
    PyGILState_Release(0);
}

static void finish(void) {
    (void)PyGILState_Ensure();
    for (int i = 0; i < 2; i++)
        Py_DECREF(object[i]);
    PyGILState_Release(0);
    model_outcome("%d %d", shared, seen);
}

static void add(void) {
    (void)PyGILState_Ensure();
    shared++;
    PyGILState_Release(0);
}

static void take_and_drop(void) {
    (void)PyGILState_Ensure();
    Py_INCREF(object[0]);
    Py_DECREF(object[0]);
    PyGILState_Release(0);
}

static void drop_twice(void) {
    (void)PyGILState_Ensure();
    Py_DECREF(object[0]);
    Py_DECREF(object[0]);
    PyGILState_Release(0);
}

static PyObject *nothing(PyObject *argument) {
    (void)argument;
    return Py_None;
}

static void strike(void) {
    (void)PyGILState_Ensure();
    model_strike(2, PyExc_RuntimeError);
    PyGILState_Release(0);
}

/* What was sent is raised by one of them, or none. */
static void call_twice(void) {
    (void)PyGILState_Ensure();
    PyObject *fn = model_function(nothing);
    for (int i = 0; i < 2; i++)
        if (!PyObject_CallNoArgs(fn)) {
            MODEL_CHECK(PyErr_Occurred() == PyExc_RuntimeError);
            PyErr_Clear();
            seen++;
        }
    Py_DECREF(fn);
    PyGILState_Release(0);
}

/* In the child the other is in the middle of nothing that it does while it is attached. */
static void fork_and_look(void) {
    (void)PyGILState_Ensure();
    model_python_fork();
    seen = shared;
    PyGILState_Release(0);
}

static void add_twice(void) {
    (void)PyGILState_Ensure();
    shared++;
    Py_INCREF(object[0]);
    Py_DECREF(object[0]);
    shared++;
    PyGILState_Release(0);
}

static void add_detached(void) {
    shared++;
}

static void drop_detached(void) {
    Py_DECREF(object[0]);
}

#ifdef Py_GIL_DISABLED
static void add_in_section(void) {
    (void)PyGILState_Ensure();
    Py_BEGIN_CRITICAL_SECTION(object[0]);
    shared++;
    Py_END_CRITICAL_SECTION();
    PyGILState_Release(0);
}

static void pass_through(PyObject *op, int added) {
    Py_BEGIN_CRITICAL_SECTION(op);
    shared += added;
    Py_END_CRITICAL_SECTION();
}

/* In a section around another one: it may be left meanwhile, and another thread adds in it. */
static void look_around_section(void) {
    (void)PyGILState_Ensure();
    Py_BEGIN_CRITICAL_SECTION(object[0]);
    int before = shared;
    pass_through(object[1], 0);
    if (shared != before)
        seen++;
    Py_END_CRITICAL_SECTION();
    PyGILState_Release(0);
}

static void hold_1_add_in_0(void) {
    (void)PyGILState_Ensure();
    Py_BEGIN_CRITICAL_SECTION(object[1]);
    pass_through(object[0], 1);
    Py_END_CRITICAL_SECTION();
    PyGILState_Release(0);
}
#else
/* A call lets go of the interpreter. */
static void add_around_call(void) {
    (void)PyGILState_Ensure();
    PyObject *fn = model_function(nothing);
    int before = shared;
    (void)PyObject_CallOneArg(fn, Py_None);
    if (shared != before)
        seen++;
    Py_DECREF(fn);
    PyGILState_Release(0);
}
#endif

#define CASE(title) .name = title, .setup = setup, .finish = finish, .preemptions = 3

const model_case model_cases[] = {
    {CASE("two take and drop"), .threads = {take_and_drop, take_and_drop, take_and_drop},
     .outcomes = "0 0"},
    {CASE("a drop too many"), .threads = {drop_twice, take_and_drop}, .fails = "use after free"},
    {CASE("an exception is sent"), .threads = {strike, call_twice}, .outcomes = "0 0|0 1"},
    {CASE("a fork"), .full = true, .threads = {fork_and_look, add_twice}, .outcomes = "0 0|2 2"},
    {CASE("a fork, and a write detached"), .full = true, .threads = {fork_and_look, add_detached},
     .fails = "data race"},
    {CASE("a drop detached"), .threads = {drop_detached}, .fails = "attached"},
#ifdef Py_GIL_DISABLED
    {CASE("two add"), .threads = {add, add}, .fails = "data race"},
    {CASE("two add in the section"), .threads = {add_in_section, add_in_section},
     .outcomes = "2 0"},
    {CASE("sections around sections"), .threads = {look_around_section, hold_1_add_in_0},
     .outcomes = "1 0|1 1"},
#else
    {CASE("two add"), .threads = {add, add}, .outcomes = "2 0"},
    {CASE("a call lets others run"), .threads = {add_around_call, add}, .outcomes = "1 0|1 1"},
#endif
    {0},
};
