"""Code kept on disk: it is found unchanged, and code that cannot be kept is no error."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

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


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def damaged_files_that_are_found(path: Path) -> list[str]:
    """The single flipped bits, and the lengths of a torn file, with which its code is found."""
    whole = path.read_bytes()
    damage = {f"bit {bit}": flipped(whole, bit) for bit in range(8 * len(whole))}
    damage |= {f"{size} bytes": whole[:size] for size in range(len(whole))}
    damage |= {
        f"{size} bytes, then zeros": whole[:size] + bytes(len(whole) - size) for size in (0, 9)
    }
    found = []
    for name, data in damage.items():
        path.write_bytes(data)
        if code.find("name") is not None:
            found.append(name)
    return found


def test_no_flipped_bit_and_no_torn_file_is_taken_for_code(folder):
    assert not damaged_files_that_are_found(folder / "name")


def test_a_digest_without_the_code_in_it_is_noticed(folder, monkeypatch):
    monkeypatch.setattr(kept, "_digest", lambda key, code: bytes(32))
    code.keep("name", b"code")
    assert damaged_files_that_are_found(folder / "name")


def killed_at(line: int, keep: Callable[[], object]) -> bool:
    """Whether a child process is killed at the n-th line of `kept.py` in `keep`, and not over."""
    child = os.fork()
    if child == 0:
        left = [line]

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code.co_filename != kept.__file__:
                return None
            left[0] -= event == "line"
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        keep()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def contents_after_kills(keep: Callable[[], object]) -> set[bytes | None]:
    """What is found after a writer was killed, for each line at which it may be."""
    found, line = set(), 0
    while killed_at(line, keep):
        found.add(code.find("name"))
        line += 1
    assert line > 10
    return found


def test_a_writer_that_is_killed_leaves_the_old_code_or_the_new(folder):
    new = b"new" * 100_000
    assert contents_after_kills(lambda: code.keep("name", new)) <= {b"code", new}
    code.keep("name", b"code")
    assert code.find("name") == b"code"


def test_a_writer_that_writes_in_place_is_noticed(folder, monkeypatch):
    def replace(source: str, target: Path) -> None:
        data = Path(source).read_bytes()
        Path(target).write_bytes(data[:50])
        kept._age(Path(source))
        Path(target).write_bytes(data)
        os.unlink(source)

    monkeypatch.setattr(kept.os, "replace", replace)
    assert None in contents_after_kills(lambda: code.keep("name", b"new" * 100))


def test_readers_beside_writers_and_deleters_find_whole_code_or_none(folder, monkeypatch):
    """Several processes keep, find and make room at once; each name has code of its own."""
    monkeypatch.setattr(kept, "_MOST", 8)

    def code_of(name: str, turn: int) -> bytes:
        return f"{name} {turn} ".encode() * (1 + turn % 7 * 500)

    children = []
    for worker in range(4):
        child = os.fork()
        if child == 0:
            draw, wrong = random.Random(worker), 0
            for turn in range(150):
                name = f"name {draw.randrange(12)}"
                code.keep(name, code_of(name, turn))
                found = code.find(f"name {draw.randrange(12)}")
                if found is not None:
                    first = found.split(b" ")[:3]
                    wrong += found != code_of(b" ".join(first[:2]).decode(), int(first[2]))
            os._exit(wrong > 0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


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
