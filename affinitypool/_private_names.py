"""The private names of the stdlib's pool, for code that reads or assigns them."""

from __future__ import annotations

from typing import Any, NoReturn

from affinitypool._binding import core
from affinitypool._threads import WorkerThread
from affinitypool._work_queue import WorkQueue


class PrivateNames(core.PoolBase):
    """The base of a pool that has them.

    What is assigned reads back as it was set.  A true `_shutdown` or `_broken` has later submits
    refused, as in the stdlib; a false one does not open the pool again.
    """

    __slots__ = ()

    _shutdown_set_to: bool
    _broken_set_to: Any
    _was_closed = False  # by one of the two, whatever they are now

    @property
    def _threads(self) -> set[WorkerThread]:
        threads: set[WorkerThread] = self._crew.threads
        return threads

    @property
    def _work_queue(self) -> WorkQueue:
        return WorkQueue(self._core)

    @_work_queue.setter
    def _work_queue(self, queue: object) -> NoReturn:
        raise AttributeError(
            "the queue of a pool cannot be replaced; ThreadPoolExecutor(max_pending=n) bounds it"
        )

    @property
    def _shutdown(self) -> bool:
        return self._shutdown_set_to

    @_shutdown.setter
    def _shutdown(self, value: bool) -> None:
        self._shutdown_set_to = value
        self._close_if(value)

    @property
    def _broken(self) -> Any:
        return self._broken_set_to

    @_broken.setter
    def _broken(self, value: Any) -> None:
        self._broken_set_to = value
        self._close_if(value)

    def _close_if(self, value: object) -> None:
        if value and self._present_crew() is not None:  # else the pool is not initialised yet
            self._was_closed = True
            self._core.close()
