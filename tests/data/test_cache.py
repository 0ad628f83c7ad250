"""`cache`: one pass computes, later passes read, and they differ only in time."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import zlib
from functools import partial

import numpy as np
import pytest
from helpers.concurrency.thread_crew import together
from helpers.data.sample_functions import fails_at
from helpers.repository.checkout import ROOT

from cudasync import data
from cudasync.data.caching import in_folder


class Counted:
    """A map that counts its calls."""

    def __init__(self, by=1):
        self.calls, self.by = [], by

    def __call__(self, n):
        self.calls.append(n)
        return {"x": np.full(600, n * self.by), "n": n}


@pytest.fixture(params=["memory", "folder"])
def where(request, tmp_path):
    return "memory" if request.param == "memory" else tmp_path / "cache"


def numbers(pipeline):
    found = [(each["n"], int(each["x"][-1])) for each in pipeline]
    assert all(n == x for n, x in found)
    return [n for n, _ in found]


@pytest.mark.parametrize("depth", [0, 2])
def test_what_is_kept_is_not_made_again(where, depth):
    fn = Counted()
    pipeline = data.source(range(300)).map(fn, workers=2).cache(where)
    if depth:
        pipeline = pipeline.prefetch(depth)
    assert [numbers(pipeline) for _ in range(3)] == [list(range(300))] * 3
    assert sorted(fn.calls) == list(range(300))
    assert pipeline.stats().stages[-1 if not depth else -2].items == 300


def test_arrays_are_read_only_in_all_passes_and_lists_are_new_each_time(where):
    pipeline = data.source([([n], np.arange(500)) for n in range(3)]).cache(where)
    for _ in range(2):
        for at, (plain, array) in enumerate(pipeline):
            assert plain == [at]
            plain.append(1)
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_what_stands_before_it_is_of_the_first_epoch_and_what_comes_behind_it_is_not(where):
    pipeline = data.source(range(50)).shuffle(1).cache(where)
    order = list(data.source(range(50)).shuffle(1))
    assert [list(pipeline), list(pipeline)] == [order, order]
    assert list(itertools.islice(pipeline.repeat(), 120)) == [*order, *order, *order[:20]]
    shuffled = pipeline.shuffle(2, buffer=50)
    assert list(shuffled) != list(shuffled)


@pytest.mark.parametrize("left_at", [0, 1, 7, 49, 50])
def test_a_pass_that_ends_early_is_gone_on_with(where, left_at):
    fn = Counted()
    pipeline = data.source(range(50)).map(fn).cache(where)
    for each in pipeline:
        if each["n"] == left_at:
            break
    pipeline.close()
    kept = len(set(fn.calls)) if left_at == 49 else 0
    assert [numbers(pipeline), numbers(pipeline)] == [list(range(50))] * 2
    # Maps run ahead of the kept items, so some items were made twice. No kept item was.
    assert set(fn.calls) == set(range(50))
    assert all(fn.calls.count(n) == 1 for n in range(min(left_at, 50)))
    assert not kept or len(fn.calls) == 50


def test_a_failure_is_not_kept(where):
    broken = {"is": True}

    def fn(n):
        if n == 5 and broken["is"]:
            raise ValueError("not yet")
        return {"n": n, "x": np.full(600, n)}

    pipeline = data.source(range(9)).map(fn).cache(where)
    with pytest.raises(data.DataError, match="map, sample 5"):
        list(pipeline)
    broken["is"] = False
    assert numbers(pipeline) == list(range(9))


@pytest.mark.parametrize("cut", [0, 1, 10, 30])
@pytest.mark.parametrize("epoch", [0, 2])
def test_the_rest_is_the_same_after_restore_whatever_is_kept(where, cut, epoch, tmp_path):
    def made(where):
        return data.source(range(30)).shuffle(3).map(lambda n: n + 1, workers=2).cache(where)

    order = list(made(where))
    whole = made(where)
    for _ in range(epoch):
        assert list(whole) == order
    begun = list(itertools.islice(whole, cut))
    state = whole.state()
    again = made("memory" if where == "memory" else tmp_path / "elsewhere")  # Nothing is kept yet.
    again.restore(state)
    assert begun + list(again) == order
    assert list(again) == order
    whole.restore(state)  # All items are kept.
    assert begun + list(whole) == order


def test_behind_an_unordered_map_a_broken_pass_begins_anew(where):
    pipeline = data.source(range(200)).map(lambda n: n, workers=2, ordered=False).cache(where)
    list(itertools.islice(pipeline, 100))
    assert sorted(pipeline) == list(range(200))
    first = list(pipeline)
    assert first == list(pipeline)


def test_two_passes_at_once_keep_nothing_twice(where):
    pipeline = data.source(range(60)).map(Counted()).cache(where)
    one, other = iter(pipeline.take(60)), iter(pipeline.skip(0))
    taken = [[], []]
    for at in range(120):
        each = (one, other)[(at // 7) % 2] if at < 70 else (one, other)[at % 2]
        taken[each is other].append(next(each, {"n": None})["n"])
    rest = [taken[0] + [e["n"] for e in one], taken[1] + [e["n"] for e in other]]
    assert [[n for n in each if n is not None] for each in rest] == [list(range(60))] * 2
    assert numbers(pipeline) == list(range(60))


def decode(n):
    return {"n": n, "x": np.full(600, n)}


def other(n):
    return {"n": n, "x": np.full(600, n + 0)}


def made(folder, fn=decode, of=range(20), **options):
    return data.source(of).map(fn).cache(folder, **options)


def test_a_folder_serves_the_next_process(tmp_path):
    assert numbers(made(tmp_path / "c")) == list(range(20))
    told = json.loads((tmp_path / "c" / "cache.json").read_text())
    assert told["count"] == 20
    again = made(tmp_path / "c")
    assert numbers(again) == list(range(20))
    assert [each.stage for each in again.stats().stages] == ["cache"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fn": other}, "stage 1 is map .*decode.*this pipeline's is map .*other"),
        ({"of": range(21)}, "stage 0 is source"),
        ({"of": [*range(19), 5]}, "stage 0 is source"),
        ({"fn": partial(fails_at, 3)}, "partial"),
        ({"key": "2"}, "stage 2 is cache"),
    ],
)
def test_a_folder_of_another_pipeline_is_refused(tmp_path, change, says):
    list(made(tmp_path / "c"))
    with pytest.raises(ValueError, match=says):
        made(tmp_path / "c", **change)
    made(tmp_path / "c")
    with pytest.raises(ValueError, match=r"stage 2 is cache.*this pipeline's is batch"):
        data.source(range(20)).map(decode).batch(2).cache(tmp_path / "c")


def test_what_a_function_encloses_and_its_constants_count(tmp_path):
    def by(factor):
        return lambda n: n * factor

    list(data.source(range(3)).map(by(2)).cache(tmp_path / "a"))
    data.source(range(3)).map(by(2)).cache(tmp_path / "a")
    with pytest.raises(ValueError, match="another pipeline"):
        data.source(range(3)).map(by(3)).cache(tmp_path / "a")
    list(data.source(range(3)).map(lambda n: n + 1).cache(tmp_path / "b"))
    with pytest.raises(ValueError, match="another pipeline"):
        data.source(range(3)).map(lambda n: n + 2).cache(tmp_path / "b")


def test_a_file_that_was_changed_is_seen(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    pattern = tmp_path / "[ab]"
    list(data.files(pattern).cache(tmp_path / "cache"))
    data.files(pattern).cache(tmp_path / "cache")
    (tmp_path / "a").write_text("another")
    with pytest.raises(ValueError, match="another pipeline"):
        data.files(pattern).cache(tmp_path / "cache")


def test_a_folder_of_something_else_is_not_written(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear reader")
    with pytest.raises(ValueError, match="not a cache"):
        made(tmp_path)


def test_one_process_at_a_time_writes_a_folder(tmp_path):
    one, other = made(tmp_path / "c"), made(tmp_path / "c")
    begun = iter(one)
    next(begun)
    with pytest.raises(data.DataError, match="by another process"):
        list(other)
    begun.close()
    assert numbers(other) == list(range(20))


@pytest.mark.parametrize("name", ["items", "index"])
def test_what_is_cut_off_is_made_again(tmp_path, name):
    list(made(tmp_path / "c"))
    path = tmp_path / "c" / name
    os.truncate(path, path.stat().st_size * 2 // 3 + 1)
    assert numbers(made(tmp_path / "c")) == list(range(20))
    assert numbers(made(tmp_path / "c")) == list(range(20))


def test_damage_is_told(tmp_path):
    list(made(tmp_path / "c"))
    path = tmp_path / "c" / "items"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(data.DataError, match="damaged"):
        list(made(tmp_path / "c"))


def test_a_full_disk_is_told_and_what_was_kept_is_used(tmp_path, monkeypatch):
    whole, room = os.write, [20_000]

    def write(file, part):
        taken = min(len(part), room[0])
        if not taken:
            raise OSError(28, "No space left on device")
        room[0] -= taken
        return whole(file, part[:taken])

    monkeypatch.setattr(os, "write", write)
    given = []
    with pytest.raises(  # noqa: PT012
        data.DataError, match=r"cache, sample \d+: OSError.*No space left"
    ) as caught:
        for each in made(tmp_path / "c"):
            given.append(each["n"])
    assert given == list(range(caught.value.index))
    room[0] = 1 << 40
    again = made(tmp_path / "c")
    assert numbers(again) == list(range(20))
    assert again.stats().stages[1].items == 20 - caught.value.index


KILLED = """
import os, signal, sys
from helpers.data.sample_functions import square
from cudasync import data
for each in data.source(range(100)).map(square).cache(sys.argv[1]):
    if each == 50 * 50:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_it_had(tmp_path):
    from helpers.data.sample_functions import square

    folder = tmp_path / "c"
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, folder],
        env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    pipeline = data.source(range(100)).map(square).cache(folder)
    assert json.loads((folder / "cache.json").read_text())["count"] is None
    assert list(pipeline) == [n * n for n in range(100)]
    assert pipeline.stats().stages[1].items < 60


def test_what_can_not_be_pickled_is_told():
    with pytest.raises(data.DataError, match=r"cache, sample 1: .*lambda"):
        list(data.source([1, lambda: 2]).cache("memory"))


def test_passes_at_once_over_an_unordered_pipeline_mix_no_orders(where):
    """Each pass has an order of its own; the kept items are those of one pass."""
    orders = iter([range(12), range(11, -1, -1), range(3), range(12)])
    pipeline = data.source(lambda: next(orders)).map(Counted(), ordered=False).cache(where)
    one, other = iter(pipeline), iter(pipeline)
    found = [[next(each)["n"] for _ in range(4)] for each in (one, other)]
    found[1] += numbers(other)
    found[0] += numbers(one)
    assert found == [list(range(12)), list(range(11, -1, -1))]
    assert numbers(pipeline) == found[0]


def flip(whole):
    """Flip bytes in all files of a cache; the answers, each of which is right or an error."""
    expected = numbers(made(whole, of=range(4)))
    told = set()
    rights = {each.name: each.read_bytes() for each in whole.iterdir()}
    assert set(rights) == {"items", "index", "cache.json"}
    for name, right in rights.items():
        path = whole / name
        step = max(1, len(right) // 150)
        for at in {*range(0, len(right), step), len(right) - 1}:
            wrong = bytearray(right)
            wrong[at] ^= 1 << (at % 8)
            path.write_bytes(wrong)
            try:
                assert numbers(made(whole, of=range(4))) == expected
                told.add("right")
            except data.DataError as error:
                told.add(str(error).partition(" is ")[2].partition(" at ")[0])
            except ValueError as error:
                told.add(str(error).partition(str(whole))[2].partition(":")[0])
            for each, content in rights.items():
                (whole / each).write_bytes(content)
    assert numbers(made(whole, of=range(4))) == expected
    return told


def test_a_flipped_byte_is_found_wherever_it_is(tmp_path):
    assert {"right", "damaged"} <= flip(tmp_path / "c")


def test_a_checksum_of_the_head_alone_is_found(tmp_path, monkeypatch):
    whole = zlib.crc32
    monkeypatch.setattr(in_folder.zlib, "crc32", lambda part, start: whole(part[:200], start))
    with pytest.raises(AssertionError):
        flip(tmp_path / "c")


def test_threads_at_once_fill_one_cache(where):
    pipeline = data.source(range(80)).map(Counted(), workers=2).cache(where)
    found = [[] for _ in range(3)]
    together(*(lambda each=each: each.extend(numbers(pipeline)) for each in found))
    assert [*found, numbers(pipeline)] == [list(range(80))] * 4


@pytest.mark.parametrize("kept", ["folder", "items", "index", "cache.json"])
@pytest.mark.parametrize("whose", ["of others", "for others"])
def test_only_the_user_s_own_folder_is_read(tmp_path, kept, whose, monkeypatch):
    folder = tmp_path / "c"
    list(made(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    target = folder if kept == "folder" else folder / kept
    number = target.stat().st_ino
    if whose == "for others":
        target.chmod(0o720)
    else:
        fstat = os.fstat

        def of_another(file):
            found = fstat(file)
            return (
                os.stat_result((*found[:4], found[4] + 1, *found[5:]))
                if (found.st_ino == number)
                else found
            )

        monkeypatch.setattr(os, "fstat", of_another)
    says = "belongs to user" if whose == "of others" else "chmod -R go-w"
    with pytest.raises((PermissionError, data.DataError), match=f"{target} .*{says}"):
        list(made(folder))
    monkeypatch.undo()
    target.chmod(0o700)
    assert numbers(made(folder)) == list(range(20))


def test_a_link_in_the_folder_is_not_followed(tmp_path):
    list(made(tmp_path / "c"))
    (tmp_path / "c" / "items").rename(tmp_path / "elsewhere")
    (tmp_path / "c" / "items").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((OSError, data.DataError), match="items"):
        list(made(tmp_path / "c"))
