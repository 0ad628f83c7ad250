"""A failure reaches the loop with its stage and sample; the end of a loop leaves nothing behind."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from cudasync import data


def broken(n):
    if n == 37:
        raise KeyError("no such sample")
    return n


class Corrupt:
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return broken(index)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(
    ("pipeline", "stage"),
    [
        (data.source(range(50)).map(broken, workers=2), "map"),
        (data.source(Corrupt()), "source"),
        (data.source(Corrupt()).map(abs, workers=2), "source"),
        (data.source(lambda: (broken(n) for n in range(50))), "source"),
        (data.source(range(50)).filter(lambda n: broken(n) >= 0), "filter"),
    ],
)
def test_an_exception_comes_behind_the_samples_before_it(pipeline, stage, depth):
    given = []
    with pytest.raises(data.DataError) as caught:  # noqa: PT012
        for each in pipeline.prefetch(depth) if depth else pipeline:
            given.append(each)  # noqa: PERF402
    assert given == list(range(37))
    assert (caught.value.stage, caught.value.index) == (stage, 37)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "broken" in "".join(traceback.format_tb(cause.__traceback__))


def test_skipped_samples_are_counted():
    pipeline = data.source(Corrupt()).map(abs, workers=2, on_error="skip")
    assert list(pipeline) == [n for n in range(50) if n != 37]
    assert pipeline.stats().skipped == 1
    with pytest.raises(ValueError, match="on_error"):
        data.source([1]).map(abs, on_error="ignore")


PROGRAM = """
import itertools, json, os, signal, sys
from cudasync import data
def made():
    return data.source(range(40)).shuffle(7).map(lambda n: -n, workers=2).batch(3).prefetch(2)
pipeline = made()
if len(sys.argv) > 1:
    pipeline.restore(json.loads(sys.argv[1]))
    print(json.dumps([each.tolist() for each in pipeline]))
else:
    given = []
    for each in pipeline:
        given.append(each.tolist())
        if len(given) == 5:
            print(json.dumps([given, pipeline.state()]), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_rest_is_the_same_after_a_kill():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    killed = run()
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    given, state = json.loads(killed.stdout)
    rest = json.loads(run(json.dumps(state)).stdout)
    pipeline = data.source(range(40)).shuffle(7).map(lambda n: -n).batch(3)
    assert given + rest == [each.tolist() for each in pipeline]


FILES = [f"img{n:02}.raw" for n in range(20)]


def load(path):
    if "img07" in str(path):
        raise ValueError("truncated header")
    return np.full(3, len(str(path)))


def loads_pair(pair):
    return load(pair[0])


class Labelled(Corrupt):
    """A dataset whose samples are fetched by themselves."""

    def __getitem__(self, index):
        if index == 7:
            raise OSError("no such file")
        return index


SEVEN = 7, "'img07.raw'"
NAMED = {
    "in order": (lambda s: s.map(load), *SEVEN),
    "shuffled": (lambda s: s.shuffle(3).map(load, workers=2), *SEVEN),
    "in processes": (lambda s: s.shuffle(3).map(load, processes=True), *SEVEN),
    "sharded": (lambda s: s.shuffle(3).shuffle(4).skip(1).shard(0, 1).map(load), *SEVEN),
    "second map": (lambda s: s.shuffle(1).map(str).prefetch(2).map(load), *SEVEN),
    "filter": (lambda s: s.shuffle(3).filter(lambda path: len(load(path)) > 0), *SEVEN),
    "map of a slice": (lambda s: s.map(str).skip(2).map(load), *SEVEN),
    "repeated": (lambda s: s.shuffle(2).repeat(3).map(load).batch(2), None, "'img07.raw'"),
    "behind a filter": (lambda s: s.filter(len).shuffle(1, buffer=5).map(load), None, SEVEN[1]),
    "joined": (lambda s: data.concat(s.take(3), s.skip(3)).shuffle(1).map(load), (1, 7), SEVEN[1]),
    "zipped": (
        lambda s: data.zip(s, range(20)).shuffle(1).map(loads_pair), (7, 7), "'img07.raw'"
    ),
    "zipped maps": (
        lambda s: data.zip(s.map(str), range(20)).map(loads_pair), (7, 7), "'img07.raw'"
    ),
    "fetched": (lambda s: data.source(Labelled()).shuffle(1).map(abs), 7, None),
    "a generator": (lambda s: data.source(lambda: iter(FILES)).map(load), *SEVEN),
    "a path": (lambda s: s.map(Path).map(load), *SEVEN),
    "buckets": (lambda s: s.shuffle(1).bucket_by_length(lambda f: len(load(f)), [2], 2), *SEVEN),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_an_error_names_the_item_of_the_source(case):
    make, index, item = NAMED[case]
    with pytest.raises(data.DataError) as caught:
        list(make(data.source(FILES)))
    error = caught.value
    assert (error.item_index, error.item) == (index, item)
    said = [] if index is None else [f"item {index} of the source"]
    said += [] if item is None else [item]
    assert f", sample {error.index} ({', '.join(said)}): " in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.item_index, again.item) == (str(error), index, item)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"path": "a.png", "label": 3}, "{'path': 'a.png', 'label': 3}"),
        (np.zeros((2, 3), np.float32), "float32 array of shape (2, 3)"),
        (("a" * 1000, 2), f"('{'a' * 98}...{'a' * 95}', 2)"),
        ([1] * 100, "(1, 1, 1, 1, 1, 1)"),
        (Corrupt(), f"a {Corrupt.__module__}.Corrupt"),
    ],
)
def test_an_item_is_named_in_short(item, says):
    def fn(n):
        raise KeyError(1)

    with pytest.raises(data.DataError) as caught:
        list(data.source([item]).map(fn))
    assert caught.value.item == says
