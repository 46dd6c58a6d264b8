"""A pool's counters."""

from __future__ import annotations

from typing import Any, NamedTuple

from affinitypool._binding import ffi, lib


class PoolStats(NamedTuple):
    """Counters of one pool since it was made; exact once the pool is quiet."""

    pushed_outside: int
    """Tasks submitted by threads that are no worker of the pool."""
    pushed_inside: int
    """Tasks that a worker submitted to its own pool."""
    taken: int
    """Tasks handed to workers."""
    stolen: int
    """Tasks moved from one worker's ring to another's."""
    parks: int
    """Times a worker went to sleep."""
    wakes: int
    """Times a worker was woken on behalf of a task."""
    workers: int
    """Worker threads that are running."""
    idle: int
    """Of these, asleep or about to be."""
    searching: int
    """Of these, looking for work."""
    pending: int
    """Tasks accepted and not taken by a worker."""


def read_stats(core: Any) -> PoolStats:
    """Return a snapshot of a core's counters."""
    pool = ffi.cast("ap_pool *", core.pool_address)
    out = ffi.new("ap_pool_stats *")
    lib.ap_pool_read_stats(pool, out)
    fields = {name: getattr(out, name) for name in PoolStats._fields if name != "pending"}
    return PoolStats(pending=core.pending, **fields)
