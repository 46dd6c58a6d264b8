"""How many workers a pool gets when nobody says so."""

from __future__ import annotations

import io
import math
import os

MAX_WORKERS = 512
"""The largest number of workers of one pool."""

_VARIABLE = "AFFINITYPOOL_MAX_WORKERS"
_CGROUP_ROOT = "/sys/fs/cgroup"
_OWN_CGROUP = "/proc/self/cgroup"


def usable_cpus() -> int:
    """Return how many CPUs this process may keep busy, at least 1.

    The smaller of the CPUs it may run on (the affinity mask, `PYTHON_CPU_COUNT`) and its
    control group's quota, rounded up.
    """
    if hasattr(os, "process_cpu_count"):
        count = os.process_cpu_count() or 1
    elif hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota()
    if quota is not None:
        count = min(count, math.ceil(quota))
    return max(1, count)


def cgroup_quota(root: str = _CGROUP_ROOT, own: str = _OWN_CGROUP) -> float | None:
    """Return the quota of this process's control group in CPUs, None if it has none.

    Version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`); the tightest of the group and the
    groups above it counts.
    """
    try:
        lines = _read(own).splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            quotas += _quotas(root, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct", controllers):
                quotas += _quotas(os.path.join(root, mount), path, _quota_v1)
    return min(quotas, default=None)


def _quotas(mount: str, path: str, read: object) -> list[float]:
    """Read the quota of a group and of each above it, up to the mount point."""
    assert callable(read)
    found = []
    group = os.path.join(mount, path.strip("/")).rstrip("/")
    while True:
        try:
            quota = read(group)
        except (OSError, ValueError, ZeroDivisionError):
            quota = None
        if quota is not None:
            found.append(quota)
        if group == mount or not group.startswith(mount):
            return found
        group = os.path.dirname(group)


def _read(path: str) -> str:
    # any bytes may name a group; the builtin `open` is gone when the last finalizers run
    with io.open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: UP020
        return file.read()


def _quota_v2(group: str) -> float | None:
    quota, _, period = _read(f"{group}/cpu.max").strip().partition(" ")
    return None if quota == "max" else int(quota) / int(period or 100_000)


def _quota_v1(group: str) -> float | None:
    quota = int(_read(f"{group}/cpu.cfs_quota_us"))
    period = int(_read(f"{group}/cpu.cfs_period_us"))
    return None if quota <= 0 or period <= 0 else quota / period


def default_max_workers() -> int:
    """Return `AFFINITYPOOL_MAX_WORKERS`, else min(32, usable CPUs + 4) as the stdlib does."""
    text = os.environ.get(_VARIABLE)
    if text is None or text == "":
        return min(32, usable_cpus() + 4)
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_WORKERS:
        raise ValueError(
            f"the environment variable {_VARIABLE} must be an integer from 1 to {MAX_WORKERS}, "
            f"not {text!r}"
        )
    return count
