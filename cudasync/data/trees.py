"""Floor 4. Trees of values: dicts, tuples and named tuples; all else, lists too, are leaves."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def leaves(tree: Any) -> list[Any]:
    """The leaves of `tree` in order: dicts by insertion, tuples from the left."""
    if isinstance(tree, dict):
        return [leaf for each in tree.values() for leaf in leaves(each)]
    if isinstance(tree, tuple):
        return [leaf for each in tree for leaf in leaves(each)]
    return [tree]


def rebuilt(tree: Any, new: Iterable[Any]) -> Any:
    """A tree of the shape of `tree`, with `new` as its leaves."""
    return _rebuilt(tree, iter(new))


def _rebuilt(tree: Any, new: Iterator[Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _rebuilt(each, new) for key, each in tree.items()}
    if isinstance(tree, tuple):
        parts = [_rebuilt(each, new) for each in tree]
        return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
    return next(new)


def columns(samples: Sequence[Any]) -> list[list[Any]]:
    """For each leaf, its values in all samples. Raises ValueError if the trees differ."""
    rows = [leaves(sample) for sample in samples]
    for at, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        if len(row) != len(rows[0]) or not alike(sample, samples[0]):
            raise ValueError(
                f"sample {at} of the batch has another structure than sample 0: let map() return "
                f"equal dicts or tuples for all"
            )
        if isinstance(sample, dict) and list(sample) != list(samples[0]):
            rows[at] = leaves({key: sample[key] for key in samples[0]})
    return [list(column) for column in zip(*rows, strict=True)]


def alike(one: Any, other: Any) -> bool:
    """True if both trees have the same shape."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(alike(one[key], other[key]) for key in one)
        )
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(alike, one, other))
    return not isinstance(other, dict | tuple)


_FIXED = frozenset({int, float, complex, bool, str, bytes, type(None)})


def copied(tree: Any) -> Any:
    """`tree` with copies of its arrays, lists and bytearrays; other leaves are the same objects."""
    kind = tree.__class__
    if kind in _FIXED:
        return tree
    if isinstance(tree, np.ndarray):
        return tree.copy(order="K")
    if kind is dict:
        return {key: copied(each) for key, each in tree.items()}
    if kind is list:
        return [copied(each) for each in tree]
    if kind is tuple:
        return tuple(map(copied, tree))
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make(map(copied, tree))
    if isinstance(tree, dict):
        new = copy.copy(tree)
        new.update({key: copied(each) for key, each in tree.items()})
        return new
    if kind is bytearray:
        return bytearray(tree)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        return tree.clone()
    return tree


_MOST_SHOWN, _MOST_PARTS = 200, 6


def shown(tree: Any) -> str:
    """A short text for messages. It calls no method of the program's objects but of paths."""
    text = _shown(tree)
    half = _MOST_SHOWN // 2
    return text if len(text) <= _MOST_SHOWN else f"{text[:half]}...{text[-half:]}"


def _shown(tree: Any) -> str:
    kind = tree.__class__
    if kind in _FIXED or isinstance(tree, np.generic):
        return repr(tree)
    if isinstance(tree, os.PathLike):
        return repr(os.fspath(tree))
    if isinstance(tree, np.ndarray):
        return f"{tree.dtype} array of shape {tree.shape}"
    if kind is dict:
        parts = [f"{_shown(key)}: {_shown(each)}" for key, each in [*tree.items()][:_MOST_PARTS]]
        return f"{{{', '.join(parts)}}}"
    if kind is list or isinstance(tree, tuple):
        return f"({', '.join(map(_shown, tree[:_MOST_PARTS]))})"
    return f"a {kind.__module__}.{kind.__qualname__}"


def mapped(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `fn(leaf)` in place of each leaf."""
    return rebuilt(tree, map(fn, leaves(tree)))
