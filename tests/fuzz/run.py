"""Fuzzes the sequential API of the C core: `make fuzz`.

Each harness (fuzz_*.c) is run by clang's libFuzzer under Address- and UBSanitizer, for a fixed
number of inputs from a fixed seed; then gcc's build runs the inputs that it has kept. Then the
harnesses are run on copies of the core with a defect planted (defects.py), which they must find.
Without libFuzzer, gcc's build runs as many inputs at random.

    FUZZ_RUNS=200000    inputs for each harness; default: of each harness its own number
    FUZZ_SEED=2         another seed; default 1
    FUZZ_ONLY=ring,pool these harnesses only
    FUZZ_PLAIN=1        as if there was no libFuzzer
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from defects import DEFECTS, Defect

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "build" / "fuzz"
SEED = int(os.environ.get("FUZZ_SEED", "1"))
LIMIT = 240  # seconds for one program, or what FUZZ_RUNS may take

CORE = sorted((ROOT / "csrc" / "sched").glob("*.c")) + [
    ROOT / "csrc" / "sync" / name for name in ("memory.c", "fork.c")
]
HEADERS = [*(ROOT / "csrc").glob("*.h"), *(ROOT / "csrc").glob("s*/*.h"), *HERE.glob("*.h")]
FLAGS = ["-std=c11", "-g", "-O1", "-pthread", "-DAP_FAULTS"]
FLAGS += ['-DAP_POINT_HEADER="fuzz_point.h"', "-fno-sanitize-recover=all"]
FLAGS += ["-fno-omit-frame-pointer"]
ABORT = "abort_on_error=1"  # so that an input that fails is kept
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]


class Harness(NamedTuple):
    """A harness, with blocks of so many slots."""

    name: str
    source: str
    slots: int
    runs: int


HARNESSES = [
    Harness("block", "block", 127, 8000),
    Harness("injector-127", "injector", 127, 8000),
    Harness("injector-3", "injector", 3, 20000),
    Harness("ring", "ring", 127, 15000),
    Harness("backlog", "backlog", 3, 8000),
    Harness("idle", "idle", 3, 25000),
    Harness("quiet", "quiet", 3, 15000),
    Harness("pool-127", "pool", 127, 3000),
    Harness("pool-3", "pool", 3, 4000),
]

_compiled: dict[Path, threading.Lock] = {}
_compiled_lock = threading.Lock()


def first_that_works(names: Iterable[str], *flags: str) -> str | None:
    """The first of the compilers that is here and links with these flags."""
    OUT.mkdir(parents=True, exist_ok=True)
    probe = OUT / "probe.c"
    probe.write_text(
        "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\n"
        "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)"
        "{ return d && n ? 0 : 0; }\n"
        "#ifndef FUZZER\nint main(void) { return 0; }\n#endif\n"
    )
    for name in names:
        if shutil.which(name) is None:
            continue
        done = subprocess.run(
            [name, *flags, str(probe), "-o", str(OUT / "probe")], capture_output=True
        )
        if done.returncode == 0:
            return name
    return None


class Toolchain:
    """A compiler, with libFuzzer or with a plain main."""

    def __init__(self, compiler: str, fuzzes: bool) -> None:
        self.compiler = compiler
        self.fuzzes = fuzzes
        kinds = "fuzzer,address,undefined" if fuzzes else "address,undefined"
        self.flags = [*FLAGS, f"-fsanitize={kinds}"]

    def object_of(self, source: Path, slots: int, defect: Defect | None) -> Path:
        """Compiles a file; what was compiled from the same text is taken as it is."""
        text = source.read_text()
        flags = [*self.flags, f"-DAP_BLOCK_SLOTS={slots}"]
        if defect is None or ROOT / "csrc" / defect.file != source:
            flags += WARNINGS
        else:
            assert text.count(defect.old) == 1, f"{defect.name}: not once in {defect.file}"
            text = text.replace(defect.old, defect.new)
        digest = hashlib.sha256("\0".join([self.compiler, *flags, text]).encode())
        for header in HEADERS:
            digest.update(header.read_bytes())
        stem = OUT / "objects" / f"{source.stem}-{digest.hexdigest()[:20]}"
        target = stem.with_suffix(".o")
        with _compiled_lock:
            lock = _compiled.setdefault(target, threading.Lock())
        with lock:
            if not target.exists():
                stem.parent.mkdir(parents=True, exist_ok=True)
                stem.with_suffix(".c").write_text(f'#line 1 "{source.name}"\n{text}')
                command = [self.compiler, *flags, f"-I{ROOT / 'csrc'}", f"-I{HERE}", "-c"]
                command += [str(stem.with_suffix(".c")), "-o", str(stem.with_suffix(".new"))]
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
                if done.returncode != 0:
                    sys.exit(f"{source.name} does not compile:\n{done.stderr}")
                stem.with_suffix(".new").rename(target)
        return target

    def program(self, harness: Harness, defect: Defect | None = None) -> Path:
        """Builds a harness on the core, or on a copy of it with the defect."""
        sources = [*CORE, HERE / "fuzz_world.c", HERE / f"fuzz_{harness.source}.c"]
        sources += [] if self.fuzzes else [HERE / "replay.c"]
        objects = [str(self.object_of(source, harness.slots, defect)) for source in sources]
        kind = "fuzz" if self.fuzzes else "replay"
        name = f"{kind}-{harness.name}"
        if defect is not None:
            name += "-defect-" + re.sub(r"\W+", "-", defect.name)
        program = OUT / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.compiler, *self.flags, *objects, "-o", str(program)], check=True)
        return program


class Outcome(NamedTuple):
    """How a run ended."""

    failed: bool
    inputs: int
    seconds: float
    reason: str
    crash: Path | None
    output: str


_REASON = re.compile(
    r"fuzz_\w+\.c:\d+: .*|.*runtime error: .*|.*ERROR: (?:Address|Leak)Sanitizer: .*"
    r"|.*ERROR: libFuzzer: .*"
)
_INPUTS = re.compile(r"stat::number_of_executed_units: (\d+)|(\d+) inputs replayed")


def run(command: list[str], crashes: Path | None = None) -> Outcome:
    """Runs a program; a failure, a hang too, is told with its first reason and its input."""
    before = time.monotonic()
    limit = max(LIMIT, int(os.environ.get("FUZZ_RUNS", "0")) // 200)
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            text=True,
            errors="replace",
            env={**os.environ, "ASAN_OPTIONS": ABORT, "UBSAN_OPTIONS": ABORT},
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = f"{error.output!r}\nno end after {limit} s", -1
    found = _REASON.search(output)
    counts = _INPUTS.findall(output)
    inputs = sum(int(number) for pair in counts for number in pair if number)
    crash = None
    if crashes is not None:
        kept = [path for path in crashes.iterdir() if path.name[0] in "clot"]
        crash = kept[0] if kept else None
    seconds = time.monotonic() - before
    reason = found[0].strip() if found else f"status {status}"
    return Outcome(status != 0, inputs, seconds, reason, crash, output)


def emptied(path: Path) -> Path:
    """The directory, with nothing in it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def runs_of(harness: Harness) -> int:
    """How many inputs it is given."""
    return int(os.environ.get("FUZZ_RUNS") or harness.runs)


def fuzz(tools: Toolchain, program: Path, harness: Harness, seeds: Path, name: str) -> Outcome:
    """Lets a program search for a failure within its bound."""
    crashes = emptied(OUT / "crashes" / name)
    if not tools.fuzzes:
        kept = str(crashes / "crash")
        return run([str(program), "--random", str(runs_of(harness)), str(SEED), kept], crashes)
    corpus = emptied(OUT / "corpus" / name)
    command = [str(program), f"-runs={runs_of(harness)}", f"-seed={SEED}", "-max_len=512"]
    command += ["-len_control=0", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1"]
    command += [f"-artifact_prefix={crashes}/", str(corpus), str(seeds)]
    return run(command, crashes)


def check(tools: Toolchain, plain: Toolchain, harness: Harness) -> bool:
    """Fuzzes the core as it is, then runs what was kept once more in the plain build."""
    replay = plain.program(harness)
    seeds = emptied(OUT / "seeds" / harness.name)
    subprocess.run([str(replay), "--seeds", str(seeds)], check=True)
    outcome = fuzz(tools, tools.program(harness), harness, seeds, harness.name)
    again = outcome
    files = sorted(seeds.iterdir())
    corpus = f"build/fuzz/corpus/{harness.name}"
    if not outcome.failed:
        if tools.fuzzes:
            files += sorted((OUT / "corpus" / harness.name).iterdir())
        again = run([str(replay), *map(str, files)])
    result = "FAILED" if outcome.failed or again.failed else "ok"
    inputs = outcome.inputs or runs_of(harness)
    line = f"{harness.name:13} {inputs:8} inputs {outcome.seconds:6.1f} s  "
    print(f"{line}{len(files):5} run again with {plain.compiler}  {result}", flush=True)
    if result != "ok":
        failed = outcome if outcome.failed else again
        print(failed.output[-6000:])
        print(f"{harness.name}: {failed.reason}")
        where = outcome.crash.relative_to(ROOT) if outcome.crash else f"each of {corpus}/*"
        print(f"to run it again: {replay.relative_to(ROOT)} {where}", flush=True)
    return result == "ok"


def control(tools: Toolchain, plain: Toolchain, defect: Defect) -> bool:
    """Whether the harness finds the defect, and the plain build fails on the input, too."""
    harness = next(each for each in HARNESSES if each.name == defect.harness)
    name = "defect-" + re.sub(r"\W+", "-", defect.name)
    seeds = OUT / "seeds" / harness.name
    outcome = fuzz(tools, tools.program(harness, defect), harness, seeds, name)
    result, reason = "found", re.sub(r"^.*?(fuzz_|ERROR: )", r"\1", outcome.reason)[:70]
    if not outcome.failed:
        result = "SURVIVED"
        reason = ""
    elif tools.fuzzes and outcome.crash is None:
        result = "NO INPUT KEPT"
    elif outcome.crash is not None and plain is not tools and defect in DEFECTS[::4]:
        again = run([str(plain.program(harness, defect)), str(outcome.crash)])
        result = "found, again" if again.failed else "NOT AGAIN"
    line = f"{defect.name:58} {harness.name:13} {outcome.inputs or runs_of(harness):7}"
    print(f"{line} {outcome.seconds:5.1f} s  {result:12} {reason}", flush=True)
    return result.startswith("found")


def main() -> int:
    """Entry point."""
    plain_compiler = first_that_works(["gcc", "cc"], "-fsanitize=address,undefined")
    clangs = [] if os.environ.get("FUZZ_PLAIN") else ["clang-14", "clang"]
    clang = first_that_works(clangs, "-fsanitize=fuzzer,address", "-DFUZZER")
    if plain_compiler is None:
        sys.exit("no gcc with the sanitizers: nothing can be fuzzed")
    plain = Toolchain(plain_compiler, fuzzes=False)
    skipped = 0
    if clang is None:
        print("LIBFUZZER IS MISSING (Debian: clang-14 libclang-rt-14-dev): inputs are random")
        skipped = 1
    tools = plain if clang is None else Toolchain(clang, fuzzes=True)
    only = [name for name in os.environ.get("FUZZ_ONLY", "").split(",") if name]
    harnesses = [h for h in HARNESSES if not only or h.source in only or h.name in only]
    names = {harness.name for harness in harnesses}
    defects = [defect for defect in DEFECTS if defect.harness in names]
    unwatched = {h.name for h in harnesses} - {defect.harness for defect in defects}
    assert not unwatched, f"no defect is planted for {unwatched}"
    print(f"seed {SEED}; inputs that fail are kept under {(OUT / 'crashes').relative_to(ROOT)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda harness: check(tools, plain, harness), harnesses))
        print("\nplanted defects, which must be found:")
        results += list(pool.map(lambda defect: control(tools, plain, defect), defects))
    tail = f", {skipped} skipped" if skipped else ""
    print(f"\n{sum(results)} passed, {len(results) - sum(results)} failed{tail}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
