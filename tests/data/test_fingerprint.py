"""A folder of a cache serves only a pipeline whose code, values and data are the same."""

from __future__ import annotations

import copy
import enum
import functools
import os
import re
import subprocess
import sys
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from helpers.repository.checkout import ROOT
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cudasync import data
from cudasync.data.caching import fingerprint


class Scale:
    def __init__(self, by):
        self.by = by

    def apply(self, n):
        return n * self.by


class Called(Scale):
    def __call__(self, n):
        return n * self.by


class Inherits(Called):
    pass


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by

    def __call__(self, n):
        return n * self.by


@dataclass(frozen=True)
class Config:
    by: int
    more: dict = field(default_factory=dict)


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


def times(n, *, config):
    return n * config["by"]


def default(by):
    def fn(n, by=by):
        return n

    return fn


def keyword(by):
    def fn(n, *, by=by):
        return n

    return fn


def attribute(by):
    def fn(n):
        return n * fn.by

    fn.by = by
    return fn


def wrapped(by):
    def fn(n):
        return n * by

    return functools.wraps(fn)(functools.lru_cache(fn))


GLOBAL, TABLE = 2, {0: 1}
SETTINGS = types.ModuleType("settings_of_the_test")
SETTINGS.BY = 2


def helper(n):
    return n * GLOBAL


def calls_a_helper(n):
    return helper(n)


def reads_a_table(n):
    return n * TABLE[0]


def reads_a_module(n):
    return n * SETTINGS.BY


def of_class(by):
    """A class made anew, as when its file was changed."""
    return type("Made", (Scale,), {"__call__": lambda self, n: n * by, "__module__": __name__})(1)


# From a value, something that computes with it.
HOLDERS = {
    "closure": lambda by: lambda n: n * by,
    "closure of a list": lambda by: (lambda each: lambda n: n * each[0])([by]),
    "closure of a dict": lambda by: (lambda each: lambda n: n * each["by"])({"by": by}),
    "closure of a set": lambda by: (lambda each: lambda n: n in each)({"a", "b", str(by)}),
    "closure of a dataclass": lambda by: (lambda each: lambda n: n * each.by)(Config(by)),
    "closure of a function": lambda by: (lambda each: lambda n: each(n))(lambda n: n * by),
    "default": default,
    "keyword default": keyword,
    "attribute": attribute,
    "partial": lambda by: functools.partial(times, config={"by": by}),
    "method": lambda by: Scale(by).apply,
    "callable": Called,
    "callable that inherits": Inherits,
    "callable with slots": Slotted,
    "callable of a changed class": of_class,
    "builtin method": lambda by: {1: by}.get,
    "method wrapper": lambda by: [by].__getitem__,
    "wrapped": wrapped,
    "cached": lambda by: functools.lru_cache(lambda n: n * by),
    "vectorized": lambda by: np.vectorize(lambda n: n * by),
    "path": lambda by: functools.partial(max, Path(f"/{by}")),
    "pattern": lambda by: re.compile(str(by)).match,
    "generator of random numbers": lambda by: np.random.default_rng(by).normal,
}
VALUES = [
    (2, 3), (2, 2.0), (1, True), (np.int64(2), np.int64(3)), (np.float32(2), np.float64(2)),
    (np.arange(9), np.arange(9) * 2), (np.arange(9), np.arange(9.0)),
    (np.array([1, None]), np.array([2, None])), (Kind.ONE, Kind.TWO), (Scale(1), Scale(2)),
    (b"a", b"b"), ("2", 2), (Config(1, {"a": (1,)}), Config(1, {"a": [1]})), (np.add, np.subtract),
    (len, max), (Scale, Called),
]  # fmt: skip


def line(fn, **options):
    return fingerprint.lines((("map", fn),), **options)


@pytest.mark.parametrize("holder", HOLDERS)
def test_whatever_a_function_holds_counts(holder):
    make = HOLDERS[holder]
    assert line(make(2)) == line(make(2))
    assert line(make(2)) != line(make(3))


@pytest.mark.parametrize(("one", "other"), VALUES)
def test_values_of_any_kind_count(one, other):
    made = [line(functools.partial(times, config=each)) for each in (one, other)]
    assert made[0] != made[1]
    assert line(functools.partial(times, config=copy.deepcopy(one))) == made[0]


@pytest.mark.parametrize(
    ("fn", "change"),
    [
        (calls_a_helper, lambda patch: patch.setitem(globals(), "GLOBAL", 3)),
        (calls_a_helper, lambda patch: patch.setitem(globals(), "helper", lambda n: n + 1)),
        (reads_a_table, lambda patch: patch.setitem(TABLE, 0, 2)),
        (reads_a_module, lambda patch: patch.setattr(SETTINGS, "BY", 3)),
        (Called(1), lambda patch: patch.setattr(Called, "__call__", lambda self, n: n)),
    ],
)
def test_globals_that_a_function_reads_change_its_fingerprint(fn, change, monkeypatch):
    before = line(fn)
    change(monkeypatch)
    assert line(fn) != before
    monkeypatch.undo()
    assert line(fn) == before


trees = st.recursive(
    st.one_of(
        st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.binary(max_size=3),
        st.none(), st.booleans(), st.builds(lambda n: np.arange(n), st.integers(0, 3)),
    ),
    lambda each: st.one_of(
        st.lists(each, max_size=3), st.lists(each, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), each, max_size=3), st.builds(Scale, each),
        st.builds(lambda inner: (lambda n: (n, inner)), each),
    ),
    max_leaves=6,
)  # fmt: skip


def said(value):
    """The value as text, which is equal for equal values of the same types."""
    if isinstance(value, np.ndarray):
        return f"array {value.tolist()}"
    if isinstance(value, Scale):
        return f"Scale {said(value.by)}"
    if isinstance(value, types.FunctionType):
        return f"function {said(value(0)[1])}"
    if isinstance(value, dict):
        return f"dict {[(name, said(each)) for name, each in value.items()]}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} {[said(each) for each in value]}"
    return repr(value)


def check(one, other):
    assert line(lambda n: one) == line(lambda n: one)
    are_equal = line(functools.partial(times, config=one)) == line(
        functools.partial(times, config=other)
    )
    assert are_equal == (said(one) == said(other))


@settings(max_examples=2 * settings.default.max_examples)
@given(one=trees, other=trees)
def test_two_values_are_told_apart_if_and_only_if_they_differ(one, other):
    check(one, other)
    check(one, one)


def test_a_fingerprint_of_an_object_without_its_state_is_found(monkeypatch):
    """The planted bug: attributes that are no plain data are left out."""
    monkeypatch.setattr(
        fingerprint._Digests, "_of_object", lambda self, value, where: self.of(type(value), where)
    )

    @settings(max_examples=300, database=None, phases=[Phase.generate])
    @given(one=trees)
    def search(one):
        check(Scale(one), Scale([one]))

    with pytest.raises(AssertionError):
        search()


PROGRAM = """
import sys
from data import test_fingerprint as t
print(*[t.line(make(2)) for name, make in t.HOLDERS.items()], sep="\\n")
print(*[t.line(t.functools.partial(t.times, config=each[0])) for each in t.VALUES], sep="\\n")
print(*map(t.line, (t.calls_a_helper, t.reads_a_table, t.reads_a_module)), sep="\\n")
"""


def test_it_is_the_same_in_all_processes():
    def run(seed):
        path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, timeout=300, check=True,
        ).stdout.splitlines()  # fmt: skip

    one, other = run("1"), run("2")
    assert one == other
    assert len(one) == len(HOLDERS) + len(VALUES) + 3


def test_what_has_no_fingerprint_is_refused_or_vouched_for(tmp_path):
    lock = threading.Lock()

    def locked(n):
        with lock:
            return n

    class Reads:
        def __init__(self):
            self.file = open(__file__)  # noqa: SIM115

        def __call__(self, n):
            return n

    reads = Reads()
    for pipeline, says in (
        (data.source([1, 2]).map(locked), r"stage 1 .*locked.*'lock'.*_thread\.lock"),
        (data.source([1, 2]).map(reads), r"\.file: a _io\.TextIOWrapper"),
        (data.source(n for n in [1, 2]), r"stage 0 .*generator"),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(ValueError, match=f"{says}.*key="):
            pipeline.cache(folder)
        assert list(pipeline.cache(folder, key="1")) == [1, 2]
        assert list(pipeline.cache(folder, key="1")) == [1, 2]
        with pytest.raises(ValueError, match="another pipeline"):
            pipeline.cache(folder, key="2")
    reads.file.close()


@pytest.mark.parametrize("most", [5, fingerprint.MOST_ITEMS])
def test_data_count_whole_unless_they_are_large(most, monkeypatch):
    monkeypatch.setattr(fingerprint, "MOST_ITEMS", most)
    monkeypatch.setattr(fingerprint, "MOST_BYTES", 8 * most)

    def lines(of):
        return fingerprint.lines(data.source(of)._made)

    numbers = list(range(3000))
    changed = [*numbers[:1], -1, *numbers[2:]]
    assert (lines(numbers) == lines(changed)) == (most == 5)
    assert (lines(np.array(numbers)) == lines(np.array(changed))) == (most == 5)
    assert lines(numbers) != lines([*numbers[:-1], 0])
    assert lines(np.array(numbers)) != lines(np.array([*numbers[:-1], 0]))
