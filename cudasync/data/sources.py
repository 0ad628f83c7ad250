"""Floor 4. Sources of pipelines: datasets, iterables, files, and several pipelines as one."""

from __future__ import annotations

import glob
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.data import views
from cudasync.data.argument_checks import number
from cudasync.data.combination import Chained, Interleaved, Parallel
from cudasync.data.cursors import Iterated, Numbered, Once
from cudasync.data.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.data.cursors import Cursor
    from cudasync.data.pipeline import Key
    from cudasync.data.run_state import Opening


def source(data: Any) -> Pipeline:
    """A pipeline of the samples of `data`: the entry to input pipelines.

    `data` has `__len__` and `__getitem__` (a list, a NumPy or memory-mapped array, a PyTorch
    `Dataset`, a Hugging Face dataset), or is an iterable. It may also be a function that gives a
    new iterable for each epoch, such as a generator function. With `prefetch(n)` behind it, a
    generator runs on a thread of its own.

    An iterator gives its items once, so it is one epoch, and all later ones are empty. A second
    iteration while items are left is a `DataError`, as the first may have read some of them ahead.

    What an iterable gives may be used again by it: arrays, lists and bytearrays are copied, alone
    and in dicts, tuples and lists. Other objects must be new for each item.
    """
    if isinstance(data, Pipeline):
        return data
    made = ("source", data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, dict):
        return Pipeline(
            lambda key, opening: _numbered(data, opening), lambda key: data, made=(made,)
        )
    if not (hasattr(data, "__iter__") or callable(data)):
        raise TypeError(
            f"{type(data).__name__} is not a source: give a sequence (__len__ and __getitem__), "
            f"an iterable, or a function that returns one"
        )
    items = Once(data) if hasattr(data, "__next__") else data
    return Pipeline(lambda key, opening: Iterated(items, opening.meter("source")), made=(made,))


def files(pattern: str | os.PathLike[str]) -> Pipeline:
    """The paths that match a pattern (`**` for any folders), sorted. ValueError if none does."""
    found = sorted(glob.glob(os.fspath(pattern), recursive=True))
    if not found:
        raise ValueError(f"no file matches {os.fspath(pattern)!r}")
    return source(found)


def concat(*pipelines: Any) -> Pipeline:
    """The items of one pipeline after those of the other."""
    parts = _sources(pipelines)
    inner = [each._view for each in parts]

    def opened(key: Key, opening: Opening) -> Cursor:
        if (joined := _views(inner, key)) is not None:
            return _numbered(views.Joined(joined), opening)
        return Chained([partial(each._open, key, opening.part()) for each in parts])

    view = (lambda key: views.Joined(_views(inner, key) or ())) if all(inner) else None
    return _of_all("concat", parts, opened, view)


def zip(*pipelines: Any) -> Pipeline:  # noqa: A001 - the verb of tf.data, as an attribute of `data`
    """Tuples with one item of each pipeline, until one pipeline is over."""
    parts = _sources(pipelines)
    inner = [each._view for each in parts]

    def opened(key: Key, opening: Opening) -> Cursor:
        if (joined := _views(inner, key)) is not None:
            return _numbered(views.Zipped(joined), opening)
        return Parallel([each._open(key, opening) for each in parts])

    view = (lambda key: views.Zipped(_views(inner, key) or ())) if all(inner) else None
    return _of_all("zip", parts, opened, view)


def interleave(*pipelines: Any, block: int = 1) -> Pipeline:
    """`block` items of each pipeline in turn, until all are over."""
    block = number(block, "block", 1)
    parts = _sources(pipelines)

    def opened(key: Key, opening: Opening) -> Cursor:
        return Interleaved([each._open(key, opening) for each in parts], block)

    return _of_all(f"interleave by {block}", parts, opened)


def _sources(pipelines: tuple[Any, ...]) -> list[Pipeline]:
    if not pipelines:
        raise ValueError("no pipeline is given: give at least one")
    return [source(each) for each in pipelines]


def _of_all(verb: str, parts: list[Pipeline], opened: Any, view: Any = None) -> Pipeline:
    return Pipeline(
        opened,
        view,
        is_ordered=all(each._is_ordered for each in parts),
        made=((verb, *(each._made for each in parts)),),
    )


def _numbered(view: views.View, opening: Opening) -> Cursor:
    return Numbered(view, opening.meter("source"), "raise")


def _views(inner: Iterable[Any], key: Key) -> list[views.View] | None:
    found = [each(key) if each is not None else None for each in inner]
    return None if None in found else found  # type: ignore[return-value]
