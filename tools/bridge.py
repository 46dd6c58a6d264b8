"""Checks of the CPython bridge (csrc/python) by what looks at memory and references.

    python tools/bridge.py debug|leaks|asan|memcheck [--only checks|controls] [PYTEST-ARGUMENT...]

debug     the Python tests under the interpreter's debug allocator and development mode, every
          warning an error
leaks     tests run again and again, and counted what each leaves behind: tests/leaks.py
asan      some of the tests with the extension built with Address- and UBSanitizer
memcheck  tests/bridge/everything.py, which calls each entry point, under valgrind

Then the controls: faults planted in a copy of csrc (tests/bridge/faults.py), each of which the
check has to find, and none of which it finds while they are switched off.  Ends with a line that
tools/tally.py counts.  What pytest runs can be given; each check has a choice of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "bridge"))

from faults import FAULTS, HEADER, Fault  # type: ignore[import-not-found]  # noqa: E402

HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
TAG = sysconfig.get_config_var("SOABI")
SANITIZERS = "-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined"
QUIET = ["-q", "-p", "no:cacheprovider"]


def _existing(names: Sequence[str], folder: str = "tests") -> list[str]:
    files = [f"{folder}/test_{name}.py" for name in names]
    return [file for file in files if (ROOT / file).exists()]


# debug: all that is not about the tools or the build, and of faults/ the bridge's own part
DEBUG = [
    *("tests", "--ignore=tests/faults", "--ignore=tests/cpython"),
    *(f"--ignore=tests/test_{name}.py" for name in ("bench", "diagnostics", "soak", "tools")),
    *_existing(["exceptions", "unobserved", "cancel", "bound", "map"], "tests/faults"),
]
# leaks: what calls most of csrc/python in this process, in tests of some milliseconds; any other
# can be given, and AFFINITYPOOL_LEAKS_SLOWEST=1, say, lets in those that take longer
LEAKS = _existing(["task", "waiting", "core_binding", "submit_many"])
if HAS_GIL:  # many of these make classes, which live for ever without one
    LEAKS += _existing(["exceptions", "unobserved", "bound", "map", "context"], "tests/faults")
# asan: the same and what is unkind to the types; what takes its time, or looks at it, is left out
ASAN = [
    *_existing(
        ["task", "waiting", "core_binding", "submit_many", "bad_input", "lifetimes", "context"]
    ),
    # memory of the process: the sanitizer keeps what is freed
    *("--deselect", "tests/test_core_binding.py::test_cores_are_used_again"),
]


class Failed(Exception):
    """A check, or a control, that did not do what it has to."""


def build(name: str, flags: str = "", planted: bool = False) -> Path:
    """Build a copy of the package, planted or as it is; return the folder that holds it."""
    place = ROOT / "build" / "bridge" / f"{TAG}-{name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for folder in ("csrc", "affinitypool", "tests"):
        ignore = shutil.ignore_patterns("*.so", "__pycache__", "_core.c")
        shutil.copytree(ROOT / folder, place / folder, ignore=ignore)
    for file in ("build_ffi.py", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, place)
    if planted:
        for fault in FAULTS:
            path = place / "csrc" / fault.file
            text = path.read_text()
            if text.count(fault.text) != 1:
                raise Failed(f"{fault.name}: its text is there {text.count(fault.text)} times")
            path.write_text(text.replace(fault.text, fault.faulty))
        (place / "planted.h").write_text(HEADER)
        flags += f" -include {place / 'planted.h'}"
    links = f"{os.environ.get('LDFLAGS', '')} {SANITIZERS if SANITIZERS in flags else ''}".strip()
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=place,
        env={**os.environ, "AFFINITYPOOL_CFLAGS": flags, "LDFLAGS": links},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise Failed(f"cannot be built:\n{done.stderr}")
    return place


def environment(check: str, place: Path, fault: str = "") -> dict[str, str]:
    """Return what the check needs in the environment."""
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    env["AFFINITYPOOL_PLANTED"] = fault
    if check == "debug":
        env.update(PYTHONMALLOC="debug", PYTHONDEVMODE="1")
    elif check == "asan":
        env.update(
            PYTHONMALLOC="malloc",
            LD_PRELOAD=runtime("libasan.so"),
            # the interpreter frees little at its end; its handler of SIGSEGV stays
            ASAN_OPTIONS="detect_leaks=0:halt_on_error=1:abort_on_error=0:allow_user_segv_handler=1",
            UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        )
    elif check == "memcheck":
        env.update(PYTHONMALLOC="malloc", PYTHONHASHSEED="0")
    return env


def runtime(name: str) -> str:
    """Return the path of one of gcc's libraries."""
    done = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
    path = done.stdout.strip()
    if done.returncode or not Path(path).is_absolute():
        raise Failed(f"gcc has no {name} here")
    return str(Path(path).resolve())


def pytest_command(check: str, arguments: Sequence[str], place: Path) -> list[str]:
    """Return the command that runs tests under the check."""
    command = [sys.executable, "-m", "pytest", *QUIET, f"--basetemp={place / 'build' / 'tmp'}"]
    if check == "debug":
        command[1:1] = ["-W", "error"]
    if check == "leaks" and not any("test_lifetimes" in each for each in arguments):
        command.append("--leaks")
    return [*command, *arguments]


def run_tests(check: str, place: Path, arguments: Sequence[str]) -> bool:
    """Run the check's tests; whether they passed."""
    (place / "build").mkdir(exist_ok=True)
    command = pytest_command(check, arguments, place)
    return subprocess.run(command, cwd=place, env=environment(check, place)).returncode == 0


# ---- memcheck: pytest is too much for it


def memcheck(place: Path, fault: str, script: str, arguments: Sequence[str]) -> tuple[str, int]:
    """Run a script under valgrind; return the errors that have a frame of the extension, and how
    many have none: those are the interpreter's own, or of what it loads.
    """
    report = place / "memcheck.xml"
    command = ["valgrind", "--tool=memcheck", "--xml=yes", f"--xml-file={report}"]
    command += ["--leak-check=no", "--fair-sched=yes", "--num-callers=24", "--quiet"]
    command += [sys.executable, script, *arguments]
    env = environment("memcheck", place, fault)
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, errors="replace", timeout=280
    )
    text, ours, others = report.read_text(errors="replace"), [], 0
    if "</valgrindoutput>" not in text:
        text += "</valgrindoutput>"  # it has died: a fault may do that
    for error in ElementTree.fromstring(text).iter("error"):
        if (error.findtext("kind") or "").startswith("Leak"):
            continue  # what lives at the end is the interpreter's way, and the other check's matter
        frames = list(error.iter("frame"))
        if any("affinitypool/_core" in (frame.findtext("obj") or "") for frame in frames):
            where = [
                f"    {frame.findtext('fn')} ({frame.findtext('file')}:{frame.findtext('line')})"
                for frame in frames[:10]
            ]
            ours.append("\n".join([error.findtext("kind") or "?", *where]))
        else:
            others += 1
    if done.returncode and not ours:
        raise Failed(f"exit status {done.returncode} under valgrind:\n{done.stderr[-3000:]}")
    return "\n".join(ours), others


def check_memcheck(place: Path) -> bool:
    """Run every entry point once; whether valgrind is silent about the extension."""
    ours, others = memcheck(place, "", "tests/bridge/everything.py", ())
    print(ours or f"memcheck: nothing in the extension; {others} errors of others are not counted")
    print(f"memcheck: {int(not ours)} passed, {int(bool(ours))} failed")
    return not ours


# ---- controls


def find(check: str, place: Path, fault: Fault | None, use: str) -> str:
    """Run one use with a fault, or none, and return all that was said."""
    name = fault.name if fault else ""
    if check == "memcheck":
        ours, _ = memcheck(place, name, "tests/bridge/everything.py", (use,))
        return ours
    test = use if "::" in use else f"tests/bridge/uses.py::{use}"
    command = pytest_command(check, [test, "-s"], place)
    done = subprocess.run(
        command,
        cwd=place,
        env=environment(check, place, name),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    return done.stdout + done.stderr if done.returncode else ""


def controls(check: str) -> tuple[int, int, int]:
    """Plant each fault; return how many were found, were not, and cannot be here."""
    flags = SANITIZERS if check == "asan" else ""
    place = build(f"{check}-planted", flags, planted=True)
    found = missed = skipped = 0
    finds = {"leaks", "lifetimes"} if check == "leaks" else {check}
    chosen = [fault for fault in FAULTS if finds & set(fault.finds)]
    for use in sorted({fault.use for fault in chosen}):
        said = find(check, place, None, use)
        if said:
            print(f"control without a fault: {use} fails:\n{said[-3000:]}")
            missed += 1
    for fault in chosen:
        if fault.builds == ("free" if HAS_GIL else "gil"):
            print(f"control: {fault.name}: skipped, cannot be seen on this build of Python")
            skipped += 1
            continue
        said = find(check, place, fault, fault.use)
        patterns = [pattern for by, pattern in fault.finds.items() if by in finds]
        match = next(filter(None, (re.search(pattern, said) for pattern in patterns)), None)
        if match:
            line = next(each for each in match[0].splitlines()[::-1] if each.strip())
            print(f"control: {fault.name}: found: {line.strip()[:100]}")
            found += 1
        else:
            print(f"control: {fault.name}: NOT FOUND\n{said[-3000:]}")
            missed += 1
    return found, missed, skipped


def main() -> int:
    """Entry point."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("check", choices=["debug", "leaks", "asan", "memcheck"])
    parser.add_argument("--only", choices=["checks", "controls"])
    options, arguments = parser.parse_known_args()
    check, ok = options.check, True
    tool = {"asan": "gcc", "memcheck": "valgrind"}.get(check)
    if tool and not shutil.which(tool):
        print(f"{check}: {tool} is not installed: NOT RUN")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    try:
        if options.only != "controls":
            if check == "memcheck":
                ok = check_memcheck(build("memcheck"))
            else:
                place = build("asan", SANITIZERS) if check == "asan" else ROOT
                chosen = {"debug": DEBUG, "leaks": LEAKS, "asan": ASAN}[check]
                ok = run_tests(check, place, arguments or chosen)
            sys.stdout.flush()
        if options.only != "checks":
            found, missed, skipped = controls(check)
            print(f"controls: {found} passed, {missed} failed, {skipped} skipped")
            ok = ok and not missed
    except Failed as failure:
        print(f"{check}: {failure}\n0 passed, 1 failed")
        ok = False
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
