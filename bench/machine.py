"""What a run ran on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
import sysconfig


def cpu_model() -> str:
    """The processor's name, or its architecture where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Hardware", "cpu model"):
                    return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def operating_system() -> str:
    """Distribution and kernel."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()
    return f"{name}, {platform.system()} {platform.release()} {platform.machine()}"


def gil() -> str:
    """Whether this interpreter has a global lock, and whether it is on."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "with GIL"
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    return "free-threaded build, GIL on" if enabled else "free-threaded, no GIL"


def version(distribution: str) -> str:
    """Installed version of a distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def describe() -> dict[str, str]:
    """Everything a reader needs to judge the numbers, in the order in which to print it."""
    load = f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "cpu": f"{cpu_model()}, {usable_cpus()} of {os.cpu_count()} CPUs usable",
        "os": operating_system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}, {gil()}",
        "compiler": f"{platform.python_compiler()} (built the interpreter)",
        "affinitypool": version("affinitypool"),
        "load": f"{load} when the run began",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
