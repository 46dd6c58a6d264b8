"""examples/hash_tree.py against coreutils' sha256sum, byte for byte."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "hash_tree.py"
ODD_NAMES = [
    b"plain",
    b"a\nb",
    b"a\\b",
    b"a\rb",
    b"\\n",
    b"\n",
    b"trailing\n",
    b"\xff\xfe",
    "é".encode(),
    b"sp ace",
    b" leading",
    b"tab\tx",
    b"*star",
    b"-dash",
    b"quo'te",
    b'quo"te',
    b"\x01\x1b[31m",
]

needs_coreutils = pytest.mark.skipif(
    not all(map(shutil.which, ("find", "sort", "xargs", "sha256sum"))),
    reason="no coreutils and findutils here",
)


def hash_tree(
    directory: bytes, *options: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options, directory],
        capture_output=True,
        cwd=cwd,
        timeout=100,
    )


def sha256sum(directory: bytes, cwd: Path | None = None) -> bytes:
    pipeline = (
        'set -o pipefail; find "$1" -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum --'
    )
    done = subprocess.run(
        ["bash", "-c", pipeline, "-", directory], capture_output=True, cwd=cwd, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def functions() -> dict[str, Any]:
    """The example's functions, for what cannot be had from outside."""
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def odd_tree(tmp_path: Path) -> Path:
    """Every odd name as a file and in a directory of that name, and things that are no files."""
    top = os.fsencode(tmp_path)
    for i, name in enumerate(ODD_NAMES):
        with open(top + b"/" + name, "wb") as file:
            file.write(bytes(i))
        directory = top + b"/" + name + b".d"
        os.mkdir(directory)
        with open(directory + b"/" + name, "wb") as file:
            file.write(name)
    # In byte order "a-b" and "a.b" stand before "a/b", though "a" is before both.
    for sibling in ("a", "a-b", "a.b"):
        (tmp_path / sibling).mkdir()
        (tmp_path / sibling / "b").write_text(sibling)
    (tmp_path / "empty directory").mkdir()
    (tmp_path / "link to a file").symlink_to("plain")
    (tmp_path / "link to a directory").symlink_to("a")
    (tmp_path / "broken link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@needs_coreutils
@pytest.mark.timeout(240)
def test_standard_library() -> None:
    directory = os.fsencode(sysconfig.get_path("stdlib"))
    for _ in range(3):  # another interpreter may be writing its caches there
        done, expected = hash_tree(directory), sha256sum(directory)
        if done.stdout == expected:
            break
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") > 500
    assert done.stdout == expected


@needs_coreutils
@pytest.mark.parametrize("options", [(), ("-j", "1"), ("-j", "7")])
def test_odd_names(odd_tree: Path, options: tuple[str, ...]) -> None:
    for directory, cwd in (
        (os.fsencode(odd_tree), None),
        (os.fsencode(odd_tree) + b"/", None),
        (b".", odd_tree),
    ):
        done = hash_tree(directory, *options, cwd=cwd)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == sha256sum(directory, cwd)


@needs_coreutils
def test_sha256sum_accepts_the_output(odd_tree: Path) -> None:
    lines = hash_tree(b".", cwd=odd_tree).stdout
    check = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet"], input=lines, cwd=odd_tree, timeout=100
    )
    assert check.returncode == 0


@needs_coreutils
def test_more_files_than_the_window(tmp_path: Path) -> None:
    for i in range(functions()["WINDOW"] + 200):
        (tmp_path / str(i)).write_text(str(i))
    assert hash_tree(os.fsencode(tmp_path)).stdout == sha256sum(os.fsencode(tmp_path))


def test_large_file_is_read_in_blocks(tmp_path: Path) -> None:
    size = (1 << 28) + 1
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(size)
    source = (
        "import resource, runpy, sys\n"
        "f = runpy.run_path(sys.argv[1])['digest']\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert f(sys.argv[2].encode())[1] == int(sys.argv[3])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", source, str(SCRIPT), str(tmp_path / "sparse"), str(size)]
    kib = int(subprocess.check_output(command, timeout=100))
    assert kib < 16 * 1024


def test_deep_tree(tmp_path: Path) -> None:
    """Deeper than Python would recurse; the file at the bottom is found."""
    path = str(tmp_path)
    for _ in range(sys.getrecursionlimit() + 200):
        path += "/d"
        os.mkdir(path)
    Path(path, "f").touch()
    done = hash_tree(os.fsencode(tmp_path))
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # pytest's own cleaning recurses
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(os.fsencode(path) + b"/f\n")


def test_missing_directory(tmp_path: Path) -> None:
    done = hash_tree(os.fsencode(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"hash_tree: " in done.stderr
    assert b"/none: No such file or directory" in done.stderr


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    done = hash_tree(os.fsencode(tmp_path / "f"))
    assert done.returncode == 1
    assert b"/f: Not a directory" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    (tmp_path / "b").chmod(0)
    done = hash_tree(os.fsencode(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count(b"\n") == 2
    assert b"/b: Permission denied" in done.stderr


def test_what_cannot_be_read_is_reported(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, for root too: `open` refuses one name, and the scan refuses a directory."""
    for name in ("a", "b\udcff", "c"):
        (tmp_path / name).touch()
    (tmp_path / "closed").mkdir()
    example = functions()
    listing = example["listing"]

    def refuse(path: bytes, *args: Any, **options: Any) -> Any:
        if path.endswith(b"/b\xff"):
            raise PermissionError(13, "Permission denied", path)
        return open(path, *args, **options)

    def refuse_listing(directory: bytes) -> Any:
        if directory.endswith(b"closed/"):
            raise PermissionError(13, "Permission denied", directory)
        return listing(directory)

    monkeypatch.setitem(example["digest"].__globals__, "open", refuse)
    monkeypatch.setitem(example["walk"].__globals__, "listing", refuse_listing)
    assert example["main"]([str(tmp_path)]) == 1
    out, err = capfdbinary.readouterr()
    assert [line.rsplit(b"/", 1)[1] for line in out.splitlines()] == [b"a", b"c"]
    assert b"/closed: Permission denied" in err
    assert b"Permission denied" in err.splitlines()[1]


def test_reader_that_leaves(tmp_path: Path) -> None:
    for i in range(3000):
        (tmp_path / f"{i:04}").touch()
    pipeline = '"$1" "$2" "$3" | head -n 1'
    command = ["bash", "-c", pipeline, "-", sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=100)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")


@pytest.mark.parametrize("jobs", ["0", "-1", "x", "9999"])
def test_bad_number_of_threads(tmp_path: Path, jobs: str) -> None:
    done = hash_tree(os.fsencode(tmp_path), f"-j{jobs}")
    assert done.returncode == 2
    assert b"invalid" in done.stderr
