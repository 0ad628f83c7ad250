"""Floor 4, xp. Names of the standard that the namespace lacks, with the reasons."""

from __future__ import annotations

_COMPLEX = "complex numbers are not supported: keep two arrays of floats"
_EXTENSION = "the extension {} is missing: the namespace has the standard's main part"
_NAMES = {
    **dict.fromkeys(("complex64", "complex128"), _COMPLEX),
    **{each: _EXTENSION.format(each) for each in ("fft", "linalg")},
}


class NotThere(NotImplementedError, AttributeError):
    """Gives the reason, and makes `hasattr` false, which is the standard's test."""


def get(name: str) -> object:
    """The `__getattr__` of the module; always raises."""
    if name in _NAMES:
        raise NotThere(f"xp.{name}: {_NAMES[name]}")
    raise AttributeError(f"module 'cudasync.xp' has no attribute {name!r}", name=name)
