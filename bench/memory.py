"""Bytes that a pending task holds, measured in a process that does nothing else."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import gc, importlib, os, sys, threading

pool_class = importlib.import_module(sys.argv[1]).ThreadPoolExecutor
tasks = int(sys.argv[2])


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


pool = pool_class(1)
gate = threading.Event()
pool.submit(gate.wait)  # the one worker is busy: what follows stays pending
futures = [None] * tasks
gc.collect()
before = resident()
for i in range(tasks):
    futures[i] = pool.submit(int)
print((resident() - before) / tasks)
gate.set()
pool.shutdown(cancel_futures=True)
"""


def bytes_per_task(module: str, tasks: int) -> float:
    """Growth of the resident set per pending task of `module`'s ThreadPoolExecutor(1).

    Raises RuntimeError with the child's last words if it failed.
    """
    child = subprocess.run(
        [sys.executable, "-c", PROBE, module, str(tasks)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if child.returncode:
        raise RuntimeError(f"the memory probe of {module} failed:\n{child.stderr.strip()}")
    return float(child.stdout)
