"""Cellar, jit. The disk cache of the software GPU's compiled results: machine code and texts."""

from __future__ import annotations

from cudasync.kept import KeptCode, key_of

__all__ = ["find", "folder", "keep", "key_of"]

_code = KeptCode("softgpu")
find, keep, folder = _code.find, _code.keep, _code.folder
