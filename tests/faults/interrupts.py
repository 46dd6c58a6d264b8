"""Signals and exceptions from outside at every place where Python code can meet them.

The interpreter handles what is pending after calls, at the start of functions and when it jumps
back.  A tracer counts the instructions that lead there, makes the signal or the
exception pending at the k-th, and leaves; the interpreter then meets it by itself, as it
would a real one.
"""

from __future__ import annotations

import _thread
import ctypes
import dis
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import affinitypool

# of the package, of the standard library
FOLDERS = (str(Path(affinitypool.__file__).parent), str(Path(threading.__file__).parent))
CHECKS = ("CALL", "RESUME", "JUMP_BACKWARD")

_set_async_exc = ctypes.PyDLL(None).PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)


class _Poke:
    """Operators that call C functions: the interpreter checks for nothing after an operator."""

    __add__ = _thread.interrupt_main  # poke + signal
    __setitem__ = _set_async_exc  # poke[thread] = exception


_poke = _Poke()


def _is_place(code: CodeType, offset: int) -> bool:
    """Whether the interpreter will look for what is pending at this instruction, or just after."""
    name = dis.opname[code.co_code[offset]]
    return name.startswith(CHECKS) and not name.endswith("NO_INTERRUPT")


def _trace(
    folders: tuple[str, ...], reached: Callable[[], type[BaseException] | None]
) -> Callable[[], None]:
    """Call `reached` at each place of the folders that this thread comes to; return what ends that.

    If it returns an exception, that is raised just after.
    """
    if sys.version_info < (3, 12):
        due: list[type[BaseException]] = []

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                if due:
                    raise due.pop()
                if _is_place(frame.f_code, frame.f_lasti):
                    error = reached()
                    if error:
                        due.append(error)
            return local

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            if not frame.f_code.co_filename.startswith(folders):
                return None
            frame.f_trace_opcodes = True
            return local

        # It keeps `trace`: the interpreter may be about to call that, without a reference of its
        # own, and come here by a finalizer before it does.
        def end(_kept: object = trace) -> None:
            sys.settrace(None)

        sys.settrace(trace)
        return end

    # there, the first call of a function after an untraced one has no events of instructions
    monitoring, ident = sys.monitoring, threading.get_ident()
    tool, event = monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION

    def instruction(code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(folders) or not _is_place(code, offset):
            return monitoring.DISABLE
        if threading.get_ident() == ident:
            reached()
        return None

    def free() -> None:
        if monitoring.get_tool(tool):
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

    monitoring.use_tool_id(tool, "interrupts")
    monitoring.register_callback(tool, event, instruction)
    monitoring.restart_events()
    monitoring.set_events(tool, event)
    return free


@contextmanager
def pending_at(
    k: int, what: int | type[BaseException], folders: tuple[str, ...] = FOLDERS
) -> Iterator[list[int]]:
    """Make a signal, or an exception for this thread, pending at the k-th place of the body.

    Counted are places in the folders.  Gives a list that holds how many there were; fewer than k:
    it did not come to that.
    """
    seen, ident = [0], threading.get_ident()

    def reached() -> type[BaseException] | None:
        seen[0] += 1
        if seen[0] != k:
            return None
        if not isinstance(what, int) and sys.version_info < (3, 12):
            return what  # pending, it would go to a thread that this one is just starting
        end()
        if isinstance(what, int):
            _poke + what
        else:
            _poke[ident] = what
        return None

    end = _trace(folders, reached)
    try:
        yield seen
    finally:
        end()


@contextmanager
def handled(number: int, handler: Callable[[], object]) -> Iterator[None]:
    """Have a signal call the handler."""
    before = signal.signal(number, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(number, before)


def at_each_place(
    attempt: Callable[[int], bool], *, first: int = 1, step: int = 1, most: int = 5000
) -> int:
    """Call attempt(k) for k = first, first + step, ... until it says False; return the last k."""
    for k in range(first, most, step):
        if not attempt(k):
            return k
    raise AssertionError(f"more than {most} places")
