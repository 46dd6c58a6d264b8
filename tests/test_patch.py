"""`patch_stdlib`, `unpatch_stdlib` and `python -m affinitypool run`."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import os
import py_compile
import subprocess
import sys
import zipfile
from concurrent.futures import _base

import pytest
from helpers import ROOT, check_python

import affinitypool
from affinitypool import patch_stdlib, unpatch_stdlib

pytestmark = pytest.mark.timeout(30)

THREAD_POOL = concurrent.futures.ThreadPoolExecutor
WAIT, AS_COMPLETED = concurrent.futures.wait, concurrent.futures.as_completed


def is_patched():
    ours = (affinitypool.ThreadPoolExecutor, affinitypool.wait, affinitypool.as_completed)
    found = (
        concurrent.futures.ThreadPoolExecutor,
        concurrent.futures.wait,
        concurrent.futures.as_completed,
    )
    assert found in (ours, (THREAD_POOL, WAIT, AS_COMPLETED))
    return found == ours


@pytest.fixture(autouse=True)
def _unpatched():
    """Start and end without the patch."""
    assert not is_patched()
    yield
    unpatch_stdlib()
    assert not is_patched()
    assert (_base.wait, _base.as_completed) == (WAIT, AS_COMPLETED)


def test_patch_and_unpatch():
    patch_stdlib()
    assert is_patched()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert type(pool) is affinitypool.ThreadPoolExecutor
        assert concurrent.futures.wait([pool.submit(int)]).done
        assert list(concurrent.futures.as_completed([pool.submit(int)]))
    unpatch_stdlib()
    assert not is_patched()


def test_twice_is_as_once():
    patch_stdlib()
    patch_stdlib()
    assert is_patched()
    unpatch_stdlib()
    assert not is_patched()
    unpatch_stdlib()
    assert not is_patched()


def test_as_a_context_manager():
    with patch_stdlib():
        assert is_patched()
    assert not is_patched()


def test_a_block_takes_back_only_what_it_has_patched():
    patch_stdlib()
    with patch_stdlib():
        assert is_patched()
    assert is_patched()
    unpatch_stdlib()
    with patch_stdlib():
        with patch_stdlib():
            pass
        assert is_patched()
    assert not is_patched()


def test_a_block_leaves_the_patch_of_another_alone():
    with patch_stdlib():
        unpatch_stdlib()
        patch_stdlib()
    assert is_patched()


def test_an_error_in_the_block_takes_the_patch_back():
    with pytest.raises(KeyError), patch_stdlib():
        raise KeyError
    assert not is_patched()


def test_isinstance_and_subclasses_go_on_working():
    with patch_stdlib():
        with concurrent.futures.thread.ThreadPoolExecutor(1) as foreign:
            assert isinstance(foreign, THREAD_POOL)
            assert foreign.submit(abs, -1).result(10) == 1
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert isinstance(pool, THREAD_POOL)

        class Pool(concurrent.futures.ThreadPoolExecutor):
            pass

        with Pool(1) as pool:
            assert pool.submit(abs, -1).result(10) == 1


def test_the_stdlibs_waiters_work_on_foreign_futures_while_patched():
    with patch_stdlib(), THREAD_POOL(2) as foreign:
        futures = [foreign.submit(abs, n) for n in range(5)]
        assert concurrent.futures.wait(futures).done == set(futures)
        assert set(concurrent.futures.as_completed(futures)) == set(futures)


def test_asyncio_gets_our_pool():
    import asyncio

    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, abs, -3) == 3
        assert await asyncio.to_thread(abs, -4) == 4
        return type(loop._default_executor)

    with patch_stdlib():
        assert asyncio.run(main()) is affinitypool.ThreadPoolExecutor
    assert asyncio.run(main()) is THREAD_POOL


def test_patching_before_concurrent_futures_was_used():
    out = check_python(
        """
        import affinitypool
        affinitypool.patch_stdlib()
        import concurrent.futures
        from concurrent.futures import ThreadPoolExecutor, wait, as_completed
        print(ThreadPoolExecutor is affinitypool.ThreadPoolExecutor, wait is affinitypool.wait)
        affinitypool.unpatch_stdlib()
        print(concurrent.futures.ThreadPoolExecutor.__module__)
        """
    )
    assert out == "True True\nconcurrent.futures.thread\n"


# ---- python -m affinitypool run


def run_module(*args, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "affinitypool", *args],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_run_a_script(script):
    path = script(
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor, wait\n"
        "if __name__ == '__main__':\n"
        "    with ThreadPoolExecutor(1) as pool:\n"
        "        print(ThreadPoolExecutor.__module__[:12], pool.submit(abs, -1).result())\n"
        "    print(sys.argv, __file__)\n"
    )
    done = run_module("run", path, "a", "--flag", "-x", "--", "b")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "affinitypool 1",
        f"{[path, 'a', '--flag', '-x', '--', 'b']} {path}",
    ]


def test_run_a_script_by_a_relative_path(script, tmp_path):
    script("import beside\nprint(beside.value)\n")
    (tmp_path / "beside.py").write_text("value = 5\n")
    done = run_module("run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
    done = run_module("run", str(tmp_path / "script.py"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@pytest.mark.parametrize("safe", ["", "1"], ids=["", "safe path"])
def test_a_script_finds_what_it_finds_without_us(script, tmp_path, safe):
    """Its own folder comes first, but not with -P or PYTHONSAFEPATH; what comes next stays."""
    folders = [tmp_path / "first", ROOT]
    folders[0].mkdir()
    path = script("import os, sys\nprint(*map(os.path.realpath, sys.path), sep='\\n')\n")
    env = {**os.environ, "PYTHONSAFEPATH": safe, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    plain, ours = (
        subprocess.run(
            [sys.executable, *options, path], capture_output=True, text=True, timeout=20, env=env
        )
        for options in ((), ("-m", "affinitypool", "run"))
    )
    assert (ours.returncode, ours.stderr) == (0, "")
    assert ours.stdout == plain.stdout


@pytest.mark.parametrize(("text", "code"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("", 0)])
def test_the_status_is_the_scripts(script, text, code):
    done = run_module("run", script(text))
    assert done.returncode == code
    assert ("ZeroDivisionError" in done.stderr) == (text == "1 / 0")


def test_pending_tasks_of_a_script_run(script):
    done = run_module(
        "run",
        script(
            "import concurrent.futures as c, time\n"
            "pool = c.ThreadPoolExecutor(1)\n"
            "pool.submit(time.sleep, 0.05)\n"
            "pool.submit(print, 'ran')\n"
        ),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0"])
def test_pending_tasks_find_their_script_in_main(script, end):
    """Also when it has ended: what they import, look up and pickle there."""
    path = script(
        "import concurrent.futures, pickle, sys, time\n"
        "from affinitypool._binding import core\n"
        "def task():\n"
        "    while not core.is_exiting(): time.sleep(0.001)\n"
        "    import __main__\n"
        "    print(__main__.value, __main__.__file__, __main__.task is task)\n"
        "    print(pickle.loads(pickle.dumps(task)) is task, vars(__main__) is globals())\n"
        "pool = concurrent.futures.ThreadPoolExecutor(1)\n"
        "pool.submit(task).add_done_callback(lambda done: done.result())\n"
        f"value = 5\n{end}\n"
    )
    done = run_module("run", path)
    assert done.stdout == f"5 {path} True\nTrue True\n"
    assert done.returncode == (3 if "exit" in end else 1 if end else 0)
    assert ("ZeroDivisionError" in done.stderr) == (end == "1 / 0")


def test_a_script_sees_and_shows_what_it_does_without_us(script):
    """No name of ours in its module; the same traceback, from the script on."""
    path = script("print(__name__, __builtins__, *sorted(globals()), sep='\\n')\n'1'.no\n")
    done = run_module("run", path)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=20)
    names, usual = done.stdout.splitlines(), plain.stdout.splitlines()
    assert names[:2] == usual[:2]
    assert set(names) - set(usual) <= {"__cached__"}  # which newer ones leave out
    lines = plain.stderr.splitlines()[1:]
    assert done.stderr.splitlines()[-len(lines) :] == lines


@pytest.mark.parametrize("text", [b"def f(:\n", b"x = '\xff'\n"])
def test_a_script_that_does_not_compile_is_named(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_bytes(text)
    done = run_module("run", str(path))
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert str(path) in done.stderr


def test_no_future_statement_of_ours_holds_in_a_script(script):
    done = run_module("run", script("def f(x: 1 + 1): ...\nprint(f.__annotations__)\n"))
    assert (done.stdout, done.stderr) == ("{'x': 2}\n", "")


def test_a_script_in_another_encoding(tmp_path):
    path = tmp_path / "script.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))\n")
    assert run_module("run", str(path)).stdout == "'\\xe4'\n"


@pytest.mark.parametrize("kind", ["archive", "folder", "compiled"])
def test_what_python_runs_beside_sources_is_run(script, tmp_path, kind):
    path = script("import sys\nprint(__name__, len(sys.argv))\nsys.exit(4)\n")
    if kind == "compiled":
        target = py_compile.compile(path, str(tmp_path / "script.pyc"))
    elif kind == "folder":
        target = str(tmp_path / "folder")
        os.mkdir(target)
        os.rename(path, os.path.join(target, "__main__.py"))
    else:
        target = str(tmp_path / "app.pyz")
        with zipfile.ZipFile(target, "w") as archive:
            archive.write(path, "__main__.py")
    done = run_module("run", target, "a")
    assert (done.returncode, done.stdout, done.stderr) == (4, "__main__ 2\n", "")


@pytest.mark.parametrize("args", [(), ("run",), ("walk", "x"), ("run", "/no/such/script.py")])
def test_misuse_of_the_command_line(args):
    done = run_module(*args)
    assert done.returncode == 2
    assert "usage: python -m affinitypool" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_script_only_the_script_is_missing():
    done = run_module("run")
    assert "following arguments are required: SCRIPT\n" in done.stderr


def test_help_says_that_modules_are_not_run():
    assert "modules (-m) are not run" in run_module("run", "--help").stdout


def test_help():
    done = run_module("--help")
    assert done.returncode == 0
    assert "run" in done.stdout
