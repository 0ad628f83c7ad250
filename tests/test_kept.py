"""Code kept on disk: it is found unchanged, and code that cannot be kept is no error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.lowering import kept_code
from helpers.repository.checkout import ROOT

from cudasync import kept

code = kept.KeptCode("softgpu")


def test_nothing_is_kept_where_that_is_not_wanted(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(kept.VARIABLE, "0")
    code.keep("name", b"code")
    assert code.find("name") is None
    assert list(tmp_path.iterdir()) == []


def test_code_is_kept_in_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv(kept.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert code.folder() == tmp_path / ".cache" / "cudasync" / "softgpu"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    code.keep("name", b"code")
    assert code.find("name") == b"code"
    where = tmp_path / "caches" / "cudasync" / "softgpu"
    assert [each.name for each in where.iterdir()] == ["name"]
    assert where.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one file of code in it."""
    where = tmp_path / "kept"
    monkeypatch.setenv(kept.VARIABLE, str(where))
    code.keep("name", b"code")
    assert code.find("name") == b"code"
    return where


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
)
def test_a_damaged_file_is_not_found_and_is_replaced(folder, damaged):
    path = folder / "name"
    path.write_bytes(damaged(path.read_bytes()))
    assert code.find("name") is None
    code.keep("name", b"code")
    assert code.find("name") == b"code"


def test_code_under_another_name_is_not_found(folder):
    (folder / "other").write_bytes((folder / "name").read_bytes())
    assert code.find("other") is None


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(folder, mode):
    folder.chmod(mode)
    assert code.find("name") is None
    code.keep("another", b"code")
    assert not (folder / "another").exists()
    folder.chmod(0o755)
    assert code.find("name") == b"code"


def test_a_link_in_the_place_of_a_file_is_not_followed(folder):
    (folder / "name").rename(folder / "real")
    (folder / "name").symlink_to(folder / "real")
    assert code.find("name") is None


def test_a_place_where_nothing_can_be_kept_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    for name in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv(kept.VARIABLE, str(name))
        code.keep("name", b"code")
        assert code.find("name") is None


def test_when_there_are_many_the_older_half_goes(folder, monkeypatch):
    monkeypatch.setattr(kept, "_MOST", 6)
    for number in range(5):
        code.keep(f"{number}", b"code")
        os.utime(folder / f"{number}", (number + 1, number + 1))
    os.utime(folder / "name", (0, 0))
    code.keep("newest", b"code")
    assert {each.name for each in folder.iterdir()} == {"2", "3", "4", "newest"}


def test_names_differ_where_any_part_does_also_by_where_it_ends():
    names = [("a", "b"), ("ab", ""), ("", "ab"), ("a\nb",), ("a", "b", "")]
    assert len({kept.key_of(*parts) for parts in names}) == len(names)


def test_the_tests_keep_nothing_in_the_folder_of_whoever_runs_them(monkeypatch):
    now = code.folder()
    monkeypatch.delenv(kept.VARIABLE)
    assert now is not None
    assert now != code.folder()
    assert "CUDASYNC_SOFTGPU_CACHE" in (ROOT / "cudasync/softgpu/jit/DESIGN.md").read_text()


PROBE = """
import os
from cudasync import kept

code = kept.KeptCode("softgpu")

def test_probe():
    print("found", code.find("name"), "in", code.folder())
    code.keep("name", b"code")
"""


def runs_of_a_probe(folder, *options, **set_too):
    """What two runs of a test find, with this checkout's conftest and these options."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_probe.py").write_text(PROBE)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    left = ("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", kept.VARIABLE, kept_code.SHARED)
    environment = {name: value for name, value in os.environ.items() if name not in left} | set_too
    command = [sys.executable, "-m", "pytest", "-s", "-q", "--rootdir", folder, *options, folder]
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        yield re.search("found (.*) in (.*)", done.stdout).groups()


def test_the_next_run_finds_the_code_that_a_run_keeps(tmp_path):
    assert kept_code.VARIABLE == kept.VARIABLE
    (first, _), (second, where) = runs_of_a_probe(tmp_path)
    assert (first, second) == ("None", repr(b"code"))
    assert Path(where).is_relative_to(tmp_path / ".pytest_cache")
    assert Path(where).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("option", ["-pno:cacheprovider", "--cache-clear"])
def test_a_run_without_the_cache_finds_nothing(tmp_path, option):
    assert [found for found, _ in runs_of_a_probe(tmp_path, option)] == ["None", "None"]


def test_the_runs_of_several_checkouts_share_a_folder_that_is_named(tmp_path):
    shared = {kept_code.SHARED: str(tmp_path / "shared" / "by all")}
    found = list(runs_of_a_probe(tmp_path, "-pno:cacheprovider", **shared))
    assert [code for code, _ in found] == ["None", repr(b"code")]
    assert {Path(where) for _, where in found} == {tmp_path / "shared" / "by all" / "code"}
