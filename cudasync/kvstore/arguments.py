"""Floor 5. Arguments of key-value stores: keys, and arrays for each key.

A key is an int or a str. A call takes one key, or a list of keys of one kind. One key takes an
array, or a list with an array for each device. A list of keys takes a list of these.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from cudasync.array.array import Array

Key: TypeAlias = int | str


def pairs(key: Any, value: Any, what: str) -> list[tuple[Key, list[Array]]]:
    """Each key with its arrays, in order; TypeError and ValueError for anything else."""
    keys = checked_keys(key)
    if not isinstance(key, list | tuple):
        return [(keys[0], arrays_of(value, what))]
    if not isinstance(value, list | tuple) or len(value) != len(keys):
        count = len(value) if isinstance(value, list | tuple) else "no list"
        raise ValueError(f"{len(keys)} keys take a list with as many {what}s, not {count}")
    return [(k, arrays_of(v, what)) for k, v in zip(keys, value, strict=True)]


def checked_keys(key: Any) -> list[Key]:
    """The keys of a call, each once; TypeError for other types and for both kinds in a call."""
    keys = list(key) if isinstance(key, list | tuple) else [key]
    kinds = {type(each) for each in keys}
    if not keys or not kinds <= {int, str} or len(kinds) > 1:
        named = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise TypeError(f"keys are either all ints or all strs in one call, not {named}")
    if len(set(keys)) < len(keys):
        raise ValueError(f"a key is named twice in {keys}: call once for each occurrence")
    return keys


def one_key(key: Any) -> Key:
    """The one key of a call that takes no list of several."""
    keys = checked_keys(key)
    if len(keys) > 1:
        raise ValueError(f"this call takes one key, not {len(keys)}: call once for each")
    return keys[0]


def arrays_of(value: Any, what: str) -> list[Array]:
    """One array or a list of them, one for each device, as a list."""
    found = list(value) if isinstance(value, list | tuple) else [value]
    if not found:
        raise ValueError(f"a key takes at least one {what}, not an empty list")
    for each in found:
        if not isinstance(each, Array):
            raise TypeError(
                f"a {what} must be an array of cudasync, not {type(each).__name__}: use "
                f"cs.array(x), "
                'or xp.asarray(x, device="cpu")'
            )
    return found


def raise_unless_fit(key: Key, given: list[Array], like: Any, what: str) -> None:
    """Refuse arrays whose shape or dtype differs from the key's."""
    for each in given:
        if each.shape != like.shape:
            raise ValueError(f"key {key!r} has shape {like.shape}, this {what} has {each.shape}")
        if each.dtype != like.dtype:
            raise TypeError(f"key {key!r} is {like.dtype}, this {what} is {each.dtype}")
        if what == "out" and each.is_read_only:
            raise ValueError(f"the out for key {key!r} is read-only")
