"""Floor 4, traced functions. Arguments and results as trees: tuples, lists and dicts of leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves, each with its path from the top, in the notation of Python."""
    if type(tree) in (tuple, list):
        for at, each in enumerate(tree):
            yield from leaves(each, f"{path}[{at}]")
    elif type(tree) is dict:
        for key, each in tree.items():
            yield from leaves(each, f"{path}[{key!r}]" if path else str(key))
    else:
        yield path, tree


def shape_of(tree: Any) -> Any:
    """The tree without its leaves: equal for trees of one structure."""
    if type(tree) in (tuple, list):
        return type(tree), tuple(map(shape_of, tree))
    if type(tree) is dict:
        return dict, tuple((key, shape_of(each)) for key, each in tree.items())
    return None


def mapped(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with `fn(leaf)` for each leaf."""
    if type(tree) in (tuple, list):
        return type(tree)([mapped(fn, each) for each in tree])
    if type(tree) is dict:
        return {key: mapped(fn, each) for key, each in tree.items()}
    return fn(tree)
