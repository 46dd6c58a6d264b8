"""The parts of the random mix, `tests/faults/mix.py`.

    world.py    what all threads of the mix share: the seed, the pools, the counts, the watchdog
    ledger.py   what is known of each task, and the check of how it ended
    body.py     what a task does, its callbacks, finalizers
    driver.py   a thread that chooses what to do, and its window of unfinished tasks
    actions.py  what there is to choose from
    child.py    what a forked child does and how the parent looks at it

Rules that keep the mix itself from hanging.  Pools are numbered as they are made.  What runs in a
worker, tasks and callbacks, waits only for tasks of its own pool and of pools with a higher
number.  A task that waits for its driver's gate does so in a worker only, and the driver does
nothing that could block until the gate is open.  No lock of the mix is ever held while the pool is
called, and none is taken in a signal handler, a finalizer or a forked child.
"""
