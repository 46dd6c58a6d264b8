"""Runs the thread-pool classes of the interpreter's own test-suite with another executor.

Modules, in the order in which a run passes through them:

* `suite`: where this interpreter's `test.test_concurrent_futures` is, if it has one.
* `discovery`: which of its tests concern the thread pool, and how many there must be.
* `runner`: starts one process per test, with a time limit.
* `single`: what such a process does.
* `replacement`: puts the executor in place of the stdlib's.
* `children`: does the same in the interpreters that the tests start.
* `report`: what a person reads.
"""
