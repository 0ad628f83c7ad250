"""A failure reaches the loop with its stage and sample; the end of a loop leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback

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
