"""Floor 4, xp. Names that the namespace lacks: of the standard, with the reasons, and of NumPy and
CuPy, with what to write instead."""

from __future__ import annotations

_COMPLEX = "complex numbers are not supported: keep two arrays of floats"
_EXTENSION = "the extension {} is missing: the namespace has the standard's main part"
_NAMES = {
    **dict.fromkeys(("complex64", "complex128"), _COMPLEX),
    **{each: _EXTENSION.format(each) for each in ("fft", "linalg")},
}
# What people type who know NumPy or CuPy.
_INSTEAD = {
    "array": "xp.asarray(...)",
    "ascontiguousarray": "x.copy()",
    "concatenate": "xp.concat(...)",
    "vstack": "xp.concat(..., axis=0)",
    "hstack": "xp.concat(..., axis=1)",
    "dot": "xp.matmul(a, b)",
    "absolute": "xp.abs(x)",
    "power": "xp.pow(x, y)",
    "mod": "xp.remainder(x, y)",
    "transpose": "xp.permute_dims(x, axes), or x.T",
    "amax": "xp.max(x)",
    "amin": "xp.min(x)",
    "bool_": "xp.bool",
    "float": "xp.float64",
    "int": "xp.int64",
    "double": "xp.float64",
    "single": "xp.float32",
    "random": "cs.random.Generator(seed=...)",
    "elementwise": "@cs.elementwise",
    "copy": "x.copy()",
    "asnumpy": "x.numpy()",
    "ndarray": "cs.Array",
}


class NotThere(NotImplementedError, AttributeError):
    """Gives the reason, and makes `hasattr` false, which is the standard's test."""


def get(name: str) -> object:
    """The `__getattr__` of the module; always raises."""
    if name in _NAMES:
        raise NotThere(f"xp.{name}: {_NAMES[name]}")
    said = f"module 'cudasync.xp' has no attribute {name!r}"
    if name in _INSTEAD:
        said += f": write {_INSTEAD[name]}"
    raise AttributeError(said, name=name)
