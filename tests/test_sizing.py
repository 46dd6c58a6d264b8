"""How many workers a pool gets: environment, affinity mask, control group."""

from __future__ import annotations

import os
import sys

import pytest
from helpers import check_python, run_python

from affinitypool import MAX_WORKERS, ThreadPoolExecutor, _sizing

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def cpus(monkeypatch):
    """Set how many CPUs the process sees, without a quota."""

    def put(count, quota=None):
        monkeypatch.delenv("AFFINITYPOOL_MAX_WORKERS", raising=False)
        if hasattr(os, "process_cpu_count"):
            monkeypatch.setattr(os, "process_cpu_count", lambda: count)
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid: set(range(count or 0)), raising=False
        )
        monkeypatch.setattr(_sizing, "cgroup_quota", lambda: quota)

    return put


@pytest.mark.parametrize(
    ("count", "quota", "usable", "workers"),
    [
        (1, None, 1, 5),
        (4, None, 4, 8),
        (28, None, 28, 32),
        (64, None, 64, 32),
        (64, 2.0, 2, 6),
        (64, 1.5, 2, 6),
        (64, 0.1, 1, 5),
        (2, 8.0, 2, 6),
        (0, None, 1, 5),
    ],
)
def test_the_default(cpus, count, quota, usable, workers):
    cpus(count, quota)
    assert _sizing.usable_cpus() == usable
    assert ThreadPoolExecutor()._max_workers == workers
    assert ThreadPoolExecutor(None)._max_workers == workers
    assert ThreadPoolExecutor(thread_per_core=True)._max_workers == usable


def test_more_cpus_than_workers_can_be(cpus):
    cpus(1000)
    assert ThreadPoolExecutor(thread_per_core=True)._max_workers == MAX_WORKERS == 512
    assert ThreadPoolExecutor()._max_workers == 32


@pytest.mark.parametrize(("text", "workers"), [("1", 1), ("7", 7), (" 7 ", 7), ("512", 512)])
def test_the_environment_variable(monkeypatch, text, workers):
    monkeypatch.setenv("AFFINITYPOOL_MAX_WORKERS", text)
    assert ThreadPoolExecutor()._max_workers == workers
    assert ThreadPoolExecutor(3)._max_workers == 3
    assert ThreadPoolExecutor(thread_per_core=True)._max_workers == _sizing.usable_cpus()


@pytest.mark.parametrize("text", ["0", "-1", "513", "two", "1.5", "1e3", " ", "0x10", "9" * 5000])
def test_a_bad_environment_variable_is_a_clear_error(monkeypatch, text):
    monkeypatch.setenv("AFFINITYPOOL_MAX_WORKERS", text)
    with pytest.raises(ValueError, match="AFFINITYPOOL_MAX_WORKERS must be an integer from 1 to"):
        ThreadPoolExecutor()
    assert ThreadPoolExecutor(2)._max_workers == 2


def test_an_empty_environment_variable_counts_as_unset(cpus, monkeypatch):
    cpus(2)
    monkeypatch.setenv("AFFINITYPOOL_MAX_WORKERS", "")
    assert ThreadPoolExecutor()._max_workers == 6


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_the_affinity_mask_counts():
    out = check_python(
        """
        import os
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        from affinitypool import ThreadPoolExecutor as Pool
        print(Pool()._max_workers, Pool(thread_per_core=True)._max_workers)
        """,
        AFFINITYPOOL_MAX_WORKERS="",
    )
    assert out == "5 1\n"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="PYTHON_CPU_COUNT came with Python 3.13")
def test_python_cpu_count_counts():
    done = run_python(
        "from affinitypool import ThreadPoolExecutor as T; print(T()._max_workers)",
        PYTHON_CPU_COUNT="1",
        AFFINITYPOOL_MAX_WORKERS="",
    )
    assert done.stdout == "5\n"


# ---- control groups


@pytest.fixture
def group(tmp_path):
    """Make a control group file system; return a function that reads the quota."""
    root, own = tmp_path / "cgroup", tmp_path / "own"
    root.mkdir()

    def read(membership, files):
        own.write_text(membership)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return _sizing.cgroup_quota(str(root), str(own))

    return read


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "max\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "50000\n"}, 0.5),
        ({"a/cpu.max": "300000 100000\n"}, 3.0),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3.0),
        ({"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "300000 100000\n"}, 3.0),
        ({"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "300000 100000\n"}, 1.0),
        ({"a/b/cpu.max": "rubbish\n"}, None),
        ({"a/b/cpu.max": "\n"}, None),
        ({"other/cpu.max": "100000 100000\n"}, None),
        ({"a/b/cpu.max": "100000 0\n"}, None),
    ],
)
def test_version_2(group, files, quota):
    assert group("0::/a/b\n", files) == quota


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [
        ("-1", "100000", None),
        ("0", "100000", None),
        ("200000", "100000", 2.0),
        ("50000", "100000", 0.5),
        ("100000", "0", None),
        ("rubbish", "100000", None),
    ],
)
def test_version_1(group, mount, quota, period, expected):
    lines = f"5:memory:/other\n4:{mount}:/a\n1:name=systemd:/x\n"
    assert (
        group(
            lines,
            {
                f"{mount}/a/cpu.cfs_quota_us": quota + "\n",
                f"{mount}/a/cpu.cfs_period_us": period + "\n",
            },
        )
        == expected
    )


def test_version_1_of_a_group_above(group):
    files = {
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/a/cpu.cfs_quota_us": "100000",
        "cpu/a/cpu.cfs_period_us": "100000",
        "cpu/a/b/cpu.cfs_quota_us": "400000",
        "cpu/a/b/cpu.cfs_period_us": "100000",
    }
    assert group("2:cpu:/a/b\n", files) == 1.0


def test_in_a_container_the_path_is_the_hosts(group):
    """The group's path is not below the mount point; the mount point itself tells."""
    assert group("0::/docker/0123\n", {"cpu.max": "200000 100000"}) == 2.0


def test_both_versions_at_once(group):
    files = {
        "cpu.max": "300000 100000",
        "cpu/cpu.cfs_quota_us": "200000",
        "cpu/cpu.cfs_period_us": "100000",
    }
    assert group("4:cpu:/\n0::/\n", files) == 2.0


@pytest.mark.parametrize("membership", ["", "rubbish\n", "::\n", "0::\n", "4:cpu\n", ":::::\n"])
def test_a_strange_membership_is_no_error(group, membership):
    assert group(membership, {}) is None


@pytest.mark.parametrize("path", ["/..", "/../..", "/a/../../.."])
def test_a_path_that_leads_outside_is_no_error(group, path):
    assert group(f"0::{path}\n", {}) is None


@pytest.mark.parametrize("name", [b"/caf\xe9", b"/\xff\xfe", "/caf\u00e9".encode()])
def test_the_name_of_a_group_may_be_any_bytes(tmp_path, name):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    folder = os.fsencode(root) + name
    try:
        os.makedirs(folder)
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    with open(folder + b"/cpu.max", "wb") as file:
        file.write(b"200000 100000\n")
    own.write_bytes(b"0::" + name + b"\n")
    assert _sizing.cgroup_quota(str(root), str(own)) == 2.0


def test_a_pool_is_made_without_a_warning_about_encodings():
    """`-X warn_default_encoding`, with warnings as errors."""
    check_python(
        "from affinitypool import ThreadPoolExecutor; ThreadPoolExecutor().submit(int).result()",
        options=("-X", "warn_default_encoding", "-W", "error::EncodingWarning"),
    )


def test_without_control_groups(tmp_path):
    missing = str(tmp_path / "missing")
    assert _sizing.cgroup_quota(str(tmp_path), missing) is None
    assert _sizing.cgroup_quota(missing, missing) is None


def test_the_real_one_is_a_number_or_none():
    quota = _sizing.cgroup_quota()
    assert quota is None or quota > 0
    assert 1 <= _sizing.usable_cpus() <= (os.cpu_count() or 1)
