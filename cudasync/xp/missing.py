"""Floor 4, xp. Names of the standard that the namespace does not have, and why."""

from __future__ import annotations

_COMPLEX = "arrays do not compute with complex numbers; keep two arrays of floats"
_EXTENSION = "the extension {} is not there: the namespace has what is in the standard's main part"
_NAMES = {
    **dict.fromkeys(("complex64", "complex128"), _COMPLEX),
    **{each: _EXTENSION.format(each) for each in ("fft", "linalg")},
}


class NotThere(NotImplementedError, AttributeError):
    """Says why, and is what `hasattr` takes for an answer: the standard has one ask by that."""


def get(name: str) -> object:
    """What a module's `__getattr__` is to do; raises."""
    if name in _NAMES:
        raise NotThere(f"xp.{name}: {_NAMES[name]}")
    raise AttributeError(f"module 'cudasync.xp' has no attribute {name!r}", name=name)
